"""What a session knows of a table is what its log says, whoever has written to it since, and is not read anew without need."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

import duckrun
from duckrun import WriteSpec
from duckrun.formats.delta.delta import DeltaFormat
from duckrun.session import Session
from duckrun.values.rows import AppTransaction, DeleteSpec, MergeSpec
from duckrun.values.snapshot import Snapshot

SEED = int(os.environ.get("DUCKRUN_TEST_SEED", random.randrange(10**6)))
APPS = ("ours", "theirs", "nobody")


@pytest.fixture
def folder(root: Path) -> Path:
    return root / "main" / "t"


@pytest.fixture
def lake(root: Path) -> Iterator[Session]:
    with duckrun.connect(root) as session:
        yield session


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "day": [f"d{n % 3}" for n in numbers]})


def stream(*numbers: int) -> pa.RecordBatchReader:
    return rows(*numbers).to_reader()


def delta(session: Session) -> DeltaFormat:
    form = session.lake.format
    assert isinstance(form, DeltaFormat)
    return form


def commit(folder: Path, *actions: dict[str, object]) -> None:
    """A commit as another writer might make it, after the newest."""
    log = folder / "_delta_log"
    version = max(int(path.stem) for path in log.glob("*.json") if path.stem.isdigit()) + 1
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))


def added(folder: Path, name: str, *numbers: int) -> dict[str, object]:
    path = folder / unquote(name)
    pq.write_table(rows(*numbers), path)
    stats = json.dumps({"numRecords": len(numbers)})
    size = path.stat().st_size
    return {
        "path": name,
        "partitionValues": {},
        "size": size,
        "modificationTime": 0,
        "dataChange": True,
        "stats": stats,
    }


def assert_as_read_anew(session: Session, check: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot) -> None:
    form, ref = delta(session), session.ref("main.t")
    known, anew = form.snapshot(ref), (fresh := DeltaFormat(session.lake.storage)).snapshot(ref)
    assert known == anew
    assert known.schema.equals(anew.schema, check_metadata=True)
    assert sorted(map(repr, known.files())) == sorted(map(repr, anew.files()))
    assert form.definition(known) == fresh.definition(anew)
    assert form.protocol(known) == fresh.protocol(anew)
    for app in APPS:
        asked = AppTransaction(app, 1)
        assert form.find_commit(ref, asked, known) == fresh.find_commit(ref, asked, anew)


class Writers:
    """Changes of one table, ours and those of others, drawn at random."""

    def __init__(self, session: Session, folder: Path, seed: int) -> None:
        self.session, self.folder = session, folder
        self.random = random.Random(seed)
        self.n = 0
        self.apps = dict.fromkeys(APPS, 0)

    def next(self) -> int:
        self.n += 1
        return self.n

    def app(self, name: str) -> AppTransaction:
        self.apps[name] += 1
        return AppTransaction(name, self.apps[name])

    def make(self) -> None:
        properties = {"delta.enableDeletionVectors": "true"} if self.random.random() < 0.3 else {}
        by = ["day"] if self.random.random() < 0.3 else None
        self.apps = dict.fromkeys(APPS, 0)
        if properties:
            spec = WriteSpec("overwrite", partition_by=tuple(by or ()), table_properties=properties)
            self.session.execute("main.t", spec, rows(self.next(), self.next()))
        else:
            write_deltalake(self.folder, rows(self.next(), self.next()), partition_by=by)

    def rows(self, *numbers: int) -> pa.Table:
        """Rows with all columns that the table has."""
        found = rows(*numbers)
        for field in list(pa.schema(DeltaTable(self.folder).schema().to_arrow()))[2:]:
            found = found.append_column(field.name, pa.array(["y"] * len(numbers)))
        return found

    # -- ours

    def our_append(self) -> None:
        source = self.rows(self.next())
        if self.random.random() < 0.5:
            source = source.to_reader()
        app = self.app("ours") if self.random.random() < 0.5 else None
        self.session.execute("main.t", WriteSpec("append", app=app), source)

    def our_overwrite(self) -> None:
        self.session.execute("main.t", WriteSpec("overwrite"), rows(self.next(), self.next()))

    def our_delete(self) -> None:
        self.session.execute("main.t", DeleteSpec(f"id % 7 = {self.random.randrange(7)}"))

    def our_merge(self) -> None:
        merged = self.rows(self.next(), self.random.randrange(1, self.n))
        self.session.execute("main.t", MergeSpec(("id",)), merged)

    def our_columns(self) -> None:
        more = self.rows(self.next()).append_column(f"c{self.n}", [["x"]])
        self.session.execute("main.t", WriteSpec("append", schema_mode="append_new_columns"), more)

    def our_restore(self) -> None:
        self.session.table("main.t").restoreToVersion(0)

    # -- those of others

    def their_append(self) -> None:
        properties = None
        if self.random.random() < 0.5:
            app = self.app("theirs")
            properties = CommitProperties(app_transactions=[Transaction(app.app_id, app.version)])
        write_deltalake(self.folder, self.rows(self.next()), mode="append", commit_properties=properties)

    def their_property(self) -> None:
        if "deletionVectors" in (DeltaTable(self.folder).protocol().reader_features or ()):
            return  # deltalake would add a feature that no engine of ours writes
        DeltaTable(self.folder).alter.set_table_properties({"delta.checkpointInterval": str(10 + self.next())})

    def their_checkpoint(self) -> None:
        DeltaTable(self.folder).create_checkpoint()

    def their_compaction(self) -> None:
        if "deletionVectors" not in (DeltaTable(self.folder).protocol().reader_features or ()):
            DeltaTable(self.folder).optimize.compact()

    def their_plain_commit(self) -> None:
        if not DeltaTable(self.folder).metadata().partition_columns:
            name = f"part%20of {self.next()}.parquet"
            commit(self.folder, {"commitInfo": {"operation": "WRITE"}}, {"add": added(self.folder, name, self.n)})

    def their_statistics(self) -> None:
        """The same files are added again, as some engines do that compute statistics."""
        adds = [
            json.loads(line)["add"]
            for path in (self.folder / "_delta_log").glob("*.json")
            for line in path.read_text().splitlines()
            if path.stem.isdigit() and "add" in json.loads(line)
        ]
        live = {file.spelled for file in self.session.table("main.t").snapshot().files() if not file.deletion_vector}
        again = [
            {"add": {**add, "dataChange": False}} for add in adds if add["path"] in live and "deletionVector" not in add
        ]
        if again:
            commit(self.folder, {"commitInfo": {"operation": "COMPUTE STATS"}}, again[0])

    def their_drop(self) -> None:
        """Another table with as many versions comes to the place."""
        versions = DeltaTable(self.folder).version()
        shutil.rmtree(self.folder)
        self.apps = dict.fromkeys(APPS, 0)
        for _ in range(versions + 1):
            write_deltalake(self.folder, rows(self.next()), mode="append")

    def their_log_cleaned(self) -> None:
        """A checkpoint is all that is left of the log."""
        version = DeltaTable(self.folder).version()
        DeltaTable(self.folder).create_checkpoint()
        for path in (self.folder / "_delta_log").glob("*.json"):
            if path.stem.isdigit() and int(path.stem) < version:
                path.unlink()
        write_deltalake(self.folder, rows(self.next()), mode="append", schema_mode="merge")

    def step(self) -> str:
        # most commits are plain ones
        often = [self.our_append, self.our_merge, self.our_delete, self.their_append, self.their_plain_commit]
        seldom = [
            self.our_overwrite, self.our_columns, self.our_restore, self.their_property, self.their_checkpoint,
            self.their_compaction, self.their_statistics, self.their_drop, self.their_log_cleaned,
        ]  # fmt: skip
        done = self.random.choice(often if self.random.random() < 0.75 else seldom)
        done()
        return done.__name__


@pytest.mark.drawn(2)
@pytest.mark.parametrize("number", range(6))
def test_what_is_known_is_what_the_log_says_whoever_writes(lake: Session, folder: Path, number: int) -> None:
    print("seed", SEED + number)
    writers = Writers(lake, folder, SEED + number)
    writers.make()
    done = []
    for _ in range(40):
        try:
            done.append(writers.step())
        except duckrun.errors.VersionNotReadable:  # a restore of what is no longer in the log
            continue
        if writers.random.random() < 0.6:  # else several commits are caught up with at once
            print(done)
            assert_as_read_anew(lake)
    assert_as_read_anew(lake)


@pytest.mark.parametrize("source", [rows, stream])
def test_appends_open_no_log_where_nobody_else_wrote(
    lake: Session, folder: Path, source: Callable[..., pa.Table | pa.RecordBatchReader]
) -> None:
    write_deltalake(folder, rows(1))
    for number in (2, 3):
        lake.execute("main.t", WriteSpec("append"), source(number))
    (folder / "_delta_log" / f"{0:020d}.json").write_text("no log")  # whoever replays it fails
    for number in (4, 5, 6):
        assert lake.execute("main.t", WriteSpec("append"), source(number)).version == number - 1
    assert len(lake.table("main.t").snapshot().schema) == 2
    with pytest.raises(duckrun.errors.StorageError), duckrun.connect(lake.lake.root) as other:
        other.table("main.t").snapshot()


def test_a_plain_commit_of_another_opens_no_log_either(lake: Session, folder: Path) -> None:
    write_deltalake(folder, rows(1))
    lake.execute("main.t", WriteSpec("append"), stream(2))
    before = lake.table("main.t").snapshot().files()
    write_deltalake(folder, rows(3), mode="append")
    assert len(lake.table("main.t").snapshot().files()) == 3
    (folder / "_delta_log" / f"{0:020d}.json").write_text("no log")
    assert lake.execute("main.t", WriteSpec("append"), stream(4)).version == 3
    assert all(file in lake.table("main.t").snapshot().files() for file in before)
    assert len(lake.table("main.t").snapshot().files()) == 4


def test_a_commit_that_is_not_whole_yet_is_none_of_a_known_table(lake: Session, folder: Path) -> None:
    write_deltalake(folder, rows(1))
    lake.execute("main.t", WriteSpec("append"), stream(2))
    (folder / "_delta_log" / f"{2:020d}.json").write_text('{"add": {"path": "x')
    with pytest.raises(duckrun.errors.StorageError):
        lake.table("main.t").snapshot()
    (folder / "_delta_log" / f"{2:020d}.json").unlink()
    assert_as_read_anew(lake)


def test_a_remove_that_names_a_file_without_its_vector_leaves_it_in_the_table(lake: Session, folder: Path) -> None:
    spec = WriteSpec("overwrite", table_properties={"delta.enableDeletionVectors": "true"})
    lake.execute("main.t", spec, rows(*range(100)))
    lake.execute("main.t", DeleteSpec("id = 7"))
    (file,) = lake.table("main.t").snapshot().files()
    assert file.deleted_rows == 1
    commit(folder, {"remove": {"path": file.spelled, "deletionTimestamp": 0, "dataChange": True}})
    assert_as_read_anew(lake)


def test_threads_of_one_session_append_at_once(lake: Session, folder: Path) -> None:
    write_deltalake(folder, rows(0))
    errors: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for n in range(8):
                lake.execute("main.t", WriteSpec("append"), (rows, stream)[n % 2](thread * 100 + n))
                lake.table("main.t").snapshot().files()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        write_deltalake(folder, rows(-1), mode="append")
    for thread in threads:
        thread.join()
    assert errors == []
    assert_as_read_anew(lake)
    assert sorted(r["id"] for r in lake.sql("select id from t").collect()) == sorted(
        [0, *[-1] * 5, *(t * 100 + n for t in range(1, 5) for n in range(8))]
    )


@pytest.mark.parametrize("writer", ["delta_rs", "staged"])
def test_a_commit_that_another_writer_has_replaced_is_told(
    lake: Session, folder: Path, caplog: pytest.LogCaptureFixture, writer: Any
) -> None:
    """As Spark's log store does on a local path, which checks for an entry and then renames a file over it."""
    lake.execute("main.t", WriteSpec("append"), rows(1))
    lake.execute("main.t", WriteSpec("append", writer=writer), rows(2))
    assert lake.sql("from main.t").count() == 2 and not caplog.records
    theirs = folder / "_delta_log" / "theirs"
    theirs.write_text(
        "\n".join(map(json.dumps, ({"commitInfo": {"engineInfo": "x"}}, {"add": added(folder, "x.parquet", 3, 4)})))
    )
    theirs.replace(folder / "_delta_log" / f"{1:020d}.json")
    lake.execute("main.t", WriteSpec("append"), rows(5))
    assert "table main.t: another writer has replaced version 1, which this session committed" in caplog.text
    assert sorted(row["id"] for row in lake.sql("from main.t").collect()) == [1, 3, 4, 5]
    assert_as_read_anew(lake)


def test_a_table_that_is_dropped_and_created_again_has_replaced_nothing(
    lake: Session, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake.execute("main.t", WriteSpec("append"), rows(1))
    lake.execute("main.t", WriteSpec("append"), rows(2))
    shutil.rmtree(folder)
    for number in (7, 8, 9):
        write_deltalake(folder, rows(number), mode="append")
    assert lake.sql("from main.t").count() == 3 and "replaced" not in caplog.text
