"""Publish, rebase and discard in an object store, with trouble at each of their requests in turn.

The answer is lost, the store refuses a burst of requests, or it is out of reach from then on, which
is also the end of the process. The work succeeds, or it fails, and succeeds when it is repeated.
Main has all of a publish or none of it, and each change once.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import duckrun
from duckrun import CommitConflict, CommitUnknown, DuckrunError, InvalidConfig, Session
from duckrun.branches import registry
from tests.drawing import seed
from tests.fixtures_answers import Loss, LossyStore, Request

pytestmark = [pytest.mark.s3, pytest.mark.answers]

BUDGET = float(os.environ.get("DUCKRUN_TEST_BUDGET") or 90) / 2
Rows = dict[str, list[int]]
BEFORE: Rows = {"a": [0, 1, 2, 3, 50], "b": [0, 1]}
AFTER: Rows = {"a": [0, 1, 2, 50, 60], "b": [0, 1, 9], "c": [7], "seen": [7]}


@dataclass(frozen=True)
class Trouble:
    """Trouble of a store from one request on."""

    loss: Loss
    times: int = 1

    @property
    def ends(self) -> bool:
        """True if no request of the process is answered any more."""
        return self.times > 100


TROUBLES = [*(Trouble(loss) for loss in ("error", "cut", "silence")), Trouble("conflict"), Trouble("busy", 3)]
TROUBLES += [Trouble("throttled", 3), Trouble("broken", 3), Trouble("busy", 100_000), Trouble("error", 100_000)]


class Case:
    """A lake of two tables, and a branch that changes both, and has a table and a view of its own."""

    def __init__(self, root: str, options: dict[str, str]) -> None:
        self.root, self._options = root, options
        with self.connect() as main, self.connect("dev") as branch:
            main.sql("create table a as select i as id from range(5) r(i)")
            main.sql("alter table a set tblproperties ('delta.enableDeletionVectors' = 'true')")
            main.sql("create table b as select i as id from range(2) r(i)")
            branch.sql("delete from a where id = 3")
            branch.sql("insert into a values (60)")
            branch.sql("insert into b values (9)")
            branch.sql("create table c as select 7 as id")
            branch.sql("create view seen as select id from c")
            main.sql("delete from a where id = 4")
            main.sql("insert into a values (50)")

    def connect(self, branch: str | None = None) -> Session:
        return duckrun.connect(self.root, storage_options=self._options, branch=branch)

    def rows(self, branch: str | None = None) -> Rows:
        with self.connect(branch) as s:
            names = [name.removeprefix("main.") for name in s.tables()]
            return {
                name: [row["id"] for row in s.sql(f"select id from {name} order by id").collect()] for name in names
            }

    def repeat(self, work: str) -> None:
        """Run the work once more, without trouble; it may be done already."""
        with self.connect() as s:
            try:
                getattr(s, work)("dev")
            except InvalidConfig as error:
                assert work == "discard" and "no branch" in str(error)

    def check(self, work: str, said: DuckrunError | None) -> None:
        """Compare main and the branch with the model, before and after the work is repeated."""
        rows = self.rows()
        if said is None or work != "publish":
            assert rows == (AFTER if work == "publish" else BEFORE)
        self.repeat(work)
        if work == "rebase":
            assert self.rows("dev") == AFTER
            self.repeat("publish")
        assert self.rows() == (BEFORE if work == "discard" else AFTER)
        with self.connect() as s:
            assert s.branches() == []
            keys = [key["path"] for key in s.lake.storage.keys(self.root)]
        assert not [key for key in keys if "pending" in key or "/dev-" in key and key.endswith("branch.json")]


def tried(
    case: Case, store: LossyStore, options: dict[str, str], work: str, number: int, trouble: Trouble
) -> DuckrunError | None:
    """Run the work with trouble from one of its requests on; return its error."""
    with (
        duckrun.connect(case.root, storage_options=options) as s,
        store.losing(trouble.loss, after=number, times=trouble.times),
    ):
        try:
            getattr(s, work)("dev")
        except DuckrunError as error:
            return error
    return None


def test_trouble_at_any_request_leaves_all_of_a_publish_or_none(
    s3_bucket: Callable[[str], str],
    lossy_store: LossyStore,
    lossy_options: dict[str, str],
    s3_options: dict[str, str],
    figures: Callable[[str], None],
) -> None:
    bucket, rng, began = s3_bucket(f"branches-{uuid.uuid4().hex}"), random.Random(seed()), time.monotonic()
    requests: dict[str, list[Request]] = {}
    for work in ("publish", "rebase", "discard"):
        case = Case(f"{bucket}/{work}", s3_options)
        with lossy_store.recording() as seen:
            assert tried(case, lossy_store, lossy_options, work, 100_000, TROUBLES[0]) is None
        case.check(work, None)
        requests[work] = list(seen)
    counts: Counter[str] = Counter()
    while not counts or time.monotonic() - began < BUDGET:
        work, trouble = rng.choice(sorted(requests)), rng.choice(TROUBLES)
        # An outage between two writes is like one at the second of them.
        writes = [number for number, request in enumerate(requests[work]) if request.writes]
        number = rng.choice(writes if trouble.ends or rng.random() < 0.8 else range(len(requests[work])))
        case, said = Case(f"{bucket}/{counts.total()}", s3_options), None
        options = {**lossy_options, "max_retries": "0" if trouble.ends else "4"}
        try:
            said = tried(case, lossy_store, options, work, number, trouble)
            case.check(work, said)
        except BaseException as error:
            error.add_note(f"seed {seed()}: {work}, request {number}, {trouble}; it said: {said}")
            raise
        counts["done" if said is None else "failed"] += 1
    sent = {work: len(each) for work, each in requests.items()}
    figures(
        f"{counts.total()} works of branches with trouble, {counts['failed']} failed first; {sent} requests; seed {seed()}"
    )


def test_a_first_write_in_a_branch_with_trouble_is_made_once(
    s3_bucket: Callable[[str], str],
    lossy_store: LossyStore,
    lossy_options: dict[str, str],
    s3_options: dict[str, str],
    figures: Callable[[str], None],
) -> None:
    bucket, rng, began = s3_bucket(f"branches-{uuid.uuid4().hex}"), random.Random(seed()), time.monotonic()
    writes, works = 0, 0

    def rows(root: str, branch: str | None) -> list[int]:
        with duckrun.connect(root, storage_options=s3_options, branch=branch) as s:
            return [row["id"] for row in s.sql("from t order by id").collect()]

    def insert(root: str, options: dict[str, str]) -> DuckrunError | None:
        try:
            with duckrun.connect(root, storage_options=options, branch="dev") as s:
                s.sql("insert into t values (5)")
        except DuckrunError as error:
            return error
        return None

    while works < 2 or time.monotonic() - began < BUDGET / 3:
        root, trouble = f"{bucket}/{works}", rng.choice(TROUBLES)
        with duckrun.connect(root, storage_options=s3_options) as s:
            s.sql("create table t as select 1 as id")
        number, said = rng.randrange(writes) if writes else 100_000, None
        options = {**lossy_options, "max_retries": "0" if trouble.ends else "4"}
        try:
            with (
                lossy_store.recording() as seen,
                lossy_store.losing(trouble.loss, lambda request: request.writes, after=number, times=trouble.times),
            ):
                said = insert(root, options)
            known = [1, 5] if said is None else [1]
            assert rows(root, "dev") in ([[1], [1, 5]] if isinstance(said, CommitUnknown) else [known])
            if rows(root, "dev") == [1]:
                assert insert(root, s3_options) is None
            assert (rows(root, None), rows(root, "dev")) == ([1], [1, 5])
            with duckrun.connect(root, storage_options=s3_options) as s:
                s.publish("dev")
            assert rows(root, None) == [1, 5]
        except BaseException as error:
            error.add_note(f"seed {seed()}: write {number}, {trouble}; it said: {said}")
            raise
        writes, works = writes or sum(request.writes for request in seen), works + 1
    figures(f"{works} first writes in a branch, with trouble at one of {writes} writing requests; seed {seed()}")


def test_listings_of_one_key_a_page_are_read_whole(
    s3_bucket: Callable[[str], str], lossy_store: LossyStore, lossy_options: dict[str, str]
) -> None:
    with lossy_store.paged(1):
        for work in ("publish", "discard"):
            case = Case(f"{s3_bucket(f'branches-{uuid.uuid4().hex}')}/{work}", lossy_options)
            case.repeat(work)
            case.check(work, None)


@pytest.mark.parametrize("hours", [2, -2], ids=["later", "the clock was set back"])
def test_the_end_of_another_machine_is_told_and_waited_for(
    s3_bucket: Callable[[str], str],
    lossy_store: LossyStore,
    lossy_options: dict[str, str],
    s3_options: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hours: int,
) -> None:
    case = Case(s3_bucket(f"branches-{uuid.uuid4().hex}") + "/lake", s3_options)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # has the lock and the id of a machine
    with (
        duckrun.connect(case.root, storage_options={**lossy_options, "max_retries": "0"}) as s,
        lossy_store.losing("busy", lambda request: "/_log/" in request.path, times=100_000),
        pytest.raises(DuckrunError),
    ):
        s.publish("dev")
    monkeypatch.undo()
    with pytest.raises(CommitConflict, match=r"a publish by .*, which began 0 minutes ago, .* an hour after it began"):
        case.repeat("publish")
    moment = registry.now() + hours * 3_600_000
    monkeypatch.setattr(registry, "now", lambda: moment)
    case.repeat("publish")
    assert case.rows() == AFTER
