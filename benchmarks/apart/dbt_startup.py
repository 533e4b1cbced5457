"""What dbt costs on a lake beside dbt on a database file: to start where there are many tables, and for each small model.

    python -m benchmarks.apart.dbt_startup --tables 1000 --models 200

Each command is a process of its own, in turns: duckrun on a lake, dbt-duckdb on a database file, each of the same tables and
project, parsed before. Start-up is `dbt run` of one model; the logs of the other tables of the lake cannot be read, so that
any of them that is opened on the way fails the benchmark. The peak is the resident memory of the process and its children.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import yaml
from deltalake import write_deltalake

import duckrun
from benchmarks.apart.measure import MB, Meter, timed
from duckrun import WriteSpec

AIM = 1.5
ADAPTERS = ("duckrun", "dbt-duckdb")
ROWS = "select range as id, 'row ' || range as note from range(10)"


@dataclass(frozen=True)
class Run:
    """One dbt command: wall seconds, CPU seconds, peak MB, and of each model the seconds that dbt says it took."""

    seconds: float
    cpu: float
    peak: float
    models: list[float]
    responses: list[dict[str, object]]


class Project:
    """A dbt project with some models, for one adapter, on a lake or database file with some other tables."""

    def __init__(self, folder: Path, adapter: str, models: int, tables: int) -> None:
        self.folder = folder
        output: dict[str, object] = {"schema": "main", "threads": 1}
        if adapter == "duckrun":
            output |= {"type": "duckrun", "root_path": str(folder / "lake")}
        else:
            output |= {"type": "duckdb", "path": str(folder / "lake.duckdb")}
        (folder / "models").mkdir(parents=True)
        for number in range(models):
            (folder / "models" / f"model_{number}.sql").write_text("{{ config(materialized='table') }} " + ROWS)
        (folder / "dbt_project.yml").write_text("name: bench\nversion: '1.0'\nprofile: bench\n")
        (folder / "profiles.yml").write_text(yaml.safe_dump({"bench": {"target": "dev", "outputs": {"dev": output}}}))
        make = make_lake if adapter == "duckrun" else make_database
        make(folder, tables)
        self.run("parse")

    def run(self, *args: str) -> Run:
        command = [sys.executable, "-m", "dbt.cli.main", *args, "--project-dir", ".", "--profiles-dir", "."]
        env = {**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
        with Meter(every=0.02, children=True) as meter:
            done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"dbt {' '.join(args)} failed:\n{(done.stdout + done.stderr)[-3000:]}")
        results = []
        if args[0] == "run":
            results = json.loads((self.folder / "target" / "run_results.json").read_text())["results"]
        times = [result["execution_time"] for result in results]
        responses = [result["adapter_response"] for result in results]
        return Run(meter.seconds, meter.cpu, meter.grown / MB, times, responses)


def make_lake(folder: Path, tables: int) -> None:
    """Tables in the schema of the models, with a log that cannot be read."""
    if not tables:
        return
    with duckrun.connect(folder / "lake") as s:
        s.execute("main.template", WriteSpec("error"), pa.table({"id": [1, 2, 3]}))
    template = folder / "lake" / "main" / "template"
    (template / "_delta_log" / f"{0:020d}.json").write_text("no log")
    for number in range(tables - 1):
        shutil.copytree(template, template.with_name(f"table_{number}"))


def make_database(folder: Path, tables: int) -> None:
    with duckdb.connect(str(folder / "lake.duckdb")) as connection:
        for number in range(tables):
            connection.execute(f"create table main.table_{number} as select range as id from range(3)")


def plain_write(folder: Path, times: int) -> float:
    """Milliseconds that deltalake alone takes to make a table of the same rows; the median."""
    rows = duckdb.sql(ROWS).to_arrow_table()
    places = [str(folder / f"plain_{number}") for number in range(times)]
    taken = [timed(lambda place=place: write_deltalake(place, rows)) for place in places]  # type: ignore[misc]
    return statistics.median(taken) * 1000


def in_turns(projects: dict[str, Project], repeat: int) -> dict[str, list[Run]]:
    """The runs of each project, whose order turns round every time; one before them fills the caches."""
    found: dict[str, list[Run]] = {name: [] for name in projects}
    for number in range(repeat + 1):
        for name in list(projects)[:: 1 if number % 2 else -1]:
            run = projects[name].run("run")
            if number:
                found[name].append(run)
    return found


def median(runs: list[Run], what: str) -> float:
    return statistics.median(getattr(run, what) for run in runs)


def startup(folder: Path, tables: int, repeat: int) -> float:
    """Print what one model costs where there are many tables; the ratio of the times."""
    projects = {name: Project(folder / name, name, 1, tables) for name in ADAPTERS}
    found = in_turns(projects, repeat)
    print(f"| `dbt run` of one model beside {tables:,} tables | seconds | CPU seconds | peak MB |\n|---|---|---|---|")
    for name, runs in found.items():
        print(f"| {name} | {median(runs, 'seconds'):.2f} | {median(runs, 'cpu'):.2f} | {median(runs, 'peak'):,.0f} |")
    ratios = {
        what: median(found["duckrun"], what) / median(found["dbt-duckdb"], what) for what in ("seconds", "cpu", "peak")
    }
    print(f"| ratio | {ratios['seconds']:.2f} | {ratios['cpu']:.2f} | {ratios['peak']:.2f} |\n", flush=True)
    return ratios["seconds"]


def models(folder: Path, count: int, repeat: int) -> None:
    """Print what each of many small models costs, first made and then made anew."""
    projects = {name: Project(folder / name, name, count, 0) for name in ADAPTERS}
    found = in_turns(projects, repeat)
    print(
        f"| {count} models of 10 rows, one thread | `dbt run`, s | CPU s | a model, ms | peak MB |\n|---|---|---|---|---|"
    )
    for name, runs in found.items():
        each = statistics.median(taken for run in runs for taken in run.models) * 1000
        print(
            f"| {name} | {median(runs, 'seconds'):.1f} | {median(runs, 'cpu'):.1f} | {each:.0f} | {median(runs, 'peak'):,.0f} |"
        )
    commits = [response["seconds"] for run in found["duckrun"] for response in run.responses]
    print(f"| of that the commit, by the response of each model | | | {statistics.median(commits) * 1000:.0f} | |")
    print(f"| `write_deltalake` of the same rows, no dbt | | | {plain_write(folder, count):.0f} | |\n", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", choices=("startup", "models"))
    arguments = parser.parse_args()
    ratio = 0.0
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only != "models":
            ratio = startup(Path(folder) / "startup", arguments.tables, arguments.repeat)
        if arguments.only != "startup":
            models(Path(folder) / "models", arguments.models, max(1, arguments.repeat - 2))
    return 0 if ratio < AIM else 1


if __name__ == "__main__":
    sys.exit(main())
