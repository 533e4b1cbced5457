"""Which lakes have transactions over several tables."""

from __future__ import annotations

from duckrun.errors import UnsupportedFeature
from duckrun.formats.lakes import WholeLake
from duckrun.lake.lake import Lake


def whole_on(lake: Lake, engine: str) -> WholeLake:
    """The lake as a whole, for a transaction over several tables on an engine. Raises UnsupportedFeature where one of them has none."""
    whole = lake.format.whole
    if whole is None:
        raise UnsupportedFeature(
            f"Lake {lake.root} is of format {lake.format.name}: each table has a log of its own, so that no commit spans several. A lake of format "
            "ducklake has such transactions."
        )
    if engine != "duckdb":
        raise UnsupportedFeature(
            f"Lake {lake.root}: a transaction over several tables runs on engine duckdb, and this session's is {engine}."
        )
    return whole
