"""Delta tables. Only this package knows ``_delta_log`` and deltalake.

All engines learn from here how a table was at a version, and what a commit did.
Reference: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, cast

import duckdb

from duckrun.errors import DuckrunError, StorageError, UnsupportedFeature
from duckrun.formats.changes import altered, evolved
from duckrun.formats.commits import CommitRecord, NewCommit
from duckrun.formats.definitions import Alteration, TableDefinition
from duckrun.formats.delta.commits import checkpoints, convert, folders, replaced, restore, vacuum
from duckrun.formats.delta.commits.checks import features_of_files, refuse_unknown_features
from duckrun.formats.delta.commits.delta_rs import DeltaRs
from duckrun.formats.delta.commits.scratch import Scratch, scratch
from duckrun.formats.delta.definition import column_ids, computed, creation, expressions, mapping, types
from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.properties import (
    GIVEN,
    ROW_COMMIT,
    ROW_ID,
    ROW_TRACKING,
    VECTORS,
    is_on,
    special_properties,
)
from duckrun.formats.delta.definition.protocol import BY_DELTALAKE, Protocol
from duckrun.formats.delta.definition.retention import log_retention
from duckrun.formats.delta.definition.rules import DeltaAlteration, DeltaRules
from duckrun.formats.delta.definition.types import fields_of
from duckrun.formats.delta.files.bounds import file_bounds
from duckrun.formats.delta.files.dataset import arrow_dataset
from duckrun.formats.delta.files.scan_sql import scan_sql
from duckrun.formats.delta.log import adds
from duckrun.formats.delta.log.entries import COPY, LOG
from duckrun.formats.delta.versions import changes
from duckrun.formats.delta.versions.changes import FEED_FOLDER
from duckrun.formats.delta.versions.domains import CLUSTERING_PROVIDER
from duckrun.formats.delta.versions.heads import Head
from duckrun.formats.delta.versions.newest import Opened, known_of
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.formats.format import SpecT
from duckrun.formats.logs import OwnLog, WrittenLog
from duckrun.libraries import pa
from duckrun.sql.char_types import is_limited
from duckrun.sql.on_demand import alike
from duckrun.storage.locks import table_lock
from duckrun.values.branches import BRANCHES
from duckrun.values.changes import CommitChange
from duckrun.values.choices import SchemaMode, WriterName
from duckrun.values.columns import is_required
from duckrun.values.computed import ComputedColumn
from duckrun.values.rows import AppTransaction, ScanFile, WriteSpec, counted_rows
from duckrun.values.snapshot import DELTA, ReadAs, Snapshot, TableRef
from duckrun.values.stored import StoredColumn
from duckrun.values.tables import AlterSpec, ConvertSpec, CreateSpec, SetProperties, VacuumSpec

if TYPE_CHECKING:
    import pyarrow.dataset as ds


class DeltaFormat(TableAccess):
    """Delta tables of one lake: Format, and its role LogTables.

    Functions of this package take a LogAccess or a TableAccess, which this class is too, or just
    the parts that they need.
    """

    name = DELTA
    feed_folder = FEED_FOLDER
    writer: WriterName = "staged"
    native_types = False
    transactions = None
    extensions = ("delta",)

    @property
    def logs(self) -> Self:
        return self

    @property
    def delta_rs(self) -> DeltaRs:
        return DeltaRs(self)

    @property
    def lent(self) -> Hashable:
        return DELTA, None if self.storage.is_local else self.storage

    def lend(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Do nothing: the extension finds a table by its folder."""

    def locked(self, ref: TableRef) -> AbstractContextManager[None]:
        return table_lock(ref, self.storage.is_local)

    def fields_of(self, schema: pa.Schema, types: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        return fields_of(schema, types or {})

    def refuse_other_files(self, ref: TableRef) -> None:
        """Raise StorageError if the folder of a new table holds foreign files.

        Leftovers of a killed first write are accepted: scratch copies, and data files that are
        named as Delta writers name them.
        """
        for key in self.storage.keys(ref.location):
            folder, _, name = key["path"].rpartition("/")
            top = folder.partition("/")[0]
            ours = top in (LOG, FEED_FOLDER, "_duckrun", BRANCHES) or top.startswith(COPY)
            ours = ours or name.startswith("part-") and name.endswith(".parquet") or name.startswith((".", "_"))
            if name == "_SUCCESS" or not ours:
                raise StorageError(
                    f"Table {ref} cannot be made at {ref.location}: the folder is no Delta table and holds files, "
                    f"such as {key['path']}",
                    remedy="Move them, or give the table another location",
                )

    def row_count(self, snapshot: Snapshot) -> int | None:
        return counted_rows(snapshot.files())

    def committed(self, before: Snapshot | None, ref: TableRef, version: int) -> Snapshot | None:
        now = self.made(ref) if before is None else self.newest.committed(before, version) or self._on(before, version)
        if now is None:
            # A new table, or a commit of more than files: open the log once for all later readers.
            newest = None
            with suppress(DuckrunError):  # the commit stands all the same
                newest = self.snapshot(ref)
            if before is not None and newest is not None and checkpoints.changes_partitions(before, newest):
                checkpoints.checkpoint_partitions(self, newest)
            else:
                self.keep_log_short(before, None, ref, version)
            return newest if newest is not None and newest.version == version else None
        self.keep_log_short(before, now, ref, version)
        if before is None:
            return now
        cached = replace(now, opened=Opened(now.opened.known))
        if before.long_log is None or self._long_logs.marked(cached).long_log is None:
            self.newest.keep(cached, now.opened.reserved)
        else:  # no checkpoint was due
            self.newest.forget(ref.location)
        return cached

    def _on(self, before: Snapshot, version: int) -> Snapshot | None:
        """Return the version that a write made on a long log, without another opening of it."""
        table = self.newest.advanced(before, version)
        if table is None:
            return None
        now = self.newest.opened(self._described(before.ref, Head.of(table), table), table, to_write=True)
        return None if known_of(now) is None or checkpoints.changes_partitions(before, now) else now

    def keep_log_short(self, before: Snapshot | None, now: Snapshot | None, ref: TableRef, version: int) -> None:
        """Write a checkpoint of a version that was just committed, if one is due."""
        checkpoints.checkpoint_if_due(self, before, now, ref, version)

    def log_to_write(self, ref: TableRef, snapshot: Snapshot | None) -> WrittenLog:
        return OwnLog(ref.location)

    # -- history

    def detail(self, ref: TableRef) -> dict[str, Any]:
        snapshot = self.snapshot(ref)
        table = self.handle(ref)
        files, protocol, metadata = snapshot.files(), table.protocol(), table.metadata()
        versions = (protocol.min_reader_version, protocol.min_writer_version)
        known = Protocol(*versions, snapshot.reader_features, snapshot.writer_features)
        return {
            "format": "delta",
            "id": snapshot.table_id,
            "name": str(ref),
            "description": metadata.description,
            "location": ref.location,
            "version": snapshot.version,
            "createdAt": datetime.fromtimestamp(metadata.created_time / 1000, UTC) if metadata.created_time else None,
            "partitionColumns": list(snapshot.partition_columns),
            "clusteringColumns": [".".join(path) for path in snapshot.cluster_by],
            "numFiles": len(files),
            "sizeInBytes": sum(file.size for file in files),
            "properties": snapshot.properties,
            "minReaderVersion": versions[0],
            "minWriterVersion": versions[1],
            "tableFeatures": sorted(snapshot.reader_features | known.present()),
        }

    def caught_up(self, snapshot: Snapshot) -> list[tuple[CommitRecord, Snapshot]] | None:
        steps = self.newest.since(snapshot)
        return None if steps is None else [(actions.record(), after) for actions, after in steps]

    def tells_since(self, ref: TableRef, version: int, newest: int, commits: Sequence[CommitRecord]) -> bool:
        return len(commits) >= newest - version

    # -- definitions

    def created(self, spec: CreateSpec, snapshot: Snapshot | None) -> DeltaDefinition:
        created = creation.created(spec)
        if snapshot is None:
            return created
        before = self.definition(snapshot)
        return column_ids.carried(created.in_place_of(before, keep=False), before)

    def overwritten(
        self,
        spec: WriteSpec,
        fields: Sequence[Mapping[str, Any]],
        partition_by: Sequence[str],
        snapshot: Snapshot | None,
    ) -> DeltaDefinition:
        before = None if snapshot is None else self.definition(snapshot)
        return creation.overwritten(spec, map(dict, fields), tuple(partition_by), before)

    def altered(self, snapshot: Snapshot, spec: AlterSpec) -> Alteration:
        return altered(self.definition(snapshot), spec.changes, DeltaRules(spec.dialect), DeltaAlteration)

    def evolved(self, snapshot: Snapshot, fields: Sequence[Mapping[str, Any]], mode: SchemaMode) -> Alteration:
        source = list(map(dict, fields))
        return evolved(self.definition(snapshot), source, mode, DeltaRules(), DeltaAlteration)

    def marking(self, snapshot: Snapshot, definition: DeltaDefinition | None) -> DeltaDefinition | None:
        if self.marks_rows(snapshot):
            return definition
        before = definition or self.definition(snapshot)
        return replace(before, properties={**before.properties, VECTORS: "true"})

    def marking_change(self, snapshot: Snapshot) -> AlterSpec | None:
        if self.marks_rows(snapshot) or snapshot.is_append_only:
            return None
        return AlterSpec((SetProperties({VECTORS: "true"}),))

    # -- reads

    def scan_sql(self, snapshot: Snapshot, read: ReadAs) -> str:
        return scan_sql(snapshot, read)

    def log_retention(self, snapshot: Snapshot) -> float:
        return log_retention(snapshot)

    def stored_columns(self, schema: pa.Schema) -> tuple[StoredColumn, ...]:
        return mapping.stored_columns(schema)

    def row_id_columns(self, snapshot: Snapshot) -> tuple[str, str] | None:
        # Materialized Row IDs and Row Commit Versions (Delta protocol, Row Tracking).
        properties = snapshot.properties
        if not is_on(properties, ROW_TRACKING):
            return None
        return properties.get(ROW_ID, "_metadata.row_id"), properties.get(ROW_COMMIT, "_metadata.row_commit")

    def arrow_dataset(self, snapshot: Snapshot) -> ds.Dataset:
        return arrow_dataset(self.storage, snapshot)

    def file_bounds(self, snapshot: Snapshot, column: str) -> pa.Table | None:
        return file_bounds(self.handle_of, snapshot, column)

    def commits_between(self, ref: TableRef, after: int, to: int) -> list[CommitChange]:
        return changes.commits_between(self, ref, after, to)

    def state_change(self, before: Snapshot | None, after: Snapshot) -> CommitChange:
        return changes.state_change(self, before, after)

    def vector_rows(self, ref: TableRef, vectors: Iterable[Hashable]) -> dict[Hashable, Any]:
        return changes.vector_rows(self, ref, vectors)

    def missing_files(self, ref: TableRef, files: Sequence[ScanFile]) -> list[ScanFile]:
        return changes.missing_files(self, ref, files)

    def first_ids(self, snapshot: Snapshot, files: Sequence[ScanFile]) -> list[tuple[int, int]]:
        return adds.first_ids(self, snapshot, files)

    def unclustered(self, snapshot: Snapshot, files: Sequence[ScanFile]) -> Iterator[ScanFile]:
        clustered = (
            add.get("clusteringProvider") == CLUSTERING_PROVIDER for add in adds.adds_in_order(self, snapshot, files)
        )
        return (file for file, is_done in zip(files, clustered, strict=True) if not is_done)

    # -- commits

    def commit(self, ref: TableRef, snapshot: Snapshot | None, new: NewCommit, *, over: Snapshot | None = None) -> int:
        return restore.commit(self, ref, snapshot, new, over=over)

    def check_landed(self, snapshot: Snapshot | None, version: int | None, commit_id: str) -> None:
        replaced.check_landed(self, snapshot, version, commit_id)

    def untouched(self, snapshot: Snapshot, records: Sequence[CommitRecord]) -> Sequence[ScanFile] | None:
        return restore.untouched(snapshot, records)

    def added_rows(self, snapshot: Snapshot, record: CommitRecord) -> str | None:
        return restore.added_rows(self, snapshot, record)

    def app_version(self, ref: TableRef, app_id: str) -> int | None:
        return self.handle(ref).transaction_version(app_id)

    def restore(self, now: Snapshot, version: int, note: dict[str, Any], app: AppTransaction | None) -> int:
        return restore.restore(self, now, version, note, app)

    def scratch(self, owner: TableRef, definition: TableDefinition) -> AbstractContextManager[Scratch]:
        return scratch(self, owner, definition)

    # -- maintenance

    def convert(self, ref: TableRef, spec: ConvertSpec, note: dict[str, Any], app: AppTransaction | None) -> None:
        convert.convert(self, ref, spec, note, app)

    def drop(self, ref: TableRef, *, force: bool = False) -> None:
        folders.drop(self, ref, force=force)

    def rename(self, ref: TableRef, new: TableRef) -> None:
        folders.rename(self, ref, new)

    def vacuum(self, snapshot: Snapshot, spec: VacuumSpec) -> tuple[str, ...]:
        return vacuum.vacuum(self, snapshot, spec)

    def checkpoint(self, snapshot: Snapshot) -> None:
        checkpoints.checkpoint(self, snapshot)

    def cleanup_log(self, snapshot: Snapshot) -> tuple[str, ...]:
        return checkpoints.cleanup_log(self, snapshot)

    # -- what features, properties and types allow

    def refuse_unknown_features(self, snapshot: Snapshot) -> None:
        refuse_unknown_features(snapshot)

    def refuse_copies(self, snapshot: Snapshot) -> None:
        if strange := features_of_files(snapshot):
            raise UnsupportedFeature(
                f"Table {snapshot.ref} uses {', '.join(sorted(strange))}, and this writes it anew from a copy, which "
                "Spark's own statements do not. Run this with engine: duckdb, which keeps them."
            )

    def with_properties(self, spec: SpecT, table: TableRef) -> SpecT:
        return creation.with_properties(spec, table)

    def special_properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        return special_properties(properties)

    def asked_features(self, properties: Mapping[str, Any]) -> list[str]:
        return creation.asked_features(properties)

    def spelled(self, kind: Any) -> str:
        return types.spelled(kind)

    def only_own(self, snapshot: Snapshot) -> str | None:
        unknown = sorted(snapshot.writer_features - BY_DELTALAKE - snapshot.idle_features)
        return f"it does not know {', '.join(unknown)}" if unknown else None

    def marks_rows(self, snapshot: Snapshot) -> bool:
        return is_on(snapshot.properties, VECTORS)

    def only_spark(self, snapshot: Snapshot) -> bool:
        return bool(features_of_files(snapshot))

    def lacks_feature(self, snapshot: Snapshot, fields: Sequence[Mapping[str, Any]]) -> bool:
        naive = any(types.holds(field["type"], "timestamp_ntz") for field in fields)
        return naive and "timestampNtz" not in snapshot.writer_features

    def constrained_anew(self, snapshot: Snapshot, spec: WriteSpec) -> bool:
        # Other writers take the columns from the rows, which are all nullable.
        return any(is_required(f) or is_limited(f) for f in snapshot.schema) or (
            spec.constraints is not None and GIVEN in snapshot.properties
        )

    def computed_columns(self, snapshot: Snapshot) -> set[str]:
        return {name for name, column in snapshot.computed().items() if column.default is None}

    def computing(self, schema: pa.Schema) -> Mapping[str, ComputedColumn]:
        return computed.computing(schema)

    def in_duckdb(self, expression: str, schema: pa.Schema) -> str | None:
        return alike.duckdb_of(expression, computed.kinds_of(fields_of(schema)))

    def with_numbers(
        self, snapshot: Snapshot, definition: TableDefinition | None, marks: Mapping[str, int]
    ) -> DeltaDefinition:
        return expressions.with_marks(cast(DeltaDefinition, definition) or self.definition(snapshot), marks)

    def spark_type(self, text: str, dialect: str, column: str) -> str:
        return types.spelled(types.limited_type(text, dialect, column))
