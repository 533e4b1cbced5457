"""Reruns of one write: a newer attempt writes as if the commits of older attempts had not happened.

Random histories of one table are carried out beside a model in Python, which knows the table before each attempt. Source:
docs/reliability.md, Reruns.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun.errors import CommitConflict
from duckrun.values.rows import (
    Commit,
    DeleteSpec,
    MergeClause,
    MergeSpec,
    RowSpec,
    UpdateSpec,
    WorkTransaction,
    WriteSpec,
)

Model = Counter[tuple[int, int]]
SUMS = (MergeClause("matched_update", set={"n": "target.n + source.n"}), MergeClause("not_matched_insert"))


def attempt(number: int, work: str = "run/orders", ordinal: int = 0) -> WorkTransaction:
    return WorkTransaction(work, attempt=f"attempt {number}", started=float(number)).nth(ordinal)


def table_of(rows: list[tuple[int, int]]) -> pa.Table:
    return pa.table({"id": pa.array([r[0] for r in rows], pa.int64()), "n": pa.array([r[1] for r in rows], pa.int64())})


@pytest.fixture(params=["delta", "ducklake"])
def session(request: pytest.FixtureRequest, root: Path, engine: str) -> Iterator[Any]:
    """A session on each engine and format."""
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    with duckrun.connect(root, engine=engine, spark=spark, format=request.param) as opened:
        yield opened


def rows_in(session: Any, table: str = "orders") -> Model:
    found = session.sql(f"select id, n from {table}").toArrow().to_pylist()
    return Counter((row["id"], row["n"]) for row in found)


def written(before: Model, spec: RowSpec, rows: list[tuple[int, int]]) -> Model:
    """What a write makes of rows, by its own words."""
    after = Counter(before)
    if isinstance(spec, WriteSpec):
        return Counter(rows) if spec.mode == "overwrite" else after + Counter(rows)
    if isinstance(spec, MergeSpec):
        given = dict(rows)
        after = Counter()
        for (key, n), count in before.items():
            new = given.get(key, 0 if spec.clauses == SUMS else n)
            after[key, n + new if spec.clauses == SUMS else new] += count
        after.update((key, n) for key, n in rows if key not in {key for key, _ in before})
        return after
    if isinstance(spec, UpdateSpec):
        return Counter({(key, n + 1000): count for (key, n), count in before.items()})
    return Counter({(key, n): count for (key, n), count in before.items() if key % 2})


def some_spec(choose: random.Random, app: WorkTransaction) -> RowSpec:
    kind = choose.choice(["append", "append", "overwrite", "merge", "sums", "update", "delete"])
    if kind == "merge":
        return MergeSpec(("id",), app=app)
    if kind == "sums":
        return MergeSpec(("id",), SUMS, app=app)
    if kind == "update":
        return UpdateSpec({"n": "n + 1000"}, app=app)
    if kind == "delete":
        return DeleteSpec("id % 2 = 0", app=app)
    return WriteSpec(kind, app=app)  # type: ignore[arg-type]


@pytest.mark.drawn(8)
@pytest.mark.parametrize("seed", range(16))
def test_the_table_is_what_the_last_attempt_of_each_work_makes_of_the_one_before(session: Any, seed: int) -> None:
    """Attempts of one work follow one another; between two works nothing is taken back, and OPTIMIZE changes no outcome."""
    choose = random.Random(seed)
    table: Model = Counter([(key, key) for key in range(6)])
    session.sql("create table orders (id bigint, n bigint)")
    session.execute("main.orders", WriteSpec("append"), table_of(list(table.elements())))
    for work in range(3):
        kind, before, done = choose.randrange(1 << 30), Counter(table), 0
        for number in range(choose.choice([1, 2, 3])):
            spec = some_spec(random.Random(kind), attempt(number, f"run {work}"))
            rows = list({key: (key, choose.randrange(100)) for key in choose.choices(range(9), k=3)}.values())
            source = None if isinstance(spec, DeleteSpec | UpdateSpec) else table_of(rows)
            keyed = isinstance(spec, MergeSpec) and spec.clauses != SUMS
            commit = session.execute("main.orders", spec, source)
            table = written(table if keyed else before, spec, rows)
            assert not commit.replayed, spec
            assert rows_in(session) == table, (work, number, spec, rows)
            done = commit.version
        assert session.table("main.orders").snapshot().version == done


def sums(session: Any, number: int, rows: list[tuple[int, int]]) -> Commit:
    return session.execute("main.orders", MergeSpec(("id",), SUMS, app=attempt(number)), table_of(rows))


def append(session: Any, number: int, rows: list[tuple[int, int]], **words: Any) -> Commit:
    return session.execute("main.orders", WriteSpec("append", app=attempt(number, **words)), table_of(rows))


def make(session: Any, rows: list[tuple[int, int]]) -> None:
    session.execute("main.orders", WriteSpec("error"), table_of(rows))


def test_rows_of_others_stay_where_an_append_is_taken_back(session: Any) -> None:
    make(session, [(1, 1)])
    first = append(session, 1, [(2, 2), (3, 3)])
    session.execute("main.orders", WriteSpec("append"), table_of([(9, 9)]))
    commit = append(session, 2, [(4, 4)])
    assert rows_in(session) == Counter([(1, 1), (9, 9), (4, 4)])
    assert commit.retracted is not None
    assert (commit.retracted.version, commit.retracted.rows) == (first.version, 2)
    assert (commit.rows_inserted, commit.rows_deleted) == (1, 2)


def test_a_table_that_the_older_attempt_made_is_dropped_where_it_cannot_be_taken_back(session: Any) -> None:
    append(session, 1, [(2, 2)])
    session.sql("update orders set n = 22 where id = 2")
    with pytest.raises(CommitConflict, match=r"append to table main\.orders.*That commit made the table: drop it"):
        append(session, 2, [(3, 3)])
    session.sql("drop table orders")
    append(session, 2, [(3, 3)])
    assert rows_in(session) == Counter([(3, 3)])


def test_an_append_of_which_others_changed_the_rows_is_compared(session: Any) -> None:
    make(session, [(1, 1)])
    append(session, 1, [(2, 2)])
    session.sql("update orders set n = 22 where id = 2")
    with pytest.raises(CommitConflict, match=r"append to table main\.orders.*Restore the table to version"):
        append(session, 2, [(3, 3)])
    assert append(session, 2, [(2, 2)]).replayed
    assert rows_in(session) == Counter([(1, 1), (2, 22)])


def test_a_write_that_reads_its_table_is_a_conflict_where_others_changed_rows(session: Any) -> None:
    make(session, [(1, 1)])
    first = sums(session, 1, [(1, 10)])
    session.execute("main.orders", WriteSpec("append"), table_of([(9, 9)]))
    with pytest.raises(
        CommitConflict,
        match=rf"main\.orders: an earlier attempt.*version {first.version}, which cannot be taken back: others have",
    ):
        sums(session, 2, [(1, 20)])
    assert rows_in(session) == Counter([(1, 11), (9, 9)])


def test_a_compaction_between_two_attempts_is_no_change_of_rows(session: Any) -> None:
    make(session, [(1, 1)])
    append(session, 0, [(2, 2)], work="other")
    sums(session, 1, [(1, 10)])
    session.sql("optimize orders")
    sums(session, 2, [(1, 20)])
    assert rows_in(session) == Counter([(1, 21), (2, 2)])


@pytest.mark.parametrize("mode", ["error", "ignore", "append", "merge"])
def test_a_table_that_an_older_attempt_made_is_made_anew(session: Any, mode: str) -> None:
    def write(number: int, rows: pa.Table) -> Commit:
        app = attempt(number)
        spec = MergeSpec(("id",), SUMS, app=app) if mode == "merge" else WriteSpec(mode, app=app)  # type: ignore[arg-type]
        return session.execute("main.orders", spec, rows)

    write(1, table_of([(1, 1)]))
    write(2, pa.table({"id": ["x"], "more": [True]}))
    assert session.sql("select * from orders").toArrow().to_pylist() == [{"id": "x", "more": True}]
    if mode in ("error", "ignore"):
        session.execute("main.orders", WriteSpec("append"), pa.table({"id": ["y"], "more": [False]}))
        with pytest.raises(CommitConflict, match="others have changed rows since"):
            write(3, table_of([(1, 1)]))


def test_all_appends_of_the_older_attempt_go_with_the_first_of_the_new_one(session: Any) -> None:
    make(session, [(0, 0)])
    for ordinal in range(3):
        append(session, 1, [(1, ordinal)], ordinal=ordinal)
    append(session, 2, [(2, 0)])
    assert rows_in(session) == Counter([(0, 0), (2, 0)])
    append(session, 2, [(2, 1)], ordinal=1)
    assert rows_in(session) == Counter([(0, 0), (2, 0), (2, 1)])


def test_two_works_that_append_to_one_table_take_back_their_own_rows(session: Any) -> None:
    make(session, [(0, 0)])
    append(session, 1, [(1, 1)], work="run/a")
    append(session, 1, [(2, 2)], work="run/b")
    append(session, 2, [(3, 3)], work="run/a")
    append(session, 2, [(4, 4)], work="run/b")
    assert rows_in(session) == Counter([(0, 0), (3, 3), (4, 4)])


def test_what_is_taken_back_and_what_is_added_are_one_version(session: Any) -> None:
    make(session, [(1, 1)])
    first = sums(session, 1, [(1, 10), (2, 2)])
    second = sums(session, 2, [(1, 20), (3, 3)])
    versions = [entry["version"] for entry in session.table("main.orders").history()]
    assert versions[:2] == [second.version, first.version]
    before = session.sql(f"select id, n from orders at (version => {first.version})").toArrow().to_pylist()
    assert Counter((row["id"], row["n"]) for row in before) == Counter([(1, 11), (2, 2)])
    assert second.to_dict()["retracted"] == {"version": first.version, "rows": 2}


def test_plain_deltalake_reads_what_the_newer_attempt_left(root: Path) -> None:
    """Marked files, files written anew and files that come back are read by a library that knows nothing of attempts."""
    from deltalake import DeltaTable

    for vectors in ("true", "false"):
        place = root / vectors
        with duckrun.connect(place) as session:
            session.execute(
                "main.orders",
                WriteSpec(
                    "error",
                    table_properties={"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"},
                ),
                table_of([(key, key) for key in range(50)]),
            )
            for number in (1, 2, 3):
                sums(session, number, [(number, 1000), (100 + number, 1)])
            session.execute("main.orders", DeleteSpec("id < 3", app=attempt(1, "delete")))
            session.execute("main.orders", DeleteSpec("id = 7", app=attempt(2, "delete")))
        expected = (
            Counter({(key, key): 1 for key in range(50) if key != 7})
            - Counter([(3, 3)])
            + Counter([(3, 1003), (103, 1)])
        )
        plain = DeltaTable(str(place / "main" / "orders"))
        reader = plain.to_pyarrow_table if vectors == "false" else None
        if reader is not None:
            assert Counter(zip(*(reader()[c].to_pylist() for c in ("id", "n")), strict=True)) == expected
        with duckrun.connect(place) as session:
            assert rows_in(session) == expected
            assert sum(file.rows or 0 for file in session.table("main.orders").snapshot().files()) >= 50


def test_a_merge_that_deletes_updates_and_inserts_is_made_again_as_often_as_it_is_run(session: Any) -> None:
    """The second takes back the first, and finds the rows again that it deletes; the last finds nothing to do, and takes back all the same."""
    clauses = (
        MergeClause("matched_delete", condition="source.n = 0"),
        MergeClause("matched_update", set={"n": "target.n + source.n"}),
        MergeClause("not_matched_insert"),
    )
    make(session, [(0, 0), (1, 10), (2, 20), (3, 30)])
    for number in (1, 2, 3):
        spec = MergeSpec(("id",), clauses, app=attempt(number))
        session.execute("main.orders", spec, table_of([(1, 5), (2, 0), (9, 1)]))
        assert rows_in(session) == Counter([(0, 0), (1, 15), (3, 30), (9, 1)])
    session.execute("main.orders", MergeSpec(("id",), clauses, app=attempt(4)), table_of([]))
    assert rows_in(session) == Counter([(0, 0), (1, 10), (2, 20), (3, 30)])


def test_a_query_of_the_table_as_it_was_gives_its_rows_once(session: Any) -> None:
    """Also where the commit that it is for puts rows back which the older attempt had changed."""
    make(session, [(0, 10), (1, 10), (2, 10)])
    base = session.table("orders").snapshot().version
    sums(session, 1, [(0, 5), (1, 5), (2, 5)])
    for number in (2, 3):
        total = session.sql(f"select 0::bigint as id, sum(n)::bigint as n from orders at (version => {base})")
        session.execute("orders", MergeSpec(("id",), SUMS, app=attempt(number)), total)
        assert rows_in(session) == {(0, 40): 1, (1, 10): 1, (2, 10): 1}
