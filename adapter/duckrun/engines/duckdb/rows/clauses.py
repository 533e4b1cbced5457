"""Values that the clauses of a merge set.

Each row gets the values of the first clause that applies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from duckrun.engines.duckdb.rows.reads import has_subquery
from duckrun.engines.duckdb.rows.source import Rows
from duckrun.errors import InvalidConfig
from duckrun.sql.on_demand import sql_names
from duckrun.sql.quoting import quoted_names
from duckrun.values.rows import MergeClause
from duckrun.values.snapshot import Snapshot, TableRef


def translated(clause: MergeClause, dialect: str) -> MergeClause:
    """Return a clause with its SQL in DuckDB's dialect."""
    condition = None if clause.condition is None else sql_names.transpile(clause.condition, dialect, "duckdb")
    assigned = (
        None if clause.set is None else {c: sql_names.transpile(v, dialect, "duckdb") for c, v in clause.set.items()}
    )
    return MergeClause(clause.kind, condition, clause.columns, assigned)


def expression(text: str, dialect: str) -> str:
    """Return an expression in DuckDB's dialect; more SQL may follow it."""
    # A line break ends a comment, which would swallow the SQL behind it.
    return sql_names.transpile(text, dialect, "duckdb") + "\n" * ("--" in text)


def of_source(clause: MergeClause, rows: Rows, snapshot: Snapshot, computes: Collection[str]) -> MergeClause:
    """Limit a clause that sets every column to the columns that the source has.

    An update leaves the other columns unchanged. An insert lets the table compute those in
    ``computes``.
    """
    if clause.kind.endswith("delete") or clause.columns is not None or clause.set is not None:
        return clause
    source_names = {name.lower() for name in rows.types}
    absent = {name for name in snapshot.schema.names if name.lower() not in source_names}
    if not absent or (clause.kind != "matched_update" and absent.isdisjoint(computes)):
        return clause
    gone = absent if clause.kind == "matched_update" else absent & set(computes)
    return replace(clause, columns=tuple(name for name in snapshot.schema.names if name not in gone))


def values_of(
    clause: MergeClause, columns: Sequence[str], source: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Target column -> SQL over the aliases source and target; empty for a delete.

    ``source`` maps a column to the source column with its value, if that has another name.
    """
    if clause.set is not None or clause.kind.endswith("delete"):
        return dict(clause.set or {})
    names = {c: source.get(c, c) for c in (clause.columns or columns)}
    quoted = quoted_names(names.values(), "source")
    return {c: quoted[name] for c, name in names.items()}


def assigned_by(
    clause: MergeClause, columns: Sequence[str], ref: TableRef, source: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Values that a clause sets in a table with these columns.

    Raises:
        InvalidConfig: The clause sets a column that the table lacks.
    """
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
    """SQL of the number of the clause that applies (NULL: none), and of the row's new values.

    A column that a clause does not set is NULL.

    Args:
        action: Alias of the clause number.
        clauses: Tuples of number, condition, and column -> value.
        kinds: Types of all columns; None for a column that takes the type of its values.
    """
    chosen = f"CASE {' '.join(f'WHEN {test} THEN {index}' for index, test, _ in clauses)} END"
    # DuckDB refuses a reference to another column's alias if either expression has a subquery.
    repeats_case = has_subquery(*(test for _, test, _ in clauses if "(" in test))
    outputs = []
    for column, quoted in quoted_names(kinds).items():
        kind = kinds[column]
        branches = " ".join(f"WHEN {index} THEN {values[column]}" for index, _, values in clauses if column in values)
        bracketed = [values[column] for _, _, values in clauses if "(" in values.get(column, "")]
        clause_number = f"({chosen})" if repeats_case or has_subquery(*bracketed) else action
        value = f"CASE {clause_number} {branches} END" if branches else "NULL"
        outputs.append(f"{value if kind is None else f'CAST({value} AS {kind})'} AS {quoted}")
    return f"{chosen} AS {action}", ", ".join(outputs)
