"""Outputs of ops that name a table, and the IO manager alone, without a run."""

from datetime import date
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from duckrun_dagster import DeltaIOManager

ROWS = pa.table({"id": [1, 2]})
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-05")


def run(shop: Any, job: dg.JobDefinition, **arguments: Any) -> dg.ExecuteInProcessResult:
    return job.execute_in_process(instance=shop.instance, resources=shop.resources(), **arguments)


def error(shop: Any, job: dg.JobDefinition, **arguments: Any) -> str:
    result = run(shop, job, raise_on_error=False, **arguments)
    failed = next(event for event in result.all_events if event.is_step_failure).step_failure_data.error
    return str((failed.cause or failed).message)


def job_of(value: Any, **metadata: Any) -> dg.JobDefinition:
    @dg.op(out=dg.Out(metadata=metadata))
    def make():
        return value

    @dg.job
    def nightly():
        make()

    return nightly


def test_an_op_writes_the_table_that_its_output_names_and_another_reads_it(shop: Any) -> None:
    seen: list[Any] = []

    @dg.op(out=dg.Out(metadata={"table": "it's é %20", "schema": "raw"}))
    def make():
        return ROWS

    @dg.op(ins={"made": dg.In(metadata={"columns": ["id"]})})
    def read(made: pd.DataFrame) -> None:
        seen.append(sorted(made["id"]))

    @dg.graph
    def both():
        read(make())

    result = run(shop, both.to_job())
    assert seen == [[1, 2]]
    assert shop.rows("""select count(*) from raw."it's é %20" """) == [(2,)]
    [handled] = [event for event in result.all_events if event.event_type_value == "HANDLED_OUTPUT"]
    assert handled.event_specific_data.metadata["version"].value == 0


def test_a_retried_op_writes_once(shop: Any) -> None:
    tries: list[int] = []

    @dg.op(
        out={"rows": dg.Out(metadata={"table": "log", "mode": "append"}), "end": dg.Out(dg.Nothing)},
        retry_policy=dg.RetryPolicy(max_retries=1),
    )
    def make():
        yield dg.Output(ROWS, "rows")
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("the line is down")
        yield dg.Output(None, "end")

    @dg.job
    def nightly():
        make()

    run(shop, nightly)
    assert len(tries) == 2 and shop.rows("select count(*) from log") == [(2,)]
    del tries[:]
    run(shop, nightly)
    assert shop.rows("select count(*) from log") == [(4,)]


@pytest.mark.parametrize(
    ("value", "metadata", "words"),
    [
        (ROWS, {}, "Output 'result' of op make is no asset, so it has no table. Name one: dg.Out(metadata={'table'"),
        (ROWS, {"tabel": "x"}, "Did you mean 'table'?"),
        (ROWS, {"table": "x", "mode": "apend"}, "Output 'result' of op make: metadata 'mode' is 'apend'"),
        (None, {"table": "x"}, "annotate the op '-> None'"),
    ],
)
def test_an_output_that_cannot_be_a_table_says_what_to_do(shop: Any, value: Any, metadata: Any, words: str) -> None:
    assert words in error(shop, job_of(value, **metadata))
    assert not shop.root.exists() or not list(shop.root.rglob("*.parquet"))


def test_an_op_that_returns_none_without_a_table_is_told_of_its_annotation(shop: Any) -> None:
    assert "annotate the op '-> None'" in error(shop, job_of(None))


def test_an_op_in_a_run_of_a_partition_says_how_rows_come_together(shop: Any) -> None:
    def job(**metadata: Any) -> dg.JobDefinition:
        @dg.op(out=dg.Out(metadata={"table": "log", **metadata}))
        def make():
            return ROWS

        @dg.job(partitions_def=DAYS)
        def nightly():
            make()

        return nightly

    message = error(shop, job(), partition_key="2024-01-01")
    assert "the run of each partition would overwrite table shop.log" in message and "'mode'" in message
    for day in ("2024-01-01", "2024-01-02"):
        run(shop, job(mode="append"), partition_key=day)
    assert shop.rows("select count(*) from log") == [(4,)]


def test_mapped_steps_do_not_overwrite_each_other(shop: Any) -> None:
    def job(**metadata: Any) -> dg.JobDefinition:
        @dg.op(out=dg.DynamicOut(io_manager_key="memory"))
        def parts():
            for name in ("a", "b"):
                yield dg.DynamicOutput(name, mapping_key=name)

        @dg.op(out=dg.Out(metadata={"table": "log", **metadata}), ins={"name": dg.In(input_manager_key="memory")})
        def make(name):
            return [{"name": name}]

        @dg.job(resource_defs={"memory": dg.mem_io_manager})
        def nightly():
            parts().map(make)

        return nightly

    resources = {**shop.resources(), "memory": dg.mem_io_manager}
    failed = job().execute_in_process(instance=shop.instance, resources=resources, raise_on_error=False)
    assert not failed.success and not list(shop.root.rglob("*.parquet"))
    assert job(mode="append").execute_in_process(instance=shop.instance, resources=resources).success
    assert sorted(shop.rows("select name from log")) == [("a",), ("b",)]


def test_the_io_manager_alone_writes_and_reads_in_a_test(shop: Any) -> None:
    manager = DeltaIOManager(duckrun=shop.lake, schema="shop")
    written = dg.build_output_context(asset_key=["goods"])
    manager.handle_output(written, ROWS)
    assert manager.load_input(dg.build_input_context(asset_key=["goods"], upstream_output=written)).num_rows == 2
    assert manager.load_input(dg.build_input_context(asset_key=["goods"])).num_rows == 2
    kind = dg.PythonObjectDagsterType(pd.DataFrame)
    read = dg.build_input_context(asset_key=["goods"], dagster_type=kind, definition_metadata={"columns": ["id"]})
    assert isinstance(manager.load_input(read), pd.DataFrame)
    manager.handle_output(dg.build_output_context(name="rows", definition_metadata={"table": "op"}), ROWS)
    assert shop.rows("select count(*) from op") == [(2,)]


def test_the_io_manager_alone_writes_and_reads_a_partition(shop: Any) -> None:
    manager = DeltaIOManager(duckrun=shop.lake, schema="shop")

    def written(day: str) -> Any:
        return dg.build_output_context(
            asset_key=["sales"],
            partition_key=day,
            asset_partitions_def=DAYS,
            definition_metadata={"partition_expr": "day"},
        )

    for day in ("2024-01-01", "2024-01-02"):
        manager.handle_output(written(day), pa.table({"day": [date.fromisoformat(day)]}))
    day = dg.PartitionKeyRange("2024-01-02", "2024-01-02")
    read = dg.build_input_context(
        asset_key=["sales"],
        partition_key="2024-01-02",
        asset_partition_key_range=day,
        asset_partitions_def=DAYS,
        upstream_output=written("2024-01-02"),
    )
    assert manager.load_input(read).to_pydict() == {"day": [date(2024, 1, 2)]}
