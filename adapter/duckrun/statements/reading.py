"""What one statement reads: its names become tables at one version each, in its syntax tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from duckrun.changes.changes import Changes, ChangeSpec
from duckrun.changes.own import LAKE_FUNCTIONS, OwnQuery, own_rows
from duckrun.engines.frame import LazyRows
from duckrun.errors import DuckrunError, InvalidConfig, UnsupportedFeature, about_tables
from duckrun.lake.lake import INFORMATION
from duckrun.run.pins import NOTHING, Read, Reads, together
from duckrun.sql.dialects import text_in
from duckrun.sql.names import parse_query, quote_identifier, replace_tables
from duckrun.sql.scopes import Names
from duckrun.sql.written import all_in, may_have_scans, with_scans
from duckrun.statements import information
from duckrun.statements.change_queries import change_query, own_query
from duckrun.statements.engine_lists import list_in, list_rows
from duckrun.statements.information import is_information
from duckrun.statements.macros import query_of_view
from duckrun.statements.qualified import qualified_view
from duckrun.values.snapshot import Snapshot, TableRef

if TYPE_CHECKING:
    from duckrun.engines.engine import Engine
    from duckrun.lake.lake import Lake
    from duckrun.lake.lakes import Lakes, Located
    from duckrun.run.pins import Pins
    from duckrun.statements.values import Parts


_OFTEN = 8
"""Times that a query names a table from which on it is read often."""
_SMALL = 16 * 1024**2
"""Bytes of data files up to which a table is small."""


@dataclass
class Reading:
    """The tables that one statement reads, each pinned at its first use; views stand in it as their queries.

    ``temp_views`` are queries with a name that only this session knows. ``reads`` is what was read so far:
    it decides whether a write of the statement may go on top of what others commit.
    """

    lakes: Lakes
    engine: Engine
    pins: Pins
    temp_views: Mapping[str, exp.Query] = field(default_factory=dict)
    reads: Reads = NOTHING
    _names: dict[str, None] = field(default_factory=dict)
    """Tables, and values of the session, that are read, in the order of the text."""
    _open: list[str] = field(default_factory=list)
    _pinned: dict[tuple[Parts, int | None, str | None], exp.Expr] = field(default_factory=dict)
    """Tables by their name and version: a query of a thousand branches looks each of its tables up once."""
    _snapshots: dict[tuple[Parts, int | None, str | None], Snapshot] = field(default_factory=dict)
    _often: frozenset[Parts] = frozenset()
    """Names that one query has many times."""
    _is_often: bool = False
    """True within a view whose name is one of them."""
    _scans: dict[str, str] | None = None
    """Common table expressions of the query that is read, each a scan of a small table that it reads often; None where it may have none."""

    def frame(self, query: exp.Expr) -> LazyRows:
        """The rows of a query over the lakes: lazy. Raises TableNotFound with the nearest names."""
        with self._pinning(
            {} if self.engine.shares_scans and may_have_scans(query, self.engine.name) else None
        ) as scans:
            query = self.pinned(query)
        frame = self.engine.select(with_scans(query, scans) if scans else query, self.about("query"))
        frame.reads = self.reads
        return frame

    def about(self, mode: str) -> str:
        """The beginning of a message about what this statement reads."""
        return about_tables(mode, self._names)

    def pinned(self, tree: exp.Expr, *, inner: bool = False) -> exp.Expr:
        """A query or expression with every table at its version, and every view as its query. ``inner`` is one that stands in another."""
        names = Counter(parts_of(table) for table in all_in(tree, exp.Table))
        self._often |= {name for name, count in names.items() if count >= _OFTEN}
        return replace_tables(tree, self._resolve, self.names, self._changes, dialect=self.engine.name, inner=inner)

    @contextmanager
    def _pinning(self, scans: dict[str, str] | None) -> Iterator[dict[str, str] | None]:
        """Meanwhile tables become scans of one text, of which ``scans`` are the common table expressions."""
        if scans is None and self._scans is None:
            yield None
            return
        before, self._scans, self._pinned = (self._scans, self._pinned), scans, {}
        try:
            yield scans
        finally:
            self._scans, self._pinned = before

    @property
    def names(self) -> Names:
        """Finds the tables and columns of a query."""
        return Names(self.lakes.schema, self.lakes.catalogs, self._columns)

    def _columns(self, table: exp.Table) -> list[str] | None:
        """The columns of a table, view or change query; None for another function."""
        is_call = isinstance(table.this, exp.Func)
        with self._pinning(None):  # it is asked for its columns alone
            rows = self._changes(table) if is_call else self._resolve(table)
        snapshot = self._snapshots.get((parts_of(table), *self._asked(table)))
        if snapshot is not None:
            return list(snapshot.schema.names)
        if rows is None and is_call:
            return None
        return self.engine.select(exp.select("*").from_(rows or exp.table_(table.name, quoted=True))).columns

    def text(self, tree: exp.Expr) -> str:
        """A query or expression as the engine's own SQL, pinned."""
        return text_in(self.pinned(tree), self.engine.name)

    def snapshot(self, ref: TableRef, newest: Snapshot | None = None) -> Snapshot:
        """The version of a table that this statement reads; ``newest`` is that of now, where it has been read already."""

        def load(ref: TableRef, version: int | None = None) -> Snapshot:
            return newest if version is None and newest is not None else self.lakes.snapshot(ref, version)

        return self.pins.snapshot(ref, load)

    def _resolve(self, table: exp.Table) -> exp.Expr | None:
        name = dotted(table)
        version, timestamp = self._asked(table)
        if not table.db and name.lower() in self.temp_views:
            _refuse_travel(name, "a temporary view", version, timestamp)
            return self._expanded(table, name.lower(), self.temp_views[name.lower()])
        if self.engine.has_name(name):
            _refuse_travel(name, "a value of this session", version, timestamp)
            named = self.engine.named_reads(name)
            named.check()
            self.reads = together(self.reads, named)
            self._names[name] = None
            return None
        if is_information(parts_of(table)):
            _refuse_travel(name, "a list of what is there", version, timestamp)
            return information.view(self, parts_of(table))
        known = self._pinned.get((parts_of(table), version, timestamp))
        if known is not None:
            return known.copy()
        found = locate(self.lakes, parts_of(table))
        ref, view = found.ref, found.view
        self._refuse_circle(str(ref))
        if view is None:
            self._names[str(ref)] = None
        else:
            _refuse_travel(name, "a view", version, timestamp)
            sql = view.sql if view.dialect != "duckdb" else query_of_view(self.lakes, found.lake, ref.schema, view.sql)
            query = parse_query(sql, view.dialect)
            return self._expanded(table, str(ref), qualified_view(query, ref, view.catalog))
        if version is None and timestamp is None:
            snapshot = self.snapshot(ref, found.newest)
            self.note(snapshot)
        else:
            snapshot = self.lakes.snapshot(ref, version, timestamp)
            self.reads = together(self.reads, Reads.of(snapshot))
        pinned = self._scan(snapshot, found.lake) if self._has_often(table) else self.engine.pinned(snapshot)
        self._pinned[parts_of(table), version, timestamp] = pinned
        self._snapshots[parts_of(table), version, timestamp] = snapshot
        return pinned.copy()

    def _changes(self, table: exp.Table) -> exp.Expr | None:
        """The rows of a change query, or of a list of what is there, for a call of one."""
        listed = list_in(table)
        if listed is not None:
            if self.engine.name != "duckdb":
                raise UnsupportedFeature(
                    f"{listed}() is a function of DuckDB's: read {INFORMATION}, which {self.engine.name} has too, or run this with engine: duckdb."
                )
            return list_rows(listed, lambda view: text_in(information.view(self, (INFORMATION, view)), "duckdb"))
        asked = change_query(table)
        if asked is None:
            return None
        name, spec = asked
        if isinstance(spec, OwnQuery) and spec.function in LAKE_FUNCTIONS:
            lake = self.lakes.named(name[0], f"{spec.function}('{name[0]}')") if name else self.lakes.lake
            self.engine.reach(lake)
            return self.engine.inlined(own_rows(lake.format, lake.schema_ref(lake.default_schema), spec, self.engine))
        found = locate(self.lakes, tuple(name))
        if found.view is not None:
            raise InvalidConfig(f"{found.ref} is a view, which has no changes of its own; ask the tables under it.")
        self._names[str(found.ref)] = None
        own = self.lakes.of(found.ref)
        if isinstance(spec, ChangeSpec) and spec.kind == "feed" and own.format.state_reader is not None:
            spec = own_query(spec)
        if isinstance(spec, OwnQuery):
            self.note(self.snapshot(found.ref, found.newest))
            self.engine.reach(own)
            return self.engine.inlined(own_rows(own.format, found.ref, spec, self.engine))
        newest = None
        if spec.to_version is None:
            newest = self.snapshot(found.ref, found.newest)
            self.note(newest)
        self.engine.reach(self.lakes.of(found.ref))
        changes = Changes(self.lakes.of(found.ref).format, found.ref, spec, newest)
        return self.engine.inlined(changes.rows(self.engine))

    def note(self, snapshot: Snapshot) -> None:
        """Rows of a table are read, at the version that is its newest for this run."""
        read = Read.of(snapshot)
        self.reads = together(self.reads, Reads.of(snapshot, read))
        self.pins.log.note(snapshot.ref.location, read)

    def _has_often(self, table: exp.Table) -> bool:
        return self._is_often or parts_of(table) in self._often

    def _scan(self, snapshot: Snapshot, lake: Lake) -> exp.Expr:
        """A table that a query reads often. Each scan of it costs as much as a small query, so a small table is scanned once, and a
        large one, whose scans may each need another part of it, is opened once.
        """
        if self._scans is None or snapshot.files().weight()[1] > _SMALL:
            mark = lake.format.fingerprint(snapshot.ref, snapshot.version)
            return self.engine.pinned(replace(snapshot, long_log=snapshot.long_log or mark))
        name = (
            f"duckrun scan {len(self._scans) + 1}"  # quoted wherever DuckDB writes it down, by which it is known again
        )
        self._scans[name] = text_in(self.engine.pinned(snapshot), self.engine.name)
        return exp.Subquery(this=exp.var(f"SELECT * FROM {quote_identifier(name)}"))

    def _expanded(self, table: exp.Table, name: str, query: exp.Expr) -> exp.Expr:
        """The query of a view in the place of its name."""
        key = parts_of(table), None, None
        if key not in self._pinned:
            is_often, self._is_often = self._is_often, self._has_often(table)
            try:
                with self.inside(name):
                    self._pinned[key] = exp.Subquery(this=self.pinned(query, inner=True))
            finally:
                self._is_often = is_often
        return self._pinned[key].copy()

    @contextmanager
    def inside(self, view: str) -> Iterator[None]:
        """While the query of a view is read, the view itself may not be."""
        self._refuse_circle(view)
        self._open.append(view)
        try:
            yield
        finally:
            self._open.pop()

    def _refuse_circle(self, name: str) -> None:
        if name in self._open:
            raise InvalidConfig(f"View {name} reads itself: {' -> '.join([*self._open, name])} is a circle.")

    # -- time travel

    def _asked(self, table: exp.Table) -> tuple[int | None, str | None]:
        """The version or the time (ISO 8601) that a table's name is followed by."""
        clause = table.args.get("when") or table.args.get("version")
        if clause is None:
            return None, None
        kind = (clause.args["kind"] if isinstance(clause, exp.HistoricalData) else clause.name).upper()
        value = clause.expression
        if kind == "VERSION":
            if not isinstance(value, exp.Literal) or value.is_string or not value.this.isdigit():
                raise InvalidConfig(f"Table {dotted(table)}: a version is a whole number, not {value.sql()}.")
            return int(value.this), None
        if kind != "TIMESTAMP":
            raise InvalidConfig(f"Table {dotted(table)}: read it AT (VERSION => n) or AT (TIMESTAMP => t), not {kind}.")
        return None, self._time(table, value)

    def _time(self, table: exp.Table, value: exp.Expr) -> str:
        """The time that a table is read at. Raises InvalidConfig for an expression that is none."""
        literal = value.this if isinstance(value, exp.Cast) else value
        if isinstance(literal, exp.Literal) and literal.is_string:
            return str(literal.this)
        moment: Any = exp.Select(expressions=[exp.alias_(exp.cast(value.copy(), "timestamptz"), "moment")])
        no_time = (
            f"Table {dotted(table)}: {value.sql()} is no time. Read it at a timestamp, a date, or a text of ISO 8601, e.g. "
            "'2026-01-31 12:00:00'."
        )
        try:
            found = self.engine.select(moment).collect()[0]["moment"]
        except DuckrunError as error:
            raise InvalidConfig(no_time) from error
        if not isinstance(found, datetime):
            raise InvalidConfig(no_time)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).isoformat()


def parts_of(table: exp.Table) -> Parts:
    """The parts of a table's name, as written."""
    return tuple(part for part in (table.catalog, table.db, table.name) if part)


def dotted(table: exp.Table) -> str:
    """A table's name for messages, its parts joined by dots."""
    return ".".join(parts_of(table))


def locate(lakes: Lakes, parts: tuple[str, ...]) -> Located:
    """The lake and the table of a name, or of a folder: ``delta.`/a/path```."""
    if len(parts) == 2 and parts[0].lower() == "delta" and "/" in parts[1]:
        return lakes.at(parts[1])
    return lakes.locate(parts)


def _refuse_travel(name: str, what: str, version: int | None, timestamp: str | None) -> None:
    if version is not None or timestamp is not None:
        raise InvalidConfig(f"{name} is {what}, which has no versions; read the tables under it at a version.")
