"""Tests whether an expression is stable (not volatile), by DuckDB's own catalog of functions."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import duckdb

from duckrun.sql.duckdb_itself import parts_in

_TIMES = frozenset(("age", "current_localtime", "current_localtimestamp"))
"""Functions of the current time that DuckDB's catalog lists as constant."""
_TIME_KEYWORDS = ("current_", "local")
"""Beginnings of the SQL keywords that stand for a time, and parse as columns."""


def is_steady(expression: str, cursor: duckdb.DuckDBPyConnection) -> bool:
    """True if an expression in DuckDB's dialect gives the same result each time it is evaluated.

    No function in it is volatile by DuckDB's catalog, and no subquery samples or limits rows. The
    functions of the current time have one value per transaction, so they count as stable.
    """
    return unsteady_part(expression, cursor) is None


def unsteady_part(expression: str, cursor: duckdb.DuckDBPyConnection) -> str | None:
    """Description of the volatile part of an expression; None if there is none."""
    nodes = _nodes_of(expression, cursor)
    if nodes is None:
        return "what DuckDB cannot read as one expression"
    if any(node.get("sample") or node.get("type") in ("LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER") for node in nodes):
        return "a subquery of some rows of many"
    functions = _functions(nodes)
    unsteady = sorted(functions - _known(functions, "!= 'VOLATILE'", cursor))
    return f"{unsteady[0]}()" if unsteady else None


def are_constant(expressions: Collection[str], cursor: duckdb.DuckDBPyConnection) -> bool:
    """True if each expression gives the same result in every transaction, for the same row.

    They have no subquery and no function of the current time, and all their functions are constant.
    """
    if not expressions:
        return True
    nodes = _nodes_of("), (".join(expressions), cursor)
    if nodes is None or any(node.get("class") == "SUBQUERY" or _is_time(node) for node in nodes):
        return False
    functions = _functions(nodes)
    return not functions & _TIMES and functions == _known(functions, "= 'CONSISTENT'", cursor)


def _nodes_of(expression: str, cursor: duckdb.DuckDBPyConnection) -> list[dict[str, Any]] | None:
    """Nodes of an expression's syntax tree; None if DuckDB cannot read the expression."""
    answer = cursor.execute("SELECT json_serialize_sql($1)", [f"SELECT ({expression})"]).fetchone()
    tree = json.loads(answer[0]) if answer else {"error": True}
    return None if tree["error"] else list(parts_in(tree))


def _is_time(node: dict[str, Any]) -> bool:
    return any(name.lower().startswith(_TIME_KEYWORDS) for name in node.get("column_names", ())[:1])


def _functions(nodes: Collection[dict[str, Any]]) -> set[str]:
    return {n["function_name"].lower() for n in nodes if "function_name" in n and not n.get("is_operator")}


def _known(functions: set[str], condition: str, cursor: duckdb.DuckDBPyConnection) -> set[str]:
    """Return the functions whose overloads in the catalog all satisfy a condition on stability.

    A macro, or a function that is not listed, has no stability.
    """
    if not functions:
        return set()
    known = cursor.execute(
        "SELECT lower(function_name) FROM duckdb_functions() WHERE list_contains($1, lower(function_name)) GROUP BY 1 "
        f"HAVING bool_and(function_type IN ('scalar', 'aggregate', 'table') AND coalesce(stability, '') {condition})",
        [sorted(functions)],
    ).fetchall()
    return {name for (name,) in known}
