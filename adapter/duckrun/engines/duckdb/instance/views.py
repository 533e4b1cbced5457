"""DuckDB views over the lake's tables, created just before the first statement that names them."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial

import duckdb

from duckrun.engines.duckdb.instance.footers import columns_in
from duckrun.engines.duckdb.instance.sql import attached
from duckrun.errors import DuckrunError, InvalidConfig, TableNotFound, UnsupportedFeature
from duckrun.lake.lake import INFORMATION, Lake, TableRef, ViewDefinition
from duckrun.libraries import exp, sqlglot
from duckrun.run.pins import Pins
from duckrun.sql.on_demand import dialects, scopes, sql_names
from duckrun.sql.plain_names import dotted_names
from duckrun.sql.quoting import quote_identifier
from duckrun.values.snapshot import Snapshot

log = logging.getLogger(__name__)

_Key = tuple[str, str]


@dataclass
class _Made:
    """An existing view: its bound columns, and its table or (persisted view) the names it reads."""

    columns: list[tuple[str, str]]
    reads: frozenset[_Key] = frozenset()
    shown: Snapshot | None = None


def _tables_in(sql: str, database: str) -> list[exp.Table] | None:
    """Tables of a database in a statement; None if sqlglot cannot parse the statement.

    ``dotted_names`` cannot tell tables from columns and aliases.
    """
    try:
        trees = dialects.trees_in(sql, "duckdb")
    except sqlglot.errors.SqlglotError:
        return None
    return [
        table
        for tree in trees
        for common in [scopes.common_tables(tree)]
        for table in tree.find_all(exp.Table)
        if id(table) not in common and table.catalog.lower() in ("", database.lower())
    ]


def _named(table: exp.Table) -> _Key:
    return table.db or "main", table.name


class ViewCatalog:
    """The lake's tables as views ``database.schema.name`` of one DuckDB instance.

    It serves SQL that this library does not rewrite: dbt's, and a user's on the native connection.
    It is safe across threads.

    The names of a schema are listed once, at its first use. A view reads its table at the version
    that ``pins`` hold. To create a view opens the table's log, so only tables that a statement
    names get one. Temporary tables and other relations of DuckDB are left alone. If ``bare`` is
    False, only names that begin with ``database`` belong to this lake.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        lake: Lake,
        pins: Pins,
        database: str = "memory",
        *,
        bare: bool = True,
    ) -> None:
        self.lake = lake
        self.pins = pins
        self.database = database
        self.bare = bare
        # A persisted view may read tables of another lake. An owner of several catalogs replaces
        # this hook.
        self.ensure_all: Callable[[str], object] = self.ensure_for
        # Two cursors that replace one view conflict, so this cursor creates all views, under the
        # lock.
        self._cursor = connection.cursor()
        self._lock = threading.RLock()
        self._schemas: dict[str, str] | None = None
        self._names: dict[str, dict[str, tuple[str, str]]] = {}
        self._twins: dict[_Key, dict[str, str]] = {}
        """Names that differ in letter case only: lower-case key -> name -> kind. Schemas have ("",
        name).
        """
        self._chosen: dict[_Key, str] = {}
        """Lower-case key -> the twin that has the view. DuckDB ignores letter case: twins share one
        view.
        """
        self._made: dict[_Key, _Made] = {}
        self._making: set[_Key] = set()

    # -- names

    def names(self, schema: str, *, fresh: bool = False) -> dict[str, str]:
        """Names of a schema with their kind, ``table`` or ``view``.

        They are listed once, or again with ``fresh``.
        """
        with self._lock:
            self._known_schemas()
            if ("", schema.lower()) in self._twins:
                return dict(self._list(schema))
            if fresh:
                self._names.pop(schema.lower(), None)
            names = dict(self._listed(schema.lower(), schema).values())
            for name in list(names):
                names |= self._twins.get((schema.lower(), name.lower()), {})
            return names

    def schema(self, name: str) -> str:
        """A schema's name as the lake spells it, or unchanged for a new schema.

        Raises:
            InvalidConfig: The name matches several schemas in letter case only and is none of them,
                or another of them has the view.
        """
        with self._lock:
            known = self._known_schemas()
            self._choose(("", name.lower()), name)
            return known.get(name.lower(), name)

    def name(self, schema: str, name: str) -> str:
        """A table's or view's name as the lake spells it, or unchanged for a new one.

        Raises:
            InvalidConfig: As for schema().
        """
        with self._lock:
            listed = self._listed(schema.lower(), schema)
            self._choose((schema.lower(), name.lower()), name)
            return listed.get(name.lower(), (name, ""))[0]

    def is_twin(self, schema: str, name: str) -> bool:
        """True if another schema or table differs from this one in letter case only."""
        with self._lock:
            return bool(self._twin_keys(schema, name))

    def refuse_twin(self, ref: TableRef) -> None:
        """Raise InvalidConfig if another schema or table differs from it in case only."""
        with self._lock:
            for key in self._twin_keys(ref.schema, ref.name):
                raise InvalidConfig(
                    f"Table {ref} is not written: {self._of_twins(key)}, and dbt takes them for one. Rename all but "
                    "one of them."
                )

    def _twin_keys(self, schema: str, name: str) -> list[_Key]:
        self._listed(schema.lower(), schema)
        return [key for key in (("", schema.lower()), (schema.lower(), name.lower())) if key in self._twins]

    def _is_other_twin(self, ref: TableRef) -> bool:
        """True if the table's view belongs to a twin of the table."""
        keys = (("", ref.schema.lower()), ref.schema), ((ref.schema.lower(), ref.name.lower()), ref.name)
        return any(self._chosen.get(key, name) != name for key, name in keys)

    def made(self, schema: str) -> set[str]:
        """Names of a schema's views that this catalog has created."""
        with self._lock:
            return {self._spelled(key)[1] for key in self._made if key[0] == schema.lower()}

    def columns(self, ref: TableRef) -> list[tuple[str, str]]:
        """Columns of an existing view, with DuckDB's types."""
        with self._lock:
            return list(self._made[ref.schema.lower(), ref.name.lower()].columns)

    def _listed(self, folded: str, schema: str) -> dict[str, tuple[str, str]]:
        if folded not in self._names:
            names = self._list(self._known_schemas().get(folded, schema))
            self._names[folded] = {name.lower(): (name, kind) for name, kind in names}
            self._note_twins(folded, names)
        return self._names[folded]

    def _list(self, schema: str) -> list[tuple[str, str]]:
        """Names and kinds of a schema, by the schema's exact name."""
        return [(n, "table") for n in self.lake.tables(schema)] + [(n, "view") for n in self.lake.views(schema)]

    def _known_schemas(self) -> dict[str, str]:
        if self._schemas is None:
            schemas = self.lake.schemas()
            self._schemas = {name.lower(): name for name in schemas}
            self._note_twins("", [(name, "schema") for name in schemas])
        return self._schemas

    def _note_twins(self, schema: str, names: list[tuple[str, str]]) -> None:
        for name, count in Counter(name.lower() for name, _ in names).items():
            if count > 1:
                self._twins[schema, name] = {each: kind for each, kind in names if each.lower() == name}

    def _choose(self, key: _Key, name: str) -> None:
        """Give the view to the twin of this exact spelling.

        Raises InvalidConfig for an unknown spelling, or if another twin has the view.
        """
        twins = self._twins.get(key)
        if twins is None:
            return
        if name not in twins:
            raise InvalidConfig(f"{self._of_twins(key)}, and {name} is none of these. Write the exact name.")
        chosen = self._chosen.get(key)
        if chosen is None:
            self._chosen[key] = name
            if key[0]:
                self._listed(*key)[key[1]] = (name, twins[name])
            else:
                self._known_schemas()[key[1]] = name
                self._names.pop(key[1], None)  # they were listed for the schema's twin
        elif chosen != name:
            raise InvalidConfig(
                f"{self._of_twins(key)}. This run reads {chosen}, and DuckDB does not tell them apart: read {name} "
                "in a run of its own (dbt's --select) or on engine spark, or rename one of them."
            )

    def _of_twins(self, key: _Key) -> str:
        schema = f"{self._known_schemas().get(key[0], key[0])}." if key[0] else ""
        names = " and ".join(f"{schema}{name}" for name in sorted(self._twins[key]))
        return f"Lake {self.lake.root} has {names}, which differ in letter case only"

    def _key(self, schema: str, name: str, tables: Callable[[], list[exp.Table] | None]) -> _Key | None:
        """Key of a name in a statement; None if the lake has no such name.

        Raises as schema() does.

        Args:
            schema: The name's schema.
            name: The name.
            tables: Returns the tables of the statement. Only names with twins ask for them.
        """

        def is_column() -> bool:
            named = tables()
            return named is not None and (schema, name) not in map(_named, named)

        key = (schema.lower(), name.lower())
        known = self._known_schemas()
        if key[0] not in known:
            return None
        if ("", key[0]) in self._twins:
            if is_column():
                return None
            self._choose(("", key[0]), schema)
        if key[1] not in self._listed(key[0], known[key[0]]):
            return None
        if key in self._twins:
            if is_column():
                return None
            self._choose(key, name)
        return key

    def _spelled(self, key: _Key) -> tuple[str, str]:
        """Schema and name as the lake spells them. SQL ignores letter case, folders do not."""
        schema = self._known_schemas().get(key[0], key[0])
        return schema, self._names.get(key[0], {}).get(key[1], (key[1], ""))[0]

    def _keys(self, sql: str) -> Iterator[tuple[_Key, bool]]:
        """Keys of the lake's names in a statement, each with True if the schema qualifies it."""
        seen: set[_Key] = set()
        tables = cache(partial(_tables_in, sql, self.database))
        for parts in dotted_names(sql):
            if len(parts) > 2 and parts[0].lower() == self.database.lower():
                self._find(*parts[1:3])
                parts = parts[1:]
            elif not self.bare:
                continue
            candidates = [("main", parts[0], False)]
            if len(parts) > 1:
                candidates.insert(0, (parts[0], parts[1], True))
            for schema, name, qualified in candidates:
                key = self._key(schema, name, tables)
                if key is not None and key not in seen:
                    seen.add(key)
                    yield key, qualified

    def _find(self, schema: str, name: str) -> None:
        """Look up a name that another process may have created after the schema was listed."""
        if name.lower() not in self._names.get(schema.lower(), {name.lower(): ()}) and self.lake.is_name(schema, name):
            ref = self.lake.resolve(self.schema(schema), name)
            if self.lake.definition(ref) is not None or self.lake.exists(ref):
                self._note(ref)

    def tables_in(self, sql: str) -> list[TableRef]:
        """Tables (not views) that a statement reads, also through persisted views."""
        with self._lock:
            keys = self._through(key for key, _ in self._keys(sql))
            tables = [key for key in keys if self._names[key[0]].get(key[1], ("", ""))[1] == "table"]
            return [self.lake.resolve(*self._spelled(key)) for key in tables]

    def missing(self, sql: str, others: Container[str]) -> list[str]:
        """Return a sentence for each table that a query reads, and the lake lacks.

        Args:
            sql: The query.
            others: Tables and views of DuckDB itself, in lower case. A name without a schema may
                mean one of them.
        """
        tables = [
            _named(table)
            for table in _tables_in(sql, self.database) or ()
            if table.find_ancestor(exp.From, exp.Join)
            and (table.db or (self.bare and table.name.lower() not in others))
        ]
        with self._lock:
            refs = {
                self.lake.resolve(self.schema(schema), name)
                for schema, name in tables
                if self.lake.is_name(schema, name)
            }
            lacking = [ref for ref in refs if self.lake.definition(ref) is None and not self.lake.exists(ref)]
        return sorted(f"There is no table {ref} in lake {self.lake.root}.{self.lake.nearest(ref)}" for ref in lacking)

    def _through(self, keys: Iterable[_Key]) -> Iterator[_Key]:
        """Yield the names, and those that existing persisted views among them read."""
        waiting, seen = list(keys), set[_Key]()
        while waiting:
            key = waiting.pop()
            if key not in seen:
                seen.add(key)
                yield key
                waiting.extend(self._made[key].reads if key in self._made else ())

    # -- views

    def ensure_for(self, sql: str) -> list[Snapshot]:
        """Create the missing views that a statement needs, and return the tables that they show.

        A bare name may be a column, so an error about it is only logged.

        Raises:
            DuckrunError: A table or view that the statement names with its schema cannot be read.
            VersionNotReadable: Another table has replaced the one that an existing view shows.
        """
        with self._lock:
            keys = list(self._keys(sql))
            before = set(self._made)
            for key, qualified in keys:
                try:
                    self._ensure(key)
                except DuckrunError as error:
                    if qualified:
                        raise
                    log.debug("no view for %s.%s: %s", *key, error)
            for key in self._through(key for key, qualified in keys if qualified and key in before):
                self._check(self._made[key].shown if key in self._made else None)
            views = [self._made[key] for key in self._through(key for key, _ in keys) if key in self._made]
            return [each.shown for each in views if each.shown is not None]

    def _check(self, shown: Snapshot | None) -> None:
        if shown is not None and shown.pin is not None:
            with suppress(TableNotFound):  # the statement may be a DROP; DuckDB reports it if it is a read
                shown.pin.check(self.pins.advice)

    def ensure(self, ref: TableRef) -> None:
        """Create the view of one table or persisted view."""
        with self._lock:
            self.name(self.schema(ref.schema), ref.name)
            self._note(ref)
            self._ensure((ref.schema.lower(), ref.name.lower()))

    def _note(self, ref: TableRef, kind: str | None = None) -> _Key:
        """Remember a name that this run wrote."""
        key = (ref.schema.lower(), ref.name.lower())
        self._known_schemas().setdefault(key[0], ref.schema)
        names = self._listed(key[0], ref.schema)
        if kind is None:
            kind = "view" if isinstance(self.lake.definition(ref), ViewDefinition) else "table"
        names[key[1]] = (ref.name, kind)
        return key

    def _ensure(self, key: _Key) -> None:
        if key in self._made or key in self._making:
            return
        self._making.add(key)
        try:
            ref = self.lake.resolve(*self._spelled(key))
            definition = self.lake.definition(ref)
            if isinstance(definition, ViewDefinition):
                self._make_view(key, ref, definition)
            else:
                self._make(key, ref)
        finally:
            self._making.discard(key)

    def _make(self, key: _Key, ref: TableRef) -> None:
        snapshot = self.pins.snapshot(ref)
        source = snapshot.scan_sql(attach=partial(attached, self._cursor), footers=partial(columns_in, self._cursor))
        self._create(key, ref, f"SELECT * FROM {source}", shown=snapshot)

    def _make_view(self, key: _Key, ref: TableRef, definition: ViewDefinition) -> None:
        sql = self._in_this_database(definition, ref.schema)
        if INFORMATION in sql.lower() and any(INFORMATION in map(str.lower, chain[:-1]) for chain in dotted_names(sql)):
            raise UnsupportedFeature(
                f"View {ref} lists what there is ({INFORMATION}), which DuckDB's views of a lake cannot; read "
                f"{INFORMATION} itself."
            )
        self.ensure_all(sql)
        try:
            self._create(key, ref, sql, reads=frozenset(k for k, _ in self._keys(sql)))
        except duckdb.Error as error:
            raise InvalidConfig(f"The persisted view {ref} cannot be read any more: {error}") from error

    def _in_this_database(self, definition: ViewDefinition, schema: str) -> str:
        """SQL of a persisted view with its names qualified for this database."""
        # A bare name in a catalog's view means the view's schema; DuckDB would look it up in main.
        bare_names = self.lake.has_catalog and any(len(chain) == 1 for chain in dotted_names(definition.sql))
        if (
            definition.dialect == "duckdb"
            and definition.catalog in (None, self.database)
            and self.bare
            and not bare_names
        ):
            return definition.sql

        def here(table: exp.Table) -> exp.Expression | None:
            if table.catalog != (definition.catalog or "") and (table.catalog or self.bare):
                return None
            return exp.table_(table.name, db=table.db or schema, catalog=self.database, quoted=True)

        query = sql_names.parse_query(definition.sql, definition.dialect)
        names = scopes.Names.of_lake(definition.catalog, self.database)
        return dialects.text_in(sql_names.replace_tables(query, here, names), "duckdb")

    def _create(
        self, key: _Key, ref: TableRef, sql: str, *, reads: frozenset[_Key] = frozenset(), shown: Snapshot | None = None
    ) -> None:
        self._cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(self.database, ref.schema)}")
        name = quote_identifier(self.database, ref.schema, ref.name)
        self._cursor.execute(f"CREATE OR REPLACE VIEW {name} AS (\n{sql}\n)")
        self._show(key, name, reads, shown)

    def _show(self, key: _Key, name: str, reads: frozenset[_Key], shown: Snapshot | None) -> None:
        rows = self._cursor.execute(f"DESCRIBE {name}").fetchall()
        self._made[key] = _Made([(row[0], row[1]) for row in rows], reads, shown)

    def moved(self, ref: TableRef) -> None:
        """Show the new version of a table at once, after a commit by this run."""
        with self._lock:
            if self._is_other_twin(ref):
                return
            self.name(self.schema(ref.schema), ref.name)
            key = self._note(ref, "table")
            before = self._made.pop(key, None)
            self._make(key, ref)
            if before is not None and before.columns != self._made[key].columns:
                self._forget_readers(key)

    def changed(self, ref: TableRef) -> None:
        """Invalidate the view of a changed name; its next use creates it again.

        The old view stays until then: a concurrent statement may have bound to it.
        """
        with self._lock:
            if self._is_other_twin(ref):
                return
            if self.lake.definition(ref) is None and not self.lake.exists(ref):
                self.dropped(ref)
            else:
                self._outdate(self._note(ref))

    def _outdate(self, key: _Key) -> None:
        self._made.pop(key, None)
        for reader in self._readers(key):
            self._outdate(reader)

    def _readers(self, key: _Key) -> list[_Key]:
        return [other for other, view in self._made.items() if key in view.reads]

    def dropped(self, ref: TableRef) -> None:
        """Drop the view of a table or persisted view that is dropped or replaced.

        Raises:
            duckdb.Error: Other entries of the instance depend on the view.
        """
        with self._lock:
            if self._is_other_twin(ref):
                return
            key = (ref.schema.lower(), ref.name.lower())
            self._forget_readers(key)
            self._drop(key)
            self._names.get(key[0], {}).pop(key[1], None)

    def withdraw(self, ref: TableRef) -> None:
        """Drop the view of one name; its next use creates it again.

        Raises:
            duckdb.Error: Other views depend on it (enable_view_dependencies).
        """
        with self._lock:
            if not self._is_other_twin(ref):
                self._drop((ref.schema.lower(), ref.name.lower()))

    def _forget_readers(self, key: _Key) -> None:
        """Drop the views over a changed view; their next use creates them again."""
        # A DuckDB view keeps the columns that it was bound with. Readers are dropped from the
        # outermost inwards, because DuckDB may track dependencies (enable_view_dependencies).
        for reader in self._readers(key):
            if reader in self._made:
                self._forget_readers(reader)
                self._drop(reader)

    def _drop(self, key: _Key) -> None:
        if key in self._made:
            self._drop_view(key)
            self._made.pop(key, None)

    def _drop_view(self, key: _Key) -> None:
        self._cursor.execute(f"DROP VIEW IF EXISTS {quote_identifier(self.database, *self._spelled(key))}")
