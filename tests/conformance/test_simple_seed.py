"""Conformance: simple seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dbt.tests.adapter
import pytest
from dbt.tests.adapter.simple_seed.fixtures import properties__schema_yml
from dbt.tests.adapter.simple_seed.test_seed import (
    BaseBasicSeedTests,
    BaseSeedConfigFullRefreshOff,
    BaseSeedConfigFullRefreshOn,
    BaseSeedCustomSchema,
    BaseSeedParsing,
    BaseSeedSpecificFormats,
    BaseSeedWithEmptyDelimiter,
    BaseSeedWithUniqueDelimiter,
    BaseSeedWithWrongDelimiter,
    BaseSimpleSeedEnabledViaConfig,
    BaseSimpleSeedWithBOM,
    BaseTestEmptySeed,
)
from dbt.tests.adapter.simple_seed.test_seed_type_override import BaseSimpleSeedColumnOverride


class OurViews:
    """A view of a lake reads a table by its name: it is there when the table is made anew, and nothing cascades."""

    def _check_relation_end_state(self, run_result: Any, project: Any, exists: bool) -> None:
        super()._check_relation_end_state(run_result, project, exists=True)  # type: ignore[misc]


class TestBasicSeedTests(OurViews, BaseBasicSeedTests):
    pass


class TestSeedConfigFullRefreshOn(OurViews, BaseSeedConfigFullRefreshOn):
    pass


class TestSeedConfigFullRefreshOff(BaseSeedConfigFullRefreshOff):
    pass


class TestSeedCustomSchema(BaseSeedCustomSchema):
    pass


class TestSeedWithUniqueDelimiter(BaseSeedWithUniqueDelimiter):
    pass


class TestSeedWithWrongDelimiter(BaseSeedWithWrongDelimiter):
    pass


class TestSeedWithEmptyDelimiter(BaseSeedWithEmptyDelimiter):
    pass


class TestSimpleSeedEnabledViaConfig(BaseSimpleSeedEnabledViaConfig):
    pass


class TestSeedParsing(BaseSeedParsing):
    pass


class TestSimpleSeedWithBOM(BaseSimpleSeedWithBOM):
    @pytest.fixture(scope="class")
    def project(self, project: Any) -> Any:
        """The seed lies beside the suite's own tests."""
        project.test_dir = str(Path(dbt.tests.adapter.__path__[0]) / "simple_seed")
        return project


class TestSeedSpecificFormats(BaseSeedSpecificFormats):
    pass


class TestEmptySeed(BaseTestEmptySeed):
    pass


class TestSimpleSeedColumnOverride(BaseSimpleSeedColumnOverride):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        """The same types, as dbt-duckdb names them."""
        spelled = {"timestamp without time zone": "TIMESTAMP", "text": "character varying(256)", "integer": "INTEGER"}
        spelled |= {"boolean": "BOOLEAN", "date": "DATE"}
        schema = properties__schema_yml
        for theirs, ours in spelled.items():
            schema = schema.replace(f"type: {theirs}\n", f"type: {ours}\n")
        return {"schema.yml": schema}
