"""Which row is which: the rows of a table with the file and the number of each, and what a statement computed of them, once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import duckdb

from duckrun.engines.duckdb.target import rows_of
from duckrun.sql.names import fresh_name, quote_identifier, quote_literal
from duckrun.values.data_files import place
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot

_FIGURES = json.dumps({"OPERATOR_NAME": "true", "OPERATOR_TYPE": "true", "EXTRA_INFO": "true"})


@dataclass
class Numbered:
    """SELECT of a table's rows, in which two more columns say which row it is. Their names are quoted. ``in_file``: the number is
    that of the row in its file, from 0. ``opened`` is how many of its files were opened to find rows, None before.
    """

    snapshot: Snapshot
    cursor: duckdb.DuckDBPyConnection
    sql: str
    file: str
    row: str
    in_file: bool = True
    opened: int | None = None

    @contextmanager
    def found(self, sql: str) -> Iterator[str]:
        """computed(), for a query that looks for rows of the table."""
        self.cursor.execute(f"PRAGMA enable_profiling = 'no_output'; SET custom_profiling_settings = '{_FIGURES}'")
        try:
            with computed(self.cursor, sql) as name:
                self.opened = self._opened(json.loads(self.cursor.get_profiling_information(format="json")))
                self.cursor.execute("PRAGMA disable_profiling")
                yield name
        finally:
            with suppress(duckdb.Error):  # where a query failed, its transaction is to be ended first
                self.cursor.execute("PRAGMA disable_profiling")

    def of_files(self, files: Sequence[ScanFile] | None, also: Sequence[str] = ()) -> str:
        """The same of the rows of some files (None: of all), which alone are opened where the rows of files can be read so. ``also`` are
        columns of these files that are none of the table's.
        """
        if not also and (files is None or len(files) == len(self.snapshot.files())):
            return self.sql
        if not self.in_file and files is not None:
            places = ", ".join(quote_literal(place(self.snapshot.ref, f)) for f in files)
            return f"SELECT * FROM ({self.sql}) WHERE {self.file} IN ({places})"
        return rows_of(self.snapshot, self.cursor, files=files, file=self.file[1:-1], row=self.row[1:-1], also=also)

    def _opened(self, operator: Mapping[str, Any]) -> int:
        """The files of this table that a query has opened, by DuckDB's own figures of it."""
        said = operator.get("extra_info") or {}
        names = said.get("Projections") or ()
        columns = [names] if isinstance(names, str) else names
        own = operator.get("operator_type") == "TABLE_SCAN" and self.file[1:-1] in columns
        return (int(said.get("Total Files Read", 0)) if own else 0) + sum(
            map(self._opened, operator.get("children", ()))
        )


@contextmanager
def numbered(snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection) -> Iterator[Numbered]:
    """The rows of a table, each with its file and its number in it, which stay the same as long as the block lasts."""
    taken = names_of(snapshot)
    file, row = fresh_name("__duckrun_file", taken), fresh_name("__duckrun_row", taken)
    if snapshot.sql_types is not None or "file_row_number" not in {name.lower() for name in taken}:
        sql = rows_of(snapshot, cursor, file=file, row=row)
        yield Numbered(snapshot, cursor, sql, quote_identifier(file), quote_identifier(row))
        return
    # DuckDB does not number the rows of a Parquet file that has a column of that name: they get numbers of ours, and stay
    # where these hold.
    counted = f"SELECT *, row_number() OVER () AS {quote_identifier(row)} FROM ({rows_of(snapshot, cursor, file=file)})"
    with computed(cursor, counted) as name:
        yield Numbered(snapshot, cursor, f"SELECT * FROM {name}", quote_identifier(file), quote_identifier(row), False)


def names_of(snapshot: Snapshot) -> set[str]:
    """The columns of a table, those that go or come with the write included."""
    return {*snapshot.schema.names, *snapshot.stored_schema.names}


@contextmanager
def computed(cursor: duckdb.DuckDBPyConnection, sql: str) -> Iterator[str]:
    """The (quoted) name of a temporary table with the rows of a query, which runs once: a volatile one, too, has one answer."""
    name = quote_identifier(f"__duckrun_{uuid.uuid4().hex}")
    cursor.execute(f"CREATE TEMP TABLE {name} AS {sql}")
    try:
        yield name
    finally:
        with suppress(duckdb.Error):  # where a query failed, its transaction takes the table along
            cursor.execute(f"DROP TABLE {name}")


@contextmanager
def one_moment(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """now() has one value in all queries of a block, as in those of one statement: they are one transaction of DuckDB's."""
    cursor.execute("BEGIN TRANSACTION")
    try:
        yield
    except BaseException:
        with suppress(duckdb.Error):
            cursor.execute("ROLLBACK")
        raise
    cursor.execute("COMMIT")
