"""Memory that this process may use, and the arbiter that divides it."""

from __future__ import annotations

import logging
import os
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil

from duckrun.display.units import parse_bytes
from duckrun.errors import InvalidConfig
from duckrun.values.rows import MemoryShares

log = logging.getLogger(__name__)

DUCKDB, BESIDE_DELTA_RS = 0.7, 0.3
"""Shares of the budget: DuckDB alone, and DuckDB beside delta_rs, which gets the rest."""
_HELD = 2
"""Bytes that the process holds for each byte that delta_rs counts as its own.

Measured with deltalake 1.6.6: merges of 2 million rows of 230 bytes.
"""
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_CGROUP_USED = ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes")
_SMALLEST = 128 * 1024**2
_ENOUGH = 256 * 1024**2
"""Minimum for DuckDB beside delta_rs in a small budget.

With less, operators fail that cannot spill.
"""
_LATER = 80 * 1024**2
"""Memory that libraries take on first use: DuckDB extensions, Delta Kernel.

Measured: 90 MB after a read and a write.
"""
_LEAST = 150 * 1024**2
"""Minimum for DuckDB in any budget. With less, sorts of long rows fail."""
_OF_A_THREAD = 128 * 1024**2
"""Memory that each DuckDB thread needs, by DuckDB's performance guide."""
_OF_A_JOB = 512 * 1024**2
"""DuckDB's part for each job that runs beside another.

A merge holds 50 to 100 MB that DuckDB does not count, for instance Arrow batches and Parquet pages.
"""
_PATIENCE = 300.0
"""Seconds that a job waits at most for others, as one of them may wait for a lock of its thread."""
_TOLD = 60.0
"""Seconds between two warnings of a job that waits for memory."""


def refuse_memory(limit: str | int | None, fraction: float | None) -> None:
    """Raise InvalidConfig for a ``memory_limit`` or ``memory_fraction`` that is invalid."""
    if limit is not None:
        try:
            parse_bytes(limit)
        except InvalidConfig as error:
            raise InvalidConfig(f"memory_limit: {error}") from None
    if fraction is None:
        return
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
        raise InvalidConfig(f"memory_fraction is {fraction!r}; it is a share above 0 and up to 1.")


def effective_limit() -> int:
    """Return the bytes that this process may use now.

    It is the minimum of physical memory, the cgroup's limit, and free memory. Memory of this
    process counts as free.
    """
    memory = psutil.virtual_memory()
    rss = _own.rss()
    limits = [memory.total, memory.available + rss]
    for limit_file, used_file in zip(_CGROUP_LIMITS, _CGROUP_USED, strict=True):
        limit, used = _number(limit_file), _number(used_file)
        if limit is not None and limit < memory.total:
            limits.append(limit if used is None else max(limit - used + rss, 0))
    return max(min(limits), _SMALLEST)


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text().strip())
    except (OSError, ValueError):  # another cgroup version, or "max"
        return None


def limit_for_merge(shares: MemoryShares, spill: int) -> int:
    """Return the limit in bytes at which a merge by delta_rs gets ``spill`` bytes.

    Args:
        shares: Shares of a merge that got fewer bytes.
    """
    budget = shares.duckdb + _HELD * shares.spill
    least = max(_HELD * spill + _ENOUGH, int(_HELD * spill / (1 - BESIDE_DELTA_RS)))
    return shares.limit + max(least - budget, 0)


def threads_within(limit: int) -> int:
    """Return how many DuckDB threads a limit in bytes allows, at most one per processor."""
    return max(1, min(os.cpu_count() or 1, limit // _OF_A_THREAD))


class Arbiter:
    """Shares of one process's memory.

    DuckDB gets all of it, unless delta_rs writes beside it. Merges by delta_rs queue for their
    share. Memory that the process uses before the first job is taken off the budget, so the sum
    stays below the limit.

    Args:
        limit: Limit that the user set. It is never raised.
        fraction: This process's share of the machine.
    """

    def __init__(self, limit: str | int | None = None, fraction: float | None = None) -> None:
        refuse_memory(limit, fraction)
        self._limit = None if limit is None else parse_bytes(limit)
        self._fraction = fraction
        self._baseline = psutil.Process().memory_info().rss
        self._merges = Turns()
        self._turns = Turns()
        self._sampled = (float("-inf"), 0)
        """Time of the last sample of the limit for DuckDB writes, and the sample."""

    def limit(self) -> int:
        """Return the whole limit in bytes, sampled at each call."""
        free = effective_limit()
        if self._fraction is not None:
            free = int(free * self._fraction)
        return free if self._limit is None else min(self._limit, free)

    def budget(self) -> int:
        """Return the part of the limit for jobs, without the interpreter and libraries."""
        return max(self.limit() - self._baseline, _SMALLEST)

    def instance_limit(self, *, beside_delta_rs: bool = False) -> int:
        """Return DuckDB's ``memory_limit`` in bytes, which applies to the whole instance."""
        budget = self.budget()
        most = max(int((budget - _LATER) * DUCKDB), min(int(budget * DUCKDB), _LEAST))
        return min(most, max(int(budget * BESIDE_DELTA_RS), _ENOUGH)) if beside_delta_rs else most

    def limit_for(self, duckdb: int) -> int:
        """Return the limit at which DuckDB gets so many bytes."""
        return self._baseline + int(duckdb / DUCKDB) + _LATER

    @contextmanager
    def merge(self, duckdb_limit: int, what: str = "a merge by delta_rs") -> Iterator[MemoryShares]:
        """Hold this process's only share for merges by delta_rs, during a block.

        The share is the memory that a merge may use before it spills to disk.

        Args:
            what: Name of the merge, for the warning that it waits for another.
        """
        with self._merges.job(what, alone=True):
            budget = self.budget()
            spill = max((budget - duckdb_limit) // _HELD, _SMALLEST // 2)
            yield MemoryShares(limit=self.limit(), duckdb=duckdb_limit, spill=spill)

    def job(self, what: str, duckdb_limit: int, *, alone: bool = False) -> AbstractContextManager[Callable[[], bool]]:
        """Register a job of DuckDB for a block.

        Jobs share DuckDB's memory without shares of their own, so one may lack what others use.
        With a small limit few of them run at once.

        Args:
            what: Name of the job, for the warning that it waits.
            duckdb_limit: DuckDB's part in bytes.
            alone: Wait until no other job runs, and let none start.

        Returns:
            Context manager of a function that tells if another job ran at the same time.
        """
        return self._turns.job(what, alone=alone, most=max(1, duckdb_limit // _OF_A_JOB))

    def write(self, duckdb_limit: int) -> MemoryShares:
        """Return the shares of a write by DuckDB."""
        # The limit is sampled once a second, since small writes follow each other faster.
        now = time.monotonic()
        if now > self._sampled[0] + 1:
            self._sampled = (now, self.limit())
        return MemoryShares(limit=self._sampled[1], duckdb=duckdb_limit)


class Turns:
    """Running jobs that share a resource: several at once, or one alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._working: list[int] = []
        """Thread of each running job."""
        self._alone: int | None = None
        """Thread of the job that runs alone."""
        self._begun = 0

    @contextmanager
    def job(self, what: str, *, alone: bool = False, most: int = 1) -> Iterator[Callable[[], bool]]:
        """Run one job in a block; see Arbiter.job().

        A job inside another job of the same thread never waits.

        Args:
            most: Number of threads with jobs at once. After `_PATIENCE` a job runs beside more.

        Yields:
            Function that tells if a job of another thread ran at the same time.
        """
        me = threading.get_ident()
        with self._changed:
            inside = me in self._working
            if not inside:
                started = time.monotonic()

                def is_free() -> bool:
                    few = len(set(self._working)) < most or time.monotonic() > started + _PATIENCE
                    return self._alone is None and not (alone and self._working) and few

                while not self._changed.wait_for(is_free, timeout=_TOLD):
                    waited, jobs = time.monotonic() - started, len(self._working)
                    log.warning("%s has waited %.0f s for the memory of %s other jobs", what, waited, jobs)
                self._begun += 1
            exclusive = alone and self._alone is None
            if exclusive:
                self._alone = me
            others = any(thread != me for thread in self._working)
            self._working.append(me)
            begun = self._begun
        try:
            yield lambda: others or self._begun > begun
        finally:
            with self._changed:
                self._working.remove(me)
                if exclusive:
                    self._alone = None
                self._changed.notify_all()


class _Own:
    """This process, and the writes in it whose memory is sampled."""

    # One thread samples all writes, and runs for a second after the last one. To start and wake a
    # thread per write costs a small write a tenth of its time.
    def __init__(self) -> None:
        self.process = psutil.Process()
        self.lock = threading.Lock()
        self.running: set[PeakSampler] = set()
        self.sampled = False

    def rss(self) -> int:
        return int(self.process.memory_info().rss)

    def sample(self) -> None:
        idle = 0
        while True:
            time.sleep(_EVERY)
            with self.lock:
                idle = 0 if self.running else idle + 1
                if idle * _EVERY > 1:
                    self.sampled = False
                    return
                now = self.rss() if self.running else 0
                for each in self.running:
                    each.peak = max(each.peak, now)


_EVERY = 0.05
_own = _Own()


def _after_fork() -> None:
    global _own
    _own = _Own()


os.register_at_fork(after_in_child=_after_fork)


class PeakSampler:
    """Highest resident size of this process during a block, in bytes, sampled every 50 ms."""

    def __init__(self) -> None:
        self.peak = 0

    def __enter__(self) -> PeakSampler:
        self.peak = _own.rss()
        with _own.lock:
            _own.running.add(self)
            if not _own.sampled:
                _own.sampled = True
                start_new_thread(_own.sample, ())
        return self

    def __exit__(self, *exc: object) -> None:
        with _own.lock:
            _own.running.discard(self)
            self.peak = max(self.peak, _own.rss())
