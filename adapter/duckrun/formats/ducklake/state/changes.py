"""Read plans for differences of table states: only data files that differ between two snapshots.

A plan reads rows as DuckLake returns them at a snapshot. DuckLake's change feed is not used: it
reports every row of a rewritten file as updated. The catalog tells which data files and inlined
rows are equal at both ends of a step; they are left out.

Source: the DuckLake specification 1.0, ducklake_data_file, ducklake_delete_file, Data Inlining, and
measurements of duckdb 1.5.5's extension. A file with rows of several snapshots (``partial_max``)
has the snapshot of each row, in the column ``snapshot_id``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from duckrun.formats.ducklake.catalog.catalog import Catalog
from duckrun.formats.ducklake.state.columns import Columns
from duckrun.formats.ducklake.state.inlined import if_there, inlined_tables
from duckrun.formats.ducklake.state.state import TableState, state_of, touches
from duckrun.formats.ducklake.state.stored import ROWS, touching
from duckrun.values.changes import Between, FileRows, StateRows
from duckrun.values.snapshot import Snapshot

_DELETED_IN_THE_CATALOG = ("inlined_delete",)
_WRITTEN_ANEW = ("rewrite_delete",)


@dataclass
class _File:
    """Data file, or a table of inlined rows."""

    name: str
    begin: int
    end: int | None
    partial: int | None
    """Last snapshot of the rows, if they belong to several snapshots."""
    deletes: list[tuple[int, int | None]] = field(default_factory=list)
    """(begin, partial) of the delete files for its rows."""
    gone: list[int] = field(default_factory=list)
    """Snapshots that deleted inlined rows, or added inlined deletes."""

    def is_there(self, version: int | None) -> bool:
        return version is not None and self.begin <= version and (self.end is None or self.end > version)


@dataclass(frozen=True)
class _Wanted:
    """Rows to read at any one of the places from ``low`` to ``high`` (see ``_Plan``)."""

    low: int
    high: int
    rows: FileRows


def state_rows(
    catalog: Catalog, seen: int | None, steps: Sequence[Between], to: Snapshot, columns: Sequence[str]
) -> tuple[StateRows, ...]:
    """Plan the reads whose signed rows add up to the difference of each step.

    Args:
        seen: The lake's newest snapshot.
        to: Snapshot that defines the names and types of the columns.
    """
    if not steps:
        return ()
    state = state_of(to)
    first = min(-1 if step.before is None else step.before for step in steps)
    last = max(step.after for step in steps)
    changes = _said(catalog, state, first, last)
    pieces = [piece for step in steps for piece in _pieces(step, state, changes)]
    unclear = [_may_hide(piece, changes) for piece in pieces]
    plan = _Plan(pieces, unclear)
    wanted = [each for file in _files(catalog, state, first, last) for each in plan.of(file)]
    tree = Columns.of(catalog, state)
    plans = []
    if plan.deleted:
        low, high = min(each.since or 0 for each in plan.deleted), max(each.until or 0 for each in plan.deleted)
        plans.append(StateRows(high, tree.converted(high, to, columns), tuple(plan.deleted), seen, deleted_since=low))
    for place, rows in _placed(wanted):
        at = plan.versions[place]
        plans.append(StateRows(at, tree.converted(at, to, columns), tuple(rows), seen))
    return tuple(plans)


def _said(catalog: Catalog, state: TableState, after: int, to: int) -> dict[int, str | None]:
    """Map snapshots of a range to their changes, if they have inlined deletes or rewrote files.

    Expired snapshots map to None.
    """
    meta, within = catalog.meta, f"snapshot_id > {after} AND snapshot_id <= {to}"
    changes = catalog.ask(
        f"SELECT snapshot_id, changes_made FROM {meta('ducklake_snapshot_changes')} WHERE {within} "
        f"AND {touching((*_DELETED_IN_THE_CATALOG, *_WRITTEN_ANEW), state.id)}"
    )
    changes_of: dict[int, str | None] = dict(changes)
    count, newest = catalog.ask(f"SELECT count(*), max(snapshot_id) FROM {meta('ducklake_snapshot')} WHERE {within}")[0]
    # Snapshot numbers have no gaps, except expired ones.
    if count < to - max(after, -1):
        there = {row[0] for row in catalog.ask(f"SELECT snapshot_id FROM {meta('ducklake_snapshot')} WHERE {within}")}
        changes_of |= {v: None for v in range(max(after + 1, state.begun), to + 1) if v not in there}
    return changes_of


def _pieces(step: Between, state: TableState, changes: Mapping[int, str | None]) -> Iterator[Between]:
    """Split a step around snapshots that only moved rows to other files, which need no read."""
    before = step.before
    for version in sorted(changes):
        text = changes[version]
        if text is None or before is None or not before < version <= step.after:
            continue
        only_moves = touches(text, state.id, _WRITTEN_ANEW) and not touches(text, state.id, ROWS)
        if only_moves and changes.get(version - 1, "") is not None:
            if before < version - 1:
                yield Between(before, version - 1, step.number, step.timestamp)
            before = version
    if before is None or before < step.after:
        yield Between(before, step.after, step.number, step.timestamp)


def _may_hide(step: Between, changes: Mapping[int, str | None]) -> bool:
    """True if inlined deletes may exist within a step.

    A flush moves such deletes to a delete file. The catalog may claim that this file has no
    snapshot per position (duckdb 1.5.5), but DuckLake reads it by them.
    """
    low = -1 if step.before is None else step.before
    return any(
        low < version <= step.after and (text is None or "inlined_delete" in text) for version, text in changes.items()
    )


def _files(catalog: Catalog, state: TableState, after: int, to: int) -> Iterator[_File]:
    """Files and inlined rows that may differ between snapshots of a range."""
    meta, ask = catalog.meta, catalog.ask
    within = f"begin_snapshot <= {to} AND ((end_snapshot IS NULL) OR end_snapshot > {after})"
    listed = ask(
        "SELECT data_file_id, path, path_is_relative, begin_snapshot, end_snapshot, partial_max "
        f"FROM {meta('ducklake_data_file')} WHERE table_id = {state.id} AND {within}"
    )
    files = {row[0]: _File(row[1], *row[3:]) for row in listed}
    folder = catalog.table_folder(state.id) if any(row[2] for row in listed) else ""
    for number, path, relative, *_ in listed:
        files[number].name = f"{folder}{path}" if relative else path
    for number, begin, partial in ask(
        f"SELECT data_file_id, begin_snapshot, partial_max FROM {meta('ducklake_delete_file')} "
        f"WHERE table_id = {state.id} AND {within}"
    ):
        if number in files:
            files[number].deletes.append((begin, partial))
    marked = f"SELECT DISTINCT file_id, begin_snapshot FROM {meta(f'ducklake_inlined_delete_{state.id}')} "
    marked += f"WHERE begin_snapshot > {after} AND begin_snapshot <= {to}"
    for number, begin in if_there(catalog.cursor(), marked):
        if number in files:
            files[number].gone.append(begin)
    yield from files.values()
    for name in inlined_tables(ask, meta, state.id):
        listed = if_there(
            catalog.cursor(), f"SELECT begin_snapshot, end_snapshot FROM {meta(name)} WHERE {within} GROUP BY ALL"
        )
        if listed:
            ends = sorted({end for _, end in listed if end is not None and end <= to})
            yield _File(name, min(r[0] for r in listed), None, max(r[0] for r in listed), gone=ends)


class _Plan:
    """Ends of all steps, numbered as places.

    Place 0 is before step 0, place 1 after it, place 2 before step 1, and so on.
    """

    def __init__(self, steps: Sequence[Between], unclear: Sequence[bool]) -> None:
        self.steps = steps
        self._unclear = [i for i, is_so in enumerate(unclear) if is_so]
        self.versions = [-1 if end is None else end for step in steps for end in (step.before, step.after)]
        self._after = [step.after for step in steps]
        self.deleted: list[FileRows] = []
        """Deleted rows that DuckLake can list: delete files recorded them within a step."""

    def of(self, file: _File) -> Iterator[_Wanted]:
        """Yield the rows of a file to read, with their possible places. Fills ``deleted``, too."""
        indexes = self._concerned(file)
        marked = {i for i in indexes if self._is_marked(file, i)}
        for i in indexes:
            step = self.steps[i]
            there, later = file.is_there(step.before), file.is_there(step.after)
            before, after = 2 * i, 2 * i + 1
            if later and file.partial is not None and i not in marked:
                # No row was deleted within the step, so only the added rows differ.
                since = -1 if step.before is None else step.before
                if file.partial > since:
                    rows = FileRows(file.name, step.number, 1, since, step.after)
                    yield self._wanted(file, marked, after, rows)
                continue
            if there and later and i in marked and self._is_told(file, i):
                self.deleted.append(FileRows(file.name, step.number, -1, step.before, step.after))
                continue
            if there and (not later or i in marked):
                rows = FileRows(file.name, step.number, -1, until=step.before if file.partial else None)
                yield self._wanted(file, marked, before, rows)
            if later and (not there or i in marked):
                rows = FileRows(file.name, step.number, 1, until=step.after if file.partial else None)
                yield self._wanted(file, marked, after, rows)

    def _wanted(self, file: _File, marked: set[int], place: int, rows: FileRows) -> _Wanted:
        """Extend a read to all places around one with the same rows of the file."""
        since, until = rows.since, rows.until
        changed = sorted(marked)
        step_of_place, is_after = divmod(place, 2)
        cut = bisect_right(changed, step_of_place) if is_after else bisect_left(changed, step_of_place)
        low = 2 * changed[cut - 1] + 1 if cut else 0
        high = 2 * changed[cut] if cut < len(changed) else len(self.versions) - 1
        low = max(
            low, bisect_left(self.versions, file.begin), place if file.partial is not None and until is not None else 0
        )
        if file.end is not None:
            high = min(high, bisect_left(self.versions, file.end) - 1)
        if until is not None and file.partial is not None and file.partial <= self.versions[place]:
            until = None
        since = None if since is not None and since < file.begin else since
        return _Wanted(min(low, place), max(high, place), replace(rows, since=since, until=until))

    def _concerned(self, file: _File) -> list[int]:
        """Steps whose ends may have different rows of a file."""
        numbers = {self._step(file.begin)}
        if file.end is not None:
            numbers.add(self._step(file.end))
        numbers.update(self._step(version) for version in file.gone)
        if file.partial is not None:
            numbers.update(range(self._step(file.begin), self._step(file.partial) + 1))
        for begin, partial in file.deletes:
            numbers.add(self._step(begin))
            if partial is not None:
                numbers.update(range(self._step(begin), self._step(partial) + 1))
            elif self._unclear:
                numbers.update(self._unclear)
        return sorted(i for i in numbers if i < len(self.steps))

    def _step(self, version: int) -> int:
        """The step that contains a snapshot, or the first one after it."""
        return bisect_left(self._after, version)

    def _is_marked(self, file: _File, i: int) -> bool:
        """True if a step may have deleted rows that the file had before the step."""
        step = self.steps[i]
        low = -1 if step.before is None else step.before
        if any(low < version <= step.after for version in file.gone):
            return True
        for begin, partial in file.deletes:
            if begin > step.after:
                continue
            if begin > low or (partial is not None and partial > low) or (partial is None and i in self._unclear):
                return True
        return False

    def _is_told(self, file: _File, i: int) -> bool:
        """True if DuckLake's list of deleted rows is complete for a file and a step.

        It omits rows that were ever inlined, or that have inlined deletes.
        """
        step = self.steps[i]
        by_files = any(
            begin <= step.after and partial is None and begin <= (step.before or 0) for begin, partial in file.deletes
        )
        return file.partial is None and not file.gone and not (by_files and i in self._unclear)


def _placed(wanted: Iterable[_Wanted]) -> Iterator[tuple[int, list[FileRows]]]:
    """Group the reads by place, with as few places as possible."""
    # Greedy cover of intervals: sorted by their ends, a new place starts only if the last one
    # misses.
    rest = sorted(wanted, key=lambda each: each.high)
    place = -1
    rows: list[FileRows] = []
    for each in rest:
        if each.low > place or not rows:
            if rows:
                yield place, rows
            place, rows = each.high, []
        rows.append(each.rows)
    if rows:
        yield place, rows
