"""Files that a DuckLake takes where they lie, and whose each file is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import duckdb

from duckrun.errors import SchemaMismatch
from duckrun.formats.ducklake.catalog import Catalog
from duckrun.sql.names import quote_literal
from duckrun.values.snapshot import TableRef

if TYPE_CHECKING:
    from duckrun.formats.ducklake.work import Work


def add_files(catalog: Catalog, work: Work, ref: TableRef, paths: Sequence[str], *, hive: bool) -> None:
    """Make files rows of a table, within a transaction; ``hive``: their folders say the partitions. A column that a file does not have is NULL in its rows.
    Raises SchemaMismatch for one with other columns, or other types.
    """
    listed = ", ".join(quote_literal(path) for path in paths)
    try:
        work.execute(
            f"CALL ducklake_add_data_files({quote_literal(work.alias)}, {quote_literal(ref.name)}, [{listed}], schema => {quote_literal(ref.schema)}, "
            f"hive_partitioning => {str(hive).lower()}, allow_missing => true)"
        )
    except duckdb.Error as error:
        raise SchemaMismatch(
            f"Table {ref}: {catalog.redacted(error).splitlines()[0].removeprefix('Invalid Input Error: ')}. Nothing was adopted."
        ) from error
    work.began[ref] = None
    work.note(ref, {"mode": "adopt", "engine": "duckdb", "writer": "ducklake", "files": len(paths)})
    work.changed = True


def owners(catalog: Catalog, condition: str, values: Sequence[str]) -> dict[str, str]:
    """The files of the lake, of any snapshot, for whose whole path a condition holds: path -> schema.name."""
    meta = catalog.meta
    place = f"CASE WHEN f.path_is_relative THEN {quote_literal(catalog.data_path)} || s.path || t.path || f.path ELSE f.path END"
    found = catalog.ask(
        f"SELECT place, any_value(owner) FROM (SELECT {place} AS place, s.schema_name || '.' || t.table_name AS owner FROM {meta('ducklake_data_file')} AS f "
        f"JOIN {meta('ducklake_table')} AS t USING (table_id) JOIN {meta('ducklake_schema')} AS s USING (schema_id)) WHERE {condition} GROUP BY place",
        values,
    )
    return dict(found)
