"""Translation rules from DuckDB to Spark.

They apply where sqlglot passes SQL on that Spark reads differently or lacks. The rules come from
running the same statements on both engines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlglot import exp

from duckrun.sql import duckdb_functions as duckdb, regexes, texts, times
from duckrun.sql.building import Rule, call, number, refusing, rewrite, spark_rule, spark_sql, untranslated, with_places
from duckrun.sql.comparisons import compare_as_duckdb
from duckrun.sql.dates import mark_days
from duckrun.sql.file_paths import FILE_READERS
from duckrun.sql.generators import generates, lifted, series, series_table, unnest_table
from duckrun.sql.layers import qualified
from duckrun.sql.pieces import dialect_of
from duckrun.sql.time_formats import formatted, parsed


def for_spark(root: exp.Expr, *, is_definition: bool = False) -> None:
    """Replace the parts of a tree that Spark would read differently from DuckDB.

    Args:
        root: The tree.
        is_definition: Keep casts, as both engines read them in Spark's text of a CHECK, a default
            or a generated column.
    """
    mark_days(root)
    if not is_definition:
        compare_as_duckdb(root)
    rewrite(root, _first_rule)
    if not is_definition:
        # Last, as these repeat their values: generators and windows have names by now.
        rewrite(root, lambda node: _rule_in(_LAST_RULES, node))


def _first_rule(node: exp.Expr) -> Rule | None:
    # Spark's parse_json makes a VARIANT. sqlglot writes its argument alone, because other dialects
    # store JSON as text.
    if isinstance(node, exp.ParseJSON) and dialect_of(node) != "duckdb":
        return lambda parsed_json: call("parse_json", parsed_json.this)
    return _rule_in(_RULES, node)


def _rule_in(rules: dict[type[exp.Expr], Rule], node: exp.Expr) -> Rule | None:
    if dialect_of(node) == "duckdb":
        for kind, rule in rules.items():
            if isinstance(node, kind):
                return rule
    return None


_refused = partial(refusing, untranslated)


def _function(node: Any) -> exp.Expr:
    """Translate functions that sqlglot does not know, and that have other names in Spark."""
    name, arguments = str(node.this).lower(), node.expressions
    if name in ("date_part", "datepart") and len(arguments) == 2 and isinstance(arguments[0], exp.Literal):
        return times.extract(exp.Extract(this=exp.var(arguments[0].name.upper()), expression=arguments[1]))
    if name in ("list_aggr", "list_aggregate", "array_aggr", "array_aggregate"):
        return _list_aggregate(node)
    if name == "printf":
        return texts.printf(arguments)
    if name == "row" and arguments:
        return _row(node)
    if name == "map_concat":
        return duckdb.map_concat(arguments)
    if name == "list_slice" and len(arguments) == 3:
        return _slice(arguments[0], arguments[1], arguments[2], None)
    if name in _OF_ONE and len(arguments) == 1:
        return _OF_ONE[name](*arguments)
    if name in _OF_TWO and len(arguments) == 2:
        return _OF_TWO[name](*arguments)
    if name in _REFUSED:
        raise untranslated(_REFUSED[name])
    if name in _RENAMED:
        return call(_RENAMED[name], *node.expressions)
    return node


def _counts_table(node: Any) -> bool:
    """Return True for ``count(t.*)``, which counts rows; Spark counts rows without any NULL."""
    return isinstance(node.this, exp.Column) and isinstance(node.this.this, exp.Star)


def _seconds(node: Any) -> exp.Expr:
    """Translate ``to_timestamp(1.5)``: Spark's from_unixtime drops the fraction."""
    return node if node.args.get("scale") else call("timestamp_seconds", node.this)


_OF_ONE: dict[str, Callable[[exp.Expr], exp.Expr]] = {
    "bin": duckdb.binary,
    "bit_count": duckdb.bit_count,
    "json_array_length": duckdb.array_length,
    "mean": lambda value: call("avg", duckdb.averaged(value)),
    "list_unique": lambda whole: call("size", duckdb.distinct(whole)),
    "array_unique": lambda whole: call("size", duckdb.distinct(whole)),
    "to_centuries": partial(times.interval_of, unit="century"),
    "to_json": duckdb.to_json,
    "weekday": times.day_of_week,
    **{
        f"to_{units}": partial(times.interval_of, unit=units)
        for units in ("days", "weeks", "months", "quarters", "years", "decades", "hours", "minutes", "seconds")
    },
}
_OF_TWO: dict[str, Callable[[exp.Expr, exp.Expr], exp.Expr]] = {
    **dict.fromkeys(("list_position", "list_indexof", "array_indexof"), duckdb.position),
    **dict.fromkeys(("list_has_all", "array_has_all"), duckdb.includes),
    **dict.fromkeys(("regexp_split_to_array", "str_split_regex"), regexes.split),
    "array_has_any": duckdb.overlaps,
    "list_intersect": duckdb.common,
    "try_strptime": partial(parsed, lenient=True),
}
_REFUSED = {
    "element_at": "element_at(), which gives a list (map[key] gives the value),",
    "hash": "hash(), which has other values,",
    "url_encode": "url_encode(), which Spark does by other rules for a blank and for ~ and *,",
}
"""Functions that Spark has under the same name, with another meaning or other rules."""
_RENAMED = {
    "to_binary": "bin",
    "arbitrary": "any_value",
    "error": "raise_error",
    "get_current_timestamp": "current_timestamp",
}


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


def _within_group(node: Any) -> exp.Expr:
    """Translate ``percentile_cont(0.5) within group (order by x)`` to the exact function.

    sqlglot writes Spark's approximate one.
    """
    order = node.expression.expressions if isinstance(node.expression, exp.Order) else []
    if len(order) != 1 or not isinstance(node.this, exp.PercentileCont | exp.PercentileDisc):
        return node
    is_descending, part = bool(order[0].args.get("desc")), node.this.this
    if isinstance(node.this, exp.PercentileDisc):
        return _discrete(order[0].this, part, is_descending=is_descending)
    # DuckDB negates the part of a descending order: 0 stays 0.
    is_turned = is_descending and not (isinstance(part, exp.Literal) and float(part.name) == 0)
    return spark_sql(f"percentile(x, {'1 - part' if is_turned else 'part'})", x=order[0].this, part=part)


def _discrete(value: exp.Expr, part: exp.Expr, *, is_descending: bool = False) -> exp.Expr:
    """Return Spark's exact ``percentile_disc``; sqlglot would write the approximate function."""
    if is_descending:
        raise untranslated("percentile_disc over a descending order")
    order = exp.Order(expressions=[exp.Ordered(this=value, desc=False, nulls_first=True)])
    return exp.WithinGroup(this=call("percentile_disc", part), expression=order)


def _quantile(node: Any) -> exp.Expr:
    """Translate ``quantile`` and ``quantile_disc(x, part)``, which interpolate nothing."""
    part = node.args.get("quantile") or node.expression
    return node if part is None else _discrete(node.this, part)


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


def _cast(node: Any) -> exp.Expr:
    """Translate literals of a BLOB, and casts to JSON.

    JSON is a string, or its content if the target is a VARIANT. Delta tables store JSON as strings,
    as DuckDB does.
    """
    is_lenient = isinstance(node, exp.TryCast)
    if node.to.this in _LACKING or (is_lenient and node.to.this in exp.DataType.UNSIGNED_INTEGER_TYPES):
        raise untranslated(f"The type {node.to.sql('duckdb')}")
    if node.to.this == exp.DataType.Type.JSON:
        text = duckdb.json_text(node.this, is_lenient=is_lenient)
        text.meta[_IS_JSON] = True
        return text
    inner = node.this.unnest()
    if node.to.this == exp.DataType.Type.VARIANT and (inner.meta.get(_IS_JSON) or _makes_json(inner)):
        value = call("try_parse_json" if is_lenient else "parse_json", exp.cast(inner, "text"))
        # JSON's null is NULL to DuckDB.
        return spark_sql("if(is_variant_null(value), NULL, value)", value=value)
    return duckdb.to_bytes(node)


_IS_JSON = "duckrun is JSON"
_LACKING = frozenset(
    exp.DType[name]
    for name in (
        *("TIME", "TIMETZ", "BIT", "USMALLINT", "UINT", "UBIGINT", "INT128", "UINT128"),
        *("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"),
    )
)
"""Types without one in Spark."""
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
    if isinstance(wrapped, exp.Corr | exp.RegrSlope):
        return _or_nan(outer, wrapped)
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
    # Without a row the list is NULL in DuckDB.
    return spark_sql(f"if(size(rows) > 0, transform({sorted_rows}, item -> item.v), NULL)", rows=outer)


def _or_nan(outer: exp.Expr, function: Any) -> exp.Expr:
    """Return NaN for the correlation with a constant, where Spark returns NULL."""
    pairs = call("regr_count", function.this, function.expression)
    counted = outer.copy()
    if outer is function:
        counted = pairs
    else:
        next(counted.find_all(type(function))).replace(pairs)
    return spark_sql("coalesce(node, if(n > 0, double('nan'), NULL))", node=outer, n=counted)


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
    return _slice(node.this, part.this or number(1), part.expression, part.args.get("step"))


def _slice(whole: exp.Expr, start: Any, end: Any, step: Any) -> exp.Expr:
    are_places = all(isinstance(n, exp.Literal) and not n.is_string and n.name.isdigit() for n in (start, end))
    if not are_places or int(start.name) < 1 or step:
        raise untranslated("A slice of a list whose ends are not two positive numbers")
    return call("slice", whole, start, number(max(int(end.name) - int(start.name) + 1, 0)))


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
    result = call(_OF_LISTS[name], *others)
    return spark_sql("if(size(array_compact(l)) > 0, result, NULL)", l=others[0], result=result)


_OF_LISTS = {"string_agg": "array_join", "min": "array_min", "max": "array_max"}


def _where(node: exp.Where) -> exp.Expr:
    """Remove parentheses around a single name.

    Spark reads ``FROM t WHERE (flag)`` as table t with the alias WHERE and a column flag.
    """
    while isinstance(node.this, exp.Paren) and isinstance(node.this.this, exp.Column | exp.Boolean | exp.Paren):
        node.set("this", node.this.this)
    return node


_rounded = spark_rule("if(x >= 9E15 OR x <= -9E15, x, node)")
"""Translate ``ceil`` and ``floor``.

Spark's give a BIGINT, which has no NaN and ends at 2^63. A DOUBLE of that size is whole anyway.
"""


def _log(node: Any) -> exp.Expr:
    """Translate ``log(x)``: the base is 10 in DuckDB, e in Spark.

    Spark computes ``log(10, x)`` as a quotient: 2.9999999999999996 for 1000.
    """
    if node.expression is None:
        return call("log10", node.this)
    bases = {"2": "log2", "10": "log10"}
    return call(bases[node.this.name], node.expression) if node.this.name in bases else node


_RULES: dict[type[exp.Expr], Rule] = {
    exp.Anonymous: _function,
    exp.ArrayAgg: _array_agg,
    exp.ArgMax: duckdb.extreme_row,
    exp.ArgMin: duckdb.extreme_row,
    exp.ArrayConcat: duckdb.concatenated,
    exp.ArrayContainsAll: lambda node: duckdb.includes(node.this, node.expression),
    exp.ArrayContainedBy: lambda node: duckdb.includes(node.expression, node.this),
    exp.ArrayDistinct: lambda node: duckdb.distinct(node.this),
    exp.ArrayIntersect: lambda node: duckdb.common(*node.expressions),
    exp.ArrayOverlaps: lambda node: duckdb.overlaps(node.this, node.expression),
    exp.ArrayPosition: lambda node: duckdb.position(node.this, node.expression),
    exp.ArraySlice: lambda node: _slice(node.this, node.args["start"], node.args.get("end"), node.args.get("step")),
    exp.BitwiseRightShift: duckdb.shifted,
    exp.Bracket: _bracket,
    exp.ArrayFilter: lambda node: with_places(node, 1),
    exp.AtTimeZone: duckdb.at_time_zone,
    exp.Cast: _cast,
    exp.Chr: duckdb.character,
    exp.Concat: _concat,
    exp.Corr: _array_agg,
    exp.CountIf: duckdb.count_if,
    exp.RegrSlope: _array_agg,
    exp.Count: _refused("count(table.*)", _counts_table),
    exp.Ceil: _rounded,
    exp.Floor: _rounded,
    exp.Sign: spark_rule("if(isnan(x), 0, node)"),  # 0 for NaN
    exp.IsNan: spark_rule("if(x IS NULL, NULL, node)"),  # NULL for NULL, where Spark returns false
    exp.Log: _log,
    exp.DayOfWeekIso: times.iso_day_of_week,
    exp.Asinh: _refused("asinh(), which Spark computes less precisely,"),
    exp.Atanh: _refused("atanh(), which Spark computes less precisely,"),
    exp.Flatten: duckdb.flattened,
    exp.JSONKeys: duckdb.keys,
    exp.Format: _refused("format()"),
    exp.Left: texts.end_of_text,
    exp.Right: texts.end_of_text,
    exp.Substring: texts.part_of_text,
    exp.Split: texts.split_text,
    exp.Levenshtein: texts.levenshtein,
    exp.Trim: texts.trimmed,
    exp.Unicode: texts.unicode,
    exp.Like: texts.like,
    exp.ILike: texts.like,
    exp.DayOfWeek: lambda node: times.day_of_week(node.this),
    exp.Extract: times.extract,
    exp.DateDiff: times.date_diff,
    exp.DateAdd: times.date_add,
    exp.Filter: _array_agg,
    exp.Interval: times.interval,
    exp.IntDiv: duckdb.whole_quotient,
    exp.RegexpExtract: regexes.extract,
    exp.RegexpExtractAll: regexes.extract,
    exp.RegexpFullMatch: regexes.matches,
    exp.RegexpReplace: regexes.replace,
    exp.RegexpSplit: lambda node: regexes.split(node.this, node.expression),
    exp.SimilarTo: regexes.matches,
    exp.PercentileCont: _percentile,
    exp.PercentileDisc: _quantile,
    exp.Quantile: _quantile,
    exp.RegexpLike: regexes.matches,
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
    exp.Add: times.plus,
    exp.Sub: times.plus,
    exp.TimeToStr: lambda node: formatted(node.this, node.args["format"]),
    exp.StrToTime: lambda node: parsed(node.this, node.args["format"]),
    exp.TimeToUnix: duckdb.epoch,
    exp.TimestampTrunc: times.truncated,
    exp.DateTrunc: times.truncated,
    exp.ToDays: lambda node: times.interval_of(node.this, "days"),
    exp.Skewness: _refused("skewness(), which Spark computes by another formula,"),
    exp.Kurtosis: _refused("kurtosis(), which Spark computes by another formula,"),
    exp.UnixToTime: _seconds,
    exp.Transform: lambda node: with_places(node, 1),
    exp.Typeof: _refused("typeof(), whose names of types differ,"),
    exp.ToBinary: lambda node: call("bin", node.this),
    exp.Unnest: unnest_table,
    # The full names of DuckDB: Spark's functions give three letters.
    exp.Dayname: spark_rule("date_format(x, 'EEEE')"),
    exp.Monthname: spark_rule("date_format(x, 'MMMM')"),
    exp.Window: _window,
    exp.Week: lambda node: call("weekofyear", node.this),
}
_LAST_RULES: dict[type[exp.Expr], Rule] = {
    exp.ArrayContains: duckdb.contains,
    exp.ArrayToString: duckdb.joined,
    exp.Avg: lambda node: call("avg", duckdb.averaged(node.this)),
    exp.Cast: duckdb.cast,
    exp.Concat: duckdb.joined_texts,
    exp.ConcatWs: duckdb.joined_texts,
    exp.DPipe: duckdb.joined_texts,
    exp.Factorial: duckdb.factorial,
    exp.GroupConcat: duckdb.aggregated_texts,
    exp.In: duckdb.contained,
    exp.JSONExtract: duckdb.extracted,
    exp.JSONExtractScalar: duckdb.extracted_text,
    exp.Repeat: duckdb.repeated,
    exp.Reverse: texts.reversed_text,
    exp.Round: duckdb.rounded,
}
"""Rules that repeat a value, or raise errors. A definition has Spark's SQL, without these."""
