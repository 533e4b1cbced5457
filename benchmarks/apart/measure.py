"""Seconds and memory of a block, for the benchmarks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psutil

MB = 1024 * 1024


class Meter:
    """A block's ``seconds``, its ``cpu`` (seconds of processor) and the ``peak`` of resident memory, in bytes.

    ``grown`` is the peak less what was held before the block. With ``children`` all three count what this process has
    started too, such as Spark's JVM.
    """

    def __init__(self, *, every: float = 0.02, children: bool = False) -> None:
        self._every, self._children = every, children

    def __enter__(self) -> Meter:
        self._before = self.peak = self._resident()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        self._used, self._started = self._processor(), time.perf_counter()
        return self

    def __exit__(self, *exc: object) -> None:
        self.seconds, used = time.perf_counter() - self._started, self._processor() - self._used
        self._done.set()
        self._thread.join()
        self.cpu = used - self._sampling
        self.peak = max(self.peak, self._resident())
        self.grown = self.peak - self._before

    def _sample(self) -> None:
        while not self._done.wait(self._every):
            self.peak = max(self.peak, self._resident())
        self._sampling = time.thread_time()

    def _processes(self) -> list[psutil.Process]:
        own = psutil.Process()
        return [own, *(own.children(recursive=True) if self._children else ())]

    def _processor(self) -> float:
        """Of the processes, and of those that they have started and seen end."""
        if not self._children:
            return time.process_time()  # psutil counts in hundredths of a second
        total = 0.0
        for each in self._processes():
            try:
                used = each.cpu_times()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            total += used.user + used.system + used.children_user + used.children_system
        return total

    def _resident(self) -> int:
        total = 0
        for each in self._processes():
            try:
                # A fork of Java that is about to run a command (chmod) shares its parent's memory for that moment.
                parent = each.parent()
                if parent is not None and each.exe() == parent.exe() and each.exe().endswith("/java"):
                    continue
                total += each.memory_info().rss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return total


def timed(run: Callable[[], object]) -> float:
    """The seconds that a call takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
