"""Description of a commit in its log entry: operation, parameters, and metrics.

History, DESCRIBE HISTORY and monitoring know operations by these names. All values are text; lists
and conditions are JSON.
Source: Delta protocol, Commit Provenance Information; the names are those of delta-spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from duckrun.formats.commits import NewCommit
from duckrun.formats.definitions import TableDefinition
from duckrun.values.frozen import frozen
from duckrun.values.rows import (
    DeleteInsertSpec,
    DeleteSpec,
    MergeSpec,
    UpdateSpec,
    WriteSpec,
    counted_rows,
)
from duckrun.values.snapshot import Snapshot
from duckrun.values.tables import (
    AddCheck,
    AddColumn,
    AlterSpec,
    CreateSpec,
    DropCheck,
    DropColumn,
    OptimizeSpec,
    PurgeSpec,
    RenameColumn,
    SetProperties,
    UnsetProperties,
)


@frozen
class Operation:
    """Operation of a commit (``WRITE``, ``MERGE``, ``DELETE`` …) and its parameters."""

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)


def operation_of(new: NewCommit, snapshot: Snapshot | None) -> Operation:
    """Return the operation of a commit for its log entry."""
    match new.spec:
        case None:
            return Operation("SET TBLPROPERTIES")
        case AlterSpec():
            kinds = {_ALTERED.get(type(change), "CHANGE COLUMN") for change in new.spec.changes}
            return Operation(kinds.pop() if len(kinds) == 1 else "ALTER TABLE")
        case OptimizeSpec():
            parameters = {"predicate": _given(new.spec.predicate), "zOrderBy": listed(new.spec.z_order_by)}
            return Operation("OPTIMIZE", {**parameters, "clusterBy": "[]", "auto": "false"})
        case PurgeSpec():
            return Operation("REORG", {"predicate": _given(new.spec.predicate), "applyPurge": "true"})
    if snapshot is None or new.anew:
        assert new.definition is not None, "a table that is made has a definition"
        how = "CREATE TABLE" if snapshot is None else "CREATE OR REPLACE TABLE"
        return _created(new.definition, how if isinstance(new.spec, CreateSpec) else f"{how} AS SELECT")
    match new.spec:
        case WriteSpec():
            mode = "Append" if new.spec.mode in ("append", "safeappend") else "Overwrite"
            partition_by = (new.definition or snapshot).partition_columns
            parameters = {"mode": mode, "partitionBy": listed(partition_by)}
            if new.spec.predicate is not None:
                parameters["predicate"] = new.spec.predicate
            elif new.spec.mode == "replace":
                parameters["isDynamicPartitionOverwrite"] = "true"
            return Operation("WRITE", parameters)
        case MergeSpec():
            return _merge(new.spec)
        case DeleteInsertSpec():
            on = _keys(new.spec.keys) + ([f"({new.spec.predicate})"] if new.spec.predicate else [])
            return _merged(on, [{"actionType": "delete"}], [{"actionType": "insert"}], [])
        case DeleteSpec():
            return Operation("DELETE", {"predicate": _given(new.spec.predicate)})
        case UpdateSpec():
            return Operation("UPDATE", {"predicate": _given(new.spec.predicate)} if new.spec.predicate else {})
    raise AssertionError("of all that is done to a table as a whole, the rest is not committed here")


def listed(values: Sequence[str]) -> str:
    return json.dumps(list(values), ensure_ascii=False)


def _given(predicate: str | None) -> str:
    return listed([predicate] if predicate else [])


def _created(definition: TableDefinition, name: str) -> Operation:
    """Return the operation of a table created by a statement or with its first rows."""
    parameters = {
        "isManaged": "false",
        "partitionBy": listed(definition.partition_columns),
        "properties": json.dumps(dict(definition.properties), ensure_ascii=False),
    }
    if definition.description is not None:
        parameters["description"] = definition.description
    return Operation(name, parameters)


def _keys(keys: Sequence[str], compared: Mapping[str, str] | None = None) -> list[str]:
    return [f"({(compared or {}).get(key, f'target.{key}')} = source.{key})" for key in keys]


def _merge(spec: MergeSpec) -> Operation:
    clauses: dict[str, list[dict[str, str]]] = {"matched": [], "not_matched": [], "not_matched_by_source": []}
    for clause in spec.clauses:
        kind, _, action = clause.kind.rpartition("_")
        condition = {} if clause.condition is None else {"predicate": clause.condition}
        clauses[kind].append({**condition, "actionType": action})
    on = _keys(spec.keys, spec.compared) + ([f"({spec.on})"] if spec.on else [])
    return _merged(on, *clauses.values())


def _merged(on: Sequence[str], *clauses: Sequence[Mapping[str, str]]) -> Operation:
    names = ("matchedPredicates", "notMatchedPredicates", "notMatchedBySourcePredicates")
    predicates = {name: json.dumps(clause, ensure_ascii=False) for name, clause in zip(names, clauses, strict=True)}
    return Operation("MERGE", {"predicate": listed([" AND ".join(on)]), **predicates})


_ALTERED = {
    AddColumn: "ADD COLUMNS",
    DropColumn: "DROP COLUMNS",
    RenameColumn: "RENAME COLUMN",
    AddCheck: "ADD CONSTRAINT",
    DropCheck: "DROP CONSTRAINT",
    SetProperties: "SET TBLPROPERTIES",
    UnsetProperties: "UNSET TBLPROPERTIES",
}


def metrics(operation: str, new: NewCommit, returns: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the metrics of an operation by Delta's own names, without unknown ones."""
    adds, removes, marks = new.adds, new.removes, new.marks
    inserted, updated, deleted = new.rows
    written, before = counted_rows(adds), counted_rows(removes)
    copied = None
    if written is not None and inserted is not None and removes:
        copied = max(0, written - inserted - (updated or 0))
    added, removed = len(adds), len(removes)
    added_bytes, removed_bytes = sum(f.size for f in adds), sum(f.size for f in removes)
    files: dict[str, int | None] = {
        "numAddedFiles": added, "numRemovedFiles": removed,
        "numAddedBytes": added_bytes, "numRemovedBytes": removed_bytes,
    }  # fmt: skip
    figures: dict[str, int | None]
    if operation == "MERGE":
        figures = {
            "numTargetRowsInserted": inserted, "numTargetRowsUpdated": updated, "numTargetRowsDeleted": deleted,
            "numTargetRowsCopied": copied or 0, "numOutputRows": written,
            "numTargetFilesAdded": added, "numTargetFilesRemoved": removed,
            "numTargetBytesAdded": added_bytes, "numTargetBytesRemoved": removed_bytes,
        }  # fmt: skip
    elif operation == "UPDATE":
        figures = {"numUpdatedRows": updated, "numCopiedRows": copied or 0, **files}
    elif operation == "DELETE":
        figures = {"numDeletedRows": before if deleted is None else deleted, "numCopiedRows": copied or 0, **files}
    elif operation in ("OPTIMIZE", "REORG"):
        figures = files
    elif operation == "RESTORE":
        figures = {
            "numRestoredFiles": len(returns), "restoredFilesSize": sum(add["size"] for add in returns),
            "numRemovedFiles": removed, "removedFilesSize": removed_bytes,
        }  # fmt: skip
    elif not adds and not removes:
        figures = {}
    else:
        figures = {"numFiles": added, "numOutputRows": written, "numOutputBytes": added_bytes}
        if removes:
            figures |= {
                "numRemovedFiles": removed, "numRemovedBytes": removed_bytes,
                "numCopiedRows": copied, "numDeletedRows": deleted,
            }  # fmt: skip
    if marks:
        target = "Target" if operation == "MERGE" else ""
        again = sum(mark.file.deletion_vector for mark in marks)
        figures |= {
            f"num{target}DeletionVectorsAdded": len(marks) - again, f"num{target}DeletionVectorsUpdated": again,
            f"num{target}DeletionVectorsRemoved": sum(file.deletion_vector for file in removes),
        }  # fmt: skip
    return {name: str(value) for name, value in figures.items() if value is not None}
