"""Transactions over several tables, and the lakes that have them."""

from __future__ import annotations

from duckrun.errors import UnsupportedFeature
from duckrun.formats.transactions import TransactionalLake
from duckrun.lake.lake import Lake


def transactions_on(lake: Lake, engine: str) -> TransactionalLake:
    """Return the lake's transactions, for one over several tables.

    Raises:
        UnsupportedFeature: The lake's format or the engine has no such transactions.
    """
    transactions = lake.transactions(
        ": each table has a log of its own, so that no commit spans several. A lake of format ducklake has such "
        "transactions."
    )
    if engine != "duckdb":
        raise UnsupportedFeature(
            f"Lake {lake.root}: a transaction over several tables runs on engine duckdb, and this "
            f"session's is {engine}."
        )
    return transactions
