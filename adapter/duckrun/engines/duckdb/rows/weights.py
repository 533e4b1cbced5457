"""DuckDB's part of the query over data files with multiplicities: ``engines/weights.py``."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from duckrun.engines.dialect import Dialect
from duckrun.engines.weights import Part, WeighedQuery
from duckrun.errors import UnsupportedFeature
from duckrun.libraries import pa
from duckrun.sql.nested import list_of, map_of, part_of, struct_of
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.sql.typed import sql_type, sql_types
from duckrun.values.changes import WeighedRead
from duckrun.values.columns import fields_with
from duckrun.values.data_files import literally, place_of
from duckrun.values.frozen import frozen

_ROW = "file_row_number"
DUCKDB = Dialect(
    quote_identifier,
    each=list_of,
    struct=lambda fields: f"struct_pack({', '.join(f'{name} := {value}' for name, value in fields.items())})",
)


def weighed_sql(read: WeighedRead, cursor: duckdb.DuckDBPyConnection, scratch: str) -> str:
    """SELECT of the rows of a WeighedRead.

    Helper files lie in ``scratch``, so that any cursor can run the SELECT.
    """
    if read.sql is not None:  # the format reads the rows itself
        return f"SELECT {', '.join(['*', *DUCKDB.twins(read)])} FROM {read.sql} AS own"
    types = sql_types(read.schema, read.variants)
    query = WeighedQuery(read, DUCKDB, lambda file: place_of(read.ref.location, file), types)
    parts = _Parts(query, types, cursor, scratch)
    return " UNION ALL ".join(select for part in query.parts() for select in parts.selects(part)) or query.nothing()


@frozen
class _Parts:
    """The SELECTs of one WeighedRead."""

    query: WeighedQuery
    types: dict[str, str]
    cursor: duckdb.DuckDBPyConnection
    scratch: str

    def selects(self, part: Part) -> Iterator[str]:
        """Yield the SELECTs of a part, one for each group of files that one scan can read."""
        listed, rows = self._kept(part.listed), None if part.rows is None else self._kept(part.rows)
        read = self.query.read
        for group in _alike(
            self.cursor, sorted({place_of(read.ref.location, file) for file in part.files}), read.stored
        ):
            source = self._read_parquet(group)
            file_types = _types(self.cursor, source)
            spelling = {name.lower(): name for name in file_types}

            def value(field: pa.Field, stored: pa.Field, file_types: Any = file_types, spelling: Any = spelling) -> str:
                name = stored.name if stored.name in file_types else spelling.get(stored.name.lower())
                if name is None:
                    return f"CAST(NULL AS {self.types[field.name]})"
                in_file = f"r.{quote_identifier(name)}"
                if field.name in read.variants:
                    return _variant(in_file, file_types[name])
                return _converted(in_file, file_types[name], stored.type, field.type)

            yield self.query.select(part, source, listed, rows, value, file_types)

    def _read_parquet(self, places: Sequence[str]) -> str:
        """FROM item for the rows of files, with the location of each row's file."""
        row, file = quote_identifier(self.query.row), quote_literal(self.query.file)
        options = f"union_by_name => true, hive_partitioning => false, filename => {file}"
        if _ROW not in {name.lower() for name in self.query.read.stored.names}:
            listed = ", ".join(quote_literal(literally(each)) for each in places)
            return f"(SELECT * RENAME ({_ROW} AS {row}) FROM read_parquet([{listed}], {options}, {_ROW} => true))"
        # DuckDB cannot number the rows of a file that has a column file_row_number, so we count
        # them.
        number = f"row_number() OVER () - 1 AS {row}"
        each = (
            f"SELECT *, {number} FROM read_parquet({quote_literal(literally(place))}, {options})" for place in places
        )
        return f"({' UNION ALL BY NAME '.join(each)})"

    def _kept(self, table: pa.Table) -> str:
        """Write rows to a scratch file, and return its FROM item."""
        file = Path(self.scratch, f"changes-{uuid.uuid4().hex}.parquet").as_posix()
        name = f"__duckrun_rows_{uuid.uuid4().hex}"
        self.cursor.register(name, table)
        try:
            self.cursor.execute(f"COPY {quote_identifier(name)} TO {quote_literal(file)} (FORMAT parquet)")
        finally:
            self.cursor.unregister(name)
        return f"read_parquet({quote_literal(file)})"


def _types(cursor: duckdb.DuckDBPyConnection, source: str) -> dict[str, Any]:
    relation = cursor.sql(f"SELECT * FROM {source}")
    return dict(zip(relation.columns, relation.types, strict=True))


def _alike(cursor: duckdb.DuckDBPyConnection, places: Sequence[str], stored: pa.Schema) -> list[list[str]]:
    """Group the files that one scan can read."""
    # In a scan of timestamps with and without zone, DuckDB would read the latter in the session's
    # zone.
    if not fields_with(stored, lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None):
        return [list(places)]
    listed = ", ".join(quote_literal(literally(each)) for each in places)
    file_kinds = cursor.execute(
        f"SELECT file_name, bool_or(type = 'INT96') FROM parquet_schema([{listed}]) GROUP BY file_name"
    ).fetchall()
    old = {name for name, is_old in file_kinds if is_old}
    groups = [[each for each in places if (each in old) == which] for which in (False, True)]
    return [group for group in groups if group]


def _converted(value: str, file_type: Any, stored: pa.DataType, wanted: pa.DataType, depth: int = 0) -> str:
    """Convert a value from its type in a file to the table's type.

    ``file_type`` is DuckDB's type in the file; ``stored`` is the table's type with the file's
    names.
    """
    name = f"e{depth}"
    if pa.types.is_struct(wanted):
        if file_type.id != "struct":
            raise _unclear(value)
        there = {field.lower(): (field, inner) for field, inner in file_type.children}
        fields = {}
        for new, old in zip(wanted, stored, strict=True):
            field, inner = there.get(old.name.lower(), (None, None))
            fields[new.name] = f"CAST(NULL AS {sql_type(new.type)})"
            if field is not None:
                fields[new.name] = _converted(part_of(value, field), inner, old.type, new.type, depth)
        return struct_of(value, fields)
    if pa.types.is_list(wanted) or pa.types.is_large_list(wanted):
        if file_type.id not in ("list", "array"):
            raise _unclear(value)
        inner = dict(file_type.children)["child"]
        inside = _converted(name, inner, stored.value_type, wanted.value_type, depth + 1)
        return value if inside == name else list_of(value, name, inside)
    if pa.types.is_map(wanted):
        if file_type.id != "map":
            raise _unclear(value)
        children = dict(file_type.children)
        key = _converted(f"{name}.key", children["key"], stored.key_type, wanted.key_type, depth + 1)
        item = _converted(f"{name}.value", children["value"], stored.item_type, wanted.item_type, depth + 1)
        return value if (key, item) == (f"{name}.key", f"{name}.value") else map_of(value, name, key, item)
    kind = sql_type(wanted)
    if str(file_type).replace(",", ", ") == kind or str(file_type) == kind:
        return value
    if kind == "TIMESTAMP WITH TIME ZONE":
        return f"timezone('UTC', CAST({value} AS TIMESTAMP))"
    return f"CAST({value} AS {kind})"


def _variant(value: str, file_type: Any) -> str:
    """Convert a variant from its encoding in a file."""
    if file_type.id == "variant":
        return value
    if file_type.id != "struct" or {name for name, _ in file_type.children} != {"metadata", "value"}:
        raise UnsupportedFeature(
            f"column {value.removeprefix('r.')} lies in some data file as a shredded VARIANT, which cannot be read "
            "there. Write the table anew first."
        )
    # Metadata states its own length, so both parts can be concatenated. Source: Delta protocol,
    # Variant Data Type; Parquet's Variant Binary Encoding.
    whole = f"{part_of(value, 'metadata')} || {part_of(value, 'value')}"
    return f"CASE WHEN {value} IS NOT NULL THEN variant_bytes_to_variant({whole}) END"


def _unclear(value: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"column {value.removeprefix('r.')} lies in some data file in the layout of older writers, whose changes "
        "cannot be read. Write the table anew first."
    )
