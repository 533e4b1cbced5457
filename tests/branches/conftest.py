"""A lake with two tables, and a branch of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import duckrun
from duckrun import Session

ORDERS = "select i as id, if(i % 2 = 0, 'EU', 'US') as region, i * 1.5 as price from range(10) r(i)"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def main(root: Path) -> Iterator[Session]:
    with duckrun.connect(root) as session:
        session.sql(f"create table sales.orders as {ORDERS}")
        session.sql("create table sales.items as select 1 as item")
        yield session


@pytest.fixture
def branch(main: Session, root: Path) -> Iterator[Session]:
    with duckrun.connect(root, branch="pr-42") as session:
        yield session
