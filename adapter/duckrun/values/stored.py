"""How the columns of a table are called in its data files, where those have names of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


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
