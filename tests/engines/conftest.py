"""One table of a lake, on each engine."""

from __future__ import annotations

import pytest

from duckrun.session import Session
from duckrun.values.rows import WriteSpec
from tests.lake import ORDERS, OneTable


@pytest.fixture
def bench(session: Session) -> OneTable:
    """sales.orders, which does not exist yet."""
    return OneTable(session, "sales.orders")


@pytest.fixture
def orders(bench: OneTable) -> OneTable:
    """sales.orders with ORDERS, partitioned by day."""
    bench.run(WriteSpec("error", partition_by=("day",)), ORDERS)
    return bench
