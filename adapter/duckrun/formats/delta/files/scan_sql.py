"""SQL that DuckDB runs to read a table at a version.

This is the only module that knows the defects of delta_scan() and their workarounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from duckrun.errors import StorageError, UnsupportedFeature
from duckrun.formats.delta.definition.mapping import MODE, is_renamed, physical_names
from duckrun.formats.delta.files.bounds import files_near
from duckrun.formats.delta.files.cautions import OURS, TYPE_CHANGES
from duckrun.formats.delta.files.logged import OpenVersion
from duckrun.formats.delta.files.plain_files import UNIQUE, is_scalar, plain_files
from duckrun.formats.format import name_of_files
from duckrun.libraries import pa
from duckrun.sql.by_file import with_values
from duckrun.sql.char_types import padded_columns
from duckrun.sql.quoting import fresh_name, quote_identifier, quote_literal, quoted_list, quoted_names, select_list
from duckrun.sql.raising import raising
from duckrun.sql.typed import partition_literal, sql_type, sql_types
from duckrun.values.columns import fields_with
from duckrun.values.data_files import literally, place_of
from duckrun.values.names import url_of
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import ReadAs, Snapshot

_NUMBER = "file_row_number"
_FILENAME = "filename"
_BY_NAME = "union_by_name => true, hive_partitioning => false"
_FEW = 200
"""Maximum number of files of a partitioned table that are read by name."""
_FEW_IN_STORE = 16
"""Maximum number of files that are read by name from an object store.

delta_scan() requests each commit since the checkpoint up to four times. By name, DuckDB requests
the footer of each file, also of those that delta_scan() skips by the log's bounds.
"""
_MOST_DELETED = 1_000_000
"""Maximum number of deleted rows in files that are read by name.

The row numbers are part of the SQL text, seven characters each.
"""
Deleted = Callable[[Snapshot, Sequence[ScanFile]], Mapping[str, Any]]
"""Function that returns the deleted rows of files with deletion vectors, by file path."""
LINK = "t"
"""Folder in the folder of BranchReads.log_of that leads to the table's folder."""


@dataclass(frozen=True)
class Difference:
    """A version of a branch as the difference from a version of main with the same definition."""

    base: Snapshot
    """Main's version."""
    gone: Sequence[ScanFile]
    """Files of main's version that the branch removed, or gave another deletion vector."""
    new: Sequence[ScanFile]
    """Files that the branch added, or gave another deletion vector."""


@dataclass(frozen=True)
class BranchReads:
    """Functions that read a version of a branch. The log in the table's folder lacks it."""

    log_of: Callable[[Snapshot, Sequence[ScanFile] | None], str]
    """Returns the folder of a log that has a version, or some of its files, at version 0."""
    difference: Callable[[Snapshot], Difference | None]
    """Returns the difference from main, if it is better to read than each file by its name."""


def scan_sql(
    snapshot: Snapshot,
    read: ReadAs,
    deleted: Deleted | None = None,
    open_version: OpenVersion | None = None,
    branch: BranchReads | None = None,
    *,
    is_part: bool = False,
) -> str:
    """See Format.scan_sql(). With ``row``, the table has no column named file_row_number.

    Args:
        snapshot: The version.
        read: Options.
        deleted: Returns the deleted rows of files with deletion vectors.
        open_version: Opens the log for the bounds of files.
        branch: Functions that read a version of a branch; None for a version of main.
        is_part: The rows are a part of a read whose version another part tells.
    """
    return _Scan(snapshot, read, deleted, open_version, branch, is_part).sql()


class _Scan:
    """One read of a version.

    DuckDB reads the files by name where that returns the same rows, else by delta_scan(). Columns
    that either reads wrong are replaced afterwards.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        read: ReadAs,
        deleted: Deleted | None,
        open_version: OpenVersion | None,
        branch: BranchReads | None,
        is_part: bool,
    ) -> None:
        schema = snapshot.stored_schema
        self.snapshot, self.read, self.branch, self.is_part = snapshot, read, branch, is_part
        self.deleted, self.open_version = deleted, open_version
        self.legacy = snapshot.legacy()
        self.void = [f.name for f in fields_with(schema, pa.types.is_null)]
        # delta_scan() looks up partition columns by logical names among physical columns. It
        # returns NULL, or the value of another column. https://github.com/duckdb/duckdb-delta/issues/343
        self.moved = bool(snapshot.partition_columns) and is_renamed(schema)
        self.numbered = read.row is not None or bool(self.legacy)
        self.place = read.file
        """Name of the column with the file of each row; None if nothing needs it."""
        if self.moved or self.legacy or read.files is not None or self.void:
            self._name_places()

    def sql(self) -> str:
        """SQL of the read, in brackets: bare delta_scan() offers a column ``rowid``.

        A query that reads that column crashes the instance.
        """
        whole = None if self.place is not None or self.numbered else self._whole_files()
        if self.branch is not None and self.read.files is None and whole is None and not self.void:
            difference = self.branch.difference(self.snapshot)
            if difference is not None:
                return self._over_main(difference)
        if whole is not None:
            source = f"{_parquet(list(map(literally, whole)), 'hive_partitioning => false')} AS {self._alias()}"
        elif (named := self._files_to_name()) is not None:
            source = self._by_name(named)
        else:
            source = self._by_log()
        return f"(SELECT {self._selected()} FROM {source})"

    def _name_places(self) -> None:
        self.place = self.place or fresh_name("filename", self.snapshot.stored_schema.names)

    def _whole_files(self) -> Sequence[str] | None:
        """Return the files to read without the log; see plain_files()."""
        footers, open_version, ranges = self.read.footers, self.open_version, self.read.ranges
        if footers is None:
            return None
        near = None if open_version is None or not ranges else partial(files_near, open_version, ranges=ranges)
        return plain_files(self.snapshot, footers, near=near)

    def _files_to_name(self) -> Sequence[ScanFile] | None:
        """Return the files to read by name; None if delta_scan() reads them, or reads them faster.

        Raises:
            UnsupportedFeature: The table has a VOID column, and delta_scan() would have to read it.
        """
        some = self._candidates()
        marked = self.deleted is not None and (
            self.branch is not None or self.read.files is not None or bool(self.void)
        )
        if some is not None and are_plain(self.snapshot, some, marked=marked, by_any=bool(self.void)):
            return some
        if self.void:
            raise UnsupportedFeature(
                f"Table {self.snapshot.ref}: column {', '.join(self.void)} is VOID, Spark's type of nothing but NULL, "
                "and DuckDB reads such a table only where its other columns are of simple types. Run this with "
                "engine: spark, or drop the column there (ALTER TABLE … DROP COLUMN)."
            )
        return None

    def _candidates(self) -> Sequence[ScanFile] | None:
        """Return the files that are read by name if they are plain; None for a read by the log."""
        if self.branch is None and self.read.named:
            return None
        if self.read.files is not None:
            return self.read.files
        if self.branch is not None:
            self._name_places()
            return self.snapshot.files()
        if self.moved or self.void:
            some = self.snapshot.files()
            # To name the columns of each of many files costs more than delta_scan().
            return some if self.void or len(some) <= _FEW else None
        if self.read.footers is None and "://" in self.snapshot.ref.location:
            in_store = self.snapshot.files()
            if len(in_store) <= _FEW_IN_STORE:
                self._name_places()
                return in_store
        return None

    def _by_name(self, files: Sequence[ScanFile]) -> str:
        """FROM item that reads plain files by their names."""
        snapshot, is_partitioned = self.snapshot, bool(self.snapshot.partition_columns)
        marked = [f for f in files if f.deletion_vector]
        gone = self.deleted(snapshot, marked) if self.deleted is not None and marked else {}
        # No stored column may have the name that DuckDB gives to a row's file.
        is_free = _FILENAME not in {stored.lower() for stored in physical_names(snapshot.stored_schema).values()}
        # In a branch, DuckDB opens no file before the query runs.
        is_planned = bool((is_partitioned or self.branch is not None) and files)
        if is_planned and is_free and not (self.numbered or self.read.also or gone):
            return self._of_branch(self._read_parts(files))
        source = self._of_branch(self._read(files, gone))
        return self._with_partitions(source) if is_partitioned else source

    def _by_log(self) -> str:
        """FROM item that reads by delta_scan(), or by an attachment that keeps the log open."""
        snapshot, read, place = self.snapshot, self.read, self.place
        source, is_bare = None, self.branch is None and place is None and not self.numbered
        if is_bare and read.attach is not None and snapshot.long_log:
            source = read.attach(snapshot.ref.location, snapshot.version, snapshot.long_log)
        source = self._of_branch(source or self._by_delta_scan())
        if self.numbered and self.branch is None:
            # ``*`` does not include the row number.
            source = f"(SELECT *, {_NUMBER} FROM {source})"
        if read.files is not None:
            inside = ", ".join(quote_literal(place_of(snapshot.ref.location, f)) for f in read.files) or "NULL"
            source = f"(SELECT * FROM {source} WHERE {quote_identifier(str(place))} IN ({inside}))"
        if self.moved:
            source = self._with_partitions(source)
        if self.legacy:
            source = _with_lists(source, snapshot, self._files(), str(place))
        return _with_more(source, snapshot, self._files(), str(place), read.also) if read.also else source

    def _by_delta_scan(self) -> str:
        options = "" if self.place is None else f", filename => {quote_literal(self.place)}"
        options += ", file_row_number => true" if self.numbered else ""
        if self.branch is not None:
            folder = self.branch.log_of(self.snapshot, self.read.files)
            return _through_link(self.snapshot, folder, self.place, options, numbered=self.numbered)
        # A query reads what the URLs in it tell. No table has a URL that ends with a slash.
        url = url_of(self.snapshot.ref.location) + "/" * self.is_part
        return f"delta_scan({quote_literal(url)}, version => {int(self.snapshot.version)}{options})"

    def _files(self) -> Sequence[ScanFile]:
        return self.snapshot.files() if self.read.files is None else self.read.files

    def _alias(self) -> str:
        """Alias of a FROM item that tells the version which a query reads, as delta_scan() does."""
        return quote_identifier(name_of_files(self.snapshot.ref.location, self.snapshot.version))

    def _of_branch(self, source: str) -> str:
        """FROM item with its version: no log that a query names has the version of a branch."""
        return source if self.branch is None else f"(SELECT * FROM {source} AS {self._alias()})"

    def _with_partitions(self, source: str) -> str:
        columns = quoted_names(self.snapshot.partition_columns)
        return f"({self._valued(source, self._files(), str(self.place), columns, there=True)})"

    def _over_main(self, difference: Difference) -> str:
        """Return SQL that reads main's files by main's log, and the branch's files by name.

        DuckDB then skips main's files by the bounds in the log, and opens none of them to learn its
        columns.
        """
        snapshot, read = self.snapshot, self.read
        scan = partial(scan_sql, deleted=self.deleted, open_version=self.open_version)
        place = read.file or (fresh_name("filename", snapshot.stored_schema.names) if difference.gone else None)
        of_main = scan(difference.base, replace(read, file=place, attach=None, footers=None, named=True), is_part=True)
        of_branch = scan(snapshot, replace(read, files=difference.new, footers=None), branch=self.branch)
        names = quoted_list([*snapshot.stored_schema.names, *filter(None, (read.file, read.row)), *read.also])
        if difference.gone:
            # DuckDB would evaluate NOT IN once per file and value.
            gone = ", ".join(f"({quote_literal(place_of(snapshot.ref.location, file))})" for file in difference.gone)
            of_main += (
                f" AS main ANTI JOIN (VALUES {gone}) AS gone(place) ON main.{quote_identifier(str(place))} = gone.place"
            )
        return f"(SELECT {names} FROM {of_main} UNION ALL SELECT {names} FROM {of_branch})"

    def _read_parts(self, files: Sequence[ScanFile]) -> str:
        """Return SQL of the rows of plain files, with the file of each row. It opens no file."""
        # DuckDB evaluates a filter on partitions before it opens files. So the values stand
        # directly on the scan, under DuckDB's own name of the file column. The columns are the
        # log's.
        snapshot, schema, parts = self.snapshot, self.snapshot.stored_schema, self.snapshot.partition_columns
        stored = physical_names(schema)
        columns_of_files = [
            (quote_literal(stored[f.name]), quote_literal(sql_type(f.type))) for f in schema if f.name not in parts
        ]
        columns = ", ".join(
            f"{name}: {{name: {name}, type: {kind}, default_value: NULL}}" for name, kind in columns_of_files
        )
        options = f"schema => MAP {{{columns}}}, hive_partitioning => false, filename => true"
        read = _parquet([literally(place_of(snapshot.ref.location, f)) for f in files], options)
        selected = [f"{quote_identifier(stored[name])} AS {quote_identifier(name)}" for name in schema.names]
        named = {c: quote_identifier(stored[c]) for c in parts}
        valued = self._valued(read, files, _FILENAME, named) if parts else f"SELECT * FROM {read}"
        return f"(SELECT {', '.join(selected)}, {_FILENAME} AS {quote_identifier(str(self.place))} FROM ({valued}))"

    def _read(self, files: Sequence[ScanFile], deleted: Mapping[str, Any]) -> str:
        """Return SQL of the rows of plain files in the table's columns, with the file of each row.

        Columns that no file has are NULL, and so are the partition columns.

        Args:
            deleted: Rows to leave out, by file path.
        """
        location, schema = self.snapshot.ref.location, self.snapshot.stored_schema
        place, numbered, also = str(self.place), self.numbered, self.read.also
        kinds, stored = sql_types(schema), physical_names(schema)
        nothing = select_list(
            {stored[name]: f"CAST(NULL AS {kind})" for name, kind in kinds.items()}
            | {place: "CAST(NULL AS VARCHAR)"}
            | dict.fromkeys([*([_NUMBER] * numbered), *also], "CAST(NULL AS BIGINT)")
        )
        reads = [f"SELECT {nothing} WHERE false"]
        options = f"{_BY_NAME}, filename => {quote_literal(place)}"
        whole = [literally(place_of(location, f)) for f in files if f.path not in deleted]
        if whole:
            reads.append(f"SELECT * FROM {_parquet(whole, options + f', {_NUMBER} => true' * numbered)}")
        if deleted:
            marked = {place_of(location, f): json.dumps(list(deleted[f.path])) for f in files if f.path in deleted}
            gone = ", ".join(f"({quote_literal(path)}, {quote_literal(rows)})" for path, rows in marked.items())
            numbers = "unnest(from_json(rows, '[\"BIGINT\"]')) AS row"
            rows = f"SELECT place, {numbers} FROM (VALUES {gone}) AS said(place, rows)"
            columns_of_marked = "*" if numbered else f"* EXCLUDE ({_NUMBER})"
            read = _parquet(list(map(literally, marked)), f"{options}, {_NUMBER} => true")
            same = f"held.{quote_identifier(place)} = gone.place AND held.{_NUMBER} = gone.row"
            reads.append(f"SELECT {columns_of_marked} FROM {read} AS held ANTI JOIN ({rows}) AS gone ON {same}")
        quoted = quoted_names(stored.values())
        selected = select_list({name: f"CAST({quoted[stored[name]]} AS {kind})" for name, kind in kinds.items()})
        beside = quoted_list([place, *([_NUMBER] * numbered), *also])
        return f"(SELECT {selected}, {beside} FROM ({' UNION ALL BY NAME '.join(reads)}))"

    def _valued(
        self, source: str, files: Sequence[ScanFile], place: str, named: Mapping[str, str], *, there: bool = False
    ) -> str:
        """Return SQL that adds the partition values of the files.

        Args:
            named: Name in the SQL of each partition column.
        """
        snapshot = self.snapshot
        kinds = {c: sql_type(snapshot.stored_schema.field(c).type) for c in named}
        values = {
            place_of(snapshot.ref.location, f): [
                partition_literal(f.partition_values.get(c), kind) for c, kind in kinds.items()
            ]
            for f in files
        }
        named_kinds = {named[c]: kind for c, kind in kinds.items()}
        return with_values(source, quote_identifier(place), values, named_kinds, _lost(snapshot), there=there)

    def _selected(self) -> str:
        """The columns of the read."""
        schema, read = self.snapshot.stored_schema, self.read
        padded, unseen = padded_columns(schema), self.snapshot.rounded() | _dotted(schema)
        names = [
            f"{padded[name]} AS {column}" if name in padded else _unseen(column) if name in unseen else column
            for name, column in quoted_names(schema.names).items()
        ]
        names += [] if read.file is None else [quote_identifier(read.file)]
        names += [] if read.row is None else [f"{_NUMBER} AS {quote_identifier(read.row)}"]
        return ", ".join([*names, *map(quote_identifier, read.also)])


def are_plain(snapshot: Snapshot, files: Sequence[ScanFile], *, marked: bool = True, by_any: bool = False) -> bool:
    """True if plain read_parquet() returns the table's rows of these files, before deletions.

    delta_scan() opens every file of a version, even if a filter names only a few of them.

    Args:
        marked: Allow files with deletion vectors, up to a number of deleted rows.
        by_any: Allow files of unknown writers, if the table has no zoned timestamps.
    """
    schema = snapshot.stored_schema
    stored = [field for field in schema if field.name not in snapshot.partition_columns]
    kinds = [field.type for field in stored]
    # Older writers store zoned timestamps as INT96.
    instants = any(pa.types.is_timestamp(kind) and kind.tz is not None for kind in kinds)
    writers = OURS if instants else UNIQUE
    return (
        (
            not is_renamed(schema)
            or snapshot.properties.get(MODE) != "id"
            or all(OURS.search(file.path) for file in files)
        )
        and all(is_scalar(kind) for kind in kinds)
        and not any(TYPE_CHANGES in (field.metadata or {}) for field in stored)
        and not any("." in name or name.lower() == _NUMBER for name in schema.names)
        and (all(writers.search(file.path) for file in files) or (by_any and not instants))
        and (marked or not any(file.deletion_vector for file in files))
        and sum(file.deleted_rows for file in files) <= _MOST_DELETED
    )


def _through_link(snapshot: Snapshot, folder: str, place: str | None, options: str, *, numbered: bool) -> str:
    """Return SQL that reads a snapshot by a log elsewhere, with the files where they are."""
    scan = f"delta_scan({quote_literal(url_of(folder))}, version => 0{options})"
    if place is None:
        return scan
    name, length = quote_identifier(place), len(f"{folder}/{LINK}/") + 1
    there = f"{quote_literal(f'{snapshot.ref.location}/')} || substr({name}, {length})"
    return f"(SELECT * REPLACE ({there} AS {name}){f', {_NUMBER}' if numbered else ''} FROM {scan})"


def _parquet(places: Sequence[str], options: str) -> str:
    return f"read_parquet([{', '.join(map(quote_literal, places))}], {options})"


def _dotted(schema: pa.Schema) -> set[str]:
    """Return the columns whose name, or that of a field in them, contains a dot."""
    inside = fields_with(schema, lambda kind: pa.types.is_struct(kind) and any("." in child.name for child in kind))
    return {name for name in schema.names if "." in name} | {field.name for field in inside}


def _unseen(column: str) -> str:
    """Return a column as the result of an expression that DuckDB does not optimize through.

    No filter or join then uses the log's bounds of the column.
    """
    # If the bounds are rounded, DuckDB would skip files with matching rows. It takes a name with a
    # dot for a field of a struct that does not exist.
    return f"CASE WHEN {column} IS NULL THEN NULL ELSE {column} END AS {column}"


def _lost(snapshot: Snapshot) -> str:
    return f"table {snapshot.ref} is read from a file that its log does not have: "


def _with_more(source: str, snapshot: Snapshot, files: Sequence[ScanFile], place: str, names: Sequence[str]) -> str:
    """Return SQL that adds columns of the files which the table lacks to numbered rows."""
    key = quote_identifier(fresh_name(_FILENAME, names))
    columns = select_list(dict.fromkeys(names, "CAST(NULL AS BIGINT)"))
    places = [literally(place_of(snapshot.ref.location, f)) for f in files]
    options = f"{_BY_NAME}, {_NUMBER} => true, filename => {quote_literal(key[1:-1])}"
    read = f"SELECT {columns} WHERE false UNION ALL BY NAME SELECT * FROM {_parquet(places, options)}"
    same = f"here.{quote_identifier(place)} = held.{key} AND here.{_NUMBER} = held.{_NUMBER}"
    taken = quoted_list(names, "held")
    return f"(SELECT here.*, {taken} FROM {source} AS here LEFT JOIN ({read}) AS held ON {same})"


def _with_lists(source: str, snapshot: Snapshot, files: Sequence[ScanFile], place: str) -> str:
    """Return SQL that takes the lists of the rows from read_parquet()."""
    # delta_scan() expects today's Parquet layout of lists. For older layouts it returns lists of
    # NULLs or crashes the instance. read_parquet() knows the older layouts.
    schema, legacy = snapshot.stored_schema, sorted(snapshot.legacy())
    if is_renamed(schema) or any(_is_unclear(schema.field(c).type) for c in legacy):
        raise UnsupportedFeature(
            f"Table {snapshot.ref} has lists in the layout of older Parquet writers (column {', '.join(legacy)}), and "
            "column mapping, moments or structs of one field with them, which DuckDB cannot read. Read it with "
            "engine: spark, or write it anew there."
        )
    if not files:
        return source
    key = fresh_name("filename", schema.names)
    places = [place_of(snapshot.ref.location, f) for f in files]
    read = _parquet(places, f"{_BY_NAME}, {_NUMBER} => true, filename => {quote_literal(key)}")
    here, there = f"here.{quote_identifier(place)}", f"found.{quote_identifier(key)}"
    # A row whose file is missing there raises an error instead of becoming NULL.
    lost = raising(StorageError, f"{quote_literal(_lost(snapshot))} || {here}")
    lists = {quote_identifier(c): sql_type(schema.field(c).type) for c in legacy}
    replaced = ", ".join(
        f"CASE WHEN {there} IS NULL THEN {lost} ELSE CAST(found.{c} AS {kind}) END AS {c}" for c, kind in lists.items()
    )
    same = f"{here} = {there} AND here.{_NUMBER} = found.{_NUMBER}"
    return f"(SELECT here.* REPLACE ({replaced}) FROM {source} AS here LEFT JOIN {read} AS found ON {same})"


def _is_unclear(kind: pa.DataType, *, in_map: bool = False) -> bool:
    """True if read_parquet() may misread values in a layout of older writers.

    It may ignore the zone of a timestamp, or take a struct for its only field.
    """
    if pa.types.is_timestamp(kind):
        return kind.tz is not None
    if not pa.types.is_nested(kind):
        return False
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    if in_map and pa.types.is_list(kind) and pa.types.is_struct(inner[0]) and inner[0].num_fields == 1:
        return True
    return any(_is_unclear(child, in_map=in_map or pa.types.is_map(kind)) for child in inner)
