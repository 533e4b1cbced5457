"""What is kept between two calls, and what can happen to its table in between: a model of the rows that each may then give."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from duckrun import AlterSpec, DuckrunError, OptimizeSpec, Scan, Session, WriteSpec
from duckrun.engines.frame import LazyRows
from duckrun.values.rows import StagedFile
from duckrun.values.tables import (
    AddCheck,
    AddColumn,
    ColumnSpec,
    RenameColumn,
    SetNotNull,
    SetProperties,
    VacuumSpec,
)
from duckrun.values.upkeep import CleanupSpec, ExpireSpec

Row = dict[str, Any]
FIRST: list[Row] = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
BEFORE: list[Row] = [*FIRST, {"id": 3, "v": "c"}]
STAGED: list[Row] = [{"id": 9, "v": None}]


def start(session: Session) -> int:
    """Make main.t, whose newest rows are BEFORE, and give the version that has FIRST."""
    version = session.execute("main.t", WriteSpec("error"), pa.Table.from_pylist(FIRST)).version
    session.execute("main.t", WriteSpec("append"), pa.Table.from_pylist(BEFORE[2:]))
    return version


@dataclass(frozen=True)
class Event:
    """Something that happens to main.t: what is done, and the rows that it has then; None where there is no such table."""

    act: Callable[[Session, int], Any]
    after: list[Row] | None
    format: str | None = None
    loses: frozenset[str] = frozenset()
    """The formats in which it takes away the rows that the table had, so that only an error is left."""


def _sql(text: str) -> Callable[[Session, int], Any]:
    return lambda s, first: s.sql(text)


def _spec(spec: Any) -> Callable[[Session, int], Any]:
    return lambda s, first: s.execute("main.t", spec)


def _made_anew(session: Session, first: int) -> None:
    session.sql("drop table t")
    session.execute("main.t", WriteSpec("error"), pa.table({"id": [7], "v": ["n"]}))
    session.execute("main.t", WriteSpec("append"), pa.table({"id": [8], "v": ["n"]}))


def _vacuumed(session: Session, first: int) -> None:
    session.sql("delete from t where id = 2")
    session.execute("main.t", VacuumSpec(0, enforce_retention=False))


def _expired(session: Session, first: int) -> None:
    session.sql("delete from t where id = 2")
    session.execute("main.t", OptimizeSpec())
    now = datetime.now(UTC) + timedelta(seconds=1)
    session.maintain(ExpireSpec(older_than=now))
    session.maintain(CleanupSpec(older_than=now))


BOTH, DELTA = frozenset({"delta", "ducklake"}), frozenset({"delta"})

EVENTS: dict[str, Event] = {
    "nothing": Event(lambda s, first: None, BEFORE),
    "append": Event(_sql("insert into t values (4, 'd')"), [*BEFORE, {"id": 4, "v": "d"}]),
    "overwrite": Event(
        lambda s, first: s.execute("main.t", WriteSpec("overwrite"), pa.table({"id": [5], "v": ["e"]})),
        [{"id": 5, "v": "e"}],
    ),
    "another schema": Event(_sql("create or replace table t as select 'x' as k"), [{"k": "x"}]),
    "another type": Event(_sql("create or replace table t as select 'x' as id, 'y' as v"), [{"id": "x", "v": "y"}]),
    "delete": Event(_sql("delete from t where id = 1"), BEFORE[1:]),
    "update": Event(_sql("update t set v = 'u' where id = 1"), [{"id": 1, "v": "u"}, *BEFORE[1:]]),
    "drop": Event(_sql("drop table t"), None, loses=DELTA),
    "drop and create": Event(_made_anew, [{"id": 7, "v": "n"}, {"id": 8, "v": "n"}], loses=DELTA),
    "rename": Event(_sql("alter table t rename to u"), None, loses=DELTA),
    "restore": Event(lambda s, first: s.table("t").restoreToVersion(first), FIRST),
    "vacuum": Event(_vacuumed, [BEFORE[0], BEFORE[2]], "delta", DELTA),
    "expire and cleanup": Event(_expired, [BEFORE[0], BEFORE[2]], "ducklake", BOTH),
    "optimize": Event(_spec(OptimizeSpec()), BEFORE),
    "add column": Event(_spec(AlterSpec((AddColumn(ColumnSpec("w", "INTEGER")),))), [{**r, "w": None} for r in BEFORE]),
    "drop column": Event(_sql("alter table t drop column v"), [{"id": row["id"]} for row in BEFORE]),
    "rename column": Event(
        _spec(AlterSpec((RenameColumn("v", "x"),))), [{"id": row["id"], "x": row["v"]} for row in BEFORE]
    ),
    "not null": Event(_spec(AlterSpec((SetNotNull("v"),))), BEFORE),
    "check": Event(_spec(AlterSpec((AddCheck("few", "id < 9"),))), BEFORE, "delta"),
    "property": Event(_spec(AlterSpec((SetProperties({"delta.appendOnly": "true"}),))), BEFORE, "delta"),
}
TAKES_STAGED = {
    "nothing", "append", "overwrite", "delete", "update", "restore", "optimize", "property", "expire and cleanup",
}  # fmt: skip
"""The events after which the staged rows fit the table as they are."""


def rows(value: LazyRows) -> list[Row]:
    return value.toArrow().to_pylist()


def _snapshot(session: Session) -> Callable[[], Any]:
    snapshot = session.table("t").snapshot()
    return lambda: rows(session.open(snapshot.scan()))


def _scan(session: Session) -> Callable[[], Any]:
    texts = [part.to_json() for part in session.table("t").snapshot().scan().split(2)]
    return lambda: [row for text in texts for row in rows(session.open(Scan.from_json(text)))]


def _frame(session: Session) -> Callable[[], Any]:
    frame = session.table("t").toDF()
    return lambda: rows(frame)


def _query(session: Session) -> Callable[[], Any]:
    frame = session.sql("select * from t")
    return lambda: rows(frame)


def _lazy(session: Session) -> Callable[[], Any]:
    frame = session.sql("select * from t").pl(lazy=True)
    return lambda: frame.collect().to_dicts()


def _temp_view(session: Session) -> Callable[[], Any]:
    session.sql("select * from t").createOrReplaceTempView("kept")
    return lambda: rows(session.sql("select * from kept"))


def _view(session: Session) -> Callable[[], Any]:
    session.sql("create view of_t as select * from t")
    return lambda: rows(session.sql("select * from of_t"))


def _table(session: Session) -> Callable[[], Any]:
    table = session.table("t")
    return lambda: rows(table.toDF())


def _changes(session: Session) -> Callable[[], Any]:
    changes = session.table("t").changes("min_delta", -1, key=["id"])
    return lambda: [{k: v for k, v in row.items() if not k.startswith("_")} for row in rows(changes)]


def _staged(session: Session) -> Callable[[], Any]:
    given = pa.Table.from_pylist(STAGED, schema=pa.schema([("id", pa.int64()), ("v", pa.string())]))
    texts = [file.to_json() for file in session.stage("main.t", given)]
    return lambda: session.commit_staged("main.t", [StagedFile.from_json(t) for t in texts], WriteSpec("append"))


OLD = {
    "snapshot": _snapshot, "scan": _scan, "frame": _frame, "query": _query, "lazy frame": _lazy, "temporary view": _temp_view,
}  # fmt: skip
"""What stands for the rows as they were."""
NEW = {"view": _view, "table": _table}
"""What stands for the rows as they are."""
HANDLES = {**OLD, **NEW, "changes": _changes, "staged": _staged}


def ordered(found: list[Row]) -> list[Row]:
    return sorted(found, key=repr)


def pairs(lake_format: str) -> list[tuple[str, str]]:
    """Each handle with each event that the format has. A DuckLake refuses to rename a table that a view reads."""
    return [
        (handle, event)
        for handle in HANDLES
        for event, happening in EVENTS.items()
        if happening.format in (None, lake_format) and (handle, event) != ("view", "rename")
    ]


def is_lost(lake_format: str, handle: str, event: str) -> bool:
    """True where the handle has to end in an error: the rows that it stands for are gone, or the table does not take the staged ones."""
    happening = EVENTS[event]
    if handle == "staged":
        return event not in TAKES_STAGED
    if handle in NEW:
        return happening.after is None
    # A scan and a change query of a DuckLake name its files, which this replaces at once.
    return lake_format in happening.loses or (lake_format == "ducklake" and (handle, event) in REPLACED)


REPLACED = {("scan", "optimize"), ("changes", "optimize")}


def check(session: Session, lake_format: str, handle: str, event: str) -> str:
    """Take a handle, let an event happen, use the handle: the rows of the model, or an error that names the table where there are
    none. Returns what came of it.
    """
    first = start(session)
    use = HANDLES[handle](session)
    happened = EVENTS[event]
    happened.act(session, first)
    lost = is_lost(lake_format, handle, event)
    try:
        found = use()
    except DuckrunError as error:
        assert lost, f"{handle} after {event}: {error}"
        assert re.search(r"\b(main[./])?t\b", str(error)), f"{handle} after {event}: the error names no table: {error}"
        result = type(error).__name__
    else:
        result = "rows"
        assert not lost, f"{handle} after {event}: {found}, and no error"
        if handle != "staged":
            old, new = ordered(BEFORE), None if happened.after is None else ordered(happened.after)
            allowed = new if handle in NEW else old
            assert ordered(found) == allowed, f"{handle} after {event}: {ordered(found)}, not {allowed}"
    after = happened.after
    if after is not None:
        added = STAGED if handle == "staged" and result == "rows" else []
        assert ordered(rows(session.table("t").toDF())) == ordered([*after, *added])
    return result
