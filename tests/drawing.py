"""The cases of large matrices that a run takes (a pytest plugin: conftest.py names it in pytest_plugins).

- ``@pytest.mark.drawn(5)``: a run takes a fifth of the cases. The seed says which fifth. The drawn cases of a file take
  turns in their order; with ``whole_classes=True``, the classes of a folder do. With ``each_test=True``, the cases of a test
  do, and a run takes at least one of them. As many runs with seeds in a row as there are parts see every case.
- ``@pytest.mark.first_of("name")``: a run takes the first case of each name, whatever the seed.
- ``@pytest.mark.whole``: about all cases of a matrix together; runs where all of them do.

With DUCKRUN_TEST_SHARE=3, a run draws a third of all these cases by its seed: those with ``first_of`` too. With
DUCKRUN_TEST_ROUNDS=3, a random search does a third of its rounds.

The seed is DUCKRUN_TEST_SEED, else the number of the run where the CI counts them (GITHUB_RUN_NUMBER), else random; each run
prints it. All cases run with DUCKRUN_TEST_ALL=1 (`make test-all`), with full counts (DUCKRUN_SOAK), and where the call names
tests itself (``::`` or ``-k``).
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from random import SystemRandom

import pytest

SEED = "DUCKRUN_TEST_SEED"
SHARE = "DUCKRUN_TEST_SHARE"
ROUNDS = "DUCKRUN_TEST_ROUNDS"


def seed() -> int:
    """The seed of this run, the same in all of its processes."""
    if not os.environ.get(SEED):
        os.environ[SEED] = os.environ.get("GITHUB_RUN_NUMBER") or str(SystemRandom().randrange(2**31))
    return int(os.environ[SEED])


def everything() -> bool:
    """True for a run that takes every case."""
    return bool(os.environ.get("DUCKRUN_TEST_ALL") or os.environ.get("DUCKRUN_SOAK"))


def rounds(whole: int) -> int:
    """The number of rounds of a random search: of ``whole`` the part that DUCKRUN_TEST_ROUNDS says, and at least one."""
    return whole if everything() else max(1, whole // int(os.environ.get(ROUNDS) or 1))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "drawn(parts, whole_classes=False, each_test=False): a run takes one of so many parts of the cases"
    )
    config.addinivalue_line("markers", "first_of(name): a run takes the first case of each name, whatever the seed")
    config.addinivalue_line("markers", "whole: runs only where every case of a drawn matrix does")
    seed()  # before xdist starts its workers, which inherit it


def pytest_report_header(config: pytest.Config) -> str:
    return (
        f"seed: {seed()} ({SEED}={seed()} draws the same cases again{'; every case is taken' if everything() else ''})"
    )


@pytest.hookimpl(trylast=True)  # other hooks add markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases that this run does not take."""
    if everything() or config.getoption("keyword") or any("::" in arg for arg in config.invocation_params.args):
        return
    selection = _Selection(items)
    taken: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        (taken if selection.takes(item) else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = taken


class _Selection:
    """The cases of a run; it counts the cases of a file, or the classes of a folder, as they come."""

    def __init__(self, items: list[pytest.Item]) -> None:
        self._cases = Counter(_test_of(item) for item in items)
        self._numbers: dict[str, dict[str, int]] = {}
        self._firsts: dict[str, str] = {}
        self._share = int(os.environ.get(SHARE) or 0)

    def takes(self, item: pytest.Item) -> bool:
        if item.get_closest_marker("whole"):
            return False
        first = item.get_closest_marker("first_of")
        if first and not self._share:
            return self._firsts.setdefault(first.args[0], item.nodeid) == item.nodeid
        marker = item.get_closest_marker("drawn")
        parts = (int(marker.args[0]) if marker else 1) * (self._share or 1)
        within, case = f"{item.path.parent.name}/{item.path.name}", item.nodeid
        if marker and marker.kwargs.get("whole_classes"):
            within, case = item.path.parent.name, case.rpartition("::")[0]
        # A test with fewer cases than parts is drawn from those that it has.
        turns = parts
        if marker and marker.kwargs.get("each_test"):
            within = _test_of(item)
            turns = min(parts, self._cases[within])
        # Cases of one number of parts are counted apart from others, so that each is drawn evenly.
        numbers = self._numbers.setdefault(f"{within} {parts}", {})
        number = numbers.setdefault(case, len(numbers))
        # Files with a single case each must not all come up in the same run. Each round of cases begins
        # one part later: parameters that alternate, such as two formats, would else be drawn of one value only.
        return (number + number // parts) % parts == -(zlib.crc32(within.encode()) + seed()) % turns


def _test_of(item: pytest.Item) -> str:
    """Name of the test whose case an item is."""
    return item.nodeid.partition("[")[0]
