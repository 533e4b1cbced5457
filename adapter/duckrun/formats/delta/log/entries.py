"""One commit of a Delta log: its actions, Duckrun's note in it, and its row counts.

Reference: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from deltalake import CommitProperties, Transaction

from duckrun.errors import InvalidConfig, StorageError
from duckrun.formats.commits import WORDS, Bounds, CommitRecord, FileChange, RowCounts
from duckrun.storage.storage import Storage
from duckrun.values.rows import AppTransaction

NOTE_KEY = "duckrun"
LOG = "_delta_log"
ENTRY = re.compile(rf"{LOG}/(\d{{20}})\.json")
"""Path of a version's log entry, relative to the table; see entry()."""
ROW_TRACKING = "delta.rowTracking"
"""Domain of the highest row id. It adds nothing to the table's state that its files do not tell."""
_END = 1 << 16
"""Number of bytes at each end of a commit that identify it."""
COPY = "rewrite-"
"""Prefix of the folder of a scratch copy inside a table.

An engine fills the copy, and one commit adopts its files.
"""


def entry(version: int) -> str:
    """Return the path of a version's log entry, relative to the table."""
    return f"{LOG}/{version:020d}.json"


def fingerprint_of(raw: bytes) -> str:
    """Return the lasting identity of a commit among all with its number: a hash of its entry."""
    return hashlib.sha256(raw).hexdigest()


def mark_of(raw: bytes) -> str:
    """Return the identity of a commit among all with its number, for one process."""
    return _mark(len(raw), raw[:_END], raw[_END:][-_END:])


def mark_at(storage: Storage, location: str, version: int) -> str | None:
    """Return the identity of a version's commit; None if the log lacks it."""
    ends = storage.read_ends(location, entry(version), _END)
    return None if ends is None else _mark(*ends)


def _mark(size: int, first: bytes, last: bytes) -> str:
    # A commit of 100,000 files has 40 MB. The names of files and the ids at both ends differ
    # between any two commits.
    return f"{size} {hashlib.sha256(first + last).hexdigest()}"


def new_txn_id() -> str:
    """Return a new ``commitInfo.txnId``. A writer recognizes its own commit by this value.

    Source: Delta protocol, Commit Provenance Information.
    """
    return str(uuid.uuid4())


def commit_properties(app: AppTransaction | None, note: Mapping[str, Any], txn_id: str) -> CommitProperties:
    """Return the properties of a fenced commit by delta_rs.

    The commit becomes the version after the one read, or raises CommitFailedError.
    """
    # Without a time, Spark drops the transaction at once if the table sets a retention for them.
    now = int(time.time() * 1000)
    return CommitProperties(
        custom_metadata={"txnId": txn_id, **info_of(note)},
        max_commit_retries=0,
        app_transactions=[Transaction(app.app_id, app.version, now)] if app else None,
    )


def info_of(note: Mapping[str, Any]) -> dict[str, Any]:
    """Return additional keys of a commit's info: Duckrun's note, and the caller's words.

    The words go to ``userMetadata``, which Spark's history shows.
    """
    words = note.get(WORDS)
    extra: dict[str, Any] = {NOTE_KEY: {key: value for key, value in note.items() if key != WORDS}}
    return extra if words is None else {**extra, "userMetadata": json.dumps(words, ensure_ascii=False)}


def append_only(table: object) -> InvalidConfig:
    """Return the error for removing rows from an append-only table."""
    return InvalidConfig(f"Table {table} is append-only (delta.appendOnly), and this would rewrite or remove rows")


@dataclass(frozen=True)
class CommitActions:
    """Actions of one commit of the log, as far as later writers need them."""

    version: int
    info: dict[str, Any]
    adds: tuple[dict[str, Any], ...]
    removes: tuple[dict[str, Any], ...]
    transactions: tuple[AppTransaction, ...]
    changes_metadata: bool
    is_plain: bool = True
    """True if the commit changes no state of the table but its files."""
    feed: tuple[dict[str, Any], ...] = ()
    """Files of the change feed. Source: Delta protocol, Add CDC File."""
    domains: tuple[dict[str, Any], ...] = ()
    """Configurations of domains. Source: Delta protocol, Domain Metadata."""

    @property
    def note(self) -> dict[str, Any]:
        """Duckrun's note, wherever the engine that committed could store it."""
        note = self.info.get(NOTE_KEY)
        if isinstance(note, dict):
            return note
        try:
            words = json.loads(self.info.get("userMetadata") or "{}")
        except ValueError:
            return {}
        note = words.get(NOTE_KEY) if isinstance(words, dict) else None
        return note if isinstance(note, dict) else {}

    def record(self) -> CommitRecord:
        """Return the commit as a record that no format is specific to."""
        return CommitRecord(
            version=self.version,
            operation=str(self.info.get("operation", "unknown")),
            added=tuple(_change(add) for add in self.adds),
            removed=tuple(_change(remove) for remove in self.removes),
            transactions=self.transactions,
            changes_metadata=self.changes_metadata,
            rows=self.counts(),
            timestamp=self.info.get("inCommitTimestamp") or self.info.get("timestamp"),
            note=self.note,
        )

    def counts(self) -> RowCounts:
        """Return the numbers of rows inserted, updated and deleted, from the commit's metrics.

        delta_rs names metrics in snake_case, Spark in camelCase.
        """
        metrics = self.info.get("operationMetrics") or {}

        def of(*names: str) -> int | None:
            value = next((metrics[n] for n in names if n in metrics), None)
            return None if value is None else int(value)

        operation = str(self.info.get("operation", "")).upper()
        if operation == "MERGE":
            return (
                of("num_target_rows_inserted", "numTargetRowsInserted"),
                of("num_target_rows_updated", "numTargetRowsUpdated"),
                of("num_target_rows_deleted", "numTargetRowsDeleted"),
            )
        if operation == "DELETE":
            return 0, 0, of("num_deleted_rows", "numDeletedRows")
        if operation == "UPDATE":
            return 0, of("num_updated_rows", "numUpdatedRows"), 0
        inserted = of("num_added_rows", "numOutputRows")
        # Spark counts rows that replaceWhere copied as output.
        if inserted is not None and "numCopiedRows" in metrics:
            return inserted - (of("numCopiedRows") or 0), 0, of("numDeletedRows")
        return inserted, None if inserted is None else 0, None if self.removes else 0


def _change(action: Mapping[str, Any]) -> FileChange:
    """Return a file that was added or removed.

    Source: Delta protocol, Add File and Remove File (dataChange).
    """
    return FileChange(
        action["path"],
        action.get("size") or 0,
        action.get("partitionValues"),
        action.get("dataChange", True),
        partial(_bounds, action["stats"]) if action.get("stats") else None,
    )


def _bounds(stats: str) -> Bounds:
    """Return the bounds in a file's statistics. Source: Delta protocol, Per-file Statistics."""
    try:
        parsed = json.loads(stats)
        low, high = parsed.get("minValues") or {}, parsed.get("maxValues") or {}
        return {name: (low[name], high[name]) for name in low.keys() & high.keys()}
    except (ValueError, AttributeError):  # another writer's text
        return {}


def actions_in(raw: bytes, what: str) -> list[dict[str, Any]]:
    """Return the actions of a log entry or of a JSON checkpoint.

    Args:
        what: Name of the file, for the error message.

    Raises:
        StorageError: The file is no JSON.
    """
    # Each action lies on one line (Delta protocol, Delta Log Entries). Delta Kernel also reads
    # actions that span several lines.
    try:
        actions = [json.loads(line) for line in raw.splitlines() if line.strip()]
    except ValueError:
        actions = _over_lines(raw, what)
    if not all(isinstance(action, dict) for action in actions):
        raise StorageError(f"{what} holds JSON that is no action: each action is an object")
    return actions


def _over_lines(raw: bytes, what: str) -> list[Any]:
    """Return JSON values that follow each other, separated by any white space."""
    values, place = [], 0
    try:
        text, decoder = raw.decode().strip(), json.JSONDecoder()
        while place < len(text):
            value, place = decoder.raw_decode(text, place)
            values.append(value)
            place += len(text[place:]) - len(text[place:].lstrip())
    except ValueError as error:
        raise StorageError(
            f"{what} is no JSON: {error}", remedy="take the file from a backup, or restore an older version"
        ) from error
    return values


_KINDS = ("commitInfo", "add", "remove", "txn", "metaData", "protocol", "cdc", "domainMetadata")


def parse_commit(version: int, raw: bytes) -> CommitActions:
    """Parse the actions of one log entry."""
    by_kind: defaultdict[str, list[Any]] = defaultdict(list)
    for action in actions_in(raw, f"The log entry of version {version}"):
        kind = next((kind for kind in _KINDS if kind in action), "other")
        if action:
            by_kind[kind].append(action.get(kind))
    domains = by_kind["domainMetadata"]
    changes_metadata = bool(by_kind["metaData"] or by_kind["protocol"])
    return CommitActions(
        version,
        info=by_kind["commitInfo"][-1] if by_kind["commitInfo"] else {},
        adds=tuple(by_kind["add"]),
        removes=tuple(by_kind["remove"]),
        transactions=tuple(AppTransaction(txn["appId"], txn["version"]) for txn in by_kind["txn"]),
        changes_metadata=changes_metadata,
        is_plain=not changes_metadata
        and not by_kind["other"]
        and all(action["domain"] == ROW_TRACKING for action in domains),
        feed=tuple(by_kind["cdc"]),
        domains=tuple(domains),
    )
