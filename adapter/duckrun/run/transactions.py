"""Which lakes have transactions over several tables."""

from __future__ import annotations

from duckrun.errors import UnsupportedFeature
from duckrun.lake.lake import Lake


def refuse_without(lake: Lake, engine: str) -> None:
    """Raise UnsupportedFeature for a lake, or an engine, that has no transactions over several tables."""
    if not lake.format.transacts:
        raise UnsupportedFeature(
            f"Lake {lake.root} is of format {lake.format.name}: each table has a log of its own, so that no commit spans several. A lake of format "
            "ducklake has such transactions."
        )
    if engine != "duckdb":
        raise UnsupportedFeature(
            f"Lake {lake.root}: a transaction over several tables runs on engine duckdb, and this session's is {engine}."
        )
