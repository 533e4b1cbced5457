"""Values of a dbt config, read once and checked: what is not what it should be is refused by the name of its key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.errors import InvalidConfig
from duckrun.sql.dialects import text_in, tree_in
from duckrun.sql.written import keep_place
from duckrun.values.nearest import did_you_mean

# The names by which dbt's and dbt-duckdb's conditions call the two sides of a merge.
_TARGET_ALIASES = ("dbt_internal_dest", "dbt_internal_target", "dbt_incremental_target", "target")
_SOURCE_ALIASES = ("dbt_internal_source", "source")


def one_of(node: str, key: str, value: Any, known: Sequence[str]) -> str:
    """A value that is one of some words. Raises InvalidConfig with the nearest of them."""
    if value in known:
        return str(value)
    raise InvalidConfig(
        f"{node}: unknown {key} {value!r}; known are {', '.join(known)}.{did_you_mean(str(value), known)}"
    )


def texts(node: str, key: str, value: Any) -> tuple[str, ...]:
    """A string or a list of strings; empty ones are left out."""
    if value is None:
        return ()
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple | set) or not all(isinstance(v, str) for v in values):
        raise InvalidConfig(f"{node}: {key} must be a string or a list of strings, not {value!r}.")
    return tuple(v for v in values if v.strip())


def names(node: str, key: str, value: Any) -> tuple[str, ...]:
    """Column names, with the quotes that dbt users write around odd ones taken off."""
    return tuple(unquoted(v) for v in texts(node, key, value))


def unquoted(name: str) -> str:
    name = name.strip()
    return name[1:-1].replace('""', '"') if len(name) > 1 and name[0] == name[-1] == '"' else name


def mapping(node: str, key: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidConfig(f"{node}: {key} must be a mapping of names to values, not {value!r}.")
    return value


def properties(node: str, value: Any) -> dict[str, str]:
    """Table properties: names to texts; true and false as Delta writes them."""
    found = mapping(node, "table_properties", value)
    return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in found.items()}


def match(name: str, columns: Iterable[str]) -> str | None:
    """The column of that name as its owner spells it: SQL does not tell cases apart."""
    columns = list(columns)
    if name in columns:
        return name
    return next((c for c in columns if c.lower() == name.lower()), None)


# -- SQL over the two sides of a write


def expression(node: str, key: str, text: Any) -> exp.Expr:
    """SQL of a config, as a tree. Raises InvalidConfig."""
    if not isinstance(text, str):
        raise InvalidConfig(f"{node}: {key} must be SQL text, not {text!r}.")
    try:
        return tree_in(text, "duckdb")
    except SqlglotError as error:
        raise InvalidConfig(f"{node}: {key} cannot be read as SQL ({text!r}): {error}") from error


def merge_sql(node: str, key: str, text: Any) -> str:
    """SQL of dbt over DBT_INTERNAL_SOURCE and DBT_INTERNAL_DEST, as SQL over source and target."""
    tree = expression(node, key, text)
    for column in tree.find_all(exp.Column):
        alias = column.table.lower()
        keep_place(column)
        if alias in _TARGET_ALIASES:
            column.set("table", exp.to_identifier("target"))
        elif alias in _SOURCE_ALIASES:
            column.set("table", exp.to_identifier("source"))
    return text_in(tree, "duckdb")


def target_sql(node: str, key: str, text: Any) -> str:
    """SQL of dbt that speaks of the target only, over its bare columns."""
    tree = expression(node, key, text)
    for column in tree.find_all(exp.Column):
        if column.table.lower() in _TARGET_ALIASES:
            keep_place(column)
            column.set("table", None)
    return text_in(tree, "duckdb")


def source_columns(sql: Iterable[str | None]) -> set[str]:
    """The columns of the source that some expressions over source and target name."""
    found: set[str] = set()
    for text in sql:
        if text is not None:
            tree = tree_in(text, "duckdb")
            found |= {column.name for column in tree.find_all(exp.Column) if column.table.lower() == "source"}
    return found
