"""Plan of a write to a DuckLake table: the rows' columns, types and folders.

It also decides whether the workers' files can become the table's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from duckrun.engines import decisions
from duckrun.engines.spark.access import SparkAccess
from duckrun.engines.spark.ducklake.files import NO_VALUES
from duckrun.engines.spark.errors import NO_FOLDER, RAISED
from duckrun.engines.spark.frame import arrow_schema
from duckrun.engines.spark.sql import quote
from duckrun.engines.spark.types import (
    cast_to,
    check_new_table,
    fit_all,
    holds,
    storable_arrow,
    taking_types,
    with_casts,
)
from duckrun.errors import SchemaMismatch
from duckrun.formats.definitions import PartitionKey, TableDefinition
from duckrun.formats.format import Format, transactions_of
from duckrun.sql.typed import sql_types
from duckrun.values.choices import SchemaMode
from duckrun.values.columns import refuse_twins
from duckrun.values.rows import WriteSpec
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_WRITTEN = {
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "VARCHAR", "BLOB", "BOOLEAN", "DATE", "TIMESTAMP"),
    "TIMESTAMP WITH TIME ZONE",
}
"""Types whose values Spark writes into files in DuckLake's form."""
_IN_FOLDERS = {"tinyint", "smallint", "integer", "bigint", "varchar", "date", "boolean", "timestamp", "decimal"}
"""Types whose values Spark writes into paths in DuckDB's form."""


@dataclass(frozen=True)
class Plan:
    """How a write of whole rows becomes files of the table."""

    snapshot: Snapshot | None
    definition: TableDefinition
    """The table's definition after the write."""
    changed: bool
    """True if the definition changes."""
    frame: DataFrame
    """Rows as the table stores them."""
    folders: tuple[str, ...] = ()
    """Columns that name the folders of partitions, including added ones."""
    why_not: str | None = None
    """Reason why the workers' files cannot be the table's; None if they can."""

    def holds_for(self, snapshot: Snapshot | None) -> bool:
        """True if the table is still as the plan assumes."""
        if snapshot is None or self.snapshot is None:
            return snapshot is self.snapshot
        return (
            snapshot.table_id == self.snapshot.table_id
            and snapshot.format_state.definition == self.snapshot.format_state.definition
        )


def plan(access: SparkAccess, form: Format, spec: WriteSpec, frame: DataFrame, snapshot: Snapshot | None) -> Plan:
    """Return the plan of a write of whole rows.

    Raises:
        SchemaMismatch: The columns do not fit the table.
        InvalidConfig: The partitioning differs from the table's.
        UnsupportedFeature: The table's format cannot store the rows.
    """
    refuse_twins(frame.columns)
    if snapshot is not None and not spec.redefine and holds(frame.schema, "void"):
        frame = taking_types(frame, spark_schema(snapshot.format_state.definition))
    if snapshot is None or spec.mode == "overwrite":
        check_new_table(frame.schema)
        keys = spec.partition_by if spec.partition_by is not None or snapshot is None else snapshot.partition_keys
        definition = form.overwritten(spec, _fields(form, frame), tuple(keys or ()), snapshot)
        changed = True
    else:
        decisions.refuse_other_partitions(snapshot, spec.partition_by)
        definition, changed = snapshot.format_state.definition, False
        if spec.schema_mode != "fail":
            alteration = form.evolved(snapshot, _fields(form, frame), spec.schema_mode)
            definition, changed = alteration.after, alteration.changed
        defaults = form.computed_columns(snapshot)
        if missing := defaults - {name for name in definition.names if name.lower() in map(str.lower, frame.columns)}:
            return Plan(
                snapshot, definition, changed, frame, (), f"DuckDB fills {', '.join(sorted(missing))} by default"
            )
    why = _why_not(form, snapshot, definition)
    if why is not None:
        return Plan(snapshot, definition, changed, frame, (), why)
    fit = _fitted(frame, definition, spec.schema_mode, checked=access.ansi())
    fit, folders = _in_folders(fit, definition.partition_by)
    return Plan(snapshot, definition, changed, fit, folders)


def spark_schema(definition: TableDefinition) -> Any:
    """Return a table's columns in Spark's types, for those that Spark has."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = definition.schema
    for at, field in enumerate(schema):
        schema = schema.set(at, field.with_type(storable_arrow(field.name, field.type)).with_nullable(True))
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _fields(form: Format, frame: DataFrame) -> list[dict[str, Any]]:
    """Return a frame's columns for a definition; raise SchemaMismatch if DuckLake lacks a type."""
    from pyspark.sql.types import VariantType

    schema, variants = arrow_schema(frame), set()
    for field in frame.schema.fields:
        if isinstance(field.dataType, VariantType):
            variants.add(field.name)
        elif holds(field.dataType, "variant"):
            transactions_of(form).refuse_type(field.name, duckdb.type("VARIANT"), inside=True)
    try:
        types = sql_types(schema, variants)
    except KeyError as error:
        raise SchemaMismatch(f"a column has the type {error.args[0]}, which DuckLake does not have; cast it") from error
    return form.fields_of(schema, types)


def _why_not(form: Format, snapshot: Snapshot | None, definition: TableDefinition) -> str | None:
    """Return why DuckDB must rewrite the workers' rows into other files; None if it need not."""
    for field in definition.fields:
        if not _is_written(duckdb.type(field["type"])):
            return f"column {field['name']} is {field['type']}, which DuckDB writes"
    keys = definition.partition_by
    if snapshot is not None and snapshot.format_state.definition.partition_by and not keys:
        # Measured with DuckDB 1.5.5: RESET PARTITIONED BY and added files in one transaction kill
        # the instance by an internal error.
        return "the partitions end with this write"
    if not keys:
        return None
    if "=" in transactions_of(form).data_path:
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


def _fitted(frame: DataFrame, definition: TableDefinition, mode: SchemaMode, *, checked: bool) -> DataFrame:
    """Return the rows in the table's columns and types; NULL in a NOT NULL column raises."""
    from pyspark.sql import functions as F

    schema, source = spark_schema(definition), frame.schema
    filled, _ = fit_all(source, schema, mode, checked=checked)
    columns = []
    for field in definition.fields:
        name, kind = field["name"], schema[field["name"]].dataType
        value = cast_to(name, filled[name], source, kind)
        if not field["nullable"]:
            failing = F.raise_error(F.lit(f"{RAISED}a NULL in column {name}, which is NOT NULL")).cast(kind)
            value = F.when(value.isNull(), failing).otherwise(value)
        columns.append(value.alias(name))
    return frame.select(*columns)


def _in_folders(frame: DataFrame, keys: Sequence[PartitionKey]) -> tuple[DataFrame, tuple[str, ...]]:
    """Return the rows with the columns that name their folders, and the names of these columns."""
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
            lost = (here == "") | F.upper(here).isin(*NO_VALUES)
            failing = F.raise_error(F.lit(f"{RAISED}{NO_FOLDER} of column {key.column}")).cast("string")
            more[key.column] = F.when(lost, failing).otherwise(here)
    return with_casts(frame, more), tuple(folders)


def _in_utc(column: str) -> Any:
    """Return an instant as a UTC timestamp, whatever the session's time zone."""
    from pyspark.sql import functions as F

    seconds = f"CAST(unix_micros({quote(column)}) AS DECIMAL(20, 0)) / 1000000"
    return F.expr(f"TIMESTAMP_NTZ'1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, CAST({seconds} AS DECIMAL(18, 6)))")
