"""The rows of its target that a write depends on, to detect conflicts with other commits.

A commit that lost its version may be rebased onto the others only if they do not change its result.
So each write describes the rows that it depends on, as SQL over its target: rows with its keys,
rows that satisfy its predicate, rows of its partitions. This SQL runs on the files that the other
commits added and removed. In doubt there is a conflict.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import date, datetime
from functools import partial
from types import MappingProxyType

import duckdb

from duckrun.engines.duckdb.instance.steady import is_steady
from duckrun.engines.duckdb.rows.ranges import is_outside, ranges_of, ranges_of_keys
from duckrun.errors import DuckrunError
from duckrun.formats.commits import CommitRecord
from duckrun.libraries import exp, sqlglot
from duckrun.run.transaction import Transaction
from duckrun.sql.on_demand import dialects
from duckrun.sql.quoting import fresh_name, quote_identifier, quote_literal, quoted_list
from duckrun.values.cursors import CursorTransaction
from duckrun.values.frozen import frozen
from duckrun.values.partition_values import partition_key
from duckrun.values.rows import Ranges, ScanFile
from duckrun.values.snapshot import Snapshot

log = logging.getLogger(__name__)


@frozen
class Read:
    """The rows of its target that a write depends on."""

    name: str
    """Name for the log."""
    meets: Callable[[Snapshot, Sequence[ScanFile], Snapshot | None], bool]
    """Tests if files at a version contain such rows.

    With another version, only rows are tested that the files do not have there.
    """
    ranges: Ranges = field(default_factory=dict)
    """Ranges of columns that all of these rows are in."""
    conditions: Callable[[], list[str] | None] = lambda: None
    """Returns conditions over ``target``; each of these rows satisfies one. None if unknown."""


_MOST_KEYS = 100
"""Maximum number of keys that the log of a branch lists for one write."""
NOTHING = Read("nothing", lambda snapshot, files, other: False)
"""Read of a write whose result does not depend on the table."""
EVERYTHING = Read("everything", lambda snapshot, files, other: True)
"""Read of a write that conflicts with every other row."""


def matching(cursor: duckdb.DuckDBPyConnection, predicate: str | None, *expressions: str) -> Read:
    """Read of the rows that satisfy a predicate over ``target`` (None: all).

    ``expressions`` are the write's other expressions. A subquery or a volatile function in any of
    them makes it EVERYTHING.
    """
    if predicate is None or has_subquery(predicate, *expressions) or not is_steady(predicate, cursor):
        return EVERYTHING
    read = _asked(cursor, "a predicate", lambda rows: f"SELECT 1 FROM ({rows}) AS target WHERE ({predicate})")
    return replace(read, ranges=ranges_of(predicate, "target"))


def joined(
    cursor: duckdb.DuckDBPyConnection,
    source: str,
    on: str,
    where: str | None = None,
    *,
    computes: Sequence[str] = (),
    keys: Mapping[str, str] = MappingProxyType({}),
) -> Read:
    """Read of the rows that match a source row.

    Args:
        cursor: Cursor that sees the source.
        source: SQL of the source.
        on: Condition over ``target`` and ``source``.
        where: Condition over the table's columns.
        computes: Other expressions of the write.
        keys: Columns of the table that ``on`` compares for equality -> columns of the source.
    """
    if has_subquery(on, where or "true", *computes) or not is_steady(f"({on}) AND ({where or 'true'})", cursor):
        return EVERYTHING

    def sql(rows: str) -> str:
        target = f"SELECT * FROM ({rows}) AS target" + ("" if where is None else f" WHERE ({where})")
        return f"SELECT 1 FROM ({target}) AS target JOIN ({source}) AS source ON ({on})"

    ranges = ranges_of_keys(cursor, source, keys)
    conditions = partial(_conditions_of_keys, cursor, source, keys, ranges)
    return replace(_asked(cursor, "keys", sql), ranges=ranges, conditions=conditions)


def _conditions_of_keys(
    cursor: duckdb.DuckDBPyConnection, source: str, keys: Mapping[str, str], ranges: Ranges
) -> list[str] | None:
    """Return conditions on the rows with the keys of a source: few by value, many by range."""
    if not keys:
        return None
    columns = quoted_list(keys.values())
    known = " AND ".join(f"{quote_identifier(column)} IS NOT NULL" for column in keys.values())  # NULL equals nothing
    sql = f"SELECT DISTINCT {columns} FROM ({source}) WHERE {known} LIMIT {_MOST_KEYS + 1}"
    rows = [tuple(map(_literal, row)) for row in cursor.execute(sql).fetchall()]
    targets = [f"target.{quote_identifier(key)}" for key in keys]
    if len(rows) <= _MOST_KEYS and all(None not in row for row in rows):
        if len(targets) == 1:
            return [f"{targets[0]} IN ({', '.join(str(row[0]) for row in rows)})"] if rows else []
        return [" AND ".join(f"{each} = {value}" for each, value in zip(targets, row, strict=True)) for row in rows]
    ends = [f"target.{quote_identifier(key)} BETWEEN {low} AND {high}" for key, (low, high) in ranges.items()]
    return [" AND ".join(ends)] if ends else None


def _literal(value: object) -> str | None:
    """Return the SQL of a key; None for a type whose equal values may have several spellings."""
    if isinstance(value, str):
        return quote_literal(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return f"DATE '{value}'"
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def equal(
    keys: Sequence[str], compared: Mapping[str, str] | None = None, source: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Condition that all keys are equal; NULL equals nothing.

    Args:
        keys: Keys, as columns of the source.
        compared: Key -> expression that replaces the table's column.
        source: Key -> source column of another name.
    """
    expressions = {k: f"target.{quote_identifier(k)}" for k in keys} | {
        k: f"({v})" for k, v in (compared or {}).items()
    }
    return " AND ".join(f"{expressions[k]} = source.{quote_identifier(source.get(k, k))}" for k in keys)


def partitions(snapshot: Snapshot, staged: Iterable[ScanFile]) -> Read:
    """Read of the rows in the partitions of these files."""
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
    """SELECT of the rows of files at one version that another version has deleted."""
    taken = {*snapshot.schema.names, *other.schema.names}
    file, row = fresh_name("__duckrun_file", taken), fresh_name("__duckrun_row", taken)
    here, there = (each.scan_sql(files=files, file=file, row=row) for each in (snapshot, other))
    names = quoted_list(snapshot.schema.names)
    on = f"USING ({quote_identifier(file)}, {quote_identifier(row)})"
    return f"SELECT {names} FROM {here} AS here ANTI JOIN {there} AS there {on}"


def may_hold(
    cursor: duckdb.DuckDBPyConnection,
    predicate: str,
    snapshot: Snapshot,
    files: Sequence[ScanFile],
    other: Snapshot | None,
) -> bool:
    """True if files at a version hold rows of a predicate, or cannot be read any more.

    With another version, only rows count that the files do not have there.
    """
    try:
        return matching(cursor, predicate).meets(snapshot, files, other)
    except (DuckrunError, duckdb.Error) as error:
        text = "table %s: whether files of version %s have rows that matter is not known: %s"
        log.info(text, snapshot.ref, snapshot.version, error)
        return True


def has_subquery(*expressions: str) -> bool:
    """True if an expression may read more than its row."""
    try:
        return any(dialects.tree_in(text, "duckdb").find(exp.Query) is not None for text in expressions)
    except sqlglot.errors.SqlglotError:
        return True


def may_go_on_top(
    transaction: Transaction, others: Iterable[CommitRecord], removed: Iterable[ScanFile], read: Read
) -> bool:
    """True if a commit may be rebased onto other commits.

    None of them may change the table's definition, be of the same application, or remove a file
    that this commit removes. None may change rows that the write depends on.
    """
    others = list(others)
    if transaction.fence.outdated_by(others):
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
    """True if one of several commits in sequence changed rows that the write depends on."""
    adding = [other for other in others if not any(file.changes_rows for file in other.removed)]
    changes = {file.name: file for other in adding for file in other.added if file.changes_rows}
    try:
        last, logs = transaction.fence.version(others[-1].version), transaction.lake.format.logs
        stored = () if logs is None else logs.stored_columns(last.schema)
        near = {n for n, file in changes.items() if not is_outside(read.ranges, last.schema, stored, file.bounds())}
        # One query tests all appends. Else a write beside a busy appender would fall further behind
        # with each test.
        if near and len(adding) > 1 and read is not EVERYTHING:
            files = list(last.files().named(near).values())
            if len(files) == len(near):  # no file was rewritten meanwhile
                if read.meets(last, files, None):
                    return True
                near = set()
        if not near:
            others = [other for other in others if other not in adding]
    except (DuckrunError, duckdb.Error) as error:
        log.info("table %s: the commits that only add are looked at one by one: %s", transaction.ref, error)
    return any(meets_commit(transaction, other, read) for other in others)


def meets_commit(transaction: Transaction, other: CommitRecord, read: Read) -> bool:
    """True if a commit added or removed rows that the write depends on.

    A commit that only moves rows changes none.
    """
    added, removed = ({file.name for file in side if file.changes_rows} for side in (other.added, other.removed))
    if not added and not removed:
        return False
    if read is EVERYTHING:
        return True
    try:
        before, after = (transaction.fence.version(number) for number in (other.version - 1, other.version))
        for snapshot, named, opposite in ((after, added, before), (before, removed, after)):
            files = list(snapshot.files().named(named).values())
            if len(files) < len(named):
                return True
            # A file on both sides got a new deletion vector. Only the rows that one side lacks have
            # changed.
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
