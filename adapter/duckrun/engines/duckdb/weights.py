"""Rows of data files with their multiplicities, from any versions of a table, in one schema.

No single version needs to contain all files, so DuckDB reads them directly with ``read_parquet``.
It uses the column names in the files, and the partition values of the log.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from duckrun.errors import UnsupportedFeature
from duckrun.libraries import pa
from duckrun.sql.quoting import fresh_name, quote_identifier, quote_literal
from duckrun.sql.typed import partition_literal, sql_type
from duckrun.values.changes import FEED_WEIGHTS, Step, Weighed, WeighedRead
from duckrun.values.columns import holds
from duckrun.values.data_files import literally, place

_ROW = "file_row_number"
_CHANGE_TYPE = "_change_type"
"""Source: Delta protocol, Add CDC File (Change Data Files)."""


def weighed_sql(read: WeighedRead, cursor: duckdb.DuckDBPyConnection, scratch: str) -> str:
    """SELECT of the rows of a WeighedRead.

    Helper files lie in ``scratch``, so that any cursor can run the SELECT.
    """
    if read.sql is not None:
        return _own(read, read.sql)
    parts = _Parts(read, cursor, scratch)
    selects = [*parts.whole(), *parts.single(), *parts.feed()]
    return " UNION ALL ".join(selects) if selects else parts.nothing()


def _own(read: WeighedRead, sql: str) -> str:
    """Rows that the format reads itself, with the additional columns."""
    kinds = {field.name: field.type for field in read.schema}
    added = [
        f"{one_spelling(quote_identifier(name), kinds[name])} AS {quote_identifier(other)}"
        for name, other in read.same.items()
    ]
    return f"SELECT {', '.join(['*', *added])} FROM {sql} AS own"


class _Parts:
    """The SELECTs of one WeighedRead."""

    def __init__(self, read: WeighedRead, cursor: duckdb.DuckDBPyConnection, scratch: str) -> None:
        self._read, self._cursor, self._scratch = read, cursor, scratch
        taken = [*read.schema.names, *read.stored.names, read.weight, read.step, *read.same.values()]
        self._file = fresh_name("__duckrun_file", taken)
        # DuckDB cannot number the rows of a file that has a column file_row_number, so we count
        # them.
        counted = _ROW in {name.lower() for name in read.stored.names}
        self._counted = fresh_name("__duckrun_row", taken) if counted else None
        self._row = f"r.{quote_identifier(self._counted or _ROW)}"

    def nothing(self) -> str:
        """No rows, with all columns."""
        read = self._read
        columns = [f"CAST(NULL AS {self._type(f)}) AS {quote_identifier(f.name)}" for f in read.schema]
        columns += [f"NULL AS {quote_identifier(name)}" for name in read.same.values()]
        columns += [] if read.fed is None else [f"CAST(NULL AS VARCHAR) AS {quote_identifier(read.fed)}"]
        ids = (name for name in (read.row_id, read.row_commit) if name is not None)
        columns += [f"CAST(NULL AS BIGINT) AS {quote_identifier(name)}" for name in ids]
        zero_counts = (
            f"CAST(0 AS BIGINT) AS {quote_identifier(read.weight)}, CAST(0 AS BIGINT) AS {quote_identifier(read.step)}"
        )
        return f"SELECT {', '.join(columns)}, {zero_counts} WHERE false"

    def whole(self) -> Iterator[str]:
        """SELECTs of files with one multiplicity for all rows, except for listed rows."""
        files_by_step = [(step, file) for step in self._read.steps for file in step.files if file.base]
        if not files_by_step:
            return
        listed = self._listed([(step, file.file, file.base, file) for step, file in files_by_step])
        rows = self._rows([(step, file) for step, file in files_by_step if len(file.rows)])
        weight, joined = "f.weight", ""
        if rows is not None:
            weight = "f.weight + coalesce(p.weight, 0)"
            joined = f" LEFT JOIN {rows} AS p ON p.place = f.place AND p.step = f.step AND p.row = {self._row}"
        yield from self._selects(listed, [file.file for _, file in files_by_step], weight, joined, f"{weight} <> 0")

    def single(self) -> Iterator[str]:
        """SELECTs of files with a multiplicity for listed rows only."""
        files_by_step = [(step, file) for step in self._read.steps for file in step.files if not file.base]
        rows = self._rows(files_by_step)
        if rows is None:
            return
        listed = self._listed([(step, file.file, 0, file) for step, file in files_by_step])
        joined = (
            f" JOIN {rows} AS p ON p.place = r.{quote_identifier(self._file)} AND p.row = {self._row} AND p.step = "
            "f.step"
        )
        yield from self._selects(listed, [file.file for _, file in files_by_step], "p.weight", joined, "true")

    def feed(self) -> Iterator[str]:
        """SELECTs of change data files, whose rows contain their change type."""
        files_by_step = [(step, file) for step in self._read.steps for file in step.feed]
        if not files_by_step:
            return
        listed = self._listed([(step, file, 0, None) for step, file in files_by_step])
        kinds = " ".join(f"WHEN {quote_literal(kind)} THEN {weight}" for kind, weight in FEED_WEIGHTS.items())
        weight = f"CASE r.{quote_identifier(_CHANGE_TYPE)} {kinds} END"
        yield from self._selects(listed, [file for _, file in files_by_step], weight, "", "true", feed=True)

    # -- what the selects are made of

    def _selects(
        self, listed: str, files: Sequence[Any], weight: str, joined: str, where: str, *, feed: bool = False
    ) -> Iterator[str]:
        read = self._read
        places = sorted({place(read.ref, file) for file in files})
        for group in _alike(self._cursor, places, read.stored):
            source = self._read_parquet(group)
            columns = self._columns(_types(self._cursor, source), feed=feed)
            counts = (
                f"CAST({weight} AS BIGINT) AS {quote_identifier(read.weight)}, f.step AS {quote_identifier(read.step)}"
            )
            yield (
                f"SELECT {', '.join(columns)}, {counts} FROM {source} AS r "
                f"JOIN {listed} AS f ON f.place = r.{quote_identifier(self._file)}{joined} WHERE {where}"
            )

    def _read_parquet(self, places: Sequence[str]) -> str:
        """FROM item for the rows of files, with the location of each row's file."""
        options = f"union_by_name => true, hive_partitioning => false, filename => {quote_literal(self._file)}"
        if self._counted is None:
            listed = ", ".join(quote_literal(literally(each)) for each in places)
            return f"read_parquet([{listed}], {options}, {_ROW} => true)"
        row = f"row_number() OVER () - 1 AS {quote_identifier(self._counted)}"
        each = (f"SELECT *, {row} FROM read_parquet({quote_literal(literally(place))}, {options})" for place in places)
        return f"({' UNION ALL BY NAME '.join(each)})"

    def _columns(self, file_types: dict[str, Any], *, feed: bool) -> Iterator[str]:
        read = self._read
        lowered = {name.lower(): name for name in file_types}
        for i, (field, stored) in enumerate(zip(read.schema, read.stored, strict=True)):
            name = quote_identifier(field.name)
            if field.name in read.partition_columns:
                value = f"f.p{i}"
            elif (file_name := stored.name if stored.name in file_types else lowered.get(stored.name.lower())) is None:
                value = f"CAST(NULL AS {self._type(field)})"
            elif field.name in read.variants:
                value = _variant(f"r.{quote_identifier(file_name)}", file_types[file_name])
            else:
                value = _converted(f"r.{quote_identifier(file_name)}", file_types[file_name], stored.type, field.type)
            yield f"{value} AS {name}"
            if field.name in read.same:
                yield f"{one_spelling(value, field.type)} AS {quote_identifier(read.same[field.name])}"
        if read.fed is not None:
            fed = f"r.{quote_identifier(_CHANGE_TYPE)}" if feed else "CAST(NULL AS VARCHAR)"
            yield f"{fed} AS {quote_identifier(read.fed)}"
        if read.row_id is not None:
            number = f"f.first_row_id + {self._row}"
            if read.stored_row_id in file_types:
                number = f"coalesce(r.{quote_identifier(read.stored_row_id)}, {number})"
            yield f"{number} AS {quote_identifier(read.row_id)}"
        if read.row_commit is not None:
            commit = "f.row_commit"
            if read.stored_row_commit in file_types:
                commit = f"coalesce(r.{quote_identifier(read.stored_row_commit)}, {commit})"
            yield f"{commit} AS {quote_identifier(read.row_commit)}"

    def _type(self, field: pa.Field) -> str:
        return "VARIANT" if field.name in self._read.variants else sql_type(field.type)

    def _listed(self, files_by_step: Sequence[tuple[Step, Any, int, Weighed | None]]) -> str:
        """Write a Parquet list of data files with step, multiplicity and partition values."""
        read = self._read
        kinds = {i: sql_type(field.type) for i, field in enumerate(read.schema) if field.name in read.partition_columns}
        stored = read.stored.names
        rows = []
        for step, file, base, weighed in files_by_step:
            values = [partition_literal(file.partition_values.get(stored[i]), kind) for i, kind in kinds.items()]
            ids = (None, None) if weighed is None else (weighed.first_row_id, weighed.row_commit)
            known = ["CAST(NULL AS BIGINT)" if each is None else str(int(each)) for each in ids]
            place_and_step = [quote_literal(place(read.ref, file)), f"CAST({step.number} AS BIGINT)", str(base)]
            rows.append(f"({', '.join([*place_and_step, *known, *values])})")
        names = ", ".join(["place", "step", "weight", "first_row_id", "row_commit", *(f"p{i}" for i in kinds)])
        return self._kept(f"SELECT * FROM (VALUES {', '.join(rows)}) AS listed({names})")

    def _rows(self, files_by_step: Sequence[tuple[Step, Any]]) -> str | None:
        """Write a Parquet list of single rows (file, row number) with step and multiplicity."""
        chosen = [(step, file) for step, file in files_by_step if len(file.rows)]
        if not chosen:
            return None
        counts = [len(file.rows) for _, file in chosen]
        table = pa.table(
            {
                "place": pa.array([place(self._read.ref, file.file) for _, file in chosen]).take(_repeated(counts)),
                "step": pa.array([step.number for step, _ in chosen], pa.int64()).take(_repeated(counts)),
                "row": pa.chunked_array([pa.array(file.rows) for _, file in chosen]).cast(pa.int64()),
                "weight": pa.chunked_array([pa.array(file.weights) for _, file in chosen]),
            }
        )
        name = f"__duckrun_rows_{uuid.uuid4().hex}"
        self._cursor.register(name, table)
        try:
            return self._kept(f"SELECT * FROM {quote_identifier(name)}")
        finally:
            self._cursor.unregister(name)

    def _kept(self, sql: str) -> str:
        """Write rows to a scratch file, and return its FROM item."""
        file = Path(self._scratch, f"changes-{uuid.uuid4().hex}.parquet").as_posix()
        self._cursor.execute(f"COPY ({sql}) TO {quote_literal(file)} (FORMAT parquet)")
        return f"read_parquet({quote_literal(file)})"


def _repeated(counts: Sequence[int]) -> pa.Array:
    import numpy as np

    return pa.array(np.repeat(np.arange(len(counts)), counts))


def _types(cursor: duckdb.DuckDBPyConnection, source: str) -> dict[str, Any]:
    relation = cursor.sql(f"SELECT * FROM {source}")
    return dict(zip(relation.columns, relation.types, strict=True))


def _alike(cursor: duckdb.DuckDBPyConnection, places: Sequence[str], stored: pa.Schema) -> list[list[str]]:
    """Group the files that one scan can read."""
    # In a scan of timestamps with and without zone, DuckDB would read the latter in the session's
    # zone.
    if not any(holds(field.type, lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None) for field in stored):
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
        fields = []
        for new, old in zip(wanted, stored, strict=True):
            field, inner = there.get(old.name.lower(), (None, None))
            inside = f"CAST(NULL AS {sql_type(new.type)})"
            if field is not None:
                inside = _converted(_field(value, field), inner, old.type, new.type, depth)
            fields.append(f"{quote_identifier(new.name)} := {inside}")
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({', '.join(fields)}) END"
    if pa.types.is_list(wanted) or pa.types.is_large_list(wanted):
        if file_type.id not in ("list", "array"):
            raise _unclear(value)
        inner = dict(file_type.children)["child"]
        inside = _converted(name, inner, stored.value_type, wanted.value_type, depth + 1)
        return value if inside == name else f"list_transform({value}, lambda {name}: {inside})"
    if pa.types.is_map(wanted):
        if file_type.id != "map":
            raise _unclear(value)
        children = dict(file_type.children)
        key = _converted(f"{name}.key", children["key"], stored.key_type, wanted.key_type, depth + 1)
        item = _converted(f"{name}.value", children["value"], stored.item_type, wanted.item_type, depth + 1)
        if (key, item) == (f"{name}.key", f"{name}.value"):
            return value
        entries = f"list_transform(map_entries({value}), lambda {name}: struct_pack(key := {key}, value := {item}))"
        return f"map_from_entries({entries})"
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
    whole = f"{_field(value, 'metadata')} || {_field(value, 'value')}"
    return f"CASE WHEN {value} IS NOT NULL THEN variant_bytes_to_variant({whole}) END"


def _field(value: str, name: str) -> str:
    return f"struct_extract({value}, {quote_literal(name)})"


def _unclear(value: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"column {value.removeprefix('r.')} lies in some data file in the layout of older writers, whose changes "
        "cannot be read. Write the table anew first."
    )


def one_spelling(value: str, kind: pa.DataType, depth: int = 0) -> str:
    """Normalize a value with maps: equal maps stay equal in any order of their entries."""
    if not holds(kind, pa.types.is_map):
        return value
    name = f"e{depth}"
    if pa.types.is_map(kind):
        key = one_spelling(f"{name}.key", kind.key_type, depth + 1)
        item = one_spelling(f"{name}.value", kind.item_type, depth + 1)
        return f"list_sort(list_transform(map_entries({value}), lambda {name}: struct_pack(k := {key}, v := {item})))"
    if pa.types.is_struct(kind):
        fields = (f"f{i} := {one_spelling(_field(value, c.name), c.type, depth)}" for i, c in enumerate(kind))
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({', '.join(fields)}) END"
    return f"list_transform({value}, lambda {name}: {one_spelling(name, kind.value_type, depth + 1)})"
