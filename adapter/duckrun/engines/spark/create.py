"""Tables created or replaced from rows, with a definition that a DataFrame writer cannot set.

An example is liquid clustering: a writer to a location cannot set it, and an overwrite ends it.
Source: Delta protocol, Clustered Table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from duckrun.engines.spark.process.conditions import condition_of
from duckrun.engines.spark.sql import cluster_clause, cluster_columns, properties_list, quote, text_literal
from duckrun.engines.spark.table_write import SparkWrite
from duckrun.engines.spark.types import check_new_table
from duckrun.errors import UnsupportedFeature
from duckrun.values.layout import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from duckrun.values.rows import WriteSpec

# Properties that belong to the present table, and that its replacement must not copy.
_OF_ONE_TABLE = ("delta.columnMapping.maxColumnId", "delta.rowTracking.materialized")


def new_table(attempt: SparkWrite, rows: DataFrame, layout: Layout, description: str | None) -> None:
    """Create a table that does not exist yet."""
    try:
        _make(attempt, rows, layout, description, replaces=False)
    except Exception as error:
        # Spark takes any file in the folder for a table, such as one that a killed job left. Only
        # the log tells whether there is one.
        if not condition_of(error, "TABLE_OR_VIEW_ALREADY_EXISTS") or attempt.transaction.lake.format.exists(
            attempt.ref
        ):
            raise
        _make(attempt, rows, layout, description, replaces=True)


def in_place_of(
    attempt: SparkWrite, frame: DataFrame, spec: WriteSpec, cluster_by: Sequence[str], *, stays: bool
) -> None:
    """Replace a table that has clustering or other features of Spark's own statements.

    If only rows change, the table keeps its identity, as its streams need. Otherwise it becomes
    another table with the same properties.

    Args:
        stays: The clustering does not change.

    Raises:
        UnsupportedFeature: The replacement would lose constraints.
        SchemaMismatch: The rows lack a clustering column.
    """
    assert attempt.snapshot is not None
    snapshot = attempt.snapshot
    if spec.constraints:
        raise UnsupportedFeature(
            f"table {attempt.ref} has features or a clustering that only Spark's own statements write, and those take "
            "no constraints: add them by ALTER TABLE, and leave them out here"
        )
    partition_by = spec.partition_by or ()
    if spec.partition_by is None and not spec.redefine and not cluster_by:
        partition_by = snapshot.partition_columns
    partition_by = check_new_table(frame.schema, partition_by)
    cluster_columns(frame.columns, cluster_by)
    if stays and not partition_by and not spec.redefine and _same_columns(frame, attempt.target_schema()):
        # A plain overwrite ends the clustering. One with a predicate, here for all rows, keeps the
        # definition.
        attempt.save(frame, "overwrite", {"replaceWhere": "true"}, (), spec)
        return
    strict = [column.name for column in snapshot.schema if not column.nullable]
    if strict and not spec.redefine:
        raise UnsupportedFeature(
            f"table {snapshot.ref} has columns that are NOT NULL ({', '.join(strict)}), and Spark's REPLACE TABLE, "
            "which its clustering or other features ask for, would lose that: drop NOT NULL by ALTER TABLE first, or "
            "overwrite with the same columns"
        )
    present = {} if spec.redefine else snapshot.properties
    properties = {k: v for k, v in present.items() if not k.startswith(_OF_ONE_TABLE)}
    properties |= spec.table_properties
    description = spec.description if spec.redefine or spec.description is not None else snapshot.description
    rows = attempt.arranged(attempt.checked(frame, partition_by), partition_by, spec.sort_by)
    layout = Layout(partition_by=partition_by, cluster_by=tuple(cluster_by), table_properties=properties)
    _make(attempt, rows, layout, description, replaces=True)


def rows_alone(attempt: SparkWrite, frame: DataFrame, partition_by: Sequence[str], *, stays: bool) -> dict[str, str]:
    """Return the options of an overwrite that replaces all rows and keeps the definition.

    Any other overwrite by Spark turns generated, identity and default columns into plain ones.

    Args:
        stays: The write changes no clustering, properties or description.

    Raises:
        UnsupportedFeature: The definition would change.
    """
    assert attempt.snapshot is not None
    snapshot, form = attempt.snapshot, attempt.transaction.lake.format
    names = {name.lower() for name in frame.columns}
    target = [
        f for f in attempt.target_schema() if f.name.lower() in names or f.name not in form.computed_columns(snapshot)
    ]
    if not stays or tuple(partition_by) != tuple(snapshot.partition_columns) or not _same_columns(frame, target):
        raise UnsupportedFeature(
            f"Table {snapshot.ref} computes the column {', '.join(snapshot.computed())}, and an overwrite by "
            "Spark that brings other columns, types, partitions, clustering or properties would make it a plain "
            "one",
            remedy="Bring the same columns, or run this with engine: duckdb, which keeps it",
        )
    return {"replaceWhere": "true"}


def _make(attempt: SparkWrite, rows: DataFrame, layout: Layout, description: str | None, *, replaces: bool) -> None:
    """Create or replace a table in one commit, with its note and application id."""
    from pyspark.sql import functions as F

    # A DataFrame writer cannot cluster, so that needs SQL. The SQL parser in turn refuses
    # properties with a reserved name, such as ``owner``, so everything else uses the writer.
    if layout.cluster_by:
        what = "CREATE OR REPLACE TABLE" if replaces else "CREATE TABLE"
        clauses = ["USING delta", cluster_clause(rows.columns, layout.cluster_by)]
        if description is not None:
            clauses.append(f"COMMENT {text_literal(description)}")
        if layout.table_properties:
            clauses.append(f"TBLPROPERTIES ({properties_list(layout.table_properties)})")
        with attempt.access.view(rows) as view:
            attempt.statement(f"{what} {attempt.target} {' '.join(clauses)} AS SELECT * FROM {view}")
        return
    with attempt.access.frame_with(rows, attempt.statement_settings()) as frame:
        writer = frame.writeTo(attempt.target).using("delta")
        for key, value in layout.table_properties.items():
            writer = writer.tableProperty(key, value)
        if description is not None:
            writer = writer.tableProperty("comment", description)
        if layout.partition_by:
            writer = writer.partitionedBy(*[F.col(quote(column)) for column in layout.partition_by])
        if replaces:
            writer.createOrReplace()
        else:
            writer.create()


def _same_columns(frame: DataFrame, target: Any) -> bool:
    """True if an overwrite with these rows keeps the table's columns, types and comments."""
    if [(f.name, f.dataType.simpleString()) for f in frame.schema] != [
        (f.name, f.dataType.simpleString()) for f in target
    ]:
        return False
    return all(
        new.metadata.get("comment", old.metadata.get("comment")) == old.metadata.get("comment")
        for new, old in zip(frame.schema, target, strict=True)
    )
