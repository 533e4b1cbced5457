"""One write on Spark: check the rows against the table, let Spark commit, verify the commit."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from duckrun.engines import decisions
from duckrun.engines.data_files import file_size
from duckrun.engines.spark import create, merge
from duckrun.engines.spark.access import kept
from duckrun.engines.spark.errors import errors_about
from duckrun.engines.spark.foreign_servers import other_implementation
from duckrun.engines.spark.process.conditions import condition_of, message_of
from duckrun.engines.spark.scratch import filled, scratch
from duckrun.engines.spark.sql import matched_statement, quote, to_spark, without_between
from duckrun.engines.spark.structs import types_in
from duckrun.engines.spark.table_write import SparkWrite
from duckrun.engines.spark.types import check_new_table, holds, oddly_named, structs_by_name, taking_types
from duckrun.engines.tables import REWRITTEN
from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature, scratch_commits
from duckrun.formats.commits import CommitRecord, NewCommit, TakenBack
from duckrun.formats.definitions import Alteration
from duckrun.run.transaction import Transaction
from duckrun.values.columns import refuse_twins
from duckrun.values.layout import TARGET_FILE_SIZE, Layout
from duckrun.values.rows import (
    Commit,
    DeleteInsertSpec,
    DeleteSpec,
    MergeSpec,
    RowSpec,
    UpdateSpec,
    WriteSpec,
    counted_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from duckrun.values.snapshot import Snapshot

_NOT_TAKEN = frozenset({TARGET_FILE_SIZE, "owner", "provider", "location", "external", "is_managed_location"})
"""Properties that Spark's DataFrame writers drop or refuse.

Source: CatalogV2Util.TABLE_RESERVED_PROPERTIES of Spark 4.1.
"""
TAKEN_BACK = "what an earlier attempt wrote goes in the same commit"


class Attempt(SparkWrite):
    """One attempt at one spec, from the snapshot that the transaction read."""

    def run(self) -> Commit:
        """Write, and return the verified commit."""
        return self.proved(self._carried_out)

    def _carried_out(self) -> Commit | None:
        try:
            with errors_about(self.what, analysis=SchemaMismatch), ExitStack() as stack:
                return self._dispatch(stack)
        except (SchemaMismatch, InvalidConfig) as error:
            version = "which does not exist yet" if self.snapshot is None else f"at version {self.snapshot.version}"
            error.name(f"{self.what} ({version})", str(self.ref))
            if error.version is None and self.snapshot is not None:
                error.version = self.snapshot.version
            raise

    def _dispatch(self, stack: ExitStack) -> Commit | None:
        self.transaction.check_fence(self.snapshot, self.spec)
        if self.frame is not None:
            refuse_twins(self.frame.columns)
            fixed = not self.is_new and not (isinstance(self.spec, WriteSpec) and self.spec.redefine)
            if fixed and holds(self.frame.schema, "void"):
                self.frame = taking_types(self.frame, self.target_schema())
        if isinstance(self.spec, MergeSpec | DeleteInsertSpec) and other_implementation(self.spark) is None:
            # They read their source more than once, and it may return other rows each time. So
            # Spark materializes it.
            self.frame = stack.enter_context(kept(self.rows()))
        if not isinstance(self.spec, DeleteSpec | UpdateSpec) and self.spec.within is not None:
            self.refuse_outside(self.rows(), self.spec.within)
        if (earlier := self.transaction.compared_with) is not None:
            return self._compared(earlier)
        alteration = self._evolution()
        if alteration is not None:  # Structs of the rows get the future fields, as NULL.
            self.grown = types_in([field for field in alteration.after.fields if field["name"] in alteration.grown])
            self.frame = structs_by_name(self.rows(), self.target_schema())
        # Spark enables the table feature of some types only in a new table (Delta 4.4:
        # DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT). A commit of this library adds it.
        if (
            alteration is not None
            and self.snapshot is not None
            and (alteration.rewrites or self.logs.lacks_feature(self.snapshot, alteration.after.fields))
        ):
            return self._anew(alteration)
        if self.taken is not None and not self.is_new:
            return self._instead(self.taken, alteration)
        match self.spec:
            case WriteSpec():
                return self._write(self.spec)
            case MergeSpec():
                return merge.merge(self, self.spec, self.create)
            case DeleteInsertSpec():
                return merge.delete_insert(self, self.spec, self.create)
            case DeleteSpec() | UpdateSpec():
                return self._change(self.spec)

    # -- a newer attempt of the same work

    def _instead(self, taken: TakenBack, alteration: Alteration | None) -> Commit:
        """Commit the write together with the rollback of an older attempt.

        Spark writes into a scratch copy, and one commit of this library adds its files.
        """
        assert self.snapshot is not None
        lake, snapshot = self.transaction.lake, self.snapshot
        if not taken.by_rows:
            return self._anew(alteration or self.form.evolved(snapshot, (), "fail"))
        assert isinstance(self.spec, WriteSpec), "an append"
        self.logs.refuse_copies(snapshot)
        frame, _ = self.fitted(self.rows(), self.spec.schema_mode)
        definition: Any = self.form.definition(snapshot) if alteration is None else alteration.after
        frame = self.checked(frame, snapshot.partition_columns)
        with filled(self.access, lake, self.ref, definition, frame, sort_by=self.spec.sort_by) as copy:
            files = copy.files()
            rows = (counted_rows(files), 0, counted_rows(taken.files))
            changed = None if alteration is None or not alteration.changed else definition
            return self.transaction.commit(
                snapshot, NewCommit(self.spec, changed, files, taken.files, rows, "spark", TAKEN_BACK)
            )

    def _compared(self, earlier: CommitRecord) -> Commit:
        """Return an older attempt's commit, if it added the same rows.

        Raises CommitConflict if it did not.
        """
        assert self.snapshot is not None
        rows, _ = self.fitted(self.rows(), "fail")
        added = self.access.read(self.transaction.lake.snapshot(self.ref, earlier.version))
        if earlier.version:
            added = added.exceptAll(self.access.read(self.transaction.lake.snapshot(self.ref, earlier.version - 1)))
        rows = rows.select(*[quote(name) for name in added.columns])
        if not (rows.exceptAll(added).isEmpty() and added.exceptAll(rows).isEmpty()):
            self.transaction.refuse_other_rows(earlier, self.snapshot)
        return earlier.as_commit(self.ref).with_(replayed=True)

    # -- whole rows

    def _write(self, spec: WriteSpec) -> Commit | None:
        if self.snapshot is None or self.is_new:
            return self.create(self.rows(), spec)
        if decisions.leaves_table(spec.mode, self.snapshot):
            return self.transaction.nothing(self.snapshot, decisions.LEFT_AS_IT_IS)
        if spec.mode == "overwrite":
            return self._overwrite(self.rows(), spec)
        decisions.refuse_other_partitions(self.snapshot, spec.partition_by)
        decisions.refuse_other_clustering(self.snapshot, spec.cluster_by)
        frame, new = self.fitted(self.rows(), spec.schema_mode)
        options = {"mergeSchema": "true"} if new or self.grown else {}
        if spec.mode in ("append", "safeappend"):
            return self.save(frame, "append", options, self.snapshot.partition_columns, spec)
        if spec.predicate is not None:
            options["replaceWhere"] = to_spark(without_between(spec.predicate, spec.dialect), spec.dialect)
            try:
                return self.save(frame, "overwrite", options, self.snapshot.partition_columns, spec)
            except Exception as error:
                if condition_of(error, "DELTA_REPLACE_WHERE_MISMATCH"):
                    self.refuse_outside(frame, spec.predicate)
                    # Spark raises the same condition for a row that breaks a constraint.
                    reasons = ("DELTA_VIOLATE_CONSTRAINT", "DELTA_REPLACE_WHERE_MISMATCH")
                    reason = next(filter(None, (message_of(error, each) for each in reasons)), "")
                    raise SchemaMismatch(f"a row breaks a constraint: {reason}") from error
                raise
        columns = self.snapshot.columns_to_replace()
        options["partitionOverwriteMode"] = "dynamic"
        return self.save(frame, "overwrite", options, columns, spec)

    def _evolution(self) -> Alteration | None:
        """Return the change of the table's columns by schema evolution; None if there is none."""
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

    def _anew(self, alteration: Alteration) -> Commit:
        """Rewrite the table: columns are removed, or change their type, together with the rows.

        Spark writes to a copy in the new form, and one commit replaces the table's files by its
        files.
        """
        assert self.snapshot is not None
        lake, snapshot = self.transaction.lake, self.snapshot
        self.logs.refuse_copies(snapshot)
        # The copy's files become the table's without their deletion vectors.
        spec: RowSpec = replace(self.spec, app=None, merge_mode="copy_on_write")
        if not isinstance(spec, DeleteSpec | UpdateSpec):
            spec = replace(spec, schema_mode="fail")
        if isinstance(spec, WriteSpec):
            spec = replace(spec, mode="append" if spec.mode == "safeappend" else spec.mode, read_version=None)
        with scratch(self.access, lake, snapshot, alteration) as copy:
            inner = Transaction(lake, copy.ref)
            inner.mode, inner.engine = self.spec.mode, "spark"
            with scratch_commits():
                done = Attempt(self.access, spec, self.frame, inner, lake.snapshot(copy.ref)).run()
            rows = (done.rows_inserted, done.rows_updated, done.rows_deleted)
            definition = alteration.after if alteration.changed else None
            reason = REWRITTEN if alteration.changed else TAKEN_BACK
            new = NewCommit(self.spec, definition, copy.files(), snapshot.files(), rows, "spark", reason)
            return self.transaction.commit(snapshot, new)

    def _overwrite(self, frame: DataFrame, spec: WriteSpec) -> Commit | None:
        assert self.snapshot is not None
        clustered = decisions.clustered_by(self.snapshot)
        keeps = spec.cluster_by is None and not spec.redefine and not spec.partition_by
        cluster_by = clustered if keeps else spec.cluster_by or ()
        # Spark's own overwrite of a table ignores properties.
        changed = {k: v for k, v in spec.table_properties.items() if self.snapshot.properties.get(k) != v}
        by_spark = self.logs.only_spark(self.snapshot) or self.logs.special_properties(changed)
        redefined = spec.redefine or changed or spec.description not in (None, self.snapshot.description)
        stays = decisions.same_names(cluster_by, clustered) and not redefined
        keep = self.snapshot.partition_columns if spec.partition_by is None else spec.partition_by
        if self.snapshot.computed() and not spec.redefine:
            frame = self.with_defaults(frame)
            options = create.rows_alone(self, frame, keep, stays=stays)
            return self.save(frame, "overwrite", options, keep, spec)
        if cluster_by or (redefined and by_spark):
            create.in_place_of(self, self._commented(frame, spec), spec, cluster_by, stays=stays)
            return None  # the commit is looked up
        needs_our_commit = (
            (self.logs.constrained_anew(self.snapshot, spec) and not self.logs.only_spark(self.snapshot))
            or self.logs.lacks_feature(self.snapshot, json.loads(frame.schema.json())["fields"])
            or oddly_named(frame.columns, {**self.snapshot.properties, **spec.table_properties})
        )
        if needs_our_commit or redefined or spec.constraints:
            return self._defined(frame, spec, self.snapshot)
        keep = check_new_table(frame.schema, keep)
        return self.save(self._commented(frame, spec), "overwrite", {"overwriteSchema": "true"}, keep, spec)

    def _defined(self, frame: DataFrame, spec: WriteSpec, snapshot: Snapshot | None) -> Commit:
        """Replace rows and definition of a table, including constraints, in one commit."""
        # Spark's REPLACE drops properties of a table at a location. So Spark writes the rows into
        # a scratch copy, and one commit adds its files with the definition.
        lake, partition_by = self.transaction.lake, tuple(spec.partition_by or ())
        if snapshot is not None:
            self.logs.refuse_copies(snapshot)
            if spec.partition_by is None and not spec.redefine:
                partition_by = snapshot.partition_columns
        partition_by = check_new_table(frame.schema, partition_by)
        frame = self._commented(frame, spec)
        fields = tuple({**field, "nullable": True} for field in json.loads(frame.schema.json())["fields"])
        definition = self.form.overwritten(spec, fields, partition_by, snapshot)
        reason = "rows and definition of the table in one commit"
        arriving, size = self.checked(frame, partition_by), file_size(self.properties)
        with filled(self.access, lake, self.ref, definition, arriving, sort_by=spec.sort_by, size=size) as copy:
            files, gone = copy.files(), () if snapshot is None else snapshot.files()
            rows = (counted_rows(files), 0, counted_rows(gone))
            new = NewCommit(spec, definition, files, gone, rows, "spark", reason, anew=True)
            return self.transaction.commit(snapshot, new)

    def create(self, frame: DataFrame, spec: WriteSpec | MergeSpec | DeleteInsertSpec) -> Commit | None:
        """Create the table, or replace one that an older attempt created."""
        if self.snapshot is not None:
            if isinstance(spec, WriteSpec):
                return self._overwrite(frame, replace(spec, mode="overwrite", predicate=None))
            as_write = WriteSpec("overwrite", within=spec.within, dialect=spec.dialect, **spec.layout)
            return self._overwrite(frame, as_write)
        partition_by, cluster_by = check_new_table(frame.schema, spec.partition_by or ()), spec.cluster_by or ()
        properties = spec.table_properties
        description = None
        if isinstance(spec, WriteSpec):
            if spec.predicate is not None:
                self.refuse_outside(frame, spec.predicate)
            needs_our_commit = (
                spec.constraints
                or oddly_named(frame.columns, properties)
                or (not self.logs.special_properties(properties) and not _NOT_TAKEN.isdisjoint(properties))
            )
            if needs_our_commit and not cluster_by:
                return self._defined(frame, spec, None)
            frame, description = self._commented(frame, spec), spec.description
        other = other_implementation(self.spark)
        if cluster_by and (other is not None or isinstance(spec, WriteSpec) and spec.constraints):
            what = f"{other}, which has none" if other is not None else "constraints: add them by ALTER TABLE"
            raise UnsupportedFeature(f"liquid clustering (cluster_by) of table {self.ref} together with {what}")
        plain = description is None and not cluster_by
        plain = plain and all(key.startswith("delta.") and key != TARGET_FILE_SIZE for key in properties)
        # Servers other than Apache Spark cannot create a table at a location by SQL. The table gets
        # no description there.
        if plain or other is not None:
            return self.save(frame, "error", properties, partition_by, spec)
        rows = self.arranged(self.checked(frame, partition_by), partition_by, spec.sort_by)
        create.new_table(self, rows, replace(Layout(**spec.layout), partition_by=partition_by), description)
        return None

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
            f.name: (f.metadata or {}) | ({"comment": comments[f.name.lower()]} if f.name.lower() in comments else {})
            for f in fields
        }
        return frame.select(*[F.col(quote(name)).alias(name, metadata=metadata[name]) for name in metadata])

    def _change(self, spec: DeleteSpec | UpdateSpec) -> Commit | None:
        """Delete or update the rows of a predicate, over the target and the source, if any."""
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
            with self.access.view(self.frame) as source:
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
