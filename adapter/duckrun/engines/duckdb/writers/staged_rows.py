"""Files that N processes stage for a format whose commits are statements, such as DuckLake: one commit reads them and inserts their rows.

So partitions, the order and the rows that lie in the catalog are as of any other write. The files go once the commit is there; those whose commit
never comes lie in the lake's data, and its maintenance removes them with other orphans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from duckrun.engines.duckdb.source import Rows, select
from duckrun.engines.duckdb.writers import staged
from duckrun.errors import InvalidConfig, StorageError
from duckrun.formats.lakes import WholeLake
from duckrun.run.reruns import rerun_of
from duckrun.sql.names import quote_identifier, quote_literal
from duckrun.storage.storage import Storage
from duckrun.values.data_files import literally
from duckrun.values.rows import Commit, StagedFile, WriteSpec
from duckrun.values.snapshot import Snapshot, TableRef, schema_from_text

if TYPE_CHECKING:
    from duckrun.engines.duckdb.write import Job


def stage(
    rows: Rows, whole: WholeLake, ref: TableRef, snapshot: Snapshot | None, keys: Sequence[str]
) -> tuple[StagedFile, ...]:
    """Write rows as files of their whole columns; ``keys`` is by what the table is, or will be, partitioned."""
    folder = whole.staging_folder(ref, snapshot)
    files = staged.stage(rows, replace(ref, location=folder))
    parts = dict.fromkeys(keys)  # the values are computed when the rows are inserted
    return tuple(replace(file, path=f"{folder}/{file.path}", partition_values=parts) for file in files)


def commit(
    job: Job, files: Sequence[StagedFile], partition_by: Sequence[str], verify: Callable[[Snapshot | None], None]
) -> Commit:
    """Insert the rows of staged files, and remove the files.

    ``partition_by`` is what they were staged for; ``verify`` refuses files of another table than the one that is there.
    """
    names = ", ".join(map(quote_identifier, schema_from_text(files[0].schema).names))
    paths = ", ".join(quote_literal(literally(file.path)) for file in files)
    cursor, spec, storage, ref = job.engine.cursor(), job.spec, job.transaction.lake.storage, job.transaction.ref
    assert isinstance(spec, WriteSpec)

    def attempt(snapshot: Snapshot | None) -> Commit:
        # Not before: of a commit that was made earlier the files are gone.
        verify(snapshot)
        for file in files:
            if not _is_below(file.path, storage.root):
                raise InvalidConfig(
                    f"Table {ref}: {file.path!r} is no staged file of this lake. Nothing was committed."
                )
        if gone := [file.path for file in files if not _is_there(storage, file.path)]:
            raise StorageError(
                f"Table {ref}: {len(gone)} of {len(files)} staged files are gone, such as {gone[0]}: they were committed before, or removed "
                f"by maintenance. Nothing was committed; stage the rows again."
            )
        added = snapshot is not None and spec.mode == "append"
        keys = spec.partition_by if added or spec.partition_by is not None else tuple(partition_by)
        job.spec = replace(spec, partition_by=keys)
        rows = select(cursor, f"SELECT {names} FROM read_parquet([{paths}], hive_partitioning = false)")
        return job.attempt(rows, cursor, snapshot)

    done = job.transaction.run(
        attempt, mode=job.spec.mode, engine="duckdb", rerun=partial(rerun_of, job.spec), takes_back="all"
    )
    if not job.engine.in_transaction:
        _remove(job.transaction.lake.storage, files)
    return done


def _is_below(path: str, root: str) -> bool:
    return path.startswith(root.rstrip("/") + "/") and ".." not in path.split("/") and path.endswith(".parquet")


def _is_there(storage: Storage, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return storage.has(folder, name)


def _remove(storage: Storage, files: Sequence[StagedFile]) -> None:
    for folder, of_folder in groupby(sorted(file.path for file in files), key=lambda path: path.rpartition("/")[0]):
        storage.remove_files(folder, [path.rpartition("/")[2] for path in of_folder])
