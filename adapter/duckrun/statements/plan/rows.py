"""Statements that change rows, as specs and sources that a session executes.

Only this package knows what clauses mean for the core, such as keys and replaced ranges.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlglot import exp

from duckrun.engines.frame import LazyRows, projected
from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.lake.lakes import OWN_CATALOGS
from duckrun.libraries import pa
from duckrun.sql.dialects import text_in
from duckrun.sql.kinds import Columns
from duckrun.sql.names import transpile
from duckrun.sql.quoting import fresh_name
from duckrun.sql.scopes import Source, other_source
from duckrun.sql.sides import SOURCE, TARGET, Item, Sides, all_of, column_of, has_subquery, named, names_side
from duckrun.sql.written import written
from duckrun.statements.parse.from_ddl import renamed
from duckrun.statements.parse.parts import with_ctes
from duckrun.statements.plan.assigned import Assigned
from duckrun.statements.plan.conditions import conjuncts
from duckrun.statements.plan.defaults import computed_of, default_of, defaults_of, with_defaults
from duckrun.statements.plan.spliced import UNTYPED, under, with_types
from duckrun.statements.reading import Reading
from duckrun.statements.values import CreateTableAs, Delete, Insert, Returned, Update
from duckrun.values.choices import SchemaMode
from duckrun.values.rows import AppTransaction, DeleteSpec, Returning, RowSpec, UpdateSpec, WriteSpec
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import SORT_BY


@dataclass(frozen=True)
class Work:
    """The write of one statement. ``source`` is a Frame, or the rows of a builder."""

    spec: RowSpec
    source: Any | None = None


@dataclass(frozen=True)
class Asked:
    """Options beside the statement's text."""

    schema_mode: SchemaMode = "fail"
    app: AppTransaction | None = None
    only_if_changed: bool = False
    """See ``MergeSpec``."""


def create_as(statement: CreateTableAs, ref: TableRef, reading: Reading, options: Asked) -> Work:
    """Return the creation or replacement of a table with the rows of a query."""
    frame = reading.frame(statement.query)
    mode = {"error": "error", "ignore": "ignore", "replace": "overwrite"}[statement.if_exists]
    properties = dict(statement.table_properties)
    if statement.sort_by:
        properties[SORT_BY] = json.dumps(list(statement.sort_by), ensure_ascii=False)
    spec = WriteSpec(
        mode,  # type: ignore[arg-type]
        redefine=mode == "overwrite",
        description=statement.description,
        app=options.app,
        dialect=reading.engine.name,
        **{**statement.layout, "table_properties": properties},
    )
    return Work(spec, frame)


def insert(statement: Insert, ref: TableRef, reading: Reading, options: Asked) -> Work:
    """Return an append or a replacement with a query's rows, cast to the table's columns."""
    snapshot = reading.snapshot(ref)
    fit = fitted(statement, snapshot, reading, options.schema_mode)
    frame = _bound(fit, reading)
    mode, predicate = "append", None
    if statement.where is not None:
        mode, predicate = "replace", _own_columns(statement.where, snapshot, reading)
    elif statement.overwrite:
        mode, predicate = "replace", _partition_predicate(statement, reading)
    spec = WriteSpec(
        mode,  # type: ignore[arg-type]
        predicate=predicate,
        schema_mode="append_new_columns" if fit.is_partial and options.schema_mode == "fail" else options.schema_mode,
        app=options.app,
        dialect=reading.engine.name,
        existing=True,
    )
    return Work(spec, frame)


@dataclass(frozen=True)
class Fit:
    """The rows of an INSERT, and the table's columns as expressions over them."""

    rows: exp.Query
    names: list[str]
    """Names of the columns of the rows, by position."""
    columns: list[exp.Expr]
    bound: LazyRows | None
    """The bound rows; None if their columns are known without."""
    is_partial: bool
    """True if the rows lack some columns of the table."""

    @property
    def query(self) -> exp.Query:
        return exp.select(*self.columns).from_(renamed(self.rows, self.names).subquery("given", copy=False))


def _bound(fit: Fit, reading: Reading) -> LazyRows:
    """Return the fitted rows, from the rows that are bound already if possible."""
    if fit.bound is None or any(column.find(exp.Query) for column in fit.columns):
        return reading.frame(fit.query)
    # Names in the query were looked up once. Doing it again takes as long as a small write.
    columns = [text_in(column, reading.engine.name) for column in fit.columns]
    return projected(fit.bound, fit.names, columns) or reading.frame(fit.query)


def fitted(
    statement: Insert,
    snapshot: Snapshot,
    reading: Reading,
    schema_mode: SchemaMode,
    uncast: Collection[str] = (),
    *,
    whole: bool = False,
) -> Fit:
    """Cast the rows of an INSERT to the table's column names and types.

    Args:
        statement: the INSERT.
        snapshot: the table.
        reading: the reads of the statement.
        schema_mode: treatment of columns that the table lacks.
        uncast: columns, in lower case, that keep the types of the rows.
        whole: True for rows with all columns of the table. Columns without a default are NULL.
    """
    types = reading.engine.column_types(snapshot)
    spelled = {name.lower(): name for name in types}
    fixed = {_spelled(name, spelled, snapshot): value for name, value in statement.partition if value is not None}
    for name, _ in statement.partition:
        if _spelled(name, spelled, snapshot) not in snapshot.partition_columns:
            raise InvalidConfig(f"Table {snapshot.ref}: {name} is no partition column; PARTITION names those only.")
    named, computed = statement.columns or types, computed_of(snapshot)
    if statement.defaults:  # one value suffices: the other columns get their defaults too
        named = tuple(name for name in types if name.lower() not in computed)[:1]
    listed = [_spelled(name, spelled, snapshot) for name in named]
    if len(set(listed)) < len(listed):
        raise InvalidConfig(f"INSERT into table {snapshot.ref} names a column twice.")
    wanted = [name for name in listed if name not in fixed]
    given_rows = statement.query
    defaults = defaults_of(snapshot)
    is_counted = False
    if not statement.by_name:
        given_rows, wanted, is_counted = with_types(
            given_rows, wanted, _cast_in_values(types, reading), reading.engine.name, defaults, computed
        )
        given_rows = _with_structs_by_name(given_rows, wanted, types, reading, snapshot)
    # Binding VALUES of constants takes as long as writing them, and adds nothing to what their
    # text tells.
    frame = None if is_counted and reading.engine.casts_structs_by_name else reading.frame(given_rows)
    columns_of_rows = wanted if frame is None else frame.columns
    new: list[str] = []
    if statement.by_name:
        filled_columns = [spelled.get(name.lower(), name) for name in columns_of_rows]
        new = [name for name in filled_columns if name not in types]
    else:
        filled_columns = wanted
        if len(columns_of_rows) > len(wanted) and named is types and schema_mode != "fail":
            new = columns_of_rows[len(wanted) :]
            filled_columns = [*wanted, *new]
        if len(columns_of_rows) != len(filled_columns):
            raise SchemaMismatch(
                f"INSERT into table {snapshot.ref} fills {len(filled_columns)} columns "
                f"({', '.join(filled_columns)}), and its query has "
                f"{len(columns_of_rows)}. Name the columns to fill, or use BY NAME."
            )
    if new and schema_mode == "fail":
        raise SchemaMismatch(
            f"Table {snapshot.ref} has no column {', '.join(new)}; it has {', '.join(types)}. "
            "schema_mode='append_new_columns' would add what is new."
        )
    columns, assigned = list[exp.Expr](), Assigned(snapshot, reading)
    for at, name in enumerate(filled_columns):
        value: exp.Expr = exp.column(name, quoted=True)
        kind = types.get(name)
        grows = schema_mode != "fail" and kind is not None and _holds_struct(kind)  # fields that are new
        if kind is not None and not grows and kind != UNTYPED and name.lower() not in uncast:
            cast = assigned.cast(value, name)
            value = _cast(value, kind, frame, at, reading, snapshot) if cast is value else cast
        columns.append(exp.alias_(value, name, quoted=True))
    left = [name for name in (types if whole else defaults) if name not in (*filled_columns, *fixed)]
    others = {name: default_of(name, defaults) for name in left}
    for name, constant in (fixed | others).items():
        value = exp.cast(constant.copy(), types[name], dialect=reading.engine.name)
        columns.append(exp.alias_(value, name, quoted=True))
    return Fit(given_rows, filled_columns, columns, frame, len(columns) - len(new) < len(types))


def _holds_struct(kind: str) -> bool:
    return "STRUCT" in kind.upper()


def _cast(
    value: exp.Expr, kind: str, frame: LazyRows | None, at: int, reading: Reading, snapshot: Snapshot
) -> exp.Expr:
    if frame is None:
        return exp.cast(value, kind, dialect=reading.engine.name)
    try:
        return reading.engine.cast(value, kind, frame, at)
    except SchemaMismatch as error:
        raise SchemaMismatch(f"INSERT into table {snapshot.ref}: {error}") from error


def _cast_in_values(types: Mapping[str, str], reading: Reading) -> dict[str, str]:
    """Return the cast types of multi-row VALUES.

    UNTYPED where the engine's cast would mix up struct fields.
    """
    by_name = reading.engine.casts_structs_by_name
    return {name: kind if by_name or not _holds_struct(kind) else UNTYPED for name, kind in types.items()}


def _with_structs_by_name(
    query: exp.Query, columns: Sequence[str], types: Mapping[str, str], reading: Reading, snapshot: Snapshot
) -> exp.Query:
    """Convert the structs in VALUES to the table's form by field names.

    Other queries stay unchanged.
    """
    values = query.find(exp.Values)
    nested = [at for at, name in enumerate(columns) if _holds_struct(types[name])]
    if reading.engine.casts_structs_by_name or values is None or not nested or written(values) is None:
        return query
    rows = [row.expressions for row in values.expressions if isinstance(row, exp.Tuple)]
    if len(rows) < 2 or len(rows) < len(values.expressions) or any(len(row) != len(columns) for row in rows):
        return query  # a single row has only one form
    cells = [(row, at) for row in rows for at in nested]
    frame = reading.frame(exp.select(*[exp.alias_(row[at].copy(), columns[at], quoted=True) for row, at in cells]))
    for number, (row, at) in enumerate(cells):
        row[at] = _cast(row[at].copy(), types[columns[at]], frame, number, reading, snapshot)
    # Spark does not evaluate lambdas in VALUES, so the rows become a UNION.
    selects = [
        exp.select(*[exp.alias_(value.copy(), name, quoted=True) for value, name in zip(row, columns, strict=True)])
        for row in rows
    ]
    return exp.union(*selects, distinct=False)


def _spelled(name: str, spelled: dict[str, str], snapshot: Snapshot) -> str:
    if name.lower() not in spelled:
        raise InvalidConfig(f"Table {snapshot.ref} has no column {name}; it has {', '.join(spelled.values())}.")
    return spelled[name.lower()]


def _partition_predicate(statement: Insert, reading: Reading) -> str | None:
    """Return the predicate of the rows that INSERT OVERWRITE replaces.

    None: the partitions of the new rows.
    """
    if any(value is None for _, value in statement.partition):
        return None
    equal = [
        exp.Is(this=exp.column(name, quoted=True), expression=exp.null())
        if isinstance(value, exp.Null)
        else exp.EQ(this=exp.column(name, quoted=True), expression=value)
        for name, value in statement.partition
    ]
    return text_in(all_of(equal), reading.engine.name)


def _own_columns(where: exp.Expr, snapshot: Snapshot, reading: Reading) -> str:
    """Return a predicate over a table's own columns, unqualified."""
    if has_subquery(where):
        raise UnsupportedFeature(f"Table {snapshot.ref}: REPLACE WHERE takes no subquery; give it values.")
    tree = sides_of(snapshot, snapshot.ref.name, reading).rewritten(where)
    for column in tree.find_all(exp.Column):
        column.set("table", None)
    return text_in(tree, reading.engine.name)


# -- UPDATE and DELETE


def update(statement: Update, ref: TableRef, reading: Reading, options: Asked) -> Work:
    """Return new values for some rows.

    With FROM, from the one source row that meets the condition.
    """
    snapshot = reading.snapshot(ref)
    change = _Change(statement, with_defaults(statement.assigned, snapshot), snapshot, reading)
    texts = dict(zip(change.columns, change.values, strict=True))
    spec = UpdateSpec(texts, change.predicate, app=options.app, dialect=reading.engine.name)
    return Work(spec, change.source)


def delete(statement: Delete, ref: TableRef, reading: Reading, options: Asked) -> Work:
    """Return a deletion of rows.

    With USING, the rows that match any source row.
    """
    change = _Change(statement, [], reading.snapshot(ref), reading)
    spec = DeleteSpec(change.predicate, app=options.app, dialect=reading.engine.name)
    return Work(spec, change.source)


class _Change:
    """Source, condition and values of an UPDATE or DELETE, over the aliases target and source."""

    source: LazyRows | None = None
    predicate: str | None = None

    def __init__(
        self,
        statement: Update | Delete,
        assigned: Sequence[tuple[str, exp.Expr]],
        snapshot: Snapshot,
        reading: Reading,
    ) -> None:
        self.snapshot, self.reading = snapshot, reading
        self.columns = [self._sides(statement).assigned(name) for name, _ in assigned]
        values = [under(statement.with_, value) for _, value in assigned]
        self._assigned = Assigned(snapshot, reading)
        if not statement.sources:
            statement = replace(statement, where=under(statement.with_, statement.where))
        subqueries = has_subquery(statement.where) or any(has_subquery(value) for value in values)
        if statement.sources:
            self._from_sources(statement, values)
        elif subqueries and not reading.engine.subqueries_in_changes:
            self._by_whole_rows(statement, values)
        else:
            sides = self._sides(statement)
            self.values = self._texts(values, sides)
            self.predicate = None if statement.where is None else _text(statement.where, sides, reading)

    def _sides(self, statement: Update | Delete, items: Sequence[Item] = ()) -> Sides:
        return sides_of(self.snapshot, statement.alias, self.reading, items)

    def _texts(self, values: Sequence[exp.Expr], sides: Sides) -> list[str]:
        """Return the values, cast to their columns, as the engine's SQL."""
        engine = self.reading.engine.name
        return [
            self.reading.text(self._assigned.cast(sides.rewritten(value, dialect=engine), column))
            for column, value in zip(self.columns, values, strict=True)
        ]

    def _from_sources(self, statement: Update | Delete, values: Sequence[exp.Expr]) -> None:
        reading = self.reading
        items = source_items(statement.sources, statement.with_, reading)
        sides = self._sides(statement, items)
        inside, between = [], []
        for condition in conjuncts(statement.where):
            rewritten = sides.rewritten(under(statement.with_, condition))
            if names_side(rewritten, TARGET) or (has_subquery(condition) and not _closed(condition, self.snapshot)):
                between.append(rewritten)
            else:
                inside.append(condition)  # over the source alone: it reduces the rows before the join
        self.values = self._texts(values, sides)
        if not reading.engine.subqueries_in_changes and (
            any(has_subquery(condition) for condition in between) or any(has_subquery(value) for value in values)
        ):
            raise UnsupportedFeature(
                f"Table {self.snapshot.ref}: a subquery over both sides is not supported on {reading.engine.name}; "
                "put it "
                "into the FROM or USING, or run this with engine: duckdb."
            )
        columns = [
            exp.alias_(item.column(exp.to_identifier(name, quoted=True)), name_in_source, quoted=True)
            for item in items
            for name, name_in_source in item.columns.items()
        ]
        query: Any = exp.select(*columns).from_(statement.sources[0].copy())
        if inside:
            query = query.where(*[condition.copy() for condition in inside])
        self.source = reading.frame(with_ctes(query, statement.with_))
        self.predicate = reading.text(all_of(between))

    def _by_whole_rows(self, statement: Update | Delete, values: Sequence[exp.Expr]) -> None:
        """Find the rows by a query, and match them by all columns.

        This serves an engine without subqueries in changes.
        """
        reading, snapshot, sides = self.reading, self.snapshot, self._sides(statement)
        table = reading.engine.pinned(snapshot)
        table.set("alias", exp.TableAlias(this=exp.to_identifier(TARGET)))
        names = snapshot.schema.names
        new = [fresh_name(f"__duckrun_new_{number}", names) for number in range(len(values))]
        columns = [named(column_of(TARGET, name), name) for name in names]
        columns += [
            named(self._assigned.cast(reading.pinned(sides.rewritten(value)), column), name)
            for name, column, value in zip(new, self.columns, values, strict=True)
        ]
        query = exp.select(*columns).distinct().from_(table)
        if statement.where is not None:
            query = query.where(reading.pinned(sides.rewritten(statement.where)))
        reading.note(snapshot)
        self.source = reading.engine.select(query, f"{'update' if values else 'delete'} on table {snapshot.ref}")
        same = [exp.NullSafeEQ(this=column_of(TARGET, name), expression=column_of(SOURCE, name)) for name in names]
        self.values = [column_of(SOURCE, name).sql(dialect=reading.engine.name) for name in new]
        self.predicate = all_of(same).sql(dialect=reading.engine.name)


def _text(tree: exp.Expr, sides: Sides, reading: Reading) -> str:
    """Return an expression over ``target`` and ``source`` as the engine's SQL."""
    return reading.text(sides.rewritten(tree, dialect=reading.engine.name))


def sides_of(snapshot: Snapshot, alias: str, reading: Reading, items: Sequence[Item] = ()) -> Sides:
    """Return the sides of a change.

    The table under its alias or name, and the items of its source.
    """
    ref, names = snapshot.ref, snapshot.schema.names
    catalog = ref.catalog or OWN_CATALOGS[0]
    target = Source(
        exp.Placeholder(),
        alias,
        ref.schema if alias.lower() == ref.name.lower() else "",
        ref.catalog or "",
        [name.lower() for name in reading.lakes.catalogs(catalog)],
        lambda: names,
        loses_name=True,
    )
    item = Item(target, {name: name for name in names}, TARGET, Columns(lambda: snapshot.schema))
    return Sides(str(ref), reading.names.sight, item, items)


def source_items(sources: Sequence[exp.Expr], with_: exp.With | None, reading: Reading) -> list[Item]:
    """Return the tables and subqueries of a FROM clause, with unique names for their columns."""
    items: list[Item] = []
    taken: set[str] = set()
    common = {cte.alias.lower() for cte in with_.expressions} if with_ is not None else set()
    for tree, hidden in _flat(sources):
        name = tree.alias_or_name
        if not name:
            raise InvalidConfig("A subquery in FROM, USING or MERGE needs a name: (…) AS name.")
        source = _source(tree, common, reading)
        column_names: list[str] = []
        frame = None
        if not hidden:
            all_of_it = Item(source, {}).column(exp.Star())
            frame = reading.frame(with_ctes(exp.select(all_of_it).from_(sources[0].copy()), with_))
            column_names = frame.columns
        columns: dict[str, str] = {}
        for name in column_names:
            unique_name, number = name, 2
            while unique_name.lower() in taken:
                unique_name, number = f"{name}_{number}", number + 1
            taken.add(unique_name.lower())
            columns[name] = unique_name
        types = None if frame is None else Columns(partial(_types_of, frame, columns))
        items.append(Item(replace(source, columns=partial(list, columns)), columns, types=types))
    return items


def _types_of(frame: LazyRows, names: Mapping[str, str]) -> pa.Schema:
    """Return the types of a source's columns, under the names of its side.

    None of them, if one has no Arrow type.
    """
    with suppress(UnsupportedFeature):
        return pa.schema([field.with_name(names[field.name]) for field in frame.schema if field.name in names])
    return pa.schema([])


def _source(tree: exp.Expr, common: Collection[str], reading: Reading) -> Source:
    """Return an item of a FROM clause; ``common`` holds the names of common table expressions."""
    if not isinstance(tree, exp.Table):
        return other_source(tree)
    bare = not tree.db
    # Temporary names and session values belong to no schema of a lake.
    is_other = bare and (tree.name.lower() in common or tree.name in reading.engine.temp_names)
    return other_source(tree) if is_other else reading.names.source(tree)


def _flat(sources: Sequence[exp.Expr]) -> list[tuple[exp.Expr, bool]]:
    """Return each item of a FROM clause, and True if its columns are hidden.

    The right side of a SEMI or ANTI join is hidden.
    """
    items: list[tuple[exp.Expr, bool]] = []
    for source in sources:
        items.append((source, False))
        for join in source.args.get("joins") or ():
            items.append((join.this, str(join.kind).upper() in ("SEMI", "ANTI")))
    return items


def _closed(condition: exp.Expr, snapshot: Snapshot) -> bool:
    """Return True if no bare name in a condition's subqueries may be a column of the table."""
    names = {name.lower() for name in snapshot.schema.names}
    return not any(not column.table and column.name.lower() in names for column in condition.find_all(exp.Column))


# -- RETURNING


def returning(returned: Returned, ref: TableRef, reading: Reading, options: Asked) -> Returning:
    """Return the RETURNING list in the engine's SQL.

    Raises:
        UnsupportedFeature: with ``app``: if the write was already made, it has no rows to return.
    """
    if options.app is not None:
        raise UnsupportedFeature(
            f"RETURNING of table {ref}: what app has written once has no rows to give back a second time; read them "
            "by a SELECT."
        )
    query = transpile(f"SELECT {returned.columns}", returned.dialect, reading.engine.name)
    return Returning(query.removeprefix("SELECT "), returned.alias)
