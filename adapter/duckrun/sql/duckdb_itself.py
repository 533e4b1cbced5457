"""Facts of a DuckDB without tables: its functions, its own views, and the trees of its parser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import duckdb

COMMON = frozenset((
    "abs", "all", "any", "any_value", "arg_max", "arg_min", "array_agg", "avg", "cast", "ceil", "coalesce",
    "concat", "concat_ws", "contains", "count", "date_diff", "date_part", "date_trunc", "day", "dense_rank",
    "ends_with", "epoch", "epoch_ms", "exists", "exp", "extract", "first", "first_value", "flatten", "floor",
    "generate_series", "get_current_timestamp", "greatest", "group_concat", "hash", "hour", "if", "ifnull", "in",
    "instr", "lag", "last", "last_value", "lead", "least", "left", "len", "length", "list", "list_aggregate",
    "list_contains", "list_filter", "list_sort", "list_transform", "list_value", "ln", "log", "lower", "lpad",
    "ltrim", "make_date", "make_timestamp", "map", "max", "md5", "median", "min", "minute", "mod", "month", "now",
    "ntile", "nullif", "position", "power", "quantile", "quantile_cont", "quarter", "random", "range", "rank",
    "read_csv", "read_json", "read_parquet", "regexp_extract", "regexp_matches", "regexp_replace", "repeat",
    "replace", "reverse", "right", "round", "row", "row_number", "rpad", "rtrim", "second", "sha256", "sign",
    "split_part", "sqrt", "starts_with", "stddev", "strftime", "string_agg", "string_split", "strptime",
    "struct_extract", "struct_pack", "substr", "substring", "sum", "today", "trim", "trunc", "try_cast", "typeof",
    "unnest", "upper", "uuid", "values", "variance", "week", "year",
))  # fmt: skip
"""Names that most statements call. No catalog is searched for a macro of such a name."""


def is_of_duckdb(name: str) -> bool:
    """Return True for the name, in any case, of a function or macro that every DuckDB has.

    >>> is_of_duckdb("Upper"), is_of_duckdb("net_price")
    (True, False)
    """
    return name.lower() in COMMON or name.lower() in functions()


@cache
def functions() -> dict[str, list[tuple[str, str, str, list[str]]]]:
    """Return the functions: kind, stability, and a macro's text and parameters."""
    rows = answer(
        "SELECT DISTINCT lower(function_name), function_type, stability, macro_definition, parameters "
        "FROM duckdb_functions()"
    )
    by_name: dict[str, list[tuple[str, str, str, list[str]]]] = {}
    for name, kind, stability, definition, parameters in rows:
        by_name.setdefault(name, []).append((kind, stability, definition, parameters or []))
    return by_name


@cache
def columns_of_view(name: str) -> dict[str, str]:
    """Return the types of the columns of a view of ``information_schema``."""
    return {column: kind for column, kind, *_ in answer(f"DESCRIBE information_schema.{name}")}


def item_in(expression: str) -> tuple[dict[str, Any], str] | None:
    """Return the parser's tree of an expression in a SELECT list, and the JSON of its statement.

    None for a text that is not exactly one expression.
    """
    text = answer("SELECT json_serialize_sql($1)", f"SELECT {expression}")[0][0]
    tree = json.loads(text)
    if tree["error"] or len(tree["statements"]) != 1:
        return None
    node = tree["statements"][0]["node"]
    if node["type"] != "SELECT_NODE" or node["from_table"]["type"] != "EMPTY" or node["cte_map"]["map"]:
        return None
    rest = ("where_clause", "group_expressions", "having", "sample", "qualify", "modifiers")
    if any(node[key] for key in rest) or len(node["select_list"]) != 1:
        return None
    return node["select_list"][0], text


def parts_in(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield the nodes of a parser's tree, each before its children."""
    if isinstance(tree, dict):
        yield tree
    for child in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from parts_in(child)


def answer(sql: str, *values: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    return _connection().cursor().execute(sql, values).fetchall()


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})
