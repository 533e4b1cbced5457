"""Check that an expression of a table's definition depends on the columns of one row only.

Anybody may have written a log or a file of definitions. Its expressions run in our process, where
SQL can also read files, settings and the environment. DuckDB's parser gives the parts of an
expression. DuckDB's catalog tells which functions are scalar and deterministic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import duckdb
from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.errors import UnsupportedFeature
from duckrun.sql.dialects import tree_in
from duckrun.sql.duckdb_itself import functions, item_in, parts_in
from duckrun.sql.names import transpile
from duckrun.sql.pieces import has_any

_ABOUT_SESSION = frozenset([
    "current_setting", "getvariable", "getenv", "version", "current_user", "session_user", "user", "current_role",
    "current_catalog", "current_database", "current_schema", "current_schemas", "current_query", "in_search_path",
    "txid_current", "stats", "get_block_size", "write_log", "current_transaction_id", "current_connection_id",
    "current_query_id",
])  # fmt: skip
"""Functions that depend on the session; DuckDB calls some of them consistent."""
_ABOUT_NOW = frozenset([
    "now", "today", "current_date", "current_time", "current_timestamp", "localtime", "localtimestamp",
    "get_current_time", "get_current_timestamp", "transaction_timestamp", "current_localtime",
    "current_localtimestamp",
])  # fmt: skip
"""Functions of the statement's time. A condition may compare a row with it ("not in future")."""
_NO_VALUES = {
    "SUBQUERY": "a subquery",
    "WINDOW": "a window function",
    "STAR": "*",
    "PARAMETER": "a parameter",
    "DEFAULT": "DEFAULT",
}


def why_not_scalar(expression: str, columns: Collection[str]) -> str | None:
    """Return the part of a DuckDB expression that does not depend on these columns alone.

    None if all do.

    >>> why_not_scalar("i > 3 and upper(s) <> 'A'", ["i", "s"])
    >>> why_not_scalar("(select content from read_text('/etc/passwd')) like 'r%'", ["i"])
    'a subquery'
    >>> why_not_scalar("i > random()", ["i"])
    'random(), which gives another value each time'
    """
    item = item_in(expression)
    if item is None:
        return "what DuckDB cannot read as one expression"
    return next(_foreign_parts(item[0], frozenset(column.lower() for column in columns)), None)


def why_not_scalar_in_spark(expression: str, *, is_default: bool = False) -> str | None:
    """Return the part of a Spark expression that depends on more than the row; None for none.

    Spark itself rejects unknown columns.

    Args:
        expression: the expression as a log stores it.
        is_default: True for a default, which may differ for each row, as ``uuid()`` does.

    >>> why_not_scalar_in_spark("a > 1 and lower(b) = 'x'")
    >>> why_not_scalar_in_spark("java_method('java.lang.System', 'getenv', 'KEY') = b")
    'java_method(), which tells of the session, or gives another value each time'
    """
    try:
        tree = tree_in(expression, "spark")
    except SqlglotError:
        return "what cannot be read as one expression"
    for node in tree.walk():
        if isinstance(node, exp.Query | exp.Table | exp.Command):
            return "a subquery"
        if isinstance(node, exp.Window | exp.AggFunc | exp.UDTF | exp.Explode):
            return f"{node.key}(), which is computed from several rows, or gives some"
        if isinstance(node, exp.Star | exp.Placeholder | exp.Parameter):
            return node.sql("spark")
        if isinstance(node, exp.Func):
            name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
            if name.lower() in (_READ_OUTSIDE if is_default else _SPARK_IMPURE):
                return f"{name.lower()}(), which tells of the session, or gives another value each time"
    return None


def part_over_rows(tree: exp.Expr) -> str | None:
    """Return the part of an expression that reads or gives several rows, in words; None for none.

    Its subqueries are not searched.
    """
    if not has_any(tree, *_MAY_BE_OVER_ROWS):
        return None
    nodes = tree.walk(prune=lambda node: isinstance(node, exp.Query))
    return next((name for node in nodes if (name := _over_rows(node)) is not None), None)


def aggregates_in(tree: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    """Yield the name and node of each aggregate function in an expression and its subqueries."""
    for node in tree.find_all(*_MAY_BE_OVER_ROWS):
        name = _over_rows(node)
        if name is not None and not isinstance(node, exp.Window | exp.UDTF):
            yield name, node


_MAY_BE_OVER_ROWS = (exp.Window, exp.Unnest, exp.Explode, exp.AggFunc, exp.Anonymous)


def _over_rows(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Window):
        return "a window function"
    if isinstance(node, exp.Unnest | exp.Explode):
        return "unnest()"
    if isinstance(node, exp.AggFunc):
        return f"{node.sql_name().lower()}()"
    if isinstance(node, exp.Anonymous) and {kind for kind, *_ in functions().get(node.name.lower(), [])} == {
        "aggregate"
    }:
        return f"{node.name.lower()}()"
    return None


_READ_OUTSIDE = frozenset(["reflect", "try_reflect", "java_method", "getenv", "getvariable", "current_setting"])
_SPARK_IMPURE = (_READ_OUTSIDE | _ABOUT_SESSION) | frozenset([
    "input_file_name", "input_file_block_start", "input_file_block_length", "monotonically_increasing_id",
    "spark_partition_id", "rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle", "current_timezone",
    "raise_error", "assert_true",
])  # fmt: skip


def why_not_in_definition(expression: str, columns: Collection[str]) -> str | None:
    """Return why a table cannot store a Spark expression; None if it can.

    DuckDB need not be able to translate the expression.
    """
    why = why_not_scalar_in_spark(expression)
    if why is not None:
        return why
    try:
        text = transpile(expression, "spark", "duckdb")
    except UnsupportedFeature:
        return None
    return why_not_scalar(text, columns)


def _foreign_parts(tree: Any, columns: frozenset[str]) -> Iterator[str]:
    """Yield the parts of an expression that are no columns, constants or functions of these."""
    waiting: list[tuple[Any, frozenset[str]]] = [(tree, columns)]
    while waiting:
        node, known = waiting.pop()
        if isinstance(node, list):
            waiting.extend((each, known) for each in node)
        if not isinstance(node, dict):
            continue
        kind = node.get("class")
        if kind in _NO_VALUES:
            yield _NO_VALUES[kind]
            continue
        if kind == "COLUMN_REF":
            names = node["column_names"]
            if names[0].lower() not in known and not (len(names) == 1 and names[0].lower() in _ABOUT_NOW):
                yield f"{'.'.join(names)}, which is no column of the table"
            continue
        if kind == "FUNCTION":
            why = _why_no_function(node["function_name"].lower(), f"{node['catalog']}.{node['schema']}")
            if why is not None:
                yield f"{node['function_name']}(), which {why}"
                continue
        if kind == "LAMBDA":
            parameters = (part for part in parts_in(node["lhs"]) if part.get("class") == "COLUMN_REF")
            known = known | {part["column_names"][0].lower() for part in parameters}
        waiting.extend((value, known) for value in node.values())


def _why_no_function(name: str, schema: str) -> str | None:
    if schema not in (".", ".main", ".pg_catalog", "system.main", "system.pg_catalog") or name not in functions():
        return "is no function of DuckDB's own"
    if name in _ABOUT_SESSION:
        return "tells of the session"
    if name in _ABOUT_NOW:
        return None
    for kind, stability, definition, parameters in functions()[name]:
        if kind == "aggregate":
            return "aggregates rows"
        if kind == "macro":
            why = why_not_scalar(definition, parameters)
            if why is not None:
                return f"has {why}"
        elif kind != "scalar":
            return "gives a table"
        elif stability == "VOLATILE":
            return "gives another value each time"
        elif stability != "CONSISTENT":
            return "tells of the session"
    return None


def holds_statements(text: str) -> bool:
    """Return True if DuckDB reads more than one statement in a text.

    Another parser may read the quotes differently.

    >>> holds_statements("select ';' -- ;")
    False
    >>> holds_statements("select 1; drop table t")
    True
    """
    if ";" not in text:
        return False
    coded = text.encode()
    signs = [start for start, kind in duckdb.tokenize(text) if kind == duckdb.token_type.operator]
    first = next((start for start in signs if coded[start : start + 1] == b";"), None)
    return first is not None and any(
        start > first and coded[start : start + 1] != b";" for start, _ in duckdb.tokenize(text)
    )
