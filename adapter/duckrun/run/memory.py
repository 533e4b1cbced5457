"""How much memory this process may use, and the arbiter that hands it out in shares."""

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
from pydantic import ByteSize, TypeAdapter, ValidationError

from duckrun.errors import InvalidConfig
from duckrun.values.rows import MemoryShares

log = logging.getLogger(__name__)

DUCKDB, BESIDE_DELTA_RS, DELTA_RS = 0.7, 0.3, 0.4
"""Of the budget: DuckDB's part, its part where delta_rs writes too, and what that may hold before it spills."""
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_CGROUP_USED = ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes")
_SMALLEST = 128 * 1024**2
_ENOUGH = 256 * 1024**2
"""What DuckDB gets of a small budget before delta_rs gets its part: below it, operators fail that cannot spill."""
_LATER = 80 * 1024**2
"""What libraries take once they are used: extensions of DuckDB, Delta's kernel. Measured: 90 MB after a read and a write."""
_LEAST = 150 * 1024**2
"""What DuckDB gets of a small budget all the same: with less, sorts of long rows fail."""
_OF_A_THREAD = 128 * 1024**2
"""What each thread of DuckDB needs, by its own performance guide."""
_TOLD = 60.0
"""Seconds between two warnings of a job that waits for memory."""


def parse_bytes(size: str | int) -> int:
    """``"2GB"``, ``"512 MiB"`` or a number, as bytes. Raises InvalidConfig."""
    try:
        parsed = 0 if isinstance(size, bool) else int(TypeAdapter(ByteSize).validate_python(size))
    except ValidationError:
        parsed = 0
    if parsed < 1:
        raise InvalidConfig(f"{size!r} is not a memory size; write for instance 2GB or 512MiB.")
    return parsed


def refuse_memory(limit: str | int | None, fraction: float | None) -> None:
    """Raise InvalidConfig for a ``memory_limit`` that is no size and a ``memory_fraction`` that is no share."""
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
    """Bytes that this process may use now: the least of physical memory, the cgroup's cap, and what is free.

    What the process holds already counts as free to it.
    """
    memory = psutil.virtual_memory()
    own = _own.rss()
    limits = [memory.total, memory.available + own]
    for limit_file, used_file in zip(_CGROUP_LIMITS, _CGROUP_USED, strict=True):
        limit, used = _number(limit_file), _number(used_file)
        if limit is not None and limit < memory.total:
            limits.append(limit if used is None else max(limit - used + own, 0))
    return max(min(limits), _SMALLEST)


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text().strip())
    except (OSError, ValueError):  # not this cgroup version, or "max"
        return None


def limit_for_merge(shares: MemoryShares, spill: int) -> int:
    """The limit in bytes of which a merge by delta_rs gets ``spill`` bytes, from the shares of one that got fewer."""
    return shares.limit + int((spill - shares.spill) / DELTA_RS)


def threads_within(limit: int) -> int:
    """How many threads of DuckDB a limit in bytes has room for, at most one for each processor."""
    return max(1, min(os.cpu_count() or 1, limit // _OF_A_THREAD))


class Arbiter:
    """Shares of one process's memory. DuckDB has the whole one, unless delta_rs writes beside it; its merges queue for theirs.

    ``limit`` is what the user set (never raised), ``fraction`` this process's part of the machine. What the process
    holds before the first job is taken off the budget, so that the sum stays below the limit.
    """

    def __init__(self, limit: str | int | None = None, fraction: float | None = None) -> None:
        refuse_memory(limit, fraction)
        self._limit = None if limit is None else parse_bytes(limit)
        self._fraction = fraction
        self._baseline = psutil.Process().memory_info().rss
        self._merges = Turns()
        self._turns = Turns()
        self._sampled = (float("-inf"), 0)
        """When the limit of a write by DuckDB was last looked at, and what it was."""

    def limit(self) -> int:
        """The whole budget now, in bytes: sampled at each call."""
        free = effective_limit()
        if self._fraction is not None:
            free = int(free * self._fraction)
        return free if self._limit is None else min(self._limit, free)

    def budget(self) -> int:
        """The part of the limit that jobs may share: what the interpreter and libraries hold is not theirs."""
        return max(self.limit() - self._baseline, _SMALLEST)

    def instance_limit(self, *, beside_delta_rs: bool = False) -> int:
        """DuckDB's ``memory_limit`` in bytes, which belongs to its instance."""
        budget = self.budget()
        most = max(int((budget - _LATER) * DUCKDB), min(int(budget * DUCKDB), _LEAST))
        return min(most, max(int(budget * BESIDE_DELTA_RS), _ENOUGH)) if beside_delta_rs else most

    def limit_for(self, duckdb: int) -> int:
        """The limit of which DuckDB gets so many bytes."""
        return self._baseline + int(duckdb / DUCKDB) + _LATER

    @contextmanager
    def merge(self, duckdb_limit: int, what: str = "a merge by delta_rs") -> Iterator[MemoryShares]:
        """Hold the one share of this process for merges by delta_rs: what it may use before it spills to disk.

        ``what`` is the merge, for the warning that it waits for the one before it.
        """
        with self._merges.job(what, alone=True):
            budget = self.budget()
            spill = max(min(int(budget * DELTA_RS), budget - duckdb_limit), _SMALLEST // 2)
            yield MemoryShares(limit=self.limit(), duckdb=duckdb_limit, spill=spill)

    def job(self, what: str, *, alone: bool = False) -> AbstractContextManager[Callable[[], bool]]:
        """Count a job by DuckDB as at work. Yields a function that tells whether another was at work at the same time.

        Jobs share DuckDB's memory without shares of their own, so one may lack what others hold. ``alone`` waits until none of
        them is at work, and lets none begin. ``what`` is the job, for the warning that it waits.
        """
        return self._turns.job(what, alone=alone)

    def write(self, duckdb_limit: int) -> MemoryShares:
        """The shares of a write by DuckDB. The limit is sampled once a second: small writes follow each other faster."""
        now = time.monotonic()
        if now > self._sampled[0] + 1:
            self._sampled = (now, self.limit())
        return MemoryShares(limit=self._sampled[1], duckdb=duckdb_limit)


class Turns:
    """Which jobs are at work, of those that share a resource: any number at once, or one alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._working: list[int] = []
        """The thread of each job at work."""
        self._alone: int | None = None
        """The thread of a job that is alone."""
        self._begun = 0

    @contextmanager
    def job(self, what: str, *, alone: bool = False) -> Iterator[Callable[[], bool]]:
        """One job. Yields a function that tells whether another thread's job was at work at the same time.

        A job inside of another one of the same thread never waits.
        """
        me = threading.get_ident()
        with self._changed:
            inside = me in self._working
            if not inside:
                self._wait(what, lambda: self._alone is None and not (alone and self._working))
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

    def _wait(self, what: str, free: Callable[[], bool]) -> None:
        started = time.monotonic()
        while not self._changed.wait_for(free, timeout=_TOLD):
            log.warning(
                "%s has waited %.0f s for the memory of %s other jobs",
                what,
                time.monotonic() - started,
                len(self._working),
            )


class _Own:
    """This process, and the writes in it whose memory is sampled: by one thread, which goes on for a second after the last of them. To start
    one for each, and to wake it, costs a small write a tenth of its time.
    """

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
    """The highest resident size of this process while a block runs, in bytes, sampled every 50 ms."""

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
