"""Repair of the list of a DuckLake table's schemas.

The catalog has one table of inlined rows per schema of a table. DuckLake looks up the columns of
that schema in ``ducklake_schema_versions``. If ``inline_rows`` was 0 so far, the first inlined row
makes DuckLake create such a table under a new schema version. It does not list that version (duckdb
1.5.5). After the next change of the columns, it takes the columns of the table's first schema for
those of the rows. Reads fail, or give NULL or the values of other columns. A flush writes these
into files. The inlined rows themselves stay right until then.

Source: the DuckLake specification 1.0, ducklake_schema_versions, ducklake_inlined_data_tables.
"""

from __future__ import annotations

import logging

from duckrun.errors import StorageError, UnsupportedFeature
from duckrun.formats.ducklake.catalog.catalog import Catalog

log = logging.getLogger(__name__)


def unlisted_sql(catalog: Catalog, table_id: int | None = None) -> str:
    """Return a FROM clause with the schemas of inlined rows that the catalog does not list.

    The rows are ``table_id``, ``schema_version`` and ``outdated``, which is true if a later schema
    of the table is listed.

    Args:
        table_id: Table to check; None for all tables.
    """
    meta = catalog.meta
    listed = f"FROM {meta('ducklake_schema_versions')} AS listed WHERE listed.table_id = inlined.table_id"
    of_table = "" if table_id is None else f"inlined.table_id = {table_id} AND "
    return (
        f"(SELECT table_id, schema_version, schema_version < (SELECT max(schema_version) {listed}) AS outdated "
        f"FROM {meta('ducklake_inlined_data_tables')} AS inlined "
        f"WHERE {of_table}schema_version NOT IN (SELECT schema_version {listed}))"
    )


def list_schemas(catalog: Catalog, table_id: int | None = None) -> bool:
    """List the schemas of a table's inlined rows, or of all tables (None).

    Two processes may do so at once: DuckLake reads a schema that is listed twice as one.

    Returns:
        True if some were not listed.

    Raises:
        StorageError: The catalog cannot be changed, and DuckLake would read rows wrongly.
        UnsupportedFeature: The same, since the lake is open read-only.
    """
    meta, unlisted = catalog.meta, unlisted_sql(catalog, table_id)
    are_outdated = [outdated for (outdated,) in catalog.ask(f"SELECT outdated FROM {unlisted}")]
    if catalog.read_only and any(are_outdated):
        raise UnsupportedFeature(
            f"Lake {catalog.storage.root} has rows in its catalog that DuckLake would read as those of other columns",
            remedy="open the lake once without read_only, and read the table",
        )
    if catalog.read_only or not are_outdated:
        return bool(are_outdated)
    # The snapshot that began a schema may have expired. Its columns are then those of the schema
    # before.
    begun = (
        f"coalesce((SELECT min(snapshot_id) FROM {meta('ducklake_snapshot')} AS s "
        "WHERE s.schema_version = unlisted.schema_version), "
        f"(SELECT max(begin_snapshot) FROM {meta('ducklake_schema_versions')} AS v "
        "WHERE v.table_id = unlisted.table_id AND v.schema_version < unlisted.schema_version))"
    )
    try:
        with catalog.errors("schemas of inlined rows"):
            catalog.cursor().execute(
                f"INSERT INTO {meta('ducklake_schema_versions')} (begin_snapshot, schema_version, table_id) "
                f"SELECT {begun}, schema_version, table_id FROM {unlisted} AS unlisted"
            )
    except StorageError as error:
        if any(are_outdated):
            raise
        log.warning("lake %s: schemas of inlined rows stay unlisted: %s", catalog.storage.root, error)
    return True
