"""Translation of Spark's errors into this library's errors, which name the table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from duckrun.engines.spark.process.conditions import (
    condition_of,
    message_of,
    text_of,
    unknown_function,
    without_classes,
)
from duckrun.engines.spark.process.trouble import trouble
from duckrun.errors import (
    DuckrunError,
    DuplicateSourceKeys,
    InvalidConfig,
    SchemaMismatch,
    UnsupportedFeature,
    redact,
    uncomputable,
)
from duckrun.formats.commits import CommitTaken
from duckrun.sql.raising import raised

RAISED = "duckrun: "
"""Start of a message that this library's SQL raises for a row inside Spark."""
NO_FOLDER = "no folder can have the name of a partition value"
"""Start of the message for a row whose partition value would be read back from a path as NULL."""


class NoFolder(SchemaMismatch):
    """A row has a partition value that no folder can have as its name."""


@contextmanager
def errors_about(what: str, *, analysis: type[DuckrunError], writes: bool = True) -> Iterator[None]:
    """Translate Spark's errors.

    Args:
        what: Start of the message: the action and the table.
        analysis: Error class for a statement that Spark cannot analyse.
        writes: False if rows are only read.
    """
    try:
        yield
    except (DuckrunError, CommitTaken):
        raise
    except Exception as error:
        redact(error)
        translated = _translated(error, what, analysis, writes)
        if translated is error:
            raise
        raise translated from error


_CONCURRENT = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
# Another writer created the table meanwhile. It may be the Spark of a killed process, which still
# finishes its statement.
_MADE = ("DELTA_PATH_EXISTS", "DELTA_TABLE_ALREADY_EXISTS", "TABLE_OR_VIEW_ALREADY_EXISTS")
_CONSTRAINT = ("DELTA_VIOLATE_CONSTRAINT", "DELTA_NOT_NULL_CONSTRAINT", "DELTA_EXCEED_CHAR_VARCHAR_LIMIT")
_UNCASTABLE = ("CAST_OVERFLOW", "CAST_INVALID_INPUT", "NUMERIC_VALUE_OUT_OF_RANGE")
_OF_A_WRITE = ("DELTA_FAILED_TO_MERGE_FIELDS", "DELTA_SCHEMA", *_UNCASTABLE)
"""Conditions of which a read means something else."""
_CONDITIONS: Mapping[str, tuple[type[DuckrunError], str, str]] = {
    **dict.fromkeys(_CONSTRAINT, (SchemaMismatch, "a row breaks a constraint: {detail}", "")),
    "NOT_NULL_ASSERT_VIOLATION": (SchemaMismatch, "a NULL in a column that is NOT NULL", ""),
    "DELTA_MULTIPLE_SOURCE_ROW_MATCHING": (DuplicateSourceKeys, "several source rows match one row of the table", ""),
    "DELTA_CANNOT_MODIFY_APPEND_ONLY": (
        InvalidConfig,
        "it is append-only (delta.appendOnly), and rows of it would go",
        "",
    ),
    **dict.fromkeys(_OF_A_WRITE, (SchemaMismatch, "{line}", "")),
    **dict.fromkeys(_UNCASTABLE, (SchemaMismatch, "a value does not fit its column: {line}", "")),
    "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG": (InvalidConfig, "{detail}", ""),
    "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE": (
        UnsupportedFeature,
        "{detail}",
        "Write it with the engine that made it, or let that one take the feature out (ALTER TABLE … DROP FEATURE …)",
    ),
    "DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS": (
        InvalidConfig,
        "it tracks its rows, whose ids need the count of rows of each file, and this Spark session takes no statistics",
        "Set spark.databricks.delta.stats.collect to true",
    ),
    "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES": (
        SchemaMismatch,
        "Spark defines no column with a space or one of ,;{{}}()= or a line break in its name. Give it another name "
        "(select … as …), or run this with engine: duckdb",
        "",
    ),
}
"""Condition -> class, sentence and remedy of our error."""


def _translated(error: Exception, what: str, analysis: type[DuckrunError], writes: bool) -> Exception:
    """Return a Spark error as a DuckrunError that names the table.

    An error of the user's code is returned itself, with a note.
    """
    module, name = type(error).__module__, type(error).__name__
    if not module.startswith(("pyspark", "py4j", "grpc", "delta")):
        return error
    text = text_of(error)
    line = _first_line(text, name)
    ours = raised(text, what)
    if ours is not None:
        return ours
    if RAISED in text:
        detail = text[text.index(RAISED) + len(RAISED) :].splitlines()[0].split(" SQLSTATE: ")[0]
        return (NoFolder if detail.startswith(NO_FOLDER) else SchemaMismatch)(f"{what}: {detail}")
    conditions = (*_CONCURRENT, *_MADE, *_CONDITIONS)
    condition = "DELTA_CONCURRENT" if name.startswith("Concurrent") else condition_of(error, *conditions)
    if condition is None:
        return trouble(text, what) or _unknown(error, what, line, analysis)
    if condition in (*_CONCURRENT, *_MADE):
        return CommitTaken(line)
    if condition in _OF_A_WRITE and not writes:
        return _unknown(error, what, line, analysis)
    kind, sentence, remedy = _CONDITIONS[condition]
    if condition in _CONSTRAINT:
        detail = message_of(error, condition) or line
    else:
        detail = next((part for part in text.splitlines() if condition in part), line)
        detail = detail[max(detail.find(condition) - 1, 0) :]
    return kind(f"{what}: {sentence.format(line=line.rstrip('.'), detail=detail.strip().rstrip('.'))}", remedy=remedy)


# SQLSTATE classes of errors in a row: 22 is a data exception (division by zero, overflow), 21 a
# cardinality violation (a scalar subquery with two rows), 23 a broken constraint (a repeated map
# key). P0001 is raise_error() in the query. Delta's own conditions are about the table instead.
_ROW_ERROR = re.compile(r"\[(?!DELTA_)[A-Z_.]+\] (?:(?!SQLSTATE:).)*? SQLSTATE: (?:2[123]\w{3}|P0001)", re.DOTALL)
_STATE = re.compile(r"SQLSTATE: (\w{5})")
# Source: delta-error-classes.json of https://github.com/delta-io/delta
_INVALID = ("22", "42", "54", "55", "56", "F0", "KD")
"""SQLSTATE classes of errors in the request, including Delta's own."""
_JAVA_CLASS = re.compile(r"^: (?:[a-z]\w*\.)*([A-Z]\w*)", re.MULTILINE)
_WRAPPED = re.compile(r"Unsupported table change: .*?^Caused by: (?:[a-z]\w*\.)*([A-Z]\w*)", re.MULTILINE | re.DOTALL)
"""Spark's exception around the one that a catalog raises in ALTER TABLE."""


def _state(error: Exception) -> str:
    """Return the SQLSTATE of an error, from PySpark or from the Java exception; empty if none."""
    for origin in (error, getattr(error, "java_exception", None)):
        try:
            return str(origin.getSqlState() or "")  # type: ignore[union-attr]
        except Exception:  # no SparkThrowable, or a condition that PySpark cannot build
            continue
    state = _STATE.search(text_of(error))
    return "" if state is None else state[1]


def _refusal(error: Exception, name: str) -> type[DuckrunError] | None:
    """Return the error class for a statement that Spark or Delta refuses at run time.

    The SQLSTATE decides, or without one the Java exception. None if Spark itself failed.
    """
    state = _state(error)[:2]
    if state:
        return UnsupportedFeature if state == "0A" else InvalidConfig if state in _INVALID else None
    text = text_of(error)
    wrapped = _WRAPPED.search(text)
    java = _JAVA_CLASS.search(text) if wrapped is None else wrapped
    return {"UnsupportedOperationException": UnsupportedFeature, "IllegalArgumentException": InvalidConfig}.get(
        name if java is None else java[1]
    )


def _unknown(error: Exception, what: str, line: str, analysis: type[DuckrunError]) -> Exception:
    row_error = _ROW_ERROR.search(text_of(error))
    if row_error is not None:
        return uncomputable(what, "Spark", " ".join(row_error[0].split()))
    if (function := unknown_function(error)) is not None:
        return analysis(
            f"{what}: Spark has no function {function.lower()}().",
            remedy="Write it with functions that Spark has, or run this with engine: duckdb",
        )
    name = type(error).__name__
    if name in ("AnalysisException", "ParseException") or condition_of(error, "DELTA_MERGE_UNRESOLVED"):
        return analysis(f"{what}: Spark cannot run it: {line}")
    refusal = _refusal(error, name)
    if refusal is not None:
        return refusal(f"{what}: Spark cannot run it: {line.rstrip('.')}.")
    if name == "Py4JJavaError":
        return DuckrunError(f"{what}: Spark failed: {line.rstrip('.')}.")
    error.add_note(f"This was {what}.")
    return error


_CONDITION_LINE = re.compile(r"\[[A-Z_.]+\] [^\n]*")
_CAUSE = re.compile(r"^(?:Caused by)?: (.*)$", re.MULTILINE)


def _first_line(text: str, name: str) -> str:
    """Return the most telling line of an error; py4j's first line only says that a call failed."""
    of_a_call = text.startswith("An error occurred while calling")
    condition = _ROW_ERROR.search(text) or (_CONDITION_LINE.search(text) if of_a_call else None)
    if condition is not None:
        return condition[0]
    if of_a_call and (causes := _CAUSE.findall(text)):
        return without_classes(causes[-1])
    return next((without_classes(part) for part in text.splitlines() if part.strip()), name)
