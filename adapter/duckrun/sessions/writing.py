"""Writes of a session: one spec on one table, changes by key, staged files."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from duckrun.engines.duckdb.rows.reads import matching, meets_commit
from duckrun.engines.duckdb.rows.source import SQL
from duckrun.errors import UnsupportedFeature, outcome_of
from duckrun.formats.commits import CommitRecord
from duckrun.run.pins import Reads, together
from duckrun.run.transaction import Transaction
from duckrun.run.transactions import transactions_on
from duckrun.sessions.apply import apply_changes
from duckrun.values.applying import ApplySpec
from duckrun.values.choices import EngineName
from duckrun.values.options import given
from duckrun.values.rows import Commit, Returning, RowSpec, Spec
from duckrun.values.snapshot import TableRef
from duckrun.values.tables import MaintenanceResult, TableSpec

if TYPE_CHECKING:
    from duckrun.session import Session


def execute(
    session: Session,
    ref: TableRef,
    spec: RowSpec | ApplySpec | TableSpec,
    source: Any | None,
    engine: EngineName,
    reads: Reads,
    returning: Returning | None,
) -> Commit | MaintenanceResult:
    """Carry out one spec on a table (see ``Session.execute``)."""
    with outcome_of(given(spec, (Spec, ApplySpec), "spec", "execute()").mode, ref):
        if isinstance(spec, ApplySpec):
            return apply_changes(session, ref, spec, source, engine=engine)
        return _execute(session, ref, spec, source, engine, reads, returning)


def _execute(
    session: Session,
    ref: TableRef,
    spec: RowSpec | TableSpec,
    source: Any | None,
    engine: EngineName,
    reads: Reads,
    returning: Returning | None,
) -> Commit | MaintenanceResult:
    transaction = transaction_of(session, ref, spec)
    transaction.returning = returning
    chosen = session.engine_to_write(engine, source, ref)
    if (opened := session.transactions.opened) is not None:
        if transaction.lake is not opened.lake:
            raise UnsupportedFeature(
                f"{ref} is of lake {transaction.lake.root}, and the transaction that is open is of lake "
                f"{opened.lake.root}: no commit spans two lakes. Write to it before or after"
            )
        transactions_on(transaction.lake, chosen.name)
    chosen.reach(transaction.lake)
    if chosen.name == "duckdb" and transaction.lake.format.logs is not None and spec.writer == "auto":
        spec = replace(spec, writer=session.writer)

    for attempt in session.attempts(ref) if isinstance(source, SQL) else (nullcontext(),):
        with attempt:
            rows = session.computed(source, chosen)
            transaction.fence.reads = None if isinstance(spec, TableSpec) else together(reads, session.reads_of(rows))
            return chosen.execute(spec, rows, transaction, lambda: session.embedded)
    raise AssertionError("the last attempt returns or raises")


def transaction_of(session: Session, ref: TableRef, spec: Spec | None = None) -> Transaction:
    """Return the commit of one write, with the versions and the log of the session."""

    def meets(transaction: Transaction, other: CommitRecord, predicate: str) -> bool:
        """True if another writer's commit changed rows of a predicate, or may have."""
        return meets_commit(transaction, other, matching(session.embedded.cursor(), predicate))

    app, words = (None, None) if spec is None else (spec.app, spec.commit_metadata)
    lake, pins = session.lakes.of(ref), session.fixed_pins
    return Transaction(lake, ref, app=app, pins=pins, log=session.log, sees=meets, metadata=words)
