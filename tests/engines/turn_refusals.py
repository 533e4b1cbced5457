"""What may be refused of a step, by whom, and why that is in the nature of a feature. Any other refusal is a fault."""

from __future__ import annotations

import re
from dataclasses import dataclass

from duckrun import InvalidConfig, UnsupportedFeature
from tests.engines.turn_model import PLAIN

BY_SPARK = f"spark|{PLAIN}"


@dataclass(frozen=True)
class Refusal:
    """``engines`` and ``steps`` are regular expressions of whole names, ``message`` one of a part of the error."""

    engines: str
    steps: str
    message: str
    why: str


REFUSALS = (
    Refusal(
        BY_SPARK, "rename|drop_column", r"\[DELTA_UNSUPPORTED_(RENAME|DROP)_COLUMN\]",
        "Spark writes no file anew for a name: it renames and drops columns of mapped tables",
    ),
    Refusal(
        BY_SPARK, "widen", r"\[DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP\].* n\d* from INT to BIGINT",
        "Spark writes no file anew for a type: it widens columns of tables with type widening",
    ),
    Refusal(
        BY_SPARK, ".*", r"DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS|it (tracks|is to track) its rows, whose ids need the count of rows of each file",
        "a Spark session without statistics counts no rows, and row ids need the count",
    ),
    Refusal(
        BY_SPARK, ".*", r"Task not serializable",
        "a command of delta-spark 4.4.0 now and then takes its session into a task, which Spark ends before anything is written",
    ),
    Refusal(
        PLAIN,
        "append_fewer",
        r"UNRESOLVED_COLUMN.* name `m` cannot be resolved",
        "Spark alone computes a generated column only where INSERT names the columns that it is made of",
    ),
    Refusal(
        "spark", "overwrite_columns", r"computes the column [\w, ]+, and an overwrite by Spark that brings other columns",
        "Spark has no overwrite that brings other columns and keeps computed ones",
    ),
    Refusal(
        "duckdb|spark", "staged_over", r"has an identity column, whose numbers a commit gives: its files cannot be staged by themselves",
        "the numbers of an identity column are known at the commit",
    ),
)  # fmt: skip


def refusal_of(engine: str, step: str, error: Exception) -> Refusal | None:
    """The entry of the list that allows an error."""
    known = isinstance(error, UnsupportedFeature | InvalidConfig) or (
        engine == PLAIN and not isinstance(error, AssertionError)
    )
    for refusal in REFUSALS:
        said = known and re.fullmatch(refusal.engines, engine) and re.fullmatch(refusal.steps, step)
        if said and re.search(refusal.message, str(error)):
            return refusal
    return None
