"""A table's rows as they are after its definition was altered: SQL that DuckDB runs, files that it writes."""

from __future__ import annotations

from typing import Any

import duckdb

from duckrun.engines.duckdb.rows_to_write import order_by
from duckrun.engines.duckdb.source import Rows
from duckrun.engines.duckdb.writers import staged
from duckrun.formats.format import Alteration, TableDefinition
from duckrun.sql.names import quote_identifier, transpile
from duckrun.values.rows import StagedFile
from duckrun.values.snapshot import Snapshot


def column_types(definition: TableDefinition, cursor: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """The DuckDB types of a definition's columns."""
    relation = cursor.from_arrow(definition.schema.empty_table())
    return dict(zip(relation.columns, relation.types, strict=True))


def projection(alteration: Alteration, cursor: duckdb.DuckDBPyConnection) -> str:
    """The SELECT list that makes new columns of the old ones."""
    types = column_types(alteration.after, cursor)
    return ", ".join(
        f"CAST({'NULL' if old is None else quote_identifier(old)} AS {types[new]}) AS {quote_identifier(new)}"
        for new, old in alteration.columns.items()
    )


def altered_rows(snapshot: Snapshot, alteration: Alteration, cursor: duckdb.DuckDBPyConnection) -> str:
    """All rows of a snapshot in their new form."""
    return f"SELECT {projection(alteration, cursor)} FROM {snapshot.scan_sql()}"


def count_breaking(
    snapshot: Snapshot, alteration: Alteration, condition: str, cursor: duckdb.DuckDBPyConnection
) -> int:
    """How many rows, in their new form, a condition (Spark SQL) is not true for."""
    test = transpile(condition, "spark", "duckdb")
    rows = altered_rows(snapshot, alteration, cursor)
    found = cursor.execute(f"SELECT count(*) FROM ({rows}) WHERE ({test}) IS NOT TRUE").fetchone()
    return int(found[0]) if found else 0


def rewritten(snapshot: Snapshot, alteration: Alteration, cursor: duckdb.DuckDBPyConnection) -> tuple[StagedFile, ...]:
    """All rows in their new form, as files that no reader sees before they are committed."""
    after = alteration.after
    sql = altered_rows(snapshot, alteration, cursor) + order_by(after.sort_by)
    return staged.stage(Rows(cursor, sql, column_types(after, cursor)), snapshot.ref, after.partition_columns)
