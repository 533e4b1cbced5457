"""A lake in a temporary folder, and Dagster run in this process on an instance that leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import duckrun
from duckrun.values.snapshot import Snapshot
from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource


class Shop:
    """A lake and what runs on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.instance = dg.DagsterInstance.ephemeral()
        self.lake = DuckrunResource(root_path=str(root))

    def resources(self, **settings: Any) -> dict[str, Any]:
        return {"duckrun": self.lake, "io_manager": DeltaIOManager(duckrun=self.lake, schema="shop", **settings)}

    def run(
        self,
        assets: Sequence[Any],
        *,
        fails: bool = False,
        settings: dict[str, Any] | None = None,
        partitions: tuple[str, str] | str | None = None,
        tags: dict[str, str] | None = None,
        **arguments: Any,
    ) -> dg.ExecuteInProcessResult:
        """Materialize; ``partitions`` is a key, or the first and last of a single-run range."""
        if isinstance(partitions, tuple):
            tags = {
                **(tags or {}),
                "dagster/asset_partition_range_start": partitions[0],
                "dagster/asset_partition_range_end": partitions[1],
            }
        result = dg.materialize(
            assets,
            instance=self.instance,
            resources=self.resources(**(settings or {})),
            partition_key=partitions if isinstance(partitions, str) else None,
            tags=tags,
            raise_on_error=not fails,
            **arguments,
        )
        assert result.success is not fails
        return result

    def error(self, assets: Sequence[Any], **arguments: Any) -> str:
        """The message of the step that fails."""
        result = self.run(assets, fails=True, **arguments)
        failed = [event for event in result.all_events if event.is_step_failure]
        error = failed[0].step_failure_data.error
        return str((error.cause or error).message if error else "")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with duckrun.connect(self.root, schema="shop") as session:
            return [tuple(row.values()) for row in session.sql(sql).collect()]

    def snapshot(self, table: str) -> Snapshot:
        lake = self.lake.lake()
        return lake.snapshot(lake.resolve("shop", table.removeprefix("shop.")))

    def version(self, table: str) -> int:
        return self.snapshot(table).version


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "lake")


@pytest.fixture
def with_spark(spark: Any) -> dict[str, Any]:
    """Settings of an IO manager that has Spark: the session of the test run."""
    return {"spark": SparkResource()}


@pytest.fixture
def metadata() -> Callable[[dg.ExecuteInProcessResult, str], dict[str, Any]]:
    """The metadata of an asset's materialization in a run, as plain values."""

    def of(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
        events = result.asset_materializations_for_node(asset)
        return {key: getattr(value, "value", value) for key, value in events[-1].metadata.items()}

    return of
