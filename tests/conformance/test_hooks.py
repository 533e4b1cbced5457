"""Conformance: hooks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dbt.tests.adapter.hooks.test_model_hooks import (
    BaseDuplicateHooksInConfigs,
    BaseHookRefs,
    BaseHooksRefsOnSeeds,
    BasePrePostModelHooks,
    BasePrePostModelHooksInConfig,
    BasePrePostModelHooksInConfigKwargs,
    BasePrePostModelHooksInConfigWithCount,
    BasePrePostModelHooksOnSeeds,
    BasePrePostModelHooksOnSeedsPlusPrefixed,
    BasePrePostModelHooksOnSeedsPlusPrefixedWhitespace,
    BasePrePostModelHooksOnSnapshots,
    BasePrePostSnapshotHooksInConfigKwargs,
)
from dbt.tests.adapter.hooks.test_run_hooks import BaseAfterRunHooks, BasePrePostRunHooks


class OurTarget:
    """What the hooks' context says of the target: the suite expects a Postgres server."""

    def check_hooks(self, state: str, project: Any, host: str | None, count: int = 1) -> None:
        found: Any = self.get_ctx_vars(state, count=count, project=project)  # type: ignore[attr-defined]
        self._check(found, state, project)

    def _check(self, rows: list[dict[str, Any]], state: str, project: Any) -> None:
        for row in rows:
            expected = {
                "test_state": state,
                "target_name": "default",
                "target_schema": project.test_schema,
                "target_threads": 4,
                "target_type": "duckrun",
                "target_host": "",
                "target_user": "",
                "target_pass": "",
            }
            assert {key: row[key] for key in expected} == expected
            assert row["run_started_at"] and row["invocation_id"]
            assert row["thread_id"].startswith("Thread-") or row["thread_id"] == "MainThread"


class OurRunTarget(OurTarget):
    def check_hooks(self, state: str, project: Any, host: str | None, count: int = 1) -> None:
        self._check([self.get_ctx_vars(state, project)], state, project)  # type: ignore[attr-defined]


class OurUpkeep:
    """Hooks outside of a transaction: the suite's VACUUM is Postgres' and Delta's, and a DuckLake has OPTIMIZE."""

    @pytest.fixture(scope="class")
    def project_config_update(self, format_name: str) -> dict[str, Any]:
        given = super().project_config_update.__wrapped__(self)  # type: ignore[misc]
        if format_name == "delta":
            return given
        return json.loads(json.dumps(given).replace("vacuum ", "optimize "))


class TestPrePostModelHooks(OurTarget, OurUpkeep, BasePrePostModelHooks):
    pass


class TestHookRefs(OurTarget, BaseHookRefs):
    pass


class TestPrePostModelHooksOnSeeds(BasePrePostModelHooksOnSeeds):
    pass


class TestHooksRefsOnSeeds(BaseHooksRefsOnSeeds):
    pass


class TestPrePostModelHooksOnSeedsPlusPrefixed(BasePrePostModelHooksOnSeedsPlusPrefixed):
    pass


class TestPrePostModelHooksOnSeedsPlusPrefixedWhitespace(BasePrePostModelHooksOnSeedsPlusPrefixedWhitespace):
    pass


class TestPrePostModelHooksOnSnapshots(BasePrePostModelHooksOnSnapshots):
    pass


class TestPrePostModelHooksInConfig(OurTarget, BasePrePostModelHooksInConfig):
    pass


class TestPrePostModelHooksInConfigWithCount(OurTarget, OurUpkeep, BasePrePostModelHooksInConfigWithCount):
    pass


class TestPrePostModelHooksInConfigKwargs(OurTarget, BasePrePostModelHooksInConfigKwargs):
    pass


class TestPrePostSnapshotHooksInConfigKwargs(BasePrePostSnapshotHooksInConfigKwargs):
    pass


class TestDuplicateHooksInConfigs(BaseDuplicateHooksInConfigs):
    pass


class TestPrePostRunHooks(OurRunTarget, BasePrePostRunHooks):
    pass


class TestAfterRunHooks(BaseAfterRunHooks):
    pass
