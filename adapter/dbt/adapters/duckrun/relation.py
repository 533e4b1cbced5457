"""Names as they stand in a node's SQL: in double quotes, or in backticks where that SQL is Spark's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dbt.adapters.duckdb.column import DuckDBColumn
from dbt.adapters.duckdb.relation import DuckDBRelation
from dbt.adapters.duckrun.model.node import current

from duckrun.sql.names import quote_identifier


def quoted(identifier: str) -> str:
    """A name, quoted in the dialect of the node whose SQL is being made."""
    node = current()
    if node is not None and node.dialect == "spark":
        return "`" + identifier.replace("`", "``") + "`"
    return quote_identifier(identifier)


@dataclass(frozen=True, eq=False, repr=False)
class DuckrunRelation(DuckDBRelation):
    def quoted(self, identifier: Any) -> str:
        return quoted(str(identifier))


@dataclass
class DuckrunColumn(DuckDBColumn):
    @property
    def quoted(self) -> str:
        return quoted(self.column)

    def is_numeric(self) -> bool:
        """True for a DECIMAL of any width; dbt-duckdb knows its bare name only."""
        return self.dtype.lower().startswith(("decimal", "numeric"))
