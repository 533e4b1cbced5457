"""Adoption of existing files by a DuckLake, and ownership of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import duckdb

from duckrun.errors import SchemaMismatch
from duckrun.formats.ducklake.catalog.catalog import Catalog
from duckrun.sql.quoting import quote_literal
from duckrun.values.snapshot import TableRef

if TYPE_CHECKING:
    from duckrun.formats.ducklake.commits.work import Work


def add_files(catalog: Catalog, work: Work, ref: TableRef, paths: Sequence[str], *, hive: bool) -> None:
    """Add existing files to a table in place, within a transaction.

    A column that a file lacks is NULL in its rows.

    Args:
        hive: Take partition values from the folder names.

    Raises:
        SchemaMismatch: A file has other columns or types.
    """
    try:
        _add(work, ref, paths, hive=hive, allow_missing=True)
    except duckdb.Error as error:
        raise SchemaMismatch(
            f"Table {ref}: {catalog.redacted(error).splitlines()[0].removeprefix('Invalid Input Error: ')}"
        ) from error
    work.note(ref, {"mode": "adopt", "engine": "duckdb", "writer": "ducklake", "files": len(paths)})
    work.changed = True


def add_written(catalog: Catalog, work: Work, ref: TableRef, paths: Sequence[str], *, hive: bool) -> None:
    """Add files that were written for a table, within a transaction.

    Raises:
        SchemaMismatch: A file has other columns or types.
    """
    try:
        _add(work, ref, paths, hive=hive, allow_missing=False)
    except duckdb.InvalidInputException as error:
        raise SchemaMismatch(catalog.redacted(error).splitlines()[0]) from error


def _add(work: Work, ref: TableRef, paths: Sequence[str], *, hive: bool, allow_missing: bool) -> None:
    work.execute(
        f"CALL ducklake_add_data_files({quote_literal(work.alias)}, {quote_literal(ref.name)}, "
        f"[{', '.join(map(quote_literal, paths))}], schema => {quote_literal(ref.schema)}, "
        f"hive_partitioning => {str(hive).lower()}, allow_missing => {str(allow_missing).lower()})"
    )
    work.began[ref] = None


def owners(catalog: Catalog, condition: str, values: Sequence[str]) -> dict[str, str]:
    """Return the lake's files, of any snapshot, whose path meets a condition: path -> schema.name.

    Args:
        condition: SQL over ``place``, the full path.
    """
    meta = catalog.meta
    place = (
        f"CASE WHEN f.path_is_relative THEN {quote_literal(catalog.data_path)} || s.path || t.path || f.path "
        "ELSE f.path END"
    )
    rows = catalog.ask(
        f"SELECT place, any_value(owner) FROM (SELECT {place} AS place, s.schema_name || '.' || t.table_name AS "
        f"owner FROM {meta('ducklake_data_file')} AS f "
        f"JOIN {meta('ducklake_table')} AS t USING (table_id) JOIN {meta('ducklake_schema')} AS s USING (schema_id)) "
        f"WHERE {condition} GROUP BY place",
        values,
    )
    return dict(rows)
