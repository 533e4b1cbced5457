"""Figures as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness.case import RUN, Job
from benchmarks.harness.figures import PEAK, READ, Figures
from benchmarks.report.goals import GOALS

MB = 1e6


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


def job(job: Job, figures: Figures) -> Iterator[str]:
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
