"""Local copies of the log of a table in a branch, for libraries that read a log by its folder.

deltalake reads a copy of the entries. DuckDB's delta_scan() reads a log of one entry, whose paths
lead to the table's folder through a link. Spark's logs are in ``spark_logs.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from duckrun.errors import UnsupportedFeature
from duckrun.formats.delta.files.scan_sql import LINK
from duckrun.formats.delta.log.adds import adds_of
from duckrun.formats.delta.log.entries import LOG, entry
from duckrun.formats.delta.log.lines import LineStorage
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.storage.parallel import at_once
from duckrun.values.branches import Line
from duckrun.values.data_files import is_absolute, spelled
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot, TableRef


def copied_log(storage: LineStorage, ref: TableRef, line: Line, version: int) -> TemporaryDirectory[str]:
    """Return a new folder with the log of a version: links to local files, else copies."""
    paths = storage.log_files(ref, line, version)
    folder = TemporaryDirectory(prefix="duckrun-log-")
    for parent in {Path(folder.name, path).parent for path in (*paths, entry(0))}:
        parent.mkdir(parents=True, exist_ok=True)

    def copy(path: str) -> None:
        stored = storage.stored(ref.location, path)
        if storage.is_local:
            Path(folder.name, path).symlink_to(Path(ref.location, stored))
        elif (raw := storage.plain.read_at(ref.location, stored)) is not None:
            Path(folder.name, path).write_bytes(raw)

    at_once(copy, paths)
    return folder


class ScanLogs:
    """Logs of single versions, or of some of their files, which delta_scan() reads."""

    def __init__(self, tables: TableAccess) -> None:
        self._tables = tables
        self._logs: dict[tuple[object, ...], TemporaryDirectory[str]] = {}

    def folder(self, snapshot: Snapshot, files: Sequence[ScanFile] | None = None) -> str:
        """Return a folder that delta_scan() reads as some files of the snapshot, at version 0.

        It lasts as long as this object, since a query may be run later.

        Raises:
            UnsupportedFeature: The table lies in an object store, to which no link leads.
        """
        if not self._tables.storage.is_local:
            raise UnsupportedFeature(
                f"Table {snapshot.ref} has columns or files that DuckDB reads by a Delta log alone, and a branch in an "
                "object store has none that DuckDB could read",
                remedy="Read it with engine: spark, or in a branch of a local lake",
            )
        names = frozenset(map(spelled, snapshot.files() if files is None else files))
        key = (snapshot.ref.location, snapshot.version, self._tables.mark(snapshot), names)
        if key not in self._logs:
            self._logs[key] = self._written(snapshot, names)
        return self._logs[key].name

    def close(self) -> None:
        """Remove the folders."""
        for folder in self._logs.values():
            folder.cleanup()
        self._logs.clear()

    def _written(self, snapshot: Snapshot, names: frozenset[str]) -> TemporaryDirectory[str]:
        folder = TemporaryDirectory(prefix="duckrun-scan-")
        Path(folder.name, LOG).mkdir()
        Path(folder.name, LINK).symlink_to(snapshot.ref.location, target_is_directory=True)
        actions: list[dict[str, Any]] = definition_of(self._tables, snapshot)
        adds = adds_of(self._tables, snapshot, {*names})
        actions += [{"add": _through_link(add)} for add in adds.values()]
        Path(folder.name, entry(0)).write_bytes(as_entry(actions))
        return folder


def definition_of(tables: TableAccess, snapshot: Snapshot, *features: str) -> list[dict[str, Any]]:
    """Return the actions that define a table at a version, with more writer features."""
    protocol = tables.protocol(snapshot)
    if features:
        protocol = protocol.at_least(protocol.reader, 7)
        protocol = replace(protocol, writer_features=protocol.writer_features | {*features})
    return [{"protocol": protocol.action()}, {"metaData": tables.definition(snapshot).action()}]


def as_entry(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """Return actions as the text of a log entry."""
    return "\n".join(json.dumps(action, ensure_ascii=False) for action in actions).encode()


def _through_link(add: dict[str, Any]) -> dict[str, Any]:
    """Return an add whose relative paths lead through the link."""
    if not is_absolute(add["path"]):
        add = {**add, "path": f"{LINK}/{add['path']}"}
    vector = add.get("deletionVector")
    if vector is not None and vector["storageType"] == "u":
        # The path is a prefix and 20 characters (Delta protocol, Deletion Vector Descriptor
        # Schema).
        path = vector["pathOrInlineDv"]
        prefix = f"{LINK}/{path[:-20]}" if path[:-20] else LINK
        add = {**add, "deletionVector": {**vector, "pathOrInlineDv": prefix + path[-20:]}}
    return add
