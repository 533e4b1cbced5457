"""Logs of tables in a branch: main's commits up to the fork, and the branch's commits after it.

The storage of a branch's format maps the path of a log entry to main's log or to the branch's. So
everything that reads or writes entries works on both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from duckrun.errors import CommitConflict, VersionNotReadable
from duckrun.formats.delta.log.checkpoints import newest_whole
from duckrun.formats.delta.log.entries import ENTRY, LOG
from duckrun.storage.storage import Storage, Written
from duckrun.values.branches import BRANCHES, Branch, Line
from duckrun.values.records import built
from duckrun.values.snapshot import TableRef

_OF_VERSION = re.compile(rf"{LOG}/(\d{{20}})\.")
_COMPACTED = re.compile(rf"{LOG}/\d{{20}}\.(\d{{20}})\.compacted\.json")
_HINT = f"{LOG}/_last_checkpoint"
_NOTES = ("_duckrun/offsets", "_duckrun/consumers")
"""Notes of consumers of changes, in the folder of a table."""
_SEAL = "seal"
_NEXT = "next"


def entry_of(line: Line, version: int) -> str:
    """Return the path of a commit of a branch, relative to the table's folder."""
    return f"{line.folder}/{line.log}/{version:020d}.json"


def seal_of(raw: bytes) -> str | None:
    """Return the id of the seal that a log entry is; None for a commit."""
    if not raw.startswith(b'{"seal"'):
        return None
    return str(json.loads(raw)[_SEAL])


def next_of(raw: bytes, place: str) -> Line | None:
    """Return the line that a seal lets follow; None for the seal of a publish."""
    line = json.loads(raw).get(_NEXT)
    return None if line is None else built(Line, line, place)


def seal(id: str, following: Line | None = None) -> bytes:
    """Return the log entry that ends a line.

    Args:
        id: Id of a publish or rebase, or of the write that puts another line in the place of this.
        following: That line.
    """
    return json.dumps({_SEAL: id} if following is None else {_SEAL: id, _NEXT: asdict(following)}).encode()


def lines_at(storage: Storage, location: str, paths: Iterable[str] | None = None) -> dict[str, Line]:
    """Return the lines over a table by the names of their branches' folders.

    Args:
        storage: Storage of the lake.
        location: Location of the table.
        paths: Paths in the table's folder, if they are known.
    """
    if paths is None:
        paths = [key["path"] for key in storage.keys(location, BRANCHES)]
    parts = (path.split("/") for path in paths if path.startswith(f"{BRANCHES}/"))
    lines = {}
    for _, folder, *rest in (part for part in parts if len(part) > 2):
        path = f"{BRANCHES}/{folder}/branch.json"
        if rest == ["branch.json"] and (raw := storage.read_at(location, path)):
            lines[folder] = Line.from_json(raw, f"{location}/{path}")
    return lines


def numbers_in(storage: Storage, location: str, line: Line) -> list[int]:
    """Return the versions in the log of a line, a seal included."""
    keys = storage.keys(location, f"{line.folder}/{line.log}")
    return sorted(int(each["path"].rpartition("/")[2].removesuffix(".json")) for each in keys)


class LineStorage(Storage):
    """Storage of a lake that reads the log of a forked table from a branch.

    Args:
        storage: Storage of the lake.
        branch: Returns the branch, at its first use.
    """

    def __init__(self, storage: Storage, branch: Callable[[], Branch]) -> None:
        vars(self).update(vars(storage))  # the same root, credentials and connections
        self.plain, self.branch = storage, branch
        self.lines: dict[str, Line] = {}
        """Lines by the location of their table, as they were last looked up."""
        self.fixed: dict[str, Line] = {}
        """Lines whose file is not written yet."""

    __hash__ = Storage.__hash__

    def look(self, location: str) -> Line | None:
        """Return the line of a table, read from its file; None for a table without a fork."""
        if location in self.fixed:
            self.lines[location] = self.fixed[location]
            return self.fixed[location]
        path = self.branch().pointer
        raw = self.plain.read_at(location, path)
        if raw is None:
            self.lines.pop(location, None)
            return None
        line = self.lines[location] = Line.from_json(raw, f"{location}/{path}")
        return line

    def point(self, location: str, line: Line) -> None:
        """Put the file of a line."""
        self.plain.put_at(location, self.branch().pointer, line.to_json())
        self.lines[location] = line

    def follow(self, location: str, path: str, raw: bytes) -> Line | None:
        """Put the file of the line that follows a seal: its process may have ended before it did.

        Returns:
            The line; None for the seal of a publish.
        """
        line = next_of(raw, f"{location}/{path}")
        if line is not None:
            self.point(location, line)
        return line

    def stored(self, location: str, path: str) -> str:
        """Return the stored path of an object of a table's folder."""
        line = self.lines.get(location)
        if line is not None and (match := ENTRY.fullmatch(path)) and int(match[1]) > line.base:
            return entry_of(line, int(match[1]))
        return path

    def _is_note(self, location: str, path: str) -> bool:
        return location != self.root and path.startswith(_NOTES)

    def read_at(self, location: str, path: str) -> bytes | None:
        if self._is_note(location, path):
            there = self.plain.read_at(location, f"{self.branch().data}/{path}")
            return self.plain.read_at(location, path) if there is None else there
        stored = self.stored(location, path)
        raw = self.plain.read_at(location, stored)
        if raw is None:
            return None
        if stored != path:
            return None if seal_of(raw) is not None else raw
        if path == _HINT and location in self.lines:
            # Main's newest checkpoint may be one after the fork.
            return raw if int(json.loads(raw).get("version", -1)) <= self.lines[location].base else None
        return raw

    def read_ends(self, location: str, path: str, most: int) -> tuple[int, bytes, bytes] | None:
        if self.stored(location, path) == path:
            return self.plain.read_ends(location, path, most)
        raw = self.read_at(location, path)  # whole: only its text tells a seal
        return None if raw is None else (len(raw), raw[:most], raw[most:][-most:])

    def has(self, location: str, path: str) -> bool:
        return self.plain.has(location, self.stored(location, path))

    def keys(self, location: str, prefix: str = "", *, after: str | None = None) -> Iterator[dict[str, Any]]:
        line = self.lines.get(location)
        if prefix != LOG or line is None:
            yield from self.plain.keys(location, prefix, after=after)
            return
        if line.base >= 0:
            for key in self.plain.keys(location, prefix, after=after):
                match = _COMPACTED.fullmatch(key["path"]) or _OF_VERSION.match(key["path"])
                if match is None or int(match[1]) <= line.base:
                    yield key
        at = f"{line.folder}/{line.log}"
        for key in self.plain.keys(location, at):
            path = LOG + key["path"].removeprefix(at)
            if after is None or path > after:
                yield {**key, "path": path}

    def put_new(self, location: str, path: str, data: bytes, what: str = "") -> Written | None:
        if self._is_note(location, path):
            return self.plain.put_new(location, f"{self.branch().data}/{path}", data, what)
        stored = self.stored(location, path)
        written = self.plain.put_new(location, stored, data, what)
        if written is None and stored != path:
            raw = self.plain.read_at(location, stored)
            if raw is not None and seal_of(raw) is not None and not self.follow(location, stored, raw):
                raise CommitConflict(
                    f"Branch {self.branch().name} is being published, or was published, and takes no more commits",
                    remedy="write to the lake itself, or to another branch",
                )
        return written

    def remove_files(self, location: str, paths: Iterable[str]) -> None:
        self.plain.remove_files(location, [self.stored(location, path) for path in paths])

    def log_files(self, ref: TableRef, line: Line, version: int) -> list[str]:
        """Return the paths of the log of a version in a branch, from its newest checkpoint on.

        They are relative to the table's folder, as a log spells them.

        Raises:
            VersionNotReadable: Main's log no longer has the version that the branch continues from.
        """
        keys = {key["path"] for key in self.keys(ref.location, LOG)} if line.base >= 0 else set()
        checkpoint, paths = newest_whole(keys, 0, line.base)
        sidecars = [path for path in keys if path.startswith(f"{LOG}/_sidecars/")] if checkpoint >= 0 else []
        entries = [f"{LOG}/{number:020d}.json" for number in range(max(checkpoint, 0), version + 1)]
        # A checkpoint's own commit may have been cleaned up.
        needed = entries[1 if checkpoint >= 0 else 0 : max(line.base + 1 - max(checkpoint, 0), 0)]
        if not keys.issuperset(needed):
            raise VersionNotReadable(
                f"Branch {self.branch().name} continues table {ref} from version {line.base}, which main's log no "
                "longer has",
                remedy="discard the branch and run its work again",
            )
        return [
            *paths,
            *sidecars,
            *(path for path in entries if path in keys or self.stored(ref.location, path) != path),
        ]
