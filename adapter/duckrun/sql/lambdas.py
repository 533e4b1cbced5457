"""Lambdas over lists: DuckDB counts the places of elements from 1, Spark from 0."""

from __future__ import annotations

from typing import Any

from sqlglot import exp


def with_places(node: Any, shift: int) -> exp.Expr:
    """Shift the place in the lambda of a ``list_transform`` or ``list_filter`` by 1 or -1."""
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
