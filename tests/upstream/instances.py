"""DuckDB with its extensions, and Delta logs written by hand: no part of this library is under test here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from duckrun.storage.extensions import extension_path

MAPPED = {"delta.columnMapping.mode": "name"}


def connection(*extensions: str) -> duckdb.DuckDBPyConnection:
    """An instance with some extensions."""
    opened = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": "2"})
    for name in extensions:
        opened.execute(f"LOAD '{extension_path(name)}'")
    return opened


def lake(folder: Path, catalog: str = ":memory:") -> duckdb.DuckDBPyConnection:
    """An instance that uses a new DuckLake, without inlined rows."""
    in_sqlite = catalog.startswith("sqlite:")
    opened = connection("ducklake", *["sqlite_scanner"] * in_sqlite)
    options = f"DATA_PATH '{folder}/data', DATA_INLINING_ROW_LIMIT 0" + ", META_JOURNAL_MODE 'WAL'" * in_sqlite
    opened.execute(f"ATTACH 'ducklake:{catalog}' AS lake ({options})")
    return opened.execute("USE lake")


def field(name: str, kind: str, **metadata: Any) -> dict[str, Any]:
    """A column in a Delta schema."""
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def mapped(number: int, name: str, physical: str) -> dict[str, Any]:
    """A BIGINT column with another name in the files."""
    mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return field(name, "long", **mapping)


def defined(*fields: dict[str, Any], by: tuple[str, ...] = (), **configuration: str) -> list[dict[str, Any]]:
    """Actions that define a table, with column mapping if its configuration has it."""
    reader, writer = (2, 5) if configuration else (1, 2)
    schema = json.dumps({"type": "struct", "fields": fields})
    metadata = {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
    metadata |= {"partitionColumns": by, "configuration": configuration, "createdTime": 0}
    return [{"protocol": {"minReaderVersion": reader, "minWriterVersion": writer}}, {"metaData": metadata}]


def added(folder: Path, name: str, rows: pa.Table, partition: dict[str, str] | None = None, **how: Any) -> Any:
    """Write a Parquet file, and return the action that adds it."""
    folder.mkdir(exist_ok=True)
    pq.write_table(rows, folder / name, **how)
    size = (folder / name).stat().st_size
    add = {"path": name, "partitionValues": partition or {}, "size": size, "modificationTime": 0, "dataChange": True}
    return {"add": add}


def commit(folder: Path, version: int, actions: list[dict[str, Any]]) -> None:
    """Write a commit of a Delta log."""
    log = folder / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")


def committed(folder: Path, version: int = 0) -> list[dict[str, Any]]:
    """Read the actions of a commit."""
    lines = (folder / "_delta_log" / f"{version:020}.json").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
