"""Run the long test suites, each with a seed, a time budget and a hard limit.

    python tools/suites.py                  # every suite of CI that has tests
    python tools/suites.py kills cluster    # only these
    DUCKRUN_TEST_SEED=7 python tools/suites.py differential     # the same choices again
    CI_BASE=main python tools/suites.py     # also leaves out suites that the change cannot break
    CI_NIGHTLY=1 python tools/suites.py     # also the suites of the night, and larger draws
    DUCKRUN_TEST_ALL=1 python tools/suites.py   # all cases of suites that draw a part of them
    DUCKRUN_SOAK=1 python tools/suites.py   # full counts, and every case
    CI_SECONDS=1500 python tools/suites.py  # draws less where that time would not be enough

Two suites run at once, as each waits a part of its time. The output of a suite is printed when it
ends.

A suite reads six variables. DUCKRUN_TEST_SEED is the seed of its random choices. After
DUCKRUN_TEST_BUDGET seconds it starts no new round. With DUCKRUN_TEST_SHARE=3 it draws a third of
its cases. With DUCKRUN_TEST_ROUNDS=6 a random search does a sixth of its rounds. The others are
DUCKRUN_TEST_ALL and DUCKRUN_SOAK. A suite that still runs `GRACE` seconds
after its budget (in a soak `SOAK_GRACE`) is ended and has failed. A suite that ran no test has
failed too.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import IO, NoReturn

ROOT = Path(__file__).resolve().parent.parent
LANES = 2  # suites that run at once; three take as long
MOST_FEWER = 4  # with fewer cases a suite takes hardly less time, as Spark must start
ROUNDS = 6  # a random search of CI does a sixth of the rounds of the night
GRACE = 600  # seconds for the current round to end, and for Spark to stop, on a busy machine
SOAK_GRACE = 12 * 3600  # a soak has searches of fixed counts, which no budget ends
NIGHTLY = bool(os.environ.get("CI_NIGHTLY"))
WHOLE_FACTOR, SOAK_FACTOR = 5, 20  # factors of the budget with every case, and with full counts


@dataclass(frozen=True)
class Suite:
    """Tests with one marker."""

    marker: str
    budget: int
    """Seconds on two cores."""
    called: str = ""
    """Name of a suite, if several have the same tests; `env` then differs."""
    env: tuple[tuple[str, str], ...] = ()
    workers: int = 1
    """Number of processes."""
    dist: str = "loadscope"
    """With `loadscope`, a worker runs whole classes; with `loadgroup`, one runs all that needs
    Spark.
    """
    everywhere: bool = False
    """True if conftest.py sets the marker, on tests of any folder."""
    share: int = 1
    """Number of parts of its cases; a run takes one, but all of them nightly and for `watches`."""
    watches: tuple[str, ...] = ()
    """Paths that the suite alone covers; with a base commit, it runs if one of them changed."""
    nightly: bool = False
    """True for a suite that only nightly runs and calls by name include."""

    @property
    def name(self) -> str:
        return self.called or self.marker

    def paths(self) -> list[str]:
        """Return the folder tests/<marker> and other test files that use the marker.

        The list is empty without tests.
        """
        if self.everywhere:
            return ["tests"]
        marked = re.compile(rf"\bmark\.{self.marker}\b")
        folder = ROOT / "tests" / self.marker
        paths = [str(folder.relative_to(ROOT))] if any(folder.rglob("test_*.py")) else []
        others = [
            str(file.relative_to(ROOT))
            for file in sorted((ROOT / "tests").rglob("test_*.py"))
            if folder not in file.parents and marked.search(file.read_text(encoding="utf-8"))
        ]
        return paths + others


# Rooms that `cluster` covers, and those that `slow` covers.
SPARK = ("adapter/duckrun/engines/spark", "adapter/duckrun/spark.py", "requirements.lock")
LONGEST = (*SPARK, "adapter/duckrun/formats/delta", "adapter/duckrun/statements", "adapter/duckrun/run")

# Kills, differential, changes, answers and lives have a budget of 60 seconds or less: a round that
# has begun exceeds it, and so does the least number of rounds on a slow machine. The other suites
# draw a part of their cases, and their budgets are about twice their duration. BUDGETS is the limit
# of the sum without the suites of the night, which .ci/run allows for. The first ones find most: on
# a busy machine no time may be left for the last ones.
BUDGETS = 20 * 60
SUITES = (
    Suite("branches", 75, workers=2, dist="loadgroup", share=2),
    Suite("kills", 60, workers=2, dist="loadgroup", share=2),
    Suite("differential", 60, workers=2, dist="loadgroup", share=3),
    Suite("changes", 60, workers=2, dist="loadgroup", share=2),
    Suite("answers", 60, workers=2, dist="loadgroup"),
    Suite("lives", 50, workers=2, dist="loadgroup"),
    Suite("conformance", 60, workers=2, share=6),
    Suite("matrix", 100, workers=2, dist="loadgroup", share=9),
    Suite(
        "conformance",
        55,
        "conformance_ducklake",
        (("DUCKRUN_CONFORMANCE_FORMAT", "ducklake"),),
        workers=2,
        share=12,
    ),
    Suite(
        "conformance",
        140,
        "conformance_spark",
        (("DUCKRUN_CONFORMANCE_ENGINE", "spark"),),
        share=24,
    ),
    Suite("turns", 60),
    Suite("ui", 200),
    Suite("slow", 100, workers=2, dist="loadgroup", share=6, watches=LONGEST),
    Suite("cluster", 120, share=4, watches=(*SPARK, "tests/cluster")),
    Suite("on_spark", 330, env=(("DUCKRUN_TEST_SHARE", "14"),), everywhere=True, nightly=True),
)


def reason_to_leave_out(suite: Suite, changed: list[str] | None) -> str | None:
    """Return why a run without names leaves a suite out, or None if it runs.

    Args:
        changed: Files that differ from the base commit; None if no base is known.
    """
    if suite.everywhere and os.environ.get("DUCKRUN_TEST_ALL"):
        return "make test-all has run its cases before"
    if NIGHTLY:
        return None
    if suite.nightly:
        return "runs nightly"
    if changed is None or not suite.watches or any(file.startswith(suite.watches) for file in changed):
        return None
    return f"no change in {', '.join(suite.watches)}"


def parts_of(suite: Suite, changed: list[str] | None) -> int:
    """Return the number of parts of the suite's drawn cases; a run takes one of them."""
    return 1 if NIGHTLY or suite.watches and changed is not None else suite.share


@dataclass
class Pace:
    """How a run keeps to its time: on a busy machine the suites that are left draw fewer cases."""

    left: float
    """Seconds until the run must have ended."""
    planned: int
    """Sum of the budgets of the suites that have not ended."""
    lanes: int = 1
    """Number of suites that run at once."""
    done: int = 0
    """Sum of the budgets of the suites that have ended."""
    taken: float = 0
    """Seconds that these took."""

    def fewer(self) -> int:
        """Return the divisor of the next suite's cases, rounds and budget."""
        slowness = max(1.0, self.taken / self.done) if self.done else 1.0
        return min(max(1, math.ceil(self.planned * slowness / self.lanes / max(self.left, 1))), MOST_FEWER)

    def ended(self, suite: Suite, seconds: float) -> None:
        """Count a suite that has ended."""
        self.planned -= suite.budget
        self.done += suite.budget
        self.taken += seconds
        self.left -= seconds / self.lanes


def changed_files(base: str) -> list[str] | None:
    """Return the files that differ from the commit where the change left its base.

    Without git, a checkout or that commit, say so and return None: then no suite is left out.
    """
    command = ["git", "diff", "--name-only", "--merge-base", base]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        reason = "git is not installed"
    else:
        if done.returncode == 0:
            return done.stdout.splitlines()
        reason = (done.stderr.strip().splitlines() or [f"git ended with {done.returncode}"])[0]
    print(f"suites: no suite is left out, as the change since CI_BASE={base} is unknown: {reason}", file=sys.stderr)
    return None


class Runner:
    """Run suites, up to `LANES` at once; `stop` ends those that run."""

    def __init__(self, seed: int, pace: Pace) -> None:
        self.seed = seed
        self.pace = pace
        self._lock = threading.Lock()
        self._starts = threading.Lock()
        self._is_stopped = False
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(self, suite: Suite, paths: list[str], factor: int, share: int) -> str:
        """Run one suite in the time that is left; return "passed", or the reason of another result.

        Args:
            factor: Factor of the budget.
            share: Number of parts of the drawn cases; the run takes one.
        """
        with self._lock:
            if self.pace.left <= 0:
                return "left out: no time is left on this machine; the nightly run has it"
            fewer = self.pace.fewer()
        started = time.monotonic()
        if self.pace.lanes == 1:
            result = self._run(suite, paths, factor, share, fewer, None)
        else:
            print(f"=== {suite.name} begins", flush=True)
            with tempfile.TemporaryFile() as output:
                result = self._run(suite, paths, factor, share, fewer, output)
                output.seek(0)
                with self._lock:
                    sys.stdout.write(output.read().decode(errors="replace"))
                    sys.stdout.flush()
        with self._lock:
            self.pace.ended(suite, time.monotonic() - started)
        return result or "passed"

    def _run(
        self, suite: Suite, paths: list[str], factor: int, share: int, fewer: int, output: IO[bytes] | None
    ) -> str | None:
        """Run pytest; return the reason of a failure, or None.

        Args:
            fewer: Further divisor of cases, rounds and budget, on a machine without time.
            output: File of all output; without one the console.
        """

        def say(text: str) -> None:
            if output is None:
                print(text, flush=True)
            else:
                output.write(f"{text}\n".encode())
                output.flush()

        budget = max(suite.budget * factor // fewer, 1)
        if fewer > 1:
            say(f"\n=== {suite.name}: little time is left, so it takes 1/{fewer} of its cases")
        say(f"\n=== {suite.name}: seed {self.seed}, budget {budget} s: {' '.join(paths)}")
        env = {**os.environ, "DUCKRUN_TEST_SEED": str(self.seed), "DUCKRUN_TEST_BUDGET": str(budget), **dict(suite.env)}
        env.setdefault("DUCKRUN_TEST_ROUNDS", str(1 if NIGHTLY else ROUNDS * fewer))
        if share * fewer > 1:
            env["DUCKRUN_TEST_SHARE"] = str(share * fewer)
        limit = budget + (SOAK_GRACE if os.environ.get("DUCKRUN_SOAK") else GRACE)
        command = [
            sys.executable, "-m", "pytest", "-m", suite.marker, f"--timeout={limit}",
            "-o", f"faulthandler_timeout={limit * 0.95}", "--durations=10", *paths,
        ]  # fmt: skip
        if suite.workers > 1:
            command += ["-n", str(suite.workers), "--dist", suite.dist]
        started = time.monotonic()
        with self._starts:
            if self._is_stopped:
                return "interrupted"
            process = subprocess.Popen(
                command, cwd=ROOT, env=env, start_new_session=True, stdout=output, stderr=output and subprocess.STDOUT
            )
            self._running.add(process)
        try:
            code = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            end(process)
            return f"still running after {limit} s, ended"
        finally:
            self._running.discard(process)
        say(f"=== {suite.name}: {time.monotonic() - started:.0f} s, exit {code}")
        if code == 5:
            return "ran no test" if fewer == 1 else None  # a small part of few cases may be none
        return f"exit {code}" if code else None

    def stop(self) -> None:
        """End all suites that run, and start no other."""
        with self._starts:
            self._is_stopped = True
            running = list(self._running)
        for process in running:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End the suite and all its child processes: it leads a process group of its own."""
    # After SIGINT, pytest prints the failures so far.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
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
    base = os.environ.get("CI_BASE")
    changed = changed_files(base) if base else None
    chosen = [(suite, suite.paths()) for suite in SUITES if suite.name in names or not names]
    if names and (empty := [suite.name for suite, paths in chosen if not paths]):
        print(f"suites: no test is marked {', '.join(empty)}", file=sys.stderr)
        return 1
    chosen = [(suite, paths) for suite, paths in chosen if paths]
    if not chosen:
        print("suites: no long suite has tests yet")
        return 0
    reasons = {suite.name: None if names else reason_to_leave_out(suite, changed) for suite, _ in chosen}
    results = {name: f"left out: {why}" for name, why in reasons.items() if why}
    chosen = [(suite, paths) for suite, paths in chosen if suite.name not in results]
    lanes = max(1, min(LANES, len(chosen)))
    pace = Pace(float(os.environ.get("CI_SECONDS") or "inf"), sum(suite.budget for suite, _ in chosen), lanes)
    runner = Runner(seed, pace)
    with ThreadPoolExecutor(lanes) as pool:
        runs = {}
        for suite, paths in chosen:
            parts = parts_of(suite, changed)
            larger = factor if factor > 1 else suite.share // parts
            runs[suite.name] = pool.submit(runner.run, suite, paths, larger, parts)
        try:
            results |= {name: done.result() for name, done in runs.items()}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            runner.stop()
            raise
    failures = [name for name, result in results.items() if result != "passed" and not result.startswith("left out")]
    print()
    for name, result in results.items():
        print(f"{name:<22}{result}")
    if failures:
        print(f"again: DUCKRUN_TEST_SEED={seed} python tools/suites.py {' '.join(failures)}", file=sys.stderr)
    return 1 if failures else 0


def _interrupt(number: int, frame: object) -> NoReturn:
    """Leave as on Ctrl-C, so that no suite goes on alone."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main(sys.argv[1:]))
