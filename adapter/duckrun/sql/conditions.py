"""Conditions of a query on the rows of its tables."""

from __future__ import annotations

from sqlglot import exp

_OF_A_SELECT = frozenset(
    ("expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct", "qualify", "with_")
)
"""Parts of a query that see only rows that its WHERE has let through."""
_OF_A_TABLE = frozenset(("this", "db", "catalog", "alias", "when", "version"))
"""Parts of a table's name."""


def condition_on(table: exp.Table) -> exp.Expr | None:
    """Return the WHERE of the query that reads a table, if all other parts see only its rows.

    A sample is drawn before WHERE, and a join has conditions of its own. The table's alias or name
    is taken from the columns.

    Returns:
        None if there is no such condition.
    """
    source = table.parent
    query = source.parent if isinstance(source, exp.From) else None
    alias = table.args.get("alias")
    if not isinstance(query, exp.Select) or not query.args.get("where") or (alias is not None and alias.columns):
        return None
    if not _has_only(query, _OF_A_SELECT) or not _has_only(table, _OF_A_TABLE):
        return None
    name = table.alias_or_name.lower()

    def bare(node: exp.Expr) -> exp.Expr:
        is_own = isinstance(node, exp.Column) and not node.db and node.table.lower() == name
        return exp.Column(this=node.this) if is_own else node

    condition: exp.Expr = query.args["where"].this.transform(bare)
    return condition


def _has_only(node: exp.Expr, parts: frozenset[str]) -> bool:
    return all(part in parts for part, value in node.args.items() if value)
