"""Column statistics of a version, from the catalog alone: NULL counts and bounds.

No data file is opened. Statistics of inlined rows are computed from these rows. Source: the
DuckLake specification 1.0, ducklake_file_column_stats.
"""

from __future__ import annotations

from typing import Any

import duckdb

from duckrun.formats.ducklake.catalog.catalog import Catalog, there
from duckrun.formats.ducklake.state.inlined import if_there, inlined_rows, inlined_tables
from duckrun.formats.ducklake.state.state import TableState, state_of
from duckrun.sql.quoting import quote_literal
from duckrun.values.rows import ColumnFigures
from duckrun.values.snapshot import Snapshot

_PLAIN = {
    *("tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint",
      "float", "double", "decimal"),
    *("date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp with time zone", "varchar"),
}  # fmt: skip
"""Types whose bounds are meaningful to a reader."""


def column_figures(catalog: Catalog, snapshot: Snapshot) -> dict[str, ColumnFigures]:
    """Return the statistics of each column that does not partition the table.

    No value lies outside of its bounds, except NaN. A statistic is None unless it is known for
    every file. The NULL count is None if some rows of a file do not count.
    """
    state = state_of(snapshot)
    if state.at < 0:  # Rows of an open transaction do not belong to a version yet.
        return {}
    names = [name for name in snapshot.schema.names if name not in snapshot.partition_columns]
    kinds = {name: duckdb.type(kind) for name, kind in state.definition.sql_types.items()}
    files = _of_files(catalog, state, names, kinds)
    inlined = _of_catalog(catalog, state, names, kinds)
    figures = {}
    for name in names:
        low, high, nulls = zip(*(part[name] for part in (files, inlined) if part is not None), strict=True)
        bounds = _joined(catalog, [*low, *high], kinds[name])
        figures[name] = ColumnFigures(*bounds, sum(nulls) if None not in nulls else None)
    return figures


_Part = dict[str, tuple[Any, Any, int | None]]
"""Column -> (least value, greatest value, number of NULLs), values as text.

An unknown value is "", and a missing one is None.
"""


def _of_files(catalog: Catalog, state: TableState, names: list[str], kinds: dict[str, Any]) -> _Part:
    meta = catalog.meta
    expressions = ["(SELECT count(*) FROM files)"]
    for name in names:
        of_column, kind = f"FILTER (column_id = {state.column_ids[name]}", kinds[name]
        plain = kind.id in _PLAIN  # a bound of GEOMETRY is none, and fails at TRY_CAST (duckdb 1.5.5)
        low, high = (f"TRY_CAST({each}_value AS {kind})" if plain else "NULL" for each in ("min", "max"))
        expressions += [f"{_text(f'min({low}) {of_column})', kind)}", f"{_text(f'max({high}) {of_column})', kind)}"]
        lacks = f"({low} IS NULL OR {high} IS NULL) AND null_count IS DISTINCT FROM record_count"
        expressions += [
            f"count(*) {of_column} AND NOT ({lacks}))",
            f"count(null_count) {of_column})",
            f"sum(null_count) {of_column})",
        ]
    [row] = catalog.ask(
        f"WITH files AS (SELECT data_file_id, record_count FROM {meta('ducklake_data_file')} AS f "
        f"WHERE {_own('f', state)} AND record_count > 0) "
        f"SELECT {', '.join(expressions)} FROM files "
        f"JOIN {meta('ducklake_file_column_stats')} AS s USING (data_file_id)"
    )
    count, whole = int(row[0]), counts_whole(catalog, state)
    figures: _Part = {}
    for place, name in enumerate(names):
        low, high, bounded, counted, nulls = row[5 * place + 1 : 5 * place + 6]
        known = bounded == count and kinds[name].id in _PLAIN
        figures[name] = (
            low if known else "",
            # A greatest value of NaN hides the greatest number.
            high if known and high != "nan" else "",
            (int(nulls or 0) if counted == count and whole else None),
        )
    return figures


def _own(entry: str, state: TableState) -> str:
    return f"{entry}.table_id = {state.id} AND {there(entry, state.version)}"


def counts_whole(catalog: Catalog, state: TableState) -> bool:
    """True if every row of every file counts: none is deleted, and none is of a later snapshot."""
    meta = catalog.meta
    [(partial, marked)] = catalog.ask(
        f"SELECT (SELECT count(*) FROM {meta('ducklake_data_file')} AS f WHERE {_own('f', state)} "
        f"AND partial_max > {state.version}), "
        f"(SELECT count(*) FROM {meta('ducklake_delete_file')} AS d WHERE {_own('d', state)})"
    )
    if partial or marked:
        return False
    marks = meta(f"ducklake_inlined_delete_{state.id}")
    return not if_there(catalog.cursor(), f"SELECT 1 FROM {marks} WHERE begin_snapshot <= {state.version} LIMIT 1")


def _of_catalog(catalog: Catalog, state: TableState, names: list[str], kinds: dict[str, Any]) -> _Part | None:
    """Statistics of the inlined rows; None if there are none."""
    tables = inlined_tables(catalog.ask, catalog.meta, state.id)
    if not tables:
        return None
    expressions, columns = ["count(*)"], state.columns()
    for name in names:
        value = columns[name]
        plain = kinds[name].id in _PLAIN
        expressions += [_text(f"{of}({value})", kinds[name]) if plain else "''" for of in ("min", "max")]
        expressions.append(f"count(*) - count({value})")
    [row] = catalog.ask(f"SELECT {', '.join(expressions)} FROM {inlined_rows(catalog, state, state.epoch, tables)}")
    if not row[0]:
        return None
    return {
        name: (row[3 * i + 1], "" if row[3 * i + 2] == "nan" else row[3 * i + 2], row[3 * i + 3])
        for i, name in enumerate(names)
    }


def _text(value: str, kind: Any) -> str:
    if str(kind) == "TIMESTAMP WITH TIME ZONE":
        return f"CAST(timezone('UTC', {value}) AS VARCHAR) || 'Z'"
    return f"CAST({value} AS VARCHAR)"


def _joined(catalog: Catalog, bounds: list[Any], kind: Any) -> tuple[str | None, str | None]:
    """Combine the bounds of files and inlined rows. The first half are least values."""
    half = len(bounds) // 2
    joined: list[str | None] = []
    for of, values in (("min", bounds[:half]), ("max", bounds[half:])):
        known = [value for value in values if value is not None]
        if "" in known or not known:
            joined.append(None)
        elif len(known) == 1 or str(kind) == "VARCHAR":
            joined.append({"min": min, "max": max}[of](known))
        else:
            listed = ", ".join(f"(CAST({quote_literal(value)} AS {kind}))" for value in known)
            joined.append(catalog.ask(f"SELECT {_text(f'{of}(v)', kind)} FROM (VALUES {listed}) AS t(v)")[0][0])
    return joined[0], joined[1]
