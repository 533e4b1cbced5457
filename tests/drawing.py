"""Which part of the large matrices a run takes, by its seed (a pytest plugin: conftest.py names it in pytest_plugins).

``@pytest.mark.drawn(5)`` on a test leaves a fifth of its cases to each run. The drawn cases of a file take turns in their
order, and with ``whole_classes=True`` the classes of a folder do: as many runs with seeds in a row as there are parts see
every case. ``@pytest.mark.whole`` is for a test about all cases of a matrix together, which runs where all of them do.

A run with DUCKRUN_TEST_TURN takes the part of that many turns later: a suite beside another run of the same tests takes
none that the other took.

The seed is DUCKRUN_TEST_SEED, else the number of the run where the CI counts them (GITHUB_RUN_NUMBER), else random; each run
prints it. All cases run with DUCKRUN_TEST_ALL=1 (`make test-all`), with full counts (DUCKRUN_SOAK), and where the call names
tests itself (``::`` or ``-k``).
"""

from __future__ import annotations

import os
import zlib
from random import SystemRandom

import pytest

SEED = "DUCKRUN_TEST_SEED"
TURN = "DUCKRUN_TEST_TURN"


def seed() -> int:
    """The seed of this run, the same in all of its processes."""
    if not os.environ.get(SEED):
        os.environ[SEED] = os.environ.get("GITHUB_RUN_NUMBER") or str(SystemRandom().randrange(2**31))
    return int(os.environ[SEED])


def everything() -> bool:
    """True for a run that takes every case."""
    return bool(os.environ.get("DUCKRUN_TEST_ALL") or os.environ.get("DUCKRUN_SOAK"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "drawn(parts, whole_classes=False): a run takes one of so many parts of the cases"
    )
    config.addinivalue_line("markers", "whole: runs only where every case of a drawn matrix does")
    seed()  # before xdist starts its workers, which inherit it


def pytest_report_header(config: pytest.Config) -> str:
    return (
        f"seed: {seed()} ({SEED}={seed()} draws the same cases again{'; every case is taken' if everything() else ''})"
    )


@pytest.hookimpl(trylast=True)  # other hooks add markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases whose turn it is not."""
    if everything() or config.getoption("keyword") or any("::" in arg for arg in config.invocation_params.args):
        return
    turns = _Turns()
    left = [item for item in items if not turns.has(item)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]


class _Turns:
    """Whose turn it is: the cases of a file, or the classes of a folder, are counted as they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[str, int]] = {}

    def has(self, item: pytest.Item) -> bool:
        if item.get_closest_marker("whole"):
            return False
        marker = item.get_closest_marker("drawn")
        if marker is None:
            return True
        parts, case = int(marker.args[0]), item.nodeid
        within = f"{item.path.parent.name}/{item.path.name}"
        if marker.kwargs.get("whole_classes"):
            within, case = item.path.parent.name, case.rpartition("::")[0]
        # Cases of one number of parts are counted apart from others, so that each is drawn evenly.
        numbers = self._numbers.setdefault(f"{within} {parts}", {})
        number = numbers.setdefault(case, len(numbers))
        # Files with a single case each must not all come up in the same run.
        return (zlib.crc32(within.encode()) + number + seed() + int(os.environ.get(TURN, "0"))) % parts == 0
