"""Upkeep of a DuckLake, which spares the consumers of changes or warns about them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from duckrun.formats.transactions import Kept, TransactionalLake
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
    dry_run = getattr(spec, "dry_run", False)

    def run(transactions: TransactionalLake) -> dict[str, Any]:
        readers = _readers(lake) if isinstance(spec, ExpireSpec | LakeCheckpointSpec) else []
        result = transactions.maintain(spec, ref, min((each.version for _, each in readers), default=None))
        warnings = list(_warnings(result, readers, "would be" if dry_run else "are"))
        for warning in warnings:
            log.warning("%s", warning)
        return {
            "version": result.version,
            "removed": tuple(result.removed),
            "dry_run": dry_run,
            "warnings": tuple(warnings),
            "expired": tuple(result.expired),
            "rows_flushed": result.rows_flushed,
        }

    return measured(lake, spec, ref, run)


def measured(
    lake: Lake, spec: UpkeepSpec, ref: TableRef | None, run: Callable[[TransactionalLake], Mapping[str, Any]]
) -> MaintenanceResult:
    """Run upkeep, and return its result with the files before and after it.

    Args:
        run: The work. It returns further fields of the result.
    """
    transactions = lake.transactions(
        f", and {spec.mode} is of lakes of format ducklake: there OPTIMIZE and VACUUM keep each table in order "
        "(docs/maintenance.md), and table(…).restoreToVersion() restores one."
    )
    lake.ensure_writable(ref or lake.schema_ref(lake.default_schema))
    started = time.perf_counter()
    files_before, bytes_before = transactions.figures(ref)
    done = run(transactions)
    files_after, bytes_after = transactions.figures(ref)
    return MaintenanceResult(
        str(ref) if ref is not None else lake.root,
        spec.mode,
        "duckdb",
        files_before=files_before,
        files_after=files_after,
        bytes_before=bytes_before,
        bytes_after=bytes_after,
        seconds=round(time.perf_counter() - started, 3),
        **done,
    )


def _warnings(result: Kept, readers: Sequence[tuple[str, Reading]], would: str) -> Iterator[str]:
    """Yield warnings about consumers whose snapshots expire, or keep others from it."""
    gone = max(result.expired, default=-1)
    for name, each in readers:
        if each.version <= gone:
            yield (
                f"{each.consumer} has read table {name} up to version {each.version}, and snapshots from there on "
                f"{would} expired: {each.output} needs a full refresh."
            )
    if result.spared:
        last = min(readers, key=lambda reader: reader[1].version)[1]
        yield (
            f"{len(result.spared)} snapshots from {min(result.spared)} to {max(result.spared)} stay, since "
            f"{last.consumer} ({last.output}) goes on from version {last.version}; run it, or expire with "
            "spare_consumers=False."
        )


def _readers(lake: Lake) -> list[tuple[str, Reading]]:
    """Return the readable progress of each consumer, with the name of the table that it reads."""
    readers = []
    for schema in lake.schemas():
        for name in lake.tables(schema):
            ref = lake.resolve(schema, name)
            readers += [(str(ref), each) for each in consumers_of(lake, lake.snapshot(ref))]
    return readers
