"""Conditions of a query on the rows of its tables."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.sql.dialects import text_in, tree_in
from duckrun.sql.placing import set_part

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


def condition_of_target(text: str, dialect: str) -> str | None:
    """Return a condition of an UPDATE or DELETE over bare columns of the table.

    Returns:
        None if it needs other rows than the one that it is about, or if it cannot be read.
    """
    try:
        tree = exp.paren(tree_in(text, dialect))
    except SqlglotError:
        return None
    if tree.find(exp.Query):
        return None
    for column in list(tree.find_all(exp.Column)):
        if column.table.lower() not in ("", "target"):
            return None
        if column.table:
            set_part(column, "table", None)
    return text_in(tree.this, dialect)


def _has_only(node: exp.Expr, parts: frozenset[str]) -> bool:
    return all(part in parts for part, value in node.args.items() if value)
