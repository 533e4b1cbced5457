"""Cursors of consumers: positions in their upstreams.

Offsets are recorded before the work, in the output's folder, under a number that no other file has.
The commit of the output makes them valid: its application transaction holds the consumer and the
number. If a run is killed in between, the next run uses the recorded offsets. Two runs that
continue from the same number get the same offsets, and only one of them commits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from duckrun.changes.changes import FilesGone
from duckrun.errors import NOTHING_LEFT, CommitConflict, VersionNotReadable
from duckrun.formats.commits import CommitRecord
from duckrun.formats.format import Format
from duckrun.lake.lake import Lake
from duckrun.run.consumers import register
from duckrun.run.reruns import NotTakenBack, record_of
from duckrun.run.transaction import Transaction
from duckrun.storage.storage import Storage
from duckrun.values.cursors import Counter, CursorTransaction, Offsets, Range, offsets_path
from duckrun.values.frozen import frozen
from duckrun.values.rows import NO_TABLE, AppTransaction, WorkTransaction
from duckrun.values.snapshot import Snapshot, TableRef


@frozen
class Upstream:
    """A table whose changes a consumer reads, at the version that this run reads."""

    form: Format
    snapshot: Snapshot
    storage: Storage | None = None
    """Storage that records its consumers; None if it is read-only."""

    @classmethod
    def of(cls, lake: Lake, snapshot: Snapshot) -> Upstream:
        """Return a table of a lake."""
        return cls(lake.format, snapshot, None if lake.read_only else lake.storage)

    def range_after(self, from_version: int) -> Range:
        """Return the range from a version to the version that this run reads."""
        to = max(self.snapshot.version, from_version)
        return Range(from_version, to, self.snapshot.table_id, self.form.fingerprint(self.snapshot.ref, to))


@frozen
class Step:
    """One piece of a consumer's work: the ranges to read, and the commit's transaction."""

    offsets: Offsets
    app: CursorTransaction
    due: bool = False
    """True if the cursor must move without changes, before the log forgets its position."""

    @property
    def ranges(self) -> Mapping[str, Range]:
        return self.offsets.ranges

    @property
    def whole(self) -> bool:
        """True if the upstreams are read from the beginning and the output is replaced."""
        return self.offsets.whole

    @property
    def idle(self) -> bool:
        """True if there is nothing to do."""
        return not self.whole and not self.due and all(each.is_empty for each in self.ranges.values())


class Cursor:
    """Cursor of one consumer, in the folder of its output.

    Args:
        consumer: Name of the consumer, the same in each of its runs.
    """

    def __init__(self, lake: Lake, output: TableRef, consumer: str) -> None:
        self._form, self._storage, self._consumer = lake.format, lake.storage, consumer
        self.output = output
        """Table whose commits hold the consumer's position."""

    def earlier(self, work: WorkTransaction) -> CommitRecord | None:
        """Return the consumer's newest commit, if an older attempt of the same work made it.

        Raises:
            CommitConflict: A newer attempt made it.
        """
        if not self._form.exists(self.output):
            return None
        newest = self._form.snapshot(self.output)
        holds = self._form.counter(self.output, self._consumer, newest).holds
        if holds is None:
            return None
        record = record_of(self._form, newest, AppTransaction(self._consumer, holds))
        if record is None or record.note.get("work") != work.app_id or record.note.get("attempt") == work.attempt:
            return None
        if record.note.get("attempt_started", 0) > work.started:
            raise CommitConflict(
                f"Table {self.output}: this attempt of {self._consumer} is superseded: a newer one has committed "
                f"version {record.version}",
                remedy=NOTHING_LEFT,
            )
        return record

    def begin(
        self,
        upstreams: Mapping[str, Upstream],
        *,
        full_refresh: bool = False,
        note: bool = True,
        work: WorkTransaction | None = None,
        base: int | None = None,
    ) -> Step:
        """Return the consumer's next step, and record its offsets unless there is nothing to do.

        Args:
            full_refresh: Read the upstreams from the beginning.
            note: False records nothing.
            work: Work and attempt of the commit.
            base: Version before the consumer's newest commit. The step starts from there and rolls
                that commit back.

        Raises:
            VersionNotReadable: Only a full refresh can continue. The output no longer tells the
                consumer's position, or an upstream is another table or lacks commits that were
                read.
        """
        counter = self._form.counter(self.output, self._consumer) if self._form.exists(self.output) else Counter()
        if not counter.known and not full_refresh:
            raise self._lost("its log no longer says which of the consumer's commits the table holds")
        instead = None
        if base is not None and counter.holds is not None:
            instead, taken = counter.holds, self._read(counter.holds)
            if taken is None:
                raise self._lost(f"the offsets of commit {instead} are gone ({self._path(instead)})")
            counter = replace(counter, holds=taken.after)
        before = None
        if counter.holds is not None and not full_refresh:
            before = self._read(counter.holds)
            if before is None:
                raise self._lost(f"the offsets of commit {counter.holds} are gone ({self._path(counter.holds)})")
        elif counter.highest is None and not full_refresh and self._was_here():
            raise self._lost(
                "there are offsets, and the table has no commit of the consumer (its entry has expired, or the table "
                "was cloned)"
            )
        due = before is not None and self._is_due(before, upstreams)
        ranges = self._ranges(before, upstreams)
        step = self._noted(counter, ranges, whole=before is None, note=note, due=due, anew=full_refresh)
        step = replace(step, app=replace(step.app, work=work, instead=instead, base=base))
        if note and not step.idle:
            for each in upstreams.values():
                if each.storage is not None:
                    register(each.storage, each.snapshot.ref, self._consumer, self.output)
        return step

    def _was_here(self) -> bool:
        """True if the consumer has committed before, although the table holds no number of it.

        False if only a killed first run left offsets.
        """
        if self._read(1) is not None or self._read(0) is None or not self._form.exists(self.output):
            return self._read(1) is not None
        newest = self._form.snapshot(self.output).version
        records = self._form.records_back(self.output, newest)
        return any(each.app_id == self._consumer for record in records for each in record.transactions)

    def _is_due(self, before: Offsets, upstreams: Mapping[str, Upstream]) -> bool:
        """True if half of a log's retention has passed since the consumer's last commit."""
        retentions = [each.form.log_retention(each.snapshot) for each in upstreams.values()]
        retentions.append(self._form.log_retention(self._form.snapshot(self.output)))
        # A commit in the future is by a clock that was set back since.
        return abs(time.time() * 1000 - before.at) >= min(retentions) / 2

    def _ranges(self, before: Offsets | None, upstreams: Mapping[str, Upstream]) -> dict[str, Range]:
        if before is None:
            return {name: upstream.range_after(-1) for name, upstream in upstreams.items()}
        ranges = {}
        for name, upstream in upstreams.items():
            read = before.ranges.get(name)
            if read is None:
                raise self._lost(f"the consumer has not read {name} so far")
            if read.table_id != upstream.snapshot.table_id:
                raise self._lost(
                    f"{name} is another table now than the one that was read up to version {read.to_version}"
                )
            now = upstream.form.fingerprint(upstream.snapshot.ref, read.to_version)
            if read.fingerprint is not None and now is not None and now != read.fingerprint:
                raise self._lost(
                    f"version {read.to_version} of {name} is another commit now than the one that was read"
                )
            ranges[name] = upstream.range_after(read.to_version)
        return ranges

    def _noted(
        self, counter: Counter, ranges: Mapping[str, Range], *, whole: bool, note: bool, due: bool, anew: bool
    ) -> Step:
        """Record the offsets under the next free number, and return their step.

        If a killed run left offsets that continue from the same position, they are used instead. A
        full refresh ignores them, since it reads the newest versions.
        """
        number = 0 if counter.highest is None else counter.highest + 1
        while True:
            wanted = Offsets(number, counter.holds, whole, ranges, int(time.time() * 1000))
            step = Step(wanted, CursorTransaction(self._consumer, number, after=counter.holds), due)
            if (step.idle or not note) and self._read(number) is None:
                return step
            if note and self._storage.put_new(self.output.location, self._path(number), wanted.to_json().encode()):
                return step
            there = self._read(number)
            same = there is not None and not anew and (there.after, there.whole) == (counter.holds, whole)
            if there is not None and same and there.ranges.keys() == ranges.keys() and self._is_of(there, ranges):
                return replace(step, offsets=there)
            number += 1

    def _is_of(self, there: Offsets, ranges: Mapping[str, Range]) -> bool:
        """True if recorded offsets start from the same versions of the same tables as these."""
        return all(
            (recorded.from_version, recorded.table_id) == (ranges[name].from_version, ranges[name].table_id)
            and recorded.to_version <= ranges[name].to_version
            for name, recorded in there.ranges.items()
        )

    def _path(self, number: int) -> str:
        return offsets_path(self._consumer, number)

    def _read(self, number: int) -> Offsets | None:
        path = self._path(number)
        raw = self._storage.read_at(self.output.location, path)
        return None if raw is None else Offsets.from_json(raw, f"{self.output.location}/{path}")

    def _lost(self, why: str) -> VersionNotReadable:
        return VersionNotReadable(
            f"Table {self.output}: what has changed since the last commit of {self._consumer} cannot be told: {why}",
            remedy=_REFRESH,
        )


def base_of_rerun(lake: Lake, cursor: Cursor, work: WorkTransaction) -> tuple[int | None, str]:
    """Return the output's version before an older attempt's commit, and a note for the log.

    The version is None if no commit is rolled back.

    Raises:
        CommitConflict: A newer attempt has committed.
    """
    earlier = cursor.earlier(work)
    if earlier is None:
        return None, ""
    try:
        base = Transaction(lake, cursor.output).base_instead_of([earlier])
    except NotTakenBack as error:
        return None, (
            f"An earlier attempt has committed version {earlier.version}, which cannot be taken back: {error.why}. "
            "This one goes on from there, so that the changes which that one has read are not read again."
        )
    return (
        base,
        f"An earlier attempt has committed version {earlier.version}. This one reads the same changes again, and "
        "takes it back.",
    )


def consumer_as_before(lake: Lake, newest: Snapshot, consumer: str, work: WorkTransaction) -> Snapshot | None:
    """Return the snapshot of its output that an attempt of a consumer reads.

    It is the version before the older attempt's commit that this one rolls back, or None if that
    commit created the table. Without such a commit it is the newest version.

    Raises:
        CommitConflict: A newer attempt has committed.
    """
    base, _ = base_of_rerun(lake, Cursor(lake, newest.ref, consumer), work)
    if base == NO_TABLE:
        return None
    return newest if base is None else lake.snapshot(newest.ref, base)


_REFRESH = "Run a full refresh, which reads the upstreams whole and writes the table anew."


@contextmanager
def asking_for_a_refresh() -> Iterator[None]:
    """Add the remedy, a full refresh, to errors about a range that is gone."""
    try:
        yield
    except (FilesGone, VersionNotReadable) as error:
        error.remedy = error.remedy or _REFRESH
        raise
