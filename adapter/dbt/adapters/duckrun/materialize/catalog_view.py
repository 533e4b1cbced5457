"""The SQL of a view that lies in a catalog, as every other reader of that catalog has to understand it."""

from __future__ import annotations

from sqlglot import exp

from duckrun.errors import UnsupportedFeature
from duckrun.sql.dialects import text_in
from duckrun.sql.names import parse_query, replace_tables


def in_its_lake(sql: str, what: str, database: str) -> str:
    """A view's SQL with the names of its own lake's tables, which dbt writes with their ``database``, as ``schema.name``: the name of the
    database is that of this run alone. Raises UnsupportedFeature, which says ``what`` it is, for a table of another database.
    """

    def here(table: exp.Table) -> exp.Expr | None:
        if not table.catalog:
            return None
        if table.catalog.lower() != database.lower():
            raise UnsupportedFeature(
                f"{what} reads {table.catalog}.{table.db}.{table.name}, and a view of a DuckLake's catalog reads tables of its own lake alone, as "
                "other readers know no other by that name. Materialize it as a table. Nothing was written."
            )
        return exp.table_(table.name, db=table.db, quoted=True)

    return text_in(replace_tables(parse_query(sql, "duckdb"), here), "duckdb")
