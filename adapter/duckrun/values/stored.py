"""How the columns of a table are called in its data files, where those have names of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

_NAME = b"duckrun.stored"


@dataclass(frozen=True)
class StoredColumn:
    """One column, or a part of one: its ``name`` in the table, that in the files, and its number there. ``parts`` are the fields of a
    struct, the element of a list, or the key and the value of a map.
    """

    name: str
    stored: str
    id: int | None = None
    parts: tuple[StoredColumn, ...] = ()
    kind: str = ""

    @property
    def is_renamed(self) -> bool:
        """True if a field inside has another name in the files; of lists and maps the parts themselves have none."""
        return any(part.is_renamed or (self.kind == "struct" and part.name != part.stored) for part in self.parts)


def stored_names(columns: Iterable[StoredColumn]) -> dict[str, str]:
    """The names in the files, by those in the table."""
    return {column.name: column.stored for column in columns}


def stored_paths(
    columns: Iterable[StoredColumn], above: tuple[str, ...] = (), below: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The way to each column that holds values, by the table's names and by those of the files; as values.columns.leaves()."""
    for column in columns:
        path, stored = (*above, column.name), (*below, column.stored)
        if column.kind == "struct":
            yield from stored_paths(column.parts, path, stored)
        else:
            yield path, stored


def with_stored_names(schema: pa.Schema, columns: Iterable[StoredColumn]) -> pa.Schema:
    """The schema of rows as it goes along with their files: it says what these call the columns."""
    names = stored_names(columns)
    return pa.schema([f.with_metadata({_NAME: names[f.name].encode()}) if f.name in names else f for f in schema])


def schema_of_files(schema: pa.Schema, columns: Iterable[StoredColumn]) -> pa.Schema:
    """The columns of a table by the names that they and their fields have in its files, in the table's order: names and types alone."""
    return pa.schema(_fields_of_files(schema, columns))


def _fields_of_files(fields: Iterable[pa.Field], columns: Iterable[StoredColumn]) -> list[pa.Field]:
    known = {column.name: column for column in columns}
    return [
        pa.field(field.name if column is None else column.stored, _type_in_files(field.type, column))
        for field, column in ((field, known.get(field.name)) for field in fields)
    ]


def _type_in_files(kind: pa.DataType, column: StoredColumn | None) -> pa.DataType:
    parts = () if column is None else column.parts
    if pa.types.is_struct(kind):
        return pa.struct(_fields_of_files(kind, parts))
    if pa.types.is_map(kind):
        key, value = parts or (None, None)
        return pa.map_(_type_in_files(kind.key_type, key), _type_in_files(kind.item_type, value))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        (element,) = parts or (None,)
        return pa.list_(_type_in_files(kind.value_type, element))
    return kind


def other_names(staged: pa.Schema, table: pa.Schema, columns: Iterable[StoredColumn]) -> list[str]:
    """The columns of a table that staged files call otherwise than the table has its files call them."""
    names, own = stored_names(columns), set(table.names)
    held = {f.name: (f.metadata or {}).get(_NAME, f.name.encode()).decode() for f in staged if f.name in own}
    return [name for name, stored in held.items() if stored != names.get(name, name)]
