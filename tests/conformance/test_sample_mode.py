"""Conformance: sample mode."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.sample_mode.fixtures import input_model_sql
from dbt.tests.adapter.sample_mode.test_sample_mode import BaseSampleModeTest


class TestSampleModeTest(BaseSampleModeTest):
    @pytest.fixture(scope="class")
    def input_model_sql(self) -> str:
        """A TIMESTAMP of DuckDB has no zone."""
        return input_model_sql.replace("-0'", "'")
