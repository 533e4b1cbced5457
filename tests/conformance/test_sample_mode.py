"""Conformance: sample mode."""

from __future__ import annotations

from dbt.tests.adapter.sample_mode.test_sample_mode import BaseSampleModeTest


class TestSampleModeTest(BaseSampleModeTest):
    pass
