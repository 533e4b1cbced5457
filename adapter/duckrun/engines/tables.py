"""Work on a table as a whole: make it, alter it, restore it, keep it in order. One code for both engines.

An engine is asked only for what needs rows: to count those that break a condition, to write files anew, to compact.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from duckrun.engines.engine import Engine
from duckrun.errors import CommitConflict, DuckrunError, SchemaMismatch
from duckrun.formats.delta import maintenance, operations
from duckrun.formats.delta.alteration import altered
from duckrun.formats.delta.commit import NewCommit, refuse_unknown_features
from duckrun.formats.delta.definition import created
from duckrun.run.transaction import Transaction
from duckrun.values.rows import Commit, counted_rows
from duckrun.values.snapshot import Snapshot
from duckrun.values.tables import (
    AlterSpec,
    CheckpointSpec,
    CleanupLogSpec,
    ConvertSpec,
    CreateSpec,
    MaintenanceResult,
    OptimizeSpec,
    RestoreSpec,
    TableSpec,
    VacuumSpec,
)

REWRITTEN = "the table was written anew in one commit: Parquet files know their columns by name and type"


@dataclass(frozen=True)
class Sizes:
    files: int
    size: int


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
                case OptimizeSpec():
                    return self._optimize(spec)
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
            own = self.engine.instead(spec, snapshot, self.transaction)
            return attempt(snapshot) if own is None else own()

        return self.transaction.run(attempted, mode=spec.mode, engine=self.engine.name)

    def _there(self, snapshot: Snapshot | None) -> Snapshot:
        return self.lake.snapshot(self.ref) if snapshot is None else snapshot  # raises TableNotFound, with near names

    # -- what a table is

    def _create(self, spec: CreateSpec, snapshot: Snapshot | None) -> Commit:
        if snapshot is not None and spec.if_exists == "error":
            raise CommitConflict(f"Table {self.ref} exists already, at version {snapshot.version}; nothing was made.")
        if snapshot is not None and spec.if_exists == "ignore":
            return self._nothing(snapshot, spec, "the table exists already")
        definition = created(spec)
        if snapshot is None:
            return self._commit(
                spec,
                None,
                NewCommit(operations.created(definition, "CREATE TABLE"), {}, definition),
                "a table with no rows",
            )
        before = self.form.definition(snapshot)
        definition = replace(definition, id=before.id, name=before.name, created_time=before.created_time)
        new = NewCommit(
            operations.created(definition, "CREATE OR REPLACE TABLE"), {}, definition, removes=snapshot.files()
        )
        rows = counted_rows(snapshot.files())
        return self._commit(spec, snapshot, new, "a table with no rows in place of the one before", rows_deleted=rows)

    def _alter(self, spec: AlterSpec, snapshot: Snapshot) -> Commit:
        refuse_unknown_features(snapshot)
        alteration = altered(self.form.definition(snapshot), spec)
        if not alteration.changed:
            return self._nothing(snapshot, spec, "the table is so already")
        for condition, meaning in alteration.tests():
            breaking = self.engine.count_breaking(snapshot, alteration, condition)
            if breaking:
                raise SchemaMismatch(f"{meaning}, and {breaking} rows at version {snapshot.version} break it")
        if not alteration.rewrites:
            new = NewCommit(operations.Operation(alteration.operation), {}, alteration.after)
            return self._commit(spec, snapshot, new, "only the log says it; no file was written")
        with self.engine.rewritten(snapshot, alteration, self.transaction) as files:
            new = NewCommit(operations.Operation(alteration.operation), {}, alteration.after, files, snapshot.files())
            return self._commit(spec, snapshot, new, REWRITTEN, writer="staged")

    def _restore(self, spec: RestoreSpec, snapshot: Snapshot) -> Commit:
        version = self.lake.snapshot(self.ref, spec.version, spec.timestamp).version
        if version == snapshot.version:
            return self._nothing(snapshot, spec, "the table is at that version")
        note = self.transaction.note(reason=f"restored to version {version}", writer="delta_rs")
        new = self.form.restore(snapshot, version, note, self.transaction.app)
        return self.form.commit_at(self.ref, new, mode="restore", engine=self.engine.name, writer="delta_rs")

    def _commit(
        self,
        spec: TableSpec,
        snapshot: Snapshot | None,
        new: NewCommit,
        reason: str,
        *,
        writer: str = "none",
        **counts: Any,
    ) -> Commit:
        counted = {"rows_inserted": 0, "rows_updated": 0, "rows_deleted": 0, **counts}
        note = self.transaction.note(writer=writer, reason=reason, **counted)
        version = self.form.commit(self.ref, snapshot, replace(new, note=note, app=self.transaction.app))
        return self.form.commit_at(
            self.ref, version, mode=spec.mode, engine=self.engine.name, writer=writer, reason=reason
        )

    def _nothing(self, snapshot: Snapshot, spec: TableSpec, reason: str) -> Commit:
        return nothing(snapshot, spec.mode, self.engine.name, reason)

    def _convert(self, spec: ConvertSpec) -> Commit:
        reason = "the Parquet files stay as they are"

        def attempt(snapshot: Snapshot | None) -> Commit:
            note = self.transaction.note(reason=reason, writer="delta_rs")
            maintenance.convert(self.form, self.ref, spec, note, self.transaction.app)
            return self.form.commit_at(
                self.ref, 0, mode=spec.mode, engine=self.engine.name, writer="delta_rs", reason=reason
            )

        return self.transaction.run(attempt, mode=spec.mode, engine=self.engine.name, over_files=True)

    # -- keeping it in order

    def _optimize(self, spec: OptimizeSpec) -> MaintenanceResult:
        before: list[Snapshot] = []

        def attempt(snapshot: Snapshot | None) -> Commit:
            snapshot = self._there(snapshot)
            before[:] = [snapshot]
            return self.engine.optimize(spec, snapshot, self.transaction)

        commit = self.transaction.run(attempt, mode=spec.mode, engine=self.engine.name)
        after = self.lake.snapshot(self.ref, commit.version)
        made = commit.version if commit.writer != "none" else None
        return self._result(spec, before[0] if before else None, after, commit.seconds, version=made)

    def _keep(self, spec: VacuumSpec | CheckpointSpec | CleanupLogSpec) -> MaintenanceResult:
        self.lake.ensure_writable(self.ref)
        started = time.perf_counter()
        removed: tuple[str, ...] = ()
        dry_run = isinstance(spec, VacuumSpec) and spec.dry_run
        with self.transaction.locked():
            before = self.lake.snapshot(self.ref)
            match spec:
                case VacuumSpec():
                    own = self.engine.vacuum(spec, before, self.transaction)
                    removed = maintenance.vacuum(self.form, before, spec) if own is None else own
                case CheckpointSpec():
                    maintenance.checkpoint(self.form, before)
                case CleanupLogSpec():
                    removed = maintenance.cleanup_log(self.form, before)
            after = self.lake.snapshot(self.ref)
        made = None if after.version == before.version else after.version
        seconds = round(time.perf_counter() - started, 3)
        return self._result(spec, before, after, seconds, version=made, removed=removed, dry_run=dry_run)

    def _result(
        self, spec: TableSpec, before: Snapshot | None, after: Snapshot, seconds: float, **said: Any
    ) -> MaintenanceResult:
        then, now = sizes(before) if before else None, sizes(after)
        return MaintenanceResult(
            table=str(self.ref),
            mode=spec.mode,
            engine=self.engine.name,
            files_before=then.files if then else None,
            files_after=now.files,
            bytes_before=then.size if then else None,
            bytes_after=now.size,
            seconds=seconds,
            **said,
        )


def nothing(snapshot: Snapshot, mode: str, engine: str, reason: str) -> Commit:
    """No commit was made, since none was needed."""
    return Commit(
        str(snapshot.ref), snapshot.ref.location, snapshot.version, mode, engine, "none", reason,
        rows_inserted=0, rows_updated=0, rows_deleted=0, files_added=0, files_removed=0, bytes_added=0,
    )  # fmt: skip


def sizes(snapshot: Snapshot) -> Sizes:
    """How many data files a snapshot has, and their bytes."""
    files = snapshot.files()
    return Sizes(len(files), sum(file.size for file in files))
