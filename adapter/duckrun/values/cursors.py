"""Cursors: how far a consumer has read its upstreams, as numbered offsets. Source: docs/incremental.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

from duckrun.values.checked import spec
from duckrun.values.rows import AppTransaction, WorkTransaction


@spec
class CursorTransaction(AppTransaction):
    """The application transaction of a consumer's commit: its version is the number of the offsets that it makes valid. It is made on a
    table that holds the number ``after``, None for none, and on no other.
    """

    after: int | None = None
    work: WorkTransaction | None = None
    """Which attempt of which work makes the commit: a newer one takes it back."""
    instead: int | None = None
    """The number of the commit of an older attempt that this one takes back. The table holds it then, and not ``after``."""
    base: int | None = None
    """The version of the table before that commit, which this one begins from; NO_TABLE if that made the table."""

    @property
    def plain(self) -> AppTransaction:
        """As the log has it."""
        return AppTransaction(self.app_id, self.version)


@dataclass(frozen=True)
class Counter:
    """What a table's log says of a consumer: the number that the table ``holds`` (None: none), which a RESTORE takes back, and the
    ``highest`` that it was ever given. ``known`` is False where the log no longer tells which it holds.
    """

    holds: int | None = None
    highest: int | None = None
    known: bool = True


@dataclass(frozen=True)
class Range:
    """The versions ``(from_version, to_version]`` of an upstream; which table it was, and which commit made ``to_version``, None where
    the log no longer says.
    """

    from_version: int
    to_version: int
    table_id: str
    fingerprint: str | None = None

    @property
    def is_empty(self) -> bool:
        return self.from_version == self.to_version


@dataclass(frozen=True)
class Offsets:
    """What one commit of a consumer makes of its upstreams, by their names. ``after`` is the number of the offsets that it goes on from;
    ``at`` when they were noted, in milliseconds since 1970. ``whole``: the upstreams are read from their beginning.
    """

    number: int
    after: int | None
    whole: bool
    ranges: Mapping[str, Range]
    at: int

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        values = json.loads(text)
        return cls(**{**values, "ranges": {name: Range(**each) for name, each in values["ranges"].items()}})
