"""Absolute paths in DuckDB queries that read files, so that other processes read the same files."""

from __future__ import annotations

import re

from duckrun.libraries import on_demand

FILE_READERS = re.compile(
    r"(read|sniff)_(csv|json|ndjson|parquet|text|blob|avro|xlsx)(_auto|_objects|_objects_auto)?|glob|st_read|"
    r"(parquet|delta|iceberg)_scan|parquet_(schema|metadata|file_metadata|kv_metadata)",
    re.IGNORECASE,
)
"""DuckDB's table functions whose first argument is a path, or a list of paths."""

# A file in FROM, such as 'a/b.csv', is read by the function for its ending.
ENDINGS = {"csv": "csv", "tsv": "csv", "parquet": "parquet", "json": "json", "jsonl": "json", "ndjson": "json"}
_HINT = re.compile(rf"\b({FILE_READERS.pattern})\s*\(|\.({'|'.join(ENDINGS)})\b", re.IGNORECASE)
_files = on_demand("duckrun.sql.files")


def with_absolute_paths(sql: str, dialect: str = "duckdb") -> str:
    """Return a query with relative paths made absolute from the current folder.

    Only DuckDB's dialect has such paths; nothing else of the text changes. A file that FROM names
    directly becomes a call of the function that reads it. Its alias is the name that the file had.
    Otherwise a session would take it for a table of the lake.

    >>> sql = "select * from read_csv('/data/a.csv') join '/data/b.parquet' using (id)"
    >>> print(with_absolute_paths(sql))
    select * from read_csv('/data/a.csv') join read_parquet('/data/b.parquet') AS "b" using (id)
    """
    if dialect != "duckdb" or _HINT.search(sql) is None:  # most views need no parser
        return sql
    return _files.with_edited_paths(sql)
