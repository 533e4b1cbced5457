"""Everything that an engine other than DuckDB needs to read a version of a table.

That is its files, the deleted rows of each, and the inlined rows.

Source: the DuckLake specification 1.0, ducklake_data_file, ducklake_delete_file,
ducklake_name_mapping, Data Inlining, and measurements of duckdb 1.5.5's extension. A merged or
flushed file has the snapshot of each row, and positions of deletes may be in the catalog.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from duckrun.errors import UnsupportedFeature
from duckrun.formats.ducklake.catalog.catalog import Catalog
from duckrun.formats.ducklake.catalog.refusals import DuckLakeRefusal
from duckrun.formats.ducklake.state.inlined import if_there, inlined_rows, inlined_tables
from duckrun.formats.ducklake.state.state import state_of
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.values.lake_files import DeleteFile, LakeColumn, LakeFile, LakeFiles, NamedColumn
from duckrun.values.snapshot import Snapshot


class Reading:
    """Queries about one version, in one transaction.

    A flush or merge between two queries would move rows from one answer to another.
    """

    def __init__(self, catalog: Catalog, footers: Footers, snapshot: Snapshot) -> None:
        self.catalog, self.footers, self.snapshot = catalog, footers, snapshot
        self.state = state_of(snapshot)
        self.epoch: int | str = self.state.epoch
        self.version: int = self.state.version
        self.now = f"begin_snapshot <= {self.version} AND ((end_snapshot IS NULL) OR end_snapshot > {self.version})"

    def read(self) -> LakeFiles:
        """Return the files to read for the version.

        Raises:
            UnsupportedFeature: The lake is encrypted, or a file has deletion vectors.
        """
        self.catalog.ensure(self.state.epoch)
        if self.catalog.encrypted:
            raise UnsupportedFeature(
                f"Table {self.snapshot.ref} lies in an encrypted lake, whose files Spark cannot read: "
                "read it with engine: duckdb."
            )
        self.cursor = self.catalog.cursor()
        with self.catalog.errors(f"table {self.snapshot.ref}"):
            try:
                return self._at_once()
            except duckdb.Error as error:
                if not DuckLakeRefusal.INLINED_TABLE.is_of(error) or self.catalog.address.kind == "duckdb":
                    raise
            # An attachment remembers the inlined tables, even after another process flushed and
            # dropped them.
            self.epoch = f"r{uuid.uuid4().hex[:12]}"
            alias = self.catalog.attach_for(self.cursor, self.epoch)
            try:
                return self._at_once()
            finally:
                self.catalog.detach(self.cursor, alias)

    def _at_once(self) -> LakeFiles:
        self.cursor.execute("BEGIN TRANSACTION")
        try:
            columns = self._columns()
            mappings = self._mappings()
            files = self._files(columns, mappings)
            return LakeFiles(self.version, columns, files, mappings, self._inlined(columns), self._defaults(columns))
        finally:
            self.cursor.execute("ROLLBACK")

    def _meta(self, table: str) -> str:
        return self.catalog.meta(table, self.epoch)

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        return self.cursor.execute(sql).fetchall()

    # -- columns

    def _columns(self) -> tuple[LakeColumn, ...]:
        rows = self._ask(
            "SELECT column_id, parent_column, column_name, column_type, initial_default, "
            f"begin_snapshot, {self.now} "
            f"FROM {self._meta('ducklake_column')} WHERE table_id = {self.state.id} ORDER BY column_order"
        )
        below: dict[int | None, list[Any]] = defaultdict(list)
        begun: dict[int, dict[str, int]] = defaultdict(dict)
        for number, parent, name, kind, default, begin, is_current in rows:
            begun[number][kind] = min(begin, begun[number].get(kind, begin))
            if is_current:
                below[parent].append((number, name, kind, default))
        self._retyped = {
            number for number, kinds in begun.items() if len(kinds) > 1 and max(kinds.values()) > self.version
        }

        def made(parent: int | None) -> tuple[LakeColumn, ...]:
            return tuple(
                LakeColumn(
                    number, name, kind.lower(), min(begun[number].values()), begun[number][kind], default, made(number)
                )
                for number, name, kind, default in below[parent]
            )

        return made(None)

    def _defaults(self, columns: Sequence[LakeColumn]) -> dict[int, Any]:
        defaulted = [column for column in columns if column.default is not None]
        if not defaulted:
            return {}
        types = self.state.definition.sql_types
        expressions = ", ".join(
            f"CAST({quote_literal(str(column.default))} AS {types[column.name]})" for column in defaulted
        )
        values = self._ask(f"SELECT {expressions}")[0]
        return {column.id: value for column, value in zip(defaulted, values, strict=True)}

    def _mappings(self) -> dict[int, Mapping[int, NamedColumn]]:
        rows = self._ask(
            "SELECT mapping_id, column_id, source_name, target_field_id, parent_column, is_partition "
            f"FROM {self._meta('ducklake_name_mapping')} "
            f"JOIN {self._meta('ducklake_column_mapping')} USING (mapping_id) WHERE table_id = {self.state.id}"
        )
        below: dict[tuple[int, int | None], list[Any]] = defaultdict(list)
        for row in rows:
            below[row[0], row[4]].append(row)

        def made(mapping: int, parent: int | None) -> dict[int, NamedColumn]:
            return {
                target: NamedColumn(source, bool(in_path), made(mapping, number))
                for _, number, source, target, _, in_path in below[mapping, parent]
            }

        return {mapping: made(mapping, None) for mapping in {row[0] for row in rows}}

    # -- files

    def _files(
        self, columns: Sequence[LakeColumn], mappings: Mapping[int, Mapping[int, NamedColumn]]
    ) -> tuple[LakeFile, ...]:
        folder = self._ask(self.catalog.folder_sql(self.state.id, self.epoch))[0][0]
        deletes = self._deletes(folder)
        deleted = self._deleted()
        rows = self._ask(
            "SELECT data_file_id, path, path_is_relative, begin_snapshot, mapping_id, partial_max "
            f"FROM {self._meta('ducklake_data_file')} "
            f"WHERE table_id = {self.state.id} AND {self.now} AND record_count > 0 ORDER BY data_file_id"
        )
        paths = {row[0]: f"{folder}{row[1]}" if row[2] else row[1] for row in rows}
        unsure = [
            paths[number] for number, _, _, _, mapping, _ in rows if mapping is None and any(map(self._unsure, columns))
        ]
        footers = self.footers.read(self.cursor, unsure)
        files = []
        for number, _, _, _, mapping, partial in rows:
            names = None if mapping is None else mappings[mapping]
            has = footers.get(paths[number])
            known = has if names is None else names
            absent = {column.id for column in columns if known is not None and column.id not in known}
            stored: tuple[tuple[int, str], ...] = ()
            if has is not None:
                widened = (column for column in _with_fields(columns) if column.type in _WIDENED.values())
                kinds = [(column, has.get(column.id)) for column in widened]
                stored = tuple((column.id, kind) for column, kind in kinds if kind is not None and kind != column.type)
            files.append(
                LakeFile(
                    paths[number],
                    mapping,
                    partial is not None and partial > self.version,
                    frozenset(absent),
                    stored,
                    tuple(deletes[number]),
                    tuple(deleted[number]),
                )
            )
        return tuple(files)

    def _unsure(self, column: LakeColumn) -> bool:
        """True if only the footer of a file tells if it has a column, or its type there.

        That is so for a later column with a default, and for a column that had or gets another
        type. The files' snapshots do not tell: a rewritten file has the old columns, and a merged
        one has later ones.
        """
        began = self.state.begun
        return (
            (column.default is not None and column.begun > began)
            or (column.type == "uint64" and column.typed > began)
            or column.id in self._retyped
            or any(map(self._unsure, column.inner))
        )

    def _deletes(self, folder: str) -> dict[int, list[DeleteFile]]:
        rows = self._ask(
            "SELECT data_file_id, path, path_is_relative, format, delete_count "
            f"FROM {self._meta('ducklake_delete_file')} "
            f"WHERE table_id = {self.state.id} AND {self.now}"
        )
        delete_files: dict[int, list[DeleteFile]] = defaultdict(list)
        for number, path, relative, kind, count in rows:
            if kind != "parquet":
                raise UnsupportedFeature(
                    f"Table {self.snapshot.ref} has deletion vectors (of format {kind}), which Spark does not read: "
                    "rewrite its files "
                    "(duckrun rewrite, or Table.rewrite()), or read it with engine: duckdb."
                )
            delete_files[number].append(DeleteFile(f"{folder}{path}" if relative else path, int(count)))
        return delete_files

    def _deleted(self) -> dict[int, list[int]]:
        """Positions per file that are deleted by catalog rows."""
        positions: dict[int, list[int]] = defaultdict(list)
        marks = self._meta(f"ducklake_inlined_delete_{self.state.id}")
        rows = if_there(self.cursor, f"SELECT file_id, row_id FROM {marks} WHERE begin_snapshot <= {self.version}")
        for number, position in rows:
            positions[number].append(int(position))
        return positions

    # -- rows in the catalog

    def _inlined(self, columns: Sequence[LakeColumn]) -> pa.Table | None:
        tables = inlined_tables(self._ask, self._meta, self.state.id)
        if not tables:
            return None
        named = ((quote_identifier(column.name), column.type) for column in columns)
        listed = ", ".join(f"CAST({name} AS VARCHAR) AS {name}" if kind == "uuid" else name for name, kind in named)
        source = inlined_rows(self.catalog, self.state, self.epoch, tables)
        inlined = self.cursor.execute(f"SELECT {listed} FROM {source}").to_arrow_table()
        return inlined if inlined.num_rows else None


def _with_fields(columns: Iterable[LakeColumn]) -> Iterator[LakeColumn]:
    for column in columns:
        yield column
        yield from _with_fields(column.inner)


class Footers:
    """Cache of the field ids and types in file footers. A written file never changes."""

    def __init__(self) -> None:
        self._known: dict[str, Mapping[int, str | None]] = {}

    def read(self, cursor: duckdb.DuckDBPyConnection, paths: Iterable[str]) -> dict[str, Mapping[int, str | None]]:
        """Return the DuckLake type per file and field id; None for types that are never widened."""
        requested = list(paths)
        missing = [path for path in requested if path not in self._known]
        if missing:
            listed = ", ".join(map(quote_literal, missing))
            rows = cursor.execute(
                f"SELECT file_name, field_id, type, converted_type FROM parquet_schema([{listed}]) "
                "WHERE field_id IS NOT NULL"
            ).fetchall()
            footers: dict[str, dict[int, str | None]] = {path: {} for path in missing}
            for path, number, kind, converted in rows:
                footers[path][int(number)] = _WIDENED.get((str(kind), str(converted)))
            self._known |= footers
        return {path: self._known[path] for path in requested}


_WIDENED = {
    ("INT32", "INT_8"): "int8",
    ("INT32", "INT_16"): "int16",
    ("INT32", "INT_32"): "int32",
    ("INT32", "None"): "int32",
    ("INT64", "INT_64"): "int64",
    ("INT64", "None"): "int64",
    ("INT32", "UINT_8"): "uint8",
    ("INT32", "UINT_16"): "uint16",
    ("INT32", "UINT_32"): "uint32",
    ("INT64", "UINT_64"): "uint64",
    ("FLOAT", "None"): "float32",
    ("DOUBLE", "None"): "float64",
}
"""(type, converted type) from parquet_schema() -> DuckLake type, for types that DuckLake widens."""
