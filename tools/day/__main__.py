"""Run a compressed day of the example under `dagster dev`, with faults, and check its tables.

    python -m tools.day --minutes 60 --work FOLDER

A schedule runs each minute, sensors and automation conditions follow, and a queue limits the runs.
Months of data land one after the other. Meanwhile a check fails, runs are killed, the disk is full
for a minute, corrections land, the code location is reloaded, and a backfill runs. Each failed run
is executed again from its failure, as an engineer on call would do. At the end no run may be left,
each failure must have a cause that the day made, and each table must equal its recompute.

The lake is on a disk of 256 MB in memory, in a mount namespace of this process alone (`unshare`).
Without the right to make one, the day has no full disk and says so.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

IN_NAMESPACE = "DUCKRUN_DAY_IN_NAMESPACE"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.day", description="A compressed day of the example")
    parser.add_argument("--minutes", type=float, default=60, help="until the last fault; the end takes some more")
    parser.add_argument("--work", type=Path, required=True, help="a new folder for lake, Dagster and the recompute")
    arguments = parser.parse_args()
    work = arguments.work.absolute()
    if IN_NAMESPACE not in os.environ and _can_unshare():
        os.execvpe("unshare", ["unshare", *_UNSHARE, *sys.orig_argv], {**os.environ, IN_NAMESPACE: "1"})
    if work.exists() and any(work.iterdir()):
        raise SystemExit(f"{work} is not empty: give a new folder")
    # The example reads its settings when it is imported.
    os.environ |= {
        "DUCKRUN_EXAMPLE_HOME": str(work / "home"),
        "DUCKRUN_EXAMPLE_SAMPLE": "40",
        "DAGSTER_HOME": str(work / "dagster"),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        # A run starts a JVM that lives for a minute: its quick compiler is enough.
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
    }
    lake = work / "home/.lake"
    lake.mkdir(parents=True)
    limited = IN_NAMESPACE in os.environ
    if limited:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(lake)], check=True)
    from tools.day.run import Day

    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))  # so that the servers are ended too

    return Day(work, arguments.minutes * 60, disk=lake if limited else None).run()


_UNSHARE = ["--mount"] if os.name == "posix" and os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]


def _can_unshare() -> bool:
    try:
        return subprocess.run(["unshare", *_UNSHARE, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
