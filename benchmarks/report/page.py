"""The part of docs/benchmarks.md that the command writes, and the pictures in it."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import psutil

from benchmarks.harness.case import RUN
from benchmarks.harness.figures import PEAK, Figures
from benchmarks.jobs import JOBS
from benchmarks.report import plots, tables

BEGIN = "<!-- written by `python -m benchmarks`: begin -->"
END = "<!-- written by `python -m benchmarks`: end -->"
PICTURES = {
    "write": ("Full write of lineitem", ("write",), RUN),
    "merge": ("Merge into lineitem, 1 % of its rows", ("merge-random-1", "merge-recent-1"), RUN),
    "recent": ("Merge of the latest 60,000 rows", ("merge-recent-60k",), RUN),
    "memory": ("Memory of a full write, and of a merge of 1 % random keys", ("write", "merge-random-1"), PEAK),
}


def write(figures: Figures, page: Path, images: Path) -> None:
    """Put tables and pictures in the page between its two marks (at its end, if it has none); SVG files into ``images``."""
    images.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures(figures).items():
        (images / f"{name}.svg").write_text(picture, encoding="utf-8")
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2] or "\n"
    body = "\n".join(text(figures, os.path.relpath(images, page.parent)))
    page.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")


def text(figures: Figures, images: str) -> Iterator[str]:
    """The lines."""
    yield from _conditions(figures)
    yield "\n### Where another side is faster\n"
    yield from tables.peers(JOBS.values(), figures)
    yield "\n### Goals\n"
    yield "Ratios of medians. Memory is the peak of the process and those below it.\n"
    yield from tables.goals(figures)
    drawn = pictures(figures)
    for name in drawn:
        yield f"\n![{PICTURES[name][0]}]({images}/{name}.svg)"
    for job in JOBS.values():
        if figures.scales(job.name):
            yield f"\n### {job.title}\n"
            yield from tables.job(job, figures)


def _conditions(figures: Figures) -> Iterator[str]:
    turns = figures.all()
    cores, memory = psutil.cpu_count(), psutil.virtual_memory().total / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in ("duckdb", "deltalake", "polars", "pyspark", "dagster"))
    rounds = sorted({1 + max(t.number for t in figures.turns(each.job, each.side, each.scale)) for each in turns})
    several = "0" if not rounds else f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    checked = sum(each.rows or 0 for each in turns)
    busy = statistics.median(each.busy for each in turns) if turns else 0.0
    yield f"{cores} cores, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()};"
    yield f"{packages}."
    yield f"Rounds of each job: {several}; {checked:,} rows compared and found equal; before a turn other work"
    yield f"took {busy:.0f} % of the processors (median)."


def pictures(figures: Figures) -> dict[str, str]:
    """SVG by name, of what was measured."""
    found = {}
    for name, (title, jobs, label) in PICTURES.items():
        groups = []
        for job in jobs:
            for scale in figures.scales(job):
                values = {side: figures.median(job, side, scale, label) for side in JOBS[job].sides}
                known = {
                    side: value / 1e6 if label == PEAK else value for side, value in values.items() if value is not None
                }
                at = f"{job} SF {scale:g}" if len(jobs) > 1 else f"SF {scale:g}"
                groups.append(plots.Group(at, known))
        if groups:
            found[name] = plots.bars(title, "MB" if label == PEAK else "seconds", groups)
    return found
