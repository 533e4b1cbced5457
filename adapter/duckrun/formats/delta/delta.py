"""Delta tables: the only place that knows ``_delta_log`` and deltalake.

What a table was at a version, and what a commit did, comes from here for every engine.
References: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from duckrun.errors import StorageError, TableNotFound, UnsupportedFeature, VersionNotReadable
from duckrun.formats.delta import cautions, maintenance, restore
from duckrun.formats.delta.adds import adds_of
from duckrun.formats.delta.commit import NewCommit, write_commit
from duckrun.formats.delta.data_paths import decoded, respelled
from duckrun.formats.delta.definition import Definition
from duckrun.formats.delta.log import COPY, LOG, NOTE_KEY, CommitActions, CommitTaken, parse_commit, partition_string
from duckrun.formats.delta.long_logs import LongLogs
from duckrun.formats.delta.operations import Operation
from duckrun.formats.delta.protocol import Protocol, refused_feature, unlisted
from duckrun.sql.raising import panicked
from duckrun.storage.storage import Storage
from duckrun.storage.trouble import said, storage_error
from duckrun.values.rows import AppTransaction, Commit, ScanFile
from duckrun.values.snapshot import Snapshot, TableRef


def _without_statistics(adds: pa.Table) -> pa.Table:
    """The add actions without the bounds of columns, among which may be years that Python has no date for."""
    return adds.drop_columns([name for name in ("min", "max", "null_count") if name in adds.column_names])


class DeltaFormat:
    """Discovery, snapshots, history and the commits that no engine is needed for."""

    name = "delta"

    def __init__(self, storage: Storage, *, read_only: bool = False) -> None:
        self.storage = storage
        self.read_only = read_only
        self._long_logs = LongLogs(self)

    # -- snapshots

    def handle(self, ref: TableRef, version: int | None = None) -> DeltaTable:
        """A deltalake handle, with errors that name the table."""
        try:
            return self._opened(ref, version)
        except TableNotFoundError:
            if version is not None and self.exists(ref):
                raise self._unreadable(ref, version) from None
            raise TableNotFound(self._why_no_table(ref)) from None
        except BaseException as error:
            if not (isinstance(error, DeltaError | OSError | ValueError) or panicked(error)):
                raise
            if version is not None:
                latest = self.latest_version(ref)
                if latest is not None and (version > latest or "version" in str(error).lower()):
                    raise self._unreadable(ref, version) from error
            if (feature := refused_feature(str(error))) is not None:
                raise UnsupportedFeature(
                    f"Table {ref} at {ref.location} has the {feature}, which neither engine of this release can read: nothing "
                    "was read or written. Read it with the engine that made it, or let that one take the feature out "
                    "(ALTER TABLE … DROP FEATURE …)."
                ) from error
            told, what = self.storage.redacted(error), f"Cannot open table {ref} at {ref.location}"
            if self.storage.is_local and Path(ref.location).is_file():
                raise StorageError(f"{what}: that is a file, and not the folder of a table.") from None
            raise storage_error(told, what) or StorageError(
                f"{what}: {said(told)}. Nothing was read or written. If a file of its log is missing or damaged, put it back from a copy; "
                "else check that the location and the storage_options are right."
            ) from None

    def _opened(self, ref: TableRef, version: int | None) -> DeltaTable:
        try:
            return DeltaTable(ref.url, version=version, storage_options=self.storage.delta_options())
        except DeltaError as error:
            if "_last_checkpoint hint" not in str(error) or not maintenance.forget_lost_checkpoint(self, ref):
                raise
        return DeltaTable(ref.url, version=version, storage_options=self.storage.delta_options())

    def exists(self, ref: TableRef) -> bool:
        """True if the log of the table holds a commit. One listing; no log file is read."""
        return any(
            key["path"].endswith((".json", ".checkpoint.parquet")) for key in self.storage.keys(ref.location, LOG)
        )

    def refuse_other_files(self, ref: TableRef) -> None:
        """Raise StorageError where a new table's folder holds files of somebody else's.

        What a killed first write left is no hindrance: data files named as Delta writers name theirs, and copies that were filled.
        """
        for key in self.storage.keys(ref.location):
            folder, _, name = key["path"].rpartition("/")
            top = folder.partition("/")[0]
            ours = name.startswith("part-") and name.endswith(".parquet") or name.startswith((".", "_"))
            if name == "_SUCCESS" or not (ours or top in (LOG, "_change_data") or top.startswith(COPY)):
                raise StorageError(
                    f"Table {ref} cannot be made at {ref.location}: the folder is no Delta table and holds files, such as "
                    f"{key['path']}. Nothing was written. Move them, or give the table another location."
                )

    def latest_version(self, ref: TableRef) -> int | None:
        """The newest version, or None where there is no table."""
        if not self.exists(ref):
            return None
        return self.handle(ref).version()

    def snapshot(self, ref: TableRef, version: int | None = None, timestamp: str | None = None) -> Snapshot:
        """A table at a version, at a time (ISO 8601), or now.

        Raises TableNotFound, VersionNotReadable, UnsupportedFeature.
        """
        kept = self._long_logs.find(ref, version) if timestamp is None else None
        if kept is not None:
            return kept
        table = self.handle(ref, version)
        if timestamp is not None:
            table = self._at(ref, table, timestamp)
        protocol, metadata = table.protocol(), table.metadata()
        schema = pa.schema(table.schema().to_arrow())
        properties = dict(metadata.configuration)
        snapshot = Snapshot(
            ref=ref,
            version=table.version(),
            table_id=str(metadata.id),
            schema=schema,
            partition_columns=tuple(metadata.partition_columns),
            properties=properties,
            reader_features=frozenset(protocol.reader_features or ()),
            writer_features=frozenset(protocol.writer_features or ()) | unlisted(schema, properties),
            description=metadata.description,
            list_files=self._files,
            find_rounded=partial(cautions.rounded, self),
            find_legacy=partial(cautions.legacy, self),
        )
        asked = version if timestamp is None else table.version()
        return self._long_logs.keep(snapshot, asked, partial(self._files, table=table))

    def _at(self, ref: TableRef, table: DeltaTable, timestamp: str) -> DeltaTable:
        try:
            moment = datetime.fromisoformat(timestamp)
        except ValueError as error:
            raise VersionNotReadable(f"Cannot read timestamp {timestamp!r} for table {ref}: {error}.") from error
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        times = [(entry["version"], entry["timestamp"]) for entry in self.history(ref)]
        before = [v for v, ms in times if ms <= moment.timestamp() * 1000]
        if not before:
            first = datetime.fromtimestamp(min(ms for _, ms in times) / 1000, UTC).isoformat()
            raise VersionNotReadable(f"Table {ref} has no version at {timestamp}; the oldest in its log is of {first}.")
        return self.handle(ref, max(before))

    def _files(self, snapshot: Snapshot, table: DeltaTable | None = None) -> tuple[ScanFile, ...]:
        table = table or self.handle(snapshot.ref, snapshot.version)
        rows = _without_statistics(pa.table(table.get_add_actions(flatten=False))).to_pylist()
        marked = "deletionVectors" in snapshot.reader_features
        deleted = self._deleted(snapshot, table, [row["path"] for row in rows]) if marked else {}
        return tuple(
            ScanFile(
                path=(path := decoded(row["path"])),
                size=row["size_bytes"],
                partition_values={k: partition_string(v) for k, v in (row.get("partition") or {}).items()},
                stats=None if row["num_records"] is None else json.dumps({"numRecords": row["num_records"]}),
                deletion_vector=path in deleted,
                deleted_rows=deleted.get(path, 0),
                spelled=row["path"],
            )
            for row in rows
        )

    def _deleted(self, snapshot: Snapshot, table: DeltaTable, paths: list[str]) -> dict[str, int]:
        try:
            return _deleted_rows(table, {decoded(path) for path in paths})
        except DeltaError:
            # deltalake does not read the vectors of a table with features that it could not write (type widening).
            adds = adds_of(self, snapshot, set(paths))
            vectors = {path: add.get("deletionVector") for path, add in adds.items()}
            return {decoded(path): int(vector["cardinality"]) for path, vector in vectors.items() if vector}

    # -- history

    def history(self, ref: TableRef, limit: int | None = None) -> list[dict[str, Any]]:
        """The commits of the log, newest first: version, timestamp (ms), operation, operationParameters, ..."""
        return self.handle(ref).history(limit)

    def detail(self, ref: TableRef) -> dict[str, Any]:
        """What Spark's DESCRIBE DETAIL gives: format, id, name, location, partitionColumns, numFiles, ..."""
        snapshot = self.snapshot(ref)
        table = self.handle(ref)
        files, protocol, metadata = snapshot.files(), table.protocol(), table.metadata()
        return {
            "format": "delta",
            "id": snapshot.table_id,
            "name": str(ref),
            "description": metadata.description,
            "location": ref.location,
            "version": snapshot.version,
            "createdAt": datetime.fromtimestamp(metadata.created_time / 1000, UTC) if metadata.created_time else None,
            "partitionColumns": list(snapshot.partition_columns),
            "numFiles": len(files),
            "sizeInBytes": sum(file.size for file in files),
            "properties": snapshot.properties,
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
            "tableFeatures": sorted(snapshot.reader_features | snapshot.writer_features),
        }

    def actions(self, ref: TableRef, version: int) -> CommitActions | None:
        """One commit, or None where the log no longer holds it."""
        raw = self.storage.read_at(ref.location, f"{LOG}/{version:020d}.json")
        return None if raw is None else parse_commit(version, raw)

    def actions_back(self, ref: TableRef, newest: int) -> Iterator[CommitActions]:
        """The commits from ``newest`` backwards, as far as the log holds them."""
        for version in range(newest, -1, -1):
            found = self.actions(ref, version)
            if found is None:
                return
            yield found

    def commit_at(
        self, ref: TableRef, version: int, *, mode: str, engine: str, writer: str, reason: str = ""
    ) -> Commit:
        """What the commit of one version did, from its actions and its own metrics."""
        found = self.actions(ref, version)
        if found is None:
            raise VersionNotReadable(f"Version {version} of table {ref} is not in its log any more.")
        note, counts = found.note, found.counts()
        return Commit(
            table=str(ref),
            location=ref.location,
            version=version,
            mode=note.get("mode", mode),
            engine=note.get("engine", engine),
            writer=note.get("writer", writer),
            reason=note.get("reason", reason),
            rows_inserted=note.get("rows_inserted", counts[0]),
            rows_updated=note.get("rows_updated", counts[1]),
            rows_deleted=note.get("rows_deleted", counts[2]),
            files_added=len(found.adds),
            files_removed=len(found.removes),
            bytes_added=sum(add.get("size") or 0 for add in found.adds),
        )

    # -- exactly once

    def app_version(self, ref: TableRef, app_id: str) -> int | None:
        """The newest version that an application id has committed, or None."""
        return self.handle(ref).transaction_version(app_id)

    def find_commit(self, ref: TableRef, app: AppTransaction) -> Commit | None:
        """The commit that an application transaction made; None where it made none.

        Where the log has been cleaned up since, the commit says so instead of its counts.
        """
        table = self.handle(ref)
        committed = table.transaction_version(app.app_id)
        if committed is None or committed < app.version:
            return None
        for found in self.actions_back(ref, table.version()):
            if app in found.transactions:
                note = found.note
                return self.commit_at(
                    ref,
                    found.version,
                    mode=note.get("mode", "unknown"),
                    engine=note.get("engine", "unknown"),
                    writer=note.get("writer", "none"),
                )
        return Commit(
            table=str(ref),
            location=ref.location,
            version=table.version(),
            mode="unknown",
            engine="unknown",
            writer="none",
            reason=f"the commit of {app.app_id} is no longer in the log; this is the newest version",
        )

    # -- commits without an engine

    def definition(self, snapshot: Snapshot) -> Definition:
        """A table's columns, partitions, properties and description, as its log has them."""
        table = self.handle(snapshot.ref, snapshot.version)
        metadata = table.metadata()
        return Definition(
            fields=tuple(json.loads(table.schema().to_json())["fields"]),
            partition_columns=tuple(metadata.partition_columns),
            properties=dict(metadata.configuration),
            description=metadata.description,
            id=str(metadata.id),
            name=metadata.name,
            created_time=metadata.created_time,
        )

    def protocol(self, snapshot: Snapshot) -> Protocol:
        """What readers and writers of a table must know."""
        found = self.handle(snapshot.ref, snapshot.version).protocol()
        return Protocol(
            found.min_reader_version,
            found.min_writer_version,
            frozenset(found.reader_features or ()),
            frozenset(found.writer_features or ()),
        )

    def commit(self, ref: TableRef, snapshot: Snapshot | None, new: NewCommit) -> int:
        """Commit at the version after a snapshot (None: a new table). Raises CommitTaken, UnsupportedFeature."""
        return write_commit(self, ref, snapshot, new)

    def checkpoint_if_due(self, before: Snapshot | None, ref: TableRef, version: int) -> None:
        """Keep the log short to read: a checkpoint every so many commits. Never fails the commit that was made."""
        maintenance.checkpoint_if_due(self, before, ref, version)

    def properties(self, app: AppTransaction | None, note: dict[str, Any]) -> CommitProperties:
        """Fenced commit properties: the version read plus one, or CommitFailedError."""
        now = int(
            time.time() * 1000
        )  # without it Spark forgets the entry at once where the table has a retention of them
        return CommitProperties(
            custom_metadata={NOTE_KEY: note},
            max_commit_retries=0,
            app_transactions=[Transaction(app.app_id, app.version, now)] if app else None,
        )

    def restore(self, snapshot: Snapshot, version: int, note: dict[str, Any], app: AppTransaction | None = None) -> int:
        """Make the newest state that of an older version, as one commit. Returns the new version."""
        then = self.snapshot(snapshot.ref, version)
        if respelled([*snapshot.files(), *then.files()]):
            return restore.restore(self, snapshot, then, note, app)
        table = self.handle(snapshot.ref, snapshot.version)
        try:
            table.restore(version, protocol_downgrade_allowed=False, commit_properties=self.properties(app, note))
        except CommitFailedError as error:
            raise CommitTaken(str(error)) from error
        except DeltaError as error:
            raise VersionNotReadable(
                f"Cannot restore table {snapshot.ref} to version {version}: {str(error).rstrip(chr(46))}. "
                "Files that vacuum removed cannot come back; choose a newer version."
            ) from error
        return table.version()

    def describe(
        self,
        snapshot: Snapshot,
        *,
        description: str | None = None,
        column_comments: Mapping[str, str] | None = None,
        note: dict[str, Any] | None = None,
    ) -> int | None:
        """Bring a table's description and the comments of its columns up to date, in one metadata commit.

        Returns the new version, or None where nothing differs: then nothing is committed. Raises CommitTaken.
        """
        before = self.definition(snapshot)
        after = before if description is None else replace(before, description=description)
        for column in before.fields:
            comment = (column_comments or {}).get(column["name"])
            if comment is not None:
                after = after.with_column(column["name"], metadata={**column["metadata"], "comment": comment})
        if after == before:
            return None
        return self.commit(snapshot.ref, snapshot, NewCommit(Operation("SET TBLPROPERTIES"), note or {}, after))

    # -- wording

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


def _deleted_rows(table: DeltaTable, paths: set[str]) -> dict[str, int]:
    """How many rows the deletion vector of a file deletes, by the file's path; files without one are left out."""
    vectors = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all()
    location = table.table_uri.removeprefix("file://").rstrip("/") + "/"
    found = {}
    for uri, kept in zip(vectors.column("filepath"), vectors.column("selection_vector"), strict=True):
        whole = decoded(str(uri.as_py()).removeprefix("file://"))
        beyond = (whole.removeprefix(decoded(location)), whole.removeprefix(location), whole, f"file:{whole}")
        path = next((path for path in beyond if path in paths), None)
        if path is None:
            raise StorageError(
                f"The table at {table.table_uri} has a deletion vector of {uri}, which is none of its files."
            )
        found[path] = int(pc.sum(pc.invert(kept.values)).as_py() or 0)
    return found
