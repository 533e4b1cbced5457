"""A SELECT as one inside of another: for what DuckDB computes in one step and Spark has no place for in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from duckrun.sql.building import untranslated

_OUTERMOST = ("with_", "distinct", "order", "limit", "offset")  # what comes after the rows are computed


class Layers:
    """The inner query gives the rows, with columns added that the outer one needs; the outer one orders and cuts them."""

    def __init__(self, select: exp.Select) -> None:
        self.select = select
        self.inner = select.copy()
        self.names: list[str] = []
        """Of the columns that were added."""
        named_items = (
            item for item in select.expressions if isinstance(item, exp.Alias | exp.Column) and not item.is_star
        )
        self.results = {item.alias_or_name.lower() for item in named_items}
        for key in _OUTERMOST:
            self.inner.set(key, None)

    def added(self, node: exp.Expr) -> exp.Column:
        """An expression as a column of the inner query, and its name in the outer one."""
        name = f"_added_{len(self.names)}"
        self.names.append(name)
        self.inner.append("expressions", exp.alias_(node.copy(), name, quoted=True))
        return named(name)

    def over(self, node: Any, instead: Callable[[Any], exp.Expr | None]) -> exp.Expr:
        """An expression of the outer query: what it reads is added to the inner one, but for what ``instead`` gives."""
        given = instead(node)
        if given is not None:
            return given
        if isinstance(node, exp.Column | exp.Query | exp.AggFunc | exp.Window):
            return self.added(node)
        found = node.copy()
        for place, child in enumerate(list(node.iter_expressions())):
            list(found.iter_expressions())[place].replace(self.over(child, instead))
        return found

    def result(self, node: Any) -> exp.Expr | None:
        """A column by the name that the outer query gives it."""
        is_result = isinstance(node, exp.Column) and not node.table and node.name.lower() in self.results
        return node.copy() if is_result else None

    def outer(self, results: list[exp.Expr], rows: exp.Query) -> exp.Select:
        """The outer query, over rows of the inner one."""
        outer = exp.Select(expressions=results)
        for key in _OUTERMOST:
            part = self.select.args.get(key)
            outer.set(key, None if part is None else part.copy())
        order = outer.args.get("order")
        for key in [] if order is None else order.expressions:
            if not isinstance(key.this, exp.Literal):  # the number of a column
                key.set("this", self.over(key.this, self.result))
        return outer.from_(exp.Subquery(this=rows, alias=exp.TableAlias(this=exp.to_identifier("_rows"))), copy=False)

    def all_but_added(self) -> exp.Star:
        return exp.Star(except_=[named(name) for name in self.names])


def named(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


def qualified(select: exp.Select) -> exp.Expr:
    """QUALIFY, and DISTINCT ON, which is the first of each group: both filter by window functions in an outer query."""
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
    outer.set("expressions", [layers.all_but_added()])
    return outer.where(*conditions, copy=False)
