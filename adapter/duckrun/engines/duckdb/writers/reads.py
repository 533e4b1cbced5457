"""What a write read of its target, and whether rows that others changed meanwhile fall in it.

A commit that lost its version may go on top of the others' only if the write would have been the same had it seen them. So each
write says, as SQL over rows of its target, which rows matter to it: those with its keys, those that its predicate is true for,
those of its partitions. The rows of the files that others added, and of those that they removed, are asked; in doubt they matter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import duckdb
from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.engines.duckdb.steady import is_steady
from duckrun.errors import DuckrunError
from duckrun.formats.format import CommitRecord
from duckrun.run.transaction import Transaction
from duckrun.sql.names import quote_identifier, tree_in
from duckrun.values.partition_values import partition_key
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Read:
    """Which rows of its target a write depends on: a test of some files at a version. ``name`` is for the log."""

    name: str
    meets: Callable[[Snapshot, Sequence[ScanFile]], bool]


NOTHING = Read("nothing", lambda snapshot, files: False)
"""A write that is the same whatever the table holds."""
EVERYTHING = Read("everything", lambda snapshot, files: True)
"""A write that any other row could have made another one."""


def matching(cursor: duckdb.DuckDBPyConnection, predicate: str | None, *expressions: str) -> Read:
    """The rows for which a predicate over ``target`` is true (None: all); ``expressions`` are what else the write computes.
    With a subquery in any of them it depends on what the subquery reads; random() is true for any row.
    """
    if predicate is None or has_subquery(predicate, *expressions) or not is_steady(predicate, cursor):
        return EVERYTHING
    return _asked(cursor, "a predicate", lambda rows: f"SELECT 1 FROM ({rows}) AS target WHERE ({predicate}) IS TRUE")


def joined(cursor: duckdb.DuckDBPyConnection, source: str, on: str, where: str | None = None) -> Read:
    """The rows that some row of the source meets: ``on`` is over ``target`` and ``source``, ``where`` over the table's columns."""
    if has_subquery(on, where or "true") or not is_steady(f"({on}) AND ({where or 'true'})", cursor):
        return EVERYTHING

    def sql(rows: str) -> str:
        held = f"SELECT * FROM ({rows}) AS target" + ("" if where is None else f" WHERE ({where}) IS TRUE")
        return f"SELECT 1 FROM ({held}) AS target JOIN ({source}) AS source ON ({on}) IS TRUE"

    return _asked(cursor, "keys", sql)


def equal(keys: Sequence[str], compared: Mapping[str, str] | None = None) -> str:
    """The condition that keys are equal, to what they are ``compared`` with where it is no column; NULL equals nothing."""
    said = {k: f"target.{quote_identifier(k)}" for k in keys} | {k: f"({v})" for k, v in (compared or {}).items()}
    return " AND ".join(f"{said[k]} = source.{quote_identifier(k)}" for k in keys)


def partitions(snapshot: Snapshot, staged: Iterable[ScanFile]) -> Read:
    """The rows in the partitions of some files."""
    present = {partition_key(f.partition_values, snapshot.schema, snapshot.partition_columns) for f in staged}

    def meets(now: Snapshot, files: Sequence[ScanFile]) -> bool:
        return any(partition_key(f.partition_values, now.schema, now.partition_columns) in present for f in files)

    return Read("partitions", meets)


def _asked(cursor: duckdb.DuckDBPyConnection, name: str, sql: Callable[[str], str]) -> Read:
    def meets(snapshot: Snapshot, files: Sequence[ScanFile]) -> bool:
        rows = f"SELECT * FROM {snapshot.scan_sql(files=files)}"
        return cursor.execute(f"{sql(rows)} LIMIT 1").fetchone() is not None

    return Read(name, meets)


def has_subquery(*expressions: str) -> bool:
    """True if an expression may read more than its row."""
    try:
        return any(tree_in(text, "duckdb").find(exp.Query) is not None for text in expressions)
    except SqlglotError:
        return True


def may_go_on_top(
    transaction: Transaction, others: Iterable[CommitRecord], removed: Iterable[ScanFile], read: Read
) -> bool:
    """False if a commit between changed the table's definition, is of the same application, removed a file of ours, or changed rows
    that the write depends on.
    """
    others = list(others)
    if transaction.outdated_by(others):
        return False
    ours = {file.spelled for file in removed}
    for other in others:
        if other.changes_metadata or (
            transaction.app is not None and any(t.app_id == transaction.app.app_id for t in other.transactions)
        ):
            return False
        if any(file.name in ours for file in other.removed):
            return False
        if read is not NOTHING and meets_commit(transaction, other, read):
            return False
    return True


def meets_commit(transaction: Transaction, other: CommitRecord, read: Read) -> bool:
    """Whether the rows that a commit added or removed fall in what was read; a commit that only moves rows changes none."""
    for version, changes in ((other.version, other.added), (other.version - 1, other.removed)):
        named = {file.name for file in changes if file.changes_rows}
        if not named:
            continue
        if read is EVERYTHING:
            return True
        try:
            snapshot = transaction.lake.format.snapshot(transaction.ref, version)
            files = [f for f in snapshot.files() if f.spelled in named]
            if len(files) < len(named) or read.meets(snapshot, files):
                return True
        except (DuckrunError, duckdb.Error) as error:
            log.info(
                "table %s: whether version %s changed rows that matter is not known: %s",
                transaction.ref,
                version,
                error,
            )
            return True
    return False
