"""What every statement's syntax tree is asked for, and how a part of it is refused by its name."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, exp
from sqlglot.tokens import TokenType

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.sql.written import loose, read_from
from duckrun.statements.parse.tokens import StatementText, step_of, tokens_of, word_of
from duckrun.statements.reading import parts_of


def unsupported(what: str) -> UnsupportedFeature:
    """The error for a statement, or a part of one, that sql() does not carry out."""
    return UnsupportedFeature(f"{what} is not supported by sql(). Nothing was run; docs/sql.md lists what is.")


_BEGIN_ROWS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "PIVOT", "UNPIVOT", "DESCRIBE", "SUMMARIZE")


def query_of(tree: exp.Expr | None, what: str) -> exp.Query:
    """The rows that a statement writes, as a query: VALUES and table names too."""
    if isinstance(tree, exp.Values | exp.Pivot | exp.Describe | exp.Summarize):
        return exp.select("*").from_(exp.Subquery(this=tree))
    if isinstance(tree, exp.Table):
        return exp.select("*").from_(tree)
    if not isinstance(tree, exp.Query):
        raise unsupported(f"{what} without a query")
    return tree


def query_start(tokens: Sequence[Token]) -> int:
    """Where the query begins in an INSERT, or in a CREATE after its AS."""
    depth = 0
    for at, token in enumerate(tokens):
        if depth == 0 and at > 1 and _begins_rows(tokens[at:]):
            into_table = token.token_type == TokenType.TABLE and tokens[at - 1].text.upper() in ("INTO", "OVERWRITE")
            if not into_table:
                return at
        depth += step_of(token)
    return len(tokens)


def _begins_rows(tokens: Sequence[Token]) -> bool:
    inside = next((token for token in tokens if token.token_type != TokenType.L_PAREN), None)
    return inside is not None and word_of(inside) in _BEGIN_ROWS


def with_ctes(query: exp.Query, outer: exp.With | None) -> exp.Query:
    """A query under the WITH of the statement that it is a part of."""
    if outer is None:
        return query
    whole = exp.select("*").from_(exp.Subquery(this=query.copy()))
    whole.set("with_", outer.copy())
    return whole


def ctes_of(source: StatementText) -> exp.With:
    """The WITH of a text that is nothing else."""
    with_: exp.With = _between(source, "", "SELECT 1").args["with_"]
    return read_from(with_, source.dialect, source.text, source.tokens)  # type: ignore[return-value]


def from_items(source: StatementText) -> exp.Expr:
    """The first item of a text that may follow FROM; it holds the others as its joins."""
    select = _between(source, "SELECT * FROM", "")
    first: exp.Expr = select.args["from_"].this
    known = set(select.args) - {"expressions", "from_", "joins", "laterals", "kind", "hint", "distinct", "limit"}
    other = next((key for key in known if select.args[key]), None)
    if other is not None:
        raise unsupported(f"{other.upper().strip('_')} after the tables of a FROM; put it into a subquery; it")
    for key in ("joins", "laterals"):
        if select.args.get(key):
            first.set(key, [*(first.args.get(key) or ()), *select.args[key]])
    return read_from(first, source.dialect, source.text, source.tokens)


def _between(source: StatementText, before: str, after: str) -> exp.Expr:
    """The tree of a part of a text, with words around it that are not there."""
    around = [
        [Token(t.token_type, t.text, t.line, t.col, -2, -2) for t in tokens_of(words, source.dialect)]
        for words in (before, after)
    ]
    select = loose(source.with_([*around[0], *source.tokens, *around[1]]).parse())
    if not isinstance(select, exp.Select):
        raise unsupported(f"{source.written} here")
    return select


def refuse(tree: exp.Expr, what: str, *names: str) -> None:
    """Raise UnsupportedFeature for a clause that the tree holds and we do not carry out."""
    for name in names:
        if tree.args.get(name):
            raise unsupported(f"{what} … {name.upper().strip('_')}")


def target_of(table: exp.Expr, what: str) -> tuple[str, ...]:
    """The name of the table that a statement changes."""
    if not isinstance(table, exp.Table) or not table.name or table.args.get("joins"):
        raise unsupported(f"{what} of anything but a table")
    if table.args.get("when") or table.args.get("version"):
        raise InvalidConfig(f"{what} of an old version of {table.name}: only the newest version can be changed.")
    return parts_of(table)
