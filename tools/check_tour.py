"""Follow README's tour in an empty folder: write its files, run its commands, compare their output.

    SOME_ENVIRONMENT/bin/python tools/check_tour.py

It uses the programs of its environment, and nothing of the source tree but the text.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
TOUR = re.compile(r"^## A tour of ten minutes\n(.*?)^## ", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"(?:#|--) ([\w./]+)\n")
LIMIT = 300
# Checks the run that the schedule would start, and the rows of its last table by delta_rs and
# polars.
CHECK = """
from datetime import datetime
import dagster as dg
import deltalake
import polars as pl
from definitions import defs, nightly

schedule = defs.resolve_schedule_def("nightly_schedule")
moment = datetime(2026, 1, 3, 6)
tick = schedule.evaluate_tick(dg.build_schedule_context(scheduled_execution_time=moment))
assert len(tick.run_requests) == 1 and schedule.job_name == nightly.name, tick
keys = {key.to_user_string() for key in defs.resolve_job_def(nightly.name).asset_layer.executable_asset_keys}
assert keys == {"marts/customer_days", "marts/good_days"}, keys
rows = pl.read_parquet(deltalake.DeltaTable("lake/marts/good_days").file_uris()).select("customer", "orders").rows()
assert sorted(rows) == [("ada", 1), ("bob", 1)], rows
"""


def blocks(text: str) -> list[tuple[str, str]]:
    """Return (language, text) of the tour's blocks, in order."""
    tour = TOUR.search(text)
    if tour is None:
        raise ValueError(f"{README.name} has no tour of ten minutes")
    return BLOCK.findall(tour[1])


def run(command: str, folder: Path) -> str:
    """Return the output of a command; a failure ends the tour."""
    started = time.monotonic()
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    env |= {"DAGSTER_DISABLE_TELEMETRY": "1", "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
    for name in ("PYTHONPATH", "DAGSTER_HOME", "DBT_PROFILES_DIR"):
        env.pop(name, None)
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT)
    print(f"$ {command.splitlines()[0]}   {time.monotonic() - started:.1f} s", flush=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{done.stderr}\nexit {done.returncode}: {command}")
    return done.stdout


def follow(steps: list[tuple[str, str]], folder: Path) -> None:
    """Write files and run commands; a block ``text`` is the output of the last command."""
    printed = ""
    for language, text in steps:
        if language == "sh":
            for command in text.splitlines():
                printed = run(command, folder)
        elif language == "text":
            if printed.split() != text.split():
                sys.exit(f"README shows\n{text}and the command printed\n{printed}")
        else:
            name = FILE.match(text)
            if name is None:
                sys.exit(f"a block of the tour names no file in its first line:\n{text}")
            file = folder / name[1]
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")


def main() -> None:
    started = time.monotonic()
    steps = blocks(README.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        follow(steps, folder)
        (folder / "check.py").write_text(CHECK, encoding="utf-8")
        run("python check.py", folder)
    print(f"README's tour: {len(steps)} blocks in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
