"""Test whether an expression is stable (not volatile), by DuckDB's own catalog of functions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb


def is_steady(expression: str, cursor: duckdb.DuckDBPyConnection) -> bool:
    """True if an expression in DuckDB's dialect gives the same result each time it is evaluated.

    No function in it is volatile by DuckDB's catalog, and no subquery samples or limits rows.
    """
    return unsteady_part(expression, cursor) is None


def unsteady_part(expression: str, cursor: duckdb.DuckDBPyConnection) -> str | None:
    """Description of the volatile part of an expression; None if there is none."""
    answer = cursor.execute("SELECT json_serialize_sql($1)", [f"SELECT ({expression})"]).fetchone()
    tree = json.loads(answer[0]) if answer else {"error": True}
    if tree["error"]:
        return "what DuckDB cannot read as one expression"
    functions: set[str] = set()
    for node in _nodes(tree):
        if node.get("sample") or node.get("type") in ("LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER"):
            return "a subquery of some rows of many"
        if "function_name" in node and not node.get("is_operator"):
            functions.add(node["function_name"].lower())
    if not functions:
        return None
    # A macro, or a function that is not listed, may be volatile.
    known = cursor.execute(
        "SELECT lower(function_name) FROM duckdb_functions() WHERE list_contains($1, lower(function_name)) GROUP BY 1 "
        "HAVING bool_and(function_type IN ('scalar', 'aggregate', 'table') AND coalesce(stability, '') != 'VOLATILE')",
        [sorted(functions)],
    ).fetchall()
    unsteady = sorted(functions - {name for (name,) in known})
    return f"{unsteady[0]}()" if unsteady else None


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    for child in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _nodes(child)
