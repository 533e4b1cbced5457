"""A MariaDB server on loopback for each test session, and a fresh database for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.databases import Server, mariadb


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[Server]:
    """A running MariaDB."""
    with mariadb() as server:
        yield server


@pytest.fixture
def mysql_catalog(mysql_server: Server) -> str:
    """The ``catalog`` of a lake in a database that nothing is in."""
    return mysql_server.address(mysql_server.database())
