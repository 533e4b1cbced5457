"""Errors of this library. Every message names the table, the operation and a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


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


def in_branch(subject: str, branch: str | None) -> str:
    """Return the subject of an error about a table, with the branch that the table is in.

    >>> in_branch("alter on table main.a", "pr-42")
    'alter on table main.a in branch pr-42'
    """
    return subject if branch is None else f"{subject} in branch {branch}"


def uncomputable(what: str, engine: str, why: str) -> InvalidConfig:
    """Return the error about an expression without a value.

    Causes are a division by zero, an overflow, or a subquery of two rows.
    """
    return InvalidConfig(f"{what}: {engine} cannot compute a row: {why.rstrip('. ')}.")


_MOST_NAMED = 4

ROLLED_BACK = "The transaction that it was in is rolled back: nothing of that was written."

NOTHING_LEFT = "nothing is left to do"
"""Remedy for an attempt that a newer one has superseded."""

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

    The message is built from the fields: the reason, what was committed, the remedy, the detail.
    It shows no secret of a URL. A pickled error keeps its fields.

    Args:
        reason: Why the operation failed, as a sentence.
        remedy: Steps that make it succeed. A lower-case beginning continues the sentence before.
        table: Table of the operation.
        mode: Operation, such as ``append`` or ``merge``.
        version: Version of the table that the error is about.
        detail: Lines to show after the message, such as a traceback of a worker.

    Example::

        try:
            session.execute("sales.orders", WriteSpec("append"), rows)
        except duckrun.DuckrunError as error:
            if error.committed is False:
                retry_later(error.table, error.remedy)
    """

    table: str | None = None
    """Table of the operation; None if it has no table."""
    mode: str | None = None
    """Operation, such as ``append`` or ``merge``; None if the error is about no operation."""
    version: int | None = None
    """Version of the table that the error is about; None if it is about no version."""
    remedy: str = ""
    """Steps that make the operation succeed; empty if the reason says all."""
    detail: str = ""
    """Lines after the message, such as the traceback of a Spark worker."""
    committed: bool | None = None
    """False if a write committed nothing, True if a part of it is committed.

    None for an operation that writes nothing, and if the outcome is not known (CommitUnknown).
    """
    commits: tuple[str, ...] = ()
    """Commits that the failed operation had made before, such as 'version 3 of table main.a'."""
    outcome_unknown: bool = False
    """True if nobody knows what the operation has done: a commit without an answer, a removal."""
    rolled_back: bool = False
    """True if the error has rolled back the transaction that its statement was in."""

    def __init__(
        self,
        reason: object = "",
        *,
        remedy: str = "",
        table: object | None = None,
        mode: str | None = None,
        version: int | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(redacted(str(reason)))
        # Only what is known goes into __dict__, which pickle keeps beside the args.
        known = {"remedy": redacted(remedy), "mode": mode, "version": version, "detail": redacted(detail)}
        known["table"] = None if table is None else str(table)
        vars(self).update({name: value for name, value in known.items() if value not in (None, "")})

    @property
    def reason(self) -> str:
        """Why the operation failed."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        message = _followed(self.reason, _ending(self), self.remedy)
        if self.rolled_back:
            message = f"{_closed(message)} {ROLLED_BACK}"
        return f"{message}\n{self.detail}" if self.detail else message

    def name(self, subject: str, *known_by: str) -> None:
        """Put a subject in front of the reason, unless the reason begins with it.

        Args:
            subject: The subject.
            *known_by: Parts of it, such as the table's name, that may be anywhere in the reason.
        """
        subject = redacted(subject)
        is_named = all(part in self.reason for part in known_by) if known_by else self.reason.startswith(subject)
        if not is_named:
            self.args = (f"{subject}: {self.reason}", *self.args[1:])


def _ending(error: DuckrunError) -> str:
    """Return the sentence about what a failed write has committed; empty if there is none."""
    if error.commits:
        return f"Committed before it failed: {', '.join(error.commits)}"
    return "Nothing was written" if error.committed is False else ""


def _followed(reason: str, ending: str, remedy: str) -> str:
    """Return a message from its parts.

    >>> _followed("append on table a: no rows", "Nothing was written", "give it some")
    'append on table a: no rows. Nothing was written; give it some.'
    """
    if ending:
        reason = f"{_closed(reason)} {ending}" if reason else ending
        if not remedy:
            return f"{reason}."
    if not remedy:
        return reason
    link = f"{reason.rstrip('. ')}; " if remedy[0].islower() else f"{_closed(reason)} "
    return f"{link}{_closed(remedy)}"


def _closed(text: str) -> str:
    return text if text.endswith(("?", "!", ".", "…")) else f"{text.rstrip()}."


_OUTCOMES: ContextVar[tuple[list[str], ...]] = ContextVar("outcomes", default=())
"""Commits that each operation around has made so far, from the outermost."""


@contextmanager
def outcome_of(
    mode: str | None = None, table: object | None = None, branch: str | None = None, *, writes: bool = True
) -> Iterator[list[str]]:
    """Complete the errors of an operation with what it has committed, its mode and its table.

    This is the boundary of a write. Code inside raises an error with its reason and remedy. Blocks
    may be nested: an outer one knows the commits of all inner ones.

    Args:
        mode: The operation.
        table: The table of the operation. The message names it.
        branch: The branch of the table. The message names it.
        writes: False if the operation may only read. Then an error tells of commits alone.

    Yields:
        The commits of the operation so far; the list grows.
    """
    commits: list[str] = []
    token = _OUTCOMES.set((*_OUTCOMES.get(), commits))
    try:
        yield commits
    except DuckrunError as error:
        if error.mode is None and mode is not None:
            error.mode = mode
        if table is not None:
            if error.table is None:
                error.table = str(table)
            subject = f"table {table}" if mode is None else f"{mode} on table {table}"
            error.name(in_branch(subject, branch), str(table), *(() if branch is None else (f"branch {branch}",)))
        if commits:
            error.commits = tuple(dict.fromkeys(commits))
        if is_outcome_unknown(error):
            error.committed = None
        elif error.commits:
            error.committed = True
        elif writes:
            error.committed = False
        raise
    finally:
        _OUTCOMES.reset(token)


def is_outcome_unknown(error: BaseException | None) -> bool:
    """True if an error, or a cause of it, does not tell what was done."""
    while error is not None:
        if isinstance(error, DuckrunError) and error.outcome_unknown:
            return True
        error = error.__cause__
    return False


def note_commit(what: str) -> None:
    """Tell the operations around that a commit was made, such as 'version 3 of table main.a'."""
    for commits in _OUTCOMES.get():
        commits.append(what)


@contextmanager
def removing() -> Iterator[None]:
    """Mark the errors of a block that removes files, since some may be gone already."""
    try:
        yield
    except DuckrunError as error:
        error.outcome_unknown = True
        raise


@contextmanager
def scratch_commits() -> Iterator[None]:
    """Hide the commits of a block from the operations around it: those of scratch copies."""
    token = _OUTCOMES.set(())
    try:
        yield
    finally:
        _OUTCOMES.reset(token)


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
    """Version that the rows were computed from; -1 if there was no table."""


class DuplicateSourceKeys(DuckrunError):
    """The source of a merge holds a key more than once, so that the outcome would be arbitrary."""


class UnsupportedFeature(DuckrunError):
    """The engine cannot do this on the table; the message names an engine that can."""


class StorageError(DuckrunError):
    """The root path, or a path under it, cannot be listed, read or written."""


class CommitUnknown(StorageError):
    """The store or catalog did not answer, so that the commit may exist. Check before a retry."""

    outcome_unknown = True


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
