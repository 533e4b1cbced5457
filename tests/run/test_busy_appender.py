"""A write beside another process that appends all the time: it commits within a few attempts, and no row is lost."""

from __future__ import annotations

import multiprocessing
import re
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import CommitFailedError

import duckrun
from duckrun import Session, WriteSpec
from duckrun.storage.storage import Storage, Written

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["duckrun", "tests.run.test_busy_appender"])
WRITES: dict[str, Callable[[Session], object]] = {
    "update": lambda s: s.sql("update t set n = n + 1 where id = 1"),
    "merge": lambda s: s.sql(
        "merge into t using (select unnest([1, 9000]) as id) as s on t.id = s.id when matched then update set n = n + 1"
    ),
}
TURNS, ATTEMPTS, MOST = 4, 25, 1000
"""Writes beside the appender, attempts for each, and appends at most.

On a quiet machine a write needs two to four attempts. A busy one gives each process its turn when it
likes, so the limit only excludes a write that waits until the appender stops.
"""
ENTRY = re.compile(r"_delta_log/\d{20}\.json")


def append(writer: str, root: str, options: dict[str, str], begun: Any, stop: Any, answer: Any) -> None:
    """The other process: append rows, one a commit, until it is told to stop."""
    try:
        with duckrun.connect(root, storage_options=options or None) as session:
            for number in range(MOST):
                if stop.is_set():
                    answer.put(number)
                    return
                rows = pa.table({"id": [1000 + number], "n": [0]})
                if writer == "duckrun":
                    session.execute("main.t", WriteSpec("append"), rows)
                else:
                    append_by_deltalake(f"{root}/main/t", rows, options)
                if number:
                    begun.set()
        answer.put("it stopped by itself")
    except BaseException as error:
        answer.put(repr(error))
        raise


def append_by_deltalake(table: str, rows: pa.Table, options: dict[str, str]) -> None:
    while True:
        try:
            return write_deltalake(table, rows, mode="append", storage_options=options or None)
        except CommitFailedError:  # It takes an update of rows that it has not read for a conflict.
            continue


@pytest.mark.drawn(2)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("place", "writer", "marking"),
    [
        ("local", "duckrun", True),
        ("local", "deltalake", False),
        pytest.param("s3", "duckrun", False, marks=pytest.mark.s3),
        pytest.param("s3", "duckrun", True, marks=pytest.mark.s3),
    ],
)
def test_a_write_beside_a_busy_appender_commits_within_a_few_attempts(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    root: Any,
    place: str,
    writer: str,
    write: str,
    marking: bool,
) -> None:
    options: dict[str, str] = request.getfixturevalue("s3_options") if place == "s3" else {}
    lake = str(root)
    if place == "s3":
        lake = request.getfixturevalue("s3_bucket")(f"busy-{uuid.uuid4().hex}") + "/lake"
    attempts = Counter[bool]()
    put_new = Storage.put_new

    def counted(storage: Storage, location: str, path: str, data: bytes, what: str = "") -> Written | None:
        written = put_new(storage, location, path, data, what)
        if ENTRY.search(path):
            attempts[written is not None] += 1
        return written

    begun, stop, answer = CONTEXT.Event(), CONTEXT.Event(), CONTEXT.Queue()
    with duckrun.connect(lake, storage_options=options or None) as session:
        properties = {"delta.enableDeletionVectors": str(marking).lower()}
        rows = pa.table({"id": range(100), "n": [0] * 100})
        session.execute("main.t", WriteSpec("error", table_properties=properties), rows)
        process = CONTEXT.Process(target=append, args=(writer, lake, options, begun, stop, answer))
        process.start()
        assert begun.wait(120)
        monkeypatch.setattr(Storage, "put_new", counted)
        for _ in range(TURNS):
            WRITES[write](session)
        monkeypatch.undo()
        stop.set()
        appended = answer.get(timeout=120)
        process.join(60)
    assert isinstance(appended, int), appended
    assert attempts[True] == TURNS and attempts.total() <= TURNS * ATTEMPTS, attempts
    reader = QueryBuilder().register("t", DeltaTable(f"{lake}/main/t", storage_options=options or None))
    found = pa.table(reader.execute("SELECT id, n FROM t").read_all()).to_pylist()
    model = [(id, TURNS if id == 1 else 0) for id in (*range(100), *range(1000, 1000 + appended))]
    assert Counter((row["id"], row["n"]) for row in found) == Counter(model)
