"""Table: one table of a session by Spark's own names, which is what DeltaTable is."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from sqlglot import exp

from duckrun.change_set import ChangeSet
from duckrun.changes.changes import ChangeSpec, with_row_ids
from duckrun.changes.own import OwnQuery, own_rows
from duckrun.clones import clone_spec
from duckrun.display.history_plot import CHANGE_TYPES, VersionSize, plot
from duckrun.display.notebook import facts_html
from duckrun.display.units import readable_bytes
from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.former import names_now_in
from duckrun.frame import Frame
from duckrun.merge_builder import DeltaMergeBuilder, expression_tree
from duckrun.schemas import columns_in, columns_of
from duckrun.statements.run import change
from duckrun.statements.values import Delete, Update
from duckrun.table_builder import DeltaTableBuilder
from duckrun.values.changes import ChangeKind, OwnFunction
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

    from duckrun.session import Session

_PARQUET = re.compile(r"parquet\.`((?:[^`]|``)+)`", re.IGNORECASE)


class Table:
    """One table of a session: its rows, its past, and its changes, each of which is one commit and returns it.

    Conditions and expressions are SQL text with DuckDB's meaning, on both engines.

    Example::

        orders = DeltaTable.forName(s, "sales.orders").alias("t")
        changes = s.sql("select 2 as id, 'kiwi' as item, 3.5 as price").alias("s")
        orders.merge(changes, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    """

    def __init__(self, session: Session, ref: TableRef, alias: str | None = None) -> None:
        self.session = session
        self.ref = ref
        self.alias_name = alias

    @classmethod
    def forName(cls, session: Session, tableOrViewName: str) -> Table:
        """A table by ``name``, ``schema.name`` or ``lake.schema.name``. Raises TableNotFound with the nearest names."""
        return _opened(session, "forName()").table(given(tableOrViewName, str, "tableOrViewName", "forName()"))

    @classmethod
    def forPath(cls, session: Session, path: str | os.PathLike[str]) -> Table:
        """The table in a folder, which need not lie in a lake. Raises TableNotFound."""
        folder = given(path, (str, os.PathLike), "path", "forPath()")
        return _opened(session, "forPath()").table(session.lakes.at(folder).ref)

    @classmethod
    def isDeltaTable(cls, session: Session, identifier: str | os.PathLike[str]) -> bool:
        """True if a folder holds a Delta table."""
        found = _opened(session, "isDeltaTable()").lakes.at(
            given(identifier, (str, os.PathLike), "identifier", "isDeltaTable()")
        )
        return found.lake.exists(found.ref) and not session.pins.hides(found.ref)

    @classmethod
    def create(cls, session: Session) -> DeltaTableBuilder:
        """Start a new table; its execute() makes it, with no rows. One that is there already is a CommitConflict. Example::

        orders = DeltaTable.create(s).tableName("sales.orders").addColumn("id", "BIGINT", nullable=False).execute()
        """
        return DeltaTableBuilder(_opened(session, "create()"), "create", "error")

    @classmethod
    def createIfNotExists(cls, session: Session) -> DeltaTableBuilder:
        """The same; a table that is there already stays as it is."""
        return DeltaTableBuilder(_opened(session, "createIfNotExists()"), "createIfNotExists", "ignore")

    @classmethod
    def replace(cls, session: Session) -> DeltaTableBuilder:
        """Start a table that takes the place of the one that is there, with its history; one must be, else TableNotFound."""
        return DeltaTableBuilder(_opened(session, "replace()"), "replace", "replace", must_exist=True)

    @classmethod
    def createOrReplace(cls, session: Session) -> DeltaTableBuilder:
        """The same, whether a table is there or not."""
        return DeltaTableBuilder(_opened(session, "createOrReplace()"), "createOrReplace", "replace")

    @classmethod
    def convertToDelta(cls, session: Session, identifier: str, partitionSchema: Any | None = None) -> Table:
        """Make a table of a folder of Parquet files, ``parquet.`/a/folder```, which stay as they are, as one commit.

        ``partitionSchema`` has the columns that the folder's ``name=value`` levels hold: ``"day DATE, n INT"``, or a schema of
        pyarrow or PySpark. Raises InvalidConfig for partitions that are not the folder's, CommitConflict where a table is there,
        StorageError for other files.
        """
        found = _PARQUET.fullmatch(given(identifier, str, "identifier", "convertToDelta()"))
        if found is None:
            raise InvalidConfig(
                f"convertToDelta(): identifier is {identifier!r}; give a folder as parquet.`/a/folder`."
            )
        columns: list[ColumnSpec] = []
        if isinstance(partitionSchema, str):
            columns = columns_in(partitionSchema, "convertToDelta(): partitionSchema")
        elif partitionSchema is not None:
            columns = columns_of(session, partitionSchema, "convertToDelta(): partitionSchema")
        ref = _opened(session, "convertToDelta()").lakes.at(found[1].replace("``", "`")).ref
        session.execute(ref, ConvertSpec(tuple(columns), dialect="spark"))
        return session.table(ref)

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
        """The same table, known by a name in the condition and the clauses of a merge."""
        return Table(self.session, self.ref, given(aliasName, str, "aliasName", "alias()"))

    # -- reading

    def snapshot(self, version: int | None = None, timestamp: str | None = None) -> Snapshot:
        """The table at a version, at a time (ISO 8601), or now. Raises VersionNotReadable, InvalidConfig for both."""
        _refuse_moment(version, timestamp, "snapshot()")
        at = ReadSpec(version=version, timestamp=timestamp)
        return self.session.lakes.snapshot(self.ref, at.version, at.timestamp)

    def toDF(self, version: int | None = None, timestamp: str | None = None, *, row_ids: bool = False) -> Frame:
        """The rows at a version, at a time, or now: lazy.

        ``row_ids`` adds ``_row_id`` and ``_row_commit_version`` (the version at which the row came or last changed) of a table that
        tracks rows; InvalidConfig for any other.
        """
        _refuse_moment(version, timestamp, "toDF()")
        spec = ReadSpec(version=version, timestamp=timestamp)
        if not row_ids:
            return self.session.scan(self.ref, spec)
        lake = self.session.lakes.of(self.ref)
        self.session.engine.reach(lake)
        snapshot = self.session.snapshot(self.ref, spec)
        rows = with_row_ids(lake.format, snapshot, self.session.engine)
        rows.reads = self.session.reading(snapshot, spec)
        return self.session.own(rows)

    def changes(
        self,
        kind: ChangeKind,
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
        """What happened to the rows in the versions after ``from_version`` (-1: from the beginning), up to ``to_version``: lazy.

        ``kind`` is append_only, upsert, min_delta or full_delta; ``key`` are the columns by which a row is the same one. ``table_id`` is the id
        of the table that ``from_version`` was read of (``table_id`` of the answer or of a snapshot): VersionNotReadable is raised if it was
        dropped and created again since, so that its versions have other numbers. A DuckLake's versions never do.
        """
        for name, value, kinds in (
            ("from_version", from_version, int),
            ("to_version", to_version, (int, str)),
            ("from_timestamp", from_timestamp, str),
            ("predicate", predicate, str),
            ("commit_version", commit_version, bool),
            ("table_id", table_id, str),
        ):
            if value is not None:
                given(value, kinds, name, "changes()")
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
        """What the format itself says changed from a version, or a time, to another one (None: the newest), both included: lazy.

        Of a DuckLake table as DuckLake gives it, with ``snapshot_id``, ``rowid`` and ``change_type``: every row of a file that was written anew
        stands there as updated. Of a Delta table its change feed. changes() are exact for both.
        """
        return self._own("table_changes", start, end)

    def table_insertions(self, start: int | str, end: int | str | None = None) -> Frame:
        """The rows that came to a DuckLake table, as DuckLake gives them: lazy. Raises UnsupportedFeature for a Delta table."""
        return self._own("table_insertions", start, end)

    def table_deletions(self, start: int | str, end: int | str | None = None) -> Frame:
        """The rows that left a DuckLake table, as DuckLake gives them: lazy. Raises UnsupportedFeature for a Delta table."""
        return self._own("table_deletions", start, end)

    def _own(self, function: OwnFunction, start: int | str, end: int | str | None) -> Frame:
        given(start, (int, str), "start", f"{function}()")
        if end is not None:
            given(end, (int, str), "end", f"{function}()")
        lake = self.session.lakes.of(self.ref)
        self.session.engine.reach(lake)
        if lake.format.state_reader is None and function == "table_changes":
            timed = isinstance(start, str)
            spec = ChangeSpec("feed", None, end, start) if timed else ChangeSpec("feed", int(start) - 1, end)  # type: ignore[arg-type]
            return ChangeSet(self.session, self.ref, spec)
        return self.session.own(own_rows(lake.format, self.ref, OwnQuery(function, start, end), self.session.engine))

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The commits, newest first: version, timestamp (ms since 1970), operation, operationParameters, ..."""
        if limit is not None:
            given(limit, int, "limit", "history()")
            if limit < 0:
                raise InvalidConfig(
                    f"history() of table {self.ref}: limit is {limit}; give 0 or more, or None for all."
                )
        return self.session.lakes.of(self.ref).format.history(self.ref, limit)

    def detail(self) -> dict[str, Any]:
        """What Spark's DESCRIBE DETAIL gives: id, location, partitionColumns, numFiles, sizeInBytes, ..."""
        return self.session.lakes.of(self.ref).format.detail(self.ref)

    def plot_history(self, limit: int = 50, key: str | Sequence[str] = ()) -> Figure:
        """A figure of rows, files and bytes by version, and of the rows that each changed by change type, over the newest ``limit``
        versions. With a ``key`` these are counted exactly, by a change query; without one they are what the commits say of themselves.

        Raises InvalidConfig where matplotlib is not installed, and for a key that is not unique.
        """
        return plot(str(self.ref), self._sizes(limit, names_in([key], "key", "plot_history()")))

    def _sizes(self, limit: int, key: Sequence[str] = ()) -> list[VersionSize]:
        """The newest versions that the log holds, oldest first. Rows are counted by the log, or the catalog, where it knows
        them, else by a query.
        """
        found = []
        versions = [entry["version"] for entry in reversed(self.history(limit))]
        changed = self._changed_rows(versions, key)
        for version in versions:
            snapshot = self.snapshot(version=version)
            files, rows = snapshot.files(), self.session.lakes.of(self.ref).format.row_count(snapshot)
            rows = self.toDF(version=version).count() if rows is None else rows
            found.append(VersionSize(version, rows, len(files), sum(file.size for file in files), changed[version]))
        return found

    def _changed_rows(self, versions: Sequence[int], key: Sequence[str]) -> dict[int, dict[str, int]]:
        """How many rows each version changed, by change type; what its log does not say is left out."""
        if key and versions:
            changes = self.changes("full_delta", versions[0] - 1, versions[-1], key=list(key))
            counted: dict[int, dict[str, int]] = {version: {} for version in versions}
            for row in changes.toArrow().select(["_commit_version", "_change_type"]).to_pylist():
                kind = str(row["_change_type"]).removesuffix("_postimage")
                if kind in CHANGE_TYPES:
                    of_version = counted[row["_commit_version"]]
                    of_version[kind] = of_version.get(kind, 0) + 1
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
        """Start a merge of a Frame or any other tabular value; its execute() runs it."""
        return DeltaMergeBuilder(self, source, condition)

    def update(self, condition: str | None = None, set: Mapping[str, str] | None = None) -> Commit:
        """Set columns, by ``{column: expression}``, where the condition is true. Raises InvalidConfig, SchemaMismatch."""
        if not set:
            raise InvalidConfig(f"update() of table {self.ref} needs set, a mapping of column to expression.")
        names_in(list(given(set, Mapping, "set", "update()")), "set", "update()")
        assigned = tuple((column, self._tree(value)) for column, value in set.items())
        where = None if condition is None else self._tree(condition)
        return change(self.session, self.ref, Update((), self.alias_name or self.ref.name, assigned, where))

    def delete(self, condition: str | None = None) -> Commit:
        """Delete the rows for which the condition is true; all of them where there is none."""
        where = None if condition is None else self._tree(condition)
        return change(self.session, self.ref, Delete((), self.alias_name or self.ref.name, where))

    def _tree(self, expression: str) -> exp.Expr:
        return expression_tree(expression, f"Table {self.ref}")

    # -- keeping it in order

    def optimize(self) -> DeltaOptimizeBuilder:
        """Start a compaction; its executeCompaction() or executeZOrderBy() runs it."""
        return DeltaOptimizeBuilder(self)

    def vacuum(self, retentionHours: float | None = None) -> MaintenanceResult:
        """Remove the files that no version younger than ``retentionHours`` uses (None: the table's own retention, a week).

        The result's ``removed`` names them; versions older than that can no longer be read. Raises InvalidConfig for less
        than the table's retention, which VacuumSpec can lift, and ReadOnlyLake.
        """
        if retentionHours is not None:
            given(retentionHours, (int, float), "retentionHours", "vacuum()")
        return self.session.execute(self.ref, VacuumSpec(retentionHours))

    def purge(self) -> MaintenanceResult:
        """Write anew the files of which rows are only marked as deleted (deletion vectors), with the rows that are left.

        vacuum() removes the old files once no version within the retention has them. Raises ReadOnlyLake.
        """
        return self.session.execute(self.ref, PurgeSpec())

    def flush(self) -> MaintenanceResult:
        """Write the rows of a DuckLake table that lie in the catalog into files. Raises UnsupportedFeature for a Delta table."""
        return self.session.flush(self.ref)

    def merge_files(self) -> MaintenanceResult:
        """Make fewer, larger files of a DuckLake table's adjacent small ones; every version stays readable. Raises UnsupportedFeature for a Delta table."""
        return self.session.merge_files(self.ref)

    def rewrite_files(self, delete_threshold: float | None = None) -> MaintenanceResult:
        """Write anew a DuckLake table's files of which more than a share of the rows is deleted. Raises UnsupportedFeature for a Delta table."""
        return self.session.rewrite_files(self.ref, delete_threshold=delete_threshold)

    def checkpoint(self) -> MaintenanceResult:
        """Write a checkpoint of the newest version, from which readers start. Raises ReadOnlyLake."""
        return self.session.execute(self.ref, CheckpointSpec())

    def cleanup_log(self) -> MaintenanceResult:
        """Remove entries of the log older than ``delta.logRetentionDuration`` (30 days) that a checkpoint covers.

        Raises ReadOnlyLake.
        """
        return self.session.execute(self.ref, CleanupLogSpec())

    def restoreToVersion(self, version: int) -> Commit:
        """Make the table what it was at a version, as a new commit. Raises VersionNotReadable, ReadOnlyLake."""
        return self.session.execute(self.ref, RestoreSpec(version=given(version, int, "version", "restoreToVersion()")))

    def restoreToTimestamp(self, timestamp: str) -> Commit:
        """Make the table what it was at a time (ISO 8601), as a new commit. Raises VersionNotReadable, ReadOnlyLake."""
        moment = given(timestamp, str, "timestamp", "restoreToTimestamp()")
        return self.session.execute(self.ref, RestoreSpec(timestamp=moment))

    def addFeatureSupport(self, featureName: str) -> Commit:
        """Let writers use a table feature, by the protocol's name for it (``deletionVectors``); none goes on by that.

        Raises UnsupportedFeature on DuckDB for a feature that its writes would not keep; on Spark InvalidConfig for one that Delta
        does not have.
        """
        name = given(featureName, str, "featureName", "addFeatureSupport()")
        return self._set({f"delta.feature.{name}": "supported"})

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> Commit:
        """Ask of readers and writers to know these versions of the protocol, which never go down.

        Raises InvalidConfig for versions that Delta does not have, UnsupportedFeature where DuckDB could not write the table then.
        """
        reader = given(readerVersion, int, "readerVersion", "upgradeTableProtocol()")
        writer = given(writerVersion, int, "writerVersion", "upgradeTableProtocol()")
        return self._set({"delta.minReaderVersion": str(reader), "delta.minWriterVersion": str(writer)})

    def _set(self, properties: Mapping[str, str]) -> Commit:
        return self.session.execute(self.ref, AlterSpec((SetProperties(properties),)))

    def clone(
        self, target: str, isShallow: bool = False, replace: bool = False, properties: Mapping[str, str] | None = None
    ) -> Table:
        """A copy of the table: its rows, columns with comments, partitions, constraints and properties, in files and with a
        history of its own, as one commit. ``replace`` puts it in the place of a table that is there.

        Raises CommitConflict where a table is there without ``replace``, UnsupportedFeature with ``isShallow`` and for what the
        copy would lose (generated columns, identity, defaults, clustering, column mapping, row tracking).
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
        """A copy of the table as it was at a version; see clone(). Raises VersionNotReadable too."""
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
        """A copy of the table as it was at a time (ISO 8601); see clone(). Raises VersionNotReadable too."""
        at = ReadSpec(timestamp=given(timestamp, str, "timestamp", "cloneAtTimestamp()"))
        return self._clone(at, target, "cloneAtTimestamp()", isShallow, replace, properties)

    def _clone(
        self, at: ReadSpec, target: str, asked: str, shallow: bool, replace: bool, properties: Mapping[str, str] | None
    ) -> Table:
        given(target, str, "target", asked)
        if shallow:
            why = "a vacuum of this table would remove the files of such a clone. Leave it out for a copy of the rows, or use Spark's own CREATE TABLE … SHALLOW CLONE."
            if self.session.lakes.of(self.ref).format.whole is not None:
                why = "a file of a DuckLake is one table's. Leave it out for a copy of the rows, or make a view of the table."
            raise UnsupportedFeature(f"Table {self.ref}: {asked} with isShallow=True is not supported: {why}")
        source = self.snapshot(at.version, at.timestamp)
        spec = clone_spec(source, given(dict(properties or {}), dict, "properties", asked), replace=replace)
        made = self.session.lakes.locate(target).ref
        self.session.execute(made, spec, self.toDF(version=source.version))
        return self.session.table(made)

    def generate(self, mode: str) -> None:
        """Not supported: raises UnsupportedFeature."""
        raise UnsupportedFeature(
            f"Table {self.ref}: generate({mode!r}) writes manifests for engines that cannot read Delta; it is not supported."
        )


class DeltaOptimizeBuilder:
    """What ``table.optimize()`` gives. Nothing is read or written before one of its two execute methods."""

    def __init__(self, table: Table, where: str | None = None) -> None:
        self._table = table
        self._where = where

    def where(self, partitionFilter: str) -> Self:
        """Only the partitions for which this is true."""
        self._where = given(partitionFilter, str, "partitionFilter", "where()")
        return self

    def executeCompaction(self) -> MaintenanceResult:
        """Fewer, larger files with the same rows. The result says how many there were and are, came and went."""
        return self._execute(())

    def executeZOrderBy(self, *cols: str | Sequence[str]) -> MaintenanceResult:
        """The same, with rows that are near in these columns in the same files: names, or a list of them. Raises InvalidConfig for
        no column.
        """
        columns = names_in(cols, "cols", "executeZOrderBy()")
        if not columns:
            raise InvalidConfig(f"executeZOrderBy() of table {self._table.ref} needs at least one column.")
        return self._execute(columns)

    def _execute(self, columns: tuple[str, ...]) -> MaintenanceResult:
        return self._table.session.execute(self._table.ref, OptimizeSpec(self._where, columns))


def _opened(session: Any, method: str) -> Session:
    """The session that was given. Raises InvalidConfig for anything else, such as Spark's own."""
    from duckrun.session import Session

    if isinstance(session, Session):
        return session
    raise InvalidConfig(f"{method}: session is a {type(session).__name__}; give that of duckrun.connect(…).")


def _refuse_moment(version: Any, timestamp: Any, method: str) -> None:
    """Raise InvalidConfig for a version that is no number, or a time that is no text."""
    if version is not None:
        given(version, int, "version", method)
    if timestamp is not None:
        given(timestamp, str, "timestamp", method)


DeltaTable = Table

if not TYPE_CHECKING:
    __getattr__ = names_now_in("duckrun", old=__name__)
