"""Lakes that an older version of the package wrote: read, written, followed and published by this one.

tests/fixtures/yesterday/make.py wrote them, and says with which commit.
"""

from __future__ import annotations

import json
import sqlite3
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import duckrun
from duckrun import CommitConflict, DuckrunError, UnsupportedFeature, WriteSpec
from duckrun.session import Session
from duckrun.values.rows import AppTransaction, WorkTransaction
from duckrun_dagster import DeltaIOManager, DuckrunResource

PACKED = Path(__file__).parents[1] / "fixtures" / "yesterday" / "lakes.tar.gz"
WRITTEN: dict[str, Any] = json.loads(PACKED.with_name("lakes.json").read_text())
VIEWS = {"few", "fewer", "joined"}
FOR_APPENDS = {"append_only"}
COLUMNS = {"mapped_by_id": ("id", "w"), "times": ("id",), "located": ("id",), "one": ("id",), "two": ("id",)}
"""Columns of a new row, of the tables that do not take (id, v)."""


def unpacked(folder: Path) -> Path:
    """Unpack both lakes, as if they had been copied here today with all that names their folder."""
    now = time.time()
    with tarfile.open(PACKED) as packed:
        packed.extractall(folder, filter=lambda each, path: tarfile.data_filter(each.replace(mtime=now), path))
    for path in (folder / "delta/main/_duckrun", *folder.rglob("consumers"), folder / "ducklake/_duckrun"):
        for file in path.iterdir():
            if file.is_file():
                file.write_text(file.read_text().replace(WRITTEN["folder"], str(folder)))
    with sqlite3.connect(folder / "ducklake/catalog.sqlite") as catalog:
        catalog.execute("update ducklake_metadata set value = ? where key = 'data_path'", [f"{folder}/ducklake/data/"])
    catalog.close()
    return folder


def options(folder: Path, lake_format: str) -> dict[str, str]:
    if lake_format == "delta":
        return {}
    return {"format": "ducklake", "catalog": f"sqlite:{folder}/ducklake/catalog.sqlite"}


def plain(value: Any) -> Any:
    """A value as lakes.json has it."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, int | str | float | bool) else str(value)


def rows(session: Session, table: str) -> list[list[Any]]:
    found = session.sql(f'select * from main."{table}"').toArrow().to_pylist()
    return sorted((plain(list(row.values())) for row in found), key=repr)


def expected(lake_format: str, table: str) -> list[list[Any]]:
    return sorted(WRITTEN[lake_format][table], key=repr)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return unpacked(tmp_path)


@pytest.fixture(params=["delta", "ducklake"])
def old_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(folder: Path, old_format: str) -> Iterator[Session]:
    with duckrun.connect(folder / old_format, **options(folder, old_format)) as session:
        yield session


def test_every_table_and_view_has_its_rows(opened: Session, old_format: str) -> None:
    names = {name.removeprefix("main.") for name in opened.tables()}
    assert names == {*WRITTEN[old_format], *({"variants"} if old_format == "delta" else ())}
    for table in WRITTEN[old_format]:
        assert rows(opened, table) == expected(old_format, table), table
    if old_format == "delta":
        assert opened.sql("select id, x.n::int as n from variants").collect() == [{"id": 1, "n": 7}]
    else:
        assert opened.sql("select twice(4) as n").collect() == [{"n": 8}]


@pytest.mark.spark
def test_spark_reads_every_table(folder: Path, spark: Any) -> None:
    with duckrun.connect(folder / "delta", engine="spark", spark=spark) as session:
        for table in WRITTEN["delta"]:
            assert rows(session, table) == expected("delta", table), table
        session.sql("insert into everything (id, v, p) values (6, 'f', 'o')")
        session.sql("delete from checkpoints_v2 where id = 0")
    with duckrun.connect(folder / "delta") as session:
        assert [6, "f", 12, "o"] in rows(session, "everything")
        assert [0, "v"] not in rows(session, "checkpoints_v2")


def test_older_versions_row_ids_and_changes_are_told(folder: Path) -> None:
    with duckrun.connect(folder / "delta") as s:
        assert s.sql("select count(*) as n from plain version as of 1").collect() == [{"n": 3}]
        assert s.sql("select count(*) as n from checkpoints_v1 version as of 4").collect() == [{"n": 4}]
        assert s.sql("select id, old from everything version as of 1 where id = 4").collect() == [{"id": 4, "old": "d"}]
        ids = s.table("tracked").toDF(row_ids=True).toArrow().to_pylist()
        assert {str(row["id"]): [row["_row_id"], row["_row_commit_version"]] for row in ids} == WRITTEN["row_ids"]
        changes = {
            "plain": [("delete", 2, "b"), ("insert", 4, "d")],
            "vectors": [("delete", 9, "z"), ("update_postimage", 2, "b"), ("update_preimage", 2, "x")],
            "fed": [("update_postimage", 2, "B"), ("update_preimage", 2, "b")],
            "restored": [],
            "checkpoints_v2": [
                *(("insert", i, "v") for i in (0, 1, 3, 4)),
                *(("insert", i, "w") for i in (10, 11, 14)),
            ],
        }
        for table, wanted in changes.items():
            start = 0 if table == "checkpoints_v2" else 1
            found = s.table(table).changes("min_delta", from_version=start, key=["id"]).collect()
            assert sorted((row["_change_type"], row["id"], row["v"]) for row in found) == sorted(wanted), table
        operations = [entry["operation"] for entry in s.table("restored").history()]
        assert operations[0] == "RESTORE" and operations[-1].startswith("CREATE")


def written(s: Session, table: str, old_format: str) -> None:
    """Append to, merge into, update and delete from a table, then compact it, and compare its rows before and after that."""
    names = COLUMNS.get(table, ("id", "v"))
    place = [field.name for field in s.snapshot(f"main.{table}").schema].index(names[-1])

    def now(before: dict[int, Any], **change: Any) -> None:
        found = {row[0]: row[place] for row in rows(s, table)}
        assert found == before, (table, change)

    model = {row[0]: row[place] for row in WRITTEN[old_format][table]}

    def value(key: int, text: str) -> Any:
        return key if names == ("id",) else ord(text) if table in ("raw", "copy") else text

    columns, last = ", ".join(names), names[-1]

    def values(key: int, text: str) -> str:
        return f"({', '.join(repr(key if name == 'id' else value(key, text)) for name in names)})"

    def put(key: int, text: str) -> None:
        model[key] = value(key, text)

    s.sql(f"insert into {table} ({columns}) values {values(77, 'n')}")
    put(77, "n")
    if table in FOR_APPENDS:
        now(model)
        with pytest.raises(DuckrunError, match="append-only"):
            s.sql(f"delete from {table} where id = 77")
        return
    s.sql(
        f"merge into {table} t using (values {values(77, 'm')}, {values(78, 'k')}) s({columns}) on t.id = s.id "
        f"when matched then update set {last} = s.{last} "
        f"when not matched then insert ({columns}) values ({', '.join(f's.{name}' for name in names)})"
    )
    put(77, "m")
    put(78, "k")
    if len(names) > 1:
        s.sql(f"update {table} set {last} = {value(78, 'u')!r} where id = 78")
        put(78, "u")
    s.sql(f"delete from {table} where id = {next(iter(model))}")
    del model[next(iter(model))]
    now(model)
    s.table(table).optimize().executeCompaction()
    now(model)


def test_every_table_is_written_on(opened: Session, old_format: str) -> None:
    for table in WRITTEN[old_format]:
        if table not in VIEWS:
            written(opened, table, old_format)
    if old_format == "delta":
        new = {row[0]: row[2] for row in rows(opened, "identified")}
        assert len(set(new.values())) == len(new) and all(value % 5 == 0 and value > 10 for value in new.values())
        assert all(row[2] == row[0] * 2 for row in rows(opened, "generated"))
        with pytest.raises(DuckrunError, match="few"):
            opened.sql("insert into checked values (1000, 'x')")
        assert DeltaTable(opened.ref("main.checkpoints_v1").location).to_pyarrow_table().num_rows == 9


def test_a_table_is_restored_altered_and_replaced(opened: Session, old_format: str) -> None:
    table = opened.table("merged")
    oldest = table.history()[-1]["version"]
    table.restoreToVersion(oldest)
    assert rows(opened, "merged") == [[1, "a"], [2, "b"]]
    opened.sql("alter table merged add column n int")
    opened.sql("insert into merged values (9, 'z', 9)")
    assert rows(opened, "merged") == [[1, "a", None], [2, "b", None], [9, "z", 9]]
    opened.sql("create or replace view few as select id from merged where n is null")
    assert rows(opened, "few") == [[1], [2]]
    opened.sql("create or replace table plain as select 1 as only")
    assert rows(opened, "plain") == [[1]]


def test_transactions_of_before_count_once(opened: Session) -> None:
    more = pa.table({"id": pa.array([3], pa.int64()), "v": ["c"]})
    assert opened.execute("main.loaded", WriteSpec("append", app=AppTransaction("load", 3)), more).replayed
    assert not opened.execute("main.loaded", WriteSpec("append", app=AppTransaction("load", 4)), more).replayed
    assert opened.table("loaded").toDF().count() == 3
    second = WorkTransaction("chain/work", attempt="second", started=2.0)
    commit = opened.execute("main.work", WriteSpec("append", app=second), more)
    assert not commit.replayed and rows(opened, "work") == [[0, "z"], [3, "c"]]
    with pytest.raises(CommitConflict, match="superseded"):
        opened.execute("main.work", WriteSpec("append", app=replace(second, attempt="zombie", started=1.5)), more)


@dg.asset(
    ins={"raw": dg.AssetIn(metadata={"changes": "min_delta", "key": ["id"]})},
    metadata={"schema": "main", "merge_keys": "id"},
)
def copy(raw: pa.Table) -> pa.Table:
    return raw


RAW = dg.AssetSpec("raw", metadata={"schema": "main"}).with_io_manager_key("io_manager")


@pytest.fixture
def follow(folder: Path, old_format: str) -> Callable[[], dict[str, Any]]:
    """Run the asset that the older version left half-way; return the metadata of its materialization."""

    def run() -> dict[str, Any]:
        lake = DuckrunResource(root_path=str(folder / old_format), **options(folder, old_format))
        resources = {"io_manager": DeltaIOManager(duckrun=lake)}
        result = dg.materialize([RAW, copy], resources=resources, instance=dg.DagsterInstance.ephemeral())
        events = result.asset_materializations_for_node("copy")
        return {key: getattr(value, "value", value) for key, value in events[-1].metadata.items()}

    return run


def test_a_half_way_asset_goes_on(follow: Callable[[], dict[str, Any]], folder: Path, old_format: str) -> None:
    first = follow()
    assert (first.get("raw_delete", 0), first["raw_update_postimage"], first["changes_whole"]) == (0, 1, False)
    second = follow()
    assert (second["raw_delete"], second.get("raw_update_postimage", 0)) == (1, 0)
    with duckrun.connect(folder / old_format, **options(folder, old_format)) as s:
        assert rows(s, "copy") == rows(s, "raw") == expected(old_format, "raw")
        s.sql("insert into raw values (9, 90)")
    assert follow()["raw_insert"] == 1


def test_a_branch_of_an_old_lake_is_published(folder: Path) -> None:
    root = folder / "delta"
    tables = [name for name in WRITTEN["delta"] if name not in VIEWS | FOR_APPENDS | {"identified", "raw", "copy"}]
    with duckrun.connect(root, branch="pr-1") as s:
        for table in tables:
            names = COLUMNS.get(table, ("id", "v"))
            values = ", ".join("77" if name == "id" else "'n'" for name in names)
            s.sql(f"insert into {table} ({', '.join(names)}) values ({values})")
            s.sql(f"delete from {table} where id = 1")
        s.sql("create or replace view few as select id from plain")
        with pytest.raises(UnsupportedFeature, match="identity"):
            s.sql("insert into identified (id, v) values (3, 'c')")
    with duckrun.connect(root) as main:
        for table in tables:
            assert rows(main, table) == expected("delta", table), table
        main.publish("pr-1")
        for table in tables:
            ids = {row[0] for row in WRITTEN["delta"][table]} - {1} | {77}
            assert {row[0] for row in rows(main, table)} == ids, table
        assert rows(main, "few") == [[3], [4], [77]]
        main.table("plain").vacuum()
