"""One write on Spark: check the rows against the table, let Spark commit, prove that it did."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from duckrun.engines.data_files import file_properties, file_size
from duckrun.engines.spark import alter, create, merge
from duckrun.engines.spark.commit import SparkCommit
from duckrun.engines.spark.errors import RAISED, condition_of, errors_about, text_of
from duckrun.engines.spark.foreign_servers import other_implementation
from duckrun.engines.spark.kept import kept
from duckrun.engines.spark.outside import refuse_outside
from duckrun.engines.spark.scratch import arranged, filled, scratch
from duckrun.engines.spark.sql import matched_statement, quote, to_spark, without_between
from duckrun.engines.spark.structs import shaped, types_in, with_types
from duckrun.engines.spark.types import (
    cast_to,
    check_new_table,
    fit_all,
    holds_untyped,
    oddly_named,
    structs_by_name,
    taking_types,
)
from duckrun.engines.tables import REWRITTEN
from duckrun.errors import CommitConflict, InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats.commits import CommitRecord, NewCommit, TakenBack
from duckrun.formats.definitions import Alteration
from duckrun.run.transaction import Transaction
from duckrun.sql.char_types import is_padded
from duckrun.values.columns import outside_years, refuse_twins
from duckrun.values.layout import TARGET_FILE_SIZE, Layout, codec_of
from duckrun.values.partition_values import NO_PARTITION_VALUES, no_partition_value, refuse_partition_type
from duckrun.values.rows import (
    Commit,
    DeleteInsertSpec,
    DeleteSpec,
    MergeSpec,
    RowSpec,
    SchemaMode,
    UpdateSpec,
    WriteSpec,
    counted_rows,
)
from duckrun.values.tables import sort_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

    from duckrun.engines.spark.engine import SparkEngine
    from duckrun.values.snapshot import Snapshot

_YEARS = {
    "date": ("DATE'0001-01-01'", "DATE'9999-12-31'"),
    "timestamp": ("TIMESTAMP'0001-01-01 00:00:00Z'", "TIMESTAMP'9999-12-31 23:59:59.999999Z'"),
    "timestamp_ntz": ("TIMESTAMP_NTZ'0001-01-01 00:00:00'", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"),
}
"""Type -> the first and last value that every reader has, in Spark's SQL."""
_VECTORS = [f"spark.databricks.delta.{what}.deletionVectors.persistent" for what in ("merge", "update", "delete")]
"""Whether statements mark rows in tables that ask for it. Overwrites of a part delete. Source: DeltaSQLConf of delta-spark 4.4."""
_NOT_TAKEN = frozenset({TARGET_FILE_SIZE, "owner", "provider", "location", "external", "is_managed_location"})
"""Properties that Spark's writers of frames leave out or refuse. Source: CatalogV2Util.TABLE_RESERVED_PROPERTIES of Spark 4.1."""
TAKEN_BACK = "what an earlier attempt wrote goes in the same commit"
_GATHERS = "spark.databricks.delta.merge.repartitionBeforeWrite.enabled"
_PADDING = "spark.sql.readSideCharPadding"
_FILE_SIZE = "spark.databricks.delta.optimizeWrite.binSize"


class Attempt(SparkCommit):
    """One try at one spec, from the snapshot that the transaction read."""

    def __init__(
        self,
        engine: SparkEngine,
        spec: RowSpec,
        frame: DataFrame | None,
        transaction: Transaction,
        snapshot: Snapshot | None,
    ) -> None:
        super().__init__(engine, spec, transaction, snapshot)
        self.spec = spec
        if isinstance(spec, Layout) and (snapshot is None or spec.mode == "overwrite"):
            kept = {} if snapshot is None or (isinstance(spec, WriteSpec) and spec.redefine) else snapshot.properties
            self.properties = file_properties(spec, {**kept, **spec.table_properties})
        self.frame = frame
        self.form = transaction.lake.format
        self._grown: dict[str, Any] = {}

    def run(self) -> Commit:
        return self.proved(self._carried_out)

    def _carried_out(self) -> Commit | None:
        try:
            with errors_about(f"{self.spec.mode} on table {self.ref}", analysis=SchemaMismatch), ExitStack() as held:
                return self._dispatch(held)
        except (SchemaMismatch, InvalidConfig) as error:
            version = "which does not exist yet" if self.snapshot is None else f"at version {self.snapshot.version}"
            if str(self.ref) in str(error):
                raise
            raise type(error)(
                f"{self.spec.mode} on table {self.ref} ({version}): {error}. Nothing was written."
            ) from error

    def _dispatch(self, held: ExitStack) -> Commit | None:
        self.transaction.check_fence(self.snapshot, self.spec)
        if self.frame is not None:
            refuse_twins(self.frame.columns)
            fixed = not self.is_new and not (isinstance(self.spec, WriteSpec) and self.spec.redefine)
            if fixed and holds_untyped(self.frame.schema):
                self.frame = taking_types(self.frame, self.target_schema())
        if isinstance(self.spec, MergeSpec | DeleteInsertSpec) and other_implementation(self.spark) is None:
            # They look at their source more than once, and it may give other rows each time: Spark keeps those that it gave.
            self.frame = held.enter_context(kept(self.rows()))
        if not isinstance(self.spec, DeleteSpec | UpdateSpec) and self.spec.within is not None:
            self.refuse_outside(self.rows(), self.spec.within)
        if (earlier := self.transaction.compared_with) is not None:
            return self._compared(earlier)
        alteration = self._evolution()
        if alteration is not None:
            self._grow(alteration)
        # Spark turns the table feature of some types on in a new table only (Delta 4.4: DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT);
        # a commit of this library adds it.
        if (
            alteration is not None
            and self.snapshot is not None
            and (alteration.rewrites or self.form.lacks_feature(self.snapshot, alteration.after.fields))
        ):
            return self._anew(alteration)
        if self.taken is not None and not self.is_new:
            return self._instead(self.taken, alteration)
        match self.spec:
            case WriteSpec():
                return self._write(self.spec)
            case MergeSpec():
                return merge.merge(self, self.spec)
            case DeleteInsertSpec():
                return merge.delete_insert(self, self.spec)
            case DeleteSpec() | UpdateSpec():
                return self._change(self.spec)

    # -- a newer attempt of the same work

    @property
    def taken(self) -> TakenBack | None:
        """What the commit takes back of an older attempt."""
        return self.transaction.taken_back

    @property
    def is_new(self) -> bool:
        """True if the table is made: there is none, or an older attempt of the same work made the one that is there."""
        return self.snapshot is None or (self.taken is not None and self.taken.anew)

    def _instead(self, taken: TakenBack, alteration: Alteration | None) -> Commit:
        """The commit that takes back what an older attempt committed. Spark writes into a copy, whose files one commit of ours adds."""
        assert self.snapshot is not None
        lake, snapshot = self.transaction.lake, self.snapshot
        if not taken.by_rows:
            return self._anew(alteration or self.form.evolved(snapshot, (), "fail"))
        assert isinstance(self.spec, WriteSpec), "an append"
        self.form.refuse_copies(snapshot)
        frame, _ = self.fitted(self.rows(), self.spec.schema_mode)
        definition: Any = self.form.definition(snapshot) if alteration is None else alteration.after  # type: ignore[attr-defined]
        frame = self.checked(frame, snapshot.partition_columns)
        with filled(self.engine, lake, self.ref, definition, frame, sort_by=self.spec.sort_by) as copy:
            files = copy.files()
            rows = (counted_rows(files), 0, counted_rows(taken.files))
            changed = None if alteration is None or not alteration.changed else definition
            return self.transaction.commit(
                snapshot, NewCommit(self.spec, changed, files, taken.files, rows, "spark", TAKEN_BACK)
            )

    def _compared(self, earlier: CommitRecord) -> Commit:
        """The commit of an older attempt, if the rows are those that it added. Raises CommitConflict."""
        assert self.snapshot is not None
        rows, _ = self.fitted(self.rows(), "fail")
        added = self.engine.read_at(self.ref.location, earlier.version)
        if earlier.version:
            added = added.exceptAll(self.engine.read_at(self.ref.location, earlier.version - 1))
        rows = rows.select(*[quote(name) for name in added.columns])
        if not (rows.exceptAll(added).isEmpty() and added.exceptAll(rows).isEmpty()):
            self.transaction.refuse_other_rows(earlier, self.snapshot)
        return earlier.as_commit(self.ref).with_(replayed=True)

    # -- whole rows

    def _write(self, spec: WriteSpec) -> Commit | None:
        if self.snapshot is None or self.is_new:
            return self.create(self.rows(), spec)
        if spec.mode == "error":
            raise CommitConflict(
                f"Table {self.ref} exists already, at version {self.snapshot.version}; mode 'error' writes new tables only."
            )
        if spec.mode == "ignore":
            return self.nothing("the table exists already, and mode 'ignore' leaves it as it is")
        if spec.mode == "overwrite":
            return self._overwrite(self.rows(), spec)
        if spec.partition_by is not None and tuple(spec.partition_by) != self.snapshot.partition_columns:
            raise InvalidConfig(
                f"Table {self.ref} is partitioned by {', '.join(self.snapshot.partition_columns) or 'nothing'}, not by "
                f"{', '.join(spec.partition_by) or 'nothing'}; only mode overwrite changes that."
            )
        if spec.cluster_by is not None:
            create.refuse_other_clustering(self, self.snapshot, spec.cluster_by)
        frame, new = self.fitted(self.rows(), spec.schema_mode)
        options = {"mergeSchema": "true"} if new or self._grown else {}
        if spec.mode in ("append", "safeappend"):
            return self.save(frame, "append", options, self.snapshot.partition_columns, spec)
        if spec.predicate is not None:
            options["replaceWhere"] = to_spark(without_between(spec.predicate, spec.dialect), spec.dialect)
            try:
                return self.save(frame, "overwrite", options, self.snapshot.partition_columns, spec)
            except Exception as error:
                if condition_of(error, "DELTA_REPLACE_WHERE_MISMATCH"):
                    self.refuse_outside(frame, spec.predicate)
                    # Spark says the same of a row that breaks a constraint of the table
                    raise SchemaMismatch(f"a row breaks a constraint: {text_of(error)}") from error
                raise
        columns = self.snapshot.columns_to_replace()
        options["partitionOverwriteMode"] = "dynamic"
        return self.save(frame, "overwrite", options, columns, spec)

    def _evolution(self) -> Alteration | None:
        """How the table's columns follow those of the rows; None where they stay, or all go with the rows."""
        spec = self.spec
        if self.snapshot is None or self.is_new:
            return None
        if isinstance(spec, DeleteSpec | UpdateSpec) or spec.schema_mode == "fail":
            return None
        if spec.mode in ("error", "ignore", "overwrite"):
            return None
        fields = json.loads(self.rows().schema.json())["fields"]
        if isinstance(spec, MergeSpec):
            there = {name.lower() for name in self.snapshot.schema.names}
            fields = [field for field in fields if field["name"].lower() in there or spec.takes(field["name"])]
        return self.form.evolved(self.snapshot, fields, spec.schema_mode)

    def _grow(self, alteration: Alteration) -> None:
        """Structs of the rows in the form that the table will have: with its fields by name, NULL where the rows have none."""
        self._grown = types_in([field for field in alteration.after.fields if field["name"] in alteration.grown])
        self.frame = structs_by_name(self.rows(), self.target_schema())

    def _anew(self, alteration: Alteration) -> Commit:
        """Columns go or change their type with the rows: Spark does the write on a copy in the new form, whose files
        become the table's in one commit."""
        assert self.snapshot is not None
        lake, snapshot = self.transaction.lake, self.snapshot
        self.form.refuse_copies(snapshot)
        # The files of the copy become those of the table without marks.
        spec: RowSpec = replace(self.spec, app=None, merge_mode="copy_on_write")
        if not isinstance(spec, DeleteSpec | UpdateSpec):
            spec = replace(spec, schema_mode="fail")
        if isinstance(spec, WriteSpec):
            spec = replace(spec, mode="append" if spec.mode == "safeappend" else spec.mode, read_version=None)
        with scratch(self.engine, lake, snapshot, alteration) as copy:
            inner = Transaction(lake, copy.ref)
            inner.mode, inner.engine = self.spec.mode, self.engine.name
            done = Attempt(self.engine, spec, self.frame, inner, lake.snapshot(copy.ref)).run()
            rows = (done.rows_inserted, done.rows_updated, done.rows_deleted)
            definition = alteration.after if alteration.changed else None
            reason = REWRITTEN if alteration.changed else TAKEN_BACK
            new = NewCommit(self.spec, definition, copy.files(), snapshot.files(), rows, "spark", reason)
            return self.transaction.commit(snapshot, new)

    def _overwrite(self, frame: DataFrame, spec: WriteSpec) -> Commit | None:
        assert self.snapshot is not None
        clustered = create.clustered_by(self.engine, self.snapshot)
        cluster_by = create.clustering_after(spec, clustered)
        changed = self._changed_properties(spec)
        by_spark = self.form.only_spark(self.snapshot) or self.form.special_properties(changed)
        redefined = spec.redefine or changed or spec.description not in (None, self.snapshot.description)
        stays = create.same_names(cluster_by, clustered) and not redefined
        keep = self.snapshot.partition_columns if spec.partition_by is None else spec.partition_by
        if self.snapshot.computed() and not spec.redefine:
            frame = self.with_defaults(frame)
            options = create.rows_alone(self, frame, keep, self.snapshot, stays=stays)
            return self.save(frame, "overwrite", options, keep, spec)
        if cluster_by or (redefined and by_spark):
            create.in_place_of(self, self._commented(frame, spec), spec, self.snapshot, cluster_by, stays=stays)
            return None  # the commit is looked up
        own = self.form.constrained_anew(self.snapshot, spec) and not self.form.only_spark(self.snapshot)
        own = own or self.form.lacks_feature(self.snapshot, json.loads(frame.schema.json())["fields"])
        own = own or oddly_named(frame.columns, {**self.snapshot.properties, **spec.table_properties})
        if own or redefined or spec.constraints:
            return self._defined(frame, spec, self.snapshot)
        check_new_table(frame.schema, keep)
        return self.save(self._commented(frame, spec), "overwrite", {"overwriteSchema": "true"}, keep, spec)

    def _changed_properties(self, spec: WriteSpec) -> dict[str, str]:
        """Those of a write's properties that the table does not have yet. Spark's own overwrite of a table leaves them out."""
        assert self.snapshot is not None
        asked = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in spec.table_properties.items()}
        return {k: v for k, v in asked.items() if self.snapshot.properties.get(k) != v}

    def _defined(self, frame: DataFrame, spec: WriteSpec, snapshot: Snapshot | None) -> Commit:
        """All rows of a table and its definition, constraints included: Spark's own REPLACE leaves out properties at a
        location, so Spark writes the rows beside it, and one commit adds them with the definition."""
        lake, partition_by = self.transaction.lake, tuple(spec.partition_by or ())
        if snapshot is not None:
            self.form.refuse_copies(snapshot)
            if spec.partition_by is None and not spec.redefine:
                partition_by = snapshot.partition_columns
        check_new_table(frame.schema, partition_by)
        frame = self._commented(frame, spec)
        fields = tuple({**field, "nullable": True} for field in json.loads(frame.schema.json())["fields"])
        definition = self.form.overwritten(spec, fields, partition_by, snapshot)
        reason = "rows and definition of the table in one commit"
        arriving, size = self.checked(frame, partition_by), file_size(self.properties)
        with (
            nullcontext() if size is None else self.engine.settings({_FILE_SIZE: f"{size}b"}),
            filled(
                self.engine, lake, self.ref, definition, arriving, sort_by=spec.sort_by, gather=size is not None
            ) as copy,
        ):
            files, gone = copy.files(), () if snapshot is None else snapshot.files()
            rows = (counted_rows(files), 0, counted_rows(gone))
            new = NewCommit(spec, definition, files, gone, rows, "spark", reason, anew=True)
            return self.transaction.commit(snapshot, new)

    def create(self, frame: DataFrame, spec: WriteSpec | MergeSpec | DeleteInsertSpec) -> Commit | None:
        if self.snapshot is not None:
            return self._overwrite(frame, _as_overwrite(spec))
        partition_by, cluster_by = spec.partition_by or (), spec.cluster_by or ()
        check_new_table(frame.schema, partition_by)
        properties = {str(k): str(v) for k, v in spec.table_properties.items()}
        description = None
        if isinstance(spec, WriteSpec):
            if spec.predicate is not None:
                self.refuse_outside(frame, spec.predicate)
            own = spec.constraints or oddly_named(frame.columns, properties)
            own = own or (not self.form.special_properties(properties) and not _NOT_TAKEN.isdisjoint(properties))
            if own and not cluster_by:
                return self._defined(frame, spec, None)
            frame, description = self._commented(frame, spec), spec.description
        other = other_implementation(self.spark)
        if cluster_by and (other is not None or isinstance(spec, WriteSpec) and spec.constraints):
            what = f"{other}, which has none" if other is not None else "constraints: add them by ALTER TABLE"
            raise UnsupportedFeature(f"liquid clustering (cluster_by) of table {self.ref} together with {what}")
        plain = description is None and not cluster_by
        plain = plain and all(key.startswith("delta.") and key != TARGET_FILE_SIZE for key in properties)
        # Servers other than Apache Spark cannot create a table at a location by SQL: it goes without its description.
        if plain or other is not None:
            return self.save(frame, "error", properties, partition_by, spec)
        rows = self.arranged(self.checked(frame, partition_by), partition_by, spec.sort_by)
        create.new_table(self, rows, replace(Layout(**spec.layout), table_properties=properties), description)
        return None

    def save(
        self,
        frame: DataFrame,
        mode: str,
        options: Mapping[str, str],
        partition_by: Sequence[str],
        spec: WriteSpec | MergeSpec | DeleteInsertSpec,
    ) -> Commit | None:
        app, size = self.transaction.app, file_size(self.properties)
        if mode == "overwrite":
            self._ask_for_marks()
        frame = self.arranged(self.checked(frame, partition_by), partition_by, spec.sort_by, gather=size is not None)
        writer = frame.write.format("delta").mode(mode).option("userMetadata", self.note())
        for key, value in options.items():
            writer = writer.option(key, value)
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        if codec := codec_of(self.properties):
            writer = writer.option("compression", codec)
        if size is not None:
            writer = writer.option("optimizeWrite", "true")
        if app is not None:
            writer = writer.option("txnAppId", app.app_id).option("txnVersion", str(app.version))
        # Options come before settings, so a write with an application id cannot take up that of a statement which runs
        # beside it; any other one waits for it, and one that marks rows too.
        if app is not None and size is None and "replaceWhere" not in options:
            writer.save(self.location)
        else:
            own = self._marking() | (self.asking_all(options["replaceWhere"]) if "replaceWhere" in options else {})
            with self.engine.settings(own | ({} if size is None else {_FILE_SIZE: f"{size}b"})):
                writer.save(self.location)
        return None  # the commit is looked up

    def checked(self, frame: DataFrame, partition_by: Sequence[str]) -> DataFrame:
        """Rows that raise where a partition value would be read back as NULL, for which the log has one spelling, and where
        not every reader has a date. Raises SchemaMismatch for a type that no partition column can have.
        """
        from pyspark.sql import functions as F

        parts = {column.lower() for column in partition_by}
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
                # not by withMetadata(), which takes a dot or a backtick in a name for syntax
                here = F.when(wrong, failing).otherwise(here).alias(name, metadata=field.metadata or {})
                is_checked = True
            columns.append(here)
        return frame.select(*columns) if is_checked else frame

    def arranged(
        self, frame: DataFrame, partition_by: Sequence[str], sort_by: Sequence[str], *, gather: bool = False
    ) -> DataFrame:
        """Rows in the order asked for, else in that which the table asks for, within each file."""
        if not sort_by and self.snapshot is not None:
            sort_by = [c for c in sort_order(self.snapshot.properties) if c in frame.columns]
        return arranged(frame, partition_by, sort_by, gather=gather)

    def _commented(self, frame: DataFrame, spec: WriteSpec) -> DataFrame:
        from pyspark.sql import functions as F

        fields = frame.schema.fields
        comments = {column.lower(): comment for column, comment in spec.column_comments.items()}
        present = {field.name.lower() for field in fields}
        unknown = next((column for column in spec.column_comments if column.lower() not in present), None)
        if unknown is not None:
            raise SchemaMismatch(f"a comment is for the column {unknown!r}, which the data does not have")
        if not comments:
            return frame
        metadata = {
            f.name: {
                **(f.metadata or {}),
                **({"comment": comments[f.name.lower()]} if f.name.lower() in comments else {}),
            }
            for f in fields
        }
        return frame.select(*[F.col(quote(name)).alias(name, metadata=metadata[name]) for name in metadata])

    # -- statements

    def change(self, text: str) -> Commit | None:
        """Run a statement that takes rows out of the table."""
        self._ask_for_marks()
        return self.statement(text)

    def statement_settings(self) -> dict[str, str]:
        # Delta 4.4 loses the column that Spark pads: DELTA_MERGE_RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT.
        merges = isinstance(self.spec, MergeSpec | DeleteInsertSpec)
        padded = merges and self.snapshot is not None and any(map(is_padded, self.snapshot.schema))
        # Its MERGE gathers rows by the names of partition columns without quotes.
        odd = merges and self.snapshot is not None and any({*"`."} & {*c} for c in self.snapshot.partition_columns)
        return (
            super().statement_settings()
            | self._marking()
            | ({_PADDING: "false"} if padded else {})
            | ({_GATHERS: "false"} if odd else {})
        )

    def chars(self, keys: Sequence[str]) -> dict[str, Any]:
        """The fields of the keys that are CHAR(n)."""
        assert self.snapshot is not None
        fields = {field.name.lower(): field for field in self.snapshot.schema}
        found = {key: fields.get(key.lower()) for key in keys}
        return {key: field for key, field in found.items() if field is not None and is_padded(field)}

    def _marking(self) -> dict[str, str]:
        """The settings under which rows leave the table as the spec says; none where the session's hold."""
        mode = self.spec.merge_mode
        return {} if mode == "auto" else dict.fromkeys(_VECTORS, str(mode == "deletion_vectors").lower())

    def _ask_for_marks(self) -> None:
        """Have the table ask for marks where the spec does: a commit of its own, since Spark's statements set no property."""
        snapshot = self.snapshot
        change = (
            None
            if snapshot is None or self.spec.merge_mode != "deletion_vectors"
            else self.form.marking_change(snapshot)
        )
        if snapshot is None or change is None:
            return
        before = Transaction(self.transaction.lake, self.ref)
        before.mode, before.engine = change.mode, self.engine.name
        by_spark = alter.instead(self.engine, change, snapshot, before)
        reason = "merge_mode deletion_vectors is asked for"
        if by_spark is not None:
            commit = by_spark()
        else:
            commit = before.commit(
                snapshot, NewCommit(change, self.form.altered(snapshot, change).after, reason=reason)
            )
        self.snapshot = self.transaction.lake.snapshot(self.ref, commit.version)
        self.reason = f"{self.reason}; version {commit.version} turned deletion vectors on for it"

    def _change(self, spec: DeleteSpec | UpdateSpec) -> Commit | None:
        """Delete or update the rows for which a predicate is true, over target and source where rows came with it."""
        if self.snapshot is None:
            self.transaction.lake.snapshot(self.ref)  # raises TableNotFound with the nearest names
        updates = spec.set if isinstance(spec, UpdateSpec) else {}
        values = {column: to_spark(value, spec.dialect) for column, value in updates.items()}
        names = {n.lower() for n in self.target_schema().names} if values else set()
        unknown = [column for column in values if column.lower() not in names]
        if unknown:
            raise SchemaMismatch(f"not in the table: {', '.join(unknown)}")
        checked = ", ".join(["1", *(f"({value})" for value in values.values())])
        condition = "true" if spec.predicate is None else to_spark(spec.predicate, spec.dialect)
        if self.frame is not None:
            with self.engine.view(self.frame) as source:
                kinds = self.analyse(
                    f"SELECT {checked} FROM {self.target} AS target JOIN {source} AS source ON {condition}"
                )
                values = self.shaped(values, kinds.fields[1:])
                return self.change(matched_statement(self.target, source, condition, values))
        where = "" if spec.predicate is None else f" WHERE {condition}"
        kinds = self.analyse(f"SELECT {checked} FROM {self.target} AS target{where}")
        if isinstance(spec, DeleteSpec):
            return self.change(f"DELETE FROM {self.target} AS target{where}")
        values = self.shaped(values, kinds.fields[1:])
        assigned = ", ".join(f"{quote(column)} = {value}" for column, value in values.items())
        return self.change(f"UPDATE {self.target} AS target SET {assigned}{where}")

    def shaped(self, values: Mapping[str, str], kinds: Sequence[StructField]) -> dict[str, str]:
        """Values that a statement sets, with the fields of structs by their names: Spark would take them by position."""
        columns = {field.name.lower(): field.dataType for field in self.target_schema().fields}
        return {
            name: shaped(name, value, kind.dataType, columns.get(name.lower(), kind.dataType)) or value
            for (name, value), kind in zip(values.items(), kinds, strict=True)
        }

    # -- the rows

    def rows(self) -> DataFrame:
        assert self.frame is not None
        return self.frame

    @property
    def grows(self) -> bool:
        """True if structs of the table get new fields."""
        return bool(self._grown)

    def target_schema(self) -> Any:
        assert self.snapshot is not None
        found = self.engine.read_at(self.ref.location, self.snapshot.version).schema
        return with_types(found, self._grown) if self._grown else found

    def with_defaults(self, frame: DataFrame) -> DataFrame:
        """The rows with the columns that they lack and the table fills with a default."""
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
        frame, given = frame.withColumns(defaults), {name.lower(): name for name in (*frame.columns, *defaults)}
        ordered = [given[name.lower()] for name in schema.names if name.lower() in given]
        return frame.select(*[quote(name) for name in dict.fromkeys((*ordered, *frame.columns))])

    def fit(
        self, frame: DataFrame, schema_mode: SchemaMode, *, merges: bool = False
    ) -> tuple[dict[str, str | None], list[str]]:
        """Target column -> column of the rows, and the new columns (see fit_all). The rows may lack what Delta computes, and those of
        a merge what it gives a default.
        """
        assert self.snapshot is not None
        own = set(self.snapshot.computed()) if merges else self.form.computed_columns(self.snapshot)
        optional = sorted(own) if schema_mode == "fail" else None
        return fit_all(frame.schema, self.target_schema(), schema_mode, checked=self.engine.ansi(), optional=optional)

    def fitted(self, frame: DataFrame, schema_mode: SchemaMode) -> tuple[DataFrame, list[str]]:
        """The rows in the table's columns and types, and which columns are new."""
        from pyspark.sql import functions as F

        assert self.snapshot is not None
        frame = self.with_defaults(frame)
        schema, given, computed = self.target_schema(), frame.schema, self.form.computed_columns(self.snapshot)
        filled, new = self.fit(frame, schema_mode)
        columns = [
            (
                F.lit(None).cast(schema[name].dataType)
                if found is None
                else cast_to(name, found, given[found].dataType, schema[name].dataType)
            ).alias(name)
            for name, found in filled.items()
            if found is not None or name not in computed
        ]
        return frame.select(*columns, *[F.col(quote(name)) for name in new]), new

    def refuse_outside(self, frame: DataFrame, written: str) -> None:
        """Raise RowsOutsidePartition if a predicate is not true for a row, as the table stores it."""
        refuse_outside(self.spec, self.ref, self._as_stored(frame), written)

    def _as_stored(self, frame: DataFrame) -> DataFrame:
        """The rows with the table's types where a value has a place in them, else NULL."""
        if self.snapshot is None:
            return frame
        from pyspark.sql import functions as F

        kinds = {field.name.lower(): field.dataType for field in self.target_schema()}
        given = {field.name: field.dataType for field in frame.schema}
        others = {name: kinds[name.lower()] for name in given if kinds.get(name.lower(), given[name]) != given[name]}
        casts = {name: F.col(quote(name)).try_cast(kind) for name, kind in others.items()}
        return frame.withColumns(casts) if casts else frame  # Connect's refuses an empty mapping


def _as_overwrite(spec: WriteSpec | MergeSpec | DeleteInsertSpec) -> WriteSpec:
    """The write that makes a table, as one of all rows of a table that is there."""
    if isinstance(spec, WriteSpec):
        return replace(spec, mode="overwrite", predicate=None)
    return WriteSpec("overwrite", within=spec.within, dialect=spec.dialect, **spec.layout)
