"""Compaction, z-order, vacuum, checkpoints and log cleanup: no row changes, on both engines, beside writers."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from duckrun import SQL, ReadOnlyLake, WriteSpec, connect
from duckrun.errors import InvalidConfig, TableNotFound
from duckrun.session import Session
from duckrun.values.rows import DeleteSpec, ReadSpec
from duckrun.values.tables import AlterSpec, ColumnSpec, CreateSpec, OptimizeSpec, SetProperties, VacuumSpec
from tests.lake import rows_of

WEEK = 7 * 24 * 3600


def log_of(session: Session, version: int, name: str = "t") -> list[dict]:
    path = Path(session.lake.root, "main", name, "_delta_log", f"{version:020d}.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


def rows(day: str, *ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": [day] * len(ids), "x": [float("nan")] * len(ids)})


@pytest.fixture
def small(session: Session) -> Session:
    """A session whose table main.t has three files in each of two partitions, at version 3."""
    for number in range(3):
        both = pa.concat_tables([rows("a/b", number), rows("c", number + 10)])
        session.execute("main.t", WriteSpec("append", partition_by=("day",)), both)
    return session


def test_compaction_gives_fewer_files_and_the_same_rows(small: Session) -> None:
    before = rows_of(small.scan("main.t"))
    result = small.table("main.t").optimize().executeCompaction()
    assert (result.files_before, result.files_after, result.version) == (6, 2, 3)
    assert result.bytes_before and result.bytes_after and result.bytes_after < result.bytes_before
    assert rows_of(small.scan("main.t")) == before
    actions = [a for line in log_of(small, 3) for a in (line.get("add"), line.get("remove")) if a]
    assert len(actions) == 8 and not any(action["dataChange"] for action in actions)
    again = small.table("main.t").optimize().executeCompaction()
    assert (again.files_after, again.version) == (2, None)


def test_compaction_of_some_partitions(small: Session) -> None:
    assert small.table("main.t").optimize().where("day = 'c'").executeCompaction().files_after == 4
    with pytest.raises(InvalidConfig, match=r"main\.t"):
        small.table("main.t").optimize().where("id = 1").executeCompaction()


def test_what_cannot_be_compacted_is_said(small: Session) -> None:
    with pytest.raises(TableNotFound, match=r"main\.t"):
        small.execute("main.tt", OptimizeSpec())
    with pytest.raises(InvalidConfig, match=r"(?s)main\.t.*nothing"):
        small.table("main.t").optimize().executeZOrderBy("nothing")
    with connect(small.lake.root, read_only=True) as reading:
        table = reading.table("main.t")
        for work in (table.optimize().executeCompaction, table.vacuum, table.checkpoint, table.cleanup_log):
            with pytest.raises(ReadOnlyLake, match=r"main\.t"):
                work()
    assert small.table("main.t").snapshot().version == 2


def test_z_order_puts_near_rows_into_the_same_files(duck: Session) -> None:
    grid = SQL(
        "SELECT range // 300 AS x, range % 300 AS y, repeat('v', 20) || range AS v FROM range(90000) ORDER BY hash(range)"
    )
    duck.execute("main.grid", WriteSpec("error"), grid)
    before = rows_of(duck.scan("main.grid", ReadSpec(columns=("x", "y"))))
    result = duck.execute("main.grid", OptimizeSpec(z_order_by=("x", "y"), target_file_size=100_000))
    assert result.files_after and result.files_after >= 4
    assert rows_of(duck.scan("main.grid", ReadSpec(columns=("x", "y")))) == before
    spans = [json.loads(line["add"]["stats"]) for line in log_of(duck, 1, "grid") if "add" in line]
    area = [
        (s["maxValues"]["x"] - s["minValues"]["x"]) * (s["maxValues"]["y"] - s["minValues"]["y"]) / 90000 for s in spans
    ]
    assert sum(area) / len(area) < 0.7  # each file would span the whole grid


def test_compaction_keeps_the_order_of_a_sorted_table(duck: Session) -> None:
    duck.execute("main.t", CreateSpec((ColumnSpec("id", "BIGINT"),), sort_by=("id",)))
    for ids in ([5, 1], [4, 2], [3, 0]):
        duck.execute("main.t", WriteSpec("append"), pa.table({"id": ids}))
    duck.table("main.t").optimize().executeCompaction()
    assert duck.scan("main.t").toArrow()["id"].to_pylist() == [0, 1, 2, 3, 4, 5]


def test_appends_beside_a_compaction_are_all_kept(duck: Session) -> None:
    duck.execute("main.t", WriteSpec("append"), rows("a", 0))
    stop, failed = threading.Event(), []

    def append() -> None:
        with connect(duck.lake.root) as own:
            for number in range(1, 16):
                try:
                    own.execute("main.t", WriteSpec("append"), rows("a", number))
                except Exception as error:
                    failed.append(error)
        stop.set()

    writer = threading.Thread(target=append)
    writer.start()
    compactions = 0
    while not stop.is_set():
        compactions += duck.table("main.t").optimize().executeCompaction().version is not None
    writer.join()
    duck.table("main.t").optimize().executeCompaction()
    assert not failed and compactions
    assert rows_of(duck.scan("main.t"), "id") == sorted([(n,) for n in range(16)], key=repr)
    assert len(duck.table("main.t").snapshot().files()) == 1


def test_a_writer_that_commits_within_a_compaction_goes_below_it(
    duck: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an object store nobody holds a lock: the compacted files go on top of an append that came between."""
    for number in range(3):
        duck.execute("main.t", WriteSpec("append"), rows("a", number))
    from duckrun.engines.duckdb.changes import rewrites
    from duckrun.run.transaction import Transaction
    from duckrun.values.rows import Commit

    real = rewrites.staged.commit

    def commit(transaction: Transaction, *args: object, **options: object) -> Commit:
        monkeypatch.setattr(rewrites.staged, "commit", real)
        import deltalake

        deltalake.write_deltalake(transaction.ref.location, rows("a", 99), mode="append")
        return real(transaction, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(rewrites.staged, "commit", commit)
    result = duck.table("main.t").optimize().executeCompaction()
    assert (result.version, result.files_after) == (4, 2)
    assert rows_of(duck.scan("main.t"), "id") == [(0,), (1,), (2,), (99,)]


def _age(session: Session, seconds: float) -> None:
    for path in Path(session.lake.root, "main", "t").rglob("*.parquet"):
        os.utime(path, (time.time() - seconds, time.time() - seconds))


def test_vacuum_removes_what_no_version_within_the_retention_uses(small: Session) -> None:
    definition = Path(small.lake.root, "main", "_duckrun", "view.json")
    definition.parent.mkdir(exist_ok=True)
    definition.write_text("{}")
    small.table("main.t").optimize().executeCompaction()
    _age(small, 2 * WEEK)
    kept = small.table("main.t").vacuum()
    assert kept.removed == ()  # taken out of the table a moment ago, so a reader may be at work with them
    assert small.scan("main.t", ReadSpec(version=2)).count() == 6
    with pytest.raises(InvalidConfig, match=r"(?s)main\.t.*enforce_retention"):
        small.execute("main.t", VacuumSpec(retention_hours=1))
    listed = small.execute("main.t", VacuumSpec(retention_hours=0.5, dry_run=True, enforce_retention=False))
    assert listed.dry_run and listed.version is None and listed.removed == ()


def test_vacuum_removes_old_files_and_keeps_staged_ones(duck: Session) -> None:
    for ids in ((1,), (2,)):
        duck.execute("main.t", WriteSpec("overwrite"), rows("c", *ids))
    stray = Path(duck.lake.root, "main", "t", "part-stray.parquet")
    stray.write_bytes(b"killed write")
    _age(duck, 2 * WEEK)
    staged = duck.stage("main.t", rows("c", 77))
    assert duck.execute("main.t", VacuumSpec(dry_run=True)).removed == ("part-stray.parquet",)
    assert stray.exists()
    assert duck.table("main.t").vacuum().removed == ("part-stray.parquet",)
    assert duck.commit_staged("main.t", staged, WriteSpec("append")).rows_inserted == 1
    gone = duck.execute("main.t", VacuumSpec(retention_hours=0, enforce_retention=False))
    assert len(gone.removed) == 1 and rows_of(duck.scan("main.t"), "id") == [(2,), (77,)]


def test_a_checkpoint_and_a_clean_log_read_the_same(small: Session) -> None:
    before = rows_of(small.scan("main.t"))
    assert small.table("main.t").checkpoint().version is None
    log = Path(small.lake.root, "main", "t", "_delta_log")
    assert (log / f"{2:020d}.checkpoint.parquet").exists()
    assert small.table("main.t").cleanup_log().removed == ()
    small.execute("main.t", AlterSpec((SetProperties({"delta.logRetentionDuration": "interval 0 days"}),)))
    small.table("main.t").checkpoint()
    for path in log.glob("*.json"):
        os.utime(path, (time.time() - WEEK, time.time() - WEEK))
    assert small.table("main.t").cleanup_log().removed
    assert rows_of(small.scan("main.t")) == before


def test_the_checkpoint_that_the_oldest_commit_is_read_from_stays_beside_half_a_later_one(duck: Session) -> None:
    for number in range(5):
        duck.execute("main.t", WriteSpec("append"), rows("a", number))
        if number == 2:
            duck.table("main.t").checkpoint()
    log = Path(duck.lake.root, "main", "t", "_delta_log")
    needed = log / f"{2:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet"
    (log / f"{2:020d}.checkpoint.parquet").rename(needed)
    half = log / f"{3:020d}.checkpoint.{1:010d}.{2:010d}.parquet"  # of a writer that was killed
    half.write_bytes(needed.read_bytes())
    for number in range(3):
        (log / f"{number:020d}.json").unlink()
    for path in log.iterdir():
        os.utime(path, (time.time() - 10 * WEEK, time.time() - 10 * WEEK))
    with connect(duck.lake.root) as fresh:
        fresh.table("main.t").cleanup_log()
        assert needed.exists()
        assert rows_of(fresh.scan("main.t", ReadSpec(version=3)), "id") == [(n,) for n in range(4)]


def test_a_checkpoint_is_written_every_so_many_commits_of_any_kind(small: Session) -> None:
    log = Path(small.lake.root, "main", "t", "_delta_log")
    small.execute("main.t", AlterSpec((SetProperties({"delta.checkpointInterval": "3"}),)))
    for number in range(3):
        small.execute("main.t", AlterSpec((SetProperties({"turn": str(number)}),)))
    small.execute("main.t", DeleteSpec("id = 1"))
    assert sorted(int(file.name[:20]) for file in log.glob("*.checkpoint.parquet")) == [6]
    assert sorted(rows_of(small.scan("main.t"), "id")) == [(0,), (2,), (10,), (11,), (12,)]


def test_a_commit_stands_where_no_checkpoint_can_be_written(duck: Session, caplog: pytest.LogCaptureFixture) -> None:
    spec = WriteSpec("append", table_properties={"delta.checkpointInterval": "1"})
    duck.execute("main.t", spec, rows("a", 1))
    Path(duck.lake.root, "main", "t", "_delta_log", f"{1:020d}.checkpoint.parquet").mkdir()
    assert duck.execute("main.t", AlterSpec((SetProperties({"turn": "1"}),))).version == 1
    assert "main.t: version 1 is committed, but has no checkpoint" in caplog.text
    assert rows_of(duck.scan("main.t"), "id") == [(1,)]


def test_a_hint_at_checkpoints_that_is_damaged_is_written_anew(duck: Session, caplog: pytest.LogCaptureFixture) -> None:
    """As golden `corrupted-last-checkpoint-kernel` has it: its commits had no checkpoint for good."""
    spec = WriteSpec("append", table_properties={"delta.checkpointInterval": "2"})
    for number in range(2):
        duck.execute("main.t", spec, rows("a", number))
    log = Path(duck.lake.root, "main", "t", "_delta_log")
    (log / "_last_checkpoint").write_text("{")
    duck.execute("main.t", WriteSpec("append"), rows("a", 2))
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 2
    assert not caplog.text
    assert rows_of(duck.scan("main.t"), "id") == [(0,), (1,), (2,)]


@pytest.mark.spark
@pytest.mark.slow
def test_files_with_deletion_vectors_are_written_anew_by_duckdb(duck: Session, spark: object) -> None:
    duck.execute(
        "main.t", CreateSpec((ColumnSpec("id", "BIGINT"), ColumnSpec("day", "VARCHAR"), ColumnSpec("x", "DOUBLE")))
    )
    duck.execute("main.t", AlterSpec((SetProperties({"delta.enableDeletionVectors": "true"}),)))
    with connect(duck.lake.root, engine="spark", spark=spark) as other:
        for ids in (range(100), range(100, 200)):
            other.execute("main.t", WriteSpec("append"), rows("a", *ids))
        other.execute("main.t", DeleteSpec("id % 50 = 0"))
        assert any(f.deletion_vector for f in duck.table("main.t").snapshot().files())
        duck.table("main.t").optimize().executeCompaction()
        assert not any(f.deletion_vector for f in duck.table("main.t").snapshot().files())
        assert other.scan("main.t").count() == duck.scan("main.t").count() == 196
        gone = other.execute("main.t", VacuumSpec(retention_hours=0, enforce_retention=False))
        assert gone.removed and other.scan("main.t").count() == 196


def test_a_purge_leaves_no_row_that_is_only_marked(session: Session) -> None:
    session.execute("main.t", WriteSpec("append", partition_by=("day",)), rows("a", *range(100)))
    session.execute("main.t", WriteSpec("append"), rows("b", *range(100, 200)))
    assert session.table("main.t").purge().version is None
    session.execute("main.t", DeleteSpec("id % 50 = 0", merge_mode="deletion_vectors"))
    session.execute("main.t", WriteSpec("append"), rows("c", 300))
    kept = sorted(rows_of(session.scan("main.t", ReadSpec(columns=("id",)))))
    marked = [file for file in session.table("main.t").snapshot().files() if file.deletion_vector]
    assert len(marked) == 2
    session.sql("REORG TABLE main.t WHERE day = 'a' APPLY (PURGE)")
    assert sum(file.deletion_vector for file in session.table("main.t").snapshot().files()) == 1
    result = session.table("main.t").purge()
    assert (result.mode, result.files_removed, result.files_after) == ("purge", 1, 3)
    assert not any(file.deletion_vector for file in session.table("main.t").snapshot().files())
    assert sorted(rows_of(session.scan("main.t", ReadSpec(columns=("id",))))) == kept
    actions = [a for line in log_of(session, result.version or 0) for a in (line.get("add"), line.get("remove")) if a]
    assert len(actions) == 2 and not any(action["dataChange"] for action in actions)
    assert session.table("main.t").history(1)[0]["operation"] == "REORG"


@pytest.mark.parametrize(("share", "rewritten"), [(4, False), (6, True)])
def test_compaction_takes_a_single_file_of_which_many_rows_are_deleted(
    duck: Session, share: int, rewritten: bool
) -> None:
    duck.execute("main.t", WriteSpec("append"), rows("a", *range(1000)))
    duck.execute("main.t", DeleteSpec(f"id % 100 < {share}", merge_mode="deletion_vectors"))
    assert (duck.table("main.t").optimize().executeCompaction().version is not None) is rewritten
    assert duck.scan("main.t").count() == 1000 - 10 * share


@pytest.mark.parametrize("cleaned", [True, False])
def test_commits_beyond_their_retention_go_with_a_checkpoint_unless_the_table_forbids_it(
    duck: Session, cleaned: bool
) -> None:
    properties = {
        "delta.checkpointInterval": "3",
        "delta.logRetentionDuration": "interval 0 days",
        "delta.enableExpiredLogCleanup": str(cleaned).lower(),
    }
    log = Path(duck.lake.root, "main", "t", "_delta_log")
    for number in range(7):
        for path in log.glob("*.json"):
            os.utime(path, (time.time() - WEEK, time.time() - WEEK))
        duck.execute("main.t", WriteSpec("append", table_properties=properties), rows("a", number).to_reader())
    assert (log / f"{0:020d}.json").exists() is not cleaned
    assert rows_of(duck.scan("main.t"), "id") == [(n,) for n in range(7)]
