"""The staged writer: DuckDB writes the Parquet files, one fenced commit shows them and removes what they replace."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import pyarrow as pa

from duckrun.display.units import readable_bytes
from duckrun.engines.data_files import file_size
from duckrun.engines.duckdb.source import Rows, schema_of_types
from duckrun.engines.duckdb.types import has_variant_inside, refuse_variants_inside
from duckrun.engines.duckdb.writers.reads import Read, may_go_on_top
from duckrun.engines.duckdb.writers.stored_names import as_stored, field_ids
from duckrun.errors import StorageError, UnsupportedFeature
from duckrun.formats.commits import CommitRecord, NewCommit
from duckrun.run.memory import parse_bytes
from duckrun.run.transaction import Transaction
from duckrun.sql.names import quote_identifier, quote_literal
from duckrun.storage.trouble import is_full, said
from duckrun.values.columns import leaves
from duckrun.values.data_files import is_absolute
from duckrun.values.layout import CODECS, codec_of
from duckrun.values.rows import ColumnFigures, Commit, ScanFile, StagedFile
from duckrun.values.snapshot import Snapshot, TableRef, schema_to_text
from duckrun.values.stored import StoredColumn, stored_names, stored_paths, with_stored_names

_OPEN = 100
"""Files of partitions that DuckDB keeps open (partitioned_write_max_open_files)."""
_LEAST_GROUP, _MOST_GROUP = 8 * 1024**2, 128 * 1024**2
"""Bytes of a row group in memory. The most is DuckDB's own, a kilobyte for each of its 122,880 rows."""
_PEEKED = 500_000
"""Rows of which the partitions are counted."""
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
    """Write rows as Parquet files into a table's folder. No reader sees them before they are committed.

    Values of partition columns come as the log writes them; file names are unique, so that processes never collide.
    The ``properties``, of the table as a rule, say how the files are compressed, and how large they are. DuckDB begins another file
    between row groups only, so ``row_group_size`` (rows) bounds how close it keeps to that size. ``beside``: the rows are of that file's partition, without its columns, and go into the same folder.
    ``stored`` says how the columns are called in the files, where those have names of their own.
    Rows of many partitions, as many as the table's ``partitions`` where the rows cannot tell, are sorted by them first.
    If it fails, as on a full disk, the files of this call on a local path go, and the folder if it was made for them.
    """
    rows = _without_void(rows)
    columns = [name for name in rows.types if name not in partition_by]
    if not columns:
        raise UnsupportedFeature(f"Table {ref} needs a column that it is not partitioned by.")
    if why := why_not(ref, partition_by):
        raise UnsupportedFeature(
            f"Table {ref} cannot be written this way: {why}. Nothing was written. Run this with engine: spark, or say writer: delta_rs."
        )
    refuse_variants_inside(ref, [name for name, kind in rows.types.items() if has_variant_inside(kind)])
    token = uuid.uuid4().hex[:12]
    schema = schema_of_types(rows.types, rows.cursor)
    text = schema_to_text(with_stored_names(schema, stored))
    codec = codec_of(properties) or CODECS[0]
    target_file_size = file_size(properties)
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
    for file, count, size, _footer, found, keys in written:
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
                    figures=figures(found or {}, schema, stored),
                )
            )
        elif "://" not in ref.location:
            (Path(ref.location) / path).unlink(missing_ok=True)
    return tuple(staged)


def _row_group_bytes(cursor: duckdb.DuckDBPyConnection) -> int:
    """The most bytes of a row group, which is in memory as a whole: a part of what a thread has, so that long rows are written too."""
    found = cursor.execute("SELECT current_setting('memory_limit'), current_setting('threads')").fetchone()
    assert found is not None
    each = parse_bytes(found[0]) // found[1] // 6
    return min(max(each, _LEAST_GROUP), _MOST_GROUP)


def is_scattered(rows: Rows, partition_by: Sequence[str], partitions: Callable[[], int]) -> bool:
    """True for rows of more partitions than DuckDB keeps files open for: in no order they become a file for each time that it comes
    back to one of them (20,000 files, for 12 million rows in 1,000 partitions), and take more memory than a sort.
    """
    if rows.one_shot or not _streams(rows):
        return partitions() > _OPEN
    names = ", ".join(quote_identifier(c) for c in partition_by)
    seen = f"SELECT DISTINCT {names} FROM (SELECT {names} FROM ({rows.sql}) LIMIT {_PEEKED}) LIMIT {_OPEN + 1}"
    return len(rows.cursor.execute(seen).fetchall()) > _OPEN


def _streams(rows: Rows) -> bool:
    """True if the first rows come without the work for all of them: nothing is joined, grouped or sorted."""
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
    """Rows without their VOID columns: Spark reads no file that has one."""
    void = [name for name, kind in rows.types.items() if kind.id == "null"]
    if not void:
        return rows
    names = ", ".join(map(quote_identifier, void))
    types = {name: kind for name, kind in rows.types.items() if name not in void}
    return replace(rows, sql=f"SELECT * EXCLUDE ({names}) FROM ({rows.sql})", types=types)


def why_not(ref: TableRef, partition_by: Sequence[str]) -> str | None:
    """Why DuckDB cannot write files of some partitions to a table's folder; None where it can."""
    if partition_by and _is_trimmed(ref) and "://" in ref.location:
        return "DuckDB writes partitions into no folder of an object store whose name ends in a letter beyond ASCII"
    return None


def _is_trimmed(ref: TableRef) -> bool:
    """True for a folder of which a COPY with partitions would leave out the last letters: DuckDB 1.5.5 takes all beyond ASCII for
    separators at the end (StringUtil::RTrim).
    """
    return not ref.location[-1].isascii()


def figures(
    found: Mapping[str, Mapping[str, str]], schema: pa.Schema, stored: Sequence[StoredColumn] = ()
) -> dict[str, ColumnFigures]:
    """What RETURN_STATS says (quoted path in the file -> figures, all of them texts) of the columns that hold values, by their quoted
    paths in the table. Of a list or a map it counts the NULLs within, empty ones too: none of them means that none is NULL.
    """
    figures = {}
    in_files = dict(stored_paths(stored))
    for names, kind in leaves(schema):
        path = ".".join(map(quote_identifier, names))
        held = ".".join(map(quote_identifier, in_files.get(names, names)))
        each = found.get(held)
        if pa.types.is_nested(kind):
            if any(inner.startswith(held + '."') and of.get("null_count") == "0" for inner, of in found.items()):
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
    """Make the folder of a local table, and leave nothing of a COPY that fails. In a store an upload is whole or not there."""
    if "://" in ref.location:
        yield
        return
    folder = Path(ref.location)
    made = not folder.exists()
    try:
        held = _held(folder, token) if made else None
        yield
        if held is not None:
            held.unlink(missing_ok=True)
    except BaseException as error:
        parts = list(folder.rglob(f"*part-{token}-*"))
        written = sum(part.stat().st_size for part in parts)
        for part in parts:
            part.unlink(missing_ok=True)
        told = _full(error, ref, written)
        if made:
            for empty in (*sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True), folder):
                with suppress(OSError):
                    empty.rmdir()
        if told is not None:
            raise told from error
        raise


def _held(folder: Path, token: str) -> Path:
    """A new folder, with a file that keeps it until there are others: whoever drops its schema takes along folders that are empty."""
    held = folder / f"part-{token}-first.parquet"
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # it was taken between the two
            held.touch()
            return held


def _full(error: BaseException, ref: TableRef, written: int) -> StorageError | None:
    """The error of a disk that is full, with what the write needs of it and what is free."""
    if not isinstance(error, duckdb.Error | OSError) or not is_full(error):
        return None
    free = shutil.disk_usage(next(folder for folder in Path(ref.location).parents if folder.is_dir())).free
    needed = (
        f"{readable_bytes(written, decimal=True)} of this write's files were there and it needs more, "
        if written
        else ""
    )
    return StorageError(
        f"table {ref}: the disk is full, or a limit on its use is reached: {needed}{readable_bytes(free, decimal=True)} are free now that its "
        f"files are gone ({said(error)}). Nothing was committed; make room and run this again."
    )


def _log_value(column: str, kind: Any) -> str:
    """SQL for a partition value as text. Source: Delta protocol, Partition Value Serialization."""
    name = quote_identifier(column)
    if kind.id == "timestamp with time zone":
        name = f"timezone('UTC', {name})"
    return f"CAST({name} AS VARCHAR)"


def _relative(file: str, location: str) -> str:
    file = file.replace("\\", "/").replace(f"{location}/./", f"{location}/")
    if not file.startswith(location + "/"):
        raise StorageError(f"DuckDB wrote {file}, which is not below {location}.")
    return file[len(location) + 1 :]


def commit(
    transaction: Transaction, snapshot: Snapshot | None, new: NewCommit, read: Read, *, fence: int | None = None
) -> Commit:
    """Make staged files visible, and remove what they replace, in one commit.

    If the version is taken, the same files go on top as long as no commit between changed what this write ``read``; never those of
    a write that changes the table's definition, or that a ``fence`` holds to one version. Else CommitTaken is raised, and the
    transaction runs again.
    """

    paths = {file.path for file in new.adds}

    def on_top(others: Sequence[CommitRecord]) -> bool:
        if any(paths & other.added_paths for other in others):  # staged files that another process committed
            return False
        return may_go_on_top(transaction, others, new.removes, read)

    return transaction.commit(snapshot, new, on_top if fence is None and new.definition is None else None)
