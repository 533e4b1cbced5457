"""Commits that we write ourselves: definition, protocol and data files change together, at one version or not at all.

deltalake changes one column a commit, and cannot change a schema while it swaps files. A commit is one file whose name is its
version, put where none of that name is. Source: Delta protocol, Actions, Commit Provenance Information.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import obstore
from obstore.exceptions import AlreadyExistsError

from duckrun.errors import UnsupportedFeature
from duckrun.formats.definition import Definition
from duckrun.formats.delta_log import LOG, NOTE_KEY, CommitTaken, append_only
from duckrun.formats.protocol import Protocol
from duckrun.specs import AppTransaction, ScanFile, StagedFile
from duckrun.table import Snapshot, TableRef

if TYPE_CHECKING:
    from duckrun.formats.delta import DeltaFormat

_SAFE = "/!$&'()*+,;=:@~"
_KNOWN = {
    "appendOnly", "invariants", "checkConstraints", "timestampNtz", "changeDataFeed", "deletionVectors",
    "vacuumProtocolCheck", "inCommitTimestamp", "v2Checkpoint",
}  # fmt: skip


@dataclass(frozen=True)
class NewCommit:
    """What a commit is to say. ``definition`` None leaves it as it is; ``removes`` are files of the version before."""

    operation: str
    note: Mapping[str, Any]
    definition: Definition | None = None
    adds: Sequence[StagedFile] = ()
    removes: Sequence[ScanFile] = ()
    app: AppTransaction | None = None
    data_change: bool = True
    parameters: Mapping[str, str] = field(default_factory=dict)


def write_commit(form: DeltaFormat, ref: TableRef, snapshot: Snapshot | None, new: NewCommit) -> int:
    """Commit at the version after a snapshot (None: version 0, a new table). Returns the version.

    Raises CommitTaken if another writer has it, UnsupportedFeature for a table that such a commit would break,
    InvalidConfig where rows of an append-only table would go.
    """
    version = 0 if snapshot is None else snapshot.version + 1
    now = int(time.time() * 1000)
    actions = [{"commitInfo": _info(form, snapshot, new, now)}]
    actions += _table(form, snapshot, new)
    if new.app is not None:
        actions.append({"txn": {"appId": new.app.app_id, "version": new.app.version, "lastUpdated": now}})
    if new.removes:
        assert snapshot is not None, "only a table that is there has files to remove"
        actions += [{"remove": action} for action in _removes(form, snapshot, new, now)]
    actions += [{"add": _add(file, now, new.data_change)} for file in new.adds]
    body = "\n".join(json.dumps(action, ensure_ascii=False) for action in actions)
    if form.storage.is_local:
        Path(ref.location).mkdir(parents=True, exist_ok=True)
    try:
        store = form.storage.store_at(ref.location)
        obstore.put(store, f"{LOG}/{version:020d}.json", body.encode(), mode="create")
    except AlreadyExistsError as error:
        raise CommitTaken(f"version {version} of table {ref}") from error
    return version


def refuse_unknown_features(snapshot: Snapshot) -> None:
    """Raise UnsupportedFeature for a table that asks of a commit what ours do not do."""
    unknown = (snapshot.reader_features | snapshot.writer_features) - _KNOWN
    if unknown:
        raise UnsupportedFeature(
            f"Table {snapshot.ref} uses {', '.join(sorted(unknown))}, which only Spark can alter. Run this with engine: spark."
        )


def only_spark(snapshot: Snapshot) -> bool:
    """True for a table that asks of a commit what ours do not do."""
    try:
        refuse_unknown_features(snapshot)
    except UnsupportedFeature:
        return True
    return False


def _info(form: DeltaFormat, snapshot: Snapshot | None, new: NewCommit, now: int) -> dict[str, Any]:
    info: dict[str, Any] = {
        "timestamp": now,
        "operation": new.operation,
        "operationParameters": dict(new.parameters),
        "engineInfo": "duckrun",
        NOTE_KEY: dict(new.note),
    }
    if snapshot is not None and snapshot.properties.get("delta.enableInCommitTimestamps") == "true":
        before = form.actions(snapshot.ref, snapshot.version)
        info["inCommitTimestamp"] = max(now, (before.info.get("inCommitTimestamp", 0) if before else 0) + 1)
    return info


def _table(form: DeltaFormat, snapshot: Snapshot | None, new: NewCommit) -> list[dict[str, Any]]:
    if snapshot is None:
        assert new.definition is not None, "a new table has a definition"
        protocol = Protocol().supporting(new.definition.features())
        return [{"protocol": protocol.action()}, {"metaData": new.definition.action()}]
    refuse_unknown_features(snapshot)
    if new.definition is None or new.definition == form.definition(snapshot):
        return []
    present = form.protocol(snapshot)
    needed = present.supporting(new.definition.features())
    protocols = [] if needed == present else [{"protocol": needed.action()}]
    return [*protocols, {"metaData": new.definition.action()}]


def _add(file: StagedFile, now: int, data_change: bool) -> dict[str, Any]:
    return {
        "path": quote(file.path, safe=_SAFE),
        "partitionValues": dict(file.partition_values),
        "size": file.size,
        "modificationTime": now,
        "dataChange": data_change,
        "stats": file.stats,
    }


def _removes(form: DeltaFormat, snapshot: Snapshot, new: NewCommit, now: int) -> Iterator[dict[str, Any]]:
    if new.data_change and snapshot.properties.get("delta.appendOnly", "").lower() == "true":
        raise append_only(snapshot.ref)
    # A remove names its file as the add did, letter by letter, and the deletion vector that it had then.
    spelled = {unquote(path): path for path in form.paths(snapshot)}
    vectors = _vectors(form, snapshot, {f.path for f in new.removes if f.deletion_vector})
    for file in new.removes:
        action: dict[str, Any] = {
            "path": spelled[file.path],
            "deletionTimestamp": now,
            "dataChange": new.data_change,
            "extendedFileMetadata": True,
            "partitionValues": dict(file.partition_values),
            "size": file.size,
        }
        if file.deletion_vector:
            action["deletionVector"] = vectors[file.path]
        yield action


def _vectors(form: DeltaFormat, snapshot: Snapshot, wanted: set[str]) -> dict[str, dict[str, Any]]:
    """The deletion vectors of some files, from the commits that added them."""
    found: dict[str, dict[str, Any]] = {}
    if not wanted:
        return found
    for commit in form.actions_back(snapshot.ref, snapshot.version):
        for add in commit.adds:
            path = unquote(add["path"])
            if path in wanted and path not in found:
                found[path] = add.get("deletionVector") or {}
        if len(found) == len(wanted):
            return found
    raise UnsupportedFeature(
        f"Table {snapshot.ref}: {len(wanted)} of the files to rewrite have deletion vectors, and the log no longer holds the commits that "
        "say which. Run this with engine: spark, or purge the vectors there first."
    )
