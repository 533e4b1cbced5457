"""Statements of hooks, macros and run-operation that change a lake: DuckDB has views there, so the session carries them out.

Everything else (SELECT, SET, temporary tables, other databases) is DuckDB's own business.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
from dbt.adapters.duckrun.environment import LakeEnvironment
from dbt.adapters.duckrun.spark.session import rows_changed

from duckrun.engines.duckdb import DuckDBEngine, ViewCatalog
from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.lake import schemas
from duckrun.lake.lakes import OWN_CATALOGS
from duckrun.session import Session
from duckrun.statements.parse.tokens import StatementText, TokenReader, split
from duckrun.values.snapshot import TableRef

# Words before the name of what a statement changes; words in brackets may be left out.
_FORMS: tuple[tuple[str, ...], ...] = (
    ("INSERT", "INTO"),
    ("INSERT", "OVERWRITE"),
    ("UPDATE",),
    ("DELETE", "FROM"),
    ("MERGE", "INTO"),
    ("TRUNCATE", "[TABLE]"),
    ("CREATE", "[OR REPLACE]", "TABLE", "[IF NOT EXISTS]"),
    ("CREATE", "[OR REPLACE]", "VIEW", "[IF NOT EXISTS]"),
    ("DROP", "TABLE", "[IF EXISTS]"),
    ("DROP", "VIEW", "[IF EXISTS]"),
    ("ALTER", "TABLE", "[IF EXISTS]"),
    ("ALTER", "VIEW", "[IF EXISTS]"),
    ("COMMENT", "ON", "TABLE"),
    ("COMMENT", "ON", "COLUMN"),
    ("OPTIMIZE",),
    ("REORG", "[TABLE]"),
    ("VACUUM",),
    ("RESTORE", "[TABLE]"),
)


@dataclass(frozen=True)
class Part:
    """One statement of a text, and the table of a lake that it changes; None: it is DuckDB's."""

    source: StatementText
    target: TableRef | None

    @property
    def text(self) -> str:
        first, text = self.source.tokens[0], self.source.text
        if text[first.start : first.end + 1] != first.text:  # VACUUM and the like: the text is what follows the word
            return f"{first.text} {text}"
        return text[first.start : self.source.tokens[-1].end + 1]


def parts_of(env: LakeEnvironment, cursor: duckdb.DuckDBPyConnection, sql: str) -> list[Part]:
    """The statements of a text; empty where none of them is for a lake, and DuckDB may have the text as it is."""
    text = sql.upper()
    if not any(form[0] in text for form in _FORMS):  # saves most queries the tokenizer
        return []
    found = [Part(source, _target(env, cursor, source)) for source in _sources(sql)]
    ours = any(part.target is not None or _dropped_schema(env, part.source) is not None for part in found)
    return found if ours else []


_ENDS = ("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT")


def refuse_ends(sql: str) -> None:
    """Raise UnsupportedFeature for a statement that begins or ends a transaction: the run is one."""
    text = sql.upper()
    if not any(word in text for word in _ENDS):  # saves most queries the tokenizer
        return
    for source in _sources(sql):
        if source.words and source.words[0] in _ENDS and source.words[1:] in ((), ("TRANSACTION",), ("WORK",)):
            raise UnsupportedFeature(
                f"{source.words[0]}: this run is one transaction, which ends with it (publish: together). Leave it out, or set publish: each."
            )


def _sources(sql: str) -> list[StatementText]:
    """The statements of a text; none of one that sqlglot cannot even part into tokens."""
    try:
        return split(sql, "duckdb")
    except InvalidConfig:
        return []


def carry_out_all(
    env: LakeEnvironment, cursor: duckdb.DuckDBPyConnection, parts: list[Part]
) -> Iterator[tuple[Part, int | None]]:
    """Carry out statements in their order; the count of rows of one that is for a lake, None for DuckDB's.

    One may make the table that a later one changes: so each is looked at again when it is its turn.
    """
    for known in parts:
        part = Part(known.source, _target(env, cursor, known.source))
        schema = _dropped_schema(env, known.source)
        if schema is not None:
            drop_schema(env, *schema)
        if part.target is None:
            env.ensure_for(part.text)
            cursor.execute(part.text)
            yield part, None
        else:
            yield part, carry_out(env, cursor, part)


def carry_out(env: LakeEnvironment, cursor: duckdb.DuckDBPyConnection, part: Part) -> int:
    """Run a statement on its table, as one commit; the count of rows that it changed.

    Its query sees what the node's cursor sees, temporary tables and variables too; tables of the lakes are read at the
    versions that this run reads.
    """
    assert part.target is not None, "the statement is for a lake"
    env.refuse_elsewhere(part.target, env.lakes.of(part.target))
    engine = NodeEngine(env, cursor)
    try:
        session = Session(env.lake, arbiter=env.arbiter, pins=env.pins, lakes=env.lakes, engines={"duckdb": engine})
        goes = part.source.head[0] == "DROP" or _renamed(env, part) is not None
        with _going(env, [part.target] if goes else [], alone=part.source.words[-1] != "CASCADE"):
            found = session.sql(part.text)
    finally:
        engine.close()
    _show(env, part.target)
    if (named := _renamed(env, part)) is not None:
        _show(env, named)
    return rows_changed(found)


def _renamed(env: LakeEnvironment, part: Part) -> TableRef | None:
    """What the table of an ALTER TABLE … RENAME TO is called after it; None for another statement."""
    if part.source.head[0] != "ALTER" or part.target is None:
        return None
    words = part.source.words
    if "TO" not in words[:-1] or words[words.index("TO") - 1] != "RENAME":
        return None
    reader = TokenReader(part.source)
    reader.at = words.index("TO") + 1
    schema, name = (part.target.schema, *reader.name())[-2:]
    return env.lakes.of(part.target).resolve(schema, name)


@contextmanager
def _going(env: LakeEnvironment, refs: Sequence[TableRef], *, alone: bool = False) -> Iterator[None]:
    """Drop DuckDB's views of names that go from a lake, before they go: ``alone``, or with the views that read them. Raises InvalidConfig if DuckDB refuses
    (enable_view_dependencies): nothing is dropped then.
    """
    try:
        for ref in refs:
            views = env.views_of(ref)
            try:
                (views.withdraw if alone else views.dropped)(ref)
            except duckdb.Error as error:
                why = " ".join(str(error).splitlines()[:2])
                raise InvalidConfig(
                    f"{ref} stays as it is, since DuckDB refuses to drop its view: {why}. Nothing was dropped."
                ) from error
        yield
    except BaseException:
        for ref in refs:
            env.views_of(ref).changed(ref)
        raise
    for ref in refs:
        env.pins.moved(ref, None)
        env.views_of(ref).dropped(ref)


def rename(env: LakeEnvironment, ref: TableRef, new: TableRef) -> None:
    """Give a table or a persisted view of a lake another name there. Views that read either name find it anew."""
    with _going(env, [ref]):
        env.lakes.of(ref).rename(ref, new)
    env.views_of(new).changed(new)


def drop(env: LakeEnvironment, *refs: TableRef) -> None:
    """Drop tables or persisted views of a lake."""
    with _going(env, refs):
        for ref in refs:
            env.lakes.of(ref).drop(ref)


def drop_schema(env: LakeEnvironment, views: ViewCatalog, schema: str) -> None:
    """Drop the tables and views of a lake's schema, and with them it; nothing where other files lie in it (InvalidConfig)."""
    drop(env, *schemas.droppable(views.lake, schema, cascade=True))
    schemas.drop_schema(views.lake, schema)


def drop_schema_of(env: LakeEnvironment, sql: str) -> bool:
    """Carry out a text that is one DROP SCHEMA of a lake, which Spark has no word for; False for any other."""
    if "SCHEMA" not in sql.upper():  # saves most queries the tokenizer
        return False
    sources = _sources(sql)
    schema = _dropped_schema(env, sources[0]) if len(sources) == 1 else None
    if schema is not None:
        drop_schema(env, *schema)
    return schema is not None


def _dropped_schema(env: LakeEnvironment, source: StatementText) -> tuple[ViewCatalog, str] | None:
    """The schema of a lake that DROP SCHEMA ... CASCADE names; without CASCADE only an empty one goes, as in DuckDB."""
    name = _name(TokenReader(source), ("DROP", "SCHEMA", "[IF EXISTS]"))
    if name is None or len(name) > 2:
        return None
    views = env.catalog(name[0] if len(name) == 2 else None)
    if views is None or not views.lake.is_name(name[-1]):
        return None
    schema = views.schema(name[-1])
    schemas.droppable(views.lake, schema, cascade=source.words[-1] == "CASCADE")
    return views, schema


def _show(env: LakeEnvironment, ref: TableRef) -> None:
    """Bring DuckDB's view of a name up to date with the lake."""
    lake, views = env.lakes.of(ref), env.views_of(ref)
    ref = lake.resolve(ref.schema, ref.name)
    if lake.definition(ref) is None and lake.exists(ref):
        views.moved(ref)
        return
    env.pins.moved(ref, None)
    views.dropped(ref)
    if lake.definition(ref) is not None:
        views.ensure(ref)


class NodeEngine(DuckDBEngine):
    """The run's engine on the cursor of one node, whose temporary tables and variables its queries see."""

    def __init__(self, env: LakeEnvironment, cursor: duckdb.DuckDBPyConnection) -> None:
        super().__init__(
            env.lake, arbiter=env.arbiter, connection=env.engine.connection, duckdb_limit=env.engine.duckdb_limit
        )
        self.env = env
        self._node = cursor

    def cursor(self) -> duckdb.DuckDBPyConnection:
        return self._node

    def has_name(self, name: str) -> bool:
        """True for every name that is no lake's: DuckDB knows it, or says that it does not."""
        parts = tuple(name.split("."))
        own = len(parts) == 3 and parts[0].lower() in OWN_CATALOGS  # as the names in a view's query are written out
        return self.env.find(parts[1:] if own else parts) is None


def _target(env: LakeEnvironment, cursor: duckdb.DuckDBPyConnection, source: StatementText) -> TableRef | None:
    if source.head[0] == "WITH":
        start = next(
            (i for i, word in enumerate(source.words) if word in ("INSERT", "UPDATE", "DELETE", "MERGE")), None
        )
        if start is None:
            return None
        source = source.with_(source.tokens[start:])
    for form in _FORMS:
        name = _name(TokenReader(source), form)
        if name is None:
            continue
        if form[:3] == ("COMMENT", "ON", "COLUMN"):
            name = name[:-1]
        ref = env.find(name)
        if ref is None and form[0] == "CREATE" and not _elsewhere(env, cursor, name):
            ref = env.place(name)
        if ref is None or (len(name) == 1 and _is_temporary(cursor, name[0])):
            return None
        return ref
    return None


def _name(reader: TokenReader, form: tuple[str, ...]) -> tuple[str, ...] | None:
    for word in form:
        accepted = reader.accept(*word.strip("[]").split())
        if not accepted and not word.startswith("["):
            return None
    try:
        return reader.name()
    except InvalidConfig:  # TRUNCATE and VACUUM alone, or a name that only DuckDB reads
        return None


def _is_temporary(cursor: duckdb.DuckDBPyConnection, name: str) -> bool:
    sql = (
        "select 1 from duckdb_tables() where temporary and lower(table_name) = lower($1) union all "
        "select 1 from duckdb_views() where temporary and lower(view_name) = lower($1)"
    )
    return cursor.execute(sql, [name]).fetchone() is not None


def _elsewhere(env: LakeEnvironment, cursor: duckdb.DuckDBPyConnection, name: tuple[str, ...]) -> bool:
    """True for the name of a new table that lies in a database which is no lake."""
    if len(name) == 3:
        return env.catalog(name[0]) is None
    if len(name) != 2:
        return False
    sql = "select 1 from duckdb_databases() where lower(database_name) = lower(?)"
    return env.catalog(name[0]) is None and cursor.execute(sql, [name[0]]).fetchone() is not None
