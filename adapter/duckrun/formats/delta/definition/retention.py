"""Retention of removed files and of log entries, as table properties state it."""

from __future__ import annotations

import re
from fractions import Fraction

from duckrun.errors import InvalidConfig
from duckrun.values.snapshot import Snapshot
from duckrun.values.tables import VacuumSpec

_RETENTION = "delta.deletedFileRetentionDuration"
_DEFAULT = "interval 1 week"
_LOG_RETENTION, _LOG_DEFAULT = "delta.logRetentionDuration", "interval 30 days"
_MILLISECONDS: dict[str, int | Fraction] = {
    "week": 604_800_000, "day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1000,
    "millisecond": 1, "microsecond": Fraction(1, 1000), "nanosecond": Fraction(1, 1_000_000),
}  # fmt: skip
_PART = re.compile(r"\s*([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]+?)s?(?=\s|$)", re.IGNORECASE)


def milliseconds(interval: str) -> Fraction:
    """Return the length of an interval in milliseconds, in any spelling that Spark accepts.

    >>> float(milliseconds("interval 1 week 2 hours")), float(milliseconds("1.5 seconds"))
    (612000000.0, 1500.0)
    >>> float(milliseconds("INTERVAL 2 DAY -1 hour"))
    169200000.0

    Raises:
        ValueError: The text is no interval, is negative, or has months or years, whose length
            varies.
    """
    text = interval.strip()
    text = text[len("interval") :] if re.match(r"interval\s", text, re.IGNORECASE) else text
    at, total = 0, Fraction(0)
    while at < len(text):
        part = _PART.match(text, at)
        unit = None if part is None else _MILLISECONDS.get(part[3].lower())
        # Only seconds have a fraction in Spark's intervals.
        if part is None or unit is None or ("." in part[2] and part[3].lower() != "second"):
            raise ValueError(f"{interval!r} is no interval of weeks, days, hours, minutes and seconds")
        total += Fraction(part[2].rstrip(".") or 0) * unit * (-1 if part[1] == "-" else 1)
        at = part.end()
        at += len(text[at:]) - len(text[at:].lstrip())
    if not text.strip() or total < 0:
        raise ValueError(f"{interval!r} is no interval of some length")
    return total


def file_retention(snapshot: Snapshot, spec: VacuumSpec) -> float:
    """Return the retention in milliseconds."""
    stated = snapshot.properties.get(_RETENTION, _DEFAULT)
    try:
        of_table = milliseconds(stated)
    except ValueError as error:
        raise InvalidConfig(
            f"vacuum of table {snapshot.ref}: its property {_RETENTION} cannot be read: {error}",
            remedy=f"set it to one like '{_DEFAULT}'",
        ) from error
    if spec.retention_hours is None:
        return float(of_table)
    wanted = Fraction(spec.retention_hours) * 3_600_000
    if wanted < 0 or (spec.enforce_retention and wanted < of_table):
        raise InvalidConfig(
            f"vacuum of table {snapshot.ref}: {spec.retention_hours} hours are less than the table keeps. Readers of "
            "older versions and writers at work need those files; enforce_retention=False removes them all the same."
        )
    return float(wanted)


def log_retention(snapshot: Snapshot) -> float:
    """See Format; Delta's default if the property cannot be read.

    Source: delta-spark's DeltaConfigs (logRetentionDuration).
    """
    try:
        return float(milliseconds(snapshot.properties.get(_LOG_RETENTION, _LOG_DEFAULT)))
    except ValueError:
        return float(milliseconds(_LOG_DEFAULT))
