"""Delta tables as a branch sees them: those that it has forked by its own line, others as in main.

Reads, checks and commits are those of DeltaFormat. This class decides where a log continues.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, NoReturn

from deltalake import DeltaTable

from duckrun.errors import CommitConflict, TableNotFound, UnsupportedFeature, VersionNotReadable
from duckrun.formats.branches import REFUSALS, Feeds, PlannedTable, Sees
from duckrun.formats.commits import READS, CommitRecord, CommitTaken, NewCommit
from duckrun.formats.definitions import TableDefinition
from duckrun.formats.delta.branches import publishing
from duckrun.formats.delta.branches.columns import changes_of_columns
from duckrun.formats.delta.branches.differences import Differences
from duckrun.formats.delta.branches.log_copies import ScanLogs, as_entry, copied_log
from duckrun.formats.delta.branches.net import NetChange, actions_of, net_change
from duckrun.formats.delta.branches.spark_logs import CopiedLog, ReadLogs
from duckrun.formats.delta.commits import restore
from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.properties import FEED, ROW_TRACKING, is_on
from duckrun.formats.delta.delta import DeltaFormat
from duckrun.formats.delta.files.scan_sql import BranchReads, scan_sql
from duckrun.formats.delta.files.vectors import deleted_of
from duckrun.formats.delta.log.entries import COPY, LOG, entry, mark_at, parse_commit
from duckrun.formats.delta.log.lines import LineStorage, entry_of, lines_at, numbers_in, seal, seal_of
from duckrun.formats.delta.versions.heads import Head
from duckrun.formats.delta.versions.long_logs import LongLogs
from duckrun.formats.delta.versions.newest import Opened
from duckrun.formats.delta.versions.tables import moment_of
from duckrun.formats.format import Format
from duckrun.formats.logs import OwnLog, WrittenLog
from duckrun.storage.locks import table_lock
from duckrun.storage.storage import Storage
from duckrun.values.branches import Branch, Line
from duckrun.values.rows import AppTransaction, StagedFile
from duckrun.values.snapshot import ReadAs, Snapshot, TableRef
from duckrun.values.tables import ConvertSpec, VacuumSpec

_IDENTITY = "delta.identity.step"
_OF_A_LINE = 40
"""Bits of the row ids of one line. Source: Delta protocol, Row Tracking (ids are 64-bit)."""


def _new_log() -> str:
    """Return the name of a new log of a line.

    A number could be that of a log whose process ended before its line named it.
    """
    return f"_log-{uuid.uuid4().hex[:12]}"


def _is_scratch(ref: TableRef) -> bool:
    """True for a scratch copy, which lies in the branch's folder and has a log of its own."""
    return ref.location.rpartition("/")[2].startswith(COPY)


class _NoLongLogs(LongLogs):
    """No cache: DuckDB would attach a table with a long log by its folder, which has main's log."""

    def marked(self, snapshot: Snapshot) -> Snapshot:
        return snapshot


class BranchFormat(DeltaFormat):
    """Delta tables of one lake in a branch.

    Args:
        storage: The lake's storage.
        branch: Returns the branch; it is created at its first use.
        forking: Records a fork in the branch's registry, with the id of main's table. The line is
            written inside of it.
        refuse_ended: Removes the line of a table, and raises CommitConflict, if the branch was
            published or discarded.
        reserve: Returns a number that is higher than all it has returned before, in any process.
    """

    def __init__(
        self,
        storage: Storage,
        branch: Callable[[], Branch],
        forking: Callable[[TableRef, str], AbstractContextManager[None]],
        refuse_ended: Callable[[TableRef], None],
        reserve: Callable[[], int],
    ) -> None:
        self.line_storage = LineStorage(storage, branch)
        super().__init__(self.line_storage)
        self._long_logs = _NoLongLogs(self.line_storage)
        self._forking, self._refuse_ended, self._reserve = forking, refuse_ended, reserve
        self._scan_logs, self._spark_logs = ScanLogs(self), ReadLogs(self, storage)
        self._differences = Differences(self)
        self._later: dict[str, bool] = {}
        self._defines: dict[tuple[str, str], tuple[int, bool]] = {}
        """Newest version of each log that was read for definitions, and True if it has one."""
        self._ids: dict[tuple[str, int, str | None], str] = {}
        """Ids of main's tables by location, version and the identity of its commit."""
        # A sealed line takes no more commits, so a publish reads it once.
        self._sealed: dict[str, int] = {}
        """Newest version of each sealed line, by location."""
        self._nets: dict[tuple[str, str], NetChange] = {}
        """Net changes of sealed lines, by location and log."""
        self._tested: dict[str, publishing.Tested] = {}

    @property
    def branch(self) -> Branch:
        """The branch."""
        return self.line_storage.branch()

    def close(self) -> None:
        """Remove the copies of logs."""
        self._scan_logs.close()
        self._spark_logs.close()

    # -- lines

    def line(self, ref: TableRef) -> Line | None:
        """Return the line of a table as its file tells it now; None for a table without a fork."""
        before = self.line_storage.lines.get(ref.location)
        line = self.line_storage.look(ref.location)
        if before != line:
            self.newest.forget(ref.location)
        return line

    def refuse_other_files(self, ref: TableRef) -> None:
        line = self.line(ref)
        if line is None or line.main < 0:  # else main's table has files there, whatever their names
            super().refuse_other_files(ref)

    def files_folder(self, ref: TableRef) -> str:
        return self.branch.data

    def _fork(self, ref: TableRef, snapshot: Snapshot | None) -> None:
        """Write the file of a table's line, which continues from a snapshot, unless there is one.

        Raises:
            CommitTaken: Another process has just forked the table.
            CommitConflict: The branch was published or discarded.
        """
        line = self.line_storage.lines.get(ref.location)
        if _is_scratch(ref):
            return
        if line is None:
            base, table_id = (-1, "") if snapshot is None else (snapshot.version, snapshot.table_id)
            self._put_new(ref, replace(self._new_line(base, table_id), number=self._number(snapshot)))
        elif line.state == "dropped":
            self._replace(ref, line, replace(line, state="live", base=-1, log=_new_log()))
            self._refuse_ended(ref)

    def _number(self, base: Snapshot | None) -> int:
        """Return a new number for a line that gives row ids; 0 for another one.

        It is higher than all before, so the line's ids are above the mark of its base.
        """
        return self._reserve() if base is not None and "rowTracking" in base.writer_features else 0

    def first_row_id(self, ref: TableRef) -> int:
        line = self.line_storage.lines.get(ref.location)
        return 0 if line is None else line.number << _OF_A_LINE

    def _new_line(self, base: int, table_id: str) -> Line:
        created = int(time.time() * 1000)
        return Line(self.branch.data, base, table_id, main=base, created=created, by=self.branch.by)

    def _put_new(self, ref: TableRef, line: Line) -> None:
        with self._forking(ref, line.table_id):
            if self.line_storage.plain.put_new(ref.location, self.branch.pointer, line.to_json()) is None:
                self.line(ref)
                raise CommitTaken(f"the fork of table {ref}")
        self.line_storage.lines[ref.location] = line
        self.newest.forget(ref.location)

    def _replace(self, ref: TableRef, line: Line, following: Line) -> None:
        """Put another line in the place of one, whose log ends first.

        So a publish and a commit, which write to that log, come before or meet its end.

        Raises:
            CommitTaken: Another process has put another line in its place.
            CommitConflict: A publish has sealed the line.
        """
        id = uuid.uuid4().hex
        if self._end(ref, line, id, following) is not None:
            raise CommitTaken(f"the line of table {ref}")
        self._put(ref, following)

    def _end(self, ref: TableRef, line: Line, id: str, following: Line | None = None) -> Line | None:
        """End the log of a line by a seal.

        Args:
            ref: The table.
            line: The line.
            id: Id of the seal.
            following: Line that the seal lets follow.

        Returns:
            The line that has taken its place; None if the seal ends it.

        Raises:
            CommitConflict: The seal of a publish or rebase has ended it.
        """
        plain = self.line_storage.plain
        while True:
            numbers = numbers_in(plain, ref.location, line)
            newest = numbers[-1] if numbers else line.base
            last = entry_of(line, newest)
            raw = plain.read_at(ref.location, last) if numbers else None
            if raw is not None and (sealed := seal_of(raw)) is not None:
                if sealed == id:
                    return None
                if (other := self.line_storage.follow(ref.location, last, raw)) is not None:
                    self.newest.forget(ref.location)
                    return other
                raise CommitConflict(f"Table {ref}: {sealed}, a publish or rebase of the same branch, is under way")
            if plain.put_new(ref.location, entry_of(line, newest + 1), seal(id, following)) is not None:
                if following is None:
                    self._sealed[ref.location] = newest
                return None

    def _put(self, ref: TableRef, line: Line) -> None:
        self.line_storage.point(ref.location, line)
        self.newest.forget(ref.location)

    # -- access to the log

    def exists(self, ref: TableRef) -> bool:
        line = self.line(ref)
        if line is None:
            return super().exists(ref) and not self._is_later(ref)
        return line.state == "live" and (
            line.base >= 0 or bool(numbers_in(self.line_storage.plain, ref.location, line))
        )

    def newest_known(self, ref: TableRef) -> Snapshot | None:
        self.line(ref)
        return None if self._is_at_time(ref) else super().newest_known(ref)

    def _is_at_time(self, ref: TableRef) -> bool:
        """True if the branch reads a table at the branch's time."""
        return self.branch.at is not None and ref.location not in self.line_storage.lines and not _is_scratch(ref)

    def _is_later(self, ref: TableRef) -> bool:
        """True for a table that was created after the time of the branch."""
        if self.branch.at is None or not self._is_at_time(ref):
            return False
        if ref.location not in self._later:
            raw = self.line_storage.plain.read_at(ref.location, entry(0))
            info = {} if raw is None else parse_commit(0, raw).info
            created = info.get("inCommitTimestamp") or info.get("timestamp") or 0
            self._later[ref.location] = created > moment_of(self.branch.at, ref)
        return self._later[ref.location]

    def snapshot(
        self, ref: TableRef, version: int | None = None, timestamp: str | None = None, *, keep: bool = False
    ) -> Snapshot:
        line = self.line(ref)
        if line is not None and line.state == "dropped":
            raise TableNotFound(f"There is no table {ref}: branch {self.branch.name} has dropped it.")
        if version is None and timestamp is None and self._is_at_time(ref):
            timestamp = self.branch.at
        return self._of_line(super().snapshot(ref, version, timestamp, keep=keep))

    def listed(self, ref: TableRef) -> Snapshot | None:
        return None  # a line continues main's log, or stops at a time

    def begin(self, ref: TableRef) -> Snapshot | None:
        line = self.line(ref)
        if line is not None and line.state == "dropped":
            return None
        if self._is_at_time(ref):
            return self.snapshot(ref, keep=True) if self.exists(ref) else None
        snapshot = super().begin(ref)
        return None if snapshot is None else self._of_line(snapshot)

    def committed(self, before: Snapshot | None, ref: TableRef, version: int) -> Snapshot | None:
        snapshot = super().committed(before, ref, version)
        return None if snapshot is None else self._of_line(snapshot)

    def _of_line(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot that knows its line."""
        line = self.line_storage.lines.get(snapshot.ref.location)
        return snapshot if snapshot.format_state == line else replace(snapshot, format_state=line)

    def _refuse_other_line(self, snapshot: Snapshot) -> None:
        """Raise VersionNotReadable if a version of the branch has another meaning now."""
        before, now = snapshot.format_state, self.line_storage.lines.get(snapshot.ref.location)
        if not isinstance(before, Line) or snapshot.version <= before.base:
            return
        if now is None or (now.folder, now.log, now.base) != (before.folder, before.log, before.base):
            raise VersionNotReadable(
                f"Table {snapshot.ref}: branch {self.branch.name} has no such version {snapshot.version} any more: it "
                "was rebased, published or discarded since the table was read",
                remedy="Read the table again",
            )

    def handle_of(self, snapshot: Snapshot) -> DeltaTable:
        self._refuse_other_line(snapshot)
        return super().handle_of(snapshot)

    def _opened(self, ref: TableRef, version: int | None) -> DeltaTable:
        line = self.line_storage.lines.get(ref.location)
        if line is None or (version is not None and version <= line.base):
            return super()._opened(ref, version)
        newest = self.latest_version(ref)
        if newest is None:
            raise TableNotFound(f"There is no table {ref} in branch {self.branch.name}.")
        if version is not None and version > newest:
            raise VersionNotReadable(f"Version {version} of table {ref} is not in branch {self.branch.name} yet.")
        log = copied_log(self.line_storage, ref, line, newest if version is None else version)
        handle = DeltaTable(log.name)
        # deltalake reads some actions of the log late, so the copy lasts as long as the handle.
        handle.__dict__["_log_copy"] = log
        self._refuse_other_table(ref, line, handle)
        return handle

    def _refuse_other_table(self, ref: TableRef, line: Line, handle: DeltaTable) -> None:
        """Raise TableNotFound if main's log is not the one that the line continues.

        Another writer may have removed it, and created a table in its place.
        """
        if line.base < 0:
            return
        table_id = str(handle.metadata().id)
        if self._has_definition(ref, line, handle.version()):
            table_id = self._id_in_main(ref, line.base)  # that in the branch tells nothing about main
        if table_id != line.table_id:
            raise TableNotFound(
                f"Table {ref} was created again in main since branch {self.branch.name} has forked it, and the rows "
                f"that the branch continues from are gone. Discard the branch, or drop the table in it."
            )

    def _has_definition(self, ref: TableRef, line: Line, version: int) -> bool:
        """True if a commit of a line, up to a version, defines the table."""
        log = (ref.location, f"{line.folder}/{line.log}")
        read, has_one = self._defines.get(log, (line.base, False))
        if version > read:
            commits = actions_of(self, ref, replace(line, base=read), version)
            has_one = has_one or any(commit.changes_metadata for commit in commits)
            self._defines[log] = (version, has_one)
        return has_one

    def _id_in_main(self, ref: TableRef, version: int) -> str:
        """Return the id of main's table at a version."""
        key = (ref.location, version, mark_at(self.line_storage.plain, ref.location, version))
        if key[2] is None:  # only a checkpoint has it
            return str(super().handle(ref, version).metadata().id)
        if key not in self._ids:
            self._ids[key] = str(super().handle(ref, version).metadata().id)
        return self._ids[key]

    def latest_version(self, ref: TableRef) -> int | None:
        line = self.line_storage.lines.get(ref.location)
        if line is None or line.state == "dropped":
            return super().latest_version(ref)
        if ref.location in self._sealed:
            newest = self._sealed[ref.location]
            return None if newest < 0 else newest
        numbers = numbers_in(self.line_storage.plain, ref.location, line)
        while numbers and self.actions(ref, numbers[-1]) is None:  # a seal
            numbers.pop()
        newest = numbers[-1] if numbers else line.base
        return None if newest < 0 else newest

    def history(self, ref: TableRef, limit: int | None = None) -> list[dict[str, Any]]:
        if ref.location not in self.line_storage.lines:
            return super().history(ref, limit)
        newest = self.latest_version(ref)
        commits = () if newest is None else self.actions_back(ref, newest)
        return [{**actions.info, "version": actions.version} for actions in islice(commits, limit)]

    # -- commits

    def locked(self, ref: TableRef) -> AbstractContextManager[None]:
        # Not the lock of main's table: a branch and main do not wait for each other.
        return table_lock(replace(ref, location=f"{ref.location}@{self.branch.folder}"), self.storage.is_local)

    def commit(self, ref: TableRef, snapshot: Snapshot | None, new: NewCommit, *, over: Snapshot | None = None) -> int:
        definition = new.definition
        assert definition is None or isinstance(definition, DeltaDefinition)
        if definition is not None:
            self._refuse_definition(ref, snapshot, definition.fields, definition.properties)
        self._fork(ref, snapshot if over is None else over)
        version = super().commit(ref, snapshot, new, over=over)
        self._refuse_removed(ref, version)
        self._forget_handle(snapshot)
        return version

    def _refuse_removed(self, ref: TableRef, version: int) -> None:
        """Raise CommitConflict if a new table was committed to a folder that main has removed.

        A publish of the drop before it removes the folder, and its seal with it.
        """
        line = self.line_storage.lines.get(ref.location)
        is_new = line is not None and version == 0 and line.base < 0 <= line.main
        if is_new and next(self.line_storage.plain.keys(ref.location, LOG), None) is None:
            self._refuse_ended(ref)
            raise CommitConflict(f"Table {ref} was dropped in main while branch {self.branch.name} created it again")

    def _refuse_definition(
        self,
        ref: TableRef,
        snapshot: Snapshot | None,
        fields: Sequence[Mapping[str, Any]],
        properties: Mapping[str, str],
    ) -> None:
        """Raise UnsupportedFeature if a branch cannot give a table this definition."""
        if any(_IDENTITY in field["metadata"] for field in fields):
            raise self._refused(f"Table {ref} has an identity column, whose numbers main gives at the same time")
        had_ids = snapshot is None or is_on(snapshot.properties, ROW_TRACKING)
        if is_on(properties, ROW_TRACKING) and not had_ids:
            raise self._refused(f"Table {ref} gets ids of rows, which a publish cannot give to main's rows")

    @staticmethod
    def _forget_handle(snapshot: Snapshot | None) -> None:
        """Forget the handle of a snapshot that was committed on."""
        if snapshot is not None and isinstance(snapshot.opened, Opened) and snapshot.opened.reserved:
            snapshot.opened.reserved.clear()  # of main's log, along which it would go on

    def log_to_write(self, ref: TableRef, snapshot: Snapshot | None) -> WrittenLog:
        if _is_scratch(ref):
            return OwnLog(ref.location)
        if snapshot is not None and "rowTracking" in snapshot.writer_features:
            self._fork(ref, snapshot)  # its number gives the ids of the new rows
        return CopiedLog(self, ref, snapshot, partial(self._commit_actions, ref, snapshot))

    def _commit_actions(
        self, ref: TableRef, snapshot: Snapshot | None, version: int, actions: Sequence[Mapping[str, Any]]
    ) -> None:
        """Commit actions that Spark made for a version."""
        for definition in (action["metaData"] for action in actions if "metaData" in action):
            fields = json.loads(definition["schemaString"])["fields"]
            self._refuse_definition(ref, snapshot, fields, definition.get("configuration") or {})
        self._fork(ref, snapshot)
        what = f"version {version} of table {ref}"
        if self.storage.put_new(ref.location, entry(version), as_entry(actions), what) is None:
            raise CommitTaken(what)
        self._refuse_removed(ref, version)
        self._forget_handle(snapshot)

    def restore(self, now: Snapshot, version: int, note: dict[str, Any], app: AppTransaction | None) -> int:
        self._fork(now.ref, now)
        return restore.restore(self, now, version, note, app)

    def with_numbers(
        self, snapshot: Snapshot, definition: TableDefinition | None, marks: Mapping[str, int]
    ) -> DeltaDefinition:
        raise self._refused(f"Table {snapshot.ref} has an identity column, whose numbers main gives at the same time")

    def keep_log_short(self, before: Snapshot | None, now: Snapshot | None, ref: TableRef, version: int) -> None:
        """Write no checkpoint: it would lie in main's log."""

    def drop(self, ref: TableRef, *, force: bool = False) -> None:
        while True:
            line = self.line(ref)
            if line is not None and line.state == "dropped" or line is None and not super().exists(ref):
                return
            with suppress(CommitTaken):  # look again
                if line is None:
                    self._fork(ref, self.snapshot(ref))
                else:
                    self._replace(ref, line, replace(line, state="dropped", log=_new_log()))
                    with suppress(CommitConflict):  # of a publish that has the drop
                        self._refuse_ended(ref)
                    return

    # -- reads

    def _described(self, ref: TableRef, head: Head, table: DeltaTable | None = None) -> Snapshot:
        snapshot = super()._described(ref, head, table)
        return replace(snapshot, make_scan_sql=self.scan_sql, find_log=self._log_of)

    def _log_of(self, snapshot: Snapshot) -> tuple[str, int]:
        """Return the folder and the version that Spark opens for a snapshot."""
        self._refuse_other_line(snapshot)
        line = self.line_storage.lines.get(snapshot.ref.location)
        if line is None or snapshot.version <= line.base:
            return snapshot.ref.location, snapshot.version
        return self._spark_logs.folder(snapshot), 0

    def scan_sql(self, snapshot: Snapshot, read: ReadAs) -> str:
        self._refuse_other_line(snapshot)
        line = self.line_storage.lines.get(snapshot.ref.location)
        deleted = partial(deleted_of, self)
        if line is None or snapshot.version <= line.base:
            return scan_sql(snapshot, read, deleted, self.handle_of)
        branch = BranchReads(self._scan_logs.folder, partial(self._differences.of, line=line))
        return scan_sql(snapshot, read, deleted, self.handle_of, branch)

    # -- publish (see BranchTables)

    def change(self, ref: TableRef, line: Line) -> str | None:
        if line.state == "dropped":
            return "dropped" if line.main >= 0 else None
        if line.base >= 0:
            newest = self.latest_version(ref)
            return "changed" if newest is not None and newest > line.base else None
        if self.latest_version(ref) is None:  # the process that creates it has ended, or goes on
            return "dropped" if line.main >= 0 else None
        return "created" if line.main < 0 else "replaced"

    def commits(self, ref: TableRef, line: Line) -> list[CommitRecord]:
        if (net := self._nets.get((ref.location, line.log))) is not None:
            return list(net.records)
        newest = None if line.state == "dropped" else self.latest_version(ref)
        return [] if newest is None else [actions.record() for actions in actions_of(self, ref, line, newest)]

    def app_versions(self, ref: TableRef, line: Line) -> Mapping[str, int]:
        return {app.app_id: app.version for commit in self.commits(ref, line) for app in commit.transactions}

    def schema_changes(self, ref: TableRef, line: Line) -> tuple[str, ...]:
        head = self.snapshot(ref)
        if line.base < 0 or not any(each.changes_metadata for each in self.commits(ref, line)):
            return ()
        return tuple(changes_of_columns(self.definition(self.snapshot(ref, line.base)), self.definition(head)))

    def conflicts(self, main: Format, ref: TableRef, line: Line, sees: Sees) -> list[str]:
        assert isinstance(main, DeltaFormat)
        now, change = main.begin(ref), self.change(ref, line)
        if change == "created" and now is not None:
            return ["main has a table of this name, and the branch created one, too"]
        if now is None and change != "created":
            return [] if change == "dropped" else ["main's table was dropped since"]
        if now is not None and now.table_id != line.table_id:
            return ["main's table was created again since"]
        if now is not None and change in ("dropped", "replaced") and (why := self._not_to_remove(main, now, line)):
            return [why]
        if change == "dropped":
            return []
        try:
            return self._conflicts_of_commit(main, ref, now, line, sees)
        except REFUSALS as error:
            return [error.reason]

    def _not_to_remove(self, main: DeltaFormat, now: Snapshot, line: Line) -> str | None:
        """Return why main's table cannot be dropped or replaced; None if it can."""
        if line.state == "dropped":
            branches = lines_at(main.storage, now.ref.location).keys() - {self.branch.folder}
            if others := sorted(each.rpartition("-")[0] for each in branches):
                return f"main's table has the branches {', '.join(others)}, too, whose rows would go with it"
        elif now.is_append_only and now.files():
            return publishing.APPEND_ONLY_NOW
        since = main.records_after(now.ref, line.main)
        if any(each.changes_rows or each.changes_metadata for each in since) or len(since) < now.version - line.main:
            how = "dropped" if line.state == "dropped" else "replaced"
            return f"main's table was changed since version {line.main}, at which the branch {how} it"
        return None

    def _conflicts_of_commit(
        self, main: DeltaFormat, ref: TableRef, now: Snapshot | None, line: Line, sees: Sees
    ) -> list[str]:
        """Return why main's table cannot take the commit of a line, which is prepared for this.

        Raises:
            DuckrunError: One of REFUSALS: a check of each commit refuses it.
        """
        try:
            net = self._net(ref, line)
        except VersionNotReadable:
            return [f"main's log no longer has version {line.base}, from which the branch continues"]
        if (why := publishing.lost_rows(net)) is not None:
            return [why]
        change = self.change(ref, line)
        assert change is not None, "a line without a change is not published"
        tested = self._tested[ref.location] = publishing.tested(main, change, net, now, sees)
        if not tested.conflicts:
            before = None if now is None else now.version
            table = PlannedTable(ref.schema, ref.name, ref.location, change, before)
            publishing.prepared(self, main, table, net, tested, self._note("publish", ""))
        return list(tested.conflicts)

    def _net(self, ref: TableRef, line: Line) -> NetChange:
        """Return the net change of a sealed line."""
        key = (ref.location, line.log)
        if key not in self._nets:
            self._nets[key] = net_change(self, ref, line)
        return self._nets[key]

    def _note(self, mode: str, id: str) -> dict[str, Any]:
        """Return the note of a commit of a publish or rebase, and the folder for its vectors."""
        note = {"engine": "duckdb", "mode": mode, "writer": "staged", "branch": self.branch.name, "publish": id}
        return {**note, "reason": f"branch {self.branch.name}", "folder": self.branch.data}

    def net_feed(self, main: Format, ref: TableRef, line: Line, feed: Feeds) -> Sequence[StagedFile]:
        assert isinstance(main, DeltaFormat)
        now = main.begin(ref)
        if now is None or self.change(ref, line) != "changed":
            return ()
        net = self._net(ref, line)
        definition = publishing.merged_definition(main, net, now) or main.definition(now)
        if not is_on(definition.properties, FEED) or not net.replaces_files:
            return ()
        return feed(self, ref, line.base, net.head.version)

    def publish(self, main: Format, table: PlannedTable, line: Line, id: str, sees: Sees) -> int | None:
        assert isinstance(main, DeltaFormat)
        if table.change == "dropped":
            main.drop(table.ref, force=True)
            return None
        net, before = self._net(table.ref, line), self._tested.get(table.ref.location)
        version = publishing.publish(self, main, table, net, before, self._note("publish", id), sees)
        main.newest.forget(table.ref.location)
        return version

    def rebase(self, main: Format, ref: TableRef, line: Line, id: str, sees: Sees) -> int | None:
        assert isinstance(main, DeltaFormat)
        now, change = main.begin(ref), self.change(ref, line)
        if now is None or change not in (None, "changed") or line.base < 0 or now.version == line.base:
            return None
        moved = replace(line, base=now.version, main=now.version, log=_new_log(), number=self._number(now))
        if change is None:
            # The process that forked the table ended before its first commit.
            if line.state == "live" and now.table_id == line.table_id:
                self._put(ref, moved)
            return None
        fresh = BranchFormat(
            self.line_storage.plain, self.line_storage.branch, self._forking, self._refuse_ended, self._reserve
        )
        fresh.line_storage.fixed[ref.location] = moved
        net = self._net(ref, line)
        note = {**self._note("rebase", id), "reason": f"on version {now.version} of main"}
        if net.reads is not None:
            note[READS] = list(net.reads)
        table = PlannedTable(ref.schema, ref.name, ref.location, "changed", now.version)
        version = publishing.publish(self, fresh, table, net, None, note, sees)
        self._put(ref, moved)
        return version

    def seal(self, ref: TableRef, line: Line, id: str) -> Line:
        while (other := self._end(ref, line, id)) is not None:
            line = other
        return line

    def unseal(self, ref: TableRef, line: Line, id: str) -> None:
        plain = self.line_storage.plain
        self._sealed.pop(ref.location, None)
        numbers = numbers_in(plain, ref.location, line)
        raw = plain.read_at(ref.location, entry_of(line, numbers[-1])) if numbers else None
        if raw is not None and seal_of(raw) == id:
            plain.remove_files(ref.location, [entry_of(line, numbers[-1])])

    def forget(self, ref: TableRef) -> None:
        self.line_storage.plain.remove_files(ref.location, [self.branch.pointer])
        self.line_storage.lines.pop(ref.location, None)
        self.newest.forget(ref.location)

    # -- what belongs to main

    def convert(self, ref: TableRef, spec: ConvertSpec, note: dict[str, Any], app: AppTransaction | None) -> NoReturn:
        raise self._refused(f"{ref.location} cannot be converted in a branch")

    def rename(self, ref: TableRef, new: TableRef) -> NoReturn:
        raise self._refused(
            f"{ref} cannot be renamed in a branch, which leaves main's folder alone",
            f"CREATE TABLE {new} AS FROM {ref}, then DROP TABLE {ref}",
        )

    def vacuum(self, snapshot: Snapshot, spec: VacuumSpec) -> NoReturn:
        raise self._refused(f"vacuum of table {snapshot.ref}: its files are main's")

    def checkpoint(self, snapshot: Snapshot) -> NoReturn:
        raise self._refused(f"checkpoint of table {snapshot.ref}: its log is main's")

    def cleanup_log(self, snapshot: Snapshot) -> NoReturn:
        raise self._refused(f"cleanup_log of table {snapshot.ref}: its log is main's")

    def set_aside(self, ref: TableRef, whose: str) -> NoReturn:
        raise self._refused(f"{ref} cannot be adopted by another lake")

    def _refused(self, what: str, remedy: str = "") -> UnsupportedFeature:
        instead = remedy or "Do it in the lake itself: connect() without branch"
        return UnsupportedFeature(f"{what} (branch {self.branch.name})", remedy=instead)
