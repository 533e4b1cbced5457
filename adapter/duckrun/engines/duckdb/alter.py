"""A table's rows as they are after its definition was altered: SQL that DuckDB runs, files that it writes."""

from __future__ import annotations

import duckdb

from duckrun.engines.duckdb.change import counted
from duckrun.engines.duckdb.row_ids import with_ids
from duckrun.engines.duckdb.rows_to_write import types_of
from duckrun.engines.duckdb.source import Rows
from duckrun.engines.duckdb.target import altered, rows_of
from duckrun.engines.duckdb.writers import staged
from duckrun.formats.definitions import Alteration
from duckrun.formats.format import Format
from duckrun.sql.names import transpile
from duckrun.values.rows import StagedFile
from duckrun.values.snapshot import Snapshot


def count_breaking(
    snapshot: Snapshot, alteration: Alteration, condition: str, cursor: duckdb.DuckDBPyConnection
) -> int:
    """How many rows, in their new form, a condition (Spark SQL) is not true for."""
    test = transpile(condition, "spark", "duckdb")
    rows = rows_of(altered(snapshot, alteration), cursor)
    return counted(cursor, f"({rows})", f"({test}) IS NOT TRUE")


def rewritten(
    form: Format, snapshot: Snapshot, alteration: Alteration, cursor: duckdb.DuckDBPyConnection
) -> tuple[StagedFile, ...]:
    """All rows in their new form, as files that no reader sees before they are committed."""
    target, after = altered(snapshot, alteration), alteration.after
    kinds = types_of(target, cursor)
    read, numbers, ids = with_ids(form, target, list(snapshot.files()), list(kinds), cursor)
    rows = Rows(cursor, read or rows_of(target, cursor), {**kinds, **numbers}, order=tuple(after.sort_by))
    stored = (*form.stored_columns(after.schema), *ids)
    return staged.stage(rows, snapshot.ref, after.partition_columns, properties=after.properties, stored=stored)
