"""Keep tables in order: fewer and larger files, old files gone, a short log. Each is one call; none changes a row.

Example: ``maintenance.compact(session, "sales.orders", predicate="day = 'mon'").files_after``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duckrun.values.rows import EngineName
from duckrun.values.tables import CheckpointSpec, CleanupLogSpec, MaintenanceResult, OptimizeSpec, VacuumSpec

if TYPE_CHECKING:
    from duckrun.session import Session
    from duckrun.values.snapshot import TableRef


def compact(
    session: Session,
    table: str | TableRef,
    *,
    predicate: str | None = None,
    target_file_size: int | None = None,
    engine: EngineName | None = None,
) -> MaintenanceResult:
    """Write small files together, up to ``target_file_size`` bytes each (the table's ``delta.targetFileSize``, else 128 MiB).

    ``predicate`` (SQL over partition columns) limits it to some partitions. Writers beside it are not disturbed. Raises
    TableNotFound, InvalidConfig, ReadOnlyLake.
    """
    return session.execute(table, OptimizeSpec(predicate, (), target_file_size), engine=engine)


def z_order(
    session: Session,
    table: str | TableRef,
    *columns: str,
    predicate: str | None = None,
    target_file_size: int | None = None,
    engine: EngineName | None = None,
) -> MaintenanceResult:
    """Write all files anew so that rows near in ``columns`` lie in the same files, where a reader's filter finds them."""
    return session.execute(table, OptimizeSpec(predicate, columns, target_file_size), engine=engine)


def vacuum(
    session: Session,
    table: str | TableRef,
    *,
    retention_hours: float | None = None,
    dry_run: bool = False,
    enforce_retention: bool = True,
    engine: EngineName | None = None,
) -> MaintenanceResult:
    """Remove the files that no version within the retention (None: the table's own, a week) uses; ``removed`` names them.

    Versions older than that can no longer be read. Raises InvalidConfig for less than the table's retention, unless
    ``enforce_retention`` is False.
    """
    return session.execute(table, VacuumSpec(retention_hours, dry_run, enforce_retention), engine=engine)


def checkpoint(session: Session, table: str | TableRef) -> MaintenanceResult:
    """Write a checkpoint of the newest version, from which readers start."""
    return session.execute(table, CheckpointSpec())


def cleanup_log(session: Session, table: str | TableRef) -> MaintenanceResult:
    """Remove entries of the log older than ``delta.logRetentionDuration`` (30 days) that a checkpoint covers."""
    return session.execute(table, CleanupLogSpec())
