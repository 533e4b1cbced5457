"""Adoption of files by a DuckLake without a copy: checks, and steps that survive a kill.

A Delta table's log is hidden before the lake owns the files, and put away after. In between nobody
sees the table, and its data stays in place. The next adoption settles a kill: the log comes back if
the lake lacks the files, and is put away otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import compress
from typing import Any
from urllib.parse import unquote

import duckdb

from duckrun.errors import InvalidConfig, SchemaMismatch, StorageError, UnsupportedFeature
from duckrun.formats.format import logs_of, transactions_of
from duckrun.lake.lake import Lake
from duckrun.moving.delta import TableToMove
from duckrun.sql.quoting import fresh_name, quote_identifier, quote_literal
from duckrun.values.data_files import is_absolute
from duckrun.values.partition_values import NO_VALUE
from duckrun.values.snapshot import Snapshot, TableRef


def refuse_table(moving: TableToMove, target: Lake, source: Lake) -> list[str]:
    """Return the paths of a Delta table's files for a DuckLake to adopt.

    Raises:
        UnsupportedFeature: The table's files alone are not its rows.
    """
    snapshot, ref = moving.snapshot, moving.snapshot.ref
    why = None
    files = list(snapshot.files())
    if not source.storage.is_local or not target.storage.is_local:
        why = "its log lies in an object store, which has no rename of a folder"
    elif transactions_of(target.format).encrypted:
        why = f"lake {target.root} is encrypted, and its files are not"
    elif snapshot.properties.get("delta.columnMapping.mode", "none") != "none":
        why = "its files have other names of columns (column mapping)"
    elif any(file.deletion_vector for file in files):
        why = (
            "rows of its files are only marked as deleted (deletion vectors): "
            "purge it first, REORG TABLE … APPLY (PURGE)"
        )
    elif far := next((file for file in files if is_absolute(file.path)), None):
        why = f"its log names a file that lies elsewhere, {far.path}"
    elif odd := next((file for file in files if not _is_hive(file.path, snapshot, file.partition_values)), None):
        why = f"the folders of its file {odd.path} do not say the partition {dict(odd.partition_values)}"
    if why is not None:
        raise UnsupportedFeature(
            f"Table {ref} at {ref.location} cannot be adopted: {why}. Move it by copy (without adopt)"
        )
    return [f"{ref.location}/{file.path}" for file in files]


def _is_hive(path: str, snapshot: Snapshot, values: Mapping[str, str | None]) -> bool:
    parts = [part.partition("=") for part in path.split("/")[:-1]]
    folders = {unquote(name): unquote(value) for name, equals, value in parts if equals}
    if not snapshot.partition_columns:
        return not folders
    return folders == {name: NO_VALUE if value is None else value for name, value in values.items()}


def refuse_files(cursor: duckdb.DuckDBPyConnection, target: Lake, ref: TableRef, paths: Sequence[str]) -> None:
    """Raise if a DuckLake table cannot adopt these files.

    Raises:
        InvalidConfig: A file already belongs to a table of the lake, or is listed twice.
        SchemaMismatch: A file has INT96 times, or bounds that leave out a NaN.
        StorageError: A file cannot be read.
    """
    if not paths:
        return
    twice = sorted({path for path in paths if paths.count(path) > 1}) if len(set(paths)) < len(paths) else []
    if twice:
        raise InvalidConfig(f"Table {ref}: the file {twice[0]} is given twice")
    owners = transactions_of(target.format).owners_of(paths)
    for path, owner in owners.items():
        whose = "this table" if owner == f"{ref.schema}.{ref.name}" else f"table {owner}"
        raise InvalidConfig(f"Table {ref}: the file {path} is {whose}'s already")
    listed = ", ".join(quote_literal(path) for path in paths)
    try:
        old = cursor.execute(
            f"SELECT file_name, name FROM parquet_schema([{listed}]) WHERE type = 'INT96' LIMIT 1"
        ).fetchone()
    except duckdb.Error as error:
        raise StorageError(f"Table {ref}: {str(error).splitlines()[0]}") from error
    if old is not None:
        raise SchemaMismatch(
            f"Table {ref}: column {old[1]} of the file {old[0]} has times as INT96, which Parquet has given up; "
            "write it anew with TIMESTAMP_MICROS, or move by copy"
        )
    _refuse_nan(cursor, ref, listed)


def _refuse_nan(cursor: duckdb.DuckDBPyConnection, ref: TableRef, listed: str) -> None:
    """Raise SchemaMismatch for a file with NaN in a column that it has bounds for."""
    # Parquet bounds leave out NaN. DuckLake orders NaN above every number, and would miss its row
    # with ``x > 1``.
    options = "union_by_name => true, hive_partitioning => false"
    try:
        rows = cursor.sql(f"SELECT * FROM read_parquet([{listed}], {options})")
        floats = [path for name, kind in zip(rows.columns, rows.types, strict=True) for path in _floats(kind, (name,))]
        if not floats:
            return
        place = fresh_name("filename", rows.columns)
        has_nan = ", ".join(f"coalesce(bool_or(isnan({quote_identifier(*path)})), false)" for path in floats)
        rows_by_file = cursor.execute(
            f"SELECT {quote_identifier(place)}, {has_nan} FROM read_parquet([{listed}], {options}, filename => "
            f"{quote_literal(place)}) GROUP BY 1"
        ).fetchall()
    except duckdb.Error as error:
        raise SchemaMismatch(f"Table {ref}: {str(error).splitlines()[0]}") from error
    bounds = "SELECT count(*) FROM parquet_metadata(?) WHERE path_in_schema = ? AND stats_max_value IS NOT NULL"
    for file, *has in rows_by_file:
        for path in compress(floats, has):
            known = cursor.execute(bounds, [file, ", ".join(path)]).fetchone()
            if known is not None and known[0]:
                raise SchemaMismatch(
                    f"Table {ref}: column {'.'.join(path)} of the file {file} holds NaN, which the file's bounds "
                    "leave out as Parquet has it; DuckLake would not find it. Move by copy (without adopt)"
                )


def _floats(kind: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of float columns, also inside structs."""
    if kind.id in ("float", "double"):
        yield path
    elif kind.id == "struct":
        for name, inner in kind.children:
            yield from _floats(inner, (*path, name))


def refuse_nulls(cursor: duckdb.DuckDBPyConnection, ref: TableRef, paths: Sequence[str], strict: Sequence[str]) -> None:
    """Raise SchemaMismatch if a column in ``strict`` is missing, or NULL in some row."""
    if not strict or not paths:
        return
    listed = ", ".join(quote_literal(path) for path in paths)
    try:
        rows = cursor.sql(f"SELECT * FROM read_parquet([{listed}], union_by_name => true)")
        names = {name.lower() for name in rows.columns}
        missing = [name for name in strict if name.lower() not in names]
        wrong = " OR ".join(f"{quote_identifier(name)} IS NULL" for name in strict)
        count = 0 if missing else len(rows.filter(wrong))
    except duckdb.Error as error:
        raise SchemaMismatch(f"Table {ref}: {str(error).splitlines()[0]}") from error
    if missing:
        raise SchemaMismatch(f"Table {ref}: these files have no column {', '.join(missing)}, which is NOT NULL")
    if count:
        raise SchemaMismatch(
            f"Table {ref}: {count} rows of these files have a NULL in {', '.join(strict)}, which is NOT NULL"
        )


@contextmanager
def set_aside(source: Lake, target: Lake, refs: Sequence[TableRef]) -> Iterator[None]:
    """Hide tables from Delta readers during a block.

    Afterwards they come back only if the block did not make them tables of the target.
    """
    whose = json.dumps({"lake": target.root, "catalog": target.address})
    logs = logs_of(source.format)
    with ExitStack() as locks:
        for ref in sorted(refs, key=lambda ref: ref.location):
            locks.enter_context(source.format.locked(ref))
        try:
            for ref in refs:
                logs.set_aside(ref, whose)
            yield
        finally:
            for ref in refs:
                settle(source, target, ref)


def settle(source: Lake, target: Lake, ref: TableRef) -> None:
    """Bring back a hidden log, or put it away for good if the target has the table's files.

    Raises:
        StorageError: Another lake hid the log.
    """
    logs = logs_of(source.format)
    owner = logs.whose(ref)
    if owner is None:
        return
    whose = json.loads(owner)
    if whose != {"lake": target.root, "catalog": target.address}:
        raise StorageError(
            f"The log of {ref.location} was set aside by an adoption into lake {whose['lake']} ({whose['catalog']}), "
            "which was ended in between: adopt it there once more."
        )
    logs.bring_back(ref, away=bool(transactions_of(target.format).owners_below(ref.location)))
