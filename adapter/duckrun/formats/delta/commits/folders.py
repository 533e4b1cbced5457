"""Drop and rename of a Delta table, which is a folder."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

from duckrun.errors import CommitConflict, InvalidConfig, StorageError, UnsupportedFeature, removing
from duckrun.formats.delta.log.entries import LOG
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.storage.locks import lock_path, table_lock
from duckrun.storage.trouble import said
from duckrun.values.branches import BRANCHES
from duckrun.values.data_files import decoded, is_absolute
from duckrun.values.names import DROPPED
from duckrun.values.snapshot import TableRef


def drop(tables: TableAccess, ref: TableRef, *, force: bool = False) -> None:
    """Remove a table's folder; a missing table is fine. Readers see the whole table or none.

    Args:
        tables: Access to the table.
        ref: The table.
        force: Remove it although branches continue from it.

    Raises:
        CommitConflict: Branches continue from the table.
    """
    if tables.storage.is_local:
        if not force and os.path.isdir(f"{ref.location}/{BRANCHES}"):
            refuse_live_branches(ref, [key["path"] for key in tables.storage.keys(ref.location, BRANCHES)])
        # One rename takes the folder out of sight before its removal. Later drops also remove the
        # remains of drops that were killed in between.
        folder = Path(ref.location)
        if folder.is_dir():
            with table_lock(ref, True), suppress(FileNotFoundError):
                folder.rename(folder.with_name(f"{DROPPED}{uuid.uuid4().hex}"))
        for doomed in folder.parent.glob(f"{DROPPED}*"):
            shutil.rmtree(doomed, ignore_errors=True)  # another drop may be removing it too
        return
    paths = [key["path"] for key in tables.storage.keys(ref.location)]
    if not force:
        refuse_live_branches(ref, paths)
    log = [path for path in paths if path.startswith(f"{LOG}/")]
    data = [path for path in paths if not path.startswith(f"{LOG}/")]
    with removing():  # without the log there is no table, so it goes first
        tables.storage.remove_files(ref.location, log)
        tables.storage.remove_files(ref.location, data)


def refuse_live_branches(ref: TableRef, paths: Iterable[str]) -> None:
    """Raise CommitConflict if a file of a table's folder is that of a branch's line."""
    if names := _branches_in(paths):
        raise CommitConflict(
            f"Table {ref} has the branch{'es' * (len(names) > 1)} {', '.join(names)}, whose rows would go with it",
            remedy="publish or discard them first, or drop the table with force=True",
        )


def _branches_in(paths: Iterable[str]) -> list[str]:
    """Return the names of the branches whose lines are in a table's folder."""
    parts = (path.split("/") for path in paths if path.startswith(f"{BRANCHES}/"))
    return sorted({part[1].rpartition("-")[0] for part in parts if part[2:] == ["branch.json"]})


def rename(tables: TableAccess, ref: TableRef, new: TableRef) -> None:
    """Rename a table's folder, in one rename under the locks of both names.

    Raises:
        UnsupportedFeature: The lake is in an object store, or the log has absolute paths of the
            table's own files.
        CommitConflict: Branches continue from the table, which find it by its folder.
        InvalidConfig: The new folder is not empty.
        StorageError: The rename fails.
    """
    instead = f"CREATE TABLE {new} AS SELECT * FROM {ref}, then DROP TABLE {ref}; its history ends with it."
    if not tables.storage.is_local:
        raise UnsupportedFeature(
            f"{ref} cannot be renamed to {new}: an object store has no rename of a folder. {instead}"
        )
    folder, other = Path(ref.location), Path(new.location)
    with ExitStack() as locks:
        # A fixed order, so that two renames cannot deadlock.
        for each in sorted((ref, new), key=lambda each: str(lock_path(each))):
            locks.enter_context(table_lock(each, True))
        if names := _branches_in(key["path"] for key in tables.storage.keys(ref.location, BRANCHES)):
            raise CommitConflict(
                f"{ref} cannot be renamed to {new}: it has the branch{'es' * (len(names) > 1)} {', '.join(names)}",
                remedy="publish or discard them first",
            )
        for path in tables.snapshot(ref).files().paths():
            if is_absolute(path) and folder.as_posix() in decoded(path):
                raise UnsupportedFeature(
                    f"{ref} cannot be renamed to {new}: its log names {path} by its whole path. {instead}"
                )
        if other.is_dir() and any(other.iterdir()):
            raise InvalidConfig(
                f"{ref} cannot be renamed to {new}: {other} holds files. Move them, or choose another name."
            )
        other.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.rename(other)
        except OSError as error:
            raise StorageError(f"{ref} cannot be renamed to {new}: {said(error)}") from error
