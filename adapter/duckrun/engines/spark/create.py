"""A table made of rows with its definition, or put in the place of one: for what a save of a frame cannot say.

Liquid clustering is such a thing: a writer takes no word for it at a location, and an overwrite ends it.
Source: Delta protocol, Clustered Table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from duckrun.engines.spark.errors import condition_of
from duckrun.engines.spark.sql import properties_list, quote, table_at, text_literal
from duckrun.engines.spark.types import check_new_table
from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.values.layout import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from duckrun.engines.spark.engine import SparkEngine
    from duckrun.engines.spark.write import Attempt
    from duckrun.values.rows import WriteSpec
    from duckrun.values.snapshot import Snapshot

# Properties that name what only the present table has, and a table made anew does not keep.
_OF_ONE_TABLE = ("delta.columnMapping.maxColumnId", "delta.rowTracking.materialized")


def new_table(attempt: Attempt, rows: DataFrame, layout: Layout, description: str | None) -> None:
    """Make a table that is not there yet."""
    try:
        _make(attempt, rows, layout, description, replaces=False)
    except Exception as error:
        # Before it runs anything, Spark takes whatever is in the folder for a table, such as files that a killed job left; the
        # log alone says whether there is one.
        if not condition_of(error, "TABLE_OR_VIEW_ALREADY_EXISTS") or attempt.transaction.lake.format.exists(
            attempt.ref
        ):
            raise
        _make(attempt, rows, layout, description, replaces=True)


def in_place_of(
    attempt: Attempt, frame: DataFrame, spec: WriteSpec, snapshot: Snapshot, cluster_by: Sequence[str], *, stays: bool
) -> None:
    """Write a table anew whose clustering (``stays``: the one that it has) or other features only Spark's own statements say.
    Where nothing but rows changes it stays the table that it is, as its streams want; else it is another one, with the same properties.

    Raises UnsupportedFeature for constraints that it would lose, SchemaMismatch for clustering columns that the rows do not
    have.
    """
    if spec.constraints:
        raise UnsupportedFeature(
            f"table {attempt.ref} has features or a clustering that only Spark's own statements write, and those take no "
            "constraints: add them by ALTER TABLE, and leave them out here"
        )
    partition_by = spec.partition_by or ()
    if spec.partition_by is None and not spec.redefine and not cluster_by:
        partition_by = snapshot.partition_columns
    check_new_table(frame.schema, partition_by)
    _columns(frame.columns, cluster_by)
    if stays and not partition_by and not spec.redefine and _same_columns(frame, attempt.target_schema()):
        # An overwrite ends the clustering; one that says which rows go, here all, leaves the definition alone.
        attempt.save(frame, "overwrite", {"replaceWhere": "true"}, (), spec)
        return
    strict = [column.name for column in snapshot.schema if not column.nullable]
    if strict and not spec.redefine:
        raise UnsupportedFeature(
            f"table {snapshot.ref} has columns that are NOT NULL ({', '.join(strict)}), and Spark's REPLACE TABLE, which its clustering "
            "or other features ask for, would lose that: drop NOT NULL by ALTER TABLE first, or overwrite with the same columns"
        )
    kept = {} if spec.redefine else snapshot.properties
    properties = {k: v for k, v in kept.items() if not k.startswith(_OF_ONE_TABLE)}
    properties |= {str(k): str(v) for k, v in spec.table_properties.items()}
    description = spec.description if spec.redefine or spec.description is not None else snapshot.description
    rows = attempt.arranged(attempt.checked(frame, partition_by), partition_by, spec.sort_by)
    layout = Layout(partition_by=partition_by, cluster_by=tuple(cluster_by), table_properties=properties)
    _make(attempt, rows, layout, description, replaces=True)


def rows_alone(
    attempt: Attempt, frame: DataFrame, partition_by: Sequence[str], snapshot: Snapshot, *, stays: bool
) -> dict[str, str]:
    """The options by which an overwrite replaces all rows and leaves the definition alone: any other one by Spark makes columns that are
    generated, numbered or filled with a default into plain ones. ``stays``: the write names no other clustering, properties or
    description. Raises UnsupportedFeature where the definition would change.
    """
    form = attempt.transaction.lake.format
    given = {name.lower() for name in frame.columns}
    target = [
        f for f in attempt.target_schema() if f.name.lower() in given or f.name not in form.computed_columns(snapshot)
    ]
    if not stays or tuple(partition_by) != tuple(snapshot.partition_columns) or not _same_columns(frame, target):
        raise UnsupportedFeature(
            f"Table {snapshot.ref} computes the column {', '.join(snapshot.computed())}, and an overwrite by Spark that brings other "
            "columns, types, partitions, clustering or properties would make it a plain one. Nothing was written. Bring the same columns, or run "
            "this with engine: duckdb, which keeps it."
        )
    return {"replaceWhere": "true"}


def clustering_after(spec: WriteSpec, clustered: Sequence[str]) -> Sequence[str]:
    """What a table is clustered by once it is overwritten: what the write says, else what it was."""
    if spec.cluster_by is not None or spec.redefine or spec.partition_by:
        return spec.cluster_by or ()
    return clustered


def clustered_by(engine: SparkEngine, snapshot: Snapshot) -> tuple[str, ...]:
    """The columns that a table is clustered by; most tables by none."""
    if "clustering" not in snapshot.writer_features:
        return ()
    detail: Any = engine.spark.sql(f"DESCRIBE DETAIL {table_at(engine.location_of(snapshot.ref.location))}")
    return tuple(name.replace("`", "") for name in detail.select("clusteringColumns").collect()[0][0] or ())


def clause(columns: Sequence[str], cluster_by: Sequence[str]) -> str:
    """``CLUSTER BY`` some of a table's columns, or fields within them (``a.b``). Raises SchemaMismatch for one that is not there.

    >>> clause(["id", "place", "x.y"], ["ID", "place.city", "x.y"])
    'CLUSTER BY (`id`, `place`.`city`, `x.y`)'
    """
    return f"CLUSTER BY ({', '.join(_columns(columns, cluster_by))})" if cluster_by else "CLUSTER BY NONE"


def refuse_other_clustering(attempt: Attempt, snapshot: Snapshot, asked: Sequence[str]) -> None:
    """Raise InvalidConfig for a write that only adds to a table, and asks for another clustering than it has."""
    present = clustered_by(attempt.engine, snapshot)
    if not same_names(present, asked):
        raise InvalidConfig(
            f"Table {attempt.ref} is clustered by {', '.join(present) or 'nothing'}, not by {', '.join(asked) or 'nothing'}; "
            "mode overwrite changes that, or ALTER TABLE … CLUSTER BY."
        )


def same_names(some: Sequence[str], others: Sequence[str]) -> bool:
    """True for the same columns in the same order; letter case does not count in Spark."""
    return [name.lower() for name in some] == [name.lower() for name in others]


def _make(attempt: Attempt, rows: DataFrame, layout: Layout, description: str | None, *, replaces: bool) -> None:
    """One commit, with its note and application id, by the writer of frames; clustering has a word in SQL only, whose parser
    in turn takes no property by a name that Spark has a meaning for, such as ``owner``."""
    from pyspark.sql import functions as F

    if layout.cluster_by:
        what = "CREATE OR REPLACE TABLE" if replaces else "CREATE TABLE"
        clauses = ["USING delta", clause(rows.columns, layout.cluster_by)]
        if description is not None:
            clauses.append(f"COMMENT {text_literal(description)}")
        if layout.table_properties:
            clauses.append(f"TBLPROPERTIES ({properties_list(layout.table_properties)})")
        with attempt.engine.view(rows) as view:
            attempt.statement(f"{what} {attempt.target} {' '.join(clauses)} AS SELECT * FROM {view}")
        return
    with attempt.engine.settings(attempt.statement_settings()):
        writer = rows.writeTo(attempt.target).using("delta")
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


def _columns(columns: Sequence[str], cluster_by: Sequence[str]) -> list[str]:
    there = {column.lower(): column for column in columns}
    parted = [(name,) if name.lower() in there else tuple(name.split(".")) for name in cluster_by]
    missing = [".".join(parts) for parts in parted if parts[0].lower() not in there]
    if missing:
        raise SchemaMismatch(
            f"the clustering column {', '.join(missing)} is missing in the columns, which are {', '.join(columns)}"
        )
    return [quote(there[first.lower()], *fields) for first, *fields in parted]


def _same_columns(frame: DataFrame, target: Any) -> bool:
    """True if an overwrite with these rows leaves a table's columns, their types and comments as they are."""
    if [(f.name, f.dataType.simpleString()) for f in frame.schema] != [
        (f.name, f.dataType.simpleString()) for f in target
    ]:
        return False
    return all(
        new.metadata.get("comment", old.metadata.get("comment")) == old.metadata.get("comment")
        for new, old in zip(frame.schema, target, strict=True)
    )
