"""A DuckLake as another program has it: plain DuckDB and its extension, without this library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from duckrun.storage.extensions import extension_path


def connection() -> duckdb.DuckDBPyConnection:
    """An instance with the extensions that catalogs need."""
    opened = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": "2"})
    for name in ("ducklake", "sqlite_scanner", "postgres_scanner"):
        opened.execute(f"LOAD '{extension_path(name)}'")
    return opened


@contextmanager
def attached(root: Path, catalog: str | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """An instance that has a lake as ``lake``, by its ``catalog`` as this library names it; by default that in its root."""
    place = catalog or f"sqlite:{root}/catalog.sqlite"
    place = place.removeprefix("duckdb:")
    journal = ", META_JOURNAL_MODE 'WAL', META_BUSY_TIMEOUT 5000" if place.startswith("sqlite:") else ""
    opened = connection()
    opened.execute(f"ATTACH 'ducklake:{place}' AS lake (DATA_INLINING_ROW_LIMIT 0{journal})")
    try:
        yield opened
    finally:
        opened.close()
