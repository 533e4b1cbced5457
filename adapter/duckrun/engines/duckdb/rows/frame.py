"""A DuckDB query as the source of LazyRows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import duckdb

from duckrun.engines.duckdb.instance.instance import Instance
from duckrun.engines.duckdb.instance.sql import errors_about
from duckrun.engines.duckdb.rows.polars_source import Relation, lazy_frame
from duckrun.engines.duckdb.rows.source import Rows, SqlOnCursor, refuse_without_arrow_form, rows_of_relation
from duckrun.engines.tabular.values import is_pattern
from duckrun.libraries import pa
from duckrun.run.pins import Reads
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.values.columns import told_apart

log = logging.getLogger(__name__)


@dataclass(eq=False)
class DuckDBFrame:
    """A query on its own cursor.

    Apart from registered values, its text names nothing that only other cursors see.
    """

    instance: Instance
    cursor: duckdb.DuckDBPyConnection
    sql: str
    what: str
    """Start of error messages about its rows."""
    as_written: Callable[[str], str] = str
    """Restores the names of the user's query in an error message."""

    files: Callable[[], Sequence[str] | None] = lambda: None
    """Returns files whose columns of these names are the rows, for any Parquet reader."""

    name_values: Callable[[duckdb.DuckDBPyConnection], object] = lambda cursor: None
    """Names the registered values that the text reads on another cursor."""

    typed: str | None = None
    """A query with the same columns that opens no table; None if only ``sql`` has them."""

    def __post_init__(self) -> None:
        with self._errors():
            statement = self._parsed(self.typed or self.sql)
            if isinstance(statement, str):  # a PIVOT has a column per value in its rows
                self.typed, statement = None, self.sql
            if self.typed is None:
                self._statement = statement
            self.bound = self.cursor.sql(statement)

    def _parsed(self, sql: str) -> duckdb.Statement | str:
        # A parsed statement saves a parse per use. A PIVOT becomes several statements, and stays
        # text.
        parsed = self.cursor.extract_statements(sql)
        return parsed[0] if len(parsed) == 1 else sql

    @cached_property
    def _statement(self) -> duckdb.Statement | str:
        return self._parsed(self.sql)

    @cached_property
    def native(self) -> duckdb.DuckDBPyRelation:
        """The query as a relation. Each bind opens the logs, so it is bound at its first use."""
        if self.typed is None:
            return self.bound
        with self._errors():
            return self.cursor.sql(self._statement)

    def schema(self) -> pa.Schema:
        refuse_without_arrow_form(self.bound)
        with self._errors():
            return self.bound.limit(0).to_arrow_table().schema

    def reader(self) -> pa.RecordBatchReader:
        refuse_without_arrow_form(self.bound)
        # A relation would bind the query again, and each bind reads the log or the catalog.
        return self._read(lambda cursor: cursor.execute(self._statement))

    def _read(
        self, run: Callable[[duckdb.DuckDBPyConnection], Relation | duckdb.DuckDBPyConnection]
    ) -> pa.RecordBatchReader:
        """Read the rows of a query that runs on a cursor."""
        with self._errors():
            if self.cursor is self.instance.held:
                return run(self.cursor).to_arrow_table().to_reader()
            cursor = self._another_cursor()
            reader = run(cursor).to_arrow_reader(batch_size=100_000)
        return pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader, cursor))

    def _another_cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor for one read.

        DuckDB ends a stream, without an error, at the next query of its cursor.
        """
        if self.cursor is self.instance.only:
            return self.cursor
        cursor = self.instance.beside(self.cursor)
        self.name_values(cursor)
        return cursor

    def _batches(self, reader: pa.RecordBatchReader, cursor: duckdb.DuckDBPyConnection) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a reader; its cursor lives until the last one."""
        with self._errors():
            yield from reader

    def _errors(self) -> AbstractContextManager[None]:
        queries = (self.sql, *self.instance.views.values())
        return errors_about(self.what, queries=queries, as_written=self.as_written, writes=False)

    def _of(self, query: Callable[[str], str]) -> DuckDBFrame:
        """A query over this one, by its text."""
        typed = None if self.typed is None else query(self.typed)
        return replace(self, sql=query(self.sql), typed=typed, files=lambda: None)

    def polars(self) -> Any:
        import polars

        files, names = self.files(), list(self.bound.columns)
        if not files or any(map(is_pattern, names)):
            return None
        try:
            frame = polars.read_parquet(list(files), columns=names, glob=False, hive_partitioning=False).select(names)
        except (OSError, polars.exceptions.PolarsError) as error:
            log.debug("%s: polars cannot read the files, so DuckDB reads them and reports errors: %s", self.what, error)
            return None
        schema = polars.DataFrame(self.schema().empty_table()).schema
        # Footers of Arrow writers name the zone that instants were written with, and other hints.
        return frame if frame.schema == schema else frame.cast(schema)

    def polars_lazy(self, check: Callable[[], None]) -> Any:
        """A polars LazyFrame that reads the tables at each collect(), after a call of ``check``."""
        import polars

        refuse_without_arrow_form(self.bound)
        empty = self.schema().empty_table()
        columns = polars.from_arrow(empty.rename_columns(told_apart(empty.column_names)))
        assert isinstance(columns, polars.DataFrame)

        def read(narrowed: Callable[[Relation], Relation]) -> pa.RecordBatchReader:
            check()
            return self._read(lambda cursor: narrowed(cursor.sql(self._statement)))

        return lazy_frame(columns.schema, read)

    def count(self) -> int:
        with self._errors():
            row = self.cursor.execute(f"SELECT count(*) FROM ({self.sql})").fetchone()
        assert row is not None
        return int(row[0])

    def limit(self, rows: int) -> DuckDBFrame:
        return self._of(lambda sql: f"SELECT * FROM ({sql}) LIMIT {int(rows)}")

    def renamed(self, columns: Sequence[tuple[Sequence[str], str]]) -> DuckDBFrame:
        named = ", ".join(f"{quote_identifier(*path)} AS {quote_identifier(name)}" for path, name in columns)
        return self._of(lambda sql: f"SELECT {named} FROM ({sql})")

    def named(self, names: Sequence[str]) -> DuckDBFrame:
        # By position, because DuckDB would add a number to a repeated name in a column alias list.
        listed = ", ".join(f"#{place} AS {quote_identifier(name)}" for place, name in enumerate(names, 1))
        return self._of(lambda sql: f"SELECT {listed} FROM ({sql})")

    def projected(self, names: Sequence[str], columns: Sequence[str]) -> DuckDBFrame:
        """Expressions over the rows, whose columns have other names, by position."""
        listed = ", ".join(map(quote_identifier, names))
        return self._of(lambda sql: f"SELECT {', '.join(columns)} FROM ({sql}) AS given({listed})")

    def write_parquet(self, file: str) -> None:
        """Write the rows, in their order, to one Parquet file."""
        with self._errors():
            self.cursor.execute(f"COPY ({self.sql}) TO {quote_literal(file)} (FORMAT parquet)")

    def as_source(self) -> SqlOnCursor:
        """The query as text, which DuckDB runs again to write it."""
        return SqlOnCursor(self.cursor, self.sql)

    def as_rows(self) -> Rows:
        """The query with its bound columns and types, for a caller that has just created it."""
        return rows_of_relation(self.cursor, self.sql, self.bound)

    def create_view(self, name: str, reads: Reads) -> None:
        """Create a view of the instance; store its rows if it needs values of this cursor."""
        if self.instance.registered:
            with self._errors():
                rows = self.native.to_arrow_table()
            self.instance.register(name, rows, reads.computed())
        else:
            self.instance.create_view(name, self.sql, reads)
