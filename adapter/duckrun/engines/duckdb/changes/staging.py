"""Staged files: any number of processes write a part of the rows each, and one commits them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

import duckdb

from duckrun.engines import decisions
from duckrun.engines.duckdb.changes.change import compared
from duckrun.engines.duckdb.changes.write import refuse_clustering
from duckrun.engines.duckdb.rows.computed import gives_numbers
from duckrun.engines.duckdb.rows.fitted import finished, fitted, stored_types, taking_types, types_of
from duckrun.engines.duckdb.rows.source import Rows, select
from duckrun.engines.duckdb.writers import staged
from duckrun.engines.duckdb.writers.file_tables import FileTableWriter
from duckrun.errors import CommitConflict, InvalidConfig, SchemaMismatch, StorageError, UnsupportedFeature
from duckrun.formats.format import Format, logs_of
from duckrun.formats.logs import LogTables
from duckrun.libraries import pa
from duckrun.run.transaction import Transaction
from duckrun.sql.char_types import is_limited
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.storage.storage import Storage
from duckrun.values.branches import BRANCHES
from duckrun.values.columns import is_required
from duckrun.values.data_files import is_absolute, literally
from duckrun.values.rows import Commit, StagedFile, WriteSpec, counted_rows
from duckrun.values.snapshot import ReadAs, Snapshot, TableRef, schema_from_text, schema_to_text
from duckrun.values.stored import other_names


def stage(
    form: Format, ref: TableRef, rows: Rows, snapshot: Snapshot | None, partition_by: Sequence[str] | None
) -> tuple[StagedFile, ...]:
    """Write a part of the rows of a future commit; no reader sees it before commit_staged()."""
    _refuse_numbers(snapshot)
    if snapshot is not None:
        decisions.refuse_other_partitions(snapshot, partition_by)
    keys = tuple(partition_by or ()) if snapshot is None else snapshot.partition_columns
    transactions = form.transactions
    columns = keys if transactions is None else ()
    if snapshot is not None:
        rows = finished(form, taking_types(rows, types_of(snapshot)), snapshot)
    else:
        rows = fitted(ref, rows, {n: (n, k) for n, k in stored_types(form, rows.types).items()}, columns)
    if transactions is not None:
        # The values of the partition keys are computed when the rows are inserted.
        parts = dict.fromkeys(keys if snapshot is None else snapshot.partition_keys)
        folder = transactions.staging_folder(ref, snapshot)
        files = tuple(
            replace(file, path=f"{folder}/{file.path}", partition_values=parts)
            for file in staged.stage(rows, replace(ref, location=folder))
        )
    else:
        properties = {} if snapshot is None else snapshot.properties
        logs = logs_of(form)
        stored = () if snapshot is None else logs.stored_columns(snapshot.schema)
        files = staged.stage_in(logs.files_folder(ref), rows, ref, columns, properties=properties, stored=stored)
    if snapshot is None:
        return files
    fingerprint = _fingerprint(snapshot)
    return tuple(
        replace(file, table_id=snapshot.table_id, table_version=snapshot.version, judged_by=fingerprint)
        for file in files
    )


def commit_staged(
    writer: FileTableWriter, spec: WriteSpec, files: Sequence[StagedFile], cursor: duckdb.DuckDBPyConnection
) -> Commit:
    """Commit the files of stage(), from this or other processes, as one append or overwrite.

    The table may have changed since. Files of another table, files that are committed already, and
    missing files are refused. Rows are checked again if the table's columns or constraints have
    changed.

    Raises:
        CommitConflict: The table was replaced, or has the files already. Or another branch of the
            lake staged them.
        InvalidConfig: The spec does not match the files.
        SchemaMismatch: The files' columns or rows do not fit the table.
        StorageError: A file no longer exists.
    """
    transaction = writer.transaction
    ref, form = transaction.ref, transaction.lake.format
    schema, partition_by = _as_staged(spec, ref, files)
    _refuse_places(ref, files, writer.logs.files_folder(ref))
    reason = "files staged beforehand"

    def attempt(snapshot: Snapshot | None) -> Commit:
        is_anew = transaction.is_anew
        if snapshot is not None:
            writer.logs.refuse_unknown_features(snapshot)
            if not is_anew:
                decisions.leaves_table(spec.mode, snapshot)
        refuse_other_table(ref, files, snapshot)
        _refuse_gone(writer.logs, ref, files)
        refuse_clustering(spec, snapshot)
        if snapshot is not None:
            _refuse_numbers(snapshot)
            _refuse_committed(form, ref, files)
        adds = snapshot is not None and spec.mode == "append" and not is_anew
        if snapshot is not None and not is_anew:
            if set(partition_by) != set(snapshot.partition_columns):
                raise SchemaMismatch(f"Table {ref} is partitioned by {snapshot.partition_columns}, not {partition_by}.")
            if spec.mode == "append" and set(schema.names) != set(snapshot.schema.names):
                raise SchemaMismatch(f"Table {ref} has the columns {snapshot.schema.names}, not {schema.names}.")
        if snapshot is not None and adds:
            _refuse_other_names(writer.logs, ref, schema, snapshot.schema)
            _judge(form, spec, files, schema, snapshot, cursor)
            if (earlier := transaction.compared_with) is not None:
                rows = select(cursor, form.scan_sql(snapshot, ReadAs(files=files))[1:-1])
                return compared(transaction, earlier, rows, snapshot)
            return writer.add(files, snapshot, reason)
        bare = pa.schema([field.remove_metadata() for field in schema])
        whole = replace(spec, mode="overwrite") if is_anew else spec
        definition = writer.definition(whole, bare, partition_by, snapshot)
        _refuse_other_names(writer.logs, ref, schema, definition.schema)
        if snapshot is not None and not spec.redefine:
            _judge(form, spec, files, schema, snapshot, cursor)
        elif spec.within is not None:
            raise InvalidConfig(f"Table {ref}: within is checked as rows are written, not of files for a new table.")
        return writer.swap_all(whole, files, snapshot, definition, reason)

    return transaction.run_spec(attempt, spec, "duckdb")


def commit_staged_rows(
    transaction: Transaction,
    spec: WriteSpec,
    files: Sequence[StagedFile],
    cursor: duckdb.DuckDBPyConnection,
    attempt_of: Callable[[WriteSpec], Callable[[Rows, duckdb.DuckDBPyConnection, Snapshot | None], Commit]],
) -> Commit:
    """Commit the files of stage() to a table whose rows are written by statements.

    The commit reads the files and inserts their rows. So partitions, sort order and inlined rows
    are those of any other write. The caller removes the files with ``remove_staged()``, once no
    transaction can roll the commit back. Files that are never committed lie in the lake's data, and
    its maintenance removes them with other orphans.

    ``attempt_of`` returns an attempt of a write of rows. Raises as ``commit_staged()``.
    """
    storage, ref = transaction.lake.storage, transaction.ref
    schema, partition_by = _as_staged(spec, ref, files)
    names = ", ".join(map(quote_identifier, schema.names))
    paths = ", ".join(quote_literal(literally(file.path)) for file in files)

    def attempt(snapshot: Snapshot | None) -> Commit:
        # Not before the attempt: if the commit was made earlier, the files no longer exist.
        refuse_other_table(ref, files, snapshot)
        for file in files:
            is_below = file.path.startswith(storage.root.rstrip("/") + "/") and ".." not in file.path.split("/")
            if not is_below or not file.path.endswith(".parquet"):
                raise InvalidConfig(f"Table {ref}: {file.path!r} is no staged file of this lake")
        if gone := [file.path for file in files if not storage.has(*file.path.rsplit("/", 1))]:
            raise StorageError(
                f"Table {ref}: {len(gone)} of {len(files)} staged files are gone, such as {gone[0]}: they were "
                "committed before, or removed by maintenance",
                remedy=_AGAIN,
            )
        added = snapshot is not None and spec.mode == "append"
        keys = spec.partition_by if added or spec.partition_by is not None else partition_by
        rows = select(cursor, f"SELECT {names} FROM read_parquet([{paths}], hive_partitioning = false)")
        return attempt_of(replace(spec, partition_by=keys))(rows, cursor, snapshot)

    return transaction.run_spec(attempt, spec, "duckdb")


def remove_staged(storage: Storage, files: Sequence[StagedFile]) -> None:
    """Remove staged files."""
    for folder, of_folder in groupby(sorted(file.path for file in files), key=lambda path: path.rpartition("/")[0]):
        storage.remove_files(folder, [path.rpartition("/")[2] for path in of_folder])


_AGAIN = "stage the rows again"


def _fingerprint(snapshot: Snapshot) -> str:
    """Hash of the table's columns, constraints and partition keys."""
    definition = [schema_to_text(snapshot.schema), sorted(snapshot.checks.items()), snapshot.partition_keys]
    return hashlib.sha256(json.dumps(definition).encode()).hexdigest()[:32]


def _refuse_numbers(snapshot: Snapshot | None) -> None:
    if snapshot is not None and gives_numbers(snapshot):
        raise UnsupportedFeature(
            f"Table {snapshot.ref} has an identity column, whose numbers a commit gives: its files cannot be "
            "staged by themselves",
            remedy="append the rows",
        )


def _refuse_places(ref: TableRef, files: Sequence[StagedFile], folder: str) -> None:
    """Raise InvalidConfig for a path outside the table's folder, or a repeated path.

    Raises CommitConflict for a file of another branch, whose files go with it.

    Args:
        ref: The table.
        files: The staged files.
        folder: Folder of the branch's files; empty for the lake itself.
    """
    seen = set()
    for file in files:
        parts = file.path.split("/")
        if is_absolute(file.path) or not file.path.endswith(".parquet") or {"..", ".", "", "_delta_log"} & set(parts):
            raise InvalidConfig(f"Table {ref}: {file.path!r} is no staged file of its folder", remedy=_AGAIN)
        if ("/".join(parts[:2]) if parts[0] == BRANCHES else "") != folder:
            raise CommitConflict(
                f"Table {ref}: the staged file {file.path} is of another branch, or of the lake itself", remedy=_AGAIN
            )
        if file.path in seen:
            raise InvalidConfig(f"Table {ref}: the staged file {file.path} is named twice; name each once.")
        seen.add(file.path)


def refuse_other_table(ref: TableRef, files: Sequence[StagedFile], snapshot: Snapshot | None) -> None:
    """Raise CommitConflict for files that were staged for another table than the existing one."""
    for file in files:
        if file.table_id and (snapshot is None or snapshot.table_id != file.table_id):
            now = "is not there" if snapshot is None else "is another one, or was made anew since"
            raise CommitConflict(
                f"Table {ref} {now}: the staged file {file.path} is of table id {file.table_id}",
                remedy=_AGAIN,
            )


def _refuse_gone(logs: LogTables, ref: TableRef, files: Sequence[StagedFile]) -> None:
    if missing := logs.missing_files(ref, files):
        raise StorageError(
            f"Table {ref}: {len(missing)} of {len(files)} staged files are not in its folder, such as "
            f"{missing[0].path}: they were vacuumed or removed, or are of another table",
            remedy=_AGAIN,
        )


def _refuse_committed(form: Format, ref: TableRef, files: Sequence[StagedFile]) -> None:
    """Raise CommitConflict for files, present or removed, that a commit since stage() added."""
    names = {file.path for file in files}
    since = min(file.table_version for file in files)
    for record in form.records_after(ref, since):
        if again := sorted(names & record.added_paths):
            raise CommitConflict(
                f"Table {ref}: version {record.version} has the staged file {again[0]} already: its rows would "
                "come twice",
                remedy="give a write that may be repeated an AppTransaction (app)",
            )


def _judge(
    form: Format,
    spec: WriteSpec,
    files: Sequence[StagedFile],
    schema: pa.Schema,
    snapshot: Snapshot,
    cursor: duckdb.DuckDBPyConnection,
) -> None:
    """Check the rows of files again if they were checked against other columns or constraints.

    Raises SchemaMismatch for rows that do not fit, CommitConflict if the files cannot be read.
    """
    ref, fingerprint = snapshot.ref, _fingerprint(snapshot)
    if spec.within is None and all(file.judged_by == fingerprint for file in files):
        return
    kinds = _kinds(form, schema)
    others = [name for name, kind in _kinds(form, snapshot.schema).items() if kinds.get(name) != kind]
    overwrites = spec.mode == "overwrite"
    limits = [field for field in snapshot.schema if is_required(field) or is_limited(field)]
    is_restricted = snapshot.checks or spec.within or snapshot.computed() or limits
    if not is_restricted and (overwrites or not others):
        return
    if others or len(kinds) != len(snapshot.schema):
        what = f"the column {', '.join(others)} is of another type now" if others else "the table has other columns now"
        raise SchemaMismatch(f"Table {ref}: {what} than when the files were staged", remedy=_AGAIN)
    rows = finished(form, select(cursor, form.scan_sql(snapshot, ReadAs(files=files))[1:-1]), snapshot, spec=spec)
    counts = cursor.execute(f"SELECT count(*), count(COLUMNS(*)) FROM ({rows.sql})").fetchone()
    if counts is None or counts[0] != counted_rows(files):
        raise CommitConflict(
            f"Table {ref} has other columns or constraints than when the files were staged", remedy=_AGAIN
        )


def _kinds(form: Format, schema: pa.Schema) -> dict[str, str]:
    """Types of columns by name, as the format stores them."""
    bare = pa.schema([pa.field(field.name, field.type) for field in schema])
    return {each["name"]: json.dumps(each["type"], sort_keys=True) for each in form.fields_of(bare)}


def _refuse_other_names(logs: LogTables, ref: TableRef, staged_as: pa.Schema, table: pa.Schema) -> None:
    if others := other_names(staged_as, table, logs.stored_columns(table)):
        raise CommitConflict(
            f"Table {ref}: the staged files know the column {', '.join(others)} by another name than the table "
            "gives it in its files (delta.columnMapping.mode): the table was made anew, or gets the column by "
            "this commit",
            remedy="stage the rows again, or write them by one overwrite",
        )


def _as_staged(spec: WriteSpec, ref: TableRef, files: Sequence[StagedFile]) -> tuple[pa.Schema, tuple[str, ...]]:
    """Columns and partition keys that stage() wrote files for.

    Raises:
        InvalidConfig: The spec cannot commit staged files, or there are none. Or the spec or a file
            has other partitions than the first file.
        SchemaMismatch: The files have different schemas.
    """
    if spec.mode not in ("append", "overwrite", "error"):
        raise InvalidConfig(f"Staged files are committed by append, overwrite or error, not by {spec.mode}.")
    if spec.constraints:
        raise InvalidConfig(f"Table {ref}: constraints are checked as rows are written, not of files.")
    if not files:
        raise InvalidConfig(f"Table {ref}: there are no staged files to commit; stage() gives none for no rows.")
    schemas = {file.schema for file in files}
    if len(schemas) != 1:
        raise SchemaMismatch(f"Table {ref}: the staged files have {len(schemas)} different schemas.")
    partition_by = tuple(files[0].partition_values)
    if any(set(file.partition_values) != set(partition_by) for file in files):
        raise InvalidConfig(f"Table {ref}: the staged files have different partitions", remedy=_AGAIN)
    if spec.partition_by is not None and tuple(spec.partition_by) != tuple(partition_by):
        raise InvalidConfig(
            f"Table {ref}: partition_by is {', '.join(spec.partition_by) or 'nothing'}, and the staged files are "
            f"partitioned by {', '.join(partition_by) or 'nothing'}: give partition_by to stage(), which writes the "
            "files",
            remedy=_AGAIN,
        )
    return schema_from_text(schemas.pop()), partition_by
