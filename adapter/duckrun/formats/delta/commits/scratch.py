"""Delta table inside the folder of another, invisible to readers.

An engine fills it, and one commit adopts its files. Delta enforces the definition there and
computes statistics.
"""

from __future__ import annotations

import json
import posixpath
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from duckrun.errors import CommitUnknown
from duckrun.formats.commits import NewCommit
from duckrun.formats.definitions import TableDefinition
from duckrun.formats.delta.commits.commit import prepared_commit, written
from duckrun.formats.delta.commits.operations import Operation
from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.log.entries import COPY
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.values.data_files import decoded
from duckrun.values.rows import StagedFile
from duckrun.values.snapshot import TableRef

# The copy must have plain data files only, and the engine may replace its rows.
_NOT_HERE = ("delta.enableDeletionVectors", "delta.enableChangeDataFeed", "delta.appendOnly")


class Scratch:
    """Scratch copy; see ScratchCopy. ``files()`` are its current files, in the owner's folder."""

    def __init__(self, tables: TableAccess, owner: TableRef) -> None:
        self._tables = tables
        self._folder = posixpath.join(tables.files_folder(owner), f"{COPY}{uuid.uuid4()}")
        self.ref = replace(owner, location=f"{owner.location}/{self._folder}")

    def create(self, definition: DeltaDefinition) -> None:
        properties = {k: v for k, v in definition.properties.items() if k not in _NOT_HERE}
        definition_of_copy = replace(definition, id=str(uuid.uuid4()), properties=properties)
        new, operation = NewCommit(None, definition_of_copy), Operation("CREATE TABLE")
        written(self._tables, prepared_commit(self._tables, self.ref, None, new, operation=operation))

    def files(self) -> tuple[StagedFile, ...]:
        files: dict[str, StagedFile] = {}
        version = 0
        while (actions := self._tables.actions(self.ref, version)) is not None:
            for remove in actions.removes:
                files.pop(decoded(remove["path"]), None)
            for add in actions.adds:
                path = decoded(add["path"])
                files[path] = StagedFile(
                    path=f"{self._folder}/{path}",
                    size=add["size"],
                    partition_values=add["partitionValues"],
                    stats=add.get("stats"),
                    rows=json.loads(add.get("stats") or "{}").get("numRecords"),
                )
            version += 1
        return tuple(files.values())

    def remove(self, keep: tuple[StagedFile, ...] = ()) -> None:
        """Remove the copy, except the files that now belong to the table."""
        adopted = {file.path.removeprefix(f"{self._folder}/") for file in keep}
        paths = [key["path"] for key in self._tables.storage.keys(self.ref.location)]
        self._tables.storage.remove_below(self.ref.location, [path for path in paths if path not in adopted])


@contextmanager
def scratch(tables: TableAccess, owner: TableRef, definition: TableDefinition) -> Iterator[Scratch]:
    """Open an empty scratch copy with some definition, for a block.

    At the end its files stay and the rest is removed. After an error everything is removed, unless
    it is CommitUnknown.
    """
    copy = Scratch(tables, owner)
    adopted: tuple[StagedFile, ...] = ()
    try:
        copy.create(cast(DeltaDefinition, definition))
        yield copy
        adopted = copy.files()
    except CommitUnknown:  # the commit may exist and name the files
        adopted = copy.files()
        raise
    finally:
        copy.remove(adopted)
