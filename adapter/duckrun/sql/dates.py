"""Date expressions of a query: a date minus a date is a number in DuckDB, an interval in Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from duckrun.sql.scopes import sources_of

_COLUMNS = "columns"  # of a replaced table: True or False (a date?) by lower-case column
_OPEN = "open"  # of a source whose query is being looked at
_DAYS = "days"  # of a subtraction: both sides are dates
_LIKE_FIRST = (
    exp.Paren, exp.Max, exp.Min, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.First, exp.Last,
    exp.AnyValue, exp.ArgMax, exp.ArgMin, exp.Window, exp.Filter, exp.Nullif, exp.IgnoreNulls, exp.RespectNulls,
    exp.Alias,
)  # fmt: skip


def with_columns(table: exp.Expr, dates: Mapping[str, bool]) -> exp.Expr:
    """Store on a table's replacement which of its columns are dates."""
    table.meta[_COLUMNS] = {name.lower(): date for name, date in dates.items()}
    return table


def mark_days(root: exp.Expr) -> None:
    """Mark each subtraction of two dates in a tree."""
    for node in root.find_all(exp.Sub):
        if is_date(node.this) and is_date(node.expression):
            node.meta[_DAYS] = True


def gives_days(node: exp.Expr) -> bool:
    return bool(node.meta.get(_DAYS))


def is_date(node: Any) -> bool:
    """Return True for an expression that is certainly a date.

    Its form tells, or the tables of its query.
    """
    match node:
        case exp.Cast():
            return bool(node.to.this == exp.DataType.Type.DATE)
        case exp.CurrentDate() | exp.LastDay() | exp.DateFromParts():
            return True
        case exp.Column():
            return not node.is_star and _column(node.name.lower(), node.table.lower(), node.find_ancestor(exp.Query))
        case exp.Add() | exp.Sub():
            return is_date(node.this) and (isinstance(node.expression, exp.Literal) or _is_integer(node.expression))
        case exp.Case():
            return _all([*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default")])
        case exp.If():
            return _all([node.args["true"], node.args.get("false")])
        case exp.Coalesce() | exp.Greatest() | exp.Least():
            return _all([node.this, *node.expressions])
        case exp.Subquery():
            return isinstance(node.this, exp.Select) and is_date(node.this.selects[0])
    return isinstance(node, _LIKE_FIRST) and is_date(node.this)


def _all(nodes: list[Any]) -> bool:
    known = [node for node in nodes if node is not None and not isinstance(node, exp.Null)]
    return bool(known) and all(map(is_date, known))


def _is_integer(node: exp.Expr) -> bool:
    return isinstance(node, exp.Cast) and node.to.this in exp.DataType.INTEGER_TYPES


def _column(name: str, table: str, query: Any) -> bool:
    """Return True if a column is a date in its query, or else in an outer query."""
    while query is not None:
        for source in sources_of(query):
            if table in ("", source.alias_or_name.lower()):
                answer = _of_source(source, name)
                if answer is not None:
                    return answer
        query = query.parent and query.parent.find_ancestor(exp.Query)
    return False


def _of_source(source: Any, name: str) -> bool | None:
    """Return whether a source's column is a date; None if the source lacks it or is unknown."""
    if _COLUMNS in source.meta:
        return source.meta[_COLUMNS].get(name)
    if source.meta.get(_OPEN):  # reached from its own query, which does not see it
        return None
    source.meta[_OPEN] = True
    try:
        names = source.alias_column_names
        if isinstance(source, exp.Subquery):
            return _of_query(source.this, name, names)
        if isinstance(source, exp.Table) and not source.db:
            query, columns = _cte(source)
            return _of_query(query, name, names or columns)
        return None
    finally:
        del source.meta[_OPEN]


def _of_query(query: Any, name: str, names: list[str]) -> bool | None:
    """Return whether a column of a query's result is a date.

    Args:
        query: the query.
        name: the column in lower case.
        names: the column names of the query's alias, which override its own.
    """
    if isinstance(query, exp.Subquery):
        return _of_query(query.this, name, names)
    if isinstance(query, exp.SetOperation):
        sides = [_of_query(side, name, names or query.left.named_selects) for side in (query.left, query.right)]
        return None if None in sides else all(sides)
    if not isinstance(query, exp.Select):
        return None
    if names and not query.is_star:
        at = [each.lower() for each in names].index(name) if name in map(str.lower, names) else len(query.selects)
        return is_date(query.selects[at]) if at < len(query.selects) else None
    for item in query.selects:
        if not item.is_star:
            if item.alias_or_name.lower() == name:
                return is_date(item)
        elif not _changes(item):
            table = item.table.lower() if isinstance(item, exp.Column) else ""
            for source in sources_of(query):
                answer = _of_source(source, name) if table in ("", source.alias_or_name.lower()) else None
                if answer is not None:
                    return answer
    return None


def _changes(star: Any) -> bool:
    whole = star.this if isinstance(star, exp.Column) else star
    return bool(whole.args.get("replace") or whole.args.get("rename"))


def _cte(table: exp.Table) -> tuple[Any, list[str]]:
    """Return the query and the column names of a common table expression.

    A name means the nearest one defined before it, or the first rows of the recursive one around
    it.
    """
    inside, node = None, table.parent
    while node is not None:
        if isinstance(node, exp.CTE):
            inside = node
        with_ = node.args.get("with_") or exp.With(expressions=[])
        for cte in with_.expressions:
            is_meant, is_around = cte.alias.lower() == table.name.lower(), cte is inside
            if is_meant and not is_around:
                return cte.this, cte.alias_column_names
            if is_meant and with_.args.get("recursive") and isinstance(cte.this, exp.SetOperation):
                return cte.this.left, cte.alias_column_names
            if is_around:
                break
        node = node.parent
    return None, []
