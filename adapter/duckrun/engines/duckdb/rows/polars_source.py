"""polars LazyFrames over a DuckDB query.

polars filters the rows that DuckDB returns. DuckDB only leaves out rows that the filter cannot
match, so that it opens fewer files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb

from duckrun.libraries import pa
from duckrun.sql.quoting import quote_identifier, quote_literal

if TYPE_CHECKING:
    import polars as pl

Relation = duckdb.DuckDBPyRelation
_OPERATORS = {"Eq": "=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_TESTS = {"IsNull": "IS NULL", "IsNotNull": "IS NOT NULL"}
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


def lazy_frame(
    schema: pl.Schema, read: Callable[[Callable[[Relation], Relation]], pa.RecordBatchReader]
) -> pl.LazyFrame:
    """Return a LazyFrame whose rows are read at each collect().

    Args:
        schema: Columns in the order of the query's. Names may differ.
        read: Function that reads the query's relation, after another function has narrowed it.
    """
    # duckdb.polars_io filters by its own translation of the predicate alone. That drops casts,
    # rounds times and decimals, and knows neither infinity nor polars' modulus.
    # https://github.com/duckdb/duckdb-python/blob/main/duckdb/polars_io.py
    import polars
    from polars.io.plugins import register_io_source

    places = {name: f"#{place}" for place, name in enumerate(schema, 1)}

    def rows(
        columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        conditions = [] if predicate is None else list(_conditions(predicate))

        def narrowed(relation: Relation) -> Relation:
            if limit is not None:  # polars then has no predicate
                relation = relation.limit(limit)
            tests = (_test(condition, schema, places) for condition, _ in conditions)
            if known := [test for test in tests if test is not None]:
                relation = relation.filter(" AND ".join(known))
            named = (f"{places[name]} AS {quote_identifier(name)}" for name in columns or schema)
            return relation.project(", ".join(named))

        kinds = polars.Schema({name: schema[name] for name in columns or schema})
        for batch in read(narrowed):
            frame = polars.from_arrow(batch)
            assert isinstance(frame, polars.DataFrame)
            # The session's zone may be another one since the schema was read.
            frame = frame if frame.schema == kinds else frame.cast(kinds)
            yield frame.filter(*(each for _, each in conditions))

    return register_io_source(rows, schema=schema, is_pure=True)


def _conditions(predicate: pl.Expr) -> Iterator[tuple[dict[str, Any], pl.Expr]]:
    """Yield the conditions that a predicate joins by AND, as JSON and as expressions."""
    tree = json.loads(predicate.meta.serialize(format="json"))
    match tree:
        case {"BinaryExpr": {"op": "And"}}:
            for side in predicate.meta.pop():
                yield from _conditions(side)
        case {"Display": {"fmt_str": str(text)}} if text.startswith("dynamic_pred"):
            # A hint of polars 1.34 to 1.44, as rows of a sort with a limit arrive. filter() cannot
            # evaluate it. https://github.com/duckdb/duckdb-python/issues/460
            return
        case _:
            yield tree, predicate


def _test(tree: dict[str, Any], schema: Mapping[str, pl.DataType], places: Mapping[str, str]) -> str | None:
    """Return SQL that is true for all rows that match a condition; None if every row may match."""
    match tree:
        case {"BinaryExpr": {"left": left, "op": "And" | "Or" as word, "right": right}}:
            sides = [_test(side, schema, places) for side in (left, right)]
            known = [side for side in sides if side is not None]
            if not known or (word == "Or" and len(known) < 2):
                return None
            return f"({f' {word} '.join(known)})"
        case {"BinaryExpr": {"left": {"Column": name}, "op": op, "right": {"Literal": {"Scalar": scalar}}}}:
            value = _literal(scalar, schema[name])
            return None if value is None or op not in _OPERATORS else f"{places[name]} {_OPERATORS[op]} {value}"
        case {"Function": {"input": [{"Column": name}], "function": {"Boolean": str(test)}}} if test in _TESTS:
            return f"{places[name]} {_TESTS[test]}"
        case {
            "Function": {
                "input": [{"Column": name}, {"Literal": {"Scalar": low}}, {"Literal": {"Scalar": high}}],
                "function": {"Boolean": {"IsBetween": _}},
            }
        }:
            first, last = (_literal(end, schema[name]) for end in (low, high))
            return None if first is None or last is None else f"{places[name]} BETWEEN {first} AND {last}"
    return None


def _literal(scalar: dict[str, Any], kind: pl.DataType) -> str | None:
    """Return SQL of a value of a column's type; None for a type that DuckDB may order otherwise."""
    [(name, value)] = scalar.items()
    if name != kind.base_type().__name__:
        return None
    match name, value:
        case "Int8" | "Int16" | "Int32" | "Int64" | "UInt8" | "UInt16" | "UInt32" | "UInt64", int():
            return str(value)
        case "Float64", float() if math.isfinite(value):
            return f"CAST({quote_literal(repr(value))} AS DOUBLE)"
        case "String", str() if "\0" not in value:
            return quote_literal(value)
        case "Date", int():
            day = _moment(timedelta(days=value))
            return None if day is None else f"DATE '{date.isoformat(day)[:10]}'"
        case "Datetime", [int(number), "Microseconds", zone] if getattr(kind, "time_unit", None) == "us":
            moment = _moment(timedelta(microseconds=number))
            if moment is None:
                return None
            text = moment.replace(tzinfo=None).isoformat(" ")
            return f"TIMESTAMP '{text}'" if zone is None else f"TIMESTAMPTZ '{text}+00:00'"
    return None


def _moment(since: timedelta) -> datetime | None:
    try:
        return _BEGIN + since
    except OverflowError:
        return None
