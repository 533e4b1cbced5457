"""Publish, rebase and discard of a branch, and their completion after the end of a process.

Each first records its intent. A publish then closes the branch and seals its lines, so that no
commit can be lost. It decides once, by an object that is written only if it does not exist: commit,
with the plan, or abort. From then on each step can be repeated by any process.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from duckrun.branches import cursors, registry
from duckrun.errors import (
    CommitConflict,
    DuckrunError,
    ReadOnlyLake,
    UnsupportedFeature,
    outcome_of,
)
from duckrun.formats.branches import REFUSALS, BranchTables, PlannedTable, RowAccess
from duckrun.lake.lake import Lake
from duckrun.storage.locks import file_lock
from duckrun.storage.storage import Storage
from duckrun.values.branches import PENDING, PLAN, PUBLISHED, PUBLISHES, Branch, Line, Published
from duckrun.values.cursors import hashed
from duckrun.values.names import RESERVED, name_of
from duckrun.values.records import built, newer, parsed
from duckrun.values.snapshot import TableRef
from duckrun.values.upkeep import WEEK

log = logging.getLogger(__name__)

_WORKS = ("publish", "rebase", "discard")
_OLD = 3_600_000
"""Milliseconds after which an undecided attempt of another machine, in a store, counts as dead."""


def tables_of(storage: Storage, branch: Branch) -> BranchTables:
    """Return the tables of a branch, for reading and publishing."""
    return registry.open_tables(storage, lambda: branch)


def refuse_no_branches(lake: Lake) -> None:
    """Raise UnsupportedFeature for a lake whose format has no branches."""
    if lake.format.logs is None:
        raise UnsupportedFeature(
            f"Lake {lake.root} is of format {lake.format.name}, which has no branches",
            remedy="its transactions publish several tables together: s.transaction(), or publish: together in dbt",
        )


def _refuse_read_only(lake: Lake, what: str) -> None:
    refuse_no_branches(lake)
    if lake.read_only:
        raise ReadOnlyLake(f"{what}: lake {lake.root} is open read-only.")


@contextmanager
def _alone(lake: Lake) -> Iterator[str]:
    """Hold the lock of publishes of a lake; yield an id of the processes that can wait for it.

    The lock lies in the folder of the lake, or on this machine for a lake in a store. A store has
    no locks: put-if-absent decides between machines. Whoever holds the lock of this machine knows
    that its other attempts have ended.
    """
    if lake.storage.is_local:
        with file_lock(Path(lake.root, RESERVED, "locks", "publish.lock"), f"lake {lake.root}"):
            yield ""
        return
    lock = Path(tempfile.gettempdir(), f"duckrun-publish-{registry.user()}", f"{hashed(lake.root)}.lock")
    with file_lock(lock, f"lake {lake.root}"):
        machine = lock.with_suffix(".id")
        if not machine.exists():
            machine.write_text(uuid.uuid4().hex)
        yield machine.read_text()


@dataclass(frozen=True)
class _Attempt:
    """One publish, rebase or discard, by its id."""

    lake: Lake
    id: str
    branch: Branch
    created: int
    work: str = "publish"
    """``publish``, ``rebase`` or ``discard``."""
    machine: str = ""
    """Id of the processes that wait for its end; see ``_alone()``."""
    by: str = ""

    @classmethod
    def begin(cls, lake: Lake, branch: Branch, work: str, machine: str) -> _Attempt:
        """Record the intent, so that any process can complete the attempt."""
        attempt = cls(lake, uuid.uuid4().hex[:12], branch, registry.now(), work, machine, registry.user())
        intent = {"branch": asdict(branch), "created": attempt.created, "work": work}
        intent |= {"machine": machine, "by": attempt.by}
        lake.storage.put_new(lake.root, attempt.intent, json.dumps(intent).encode())
        return attempt

    @property
    def storage(self) -> Storage:
        return self.lake.storage

    @property
    def intent(self) -> str:
        return f"{PENDING}/{self.id}.json"

    @property
    def decision(self) -> str:
        return f"{PENDING}/{self.id}{PLAN}"

    @property
    def record(self) -> str:
        return f"{PUBLISHES}/{self.id}.json"

    def decide(self, decision: Mapping[str, Any]) -> dict[str, Any]:
        """Record a decision, unless another process has decided; return the one that holds."""
        body = json.dumps({**decision, "by": uuid.uuid4().hex}).encode()
        self.storage.put_new(self.lake.root, self.decision, body)
        decided = self.decided()
        assert decided is not None, "one of the two was written"
        return decided

    def decided(self) -> dict[str, Any] | None:
        raw, place = self.storage.read(self.decision), f"{self.lake.root}/{self.decision}"
        if raw is None:
            return None
        decision = parsed(raw, place)
        if decision.get("decision") not in ("commit", "abort"):
            raise newer(place, f"decision {decision.get('decision')!r}")
        return decision

    def outcome(self) -> dict[str, Any] | None:
        """Return the recorded outcome; None before its end."""
        raw = self.storage.read(self.record)
        return None if raw is None else json.loads(raw)

    def finish(self, outcome: Mapping[str, Any]) -> None:
        """Record the outcome, unless it is recorded."""
        known = {"id": self.id, "branch": asdict(self.branch), "created": self.created, "finished": registry.now()}
        self.storage.put_new(self.lake.root, self.record, json.dumps({**known, **outcome}).encode())

    def may_live(self, machine: str) -> bool:
        """True if another machine may be at work on it, as far as its age tells."""
        if self.storage.is_local or self.machine == machine or self.work == "discard":
            return False
        # A clock that was set back does not keep an attempt alive.
        return abs(registry.now() - self.created) < _OLD and self.decided() is None

    def refuse(self) -> NoReturn:
        """Raise CommitConflict, as this attempt is under way."""
        minutes = (registry.now() - self.created) // 60_000
        raise CommitConflict(
            f"Branch {self.branch.name}: a {self.work} by {self.by or 'another process'}, which began {minutes} "
            "minutes ago, is not done",
            remedy="Wait until it is. If its process has ended, repeat it on the same machine, or an hour after it "
            "began.",
        )

    def forget(self) -> None:
        """Remove the objects of an unfinished publish."""
        self.storage.remove(self.decision)
        self.storage.remove(self.intent)


def publish(lake: Lake, name: str, rows: RowAccess) -> Published:
    """Commit the net changes of a branch to main, one commit per table, or none.

    Raises:
        CommitConflict: Main has changed since the branch forked, so that a table cannot take the
            branch's change. Main is unchanged, unless the message says otherwise.
        InvalidConfig: There is no such branch.
    """
    _refuse_read_only(lake, f"publish of branch {name!r}")
    started = time.perf_counter()
    with outcome_of("publish"), _alone(lake) as machine:
        _recover(lake, rows, machine, name)
        branch = registry.find(lake.storage, name)
        if branch is None:
            if (before := _published(lake.storage, name)) is not None:
                return before
            registry.existing(lake.storage, name)
            raise AssertionError("raised")
        attempt = _Attempt.begin(lake, branch, "publish", machine)
        _forget_old(lake.storage)
        closed = json.dumps({"publish": attempt.id}).encode()
        if lake.storage.put_new(lake.root, registry.closed_path(branch), closed) is None:
            attempt.forget()
            raise CommitConflict(
                f"Branch {name} is being published or discarded by another process", remedy="wait, then look again"
            )
        tables = tables_of(lake.storage, branch)
        try:
            lines = _sealed(attempt, tables)
            with ExitStack() as locks:
                for ref, line in lines:  # in the order of their locations, so that two publishes cannot deadlock
                    if tables.change(ref, line) not in (None, "dropped"):
                        locks.enter_context(lake.format.locked(ref))
                planned, conflicts = _validated(lake, tables, branch, lines, rows)
                if not conflicts:
                    planned, conflicts = _with_feeds(lake, tables, planned, rows)
                decision: dict[str, Any] = {"decision": "abort"}
                if not conflicts:
                    decision = {"decision": "commit", "tables": [_as_record(lake, table) for table in planned]}
                decided = attempt.decide(decision)
                if decided["decision"] == "commit":
                    return _rolled_forward(attempt, tables, decided, rows, started)
            _undone(attempt, tables, conflicts or {"": ["another process aborted this publish"]})
        except BaseException:
            if attempt.decided() is None:
                _undone(attempt, tables, {})
            raise
        finally:
            tables.close()
        raise CommitConflict(
            f"Branch {name} cannot be published: {_listed(conflicts)}. Main is unchanged",
            remedy="rebase the branch, or discard it and run its work again",
        )


def _recover(lake: Lake, rows: RowAccess, machine: str, name: str | None = None) -> None:
    """Finish the attempts whose process has ended.

    The caller holds the lock of publishes, so that none of a local lake is under way.

    Args:
        lake: The lake.
        rows: Access to rows.
        machine: Id that the lock gave.
        name: Branch that the caller works on.

    Raises:
        CommitConflict: Another machine may be at work on that branch.
    """
    for attempt in _pending(lake):
        if attempt.may_live(machine):
            if attempt.branch.name == name:
                attempt.refuse()
            continue
        log.warning("lake %s: finishing %s %s of branch %s", lake.root, attempt.work, attempt.id, attempt.branch.name)
        with closing(tables_of(lake.storage, attempt.branch)) as tables:
            try:
                _resumed(attempt, tables, rows)
            except CommitConflict as error:  # the branch is open again, and its next publish tells why
                log.warning("lake %s: %s", lake.root, error)


def _resumed(attempt: _Attempt, tables: BranchTables, rows: RowAccess) -> None:
    """Finish an attempt whose process has ended."""
    if attempt.work == "discard":
        _removed(attempt, tables)
        return
    if attempt.work == "rebase":
        _reopen(attempt, tables)
        return
    outcome = attempt.outcome()
    if outcome is None:
        decided = attempt.decide({"decision": "abort"})
        if decided["decision"] == "commit":
            _rolled_forward(attempt, tables, decided, rows, time.perf_counter())
        else:
            _undone(attempt, tables, {"": ["its process has ended"]})
    elif outcome["state"] == "published":
        _closed(attempt, tables)
    else:
        _reopen(attempt, tables, outcome.get("versions", ()))


def recover_alone(lake: Lake, rows: RowAccess) -> None:
    """Finish the publishes whose process has ended, for a session that begins to write."""
    if not is_pending(lake):
        return
    with _alone(lake) as machine:
        _recover(lake, rows, machine)


def is_pending(lake: Lake) -> bool:
    """True if a publish is under way, or was ended before it was done."""
    return bool(lake.storage.list_names(PENDING)[1])


def _pending(lake: Lake) -> Iterator[_Attempt]:
    for file in lake.storage.list_names(PENDING)[1]:
        raw = None if file.endswith(PLAN) else lake.storage.read(f"{PENDING}/{file}")
        if raw is not None:
            place = f"{lake.root}/{PENDING}/{file}"
            intent = parsed(raw, place)
            branch, work = built(Branch, intent["branch"], place), intent.get("work", "publish")
            if work not in _WORKS:
                raise newer(place, f"work {work!r}")
            by = intent.get("machine", ""), intent.get("by", "")
            yield _Attempt(lake, file.removesuffix(".json"), branch, intent["created"], work, *by)


def _published(storage: Storage, name: str) -> Published | None:
    """Return the last publish of a branch that is done, as replayed; None if there is none."""
    path = f"{PUBLISHED}/{name}.json"
    raw = storage.read(path)
    if raw is None:
        return None
    record = parsed(raw, f"{storage.root}/{path}")
    return Published(name, record["id"], record["versions"], record["before"], replayed=True)


def _forget_old(storage: Storage) -> None:
    """Remove records a week older than an intent that was just written. Each run would list them.

    A run that began before a publish needs its record. An older run is refused (LaterPublishes).
    """
    folder = f"{storage.root}/{PUBLISHES}"
    keys = list(storage.keys(folder))
    # The times of the store alone: a wrong clock of this machine removes no young record.
    oldest = max(key["modified"] for key in keys) - WEEK.total_seconds()
    storage.remove_files(folder, [key["path"] for key in keys if key["modified"] < oldest and "/" not in key["path"]])


def _sealed(attempt: _Attempt, tables: BranchTables) -> list[tuple[TableRef, Line]]:
    """Seal the lines of the branch, and return them."""
    lines = []
    for ref in registry.forks(attempt.storage, attempt.branch):
        line = tables.line(ref)
        if line is not None:  # else see _lost()
            lines.append((ref, tables.seal(ref, line, attempt.id)))
    return lines


def _lost(lake: Lake, tables: BranchTables, branch: Branch) -> dict[str, list[str]]:
    """Return the forked tables whose line is missing, and the reason of each."""
    lost = {}
    for ref, table_id in registry.forks(lake.storage, branch).items():
        if tables.line(ref) is not None:
            continue
        now = lake.format.begin(ref) if table_id else None
        if table_id and (now is None or now.table_id != table_id):
            how = "dropped" if now is None else "created again"
            why = f"main's table was {how} since, and the change of the branch went with its folder"
        else:
            why = (
                f"{ref.location}/{branch.pointer} is missing: it was removed, or the first write to the table was "
                "ended half-way. Put it back, or repeat that write in the branch"
            )
        lost[str(ref)] = [why]
    return lost


def _listed(conflicts: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{table}: {', '.join(reasons)}" for table, reasons in conflicts.items())


def _validated(
    lake: Lake, tables: BranchTables, branch: Branch, lines: Sequence[tuple[TableRef, Line]], rows: RowAccess
) -> tuple[list[PlannedTable], dict[str, list[str]]]:
    """Return the tables to commit, and the conflicts of each table."""
    planned, conflicts = [], _lost(lake, tables, branch)
    changes = {(ref, line): tables.change(ref, line) for ref, line in lines}
    upstreams = {str(ref): (ref, line) for (ref, line), change in changes.items() if change not in (None, "dropped")}
    for (ref, line), change in changes.items():
        if change is None:
            continue
        reasons = tables.conflicts(lake.format, ref, line, rows.sees)
        if change != "dropped" and not reasons:
            reasons = cursors.unread(lake.format, tables, ref, line, upstreams)
        if reasons:
            conflicts[str(ref)] = reasons
            continue
        now = lake.format.begin(ref)
        before = None if now is None else now.version
        planned.append(PlannedTable(ref.schema, ref.name, ref.location, change, before))
    conflicts = {**_of_names(lake, branch, {ref: change for (ref, _), change in changes.items()}), **conflicts}
    if not conflicts:
        planned = cursors.upstreams_first(tables, planned)
    # A drop comes last: a view may take the table's place.
    planned.sort(key=lambda table: table.change == "dropped")
    return planned, conflicts


def _of_names(lake: Lake, branch: Branch, changes: Mapping[TableRef, str | None]) -> dict[str, list[str]]:
    """Return the names that main has given otherwise since the branch gave them."""
    new = {(ref.schema, ref.name) for ref, change in changes.items() if change == "created"}
    gone = {(ref.schema, ref.name) for ref, change in changes.items() if change == "dropped"}
    conflicts = {}
    for schema, name in registry.definitions(lake.storage, branch):
        path, key = f"{branch.home}/definitions/{schema}/{name}.json", (str(name_of(schema)), str(name_of(name)))
        raw, base = lake.storage.read(path), lake.storage.read(registry.base_path(branch, path))
        now = lake.storage.read(f"{schema}/{RESERVED}/{name}.json") or b""
        if base is not None and now not in (base, raw):  # None: an older version of the package wrote it
            conflicts[".".join(key)] = ["main's view of this name was changed since"]
        (gone if raw == registry.DROPPED else new).add(key)
        if base != b"":
            new.discard(key)
    schemas = lake.schemas() if new else []
    for schema, name in sorted(new):
        others = [".".join(each) for each in lake.named_like(schema, name) if each not in gone]
        others += [each for each in schemas if each != schema and each.lower() == schema.lower()]
        if others:
            conflicts.setdefault(f"{schema}.{name}", [f"main has {', '.join(others)} since"])
    return conflicts


def _with_feeds(
    lake: Lake, tables: BranchTables, planned: Sequence[PlannedTable], rows: RowAccess
) -> tuple[list[PlannedTable], dict[str, list[str]]]:
    """Return the tables with the files of their change feeds, and those that cannot have one."""
    feeding, conflicts = [], {}
    for table in planned:
        line = tables.line(table.ref)
        assert line is not None, "it was validated"
        try:
            files = tables.net_feed(lake.format, table.ref, line, rows.feed)
        except DuckrunError as error:
            conflicts[str(table.ref)] = [f"its change feed cannot be written: {error.reason}"]
        else:
            feeding.append(replace(table, feed=tuple(file.to_json() for file in files)))
    return feeding, conflicts


def _as_record(lake: Lake, table: PlannedTable) -> dict[str, Any]:
    """Return a table as the record of a publish has it."""
    rest = {"change": table.change, "before": table.before, "feed": table.feed}
    return registry.recorded(lake.storage, table.ref) | rest


def _planned(lake: Lake, branch: Branch, record: Mapping[str, Any]) -> PlannedTable:
    """Return a table that the record of a publish has."""
    ref = registry.table_of(lake.storage, branch, record)
    rest = record["change"], record["before"], tuple(record["feed"])
    return PlannedTable(ref.schema, ref.name, ref.location, *rest)


def _rolled_forward(
    attempt: _Attempt, tables: BranchTables, plan: Mapping[str, Any], rows: RowAccess, started: float
) -> Published:
    """Carry out a decided publish."""
    lake, branch = attempt.lake, attempt.branch
    planned = [_planned(lake, branch, table) for table in plan["tables"]]
    versions: dict[str, int | None] = {}
    failed: dict[str, str] = {}
    moved: dict[str, cursors.Moved] = {}
    before = {str(table.ref): table.before for table in planned}
    for table in planned:
        name, line = str(table.ref), tables.line(table.ref)
        if table.change == "dropped" and not failed:
            _put_definitions(lake, branch)
        if line is None and table.change == "dropped":
            versions[name] = None  # its line went with its folder
            continue
        if line is None:
            if (outcome := attempt.outcome()) is not None:  # another process was faster
                versions = outcome.get("versions", {})
                break
            failed[name] = "main's table was dropped since, and the change of the branch went with its folder"
            continue
        try:
            if table.change != "dropped":
                cursors.carry(lake.storage, tables, table.ref, line, moved, lake.format)
            version = versions[name] = tables.publish(lake.format, table, line, attempt.id, rows.sees)
            if version is not None:
                moved[name] = cursors.Moved(table.ref, line, version)
        except REFUSALS as error:
            failed[name] = error.reason  # repeated, it would fail again
    if failed:
        raise _stopped(attempt, tables, versions, before, failed)
    _put_definitions(lake, branch)
    attempt.finish({"state": "published", "versions": versions, "before": before})
    _closed(attempt, tables)
    return Published(branch.name, attempt.id, versions, before, seconds=round(time.perf_counter() - started, 3))


def _closed(attempt: _Attempt, tables: BranchTables) -> None:
    """Remove a published branch; its files are main's now."""
    # Before the name is free, so that of two publishes of a name the later one is the last.
    if (record := attempt.storage.read(attempt.record)) is not None:
        attempt.storage.put(f"{PUBLISHED}/{attempt.branch.name}.json", record)
    # Before the forks are listed: a fork that is recorded later sees that the branch has ended.
    registry.remove_name(attempt.storage, attempt.branch)
    for ref in registry.forks(attempt.storage, attempt.branch):
        tables.forget(ref)
    _remove_home(attempt.storage, attempt.branch)
    attempt.forget()


def _stopped(
    attempt: _Attempt,
    tables: BranchTables,
    versions: Mapping[str, int | None],
    before: Mapping[str, int | None],
    failed: Mapping[str, str],
) -> CommitConflict:
    """End a publish that cannot be completed; the tables that are left stay in the branch."""
    attempt.finish({"state": "stopped", "versions": versions, "before": before, "failed": failed})
    _reopen(attempt, tables, versions)
    return CommitConflict(
        f"Branch {attempt.branch.name} was published in part: {', '.join(versions) or 'no table'} "
        f"{'are' if len(versions) > 1 else 'is'} in main. Another writer has changed main meanwhile: "
        + "; ".join(f"{table}: {reason}" for table, reason in failed.items()),
        remedy="The tables that are left stay in the branch: rebase it and publish it again, or discard it.",
    )


def _undone(attempt: _Attempt, tables: BranchTables, conflicts: Mapping[str, Sequence[str]]) -> None:
    """Open the branch again after a publish that has committed nothing."""
    attempt.finish({"state": "aborted", "conflicts": {table: list(why) for table, why in conflicts.items()}})
    _reopen(attempt, tables)


def _reopen(attempt: _Attempt, tables: BranchTables, published: Collection[str] = ()) -> None:
    """Let a branch take writes again, and forget its tables that were published."""
    storage, branch = attempt.storage, attempt.branch
    for ref in registry.forks(storage, branch):
        line = tables.line(ref)
        if str(ref) in published:
            tables.forget(ref)
            registry.unregister(storage, branch, ref)
        elif line is not None:
            tables.unseal(ref, line, attempt.id)
    path = registry.closed_path(branch)
    if json.loads(storage.read(path) or b"{}").get("publish") == attempt.id:
        storage.remove(path)
    attempt.forget()


def _put_definitions(lake: Lake, branch: Branch) -> None:
    """Give main the views, locations and schemas of a branch."""
    storage = lake.storage
    for schema in storage.list_names(f"{branch.home}/schemas")[0]:
        raw = storage.read(f"{branch.home}/schemas/{schema}/schema.json")
        if raw is not None:
            lake.make_schema(json.loads(raw))
    for schema, name in registry.definitions(storage, branch):
        raw = storage.read(f"{branch.home}/definitions/{schema}/{name}.json")
        if raw == registry.DROPPED:
            storage.remove(f"{schema}/{RESERVED}/{name}.json")
        elif raw is not None:
            storage.put(f"{schema}/{RESERVED}/{name}.json", raw)


def _remove_home(storage: Storage, branch: Branch) -> None:
    """Remove the registry's objects of a branch, except the one that closes it."""
    home = f"{storage.root}/{branch.home}"
    storage.remove_files(home, [key["path"] for key in storage.keys(home) if key["path"] != "closed.json"])


def rebase(lake: Lake, name: str, rows: RowAccess) -> dict[str, int]:
    """Let the tables of a branch continue from main's newest versions; return their new versions.

    Raises:
        CommitConflict: Main has changed what the branch changed or read. The branch is unchanged.
        InvalidConfig: There is no such branch.
    """
    _refuse_read_only(lake, f"rebase of branch {name!r}")
    with outcome_of("rebase"), _alone(lake) as machine:
        _recover(lake, rows, machine, name)
        branch = registry.existing(lake.storage, name)
        registry.refuse_closed(lake.storage, branch)
        attempt, tables = _Attempt.begin(lake, branch, "rebase", machine), tables_of(lake.storage, branch)
        try:
            lines = _sealed(attempt, tables)
            _, conflicts = _validated(lake, tables, branch, lines, rows)
            if conflicts:
                raise CommitConflict(
                    f"Branch {name} cannot be rebased: {_listed(conflicts)}. The branch is unchanged",
                    remedy="discard it and run its work again",
                )
            versions, moved = {}, {}
            for ref, line in lines:
                version = tables.rebase(lake.format, ref, line, attempt.id, rows.sees)
                if version is not None:
                    versions[str(ref)], moved[str(ref)] = version, cursors.Moved(ref, line, version)
            for ref, _ in lines if moved else ():
                if (now := tables.line(ref)) is not None and now.state == "live":
                    cursors.carry(lake.storage, tables, ref, now, moved, tables, f"{branch.data}/")
        finally:
            _reopen(attempt, tables)
            tables.close()
        return versions


def discard(lake: Lake, name: str, rows: RowAccess) -> tuple[str, ...]:
    """Remove a branch, and return the tables that it had changed.

    Raises:
        InvalidConfig: There is no such branch.
        CommitConflict: The branch is being published.
    """
    _refuse_read_only(lake, f"discard of branch {name!r}")
    with _alone(lake) as machine:
        _recover(lake, rows, machine)
        branch = registry.existing(lake.storage, name)
        attempt = _Attempt.begin(lake, branch, "discard", machine)
        with closing(tables_of(lake.storage, branch)) as tables:
            return _removed(attempt, tables)


def _removed(attempt: _Attempt, tables: BranchTables) -> tuple[str, ...]:
    """Close and remove a branch, and return the tables that it had changed.

    Raises:
        CommitConflict: The branch is being published.
    """
    storage, branch, changed = attempt.storage, attempt.branch, []
    closed, path = json.dumps({"discarded": attempt.id}).encode(), registry.closed_path(branch)
    if storage.put_new(storage.root, path, closed) is None and "publish" in json.loads(storage.read(path) or b"{}"):
        attempt.forget()
        raise CommitConflict(
            f"Branch {branch.name} is being published", remedy="publish it to finish that, or wait until it is done"
        )
    for ref in registry.forks(storage, branch):
        line = tables.line(ref)
        if line is not None and tables.change(ref, line) is not None:
            changed.append(str(ref))
    # Before the forks are listed: a fork that is recorded later sees that the branch has ended.
    registry.remove_name(storage, branch)
    for ref in registry.forks(storage, branch):
        registry.remove_files(storage, branch, ref)
    _remove_home(storage, branch)
    attempt.forget()
    return tuple(changed)
