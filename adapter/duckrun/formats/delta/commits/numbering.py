"""Row ids that commits give: each row has one, and the version at which it was added or changed.

The id stays when the row moves to another file. Each file has a base row id. A row's id is that
plus its position in the file, unless a column of the file has it. The table's high-water mark is
the highest id ever assigned. Source: Delta protocol, Row Tracking.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from duckrun.errors import UnsupportedFeature
from duckrun.formats.commits import NewCommit
from duckrun.formats.delta.definition.properties import ROW_TRACKING as TRACKS_ROWS, is_on
from duckrun.formats.delta.files.dataset import filesystem, footer
from duckrun.formats.delta.log.access import LogAccess
from duckrun.formats.delta.log.adds import adds_of
from duckrun.formats.delta.log.entries import ROW_TRACKING
from duckrun.formats.delta.versions.domains import ROW_ID_MARK, action_of, domains_of
from duckrun.storage.parallel import at_once
from duckrun.values.data_files import decoded, is_absolute, spelled
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot, TableRef


def numbered(
    logs: LogAccess, ref: TableRef, snapshot: Snapshot | None, new: NewCommit, added: list[dict[str, Any]], version: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the added files with row ids above all assigned ids, and the action of the new mark.

    If this commit enables row tracking, it adds the present files again, with row ids.
    """
    domains = {} if snapshot is None else domains_of(logs, snapshot)
    before = mark = int(json.loads(domains.get(ROW_TRACKING, "{}")).get(ROW_ID_MARK, -1))
    enables = new.definition is not None and is_on(new.definition.properties, TRACKS_ROWS)
    if snapshot is not None and enables and not is_on(snapshot.properties, TRACKS_ROWS):
        gone = {spelled(file) for file in (*new.removes, *(each.file for each in new.marks))}
        left = {spelled(file) for file in snapshot.files()} - gone
        # The files hold the same rows, so the feed and streams skip these adds (Delta protocol, Add
        # File and Remove File, dataChange).
        again = (add for add in adds_of(logs, snapshot, left).values() if add.get("baseRowId") is None)
        added = [*added, *({**add, "dataChange": False} for add in again)]
    result = []
    for add in counted(logs, ref, added):
        # Rows that a vector deletes keep their positions and ids, and numRecords counts them, too.
        rows = int(json.loads(add["stats"])["numRecords"])
        if add.get("baseRowId") is None:
            # New ids lie above all that were ever given. The mark moves in the same commit, so no
            # other commit gives them (Delta protocol, Row Tracking, Writer Requirements).
            first = max(mark + 1, logs.first_row_id(ref))
            result.append({**add, "baseRowId": first, "defaultRowCommitVersion": version})
            mark = first + rows - 1
        else:
            # A file that comes back, or gets another vector, keeps its ids (Delta protocol, Row
            # Tracking, Row IDs).
            result.append({"defaultRowCommitVersion": version, **add})
            mark = max(mark, int(add["baseRowId"]) + rows - 1)
    return result, [] if mark == before else [action_of(ROW_TRACKING, {ROW_ID_MARK: mark})]


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

    def with_count(add: dict[str, Any]) -> dict[str, Any]:
        stats = {"numRecords": counts[add["path"]], **json.loads(add.get("stats") or "{}")}
        return {**add, "stats": json.dumps(stats, ensure_ascii=False)}

    return [with_count(add) if add["path"] in counts else add for add in adds]
