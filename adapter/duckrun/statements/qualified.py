"""Texts that a lake keeps, with the names in them as they mean in any session."""

from __future__ import annotations

from sqlglot import exp

from duckrun.lake.lakes import OWN_CATALOGS
from duckrun.sql.names import replace_tables
from duckrun.values.snapshot import TableRef


def qualified_view(tree: exp.Expr, view: TableRef, own: str | None) -> exp.Expr:
    """A view's query with its table names in the view's own lake, and bare ones in its own schema. ``own`` is the
    catalog by which the query itself names that lake.
    """

    def qualify(table: exp.Table) -> exp.Expr | None:
        if table.catalog and table.catalog not in (own, *OWN_CATALOGS):
            return None
        named = exp.table_(table.name, db=table.db or view.schema, catalog=view.catalog or OWN_CATALOGS[0], quoted=True)
        for clause in ("when", "version"):
            named.set(clause, table.args.get(clause))
        return named

    return replace_tables(tree, qualify)
