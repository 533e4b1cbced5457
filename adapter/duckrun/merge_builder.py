"""Spark's merge, clause by clause: the same statement as a MERGE in SQL, of rows at hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.errors import InvalidConfig
from duckrun.frame import Frame
from duckrun.sql.dialects import tree_in
from duckrun.sql.names import plain_error
from duckrun.statements.plan.rows import Asked
from duckrun.statements.plan.sides import SOURCE, TARGET, has_subquery
from duckrun.statements.run import change
from duckrun.statements.values import Given, Merge, When
from duckrun.values.options import given as typed, names_in
from duckrun.values.rows import ClauseKind, Commit

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
        condition = expression_tree(self._condition, what)
        target = table.alias_name or TARGET
        given = Given(source, _source_alias(source, condition, target), tuple(table.session.schema_of(source).names))
        whens = tuple(
            When(
                kind,
                None if only is None else expression_tree(only, what),
                None if set is None else tuple((column, expression_tree(v, what)) for column, v in set.items()),
            )
            for kind, only, set in self._clauses
        )
        asked = Asked("append_new_columns" if self._evolves else "fail")
        return change(table.session, table.ref, Merge((), target, given, condition, (), whens), asked)

    def _add(self, kind: ClauseKind, condition: str | None, set: Mapping[str, str] | None = None) -> Self:
        self._clauses.append((kind, condition, set))
        return self


def expression_tree(expression: str, what: str) -> exp.Expr:
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


def _source_alias(source: Any, condition: exp.Expr, target: str) -> str:
    """The name that a frame was given; one without (a pandas frame, a Spark frame) has the one name that the condition
    uses beside the target's.
    """
    if isinstance(source, Frame) and source.alias_name is not None:
        return source.alias_name
    used = {column.table.lower(): column.table for column in condition.find_all(exp.Column) if column.table}
    used.pop(target.lower(), None)
    return used.popitem()[1] if len(used) == 1 else SOURCE


def _needed(given: Mapping[str, str] | None, method: str, argument: str) -> Mapping[str, str]:
    if not given:
        raise InvalidConfig(f"{method}() needs {argument}, a mapping of column to expression.")
    typed(given, Mapping, argument, f"{method}()")
    names_in(list(given), argument, f"{method}()")
    return given
