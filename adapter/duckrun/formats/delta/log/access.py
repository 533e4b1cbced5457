"""Access to the logs of Delta tables: opening by deltalake, and single commits.

Errors of an opening name the table and a remedy.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import obstore
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from obstore.exceptions import BaseError as ObstoreError

from duckrun.errors import CommitUnknown, StorageError, TableNotFound, UnsupportedFeature, VersionNotReadable
from duckrun.formats.commits import CommitRecord
from duckrun.formats.delta.log.checkpoints import last_checkpoint
from duckrun.formats.delta.log.entries import LOG, CommitActions, entry, fingerprint_of, parse_commit
from duckrun.formats.delta.log.refusals import DeltalakeRefusal, refused_feature
from duckrun.sql.raising import panicked
from duckrun.storage.storage import Storage
from duckrun.storage.trouble import said, storage_error
from duckrun.values.snapshot import TableRef

log = logging.getLogger(__name__)

_OF_A_LOG = (".json", ".checkpoint.parquet")
ASIDE, AWAY = f"{LOG}.adopting", f"{LOG}.adopted"
"""Folder names that no Delta reader looks for."""
_WHOSE = "adopted_by.json"


class LogAccess:
    """Logs of the Delta tables of one lake.

    Args:
        storage: The lake's storage.
        read_only: Leave the logs unchanged, also damaged hints in them.
    """

    def __init__(self, storage: Storage, *, read_only: bool = False) -> None:
        self.storage, self.read_only = storage, read_only

    def first_row_id(self, ref: TableRef) -> int:
        """Return the least id that new rows of a table may get."""
        return 0

    def exists(self, ref: TableRef) -> bool:
        if self.storage.is_local:
            with suppress(OSError), os.scandir(f"{ref.location}/{LOG}") as entries:
                # Of a long log, only the first names are read.
                if any(entry.name.endswith(_OF_A_LOG) for entry in entries):
                    return True
        return any(key["path"].endswith(_OF_A_LOG) for key in self.storage.keys(ref.location, LOG))

    def handle(self, ref: TableRef, version: int | None = None) -> DeltaTable:
        """Return a handle of a table at a version, or at its newest.

        Raises:
            TableNotFound: There is no table.
            VersionNotReadable: The log lacks the version.
            UnsupportedFeature: The table has a feature that cannot be read.
            StorageError: The storage fails, or a log file is damaged.
        """
        try:
            return self._opened(ref, version)
        except TableNotFoundError:
            if version is not None and self.exists(ref):
                raise self._unreadable(ref, version) from None
            raise TableNotFound(self._why_no_table(ref)) from None
        except BaseException as error:  # a panic of delta_rs is no Exception
            if not (isinstance(error, DeltaError | OSError | ValueError) or panicked(error)):
                raise
            if version is not None:
                latest = self.latest_version(ref)
                if latest is not None and (version > latest or DeltalakeRefusal.NO_VERSION.is_of(error)):
                    raise self._unreadable(ref, version) from error
            if (feature := refused_feature(str(error))) is not None:
                raise UnsupportedFeature(
                    f"Table {ref} at {ref.location} has the {feature}, which neither engine of this release can read",
                    remedy=(
                        "Read it with the engine that made it, or let that one take the feature out "
                        "(ALTER TABLE … DROP FEATURE …)"
                    ),
                ) from error
            # The original error may contain credentials, so it is not chained.
            redacted, what = self.storage.redacted(error), f"Cannot open table {ref} at {ref.location}"
            if self.storage.is_local and Path(ref.location).is_file():
                raise StorageError(f"{what}: that is a file, and not the folder of a table.") from None
            raise storage_error(redacted, what) or StorageError(
                f"{what}: {said(redacted)}",
                remedy=(
                    "If a file of its log is missing or damaged, put it back "
                    "from a copy; else check that the location and the "
                    "storage_options are right"
                ),
            ) from None

    def _opened(self, ref: TableRef, version: int | None) -> DeltaTable:
        try:
            return DeltaTable(ref.url, version=version, storage_options=self.storage.delta_options())
        except DeltaError as error:
            if not DeltalakeRefusal.LOST_CHECKPOINT.is_of(error) or not self._forget_lost_checkpoint(ref):
                raise
        return DeltaTable(ref.url, version=version, storage_options=self.storage.delta_options())

    def _unreadable(self, ref: TableRef, version: int) -> VersionNotReadable:
        versions = [entry["version"] for entry in self.history(ref)]
        return VersionNotReadable(
            f"Version {version} of table {ref} is not in its log; versions {min(versions)} to {max(versions)} are."
        )

    def _why_no_table(self, ref: TableRef) -> str:
        first = next(iter(self.storage.keys(ref.location)), None)
        if first is None:
            return f"There is no table {ref}: nothing is at {ref.location}."
        return (
            f"{ref.location} is not a Delta table: it holds files (such as {first['path']}), but no commit in "
            f"{LOG}. Convert it, or give table {ref} another location."
        )

    def _forget_lost_checkpoint(self, ref: TableRef) -> bool:
        """Remove the log's hint at a checkpoint that is missing; False if the checkpoint exists.

        The table is then read from the rest of its log. The hint is optional, and the writer of the
        next checkpoint replaces it.
        (Delta protocol, Last Checkpoint File.)
        """
        # Delta Kernel, and so deltalake and DuckDB, trusts the hint.
        version = last_checkpoint(self.storage, ref.location)
        present = [key for key in self.storage.keys(ref.location, LOG) if f"{version:020d}.checkpoint" in key["path"]]
        if version < 0 or any(key["size"] for key in present):
            return False
        hint = f"{LOG}/_last_checkpoint"
        if self.read_only:
            raise StorageError(
                f"Table {ref} at {ref.location}: {hint} names a checkpoint of version {version}, which is not there. "
                "The table can be read without the file, which this read-only lake may not remove: remove it, or open "
                "the table once in a lake that may be written."
            )
        log.warning(
            "table %s: the checkpoint of version %s is not there; it is read from the rest of its log", ref, version
        )
        try:
            obstore.delete(self.storage.store_at(ref.location), hint)
        except ObstoreError as error:
            raise StorageError(
                f"Table {ref} at {ref.location}: {hint} is to be removed, and cannot be: {error}"
            ) from error
        return True

    def latest_version(self, ref: TableRef) -> int | None:
        return self.handle(ref).version() if self.exists(ref) else None

    def history(self, ref: TableRef, limit: int | None = None) -> list[dict[str, Any]]:
        return self.handle(ref).history(limit)

    def actions(self, ref: TableRef, version: int) -> CommitActions | None:
        """Return one commit; None if the log no longer has it."""
        raw = self.storage.read_at(ref.location, entry(version))
        return None if raw is None else parse_commit(version, raw)

    def actions_back(self, ref: TableRef, newest: int) -> Iterator[CommitActions]:
        """Yield the commits from ``newest`` backwards, as far as the log has them."""
        for version in range(newest, -1, -1):
            commit = self.actions(ref, version)
            if commit is None:
                return
            yield commit

    def record(self, ref: TableRef, version: int) -> CommitRecord | None:
        commit = self.actions(ref, version)
        return None if commit is None else commit.record()

    def records_back(self, ref: TableRef, newest: int) -> Iterator[CommitRecord]:
        return (commit.record() for commit in self.actions_back(ref, newest))

    def records_after(self, ref: TableRef, version: int) -> list[CommitRecord]:
        records: list[CommitRecord] = []
        while (record := self.record(ref, version + 1 + len(records))) is not None:
            records.append(record)
        return records

    def fingerprint(self, ref: TableRef, version: int) -> str | None:
        """See Format; a hash of the bytes of the log entry."""
        raw = self.storage.read_at(ref.location, entry(version))
        return None if raw is None else fingerprint_of(raw)

    def has_landed(self, ref: TableRef, version: int, txn_id: str, error: BaseException) -> bool:
        """True if a version is the commit with this id, although committing it raised ``error``.

        An object store may have executed a request whose response was lost. The client's retry then
        collides with its own log entry.

        Raises:
            CommitUnknown: The store does not tell what the version holds.
        """
        try:
            actions = self.actions(ref, version)
        except StorageError as unread:
            raise CommitUnknown(
                f"Whether version {version} of table {ref} was committed is not known: "
                f"{said(self.storage.redacted(error))}, and then: {unread} Look at the table's history before you run "
                "this again."
            ) from None
        landed = actions is not None and actions.info.get("txnId") == txn_id
        if landed:
            log.info("table %s: version %s is committed, though the answer to it was lost", ref, version)
        return landed

    # -- logs that are hidden while another lake adopts the tables' files. Paths are local, and each
    # step is one rename.

    def set_aside(self, ref: TableRef, whose: str) -> None:
        """Hide a table: readers find no log.

        Args:
            whose: Description of the lake that adopts the table.

        Raises:
            StorageError: The table has a hidden log already, or it cannot be renamed.
        """
        folder, aside = Path(ref.location, LOG), Path(ref.location, ASIDE)
        if aside.exists() or Path(ref.location, AWAY).exists():
            raise StorageError(
                f"{ref.location} has a log that an adoption has put away already: {aside.name} or {AWAY}"
            )
        try:
            # Written before the rename: a hidden log always names the adopting lake.
            (folder / _WHOSE).write_text(whose, encoding="utf-8")
            folder.rename(aside)
        except OSError as error:
            raise StorageError(f"Table {ref} cannot be adopted: {said(error)}") from error

    def whose(self, ref: TableRef) -> str | None:
        """Return the lake that adopts a table; None if the table's log is not hidden."""
        file = Path(ref.location, ASIDE, _WHOSE)
        return file.read_text(encoding="utf-8") if file.is_file() else None

    def bring_back(self, ref: TableRef, *, away: bool) -> None:
        """Put a hidden log away for good, or make it the table's log again if not ``away``."""
        aside = Path(ref.location, ASIDE)
        if away:
            aside.rename(aside.with_name(AWAY))
            return
        aside.rename(aside.with_name(LOG))
        Path(ref.location, LOG, _WHOSE).unlink(missing_ok=True)

    def all_aside(self) -> list[TableRef]:
        """Return the tables of the lake whose log an unfinished adoption has hidden."""
        if not self.storage.is_local:
            return []
        logs = [path for depth in ("*", "*/*") for path in Path(self.storage.root).glob(f"{depth}/{ASIDE}")]
        return [TableRef(path.parent.parent.name, path.parent.name, path.parent.as_posix()) for path in logs]
