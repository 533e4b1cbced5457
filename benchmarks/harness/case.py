"""What a benchmark is: a job, which several sides do, each in a process of its own.

Only the standard library is imported here and at the top of each job's module, as a side may run in an environment that
has nothing but the package it measures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

RUN = "run"
"""The label of a job that times one thing."""


class Clock:
    """Seconds of what runs inside ``with clock(label):``. A label that comes several times keeps all its laps."""

    def __init__(self) -> None:
        self.laps: dict[str, list[float]] = {}
        self.read: int | None = None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count the bytes that this process reads meanwhile, from the disk or from the system's cache. Only where /proc tells."""
        before = _read_so_far()
        yield
        after = _read_so_far()
        self.read = None if before is None or after is None else after - before

    @contextmanager
    def __call__(self, label: str = RUN) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.add(label, time.perf_counter() - started)

    def add(self, label: str, seconds: float) -> None:
        """Count seconds that somebody else measured."""
        self.laps.setdefault(label, []).append(seconds)


def _read_so_far() -> int | None:
    figures = Path("/proc/self/io")
    if not figures.exists():
        return None
    return int(next(line for line in figures.read_text().splitlines() if line.startswith("rchar")).split()[1])


@dataclass(frozen=True)
class Data:
    """Where the data of one size lie: Parquet files and base tables, made once and only read afterwards.

    ``scale`` is TPC-H's factor; ``size`` is what the counts of jobs without a factor are multiplied by.
    """

    folder: Path
    scale: float
    size: float = 1.0

    def file(self, name: str) -> str:
        """The path of a Parquet file."""
        return (self.folder / f"{name}.parquet").as_posix()

    def base(self, name: str) -> Path:
        """The folder of a base table."""
        return self.folder / "base" / name

    def count(self, whole: int) -> int:
        """A count at this size, at least ten."""
        return max(10, round(whole * self.size))


@dataclass(frozen=True)
class Run:
    """One side's turn: its data, an empty lake with the job's base table in it as ``main/t``, and the clock."""

    data: Data
    lake: Path
    clock: Clock = field(default_factory=Clock)

    @property
    def table(self) -> Path:
        return self.lake / "main" / "t"


Relations = Mapping[str, str]
"""What is compared row for row: a name, and SQL that plain DuckDB reads it by."""


@dataclass(frozen=True)
class Job:
    """A piece of work.

    A side does the work and gives what it ended with; ``expected`` gives the same, by name, of the data alone. ``prepare`` makes the job's data (once), ``base`` names the table
    that each run gets a copy of. Sides in ``apart`` run in an environment of that name under ``requirements/``. A job that is
    not ``scaled`` runs once, whatever scale factors are asked for.
    """

    name: str
    title: str
    sides: Mapping[str, Callable[[Run], Relations]]
    expected: Callable[[Data], Relations]
    prepare: Callable[[Data], None] = lambda data: None
    base: str | None = None
    scaled: bool = True
    apart: Mapping[str, str] = field(default_factory=dict)
