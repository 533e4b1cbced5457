"""The example's demo, killed at any moment and run again: it finishes, with no row doubled and none lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.example.test_counts import ROOT, Example

pytestmark = [pytest.mark.slow, pytest.mark.spark]
SEED = int(os.environ.get("DUCKRUN_TEST_SEED", "1"))
ROUNDS = 5 if os.environ.get("DUCKRUN_SOAK") else 2


def kill_after(example: Example, command: str, seconds: float) -> bool:
    """Start a command and kill it, only that process, as the kernel would; False if it had ended before."""
    process = subprocess.Popen(
        [sys.executable, "-m", "example_project", command],
        cwd=ROOT,
        env=example.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True
    return False


@pytest.mark.timeout(600)
def test_a_demo_killed_in_the_middle_finishes_when_run_again(tmp_path: Path) -> None:
    example = Example(tmp_path, sample=40)
    moments = random.Random(SEED)
    print(f"seed {SEED}")
    for _ in range(ROUNDS):
        moment = moments.uniform(5, 45)
        began = time.monotonic()
        killed = kill_after(example, "demo", moment)
        print(f"killed after {time.monotonic() - began:.1f} s" if killed else "ended before it was killed")

    example.run("demo")
    example.check_counts()
    before = example.versions()
    assert "nothing to do" in example.run("demo")
    assert example.versions() == before

    kill_after(example, "demo-next", moments.uniform(8, 30))
    example.run("demo-next")
    example.check_counts()
