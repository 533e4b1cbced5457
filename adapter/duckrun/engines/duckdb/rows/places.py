"""Identity of rows: a table's rows with file and row number, and a statement's computed results."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from operator import methodcaller
from typing import Any

import duckdb

from duckrun.engines.duckdb.instance.lazy_cursor import before_use, dropped
from duckrun.engines.duckdb.rows.target import rows_of
from duckrun.sql.quoting import fresh_name, quote_identifier, quote_literal
from duckrun.values.data_files import place_of
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot

_MOST_NAMED = 1_000
"""Maximum number of files whose names a statement lists."""
_FIGURES = json.dumps({"OPERATOR_NAME": "true", "OPERATOR_TYPE": "true", "EXTRA_INFO": "true"})


@dataclass
class Numbered:
    """SELECT of a table's rows with two more columns that identify each row."""

    snapshot: Snapshot
    cursor: duckdb.DuckDBPyConnection
    sql: str
    file: str
    """Quoted name of the column with the row's file."""
    row: str
    """Quoted name of the column with the row's number."""
    in_file: bool = True
    """True if the number is the row's position in its file, from 0."""
    opened: int | None = None
    """Number of files that a search opened; None before a search."""

    @cached_property
    def file_type(self) -> str:
        """Type of stored names of files.

        A value of an ENUM takes a byte or two, and the name of a file a hundred.
        """
        files = [] if self.snapshot.sql_types is not None else self.snapshot.files()
        if not 0 < len(files) <= _MOST_NAMED:
            return "VARCHAR"
        places = sorted({place_of(self.snapshot.ref.location, each) for each in files})
        return f"ENUM({', '.join(map(quote_literal, places))})"

    def same(self, one: str, other: str) -> str:
        """Condition that two aliases have the same row of the table."""
        return " AND ".join(f"{one}.{name} = {other}.{name}" for name in (self.file, self.row))

    @contextmanager
    def found(self, sql: str) -> Iterator[str]:
        """As computed(), for a query that searches the table's rows; counts the opened files."""
        self.cursor.execute(f"PRAGMA enable_profiling = 'no_output'; SET custom_profiling_settings = '{_FIGURES}'")
        try:
            with computed(self.cursor, sql) as name:
                self.opened = self._opened(json.loads(self.cursor.get_profiling_information(format="json")))
                self.cursor.execute("PRAGMA disable_profiling")
                yield name
        finally:
            with suppress(duckdb.Error):  # after a failed query, its transaction must end first
                self.cursor.execute("PRAGMA disable_profiling")

    def of_files(self, files: Sequence[ScanFile] | None, also: Sequence[str] = ()) -> str:
        """SELECT of the rows of some files (None: all).

        Only these files are opened, if rows can be identified in their files. ``also`` are columns
        of the files that are not the table's.
        """
        if not also and (files is None or len(files) == len(self.snapshot.files())):
            return self.sql
        if not self.in_file and files is not None:
            places = ", ".join(quote_literal(place_of(self.snapshot.ref.location, f)) for f in files)
            return f"SELECT * FROM ({self.sql}) WHERE {self.file} IN ({places})"
        return rows_of(self.snapshot, files=files, file=self.file[1:-1], row=self.row[1:-1], also=also)

    def _opened(self, operator: Mapping[str, Any]) -> int:
        """Number of this table's files that a query opened, from DuckDB's profile."""
        extra_info = operator.get("extra_info") or {}
        names = extra_info.get("Projections") or ()
        columns = [names] if isinstance(names, str) else names
        is_this_table = operator.get("operator_type") == "TABLE_SCAN" and self.file[1:-1] in columns
        return (int(extra_info.get("Total Files Read", 0)) if is_this_table else 0) + sum(
            map(self._opened, operator.get("children", ()))
        )


@contextmanager
def numbered(snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection) -> Iterator[Numbered]:
    """Yield the rows of a table with file and row number, which are stable while the block runs."""
    taken = names_of(snapshot)
    file, row = fresh_name("__duckrun_file", taken), fresh_name("__duckrun_row", taken)
    if snapshot.sql_types is not None or "file_row_number" not in {name.lower() for name in taken}:
        sql = rows_of(snapshot, file=file, row=row)
        yield Numbered(snapshot, cursor, sql, quote_identifier(file), quote_identifier(row))
        return
    # DuckDB cannot number the rows of a Parquet file that has a column file_row_number. We number
    # them, in a temporary table that keeps the numbers stable.
    with_numbers = f"SELECT *, row_number() OVER () AS {quote_identifier(row)} FROM ({rows_of(snapshot, file=file)})"
    with computed(cursor, with_numbers) as name:
        yield Numbered(snapshot, cursor, f"SELECT * FROM {name}", quote_identifier(file), quote_identifier(row), False)


def names_of(snapshot: Snapshot) -> set[str]:
    """Columns of a table, including those that the write drops or adds."""
    return {*snapshot.schema.names, *snapshot.stored_schema.names}


@contextmanager
def computed(cursor: duckdb.DuckDBPyConnection, sql: str) -> Iterator[str]:
    """Yield the quoted name of a temporary table with the rows of a query."""
    # The query runs once, so that a volatile one has a single result.
    name = quote_identifier(f"__duckrun_{uuid.uuid4().hex}")
    cursor.execute(f"CREATE TEMP TABLE {name} AS {sql}")
    try:
        yield name
    finally:
        with suppress(duckdb.Error):  # the transaction of a failed query drops the table
            cursor.execute(f"DROP TABLE {name}")


@contextmanager
def one_moment(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Run the block as one DuckDB transaction, so that now() has one value in all its queries."""
    begin = methodcaller("execute", "BEGIN TRANSACTION")
    before_use(cursor, begin)
    try:
        yield
    except BaseException:
        if not dropped(cursor, begin):
            with suppress(duckdb.Error):
                cursor.execute("ROLLBACK")
        raise
    if not dropped(cursor, begin):
        cursor.execute("COMMIT")


def counted(cursor: duckdb.DuckDBPyConnection, rows: str, where: str = "true") -> int:
    """Number of rows of a table, or of a query in parentheses, that satisfy a condition."""
    row = cursor.execute(f"SELECT count(*) FROM {rows} WHERE {where}").fetchone()
    return row[0] if row else 0
