"""What an IO manager adds to its engine: a frame of ten million rows written and loaded, beside other managers.

    python benchmarks/io_managers.py --rows 10000000
    python benchmarks/io_managers.py --others /path/to/a/venv/bin/python /path/to/another/bin/python

Every case runs in a process of its own: one asset that returns the same polars frame, one that loads it as the same type.
The time is of `handle_output` and of `load_input` alone, by a timer around each, after a first pass with ten rows; the peak is the resident memory of the
whole process, sampled every 20 ms, less what it held with the frame made (write) or before the load. Bare is the engine call
without Dagster. `--others` names Pythons that have dagster-polars[deltalake], dagster-deltalake-polars or
dagster-duckdb-polars: cases that none of them can import are left out, and said so.
"""

# No "from __future__ import annotations" here: Dagster must see the types of the assets, not their names.

import argparse
import importlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _measure import MB, Meter

Results = dict[str, dict[str, float]]
"""Of ``write`` and ``load``: ``seconds`` and ``peak_mb``."""


def result(meter: Meter) -> dict[str, float]:
    return {"seconds": meter.seconds, "peak_mb": meter.grown / MB}


def frame(rows: int) -> Any:
    """Numbers, a text of few values, a text of many, a date and a float, made the same way every time."""
    import polars as pl

    number = pl.int_range(rows, eager=True)
    return pl.DataFrame(
        {
            "id": number,
            "amount": (number * 7919 % 100_003) / 100,
            "carrier": (number % 16).cast(pl.String),
            "note": "row " + (number * 2_654_435_761 % 1_000_003).cast(pl.String),
            "day": (number % 365).cast(pl.Int32).cast(pl.Date),
        }
    )


@contextmanager
def metered(manager: Any, found: Results) -> Iterator[None]:
    """Meter the two methods of an IO manager's class while a run uses copies of it."""
    owner = type(manager)
    if not hasattr(owner, "handle_output"):  # a factory, of Dagster's own manager for databases
        owner = importlib.import_module("dagster._core.storage.db_io_manager").DbIOManager
    original = owner.handle_output, owner.load_input

    def measure(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*arguments: Any, **named: Any) -> Any:
            with Meter() as meter:
                value = call(*arguments, **named)
            found[name] = result(meter)
            return value

        return inner

    owner.handle_output = measure("write", original[0])
    owner.load_input = measure("load", original[1])
    try:
        yield
    finally:
        owner.handle_output, owner.load_input = original


def through_dagster(manager: Any, rows: int) -> Results:
    import dagster as dg
    import polars as pl

    made = frame(10)  # the first pass is for the imports

    @dg.asset(key_prefix=["main"])
    def written() -> pl.DataFrame:
        return made

    @dg.asset(ins={"written": dg.AssetIn(["main", "written"])}, io_manager_key="nothing")
    def loaded(written: pl.DataFrame) -> None:
        assert written.height == made.height

    found: Results = {}
    with metered(manager, found):
        resources = {"io_manager": manager, "nothing": dg.mem_io_manager}
        for count in (10, rows):
            made = frame(count)
            dg.materialize([written, loaded], resources=resources, instance=dg.DagsterInstance.ephemeral())
    return found


def bare(folder: Path, rows: int) -> Results:
    import duckrun

    with duckrun.connect(folder / "lake") as session:
        session.execute("main.first", duckrun.WriteSpec("overwrite"), frame(10))  # for the imports
        session.scan("main.first").pl()
        made = frame(rows)
        with Meter() as write:
            session.execute("main.written", duckrun.WriteSpec("overwrite"), made)
        with Meter() as load:
            read = session.scan("main.written").pl()
        assert read.height == rows  # type: ignore[union-attr]
    return {"write": result(write), "load": result(load)}


def ours(folder: Path, rows: int) -> Results:
    from duckrun_dagster import DeltaIOManager, DuckrunResource

    return through_dagster(DeltaIOManager(duckrun=DuckrunResource(root_path=str(folder / "lake"))), rows)


def dagster_polars(folder: Path, rows: int) -> Results:
    manager = importlib.import_module("dagster_polars").PolarsDeltaIOManager(base_dir=str(folder / "lake"))
    return through_dagster(manager, rows)


def dagster_deltalake(folder: Path, rows: int) -> Results:
    local = importlib.import_module("dagster_deltalake").LocalConfig()
    manager = importlib.import_module("dagster_deltalake_polars").DeltaLakePolarsIOManager(
        root_uri=str(folder / "lake"), storage_options=local
    )
    return through_dagster(manager, rows)


def dagster_duckdb(folder: Path, rows: int) -> Results:
    manager = importlib.import_module("dagster_duckdb_polars").DuckDBPolarsIOManager(
        database=str(folder / "lake.duckdb")
    )
    return through_dagster(manager, rows)


CASES: dict[str, tuple[str, Callable[[Path, int], Results], bool]] = {
    "bare": ("session.execute and scan, no Dagster", bare, False),
    "ours": ("DeltaIOManager", ours, False),
    "dagster_polars": ("dagster-polars, PolarsDeltaIOManager", dagster_polars, True),
    "dagster_deltalake": ("dagster-deltalake-polars", dagster_deltalake, True),
    "dagster_duckdb": ("dagster-duckdb-polars (a DuckDB file)", dagster_duckdb, True),
}


def run(name: str, rows: int, python: str) -> Results | None:
    """One case in a process of its own; None where its packages are not there."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    command = [python, __file__, "--case", name, "--rows", str(rows), "--folder", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if "ModuleNotFoundError" in done.stderr:
        return None
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def table(found: dict[str, list[Results]]) -> Iterator[str]:
    """The medians, and how many times as long as the bare call: a ratio within each round, then the median of them."""
    yield "| IO manager | write s | times bare | peak MB | load s | times bare | peak MB |\n|---|---|---|---|---|---|---|"
    for name, (title, _, _) in CASES.items():
        if not (results := found[name]):
            yield f"| {title} | not installed | | | | | |"
            continue
        cells = []
        for action in ("write", "load"):
            pairs = zip(results, found["bare"], strict=True)
            ratio = statistics.median(own[action]["seconds"] / bare[action]["seconds"] for own, bare in pairs)
            seconds, peak = (
                statistics.median(result[action][what] for result in results) for what in ("seconds", "peak_mb")
            )
            cells.append(f"{seconds:,.2f} | {ratio:.2f} | {peak:,.0f}")
        yield f"| {title} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--others", nargs="+", default=[sys.executable], help="Pythons that have other IO managers")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(CASES[arguments.case][1](arguments.folder, arguments.rows)))
        return
    print(f"{arguments.rows:,} rows of 5 columns, medians of {arguments.repeat} rounds of all in turns\n", flush=True)
    pythons = {name: arguments.others if other else [sys.executable] for name, (_, _, other) in CASES.items()}
    found: dict[str, list[Results]] = {name: [] for name in CASES}
    for number in range(arguments.repeat):
        for name in CASES:
            for python in pythons[name]:
                result = run(name, arguments.rows, python)
                if result is not None:
                    found[name].append(result)
                    pythons[name] = [python]
                    break
            print(f"round {number + 1}: {name} done", file=sys.stderr, flush=True)
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
