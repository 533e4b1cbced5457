"""Quoted names in a node's SQL: double quotes, or backticks if the SQL is Spark's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dbt.adapters.duckdb.column import DuckDBColumn
from dbt.adapters.duckdb.relation import DuckDBRelation
from dbt.adapters.duckrun.model.node import current

from duckrun.sql.quoting import quote_identifier


def quoted(identifier: str) -> str:
    """Return a name, quoted in the dialect of the node whose SQL is being rendered."""
    node = current()
    if node is not None and node.dialect == "spark":
        return "`" + identifier.replace("`", "``") + "`"
    return quote_identifier(identifier)


@dataclass(frozen=True, eq=False, repr=False)
class DuckrunRelation(DuckDBRelation):
    """A relation whose names are quoted in the dialect of the current node."""

    def quoted(self, identifier: Any) -> str:
        return quoted(str(identifier))


@dataclass
class DuckrunColumn(DuckDBColumn):
    """A column whose name is quoted in the dialect of the current node."""

    @property
    def quoted(self) -> str:
        return quoted(self.column)

    def is_numeric(self) -> bool:
        """Return True for a DECIMAL of any width; dbt-duckdb knows only the bare name."""
        return self.dtype.lower().startswith(("decimal", "numeric"))
