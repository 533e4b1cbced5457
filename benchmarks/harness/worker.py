"""One side's turn, in the process that is measured: ``python -m benchmarks.harness.worker JOB SIDE DATA SCALE SIZE LAKE``.

The last line that it prints is JSON: ``laps`` (seconds by label), ``peak`` (bytes) and ``results`` (SQL by name).
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from benchmarks.harness.case import Data, Run


def peak() -> int:
    """The most resident memory that this process and those below it had, in bytes: the sum of their high-water marks, or what a
    process that has ended had, if that is more.

    Without /proc it is this process' own.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    own, ended = (resource.getrusage(who).ru_maxrss * unit for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    marks = {}
    parents = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:  # it ended
            continue
        if "VmHWM" in fields:
            marks[int(fields["Pid"])] = int(fields["VmHWM"].split()[0]) * 1024
            parents[int(fields["Pid"])] = int(fields["PPid"])
    me = int(Path("/proc/self/stat").read_text().split()[0]) if marks else 0
    tree = {me}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return max(own, ended, sum(marks.get(pid, 0) for pid in tree))


def main() -> None:
    job, side, folder, scale, size, lake = sys.argv[1:]
    from benchmarks.jobs import JOBS

    run = Run(Data(Path(folder), float(scale), float(size)), Path(lake))
    results = JOBS[job].sides[side](run)
    # A process that ends tidily is not measured: Spark and DuckDB have their say on the way out, but what counts is here.
    print("\n" + json.dumps({"laps": run.clock.laps, "peak": peak(), "results": dict(results)}), flush=True)


if __name__ == "__main__":
    main()
