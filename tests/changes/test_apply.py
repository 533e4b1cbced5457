"""apply_changes(): the last state of each key, and all of its states, whatever the order in which the changes come."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import AppTransaction, InvalidConfig, SchemaMismatch, Session, WriteSpec
from tests.drawing import everything, seed
from tests.lake import rows_of

TYPES = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.int64()), ("_change_type", pa.string())])
Change = tuple[int, str | None, int, str]


def some(*changes: Change) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(TYPES.names, change, strict=True)) for change in changes], schema=TYPES)


FIRST = some((1, "a", 10, "insert"), (1, "b", 20, "update_postimage"), (2, "x", 5, "insert"))
LATE = some((1, "c", 15, "insert"), (2, "x", 9, "delete"), (3, "q", 7, "delete"))


def test_a_history_takes_late_rows_and_deletions_where_they_belong(session: Session) -> None:
    session.apply_changes("main.dim", FIRST, keys="id", sequence_by="at", scd=2)
    assert rows_of(session.table("main.dim").toDF()) == [
        (1, "a", 10, 10, 20),
        (1, "b", 20, 20, None),
        (2, "x", 5, 5, None),
    ]
    session.apply_changes("main.dim", LATE, keys=["id"], sequence_by="at", scd=2)
    assert rows_of(session.table("main.dim").toDF()) == [
        (1, "a", 10, 10, 15),
        (1, "b", 20, 20, None),
        (1, "c", 15, 15, 20),
        (2, "x", 5, 5, 9),
        (3, None, None, 7, 7),  # a deletion whose row is not there yet: an empty interval
    ]
    session.apply_changes("main.dim", some((3, "late", 4, "insert")), keys=["ID"], sequence_by="AT", scd=2)
    assert rows_of(session.sql("select name, valid_from, valid_to from main.dim where id = 3")) == [("late", 4, 7)]
    assert session.sql("select count(*) as n from main.dim where valid_to is null").collect() == [{"n": 1}]


def test_the_last_state_of_each_key(session: Session) -> None:
    session.apply_changes("main.last", FIRST, keys="id", sequence_by="at")
    assert rows_of(session.table("main.last").toDF()) == [(1, "b", 20), (2, "x", 5)]
    late = some(
        (1, "older", 19, "update_postimage"), (2, "x", 5, "delete"), (4, "new", 1, "insert"), (4, "n", 2, "insert")
    )
    session.apply_changes("main.last", late, keys="id", sequence_by="at")
    assert rows_of(session.table("main.last").toDF()) == [(1, "b", 20), (4, "n", 2)]


def test_changes_that_are_there_already_make_no_version(session: Session) -> None:
    for scd in (1, 2):
        for again in range(2):
            commit = session.apply_changes(f"main.t{scd}", FIRST, keys="id", sequence_by="at", scd=scd)  # type: ignore[arg-type]
            assert (commit.version, commit.writer == "none") == (0, bool(again))


def test_an_answer_of_a_change_query_is_applied(session: Session) -> None:
    rows = "select * from (values (1, 'a', 1), (2, 'b', 1)) v(id, name, n)"
    session.execute("main.source", WriteSpec("overwrite"), duckrun.SQL(rows))
    session.sql("update main.source set name = 'c', n = 2 where id = 1")
    session.sql("delete from main.source where id = 2")
    source = session.table("main.source")
    for first, last in ((-1, 0), (0, 1), (1, 2)):
        changes = source.changes("full_delta", first, last, key=["id"])
        session.apply_changes("main.dim", changes, keys="id", sequence_by="_commit_version", scd=2)
        session.apply_changes("main.last", changes, keys="id", sequence_by="_commit_version")
    expected = [(1, "a", 1, 0, 1), (1, "c", 2, 1, None), (2, "b", 1, 0, 2)]
    assert rows_of(session.table("main.dim").toDF()) == expected
    assert rows_of(session.table("main.last").toDF()) == [(1, "c", 2, 1)]
    whole = source.changes("full_delta", -1, key=["id"])
    session.apply_changes("main.at_once", whole, keys="id", sequence_by="_commit_version", scd=2)
    assert rows_of(session.table("main.at_once").toDF()) == expected
    with pytest.raises(InvalidConfig, match=r"tell rows apart by nothing: ask for them by key=\['id'\]"):
        session.apply_changes("main.dim", source.changes("min_delta", 0), keys="id", sequence_by="n")
    assert rows_of(session.table("main.dim").toDF()) == expected


def test_a_row_whose_key_changed_leaves_its_old_key(session: Session) -> None:
    feed = pa.table(
        {
            "id": [1, 2, 1],
            "name": ["a", "b", "a"],
            "_change_type": ["insert", "update_postimage", "update_preimage"],
            "_commit_version": [0, 1, 1],
        }
    )
    session.apply_changes("main.dim", feed, keys="id", sequence_by="_commit_version", scd=2)
    assert rows_of(session.table("main.dim").toDF()) == [(1, "a", 0, 1), (2, "b", 1, None)]


def test_which_rows_delete_and_which_columns_are_stored(session: Session) -> None:
    rows = "select * from (values (1, 'a', 10, 'I'), (2, 'b', 10, 'I'), (1, 'a', 11, 'D')) v(id, name, n, op)"
    for replayed in (False, True):
        commit = session.apply_changes(
            "main.last",
            duckrun.SQL(rows),
            keys="id",
            sequence_by="n",
            deletes="op = 'D'",
            columns=["name"],
            app=AppTransaction("load"),
        )
        assert (commit.version, commit.replayed) == (0, replayed)
    assert rows_of(session.table("main.last").toDF()) == [(2, "b", 10)]
    session.apply_changes("main.kept", FIRST, keys="id", sequence_by="at", deletes=False)
    session.apply_changes("main.kept", LATE, keys="id", sequence_by="at", deletes=False)
    assert rows_of(session.table("main.kept").toDF(), "id", "name") == [(1, "b"), (2, "x")]


@pytest.mark.parametrize(
    ("changes", "options", "error", "words"),
    [
        (some((1, "a", 1, "insert"), (1, "b", 1, "insert")), {}, SchemaMismatch, r"2 of them have the key.*id = 1, at = 1 \(2 times\)"),
        (pa.table({"id": [1, None], "at": [1, 2]}), {}, SchemaMismatch, r"1 of them have a NULL in the key \(id\).*id = None, at = 2"),
        (pa.table({"id": [1, 2], "at": [1, None]}), {}, SchemaMismatch, r"1 of them have a NULL.*id = 2, at = None"),
        (FIRST, {"keys": ["nr"]}, InvalidConfig, "keys names nr, which they do not have; they have id, name, at, _change_type"),
        (FIRST, {"sequence_by": "time"}, InvalidConfig, "sequence_by names time"),
        (FIRST, {"scd": 3}, InvalidConfig, "scd is 3; it takes one of 1, 2"),
        (FIRST, {"sequence_by": None}, SchemaMismatch, "of another that differs, and no sequence_by says which is the last: id = 1"),
        (FIRST, {"deletes": "op = 'D'"}, InvalidConfig, r"(?s)Changes of table main.last: .*op"),
        (FIRST, {"keys": []}, InvalidConfig, "name at least one key"),
        (pa.table({"id": [1], "at": [1], "Valid_To": [2]}), {"scd": 2}, SchemaMismatch, "column Valid_To has the name"),
        (some((2, "x", 5, "delete")), {"scd": 2}, InvalidConfig, "deletes key 2 has the same at, 5, as the row that it deletes"),
        (FIRST.select(["id", "at"]).rename_columns(["id", "other"]), {"sequence_by": "other"}, SchemaMismatch, "has no column other"),
    ],
)  # fmt: skip
def test_what_cannot_be_applied_is_refused_and_nothing_is_lost(
    duck: Session, changes: pa.Table, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    duck.apply_changes("main.dim", FIRST, keys="id", sequence_by="at", scd=2)
    duck.apply_changes("main.last", FIRST, keys="id", sequence_by="at")
    asked = {"keys": "id", "sequence_by": "at", **options}
    name = "main.dim" if asked.get("scd", 1) == 2 else "main.last"
    with pytest.raises(error, match=words):
        duck.apply_changes(name, changes, **asked)
    assert duck.table(name).snapshot().version == 0


def test_ties_that_say_the_same_are_one(duck: Session) -> None:
    duck.apply_changes(
        "main.dim", some((1, "a", 1, "insert"), (1, "a", 1, "insert")), keys="id", sequence_by="at", scd=2
    )
    assert rows_of(duck.table("main.dim").toDF()) == [(1, "a", 1, 1, None)]
    duck.apply_changes(
        "main.dim", some((1, "a", 1, "delete"), (1, "b", 1, "insert")), keys="id", sequence_by="at", scd=2
    )
    assert rows_of(duck.table("main.dim").toDF()) == [(1, "b", 1, 1, None)]  # a row goes over a deletion at its point


def states_of(events: Sequence[Change], scd: int) -> list[tuple[Any, ...]]:
    """What a table holds after some changes, in plain Python: no two of them have one key and one point."""
    found: list[tuple[Any, ...]] = []
    for key in sorted({event[0] for event in events}):
        own = sorted((event for event in events if event[0] == key), key=lambda event: event[2])
        if scd == 1:
            found += [(*own[-1][:3],)] if own[-1][3] != "delete" else []
            continue
        open_ = False
        for number, (_, name, at, kind) in enumerate(own):
            until = own[number + 1][2] if number + 1 < len(own) else None
            if kind != "delete":
                found.append((key, name, at, at, until))
            elif not open_:
                found.append((key, None, None, at, at))
            open_ = kind != "delete"
    return sorted(found, key=repr)


def batches(rng: random.Random, events: list[Change]) -> list[list[Change]]:
    left, found = rng.sample(events, len(events)), []
    while left:
        count = rng.randint(1, max(1, len(events) // 2))
        found.append(left[:count])
        left = left[count:]
    return found


def random_events(rng: random.Random) -> list[Change]:
    points = {(rng.randint(1, 4), rng.randint(1, 12)) for _ in range(rng.randint(3, 20))}
    kinds = ["insert", "update_postimage", "delete"]
    return [(key, rng.choice(["a", "b", None]), at, rng.choice(kinds)) for key, at in sorted(points)]


def _histories(most: int, engine: str) -> int:
    """Number of random histories: half of them every day."""
    return 1 if engine == "spark" else most if everything() else most // 2


def test_a_history_is_the_same_in_whatever_order_and_batches_its_changes_come(session: Session, engine: str) -> None:
    rng = random.Random(seed())
    for number in range(_histories(12, engine)):
        events = random_events(rng)
        mode = rng.choice(["true", "false"])
        properties = {"delta.enableDeletionVectors": mode}
        name = f"main.dim{number}"
        for batch in batches(rng, events):
            if not session.lake.exists(session.ref(name)):
                empty = pa.schema(
                    [*list(TYPES)[:3], ("valid_from", pa.int64()), ("valid_to", pa.int64())]
                ).empty_table()
                session.execute(name, WriteSpec("error", table_properties=properties), empty)
            again = batch + rng.sample([e for e in events if e in batch], rng.randint(0, len(batch)))  # some come twice
            session.apply_changes(name, some(*again), keys="id", sequence_by="at", scd=2)
        assert rows_of(session.table(name).toDF()) == states_of(events, 2), (seed(), number, events)


def test_the_last_state_is_the_same_in_whatever_batches_its_changes_come(session: Session, engine: str) -> None:
    rng = random.Random(seed() + 1)
    for number in range(_histories(8, engine)):
        events = [event for event in random_events(rng) if event[3] != "delete"] or [(1, "a", 1, "insert")]
        for batch in batches(rng, events):
            session.apply_changes(f"main.t{number}", some(*batch), keys="id", sequence_by="at")
        assert rows_of(session.table(f"main.t{number}").toDF()) == states_of(events, 1), (seed(), number, events)


def test_kinds_of_columns_and_odd_names(session: Session) -> None:
    rows = pa.table(
        {
            'a"key': ["x", "x"],
            "select": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 2, tzinfo=dt.UTC)],
            "s": [{"f": 1, "g": [1, 2]}, {"f": 2, "g": None}],
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "__duckrun_at": [1, 2],
        }
    )
    for _ in range(2):
        session.apply_changes("main.odd", rows, keys='a"key', sequence_by="select", scd=2)
    found = rows_of(session.table("main.odd").toDF(), "__duckrun_at", "valid_from", "valid_to")
    first, second = rows.column("select").to_pylist()
    assert found == [(1, first, second), (2, second, None)]


def _apply(root: str, number: int) -> None:
    with duckrun.connect(root) as opened:
        for at in range(6):
            rows = some((1, f"{number}.{at}", at * 4 + number, "insert"), (number, "own", at, "insert"))
            opened.apply_changes("main.dim", rows, keys="id", sequence_by="at", scd=2)


@pytest.mark.slow
def test_processes_that_apply_changes_of_one_key_at_once_leave_no_gap(duck: Session) -> None:
    """The table is made in the race too; each reads what the others have written before it says where an interval ends."""
    context = multiprocessing.get_context("spawn")
    running = [context.Process(target=_apply, args=(duck.lake.root, number)) for number in (0, 2, 3)]
    for process in running:
        process.start()
    for process in running:
        process.join(300)
    assert [process.exitcode for process in running] == [0, 0, 0]
    found = rows_of(duck.sql("select valid_from, valid_to from main.dim where id = 1"))
    points = sorted(at * 4 + number for at in range(6) for number in (0, 2, 3))
    assert sorted(found) == [(p, q) for p, q in zip(points, [*points[1:], None], strict=True)]
