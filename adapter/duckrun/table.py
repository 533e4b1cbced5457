"""Table: one table of a session by Spark's method names; DeltaTable is the same class."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic import SkipValidation
from sqlglot import exp

from duckrun.change_set import ChangeSet
from duckrun.changes.changes import ChangeSpec
from duckrun.changes.own import OwnQuery, own_rows
from duckrun.changes.row_ids import with_row_ids
from duckrun.display.history_plot import CHANGE_TYPES, VersionSize, plot
from duckrun.display.notebook import facts_html
from duckrun.display.units import readable_bytes
from duckrun.errors import InvalidConfig, UnsupportedFeature, outcome_of
from duckrun.frame import Frame
from duckrun.merge_builder import DeltaMergeBuilder, expression_tree
from duckrun.moving.copies import clone_spec
from duckrun.sessions.schemas import columns_in, columns_of
from duckrun.sessions.tables import TableSession
from duckrun.statements.change_queries import feed_between
from duckrun.statements.run import change
from duckrun.statements.values import Delete, Update
from duckrun.table_builder import DeltaTableBuilder
from duckrun.values.attributes import NamesAttributes
from duckrun.values.changes import ChangeKind, OwnFunction
from duckrun.values.checked import checked
from duckrun.values.options import given, names_in
from duckrun.values.rows import Commit, ReadSpec
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import (
    AlterSpec,
    CheckpointSpec,
    CleanupLogSpec,
    ColumnSpec,
    ConvertSpec,
    MaintenanceResult,
    OptimizeSpec,
    PurgeSpec,
    RestoreSpec,
    SetProperties,
    VacuumSpec,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PARQUET = re.compile(r"parquet\.`((?:[^`]|``)+)`", re.IGNORECASE)


class Table(NamesAttributes):
    """One table of a session: its rows, its history and its changes.

    Each change returns its commit.

    Conditions and expressions are SQL text with DuckDB's meaning, on both engines.

    Example::

        orders = DeltaTable.forName(s, "sales.orders").alias("t")
        changes = s.sql("select 2 as id, 'kiwi' as item, 3.5 as price").alias("s")
        merge = orders.merge(changes, "t.id = s.id").whenMatchedUpdateAll()
        merge.whenNotMatchedInsertAll().execute()
    """

    _INSTEAD = "toDF() is the frame of its rows, with show(), collect(), toPandas() and pl()."

    def __init__(self, session: TableSession, ref: TableRef, alias: str | None = None) -> None:
        self.session = session
        self.ref = ref
        self.alias_name = alias

    @classmethod
    def forName(cls, session: TableSession, tableOrViewName: str) -> Table:
        """Return a table by ``name``, ``schema.name`` or ``lake.schema.name``.

        Raises:
            TableNotFound: No such table; the message has the nearest names.
        """
        name = given(tableOrViewName, str, "tableOrViewName", "forName()")
        return cls(session, _opened(session, "forName()").existing(name))

    @classmethod
    def forPath(cls, session: TableSession, path: str | os.PathLike[str]) -> Table:
        """Return the table in a folder, inside or outside a lake.

        Raises:
            TableNotFound: The folder holds no table.
        """
        folder = given(path, (str, os.PathLike), "path", "forPath()")
        return cls(session, _opened(session, "forPath()").existing(session.lakes.at(folder).ref))

    @classmethod
    def isDeltaTable(cls, session: TableSession, identifier: str | os.PathLike[str]) -> bool:
        """True if a folder holds a Delta table."""
        located = _opened(session, "isDeltaTable()").lakes.at(
            given(identifier, (str, os.PathLike), "identifier", "isDeltaTable()")
        )
        return located.lake.exists(located.ref) and not session.pins.hides(located.ref)

    @classmethod
    def create(cls, session: TableSession) -> DeltaTableBuilder[Table]:
        """Start a new table.

        Its execute() creates the empty table, or raises CommitConflict if it exists.

        Example::

            builder = DeltaTable.create(s).tableName("sales.orders")
            builder.addColumn("id", "BIGINT", nullable=False)
            orders = builder.execute()
        """
        return DeltaTableBuilder(_opened(session, "create()"), cls, "create", "error")

    @classmethod
    def createIfNotExists(cls, session: TableSession) -> DeltaTableBuilder[Table]:
        """Start a new table, as create(), but keep a table that exists."""
        return DeltaTableBuilder(_opened(session, "createIfNotExists()"), cls, "createIfNotExists", "ignore")

    @classmethod
    def replace(cls, session: TableSession) -> DeltaTableBuilder[Table]:
        """Start a table that replaces an existing one and continues its history.

        Raises:
            TableNotFound: By execute(), if there is no table to replace.
        """
        return DeltaTableBuilder(_opened(session, "replace()"), cls, "replace", "replace", must_exist=True)

    @classmethod
    def createOrReplace(cls, session: TableSession) -> DeltaTableBuilder[Table]:
        """Start a table that replaces an existing one, if any."""
        return DeltaTableBuilder(_opened(session, "createOrReplace()"), cls, "createOrReplace", "replace")

    @classmethod
    def convertToDelta(cls, session: TableSession, identifier: str, partitionSchema: Any | None = None) -> Table:
        """Convert a folder of Parquet files, ``parquet.`/a/folder```, into a table, as one commit.

        The files stay unchanged.

        Args:
            identifier: The folder, as ``parquet.`/a/folder```.
            partitionSchema: Columns of the folder's ``name=value`` levels: ``"day DATE, n INT"``,
                or a schema of pyarrow or PySpark.

        Raises:
            InvalidConfig: The partitions differ from those of the folder.
            CommitConflict: The folder already holds a table.
            StorageError: The folder holds other files.
        """
        match = _PARQUET.fullmatch(given(identifier, str, "identifier", "convertToDelta()"))
        if match is None:
            raise InvalidConfig(
                f"convertToDelta(): identifier is {identifier!r}; give a folder as parquet.`/a/folder`."
            )
        columns: list[ColumnSpec] = []
        if isinstance(partitionSchema, str):
            columns = columns_in(partitionSchema, "convertToDelta(): partitionSchema")
        elif partitionSchema is not None:
            columns = columns_of(session, partitionSchema, "convertToDelta(): partitionSchema")
        ref = _opened(session, "convertToDelta()").lakes.at(match[1].replace("``", "`")).ref
        session.execute(ref, ConvertSpec(tuple(columns), dialect="spark"))
        return cls(session, session.existing(ref))

    def __repr__(self) -> str:
        return f"Table({self.ref} at {self.ref.location})"

    def _repr_html_(self) -> str:
        detail = self.detail()
        facts = {
            "location": detail["location"],
            "version": detail["version"],
            "partitioned by": ", ".join(detail["partitionColumns"]) or "nothing",
            "files": detail["numFiles"],
            "size": readable_bytes(detail["sizeInBytes"]),
            "description": detail["description"],
        }
        return facts_html(str(self.ref), facts) + self.toDF(version=detail["version"])._repr_html_()

    def alias(self, aliasName: str) -> Table:
        """Return the same table under an alias for the condition and the clauses of a merge."""
        return Table(self.session, self.ref, given(aliasName, str, "aliasName", "alias()"))

    # -- reading

    @checked
    def snapshot(self, version: int | None = None, timestamp: str | None = None) -> Snapshot:
        """Return the table at a version, at a time (ISO 8601), or now.

        Raises:
            VersionNotReadable: The table has no such version or time.
            InvalidConfig: Both a version and a time are given.
        """
        at = ReadSpec(version=version, timestamp=timestamp)
        return self.session.lakes.snapshot(self.ref, at.version, at.timestamp)

    @checked
    def toDF(self, version: int | None = None, timestamp: str | None = None, *, row_ids: bool = False) -> Frame:
        """Return the rows at a version, at a time, or now. Lazy.

        Args:
            row_ids: Add ``_row_id`` and ``_row_commit_version``, the version at which a row came or
                last changed. The table must track rows.

        Raises:
            InvalidConfig: The table does not track rows.
        """
        spec = ReadSpec(version=version, timestamp=timestamp)
        if not row_ids:
            return self.session.scan(self.ref, spec)
        lake = self.session.lakes.of(self.ref)
        self.session.engine.reach(lake)
        snapshot = self.session.snapshot(self.ref, spec)
        rows = with_row_ids(lake.format, snapshot, self.session.engine)
        rows.reads = self.session.reading(snapshot, spec)
        return self.session.own(rows)

    @checked
    def changes(
        self,
        kind: SkipValidation[ChangeKind],  # Changes checks it, for SQL and dbt too
        from_version: int | None = None,
        to_version: int | None = None,
        *,
        from_timestamp: str | None = None,
        key: str | Sequence[str] = (),
        columns: str | Sequence[str] | None = None,
        predicate: str | None = None,
        commit_version: bool = False,
        table_id: str | None = None,
    ) -> ChangeSet:
        """Return the changes of rows in the versions after ``from_version``, up to ``to_version``.

        Lazy.

        Args:
            kind: ``append_only``, ``upsert``, ``min_delta`` or ``full_delta``.
            from_version: Last version before the changes; -1 starts at the beginning.
            key: Columns that identify a row.
            table_id: Id of the table that ``from_version`` belongs to, from an earlier answer or
                snapshot. A DuckLake's versions are never reused and need none.

        Raises:
            VersionNotReadable: The table was dropped and created again since, so that its id
                differs and its versions have other numbers.
        """
        spec = ChangeSpec(
            kind,
            from_version,
            to_version,
            from_timestamp,
            () if key is None else names_in([key], "key", "changes()"),
            None if columns is None else names_in([columns], "columns", "changes()"),
            predicate,
            commit_version,
            table_id=table_id,
        )
        return ChangeSet(self.session, self.ref, spec)

    def table_changes(self, start: int | str, end: int | str | None = None) -> Frame:
        """Return the format's own account of changes between two versions or times, both included.

        Lazy.

        A DuckLake table gives ``snapshot_id``, ``rowid`` and ``change_type``; every row of a
        rewritten file appears as updated. A Delta table gives its change feed. changes() are exact
        for both.

        Args:
            end: Last version or time; None is the newest.
        """
        return self._own("table_changes", start, end)

    def table_insertions(self, start: int | str, end: int | str | None = None) -> Frame:
        """Return the inserted rows of a DuckLake table, as DuckLake reports them. Lazy.

        Raises:
            UnsupportedFeature: The table is a Delta table.
        """
        return self._own("table_insertions", start, end)

    def table_deletions(self, start: int | str, end: int | str | None = None) -> Frame:
        """Return the deleted rows of a DuckLake table, as DuckLake reports them. Lazy.

        Raises:
            UnsupportedFeature: The table is a Delta table.
        """
        return self._own("table_deletions", start, end)

    def _own(self, function: OwnFunction, start: int | str, end: int | str | None) -> Frame:
        given(start, (int, str), "start", f"{function}()")
        if end is not None:
            given(end, (int, str), "end", f"{function}()")
        lake = self.session.lakes.of(self.ref)
        self.session.engine.reach(lake)
        if lake.format.transactions is None and function == "table_changes":
            return ChangeSet(self.session, self.ref, feed_between(start, end))
        return self.session.own(own_rows(lake.format, self.ref, OwnQuery(function, start, end), self.session.engine))

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the commits, newest first: version, timestamp, operation and more.

        The timestamp is in ms since 1970.
        """
        if limit is not None:
            given(limit, int, "limit", "history()")
            if limit < 0:
                raise InvalidConfig(
                    f"history() of table {self.ref}: limit is {limit}; give 0 or more, or None for all."
                )
        return self.session.lakes.of(self.ref).format.history(self.ref, limit)

    def detail(self) -> dict[str, Any]:
        """Return the fields of Spark's DESCRIBE DETAIL, such as id, location and sizeInBytes."""
        return self.session.lakes.of(self.ref).format.detail(self.ref)

    def plot_history(self, limit: int = 50, key: str | Sequence[str] = ()) -> Figure:
        """Plot rows, files, bytes and changed rows of the newest versions.

        Args:
            limit: Number of versions.
            key: Columns for an exact count of changed rows, by a change query. Without them the
                counts are those that the commits report.

        Raises:
            InvalidConfig: matplotlib is not installed, or the key is not unique.
        """
        return plot(str(self.ref), self._sizes(limit, names_in([key], "key", "plot_history()")))

    def _sizes(self, limit: int, key: Sequence[str] = ()) -> list[VersionSize]:
        """Return the newest versions in the log, oldest first."""
        sizes = []
        versions = [entry["version"] for entry in reversed(self.history(limit))]
        changed = self._changed_rows(versions, key)
        for version in versions:
            snapshot = self.snapshot(version=version)
            files, rows = snapshot.files(), self.session.lakes.of(self.ref).format.row_count(snapshot)
            rows = self.toDF(version=version).count() if rows is None else rows
            sizes.append(VersionSize(version, rows, len(files), sum(file.size for file in files), changed[version]))
        return sizes

    def _changed_rows(self, versions: Sequence[int], key: Sequence[str]) -> Mapping[int, Mapping[str, int]]:
        """Return the changed rows per version and change type; unlogged counts are left out."""
        if key and versions:
            changes = self.changes("full_delta", versions[0] - 1, versions[-1], key=list(key))
            counted: dict[int, Counter[str]] = {version: Counter() for version in versions}
            for row in changes.toArrow().select(["_commit_version", "_change_type"]).to_pylist():
                kind = str(row["_change_type"]).removesuffix("_postimage")
                if kind in CHANGE_TYPES:
                    counted[row["_commit_version"]][kind] += 1
            return counted
        records = {v: self.session.lakes.of(self.ref).format.record(self.ref, v) for v in versions}
        return {
            version: {
                kind: count for kind, count in zip(CHANGE_TYPES, record.rows if record else (), strict=False) if count
            }
            for version, record in records.items()
        }

    # -- changing rows

    def merge(self, source: Any, condition: str) -> DeltaMergeBuilder:
        """Start a merge of a Frame or any other tabular value. Its execute() runs it.

        Args:
            source: Rows to merge.
            condition: Condition over both aliases, with an equality for each key.
        """
        return DeltaMergeBuilder(self.session, self.ref, self.alias_name, source, condition)

    def update(self, condition: str | None = None, set: Mapping[str, str] | None = None) -> Commit:
        """Set columns, by ``{column: expression}``, in the rows that satisfy a condition.

        Raises:
            InvalidConfig: ``set`` is empty, or an expression is invalid.
            SchemaMismatch: A column is missing or has another type.
        """
        if not set:
            raise InvalidConfig(f"update() of table {self.ref} needs set, a mapping of column to expression.")
        names_in(list(given(set, Mapping, "set", "update()")), "set", "update()")
        assigned = tuple((column, self._tree(value)) for column, value in set.items())
        where = None if condition is None else self._tree(condition)
        return change(self.session, self.ref, Update((), self.alias_name or self.ref.name, where, assigned=assigned))

    def delete(self, condition: str | None = None) -> Commit:
        """Delete the rows that satisfy a condition; without one, all rows."""
        where = None if condition is None else self._tree(condition)
        return change(self.session, self.ref, Delete((), self.alias_name or self.ref.name, where))

    def _tree(self, expression: str) -> exp.Expr:
        return expression_tree(expression, f"Table {self.ref}")

    # -- keeping it in order

    def optimize(self) -> DeltaOptimizeBuilder:
        """Start a compaction. Its executeCompaction() or executeZOrderBy() runs it."""
        return DeltaOptimizeBuilder(self)

    def vacuum(self, retentionHours: float | None = None) -> MaintenanceResult:
        """Remove the files that no version within the retention uses.

        Older versions become unreadable.

        Args:
            retentionHours: Age of the versions to keep; None is the table's own retention, a week.

        Returns:
            The result, with the removed files in ``removed``.

        Raises:
            InvalidConfig: ``retentionHours`` is less than the table's retention. VacuumSpec can
                allow it.
            ReadOnlyLake: The lake is open read-only.
        """
        if retentionHours is not None:
            given(retentionHours, (int, float), "retentionHours", "vacuum()")
        return self.session.execute(self.ref, VacuumSpec(retentionHours))

    def purge(self) -> MaintenanceResult:
        """Rewrite the files that have deletion vectors, without their deleted rows.

        vacuum() removes the old files once no version within the retention uses them.

        Raises:
            ReadOnlyLake: The lake is open read-only.
        """
        return self.session.execute(self.ref, PurgeSpec())

    def flush(self) -> MaintenanceResult:
        """Write the inlined rows of a DuckLake table from the catalog into files.

        Raises:
            UnsupportedFeature: The table is a Delta table.
        """
        return self.session.upkeep.flush(self.ref)

    def merge_files(self) -> MaintenanceResult:
        """Merge adjacent small files of a DuckLake table; every version stays readable.

        Raises:
            UnsupportedFeature: The table is a Delta table.
        """
        return self.session.upkeep.merge_files(self.ref)

    def rewrite_files(self, delete_threshold: float | None = None) -> MaintenanceResult:
        """Rewrite a DuckLake table's files with more than a share of deleted rows.

        Raises:
            UnsupportedFeature: The table is a Delta table.
        """
        return self.session.upkeep.rewrite_files(self.ref, delete_threshold=delete_threshold)

    def checkpoint(self) -> MaintenanceResult:
        """Write a checkpoint of the newest version. Readers start from it.

        Raises:
            ReadOnlyLake: The lake is open read-only.
        """
        return self.session.execute(self.ref, CheckpointSpec())

    def cleanup_log(self) -> MaintenanceResult:
        """Remove checkpointed log entries older than ``delta.logRetentionDuration`` (30 days).

        Raises:
            ReadOnlyLake: The lake is open read-only.
        """
        return self.session.execute(self.ref, CleanupLogSpec())

    def restoreToVersion(self, version: int) -> Commit:
        """Restore the table's state at a version, as a new commit.

        Raises:
            VersionNotReadable: The table has no such version.
            ReadOnlyLake: The lake is open read-only.
        """
        return self.session.execute(self.ref, RestoreSpec(version=given(version, int, "version", "restoreToVersion()")))

    def restoreToTimestamp(self, timestamp: str) -> Commit:
        """Restore the table's state at a time (ISO 8601), as a new commit.

        Raises:
            VersionNotReadable: The table has no version of that time.
            ReadOnlyLake: The lake is open read-only.
        """
        moment = given(timestamp, str, "timestamp", "restoreToTimestamp()")
        return self.session.execute(self.ref, RestoreSpec(timestamp=moment))

    def addFeatureSupport(self, featureName: str) -> Commit:
        """Allow a table feature, by protocol name (``deletionVectors``), without enabling it.

        Raises:
            UnsupportedFeature: DuckDB's writes would not maintain the feature.
            InvalidConfig: Delta has no such feature (on Spark).
        """
        name = given(featureName, str, "featureName", "addFeatureSupport()")
        return self._set({f"delta.feature.{name}": "supported"})

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> Commit:
        """Raise the protocol versions that readers and writers must support. They never go down.

        Raises:
            InvalidConfig: Delta has no such versions.
            UnsupportedFeature: DuckDB could no longer write the table.
        """
        reader = given(readerVersion, int, "readerVersion", "upgradeTableProtocol()")
        writer = given(writerVersion, int, "writerVersion", "upgradeTableProtocol()")
        return self._set({"delta.minReaderVersion": str(reader), "delta.minWriterVersion": str(writer)})

    def _set(self, properties: Mapping[str, str]) -> Commit:
        return self.session.execute(self.ref, AlterSpec((SetProperties(properties),)))

    def clone(
        self, target: str, isShallow: bool = False, replace: bool = False, properties: Mapping[str, str] | None = None
    ) -> Table:
        """Copy the table, as one commit, into files and a history of its own.

        The copy has the rows, columns with comments, partitions, constraints and properties.

        Args:
            isShallow: Not supported.
            replace: Replace an existing target.
            properties: Table properties that override those of the table.

        Raises:
            CommitConflict: The target exists and ``replace`` is False.
            UnsupportedFeature: ``isShallow`` is set, or the copy would lose generated columns,
                identity, defaults, clustering, column mapping or row tracking.
        """
        return self._clone(ReadSpec(), target, "clone()", isShallow, replace, properties)

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Copy the table at a version; see clone().

        Raises:
            VersionNotReadable: The table has no such version.
        """
        at = ReadSpec(version=given(version, int, "version", "cloneAtVersion()"))
        return self._clone(at, target, "cloneAtVersion()", isShallow, replace, properties)

    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Copy the table at a time (ISO 8601); see clone().

        Raises:
            VersionNotReadable: The table has no version of that time.
        """
        at = ReadSpec(timestamp=given(timestamp, str, "timestamp", "cloneAtTimestamp()"))
        return self._clone(at, target, "cloneAtTimestamp()", isShallow, replace, properties)

    @outcome_of("clone")
    def _clone(
        self, at: ReadSpec, target: str, method: str, shallow: bool, replace: bool, properties: Mapping[str, str] | None
    ) -> Table:
        given(target, str, "target", method)
        if shallow:
            why = (
                "a vacuum of this table would remove the files of such a clone. Leave it out for a copy "
                "of the rows, or use Spark's own CREATE TABLE … SHALLOW CLONE."
            )
            if self.session.lakes.of(self.ref).format.transactions is not None:
                why = (
                    "a file of a DuckLake is one table's. Leave it out for a copy of the rows, or make a "
                    "view of the table."
                )
            raise UnsupportedFeature(f"Table {self.ref}: {method} with isShallow=True is not supported: {why}")
        source = self.snapshot(at.version, at.timestamp)
        spec = clone_spec(source, given(dict(properties or {}), dict, "properties", method), replace=replace)
        clone = self.session.lakes.locate(target).ref
        self.session.execute(clone, spec, self.toDF(version=source.version))
        return Table(self.session, self.session.existing(clone))

    def generate(self, mode: str) -> None:
        """Raise UnsupportedFeature: manifests are not supported."""
        raise UnsupportedFeature(
            f"Table {self.ref}: generate({mode!r}) writes manifests for engines that cannot read "
            "Delta; it is not supported."
        )


class DeltaOptimizeBuilder(NamesAttributes):
    """Builder of table.optimize(). Only its two execute methods read or write."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._where: str | None = None

    def where(self, partitionFilter: str) -> Self:
        """Limit the compaction to the partitions that satisfy a condition."""
        self._where = given(partitionFilter, str, "partitionFilter", "where()")
        return self

    def executeCompaction(self) -> MaintenanceResult:
        """Compact into fewer, larger files with the same rows.

        The result has the counts of files.
        """
        return self._execute(())

    def executeZOrderBy(self, *cols: str | Sequence[str]) -> MaintenanceResult:
        """Compact, with near values of these columns in the same files.

        Args:
            cols: Names of columns, or lists of them.

        Raises:
            InvalidConfig: No column is given.
        """
        columns = names_in(cols, "cols", "executeZOrderBy()")
        if not columns:
            raise InvalidConfig(f"executeZOrderBy() of table {self._table.ref} needs at least one column.")
        return self._execute(columns)

    def _execute(self, columns: tuple[str, ...]) -> MaintenanceResult:
        return self._table.session.execute(self._table.ref, OptimizeSpec(self._where, columns))


def _opened(session: Any, method: str) -> TableSession:
    """Return the session. Raise InvalidConfig for another object, such as Spark's own session."""
    if isinstance(session, TableSession):
        return session
    raise InvalidConfig(f"{method}: session is a {type(session).__name__}; give that of duckrun.connect(…).")


DeltaTable = Table
