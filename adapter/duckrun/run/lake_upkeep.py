"""Upkeep of a DuckLake, which spares the consumers of changes or warns about them."""

from __future__ import annotations

import logging
import time

from duckrun.errors import UnsupportedFeature
from duckrun.lake.lake import Lake
from duckrun.run.consumers import Reading, consumers_of
from duckrun.values.snapshot import TableRef
from duckrun.values.tables import MaintenanceResult
from duckrun.values.upkeep import ExpireSpec, LakeCheckpointSpec, UpkeepSpec

log = logging.getLogger(__name__)


def maintain(lake: Lake, spec: UpkeepSpec, ref: TableRef | None = None) -> MaintenanceResult:
    """Run one upkeep spec on a lake, or on a table of it.

    Raises:
        UnsupportedFeature: The lake has format delta.
        ReadOnlyLake: The lake is open read-only.
        InvalidConfig: The spec does not fit.
    """
    transactions = lake.format.transactions
    if transactions is None:
        raise UnsupportedFeature(
            f"{spec.mode} is of lakes of format ducklake, and lake {lake.root} is of format "
            f"{lake.format.name}: there OPTIMIZE and VACUUM keep each table "
            "in order (docs/maintenance.md)."
        )
    lake.ensure_writable(ref or lake.schema_ref(lake.default_schema))
    started = time.perf_counter()
    readers = _readers(lake) if isinstance(spec, ExpireSpec | LakeCheckpointSpec) else []
    before = transactions.figures(ref)
    result = transactions.maintain(spec, ref, min((each.version for _, each in readers), default=None))
    files, size = transactions.figures(ref)
    gone = max(result.expired, default=-1)
    would = "would be" if getattr(spec, "dry_run", False) else "are"
    warnings = [
        f"{each.consumer} has read table {name} up to version {each.version}, and snapshots from "
        f"there on {would} expired: {each.output} needs a full "
        "refresh."
        for name, each in readers
        if each.version <= gone
    ]
    if result.spared:
        last = min(readers, key=lambda reader: reader[1].version)[1]
        warnings.append(
            f"{len(result.spared)} snapshots from {min(result.spared)} to {max(result.spared)} stay, since "
            f"{last.consumer} ({last.output}) goes on from version "
            f"{last.version}; run it, or expire with spare_consumers=False."
        )
    for warning in warnings:
        log.warning("%s", warning)
    return MaintenanceResult(
        table=str(ref) if ref is not None else lake.root,
        mode=spec.mode,
        engine="duckdb",
        version=result.version,
        files_before=before[0],
        files_after=files,
        bytes_before=before[1],
        bytes_after=size,
        removed=tuple(result.removed),
        dry_run=getattr(spec, "dry_run", False),
        seconds=round(time.perf_counter() - started, 3),
        warnings=tuple(warnings),
        expired=tuple(result.expired),
        rows_flushed=result.rows_flushed,
    )


def _readers(lake: Lake) -> list[tuple[str, Reading]]:
    """Return the readable progress of each consumer, with the name of the table that it reads."""
    readers = []
    for schema in lake.schemas():
        for name in lake.tables(schema):
            ref = lake.resolve(schema, name)
            readers += [(str(ref), each) for each in consumers_of(lake, lake.snapshot(ref))]
    return readers
