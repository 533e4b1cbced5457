"""Protocol of tables that have a log each, as Delta tables have."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, Self

from duckrun.errors import InvalidConfig
from duckrun.formats.commits import CommitRecord
from duckrun.formats.definitions import TableDefinition
from duckrun.values.changes import CommitChange
from duckrun.values.frozen import frozen
from duckrun.values.rows import AppTransaction, MergeClause, ScanFile, StagedFile, WriteSpec
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.stored import StoredColumn
from duckrun.values.tables import AlterSpec, ConvertSpec, VacuumSpec

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds


class LacksMemory(InvalidConfig):
    """A merge by delta_rs needs more memory than its share. The table is unchanged."""


class ScratchCopy(Protocol):
    """Table inside the folder of another, invisible to readers. One commit can adopt its files."""

    @property
    def ref(self) -> TableRef: ...

    def files(self) -> tuple[StagedFile, ...]:
        """Return the current contents of the copy as files of the owning table."""


@frozen
class DeltaRsCommit:
    """Commit whose data files delta_rs writes."""

    ref: TableRef
    snapshot: Snapshot | None
    """Version that the commit follows; None for a new table."""
    rows: pa.RecordBatchReader
    codec: str
    note: Mapping[str, Any]
    """Note about the commit, for the log."""
    app: AppTransaction | None

    @property
    def version(self) -> int:
        return 0 if self.snapshot is None else self.snapshot.version + 1


class WrittenLog(Protocol):
    """Log that Spark commits to during one attempt: the table's own, or in a branch a copy of it.

    The copy exists during a ``with`` block.
    """

    @property
    def location(self) -> str:
        """Folder that Spark opens."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None: ...

    def follow(self, snapshot: Snapshot) -> None:
        """Bring a copy forward to a commit that was made to the table and changed no file."""

    def carry(self) -> None:
        """Commit to the table what was committed to a copy.

        Raises:
            CommitTaken: Another commit took the version.
            UnsupportedFeature: A branch takes no such commit.
        """


@frozen
class OwnLog:
    """The table's own log as a WrittenLog."""

    location: str

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Do nothing: the log stays."""

    def follow(self, snapshot: Snapshot) -> None:
        """Do nothing: the log has the commit."""

    def carry(self) -> None:
        """Do nothing: the commits are the table's."""


class DeltaRsWriter(Protocol):
    """Commits by delta_rs, which writes the data files itself."""

    def write(
        self, commit: DeltaRsCommit, spec: WriteSpec, partition_by: Sequence[str] | None = None, *, redefines: bool
    ) -> int:
        """Write rows into new files by delta_rs, commit them, and return the version.

        Args:
            partition_by: Partition columns of an overwrite; None appends the rows.
            redefines: True if the overwrite changes the columns or partitions of the table.

        Raises:
            CommitTaken: Another commit took the version.
        """

    def merge(self, commit: DeltaRsCommit, clauses: Sequence[MergeClause], *, on: str, spill: int) -> int:
        """Merge rows by delta_rs, and return the version.

        Args:
            clauses: Actions with conditions in SQL of delta_rs. They take the source's columns
                unchanged.
            on: Condition of the join, in SQL of delta_rs.
            spill: Bytes of memory before the merge spills to disk.

        Raises:
            CommitTaken: Another commit took the version.
            LacksMemory: The memory is too small.
        """


class LogTables(Protocol):
    """Role of a format whose tables are folders of files, each with its own log.

    A commit adds files that were written before. Other programs open a table by its folder.
    """

    @property
    def feed_folder(self) -> str:
        """Folder of the change feed's files, inside a table's folder."""

    # -- reads

    def handle(self, ref: TableRef, version: int | None = None) -> Any:
        """Return the table as the format's own library opens it."""

    def newest_known(self, ref: TableRef) -> Snapshot | None:
        """Return a table's newest version, if that costs no more than ``exists()``.

        Returns:
            None also for an existing table whose log has to be opened.
        """

    def arrow_dataset(self, snapshot: Snapshot) -> ds.Dataset:
        """Return the files of a snapshot as a Dataset. Opens no data file.

        Raises:
            UnsupportedFeature: Deletion vectors or column mapping hide what the files hold.
        """

    def listed(self, ref: TableRef) -> Snapshot | None:
        """Return the newest version of a table, for a listing of many tables.

        It costs less than ``snapshot()``, which a read of the table's files needs.

        Returns:
            None if ``snapshot()`` has to open the table.
        """

    def file_bounds(self, snapshot: Snapshot, column: str) -> pa.Table | None:
        """Return the bounds of a column's non-NULL values per data file. Opens no data file.

        Returns:
            Columns ``name`` (as ``Files.named()`` takes it), ``low`` and ``high`` in the column's
            type. Unknown bounds are NULL. None if the bounds are unknown in every file.
        """

    def caught_up(self, snapshot: Snapshot) -> list[tuple[CommitRecord, Snapshot]] | None:
        """Return the commits after a snapshot, oldest first, each with the snapshot that it made.

        Reads these commits alone.

        Returns:
            None if the commits do not describe everything that changed.
        """

    def missing_files(self, ref: TableRef, files: Sequence[ScanFile]) -> list[ScanFile]:
        """Return those of some files that do not exist (any more)."""

    def stored_columns(self, schema: pa.Schema) -> tuple[StoredColumn, ...]:
        """Map a schema's columns to their physical names in new files; empty if they are equal."""

    def state_change(self, before: Snapshot | None, after: Snapshot) -> CommitChange:
        """Return the difference of two versions as if one commit had replaced all files.

        ``before`` is None for an empty start.
        """

    def vector_rows(self, ref: TableRef, vectors: Iterable[Hashable]) -> dict[Hashable, Any]:
        """Return the row numbers that deletion vectors delete, as NumPy's uint64.

        Args:
            vectors: Identifiers of deletion vectors, as in a CommitChange.

        Raises:
            StorageError: A deletion vector cannot be read.
        """

    def row_id_columns(self, snapshot: Snapshot) -> tuple[str, str] | None:
        """Columns of data files that may hold row ids and row commit versions.

        Returns:
            None for a table that does not track rows.
        """

    def first_ids(self, snapshot: Snapshot, files: Sequence[ScanFile]) -> list[tuple[int, int]]:
        """Return (id of the first row, version that added the file) for each of some files.

        The table tracks its rows. The result applies where the columns of ``row_id_columns()`` are
        NULL.
        """

    def unclustered(self, snapshot: Snapshot, files: Sequence[ScanFile]) -> Iterator[ScanFile]:
        """Yield the data files of a clustered table that no OPTIMIZE has clustered yet."""

    # -- commits

    def files_folder(self, ref: TableRef) -> str:
        """Folder of new files below a table's folder; empty for the table's folder itself.

        A branch puts its files into a folder of its own.
        """

    def log_to_write(self, ref: TableRef, snapshot: Snapshot | None) -> WrittenLog:
        """Return the log that Spark commits to, in a write that begins from a snapshot.

        Args:
            ref: The table.
            snapshot: Version that the commit follows; None for a new table.
        """

    def refuse_other_files(self, ref: TableRef) -> None:
        """Raise StorageError if the folder of a new table holds foreign files."""

    def refuse_unknown_features(self, snapshot: Snapshot) -> None:
        """Raise UnsupportedFeature if the table needs more of a commit than ``commit`` does."""

    def refuse_copies(self, snapshot: Snapshot) -> None:
        """Raise UnsupportedFeature if files of a copy cannot become the table's files.

        That is so if its files carry more than plain columns.
        """

    def check_landed(self, snapshot: Snapshot | None, version: int | None, commit_id: str) -> None:
        """Undo a commit that was made while its table was dropped, and raise CommitConflict.

        Args:
            snapshot: Table that the commit started from; None for a new table.
            version: Version of the commit; None if no commit was seen after the snapshot.
            commit_id: Token that tells the commit from those of other writers.
        """

    def marks_rows(self, snapshot: Snapshot) -> bool:
        """True if the table wants deletes as deletion vectors."""

    def marking(self, snapshot: Snapshot, definition: Any) -> Any:
        """Return the definition to commit with deletion vectors; None to keep the current one.

        Args:
            definition: Definition that the commit changes to for other reasons.
        """

    def marking_change(self, snapshot: Snapshot) -> AlterSpec | None:
        """Return the change that enables deletion vectors.

        Returns:
            None if they are enabled, or if no row may be deleted from the table.
        """

    def with_numbers(
        self, snapshot: Snapshot, definition: TableDefinition | None, marks: Mapping[str, int]
    ) -> TableDefinition:
        """Return the definition to commit after identity columns used numbers up to ``marks``.

        Args:
            definition: Definition that the commit changes to; None for that of the snapshot.
        """

    def scratch(self, owner: TableRef, definition: TableDefinition) -> AbstractContextManager[ScratchCopy]:
        """Create an empty copy of a table for an engine to fill.

        At the end of the block its files stay, and the rest is removed. If the block raises,
        everything is removed.
        """

    def convert(self, ref: TableRef, spec: ConvertSpec, note: dict[str, Any], app: AppTransaction | None) -> None:
        """Convert a folder of Parquet files into a table at version 0.

        Raises:
            CommitConflict, CommitTaken: Another writer created a table there.
            StorageError, InvalidConfig: The folder cannot be converted.
        """

    @property
    def delta_rs(self) -> DeltaRsWriter:
        """Writer of commits whose data files delta_rs writes itself."""

    def app_version(self, ref: TableRef, app_id: str) -> int | None:
        """Return the newest version that an application id has committed, or None."""

    # -- what a table's features and properties allow

    def only_own(self, snapshot: Snapshot) -> str | None:
        """Return why only this format's own commits preserve the table; None if others do too."""

    def only_spark(self, snapshot: Snapshot) -> bool:
        """True if the table needs more of a commit than ``commit`` does."""

    def special_properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return those properties that need more than metadata, which ``commit`` does not set.

        Raises:
            InvalidConfig: A property names a protocol version that the format does not have.
        """

    def asked_features(self, properties: Mapping[str, Any]) -> list[str]:
        """Return the table features that properties enable, each with its property."""

    def lacks_feature(self, snapshot: Snapshot, fields: Sequence[Mapping[str, Any]]) -> bool:
        """True if a column type needs a table feature that the table does not have."""

    def constrained_anew(self, snapshot: Snapshot, spec: WriteSpec) -> bool:
        """True if an overwrite keeps or changes constraints.

        ``commit`` supports that, and other writers do not.
        """

    def spark_type(self, text: str, dialect: str, column: str) -> str:
        """Translate a type from a SQL dialect to Spark SQL, as the table would store it.

        Raises:
            SchemaMismatch: The table cannot store the type.
            InvalidConfig: The text is not a type.
        """

    # -- maintenance of a log

    def vacuum(self, snapshot: Snapshot, spec: VacuumSpec) -> tuple[str, ...]:
        """Remove, or list, files that no version within the retention uses. Return their paths.

        Raises:
            InvalidConfig: The retention is below that of the table.
            UnsupportedFeature: Only Spark can vacuum the table.
        """

    def checkpoint(self, snapshot: Snapshot) -> None:
        """Write a checkpoint of a version."""

    def cleanup_log(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Remove log entries that are past the retention and not needed. Return their paths."""

    # -- logs of tables whose files move to another lake

    def set_aside(self, ref: TableRef, whose: str) -> None:
        """Hide a locked table from all readers while another lake adopts its files."""

    def whose(self, ref: TableRef) -> str | None:
        """Return the new owner of the files of a hidden table; None if the table is not hidden."""

    def bring_back(self, ref: TableRef, *, away: bool) -> None:
        """Restore the log of a hidden table, or (``away``) retire it for good."""

    def all_aside(self) -> list[TableRef]:
        """Tables that are still hidden because an adoption was interrupted."""
