"""A DuckLake of its own for each test, where a file has no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import duckrun
from duckrun import Session


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def lake(root: Path) -> Iterator[Session]:
    with duckrun.connect(root, format="ducklake") as session:
        yield session
