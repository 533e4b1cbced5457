"""What Spark raises, as this library's errors, which name the table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from duckrun.engines.spark.process.trouble import trouble
from duckrun.errors import DuckrunError, DuplicateSourceKeys, InvalidConfig, SchemaMismatch, UnsupportedFeature, redact
from duckrun.formats.commits import CommitTaken
from duckrun.sql.raising import raised

RAISED = "duckrun: "
"""The start of a message that this library's SQL raises for a row inside Spark."""


@contextmanager
def errors_about(mode: str, table: str, *, analysis: type[DuckrunError]) -> Iterator[None]:
    """Translate what Spark raises; ``analysis`` is the error for a statement that Spark cannot analyse."""
    try:
        yield
    except (DuckrunError, CommitTaken):
        raise
    except Exception as error:
        redact(error)
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


def condition_of(error: BaseException, *known: str) -> str | None:
    """The first of some error conditions that a Spark error has: by PySpark's own word for it, else by the text, in which the
    failure of a job has its cause. None where it has none of them.
    """
    for said in (_condition(error), text_of(error)):
        for condition in known:
            if condition in said:
                return condition
    return None


def _condition(error: BaseException) -> str:
    try:
        return str(error.getCondition() or "")  # type: ignore[attr-defined]
    except Exception:  # no error of PySpark's, or one that it cannot build for a condition of Delta's
        return ""


_CONCURRENT = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
_LIMIT = "DELTA_EXCEED_CHAR_VARCHAR_LIMIT"
_CONSTRAINT = ("DELTA_VIOLATE_CONSTRAINT", "DELTA_NOT_NULL_CONSTRAINT", _LIMIT)
# Another writer made the table meanwhile: it may be the Spark of a process that was killed, which ends what it began.
_MADE = ("DELTA_PATH_EXISTS", "DELTA_TABLE_ALREADY_EXISTS", "TABLE_OR_VIEW_ALREADY_EXISTS")
_UNCASTABLE = ("CAST_OVERFLOW", "CAST_INVALID_INPUT", "NUMERIC_VALUE_OUT_OF_RANGE")
_NAMES = "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"
_FEATURE = "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG"
_STRANGE = "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"
_UNCOUNTED = "DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS"
_CONDITIONS = (
    *_CONCURRENT,
    *_CONSTRAINT,
    "NOT_NULL_ASSERT_VIOLATION",
    "DELTA_MULTIPLE_SOURCE_ROW_MATCHING",
    *_MADE,
    "DELTA_CANNOT_MODIFY_APPEND_ONLY",
    "DELTA_FAILED_TO_MERGE_FIELDS",
    "DELTA_SCHEMA",
    *_UNCASTABLE,
    _FEATURE,
    _STRANGE,
    _UNCOUNTED,
    _NAMES,
)


def _translated(error: Exception, mode: str, table: str, analysis: type[DuckrunError]) -> Exception:
    """A Spark error as a DuckrunError that names the table; the error itself, with a note, where the user's code raised it."""
    module, name = type(error).__module__, type(error).__name__
    if not module.startswith(("pyspark", "py4j", "grpc", "delta")):
        return error
    text, what = text_of(error), f"{mode} on table {table}"
    line = next((part.strip() for part in text.splitlines() if part.strip()), name)
    ours = raised(text, what)
    if ours is not None:
        return type(ours)(_unwritten(str(ours)))
    if RAISED in text:
        found = text[text.index(RAISED) + len(RAISED) :].splitlines()[0].split(" SQLSTATE: ")[0]
        return SchemaMismatch(_unwritten(f"{what}: {found}"))
    condition = "DELTA_CONCURRENT" if name.startswith("Concurrent") else condition_of(error, *_CONDITIONS)
    match condition:
        case None:
            return trouble(text, what) or _unknown(error, what, line, analysis)
        case taken if taken in (*_CONCURRENT, *_MADE):
            return CommitTaken(line)
        case constraint if constraint in _CONSTRAINT:
            broken = next((part.strip() for part in text.splitlines() if "_CONSTRAINT" in part or _LIMIT in part), line)
            return SchemaMismatch(f"{what}: a row breaks a constraint: {broken}. Nothing was written.")
        case "NOT_NULL_ASSERT_VIOLATION":
            return SchemaMismatch(f"{what}: a NULL in a column that is NOT NULL. Nothing was written.")
        case value if value in _UNCASTABLE:
            return SchemaMismatch(f"{what}: a value does not fit its column: {line}. Nothing was written.")
        case unknown if unknown == _FEATURE:
            found = next(part for part in text.splitlines() if unknown in part)
            return InvalidConfig(f"{what}: {found[found.index(unknown) - 1 :].rstrip('.')}. Nothing was written.")
        case strange if strange == _STRANGE:
            found = next(part for part in text.splitlines() if strange in part)
            return UnsupportedFeature(
                f"{what}: {found[found.index(strange) - 1 :].rstrip('.')}. Nothing was written. Write it with the engine that made it, or let "
                "that one take the feature out (ALTER TABLE … DROP FEATURE …)."
            )
        case uncounted if uncounted == _UNCOUNTED:
            return InvalidConfig(
                f"{what}: it tracks its rows, whose ids need the count of rows of each file, and this Spark session takes no statistics. Nothing was "
                "written. Set spark.databricks.delta.stats.collect to true."
            )
        case names if names == _NAMES:
            return SchemaMismatch(
                f"{what}: Spark defines no column with a space or one of ,;{{}}()= or a line break in its name. Give it another "
                "name (select … as …), or run this with engine: duckdb. Nothing was written."
            )
        case "DELTA_MULTIPLE_SOURCE_ROW_MATCHING":
            return DuplicateSourceKeys(f"{what}: several source rows match one row of the table. Nothing was written.")
        case "DELTA_CANNOT_MODIFY_APPEND_ONLY":
            return InvalidConfig(
                f"{what}: it is append-only (delta.appendOnly), and rows of it would go. Nothing was written."
            )
        case _:
            return SchemaMismatch(f"{what}: {line}. Nothing was written.")


# Class 22 is the SQL standard's data exception (a division by zero, an overflow); P0001 is raise_error() in the query.
_ROW_ERROR = re.compile(r"\[[A-Z_.]+\] [^\n]*? SQLSTATE: (?:22\w{3}|P0001)")


def _unknown(error: Exception, what: str, line: str, analysis: type[DuckrunError]) -> Exception:
    ending = "" if what.startswith(("read ", "query ")) else " Nothing was written."
    row_error = _ROW_ERROR.search(text_of(error))
    if row_error is not None:
        return InvalidConfig(f"{what}: Spark cannot compute a row: {row_error[0]}.{ending}")
    if type(error).__name__ == "Py4JJavaError":
        causes = re.findall(r"^Caused by: (.*)$", text_of(error), re.MULTILINE)
        return DuckrunError(f"{what}: Spark failed: {(causes[-1] if causes else line).rstrip('.')}.{ending}")
    if type(error).__name__ in ("AnalysisException", "ParseException") or condition_of(error, "DELTA_MERGE_UNRESOLVED"):
        return analysis(f"{what}: Spark cannot run it: {line}")
    if hasattr(error, "add_note"):
        error.add_note(f"This was {what}; nothing was committed by it.")
    return error


def _unwritten(message: str) -> str:
    """A message that says once that nothing was written."""
    return message if "othing was written" in message else f"{message.rstrip('.')}. Nothing was written."
