"""Target and source of a statement that changes rows: resolution of the columns in its expressions.

Engines use the aliases ``target`` and ``source``; statements use any. The syntax trees are
rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from duckrun.errors import InvalidConfig
from duckrun.sql.kinds import Columns, with_type
from duckrun.sql.names import editing
from duckrun.sql.pieces import all_in, has_any
from duckrun.sql.placing import InText
from duckrun.sql.scalar import aggregates_in, part_over_rows
from duckrun.sql.scopes import Sight, Source, parts_of_column

TARGET, SOURCE = "target", "source"


@dataclass(frozen=True)
class Item:
    """The table that a statement changes, or one table or subquery of its source."""

    source: Source
    """Names that find the item."""
    columns: dict[str, str]
    """Names in the target or the source, by the item's column names."""
    side: str = SOURCE
    types: Columns | None = None
    """Types by the names in the target or the source, if they are known."""

    @property
    def alias(self) -> str:
        return self.source.name

    def column(self, this: exp.Expr) -> exp.Column:
        """Return a column of this item, qualified for the query of the source."""
        parts = {"table": self.alias, "db": self.source.schema, "catalog": self.source.catalog}
        return exp.Column(
            this=this, **{key: exp.to_identifier(name, quoted=True) for key, name in parts.items() if name}
        )

    @cached_property
    def _by_lower(self) -> dict[str, str]:
        return {column.lower(): unique for column, unique in self.columns.items()}

    def given(self, name: str) -> exp.Column | None:
        """Return a column of the side by its name in any case; None for an unknown one."""
        unique = self._by_lower.get(name.lower())
        if unique is None:
            return None
        column = column_of(self.side, unique)
        return column if self.types is None else with_type(column, self.types)


@dataclass(frozen=True)
class Sides:
    """The columns that an expression may use."""

    table: str
    """Qualified name of the table, for messages."""
    inner: Callable[[exp.Expr], Sight]
    """Return the tables of the subqueries in an expression."""
    target: Item
    """The table."""
    items: Sequence[Item] = ()
    """The tables and subqueries of the source."""

    @property
    def _all(self) -> list[Item]:
        return [self.target, *self.items]

    def rewritten(self, tree: exp.Expr, visible: str | None = None, dialect: str = "") -> exp.Expr:
        """Return the expression over ``target`` and ``source``.

        Args:
            tree: the expression, which stays unchanged.
            visible: the only side that unqualified names may mean, if the other has no row.
            dialect: the dialect of the text that the caller needs. An expression in this dialect,
                without subqueries, is not copied; the result is a text without a tree.

        Raises:
            InvalidConfig: for a column of neither side, or of both, and for a part that is computed
                from several rows.
        """
        edit = editing(tree, "" if has_subquery(tree) else dialect)
        as_text = isinstance(edit, InText)
        self._refuse_over_rows(part_over_rows(edit.root))
        sight = self.inner(edit.root)
        known: dict[tuple[str, ...], exp.Expr | None] = {}
        for column in all_in(edit.root, exp.Column):
            place = sight.place(column)
            if place.variables and not column.table and column.name.lower() in place.variables:
                continue
            if isinstance(column.this, exp.Star):
                if place.in_select:
                    continue  # t.* of a subquery's own table
                raise InvalidConfig(f"Table {self.table}: * cannot stand in an expression.")
            parts = tuple(parts_of_column(column))
            if not as_text or parts not in known:  # without subqueries, a name always means the same
                known[parts] = self._resolved(column, parts, sight, visible)
            resolved = known[parts]
            if resolved is None:
                continue
            if place.levels:
                inner = {each.alias_or_name.lower() for level in place.levels for each in level}
                captured = inner & {node.table for node in resolved.find_all(exp.Column)}
                if captured:
                    raise InvalidConfig(
                        f"Name the {captured.pop()} of this subquery otherwise; {column.sql()} would mean it."
                    )
            edit.put(resolved, column, aliased=False)
        for name, aggregate in () if as_text else aggregates_in(edit.root):
            columns = list(aggregate.find_all(exp.Column))
            if columns and all(column.table in (TARGET, SOURCE) for column in columns):
                self._refuse_over_rows(name)  # in a subquery, but over the rows that the statement changes
        return edit.result

    def _refuse_over_rows(self, part: str | None) -> None:
        if part is not None:
            raise InvalidConfig(
                f"Table {self.table}: {part} takes or gives several rows, and a condition or value of a change is "
                "computed from one row",
                remedy="Compute it in a subquery: (SELECT … FROM …)",
            )

    def assigned(self, name: str) -> str:
        """Return the target column to set, as the table spells it; the name may have the alias.

        Raises:
            InvalidConfig: for an unknown column.
        """
        column = self.target.given(name) or self.target.given(
            name.lower().removeprefix(f"{self.target.alias.lower()}.")
        )
        if column is None:
            known = ", ".join(self.target.columns)
            raise InvalidConfig(f"Table {self.table} has no column {name!r} to set; it has {known}.")
        return column.name

    def _resolved(
        self, column: exp.Column, parts: tuple[str, ...], sight: Sight, visible: str | None
    ) -> exp.Expr | None:
        meant = sight.meant(column, [item.source for item in self._all])
        if meant is not None:
            source, length = meant
            item = next((each for each in self._all if each.source is source), None)
            if item is None:
                return None  # a table of the subquery
            if length == len(parts):
                return self._whole_row(item, visible)
            return _with_fields(self._column(item, parts[length]), parts[length + 1 :])
        if sight.place(column).in_select:
            return None  # the engine finds the name, in the subquery or outside of it
        bare_column = self._bare(parts[0], visible)
        if bare_column is None:
            raise InvalidConfig(f"{'.'.join(parts)} is no column here. {self._known()}")
        return _with_fields(bare_column, parts[1:])

    def _column(self, item: Item, name: str) -> exp.Column:
        """Return a column of the target, or of an item of the source."""
        column = item.given(name)
        if column is None:
            where = f"Table {self.table}" if item is self.target else item.alias
            raise InvalidConfig(f"{where} has no column {name}. {self._known()}")
        return column

    def _whole_row(self, item: Item, visible: str | None) -> exp.Expr:
        """Return all columns of a table as a struct.

        The meaning of its name if no column has it.
        """
        if visible not in (None, item.side):
            raise InvalidConfig(f"{item.alias} has no row here. {self._known()}")
        pairs = [
            exp.PropertyEQ(this=exp.to_identifier(name, quoted=True), expression=column_of(item.side, unique))
            for name, unique in item.columns.items()
        ]
        return exp.Struct(expressions=pairs)

    def _bare(self, name: str, visible: str | None) -> exp.Column | None:
        seen = [item for item in self._all if visible in (None, item.side)]
        matches = [(item.alias, column) for item in seen if (column := item.given(name)) is not None]
        if len(matches) > 1:
            places = " and ".join(f"{alias}.{name}" for alias, _ in matches)
            raise InvalidConfig(f"The column {name} is ambiguous: it may be {places}. Write one of them.")
        return matches[0][1] if matches else None

    def _known(self) -> str:
        return "; ".join(f"{item.alias} has {', '.join(item.columns)}" for item in self._all) + "."


def names_side(tree: exp.Expr, side: str) -> bool:
    """Return True if a rewritten expression uses a column of a side."""
    return any(column.table == side for column in tree.find_all(exp.Column))


def has_subquery(tree: exp.Expr | None) -> bool:
    return tree is not None and has_any(tree, exp.Query)


def all_of(conditions: Sequence[exp.Expr]) -> exp.Expr:
    """Join conditions by AND; TRUE for none."""
    whole = [c if isinstance(c, exp.Condition) else exp.Paren(this=c.copy()) for c in conditions]
    return exp.and_(*whole) if whole else exp.true()


def named(value: exp.Expr, name: str) -> exp.Expr:
    """Return a value under a name.

    ``exp.alias_()`` would put the name into a subquery, which may be a piece and must not change.
    """
    return exp.Alias(this=value.copy(), alias=exp.to_identifier(name, quoted=True))


def column_of(side: str, name: str) -> exp.Column:
    """Return a column of a side, as a rewritten expression uses it."""
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(side))


def _with_fields(column: exp.Column, fields: Sequence[str]) -> exp.Expr:
    """Return a column, or a field of it."""
    value: exp.Expr = column
    for name in fields:
        value = exp.Dot(this=value, expression=exp.to_identifier(name, quoted=True))
    return value
