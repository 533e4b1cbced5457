"""Change query of one table: its range, its row identity, its files and its rows.

Source: docs/changes.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import pairwise

from duckrun.changes.rule import Question, added_columns, answer
from duckrun.changes.stored import stored_schema, widens
from duckrun.changes.weighing import files_that_came, step_of
from duckrun.engines.engine import Engine
from duckrun.engines.frame import LazyRows
from duckrun.errors import (
    DuckrunError,
    InvalidConfig,
    SchemaMismatch,
    StorageError,
    UnsupportedFeature,
    VersionNotReadable,
)
from duckrun.formats.format import Format, logs_of
from duckrun.formats.logs import LogTables
from duckrun.formats.states import StateReader
from duckrun.libraries import pa
from duckrun.sql.on_demand import sql_names
from duckrun.sql.quoting import fresh_name, quote_identifier
from duckrun.values.changes import KINDS, Between, ChangeKind, CommitChange, Identity, Source, Step, WeighedRead
from duckrun.values.columns import holds, leaves
from duckrun.values.expressions import refuse_no_expression
from duckrun.values.frozen import frozen
from duckrun.values.snapshot import Snapshot, TableRef


@frozen
class ChangeSpec:
    """Ask for changes in the versions (``from_version``, ``to_version``].

    Example::

        ChangeSpec("upsert", from_version=3, key=("id",))
    """

    kind: ChangeKind
    from_version: int | None = None
    """Last version that the caller has seen; -1 is before the first version."""
    to_version: int | str | None = None
    """Last version of the range, or a time (ISO 8601); None is the newest version."""
    from_timestamp: str | None = None
    key: tuple[str, ...] = ()
    """Columns that identify a row; empty for row ids or whole rows."""
    columns: tuple[str, ...] | None = None
    """Columns to return. They apply before rows are compared; None takes all."""
    predicate: str | None = None
    """Condition on the rows, which applies before they are compared."""
    commit_version: bool = False
    """Add the commit's version to ``append_only`` and ``upsert``."""
    dialect: str = "duckdb"
    table_id: str | None = None
    """Id of the table that ``from_version`` belongs to; None if unknown."""


class FilesGone(StorageError):
    """Data files that a change query needs are gone."""


class Changes:
    """A change query with its versions, identity and files resolved.

    No data file is opened before ``rows()`` is called.

    Raises:
        InvalidConfig: The spec is contradictory, or its range is backwards.
        SchemaMismatch: A column is missing, changed its type, or has the name of an added column.
        VersionNotReadable: A version of the range is gone, or belongs to another table.
        StorageError: Data files are gone.
        UnsupportedFeature: The table's format or a column's type has no such changes.
    """

    def __init__(
        self, form: Format, ref: TableRef, spec: ChangeSpec, newest: Snapshot | None = None, *, trial: bool = False
    ) -> None:
        """Resolve a spec.

        Args:
            newest: Version that the caller reads if the spec names no end.
            trial: Skip the search for a version that would work; the error is not shown.
        """
        self._form, self._ref, self._spec = form, ref, spec
        self._reader = None if form.transactions is None else form.transactions.states
        refuse_no_expression(spec.predicate, spec.dialect, f"changes of table {ref}: the predicate")
        if spec.kind not in KINDS:
            raise InvalidConfig(
                f"changes of table {ref}: unknown kind {spec.kind!r}; the kinds are {', '.join(KINDS)}."
            )
        if self._reader is not None and spec.kind == "feed":
            raise UnsupportedFeature(
                f"table {ref} is a DuckLake table, which has no change feed of Delta's: changes() answers, and "
                "table_changes() says what DuckLake itself has."
            )
        if spec.commit_version and spec.kind not in ("append_only", "upsert"):
            raise InvalidConfig(
                f"changes of table {ref}: commit_version is for append_only and upsert; min_delta has no versions, "
                "and full_delta always has."
            )
        self.from_version = self._first()
        self.to, self.to_version = self._last(newest)
        self._refuse_another_table()
        if self.from_version > self.to_version and spec.to_version is None:
            raise VersionNotReadable(
                f"changes of table {ref}: there is no version {self.from_version} to begin after; the newest is "
                f"{self.to_version}. {_ANEW}"
            )
        if self.from_version > self.to_version:
            raise InvalidConfig(
                f"changes of table {ref}: the range goes from version {self.from_version} to {self.to_version}, which "
                "is backwards."
            )
        self.key = tuple(self._named(name, "key") for name in spec.key)
        self.columns = self._compared()
        self._refuse_added_names()
        if self._reader is not None:
            self._refuse_unreadable(self._reader)
            return
        try:
            self._refuse_other_types()
            self._refuse_restored_columns()
            self._refuse_without_feed()
        except VersionNotReadable as error:
            if trial:
                raise
            raise VersionNotReadable(f"{error} {self._oldest()}") from error

    @property
    def _logs(self) -> LogTables:
        return logs_of(self._form)

    def _refuse_another_table(self) -> None:
        """Raise VersionNotReadable if the range's version numbers belong to a dropped table."""
        meant = self._spec.table_id
        if meant is None or self._reader is not None or meant == self.to.table_id:
            return
        # Spark's CREATE OR REPLACE TABLE may change the id within one log, whose versions continue.
        at = self.from_version
        if 0 <= at <= self.to.version and self._form.snapshot(self._ref, at).table_id == meant:
            return
        raise VersionNotReadable(
            f"changes of table {self._ref}: it is another table now than the one that was read up to version "
            f"{self.from_version} (id {meant}): that was dropped, and this one, with the id {self.to.table_id}, was "
            f"created in its place. {_ANEW}"
        )

    def _last(self, newest: Snapshot | None) -> tuple[Snapshot, int]:
        """Return the last version of the range, and its number.

        In a lake, that version need not have changed the table.
        """
        to = self._spec.to_version
        if self._reader is None:
            version, time = (None, to) if isinstance(to, str) else (to, None)
            last = newest if newest is not None and to is None else self._form.snapshot(self._ref, version, time)
            return last, last.version
        if to is not None:
            last = self._form.snapshot(self._ref)
            at = self._reader.at_time(self._ref, to) if isinstance(to, str) else to
            return self._form.snapshot(self._ref, at) if at < 0 or self._reader.has_table(last, at) else last, at
        last = newest or self._form.snapshot(self._ref)
        is_ahead = last.version < self.from_version <= self._reader.read_at(last)
        return last, self.from_version if is_ahead else last.version

    def _first(self) -> int:
        spec = self._spec
        if (spec.from_version is None) == (spec.from_timestamp is None):
            raise InvalidConfig(
                f"changes of table {self._ref}: give from_version, the last version seen (-1: none), or "
                "from_timestamp, and not both."
            )
        if spec.from_version is not None:
            if spec.from_version < -1:
                raise InvalidConfig(
                    f"changes of table {self._ref}: from_version is {spec.from_version}; -1 is before the first "
                    "version."
                )
            return spec.from_version
        if self._reader is not None:
            assert spec.from_timestamp is not None
            return self._reader.at_time(self._ref, spec.from_timestamp)
        version = self._form.snapshot(self._ref, timestamp=spec.from_timestamp).version
        if spec.kind != "feed":
            return version
        # A feed includes the version of the timestamp itself, so step back if one matches exactly.
        record = self._form.record(self._ref, version)
        exactly = record is not None and record.timestamp == _milliseconds(str(spec.from_timestamp))
        return version - exactly

    # -- columns

    def _named(self, name: str, what: str) -> str:
        column = next((known for known in self.to.schema.names if known.lower() == name.lower()), None)
        if column is None:
            raise SchemaMismatch(
                f"changes of table {self._ref}: {what} names the column {name}, which version {self.to.version} does "
                f"not have; it has {', '.join(self.to.schema.names)}."
            )
        return column

    def _compared(self) -> tuple[str, ...]:
        spec = self._spec
        if spec.columns is None:
            return tuple(self.to.schema.names)
        if not spec.columns:
            raise InvalidConfig(f"changes of table {self._ref}: columns is empty; name at least one, or leave it out.")
        columns = tuple(self._named(name, "columns") for name in spec.columns)
        if lacking := [name for name in self.key if name not in columns]:
            raise InvalidConfig(
                f"changes of table {self._ref}: the key column {lacking[0]} is not among columns; rows are compared "
                "by their columns alone."
            )
        return columns

    @cached_property
    def _read_columns(self) -> tuple[str, ...]:
        """The returned columns and those of the predicate."""
        if self._predicate is None:
            return self.columns
        used = {name.lower() for _, name in sql_names.columns_of(self._predicate)}
        return tuple(n for n in self.to.schema.names if n in self.columns or n.lower() in used)

    @cached_property
    def _predicate(self) -> str | None:
        predicate = self._spec.predicate
        if predicate is None:
            return None
        try:
            text = sql_names.transpile(predicate, self._spec.dialect, "duckdb")
            sql_names.columns_of(text)
            return text
        except InvalidConfig as error:
            raise InvalidConfig(f"changes of table {self._ref}: the predicate: {error}") from error

    def _refuse_added_names(self) -> None:
        added = added_columns(self._spec.kind, commit_version=self._spec.commit_version)
        twins = [name for name in self.columns if name.lower() in added]
        if twins:
            raise SchemaMismatch(
                f"changes of table {self._ref}: its column {twins[0]} has the name of one that {self._spec.kind} "
                "adds. Name the others by columns=, or rename it."
            )

    def _refuse_other_types(self) -> None:
        """Raise SchemaMismatch if a column's older type does not widen to its present type."""
        stored = stored_schema(self._form, self.to)
        now = {
            old.name: field
            for old, field in zip(stored, self.to.schema, strict=True)
            if field.name in self._read_columns
        }
        for snapshot in self._definitions:
            for field in stored_schema(self._form, snapshot):
                known = now.get(field.name)
                if known is not None and not widens(field.type, stored.field(field.name).type):
                    raise SchemaMismatch(
                        f"changes of table {self._ref}: the column {known.name} was {field.type} at version "
                        f"{snapshot.version} and is {known.type} at version {self.to.version}, so that its values "
                        "cannot be compared. Begin at a later version, or leave it out by columns=."
                    )

    def _refuse_restored_columns(self) -> None:
        """Raise SchemaMismatch if a version that is read lacks a column that RESTORE brought back.

        With column mapping, files keep the values of a dropped column, so such a version would show
        them.
        """
        for snapshot, names in self._lacking_restored:
            # A sum over the range reads only its two ends; steps read each version.
            if self._by_commits or snapshot.version == self.from_version:
                raise SchemaMismatch(
                    f"changes of table {self._ref}: the column {', '.join(names)} was dropped at version "
                    f"{snapshot.version} or before and came back by the RESTORE of version {self._last_restore}, and "
                    "the table's files hold its values all the time (delta.columnMapping.mode). Begin at version "
                    f"{self._last_restore}, or leave it out by columns=."
                )

    @cached_property
    def _last_restore(self) -> int:
        return max((commit.version for commit in self.commits if commit.operation == "RESTORE"), default=-1)

    @cached_property
    def _lacking_restored(self) -> tuple[tuple[Snapshot, list[str]], ...]:
        """Versions of the range that lack columns brought back by RESTORE, with these columns."""
        stored = stored_schema(self._form, self.to)
        if self._whole or stored.names == self.to.schema.names and not self._logs.stored_columns(self.to.schema):
            return ()
        names = {path: self.to.schema.names[stored.names.index(path[0])] for path, _ in leaves(stored)}
        now = {path for path, name in names.items() if name in self._read_columns}
        lacking = []
        for snapshot in self._definitions:
            gone = now - {path for path, _ in leaves(stored_schema(self._form, snapshot))}
            if gone and snapshot.version < self._last_restore:
                lacking.append((snapshot, sorted({names[path] for path in gone})))
        return tuple(lacking)

    def _refuse_unreadable(self, reader: StateReader) -> None:
        """Raise VersionNotReadable if the lake has expired a version of the range.

        The error names a version that works.
        """
        if self._is_empty:
            return
        before = self._before
        if before is None and self.from_version < 0:
            before = reader.first(self.to, self.from_version) if self._by_commits else self.to_version
        reader.refuse_unreadable(
            self._ref, self.from_version if before is None else before, self.to_version, each=self._by_commits
        )

    def _refuse_without_feed(self) -> None:
        """Raise InvalidConfig if the change feed was off somewhere in the range."""
        if self._spec.kind != "feed" or self.from_version == self.to_version:
            return
        first, last = self.from_version + 1, self.to_version
        has_feed = {s.version: s.has_feed for s in self._definitions if s.version > first}
        for snapshot in (self._form.snapshot(self._ref, first), self.to):
            has_feed[snapshot.version] = snapshot.has_feed
        off: list[tuple[int, int]] = []
        for version, following in pairwise([*sorted(has_feed), last + 1]):
            if not has_feed[version]:
                begun = off.pop()[0] if off and off[-1][1] == version - 1 else version
                off.append((begun, following - 1))
        if off:
            ranges = ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in off)
            raise InvalidConfig(
                f"table_changes of table {self._ref}: its change feed was off at "
                f"version{'' if ranges.isdigit() else 's'} {ranges} of the range from {first} to {last}. Ask for "
                "changes(), which need no feed, or for a range in which it was on."
            )

    # -- the range

    @cached_property
    def commits(self) -> tuple[CommitChange, ...]:
        """Changes of each commit of the range; raises VersionNotReadable if the log lacks one."""
        return tuple(self._form.commits_between(self._ref, self.from_version, self.to_version))

    @cached_property
    def _whole(self) -> bool:
        """True if the two ends of the range are compared instead of its commits.

        That is so from the beginning of the table, and if the log has lost the commits.
        """
        if self._by_commits:
            return False
        if self.from_version == -1 or self._reader is not None:
            return True
        try:
            return not self.commits and self.from_version < self.to_version
        except VersionNotReadable:
            return True

    @property
    def _by_commits(self) -> bool:
        return self._spec.kind in ("full_delta", "feed") or self._spec.commit_version

    @cached_property
    def _definitions(self) -> tuple[Snapshot, ...]:
        """Snapshots of the range at which the table's definition changes, and its beginning.

        The end of the range is left out.
        """
        if self._reader is not None:
            return ()
        versions = (
            set() if self._whole else {c.version for c in self.commits if c.redefines and c.version < self.to_version}
        )
        if self.from_version >= 0:
            versions.add(self.from_version)
        return tuple(self._form.snapshot(self._ref, version) for version in sorted(versions - {self.to_version}))

    @cached_property
    def identity(self) -> Identity:
        """Identity of rows: the key, else row ids if the table tracked rows in the whole range."""
        if self.key:
            return "key"
        if self._spec.kind == "feed":
            return "none"
        if self._reader is not None:
            return "row_id"
        tracked = all(self._logs.row_id_columns(s) is not None for s in (*self._definitions, self.to))
        return "row_id" if tracked else "none"

    @property
    def sources(self) -> Mapping[int, Source]:
        """Source of each commit's changed rows; empty if only the two ends are compared."""
        return {} if self._whole else {commit.version: self._source(commit) for commit in self.commits}

    def _source(self, commit: CommitChange) -> Source:
        if self._reader is not None:
            return "snapshots"
        return "row_tracking" if self.identity == "row_id" else commit.source

    # -- the states, of a format that reads them itself

    @property
    def _before(self) -> int | None:
        """Version of the lake before the range; None if the table did not exist then."""
        assert self._reader is not None
        return self.from_version if self._reader.has_table(self.to, self.from_version) else None

    @property
    def _is_empty(self) -> bool:
        """True if the range cannot have changes."""
        assert self._reader is not None
        if self.from_version == self.to_version:
            return True
        return self._before is None and self._reader.first(self.to, self.from_version) > self.to_version

    @cached_property
    def _between(self) -> tuple[Between, ...]:
        """Pairs of states whose differences are the answer."""
        if self._reader is None or self._is_empty:
            return ()
        if not self._by_commits:
            return (Between(self._before, self.to_version, self.to_version),)
        has_table = partial(self._reader.has_table, self.to)
        return tuple(
            Between(
                each.version - 1 if has_table(each.version - 1) else None, each.version, each.version, each.timestamp
            )
            for each in self.commits
            if not each.moves
        )

    # -- the files

    @cached_property
    def _new_from(self) -> int | None:
        """Lowest row id of the range's new rows; None if ids do not tell new rows.

        Rows with this id or a higher one are exactly the new rows, so older files need not be read.
        That holds if no commit restored or moved rows or changed the definition. Source: Delta
        protocol, Row Tracking (fresh row ids are above the high water mark).
        """
        if self._spec.kind != "append_only" or self.identity != "row_id" or self._by_commits or self._whole:
            return None
        if any(commit.moves or commit.redefines or commit.operation == "RESTORE" for commit in self.commits):
            return None
        before = self._form.snapshot(self._ref, self.from_version)
        ends = [0]
        for each in self._logs.state_change(None, before).files:
            if each.first_row_id is None or each.file.rows is None:
                return None
            ends.append(each.first_row_id + each.file.rows)
        return max(ends)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Files to read, with the multiplicity of their rows.

        Raises:
            FilesGone: Some of them are gone.
        """
        steps, gone = self._found()
        if gone:
            raise FilesGone(
                f"changes of table {self._ref} from version {self.from_version} to {self.to_version}: {len(gone)} of "
                f"the data files that they need are gone, such as {gone[0]} (a vacuum removes what no version within "
                f"the retention has). {self._oldest()}"
            )
        return steps

    def _found(self) -> tuple[tuple[Step, ...], list[str]]:
        """Return the steps, and those of their files that are gone."""
        vectors = partial(self._logs.vector_rows, self._ref)
        if self._whole:
            before = None if self.from_version == -1 else self._form.snapshot(self._ref, self.from_version)
            steps: tuple[Step, ...] = (step_of([self._logs.state_change(before, self.to)], vectors),)
            return steps, self._gone(steps)
        # Skip compactions: their rows sum to zero, so the files need not be read. The exception is
        # a RESTORE of a dropped column. A compaction without that column drops its values, so the
        # rows do not sum to zero.
        commits = [c if self.identity != "row_id" else replace(c, feed=()) for c in self.commits]
        telling = [
            commit
            for commit in commits
            if (commit.files or commit.feed) and (self._lacking_restored or not commit.moves)
        ]
        if not telling:
            return (), []
        if self._new_from is not None:
            telling = files_that_came(telling)
        groups = [[commit] for commit in telling] if self._by_commits else [telling]
        steps = tuple(step_of(group, vectors) for group in groups)
        gone = self._gone(steps)
        if gone and not self._by_commits and len(telling) < len(commits):
            steps = (step_of([commit for commit in commits if commit.files or commit.feed], vectors),)
            gone = self._gone(steps)
        return steps, gone

    def _gone(self, steps: Sequence[Step]) -> list[str]:
        files = {file.file.path: file.file for step in steps for file in step.files}
        files |= {file.path: file for step in steps for file in step.feed}
        return [file.path for file in self._logs.missing_files(self._ref, list(files.values()))]

    def _oldest(self) -> str:
        versions = range(self.from_version + 1, self.to_version)
        if len(versions) <= _FEW:
            oldest = next(filter(self._works, versions), None)
        else:  # if a version works, so do later ones, unless files came back
            place = bisect_left(versions, True, key=self._works)
            oldest = versions[place] if place < len(versions) else None
        if oldest is None:
            return "No later from_version works: read the table whole."
        return f"The oldest from_version that works is {oldest}."

    def _works(self, version: int) -> bool:
        """True if the same query works from this version."""
        spec = replace(self._spec, from_version=version, from_timestamp=None, to_version=None)
        try:
            return not Changes(self._form, self._ref, spec, self.to, trial=True)._found()[1]
        except DuckrunError:
            return False

    # -- the rows

    def rows(self, engine: Engine) -> LazyRows:
        """Return the lazy answer, computed by an engine."""
        schema = pa.schema([f for f in self.to.schema if f.name in self._read_columns])
        stored = [
            s
            for s, f in zip(stored_schema(self._form, self.to), self.to.schema, strict=True)
            if f.name in self._read_columns
        ]
        steps: Sequence[Step] = () if self._reader is not None else self.steps
        times = {step.number: step.timestamp for step in steps}
        times |= {step.number: step.timestamp for step in self._between}
        taken = [*self.to.schema.names, *(f.name for f in stored)]
        weight, step = (fresh_name(f"__duckrun_{name}", taken) for name in ("weight", "step"))
        row_id = fresh_name("__duckrun_row_id", taken) if self.identity == "row_id" else None
        in_files = self._logs.row_id_columns(self.to) if row_id and self._reader is None else None
        maps = [f.name for f in schema if holds(f.type, pa.types.is_map)]
        same = {name: fresh_name(f"__duckrun_same_{i}", taken) for i, name in enumerate(maps)}
        fed = fresh_name("__duckrun_fed", taken) if self._spec.kind == "feed" else None
        if variants := [name for name in schema.names if name in self.to.variants]:
            raise UnsupportedFeature(
                f"changes of table {self._ref}: column {variants[0]} is a VARIANT, whose values cannot be compared. "
                "Name the columns to read, without it."
            )
        if unfit := [name for name in self.key if name in same]:
            raise UnsupportedFeature(
                f"changes of table {self._ref}: the key column {unfit[0]} holds maps, which are no key."
            )
        read = WeighedRead(
            ref=self._ref,
            schema=schema,
            stored=pa.schema(stored),
            partition_columns=self.to.partition_columns,
            steps=steps,
            weight=weight,
            step=step,
            fed=fed,
            row_id=row_id,
            stored_row_id=in_files[0] if in_files else None,
            same=same,
        )
        if self._reader is not None:
            read = replace(read, states=self._reader.rows(self._between, self.to, schema.names))
            read = replace(read, sql=self._reader.sql(self.to, read))
        predicate = self._predicate
        if row_id and self._new_from is not None:
            new = f"{quote_identifier(row_id)} >= {self._new_from}"
            predicate = new if predicate is None else f"({predicate}) AND {new}"
        question = Question(
            table=str(self._ref),
            kind=self._spec.kind,
            columns={name: same.get(name) for name in self.columns},
            identity=self.key or ([row_id] if row_id else []),
            weight=weight,
            step=step,
            fed=fed,
            predicate=predicate,
            commit_version=self._spec.commit_version,
            times=times,
            from_nothing=self._reader is None and self._whole and self.from_version == -1,
        )
        query: Callable[[str], str] = partial(answer, question)
        return engine.weighed(read, query)


def _milliseconds(timestamp: str) -> int:
    moment = datetime.fromisoformat(timestamp)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


_ANEW = (
    "If it was dropped and created again, begin with from_version -1 and take away what came from the older table (a "
    "full refresh)."
)
_FEW = 32
"""Up to this many versions are tried one by one."""
