"""Which table a qualified column means, where two tables of one name are in sight at once.

DuckDB tells ``bronze.orders`` and ``silver.orders`` apart by their schemas. Once scans stand in the place of both names, only
aliases can: each gets one of its own, and every column that means it is written with that. The order in which names are
tried is DuckDB's: the innermost query first; in it lake, schema and table, then schema and table, then the table alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from duckrun.errors import InvalidConfig

Columns = Callable[[], Sequence[str] | None]
_BESIDE = ("joins", "laterals", "pivots", "sample")


@dataclass
class Source:
    """A table of a FROM clause. ``catalog`` and ``schema`` are empty for one that is known by its alias alone; ``columns`` give
    None where they are not known.
    """

    node: exp.Expr
    name: str
    schema: str = ""
    catalog: str = ""
    columns: Columns = lambda: None
    _names: frozenset[str] | None = field(default=None, init=False)
    _is_read: bool = field(default=False, init=False)

    @property
    def label(self) -> str:
        """An alias that no table of another schema has."""
        return ".".join(part for part in (self.catalog, self.schema, self.name) if part)

    def is_named(self, parts: Sequence[str]) -> bool:
        """True if the parts of a name before that of a column mean this table."""
        *before, name = (part.lower() for part in parts)
        schema, catalog = self.schema.lower(), self.catalog.lower()
        if name != self.name.lower() or (before and not schema):
            return False
        if len(before) < 2:
            return not before or before[0] in (schema, catalog)
        return before[1] == schema and before[0] == (catalog or before[0])

    def names(self) -> frozenset[str] | None:
        if not self._is_read:
            found = self.columns()
            self._names = None if found is None else frozenset(name.lower() for name in found)
            self._is_read = True
        return self._names

    def may_have(self, column: str) -> bool:
        names = self.names()
        return names is None or column == "*" or column.lower() in names


def parts_of_column(column: exp.Column) -> list[str]:
    return [part.name for part in column.parts]


def in_sight(node: exp.Expr) -> Iterator[list[exp.Expr]]:
    """The tables that a name at some place may mean: those of the query around it, then those of the query around that."""
    path: dict[int, exp.Expr] = {}
    child, parent = node, node.parent
    while parent is not None:
        path[id(parent)] = child
        if isinstance(parent, exp.Select) and child.arg_key not in ("with_", "with"):
            yield list(_before(parent, path))
        child, parent = parent, parent.parent


def _before(select: exp.Select, path: dict[int, exp.Expr]) -> Iterator[exp.Expr]:
    """The tables of a query, up to the derived one that the path leads through."""
    for source in sources_of(select):
        child = path.get(id(source))
        if child is not None and child.arg_key not in _BESIDE:
            return
        yield source


def sources_of(select: exp.Select) -> Iterator[exp.Expr]:
    """The tables of a query's FROM clause in their order, those in brackets too."""
    from_ = select.args.get("from_") or select.args.get("from")
    for item in [*([from_.this] if from_ is not None else []), *_beside(select)]:
        yield from _flat(item)


def _flat(item: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(item, exp.Subquery) and not item.alias and not isinstance(item.this, exp.Query):
        yield from _flat(item.this)
    else:
        yield item
    for beside in _beside(item):
        yield from _flat(beside)


def _beside(node: exp.Expr) -> Iterator[exp.Expr]:
    for join in node.args.get("joins") or ():
        yield join.this
    yield from node.args.get("laterals") or ()


def other_source(node: exp.Expr) -> Source:
    """A table that keeps its name: a derived one, or that of a common table expression."""
    listed = node.args["alias"].columns if isinstance(node.args.get("alias"), exp.TableAlias) else []
    query = node.this if isinstance(node, exp.Subquery) else None
    names: list[str] | None = [column.name for column in listed] or None
    if names is None and isinstance(query, exp.Select) and not any(e.is_star for e in query.expressions):
        names = [n for n in query.named_selects if n]
        names = names if len(names) == len(query.expressions) else None
    return Source(node, node.alias_or_name, columns=lambda: names)


class Sight:
    """The tables of a whole tree, by which its columns are found."""

    def __init__(self, replaced: dict[int, Source]) -> None:
        self._sources = dict(replaced)

    def of(self, node: exp.Expr) -> Source:
        if id(node) not in self._sources:
            self._sources[id(node)] = other_source(node)
        return self._sources[id(node)]

    def shared(self) -> set[int]:
        """The replaced tables in sight of which another one has their name."""
        found: set[int] = set()
        bearers = list(self._sources.items())
        for key, source in bearers:
            for level in in_sight(source.node):
                for other in map(self.of, level):
                    if other.name.lower() == source.name.lower() and other.label.lower() != source.label.lower():
                        found |= {key, id(other.node)}
        return found

    def meant(self, column: exp.Column) -> tuple[Source, int] | None:
        """The table that a column is of, and how many parts of its name mean the table; None for a column without one.

        Raises InvalidConfig for a name that may mean two tables.
        """
        parts = parts_of_column(column)
        for level in in_sight(column):
            sources = [self.of(node) for node in level]
            known = any((names := s.names()) is not None and parts[0].lower() in names for s in sources)
            if len(parts) == 1 and known:
                return None
            for length in (3, 2, 1) if len(parts) > 1 else (1,):
                if length == len(parts) > 1 or length > len(parts):
                    continue
                rest = parts[length] if length < len(parts) else "*"
                found = [s for s in sources if s.is_named(parts[:length]) and s.may_have(rest)]
                if len(found) > 1:
                    places = " and of ".join(s.label for s in found)
                    raise InvalidConfig(
                        f"{'.'.join(parts)} may be a column of {places}; write the name of the schema before it, or an alias."
                    )
                if found:
                    return found[0], length
            if known:
                return None
        return None
