"""Conformance: basic."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.basic.expected_catalog import base_expected_catalog, expected_references_catalog
from dbt.tests.adapter.basic.test_adapter_methods import BaseAdapterMethod
from dbt.tests.adapter.basic.test_base import BaseSimpleMaterializations
from dbt.tests.adapter.basic.test_docs_generate import BaseDocsGenerate, BaseDocsGenReferences
from dbt.tests.adapter.basic.test_empty import BaseEmpty
from dbt.tests.adapter.basic.test_ephemeral import BaseEphemeral
from dbt.tests.adapter.basic.test_generic_tests import BaseGenericTests
from dbt.tests.adapter.basic.test_get_catalog_for_single_relation import BaseGetCatalogForSingleRelation
from dbt.tests.adapter.basic.test_incremental import (
    BaseIncremental,
    BaseIncrementalBadStrategy,
    BaseIncrementalNotSchemaChange,
)
from dbt.tests.adapter.basic.test_singular_tests import BaseSingularTests
from dbt.tests.adapter.basic.test_singular_tests_ephemeral import BaseSingularTestsEphemeral
from dbt.tests.adapter.basic.test_snapshot_check_cols import BaseSnapshotCheckCols
from dbt.tests.adapter.basic.test_snapshot_timestamp import BaseSnapshotTimestamp
from dbt.tests.adapter.basic.test_table_materialization import BaseTableMaterialization
from dbt.tests.adapter.basic.test_validate_connection import BaseValidateConnection
from dbt.tests.util import AnyInteger
from dbt_common.contracts.metadata import CatalogTable, ColumnMetadata, StatsItem, TableMetadata


class TestAdapterMethod(BaseAdapterMethod):
    pass


class TestSimpleMaterializations(BaseSimpleMaterializations):
    pass


def _statistics(**values: Any) -> dict[str, Any]:
    known = {
        "num_rows": ("Rows", "Rows of the table at this version"),
        "num_bytes": ("Bytes", "Size of its data files"),
        "version": ("Version", "Newest version of the Delta table"),
    }
    found = {
        key: {"id": key, "label": label, "description": description, "value": values[key], "include": True}
        for key, (label, description) in known.items()
        if key in values
    }
    described = "Indicates whether there are statistics for this table"
    has = {"id": "has_stats", "label": "Has Stats?", "value": bool(found), "description": described, "include": False}
    return {**found, "has_stats": has}


TABLE = _statistics(num_rows=AnyInteger(), num_bytes=AnyInteger(), version=AnyInteger())
VIEW = _statistics()
TYPES: dict[str, Any] = {
    "role": None,
    "id_type": "INTEGER",
    "text_type": "VARCHAR",
    "time_type": "TIMESTAMP",
    "view_type": "VIEW",
    "table_type": "BASE TABLE",
}


class TestDocsGenerate(BaseDocsGenerate):
    @pytest.fixture(scope="class")
    def expected_catalog(self, project: Any) -> dict[str, Any]:
        return base_expected_catalog(project, **TYPES, model_stats=VIEW, seed_stats=TABLE)


class TestDocsGenReferences(BaseDocsGenReferences):
    @pytest.fixture(scope="class")
    def expected_catalog(self, project: Any) -> dict[str, Any]:
        return expected_references_catalog(
            project, **TYPES, bigint_type="BIGINT", model_stats=TABLE, view_summary_stats=VIEW
        )


class TestEmpty(BaseEmpty):
    pass


class TestEphemeral(BaseEphemeral):
    pass


class TestGenericTests(BaseGenericTests):
    pass


class TestGetCatalogForSingleRelation(BaseGetCatalogForSingleRelation):
    @pytest.fixture(scope="class")
    def expected_catalog_my_seed(self, project: Any) -> CatalogTable:
        return self._catalog(project, "my_seed", "BASE TABLE", TABLE)

    @pytest.fixture(scope="class")
    def expected_catalog_my_view_model(self, project: Any) -> CatalogTable:
        return self._catalog(project, "my_view_model", "VIEW", VIEW)

    def _catalog(self, project: Any, name: str, kind: str, statistics: dict[str, Any]) -> CatalogTable:
        types = {"id": "INTEGER", "first_name": "VARCHAR", "email": "VARCHAR", "ip_address": "VARCHAR"}
        types["updated_at"] = "TIMESTAMP"
        return CatalogTable(
            metadata=TableMetadata(kind, project.test_schema, name, project.database),
            columns={n: ColumnMetadata(type_, i, n) for i, (n, type_) in enumerate(types.items(), 1)},
            stats={key: StatsItem(**item) for key, item in statistics.items()},
        )


class TestIncremental(BaseIncremental):
    pass


class TestIncrementalNotSchemaChange(BaseIncrementalNotSchemaChange):
    pass


class TestIncrementalBadStrategy(BaseIncrementalBadStrategy):
    pass


class TestSingularTests(BaseSingularTests):
    pass


class TestSingularTestsEphemeral(BaseSingularTestsEphemeral):
    pass


class TestSnapshotCheckCols(BaseSnapshotCheckCols):
    pass


class TestSnapshotTimestamp(BaseSnapshotTimestamp):
    pass


class TestTableMaterialization(BaseTableMaterialization):
    pass


class TestValidateConnection(BaseValidateConnection):
    pass
