"""Resolution of qualified columns to the tables of a query, in DuckDB's order.

DuckDB tells ``bronze.orders`` and ``silver.orders`` apart by their schemas. A scan that replaces a
table has an alias only, so columns are resolved here, before the schema is gone. DuckDB tries the
innermost query first. In each query it tries these readings in turn:

1. lake, schema and table,
2. schema (or lake) and table,
3. the table alone,
4. a struct column and its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from sqlglot import exp

from duckrun.errors import InvalidConfig
from duckrun.sql.pieces import all_in, has_any
from duckrun.sql.result_names import generated_name

Columns = Callable[[], Sequence[str] | None]
_BESIDE = ("joins", "laterals", "pivots", "sample")


@dataclass
class Source:
    """A table of a FROM clause."""

    node: exp.Expr
    name: str
    schema: str = ""
    """Empty for a table that only has an alias."""
    catalog: str = ""
    """The catalog as written."""
    catalogs: Collection[str] = ()
    """All names of its catalog, in lower case; empty if unknown, and then any name matches."""
    columns: Columns = lambda: None
    """Return the column names; None if they are unknown."""
    loses_name: bool = False
    """True if the table's replacement lacks its schema and name."""

    @property
    def label(self) -> str:
        """Qualified name for messages."""
        return ".".join(part for part in (self.catalog, self.schema, self.name) if part)

    @property
    def alias(self) -> str:
        """Alias that no other table has, however its name is written."""
        catalog = next(iter(self.catalogs), self.catalog)
        return ".".join(part for part in (catalog, self.schema, self.name) if part).lower()

    def is_named(self, parts: Sequence[str]) -> bool:
        """Return True if the name parts before a column's name mean this table."""
        *before, name = (part.lower() for part in parts)
        schema = self.schema.lower()
        if name != self.name.lower() or (before and not schema):
            return False
        if len(before) < 2:
            return not before or before[0] in (schema, *self.catalogs)
        return before[1] == schema and (not self.catalogs or before[0] in self.catalogs)

    @cached_property
    def names(self) -> frozenset[str] | None:
        """The column names in lower case; None if they are unknown."""
        columns = self.columns()
        return None if columns is None else frozenset(name.lower() for name in columns)

    def may_have(self, column: str) -> bool:
        return column == "*" or self.names is None or column.lower() in self.names


def parts_of_column(column: exp.Column) -> list[str]:
    return [part.name for part in column.parts]


def sources_of(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the tables of a query's FROM clause in order, including those in brackets."""
    from_ = select.args.get("from_")
    for item in [*([from_.this] if from_ is not None else []), *_beside(select)]:
        yield from _flat(item)


def _flat(item: exp.Expr, *, beside: bool = True) -> Iterator[exp.Expr]:
    if _is_bracket(item):
        yield from _flat(item.this)
    else:
        yield item
    for other in _beside(item) if beside else ():
        yield from _flat(other)


def _is_bracket(item: exp.Expr) -> bool:
    """Return True for brackets around tables of a FROM clause."""
    return isinstance(item, exp.Subquery) and not item.alias and not isinstance(item.this, exp.Query)


def _beside(node: exp.Expr) -> Iterator[exp.Expr]:
    for join in _joins_of(node):
        yield join.this if isinstance(join, exp.Join) else join


def _joins_of(node: exp.Expr) -> list[exp.Expr]:
    return [*(node.args.get("joins") or ()), *(node.args.get("laterals") or ())]


def other_source(node: exp.Expr, columns: Columns | None = None, cte: exp.CTE | None = None) -> Source:
    """Return a source that only has an alias.

    Args:
        node: a derived table, or the name of a common table expression.
        columns: returns the column names.
        cte: the common table expression that the node names.
    """
    alias = node.args.get("alias")
    listed = [column.name for column in alias.columns] if isinstance(alias, exp.TableAlias) else []
    columns = columns or (lambda: _columns_of(node, cte))
    return Source(node, node.alias_or_name, columns=(lambda: listed) if listed else columns)


def _columns_of(node: exp.Expr, cte: exp.CTE | None) -> list[str] | None:
    """Return the column names of a derived table or a CTE, if its SELECT list gives them."""
    query: exp.Expr | None = node.this if isinstance(node, exp.Subquery | exp.Lateral) else None
    if cte is not None:
        if cte.args["alias"].columns:
            return [column.name for column in cte.args["alias"].columns]
        query = cte.this
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select) or any(each.find(exp.Star, exp.Columns) for each in query.expressions):
        return None
    names = (each.output_name or generated_name(each.sql("duckdb")) for each in query.expressions)
    return [name for name in names if name]


@dataclass(frozen=True)
class _With:
    """The common table expressions visible at a place of a tree."""

    nearest: Mapping[str, exp.CTE]
    """Expressions of the nearest WITH, by name in lower case."""
    hidden: exp.CTE | None
    """The expression that contains the place, which does not see itself."""
    outer: _With | None

    def of(self, name: str) -> exp.CTE | None:
        around: _With | None = self
        while around is not None:
            cte = around.nearest.get(name)
            if cte is not None and cte is not around.hidden:
                return cte
            around = around.outer
        return None


def common_tables(root: exp.Expr) -> dict[int, exp.CTE]:
    """Return the common table expression of each table name that means one, by the table's id."""
    common: dict[int, exp.CTE] = {}
    top = root.root()
    if not has_any(top, exp.CTE):
        return common
    waiting: list[tuple[exp.Expr, _With | None]] = [(top, None)]
    while waiting:
        node, seen = waiting.pop()
        with_ = node.args.get("with_")
        if with_ is not None:
            nearest = {cte.alias.lower(): cte for cte in reversed(with_.expressions)}
            waiting += [
                (cte, _With(nearest, None if with_.args.get("recursive") else cte, seen)) for cte in with_.expressions
            ]
            seen = _With(nearest, None, seen)
        if isinstance(node, exp.Table) and not node.db and seen is not None:
            cte = seen.of(node.name.lower())
            if cte is not None:
                common[id(node)] = cte
        waiting += [(child, seen) for child in node.iter_expressions() if child is not with_]
    return common


@dataclass(frozen=True)
class Names:
    """Lookup of the tables and columns of a session."""

    schema: str = ""
    """Schema of unqualified names."""
    catalogs: Callable[[str], Collection[str]] = lambda catalog: ()
    """Return all names of a catalog by one of them ("" for unqualified names); empty if unknown."""
    columns: Callable[[exp.Table], Sequence[str] | None] = lambda table: None
    """Return the columns of a table. Called only if the meaning of a column depends on it."""

    @classmethod
    def of_lake(cls, *catalogs: str | None) -> Names:
        """Return a lookup that knows all names of one lake's catalog, and no columns."""
        known = tuple(dict.fromkeys(name.lower() for name in catalogs if name))
        return cls(catalogs=lambda catalog: known if not catalog or catalog.lower() in known else (catalog,))

    def source(self, table: exp.Table, *, loses_name: bool = True) -> Source:
        """Return a table in a query as a source, by its alias or its name."""
        columns = partial(self.columns, table)
        if table.alias or isinstance(table.this, exp.Func):
            return other_source(table, columns)
        catalogs = [name.lower() for name in self.catalogs(table.catalog)]
        catalogs = catalogs or [name for name in (table.catalog.lower(),) if name]
        return Source(table, table.name, table.db or self.schema, table.catalog, catalogs, columns, loses_name)

    def sight(self, root: exp.Expr) -> Sight:
        """Return the tables of a tree."""
        common = common_tables(root)
        tables = (table for table in all_in(root, exp.Table) if table.name and id(table) not in common)
        return Sight(root, {id(table): self.source(table) for table in tables}, common)


Levels = tuple[tuple[exp.Expr, ...], ...]


@dataclass(frozen=True)
class Place:
    """Tables and names visible at a place of a tree. All names of one clause share it."""

    levels: Levels = ()
    """The tables that a name may mean, per query, from the innermost query outwards."""
    in_select: bool = False
    """True inside a SELECT."""
    aliases: frozenset[str] = frozenset()
    """SELECT list aliases, in lower case; only in ORDER BY, HAVING, QUALIFY and DISTINCT ON."""
    variables: frozenset[str] = frozenset()
    """Variables of list comprehensions, in lower case: ``x`` in ``[x + 1 for x in list]``."""


_TOP = Place()
_AFTER_PROJECTION = (exp.Order, exp.Having, exp.Qualify, exp.Distinct)


def _places(root: exp.Expr) -> dict[int, Place]:
    """Return the place of each column and table of a tree, by id; places at the top are omitted."""
    # One walk from the root: climbing from each column is quadratic in the length of a chain.
    places: dict[int, Place] = {}
    top = root.root()
    if not has_any(top, exp.Query, exp.Comprehension):
        return places
    before: dict[int, Levels] = {}  # levels inside a derived table, and of a join's condition, by id
    waiting: list[tuple[exp.Expr, Place]] = [(top, _TOP)]
    while waiting:
        node, place = waiting.pop()
        if isinstance(node, exp.Column | exp.Table):
            places[id(node)] = place
        inside = outside = place
        outer: Sequence[str] = ()
        if isinstance(node, exp.Select):
            tables = tuple(sources_of(node))
            outside, outer = replace(place, in_select=True, aliases=frozenset()), ("with_",)
            inside = replace(outside, levels=(tables, *place.levels))
            before |= _levels_in(node, place.levels)
        elif isinstance(node, exp.Comprehension):
            inside = replace(place, variables=place.variables | {node.expression.name.lower()})
        elif isinstance(node, _AFTER_PROJECTION):
            inside = replace(place, aliases=_aliases_of(node.parent))
        elif isinstance(node, exp.Query):
            inside = replace(place, aliases=frozenset())
        if isinstance(node, exp.Join):
            inside, outside, outer = replace(inside, levels=before.get(id(node), place.levels)), inside, ("this",)
        elif id(node) in before:
            inside, outside, outer = replace(inside, levels=before[id(node)]), inside, _BESIDE
        for child in node.iter_expressions():
            waiting.append((child, outside if child.arg_key in outer else inside))
    return places


def _levels_in(select: exp.Select, outer: Levels) -> dict[int, Levels]:
    """Return the levels of each table and join of a FROM clause, by id.

    A derived table sees the tables before it, and the condition of a join the tables that it joins.
    DuckDB binds a comma after the joins: ``a, b JOIN c`` is ``a, (b JOIN c)``. So names inside of
    ``b JOIN c`` mean these tables first, then ``a``.
    """
    levels: dict[int, Levels] = {}
    from_ = select.args.get("from_")
    if from_ is not None:
        _add_levels(levels, from_.this, [*_joins_of(from_.this), *_joins_of(select)], outer)
    return levels


def _add_levels(levels: dict[int, Levels], first: exp.Expr, joins: Sequence[exp.Expr], outer: Levels) -> None:
    """Add the levels of tables that are joined to the first one."""
    done: tuple[exp.Expr, ...] = ()
    group: tuple[exp.Expr, ...] = ()
    for join in (None, *joins):
        item = first if join is None else join.this if isinstance(join, exp.Join) else join
        if isinstance(join, exp.Join) and not any(join.args.get(key) for key in _OF_JOIN):
            done, group = (*done, *group), ()
        around = (*((done,) if done else ()), *outer)
        left = (*((group,) if group else ()), *around)
        if item is not first and (inner := _joins_of(item)):
            _add_levels(levels, item, inner, left)
        elif _is_bracket(item):
            _add_levels(levels, item.this, _joins_of(item.this), left)
        levels[id(item)] = left
        group = (*group, *_flat(item, beside=item is not first))
        if join is not None and join is not item:
            levels[id(join)] = (group, *around)


_OF_JOIN = ("side", "kind", "method", "on", "using", "global_")
"""Parts that a comma between two tables lacks."""


def _aliases_of(query: exp.Expr | None) -> frozenset[str]:
    """Return the aliases of a SELECT list."""
    if not isinstance(query, exp.Select):
        return frozenset()
    return frozenset(each.alias.lower() for each in query.expressions if isinstance(each, exp.Alias))


class Sight:
    """The tables of a whole tree, for the lookup of its columns."""

    def __init__(self, root: exp.Expr, sources: dict[int, Source], common: Mapping[int, exp.CTE]) -> None:
        self._named = {key: source for key, source in sources.items() if source.schema}
        self._sources = dict(sources)
        self._common = common
        self._places = _places(root)

    def place(self, node: exp.Expr) -> Place:
        """Return the place of a column or table."""
        return self._places.get(id(node), _TOP)

    def of(self, node: exp.Expr) -> Source:
        if id(node) not in self._sources:
            self._sources[id(node)] = other_source(node, cte=self._common.get(id(node)))
        return self._sources[id(node)]

    def shared(self) -> set[int]:
        """Return the ids of replaced tables that see another table of their name."""
        ids: set[int] = set()
        for key, source in self._named.items():
            for level in self.place(source.node).levels:
                for other in map(self.of, level):
                    if other.name.lower() == source.name.lower() and other.alias != source.alias:
                        ids |= {key, id(other.node)}
        return ids

    def meant(self, column: exp.Column, outside: Sequence[Source] = ()) -> tuple[Source, int] | None:
        """Return the table of a column, and how many parts of the column's name are the table's.

        Args:
            column: the column.
            outside: the tables around the whole tree.

        Returns:
            None for a column whose name has no such parts.

        Raises:
            InvalidConfig: for a name that may mean two tables.
        """
        return self._meant(parts_of_column(column), self.place(column), outside)

    def still_means(self, column: exp.Column, source: Source, length: int, qualifier: Sequence[str] | None) -> bool:
        """Return True if a column of a source has the same meaning with another qualifier.

        Args:
            column: the column.
            source: its table.
            length: the number of names in its present qualifier.
            qualifier: the new qualifier; None if it stays.
        """
        behind = parts_of_column(column)[length:]
        if qualifier is None:
            return True
        if not behind:  # DuckDB takes the row b.t of a table for a column t where a table b is there
            return False
        try:
            meant = self._meant([*qualifier, *behind], self.place(column), ())
        except InvalidConfig:
            return False
        return meant is not None and meant[0] is source and meant[1] == len(qualifier)

    def _meant(self, parts: Sequence[str], place: Place, outside: Sequence[Source]) -> tuple[Source, int] | None:
        if len(parts) == 1 and parts[0].lower() in place.aliases:
            return None
        levels = [*([self.of(node) for node in level] for level in place.levels), outside]
        for sources in levels:
            for length in range(min(3, len(parts) - 1), 0, -1):
                matches = [s for s in sources if s.is_named(parts[:length]) and s.may_have(parts[length])]
                if matches:
                    return self._single(matches, parts, length)
            if any(s.names is not None and parts[0].lower() in s.names for s in sources):
                return None
            if len(parts) < 4 and (rows := [s for s in sources if s.is_named(parts)]):
                return self._single(rows, parts, len(parts))
        for sources in levels:  # a column outside of all lists, such as rowid
            for length in range(min(3, len(parts) - 1), 0, -1):
                if matches := [s for s in sources if s.is_named(parts[:length])]:
                    return self._single(matches, parts, length)
        return None

    def _single(self, matches: Sequence[Source], parts: Sequence[str], length: int) -> tuple[Source, int] | None:
        if len(matches) == 1:
            return matches[0], length
        if not any(source.loses_name for source in matches):
            return None  # the engine sees the same names and decides
        places = " and of ".join(source.label for source in matches)
        raise InvalidConfig(
            f"{'.'.join(parts)} may be a column of {places}; write the name of the schema before it, or an alias."
        )
