"""Nothing of dbt's suite is left out in silence: each class runs here, or is listed with its reason."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conformance.applicability import NOT_APPLICABLE, suite_classes


def _run_here() -> set[str]:
    """The classes of the suite that a class in this folder runs, read from the sources."""
    found: set[str] = set()
    for file in Path(__file__).parent.glob("test_*.py"):
        tree = ast.parse(file.read_text())
        imported = {
            alias.asname or alias.name: f"{node.module.removeprefix('dbt.tests.adapter.')}:{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dbt.tests.adapter.")
            for alias in node.names
        }
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                found |= {
                    imported[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in imported
                }
    return found


@pytest.mark.parametrize("engine", list(NOT_APPLICABLE))
def test_every_class_of_the_suite_runs_or_has_a_reason(engine: str) -> None:
    known, run, listed = set(suite_classes()), _run_here(), NOT_APPLICABLE[engine]
    assert known - run - set(listed) == set()
    assert set(listed) - known == set(), "the table names classes that the suite does not have"
    assert all(reason.strip() for reason in listed.values())
