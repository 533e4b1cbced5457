"""Commit of a line's net change to main's table, and the test that main can take it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, cast

from duckrun.errors import CommitConflict, VersionNotReadable
from duckrun.formats.branches import PlannedTable, Sees
from duckrun.formats.commits import CommitRecord, CommitTaken, NewCommit
from duckrun.formats.delta.branches.net import NetChange, vector_of
from duckrun.formats.delta.commits.commit import PreparedCommit, prepared_commit, written
from duckrun.formats.delta.commits.operations import Operation
from duckrun.formats.delta.commits.restore import changed_definition
from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.properties import RECORDED
from duckrun.formats.delta.files.vectors import read_vector, write_vectors
from duckrun.formats.delta.log.adds import adds_of
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.values.rows import StagedFile, counted_rows
from duckrun.values.snapshot import Snapshot, TableRef

_RACES = 12
APPEND_ONLY_NOW = "main's table is append-only (delta.appendOnly), and the branch removed rows"


@dataclass(frozen=True)
class Tested:
    """A version of main's table that was compared with a net change."""

    now: Snapshot | None
    conflicts: tuple[str, ...] = ()
    marks: Mapping[str, Any] = field(default_factory=dict)
    """Rows that both sides deleted from a file, by path: the union of the vectors."""

    def holds(self, now: Snapshot | None) -> bool:
        """True if another look at main's table has met the same version."""
        return _identity(self.now) == _identity(now)


def _identity(snapshot: Snapshot | None) -> tuple[int, str] | None:
    return None if snapshot is None else (snapshot.version, snapshot.table_id)


def tested(main: TableAccess, change: str, net: NetChange, now: Snapshot | None, sees: Sees) -> Tested:
    """Compare the net change of a line with main's commits since its base."""
    if change != "changed" or now is None:
        return Tested(now)
    base = net.base
    assert base is not None, "a line over a version of main"
    if now.table_id != base.table_id:
        return Tested(now, ("main's table was created again since",))
    if net.removes and net.data_change and now.is_append_only:
        return Tested(now, (APPEND_ONLY_NOW,))
    if now.version == base.version:
        return Tested(now)
    since = main.records_after(now.ref, base.version)
    if len(since) < now.version - base.version:
        return Tested(now, (f"main's log no longer tells what changed after version {base.version}",))
    reasons = [*_of_definitions(main, net, now, since)]
    for record in since:
        if same := sorted(app.app_id for app in record.transactions if app.app_id in net.transactions):
            reasons.append(f"version {record.version} of main is a commit of the same work ({', '.join(same)})")
    marks, reasons_of_files = _of_files(main, net, now)
    reasons += reasons_of_files
    changing = [record for record in since if record.changes_rows]
    if changing and not reasons and (seen := _seen(main, net, changing, sees)) is not None:
        reasons.append(
            f"version {seen.version} of main ({seen.operation}) changed rows that the branch was computed from"
        )
    return Tested(now, tuple(reasons), marks)


def _of_definitions(main: TableAccess, net: NetChange, now: Snapshot, since: Sequence[CommitRecord]) -> list[str]:
    base = cast(Snapshot, net.base)
    before, after = main.definition(base), main.definition(now)
    theirs = _differs(before, after)
    ours = net.definition is not None and _differs(before, net.definition)
    if theirs and ours:
        return ["both sides changed its columns, partitions or constraints"]
    if theirs and net.adds:
        return ["main changed its columns, partitions or constraints since"]
    if ours and any(record.changes_rows for record in since):
        return ["the branch changed its columns, partitions or constraints, and main changed rows since"]
    if net.definition is not None and (both := _set_by_both(before, after, net.definition)):
        return [f"both sides changed {', '.join(both)}"]
    return []


def _set_by_both(before: DeltaDefinition, theirs: DeltaDefinition, ours: DeltaDefinition) -> list[str]:
    """Return what both sides have set, each to another value, in words."""

    def differs(old: object, of_main: object, of_branch: object) -> bool:
        return old not in (of_main, of_branch) and of_main != of_branch

    sides = (before, theirs, ours)
    names = sorted({name for side in sides for name in side.properties} - RECORDED)
    both = [f"the property {name}" for name in names if differs(*(side.properties.get(name) for side in sides))]
    parts = {"cluster_by": "its clustering", "description": "its description"}
    return both + [text for part, text in parts.items() if differs(*(getattr(side, part) for side in sides))]


def merged_definition(main: TableAccess, net: NetChange, now: Snapshot) -> DeltaDefinition | None:
    """Return main's definition with the changes of a line over it; None if it has none."""
    base = cast(Snapshot, net.base)
    if net.definition is None or main.definition(now) == main.definition(base):
        return net.definition
    return changed_definition(main, base, now, net.definition)


def _differs(one: DeltaDefinition, other: DeltaDefinition) -> bool:
    first, second = ((each.fields, each.partition_columns, each.checks, each.is_mapped) for each in (one, other))
    return first != second


def _of_files(main: TableAccess, net: NetChange, now: Snapshot) -> tuple[dict[str, Any], list[str]]:
    """Return the united vectors of files that both sides marked, and the conflicts."""
    paths = set(net.removes)
    live = now.files().named(paths)
    actions = adds_of(main, now, {path for path, file in live.items() if file.deletion_vector})
    marks: dict[str, Any] = {}
    for path, remove in net.removes.items():
        if path not in live:
            return {}, [f"main removed the file {path}, which the branch changed, too"]
        theirs = actions.get(path, {})
        if vector_of(theirs) == vector_of(remove):
            continue
        ours = net.adds.get(path)
        if ours is None:
            return {}, [f"main deleted rows of the file {path}, which the branch removed"]
        vectors = (each.get("deletionVector") for each in (remove, theirs, ours))
        base, of_main, of_branch = (read_vector(main, now.ref, vector) for vector in vectors)
        if (of_main - base) & (of_branch - base):
            return {}, [f"both sides changed the same rows of the file {path}"]
        marks[path] = of_main | of_branch
    again = now.files().named(set(net.adds) - paths)
    if again:
        return {}, [f"main has the file {min(again)} already"]
    return marks, []


def _seen(main: TableAccess, net: NetChange, since: Sequence[CommitRecord], sees: Sees) -> CommitRecord | None:
    """Return a commit of main that changed rows which the line depends on; None if none did."""
    reads = net.reads
    if reads is None:
        return since[0]
    for record in since if reads else ():
        added, removed = ({file.name for file in side if file.changes_rows} for side in (record.added, record.removed))
        try:
            before, after = (main.snapshot(net.head.ref, number) for number in (record.version - 1, record.version))
        except VersionNotReadable:
            return record
        for snapshot, names, opposite in ((after, added, before), (before, removed, after)):
            files = snapshot.files().named(names)
            if len(files) < len(names):
                return record
            both = opposite.files().named(names)
            again, alone = [files[path] for path in files if path in both], [files[p] for p in files if p not in both]
            for predicate in reads:
                if alone and sees(snapshot, alone, None, predicate):
                    return record
                if again and sees(snapshot, again, opposite, predicate):
                    return record
    return None


def publish(
    branch: TableAccess,
    main: TableAccess,
    table: PlannedTable,
    net: NetChange,
    before: Tested | None,
    note: Mapping[str, Any],
    sees: Sees,
) -> int:
    """Commit the net change of a line to main's table, and return the version.

    Args:
        branch: Tables of the branch.
        main: Tables that get the commit.
        table: The table.
        net: The net change.
        before: Result of an earlier comparison; None without one.
        note: Note of the commit, and the folder of its vectors.
        sees: See Sees.

    Raises:
        CommitConflict: Main's table cannot take it.
    """
    ref = table.ref
    for _ in range(_RACES):
        now = main.begin(ref)
        if (there := _published(main, ref, now, table, str(note["publish"]))) is not None:
            return there
        if before is None or not before.holds(now):
            before = tested(main, table.change, net, now, sees)
        if before.conflicts:
            raise CommitConflict(f"Table {ref}: {'; '.join(before.conflicts)}")
        try:
            return written(main, prepared(branch, main, table, net, replace(before, now=now), note))
        except CommitTaken:
            continue
    raise CommitConflict(f"Table {ref}: another writer took each version for {_RACES} times")


def _published(main: TableAccess, ref: TableRef, now: Snapshot | None, table: PlannedTable, id: str) -> int | None:
    """Return the version of this publish in a table's log; None before it is made."""
    if now is None:
        return None
    least = -1 if table.before is None else table.before
    for actions in main.actions_back(ref, now.version):
        if actions.version <= least:
            return None
        if actions.note.get("publish") == id:
            return actions.version
    return None


def prepared(
    branch: TableAccess,
    main: TableAccess,
    table: PlannedTable,
    net: NetChange,
    tested: Tested,
    note: Mapping[str, Any],
) -> PreparedCommit:
    """Return the commit of a net change to main's table, after all checks of a commit."""
    ref, now, definition = table.ref, tested.now, net.definition
    removes: Sequence[Any] = ()
    adds = dict(net.adds)
    if table.change == "created":
        if now is not None:
            raise CommitConflict(f"Table {ref} is in main now, and the branch created it, too")
    elif now is None:
        raise CommitConflict(f"Table {ref} is not in main any more")
    elif table.change == "replaced":
        if now.version != table.before:
            raise CommitConflict(f"Table {ref} was changed in main since the branch replaced it")
        removes = tuple(now.files())
    else:
        removes = tuple(now.files().named(set(net.removes)).values())
        adds |= _united(main, ref, net, tested.marks, str(note["folder"]))
        definition = merged_definition(main, net, now)
    # Features that a statement requested by name are in the protocol alone.
    before: Set[str] = frozenset() if net.base is None else branch.protocol(net.base).present()
    if features := branch.protocol(net.head).present() - before:
        definition = definition or main.definition(cast(Snapshot, now))
        definition = replace(definition, requested=definition.requested | features)
    new = NewCommit(
        None,
        definition,
        removes=removes,
        rows=(None, None, None),
        writer="staged",
        anew=table.change == "replaced",
        data_change=net.data_change,
        feed=[StagedFile.from_json(file) for file in table.feed],
        note={**{key: value for key, value in note.items() if key != "folder"}, **net.rows},
    )
    # The version at which rows were committed is main's.
    returns = [
        {key: value for key, value in add.items() if key != "defaultRowCommitVersion" or path in net.removes}
        for path, add in adds.items()
    ]
    also = [{"txn": {"appId": app, "version": version}} for app, version in net.transactions.items()]
    also += [{"domainMetadata": dict(action)} for action in net.domains.values()]
    operation = Operation("PUBLISH", {"branch": str(note["branch"])})
    return prepared_commit(main, ref, now, new, operation=operation, returns=returns, also=also)


def lost_rows(net: NetChange) -> str | None:
    """Return how the files of a line contradict its commits; None if their rows add up.

    Without all counts and statistics, nothing is checked.
    """
    come = [_live_rows(add) for add in net.adds.values()]
    inserted, deleted = net.rows.get("rows_inserted"), net.rows.get("rows_deleted")
    # A remove has no statistics, so the base tells the rows.
    before = 0 if net.base is None else counted_rows(net.base.files().named(set(net.removes)).values())
    if before is None or None in come or inserted is None or deleted is None:
        return None
    after = sum(rows for rows in come if rows is not None)
    if after - before == inserted - deleted:
        return None
    return (
        f"the branch inserted {inserted} and deleted {deleted} rows by its commits, and its files have {after} rows in "
        f"place of {before}: report it"
    )


def _live_rows(add: Mapping[str, Any]) -> int | None:
    """Return the number of rows of an added file without those that its vector deletes."""
    rows = json.loads(add.get("stats") or "{}").get("numRecords")
    return None if rows is None else int(rows) - int((add.get("deletionVector") or {}).get("cardinality", 0))


def _united(
    main: TableAccess, ref: TableRef, net: NetChange, marks: Mapping[str, Any], folder: str
) -> dict[str, dict[str, Any]]:
    """Return the adds of files that both sides marked, with the united vectors."""
    if not marks:
        return {}
    vectors = write_vectors(main, ref, list(marks.values()), folder)
    return {path: {**net.adds[path], "deletionVector": vector} for path, vector in zip(marks, vectors, strict=True)}
