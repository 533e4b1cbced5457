"""The staged writer: DuckDB writes Parquet files, and one fenced commit swaps them in."""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
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
    columns = [name for name in rows.types if name not in partition_by]
    if not columns:
        raise UnsupportedFeature(f"Table {ref} needs a column that it is not partitioned by.")
    if why := why_not(ref, partition_by):
        raise UnsupportedFeature(
            f"Table {ref} cannot be written this way: {why}",
            remedy="Run this with engine: spark, or say writer: delta_rs",
        )
    refuse_variants_inside(ref, [name for name, kind in rows.types.items() if has_variant_inside(kind)])
    token = uuid.uuid4().hex[:12]
    schema = schema_of_types(rows.types, rows.cursor)
    text = schema_to_text(with_stored_names(schema, stored))
    codec = codec_of(properties) or CODECS[0]
    target_file_size = file_size(properties)
    is_plain = not (beside or stored or target_file_size or row_group_size or "://" in ref.location)
    if is_plain and (parts := columnar.parts_of(rows, partition_by)) is not None:
        try:
            with _whole(ref, token):
                name = f"part-{token}-{uuid.uuid4()}-c000.{codec}.parquet"
                return tuple(_by_polars(ref, part, name, codec, text) for part in parts)
        except columnar.RowsChanged as error:
            log.debug("Table %s: DuckDB writes the rows, in one pass: %s", ref, error)
    options = ["FORMAT parquet", "RETURN_STATS", f"COMPRESSION {codec}"]
    options.append(f"ROW_GROUP_SIZE_BYTES {_row_group_bytes(rows.cursor)}")
    if row_group_size:
        options.append(f"ROW_GROUP_SIZE {int(row_group_size)}")
    in_files = stored_names(stored)
    if ids := field_ids(stored, columns):
        options.append(ids)
    if partition_by:
        names = ", ".join(quote_identifier(in_files.get(c, c)) for c in partition_by)
        options += [f"PARTITION_BY ({names})", "WRITE_PARTITION_COLUMNS false", "OVERWRITE_OR_IGNORE true"]
        options.append(f"FILENAME_PATTERN 'part-{token}-{{uuid}}-c000.{codec}'")
        values = ", ".join(f"{_log_value(c, rows.types[c])} AS {quote_identifier(c)}" for c in partition_by)
        first = partition_by if rows.order or is_scattered(rows, partition_by, lambda: partitions) else ()
        query, target = f"SELECT * REPLACE ({values}) FROM ({rows.ordered(first)})", ref.location
        target += "/." * _is_trimmed(ref)
    else:
        below = beside.path.rpartition("/")[0] if beside is not None and not is_absolute(beside.path) else ""
        folder = f"{ref.location}/{below}" if below else ref.location
        if target_file_size:
            options += [
                f"FILE_SIZE_BYTES {int(target_file_size)}",
                f"FILENAME_PATTERN 'part-{token}-{{uuid}}-c000.{codec}'",
            ]
            options.append("OVERWRITE_OR_IGNORE true")
            target = folder
        else:
            target = f"{folder}/part-{token}-{uuid.uuid4()}-c000.{codec}.parquet"
        query = rows.ordered()
    query = as_stored(query, rows.types, stored)
    copy = f"COPY ({query}) TO {quote_literal(target)} ({', '.join(options)})"
    with _whole(ref, token):
        written = rows.cursor.execute(copy).fetchall()
    staged = []
    by_column = {name: column for column, name in in_files.items()}
    for file, count, size, _footer, stats, keys in written:
        path = _relative(str(file), ref.location)
        if count:
            staged.append(
                StagedFile(
                    path=path,
                    size=size,
                    partition_values=dict(
                        beside.partition_values if beside else {by_column.get(k, k): v for k, v in (keys or {}).items()}
                    ),
                    rows=count,
                    schema=text,
                    figures=figures(stats or {}, schema, stored),
                )
            )
        elif "://" not in ref.location:
            (Path(ref.location) / path).unlink(missing_ok=True)
    return tuple(staged)


def _by_polars(ref: TableRef, part: columnar.Part, name: str, codec: Codec, schema: str) -> StagedFile:
    """Write the rows of one partition to a file of this name in the partition's folder."""
    path = "/".join([*(f"{column}={value or NO_VALUE}" for column, value in part.values.items()), name])
    file = Path(ref.location, path)
    file.parent.mkdir(parents=True, exist_ok=True)
    of_columns = columnar.write(part.rows, file, codec)
    return StagedFile(path, file.stat().st_size, part.values, part.rows.height, schema=schema, figures=of_columns)


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


def why_not(ref: TableRef, partition_by: Sequence[str]) -> str | None:
    """Reason why DuckDB cannot write partitioned files to a table's folder; None if it can."""
    if partition_by and _is_trimmed(ref) and "://" in ref.location:
        return "DuckDB writes partitions into no folder of an object store whose name ends in a letter beyond ASCII"
    return None


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
