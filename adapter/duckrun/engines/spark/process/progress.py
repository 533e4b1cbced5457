"""Progress of Spark's longer jobs, in words and with the address of each job's page.

A driver on this machine serves Spark's page, which reports running jobs. A server elsewhere reports
through Spark Connect.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

LONG_SECONDS = 5.0  # shorter jobs are not reported
EVERY_SECONDS = 10.0
_BAR = 20


def page_settings() -> dict[str, str]:
    """Return settings for Spark's page on a free port, so that several drivers do not collide."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return {"spark.ui.enabled": "true", "spark.ui.port": str(probe.getsockname()[1])}


def bar(done: int, tasks: int) -> str:
    """Return a progress bar.

    >>> bar(50, 200)
    '[#####...............] 50 of 200 tasks'
    """
    filled = _BAR * done // tasks if tasks else 0
    return f"[{'#' * filled}{'.' * (_BAR - filled)}] {done} of {tasks} tasks"


class Watch:
    """Reports the long jobs of a session, until ``stop()`` or the end of the ``with`` block.

    Jobs that take more than 5 seconds are reported every 10 seconds.

    Args:
        report: Receives a line of text, in a thread of its own.
        nearby: The session's driver is on this machine, and serves a page.

    Example::

        with watch(spark, print):
            s.sql("create table sales.big as select * from sales.orders cross join sales.days")
    """

    def __init__(self, session: SparkSession, report: Callable[[str], Any], *, nearby: bool = True) -> None:
        self._report = report
        self._said: dict[Any, float] = {}
        self._begun: dict[str, float] = {}
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._session: Any = None
        page = _page(session) if nearby else None
        if page is not None:
            self._thread = threading.Thread(target=self._poll, args=(page,), name="duckrun-spark-progress", daemon=True)
            self._thread.start()
        elif "connect" in type(session).__module__:
            self._session = session
            session.registerProgressHandler(self._heard)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop reporting."""
        self._done.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        if self._session is not None:
            self._session.removeProgressHandler(self._heard)

    # -- from the driver's page

    def _poll(self, page: str) -> None:
        while not self._done.wait(LONG_SECONDS / 2):
            try:
                running = _get(f"{page}/jobs?status=running")
                self._tell(page.partition("/api/")[0], running)
                for job in [job for job in self._said if job not in {each["jobId"] for each in running}]:
                    self._tell_end(_get(f"{page}/jobs/{job}"))
                    del self._said[job]
            except (OSError, ValueError) as error:  # the job itself reports what is wrong with Spark
                log.debug("no progress from %s: %s", page, error)
                if isinstance(getattr(error, "reason", None), ConnectionRefusedError):
                    return  # Spark has stopped

    def _tell(self, page: str, jobs: Iterable[dict[str, Any]]) -> None:
        for job in jobs:
            number, seconds = job["jobId"], time.time() - _seconds(job["submissionTime"])
            if seconds < LONG_SECONDS or time.monotonic() - self._said.get(number, -EVERY_SECONDS) < EVERY_SECONDS:
                continue
            self._said[number] = time.monotonic()
            stages = ", ".join(f"{page}/stages/stage/?id={stage}&attempt=0" for stage in sorted(job["stageIds"])[-3:])
            self._report(
                f"Spark job {number} ({_name(job)}): "
                f"{bar(job['numCompletedTasks'], job['numTasks'])}, {seconds:.0f} s so far. "
                f"{page}/jobs/job/?id={number} Stages: {stages}"
            )

    def _tell_end(self, job: dict[str, Any]) -> None:
        seconds = _seconds(job.get("completionTime") or job["submissionTime"]) - _seconds(job["submissionTime"])
        self._report(f"Spark job {job['jobId']}: {job['status'].lower()} after {seconds:.0f} s")

    # -- from Spark Connect

    def _heard(self, *, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        name = operation_id or "?"
        begun = self._begun.setdefault(name, time.monotonic())
        seconds = time.monotonic() - begun
        if done:
            del self._begun[name]
            if self._said.pop(name, None) is not None:
                self._report(f"Spark statement {name}: done after {seconds:.0f} s")
            return
        if seconds < LONG_SECONDS or time.monotonic() - self._said.get(name, -EVERY_SECONDS) < EVERY_SECONDS:
            return
        self._said[name] = time.monotonic()
        finished = sum(stage.num_completed_tasks for stage in stages or ())
        tasks = sum(stage.num_tasks for stage in stages or ())
        self._report(
            f"Spark statement {name}: {bar(finished, tasks)}, {inflight_tasks} running, {seconds:.0f} s so far"
        )


watch = Watch


def _page(session: SparkSession) -> str | None:
    """Return the address of the driver's REST API for this application; None if unreachable."""
    try:
        if session.conf.get("spark.ui.enabled", "true") != "true":
            return None
        application = session.conf.get("spark.app.id", "")
        address = f"http://127.0.0.1:{session.conf.get('spark.ui.port', '4040')}/api/v1/applications/{application}"
        with socket.create_connection(("127.0.0.1", int(str(session.conf.get("spark.ui.port", "4040")))), timeout=2):
            return address if application else None
    except Exception as error:
        log.debug("no page of Spark's to read progress from: %s", error)
        return None


def _name(job: dict[str, Any]) -> str:
    """Return what a job does, in one line."""
    # The description of a Spark Connect job only holds ids.
    text = job.get("description") or ""
    return " ".join((job["name"] if not text or text.startswith("Spark Connect") else text).split())[:80]


def _get(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=5) as answer:
        return json.load(answer)


def _seconds(moment: str) -> float:
    """Convert ``2026-01-31T12:00:00.123GMT`` to seconds since 1970."""
    return datetime.strptime(moment.removesuffix("GMT"), "%Y-%m-%dT%H:%M:%S.%f").replace(tzinfo=UTC).timestamp()
