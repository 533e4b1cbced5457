"""Parsers of SQL in config values, over the two sides of a write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from duckrun.errors import InvalidConfig
from duckrun.libraries import exp, sqlglot
from duckrun.sql.on_demand import dialects, placing

# The two sides of a merge in conditions of dbt and dbt-duckdb.
_TARGET_ALIASES = ("dbt_internal_dest", "dbt_internal_target", "dbt_incremental_target", "target")
_SOURCE_ALIASES = ("dbt_internal_source", "source")


def expression(node: str, key: str, text: Any) -> exp.Expr:
    """Parse SQL of a config. Raises InvalidConfig."""
    if not isinstance(text, str):
        raise InvalidConfig(f"{node}: {key} must be SQL text, not {text!r}.")
    try:
        return dialects.tree_in(text, "duckdb")
    except sqlglot.errors.SqlglotError as error:
        raise InvalidConfig(f"{node}: {key} cannot be read as SQL ({text!r}): {error}") from error


def merge_sql(node: str, key: str, text: Any) -> str:
    """Rewrite dbt's SQL over DBT_INTERNAL_SOURCE and DBT_INTERNAL_DEST to source and target."""
    sides = dict.fromkeys(_TARGET_ALIASES, "target") | dict.fromkeys(_SOURCE_ALIASES, "source")
    return _with_sides(expression(node, key, text), sides)


def target_sql(node: str, key: str, text: Any) -> str:
    """Rewrite dbt's SQL over the target alone to its bare columns."""
    return _with_sides(expression(node, key, text), dict.fromkeys(_TARGET_ALIASES))


def _with_sides(tree: exp.Expr, sides: Mapping[str, str | None]) -> str:
    """Return SQL whose columns have other aliases, or none."""
    for column in tree.find_all(exp.Column):
        if column.table.lower() in sides:
            side = sides[column.table.lower()]
            placing.set_part(column, "table", None if side is None else exp.to_identifier(side))
    return dialects.text_in(tree, "duckdb")


def source_columns(sql: Iterable[str | None]) -> set[str]:
    """Return the source columns in some expressions over source and target."""
    columns: set[str] = set()
    for text in sql:
        if text is not None:
            tree = dialects.tree_in(text, "duckdb")
            columns |= {column.name for column in tree.find_all(exp.Column) if column.table.lower() == "source"}
    return columns
