"""Logs that Spark, which opens a table by its folder, reads and writes for a table in a branch.

Each begins with one entry: a version in the branch, with the full URLs of its files, as in a
shallow clone. What Spark commits on top of that becomes a commit of the branch.
"""

from __future__ import annotations

import json
import posixpath
import re
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

from duckrun.errors import CommitUnknown
from duckrun.formats.delta.branches.log_copies import as_entry, definition_of
from duckrun.formats.delta.definition.properties import IN_COMMIT, is_on
from duckrun.formats.delta.files.vectors import vector_file
from duckrun.formats.delta.log.adds import adds_of
from duckrun.formats.delta.log.entries import COPY, LOG, ROW_TRACKING, actions_in, entry
from duckrun.formats.delta.versions.domains import ROW_ID_MARK, action_of, domains_of
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.storage.scratch import scratch
from duckrun.storage.storage import Storage
from duckrun.values.data_files import encoded, is_absolute, spelled
from duckrun.values.snapshot import Snapshot, TableRef

_FEATURE = "duckrunBranch"
"""Writer feature of the logs to read. No other writer knows it, so none commits there."""
Actions = list[dict[str, Any]]


class ReadLogs:
    """Logs of single versions for Spark to read, by version.

    Args:
        tables: Versions of the tables.
        storage: Storage of the lake, where the logs lie.
    """

    def __init__(self, tables: TableAccess, storage: Storage) -> None:
        self._tables, self._storage = tables, storage
        self._open = ExitStack()
        weakref.finalize(self, self._open.close)  # of a session that nobody closes
        self._root: str | None = None
        self._logs: dict[tuple[str, int, str | None], str] = {}

    def folder(self, snapshot: Snapshot) -> str:
        """Return a folder that Spark reads as the snapshot, at version 0.

        It lasts as long as this object, since a query may be run later.
        """
        key = (snapshot.ref.location, snapshot.version, self._tables.mark(snapshot))
        if key not in self._logs:
            if self._root is None:
                self._root = self._open.enter_context(scratch(self._storage))
            folder = f"{self._root}/{uuid.uuid4().hex}"
            actions = _version(self._tables, snapshot, _adds(self._tables, snapshot), _FEATURE)
            self._storage.put_new(folder, entry(0), as_entry(actions))
            self._logs[key] = folder
        return self._logs[key]

    def close(self) -> None:
        """Remove the folders."""
        self._logs.clear()
        self._root = None
        self._open.close()


class CopiedLog:
    """Copy of the log of a table in a branch, to which Spark commits; see WrittenLog.

    Args:
        tables: Versions of the tables.
        ref: The table.
        snapshot: Version of the copy; None for a new table.
        commit: Commits actions to the branch as a version.
    """

    def __init__(
        self,
        tables: TableAccess,
        ref: TableRef,
        snapshot: Snapshot | None,
        commit: Callable[[int, Sequence[Mapping[str, Any]]], None],
    ) -> None:
        self._tables, self._ref, self._snapshot, self._commit = tables, ref, snapshot, commit
        self._folder = posixpath.join(tables.files_folder(ref), f"{COPY}{uuid.uuid4()}")
        self.location = f"{ref.location}/{self._folder}"
        self._first = 0 if snapshot is None else snapshot.version
        """Version in the branch of version 0 of the copy."""
        self._next = 0
        """Version of the copy that Spark may commit next."""
        self._files: dict[str, dict[str, Any]] = {}
        """Adds of the snapshot by the URL of their file."""
        self._vectors: dict[tuple[str, int], dict[str, Any]] = {}
        """Deletion vectors of the snapshot by their URL and offset."""
        self._is_adopted = False

    def __enter__(self) -> Self:
        if self._snapshot is not None:
            adds = _adds(self._tables, self._snapshot)
            for add, by_url in adds:
                self._files[_key(by_url["path"])] = add
                if add.get("deletionVector"):
                    self._vectors[_key_of_vector(by_url["deletionVector"])] = add["deletionVector"]
            self._put(_version(self._tables, self._snapshot, adds))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # After CommitUnknown a commit may name the files.
        below = LOG if self._is_adopted or isinstance(error, CommitUnknown) else ""
        storage = self._tables.storage
        storage.remove_below(self.location, [key["path"] for key in storage.keys(self.location, below)])

    def follow(self, snapshot: Snapshot) -> None:
        self._put(_version(self._tables, snapshot, ()))

    def carry(self) -> None:
        storage = self._tables.storage
        while (raw := storage.read_at(self.location, entry(self._next))) is not None:
            version = self._first + self._next
            actions = actions_in(raw, f"The commit of Spark to a copy of table {self._ref}")
            self._commit(version, [self._of_branch(action, version) for action in actions])
            self._is_adopted = True
            self._next += 1

    def _put(self, actions: Actions) -> None:
        self._tables.storage.put_new(self.location, entry(self._next), as_entry(actions))
        self._next += 1

    # -- from the copy to the branch

    def _of_branch(self, action: dict[str, Any], version: int) -> dict[str, Any]:
        """Return an action as the branch's log has it: its paths begin at the table's folder."""
        ((kind, body),) = action.items()
        if kind == "commitInfo" and "readVersion" in body:
            body = {**body, "readVersion": self._first + body["readVersion"]}
        if kind in ("add", "remove", "cdc"):
            before = self._files.get(_key(body["path"]))
            if before is None and "defaultRowCommitVersion" in body and kind == "add":
                body = {**body, "defaultRowCommitVersion": version}
            body = {**body, "path": f"{self._folder}/{body['path']}" if before is None else before["path"]}
            if body.get("deletionVector"):
                body["deletionVector"] = self._vector(body["deletionVector"])
        return {kind: body}

    def _vector(self, vector: dict[str, Any]) -> dict[str, Any]:
        if (before := self._vectors.get(_key_of_vector(vector))) is not None:
            return before
        if vector["storageType"] != "u":
            return vector
        # A prefix of the 20 characters is the folder (Delta protocol, Deletion Vector Descriptor
        # Schema).
        path = vector["pathOrInlineDv"]
        folder = posixpath.join(self._folder, path[:-20]) if path[:-20] else self._folder
        return {**vector, "pathOrInlineDv": folder + path[-20:]}


def _key(url: str) -> str:
    """Return a URL in one spelling: Hadoop writes ``file:/`` for ``file:///``."""
    return re.sub(r"^file:/+", "file:///", url)


def _key_of_vector(vector: Mapping[str, Any]) -> tuple[str, int]:
    return _key(vector["pathOrInlineDv"]), int(vector.get("offset") or 0)


def _adds(tables: TableAccess, snapshot: Snapshot) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the adds of a version, each with the same by full URLs."""
    place = tables.storage.spark_location(snapshot.ref.location)
    # Delta compares paths as text, and Hadoop writes a local one with one slash.
    table = encoded(place if "://" in place else f"file:{place}")

    def by_url(add: dict[str, Any]) -> dict[str, Any]:
        if not is_absolute(add["path"]):
            add = {**add, "path": f"{table}/{add['path']}"}
        vector = add.get("deletionVector")
        if vector is not None and vector["storageType"] == "u":
            path = f"{table}/{vector_file(snapshot.ref, vector)}"
            add = {**add, "deletionVector": {**vector, "storageType": "p", "pathOrInlineDv": path}}
        return add

    adds = adds_of(tables, snapshot, {spelled(file) for file in snapshot.files()})
    return [(add, by_url(add)) for add in adds.values()]


def _version(
    tables: TableAccess, snapshot: Snapshot, adds: Sequence[tuple[dict[str, Any], dict[str, Any]]], *features: str
) -> Actions:
    """Return the entry of a version with some adds.

    Args:
        tables: Versions of the tables.
        snapshot: The version.
        adds: Adds of files, each with the same by URLs, which the entry has.
        features: More writer features of the table.
    """
    actions: Actions = []
    if is_on(snapshot.properties, IN_COMMIT) and (commit := tables.actions(snapshot.ref, snapshot.version)):
        # Spark gives the next commit a later time (Delta protocol, In-Commit Timestamps).
        actions.append({"commitInfo": {key: commit.info[key] for key in ("inCommitTimestamp", "timestamp")}})
    actions += definition_of(tables, snapshot, *features)
    domains = domains_of(tables, snapshot)
    if "rowTracking" in snapshot.writer_features:
        mark = int(json.loads(domains.get(ROW_TRACKING, "{}")).get(ROW_ID_MARK, -1))
        domains[ROW_TRACKING] = json.dumps({ROW_ID_MARK: max(mark, tables.first_row_id(snapshot.ref) - 1)})
    actions += [action_of(name, json.loads(text)) for name, text in domains.items()]
    return [*actions, *({"add": by_url} for _, by_url in adds)]
