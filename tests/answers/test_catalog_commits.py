"""The connection to the PostgreSQL catalog of a DuckLake is cut at COMMIT: the outcome is found out, and the write is there once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import duckrun
from duckrun import Session
from tests.ducklake.plain import attached
from tests.fixtures_answers import CUTS, Cut, LossyCatalog

BEFORE = [(n % 3, n) for n in range(30)]
STATEMENTS: dict[str, tuple[str, Callable[[list[tuple[int, int]]], list[tuple[int, int]]]]] = {
    "inlined insert": ("insert into t values (7, 1000)", lambda rows: [*rows, (7, 1000)]),
    "insert from itself": ("insert into t select * from t", lambda rows: rows * 2),
    "update": ("update t set v = v + 1", lambda rows: [(g, v + 1) for g, v in rows]),
    "delete": ("delete from t where v < 5", lambda rows: [(g, v) for g, v in rows if v >= 5]),
    "replace": (
        "create or replace table t as select 1 as g, range as v from range(40)",
        lambda _: [(1, v) for v in range(40)],
    ),
}


@pytest.fixture
def through(lossy_catalog: LossyCatalog, postgres_catalog: str) -> str:
    """The ``catalog`` of a lake that is reached through the proxy."""
    words = postgres_catalog.split(" ")
    return " ".join(f"port={lossy_catalog.port}" if word.startswith("port=") else word for word in words)


def rows(root: Path, catalog: str, table: str = "t") -> list[tuple[int, int]]:
    """The rows of a table as plain DuckDB reads them."""
    with attached(root, catalog) as plain:
        return sorted(plain.sql(f"from lake.main.{table}").fetchall())


@pytest.mark.answers
def test_a_second_delete_from_a_file_that_is_cut_loses_and_revives_no_row(
    tmp_path: Path, lossy_catalog: LossyCatalog, postgres_catalog: str, through: str
) -> None:
    root = tmp_path / "lake"
    with duckrun.connect(root, format="ducklake", catalog=through) as s:
        made(s)
        s.sql("delete from t where v = 3")
        with lossy_catalog.cutting("after"):
            s.sql("delete from t where v in (4, 5)")
        with lossy_catalog.cutting("after"):
            s.sql("update t set v = v + 100 where v = 6")
        assert lossy_catalog.cuts == 2
    expected = [(g, v + 100 * (v == 6)) for g, v in BEFORE if v not in (3, 4, 5)]
    assert rows(root, postgres_catalog) == sorted(expected)


def made(session: Session) -> None:
    # More rows than are inlined, so that they lie in files.
    session.sql("create table t as select range % 3 as g, range as v from range(30)")


@pytest.mark.answers
@pytest.mark.drawn(3)
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_commit_that_is_cut_is_there_once(
    tmp_path: Path, lossy_catalog: LossyCatalog, postgres_catalog: str, through: str, statement: str, cut: Cut
) -> None:
    root = tmp_path / "lake"
    sql, after = STATEMENTS[statement]
    with duckrun.connect(root, format="ducklake", catalog=through) as s:
        made(s)
        with lossy_catalog.cutting(cut):
            s.sql(sql)
        assert lossy_catalog.cuts == 1
        assert rows(root, postgres_catalog) == sorted(after(BEFORE))
        s.sql("insert into t values (9, 9)")  # the session goes on
        s.sql("update t set v = v + 1 where g = 9")
    assert rows(root, postgres_catalog) == sorted([*after(BEFORE), (9, 10)])


@pytest.mark.answers
@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_new_table_and_its_schema_are_there_once(
    tmp_path: Path, lossy_catalog: LossyCatalog, postgres_catalog: str, through: str, cut: Cut
) -> None:
    root = tmp_path / "lake"
    with duckrun.connect(root, format="ducklake", catalog=through) as s:
        made(s)
        with lossy_catalog.cutting(cut):
            s.sql("create table u partitioned by (g) as select g, v from t")
        with lossy_catalog.cutting(cut):
            s.sql("alter table t add column w int")
        with lossy_catalog.cutting(cut):
            s.sql("drop table t")
        assert lossy_catalog.cuts == 3
        assert s.tables() == ["main.u"]
        s.sql("insert into u select * from u")
    assert rows(root, postgres_catalog, "u") == sorted(BEFORE * 2)


@pytest.mark.answers
@pytest.mark.parametrize("cut", CUTS)
def test_a_transaction_over_several_tables_is_there_whole_or_says_that_nothing_is(
    tmp_path: Path, lossy_catalog: LossyCatalog, postgres_catalog: str, through: str, cut: Cut
) -> None:
    root = tmp_path / "lake"
    with duckrun.connect(root, format="ducklake", catalog=through) as s:
        made(s)
        s.sql("create table u as select * from t")

        def both() -> None:
            with s.transaction():
                s.sql("insert into t select * from t")
                s.sql("insert into u values (7, 7)")

        with lossy_catalog.cutting(cut), pytest.raises(duckrun.StorageError, match=r"Nothing was written"):
            both()
        assert lossy_catalog.cuts == 1
        assert rows(root, postgres_catalog) == rows(root, postgres_catalog, "u") == sorted(BEFORE)
        both()
    assert rows(root, postgres_catalog) == sorted(BEFORE * 2)
    assert rows(root, postgres_catalog, "u") == sorted([*BEFORE, (7, 7)])


def test_a_catalog_from_which_a_commit_was_taken_back_is_as_before(
    tmp_path: Path, lossy_catalog: LossyCatalog, postgres_catalog: str, through: str, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "lake"

    def catalog() -> dict[str, list[tuple[object, ...]]]:
        with attached(root, postgres_catalog) as plain:
            meta = "__ducklake_metadata_lake"
            listed = "select table_name from information_schema.tables where table_schema = ''public''"
            names = plain.sql(f"select table_name from postgres_query('{meta}', '{listed}')").fetchall()
            found = {name: plain.sql(f'from {meta}.public."{name}"').fetchall() for (name,) in names}
        return {name: sorted(rows, key=repr) for name, rows in found.items()}

    with duckrun.connect(root, format="ducklake", catalog=through) as s:
        made(s)
        s.sql("insert into t values (1, 1)")
        s.sql("delete from t where v = 29")  # a delete file, which the next one replaces
        s.sql("delete from t where v = 1 and g = 1")  # of a row that lies in the catalog, too
        before = catalog()
        with lossy_catalog.cutting("after"), pytest.raises(duckrun.StorageError), s.transaction():
            s.sql("create table x partitioned by (g) as select * from t")
            s.sql("delete from t where v > 3")
            s.sql("insert into t select * from t")
            s.sql("insert into t values (5, 5)")
            s.sql("alter table t rename column g to h")
        assert lossy_catalog.cuts == 1 and "is taken back" in caplog.text
        after = catalog()
        bounds = "ducklake_table_column_stats"  # stay as wide, as they do where rows are deleted
        assert [row[:2] for row in after.pop(bounds)] == [row[:2] for row in before.pop(bounds)]
        # Row ids are not used again.
        assert [row[:2] for row in after.pop("ducklake_table_stats")] == [
            row[:2] for row in before.pop("ducklake_table_stats")
        ]
        assert before["ducklake_data_file"] and after == before
