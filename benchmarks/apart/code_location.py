"""How long the example's code location takes to load, its manifest prepared: what `dagster dev` waits for.

    python -m benchmarks.apart.code_location --repeat 5

Twice: the definitions imported and resolved by a fresh Python, and the code server that `dagster dev` starts, until it
has answered which assets there are. Both from the start of the process; seconds of processor beside those of the clock,
which another program that works at the same time does not change much.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil

from benchmarks.apart.measure import Meter

ROOT = Path(__file__).resolve().parents[2]
MODULE = "example_project.definitions"
LOAD = f"from {MODULE} import defs; defs.get_repository_def().asset_graph"


def imported() -> tuple[float, float]:
    """Seconds, and seconds of processor, for a fresh Python to have the graph."""
    with Meter(every=1, children=True) as meter:
        subprocess.run([sys.executable, "-c", LOAD], cwd=ROOT, check=True)
    return meter.seconds, meter.cpu


def served() -> tuple[float, float]:
    """The same, until a code server has said what it holds."""
    from dagster._core.errors import DagsterUserCodeUnreachableError
    from dagster._grpc.client import DagsterGrpcClient

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = time.perf_counter()
    server = subprocess.Popen(
        [sys.executable, "-m", "dagster", "api", "grpc", "-m", MODULE, "-p", str(port), "-h", "127.0.0.1"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        client = DagsterGrpcClient(port=port, host="127.0.0.1")
        while True:
            try:
                held = client.list_repositories()
                break
            except DagsterUserCodeUnreachableError:
                if server.poll() is not None:
                    raise SystemExit("the code server ended") from None
                time.sleep(0.02)
        seconds, used = time.perf_counter() - started, psutil.Process(server.pid).cpu_times()
        assert "repository_code_pointer_dict" in held, held
        return seconds, used.user + used.system
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    imported()  # prepares the manifest, and has the disk's cache hold the packages
    print(
        f"best and median of {arguments.repeat}\n\n| the example's code location | best s | median s | of processor |\n|---|---|---|---|"
    )
    for title, measure in (("imported by a fresh Python", imported), ("code server, until it answers", served)):
        runs = [measure() for _ in range(arguments.repeat)]
        seconds = [each for each, _ in runs]
        used = min(each for _, each in runs)
        print(f"| {title} | {min(seconds):.2f} | {statistics.median(seconds):.2f} | {used:.2f} |", flush=True)


if __name__ == "__main__":
    main()
