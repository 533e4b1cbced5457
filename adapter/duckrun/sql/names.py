"""Names that a statement uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from itertools import count

from sqlglot import exp
from sqlglot.errors import SqlglotError, TokenError
from sqlglot.tokens import Token

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.sql.abridged import abridged
from duckrun.sql.dialects import text_in, tokens_in, tree_in, tree_of, trees_in
from duckrun.sql.pieces import Key, all_in, dialect_of, has_any
from duckrun.sql.placing import InText, InTree
from duckrun.sql.quoting import quote_identifier
from duckrun.sql.result_names import names_behind
from duckrun.sql.scopes import Names, Sight, Source, common_tables, parts_of_column

DIALECTS = ("duckdb", "spark")
NO_NAMES = Names()


def transpile(expression: str, read: str, write: str, *, is_definition: bool = False) -> str:
    """Translate one expression between dialects; the same dialect returns the text unchanged.

    Args:
        expression: The expression.
        read: Its dialect.
        write: Dialect of the result.
        is_definition: The result is stored in a table's definition; see for_spark().

    Raises:
        InvalidConfig: if sqlglot cannot parse the expression.
        UnsupportedFeature: for a part that the other dialect lacks.
    """
    if read == write:
        return expression
    tree = read_expression(expression, read, f"Cannot read {expression!r} as {read} SQL")
    try:
        return text_in(tree, write, is_definition=is_definition)
    except UnsupportedFeature as error:
        if is_definition:  # whichever engine runs
            error.remedy = f"the table's definition has it in {write.capitalize()}'s SQL, so write what that has too"
        raise


class Readable:
    """A block that turns the parser's error about a text into an InvalidConfig."""

    # Not a generator, which takes three times as long: each part of a statement is parsed in one.
    def __init__(self, what: str) -> None:
        """Begin the message with ``what``."""
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SqlglotError):
            raise InvalidConfig(f"{self._what}: {_plain_error(error)}") from error


def read_tokens(text: str, dialect: str) -> list[Token]:
    """Return the tokens of a text.

    Raises:
        InvalidConfig: for an open quote or comment.
    """
    with Readable(f"Cannot read this as {dialect} SQL"):
        return tokens_in(text, dialect)


def read_tree(tokens: Sequence[Token], text: str, dialect: str) -> exp.Expr:
    """Return the tree of a part of a statement, by its tokens and the statement's text.

    Raises:
        InvalidConfig: if sqlglot cannot parse it, or if it is empty.
    """
    what = f"Cannot read this as {dialect} SQL"
    if not tokens:
        raise InvalidConfig(f"{what}: an expression is missing.")
    with Readable(what):
        return tree_of(tokens, text, dialect)


def read_expression(text: str, dialect: str, what: str) -> exp.Expr:
    """Return the tree of one expression or statement.

    Args:
        text: the expression.
        dialect: its dialect.
        what: the start of the message.

    Raises:
        InvalidConfig: if sqlglot cannot parse it.
    """
    with Readable(what):
        return tree_in(text, dialect)


def _plain_error(error: SqlglotError) -> str:
    """Return the parser's first error with its place, without terminal colours."""
    errors = getattr(error, "errors", None)
    if not errors:
        return "a quote or a comment has no end" if isinstance(error, TokenError) else str(error)
    first = errors[0]
    why = _WITHOUT_PART.sub("an expression is missing", first["description"])
    return f"{why} at line {first['line']}, column {first['col']}, near {first['highlight']!r}"


_WITHOUT_PART = re.compile(r"Required keyword: '\w+' missing for <class '[\w.]+'>")


def columns_of(expression: str, dialect: str = "duckdb", sides: Collection[str] = ()) -> set[tuple[str, str]]:
    """Return the columns that an expression uses, as (side or "", column).

    A struct field counts as its column.

    Args:
        expression: the expression.
        dialect: its dialect.
        sides: the aliases that may qualify a column.

    >>> columns_of("s.a + 1")
    {('', 's')}
    >>> columns_of("source.s.a", sides=("target", "source"))
    {('source', 's')}
    """
    return {_of_side(path, sides) for path in paths_of(expression, dialect)}


# Cached: a merge needs the columns of its expressions several times.
@lru_cache(maxsize=16)
def paths_of(expression: str, dialect: str = "duckdb") -> frozenset[tuple[str, ...]]:
    """Return the names of each column or struct field of an expression; at most four per path.

    Raises:
        InvalidConfig: if sqlglot cannot parse the expression.
    """
    with Readable(f"Cannot read {expression!r} as {dialect} SQL"):
        short, _ = abridged(expression, dialect, is_statement=False)
        tree = tree_of(tokens_in(short, dialect), expression, dialect)
    return frozenset(tuple(part.name for part in column.parts) for column in tree.find_all(exp.Column))


def _of_side(path: Sequence[str], sides: Collection[str]) -> tuple[str, str]:
    qualified = len(path) > 1 and path[0].lower() in sides
    return (path[0].lower(), path[1]) if qualified else ("", path[0])


def parse_query(sql: str, dialect: str) -> exp.Expr:
    """Return the tree of one query.

    Raises:
        InvalidConfig: for a text that cannot be parsed, or that is not one statement.
        UnsupportedFeature: for a statement that is not a query.
    """
    if dialect not in DIALECTS:
        raise InvalidConfig(f"Unknown SQL dialect {dialect!r}; the dialects are {', '.join(DIALECTS)}.")
    with Readable(f"Cannot read this statement as {dialect} SQL"):
        trees = trees_in(sql, dialect)
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
    """Replace every table that ``resolve`` knows, under the alias or name that it had.

    In the text that the tree was read from, nothing else changes. Names of common table expressions
    stay where they are in scope. A table gets a unique alias if its schema qualifies columns
    (``sales.orders.id``), or if it sees another table of its name. Its columns are rewritten with
    that alias.

    Args:
        tree: a query or an expression, which stays unchanged.
        resolve: returns the replacement of a table; None for a name that stays.
        names: finds tables and columns.
        call: like ``resolve``, for a table function.
        dialect: the dialect of the text that the caller needs. A tree in this dialect is not
            copied; the result is a text without a tree.
        inner: True for a subquery. Queries around it may use the names that DuckDB gives to its
            expressions.
    """
    if not has_any(tree, exp.Table):
        return tree
    edit = editing(tree, dialect)
    root = edit.root
    pairs: list[tuple[exp.Table, exp.Expr]] = []
    common = common_tables(root)
    for table in all_in(root, exp.Table):
        is_call = isinstance(table.this, exp.Func)
        if not is_call and (not table.name or id(table) in common):
            continue
        replacement = call(table) if is_call else resolve(table)
        if replacement is not None:
            pairs.append((table, replacement))
    if not pairs:
        return tree
    spelled = _Spelled()
    aliases = _unique_aliases(edit, pairs, common, names, spelled)
    for table, replacement in pairs:
        is_call = isinstance(table.this, exp.Func)
        name = table.this.name if is_call else table.name
        alias = aliases.get(id(table), name)
        if table.alias:
            replacement.set("alias", table.args["alias"].copy())
        elif alias:
            alias = alias if is_call else spelled.alias(alias, table.parts)
            replacement.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        edit.put(replacement, table, aliased=bool(table.alias))
    _keep_generated_names(edit, inner)
    return edit.result


def editing(tree: exp.Expr, dialect: str) -> InText | InTree:
    """Return replacements in the text of a tree, or in a copy of it if it has another dialect."""
    return InText(tree, text_in) if InText.fits(tree, dialect) else InTree(tree)


def _keep_generated_names(edit: InText | InTree, inner: bool) -> None:
    """Alias the changed expressions of inner queries that DuckDB names by their texts."""
    root = edit.root if isinstance(edit, InText) else edit.result
    for piece, changes in list(edit.changed()):
        if dialect_of(piece) != "duckdb":
            continue
        outermost = inner or piece is not root
        text, tokens = piece.meta[Key.PIECE][0], piece.meta[Key.ORIGINAL].tokens
        for end, name in names_behind(text, tokens, changes, outermost=outermost):
            edit.append(piece, end, f" AS {quote_identifier(name)}")


def _unique_aliases(
    edit: InText | InTree,
    pairs: Sequence[tuple[exp.Table, exp.Expr]],
    common: Mapping[int, exp.CTE],
    names: Names,
    spelled: _Spelled,
) -> dict[int, str]:
    """Return the unique aliases of tables by id, and rewrite the columns of these tables.

    A table needs one if its bare name does not find its columns. The alias is empty for a table
    that keeps its schema.
    """
    root = edit.root
    sources = {
        id(table): names.source(table, loses_name=not _keeps_name(table, replacement, names.schema))
        for table, replacement in pairs
    }
    replaced = {
        id(table): sources[id(table)] for table, _ in pairs if not table.alias and not isinstance(table.this, exp.Func)
    }
    if not _may_share(root, pairs) and not _has_qualified(root, replaced.values()):
        return {}
    sight = Sight(root, sources, common)
    unbound = _columns_of_unused(root, common)
    meant = [
        (column, replacement)
        for column in all_in(root, exp.Column)
        if id(column) not in unbound and (replacement := sight.meant(column)) is not None
    ]
    qualified = {id(source.node) for column, (source, length) in meant if length > 1}
    aliased = (sight.shared() | qualified) & set(replaced)
    whole = {
        id(table): replacement
        for table, replacement in pairs
        if id(table) in aliased and not replaced[id(table)].loses_name
    }
    qualifiers = {
        id(column): _kept_name(column, length, whole[id(source.node)])
        for column, (source, length) in meant
        if id(source.node) in whole
    }
    # A changed qualifier could mean a struct column of an inner query: the a of a.b.t.
    for column, (source, length) in meant:
        key = id(source.node)
        if key in whole and not sight.still_means(column, source, length, qualifiers[id(column)]):
            del whole[key]
    for column, (source, length) in meant:
        key = id(source.node)
        if key not in whole and key in aliased:
            edit.qualify(column, length, [spelled.alias(source.alias, column.parts[:length])])
        elif key in whole and (named := qualifiers[id(column)]) is not None:
            edit.qualify(column, length, named)
    return {key: "" if key in whole else replaced[key].alias for key in aliased}


def _columns_of_unused(root: exp.Expr, common: Mapping[int, exp.CTE]) -> set[int]:
    """Return the ids of the columns in common table expressions that nothing reads.

    DuckDB does not bind such an expression, so a name in it may be ambiguous.
    """
    if not has_any(root, exp.CTE):
        return set()
    used = {id(cte) for cte in common.values()}
    unused = [cte for cte in all_in(root, exp.CTE) if id(cte) not in used]
    return {id(column) for cte in unused for column in all_in(cte, exp.Column)}


def _kept_name(column: exp.Column, length: int, table: exp.Expr) -> list[str] | None:
    """Return the new qualifier of a column whose table keeps its schema; None if it stays.

    A qualifier with a catalog, the first of ``length`` names, gets the catalog of the replacement.
    """
    if length == 1 or (length == 2 and column.parts[0].name.lower() == table.text("db").lower()):
        return None
    return [part for part in (table.text("catalog"), table.text("db"), table.text("this"))[-length:] if part]


class _Spelled:
    """Aliases of tables, in one letter case per spelling of the table's name.

    Names of result columns contain the alias. Its case tells whether ``t.id`` or ``a.t.id`` was
    written.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, str]] = {}

    def alias(self, alias: str, parts: Sequence[exp.Expr]) -> str:
        """Return the alias of a table for one spelling of its name."""
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
    """Return True if some column name may begin with a table's schema or catalog."""
    first = {name for source in sources for name in (source.schema.lower(), *source.catalogs) if name}
    columns = (column for column in all_in(root, exp.Column) if column.args.get("table") is not None)
    return any(parts_of_column(column)[0].lower() in first for column in columns)


def _may_share(root: exp.Expr, pairs: Sequence[tuple[exp.Table, exp.Expr]]) -> bool:
    """Return True if two tables anywhere in the tree have the same name."""
    bare = [table for table, _ in pairs if not table.alias and not isinstance(table.this, exp.Func)]
    full = {(table.catalog.lower(), table.db.lower(), table.name.lower()) for table in bare}
    names = {name for _, _, name in full}
    if len(names) < len(full):
        return True
    bare_ids = {id(table) for table in bare}
    others = (exp.Table, exp.Subquery, exp.Lateral, exp.Values, exp.Unnest)
    return any(id(node) not in bare_ids and node.alias_or_name.lower() in names for node in all_in(root, *others))


def _keeps_name(table: exp.Table, replacement: exp.Expr, schema: str) -> bool:
    """Return True if the replacement has the table's name and schema: columns still find it."""
    return (
        isinstance(replacement, exp.Table)
        and replacement.name.lower() == table.name.lower()
        and replacement.db.lower() == (table.db or schema or replacement.db).lower()
    )
