"""A write beside busy appenders of the same table in an object store: a lost race costs what was missed, and no more."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import duckrun
from duckrun import MergeSpec, Session, WriteSpec
from duckrun.storage.storage import Storage
from tests.fixtures_answers import LossyStore, Request

pytestmark = pytest.mark.s3

WRITES: dict[str, Callable[[Session], object]] = {
    "update": lambda s: s.sql("update t set n = n + 1 where id = 1"),
    "delete": lambda s: s.sql("delete from t where id = 1"),
    "merge": lambda s: s.execute("main.t", MergeSpec(("id",)), pa.table({"id": [1], "n": [5]})),
    "append": lambda s: s.execute("main.t", WriteSpec("append"), pa.table({"id": [2], "n": [0]})),
    "insert from itself": lambda s: s.sql("insert into t select id + 5000, n from t where id = 1"),
    "overwrite": lambda s: s.execute("main.t", WriteSpec("overwrite"), pa.table({"id": [2], "n": [0]})),
    "replace": lambda s: s.execute("main.t", WriteSpec("replace", predicate="id = 1"), pa.table({"id": [1], "n": [0]})),
}
COMPUTED_ANEW = ("insert from itself",)
"""Its rows are read again, for which DuckDB and deltalake open the log by themselves."""
MISSED = 6
LOST = 3
ENTRY = re.compile(r"/(\d{20})\.json")


@pytest.fixture
def root(s3_bucket: Callable[[str], str]) -> str:
    return s3_bucket(f"busy-{uuid.uuid4().hex}") + "/lake"


def is_commit(request: Request) -> bool:
    return request.is_commit


def one(number: int) -> pa.Table:
    return pa.table({"id": [1000 + number], "n": [0]})


@pytest.mark.drawn(2)
@pytest.mark.parametrize("write", WRITES)
def test_a_lost_race_reads_each_commit_that_was_missed_once(
    root: str,
    lossy_store: LossyStore,
    lossy_options: dict[str, str],
    s3_options: dict[str, str],
    write: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        # On a busy machine the other's commits may take longer than the client's 30 seconds.
        duckrun.connect(root, storage_options=lossy_options | {"timeout": "5m"}) as s,
        duckrun.connect(root, storage_options=s3_options) as other,
    ):
        s.execute("main.t", WriteSpec("error"), pa.table({"id": range(10), "n": [0] * 10}))
        s.snapshot("main.t")
        own: list[int] = []
        read_at = Storage.read_at

        def noted(storage: Storage, location: str, path: str) -> bytes | None:
            if storage is s.lake.storage and (entry := ENTRY.search(path)):
                own.append(int(entry[1]))
            return read_at(storage, location, path)

        def race() -> None:
            for number in range(MISSED):
                other.execute("main.t", WriteSpec("append"), one(number))
            monkeypatch.setattr(Storage, "read_at", noted)

        with lossy_store.recording() as seen, lossy_store.once_before(is_commit, race):
            WRITES[write](s)
        assert own == list(range(1, MISSED + 1))
        commits = [n for n, request in enumerate(seen) if request.is_commit]
        assert len(commits) == 2, "it commits at the second attempt"
        log = [each.path for each in seen[commits[0] + 1 :] if "_delta_log" in each.path and each.method == "GET"]
        if write not in COMPUTED_ANEW:
            # The version that was lost is read once more, to see whose it is.
            entries = [int(entry[1]) for path in log if (entry := ENTRY.search(path))]
            assert sorted(entries) == [1, *range(1, MISSED + 1)]
            assert not [path for path in log if "checkpoint" in path]
    assert DeltaTable(f"{root}/main/t", storage_options=s3_options).version() == MISSED + 1


@pytest.mark.parametrize("write", ["update", "merge"])
def test_an_attempt_on_top_of_appends_of_other_keys_sends_requests_to_the_log_alone(
    root: str, lossy_store: LossyStore, lossy_options: dict[str, str], s3_options: dict[str, str], write: str
) -> None:
    with (
        duckrun.connect(root, storage_options=lossy_options | {"timeout": "5m"}) as s,
        duckrun.connect(root, storage_options=s3_options) as other,
    ):
        marked = WriteSpec("error", table_properties={"delta.enableDeletionVectors": "true"})
        s.execute("main.t", marked, pa.table({"id": range(10), "n": [0] * 10}))
        for number in range(LOST):  # The file to mark is not in the newest commits.
            other.execute("main.t", WriteSpec("append"), one(number))
        with ExitStack() as stack:

            def race(number: int = LOST) -> None:
                other.execute("main.t", WriteSpec("append"), one(number))
                if number < 2 * LOST - 1:
                    stack.enter_context(lossy_store.once_before(is_commit, partial(race, number + 1)))

            seen = stack.enter_context(lossy_store.recording())
            stack.enter_context(lossy_store.once_before(is_commit, race))
            WRITES[write](s)
            requests = list(seen)
    commits = [n for n, request in enumerate(requests) if request.is_commit]
    assert len(commits) == LOST + 1
    retries = [requests[first + 1 : last] for first, last in pairwise(commits)]
    # One listing. The commit that took the version is read to see whose it is, and again.
    assert [[(each.method, bool(ENTRY.search(each.path))) for each in retry] for retry in retries] == [
        [("GET", True), ("GET", False), ("GET", True)]
    ] * LOST
    assert all("_delta_log" in each.path for retry in retries for each in retry)
    rows = DeltaTable(f"{root}/main/t", storage_options=s3_options)
    assert rows.version() == 2 * LOST + 1
