"""Errors of this library. Every message names the table, the operation and a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, Self


def repeated_keys(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return repeated keys, for a message. Each row has the key values and then their count.

    >>> repeated_keys(["id", "day"], [(1, "mon", 2)])
    "id = 1, day = 'mon' (2 times)"
    """
    return "; ".join(
        ", ".join(f"{name} = {row[i]!r}" for i, name in enumerate(names)) + f" ({row[len(names)]} times)"
        for row in rows
    )


def unfitting_columns(missing: Sequence[str], new: Sequence[str], other: Sequence[str], *, may_grow: bool) -> str:
    """Return why data does not fit a table: missing columns, new columns, and sentences on types.

    Empty if it fits. New columns are no problem if the table's schema may grow.
    """
    problems = []
    if missing:
        problems.append(f"missing in the data: {', '.join(missing)}")
    if new and not may_grow:
        problems.append(f"not in the table: {', '.join(new)} (schema_mode append_new_columns would add them)")
        if any(name.startswith("__index_level_") for name in new):
            problems.append("__index_level_… is the index of a pandas frame, which reset_index(drop=True) leaves out")
    if other:
        problems.append("of another type: " + "; ".join(other))
    return "; ".join(problems)


def without_type(column: str) -> SchemaMismatch:
    """Return the error about a new column that is all NULL, at some level, and so has no type."""
    return SchemaMismatch(
        f"column {column!r} holds nothing but NULL, and a new column needs a type: cast it, for instance to a string"
    )


def about_tables(mode: str, tables: Iterable[str]) -> str:
    """Return the beginning of a message about a read.

    >>> about_tables("query", ["main.a", "main.b"])
    'query on tables main.a, main.b'
    """
    names = list(tables)
    if not names:
        return mode
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{mode} on table{'s' if len(names) > 1 else ''} {', '.join(names[:_MOST_NAMED])}{more}"


def uncomputable(what: str, engine: str, why: str, *, writes: bool) -> InvalidConfig:
    """Return the error about an expression without a value.

    Causes are a division by zero, an overflow, or a subquery of two rows.
    """
    ending = " Nothing was written." if writes else ""
    return InvalidConfig(f"{what}: {engine} cannot compute a row: {why.rstrip('. ')}.{ending}")


_MOST_NAMED = 4

_SECRET_PARAMETER = re.compile(
    r"""([?&;][^=&;?\s'"`<>]*?"""
    r"""(?:sig|signature|token|secret|password|passwd|credential|key|accessid)[^=&;?\s'"`<>]*=)[^&;\s'"`<>)\]}]+""",
    re.IGNORECASE,
)
_USER_IN_URL = re.compile(r"""(\w://)[^/\s'"`:@]+:[^/\s'"`@]+@""")


def redacted(text: str) -> str:
    """Return a text without the secrets of its URLs: signatures, keys and passwords.

    >>> redacted("No 'https://a.blob.core.windows.net/c/x?sv=2022&sig=4Qx%3D&se=2030': 403")
    "No 'https://a.blob.core.windows.net/c/x?sv=2022&sig=***&se=2030': 403"
    """
    if "://" not in text:
        return text
    return _USER_IN_URL.sub(r"\1***@", _SECRET_PARAMETER.sub(r"\1***", text))


def redact(error: BaseException) -> None:
    """Remove the secrets of URLs from a library's error, which tracebacks show too."""
    if any(isinstance(each, str) and "://" in each for each in error.args):
        error.args = tuple(redacted(each) if isinstance(each, str) else each for each in error.args)


class DuckrunError(Exception):
    """Root of all errors that this library raises on purpose.

    Its message shows no secret of a URL.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(redacted(each) if isinstance(each, str) else each for each in args))

    def with_message(self, message: str) -> Self:
        """Return a copy with another message. Its type and fields stay."""
        error = copy(self)
        error.args = (redacted(message),)
        return error


class InvalidConfig(DuckrunError):
    """An invalid setting, key or combination of arguments; nothing was run."""


class TableNotFound(DuckrunError):
    """The lake has no such table or view; the message lists the nearest names."""


class SchemaMismatch(DuckrunError):
    """The rows do not fit the table: a column is missing, is new, or has another type."""


class RowsOutsidePartition(SchemaMismatch):
    """A row lies outside the partition or predicate to replace."""


class CommitConflict(DuckrunError):
    """Another writer committed first, and the write cannot be retried on top of it."""


class SourceOutdated(CommitConflict):
    """The rows were computed from the target table, which another writer has changed since."""

    version: int | None = None
    """Version that the rows were computed from."""


class DuplicateSourceKeys(DuckrunError):
    """The source of a merge holds a key more than once, so that the outcome would be arbitrary."""


class UnsupportedFeature(DuckrunError):
    """The engine cannot do this on the table; the message names an engine that can."""


class StorageError(DuckrunError):
    """The root path, or a path under it, cannot be listed, read or written."""


class CommitUnknown(StorageError):
    """The store or catalog did not answer, so that the commit may exist. Check before a retry."""


class ReadOnlyLake(DuckrunError):
    """A write to a lake or session opened with read_only."""


class VersionNotReadable(DuckrunError):
    """The table's log does not have, or no longer has, the version or timestamp."""


class MergeRefused(DuckrunError):
    """A row met a merge clause whose action is to fail; nothing was written."""


class LostRows(DuckrunError):
    """By its own figures the commit would have lost or duplicated rows, so it was not made.

    The cause is a fault of this library, or of the statistics in the table's log.
    """


class FunctionFailed(DuckrunError):
    """A Python function of the caller raised on a Spark worker; the message holds its traceback."""
