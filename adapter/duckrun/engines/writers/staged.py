"""The staged writer: DuckDB writes the Parquet files, one fenced commit shows them and removes what they replace."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from duckrun.engines.duckdb_source import Rows, arrow_schema
from duckrun.engines.writers.statistics import delta_stats
from duckrun.errors import StorageError, UnsupportedFeature
from duckrun.formats.definition import Definition
from duckrun.formats.delta_commit import NewCommit
from duckrun.formats.delta_log import CommitActions, CommitTaken, refused
from duckrun.specs import ScanFile, StagedFile
from duckrun.sql import quote_identifier, quote_literal
from duckrun.table import Snapshot, TableRef, schema_to_text
from duckrun.transaction import Transaction

log = logging.getLogger(__name__)


def stage(
    rows: Rows,
    ref: TableRef,
    partition_by: Sequence[str] = (),
    *,
    target_file_size: int | None = None,
    row_group_size: int | None = None,
    beside: ScanFile | None = None,
) -> tuple[StagedFile, ...]:
    """Write rows as Parquet files into a table's folder. No reader sees them before they are committed.

    Values of partition columns come as the log writes them; file names are unique, so that processes never collide.
    DuckDB begins another file between row groups only, so ``row_group_size`` (rows) bounds how close it keeps to
    ``target_file_size``. ``beside``: the rows are of that file's partition, without its columns, and go into the same folder.
    """
    if not ref.location.startswith(("s3://", "az://", "abfss://", "gs://")):
        Path(ref.location).mkdir(parents=True, exist_ok=True)
    kinds = {name: kind for name, kind in rows.types.items() if name not in partition_by}
    if not kinds:
        raise UnsupportedFeature(f"Table {ref} needs a column that it is not partitioned by.")
    schema = schema_to_text(arrow_schema(rows))
    options = ["FORMAT parquet", "RETURN_STATS", "COMPRESSION snappy"]
    if row_group_size:
        options.append(f"ROW_GROUP_SIZE {int(row_group_size)}")
    if partition_by:
        names = ", ".join(quote_identifier(c) for c in partition_by)
        options += [f"PARTITION_BY ({names})", "WRITE_PARTITION_COLUMNS false", "OVERWRITE_OR_IGNORE true"]
        options.append("FILENAME_PATTERN 'part-{uuid}-c000.snappy'")
        values = ", ".join(f"{_log_value(c, rows.types[c])} AS {quote_identifier(c)}" for c in partition_by)
        query, target = f"SELECT * REPLACE ({values}) FROM ({rows.sql})", ref.location
    else:
        folder = "/".join(filter(None, (ref.location, beside.path.rpartition("/")[0] if beside else "")))
        if target_file_size:
            options += [f"FILE_SIZE_BYTES {int(target_file_size)}", "FILENAME_PATTERN 'part-{uuid}-c000.snappy'"]
            options.append("OVERWRITE_OR_IGNORE true")
            target = folder
        else:
            target = f"{folder}/part-{uuid.uuid4()}-c000.snappy.parquet"
        query = rows.sql
    written = rows.cursor.execute(f"COPY ({query}) TO {quote_literal(target)} ({', '.join(options)})").fetchall()
    staged = []
    for file, count, size, _footer, columns, keys in written:
        path = _relative(str(file), ref.location)
        if count:
            staged.append(
                StagedFile(
                    path=path,
                    size=size,
                    partition_values=dict(beside.partition_values if beside else keys or {}),
                    stats=delta_stats(count, columns, kinds),
                    rows=count,
                    schema=schema,
                )
            )
        elif "://" not in ref.location:
            (Path(ref.location) / path).unlink(missing_ok=True)
    return tuple(staged)


def _log_value(column: str, kind: Any) -> str:
    """SQL for a partition value as text. Source: Delta protocol, Partition Value Serialization."""
    name = quote_identifier(column)
    if kind.id == "timestamp with time zone":
        name = f"timezone('UTC', {name})"
    return f"CAST({name} AS VARCHAR)"


def _relative(file: str, location: str) -> str:
    file = file.replace("\\", "/")
    if not file.startswith(location + "/"):
        raise StorageError(f"DuckDB wrote {file}, which is not below {location}.")
    return file[len(location) + 1 :]


def commit(
    transaction: Transaction,
    snapshot: Snapshot | None,
    staged: Sequence[StagedFile],
    removed: Sequence[ScanFile] = (),
    *,
    schema: pa.Schema,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    description: str | None = None,
    overwrite: bool = False,
    fenced: bool = False,
    data_change: bool = True,
    definition: Definition | None = None,
    operation: str | None = None,
    **counts: Any,
) -> int:
    """Make staged files visible, and remove what they replace, in one commit. Returns its version.

    If the version is taken, the same files go on top as long as no commit between touched what this one read;
    else CommitTaken, and the transaction runs again. ``definition`` changes the table in the same commit.
    """
    ref, form = transaction.ref, transaction.lake.format
    blind = counts.pop("blind", False)
    note = transaction.note(**{"rows_inserted": sum(f.rows for f in staged), **counts})
    commit_properties: CommitProperties = form.properties(transaction.app, note)
    now = int(time.time() * 1000)
    adds = [AddAction(f.path, f.size, f.partition_values, now, data_change, f.stats or "") for f in staged]
    if snapshot is None and definition is not None:
        return form.commit(ref, None, NewCommit(operation or "WRITE", note, definition, staged, (), transaction.app))
    if snapshot is None:
        try:
            create_table_with_add_actions(
                ref.location,
                Schema.from_arrow(schema),
                adds,
                mode="error",
                partition_by=list(partition_by),
                description=description,
                configuration=dict(properties or {}) or None,
                storage_options=transaction.lake.storage.delta_options(),
                commit_properties=commit_properties,
            )
        except (CommitFailedError, DeltaError) as error:
            if form.exists(ref):
                raise CommitTaken(str(error)) from error
            raise
        return 0
    own = definition is not None or operation is not None or any(f.deletion_vector for f in removed)
    at = snapshot.version
    while True:
        try:
            if own:  # deltalake's transaction changes no definition, and its remove action carries no deletion vector
                new = NewCommit(
                    operation or "WRITE", note, definition, staged, removed, transaction.app, data_change=data_change
                )
                return form.commit(ref, snapshot if at == snapshot.version else form.snapshot(ref, at), new)
            actions: list[AddAction | RemoveAction] = [*adds]
            actions += [RemoveAction(f.path, data_change, now, f.size, dict(f.partition_values)) for f in removed]
            form.handle(ref, at).create_write_transaction(
                actions,
                "overwrite" if overwrite else "append",
                Schema.from_arrow(schema),
                list(snapshot.partition_columns),
                commit_properties=commit_properties,
            )
            return at + 1
        except (CommitFailedError, CommitTaken) as error:
            others = transaction.commits_after(at)
            fixed = fenced or overwrite or definition is not None or not others
            if fixed or not _may_go_on_top(transaction, others, staged, removed, blind):
                raise refused(ref, error) from error
            log.info("table %s: version %s was taken, committing the same files on top", ref, at + 1)
            at = others[-1].version
        except SchemaMismatchError as error:
            raise CommitTaken(str(error)) from error


def _may_go_on_top(
    transaction: Transaction,
    others: Iterable[CommitActions],
    staged: Sequence[StagedFile],
    removed: Sequence[ScanFile],
    blind: bool,
) -> bool:
    """False if a commit between removed a file of ours, added rows that ours could have read, or changed the table."""
    ours = {f.path for f in removed}
    touched = {tuple(sorted(f.partition_values.items())) for f in (*staged, *removed)}
    for other in others:
        if other.changes_metadata or (
            transaction.app is not None and any(t.app_id == transaction.app.app_id for t in other.transactions)
        ):
            return False
        if any(unquote(remove["path"]) in ours for remove in other.removes):
            return False
        if blind:
            continue
        for add in other.adds:
            values = tuple(sorted((add.get("partitionValues") or {}).items()))
            if add.get("dataChange", True) and (not values or values in touched):
                return False
    return True


def partitions_of(files: Iterable[ScanFile]) -> set[tuple[tuple[str, str | None], ...]]:
    """The partitions that some files lie in."""
    return {tuple(sorted(f.partition_values.items())) for f in files}
