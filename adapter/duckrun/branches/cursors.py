"""Offsets of consumers in a branch, which a publish and a rebase give other version numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from duckrun.formats.branches import BranchTables, PlannedTable
from duckrun.formats.format import Format
from duckrun.storage.storage import Storage
from duckrun.values.branches import Line
from duckrun.values.cursors import Offsets, Range, offsets_path
from duckrun.values.snapshot import TableRef


def _offsets(tables: BranchTables, ref: TableRef, line: Line) -> Iterator[tuple[str, str, Offsets]]:
    """Yield the consumers that wrote a table in the branch, and path and text of their offsets."""
    for consumer, number in tables.app_versions(ref, line).items():
        path = offsets_path(consumer, number)
        raw = tables.storage.read_at(ref.location, path)
        if raw is not None:
            yield consumer, path, Offsets.from_json(raw, f"{ref.location}/{path}")


def unread(
    main: Format, tables: BranchTables, ref: TableRef, line: Line, upstreams: Mapping[str, tuple[TableRef, Line]]
) -> list[str]:
    """Return the consumers of the branch that lack rows which main will have, in words.

    A consumer's position is one version, so that it cannot have read the branch's rows and lack
    those of main, or the other way round.

    Args:
        main: Main's format.
        tables: Tables of the branch.
        ref: Output of the consumers.
        line: Its line.
        upstreams: Changed tables of the branch, by name.
    """
    reasons = []
    for consumer, _, offsets in _offsets(tables, ref, line):
        for name, read in offsets.ranges.items():
            if name not in upstreams or read.to_version <= upstreams[name][1].base:
                continue
            upstream, of_upstream = upstreams[name]
            head = tables.snapshot(upstream).version
            if read.to_version < head:
                reasons.append(
                    f"{consumer} has read {name} up to version {read.to_version} of the branch, whose newest one is "
                    f"{head}: run it again in the branch"
                )
            elif of_upstream.base >= 0 and any(r.changes_rows for r in main.records_after(upstream, of_upstream.base)):
                reasons.append(f"{consumer} has read {name} in the branch, and lacks rows that main changed since")
    return reasons


def upstreams_first(tables: BranchTables, planned: Sequence[PlannedTable]) -> list[PlannedTable]:
    """Sort tables so that those that consumers read come before those that they write."""
    reads: dict[str, set[str]] = {}
    for table in planned:
        line = None if table.change == "dropped" else tables.line(table.ref)
        offsets = () if line is None else _offsets(tables, table.ref, line)
        reads[str(table.ref)] = {name for *_, each in offsets for name in each.ranges} - {str(table.ref)}
    ordered: list[PlannedTable] = []
    left = list(planned)
    while left:
        names = {str(table.ref) for table in left}
        # Tables that read each other cannot be sorted, and stay in their order.
        ready = [table for table in left if not reads[str(table.ref)] & names] or left
        ordered += ready
        left = [table for table in left if table not in ready]
    return ordered


@dataclass(frozen=True)
class Moved:
    """A table whose commits in a branch became one commit."""

    ref: TableRef
    line: Line
    """The line before."""
    version: int
    """Version of that commit."""


def carry(
    storage: Storage,
    tables: BranchTables,
    ref: TableRef,
    line: Line,
    moved: Mapping[str, Moved],
    form: Format,
    folder: str = "",
) -> None:
    """Write the offsets of a table's consumers with the new version numbers.

    Args:
        storage: Storage of the lake.
        tables: Tables of the branch.
        ref: Output of the consumers.
        line: Its line.
        moved: Tables that were moved, by name.
        form: Format that has their new versions.
        folder: Folder in the output's folder for the offsets.
    """
    for _, path, offsets in _offsets(tables, ref, line):
        ranges = {
            name: _after(form, read, moved[name]) if name in moved else read for name, read in offsets.ranges.items()
        }
        storage.put_at(ref.location, f"{folder}{path}", replace(offsets, ranges=ranges).to_json().encode())


def _after(form: Format, read: Range, moved: Moved) -> Range:
    """Return a range in the new version numbers."""
    base = moved.line.base
    if read.to_version <= base:
        return read
    fingerprint = form.fingerprint(moved.ref, moved.version)
    start = min(read.from_version, base)
    return replace(read, from_version=start, to_version=moved.version, fingerprint=fingerprint)
