"""``apply_changes()``: register the changes under a name, and merge them into the table.

If the table changes meanwhile, the merge is computed again.
"""

from __future__ import annotations

import uuid
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Protocol

from duckrun.changes.applying import Applying
from duckrun.engines.engine import Engine
from duckrun.engines.frame import LazyRows
from duckrun.errors import CommitConflict, InvalidConfig
from duckrun.frame import Frame
from duckrun.run.pins import Reads
from duckrun.sql.quoting import quote_identifier
from duckrun.statements.run import StatementSession
from duckrun.values.applying import ApplySpec
from duckrun.values.cursors import CursorTransaction
from duckrun.values.rows import NO_TABLE, Commit, ReadSpec
from duckrun.values.snapshot import Snapshot, TableRef

_RACES = 3
"""Attempts to create a table that other processes may create at the same time."""


class ApplySession(StatementSession, Protocol):
    """Part of a session that applies changes: its statements, and its rows as sources of writes."""

    def sql(self, text: str) -> Any: ...
    def snapshot(self, name: TableRef, spec: ReadSpec | None = None) -> Snapshot: ...
    def scan(self, name: TableRef, spec: ReadSpec | None = None) -> LazyRows: ...
    def computed(self, source: Any, engine: Engine) -> Any: ...
    def reads_of(self, source: Any) -> Reads: ...


def apply_changes(session: ApplySession, ref: TableRef, spec: ApplySpec, changes: Any) -> Commit:
    """Apply changes to a table, as one commit (see ``Session.apply_changes``).

    Args:
        session: The session, on the engine that writes.
    """
    why = changes.unfit_for_keys(spec.keys) if isinstance(changes, Frame) else None
    if why is not None:
        raise InvalidConfig(f"Changes of table {ref}: {why}.")
    engine = session.engine
    name = f"__duckrun_changes_{uuid.uuid4().hex}"
    rows = session.computed(changes, engine)
    if isinstance(rows, LazyRows) and rows.engine == engine.name and engine.temp_tables:
        engine.keep(name, rows)  # several queries read it, so compute it once
    else:
        engine.register(name, rows, session.reads_of(rows))
    try:
        for tried in range(1, _RACES + 1):
            there = session.lakes.of(ref).exists(ref)
            try:
                return _applied(session, ref, spec, name, there=there)
            except CommitConflict:
                if there or tried == _RACES or not session.lakes.of(ref).exists(ref):
                    raise  # no race: retry only if another process created the table meanwhile
        raise AssertionError("the last attempt returns or raises")
    finally:
        engine.forget(name)


def _applied(session: ApplySession, ref: TableRef, spec: ApplySpec, name: str, *, there: bool) -> Commit:
    changes, table = quote_identifier(name), f"{name}_table"
    columns = session.sql(f"SELECT * FROM {changes} LIMIT 0").columns
    for attempt in session.attempts(ref) if there else (nullcontext(),):
        with attempt:
            base = spec.app.base if isinstance(spec.app, CursorTransaction) else None
            # The same commit rolls back what came after the base.
            at = None if base in (None, NO_TABLE) else ReadSpec(version=base)
            target = session.snapshot(ref, at) if there and not spec.whole else None
            applying = Applying(ref, spec, columns, None if target is None else target.schema)
            for check in applying.checks(changes):
                check.refuse(ref, _rows_of(session, ref, check.query))
            if spec.whole:
                return session.execute(ref, applying.overwrite(), session.sql(applying.states(changes)))
            merge = applying.merge()
            if not there and spec.read_version is None and session.engine.can_fence(session.lakes.of(ref).storage):
                merge = replace(merge, read_version=NO_TABLE)
            if there:
                session.scan(ref, at).createOrReplaceTempView(table)
            try:
                source = session.sql(applying.source(changes, quote_identifier(table) if there else None))
                return session.execute(ref, merge, source)
            finally:
                session.engine.forget(table)
    raise AssertionError("the last attempt returns or raises")


def _rows_of(session: ApplySession, ref: TableRef, query: str) -> list[tuple[Any, ...]]:
    try:
        return [tuple(row.values()) for row in session.sql(query).collect()]
    except InvalidConfig as error:  # the caller's condition ``deletes`` is wrong
        raise InvalidConfig(f"Changes of table {ref}: {error}") from error
