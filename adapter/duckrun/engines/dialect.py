"""SQL of values in the dialect of an engine: comparisons, and forms that can be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from duckrun.libraries import pa
from duckrun.sql.char_types import padded
from duckrun.values.changes import WeighedRead
from duckrun.values.columns import holds
from duckrun.values.frozen import frozen


@frozen
class Dialect:
    """Spelling of an engine's SQL where the engines differ."""

    quote: Callable[[str], str]
    """Quotes a name."""
    each: Callable[[str, str, str], str]
    """SQL of a list's items as an expression: the list, the name of an item, the expression."""
    struct: Callable[[Mapping[str, str]], str]
    """SQL of a struct with these fields."""

    def one_spelling(self, value: str, kind: pa.DataType, depth: int = 0) -> str:
        """Return SQL of a form of a value that is equal for equal maps, in any order of entries."""
        if not holds(kind, pa.types.is_map):
            return value
        item = f"e{depth}"
        if pa.types.is_map(kind):
            key = self.one_spelling(f"{item}.key", kind.key_type, depth + 1)
            of_key = self.one_spelling(f"{item}.value", kind.item_type, depth + 1)
            entries = self.each(f"map_entries({value})", item, self.struct({"k": key, "v": of_key}))
            return f"array_sort({entries})"
        if pa.types.is_struct(kind):
            fields = [(f"({value}).{self.quote(part.name)}", part.type) for part in kind]
            inside = self.struct({f"f{i}": self.one_spelling(*field, depth) for i, field in enumerate(fields)})
            return f"CASE WHEN {value} IS NULL THEN NULL ELSE {inside} END"
        return self.each(value, item, self.one_spelling(item, kind.value_type, depth + 1))

    def twins(self, read: WeighedRead) -> list[str]:
        """Return the additional columns of a read, over its columns."""
        kinds = {field.name: field.type for field in read.schema}
        return [
            f"{self.one_spelling(self.quote(name), kinds[name])} AS {self.quote(twin)}"
            for name, twin in read.same.items()
        ]

    def differs(self, old: str, new: str, field: pa.Field, *, is_variant: bool = False) -> str:
        """Return the condition that readers see another value in a column; it is never NULL.

        NULL equals NULL, NaN equals NaN, and -0.0 equals 0.0. Maps with equal entries are equal.

        Args:
            old: SQL of the table's value.
            new: SQL of the value to write, of the same type.
            field: The column.
            is_variant: True for a column that is a VARIANT or contains one.
        """
        if is_variant:  # its values have no comparison
            return f"({old} IS NOT NULL OR {new} IS NOT NULL)"
        return f"{self._compared(old, field)} IS DISTINCT FROM {self._compared(new, field)}"

    def _compared(self, value: str, field: pa.Field) -> str:
        if pa.types.is_interval(field.type):  # DuckDB takes 30 days for a month
            return f"CAST({value} AS VARCHAR)"
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            return padded(value, field) or value
        return self.one_spelling(value, field.type)
