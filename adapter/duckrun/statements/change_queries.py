"""Change queries in SQL: ``FROM changes('sales.orders', 'upsert', from_version => 3, key => ['id'])``, and Spark's ``table_changes``."""

from __future__ import annotations

from typing import Any, cast

from sqlglot import exp

from duckrun.changes.changes import ChangeSpec
from duckrun.changes.own import FUNCTIONS, LAKE_FUNCTIONS, OwnQuery
from duckrun.errors import InvalidConfig
from duckrun.values.changes import LakeFunction, OwnFunction

_ARGUMENTS = {
    "changes": ("kind", "from_version", "to_version"),
    "table_changes": ("start", "end"),
    "table_insertions": ("start", "end"),
    "table_deletions": ("start", "end"),
}
_OPTIONS = {
    "changes": ("from_timestamp", "key", "columns", "predicate", "commit_version", "table_id"),
    "table_changes": (),
    "table_insertions": (),
    "table_deletions": (),
}
_EXAMPLE = {
    "changes": "changes('sales.orders', 'upsert', from_version => 3, key => ['id'])",
    "table_changes": "table_changes('sales.orders', 3, 5)",
    "table_insertions": "table_insertions('sales.orders', 3, 5)",
    "table_deletions": "table_deletions('sales.orders', 3, 5)",
}


def change_query(table: exp.Table) -> tuple[list[str], ChangeSpec | OwnQuery] | None:
    """The parts of the table's name, and what is asked; None for another function. Raises InvalidConfig for arguments that it does
    not take. ``table_changes`` is of a Delta table the change feed, and of a DuckLake table what own_query() makes of it.
    """
    call = table.this
    if not isinstance(call, exp.Anonymous):
        return None
    name = call.name.lower()
    function, arguments = name.removeprefix("ducklake_"), list(call.expressions)
    own = function != name  # DuckLake's own spelling: the lake, the schema and the table are arguments
    if function in LAKE_FUNCTIONS and (own or function == "snapshots" or table.db):
        said = [table.db, *map(_name, arguments)] if table.db else [_name(each) for each in arguments]
        if len(said) > 1:
            raise InvalidConfig(
                f"{name}() takes the name of a lake alone; for example FROM ducklake_{function}('lake')."
            )
        return said, OwnQuery(cast(LakeFunction, function))
    if own and function in FUNCTIONS:
        if len(arguments) < 4 or not all(map(_is_text, arguments[:3])):
            raise InvalidConfig(
                f"{name}() takes a lake, a schema, a table and two versions; for example FROM {name}('lake', 'main', 'orders', 3, 5)."
            )
        parts, arguments = [each.name for each in arguments[:3]], arguments[2:]
    elif own or function not in _ARGUMENTS or not arguments or not _is_text(arguments[0]):
        return None
    else:
        parts = [part.name for part in exp.to_table(arguments[0].name, dialect="duckdb").parts]
        if table.db and len(parts) < 3:  # lake.table_changes('orders', 3, 5)
            parts = [table.db, *(parts if len(parts) == 2 else ("main", *parts))]
    given: dict[str, Any] = {}
    for place, argument in enumerate(arguments[1:]):
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
    if function.startswith("table_"):
        if "start" not in given:
            raise _refused(function, "needs the first version")
        if function in ("table_insertions", "table_deletions"):
            return parts, OwnQuery(cast(OwnFunction, function), given["start"], given.get("end"))
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


def own_query(spec: ChangeSpec) -> OwnQuery:
    """``table_changes`` as DuckLake has it, of what change_query() read."""
    first = spec.from_timestamp if spec.from_version is None else spec.from_version + 1
    return OwnQuery("table_changes", first, spec.to_version)


def _name(value: exp.Expr) -> str:
    if not _is_text(value):
        raise InvalidConfig(f"{value.sql()} is no name of a lake; write it as a text, such as 'lake'.")
    return value.name


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
