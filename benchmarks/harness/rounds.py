"""Runs jobs in rounds: all sides of a job in turns, each in a process of its own on a copy of the same data."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.harness.case import Data, Job
from benchmarks.harness.check import Checker, Differs
from benchmarks.harness.duck import plain
from benchmarks.harness.environments import python_of
from benchmarks.harness.figures import Figure

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Plan:
    """What to run: jobs, the sides among theirs, scale factors and how many rounds of each; where it all lies."""

    jobs: Sequence[Job]
    sides: Sequence[str]
    scales: Sequence[float]
    repeat: int
    size: float
    work: Path
    check_all: bool = True

    def sides_of(self, job: Job) -> list[str]:
        return [side for side in job.sides if not self.sides or side in self.sides]

    def data(self, job: Job, scale: float) -> Data:
        folder = f"sf-{scale:g}" if job.scaled else f"size-{self.size:g}"
        return Data(self.work / "data" / folder, scale, self.size)

    def scales_of(self, job: Job) -> Sequence[float]:
        return self.scales if job.scaled else [0]


class Trouble(Exception):
    """A turn that ended with an error, or with other rows than expected: it has no figure."""


def run(plan: Plan) -> Iterator[Figure | Trouble]:
    """A figure for each side and round, as soon as it is there, or what went wrong in its place."""
    with plain("delta", "tpch") as con:
        con.execute(f"SET temp_directory = '{(plan.work / 'spill').as_posix()}'")
        for job in plan.jobs:
            for scale in plan.scales_of(job):
                yield from _rounds(plan, job, scale, Checker(con))


def _rounds(plan: Plan, job: Job, scale: float, checker: Checker) -> Iterator[Figure | Trouble]:
    data = plan.data(job, scale)
    data.folder.mkdir(parents=True, exist_ok=True)
    job.prepare(data)
    sides = plan.sides_of(job)
    for number in range(plan.repeat):
        for side in sides if number % 2 == 0 else reversed(sides):
            try:
                yield _turn(plan, job, side, data, number, checker)
            except Trouble as trouble:
                yield trouble


def _turn(plan: Plan, job: Job, side: str, data: Data, number: int, checker: Checker) -> Figure:
    lake = plan.work / f"run-{os.getpid()}"
    shutil.rmtree(lake, ignore_errors=True)
    try:
        (lake / "main").mkdir(parents=True)
        if job.base:
            copy_table(data.base(job.base), lake / "main" / "t")
        busy = psutil.cpu_percent(interval=0.2)
        said = _in_process(plan, job, side, data, lake)
        rows = None
        if plan.check_all or number == 0:
            try:
                rows = checker.check(said["results"], job.expected(data))
            except Differs as e:
                raise Trouble(f"{job.name}, {side}, scale {data.scale:g}: {e}") from None
        laps = {label: statistics.median(each) for label, each in said["laps"].items()}
        scale = data.scale if job.scaled else None
        return Figure(job.name, side, scale, number, laps, said["peak"], rows, busy, said["read"])
    finally:
        shutil.rmtree(lake, ignore_errors=True)


def _in_process(plan: Plan, job: Job, side: str, data: Data, lake: Path) -> dict:
    python, env = sys.executable, dict(os.environ)
    path = [str(ROOT)]
    if side in job.apart:
        python = python_of(job.apart[side], plan.work)
        env["PATH"] = f"{Path(python).parent}{os.pathsep}{env['PATH']}"
    elif "PYTHONPATH" in env:
        path.append(env["PYTHONPATH"])
    env |= {"PYTHONPATH": os.pathsep.join(path), "DO_NOT_TRACK": "1", "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
    words = [job.name, side, str(data.folder), str(data.scale), str(data.size), str(lake)]
    command = [python, "-m", "benchmarks.harness.worker", *words]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Trouble(f"{job.name}, {side}: ended with {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def copy_table(base: Path, table: Path) -> None:
    """A copy of a table whose log is its own, and whose data files, which nobody changes, are links where the disk has them."""
    for file in sorted(base.rglob("*")):
        target = table / file.relative_to(base)
        if file.is_dir():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if "_delta_log" in file.parts:
            shutil.copy2(file, target)
        else:
            os.link(file, target)
