"""Column types on their way from one format to another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb

from duckrun.engines.duckdb.rows.types import storable
from duckrun.errors import SchemaMismatch
from duckrun.formats.format import Format
from duckrun.values.lake_format import DUCKLAKE


def fitting(table: str, types: Mapping[str, Any], to: Format, unfit: list[str]) -> list[str]:
    """Return columns whose type changes in the target, for messages.

    Args:
        unfit: Gets a message for each column that the target cannot store.
    """
    changed = []
    for column, kind in types.items():
        kind = duckdb.type(kind) if isinstance(kind, str) else kind
        if to.name == DUCKLAKE and column.lower() == "rowid":
            unfit.append(f"table {table}: column rowid has the name of DuckLake's row ids")
            continue
        try:
            stored = storable(column, kind, native=to.native_types)
        except SchemaMismatch as error:
            unfit.append(f"table {table}: {error}")
            continue
        if str(duckdb.type(stored)) != str(kind):
            changed.append(f"column {column} is {stored} there, not {kind}")
    return changed
