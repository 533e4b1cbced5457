"""Statements of hooks, macros and run-operation that change a lake.

DuckDB has only views of the lake, so the session carries them out. DuckDB runs everything else
(SELECT, SET, temporary tables, other databases).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb
from dbt.adapters.duckrun.environment import LakeEnvironment

import duckrun
from duckrun.engines.duckdb import DuckDBEngine, ViewCatalog
from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.lake import schemas
from duckrun.lake.lakes import OWN_CATALOGS
from duckrun.sql.plain_names import words_in
from duckrun.values.frozen import frozen
from duckrun.values.rows import Commit
from duckrun.values.snapshot import TableRef

if TYPE_CHECKING:
    from duckrun.statements.parse import tokens
else:
    from duckrun.libraries import on_demand

    tokens = on_demand("duckrun.statements.parse.tokens")

# Words before the name of the changed table or view; words in brackets are optional.
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

_DROP_SCHEMA = ("DROP", "SCHEMA", "[IF EXISTS]")
_LONGEST_FORM = 4
"""Words up to the last one that a form needs."""


@frozen
class Part:
    """One statement of a text."""

    source: tokens.StatementText
    target: TableRef | None
    """The table of a lake that it changes; None if DuckDB runs the statement."""

    @property
    def text(self) -> str:
        """Return the text of the statement."""
        first, text = self.source.tokens[0], self.source.text
        if text[first.start : first.end + 1] != first.text:  # as for VACUUM: the text lacks the first word
            return f"{first.text} {text}"
        return text[first.start : self.source.tokens[-1].end + 1]


def parts_of(env: LakeEnvironment, cursor: duckdb.DuckDBPyConnection, sql: str) -> list[Part]:
    """Return the statements of a text; empty if none is for a lake: DuckDB then runs the text."""
    if not _may_change(sql):
        return []
    parts = [Part(source, _target(env, cursor, source)) for source in _sources(sql)]
    ours = any(part.target is not None or _dropped_schema(env, part.source) is not None for part in parts)
    return parts if ours else []


def _may_change(sql: str) -> bool:
    """Return False if no statement of a text can change a lake; most texts need no sqlglot."""
    text = sql.upper()
    if not any(form[0] in text for form in _FORMS):
        return False
    head: list[str] = []
    for word in words_in(sql):
        if word.text == ";":
            head = []
        elif len(head) < _LONGEST_FORM:
            head.append(word.text.upper())
            if head == ["WITH"] or any(_begins_as(form, head) for form in (*_FORMS, _DROP_SCHEMA)):
                return True
        elif ";" not in sql:
            break
    return False


def _begins_as(form: tuple[str, ...], head: list[str]) -> bool:
    """Return True for the first words of a statement up to the name in a form."""
    at = 0
    for part in form:
        words = part.strip("[]").split()
        if head[at : at + len(words)] == words:
            at += len(words)
        elif not part.startswith("["):
            return False
    return True


_ENDS = ("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT")


def refuse_ends(sql: str) -> None:
    """Refuse a statement that begins or ends a transaction, since the run is one transaction.

    Raises:
        UnsupportedFeature: The text has such a statement.
    """
    for source in _sources(sql, *_ENDS):
        if source.words and source.words[0] in _ENDS and source.words[1:] in ((), ("TRANSACTION",), ("WORK",)):
            raise UnsupportedFeature(
                f"{source.words[0]}: this run is one transaction, which ends with it (publish: together). "
                "Leave it out, or set publish: each."
            )


def _sources(sql: str, *words: str) -> list[tokens.StatementText]:
    """Return the statements of a text with one of these words.

    Empty for another text, and if sqlglot cannot tokenize it. Without words, all statements.
    """
    text = sql.upper()
    if words and not any(word in text for word in words):  # most queries need no tokenizer
        return []
    try:
        return tokens.split(sql, "duckdb")
    except InvalidConfig:
        return []


def carry_out_all(
    env: LakeEnvironment, cursor: duckdb.DuckDBPyConnection, parts: list[Part]
) -> Iterator[tuple[Part, int | None]]:
    """Run statements in order.

    Yields:
        Each statement with its count of changed rows; None as the count if DuckDB ran it.
    """
    # A statement may create the table that a later one changes, so each target is resolved again.
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
    """Run a statement on its table, as one commit, and return the count of changed rows.

    Its query sees the temporary tables and variables of the node's cursor. Tables of the lakes are
    read at the versions that this run reads.
    """
    assert part.target is not None, "the statement is for a lake"
    env.refuse_elsewhere(part.target, env.lakes.of(part.target))
    engine = NodeEngine(env, cursor)
    try:
        session = env.session(engine)
        goes = part.source.head[0] == "DROP" or _renamed(env, part) is not None
        with _going(env, [part.target] if goes else [], alone=part.source.words[-1] != "CASCADE"):
            result = session.sql(part.text)
    finally:
        engine.close()
    _show(env, part.target)
    if (named := _renamed(env, part)) is not None:
        _show(env, named)
    return rows_changed(result)


def rows_changed(done: Any) -> int:
    """Return the number of rows that a statement changed, as DuckDB does."""
    if isinstance(done, Commit):
        return sum(filter(None, (done.rows_inserted, done.rows_updated, done.rows_deleted)))
    if isinstance(done, duckrun.Done | duckrun.MaintenanceResult):
        return 0
    return int(done.count())  # the rows of a RETURNING


def _renamed(env: LakeEnvironment, part: Part) -> TableRef | None:
    """Return the new table of an ALTER TABLE … RENAME TO; None for another statement."""
    if part.source.head[0] != "ALTER" or part.target is None:
        return None
    words = part.source.words
    if "TO" not in words[:-1] or words[words.index("TO") - 1] != "RENAME":
        return None
    reader = tokens.TokenReader(part.source)
    reader.at = words.index("TO") + 1
    schema, name = (part.target.schema, *reader.name())[-2:]
    return env.lakes.of(part.target).resolve(schema, name)


@contextmanager
def _going(env: LakeEnvironment, refs: Sequence[TableRef], *, alone: bool = False) -> Iterator[None]:
    """Drop DuckDB's views of names that leave a lake, before they leave it.

    With ``alone``, views that read them stay. Raises InvalidConfig, with nothing dropped, if DuckDB
    refuses (enable_view_dependencies).
    """
    try:
        for ref in refs:
            views = env.views_of(ref)
            try:
                (views.withdraw if alone else views.dropped)(ref)
            except duckdb.Error as error:
                why = " ".join(str(error).splitlines()[:2])
                raise InvalidConfig(f"{ref} stays as it is, since DuckDB refuses to drop its view: {why}") from error
        yield
    except BaseException:
        for ref in refs:
            env.views_of(ref).changed(ref)
        raise
    for ref in refs:
        env.pins.moved(ref, None)
        env.views_of(ref).dropped(ref)


def rename(env: LakeEnvironment, ref: TableRef, new: TableRef) -> None:
    """Rename a table or a persisted view of a lake. Views that read a name resolve it again."""
    with _going(env, [ref]):
        env.lakes.of(ref).rename(ref, new)
    env.views_of(new).changed(new)


def drop(env: LakeEnvironment, *refs: TableRef) -> None:
    """Drop tables or persisted views of a lake."""
    with _going(env, refs):
        for ref in refs:
            env.lakes.of(ref).drop(ref)


def drop_schema(env: LakeEnvironment, views: ViewCatalog, schema: str) -> None:
    """Drop a lake's schema with its tables and views.

    Raises:
        InvalidConfig: Other files lie in the schema; nothing is dropped.
    """
    drop(env, *schemas.droppable(views.lake, schema, cascade=True))
    schemas.drop_schema(views.lake, schema)


def drop_schema_of(env: LakeEnvironment, sql: str) -> bool:
    """Carry out a text that is one DROP SCHEMA of a lake; return False for any other text.

    Spark has no such statement for the lake.
    """
    sources = _sources(sql, "SCHEMA")
    schema = _dropped_schema(env, sources[0]) if len(sources) == 1 else None
    if schema is not None:
        drop_schema(env, *schema)
    return schema is not None


def _dropped_schema(env: LakeEnvironment, source: tokens.StatementText) -> tuple[ViewCatalog, str] | None:
    """Return the schema of a lake that a DROP SCHEMA names; None for another statement."""
    name = _name(tokens.TokenReader(source), _DROP_SCHEMA)
    if name is None or len(name) > 2:
        return None
    views = env.catalog(name[0] if len(name) == 2 else None)
    if views is None or not views.lake.is_name(name[-1]):
        return None
    schema = views.schema(name[-1])
    # Without CASCADE only an empty schema is dropped, as in DuckDB.
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
    """The run's engine on a node's cursor: queries see its temporary tables and variables."""

    def __init__(self, env: LakeEnvironment, cursor: duckdb.DuckDBPyConnection) -> None:
        super().__init__(
            env.lake, arbiter=env.arbiter, connection=env.engine.connection, duckdb_limit=env.engine.duckdb_limit
        )
        self.env = env
        self.instance.only = cursor

    def has_name(self, name: str) -> bool:
        """Return True for every name that no lake has: DuckDB resolves or refuses it."""
        parts = tuple(name.split("."))
        # Names in a view's query are fully qualified.
        is_qualified = len(parts) == 3 and parts[0].lower() in OWN_CATALOGS
        return self.env.find(parts[1:] if is_qualified else parts) is None


def _target(env: LakeEnvironment, cursor: duckdb.DuckDBPyConnection, source: tokens.StatementText) -> TableRef | None:
    if source.head[0] == "WITH":
        start = next(
            (i for i, word in enumerate(source.words) if word in ("INSERT", "UPDATE", "DELETE", "MERGE")), None
        )
        if start is None:
            return None
        source = source.with_(source.tokens[start:])
    for form in _FORMS:
        name = _name(tokens.TokenReader(source), form) if form[0] == source.head[0] else None
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


def _name(reader: tokens.TokenReader, form: tuple[str, ...]) -> tuple[str, ...] | None:
    for word in form:
        accepted = reader.accept(*word.strip("[]").split())
        if not accepted and not word.startswith("["):
            return None
    try:
        return reader.name()
    except InvalidConfig:  # a bare TRUNCATE or VACUUM, or a name that only DuckDB can parse
        return None


def _is_temporary(cursor: duckdb.DuckDBPyConnection, name: str) -> bool:
    sql = (
        "select 1 from duckdb_tables() where temporary and lower(table_name) = lower($1) union all "
        "select 1 from duckdb_views() where temporary and lower(view_name) = lower($1)"
    )
    return cursor.execute(sql, [name]).fetchone() is not None


def _elsewhere(env: LakeEnvironment, cursor: duckdb.DuckDBPyConnection, name: tuple[str, ...]) -> bool:
    """Return True for the name of a new table in a database that is no lake."""
    if len(name) == 3:
        return env.catalog(name[0]) is None
    if len(name) != 2:
        return False
    sql = "select 1 from duckdb_databases() where lower(database_name) = lower(?)"
    return env.catalog(name[0]) is None and cursor.execute(sql, [name[0]]).fetchone() is not None
