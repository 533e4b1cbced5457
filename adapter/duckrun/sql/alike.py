"""Expressions of Spark's SQL that mean the same in DuckDB's: those that are made of parts of which both say the same for all values.

A table keeps such an expression, and each writer computes it: rows of two engines differ where these do, and nobody sees it. So
what is not known to be the same is left to Spark. ``tests/differential/test_alike.py`` compares each part on both engines.
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
    exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In,
    exp.Is, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Null, exp.Boolean, exp.Literal, exp.Column, exp.Identifier, exp.Coalesce,
    exp.Lower, exp.Upper, exp.Length,
)  # fmt: skip

Kind = str | None
"""Delta's name of the type that both engines give an expression; ``null`` for NULL alone, None where the two may differ."""

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
"""What a type may be cast to, from which: other casts round, or spell values in ways of their own."""
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_DIGITS = {"byte": (3, 0), "short": (5, 0), "integer": (10, 0), "long": (20, 0)}
_FORMAT = frozenset("%YmdHMS-/: _.T")
_UNITS_OF_DATES = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK"})
_UNITS = _UNITS_OF_DATES | {"DAY", "HOUR", "MINUTE", "SECOND"}
_PARTS_OF_DATES = (exp.Year, exp.Month, exp.Day, exp.Quarter)
_PARTS_OF_TIMES = (exp.Hour, exp.Minute)


def duckdb_of(expression: str, kinds: Mapping[str, str]) -> str | None:
    """An expression of Spark's SQL over columns of these types (Delta's names) in DuckDB's; None where the two may differ."""
    try:
        tree = tree_in(expression, "spark")
        if any(token.text.upper() == "TRY_CAST" for token in tokens_in(expression, "spark")):
            return None  # in the tree it is the same as CAST
    except SqlglotError:
        return None
    if _kind(tree, {name.lower(): kind for name, kind in kinds.items()}) is None:
        return None
    try:
        return text_in(tree.transform(_in_duckdb), "duckdb")
    except DuckrunError:  # names what it has no words for
        return None


def is_same_in_all(tree: exp.Expr) -> bool:
    """True for a condition that DuckDB, Spark and DataFusion (delta_rs) take for the same: no functions but a few, and no casts."""
    return all(
        (isinstance(part, _IN_ALL) or _is_date(part)) and not (isinstance(part, exp.Column) and part.table)
        for part in tree.walk()
    )


def _is_date(part: exp.Expr) -> bool:
    """True for a date as a literal, and for what it is made of."""
    cast = part.parent if isinstance(part, exp.DataType) else part
    return isinstance(cast, exp.Cast) and cast.is_type("date") and isinstance(cast.this, exp.Literal)


def kind_of(expression: str, kinds: Mapping[str, str]) -> Kind:
    """The type of an expression that ``duckdb_of`` gives; ``null`` for NULL alone."""
    return _kind(tree_in(expression, "spark"), {name.lower(): kind for name, kind in kinds.items()})


def becomes(expression: str, kind: str) -> bool:
    """True if the value of an expression over no columns can be stored in a column of a type (Delta's name)."""
    tree, found = tree_in(expression, "spark").unnest(), kind_of(expression, {})
    if found in ("null", kind):
        return True
    if kind in _BITS and found in _BITS:
        value = tree.this.unnest() if isinstance(tree, exp.Neg) else tree
        if isinstance(value, exp.Literal):
            number = -int(value.name) if isinstance(tree, exp.Neg) else int(value.name)
            return -(2 ** (_BITS[kind] - 1)) <= number < 2 ** (_BITS[kind] - 1)
        return _BITS[str(found)] <= _BITS[kind]
    if isinstance(tree, exp.Literal) and tree.is_string:
        return kind in _TIMES and _is_time(tree.name, kind)
    if kind in ("float", "double") or kind.startswith("decimal"):
        return found in _BITS or (found or "").startswith("decimal") or (kind, found) == ("float", "double")
    return kind == "string" or (kind in ("timestamp", "timestamp_ntz") and found in _TIMES)


def depends_on_time(expression: str) -> bool:
    """True for an expression of Spark's SQL that gives another value when it is computed again."""
    return any(map(_is_now, tree_in(expression, "spark").walk()))


def _is_now(node: exp.Expr) -> bool:
    named = isinstance(node, exp.Anonymous) and node.name.upper() == "NOW" and not node.expressions
    return named or isinstance(node, exp.CurrentTimestamp | exp.CurrentDate)


def _in_duckdb(node: exp.Expr) -> exp.Expr:
    """A part with what Spark means by it: a cast that fails raises an error, and spaces alone are trimmed."""
    if type(node) is exp.TryCast:
        return exp.Cast(this=node.this, to=node.to)
    if isinstance(node, exp.Trim):
        node.set("expression", exp.Literal.string(" "))
    path = _path(node)
    if len(path) > 1:  # s.a would be the column a of rows that are called s
        value: exp.Expr = exp.column(path[0], quoted=True)
        for field in path[1:]:
            value = exp.Anonymous(this="struct_extract", expressions=[value, exp.Literal.string(field)])
        return value
    return node


def _path(node: exp.Expr) -> list[str]:
    """The names of a column, or of a field of a column of structs; empty for anything else."""
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts]
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier) and (outer := _path(node.this)):
        return [*outer, node.expression.name]
    return []


def _kind(node: exp.Expr, columns: Mapping[str, str]) -> Kind:
    """The type of an expression made of parts that are alike; None for another."""
    rule = _RULES.get(type(node))
    return None if rule is None else rule(node, lambda inner: _kind(inner, columns), columns)


Rule = Callable[[Any, Callable[[exp.Expr], Kind], Mapping[str, str]], Kind]


# Each rule is asked with a node, what tells the type of a node inside, and the types of the columns.


def _column(node: exp.Column | exp.Dot, kind: Callable[[exp.Expr], Kind], columns: Mapping[str, str]) -> Kind:
    """The type of a column, or of a field of a column of structs."""
    path = [name.lower() for name in _path(node)]
    found = columns.get(path[0]) if path else None
    for name in path[1:]:
        inner = json.loads(found) if found is not None and found.startswith("{") else {}
        types = {field["name"].lower(): field["type"] for field in inner.get("fields", ())}
        part = types.get(name)
        found = part if part is None or isinstance(part, str) else json.dumps(part)
    return found if found in _PLAIN or (found or "").startswith("decimal") else None


def _literal(node: exp.Literal, *_: Any) -> Kind:
    text = node.name
    if node.is_string:
        return None if "\\" in text or "\0" in text else "string"
    if re.fullmatch(r"\d+", text):
        return "integer" if int(text) < 2**31 else "long" if int(text) < 2**63 else None
    if re.fullmatch(r"\d+\.\d+", text) and len(text) <= 18:
        whole, behind = text.split(".")
        return f"decimal({len(whole.lstrip('0')) + len(behind)},{len(behind)})"
    return None


def _cast(node: exp.Cast, kind: Callable[[exp.Expr], Kind], columns: Mapping[str, str]) -> Kind:
    to, sources = _CASTS.get(node.to.this, ("", set()))
    if isinstance(node.this, exp.Literal) and node.this.is_string and to in _TIMES:
        return to if _is_time(node.this.name, to) else None
    return to if kind(node.this) in sources else None


def _is_time(text: str, kind: str) -> bool:
    """True for a text that both engines read as the same date or time: all digits of one that there is."""
    whole = r"\d{4}-\d\d-\d\d" if kind == "date" else r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{6})?"
    if not re.fullmatch(whole, text, re.ASCII):
        return False
    try:
        _ = date.fromisoformat(text) if kind == "date" else datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _common(kinds: Iterable[Kind]) -> Kind:
    """The type of values of which one is taken: one type, or whole numbers of those that both make the wider one."""
    found = set(kinds)
    if None in found:
        return None
    found -= {"null"}
    if not found:
        return "null"
    if found == {"integer", "long"}:
        return "long"
    return found.pop() if len(found) == 1 else None


def _comparable(kinds: Iterable[Kind]) -> bool:
    """True if both engines compare values of these types as one type, or do not change any when they do."""
    found = set(kinds) - {"null"}
    if None in found or not found:
        return False
    return len(found) == 1 or found <= {*_WHOLE} or found <= {"float", "double"} or _are_decimals(found)


def _are_decimals(kinds: Iterable[Kind]) -> bool:
    """True for numbers that a decimal of 38 digits holds side by side: else Spark cuts off digits to compare them."""
    found = [_DIGITS.get(kind or "") or tuple(map(int, re.findall(r"\d+", kind or ""))) for kind in kinds]
    if any(len(each) != 2 for each in found):
        return False
    return max(whole - behind for whole, behind in found) + max(behind for _, behind in found) <= 38


def _sum(node: exp.Binary, kind: Callable[[exp.Expr], Kind], columns: Mapping[str, str]) -> Kind:
    """Numbers of which both raise an error where the result is too large; the digits of decimals have rules of their own."""
    found = {kind(node.this), kind(node.expression)}
    if found <= {"integer", "long"}:
        return "long" if "long" in found else "integer"
    return "double" if found == {"double"} else None


def _negated(node: exp.Neg, kind: Callable[[exp.Expr], Kind], columns: Mapping[str, str]) -> Kind:
    found = kind(node.this)
    return found if found in ("integer", "long", "double") or isinstance(node.this, exp.Literal) else None


def _remainder(node: exp.Mod, kind: Callable[[exp.Expr], Kind], columns: Mapping[str, str]) -> Kind:
    by = node.expression
    above = isinstance(by, exp.Literal) and by.is_int and int(by.name) > 0
    return _sum(node, kind, columns) if above and kind(node.this) in ("integer", "long") else None


def _test(*of: str) -> Rule:
    """The rule of a comparison of these parts of a node."""

    def rule(node: exp.Expr, kind: Callable[[exp.Expr], Kind], columns: Mapping[str, str]) -> Kind:
        if any(node.args.get(key) for key in ("query", "unnest", "field", "symmetric")):
            return None
        parts = [node.args.get(key) for key in of]
        flat = [each for part in parts for each in (part if isinstance(part, list) else [part])]
        return "boolean" if _comparable(map(kind, flat)) else None

    return rule


def _logic(node: exp.Binary | exp.Unary, kind: Callable[[exp.Expr], Kind], columns: Mapping[str, str]) -> Kind:
    parts = [node.this, *([node.expression] if isinstance(node, exp.Binary) else [])]
    return "boolean" if {kind(part) for part in parts} == {"boolean"} else None


def _is(node: exp.Is, kind: Callable[[exp.Expr], Kind], columns: Mapping[str, str]) -> Kind:
    found = kind(node.this)
    if isinstance(node.expression, exp.Null):
        return "boolean" if found is not None else None
    return "boolean" if found == "boolean" and isinstance(node.expression, exp.Boolean) else None


def _case(node: exp.Case, kind: Callable[[exp.Expr], Kind], columns: Mapping[str, str]) -> Kind:
    ifs, default = node.args["ifs"], node.args.get("default")
    values = [kind(each.args["true"]) for each in ifs] + [kind(default) if default is not None else "null"]
    conditions = [kind(each.this) for each in ifs]
    if node.this is None:
        return _common(values) if set(conditions) == {"boolean"} else None
    return _common(values) if _comparable([kind(node.this), *conditions]) else None


def _if(node: exp.If, kind: Callable[[exp.Expr], Kind], columns: Mapping[str, str]) -> Kind:
    other = node.args.get("false")
    if kind(node.this) != "boolean" or other is None:
        return None
    return _common([kind(node.args["true"]), kind(other)])


def _joined(node: exp.Expr, kind: Callable[[exp.Expr], Kind], columns: Mapping[str, str]) -> Kind:
    parts = node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression]
    return "string" if {kind(part) for part in parts} == {"string"} else None


def _part_of_text(node: exp.Substring, kind: Callable[[exp.Expr], Kind], columns: Mapping[str, str]) -> Kind:
    start, length = node.args.get("start"), node.args.get("length")
    counted = isinstance(start, exp.Literal) and kind(start) == "integer" and int(start.name) > 0
    until = length is None or (isinstance(length, exp.Literal) and kind(length) == "integer")
    return "string" if counted and until and kind(node.this) == "string" else None


def _unwrapped(node: exp.Expr) -> exp.Expr:
    """What is inside of the casts that sqlglot puts around the arguments of functions of dates."""
    while isinstance(node, exp.TsOrDsToDate | exp.TimeStrToTime):
        node = node.this
    return node


def _of_time(to: str, *sources: str) -> Rule:
    """The rule of a function of one date or time."""
    return lambda node, kind, columns: to if kind(_unwrapped(node.this)) in sources else None


def _truncated(
    node: exp.DateTrunc | exp.TimestampTrunc, kind: Callable[[exp.Expr], Kind], columns: Mapping[str, str]
) -> Kind:
    """``trunc`` of a date, which is NULL on Spark for a unit below the week, or ``date_trunc`` of a timestamp."""
    unit, found = str(node.args["unit"].name).upper(), kind(node.this)
    if isinstance(node, exp.DateTrunc):
        return "date" if found == "date" and unit in _UNITS_OF_DATES else None
    return "timestamp" if found == "timestamp" and unit in _UNITS else None


def _formatted(node: exp.TimeToStr, kind: Callable[[exp.Expr], Kind], columns: Mapping[str, str]) -> Kind:
    given = node.args.get("format")
    alike = isinstance(given, exp.Literal) and set(given.name) <= _FORMAT
    return "string" if alike and kind(_unwrapped(node.this)) in _TIMES else None


def _extracted(node: exp.Extract, kind: Callable[[exp.Expr], Kind], columns: Mapping[str, str]) -> Kind:
    name, found = node.this.name.upper(), kind(node.expression)
    if name in ("YEAR", "QUARTER", "MONTH", "DAY"):
        return "integer" if found in _TIMES else None
    return "integer" if name in ("HOUR", "MINUTE") and found in ("timestamp", "timestamp_ntz") else None


def _inner(node: exp.Expr, kind: Callable[[exp.Expr], Kind], columns: Mapping[str, str]) -> Kind:
    return kind(node.this)


_RULES: dict[type[exp.Expr], Rule] = {
    **dict.fromkeys((exp.Column, exp.Dot), _column),
    exp.Literal: _literal,
    exp.Boolean: lambda *_: "boolean",
    exp.Null: lambda *_: "null",
    exp.Paren: _inner,
    exp.Neg: _negated,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), _sum),
    exp.Mod: _remainder,
    exp.Abs: lambda node, kind, columns: found if (found := kind(node.this)) in ("integer", "long", "double") else None,
    **dict.fromkeys((exp.And, exp.Or, exp.Not), _logic),
    **dict.fromkeys(
        (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ),
        _test("this", "expression"),
    ),
    exp.Is: _is,
    exp.In: _test("this", "expressions"),
    exp.Between: _test("this", "low", "high"),
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: lambda node, kind, columns: _common([kind(node.this), *map(kind, node.expressions)]),
    **dict.fromkeys((exp.Concat, exp.DPipe), _joined),
    exp.ConcatWs: lambda node, kind, columns: "string" if {*map(kind, node.expressions)} == {"string"} else None,
    **dict.fromkeys((exp.Cast, exp.TryCast), _cast),
    exp.Length: lambda node, kind, columns: "integer" if kind(node.this) == "string" else None,
    exp.Substring: _part_of_text,
    **dict.fromkeys(_PARTS_OF_DATES, _of_time("integer", *_TIMES)),
    **dict.fromkeys(_PARTS_OF_TIMES, _of_time("integer", "timestamp", "timestamp_ntz")),
    exp.DayOfYear: _of_time("integer", *_TIMES),
    exp.DateDiff: lambda node, kind, columns: (
        "integer"
        if {kind(_unwrapped(node.this)), kind(_unwrapped(node.expression))} <= {*_TIMES} and not node.args.get("unit")
        else None
    ),
    **dict.fromkeys((exp.DateTrunc, exp.TimestampTrunc), _truncated),
    exp.TimeToStr: _formatted,
    exp.TsOrDsToDate: lambda node, kind, columns: (
        "date" if kind(node.this) in _TIMES and node.args.get("format") is None else None
    ),
    exp.Extract: _extracted,
    exp.Trim: lambda node, kind, columns: (
        "string" if kind(node.this) == "string" and not node.expression and not node.args.get("position") else None
    ),
    exp.CurrentTimestamp: lambda node, *_: "timestamp" if node.this is None else None,
    exp.Anonymous: lambda node, *_: "timestamp" if _is_now(node) else None,
    exp.CurrentDate: lambda node, *_: "date" if node.this is None else None,
}
