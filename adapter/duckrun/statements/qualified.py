"""Qualified names in the SQL that a lake stores (views, macros), for use in any session."""

from __future__ import annotations

from sqlglot import exp

from duckrun.lake.lakes import OWN_CATALOGS
from duckrun.sql.names import replace_tables
from duckrun.sql.scopes import Names
from duckrun.values.snapshot import TableRef


def qualified_view(tree: exp.Expr, view: TableRef, lake_name: str | None) -> exp.Expr:
    """Qualify the table names of a view's query by its own lake and schema.

    Args:
        tree: the query.
        view: the view.
        lake_name: the catalog name that the query itself uses for its lake.
    """

    def qualify(table: exp.Table) -> exp.Expr | None:
        if table.catalog and table.catalog not in (lake_name, *OWN_CATALOGS):
            return None
        named = exp.table_(table.name, db=table.db or view.schema, catalog=view.catalog or OWN_CATALOGS[0], quoted=True)
        for clause in ("when", "version"):
            named.set(clause, table.args.get(clause))
        return named

    return replace_tables(tree, qualify, Names.of_lake(lake_name, view.catalog, *OWN_CATALOGS))
