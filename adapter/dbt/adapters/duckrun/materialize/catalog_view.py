"""The SQL of a view in a catalog, in names that every reader of the catalog understands."""

from __future__ import annotations

from duckrun.errors import UnsupportedFeature
from duckrun.libraries import exp
from duckrun.sql.on_demand import parse_query, replace_tables, scopes, text_in


def in_its_lake(sql: str, what: str, database: str) -> str:
    """Return a view's SQL with its own lake's tables as ``schema.name``.

    dbt writes their database too, but only this run knows that name.

    Args:
        sql: The view's SQL.
        what: The subject of the error text.
        database: The name of the lake's database in this run.

    Raises:
        UnsupportedFeature: The view reads a table of another database.
    """

    def here(table: exp.Table) -> exp.Expr | None:
        if not table.catalog:
            return None
        if table.catalog.lower() != database.lower():
            raise UnsupportedFeature(
                f"{what} reads {table.catalog}.{table.db}.{table.name}, and a view of a DuckLake's catalog reads "
                "tables of its own lake alone, as other readers know no other by that name. Materialize it as a "
                "table"
            )
        return exp.table_(table.name, db=table.db, quoted=True)

    return text_in(replace_tables(parse_query(sql, "duckdb"), here, scopes.Names.of_lake(database)), "duckdb")
