"""What the embedded engine takes of Spark's SQL to compute a table's columns (``duckrun.sql.alike``) gives there what it gives on Spark.

Each part of an expression, over each type that it is let through for, over values at the edges of that type and all pairs of them: both
engines give the same, or both raise an error. A part that is let through for a type that is not compared here fails the test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import duckdb
import pytest

from duckrun.sql.alike import duckdb_of, kind_of
from duckrun.sql.quoting import quote_literal

pytestmark = [pytest.mark.differential, pytest.mark.spark]

INTEGERS = {"byte": ("tinyint", 8), "short": ("smallint", 16), "integer": ("int", 32), "long": ("bigint", 64)}
VALUES = {
    **{
        kind: (name, [*(str(n) for n in (0, 1, -1, 2, -7, 100)), str(2 ** (bits - 1) - 1), str(-(2 ** (bits - 1)))])
        for kind, (name, bits) in INTEGERS.items()
    },
    "float": ("float", ["0", "-0.0", "1.5", "-2.25", "0.1", "3.4028235e38", "1e-45", "NaN", "Infinity", "-Infinity"]),
    "double": ("double", ["0", "-0.0", "1.5", "0.1", "2.5", "1e300", "1e22", "4.9e-324", "NaN", "Infinity", "-Infinity"]),
    "decimal(10,2)": ("decimal(10,2)", ["0", "1.25", "-1.25", "99999999.99", "-99999999.99", "0.01"]),
    "decimal(38,0)": ("decimal(38,0)", ["0", "1", "-7", "9" * 38, "-" + "9" * 38]),
    "string": ("string", ["", " ", "a", "A", "abc", " pad ", "Straße", "İstanbul", "ΑΣ", "ǆ", "😀x", "e\u0301", "1", "12x", "2024-02-30", "true", "%", "\t", "NULL", "\u00a0x"]),
    "boolean": ("boolean", ["true", "false"]),
    "date": ("date", ["1970-01-01", "1969-12-31", "0001-01-01", "1582-10-04", "1582-10-15", "1900-02-28", "2000-02-29", "2024-12-30", "2021-01-03", "9999-12-31"]),
    "timestamp": ("timestamp", ["1970-01-01 00:00:00", "1969-12-31 23:59:59.999999", "0001-01-01 00:00:00", "1582-10-04 12:30:45.5", "1582-10-15 00:00:00", "2024-02-29 13:07:08.000001", "2024-12-30 00:59:59.9", "9999-12-31 23:59:59.999999"]),
}  # fmt: skip
VALUES["timestamp_ntz"] = ("timestamp_ntz", VALUES["timestamp"][1])
KINDS = tuple(VALUES)
IN_DUCKDB = {"timestamp": "timestamptz", "timestamp_ntz": "timestamp", "string": "varchar"}
TOLD = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long", "void": "null"}
"""Spark's names of types as Delta has them."""
NUMBERS = ("0", "1", "-1", "7", "128", "-129", "40000", "3000000000", "9223372036854775807", "1.5", "0.1", "1e3")
TEXTS = (
    "''",
    "'a'",
    "'A'",
    "' x '",
    "'é'",
    "'1'",
    "'0'",
    "'2024-02-29'",
    "'2024-02-29 10:00:00'",
    "'true'",
    "'abc'",
    "'1.0'",
)
TYPES = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)", "decimal(38,0)", "string", "boolean", "date", "timestamp", "timestamp_ntz")  # fmt: skip
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "YYYY", "MON", "MM", "DD", "nonsense")
FIELDS = (
    "year",
    "quarter",
    "month",
    "week",
    "day",
    "dow",
    "doy",
    "hour",
    "minute",
    "second",
    "dayofweek",
    "yearofweek",
)
FORMATS = ("yyyy-MM-dd", "yyyyMMdd", "yyyy", "yy", "MM", "M", "d", "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd'T'HH:mm:ss.SSS", "HHmm", "D", "E", "yyyy_MM", "HH:mm:ss.SSSSSS", "u-MM", "'M'", "yyyy.MM", "yyyy-MM-dd_HH")  # fmt: skip
BARE = (
    "x", "(x)", "-x", "- -x", "not x", "not (x is null)", "x is null", "x is not null", "x is true", "x is not true", "x is false",
    "x + y", "x - y", "x * y", "x % y", "x / y", "x + x + y", "x * y - x", "(x + 1) * 2", "x div 2", "x & 1", "x || y", "x || 'a'", "concat(x, y)",
    "concat(x, '-', y)", "concat(x)", "concat('a', 'b')", "x = y", "x != y", "x <> y", "x < y", "x <= y", "x > y", "x >= y", "x <=> y", "x == y", "x <=> null",
    "x in (y)", "x in (y, null)", "x not in (y)", "x between y and x", "x not between y and x", "x and y", "x or y", "not x or y", "x = y or x is null", "x = y and not x < y",
    "case when x is null then y else x end", "case x when y then 1 else 2 end", "case when x = y then 'a' when x < y then 'b' end", "if(x is null, y, x)", "if(x = y, 1, 0)",
    "coalesce(x, y)", "coalesce(x, y, null)", "coalesce(null, x)", "nullif(x, y)", "nvl(x, y)", "ifnull(x, y)", "x like 'a%'", "abs(x)", "least(x, y)", "greatest(x, y)",
    "upper(x)", "lower(x)", "trim(x)", "length(x)", "char_length(x)", "len(x)", "octet_length(x)", "substring(x, 1, 2)", "substring(x, 2)", "substr(x, 3, 1)", "substring(x, 0, 2)",
    "substring(x, -2)", "substring(x, 1, 0)", "substring(x, 1, -1)", "substring(x, 2, 5000000000)", "substring(x, 1, y)", "substring(x from 2 for 1)", "left(x, 1)", "reverse(x)", "concat_ws('-', x, y)", "year(x)", "month(x)", "day(x)",
    "dayofmonth(x)", "dayofweek(x)", "dayofyear(x)", "weekofyear(x)", "weekday(x)", "hour(x)", "minute(x)", "second(x)", "quarter(x)", "to_date(x)", "date(x)", "to_date(x, 'yyyy-MM-dd')", "last_day(x)",
    "date_add(x, 1)", "date_sub(x, 1)", "datediff(x, y)", "add_months(x, 1)", "x + interval 1 day", "x + 1 - 1", "unix_timestamp(x)", "to_timestamp(x)", "timestamp(x)", "string(x)", "int(x)", "bigint(x)",
    "double(x)", "hash(x)", "md5(x)", "round(x, 1)", "floor(x)", "ceil(x)", "pow(x, 2)", "sqrt(x)", "cast(cast(x as date) as timestamp)", "cast(date_trunc('month', x) as date)", "cast(date_trunc('hour', x) as timestamp_ntz)",
    "year(cast(x as date))", "trunc(x, 'month')", "from_unixtime(x)", "substring(cast(x as string), 1, 4)", "concat(cast(x as string), '-')", "cast(year(x) as string)", "year(x) * 100 + month(x)", "year(x) || '-' || month(x)",
    "year(x) * 10000 + month(x) * 100 + day(x)", "concat(year(x), month(x))", "cast((x) as string)", "length(cast(x as string))", "coalesce(x, 0) + 1", "coalesce(x, '')", "coalesce(x, 'none')", "coalesce(x, 0)",
)  # fmt: skip


def expressions(kind: str) -> Iterator[str]:
    """Each part over columns x and y of a type, and with constants."""
    yield from BARE
    for to in TYPES:
        yield from (f"cast(x as {to})", f"try_cast(x as {to})", f"cast(y as {to}) = cast(x as {to})")
    for value in (*NUMBERS, *TEXTS, "true", "null", "date '2024-02-29'", "timestamp '2024-02-29 10:00:00'"):
        yield from (f"x {sign} {value}" for sign in ("+", "-", "*", "%", "=", "<", ">=", "<=>", "!="))
        yield from (f"x in ({value})", f"x between {value} and y", f"coalesce(x, {value})", f"if(x = {value}, 1, 0)")
        yield from (f"case when x is null then {value} else x end", f"{value} + x", f"{value} = x")
        yield from (
            f"{value} % x",
            f"concat(x, {value})",
            f"x || {value}",
            f"case x when {value} then 'one' else 'other' end",
        )
    for unit in UNITS:
        yield from (f"date_trunc('{unit}', x)", f"trunc(x, '{unit}')")
    yield from (f"extract({name} from x)" for name in FIELDS)
    yield from (f"date_part('{name}', x)" for name in FIELDS)
    yield from (f"date_format(x, {quote_literal(name)})" for name in FORMATS if "'" not in name)
    yield "date_format(x, \"yyyy-MM-dd'T'HH:mm\")"


CONSTANTS = (
    "1", "-1", "1.5", "1e3", "'a'", "''", "'it''s'", "true", "null", "1 + 1", "2 * 3 - 1", "7 % 3", "7 % -3", "-7 % 3", "1 / 2", "2147483647 + 1", "9223372036854775807 + 1", "127 * 2", "3000000000 * 4", "0.1 + 0.2", "1.5 * 1.5",
    "1e0 + 1", "'a' || 'b'", "concat('a', 1)", "'a' || 1", "'1' + 1", "'a' = 'A'", "1 = '1'", "1 = 1.0", "null is null", "coalesce(null, 1)", "coalesce(null, 'a')", "date '2024-02-29'", "timestamp '2024-02-29 10:00:00'", "timestamp_ntz '2024-02-29 10:00:00'",
    "timestamp '2024-02-29 10:00:00+02:00'", "cast('2024-02-29' as date)", "cast('2024-02-30' as date)", "cast('2024' as date)", "cast('2024-2' as date)", "cast('2024-2-9' as date)", "cast(' 2024-02-29 ' as date)", "cast('2024-02-29 10:00:00' as timestamp)", "cast('2024-02-29T10:00' as timestamp)", "cast('10:00' as timestamp)",
    "cast('1' as int)", "cast(' 1 ' as int)", "cast('1.5' as int)", "cast('1e3' as int)", "cast('x' as int)", "cast('300' as tinyint)", "cast(1.5 as int)", "cast(2.5 as int)", "cast(-1.5 as int)", "cast(300 as tinyint)", "cast(1 as string)", "cast(1.0 as string)", "cast(1e3 as string)", "cast(true as string)",
    "cast('true' as boolean)", "cast('t' as boolean)", "cast('yes' as boolean)", "cast('on' as boolean)", "cast(1 as boolean)", "cast('0.1' as double)", "cast('1d' as double)", "cast('NaN' as double)", "cast('inf' as double)", "cast('1.005' as decimal(10,2))", "cast(1.005 as decimal(10,2))", "cast(null as int)", "try_cast('x' as int)",
    "cast('a' as binary)", "cast(1 as date)", "cast(date '2024-02-29' as timestamp)", "cast(date '2024-02-29' as string)", "cast(timestamp '2024-02-29 10:00:00' as string)", "year(date '2024-02-29')", "date_trunc('month', timestamp '2024-02-29 10:00:00')", "length('é')", "length('a ')", "substring('abc', 2, 1)", "length(1)", "substring(123, 1, 1)", "if(true, 1, 2)", "if(null, 1, 2)", "case when false then 1 end", "if(true, 1, 'a')",
    "1 in (1, 2)", "1 in (2, null)", "1 between 0 and 2", "not true", "- 5", "-(-5)", "date_format(date '2024-02-29', 'yyyy')", "year('2024-02-29')", "to_date('2024-02-29')", "to_date('2024-02-30')", "to_date('x')", "'a\\nb'", "\"a\"", "X'41'", "1L", "1S", "1Y", "1D", "1F", "1BD", "1.0BD", "array(1, 2)", "named_struct('a', 1)", "map('a', 1)", "interval 1 day",
    "'2024-02-29' < date '2024-03-01'", "hour(timestamp '2024-02-29 10:00:00')", "hour('2024-02-29 10:00:00')", "month('2024-02')", "current_user()", "uuid()", "rand()", "1 and true", "'true' and true", "1 = true", "''", "' '", "'\t'", "'\\\\'", "r'a\\n'", "'😀'", "null + 1", "null || 'a'", "1 <=> null", "null = null", "0 * -1", "-0.0", "-0.0e0",
    "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e400", "1e-400", "0x10", "1_000",
)  # fmt: skip


def values_of(kind: str, types: dict[str, str]) -> str:
    """SELECT of all pairs of values of a type, NULL too."""
    name, texts = VALUES[kind]
    held = [
        *(f"cast({quote_literal(text)} as {types.get(kind, name)})" for text in texts),
        f"cast(null as {types.get(kind, name)})",
    ]
    rows = ", ".join(f"({i}, {x}, {y})" for i, (x, y) in enumerate(product(held, held)))
    return f"select * from (values {rows}) as v(i, x, y)"


SHOWN = {
    "date": ("unix_date({})", "date_diff('day', date '1970-01-01', {})"),
    "timestamp": ("unix_micros({})", "epoch_us({})"),
    "timestamp_ntz": ("unix_micros(cast({} as timestamp))", "epoch_us({})"),
}
"""What is compared of values that Python has no type for, on Spark and in DuckDB."""


def raised(connection: duckdb.DuckDBPyConnection, shown: str, rows: int) -> tuple[list[Any], list[int]]:
    """The values of an expression in DuckDB, row by row, and the rows for which it is an error."""
    try:
        return [value for (value,) in connection.execute(f"select {shown} from alike order by i").fetchall()], []
    except duckdb.Error:
        values: list[Any] = []
        errors = []
        for row in range(rows):
            try:
                values.append(connection.execute(f"select {shown} from alike where i = {row}").fetchall()[0][0])
            except duckdb.Error:
                values.append(None)
                errors.append(row)
        return values, errors


def differences(spark: Any, kind: str | None, texts: Sequence[str]) -> list[str]:
    """What is not the same on both engines of expressions that are let through; each is computed for all rows."""
    from pyspark.errors import PySparkException

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"create table alike as {values_of(kind, IN_DUCKDB) if kind else 'select 0 as i'}")
    spark.sql(values_of(kind, {}) if kind else "select 0 as i").createOrReplaceTempView("alike")
    rows = connection.sql("select count(*) from alike").fetchall()[0][0]
    kinds = {"x": kind, "y": kind} if kind else {}
    alike = {text: sql for text in dict.fromkeys(texts) if (sql := duckdb_of(text, kinds)) is not None}
    named = ", ".join(f"{text} as c{i}" for i, text in enumerate(alike))
    types = [field.dataType.simpleString() for field in spark.sql(f"select {named} from alike").schema]
    told = [
        f"{kind}: {text} is {there} on Spark, and taken for {here}"
        for text, there in zip(alike, types, strict=True)
        if (here := kind_of(text, kinds)) != TOLD.get(there, there)
    ]
    asked, given = [], []
    for (text, sql), on_spark_is in zip(alike.items(), types, strict=True):
        on_spark, in_duckdb = SHOWN.get(on_spark_is.split("(")[0], ("{}", "{}"))
        stored = "int" if on_spark_is == "void" else IN_DUCKDB.get(on_spark_is, on_spark_is)
        values, errors = raised(connection, in_duckdb.format(f"cast({sql} as {stored})"), rows)
        given.append((text, sql, values))
        there = f"i not in ({', '.join(map(str, errors))})" if errors else "true"
        asked.append(f"case when {there} then {on_spark.format(f'({text})')} end")
        for row in errors[:2]:
            try:
                found = spark.sql(f"select {text} as c from alike where i = {row}").collect()[0][0]
            except PySparkException:
                continue
            if found is not None:  # NULL on the left of an operator: Spark does not look at the right
                told.append(f"{kind}: {text} is {found!r} on Spark, and an error in DuckDB ({sql})")
    named = ", ".join(f"{text} as c{i}" for i, text in enumerate(asked))
    answers = [tuple(row)[1:] for row in spark.sql(f"select i, {named} from alike order by i").collect()]
    for at, (text, sql, values) in enumerate(given):
        for row, value in enumerate(values):
            if repr(answers[row][at]) != repr(value):
                told.append(
                    f"{kind}: {text} is {answers[row][at]!r} on Spark, {value!r} in DuckDB ({sql}) in row {row}"
                )
                break
    return told


@pytest.mark.drawn(4)
@pytest.mark.parametrize("kind", KINDS)
def test_each_part_gives_the_same_for_the_values_of(kind: str, spark: Any) -> None:
    assert differences(spark, kind, list(expressions(kind))) == []


def test_constants_are_the_same(spark: Any) -> None:
    assert differences(spark, None, CONSTANTS) == []


@pytest.mark.parametrize(
    "text",
    ["try_cast(x as int)", "lower(x)", "upper(x)", "cast(x as int)", "x / 2", "x like 'a%'", "rand()", "t.x", "z", "x +", "substring(x, y)", "cast('2024-02-30' as date)"],
)  # fmt: skip
def test_what_may_differ_is_left_to_spark(text: str) -> None:
    assert duckdb_of(text, {"x": "string", "y": "integer"}) is None
