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


def untranslated(what: str, otherwise: str = "") -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{what} is not translated to Spark's SQL", remedy=f"{otherwise}run this with engine: duckdb"
    )


def untranslated_to_duckdb(what: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{what} is not translated to DuckDB's SQL; write it in DuckDB's dialect, or run this with engine: spark."
    )
