"""SQL that DuckDB runs for this library: pinned scans, checks that raise our errors, and those errors on the way out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb

from duckrun.errors import DuckrunError, InvalidConfig, SchemaMismatch, StorageError
from duckrun.raising import raised
from duckrun.specs import ReadSpec
from duckrun.sql import quote_identifier, quote_literal, transpile


def delta_scan(location: str, version: int, **options: bool) -> str:
    """SQL for the rows of a table at one version; ``filename=True`` and ``file_row_number=True`` add columns."""
    extra = "".join(f", {name} => {str(value).lower()}" for name, value in options.items())
    return f"delta_scan({quote_literal(scanned(location))}, version => {int(version)}{extra})"


def scanned(location: str) -> str:
    """A location as delta_scan() finds it. DuckDB's RTrim takes trailing bytes beyond ASCII off a path, until a release has
    duckdb/duckdb#24482; of a URL they are encoded.
    """
    if location[-1:].isascii() or "://" in location:
        return location
    return "file://" + quote(location)


def select_sql(source: str, spec: ReadSpec, names: Sequence[str], table: str) -> str:
    """SELECT of a ReadSpec's columns and rows. Raises InvalidConfig for a column that the table has not."""
    unknown = [c for c in spec.columns or () if c not in names]
    if unknown:
        raise InvalidConfig(f"Table {table} has no column {', '.join(unknown)}; it has {', '.join(names)}.")
    columns = ", ".join(quote_identifier(c) for c in (spec.columns or names))
    where = f" WHERE {transpile(spec.predicate, spec.dialect, 'duckdb')}" if spec.predicate else ""
    return f"SELECT {columns} FROM {source}{where}"


def files_sql(format: str, path: str, options: Mapping[str, Any]) -> str:
    """SELECT of the rows of Parquet or CSV files by Spark's options: a CSV has no header and only strings unless asked."""
    folder = not Path(path).suffix and "*" not in path
    files = quote_literal(f"{path.rstrip('/')}/**/*.{format}" if folder else path)
    if format == "parquet":
        return f"SELECT * FROM read_parquet({files}, hive_partitioning => {str(folder).lower()})"
    header, infer = bool(options.get("header")), bool(options.get("inferSchema"))
    read = f"read_csv({files}, header => {str(header).lower()}, all_varchar => {str(not infer).lower()}"
    read += f", delim => {quote_literal(options.get('sep', ','))}, hive_partitioning => false)"
    # Without a header Spark calls the columns _c0, _c1, ...
    return f"SELECT * FROM {read}" if header else f"SELECT COLUMNS('column0*(\\d+)') AS '_c\\1' FROM {read}"


@contextmanager
def errors_about(what: str) -> Iterator[None]:
    """Turn what engines raise into this library's errors, named for the table; ours pass, completed by the name."""
    try:
        yield
    except DuckrunError as error:
        text = str(error)
        raise error if what.split(",")[0].removeprefix("table ") in text else type(error)(f"{what}: {text}") from error
    except Exception as error:
        ours = raised(str(error), what)
        if ours is not None:
            raise ours from None
        if isinstance(error, duckdb.OutOfMemoryException):
            raise InvalidConfig(
                f"{what}: DuckDB's part of the memory is too small for it: {str(error).splitlines()[0]}. Nothing was written. "
                "Give this process more (memory_limit, memory_fraction), do less at once (threads, max_concurrent), or run "
                "it with engine: spark."
            ) from error
        if isinstance(error, duckdb.CatalogException | duckdb.ParserException | duckdb.BinderException):
            raise InvalidConfig(f"{what}: {error}") from error
        if isinstance(error, duckdb.IOException | duckdb.HTTPException):
            raise StorageError(f"{what}: {error}") from error
        if isinstance(error, duckdb.ConversionException):
            raise SchemaMismatch(f"{what}: a value does not fit its column: {error}") from error
        raise
