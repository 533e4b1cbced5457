"""Logs of a few commits in an object store, read with one request for each commit.

deltalake requests each commit twice, and looks for a checkpoint first. So the commits are copied to
a local folder, where deltalake opens them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from duckrun.errors import DuckrunError
from duckrun.formats.delta.files.logged import LoggedFiles
from duckrun.formats.delta.log.entries import ENTRY, LOG, CommitActions, entry, parse_commit
from duckrun.formats.delta.versions.newest import Known
from duckrun.libraries import pa
from duckrun.storage.parallel import at_once
from duckrun.storage.storage import Storage
from duckrun.values.frozen import frozen
from duckrun.values.snapshot import Snapshot, TableRef

MOST = 16
"""Maximum number of commits that are read one by one."""
_LARGEST = 4_000_000
"""Maximum number of bytes of all these commits."""
_OTHER = re.compile(r"checkpoint|compacted")
_COLUMNS = ("path", "string"), ("size_bytes", "int64"), ("num_records", "int64")


@frozen
class ShortLog:
    """All commits of a log, from version 0."""

    commits: Sequence[bytes]
    mark: str
    """Identity of the newest commit."""
    actions: tuple[CommitActions, ...]

    @contextmanager
    def opened(self) -> Iterator[DeltaTable]:
        """Yield a handle of a local copy, which lasts as long as the block and cannot commit."""
        with TemporaryDirectory(prefix="duckrun-log-") as folder:
            Path(folder, LOG).mkdir()
            for version, body in enumerate(self.commits):
                Path(folder, entry(version)).write_bytes(body)
            yield DeltaTable(folder)

    def known(self, snapshot: Snapshot, names: dict[str, str]) -> Known:
        """Return the state of a snapshot that the commits tell.

        Args:
            names: Physical to logical names of partition columns, where they differ.
        """
        schema = pa.schema([pa.field(name, pa.type_for_alias(kind)) for name, kind in _COLUMNS])
        no_files = LoggedFiles(snapshot.ref.location, pa.Table.from_batches([], schema), {}, names=names)
        return Known(
            self.mark,
            snapshot.version,
            apps={app.app_id: app.version for commit in self.actions for app in commit.transactions},
            has_all_apps=True,
            listing=(no_files, self.actions),
        )


def short_log(storage: Storage, ref: TableRef) -> ShortLog | None:
    """Return the log of a table in a store; None if it is longer, or has more than plain commits.

    deltalake reads such a log itself, and reports what is wrong with it.
    """
    if storage.is_local:
        return None
    size, tags = 0, list[str | None]()
    for key in storage.keys(ref.location, LOG):
        if _OTHER.search(key["path"]):
            return None
        if not ENTRY.fullmatch(key["path"]):
            continue
        size += key["size"]
        if key["path"] != entry(len(tags)) or len(tags) == MOST or size > _LARGEST:
            return None
        tags.append(key["e_tag"])
    # The tag is listed before the commits are read. If another table takes the place in between,
    # the tag is none of that table's, so no write begins from a mixture of the two.
    if not tags or not tags[-1]:
        return None
    bodies = at_once(lambda version: storage.read_at(ref.location, entry(version)), range(len(tags)))
    return whole_log([body for body in bodies if body is not None], tags[-1]) if None not in bodies else None


def whole_log(commits: Sequence[bytes], mark: str) -> ShortLog | None:
    """Return the log with these commits; None if one of them is damaged."""
    try:
        actions = tuple(parse_commit(version, body) for version, body in enumerate(commits))
    except (DuckrunError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return ShortLog(commits, mark, actions)


REFUSED = (DeltaError, OSError, ValueError)
"""Errors of deltalake for a log that it cannot read."""
