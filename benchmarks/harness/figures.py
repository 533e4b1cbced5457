"""What was measured: one line of JSON for each turn of a side, so that a run that ends early keeps what it has."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One turn: seconds by label, peak bytes, rows compared (None: not in this round), how busy the machine's processors were
    with other work just before it, in percent, and the bytes that were read (None: not counted).
    """

    job: str
    side: str
    scale: float | None
    number: int
    laps: dict[str, float]
    peak: int
    rows: int | None
    busy: float
    read: int | None = None


PEAK, READ = "peak", "read"
"""As labels: resident memory, and what was read, in bytes instead of seconds."""


class Figures:
    """Figures of one or several runs. Those of a job, side and scale that is run again take the place of the older ones."""

    def __init__(self, figures: Iterable[Figure] = ()) -> None:
        self._of: dict[tuple[str, str, float | None], list[Figure]] = {}
        for each in figures:
            turns = self._of.setdefault((each.job, each.side, each.scale), [])
            if each.number == 0:
                turns.clear()
            turns.append(each)

    @classmethod
    def read(cls, file: Path) -> Figures:
        """Of a file that `keep` wrote; none, if it is not there."""
        lines = file.read_text().splitlines() if file.exists() else []
        return cls(Figure(**json.loads(line)) for line in lines)

    def turns(self, job: str, side: str, scale: float | None) -> list[Figure]:
        return self._of.get((job, side, scale), [])

    def median(self, job: str, side: str, scale: float | None, label: str) -> float | None:
        """Seconds of a label, or bytes for `PEAK` and `READ`; None if it was not measured."""
        bytes_of = {PEAK: lambda turn: turn.peak, READ: lambda turn: turn.read}
        value = bytes_of.get(label, lambda turn: turn.laps.get(label))
        found = [value(each) for each in self.turns(job, side, scale)]
        known = [each for each in found if each is not None]
        return statistics.median(known) if known else None

    def scales(self, job: str) -> list[float | None]:
        return sorted({scale for name, _, scale in self._of if name == job}, key=lambda scale: scale or 0)

    def labels(self, job: str) -> list[str]:
        return list(dict.fromkeys(k for key, turns in self._of.items() if key[0] == job for t in turns for k in t.laps))

    def all(self) -> list[Figure]:
        return [each for turns in self._of.values() for each in turns]


def keep(figure: Figure, file: Path) -> None:
    """Add a figure to a file."""
    with file.open("a") as lines:
        lines.write(json.dumps(asdict(figure)) + "\n")
