"""A lake of one asset that is run, and run again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg

import duckrun
from duckrun_dagster import DeltaIOManager, DuckrunResource

RETRIED = {"dagster/is_resume_retry": "true"}


class RerunLake:
    """A lake and a Dagster instance; the schema is ``shop``."""

    def __init__(self, root: Path, lake_format: str) -> None:
        self.root, self.format = root, lake_format
        self.instance = dg.DagsterInstance.ephemeral()
        lake = DuckrunResource(root_path=str(root), format=lake_format)
        self.resources = {"duckrun": lake, "io_manager": DeltaIOManager(duckrun=lake, schema="shop", preview=False)}

    def sql(self, *statements: str) -> None:
        with duckrun.connect(self.root, schema="shop", format=self.format) as session:
            for statement in statements:
                session.sql(statement)

    def query(self, text: str) -> list[tuple[Any, ...]]:
        with duckrun.connect(self.root, schema="shop", format=self.format) as session:
            return [tuple(row.values()) for row in session.sql(text).collect()]

    def materialize(self, assets: Sequence[Any], parent: Any) -> Any:
        """The result of a run; with a parent it retries that."""
        tags = {} if parent is None else {"dagster/parent_run_id": parent.run_id, **RETRIED}
        return dg.materialize(assets, instance=self.instance, resources=self.resources, tags=tags, raise_on_error=False)
