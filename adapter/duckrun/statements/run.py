"""Execution of statements on a session.

Each reads its tables at one version, and commits at most once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa
from sqlglot import exp

from duckrun.engines.engine import Engine
from duckrun.engines.frame import LazyRows
from duckrun.errors import InvalidConfig, TableNotFound, UnsupportedFeature, note_commit, outcome_of
from duckrun.lake.lake import Lake, ViewDefinition
from duckrun.lake.lakes import OWN_CATALOGS, Lakes, Located
from duckrun.run.pins import Pins, Reads as VersionsRead
from duckrun.sql.collector import trees_collected
from duckrun.sql.dialects import text_in
from duckrun.sql.file_paths import with_absolute_paths
from duckrun.sql.names import replace_tables
from duckrun.statements import describe, macros, schemas, upkeep
from duckrun.statements.change_queries import change_query
from duckrun.statements.checks import Checks
from duckrun.statements.engine_lists import refuse_list
from duckrun.statements.information import column_types, is_information
from duckrun.statements.parse.parameters import Params
from duckrun.statements.parse.parsing import LONG, numbered, parse
from duckrun.statements.parse.parts import unsupported
from duckrun.statements.plan import merge, rows, upsert
from duckrun.statements.plan.rows import Asked, Work
from duckrun.statements.reading import Reading, locate
from duckrun.statements.temporary import Changes, change as change_temporary, is_change, is_temporary
from duckrun.statements.values import (
    CommentOnView,
    CreateMacro,
    CreateSchema,
    CreateTable,
    CreateTableAs,
    CreateTemporary,
    CreateView,
    Delete,
    Describe,
    Done,
    Drop,
    DropMacro,
    DropSchema,
    Explain,
    Insert,
    Merge,
    OfLake,
    OfNames,
    OnTable,
    Parts,
    Query,
    Reads,
    Rename,
    Show,
    Statement,
    TableStatement,
    Transact,
    Update,
    Use,
    dotted,
    parts_of,
)
from duckrun.values.choices import SchemaMode
from duckrun.values.columns import told_apart
from duckrun.values.rows import AppTransaction, Commit, Returning
from duckrun.values.snapshot import TableRef
from duckrun.values.tables import AddColumn, AlterSpec, Change, CreateSpec, DropColumn, MaintenanceResult
from duckrun.values.upkeep import UpkeepSpec

Result = LazyRows | Commit | MaintenanceResult | Done


class StatementTransactions(Protocol):
    """The open transaction of a session, as its statements see it."""

    def refuse_failed(self) -> None: ...
    def enter_statement(self, *, writes: bool) -> None: ...


class StatementSession(Protocol):
    """The interface of a session that executes statements."""

    temp_views: dict[str, exp.Query]

    @property
    def lakes(self) -> Lakes: ...
    @property
    def pins(self) -> Pins: ...
    @property
    def engine(self) -> Engine: ...
    def look_in(self, lakes: Lakes) -> None: ...
    def own(self, rows: LazyRows) -> LazyRows: ...
    @property
    def in_transaction(self) -> bool: ...
    def begin(self) -> Any: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    @property
    def transactions(self) -> StatementTransactions: ...
    def maintain(
        self, spec: UpkeepSpec, table: TableRef | None = None, *, lake: Lake | None = None
    ) -> MaintenanceResult: ...
    def attempts(self, ref: TableRef) -> Iterator[AbstractContextManager[None]]: ...
    def execute(
        self,
        name: TableRef,
        spec: Any,
        source: Any | None = None,
        *,
        reads: VersionsRead = ...,
        returning: Returning | None = ...,
    ) -> Any: ...


def run(
    session: StatementSession,
    text: str,
    *,
    dialect: str,
    params: Params | None = None,
    schema_mode: SchemaMode = "fail",
    app: AppTransaction | None = None,
    is_source: bool = False,
) -> Result:
    """Execute the statements of a text, and return the result of the last one.

    All statements are parsed and checked before the first one runs.

    Args:
        session: the session.
        text: one or more statements.
        dialect: the dialect of the text.
        params: values of the parameters in the text.
        schema_mode: treatment of columns that the target lacks.
        app: an application's version; each statement that writes takes the next one.
        is_source: the text has to be one query, whose rows are the source of a write.

    Raises:
        InvalidConfig: a statement cannot be run, or the text is no source; nothing ran.
    """
    with trees_collected() if len(text) > LONG else nullcontext():
        return _last_result(session, text, dialect, params, Asked(schema_mode, app), is_source)


def _last_result(
    session: StatementSession, text: str, dialect: str, params: Params | None, options: Asked, is_source: bool
) -> Result:
    statements = parse(
        text,
        dialect,
        params,
        macros.Macros(session.lakes),
        abridge=dialect == session.engine.name,
    )
    if is_source and (
        len(statements) > 1 or not isinstance(statements[0], Reads) or isinstance(statements[0], Transact)
    ):
        raise InvalidConfig(f"duckrun.SQL is one query whose rows are written, not {text[:60]!r}")
    target: Located | None = None
    if not isinstance(statements[0], Transact):  # before its names are resolved
        session.transactions.enter_statement(writes=not isinstance(statements[0], Reads))
    checks = Checks(session.lakes, session.engine, set(session.temp_views), session.in_transaction)
    for number, statement in enumerate(statements, 1):
        with numbered(number, len(statements)), outcome_of(writes=_writes(statement)):
            target = checks.look_at(statement)
    result: Result | None = None
    with outcome_of(writes=False):  # the commits of the statements before the one that fails
        for number, statement in enumerate(statements, 1):
            with numbered(number, len(statements)), outcome_of(writes=_writes(statement)) as commits:
                if isinstance(statement, Transact):
                    result = _transact(session, statement)
                    continue
                session.transactions.refuse_failed()
                session.transactions.enter_statement(writes=not isinstance(statement, Reads))
                looked_up = target if len(statements) == 1 else None  # an earlier statement may have created it
                result = _carried_out(session, dialect, options, statement, looked_up)
            if isinstance(result, Done) and _writes(statement) and not commits and not session.in_transaction:
                note_commit(f"{result.statement} {result.name}")
            if options.app is not None and not isinstance(statement, Reads):
                options = replace(options, app=replace(options.app, version=options.app.version + 1))
    assert result is not None, "a text without statements is refused"
    return result


def _writes(statement: Statement) -> bool:
    """True if a statement changes a lake by itself."""
    return not isinstance(statement, Reads | CreateTemporary)


def _transact(session: StatementSession, statement: Transact) -> Done:
    {"BEGIN": session.begin, "COMMIT": session.commit, "ROLLBACK": session.rollback}[statement.what]()
    return Done(statement.what, session.lakes.lake.root, session.engine.name, "")


def change(
    session: StatementSession, ref: TableRef, statement: Insert | Update | Delete | Merge, options: Asked = Asked()
) -> Commit:
    """Commit a row change that a builder defines, without SQL text."""
    reading = Reading(session.lakes, session.engine, session.pins, session.temp_views)
    work = _PLANS[type(statement)](statement, ref, reading, options)
    return session.execute(ref, work.spec, work.source, reads=reading.reads)


def create(session: StatementSession, target: Located, spec: CreateSpec) -> None:
    """Create a table that a builder defines, without SQL text.

    Raises:
        ReadOnlyLake: before any work.
    """
    target.lake.ensure_writable(target.ref)
    _carried_out(session, spec.dialect, Asked(), CreateTable((target.ref.name,), spec), target)


_PLANS: dict[type, Callable[[Any, TableRef, Reading, Asked], Work]] = {
    CreateTableAs: rows.create_as,
    Insert: upsert.insert,
    Update: rows.update,
    Delete: rows.delete,
    Merge: merge.merge,
}


def _carried_out(
    session: StatementSession, dialect: str, options: Asked, statement: Statement, target: Located | None
) -> Result:
    """Execute one statement; retry it if other commits have changed what it was computed from.

    Args:
        session: the session.
        dialect: the dialect of the text.
        options: the options beside the text.
        statement: the statement.
        target: its table, if already resolved.
    """
    if isinstance(statement, OfLake):
        return upkeep.carry_out(session, statement)
    if isinstance(statement, Reads | OfNames):
        return _Run(session, dialect, options).carry_out(statement)
    if isinstance(statement, Changes) and is_change(session.engine, session.temp_views, statement):
        return _Run(session, dialect, options).change_temporary(statement)
    located = target or locate(session.lakes, statement.target)
    for attempt in (nullcontext(),) if isinstance(statement, OnTable) else session.attempts(located.ref):
        with attempt:
            return _Run(session, dialect, options).change(statement, located)
    raise AssertionError("the last attempt returns or raises")


def _refuse_change_query(table: exp.Table, what: str) -> None:
    """Raise UnsupportedFeature for a change query in a view or macro of the lake.

    Every process reads these, also DuckDB itself, which has no such function.
    """
    refuse_list(table, what)
    if change_query(table) is not None:
        raise UnsupportedFeature(
            f"{what} reads {table.this.name}(), which no view or macro of the lake can hold; "
            "CREATE TEMP VIEW, or make it a table."
        )


class _Run:
    """The execution of one statement."""

    def __init__(self, session: StatementSession, dialect: str, options: Asked) -> None:
        self.session, self.dialect, self.asked = session, dialect, options
        self.engine = session.engine
        self.reading = Reading(session.lakes, self.engine, session.pins, session.temp_views, dialect)

    def carry_out(self, statement: Reads | OfNames) -> Result:
        match statement:
            case Query():
                return self.session.own(self.reading.frame(statement.tree))
            case Explain():
                tree = self.reading.pinned(statement.tree)
                plan = self.engine.explain(tree, analyze=statement.analyze, what=self.reading.about("explain"))
                rows_of_result = pa.table({"plan": [plan]})
            case Show():
                hidden = self.reading.pins.hidden()
                rows_of_result = describe.names(self.session.lakes, list(self.session.temp_views), statement, hidden)
            case Describe():
                rows_of_result = describe.description(self.reading, statement, self._located(statement.target))
            case Use():
                lake, schema = self.session.lakes.place(statement.target)
                self.session.look_in(self.session.lakes.using(lake, schema))
                return self._done("USE", ".".join(filter(None, (lake.name, schema))))
            case CreateSchema():
                reason = schemas.create(self.session.lakes, statement)
                return self._done("CREATE SCHEMA", ".".join(statement.target), reason)
            case DropSchema():
                reason = schemas.drop(
                    self.session.lakes, statement, self._drop_name, in_transaction=self.session.in_transaction
                )
                return self._done("DROP SCHEMA", ".".join(statement.target), reason)
            case CreateTemporary():
                return self._create_temporary(statement)
            case CreateView():
                return self._create_view(statement)
            case CommentOnView():
                return self._comment_on_view(statement)
            case CreateMacro():
                return self._create_macro(statement)
            case DropMacro():
                return self._done("DROP MACRO", *macros.drop(self.session.lakes, statement))
            case Drop():
                return self._drop(statement)
            case Rename():
                return self._rename(statement)
        return self.session.own(self.engine.local(rows_of_result))

    def change(self, statement: TableStatement, target: Located) -> Result:
        """Execute a statement that changes a table's rows or definition."""
        if isinstance(statement, CreateTable | CreateTableAs):
            return self._create(statement, target)
        if target.view is not None:
            raise InvalidConfig(f"{target.ref} is a view; only tables can be changed.")
        if isinstance(statement, OnTable):
            return self._on_table(statement, target)
        return self._written(statement, target.ref)

    def _written(self, statement: CreateTableAs | Insert | Update | Delete | Merge, ref: TableRef) -> Result:
        """Write a statement's rows; return the commit, or the rows of its RETURNING."""
        work = _PLANS[type(statement)](statement, ref, self.reading, self.asked)
        returned = getattr(statement, "returning", None)
        spec = None if returned is None else rows.returning(returned, ref, self.reading, self.asked)
        commit = self.session.execute(ref, work.spec, work.source, reads=self.reading.reads, returning=spec)
        if spec is None:
            return commit
        assert spec.rows is not None, "the engine gives them back"
        return self._given_back(spec.rows)

    def _given_back(self, rows: pa.Table) -> LazyRows:
        """Return the rows of a RETURNING, which may name a column twice."""
        return self.session.own(self.engine.local(rows.rename_columns(told_apart(rows.column_names))))

    def change_temporary(self, statement: Changes) -> Result:
        """Execute INSERT, UPDATE or DELETE of a temporary table."""
        what, result = change_temporary(self.reading, statement)
        if getattr(statement, "returning", None) is not None:
            return self._given_back(result)
        count = int(result.column(0)[0].as_py())
        return Done(what, statement.target[0], self.engine.name, "it is temporary", count)

    def _is_temporary(self, target: Parts) -> bool:
        return is_temporary(self.engine, self.session.temp_views, target)

    def _on_table(self, statement: OnTable, target: Located) -> Result:
        spec: Any = statement.spec
        ref = target.ref
        if statement.if_exists and not target.lake.exists(ref):
            return self._done("ALTER TABLE", ref, "there is no such table")
        if isinstance(spec, AlterSpec) and statement.optional:
            names = {name.lower() for name in self.reading.snapshot(ref).schema.names}
            done = [change for change in statement.optional if _is_done(change, names)]
            changes = tuple(change for change in spec.changes if change not in done)
            if not changes:
                return self._done("ALTER TABLE", ref, "nothing is left to change")
            spec = replace(spec, changes=changes)
        if self.asked.app is not None:
            spec = replace(spec, app=self.asked.app)
        return self.session.execute(ref, spec)

    def _located(self, target: Parts) -> Located | None:
        """Return the lake and table of a name; None for temporary names and information_schema."""
        return None if self._is_temporary(target) or is_information(target) else locate(self.session.lakes, target)

    # -- tables and views

    def _create(self, statement: CreateTable | CreateTableAs, target: Located) -> Result:
        ref, is_view = target.ref, target.view is not None
        replacing = (statement.spec if isinstance(statement, CreateTable) else statement).if_exists == "replace"
        if is_view and not replacing:
            raise InvalidConfig(f"{ref} is a view; drop it first, or CREATE OR REPLACE TABLE.")
        if isinstance(statement, CreateTable):
            commit = self.session.execute(ref, replace(statement.spec, app=self.asked.app))
        else:
            commit = self._written(statement, ref)
        if is_view:
            target.lake.remove_definition(ref)
        return commit

    def _create_view(self, statement: CreateView) -> Result:
        located = locate(self.session.lakes, statement.target)
        lake, ref = located.lake, located.ref
        if lake.exists(ref):
            raise InvalidConfig(f"{ref} is a table; a view takes its name only once it is dropped.")
        if located.view is not None and statement.if_exists == "ignore":
            return self._done("CREATE VIEW", ref, "the view exists already")
        if located.view is not None and statement.if_exists == "error":
            raise InvalidConfig(f"View {ref} exists already; CREATE OR REPLACE VIEW puts this one in its place.")
        query: Any
        query, tables_read = self._with_stored_names(statement.query, f"View {ref}", lake, is_view=True)
        with self.reading.inside(str(ref)):
            frame = self.reading.frame(statement.query)
        columns = column_types(frame)
        is_distinct = len({name.lower() for name, _ in columns}) == len(columns)
        if not is_distinct and self.dialect == "duckdb":
            # A view of DuckDB has its second column id as id_1, as a derived table has.
            derived = exp.Subquery(this=statement.query.copy(), alias=exp.TableAlias(this=exp.to_identifier("view")))
            columns, is_distinct = column_types(self.reading.frame(exp.select("*").from_(derived))), True
        # DuckDB names an expression without an alias by its text. The stored query writes table
        # names differently, so such columns need explicit names.
        by_text = any("." in name or "(" in name for name, _ in columns)
        if statement.columns or (by_text and is_distinct):
            query = rows.renamed(query, statement.columns or [name for name, _ in columns])
        if statement.columns:
            if len(statement.columns) != len(columns):
                raise InvalidConfig(
                    f"View {ref} names {len(statement.columns)} columns, and its query has {len(columns)}."
                )
            columns = [(name, kind) for name, (_, kind) in zip(statement.columns, columns, strict=True)]
        text = with_absolute_paths(text_in(query, self.dialect), self.dialect)
        lake.put_definition(
            ref, ViewDefinition(text, self.dialect, tuple(columns), tables_read, None, statement.comment)
        )
        return self._done("CREATE VIEW", ref)

    def _comment_on_view(self, statement: CommentOnView) -> Result:
        if self._is_temporary(statement.target):
            raise unsupported("COMMENT ON VIEW of a temporary name")
        located = locate(self.session.lakes, statement.target)
        if located.view is None:
            if located.lake.exists(located.ref):
                raise InvalidConfig(f"{located.ref} is a table: COMMENT ON TABLE {located.ref}.")
            raise TableNotFound(f"There is no view {located.ref}.{located.lake.nearest(located.ref)}")
        located.lake.put_definition(located.ref, replace(located.view, comment=statement.comment))
        return self._done("COMMENT ON VIEW", located.ref)

    def _create_macro(self, statement: CreateMacro) -> Result:
        lake, schema, name = macros.place(self.session.lakes, statement.target)
        body, _ = self._with_stored_names(statement.body, f"Macro {schema}.{name}", lake, is_view=False)
        text = with_absolute_paths(text_in(body, self.dialect), self.dialect)
        return self._done("CREATE MACRO", *macros.create(self.session.lakes, statement, text))

    def _with_stored_names(
        self, tree: exp.Expr, what: str, lake: Lake, *, is_view: bool
    ) -> tuple[exp.Expr, tuple[str, ...]]:
        """Return the query of a view or the body of a macro as stored, and the tables it reads."""
        tables_read: set[str] = set()

        def resolve(table: exp.Table) -> exp.Expr:
            name = self._stored_name(table, what, lake, is_view=is_view)
            tables_read.add(f"{name.db}.{name.name}")
            return name

        tree = replace_tables(
            tree,
            resolve,
            self.reading.names,
            call=lambda table: _refuse_change_query(table, what),
            dialect=self.dialect,
            inner=is_view,
        )
        return tree, tuple(sorted(tables_read))

    def _stored_name(self, table: exp.Table, what: str, lake: Lake, *, is_view: bool) -> exp.Table:
        """Return a table's name as every process resolves it.

        It has a schema, and means the view's own lake and the newest version.

        Raises:
            TableNotFound: for an unknown table, with the nearest names.
        """
        name = dotted(table)
        if self._is_temporary((name,)):
            raise InvalidConfig(f"{what} reads {name}, which only this session knows; make it a table first.")
        if is_information(parts_of(table)):
            raise UnsupportedFeature(
                f"{what} reads {name}, which each session has of its own; ask it, or CREATE TEMP VIEW."
            )
        if table.args.get("when") or table.args.get("version"):
            raise UnsupportedFeature(f"{what} reads {name} at a version; in the lake it reads the newest one.")
        located = locate(self.session.lakes, parts_of(table))
        lake_of_table, ref = located.lake, located.ref
        if lake_of_table is not lake and not (
            lake_of_table.name is None and table.catalog.lower() in OWN_CATALOGS and lake.name is None
        ):
            raise UnsupportedFeature(
                f"{what} reads {name}, of another lake, which other sessions may not have attached."
            )
        # The query of a view is read as well, which finds out if a table is missing.
        if not is_view and located.view is None and not lake_of_table.exists(ref):
            raise TableNotFound(f"{what} reads {ref}, which is not there.{lake.nearest(ref)}")
        return exp.table_(ref.name, db=ref.schema, quoted=True)

    def _create_temporary(self, statement: CreateTemporary) -> Result:
        name, kind = statement.name, f"TEMP {statement.kind.upper()}"
        if self._is_temporary((name,)):
            if statement.if_exists == "ignore":
                return self._done(f"CREATE {kind}", name, "it exists already")
            if statement.if_exists == "error":
                raise InvalidConfig(f"{name} is a temporary name already; CREATE OR REPLACE {kind}.")
        with self.reading.inside(name.lower()):
            frame = self.reading.frame(statement.query)
        if statement.kind == "view":
            self.engine.forget(name)
            self.session.temp_views[name.lower()] = statement.query
        else:
            self.engine.keep(name, frame)
            self.session.temp_views.pop(name.lower(), None)
        return self._done(f"CREATE {kind}", name)

    def _drop(self, statement: Drop) -> Result:
        what = f"DROP {statement.kind.upper()}"
        if self._is_temporary(statement.target):
            self.session.temp_views.pop(statement.target[0].lower(), None)
            self.engine.forget(statement.target[0])
            return self._done(what, statement.target[0], "it was temporary")
        located = self._existing(statement, what, "drop", "DROP {} {}.")
        if isinstance(located, Done):
            return located
        self._drop_name(located.ref)
        return self._done(what, located.ref)

    def _existing(self, statement: Drop | Rename, what: str, verb: str, instead: str) -> Located | Done:
        """Return the table or view that a statement drops or renames.

        Args:
            statement: the statement.
            what: its name.
            verb: what it does, for messages.
            instead: the statement for the other kind and a name, if the name has that kind.

        Returns:
            A Done if there is none, and the statement says IF EXISTS.
        """
        located = locate(self.session.lakes, statement.target)
        lake, ref = located.lake, located.ref
        if located.view is None and not lake.exists(ref):
            if statement.if_exists:
                lake.claim(ref)  # of an older attempt that has dropped it
                return self._done(what, ref, f"there is no such {statement.kind}")
            raise TableNotFound(f"There is no {statement.kind} {ref} to {verb}.{lake.nearest(ref)}")
        kind = "table" if located.view is None else "view"
        if kind != statement.kind:
            raise InvalidConfig(f"{ref} is a {kind}: {instead.format(kind.upper(), ref)}")
        return located

    def _drop_name(self, ref: TableRef) -> None:
        self.session.lakes.of(ref).drop(ref)
        self.reading.pins.moved(ref, None)

    def _rename(self, statement: Rename) -> Result:
        what = f"ALTER {statement.kind.upper()} … RENAME TO"
        if self._is_temporary(statement.target):
            raise unsupported(f"{what} of a temporary name")
        located = self._existing(statement, what, "rename", "ALTER {} {} RENAME TO ….")
        if isinstance(located, Done):
            return located
        lake, ref = located.lake, located.ref
        to = statement.to if len(statement.to) != 1 else (ref.schema, *statement.to)
        if len(to) > 2 and self.session.lakes.locate(to).lake is not lake:
            raise UnsupportedFeature(
                f"{ref} cannot be renamed to {'.'.join(to)}, in another lake: CREATE TABLE … AS there."
            )
        new = lake.resolve(lake.spelled_schema(to[-2]), to[-1])
        readers = lake.readers(ref)
        if readers:
            raise InvalidConfig(
                f"{ref} cannot be renamed: {', '.join(readers)} read it by its name. "
                f"Drop them first, and create them over {new} then."
            )
        lake.rename(ref, new)
        self.reading.pins.moved(ref, None)
        return self._done(what, ref, f"it is {new} now")

    def _done(self, what: str, name: TableRef | str, reason: str = "") -> Done:
        return Done(what, str(name), self.engine.name, reason)


def _is_done(change: Change, names: set[str]) -> bool:
    """Return True for a column to add that exists, and for one to drop that does not."""
    if isinstance(change, AddColumn):
        return change.column.name.lower() in names
    return isinstance(change, DropColumn) and change.name.lower() not in names
