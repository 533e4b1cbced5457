"""Run the long test suites, each with a seed, a time budget and a hard limit.

    python tools/suites.py                  # every suite of CI that has tests
    python tools/suites.py kills cluster    # these
    DUCKRUN_TEST_SEED=7 python tools/suites.py differential     # the same choices again
    DUCKRUN_TEST_ALL=1 python tools/suites.py   # every case of what a run draws a part of
    DUCKRUN_SOAK=1 python tools/suites.py   # full counts, and every case

A suite reads DUCKRUN_TEST_SEED (what its random choices start from), DUCKRUN_TEST_BUDGET (seconds after which it
starts no new round), DUCKRUN_TEST_ALL and DUCKRUN_SOAK. One that is still running `GRACE` seconds after its budget is
ended and has failed; so has one that ran no test.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

ROOT = Path(__file__).resolve().parent.parent
GRACE = 360  # seconds for the round that is under way, and for Spark to stop, on a busy machine
WHOLE_FACTOR, SOAK_FACTOR = 5, 20  # how much longer a suite may take with every case, and with full counts


@dataclass(frozen=True)
class Suite:
    """Tests with one marker, which with `everywhere` conftest.py gives out. `budget` is in seconds on two cores; `called` and
    `env` tell one from another that has the same tests; with several `workers`, each runs whole classes, or with
    `dist="loadgroup"` one of them all that needs Spark.
    """

    marker: str
    budget: int
    called: str = ""
    env: tuple[tuple[str, str], ...] = ()
    workers: int = 1
    dist: str = "loadscope"
    everywhere: bool = False

    @property
    def name(self) -> str:
        return self.called or self.marker

    def paths(self) -> list[str]:
        """Its folder tests/<marker>, and every other test file that uses the marker; empty when it has no tests."""
        if self.everywhere:
            return ["tests"]
        marked = re.compile(rf"\bmark\.{self.marker}\b")
        folder = ROOT / "tests" / self.marker
        own = [str(folder.relative_to(ROOT))] if any(folder.rglob("test_*.py")) else []
        others = [
            str(file.relative_to(ROOT))
            for file in sorted((ROOT / "tests").rglob("test_*.py"))
            if folder not in file.parents and marked.search(file.read_text(encoding="utf-8"))
        ]
        return own + others


# Of dbt's own suite a run takes a part of the classes, which one the seed says: all of it on Spark takes a quarter of an hour.
# Kills, differential, changes and lives go on until their budget is spent; the other budgets are near twice what a suite takes. Their
# sum, which .ci/run allows for, is under 46 minutes.
SUITES = (
    Suite("kills", 140, workers=2, dist="loadgroup"),
    Suite("conformance", 90, env=(("DUCKRUN_CONFORMANCE_PARTS", "4"),), workers=2),
    Suite(
        "conformance",
        230,
        "conformance_spark",
        (("DUCKRUN_CONFORMANCE_ENGINE", "spark"), ("DUCKRUN_CONFORMANCE_PARTS", "8")),
    ),
    Suite(
        "conformance",
        55,
        "conformance_ducklake",
        (("DUCKRUN_CONFORMANCE_FORMAT", "ducklake"), ("DUCKRUN_CONFORMANCE_PARTS", "12")),
        workers=2,
    ),
    Suite("differential", 240, workers=2, dist="loadgroup"),
    Suite("turns", 120),
    Suite("changes", 80, workers=2, dist="loadgroup"),
    Suite("cluster", 300),
    Suite("answers", 90, workers=2, dist="loadgroup"),
    Suite("lives", 50, workers=2, dist="loadgroup"),
    Suite("ui", 200),
    Suite("matrix", 400, workers=2, dist="loadgroup"),
    Suite("on_spark", 330, env=(("DUCKRUN_TEST_TURN", "7"), ("DUCKRUN_TEST_SPARK_PARTS", "14")), everywhere=True),
    Suite("slow", 420, workers=2, dist="loadgroup"),
)


def run(suite: Suite, paths: list[str], seed: int, factor: int) -> str | None:
    """Runs one suite; what went wrong, or None."""
    budget = suite.budget * factor
    print(f"\n=== {suite.name}: seed {seed}, budget {budget} s: {' '.join(paths)}", flush=True)
    env = {**os.environ, "DUCKRUN_TEST_SEED": str(seed), "DUCKRUN_TEST_BUDGET": str(budget), **dict(suite.env)}
    limit = budget + GRACE
    command = [
        sys.executable, "-m", "pytest", "-m", suite.marker, f"--timeout={limit}", "-o", f"faulthandler_timeout={limit * 0.95}",
        "--durations=10", *paths,
    ]  # fmt: skip
    if suite.workers > 1:
        command += ["-n", str(suite.workers), "--dist", suite.dist]
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True)
    try:
        code = process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        end(process)
        return f"still running after {limit} s, ended"
    except BaseException:
        end(process)
        raise
    print(f"=== {suite.name}: {time.monotonic() - started:.0f} s, exit {code}", flush=True)
    if code == 5:
        return "ran no test"
    return f"exit {code}" if code else None


def end(process: subprocess.Popen[bytes]) -> None:
    """The suite and all that it started: it leads a process group of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=15)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def main(names: list[str]) -> int:
    known = {suite.name: suite for suite in SUITES}
    if unknown := [name for name in names if name not in known]:
        print(f"suites: no suite {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    seed = int(os.environ.get("DUCKRUN_TEST_SEED") or SystemRandom().randrange(2**31))
    factor = WHOLE_FACTOR if os.environ.get("DUCKRUN_TEST_ALL") else 1
    factor = SOAK_FACTOR if os.environ.get("DUCKRUN_SOAK") else factor
    whole = bool(os.environ.get("DUCKRUN_TEST_ALL"))  # then the tests for every day have run all of their cases
    chosen = [
        (suite, suite.paths())
        for suite in SUITES
        if suite.name in names or not names and not (whole and suite.everywhere)
    ]
    if names and (empty := [suite.name for suite, paths in chosen if not paths]):
        print(f"suites: no test is marked {', '.join(empty)}", file=sys.stderr)
        return 1
    chosen = [(suite, paths) for suite, paths in chosen if paths]
    if not chosen:
        print("suites: no long suite has tests yet")
        return 0
    failures = {suite.name: why for suite, paths in chosen if (why := run(suite, paths, seed, factor))}
    print()
    for suite, _ in chosen:
        print(f"{suite.name:<20}{failures.get(suite.name, 'passed')}")
    if failures:
        print(f"again: DUCKRUN_TEST_SEED={seed} python tools/suites.py {' '.join(failures)}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
