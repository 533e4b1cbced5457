"""Figures as Markdown tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from benchmarks.harness.case import RUN, Job
from benchmarks.harness.figures import PEAK, READ, Figures
from benchmarks.report.goals import GOALS

MB = 1e6
OURS = "duckrun"
"""How the names of our sides begin."""
FASTER = 1.005
"""From this ratio on another side is faster: one that is shown as 1.01."""
COLUMNS = 6
"""The most labels that are columns of a job's table."""


def goals(figures: Figures) -> Iterator[str]:
    """A row for each goal and scale factor."""
    yield "| goal | scale factor | to reach | measured | |"
    yield "|---|---|---|---|---|"
    for goal in GOALS:
        found = goal.measured(figures)
        for scale, ratio in found:
            shown = "" if scale is None else f"up to {scale:g}" if goal.spread or goal.growth else f"{scale:g}"
            met = "met" if goal.met(ratio) else "**not met**"
            yield f"| {goal.says} | {shown} | {goal.bound} {goal.limit:g} | {ratio:.2f} | {met} |"
        if not found:
            yield f"| {goal.says} | | {goal.bound} {goal.limit:g} | | not measured |"


def peers(jobs: Iterable[Job], figures: Figures) -> Iterator[str]:
    """A row for each job, scale factor and side that is faster than the fastest of duckrun, with the labels in which it is."""
    faster: dict[tuple[str, float | None, str], list[str]] = {}
    compared = 0
    for job in jobs:
        for scale, label in itertools.product(figures.scales(job.name), figures.labels(job.name)):
            sides = {side: figures.median(job.name, side, scale, label) for side in job.sides}
            ours = [value for side, value in sides.items() if value and side.startswith(OURS)]
            others = [(value, side) for side, value in sides.items() if value and not side.startswith(OURS)]
            if not ours or not others:
                continue
            compared += 1
            (other, side), own = min(others), min(ours)
            if own / other >= FASTER:
                ratio = f"{own / other:.2f}" if label == RUN else f"{label} {own / other:.2f}"
                faster.setdefault((job.title, scale, side), []).append(ratio)
    yield f"Another side is faster in {sum(map(len, faster.values()))} of {compared} figures; duckrun is in the rest.\n"
    if faster:
        yield "| | scale factor | the fastest | duckrun's time over it |"
        yield "|---|---|---|---|"
        for (title, scale, side), ratios in faster.items():
            yield f"| {title} | {'' if scale is None else f'{scale:g}'} | {side} | {', '.join(ratios)} |"


def job(job: Job, figures: Figures) -> Iterator[str]:
    """The seconds and the peak of each side, with a column for each label, or with a row for each if they are many."""
    yield from (_by_label if len(figures.labels(job.name)) > COLUMNS else _by_side)(job, figures)


def _by_label(job: Job, figures: Figures) -> Iterator[str]:
    """A row for each label and one for the peak; a column for each side and scale factor."""
    at = [
        (side, scale)
        for scale in figures.scales(job.name)
        for side in job.sides
        if figures.turns(job.name, side, scale)
    ]
    yield f"| | {' | '.join(side if scale is None else f'SF {scale:g} {side}' for side, scale in at)} |"
    yield f"|{'---|' * (len(at) + 1)}"
    for label in figures.labels(job.name):
        found = [figures.median(job.name, side, scale, label) for side, scale in at]
        yield f"| {label}, s | {' | '.join(map(seconds, found))} |"
    peaks = [figures.median(job.name, side, scale, PEAK) for side, scale in at]
    yield f"| peak MB | {' | '.join('' if each is None else f'{each / MB:,.0f}' for each in peaks)} |"


def _by_side(job: Job, figures: Figures) -> Iterator[str]:
    """A row for each side: seconds by label and scale factor, how many times those of the first side, and the peak."""
    scales, labels = figures.scales(job.name), figures.labels(job.name)
    counted = any(figures.median(job.name, side, scale, READ) is not None for side in job.sides for scale in scales)
    head = ["side"]
    for scale in scales:
        at = "" if scale is None else f"SF {scale:g} "
        for label in labels:
            named = "" if label == RUN and len(labels) == 1 else f"{label}, "
            head += [f"{at}{named}s", "ratio"]
        head.append(f"{at}peak MB")
        head += [f"{at}read MB"] if counted else []
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    measured = [side for side in job.sides if any(figures.turns(job.name, side, scale) for scale in scales)]
    for side in measured:
        cells = [side]
        for scale in scales:
            for label in labels:
                own, first = (figures.median(job.name, each, scale, label) for each in (side, measured[0]))
                cells += [seconds(own), f"{own / first:.2f}" if own and first else ""]
            for label in (PEAK, READ) if counted else (PEAK,):
                found = figures.median(job.name, side, scale, label)
                cells.append("" if found is None else f"{found / MB:,.0f}")
        yield f"| {' | '.join(cells)} |"


def seconds(value: float | None) -> str:
    """With three digits that say something."""
    if value is None:
        return ""
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"
