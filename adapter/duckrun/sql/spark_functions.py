"""Spark's casts, divisions, arrays and aggregates in DuckDB's SQL.

The types of columns are not known here. DuckDB folds ``typeof(x)``, so one branch of such a CASE
remains.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from duckrun.errors import InvalidConfig
from duckrun.sql.building import call, duckdb_rule, duckdb_sql, has_one_text, untranslated_to_duckdb
from duckrun.sql.dates import is_date
from duckrun.sql.raising import text_of


def failing(what: str, value: str, to: str) -> str:
    """Return SQL of a type that raises ``what: value``.

    Not error(): it is volatile, and DuckDB refuses aliases of it. A cast of a text fails, too.
    """
    text = text_of(InvalidConfig, f"'{what}: ' || CAST({value} AS VARCHAR)")
    return f"CAST(CAST({text} AS INT) AS {to})"


def to_integer(node: Any, cast: str, wrong: str) -> exp.Expr:
    """Translate a cast to an integer type.

    Spark cuts the fraction of a number, and takes only digits in a string. DuckDB rounds, and reads
    ``'1.9'`` and ``'1e3'``.

    Args:
        node: The cast.
        cast: ``CAST`` or ``TRY_CAST``.
        wrong: The value of a string with anything but digits.
    """
    value, to = node.this, node.to.sql("duckdb")
    if isinstance(value, exp.Literal) and value.is_int:
        return node
    return duckdb_sql(
        "CASE WHEN typeof(x) IN ('DOUBLE', 'FLOAT') "
        f"THEN {cast}(trunc(TRY_CAST(x AS DOUBLE)) AS {to}) "
        "WHEN starts_with(typeof(x), 'DECIMAL') "
        f"THEN {cast}(regexp_extract(CAST(x AS VARCHAR), '[^.]*') AS {to}) "
        "WHEN typeof(x) = 'VARCHAR' AND NOT regexp_full_match(CAST(x AS VARCHAR), '\\s*[+-]?\\d+\\s*') "
        f"THEN {wrong} ELSE {cast}(x AS {to}) END",
        x=value,
    )


def to_bytes(node: exp.Cast) -> exp.Expr:
    """Translate a cast to binary: the bytes of a text in UTF-8. A cast of DuckDB reads escapes."""
    if isinstance(node.this, exp.Literal) and node.this.is_string:
        return call("encode", node.this)
    return duckdb_sql(
        "CASE WHEN typeof(x) = 'VARCHAR' THEN encode(CAST(x AS VARCHAR)) ELSE node END", x=node.this, node=node
    )


def to_text(node: Any) -> exp.Expr:
    """Translate a cast to a string.

    A time has no zone behind it, and NaN another name. Other texts of large and small doubles, and
    of nested values, raise an error.
    """
    if isinstance(node.this, exp.Null) or has_one_text(node.this):
        return node
    double = "TRY_CAST(x AS DOUBLE)"
    return duckdb_sql(
        "CASE WHEN typeof(x) = 'TIMESTAMP WITH TIME ZONE' THEN CAST(TRY_CAST(x AS TIMESTAMP) AS VARCHAR) "
        "WHEN typeof(x) = 'BLOB' THEN decode(TRY_CAST(x AS BLOB)) "
        "WHEN typeof(x) IN ('DOUBLE', 'FLOAT') THEN "
        f"CASE WHEN isnan({double}) THEN 'NaN' WHEN isinf({double}) THEN "
        f"CASE WHEN {double} > 0 THEN 'Infinity' ELSE '-Infinity' END WHEN {double} = 0 OR "
        f"abs({double}) BETWEEN 1e-3 AND 9999999.999999999 THEN CAST(x AS VARCHAR) "
        f"ELSE {failing(_OTHER_TEXT, 'x', 'VARCHAR')} END "
        "WHEN ends_with(typeof(x), ']') OR ends_with(typeof(x), ')') AND NOT starts_with(typeof(x), 'DECIMAL') THEN "
        f"{failing(_OTHER_TEXT, 'typeof(x)', 'VARCHAR')} ELSE CAST(x AS VARCHAR) END",
        x=node.this,
    )


_OTHER_TEXT = "a text that differs on Spark"


def joined_texts(node: Any) -> exp.Expr:
    """Raise an error for a value in ``concat`` and ``||`` whose text differs.

    The check is a condition, as the result has the type of the value: it may be an array.
    """
    for value in list(node.iter_expressions()):
        if not isinstance(value, exp.Literal | exp.DPipe | exp.Concat):
            value.replace(_checked(value, _DIFFERENT_TEXT, _OTHER_TEXT))
    return node


def _checked(value: exp.Expr, test: str, what: str) -> exp.Expr:
    """Return a value that raises an error where a test is true."""
    return duckdb_sql(f"CASE WHEN {test} AND {failing(what, 'x', 'BOOLEAN')} THEN NULL ELSE x END", x=value)


_DIFFERENT_TEXT = (
    "(typeof(x) IN ('DOUBLE', 'FLOAT') AND TRY_CAST(x AS DOUBLE) <> 0 "
    "AND NOT abs(TRY_CAST(x AS DOUBLE)) BETWEEN 1e-3 AND 9999999.999999999 "
    "OR typeof(x) = 'TIMESTAMP WITH TIME ZONE')"
)


def average(node: exp.Avg) -> exp.Expr:
    """Raise an error for ``avg`` of times, which is a number of seconds in Spark."""
    if isinstance(node.this, exp.Distinct):
        return node
    node.set("this", _checked(node.this, "starts_with(typeof(x), 'TIMESTAMP')", "avg() of a time"))
    return node


def rounded(node: exp.Round) -> exp.Expr:
    """Raise an error where ``round(x, n)`` of a double differs.

    DuckDB multiplies by 10^n: 1.005 becomes 100.49999999999999. Spark rounds the decimal text.
    """
    places = node.args.get("decimals")
    if not isinstance(places, exp.Literal) or not 0 < int(places.name) < 15:
        return node
    double, power = "TRY_CAST(x AS DOUBLE)", f"1e{places.name}"
    by_spark = f"CAST(round(TRY_CAST(CAST({double} AS VARCHAR) AS DECIMAL(38, 18)), n) AS DOUBLE)"
    return duckdb_sql(
        f"CASE WHEN typeof(x) IN ('DOUBLE', 'FLOAT') AND abs(round({double}, n) - {by_spark}) > 0.4 / {power} "
        f"AND {failing('Spark rounds another way, cast it to a decimal', 'x', 'BOOLEAN')} THEN NULL ELSE node END",
        x=node.this,
        n=places,
        node=node.copy(),
    )


hexadecimal = duckdb_rule(
    "CASE WHEN typeof(x) IN ('DOUBLE', 'FLOAT') THEN hex(CAST(trunc(TRY_CAST(x AS DOUBLE)) AS BIGINT)) ELSE hex(x) END"
)
"""Translate ``hex``, which cuts the fraction of a number; DuckDB has none of a decimal."""


def whole_quotient(node: exp.IntDiv) -> exp.Expr:
    """Translate ``a div b``: a whole number of decimals, too."""
    return duckdb_sql("CAST(trunc(q) AS BIGINT)", q=divided(node.copy()))


def difference(node: exp.Sub) -> exp.Expr:
    """Refuse a date minus a date, which is an interval in Spark and a number in DuckDB."""
    if is_date(node.this) and is_date(node.expression):
        raise untranslated_to_duckdb("A date minus a date, which is an interval (datediff() gives days),")
    return node


def divided(node: Any) -> exp.Expr:
    """Raise an error for a division by zero, which is NULL in DuckDB."""
    by = node.expression
    if not (isinstance(by, exp.Literal) and not by.is_string and float(by.name)):
        node.set(
            "expression",
            duckdb_sql(f"CASE WHEN y = 0 THEN {failing('division by zero', 'y', 'INT')} ELSE y END", y=by),
        )
    node.set("safe", False)
    return node


def element(node: exp.Bracket) -> exp.Expr:
    """Translate ``x[n]``: elements of an array count from 0, and a map has keys."""
    index = node.expressions[0]
    if len(node.expressions) != 1 or isinstance(index, exp.Slice) or index.is_string or node.args.get("offset"):
        return node
    if isinstance(index, exp.Column):
        raise untranslated_to_duckdb("x[column] (element_at() finds a key, and counts from 1)")
    place = "CASE WHEN starts_with(typeof(x), 'MAP') THEN n ELSE n + 1 END"
    return exp.Bracket(this=node.this, expressions=[duckdb_sql(place, x=node.this, n=index)], offset=1)


contains = duckdb_rule(
    "CASE WHEN list_contains(x, y) THEN TRUE WHEN len(x) > list_count(x) THEN NULL ELSE list_contains(x, y) END"
)
"""Translate ``array_contains``, which is NULL if the value may be one of the NULLs."""


def holds_for(array: exp.Expr, test: exp.Expr, *, every: bool) -> exp.Expr:
    """Translate ``exists`` and ``forall``: NULL if only a NULL decides."""
    answers = call("list_transform", array, test)
    unknown = "CASE WHEN len(r) > list_count(r) THEN NULL ELSE {} END"
    some, all_of_them = f"list_contains(r, TRUE) OR {unknown}", f"NOT list_contains(r, FALSE) AND {unknown}"
    return duckdb_sql(f"({all_of_them.format('TRUE') if every else some.format('FALSE')})", r=answers)


without = duckdb_rule("CASE WHEN y IS NOT NULL THEN list_filter(x, lambda _e: _e IS DISTINCT FROM y) END")
"""Translate ``array_remove``, which keeps NULLs."""


_FIRST = "list_position(x, _e) = _i"


distinct = duckdb_rule(f"list_filter(x, lambda _e, _i: {_FIRST})")
"""Translate ``array_distinct``, which keeps one NULL, and the order."""


def common(node: exp.ArrayIntersect) -> exp.Expr:
    """Translate ``array_intersect``, which keeps one NULL, and the order of the first array."""
    left, right = node.expressions
    return _in_order(left, right, "IS NOT NULL")


def others(node: exp.ArrayExcept) -> exp.Expr:
    """Translate ``array_except``, which keeps one NULL, and the order of the first array."""
    return _in_order(node.this, node.expression, "IS NULL")


def _in_order(left: exp.Expr, right: exp.Expr, test: str) -> exp.Expr:
    filtered = f"list_filter(x, lambda _e, _i: {_FIRST} AND list_position(y, _e) {test})"
    return duckdb_sql(f"CASE WHEN y IS NOT NULL THEN {filtered} END", x=left, y=right)


position = duckdb_rule("CASE WHEN y IS NOT NULL AND x IS NOT NULL THEN coalesce(list_position(x, y), 0) END")
"""Translate ``array_position``: 0 for a value in no place."""


flattened = duckdb_rule("CASE WHEN len(x) = list_count(x) THEN flatten(x) END")
"""Translate ``flatten``: NULL if one of the arrays is NULL."""


def joined(node: exp.ArrayToString) -> exp.Expr:
    """Translate ``array_join``: an empty string for an array without a value."""
    node.set("this", _checked(node.this, "regexp_matches(typeof(x), '^(DOUBLE|FLOAT|TIMESTAMP WITH)')", _OTHER_TEXT))
    return duckdb_sql("CASE WHEN l IS NOT NULL THEN coalesce(text, '') END", l=node.this, text=node)


def concatenated(node: exp.ConcatWs) -> exp.Expr:
    """Translate ``concat_ws``. An array, whose elements Spark takes one by one, raises an error."""
    by, *values = node.expressions
    node.set("expressions", [by, *(to_text(exp.cast(each, "text")) for each in values)])
    return node


def texts(node: exp.GroupConcat) -> exp.Expr:
    """Translate ``listagg(x)``, which puts nothing between the texts."""
    if node.args.get("separator") is None:
        node.set("separator", exp.Literal.string(""))
    return node


def place_in_text(node: exp.StrPosition) -> exp.Expr:
    """Translate ``locate(part, x, place)``: 0 for a place before the first."""
    place = node.args.get("position")
    if place is None or (isinstance(place, exp.Literal) and int(place.name) > 0):
        return node
    return duckdb_sql("CASE WHEN p < 1 AND x IS NOT NULL THEN 0 ELSE node END", p=place, x=node.this, node=node)


def greatest_row(node: Any) -> exp.Expr:
    """Translate ``max(struct(a, b))``: NULL is the smallest value of a field."""
    row = node.this
    if not isinstance(row, exp.Struct):
        return node
    parts = [field.expression if isinstance(field, exp.PropertyEQ) else field for field in row.expressions]
    key: list[exp.Expr] = []
    for i, part in enumerate(parts):
        known = exp.Not(this=exp.Is(this=exp.paren(part.copy()), expression=exp.null()))
        key += [
            exp.PropertyEQ(this=exp.to_identifier(f"k{i}"), expression=known),
            exp.PropertyEQ(this=exp.to_identifier(f"v{i}"), expression=part.copy()),
        ]
    return call("arg_max" if isinstance(node, exp.Max) else "arg_min", row, exp.Struct(expressions=key))


def sequence(node: exp.GenerateSeries) -> exp.Expr:
    """Translate ``sequence(a, b)``, which counts down if b is less than a."""
    step = node.args.get("step")
    if isinstance(step, exp.Interval) and str(step.args.get("unit")).upper().rstrip("S") in (
        "MONTH",
        "YEAR",
        "QUARTER",
    ):
        raise untranslated_to_duckdb("sequence() by months, whose ends of months differ,")
    if step is not None or isinstance(node.parent, exp.Table):
        return node
    down = "CASE WHEN a <= b THEN 1 ELSE -1 END"
    return duckdb_sql(f"generate_series(a, b, {down})", a=node.args["start"], b=node.args["end"])


_WRAPPERS = (exp.Filter, exp.Window, exp.WithinGroup)


def collected(node: Any) -> exp.Expr:
    """Translate ``collect_list`` and ``collect_set``: an empty array without a value.

    The result is NULL in DuckDB. FILTER and OVER belong to the aggregate.
    """
    inner = node
    while isinstance(inner, _WRAPPERS):
        inner = inner.this
    is_inside = isinstance(node.parent, _WRAPPERS) and node.arg_key == "this"
    if is_inside or not isinstance(inner, exp.ArrayAgg | exp.ArrayUniqueAgg):
        return node
    return exp.Coalesce(this=node.copy(), expressions=[exp.Array()])


def percentile(node: exp.Quantile) -> exp.Expr:
    """Translate ``percentile``, which interpolates."""
    return duckdb_sql("quantile_cont(CAST(x AS DOUBLE), p)", x=node.this, p=node.args["quantile"])


def local_time(node: exp.AtTimeZone) -> exp.Expr:
    """Translate ``from_utc_timestamp``: the time in a zone, as a time of the session."""
    value = node.this.this if isinstance(node.this, exp.Cast) else node.this
    return duckdb_sql("CAST(timezone(zone, CAST(x AS TIMESTAMPTZ)) AS TIMESTAMPTZ)", x=value, zone=node.args["zone"])


def character(node: exp.Chr) -> exp.Expr:
    """Translate ``chr``, which counts in bytes of ISO 8859-1."""
    (code,) = node.expressions
    return duckdb_sql("CASE WHEN n < 0 THEN '' ELSE chr(CAST(n % 256 AS INT)) END", n=code)
