"""connect() and Session: the lake in a notebook, a script or a Python asset."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from duckrun.branches import diff as diffs, publish as publishes, registry
from duckrun.branches.lake import BranchLake, open_branch
from duckrun.change_set import ChangeSet
from duckrun.errors import InvalidConfig
from duckrun.lake.lake import Lake
from duckrun.moving.moving import Moving
from duckrun.reader import DataFrameReader
from duckrun.run.memory import Arbiter
from duckrun.run.pins import Pins
from duckrun.sessions.branches import row_access
from duckrun.sessions.tables import TableSession
from duckrun.table import Table
from duckrun.values.branches import Branch, BranchDiff, BranchList, Published, TableDiff, check_branch_name
from duckrun.values.checked import checked
from duckrun.values.choices import EngineName, WriterChoice
from duckrun.values.lake_format import LakeFormat
from duckrun.values.moved import Moved
from duckrun.values.snapshot import TableRef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
else:
    from duckrun.sessions.opened import SparkSession


@checked
def connect(
    root_path: str | os.PathLike[str],
    *,
    schema: str = "main",
    engine: EngineName = "duckdb",
    storage_options: Mapping[str, Any] | None = None,
    read_only: bool = False,
    spark: SparkSession | None = None,
    memory_limit: str | int | None = None,
    memory_fraction: float | None = None,
    pins: Pins | None = None,
    format: str = "delta",
    catalog: str | None = None,
    inline_rows: int | None = None,
    encrypted: bool | None = None,
    writer: WriterChoice = "auto",
    branch: str | None = None,
    branch_at: str | None = None,
) -> Session:
    """Open a lake: a folder, or an ``s3://``, ``az://``, ``abfss://`` or ``gs://`` URL.

    Nothing is read before a statement needs it.

    Args:
        root_path: Folder or URL of the lake.
        schema: Schema of names without one.
        engine: Default engine of statements.
        storage_options: Credentials and endpoint of an object store, by the names of delta_rs.
        read_only: Refuse all writes.
        spark: Spark session to use.
        memory_limit: Memory for the session's work.
        memory_fraction: Share of the machine's memory, instead of a limit.
        pins: Versions to read for the whole session. Without them each statement pins its tables.
        format: ``delta`` or ``ducklake``.
        catalog: Database of a DuckLake's catalog: ``sqlite:<file>`` (by default ``catalog.sqlite``
            in the root), ``postgres:<dsn>`` or ``duckdb:<file>``.
        inline_rows: Largest insert, in rows, that a DuckLake stores in its catalog.
        encrypted: Create a DuckLake with encrypted files.
        writer: ``delta_rs`` lets delta_rs write the data files of Delta tables where it can. It
            holds for every write of the session that names no writer. The commit's ``reason`` says
            why delta_rs could not.
        branch: Name of a branch to read and write instead of the lake itself. It is created at its
            first use. Nobody else sees its writes until ``publish()``.
        branch_at: Time (ISO 8601) at which a new branch reads the tables that it does not write.
            Without it, it reads their newest versions.

    Raises:
        InvalidConfig: An argument is unknown or invalid.
        ReadOnlyLake: A branch of a lake that is opened read-only.
        UnsupportedFeature: A branch of a lake of format ducklake.
        StorageError: The root cannot be used.

    Example::

        with duckrun.connect("lake/") as s:
            s.sql("select count(*) from main.flights").show()
    """
    form = LakeFormat.of(format, catalog, inline_rows, encrypted)
    if branch is None and branch_at is not None:
        raise InvalidConfig(f"branch_at is {branch_at!r}, and no branch is named: add branch.")
    lake = open_branch(
        root_path,
        branch,
        at=branch_at,
        schema=schema,
        storage_options=storage_options,
        read_only=read_only,
        form=form,
    )
    arbiter = Arbiter(memory_limit, memory_fraction)
    return Session(lake, engine=engine, spark=spark, arbiter=arbiter, pins=pins, writer=writer)


class Session(TableSession):
    """One lake, a default engine, and the table versions that the session reads.

    Every statement reads each table at one version. A session pins a table again for each
    statement. With ``pins`` (a dbt invocation, a Dagster step) the pins hold for the whole session.

    Example::

        with duckrun.connect("lake/") as s:
            s.sql("select item, sum(price) from sales.orders group by item").show()
    """

    def table(self, name: str | TableRef) -> Table:
        """Return a table by ``schema.name``, with its history and older versions.

        Raises:
            TableNotFound: No such table.
        """
        return Table(self, self.existing(name))

    @property
    def read(self) -> DataFrameReader:
        """Reader by Spark's names, as in ``s.read.format("delta").load(path)``."""
        return DataFrameReader(self)

    # -- branches

    @property
    def _main(self) -> Lake:
        """The lake itself, also in a session of a branch."""
        self.ensure_open()
        return self.lake.main if isinstance(self.lake, BranchLake) else self.lake

    def _changed_rows(self, branch: Branch, of: TableDiff) -> ChangeSet:
        """Return the changed rows of a table, by a session that ends with this one."""
        if branch.folder not in self.of_branches:
            lake = self.lake
            lake = BranchLake(lake.root, branch.name, schema=lake.default_schema, storage_options=lake.storage_options)
            self.of_branches[branch.folder] = Session(lake, arbiter=self.arbiter)
        other = self.of_branches[branch.folder]
        assert isinstance(other, Session)
        start = -1 if of.base_version is None else of.base_version
        return other.table(of.table).changes("min_delta", from_version=start)

    def branches(self) -> BranchList:
        """Return the branches of the lake: name, created, tables, rows changed, age.

        Example::

            [branch.name for branch in s.branches()]
        """
        return diffs.branches(self._main)

    def diff(self, branch: str) -> BranchDiff:
        """Return the difference of a branch from main: one entry per table.

        ``.table("sales.orders")`` gives the changed rows.

        Raises:
            InvalidConfig: There is no such branch.
        """
        main = self._main
        publishes.refuse_no_branches(main)
        existing = registry.existing(main.storage, check_branch_name(branch))
        return BranchDiff(branch, diffs.diff(main, existing), partial(self._changed_rows, existing))

    def publish(self, branch: str) -> Published:
        """Commit the net changes of a branch to main: one commit per table, or none.

        All tables are validated before the first commit. A publish that was killed is finished by
        the next one, or by the next session that writes to the lake. A second publish does nothing
        and says so.

        Raises:
            CommitConflict: Main has changed what the branch changed or read.
            InvalidConfig: There is no such branch.
        """
        return publishes.publish(self._main, check_branch_name(branch), row_access(self))

    def rebase(self, branch: str) -> dict[str, int]:
        """Let the tables of a branch continue from main's newest versions; return their versions.

        The net change of each table becomes one commit on top. Its rows are not computed again, so
        main must not have changed rows that the branch read.

        Raises:
            CommitConflict: Main has changed what the branch changed or read. The branch is
                unchanged.
            InvalidConfig: There is no such branch.
        """
        return publishes.rebase(self._main, check_branch_name(branch), row_access(self))

    def discard(self, branch: str) -> tuple[str, ...]:
        """Remove a branch with all its writes, and return the tables that it had changed.

        Raises:
            InvalidConfig: There is no such branch.
            CommitConflict: The branch is being published.
        """
        return publishes.discard(self._main, check_branch_name(branch), row_access(self))

    @property
    def moving(self) -> Moving:
        """Moves of tables between this lake and other lakes or databases."""
        return Moving(self, connect)

    def import_from(
        self,
        source: str | os.PathLike[str],
        tables: str | Sequence[str] | None = None,
        *,
        adopt: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> list[Moved]:
        """Copy or adopt tables of a Delta lake or a DuckDB database, as one snapshot.

        If it fails, both sides are unchanged.

        Args:
            source: Root of a Delta lake, or a DuckDB database file (``duckdb:<file>``, or a path
                that ends in .duckdb, .db or .ddb).
            tables: Names of tables; None: all of them. Views stay behind.
            adopt: Make the Delta lake's files this lake's without a copy. This lake's cleanup()
                will remove them one day, so the Delta logs are put away, and Delta readers no
                longer see the tables.
            storage_options: Options to open the Delta lake.

        Returns:
            One entry per table. ``left_out`` lists what does not fit. An entry without a table
            lists database objects beside tables, which stay behind.

        Raises:
            UnsupportedFeature: Something cannot be stored or adopted, or the source is MotherDuck.
            CommitConflict: This lake has a table already.
            TableNotFound: The source lacks a table.
            StorageError: The source cannot be read.

        Example:
            ``s.import_from("old_lake/", ["sales.orders"])``
        """
        return self.moving.import_from(source, tables, adopt, storage_options)

    def export_to(
        self,
        target: str | os.PathLike[str],
        tables: str | Sequence[str] | None = None,
        *,
        versions: int = 1,
        storage_options: Mapping[str, Any] | None = None,
    ) -> list[Moved]:
        """Copy tables of this DuckLake to a Delta lake, with their last versions.

        After an error, all tables that this call created are dropped.

        Args:
            target: Root of the Delta lake.
            tables: Names of tables; None: all of them. Views stay behind.
            versions: Number of last versions to copy. Each is a commit with the rows of that
                version. Its metadata names the snapshot.
            storage_options: Options to open the Delta lake.

        Returns:
            One entry per table. ``left_out`` lists what does not fit.

        Raises:
            StorageError: There is no table.
            CommitConflict: The target has a table already.
            UnsupportedFeature: Delta cannot store some columns, or the target is Iceberg.

        Example:
            ``s.export_to("delta_lake/", versions=10)``
        """
        return self.moving.export_to(target, tables, versions, storage_options)
