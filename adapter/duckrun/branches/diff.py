"""Branches of a lake with their tables, and the difference of one branch from main."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from duckrun.branches import registry
from duckrun.branches.publish import refuse_no_branches, tables_of
from duckrun.formats.branches import BranchTables
from duckrun.formats.commits import ROW_COUNTS, sums_of
from duckrun.lake.lake import Lake
from duckrun.storage.parallel import at_once
from duckrun.values.branches import Branch, BranchInfo, BranchList, Line, TableDiff
from duckrun.values.names import name_of
from duckrun.values.snapshot import TableRef


def branches(lake: Lake) -> BranchList:
    """Return the branches of a lake, by name.

    Raises:
        UnsupportedFeature: The lake has format ducklake.
    """
    refuse_no_branches(lake)
    return BranchList(at_once(lambda branch: _info(lake, branch), registry.branches(lake.storage)))


def _info(lake: Lake, branch: Branch) -> BranchInfo:
    tables = tables_of(lake.storage, branch)
    changed = [(ref, line) for ref, line, _ in changed_tables(lake, branch, tables)]
    sums = sums_of([record for ref, line in changed for record in tables.commits(ref, line)])
    views = tuple(name for name, _ in changed_views(lake, branch))
    state = "publishing" if registry.is_closed(lake.storage, branch) else "open"
    return BranchInfo(
        branch.name,
        branch.created,
        branch.by,
        (*(str(ref) for ref, _ in changed), *views),
        sum(sums.values()) if len(sums) == len(ROW_COUNTS) else None,
        max(0.0, round((registry.now() - branch.created) / 1000, 1)),
        state,
    )


def changed_tables(lake: Lake, branch: Branch, tables: BranchTables) -> Iterator[tuple[TableRef, Line, str]]:
    """Yield the tables that a branch changes, with their lines and the kind of change."""
    for ref in registry.forks(lake.storage, branch):
        line = tables.line(ref)
        change = None if line is None else tables.change(ref, line)
        if line is not None and change is not None:
            yield ref, line, change


def diff(lake: Lake, branch: Branch) -> tuple[TableDiff, ...]:
    """Return the difference of a branch from main, per table and view. Reads logs alone."""
    tables = tables_of(lake.storage, branch)
    entries = [_table(lake, tables, *each) for each in changed_tables(lake, branch, tables)]
    entries += [TableDiff(name, change) for name, change in changed_views(lake, branch)]
    tables.close()
    return tuple(sorted(entries, key=lambda entry: entry.table))


def _table(lake: Lake, tables: BranchTables, ref: TableRef, line: Line, change: str) -> TableDiff:
    main = lake.format.begin(ref)
    entry = TableDiff(
        str(ref),
        change,
        base_version=None if line.base < 0 else line.base,
        main_version=None if main is None else main.version,
    )
    if change == "dropped":
        return entry
    version, columns = tables.snapshot(ref).version, tables.schema_changes(ref, line)
    sums: dict[str, Any] = sums_of(tables.commits(ref, line))
    return replace(entry, version=version, schema_changes=columns, **sums)


def changed_views(lake: Lake, branch: Branch) -> Iterator[tuple[str, str]]:
    """Yield the names of the views that a branch defines or drops, and the kind of change."""
    for schema, name in registry.definitions(lake.storage, branch):
        raw = lake.storage.read(f"{branch.home}/definitions/{schema}/{name}.json")
        if raw is not None and b'"kind": "location"' not in raw:
            yield f"{name_of(schema)}.{name_of(name)}", "dropped" if raw == registry.DROPPED else "view"
