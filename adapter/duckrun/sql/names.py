"""SQL text: quoting, dialects, and the names that a statement uses. Statements become specs here too (later)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.sql.abridged import abridged
from duckrun.sql.dialects import text_in, tokens_in, tree_in, tree_of, trees_in
from duckrun.sql.result_names import names_behind
from duckrun.sql.scopes import Names, Sight, Source, common_tables, parts_of_column
from duckrun.sql.written import InText, InTree, all_in, dialect_of, has_any, text_of_piece, tokens_of_piece

DIALECTS = ("duckdb", "spark")
NO_NAMES = Names()


def quote_identifier(*parts: str) -> str:
    """A name of one or more parts, each in double quotes (DuckDB, DataFusion).

    >>> print(quote_identifier("sales", 'odd "name'))
    "sales"."odd ""name"
    """
    return ".".join(['"' + part.replace('"', '""') + '"' for part in parts])


def quote_literal(value: str) -> str:
    """A string literal in standard SQL.

    >>> print(quote_literal("it's"))
    'it''s'
    """
    return "'" + value.replace("'", "''") + "'"


def with_values(sql: str, values: Iterable[str | int]) -> str:
    """A statement with literals in the place of ``?``, or of ``$1``, ``$2``, …. To bind a value DuckDB imports pandas, a third of a
    second a process.

    >>> print(with_values('SELECT "a?" FROM t WHERE b = ? AND c > ?', ["it's", 3]))
    SELECT "a?" FROM t WHERE b = 'it''s' AND c > 3
    """
    given = list(values)
    places = count()

    def literal(found: re.Match[str]) -> str:
        if found[0][0] in "'\"":
            return found[0]
        value = given[next(places) if found[0] == "?" else int(found[0][1:]) - 1]
        return str(value) if isinstance(value, int) else quote_literal(value)

    return re.sub(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\?|\$\d+""", literal, sql)


def fresh_name(wanted: str, taken: Iterable[str]) -> str:
    """A name that none of some columns has, whatever its case: the one that is wanted, or it with a number.

    >>> fresh_name("n", ["N", "n_1", "x"])
    'n_2'
    """
    used = {name.lower() for name in taken}
    names = (wanted if number == 0 else f"{wanted}_{number}" for number in count())
    return next(name for name in names if name.lower() not in used)


def transpile(expression: str, read: str, write: str) -> str:
    """One expression from one dialect to the other; the same dialect returns the text untouched."""
    if read == write:
        return expression
    try:
        return text_in(tree_in(expression, read), write)
    except SqlglotError as error:
        raise _unreadable(expression, read, error) from error


def _unreadable(expression: str, dialect: str, error: SqlglotError) -> InvalidConfig:
    return InvalidConfig(f"Cannot read {expression!r} as {dialect} SQL: {plain_error(error)}")


def plain_error(error: SqlglotError) -> str:
    """The first finding of the parser, with its place and without terminal colours."""
    found = getattr(error, "errors", None)
    if not found:
        return str(error)
    first = found[0]
    return f"{first['description']} at line {first['line']}, column {first['col']}, near {first['highlight']!r}"


SIDES = ("target", "source")
"""The aliases of the table and of the rows in the expressions of a spec."""


def columns_of(expression: str, dialect: str = "duckdb", sides: Collection[str] = ()) -> set[tuple[str, str]]:
    """The columns that an expression names, as (one of the aliases ``sides`` or "", column). Of a field it is the struct's column.

    >>> columns_of("s.a + 1")
    {('', 's')}
    >>> columns_of("source.s.a", sides=SIDES)
    {('source', 's')}
    """
    return {_of_side(path, sides) for path in paths_of(expression, dialect)}


def paths_of(expression: str, dialect: str = "duckdb") -> set[tuple[str, ...]]:
    """The names of each column of an expression, with those of the field that is read of it. Of deep fields these are the first four."""
    try:
        short, _ = abridged(expression, dialect, is_statement=False)
        tree = tree_of(tokens_in(short, dialect), expression, dialect)
    except SqlglotError as error:
        raise _unreadable(expression, dialect, error) from error
    return {tuple(part.name for part in column.parts) for column in tree.find_all(exp.Column)}


def _of_side(path: Sequence[str], sides: Collection[str]) -> tuple[str, str]:
    qualified = len(path) > 1 and path[0].lower() in sides
    return (path[0].lower(), path[1]) if qualified else ("", path[0])


@lru_cache(maxsize=16)
def dotted_names(sql: str, dialect: str = "duckdb") -> tuple[tuple[str, ...], ...]:
    """The chains of names joined by dots in a statement, from its tokens: a superset of the tables it uses. Each spelling once, in the
    order of the text.

    Needs no parse, so it holds for every statement that the engine itself understands. A dbt node asks several times for its text.
    """
    return tuple(dict.fromkeys(_chains(sql, dialect)))


def _chains(sql: str, dialect: str) -> Iterator[tuple[str, ...]]:
    chain: list[str] = []
    expect_name = True
    for token in sqlglot.tokenize(sql, read=dialect):
        if token.token_type == TokenType.DOT and chain:
            expect_name = True
            continue
        name = token.text if _may_be_name(token) else None
        if chain and (name is None or not expect_name):
            yield tuple(chain)
            chain = []
        if name is not None:
            chain.append(name)
            expect_name = False
    if chain:
        yield tuple(chain)


def _may_be_name(token: sqlglot.Token) -> bool:
    if token.token_type in (TokenType.STRING, TokenType.NUMBER):
        return False
    return (
        token.token_type in (TokenType.VAR, TokenType.IDENTIFIER) or token.text[:1].isalpha() or token.text[:1] == "_"
    )


def parse_query(sql: str, dialect: str) -> exp.Expr:
    """The tree of one SELECT. Raises InvalidConfig for what cannot be read, UnsupportedFeature for what is no query."""
    if dialect not in DIALECTS:
        raise InvalidConfig(f"Unknown SQL dialect {dialect!r}; the dialects are {', '.join(DIALECTS)}.")
    try:
        trees = trees_in(sql, dialect)
    except SqlglotError as error:
        raise InvalidConfig(f"Cannot read this statement as {dialect} SQL: {plain_error(error)}") from error
    if len(trees) != 1:
        raise InvalidConfig(f"One statement at a time: this text holds {len(trees)}.")
    tree = trees[0]
    if not isinstance(tree, exp.Query | exp.Describe | exp.Summarize):
        raise UnsupportedFeature(
            f"{tree.key.upper()} is not a query. This session reads with sql(); write with table(), execute() or dbt."
        )
    return tree


def replace_tables(
    tree: exp.Expr,
    resolve: Callable[[exp.Table], exp.Expr | None],
    names: Names = NO_NAMES,
    call: Callable[[exp.Table], exp.Expr | None] = lambda table: None,
    dialect: str = "",
    inner: bool = False,
) -> exp.Expr:
    """The tree with every table that ``resolve`` knows put in place of its name, under the name's alias; in the text that the
    tree was read from, nothing else changes.

    Names of common table expressions are left alone where they are in scope. A table whose columns are qualified by its schema
    (``sales.orders.id``), or in sight of which another table has its name, gets an alias that no other table has. The columns
    that mean it are written with that alias.

    Args:
        tree: a query or an expression; it stays as it is.
        resolve: what stands in the place of a table; None for a name that stays.
        names: finds tables and columns.
        call: the same as ``resolve`` for a function that gives a table.
        dialect: the one that the result is wanted in as text: a tree that was read in it is then not copied, and becomes a text alone.
        inner: True for a query that stands in another one, which may use the names that DuckDB gives to its expressions.
    """
    if not has_any(tree, exp.Table):
        return tree
    edit: InText | InTree = InText(tree, text_in) if InText.fits(tree, dialect) else InTree(tree)
    root = edit.root
    pairs: list[tuple[exp.Table, exp.Expr]] = []
    common = common_tables(root)
    for table in all_in(root, exp.Table):
        is_call = isinstance(table.this, exp.Func)
        if not is_call and (not table.name or id(table) in common):
            continue
        found = call(table) if is_call else resolve(table)
        if found is not None:
            pairs.append((table, found))
    if not pairs:
        return tree
    spelled = _Spelled()
    aliases = _unique_aliases(edit, pairs, common, names, spelled)
    for table, found in pairs:
        is_call = isinstance(table.this, exp.Func)
        name = table.this.name if is_call else table.name
        alias = aliases.get(id(table), name)
        if table.alias:
            found.set("alias", table.args["alias"].copy())
        elif alias:
            alias = alias if is_call else spelled.alias(alias, table.parts)
            found.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        edit.put(found, table, aliased=bool(table.alias))
    _keep_generated_names(edit, inner)
    return edit.result


def _keep_generated_names(edit: InText | InTree, inner: bool) -> None:
    """Alias the expressions of inner queries that DuckDB names by their texts, where these change."""
    root = edit.root if isinstance(edit, InText) else edit.result
    for piece, changes in list(edit.changed()):
        if dialect_of(piece) != "duckdb":
            continue
        outermost = inner or piece is not root
        for end, name in names_behind(text_of_piece(piece), tokens_of_piece(piece), changes, outermost=outermost):
            edit.append(piece, end, f" AS {quote_identifier(name)}")


def _unique_aliases(
    edit: InText | InTree,
    pairs: Sequence[tuple[exp.Table, exp.Expr]],
    common: Mapping[int, exp.CTE],
    names: Names,
    spelled: _Spelled,
) -> dict[int, str]:
    """Aliases of the tables whose name alone would not find their columns, by the table's id. Empty for one that keeps its
    schema. The columns of such tables are rewritten.
    """
    root = edit.root
    sources = {
        id(table): names.source(table, loses_name=not _keeps_name(table, found, names.schema)) for table, found in pairs
    }
    replaced = {
        id(table): sources[id(table)] for table, _ in pairs if not table.alias and not isinstance(table.this, exp.Func)
    }
    if not _may_share(root, pairs) and not _has_qualified(root, replaced.values()):
        return {}
    sight = Sight(root, sources, common)
    meant = [(column, found) for column in all_in(root, exp.Column) if (found := sight.meant(column)) is not None]
    qualified = {id(source.node) for column, (source, length) in meant if length > 1}
    aliased = (sight.shared() | qualified) & set(replaced)
    whole = {id(table): found for table, found in pairs if id(table) in aliased and not replaced[id(table)].loses_name}
    for column, (source, length) in meant:
        key = id(source.node)
        if key in whole:
            if length == 3 or (length == 2 and column.parts[0].name.lower() != source.schema.lower()):
                named = [whole[key].text(part) for part in ("catalog", "db", "this")][-length:]
                edit.qualify(column, length, [part for part in named if part])
        elif key in aliased:
            edit.qualify(column, length, [spelled.alias(source.alias, column.parts[:length])])
    return {key: "" if key in whole else replaced[key].alias for key in aliased}


class _Spelled:
    """Aliases of tables, each in another letter case for each way to write the table's name.

    Names of result columns hold the alias: its case tells whether ``t.id`` or ``a.t.id`` was written.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, str]] = {}

    def alias(self, alias: str, parts: Sequence[exp.Expr]) -> str:
        """The alias of a table for the parts of its name as written."""
        of_table = self._known.setdefault(alias.lower(), {})
        written = ".".join(part.sql() for part in parts)
        if written not in of_table:
            number, letters = len(of_table), count()
            of_table[written] = "".join(
                each.swapcase() if each.lower() != each.upper() and number >> next(letters) & 1 else each
                for each in (alias if not of_table else next(iter(of_table.values())))
            )
        return of_table[written]


def _has_qualified(root: exp.Expr, sources: Collection[Source]) -> bool:
    """True if the name of some column may begin with a table's schema or catalog."""
    first = {name for source in sources for name in (source.schema.lower(), *source.catalogs) if name}
    return any(column.table and parts_of_column(column)[0].lower() in first for column in all_in(root, exp.Column))


def _may_share(root: exp.Expr, pairs: Sequence[tuple[exp.Table, exp.Expr]]) -> bool:
    """True if some name is that of two tables, wherever they stand."""
    bare = [table for table, _ in pairs if not table.alias and not isinstance(table.this, exp.Func)]
    full = {(table.catalog.lower(), table.db.lower(), table.name.lower()) for table in bare}
    names = {name for _, _, name in full}
    if len(names) < len(full):
        return True
    own = {id(table) for table in bare}
    others = (exp.Table, exp.Subquery, exp.Lateral, exp.Values, exp.Unnest)
    return any(id(node) not in own and node.alias_or_name.lower() in names for node in all_in(root, *others))


def _keeps_name(table: exp.Table, found: exp.Expr, schema: str) -> bool:
    """True for a table in whose place its own name stands, with its schema: columns find it as before."""
    return (
        isinstance(found, exp.Table)
        and found.name.lower() == table.name.lower()
        and found.db.lower() == (table.db or schema or found.db).lower()
    )
