"""Operations on a whole table, shared by both engines: create, alter, restore, maintain.

The engine only supplies what needs rows: count violations, rewrite files, compact.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from duckrun.engines.engine import Engine
from duckrun.errors import CommitConflict, SchemaMismatch, UnsupportedFeature, in_branch, outcome_of
from duckrun.formats.commits import NewCommit
from duckrun.formats.format import logs_of
from duckrun.lake.lake import Lake
from duckrun.run.consumers import stranded
from duckrun.run.lake_upkeep import maintain
from duckrun.run.transaction import Transaction
from duckrun.values.rows import Commit, RowSpec, counted_rows
from duckrun.values.snapshot import Snapshot
from duckrun.values.tables import (
    AlterSpec,
    CheckpointSpec,
    CleanupLogSpec,
    ConvertSpec,
    CreateSpec,
    MaintenanceResult,
    OptimizeSpec,
    PurgeSpec,
    RestoreSpec,
    TableSpec,
    VacuumSpec,
)
from duckrun.values.upkeep import MergeFilesSpec, RewriteSpec

log = logging.getLogger(__name__)

LogSpec = VacuumSpec | CheckpointSpec | CleanupLogSpec

REWRITTEN = "the table was written anew in one commit: Parquet files know their columns by name and type"


class SpecEngine(Engine):
    """Engine that writes rows itself, and whose other operations are those of this module."""

    lake: Lake

    def about(self, subject: str) -> str:
        """Return the subject of an error, with the branch of this engine's lake."""
        return in_branch(subject, self.lake.branch_name)

    def execute(
        self, spec: RowSpec | TableSpec, source: Any | None, transaction: Transaction
    ) -> Commit | MaintenanceResult:
        with outcome_of(spec.mode, transaction.ref, transaction.lake.branch_name):
            spec = transaction.lake.format.with_properties(spec, transaction.ref)
            if isinstance(spec, TableSpec):
                job = LakeTableJob if transaction.lake.format.logs is None else LogTableJob
                return job(self, transaction).run(spec)
            return self.write_rows(spec, source, transaction)

    @abstractmethod
    def write_rows(self, spec: RowSpec, source: Any | None, transaction: Transaction) -> Commit:
        """Carry out one spec of rows as one commit; the arguments are those of ``execute()``."""


class TableJob(ABC):
    """One spec applied to one table."""

    def __init__(self, engine: Engine, transaction: Transaction) -> None:
        self.engine = engine
        self.transaction = transaction
        self.ref = transaction.ref
        self.lake = transaction.lake
        self.form = transaction.lake.format

    def run(self, spec: TableSpec) -> Commit | MaintenanceResult:
        match spec:
            case CreateSpec():
                return self._committed(spec, lambda snapshot: self._create(spec, snapshot))
            case AlterSpec():
                return self._committed(spec, lambda snapshot: self._alter(spec, self._there(snapshot)))
            case RestoreSpec():
                return self._committed(spec, lambda snapshot: self._restore(spec, self._there(snapshot)))
            case ConvertSpec():
                return self._convert(spec)
            case OptimizeSpec() | PurgeSpec():
                return self._optimize(spec)
            case VacuumSpec() | CheckpointSpec() | CleanupLogSpec():
                return self._keep(spec)

    def _committed(self, spec: TableSpec, attempt: Callable[[Snapshot | None], Commit]) -> Commit:
        def attempted(snapshot: Snapshot | None) -> Commit:
            engine_statement = self.engine.instead(spec, snapshot, self.transaction)
            return attempt(snapshot) if engine_statement is None else engine_statement()

        return self.transaction.run(attempted, mode=spec.mode, engine=self.engine.name, rerun=lambda: "again")

    def _there(self, snapshot: Snapshot | None) -> Snapshot:
        # raises TableNotFound, with near names
        return self.lake.snapshot(self.ref) if snapshot is None else snapshot

    # -- what a table is

    def _create(self, spec: CreateSpec, snapshot: Snapshot | None) -> Commit:
        if snapshot is not None and spec.if_exists == "error":
            raise CommitConflict(f"Table {self.ref} exists already, at version {snapshot.version}")
        if snapshot is not None and spec.if_exists == "ignore":
            return self.transaction.nothing(snapshot, "the table exists already")
        definition, gone = self.form.created(spec, snapshot), () if snapshot is None else snapshot.files()
        reason = "a table with no rows" + ("" if snapshot is None else " in place of the one before")
        rows = (0, 0, counted_rows(gone))
        new = NewCommit(spec, definition, removes=gone, rows=rows, reason=reason, anew=True)
        return self.transaction.commit(snapshot, new)

    def _alter(self, spec: AlterSpec, snapshot: Snapshot) -> Commit:
        alteration = self.form.altered(snapshot, spec)
        if not alteration.changed:
            return self.transaction.nothing(snapshot, "the table is so already")
        for condition, meaning in alteration.tests():
            breaking = self.engine.count_breaking(snapshot, alteration, condition)
            if breaking:
                raise SchemaMismatch(f"{meaning}, and {breaking} rows at version {snapshot.version} break it")
        if not alteration.rewrites:
            reason = "only the log says it; no file was written"
            return self.transaction.commit(snapshot, NewCommit(spec, alteration.after, reason=reason))
        with self.engine.rewritten(snapshot, alteration, self.transaction) as files:
            new = NewCommit(spec, alteration.after, files, snapshot.files(), writer="staged", reason=REWRITTEN)
            return self.transaction.commit(snapshot, new)

    def _restore(self, spec: RestoreSpec, snapshot: Snapshot) -> Commit:
        version = self.lake.snapshot(self.ref, spec.version, spec.timestamp).version
        if version == snapshot.version:
            return self.transaction.nothing(snapshot, "the table is at that version")
        note = self.transaction.note(reason=f"restored to version {version}", writer=self.form.writer)
        new = self.form.restore(snapshot, version, note, self.transaction.app)
        # There is no record if the restored version has the same rows and columns.
        if self.form.record(self.ref, new) is None:
            return self.transaction.nothing(snapshot, f"version {version} has the same rows and columns")
        return self.transaction.committed(new, writer=self.form.writer)

    # -- the parts of a role

    @abstractmethod
    def _convert(self, spec: ConvertSpec) -> Commit:
        """Make a folder of Parquet files a table."""

    @abstractmethod
    def _optimize(self, spec: OptimizeSpec | PurgeSpec) -> MaintenanceResult:
        """Rewrite files without changing rows."""

    @abstractmethod
    def _keep(self, spec: LogSpec) -> MaintenanceResult:
        """Maintain the table's log and old files."""


class LogTableJob(TableJob):
    """One spec applied to a table with its own log."""

    def __init__(self, engine: Engine, transaction: Transaction) -> None:
        super().__init__(engine, transaction)
        self.logs = logs_of(self.form)

    def _alter(self, spec: AlterSpec, snapshot: Snapshot) -> Commit:
        self.logs.refuse_unknown_features(snapshot)
        return super()._alter(spec, snapshot)

    def _convert(self, spec: ConvertSpec) -> Commit:
        reason = "the Parquet files stay as they are"

        def attempt(snapshot: Snapshot | None) -> Commit:
            note = self.transaction.note(reason=reason, writer="delta_rs")
            self.logs.convert(self.ref, spec, note, self.transaction.app)
            return self.transaction.committed(0, writer="delta_rs", reason=reason)

        return self.transaction.run(attempt, mode=spec.mode, engine=self.engine.name, over_files=True)

    def _optimize(self, spec: OptimizeSpec | PurgeSpec) -> MaintenanceResult:
        before: list[Snapshot] = []

        def attempt(snapshot: Snapshot | None) -> Commit:
            snapshot = self._there(snapshot)
            before[:] = [snapshot]
            return self.engine.optimize(spec, snapshot, self.transaction)

        commit = self.transaction.run(attempt, mode=spec.mode, engine=self.engine.name, rerun=lambda: "again")
        after = self.lake.snapshot(self.ref, commit.version)
        version = commit.version if commit.writer != "none" else None
        record = None if version is None else self.form.record(self.ref, version)
        added, removed = (record.added, record.removed) if record else ((), ())
        return self._result(
            spec,
            before[0] if before else None,
            after,
            commit.seconds,
            version=version,
            files_added=len(added),
            files_removed=len(removed),
            bytes_added=sum(file.size for file in added),
            bytes_removed=sum(file.size for file in removed),
        )

    def _keep(self, spec: LogSpec) -> MaintenanceResult:
        started = time.perf_counter()
        removed: tuple[str, ...] = ()
        dry_run = isinstance(spec, VacuumSpec) and spec.dry_run
        with self.transaction.locked():
            before = self.lake.snapshot(self.ref)
            match spec:
                case VacuumSpec():
                    removed = self.logs.vacuum(before, spec)
                case CheckpointSpec():
                    self.logs.checkpoint(before)
                case CleanupLogSpec():
                    removed = self.logs.cleanup_log(before)
            after = self.lake.snapshot(self.ref)
        version = None if after.version == before.version else after.version
        seconds = round(time.perf_counter() - started, 3)
        warnings = stranded(self.lake, after, removed, dry_run=dry_run)
        for each in warnings:
            log.warning("%s", each)
        result_fields = {"version": version, "removed": removed, "dry_run": dry_run, "warnings": warnings}
        return self._result(spec, before, after, seconds, **result_fields)

    def _result(
        self, spec: TableSpec, before: Snapshot | None, after: Snapshot, seconds: float, **fields: Any
    ) -> MaintenanceResult:
        then, now = before.files() if before else None, after.files()
        return MaintenanceResult(
            table=str(self.ref),
            mode=spec.mode,
            engine=self.engine.name,
            files_before=None if then is None else len(then),
            files_after=len(now),
            bytes_before=None if then is None else sum(file.size for file in then),
            bytes_after=sum(file.size for file in now),
            seconds=seconds,
            **fields,
        )


class LakeTableJob(TableJob):
    """One spec applied to a table of a lake with a catalog."""

    def _committed(self, spec: TableSpec, attempt: Callable[[Snapshot | None], Commit]) -> Commit:
        # A write checks its snapshot within its transaction. An operation without work opens none,
        # so it reads the newest snapshot here.
        return super()._committed(
            spec, lambda snapshot: attempt(None if snapshot is None else self.lake.snapshot(self.ref))
        )

    def _convert(self, spec: ConvertSpec) -> Commit:
        raise UnsupportedFeature(
            f"{self.ref.location} cannot be converted in place to a DuckLake table: CREATE TABLE … AS SELECT * "
            "FROM read_parquet(…)."
        )

    def _optimize(self, spec: OptimizeSpec | PurgeSpec) -> MaintenanceResult:
        """Run OPTIMIZE or purge in a DuckLake: merge files, or rewrite files with deleted rows.

        Both flush inlined rows first.
        """
        if spec.predicate is not None:
            raise UnsupportedFeature("WHERE goes with OPTIMIZE of Delta tables; DuckLake chooses the files itself")
        if isinstance(spec, OptimizeSpec) and spec.z_order_by:
            raise UnsupportedFeature("DuckLake has no z-order: sort_by keeps rows that are near in the same files")
        if isinstance(spec, OptimizeSpec) and spec.target_file_size is not None:
            raise UnsupportedFeature(
                "the size of a DuckLake table's files is a property of it: target_file_size in a write"
            )
        upkeep_spec = MergeFilesSpec() if isinstance(spec, OptimizeSpec) else RewriteSpec(0.0)
        return replace(maintain(self.lake, upkeep_spec, self.ref), mode=spec.mode)

    def _keep(self, spec: LogSpec) -> NoReturn:
        ref = self.lake.snapshot(self.ref).ref
        why = {
            VacuumSpec: f"VACUUM is Delta's; table {ref} is a DuckLake table: expire snapshots of its lake (expire), "
            "then cleanup.",
            CheckpointSpec: f"Table {ref} has no log of its own to checkpoint: its lake has one, "
            "s.upkeep.checkpoint().",
            CleanupLogSpec: f"Table {ref} has no log: expire snapshots of its lake (expire).",
        }
        raise UnsupportedFeature(why[type(spec)])
