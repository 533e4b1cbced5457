"""Shared by the translation rules of both directions: builders of trees, errors, the rewriting."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from sqlglot import exp, parse_one

from duckrun.errors import UnsupportedFeature

Rule = Callable[[Any], exp.Expr]
"""Returns the translation of a node, or the node itself."""


def rewrite(root: exp.Expr, rule_of: Callable[[exp.Expr], Rule | None]) -> None:
    """Replace each node below a root by what its rule returns, from the leaves up."""
    for node in reversed(list(root.this.walk())):
        rule = rule_of(node)
        rewritten = node if rule is None else rule(node)
        if rewritten is not node:
            node.replace(rewritten)


def refusing(
    error: Callable[[str], UnsupportedFeature], what: str, where: Callable[[Any], object] = lambda node: True
) -> Rule:
    """Return a rule that raises the error of a direction, for all nodes or those of a condition."""

    def refuse(node: Any) -> exp.Expr:
        if where(node):
            raise error(what)
        return node

    return refuse


def has_one_text(value: exp.Expr) -> bool:
    """True for a literal with one text in both engines."""
    literal = value.unnest()
    return isinstance(literal, exp.Literal) and (literal.is_string or "e" not in literal.name.lower())


def call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """Return a call of a function by the name it has in the target engine."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def spark_sql(sql: str, /, **values: exp.Expr) -> exp.Expr:
    """Return a Spark expression with values for some of its names.

    >>> spark_sql("if(x < 0, 0, x)", x=exp.column("a") - 1).sql("spark")
    'IF((a - 1) < 0, 0, a - 1)'
    """
    return _with_values(_template(sql, "spark"), values)


def duckdb_sql(sql: str, /, **values: exp.Expr) -> exp.Expr:
    """Return a DuckDB expression with values for some of its names."""
    return _with_values(_template(sql, "duckdb"), values)


def spark_rule(sql: str) -> Rule:
    """Return a rule with a Spark expression over a node.

    Args:
        sql: Expression. It names the node ``node``, its operand ``x``, and a second one ``y``.
    """
    return lambda node: spark_sql(sql, node=node, x=node.this, y=node.expression)


def duckdb_rule(sql: str) -> Rule:
    """Return a rule with a DuckDB expression over a node. See spark_rule()."""
    return lambda node: duckdb_sql(sql, node=node, x=node.this, y=node.expression)


def _with_values(template: exp.Expr, values: dict[str, exp.Expr]) -> exp.Expr:
    root = exp.Paren(this=template.copy())
    for column in list(root.find_all(exp.Column)):
        if column.name in values and not column.table:
            value, around = values[column.name].copy(), column.parent
            is_operand = isinstance(around, exp.Binary | exp.Unary) and not isinstance(around, exp.Paren)
            column.replace(exp.paren(value, copy=False) if is_operand and isinstance(value, _LOOSE) else value)
    tree: exp.Expr = root.this
    return tree


_LOOSE = (exp.Binary, exp.Predicate, exp.Not)
"""Values that need brackets as an operand."""


@lru_cache(maxsize=64)
def _template(sql: str, dialect: str) -> exp.Expr:
    return parse_one(sql, dialect=dialect)


def number(value: int) -> exp.Expr:
    return exp.Neg(this=exp.Literal.number(-value)) if value < 0 else exp.Literal.number(value)


def with_places(node: Any, shift: int) -> exp.Expr:
    """Shift the place in the lambda of a ``list_transform`` or ``list_filter`` by 1 or -1.

    DuckDB counts the places of elements from 1, Spark from 0.
    """
    function = node.expression
    if not isinstance(function, exp.Lambda) or len(function.expressions) != 2:
        return node
    place = function.expressions[1].name
    operator = exp.Add if shift > 0 else exp.Sub
    for name in list(function.this.find_all(exp.Identifier)):
        around = name.parent
        is_field = isinstance(around, exp.Dot) and name.arg_key == "expression"
        is_qualified = isinstance(around, exp.Column) and bool(around.table)
        if name.name != place or is_field or is_qualified or _is_of_inner_lambda(name, function):
            continue
        counted = exp.paren(operator(this=name.copy(), expression=exp.Literal.number(abs(shift))), copy=False)
        (around if isinstance(around, exp.Column) else name).replace(counted)
    return node


def _is_of_inner_lambda(name: exp.Identifier, function: exp.Lambda) -> bool:
    around = name.parent
    while around is not None and around is not function:
        if isinstance(around, exp.Lambda) and name.name in [each.name for each in around.expressions]:
            return True
        around = around.parent
    return False


def untranslated(what: str, otherwise: str = "") -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{what} is not translated to Spark's SQL", remedy=f"{otherwise}run this with engine: duckdb"
    )


def untranslated_to_duckdb(what: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{what} is not translated to DuckDB's SQL; write it in DuckDB's dialect, or run this with engine: spark."
    )
