"""DuckDB's casts, lists, maps, JSON, numbers and times in Spark's SQL.

The types of columns are not known here. Spark folds ``typeof(x)``, so one branch of such a CASE
remains.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from typing import Any

from sqlglot import exp

from duckrun.sql.building import call, has_one_text, spark_rule, spark_sql, untranslated

_FRACTION = "^[+-]?[0-9]+[.][0-9]+$"
_WHOLE = "^[+-]?[0-9]+$"
_OTHER_NUMBER = "^[+-]?(0[xXbB][0-9a-fA-F_]+|[0-9_]*[.]?[0-9_]*([eE][+-]?[0-9]+)?)$"
"""Texts that DuckDB casts to integers, beside those with digits and one point."""


def failing(what: str, value: str = "CAST(x AS STRING)") -> str:
    """Return Spark's SQL that raises ``what value``."""
    return f"raise_error(concat('{what} ', {value}))"


def cast(node: exp.Cast) -> exp.Expr:
    """Translate a cast to an integer, a string, a list, a UUID, binary or a time."""
    kind, is_lenient = node.to.this, isinstance(node, exp.TryCast)
    if kind in exp.DataType.INTEGER_TYPES:
        return to_integer(node)
    if kind in exp.DataType.TEXT_TYPES:
        return to_text(node)
    if kind in (exp.DType.ARRAY, exp.DType.LIST):
        return _to_list(node)
    if (literal := to_bytes(node)) is not node:
        return literal
    wrong, is_wrong, right = _CASTS.get(kind, ("", "", ""))
    value = node.this.unnest()
    is_literal = isinstance(value, exp.Literal | exp.Null)
    # Only ASCII without a backslash has the same bytes in both engines.
    is_known = is_literal and (kind != exp.DType.VARBINARY or (value.name.isascii() and "\\" not in value.name))
    if not wrong or is_known or (wrong == _NO_TIME and not is_lenient):
        return node
    # TRY_CAST reads escapes, too, and only those of literals are translated.
    instead = "NULL" if is_lenient and (kind != exp.DType.VARBINARY or is_literal) else failing(f"{wrong}:")
    return spark_sql(f"if({is_wrong}, {instead}, {right})", x=node.this, node=node.copy())


def to_bytes(node: exp.Cast) -> exp.Expr:
    r"""Translate ``'\xAA'::blob`` to ``X'AA'``: a cast of Spark reads no escapes.

    An invalid text stays a cast, which ``cast()`` checks.
    """
    value = node.this.unnest()
    is_escaped = isinstance(value, exp.Literal) and "\\" in value.name and _ESCAPED_BYTES.fullmatch(value.name)
    if node.to.this != exp.DType.VARBINARY or not is_escaped:
        return node
    letters = _ESCAPED_BYTE.sub(lambda escape: chr(int(escape[1], 16)), value.name)
    return exp.HexString(this=letters.encode("latin-1").hex().upper())


_ESCAPED_BYTE = re.compile(r"\\x([0-9a-fA-F]{2})")
_ESCAPED_BYTES = re.compile(rf"(?:{_ESCAPED_BYTE.pattern}|[\x00-\x5b\x5d-\x7f])*")
"""Texts that DuckDB casts to a BLOB."""


_NO_TIME = "no time"
"""DuckDB raises an error itself, unless it is asked to try."""
_NUMBER_KINDS = "typeof(x) RLIKE 'int|double|float|decimal'"
_PART_OF_DATE = "typeof(x) = 'string' AND CAST(x AS STRING) RLIKE '^ *[+-]?[0-9]+(-[0-9]+)? *$'"
_CASTS = {
    exp.DType.UUID: (
        "no UUID",
        "NOT lower(CAST(x AS STRING)) RLIKE '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'",
        "lower(node)",
    ),
    exp.DType.VARBINARY: (
        "no bytes",
        "typeof(x) = 'string' AND NOT CAST(x AS STRING) RLIKE '^[\\\\x00-\\\\[\\\\]-\\\\x7F]*$'",
        "node",
    ),
    **dict.fromkeys(
        (exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPNTZ),
        (_NO_TIME, f"{_NUMBER_KINDS} OR {_PART_OF_DATE}", "node"),
    ),
}
"""Type -> what a value is not, a test for that, and the cast."""


def _to_list(node: exp.Cast) -> exp.Expr:
    """Translate a cast of each element of a list, unless all are literals."""
    value, element = node.this, node.to.expressions[0] if node.to.expressions else None
    if isinstance(value, exp.Null) or not isinstance(element, exp.DataType):
        return node
    if isinstance(value, exp.Array) and all(isinstance(each, exp.Literal | exp.Null) for each in value.expressions):
        value.set("expressions", [_as_element(node, each, element) for each in value.expressions])
        return node
    inner = type(node)(this=exp.column("e"), to=element.copy(), safe=node.args.get("safe"))
    each = cast(inner)
    if each is inner:
        return node
    # coalesce() gives a NULL without a type one.
    return spark_sql("if(x IS NULL, NULL, transform(coalesce(x, array()), e -> each))", x=value, each=each)


def _as_element(node: exp.Cast, value: exp.Expr, element: exp.DataType) -> exp.Expr:
    """Return a literal in a list, cast if both engines would not cast it to the same value."""
    plain = type(node)(this=value.copy(), to=element.copy(), safe=node.args.get("safe"))
    translated = cast(plain.copy())
    return value if translated == plain else translated


def json_text(value: exp.Expr, *, is_lenient: bool) -> exp.Expr:
    """Return the text of a value that is cast to JSON; to_json() is needed for some types."""
    text = (
        "if(try_parse_json(CAST(x AS STRING)) IS NULL, NULL, CAST(x AS STRING))" if is_lenient else "CAST(x AS STRING)"
    )
    if isinstance(value.unnest(), exp.Literal) or _makes_json_text(value):
        return spark_sql(text, x=value)
    return spark_sql(
        f"if(typeof(x) RLIKE '^(string|void|boolean|.*int)$', {text}, "
        f"{failing('a cast to JSON on Spark needs to_json() for a value of', 'typeof(x)')})",
        x=value,
    )


def _makes_json_text(value: exp.Expr) -> bool:
    inner = value.unnest()
    return isinstance(inner, exp.Cast) and inner.to.this in exp.DataType.TEXT_TYPES


def shifted(node: exp.BitwiseRightShift) -> exp.Expr:
    """Raise an error for a shift by more bits than a number has, which is 0 in DuckDB."""
    if isinstance(node.expression, exp.Literal) and int(node.expression.name) < 32:
        return node
    return spark_sql(
        "if(k BETWEEN 0 AND 31, node, raise_error('>> by more than 31 bits'))", k=node.expression, node=node.copy()
    )


def joined_texts(node: Any) -> exp.Expr:
    """Raise an error for a value in ``concat`` and ``||`` whose text differs.

    The branches keep the type of the value, which may be an array.
    """
    for value in list(node.iter_expressions()):
        if isinstance(value, exp.Anonymous) and value.name == "concat":  # a text of the value
            value = value.expressions[0]
        value.replace(_checked(value, is_nested_wrong=isinstance(node, exp.ConcatWs)))
    return node


def aggregated_texts(node: exp.GroupConcat) -> exp.Expr:
    """Raise an error for a value in ``string_agg`` whose text differs."""
    value = node.this
    while isinstance(value, exp.Order | exp.Distinct):
        value = value.this or value.expressions[0]
    checked = _checked(value)
    # Spark wants the same expression behind DISTINCT and ORDER BY.
    for each in [part for part in node.this.walk() if part == value and part is not value] + [value]:
        each.replace(checked.copy())
    return node


def _checked(value: exp.Expr, *, is_nested_wrong: bool = False) -> exp.Expr:
    is_text = isinstance(value.unnest(), exp.Null | exp.DPipe | exp.Concat | exp.Array) or _kind(value)
    if is_text or has_one_text(value):
        return value
    nested = "|^(array|map|struct)" if is_nested_wrong else ""
    checked = spark_sql(
        "if(typeof(x) IN ('double', 'float') AND CAST(x AS STRING) RLIKE '[EIN]' "
        "OR typeof(x) = 'binary' AND NOT CAST(x AS STRING) RLIKE '^[ -~]*$' "
        f"OR typeof(x) RLIKE '^timestamp$|^interval{nested}', {failing(_OTHER_TEXT)}, x)",
        x=value,
    )
    checked.meta[_KIND] = _TEXT
    return checked


_OTHER_TEXT = "a text that differs in DuckDB:"


_NUMBERS = (exp.Add, exp.Div, exp.Mod, exp.Mul, exp.Neg, exp.Sub)
"""Expressions that are no text. Spark evaluates no raise_error() in VALUES."""


def to_integer(node: Any) -> exp.Expr:
    """Translate a cast to an integer type, which rounds in DuckDB and cuts in Spark.

    DuckDB rounds half of a decimal, and of a text, away from zero, and half of a double to even.
    """
    value, to = node.this, node.to.sql("spark")
    if _kind(value) == _INTEGER or _is_whole(value.unnest()):
        return node
    if (number := _rounded(value.unnest())) is not None:
        node.set("this", exp.Literal.number(number))
        return node
    cast = "TRY_CAST" if isinstance(node, exp.TryCast) and node.args.get("safe") else "CAST"
    text = "trim(CAST(x AS STRING))"
    up = f"CASE WHEN regexp_extract({text}, '[.]([0-9])', 1) >= '5' THEN if({text} LIKE '-%', -1, 1) ELSE 0 END"
    wrong = (
        f"WHEN typeof(x) = 'string' AND {text} RLIKE '[0-9]' AND {text} RLIKE '{_OTHER_NUMBER}' AND NOT {text} RLIKE "
        f"'{_WHOLE}' THEN {failing('DuckDB reads another integer than Spark:', text)} "
    )
    return _of_kind(
        _INTEGER,
        f"CASE WHEN typeof(x) IN ('double', 'float') THEN {cast}(rint(TRY_CAST({text} AS DOUBLE)) AS {to}) "
        f"WHEN startswith(typeof(x), 'decimal') OR typeof(x) = 'string' AND {text} RLIKE '{_FRACTION}' "
        f"THEN {cast}({cast}(substring_index({text}, '.', 1) AS DECIMAL(38, 0)) + {up} AS {to}) "
        f"{'' if isinstance(value.unnest(), _NUMBERS) else wrong}ELSE {cast}(x AS {to}) END",
        value,
    )


def to_text(node: Any) -> exp.Expr:
    """Translate a cast to a string.

    A time with a zone ends with it. The texts of large and small doubles, of binary and of nested
    values raise an error, as they differ.
    """
    if has_one_text(node.this) or isinstance(node.this.unnest(), exp.Null) or _kind(node.this):
        return node
    text = "CAST(x AS STRING)"
    return _of_kind(
        _TEXT,
        f"CASE WHEN typeof(x) = 'timestamp' THEN concat({text}, '+00') "
        f"WHEN typeof(x) IN ('double', 'float') THEN CASE {text} WHEN 'NaN' THEN 'nan' WHEN 'Infinity' THEN 'inf' "
        f"WHEN '-Infinity' THEN '-inf' ELSE if({text} LIKE '%E%', {failing(_OTHER_TEXT)}, {text}) END "
        "WHEN x IS NOT NULL AND (typeof(x) = 'binary' OR typeof(x) RLIKE '^(array|map|struct)') "
        f"THEN {failing(_OTHER_TEXT, 'typeof(x)')} ELSE {text} END",
        node.this,
    )


def _is_whole(value: exp.Expr) -> bool:
    """True for a literal that both engines cast to the same integer."""
    inner = value.this.unnest() if isinstance(value, exp.Neg) else value
    is_digits = isinstance(inner, exp.Literal) and re.fullmatch(r"\s*[+-]?\d+\s*", inner.name) is not None
    return is_digits or isinstance(inner, exp.Null | exp.Boolean)


def _rounded(value: exp.Expr) -> int | None:
    """Return the integer to which DuckDB rounds the literal of a number; None for another value."""
    inner = value.this.unnest() if isinstance(value, exp.Neg) else value
    if not isinstance(inner, exp.Literal) or inner.is_string:
        return None
    is_double = "e" in inner.name.lower()
    whole = int(Decimal(inner.name).to_integral_value(ROUND_HALF_EVEN if is_double else ROUND_HALF_UP))
    return -whole if isinstance(value, exp.Neg) else whole


_KIND, _INTEGER, _TEXT = "duckrun kind of cast", "integer", "text"


def _of_kind(kind: str, sql: str, value: exp.Expr) -> exp.Expr:
    cast = spark_sql(sql, x=value)
    cast.meta[_KIND] = kind
    return cast


def _kind(value: exp.Expr) -> str | None:
    """Kind of a value's type if it is known: a cast of a cast needs fewer cases."""
    inner = value.unnest()
    if isinstance(inner, exp.Cast) and inner.to.this in exp.DataType.INTEGER_TYPES:
        return _INTEGER
    is_plain = isinstance(inner, exp.Cast) and inner.is_type("date", "decimal", "boolean")
    return inner.meta.get(_KIND) or ("plain" if is_plain else None)


def to_json(value: exp.Expr) -> exp.Expr:
    """Translate ``to_json(x)``, which keeps fields that are NULL.

    Times, decimals and binary, and large and small doubles, have other texts: an error.
    """
    return spark_sql(
        "CASE WHEN x IS NOT NULL AND (typeof(x) RLIKE 'timestamp|decimal|binary' OR "
        "typeof(x) RLIKE 'double|float' AND text RLIKE '[0-9]E-?[0-9]|NaN|Infinity') "
        f"THEN {failing('to_json() differs on Spark for a value of', 'typeof(x)')} ELSE text END",
        x=value,
        text=spark_sql("to_json(x, map('ignoreNullFields', 'false'))", x=value),
    )


def extracted(node: exp.JSONExtract) -> exp.Expr:
    """Translate ``json_extract(j, path)``, which keeps the quotes of a string, and a null.

    Spark's function drops both. It keeps the quotes of elements of an array.
    """
    path = _json_path(node.expression)
    return spark_sql(
        f"coalesce(get_json_object(concat('[', j, ']'), '$[*]{path}'), "
        f"if(is_variant_null(try_variant_get(try_parse_json(j), '${path}', 'variant')), 'null', NULL))",
        j=exp.cast(node.this, "text") if isinstance(node.this, exp.Literal) else node.this,
    )


def extracted_text(node: exp.JSONExtractScalar) -> exp.Expr:
    """Translate ``json_extract_string(j, path)``."""
    path = _json_path(node.expression)
    if not path:
        raise untranslated("the text of a whole JSON value")
    return call("get_json_object", node.this, exp.Literal.string(f"${path}"))


def _json_path(path: exp.Expr) -> str:
    """Return the steps of a JSON path as Spark writes them, behind the ``$``.

    Raises:
        UnsupportedFeature: for a computed path, a wildcard, a place from the end, and a name that
            is no word.
    """
    parts = path.expressions if isinstance(path, exp.JSONPath) else [path]
    steps = []
    for part in parts:
        value = part.this
        if isinstance(part, exp.JSONPathRoot):
            continue
        if isinstance(part, exp.JSONPathKey) and isinstance(value, str) and re.fullmatch(r"\w+", value):
            steps.append(f".{value}")
        elif isinstance(part, exp.JSONPathSubscript) and isinstance(value, int) and value >= 0:
            steps.append(f"[{value}]")
        else:
            raise untranslated(f"the JSON path {path.sql('duckdb')} (names and places such as '$.a[0]' are)")
    return "".join(steps)


contains = spark_rule("coalesce(node, if(x IS NULL OR y IS NULL, NULL, FALSE))")
"""Translate ``list_contains``, which is false for a value that only NULLs could be."""


def contained(node: exp.In) -> exp.Expr:
    """Translate ``v IN list``."""
    place = node.args.get("field")
    return node if place is None else contains(exp.ArrayContains(this=place, expression=node.this))


def position(whole: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Translate ``list_position``, which finds a NULL, too, and is NULL for a value in no place."""
    return spark_sql(
        "nullif(if(v IS NULL, array_position(transform(l, e -> e IS NULL), TRUE), array_position(l, v)), 0)",
        l=whole,
        v=value,
    )


def distinct(whole: exp.Expr) -> exp.Expr:
    """Translate ``list_distinct``, which drops NULLs."""
    return spark_sql("array_distinct(array_compact(l))", l=whole)


def common(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Translate ``list_intersect``, which drops NULLs."""
    return spark_sql("array_compact(array_intersect(l, r))", l=left, r=right)


def overlaps(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Translate ``list_has_any``, which ignores NULLs."""
    return spark_sql("arrays_overlap(array_compact(l), array_compact(r))", l=left, r=right)


def includes(whole: exp.Expr, part: exp.Expr) -> exp.Expr:
    """Translate ``list_has_all``, which ignores NULLs."""
    return spark_sql("(size(array_except(array_compact(r), l)) = 0)", l=whole, r=part)


def concatenated(node: exp.ArrayConcat) -> exp.Expr:
    """Translate ``list_concat``: it reads a NULL list as an empty one."""
    return call("concat", *(call("coalesce", each, exp.Array()) for each in (node.this, *node.expressions)))


flattened = spark_rule("flatten(array_compact(x))")
"""Translate ``flatten``, which leaves out NULL lists."""


joined = spark_rule(
    "CASE WHEN typeof(x) RLIKE '^array<(double|float)>' AND CAST(x AS STRING) RLIKE '[EIN]' "
    f"OR typeof(x) RLIKE '^array<(timestamp|binary)>' THEN {failing(_OTHER_TEXT, 'typeof(x)')} "
    "WHEN size(x) = 0 OR size(array_compact(x)) > 0 THEN node END"
)
"""Translate ``array_to_string``: NULL for a list of NULLs.

Texts of doubles that differ are an error.
"""


keys = spark_rule("if(x IS NOT NULL, coalesce(json_object_keys(x), array()), NULL)")
"""Translate ``json_keys(j)``: empty for JSON that is no object."""


def bit_count(value: exp.Expr) -> exp.Expr:
    """Translate ``bit_count(n)``; the bits of a negative number depend on its type."""
    return spark_sql("if(n < 0, raise_error('bit_count() of a negative number on Spark'), bit_count(n))", n=value)


repeated = spark_rule("if(typeof(x) = 'binary', raise_error('repeat() of binary on Spark'), node)")
"""Raise an error for ``repeat`` of binary, which is a text in Spark."""


def extreme_row(node: Any) -> exp.Expr:
    """Translate ``arg_max(x, key)``, which leaves out rows without x."""
    if node.args.get("count") is None:
        node.set("expression", spark_sql("if(x IS NULL, NULL, k)", x=node.this, k=node.expression))
    return node


def count_if(node: exp.CountIf) -> exp.Expr:
    """Translate ``count_if``, which is NULL without a value that is true or false."""
    if isinstance(node.this, exp.Distinct):
        return node
    return call("sum", spark_sql("CASE WHEN x THEN 1L WHEN NOT x THEN 0L END", x=node.this))


def averaged(value: exp.Expr) -> exp.Expr:
    """Raise an error for ``avg`` of times, which is a number of seconds in Spark."""
    if isinstance(value, exp.Distinct):
        return value
    return spark_sql("if(typeof(x) RLIKE '^timestamp', raise_error('avg() of a time on Spark'), x)", x=value)


factorial = spark_rule("if(x > 20, raise_error('factorial() on Spark ends at 20'), node)")
"""Translate ``factorial(n)``: Spark's is NULL above 20."""


def binary(value: exp.Expr) -> exp.Expr:
    """Translate ``bin(n)``; the bits of a text are an error, as Spark reads a number."""
    return spark_sql("if(typeof(x) = 'string', raise_error('bin() of a text on Spark'), bin(x))", x=value)


def array_length(value: exp.Expr) -> exp.Expr:
    """Translate ``json_array_length(j)``: 0 for JSON that is no array."""
    return spark_sql("if(j IS NOT NULL, coalesce(json_array_length(j), 0), NULL)", j=value)


def rounded(node: exp.Round) -> exp.Expr:
    """Raise an error where ``round(x, n)`` of a double differs.

    DuckDB multiplies by 10^n: 1.005 becomes 100.49999999999999. Spark rounds the decimal text. The
    type of the result is that of x, which no branch may change.
    """
    places = node.args.get("decimals")
    if not isinstance(places, exp.Literal) or not 0 < int(places.name) < 15:
        return node
    power = f"1e{places.name}D"
    return spark_sql(
        f"if(typeof(x) IN ('double', 'float') AND abs(x) < 1e15D / {power} "
        f"AND abs(abs(node) - floor(abs(x) * {power} + 0.5D) / {power}) > 0.4D / {power}, "
        f"{failing('DuckDB rounds another way, cast it to a decimal:')}, node)",
        x=node.this,
        node=node.copy(),
    )


def map_concat(maps: list[exp.Expr]) -> exp.Expr:
    """Translate ``map_concat``: it reads a NULL map as an empty one."""
    return call("map_concat", *(call("coalesce", each, call("map")) for each in maps))


epoch = spark_rule("unix_micros(CAST(x AS TIMESTAMP)) / 1e6D")
"""Translate ``epoch(t)``: seconds with their fraction."""


def character(node: exp.Chr) -> exp.Expr:
    """Translate ``chr(n)``; Spark takes the number modulo 256."""
    (code,) = node.expressions
    if isinstance(code, exp.Literal) and code.is_int and int(code.name) < 256:
        return node
    return spark_sql(f"if(n > 255, {failing('chr() on Spark ends at 255:', 'n')}, c)", n=code, c=node)


def at_time_zone(node: exp.AtTimeZone) -> exp.Expr:
    """Translate ``t AT TIME ZONE zone``, the local time of a time with a zone.

    A time without a zone is one of that zone. Spark's CASE cannot have both types.
    """
    time, zone = node.this, node.args["zone"]
    if isinstance(time.unnest(), exp.Cast) and time.unnest().to.this in _NAIVE:
        return call("to_utc_timestamp", time, zone)
    return spark_sql(
        "if(typeof(t) IN ('timestamp_ntz', 'date'), raise_error('AT TIME ZONE of a time without zone: write "
        "t::TIMESTAMP AT TIME ZONE …'), CAST(from_utc_timestamp(t, zone) AS TIMESTAMP_NTZ))",
        t=time,
        zone=zone,
    )


_NAIVE = {exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ, exp.DType.DATE}


whole_quotient = spark_rule(
    "if(startswith(typeof(x), 'decimal') OR startswith(typeof(y), 'decimal'), "
    "raise_error('// of decimals has a fraction in DuckDB: write / or cast them to integers'), node)"
)
"""Raise an error for ``a // b`` of decimals, which keeps the fraction in DuckDB."""
