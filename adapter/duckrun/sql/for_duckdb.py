"""Translation rules from Spark to DuckDB.

They apply where sqlglot passes SQL on that DuckDB reads differently. The rules come from running
the same expressions on both engines (``tests/differential/test_translation.py``). The opposite
direction is ``for_spark``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from sqlglot import exp

from duckrun.sql import spark_functions as spark
from duckrun.sql.building import (
    Rule,
    call,
    duckdb_rule,
    duckdb_sql,
    number,
    refusing,
    rewrite,
    untranslated_to_duckdb,
    with_places,
)
from duckrun.sql.comparisons import compare_as_spark
from duckrun.sql.pieces import dialect_of
from duckrun.sql.time_formats import duckdb_format, duckdb_format_to_parse

_DATE_UNITS = frozenset(("YEAR", "YYYY", "YY", "QUARTER", "MONTH", "MM", "MON", "WEEK"))
_UNITS = _DATE_UNITS | {"DAY", "DD", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"}
_COUNTED_UNITS = frozenset(("WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"))
_OF_FORMATS = (exp.TimeToStr, exp.StrToTime, exp.TsOrDsToDate, exp.UnixToStr)


def for_duckdb(root: exp.Expr) -> None:
    """Replace the parts of a tree that DuckDB would read differently from Spark.

    Raises:
        UnsupportedFeature: for a part without a translation.
    """
    compare_as_spark(root)
    rewrite(root, lambda node: _RULES.get(type(node)) if dialect_of(node) == "spark" else None)


_refused = partial(refusing, untranslated_to_duckdb)


def _cast(node: exp.Cast) -> exp.Expr:
    """Return Spark's CAST, which raises in ANSI mode.

    sqlglot reads CAST as TRY_CAST; a real TRY_CAST has ``safe``.
    """
    lenient = bool(node.args.get("safe"))
    plain = node if lenient else exp.Cast(this=node.this, to=node.to)
    if node.to.this in exp.DataType.INTEGER_TYPES:
        wrong = spark.failing("no whole number", "x", node.to.sql("duckdb"))
        return spark.to_integer(plain, "TRY_CAST" if lenient else "CAST", "NULL" if lenient else wrong)
    if node.to.this in (exp.DType.BINARY, exp.DType.VARBINARY):
        return spark.to_bytes(plain)
    return spark.to_text(plain) if node.to.this in exp.DataType.TEXT_TYPES else plain


def _to_date(node: exp.TsOrDsToDate) -> exp.Expr:
    if node.args.get("format") is None:
        return exp.cast(node.this, "date")
    return exp.cast(call("strptime", node.this, _format_to_parse(node)), "date")


def _format(node: exp.Expr) -> exp.Expr:
    return exp.Literal.string(duckdb_format(_pattern_of(node)))


def _format_to_parse(node: exp.Expr) -> exp.Expr:
    return exp.Literal.string(duckdb_format_to_parse(_pattern_of(node)))


def _pattern_of(node: exp.Expr) -> str:
    """Return the datetime pattern of the source text.

    sqlglot has translated the pattern in the tree, with unknown letters left as text.
    """
    pattern = node.args.get("format")
    original = None if pattern is None else pattern.meta.get(WRITTEN_PATTERN)
    if original is None:
        raise untranslated_to_duckdb("A pattern of a date or time that is not a literal")
    return str(original)


WRITTEN_PATTERN = "written_pattern"
"""Metadata key of a literal: Spark's datetime pattern that the literal was read from."""


def keep_patterns(tree: exp.Expr, texts: list[str], translate: Callable[[str], str | None]) -> None:
    """Store the original datetime patterns on the literals of a Spark tree.

    Args:
        tree: a tree from sqlglot, which has translated the patterns.
        texts: the string literals of the source text.
        translate: sqlglot's translation of a pattern.
    """
    nodes = [node for node in tree.walk() if isinstance(node, _OF_FORMATS) and node.args.get("format") is not None]
    if not nodes:
        return
    originals: dict[str | None, set[str]] = {}
    for text in texts:
        originals.setdefault(translate(text), set()).add(text)
    for node in nodes:
        pattern = node.args["format"]
        written = originals.get(pattern.name, set()) if isinstance(pattern, exp.Literal) else set()
        if len(written) == 1:  # two patterns with one translation are ambiguous
            pattern.meta[WRITTEN_PATTERN] = written.pop()


def _truncated(node: exp.DateTrunc) -> exp.Expr:
    """Return ``trunc``, which gives a date, and NULL for a unit below the week."""
    return exp.cast(_truncated_to(node, "trunc", _DATE_UNITS), "date")


def _truncated_time(node: exp.TimestampTrunc) -> exp.Expr:
    return _truncated_to(node, "date_trunc", _UNITS)


def _truncated_to(node: exp.Expr, function: str, units: Collection[str]) -> exp.Expr:
    unit = node.args["unit"].name.upper()
    if unit not in units:
        raise untranslated_to_duckdb(f"{function}() with the unit {unit}")
    spelled = {"YYYY": "YEAR", "YY": "YEAR", "MM": "MONTH", "MON": "MONTH", "DD": "DAY"}.get(unit, unit)
    return call("date_trunc", exp.Literal.string(spelled), node.this)


def _extract(node: exp.Extract) -> exp.Expr:
    part, value = node.this.name.upper(), node.expression
    if part in ("DOW", "DAYOFWEEK"):
        return _plus(call("dayofweek", value), 1)
    if part in ("DOW_ISO", "DAYOFWEEK_ISO"):
        return call("isodow", value)
    if part in ("SECOND", "SECONDS", "SEC", "S"):  # with its fraction, as a DECIMAL(8, 6)
        return duckdb_sql("CAST((microsecond(x) / 1000000.0) AS DECIMAL(8, 6))", x=value)
    return node


def _function(node: exp.Anonymous) -> exp.Expr:
    name, arguments = str(node.this).lower(), node.expressions
    if name == "binary" and len(arguments) == 1:
        return spark.to_bytes(exp.cast(arguments[0], "binary"))
    if name in ("date_part", "datepart") and len(arguments) == 2 and isinstance(arguments[0], exp.Literal):
        return _extract(exp.Extract(this=exp.var(arguments[0].name.upper()), expression=arguments[1]))
    if name == "weekday" and len(arguments) == 1:
        return _plus(call("isodow", arguments[0]), -1)
    if name == "bin" and len(arguments) == 1:
        return call("bin", _cast(exp.cast(arguments[0], "bigint")))
    if name == "forall" and len(arguments) == 2:
        return spark.holds_for(*arguments, every=True)
    if name == "map_concat":
        parts = [exp.Is(this=each.copy(), expression=exp.null()) for each in arguments]
        return duckdb_sql("CASE WHEN NOT lacking THEN node END", lacking=exp.or_(*parts, copy=False), node=node)
    if name in _REFUSED:
        raise untranslated_to_duckdb(f"{name}()")
    return node


_REFUSED = frozenset(("printf", "url_encode", "url_decode", "levenshtein", "hash"))


def _plus(value: exp.Expr, count: int) -> exp.Expr:
    return duckdb_sql(f"(x + {count})", x=value)


def _counted(node: exp.TimestampDiff) -> exp.Expr:
    """Return ``timestampdiff`` as a count of whole units."""
    unit = node.args["unit"].name.upper()
    # Months are left out: DuckDB's date_sub takes ends of months for equal.
    if unit not in _COUNTED_UNITS:
        raise untranslated_to_duckdb(f"timestampdiff() with the unit {unit}")
    return call("date_sub", exp.Literal.string(unit), node.expression, node.this)


def _days(node: exp.DateDiff) -> exp.Expr:
    # It counts whole days between times, and DuckDB's date_diff midnights.
    if (unit := node.args.get("unit")) is not None:
        raise untranslated_to_duckdb(f"datediff() with the unit {unit.name.upper()} (timestampdiff() counts it)")
    return node


def _end_of_text(node: exp.Left | exp.Right) -> exp.Expr:
    """Make ``left`` and ``right`` of a negative number empty.

    DuckDB drops so many letters instead.
    """
    node.set("expression", _not_negative(node.expression))
    return node


def _part_of_text(node: exp.Substring) -> exp.Expr:
    """Read place 0 as place 1, and a negative length as none; DuckDB counts back from there."""
    start, length = node.args.get("start"), node.args.get("length")
    if isinstance(start, exp.Literal):
        node.set("start", number(max(int(start.name), 1)))
    elif start is not None and not _is_negative_literal(start):
        node.set("start", duckdb_sql("CASE WHEN x = 0 THEN 1 ELSE x END", x=start))
    if length is not None:
        node.set("length", _not_negative(length))
    return node


def _not_negative(count: exp.Expr) -> exp.Expr:
    if isinstance(count, exp.Literal):
        return count
    # Not greatest(): it ignores NULL.
    return number(0) if _is_negative_literal(count) else duckdb_sql("CASE WHEN x < 0 THEN 0 ELSE x END", x=count)


def _is_negative_literal(count: Any) -> bool:
    return isinstance(count, exp.Neg) and isinstance(count.this, exp.Literal)


def _regexp_replace(node: exp.RegexpReplace) -> exp.Expr:
    r"""Translate the group reference ``$1`` to DuckDB's ``\\1``."""
    replacement = node.args.get("replacement")
    if not (isinstance(replacement, exp.Literal) and replacement.is_string) or "${" in replacement.name:
        raise untranslated_to_duckdb("regexp_replace() with a replacement that is not a literal, or names a group")
    parts = re.findall(r"\\(.)|\$(\d)|([^\\$])", replacement.name, re.DOTALL)
    text = "".join(
        f"\\{group}" if group else (escaped or plain).replace("\\", "\\\\") for escaped, group, plain in parts
    )
    node.set("replacement", exp.Literal.string(text))
    return node


def _like(node: exp.Like | exp.ILike) -> exp.Expr:
    """Add ESCAPE: Spark escapes by a backslash, DuckDB only where ESCAPE says so."""
    pattern = node.expression
    if isinstance(node.parent, exp.Escape) or (isinstance(pattern, exp.Literal) and "\\" not in pattern.name):
        return node
    if isinstance(pattern, exp.Any | exp.All):
        if "\\" in pattern.sql():
            raise untranslated_to_duckdb("LIKE ANY or ALL with a backslash in a pattern")
        return node
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


def _values(node: exp.Values) -> exp.Expr:
    """Name the columns of inline rows: Spark counts from col1, DuckDB from col0."""
    if isinstance(node.parent, exp.Insert) or not node.expressions:
        return node
    row = node.expressions[0]
    width = len(row.expressions) if isinstance(row, exp.Tuple) else 1
    names = [f"col{place}" for place in range(1, width + 1)]
    if isinstance(node.parent, exp.From | exp.Join):
        _name_columns(node, names, "_values")
        return node
    rows = node.copy()
    _name_columns(rows, names, "_values")
    return exp.select("*").from_(rows)


def _table(node: exp.Table) -> exp.Expr:
    """Name the columns of rows that a function makes, if the query does not."""
    function = node.this
    if isinstance(function, exp.Anonymous) and function.name.lower() == "range":
        _name_columns(node, ["id"], "range")
    elif type(function) is exp.Explode and not isinstance(function.this, exp.Map | exp.VarMap):
        _name_columns(node, ["col"], "explode")
    return node


def _lateral(node: exp.Lateral) -> exp.Expr:
    """Translate ``LATERAL VIEW explode(map) x AS key, value``, whose rows have two columns."""
    if node.args.get("outer"):
        raise untranslated_to_duckdb("LATERAL VIEW OUTER")
    function = node.this
    width = len(node.args["alias"].columns) if node.args.get("alias") else 0
    if type(function) is exp.Explode and width == 2:
        node.set("this", exp.Inline(this=call("map_entries", function.this)))
    elif type(function) is exp.Posexplode and width == 3:
        raise untranslated_to_duckdb("posexplode() of a map")
    return node


def _exploded(node: exp.Explode) -> exp.Expr:
    """Refuse a map outside of LATERAL VIEW, whose rows have two columns."""
    is_map = isinstance(node.this, exp.Map | exp.VarMap) or isinstance(node.parent, exp.Aliases)
    if is_map and not isinstance(node.parent, exp.Lateral):
        raise untranslated_to_duckdb("explode() of a map outside of LATERAL VIEW explode(…) x AS key, value")
    return node


def _exists(node: exp.Exists) -> exp.Expr:
    """Translate ``exists(array, lambda)``; EXISTS of a query is one in DuckDB, too."""
    return node if node.expression is None else spark.holds_for(node.this, node.expression, every=False)


def _name_columns(node: exp.Expr, names: list[str], table: str) -> None:
    alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(table))
    if not alias.columns:
        alias.set("columns", [exp.to_identifier(name) for name in names])
        node.set("alias", alias)


def _is_empty_pattern(node: Any) -> bool:
    return isinstance(node.expression, exp.Literal) and not node.expression.name


_sign = duckdb_rule("CASE WHEN isnan(CAST(x AS DOUBLE)) THEN CAST('NaN' AS DOUBLE) ELSE node END")
"""Return NaN for NaN, where DuckDB returns 0."""


_RULES: dict[type[exp.Expr], Rule] = {
    exp.AddMonths: duckdb_rule("CAST(CAST(x AS DATE) + to_months(CAST(y AS INT)) AS DATE)"),
    exp.Anonymous: _function,
    exp.ApproxQuantile: lambda node: call("quantile_disc", node.this, node.args["quantile"]),
    exp.ArgMax: lambda node: call("arg_max_null", node.this, node.expression),
    exp.ArgMin: lambda node: call("arg_min_null", node.this, node.expression),
    exp.ArrayAgg: spark.collected,
    exp.ArrayContains: spark.contains,
    exp.ArrayDistinct: spark.distinct,
    exp.ArrayExcept: spark.others,
    exp.ArrayFilter: lambda node: with_places(node, -1),
    exp.ArrayInsert: _refused("array_insert()"),
    exp.ArrayIntersect: spark.common,
    exp.ArrayPosition: spark.position,
    exp.ArrayRemove: spark.without,
    exp.ArraysZip: _refused("arrays_zip()"),
    exp.ArrayToString: spark.joined,
    exp.ArrayUniqueAgg: spark.collected,
    exp.AtTimeZone: spark.local_time,
    exp.BitwiseCount: duckdb_rule("bit_count(CAST(x AS BIGINT))"),
    exp.Avg: spark.average,
    exp.Bracket: spark.element,
    exp.Cast: _cast,
    exp.Chr: spark.character,
    exp.Concat: spark.joined_texts,
    exp.ConcatWs: spark.concatenated,
    exp.CurrentCatalog: _refused("current_catalog()"),
    exp.CurrentDatabase: _refused("current_database()"),
    exp.Div: spark.divided,
    exp.DPipe: spark.joined_texts,
    exp.Filter: spark.collected,
    exp.Flatten: spark.flattened,
    exp.GenerateSeries: spark.sequence,
    exp.GroupConcat: spark.texts,
    exp.IntDiv: spark.whole_quotient,
    exp.JSONFormat: _refused("to_json()"),
    exp.Kurtosis: lambda node: call("kurtosis_pop", node.this),
    exp.Lateral: _lateral,
    exp.Max: spark.greatest_row,
    exp.Min: spark.greatest_row,
    exp.Mod: spark.divided,
    exp.Pivot: _refused(
        "PIVOT with a count, which is NULL in Spark where no row is,",
        lambda node: any(each.find(exp.Count) for each in node.expressions),
    ),
    exp.Quantile: spark.percentile,
    exp.Skewness: _refused("skewness()"),
    exp.StrPosition: spark.place_in_text,
    exp.Sub: spark.difference,
    exp.Transform: lambda node: with_places(node, -1),
    exp.Typeof: _refused("typeof()"),
    exp.UnixSeconds: duckdb_rule("CAST(floor(epoch(x)) AS BIGINT)"),
    exp.Window: spark.collected,
    exp.WithinGroup: spark.collected,
    exp.Ceil: lambda node: node if node.args.get("decimals") else exp.cast(node.copy(), "bigint"),
    exp.DateDiff: _days,
    exp.DateTrunc: _truncated,
    exp.DayOfWeek: lambda node: _plus(call("dayofweek", node.this), 1),
    exp.Dayname: duckdb_rule("left(dayname(x), 3)"),
    exp.Exists: _exists,
    exp.Explode: _exploded,
    exp.Extract: _extract,
    exp.Floor: lambda node: node if node.args.get("decimals") else exp.cast(node.copy(), "bigint"),
    exp.Format: _refused("format_string()"),
    exp.Hex: spark.hexadecimal,
    exp.ILike: _like,
    exp.IsNan: lambda node: call("coalesce", call("isnan", node.this), exp.false()),
    exp.Left: _end_of_text,
    exp.Levenshtein: _refused("levenshtein()"),
    exp.Like: _like,
    exp.Monthname: duckdb_rule("left(monthname(x), 3)"),
    exp.MonthsBetween: _refused("months_between()"),
    exp.RegexpCount: _refused("regexp_count() with an empty pattern", _is_empty_pattern),
    exp.RegexpReplace: _regexp_replace,
    exp.RegexpSplit: _refused("split() with an empty pattern", _is_empty_pattern),
    exp.Right: _end_of_text,
    exp.SHA2: _refused(
        "sha2() with a length that is not a literal",
        lambda node: not isinstance(node.args.get("length"), exp.Literal),
    ),
    exp.Round: spark.rounded,
    exp.Sign: _sign,
    exp.StrToTime: lambda node: call("strptime", node.this, _format_to_parse(node)),
    exp.StrToUnix: _refused("unix_timestamp()"),
    exp.Substring: _part_of_text,
    exp.TimeToStr: lambda node: call("strftime", node.this, _format(node)),
    exp.TimestampDiff: _counted,
    exp.TimestampTrunc: _truncated_time,
    exp.ToBinary: _refused("to_binary()"),
    exp.TryCast: _cast,
    exp.TsOrDsToDate: _to_date,
    exp.UnixToStr: lambda node: call("strftime", call("to_timestamp", node.this), _format(node)),
    exp.Table: _table,
    exp.Values: _values,
}
