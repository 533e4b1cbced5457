"""How the rows of a write become those of a DuckLake table: in which columns and types, and whether the workers' files can be the table's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import duckdb

from duckrun.engines.spark.errors import RAISED
from duckrun.engines.spark.frame import arrow_schema
from duckrun.engines.spark.sql import quote
from duckrun.engines.spark.types import (
    cast_to,
    check_new_table,
    fit_all,
    holds,
    holds_untyped,
    storable_arrow,
    taking_types,
)
from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.formats.ducklake.definition import DuckLakeDefinition
from duckrun.formats.ducklake.partitions import Partition
from duckrun.formats.ducklake.types import refuse_type
from duckrun.sql.typed import sql_type
from duckrun.values.columns import refuse_twins
from duckrun.values.rows import SchemaMode, WriteSpec
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from duckrun.engines.spark.engine import SparkEngine
    from duckrun.formats.ducklake.ducklake import DuckLakeFormat

NO_FOLDER = "no folder can have the name of a partition value"
"""The start of what is raised for a row whose partition value is read back as NULL out of a path."""
_WRITTEN = {
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "VARCHAR", "BLOB", "BOOLEAN", "DATE", "TIMESTAMP"),
    "TIMESTAMP WITH TIME ZONE",
}
"""Types whose values Spark's workers write into a file as DuckLake wants them there."""
_IN_FOLDERS = {"tinyint", "smallint", "integer", "bigint", "varchar", "date", "boolean", "timestamp", "decimal"}
"""Types whose values Spark writes into a path as DuckDB reads them there."""


@dataclass(frozen=True)
class Plan:
    """``frame`` has the rows as the table stores them; ``definition`` is the table's once they are there, and ``changed`` says whether it is
    another than before. ``folders`` are the columns, those of the table and ``added`` ones, by which files lie in folders. ``why_not`` says what keeps
    the workers' files from being the table's, None where nothing does.
    """

    snapshot: Snapshot | None
    definition: DuckLakeDefinition
    changed: bool
    frame: DataFrame
    folders: tuple[str, ...] = ()
    why_not: str | None = None

    def holds_for(self, snapshot: Snapshot | None) -> bool:
        """True if a table still is what the plan was made for."""
        if snapshot is None or self.snapshot is None:
            return snapshot is self.snapshot
        return snapshot.table_id == self.snapshot.table_id and snapshot.own.definition == self.snapshot.own.definition


def plan(
    engine: SparkEngine, form: DuckLakeFormat, spec: WriteSpec, frame: DataFrame, snapshot: Snapshot | None
) -> Plan:
    """The plan of a write of whole rows. Raises SchemaMismatch, InvalidConfig, UnsupportedFeature."""
    refuse_twins(frame.columns)
    if snapshot is not None and not spec.redefine and holds_untyped(frame.schema):
        frame = taking_types(frame, spark_schema(snapshot.own.definition))
    if snapshot is None or spec.mode == "overwrite":
        check_new_table(frame.schema)
        keys = spec.partition_by if spec.partition_by is not None or snapshot is None else snapshot.partition_keys
        definition = form.overwritten(spec, _fields(form, frame), tuple(keys or ()), snapshot)
        names = {name.lower() for name in frame.columns}
        for column in spec.column_comments:
            if column.lower() not in names:
                raise SchemaMismatch(f"a comment is for the column {column!r}, which the data does not have")
        changed = True
    else:
        if spec.partition_by is not None and not snapshot.has_partitions(spec.partition_by):
            raise InvalidConfig(
                f"Table {snapshot.ref} is partitioned by {', '.join(snapshot.partition_keys) or 'nothing'}, not by "
                f"{', '.join(spec.partition_by) or 'nothing'}; only mode overwrite changes that."
            )
        definition, changed = snapshot.own.definition, False
        if spec.schema_mode != "fail":
            alteration = form.evolved(snapshot, _fields(form, frame), spec.schema_mode)
            definition, changed = cast(DuckLakeDefinition, alteration.after), alteration.changed
        defaults = form.computed_columns(snapshot)
        if missing := defaults - {name for name in definition.names if name.lower() in map(str.lower, frame.columns)}:
            return Plan(
                snapshot, definition, changed, frame, (), f"DuckDB fills {', '.join(sorted(missing))} by default"
            )
    why = _why_not(form, snapshot, definition)
    if why is not None:
        return Plan(snapshot, definition, changed, frame, (), why)
    fit = _fitted(frame, definition, spec.schema_mode, checked=engine.ansi())
    fit, folders = _in_folders(fit, definition.partition_by)
    return Plan(snapshot, definition, changed, fit, folders)


def spark_schema(definition: DuckLakeDefinition) -> Any:
    """The columns of a table in Spark's types, for those that Spark has."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = definition.schema
    for at, field in enumerate(schema):
        schema = schema.set(at, field.with_type(storable_arrow(field.name, field.type)).with_nullable(True))
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _fields(form: DuckLakeFormat, frame: DataFrame) -> list[dict[str, Any]]:
    """The columns of a frame as a definition has them. Raises SchemaMismatch for a type that DuckLake cannot store."""
    from pyspark.sql.types import VariantType

    schema, variants = arrow_schema(frame), set()
    for field in frame.schema.fields:
        if isinstance(field.dataType, VariantType):
            variants.add(field.name)
        elif holds(field.dataType, "variant"):
            refuse_type(field.name, duckdb.type("VARIANT"), inside=True)
    try:
        types = {field.name: "VARIANT" if field.name in variants else sql_type(field.type) for field in schema}
    except KeyError as error:
        raise SchemaMismatch(f"a column has the type {error.args[0]}, which DuckLake does not have; cast it") from error
    return form.fields_of(schema, types)


def _why_not(form: DuckLakeFormat, snapshot: Snapshot | None, definition: DuckLakeDefinition) -> str | None:
    """What keeps the workers' files from being the table's: DuckDB then writes the rows into others."""
    for field in definition.fields:
        if not _is_written(duckdb.type(field["type"])):
            return f"column {field['name']} is {field['type']}, which DuckDB writes"
    keys = definition.partition_by
    if snapshot is not None and snapshot.own.definition.partition_by and not keys:
        # Measured of 1.5.5: RESET PARTITIONED BY and files added in one transaction end the instance by an internal error.
        return "the partitions end with this write"
    if not keys:
        return None
    if "=" in form.catalog.data_path:
        return "a folder above the data is named like a partition"
    folders = [key.column if key.transform == "identity" else key.transform for key in keys]
    others = {name.lower() for name in definition.names} - {k.column.lower() for k in keys if k.transform == "identity"}
    if len({name.lower() for name in folders}) < len(folders) or others & {name.lower() for name in folders}:
        return "two partition keys, or a key and a column, have one name for their folders"
    for key in keys:
        kind = duckdb.type(definition.column(key.column)["type"])
        if key.transform == "bucket":
            return f"DuckDB computes {key}"
        if key.transform == "identity" and kind.id not in _IN_FOLDERS:
            return f"values of {key}, of type {kind}, are no names of folders"
    return None


def _is_written(kind: Any) -> bool:
    if kind.id in ("list", "map", "struct"):
        return all(_is_written(inner) for _, inner in kind.children)
    return str(kind) in _WRITTEN or kind.id == "decimal"


def _fitted(frame: DataFrame, definition: DuckLakeDefinition, mode: SchemaMode, *, checked: bool) -> DataFrame:
    """The rows in the table's columns and types. A NULL where none may be fails, when it is met."""
    from pyspark.sql import functions as F

    schema, given = spark_schema(definition), frame.schema
    filled, _ = fit_all(given, schema, mode, checked=checked)
    columns = []
    for field in definition.fields:
        name, found = field["name"], filled[field["name"]]
        kind = schema[name].dataType
        value = F.lit(None).cast(kind) if found is None else cast_to(name, found, given[found].dataType, kind)
        if not field["nullable"]:
            failing = F.raise_error(F.lit(f"{RAISED}a NULL in column {name}, which is NOT NULL")).cast(kind)
            value = F.when(value.isNull(), failing).otherwise(value)
        columns.append(value.alias(name))
    return frame.select(*columns)


def _in_folders(frame: DataFrame, keys: Sequence[Partition]) -> tuple[DataFrame, tuple[str, ...]]:
    """The rows with what their folders are named by, and the names of those columns."""
    from pyspark.sql import functions as F

    folders, more = [], {}
    kinds: Mapping[str, Any] = {field.name: field.dataType for field in frame.schema.fields}
    for key in keys:
        here = F.col(quote(key.column))
        if key.transform != "identity":
            folders.append(key.transform)
            moment = _in_utc(key.column) if kinds[key.column].typeName() == "timestamp" else here
            more[key.transform] = {"year": F.year, "month": F.month, "day": F.dayofmonth, "hour": F.hour}[
                key.transform
            ](moment)
            continue
        folders.append(key.column)
        if kinds[key.column].typeName() == "string":
            lost = (here == "") | F.upper(here).isin("NULL", "__HIVE_DEFAULT_PARTITION__")
            failing = F.raise_error(F.lit(f"{RAISED}{NO_FOLDER} of column {key.column}")).cast("string")
            more[key.column] = F.when(lost, failing).otherwise(here)
    return (frame.withColumns(more) if more else frame), tuple(folders)


def _in_utc(column: str) -> Any:
    """A moment as the clock of UTC shows it, whatever the time zone of the session."""
    from pyspark.sql import functions as F

    seconds = f"CAST(unix_micros({quote(column)}) AS DECIMAL(20, 0)) / 1000000"
    return F.expr(f"TIMESTAMP_NTZ'1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, CAST({seconds} AS DECIMAL(18, 6)))")
