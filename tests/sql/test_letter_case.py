"""Names are told apart without their letter case, and keep it: one rule for SQL, frames, dbt, the IO manager and the command line.

Budget: 30 seconds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import duckrun
from duckrun.errors import InvalidConfig, TableNotFound
from duckrun.values.branches import PUBLISHES
from duckrun.values.rows import DeleteInsertSpec, MergeSpec, WriteSpec
from duckrun_dagster import DeltaIOManager, DuckrunResource, check_definitions

ONE = pa.table({"id": [1]})


def by_foreign_writer(root: Path, *names: str) -> None:
    """Tables whose names nobody of ours has judged; the rows of each are its name."""
    for name in names:
        write_deltalake(root / name.replace(".", "/"), pa.table({"n": [name]}))


def test_a_name_in_another_case_is_the_table_that_is_there(tmp_path: Path, lake_format: str) -> None:
    root = tmp_path / "lake"
    with duckrun.connect(root, format=lake_format) as session:
        session.sql("create schema RAW")
        session.sql("create table RAW.Orders as select 1 as id")
        session.sql("create table raw.other as select 2 as id")
        session.sql("insert into Raw.ORDERS values (3)")
        session.execute("raw.orders", WriteSpec("append"), pa.table({"id": pa.array([4], pa.int32())}))
        assert [row["id"] for row in session.sql("select id from raw.orders order by id").collect()] == [1, 3, 4]
        assert session.tables() == ["RAW.Orders", "RAW.other"]
        with pytest.raises(InvalidConfig, match="exists already"):
            session.sql("create schema raw")
        session.sql("alter table raw.other rename to raw.Third")
    with duckrun.connect(root, format=lake_format) as session:
        assert session.sql("select id from raw.third").collect() == [{"id": 2}]
        assert session.tables() == ["RAW.Orders", "RAW.Third"]
    if lake_format == "delta":
        assert [name for name in os.listdir(root) if name.lower() == "raw"] == ["RAW"]


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_partition_column_of_a_new_table_in_another_case_is_the_column_of_the_rows(
    tmp_path: Path, lake_format: str, engine: Any, request: pytest.FixtureRequest
) -> None:
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    with duckrun.connect(tmp_path / "lake", format=lake_format, engine=engine, spark=spark) as session:
        for mode in ("error", "overwrite"):
            session.execute("t", WriteSpec(mode, partition_by=("DAY",)), pa.table({"id": [1], "day": [mode]}))
            assert session.snapshot("t").partition_columns == ("day",)
            assert session.sql("select id, day from t").collect() == [{"id": 1, "day": mode}]


@pytest.mark.parametrize("key", ["id", "ID"])
@pytest.mark.parametrize("kind", [MergeSpec, DeleteInsertSpec])
def test_a_key_in_another_case_is_the_column_that_is_there(
    tmp_path: Path, lake_format: str, key: str, kind: type
) -> None:
    rows = pa.table({"Id": pa.array([1, 2], pa.int32()), "V": ["b", "c"]})
    with duckrun.connect(tmp_path / "lake", format=lake_format) as session:
        session.sql("create table t as select 1 as id, 'a' as v")
        session.execute("t", kind((key,)), rows)
        assert session.sql("from t order by id").collect() == [{"id": 1, "v": "b"}, {"id": 2, "v": "c"}]


@pytest.mark.only_format("delta", "a DuckLake has no names that nobody has judged")
def test_of_tables_that_differ_in_case_each_is_found_by_its_exact_name(tmp_path: Path, lake_format: str) -> None:
    root = tmp_path / "lake"
    by_foreign_writer(root, "main.T", "main.t", "RAW.x", "raw.y", "raw.x")
    with duckrun.connect(root) as session:
        for name in ("main.T", "main.t", "RAW.x", "raw.y", "raw.x"):
            assert session.sql(f"select n from {name}").collect() == [{"n": name}]
        write_deltalake(root / "main" / "Up", pa.table({"n": [1]}))
        write_deltalake(root / "main" / "uP", pa.table({"n": [1]}))
        with pytest.raises(InvalidConfig, match=r"'UP' may mean.*main\.Up, main\.uP. Write the exact one"):
            session.sql("select n from main.UP")
        with pytest.raises(InvalidConfig, match=r"'Raw' may mean.*RAW, raw"):
            session.sql("create table Raw.z as select 1 as id")
        with pytest.raises(TableNotFound):
            session.sql("select * from RAW.y")
    assert sorted(name for name in os.listdir(root)) == ["RAW", "main", "raw"]


@pytest.mark.spark
@pytest.mark.only_format("delta", "a DuckLake has no names that nobody has judged")
def test_of_tables_that_differ_in_case_spark_reads_and_writes_each(
    tmp_path: Path, lake_format: str, spark: Any
) -> None:
    root = tmp_path / "lake"
    by_foreign_writer(root, "main.T", "main.t", "RAW.x", "raw.x")
    with duckrun.connect(root, engine="spark", spark=spark) as session:
        session.sql("insert into RAW.x values ('by SQL')")
        session.execute("main.t", WriteSpec("append"), pa.table({"n": ["by spec"]}))
        session.sql(
            "merge into raw.x as t using (select * from RAW.x) as s on t.n = s.n when not matched then insert *"
        )
        session.sql("create view main.v as select u.n, l.n as m from main.T as u, main.t as l")
        for statement, why in {
            "select * from Raw.x": "RAW, raw. Write the exact one",
            "create table Raw.z as select 1 as id": "RAW, raw. Write the exact one",
            "create view Main.T as select 1 as id": "is a table",
        }.items():
            with pytest.raises(InvalidConfig, match=why):
                session.sql(statement)
        assert session.table("main.T").toDF().collect() == [{"n": "main.T"}]
    rows = {name: sorted(DeltaTable(root / name).to_pyarrow_table()["n"].to_pylist()) for name in ("RAW/x", "raw/x")}
    assert rows == {"RAW/x": ["RAW.x", "by SQL"], "raw/x": ["RAW.x", "by SQL", "raw.x"]}
    with duckrun.connect(root) as session:
        assert session.sql("from main.v order by all").collect() == [
            {"n": "main.T", "m": "by spec"},
            {"n": "main.T", "m": "main.t"},
        ]
    assert sorted(os.listdir(root / "main") + os.listdir(root)) == sorted(["T", "t", "_duckrun", "RAW", "main", "raw"])


@pytest.mark.only_format("delta", "requests to a store are counted of folders")
def test_names_are_listed_once_for_another_spelling(tmp_path: Path, lake_format: str, monkeypatch: Any) -> None:
    with duckrun.connect(tmp_path / "lake") as session:
        session.sql("create table RAW.Orders as select 1 as id")
        listings: list[str] = []
        lake, listed = session.lake, session.lake.storage.list_names

        def list_names(path: str) -> Any:
            if not path.startswith(PUBLISHES):  # a query looks there in a local lake; in a store it does not
                listings.append(path)
            return listed(path)

        monkeypatch.setattr(lake.storage, "list_names", list_names)
        for _ in range(5):
            session.sql("select * from RAW.Orders").collect()
        assert listings == []
        session.sql("select * from raw.orders").collect()
        once = len(listings)
        for _ in range(5):
            session.sql("select * from raw.orders").collect()
        assert len(listings) == once > 0


def test_the_io_manager_writes_and_reads_the_table_that_is_there(tmp_path: Path) -> None:
    root = str(tmp_path / "lake")
    manager = DeltaIOManager(duckrun=DuckrunResource(root_path=root))
    manager.handle_output(dg.build_output_context(asset_key=["RAW", "orders"]), [{"id": 1}])
    manager.handle_output(dg.build_output_context(asset_key=["raw", "Other"]), [{"id": 2}])
    manager.handle_output(dg.build_output_context(asset_key=["raw", "ORDERS"]), [{"id": 3}])
    for key, rows in ((["raw", "orders"], [{"id": 3}]), (["Raw", "other"], [{"id": 2}])):
        assert manager.load_input(dg.build_input_context(asset_key=key)).to_pylist() == rows
    with duckrun.connect(root) as session:
        assert session.tables() == ["RAW.Other", "RAW.orders"]


def test_two_assets_whose_keys_differ_in_case_write_one_table(tmp_path: Path) -> None:
    @dg.asset(key=["RAW", "orders"])
    def one() -> pa.Table:
        return ONE

    @dg.asset(key=["raw", "orders"])
    def other() -> pa.Table:
        return ONE

    manager = DeltaIOManager(duckrun=DuckrunResource(root_path=str(tmp_path / "lake")))
    with pytest.raises(InvalidConfig, match="RAW/orders and raw/orders both write table raw.orders"):
        check_definitions(dg.Definitions(assets=[one, other], resources={"io_manager": manager}))
