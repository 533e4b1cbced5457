"""The preview of an asset's page: the same rows from the frame that was written as from a scan of the table."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from duckrun.engines.duckdb.instance.instance import Instance
from duckrun.engines.duckdb.writers import columnar
from duckrun_dagster import DeltaIOManager, DuckrunResource
from duckrun_dagster.io_managers import manager as io_manager

MOMENT = datetime(2024, 1, 2, 3, 4, 5, 678, UTC)
PLAIN: dict[str, Any] = {
    "polars": pl.DataFrame({"id": [1, None], "v": ["a", "b|c"], "day": [date(2024, 1, 1), None], "at": [MOMENT, None]}),
    "pyarrow": pa.table({"n": pa.array([Decimal("1.10"), None], pa.decimal128(5, 2)), "b": [b"\xff", None], "y": [True, None]}),
    "pandas": pd.DataFrame({"x": [0.5, None], "k": pd.Categorical(["b", None]), "n": pd.array([1, None], "Int8")}),
    "without rows": pl.DataFrame({"id": []}, {"id": pl.Int64}),
    "more rows than shown": pl.DataFrame({"id": range(1000)}),
}  # fmt: skip
OTHERS: dict[str, Any] = {
    "berlin": pl.DataFrame({"at": [MOMENT]}).with_columns(pl.col("at").dt.convert_time_zone("Europe/Berlin")),
    "unsigned": pl.DataFrame({"n": pl.Series([2**63], dtype=pl.UInt64)}),
    "nanoseconds": pa.table({"at": pa.array([1000], pa.timestamp("ns"))}),
    "lists": pa.table({"items": [[1, None]]}),
    "lazy": pl.LazyFrame({"id": [1]}),
}


class Assets:
    """Materializes values as one asset, and returns the preview."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.opened = root, 0
        opens = Instance.cursor

        def counted(instance: Instance) -> Any:
            self.opened += 1
            return opens(instance)

        monkeypatch.setattr(Instance, "cursor", counted)
        monkeypatch.setattr(columnar, "_MOST_BYTES", 10**9)  # DuckDB writes the rows of some tests

    def preview(self, value: Any, lake: str = "lake", **metadata: Any) -> str:
        @dg.asset(key=["main", "t"], metadata=metadata)
        def t() -> Any:
            return value

        manager = DeltaIOManager(duckrun=DuckrunResource(root_path=str(self.root / lake)))
        self.opened = 0
        result = dg.materialize([t], resources={"io_manager": manager})
        return str(result.asset_materializations_for_node("main__t")[0].metadata["preview"].value)


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Assets:
    return Assets(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", [*PLAIN, *OTHERS])
def test_the_frame_shows_what_a_scan_shows(assets: Assets, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    value = {**PLAIN, **OTHERS}[name]
    shown = assets.preview(value)
    assert assets.opened == 0 or name in OTHERS
    monkeypatch.setattr(io_manager, "head_of", lambda source: None)
    assert assets.preview(value, "scanned") == shown
    assert assets.opened > 0


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_rows_beside_others_are_scanned(assets: Assets, mode: str) -> None:
    how = {"mode": mode} | ({"merge_keys": ["id"]} if mode == "merge" else {})
    assets.preview(pl.DataFrame({"id": [1, 2], "v": ["a", "b"]}), **how)
    shown = assets.preview(pl.DataFrame({"id": [3, 2], "v": ["c", "B"]}), **how)
    old = "| 2 | b |" if mode == "append" else "| 2 | B |"
    assert all(row in shown for row in ("| 1 | a |", "| 3 | c |", old))


def test_a_column_that_the_frame_lacks_is_shown(assets: Assets) -> None:
    assets.preview(pl.DataFrame({"id": [1], "v": ["a"]}), mode="append")
    assert "| 2 |  |" in assets.preview(pl.DataFrame({"id": [2]}), mode="append", schema_mode="append_new_columns")
