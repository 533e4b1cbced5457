"""Values that a DuckLake's files, or the folders of its partitions, do not hold: looked at row by row before one is written.

With rows in the catalog nothing else would find them before a flush, which then never ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

from duckrun.errors import SchemaMismatch
from duckrun.sql.names import quote_identifier, quote_literal
from duckrun.values.partition_values import LONGEST_PARTITION

Test = tuple[str, str, type, str]
"""Column, condition that a value has to fulfil, error and message in SQL if it does not."""


def lake_tests(types: Mapping[str, str], parted_by: Iterable[str]) -> Iterator[Test]:
    """The tests of columns of some types, of which rows are parted by the values of some."""
    for name, kind in types.items():
        if kind == "INTERVAL":
            yield (
                name,
                _whole(quote_identifier(name)),
                SchemaMismatch,
                _message(
                    f"column {name} holds an interval that is negative or not of whole milliseconds, which DuckLake's files cannot hold: ",
                    name,
                ),
            )
    for name in parted_by:
        if types.get(name) == "VARCHAR":
            column = quote_identifier(name)
            folder = f"strlen({quote_literal(quote(name, safe='') + '=')}) + strlen(url_encode({column}))"
            yield (
                name,
                f"({folder} <= {LONGEST_PARTITION}) IS NOT FALSE",
                SchemaMismatch,
                _message(f"partition column {name} holds a text too long for the name of a folder: ", name),
            )
            yield (
                name,
                f"contains({column}, chr(0)) IS NOT TRUE",
                SchemaMismatch,
                quote_literal(
                    f"partition column {name} holds a text with a zero byte, which is no partition value of a DuckLake"
                ),
            )


def _whole(value: str) -> str:
    """Whether an interval is NULL or one that Parquet has: months, days and milliseconds, none of them below zero."""
    parts = ("year", "month", "day", "hour", "minute", "microsecond")
    positive = " AND ".join(f"date_part('{part}', {value}) >= 0" for part in parts)
    return f"({value} IS NULL OR ({positive} AND date_part('microsecond', {value}) % 1000 = 0))"


def _message(text: str, name: str) -> str:
    return f"{quote_literal(text)} || left(CAST({quote_identifier(name)} AS VARCHAR), 60)"
