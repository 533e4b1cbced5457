"""What can go wrong, as a small tree. Every message names the table, what was asked and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any


def repeated_keys(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Keys that occur several times, for a message. Each row is the values of the names, then how often they occur.

    >>> repeated_keys(["id", "day"], [(1, "mon", 2)])
    "id = 1, day = 'mon' (2 times)"
    """
    return "; ".join(
        ", ".join(f"{name} = {row[i]!r}" for i, name in enumerate(names)) + f" ({row[len(names)]} times)"
        for row in rows
    )


def unfitting_columns(missing: Sequence[str], new: Sequence[str], other: Sequence[str], *, may_grow: bool) -> str:
    """What keeps data from fitting a table: its missing and new columns, and the sentences on those of another type.

    Empty if nothing does. New columns are no problem where the table's schema may grow.
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
    """The error about a column that holds, or whose nested values hold, nothing but NULL: a new column has no type then."""
    return SchemaMismatch(
        f"column {column!r} holds nothing but NULL, and a new column needs a type: cast it, for instance to a string"
    )


def about_tables(mode: str, tables: Iterable[str]) -> str:
    """The beginning of a message about rows that are read.

    >>> about_tables("query", ["main.a", "main.b"])
    'query on tables main.a, main.b'
    """
    names = list(tables)
    if not names:
        return mode
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{mode} on table{'s' if len(names) > 1 else ''} {', '.join(names[:_MOST_NAMED])}{more}"


def uncomputable(what: str, engine: str, why: str, *, writes: bool) -> InvalidConfig:
    """The error about a row that has no value for an expression: a division by zero, an overflow, a subquery of two rows."""
    ending = " Nothing was written." if writes else ""
    return InvalidConfig(f"{what}: {engine} cannot compute a row: {why.rstrip('. ')}.{ending}")


_MOST_NAMED = 4

_SECRET_PARAMETER = re.compile(
    r"""([?&;][^=&;?\s'"`<>]*?(?:sig|signature|token|secret|password|passwd|credential|key|accessid)[^=&;?\s'"`<>]*=)[^&;\s'"`<>)\]}]+""",
    re.IGNORECASE,
)
_USER_IN_URL = re.compile(r"""(\w://)[^/\s'"`:@]+:[^/\s'"`@]+@""")


def redacted(text: str) -> str:
    """A text without what signs or opens a URL in it: shared access signatures, presigned requests, keys, user and password.

    >>> redacted("Cannot read 'https://a.blob.core.windows.net/c/x?sv=2022&sig=4Qx%3D&se=2030': 403")
    "Cannot read 'https://a.blob.core.windows.net/c/x?sv=2022&sig=***&se=2030': 403"
    """
    if "://" not in text:
        return text
    return _USER_IN_URL.sub(r"\1***@", _SECRET_PARAMETER.sub(r"\1***", text))


def redact(error: BaseException) -> None:
    """Take the secrets of URLs out of the message of a library's error, which tracebacks show beside ours."""
    if any(isinstance(each, str) and "://" in each for each in error.args):
        error.args = tuple(redacted(each) if isinstance(each, str) else each for each in error.args)


class DuckrunError(Exception):
    """Root of every error that this library raises on purpose. Its message shows no secret of a URL."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(redacted(each) if isinstance(each, str) else each for each in args))


class InvalidConfig(DuckrunError):
    """A setting, a key or a combination of arguments that cannot work; nothing was run."""


class TableNotFound(DuckrunError):
    """No table or view of that name in the lake; the message lists the nearest names."""


class SchemaMismatch(DuckrunError):
    """The rows do not fit the table: a column is missing, is new, or has another type."""


class RowsOutsidePartition(SchemaMismatch):
    """Rows that lie outside the partition or predicate being replaced."""


class CommitConflict(DuckrunError):
    """Another writer committed first, and the write may not be repeated on top of it."""


class SourceOutdated(CommitConflict):
    """The rows to write were computed from their own table, and another writer has changed that since.

    ``version`` is the version that they were computed from.
    """

    version: int | None = None


class DuplicateSourceKeys(DuckrunError):
    """The source of a merge holds a key more than once, so the outcome would be arbitrary."""


class UnsupportedFeature(DuckrunError):
    """This engine cannot do that on this table; the message names the engine that can."""


class StorageError(DuckrunError):
    """The root path, or a path under it, cannot be listed, read or written."""


class CommitUnknown(StorageError):
    """No answer to a commit came, and the store or catalog could not be asked: it may be there. Look before you repeat it."""


class ReadOnlyLake(DuckrunError):
    """A write was asked of a lake or session opened with read_only."""


class VersionNotReadable(DuckrunError):
    """That version or timestamp is not, or no longer, in the table's log."""


class MergeRefused(DuckrunError):
    """A row met a clause of a merge whose action is to fail; nothing was written."""


class LostRows(DuckrunError):
    """A commit would have lost or doubled rows by its own figures; it was not made. A fault of this library, or of the statistics
    in the table's log.
    """


class FunctionFailed(DuckrunError):
    """A Python function of the caller's raised on one of Spark's workers; the message holds its traceback."""
