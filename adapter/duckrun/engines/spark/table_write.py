"""Rows of a write to a Delta table in the table's form, and the Spark calls that write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from duckrun.engines.data_files import file_properties, file_size
from duckrun.engines.spark import alter
from duckrun.engines.spark.access import SparkAccess
from duckrun.engines.spark.commit import SparkCommit
from duckrun.engines.spark.errors import RAISED
from duckrun.engines.spark.outside import refuse_outside
from duckrun.engines.spark.scratch import arranged, file_options, file_size_setting
from duckrun.engines.spark.sql import quote
from duckrun.engines.spark.structs import shaped, with_types
from duckrun.engines.spark.types import cast_to, fit_all, holds, is_mapped, pairs, with_casts
from duckrun.formats.commits import NewCommit
from duckrun.formats.format import logs_of
from duckrun.run.transaction import Transaction
from duckrun.sql.char_types import is_padded, padded_columns
from duckrun.values.choices import SchemaMode
from duckrun.values.columns import outside_years
from duckrun.values.layout import Layout
from duckrun.values.partition_values import NO_PARTITION_VALUES, no_partition_value, refuse_partition_type
from duckrun.values.rows import Commit, DeleteInsertSpec, MergeSpec, RowSpec, WriteSpec
from duckrun.values.tables import sort_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

    from duckrun.values.snapshot import Snapshot

_YEARS = {
    "date": ("DATE'0001-01-01'", "DATE'9999-12-31'"),
    "timestamp": ("TIMESTAMP'0001-01-01 00:00:00Z'", "TIMESTAMP'9999-12-31 23:59:59.999999Z'"),
    "timestamp_ntz": ("TIMESTAMP_NTZ'0001-01-01 00:00:00'", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"),
}
"""First and last value of a type that every reader supports, in Spark SQL."""
_VECTORS = [f"spark.databricks.delta.{what}.deletionVectors.persistent" for what in ("merge", "update", "delete")]
"""Settings that make statements write deletion vectors, in tables that enable them.

A partial overwrite follows the one of DELETE. Source: DeltaSQLConf of delta-spark 4.4.
"""
_GATHERS = "spark.databricks.delta.merge.repartitionBeforeWrite.enabled"
_PADDING = "spark.sql.readSideCharPadding"


class SparkWrite(SparkCommit):
    """One attempt at a write: its rows as the table stores them, and its statements."""

    def __init__(
        self,
        access: SparkAccess,
        spec: RowSpec,
        frame: DataFrame | None,
        transaction: Transaction,
        snapshot: Snapshot | None,
    ) -> None:
        super().__init__(access, spec, transaction, snapshot)
        self.spec: RowSpec = spec
        if isinstance(spec, Layout) and (snapshot is None or spec.mode == "overwrite"):
            present = {} if snapshot is None or (isinstance(spec, WriteSpec) and spec.redefine) else snapshot.properties
            self.properties = file_properties(spec, {**present, **spec.table_properties})
        self.frame = frame
        self.taken = transaction.taken_back
        """Commits of an older attempt that this commit rolls back."""
        self.form = transaction.lake.format
        self.logs = logs_of(self.form)
        self.grown: dict[str, Any] = {}
        """Types of the columns whose structs get new fields."""

    @property
    def is_new(self) -> bool:
        """True if the write creates the table.

        There is none, or an older attempt of the same work created the present one.
        """
        return self.snapshot is None or (self.taken is not None and self.taken.anew)

    # -- the rows

    def rows(self) -> DataFrame:
        """Return the rows to write."""
        assert self.frame is not None
        return self.frame

    def target_schema(self) -> Any:
        """Return the table's Spark schema, with the fields that its structs get."""
        return with_types(self._stored_schema, self.grown) if self.grown else self._stored_schema

    @cached_property
    def _stored_schema(self) -> Any:
        """Spark schema of the version that the attempt is based on."""
        from pyspark.sql.types import StructType

        assert self.snapshot is not None
        schema = StructType.fromJson({"fields": self.form.definition(self.snapshot).fields})
        # Spark takes 35 ms to load a schema. It leaves out VOID columns, and ids of mapped ones.
        must_load = is_mapped(self.snapshot.properties) or holds(schema, "void")
        return self.access.read(self.snapshot).schema if must_load else schema

    def with_defaults(self, frame: DataFrame) -> DataFrame:
        """Return the rows with the default columns that they lack."""
        from pyspark.sql import functions as F

        assert self.snapshot is not None
        present, schema = {name.lower() for name in frame.columns}, self.target_schema()
        defaults = {
            name: F.expr(column.default).cast(schema[name].dataType)
            for name, column in self.snapshot.computed().items()
            if column.default is not None and name.lower() not in present
        }
        if not defaults:
            return frame
        frame, spelled = frame.withColumns(defaults), {name.lower(): name for name in (*frame.columns, *defaults)}
        ordered = [spelled[name.lower()] for name in schema.names if name.lower() in spelled]
        return frame.select(*[quote(name) for name in dict.fromkeys((*ordered, *frame.columns))])

    def fit(
        self, frame: DataFrame, schema_mode: SchemaMode, *, merges: bool = False
    ) -> tuple[dict[str, str | None], list[str]]:
        """Match the rows to the table's columns (see ``fit_all``).

        Args:
            merges: The rows may also lack columns with a default, beside those that Delta computes.
        """
        assert self.snapshot is not None
        optional = self.snapshot.computed() if merges else self.form.computed_columns(self.snapshot)
        return fit_all(frame.schema, self.target_schema(), schema_mode, checked=self.access.ansi(), optional=optional)

    def fitted(self, frame: DataFrame, schema_mode: SchemaMode) -> tuple[DataFrame, list[str]]:
        """Return the rows in the table's columns and types, and their new columns."""
        from pyspark.sql import functions as F

        assert self.snapshot is not None
        frame = self.with_defaults(frame)
        schema, source, computed = self.target_schema(), frame.schema, self.form.computed_columns(self.snapshot)
        if [(f.name, f.dataType, f.metadata) for f in source] == [(f.name, f.dataType, {}) for f in schema]:
            return frame, []  # without a dozen calls of the JVM for each column
        filled, new = self.fit(frame, schema_mode)
        columns = [
            cast_to(name, column, source, schema[name].dataType).alias(name)
            for name, column in filled.items()
            if column is not None or name not in computed
        ]
        return frame.select(*columns, *[F.col(quote(name)) for name in new]), new

    def refuse_outside(self, frame: DataFrame, written: str) -> None:
        """Raise RowsOutsidePartition if a row, as stored, violates a predicate."""
        refuse_outside(self.spec, self.ref, self._as_stored(frame), written)

    def _as_stored(self, frame: DataFrame) -> DataFrame:
        """Return the rows in the table's types; values that do not fit become NULL."""
        if self.snapshot is None:
            return frame
        from pyspark.sql import functions as F

        casts = {
            field.name: F.col(quote(field.name)).try_cast(kind)
            for field, kind in pairs(frame, self.target_schema())
            if field.dataType != kind
        }
        return with_casts(frame, casts)

    def save(
        self,
        frame: DataFrame,
        mode: str,
        options: Mapping[str, str],
        partition_by: Sequence[str],
        spec: WriteSpec | MergeSpec | DeleteInsertSpec,
    ) -> Commit | None:
        """Write the rows with Spark's DataFrame writer; the commit is looked up afterwards."""
        app, size = self.transaction.app, file_size(self.properties)
        if mode == "overwrite":
            self._ask_for_marks()
        options = {"userMetadata": self.note(), **options, **file_options(self.properties, size)}
        if app is not None:
            options |= {"txnAppId": app.app_id, "txnVersion": str(app.version)}
        frame = self.arranged(self.checked(frame, partition_by), partition_by, spec.sort_by, gather=size is not None)
        settings = file_size_setting(size)
        if "replaceWhere" in options:
            settings |= self._marking() | self.asking_all(options["replaceWhere"])
        with self.access.frame_with(frame, settings) as rows:
            writer = rows.write.format("delta").mode(mode).options(**options)
            if partition_by:
                writer = writer.partitionBy(*partition_by)
            writer.save(self.location)
        return None  # the commit is looked up

    def checked(self, frame: DataFrame, partition_by: Sequence[str]) -> DataFrame:
        """Return rows that raise for values which not every reader can read.

        These are dates outside the common range, and partition values that are read back as NULL.

        Raises:
            SchemaMismatch: A partition column has a type that cannot partition.
        """
        from pyspark.sql import functions as F

        parts = {column.lower() for column in partition_by}
        if not parts and not any(field.dataType.typeName() in _YEARS for field in frame.schema):
            return frame
        columns, is_checked = [], False
        for field in frame.schema.fields:
            name, kind, here = field.name, field.dataType.typeName(), F.col(quote(field.name))
            wrong, message = None, outside_years(name)
            if kind in _YEARS:
                first, last = (F.expr(text) for text in _YEARS[kind])
                wrong = (here < first) | (here > last)
            if name.lower() in parts:
                refuse_partition_type(name, field.dataType.simpleString())
                if kind == "string":
                    wrong, message = here.isin(*NO_PARTITION_VALUES), no_partition_value(name)
            if wrong is not None:
                failing = F.raise_error(F.lit(f"{RAISED}{message}")).cast(field.dataType)
                # withMetadata() would parse a dot or a backtick in the name as syntax
                here = F.when(wrong, failing).otherwise(here).alias(name, metadata=field.metadata or {})
                is_checked = True
            columns.append(here)
        return frame.select(*columns) if is_checked else frame

    def arranged(
        self, frame: DataFrame, partition_by: Sequence[str], sort_by: Sequence[str], *, gather: bool = False
    ) -> DataFrame:
        """Return rows sorted within each file, by the write's order or else the table's."""
        if not sort_by and self.snapshot is not None:
            sort_by = [c for c in sort_order(self.snapshot.properties) if c in frame.columns]
        return arranged(frame, partition_by, sort_by, gather=gather)

    # -- statements

    def change(self, text: str) -> Commit | None:
        """Run a statement that deletes or updates rows."""
        self._ask_for_marks()
        return self.statement(text)

    def statement_settings(self) -> dict[str, str]:
        # Delta 4.4 loses a column that Spark pads in a MERGE:
        # DELTA_MERGE_RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT.
        """Return the session settings of a statement, with workarounds for Delta's MERGE."""
        merges = isinstance(self.spec, MergeSpec | DeleteInsertSpec)
        padded = merges and self.snapshot is not None and bool(padded_columns(self.snapshot.schema))
        # Its MERGE repartitions by partition columns without quoting their names.
        odd = merges and self.snapshot is not None and any({*"`."} & {*c} for c in self.snapshot.partition_columns)
        return (
            super().statement_settings()
            | self._marking()
            | ({_PADDING: "false"} if padded else {})
            | ({_GATHERS: "false"} if odd else {})
        )

    def chars(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the fields of those keys that are CHAR(n)."""
        assert self.snapshot is not None
        fields = {field.name.lower(): field for field in self.snapshot.schema}
        key_fields = {key: fields.get(key.lower()) for key in keys}
        return {key: field for key, field in key_fields.items() if field is not None and is_padded(field)}

    def _marking(self) -> dict[str, str]:
        """Return the settings for the spec's merge mode; empty to use the session's."""
        mode = self.spec.merge_mode
        return {} if mode == "auto" else dict.fromkeys(_VECTORS, str(mode == "deletion_vectors").lower())

    def _ask_for_marks(self) -> None:
        """Enable deletion vectors on the table, if the spec needs them.

        It is a separate commit, since Spark's statements set no property.
        """
        snapshot = self.snapshot
        if snapshot is None or self.spec.merge_mode != "deletion_vectors":
            return
        change = self.logs.marking_change(snapshot)
        if change is None:
            return
        before = Transaction(self.transaction.lake, self.ref)
        before.mode, before.engine = change.mode, "spark"
        by_spark = alter.instead(self.access, change, snapshot, before)
        reason = "merge_mode deletion_vectors is asked for"
        new = NewCommit(change, self.form.altered(snapshot, change).after, reason=reason)
        commit = before.commit(snapshot, new) if by_spark is None else by_spark()
        self.snapshot = self.transaction.lake.snapshot(self.ref, commit.version)
        self.log.follow(self.snapshot)
        self.reason = f"{self.reason}; version {commit.version} turned deletion vectors on for it"

    def shaped(self, values: Mapping[str, str], kinds: Sequence[StructField]) -> dict[str, str]:
        """Match structs of a statement's values to the columns by field name."""
        # Spark would match their fields by position.
        columns = {field.name.lower(): field.dataType for field in self.target_schema().fields}
        return {
            name: shaped(name, value, kind.dataType, columns.get(name.lower(), kind.dataType)) or value
            for (name, value), kind in zip(values.items(), kinds, strict=True)
        }
