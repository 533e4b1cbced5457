"""Reproductions of faults of other libraries. A test passes while its fault is there.

A test that fails after an upgrade says which workaround may go: docs/internals/upstream.md, step 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "upstream.md"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show the row of the page of a failed reproduction, which names the workaround."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.failed:
        rows = [row for row in PAGE.read_text(encoding="utf-8").splitlines() if f"::{item.originalname}`" in row]  # type: ignore[attr-defined]
        report.sections.append(("The fault is gone, or has another form. Its row in upstream.md", "\n".join(rows)))
    return report  # type: ignore[return-value]
