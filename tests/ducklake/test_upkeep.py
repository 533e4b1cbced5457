"""A DuckLake kept in order: what each operation does, in Python and in SQL, what it spares and what it refuses."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet
import pytest

import duckrun
from duckrun import (
    SQL,
    AppTransaction,
    DuckrunError,
    InvalidConfig,
    MaintenanceResult,
    ReadOnlyLake,
    Session,
    TableNotFound,
    UnsupportedFeature,
    VersionNotReadable,
    WriteSpec,
)
from duckrun.changes.cursors import Cursor, Upstream
from duckrun.cli import main
from duckrun.storage.scratch import scratch
from duckrun.values.cursors import CursorTransaction
from duckrun_dagster import DuckrunResource, lake_maintenance, maintenance
from tests.ducklake import plain

pytestmark = pytest.mark.drawn(5)  # a commit of a DuckLake is a tenth of a second, and these make hundreds
NOW = timedelta()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Session]:
    with duckrun.connect(tmp_path / "lake", format="ducklake", inline_rows=5) as session:
        session.sql("create table t as select range as id from range(20)")
        for number in range(3):
            session.sql(f"insert into t values ({100 + number})")
        session.sql("delete from t where id in (3, 101)")
        yield session


def ids(session: Session, version: int | None = None) -> list[int]:
    return sorted(row["id"] for row in session.table("t").toDF(version=version).collect())


def files(session: Session) -> int:
    return len(list(Path(session.lake.root).glob("data/main/t/*.parquet")))


def test_flush_writes_the_rows_of_the_catalog_into_files(lake: Session) -> None:
    before, version = ids(lake), lake.table("t").snapshot().version
    done = lake.upkeep.flush("t")
    assert (done.rows_flushed, done.files_before, done.files_after) == (3, 1, 2)
    assert done.version == lake.table("t").snapshot().version == version + 1
    assert ids(lake) == ids(lake, version) == before
    record = lake.lake.format.record(lake.table("t").ref, version + 1)
    assert record is not None and not record.changes_rows and record.operation == "FLUSH"
    assert lake.upkeep.flush().version is None


def test_merging_flushes_first_and_every_version_stays(lake: Session) -> None:
    versions = {entry["version"]: ids(lake, entry["version"]) for entry in lake.table("t").history()}
    lake.execute("t", WriteSpec("append"), SQL("select range + 200 as id from range(9)"))
    lake.execute("t", WriteSpec("append"), SQL("select range + 300 as id from range(9)"))
    now = ids(lake)
    done = lake.table("t").merge_files()
    assert done.rows_flushed == 3 and done.files_after is not None and done.files_after < 4
    assert ids(lake) == now
    assert {version: ids(lake, version) for version in versions} == versions
    assert [entry["operation"] for entry in lake.table("t").history(2)] == ["OPTIMIZE", "FLUSH"]


def test_rewriting_leaves_deleted_rows_behind(lake: Session) -> None:
    lake.sql("delete from t where id < 15")
    now, version = ids(lake), lake.table("t").snapshot().version
    assert lake.upkeep.rewrite_files("t", delete_threshold=0.99).mode == "rewrite"
    done = lake.upkeep.rewrite_files("t", delete_threshold=0.1)
    assert done.version is not None and done.bytes_after is not None
    assert ids(lake) == ids(lake, version) == now
    assert not any(file.deletion_vector for file in lake.table("t").snapshot().files())
    with pytest.raises(InvalidConfig, match="from 0 to 1"):
        lake.upkeep.rewrite_files("t", delete_threshold=2)


@pytest.mark.parametrize("inline_rows", [0, 5])
def test_a_table_is_kept_in_order_whose_sorted_column_has_another_type(tmp_path: Path, inline_rows: int) -> None:
    """DuckLake's flush, merge and rewrite sort rows by a column as it is now, and end in an internal error of DuckDB's where it was another one (1.5.5)."""
    with duckrun.connect(tmp_path / "lake", format="ducklake", inline_rows=inline_rows) as lake:
        lake.execute("t", WriteSpec("overwrite", sort_by=("id",)), SQL("select range::int as id from range(10, 30)"))
        lake.sql("insert into t select range from range(30, 50)")
        lake.sql("insert into t values (0)")
        lake.sql("alter table t alter column id type bigint")
        lake.sql("insert into t values (5000000000)")
        then = lake.table("t").snapshot().version
        was = [0, *range(10, 50), 5000000000]
        lake.upkeep.flush()
        merged = lake.table("t").merge_files()
        assert (merged.files_before - merged.files_after, ids(lake)) == (2, was)
        lake.sql("delete from t where id in (11, 12)")
        lake.table("t").rewrite_files(delete_threshold=0)
        lake.upkeep.merge_files()
        made = lake.snapshots(1)
        lake.merge_files()
        assert (lake.snapshots(1), ids(lake), ids(lake, then)) == (made, [n for n in was if n not in (11, 12)], was)
        assert lake.table("t").snapshot().format_state.definition.sort_by == ("id",)
    with plain.attached(tmp_path / "lake") as other:
        assert other.execute("select count(*), min(id), max(id) from lake.t").fetchall() == [(40, 0, 5000000000)]
        assert other.execute(f"select count(*), max(id) from lake.t at (version => {then})").fetchall() == [
            (42, 5000000000)
        ]


def test_expired_snapshots_are_gone_and_cleanup_removes_what_only_they_read(lake: Session) -> None:
    first = lake.table("t").history()[-1]["version"]
    lake.execute("t", WriteSpec("overwrite"), SQL("select range as id from range(50)"))
    lake.upkeep.rewrite_files("t", delete_threshold=0)
    assert lake.upkeep.expire(older_than=NOW, dry_run=True).expired == tuple(range(lake.snapshots()[0]["snapshot_id"]))
    assert ids(lake, first) == list(range(20))
    newest = lake.snapshots()[0]["snapshot_id"]
    with pytest.raises(InvalidConfig, match="is the newest"):
        lake.upkeep.expire([newest])
    with pytest.raises(InvalidConfig, match="there is no snapshot 99"):
        lake.upkeep.expire([99])
    assert lake.upkeep.expire([first]).expired == (first,)
    with pytest.raises(VersionNotReadable, match="has expired"):
        ids(lake, first)
    lake.upkeep.expire(older_than=NOW)
    assert [entry["snapshot_id"] for entry in lake.snapshots()] == [newest]
    assert lake.upkeep.cleanup().removed == ()  # seven days are kept
    listed = lake.upkeep.cleanup(older_than=NOW, dry_run=True)
    assert listed.removed and listed.dry_run and files(lake) > 1
    assert set(lake.upkeep.cleanup(older_than=NOW).removed) == set(listed.removed)
    assert files(lake) == 1 and ids(lake) == list(range(50))


def test_what_a_consumer_goes_on_from_is_spared(lake: Session) -> None:
    app = CursorTransaction("reports", 0)
    out = lake.lake.resolve("main", "report")
    upstream = lake.table("t").snapshot()
    Cursor(lake.lake, out, "reports").begin({str(upstream.ref): Upstream.of(lake.lake, upstream)})
    lake.execute("report", WriteSpec("append", app=app), SQL("select count(*) as n from t"))
    lake.sql("insert into t values (900)")
    done = lake.upkeep.expire(older_than=NOW)
    assert done.expired == tuple(range(upstream.version)) and "reports" in done.warnings[0]
    assert [row["snapshot_id"] for row in lake.snapshots()][-1] == upstream.version
    done = lake.upkeep.expire(older_than=NOW, spare_consumers=False)
    assert upstream.version in done.expired and "needs a full refresh" in done.warnings[0]


def test_orphans_are_files_that_the_catalog_does_not_know(lake: Session) -> None:
    stray = Path(lake.lake.root) / "data/main/t/stray.parquet"
    pa.parquet.write_table(pa.table({"id": [1]}), stray)
    assert lake.upkeep.orphans().removed == () and stray.exists()
    assert lake.upkeep.orphans(older_than=NOW, dry_run=True).removed == (str(stray),) and stray.exists()
    assert lake.upkeep.orphans(older_than="0 seconds").removed == (str(stray),) and not stray.exists()
    assert len(ids(lake)) == 21


STAGES = """
import sys, time
from pathlib import Path
from duckrun.storage.scratch import scratch
from duckrun.storage.storage import Storage

with scratch(Storage(sys.argv[1])) as folder:
    Path(folder, "spark-1").mkdir(parents=True)
    Path(folder, "spark-1", "part-0.parquet").write_bytes(b"rows")
    print("staged", flush=True)
    time.sleep(600)
"""
"""A process that has staged a source for DuckDB to apply, as a write on Spark does."""


def test_what_a_killed_process_staged_goes_and_what_a_live_one_has_stays(lake: Session) -> None:
    def staged() -> list[str]:
        return sorted(str(path) for path in Path(lake.lake.root, "_duckrun", "scratch").rglob("*.parquet"))

    processes = []
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", STAGES, lake.lake.root], stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None and process.stdout.readline() == "staged\n"
    both = staged()
    try:
        assert lake.upkeep.orphans(older_than=NOW).removed == () and staged() == both and len(both) == 2
        processes[0].kill()
        processes[0].wait()
        [left] = lake.upkeep.orphans(dry_run=True).removed
        assert left in both and staged() == both
        assert lake.upkeep.checkpoint().removed == (left,) and [left] == sorted({*both} - {*staged()})
        processes[1].kill()
        processes[1].wait()
        with scratch(lake.lake.storage) as folder:  # the next write removes it too
            assert staged() == [] and not Path(folder).exists()
        assert list(Path(lake.lake.root, "_duckrun", "scratch").iterdir()) == []
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_checkpoint_is_all_of_it_and_a_retried_write_still_writes_once(lake: Session) -> None:
    app = AppTransaction("nightly/t", 4)
    lake.execute("t", WriteSpec("append", app=app), SQL("select 7 as id"))
    lake.upkeep.flush()
    lake.upkeep.rewrite_files("t", delete_threshold=0)
    lake.sql("insert into t values (8)")
    done = lake.upkeep.checkpoint(expire_older_than=NOW, older_than=NOW, delete_threshold=0)
    assert done.rows_flushed and done.expired and done.removed and done.files_after
    assert len(lake.snapshots()) < 4
    assert lake.execute("t", WriteSpec("append", app=app), SQL("select 7 as id")).replayed
    assert ids(lake).count(7) == 2
    assert lake.lake.format.find_commit(lake.table("t").ref, app) is not None


def test_a_flush_after_a_change_of_columns_leaves_other_sessions_whole(lake: Session, tmp_path: Path) -> None:
    version = lake.table("t").snapshot().version
    lake.sql("alter table t add column name varchar")
    lake.sql("insert into t values (500, 'a')")
    with duckrun.connect(tmp_path / "lake", format="ducklake", inline_rows=5) as other:
        before = ids(other), ids(other, version)
        lake.upkeep.flush()
        assert (ids(other), ids(other, version)) == before
        other.sql("delete from t where id = 500")
        other.sql("insert into t values (501, 'b')")
    assert ids(lake)[-1] == 501


def test_each_is_a_statement(lake: Session) -> None:
    for statement, mode in (
        ("CALL ducklake_flush_inlined_data()", "flush"),
        ("CALL ducklake_flush_inlined_data('memory', schema_name => 'main', table_name => 't')", "flush"),
        ("CALL memory.merge_adjacent_files()", "merge"),
        ("CALL ducklake_merge_adjacent_files('memory', 't')", "merge"),
        ("CALL ducklake_rewrite_data_files('memory', 't', delete_threshold => 0.5)", "rewrite"),
        ("CALL ducklake_expire_snapshots('memory', versions => [1])", "expire"),
        ("CALL ducklake_expire_snapshots(older_than => now() - INTERVAL '1 week', dry_run => true)", "expire"),
        ("CALL ducklake_cleanup_old_files(cleanup_all => true)", "cleanup"),
        ("CALL ducklake_delete_orphaned_files('memory', dry_run => true)", "orphans"),
        ("CHECKPOINT", "checkpoint"),
        ("OPTIMIZE t", "optimize"),
        ("REORG TABLE t APPLY (PURGE)", "purge"),
    ):
        for dialect in ("duckdb", "spark"):
            text = statement if dialect == "duckdb" else statement.replace("[1]", "array(2)")
            found = lake.sql(text, dialect=dialect)
            assert isinstance(found, MaintenanceResult) and found.mode == mode, statement
    assert len(ids(lake)) == 21


def test_what_cannot_be_is_refused(lake: Session) -> None:
    before = lake.snapshots()[0]["snapshot_id"]
    cases: list[tuple[str, type[Exception], str]] = [
        ("vacuum t", UnsupportedFeature, "expire"),
        ("optimize t zorder by (id)", UnsupportedFeature, "sort_by"),
        ("optimize t where id = 1", UnsupportedFeature, "WHERE"),
        ("call ducklake_merge_adjacent_file()", UnsupportedFeature, "merge_adjacent_files"),
        ("call ducklake_cleanup_old_files(dryrun => true)", InvalidConfig, "dry_run"),
        ("call ducklake_expire_snapshots()", InvalidConfig, "older_than"),
        ("call ducklake_flush_inlined_data(table_name => 'nothing')", TableNotFound, "nothing"),
        ("call ducklake_set_option('data_inlining_row_limit', -1)", InvalidConfig, "number of rows"),
        ("checkpoint elsewhere", TableNotFound, "elsewhere"),
    ]
    for statement, error, said in cases:
        with pytest.raises(error, match=said):
            lake.sql(statement)
    assert lake.snapshots()[0]["snapshot_id"] == before


def test_inline_rows_hold_for_every_program_and_change_in_no_transaction(lake: Session, tmp_path: Path) -> None:
    lake.sql("call ducklake_set_option('data_inlining_row_limit', 0)")
    before = files(lake)
    lake.sql("insert into t values (1000)")
    assert files(lake) == before + 1
    lake.upkeep.set_inline_rows(9, "t")
    with duckrun.connect(tmp_path / "lake", format="ducklake") as other:
        other.sql("insert into t values (1001)")
    assert files(lake) == before + 1
    with pytest.raises(InvalidConfig, match="within a transaction"), lake.transaction() as together:
        together.sql("insert into t values (1002)")
        together.upkeep.set_inline_rows(0)
    with pytest.raises(InvalidConfig, match="a transaction is open"), lake.transaction() as together:
        together.sql("insert into t values (1003)")
        together.upkeep.flush()
    assert ids(lake)[-1] == 1001


def test_a_delta_lake_and_a_read_only_one_refuse(lake: Session, tmp_path: Path) -> None:
    with duckrun.connect(tmp_path / "delta") as delta:
        delta.sql("create table t as select 1 as id")
        for ask in (
            lambda: delta.upkeep.flush("t"),
            lambda: delta.sql("checkpoint"),
            lambda: delta.table("t").merge_files(),
        ):
            with pytest.raises(UnsupportedFeature, match="format ducklake"):
                ask()
        with pytest.raises(UnsupportedFeature):
            delta.upkeep.set_inline_rows(3)
    with duckrun.connect(tmp_path / "lake", format="ducklake", read_only=True) as reader:
        for statement in ("checkpoint", "call ducklake_flush_inlined_data()"):
            with pytest.raises(ReadOnlyLake):
                reader.sql(statement)
        with pytest.raises(DuckrunError):
            reader.upkeep.expire([1])


def test_each_is_a_command(lake: Session, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--root", lake.lake.root])
        printed = capsys.readouterr()
        return printed.err if ended.value.code else printed.out

    assert re.search(r"rows_flushed +3", run("maintain", "flush", "--table", "t"))
    for command in ("merge", "rewrite", "cleanup", "checkpoint"):
        assert re.search(rf"mode +{command}", run("maintain", command))
    stray = Path(lake.lake.root) / "data/main/t/stray.parquet"
    pa.parquet.write_table(pa.table({"id": [1]}), stray)
    assert str(stray) in run("maintain", "orphans", "--older-than", "0 seconds", "--dry-run")
    assert re.search(r"expired +0 1\b", run("maintain", "expire", "--version", "0", "--version", "1"))
    first = lake.table("t").history()[-1]["version"]
    assert re.search(r"mode +restore", run("maintain", "restore", str(first), "--table", "t"))
    assert ids(lake) == list(range(20))
    assert "table main.t is what it was" in run("maintain", "restore", str(first + 1))
    assert "expire names versions" in run("maintain", "expire")
    assert "no moment" in run("maintain", "cleanup", "--older-than", "soon")
    assert "format ducklake" in run("maintain", "flush", "--format", "delta")


def test_an_asset_keeps_the_lake_in_order(lake: Session) -> None:
    resource = DuckrunResource(root_path=lake.lake.root, format="ducklake")
    defs = lake_maintenance(expire_older_than="0 seconds", older_than="0 seconds", delete_threshold=0)

    def run(**config: object) -> dict[str, object]:
        done = dg.materialize(
            list(defs.assets or ()),
            resources={"duckrun": resource},
            run_config={"ops": {"lake_maintenance": {"config": config}}},
        )
        [event] = done.get_asset_materialization_events()
        return {key: value.value for key, value in event.materialization.metadata.items()}

    with_lake = dg.Definitions.merge(defs, dg.Definitions(resources={"duckrun": resource}))
    dg.Definitions.validate_loadable(with_lake)
    assert (
        with_lake.resolve_job_def("lake_maintenance_job")
        .execute_in_process(run_config={"ops": {"lake_maintenance": {"config": {"dry_run": True}}}})
        .success
    )
    listed = run(dry_run=True)
    assert listed["snapshots_expired"] and listed["rows_flushed"] == 0 and len(lake.snapshots()) > 5
    done = run()
    assert done["rows_flushed"] == 3 and done["snapshots_expired"]
    assert run()["cleanup_removed"] and not run()["rows_flushed"]  # of the files that the first run wrote anew
    assert len(ids(lake)) == 21
    tables = maintenance(["t"])
    assert dg.materialize(list(tables.assets or ()), resources={"duckrun": resource}).success
    fresh = DuckrunResource(root_path=f"{lake.lake.root}/fresh", format="ducklake")  # the first run of all assets
    assert dg.materialize(list(defs.assets or ()), resources={"duckrun": fresh}).success
    assert not Path(f"{lake.lake.root}/fresh").exists()
    with pytest.raises(InvalidConfig, match="Did you mean"):
        lake_maintenance(steps=("clean",))
    with duckrun.connect(f"{lake.lake.root}_delta") as delta:
        delta.sql("create table t as select 1 as n")
    other = {"duckrun": DuckrunResource(root_path=f"{lake.lake.root}_delta")}
    assert not dg.materialize(list(defs.assets or ()), resources=other, raise_on_error=False).success


def test_the_history_of_a_table_counts_the_rows_that_lie_in_the_catalog(tmp_path: Path) -> None:
    with duckrun.connect(tmp_path / "lake", format="ducklake", inline_rows=10) as s:
        s.sql("create table t as select range as id from range(3)")
        s.sql("insert into t values (9)")
        s.sql("insert into t select range from range(20)")
        s.sql("delete from t where id = 9")
        s.upkeep.flush()
        drawn: Any = s.table("t").plot_history().axes[0].lines[0]
        assert list(drawn.get_ydata())[:4] == [3, 4, 24, 22]
