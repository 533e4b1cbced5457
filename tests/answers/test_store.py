"""Every write mode, and each of its requests to the store in turn: the request is carried out and its answer is lost.

The write succeeds, and then it is there once; or it fails, and nothing of it is there, and it succeeds when it is run again. Plain
deltalake reads the table from the server itself, and a model in Python says which rows it has.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import duckrun
from duckrun import CommitUnknown, DeleteInsertSpec, DuckrunError, MergeSpec, Session, WriteSpec
from tests.drawing import seed
from tests.fixtures_answers import LOSSES, LossyStore

pytestmark = [pytest.mark.s3, pytest.mark.answers]

BUDGET = float(os.environ.get("DUCKRUN_TEST_BUDGET") or 90) / 2
WHOLE = bool(os.environ.get("DUCKRUN_TEST_ALL"))
"""Take every request of every mode: hours. A soak draws them until its budget is spent."""
Row = tuple[int, int, str]
BEFORE: list[Row] = [(n, 0, "ab"[n % 2]) for n in range(8)]
SOURCE: list[Row] = [(7, 70, "b"), (8, 80, "a")]


def table_of(rows: Sequence[Row]) -> pa.Table:
    return pa.table({"id": [r[0] for r in rows], "n": [r[1] for r in rows], "g": [r[2] for r in rows]})


@dataclass(frozen=True)
class Mode:
    """A write, and what it makes of the rows."""

    run: Callable[[Session], object]
    after: Callable[[list[Row]], list[Row]]
    properties: str = ""
    """Properties of the table, in SQL."""


def spec(value: object) -> Callable[[Session], object]:
    return lambda s: s.execute("main.t", value, table_of(SOURCE))  # type: ignore[arg-type]


def statement(text: str) -> Callable[[Session], object]:
    return lambda s: s.sql(text)


def committed_in_parts(s: Session) -> object:
    files = [file for row in SOURCE for file in s.stage("main.t", table_of([row]))]
    return s.commit_staged("main.t", files, WriteSpec("append"))


def merged(rows: list[Row]) -> list[Row]:
    return [r for r in rows if r[0] != 7] + SOURCE


VECTORS = "'delta.enableDeletionVectors' = 'true'"
MODES: dict[str, Mode] = {
    "append": Mode(spec(WriteSpec("append")), lambda rows: rows + SOURCE),
    "append by delta_rs": Mode(spec(WriteSpec("append", writer="delta_rs")), lambda rows: rows + SOURCE),
    "overwrite": Mode(spec(WriteSpec("overwrite")), lambda _: SOURCE),
    "overwrite by delta_rs": Mode(spec(WriteSpec("overwrite", writer="delta_rs")), lambda _: SOURCE),
    "replace": Mode(
        lambda s: s.execute("main.t", WriteSpec("replace", predicate="g = 'a'"), table_of([(9, 9, "a")])),
        lambda rows: [r for r in rows if r[2] != "a"] + [(9, 9, "a")],
    ),
    "merge": Mode(spec(MergeSpec(("id",))), merged),
    "merge by delta_rs": Mode(spec(MergeSpec(("id",), writer="delta_rs")), merged),
    "merge with vectors": Mode(spec(MergeSpec(("id",), merge_mode="deletion_vectors")), merged, VECTORS),
    "delete and insert": Mode(spec(DeleteInsertSpec(("id",))), merged),
    "merge in SQL": Mode(
        statement(
            "merge into t using (values (7, 70, 'b'), (8, 80, 'a')) as s(id, n, g) on t.id = s.id "
            "when matched then update set n = s.n when not matched then insert *"
        ),
        merged,
    ),
    "staged files": Mode(committed_in_parts, lambda rows: rows + SOURCE),
    "update": Mode(statement("update t set n = n + 1"), lambda rows: [(i, n + 1, g) for i, n, g in rows]),
    "update with vectors": Mode(
        statement("update t set n = n + 1 where id < 3"),
        lambda rows: [(i, n + (i < 3), g) for i, n, g in rows],
        VECTORS,
    ),
    "delete": Mode(statement("delete from t where id < 3"), lambda rows: [r for r in rows if r[0] >= 3]),
    "insert from itself": Mode(statement("insert into t select * from t"), lambda rows: rows * 2),
    "replace the table": Mode(
        statement("create or replace table t as select id, n + 1 as n, g from t where id < 2"),
        lambda rows: [(i, n + 1, g) for i, n, g in rows if i < 2],
    ),
    "a new column": Mode(statement("alter table t add column x int"), lambda rows: rows),
    "optimize": Mode(statement("optimize t"), lambda rows: rows),
    "checkpoint": Mode(lambda s: s.table("main.t").checkpoint(), lambda rows: rows),
    "restore": Mode(lambda s: s.table("main.t").restoreToVersion(1), lambda _: BEFORE[:4]),
}


class Case:
    """A fresh table for one write."""

    def __init__(self, root: str, direct: dict[str, str], mode: Mode) -> None:
        self.root, self._direct, self._mode = root, direct, mode
        with duckrun.connect(root, storage_options=direct) as s:
            properties = f"tblproperties ({mode.properties})" if mode.properties else ""
            s.sql(f"create table t (id bigint, n bigint, g varchar) {properties}")
            s.execute("main.t", WriteSpec("overwrite"), table_of(BEFORE[:4]))
            s.execute("main.t", WriteSpec("append"), table_of(BEFORE[4:]))

    def rows(self) -> list[Row]:
        read = DeltaTable(f"{self.root}/main/t", storage_options=self._direct)
        if read.protocol().reader_features:  # plain deltalake reads no deletion vectors
            with duckrun.connect(self.root, storage_options=self._direct) as s:
                table = s.sql("select id, n, g from t").toArrow()
        else:
            table = read.to_pyarrow_table()
        return sorted(tuple(row[name] for name in ("id", "n", "g")) for row in table.to_pylist())  # type: ignore[misc]


def cases(rng: random.Random, requests_of: Callable[[str], int]) -> Iterator[tuple[str, int, str]]:
    """Modes, numbers of requests and losses: all of them, or one mode after the other with random ones."""
    if WHOLE:
        yield from ((mode, number, loss) for mode in MODES for number in range(requests_of(mode)) for loss in LOSSES)
        return
    while True:
        for mode in rng.sample(sorted(MODES), len(MODES)):
            yield mode, rng.randrange(requests_of(mode)), rng.choice(LOSSES)


def test_a_request_whose_answer_is_lost_leaves_one_write_or_none(
    s3_bucket: Callable[[str], str],
    lossy_store: LossyStore,
    lossy_options: dict[str, str],
    s3_options: dict[str, str],
    figures: Callable[[str], None],
) -> None:
    bucket, began, rng = s3_bucket(f"answers-{uuid.uuid4().hex}"), time.monotonic(), random.Random(seed())
    tried, failed, unknown = 0, 0, 0

    @cache
    def requests_of(name: str) -> int:
        case = Case(f"{bucket}/{name.replace(' ', '_')}", s3_options, MODES[name])
        with lossy_store.recording() as seen, duckrun.connect(case.root, storage_options=lossy_options) as s:
            MODES[name].run(s)
        assert case.rows() == sorted(MODES[name].after(BEFORE)), name
        return len(seen)

    for mode, number, loss in cases(rng, requests_of):
        case = Case(f"{bucket}/case_{tried}", s3_options, MODES[mode])
        said: DuckrunError | None = None
        try:
            with (
                duckrun.connect(case.root, storage_options=lossy_options) as s,
                lossy_store.losing(loss, after=number),  # type: ignore[arg-type]
            ):
                try:
                    MODES[mode].run(s)
                except DuckrunError as error:
                    said = error
            rows, after = case.rows(), sorted(MODES[mode].after(BEFORE))
            if said is None:
                assert rows == after
            elif isinstance(said, CommitUnknown):
                assert rows in (sorted(BEFORE), after)
            else:
                assert rows == sorted(BEFORE), said
                with duckrun.connect(case.root, storage_options=lossy_options) as s:
                    MODES[mode].run(s)
                assert case.rows() == after
        except BaseException as error:
            error.add_note(f"seed {seed()}: {mode}, request {number}, {loss}; it said: {said}")
            raise
        tried, failed, unknown = tried + 1, failed + (said is not None), unknown + isinstance(said, CommitUnknown)
        if not WHOLE and tried >= 5 and time.monotonic() - began > BUDGET:
            break
    figures(
        f"{tried} writes with a lost answer: {failed} failed without a trace, {unknown} of them not known; seed {seed()}"
    )
