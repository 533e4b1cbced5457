"""Tables of a DuckDB database file as the source of a move."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from duckrun.errors import StorageError, TableNotFound, UnsupportedFeature
from duckrun.formats.format import Format
from duckrun.moving.kinds import fitting
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.values.nearest import did_you_mean
from duckrun.values.rows import TableConstraints, WriteSpec


@dataclass(frozen=True)
class DatabaseTable:
    """Table of a database file."""

    name: str
    query: str
    spec: WriteSpec
    """Write that creates the table in the target."""
    left_out: tuple[str, ...]
    """Features of the table that the target lacks, for messages."""


@contextmanager
def attached(connection: duckdb.DuckDBPyConnection, path: str) -> Iterator[str]:
    """Attach a database file read-only for a block; yield its name, unquoted.

    Raises:
        StorageError: There is no such file, or it cannot be opened.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise StorageError(f"There is no DuckDB database {path}")
    name = f"moved_{uuid.uuid4().hex[:12]}"
    cursor = connection.cursor()
    try:
        cursor.execute(f"ATTACH {quote_literal(file.resolve().as_posix())} AS {quote_identifier(name)} (READ_ONLY)")
    except duckdb.Error as error:
        raise StorageError(
            f"{path} cannot be opened as a DuckDB database: {str(error).splitlines()[0]} Close who has it open"
        ) from error
    try:
        yield name
    finally:
        cursor.execute(f"DETACH {quote_identifier(name)}")


def tables_of(
    connection: duckdb.DuckDBPyConnection, database: str, path: str, wanted: Sequence[str] | None, to: Format
) -> list[DatabaseTable]:
    """Return the tables to move to a format. Nothing is written before these checks.

    Raises:
        TableNotFound: A wanted table is missing.
        UnsupportedFeature: The format cannot store some columns; the message names them all.
    """
    cursor = connection.cursor()
    rows = cursor.execute(
        "SELECT schema_name, table_name, comment FROM duckdb_tables() WHERE database_name = ? AND NOT internal AND "
        "NOT temporary ORDER BY ALL",
        [database],
    ).fetchall()
    there = {f"{schema}.{name}": (schema, name, comment) for schema, name, comment in rows}
    names = list(there) if wanted is None else [name if "." in name else f"main.{name}" for name in wanted]
    for name in names:
        if name not in there:
            raise TableNotFound(f"There is no table {name} in {path}.{did_you_mean(name, list(there))}")
    unfit: list[str] = []
    tables = [_table(cursor, database, *there[name], to, unfit) for name in names]
    if unfit:
        raise UnsupportedFeature(
            f"{path} cannot be moved as it is: {'; '.join(unfit)}. Cast these columns there, or name the other "
            "tables by tables="
        )
    return tables


def others_of(connection: duckdb.DuckDBPyConnection, database: str) -> list[str]:
    """Return the database objects beside tables, for messages. None of them is moved."""
    cursor = connection.cursor()
    of = "WHERE database_name = ? AND NOT internal"
    kinds = (
        ("view", f"SELECT schema_name || '.' || view_name FROM duckdb_views() {of}"),
        ("macro", f"SELECT DISTINCT schema_name || '.' || function_name FROM duckdb_functions() {of}"),
        ("sequence", "SELECT schema_name || '.' || sequence_name FROM duckdb_sequences() WHERE database_name = ?"),
        ("type", f"SELECT schema_name || '.' || type_name FROM duckdb_types() {of}"),
    )
    return [
        f"{kind} {name}"
        for kind, query in kinds
        for (name,) in cursor.execute(f"{query} ORDER BY 1", [database]).fetchall()
    ]


def _table(
    cursor: duckdb.DuckDBPyConnection,
    database: str,
    schema: str,
    name: str,
    comment: str | None,
    to: Format,
    unfit: list[str],
) -> DatabaseTable:
    def listed(columns: str, function: str, order: str = "ALL") -> list[tuple[Any, ...]]:
        return cursor.execute(
            f"SELECT {columns} FROM {function}() WHERE database_name = ? AND schema_name = ? AND table_name = ? "
            f"ORDER BY {order}",
            [database, schema, name],
        ).fetchall()

    shown = f"{schema}.{name}"
    columns = listed("column_name, is_nullable, comment, column_default", "duckdb_columns", "column_index")
    source = quote_identifier(database, schema, name)
    # A relation has the types as objects; duckdb_columns() only has them as text.
    types = dict(zip(*(lambda r: (r.columns, r.types))(cursor.sql(f"SELECT * FROM {source}")), strict=True))
    left_out = fitting(shown, types, to, unfit)
    strict = tuple(column for column, is_nullable, _, _ in columns if not is_nullable)
    comments = {column: text for column, _, text, _ in columns if text is not None}
    constraints = listed("constraint_type, constraint_text", "duckdb_constraints")
    left_out += [f"constraint {text}" for kind, text in constraints if kind != "NOT NULL"]
    left_out += [f"index {index}" for (index,) in listed("index_name", "duckdb_indexes")]
    left_out += [
        f"column {column} has a default: {default}" for column, _, _, default in columns if default is not None
    ]
    spec = WriteSpec("error", description=comment, column_comments=comments, constraints=TableConstraints(strict))
    return DatabaseTable(shown, f"SELECT * FROM {source}", spec, tuple(left_out))
