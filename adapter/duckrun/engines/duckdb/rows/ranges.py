"""Ranges of whole numbers that the rows of a write are in, to compare with the bounds of files.

Only whole numbers: all writers order them alike, and the log has them exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import duckdb

from duckrun.formats.commits import Bounds
from duckrun.libraries import exp, on_demand, pa
from duckrun.sql.on_demand import dialects
from duckrun.sql.quoting import quote_identifier
from duckrun.values.rows import Range, Ranges
from duckrun.values.stored import StoredColumn, stored_names

if TYPE_CHECKING:
    from duckrun.formats import pruning
else:
    pruning = on_demand("duckrun.formats.pruning")


def ranges_of(predicate: str | exp.Expr, alias: str = "") -> dict[str, Range]:
    """Return ranges that all rows of a predicate over a table are in.

    Keys are the columns' names in lower case.

    Args:
        predicate: The predicate.
        alias: Name of the table in the predicate, in lower case. Columns of any other name are of a
            struct, or of a query around.

    >>> ranges_of("id BETWEEN 3 AND 5 AND target.n > 7 AND n < 20 AND id + 1 = 9", "target")
    {'id': (3, 5), 'n': (7, 20)}
    """
    ranges: dict[str, Range] = {}
    for part in pruning.conjuncts(dialects.tree_in(predicate, "duckdb") if isinstance(predicate, str) else predicate):
        for column, (low, high) in _of(part, alias):
            known = ranges.get(column, (None, None))
            lows, highs = ([end for end in ends if end is not None] for ends in zip(known, (low, high), strict=True))
            ranges[column] = (max(lows, default=None), min(highs, default=None))
    return ranges


def _of(part: exp.Expr, alias: str) -> list[tuple[str, Range]]:
    """Return the range of the column that one condition compares with numbers, if it does."""
    column = part.this
    if isinstance(part, exp.Between) and not part.args.get("symmetric"):
        ends = [_number(part.args["low"]), _number(part.args["high"])]
        return [] if None in ends else _named(column, alias, (ends[0], ends[1]))
    if isinstance(part, exp.In):
        numbers = [_number(each) for each in part.expressions]
        whole = [number for number in numbers if number is not None]
        return _named(column, alias, (min(whole), max(whole))) if whole and len(whole) == len(numbers) else []
    kind, column, other = pruning.column_first(part)
    number = None if other is None else _number(other)
    if number is None:
        return []
    if kind is exp.EQ:
        return _named(column, alias, (number, number))
    if kind in (exp.LT, exp.LTE):
        return _named(column, alias, (None, number))
    return _named(column, alias, (number, None)) if kind in (exp.GT, exp.GTE) else []


def _named(column: exp.Expr | None, alias: str, limits: Range) -> list[tuple[str, Range]]:
    is_of_table = isinstance(column, exp.Column) and column.table.lower() in ("", alias)
    return [(column.name.lower(), limits)] if is_of_table and column is not None else []


def _number(value: exp.Expr) -> int | None:
    literal = value.this if isinstance(value, exp.Neg) else value
    if not isinstance(literal, exp.Literal) or literal.is_string or not literal.this.isdigit():
        return None
    return -int(literal.this) if literal is not value else int(literal.this)


def ranges_of_keys(cursor: duckdb.DuckDBPyConnection, source: str, keys: Mapping[str, str]) -> dict[str, Range]:
    """Return the ranges of the keys of a source.

    Args:
        keys: Columns of the table -> columns of the source.
    """
    if not keys:
        return {}
    ends = ", ".join(f"{end}({quote_identifier(column)})" for column in keys.values() for end in ("min", "max"))
    row = cursor.execute(f"SELECT {ends} FROM ({source})").fetchone() or ()
    pairs = zip(row[::2], row[1::2], strict=True)
    return {key.lower(): pair for key, pair in zip(keys, pairs, strict=True) if all(type(end) is int for end in pair)}


def is_outside(ranges: Ranges, schema: pa.Schema, stored: Sequence[StoredColumn], bounds: Bounds) -> bool:
    """True if a file with these bounds has no row in the ranges.

    Args:
        ranges: Ranges of rows.
        schema: Schema of the table.
        stored: Physical columns, if the table's are mapped.
        bounds: Bounds of the file.
    """
    names = stored_names(stored)
    columns = [field for field in schema if field.name.lower() in ranges and pa.types.is_integer(field.type)]
    ends = ((ranges[f.name.lower()], bounds.get(names.get(f.name, f.name), (None, None))) for f in columns)
    return any(_is_outside(wanted, *bound) for wanted, bound in ends)


def _is_outside(wanted: Range, low: object, high: object) -> bool:
    if not isinstance(low, int) or not isinstance(high, int):
        return False
    least, greatest = wanted
    return (least is not None and high < least) or (greatest is not None and low > greatest)
