"""Spark's merge, clause by clause: its condition and expressions become one MergeSpec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.errors import InvalidConfig
from duckrun.frame import Frame
from duckrun.sql.dialects import text_in, tree_in
from duckrun.sql.names import plain_error
from duckrun.statements.plan.sides import SOURCE, TARGET, Item, Sides, all_of, conjuncts, equality, has_subquery
from duckrun.values.rows import ClauseKind, Commit, MergeClause, MergeSpec

if TYPE_CHECKING:
    from duckrun.table import Table


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

        Raises InvalidConfig for a condition or expression that cannot be read, names no column or has no key;
        DuplicateSourceKeys, SchemaMismatch, ReadOnlyLake, UnsupportedFeature. The table is then as it was.
        """
        table, source = self._table, self._source
        what = f"The merge into table {table.ref}"
        if not self._clauses:
            raise InvalidConfig(f"{what} has no clause; add whenMatchedUpdateAll(), whenNotMatchedInsertAll(), ...")
        condition = parsed(self._condition, what)
        target = table.alias_name or TARGET
        columns = table.session.schema_of(source).names
        item = Item(_source_alias(source, condition, target), {column: column for column in columns})
        sides = Sides(str(table.ref), target, table.snapshot().schema.names, [item])
        keys, rest = split_condition(condition, sides, what)
        renamed = [(theirs, ours) for ours, theirs in keys.items() if ours.lower() != theirs.lower()]

        def clause(kind: ClauseKind, condition: str | None, set: Mapping[str, str] | None) -> MergeClause:
            visible = SOURCE if kind == "not_matched_insert" else TARGET if "by_source" in kind else None

            def text(expression: str) -> str:
                return text_in(sides.rewritten(parsed(expression, what), visible), "duckdb")

            values = None if set is None else {column_of(c, sides): text(v) for c, v in set.items()}
            return MergeClause(kind, None if condition is None else text(condition), set=values)

        spec = MergeSpec(
            keys=tuple(keys),
            on=None if rest is None else text_in(rest, "duckdb"),
            clauses=tuple(clause(*given) for given in self._clauses),
            schema_mode="append_new_columns" if self._evolves else "fail",
        )
        return table.session.execute(table.ref, spec, _with_keys(source, renamed, columns, what) if renamed else source)

    def _add(self, kind: ClauseKind, condition: str | None, set: Mapping[str, str] | None = None) -> Self:
        self._clauses.append((kind, condition, set))
        return self


def parsed(expression: str, what: str) -> exp.Expr:
    """The tree of one expression of DuckDB's SQL. Raises InvalidConfig."""
    if not isinstance(expression, str):
        raise InvalidConfig(f"{what}: {expression!r} is a {type(expression).__name__}; give SQL as text.")
    try:
        tree = tree_in(expression, "duckdb")
    except SqlglotError as error:
        raise InvalidConfig(f"{what}: cannot read {expression!r}: {plain_error(error)}") from error
    if has_subquery(tree):
        raise InvalidConfig(f"{what}: {expression!r} holds a query; put it into the source, or say the whole in sql().")
    return tree


def column_of(name: str, sides: Sides) -> str:
    """A column of the target that is set, as the table spells it; its alias may stand before it."""
    spelled = {column.lower(): column for column in sides.columns}
    found = spelled.get(name.lower()) or spelled.get(name.lower().removeprefix(f"{sides.alias.lower()}."))
    if found is None:
        raise InvalidConfig(f"Table {sides.table} has no column {name!r} to set; it has {', '.join(sides.columns)}.")
    return found


def split_condition(condition: exp.Expr, sides: Sides, what: str) -> tuple[dict[str, str], exp.Expr | None]:
    """The equalities of a merge's condition, as target's column -> source's, and what else it says, over ``target`` and
    ``source``. Raises InvalidConfig where there is no equality.
    """
    keys: dict[str, str] = {}
    rest: list[exp.Expr] = []
    for part in conjuncts(condition):
        pair = _key(part, sides)
        if pair is not None and pair[0] not in keys:
            keys[pair[0]] = pair[1]
        else:
            rest.append(sides.rewritten(part))
    if not keys:
        raise InvalidConfig(
            f"{what} has no key: its condition ({text_in(condition, 'duckdb')}) needs at least one equality of a column "
            "of the target and a column of the source, such as target.id = source.id."
        )
    return keys, all_of(rest) if rest else None


def _key(part: exp.Expr, sides: Sides) -> tuple[str, str] | None:
    found = equality(part)
    if found is None:
        return None
    columns = [sides.rewritten(side) for side in found]
    named = {side.table: side.name for side in columns if isinstance(side, exp.Column)}
    return (named[TARGET], named[SOURCE]) if {*named} == {TARGET, SOURCE} else None


def _source_alias(source: Any, condition: exp.Expr, target: str) -> str:
    """The name that a frame was given; one without (a pandas frame, a Spark frame) has the one name that the condition
    uses beside the target's.
    """
    if isinstance(source, Frame) and source.alias_name is not None:
        return source.alias_name
    used = {column.table.lower(): column.table for column in condition.find_all(exp.Column) if column.table}
    used.pop(target.lower(), None)
    return used.popitem()[1] if len(used) == 1 else SOURCE


def _with_keys(source: Any, renamed: list[tuple[str, str]], columns: list[str], what: str) -> Frame:
    """The source with its keys under the target's names too."""
    pairs = ", ".join(f"{theirs} AS {ours}" for theirs, ours in renamed)
    if not isinstance(source, Frame):
        raise InvalidConfig(f"{what}: its keys have other names in the source; give a Frame, or rename them ({pairs}).")
    taken = [ours for _, ours in renamed if ours.lower() in {column.lower() for column in columns}]
    if taken:
        raise InvalidConfig(
            f"{what}: the source has a column {', '.join(taken)} that is not the key; rename it, and the key ({pairs})."
        )
    return source.renamed([*((column, column) for column in columns), *renamed])


def _needed(given: Mapping[str, str] | None, method: str, argument: str) -> Mapping[str, str]:
    if not given:
        raise InvalidConfig(f"{method}() needs {argument}, a mapping of column to expression.")
    return given
