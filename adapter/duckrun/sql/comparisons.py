"""Comparisons that the engines make by other rules: of texts with numbers, and of structs.

Sources: Spark, ANSI Compliance, Type Promotion; DuckDB, Typecasting and Struct Functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from sqlglot import exp

from duckrun.libraries import pa
from duckrun.sql.building import call, spark_sql, untranslated
from duckrun.sql.kinds import fields_of, is_named, kind_of
from duckrun.sql.pieces import dialect_of, read_in

_PAIRS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_WHOLE = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
_DECIMAL = re.compile(r"\s*[+-]?\d+(\.\d+)?\s*", re.ASCII)
_EXACT = 15
"""Digits that a DOUBLE keeps: comparing such decimals as DOUBLEs or as decimals is the same."""

Operand = tuple[exp.Expr, Any]
"""A value of a comparison and its Arrow type."""
Rule = Callable[[Sequence[Operand]], list[exp.Expr]]
"""Returns the values for the other dialect; those that stay are the same nodes."""


def compare_as_spark(root: exp.Expr) -> None:
    """Make DuckDB compare the values of a tree in Spark's dialect as Spark does."""
    _rewrite(root, "spark", lambda operands: _by_position(_as_doubles(operands)), _renamed)


def compare_as_duckdb(root: exp.Expr) -> None:
    """Make Spark compare the values of a tree in DuckDB's dialect as DuckDB does.

    Raises:
        UnsupportedFeature: for structs with different fields.
    """
    _rewrite(root, "duckdb", lambda operands: _by_name(_as_decimals(operands)), _by_name)


def _rewrite(root: exp.Expr, dialect: str, compared: Rule, combined: Rule) -> None:
    """Apply a rule to the comparisons of a dialect, and another one to UNION and its like."""
    nodes = root.find_all(*_PAIRS, exp.Between, exp.Case, exp.In, exp.Nullif, exp.SetOperation)
    # All types are read before a node changes: a type may come from another node.
    typed = [
        (node, [[kind_of(value) for value in group] for group in _groups(node)])
        for node in nodes
        if dialect_of(node) == dialect
    ]
    for node, kinds in reversed(typed):
        rule = combined if isinstance(node, exp.SetOperation) else compared
        groups = _groups(node)
        results = [rule(list(zip(*group, strict=True))) for group in zip(groups, kinds, strict=True)]
        pairs = [pair for group in zip(groups, results, strict=True) for pair in zip(*group, strict=True)]
        if any(old is not new for old, new in pairs):
            _replace(node, pairs)


def _groups(node: Any) -> list[list[exp.Expr]]:
    """Return the groups of values that a node compares with each other."""
    if isinstance(node, exp.Between):
        return [[node.this, node.args["low"]], [node.this, node.args["high"]]]
    if isinstance(node, exp.Case):
        return [] if node.this is None else [[node.this, branch.this] for branch in node.args["ifs"]]
    if isinstance(node, exp.In):
        query = node.args.get("query")
        results = [] if query is None else _results(query)
        return [[node.this, *node.expressions, *(results if len(results) == 1 else [])]]
    if isinstance(node, exp.SetOperation):
        is_whole = not isinstance(node.parent, exp.SetOperation) and not node.args.get("by_name")
        columns = [_results(query) for query in _queries(node)] if is_whole else []
        return [list(column) for column in zip(*columns, strict=True)] if len({*map(len, columns)}) == 1 else []
    return [[node.this, node.expression]]


def _queries(node: exp.Expr) -> list[exp.Expr]:
    """Return the queries that UNION and its like combine, in their order."""
    inner = node.unnest() if isinstance(node, exp.Subquery) else node
    return [*_queries(inner.left), *_queries(inner.right)] if isinstance(inner, exp.SetOperation) else [inner]


def _results(query: exp.Expr) -> list[exp.Expr]:
    """Return the expressions of a query's columns; none if one of them is a star."""
    inner = query.unnest() if isinstance(query, exp.Subquery) else query
    items = inner.selects if isinstance(inner, exp.Select) else []
    return [] if any(item.is_star for item in items) else [item.unalias() for item in items]


def _replace(node: Any, pairs: Sequence[tuple[exp.Expr, exp.Expr]]) -> None:
    if isinstance(node, exp.Between):
        (_, left), (_, low), (_, right), (_, high) = pairs
        limits = exp.GTE(this=left.copy(), expression=low.copy()), exp.LTE(this=right.copy(), expression=high.copy())
        node.replace(exp.paren(exp.and_(*limits, copy=False), copy=False))
    elif isinstance(node, exp.Case):
        for branch, (_, value), (_, other) in zip(node.args["ifs"], pairs[::2], pairs[1::2], strict=True):
            branch.set("this", exp.EQ(this=value.copy(), expression=other.copy()))
        node.set("this", None)
    elif isinstance(node, exp.Nullif):  # its result is the unchanged value
        (value, left), (_, right) = pairs
        is_same = exp.EQ(this=left.copy(), expression=right.copy())
        node.replace(exp.Case(ifs=[exp.If(this=is_same, true=exp.null())], default=value.copy()))
    else:
        for old, new in pairs:
            if old is not new:
                old.replace(new)


# -- texts and numbers


def _as_doubles(operands: Sequence[Operand]) -> Sequence[Operand]:
    """Compare a text with an integer by BIGINTs, and with another number by DOUBLEs, as Spark does.

    DuckDB would cast the text to the type of the number: '1.254' to 1.25, and '7.4' to 7.
    """
    numbers = _numbers(operands)
    if all(map(pa.types.is_integer, numbers)):
        return _with_texts(operands, partial(_integer, dialect="spark")) if numbers else operands
    digits = [_digits(kind) for kind in numbers]
    if all(0 < precision <= _EXACT for precision, _ in digits) and all(map(_is_exact, operands)):
        # DuckDB skips files by a comparison with a decimal. The result is that of DOUBLEs.
        return _with_texts(operands, lambda text: text if _fits(text, digits) else _number(Decimal(text.name.strip())))
    if all(map(pa.types.is_float64, numbers)):  # DuckDB casts a literal to DOUBLE
        return _with_texts(operands, lambda text: text if isinstance(text, exp.Literal) else _double(text))
    return _with_texts(operands, _double)


def _as_decimals(operands: Sequence[Operand]) -> Sequence[Operand]:
    """Cast a text to the type of the number that it is compared with, as DuckDB does.

    Spark would compare them as BIGINTs or DOUBLEs.
    """
    numbers = _numbers(operands)
    if all(map(pa.types.is_integer, numbers)):
        # Spark raises an error for a column's text with a fraction.
        return _with_texts(operands, _rounded) if numbers else operands
    digits = [_digits(kind) for kind in numbers]
    scale = max(behind for _, behind in digits)
    precision = max(whole - behind for whole, behind in digits) + scale
    if precision > 38 or not all(whole for whole, _ in digits):
        return operands
    return _with_texts(operands, lambda text: exp.cast(text.copy(), f"decimal({precision}, {scale})"))


def _numbers(operands: Sequence[Operand]) -> list[Any]:
    """Return the types of the numbers that are compared with a text."""
    kinds = [kind for _, kind in operands]
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    is_mixed = any(map(pa.types.is_string, kinds))
    return [kind for kind in kinds if is_mixed and any(test(kind) for test in tests)]


def _with_texts(operands: Sequence[Operand], change: Callable[[exp.Expr], exp.Expr]) -> list[Operand]:
    return [(change(value) if pa.types.is_string(kind) else value, kind) for value, kind in operands]


def _digits(kind: Any) -> tuple[int, int]:
    """Return the digits of a number, and those behind its point; zeros for a DOUBLE."""
    if pa.types.is_decimal(kind):
        return kind.precision, kind.scale
    return (len(str(2 ** (kind.bit_width - 1))), 0) if pa.types.is_integer(kind) else (0, 0)


def _is_exact(operand: Operand) -> bool:
    """Return False for a text that is no literal, or none of a short decimal."""
    value, kind = operand
    is_short = isinstance(value, exp.Literal) and bool(_DECIMAL.fullmatch(value.name)) and len(value.name) <= _EXACT
    return is_short or not pa.types.is_string(kind)


def _fits(text: exp.Expr, digits: Sequence[tuple[int, int]]) -> bool:
    """Return True for a text that decimals of these digits represent exactly."""
    whole, _, behind = text.name.strip(" +-").partition(".")
    needed = len(whole.lstrip("0")), len(behind.rstrip("0"))
    return all(needed[0] <= precision - scale and needed[1] <= scale for precision, scale in digits)


def _number(value: Decimal) -> exp.Expr:
    literal = exp.Literal.number(f"{abs(value)}")
    return exp.Neg(this=literal) if value < 0 else literal


def _double(text: exp.Expr) -> exp.Expr:
    return exp.cast(text.copy(), "double")


def _integer(text: exp.Expr, dialect: str) -> exp.Expr:
    """Cast a text by the rule of a dialect: Spark takes only digits, DuckDB rounds a fraction."""
    if isinstance(text, exp.Literal) and _WHOLE.fullmatch(text.name):
        return text
    return read_in(exp.cast(text.copy(), "bigint"), dialect)


def _rounded(text: exp.Expr) -> exp.Expr:
    return _integer(text, "duckdb") if isinstance(text, exp.Literal) else text


# -- structs


def _by_position(operands: Sequence[Operand]) -> list[exp.Expr]:
    """Compare structs by position as Spark does: DuckDB compares one without names so."""
    first = next((kind for value, kind in operands if fields_of(kind) and not _is_built(value)), pa.null())
    return [_unnamed(value) if _is_built(value) or not _has_names(kind, first) else value for value, kind in operands]


def _renamed(operands: Sequence[Operand]) -> list[exp.Expr]:
    """Combine structs by position under the names of the first query."""
    first = operands[0][1]
    return [value if _has_names(kind, first) else _unnamed(value) for value, kind in operands]


def _by_name(operands: Sequence[Operand]) -> list[exp.Expr]:
    """Compare and combine structs by name as DuckDB does: Spark needs one order of the fields."""
    first = next((kind for _, kind in operands if fields_of(kind)), pa.null())
    return [value if _has_names(kind, first) else _ordered(value, kind, first) for value, kind in operands]


def _is_built(value: exp.Expr) -> bool:
    return isinstance(value.unnest(), exp.Struct)


def _has_names(kind: Any, other: Any) -> bool:
    """Return False for structs whose fields have other names, or another order."""
    fields, others = fields_of(kind), fields_of(other)
    return not (fields and others) or (
        len(fields) == len(others)
        and all(is_named(a, b.name) and _has_names(a.type, b.type) for a, b in zip(fields, others, strict=True))
    )


def _unnamed(value: exp.Expr) -> exp.Expr:
    """Return a struct of DuckDB without names. The names stay in the text: it may lose no word."""
    struct = value.copy()
    parts = struct.unnest().expressions if isinstance(struct.unnest(), exp.Struct) else []
    for part in (each.expression for each in parts if isinstance(each, exp.PropertyEQ)):
        if isinstance(part.unnest(), exp.Struct):
            part.replace(_unnamed(part))
    return call("struct_values", struct)


def _ordered(value: exp.Expr, kind: Any, like: Any) -> exp.Expr:
    """Return a struct of Spark with its fields in the order of another one.

    Raises:
        UnsupportedFeature: for other fields. DuckDB adds the missing ones as NULL.
    """
    fields, others = fields_of(kind), fields_of(like)
    if not (fields and others):
        return value
    struct = value.unnest()
    places = {field.name.lower(): place for place, field in enumerate(fields)}
    if len(fields) != len(others) or any(field.name.lower() not in places for field in others):
        names = [", ".join(field.name for field in each) for each in (others, fields)]
        raise untranslated(
            f"A struct with the fields {names[0]} beside one with {names[1]}", "name the same fields, or "
        )
    parts: list[exp.Expr] = []
    for other in others:
        place = places[other.name.lower()]
        part = struct.expressions[place].expression if _is_built(value) else _field(value, fields[place].name)
        parts += [exp.Literal.string(other.name), _ordered(part.copy(), fields[place].type, other.type)]
    ordered = call("named_struct", *parts)
    return (
        ordered if isinstance(struct, exp.Struct) else spark_sql("if(x IS NULL, NULL, whole)", x=value, whole=ordered)
    )


def _field(value: exp.Expr, name: str) -> exp.Expr:
    return exp.Dot(this=value.copy(), expression=exp.to_identifier(name, quoted=True))
