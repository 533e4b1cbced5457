"""Tables that one statement reads: each name in its tree becomes a table pinned at one version."""

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
from duckrun.run.pins import NOTHING, Reads, together
from duckrun.run.work_log import Read
from duckrun.sql.conditions import condition_on
from duckrun.sql.dialects import text_in
from duckrun.sql.kinds import Columns, with_columns
from duckrun.sql.names import parse_query, replace_tables
from duckrun.sql.pieces import all_in
from duckrun.sql.placing import may_have_scans, with_scans
from duckrun.sql.quoting import quote_identifier
from duckrun.sql.scopes import Names
from duckrun.statements.change_queries import change_query, own_query
from duckrun.statements.engine_lists import list_in, list_rows
from duckrun.statements.information import Listing, is_information
from duckrun.statements.macros import qualified_view, query_of_view
from duckrun.statements.values import dotted, parts_of
from duckrun.values.snapshot import Snapshot, TableRef

if TYPE_CHECKING:
    from duckrun.engines.engine import Engine
    from duckrun.lake.lakes import Lakes, Located
    from duckrun.run.pins import Pins
    from duckrun.statements.values import Parts


_OFTEN = 8
"""Minimum number of times that a query names a table for it to count as read often."""
_SMALL = 16 * 1024**2
"""Maximum size of a small table's data files, in bytes."""


@dataclass
class Reading:
    """The tables that one statement reads, pinned at their first use; views become their queries.

    ``temp_views`` are the named queries of this session. ``reads`` is what was read so far. It
    decides whether a write of the statement may commit on top of other commits.
    """

    lakes: Lakes
    engine: Engine
    pins: Pins
    temp_views: Mapping[str, exp.Query] = field(default_factory=dict)
    dialect: str = "duckdb"
    """Dialect of the statement."""
    reads: Reads = NOTHING
    _names: dict[str, None] = field(default_factory=dict)
    """Tables and session values that are read, in the order of the text."""
    _open: list[str] = field(default_factory=list)
    _pinned: dict[tuple[Parts, int | None, str | None], exp.Expr] = field(default_factory=dict)
    """Tables by name and version: a query of a thousand branches resolves each table once."""
    _snapshots: dict[tuple[Parts, int | None, str | None], Snapshot] = field(default_factory=dict)
    _tables: list[exp.Expr] = field(default_factory=list)
    """Tables of the engine that replaced names."""
    _often: frozenset[Parts] = frozenset()
    """Names that one query reads often."""
    _is_often: bool = False
    """True inside a view that is read often."""
    _scans: dict[str, str] | None = None
    """Common table expressions of the current query: one scan per small table that it reads often.
    None if the query cannot have any.
    """

    def frame(self, query: exp.Expr) -> LazyRows:
        """Return the rows of a query over the lakes, lazily.

        Raises:
            TableNotFound: for an unknown table, with the nearest names.
        """
        with self._pinning(
            {} if self.engine.shares_scans and may_have_scans(query, self.engine.name) else None
        ) as scans:
            query = self.pinned(query)
        whole = with_scans(query, scans) if scans else query
        frame = self.engine.select(whole, self.about("query"), self._tables)
        frame.reads = self.reads
        return frame

    def about(self, mode: str) -> str:
        """Return the start of a message about the tables that this statement reads."""
        return about_tables(mode, self._names)

    def pinned(self, tree: exp.Expr, *, inner: bool = False) -> exp.Expr:
        """Return a tree with every table at its version, and every view as its query.

        Args:
            tree: a query or an expression.
            inner: True for a subquery.
        """
        names = Counter(parts_of(table) for table in all_in(tree, exp.Table))
        self._often |= {name for name, count in names.items() if count >= _OFTEN}
        return replace_tables(tree, self._resolve, self.names, self._changes, dialect=self.engine.name, inner=inner)

    @contextmanager
    def _pinning(self, scans: dict[str, str] | None) -> Iterator[dict[str, str] | None]:
        """Resolve tables as scans of one text, with ``scans`` as its common table expressions."""
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
        """Lookup of the tables and columns of a query."""
        return Names(self.lakes.schema, self.lakes.catalogs, self._columns)

    @property
    def _listing(self) -> Listing:
        return Listing(self.lakes, self.engine, self.temp_views, self.snapshot, self.frame)

    def _columns(self, table: exp.Table) -> list[str] | None:
        """Return the columns of a table, view or change query; None for another function."""
        is_call = isinstance(table.this, exp.Func)
        with self._pinning(None):  # only the columns are read
            rows = self._changes(table) if is_call else self._resolve(table)
        snapshot = self._snapshots.get((parts_of(table), *self._asked(table)))
        if snapshot is not None:
            return list(snapshot.schema.names)
        if rows is None and is_call:
            return None
        return self.engine.select(exp.select("*").from_(rows or exp.table_(table.name, quoted=True))).columns

    def text(self, tree: exp.Expr) -> str:
        """Return a query or expression as pinned SQL of the engine."""
        return text_in(self.pinned(tree), self.engine.name)

    def snapshot(self, ref: TableRef, newest: Snapshot | None = None) -> Snapshot:
        """Return the snapshot of a table that this statement reads.

        Args:
            ref: the table.
            newest: its newest snapshot, if that was already read.
        """

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
            return self._listing.view(parts_of(table))
        key = parts_of(table), version, timestamp
        where = None if self._has_often(table) else condition_on(table)
        known = self._pinned.get(key)
        if where is None and known is not None:
            return known.copy()
        snapshot = self._snapshots.get(key)
        if snapshot is not None:
            return self._scanned(table, snapshot, where)
        located = locate(self.lakes, parts_of(table))
        ref, view = located.ref, located.view
        self._refuse_circle(str(ref))
        if view is None:
            self._names[str(ref)] = None
        else:
            _refuse_travel(name, "a view", version, timestamp)
            sql = (
                view.sql if view.dialect != "duckdb" else query_of_view(self.lakes, located.lake, ref.schema, view.sql)
            )
            query = parse_query(sql, view.dialect)
            return self._expanded(table, str(ref), qualified_view(query, ref, view.catalog))
        if version is None and timestamp is None:
            snapshot = self.snapshot(ref, located.newest)
            self.note(snapshot)
        else:
            snapshot = self.lakes.snapshot(ref, version, timestamp)
            self.reads = together(self.reads, Reads.of(snapshot))
        self._snapshots[key] = snapshot
        return self._scanned(table, snapshot, where)

    def _scanned(self, table: exp.Table, snapshot: Snapshot, where: exp.Expr | None) -> exp.Expr:
        """Return the scan of a table in the current query, with the rows of its condition."""
        if where is not None:
            return self._pin(snapshot, where)
        pinned = self._scan(snapshot) if self._has_often(table) else self._pin(snapshot)
        self._pinned[parts_of(table), *self._asked(table)] = pinned
        return pinned.copy()

    def _changes(self, table: exp.Table) -> exp.Expr | None:
        """Return the rows of a change query or of a catalog list; None for another call."""
        listed = list_in(table)
        if listed is not None:
            if self.engine.name != "duckdb":
                raise UnsupportedFeature(
                    f"{listed}() is a function of DuckDB's: read {INFORMATION}, which {self.engine.name} has too, "
                    "or run this with engine: duckdb."
                )
            return list_rows(listed, lambda view: text_in(self._listing.view((INFORMATION, view)), "duckdb"))
        parsed = change_query(table)
        if parsed is None:
            return None
        name, spec = parsed
        if isinstance(spec, OwnQuery) and spec.function in LAKE_FUNCTIONS:
            lake = self.lakes.named(name[0], f"{spec.function}('{name[0]}')") if name else self.lakes.lake
            self.engine.reach(lake)
            return self.engine.inlined(own_rows(lake.format, lake.schema_ref(lake.default_schema), spec, self.engine))
        located = locate(self.lakes, tuple(name))
        if located.view is not None:
            raise InvalidConfig(f"{located.ref} is a view, which has no changes of its own; ask the tables under it.")
        self._names[str(located.ref)] = None
        lake = self.lakes.of(located.ref)
        if isinstance(spec, ChangeSpec) and spec.kind == "feed" and lake.format.transactions is not None:
            spec = own_query(spec)
        newest = None
        if isinstance(spec, OwnQuery) or spec.to_version is None:
            newest = self.snapshot(located.ref, located.newest)
            self.note(newest)
        self.engine.reach(lake)
        if isinstance(spec, OwnQuery):
            return self.engine.inlined(own_rows(lake.format, located.ref, spec, self.engine))
        return self.engine.inlined(Changes(lake.format, located.ref, spec, newest).rows(self.engine))

    def note(self, snapshot: Snapshot) -> None:
        """Record that a table is read at the version that is the newest for this run."""
        read = Read.of(snapshot)
        self.reads = together(self.reads, Reads.of(snapshot, read))
        self.pins.log.note(snapshot.ref.location, read)

    def _has_often(self, table: exp.Table) -> bool:
        return self._is_often or parts_of(table) in self._often

    def _scan(self, snapshot: Snapshot) -> exp.Expr:
        """Return a scan of a table that a query reads often.

        Each scan costs as much as a small query. So a small table is scanned once. A large table is
        opened once, because each of its scans may need another part of it.
        """
        if self._scans is None or snapshot.files().weight()[1] > _SMALL:
            mark = self.lakes.of(snapshot.ref).format.fingerprint(snapshot.ref, snapshot.version)
            return self._pin(replace(snapshot, long_log=snapshot.long_log or mark))
        # The blanks force quotes, which make the name recognizable in DuckDB's text.
        name = f"duckrun scan {len(self._scans) + 1}"
        self._scans[name] = text_in(self._pin(snapshot), self.engine.name)
        scan = exp.Subquery(this=exp.var(f"SELECT * FROM {quote_identifier(name)}"))
        return with_columns(scan, Columns(lambda: snapshot.schema))

    def _pin(self, snapshot: Snapshot, where: exp.Expr | None = None) -> exp.Expr:
        table = self.engine.pinned(snapshot, where)
        self._tables.append(table)
        return table

    def _expanded(self, table: exp.Table, name: str, query: exp.Expr) -> exp.Expr:
        """Return the query of a view, to replace the view's name."""
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
        """Refuse that a view reads itself, while its query is resolved."""
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
        """Return the version or the time (ISO 8601) of a table's time travel clause."""
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
        """Return the time of a time travel clause.

        Raises:
            InvalidConfig: for an expression that is no time.
        """
        literal = value.this if isinstance(value, exp.Cast) else value
        if isinstance(literal, exp.Literal) and literal.is_string:
            return str(literal.this)
        moment: Any = exp.Select(expressions=[exp.alias_(exp.cast(value.copy(), "timestamptz"), "moment")])
        no_time = (
            f"Table {dotted(table)}: {value.sql()} is no time. Read it at a timestamp, a date, or a text of ISO "
            "8601, e.g. "
            "'2026-01-31 12:00:00'."
        )
        try:
            result = self.engine.select(moment).collect()[0]["moment"]
        except DuckrunError as error:
            raise InvalidConfig(no_time) from error
        if not isinstance(result, datetime):
            raise InvalidConfig(no_time)
        return (result if result.tzinfo else result.replace(tzinfo=UTC)).isoformat()


def locate(lakes: Lakes, parts: tuple[str, ...]) -> Located:
    """Return the lake and the table of a name, or of a folder: ``delta.`/a/path```."""
    if len(parts) == 2 and parts[0].lower() == "delta" and "/" in parts[1]:
        return lakes.at(parts[1])
    return lakes.locate(parts)


def _refuse_travel(name: str, what: str, version: int | None, timestamp: str | None) -> None:
    if version is not None or timestamp is not None:
        raise InvalidConfig(f"{name} is {what}, which has no versions; read the tables under it at a version.")
