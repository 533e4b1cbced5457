"""Row checks for values that DuckLake's files, or its partition folders, cannot hold.

Without them, an inlined row (in the catalog) would pass, and every later flush would fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

from duckrun.errors import SchemaMismatch
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.values.partition_values import LONGEST_PARTITION

Test = tuple[str, str, type, str]
"""Column, condition that its values must fulfil, error class, and error message in SQL."""


def lake_tests(types: Mapping[str, str], parted_by: Iterable[str]) -> Iterator[Test]:
    """Tests for columns of these types; ``parted_by`` are the partition columns."""
    for name, kind in types.items():
        if kind == "INTERVAL":
            message = _message(
                f"column {name} holds an interval that is negative or not of whole milliseconds, which "
                "DuckLake's files cannot hold: ",
                name,
            )
            yield name, _whole(quote_identifier(name)), SchemaMismatch, message
    for name in parted_by:
        if types.get(name) == "VARCHAR":
            column = quote_identifier(name)
            yield folder_test(name)
            message = quote_literal(
                f"partition column {name} holds a text with a zero byte, which is no partition value of a DuckLake"
            )
            yield name, f"contains({column}, chr(0)) IS NOT TRUE", SchemaMismatch, message


def folder_test(name: str) -> Test:
    """Test that the texts of a partition column are short enough for the name of a folder."""
    folder = f"strlen({quote_literal(quote(name, safe='') + '=')}) + strlen(url_encode({quote_identifier(name)}))"
    message = _message(f"partition column {name} holds a text too long for the name of a folder: ", name)
    return name, f"({folder} <= {LONGEST_PARTITION}) IS NOT FALSE", SchemaMismatch, message


def _whole(value: str) -> str:
    """SQL that is true for NULL, and for an interval that Parquet can hold."""
    # Parquet's INTERVAL has months, days and milliseconds, and none of them may be negative.
    parts = ("year", "month", "day", "hour", "minute", "microsecond")
    positive = " AND ".join(f"date_part('{part}', {value}) >= 0" for part in parts)
    return f"({value} IS NULL OR ({positive} AND date_part('microsecond', {value}) % 1000 = 0))"


def _message(text: str, name: str) -> str:
    return f"{quote_literal(text)} || left(CAST({quote_identifier(name)} AS VARCHAR), 60)"
