"""Files that any number of processes stage, and one commits: a part of the rows each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from duckrun.engines.data_files import file_properties
from duckrun.engines.duckdb.computed import gives_numbers
from duckrun.engines.duckdb.rows_to_write import fitted, stored_types, taking_types, types_of
from duckrun.engines.duckdb.source import Rows, select
from duckrun.engines.duckdb.writers import staged, staged_rows
from duckrun.errors import CommitConflict, InvalidConfig, SchemaMismatch, StorageError, UnsupportedFeature
from duckrun.run.reruns import rerun_of
from duckrun.values.columns import is_required
from duckrun.values.data_files import is_absolute
from duckrun.values.rows import Commit, StagedFile, WriteSpec, counted_rows
from duckrun.values.snapshot import Snapshot, schema_from_text, schema_to_text
from duckrun.values.stored import other_names

if TYPE_CHECKING:
    from duckrun.engines.duckdb.write import Job


def stage(
    job: Job, rows: Rows, snapshot: Snapshot | None, partition_by: Sequence[str] | None
) -> tuple[StagedFile, ...]:
    """Write a part of the rows of a commit to come; no reader sees it before commit_staged()."""
    ref, form = job.transaction.ref, job.form
    _refuse_numbers(snapshot)
    keys = job.partitions(partition_by, snapshot, whole=snapshot is None)
    whole = form.whole
    columns = keys if whole is None else ()
    if snapshot is not None:
        rows = job.finished(taking_types(rows, types_of(snapshot, rows.cursor)), snapshot)
    else:
        rows = fitted(ref, rows, {n: (n, k) for n, k in stored_types(form, rows.types).items()}, columns)
    if whole is not None:
        keys = keys if snapshot is None else snapshot.partition_keys
        files = staged_rows.stage(rows, whole, ref, snapshot, keys)
    else:
        properties = file_properties(job.spec, {} if snapshot is None else snapshot.properties)
        stored = () if snapshot is None else form.stored_columns(snapshot.schema)
        files = staged.stage(rows, ref, columns, properties=properties, stored=stored)
    if snapshot is None:
        return files
    judged = _fingerprint(snapshot)
    return tuple(
        replace(file, table_id=snapshot.table_id, table_version=snapshot.version, judged_by=judged) for file in files
    )


def commit_staged(job: Job, files: Sequence[StagedFile]) -> Commit:
    """Commit the files that stage() wrote, here or in other processes, as one append or overwrite.

    The table may have changed since: files of another table, that were committed before, or that are gone are refused, and rows
    are checked again where the table's columns or constraints are others.

    Raises CommitConflict, InvalidConfig, SchemaMismatch, StorageError. Nothing is committed then.
    """
    ref, form = job.transaction.ref, job.form
    job.spec = form.with_properties(job.spec, ref)
    schema, spec = staged_schema(job, files), job.spec
    assert isinstance(spec, WriteSpec)
    partition_by = tuple(files[0].partition_values)
    _refuse_other_partitions(job, files, partition_by)
    if form.whole is not None:
        return staged_rows.commit(job, files, partition_by, lambda snapshot: _refuse_other_table(job, files, snapshot))
    _refuse_places(job, files)
    reason = "files staged beforehand"

    def attempt(snapshot: Snapshot | None) -> Commit:
        if snapshot is not None:
            form.refuse_unknown_features(snapshot)
            if spec.mode == "error" and not job.is_anew:
                raise CommitConflict(f"Table {ref} exists already; mode 'error' writes new tables only.")
        _refuse_other_table(job, files, snapshot)
        _refuse_gone(job, files)
        job.refuse_clustering(spec, snapshot)
        if snapshot is not None:
            _refuse_numbers(snapshot)
            _refuse_committed(job, files)
        adds = snapshot is not None and spec.mode == "append" and not job.is_anew
        if snapshot is not None and not job.is_anew:
            if set(partition_by) != set(snapshot.partition_columns):
                raise SchemaMismatch(f"Table {ref} is partitioned by {snapshot.partition_columns}, not {partition_by}.")
            if spec.mode == "append" and set(schema.names) != set(snapshot.schema.names):
                raise SchemaMismatch(f"Table {ref} has the columns {snapshot.schema.names}, not {schema.names}.")
        if snapshot is not None and adds:
            _refuse_other_names(job, schema, snapshot.schema)
            _judge(job, files, schema, snapshot)
            if (earlier := job.transaction.compared_with) is not None:
                return job.compared(
                    earlier, select(job.engine.cursor(), form.scan_sql(snapshot, files=files)[1:-1]), snapshot
                )
            return job.added(files, snapshot, reason)
        bare = pa.schema([field.remove_metadata() for field in schema])
        whole = replace(spec, mode="overwrite") if job.is_anew else spec
        definition = job.definition(whole, bare, partition_by, snapshot)
        _refuse_other_names(job, schema, definition.schema)
        if snapshot is not None and not spec.redefine:
            _judge(job, files, schema, snapshot)
        elif spec.within is not None:
            raise InvalidConfig(f"Table {ref}: within is checked as rows are written, not of files for a new table.")
        return job.all_rows(whole, files, snapshot, definition, reason)

    return job.transaction.run(
        attempt, mode=spec.mode, engine="duckdb", rerun=partial(rerun_of, spec), takes_back="all"
    )


_AGAIN = "Nothing was committed; stage the rows again."


def _fingerprint(snapshot: Snapshot) -> str:
    """Tells the columns and constraints of a table from any others."""
    held = [schema_to_text(snapshot.schema), sorted(snapshot.checks.items()), snapshot.partition_keys]
    return hashlib.sha256(json.dumps(held).encode()).hexdigest()[:32]


def _refuse_numbers(snapshot: Snapshot | None) -> None:
    if snapshot is not None and gives_numbers(snapshot):
        raise UnsupportedFeature(
            f"Table {snapshot.ref} has an identity column, whose numbers a commit gives: its files cannot be staged by "
            "themselves. Nothing was written; append the rows."
        )


def _refuse_other_partitions(job: Job, files: Sequence[StagedFile], partition_by: Sequence[str]) -> None:
    """Raise InvalidConfig where the spec, or one of the files, has other partitions than the files."""
    ref, spec = job.transaction.ref, job.spec
    assert isinstance(spec, WriteSpec)
    if any(set(file.partition_values) != set(partition_by) for file in files):
        raise InvalidConfig(f"Table {ref}: the staged files have different partitions. {_AGAIN}")
    if spec.partition_by is not None and tuple(spec.partition_by) != tuple(partition_by):
        raise InvalidConfig(
            f"Table {ref}: partition_by is {', '.join(spec.partition_by) or 'nothing'}, and the staged files are partitioned by "
            f"{', '.join(partition_by) or 'nothing'}: give partition_by to stage(), which writes the files. {_AGAIN}"
        )


def _refuse_places(job: Job, files: Sequence[StagedFile]) -> None:
    """Raise InvalidConfig for a path that leads out of the table's folder, or stands there twice."""
    ref, seen = job.transaction.ref, set()
    for file in files:
        parts = file.path.split("/")
        if is_absolute(file.path) or not file.path.endswith(".parquet") or {"..", ".", "", "_delta_log"} & set(parts):
            raise InvalidConfig(f"Table {ref}: {file.path!r} is no staged file of its folder. {_AGAIN}")
        if file.path in seen:
            raise InvalidConfig(f"Table {ref}: the staged file {file.path} is named twice; name each once.")
        seen.add(file.path)


def _refuse_other_table(job: Job, files: Sequence[StagedFile], snapshot: Snapshot | None) -> None:
    """Raise CommitConflict for files that were staged for another table than the one that is there."""
    ref = job.transaction.ref
    for file in files:
        if file.table_id and (snapshot is None or snapshot.table_id != file.table_id):
            now = "is not there" if snapshot is None else "is another one, or was made anew since"
            raise CommitConflict(
                f"Table {ref} {now}: the staged file {file.path} is of table id {file.table_id}. {_AGAIN}"
            )


def _refuse_gone(job: Job, files: Sequence[StagedFile]) -> None:
    ref = job.transaction.ref
    if missing := job.form.missing_files(ref, files):
        raise StorageError(
            f"Table {ref}: {len(missing)} of {len(files)} staged files are not in its folder, such as {missing[0].path}: they were vacuumed or "
            f"removed, or are of another table. {_AGAIN}"
        )


def _refuse_committed(job: Job, files: Sequence[StagedFile]) -> None:
    """Raise CommitConflict for files that some commit since stage() added, whether they are in the table still or not."""
    ref, names = job.transaction.ref, {file.path for file in files}
    since = min(file.table_version for file in files)
    for record in job.form.records_after(ref, since):
        if again := sorted(names & record.added_paths):
            raise CommitConflict(
                f"Table {ref}: version {record.version} has the staged file {again[0]} already: its rows would come twice. Nothing was committed; "
                "give a write that may be repeated an AppTransaction (app)."
            )


def _judge(job: Job, files: Sequence[StagedFile], schema: pa.Schema, snapshot: Snapshot) -> None:
    """Check the rows of files again, where they were checked against other columns or constraints than the table has now.

    Raises SchemaMismatch for rows that the table does not take, CommitConflict where the files cannot be read as its rows.
    """
    ref, form = job.transaction.ref, job.form
    assert isinstance(job.spec, WriteSpec)
    judged = _fingerprint(snapshot)
    if job.spec.within is None and all(file.judged_by == judged for file in files):
        return
    kinds = _kinds(job, schema)
    others = [name for name, kind in _kinds(job, snapshot.schema).items() if kinds.get(name) != kind]
    overwrites = job.spec.mode == "overwrite"
    held = snapshot.checks or job.spec.within or snapshot.computed() or any(map(is_required, snapshot.schema))
    if not held and (overwrites or not others):
        return
    if others or len(kinds) != len(snapshot.schema):
        what = f"the column {', '.join(others)} is of another type now" if others else "the table has other columns now"
        raise SchemaMismatch(f"Table {ref}: {what} than when the files were staged. {_AGAIN}")
    cursor = job.engine.cursor()
    rows = job.finished(select(cursor, form.scan_sql(snapshot, files=files)[1:-1]), snapshot, spec=job.spec)
    counts = cursor.execute(f"SELECT count(*), count(COLUMNS(*)) FROM ({rows.sql})").fetchone()
    if counts is None or counts[0] != counted_rows(files):
        raise CommitConflict(f"Table {ref} has other columns or constraints than when the files were staged. {_AGAIN}")


def _kinds(job: Job, schema: pa.Schema) -> dict[str, str]:
    """The types of columns as the format has them, by name."""
    bare = pa.schema([pa.field(field.name, field.type) for field in schema])
    return {each["name"]: json.dumps(each["type"], sort_keys=True) for each in job.form.fields_of(bare)}


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
    if not files:
        raise InvalidConfig(f"Table {ref}: there are no staged files to commit; stage() gives none for no rows.")
    schemas = {file.schema for file in files}
    if len(schemas) != 1:
        raise SchemaMismatch(f"Table {ref}: the staged files have {len(schemas)} different schemas.")
    return schema_from_text(schemas.pop())
