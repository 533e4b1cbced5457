"""Row ids that commits give: each row has one, and the version at which it was added or changed.

The id stays when the row moves to another file. Each file has a base row id. A row's id is that
plus its position in the file, unless a column of the file has it. The table's high-water mark is
the highest id ever assigned. Source: Delta protocol, Row Tracking.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from duckrun.errors import UnsupportedFeature
from duckrun.formats.delta.files.dataset import filesystem, footer
from duckrun.formats.delta.log.access import LogAccess
from duckrun.formats.delta.log.adds import adds_of
from duckrun.formats.delta.log.entries import ROW_TRACKING
from duckrun.formats.delta.versions.domains import action_of, domains_of
from duckrun.storage.parallel import at_once
from duckrun.values.data_files import decoded, is_absolute, spelled
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot, TableRef

_MARK = "rowIdHighWaterMark"


class Numbering:
    """Row ids for the files that one commit adds, above all assigned ids."""

    def __init__(self, logs: LogAccess, snapshot: Snapshot | None, version: int) -> None:
        self._version = version
        domains = {} if snapshot is None else domains_of(logs, snapshot)
        self._before = self._mark = int(json.loads(domains.get(ROW_TRACKING, "{}")).get(_MARK, -1))

    def of(self, add: Mapping[str, Any]) -> dict[str, Any]:
        """Return the add of a file with a base row id, if it has none yet."""
        # A file that comes back, or gets another vector, keeps its ids (Delta protocol, Row
        # Tracking, Row IDs).
        if add.get("baseRowId") is not None:
            self._mark = max(self._mark, int(add["baseRowId"]) + _rows_of(add) - 1)
            return {"defaultRowCommitVersion": self._version, **add}
        # New ids lie above all that were ever given. The mark moves in the same commit, so no other
        # commit gives them (Delta protocol, Row Tracking, Writer Requirements).
        first = self._mark + 1
        self._mark += _rows_of(add)
        return {**add, "baseRowId": first, "defaultRowCommitVersion": self._version}

    def action(self) -> list[dict[str, Any]]:
        """Return the action of the new high-water mark; none if it is unchanged."""
        return [] if self._mark == self._before else [action_of(ROW_TRACKING, {_MARK: self._mark})]


def _rows_of(add: Mapping[str, Any]) -> int:
    # Rows that a vector deletes keep their positions and ids, and numRecords counts them, too.
    return int(json.loads(add["stats"])["numRecords"])


def counted(logs: LogAccess, ref: TableRef, adds: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return added files with their numbers of rows, which determine the next base row id.

    If the log lacks a number, as for files that Spark wrote without statistics, it is read from the
    file's footer.

    Raises:
        UnsupportedFeature: Such a file lies outside the table's folder.
        StorageError: Such a file cannot be opened.
    """
    waiting = [add for add in adds if "numRecords" not in json.loads(add.get("stats") or "{}")]
    if not waiting:
        return list(adds)
    files = {add["path"]: ScanFile(decoded(add["path"]), add["size"]) for add in waiting}
    opened = filesystem(logs.storage, ref, list(files.values()))

    def count(file: ScanFile) -> int:
        if is_absolute(file.path):
            raise UnsupportedFeature(
                f"Table {ref} cannot give its rows ids: the log does not say how many rows the file {file.path} "
                "has, which lies elsewhere",
                remedy="Write the table anew first (OPTIMIZE)",
            )
        return int(footer(opened, ref, file).num_rows)

    counts = dict(zip(files, at_once(count, files.values()), strict=True))
    return [
        {
            **add,
            "stats": json.dumps(
                {"numRecords": counts[add["path"]], **json.loads(add.get("stats") or "{}")}, ensure_ascii=False
            ),
        }
        if add["path"] in counts
        else add
        for add in adds
    ]


def unnumbered(logs: LogAccess, snapshot: Snapshot, gone: Iterable[ScanFile]) -> list[dict[str, Any]]:
    """Return the adds of the live files, except ``gone``, that have no base row id yet."""
    # The table starts to track its rows with this commit.
    left = {spelled(file) for file in snapshot.files()} - {spelled(file) for file in gone}
    return [add for add in adds_of(logs, snapshot, left).values() if add.get("baseRowId") is None]
