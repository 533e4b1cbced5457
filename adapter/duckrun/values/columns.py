"""Names and types of columns. Column names are unique in any case, as in Delta."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from duckrun.errors import SchemaMismatch
from duckrun.libraries import pa

DEFAULT = "CURRENT_DEFAULT"
"""Metadata key of a column's default, in Spark's SQL. Source: Delta protocol, Default Columns."""


_EXTENSION = b"ARROW:extension:name"


def comment_of(field: pa.Field) -> str | None:
    """Return the comment of a column, if any."""
    comment = (field.metadata or {}).get(b"comment")
    return None if comment is None else comment.decode()


def comments_in(schema: pa.Schema) -> dict[str, str]:
    """Return the comments of the columns that have one."""
    return {field.name: comment for field in schema if (comment := comment_of(field)) is not None}


def defaults_in(schema: pa.Schema) -> dict[str, str]:
    """Return the defaults of the columns that have one, in Spark's SQL."""
    defaults = {field.name: (field.metadata or {}).get(DEFAULT.encode()) for field in schema}
    return {name: text.decode() for name, text in defaults.items() if text is not None}


def refuse_twins(names: Iterable[str]) -> None:
    """Raise SchemaMismatch if two columns have the same name in any case, or one has none."""
    seen: dict[str, str] = {}
    for name in names:
        if not name:
            raise SchemaMismatch("a column has an empty name, which SQL cannot say; rename it")
        other = seen.get(name.lower())
        if other == name:
            raise SchemaMismatch(f"two columns have the name {name!r}; give one of them another (AS …)")
        if other is not None:
            raise SchemaMismatch(
                f"the columns {other!r} and {name!r} differ in case only, which is one name to Delta; "
                "rename one of them"
            )
        seen[name.lower()] = name


def told_apart(names: Sequence[str]) -> list[str]:
    """Number the repeated names, as DuckDB does.

    >>> told_apart(["x", "y", "x", "x_1"])
    ['x', 'y', 'x_2', 'x_1']
    """
    taken, unique = set(names), list[str]()
    for name in names:
        if name in unique:
            name = next(other for n in range(1, len(names) + 1) if (other := f"{name}_{n}") not in taken)
            taken.add(name)
        unique.append(name)
    return unique


def is_required(field: pa.Field) -> bool:
    """True if a column, or a part of it, refuses NULL."""
    kind = field.type
    parts = list(kind) if pa.types.is_struct(kind) else [kind.value_field] if pa.types.is_list(kind) else []
    return not field.nullable or any(map(is_required, parts))


def has_required_parts(schema: pa.Schema) -> bool:
    """True if a nullable column has a part that refuses NULL."""
    return any(field.nullable and is_required(field) for field in schema)


def refuses_inner_nulls(kind: pa.DataType) -> bool:
    """True if a part of a type, at any depth, refuses NULL; keys of maps do not count."""
    # Arrow has no map key that may be NULL.
    types = [kind.key_type] if pa.types.is_map(kind) else []
    parts = [kind.item_field] if pa.types.is_map(kind) else [kind.field(i) for i in range(kind.num_fields)]
    types += [part.type for part in parts]
    return not all(part.nullable for part in parts) or any(map(refuses_inner_nulls, types))


def holds(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """True if a type or one inside it passes a test."""
    if not kind.num_fields:  # of hundreds of columns most are scalars
        return test(kind)
    inner = [kind.field(i).type for i in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return test(kind) or any(holds(child, test) for child in inner)


def fields_in(field: pa.Field) -> Iterator[pa.Field]:
    """Yield a field and all fields inside it. The values of a dictionary are a field."""
    yield field
    kind = field.type
    if pa.types.is_dictionary(kind):
        yield from fields_in(pa.field("", kind.value_type))
    elif pa.types.is_nested(kind):
        for i in range(kind.num_fields):
            yield from fields_in(kind.field(i))


def extension_of(field: pa.Field) -> str:
    """Return the name of a field's Arrow extension type; empty if it has none.

    pyarrow shows the storage type of an extension that it does not know, such as ``geoarrow.wkb``.
    Source: Arrow columnar format, Extension Types.
    """
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    return str((field.metadata or {}).get(_EXTENSION, b"").decode())


def refuse_unstorable(schema: pa.Schema) -> None:
    """Refuse Arrow types that no engine reads right.

    Raises:
        SchemaMismatch: A column is a period or interval of pandas, or has a struct without fields,
            or with an empty or repeated field name.
    """
    for column in schema:
        for field in fields_in(column):
            if (extension := extension_of(field)).startswith("pandas."):
                kind = extension.removeprefix("pandas.")
                remedy = ".dt.to_timestamp() or .astype(str)" if kind == "period" else ".astype(str)"
                raise SchemaMismatch(
                    f"column {column.name!r} has the type {kind} of pandas, which no table stores; convert it, for "
                    f"instance by {remedy}"
                )
            if pa.types.is_struct(field.type):
                _refuse_fields(column.name, [each.name for each in field.type])


def _refuse_fields(column: str, names: Sequence[str]) -> None:
    if not names:
        raise SchemaMismatch(f"column {column!r} has a struct without fields, which no table stores; leave it out")
    if not all(names):
        raise SchemaMismatch(
            f"column {column!r} has a struct field with an empty name, which SQL cannot say; rename it"
        )
    if len({name.lower() for name in names}) < len(names):
        raise SchemaMismatch(
            f"column {column!r} has a struct with two fields of one name, in any case ({', '.join(names)}); rename one"
        )


def is_extended(field: pa.Field) -> bool:
    """True if a field, or one inside it, has an Arrow extension type that pyarrow does not know."""
    return any(_EXTENSION in (each.metadata or {}) for each in fields_in(field))


def with_scalars(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type whose scalar types, at any depth, are changed.

    A dictionary, or run ends, become their values if these change.
    """
    of = pa.types
    if of.is_dictionary(kind) or of.is_run_end_encoded(kind):
        values = with_scalars(kind.value_type, change)
        return kind if values == kind.value_type else values
    if of.is_map(kind):
        return pa.map_(with_scalars(kind.key_type, change), with_scalars(kind.item_type, change))
    if not of.is_nested(kind) or of.is_union(kind):
        return change(kind)
    fields = [kind.field(i).with_type(with_scalars(kind.field(i).type, change)) for i in range(kind.num_fields)]
    if of.is_struct(kind):
        return pa.struct(fields)
    if of.is_fixed_size_list(kind):
        return pa.list_(fields[0], kind.list_size)
    lists = {
        of.is_large_list: pa.large_list,
        of.is_list_view: pa.list_view,
        of.is_large_list_view: pa.large_list_view,
    }
    return next((make for fits, make in lists.items() if fits(kind)), pa.list_)(fields[0])


def fields_with(fields: Iterable[pa.Field], test: Callable[[pa.DataType], bool]) -> list[pa.Field]:
    """Return the columns whose type, or one inside it, passes a test."""
    return [field for field in fields if holds(field.type, test)]


def leaves(fields: Iterable[pa.Field], above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], pa.DataType]]:
    """Return the path and type of each leaf column, in schema order, through structs.

    A list or a map is one leaf.
    """
    listed: list[tuple[tuple[str, ...], pa.DataType]] = []
    for field in fields:
        path, kind = (*above, field.name), field.type
        listed += leaves(kind, path) if pa.types.is_struct(kind) else [(path, kind)]
    return listed


def outside_years(column: str) -> str:
    """Return the message about a date or time that not every reader supports."""
    return (
        f"column {column} holds a date or time outside of the years 1 to 9999, which not every reader has "
        "(NULL, or 9999-12-31, for never)"
    )
