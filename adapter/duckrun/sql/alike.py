"""Spark expressions that mean the same in DuckDB: each part gives equal results on both engines.

A table stores such an expression, and each writer computes it. If two engines differed, their rows
would differ unnoticed. So Spark evaluates every expression that is not known to be equivalent.
``tests/differential/test_alike.py`` compares each part on both engines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.errors import DuckrunError
from duckrun.sql.dialects import text_in, tokens_in, tree_in

_IN_ALL = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.GT, exp.GTE, exp.LT, exp.LTE,
    exp.Between, exp.In, exp.Is, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Null, exp.Boolean, exp.Literal, exp.Column,
    exp.Identifier, exp.Coalesce, exp.Lower, exp.Upper, exp.Length,
)  # fmt: skip

Kind = str | None
"""Delta's type name of an expression on both engines; ``null`` for NULL alone, None if the engines
may differ.
"""

_T = exp.DataType.Type
_WHOLE = ("byte", "short", "integer", "long")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_PLAIN = (*_WHOLE, "float", "double", "string", "boolean", *_TIMES)
_CASTS: dict[Any, tuple[str, set[str]]] = {
    _T.TINYINT: ("byte", {*_WHOLE}),
    _T.SMALLINT: ("short", {*_WHOLE}),
    _T.INT: ("integer", {*_WHOLE}),
    _T.BIGINT: ("long", {*_WHOLE}),
    _T.DOUBLE: ("double", {*_WHOLE, "float", "double"}),
    _T.TEXT: ("string", {*_WHOLE, "string", "date", "boolean"}),
    _T.DATE: ("date", {*_TIMES}),
    _T.TIMESTAMPTZ: ("timestamp", {*_TIMES}),
    _T.TIMESTAMPNTZ: ("timestamp_ntz", {*_TIMES}),
}
"""Target types of a cast: Delta's name and the source types allowed. Other casts round, or format
values differently.
"""
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_DIGITS = {"byte": (3, 0), "short": (5, 0), "integer": (10, 0), "long": (20, 0)}
_FORMAT = frozenset("%YmdHMS-/: _.T")
_UNITS_OF_DATES = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK"})
_UNITS = _UNITS_OF_DATES | {"DAY", "HOUR", "MINUTE", "SECOND"}
_PARTS_OF_DATES = (exp.Year, exp.Month, exp.Day, exp.Quarter)
_PARTS_OF_TIMES = (exp.Hour, exp.Minute)


def duckdb_of(expression: str, kinds: Mapping[str, str]) -> str | None:
    """Translate a Spark expression to DuckDB's SQL.

    Args:
        expression: the expression in Spark's SQL.
        kinds: Delta's type names by the columns that the expression may use.

    Returns:
        The DuckDB expression; None if the two engines may differ.
    """
    try:
        tree = tree_in(expression, "spark")
        if any(token.text.upper() == "TRY_CAST" for token in tokens_in(expression, "spark")):
            return None  # the tree does not tell it from CAST
    except SqlglotError:
        return None
    if _kind(tree, {name.lower(): kind for name, kind in kinds.items()}) is None:
        return None
    try:
        return text_in(tree.transform(_in_duckdb), "duckdb")
    except DuckrunError:  # a part has no translation
        return None


def is_same_in_all(tree: exp.Expr) -> bool:
    """Return True if DuckDB, Spark and DataFusion (delta_rs) evaluate a condition equally.

    Such a condition has no casts but dates, and few functions.
    """
    return all(
        (isinstance(part, _IN_ALL) or _is_date(part)) and not (isinstance(part, exp.Column) and part.table)
        for part in tree.walk()
    )


def _is_date(part: exp.Expr) -> bool:
    """Return True for a date literal and for its parts."""
    cast = part.parent if isinstance(part, exp.DataType) else part
    return isinstance(cast, exp.Cast) and cast.is_type("date") and isinstance(cast.this, exp.Literal)


def kind_of(expression: str, kinds: Mapping[str, str]) -> Kind:
    """Return the type of an expression that ``duckdb_of`` translates; ``null`` for NULL alone."""
    return _kind(tree_in(expression, "spark"), {name.lower(): kind for name, kind in kinds.items()})


def becomes(expression: str, kind: str) -> bool:
    """Return True if a column can store the value of a constant expression.

    Args:
        expression: an expression in Spark's SQL without columns.
        kind: Delta's type name of the column.
    """
    tree, source = tree_in(expression, "spark").unnest(), kind_of(expression, {})
    if source in ("null", kind):
        return True
    if kind in _BITS and source in _BITS:
        value = tree.this.unnest() if isinstance(tree, exp.Neg) else tree
        if isinstance(value, exp.Literal):
            number = -int(value.name) if isinstance(tree, exp.Neg) else int(value.name)
            return -(2 ** (_BITS[kind] - 1)) <= number < 2 ** (_BITS[kind] - 1)
        return _BITS[str(source)] <= _BITS[kind]
    if isinstance(tree, exp.Literal) and tree.is_string:
        return kind in _TIMES and _is_time(tree.name, kind)
    if kind in ("float", "double") or kind.startswith("decimal"):
        return source in _BITS or (source or "").startswith("decimal") or (kind, source) == ("float", "double")
    return kind == "string" or (kind in ("timestamp", "timestamp_ntz") and source in _TIMES)


def depends_on_time(expression: str) -> bool:
    """Return True for a Spark expression whose value changes when it is computed again."""
    return any(map(_is_now, tree_in(expression, "spark").walk()))


def _is_now(node: exp.Expr) -> bool:
    named = isinstance(node, exp.Anonymous) and node.name.upper() == "NOW" and not node.expressions
    return named or isinstance(node, exp.CurrentTimestamp | exp.CurrentDate)


def _in_duckdb(node: exp.Expr) -> exp.Expr:
    """Return a node with Spark's meaning: a failing cast raises, and trim() removes spaces only."""
    if type(node) is exp.TryCast:
        return exp.Cast(this=node.this, to=node.to)
    if isinstance(node, exp.Trim):
        node.set("expression", exp.Literal.string(" "))
    path = _path(node)
    if len(path) > 1:  # DuckDB would read s.a as column a of a table s
        value: exp.Expr = exp.column(path[0], quoted=True)
        for field in path[1:]:
            value = exp.Anonymous(this="struct_extract", expressions=[value, exp.Literal.string(field)])
        return value
    return node


def _path(node: exp.Expr) -> list[str]:
    """Return the names of a column, or of a field of a struct column; empty for another node."""
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts]
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier) and (outer := _path(node.this)):
        return [*outer, node.expression.name]
    return []


def _kind(node: exp.Expr, columns: Mapping[str, str]) -> Kind:
    """Return the type of an expression; None unless all its parts are equivalent."""
    if type(node) in (exp.Column, exp.Dot):
        return _column(node, columns)
    rule = _RULES.get(type(node))
    return None if rule is None else rule(node, lambda inner: _kind(inner, columns))


KindOf = Callable[[exp.Expr], Kind]
"""The type of an inner node."""
Rule = Callable[[Any, KindOf], Kind]


def _column(node: exp.Expr, columns: Mapping[str, str]) -> Kind:
    """Return the type of a column, or of a field of a struct column."""
    path = [name.lower() for name in _path(node)]
    type_name = columns.get(path[0]) if path else None
    for name in path[1:]:
        inner = json.loads(type_name) if type_name is not None and type_name.startswith("{") else {}
        types = {field["name"].lower(): field["type"] for field in inner.get("fields", ())}
        part = types.get(name)
        type_name = part if part is None or isinstance(part, str) else json.dumps(part)
    return type_name if type_name in _PLAIN or (type_name or "").startswith("decimal") else None


def _literal(node: exp.Literal, _: KindOf) -> Kind:
    text = node.name
    if node.is_string:
        return None if "\\" in text or "\0" in text else "string"
    if re.fullmatch(r"\d+", text):
        return "integer" if int(text) < 2**31 else "long" if int(text) < 2**63 else None
    if re.fullmatch(r"\d+\.\d+", text) and len(text) <= 18:
        whole, behind = text.split(".")
        return f"decimal({len(whole.lstrip('0')) + len(behind)},{len(behind)})"
    return None


def _cast(node: exp.Cast, kind: KindOf) -> Kind:
    to, sources = _CASTS.get(node.to.this, ("", set()))
    if isinstance(node.this, exp.Literal) and node.this.is_string and to in _TIMES:
        return to if _is_time(node.this.name, to) else None
    return to if kind(node.this) in sources else None


def _is_time(text: str, kind: str) -> bool:
    """Return True for a text that both engines read as the same date or time.

    It is an existing one, with all its digits.
    """
    whole = r"\d{4}-\d\d-\d\d" if kind == "date" else r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{6})?"
    if not re.fullmatch(whole, text, re.ASCII):
        return False
    try:
        _ = date.fromisoformat(text) if kind == "date" else datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _common(kinds: Iterable[Kind]) -> Kind:
    """Return the common type of CASE or COALESCE branches.

    None if the engines may coerce differently.
    """
    types = set(kinds)
    if None in types:
        return None
    types -= {"null"}
    if not types:
        return "null"
    if types == {"integer", "long"}:
        return "long"
    return types.pop() if len(types) == 1 else None


def _comparable(kinds: Iterable[Kind]) -> bool:
    """Return True if both engines compare values of these types without changing any value."""
    types = set(kinds) - {"null"}
    if None in types or not types:
        return False
    return len(types) == 1 or types <= {*_WHOLE} or types <= {"float", "double"} or _are_decimals(types)


def _are_decimals(kinds: Iterable[Kind]) -> bool:
    """Return True for numbers whose common decimal has at most 38 digits.

    Beyond that, Spark cuts off digits to compare them.
    """
    digits = [_DIGITS.get(kind or "") or tuple(map(int, re.findall(r"\d+", kind or ""))) for kind in kinds]
    if any(len(each) != 2 for each in digits):
        return False
    return max(whole - behind for whole, behind in digits) + max(behind for _, behind in digits) <= 38


def _sum(node: exp.Binary, kind: KindOf) -> Kind:
    """Return the type of a sum, difference or product; both engines raise an error on overflow."""
    # Decimals are left out: each engine has its own rule for the digits of the result.
    operands = {kind(node.this), kind(node.expression)}
    if operands <= {"integer", "long"}:
        return "long" if "long" in operands else "integer"
    return "double" if operands == {"double"} else None


def _negated(node: exp.Neg, kind: KindOf) -> Kind:
    operand = kind(node.this)
    return operand if operand in ("integer", "long", "double") or isinstance(node.this, exp.Literal) else None


def _remainder(node: exp.Mod, kind: KindOf) -> Kind:
    by = node.expression
    above = isinstance(by, exp.Literal) and by.is_int and int(by.name) > 0
    return _sum(node, kind) if above and kind(node.this) in ("integer", "long") else None


def _test(*of: str) -> Rule:
    """Return the rule of a comparison between the named arguments of a node."""

    def rule(node: exp.Expr, kind: KindOf) -> Kind:
        if any(node.args.get(key) for key in ("query", "unnest", "field", "symmetric")):
            return None
        parts = [node.args.get(key) for key in of]
        flat = [each for part in parts for each in (part if isinstance(part, list) else [part])]
        return "boolean" if _comparable(map(kind, flat)) else None

    return rule


def _all(of: str) -> Rule:
    """Return the rule of an operator that takes values of one kind and gives one of it."""
    return lambda node, kind: of if {kind(part) for part in node.iter_expressions()} == {of} else None


def _is(node: exp.Is, kind: KindOf) -> Kind:
    operand = kind(node.this)
    if isinstance(node.expression, exp.Null):
        return "boolean" if operand is not None else None
    return "boolean" if operand == "boolean" and isinstance(node.expression, exp.Boolean) else None


def _case(node: exp.Case, kind: KindOf) -> Kind:
    ifs, default = node.args["ifs"], node.args.get("default")
    values = [kind(each.args["true"]) for each in ifs] + [kind(default) if default is not None else "null"]
    conditions = [kind(each.this) for each in ifs]
    if node.this is None:
        return _common(values) if set(conditions) == {"boolean"} else None
    return _common(values) if _comparable([kind(node.this), *conditions]) else None


def _if(node: exp.If, kind: KindOf) -> Kind:
    other = node.args.get("false")
    if kind(node.this) != "boolean" or other is None:
        return None
    return _common([kind(node.args["true"]), kind(other)])


def _part_of_text(node: exp.Substring, kind: KindOf) -> Kind:
    start, length = node.args.get("start"), node.args.get("length")
    counted = isinstance(start, exp.Literal) and kind(start) == "integer" and int(start.name) > 0
    until = length is None or (isinstance(length, exp.Literal) and kind(length) == "integer")
    return "string" if counted and until and kind(node.this) == "string" else None


def _unwrapped(node: exp.Expr) -> exp.Expr:
    """Remove the casts that sqlglot puts around the arguments of date functions."""
    while isinstance(node, exp.TsOrDsToDate | exp.TimeStrToTime):
        node = node.this
    return node


def _of_time(to: str, *sources: str) -> Rule:
    """Return the rule of a function with one date or time argument."""
    return lambda node, kind: to if kind(_unwrapped(node.this)) in sources else None


def _truncated(node: exp.DateTrunc | exp.TimestampTrunc, kind: KindOf) -> Kind:
    """Return the type of ``trunc`` of a date, or of ``date_trunc`` of a timestamp."""
    unit, source = str(node.args["unit"].name).upper(), kind(node.this)
    if isinstance(node, exp.DateTrunc):
        # Spark's trunc() is NULL for a unit below the week.
        return "date" if source == "date" and unit in _UNITS_OF_DATES else None
    return "timestamp" if source == "timestamp" and unit in _UNITS else None


def _formatted(node: exp.TimeToStr, kind: KindOf) -> Kind:
    pattern = node.args.get("format")
    alike = isinstance(pattern, exp.Literal) and set(pattern.name) <= _FORMAT
    return "string" if alike and kind(_unwrapped(node.this)) in _TIMES else None


def _extracted(node: exp.Extract, kind: KindOf) -> Kind:
    name, source = node.this.name.upper(), kind(node.expression)
    if name in ("YEAR", "QUARTER", "MONTH", "DAY"):
        return "integer" if source in _TIMES else None
    return "integer" if name in ("HOUR", "MINUTE") and source in ("timestamp", "timestamp_ntz") else None


_RULES: dict[type[exp.Expr], Rule] = {
    exp.Literal: _literal,
    exp.Boolean: lambda *_: "boolean",
    exp.Null: lambda *_: "null",
    exp.Paren: lambda node, kind: kind(node.this),
    exp.Neg: _negated,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), _sum),
    exp.Mod: _remainder,
    exp.Abs: lambda node, kind: number if (number := kind(node.this)) in ("integer", "long", "double") else None,
    **dict.fromkeys((exp.And, exp.Or, exp.Not), _all("boolean")),
    **dict.fromkeys(
        (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ),
        _test("this", "expression"),
    ),
    exp.Is: _is,
    exp.In: _test("this", "expressions"),
    exp.Between: _test("this", "low", "high"),
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: lambda node, kind: _common([kind(node.this), *map(kind, node.expressions)]),
    **dict.fromkeys((exp.Concat, exp.ConcatWs, exp.DPipe), _all("string")),
    **dict.fromkeys((exp.Cast, exp.TryCast), _cast),
    exp.Length: lambda node, kind: "integer" if kind(node.this) == "string" else None,
    exp.Substring: _part_of_text,
    **dict.fromkeys(_PARTS_OF_DATES, _of_time("integer", *_TIMES)),
    **dict.fromkeys(_PARTS_OF_TIMES, _of_time("integer", "timestamp", "timestamp_ntz")),
    exp.DayOfYear: _of_time("integer", *_TIMES),
    exp.DateDiff: lambda node, kind: (
        "integer"
        if {kind(_unwrapped(node.this)), kind(_unwrapped(node.expression))} <= {*_TIMES} and not node.args.get("unit")
        else None
    ),
    **dict.fromkeys((exp.DateTrunc, exp.TimestampTrunc), _truncated),
    exp.TimeToStr: _formatted,
    exp.TsOrDsToDate: lambda node, kind: (
        "date" if kind(node.this) in _TIMES and node.args.get("format") is None else None
    ),
    exp.Extract: _extracted,
    exp.Trim: lambda node, kind: (
        "string" if kind(node.this) == "string" and not node.expression and not node.args.get("position") else None
    ),
    exp.CurrentTimestamp: lambda node, *_: "timestamp" if node.this is None else None,
    exp.Anonymous: lambda node, *_: "timestamp" if _is_now(node) else None,
    exp.CurrentDate: lambda node, *_: "date" if node.this is None else None,
}
