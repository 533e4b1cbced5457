"""Conformance: incremental."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.incremental.test_incremental_merge_exclude_columns import BaseMergeExcludeColumns
from dbt.tests.adapter.incremental.test_incremental_microbatch import (
    BaseMicrobatch,
    _input_model_sql,
    _microbatch_model_sql,
)
from dbt.tests.adapter.incremental.test_incremental_on_schema_change import BaseIncrementalOnSchemaChange
from dbt.tests.adapter.incremental.test_incremental_predicates import BaseIncrementalPredicates
from dbt.tests.adapter.incremental.test_incremental_unique_id import BaseIncrementalUniqueKey


class TestMergeExcludeColumns(BaseMergeExcludeColumns):
    pass


class TestMicrobatch(BaseMicrobatch):
    @pytest.fixture(scope="class")
    def microbatch_model_sql(self) -> str:
        """As on dbt-duckdb, a microbatch replaces its slice of time, and takes no unique_key."""
        return _microbatch_model_sql.replace("unique_key='id', ", "")

    @pytest.fixture(scope="class")
    def input_model_sql(self) -> str:
        """A TIMESTAMP of DuckDB has no zone."""
        return _input_model_sql.replace("-0'", "'")

    @pytest.fixture(scope="class")
    def insert_two_rows_sql(self, project: Any) -> str:
        relation = project.adapter.Relation.create(database=project.database, schema=project.test_schema)
        rows = "(4, TIMESTAMP '2020-01-04 00:00:00'), (5, TIMESTAMP '2020-01-05 00:00:00')"
        return f"insert into {relation}.input_model (id, event_time) values {rows}"


class TestIncrementalOnSchemaChange(BaseIncrementalOnSchemaChange):
    pass


class TestIncrementalPredicates(BaseIncrementalPredicates):
    pass


class TestIncrementalUniqueKey(BaseIncrementalUniqueKey):
    pass
