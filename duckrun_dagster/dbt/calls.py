"""Which dbt commands of two attempts of a step are the same work, by their arguments.

A step may call dbt several times, for one day after another, and a retry may leave out some of the calls. So values of
``--vars`` tell calls apart. Values that no two attempts share tell nothing: the time at which the attempt computed them, and
the id of its run.
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
"""Parts of a second in which a number may count the time since 1970."""
_LOOKED_AT = 200
"""How many commits of a table a retried step looks through for those of its older attempts."""


class Attempt(NamedTuple):
    """One attempt of a step: its run, when it began and the present, both in seconds since 1970."""

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
        """The call with these arguments; ``attempt`` is None outside of a step."""
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
    except yaml.YAMLError:  # dbt says what is wrong with it
        return text


def _same_for_all_attempts(value: Any, attempt: Attempt | None) -> Any:
    """A value as JSON has it, without what is another in each attempt."""
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
    """True if an attempt took an instant from the clock: it lies in the attempt, and is no whole minute as bounds of windows are."""
    return math.floor(attempt.began) <= instant <= attempt.now and instant % 60 != 0


def _instants(value: Any) -> Iterator[float]:
    """The instants that a value may mean, in seconds since 1970."""
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
    """The id of a call in its chain, which names the work of each node: ``DUCKRUN_RUN_ID``."""

    step: str
    """The chain, and the step in it."""
    call: Call
    ordinal: int
    """Which of the equal calls of its attempt it is, from 0."""

    def __str__(self) -> str:
        return f"{self.step}:{self.call.shape}.{self.call.values}:{self.ordinal}"

    def left_by_older(self, form: Any, ref: TableRef, version: int, node: str, began: float) -> int | None:
        """The version at which an older attempt of the step, by a call that differs in values of variables alone, last wrote a
        node's table; None if there is none, or the attempt that began then has made that call too.
        """
        like = re.compile(re.escape(f"{self.step}:{self.call.shape}.") + r"(\w+:\d+)/" + re.escape(node) + r"(/\w+)*")
        own = f"{self.call.values}:{self.ordinal}"
        made = set()
        for _, record in zip(range(_LOOKED_AT), form.records_back(ref, version), strict=False):
            match = like.fullmatch(record.note.get("app_id", ""))
            if match is None or match[1] == own or match[1] in made:
                continue
            if record.timestamp is not None and record.timestamp / 1000 < began:
                return int(record.version)
            made.add(match[1])
        return None
