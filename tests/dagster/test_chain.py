"""A retry commits once; a new run writes again."""

from types import SimpleNamespace
from typing import Any

import dagster as dg
import pyarrow as pa
from dagster._core.execution.api import create_execution_plan

from duckrun_dagster.chain import chain_of
from duckrun_dagster.partitions.partitions import written_partitions


def orders(calls: list[int], *, fail_first: bool = False) -> dg.AssetsDefinition:
    @dg.asset(name="orders", metadata={"mode": "append"})
    def _orders() -> pa.Table:
        calls.append(1)
        return pa.table({"id": [len(calls)]})

    return _orders


def test_an_append_of_a_run_that_dagster_retries_takes_the_place_of_the_first(shop: Any, metadata: Any) -> None:
    calls: list[int] = []
    first = shop.run([orders(calls)])
    tags = {"dagster/parent_run_id": first.run_id, "dagster/root_run_id": first.run_id, "dagster/retry_number": "1"}
    again = shop.run([orders(calls)], tags=tags)
    assert len(calls) == 2
    assert metadata(again, "orders")["version"] == 1
    assert shop.rows("select id from orders") == [(2,)]


def test_a_run_resumed_from_failure_counts_its_append_once(shop: Any) -> None:
    calls: list[int] = []
    first = shop.run([orders(calls)])
    shop.run([orders(calls)], tags={"dagster/parent_run_id": first.run_id, "dagster/is_resume_retry": "true"})
    assert shop.rows("select id from orders") == [(2,)]


def test_the_tag_of_a_resumed_asset_run_decides_nothing(shop: Any) -> None:
    """Dagster keeps it in the tags of a later "re-execute all"."""
    calls: list[int] = []
    first = shop.run([orders(calls)])
    shop.run([orders(calls)], tags={"dagster/parent_run_id": first.run_id, "dagster/is_asset_resume_retry": "true"})
    assert shop.rows("select id from orders order by id") == [(1,), (2,)]


def test_running_again_and_reexecuting_all_write_again(shop: Any) -> None:
    calls: list[int] = []
    first = shop.run([orders(calls)])
    shop.run([orders(calls)])
    shop.run([orders(calls)], tags={"dagster/parent_run_id": first.run_id, "dagster/root_run_id": first.run_id})
    assert shop.rows("select id from orders order by id") == [(1,), (2,), (3,)]


def test_all_steps_of_a_scheduled_run_are_no_part_of_it(shop: Any) -> None:
    """A schedule names no step of its runs, and Dagster's Python API each step of a re-execution."""
    calls: list[int] = []
    definition = dg.Definitions(
        assets=[orders(calls), dg.asset(name="more")(lambda: pa.table({"n": [1]}))],
        jobs=[dg.define_asset_job("all")],
        resources=shop.resources(),
    ).resolve_job_def("all")
    named = shop.instance.create_run_for_job(definition)
    assert sorted(named.step_keys_to_execute) == ["more", "orders"]
    scheduled = named._replace(run_id="scheduled", step_keys_to_execute=None)
    shop.instance.add_run(scheduled)
    again = shop.instance.create_run_for_job(definition, parent_run_id="scheduled", root_run_id="scheduled")
    assert chain_of(again, shop.instance) == again.run_id
    plan = create_execution_plan(definition, step_keys_to_execute=["orders"])
    part = shop.instance.create_run_for_job(
        definition, execution_plan=plan, parent_run_id="scheduled", root_run_id="scheduled"
    )
    assert chain_of(part, shop.instance) == "scheduled"


def test_a_retry_after_reexecuting_all_belongs_to_that_execution(shop: Any) -> None:
    calls: list[int] = []
    first = shop.run([orders(calls)])
    root = {"dagster/root_run_id": first.run_id}
    second = shop.run([orders(calls)], tags={"dagster/parent_run_id": first.run_id, **root})
    third = shop.run(
        [orders(calls)], tags={"dagster/parent_run_id": second.run_id, "dagster/retry_number": "1", **root}
    )
    assert shop.rows("select id from orders order by id") == [(1,), (3,)]
    assert chain_of(third.dagster_run, shop.instance) == second.run_id


def test_a_step_retried_within_its_run_leaves_the_rows_of_its_last_attempt(shop: Any) -> None:
    calls: list[int] = []

    @dg.multi_asset(
        outs={"a": dg.AssetOut(metadata={"mode": "append"}), "b": dg.AssetOut()},
        retry_policy=dg.RetryPolicy(max_retries=2),
    )
    def both():
        calls.append(1)
        yield dg.Output(pa.table({"id": [len(calls)]}), "a")
        if len(calls) < 3:
            raise RuntimeError("lost the connection")
        yield dg.Output(pa.table({"id": [1]}), "b")

    shop.run([both])
    assert len(calls) == 3
    assert shop.rows("select id from a") == [(3,)]


def test_a_parent_that_is_no_longer_stored_ends_the_chain(shop: Any) -> None:
    run = dg.DagsterRun(job_name="j", tags={"dagster/parent_run_id": "gone", "dagster/retry_number": "1"})
    assert chain_of(run, shop.instance) == "gone"
    assert chain_of(dg.DagsterRun(job_name="j", run_id="r"), None) == "r"


def test_a_range_has_one_name_in_whatever_order_its_partitions_come() -> None:
    """Dagster gives a range of static partitions as a set, whose order differs between processes."""
    names = dg.StaticPartitionsDefinition(list("abcdefgh"))

    def label(keys: str) -> str:
        context = SimpleNamespace(
            has_asset_key=True, has_asset_partitions=True, asset_partitions_def=names, asset_partition_keys=list(keys)
        )
        found = written_partitions(context)  # type: ignore[arg-type]
        assert found is not None
        return found.label

    assert label("hgfedcba") == label("abcdefgh") != label("abcdefg")
