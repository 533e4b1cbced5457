"""DuckDB beside Spark on this machine: the same CTAS, merge and 22 TPC-H queries, and how Spark's time grows.

    python -m benchmarks.apart.engines                      # scale factor 1, Spark local[2]
    python -m benchmarks.apart.engines --scale 5 --only queries
    python -m benchmarks.apart.engines --only growth backfill
    python -m benchmarks.apart.engines --scale 5 --folder /big/disk --only load      # keeps its tables and figures there; then
    python -m benchmarks.apart.engines --scale 5 --folder /big/disk --only queries   # goes on with them and reports both

A query that has its figures in --folder is not run again.

Each engine runs in a process of its own, on a lake of the same tables; the start of the session comes before the clock and is
measured apart. The seconds of processor are printed too, which other work on the machine changes less. The peak is the resident memory
of the process and of what it started (Spark's JVM), sampled every 50 ms. Queries are written as tables, so that every row is
made; both engines' results are compared: as multisets, sums of doubles within 1e-9 relative, an average of decimals to the last
place that Spark gives. Growth and backfill are the best of --repeat.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import sqlglot

import duckrun
from benchmarks.apart.measure import Meter
from benchmarks.harness.duck import plain
from benchmarks.jobs.lineitem import KEYS
from duckrun import MergeSpec, WriteSpec

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
PARTS = ("load", "queries", "growth", "backfill")
ROWS = 2_000_000
DAYS = 365
ROWS_A_DAY = 2000
ENGINES = ("duckdb", "spark")


def generate(lake: Path, scale: float) -> None:
    """The eight tables of TPC-H as Delta tables of the schema tpch, and the changes to merge."""
    with plain("tpch") as con, duckrun.connect(lake) as s:
        con.execute(f"CALL dbgen(sf = {scale})")
        for name in TABLES:
            s.execute(f"tpch.{name}", WriteSpec("error"), con.sql(f"SELECT * FROM {name}").to_arrow_reader(100_000))
        changes = con.sql(
            """SELECT * REPLACE (l_quantity + 1 AS l_quantity) FROM lineitem WHERE l_orderkey % 200 = 7
               UNION ALL SELECT * REPLACE (l_orderkey + 1000000000 AS l_orderkey) FROM lineitem WHERE l_orderkey % 200 = 8"""
        )
        s.execute("tpch.changes", WriteSpec("error"), changes.to_arrow_reader(100_000))


def queries() -> dict[str, str]:
    with plain("tpch") as con:
        return {f"q{number:02}": text for number, text in con.sql("FROM tpch_queries()").fetchall()}


class Bench:
    """Runs jobs on one engine, and keeps the seconds and peak bytes of each."""

    def __init__(self, session: duckrun.Session, repeat: int, known: set[str]) -> None:
        self.session = session
        self.repeat = repeat
        self.known = known
        self.found: dict[str, dict[str, float]] = {}

    @contextmanager
    def job(self, name: str) -> Iterator[None]:
        with Meter(every=0.05, children=True) as meter:
            yield
        before = self.found.get(name, {"seconds": meter.seconds, "cpu": meter.cpu, "peak": 0})
        self.found[name] = {
            "seconds": round(min(meter.seconds, before["seconds"]), 3),
            "cpu": round(min(meter.cpu, before["cpu"]), 2),
            "peak": max(meter.peak, before["peak"]),
        }
        print(json.dumps({name: self.found[name]}), flush=True)
        figures = f"{meter.seconds:>9.2f} s {meter.cpu:>8.2f} s of processor {meter.peak / 1e6:>8.0f} MB"
        print(f"  {self.session.engine_name:<8}{name:<34}{figures}", file=sys.stderr)

    def load(self) -> None:
        s, schema = self.session, self.session.engine_name
        with self.job("ctas lineitem"):
            s.execute(f"{schema}.lineitem", WriteSpec("overwrite"), duckrun.SQL("select * from tpch.lineitem"))
        with self.job("merge 1 % into lineitem"):
            s.execute(f"{schema}.lineitem", MergeSpec(KEYS), duckrun.SQL("select * from tpch.changes"))

    def queries(self) -> None:
        s, schema = self.session, self.session.engine_name
        for name, text in queries().items():
            if name in self.known:
                continue
            with self.job(name):
                s.execute(f"{schema}.{name}", WriteSpec("overwrite"), duckrun.SQL(_named(text)))

    def growth(self) -> None:
        """Two million rows in more files, and in more partitions."""
        s, schema = self.session, self.session.engine_name
        numbers = s.engine_of("spark").spark.range  # type: ignore[attr-defined]
        for files in (1, 10, 100, 1000):
            name = f"{schema}.files_{files}"
            rows = numbers(0, ROWS, 1, files).selectExpr("id", "id * 0.5 as v")
            s.execute(name, WriteSpec("overwrite"), rows)
            for _ in range(self.repeat):
                with self.job(f"read {files} files"):
                    s.sql(f"select sum(id) as n, max(v) as v from {name}").collect()
            for turn in range(self.repeat):
                with self.job(f"merge one row into {files} files"):
                    s.execute(name, MergeSpec(("id",)), duckrun.SQL(f"select {turn} as id, 1.5 as v"))
        for parts in (1, 10, 100, 365):
            frame = numbers(0, ROWS, 1, 2).selectExpr("id", f"id % {parts} as part")
            for _ in range(self.repeat):
                with self.job(f"write {parts} partitions"):
                    s.execute(f"{schema}.parts_{parts}", WriteSpec("overwrite", partition_by=("part",)), frame)

    def backfill(self) -> None:
        """A year of days replaced in one commit, beside the same rows in a table without partitions."""
        s, schema = self.session, self.session.engine_name
        rows = DAYS * ROWS_A_DAY
        select = f"select date '2023-01-01' + cast(i // {ROWS_A_DAY} as integer) as day, i as id, i * 0.5 as v from range({rows}) as t(i)"
        with duckrun.connect(s.lake.root) as embedded:
            embedded.execute("tpch.days", WriteSpec("overwrite"), duckrun.SQL(select))
        source = duckrun.SQL("select * from tpch.days")
        s.execute(f"{schema}.days", WriteSpec("overwrite", partition_by=("day",)), source)
        s.execute(f"{schema}.plain", WriteSpec("overwrite"), source)
        year = "day between date '2023-01-01' and date '2023-12-31'"
        for _ in range(self.repeat):
            with self.job(f"overwrite {rows:,} rows"):  # report() compares the two
                s.execute(f"{schema}.plain", WriteSpec("overwrite"), source)
            with self.job(f"replace {DAYS} days, {rows:,} rows"):
                before = s.snapshot(f"{schema}.days").version
                commit = s.execute(f"{schema}.days", WriteSpec("replace", predicate=year), source)
            assert commit.version == before + 1 and commit.rows_inserted == rows


def _named(text: str) -> str:
    """A query whose columns all have names that a table may have."""
    tree = sqlglot.parse_one(text, read="duckdb")
    names = [each.alias_or_name or f"column_{number}" for number, each in enumerate(tree.selects)]
    tree.set("expressions", [each.unalias().as_(name) for each, name in zip(tree.selects, names, strict=True)])
    return tree.sql(dialect="duckdb")


def measure(engine: Any, lake: Path, parts: list[str], repeat: int, known: set[str]) -> None:
    """Run the parts on one engine in this process; a line of JSON for each job that is done, and one for the start."""
    started = time.perf_counter()
    spark = None
    if engine == "spark":
        from duckrun.spark import spark_session

        spark = spark_session(master="local[2]", conf={"spark.driver.memory": "6g"})
    with duckrun.connect(
        lake, schema="tpch", engine=engine, spark=spark
    ) as session:  # the queries name the tables bare
        session.sql("select count(*) as n from nation").collect()
        bench = Bench(session, repeat, known)
        jobs: dict[str, Callable[[], None]] = {part: getattr(bench, part) for part in PARTS}
        print(json.dumps({"start": round(time.perf_counter() - started, 3)}), flush=True)
        for part in parts:
            if engine == "spark" or part != "growth":
                jobs[part]()


def same_rows(lake: Path, names: list[str]) -> list[str]:
    """The queries whose results differ between the engines."""
    differ = []
    with duckrun.connect(lake) as s:
        for name in names:
            ours, theirs = (
                sorted((tuple(row.values()) for row in s.table(f"{engine}.{name}").toDF().collect()), key=repr)
                for engine in ("duckdb", "spark")
            )
            same = len(ours) == len(theirs) and all(
                len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
                for a, b in zip(ours, theirs, strict=True)
            )
            if not same:
                differ.append(name)
    return differ


def _same(one: Any, other: Any) -> bool:
    """Equal; floating sums within 1e-9; an average of decimals, which Spark keeps a decimal, to the last place of it."""
    if type(one) is not type(other) and isinstance(other, Decimal):
        return abs(Decimal(one) - other) <= Decimal(1).scaleb(int(other.as_tuple().exponent))
    try:
        return one == other or math.isclose(float(one), float(other), rel_tol=1e-9)
    except (TypeError, ValueError):
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-H scale factor (1: six million rows)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run; all, if not given")
    parser.add_argument("--repeat", type=int, default=3, help="times that a job of growth and backfill runs")
    parser.add_argument("--folder", type=Path, help="where tables and figures stay for the next part")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES), help="both, if not given")
    parser.add_argument("--measure", choices=ENGINES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        known = json.loads(_figures(args.folder, args.scale).read_text())[args.measure]["jobs"]
        measure(args.measure, args.folder / "lake", args.only, args.repeat, set(known))
        return
    folder = args.folder or Path(tempfile.mkdtemp(prefix="duckrun-bench-"))
    try:
        bench(folder, args)
    finally:
        if args.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def bench(folder: Path, args: argparse.Namespace) -> None:
    """Run the parts asked for, and report them with those of earlier calls on this folder."""
    figures = _figures(folder, args.scale)
    if not figures.exists():
        generate(folder / "lake", args.scale)
        figures.write_text(json.dumps({engine: {"start": 0.0, "jobs": {}} for engine in ENGINES}))
    for engine in args.engines:
        run(engine, folder, args)
    found = json.loads(figures.read_text())
    report(found, args.scale)
    names = [name for name in queries() if all(name in found[engine]["jobs"] for engine in ENGINES)]
    if "queries" in args.only and names:
        differ = same_rows(folder / "lake", names)
        print(f"\nof {len(names)} queries, with other rows: {', '.join(differ) or 'none'}")
        assert not differ


def _figures(folder: Path, scale: float) -> Path:
    return folder / f"figures-{scale:g}.json"


def run(engine: str, folder: Path, args: argparse.Namespace) -> None:
    """Run the parts on one engine in a process of its own, and keep what it says as it says it."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.apart.engines",
        "--measure",
        engine,
        "--folder",
        str(folder),
        "--scale",
        str(args.scale),
    ]
    command += ["--repeat", str(args.repeat), "--only", *args.only]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("{"):  # of the Java that starts
                continue
            found = json.loads(_figures(folder, args.scale).read_text())
            said = json.loads(line)
            found[engine]["start"] = said.pop("start", found[engine]["start"])
            found[engine]["jobs"] |= said
            _figures(folder, args.scale).write_text(json.dumps(found, indent=1))
    if process.returncode:
        raise SystemExit(
            f"{engine} ended with {process.returncode}; what it measured is in {_figures(folder, args.scale)}"
        )


def report(found: dict[str, dict[str, Any]], scale: float) -> None:
    duck, spark = found["duckdb"], found["spark"]
    print(f"TPC-H at scale {scale:g}; start of a session: DuckDB {duck['start']:.1f} s, Spark {spark['start']:.1f} s\n")
    print(f"{'job':<36}{'DuckDB s':>10}{'Spark s':>10}{'ratio':>8}{'DuckDB MB':>11}{'Spark MB':>10}")

    def line(job: str, ours: dict[str, float] | None, theirs: dict[str, float] | None) -> None:
        seconds = [f"{each['seconds']:.2f}" if each else "" for each in (ours, theirs)]
        peaks = [f"{each['peak'] / 1e6:.0f}" if each else "" for each in (ours, theirs)]
        ratio = f"{theirs['seconds'] / ours['seconds']:.1f}" if ours and theirs else ""
        print(f"{job:<36}{seconds[0]:>10}{seconds[1]:>10}{ratio:>8}{peaks[0]:>11}{peaks[1]:>10}")

    for job in dict.fromkeys([*duck["jobs"], *spark["jobs"]]):
        line(job, duck["jobs"].get(job), spark["jobs"].get(job))
    both = [job for job in queries() if job in duck["jobs"] and job in spark["jobs"]]
    if both:
        jobs_of = [[found[engine]["jobs"][name] for name in both] for engine in ENGINES]
        totals = [{"seconds": sum(j["seconds"] for j in of), "peak": max(j["peak"] for j in of)} for of in jobs_of]
        line(f"{len(both)} queries", *totals)
    one, year = f"overwrite {DAYS * ROWS_A_DAY:,} rows", f"replace {DAYS} days, {DAYS * ROWS_A_DAY:,} rows"
    for engine in ENGINES:
        jobs = found[engine]["jobs"]
        if one in jobs and year in jobs:
            times, cpu = (jobs[year][key] / jobs[one][key] for key in ("seconds", "cpu"))
            print(
                f"{engine}: {DAYS} days take {times:.1f} times one write of their rows, {cpu:.1f} times its processor"
            )


if __name__ == "__main__":
    main()
