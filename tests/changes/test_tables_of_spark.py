"""Change queries on tables that Spark made and changed, of every kind of file: what whole snapshots say, on both engines.

Column mapping with renames and drops, partitions of every type, INT96, columns named as DuckDB's own, widened types, lists in an
older layout, nested types: each with deletion vectors, and some with statements of DuckDB in between.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import ReadSpec, Session

VECTORS = "'delta.enableDeletionVectors' = 'true'"
LEGACY = {"spark.sql.parquet.writeLegacyFormat": "true"}
INT96 = {"spark.sql.parquet.outputTimestampType": "INT96"}

# Name -> the settings of Spark, the columns with what follows them, the statements ("duckdb: ..." is DuckDB's), and columns that
# were renamed, old name -> new one.
CASES: dict[str, tuple[Mapping[str, str], str, Sequence[str], Mapping[str, str]]] = {
    "mapped": (
        {},
        "(id bigint, `a b` struct<`x y`: int, z: string>, p string) using delta partitioned by (p) "
        f"tblproperties ('delta.columnMapping.mode' = 'name', {VECTORS})",
        (
            "insert into {t} values (1, named_struct('x y', 1, 'z', 'q'), 'a'), (2, null, 'b c'), (3, named_struct('x y', 3, 'z', null), null)",
            "update {t} set id = id + 10 where p = 'a'",
            "alter table {t} rename column `a b` to s",
            "insert into {t} values (4, named_struct('x y', 4, 'z', 'w'), 'ü/%41')",
            "alter table {t} rename column p to part",
            "delete from {t} where id = 2",
            "alter table {t} add columns (new decimal(10, 2))",
            "update {t} set new = 1.5 where id = 4",
            "alter table {t} drop column id",
        ),
        {"a b": "s", "p": "part"},
    ),
    "mapped by id": (
        {},
        f"(id int, s struct<a: int>) using delta tblproperties ('delta.columnMapping.mode' = 'id', {VECTORS})",
        (
            "insert into {t} values (1, named_struct('a', 1)), (2, null)",
            "alter table {t} rename column s to q",
            "update {t} set q = named_struct('a', 5) where id = 2",
            "delete from {t} where id = 1",
        ),
        {"s": "q"},
    ),
    "partitions": (
        {},
        "(id int, d date, ts timestamp, dec decimal(10, 3), b string, n timestamp_ntz) using delta "
        f"partitioned by (d, ts, dec, b, n) tblproperties ({VECTORS})",
        (
            "insert into {t} values (1, date'2020-01-01', timestamp'2020-01-01 10:00:00.123456', 1.5, 'A%41B', timestamp_ntz'2020-01-01 00:00:00.5'), "
            "(2, null, null, null, null, null), "
            "(3, date'0001-01-01', timestamp'1900-01-01 00:00:00', -0.001, 'a/b', timestamp_ntz'1969-12-31 23:59:59.999999')",
            "update {t} set id = id + 1 where id < 3",
            "delete from {t} where id = 3",
            "duckdb: insert into {t} select 9, date '2020-01-01', timestamptz '2020-01-01 10:00:00.123456+00', 1.5, 'A%41B', "
            "timestamp '2020-01-01 00:00:00.5'",
            "duckdb: delete from {t} where id = 2",
        ),
        {},
    ),
    "int96": (
        INT96,
        f"(id int, ts timestamp, s struct<t: timestamp>, l array<timestamp>) using delta tblproperties ({VECTORS})",
        (
            "insert into {t} values (1, timestamp'2020-01-01 10:00:00.123456', named_struct('t', timestamp'2020-06-01 10:00:00'), "
            "array(timestamp'2020-06-01 10:00:00')), (2, null, null, null)",
            "duckdb: insert into {t} select 3, timestamptz '2020-01-01 10:00:00.123456+00', {{'t': timestamptz '2020-06-01 10:00:00+00'}}, "
            "[timestamptz '2020-06-01 10:00:00+00']",
            "update {t} set id = 5 where id = 1",
            "duckdb: update {t} set id = 6 where id = 5",
            "duckdb: delete from {t} where id = 2",
        ),
        {},
    ),
    "odd names": (
        {},
        "(id int, file_row_number int, filename string, `r` int, `f` int, `weight` int, step int, `__duckrun_step` int) "
        f"using delta tblproperties ({VECTORS})",
        (
            "insert into {t} values (1, 2, 'x', 3, 4, 5, 6, 7), (2, 2, 'x', 3, 4, 5, 6, 7), (3, 0, null, null, 4, 5, 6, 7)",
            "update {t} set id = 9 where id = 2",
            "duckdb: delete from {t} where id = 3",
            "insert into {t} values (1, 2, 'x', 3, 4, 5, 6, 7)",
        ),
        {},
    ),
    "widened": (
        {},
        f"(id int, x float, d decimal(5, 2)) using delta tblproperties ('delta.enableTypeWidening' = 'true', {VECTORS})",
        (
            "insert into {t} values (1, 1.1, 1.5), (2, 3.4, 2)",
            "alter table {t} alter column id type bigint",
            "insert into {t} values (5000000000, 1.5, 3)",
            "alter table {t} alter column x type double",
            "alter table {t} alter column d type decimal(10, 4)",
            "update {t} set d = 9.1234 where id = 1",
            "delete from {t} where id = 2",
        ),
        {},
    ),
    "older lists": (
        LEGACY,
        f"(id int, l array<int>, s array<struct<a: int>>, m map<string, int>, dec decimal(9, 2)) using delta tblproperties ({VECTORS})",
        (
            "insert into {t} values (1, array(1, null), array(named_struct('a', 1)), map('a', 1), 1.5), (2, null, array(), map(), null)",
            "update {t} set id = 7 where id = 2",
            "delete from {t} where id = 1",
        ),
        {},
    ),
    "types": (
        {},
        "(id int, b boolean, y tinyint, sh smallint, bin binary, c char(3), vc varchar(5), l array<array<double>>, "
        f"m map<string, struct<a: double, m: map<int, int>>>) using delta tblproperties ({VECTORS})",
        (
            "insert into {t} values (1, true, 1, 2, X'00', 'abc', 'xy', array(array(double('nan'), -0.0)), "
            "map('k', named_struct('a', double('nan'), 'm', map(1, 2, 3, 4)))), (2, null, null, null, null, null, null, null, null)",
            "update {t} set m = map('k', named_struct('a', double('nan'), 'm', map(3, 4, 1, 2))) where id = 1",
            "update {t} set b = false where id = 2",
            "delete from {t} where id = 1",
        ),
        {},
    ),
}


def plain(value: Any) -> Any:
    """A value as one that is equal for equal values: NaN, -0.0, numbers of any scale, maps in any order, fields by their places."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, Decimal):
        return value.normalize()
    if isinstance(value, dict):
        return tuple(plain(inner) for inner in value.values())
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return tuple(sorted(((plain(key), plain(item)) for key, item in value), key=repr))
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value


def multiset(rows: pa.Table, columns: Sequence[str]) -> Counter[Any]:
    return Counter(tuple(plain(row.get(name)) for name in columns) for row in rows.to_pylist())


@pytest.mark.changes
@pytest.mark.spark
@pytest.mark.parametrize("case", CASES)
def test_changes_of_a_table_that_spark_made(root: Path, spark: Any, case: str) -> None:
    settings, columns, statements, renamed = CASES[case]
    with duckrun.connect(root, engine="spark", spark=spark) as on_spark, duckrun.connect(root) as duck:
        location = f"{duck.lake.root}/main/t"
        before = {key: spark.conf.get(key, None) for key in settings}
        try:
            for key, value in settings.items():
                spark.conf.set(key, value)
            spark.sql(f"create table delta.`{location}` {columns}")
            for statement in statements:
                if statement.startswith("duckdb: "):
                    duck.sql(statement.removeprefix("duckdb: ").format(t="main.t"))
                else:
                    spark.sql(statement.replace("{t}", f"delta.`{location}`"))
        finally:
            for key, value in before.items():
                spark.conf.unset(key) if value is None else spark.conf.set(key, value)
        newest = duck.table("main.t").snapshot().version
        for first in range(newest + 1):
            for last in sorted({newest, min(first + 1, newest)}):
                for session in (duck, on_spark):
                    check(session, duck, first, last, renamed)


def check(session: Session, duck: Session, first: int, last: int, renamed: Mapping[str, str]) -> None:
    found = session.table("main.t").changes("min_delta", first, last).toArrow()
    columns = [name for name in found.column_names if name != "_change_type"]

    def state(version: int) -> Counter[Any]:
        rows = duck.scan("main.t", ReadSpec(version=version)).toArrow()
        names = [renamed[n] if renamed.get(n) in columns else n for n in rows.column_names]
        return multiset(rows.rename_columns(names), columns)

    kinds = Counter(
        (kind, row)
        for kind, row in zip(
            found.column("_change_type").to_pylist(),
            [tuple(plain(row[name]) for name in columns) for row in found.to_pylist()],
            strict=True,
        )
    )
    old, new = state(first), state(last)
    expected = Counter({("insert", row): n for row, n in (new - old).items()})
    expected.update({("delete", row): n for row, n in (old - new).items()})
    assert kinds == expected, f"({first}, {last}] on {session.engine_name}"
