"""The one cluster of the suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.standalone import Cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers, each with one core and 1 GB."""
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        started.start(workers=2)
        yield started
    finally:
        started.stop()
