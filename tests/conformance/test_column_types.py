"""Conformance: column types."""

from __future__ import annotations

from dbt.tests.adapter.column_types.test_column_types import BasePostgresColumnTypes


class TestPostgresColumnTypes(BasePostgresColumnTypes):
    pass
