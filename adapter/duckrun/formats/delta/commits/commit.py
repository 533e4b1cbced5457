"""Commits that Duckrun writes: definition, protocol and data files change in one version.

deltalake changes one column per commit, and cannot change a schema while it swaps files. A commit
is one file named by its version, created only if no file of that name exists.
Source: Delta protocol, Actions, Commit Provenance Information.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from duckrun.errors import UnsupportedFeature
from duckrun.formats.commits import CommitTaken, NewCommit
from duckrun.formats.delta.commits.checks import (
    refuse_another_table,
    refuse_other_names,
    refuse_unknown_features,
    refuse_wrong,
    table_after,
)
from duckrun.formats.delta.commits.marks import REPEATED, marked, refuse_append_only
from duckrun.formats.delta.commits.numbering import numbered
from duckrun.formats.delta.commits.operations import Operation, metrics, operation_of
from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.mapping import stored_columns
from duckrun.formats.delta.definition.properties import (
    IN_COMMIT,
    IN_COMMIT_TIME,
    IN_COMMIT_VERSION,
    is_on,
)
from duckrun.formats.delta.definition.protocol import WRITTEN, Protocol
from duckrun.formats.delta.definition.statistics import Statistics
from duckrun.formats.delta.log.entries import entry, info_of, new_txn_id
from duckrun.formats.delta.versions.domains import CLUSTERING_PROVIDER, clustering_action
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.values.data_files import encoded, spelled
from duckrun.values.frozen import frozen
from duckrun.values.rows import StagedFile
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.stored import stored_names
from duckrun.values.tables import OptimizeSpec

log = logging.getLogger(__name__)


@frozen
class PreparedCommit:
    """A commit that passed all checks, and is not written yet."""

    ref: TableRef
    snapshot: Snapshot | None
    """Snapshot that it goes on from; None for a new table."""
    version: int
    body: bytes
    txn_id: str


def prepared_commit(
    tables: TableAccess,
    ref: TableRef,
    snapshot: Snapshot | None,
    new: NewCommit,
    *,
    operation: Operation | None = None,
    returns: Sequence[Mapping[str, Any]] = (),
    also: Sequence[Mapping[str, Any]] = (),
) -> PreparedCommit:
    """Return one commit after all checks.

    Args:
        tables: Access to the table.
        ref: The table.
        snapshot: Snapshot that the commit goes on from; None for a new table.
        new: The request.
        operation: Operation of the commit; None: the one of ``new.spec``.
        returns: Add actions of files of an older version, or of a branch, that come back.
        also: Further actions: transactions, whose time is set here, and domains.
    """
    operation = operation or operation_of(new, snapshot)
    refuse_wrong(ref, snapshot, new, operation, returns)
    refuse_other_names(ref, snapshot, new, operation)
    marks = marked(tables, snapshot, new)
    version = 0 if snapshot is None else snapshot.version + 1
    now = int(time.time() * 1000)
    stamp = _stamp(tables, snapshot, now) if is_on(table_after(snapshot, new).properties, IN_COMMIT) else None
    info: dict[str, Any] = {} if stamp is None else {"inCommitTimestamp": stamp}
    info |= {"timestamp": now, "isBlindAppend": new.blind and not new.removes, "engineInfo": "duckrun"}
    info["operation"], info["operationParameters"] = operation.name, dict(operation.parameters)
    info["operationMetrics"] = metrics(operation.name, new, returns)
    info["txnId"] = new_txn_id()
    # The commit info goes first: readers look for an in-commit timestamp in the first line alone
    # (Delta protocol, In-Commit Timestamps).
    actions: list[dict[str, Any]] = [{"commitInfo": {**info, **info_of(new.note)}}]
    protocol, definition = _table(tables, snapshot, new)
    if protocol is not None:
        actions.append({"protocol": protocol.action()})
    if definition is not None:
        if stamp is not None and snapshot is not None and not is_on(snapshot.properties, IN_COMMIT):
            # An existing table records since when its commits contain timestamps.
            since = {IN_COMMIT_VERSION: str(version), IN_COMMIT_TIME: str(stamp)}
            definition = replace(definition, properties={**definition.properties, **since})
        actions.append({"metaData": definition.action()})
        before = None if snapshot is None else tables.definition(snapshot).cluster_by
        if definition.cluster_by != before:
            actions.append(clustering_action(definition))
    if new.app is not None:
        # Without lastUpdated, Spark drops the transaction at once if the table sets a retention.
        actions.append({"txn": {"appId": new.app.app_id, "version": new.app.version, "lastUpdated": now}})
    actions += [{"txn": {**action["txn"], "lastUpdated": now}} if "txn" in action else dict(action) for action in also]
    if new.removes:
        assert snapshot is not None
        actions += [{"remove": action} for action in _removes(tables, snapshot, new, now)]
    actions += [{"remove": _removed(before, new, now)} for before, _ in marks]
    added = [{**after, "dataChange": new.data_change} for _, after in marks if after is not None]
    figures = _statistics(snapshot, new)
    added += [
        {**_file(file, figures, data_change=new.data_change), "modificationTime": now, "stats": figures.of(file)}
        for file in new.adds
    ]
    added += [{**add, "modificationTime": now, "dataChange": new.data_change} for add in returns]
    # Only OPTIMIZE marks files as clustered. Files of other writes wait for it (Delta protocol,
    # Clustered Table).
    if isinstance(new.spec, OptimizeSpec) and snapshot is not None and snapshot.cluster_by:
        added = [{**add, "clusteringProvider": CLUSTERING_PROVIDER} for add in added]
    # Files need base row ids as soon as the table lists the feature, although the property may be
    # false (Delta protocol, Row Tracking, Writer Requirements).
    listed = snapshot.writer_features if protocol is None and snapshot is not None else protocol and protocol.present()
    if "rowTracking" in (listed or ()):
        added, marks_moved = numbered(tables, ref, snapshot, new, added, version)
        actions += marks_moved
    actions += [{"add": add} for add in added]
    actions += [{"cdc": _file(file, figures)} for file in new.feed]
    body = "\n".join(json.dumps(action, ensure_ascii=False) for action in actions)
    return PreparedCommit(ref, snapshot, version, body.encode(), info["txnId"])


def written(tables: TableAccess, commit: PreparedCommit) -> int:
    """Write a prepared commit, and return its version."""
    what = f"version {commit.version} of table {commit.ref}"
    refuse_another_table(tables, commit.snapshot)
    # The file is created only if it does not exist, which decides races (Delta protocol, Delta Log
    # Entries).
    file = tables.storage.put_new(commit.ref.location, entry(commit.version), commit.body, what)
    if file is None:
        raise CommitTaken(what)
    tables.newest.wrote(commit.ref, commit.snapshot, commit.body, file)
    tables.check_landed(commit.snapshot, commit.version, commit.txn_id)
    return commit.version


def _table(
    tables: TableAccess, snapshot: Snapshot | None, new: NewCommit
) -> tuple[Protocol | None, DeltaDefinition | None]:
    """Return the protocol and the definition that the commit changes; None for one that stays."""
    definition = cast(DeltaDefinition, new.definition)
    if snapshot is None:
        assert definition is not None, "a new table has a definition"
        # Protocol and definition come in one version: a writer that lacks a feature must not commit
        # in between (Delta protocol, Protocol Evolution).
        return Protocol().supporting(definition.features()).at_least(*definition.versions), definition
    refuse_unknown_features(snapshot)
    if definition is None or definition == tables.definition(snapshot):
        return None, None
    present = tables.protocol(snapshot)
    needed = present.supporting(definition.features()).at_least(*definition.versions)
    if unknown := needed.writer_features - WRITTEN - present.writer_features - snapshot.idle_features:
        raise UnsupportedFeature(
            f"Table {snapshot.ref}: with writer version 7 its log would list {', '.join(sorted(unknown))}, which its "
            f"writer version {present.writer} stands for, and the duckdb engine could not write it any more. Run this "
            "with engine: spark."
        )
    return None if needed == present else needed, definition


def _statistics(snapshot: Snapshot | None, new: NewCommit) -> Statistics:
    """Return the statistics that the table requires of its files after the commit."""
    table = table_after(snapshot, new)
    # Files hold no partition columns, and values of VARIANT have no common order.
    without = {*table.partition_columns, *table.variants}
    columns = [f for f in table.schema if f.name not in without]
    return Statistics(columns, table.properties, stored_columns(table.schema))


def _file(file: StagedFile, figures: Statistics, *, data_change: bool = False) -> dict[str, Any]:
    """Return a file of the change feed, or the like parts of an add.

    Source: Delta protocol, Add CDC File, Add File.
    """
    return {
        "path": encoded(file.path),
        "partitionValues": figures.partition_values(file),
        "size": file.size,
        "dataChange": data_change,
    }


def _removes(tables: TableAccess, snapshot: Snapshot, new: NewCommit, now: int) -> Iterator[dict[str, Any]]:
    refuse_append_only(snapshot, new)
    # A remove repeats the path, the deletion vector and the row ids of the add, letter by letter.
    with_ids = "rowTracking" in snapshot.writer_features
    files = [file for file in new.removes if file.deletion_vector or with_ids]
    added = dict(zip(map(spelled, files), tables.adds_of(snapshot, files), strict=True))
    names = stored_names(stored_columns(snapshot.stored_schema))
    for file in new.removes:
        path = spelled(file)
        values = {names.get(column, column): value for column, value in file.partition_values.items()}
        plain = {"path": path, "partitionValues": values, "size": file.size}
        yield _removed({**plain, **added.get(path, {})}, new, now)


def _removed(add: Mapping[str, Any], new: NewCommit, now: int) -> dict[str, Any]:
    """Return the remove of an added file."""
    return {
        "deletionTimestamp": now,
        "dataChange": new.data_change,
        # Tells readers that the remove has partition values, size and tags.
        "extendedFileMetadata": True,
        **{key: add[key] for key in REPEATED if add.get(key) is not None},
    }


# -- in-commit timestamps (Delta protocol, In-Commit Timestamps)


def _stamp(tables: TableAccess, snapshot: Snapshot | None, now: int) -> int:
    """Return the timestamp of the next commit, in milliseconds since 1970.

    It is the current time, or one more than the last commit's if that is ahead.
    """
    before = None if snapshot is None else tables.actions(snapshot.ref, snapshot.version)
    if snapshot is None or before is None:
        return now
    last = int(before.info.get("inCommitTimestamp") or before.info.get("timestamp") or 0)
    if last > now:
        text = (
            "table %s: the in-commit timestamp of version %s is %.1f s ahead of this clock; the next one goes on from "
            "it"
        )
        log.warning(text, snapshot.ref, before.version, (last - now) / 1000)
    # Timestamps must grow with each version, whatever the clocks of the writers say (Delta
    # protocol, In-Commit Timestamps, Writer Requirements).
    return max(now, last + 1)
