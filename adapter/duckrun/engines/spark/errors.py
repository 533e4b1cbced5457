"""What Spark raises, as this library's errors, which name the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from duckrun.engines.spark.process.trouble import trouble
from duckrun.errors import DuckrunError, DuplicateSourceKeys, InvalidConfig, SchemaMismatch
from duckrun.formats.format import CommitTaken
from duckrun.sql.raising import raised

RAISED = "duckrun: "
"""How a message of ours begins that a row raises inside Spark."""


@contextmanager
def errors_about(mode: str, table: str, *, analysis: type[DuckrunError]) -> Iterator[None]:
    """Translate what Spark raises; ``analysis`` is the error for a statement that Spark cannot analyse."""
    try:
        yield
    except (DuckrunError, CommitTaken):
        raise
    except Exception as error:
        translated = _translated(error, mode, table, analysis)
        if translated is error:
            raise
        raise translated from error


def text_of(error: BaseException) -> str:
    """The message of a Spark error. PySpark may fail to build it for conditions of Delta's."""
    try:
        return str(error)
    except Exception:
        return type(error).__name__


def _translated(error: Exception, mode: str, table: str, analysis: type[DuckrunError]) -> Exception:
    """A Spark error as one of ours that names the table; the error itself, with a note, where it is the user's code."""
    text = text_of(error)
    line = next((part.strip() for part in text.splitlines() if part.strip()), type(error).__name__)
    module = type(error).__module__
    if isinstance(error, CommitTaken) or not module.startswith(("pyspark", "py4j", "grpc", "delta")):
        return error
    name = type(error).__name__
    ours = raised(text, f"{mode} on table {table}")
    if ours is not None:
        return type(ours)(_unwritten(str(ours)))
    if RAISED in text:
        found = text[text.index(RAISED) + len(RAISED) :].splitlines()[0]
        return SchemaMismatch(_unwritten(f"{mode} on table {table}: {found}"))
    if (
        "DELTA_CONCURRENT" in text
        or name.startswith("Concurrent")
        or "DELTA_METADATA_CHANGED" in text
        or "DELTA_PROTOCOL_CHANGED" in text
    ):
        return CommitTaken(line)
    if "DELTA_VIOLATE_CONSTRAINT" in text or "DELTA_NOT_NULL_CONSTRAINT" in text:
        broken = next(part.strip() for part in text.splitlines() if "_CONSTRAINT" in part)
        return SchemaMismatch(f"{mode} on table {table}: a row breaks a constraint: {broken}. Nothing was written.")
    if "NOT_NULL_ASSERT_VIOLATION" in text:
        return SchemaMismatch(f"{mode} on table {table}: a NULL in a column that is NOT NULL. Nothing was written.")
    if "CAST_OVERFLOW_IN_TABLE_" in text:
        return SchemaMismatch(f"{mode} on table {table}: a value does not fit its column: {line}. Nothing was written.")
    if "DELTA_MULTIPLE_SOURCE_ROW_MATCHING" in text:
        return DuplicateSourceKeys(
            f"{mode} on table {table}: several source rows match one row of the table. Nothing was written."
        )
    # Another writer made the table meanwhile: it may be the Spark of a process that was killed, which ends what it began.
    made = ("DELTA_PATH_EXISTS", "DELTA_TABLE_ALREADY_EXISTS", "TABLE_OR_VIEW_ALREADY_EXISTS")
    if any(condition in text for condition in made):
        return CommitTaken(line)
    if "DELTA_CANNOT_MODIFY_APPEND_ONLY" in text:
        return InvalidConfig(
            f"{mode} on table {table}: it is append-only (delta.appendOnly), and rows of it would go. Nothing was written."
        )
    if "DELTA_FAILED_TO_MERGE_FIELDS" in text or "DELTA_SCHEMA" in text:
        return SchemaMismatch(f"{mode} on table {table}: {line}. Nothing was written.")
    troubled = trouble(text, f"{mode} on table {table}")
    if troubled is not None:
        return troubled
    if name in ("AnalysisException", "ParseException") or "DELTA_MERGE_UNRESOLVED" in text:
        return analysis(f"{mode} on table {table}: Spark cannot run it: {line}")
    if hasattr(error, "add_note"):
        error.add_note(f"This was {mode} on table {table}; nothing was committed by it.")
    return error


def _unwritten(message: str) -> str:
    """A message that says once that nothing was written."""
    return message if "othing was written" in message else f"{message.rstrip('.')}. Nothing was written."
