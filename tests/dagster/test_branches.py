"""A code location in a branch: resources, IO manager and dbt write it, and main stays as it is."""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.observe import observe as observe_assets
from dagster_dbt import dbt_assets

import duckrun
from duckrun.errors import InvalidConfig
from duckrun_dagster import (
    DeltaIOManager,
    DuckrunDbtCliResource,
    DuckrunDbtTranslator,
    DuckrunResource,
    SparkResource,
    changes_sensor,
    observable_table,
)
from tests.dbt.fresh import command

ORDERS, TOTALS = dg.AssetKey(["sales", "orders"]), dg.AssetKey(["sales", "totals"])


@dg.asset(key=ORDERS)
def orders() -> pa.Table:
    return pa.table({"id": [1, 2, 3]})


@dg.asset(key=TOTALS, ins={"orders": dg.AssetIn(key=ORDERS)})
def totals(orders: pa.Table) -> pa.Table:
    return pa.table({"n": [orders.num_rows]})


@dg.asset(
    key=["sales", "seen"],
    ins={"orders": dg.AssetIn(key=ORDERS, metadata={"changes": "min_delta", "key": "id"})},
    metadata={"merge_keys": "id"},
)
def seen(orders: pa.Table) -> pa.Table:
    return orders


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Return the root of a lake whose table sales.orders has one version with one row."""
    root = tmp_path / "lake"
    with duckrun.connect(root) as main:
        main.sql("create table sales.orders as select 7::bigint as id")
    return root


def resources(duckrun_resource: DuckrunResource, **others: Any) -> dict[str, Any]:
    return {"duckrun": duckrun_resource, "io_manager": DeltaIOManager(duckrun=duckrun_resource), **others}


def run(assets: list[Any], lake: DuckrunResource, *, fails: bool = False, **others: Any) -> dg.ExecuteInProcessResult:
    result = dg.materialize(
        assets,
        resources=resources(lake, **others),
        instance=dg.DagsterInstance.ephemeral(),
        raise_on_error=not fails,
    )
    assert result.success is not fails
    return result


def error_of(result: dg.ExecuteInProcessResult) -> str:
    failure = next(event for event in result.all_events if event.is_step_failure)
    error = failure.step_failure_data.error
    assert error is not None
    return f"{error.message} {error.cause.message if error.cause else ''}"


def rows(lake: Path, table: str, branch: str | None = None) -> list[dict[str, Any]]:
    with duckrun.connect(lake, branch=branch) as session:
        return session.sql(f"from {table} order by all").collect()


def metadata(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> dict[str, Any]:
    (event,) = [each for each in result.get_asset_materialization_events() if each.asset_key == key]
    return {name: value.value for name, value in event.materialization.metadata.items()}


@pytest.mark.drawn(1)
def test_assets_write_a_branch_that_main_does_not_see(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULL_REQUEST", "pr-42")
    branched = DuckrunResource(root_path=str(lake), branch=dg.EnvVar("PULL_REQUEST"))
    result = run([orders, totals], branched)
    assert rows(lake, "sales.orders") == [{"id": 7}]
    assert rows(lake, "sales.totals", "pr-42") == [{"n": 3}]
    shown = metadata(result, ORDERS)
    assert (shown["branch"], shown["version"], shown["dagster/row_count"]) == ("pr-42", 1, 3)
    assert "branch" not in metadata(run([orders], DuckrunResource(root_path=str(lake))), ORDERS)

    main = DuckrunResource(root_path=str(lake))
    (observed,) = observe_assets(
        [observable_table(ORDERS.path)], resources={"duckrun": main}, instance=dg.DagsterInstance.ephemeral()
    ).get_asset_observation_events()
    assert observed.event_specific_data.asset_observation.metadata["dagster/row_count"].value == 3


def test_equal_versions_of_main_and_branches_are_told_apart(lake: Path) -> None:
    versions = set()
    for branch in (None, "one", "two"):
        result = run([orders], DuckrunResource(root_path=str(lake), branch=branch))
        (event,) = result.get_asset_materialization_events()
        assert event.materialization.tags is not None
        versions.add(event.materialization.tags["dagster/data_version"])
        assert metadata(result, ORDERS)["version"] in (1, 2)
    with duckrun.connect(lake, branch="one") as session:
        session.discard("one")
    result = run([orders], DuckrunResource(root_path=str(lake), branch="one"))
    (event,) = result.get_asset_materialization_events()
    versions.add((event.materialization.tags or {})["dagster/data_version"])
    assert len(versions) == 4


def test_a_sensor_of_main_requests_no_run_for_changes_in_a_branch(lake: Path) -> None:
    main = DuckrunResource(root_path=str(lake))
    source = dg.AssetSpec(ORDERS)
    run([seen, source], main)
    run([orders], DuckrunResource(root_path=str(lake), branch="dev"))
    sensor = changes_sensor("late", [seen])

    def requests(resource: DuckrunResource) -> int:
        given = resources(resource)
        repository = dg.Definitions(assets=[seen, source], resources=given).get_repository_def()
        with dg.build_sensor_context(repository_def=repository, resources=given) as context:
            return len(sensor.evaluate_tick(context).run_requests or [])

    assert requests(main) == 0  # the branch is no version of main
    run([orders], main)
    assert requests(main) == 1


@pytest.mark.parametrize("variable", ["", "dev"])
def test_the_environment_names_the_branch_of_resources(
    lake: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUCKRUN_BRANCH", variable)
    run([totals, orders], DuckrunResource(root_path=str(lake), branch=""))
    assert rows(lake, "sales.orders", variable or None) == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert len(rows(lake, "sales.orders")) == (1 if variable else 3)
    if variable:
        other = error_of(run([orders], DuckrunResource(root_path=str(lake), branch="pr-42"), fails=True))
        assert "'pr-42'" in other and "DUCKRUN_BRANCH" in other and "'dev'" in other


def test_a_branch_that_cannot_be_is_refused(lake: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="'a/b' cannot name a branch.*'a-b'"):
        DuckrunResource(root_path=str(lake), branch="a/b")
    ducklake = DuckrunResource(root_path=str(tmp_path / "ducklake"), format="ducklake", branch="dev")
    assert "publish: together" in error_of(run([orders], ducklake, fails=True))


@pytest.mark.spark
def test_an_asset_on_spark_is_written_in_a_branch(lake: Path, spark: Any) -> None:
    @dg.asset(key=ORDERS, metadata={"engine": "spark", "mode": "append"})
    def by_spark() -> pa.Table:
        return pa.table({"id": [1]})

    branched = DuckrunResource(root_path=str(lake), branch="dev")
    manager = DeltaIOManager(duckrun=branched, spark=SparkResource())
    assert dg.materialize([by_spark], resources={"io_manager": manager}).success
    with duckrun.connect(lake) as main, duckrun.connect(lake, branch="dev") as branch:
        assert branch.sql("from sales.orders order by id").collect() == [{"id": 1}, {"id": 7}]
        assert branch.table("sales.orders").history()[0]["operation"] == "WRITE"
        assert main.sql("from sales.orders").collect() == [{"id": 7}]


@pytest.mark.spark
def test_spark_writes_the_branch_and_gives_its_tables_no_names(lake: Path, spark: Any) -> None:
    @dg.asset(key=["sales", "by_spark"], ins={"orders": dg.AssetIn(key=ORDERS, metadata={"type": "pyspark"})})
    def by_spark(spark: SparkResource, orders: Any) -> Any:
        return orders.union(spark.session().sql("select 9L as id"))

    @dg.asset(key=["sales", "by_name"])
    def by_name(duckrun: DuckrunResource, spark: SparkResource) -> None:
        spark.session(lake=duckrun.lake())

    branched, engine = DuckrunResource(root_path=str(lake), branch="dev"), SparkResource()
    others = {"duckrun": branched, "io_manager": DeltaIOManager(duckrun=branched, spark=engine), "spark": engine}
    result = dg.materialize([orders, by_spark, totals], resources=others)
    shown = metadata(result, dg.AssetKey(["sales", "by_spark"]))
    assert (shown["branch"], shown["engine"], shown["version"]) == ("dev", "spark", 0)
    assert rows(lake, "sales.by_spark", "dev") == [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 9}]
    with duckrun.connect(lake) as main:
        assert main.tables() == ["sales.orders"]

    assert "Branch dev of lake" in error_of(dg.materialize([by_name], resources=others, raise_on_error=False))
    # Names that an earlier step of the process has registered are main's.
    main_lake = DuckrunResource(root_path=str(lake))
    assert dg.materialize([by_name], resources={**others, "duckrun": main_lake}).success
    failed = dg.materialize([orders, by_spark], resources=others, raise_on_error=False)
    assert "Branch dev of lake" in error_of(failed)


# -- dbt beside the resource

PROJECT = {
    "dbt_project.yml": "name: shop\nprofile: shop\nversion: '1.0'\nflags: {send_anonymous_usage_stats: false}\n",
    "models/sources.yml": "sources: [{name: python, schema: sales, tables: [{name: orders}]}]\n",
    "models/totals.sql": "{{ config(materialized='table') }} select count(*) as n from {{ source('python', 'orders') }}",
    "models/large.sql": "{{ config(materialized='view') }} select n from {{ ref('totals') }} where n > 1",
    "tests/few.sql": "select * from {{ ref('totals') }} where n > {{ env_var('MOST', '9') }}",
}


@pytest.fixture
def project(lake: Path, tmp_path: Path) -> Path:
    """Return a dbt project on the lake, with a manifest."""
    folder = tmp_path / "dbt"
    for name, text in PROJECT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    write_profile(folder, lake)
    DuckrunDbtCliResource(project_dir=str(folder), dbt_executable=command()).cli(
        ["parse"], target_path=folder / "target"
    ).wait()
    return folder


def write_profile(folder: Path, lake: Path, **keys: str) -> None:
    more = "".join(f", {key}: {value}" for key, value in keys.items())
    (folder / "profiles.yml").write_text(
        "shop: {target: dev, outputs: {dev: {type: duckrun, schema: sales, threads: 1, "
        f"root_path: '{lake}'{more}}}}}}}\n"
    )


def models_of(folder: Path) -> dg.AssetsDefinition:
    @dbt_assets(manifest=folder / "target" / "manifest.json", dagster_dbt_translator=DuckrunDbtTranslator())
    def models(context: dg.AssetExecutionContext, dbt: DuckrunDbtCliResource) -> Any:
        yield from dbt.cli(["build"], context=context).stream()

    return models


def dbt_of(folder: Path) -> DuckrunDbtCliResource:
    return DuckrunDbtCliResource(project_dir=str(folder), dbt_executable=command())


def test_dbt_works_in_the_branch_of_the_resource(lake: Path, project: Path) -> None:
    branched = DuckrunResource(root_path=str(lake), branch="dev")
    result = run([orders, models_of(project)], branched, dbt=dbt_of(project))
    assert rows(lake, "sales.large", "dev") == [{"n": 3}]
    with duckrun.connect(lake) as main:
        assert main.tables() == ["sales.orders"]
    for key in (TOTALS, dg.AssetKey(["sales", "large"])):
        assert metadata(result, key)["branch"] == "dev"
    assert metadata(result, TOTALS)["version"] == 0

    write_profile(project, lake, branch="dev")
    by_profile = DuckrunResource(project_dir=str(project))
    assert metadata(run([orders, models_of(project)], by_profile, dbt=dbt_of(project)), ORDERS)["branch"] == "dev"
    assert rows(lake, "sales.orders") == [{"id": 7}]


def test_dbt_and_the_resource_never_disagree_about_the_branch(
    lake: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = models_of(project)

    def error(*lakes: DuckrunResource) -> str:
        others = {f"other{number}": each for number, each in enumerate(lakes[1:])}
        return error_of(run([models], lakes[0], fails=True, dbt=dbt_of(project), **others))

    main, dev = (DuckrunResource(root_path=str(lake), branch=branch) for branch in ("", "dev"))
    assert "branches dev and pr-42" in error(dev, DuckrunResource(root_path=str(lake), branch="pr-42"))
    write_profile(project, lake, branch="pr-42")
    assert "works on the lake itself" in error(main)
    assert "dbt" in error(dev)  # its profile and the variable name two
    write_profile(project, lake)
    monkeypatch.setenv("DUCKRUN_BRANCH", "pr-42")
    assert "DUCKRUN_BRANCH" in error(dev)
    with duckrun.connect(lake) as session:
        assert session.tables() == ["sales.orders"]
