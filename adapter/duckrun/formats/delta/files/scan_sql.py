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
from duckrun.formats.delta.files.cautions import OURS
from duckrun.formats.delta.files.logged import OpenVersion
from duckrun.formats.delta.files.plain_files import TYPE_CHANGES, UNIQUE, is_scalar, plain_files
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
    files, also = read.files, read.also
    # The SQL stands in brackets, since bare delta_scan() offers a column ``rowid``. A query that
    # reads that column crashes the instance.
    schema, legacy, rounded = snapshot.stored_schema, snapshot.legacy(), snapshot.rounded()
    moved = bool(snapshot.partition_columns) and is_renamed(schema)
    void = [f.name for f in fields_with(schema, pa.types.is_null)]
    place = read.file
    if place is None and (moved or legacy or files is not None or void):
        place = fresh_name("filename", schema.names)
    numbered = read.row is not None or bool(legacy)
    of_branch = branch is not None
    whole = None
    if of_branch and files is None and place is None and not numbered:
        whole = _whole(snapshot, read, open_version)
    some = files
    if branch is not None and files is None and whole is None:
        if not void and (difference := branch.difference(snapshot)) is not None:
            scan = partial(scan_sql, deleted=deleted, open_version=open_version)
            return _over_main(snapshot, read, difference, branch, scan)
        some, place = snapshot.files(), place or fresh_name("filename", schema.names)
    elif files is None and (moved or void):
        some = snapshot.files()
        if not void and len(some) > _FEW:
            some = None  # To name the columns of each file then costs more than delta_scan().
    elif files is None and read.footers is None and not read.named and "://" in snapshot.ref.location:
        in_store = snapshot.files()
        if len(in_store) <= _FEW_IN_STORE:
            some, place = in_store, place or fresh_name("filename", schema.names)
    by_vectors = (of_branch or files is not None or bool(void)) and deleted is not None
    by_name = some is not None and (of_branch or not read.named)
    alone = by_name and are_plain(snapshot, some or (), marked=by_vectors, by_any=bool(void))
    if void and not alone:
        raise UnsupportedFeature(
            f"Table {snapshot.ref}: column {', '.join(void)} is VOID, Spark's type of nothing but NULL, and DuckDB "
            "reads such a table only where its other columns are of simple types. Run this with engine: spark, or "
            "drop the column there (ALTER TABLE … DROP COLUMN)."
        )
    source = None
    if alone and some is not None:
        marked = [f for f in some if f.deletion_vector]
        gone = deleted(snapshot, marked) if deleted is not None and marked else {}
        # No stored column may have the name that DuckDB gives to a row's file.
        is_free = _FILENAME not in {stored.lower() for stored in physical_names(schema).values()}
        # In a branch, DuckDB opens no file before the query runs.
        planned = bool((snapshot.partition_columns or of_branch) and some) and not (numbered or also or gone)
        if planned and is_free:
            source, moved = _read_parts(snapshot, some, str(place)), False
        else:
            source = _read(snapshot, some, str(place), gone, numbered=numbered, also=also)
            moved = bool(snapshot.partition_columns)
    elif whole or (place is None and not numbered and (whole := _whole(snapshot, read, open_version))):
        # The alias tells what a query reads, as the arguments of delta_scan() do.
        alias = name_of_files(snapshot.ref.location, snapshot.version)
        source = f"{_parquet(list(map(literally, whole)), 'hive_partitioning => false')} AS {quote_identifier(alias)}"
    elif read.attach is not None and snapshot.long_log and place is None and not numbered:
        source = read.attach(snapshot.ref.location, snapshot.version, snapshot.long_log)
    if source is None:
        options = "" if place is None else f", filename => {quote_literal(place)}"
        options += ", file_row_number => true" if numbered else ""
        if branch is not None:
            source = _through_link(snapshot, branch.log_of(snapshot, files), place, options, numbered=numbered)
        else:
            # A query reads what the URLs in it tell. No table has a URL that ends with a slash.
            url = url_of(snapshot.ref.location) + "/" * is_part
            source = f"delta_scan({quote_literal(url)}, version => {int(snapshot.version)}{options})"
    if of_branch and not whole:
        # The alias tells what a query reads: no log that a query names has this version.
        alias = quote_identifier(name_of_files(snapshot.ref.location, snapshot.version))
        source = f"(SELECT * FROM {source} AS {alias})"
    elif numbered and not alone:
        # ``*`` does not include the row number.
        source = f"(SELECT *, {_NUMBER} FROM {source})"
    if files is not None and not alone:
        inside = ", ".join(quote_literal(place_of(snapshot.ref.location, f)) for f in files) or "NULL"
        source = f"(SELECT * FROM {source} WHERE {quote_identifier(str(place))} IN ({inside}))"
    # Most scans need no list of their files.
    read_files = snapshot.files() if files is None and (moved or legacy or also) else files or ()
    if moved:
        # delta_scan() looks up partition columns by logical names among physical columns. It
        # returns NULL, or the value of another column. https://github.com/duckdb/duckdb-delta/issues/343
        named_columns = quoted_names(snapshot.partition_columns)
        source = f"({_valued(source, snapshot, read_files, str(place), named_columns, there=True)})"
    if legacy:
        source = _with_lists(source, snapshot, read_files, str(place))
    if also and not alone:
        source = _with_more(source, snapshot, read_files, str(place), also)
    quoted, padded, unseen = quoted_names(schema.names), padded_columns(schema), rounded | _dotted(schema)
    names = ", ".join(
        f"{padded[name]} AS {column}" if name in padded else _unseen(column) if name in unseen else column
        for name, column in quoted.items()
    )
    names += "" if read.file is None else f", {quote_identifier(read.file)}"
    names += "" if read.row is None else f", {_NUMBER} AS {quote_identifier(read.row)}"
    names += "".join(f", {quote_identifier(name)}" for name in also)
    return f"(SELECT {names} FROM {source})"


def _whole(snapshot: Snapshot, read: ReadAs, open_version: OpenVersion | None) -> Sequence[str] | None:
    """Return the files to read without the log; see plain_files()."""
    if read.footers is None:
        return None
    if open_version is None or not read.ranges:
        return plain_files(snapshot, read.footers)
    return plain_files(snapshot, read.footers, near=partial(files_near, open_version, ranges=read.ranges))


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


def _read_parts(snapshot: Snapshot, files: Sequence[ScanFile], place: str) -> str:
    """Return SQL of the rows of plain files, with the file of each row. It opens no file."""
    # DuckDB evaluates a filter on partitions before it opens files. So the values stand directly on
    # the scan, under DuckDB's own name of the file column. The columns are the log's.
    schema, parts = snapshot.stored_schema, snapshot.partition_columns
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
    valued = _valued(read, snapshot, files, _FILENAME, named) if parts else f"SELECT * FROM {read}"
    return f"(SELECT {', '.join(selected)}, {_FILENAME} AS {quote_identifier(place)} FROM ({valued}))"


def _read(
    snapshot: Snapshot,
    files: Sequence[ScanFile],
    place: str,
    deleted: Mapping[str, Any],
    *,
    numbered: bool,
    also: Sequence[str],
) -> str:
    """Return SQL of the rows of plain files in the table's columns, with the file of each row.

    Columns that no file has are NULL, and so are the partition columns.

    Args:
        deleted: Rows to leave out, by file path.
    """
    schema = snapshot.stored_schema
    kinds, stored = sql_types(schema), physical_names(schema)
    nothing = select_list(
        {stored[name]: f"CAST(NULL AS {kind})" for name, kind in kinds.items()}
        | {place: "CAST(NULL AS VARCHAR)"}
        | dict.fromkeys([*([_NUMBER] * numbered), *also], "CAST(NULL AS BIGINT)")
    )
    reads = [f"SELECT {nothing} WHERE false"]
    options = f"{_BY_NAME}, filename => {quote_literal(place)}"
    whole = [literally(place_of(snapshot.ref.location, f)) for f in files if f.path not in deleted]
    if whole:
        reads.append(f"SELECT * FROM {_parquet(whole, options + f', {_NUMBER} => true' * numbered)}")
    if deleted:
        marked = [literally(place_of(snapshot.ref.location, f)) for f in files if f.path in deleted]
        gone = ", ".join(
            f"({quote_literal(place_of(snapshot.ref.location, f))}, {quote_literal(json.dumps(list(deleted[f.path])))})"
            for f in files
            if f.path in deleted
        )
        rows = f"SELECT place, unnest(from_json(rows, '[\"BIGINT\"]')) AS row FROM (VALUES {gone}) AS said(place, rows)"
        columns_of_marked = "*" if numbered else f"* EXCLUDE ({_NUMBER})"
        reads.append(
            f"SELECT {columns_of_marked} FROM {_parquet(marked, f'{options}, {_NUMBER} => true')} AS held ANTI JOIN "
            f"({rows}) AS gone ON held.{quote_identifier(place)} = gone.place AND held.{_NUMBER} = gone.row"
        )
    quoted = quoted_names(stored.values())
    selected = select_list({name: f"CAST({quoted[stored[name]]} AS {kind})" for name, kind in kinds.items()})
    beside = quoted_list([place, *([_NUMBER] * numbered), *also])
    return f"(SELECT {selected}, {beside} FROM ({' UNION ALL BY NAME '.join(reads)}))"


def _through_link(snapshot: Snapshot, folder: str, place: str | None, options: str, *, numbered: bool) -> str:
    """Return SQL that reads a snapshot by a log elsewhere, with the files where they are."""
    scan = f"delta_scan({quote_literal(url_of(folder))}, version => 0{options})"
    if place is None:
        return scan
    name, length = quote_identifier(place), len(f"{folder}/{LINK}/") + 1
    there = f"{quote_literal(f'{snapshot.ref.location}/')} || substr({name}, {length})"
    return f"(SELECT * REPLACE ({there} AS {name}){f', {_NUMBER}' if numbered else ''} FROM {scan})"


def _over_main(
    snapshot: Snapshot, read: ReadAs, difference: Difference, branch: BranchReads, scan: Callable[..., str]
) -> str:
    """Return SQL that reads a version of a branch by main's log, and the branch's files by name.

    DuckDB then skips main's files by the bounds in the log, and opens none of them to learn its
    columns.
    """
    place = read.file or (fresh_name("filename", snapshot.stored_schema.names) if difference.gone else None)
    of_main = scan(difference.base, replace(read, file=place, attach=None, footers=None, named=True), is_part=True)
    of_branch = scan(snapshot, replace(read, files=difference.new, footers=None), branch=branch)
    names = quoted_list([*snapshot.stored_schema.names, *filter(None, (read.file, read.row)), *read.also])
    if difference.gone:
        # DuckDB would evaluate NOT IN once per file and value.
        gone = ", ".join(f"({quote_literal(place_of(snapshot.ref.location, file))})" for file in difference.gone)
        of_main += (
            f" AS main ANTI JOIN (VALUES {gone}) AS gone(place) ON main.{quote_identifier(str(place))} = gone.place"
        )
    return f"(SELECT {names} FROM {of_main} UNION ALL SELECT {names} FROM {of_branch})"


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


def _valued(
    source: str,
    snapshot: Snapshot,
    files: Sequence[ScanFile],
    place: str,
    named: Mapping[str, str],
    *,
    there: bool = False,
) -> str:
    """Return SQL that adds the partition values of the files.

    Args:
        named: Name in the SQL of each partition column.
    """
    kinds = {c: sql_type(snapshot.stored_schema.field(c).type) for c in named}
    values = {
        place_of(snapshot.ref.location, f): [
            partition_literal(f.partition_values.get(c), kind) for c, kind in kinds.items()
        ]
        for f in files
    }
    named_kinds = {named[c]: kind for c, kind in kinds.items()}
    return with_values(source, quote_identifier(place), values, named_kinds, _lost(snapshot), there=there)


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
