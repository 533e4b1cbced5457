"""What every statement's syntax tree is asked for, and how a part of it is refused by its name."""

from __future__ import annotations

from sqlglot import exp

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.statements.reading import parts_of


def unsupported(what: str) -> UnsupportedFeature:
    """The error for a statement, or a part of one, that sql() does not carry out."""
    return UnsupportedFeature(f"{what} is not supported by sql(). Nothing was run; docs/sql.md lists what is.")


def query_of(tree: exp.Expr | None, what: str) -> exp.Query:
    """The rows that a statement writes, as a query: VALUES and table names too."""
    if isinstance(tree, exp.Values | exp.Table):
        return exp.select("*").from_(tree)
    if not isinstance(tree, exp.Query):
        raise unsupported(f"{what} without a query")
    return tree


def with_ctes(query: exp.Query, outer: exp.With | None) -> exp.Query:
    """A query under the WITH of the statement that it is a part of."""
    if outer is None:
        return query
    inner = query.args.get("with_")
    ctes = [*outer.expressions, *(inner.expressions if inner else [])]
    recursive = outer.args.get("recursive") or (inner is not None and inner.args.get("recursive"))
    copy = query.copy()
    copy.set("with_", exp.With(expressions=[cte.copy() for cte in ctes], recursive=recursive))
    return copy


def refuse(tree: exp.Expr, what: str, *names: str) -> None:
    """Raise UnsupportedFeature for a clause that the tree holds and we do not carry out."""
    for name in names:
        if tree.args.get(name):
            raise unsupported(f"{what} … {name.upper().strip('_')}")


def target_of(table: exp.Expr, what: str) -> tuple[str, ...]:
    """The name of the table that a statement changes."""
    if not isinstance(table, exp.Table) or not table.name or table.args.get("joins"):
        raise unsupported(f"{what} of anything but a table")
    if table.args.get("when") or table.args.get("version"):
        raise InvalidConfig(f"{what} of an old version of {table.name}: only the newest version can be changed.")
    return parts_of(table)
