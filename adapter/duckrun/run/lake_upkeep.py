"""A DuckLake kept in order: what its consumers still need is spared, and whom something strands is said."""

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
    """Carry out one spec on a lake, or on a table of it. Raises UnsupportedFeature for a lake of format delta, ReadOnlyLake, InvalidConfig."""
    whole = lake.format.whole
    if whole is None:
        raise UnsupportedFeature(
            f"{spec.mode} is of lakes of format ducklake, and lake {lake.root} is of format {lake.format.name}: there OPTIMIZE and VACUUM keep each table "
            "in order (docs/maintenance.md)."
        )
    lake.ensure_writable(ref or lake.schema_ref(lake.default_schema))
    started = time.perf_counter()
    readers = _readers(lake) if isinstance(spec, ExpireSpec | LakeCheckpointSpec) else []
    before = whole.figures(ref)
    kept = whole.maintain(spec, ref, min((each.version for _, each in readers), default=None))
    files, size = whole.figures(ref)
    gone = max(kept.expired, default=-1)
    would = "would be" if getattr(spec, "dry_run", False) else "are"
    warnings = [
        f"{each.consumer} has read table {name} up to version {each.version}, and snapshots from there on {would} expired: {each.output} needs a full "
        "refresh."
        for name, each in readers
        if each.version <= gone
    ]
    if kept.spared:
        last = min(readers, key=lambda found: found[1].version)[1]
        warnings.append(
            f"{len(kept.spared)} snapshots from {min(kept.spared)} to {max(kept.spared)} stay, since {last.consumer} ({last.output}) goes on from version "
            f"{last.version}; run it, or expire with spare_consumers=False."
        )
    for warning in warnings:
        log.warning("%s", warning)
    return MaintenanceResult(
        table=str(ref) if ref is not None else lake.root,
        mode=spec.mode,
        engine="duckdb",
        version=kept.version,
        files_before=before[0],
        files_after=files,
        bytes_before=before[1],
        bytes_after=size,
        removed=tuple(kept.removed),
        dry_run=getattr(spec, "dry_run", False),
        seconds=round(time.perf_counter() - started, 3),
        warnings=tuple(warnings),
        expired=tuple(kept.expired),
        rows_flushed=kept.rows_flushed,
    )


def _readers(lake: Lake) -> list[tuple[str, Reading]]:
    """How far each consumer has read the tables of a lake, by the tables' names, as far as it can be seen."""
    found = []
    for schema in lake.schemas():
        for name in lake.tables(schema):
            ref = lake.resolve(schema, name)
            found += [(str(ref), each) for each in consumers_of(lake, lake.snapshot(ref))]
    return found
