"""One table, one write of ours and one commit of somebody else's in between: what may come of it, by a model in Python.

The other writer is plain deltalake, which knows nothing of our lock. What the table holds in the end is what one of the two
orders gives, or ours is an error and the table is as the other left it.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, QueryBuilder, write_deltalake
from deltalake.schema import PrimitiveType

from duckrun.engines.duckdb.writers import delta_rs, staged
from duckrun.engines.tables import LogTableJob
from duckrun.run.transaction import Transaction

Rows = list[dict[str, Any]]
COLUMNS = ("id", "v", "n", "p")
START: Rows = [
    {"id": 1, "v": "x", "n": 10, "p": "a"},
    {"id": 2, "v": "y", "n": 20, "p": "a"},
    {"id": 3, "v": "z", "n": 30, "p": "b"},
]
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("n", pa.int64()), ("p", pa.string())])


def arrow(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def make(location: Path, *, partitioned: bool = True, marking: bool = False) -> None:
    """The table as it is before the race: two commits of plain deltalake, so that a compaction has something to do. ``marking``: its
    rows leave it by deletion vectors, as a third commit says.
    """
    for part in (START[:1], START[1:]):
        write_deltalake(location, arrow(part), mode="append", partition_by=["p"] if partitioned else None)
    if not marking:
        return
    log = location / "_delta_log"
    actions = map(json.loads, (log / f"{0:020d}.json").read_text().splitlines())
    definition = next(action["metaData"] for action in actions if "metaData" in action)
    features = {
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors", "appendOnly", "invariants"],
    }
    changed = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"metaData": {**definition, "configuration": {"delta.enableDeletionVectors": "true"}}},
    ]
    (log / f"{2:020d}.json").write_text("\n".join(map(json.dumps, changed)))


def held(location: Path) -> Counter[tuple[Any, ...]]:
    """The rows that an independent reader finds."""
    engine = QueryBuilder().register("found", DeltaTable(location))
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    return counted(pa.table(engine.execute(f"SELECT {names} FROM found").read_all()).to_pylist())


def counted(rows: Rows) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in COLUMNS) for row in rows)


# -- what the other does

Change = Callable[[Rows], Rows]


@dataclass(frozen=True)
class Foreign:
    """A commit of the other's: what it does to the log, and what that does to the rows."""

    name: str
    commit: Callable[[str], Any]
    change: Change
    keeps_rows: bool = False


def _append(rows: Rows) -> Foreign:
    return Foreign("", lambda at: write_deltalake(at, arrow(rows), mode="append"), lambda before: [*before, *rows])


UNRELATED = [{"id": 7, "v": "f", "n": 70, "p": "b"}]
OURS_TOO = [{"id": 4, "v": "f", "n": 40, "p": "a"}, {"id": 9, "v": "f", "n": 90, "p": "a"}]

OTHERS = [{"id": 2, "v": "f", "n": 21, "p": "b"}, {"id": 9, "v": "f", "n": 91, "p": "a"}]


def _merge(location: str, rows: Rows) -> None:
    """Update or insert by id, as deltalake does it."""
    merger = DeltaTable(location).merge(arrow(rows), "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


CREATED = [{"id": 2, "v": "new", "n": 1, "p": "a"}, {"id": 8, "v": "new", "n": 2, "p": "b"}]


def _create_again(location: str) -> None:
    """The same number of commits by another table of the same columns."""
    partitions = DeltaTable(location).metadata().partition_columns
    version = DeltaTable(location).version()
    shutil.rmtree(location)
    for rows in (CREATED[:1], CREATED[1:]):
        write_deltalake(location, arrow(rows), mode="append", partition_by=partitions or None)
    while DeltaTable(location).version() < version:
        DeltaTable(location).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    assert DeltaTable(location).version() == version


FOREIGN = (
    Foreign("append of another key", _append(UNRELATED).commit, _append(UNRELATED).change),
    Foreign("append of our keys", _append(OURS_TOO).commit, _append(OURS_TOO).change),
    Foreign(
        "delete of a row of ours",
        lambda at: DeltaTable(at).delete("id = 2"),
        lambda rows: [row for row in rows if row["id"] != 2],
    ),
    Foreign(
        "update",
        lambda at: DeltaTable(at).update({"n": "n + 1000"}, predicate="id = 2"),
        lambda rows: [{**row, "n": row["n"] + 1000} if row["id"] == 2 else row for row in rows],
    ),
    Foreign("compaction", lambda at: DeltaTable(at).optimize.compact(), lambda rows: rows, True),
    Foreign(
        "property",
        lambda at: DeltaTable(at).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"}),
        lambda rows: rows,
        True,
    ),
    Foreign(
        "column",
        lambda at: DeltaTable(at).alter.add_columns(Field("extra", PrimitiveType("string"))),
        lambda rows: rows,
    ),
    Foreign(
        "overwrite",
        lambda at: write_deltalake(at, arrow(OTHERS), mode="overwrite"),
        lambda rows: OTHERS,
    ),
    Foreign(
        "merge",
        lambda at: _merge(at, OTHERS),
        lambda rows: [*(row for row in rows if row["id"] not in {2, 9}), *OTHERS],
    ),
    Foreign(
        "delete of another row",
        lambda at: DeltaTable(at).delete("id = 3"),
        lambda rows: [row for row in rows if row["id"] != 3],
    ),
)
CREATED_AGAIN = Foreign("drop and create", lambda at: _create_again(at), lambda rows: CREATED)
"""What is written before the commit goes with the older table, so that ours may fail whatever it was computed from."""


# -- what we do


@dataclass(frozen=True)
class Source:
    """Where the rows of a write come from: a query with the table as ``{t}``, and the same in Python."""

    name: str
    query: str
    rows: Change


CONSTANT = [{"id": 2, "v": "ours", "n": 200, "p": "a"}, {"id": 9, "v": "ours", "n": 900, "p": "a"}]
SOURCES = (
    Source(
        "constant",
        "select 2::bigint as id, 'ours' as v, 200::bigint as n, 'a' as p union all select 9::bigint, 'ours', 900::bigint, 'a'",
        lambda rows: CONSTANT,
    ),
    Source(
        "of itself",
        "select max(id) + 1 as id, 'new' as v, coalesce(sum(n), 0)::bigint as n, 'a' as p from {t}",
        lambda rows: [
            {"id": max(row["id"] for row in rows) + 1, "v": "new", "n": sum(row["n"] for row in rows), "p": "a"}
        ],
    ),
)
CONSTANT_SOURCE, OF_ITSELF = SOURCES


def _without(rows: Rows, keep: Callable[[dict[str, Any]], bool]) -> Rows:
    return [row for row in rows if keep(row)]


def _by_key(rows: Rows, given: Rows) -> Rows:
    keys = {row["id"] for row in given}
    return [*_without(rows, lambda row: row["id"] not in keys), *given]


MODES: dict[str, Callable[[Rows, Rows], Rows]] = {
    "append": lambda rows, given: [*rows, *given],
    "overwrite": lambda rows, given: given,
    "replace": lambda rows, given: [*_without(rows, lambda row: row["p"] not in {g["p"] for g in given}), *given],
    "replace_where": lambda rows, given: [*_without(rows, lambda row: row["p"] != "a"), *given],
    "merge": _by_key,
    "delete_insert": _by_key,
}
"""What each mode makes of a table's rows and the source's."""


@dataclass(frozen=True)
class Write:
    """One write of ours in Python: what it makes of the rows that it finds."""

    mode: str
    source: Source

    def __call__(self, rows: Rows) -> Rows:
        return MODES[self.mode](rows, self.source.rows(rows))


def judge(location: Path, foreign: Foreign, ours: Change, error: BaseException | None, *, of_itself: bool) -> None:
    """Fail unless the table is what one order of the two gives, or ours failed and it is as the other left it."""
    found = held(location)
    after_foreign = foreign.change(START)
    if error is not None:
        assert found == counted(after_foreign), f"an error, and yet something was written: {error}"
        assert not foreign.keeps_rows, f"{foreign.name} changes no row, and is no reason for {error!r}"
        assert "main." in str(error), error
        return
    orders = [counted(ours(after_foreign))]
    if not of_itself:
        orders.append(counted(foreign.change(ours(START))))
    assert found in orders, f"{sorted(found)} is neither of {[sorted(order) for order in orders]}"


# -- when the other comes

MOMENTS = ("before the write", "after the snapshot", "before the commit")


class LetIn:
    """Lets commits of somebody else's in, once for each table: before a write of ours begins, between its snapshot and its work,
    or between its work and its commit; also where no lock is held, as on a store.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._waiting: dict[tuple[str, str], Foreign] = {}
        for module, name in (
            (staged, "commit"),
            (Transaction, "commit"),
            (LogTableJob, "_restore"),
            *((delta_rs.DeltaRs, each) for each in ("write", "_merged")),
        ):
            monkeypatch.setattr(module, name, self._hooked(getattr(module, name), "before the commit"))
        monkeypatch.setattr(Transaction, "run", self._hooked(self._split(Transaction.run), "before the write"))
        self._monkeypatch = monkeypatch

    def next(self, location: Path, moment: str, foreign: Foreign) -> None:
        self._waiting[str(location), moment] = foreign

    def lock_away(self) -> None:
        self._monkeypatch.setattr(Transaction, "locked", lambda self: nullcontext())

    def came(self) -> bool:
        """Whether all were let in."""
        return not self._waiting

    def _split(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Let the other in between the snapshot that a transaction has read and the attempt that works with it."""

        def running(transaction: Transaction, attempt: Callable[..., Any], **kwargs: Any) -> Any:
            late = self._hooked(lambda _, snapshot: attempt(snapshot), "after the snapshot")
            return run(transaction, lambda snapshot: late(transaction, snapshot), **kwargs)

        return running

    def _hooked(self, work: Callable[..., Any], moment: str) -> Callable[..., Any]:
        def hooked(first: Transaction | LogTableJob | delta_rs.DeltaRs, *args: Any, **kwargs: Any) -> Any:
            ref = (first._transaction if isinstance(first, delta_rs.DeltaRs) else first).ref
            foreign = self._waiting.pop((ref.location, moment), None)
            if foreign is not None:
                foreign.commit(ref.location)
            return work(first, *args, **kwargs)

        return hooked


def named(values: Sequence[Any]) -> list[str]:
    return [value.name for value in values]
