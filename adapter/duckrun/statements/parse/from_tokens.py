"""Statements that sqlglot cannot parse, read from tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from sqlglot import exp

from duckrun.errors import InvalidConfig
from duckrun.sql.pieces import read_from
from duckrun.statements.parse import from_alter, from_call, from_macro
from duckrun.statements.parse.layout import sorted_columns
from duckrun.statements.parse.parts import query_start, unsupported
from duckrun.statements.parse.tokens import StatementText, TokenReader, word_of
from duckrun.statements.values import (
    CommentOnView,
    CreateSchema,
    Describe,
    DropSchema,
    OnLake,
    OnTable,
    Parts,
    Show,
    Statement,
    Transact,
    Use,
)
from duckrun.values import tables
from duckrun.values.upkeep import RestoreLakeSpec


def read(source: StatementText) -> Statement | None:
    """Return the statement; None for one that sqlglot can parse."""
    for words, read_rest in _BY_WORDS.items():
        if source.head[: len(words)] == words:
            reader = TokenReader(source)
            reader.expect(*words)
            statement = read_rest(reader)
            reader.end()
            return statement
    return from_alter.alter(source)


def _history(reader: TokenReader) -> Statement:
    reader.accept("TABLE")
    return Describe(reader.name(), "history", int(reader.number()) if reader.accept("LIMIT") else None)


def _detail(reader: TokenReader) -> Statement:
    reader.accept("TABLE")
    return Describe(reader.name(), "detail")


def _restore(reader: TokenReader) -> Statement:
    if reader.source.words[1:2] == ("DATABASE",):  # a whole DuckLake; Spark's meaning, a schema, does not apply
        reader.expect("DATABASE")
        lake = None if reader.accept("TO") else reader.identifier()
        if lake is not None:
            reader.expect("TO")
        reader.expect("VERSION", "AS", "OF")
        return OnLake(RestoreLakeSpec(int(reader.number())), lake=lake)
    reader.accept("TABLE")
    name = reader.name()
    reader.expect("TO")
    if reader.accept("VERSION", "AS", "OF"):
        return OnTable(name, tables.RestoreSpec(version=int(reader.number())))
    reader.expect("TIMESTAMP", "AS", "OF")
    return OnTable(name, tables.RestoreSpec(timestamp=reader.string()))


def _optimize(reader: TokenReader) -> Statement:
    name, predicate = reader.name(), _predicate(reader, "ZORDER")
    z_order = reader.names_in_brackets() if reader.accept("ZORDER", "BY") else ()
    return OnTable(name, tables.OptimizeSpec(predicate=predicate, z_order_by=z_order, dialect=reader.source.dialect))


def _reorg(reader: TokenReader) -> Statement:
    reader.accept("TABLE")
    name, predicate = reader.name(), _predicate(reader, "APPLY")
    reader.expect("APPLY")
    if reader.names_in_brackets() not in (("PURGE",), ("purge",)):
        raise unsupported("REORG TABLE … APPLY of anything but (PURGE)")
    return OnTable(name, tables.PurgeSpec(predicate=predicate, dialect=reader.source.dialect))


def _predicate(reader: TokenReader, end: str) -> str | None:
    """Read a WHERE, if it is next, up to a keyword; return its condition as written."""
    if not reader.accept("WHERE"):
        return None
    condition = reader.until(end)
    condition.parse()  # raises if it cannot be parsed
    return condition.written


def _vacuum(reader: TokenReader) -> Statement:
    name, hours = reader.name(), None
    if reader.accept("RETAIN"):
        hours = float(reader.number())
        reader.expect("HOURS")
    return OnTable(name, tables.VacuumSpec(retention_hours=hours, dry_run=reader.accept("DRY", "RUN")))


def _convert(reader: TokenReader) -> Statement:
    name = reader.name()
    if len(name) != 2 or name[0].lower() != "parquet":
        raise unsupported("CONVERT TO DELTA of anything but parquet.`/a/folder`")
    parts = reader.parts() if reader.accept("PARTITIONED BY") else ()
    columns = tuple(tables.ColumnSpec(inside.identifier(), inside.until().written) for inside in parts)
    return OnTable(("delta", name[1]), tables.ConvertSpec(partition_by=columns, dialect=reader.source.dialect))


def _show(reader: TokenReader) -> Statement:
    if reader.accept("SCHEMAS") or reader.accept("DATABASES"):
        return Show("schemas")
    if reader.accept("ALL", "TABLES"):
        return Show("tables")
    views = reader.accept("VIEWS")
    if views or reader.accept("TABLES"):
        within = reader.name() if reader.accept("IN") or reader.accept("FROM") else ()
        return Show("views" if views else "tables", within)
    if reader.accept("TBLPROPERTIES"):
        table, keys = reader.name(), reader.names_in_brackets() if reader.left else ()
        if len(keys) > 1:
            raise unsupported("SHOW TBLPROPERTIES of several keys")
        return Describe(table, "properties", key=keys[0] if keys else None)
    if reader.source.dialect == "duckdb" and len(reader.left) and reader.source.words[reader.at] not in _OTHER_SHOWS:
        return Describe(reader.name(), "columns")  # as in DuckDB
    raise unsupported(" ".join(reader.source.words[:2]))


_OTHER_SHOWS = ("ALL", "CREATE", "COLUMNS", "PARTITIONS", "TBLPROPERTIES", "FUNCTIONS", "CATALOGS", "VARIABLES")


def _comment(reader: TokenReader) -> Statement:
    on_column, on_view = reader.accept("COLUMN"), reader.accept("VIEW")
    if not on_column and not on_view:
        reader.expect("TABLE")
    name = reader.name()
    reader.expect("IS")
    comment = None if reader.accept("NULL") else reader.string()
    if on_view:
        return CommentOnView(name, comment)
    if not on_column:
        return OnTable(name, tables.AlterSpec((tables.SetComment(comment),)))
    if len(name) < 2:
        raise InvalidConfig(f"COMMENT ON COLUMN {name[0]}: name the table too, as table.column.")
    return OnTable(name[:-1], tables.AlterSpec((tables.SetComment(comment, name[-1]),)))


def _use(reader: TokenReader) -> Statement:
    for word in ("SCHEMA", "DATABASE", "NAMESPACE"):
        if len(reader.left) > 1 and reader.accept(word):
            break
    return Use(_schema(reader))


def _create_schema(reader: TokenReader) -> Statement:
    _refuse_database(reader)
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    return CreateSchema(_schema(reader), if_not_exists)


def _drop_schema(reader: TokenReader) -> Statement:
    """Read DROP SCHEMA; only CASCADE drops a schema that is not empty."""
    _refuse_database(reader)
    if_exists = reader.accept("IF", "EXISTS")
    name, cascade = _schema(reader), reader.accept("CASCADE")
    if not cascade:
        reader.accept("RESTRICT")
    return DropSchema(name, if_exists, cascade)


def _refuse_database(reader: TokenReader) -> None:
    """Refuse DATABASE in DuckDB's dialect.

    Spark's synonym for SCHEMA, but DuckDB's databases are lakes.
    """
    if reader.source.words[1] == "DATABASE" and reader.source.dialect == "duckdb":
        raise unsupported(f"{reader.source.words[0]} DATABASE (a lake is attached by s.attach()); it")


def _schema(reader: TokenReader) -> Parts:
    """Read ``schema`` or ``lake.schema``; refuse a clause behind it by name."""
    name = reader.name()
    if len(name) > 2:
        raise InvalidConfig(f"{'.'.join(name)} is no schema; write schema, or lake.schema.")
    if reader.left and reader.source.words[reader.at] not in ("CASCADE", "RESTRICT"):
        raise unsupported(f"{reader.source.words[0]} {reader.source.words[1]} … {reader.source.words[reader.at]}")
    return name


def _transact(what: Literal["BEGIN", "COMMIT", "ROLLBACK"], reader: TokenReader) -> Statement:
    if not reader.accept("TRANSACTION"):
        reader.accept("WORK")
    if reader.left:
        raise unsupported(f"{what} … {reader.source.words[reader.at]}")
    return Transact(what)


_BY_WORDS: dict[tuple[str, ...], Callable[[TokenReader], Statement]] = {
    ("BEGIN",): partial(_transact, "BEGIN"),
    ("START", "TRANSACTION"): partial(_transact, "BEGIN"),
    ("COMMIT",): partial(_transact, "COMMIT"),
    ("ROLLBACK",): partial(_transact, "ROLLBACK"),
    ("ABORT",): partial(_transact, "ROLLBACK"),
    ("DESCRIBE", "DETAIL"): _detail,
    ("DESC", "DETAIL"): _detail,
    ("DESCRIBE", "HISTORY"): _history,
    ("DESC", "HISTORY"): _history,
    ("RESTORE",): _restore,
    ("OPTIMIZE",): _optimize,
    ("REORG",): _reorg,
    ("VACUUM",): _vacuum,
    ("CONVERT", "TO", "DELTA"): _convert,
    ("SHOW",): _show,
    ("USE",): _use,
    ("CREATE", "SCHEMA"): _create_schema,
    ("CREATE", "DATABASE"): _create_schema,
    ("DROP", "SCHEMA"): _drop_schema,
    ("DROP", "DATABASE"): _drop_schema,
    ("CREATE", "MACRO"): from_macro.create,
    ("CREATE", "OR", "REPLACE", "MACRO"): partial(from_macro.create, replace=True),
    ("CREATE", "FUNCTION"): from_macro.create,
    ("CREATE", "OR", "REPLACE", "FUNCTION"): partial(from_macro.create, replace=True),
    ("DROP", "MACRO"): from_macro.drop,
    ("DROP", "FUNCTION"): from_macro.drop,
    ("COMMENT", "ON"): _comment,
    ("CALL",): from_call.call,
    ("CHECKPOINT",): from_call.checkpoint,
    ("FORCE", "CHECKPOINT"): from_call.checkpoint,
}


def without_sorted_by(source: StatementText) -> tuple[StatementText, tuple[str, ...]]:
    """Cut SORTED BY (a, b) out of a CREATE TABLE, and return its columns too.

    sqlglot would read the whole statement as a Command. The clause stands before AS.
    """
    for at, token in enumerate(source.tokens):
        if word_of(token) == "AS":
            break
        if source.says(("SORTED", "BY"), at):
            reader = TokenReader(source, at + 2)
            names = sorted_columns(reader)
            return source.with_((*source.tokens[:at], *reader.left)), names
    return source, ()


def whole_tree(source: StatementText) -> exp.Expr:
    """Return the tree of a whole INSERT, UPDATE or DELETE.

    An engine runs its text unchanged.
    """
    return read_from(plain_insert(source).parse(), source.dialect, source.text, source.tokens)


def plain_insert(source: StatementText) -> StatementText:
    """Return an INSERT without the words that sqlglot misreads; other statements stay unchanged."""
    if source.head[0] not in ("INSERT", "WITH"):
        return source
    return _without_brackets(_without_by_position(source))


def _without_by_position(source: StatementText) -> StatementText:
    """Cut BY POSITION out of an INSERT: it is the default."""
    for at, token in enumerate(source.tokens):
        if word_of(token) in ("SELECT", "VALUES", "WITH", "FROM"):
            break
        if source.says(("BY", "POSITION"), at):
            return source.with_((*source.tokens[:at], *source.tokens[at + 2 :]))
    return source


def _without_brackets(source: StatementText) -> StatementText:
    """Remove the brackets of INSERT INTO t (VALUES …) or (FROM …).

    sqlglot would read columns in them.
    """
    verb = source.next_outer(0, "INSERT")
    if verb is None:
        return source
    start = verb + query_start(source.tokens[verb:])
    if not source.says(("(", "VALUES"), start) and not source.says(("(", "FROM"), start):
        return source
    reader = TokenReader(source, start)
    reader.brackets()
    if source.words[reader.at : reader.at + 1] not in ((), ("ON",), ("RETURNING",)):
        return source
    return source.with_((*source.tokens[:start], *source.tokens[start + 1 : reader.at - 1], *reader.left))
