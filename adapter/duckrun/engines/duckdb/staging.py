"""Files that any number of processes stage, and one commits: a part of the rows each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from duckrun.engines.data_files import file_properties
from duckrun.engines.duckdb.computed import gives_numbers
from duckrun.engines.duckdb.rows_to_write import fitted, stored_types, taking_types, types_of
from duckrun.engines.duckdb.source import Rows
from duckrun.engines.duckdb.writers import staged, staged_rows
from duckrun.errors import CommitConflict, InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.values.rows import Commit, StagedFile, WriteSpec
from duckrun.values.snapshot import Snapshot, schema_from_text
from duckrun.values.stored import other_names

if TYPE_CHECKING:
    from duckrun.engines.duckdb.write import Job


def stage(
    job: Job, rows: Rows, snapshot: Snapshot | None, partition_by: Sequence[str] | None
) -> tuple[StagedFile, ...]:
    """Write a part of the rows of a commit to come; no reader sees it before commit_staged()."""
    ref, form = job.transaction.ref, job.form
    if snapshot is not None and gives_numbers(snapshot):
        raise UnsupportedFeature(
            f"Table {ref} has an identity column, whose numbers a commit gives: its files cannot be staged by "
            "themselves. Nothing was written; append the rows."
        )
    keys = job.partitions(partition_by, snapshot, whole=snapshot is None)
    whole = form.whole
    columns = keys if whole is None else ()
    if snapshot is not None:
        rows = job.finished(taking_types(rows, types_of(snapshot, rows.cursor)), snapshot)
    else:
        rows = fitted(ref, rows, {n: (n, k) for n, k in stored_types(form, rows.types).items()}, columns)
    if whole is not None:
        keys = keys if snapshot is None else snapshot.partition_keys
        return staged_rows.stage(rows, whole, ref, snapshot, keys)
    properties = file_properties(job.spec, {} if snapshot is None else snapshot.properties)
    stored = () if snapshot is None else form.stored_columns(snapshot.schema)
    return staged.stage(rows, ref, columns, properties=properties, stored=stored)


def commit_staged(job: Job, files: Sequence[StagedFile]) -> Commit:
    """Commit the files that stage() wrote, here or in other processes, as one append or overwrite. Raises CommitConflict for files
    whose columns have other names than the table, made anew since, gives them in its files.
    """
    schema, spec, ref, form = staged_schema(job, files), job.spec, job.transaction.ref, job.form
    assert isinstance(spec, WriteSpec)
    partition_by = tuple(files[0].partition_values)
    if form.whole is not None:
        job.spec = form.with_properties(replace(spec, partition_by=partition_by), ref)
        return staged_rows.commit(job, files)
    reason = "files staged beforehand"

    def attempt(snapshot: Snapshot | None) -> Commit:
        if snapshot is not None:
            form.refuse_unknown_features(snapshot)
            if spec.mode == "error":
                raise CommitConflict(f"Table {ref} exists already; mode 'error' writes new tables only.")
            if set(partition_by) != set(snapshot.partition_columns):
                raise SchemaMismatch(f"Table {ref} is partitioned by {snapshot.partition_columns}, not {partition_by}.")
            if spec.mode == "append" and set(schema.names) != set(snapshot.schema.names):
                raise SchemaMismatch(f"Table {ref} has the columns {snapshot.schema.names}, not {schema.names}.")
        if snapshot is not None and spec.mode == "append":
            _refuse_other_names(job, schema, snapshot.schema)
            return job.added(files, snapshot, reason)
        bare = pa.schema([field.remove_metadata() for field in schema])
        definition = job.definition(spec, bare, partition_by, snapshot)
        _refuse_other_names(job, schema, definition.schema)
        return job.all_rows(spec, files, snapshot, definition, reason)

    return job.transaction.run(attempt, mode=spec.mode, engine="duckdb")


def _refuse_other_names(job: Job, staged_as: pa.Schema, table: pa.Schema) -> None:
    if others := other_names(staged_as, table, job.form.stored_columns(table)):
        raise CommitConflict(
            f"Table {job.transaction.ref}: the staged files know the column {', '.join(others)} by another name than the table gives it in its "
            "files (delta.columnMapping.mode): the table was made anew, or gets the column by this commit. Nothing was committed; stage "
            "the rows again, or write them by one overwrite."
        )


def staged_schema(job: Job, files: Sequence[StagedFile]) -> pa.Schema:
    """The columns of files that stage() wrote. Raises InvalidConfig, SchemaMismatch for what cannot be one commit."""
    spec, ref = job.spec, job.transaction.ref
    if not isinstance(spec, WriteSpec) or spec.mode not in ("append", "overwrite", "error"):
        raise InvalidConfig(f"Staged files are committed by append, overwrite or error, not by {spec.mode}.")
    if spec.constraints:
        raise InvalidConfig(f"Table {ref}: constraints are checked as rows are written, not of files.")
    schemas = {file.schema for file in files}
    if len(schemas) != 1:
        raise SchemaMismatch(f"Table {ref}: the staged files have {len(schemas)} different schemas.")
    return schema_from_text(schemas.pop())
