"""Parsers of config values. Each names the key of an invalid value in its error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.errors import InvalidConfig
from duckrun.sql.dialects import text_in, tree_in
from duckrun.sql.written import keep_place
from duckrun.values.nearest import did_you_mean

# The two sides of a merge in conditions of dbt and dbt-duckdb.
_TARGET_ALIASES = ("dbt_internal_dest", "dbt_internal_target", "dbt_incremental_target", "target")
_SOURCE_ALIASES = ("dbt_internal_source", "source")


def one_of(node: str, key: str, value: Any, known: Sequence[str]) -> str:
    """Return a value that is in ``known``. Raises InvalidConfig with the nearest known one."""
    if value in known:
        return str(value)
    raise InvalidConfig(
        f"{node}: unknown {key} {value!r}; known are {', '.join(known)}.{did_you_mean(str(value), known)}"
    )


def texts(node: str, key: str, value: Any) -> tuple[str, ...]:
    """Return the texts of a string or a list of strings, without empty ones."""
    if value is None:
        return ()
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple | set) or not all(isinstance(v, str) for v in values):
        raise InvalidConfig(f"{node}: {key} must be a string or a list of strings, not {value!r}.")
    return tuple(v for v in values if v.strip())


def names(node: str, key: str, value: Any) -> tuple[str, ...]:
    """Return column names, without the quotes that dbt users write around unusual ones."""
    return tuple(unquoted(v) for v in texts(node, key, value))


def unquoted(name: str) -> str:
    """Return a name without its double quotes."""
    name = name.strip()
    return name[1:-1].replace('""', '"') if len(name) > 1 and name[0] == name[-1] == '"' else name


def mapping(node: str, key: str, value: Any) -> Mapping[str, Any]:
    """Return a mapping; an empty one for None."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidConfig(f"{node}: {key} must be a mapping of names to values, not {value!r}.")
    return value


def properties(node: str, value: Any) -> dict[str, str]:
    """Return table properties as texts; booleans are written in lower case as Delta writes them."""
    values = mapping(node, "table_properties", value)
    return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in values.items()}


def match(name: str, columns: Iterable[str]) -> str | None:
    """Return the column of that name in the spelling of ``columns``; SQL ignores letter case."""
    columns = list(columns)
    if name in columns:
        return name
    return next((c for c in columns if c.lower() == name.lower()), None)


# -- SQL over the two sides of a write


def expression(node: str, key: str, text: Any) -> exp.Expr:
    """Parse SQL of a config. Raises InvalidConfig."""
    if not isinstance(text, str):
        raise InvalidConfig(f"{node}: {key} must be SQL text, not {text!r}.")
    try:
        return tree_in(text, "duckdb")
    except SqlglotError as error:
        raise InvalidConfig(f"{node}: {key} cannot be read as SQL ({text!r}): {error}") from error


def merge_sql(node: str, key: str, text: Any) -> str:
    """Rewrite dbt's SQL over DBT_INTERNAL_SOURCE and DBT_INTERNAL_DEST to source and target."""
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
    """Rewrite dbt's SQL over the target alone to its bare columns."""
    tree = expression(node, key, text)
    for column in tree.find_all(exp.Column):
        if column.table.lower() in _TARGET_ALIASES:
            keep_place(column)
            column.set("table", None)
    return text_in(tree, "duckdb")


def source_columns(sql: Iterable[str | None]) -> set[str]:
    """Return the source columns in some expressions over source and target."""
    columns: set[str] = set()
    for text in sql:
        if text is not None:
            tree = tree_in(text, "duckdb")
            columns |= {column.name for column in tree.find_all(exp.Column) if column.table.lower() == "source"}
    return columns
