"""Delta tables: the only place that knows ``_delta_log`` and deltalake.

What a table was at a version, and what a commit did, comes from here for every engine.
References: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from duckrun.errors import StorageError, VersionNotReadable
from duckrun.formats.delta import alteration, cautions, definition, maintenance, restore, types
from duckrun.formats.delta.commit import refuse_unknown_features, unknown_features, write_commit
from duckrun.formats.delta.data_paths import respelled
from duckrun.formats.delta.dataset import arrow_dataset
from duckrun.formats.delta.definition import DeltaDefinition
from duckrun.formats.delta.files import files_of
from duckrun.formats.delta.log import COPY, LOG, CommitActions, commit_properties, parse_commit
from duckrun.formats.delta.long_logs import LastRead, LongLogs
from duckrun.formats.delta.opening import opened
from duckrun.formats.delta.protocol import COMPUTED, Protocol, unlisted
from duckrun.formats.delta.scan_sql import scan_sql
from duckrun.formats.delta.scratch import Scratch, scratch
from duckrun.formats.format import Alteration, CommitRecord, CommitTaken, NewCommit, TableDefinition
from duckrun.storage.storage import Storage
from duckrun.values.rows import AppTransaction, Commit, SchemaMode, WriteSpec
from duckrun.values.snapshot import DELTA, Snapshot, TableRef
from duckrun.values.tables import AlterSpec, ConvertSpec, CreateSpec, VacuumSpec


class DeltaFormat:
    """Discovery, snapshots, history and the commits that no engine is needed for."""

    name = DELTA

    def __init__(self, storage: Storage, *, read_only: bool = False) -> None:
        self.storage = storage
        self.read_only = read_only
        self._long_logs = LongLogs(self)
        self._last_read = LastRead(storage)

    # -- snapshots

    def handle(self, ref: TableRef, version: int | None = None) -> DeltaTable:
        """A deltalake handle. Raises TableNotFound, VersionNotReadable, UnsupportedFeature, StorageError, which name the table."""
        return opened(self, ref, version)

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

    def snapshot(
        self, ref: TableRef, version: int | None = None, timestamp: str | None = None, *, keep: bool = False
    ) -> Snapshot:
        """A table at a version, at a time (ISO 8601), or now. ``keep`` leaves its log open.

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
            checks=definition.checks_of(properties),
            description=metadata.description,
            list_files=partial(files_of, self),
            find_rounded=partial(cautions.rounded, self),
            find_legacy=partial(cautions.legacy, self),
            make_scan_sql=scan_sql,
        )
        asked = version if timestamp is None else table.version()
        found = self._long_logs.keep(snapshot, asked, partial(files_of, self, table=table))
        # One that is kept lists its files by this very handle, which no write may then move to another version.
        if found.long_log is not None:
            return found
        if keep:
            return replace(found, opened=[table])
        if version is None and timestamp is None:
            self._last_read.keep(found, table)
        return found

    def begin(self, ref: TableRef) -> Snapshot | None:
        """The newest version of a table, for the one write that begins from it: its log stays open. None where there is no table."""
        read = self._last_read.take(ref)
        if read is not None:
            return read
        return self.snapshot(ref, keep=True) if self.exists(ref) else None

    def handle_of(self, snapshot: Snapshot) -> DeltaTable:
        """A handle of a snapshot's version, to look at; nothing may move it to another version."""
        held: list[DeltaTable] = snapshot.opened or []
        return held[0] if held else self.handle(snapshot.ref, snapshot.version)

    def take_handle(self, snapshot: Snapshot) -> DeltaTable:
        """A handle of a snapshot's version, of which the caller may make another version."""
        held: list[DeltaTable] = snapshot.opened or []
        return held.pop() if held else self.handle(snapshot.ref, snapshot.version)

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

    def arrow_dataset(self, snapshot: Snapshot) -> ds.Dataset:
        """The files of a snapshot as a Dataset; no data file is opened. Raises UnsupportedFeature."""
        return arrow_dataset(self, snapshot)

    scan_sql = staticmethod(scan_sql)

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

    def record(self, ref: TableRef, version: int) -> CommitRecord | None:
        """What the commit of a version changed, or None where the log does not hold it (any more, or yet)."""
        found = self.actions(ref, version)
        return None if found is None else found.record()

    def records_back(self, ref: TableRef, newest: int) -> Iterator[CommitRecord]:
        """What the commits changed, from ``newest`` backwards, as far as the log holds them."""
        return (found.record() for found in self.actions_back(ref, newest))

    def records_after(self, ref: TableRef, version: int) -> list[CommitRecord]:
        """What the commits after a version changed, oldest first."""
        newest = self.latest_version(ref)
        found = [self.record(ref, each) for each in range(version + 1, (newest or 0) + 1)]
        return [record for record in found if record is not None]

    # -- exactly once

    def app_version(self, ref: TableRef, app_id: str) -> int | None:
        """The newest version that an application id has committed, or None."""
        return self.handle(ref).transaction_version(app_id)

    def find_commit(self, ref: TableRef, app: AppTransaction, newest: Snapshot | None = None) -> Commit | None:
        """The commit that an application transaction made; None where it made none.

        Where the log has been cleaned up since, the commit says so instead of its counts.
        """
        table = self.handle(ref) if newest is None else self.handle_of(newest)
        committed = table.transaction_version(app.app_id)
        if committed is None or committed < app.version:
            return None
        for found in self.actions_back(ref, table.version()):
            if app in found.transactions:
                return found.record().as_commit(ref)
        return Commit(
            table=str(ref),
            location=ref.location,
            version=table.version(),
            mode="unknown",
            engine="unknown",
            writer="none",
            reason=f"the commit of {app.app_id} is no longer in the log; this is the newest version",
        )

    # -- commits

    def commit(
        self,
        ref: TableRef,
        snapshot: Snapshot | None,
        new: NewCommit,
        note: Mapping[str, Any],
        app: AppTransaction | None,
    ) -> int:
        """The version committed: the one after a snapshot (None: a new table). Raises CommitTaken, UnsupportedFeature,
        InvalidConfig, LostRows.
        """
        return write_commit(self, ref, snapshot, new, note, app)

    def checkpoint_if_due(self, before: Snapshot | None, ref: TableRef, version: int) -> None:
        """Keep the log short to read: a checkpoint every so many commits. Never fails the commit that was made."""
        maintenance.checkpoint_if_due(self, before, ref, version)

    def restore(self, snapshot: Snapshot, version: int, note: dict[str, Any], app: AppTransaction | None) -> int:
        """The version committed, whose state is that of an older one. Raises CommitTaken, VersionNotReadable."""
        then = self.snapshot(snapshot.ref, version)
        if respelled([*snapshot.files(), *then.files()]):
            return restore.restore(self, snapshot, then, note, app)
        table = self.take_handle(snapshot)
        try:
            table.restore(version, protocol_downgrade_allowed=False, commit_properties=commit_properties(app, note))
        except CommitFailedError as error:
            raise CommitTaken(str(error)) from error
        except DeltaError as error:
            raise VersionNotReadable(
                f"Cannot restore table {snapshot.ref} to version {version}: {str(error).rstrip(chr(46))}. "
                "Files that vacuum removed cannot come back; choose a newer version."
            ) from error
        return table.version()

    def convert(self, ref: TableRef, spec: ConvertSpec, note: dict[str, Any], app: AppTransaction | None) -> None:
        """Make a table, at version 0, of a folder's Parquet files. Raises CommitConflict, CommitTaken, StorageError, InvalidConfig."""
        maintenance.convert(self, ref, spec, note, app)

    def drop(self, ref: TableRef) -> None:
        """Remove a table's folder. A reader sees the whole table or none; a table that is not there is fine."""
        maintenance.drop(self, ref)

    def vacuum(self, snapshot: Snapshot, spec: VacuumSpec) -> tuple[str, ...]:
        """The paths removed, or listed. Raises InvalidConfig, UnsupportedFeature."""
        return maintenance.vacuum(self, snapshot, spec)

    def checkpoint(self, snapshot: Snapshot) -> None:
        """Write a checkpoint of a version."""
        maintenance.checkpoint(self, snapshot)

    def cleanup_log(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The paths removed: entries of the log older than its retention and covered by a checkpoint."""
        return maintenance.cleanup_log(self, snapshot)

    def scratch(self, owner: TableRef, definition: TableDefinition) -> AbstractContextManager[Scratch]:
        """A copy of a table, empty and of some definition. Its files stay at the end of the block; all else of it goes."""
        return scratch(self, owner, cast(DeltaDefinition, definition))

    # -- definitions

    def definition(self, snapshot: Snapshot) -> DeltaDefinition:
        """A table's columns, partitions, properties and description, as its log has them."""
        table = self.handle_of(snapshot)
        metadata = table.metadata()
        return DeltaDefinition(
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
        found = self.handle_of(snapshot).protocol()
        return Protocol(
            found.min_reader_version,
            found.min_writer_version,
            frozenset(found.reader_features or ()),
            frozenset(found.writer_features or ()),
        )

    def created(self, spec: CreateSpec, snapshot: Snapshot | None) -> DeltaDefinition:
        """The definition that a CreateSpec asks for. Raises SchemaMismatch, InvalidConfig, UnsupportedFeature."""
        made = definition.created(spec)
        if snapshot is None:
            return made
        before = self.definition(snapshot)
        return replace(made, id=before.id, name=before.name, created_time=before.created_time)

    def overwritten(
        self,
        spec: WriteSpec,
        fields: Sequence[Mapping[str, Any]],
        partition_by: Sequence[str],
        snapshot: Snapshot | None,
    ) -> DeltaDefinition:
        """The definition of a table whose rows are all written anew. Raises InvalidConfig, SchemaMismatch, UnsupportedFeature."""
        before = None if snapshot is None else self.definition(snapshot)
        return definition.overwritten(spec, map(dict, fields), tuple(partition_by), before)

    def altered(self, snapshot: Snapshot, spec: AlterSpec) -> Alteration:
        """The definition after the changes of a spec, in their order. Raises SchemaMismatch, InvalidConfig, UnsupportedFeature."""
        return alteration.altered(self.definition(snapshot), spec)

    def evolved(self, snapshot: Snapshot, fields: Sequence[Mapping[str, Any]], mode: SchemaMode) -> Alteration:
        """The definition that takes the columns of a source. Raises SchemaMismatch, InvalidConfig for a column that must stay."""
        return alteration.evolved(self.definition(snapshot), fields, mode)

    def described(
        self, snapshot: Snapshot, description: str | None, column_comments: Mapping[str, str]
    ) -> DeltaDefinition | None:
        """The definition with other descriptions, None of the table's leaving it; None where nothing differs."""
        before = self.definition(snapshot)
        after = before if description is None else replace(before, description=description)
        for column in before.fields:
            comment = column_comments.get(column["name"])
            if comment is not None:
                after = after.with_column(column["name"], metadata={**column["metadata"], "comment": comment})
        return None if after == before else after

    def fields_of(self, schema: pa.Schema) -> list[dict[str, Any]]:
        """Arrow columns as the log would have them."""
        return definition.fields_of(schema)

    # -- what features, properties and types allow

    def refuse_unknown_features(self, snapshot: Snapshot) -> None:
        """Raise UnsupportedFeature for a table that asks of a commit what ``commit`` does not do."""
        refuse_unknown_features(snapshot)

    def only_spark(self, snapshot: Snapshot) -> bool:
        """True for a table that asks of a commit what ``commit`` does not do."""
        return bool(unknown_features(snapshot))

    def special_properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Those that may ask for more of a table than metadata."""
        return definition.special_properties(properties)

    def asks_features(self, properties: Mapping[str, Any]) -> bool:
        """True if some property of a new table needs a table feature."""
        return definition.asks_features(properties)

    def lacks_feature(self, snapshot: Snapshot, fields: Sequence[Mapping[str, Any]]) -> bool:
        """True for columns with a type that needs a table feature which the table does not have."""
        naive = any(types.holds(field["type"], "timestamp_ntz") for field in fields)
        return naive and "timestampNtz" not in snapshot.writer_features

    def constrained_anew(self, snapshot: Snapshot, spec: WriteSpec) -> bool:
        """True if an overwrite keeps or changes the constraints of a table."""
        return definition.constrained_anew(snapshot.properties, snapshot.schema, spec)

    def computed_columns(self, snapshot: Snapshot) -> set[str]:
        """The generated and identity columns."""
        return {column.name for column in snapshot.schema if COMPUTED & set(column.metadata or {})}

    def spark_type(self, text: str, dialect: str, column: str) -> str:
        """A type of some dialect's SQL in Spark's, as the table would store it. Raises SchemaMismatch, InvalidConfig."""
        return types.spelled(types.delta_type(text, dialect, column))

    def spelled(self, kind: Any) -> str:
        """The ``type`` of a field in Spark's SQL."""
        return types.spelled(kind)
