"""Conformance: simple copy."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.simple_copy.test_simple_copy import EmptyModelsArentRunBase, SimpleCopyBase


class TestSimpleCopy(SimpleCopyBase):
    def test_simple_copy_with_materialized_views(self, project: Any) -> None:
        pytest.skip("not applicable: it makes a materialized view by Postgres's own statement")


class TestEmptyModelsArentRun(EmptyModelsArentRunBase):
    pass
