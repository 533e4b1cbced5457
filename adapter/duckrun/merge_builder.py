"""Spark's merge, clause by clause: the same statement as MERGE in SQL, with rows of the session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from sqlglot import exp

from duckrun.errors import InvalidConfig
from duckrun.frame import Frame
from duckrun.sessions.tables import TableSession
from duckrun.sql.names import read_expression
from duckrun.sql.sides import SOURCE, TARGET, has_subquery
from duckrun.statements.plan.rows import Asked
from duckrun.statements.run import change
from duckrun.statements.values import Given, Merge, When
from duckrun.values.attributes import NamesAttributes
from duckrun.values.choices import ClauseKind
from duckrun.values.options import given as typed, names_in
from duckrun.values.rows import Commit
from duckrun.values.snapshot import TableRef


class DeltaMergeBuilder(NamesAttributes):
    """Builder of ``table.merge(source, condition)``. Only execute() reads or writes.

    Clauses apply in the order given. The condition has at least one equality of a target and a
    source column. These are the keys, and each may occur once in the source. The rest of the
    condition filters the matches. Expressions are SQL over both aliases.
    """

    def __init__(self, session: TableSession, ref: TableRef, alias: str | None, source: Any, condition: str) -> None:
        self._session, self._ref = session, ref
        self._target = alias or TARGET
        self._source = source
        self._condition = condition
        self._clauses: list[tuple[ClauseKind, str | None, Mapping[str, str] | None]] = []
        self._evolves = False
        self._only_if_changed = False

    def whenMatchedUpdate(self, condition: str | None = None, set: Mapping[str, str] | None = None) -> Self:
        """Set columns of matched target rows, by ``{column: expression}``."""
        return self._add("matched_update", condition, _needed(set, "whenMatchedUpdate", "set"))

    def whenMatchedUpdateAll(self, condition: str | None = None) -> Self:
        """Set every column of matched target rows to the source column of the same name."""
        return self._add("matched_update", condition)

    def whenMatchedDelete(self, condition: str | None = None) -> Self:
        """Delete the matched target rows."""
        return self._add("matched_delete", condition)

    def whenNotMatchedInsert(self, condition: str | None = None, values: Mapping[str, str] | None = None) -> Self:
        """Insert a row, by ``{column: expression}``, for each unmatched source row."""
        return self._add("not_matched_insert", condition, _needed(values, "whenNotMatchedInsert", "values"))

    def whenNotMatchedInsertAll(self, condition: str | None = None) -> Self:
        """Insert the unmatched source rows, matching columns by name."""
        return self._add("not_matched_insert", condition)

    def whenNotMatchedBySourceUpdate(self, condition: str | None = None, set: Mapping[str, str] | None = None) -> Self:
        """Set columns of target rows without a match, by ``{column: expression}``."""
        return self._add("not_matched_by_source_update", condition, _needed(set, "whenNotMatchedBySourceUpdate", "set"))

    def whenNotMatchedBySourceDelete(self, condition: str | None = None) -> Self:
        """Delete the target rows without a match."""
        return self._add("not_matched_by_source_delete", condition)

    def withSchemaEvolution(self) -> Self:
        """Add source columns that the table lacks."""
        self._evolves = True
        return self

    def onlyIfChanged(self) -> Self:
        """Do not write a row if an update would set its columns to equal values."""
        self._only_if_changed = True
        return self

    def execute(self) -> Commit:
        """Run the merge, as one commit. On an error the table is unchanged.

        Raises:
            InvalidConfig: A condition or expression is invalid, names no column or has no key.
            DuplicateSourceKeys: A key occurs several times in the source.
            SchemaMismatch: The rows do not fit the table.
            ReadOnlyLake: The lake is open read-only.
            UnsupportedFeature: The engine cannot run the merge.
        """
        source, target = self._source, self._target
        what = f"The merge into table {self._ref}"
        if not self._clauses:
            raise InvalidConfig(f"{what} has no clause; add whenMatchedUpdateAll(), whenNotMatchedInsertAll(), ...")
        condition = expression_tree(self._condition, what)
        rows = Given(source, _source_alias(source, condition, target), tuple(self._session.schema_of(source).names))
        whens = tuple(
            When(
                kind,
                None if only is None else expression_tree(only, what),
                None if set is None else tuple((column, expression_tree(v, what)) for column, v in set.items()),
            )
            for kind, only, set in self._clauses
        )
        options = Asked("append_new_columns" if self._evolves else "fail", only_if_changed=self._only_if_changed)
        return change(self._session, self._ref, Merge((), target, rows, condition, (), whens), options)

    def _add(self, kind: ClauseKind, condition: str | None, set: Mapping[str, str] | None = None) -> Self:
        self._clauses.append((kind, condition, set))
        return self


def expression_tree(expression: str, what: str) -> exp.Expr:
    """Parse one expression of DuckDB's SQL. Raises InvalidConfig."""
    if not isinstance(expression, str):
        raise InvalidConfig(f"{what}: {expression!r} is a {type(expression).__name__}; give SQL as text.")
    tree = read_expression(expression, "duckdb", f"{what}: cannot read {expression!r}")
    if has_subquery(tree):
        raise InvalidConfig(f"{what}: {expression!r} holds a query; put it into the source, or say the whole in sql().")
    return tree


def _source_alias(source: Any, condition: exp.Expr, target: str) -> str:
    """Return the frame's alias, else the only other name in the condition."""
    if isinstance(source, Frame) and source.alias_name is not None:
        return source.alias_name
    used = {column.table.lower(): column.table for column in condition.find_all(exp.Column) if column.table}
    used.pop(target.lower(), None)
    return used.popitem()[1] if len(used) == 1 else SOURCE


def _needed(mapping: Mapping[str, str] | None, method: str, argument: str) -> Mapping[str, str]:
    if not mapping:
        raise InvalidConfig(f"{method}() needs {argument}, a mapping of column to expression.")
    typed(mapping, Mapping, argument, f"{method}()")
    names_in(list(mapping), argument, f"{method}()")
    return mapping
