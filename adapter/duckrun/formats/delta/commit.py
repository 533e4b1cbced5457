"""Commits that we write ourselves: definition, protocol and data files change together, at one version or not at all.

deltalake changes one column a commit, and cannot change a schema while it swaps files. A commit is one file whose name is its
version, put where none of that name is. Source: Delta protocol, Actions, Commit Provenance Information.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import obstore
from obstore.exceptions import AlreadyExistsError

from duckrun.errors import LostRows, UnsupportedFeature
from duckrun.formats.commits import CommitTaken, NewCommit
from duckrun.formats.delta.adds import adds_of
from duckrun.formats.delta.data_paths import encoded, spelled
from duckrun.formats.delta.definition import DeltaDefinition
from duckrun.formats.delta.log import LOG, append_only, info_of
from duckrun.formats.delta.operations import Operation, metrics, operation_of
from duckrun.formats.delta.protocol import WRITTEN, Protocol
from duckrun.formats.delta.statistics import Statistics
from duckrun.formats.delta.vectors import marked_statistics, read_vector, write_vectors
from duckrun.values.rows import AppTransaction, StagedFile, counted_rows
from duckrun.values.snapshot import Snapshot, TableRef

if TYPE_CHECKING:
    from duckrun.formats.delta.delta import DeltaFormat

_KNOWN = WRITTEN | {"vacuumProtocolCheck", "inCommitTimestamp", "v2Checkpoint"}
_OF_THE_ADD = ("path", "partitionValues", "size", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")
"""What a remove repeats of the action that added its file."""


def write_commit(
    form: DeltaFormat,
    ref: TableRef,
    snapshot: Snapshot | None,
    new: NewCommit,
    note: Mapping[str, Any],
    app: AppTransaction | None,
    *,
    operation: Operation | None = None,
    returns: Sequence[Mapping[str, Any]] = (),
) -> int:
    """See Format.commit(). ``note`` is the entry of our own, ``operation`` that of ``new.spec`` unless it is given; ``returns`` are
    add actions of files that an older version had, as the log holds them: they come back.
    """
    operation = operation or operation_of(new, snapshot)
    _check_files(ref, snapshot, new, operation, returns)
    _check_rows(ref, new, operation)
    marks = _marks(form, snapshot, new)
    version = 0 if snapshot is None else snapshot.version + 1
    now = int(time.time() * 1000)
    info = _info(form, snapshot, new, now)
    info["operation"], info["operationParameters"] = operation.name, dict(operation.parameters)
    info["operationMetrics"] = metrics(operation.name, new.adds, new.removes, new.rows, returns, new.marks)
    actions: list[dict[str, Any]] = [{"commitInfo": {**info, **info_of(note)}}]
    actions += _table(form, snapshot, new)
    if app is not None:
        # Without lastUpdated Spark forgets the entry at once where the table has a retention of them.
        actions.append({"txn": {"appId": app.app_id, "version": app.version, "lastUpdated": now}})
    if new.removes:
        assert snapshot is not None
        actions += [{"remove": action} for action in _removes(form, snapshot, new, now)]
    for before, after in marks:
        actions.append({"remove": _removed(before, new, now)})
        if after is not None:
            actions.append({"add": {**after, "dataChange": new.data_change}})
    figures = _statistics(snapshot, new)
    actions += [{"add": _add(file, now, new.data_change, figures)} for file in new.adds]
    actions += [{"cdc": _fed(file)} for file in new.feed]
    actions += [{"add": {**add, "modificationTime": now, "dataChange": new.data_change}} for add in returns]
    body = "\n".join(json.dumps(action, ensure_ascii=False) for action in actions)
    if form.storage.is_local:
        Path(ref.location).mkdir(parents=True, exist_ok=True)
    try:
        store = form.storage.store_at(ref.location)
        put = obstore.put(store, f"{LOG}/{version:020d}.json", body.encode(), mode="create")
    except AlreadyExistsError as error:
        raise CommitTaken(f"version {version} of table {ref}") from error
    form.newest.wrote(snapshot, body.encode(), put)
    return version


def unknown_features(snapshot: Snapshot) -> frozenset[str]:
    """The features of a table that ask of a commit what this one does not do."""
    return (snapshot.reader_features | snapshot.writer_features) - _KNOWN - snapshot.idle_features


def refuse_unknown_features(snapshot: Snapshot) -> None:
    """Raise UnsupportedFeature for a table with unknown_features()."""
    unknown = unknown_features(snapshot)
    if unknown:
        raise UnsupportedFeature(
            f"Table {snapshot.ref} uses {', '.join(sorted(unknown))}, which only Spark can alter. Run this with engine: spark."
        )


def _info(form: DeltaFormat, snapshot: Snapshot | None, new: NewCommit, now: int) -> dict[str, Any]:
    info: dict[str, Any] = {
        "timestamp": now,
        "isBlindAppend": new.blind and not new.removes,
        "engineInfo": "duckrun",
    }
    if snapshot is not None and snapshot.properties.get("delta.enableInCommitTimestamps") == "true":
        before = form.actions(snapshot.ref, snapshot.version)
        info["inCommitTimestamp"] = max(now, (before.info.get("inCommitTimestamp", 0) if before else 0) + 1)
    return info


def _table(form: DeltaFormat, snapshot: Snapshot | None, new: NewCommit) -> list[dict[str, Any]]:
    if snapshot is None:
        assert new.definition is not None, "a new table has a definition"
        definition = cast(DeltaDefinition, new.definition)
        protocol = Protocol().supporting(definition.features())
        return [{"protocol": protocol.action()}, {"metaData": definition.action()}]
    refuse_unknown_features(snapshot)
    if new.definition is None or new.definition == form.definition(snapshot):
        return []
    definition = cast(DeltaDefinition, new.definition)
    present = form.protocol(snapshot)
    needed = present.supporting(definition.features()).at_least(*definition.versions)
    if unknown := needed.writer_features - _KNOWN - present.writer_features - snapshot.idle_features:
        raise UnsupportedFeature(
            f"Table {snapshot.ref}: with writer version 7 its log would list {', '.join(sorted(unknown))}, which its writer "
            f"version {present.writer} stands for, and the duckdb engine could not write it any more. Run this with engine: spark."
        )
    protocols = [] if needed == present else [{"protocol": needed.action()}]
    return [*protocols, {"metaData": definition.action()}]


def _check_files(
    ref: TableRef,
    snapshot: Snapshot | None,
    new: NewCommit,
    operation: Operation,
    returns: Sequence[Mapping[str, Any]],
) -> None:
    """Raise LostRows unless the live files after the commit are those before, less what it removes, and what it adds."""
    adds, removes = [spelled(f) for f in new.adds], [(spelled(f), f.deletion_vector) for f in new.removes]
    marked = [spelled(mark.file) for mark in new.marks]
    if not removes and not returns and not marked:
        live: set[tuple[str, bool]] = set()
    else:
        assert snapshot is not None, "only a table that is there has files to remove, or had others"
        named = {*adds, *marked, *(path for path, _ in removes), *(add["path"] for add in returns)}
        live = {(name, f.deletion_vector) for name, f in snapshot.files().named(named).items()}
    missed = [path for path, _ in set(removes) - live]
    twice = [path for path, n in Counter([*adds, *marked, *(path for path, _ in removes)]).items() if n > 1]
    twice += [path for path, _ in live - set(removes) if path in adds or any(a["path"] == path for a in returns)]
    if missed or twice:
        raise LostRows(
            f"Table {ref}: {operation.name} was not committed. "
            + (f"It would remove files that version {snapshot and snapshot.version} does not have, such as {missed[0]}, so that "
               f"{len(missed)} files stayed" if missed else f"It would name one file twice, {twice[0]}")
            + ". The table is as it was; run this with engine: spark, and report it."
        )  # fmt: skip


def _check_rows(ref: TableRef, new: NewCommit, operation: Operation) -> None:
    """Raise LostRows unless the rows of the files that come are those of the files that go, less what was deleted, and what was
    inserted. Where a count or a statistic is missing nothing can be held against it.
    """
    inserted, _, deleted = new.rows if new.data_change else (0, 0, 0)
    if not (new.removes or new.marks) or inserted is None or deleted is None:
        return
    gone = counted_rows(new.removes)
    before = None if gone is None else gone + sum(len(mark.rows) for mark in new.marks)
    after = counted_rows(new.adds)
    if before is None or after is None or after == before - deleted + inserted:
        return
    raise LostRows(
        f"Table {ref}: {operation.name} was not committed: the rows that it takes out of {len(new.removes) + len(new.marks)} files are {before} by their "
        f"statistics; with {deleted} rows deleted and {inserted} inserted {before - deleted + inserted} would be left, and it wrote "
        f"{after}. The table is as it was. Run this with engine: spark; if that finds {before} rows in those files too, report it."
    )


def _statistics(snapshot: Snapshot | None, new: NewCommit) -> Statistics:
    """What the table wants known of its files once the commit is made."""
    table = cast(DeltaDefinition, new.definition) or snapshot
    assert table is not None, "a new table has a definition"
    return Statistics([f for f in table.schema if f.name not in table.partition_columns], table.properties)


def _add(file: StagedFile, now: int, data_change: bool, figures: Statistics) -> dict[str, Any]:
    return {
        "path": encoded(file.path),
        "partitionValues": dict(file.partition_values),
        "size": file.size,
        "modificationTime": now,
        "dataChange": data_change,
        "stats": figures.of(file),
    }


def _fed(file: StagedFile) -> dict[str, Any]:
    """A file of the change feed. Source: Delta protocol, Add CDC File."""
    return {
        "path": encoded(file.path),
        "partitionValues": dict(file.partition_values),
        "size": file.size,
        "dataChange": False,
    }


def _removes(form: DeltaFormat, snapshot: Snapshot, new: NewCommit, now: int) -> Iterator[dict[str, Any]]:
    _refuse_append_only(snapshot, new)
    # A remove names its file as the add did, letter by letter, with the deletion vector and the ids of rows that it had then.
    with_ids = "rowTracking" in snapshot.writer_features
    added = adds_of(form, snapshot, {spelled(f) for f in new.removes if f.deletion_vector or with_ids})
    for file in new.removes:
        path = spelled(file)
        plain = {"path": path, "partitionValues": dict(file.partition_values), "size": file.size}
        yield _removed({**plain, **added.get(path, {})}, new, now)


def _removed(add: Mapping[str, Any], new: NewCommit, now: int) -> dict[str, Any]:
    """The remove of what an action added."""
    return {
        "deletionTimestamp": now,
        "dataChange": new.data_change,
        "extendedFileMetadata": True,
        **{key: add[key] for key in _OF_THE_ADD if add.get(key) is not None},
    }


def _marks(
    form: DeltaFormat, snapshot: Snapshot | None, new: NewCommit
) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """For each file of which rows are marked, the action that added it, and the one that adds it with its new vector; None in the
    place of that where no row is left. Raises CommitTaken for a file that is gone, or of which a row to mark is deleted already.
    """
    if not new.marks:
        return []
    assert snapshot is not None, "only a table that is there has rows to mark"
    _refuse_append_only(snapshot, new)
    live = snapshot.files().named({spelled(mark.file) for mark in new.marks})
    gone = [spelled(mark.file) for mark in new.marks if spelled(mark.file) not in live]
    if gone:
        raise CommitTaken(f"version {snapshot.version} of table {snapshot.ref}, which has {gone[0]} no longer")
    before = adds_of(form, snapshot, {spelled(mark.file) for mark in new.marks})
    actions = [before[spelled(mark.file)] for mark in new.marks]
    vectors = []
    for mark, add in zip(new.marks, actions, strict=True):
        rows = read_vector(form, snapshot.ref, add.get("deletionVector"))
        deleted = len(rows)
        rows.update(mark.rows)
        if len(rows) < deleted + len(mark.rows):
            raise CommitTaken(f"version {snapshot.version} of table {snapshot.ref}, where a row to change is deleted")
        vectors.append(rows)
    whole = [
        mark.file.rows is not None and len(v) >= mark.file.rows for mark, v in zip(new.marks, vectors, strict=True)
    ]
    written = iter(write_vectors(form, snapshot.ref, [v for v, none in zip(vectors, whole, strict=True) if not none]))
    return [
        (add, None if none else _marked(add, next(written), mark.file.rows))
        for mark, add, none in zip(new.marks, actions, whole, strict=True)
    ]


def _marked(add: Mapping[str, Any], vector: Mapping[str, Any], rows: int | None) -> dict[str, Any]:
    """The action that adds a file again, with a vector. A checkpoint may hold statistics in columns of its own alone."""
    same = {
        key: add[key] for key in (*_OF_THE_ADD, "modificationTime", "clusteringProvider") if add.get(key) is not None
    }
    return {**same, "deletionVector": dict(vector), "stats": marked_statistics(add.get("stats"), rows)}


def _refuse_append_only(snapshot: Snapshot, new: NewCommit) -> None:
    if new.data_change and snapshot.properties.get("delta.appendOnly", "").lower() == "true":
        raise append_only(snapshot.ref)
