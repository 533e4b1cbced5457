"""Work on a table as a whole: make it, alter it, restore it, keep it in order. One code for both engines.

An engine is asked only for what needs rows: to count those that break a condition, to write files anew, to compact.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from duckrun.engines.engine import Engine
from duckrun.errors import CommitConflict, DuckrunError, SchemaMismatch, UnsupportedFeature
from duckrun.formats.commits import NewCommit
from duckrun.run.consumers import stranded
from duckrun.run.lake_upkeep import maintain
from duckrun.run.transaction import Transaction
from duckrun.values.rows import Commit, WriterName, counted_rows
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

REWRITTEN = "the table was written anew in one commit: Parquet files know their columns by name and type"


def carry_out(engine: Engine, spec: TableSpec, transaction: Transaction) -> Commit | MaintenanceResult:
    """Carry out one spec. Raises CommitConflict, TableNotFound, SchemaMismatch, InvalidConfig, UnsupportedFeature; the table is
    then as it was.
    """
    return TableJob(engine, transaction).run(spec)


class TableJob:
    """One spec on one table."""

    def __init__(self, engine: Engine, transaction: Transaction) -> None:
        self.engine = engine
        self.transaction = transaction
        self.ref = transaction.ref
        self.lake = transaction.lake
        self.form = transaction.lake.format

    def run(self, spec: TableSpec) -> Commit | MaintenanceResult:
        with self._errors(spec.mode):
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
                    return self._of_lake(spec) if self.form.transacts else self._optimize(spec)
                case VacuumSpec() | CheckpointSpec() | CleanupLogSpec():
                    return self._keep(spec)

    @contextmanager
    def _errors(self, mode: str) -> Iterator[None]:
        try:
            yield
        except DuckrunError as error:
            if str(self.ref) in str(error):
                raise
            raise type(error)(
                f"{mode} on table {self.ref}: {str(error).rstrip('.')}. The table is as it was."
            ) from error

    def _committed(self, spec: TableSpec, attempt: Callable[[Snapshot | None], Commit]) -> Commit:
        def attempted(snapshot: Snapshot | None) -> Commit:
            if self.form.transacts and snapshot is not None:
                # What a write begins from is looked at in its transaction, which there is none of where nothing is left to do.
                snapshot = self.lake.snapshot(self.ref)
            own = self.engine.instead(spec, snapshot, self.transaction)
            return attempt(snapshot) if own is None else own()

        return self.transaction.run(attempted, mode=spec.mode, engine=self.engine.name, rerun=lambda: "again")

    def _there(self, snapshot: Snapshot | None) -> Snapshot:
        return self.lake.snapshot(self.ref) if snapshot is None else snapshot  # raises TableNotFound, with near names

    # -- what a table is

    def _create(self, spec: CreateSpec, snapshot: Snapshot | None) -> Commit:
        if snapshot is not None and spec.if_exists == "error":
            raise CommitConflict(f"Table {self.ref} exists already, at version {snapshot.version}; nothing was made.")
        if snapshot is not None and spec.if_exists == "ignore":
            return self.transaction.nothing(snapshot, "the table exists already")
        definition, gone = self.form.created(spec, snapshot), () if snapshot is None else snapshot.files()
        reason = "a table with no rows" + ("" if snapshot is None else " in place of the one before")
        rows = (0, 0, counted_rows(gone))
        new = NewCommit(spec, definition, removes=gone, rows=rows, reason=reason, anew=True)
        return self.transaction.commit(snapshot, new)

    def _alter(self, spec: AlterSpec, snapshot: Snapshot) -> Commit:
        self.form.refuse_unknown_features(snapshot)
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
        writer: WriterName = "ducklake" if self.form.transacts else "staged"
        note = self.transaction.note(reason=f"restored to version {version}", writer=writer)
        new = self.form.restore(snapshot, version, note, self.transaction.app)
        if (
            self.form.transacts and self.form.record(self.ref, new) is None
        ):  # the lake has noted it, and nothing differed
            return self.transaction.nothing(snapshot, f"version {version} has the same rows and columns")
        return self.transaction.committed(new, writer=writer)

    def _convert(self, spec: ConvertSpec) -> Commit:
        reason = "the Parquet files stay as they are"

        def attempt(snapshot: Snapshot | None) -> Commit:
            note = self.transaction.note(reason=reason, writer="delta_rs")
            self.form.convert(self.ref, spec, note, self.transaction.app)
            return self.transaction.committed(0, writer="delta_rs", reason=reason)

        return self.transaction.run(attempt, mode=spec.mode, engine=self.engine.name, over_files=True)

    # -- keeping it in order

    def _of_lake(self, spec: OptimizeSpec | PurgeSpec) -> MaintenanceResult:
        """OPTIMIZE and purge in DuckLake's words: merge, and rewrite of every file with deleted rows; either flushes first."""
        if spec.predicate is not None:
            raise UnsupportedFeature("WHERE goes with OPTIMIZE of Delta tables; DuckLake chooses the files itself")
        if isinstance(spec, OptimizeSpec) and spec.z_order_by:
            raise UnsupportedFeature("DuckLake has no z-order: sort_by keeps rows that are near in the same files")
        if isinstance(spec, OptimizeSpec) and spec.target_file_size is not None:
            raise UnsupportedFeature(
                "the size of a DuckLake table's files is a property of it: target_file_size in a write"
            )
        asked = MergeFilesSpec() if isinstance(spec, OptimizeSpec) else RewriteSpec(0.0)
        return replace(maintain(self.lake, asked, self.ref), mode=spec.mode)

    def _optimize(self, spec: OptimizeSpec | PurgeSpec) -> MaintenanceResult:
        before: list[Snapshot] = []

        def attempt(snapshot: Snapshot | None) -> Commit:
            snapshot = self._there(snapshot)
            before[:] = [snapshot]
            return self.engine.optimize(spec, snapshot, self.transaction)

        commit = self.transaction.run(attempt, mode=spec.mode, engine=self.engine.name, rerun=lambda: "again")
        after = self.lake.snapshot(self.ref, commit.version)
        made = commit.version if commit.writer != "none" else None
        record = None if made is None else self.form.record(self.ref, made)
        added, removed = (record.added, record.removed) if record else ((), ())
        return self._result(
            spec,
            before[0] if before else None,
            after,
            commit.seconds,
            version=made,
            files_added=len(added),
            files_removed=len(removed),
            bytes_added=sum(file.size for file in added),
            bytes_removed=sum(file.size for file in removed),
        )

    def _keep(self, spec: VacuumSpec | CheckpointSpec | CleanupLogSpec) -> MaintenanceResult:
        started = time.perf_counter()
        removed: tuple[str, ...] = ()
        dry_run = isinstance(spec, VacuumSpec) and spec.dry_run
        with self.transaction.locked():
            before = self.lake.snapshot(self.ref)
            match spec:
                case VacuumSpec():
                    removed = self.form.vacuum(before, spec)
                case CheckpointSpec():
                    self.form.checkpoint(before)
                case CleanupLogSpec():
                    removed = self.form.cleanup_log(before)
            after = self.lake.snapshot(self.ref)
        made = None if after.version == before.version else after.version
        seconds = round(time.perf_counter() - started, 3)
        warnings = stranded(self.lake, after, removed, dry_run=dry_run)
        for each in warnings:
            log.warning("%s", each)
        said = {"version": made, "removed": removed, "dry_run": dry_run, "warnings": warnings}
        return self._result(spec, before, after, seconds, **said)

    def _result(
        self, spec: TableSpec, before: Snapshot | None, after: Snapshot, seconds: float, **said: Any
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
            **said,
        )
