"""Translation rules from DuckDB to Spark.

They apply where sqlglot passes SQL on that Spark reads differently or lacks. The rules come from
running the same statements on both engines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from duckrun.errors import UnsupportedFeature
from duckrun.sql.building import call, number, spark_sql, untranslated
from duckrun.sql.dates import mark_days
from duckrun.sql.duckdb_functions import (
    at_time_zone,
    character,
    epoch,
    map_concat,
    to_integer,
    to_json,
    to_text,
    whole_quotient,
)
from duckrun.sql.file_paths import FILE_READERS
from duckrun.sql.generators import generates, lifted, series, series_table, unnest_table
from duckrun.sql.lambdas import with_places
from duckrun.sql.layers import qualified
from duckrun.sql.pieces import dialect_of
from duckrun.sql.texts import end_of_text, levenshtein, like, part_of_text, printf, split_text, unicode
from duckrun.sql.time_formats import formatted, parsed
from duckrun.sql.times import (
    date_add,
    date_diff,
    day_of_week,
    extract,
    interval,
    interval_of,
    iso_day_of_week,
    plus,
    truncated,
)


def for_spark(root: exp.Expr, *, is_definition: bool = False) -> None:
    """Replace the parts of a tree that Spark would read differently from DuckDB.

    Args:
        root: The tree.
        is_definition: Keep casts, as both engines read them in Spark's text of a CHECK, a default
            or a generated column.
    """
    mark_days(root)
    for node in reversed(list(root.this.walk())):  # from the leaves up
        if dialect_of(node) == "duckdb":
            rewritten = _rewritten(node)
            if rewritten is not node:
                node.replace(rewritten)
        elif isinstance(node, exp.ParseJSON):
            # Spark's parse_json makes a VARIANT. sqlglot writes its argument alone, because other
            # dialects store JSON as text.
            node.replace(call("parse_json", node.this))
    if is_definition:
        return
    # Last, as the cases of a cast repeat its value: generators and windows have names by now.
    for node in reversed(list(root.this.walk())):
        if isinstance(node, exp.Cast) and dialect_of(node) == "duckdb":
            if node.to.this in exp.DataType.INTEGER_TYPES:
                node.replace(to_integer(node))
            elif node.to.this in exp.DataType.TEXT_TYPES:
                node.replace(to_text(node))


def _rewritten(node: exp.Expr) -> exp.Expr:
    for kind, rewrite in _RULES.items():
        if isinstance(node, kind):
            return rewrite(node)
    return node


def _function(node: Any) -> exp.Expr:
    """Translate functions that sqlglot does not know, and that have other names in Spark."""
    name, arguments = str(node.this).lower(), node.expressions
    if name == "weekday" and len(arguments) == 1:
        return day_of_week(arguments[0])
    if name in ("date_part", "datepart") and len(arguments) == 2 and isinstance(arguments[0], exp.Literal):
        return extract(exp.Extract(this=exp.var(arguments[0].name.upper()), expression=arguments[1]))
    if name in ("list_aggr", "list_aggregate", "array_aggr", "array_aggregate"):
        return _list_aggregate(node)
    if name in _OF_UNITS and len(arguments) == 1:
        return interval_of(arguments[0], _OF_UNITS[name])
    if name == "try_strptime" and len(arguments) == 2:
        return parsed(*arguments, lenient=True)
    if name == "printf":
        return printf(arguments)
    if name == "row" and arguments:
        return _row(node)
    if name == "to_json" and len(arguments) == 1:
        return to_json(arguments[0])
    if name == "map_concat":
        return map_concat(arguments)
    if name == "url_encode":
        raise untranslated("url_encode(), which Spark does by other rules for a blank and for ~ and *,")
    if name in _RENAMED:
        return call(_RENAMED[name], *node.expressions)
    return node


def _refused(what: str, where: Callable[[Any], object] = lambda node: True) -> Callable[[Any], exp.Expr]:
    def refuse(node: Any) -> exp.Expr:
        if where(node):
            raise untranslated(what)
        return node

    return refuse


def _counts_table(node: Any) -> bool:
    """Return True for ``count(t.*)``, which counts rows; Spark counts rows without any NULL."""
    return isinstance(node.this, exp.Column) and isinstance(node.this.this, exp.Star)


def _seconds(node: Any) -> exp.Expr:
    """Translate ``to_timestamp(1.5)``: Spark's from_unixtime drops the fraction."""
    return node if node.args.get("scale") else call("timestamp_seconds", node.this)


_RENAMED = {
    "to_binary": "bin",
    "arbitrary": "any_value",
    "error": "raise_error",
    "get_current_timestamp": "current_timestamp",
}
_OF_UNITS = {
    f"to_{units}": units
    for units in ("days", "weeks", "months", "quarters", "years", "decades", "hours", "minutes", "seconds")
} | {"to_centuries": "century"}


def _concat(node: Any) -> exp.Expr:
    """Make strings of the arguments of ``concat(x, …)``, which ignores NULL.

    sqlglot writes ``coalesce(x, '')``. Spark would read ``''`` in the type of x, and fail for a
    number or a date. So Spark's own concat makes a string of x first. Unlike a cast, it fails for a
    list.
    """
    if isinstance(node, exp.ConcatWs) or any(isinstance(each, exp.Array) for each in node.expressions):
        return node
    texts = [each if each.is_string else call("concat", each, exp.Literal.string("")) for each in node.expressions]
    node.set("expressions", texts)
    return node


def _regexp_replace(node: Any) -> exp.Expr:
    r"""Translate the options and groups of ``regexp_replace``.

    DuckDB replaces the first match unless the options have ``'g'``, and refers to groups by
    ``\\1``. Spark replaces all matches, and refers to groups by ``$1``.
    """
    flags = node.args.get("modifiers")
    if flags is None or "g" not in flags.name:
        raise UnsupportedFeature(
            "regexp_replace without the option 'g' replaces the first match only, which Spark's does not do; "
            "add 'g', or run this with engine: duckdb."
        )
    replacement = node.args.get("replacement")
    if isinstance(replacement, exp.Literal):
        text = replacement.name.replace("$", "\\$")
        for digit in "0123456789":
            text = text.replace(f"\\{digit}", f"${digit}")
        replacement = exp.Literal.string(text)
    others = flags.name.replace("g", "")
    pattern = node.expression
    if others:
        pattern = exp.Concat(expressions=[exp.Literal.string(f"(?{others})"), pattern])
    return call("regexp_replace", node.this, pattern, replacement or exp.Literal.string(""))


def _regexp_like(node: Any) -> exp.Expr:
    """Move the options of ``regexp_matches(s, 'a', 'i')`` into the pattern, as Spark takes them."""
    flags = node.args.get("flag")
    if flags is None:
        return node
    if not isinstance(flags, exp.Literal) or set(flags.name) - set("ism"):
        raise untranslated(f"regexp_matches with the options {flags.sql()}")
    pattern = exp.Concat(expressions=[exp.Literal.string(f"(?{flags.name})"), node.expression])
    return exp.RegexpLike(this=node.this, expression=pattern)


def _within_group(node: Any) -> exp.Expr:
    """Translate ``percentile_cont(0.5) within group (order by x)`` to the exact function.

    sqlglot writes Spark's approximate one.
    """
    order = node.expression.expressions if isinstance(node.expression, exp.Order) else []
    if isinstance(node.this, exp.PercentileDisc) and order and order[0].args.get("desc"):
        raise untranslated("percentile_disc over a descending order")
    if not isinstance(node.this, exp.PercentileCont) or len(order) != 1:
        return node
    part = "1 - part" if order[0].args.get("desc") else "part"
    return spark_sql(f"percentile(x, {part})", x=order[0].this, part=node.this.this)


def _percentile(node: Any) -> exp.Expr:
    # WITHIN GROUP has the same form in Spark.
    return node if node.expression is None else call("percentile", node.this, node.expression)


def _identifier(node: Any) -> exp.Expr:
    """Quote a name with letters beyond ASCII: Spark requires the quotes, DuckDB does not."""
    if not node.name.isascii():
        node.set("quoted", True)
    return node


def _table(node: Any) -> exp.Expr:
    call = node.this
    if isinstance(call, exp.GenerateSeries):
        return series_table(node)
    if isinstance(call, exp.Func):
        name = call.name if isinstance(call, exp.Anonymous) else call.sql_name()
        if FILE_READERS.fullmatch(name):
            first = (None if isinstance(call, exp.Anonymous) else call.args.get("this")) or next(
                iter(call.expressions), None
            )
            read = f"{name.lower()}({'' if first is None else first.sql('duckdb')}), by which DuckDB reads files,"
            raise untranslated(read, "make a table of its rows there, or ")
    return node


def _window(node: Any) -> exp.Expr:
    """Cast ``row_number() over …`` to BIGINT: it is an INT in Spark."""
    counts = isinstance(node.this, exp.RowNumber | exp.Rank | exp.DenseRank | exp.Ntile)
    return exp.cast(node.copy(), "bigint") if counts else _array_agg(node)


def _select(node: Any) -> exp.Expr:
    layered = qualified(node)
    if layered is node:
        return lifted(node)
    if any(map(generates, node.expressions)):
        raise untranslated("unnest() beside QUALIFY or DISTINCT ON", "use an inner query, or ")
    return layered


def _name_of_day(node: Any) -> exp.Expr:
    """Return DuckDB's full names of days and months; Spark's functions give three letters."""
    pattern = "EEEE" if isinstance(node, exp.Dayname) else "MMMM"
    return call("date_format", node.this, exp.Literal.string(pattern))


def _json(node: Any) -> exp.Expr:
    """Translate casts to JSON: a string, or its content if the target is a VARIANT.

    Delta tables store JSON as strings, as DuckDB does.
    """
    # Spark has no TIME.
    if node.to.this in (exp.DataType.Type.TIME, exp.DataType.Type.TIMETZ):
        raise untranslated("The type TIME")
    if node.to.this == exp.DataType.Type.JSON:
        text = exp.cast(node.this, "text")
        text.meta[_IS_JSON] = True
        return text
    inner = node.this.unnest()
    if node.to.this == exp.DataType.Type.VARIANT and (inner.meta.get(_IS_JSON) or _makes_json(inner)):
        value = call("try_parse_json" if isinstance(node, exp.TryCast) else "parse_json", exp.cast(inner, "text"))
        # JSON's null is NULL to DuckDB.
        return spark_sql("if(is_variant_null(value), NULL, value)", value=value)
    return node


_IS_JSON = "duckrun is JSON"
_JSON_FUNCTIONS = re.compile(
    "json_(object|array|quote|merge_patch|transform|group_array|group_object)|(to|array_to|row_to)_json", re.IGNORECASE
)


def _makes_json(node: exp.Expr) -> bool:
    """Return True if DuckDB gives an expression the type JSON.

    Source: DuckDB, JSON Creation Functions and JSON Extraction Functions.
    """
    name = node.name if isinstance(node, exp.Anonymous) else node.sql_name() if isinstance(node, exp.Func) else ""
    return isinstance(node, exp.ParseJSON | exp.JSONExtract) or _JSON_FUNCTIONS.fullmatch(name) is not None


def _array_agg(node: Any) -> exp.Expr:
    """Translate ``array_agg(x order by y)``, which keeps NULLs and the order.

    Spark's collect_list does neither, so it collects structs of value and sort keys.
    """
    wrappers = (exp.Filter, exp.Window)
    if isinstance(node.parent, wrappers) and node.arg_key == "this":
        return node  # the rule of its wrapper translates it
    outer = node.copy()
    wrapped = outer
    while isinstance(wrapped, wrappers):
        wrapped = wrapped.this
    if not isinstance(wrapped, exp.ArrayAgg):
        return node
    value, order = wrapped.this, []
    if isinstance(value, exp.Order):
        value, order = value.this, value.expressions
    distinct = isinstance(value, exp.Distinct)
    if distinct and order:
        raise untranslated("array_agg(distinct … order by …)", "use list_sort(array_agg(distinct …)), or ")
    if distinct:
        (value,) = value.expressions
    parts = [("v", value), *((f"k{i}", key.this) for i, key in enumerate(order))]
    row: Any = call(
        "named_struct", *(part for name, child in parts for part in (exp.Literal.string(name), child.copy()))
    )
    rows = call("collect_list", exp.Distinct(expressions=[row]) if distinct else row)
    if wrapped is outer:
        outer = rows
    else:
        wrapped.replace(rows)
    sorted_rows = "rows"
    if order:
        compared = "0"
        for i, key in reversed(list(enumerate(order))):
            compared = _comparison(f"k{i}", key, compared)
        sorted_rows = f"array_sort(rows, (l, r) -> {compared})"
    return spark_sql(f"transform({sorted_rows}, item -> item.v)", rows=outer)


def _comparison(name: str, key: Any, equal: str) -> str:
    """Compare one sort key of the rows ``l`` and ``r``, as ORDER BY does.

    The result is -1 or 1, and ``equal`` for equal keys.
    """
    smaller = 1 if key.args.get("desc") else -1
    null = -1 if key.args.get("nulls_first") else 1
    left, right = f"l.{name}", f"r.{name}"
    return (
        f"CASE WHEN {left} < {right} THEN {smaller} WHEN {left} > {right} THEN {-smaller} "
        f"WHEN {left} IS NULL AND {right} IS NOT NULL THEN {null} "
        f"WHEN {left} IS NOT NULL AND {right} IS NULL THEN {-null} ELSE {equal} END"
    )


def _bracket(node: Any) -> exp.Expr:
    """Translate ``list[2:3]`` and ``list[2]``.

    Spark's slice() takes a start and a length. An index counts from 1, or from the end if it is
    negative; without an element the result is NULL.
    """
    part = node.expressions[0] if len(node.expressions) == 1 else None
    if not isinstance(part, exp.Slice):
        return node if part is None or part.is_string else _element(node.this, part)
    start, end = part.this or number(1), part.expression
    whole = all(isinstance(n, exp.Literal) and not n.is_string and n.name.isdigit() for n in (start, end))
    if not whole or int(start.name) < 1 or part.args.get("step"):
        raise untranslated("A slice of a list whose ends are not two positive numbers")
    length = max(int(end.name) - int(start.name) + 1, 0)
    return call("slice", node.this, start, number(length))


def _element(whole: exp.Expr, index: Any) -> exp.Expr:
    """Return a list element by number, or a map value by key."""
    # sqlglot has subtracted 1 from a literal index, unless it knows that this is no list.
    is_shifted = whole.type is None or whole.is_type(exp.DType.UNKNOWN, exp.DType.ARRAY, exp.DType.LIST)
    if index.is_int and is_shifted:
        index = number(int(index.to_py()) + 1)
    return call("try_element_at", whole, index)


def _map(node: Any) -> exp.Expr:
    """Translate ``map {key: value}``; sqlglot would write a struct for the pairs."""
    if not isinstance(node.this, exp.Struct):
        raise untranslated("map {…} with something behind its }", "write (map {…}) in brackets, or ")
    pairs = node.this.expressions
    if not pairs:
        return _empty_map(node)
    function = call("map", *(part for pair in pairs for part in (pair.this, pair.expression)))
    function.type = node.type
    return function


def _empty_map(node: Any) -> exp.Expr:
    """Cast ``map {}`` to a map of integers, as in DuckDB; Spark's empty map has no types."""
    return node if node.args.get("keys") else exp.cast(call("map"), "map(int, int)", dialect="duckdb")


def _row(node: Any) -> exp.Expr:
    """Translate ``row(a, b)``, whose fields have no names.

    Spark would name the fields by the columns, and then not compare the row with others. Before IN,
    Spark needs a list.
    """
    values = node.expressions
    if isinstance(node.parent, exp.In) and node.arg_key == "this":
        return exp.Tuple(expressions=values)
    named = ((exp.Literal.string(f"col{place}"), value) for place, value in enumerate(values, 1))
    return call("named_struct", *(part for pair in named for part in pair))


def _list_aggregate(node: Any) -> exp.Expr:
    """Translate ``list_aggr(list, 'name', …)`` if Spark has a list function for the aggregate."""
    name = node.expressions[1].name.lower() if len(node.expressions) > 1 else ""
    others = [node.expressions[0], *node.expressions[2:]]
    if name not in _OF_LISTS:
        raise untranslated(f"list_aggr(…, {name!r})")
    return call(_OF_LISTS[name], *others)


_OF_LISTS = {"string_agg": "array_join", "min": "array_min", "max": "array_max"}


def _where(node: exp.Where) -> exp.Expr:
    """Remove parentheses around a single name.

    Spark reads ``FROM t WHERE (flag)`` as table t with the alias WHERE and a column flag.
    """
    while isinstance(node.this, exp.Paren) and isinstance(node.this.this, exp.Column | exp.Boolean | exp.Paren):
        node.set("this", node.this.this)
    return node


def _rounded(node: Any) -> exp.Expr:
    """Translate ``ceil`` and ``floor``.

    Spark's give a BIGINT, which has no NaN and ends at 2^63. A DOUBLE of that size is whole anyway.
    """
    return spark_sql("if(x >= 9E15 OR x <= -9E15, x, node)", x=node.this, node=node)


def _sign(node: Any) -> exp.Expr:
    """Return 0 for NaN."""
    return spark_sql("if(isnan(x), 0, node)", x=node.this, node=node)


def _log(node: Any) -> exp.Expr:
    """Translate ``log(x)``: the base is 10 in DuckDB, e in Spark."""
    return node if node.expression is not None else call("log10", node.this)


def _is_nan(node: Any) -> exp.Expr:
    """Return NULL for NULL, where Spark returns false."""
    return spark_sql("if(x IS NULL, NULL, node)", x=node.this, node=node)


_RULES: dict[type[exp.Expr], Callable[[Any], exp.Expr]] = {
    exp.Anonymous: _function,
    exp.ArrayAgg: _array_agg,
    exp.Bracket: _bracket,
    exp.ArrayFilter: lambda node: with_places(node, 1),
    exp.AtTimeZone: at_time_zone,
    exp.Cast: _json,
    exp.Chr: character,
    exp.Concat: _concat,
    exp.Count: _refused("count(table.*)", _counts_table),
    exp.Ceil: _rounded,
    exp.Floor: _rounded,
    exp.Sign: _sign,
    exp.IsNan: _is_nan,
    exp.Log: _log,
    exp.DayOfWeekIso: lambda node: iso_day_of_week(node.this),
    exp.Format: _refused("format()"),
    exp.Left: end_of_text,
    exp.Right: end_of_text,
    exp.Substring: part_of_text,
    exp.Split: split_text,
    exp.Levenshtein: levenshtein,
    exp.Unicode: unicode,
    exp.Like: like,
    exp.ILike: like,
    exp.DayOfWeek: lambda node: day_of_week(node.this),
    exp.Extract: extract,
    exp.DateDiff: date_diff,
    exp.DateAdd: date_add,
    exp.Filter: _array_agg,
    exp.Interval: interval,
    exp.IntDiv: whole_quotient,
    exp.RegexpReplace: _regexp_replace,
    exp.PercentileCont: _percentile,
    exp.RegexpLike: _regexp_like,
    exp.WithinGroup: _within_group,
    exp.Table: _table,
    exp.Map: _empty_map,
    exp.ToMap: _map,
    exp.Tuple: lambda node: (
        _row(node) if isinstance(node.parent, exp.Predicate) and isinstance(node.parent, exp.Binary) else node
    ),
    exp.Identifier: _identifier,
    exp.GenerateSeries: lambda node: node if isinstance(node.parent, exp.Table) else series(node),
    exp.Select: _select,
    exp.Where: _where,
    exp.Add: plus,
    exp.Sub: plus,
    exp.TimeToStr: lambda node: formatted(node.this, node.args["format"]),
    exp.StrToTime: lambda node: parsed(node.this, node.args["format"]),
    exp.TimeToUnix: epoch,
    exp.TimestampTrunc: truncated,
    exp.DateTrunc: truncated,
    exp.ToDays: lambda node: interval_of(node.this, "days"),
    exp.Skewness: _refused("skewness(), which Spark computes by another formula,"),
    exp.Kurtosis: _refused("kurtosis(), which Spark computes by another formula,"),
    exp.UnixToTime: _seconds,
    exp.Transform: lambda node: with_places(node, 1),
    exp.Typeof: _refused("typeof(), whose names of types differ,"),
    exp.ToBinary: lambda node: call("bin", node.this),
    exp.Unnest: unnest_table,
    exp.Dayname: _name_of_day,
    exp.Monthname: _name_of_day,
    exp.Window: _window,
    exp.Week: lambda node: call("weekofyear", node.this),
}
