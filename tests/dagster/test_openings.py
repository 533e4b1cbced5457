"""How often a step opens DuckDB and the log of a table: each costs milliseconds, which are most of what a small write takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pytest
from dagster import asset, materialize

import duckrun
from duckrun import DeleteSpec, MergeSpec, WriteSpec
from duckrun_dagster import DeltaIOManager, DuckrunResource


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many instances of DuckDB, and logs, were opened."""
    found: Counter[str] = Counter()
    connect, table = duckdb.connect, deltalake.DeltaTable.__init__

    def connected(*args: Any, **options: Any) -> Any:
        found["DuckDB"] += 1
        return connect(*args, **options)

    def made(*args: Any, **options: Any) -> None:
        found["log"] += 1
        table(*args, **options)

    monkeypatch.setattr(duckdb, "connect", connected)
    monkeypatch.setattr(deltalake.DeltaTable, "__init__", made)
    return found


def test_a_step_that_writes_rows_in_memory_opens_no_duckdb_and_each_log_once(
    opened: Counter[str], tmp_path: Path
) -> None:
    @asset
    def flights() -> pa.Table:
        return pa.table({"id": range(10)})

    @asset
    def delays(flights: pa.Table) -> pa.Table:
        return flights.slice(3)

    resources = {"io_manager": DeltaIOManager(duckrun=DuckrunResource(root_path=str(tmp_path / "lake")))}
    for _ in range(3):  # the first makes the tables
        opened.clear()
        assert materialize([flights], resources=resources).success
        assert opened == {"log": 1}
        opened.clear()
        assert materialize([flights, delays], selection=[delays], resources=resources).success
        assert opened == {"DuckDB": 1, "log": 2}


def test_a_session_opens_the_log_of_a_table_that_nobody_else_writes_once(opened: Counter[str], tmp_path: Path) -> None:
    _ = DeleteSpec("id = 2")  # the first predicate of a process opens the DuckDB that parses them all
    opened.clear()
    with duckrun.connect(tmp_path / "lake") as session:
        rows = [pa.table({"id": [number], "v": ["new"]}) for number in range(6)]
        session.execute("t", WriteSpec("error"), rows[0])
        assert opened == {"DuckDB": 1, "log": 1}
        opened.clear()
        session.execute("t", WriteSpec("append"), rows[1])
        session.execute("t", MergeSpec(("id",)), pa.concat_tables(rows[1:4]))
        session.execute("t", DeleteSpec("id = 2"))
        session.sql("UPDATE t SET v = 'old' WHERE id = 3")
        assert session.sql("SELECT count(*) AS n FROM t").collect() == [{"n": 3}]
        assert not opened
