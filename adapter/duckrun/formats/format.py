"""Protocol of a table format: it finds tables, describes their versions, and commits.

Its role is either that of ``logs.py`` or that of ``transactions.py`` beside this file.
``factory.py`` makes a format by its name.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from duckrun.formats.commits import CommitRecord, NewCommit
from duckrun.formats.definitions import Alteration, TableDefinition
from duckrun.formats.logs import LogTables
from duckrun.formats.transactions import TransactionalLake
from duckrun.values.changes import CommitChange
from duckrun.values.choices import SchemaMode, WriterName
from duckrun.values.computed import ComputedColumn
from duckrun.values.cursors import Counter
from duckrun.values.rows import AppTransaction, Commit, ScanFile, Spec, WriteSpec
from duckrun.values.snapshot import ReadAs, Snapshot, TableRef
from duckrun.values.tables import AlterSpec, CreateSpec

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

SpecT = TypeVar("SpecT", bound=Spec)


def name_of_files(location: str, version: int) -> str:
    """Return the alias of a read of a table's files by name, which tells the table and version."""
    return f"delta files {version} {location}"


class Format(Protocol):
    """Everything that engines, lakes, transactions, dbt and Dagster need from a table format.

    One object serves one lake, from any thread. Exactly one of ``logs`` and ``transactions`` is not
    None.

    Raises:
        TableNotFound: On reading, if there is no such table.
        VersionNotReadable: On reading, if the version has expired or does not exist.
        UnsupportedFeature: On reading, if the table cannot be read at all.
        StorageError: On reading, if the storage or the catalog fails.
    """

    name: str
    writer: WriterName
    """Writer of the commits that the format makes itself."""
    native_types: bool
    """True if nearly all DuckDB types are stored unchanged.

    False if only Spark's types are stored.
    """

    @property
    def logs(self) -> LogTables | None:
        """The format's role if each table has its own log; else None."""

    @property
    def transactions(self) -> TransactionalLake | None:
        """The format's role if the tables share one catalog; else None."""

    # -- DuckDB instances

    @property
    def extensions(self) -> tuple[str, ...]:
        """Extensions that DuckDB needs to read the tables."""

    @property
    def lent(self) -> Hashable:
        """Identity of what ``lend()`` sets up: extensions, credentials, catalog.

        Lakes with equal values share one set-up in a DuckDB instance.
        """

    def lend(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Set up a DuckDB instance, which has the extensions, to run the SQL of ``scan_sql()``."""

    def locked(self, ref: TableRef) -> AbstractContextManager[None]:
        """Hold the lock that excludes other writers of a table, for the time of one commit."""

    # -- tables and their versions

    def exists(self, ref: TableRef) -> bool:
        """True if there is a table. Costs one listing and opens nothing."""

    def snapshot(self, ref: TableRef, version: int | None = None, timestamp: str | None = None) -> Snapshot:
        """Return a table at a version, at a time (ISO 8601), or now."""

    def begin(self, ref: TableRef) -> Snapshot | None:
        """Return the newest version of a table for one write that starts from it.

        The table's log stays open for that write.

        Returns:
            None if there is no table.
        """

    def scan_sql(self, snapshot: Snapshot, read: ReadAs) -> str:
        """Return a FROM clause of DuckDB SQL for the rows of a snapshot, with exactly its columns.

        Raises:
            UnsupportedFeature: DuckDB cannot read the table.
        """

    # -- history

    def history(self, ref: TableRef, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the commits, newest first: version, timestamp (ms), operation and more keys."""

    def detail(self, ref: TableRef) -> dict[str, Any]:
        """Return the values of Spark's DESCRIBE DETAIL: format, id, name, location and more."""

    def record(self, ref: TableRef, version: int) -> CommitRecord | None:
        """Return the changes of one commit; None if the log does not hold it (any more, or yet)."""

    def records_back(self, ref: TableRef, newest: int) -> Iterator[CommitRecord]:
        """Yield the changes of commits from ``newest`` backwards, as far as the log holds them."""

    def records_after(self, ref: TableRef, version: int) -> list[CommitRecord]:
        """Return the changes of the commits after a version, oldest first."""

    def commits_between(self, ref: TableRef, after: int, to: int) -> list[CommitChange]:
        """Return the file changes of the commits in (after, to], oldest first.

        Raises:
            VersionNotReadable: The log lacks one of the commits; the message names it.
        """

    def row_count(self, snapshot: Snapshot) -> int | None:
        """Return the number of rows of a version; None if that needs a read of its data files."""

    def computing(self, schema: pa.Schema) -> Mapping[str, ComputedColumn]:
        """Columns whose missing values the writer computes, by name."""

    def in_duckdb(self, expression: str, schema: pa.Schema) -> str | None:
        """Translate an expression of Spark SQL over a table's columns to DuckDB.

        Returns:
            None unless both are known to give the same result.
        """

    def find_commit(self, ref: TableRef, app: AppTransaction, newest: Snapshot | None = None) -> Commit | None:
        """Return the commit of an application transaction; None if there is none.

        Args:
            newest: Current snapshot of the table, if the caller knows it.
        """

    def counter(self, ref: TableRef, consumer: str, newest: Snapshot | None = None) -> Counter:
        """Return the current and the highest number of a consumer's application transactions.

        A RESTORE lowers the current number, but not the highest one.
        """

    def log_retention(self, snapshot: Snapshot) -> float:
        """Return how long the entries of a table's log are retained, in milliseconds."""

    def fingerprint(self, ref: TableRef, version: int) -> str | None:
        """Return a value that identifies the commit of a version; None if the log lacks it."""

    def tells_since(self, ref: TableRef, version: int, newest: int, commits: Sequence[CommitRecord]) -> bool:
        """True if ``commits``, from ``records_after()``, are all changes since a version."""

    # -- commits

    def commit(self, ref: TableRef, snapshot: Snapshot | None, new: NewCommit, *, over: Snapshot | None = None) -> int:
        """Commit, and return the new version.

        Args:
            snapshot: Version that the commit follows; None for a new table.
            over: Current version, if the commit undoes everything after ``snapshot``.

        Raises:
            CommitTaken: Another writer took the version.
            UnsupportedFeature: Such a commit would break the table.
            InvalidConfig: The commit would remove rows of an append-only table.
            LostRows: The row counts show that rows would be lost.
        """

    def committed(self, before: Snapshot | None, ref: TableRef, version: int) -> Snapshot | None:
        """Return the snapshot that a write just made, and keep the log cheap to read.

        Never fails the commit, which is already made.

        Returns:
            None if the snapshot needs a new opening of the log.
        """

    def untouched(self, snapshot: Snapshot, records: Sequence[CommitRecord]) -> Sequence[ScanFile] | None:
        """Return the files that some commits added, if all their rows are still unchanged.

        A format without files per row returns an empty sequence.

        Returns:
            None if a row was changed or removed since.
        """

    def added_rows(self, snapshot: Snapshot, record: CommitRecord) -> str | None:
        """Return a FROM clause of DuckDB SQL for the rows that a commit added.

        Returns:
            None if they can no longer be read with the snapshot's schema.
        """

    def restore(self, snapshot: Snapshot, version: int, note: dict[str, Any], app: AppTransaction | None) -> int:
        """Restore an older version by a new commit, and return its version.

        Raises:
            CommitTaken: Another writer took the version.
            VersionNotReadable: The older version has expired or does not exist.
        """

    def rename(self, ref: TableRef, new: TableRef) -> None:
        """Rename a table by moving its folder in one step to an unused place.

        Raises:
            UnsupportedFeature: The storage cannot move a folder in one step.
        """

    def drop(self, ref: TableRef, *, force: bool = False) -> None:
        """Remove a table's folder. A missing table is not an error.

        A reader sees the whole table or none.

        Args:
            ref: The table.
            force: Remove it although branches continue from it.

        Raises:
            CommitConflict: Branches continue from the table.
        """

    # -- definitions

    def with_properties(self, spec: SpecT, table: TableRef) -> SpecT:
        """Return the spec with its layout options turned into table properties.

        Raises:
            InvalidConfig: An explicit ``table_properties`` entry contradicts an option.
        """

    def created(self, spec: CreateSpec, snapshot: Snapshot | None) -> TableDefinition:
        """Return the definition that a CreateSpec describes, which may replace an existing table.

        Raises:
            SchemaMismatch, InvalidConfig, UnsupportedFeature: The spec cannot be met.
        """

    def overwritten(
        self,
        spec: WriteSpec,
        fields: Sequence[Mapping[str, Any]],
        partition_by: Sequence[str],
        snapshot: Snapshot | None,
    ) -> TableDefinition:
        """Return the definition of a table whose rows are all replaced.

        Raises:
            SchemaMismatch, InvalidConfig, UnsupportedFeature: The spec cannot be met.
        """

    def altered(self, snapshot: Snapshot, spec: AlterSpec) -> Alteration:
        """Return the definition after the changes of a spec, in their order.

        Raises:
            SchemaMismatch, InvalidConfig, UnsupportedFeature: A change cannot be made.
        """

    def evolved(self, snapshot: Snapshot, fields: Sequence[Mapping[str, Any]], mode: SchemaMode) -> Alteration:
        """Return the definition that fits the columns of a source.

        Raises:
            SchemaMismatch: A column cannot take the source's values.
            InvalidConfig: A column would be dropped that must stay.
        """

    def definition(self, snapshot: Snapshot) -> TableDefinition:
        """Return the columns, partitioning, properties and description of a version."""

    def fields_of(self, schema: pa.Schema, types: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Convert Arrow columns to ``fields`` of a definition.

        Args:
            types: Types of the same columns in DuckDB SQL.
        """

    # -- what a table's features, properties and types allow

    def computed_columns(self, snapshot: Snapshot) -> set[str]:
        """Columns whose missing values the writer computes: generated and identity columns."""

    def spelled(self, kind: Any) -> str:
        """Return the ``type`` of a field in Spark SQL."""


def transactions_of(form: Format) -> TransactionalLake:
    """Return the transactions of a format, for code that only writes or reads such a lake."""
    assert form.transactions is not None, f"a lake of format {form.name} has no transactions"
    return form.transactions


def logs_of(form: Format) -> LogTables:
    """Return the logs of a format, for code that only writes or reads tables with logs."""
    assert form.logs is not None, f"tables of format {form.name} have no logs"
    return form.logs
