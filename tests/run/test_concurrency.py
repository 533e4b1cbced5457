"""Several writers and readers on one table: what each of them was told is what the table holds."""

from __future__ import annotations

import json
import multiprocessing
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import duckrun
from duckrun import AppTransaction, CommitConflict, MergeClause, MergeSpec, Session, UnsupportedFeature, WriteSpec
from duckrun.engines.duckdb.writers import delta_rs, staged
from duckrun.formats.ducklake.commits.work import Work
from duckrun.run.transaction import Transaction
from duckrun.values.lake_format import FormatName
from duckrun.values.rows import Commit, DeleteInsertSpec, DeleteSpec, StagedFile, UpdateSpec
from duckrun.values.snapshot import Scan
from tests.ducklake import plain

# Processes that hold none of this one's threads, with the imports done once.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["duckrun", "tests.run.test_concurrency"])


@dataclass(frozen=True)
class Place:
    """A lake that processes open, each for itself."""

    root: Path
    format: FormatName = "delta"
    catalog: str | None = None

    def open(self, memory_limit: str = "512MB") -> Session:
        return duckrun.connect(self.root, format=self.format, catalog=self.catalog, memory_limit=memory_limit)

    def nth(self, number: int) -> int:
        """The version that a number of commits after the first make."""
        return number + (2 if self.format == "ducklake" else 0)

    def rows(self, name: str = "t") -> list[dict[str, Any]]:
        """What an independent reader sees."""
        if self.format == "delta":
            engine = QueryBuilder().register("found", DeltaTable(str(self.root / "main" / name)))
            return pa.table(engine.execute("SELECT * FROM found").read_all()).to_pylist()
        with plain.attached(self.root, self.catalog) as own:
            return own.sql(f"FROM lake.main.{name}").to_arrow_table().to_pylist()


@pytest.fixture
def lake(tmp_path: Path, lake_format: FormatName, request: pytest.FixtureRequest) -> Place:
    kind = getattr(request, "param", "sqlite" if lake_format == "ducklake" else "delta")
    if kind == "delta":
        return Place(tmp_path / "lake")
    postgres = request.getfixturevalue("postgres_catalog") if kind == "postgres" else None
    return Place(tmp_path / "lake", "ducklake", postgres)


PROCESSES = pytest.mark.parametrize(
    "lake",
    ["delta", *(pytest.param(kind, marks=pytest.mark.drawn(24)) for kind in ("sqlite", "postgres"))],
    indirect=True,
)
"""Of several processes, on each catalog that they may share."""
FORMATS = pytest.mark.formats(20)


@pytest.fixture
def session(lake: Place) -> Iterator[Session]:
    with lake.open("1GB") as opened:
        yield opened


def table(**columns: list[Any]) -> pa.Table:
    return pa.table(columns)


def at_once(work: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> list[Any]:
    """One process for each tuple of arguments, all let go at the same moment; what each gave, or its error."""
    barrier, answers = CONTEXT.Barrier(len(arguments)), CONTEXT.Queue()
    processes = [
        CONTEXT.Process(target=_answer, args=(index, work, given, barrier, answers))
        for index, given in enumerate(arguments)
    ]
    for process in processes:
        process.start()
    found = dict(answers.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(timeout=60)
    return [found[index] for index in range(len(processes))]


def _answer(index: int, work: Callable[..., Any], given: tuple[Any, ...], barrier: Any, answers: Any) -> None:
    try:
        answers.put((index, work(barrier, *given)))
    except Exception as error:
        answers.put((index, f"{type(error).__name__}: {error}"))


# -- processes that write at once


def merge_one(barrier: Any, lake: Place, who: int) -> dict[str, Any]:
    with lake.open() as s:
        source = table(id=[7], who=[who])
        barrier.wait(60)
        return s.execute("t", MergeSpec(("id",)), source).to_dict()


def append_many(barrier: Any, lake: Place, who: int, rows: int) -> dict[str, Any]:
    with lake.open() as s:
        source = table(who=[who] * rows, n=list(range(rows)))
        barrier.wait(60)
        return s.execute("t", WriteSpec("append"), source).to_dict()


def append_as(barrier: Any, lake: Place, app: AppTransaction) -> dict[str, Any]:
    with lake.open() as s:
        source = table(id=[1, 2])
        barrier.wait(60)
        return s.execute("t", WriteSpec("append", app=app), source).to_dict()


@PROCESSES
@pytest.mark.parametrize("exists", [True, False], ids=["into a table", "creating the table"])
def test_two_processes_that_merge_one_new_key_leave_one_row(lake: Place, session: Session, exists: bool) -> None:
    if exists:
        session.execute("t", WriteSpec("append"), table(id=[1], who=[0]))
    done = at_once(merge_one, [(lake, 1), (lake, 2)])
    assert all(isinstance(commit, dict) for commit in done), done
    rows = lake.rows()
    assert [row["id"] for row in rows].count(7) == 1 and len(rows) == 1 + exists
    last = max(done, key=lambda commit: commit["version"])
    assert (last["rows_updated"], {commit["version"] for commit in done}) == (
        1,
        {lake.nth(exists + 0), lake.nth(exists + 1)},
    )


@PROCESSES
def test_eight_processes_append_at_once_and_every_row_lands(lake: Place) -> None:
    done = at_once(append_many, [(lake, who, 50) for who in range(8)])
    assert all(isinstance(commit, dict) for commit in done), done
    assert sorted(commit["version"] for commit in done) == [lake.nth(n) for n in range(8)]
    assert Counter((r["who"], r["n"]) for r in lake.rows()) == Counter((w, n) for w in range(8) for n in range(50))


@PROCESSES
@pytest.mark.parametrize("exists", [True, False], ids=["into a table", "creating the table"])
def test_of_two_processes_with_one_application_version_one_commits(lake: Place, session: Session, exists: bool) -> None:
    if exists:
        session.execute("t", WriteSpec("append"), table(id=[0]))
    done = at_once(append_as, [(lake, AppTransaction("nightly/t", 4))] * 2)
    assert all(isinstance(commit, dict) for commit in done), done
    assert sorted(commit["replayed"] for commit in done) == [False, True]
    assert done[0]["version"] == done[1]["version"] == lake.nth(exists)
    assert {c["rows_inserted"] for c in done} == {2}
    assert sorted(row["id"] for row in lake.rows()) == [0, 1, 2][1 - exists :]


# -- work handed to other processes


def read_part(barrier: Any, lake: Place, part: bytes | str) -> list[tuple[Any, ...]]:
    scan = pickle.loads(part) if isinstance(part, bytes) else Scan.from_json(part)
    with lake.open() as s:
        return [tuple(row.values()) for row in s.open(scan).collect()]


def stage_part(barrier: Any, lake: Place, low: int, high: int, as_json: bool) -> bytes | list[str]:
    with lake.open() as s:
        source = duckrun.SQL(f"SELECT i AS id, 'v' || i AS v, i % 3 AS p FROM range({low}, {high}) r(i)")
        files = s.stage("t", s.sql(source.text), partition_by=("p",))
    return [file.to_json() for file in files] if as_json else pickle.dumps(files)


@PROCESSES
@pytest.mark.parametrize("form", ["pickle", "json"])
def test_four_processes_that_read_a_part_each_see_every_row_once(lake: Place, session: Session, form: str) -> None:
    for start in range(0, 60, 10):
        rows = table(id=list(range(start, start + 10)), p=["a b", "ü", None, "x=1", "5%"] * 2)
        session.execute("t", WriteSpec("append", partition_by=("p",)), rows)
    parts = session.snapshot("t").scan().split(4)
    session.execute("t", WriteSpec("overwrite"), table(id=[-1], p=["later"]))  # the parts keep their version
    given = [(lake, pickle.dumps(part) if form == "pickle" else part.to_json()) for part in parts]
    found = at_once(read_part, given)
    assert len(parts) == 4 and all(found)
    expected = [(start + i, ["a b", "ü", None, "x=1", "5%"][i % 5]) for start in range(0, 60, 10) for i in range(10)]
    assert Counter(row for part in found for row in part) == Counter(expected)


@PROCESSES
@pytest.mark.parametrize(("form", "exists"), [("pickle", True), ("json", False)], ids=["append", "new table"])
def test_parts_staged_by_four_processes_become_visible_in_one_commit(
    lake: Place, session: Session, form: str, exists: bool
) -> None:
    if exists:
        session.execute(
            "t", WriteSpec("append", partition_by=("p",)), session.sql("SELECT -1 AS id, 'v' AS v, 0::BIGINT AS p")
        )
    answers = at_once(stage_part, [(lake, n * 25, n * 25 + 25, form == "json") for n in range(4)])
    assert not any(isinstance(answer, str) for answer in answers), answers
    files = [
        file for a in answers for file in (pickle.loads(a) if isinstance(a, bytes) else map(StagedFile.from_json, a))
    ]
    if exists:
        assert len(lake.rows()) == 1, "staged files are not visible"
    else:
        assert session.tables() == [], "a folder with staged files is no table"
    app = AppTransaction("staged/t")
    commit = session.commit_staged("t", files, WriteSpec("append", app=app))
    again = session.commit_staged("t", files, WriteSpec("append", app=app))
    assert (commit.version, commit.rows_inserted, commit.replayed) == (lake.nth(int(exists)), 100, False)
    assert (again.version, again.replayed) == (commit.version, True)
    expected = [(i, f"v{i}", i % 3) for i in range(100)] + ([(-1, "v", 0)] if exists else [])
    assert Counter((r["id"], r["v"], r["p"]) for r in lake.rows()) == Counter(expected)


# -- a writer that knows nothing of our lock


class Foreign:
    """Plain deltalake, or plain DuckDB with its extension, let in between the work of one of our writes and its commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lake: Place) -> None:
        self.lake = lake
        self.location = str(lake.root / "main" / "t")
        self.work: list[Callable[[], None]] = []
        self.calls = 0
        self.on_top = 1 if lake.format == "delta" else 2
        """Attempts of a change that could go on top of another's commit; DuckLake on SQLite lets nothing go on top."""
        of_delta = ((staged, "commit"), (delta_rs.DeltaRs, "write"), (delta_rs.DeltaRs, "_merged"))
        for module, name in of_delta if lake.format == "delta" else ((Work, "commit"),):
            monkeypatch.setattr(module, name, self._before(getattr(module, name)))

    def _before(self, commit: Callable[..., int]) -> Callable[..., int]:
        def hooked(*args: Any, **kwargs: Any) -> int:
            self.calls += 1
            if self.work:
                self.work.pop(0)()
            return commit(*args, **kwargs)

        return hooked

    def next(self, **options: Any) -> Callable[[pa.Table], None]:
        def later(rows: pa.Table) -> None:
            if self.lake.format == "delta":
                self.work.append(lambda: write_deltalake(self.location, rows, **options))
            else:
                self.work.append(lambda: self._in_ducklake(rows, **options))

        return later

    def _in_ducklake(self, rows: pa.Table, mode: str, schema_mode: str | None = None) -> None:
        with plain.attached(self.lake.root) as own:
            own.register("given", rows)
            if mode == "overwrite":
                own.execute("DROP TABLE lake.main.t")
            if mode != "append":
                own.execute("CREATE SCHEMA IF NOT EXISTS lake.main")
                own.execute("CREATE TABLE lake.main.t AS FROM given")
                return
            if schema_mode == "merge":
                own.execute("ALTER TABLE lake.main.t ADD COLUMN extra VARCHAR")
            own.execute("INSERT INTO lake.main.t BY NAME FROM given")

    def delete(self, predicate: str) -> None:
        if self.lake.format == "delta":
            DeltaTable(self.location).delete(predicate)
            return
        with plain.attached(self.lake.root) as own:
            own.execute(f"DELETE FROM lake.main.t WHERE {predicate}")

    def compact(self) -> None:
        if self.lake.format == "delta":
            DeltaTable(self.location).optimize.compact()
            return
        with plain.attached(self.lake.root) as own:
            own.execute("CALL ducklake_merge_adjacent_files('lake')")


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch, lake: Place) -> Foreign:
    return Foreign(monkeypatch, lake)


def streamed(rows: pa.Table) -> pa.RecordBatchReader:
    return rows.to_reader()


def as_table(rows: pa.Table) -> pa.Table:
    return rows


SOURCES = pytest.mark.parametrize("given", [as_table, streamed], ids=["table", "stream"])
LEFT_BEHIND = pytest.mark.lacks_format(
    "ducklake", CommitConflict, "what was read of a stream went with the transaction that lost"
)
SOURCES_ONCE = pytest.mark.parametrize("given", [as_table, pytest.param(streamed, marks=LEFT_BEHIND)], ids=["table", "stream"])  # fmt: skip
OF_DELTA_RS, COMPUTED = (pytest.param(MergeSpec(("id",), writer="delta_rs", on=on), marks=pytest.mark.lacks_format("ducklake", UnsupportedFeature, "delta_rs writes Delta's files")) for on in (None, "target.id > 0"))  # fmt: skip


def ids(lake: Place) -> list[int]:
    return sorted(row["id"] for row in lake.rows())


@FORMATS
@SOURCES_ONCE
def test_an_append_and_a_foreign_append_both_land(lake: Place, session: Session, foreign: Foreign, given: Any) -> None:
    session.execute("t", WriteSpec("append"), table(id=[1]))
    foreign.next(mode="append")(table(id=[100]))
    commit = session.execute("t", WriteSpec("append"), given(table(id=[2, 3])))
    assert (commit.version, ids(lake)) == (lake.nth(2), [1, 2, 3, 100])


@FORMATS
@SOURCES
def test_an_append_after_a_foreign_change_of_schema_is_whole(
    lake: Place, session: Session, foreign: Foreign, given: Any
) -> None:
    session.execute("t", WriteSpec("append"), table(id=[1]))
    foreign.next(mode="append", schema_mode="merge")(table(id=[100], extra=["x"]))
    try:
        commit: Commit | None = session.execute("t", WriteSpec("append"), given(table(id=[2, 3])))
    except duckrun.DuckrunError:
        commit = None
    assert ids(lake) == ([1, 100] if commit is None else [1, 2, 3, 100])


@FORMATS
@SOURCES_ONCE
def test_an_overwrite_takes_the_rows_of_a_foreign_commit_with_it(
    lake: Place, session: Session, foreign: Foreign, given: Any
) -> None:
    session.execute("t", WriteSpec("append"), table(id=[1]))
    foreign.next(mode="append")(table(id=[100]))
    commit = session.execute("t", WriteSpec("overwrite"), given(table(id=[2, 3])))
    assert (commit.version, commit.rows_inserted, ids(lake)) == (lake.nth(2), 2, [2, 3])


@FORMATS
@SOURCES_ONCE
def test_a_table_created_by_a_foreign_writer_meanwhile_is_appended_to(
    lake: Place, session: Session, foreign: Foreign, given: Any
) -> None:
    foreign.next(mode="error")(table(id=[100]))
    commit = session.execute("t", WriteSpec("append"), given(table(id=[2, 3])))
    assert (commit.version, ids(lake)) == (lake.nth(1), [2, 3, 100])


@FORMATS
@SOURCES
def test_mode_error_leaves_a_table_alone_that_a_foreign_writer_created_meanwhile(
    lake: Place, session: Session, foreign: Foreign, given: Any
) -> None:
    foreign.next(mode="error")(table(id=[100]))
    with pytest.raises(CommitConflict, match=r"main\.t exists already"):
        session.execute("t", WriteSpec("error"), given(table(id=[2, 3])))
    assert ids(lake) == [100]


@FORMATS
@SOURCES
def test_replace_takes_the_rows_that_a_foreign_writer_added_to_its_part(
    lake: Place, session: Session, foreign: Foreign, given: Any
) -> None:
    session.execute("t", WriteSpec("append"), table(id=[1, 2, 50]))
    foreign.next(mode="append")(table(id=[3, 60]))
    spec = WriteSpec("replace", predicate="id < 10")
    commit = session.execute("t", spec, given(table(id=[8, 9])))
    assert (commit.version, ids(lake)) == (lake.nth(2), [8, 9, 50, 60])


@FORMATS
@SOURCES
def test_replace_of_one_partition_goes_on_top_of_a_foreign_write_to_another(
    lake: Place, session: Session, foreign: Foreign, given: Any
) -> None:
    session.execute("t", WriteSpec("append", partition_by=("p",)), table(id=[1, 2], p=["a", "b"]))
    foreign.next(mode="append")(table(id=[100], p=["b"]))
    calls = foreign.calls
    commit = session.execute("t", WriteSpec("replace"), given(table(id=[8, 9], p=["a", "a"])))
    assert (commit.version, ids(lake), foreign.calls - calls) == (lake.nth(2), [2, 8, 9, 100], foreign.on_top)


@FORMATS
@SOURCES
@pytest.mark.parametrize("spec", [OF_DELTA_RS, COMPUTED, MergeSpec(("id",), on="target.id > 0"), DeleteInsertSpec(("id",))], ids=["delta_rs", "delta_rs, computed", "staged", "delete+insert"])  # fmt: skip
def test_a_key_that_a_foreign_writer_inserts_meanwhile_is_not_inserted_again(
    lake: Place, session: Session, foreign: Foreign, spec: Any, given: Any
) -> None:
    session.execute("t", WriteSpec("append"), table(id=[1], v=["old"]))
    foreign.next(mode="append")(table(id=[7], v=["foreign"]))
    session.execute("t", spec, given(table(id=[7, 8], v=["ours", "ours"])))
    assert sorted((r["id"], r["v"]) for r in lake.rows()) == [(1, "old"), (7, "ours"), (8, "ours")]


@FORMATS
def test_a_stream_of_rows_for_columns_that_are_gone_meanwhile_is_refused(
    lake: Place, session: Session, foreign: Foreign
) -> None:
    session.execute("t", WriteSpec("append"), table(id=[1], v=["a"]))
    foreign.next(mode="overwrite", schema_mode="overwrite")(table(id=["text now"]))
    with pytest.raises(duckrun.DuckrunError, match=r"main\.t"):
        session.execute("t", WriteSpec("append"), streamed(table(id=[2], v=["b"])))
    assert lake.rows() == [{"id": "text now"}]


@LEFT_BEHIND
@FORMATS
def test_a_stream_that_adds_a_column_is_whole_after_a_foreign_commit(
    lake: Place, session: Session, foreign: Foreign
) -> None:
    session.execute("t", WriteSpec("append"), table(id=[1]))
    foreign.next(mode="append")(table(id=[100]))
    spec = WriteSpec("append", schema_mode="append_new_columns")
    session.execute("t", spec, streamed(table(id=[2], v=["b"])))
    assert sorted((r["id"], r["v"]) for r in lake.rows()) == [(1, None), (2, "b"), (100, None)]


@pytest.mark.only_format("ducklake", "a stream of a Delta table has been written to files by then")
@pytest.mark.formats(4)
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_stream_that_lost_to_a_foreign_commit_is_refused_with_the_reason(
    lake: Place, session: Session, foreign: Foreign, mode: Any
) -> None:
    session.execute("t", WriteSpec("append"), table(id=[1]))
    foreign.next(mode="append")(table(id=[100]))
    with pytest.raises(
        CommitConflict, match=r"committed to the lake of table main\.t while .*is a stream.*Nothing was"
    ):
        session.execute("t", WriteSpec(mode), streamed(table(id=[2])))
    assert ids(lake) == [1, 100]
    session.execute("t", WriteSpec(mode), streamed(table(id=[2])))
    assert ids(lake) == ([1, 2, 100] if mode == "append" else [2])


@FORMATS
def test_an_update_sees_the_rows_that_a_foreign_writer_added_meanwhile(
    lake: Place, session: Session, foreign: Foreign
) -> None:
    session.execute("t", WriteSpec("append"), table(id=[1, 2]))
    foreign.next(mode="append")(table(id=[3]))
    session.execute("t", UpdateSpec({"id": "id + 10"}, "id > 1"))
    assert ids(lake) == [1, 12, 13]


@FORMATS
def test_files_staged_beforehand_go_on_top_of_a_foreign_commit(lake: Place, session: Session, foreign: Foreign) -> None:
    session.execute("t", WriteSpec("append"), table(id=[1]))
    files = session.stage("t", table(id=[2, 3]))
    foreign.next(mode="append")(table(id=[100]))
    commit = session.commit_staged("t", files, WriteSpec("append"))
    assert (commit.version, ids(lake)) == (lake.nth(2), [1, 2, 3, 100])


@FORMATS
def test_safeappend_refuses_when_a_foreign_writer_was_faster(lake: Place, session: Session, foreign: Foreign) -> None:
    session.execute("t", WriteSpec("append"), table(id=[1]))
    foreign.next(mode="append")(table(id=[100]))
    with pytest.raises(CommitConflict, match=rf"main\.t.*version {lake.nth(0)}.*version {lake.nth(1)}"):
        session.execute("t", WriteSpec("safeappend", read_version=lake.nth(0)), table(id=[2]))
    assert ids(lake) == [1, 100]


@FORMATS
def test_a_writer_that_always_loses_gives_up_and_says_so(
    lake: Place, session: Session, foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duckrun.run.transaction.MAX_ATTEMPTS", 3)
    session.execute("t", WriteSpec("append"), table(id=[1]))
    for n in range(3):
        foreign.next(mode="append")(table(id=[100 + n]))
    with pytest.raises(CommitConflict, match=r"overwrite on table main\.t lost the race for its version 3 times"):
        session.execute("t", WriteSpec("overwrite"), table(id=[2]))
    assert ids(lake) == [1, 100, 101, 102]


@FORMATS
def test_the_same_work_by_a_twin_without_our_lock_is_not_committed_twice(
    lake: Place, session: Session, foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = AppTransaction("nightly/t", 1)
    session.execute("t", WriteSpec("append"), table(id=[1]))
    with lake.open() as twin:
        monkeypatch.setattr("duckrun.run.transaction.Transaction.locked", lambda self: nullcontext())
        foreign.work.append(lambda: twin.execute("t", WriteSpec("append", app=app), streamed(table(id=[2]))))
        commit = session.execute("t", WriteSpec("append", app=app), streamed(table(id=[2])))
    assert (commit.replayed, commit.version, ids(lake)) == (True, lake.nth(1), [1, 2])
    assert json.loads(json.dumps(commit.to_dict()))["replayed"] is True


# -- what may go on top: decided by what the others changed, not by where it lies


@FORMATS
@pytest.mark.parametrize(
    "spec",
    [MergeSpec(("id",), on="target.id > 0"), DeleteInsertSpec(("id",)), OF_DELTA_RS, COMPUTED],
    ids=["staged", "delete+insert", "delta_rs", "delta_rs, computed"],
)
def test_a_new_key_that_another_writer_puts_in_another_partition_is_not_there_twice(
    lake: Place, session: Session, foreign: Foreign, spec: Any
) -> None:
    session.execute("t", WriteSpec("append", partition_by=("p",)), table(id=[1, 2], p=["a", "b"]))
    foreign.next(mode="append")(table(id=[7], p=["b"]))
    session.execute("t", spec, table(id=[7], p=["a"]))
    assert ids(lake) == [1, 2, 7]


@FORMATS
@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda s: s.execute("t", MergeSpec(("id",), on="target.id > 0"), table(id=[1, 7], p=["a", "a"])), [1, 2, 7, 100]),
        (lambda s: s.execute("t", DeleteInsertSpec(("id",)), table(id=[1, 7], p=["a", "a"])), [1, 2, 7, 100]),
        (lambda s: s.execute("t", UpdateSpec({"id": "id + 10"}, "id = 1")), [2, 11, 100]),
        (lambda s: s.execute("t", DeleteSpec("id = 1")), [2, 100]),
        (lambda s: s.execute("t", DeleteSpec("p = 'a'")), [2, 100]),
        (lambda s: s.execute("t", WriteSpec("replace", predicate="id = 1"), table(id=[1], p=["a"])), [1, 2, 100]),
        (lambda s: s.execute("t", WriteSpec("replace"), table(id=[8], p=["a"])), [2, 8, 100]),
    ],
    ids=["merge", "delete+insert", "update", "delete", "delete a partition", "replace rows", "replace a partition"],
)  # fmt: skip
def test_a_change_goes_on_top_of_rows_that_it_would_not_have_seen(
    lake: Place, session: Session, foreign: Foreign, work: Callable[[Session], Commit], expected: list[int]
) -> None:
    session.execute("t", WriteSpec("append", partition_by=("p",)), table(id=[1, 2], p=["a", "b"]))
    foreign.next(mode="append")(table(id=[100], p=["b"]))
    calls = foreign.calls
    assert (work(session).version, foreign.calls - calls, ids(lake)) == (lake.nth(2), foreign.on_top, expected)


@FORMATS
@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda s: s.execute("t", UpdateSpec({"id": "id + 10"}, "id > 1 and p <> 'x'")), [1, 12, 110]),
        (lambda s: s.execute("t", DeleteSpec("id > 1")), [1]),
        (lambda s: s.execute("t", DeleteSpec("p <> 'a'")), [1]),
        (lambda s: s.execute("t", WriteSpec("replace", predicate="id > 1"), table(id=[8], p=["a"])), [1, 8]),
        (lambda s: s.execute("t", WriteSpec("replace"), table(id=[8], p=["c"])), [1, 2, 8]),
    ],
    ids=["update", "delete", "delete partitions", "replace rows", "replace a partition"],
)
def test_a_change_runs_again_for_rows_that_it_would_have_changed(
    lake: Place, session: Session, foreign: Foreign, work: Callable[[Session], Commit], expected: list[int]
) -> None:
    session.execute("t", WriteSpec("append", partition_by=("p",)), table(id=[1, 2], p=["a", "b"]))
    foreign.next(mode="append")(table(id=[100], p=["c"]))
    work(session)
    assert ids(lake) == expected


@FORMATS
def test_a_merge_runs_again_where_another_writer_deleted_the_row_that_it_found(
    lake: Place, session: Session, foreign: Foreign
) -> None:
    """It inserted 7 and left 5 alone, since 5 was there: with 5 gone that is no state which one after the other could make."""
    session.execute("t", WriteSpec("append", partition_by=("p",)), table(id=[1, 5], p=["a", "b"]))
    foreign.work.append(lambda: foreign.delete("id = 5"))
    only_inserts = MergeSpec(("id",), on="target.id > 0", clauses=(MergeClause("not_matched_insert"),))
    session.execute("t", only_inserts, table(id=[5, 7], p=["b", "a"]))
    assert ids(lake) == [1, 5, 7]


@FORMATS
def test_a_clause_for_rows_that_the_source_has_not_sees_those_that_another_writer_added(
    lake: Place, session: Session, foreign: Foreign
) -> None:
    session.execute("t", WriteSpec("append", partition_by=("p",)), table(id=[1], p=["a"]))
    foreign.next(mode="append")(table(id=[100], p=["b"]))
    clauses = (MergeClause("not_matched_insert"), MergeClause("not_matched_by_source_delete"))
    session.execute("t", MergeSpec(("id",), clauses=clauses), table(id=[1, 2], p=["a", "a"]))
    assert ids(lake) == [1, 2]


@FORMATS
def test_a_compaction_by_another_writer_changes_nothing_for_a_delete_elsewhere(
    lake: Place, session: Session, foreign: Foreign
) -> None:
    for n in range(3):
        session.execute("t", WriteSpec("append", partition_by=("p",)), table(id=[n], p=["a"]))
    session.execute("t", WriteSpec("append"), table(id=[9], p=["b"]))
    foreign.work.append(foreign.compact)
    calls = foreign.calls
    session.execute("t", DeleteSpec("p = 'b'"))
    assert (foreign.calls - calls, ids(lake)) == (foreign.on_top, [0, 1, 2])


@FORMATS
@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.float64(), 1.0), (pa.timestamp("us", "UTC"), datetime(2024, 1, 1, 10, 30)), (pa.timestamp("us"), datetime(2024, 1, 1))],
    ids=["double", "moment", "naive moment"],
)  # fmt: skip
def test_replace_of_a_partition_takes_what_a_foreign_writer_spelled_in_its_own_way(
    lake: Place, session: Session, foreign: Foreign, kind: pa.DataType, value: Any
) -> None:
    def rows(number: int) -> pa.Table:
        return pa.table({"id": [number], "p": pa.array([value], kind)})

    session.execute("t", WriteSpec("append", partition_by=("p",)), streamed(rows(1)))
    foreign.next(mode="append")(rows(100))
    session.execute("t", WriteSpec("replace"), streamed(rows(2)))
    assert ids(lake) == [2]


# -- rows that are marked in one file


NUMBERS = table(id=list(range(100)), v=["old"] * 100)
OTHERS: dict[str, tuple[Any, Any, int]] = {
    "another row": (MergeSpec(("id",)), table(id=[7, 200], v=["theirs", "theirs"]), 1),
    "the same row": (MergeSpec(("id",)), table(id=[3], v=["theirs"]), 2),
    "a row that ours deletes": (DeleteSpec("id = 4"), None, 2),
    "a new row of our key": (WriteSpec("append"), table(id=[300], v=["theirs"]), 2),
    "more rows of the file than may stay": (DeleteSpec("id >= 50"), None, 2),
}


@FORMATS
@pytest.mark.parametrize("other", OTHERS)
def test_two_writers_that_mark_other_rows_of_one_file_both_succeed(
    lake: Place, session: Session, foreign: Foreign, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """The later one unites the vectors; where the rows meet, it runs again on what the other left."""
    marked = {"delta.enableDeletionVectors": "true"} if lake.format == "delta" else {}
    session.execute("t", WriteSpec("append", table_properties=marked), NUMBERS)
    clauses = (
        MergeClause("matched_delete", "source.v = 'gone'"),
        MergeClause("matched_update", set={"v": "target.v || '+ours'"}),
        MergeClause("not_matched_insert"),
    )
    ours = table(id=[3, 4, 300], v=["", "gone", "ours"])
    spec, rows, attempts = OTHERS[other]
    with lake.open() as twin:
        monkeypatch.setattr("duckrun.run.transaction.Transaction.locked", lambda self: nullcontext())
        foreign.work.append(lambda: twin.execute("t", spec, rows))
        commit = session.execute("t", MergeSpec(("id",), clauses), ours)
    assert commit.version == lake.nth(2)
    if lake.format == "delta":  # beside the attempts there were the first write and the twin's
        assert foreign.calls - 2 == attempts
    wanted = dict.fromkeys(range(100), "old")
    wanted |= {} if rows is None else dict(zip(*(rows.column(c).to_pylist() for c in ("id", "v")), strict=True))
    gone = {"a row that ours deletes": {4}, "more rows of the file than may stay": set(range(50, 100))}.get(
        other, set()
    )
    wanted = {n: v for n, v in wanted.items() if n not in gone and n != 4}
    wanted |= {4: "gone"} if 4 in gone else {}  # theirs came first: the key is a new one then
    wanted |= {3: f"{wanted[3]}+ours", 300: f"{wanted[300]}+ours" if 300 in wanted else "ours"}
    with lake.open() as later:
        found = {row["id"]: row["v"] for row in later.sql("select id, v from t").collect()}
        assert found == wanted and later.sql("select count(*) as n from t").collect() == [{"n": len(wanted)}]
    assert {row["id"]: row["v"] for row in lake.rows()} == wanted


def count_up(barrier: Any, lake: Place, who: int, times: int) -> Counter[int]:
    """Add one to some rows, again and again, with no lock; how often each was committed."""
    random, done = Random(who), Counter[int]()
    Transaction.locked = lambda self: nullcontext()  # type: ignore[method-assign]  # as on a store
    clauses = (MergeClause("matched_update", set={"n": "target.n + source.n"}),)
    with lake.open() as s:
        barrier.wait(60)
        for _ in range(times):
            keys = random.sample(range(400), 4)
            with suppress(CommitConflict):  # it lost each of its races
                s.execute("t", MergeSpec(("id",), clauses), table(id=keys, n=[1] * 4))
                done.update(keys)
    return done


@PROCESSES
def test_counters_that_processes_raise_by_marks_lose_no_step(lake: Place, session: Session) -> None:
    marked = {"delta.enableDeletionVectors": "true"} if lake.format == "delta" else {}
    session.execute("t", WriteSpec("append", table_properties=marked), table(id=list(range(400)), n=[0] * 400))
    done = at_once(count_up, [(lake, who, 8) for who in range(4)])
    assert not any(isinstance(answer, str) for answer in done), done
    expected = sum(done, Counter[int]())
    assert expected.total() > 0
    assert sorted((row["id"], row["n"]) for row in lake.rows()) == [(n, expected[n]) for n in range(400)]
