"""Conformance: simple copy."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.simple_copy.test_simple_copy import EmptyModelsArentRunBase, SimpleCopyBase


class TestSimpleCopy(SimpleCopyBase):
    def test_simple_copy_with_materialized_views(self, project: Any) -> None:
        pytest.skip("not applicable: it makes a materialized view by Postgres's own statement")


class TestEmptyModelsArentRun(EmptyModelsArentRunBase):
    @pytest.fixture(autouse=True)
    def tables_by_the_adapter(self, project: Any, engine_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The suite asks information_schema, which Spark has not."""

        def tables() -> dict[str, str]:
            with project.adapter.connection_named("_test"):
                relations = project.adapter.list_relations(project.database, project.test_schema)
            return {relation.identifier: str(relation.type) for relation in relations}

        if engine_name == "spark":
            monkeypatch.setattr(project, "get_tables_in_schema", tables)
