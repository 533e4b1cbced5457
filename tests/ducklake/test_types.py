"""Types of a DuckLake's columns: what is written is read again, by this library and by plain DuckDB, as what it was; else it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import duckrun
from duckrun import SQL, MergeSpec, Session


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def lake(root: Path) -> Iterator[Session]:
    with duckrun.connect(root, format="ducklake") as session:
        yield session


def rows(session: Session, query: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in session.sql(query).collect()]


def test_a_float_is_found_by_its_value(lake: Session) -> None:
    """DuckLake compares the bounds that it keeps of a FLOAT, its shortest text, as DOUBLE (duckdb 1.5.5): the value itself lies outside of them."""
    number = "-0.003148798132315278::FLOAT"
    lake.sql(f"create table t as select 1 as id, {number} as f")
    assert rows(lake, f"select id from t where f = {number}") == [(1,)]
    assert rows(lake, f"select id from t join (select {number} as f) as s using (f)") == [(1,)]
    merged = lake.execute("t", MergeSpec(("f",)), SQL(f"select 2 as id, {number} as f"))
    assert (merged.rows_updated, merged.rows_inserted) == (1, 0)
    first = lake.table("t").snapshot().version
    assert lake.sql(f"delete from t where f = {number}").rows_deleted == 1
    changes = lake.table("t").changes("full_delta", from_version=first).toArrow()
    assert changes.num_rows == 1
