"""What a table format does for everything above it: it finds tables, says what they are and were, and commits.

``formats/factory.py`` makes one by its name. What it takes and gives lies beside it: ``commits.py``, ``definitions.py``, ``states.py``,
``lakes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from duckrun.formats.commits import CommitRecord, NewCommit, TakenBack
from duckrun.formats.definitions import Alteration, TableDefinition
from duckrun.formats.lakes import TableLogs, WholeLake
from duckrun.formats.states import StateReader
from duckrun.values.changes import CommitChange
from duckrun.values.computed import ComputedColumn
from duckrun.values.cursors import Counter
from duckrun.values.rows import (
    AppTransaction,
    Commit,
    ScanFile,
    SchemaMode,
    Spec,
    StagedFile,
    WriteSpec,
)
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.stored import StoredColumn
from duckrun.values.tables import AlterSpec, ConvertSpec, CreateSpec, VacuumSpec

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.dataset as ds

SpecT = TypeVar("SpecT", bound=Spec)


Attach = Callable[[str, int, str], str | None]
"""Gives the name, in SQL, under which a DuckDB instance has a table at a version, so that its log is replayed there once: of
a location, a version and what tells this one from others of its number. None where the instance takes no more of them."""


class ScratchCopy(Protocol):
    """A table inside the folder of another, unknown to readers, whose files one commit can make the other's."""

    @property
    def ref(self) -> TableRef: ...

    def files(self) -> tuple[StagedFile, ...]:
        """What the copy holds now, as files of the table around it."""


class Format(Protocol):
    """All that engines, lakes, transactions, dbt and Dagster ask of a table format. One object serves one lake, from any thread.

    Reading raises TableNotFound, VersionNotReadable, UnsupportedFeature (a table that cannot be read at all) and StorageError.
    """

    name: str
    feed_folder: str
    """Where in a table's folder the files of its change feed lie."""
    transacts: bool
    """Whether rows are written by statements within a transaction of the format's own, and not as files that a commit shows."""

    native_types: bool
    """Whether nearly all types of DuckDB's are stored as they are, and not as those that Spark has."""

    @property
    def whole(self) -> WholeLake | None:
        """The lake as a whole; None where each table has a log of its own."""

    @property
    def logs(self) -> TableLogs | None:
        """The tables' logs, to set aside; None where they share a catalog."""

    @property
    def state_reader(self) -> StateReader | None:
        """What reads the states of tables for change queries; None where files and commits say what changed."""

    # -- DuckDB instances

    @property
    def extensions(self) -> tuple[str, ...]:
        """The extensions that DuckDB needs to read the tables."""

    @property
    def lent(self) -> Hashable:
        """What a DuckDB instance is given so that it reads the tables, the extensions and credentials with it: lakes of which this is equal need it once."""

    def lend(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Let a DuckDB instance, with the extensions, read the tables by what scan_sql() gives."""

    def locked(self, ref: TableRef) -> AbstractContextManager[None]:
        """Hold what keeps other writers of a table away for the time of one commit."""

    # -- tables and their versions

    def exists(self, ref: TableRef) -> bool:
        """True if there is a table. One listing; nothing is opened."""

    def refuse_other_files(self, ref: TableRef) -> None:
        """Raise StorageError where a new table's folder holds files of somebody else's."""

    def latest_version(self, ref: TableRef) -> int | None:
        """The newest version, or None where there is no table."""

    def snapshot(self, ref: TableRef, version: int | None = None, timestamp: str | None = None) -> Snapshot:
        """A table at a version, at a time (ISO 8601), or now."""

    def begin(self, ref: TableRef) -> Snapshot | None:
        """The newest version of a table, for the one write that begins from it: its log stays open. None where there is no table."""

    def handle(self, ref: TableRef, version: int | None = None) -> Any:
        """The table as the format's own library opens it."""

    def arrow_dataset(self, snapshot: Snapshot) -> ds.Dataset:
        """The files of a snapshot as a Dataset; no data file is opened. Raises UnsupportedFeature where files alone are not the
        table.
        """

    def scan_sql(
        self,
        snapshot: Snapshot,
        *,
        files: Sequence[ScanFile] | None = None,
        file: str | None = None,
        row: str | None = None,
        attach: Attach | None = None,
        named: bool = False,
        also: Sequence[str] = (),
    ) -> str:
        """DuckDB's SQL behind FROM for the rows of a snapshot, or of some of its files: the table's columns, and no other.

        ``file`` and ``row`` are the names of two more columns: the file of each row, and its number in it. No column of the
        table has these names. ``attach`` is that of the instance which may read the rows more than once. ``named``: the text says of which table and
        version the rows are, also where their files could be read without it. ``also``, with ``file`` and ``row``, are columns of numbers
        that files may hold beside the table's, NULL where one has none. Raises UnsupportedFeature
        for a table that DuckDB cannot read.
        """

    def file_bounds(self, snapshot: Snapshot, column: str) -> pa.Table | None:
        """Between which values those of a column lie in each data file, NULLs aside: ``name`` (as ``Files.named()`` takes it), ``low`` and
        ``high`` in the column's type, NULL where that is not known. None for a column of which it is known of no file. No data file is opened.
        """

    # -- history

    def history(self, ref: TableRef, limit: int | None = None) -> list[dict[str, Any]]:
        """The commits, newest first: version, timestamp (ms), operation, operationParameters, ..."""

    def detail(self, ref: TableRef) -> dict[str, Any]:
        """What Spark's DESCRIBE DETAIL gives: format, id, name, location, partitionColumns, numFiles, ..."""

    def record(self, ref: TableRef, version: int) -> CommitRecord | None:
        """What the commit of a version changed, or None where the log does not hold it (any more, or yet)."""

    def records_back(self, ref: TableRef, newest: int) -> Iterator[CommitRecord]:
        """What the commits changed, from ``newest`` backwards, as far as the log holds them."""

    def records_after(self, ref: TableRef, version: int) -> list[CommitRecord]:
        """What the commits after a version changed, oldest first."""

    def check_landed(self, snapshot: Snapshot | None, version: int | None, commit_id: str) -> None:
        """Raise CommitConflict for a commit that was made while its table was dropped, after taking it out of the log that it landed in.
        ``version`` is that of the commit, None if none was seen after the snapshot; ``commit_id`` tells it from those of others.
        """

    def caught_up(self, snapshot: Snapshot) -> list[tuple[CommitRecord, Snapshot]] | None:
        """The commits after a snapshot, oldest first, each with the snapshot that it made, by reading these commits alone; None where that
        does not tell all of it.
        """

    def commits_between(self, ref: TableRef, after: int, to: int) -> list[CommitChange]:
        """What the commits after a version, up to another one, changed of the table's files, oldest first.

        Raises VersionNotReadable, which names a commit that is gone, where the log does not hold them all.
        """

    def state_change(self, before: Snapshot | None, after: Snapshot) -> CommitChange:
        """What lies between two versions (None: nothing), as if one commit had removed all of one and added all of the other."""

    def vector_rows(self, ref: TableRef, vectors: Iterable[Hashable]) -> dict[Hashable, Any]:
        """The rows that deletion vectors delete, as NumPy's uint64, by what stands for each in a CommitChange. Raises StorageError."""

    def row_count(self, snapshot: Snapshot) -> int | None:
        """How many rows a version has; None where that is not known without reading its data files."""

    def missing_files(self, ref: TableRef, files: Sequence[ScanFile]) -> list[ScanFile]:
        """Those of some files that are not there (any more)."""

    def stored_columns(self, schema: pa.Schema) -> tuple[StoredColumn, ...]:
        """How the columns of a table's schema are called in files that are written for it; none where they have no other names."""

    def row_id_columns(self, snapshot: Snapshot) -> tuple[str, str] | None:
        """The columns of data files that may hold the ids of rows, and the versions at which they came or changed; None for a table
        that does not track rows.
        """

    def computing(self, schema: pa.Schema) -> Mapping[str, ComputedColumn]:
        """The columns whose values writers compute where rows come without them, by name."""

    def in_duckdb(self, expression: str, schema: pa.Schema) -> str | None:
        """An expression of Spark's SQL over a table's columns in DuckDB's; None where it is not known that both give the same."""

    def with_numbers(
        self, snapshot: Snapshot, definition: TableDefinition | None, marks: Mapping[str, int]
    ) -> TableDefinition:
        """The definition to commit (None: that of the snapshot) once identity columns have given numbers up to these."""

    def first_ids(self, snapshot: Snapshot, files: Sequence[ScanFile]) -> list[tuple[int, int]]:
        """Of data files of a table that tracks its rows: the id of the first row of each and the version that added it, which hold
        where row_id_columns() say nothing else.
        """

    def unclustered(self, snapshot: Snapshot, files: Sequence[ScanFile]) -> Iterator[ScanFile]:
        """The data files of a clustered table whose rows no OPTIMIZE has put in order yet."""

    def has_feed(self, snapshot: Snapshot) -> bool:
        """True if commits on a version keep a change feed."""

    def app_version(self, ref: TableRef, app_id: str) -> int | None:
        """The newest version that an application id has committed, or None."""

    def find_commit(self, ref: TableRef, app: AppTransaction, newest: Snapshot | None = None) -> Commit | None:
        """The commit that an application transaction made; None where it made none. ``newest`` is what the table is, if known."""

    def counter(self, ref: TableRef, consumer: str, newest: Snapshot | None = None) -> Counter:
        """Which number of a consumer's application transactions a table holds, and which was the highest; a RESTORE takes back the first."""

    def log_retention(self, snapshot: Snapshot) -> float:
        """How long the entries of a table's log are kept, in milliseconds."""

    def fingerprint(self, ref: TableRef, version: int) -> str | None:
        """What tells the commit of a version from any other; None where the log does not hold it."""

    def tells_since(self, ref: TableRef, version: int, newest: int, commits: Sequence[CommitRecord]) -> bool:
        """Whether some commits, as records_after() gave them, are all that changed a table since a version."""

    # -- commits

    def transaction(self, cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot | None) -> AbstractContextManager[Any]:
        """A transaction in which rows are written, for a format that ``transacts``. Nothing of it is there if the block raises."""

    def define(self, work: Any, ref: TableRef, snapshot: Snapshot | None, new: NewCommit) -> None:
        """Carry out, within a transaction(), what a commit says of the table apart from its rows."""

    def commit(
        self,
        ref: TableRef,
        snapshot: Snapshot | None,
        new: NewCommit,
        note: Mapping[str, Any],
        app: AppTransaction | None,
        *,
        over: Snapshot | None = None,
    ) -> int:
        """The version committed: the one after a snapshot (None: of a new table), or after ``over``: then it is made as if the table had
        been left at the snapshot, and what came since is taken back.

        Raises CommitTaken where another writer has that version, UnsupportedFeature for a table that such a commit would break,
        InvalidConfig where rows of an append-only table would go, LostRows where the figures say that rows would be lost.
        """

    def committed(self, before: Snapshot | None, ref: TableRef, version: int) -> Snapshot | None:
        """The version that a write just made, which began from another one; None where that takes an opening of the log. The log is
        kept short to read. Never fails the commit that was made.
        """

    def made_by(self, snapshot: Snapshot, version: int) -> bool:
        """True if the commit of a version made the table."""

    def untouched(self, snapshot: Snapshot, records: Sequence[CommitRecord]) -> Sequence[ScanFile] | None:
        """The files that commits added, of a format without files of its own none; None unless all rows of them are in the table as
        those commits left them.
        """

    def added_rows(self, snapshot: Snapshot, record: CommitRecord) -> str | None:
        """DuckDB's SQL behind FROM for the rows that a commit added; None where they can no longer be read as rows of the snapshot."""

    def taken_back(self, work: Any, taken: TakenBack) -> tuple[Snapshot, int]:
        """Take back what an older attempt committed, within a transaction() of a format that ``transacts``. The table as the transaction
        then has it, and how many of its rows went.
        """

    def restore(self, snapshot: Snapshot, version: int, note: dict[str, Any], app: AppTransaction | None) -> int:
        """The version committed, whose state is that of an older one. Raises CommitTaken, VersionNotReadable."""

    def convert(self, ref: TableRef, spec: ConvertSpec, note: dict[str, Any], app: AppTransaction | None) -> None:
        """Make a table, at version 0, of a folder's Parquet files. Raises CommitConflict, CommitTaken, StorageError, InvalidConfig."""

    def rename(self, ref: TableRef, new: TableRef) -> None:
        """Move a table's folder to that of a new name, where nothing is, in one step. Raises UnsupportedFeature where there is none."""

    def drop(self, ref: TableRef) -> None:
        """Remove a table's folder. A reader sees the whole table or none; a table that is not there is fine."""

    # -- maintenance

    def vacuum(self, snapshot: Snapshot, spec: VacuumSpec) -> tuple[str, ...]:
        """The paths removed, or listed: files that no version within the retention uses. Raises InvalidConfig for a retention
        below the table's, UnsupportedFeature for a table that only Spark can vacuum.
        """

    def checkpoint(self, snapshot: Snapshot) -> None:
        """Write a checkpoint of a version."""

    def cleanup_log(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The paths removed: entries of the log that are older than its retention and not needed."""

    # -- definitions

    def with_properties(self, spec: SpecT, table: TableRef) -> SpecT:
        """The spec with the properties that its own words ask of a table that it makes or overwrites. Raises InvalidConfig where its
        ``table_properties`` say otherwise.
        """

    def created(self, spec: CreateSpec, snapshot: Snapshot | None) -> TableDefinition:
        """The definition that a CreateSpec asks for, in the place of a table or of none. Raises SchemaMismatch, InvalidConfig,
        UnsupportedFeature.
        """

    def overwritten(
        self,
        spec: WriteSpec,
        fields: Sequence[Mapping[str, Any]],
        partition_by: Sequence[str],
        snapshot: Snapshot | None,
    ) -> TableDefinition:
        """The definition of a table whose rows are all written anew. Raises InvalidConfig, SchemaMismatch, UnsupportedFeature."""

    def altered(self, snapshot: Snapshot, spec: AlterSpec) -> Alteration:
        """The definition after the changes of a spec, in their order. Raises SchemaMismatch, InvalidConfig, UnsupportedFeature."""

    def evolved(self, snapshot: Snapshot, fields: Sequence[Mapping[str, Any]], mode: SchemaMode) -> Alteration:
        """The definition that takes the columns of a source. Raises SchemaMismatch, InvalidConfig for a column that must stay."""

    def described(
        self, snapshot: Snapshot, description: str | None, column_comments: Mapping[str, str]
    ) -> TableDefinition | None:
        """The definition with other descriptions, None of the table's leaving it; None where nothing differs."""

    def marking(self, snapshot: Snapshot, definition: Any) -> Any:
        """The definition to commit with marks: that of a table whose rows may be marked. None where it stays as it is; ``definition``
        is what the commit changes it to anyway.
        """

    def marking_change(self, snapshot: Snapshot) -> AlterSpec | None:
        """The change after which the table asks for marks; None where it does, or no row may leave it."""

    def only_own(self, snapshot: Snapshot) -> str | None:
        """Why only commits of this format's own keep what a table is; None where another library's do too."""

    def marks_rows(self, snapshot: Snapshot) -> bool:
        """True if the table asks for rows that leave it to be marked in their files."""

    def fields_of(self, schema: pa.Schema, types: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Arrow columns as ``fields`` of a definition; ``types`` are the same columns' types in DuckDB's SQL."""

    # -- what a table's features, properties and types allow

    def refuse_unknown_features(self, snapshot: Snapshot) -> None:
        """Raise UnsupportedFeature for a table that asks of a commit what ``commit`` does not do."""

    def refuse_copies(self, snapshot: Snapshot) -> None:
        """Raise UnsupportedFeature for a table whose files are more than rows in columns: those of a copy cannot become its own."""

    def only_spark(self, snapshot: Snapshot) -> bool:
        """True for a table that asks of a commit what ``commit`` does not do."""

    def special_properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Those that may ask for more of a table than metadata, which ``commit`` does not set. Raises InvalidConfig for versions of the
        protocol that the format does not have.
        """

    def asked_features(self, properties: Mapping[str, Any]) -> list[str]:
        """The table features that properties of a new table turn on, in words, each with its property."""

    def lacks_feature(self, snapshot: Snapshot, fields: Sequence[Mapping[str, Any]]) -> bool:
        """True for columns with a type that needs a table feature which the table does not have."""

    def constrained_anew(self, snapshot: Snapshot, spec: WriteSpec) -> bool:
        """True if an overwrite keeps or changes the constraints of a table, which ``commit`` can and other writers cannot."""

    def computed_columns(self, snapshot: Snapshot) -> set[str]:
        """The columns that writers compute where rows come without them: generated and identity columns."""

    def spark_type(self, text: str, dialect: str, column: str) -> str:
        """A type of some dialect's SQL in Spark's, as the table would store it. Raises SchemaMismatch, InvalidConfig."""

    def spelled(self, kind: Any) -> str:
        """The ``type`` of a field in Spark's SQL."""

    # -- scratch copies

    def scratch(self, owner: TableRef, definition: TableDefinition) -> AbstractContextManager[ScratchCopy]:
        """A copy of a table, empty and of some definition, to be filled by an engine. Its files stay at the end of the block; all
        else of it goes, and everything if the block raises.
        """
