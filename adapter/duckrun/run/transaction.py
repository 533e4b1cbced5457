"""Transaction: one change of one table, from the snapshot it reads to its one commit.

This module has the rules of every engine and writer: the per-table lock, exactly-once, the bounded
retry, and the rollback of older attempts. The fence is in ``fence.py``.
"""

from __future__ import annotations

import logging
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from duckrun.errors import (
    NOTHING_LEFT,
    CommitConflict,
    TableNotFound,
    VersionNotReadable,
    note_commit,
    outcome_of,
)
from duckrun.formats.commits import (
    READS,
    ROW_COUNTS,
    WORDS,
    Behind,
    CommitRecord,
    CommitTaken,
    NewCommit,
    RowCounts,
    TakenBack,
    WentAhead,
)
from duckrun.lake.lake import Lake
from duckrun.run.consumers import warn_of_left_behind
from duckrun.run.fence import Fence
from duckrun.run.memory import PeakSampler
from duckrun.run.pins import NOTHING, Pins, Reads
from duckrun.run.reruns import (
    NotTakenBack,
    Rerun,
    ToTakeBack,
    is_made_by,
    of_older_attempts,
    record_of,
    rerun_of,
    version_before,
)
from duckrun.run.work_log import WorkLog
from duckrun.sql.on_demand import sql_conditions, sql_names
from duckrun.values.choices import WriterName
from duckrun.values.cursors import CursorTransaction
from duckrun.values.rows import (
    NO_TABLE,
    AppTransaction,
    Commit,
    DeleteSpec,
    Retracted,
    Returning,
    RowSpec,
    Spec,
    UpdateSpec,
    WorkTransaction,
    WriteSpec,
)
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import AlterSpec, OptimizeSpec, PurgeSpec

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 12
EXPIRY_LOOKED_AT = 10
"""Check for consumers left behind at every tenth version, as often as a log is cleaned."""


class Transaction:
    """Frame around one commit.

    Args:
        pins: Versions that the run around it reads. Their log has the run's own commits and reads.
        reads: Inputs of the rows to write; None if there are none (a table is altered or
            maintained). The reads of the run count as well.
        log: Reads and commits of this work, if there are no pins.
        sees: Tells whether a commit changed rows of a condition. Without it, any commit may have.
        metadata: The caller's words for the commit.

    Raises:
        ReadOnlyLake: The lake is open read-only; raised before any work.
        StorageError: The location cannot be written; raised before any work.

    Example::

        nightly = Transaction(lake, ref, app=AppTransaction("nightly/orders"))
        nightly.run(attempt, mode="append", engine="duckdb")
    """

    def __init__(
        self,
        lake: Lake,
        ref: TableRef,
        *,
        app: AppTransaction | None = None,
        pins: Pins | None = None,
        reads: Reads | None = NOTHING,
        log: WorkLog | None = None,
        sees: Callable[[Transaction, CommitRecord, str], bool] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        lake.ensure_writable(ref)
        self.lake = lake
        self.ref = ref
        self.app = app
        self._rerun: Callable[[], Rerun] | None = None
        self._takes_back: Literal["nothing", "rows", "all"] = "nothing"
        self.taken_back: TakenBack | None = None
        """Commits of an older attempt of the same work to roll back."""
        self.compared_with: CommitRecord | None = None
        """An older attempt's append that must stay. Equal rows replay it, others conflict."""
        self.metadata = dict(metadata or {})
        self.pins = pins
        log = pins.log if pins is not None else log or WorkLog()
        self.fence = Fence(lake, ref, pins, reads, log, None if sees is None else partial(sees, self))
        self.returning: Returning | None = None
        self.remark = ""
        """Addition to the commit's reason, such as why the preferred writer was not used."""
        self.mode = "unknown"
        self.engine = "unknown"
        self._ahead: int | None = None
        """Version of a preparatory commit of this transaction."""
        self.written_for: tuple[str, str] | None = None
        """Requested engine and the reason, if another engine runs this instead."""

    @property
    def is_anew(self) -> bool:
        """True if an earlier attempt of the same work created the table: this one rewrites it."""
        return self.taken_back is not None and self.taken_back.anew

    def run(
        self,
        attempt: Callable[[Snapshot | None], Commit],
        *,
        mode: str,
        engine: str,
        over_files: bool = False,
        rerun: Callable[[], Rerun] | None = None,
        takes_back: Literal["nothing", "rows", "all"] = "nothing",
    ) -> Commit:
        """Commit exactly once and return the commit.

        Args:
            attempt: Gets the newest snapshot (None: no table yet) and commits at the next version,
                or raises CommitTaken.
            over_files: Let a new table be created in a folder with files of others.
            rerun: Returns how a newer attempt of the same work repeats the write (see
                ``rerun_of``). Without it, the commit of an older attempt stands for this one.
            takes_back: Rollbacks that the attempt can include in its commit: the rows of
                ``taken_back``, or all that ``taken_back`` and ``compared_with`` may need. More
                raises ToTakeBack.

        Returns:
            The commit. If the table already has the application transaction, its commit, as
            replayed.

        Raises:
            SourceOutdated: Others have changed the inputs of the rows; raised before each attempt.
            CommitConflict: The write lost MAX_ATTEMPTS races.
            StorageError: Files lie in the folder of a new table.
        """
        self._rerun, self._takes_back = rerun, takes_back
        self.mode, self.engine = mode, engine if self.written_for is None else self.written_for[0]
        started = time.perf_counter()
        now = None
        with outcome_of(mode, self.ref, self.lake.branch_name), PeakSampler() as sampler:
            for tried in range(1, MAX_ATTEMPTS + 1):
                try:
                    with self.locked():
                        snapshot, commit = self._begin(over_files)
                        if commit is None:
                            snapshot, commit = self._attempted(attempt, snapshot)
                            if snapshot is None or commit.version > snapshot.version:
                                self.fence.log.committed(self.ref.location, commit.version)
                                before = self.fence.known(commit.version - 1) or snapshot
                                commit = commit.with_(retracted=self._retracted)
                                now = self.lake.format.committed(before, self.ref, commit.version)
                    break
                except CommitTaken as taken:
                    log.info("%s %s: version taken by another writer, attempt %s", mode, self.ref, tried)
                    reason = taken
                if not isinstance(reason, Behind):
                    time.sleep(random.uniform(0, min(0.05 * 2**tried, 2.0)))
            else:
                raise CommitConflict(
                    f"{mode} on table {self.ref} lost the race for its version {MAX_ATTEMPTS} times ({reason}). "
                    "The table is as the other writers left it; run this again when they are done."
                )
        commit = commit.with_(peak_bytes=sampler.peak, seconds=round(time.perf_counter() - started, 3))
        # Nobody has read a new table, and its log is whole.
        if now is not None and now.version and now.version % EXPIRY_LOOKED_AT == 0:
            warn_of_left_behind(self.lake, now)
        if self.pins is not None:
            self.pins.moved(self.ref, now or self.lake.snapshot(self.ref, None if commit.replayed else commit.version))
        by = f"{commit.writer}{', replayed' if commit.replayed else ''}"
        log.info("%s %s: version %s by %s in %.2f s", commit.mode, self.ref, commit.version, by, commit.seconds)
        return commit

    def run_spec(
        self,
        attempt: Callable[[Snapshot | None], Commit],
        spec: RowSpec,
        engine: str,
        takes_back: Literal["rows", "all"] = "all",
    ) -> Commit:
        """Commit a write of rows exactly once, by ``run()``; its spec tells how it is repeated."""
        return self.run(attempt, mode=spec.mode, engine=engine, rerun=partial(rerun_of, spec), takes_back=takes_back)

    def move_cursor(self) -> Commit:
        """Commit a consumer's offsets alone, when it has read on but has nothing to write."""
        spec = WriteSpec("append", app=self.app, existing=True)

        def attempt(snapshot: Snapshot | None) -> Commit:
            self.check_fence(snapshot, spec)
            writer = self.lake.format.writer
            return self.commit(snapshot, NewCommit(spec, writer=writer, reason="the cursor moves", blind=True))

        return self.run(attempt, mode="cursor", engine="duckdb")

    def _attempted(
        self, attempt: Callable[[Snapshot | None], Commit], snapshot: Snapshot | None
    ) -> tuple[Snapshot | None, Commit]:
        """Run an attempt, and return the snapshot that it began from and its commit.

        Preparatory commits are made under the same lock.
        """
        while True:
            try:
                with self._nothing_left(snapshot):
                    return snapshot, attempt(snapshot)
            except WentAhead as ahead:
                log.info("%s %s: %s, version %s", self.mode, self.ref, ahead, ahead.version)
                self.fence.log.committed(self.ref.location, ahead.version)
                self.note_commit(ahead.version)
                if self.taken_back is not None:
                    raise
                self._ahead = ahead.version
                snapshot = self.lake.format.begin(self.ref)

    def _begin(self, over_files: bool) -> tuple[Snapshot | None, Commit | None]:
        """Return the newest snapshot, and the replayed commit of this transaction, if any."""
        snapshot = self.lake.format.begin(self.ref)
        if snapshot is None:
            self.lake.refuse_other_format()
            if self.lake.format.logs is not None and not over_files:
                self.lake.format.logs.refuse_other_files(self.ref)
        self.taken_back, self.compared_with = None, None  # of a race that was lost
        match self.app:
            case CursorTransaction():
                earlier = self._counted(snapshot, self.app)
            case WorkTransaction():
                earlier = self._earlier(snapshot, self.app)
            case AppTransaction() if snapshot is not None:
                earlier = self.lake.format.find_commit(self.ref, self.app, snapshot)
            case _:
                earlier = None
        if earlier is not None:
            return snapshot, earlier.with_(replayed=True)
        if not self.is_anew:  # then nobody else has changed a row
            self.fence.refuse_outdated(snapshot, self.mode)
        taken = self.taken_back
        return snapshot if taken is None or taken.base is None else taken.base, None

    # -- a newer attempt of the same work (see run/reruns.py)

    def _earlier(self, snapshot: Snapshot | None, app: WorkTransaction) -> Commit | None:
        """Return the commit of this work that stands for the one to make; None to make a commit.

        A new commit gets the next number and rolls back ``taken_back``.

        Raises:
            CommitConflict: A newer attempt of the same work has committed, since this one was taken
                for dead. Or the older attempt's commit cannot be rolled back.
        """
        form = self.lake.format
        if snapshot is None:
            self.app = replace(app, version=0)
            return None
        # By the snapshot in hand, which opens no log.
        newest = form.counter(self.ref, app.app_id, snapshot).highest
        self.app = replace(app, version=0 if newest is None else newest + 1)
        record = None
        if newest is not None:
            commit = form.find_commit(self.ref, AppTransaction(app.app_id, newest), snapshot)
            record = None if commit is None else form.record(self.ref, commit.version)
            note = {} if record is None else record.note
            if commit is None or self._rerun is None or note.get("attempt") == app.attempt:
                return commit
            if note.get("attempt_started", 0) > app.started:
                raise CommitConflict(
                    f"{self.mode} on table {self.ref} is superseded: a newer attempt of the same work "
                    f"({app.app_id}) has committed version "
                    f"{commit.version}",
                    remedy=NOTHING_LEFT,
                )
        elif not app.ordinal:
            return None
        if self._rerun is None or ((how := self._rerun()) == "again" and self.fence.read() is None):
            return None
        if newest is not None and record is None:
            raise self._not_taken_back(None, snapshot, "the log no longer says what that did")
        self._take_back(how, of_older_attempts(form, snapshot, app), snapshot)
        return None

    def base_instead_of(self, records: Sequence[CommitRecord]) -> int:
        """Return the base version of a commit in place of others; NO_TABLE for a new table.

        Raises:
            NotTakenBack: The commits cannot be rolled back.
        """
        self._takes_back = "all"
        self._take_back("base", records, self.lake.format.snapshot(self.ref))
        base = None if self.taken_back is None else self.taken_back.base
        return NO_TABLE if base is None else base.version

    def _take_back(self, how: Rerun, records: Sequence[CommitRecord], snapshot: Snapshot) -> None:
        """Set the commits to roll back, or to compare the rows with.

        Raises CommitConflict, ToTakeBack.
        """
        read = self.fence.read()
        seen = [] if read is None else [each for each in records if self.fence.is_seen(read, each)]
        if seen:
            how = "base"  # its rows, too, are computed from the table
        if not records or how == "again":
            return
        first, taken = records[0].version, {each.version for each in records}
        since = [each for each in self.fence.commits_after(first) if each.version not in taken]
        others = [each for each in since if each.changes_rows]
        is_new = is_made_by(snapshot, records[0])
        if how == "append":
            self._take_back_rows(records, snapshot, is_new=is_new, alone=not since)
        elif snapshot.is_append_only:
            raise self._not_taken_back(records[0], snapshot, "the table is append-only")
        elif others:
            named = ", ".join(f"{each.version} ({each.operation})" for each in others[:5])
            raise self._not_taken_back(records[0], snapshot, f"others have changed rows since, by version {named}")
        elif is_new:
            self.taken_back = TakenBack(records, snapshot, anew=True)
        else:
            self.taken_back = TakenBack(records, snapshot, base=self._base(snapshot, records[0]))
        if self.taken_back is None and self.compared_with is None:
            return
        if seen and read is not None and read.version >= first:
            raise self._not_taken_back(
                records[0], snapshot, f"this one was computed from version {read.version}, in which those rows are"
            )
        for each in records:  # they are not somebody else's, nor are those that they took back
            before = version_before(each)
            for version in range(each.version if before is None else before + 1, each.version + 1):
                self.fence.log.committed(self.ref.location, version)
        log.info("%s %s: an older attempt has committed version %s", self.mode, self.ref, sorted(taken))
        by_rows = self.taken_back is not None and self.taken_back.by_rows
        if self._takes_back == "nothing" or (self._takes_back == "rows" and not by_rows):
            raise ToTakeBack(f"version {first} of table {self.ref}")

    def _take_back_rows(
        self, records: Sequence[CommitRecord], snapshot: Snapshot, *, is_new: bool, alone: bool
    ) -> None:
        """Roll back an older attempt's append if it is untouched.

        ``alone``: no other commit came since.
        """
        form = self.lake.format
        appended = all(each.note.get("mode") == "append" for each in (records[1:] if is_new else records))
        if snapshot.is_append_only:
            self.compared_with = records[0]
        elif is_new and alone:
            self.taken_back = TakenBack(records, snapshot, anew=True)
        elif appended and (files := form.untouched(snapshot, records)) is not None:
            self.taken_back = TakenBack(records, snapshot, files=files)
        elif alone:
            self.taken_back = TakenBack(records, snapshot, base=self._base(snapshot, records[0]))
        else:
            self.compared_with = records[0]
        if self.compared_with is not None and not (appended and len(records) == 1):
            raise self._not_taken_back(records[0], snapshot, "others have changed its rows or files since")

    def _base(self, snapshot: Snapshot, record: CommitRecord) -> Snapshot:
        """Return the table before a commit and the commits that it rolled back.

        Raises:
            CommitConflict: That version is unreadable, or has another definition.
        """
        form = self.lake.format
        before = version_before(record)
        if before is None:
            raise self._not_taken_back(
                record, snapshot, "it took rows of another attempt back, and others have written between the two"
            )
        try:
            base = form.snapshot(self.ref, before)
        except VersionNotReadable as error:
            raise self._not_taken_back(record, snapshot, f"the version before cannot be read ({error})") from error
        same = base.schema == snapshot.schema and base.checks == snapshot.checks
        if not same or base.partition_keys != snapshot.partition_keys or base.table_id != snapshot.table_id:
            raise self._not_taken_back(record, snapshot, "the table has other columns, constraints or partitions since")
        if form.logs is not None and (missing := form.logs.missing_files(self.ref, list(base.files()))):
            raise self._not_taken_back(
                record, snapshot, f"files of the version before were vacuumed, such as {missing[0].path}"
            )
        return base

    def _not_taken_back(self, record: CommitRecord | None, snapshot: Snapshot, why: str) -> NotTakenBack:
        version = snapshot.version if record is None else record.version
        error = NotTakenBack(
            f"{self.mode} on table {self.ref}: an earlier attempt of the same work committed version "
            f"{version}, which cannot be taken back: {why}",
            remedy=self._without(record, snapshot),
        )
        error.why = why
        return error

    def _without(self, record: CommitRecord | None, snapshot: Snapshot) -> str:
        """Return advice on how to restore the table to before a commit of an older attempt."""
        if record is not None and is_made_by(snapshot, record):
            return "That commit made the table: drop it if its rows and later changes may go, and run this again."
        version = None if record is None else version_before(record)
        restored = "a version before the attempt" if version is None else f"version {version}"
        return (
            f"Restore the table to {restored} if the later changes may go, then start a new run, which is "
            "no retry of this one."
        )

    @property
    def _retracted(self) -> Retracted | None:
        """Summary of the rollback, for the commit."""
        if self.taken_back is None:
            return None
        commits = [each.as_commit(self.ref) for each in self.taken_back.records]
        counts = [count for each in commits for count in (each.rows_inserted, each.rows_updated, each.rows_deleted)]
        return Retracted(self.taken_back.version, None if None in counts else sum(count or 0 for count in counts))

    def refuse_other_rows(self, earlier: CommitRecord, snapshot: Snapshot) -> None:
        """Raise CommitConflict: the rows differ from an older attempt's, which must stay."""
        raise CommitConflict(
            f"append to table {self.ref}: an earlier attempt of the same work appended other rows at version "
            f"{earlier.version}, and they cannot be taken back: others have changed its files since, or the table "
            "is append-only",
            remedy=self._without(earlier, snapshot),
        )

    def _counted(self, snapshot: Snapshot | None, app: CursorTransaction) -> Commit | None:
        """Return the earlier commit of a consumer's transaction, as replayed.

        None to make a commit.

        Raises:
            CommitConflict: The table holds another number than the one that the transaction
                continues.
        """
        form = self.lake.format
        holds = None if snapshot is None else form.counter(self.ref, app.app_id, snapshot).holds
        if snapshot is not None and holds == app.version:
            return form.find_commit(self.ref, app.plain, snapshot)
        if snapshot is not None and app.instead is not None and holds == app.instead:
            record = record_of(form, snapshot, AppTransaction(app.app_id, app.instead))
            if record is None:
                raise self._not_taken_back(None, snapshot, "the log no longer says what that did")
            self._take_back("base", [record], snapshot)
        elif holds != app.after:
            raise CommitConflict(
                f"{self.mode} on table {self.ref} goes on from commit {_number(app.after)} of {app.app_id}, and "
                f"the table holds {_number(holds)}: another run of it, or a RESTORE, came first",
                remedy="run it again",
            )
        return None

    @contextmanager
    def _nothing_left(self, snapshot: Snapshot | None) -> Iterator[None]:
        """Remove the folder of a new table on a local path if its creation fails."""
        folder = Path(self.ref.location)
        is_new = snapshot is None and self.lake.storage.is_local and not folder.exists()
        try:
            yield
        except CommitTaken:
            raise
        except BaseException:
            if is_new and not self.lake.format.exists(self.ref):
                for _ in range(10):  # delta_rs ends its other files a moment after it has raised
                    shutil.rmtree(folder, ignore_errors=True)
                    time.sleep(0.05)
                    if not folder.exists():
                        break
            raise

    def note(self, **counts: Any) -> dict[str, Any]:
        """Return this library's commit metadata: writer, method, reason and extra counts."""
        values: dict[str, Any] = {"engine": self.engine, "mode": self.mode, **counts}
        if self.app is not None:
            values |= {"app_id": self.app.app_id, "app_version": self.app.version}
        work = self.app.work if isinstance(self.app, CursorTransaction) else self.app
        if isinstance(work, WorkTransaction):
            values |= {"attempt": work.attempt, "attempt_started": work.started}
        if isinstance(self.app, CursorTransaction) and work is not None:
            values["work"] = work.app_id
        if (retracted := self._retracted) is not None:
            values["retracted"] = asdict(retracted)
        if self.taken_back is not None and not self.taken_back.by_rows:
            values["before"] = NO_TABLE if self.taken_back.base is None else self.taken_back.base.version
        if self.lake.by is not None:
            values["step"], values["attempt_of_step"] = self.lake.by
        if self.metadata:
            values[WORDS] = self.metadata
        return {k: v for k, v in values.items() if v is not None}

    # -- what an attempt commits

    def commit(
        self,
        snapshot: Snapshot | None,
        new: NewCommit,
        on_top: Callable[[Sequence[CommitRecord]], bool] | None = None,
    ) -> Commit:
        """Commit at the version after a snapshot (None: of a new table).

        ``new`` is complete; no log is read.

        Args:
            on_top: True if the same files may go on top of commits of others, when the version is
                taken.

        Raises:
            CommitTaken: The files may not go on top, so that the attempt runs again.
        """
        counts = zip(ROW_COUNTS, new.rows, strict=True)
        reason = new.reason if self.written_for is None else f"{self.written_for[1]}: {new.reason}"
        reason = f"{reason}; {self.remark}" if self.remark else reason
        note = self.note(writer=new.writer, reason=reason, files_pruned=new.pruned, **dict(counts))
        new = replace(new, note=note | self.reads(new.spec, snapshot, new.reads), app=self.app)
        at, taken = snapshot, self.taken_back
        over = None if taken is None or taken.base is None else taken.newest
        if over is not None:
            self.fence.remember(over)
            on_top = None
        while True:
            if at is not None and over is None:
                self.fence.remember(at)
            try:
                version = self.lake.format.commit(self.ref, at, new, over=over)
                self.note_commit(version)
                size = sum(file.size for file in new.adds)
                files = (len(new.adds), len(new.removes), len(new.marks), new.pruned)
                if self.lake.format.transactions is not None:  # which files it wrote is the catalog's matter
                    return self._made(version, new.writer, reason, (None, None, None, None), None, new.rows)
                return self._made(version, new.writer, reason, files, size, new.rows)
            except CommitTaken:
                others = self.fence.commits_after(at.version) if at is not None and on_top is not None else []
                if not others or on_top is None or not on_top(others):
                    raise
                log.info(
                    "table %s: version %s was taken, committing the same files on top", self.ref, others[0].version
                )
                before, at = at, self.fence.version(others[-1].version)
                if before is not None and before.table_id != at.table_id:
                    raise

    def reads(
        self, spec: object, snapshot: Snapshot | None, known: Sequence[str] | None = None
    ) -> dict[str, list[str]]:
        """Return the part of a commit's note that a publish compares with main's commits.

        Args:
            spec: Spec of the write.
            snapshot: The table before.
            known: Conditions on the rows that it depends on, if the engine tells them.
        """
        conditions = None if self.lake.branch_name is None else self._conditions(spec, snapshot, known)
        return {} if conditions is None else {READS: conditions}

    def _conditions(self, spec: object, snapshot: Snapshot | None, known: Sequence[str] | None) -> list[str] | None:
        """Return conditions on the target's rows that a commit depends on; None for any row."""
        read = self.fence.read()
        if read is not None and read.predicates is None:
            return None
        conditions = [] if read is None else sorted(read.predicates or ())
        if known is not None:
            return [*conditions, *known]
        match spec:
            case WriteSpec(mode="append") | AlterSpec() | OptimizeSpec() | PurgeSpec():
                return conditions
            case WriteSpec(mode="replace") | UpdateSpec() | DeleteSpec() if spec.predicate is not None:
                condition = sql_conditions.condition_of_target(spec.predicate, spec.dialect)
                if condition is not None and spec.dialect == self.engine == "spark" and snapshot is not None:
                    # Spark has computed its own SQL, which need not mean the same to DuckDB.
                    condition = self.lake.format.in_duckdb(condition, snapshot.schema)
                elif condition is not None:
                    condition = sql_names.transpile(condition, spec.dialect, "duckdb")
                return None if condition is None else [*conditions, condition]
        return None

    def committed(self, version: int, *, writer: WriterName, reason: str = "") -> Commit:
        """Return a commit that another library made for this transaction, from the log."""
        self.note_commit(version)
        record = self.lake.format.record(self.ref, version)
        if record is None:
            raise VersionNotReadable(f"Version {version} of table {self.ref} is not in its log any more.")
        return record.as_commit(self.ref, mode=self.mode, engine=self.engine, writer=writer, reason=reason)

    def note_commit(self, version: int) -> None:
        """Tell the operation around that a version was committed, unless a rollback may follow."""
        transactions = self.lake.format.transactions
        if transactions is None or not transactions.is_open:
            note_commit(f"version {version} of table {self.ref}")

    def nothing(self, snapshot: Snapshot, reason: str) -> Commit:
        """Return a commit that says that none was needed."""
        return self._made(snapshot.version, "none", reason)

    def _made(
        self,
        version: int,
        writer: WriterName,
        reason: str,
        files: tuple[int | None, int | None, int | None, int | None] = (0, 0, 0, None),
        bytes_added: int | None = 0,
        rows: RowCounts = (0, 0, 0),
    ) -> Commit:
        return Commit(
            str(self.ref), self.ref.location, version, self.mode, self.engine, writer, reason,
            *rows, *files, bytes_added,
        )  # fmt: skip

    # -- the fence

    def check_fence(self, snapshot: Snapshot | None, spec: Spec) -> None:
        """Check that the table is still at the version that was read.

        Raises:
            CommitConflict: The table has another version.
            TableNotFound: The table must exist and does not.
        """
        if snapshot is None and spec.existing:
            raise TableNotFound(f"{self.mode} on table {self.ref}: it was there, and has been dropped or renamed since")
        read_version = spec.read_version
        newest = NO_TABLE if snapshot is None or self.is_anew else snapshot.version
        if read_version is not None and newest != (read_version if self._ahead is None else self._ahead):
            then = "when there was no such table" if read_version == NO_TABLE else f"from version {read_version}"
            now = "there is none" if newest == NO_TABLE else f"the table is at version {newest}"
            raise CommitConflict(
                f"{self.mode} on table {self.ref} was computed {then}, but {now} now", remedy="read again and repeat"
            )

    def locked(self) -> AbstractContextManager[None]:
        """Hold the format's lock.

        For Delta on a local path it is the table's OS lock, which the system frees when its holder
        dies. Elsewhere the store's put-if-absent decides alone. Both engines take the lock, since
        Delta's log store for Spark is not atomic across processes on local paths.
        """
        return self.lake.format.locked(self.ref)


def _number(counter: int | None) -> str:
    return "none" if counter is None else f"number {counter}"
