"""Change queries in SQL: the function ``changes()`` and Spark's ``table_changes()``.

An example is ``FROM changes('sales.orders', 'upsert', from_version => 3, key => ['id'])``.
"""

from __future__ import annotations

from typing import Any, cast

from sqlglot import exp

from duckrun.changes.changes import ChangeSpec
from duckrun.changes.own import FUNCTIONS, LAKE_FUNCTIONS, OwnQuery
from duckrun.errors import InvalidConfig
from duckrun.values.changes import LakeFunction, OwnFunction

_BETWEEN = ("table_changes", "table_insertions", "table_deletions")
"""Functions of the rows between two versions."""
_ARGUMENTS = {"changes": ("kind", "from_version", "to_version"), **dict.fromkeys(_BETWEEN, ("start", "end"))}
_OPTIONS = {"changes": ("from_timestamp", "key", "columns", "predicate", "commit_version", "table_id")}
_EXAMPLES = {
    "changes": "changes('sales.orders', 'upsert', from_version => 3, key => ['id'])",
    **{function: f"{function}('sales.orders', 3, 5)" for function in _BETWEEN},
}


def change_query(table: exp.Table) -> tuple[list[str], ChangeSpec | OwnQuery] | None:
    """Return the table's name and the change query of a function call; None for another function.

    Of a Delta table, ``table_changes`` is the change feed. For a DuckLake table, ``own_query``
    converts it.

    Raises:
        InvalidConfig: for arguments that the function does not take.
    """
    call = table.this
    if not isinstance(call, exp.Anonymous):
        return None
    name = call.name.lower()
    function, arguments = name.removeprefix("ducklake_"), list(call.expressions)
    has_prefix = function != name  # DuckLake's spelling: lake, schema and table are arguments
    if function in LAKE_FUNCTIONS and (has_prefix or function == "snapshots" or table.db):
        lake_name = [table.db, *map(_name, arguments)] if table.db else [_name(each) for each in arguments]
        if len(lake_name) > 1:
            raise InvalidConfig(
                f"{name}() takes the name of a lake alone; for example FROM ducklake_{function}('lake')."
            )
        return lake_name, OwnQuery(cast(LakeFunction, function))
    if has_prefix and function in FUNCTIONS:
        if len(arguments) < 4 or not all(map(_is_text, arguments[:3])):
            raise InvalidConfig(
                f"{name}() takes a lake, a schema, a table and two versions; for example FROM {name}('lake', 'main', "
                "'orders', 3, 5)."
            )
        parts, arguments = [each.name for each in arguments[:3]], arguments[2:]
    elif has_prefix or function not in _ARGUMENTS or not arguments or not _is_text(arguments[0]):
        return None
    else:
        parts = [part.name for part in exp.to_table(arguments[0].name, dialect="duckdb").parts]
        if table.db and len(parts) < 3:  # lake.table_changes('orders', 3, 5)
            parts = [table.db, *(parts if len(parts) == 2 else ("main", *parts))]
    options: dict[str, Any] = {}
    for place, argument in enumerate(arguments[1:]):
        if isinstance(argument, exp.Kwarg):
            name, value = argument.this.name.lower(), argument.expression
        elif place < len(_ARGUMENTS[function]):
            name, value = _ARGUMENTS[function][place], argument
        else:
            raise _refused(function, f"takes no argument {place + 2}")
        if name not in (*_ARGUMENTS[function], *_OPTIONS.get(function, ())):
            raise _refused(function, f"has no argument {name}")
        if name in options:
            raise _refused(function, f"is given {name} twice")
        options[name] = _value(function, name, value)
    if function in _BETWEEN:
        if "start" not in options:
            raise _refused(function, "needs the first version")
        if function != "table_changes":
            return parts, OwnQuery(cast(OwnFunction, function), options["start"], options.get("end"))
        return parts, feed_between(options["start"], options.get("end"))
    if "kind" not in options:
        raise _refused(function, "needs the kind of the changes")
    for name in ("key", "columns"):
        if isinstance(options.get(name), str):
            options[name] = (options[name],)
    options.setdefault("key", ())
    return parts, ChangeSpec(**options)


def feed_between(start: int | str, end: Any) -> ChangeSpec:
    """Return the query of a change feed between two versions or times, both included."""
    return ChangeSpec("feed", None, end, start) if isinstance(start, str) else ChangeSpec("feed", start - 1, end)


def own_query(spec: ChangeSpec) -> OwnQuery:
    """Return ``table_changes`` as DuckLake's query, from what change_query() read."""
    first = spec.from_timestamp if spec.from_version is None else spec.from_version + 1
    return OwnQuery("table_changes", first, spec.to_version)


def _name(value: exp.Expr) -> str:
    if not _is_text(value):
        raise InvalidConfig(f"{value.sql()} is no name of a lake; write it as a text, such as 'lake'.")
    return value.name


def _is_text(value: exp.Expr) -> bool:
    return isinstance(value, exp.Literal) and bool(value.is_string)


def _value(function: str, name: str, value: exp.Expr) -> Any:
    """Return a literal's Python value: a text, a whole number, a boolean, or a list of texts."""
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
    return InvalidConfig(f"{function}() {why}; for example FROM {_EXAMPLES[function]}.")
