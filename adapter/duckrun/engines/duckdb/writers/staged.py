"""The staged writer: DuckDB writes Parquet files, and one fenced commit swaps them in."""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb

from duckrun.display.units import parse_bytes, readable_bytes
from duckrun.engines.data_files import file_size
from duckrun.engines.duckdb.rows.reads import Read, may_go_on_top
from duckrun.engines.duckdb.rows.source import Rows, schema_of_types
from duckrun.engines.duckdb.rows.types import has_variant_inside, refuse_variants_inside
from duckrun.engines.duckdb.writers import columnar
from duckrun.engines.duckdb.writers.few_rows import LeftToDuckDB
from duckrun.engines.duckdb.writers.stored_names import as_stored, field_ids
from duckrun.errors import StorageError, UnsupportedFeature
from duckrun.formats.commits import CommitRecord, NewCommit
from duckrun.formats.definitions import TableDefinition
from duckrun.libraries import pa
from duckrun.run.transaction import Transaction
from duckrun.sql.quoting import quote_identifier, quote_literal, quoted_list
from duckrun.storage.trouble import is_full, said
from duckrun.values.columns import leaves
from duckrun.values.data_files import is_absolute
from duckrun.values.layout import CODECS, Codec, codec_of
from duckrun.values.partition_values import NO_VALUE
from duckrun.values.rows import ColumnFigures, Commit, ScanFile, StagedFile
from duckrun.values.snapshot import Snapshot, TableRef, schema_to_text
from duckrun.values.stored import StoredColumn, stored_names, stored_paths, with_stored_names

log = logging.getLogger(__name__)

_OPEN = 100
"""Partition files that DuckDB keeps open (partitioned_write_max_open_files)."""
_LEAST_GROUP, _MOST_GROUP = 8 * 1024**2, 128 * 1024**2
"""Bounds of a row group's bytes in memory.

The maximum is DuckDB's default: one kilobyte for each of its 122,880 rows.
"""
_PEEKED = 500_000
"""Rows that are read to count partitions."""
_STREAMING = {
    "PROJECTION",
    "FILTER",
    "UNION",
    "RANGE",
    "GENERATE_SERIES",
    "UNNEST",
    "EMPTY_RESULT",
    "STREAMING_LIMIT",
    "LIMIT",
}


def stage_in(
    folder: str, rows: Rows, ref: TableRef, partition_by: Sequence[str] = (), **options: Any
) -> tuple[StagedFile, ...]:
    """Write rows as files into a folder of a table's folder; see stage().

    The paths of the files begin with that folder.
    """
    if not folder:
        return stage(rows, ref, partition_by, **options)
    if options.get("beside") is not None:
        options["beside"] = replace(options["beside"], path="")  # only its partition values count
    files = stage(rows, replace(ref, location=f"{ref.location}/{folder}"), partition_by, **options)
    return tuple(replace(file, path=f"{folder}/{file.path}") for file in files)


def stage(
    rows: Rows,
    ref: TableRef,
    partition_by: Sequence[str] = (),
    *,
    properties: Mapping[str, str] = MappingProxyType({}),
    row_group_size: int | None = None,
    beside: ScanFile | None = None,
    partitions: int = 0,
    stored: Sequence[StoredColumn] = (),
) -> tuple[StagedFile, ...]:
    """Write rows as Parquet files into a table's folder.

    Readers see them once they are committed.

    Partition values are written as in the log. File names are unique, so that processes never
    collide. If the call fails, as on a full disk, its files on a local path are removed. So is the
    folder if the call created it.

    Args:
        rows: Rows to write.
        ref: Table, whose location is the folder.
        partition_by: Partition columns.
        properties: Compression and target size of the files, as a rule those of the table.
        row_group_size: Rows of a row group. DuckDB starts a new file between row groups only, so
            this bounds the deviation from the target size.
        beside: A file whose partition and folder the rows get; the rows lack its partition columns.
        partitions: Number of the table's partitions, used if the rows cannot tell. Rows of many
            partitions are sorted by them.
        stored: Physical names of the columns, if these differ.
    """
    rows = _without_void(rows)
    _refuse(rows, ref, partition_by)
    schema = schema_of_types(rows.types, rows.cursor)
    text = schema_to_text(with_stored_names(schema, stored))
    codec = codec_of(properties) or CODECS[0]
    target_size = file_size(properties)
    token = uuid.uuid4().hex[:12]
    is_plain = not (beside or stored or target_size or row_group_size or "://" in ref.location)
    if is_plain:
        try:
            parts = columnar.parts_of(rows, partition_by)
            with _whole(ref, token):
                name = f"part-{token}-{uuid.uuid4()}-c000.{codec}.parquet"
                return tuple(_from_memory(ref, part, name, codec, text) for part in parts)
        except LeftToDuckDB as error:
            log.debug("Table %s: DuckDB writes the rows, because of %s", ref, error)
    copy = _Copy(
        rows, ref, partition_by, codec, token, schema, text, target_size, row_group_size, beside, partitions, stored
    )
    with _whole(ref, token):
        written = rows.cursor.execute(copy.statement()).fetchall()
    return tuple(file for row in written if (file := copy.staged(*row)) is not None)


def _refuse(rows: Rows, ref: TableRef, partition_by: Sequence[str]) -> None:
    """Raise UnsupportedFeature for rows that DuckDB cannot write into the table's folder."""
    if not set(rows.types) - set(partition_by):
        raise UnsupportedFeature(f"Table {ref} needs a column that it is not partitioned by.")
    if partition_by and _is_trimmed(ref) and "://" in ref.location:
        raise UnsupportedFeature(
            f"Table {ref} cannot be written this way: DuckDB writes partitions into no folder of an object store "
            "whose name ends in a letter beyond ASCII",
            remedy="Run this with engine: spark, or say writer: delta_rs",
        )
    refuse_variants_inside(ref, [name for name, kind in rows.types.items() if has_variant_inside(kind)])


@dataclass(frozen=True)
class _Copy:
    """One COPY of rows into files; the fields are those of stage()."""

    rows: Rows
    ref: TableRef
    partition_by: Sequence[str]
    codec: Codec
    token: str
    """Part of each file's name, by which a failed call finds its files."""
    schema: pa.Schema
    """Schema of the rows."""
    text: str
    """Schema of the files, as text."""
    target_size: int | None
    row_group_size: int | None
    beside: ScanFile | None
    partitions: int
    stored: Sequence[StoredColumn]

    def statement(self) -> str:
        """Return the COPY statement. Its result has one row for each file."""
        if self.partition_by:
            query, target, options = self._into_partitions()
        else:
            query, (target, options) = self.rows.ordered(), self._into_folder()
        options = [*self._options_of_files(), *options]
        query = as_stored(query, self.rows.types, self.stored)
        return f"COPY ({query}) TO {quote_literal(target)} ({', '.join(options)})"

    def _options_of_files(self) -> list[str]:
        options = ["FORMAT parquet", "RETURN_STATS", f"COMPRESSION {self.codec}"]
        options.append(f"ROW_GROUP_SIZE_BYTES {_row_group_bytes(self.rows.cursor)}")
        if self.row_group_size:
            options.append(f"ROW_GROUP_SIZE {int(self.row_group_size)}")
        if ids := field_ids(self.stored, [name for name in self.rows.types if name not in self.partition_by]):
            options.append(ids)
        return options

    def _pattern(self) -> str:
        return f"FILENAME_PATTERN 'part-{self.token}-{{uuid}}-c000.{self.codec}'"

    def _into_partitions(self) -> tuple[str, str, list[str]]:
        """Return the query with the log's partition values, the target folder and its options."""
        rows, ref, partition_by = self.rows, self.ref, self.partition_by
        in_files = stored_names(self.stored)
        names = ", ".join(quote_identifier(in_files.get(c, c)) for c in partition_by)
        values = ", ".join(f"{_log_value(c, rows.types[c])} AS {quote_identifier(c)}" for c in partition_by)
        first = partition_by if rows.order or is_scattered(rows, partition_by, lambda: self.partitions) else ()
        query = f"SELECT * REPLACE ({values}) FROM ({rows.ordered(first)})"
        options = [f"PARTITION_BY ({names})", "WRITE_PARTITION_COLUMNS false", "OVERWRITE_OR_IGNORE true"]
        return query, ref.location + "/." * _is_trimmed(ref), [*options, self._pattern()]

    def _into_folder(self) -> tuple[str, list[str]]:
        """Return the target and its options: a file, or a folder for files of a target size."""
        beside = self.beside
        below = beside.path.rpartition("/")[0] if beside is not None and not is_absolute(beside.path) else ""
        folder = f"{self.ref.location}/{below}" if below else self.ref.location
        if self.target_size:
            return folder, [f"FILE_SIZE_BYTES {int(self.target_size)}", self._pattern(), "OVERWRITE_OR_IGNORE true"]
        return f"{folder}/part-{self.token}-{uuid.uuid4()}-c000.{self.codec}.parquet", []

    def staged(
        self,
        file: str,
        count: int,
        size: int,
        footer: object,
        stats: Mapping[str, Mapping[str, str]] | None,
        keys: Mapping[str, str | None] | None,
    ) -> StagedFile | None:
        """Return the file of one row of the statement's result; remove a local file without rows.

        Args:
            file: Path or address as DuckDB spells it.
            count: Number of its rows.
            size: Its bytes.
            footer: Bytes of its footer; not used.
            stats: Statistics by quoted path of a column in the file.
            keys: Its partition values by column.
        """
        path = _relative(file, self.ref.location)
        if not count:
            if "://" not in self.ref.location:
                (Path(self.ref.location) / path).unlink(missing_ok=True)
            return None
        in_table = {name: column for column, name in stored_names(self.stored).items()}
        values = {in_table.get(k, k): v for k, v in (keys or {}).items()}
        return StagedFile(
            path=path,
            size=size,
            partition_values=dict(self.beside.partition_values) if self.beside else values,
            rows=count,
            schema=self.text,
            figures=figures(stats or {}, self.schema, self.stored),
        )


def _from_memory(ref: TableRef, part: columnar.Part, name: str, codec: Codec, schema: str) -> StagedFile:
    """Write the rows of one partition to a file of this name in the partition's folder."""
    path = "/".join([*(f"{column}={value or NO_VALUE}" for column, value in part.values.items()), name])
    file = Path(ref.location, path)
    file.parent.mkdir(parents=True, exist_ok=True)
    of_columns = columnar.write(part.rows, file, codec)
    return StagedFile(path, file.stat().st_size, part.values, len(part.rows), schema=schema, figures=of_columns)


def _row_group_bytes(cursor: duckdb.DuckDBPyConnection) -> int:
    """Maximum bytes of a row group."""
    # A row group is in memory as a whole. A part of a thread's memory leaves room for long rows.
    settings = cursor.execute("SELECT current_setting('memory_limit'), current_setting('threads')").fetchone()
    assert settings is not None
    each = parse_bytes(settings[0]) // settings[1] // 6
    return min(max(each, _LEAST_GROUP), _MOST_GROUP)


def is_scattered(rows: Rows, partition_by: Sequence[str], partitions: Callable[[], int]) -> bool:
    """True for rows of more partitions than DuckDB keeps files open for."""
    # Unsorted, each return to a closed partition starts a new file: 20,000 files for 12 million
    # rows in 1,000 partitions. It also takes more memory than a sort.
    if rows.one_shot or not _streams(rows):
        return partitions() > _OPEN
    names = quoted_list(partition_by)
    seen = f"SELECT DISTINCT {names} FROM (SELECT {names} FROM ({rows.sql}) LIMIT {_PEEKED}) LIMIT {_OPEN + 1}"
    return len(rows.cursor.execute(seen).fetchall()) > _OPEN


def partitions_of(table: TableDefinition | Snapshot | None) -> int:
    """Upper bound of a table's number of partitions; 0 if unknown or unpartitioned."""
    return len(table.files()) if isinstance(table, Snapshot) and table.partition_columns else 0


def _streams(rows: Rows) -> bool:
    """True if the first rows come without work for all: the plan has no join, grouping or sort."""
    plan = rows.cursor.execute(f"EXPLAIN (FORMAT JSON) {rows.sql}").fetchall()[-1][1]
    waiting = json.loads(plan)
    while waiting:
        operator = waiting.pop()
        name = operator["name"].strip()
        if name not in _STREAMING and not name.endswith("_SCAN") and not name.startswith("READ_"):
            return False
        waiting += operator["children"]
    return True


def _without_void(rows: Rows) -> Rows:
    """Drop VOID columns, because Spark cannot read a file that has one."""
    void = [name for name, kind in rows.types.items() if kind.id == "null"]
    if not void:
        return rows
    names = ", ".join(map(quote_identifier, void))
    types = {name: kind for name, kind in rows.types.items() if name not in void}
    return replace(rows, sql=f"SELECT * EXCLUDE ({names}) FROM ({rows.sql})", types=types)


def _is_trimmed(ref: TableRef) -> bool:
    """True for a folder whose last characters a partitioned COPY would drop."""
    # DuckDB 1.5.5 takes trailing non-ASCII characters for separators (StringUtil::RTrim).
    # https://github.com/duckdb/duckdb/pull/24482
    return not ref.location[-1].isascii()


def figures(
    stats: Mapping[str, Mapping[str, str]], schema: pa.Schema, stored: Sequence[StoredColumn] = ()
) -> dict[str, ColumnFigures]:
    """Column statistics from COPY's RETURN_STATS, by quoted column path in the table.

    ``stats`` maps quoted paths in the file to figures, all of them texts. For lists and maps DuckDB
    counts nested NULLs and empty ones. A count of zero means that no value is NULL.
    """
    figures = {}
    in_files = dict(stored_paths(stored))
    for names, kind in leaves(schema):
        path = quote_identifier(*names)
        file_path = quote_identifier(*in_files[names]) if names in in_files else path
        each = stats.get(file_path)
        if pa.types.is_nested(kind):
            if any(inner.startswith(file_path + '."') and of.get("null_count") == "0" for inner, of in stats.items()):
                figures[path] = ColumnFigures(nulls=0)
        elif each is not None:
            figures[path] = ColumnFigures(
                each.get("min"),
                each.get("max"),
                int(each["null_count"]) if "null_count" in each else None,
                each.get("has_nan") == "true",
            )
    return figures


@contextmanager
def _whole(ref: TableRef, token: str) -> Iterator[None]:
    """Create a local table's folder, and remove everything that a failed COPY wrote.

    In an object store an upload is atomic.
    """
    if "://" in ref.location:
        yield
        return
    folder = Path(ref.location)
    is_new = not folder.exists()
    try:
        placeholder = _held(folder, token) if is_new else None
        yield
        if placeholder is not None:
            placeholder.unlink(missing_ok=True)
    except BaseException as error:
        parts = list(folder.rglob(f"*part-{token}-*"))
        written = sum(part.stat().st_size for part in parts)
        for part in parts:
            part.unlink(missing_ok=True)
        disk_error = _full(error, ref, written)
        if is_new:
            for empty in (*sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True), folder):
                with suppress(OSError):
                    empty.rmdir()
        if disk_error is not None:
            raise disk_error from error
        raise


def _held(folder: Path, token: str) -> Path:
    """Create a folder with a placeholder file."""
    # A concurrent DROP SCHEMA removes empty folders.
    placeholder = folder / f"part-{token}-first.parquet"
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # the folder was removed in between
            placeholder.touch()
            return placeholder


def _full(error: BaseException, ref: TableRef, written: int) -> StorageError | None:
    """Error of a full disk, with the bytes written and the bytes free; None for another error."""
    if not isinstance(error, duckdb.Error | OSError) or not is_full(error):
        return None
    free = shutil.disk_usage(next(folder for folder in Path(ref.location).parents if folder.is_dir())).free
    needed = (
        f"{readable_bytes(written, decimal=True)} of this write's files were there and it needs more, "
        if written
        else ""
    )
    return StorageError(
        f"table {ref}: the disk is full, or a limit on its use is reached: "
        f"{needed}{readable_bytes(free, decimal=True)} are free now that its files are gone ({said(error)})",
        remedy="make room and run this again",
    )


def _log_value(column: str, kind: Any) -> str:
    """SQL of a partition value as text. Source: Delta protocol, Partition Value Serialization."""
    name = quote_identifier(column)
    if kind.id == "timestamp with time zone":
        name = f"timezone('UTC', {name})"
    return f"CAST({name} AS VARCHAR)"


def _relative(file: str, location: str) -> str:
    file = file.replace(f"{location}/./", f"{location}/")
    if not file.startswith(location + "/"):
        raise StorageError(f"DuckDB wrote {file}, which is not below {location}.")
    return file[len(location) + 1 :]


def commit(
    transaction: Transaction,
    snapshot: Snapshot | None,
    new: NewCommit,
    read: Callable[[], Read],
    *,
    fence: int | None = None,
) -> Commit:
    """Make staged files visible, and remove those that they replace, in one commit.

    If another writer took the version, the same files are committed on top of it. That needs that
    no commit in between changed rows of ``read``. A changed definition, or a ``fence`` (the only
    version to commit on), excludes it.

    Args:
        transaction: Transaction of the table.
        snapshot: Version that the write was computed from.
        new: The commit.
        read: Rows that the write depends on. It is called once another writer has committed,
            because it parses the predicate, and in a branch, whose log tells them.
        fence: Version that the write is bound to.

    Raises:
        CommitTaken: The commit cannot go on top; the transaction runs again.
    """
    paths, read_once = {file.path for file in new.adds}, cache(read)

    def on_top(others: Sequence[CommitRecord]) -> bool:
        if any(paths & other.added_paths for other in others):  # staged files that another process committed
            return False
        return may_go_on_top(transaction, others, new.removes, read_once())

    if transaction.lake.branch_name is not None:
        new = replace(new, reads=read_once().conditions())
    return transaction.commit(snapshot, new, on_top if fence is None and new.definition is None else None)
