"""Columns in the footers of Parquet files, read once per file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import duckdb

from duckrun.sql.quoting import quote_literal
from duckrun.values.data_files import literally

Columns = Mapping[str, str]

_MOST = 10_000
_known: dict[str, Columns] = {}
"""Columns by path. Data files never change, and the names of those read here contain a UUID."""
_same: dict[tuple[tuple[str, str], ...], Columns] = {}
"""Columns that files share, so that a wide table's are stored once."""


def columns_in(cursor: duckdb.DuckDBPyConnection, files: Sequence[str]) -> Mapping[str, Columns]:
    """Return DuckDB's types of the columns of Parquet files with unique names (see FileColumns)."""
    unknown = [file for file in files if file not in _known]
    if unknown:
        if len(_known) >= _MOST:
            _known.clear()
            _same.clear()
        _known.update(_read(cursor, unknown))
    return {file: _known[file] for file in files if file in _known}


def _read(cursor: duckdb.DuckDBPyConnection, files: Sequence[str]) -> Mapping[str, Columns]:
    places = ", ".join(quote_literal(literally(file)) for file in files)
    try:
        rows = cursor.execute(
            f"SELECT file_name, name, type, repetition_type, num_children, duckdb_type FROM parquet_schema([{places}])"
        ).fetchall()
    except (duckdb.IOException, duckdb.HTTPException, duckdb.InvalidInputException):
        # A file is missing or damaged. The query that reads the table reports that.
        return {}
    by_file = {name: list(group)[1:] for name, group in groupby(rows, itemgetter(0))}  # the first is the root
    scalar = {name: columns for name, columns in by_file.items() if all(map(_is_scalar, columns))}
    return {name: _shared(tuple((row[1], row[5]) for row in columns)) for name, columns in scalar.items()}


def _is_scalar(row: Sequence[Any]) -> bool:
    """True for one value per row, in a layout that DuckDB's type describes."""
    _, _, kind, repetition, children, _ = row
    return not children and repetition in ("REQUIRED", "OPTIONAL") and kind != "INT96"


def _shared(columns: tuple[tuple[str, str], ...]) -> Columns:
    unique = dict(columns)
    # A footer may name two columns alike.
    return _same.setdefault(columns, unique if len(unique) == len(columns) else {})
