"""Processor time of reads of a table of 100,000 files and of one of 10,000 commits: the first of a process, and further ones.

    python -m benchmarks.apart.first_reads --folder /tmp/many

Both sides ask for five ids, in turns, each in a process of its own. The tables are those of ``benchmarks.jobs.many``.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness.case import Data
from benchmarks.jobs import many

FURTHER = 7
TABLES = {"files": many.prepare_files, "commits": many.prepare_commits}


def by_duckrun(table: Path) -> None:
    import duckrun

    with duckrun.connect(table.parent.parent) as s:
        _timed(lambda: s.sql(many.READ.format(t=f'delta."{table}"')).collect())


def by_deltalake(table: Path) -> None:
    from deltalake import DeltaTable, QueryBuilder

    query = many.READ.format(t="t")
    _timed(lambda: QueryBuilder().register("t", DeltaTable(str(table))).execute(query).read_all())


SIDES = {"duckrun": by_duckrun, "deltalake": by_deltalake}


def _timed(read: Callable[[], object]) -> None:
    """Print the processor seconds of the first read, and the median of the others."""
    seconds = []
    for _ in range(1 + FURTHER):
        start = time.process_time()
        read()
        seconds.append(time.process_time() - start)
    print(seconds[0], statistics.median(seconds[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the tables are, or are made")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--turn", nargs=2, metavar=("SIDE", "TABLE"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    data = Data(chosen.folder.resolve(), 1.0, 1.0)
    if chosen.turn:
        side, name = chosen.turn
        SIDES[side](data.base(name))
        return
    print("| table | side | first read, s | a further read, s |\n|---|---|---|---|")
    for name, prepare in TABLES.items():
        prepare(data)
        turns: dict[str, list[list[float]]] = {side: [] for side in SIDES}
        for _ in range(chosen.repeat):
            for side in SIDES:
                command = [sys.executable, "-m", "benchmarks.apart.first_reads", "--folder", str(chosen.folder)]
                done = subprocess.run([*command, "--turn", side, name], check=True, capture_output=True, text=True)
                turns[side].append([float(word) for word in done.stdout.split()])
        for side, laps in turns.items():
            first, further = (statistics.median(each) for each in zip(*laps, strict=True))
            print(f"| {name} | {side} | {first:.3f} | {further:.3f} |")


if __name__ == "__main__":
    main()
