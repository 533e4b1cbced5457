"""Struct, list and map types as trees of fields, for the type system of any format.

A path leads into a type. Struct fields go by their names, a list's element is ``element``, and the
sides of a map are ``key`` and ``value``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from duckrun.errors import SchemaMismatch

Field = dict[str, Any]
"""``name`` and ``type`` of a part. Fields of structs may have further keys."""


class Types(Protocol):
    """Type system of a format; its module ``types`` implements this."""

    def parts(self, kind: Any) -> tuple[str, list[Field]]:
        """Return ``struct``, ``list`` or ``map`` with the parts of a type; else empty ones."""

    def rebuilt(self, kind: Any, parts: Sequence[Field]) -> Any:
        """Return a type of the same shape with other parts."""

    def spelled(self, kind: Any) -> str:
        """Return a type as text, for messages."""


def part_of(parts: Sequence[Field], name: str) -> Field | None:
    """Return a part by its name, ignoring case."""
    return next((part for part in parts if part["name"].lower() == name.lower()), None)


def spelled_path(types: Types, column: Field, path: Sequence[str]) -> tuple[str, ...]:
    """Return the path to a struct inside a column, as the types spell the names.

    Raises:
        SchemaMismatch: There is no struct at that path.
    """
    names, kind = [column["name"]], column["type"]
    for name in (*path, None):
        where = ".".join(names)
        shape, parts = types.parts(kind)
        if not shape:
            raise SchemaMismatch(f"{where} is {types.spelled(kind)}, which has no fields")
        if name is None and shape == "struct":
            break
        part = None if name is None else part_of(parts, name)
        if part is None and shape != "struct":
            raise SchemaMismatch(
                f"{where} is a {shape}, which has no fields; those inside are named by {where}.{parts[-1]['name']}"
            )
        if part is None:
            raise no_field(parts, str(name), where)
        names.append(part["name"])
        kind = part["type"]
    return tuple(names)


def no_field(fields: Sequence[Field], name: str, where: str) -> SchemaMismatch:
    """Return the error that a struct has no field of a name."""
    return SchemaMismatch(
        f"there is no field {name!r} in {where}; the fields are {', '.join(f['name'] for f in fields)}"
    )


def changed_at(types: Types, kind: Any, path: Sequence[str], change: Callable[[list[Field]], list[Field]]) -> Any:
    """Return a type after a change of the parts at a path that ``spelled_path()`` found."""

    def below(part: Field) -> Field:
        return {**part, "type": changed_at(types, part["type"], path[1:], change)} if part["name"] == path[0] else part

    _, parts = types.parts(kind)
    return types.rebuilt(kind, [below(part) for part in parts] if path else change(parts))


def paired(types: Types, kind: Any, other: Any, pair: Callable[[Field, Field], Field]) -> Any:
    """Return a type whose parts are combined with those of the same name of another type."""
    shape, parts = types.parts(kind)
    other_shape, others = types.parts(other)
    if not shape or shape != other_shape:
        return kind
    partners = [(part, part_of(others, part["name"])) for part in parts]
    return types.rebuilt(kind, [part if partner is None else pair(part, partner) for part, partner in partners])


def with_new_fields(types: Types, old: Any, new: Any) -> Any:
    """Return a type whose structs also have the additional fields of another type, at the end.

    It is the same object if there are none.
    """
    if old == new:
        return old
    shape, parts = types.parts(old)
    other_shape, incoming = types.parts(new)
    if not shape or shape != other_shape:
        return old
    grown = []
    for part in parts:
        same = part_of(incoming, part["name"])
        grown.append(part if same is None else {**part, "type": with_new_fields(types, part["type"], same["type"])})
    grown += [{**part, "nullable": True, "metadata": {}} for part in incoming if part_of(parts, part["name"]) is None]
    return old if grown == parts else types.rebuilt(old, grown)


def inside(types: Types, kind: Any) -> Iterator[Any]:
    """Yield a type and all types inside it, outer ones first."""
    yield kind
    for part in types.parts(kind)[1]:
        yield from inside(types, part["type"])


def fields_in(types: Types, kind: Any) -> Iterator[Field]:
    """Yield the fields of all structs inside a type, outer ones first."""
    shape, parts = types.parts(kind)
    for part in parts:
        if shape == "struct":
            yield part
        yield from fields_in(types, part["type"])


def with_each_field(types: Types, kind: Any, change: Callable[[Field], Field]) -> Any:
    """Return a type with a change applied to the fields of its outermost structs."""
    shape, parts = types.parts(kind)
    if not shape:
        return kind
    if shape == "struct":
        return types.rebuilt(kind, [change(part) for part in parts])
    return types.rebuilt(kind, [{**part, "type": with_each_field(types, part["type"], change)} for part in parts])
