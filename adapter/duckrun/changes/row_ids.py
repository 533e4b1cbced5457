"""Rows of a version with their row ids, as a change query of one state."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from duckrun.changes.stored import stored_schema
from duckrun.changes.weighing import step_of
from duckrun.engines.engine import Engine
from duckrun.engines.frame import LazyRows
from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.formats.format import Format, logs_of, transactions_of
from duckrun.sql.quoting import fresh_name, quoted_list
from duckrun.values.changes import WeighedRead
from duckrun.values.snapshot import Snapshot


def with_row_ids(form: Format, snapshot: Snapshot, engine: Engine) -> LazyRows:
    """Return the lazy rows of a version, with the columns ``_row_id`` and ``_row_commit_version``.

    Raises:
        InvalidConfig: The table does not track rows.
        SchemaMismatch: The table has a column with one of these names.
    """
    ref, names = snapshot.ref, snapshot.schema.names
    in_files = None if form.logs is None else form.logs.row_id_columns(snapshot)
    if form.logs is not None and in_files is None:
        raise InvalidConfig(f"Table {ref} does not track rows (delta.enableRowTracking), so that they have no ids.")
    if twins := [name for name in names if name.lower() in (ROW_ID, ROW_COMMIT)]:
        raise SchemaMismatch(f"Table {ref} has a column {twins[0]}, the name of one that row_ids adds.")
    weight, step = (fresh_name(f"__duckrun_{name}", names) for name in ("weight", "step"))
    read = WeighedRead(
        ref=ref,
        schema=snapshot.schema,
        stored=stored_schema(form, snapshot),
        partition_columns=snapshot.partition_columns,
        steps=(),
        weight=weight,
        step=step,
        row_id=ROW_ID,
        row_commit=ROW_COMMIT,
        variants=snapshot.variants,
    )
    if in_files is not None:
        logs = logs_of(form)
        steps = [step_of([logs.state_change(None, snapshot)], partial(logs.vector_rows, ref))]
        read = replace(read, steps=steps, stored_row_id=in_files[0], stored_row_commit=in_files[1])
    else:
        reader = transactions_of(form).states
        read = replace(read, states=[reader.whole(snapshot)])
        read = replace(read, sql=reader.sql(snapshot, read))
    columns = quoted_list((*names, ROW_ID, ROW_COMMIT))
    return engine.weighed(read, lambda rows: f"SELECT {columns} FROM {rows} AS weighed")


ROW_ID, ROW_COMMIT = "_row_id", "_row_commit_version"
