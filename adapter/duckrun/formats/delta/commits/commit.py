"""Commits that Duckrun writes: definition, protocol and data files change in one version.

deltalake changes one column per commit, and cannot change a schema while it swaps files. A commit
is one file named by its version, created only if no file of that name exists.
Source: Delta protocol, Actions, Commit Provenance Information.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

from duckrun.errors import CommitConflict, LostRows, TableNotFound, UnsupportedFeature, VersionNotReadable
from duckrun.formats.commits import CommitTaken, NewCommit
from duckrun.formats.delta.commits import in_commit, numbering
from duckrun.formats.delta.commits.operations import Operation, metrics, operation_of
from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.mapping import stored_columns
from duckrun.formats.delta.definition.properties import IN_COMMIT, ROW_TRACKING, is_on
from duckrun.formats.delta.definition.protocol import OF_ROWS, PREVIEWS, WRITTEN, Protocol
from duckrun.formats.delta.definition.statistics import Statistics
from duckrun.formats.delta.files.vectors import marked_statistics, read_vector, write_vectors
from duckrun.formats.delta.log.adds import adds_of
from duckrun.formats.delta.log.entries import append_only, entry, info_of, new_txn_id
from duckrun.formats.delta.versions import clustered
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.values.data_paths import encoded, spelled
from duckrun.values.rows import AppTransaction, StagedFile, counted_rows
from duckrun.values.snapshot import Snapshot, TableRef, schema_from_text
from duckrun.values.stored import other_names, stored_names
from duckrun.values.tables import OptimizeSpec

_OF_THE_ADD = ("path", "partitionValues", "size", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")
"""Fields of an add that its remove repeats."""


def write_commit(
    tables: TableAccess,
    ref: TableRef,
    snapshot: Snapshot | None,
    new: NewCommit,
    note: Mapping[str, Any],
    app: AppTransaction | None,
    *,
    operation: Operation | None = None,
    returns: Sequence[Mapping[str, Any]] = (),
) -> int:
    """Write one commit and return its version; see Format.commit().

    Args:
        note: Duckrun's entry in the commit info.
        operation: Operation of the commit; None: the one of ``new.spec``.
        returns: Add actions of files of an older version that come back.
    """
    operation = operation or operation_of(new, snapshot)
    _check_files(ref, snapshot, new, operation, returns)
    _check_rows(ref, new, operation)
    _check_names(ref, snapshot, new, operation)
    marks = marked(tables, snapshot, new)
    version = 0 if snapshot is None else snapshot.version + 1
    now = int(time.time() * 1000)
    stamp = in_commit.stamp(tables, snapshot, now) if is_on(_properties(snapshot, new), IN_COMMIT) else None
    info: dict[str, Any] = {} if stamp is None else {"inCommitTimestamp": stamp}
    info |= {"timestamp": now, "isBlindAppend": new.blind and not new.removes, "engineInfo": "duckrun"}
    info["operation"], info["operationParameters"] = operation.name, dict(operation.parameters)
    info["operationMetrics"] = metrics(operation.name, new.adds, new.removes, new.rows, returns, new.marks)
    info["txnId"] = new_txn_id()
    actions: list[dict[str, Any]] = [{"commitInfo": {**info, **info_of(note)}}]
    protocol, definition = _table(tables, snapshot, new)
    if protocol is not None:
        actions.append({"protocol": protocol.action()})
    if definition is not None:
        definition = definition if stamp is None else in_commit.enabled(definition, snapshot, version, stamp)
        actions.append({"metaData": definition.action()})
        before = None if snapshot is None else tables.definition(snapshot).cluster_by
        if definition.cluster_by != before:
            actions.append(clustered.action(definition))
    if app is not None:
        # Without lastUpdated, Spark drops the transaction at once if the table sets a retention.
        actions.append({"txn": {"appId": app.app_id, "version": app.version, "lastUpdated": now}})
    if new.removes:
        assert snapshot is not None
        actions += [{"remove": action} for action in _removes(tables, snapshot, new, now)]
    actions += [{"remove": _removed(before, new, now)} for before, _ in marks]
    added = [{**after, "dataChange": new.data_change} for _, after in marks if after is not None]
    figures = _statistics(snapshot, new)
    added += [_add(file, now, new.data_change, figures) for file in new.adds]
    added += [{**add, "modificationTime": now, "dataChange": new.data_change} for add in returns]
    if isinstance(new.spec, OptimizeSpec) and snapshot is not None and snapshot.cluster_by:
        added = [{**add, "clusteringProvider": clustered.PROVIDER} for add in added]
    if "rowTracking" in _features(tables, snapshot, protocol):
        actions += _numbered(tables, ref, snapshot, new, added, version)
    actions += [{"add": add} for add in added]
    actions += [{"cdc": _fed(file, figures)} for file in new.feed]
    body = "\n".join(json.dumps(action, ensure_ascii=False) for action in actions)
    what = f"version {version} of table {ref}"
    _refuse_another_table(tables, snapshot)
    written = tables.storage.put_new(ref.location, entry(version), body.encode(), what)
    if written is None:
        raise CommitTaken(what)
    tables.newest.wrote(snapshot, body.encode(), written)
    tables.check_landed(snapshot, version, info["txnId"])
    return version


def refuse_wrong(snapshot: Snapshot, new: NewCommit, operation: Operation) -> None:
    """Raise LostRows unless the files and rows of a commit add up."""
    _check_files(snapshot.ref, snapshot, new, operation, ())
    _check_rows(snapshot.ref, new, operation)


def features_of_files(snapshot: Snapshot) -> frozenset[str]:
    """Return the table's features that make its files more than rows in columns.

    Whoever fills a copy of the table does not implement them.
    """
    features = (snapshot.reader_features | snapshot.writer_features) - OF_ROWS
    return features and features - snapshot.idle_features  # which inspects all columns


def refuse_unknown_features(snapshot: Snapshot) -> None:
    """Raise UnsupportedFeature if a table's features require more than this commit does."""
    unknown = (snapshot.reader_features | snapshot.writer_features) - WRITTEN - PREVIEWS
    if unknown and (unknown := unknown - snapshot.idle_features):  # which inspects all columns
        raise UnsupportedFeature(
            f"Table {snapshot.ref} uses {', '.join(sorted(unknown))}, with which the duckdb engine cannot write. "
            "Run this with engine: spark."
        )


def refuse_copies(snapshot: Snapshot) -> None:
    """Raise UnsupportedFeature if files of another engine cannot become files of the table.

    That happens when Spark fills a copy of the table.
    """
    if strange := features_of_files(snapshot):
        raise UnsupportedFeature(
            f"Table {snapshot.ref} uses {', '.join(sorted(strange))}, and this writes it anew from a copy, which "
            "Spark's own statements do not. Run this with engine: duckdb, which keeps them."
        )


def _properties(snapshot: Snapshot | None, new: NewCommit) -> Mapping[str, str]:
    """Return the table's properties after the commit."""
    table = new.definition or snapshot
    assert table is not None, "a new table has a definition"
    return table.properties


def _features(tables: TableAccess, snapshot: Snapshot | None, protocol: Protocol | None) -> Collection[str]:
    """Return the table's writer features after the commit."""
    if protocol is not None:
        return protocol.present()
    return () if snapshot is None else snapshot.writer_features


def _numbered(
    tables: TableAccess,
    ref: TableRef,
    snapshot: Snapshot | None,
    new: NewCommit,
    added: list[dict[str, Any]],
    version: int,
) -> list[dict[str, Any]]:
    """Assign row ids to the added files, in place; return the action of the new highest id.

    If this commit enables row tracking, it adds the present files again, with row ids.
    """
    ids = numbering.Numbering(tables, snapshot, version)
    if snapshot is not None and new.definition is not None:
        before = is_on(snapshot.properties, ROW_TRACKING)
        if is_on(new.definition.properties, ROW_TRACKING) and not before:
            gone = [*new.removes, *(mark.file for mark in new.marks)]
            added += [{**add, "dataChange": False} for add in numbering.unnumbered(tables, snapshot, gone)]
    added[:] = [ids.of(add) for add in numbering.counted(tables, ref, added)]
    return ids.action()


def _table(
    tables: TableAccess, snapshot: Snapshot | None, new: NewCommit
) -> tuple[Protocol | None, DeltaDefinition | None]:
    """Return the protocol and the definition that the commit changes; None for one that stays."""
    definition = cast(DeltaDefinition, new.definition)
    if snapshot is None:
        assert definition is not None, "a new table has a definition"
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


def _check_files(
    ref: TableRef,
    snapshot: Snapshot | None,
    new: NewCommit,
    operation: Operation,
    returns: Sequence[Mapping[str, Any]],
) -> None:
    """Raise LostRows unless the live files are those before, minus removes, plus adds."""
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
            f"Table {ref}: {operation.name} was not committed: "
            + (f"it would remove files that version {snapshot and snapshot.version} does not have, such as {missed[0]},"
               f" so that {len(missed)} files stayed" if missed else f"it would name one file twice, {twice[0]}")
            , remedy="run this with engine: spark, and report it"
        )  # fmt: skip


def _check_rows(ref: TableRef, new: NewCommit, operation: Operation) -> None:
    """Raise LostRows unless added rows equal removed rows minus deleted plus inserted rows.

    Without all counts and statistics, nothing is checked.
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
        f"Table {ref}: {operation.name} was not committed: the rows that it takes out of "
        f"{len(new.removes) + len(new.marks)} files are {before} by their statistics; with {deleted} rows deleted "
        f"and {inserted} inserted {before - deleted + inserted} would be left, and it wrote {after}",
        remedy=f"Run this with engine: spark; if that finds {before} rows in those files too, report it",
    )


def _refuse_another_table(tables: TableAccess, snapshot: Snapshot | None) -> None:
    """Raise CommitConflict if the table was dropped since this commit started."""
    # A log of a new table would accept the commit, but the files are gone with the older table.
    if snapshot is None or snapshot.pin is None or tables.newest.has(snapshot):
        return
    try:
        snapshot.pin.check("")
    except (VersionNotReadable, TableNotFound) as error:
        again = "" if isinstance(error, TableNotFound) else ", and created again,"
        raise CommitConflict(
            f"Table {snapshot.ref} was dropped{again} while this write from its version {snapshot.version} ran, "
            "and the files that were written went with it",
            remedy="run it again",
        ) from error


def _check_names(ref: TableRef, snapshot: Snapshot | None, new: NewCommit, operation: Operation) -> None:
    """Raise LostRows if added files name a column otherwise than the table's physical name.

    Readers would see NULL.
    """
    table = new.definition or snapshot
    assert table is not None, "a new table has a definition"
    columns = stored_columns(table.schema)
    for text in {file.schema for file in new.adds if file.schema}:
        if others := other_names(schema_from_text(text), table.schema, columns):
            raise LostRows(
                f"Table {ref}: {operation.name} was not committed: its files call the column {', '.join(others)} "
                "otherwise than the table has it (delta.columnMapping.mode)",
                remedy="run this again, with engine: spark, and report it",
            )


def _statistics(snapshot: Snapshot | None, new: NewCommit) -> Statistics:
    """Return the statistics that the table requires of its files after the commit."""
    table = cast(DeltaDefinition, new.definition) or snapshot
    assert table is not None, "a new table has a definition"
    without = {*table.partition_columns, *table.variants}
    columns = [f for f in table.schema if f.name not in without]
    return Statistics(columns, table.properties, stored_columns(table.schema))


def _add(file: StagedFile, now: int, data_change: bool, figures: Statistics) -> dict[str, Any]:
    return {
        "path": encoded(file.path),
        "partitionValues": figures.partition_values(file),
        "size": file.size,
        "modificationTime": now,
        "dataChange": data_change,
        "stats": figures.of(file),
    }


def _fed(file: StagedFile, figures: Statistics) -> dict[str, Any]:
    """Return a file of the change feed. Source: Delta protocol, Add CDC File."""
    return {
        "path": encoded(file.path),
        "partitionValues": figures.partition_values(file),
        "size": file.size,
        "dataChange": False,
    }


def _removes(tables: TableAccess, snapshot: Snapshot, new: NewCommit, now: int) -> Iterator[dict[str, Any]]:
    _refuse_append_only(snapshot, new)
    # A remove repeats the path, the deletion vector and the row ids of the add, letter by letter.
    with_ids = "rowTracking" in snapshot.writer_features
    added = adds_of(tables, snapshot, {spelled(f) for f in new.removes if f.deletion_vector or with_ids})
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
        "extendedFileMetadata": True,
        **{key: add[key] for key in _OF_THE_ADD if add.get(key) is not None},
    }


def marked(
    tables: TableAccess, snapshot: Snapshot | None, new: NewCommit
) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Return pairs of (old add, new add with deletion vector), one per file with deleted rows.

    The new add is None if every row is deleted.

    Raises:
        CommitTaken: A file is gone, or a row to delete is deleted already.
    """
    if not new.marks:
        return []
    assert snapshot is not None, "only a table that is there has rows to mark"
    _refuse_append_only(snapshot, new)
    live = snapshot.files().named({spelled(mark.file) for mark in new.marks})
    gone = [spelled(mark.file) for mark in new.marks if spelled(mark.file) not in live]
    if gone:
        raise CommitTaken(f"version {snapshot.version} of table {snapshot.ref}, which has {gone[0]} no longer")
    before = adds_of(tables, snapshot, {spelled(mark.file) for mark in new.marks})
    actions = [before[spelled(mark.file)] for mark in new.marks]
    vectors = []
    for mark, add in zip(new.marks, actions, strict=True):
        rows = read_vector(tables, snapshot.ref, add.get("deletionVector"))
        deleted = len(rows)
        rows.update(mark.rows)
        if len(rows) < deleted + len(mark.rows):
            raise CommitTaken(f"version {snapshot.version} of table {snapshot.ref}, where a row to change is deleted")
        vectors.append(rows)
    whole = [
        mark.file.rows is not None and len(v) >= mark.file.rows for mark, v in zip(new.marks, vectors, strict=True)
    ]
    written = iter(write_vectors(tables, snapshot.ref, [v for v, none in zip(vectors, whole, strict=True) if not none]))
    return [
        (add, None if none else _marked(add, next(written), mark.file.rows))
        for mark, add, none in zip(new.marks, actions, whole, strict=True)
    ]


def _marked(add: Mapping[str, Any], vector: Mapping[str, Any], rows: int | None) -> dict[str, Any]:
    """Return the add of a file with a deletion vector."""
    # Named keys only: a checkpoint may hold statistics in columns of its own.
    same = {
        key: add[key] for key in (*_OF_THE_ADD, "modificationTime", "clusteringProvider") if add.get(key) is not None
    }
    return {**same, "deletionVector": dict(vector), "stats": marked_statistics(add.get("stats"), rows)}


def _refuse_append_only(snapshot: Snapshot, new: NewCommit) -> None:
    if new.data_change and snapshot.is_append_only:
        raise append_only(snapshot.ref)
