"""Cursors: positions of a consumer in its upstreams, as numbered offsets.

Source: docs/incremental.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Self

from duckrun.values.checked import spec
from duckrun.values.frozen import frozen
from duckrun.values.records import built, parsed
from duckrun.values.rows import AppTransaction, WorkTransaction

OFFSETS = "_duckrun/offsets"
"""Folder of offsets, in the folder of a consumer's output."""


def hashed(name: str) -> str:
    """Return a file name for a text that may not be one."""
    return hashlib.sha256(name.encode()).hexdigest()[:24]


def offsets_path(consumer: str, number: int) -> str:
    """Return the path of numbered offsets, in the folder of the consumer's output."""
    return f"{OFFSETS}/{hashed(consumer)}/{number:010d}.json"


@spec
class CursorTransaction(AppTransaction):
    """Application transaction of a consumer's commit. Its version is the number of the offsets."""

    after: int | None = None
    """Number that the table must hold for the commit to succeed; None for none."""
    work: WorkTransaction | None = None
    """Work and attempt of the commit. A newer attempt rolls it back."""
    instead: int | None = None
    """Number of an older attempt's commit that this one rolls back.

    The table then holds this number instead of ``after``.
    """
    base: int | None = None
    """Version before that commit, to start from; NO_TABLE if that commit created the table."""

    @property
    def plain(self) -> AppTransaction:
        """The transaction as the log stores it."""
        return AppTransaction(self.app_id, self.version)


@frozen
class Counter:
    """A consumer's offset numbers in a table's log."""

    holds: int | None = None
    """Number that the table holds, None for none. A RESTORE sets it back."""
    highest: int | None = None
    """Highest number ever committed."""
    known: bool = True
    """False if the log no longer tells which number the table holds."""


@frozen
class Range:
    """The versions ``(from_version, to_version]`` of an upstream."""

    from_version: int
    to_version: int
    table_id: str
    """Identity of the upstream table."""
    fingerprint: str | None = None
    """Identity of the commit of ``to_version``; None if the log no longer has it."""

    @property
    def is_empty(self) -> bool:
        return self.from_version == self.to_version


@frozen
class Offsets:
    """Ranges of all upstreams, by name, that one commit of a consumer covers."""

    number: int
    after: int | None
    """Number of the offsets that these continue."""
    whole: bool
    """True if the upstreams are read from the beginning."""
    ranges: Mapping[str, Range]
    at: int
    """Time of recording, in milliseconds since 1970."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes, place: str) -> Self:
        """Parse the offsets that a file has.

        Raises:
            UnsupportedFeature: A newer version of the package has written it.
            StorageError: It is damaged.
        """
        values = parsed(text, place)
        ranges = {name: built(Range, each, place) for name, each in values.get("ranges", {}).items()}
        return built(cls, {**values, "ranges": ranges}, place)
