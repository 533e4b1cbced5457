"""Physical names of columns: their names in data files, if these differ from the table's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from duckrun.libraries import pa

_NAME = b"duckrun.stored"


@dataclass(frozen=True)
class StoredColumn:
    """A column, or a part of one, with its logical name, physical name and field id."""

    name: str
    stored: str
    id: int | None = None
    parts: tuple[StoredColumn, ...] = ()
    """Fields of a struct, the element of a list, or the key and value of a map."""
    kind: str = ""

    @property
    def is_renamed(self) -> bool:
        """True if a nested struct field has another physical name.

        Parts of lists and maps have none.
        """
        return any(part.is_renamed or (self.kind == "struct" and part.name != part.stored) for part in self.parts)


def stored_names(columns: Iterable[StoredColumn]) -> dict[str, str]:
    """Return the physical names by logical name."""
    return {column.name: column.stored for column in columns}


def stored_paths(
    columns: Iterable[StoredColumn], above: tuple[str, ...] = (), below: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield the logical and physical path of each leaf column, as values.columns.leaves()."""
    for column in columns:
        path, stored = (*above, column.name), (*below, column.stored)
        if column.kind == "struct":
            yield from stored_paths(column.parts, path, stored)
        else:
            yield path, stored


def with_stored_names(schema: pa.Schema, columns: Iterable[StoredColumn]) -> pa.Schema:
    """Return the schema of staged rows with the physical names in its metadata."""
    names = stored_names(columns)
    return pa.schema([f.with_metadata({_NAME: names[f.name].encode()}) if f.name in names else f for f in schema])


def schema_of_files(schema: pa.Schema, columns: Iterable[StoredColumn]) -> pa.Schema:
    """Return the schema by physical names, nested ones too, in table order, without metadata."""
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
    """Return the columns whose physical name in staged files differs from the table's."""
    names, known = stored_names(columns), set(table.names)
    staged_names = {f.name: (f.metadata or {}).get(_NAME, f.name.encode()).decode() for f in staged if f.name in known}
    return [name for name, stored in staged_names.items() if stored != names.get(name, name)]
