"""A PostgreSQL server on loopback for each test session, and a fresh database for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.databases import Server, postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A running PostgreSQL."""
    with postgres() as server:
        yield server


@pytest.fixture
def postgres_catalog(postgres_server: Server) -> str:
    """The ``catalog`` of a lake in a database that nothing is in."""
    return postgres_server.address(postgres_server.database())
