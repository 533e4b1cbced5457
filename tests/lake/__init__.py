"""What tests look at in a lake: a table's rows and versions, through a session."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from duckrun import Session
from duckrun.engines.frame import LazyRows
from duckrun.sql.quoting import quote_identifier
from duckrun.values.rows import Commit, ReadSpec
from duckrun.values.snapshot import Snapshot
from tests.ducklake import plain

ORDERS = [{"id": 1, "day": "a", "v": 10.0}, {"id": 2, "day": "b", "v": 20.0}]


FORMAT = "delta"
"""The format of the lakes of the test that runs (tests/lake_formats.py)."""


def nth(number: int) -> int:
    """The version that a number of commits after the first of a lake make, where all are of one table. A DuckLake begins with two snapshots."""
    return number + (2 if FORMAT == "ducklake" else 0)


def folder_of(root: Path, table: str) -> Path:
    """The folder of the files of a table that is named ``schema.table``."""
    return root / ("data" if FORMAT == "ducklake" else "") / table.replace(".", "/")


def rows_of(value: LazyRows | pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    """The rows as sorted tuples; NaN becomes a string, so that it equals itself."""
    table = value.toArrow() if isinstance(value, LazyRows) else value
    table = table.select(list(columns)) if columns else table
    return sorted((tuple(_plain(v) for v in row.values()) for row in table.to_pylist()), key=repr)


def by_another(session: Session, name: str) -> pa.Table:
    """The rows of a table as another program has them: deltalake, or DuckDB with its own extension."""
    ref = session.ref(name)
    if FORMAT == "delta":
        return DeltaTable(ref.location).to_pyarrow_table()
    with plain.attached(Path(session.lake.root)) as own:
        own.execute("SET TimeZone = 'UTC'")
        return own.sql(f"FROM {quote_identifier('lake', ref.schema, ref.name)}").to_arrow_table()


def _plain(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


class OneTable:
    """One table, written and read by a session's own engine."""

    def __init__(self, session: Session, name: str) -> None:
        self.session, self.name = session, name
        self.lake, self.ref = session.lake, session.lake.parse(name)

    def run(self, spec: Any, source: Any = None) -> Commit:
        """Carry out a spec; a list of rows becomes an Arrow table."""
        return self.session.execute(
            self.name, spec, pa.Table.from_pylist(source) if isinstance(source, list) else source
        )

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        return rows_of(self.session.scan(self.name, ReadSpec(columns=columns or None)))

    def snapshot(self) -> Snapshot:
        return self.lake.snapshot(self.ref)

    @property
    def version(self) -> int | None:
        """The newest version; None where there is no table."""
        return self.lake.format.snapshot(self.ref).version if self.lake.format.exists(self.ref) else None
