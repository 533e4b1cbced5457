"""One commit of a Delta log as it lies there: its actions, our own note in it, and the counts of rows in its metrics.

Reference: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, Transaction

from duckrun.errors import CommitUnknown, DuckrunError, InvalidConfig, StorageError
from duckrun.formats.commits import WORDS, CommitRecord, CommitTaken, FileChange, RowCounts
from duckrun.storage.trouble import said
from duckrun.values.rows import AppTransaction

if TYPE_CHECKING:
    from duckrun.formats.delta.delta import DeltaFormat
    from duckrun.values.snapshot import TableRef

logger = logging.getLogger(__name__)

NOTE_KEY = "duckrun"
LOG = "_delta_log"
ROW_TRACKING = "delta.rowTracking"
"""The domain that says how far the ids of rows go: no more of the table's state than its files."""
COPY = "rewrite-"
"""How the folder inside a table begins where an engine fills a copy of it, whose files one commit makes the table's."""


def entry(version: int) -> str:
    """The path of a version's entry of the log, relative to the table."""
    return f"{LOG}/{version:020d}.json"


def new_txn_id() -> str:
    """A value of ``commitInfo.txnId`` (Delta protocol, Commit Provenance Information), by which a writer knows its own commit again."""
    return str(uuid.uuid4())


def commit_properties(app: AppTransaction | None, note: Mapping[str, Any], txn_id: str) -> CommitProperties:
    """Fenced properties of a commit by delta_rs: the version read plus one, or CommitFailedError."""
    now = int(time.time() * 1000)  # without it Spark forgets the entry at once where the table has a retention of them
    return CommitProperties(
        custom_metadata={"txnId": txn_id, **info_of(note)},
        max_commit_retries=0,
        app_transactions=[Transaction(app.app_id, app.version, now)] if app else None,
    )


def has_landed(form: DeltaFormat, ref: TableRef, version: int, txn_id: str, error: Exception) -> bool:
    """Whether a version is the commit of an id, though committing it raised ``error``. An object store may have carried out a request
    whose answer was lost; repeated by the client, it met its own entry.

    Raises:
        CommitUnknown: The store does not say what is there.
    """
    try:
        actions = form.actions(ref, version)
    except StorageError as unread:
        raise CommitUnknown(
            f"Whether version {version} of table {ref} was committed is not known: {said(form.storage.redacted(error))}, and then: {unread} "
            "Look at the table's history before you run this again."
        ) from None
    landed = actions is not None and actions.info.get("txnId") == txn_id
    if landed:
        logger.info("table %s: version %s is committed, though the answer to it was lost", ref, version)
    return landed


def info_of(note: Mapping[str, Any]) -> dict[str, Any]:
    """What a commit's info says beside the protocol's own: our note, and the caller's words in it where Spark's history shows them."""
    words = note.get(WORDS)
    own: dict[str, Any] = {NOTE_KEY: {key: value for key, value in note.items() if key != WORDS}}
    return own if words is None else {**own, "userMetadata": json.dumps(words, ensure_ascii=False)}


def append_only(table: object) -> InvalidConfig:
    """The error about rows that would go from a table which only takes more."""
    return InvalidConfig(
        f"Table {table} is append-only (delta.appendOnly), and this would rewrite or remove rows. Nothing was written."
    )


def refused(table: object, error: Exception) -> DuckrunError | CommitTaken:
    """What it means that deltalake did not commit: mostly that the version was taken."""
    return append_only(table) if "append-only" in str(error) else CommitTaken(str(error))


@dataclass(frozen=True)
class CommitActions:
    """One commit of the log, as far as a later writer must know it."""

    version: int
    info: dict[str, Any]
    adds: tuple[dict[str, Any], ...]
    removes: tuple[dict[str, Any], ...]
    transactions: tuple[AppTransaction, ...]
    changes_metadata: bool
    is_plain: bool = True
    """Whether it adds and removes files, and does nothing else to the state of the table."""
    feed: tuple[dict[str, Any], ...] = ()
    """The files of the change feed that say what it changed. Source: Delta protocol, Add CDC File."""
    domains: tuple[dict[str, Any], ...] = ()
    """What it says of the table under names of systems and users. Source: Delta protocol, Domain Metadata."""

    @property
    def note(self) -> dict[str, Any]:
        """Our own entry, wherever the engine that committed could put it."""
        if isinstance(self.info.get(NOTE_KEY), dict):
            return self.info[NOTE_KEY]
        try:
            found = json.loads(self.info.get("userMetadata") or "{}")
        except ValueError:
            return {}
        note = found.get(NOTE_KEY) if isinstance(found, dict) else None
        return note if isinstance(note, dict) else {}

    def record(self) -> CommitRecord:
        """What the commit changed, in no format's words."""
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
        """Rows inserted, updated and deleted, by the metrics of delta_rs (snake_case) or of Spark (camelCase)."""
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
        if (
            inserted is not None and "numCopiedRows" in metrics
        ):  # Spark counts the rows that replaceWhere kept as output
            return inserted - (of("numCopiedRows") or 0), 0, of("numDeletedRows")
        return inserted, None if inserted is None else 0, None if self.removes else 0


def _change(action: Mapping[str, Any]) -> FileChange:
    """Source: Delta protocol, Add File and Remove File (dataChange)."""
    return FileChange(
        action["path"], action.get("size") or 0, action.get("partitionValues"), action.get("dataChange", True)
    )


def actions_in(raw: bytes, what: str) -> list[dict[str, Any]]:
    """The actions of an entry or of a checkpoint in JSON; ``what`` names it. Raises StorageError for what is no JSON.

    Each lies on one line (Delta protocol, Delta Log Entries). Delta Kernel reads those over several lines too.
    """
    try:
        actions = [json.loads(line) for line in raw.splitlines() if line.strip()]
    except ValueError:
        actions = _over_lines(raw, what)
    if not all(isinstance(action, dict) for action in actions):
        raise StorageError(f"{what} holds JSON that is no action: each action is an object. Nothing was written.")
    return actions


def _over_lines(raw: bytes, what: str) -> list[Any]:
    """JSON values one after the other, with any white space between them."""
    values, place = [], 0
    try:
        text, decoder = raw.decode().strip(), json.JSONDecoder()
        while place < len(text):
            value, place = decoder.raw_decode(text, place)
            values.append(value)
            place += len(text[place:]) - len(text[place:].lstrip())
    except ValueError as error:
        raise StorageError(
            f"{what} is no JSON: {error}. Nothing was written; take the file from a backup, or restore an older version."
        ) from error
    return values


def parse_commit(version: int, raw: bytes) -> CommitActions:
    """The actions of one file of the log."""
    info: dict[str, Any] = {}
    adds, removes, transactions, feed, domains = [], [], [], [], []
    changes_metadata, is_plain = False, True
    for action in actions_in(raw, f"The log entry of version {version}"):
        if "commitInfo" in action:
            info = action["commitInfo"]
        elif "add" in action:
            adds.append(action["add"])
        elif "remove" in action:
            removes.append(action["remove"])
        elif "txn" in action:
            transactions.append(AppTransaction(action["txn"]["appId"], action["txn"]["version"]))
        elif "metaData" in action or "protocol" in action:
            changes_metadata = True
        elif "cdc" in action:
            feed.append(action["cdc"])
        elif "domainMetadata" in action:
            domains.append(action["domainMetadata"])
            is_plain = is_plain and action["domainMetadata"]["domain"] == ROW_TRACKING
        elif action:
            is_plain = False
    is_plain = is_plain and not changes_metadata
    parts = tuple(adds), tuple(removes), tuple(transactions)
    return CommitActions(version, info, *parts, changes_metadata, is_plain, tuple(feed), tuple(domains))


def partition_string(value: Any) -> str | None:
    """A partition value as the log writes it. Source: Delta protocol, Partition Value Serialization."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        return value.isoformat(sep=" ", timespec="microseconds" if value.microsecond else "seconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value)
