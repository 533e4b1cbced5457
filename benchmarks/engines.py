"""DuckDB beside Spark on this machine: the same CTAS, merge and 22 TPC-H queries, and how Spark's time grows.

    python benchmarks/engines.py                      # scale factor 1, Spark local[2]
    python benchmarks/engines.py --scale 5 --only queries
    python benchmarks/engines.py --only growth backfill

Each engine runs in a process of its own, on a lake of the same tables; the start of the session comes before the clock and is
told apart. The peak is the resident memory of the process and of what it started (Spark's JVM), sampled every 50 ms. Queries
are written as tables, so that every row is made; both engines' results are compared as the design says: as multisets, sums of
doubles within 1e-9 relative.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import psutil

import duckrun
from duckrun import MergeSpec, WriteSpec

sys.path.insert(0, str(Path(__file__).parent))
from lineitem import KEYS, load_tpch

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
PARTS = ("load", "queries", "growth", "backfill")
DAYS = 365
ROWS_A_DAY = 2000


def generate(lake: Path, scale: float) -> None:
    """The eight tables of TPC-H as Delta tables of the schema tpch, and the changes to merge."""
    with duckdb.connect() as con, duckrun.connect(lake) as s:
        load_tpch(con)
        con.execute(f"CALL dbgen(sf = {scale})")
        for name in TABLES:
            s.execute(f"tpch.{name}", WriteSpec("error"), con.sql(f"SELECT * FROM {name}").to_arrow_reader(100_000))
        changes = con.sql(
            """SELECT * REPLACE (l_quantity + 1 AS l_quantity) FROM lineitem WHERE l_orderkey % 200 = 7
               UNION ALL SELECT * REPLACE (l_orderkey + 1000000000 AS l_orderkey) FROM lineitem WHERE l_orderkey % 200 = 8"""
        )
        s.execute("tpch.changes", WriteSpec("error"), changes.to_arrow_reader(100_000))


def queries() -> dict[str, str]:
    with duckdb.connect() as con:
        load_tpch(con)
        return {f"q{number:02}": text for number, text in con.sql("FROM tpch_queries()").fetchall()}


class Bench:
    """Runs jobs on one engine, and keeps the seconds and peak bytes of each."""

    def __init__(self, session: duckrun.Session) -> None:
        self.session = session
        self.found: dict[str, dict[str, float]] = {}

    @contextmanager
    def job(self, name: str) -> Iterator[None]:
        done, peak = threading.Event(), [0]
        thread = threading.Thread(target=_sample, args=(done, peak))
        thread.start()
        started = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - started
            done.set()
            thread.join()
        self.found[name] = {"seconds": round(seconds, 3), "peak": peak[0]}
        print(f"  {self.session.engine_name:<8}{name:<34}{seconds:>9.2f} s {peak[0] / 1e6:>8.0f} MB", file=sys.stderr)

    def load(self) -> None:
        s, schema = self.session, self.session.engine_name
        with self.job("ctas lineitem"):
            s.execute(f"{schema}.lineitem", WriteSpec("error"), duckrun.SQL("select * from tpch.lineitem"))
        with self.job("merge 1 % into lineitem"):
            s.execute(f"{schema}.lineitem", MergeSpec(KEYS), duckrun.SQL("select * from tpch.changes"))

    def queries(self) -> None:
        s, schema = self.session, self.session.engine_name
        for name, text in queries().items():
            for table in TABLES:  # the queries name the tables bare
                text = _qualified(text, table)
            with self.job(name):
                s.execute(f"{schema}.{name}", WriteSpec("error"), duckrun.SQL(text.rstrip().rstrip(";")))

    def growth(self) -> None:
        """The same two million rows in more files, and in more partitions."""
        s, schema = self.session, self.session.engine_name
        for files in (1, 10, 100, 1000):
            name = f"{schema}.files_{files}"
            rows = s.engine_of("spark").spark.range(0, 2_000_000, 1, files)  # type: ignore[attr-defined]
            s.execute(name, WriteSpec("error"), rows.selectExpr("id", "id * 0.5 as v"))
            with self.job(f"read {files} files"):
                s.sql(f"select sum(id) as n, max(v) as v from {name}").collect()
            with self.job(f"merge into {files} files"):
                s.execute(name, MergeSpec(("id",)), duckrun.SQL("select 7 as id, 1.5 as v"))
        for parts in (1, 10, 100, 365):
            rows = s.engine_of("spark").spark.range(0, 2_000_000, 1, 2)  # type: ignore[attr-defined]
            frame = rows.selectExpr("id", f"id % {parts} as part")
            with self.job(f"write {parts} partitions"):
                s.execute(f"{schema}.parts_{parts}", WriteSpec("error", partition_by=("part",)), frame)

    def backfill(self) -> None:
        """A year of days replaced as one job, beside the same rows in a table without partitions."""
        s, schema = self.session, self.session.engine_name
        rows = DAYS * ROWS_A_DAY
        select = f"select date '2023-01-01' + cast(i // {ROWS_A_DAY} as integer) as day, i as id, i * 0.5 as v from range({rows}) as t(i)"
        with duckrun.connect(s.lake.root) as embedded:
            embedded.execute("tpch.days", WriteSpec("overwrite"), duckrun.SQL(select))
        source = duckrun.SQL("select * from tpch.days")
        s.execute(f"{schema}.days", WriteSpec("error", partition_by=("day",)), source)
        s.execute(f"{schema}.plain", WriteSpec("error"), source)
        with self.job(f"overwrite {rows:,} rows"):
            s.execute(f"{schema}.plain", WriteSpec("overwrite"), source)
        with self.job(f"replace {DAYS} days, {rows:,} rows"):
            year = "day between date '2023-01-01' and date '2023-12-31'"
            s.execute(f"{schema}.days", WriteSpec("replace", predicate=year), source)


def _sample(done: threading.Event, peak: list[int]) -> None:
    process = psutil.Process()
    while not done.wait(0.05):
        total = 0
        for each in (process, *process.children(recursive=True)):
            try:
                total += each.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        peak[0] = max(peak[0], total)


def _qualified(text: str, table: str) -> str:
    import sqlglot
    from sqlglot import exp

    tree = sqlglot.parse_one(text, read="duckdb")
    for found in tree.find_all(exp.Table):
        if found.name == table and not found.db:
            found.set("db", exp.to_identifier("tpch"))
    return tree.sql(dialect="duckdb")


def measure(engine: Any, lake: Path, parts: list[str]) -> dict[str, Any]:
    """Run the parts on one engine in this process."""
    started = time.perf_counter()
    spark = None
    if engine == "spark":
        from duckrun.engines.spark_session import spark_session

        spark = spark_session(master="local[2]", conf={"spark.driver.memory": "6g"})
    with duckrun.connect(lake, engine=engine, spark=spark) as session:
        session.sql("select count(*) as n from tpch.nation").collect()
        bench = Bench(session)
        jobs: dict[str, Callable[[], None]] = {part: getattr(bench, part) for part in PARTS}
        start = time.perf_counter() - started
        for part in parts:
            if engine == "spark" or part != "growth":
                jobs[part]()
    return {"start": start, "jobs": bench.found}


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
    try:
        return one == other or math.isclose(float(one), float(other), rel_tol=1e-9)
    except (TypeError, ValueError):
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-H scale factor (1: six million rows)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run; all, if not given")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--lake", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.engine:
        print(json.dumps(measure(args.engine, args.lake, args.only)))
        return
    folder = Path(tempfile.mkdtemp(prefix="duckrun-bench-"))
    try:
        generate(folder / "lake", args.scale)
        found = {engine: run(engine, folder / "lake", args) for engine in ("duckdb", "spark")}
        report(found, args.scale)
        if "queries" in args.only:
            differ = same_rows(folder / "lake", [name for name in found["spark"]["jobs"] if name.startswith("q")])
            print(f"\nqueries with other rows: {', '.join(differ) or 'none'}")
            assert not differ
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(engine: str, lake: Path, args: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--engine", engine, "--lake", str(lake), "--only", *args.only]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def report(found: dict[str, dict[str, Any]], scale: float) -> None:
    duck, spark = found["duckdb"], found["spark"]
    print(f"TPC-H at scale {scale:g}; start of a session: DuckDB {duck['start']:.1f} s, Spark {spark['start']:.1f} s\n")
    print(f"{'job':<36}{'DuckDB s':>10}{'Spark s':>10}{'ratio':>8}{'DuckDB MB':>11}{'Spark MB':>10}")
    for job, theirs in spark["jobs"].items():
        ours = duck["jobs"].get(job)
        one = f"{ours['seconds']:>10.2f}" if ours else f"{'':>10}"
        ratio = f"{theirs['seconds'] / ours['seconds']:>8.1f}" if ours else f"{'':>8}"
        memory = f"{ours['peak'] / 1e6:>11.0f}" if ours else f"{'':>11}"
        print(f"{job:<36}{one}{theirs['seconds']:>10.2f}{ratio}{memory}{theirs['peak'] / 1e6:>10.0f}")
    totals = {e: sum(j["seconds"] for n, j in f["jobs"].items() if n.startswith("q")) for e, f in found.items()}
    if totals["duckdb"]:
        print(
            f"{'22 queries':<36}{totals['duckdb']:>10.2f}{totals['spark']:>10.2f}{totals['spark'] / totals['duckdb']:>8.1f}"
        )


if __name__ == "__main__":
    main()
