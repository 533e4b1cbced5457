"""How much a random test did: a line of each, printed at the end of the run (a pytest plugin: conftest.py names it)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

FIGURES = "figures"


@pytest.fixture
def figures(record_property: Callable[[str, Any], None]) -> Callable[[str], None]:
    """Takes a line such as "40 kills in 14 chains, seed 7, 51 s". Unlike printed text, it also comes from xdist's workers."""
    return lambda line: record_property(FIGURES, line)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, line in report.user_properties:
            if name == FIGURES and report.when == "call":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {line}")
