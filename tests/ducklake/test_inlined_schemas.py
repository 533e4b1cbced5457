"""Rows in the catalog of a table whose columns changed while ``inline_rows`` was 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import SQL, UnsupportedFeature, WriteSpec
from tests.ducklake.plain import connection
from tests.ducklake.test_change_histories import plain

CHANGES = {
    "a renamed column": ["ALTER TABLE t RENAME COLUMN a TO c"],
    "a column that was dropped and added": ["ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN a BIGINT"],
    "exchanged names": [
        "ALTER TABLE t RENAME COLUMN a TO x",
        "ALTER TABLE t RENAME COLUMN b TO a",
        "ALTER TABLE t RENAME COLUMN x TO b",
    ],
    "other types by an overwrite": ["CREATE OR REPLACE TABLE t AS SELECT 'x' AS a, 3 AS b, 4 AS d", "DELETE FROM t"],
}


def made(root: Path, changes: Sequence[str]) -> list[dict[str, Any]]:
    """A table with a row in a file, whose columns change; then a row that the catalog holds."""
    with duckrun.connect(root, format="ducklake", inline_rows=0) as session:
        session.sql("CREATE TABLE t (a INT, b INT)")
        session.sql("INSERT INTO t VALUES (0, 0)")
        for change in changes:
            session.sql(change)
    return by_ours(root, "INSERT INTO t SELECT * FROM (SELECT * FROM t LIMIT 0) UNION ALL BY NAME SELECT 7 AS b")


def by_ours(root: Path, *statements: str) -> list[dict[str, Any]]:
    with duckrun.connect(root, format="ducklake", inline_rows=100) as session:
        for statement in statements:
            session.sql(statement)
        return rows_of(session.sql("FROM t").toArrow())


def by_plain(root: Path, *statements: str) -> list[dict[str, Any]]:
    with plain(root) as (other, _):
        for statement in statements:
            other.execute(statement)
        return rows_of(other.execute("FROM t").to_arrow_table())


def rows_of(table: Any) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("alter", [by_ours, by_plain], ids=["ours", "plain"])
def test_rows_stay_those_of_their_columns(
    tmp_path: Path, changes: list[str], alter: Callable[..., list[dict[str, Any]]]
) -> None:
    before = made(tmp_path, changes)
    assert any(row["b"] == 7 for row in before)
    expected = sorted(({**row, "z": None} for row in before), key=repr)
    assert alter(tmp_path, "ALTER TABLE t ADD COLUMN z INT") == expected
    assert by_ours(tmp_path) == by_plain(tmp_path) == expected
    assert by_plain(tmp_path, "CALL ducklake_flush_inlined_data('lake')") == expected
    assert by_ours(tmp_path) == expected


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_rows_that_another_program_inlined_are_read_and_flushed(tmp_path: Path, changes: list[str]) -> None:
    with duckrun.connect(tmp_path, format="ducklake", inline_rows=0) as session:
        session.sql("CREATE TABLE t (a INT, b INT)")
        for change in changes:
            session.sql(change)
    before = by_plain(tmp_path, "INSERT INTO t BY NAME SELECT 7 AS b")
    with plain(tmp_path) as (other, _):
        other.execute("ALTER TABLE t ADD COLUMN z INT")
    expected = [{**row, "z": None} for row in before]
    with pytest.raises(UnsupportedFeature, match="rows in its catalog"), read_only(tmp_path) as session:
        session.sql("FROM t").toArrow()
    with duckrun.connect(tmp_path, format="ducklake") as session:
        assert rows_of(session.sql("FROM t").toArrow()) == expected
        session.upkeep.flush("t")
        assert rows_of(session.sql("FROM t").toArrow()) == expected
    assert by_plain(tmp_path) == expected


def test_a_flush_of_the_lake_lists_the_schemas_first(tmp_path: Path) -> None:
    before = made(tmp_path, CHANGES["exchanged names"])
    forget(tmp_path)
    with duckrun.connect(tmp_path, format="ducklake") as session:
        session.sql("CREATE TABLE other (i INT)")
        session.upkeep.flush()
    assert by_plain(tmp_path) == before


def test_a_lake_that_is_right_so_far_is_read_without_write_access(tmp_path: Path) -> None:
    before = made(tmp_path, CHANGES["a renamed column"])
    forget(tmp_path)
    with read_only(tmp_path) as session:
        assert rows_of(session.sql("FROM t").toArrow()) == before


def read_only(root: Path) -> duckrun.Session:
    return duckrun.connect(root, format="ducklake", read_only=True)


def forget(root: Path) -> None:
    """Unlist the schemas of inlined rows, as DuckLake leaves them."""
    catalog = connection()
    catalog.execute(f"ATTACH '{root}/catalog.sqlite' AS c (TYPE sqlite)")
    catalog.execute(
        "DELETE FROM c.ducklake_schema_versions WHERE begin_snapshot IN "
        "(SELECT snapshot_id FROM c.ducklake_snapshot_changes WHERE changes_made LIKE 'inlined_insert:%')"
    )
    catalog.close()


@pytest.fixture(params=["postgres", "duckdb"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_catalog"))
    return f"duckdb:{tmp_path}/c.duckdb"


def test_catalogs_of_other_databases_keep_rows_right(tmp_path: Path, catalog: str) -> None:
    options: dict[str, Any] = {"format": "ducklake", "catalog": catalog}
    with duckrun.connect(tmp_path / "lake", inline_rows=0, **options) as session:
        session.sql("CREATE TABLE t (a INT, b INT)")
        for change in CHANGES["exchanged names"]:
            session.sql(change)
    for statement in ("INSERT INTO t VALUES (1, 2)", "ALTER TABLE t ADD COLUMN z INT", "SELECT 1"):
        with duckrun.connect(tmp_path / "lake", inline_rows=10, **options) as session:
            session.sql(statement)
            row = session.sql("SELECT a, b FROM t").toArrow().to_pylist()
            assert row == [{"a": 2, "b": 1}], statement


def test_a_write_goes_on_after_a_flush_without_rows(tmp_path: Path) -> None:
    """It drops a table of inlined rows, and makes no snapshot."""
    with duckrun.connect(tmp_path, format="ducklake", inline_rows=0) as session:
        session.sql("CREATE TABLE t (a INT, b INT)")
        session.sql("ALTER TABLE t RENAME COLUMN a TO c")
        by_plain(tmp_path, "INSERT INTO t VALUES (1, 2)", "CALL ducklake_flush_inlined_data('lake')")
        with plain(tmp_path) as (other, _):
            other.execute("ALTER TABLE t ADD COLUMN z INT")
        assert rows_of(session.sql("FROM t").toArrow()) == [{"c": 1, "b": 2, "z": None}]
        with plain(tmp_path) as (other, _):
            other.execute("CALL ducklake_flush_inlined_data('lake')")
        session.sql("UPDATE t SET b = 3")
        assert rows_of(session.sql("FROM t").toArrow()) == [{"c": 1, "b": 3, "z": None}]


def test_rows_that_a_session_has_inlined_first_are_widened(tmp_path: Path) -> None:
    with duckrun.connect(tmp_path, format="ducklake", inline_rows=0) as session:
        session.sql("CREATE TABLE t (a INT, b INT)")
        session.sql("ALTER TABLE t RENAME COLUMN a TO c")
    with duckrun.connect(tmp_path, format="ducklake", inline_rows=100) as session:
        session.sql("INSERT INTO t VALUES (1, 2)")
        wide = SQL(f"SELECT {2**40} AS c, 3 AS b")
        session.execute("t", WriteSpec("append", schema_mode="sync_all_columns"), wide)
        assert rows_of(session.sql("FROM t").toArrow()) == [{"c": 1, "b": 2}, {"c": 2**40, "b": 3}]
    assert by_plain(tmp_path) == by_ours(tmp_path) == [{"c": 1, "b": 2}, {"c": 2**40, "b": 3}]
