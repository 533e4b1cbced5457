"""Change queries in SQL: ``FROM changes('sales.orders', 'upsert', from_version => 3, key => ['id'])``, and Spark's ``table_changes``."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from duckrun.changes.changes import ChangeSpec
from duckrun.errors import InvalidConfig

_ARGUMENTS = {
    "changes": ("kind", "from_version", "to_version"),
    "table_changes": ("start", "end"),
}
_OPTIONS = {
    "changes": ("from_timestamp", "key", "columns", "predicate", "commit_version"),
    "table_changes": (),
}
_EXAMPLE = {
    "changes": "changes('sales.orders', 'upsert', from_version => 3, key => ['id'])",
    "table_changes": "table_changes('sales.orders', 3, 5)",
}


def change_query(table: exp.Table) -> tuple[list[str], ChangeSpec] | None:
    """The parts of the table's name, and what is asked; None for another function. Raises InvalidConfig for arguments that it does
    not take.
    """
    call = table.this
    function = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    if function not in _ARGUMENTS or not call.expressions or not _is_text(call.expressions[0]):
        return None
    given: dict[str, Any] = {}
    for place, argument in enumerate(call.expressions[1:]):
        if isinstance(argument, exp.Kwarg):
            name, value = argument.this.name.lower(), argument.expression
        elif place < len(_ARGUMENTS[function]):
            name, value = _ARGUMENTS[function][place], argument
        else:
            raise _refused(function, f"takes no argument {place + 2}")
        if name not in (*_ARGUMENTS[function], *_OPTIONS[function]):
            raise _refused(function, f"has no argument {name}")
        if name in given:
            raise _refused(function, f"is given {name} twice")
        given[name] = _value(function, name, value)
    parts = [part.name for part in exp.to_table(call.expressions[0].name, dialect="duckdb").parts]
    if function == "table_changes":
        if "start" not in given:
            raise _refused(function, "needs the first version")
        first = given["start"]
        if isinstance(first, str):
            return parts, ChangeSpec("feed", from_timestamp=first, to_version=given.get("end"))
        return parts, ChangeSpec("feed", first - 1, given.get("end"))
    if "kind" not in given:
        raise _refused(function, "needs the kind of the changes")
    for name in ("key", "columns"):
        if isinstance(given.get(name), str):
            given[name] = (given[name],)
    given.setdefault("key", ())
    return parts, ChangeSpec(**given)


def _is_text(value: exp.Expr) -> bool:
    return isinstance(value, exp.Literal) and bool(value.is_string)


def _value(function: str, name: str, value: exp.Expr) -> Any:
    """A literal as Python has it: a text, a whole number, a truth value, or a list of texts."""
    if _is_text(value):
        return value.name
    if isinstance(value, exp.Literal | exp.Neg):
        number = value.this if isinstance(value, exp.Neg) else value
        if isinstance(number, exp.Literal) and number.is_int:
            return int(number.this) * (-1 if isinstance(value, exp.Neg) else 1)
    if isinstance(value, exp.Boolean):
        return bool(value.this)
    if isinstance(value, exp.Null):
        return None
    if isinstance(value, exp.Array) and all(map(_is_text, value.expressions)):
        return tuple(each.name for each in value.expressions)
    raise _refused(function, f"takes a literal for {name}, not {value.sql()}")


def _refused(function: str, why: str) -> InvalidConfig:
    return InvalidConfig(f"{function}() {why}; for example FROM {_EXAMPLE[function]}.")
