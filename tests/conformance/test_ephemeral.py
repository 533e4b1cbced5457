"""Conformance: ephemeral."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dbt.tests.adapter.ephemeral.test_ephemeral import (
    BaseEphemeralErrorHandling,
    BaseEphemeralMulti,
    BaseEphemeralNested,
)
from dbt.tests.util import check_relations_equal, run_dbt


class OurView:
    """What dbt keeps in target/run of a view: its query, which the lake keeps, too."""

    def compare(self, name: str, expected: str) -> None:
        sql = Path(f"target/run/test/models/{name}.sql").read_text()
        assert "".join(re.sub(r"test\d+_", "test_", sql).split()) == "".join(expected.split())


class TestEphemeralMulti(OurView, BaseEphemeralMulti):
    def test_ephemeral_multi(self, project: Any) -> None:
        run_dbt(["seed"])
        assert len(run_dbt(["run"])) == 3
        for name in ("dependent", "double_dependent", "super_dependent"):
            check_relations_equal(project.adapter, ["seed", name])
        self.compare(
            "double_dependent",
            """with __dbt__cte__base as (select * from test_test_ephemeral.seed),
            __dbt__cte__base_copy as (select * from __dbt__cte__base)
            -- base_copy just pulls from base. Make sure the listed -- graph of CTEs all share the same dbt_cte__base cte
            select * from __dbt__cte__base where gender = 'Male'
            union all select * from __dbt__cte__base_copy where gender = 'Female'""",
        )


class TestEphemeralNested(OurView, BaseEphemeralNested):
    def test_ephemeral_nested(self, project: Any) -> None:
        assert len(run_dbt(["run"])) == 2
        self.compare(
            "root_view",
            """with __dbt__cte__ephemeral_level_two as (
            select * from "memory"."test_test_ephemeral"."source_table"
            ), __dbt__cte__ephemeral as (select * from __dbt__cte__ephemeral_level_two)
            select * from __dbt__cte__ephemeral""",
        )


class TestEphemeralErrorHandling(BaseEphemeralErrorHandling):
    pass
