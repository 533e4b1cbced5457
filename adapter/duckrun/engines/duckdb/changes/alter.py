"""Rows of a table after an ALTER TABLE: SQL that DuckDB runs, and files that it writes."""

from __future__ import annotations

import duckdb

from duckrun.engines.duckdb.rows.fitted import types_of
from duckrun.engines.duckdb.rows.places import counted
from duckrun.engines.duckdb.rows.row_ids import with_ids
from duckrun.engines.duckdb.rows.source import Rows
from duckrun.engines.duckdb.rows.target import altered, rows_of
from duckrun.engines.duckdb.writers import staged
from duckrun.formats.definitions import Alteration
from duckrun.formats.logs import LogTables
from duckrun.sql.names import transpile
from duckrun.values.rows import StagedFile
from duckrun.values.snapshot import Snapshot


def count_breaking(
    snapshot: Snapshot, alteration: Alteration, condition: str, cursor: duckdb.DuckDBPyConnection
) -> int:
    """Number of altered rows that do not satisfy a condition in Spark SQL (false or NULL)."""
    test = transpile(condition, "spark", "duckdb")
    rows = rows_of(altered(snapshot, alteration), cursor)
    return counted(cursor, f"({rows})", f"({test}) IS NOT TRUE")


def rewritten(
    logs: LogTables, snapshot: Snapshot, alteration: Alteration, cursor: duckdb.DuckDBPyConnection
) -> tuple[StagedFile, ...]:
    """Stage files with all altered rows; no reader sees them before they are committed."""
    target, after = altered(snapshot, alteration), alteration.after
    kinds = types_of(target, cursor)
    read, numbers, ids = with_ids(logs, target, list(snapshot.files()), list(kinds), cursor)
    rows = Rows(cursor, read or rows_of(target, cursor), {**kinds, **numbers}, order=tuple(after.sort_by))
    stored = (*logs.stored_columns(after.schema), *ids)
    return staged.stage(rows, snapshot.ref, after.partition_columns, properties=after.properties, stored=stored)
