"""A SELECT as two nested ones: DuckDB computes in one step what Spark needs a subquery for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from duckrun.sql.building import untranslated

_OUTERMOST = ("with_", "distinct", "order", "limit", "offset")  # clauses that apply after the rows are computed


class Layers:
    """An inner and an outer query for one SELECT.

    The inner query computes the rows, with extra columns for the outer one. The outer query orders
    and limits them.
    """

    def __init__(self, select: exp.Select) -> None:
        self.select = select
        self.inner = select.copy()
        self.names: list[str] = []
        """Names of the added columns."""
        named_items = (
            item for item in select.expressions if isinstance(item, exp.Alias | exp.Column) and not item.is_star
        )
        self.results = {item.alias_or_name.lower() for item in named_items}
        for key in _OUTERMOST:
            self.inner.set(key, None)

    def added(self, node: exp.Expr) -> exp.Column:
        """Add an expression to the inner query as a column; return its name for the outer one."""
        name = f"_added_{len(self.names)}"
        self.names.append(name)
        self.inner.append("expressions", exp.alias_(node.copy(), name, quoted=True))
        return named(name)

    def over(self, node: Any, instead: Callable[[Any], exp.Expr | None]) -> exp.Expr:
        """Return an expression of the outer query, and add the columns it needs to the inner one.

        Args:
            node: the expression in terms of the inner query.
            instead: returns a replacement for a node, or None to add the node.
        """
        replacement = instead(node)
        if replacement is not None:
            return replacement
        if isinstance(node, exp.Column | exp.Query | exp.AggFunc | exp.Window):
            return self.added(node)
        rebuilt = node.copy()
        for place, child in enumerate(list(node.iter_expressions())):
            list(rebuilt.iter_expressions())[place].replace(self.over(child, instead))
        return rebuilt

    def result(self, node: Any) -> exp.Expr | None:
        """Return a column that names a result of the outer query; None for another node."""
        is_result = isinstance(node, exp.Column) and not node.table and node.name.lower() in self.results
        return node.copy() if is_result else None

    def outer(self, results: list[exp.Expr], rows: exp.Query) -> exp.Select:
        """Return the outer query over rows of the inner one."""
        outer = exp.Select(expressions=results)
        for key in _OUTERMOST:
            part = self.select.args.get(key)
            outer.set(key, None if part is None else part.copy())
        order = outer.args.get("order")
        for key in [] if order is None else order.expressions:
            if not isinstance(key.this, exp.Literal):  # the number of a column
                key.set("this", self.over(key.this, self.result))
        return outer.from_(exp.Subquery(this=rows, alias=exp.TableAlias(this=exp.to_identifier("_rows"))), copy=False)


def named(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


def qualified(select: exp.Select) -> exp.Expr:
    """Translate QUALIFY, and DISTINCT ON (the first row of each group).

    Both filter by window functions in an outer query.
    """
    distinct = select.args.get("distinct")
    on = None if distinct is None else distinct.args.get("on")
    qualify = select.args.get("qualify")
    if on is None and qualify is None:
        return select
    if on is not None and qualify is not None:
        raise untranslated("DISTINCT ON beside QUALIFY", "use an inner query, or ")
    layers = Layers(select)
    layers.inner.set("qualify", None)
    conditions = [] if qualify is None else [layers.over(qualify.this, layers.result)]
    if on is not None:
        keys = on.expressions if isinstance(on, exp.Tuple) else [on]
        order = select.args.get("order") or exp.Order(expressions=[exp.Ordered(this=key.copy()) for key in keys])
        first = exp.Window(this=exp.RowNumber(), partition_by=[key.copy() for key in keys], order=order.copy())
        conditions.append(exp.EQ(this=layers.added(first), expression=exp.Literal.number(1)))
    outer = layers.outer([], layers.inner)
    if on is not None:
        outer.set("distinct", None)
    outer.set("expressions", [exp.Star(except_=[named(name) for name in layers.names])])
    return outer.where(*conditions, copy=False)
