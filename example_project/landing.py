"""The landing folder: CSV files that arrive month by month, as external assets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from example_project import settings

GROUP = "landing"
MONTHLY = ("flights", "weather")
WHOLE = ("planes", "airports", "airlines")
NULL = "NA"  # a missing value in these files

MONTHS = dg.MonthlyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
DAYS = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")


def asset_key(name: str) -> dg.AssetKey:
    return dg.AssetKey([GROUP, name])


@dataclass(frozen=True)
class LandedFile:
    """One file of the landing folder."""

    name: str
    month: int | None
    """The month of the file; None for a file of all months."""

    @property
    def path(self) -> Path:
        if self.month is None:
            return settings.LANDING / f"{self.name}.csv"
        return settings.LANDING / self.name / f"{settings.YEAR}-{self.month:02d}.csv"

    @property
    def partition(self) -> str | None:
        return None if self.month is None else f"{settings.YEAR}-{self.month:02d}-01"

    def rows(self) -> int:
        """Return the number of rows without the header. No value here has a line break."""
        with self.path.open("rb") as file:
            return sum(1 for _ in file) - 1

    def digest(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def landed(name: str, months: Iterable[int] | None = None) -> list[LandedFile]:
    """Return the files of one name that have arrived (of these months), oldest first."""
    wanted: Iterable[int | None] = [None] if name in WHOLE else (months if months is not None else range(1, 13))
    files = [LandedFile(name, month) for month in wanted]
    return [file for file in files if file.path.exists()]


def report(instance: dg.DagsterInstance) -> None:
    """Report a materialization to Dagster for each file that is new or has new content."""
    for name in (*MONTHLY, *WHOLE):
        for file in landed(name):
            version = file.digest()
            if _known_version(instance, file) != version:
                instance.report_runless_asset_event(
                    dg.AssetMaterialization(
                        asset_key(name),
                        partition=file.partition,
                        metadata={
                            "path": dg.MetadataValue.path(str(file.path)),
                            "dagster/row_count": file.rows(),
                            "bytes": file.path.stat().st_size,
                        },
                        tags={"dagster/data_version": version},
                    )
                )


def _known_version(instance: dg.DagsterInstance, file: LandedFile) -> str | None:
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(
            asset_key(file.name), asset_partitions=None if file.partition is None else [file.partition]
        ),
        limit=1,
    ).records
    event = records[0].asset_materialization if records else None
    return event.tags.get("dagster/data_version") if event and event.tags else None


def specs() -> Iterator[dg.AssetSpec]:
    """Yield the landing folder as external assets, one for each kind of file."""
    for name in (*MONTHLY, *WHOLE):
        yield dg.AssetSpec(
            asset_key(name),
            group_name=GROUP,
            kinds={"csv"},
            description=f"CSV of {name}, as it arrives" + (": a file a month." if name in MONTHLY else ": one file."),
            partitions_def=MONTHS if name in MONTHLY else None,
        )
