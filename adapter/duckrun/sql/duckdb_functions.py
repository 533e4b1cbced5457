"""DuckDB's casts, maps, JSON and times in Spark's SQL.

The types of columns are not known here. Spark folds ``typeof(x)``, so one branch of such a CASE
remains.
"""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

from duckrun.sql.building import call, spark_sql

_FRACTION = "^[+-]?[0-9]+[.][0-9]+$"
_WHOLE = "^[+-]?[0-9]+$"
_OTHER_NUMBER = "^[+-]?(0[xXbB][0-9a-fA-F_]+|[0-9_]*[.]?[0-9_]*([eE][+-]?[0-9]+)?)$"
"""Texts that DuckDB casts to integers, beside those with digits and one point."""


def to_integer(node: Any) -> exp.Expr:
    """Translate a cast to an integer type, which rounds in DuckDB and cuts in Spark.

    DuckDB rounds half of a decimal, and of a text, away from zero, and half of a double to even.
    """
    value, to = node.this, node.to.sql("spark")
    if _kind(value) == _INTEGER or _is_whole(value.unnest()):
        return node
    cast = "TRY_CAST" if isinstance(node, exp.TryCast) and node.args.get("safe") else "CAST"
    text = "trim(CAST(x AS STRING))"
    up = f"CASE WHEN regexp_extract({text}, '[.]([0-9])', 1) >= '5' THEN if({text} LIKE '-%', -1, 1) ELSE 0 END"
    return _of_kind(
        _INTEGER,
        f"CASE WHEN typeof(x) IN ('double', 'float') THEN {cast}(rint(TRY_CAST({text} AS DOUBLE)) AS {to}) "
        f"WHEN startswith(typeof(x), 'decimal') OR typeof(x) = 'string' AND {text} RLIKE '{_FRACTION}' "
        f"THEN {cast}({cast}(substring_index({text}, '.', 1) AS DECIMAL(38, 0)) + {up} AS {to}) "
        f"WHEN typeof(x) = 'string' AND {text} RLIKE '[0-9]' AND {text} RLIKE '{_OTHER_NUMBER}' "
        f"AND NOT {text} RLIKE '{_WHOLE}' "
        f"THEN raise_error(concat('DuckDB reads another integer than Spark: ', {text})) ELSE {cast}(x AS {to}) END",
        value,
    )


def to_text(node: Any) -> exp.Expr:
    """Translate a cast to a string.

    A time with a zone ends with it. The texts of large and small doubles, of binary and of nested
    values raise an error, as they differ.
    """
    if isinstance(node.this.unnest(), exp.Literal | exp.Null) or _kind(node.this):
        return node
    double, error = "TRY_CAST(CAST(x AS STRING) AS DOUBLE)", "raise_error(concat('a text that differs in DuckDB: '"
    return _of_kind(
        _TEXT,
        "CASE WHEN typeof(x) = 'timestamp' THEN concat(CAST(x AS STRING), '+00') "
        f"WHEN typeof(x) IN ('double', 'float') THEN CASE WHEN isnan({double}) THEN 'nan' "
        f"WHEN {double} = double('inf') THEN 'inf' WHEN {double} = double('-inf') THEN '-inf' "
        f"WHEN {double} = 0 OR abs({double}) BETWEEN 1e-3 AND 9999999.999999999 THEN CAST(x AS STRING) "
        f"WHEN x IS NOT NULL THEN {error}, CAST(x AS STRING))) END "
        "WHEN x IS NOT NULL AND (typeof(x) = 'binary' OR typeof(x) RLIKE '^(array|map|struct)') "
        f"THEN {error}, typeof(x))) ELSE CAST(x AS STRING) END",
        node.this,
    )


def _is_whole(value: exp.Expr) -> bool:
    """True for a literal that both engines cast to the same integer."""
    inner = value.this.unnest() if isinstance(value, exp.Neg) else value
    is_digits = isinstance(inner, exp.Literal) and re.fullmatch(r"\s*[+-]?\d+\s*", inner.name) is not None
    return is_digits or isinstance(inner, exp.Null | exp.Boolean)


_KIND, _INTEGER, _TEXT = "duckrun kind of cast", "integer", "text"


def _of_kind(kind: str, sql: str, value: exp.Expr) -> exp.Expr:
    cast = spark_sql(sql, x=value)
    cast.meta[_KIND] = kind
    return cast


def _kind(value: exp.Expr) -> str | None:
    """Kind of a value's type if it is known: a cast of a cast needs fewer cases."""
    inner = value.unnest()
    is_plain = isinstance(inner, exp.Cast) and inner.is_type("date", "decimal", "boolean")
    return inner.meta.get(_KIND) or ("plain" if is_plain else None)


def to_json(value: exp.Expr) -> exp.Expr:
    """Translate ``to_json(x)``, which keeps fields that are NULL."""
    return spark_sql("to_json(x, map('ignoreNullFields', 'false'))", x=value)


def map_concat(maps: list[exp.Expr]) -> exp.Expr:
    """Translate ``map_concat``: it reads a NULL map as an empty one."""
    return call("map_concat", *(call("coalesce", each, call("map")) for each in maps))


def epoch(node: exp.TimeToUnix) -> exp.Expr:
    """Translate ``epoch(t)``: seconds with their fraction."""
    return spark_sql("unix_micros(CAST(t AS TIMESTAMP)) / 1e6D", t=node.this)


def character(node: exp.Chr) -> exp.Expr:
    """Translate ``chr(n)``; Spark takes the number modulo 256."""
    (code,) = node.expressions
    if isinstance(code, exp.Literal) and code.is_int and int(code.name) < 256:
        return node
    return spark_sql("if(n > 255, raise_error(concat('chr() on Spark ends at 255: ', n)), c)", n=code, c=node)


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


def whole_quotient(node: exp.IntDiv) -> exp.Expr:
    """Raise an error for ``a // b`` of decimals, which keeps the fraction in DuckDB."""
    return spark_sql(
        "if(startswith(typeof(x), 'decimal') OR startswith(typeof(y), 'decimal'), "
        "raise_error('// of decimals has a fraction in DuckDB: write / or cast them to integers'), q)",
        x=node.this,
        y=node.expression,
        q=node.copy(),
    )
