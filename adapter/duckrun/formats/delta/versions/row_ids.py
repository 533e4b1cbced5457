"""Row ids of a version: the columns that hold them, and the first id of each file.

Source: Delta protocol, Row Tracking.
"""

from __future__ import annotations

from collections.abc import Sequence

from duckrun.errors import StorageError
from duckrun.formats.delta.definition.properties import ROW_COMMIT, ROW_ID, ROW_TRACKING, is_on
from duckrun.formats.delta.log.access import LogAccess
from duckrun.formats.delta.log.adds import adds_in_order
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot


def row_id_columns(snapshot: Snapshot) -> tuple[str, str] | None:
    """See Format.

    Source: Delta protocol, Row Tracking (Materialized Row IDs, Materialized Row Commit Versions).
    """
    if not is_on(snapshot.properties, ROW_TRACKING):
        return None
    return (
        snapshot.properties.get(ROW_ID, "_metadata.row_id"),
        snapshot.properties.get(ROW_COMMIT, "_metadata.row_commit"),
    )


def first_ids(logs: LogAccess, snapshot: Snapshot, files: Sequence[ScanFile]) -> list[tuple[int, int]]:
    """See Format.

    Raises:
        StorageError: A file has no base row id, which violates the protocol.
    """
    ids = []
    for file, add in zip(files, adds_in_order(logs, snapshot, files), strict=True):
        if add.get("baseRowId") is None or add.get("defaultRowCommitVersion") is None:
            raise StorageError(
                f"Table {snapshot.ref} tracks its rows, and its log has no baseRowId of the file {file.path}, "
                "with which every file of such a table is added (Delta protocol, Row Tracking)",
                remedy="Take the writer to account that added it",
            )
        ids.append((int(add["baseRowId"]), int(add["defaultRowCommitVersion"])))
    return ids
