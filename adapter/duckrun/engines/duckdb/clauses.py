"""What the clauses of a merge set: each row that the source meets, or that it does not, gets the values of the first that applies."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from duckrun.engines.duckdb.source import Rows
from duckrun.engines.duckdb.writers.reads import has_subquery
from duckrun.errors import InvalidConfig
from duckrun.sql.names import quote_identifier, transpile
from duckrun.values.rows import MergeClause
from duckrun.values.snapshot import Snapshot, TableRef


def translated(clause: MergeClause, dialect: str) -> MergeClause:
    condition = None if clause.condition is None else transpile(clause.condition, dialect, "duckdb")
    assigned = None if clause.set is None else {c: transpile(v, dialect, "duckdb") for c, v in clause.set.items()}
    return MergeClause(clause.kind, condition, clause.columns, assigned)


def of_source(clause: MergeClause, rows: Rows, snapshot: Snapshot, computes: Collection[str]) -> MergeClause:
    """An update of every column sets those that the source has: the others stay as they are. So does an insert, where the table
    ``computes`` the others.
    """
    if clause.kind.endswith("delete") or clause.columns is not None or clause.set is not None:
        return clause
    given = {name.lower() for name in rows.types}
    absent = {name for name in snapshot.schema.names if name.lower() not in given}
    if not absent or (clause.kind != "matched_update" and absent.isdisjoint(computes)):
        return clause
    gone = absent if clause.kind == "matched_update" else absent & set(computes)
    return replace(clause, columns=tuple(name for name in snapshot.schema.names if name not in gone))


def values_of(
    clause: MergeClause, columns: Sequence[str], source: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Target column -> SQL over the aliases source and target; nothing for a delete.

    ``source`` has the source's column with the value for a column where its name is another one.
    """
    if clause.set is not None or clause.kind.endswith("delete"):
        return dict(clause.set or {})
    return {c: f"source.{quote_identifier(source.get(c, c))}" for c in (clause.columns or columns)}


def assigned_by(
    clause: MergeClause, columns: Sequence[str], ref: TableRef, source: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """The values of a clause for a table with these columns. Raises InvalidConfig for any other."""
    chosen = values_of(clause, columns, source)
    unknown = [c for c in chosen if c not in columns]
    if unknown:
        raise InvalidConfig(
            f"Table {ref} has no column {', '.join(unknown)}, which the merge sets; it has {', '.join(columns)}."
        )
    return chosen


def choice(
    action: str, clauses: Sequence[tuple[int, str, Mapping[str, str]]], kinds: Mapping[str, Any]
) -> tuple[str, str]:
    """SQL of the number of the clause that applies to a row, as ``action`` (NULL: none does), and of the row's new values.

    ``clauses`` are (number, the condition on which it applies, column -> value); ``kinds`` the types of all columns, None of one
    that has the type of its values. A column that a clause gives no value is NULL.
    """
    chosen = f"CASE {' '.join(f'WHEN {test} THEN {index}' for index, test, _ in clauses)} END"
    # DuckDB refuses the alias of another column where that or this one has a subquery.
    asks = has_subquery(*(test for _, test, _ in clauses if "(" in test))
    outputs = []
    for column, kind in kinds.items():
        branches = " ".join(f"WHEN {index} THEN {values[column]}" for index, _, values in clauses if column in values)
        bracketed = [values[column] for _, _, values in clauses if "(" in values.get(column, "")]
        said = f"({chosen})" if asks or has_subquery(*bracketed) else action
        value = f"CASE {said} {branches} END" if branches else "NULL"
        outputs.append(f"{value if kind is None else f'CAST({value} AS {kind})'} AS {quote_identifier(column)}")
    return f"{chosen} AS {action}", ", ".join(outputs)
