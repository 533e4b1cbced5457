"""What a statement costs beside its work: connect() and ``select 1`` on a lake of many tables.

    python -m benchmarks.apart.session --tables 1000

All logs but one are unreadable on purpose, so that any of them that is opened on the way fails the benchmark.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

import duckrun
from benchmarks.apart.measure import timed
from duckrun import WriteSpec

TARGET_MS = 20


def make_lake(root: Path, tables: int) -> None:
    """One table that can be read, and the others with a log that cannot."""
    with duckrun.connect(root) as s:
        s.execute("main.orders", WriteSpec("error"), pa.table({"id": [1, 2, 3]}))
    template = root / "main" / "orders"
    for number in range(tables - 1):
        copy = root / f"schema_{number % 10}" / f"table_{number}"
        shutil.copytree(template, copy)
        (copy / "_delta_log" / f"{0:020d}.json").write_text("no log")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "lake"
        make_lake(root, arguments.tables)
        connected = timed(lambda: duckrun.connect(root))
        with duckrun.connect(root) as session:
            first = timed(lambda: session.sql("select 1").collect())
            made = [timed(lambda: session.sql("select 1")) for _ in range(arguments.repeat)]
            fetched = [timed(lambda: session.sql("select 1").collect()) for _ in range(arguments.repeat)]
            read = [timed(lambda: session.sql("select count(*) from orders").collect()) for _ in range(20)]
    print(f"| on a lake of {arguments.tables:,} tables | ms |\n|---|---|")
    for name, value in (
        ("`connect()`", connected),
        ("the first `select 1`, which opens DuckDB", first),
        ("`select 1`, median", statistics.median(made)),
        ("`select 1` and its row, median", statistics.median(fetched)),
        ("`select 1` and its row, 95 of 100", statistics.quantiles(fetched, n=20)[18]),
        ("`select count(*)` of a table, median", statistics.median(read)),
    ):
        print(f"| {name} | {value * 1000:.1f} |")
    return 0 if statistics.median(fetched) * 1000 < TARGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
