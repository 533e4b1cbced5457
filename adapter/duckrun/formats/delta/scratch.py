"""A Delta table inside the folder of another, which an engine fills, and whose files one commit makes the other's.

Readers do not know of it. Delta enforces its definition there and computes statistics.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from duckrun.errors import CommitUnknown
from duckrun.formats.commits import NewCommit
from duckrun.formats.definitions import TableDefinition
from duckrun.formats.delta.commit import write_commit
from duckrun.formats.delta.data_paths import decoded
from duckrun.formats.delta.definition import DeltaDefinition
from duckrun.formats.delta.log import COPY
from duckrun.formats.delta.operations import Operation
from duckrun.values.rows import StagedFile
from duckrun.values.snapshot import TableRef

if TYPE_CHECKING:
    from duckrun.formats.delta.delta import DeltaFormat

_NOT_HERE = ("delta.enableDeletionVectors", "delta.enableChangeDataFeed", "delta.appendOnly")


class Scratch:
    """The copy. ``files()`` are what it holds now, as files of the table around it."""

    def __init__(self, form: DeltaFormat, owner: TableRef) -> None:
        self._form = form
        self._folder = f"{COPY}{uuid.uuid4()}"
        self.ref = replace(owner, location=f"{owner.location}/{self._folder}")

    def create(self, definition: DeltaDefinition) -> None:
        properties = {k: v for k, v in definition.properties.items() if k not in _NOT_HERE}
        own = replace(definition, id=str(uuid.uuid4()), properties=properties)
        write_commit(self._form, self.ref, None, NewCommit(None, own), {}, None, operation=Operation("CREATE TABLE"))

    def files(self) -> tuple[StagedFile, ...]:
        found: dict[str, StagedFile] = {}
        version = 0
        while (actions := self._form.actions(self.ref, version)) is not None:
            for remove in actions.removes:
                found.pop(decoded(remove["path"]), None)
            for add in actions.adds:
                path = decoded(add["path"])
                found[path] = StagedFile(
                    path=f"{self._folder}/{path}",
                    size=add["size"],
                    partition_values=add["partitionValues"],
                    stats=add.get("stats"),
                    rows=json.loads(add.get("stats") or "{}").get("numRecords"),
                )
            version += 1
        return tuple(found.values())

    def remove(self, keep: tuple[StagedFile, ...] = ()) -> None:
        """Remove the copy, but for the files that are the table's now."""
        kept = {file.path.removeprefix(f"{self._folder}/") for file in keep}
        paths = [key["path"] for key in self._form.storage.keys(self.ref.location)]
        self._form.storage.remove_below(self.ref.location, [path for path in paths if path not in kept])


@contextmanager
def scratch(form: DeltaFormat, owner: TableRef, definition: TableDefinition) -> Iterator[Scratch]:
    """A copy, empty and of some definition. Its files stay at the end of the block; all else of it goes, and everything if the block
    raises, but for CommitUnknown.
    """
    copy = Scratch(form, owner)
    kept: tuple[StagedFile, ...] = ()
    try:
        copy.create(cast(DeltaDefinition, definition))
        yield copy
        kept = copy.files()
    except CommitUnknown:  # the commit may be there, and name them
        kept = copy.files()
        raise
    finally:
        copy.remove(kept)
