"""Statements that change rows: the tree of the outline gives their form.

Each query, condition and value is parsed from its own part of the text.
"""

from __future__ import annotations

from sqlglot import exp

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.sql.placing import stand_in
from duckrun.statements.parse.outline import LATER
from duckrun.statements.parse.parts import (
    ctes_of,
    from_items,
    query_of,
    query_start,
    refuse,
    select_list,
    target_of,
    unsupported,
    with_ctes,
)
from duckrun.statements.parse.tokens import StatementText, TokenReader, parted, parted_at
from duckrun.statements.values import Delete, Insert, OnConflict, OnTable, Parts, Returned, Statement, Update
from duckrun.values.rows import DeleteSpec

DEFAULT = "DEFAULT"


def insert(tree: exp.Expr, source: StatementText) -> list[Statement]:
    refuse(tree, "INSERT", "ignore", "stored", "settings", "source")
    if tree.args.get("alternative"):
        raise _without_keys(f"INSERT OR {str(tree.args['alternative']).upper()}")
    columns: tuple[str, ...] | None = None
    table = tree.this
    if isinstance(table, exp.Schema):
        columns, table = tuple(column.name for column in table.expressions), table.this
    by_name = bool(tree.args.get("by_name"))
    if by_name and columns is not None:
        raise unsupported("INSERT with a list of columns and BY NAME")
    target = target_of(table, "INSERT")
    if tree.args.get("default"):
        return [_default_values(target, tree, source, table.alias_or_name)]
    query_of(tree.expression, "INSERT")  # raises if it is no query
    with_, reader = after_with(source, "INSERT")
    start = query_start(reader.left)
    head, text = reader.source.between(0, start), reader.source.between(start)
    text, returned = parted_at(text, "RETURNING")
    text, after = parted_at(text, "ON", "CONFLICT")
    rows, is_values = _rows(text)
    query = with_ctes(rows, with_)
    where = head.words.index("WHERE") if tree.args.get("where") else None
    replaced = None if where is None else head.with_(head.tokens[where + 1 :]).parse()
    overwrite = bool(tree.args.get("overwrite"))
    partition = _partition(head) if table.args.get("partition") else ()
    conflict = None if after is None else _on_conflict(after, table.alias_or_name, with_)
    if conflict is not None and (overwrite or partition or replaced is not None):
        raise unsupported("ON CONFLICT with OVERWRITE, PARTITION or REPLACE WHERE")
    if returned is not None and (conflict is not None or overwrite or replaced is not None):
        raise unsupported("RETURNING of an INSERT with ON CONFLICT, OVERWRITE or REPLACE WHERE")
    returning = None if returned is None else _returned(TokenReader(returned), table.alias_or_name)
    return [
        Insert(
            target,
            query,
            columns,
            by_name,
            overwrite,
            partition,
            replaced,
            conflict,
            returning,
            is_values=is_values,
        )
    ]


def _without_brackets(tree: exp.Expr) -> exp.Expr:
    while isinstance(tree, exp.Paren | exp.Subquery):
        tree = tree.this
    return tree


def _default_values(target: Parts, tree: exp.Expr, source: StatementText, alias: str) -> Statement:
    """Read ``INSERT INTO t DEFAULT VALUES [RETURNING …]``."""
    before, returned = parted_at(source, "RETURNING")
    if before.words[-2:] != (DEFAULT, "VALUES") or isinstance(tree.this, exp.Schema):
        raise unsupported("INSERT … DEFAULT VALUES with a list of columns, or a clause behind it,")
    query, _ = _rows(StatementText.of(f"VALUES ({DEFAULT})", source.dialect))
    returning = None if returned is None else _returned(TokenReader(returned), alias)
    return Insert(target, query, returning=returning, defaults=True)


def _returned(reader: TokenReader, alias: str) -> Returned | None:
    """Read RETURNING at the end of a statement; None without one."""
    if not reader.accept("RETURNING"):
        return None
    if not reader.left:
        raise reader.error("a list of columns")
    listed = reader.source.with_(reader.left)
    if any(each.find(exp.Query, exp.AggFunc, exp.Window) for each in select_list(listed).expressions):
        raise unsupported("RETURNING of anything but columns of the table and expressions of them")
    return Returned(listed.written, listed.dialect, alias)


def _without_keys(what: str) -> UnsupportedFeature:
    return unsupported(
        f"Tables of a lake have no primary key: say which columns are the key, as INSERT INTO … ON CONFLICT "
        "(columns) DO UPDATE "
        f"SET column = excluded.column, or DO NOTHING. {what} without them"
    )


def _on_conflict(text: StatementText, alias: str, with_: exp.With | None) -> OnConflict:
    """Read ``ON CONFLICT (keys) DO NOTHING | DO UPDATE SET … [WHERE …]``."""
    reader = TokenReader(text)
    reader.expect("ON", "CONFLICT")
    if not reader.is_at_brackets:
        raise _without_keys("ON CONFLICT")
    keys = reader.names_in_brackets()
    if reader.accept("WHERE"):
        raise unsupported("A WHERE between the keys of ON CONFLICT and DO (it stands after SET)")
    reader.expect("DO")
    if reader.accept("NOTHING"):
        reader.end()
        return OnConflict(keys, alias)
    reader.expect("UPDATE")
    reader.expect("SET")
    assigned = assignments(reader.until("WHERE"), alias)
    where = reader.until().parse() if reader.accept("WHERE") else None
    expressions = [value for _, value in assigned] + ([where] if where is not None else [])
    if with_ is not None and any(expression.find(exp.Query) is not None for expression in expressions):
        raise unsupported("WITH before an INSERT whose ON CONFLICT has a subquery")
    return OnConflict(keys, alias, assigned, where)


def after_with(source: StatementText, verb: str) -> tuple[exp.With | None, TokenReader]:
    """Return the WITH before a statement, and a reader of the statement itself."""
    reader = TokenReader(source)
    if source.head[0] != "WITH":
        return None, reader
    with_ = ctes_of(reader.until(verb))
    return with_, TokenReader(source.with_(reader.left))


def _rows(text: StatementText) -> tuple[exp.Query, bool]:
    """Return the query of an INSERT, and True for plain VALUES."""
    tree = text.parse()
    if isinstance(tree, exp.Values) and DEFAULT in (words := text.words):
        places = [
            token
            for at, token in enumerate(text.tokens)
            if words[at] == DEFAULT and words[at - 1] in ("(", ",") and words[at + 1] in (",", ")")
        ]
        defaults = [var for var in tree.find_all(exp.Var) if var.name.upper() == DEFAULT]
        for var, token in zip(defaults, places, strict=True):
            stand_in(exp.null(), var, token.start, token.end)
    return query_of(tree, "INSERT"), isinstance(_without_brackets(tree), exp.Values)


def _partition(head: StatementText) -> tuple[tuple[str, exp.Expr | None], ...]:
    """Read ``PARTITION (a = 1, b)``."""
    parts = TokenReader(head, head.words.index("PARTITION") + 1).parts()
    return tuple((part.identifier(), part.until().parse() if part.accept("=") else None) for part in parts)


def update(tree: exp.Expr, source: StatementText) -> list[Statement]:
    refuse(tree, "UPDATE", "order", "limit")
    target = target_of(tree.this, "UPDATE")
    alias = tree.this.alias_or_name
    with_, reader = after_with(source, "UPDATE")
    reader.until("SET")
    reader.expect("SET")
    assigned = assignments(reader.until("FROM", "WHERE", *LATER), alias, defaults=True)
    where, sources, returning = _rest(reader, "FROM", alias)
    return [Update(target, alias, where, sources, with_, returning, assigned=assigned)]


def _rest(reader: TokenReader, word: str, alias: str) -> tuple[exp.Expr | None, tuple[exp.Expr, ...], Returned | None]:
    """Read the tables behind ``word``, the condition and RETURNING; nothing may follow."""
    sources = (from_items(reader.until("WHERE", *LATER)),) if reader.accept(word) else ()
    where = reader.until(*LATER).parse() if reader.accept("WHERE") else None
    returning = _returned(reader, alias)
    if returning is None:
        reader.end()
    return where, sources, returning


def assignments(text: StatementText, alias: str, *, defaults: bool = False) -> tuple[tuple[str, exp.Expr], ...]:
    """Read ``SET a = 1, t.b = 2, (c, d) = (3, 4)``.

    Args:
        text: the text behind SET.
        alias: the table's alias.
        defaults: True if a value may be the word DEFAULT.
    """
    assigned: list[tuple[str, exp.Expr]] = []
    for part in parted(text, ","):
        reader = TokenReader(part)
        listed = part.head[:1] == ("(",)
        names = [part.with_(name) for name in reader.brackets()] if listed else [_to_equals(reader)]
        if not reader.accept("=") or not reader.left:
            raise unsupported(f"SET {part.written if part.tokens else ''}")
        values = [part.between(reader.at)]
        if listed:
            bracket = TokenReader(values[0])
            values = [part.with_(value) for value in bracket.brackets()] if bracket.source.head[0] == "(" else []
            if len(values) != len(names) or bracket.left:
                raise unsupported("SET of several columns to anything but as many values in brackets")
        for name, value in zip(names, values, strict=True):
            column = _column(name, alias)
            is_default = len(value.tokens) == 1 and value.head == (DEFAULT,)
            if is_default and not defaults:
                raise unsupported("SET … = DEFAULT behind ON CONFLICT")
            if column.lower() in {known.lower() for known, _ in assigned}:
                raise InvalidConfig(f"The column {column} is set twice.")
            assigned.append((column, exp.var(DEFAULT) if is_default else value.parse()))
    return tuple(assigned)


def _to_equals(reader: TokenReader) -> StatementText:
    at = reader.source.next_outer(0, "=")
    reader.at = len(reader.source.tokens) if at is None else at
    return reader.source.between(0, reader.at)


def _column(name: StatementText, alias: str) -> str:
    """Return the name of the column to set, without the table's alias."""
    reader = TokenReader(name)
    try:
        parts = reader.name()
        reader.end()
    except InvalidConfig:
        raise unsupported(f"SET {name.written if name.tokens else ''}") from None
    if len(parts) > 2 or (len(parts) == 2 and parts[0].lower() != alias.lower()):
        raise unsupported(f"SET {name.written}: only whole columns of {alias} are set, so that")
    return parts[-1]


def delete(tree: exp.Expr, source: StatementText) -> list[Statement]:
    if "FROM" not in source.words:
        raise InvalidConfig("Cannot read this DELETE: expected FROM before the name of the table.")
    refuse(tree, "DELETE", "order", "limit", "cluster", "tables")
    target = target_of(tree.this, "DELETE")
    with_, reader = after_with(source, "DELETE")
    reader.until("USING", "WHERE", *LATER)
    alias = tree.this.alias_or_name
    where, sources, returning = _rest(reader, "USING", alias)
    return [Delete(target, alias, where, sources, with_, returning)]


def truncate(tree: exp.Expr, source: StatementText) -> list[Statement]:
    refuse(tree, "TRUNCATE", "is_database", "partition", "cluster", "option", "identity")
    if_exists = bool(tree.args.get("exists"))
    return [OnTable(target_of(table, "TRUNCATE"), DeleteSpec(), if_exists) for table in tree.expressions]
