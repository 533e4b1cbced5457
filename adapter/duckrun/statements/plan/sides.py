"""The two sides of a statement that changes rows: which column of its expressions is the target's, which the source's.

Engines know the sides as ``target`` and ``source``; statements name them as they like. sqlglot's trees are rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import Token, exp

from duckrun.errors import InvalidConfig
from duckrun.sql.written import dialect_of, put_in_place, written
from duckrun.statements.parse.tokens import StatementText, parted, step_of, tokens_of

TARGET, SOURCE = "target", "source"


@dataclass(frozen=True)
class Item:
    """One table or subquery of a source: its alias, and its columns with the names that the source gives them. ``table`` is the
    qualified name of a table without an alias.
    """

    alias: str
    columns: dict[str, str]
    table: str = ""

    def given(self, name: str) -> str | None:
        """The source's name of a column, which is named in any case; None for one that is not there."""
        return {column.lower(): given for column, given in self.columns.items()}.get(name.lower())


@dataclass
class Sides:
    """The columns that an expression may name. ``visible`` limits bare names to one side, where the other has no row."""

    table: str
    alias: str
    columns: Sequence[str]
    items: Sequence[Item] = ()
    schema: str = "main"
    """The schema of a table that is named without one."""
    _of_target: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._of_target = {name.lower(): name for name in self.columns}

    def rewritten(self, tree: exp.Expr, visible: str | None = None) -> exp.Expr:
        """The expression over ``target`` and ``source``. Raises InvalidConfig for a column of neither, or of both."""
        root = exp.Paren(this=tree.copy())  # a parent, so that the whole tree may be one column
        for column in list(root.find_all(exp.Column)):
            if _is_bound(column):
                continue
            if isinstance(column.this, exp.Star):
                raise InvalidConfig(f"Table {self.table}: * cannot stand in an expression.")
            inner = list(_inner_tables(column))
            found = self._resolved(column, inner, visible)
            if found is None:
                continue
            captured = {each.alias_or_name.lower() for each in inner} & {
                node.table for node in found.find_all(exp.Column)
            }
            if captured:
                raise InvalidConfig(
                    f"Name the {captured.pop()} of this subquery otherwise; {column.sql()} would mean it."
                )
            put_in_place(found, column)
        return root.this

    def assigned(self, name: str) -> str:
        """The column of the target that is set, as the table spells it; its alias may stand before it. Raises InvalidConfig."""
        lower = name.lower()
        found = self._of_target.get(lower) or self._of_target.get(lower.removeprefix(f"{self.alias.lower()}."))
        if found is None:
            raise InvalidConfig(f"Table {self.table} has no column {name!r} to set; it has {', '.join(self.columns)}.")
        return found

    def _resolved(self, column: exp.Column, inner: Sequence[exp.Expr], visible: str | None) -> exp.Expr | None:
        parts = [part for part in (column.catalog, column.db, column.table, column.name) if part]
        nested = column.find_ancestor(exp.Select) is not None
        for length in (1, 2, 3):  # alias.column, schema.table.column, lake.schema.table.column
            qualifier, rest = parts[:length], parts[length:]
            if not rest or any(self._is_named(each, qualifier) for each in inner):
                continue
            found = self._qualified(qualifier, rest[0])
            if found is not None:
                return _with_fields(found, rest[1:])
        if nested:
            return None  # a name of the subquery's own tables, or one that the engine finds outside of it
        found = self._bare(parts[0], visible)
        if found is None and len(parts) == 1 and (row := self._whole_row(parts[0], visible)) is not None:
            return row
        if found is None:
            raise InvalidConfig(f"{'.'.join(parts)} is no column here. {self._known()}")
        return _with_fields(found, parts[1:])

    def _is_named(self, source: exp.Expr, qualifier: Sequence[str]) -> bool:
        """True if a qualifier means a table of a subquery; with a schema, no table that has an alias."""
        *before, name = (part.lower() for part in qualifier)
        if name != source.alias_or_name.lower():
            return False
        if not before:
            return True
        if source.alias or not isinstance(source, exp.Table):
            return False
        return before[-1] == (source.db or self.schema).lower() and before[0] in (before[-1], source.catalog.lower())

    def _qualified(self, qualifier: Sequence[str], name: str) -> exp.Column | None:
        full = ".".join(qualifier).lower()
        own = qualifier[-1].lower() == self.alias.lower() if len(qualifier) == 1 else full == self.table.lower()
        if own and len(qualifier) == 1:
            # DuckDB takes a bare name for the one table that has the column.
            own = name.lower() in self._of_target or all(each.alias.lower() != full for each in self.items)
        if own:
            if name.lower() not in self._of_target:
                raise InvalidConfig(f"Table {self.table} has no column {name}. {self._known()}")
            return column_of(TARGET, self._of_target[name.lower()])
        for item in self.items:
            named = item.alias.lower() if len(qualifier) == 1 else item.table.lower()
            if named and (named == full or (len(qualifier) == 2 and named.endswith(f".{full}"))):
                given = item.given(name)
                if given is None:
                    raise InvalidConfig(f"{item.alias} has no column {name}. {self._known()}")
                return column_of(SOURCE, given)
        return None

    def _whole_row(self, alias: str, visible: str | None) -> exp.Expr | None:
        """All columns of a table as one struct, which its alias means where no column has that name; None for another name."""
        fields: list[tuple[str, exp.Column]] = []
        if visible != SOURCE and alias.lower() == self.alias.lower():
            fields = [(name, column_of(TARGET, name)) for name in self.columns]
        elif visible != TARGET:
            item = next((each for each in self.items if each.alias.lower() == alias.lower()), None)
            fields = [] if item is None else [(name, column_of(SOURCE, given)) for name, given in item.columns.items()]
        if not fields:
            return None
        pairs = [exp.PropertyEQ(this=exp.to_identifier(name, quoted=True), expression=value) for name, value in fields]
        return exp.Struct(expressions=pairs)

    def _bare(self, name: str, visible: str | None) -> exp.Column | None:
        found: list[tuple[str, exp.Column]] = []
        if visible != SOURCE and name.lower() in self._of_target:
            found.append((self.alias, column_of(TARGET, self._of_target[name.lower()])))
        for item in self.items if visible != TARGET else ():
            given = item.given(name)
            if given is not None:
                found.append((item.alias, column_of(SOURCE, given)))
        if len(found) > 1:
            places = " and ".join(f"{alias}.{name}" for alias, _ in found)
            raise InvalidConfig(f"The column {name} is ambiguous: it may be {places}. Write one of them.")
        return found[0][1] if found else None

    def _known(self) -> str:
        known = [f"{self.alias} has {', '.join(self.columns)}"]
        known += [f"{item.alias} has {', '.join(item.columns)}" for item in self.items]
        return "; ".join(known) + "."


def names_side(tree: exp.Expr, side: str) -> bool:
    """True if a rewritten expression names a column of a side."""
    return any(column.table == side for column in tree.find_all(exp.Column))


def has_subquery(tree: exp.Expr | None) -> bool:
    return tree is not None and tree.find(exp.Query) is not None


def conjuncts(tree: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that AND joins, each with its own part of the text."""
    if tree is None:
        return []
    bare = tree.unnest() if isinstance(tree, exp.Paren) else tree
    if not isinstance(bare, exp.And):
        return [tree]
    source = _source_of(tree)
    if source is None:
        return [part for side in (bare.left, bare.right) for part in conjuncts(side)]
    parts = _and_parts(source)
    if len(parts) < 2 or any(word in _LOOSER for part in parts for word in _outer_words(part)):
        return [tree]
    return [found for part in parts for found in conjuncts(part.parse())]


def equality(tree: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    """The two sides of a condition that is an equality and nothing else, each with its own part of the text."""
    bare = tree.unnest() if isinstance(tree, exp.Paren) else tree
    if not isinstance(bare, exp.EQ):
        return None
    source = _source_of(tree)
    if source is None:
        return bare.left, bare.right
    parts = parted(source, "=", "==")
    if len(parts) != 2 or any(word in (*_LOOSER, *_BESIDE_EQUAL) for part in parts for word in _outer_words(part)):
        return None
    left, right = (part.parse() for part in parts)
    return left, right


_LOOSER = ("OR", "->")
_BESIDE_EQUAL = (
    "AND", "NOT", "IS", "IN", "LIKE", "ILIKE", "GLOB", "SIMILAR", "BETWEEN", "<", ">", "<=", ">=", "<>", "!=",
)  # fmt: skip


def _source_of(tree: exp.Expr) -> StatementText | None:
    """The text of a piece that nothing was changed in, without brackets around it."""
    text, dialect = written(tree), dialect_of(tree)
    if text is None or dialect is None:
        return None
    source = StatementText(text, dialect, tuple(tokens_of(text, dialect)))
    while isinstance(tree, exp.Paren):
        source, tree = source.with_(source.tokens[1:-1]), tree.this
    return source


def _and_parts(source: StatementText) -> list[StatementText]:
    """The parts between AND; that of BETWEEN joins nothing."""
    parts: list[list[Token]] = [[]]
    for part in parted(source, "AND"):
        if "BETWEEN" in _outer_words(source.with_(parts[-1])):
            between = [word for word in _outer_words(source.with_(parts[-1])) if word in ("BETWEEN", "AND")]
            if between.count("BETWEEN") > between.count("AND"):
                first = source.tokens.index(part.tokens[0]) if part.tokens else 0
                parts[-1] += [source.tokens[first - 1], *part.tokens]
                continue
        parts.append(list(part.tokens))
    return [source.with_(part) for part in parts[1:]]


def _outer_words(source: StatementText) -> list[str]:
    """The keywords outside of all brackets."""
    depth, found = 0, []
    for token, word in zip(source.tokens, source.words, strict=True):
        if depth == 0:
            found.append(word)
        depth += step_of(token)
    return found


def _is_bound(column: exp.Column) -> bool:
    """True for the variable of ``[x + 1 for x in list]``."""
    around = column.find_ancestor(exp.Comprehension)
    while around is not None:
        if not column.table and around.expression.name.lower() == column.name.lower():
            return True
        around = around.find_ancestor(exp.Comprehension)
    return False


def all_of(conditions: Sequence[exp.Expr]) -> exp.Expr:
    """Conditions joined by AND; of none, true."""
    whole = [c if isinstance(c, exp.Condition) else exp.Paren(this=c.copy()) for c in conditions]
    return exp.and_(*whole) if whole else exp.true()


def column_of(side: str, name: str) -> exp.Column:
    """A column of a side, as a rewritten expression names it."""
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(side))


def _with_fields(column: exp.Column, fields: Sequence[str]) -> exp.Expr:
    """A column, or a field inside of it."""
    found: exp.Expr = column
    for name in fields:
        found = exp.Dot(this=found, expression=exp.to_identifier(name, quoted=True))
    return found


def _inner_tables(column: exp.Column) -> Iterator[exp.Expr]:
    """The tables of the subqueries around a column."""
    select = column.find_ancestor(exp.Select)
    while select is not None:
        from_ = select.args.get("from_")
        for source in [*([from_.this] if from_ else []), *(join.this for join in select.args.get("joins") or ())]:
            yield source
            yield from (join.this for join in source.args.get("joins") or ())
        select = select.find_ancestor(exp.Select)
