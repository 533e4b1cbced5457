"""Spark's merge, clause by clause: its condition and expressions become one MergeSpec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.errors import InvalidConfig
from duckrun.frame import Frame
from duckrun.specs import ClauseKind, Commit, MergeClause, MergeSpec
from duckrun.sql import plain_error

if TYPE_CHECKING:
    from duckrun.delta_table import Table


class DeltaMergeBuilder:
    """What ``table.merge(source, condition)`` gives; the clauses are tried in the order given. Nothing is read or
    written before execute().

    The condition holds at least one equality of a target's column and a source's (the keys, of which the source holds
    each once); what else it says is checked for the rows that they match. Expressions are SQL over both aliases.
    """

    def __init__(self, table: Table, source: Any, condition: str) -> None:
        self._table = table
        self._source = source
        self._condition = condition
        self._clauses: list[tuple[ClauseKind, str | None, Mapping[str, str] | None]] = []
        self._evolves = False

    def whenMatchedUpdate(self, condition: str | None = None, set: Mapping[str, str] | None = None) -> Self:
        """Set columns of the target, by ``{column: expression}``, where a source row matches."""
        return self._add("matched_update", condition, _needed(set, "whenMatchedUpdate", "set"))

    def whenMatchedUpdateAll(self, condition: str | None = None) -> Self:
        """Set every column to the source's column of the same name."""
        return self._add("matched_update", condition)

    def whenMatchedDelete(self, condition: str | None = None) -> Self:
        """Delete the rows that a source row matches."""
        return self._add("matched_delete", condition)

    def whenNotMatchedInsert(self, condition: str | None = None, values: Mapping[str, str] | None = None) -> Self:
        """Insert a row, by ``{column: expression}``, for a source row that matches none."""
        return self._add("not_matched_insert", condition, _needed(values, "whenNotMatchedInsert", "values"))

    def whenNotMatchedInsertAll(self, condition: str | None = None) -> Self:
        """Insert the source rows that match none, column by column of the same name."""
        return self._add("not_matched_insert", condition)

    def whenNotMatchedBySourceUpdate(self, condition: str | None = None, set: Mapping[str, str] | None = None) -> Self:
        """Set columns of the target's rows that no source row matches."""
        return self._add("not_matched_by_source_update", condition, _needed(set, "whenNotMatchedBySourceUpdate", "set"))

    def whenNotMatchedBySourceDelete(self, condition: str | None = None) -> Self:
        """Delete the target's rows that no source row matches."""
        return self._add("not_matched_by_source_delete", condition)

    def withSchemaEvolution(self) -> Self:
        """Columns that the source has and the table has not are added to it."""
        self._evolves = True
        return self

    def execute(self) -> Commit:
        """Merge, as one commit.

        Raises InvalidConfig for a condition or expression that cannot be read or that has no key, DuplicateSourceKeys,
        SchemaMismatch, ReadOnlyLake, UnsupportedFeature; the table is then as it was.
        """
        table, source = self._table, self._source
        what = f"The merge into table {table.ref}"
        if not self._clauses:
            raise InvalidConfig(f"{what} has no clause; add whenMatchedUpdateAll(), whenNotMatchedInsertAll(), ...")
        condition = parsed(self._condition, f"{what}, condition")
        given = source.alias_name if isinstance(source, Frame) else None
        aliases = Aliases.of(condition, table.alias_name, given, what)
        pairs, rest = split_condition(aliases.applied(condition), what)
        renamed = [(theirs, ours) for ours, theirs in pairs if ours.lower() != theirs.lower()]
        if renamed:
            source = _with_keys(source, renamed, what)

        def text(expression: str) -> str:
            return aliases.applied(parsed(expression, what)).sql(dialect="duckdb")

        spec = MergeSpec(
            keys=tuple(ours for ours, _ in pairs),
            on=None if rest is None else rest.sql(dialect="duckdb"),
            clauses=tuple(
                MergeClause(
                    kind,
                    None if condition is None else text(condition),
                    set=None if set is None else {aliases.column(c, what): text(v) for c, v in set.items()},
                )
                for kind, condition, set in self._clauses
            ),
            schema_mode="append_new_columns" if self._evolves else "fail",
        )
        return table.session.execute(table.ref, spec, source)

    def _add(self, kind: ClauseKind, condition: str | None, set: Mapping[str, str] | None = None) -> Self:
        self._clauses.append((kind, condition, set))
        return self


@dataclass(frozen=True)
class Aliases:
    """The names by which a user's SQL calls the two sides."""

    target: str
    source: str

    @classmethod
    def of(cls, condition: exp.Expr, target: str | None, source: str | None, what: str) -> Aliases:
        """The aliases that were given, else ``target`` and ``source``. A source that has no alias of its own (a pandas
        frame, a Spark frame) has the one name that the condition uses beside the target's.
        """
        target = target or "target"
        used = {name.lower(): name for name in map(_qualifier, condition.find_all(exp.Column)) if name}
        others = [name for folded, name in used.items() if folded != target.lower()]
        if source is None:
            source = others[0] if len(others) == 1 else "source"
        unknown = [name for name in others if name.lower() != source.lower()]
        if unknown:
            raise InvalidConfig(
                f"{what} names {', '.join(sorted(unknown))}, which is neither its target {target!r} nor its source "
                f"{source!r}; name them by table.alias(...) and frame.alias(...)."
            )
        return cls(target, source)

    def applied(self, tree: exp.Expr) -> exp.Expr:
        """An expression with the two sides called ``target`` and ``source``, as specs have it."""
        names = {self.target.lower(): "target", self.source.lower(): "source"}

        return _qualified(tree, lambda name: names.get(name, name))

    def column(self, name: str, what: str) -> str:
        """A column of the target that is set, with or without the target's alias before it."""
        head, dot, rest = name.partition(".")
        if dot and head.lower() == self.target.lower():
            return rest
        if dot and head.lower() == self.source.lower():
            raise InvalidConfig(f"{what} sets {name}, which is the source's; only columns of the target can be set.")
        return name


def without_alias(tree: exp.Expr, alias: str) -> exp.Expr:
    """An expression over one table alone, without the name by which it calls the table."""
    return _qualified(tree, lambda name: None if name == alias.lower() else name)


def _qualified(tree: exp.Expr, rename: Callable[[str], str | None]) -> exp.Expr:
    """An expression with other qualifiers: ``rename`` gets each in lower case, and gives None for none."""

    def visit(node: exp.Expr) -> exp.Expr:
        name = _qualifier(node).lower() if isinstance(node, exp.Column) else ""
        if name and (new := rename(name)) != name:
            first = next(part for part in ("catalog", "db", "table") if node.args.get(part) is not None)
            node.set(first, None if new is None else exp.to_identifier(new))
        return node

    return tree.copy().transform(visit)


def parsed(expression: str, what: str) -> exp.Expr:
    """The tree of one expression of DuckDB's SQL. Raises InvalidConfig."""
    if not isinstance(expression, str):
        raise InvalidConfig(f"{what}: {expression!r} is a {type(expression).__name__}; give SQL as text.")
    try:
        return sqlglot.parse_one(expression, read="duckdb")
    except SqlglotError as error:
        raise InvalidConfig(f"{what}: cannot read {expression!r}: {plain_error(error)}") from error


def split_condition(condition: exp.Expr, what: str) -> tuple[list[tuple[str, str]], exp.Expr | None]:
    """The equalities of a merge's condition, as pairs (target's column, source's column), and what else it says.

    Raises InvalidConfig where there is no equality.
    """
    pairs: list[tuple[str, str]] = []
    rest: list[exp.Expr] = []
    for part in _conjuncts(condition):
        pair = _key(part)
        if pair is not None and pair[0].lower() not in {ours.lower() for ours, _ in pairs}:
            pairs.append(pair)
        else:
            rest.append(part)
    if not pairs:
        raise InvalidConfig(
            f"{what} has no key: its condition ({condition.sql(dialect='duckdb')}) needs at least one equality of a column "
            "of the target and a column of the source, such as target.id = source.id."
        )
    return pairs, exp.and_(*rest) if rest else None


def _conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    if isinstance(tree, exp.Paren):
        return _conjuncts(tree.this)
    if isinstance(tree, exp.And):
        return [*_conjuncts(tree.this), *_conjuncts(tree.expression)]
    return [tree]


def _key(part: exp.Expr) -> tuple[str, str] | None:
    if not isinstance(part, exp.EQ):
        return None
    sides = {
        side.table: side.name
        for side in (part.left, part.right)
        if isinstance(side, exp.Column) and not side.args.get("db")
    }
    return (sides["target"], sides["source"]) if {*sides} == {"target", "source"} else None


def _qualifier(column: exp.Column) -> str:
    """The first part of a column's name, where it has several: an alias (or a column, of whose fields it is one)."""
    return column.text("catalog") or column.text("db") or column.text("table")


def _with_keys(source: Any, renamed: list[tuple[str, str]], what: str) -> Frame:
    """The source with its keys under the target's names too."""
    pairs = ", ".join(f"{theirs} AS {ours}" for theirs, ours in renamed)
    if not isinstance(source, Frame):
        raise InvalidConfig(f"{what}: its keys have other names in the source; give a Frame, or rename them ({pairs}).")
    columns = source.columns
    taken = [ours for _, ours in renamed if ours.lower() in {c.lower() for c in columns}]
    if taken:
        raise InvalidConfig(
            f"{what}: the source has a column {', '.join(taken)} that is not the key; rename it, and the key ({pairs})."
        )
    return source.renamed([*((column, column) for column in columns), *renamed])


def _needed(given: Mapping[str, str] | None, method: str, argument: str) -> Mapping[str, str]:
    if not given:
        raise InvalidConfig(f"{method}() needs {argument}, a mapping of column to expression.")
    return given
