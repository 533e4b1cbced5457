"""Conformance: dbt debug."""

from __future__ import annotations

from dbt.tests.adapter.dbt_debug.test_dbt_debug import BaseDebugInvalidProjectPostgres


class TestDebugInvalidProjectPostgres(BaseDebugInvalidProjectPostgres):
    pass
