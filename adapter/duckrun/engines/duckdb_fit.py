"""Rows fitted to a table: cast to its types, checked row by row as they stream, sorted. One SELECT says it all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

from duckrun.engines.duckdb_alter import order_by
from duckrun.engines.duckdb_source import Rows
from duckrun.errors import InvalidConfig, RowsOutsidePartition, SchemaMismatch, UnsupportedFeature
from duckrun.formats.definition import sort_order
from duckrun.raising import raising
from duckrun.specs import WriteSpec
from duckrun.sql import quote_identifier, quote_literal, transpile
from duckrun.table import Snapshot, TableRef

Filled = dict[str, tuple[str | None, str]]
"""Column of the table -> the source's column (None: NULL) and the type to cast it to."""

# Delta's writer features that a write of ours keeps; constraints are checked here, in the SELECT that is written.
_WRITER_FEATURES = {
    "appendOnly", "invariants", "checkConstraints", "timestampNtz", "changeDataFeed", "deletionVectors", "vacuumProtocolCheck",
}  # fmt: skip
_ROWS = "source"


def check_features(snapshot: Snapshot) -> None:
    """Raise UnsupportedFeature for a table whose features a write of ours would not keep."""
    unknown = snapshot.writer_features - _WRITER_FEATURES
    mapping = snapshot.properties.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        unknown |= {"columnMapping"}
    if unknown:
        raise UnsupportedFeature(
            f"Table {snapshot.ref} uses {', '.join(sorted(unknown))}, with which the duckdb engine cannot write. "
            "Run this with engine: spark."
        )


def types_of(snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """The DuckDB types of a table's columns."""
    relation = cursor.from_arrow(snapshot.schema.empty_table())
    return dict(zip(relation.columns, relation.types, strict=True))


def differs(rows: Rows, snapshot: Snapshot) -> bool:
    """True if a table of these rows would have another schema. (What DuckDB writes is nullable.)"""
    old = types_of(snapshot, rows.cursor)
    nullable = all(field.nullable for field in snapshot.schema)
    return not nullable or [(n, str(k)) for n, k in old.items()] != [(n, str(k)) for n, k in rows.types.items()]


def fitted(
    ref: TableRef,
    rows: Rows,
    filled: Filled,
    partition_by: Sequence[str],
    *,
    spec: WriteSpec | None = None,
    snapshot: Snapshot | None = None,
) -> Rows:
    """The SELECT that is written: cast, checked row by row as it streams, sorted.

    The checks stand in the SELECT list: a filter that fails could be moved below a join and see other rows.
    """
    casts = ", ".join(
        f"CAST({'NULL' if source is None else quote_identifier(source)} AS {kind}) AS {quote_identifier(name)}"
        for name, (source, kind) in filled.items()
    )
    checked = _checks(filled, partition_by, spec, snapshot)
    columns = ", ".join(
        f"{checked[name]} AS {quote_identifier(name)}" if name in checked else quote_identifier(name) for name in filled
    )
    order = order_by(_sort_order(ref, filled, spec, snapshot))
    sql = f"SELECT {columns} FROM (SELECT {casts} FROM ({rows.sql})) AS {_ROWS}{order}"
    if rows.one_shot:  # binding it must not read it
        types = {name: _type(rows.cursor, kind) for name, (_, kind) in filled.items()}
    else:
        relation = rows.cursor.sql(sql)
        types = dict(zip(relation.columns, relation.types, strict=True))
    return Rows(rows.cursor, sql, types, rows.one_shot)


def _sort_order(ref: TableRef, filled: Filled, spec: WriteSpec | None, snapshot: Snapshot | None) -> tuple[str, ...]:
    """The columns to sort by: those of the spec, else those that the table says."""
    if spec is not None and spec.sort_by:
        unknown = [c for c in spec.sort_by if c not in filled]
        if unknown:
            raise InvalidConfig(f"Table {ref}: sort_by names {', '.join(unknown)}, which is no column.")
        return spec.sort_by
    if snapshot is None:
        return ()
    return tuple(c for c in sort_order(snapshot.properties) if c in filled)


def contained(rows: Rows, predicate: str, asked: str) -> Rows:
    """The same rows; the first for which the predicate is not true fails the write as it streams."""
    name, kind = next(iter(rows.types.items()))
    column = quote_identifier(name)
    error = raising(RowsOutsidePartition, _outside(asked, list(rows.types), "written"))
    checked = f"CASE WHEN ({predicate}) IS TRUE THEN {column} ELSE CAST({error} AS {kind}) END AS {column}"
    return Rows(rows.cursor, f"SELECT * REPLACE ({checked}) FROM ({rows.sql}) AS {_ROWS}", rows.types, rows.one_shot)


def _outside(asked: str, columns: Sequence[str], done: str) -> str:
    """SQL text of the message about a row that lies outside what is being written or replaced: its first columns."""
    shown = " || ', ' || ".join(
        f"{quote_literal(c + ' = ')} || coalesce(CAST({quote_identifier(c)} AS VARCHAR), 'NULL')" for c in columns[:6]
    )
    return f"{quote_literal(f'a row lies outside the part being {done} ({asked}): ')} || {shown}"


def _checks(
    filled: Filled,
    partition_by: Sequence[str],
    spec: WriteSpec | None,
    snapshot: Snapshot | None,
) -> dict[str, str]:
    """Column -> expression that raises for a row that may not be written, and is the column otherwise."""
    tests: list[tuple[str, str, type, str]] = []
    for name in partition_by:
        if filled[name][1] == "VARCHAR":
            column = quote_identifier(name)
            message = quote_literal(
                f"partition column {name} holds an empty string or the string NULL, which Delta readers take for NULL"
            )
            tests.append((name, f"{column} IS NULL OR {column} NOT IN ('', 'NULL')", SchemaMismatch, message))
    if spec is not None and spec.predicate is not None:
        predicate = transpile(spec.predicate, spec.dialect, "duckdb")
        message = _outside(spec.predicate, list(filled), "replaced")
        anchor = next(iter(filled))
        tests.append((anchor, f"({predicate}) IS TRUE", RowsOutsidePartition, message))
    if snapshot is not None:
        for field in snapshot.schema:
            if not field.nullable and field.name in filled:
                message = quote_literal(f"column {field.name} is NOT NULL, and the data has a NULL in it")
                tests.append((field.name, f"{quote_identifier(field.name)} IS NOT NULL", SchemaMismatch, message))
        for key, condition in snapshot.properties.items():
            if key.startswith("delta.constraints."):
                name = key.removeprefix("delta.constraints.")
                message = quote_literal(f"a row breaks the constraint {name} ({condition})")
                # Spark takes a condition that is NULL for broken, unlike SQL's own CHECK.
                test = transpile(condition, "spark", "duckdb")
                tests.append((next(iter(filled)), f"({test}) IS TRUE", SchemaMismatch, message))
    checked: dict[str, str] = {}
    for name, test, kind, message in tests:
        inner = checked.get(name, quote_identifier(name))
        checked[name] = f"CASE WHEN {test} THEN {inner} ELSE CAST({raising(kind, message)} AS {filled[name][1]}) END"
    return checked


def _type(cursor: duckdb.DuckDBPyConnection, kind: str) -> Any:
    return cursor.sql(f"SELECT CAST(NULL AS {kind})").types[0]
