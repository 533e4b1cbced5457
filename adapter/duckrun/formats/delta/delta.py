"""Delta tables. Only this package knows ``_delta_log`` and deltalake.

All engines learn from here how a table was at a version, and what a commit did.
Reference: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self, cast

import duckdb
from deltalake import DeltaTable

from duckrun.errors import DuckrunError, StorageError, VersionNotReadable
from duckrun.formats.commits import CommitRecord
from duckrun.formats.definitions import Alteration, TableDefinition
from duckrun.formats.delta import (
    applied,
    aside,
    cautions,
    changes,
    clustering,
    computed,
    definition,
    delta_rs,
    instead,
    maintenance,
    mapping,
    replaced,
    restore,
    row_tracking,
    rules,
    types,
    vacuum,
)
from duckrun.formats.delta.bounds import column_figures, file_bounds
from duckrun.formats.delta.commit import features_of_files, refuse_copies, refuse_unknown_features
from duckrun.formats.delta.dataset import arrow_dataset
from duckrun.formats.delta.definition import DeltaDefinition
from duckrun.formats.delta.files import files_of
from duckrun.formats.delta.log import COPY, LOG, CommitActions, entry, parse_commit
from duckrun.formats.delta.long_logs import LongLogs
from duckrun.formats.delta.newest import Newest, Opened, known_of, moved
from duckrun.formats.delta.opening import opened
from duckrun.formats.delta.properties import VECTORS, checks_of, special_properties
from duckrun.formats.delta.protocol import BY_DELTALAKE, Protocol, unlisted
from duckrun.formats.delta.scan_sql import scan_sql
from duckrun.formats.delta.scratch import scratch
from duckrun.formats.delta.vacuum import log_retention
from duckrun.formats.delta.vectors import deleted_of
from duckrun.formats.pruning import Matching, matching
from duckrun.libraries import pa
from duckrun.sql.alike import duckdb_of
from duckrun.storage.locks import table_lock
from duckrun.storage.storage import Storage
from duckrun.values.choices import SchemaMode, WriterName
from duckrun.values.columns import holds
from duckrun.values.rows import ReadSpec, WriteSpec, counted_rows
from duckrun.values.snapshot import DELTA, Snapshot, TableRef, may_be_variant
from duckrun.values.tables import AlterSpec, CreateSpec, SetProperties

_OF_A_LOG = (".json", ".checkpoint.parquet")


class DeltaFormat(aside.Logs):
    """Delta tables of one lake: Format, and its role LogTables.

    Functions of other modules that take the format as first argument are its methods.
    """

    name = DELTA
    handle = opened
    arrow_dataset = arrow_dataset
    file_bounds = file_bounds
    scan_sql = staticmethod(scan_sql)
    app_version = applied.app_version
    find_commit = applied.find_commit
    counter = applied.counter
    log_retention = staticmethod(log_retention)
    commit = instead.commit
    made_by = staticmethod(instead.made_by)
    untouched = instead.untouched
    added_rows = instead.added_rows
    restore = restore.restore
    check_landed = replaced.check_landed
    convert = maintenance.convert
    write_by_delta_rs = delta_rs.write
    merge_by_delta_rs = delta_rs.merge
    drop = maintenance.drop
    rename = maintenance.rename
    vacuum = vacuum.vacuum
    checkpoint = maintenance.checkpoint
    cleanup_log = maintenance.cleanup_log
    scratch = scratch
    commits_between = changes.commits_between
    state_change = changes.state_change
    vector_rows = changes.vector_rows
    missing_files = changes.missing_files
    stored_columns = staticmethod(mapping.stored_columns)
    row_id_columns = staticmethod(row_tracking.row_id_columns)
    first_ids = row_tracking.first_ids
    unclustered = clustering.unclustered
    has_feed = staticmethod(changes.has_feed)
    feed_folder = changes.FEED_FOLDER
    writer: WriterName = "staged"
    native_types = False
    transactions = None
    extensions = ("delta",)
    refuse_unknown_features = staticmethod(refuse_unknown_features)
    refuse_copies = staticmethod(refuse_copies)
    with_properties = staticmethod(definition.with_properties)
    special_properties = staticmethod(special_properties)
    asked_features = staticmethod(definition.asked_features)
    spelled = staticmethod(types.spelled)

    def __init__(self, storage: Storage, *, read_only: bool = False) -> None:
        super().__init__(storage)
        self.read_only = read_only
        self._long_logs = LongLogs(self)
        self.newest = Newest(storage)

    @property
    def logs(self) -> Self:
        return self

    @property
    def lent(self) -> Hashable:
        return DELTA, None if self.storage.is_local else self.storage

    def lend(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Do nothing: the extension finds a table by its folder."""

    def locked(self, ref: TableRef) -> AbstractContextManager[None]:
        return table_lock(ref, self.storage.is_local)

    def fields_of(self, schema: pa.Schema, types: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        return definition.fields_of(schema, types or {})

    # -- snapshots

    def exists(self, ref: TableRef) -> bool:
        if self.storage.is_local:
            with suppress(OSError), os.scandir(f"{ref.location}/{LOG}") as entries:
                # Of a long log, only the first names are read.
                if any(entry.name.endswith(_OF_A_LOG) for entry in entries):
                    return True
        return any(key["path"].endswith(_OF_A_LOG) for key in self.storage.keys(ref.location, LOG))

    def refuse_other_files(self, ref: TableRef) -> None:
        """Raise StorageError if the folder of a new table holds foreign files.

        Leftovers of a killed first write are accepted: scratch copies, and data files that are
        named as Delta writers name them.
        """
        for key in self.storage.keys(ref.location):
            folder, _, name = key["path"].rpartition("/")
            top = folder.partition("/")[0]
            ours = name.startswith("part-") and name.endswith(".parquet") or name.startswith((".", "_"))
            if name == "_SUCCESS" or not (
                ours or top in (LOG, changes.FEED_FOLDER, "_duckrun") or top.startswith(COPY)
            ):
                raise StorageError(
                    f"Table {ref} cannot be made at {ref.location}: the folder is no Delta table and holds files, "
                    f"such as {key['path']}",
                    remedy="Move them, or give the table another location",
                )

    def row_count(self, snapshot: Snapshot) -> int | None:
        return counted_rows(snapshot.files())

    def latest_version(self, ref: TableRef) -> int | None:
        return self.handle(ref).version() if self.exists(ref) else None

    def snapshot(
        self, ref: TableRef, version: int | None = None, timestamp: str | None = None, *, keep: bool = False
    ) -> Snapshot:
        """See Format; ``keep`` leaves the log open for a write."""
        cached = self._long_logs.find(ref, version) if timestamp is None else None
        if cached is None and timestamp is None:
            cached = self.newest.find(ref, to_write=keep) if version is None else self.newest.at(ref, version)
        if cached is not None:
            return cached
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
            checks=checks_of(properties),
            description=metadata.description,
            list_files=partial(files_of, self),
            find_rounded=partial(cautions.rounded, self),
            find_legacy=partial(cautions.legacy, self),
            find_figures=partial(column_figures, self),
            find_computed=computed.computing,
            make_scan_sql=partial(scan_sql, deleted=partial(deleted_of, self)),
            find_other=partial(self.snapshot, ref),
            find_matching=self._matching,
        )
        listed = {"variantType", "variantType-preview"} & snapshot.writer_features
        if listed and any(holds(field.type, may_be_variant) for field in schema):
            known = self._definition(snapshot, table)
            snapshot = replace(snapshot, variants=known.variants, variants_inside=known.variants_inside)
        if clustering.FEATURE in snapshot.writer_features:
            snapshot = replace(snapshot, cluster_by=self._definition(snapshot, table).cluster_by or ())
        wanted = version if timestamp is None else table.version()
        opened_snapshot = self._long_logs.keep(snapshot, wanted, partial(files_of, self, table=table))
        # A snapshot with a long log lists its files by this very handle, so no write may advance
        # it.
        if opened_snapshot.long_log is not None:
            return opened_snapshot
        if version is None and timestamp is None:
            return self.newest.opened(opened_snapshot, table, to_write=keep)
        return opened_snapshot

    def begin(self, ref: TableRef) -> Snapshot | None:
        snapshot = self.newest.find(ref, to_write=True)
        if snapshot is not None:
            return snapshot
        return self.snapshot(ref, keep=True) if self.exists(ref) else None

    def committed(self, before: Snapshot | None, ref: TableRef, version: int) -> Snapshot | None:
        now = None if before is None else self.newest.committed(before, version)
        if now is None:
            # A new table, or a commit of more than files: open the log once for all later readers.
            newest = None
            with suppress(DuckrunError):  # the commit stands all the same
                newest = self.snapshot(ref)
            if before is not None and newest is not None and maintenance.changes_partitions(before, newest):
                maintenance.checkpoint_partitions(self, newest)
            else:
                maintenance.checkpoint_if_due(self, before, None, ref, version)
            return newest if newest is not None and newest.version == version else None
        maintenance.checkpoint_if_due(self, before, now, ref, version)
        cached = replace(now, opened=Opened(now.opened.known))
        self.newest.keep(cached, now.opened.own)
        return cached

    def handle_of(self, snapshot: Snapshot) -> DeltaTable:
        """Return a handle of a snapshot's version for reading, which nobody may advance."""
        opened = snapshot.opened if isinstance(snapshot.opened, Opened) else Opened(None)
        open_log = partial(self.handle, snapshot.ref, snapshot.version)
        if opened.own is not None:
            opened.own[:] = [moved(opened.own[0] if opened.own else None, snapshot.version) or open_log()]
            return opened.own[0]
        return open_log() if opened.known is None else self.newest.look(snapshot, opened.known, open_log)

    def take_handle(self, snapshot: Snapshot) -> DeltaTable:
        """Return a handle of a snapshot's version for a caller that may commit the next version."""
        return self.handle_of(snapshot)

    def _at(self, ref: TableRef, table: DeltaTable, timestamp: str) -> DeltaTable:
        try:
            moment = datetime.fromisoformat(timestamp)
        except ValueError as error:
            raise VersionNotReadable(
                f"Table {ref}: {timestamp!r} is no time. Write it as ISO 8601, e.g. '2026-01-31 12:00:00'."
            ) from error
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        times = [(each["version"], each.get("inCommitTimestamp") or each["timestamp"]) for each in self.history(ref)]
        before = [v for v, ms in times if ms <= moment.timestamp() * 1000]
        if not before:
            first = datetime.fromtimestamp(min(ms for _, ms in times) / 1000, UTC).isoformat()
            raise VersionNotReadable(f"Table {ref} has no version at {timestamp}; the oldest in its log is of {first}.")
        return self.handle(ref, max(before))

    # -- history

    def history(self, ref: TableRef, limit: int | None = None) -> list[dict[str, Any]]:
        return self.handle(ref).history(limit)

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

    def _matching(self, snapshot: Snapshot, spec: ReadSpec) -> Matching:
        return matching(snapshot, snapshot.files(), spec, partial(self.file_bounds, snapshot))

    def records_after(self, ref: TableRef, version: int) -> list[CommitRecord]:
        records: list[CommitRecord] = []
        while (record := self.record(ref, version + 1 + len(records))) is not None:
            records.append(record)
        return records

    def caught_up(self, snapshot: Snapshot) -> list[tuple[CommitRecord, Snapshot]] | None:
        steps = self.newest.since(snapshot)
        return None if steps is None else [(actions.record(), after) for actions, after in steps]

    def tells_since(self, ref: TableRef, version: int, newest: int, commits: Sequence[CommitRecord]) -> bool:
        return len(commits) >= newest - version

    def fingerprint(self, ref: TableRef, version: int) -> str | None:
        """See Format; a hash of the bytes of the log entry."""
        raw = self.storage.read_at(ref.location, entry(version))
        return None if raw is None else hashlib.sha256(raw).hexdigest()

    # -- definitions

    def definition(self, snapshot: Snapshot) -> DeltaDefinition:
        """Return the columns, partitioning, properties and description of a version."""
        known = known_of(snapshot)
        if known is None:
            return self._definition(snapshot)
        known.definition = known.definition or self._definition(snapshot)
        return known.definition

    def _definition(self, snapshot: Snapshot, table: DeltaTable | None = None) -> DeltaDefinition:
        table = table or self.handle_of(snapshot)
        metadata = table.metadata()
        definition_of_log = DeltaDefinition(
            fields=tuple(json.loads(table.schema().to_json())["fields"]),
            partition_columns=tuple(metadata.partition_columns),
            properties=dict(metadata.configuration),
            description=metadata.description,
            id=str(metadata.id),
            name=metadata.name,
            created_time=metadata.created_time,
        )
        return replace(definition_of_log, cluster_by=clustering.clustered_by(self, snapshot, definition_of_log))

    def protocol(self, snapshot: Snapshot) -> Protocol:
        """Return the protocol of a version."""
        known = known_of(snapshot)
        if known is None:
            return self._protocol(snapshot)
        known.protocol = known.protocol or self._protocol(snapshot)
        return known.protocol

    def _protocol(self, snapshot: Snapshot) -> Protocol:
        actions = self.handle_of(snapshot).protocol()
        return Protocol(
            actions.min_reader_version,
            actions.min_writer_version,
            frozenset(actions.reader_features or ()),
            frozenset(actions.writer_features or ()),
        )

    def created(self, spec: CreateSpec, snapshot: Snapshot | None) -> DeltaDefinition:
        created = definition.created(spec)
        if snapshot is None:
            return created
        before = self.definition(snapshot)
        return mapping.carried(
            replace(created, id=before.id, name=before.name, created_time=before.created_time), before
        )

    def overwritten(
        self,
        spec: WriteSpec,
        fields: Sequence[Mapping[str, Any]],
        partition_by: Sequence[str],
        snapshot: Snapshot | None,
    ) -> DeltaDefinition:
        before = None if snapshot is None else self.definition(snapshot)
        return definition.overwritten(spec, map(dict, fields), tuple(partition_by), before)

    def altered(self, snapshot: Snapshot, spec: AlterSpec) -> Alteration:
        return rules.altered(self.definition(snapshot), spec)

    def evolved(self, snapshot: Snapshot, fields: Sequence[Mapping[str, Any]], mode: SchemaMode) -> Alteration:
        return rules.evolved(self.definition(snapshot), list(map(dict, fields)), mode)

    def described(
        self, snapshot: Snapshot, description: str | None, column_comments: Mapping[str, str]
    ) -> DeltaDefinition | None:
        before = self.definition(snapshot)
        after = before if description is None else replace(before, description=description)
        for column in before.fields:
            comment = column_comments.get(column["name"])
            if comment is not None:
                after = after.with_column(column["name"], metadata={**column["metadata"], "comment": comment})
        return None if after == before else after

    def marking(self, snapshot: Snapshot, definition: DeltaDefinition | None) -> DeltaDefinition | None:
        if self.marks_rows(snapshot):
            return definition
        before = definition or self.definition(snapshot)
        return replace(before, properties={**before.properties, VECTORS: "true"})

    def marking_change(self, snapshot: Snapshot) -> AlterSpec | None:
        if self.marks_rows(snapshot) or snapshot.properties.get("delta.appendOnly", "").lower() == "true":
            return None
        return AlterSpec((SetProperties({VECTORS: "true"}),))

    # -- what features, properties and types allow

    def only_own(self, snapshot: Snapshot) -> str | None:
        unknown = sorted(snapshot.writer_features - BY_DELTALAKE - snapshot.idle_features)
        return f"it does not know {', '.join(unknown)}" if unknown else None

    def marks_rows(self, snapshot: Snapshot) -> bool:
        return snapshot.properties.get(VECTORS, "").lower() == "true"

    def only_spark(self, snapshot: Snapshot) -> bool:
        return bool(features_of_files(snapshot))

    def lacks_feature(self, snapshot: Snapshot, fields: Sequence[Mapping[str, Any]]) -> bool:
        naive = any(types.holds(field["type"], "timestamp_ntz") for field in fields)
        return naive and "timestampNtz" not in snapshot.writer_features

    def constrained_anew(self, snapshot: Snapshot, spec: WriteSpec) -> bool:
        return definition.constrained_anew(snapshot.properties, snapshot.schema, spec)

    def computed_columns(self, snapshot: Snapshot) -> set[str]:
        return {name for name, column in snapshot.computed().items() if column.default is None}

    computing = staticmethod(computed.computing)

    def in_duckdb(self, expression: str, schema: pa.Schema) -> str | None:
        return duckdb_of(expression, computed.kinds_of(definition.fields_of(schema)))

    def with_numbers(
        self, snapshot: Snapshot, definition: TableDefinition | None, marks: Mapping[str, int]
    ) -> DeltaDefinition:
        return computed.with_marks(cast(DeltaDefinition, definition) or self.definition(snapshot), marks)

    def spark_type(self, text: str, dialect: str, column: str) -> str:
        return types.spelled(types.limited_type(text, dialect, column))
