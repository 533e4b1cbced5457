"""Staged files for a format whose commits are statements, such as DuckLake.

One commit reads the files and inserts their rows. So partitions, sort order and inlined rows are
those of any other write. The commit removes the files. Files that are never committed lie in the
lake's data, and its maintenance removes them with other orphans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

import duckdb

from duckrun.engines.duckdb.rows.source import Rows, select
from duckrun.engines.duckdb.writers import staged
from duckrun.errors import InvalidConfig, StorageError
from duckrun.formats.transactions import TransactionalLake
from duckrun.run.reruns import rerun_of
from duckrun.run.transaction import Transaction
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.storage.storage import Storage
from duckrun.values.data_files import literally
from duckrun.values.rows import Commit, StagedFile, WriteSpec
from duckrun.values.snapshot import Snapshot, TableRef, schema_from_text


def stage(
    rows: Rows, transactions: TransactionalLake, ref: TableRef, snapshot: Snapshot | None, keys: Sequence[str]
) -> tuple[StagedFile, ...]:
    """Write rows as unpartitioned files; they are staged for the partition keys ``keys``."""
    folder = transactions.staging_folder(ref, snapshot)
    files = staged.stage(rows, replace(ref, location=folder))
    parts = dict.fromkeys(keys)  # the values are computed when the rows are inserted
    return tuple(replace(file, path=f"{folder}/{file.path}", partition_values=parts) for file in files)


def commit(
    transaction: Transaction,
    spec: WriteSpec,
    files: Sequence[StagedFile],
    partition_by: Sequence[str],
    cursor: duckdb.DuckDBPyConnection,
    attempt_of: Callable[[WriteSpec], Callable[[Rows, duckdb.DuckDBPyConnection, Snapshot | None], Commit]],
    verify: Callable[[Snapshot | None], None],
) -> Commit:
    """Insert the rows of staged files.

    The caller removes the files with ``remove()``, once no transaction can roll the commit back.

    Args:
        transaction: Transaction of the table.
        spec: The write.
        files: Staged files.
        partition_by: Partition keys that the files were staged for.
        cursor: Cursor of the write.
        attempt_of: Returns an attempt of a write of rows.
        verify: Raises for files of another table than the existing one.
    """
    names = ", ".join(map(quote_identifier, schema_from_text(files[0].schema).names))
    paths = ", ".join(quote_literal(literally(file.path)) for file in files)
    storage, ref = transaction.lake.storage, transaction.ref

    def attempt(snapshot: Snapshot | None) -> Commit:
        # Not before the attempt: if the commit was made earlier, the files no longer exist.
        verify(snapshot)
        for file in files:
            if not _is_below(file.path, storage.root):
                raise InvalidConfig(f"Table {ref}: {file.path!r} is no staged file of this lake")
        if gone := [file.path for file in files if not _is_there(storage, file.path)]:
            raise StorageError(
                f"Table {ref}: {len(gone)} of {len(files)} staged files are gone, such as {gone[0]}: they were "
                "committed before, or removed by maintenance",
                remedy="stage the rows again",
            )
        added = snapshot is not None and spec.mode == "append"
        keys = spec.partition_by if added or spec.partition_by is not None else tuple(partition_by)
        rows = select(cursor, f"SELECT {names} FROM read_parquet([{paths}], hive_partitioning = false)")
        return attempt_of(replace(spec, partition_by=keys))(rows, cursor, snapshot)

    return transaction.run(attempt, mode=spec.mode, engine="duckdb", rerun=partial(rerun_of, spec), takes_back="all")


def _is_below(path: str, root: str) -> bool:
    return path.startswith(root.rstrip("/") + "/") and ".." not in path.split("/") and path.endswith(".parquet")


def _is_there(storage: Storage, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return storage.has(folder, name)


def remove(storage: Storage, files: Sequence[StagedFile]) -> None:
    """Remove staged files."""
    for folder, of_folder in groupby(sorted(file.path for file in files), key=lambda path: path.rpartition("/")[0]):
        storage.remove_files(folder, [path.rpartition("/")[2] for path in of_folder])
