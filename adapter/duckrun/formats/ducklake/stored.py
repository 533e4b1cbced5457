"""What the catalog says that a table is apart from its rows: its definition as it is stored."""

from __future__ import annotations

import json
from typing import Any

from duckrun.formats.ducklake.catalog import Catalog
from duckrun.formats.ducklake.definition import DuckLakeDefinition, properties_of
from duckrun.formats.ducklake.partitions import Partition
from duckrun.sql.names import quote_identifier
from duckrun.values.tables import SORT_BY


def stored_definition(
    catalog: Catalog, table_id: int, schema: str, name: str, version: int, at: int, epoch: int | str
) -> tuple[DuckLakeDefinition, dict[str, int]]:
    """A table's definition at a snapshot, and the ids of its columns."""
    meta = catalog.meta
    source = f"{quote_identifier(catalog.alias(epoch), schema, name)} AT (VERSION => {version})"
    with catalog.errors(f"table {schema}.{name}"):
        relation = catalog.cursor().sql(f"SELECT * FROM {source}")
        types = dict(zip(relation.columns, map(str, relation.types), strict=True))
    there = f"begin_snapshot <= {at} AND ((end_snapshot IS NULL) OR end_snapshot > {at})"
    columns = catalog.ask(
        f"SELECT c.column_id, c.column_name, c.nulls_allowed, c.default_value, c.default_value_type, t.value FROM {meta('ducklake_column')} AS c "
        f"LEFT JOIN (SELECT * FROM {meta('ducklake_column_tag')} WHERE {there} AND key = 'comment') AS t ON t.table_id = c.table_id AND t.column_id = c.column_id "
        f"WHERE c.table_id = {table_id} AND c.parent_column IS NULL AND c.begin_snapshot <= {at} AND ((c.end_snapshot IS NULL) OR c.end_snapshot > {at})"
    )
    said = {row[1]: row for row in columns}
    fields = []
    for column, kind in types.items():
        _, _, nulls, default, how, comment = said[column]
        literal = None if default in (None, "NULL") else default
        if literal is not None and how == "literal":
            literal = "'" + literal.replace("'", "''") + "'"
        metadata = {} if comment is None else {"comment": comment}
        fields.append({"name": column, "type": kind, "nullable": bool(nulls), "metadata": metadata, "default": literal})
    return _layout(catalog, table_id, there, tuple(fields)), {row[1]: int(row[0]) for row in columns}


def _layout(catalog: Catalog, table_id: int, there: str, fields: tuple[dict[str, Any], ...]) -> DuckLakeDefinition:
    meta = catalog.meta
    sql = f"""
        SELECT 'comment', CAST(value AS VARCHAR), NULL, 0 FROM {meta("ducklake_tag")} WHERE object_id = {table_id} AND key = 'comment' AND {there}
        UNION ALL SELECT 'option ' || key, CAST(value AS VARCHAR), NULL, 0 FROM {meta("ducklake_metadata")} WHERE scope = 'table' AND scope_id = {table_id}
        UNION ALL SELECT 'partition', CAST(p.transform AS VARCHAR), CAST(c.column_name AS VARCHAR), p.partition_key_index
            FROM {meta("ducklake_partition_column")} AS p JOIN (SELECT partition_id FROM {meta("ducklake_partition_info")} WHERE table_id = {table_id} AND {there}) USING (partition_id)
            JOIN (SELECT column_id, column_name FROM {meta("ducklake_column")} WHERE table_id = {table_id} AND {there}) AS c ON c.column_id = p.column_id
        UNION ALL SELECT 'sort', CAST(e.expression AS VARCHAR), NULL, e.sort_key_index
            FROM {meta("ducklake_sort_expression")} AS e JOIN (SELECT sort_id FROM {meta("ducklake_sort_info")} WHERE table_id = {table_id} AND {there}) USING (sort_id)
    """
    rows = sorted(catalog.ask(sql), key=lambda row: (row[0], row[3]))
    names = {f["name"].lower(): f["name"] for f in fields}
    order = [names.get(row[1].strip('"').lower(), row[1]) for row in rows if row[0] == "sort"]
    options = {row[0].removeprefix("option "): row[1] for row in rows if row[0].startswith("option ")}
    properties = {**properties_of(options), **({SORT_BY: json.dumps(order)} if order else {})}
    return DuckLakeDefinition(
        fields,
        tuple(Partition.stored(row[1], row[2]) for row in rows if row[0] == "partition"),
        properties,
        next((row[1] for row in rows if row[0] == "comment"), None),
    )
