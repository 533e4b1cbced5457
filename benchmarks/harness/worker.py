"""One side's turn, in the process that is measured: ``python -m benchmarks.harness.worker JOB SIDE DATA SCALE SIZE LAKE``.

The last line that it prints is JSON: ``laps`` (seconds by label), ``peak`` (bytes), ``read`` (bytes, or null where no side counts
them) and ``results`` (SQL by name).
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness.case import Data, Run


def peak() -> int:
    """The most resident memory that this process and those below it had, in bytes: the sum of their high-water marks, or what a
    process that has ended had, if that is more. Without /proc it is this process' own.

    Not `ru_maxrss` where there is better: it begins with what the process had that started this one (getrusage(2), Linux'
    `setmax_mm_hiwater_rss` in exec).
    """
    unit = 1 if sys.platform == "darwin" else 1024
    own, ended = (resource.getrusage(who).ru_maxrss * unit for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    marks = dict(_marks())
    if not marks:
        return max(own, ended)
    tree = {os.getpid()}
    while more := {pid for pid, (parent, _) in marks.items() if parent in tree} - tree:
        tree |= more
    return max(ended, sum(marks[pid][1] for pid in tree))


def _marks() -> Iterator[tuple[int, tuple[int, int]]]:
    """Of each process its parent and its high-water mark in bytes."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:  # it ended
            continue
        if "VmHWM" in fields:
            yield int(fields["Pid"]), (int(fields["PPid"]), int(fields["VmHWM"].split()[0]) * 1024)


def main() -> None:
    job, side, folder, scale, size, lake = sys.argv[1:]
    from benchmarks.jobs import JOBS

    run = Run(Data(Path(folder), float(scale), float(size)), Path(lake))
    results = JOBS[job].sides[side](run)
    said = {"laps": run.clock.laps, "peak": peak(), "read": run.clock.read, "results": dict(results)}
    print("\n" + json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
