"""docs/notebook.ipynb runs unchanged on both engines, and shows what it holds."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest

from tools.run_notebook import NOTEBOOK, executed, outputs

pytestmark = pytest.mark.formats


@pytest.fixture
def stored() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


# Spark's half has a kernel, and so a JVM, of its own.
@pytest.mark.parametrize(
    "name", ["duckdb", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_the_notebook_shows_the_same_on_each_engine(name: str, stored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = outputs(stored)
    assert sum(map(len, before)) > 10, "the notebook is stored with its outputs: python tools/run_notebook.py"
    monkeypatch.setenv("DUCKRUN_ENGINE", name)
    assert outputs(executed(stored)) == before
