"""Tables with partitions whose columns have other names in the files: right rows, and no file of another partition is opened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckrun
from duckrun import AlterSpec, Session, StorageError, WriteSpec
from duckrun.engines.duckdb import load_extensions
from duckrun.sql.by_file import with_values
from duckrun.sql.raising import raised
from duckrun.values.tables import SetProperties

MAPPED = {"delta.columnMapping.mode": "name"}
ROWS = """SELECT CAST(i AS TINYINT) AS a, CAST(i AS INTEGER) AS b, i AS id, CAST(i AS FLOAT) AS f, CAST(i / 7 AS DECIMAL(10, 3)) AS d,
i % 2 = 0 AS k, 'x' || i AS s, CAST('y' || i AS BLOB) AS raw, DATE '2020-01-01' + CAST(i AS INTEGER) AS day,
TIMESTAMP '2020-01-01 01:02:03.000456' + to_days(CAST(i AS INTEGER)) AS at, TIMESTAMPTZ '2020-01-01 01:02:03.000456+02' AS moment,
CASE WHEN i % 3 = 0 THEN NULL WHEN i % 3 = 1 THEN 'a{b}%c d''e/ü' ELSE 'p' || i % 5 END AS key,
DATE '2020-01-01' + CAST(i % 2 AS INTEGER) AS month FROM range(40) AS r(i)"""
NESTED = f"SELECT *, struct_pack(x := id, y := [s]) AS nested FROM ({ROWS})"


@pytest.fixture
def duck(tmp_path: Path) -> Iterator[Session]:
    with duckrun.connect(tmp_path / "lake") as session:
        yield session


@pytest.fixture
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        load_extensions(connection)
        yield connection


def make(session: Session, rows: str = ROWS, **properties: str) -> None:
    spec = WriteSpec("error", partition_by=("key", "month"), table_properties={**MAPPED, **properties})
    session.execute("t", spec, session.sql(rows))


def count(session: Session, sql: str) -> int:
    return int(session.sql(f"SELECT count(*) AS n FROM {sql}").collect()[0]["n"])


def assert_same(session: Session, table: str, rows: str) -> None:
    found, wanted = f"(SELECT * FROM {table})", f"({rows})"
    assert count(session, table) == count(session, wanted) > 0
    assert count(session, f"(FROM {found} EXCEPT ALL FROM {wanted})") == 0


def opened(plain: duckdb.DuckDBPyConnection, sql: str) -> int:
    """The files that DuckDB says it has opened for a query."""
    plain.execute("PRAGMA enable_profiling = 'no_output'")
    plain.execute(sql).fetchall()
    figures = json.loads(plain.get_profiling_information(format="json"))
    plain.execute("PRAGMA disable_profiling")

    def read(operator: dict[str, Any]) -> int:
        own = int((operator.get("extra_info") or {}).get("Total Files Read", 0))
        return own + sum(map(read, operator.get("children", ())))

    return read(figures)


@pytest.mark.parametrize("rows", [ROWS, NESTED], ids=["plain", "nested"])
def test_every_type_beside_partitions_reads_as_it_was_written(duck: Session, rows: str) -> None:
    make(duck, rows)
    assert_same(duck, "t", rows)
    assert count(duck, "t WHERE key IS NULL") == 14
    assert count(duck, "t WHERE month = DATE '2020-01-02' AND key = 'a{b}%c d''e/ü'") == 7


def test_a_filter_on_a_partition_opens_its_files_alone(duck: Session, plain: duckdb.DuckDBPyConnection) -> None:
    make(duck)
    source = duck.snapshot("t").scan_sql()
    total = len(duck.snapshot("t").files())
    for where, files in (
        ("key = 'p1' AND month = DATE '2020-01-01'", 1),
        ("key IS NULL", 2),
        ("key IN ('p1', 'p2')", 4),
        ("key LIKE 'p%' AND month > DATE '2020-01-01'", 5),
        ("key = 'none'", 0),
        ("true", total),
    ):
        assert opened(plain, f"SELECT sum(id) FROM {source} WHERE {where}") == files, where


def test_columns_that_came_or_changed_their_names_and_rows_that_went(duck: Session) -> None:
    make(duck, **{"delta.enableDeletionVectors": "true"})
    for change in ("RENAME COLUMN id TO filename", "ADD COLUMN z BIGINT", "RENAME COLUMN month TO m", "DROP COLUMN b"):
        duck.sql(f"ALTER TABLE t {change}")
    duck.sql("INSERT INTO t (a, filename, key, z) VALUES (1, 77, 'new', 5)")
    wanted = (
        f"SELECT * EXCLUDE (b, key) RENAME (id AS filename, month AS m), key, CAST(NULL AS BIGINT) AS z FROM ({ROWS})"
    )
    columns = "filename, z, s, key, m"
    assert_same(
        duck,
        "(SELECT filename, z, s, key, m FROM t WHERE key IS DISTINCT FROM 'new')",
        f"SELECT {columns} FROM ({wanted})",
    )
    assert duck.sql("SELECT filename, z, m FROM t WHERE key = 'new'").collect() == [{"filename": 77, "z": 5, "m": None}]
    duck.sql("DELETE FROM t WHERE filename IN (3, 4, 77)")  # by vectors
    assert any(file.deletion_vector for file in duck.snapshot("t").files())
    assert_same(duck, f"(SELECT {columns} FROM t)", f"SELECT {columns} FROM ({wanted}) WHERE filename NOT IN (3, 4)")


def test_a_table_that_began_without_names_of_its_own(duck: Session) -> None:
    """A partition column and a column ``filename`` keep their names in the files, another column has a new one."""
    rows = f"SELECT id, s AS filename, key, month, day FROM ({ROWS})"
    duck.execute("t", WriteSpec("error", partition_by=("key", "month")), duck.sql(rows))
    duck.execute("t", AlterSpec((SetProperties(MAPPED),)))
    duck.sql("ALTER TABLE t RENAME COLUMN day TO d")
    duck.sql("INSERT INTO t (id, filename, key, d) VALUES (77, 'f', 'new', DATE '2021-01-01')")
    assert_same(duck, "(SELECT * FROM t WHERE id < 77)", f"SELECT * RENAME (day AS d) FROM ({rows})")
    assert duck.sql("SELECT id, filename, d::VARCHAR AS d FROM t WHERE key = 'new'").collect() == [
        {"id": 77, "filename": "f", "d": "2021-01-01"}
    ]


@pytest.mark.parametrize("count", [1, 3, 1000, 1001])
def test_values_of_files_fail_for_a_file_that_has_none(plain: duckdb.DuckDBPyConnection, count: int) -> None:
    values = {f"it's {n}": [str(n), f"'v{n}'"] for n in range(count)}
    plain.execute("CREATE TABLE t AS SELECT 'it''s ' || i AS file, NULL AS v FROM range($n) AS r(i)", {"n": count})
    kinds = {'"n"': "BIGINT", '"v"': "VARCHAR"}
    sql = with_values("(SELECT file, v AS n, v FROM t)", '"file"', values, kinds, "lost ", there=True)
    assert plain.sql(f"SELECT count(*) FROM ({sql}) WHERE file = 'it''s ' || n AND v = 'v' || n").fetchall() == [
        (count,)
    ]
    plain.execute("INSERT INTO t VALUES ('other', NULL)")
    with pytest.raises(duckdb.Error) as failed:
        plain.sql(f"SELECT sum(n), max(v) FROM ({sql})").fetchall()
    ours = raised(str(failed.value), "t")
    assert isinstance(ours, StorageError) and "lost other" in str(ours)
