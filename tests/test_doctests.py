"""The examples in docstrings give the results that stand below them."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"adapter": "adapter", "duckrun_dagster": ".", "example_project": ".", "tools": "."}


def _modules() -> list[str]:
    files = ((ROOT / parent, file) for folder, parent in FOLDERS.items() for file in (ROOT / folder).rglob("*.py"))
    shown = ((parent, file) for parent, file in files if ">>> " in file.read_text(encoding="utf-8"))
    return sorted(
        ".".join(file.relative_to(parent).with_suffix("").parts).removesuffix(".__init__") for parent, file in shown
    )


@pytest.mark.parametrize("module", _modules())
def test_examples_of_a_module(module: str) -> None:
    results = doctest.testmod(import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted and not results.failed
