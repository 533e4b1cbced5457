"""Identity of dbt commands: which commands of two attempts are the same, by their arguments.

A step may call dbt several times, such as once a day of a backfill. A retry may leave out some of
the calls, so the values of ``--vars`` tell calls apart. Values that differ in every attempt
identify nothing: the time at which the attempt computed them, and the id of its run.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]

from duckrun.values.snapshot import TableRef

_VALUED = ("--vars", "--args")
_COMPACT = "%Y%m%d%H%M%S"
_EPOCH = 1970
_UNITS = (1, 1e3, 1e6, 1e9)
"""Units per second of numbers that may count the time since 1970."""
_LOOKED_AT = 200
"""Number of commits of a table that a retried step searches for those of its older attempts."""


class Attempt(NamedTuple):
    """One attempt of a step: its run, its start and the present time, in seconds since 1970."""

    run_id: str
    began: float
    now: float


class Call(NamedTuple):
    """One dbt command."""

    shape: str
    """Digest of the arguments without the values of variables."""
    values: str
    """Digest of the values of variables."""

    @classmethod
    def of(cls, args: Sequence[str], attempt: Attempt | None) -> Call:
        """Return the call with these arguments; ``attempt`` is None outside of a step."""
        shape: list[Any] = []
        values: list[Any] = []
        words = iter(args)
        for word in words:
            option, equals, text = word.partition("=")
            if option not in _VALUED:
                shape.append(word)
                continue
            variables = _variables(text if equals else next(words, ""))
            shape.append([option, sorted(map(str, variables)) if isinstance(variables, Mapping) else None])
            values.append(_same_for_all_attempts(variables, attempt))
        return cls(_digest(shape), _digest(values))


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def _variables(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:  # dbt reports the error
        return text


def _same_for_all_attempts(value: Any, attempt: Attempt | None) -> Any:
    """Return a value as JSON holds it, with placeholders for parts that differ in every attempt."""
    if isinstance(value, Mapping):
        return {str(key): _same_for_all_attempts(each, attempt) for key, each in value.items()}
    if isinstance(value, list):
        return [_same_for_all_attempts(each, attempt) for each in value]
    if attempt is not None and value == attempt.run_id:
        return ["the run"]
    if attempt is not None and any(_is_reading(instant, attempt) for instant in _instants(value)):
        return ["the time"]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _is_reading(instant: float, attempt: Attempt) -> bool:
    """Return True if an attempt read an instant from the clock."""
    # A whole minute is taken for the bound of a time window, not for a reading of the clock.
    return math.floor(attempt.began) <= instant <= attempt.now and instant % 60 != 0


def _instants(value: Any) -> Iterator[float]:
    """Yield the instants that a value may mean, in seconds since 1970."""
    text = str(value).strip()
    if isinstance(value, bool | None):
        return
    for read in (datetime.fromisoformat, lambda text: datetime.strptime(text, _COMPACT)):
        with suppress(ValueError):
            at = read(text)
            if at.year > _EPOCH:
                yield at.timestamp()
                yield at.replace(tzinfo=at.tzinfo or UTC).timestamp()
    with suppress(ValueError):
        yield from (float(text) / unit for unit in _UNITS)


class CallId(NamedTuple):
    """Id of a call in its chain, passed to dbt as ``DUCKRUN_RUN_ID``.

    It names the work of each node.
    """

    step: str
    """The chain, and the step in it."""
    call: Call
    ordinal: int
    """Position among the equal calls of its attempt, from 0."""

    def __str__(self) -> str:
        return f"{self.step}:{self.call.shape}.{self.call.values}:{self.ordinal}"

    def left_by_older(self, form: Any, ref: TableRef, version: int, node: str, began: float) -> int | None:
        """Return the version at which an older attempt last wrote a node's table.

        Only calls that differ from this one in values of variables alone are considered.

        Args:
            form: The format of the lake, which reads the log.
            ref: The node's table.
            version: The version to search back from.
            node: The unique id of the node.
            began: Start of the current attempt, in seconds since 1970.

        Returns:
            The version; None if no older attempt wrote the table, or the current attempt repeated
            its call.
        """
        like = re.compile(re.escape(f"{self.step}:{self.call.shape}.") + r"(\w+:\d+)/" + re.escape(node) + r"(/\w+)*")
        this_call = f"{self.call.values}:{self.ordinal}"
        calls_of_this_attempt = set()
        for _, record in zip(range(_LOOKED_AT), form.records_back(ref, version), strict=False):
            match = like.fullmatch(record.note.get("app_id", ""))
            if match is None or match[1] == this_call or match[1] in calls_of_this_attempt:
                continue
            if record.timestamp is not None and record.timestamp / 1000 < began:
                return int(record.version)
            calls_of_this_attempt.add(match[1])
        return None
