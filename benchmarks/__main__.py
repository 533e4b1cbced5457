"""duckrun side by side with what a user would pick instead, and the page that says what came out.

    python -m benchmarks                                              # everything: hours
    python -m benchmarks --scale 0.1 --repeat 1 --size 0.01 --page /tmp/page.md   # does it work: minutes
    python -m benchmarks --jobs merge-random-1 write --scale 5 --repeat 3 --skip Spark
    python -m benchmarks --report                                     # the page again, of the figures kept
    python -m benchmarks --list

Each turn of a side is a process of its own, on a copy of the same data; sides take turns. Imports and starts of Spark come before
the clock; what a side ends with is compared row for row with what plain DuckDB makes of the data. Figures are
kept in the work folder as they come, and those of earlier runs stay in the report until their job runs again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.figures import Figures, keep
from benchmarks.harness.rounds import Plan, Trouble, run
from benchmarks.jobs import JOBS
from benchmarks.report import page
from benchmarks.report.tables import goals

ROOT = Path(__file__).resolve().parent.parent
SIDES = tuple(dict.fromkeys(side for job in JOBS.values() for side in job.sides))


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS), metavar="JOB", help="all, if not given")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=[], metavar="SIDE", help="all, if not given")
    parser.add_argument("--skip", nargs="+", choices=SIDES, default=[], metavar="SIDE", help="sides to leave out")
    parser.add_argument(
        "--scale", nargs="+", type=float, default=[1, 5, 10], help="TPC-H scale factors (1: 6 million rows)"
    )
    parser.add_argument("--size", type=float, default=1.0, help="factor on the counts of jobs without a scale factor")
    parser.add_argument("--repeat", type=int, default=5, help="rounds")
    parser.add_argument("--check", choices=("all", "first"), default="all", help="rounds whose rows are compared")
    parser.add_argument(
        "--work", type=Path, default=ROOT / ".benchmarks", help="where data, environments and figures stay"
    )
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--report", action="store_true", help="write the page of the figures kept, and run nothing")
    parser.add_argument("--list", action="store_true", help="jobs and their sides")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    asked = arguments(words)
    if asked.list:
        for job in JOBS.values():
            print(f"{job.name:<18}{job.title}: {'; '.join(job.sides)}")
        return 0
    work = asked.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    file = work / "figures.jsonl"
    troubles = 0
    if not asked.report:
        sides = [side for side in asked.sides or SIDES if side not in asked.skip]
        jobs = [JOBS[name] for name in asked.jobs]
        plan = Plan(jobs, sides, asked.scale, asked.repeat, asked.size, work, asked.check == "all")
        for figure in run(plan):
            if isinstance(figure, Trouble):
                troubles += 1
                print(f"!! {figure}", file=sys.stderr, flush=True)
                continue
            keep(figure, file)
            laps = ", ".join(f"{label} {seconds:.3f} s" for label, seconds in figure.laps.items())
            at = "" if figure.scale is None else f" SF {figure.scale:g}"
            print(f"{figure.job}{at}, {figure.side}: {laps}; {figure.peak / 1e6:,.0f} MB", file=sys.stderr, flush=True)
    figures = Figures.read(file)
    if not asked.page.exists():
        asked.page.write_text("# Benchmarks\n\n")
    page.write(figures, asked.page, asked.page.parent / "images" / "benchmarks")
    print("\n".join(goals(figures)))
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
