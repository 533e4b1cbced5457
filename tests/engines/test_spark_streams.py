"""Tables read as streams: each new row once in the target, also where a process died between a batch and its checkpoint."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

import duckrun
from duckrun import MergeSpec, WriteSpec
from duckrun.engines.spark.streams import stream_table
from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.session import Session
from tests.lake import rows_of

pytestmark = pytest.mark.spark


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64()), "v": [f"v{value}" for value in values]})


@pytest.fixture
def s(root: Path, spark: Any) -> Iterator[Session]:
    with duckrun.connect(root, engine="spark", spark=spark) as session:
        session.execute("raw.events", WriteSpec("append"), ids(1, 2), engine="duckdb")
        yield session


def test_a_stream_carries_over_what_is_new_and_nothing_twice(s: Session) -> None:
    (first,) = stream_table(s, "raw.events", "refined.events", lambda rows: rows.where("id <> 2"))
    assert (first.version, first.rows_inserted) == (0, 1)
    assert stream_table(s, "raw.events", "refined.events", lambda rows: rows.where("id <> 2")) == []
    for number in (3, 4):
        s.execute("raw.events", WriteSpec("append"), ids(number), engine="duckdb")
    commits = stream_table(s, "raw.events", "refined.events", options={"maxFilesPerTrigger": 1})
    assert [commit.version for commit in commits] == [1, 2]
    assert rows_of(s.scan("refined.events")) == [(1, "v1"), (3, "v3"), (4, "v4")]
    assert "raw.events" in str(next(Path(s.lake.root).glob("refined/_duckrun/streams/events/*")))
    assert s.tables() == ["raw.events", "refined.events"]


def test_keys_that_come_again_are_merged(s: Session) -> None:
    stream_table(s, "raw.events", "refined.events", spec=MergeSpec(("id",)))
    later = pa.table({"id": [2], "v": ["new"]})
    s.execute("raw.events", WriteSpec("append"), later, engine="duckdb")
    (commit,) = stream_table(s, "raw.events", "refined.events", spec=MergeSpec(("id",)))
    assert (commit.rows_updated, commit.rows_inserted) == (1, 0)
    assert rows_of(s.scan("refined.events")) == [(1, "v1"), (2, "new")]


KILLED_AFTER_ITS_BATCH = """
import os, signal, sys
import duckrun
from duckrun.engines.spark import streams
from duckrun.engines.spark.process.session import spark_session

class DiesAfterTheCommit(streams._BatchWriter):
    def __call__(self, rows, number):
        super().__call__(rows, number)
        os.kill(os.getpid(), signal.SIGKILL)

streams._BatchWriter = DiesAfterTheCommit
with duckrun.connect(sys.argv[1], engine="spark", spark=spark_session(master="local[1]")) as s:
    streams.stream_table(s, "raw.events", "refined.events")
"""


@pytest.mark.cluster
def test_a_batch_whose_process_was_killed_before_its_checkpoint_is_not_written_again(
    s: Session, tmp_path: Path
) -> None:
    words, started = tmp_path / "words", set()
    with words.open("wb") as output:  # no pipe, which Spark's JVM would hold open
        command = [sys.executable, "-c", KILLED_AFTER_ITS_BATCH, s.lake.root]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                started |= set(watched.children(recursive=True))
            time.sleep(0.2)
    assert process.returncode == -signal.SIGKILL, words.read_text()[-3000:]
    _, left = psutil.wait_procs(started, timeout=60)
    assert not left, "Spark outlives the process that was killed"
    assert s.snapshot("refined.events").version == 0
    assert not list(Path(s.lake.root).glob("refined/_duckrun/streams/events/*/commits/0")), (
        "the checkpoint has the batch"
    )
    s.execute("raw.events", WriteSpec("append"), ids(3), engine="duckdb")
    stream_table(s, "raw.events", "refined.events")
    assert rows_of(s.scan("refined.events")) == [(1, "v1"), (2, "v2"), (3, "v3")]
    assert s.snapshot("refined.events").version == 1


def test_a_stream_begun_anew_is_another_stream(s: Session) -> None:
    stream_table(s, "raw.events", "refined.events")
    shutil.rmtree(Path(s.lake.root, "refined/_duckrun/streams"))
    (again,) = stream_table(s, "raw.events", "refined.events", spec=MergeSpec(("id",)))
    assert (again.version, again.replayed) == (1, False), "its batch 0 is not the batch 0 of before"


def test_a_batch_that_does_not_fit_says_so_and_comes_again(s: Session) -> None:
    stream_table(s, "raw.events", "refined.events")
    s.execute("raw.events", WriteSpec("append"), ids(3), engine="duckdb")
    with pytest.raises(SchemaMismatch, match="refined.events.*w"):
        stream_table(s, "raw.events", "refined.events", lambda rows: rows.withColumnRenamed("v", "w"))
    assert s.snapshot("refined.events").version == 0
    stream_table(s, "raw.events", "refined.events")
    assert rows_of(s.scan("refined.events")) == [(1, "v1"), (2, "v2"), (3, "v3")]


def test_what_cannot_be_a_stream_is_refused(s: Session, root: Path) -> None:
    with pytest.raises(InvalidConfig, match="mode append, replace or a merge"):
        stream_table(s, "raw.events", "refined.events", spec=WriteSpec("overwrite"))
    with duckrun.connect(root) as embedded, pytest.raises(InvalidConfig, match="engine='spark'"):
        stream_table(embedded, "raw.events", "refined.events")
