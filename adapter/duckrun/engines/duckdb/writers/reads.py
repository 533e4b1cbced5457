"""What a write read of its target, and whether rows that others changed meanwhile fall in it.

A commit that lost its version may go on top of the others' only if the write would have been the same had it seen them. So each
write says, as SQL over rows of its target, which rows matter to it: those with its keys, those that its predicate is true for,
those of its partitions. The rows of the files that others added, and of those that they removed, are asked; in doubt they matter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import duckdb
from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.engines.duckdb.steady import is_steady
from duckrun.errors import DuckrunError
from duckrun.formats.commits import CommitRecord
from duckrun.run.transaction import Transaction
from duckrun.sql.names import fresh_name, quote_identifier, tree_in
from duckrun.values.cursors import CursorTransaction
from duckrun.values.partition_values import partition_key
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Read:
    """Which rows of its target a write depends on: a test of some files at a version, of the rows that they do not have at
    another one as well if that is given. ``name`` is for the log.
    """

    name: str
    meets: Callable[[Snapshot, Sequence[ScanFile], Snapshot | None], bool]


NOTHING = Read("nothing", lambda snapshot, files, other: False)
"""A write that is the same whatever the table holds."""
EVERYTHING = Read("everything", lambda snapshot, files, other: True)
"""A write that any other row could have made another one."""


def matching(cursor: duckdb.DuckDBPyConnection, predicate: str | None, *expressions: str) -> Read:
    """The rows for which a predicate over ``target`` is true (None: all); ``expressions`` are what else the write computes.
    With a subquery in any of them it depends on what the subquery reads; random() is true for any row.
    """
    if predicate is None or has_subquery(predicate, *expressions) or not is_steady(predicate, cursor):
        return EVERYTHING
    return _asked(cursor, "a predicate", lambda rows: f"SELECT 1 FROM ({rows}) AS target WHERE ({predicate})")


def joined(
    cursor: duckdb.DuckDBPyConnection, source: str, on: str, where: str | None = None, *, computes: Sequence[str] = ()
) -> Read:
    """The rows that some row of the source meets: ``on`` is over ``target`` and ``source``, ``where`` over the table's columns;
    ``computes`` are what else the write computes.
    """
    if has_subquery(on, where or "true", *computes) or not is_steady(f"({on}) AND ({where or 'true'})", cursor):
        return EVERYTHING

    def sql(rows: str) -> str:
        held = f"SELECT * FROM ({rows}) AS target" + ("" if where is None else f" WHERE ({where})")
        return f"SELECT 1 FROM ({held}) AS target JOIN ({source}) AS source ON ({on})"

    return _asked(cursor, "keys", sql)


def equal(
    keys: Sequence[str], compared: Mapping[str, str] | None = None, source: Mapping[str, str] = MappingProxyType({})
) -> str:
    """The condition that keys are equal, to what they are ``compared`` with where it is no column; NULL equals nothing.

    ``source`` has the source's column of a key where its name is another one.
    """
    said = {k: f"target.{quote_identifier(k)}" for k in keys} | {k: f"({v})" for k, v in (compared or {}).items()}
    return " AND ".join(f"{said[k]} = source.{quote_identifier(source.get(k, k))}" for k in keys)


def partitions(snapshot: Snapshot, staged: Iterable[ScanFile]) -> Read:
    """The rows in the partitions of some files."""
    present = {partition_key(f.partition_values, snapshot.schema, snapshot.partition_columns) for f in staged}

    def meets(now: Snapshot, files: Sequence[ScanFile], other: Snapshot | None) -> bool:
        return any(partition_key(f.partition_values, now.schema, now.partition_columns) in present for f in files)

    return Read("partitions", meets)


def _asked(cursor: duckdb.DuckDBPyConnection, name: str, sql: Callable[[str], str]) -> Read:
    def meets(snapshot: Snapshot, files: Sequence[ScanFile], other: Snapshot | None) -> bool:
        rows = f"SELECT * FROM {snapshot.scan_sql(files=files)}"
        if other is not None:
            rows = _without(snapshot, other, files)
        return cursor.execute(f"{sql(rows)} LIMIT 1").fetchone() is not None

    return Read(name, meets)


def _without(snapshot: Snapshot, other: Snapshot, files: Sequence[ScanFile]) -> str:
    """SELECT of the rows that some files have at one version and not at another, as other rows of them are deleted there."""
    taken = {*snapshot.schema.names, *other.schema.names}
    file, row = fresh_name("__duckrun_file", taken), fresh_name("__duckrun_row", taken)
    here, there = (each.scan_sql(files=files, file=file, row=row) for each in (snapshot, other))
    names = ", ".join(quote_identifier(name) for name in snapshot.schema.names)
    on = f"USING ({quote_identifier(file)}, {quote_identifier(row)})"
    return f"SELECT {names} FROM {here} AS here ANTI JOIN {there} AS there {on}"


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
        if isinstance(transaction.app, CursorTransaction) and other.operation.upper() == "RESTORE":
            return False
        if any(file.name in ours for file in other.removed):
            return False
    return read is NOTHING or not _meets_any(transaction, others, read)


def _meets_any(transaction: Transaction, others: Sequence[CommitRecord], read: Read) -> bool:
    """Whether some of several commits in a row changed rows that were read. Those that only add rows are asked by one query: a write beside
    a busy appender would else fall behind with each look at what it missed.
    """
    adding = [other for other in others if not any(file.changes_rows for file in other.removed)]
    names = {file.name for other in adding for file in other.added if file.changes_rows}
    if len(adding) > 1 and names and read is not EVERYTHING:
        try:
            last = transaction.version(others[-1].version)
            files = list(last.files().named(names).values())
            if len(files) == len(names):  # none was moved meanwhile
                if read.meets(last, files, None):
                    return True
                others = [other for other in others if other not in adding]
        except (DuckrunError, duckdb.Error) as error:
            log.info("table %s: the commits that only add are looked at one by one: %s", transaction.ref, error)
    return any(meets_commit(transaction, other, read) for other in others)


def meets_commit(transaction: Transaction, other: CommitRecord, read: Read) -> bool:
    """Whether the rows that a commit added or removed fall in what was read; a commit that only moves rows changes none."""
    added, removed = ({file.name for file in side if file.changes_rows} for side in (other.added, other.removed))
    if not added and not removed:
        return False
    if read is EVERYTHING:
        return True
    try:
        before, after = (transaction.version(number) for number in (other.version - 1, other.version))
        for snapshot, named, opposite in ((after, added, before), (before, removed, after)):
            files = list(snapshot.files().named(named).values())
            if len(files) < len(named):
                return True
            # a file on both sides has another deletion vector: the rows that only one of them has are what changed
            both = opposite.files().named(named)
            again, alone = list(both.values()), [f for f in files if f.spelled not in both]
            if (alone and read.meets(snapshot, alone, None)) or (again and read.meets(snapshot, again, opposite)):
                return True
    except (DuckrunError, duckdb.Error) as error:
        log.info(
            "table %s: whether version %s changed rows that matter is not known: %s",
            transaction.ref,
            other.version,
            error,
        )
        return True
    return False
