"""Backfills that are executed again, by Dagster's web server and daemon: an append counts once. Budget: 8 s."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.remote_representation.grpc_server_registry import GrpcServerRegistry
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.backfill import execute_backfill_iteration
from dagster._grpc.server import GrpcServerCommand
from dagster_graphql.test.utils import execute_dagster_graphql

import duckrun

LAUNCH = """mutation ($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }
  }
}"""
REEXECUTE = """mutation ($params: ReexecutionParams!) {
  reexecutePartitionBackfill(reexecutionParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }
  }
}"""
CANCEL = "mutation ($id: String!) { cancelPartitionBackfill(backfillId: $id) { __typename } }"

pytestmark = pytest.mark.drawn(3)


class Backfills:
    """A Dagster deployment in this process: its web server's API, its daemon, its runs."""

    def __init__(self, folder: Path, lake_format: str, instance: dg.DagsterInstance, workspace: Any) -> None:
        self.folder, self.lake_format, self.instance, self.workspace = folder, lake_format, instance, workspace

    def fail(self, **steps: str) -> None:
        """How steps fail from now on: ``orders_d1="after"``."""
        (self.folder / "fails.json").write_text(json.dumps({key.replace("_", " "): how for key, how in steps.items()}))

    def launch(self, *assets: str, days: tuple[str, ...] = ("d1", "d2")) -> str:
        """A backfill of assets, run to its end."""
        selection = [{"path": name.split("/")} for name in assets]
        params = {"assetSelection": selection, "partitionNames": list(days), "allPartitions": False}
        return self._launched(LAUNCH, params if days else {"assetSelection": selection, "allPartitions": True})

    def again(self, backfill: str, strategy: str, *, cancel: bool = False) -> str:
        """The same backfill, re-executed as by the button of the web server; canceled before it has begun, if that is wanted."""
        return self._launched(REEXECUTE, {"parentRunId": backfill, "strategy": strategy}, cancel)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with duckrun.connect(self.folder / "lake", schema="shop", format=self.lake_format) as session:
            return [tuple(row.values()) for row in session.sql(sql).collect()]

    def _launched(self, mutation: str, params: dict[str, Any], cancel: bool = False) -> str:
        backfill = str(self._answer(mutation, {"params": params})["backfillId"])
        if cancel:
            self._answer(CANCEL, {"id": backfill})
        for _ in range(8):
            assert not any(execute_backfill_iteration(self.workspace, logging.getLogger(__name__)))
            status = self.instance.get_backfill(backfill).status.value
            if status not in ("REQUESTED", "CANCELING"):
                assert status == "CANCELED" if cancel else status.startswith("COMPLETED"), status
                return backfill
        raise AssertionError(f"backfill {backfill} does not end")

    def _answer(self, mutation: str, variables: dict[str, Any]) -> dict[str, Any]:
        result = execute_dagster_graphql(self.workspace.create_request_context(), mutation, variables)
        (answer,) = result.data.values()
        assert answer["__typename"] in ("LaunchBackfillSuccess", "CancelBackfillSuccess"), answer
        return answer


@contextmanager
def backfills(
    folder: Path, lake_format: str, policy: str = "None", definitions: str | None = None
) -> Iterator[Backfills]:
    """A code location of its own, since Dagster caches what it loads in its process by the file.

    Its definitions are those of backfilled.py, or what an expression of Python says.
    """
    (folder / "fails.json").write_text("{}")
    code = folder / "code.py"
    code.write_text(
        "from pathlib import Path\n\nimport dagster as dg\n\nfrom tests.dagster import backfilled, published\n\n"
        f"defs = {definitions or f'backfilled.definitions(Path({str(folder)!r}), {lake_format!r}, {policy})'}\n"
    )
    origin = LoadableTargetOrigin(executable_path=sys.executable, python_file=str(code), attribute="defs")
    target = InProcessWorkspaceLoadTarget(InProcessCodeLocationOrigin(origin))
    with (
        dg.DagsterInstance.ephemeral() as instance,
        GrpcServerRegistry(
            None, GrpcServerCommand.API_GRPC, 60, 60, False
        ) as unused,  # else it needs an instance on disk
        WorkspaceProcessContext(instance, target, grpc_server_registry=unused) as workspace,
    ):
        yield Backfills(folder, lake_format, instance, workspace)


@pytest.fixture(params=["delta", "ducklake"])
def table_format(request: Any) -> str:
    return str(request.param)


def test_all_partitions_again_after_an_own_check_failed(tmp_path: Path, table_format: str) -> None:
    """The rows of the step that failed go. Those of the steps that succeeded stay, as by "re-execute all" of a run."""
    with backfills(tmp_path, table_format) as server:
        server.fail(orders_d1="check")
        first = server.launch("raw", "orders")
        assert server.rows("select day, attempt from orders order by all") == [("d1", 1), ("d2", 1)]
        second = server.again(first, "ALL_STEPS")
        assert server.rows("select day, attempt from orders order by all") == [("d1", 2), ("d2", 1), ("d2", 2)]
        server.fail()
        server.again(second, "ALL_STEPS")
        days = [("d1", 3), ("d2", 1), ("d2", 2), ("d2", 3)]
        assert server.rows("select day, attempt from orders order by all") == days
        assert server.rows("select day, count(*) from raw group by all order by all") == [("d1", 3), ("d2", 3)]


@pytest.mark.parametrize("policy", ["None", "dg.BackfillPolicy.single_run()"])
def test_from_failure_an_append_counts_once(tmp_path: Path, table_format: str, policy: str) -> None:
    """Committed without Dagster's knowledge, twice: the attempt before is that of the backfill before. What succeeded stays."""
    with backfills(tmp_path, table_format, policy) as server:
        server.fail(orders_d1="event")
        first = server.launch("raw", "orders")
        second = server.again(first, "FROM_FAILURE")
        server.fail()
        server.again(second, "FROM_FAILURE")
        of_d2 = 1 if policy == "None" else 3  # a range fails whole
        assert server.rows("select day, attempt from orders order by all") == [("d1", 3), ("d2", of_d2)]
        assert server.rows("select day, attempt from raw order by all") == [("d1", 1), ("d2", 1)]


def test_an_asset_without_partitions_in_a_backfill(tmp_path: Path, table_format: str) -> None:
    with backfills(tmp_path, table_format) as server:
        server.fail(total="event")
        first = server.launch("orders", "total", days=("d1",))
        server.fail()
        server.again(first, "FROM_FAILURE")
        assert server.rows("select attempt from total") == [(2,)]
        assert server.rows("select day, attempt from orders") == [("d1", 1)]


def test_a_backfill_that_was_canceled_passes_on_what_failed_before_it(tmp_path: Path) -> None:
    with backfills(tmp_path, "delta") as server:
        server.fail(orders_d1="event")
        first = server.launch("orders", days=("d1",))
        server.fail()
        canceled = server.again(first, "FROM_FAILURE", cancel=True)
        server.again(canceled, "FROM_FAILURE")
        assert server.rows("select day, attempt from orders") == [("d1", 2)]
