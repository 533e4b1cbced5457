"""Jobs that publish after their checks: main has all tables of a run or none, and the asset page says which."""

from __future__ import annotations

import contextvars
import json
import re
import shlex
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import duckrun
from duckrun import InvalidConfig
from duckrun.cli import main as command
from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource, publish_after_checks
from tests.dagster import published
from tests.dagster.published import ORDERS, PUBLISH, REPORT, TOTALS
from tests.dagster.test_backfills import backfills
from tests.dagster.test_branches import (  # noqa: F401
    dbt_of,
    lake,
    metadata,
    models_of,
    orders,
    project,
    resources,
    rows,
)

IS_PUBLISHED = dg.AssetCheckKey(PUBLISH, "is_published")


class Nightly:
    """The jobs of published.py on a lake and a Dagster instance."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.folder, self.root, self.instance = folder, folder / "lake", instance
        self.runs: list[str] = []
        self.behave()
        with duckrun.connect(self.root) as main:
            main.sql("create table sales.orders as select 7::bigint as id")

    def behave(self, **state: Any) -> None:
        """Let steps behave so from now on (see published.py)."""
        (self.folder / "state.json").write_text(json.dumps(state))

    def run(
        self,
        name: str = "nightly",
        *,
        parent: str | None = None,
        steps: Sequence[str] | None = None,
        fails: bool = False,
        processes: bool = False,
        tags: dict[str, str] | None = None,
    ) -> dg.JobExecutionResult:
        """Run a job; with a parent only its failed steps and those after them, or some steps."""
        options = None
        if steps is not None and parent is not None:
            options = dg.ReexecutionOptions(parent, step_selection=steps)
        elif parent is not None:
            options = dg.ReexecutionOptions.from_failure(parent, self.instance)
        executor: dict[str, Any] = {"multiprocess": {"max_concurrent": 2}} if processes else {"in_process": {}}
        built = dg.build_reconstructable_job(
            "tests.dagster.published", "job", reconstructable_args=(str(self.folder), name)
        )
        result = dg.execute_job(
            built,
            self.instance,
            run_config=None if options else {"execution": {"config": executor}},
            reexecution_options=options,
            tags=tags,
        )
        self.runs.append(result.run_id)
        assert result.success is not fails
        return result

    def rows(self, table: str, branch: str | None = None) -> list[Any]:
        with duckrun.connect(self.root, branch=branch) as session:
            return [next(iter(row.values())) for row in session.sql(f"from sales.{table} order by all").collect()]

    def tables(self) -> list[str]:
        with duckrun.connect(self.root) as session:
            return session.tables()

    def branches(self) -> list[str]:
        with duckrun.connect(self.root) as session:
            return [each.name for each in session.branches()]

    def check(self) -> Any:
        """Return the newest evaluation of the check of the publishing asset."""
        records = self.instance.event_log_storage.get_latest_asset_check_execution_by_key([IS_PUBLISHED])
        event = records[IS_PUBLISHED].event
        assert event is not None and event.dagster_event is not None
        return event.dagster_event.event_specific_data

    def materialized(self, key: dg.AssetKey = PUBLISH) -> dict[str, Any]:
        """Return the metadata of the newest materialization of an asset; empty if it has none."""
        event = self.instance.get_latest_materialization_event(key)
        known = None if event is None else event.asset_materialization
        return {} if known is None else {name: value.value for name, value in known.metadata.items()}


@pytest.fixture
def nightly(tmp_path: Path) -> Nightly:
    return Nightly(tmp_path, dg.DagsterInstance.ephemeral())


@pytest.fixture
def processes(tmp_path: Path) -> Nightly:
    """On an instance that the processes of steps, or two threads, can use at once."""
    (tmp_path / "dagster").mkdir()
    return Nightly(tmp_path, dg.DagsterInstance.local_temp(str(tmp_path / "dagster")))


def error_of(result: dg.JobExecutionResult, step: str) -> str:
    (failure,) = [each for each in result.all_events if each.is_step_failure and each.step_key == step]
    error = failure.step_failure_data.error
    assert error is not None
    return f"{error.message} {error.cause.message if error.cause else ''}"


@pytest.mark.drawn(1)
def test_a_job_publishes_its_tables_together(nightly: Nightly) -> None:
    result = nightly.run()
    assert (nightly.rows("orders"), nightly.rows("totals"), nightly.branches()) == ([1, 7], [2], [])
    shown = nightly.materialized()
    tables = {record.data["table"]: record.data for record in shown["tables"].records}
    assert tables["sales.orders"] == {"table": "sales.orders", "version_before": 0, "version": 1}
    assert tables["sales.totals"] == {"table": "sales.totals", "version_before": None, "version": 0}
    assert shown["branch"] == nightly.materialized(ORDERS)["branch"] == f"nightly-{result.run_id[:13]}"
    run = nightly.instance.get_run_by_id(result.run_id)
    assert run is not None and run.tags["duckrun/branch"] == shown["branch"]
    assert nightly.check().passed
    for key in (ORDERS, TOTALS):
        (record,) = nightly.instance.fetch_observations(key, limit=9).records
        observation = record.asset_observation
        assert observation is not None
        assert (
            observation.metadata["published_version"].value == tables["/".join(key.path).replace("/", ".")]["version"]
        )


@pytest.mark.drawn(1)
def test_a_failing_blocking_check_leaves_main_and_says_what_to_do(
    nightly: Nightly, capsys: pytest.CaptureFixture[str]
) -> None:
    nightly.behave(check="ERROR")
    failed = nightly.run(fails=True)
    branch = f"nightly-{failed.run_id[:13]}"
    assert (nightly.rows("orders"), nightly.tables(), nightly.branches()) == ([7], ["sales.orders"], [branch])
    assert nightly.materialized() == {}
    check = nightly.check()
    assert not check.passed and check.metadata["branch"].value == branch
    assert f"Branch {branch} is not published" in check.description and "sales__orders_few" in check.description
    (diff, discard) = re.findall(r"duckrun (branch \w+ \S+ --root [^\s.]+)", check.description)
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        command(shlex.split(diff))
    assert not ended.value.code and "sales.orders" in capsys.readouterr().out

    nightly.behave()
    again = nightly.run(parent=failed.run_id)
    assert again.get_step_success_events() and nightly.check().passed
    assert nightly.materialized()["branch"] == branch
    assert (nightly.rows("orders"), nightly.rows("totals"), nightly.branches()) == ([1, 7], [2], [])
    assert discard.startswith("branch discard")


def test_warnings_and_checks_that_do_not_block_do_not_stop_the_publish(nightly: Nightly) -> None:
    nightly.behave(check="WARN")
    result = nightly.run()
    assert nightly.rows("orders") == [1, 7]
    rows_seen = {
        each.event_specific_data.check_name: each.event_specific_data.metadata  # type: ignore[union-attr]
        for each in result.all_events
        if each.event_type_value == "ASSET_CHECK_EVALUATION"
    }
    assert rows_seen["few"]["rows"].value == 2
    assert rows_seen["never_stops"]["n"].value == [{"n": 2}]
    assert nightly.branches() == []  # also a check after the publish leaves none


def test_retries_count_an_append_once(nightly: Nightly) -> None:
    nightly.behave(orders="once")  # it fails after its write, and its RetryPolicy runs it again
    nightly.run()
    assert nightly.rows("orders") == [1, 7]

    nightly.behave(orders="raises", value=2)
    failed = nightly.run(fails=True)
    assert nightly.rows("orders") == [1, 7]
    nightly.behave(value=3)
    nightly.run(parent=failed.run_id)
    assert (nightly.rows("orders"), nightly.branches()) == ([1, 3, 7], [])


def test_tables_that_only_an_earlier_attempt_wrote_are_not_published(nightly: Nightly) -> None:
    with duckrun.connect(nightly.root) as main:
        main.sql("create table sales.days as select 1 as day")
    also = ["create table sales.extra as select 1 as x", "insert into sales.days values (2)"]
    nightly.behave(totals="raises", also=also)
    failed = nightly.run(fails=True)
    branch = f"nightly-{failed.run_id[:13]}"
    nightly.behave()
    again = nightly.run(parent=failed.run_id, fails=True)
    error = error_of(again, "publish__nightly")
    assert "sales.days (sales__totals), sales.extra (sales__totals)" in error
    assert nightly.tables() == ["sales.days", "sales.orders"] and nightly.rows("days") == [1]
    assert "sales.extra" in nightly.check().description

    nightly.behave(also=["insert into sales.days values (3)"])
    again = nightly.run(parent=failed.run_id, steps=["sales__totals", "publish__nightly"], fails=True)
    assert "sales.days" not in error_of(again, "publish__nightly")  # as in main, its earlier rows stay
    with duckrun.connect(nightly.root, branch=branch) as session:
        session.sql("drop table sales.extra")
    nightly.run(parent=again.run_id)
    assert nightly.tables() == ["sales.days", "sales.orders", "sales.totals"]
    assert (nightly.rows("days"), nightly.rows("orders")) == ([1, 2, 3], [1, 7])


def test_tables_that_the_last_attempt_wrote_again_are_published(nightly: Nightly) -> None:
    also = ["create or replace table sales.extra as select 1 as x"]
    nightly.behave(totals="raises", also=also)
    failed = nightly.run(fails=True)
    nightly.behave(also=also)
    nightly.run(parent=failed.run_id)
    assert nightly.tables() == ["sales.extra", "sales.orders", "sales.totals"]


DROPS_AND_DEFINES = [
    "drop table if exists sales.days",
    "drop view if exists sales.old",
    "create or replace view sales.seen as select 1 as x",
]


def _with_names(nightly: Nightly) -> None:
    with duckrun.connect(nightly.root) as main:
        main.sql("create table sales.days as select 1 as day")
        main.sql("create view sales.old as select 1 as x")


def test_drops_and_views_that_only_an_earlier_attempt_made_are_not_published(nightly: Nightly) -> None:
    _with_names(nightly)
    nightly.behave(totals="raises", also=DROPS_AND_DEFINES)
    failed = nightly.run(fails=True)
    nightly.behave()
    again = nightly.run(parent=failed.run_id, fails=True)
    error = error_of(again, "publish__nightly")
    assert all(f"sales.{name} (sales__totals)" in error for name in ("days", "old", "seen"))
    assert nightly.tables() == ["sales.days", "sales.old", "sales.orders"]
    with duckrun.connect(nightly.root, branch=f"nightly-{failed.run_id[:13]}") as branch:
        for statement in DROPS_AND_DEFINES:  # now no step's
            branch.sql(statement)
    nightly.run(parent=again.run_id)
    assert nightly.tables() == ["sales.orders", "sales.seen", "sales.totals"]


def test_drops_and_views_that_the_last_attempt_made_again_are_published(nightly: Nightly) -> None:
    _with_names(nightly)
    nightly.behave(totals="raises", also=DROPS_AND_DEFINES)
    failed = nightly.run(fails=True)
    nightly.behave(also=DROPS_AND_DEFINES)
    nightly.run(parent=failed.run_id)
    assert nightly.tables() == ["sales.orders", "sales.seen", "sales.totals"]


def test_an_asset_that_the_rerun_of_its_step_leaves_out_is_published(tmp_path: Path) -> None:
    fails = [True]

    @dg.multi_asset(specs=[dg.AssetSpec(ORDERS), dg.AssetSpec(TOTALS)], can_subset=True)
    def both(context, duckrun: DuckrunResource):  # type: ignore[no-untyped-def]  # Dagster wants the class itself
        for key in sorted(context.selected_asset_keys):
            if key == TOTALS and fails:
                raise RuntimeError("fails")
            duckrun.session().sql(f"create or replace table sales.{key.path[-1]} as select 1 as x")
            yield dg.MaterializeResult(key, metadata={"dagster/table_name": f"sales.{key.path[-1]}"})

    resource = DuckrunResource(root_path=str(tmp_path / "lake"))
    mine = dg.Definitions(assets=[both], resources={"duckrun": resource})
    job = dg.Definitions.merge(mine, publish_after_checks("nightly", [both])).resolve_job_def("nightly")
    instance = dg.DagsterInstance.ephemeral()
    first = job.execute_in_process(instance=instance, raise_on_error=False)
    assert not first.success
    fails.clear()
    tags = {"dagster/parent_run_id": first.run_id, "dagster/root_run_id": first.run_id}
    again = job.execute_in_process(instance=instance, asset_selection=[TOTALS, PUBLISH], tags=tags)
    assert again.success
    with duckrun.connect(tmp_path / "lake") as main:
        assert main.tables() == ["sales.orders", "sales.totals"]


def test_a_thread_of_a_step_writes_the_branch_if_it_has_the_context_of_the_step(tmp_path: Path) -> None:
    errors = []

    @dg.asset(key=ORDERS)
    def orders(duckrun: DuckrunResource) -> None:
        def write(name: str) -> None:
            try:
                duckrun.session().sql(f"create table sales.{name} as select 1 as x")
            except InvalidConfig as error:
                errors.append(str(error))

        for target, arguments in ((write, ("without",)), (contextvars.copy_context().run, (write, "inherits"))):
            thread = threading.Thread(target=target, args=arguments)
            thread.start()
            thread.join()

    resource = DuckrunResource(root_path=str(tmp_path / "lake"))
    mine = dg.Definitions(assets=[orders], resources={"duckrun": resource})
    job = dg.Definitions.merge(mine, publish_after_checks("nightly", [orders])).resolve_job_def("nightly")
    result = job.execute_in_process()
    assert len(errors) == 1 and "copy_context" in errors[0]
    assert result.success
    with duckrun.connect(tmp_path / "lake") as main:
        assert main.tables() == ["sales.inherits"]


def test_assets_of_mapped_steps_are_published(tmp_path: Path) -> None:
    in_memory = {"io_manager_key": "memory"}
    fails = [1]

    @dg.op(out=dg.DynamicOut(int, **in_memory))
    def split() -> Iterator[dg.DynamicOutput[int]]:
        for number in range(3):
            yield dg.DynamicOutput(number, mapping_key=str(number))

    @dg.op(out=dg.Out(int, **in_memory))
    def tenfold(number: int) -> int:
        if number in fails:
            raise RuntimeError("fails")
        return number * 10

    @dg.op
    def gathered(numbers: list[int]) -> pa.Table:
        return pa.table({"x": numbers})

    @dg.graph_asset(key=ORDERS)
    def orders() -> Any:
        return gathered(split().map(tenfold).collect())

    resource = DuckrunResource(root_path=str(tmp_path / "lake"))
    managers = {"io_manager": DeltaIOManager(duckrun=resource), "memory": dg.mem_io_manager}
    mine = dg.Definitions(assets=[orders], resources={"duckrun": resource, **managers})
    job = dg.Definitions.merge(mine, publish_after_checks("nightly", [orders])).resolve_job_def("nightly")
    assert not job.execute_in_process(raise_on_error=False).success
    with duckrun.connect(tmp_path / "lake") as main:
        assert main.tables() == []
        fails.clear()
        assert job.execute_in_process().success
        assert sorted(row["x"] for row in main.sql("from sales.orders").collect()) == [0, 10, 20]


@pytest.mark.spark
def test_a_step_in_main_after_one_in_the_branch_has_mains_names_in_spark(tmp_path: Path, spark: Any) -> None:
    counts = []
    with duckrun.connect(tmp_path / "lake") as main:
        main.sql("create table sales.orders as select 1::bigint as x")

    @dg.asset(key=ORDERS, metadata={"engine": "spark"})
    def orders() -> pa.Table:
        return pa.table({"x": [1, 2]})

    @dg.asset(key=REPORT, deps=[ORDERS], op_tags={"dagster/priority": "9"})  # before the publish
    def report(duckrun: DuckrunResource, spark: SparkResource) -> None:
        counts.append(spark.session(lake=duckrun.lake()).table("sales.orders").count())

    resource, engine = DuckrunResource(root_path=str(tmp_path / "lake")), SparkResource()
    managers = {"io_manager": DeltaIOManager(duckrun=resource, spark=engine), "duckrun": resource, "spark": engine}
    everything = dg.define_asset_job("everything", "*")
    mine = dg.Definitions(assets=[orders, report], jobs=[everything], resources=managers)
    job = dg.Definitions.merge(mine, publish_after_checks("nightly", [orders])).resolve_job_def("everything")
    assert job.execute_in_process().success
    assert counts == [1]  # the session of the first step works in the branch, and is closed


def test_running_all_again_begins_a_new_branch(nightly: Nightly) -> None:
    nightly.behave(totals="raises")
    failed = nightly.run(fails=True)
    assert "sales__totals" in nightly.check().description
    nightly.behave()
    again = nightly.run(tags={"dagster/parent_run_id": failed.run_id, "dagster/root_run_id": failed.run_id})
    assert nightly.rows("orders") == [1, 7]
    assert nightly.branches() == [f"nightly-{failed.run_id[:13]}"]
    assert nightly.materialized()["branch"] == f"nightly-{again.run_id[:13]}"


def test_the_last_step_alone_does_not_publish_what_failed(nightly: Nightly) -> None:
    nightly.behave(check="ERROR")
    failed = nightly.run(fails=True)
    again = nightly.run(parent=failed.run_id, steps=["publish__nightly"], fails=True)
    error = error_of(again, "publish__nightly")
    assert "sales__orders_few, sales__totals did not succeed" in error and "duckrun branch diff" in error
    assert nightly.rows("orders") == [7]
    assert "did not succeed" in nightly.check().description
    nightly.behave()
    nightly.run(parent=failed.run_id, steps=["sales__orders_few", "sales__totals", "publish__nightly"])
    assert nightly.rows("orders") == [1, 7]


@pytest.mark.slow
def test_a_killed_step_leaves_main_and_the_rerun_continues(processes: Nightly) -> None:
    processes.behave(totals="dies")
    failed = processes.run(processes=True, fails=True)
    branch = f"nightly-{failed.run_id[:13]}"
    assert (processes.rows("orders"), processes.branches()) == ([7], [branch])
    assert processes.rows("orders", branch) == [1, 7]
    processes.behave()
    processes.run(parent=failed.run_id)
    assert (processes.rows("orders"), processes.rows("totals"), processes.branches()) == ([1, 7], [2], [])
    assert processes.materialized()["branch"] == branch


def test_each_chain_has_a_branch_and_the_later_publish_obeys_the_rules_of_commits(nightly: Nightly) -> None:
    nightly.behave(check="ERROR", value=1)
    first, other = nightly.run(fails=True), nightly.run(fails=True)
    nightly.behave(value=2)
    nightly.run()
    assert (nightly.rows("orders"), nightly.rows("totals")) == ([2, 7], [2])
    nightly.run(parent=first.run_id)  # its append is beside the other one
    assert nightly.rows("orders") == [1, 2, 7]

    with duckrun.connect(nightly.root) as main:
        main.sql("alter table sales.orders add column price double")
    late = nightly.run(parent=other.run_id, fails=True)
    error = error_of(late, "publish__nightly")
    assert "sales.orders" in error and "Run the job again" in error and "duckrun branch discard" in error
    assert "Main is unchanged" in nightly.check().description
    assert nightly.rows("orders") == [1, 2, 7]
    with duckrun.connect(nightly.root) as main:
        assert main.discard(f"nightly-{other.run_id[:13]}") == ("sales.orders", "sales.totals")


def test_two_chains_at_once_publish_each_its_rows(processes: Nightly) -> None:
    job = published.definitions(processes.folder).resolve_job_def("nightly")
    with duckrun.connect(processes.root) as main:
        main.sql("create table sales.totals (n bigint)")
    ended: list[bool] = []

    def run() -> None:
        selection = [ORDERS, PUBLISH]
        ended.append(
            job.execute_in_process(instance=processes.instance, asset_selection=selection, raise_on_error=False).success
        )

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (ended, processes.rows("orders"), processes.branches()) == ([True, True], [1, 1, 7], [])


def test_steps_after_the_publish_read_main(nightly: Nightly) -> None:
    nightly.behave(report="raises")
    failed = nightly.run("everything", fails=True)
    assert nightly.rows("orders") == [1, 7]
    assert nightly.check().passed  # the report failed after the publish
    nightly.behave()
    nightly.run("everything", parent=failed.run_id)
    assert (nightly.rows("report"), nightly.branches()) == ([1, 7], [])
    assert "branch" not in nightly.materialized(REPORT)
    nightly.run("everything", parent=failed.run_id, steps=["sales__orders_few"])  # a check of what is published
    assert nightly.branches() == []


def test_automation_downstream_waits_for_the_publish(nightly: Nightly) -> None:
    defs = published.definitions(nightly.folder)

    def requests(cursor: Any = None) -> Any:
        return dg.evaluate_automation_conditions(
            defs, instance=nightly.instance, asset_selection=dg.AssetSelection.assets(REPORT), cursor=cursor
        )

    before = requests()
    nightly.behave(check="ERROR")
    failed = nightly.run(fails=True)
    after_failure = requests(before.cursor)
    assert after_failure.total_requested == 0
    nightly.behave()
    nightly.run(parent=failed.run_id)
    assert requests(after_failure.cursor).total_requested == 1


def test_a_deployment_in_a_branch_publishes_nothing_to_main(nightly: Nightly) -> None:
    nightly.behave(resource={"branch": "dev"})
    nightly.run()
    assert (nightly.rows("orders"), nightly.rows("orders", "dev"), nightly.branches()) == ([7], [1, 7], ["dev"])
    assert nightly.materialized() == {"branch": "dev"}
    assert not nightly.check().passed and "branch dev" in nightly.check().description


def test_a_ducklake_is_refused(nightly: Nightly) -> None:
    nightly.behave(resource={"format": "ducklake"})
    failed = nightly.run(fails=True)
    assert "no branches" in error_of(failed, "sales__orders") and "publish: together" in error_of(
        failed, "sales__orders"
    )


def test_assets_without_the_publishing_asset_write_main(nightly: Nightly) -> None:
    defs = published.definitions(nightly.folder)
    everything = defs.resolve_job_def("everything")
    assert everything.execute_in_process(instance=nightly.instance, asset_selection=[ORDERS]).success
    assert (nightly.rows("orders"), nightly.branches()) == ([1, 7], [])


def test_dbt_models_and_assets_are_published_together(
    lake: Path,  # noqa: F811
    project: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = models_of(project)
    resource = DuckrunResource(project_dir=str(project))
    mine = dg.Definitions(assets=[orders, models], resources=resources(resource, dbt=dbt_of(project)))
    job = dg.Definitions.merge(mine, publish_after_checks("nightly", [orders, models])).resolve_job_def("nightly")
    instance = dg.DagsterInstance.ephemeral()
    monkeypatch.setenv("MOST", "2")  # the test of the project fails
    failed = job.execute_in_process(instance=instance, raise_on_error=False)
    assert not failed.success
    assert rows(lake, "sales.orders") == [{"id": 7}]
    with duckrun.connect(lake, branch=f"nightly-{failed.run_id[:13]}") as session:
        notes = [session.table(f"sales.{name}").history()[0]["duckrun"] for name in ("orders", "totals")]
    assert [note["attempt_of_step"] for note in notes] == [f"{failed.run_id}:0"] * 2
    assert notes[0]["step"] != notes[1]["step"]  # dbt is told the one that it runs in
    monkeypatch.setenv("MOST", "9")
    result = job.execute_in_process(instance=instance)
    assert rows(lake, "sales.large") == [{"n": 3}]
    branch = metadata(result, PUBLISH)["branch"]
    assert {metadata(result, key)["branch"] for key in (ORDERS, TOTALS)} == {branch}
    records = metadata(result, PUBLISH)["tables"].records
    assert {record.data["table"]: record.data["version"] for record in records} == {
        "sales.orders": 1,
        "sales.totals": 0,
    }


@pytest.mark.drawn(2)
def test_dbt_models_of_another_lake_than_the_published_one_are_refused(
    lake: Path,  # noqa: F811
    project: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    models = models_of(project)
    other = DuckrunResource(root_path=str(tmp_path / "another"))
    mine = dg.Definitions(assets=[orders, models], resources=resources(other, dbt=dbt_of(project)))
    job = dg.Definitions.merge(mine, publish_after_checks("nightly", [orders, models])).resolve_job_def("nightly")
    result = job.execute_in_process(instance=dg.DagsterInstance.ephemeral(), raise_on_error=False)
    (step,) = {event.step_key for event in result.get_step_failure_events()}
    assert "whose branch the job does not publish" in error_of(result, step)
    assert str(tmp_path / "another") in error_of(result, step)
    assert rows(lake, "sales.orders") == [{"id": 7}]


def test_a_backfill_publishes_each_partition_and_its_rerun_continues(tmp_path: Path) -> None:
    def branches() -> list[str]:
        with duckrun.connect(tmp_path / "lake") as session:
            return [each.name for each in session.branches()]

    (tmp_path / "state.json").write_text(json.dumps({"orders d2": "raises"}))
    with backfills(tmp_path, "delta", definitions=f"published.by_days(Path({str(tmp_path)!r}))") as server:
        first = server.launch("raw", "orders", "publish/daily")
        assert server.rows("select day, value from shop.orders") == [("d1", 1)]
        assert server.rows("select day from shop.raw") == [("d1",)]
        (branch,) = branches()
        (tmp_path / "state.json").write_text(json.dumps({"value": 2}))
        server.again(first, "FROM_FAILURE")
        assert server.rows("select * from shop.raw order by day") == [("d1", 1), ("d2", 1)]
        assert server.rows("select * from shop.orders order by day") == [("d1", 1), ("d2", 2)]
        assert branches() == []
        assert branch.startswith("daily-")
