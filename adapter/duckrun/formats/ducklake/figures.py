"""What a DuckLake says of the columns of a version without opening a data file: how many values are NULL, and between which bounds the others lie.

Source: the DuckLake specification 1.0, ducklake_file_column_stats; and what is read of the rows that lie in the catalog.
"""

from __future__ import annotations

from typing import Any

import duckdb

from duckrun.formats.ducklake.catalog import Catalog, there
from duckrun.formats.ducklake.state import TableState
from duckrun.sql.names import quote_identifier, quote_literal
from duckrun.values.rows import ColumnFigures
from duckrun.values.snapshot import Snapshot

_PLAIN = {
    *("tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint", "float", "double", "decimal"),
    *("date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp with time zone", "varchar"),
}  # fmt: skip
"""Types whose bounds mean something to who reads them."""


def column_figures(catalog: Catalog, snapshot: Snapshot) -> dict[str, ColumnFigures]:
    """Of each column that is no partition: no value is outside its bounds, NaN aside. None is what the catalog does not know of every file;
    NULLs are not known where rows of a file do not count.
    """
    state: TableState = snapshot.own
    if state.at < 0:  # what a transaction has written so far is nobody's version yet
        return {}
    names = [name for name in snapshot.schema.names if name not in snapshot.partition_columns]
    kinds = {name: duckdb.type(kind) for name, kind in state.definition.sql_types.items()}
    files = _of_files(catalog, state, names, kinds)
    inlined = _of_catalog(catalog, state, names, kinds)
    found = {}
    for name in names:
        low, high, nulls = zip(*(part[name] for part in (files, inlined) if part is not None), strict=True)
        bounds = _joined(catalog, [*low, *high], kinds[name])
        found[name] = ColumnFigures(*bounds, sum(nulls) if None not in nulls else None)
    return found


_Part = dict[str, tuple[Any, Any, int | None]]
"""By column the least and the greatest value as text, "" for unknown and None for none, and how many are NULL."""


def _of_files(catalog: Catalog, state: TableState, names: list[str], kinds: dict[str, Any]) -> _Part:
    meta = catalog.meta
    asked = ["(SELECT count(*) FROM files)"]
    for name in names:
        own, kind = f"FILTER (column_id = {state.column_ids[name]}", kinds[name]
        plain = kind.id in _PLAIN  # a bound of GEOMETRY is none, and fails at TRY_CAST (duckdb 1.5.5)
        low, high = (f"TRY_CAST({each}_value AS {kind})" if plain else "NULL" for each in ("min", "max"))
        asked += [f"{_text(f'min({low}) {own})', kind)}", f"{_text(f'max({high}) {own})', kind)}"]
        lacks = f"({low} IS NULL OR {high} IS NULL) AND null_count IS DISTINCT FROM record_count"
        asked += [f"count(*) {own} AND NOT ({lacks}))", f"count(null_count) {own})", f"sum(null_count) {own})"]
    [row] = catalog.ask(
        f"WITH files AS (SELECT data_file_id, record_count FROM {meta('ducklake_data_file')} AS f WHERE {_own('f', state)} AND record_count > 0) "
        f"SELECT {', '.join(asked)} FROM files JOIN {meta('ducklake_file_column_stats')} AS s USING (data_file_id)"
    )
    count, whole = int(row[0]), counts_whole(catalog, state)
    found: _Part = {}
    for place, name in enumerate(names):
        low, high, bounded, counted, nulls = row[5 * place + 1 : 5 * place + 6]
        known = bounded == count and kinds[name].id in _PLAIN
        found[name] = (
            low if known else "",
            high if known and high != "nan" else "",
            (int(nulls or 0) if counted == count and whole else None),
        )
    return found


def _own(entry: str, state: TableState) -> str:
    return f"{entry}.table_id = {state.id} AND {there(entry, state.version)}"


def counts_whole(catalog: Catalog, state: TableState) -> bool:
    """Whether all rows of all files count: none is deleted, and none belongs to a later snapshot."""
    meta = catalog.meta
    [(partial, marked)] = catalog.ask(
        f"SELECT (SELECT count(*) FROM {meta('ducklake_data_file')} AS f WHERE {_own('f', state)} AND partial_max > {state.version}), "
        f"(SELECT count(*) FROM {meta('ducklake_delete_file')} AS d WHERE {_own('d', state)})"
    )
    if partial or marked:
        return False
    marks = meta(f"ducklake_inlined_delete_{state.id}")
    try:
        found = catalog.cursor().execute(f"SELECT 1 FROM {marks} WHERE begin_snapshot <= {state.version} LIMIT 1")
    except duckdb.CatalogException:  # DuckLake makes it when the first row is marked there
        return True
    return not found.fetchall()


def _of_catalog(catalog: Catalog, state: TableState, names: list[str], kinds: dict[str, Any]) -> _Part | None:
    """The same of the rows that lie in the catalog; None where there are none."""
    tables = catalog.ask(
        f"SELECT table_name FROM {catalog.meta('ducklake_inlined_data_tables')} WHERE table_id = {state.id}"
    )
    if not tables:
        return None
    asked = ["count(*)"]
    for name in names:
        value = state.column(name)
        plain = kinds[name].id in _PLAIN
        asked += [_text(f"{of}({value})", kinds[name]) if plain else "''" for of in ("min", "max")]
        asked.append(f"count(*) - count({value})")
    source = quote_identifier(catalog.alias(state.epoch), state.schema, state.name)
    listed = ", ".join(quote_literal(name) for (name,) in tables)
    [row] = catalog.ask(
        f"SELECT {', '.join(asked)} FROM {source} AT (VERSION => {state.version}) WHERE filename IN ({listed})"
    )
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
    """The least and the greatest of the bounds of files and catalog: half of them are least ones."""
    half = len(bounds) // 2
    found: list[str | None] = []
    for of, values in (("min", bounds[:half]), ("max", bounds[half:])):
        known = [value for value in values if value is not None]
        if "" in known or not known:
            found.append(None)
        elif len(known) == 1 or str(kind) == "VARCHAR":
            found.append({"min": min, "max": max}[of](known))
        else:
            listed = ", ".join(f"(CAST({quote_literal(value)} AS {kind}))" for value in known)
            found.append(catalog.ask(f"SELECT {_text(f'{of}(v)', kind)} FROM (VALUES {listed}) AS t(v)")[0][0])
    return found[0], found[1]
