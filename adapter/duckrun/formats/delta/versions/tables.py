"""Snapshots, definitions and protocols of the versions of Delta tables."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from duckrun.errors import VersionNotReadable
from duckrun.formats.commits import commit_of
from duckrun.formats.delta.definition import computed
from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.properties import checks_of
from duckrun.formats.delta.definition.protocol import CLUSTERING, WRITTEN, Protocol, unlisted
from duckrun.formats.delta.files import cautions
from duckrun.formats.delta.files.bounds import column_figures, file_bounds
from duckrun.formats.delta.files.logged import LoggedFiles, files_in, names_of_parts
from duckrun.formats.delta.files.plain_files import plain_files
from duckrun.formats.delta.files.scan_sql import scan_sql
from duckrun.formats.delta.files.vectors import deleted_of
from duckrun.formats.delta.log.access import LogAccess
from duckrun.formats.delta.log.adds import adds_of, deleted_rows
from duckrun.formats.delta.log.entries import CommitActions
from duckrun.formats.delta.versions.domains import clustered_by
from duckrun.formats.delta.versions.heads import Head, head_of
from duckrun.formats.delta.versions.long_logs import LongLogs
from duckrun.formats.delta.versions.newest import Newest, Opened, is_plain, known_of, moved, state_of
from duckrun.formats.delta.versions.short_logs import REFUSED, ShortLog, short_log, whole_log
from duckrun.libraries import on_demand
from duckrun.sql.raising import panicked
from duckrun.storage.storage import Storage
from duckrun.values.columns import fields_with
from duckrun.values.cursors import Counter
from duckrun.values.data_files import spelled
from duckrun.values.rows import AppTransaction, Commit, ReadSpec, ScanFile
from duckrun.values.snapshot import Snapshot, TableRef, may_be_variant

if TYPE_CHECKING:
    from duckrun.formats import pruning
else:
    pruning = on_demand("duckrun.formats.pruning")

_KEPT_ADDS = 1000
"""Maximum number of actions that are cached for one version."""


class TableAccess(LogAccess, ABC):
    """Versions of the Delta tables of one lake.

    Args:
        storage: The lake's storage.
        read_only: Leave the logs unchanged, also damaged hints in them.
    """

    def __init__(self, storage: Storage, *, read_only: bool = False) -> None:
        super().__init__(storage, read_only=read_only)
        self.newest = Newest(storage)
        self._long_logs = LongLogs(storage)

    def files_folder(self, ref: TableRef) -> str:
        """See LogTables."""
        return ""

    @abstractmethod
    def check_landed(self, snapshot: Snapshot | None, version: int | None, commit_id: str) -> None:
        """Raise CommitConflict if a commit's table was dropped; its entry is removed first."""
        # A commit calls it, and it commits: it restores the table that the entry landed in.

    def snapshot(
        self, ref: TableRef, version: int | None = None, timestamp: str | None = None, *, keep: bool = False
    ) -> Snapshot:
        """See Format; ``keep`` leaves the log open for a write."""
        cached = self._long_logs.find(ref, version) if timestamp is None else None
        if cached is None and timestamp is None:
            cached = self.newest.find(ref, to_write=keep) if version is None else self.newest.at(ref, version)
        if cached is not None:
            return cached
        if version is None and timestamp is None:
            log = short_log(self.storage, ref)
            begun = None if log is None else self._begun(ref, log, to_write=keep)
            if begun is not None:
                return begun
        table = self.handle(ref, version)
        if timestamp is not None:
            table = self._at(ref, table, timestamp)
        snapshot = self._long_logs.marked(self._described(ref, Head.of(table), table))
        if snapshot.long_log is not None and not keep:
            # The cached snapshot lists its files by this very handle, so no write may advance it.
            wanted = version if timestamp is None else table.version()
            return self._long_logs.keep(snapshot, wanted, partial(self._files_of, table=table))
        if version is None and timestamp is None:
            return self.newest.opened(snapshot, table, to_write=keep)
        return snapshot

    def newest_known(self, ref: TableRef) -> Snapshot | None:
        """See LogTables. This takes one listing, and one request for each later commit."""
        return None if self.storage.is_local else self.newest.find(ref)

    def made(self, ref: TableRef) -> Snapshot | None:
        """Return the first version of a table, if this process just wrote it to a store."""
        first = self.newest.first(ref)
        log = None if first is None else whole_log([first[0]], first[1])
        return None if log is None else self._begun(ref, log, to_write=False)

    def _begun(self, ref: TableRef, log: ShortLog, *, to_write: bool) -> Snapshot | None:
        """Return the newest version by all commits of its log; None if deltalake has to open it."""
        try:
            with log.opened() as table:
                snapshot = self._described(ref, Head.of(table), table)
                if not is_plain(snapshot):
                    return None
                known = log.known(snapshot, names_of_parts(snapshot))
                known.definition, known.protocol = self._definition(snapshot, table), _protocol_of(table)
        except BaseException as error:  # a panic of delta_rs is no Exception
            if not (isinstance(error, REFUSED) or panicked(error)):
                raise
            return None  # handle() reports it, with the table's location
        return self.newest.begun(snapshot, known, [], to_write=to_write)

    def listed(self, ref: TableRef) -> Snapshot | None:
        """See LogTables."""
        head = head_of(self.storage, ref)
        # deltalake refuses tables with other features.
        is_known = head is not None and head.reader_features | head.writer_features <= WRITTEN
        return self._described(ref, head) if head is not None and is_known else None

    def _described(self, ref: TableRef, head: Head, table: DeltaTable | None = None) -> Snapshot:
        """Return the snapshot of a head, without the state that the format attaches.

        Args:
            ref: The table.
            head: Protocol and metadata of the version.
            table: The open log, if there is one.
        """
        schema, properties = head.schema, head.properties
        snapshot = Snapshot(
            ref=ref,
            version=head.version,
            table_id=head.table_id,
            schema=schema,
            partition_columns=head.partition_columns,
            properties=properties,
            reader_features=head.reader_features,
            writer_features=head.writer_features | unlisted(schema, properties),
            checks=checks_of(properties),
            description=head.description,
            list_files=self._files_of,
            find_rounded=partial(cautions.rounded, self.handle_of, self.mark),
            find_plain=plain_files,
            find_legacy=partial(cautions.legacy, self.storage, self.mark),
            find_figures=partial(column_figures, self.handle_of),
            find_computed=computed.computing,
            make_scan_sql=partial(scan_sql, deleted=partial(deleted_of, self), open_version=self.handle_of),
            find_other=partial(self.snapshot, ref),
            find_matching=self._matching,
        )
        listed = {"variantType", "variantType-preview"} & snapshot.writer_features
        if listed and fields_with(schema, may_be_variant):
            known = self._definition(snapshot, table)
            snapshot = replace(snapshot, variants=known.variants, variants_inside=known.variants_inside)
        if CLUSTERING in snapshot.writer_features:
            snapshot = replace(snapshot, cluster_by=self._definition(snapshot, table).cluster_by or ())
        return snapshot

    def begin(self, ref: TableRef) -> Snapshot | None:
        snapshot = self.newest.find(ref, to_write=True)
        if snapshot is not None:
            return snapshot
        self.newest.first(ref)  # forget the commit of an older table
        return self.snapshot(ref, keep=True) if self.exists(ref) else None

    def handle_of(self, snapshot: Snapshot) -> DeltaTable:
        """Return a handle of a snapshot's version for reading, which nobody may advance."""
        opened = snapshot.opened if isinstance(snapshot.opened, Opened) else Opened(None)
        open_log = partial(self.handle, snapshot.ref, snapshot.version)
        if opened.reserved is not None:
            opened.reserved[:] = [
                moved(opened.reserved[0] if opened.reserved else None, snapshot.version) or open_log()
            ]
            return opened.reserved[0]
        return open_log() if opened.known is None else self.newest.look(snapshot, opened.known, open_log)

    def take_handle(self, snapshot: Snapshot) -> DeltaTable:
        """Return a handle of a snapshot's version for a caller that may commit the next version."""
        return self.handle_of(snapshot)

    def mark(self, snapshot: Snapshot) -> str | None:
        """Return the identity of a version's commit; None if the log no longer has it."""
        known = known_of(snapshot)
        return known.mark if known else snapshot.long_log or self.fingerprint(snapshot.ref, snapshot.version)

    def adds_of(self, snapshot: Snapshot, files: Sequence[ScanFile]) -> list[Mapping[str, Any]]:
        """Return the actions that added some live files, in their order.

        Those of a few files are cached, so that an attempt that lost its version does not read the
        log again for them.

        Raises:
            UnsupportedFeature: The log has neither the commits nor a checkpoint any more.
        """
        known, names = state_of(snapshot), [spelled(file) for file in files]
        adds = {**known.adds, **adds_of(self, snapshot, set(names) - known.adds.keys())}
        if len(adds) <= _KEPT_ADDS:
            known.adds = adds
        return [adds[name] for name in names]

    def _files_of(self, snapshot: Snapshot, table: DeltaTable | None = None) -> LoggedFiles:
        """Return the data files of a version with their counts of deleted rows; open none."""

        def read() -> LoggedFiles:
            marked = "deletionVectors" in snapshot.reader_features
            deleted = deleted_rows(self, snapshot) if marked else {}
            return files_in(table or self.handle_of(snapshot), snapshot, deleted)

        known = None if table is not None or snapshot.opened is None else snapshot.opened.known
        return read() if known is None else known.files(read)

    def _matching(self, snapshot: Snapshot, spec: ReadSpec) -> pruning.Matching:
        return pruning.matching(snapshot, snapshot.files(), spec, partial(file_bounds, self.handle_of, snapshot))

    def _at(self, ref: TableRef, table: DeltaTable, timestamp: str) -> DeltaTable:
        moment = moment_of(timestamp, ref)
        # The time of a file changes when the log is copied, the time in it does not (Delta
        # protocol, In-Commit Timestamps, Recommendations for Readers).
        times = [(each["version"], each.get("inCommitTimestamp") or each["timestamp"]) for each in self.history(ref)]
        # A clock that was set back gives no earlier time than that of the commit before, as in
        # delta-spark (DeltaHistoryManager.monotonizeCommitTimestamps).
        known = accumulate((ms for _, ms in reversed(times)), lambda last, ms: max(last + 1, ms))
        before = [v for (v, _), ms in zip(reversed(times), known, strict=True) if ms <= moment]
        if not before:
            first = datetime.fromtimestamp(min(ms for _, ms in times) / 1000, UTC).isoformat()
            raise VersionNotReadable(f"Table {ref} has no version at {timestamp}; the oldest in its log is of {first}.")
        return self.handle(ref, max(before))

    def definition(self, snapshot: Snapshot) -> DeltaDefinition:
        """Return the columns, partitioning, properties and description of a version."""
        known = state_of(snapshot)
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
        return replace(definition_of_log, cluster_by=clustered_by(self, snapshot, definition_of_log))

    def protocol(self, snapshot: Snapshot) -> Protocol:
        """Return the protocol of a version."""
        known = state_of(snapshot)
        if known.protocol is None:
            known.protocol = _protocol_of(self.handle_of(snapshot))
        return known.protocol

    # -- application transactions (Delta protocol, Transaction Identifiers)

    def find_commit(self, ref: TableRef, app: AppTransaction, newest: Snapshot | None = None) -> Commit | None:
        """See Format. If the log no longer has the commit, the result says so."""
        newest = newest or self.snapshot(ref)
        committed = self._app_version(newest, app.app_id)
        if committed is None or committed < app.version:
            return None
        for actions in self.actions_back(ref, newest.version):
            if app in actions.transactions:
                return actions.record().as_commit(ref)
        reason = f"the commit of {app.app_id} is no longer in the log; this is the newest version"
        return commit_of(ref, newest.version, {}, reason=reason)

    def counter(self, ref: TableRef, consumer: str, newest: Snapshot | None = None) -> Counter:
        """See Format. Source: Delta protocol, Transaction Identifiers."""
        newest = newest or self.snapshot(ref)
        highest = self._app_version(newest, consumer)
        if highest is None:
            return Counter()
        version = newest.version
        while version >= 0:
            actions = self.actions(ref, version)
            if actions is None or str(actions.info.get("operation", "")).upper() == "CLONE":  # rows of another table
                return Counter(highest=highest, known=False)
            # The newest commit with the id tells its number: each one replaces the number before.
            for each in actions.transactions:
                if each.app_id == consumer:
                    return Counter(each.version, highest)
            version = self._before(ref, actions)
        return Counter(highest=highest)

    def _before(self, ref: TableRef, commit: CommitActions) -> int:
        """Return the version that a commit continues; for a RESTORE, the one that it restores.

        A RESTORE leaves the transactions of the log unchanged.
        """
        if str(commit.info.get("operation", "")).upper() != "RESTORE":
            return commit.version - 1
        parameters = commit.info.get("operationParameters") or {}
        version = parameters.get("version")
        if version is not None:
            return int(version)
        return self.snapshot(ref, timestamp=str(parameters.get("timestamp") or parameters.get("datetime"))).version

    def _app_version(self, snapshot: Snapshot, app_id: str) -> int | None:
        known = state_of(snapshot)
        if app_id not in known.apps:
            version = None if known.has_all_apps else self.handle_of(snapshot).transaction_version(app_id)
            known.apps = {**known.apps, app_id: version}
        return known.apps[app_id]


def moment_of(timestamp: str, ref: TableRef) -> float:
    """Return a time in milliseconds since 1970.

    Raises:
        VersionNotReadable: It is no time.
    """
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError as error:
        raise VersionNotReadable(
            f"Table {ref}: {timestamp!r} is no time. Write it as ISO 8601, e.g. '2026-01-31 12:00:00'."
        ) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.timestamp() * 1000


def _protocol_of(table: DeltaTable) -> Protocol:
    action = table.protocol()
    features = (frozenset(each or ()) for each in (action.reader_features, action.writer_features))
    return Protocol(action.min_reader_version, action.min_writer_version, *features)
