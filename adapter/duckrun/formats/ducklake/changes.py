"""What of a DuckLake table is to be read for the differences of its states: data files that differ between two snapshots, and no other.

The rows are those that DuckLake reads at a snapshot, never its feed of changes, in which every row of a file that was written anew stands
as updated. Data files and rows in the catalog that are the same at both ends of a step are left out, by what the catalog says of them.
Source: the DuckLake specification 1.0, ducklake_data_file, ducklake_delete_file, Data Inlining; and what was measured of duckdb 1.5.5's
extension: a file that holds rows of several snapshots (``partial_max``) has the snapshot of each row, as the column ``snapshot_id`` says.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb

from duckrun.formats.ducklake.columns import Columns
from duckrun.formats.ducklake.state import TableState, touches
from duckrun.formats.ducklake.stored import ROWS
from duckrun.values.changes import Between, FileRows, StateRows
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from duckrun.formats.ducklake.ducklake import DuckLakeFormat

_DELETED_IN_THE_CATALOG = ("inlined_delete",)
_WRITTEN_ANEW = ("rewrite_delete",)


@dataclass
class _File:
    """A data file, or rows that lie in the catalog. ``partial``: its rows came by several snapshots, up to that one. ``deletes`` are (begin,
    partial) of the files that say which of its rows are deleted; ``gone`` the snapshots at which rows in the catalog, or marked there, went.
    """

    name: str
    begin: int
    end: int | None
    partial: int | None
    deletes: list[tuple[int, int | None]] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)

    def is_there(self, version: int | None) -> bool:
        return version is not None and self.begin <= version and (self.end is None or self.end > version)


@dataclass(frozen=True)
class _Wanted:
    """Rows to read, at any of the places from ``low`` to ``high`` among the ends of the steps."""

    low: int
    high: int
    rows: FileRows


def state_rows(
    form: DuckLakeFormat, steps: Sequence[Between], to: Snapshot, columns: Sequence[str]
) -> tuple[StateRows, ...]:
    """What to read so that the rows of each step sum up to its difference, in the columns and types of ``to``."""
    if not steps:
        return ()
    state: TableState = to.own
    seen = form.states.newest()
    first = min(-1 if step.before is None else step.before for step in steps)
    last = max(step.after for step in steps)
    said = _said(form, state, first, last)
    pieces = [piece for step in steps for piece in _pieces(form, step, state, said)]
    unclear = [_may_hide(piece, said) for piece in pieces]
    plan = _Plan(pieces, unclear)
    wanted = [each for file in _files(form, state, first, last) for each in plan.of(file)]
    tree = Columns.of(form.catalog, state)
    found = []
    if plan.deleted:
        low, high = min(each.since or 0 for each in plan.deleted), max(each.until or 0 for each in plan.deleted)
        found.append(StateRows(high, tree.converted(high, to, columns), tuple(plan.deleted), seen, deleted_since=low))
    for place, rows in _placed(wanted):
        at = plan.versions[place]
        found.append(StateRows(at, tree.converted(at, to, columns), tuple(rows), seen))
    return tuple(found)


def _said(form: DuckLakeFormat, state: TableState, after: int, to: int) -> dict[int, str | None]:
    """What each snapshot of a range changed, if it deleted rows in the catalog or wrote files anew, or has expired (None)."""
    meta, within = form.catalog.meta, f"snapshot_id > {after} AND snapshot_id <= {to}"
    marks = "|".join((*_DELETED_IN_THE_CATALOG, *_WRITTEN_ANEW))
    changes = form.catalog.ask(
        f"SELECT snapshot_id, changes_made FROM {meta('ducklake_snapshot_changes')} WHERE {within} "
        f"AND regexp_matches(changes_made, '(^|,)({marks}):{state.id}(,|$)')"
    )
    found: dict[int, str | None] = dict(changes)
    count, newest = form.catalog.ask(
        f"SELECT count(*), max(snapshot_id) FROM {meta('ducklake_snapshot')} WHERE {within}"
    )[0]
    if count < to - max(after, -1):
        there = {
            row[0] for row in form.catalog.ask(f"SELECT snapshot_id FROM {meta('ducklake_snapshot')} WHERE {within}")
        }
        found |= {v: None for v in range(max(after + 1, state.begun), to + 1) if v not in there}
    return found


def _pieces(
    form: DuckLakeFormat, step: Between, state: TableState, said: Mapping[int, str | None]
) -> Iterator[Between]:
    """A step without the snapshots within it that only wrote rows to other files, so that those need not be read."""
    before = step.before
    for version in sorted(said):
        text = said[version]
        if text is None or before is None or not before < version <= step.after:
            continue
        if (
            touches(text, state.id, _WRITTEN_ANEW)
            and _only_moves(text, state.id)
            and said.get(version - 1, "") is not None
        ):
            if before < version - 1:
                yield Between(before, version - 1, step.number, step.timestamp)
            before = version
    if before is None or before < step.after:
        yield Between(before, step.after, step.number, step.timestamp)


def _only_moves(text: str, table_id: int) -> bool:
    return not touches(text, table_id, ROWS)


def _may_hide(step: Between, said: Mapping[int, str | None]) -> bool:
    """Whether rows were marked as deleted in the catalog, for all that is known. A file that holds such marks from later on says of none when
    it was made, and yet is read by that.
    """
    low = -1 if step.before is None else step.before
    return any(
        low < version <= step.after and (text is None or "inlined_delete" in text) for version, text in said.items()
    )


def _files(form: DuckLakeFormat, state: TableState, after: int, to: int) -> Iterator[_File]:
    """The files, and rows in the catalog, that may not be the same at all of the snapshots of a range."""
    meta, ask = form.catalog.meta, form.catalog.ask
    listed = ask(
        f"SELECT data_file_id, path, path_is_relative, begin_snapshot, end_snapshot, partial_max FROM {meta('ducklake_data_file')} AS f "
        f"WHERE table_id = {state.id} AND begin_snapshot <= {to} AND ((end_snapshot IS NULL) OR end_snapshot > {after})"
    )
    files = {row[0]: _File(row[1], *row[3:]) for row in listed}
    folder = _folder(form, state) if any(row[2] for row in listed) else ""
    for number, path, relative, *_ in listed:
        files[number].name = f"{folder}{path}" if relative else path
    for number, begin, partial in ask(
        f"SELECT data_file_id, begin_snapshot, partial_max FROM {meta('ducklake_delete_file')} WHERE table_id = {state.id} "
        f"AND begin_snapshot <= {to} AND ((end_snapshot IS NULL) OR end_snapshot > {after})"
    ):
        if number in files:
            files[number].deletes.append((begin, partial))
    marked = f"ducklake_inlined_delete_{state.id}"
    for number, begin in _if_there(
        form,
        f"SELECT DISTINCT file_id, begin_snapshot FROM {meta(marked)} WHERE begin_snapshot > {after} AND begin_snapshot <= {to}",
    ):
        if number in files:
            files[number].gone.append(begin)
    yield from files.values()
    for (name,) in ask(f"SELECT table_name FROM {meta('ducklake_inlined_data_tables')} WHERE table_id = {state.id}"):
        rows = _if_there(
            form,
            f"SELECT begin_snapshot, end_snapshot FROM {meta(name)} WHERE begin_snapshot <= {to} "
            f"AND ((end_snapshot IS NULL) OR end_snapshot > {after}) GROUP BY ALL",
        )
        if rows:
            ends = sorted({end for _, end in rows if end is not None and end <= to})
            yield _File(name, min(r[0] for r in rows), None, max(r[0] for r in rows), gone=ends)


def _if_there(form: DuckLakeFormat, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a query of a table that DuckLake makes when it is first needed."""
    try:
        return form.catalog.cursor().execute(sql).fetchall()
    except duckdb.CatalogException:
        return []


def _folder(form: DuckLakeFormat, state: TableState) -> str:
    """Where the data files of a table lie whose paths are relative."""
    meta = form.catalog.meta
    path, relative, above, above_relative = form.catalog.ask(
        f"SELECT t.path, t.path_is_relative, s.path, s.path_is_relative FROM {meta('ducklake_table')} AS t JOIN {meta('ducklake_schema')} AS s USING (schema_id) "
        f"WHERE t.table_id = {state.id} ORDER BY t.begin_snapshot DESC, s.begin_snapshot DESC LIMIT 1"
    )[0]
    if not relative:
        return str(path)
    return f"{form.catalog.data_path if above_relative else ''}{above}{path}"


class _Plan:
    """The ends of all steps as places: before the first step, behind it, before the second, and so on."""

    def __init__(self, steps: Sequence[Between], unclear: Sequence[bool]) -> None:
        self.steps = steps
        self._unclear = [i for i, is_so in enumerate(unclear) if is_so]
        self.versions = [-1 if end is None else end for step in steps for end in (step.before, step.after)]
        self._after = [step.after for step in steps]
        self.deleted: list[FileRows] = []
        """The rows of files that went within a step, and were marked in the common way: DuckLake reads them alone."""

    def of(self, file: _File) -> Iterator[_Wanted]:
        """The rows of a file that count, with the places at which they can be read; those of ``deleted`` are put there."""
        indexes = self._concerned(file)
        marked = {i for i in indexes if self._is_marked(file, i)}
        for i in indexes:
            step = self.steps[i]
            there, later = file.is_there(step.before), file.is_there(step.after)
            before, after = 2 * i, 2 * i + 1
            if later and file.partial is not None and i not in marked:
                # None of its rows went within the step, so that those which came are all that differs.
                since = -1 if step.before is None else step.before
                if file.partial > since:
                    yield self._wanted(file, marked, after, step, 1, since, step.after)
                continue
            if there and later and i in marked and self._is_told(file, i):
                self.deleted.append(FileRows(file.name, step.number, -1, step.before, step.after))
                continue
            if there and (not later or i in marked):
                yield self._wanted(file, marked, before, step, -1, None, step.before if file.partial else None)
            if later and (not there or i in marked):
                yield self._wanted(file, marked, after, step, 1, None, step.after if file.partial else None)

    def _wanted(
        self,
        file: _File,
        marked: set[int],
        place: int,
        step: Between,
        weight: int,
        since: int | None,
        until: int | None,
    ) -> _Wanted:
        """The same rows of a file are there at all places around one, as far as no row of it goes and the file is there."""
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
        return _Wanted(min(low, place), max(high, place), FileRows(file.name, step.number, weight, since, until))

    def _concerned(self, file: _File) -> list[int]:
        """The steps at whose ends a file may not be the same."""
        found = {self._step(file.begin)}
        if file.end is not None:
            found.add(self._step(file.end))
        found.update(self._step(version) for version in file.gone)
        if file.partial is not None:
            found.update(range(self._step(file.begin), self._step(file.partial) + 1))
        for begin, partial in file.deletes:
            found.add(self._step(begin))
            if partial is not None:
                found.update(range(self._step(begin), self._step(partial) + 1))
            elif self._unclear:
                found.update(self._unclear)
        return sorted(i for i in found if i < len(self.steps))

    def _step(self, version: int) -> int:
        """The step within which a snapshot lies, or the first one after it."""
        return bisect_left(self._after, version)

    def _is_marked(self, file: _File, i: int) -> bool:
        """Whether rows of a file may have been deleted, within a step, that it had before."""
        step = self.steps[i]
        low = -1 if step.before is None else step.before

        def within(version: int) -> bool:
            return low < version <= step.after

        if any(within(version) for version in file.gone):
            return True
        for begin, partial in file.deletes:
            if begin > step.after:
                continue
            if begin > low or (partial is not None and partial > low) or (partial is None and i in self._unclear):
                return True
        return False

    def _is_told(self, file: _File, i: int) -> bool:
        """Whether DuckLake's list of deleted rows has those of a file and a step: not of rows that were ever in the catalog, or marked there."""
        step = self.steps[i]
        by_files = any(
            begin <= step.after and partial is None and begin <= (step.before or 0) for begin, partial in file.deletes
        )
        return file.partial is None and not file.gone and not (by_files and i in self._unclear)


def _placed(wanted: Iterable[_Wanted]) -> Iterator[tuple[int, list[FileRows]]]:
    """The rows to read by the place at which each is read: as few places as there can be."""
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
