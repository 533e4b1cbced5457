"""Tables moved: from Delta by copy and without, to Delta with their versions, out of a DuckDB file; and what stays whole when it fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import duckrun
from duckrun import (
    SQL,
    CommitConflict,
    InvalidConfig,
    MergeSpec,
    SchemaMismatch,
    Session,
    StorageError,
    TableNotFound,
    UnsupportedFeature,
    WriteSpec,
)
from duckrun.cli import main
from duckrun.moving import exporting, kinds
from duckrun.values.tables import SORT_BY

pytestmark = pytest.mark.drawn(5)  # a commit of a DuckLake is a tenth of a second, and these make hundreds
Rows = list[tuple[object, ...]]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Session]:
    with duckrun.connect(tmp_path / "lake", format="ducklake") as session:
        yield session


@pytest.fixture
def delta(tmp_path: Path) -> Iterator[Session]:
    """A Delta lake of two tables: one with all that moves, one with what does not."""
    with duckrun.connect(tmp_path / "delta") as session:
        rows = "select range::int as id, 'i' || range % 3 as item, date '2024-01-01' + (range % 2)::int as day, range / 2.0 as price from range(20)"
        session.execute(
            "sales.orders",
            WriteSpec(
                "error",
                partition_by=("day",),
                table_properties={SORT_BY: '["id"]'},
                description="what was sold",
                column_comments={"price": "in euros"},
            ),
            SQL(rows),
        )
        session.sql("alter table sales.orders alter column id set not null")
        session.sql("insert into sales.orders values (100, NULL, NULL, NULL)")
        session.sql("create table main.odd (n int, check (n < 100)) tblproperties ('delta.appendOnly' = 'true')")
        session.sql("insert into odd values (1), (2)")
        session.sql("create view few as select n from main.odd")
        yield session


def rows(session: Session, query: str) -> Rows:
    return sorted((tuple(row.values()) for row in session.sql(query).collect()), key=repr)


def newest(session: Session) -> int:
    return int(session.snapshots(1)[0]["snapshot_id"])


def test_a_delta_lake_is_copied_with_all_that_fits(lake: Session, delta: Session) -> None:
    done = {moved.table: moved for moved in lake.import_from(delta.lake.root)}
    assert set(done) == {"sales.orders", "main.odd"}
    assert (done["sales.orders"].rows, done["sales.orders"].left_out) == (21, ())
    assert (
        done["main.odd"].left_out == ("constraint n: CHECK (n < 100)", "property delta.appendOnly")
        or len(done["main.odd"].left_out) == 2
    )
    for table in ("sales.orders", "main.odd"):
        assert rows(lake, f"from {table}") == rows(delta, f"from {table}")
    detail, schema = lake.table("sales.orders").detail(), lake.table("sales.orders").snapshot().schema
    assert (detail["partitionColumns"], detail["sortColumns"], detail["description"]) == (
        ["day"],
        ["id"],
        "what was sold",
    )
    assert not schema.field("id").nullable and schema.field("item").nullable
    assert schema.field("price").metadata[b"comment"] == b"in euros"
    assert len([row for row in lake.snapshots() if "orders" in str(row["changes"])]) == 1
    with pytest.raises(CommitConflict, match=r"sales.orders is in lake .* already"):
        lake.import_from(delta.lake.root, "sales.orders")
    with pytest.raises(TableNotFound):
        lake.import_from(delta.lake.root, ["sales.order"])
    assert rows(delta, "select count(*) from sales.orders") == [(21,)]


def test_a_delta_table_is_adopted_without_a_copy(lake: Session, delta: Session) -> None:
    before, folder = rows(delta, "from sales.orders"), Path(delta.lake.root) / "sales/orders"
    files = {path.name for path in folder.rglob("*.parquet") if "_delta_log" not in str(path)}
    [moved] = lake.import_from(delta.lake.root, "sales.orders", adopt=True)
    assert (moved.rows, moved.adopted) == (21, True)
    assert rows(lake, "from sales.orders") == before
    assert {Path(file.path).name for file in lake.table("sales.orders").snapshot().files()} == files
    assert not list(Path(lake.lake.root, "data").rglob("sales/**/*.parquet"))
    assert not DeltaTable.is_deltatable(str(folder)) and (folder / "_delta_log.adopted").is_dir()
    with duckrun.connect(delta.lake.root) as reader, pytest.raises(TableNotFound):
        reader.table("sales.orders")
    lake.execute(
        "sales.orders",
        MergeSpec(("id",)),
        SQL("select 3::int as id, 'new' as item, date '2024-01-02' as day, 9.0 as price"),
    )
    lake.sql("delete from sales.orders where id > 10")
    assert len(rows(lake, "from sales.orders")) == 11
    lake.sql("drop table sales.orders")
    lake.upkeep.expire(older_than="0 seconds")
    removed = {Path(path).name for path in lake.upkeep.cleanup(older_than="0 seconds").removed}
    assert files <= removed and not [path for path in folder.rglob("*.parquet") if path.name in files]


def test_what_cannot_be_adopted_is_refused_and_stays(lake: Session, delta: Session, tmp_path: Path) -> None:
    delta.sql("create table marked as select range as id from range(1000)")
    delta.sql("alter table marked set tblproperties ('delta.enableDeletionVectors' = 'true')")
    delta.sql("delete from marked where id = 7")
    assert any(file.deletion_vector for file in delta.table("marked").snapshot().files())
    old = tmp_path / "delta/main/old"
    old.mkdir()
    times = pa.table({"at": pa.array([1], pa.timestamp("us", "UTC"))})
    pq.write_table(times, old / "a.parquet", use_deprecated_int96_timestamps=True)
    duckrun.DeltaTable.convertToDelta(delta, f"parquet.`{old}`")
    for name, error, said in (
        ("marked", UnsupportedFeature, "deletion vectors"),
        ("old", SchemaMismatch, "INT96"),
    ):
        with pytest.raises(error, match=said):
            lake.import_from(delta.lake.root, ["sales.orders", name], adopt=True)
        assert "_delta_log" in [path.name for path in (tmp_path / f"delta/main/{name}").iterdir()]
    assert lake.tables() == [] and rows(delta, "select count(*) from sales.orders") == [(21,)]
    [moved] = lake.import_from(delta.lake.root, "marked")
    assert moved.rows == 999


def test_an_error_within_an_adoption_brings_the_logs_back(
    lake: Session, delta: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.sql("create table there as select 1 as n")
    delta.sql("create table zebra as select 1 as n")
    first = next(file for file in delta.table("zebra").snapshot().files())
    Path(delta.lake.root, "main/zebra", first.path).unlink()
    with pytest.raises(StorageError):
        lake.import_from(delta.lake.root, ["sales.orders", "zebra"], adopt=True)
    assert lake.tables() == ["main.there"]
    assert rows(delta, "select count(*) from sales.orders") == [(21,)]


_KILLED = """
import os, sys
import duckrun
from duckrun.formats.delta.log.access import LogAccess
from duckrun.formats.ducklake.commits.work import Work
where = sys.argv[3]
if where == "aside":
    real = LogAccess.set_aside
    def set_aside(logs, ref, whose):
        real(logs, ref, whose)
        os._exit(9)
    LogAccess.set_aside = set_aside
else:
    LogAccess.bring_back = lambda logs, ref, away: os._exit(9)
with duckrun.connect(sys.argv[1], format="ducklake") as s:
    s.import_from(sys.argv[2], adopt=True)
"""


@pytest.mark.parametrize("where", ["aside", "committed"])
def test_an_adoption_that_is_killed_in_between_loses_nothing(where: str, tmp_path: Path) -> None:
    with duckrun.connect(tmp_path / "delta") as delta:
        delta.sql("create table t as select range as id from range(9)")
    roots = [str(tmp_path / "lake"), str(tmp_path / "delta")]
    assert subprocess.run([sys.executable, "-c", _KILLED, *roots, where], timeout=120).returncode == 9
    assert not DeltaTable.is_deltatable(str(tmp_path / "delta/main/t"))
    with (
        duckrun.connect(tmp_path / "other", format="ducklake") as other,
        pytest.raises(StorageError, match="into lake"),
    ):
        other.import_from(tmp_path / "delta", adopt=True)
    with duckrun.connect(tmp_path / "lake", format="ducklake") as lake:
        if where == "aside":
            [moved] = lake.import_from(tmp_path / "delta", adopt=True)
            assert moved.rows == 9
        else:
            with pytest.raises(StorageError, match="no Delta table"):
                lake.import_from(tmp_path / "delta", adopt=True)
        assert rows(lake, "select count(*), sum(id)::int from t") == [(9, 36)]
        assert (tmp_path / "delta/main/t/_delta_log.adopted").is_dir()


def test_single_files_are_adopted_once_and_only_where_they_fit(lake: Session, delta: Session, tmp_path: Path) -> None:
    lake.sql("create table t (id integer not null, name varchar)")
    lake.sql("create table other (id integer)")
    folder = tmp_path / "files"
    folder.mkdir()

    def made(name: str, query: str) -> str:
        path = str(folder / f"{name}.parquet")
        duckdb.sql(f"copy ({query}) to '{path}'")
        return path

    good = made("good", "select range::int as id, 'n' as name from range(5)")
    assert lake.moving.adopt_files("t", good).rows == 5
    assert rows(lake, "select count(*), sum(id)::int from t") == [(5, 10)]
    own = lake.table("t").snapshot().files()
    lake.sql("insert into other values (1)")
    of_other = next(iter(lake.table("other").snapshot().files())).path
    of_delta = next(iter(delta.table("odd").snapshot().files())).path
    before = newest(lake)
    for path, error, said in (
        (good, InvalidConfig, "this table's already"),
        (of_other, InvalidConfig, "table main.other's already"),
        (f"{delta.lake.root}/main/odd/{of_delta}", UnsupportedFeature, "Delta table"),
        (made("extra", "select 1::int as id, 'n' as name, 2 as more"), SchemaMismatch, "more"),
        (made("wide", "select 1::bigint as id, 'n' as name"), SchemaMismatch, 'map column "id"'),
        (made("nulls", "select NULL::int as id, 'n' as name"), SchemaMismatch, "have a NULL in id"),
        (made("lacks", "select 'n' as name"), SchemaMismatch, "have no column id, which is NOT NULL"),
        (str(folder / "nothing.parquet"), StorageError, "nothing.parquet"),
    ):
        with pytest.raises(error, match=said):
            lake.moving.adopt_files("t", path)
    with pytest.raises(InvalidConfig, match="given twice"):
        lake.moving.adopt_files("t", [str(folder / "wide.parquet")] * 2)
    assert newest(lake) == before and len(lake.table("t").snapshot().files()) == len(own)


def test_versions_go_to_delta_one_commit_each(lake: Session, tmp_path: Path) -> None:
    lake.execute(
        "sales.t",
        WriteSpec("error", partition_by=("s",), sort_by=("id",), description="d"),
        SQL("select range as id, 'a' as s from range(9)"),
    )
    lake.sql("delete from sales.t where id > 5")
    lake.upkeep.rewrite_files("sales.t", delete_threshold=0)
    lake.sql("alter table sales.t add column n integer")
    lake.sql("insert into sales.t values (20, 'b', 5)")
    versions = [
        entry["version"] for entry in reversed(lake.table("sales.t").history()) if entry["operation"] != "REWRITE"
    ]
    [moved] = lake.export_to(tmp_path / "out", versions=3)
    assert (moved.rows, moved.versions) == (7, 3)
    for number, version in enumerate(versions[-3:]):
        copied = DeltaTable(str(tmp_path / "out/sales/t"), version=number).to_pyarrow_table().to_pylist()
        assert sorted(copied, key=repr) == sorted(lake.table("sales.t").toDF(version=version).collect(), key=repr)
    with duckrun.connect(tmp_path / "out") as out:
        found = out.table("sales.t").snapshot()
        assert found.properties[SORT_BY] == '["id"]'
        assert (found.partition_columns, found.description) == (("s",), "d")
        assert out.lake.format.snapshot(found.ref).version == 2
    with pytest.raises(CommitConflict, match="already"):
        lake.export_to(tmp_path / "out")


def test_names_that_differ_in_case_only_are_not_moved_over_each_other(lake: Session, tmp_path: Path) -> None:
    for name in ("RAW/T", "raw/t", "raw/u"):
        write_deltalake(tmp_path / "both" / name, pa.table({"n": [name]}))
    for adopt in (False, True):
        with pytest.raises(UnsupportedFeature, match=r"RAW\.T and raw\.t differ in letter case only.*tables="):
            lake.import_from(tmp_path / "both", adopt=adopt)
    lake.import_from(tmp_path / "both", "raw.t")
    with pytest.raises(CommitConflict, match=r"raw\.t is in lake"):
        lake.import_from(tmp_path / "both", "RAW.T")
    write_deltalake(tmp_path / "out" / "RAW" / "u", pa.table({"n": ["u"]}))
    lake.export_to(tmp_path / "out")
    lake.sql("create table raw.U as select 1 as n")
    with pytest.raises(CommitConflict, match=r"RAW\.\w is in lake"):
        lake.export_to(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["RAW"]
    assert DeltaTable(tmp_path / "out" / "RAW" / "t").to_pyarrow_table().to_pylist() == [{"n": "raw/t"}]


def test_what_delta_cannot_store_is_named_and_nothing_is_left(lake: Session, tmp_path: Path) -> None:
    lake.sql("create table good as select 1 as n, uuid() as u")
    lake.sql("create table bad as select time '10:00' as moment, interval 1 day as long")
    with pytest.raises(UnsupportedFeature, match="main.bad.*'moment'.*main.bad.*'long'"):
        lake.export_to(tmp_path / "out")
    assert not (tmp_path / "out/main").exists()
    [moved] = lake.export_to(tmp_path / "out", "good")
    assert moved.left_out == ("column u is VARCHAR there, not UUID",)


def test_an_export_says_what_each_of_its_versions_left_out(lake: Session, tmp_path: Path) -> None:
    lake.sql("create table t as select 1 as n, uuid() as u")
    lake.sql("alter table t drop column u")
    [moved] = lake.export_to(tmp_path / "out", versions=2)
    assert (moved.versions, moved.left_out) == (2, ("column u is VARCHAR there, not UUID",))


def test_an_export_leaves_a_table_that_another_writer_made_meanwhile(
    lake: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.sql("create table a as select 1 as n; create table b as select 1 as n")

    def after_the_check(*arguments: Any) -> list[str]:
        with duckrun.connect(tmp_path / "out") as other:
            if arguments[0] == "main.b":
                other.sql("create table b as select 7 as n")
        return kinds.fitting(*arguments)

    monkeypatch.setattr(exporting, "fitting", after_the_check)
    with pytest.raises(CommitConflict, match="main.b"):
        lake.export_to(tmp_path / "out")
    with duckrun.connect(tmp_path / "out") as other:
        assert other.tables() == ["main.b"] and rows(other, "from b") == [(7,)]


def test_a_duckdb_file_is_copied_table_by_table(lake: Session, tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    with duckdb.connect(str(path)) as old:
        old.execute("create type mood as enum ('good', 'bad')")
        old.execute(
            "create table t (id integer primary key, moment time not null, m mood, big hugeint, check (id > 0))"
        )
        old.execute("insert into t values (1, '10:00', 'good', 12345678901234567890123456789)")
        old.execute("comment on column t.moment is 'when'")
        old.execute("create schema s")
        old.execute("create table s.u as select [1, 2] as listed, {'a': 1} as held")
        old.execute("create view v as select id from t")
        old.execute("create table bad (x union(a int, b varchar))")
    with pytest.raises(UnsupportedFeature, match="main.bad.*UNION.*tables="):
        lake.import_from(path)
    assert lake.tables() == []
    done = {moved.table: moved for moved in lake.import_from(f"duckdb:{path}", ["t", "s.u"])}
    assert rows(lake, "select id, moment::varchar, m, big::varchar from t") == [
        (1, "10:00:00", "good", "12345678901234567890123456789")
    ]
    assert rows(lake, "from s.u") == [([1, 2], {"a": 1})]
    left = " ".join(done["main.t"].left_out)
    assert "PRIMARY KEY" in left and "CHECK" in left and "column m is VARCHAR there" in left
    assert "column big is DECIMAL(38,0) there" in left
    assert not lake.table("t").snapshot().schema.field("moment").nullable
    with duckdb.connect(str(path)) as old:
        old.execute("drop table bad")
    with duckrun.connect(tmp_path / "second", format="ducklake") as second:
        assert second.import_from(path)[-1].left_out == ("view main.v", "type main.mood")
        with pytest.raises(StorageError, match="no DuckDB database"):
            second.import_from(tmp_path / "nothing.db")
        with pytest.raises(UnsupportedFeature, match="leave adopt out"):
            second.import_from(path, adopt=True)


def test_other_places_are_refused_by_name(lake: Session, delta: Session, tmp_path: Path) -> None:
    for ask, said in (
        (lambda: lake.import_from("md:my_db"), "MotherDuck"),
        (lambda: lake.export_to("iceberg:warehouse"), "Iceberg"),
        (lambda: lake.export_to("md:my_db"), "MotherDuck"),
        (lambda: delta.import_from(lake.lake.root), "export_to"),
        (lambda: delta.export_to(tmp_path / "x"), "format delta already"),
    ):
        with pytest.raises(UnsupportedFeature, match=said):
            ask()
    with pytest.raises(InvalidConfig, match="1 or more"):
        lake.export_to(tmp_path / "x", versions=0)
    with pytest.raises(StorageError, match="no Delta table"):
        lake.import_from(tmp_path / "empty")


def test_both_ways_are_commands(delta: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--root", str(tmp_path / "lake")])
        printed = capsys.readouterr()
        return printed.err if ended.value.code else printed.out

    assert "sales.orders    21" in run("import", delta.lake.root, "--table", "sales.orders")
    assert "CHECK" in run("import", delta.lake.root, "--table", "odd", "--adopt")
    assert "already" in run("import", delta.lake.root, "--table", "sales.orders")
    assert "sales.orders" in run("export", str(tmp_path / "out"), "--table", "sales.orders", "--versions", "2")
    assert DeltaTable(str(tmp_path / "out/sales/orders")).version() == 0
