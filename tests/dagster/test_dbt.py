"""dbt models and Python assets of one lake depend on each other in both directions."""

import importlib.metadata
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pyarrow as pa
import pytest
from dagster_dbt import DagsterDbtTranslatorSettings, DbtCliResource, DbtProject, dbt_assets
from deltalake import DeltaTable

from duckrun.errors import InvalidConfig
from duckrun_dagster import DeltaIOManager, DuckrunDbtCliResource, DuckrunDbtTranslator, DuckrunResource, partition_vars
from duckrun_dagster.dbt.cli import commit_of
from tests.dbt.fresh import command

FILES = {
    "dbt_project.yml": (
        "name: shop\nprofile: shop\nversion: '1.0'\nflags: {send_anonymous_usage_stats: false}\n"
        "models: {shop: {heavy: {+engine: spark}}}\n"
    ),
    "profiles.yml": (
        "shop:\n  target: dev\n  outputs:\n    dev:\n      type: duckrun\n"
        "      root_path: \"{{ env_var('SHOP_LAKE') }}\"\n      schema: marts\n      threads: 2\n"
    ),
    "models/sources.yml": """
sources:
  - name: python
    schema: raw
    tables: [{name: orders}]
models:
  - name: daily
    columns:
      - name: day
        description: The day of the orders
        data_tests: [not_null, unique]
  - name: orders_seen
    columns: [{name: PRICE, description: In euros}]
""",
    "models/days/by_day.sql": """
        {{ config(materialized='incremental', incremental_strategy='insert_overwrite', partition_by='day',
                  meta={'partition_expr': 'day'}) }}
        select day::date as day, n from (values ('2024-01-01', 1), ('2024-01-01', 2), ('2024-01-02', 3), ('2024-01-03', 4)) as t(day, n)
        where day::date >= '{{ var("partition_start", "") }}' and day::date < '{{ var("partition_end", "") }}'
    """,
    "models/staging/orders_seen.sql": (
        "{{ config(materialized='view') }} select id, day, price from {{ source('python', 'orders') }}"
    ),
    "models/marts/daily.sql": (
        "{{ config(materialized='incremental', unique_key='day', incremental_strategy='merge') }}\n"
        "select day, sum(price) as price, count(*) as n from {{ ref('orders_seen') }} group by day"
    ),
    # Not built here: what Dagster shows of them is in the manifest.
    "models/heavy/by_folder.sql": "{{ config(materialized='table') }} select * from {{ ref('daily') }}",
    "models/heavy/by_itself.sql": "{{ config(engine='duckdb') }} select * from {{ ref('by_folder') }}",
    "models/heavy/by_config.sql": "{{ config(materialized='view', engine='spark') }} select * from {{ ref('by_folder') }}",
    "models/marts/appended.sql": (
        "{{ config(materialized='incremental', incremental_strategy='append') }} select max(n) as n from {{ ref('daily') }}"
    ),
}


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A dbt project with its manifest."""
    folder = tmp_path_factory.mktemp("dbt")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOP_LAKE", str(folder / "unused"))
        patch.delenv("DBT_PROFILES_DIR", raising=False)
        parse = DuckrunDbtCliResource(project_dir=str(folder), dbt_executable=command()).cli(["parse"]).wait()
        shutil.copy(parse.target_path / "manifest.json", folder / "manifest.json")
        yield folder


class Graph:
    """raw.orders (Python) -> dbt: a view, a merge, an append -> marts.report (Python)."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.root = root
        self.lake = DuckrunResource(project_dir=str(folder))
        self.instance = dg.DagsterInstance.ephemeral()
        self.prices = [1.0, 2.0]
        self.broken = False
        prices, graph = self.prices, self

        @dg.asset(key=["raw", "orders"])
        def orders() -> pa.Table:
            days = [f"2024-01-0{n + 1}" for n in range(len(prices))]
            return pa.table({"id": range(len(prices)), "day": days, "price": prices})

        @dbt_assets(
            manifest=folder / "manifest.json",
            dagster_dbt_translator=DuckrunDbtTranslator(),
            exclude="fqn:shop.heavy.* fqn:shop.days.*",
        )
        def models(context: dg.AssetExecutionContext, dbt: DuckrunDbtCliResource):
            yield from dbt.cli(["build"], context=context).stream().fetch_column_metadata().fetch_row_counts()
            if graph.broken:
                raise RuntimeError("lost the connection")

        @dg.asset(key=["marts", "report"], ins={"daily": dg.AssetIn(key=["marts", "daily"])})
        def report(daily: pl.LazyFrame) -> pl.LazyFrame:
            return daily.select(pl.col("price").sum())

        @dg.asset(
            ins={"seen": dg.AssetIn(key=["marts", "orders_seen"], metadata={"columns": "id", "predicate": "id > 0"})}
        )
        def through_a_view(seen: pa.Table) -> pa.Table:
            return seen

        self.models = models
        self.assets = [orders, models, report, through_a_view]
        self.resources = {
            "dbt": DuckrunDbtCliResource(project_dir=str(folder), dbt_executable=command()),
            "io_manager": DeltaIOManager(duckrun=self.lake),
        }

    def run(self, *, tags: dict[str, str] | None = None, fails: bool = False) -> dg.ExecuteInProcessResult:
        result = dg.materialize(
            self.assets, instance=self.instance, resources=self.resources, tags=tags, raise_on_error=not fails
        )
        assert result.success is not fails
        return result

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self.lake.session() as session:
            return [tuple(row.values()) for row in session.sql(sql).collect()]


@pytest.fixture
def graph(parsed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setenv("SHOP_LAKE", str(tmp_path / "lake"))
    return Graph(parsed, tmp_path / "lake")


@pytest.fixture(scope="module")
def made(parsed: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dg.ExecuteInProcessResult]:
    """A lake that was empty before a run of the graph, to be copied, and the run."""
    root = tmp_path_factory.mktemp("once") / "lake"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOP_LAKE", str(root))
        return root, Graph(parsed, root).run()


@pytest.fixture
def once(made: tuple[Path, dg.ExecuteInProcessResult]) -> dg.ExecuteInProcessResult:
    """A run of the graph on an empty lake, for tests that only look at what it told."""
    return made[1]


def found(result: dg.ExecuteInProcessResult, *key: str) -> dict[str, Any]:
    """The metadata of an asset's materialization."""
    events = [e for e in result.all_events if e.is_step_materialization and e.asset_key == dg.AssetKey(list(key))]
    return {name: value.value for name, value in events[-1].materialization.metadata.items()}


@pytest.mark.drawn(4)
def test_python_feeds_dbt_and_dbt_feeds_python(graph: Graph, made: tuple[Path, dg.ExecuteInProcessResult]) -> None:
    root, result = made
    shutil.copytree(root, graph.root)
    assert graph.rows("select price from report") == [(3.0,)]
    assert graph.rows("select * from through_a_view") == [(1,)]

    daily = found(result, "marts", "daily")
    assert (daily["version"], daily["engine"], daily["dagster/row_count"]) == (0, "duckdb", 2)
    assert daily["location"] == str(root / "marts" / "daily")
    assert daily["dagster/table_name"] == "marts.daily"
    assert daily["seconds"] > 0 and daily["peak_memory_mb"] > 0
    assert [column.name for column in daily["dagster/column_schema"].columns] == ["day", "price", "n"]
    assert daily["dagster/column_schema"].columns[0].description == "The day of the orders"
    seen = [
        (c.name, c.type, c.description) for c in found(result, "marts", "orders_seen")["dagster/column_schema"].columns
    ]
    assert seen == [("id", "long", None), ("day", "string", None), ("price", "double", "In euros")]

    checks = [e for e in result.all_events if e.event_type_value == "ASSET_CHECK_EVALUATION"]
    assert len(checks) == 2

    graph.prices[1] = 5.0
    again = graph.run()
    daily = found(again, "marts", "daily")
    assert (daily["version"], daily["mode"], daily["rows_updated"]) == (1, "merge", 2)
    assert graph.rows("select price from report") == [(6.0,)]
    assert graph.rows("select count(*) from appended") == [(2,)]


@pytest.mark.drawn(4)
def test_a_retried_dbt_step_builds_again_and_counts_its_append_once(graph: Graph) -> None:
    graph.broken = True
    first = graph.run(fails=True)
    graph.broken = False
    tags = {"dagster/parent_run_id": first.run_id, "dagster/is_resume_retry": "true"}
    again = graph.run(tags=tags)
    assert graph.rows("select count(*) from appended") == [(1,)]
    assert found(again, "marts", "appended")["replayed"] is False


@pytest.mark.drawn(4)
def test_the_data_version_of_a_model_is_its_tables_version(once: dg.ExecuteInProcessResult) -> None:
    events = [e for e in once.all_events if e.is_step_materialization]
    versions = {e.asset_key.path[-1]: e.materialization.tags["dagster/data_version"] for e in events if e.asset_key}
    assert versions["daily"].endswith("@0") and versions["report"].endswith("@0")


@pytest.mark.drawn(4)
def test_the_lineage_of_columns_reaches_through_views_to_sources(once: dg.ExecuteInProcessResult) -> None:
    lineage = found(once, "marts", "daily")["dagster/column_lineage"].deps_by_column
    seen, orders = dg.AssetKey(["marts", "orders_seen"]), dg.AssetKey(["raw", "orders"])
    assert lineage["price"] == [dg.TableColumnDep(seen, "price")]
    assert lineage["day"] == [dg.TableColumnDep(seen, "day")]
    assert lineage["n"] == []
    lineage = found(once, "marts", "orders_seen")["dagster/column_lineage"].deps_by_column
    assert lineage == {name: [dg.TableColumnDep(orders, name)] for name in ("id", "day", "price")}


@pytest.mark.parametrize(
    ("definition", "keys", "expected"),
    [
        (
            dg.DailyPartitionsDefinition("2024-01-01", timezone="Europe/Berlin"),
            ("2024-01-02", "2024-01-03"),
            {
                "partition_keys": ["2024-01-02", "2024-01-03"],
                "partition_start": "2024-01-02 00:00:00",
                "partition_start_utc": "2024-01-01 23:00:00+00:00",
                "partition_end": "2024-01-04 00:00:00",
                "partition_end_utc": "2024-01-03 23:00:00+00:00",
            },
        ),
        (dg.StaticPartitionsDefinition(["it's", "b"]), "it's", {"partition_keys": ["it's"]}),
        (
            dg.MultiPartitionsDefinition(
                {"a": dg.StaticPartitionsDefinition(["x"]), "b": dg.StaticPartitionsDefinition(["y", "z"])}
            ),
            dg.MultiPartitionKey({"a": "x", "b": "z"}),
            {"partition_keys": ["x|z"], "partition_a": ["x"], "partition_b": ["z"]},
        ),
        (None, None, {}),
    ],
    ids=["days", "static", "multi", "none"],
)
def test_the_partitions_of_a_run_are_variables_of_dbt(definition: Any, keys: Any, expected: dict[str, Any]) -> None:
    seen: list[dict[str, Any]] = []

    @dg.asset(partitions_def=definition, backfill_policy=dg.BackfillPolicy.single_run() if definition else None)
    def model(context: dg.AssetExecutionContext) -> None:
        seen.append(partition_vars(context))

    ranged = isinstance(keys, tuple)
    tags = (
        dict(zip(("dagster/asset_partition_range_start", "dagster/asset_partition_range_end"), keys, strict=True))
        if ranged
        else {}
    )
    dg.materialize([model], partition_key=None if ranged else keys, tags=tags, instance=dg.DagsterInstance.ephemeral())
    assert seen == [expected]


@pytest.mark.drawn(4)
def test_each_partition_of_a_model_says_how_many_rows_it_has(
    parsed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_LAKE", str(tmp_path))

    @dbt_assets(
        manifest=parsed / "manifest.json",
        dagster_dbt_translator=DuckrunDbtTranslator(),
        select="fqn:shop.days.*",
        partitions_def=dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-05"),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def models(context: dg.AssetExecutionContext, dbt: DuckrunDbtCliResource):
        yield from dbt.cli(["build", "--vars", json.dumps(partition_vars(context))], context=context).stream()

    ends = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
    result = dg.materialize(
        [models],
        resources={"dbt": DuckrunDbtCliResource(project_dir=str(parsed), dbt_executable=command())},
        instance=dg.DagsterInstance.ephemeral(),
        tags=dict(zip(ends, ("2024-01-01", "2024-01-04"), strict=True)),
    )
    told = {
        event.partition: event.materialization.metadata["dagster/partition_row_count"].value
        for event in result.all_events
        if event.is_step_materialization
    }
    days = Counter(map(str, DeltaTable(str(tmp_path / "marts" / "by_day")).to_pyarrow_table()["day"].to_pylist()))
    assert told == {**days, "2024-01-04": 0} and days.total() == 4


@pytest.mark.drawn(4)
def test_dagster_dbts_own_resource_fetches_columns_lineage_and_rows(
    parsed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOP_LAKE", str(tmp_path))
    with DuckrunResource(root_path=str(tmp_path)).session() as session:
        session.sql("create table raw.orders as select 1 as id, '2024-01-01' as day, 1.5 as price")

    @dbt_assets(manifest=parsed / "manifest.json", exclude="fqn:shop.heavy.* fqn:shop.days.*")
    def models(context: dg.AssetExecutionContext, dbt: DbtCliResource):
        yield from dbt.cli(["build"], context=context).stream().fetch_column_metadata().fetch_row_counts()

    beside = Path(sys.executable).parent / "dbt"
    resources = {"dbt": DbtCliResource(project_dir=str(parsed), dbt_executable=str(beside))}
    for appended in (1, 2):  # in one process, which keeps nothing of the run before
        result = dg.materialize([models], resources=resources, instance=dg.DagsterInstance.ephemeral())
        assert found(result, "appended")["dagster/row_count"] == appended
    daily = found(result, "daily")
    assert daily["dagster/row_count"] == DeltaTable(str(tmp_path / "marts" / "daily")).to_pyarrow_table().num_rows
    assert [column.name for column in daily["dagster/column_schema"].columns] == ["day", "price", "n"]
    assert daily["dagster/column_lineage"].deps_by_column["price"][0].asset_key == dg.AssetKey(["orders_seen"])
    declared = {spec.key.path[-1]: spec for spec in models.specs}["daily"].metadata["dagster/column_schema"]
    assert declared.columns[0].description == "The day of the orders"
    said = "".join(capfd.readouterr())
    assert "Unknown dialect" not in said and "An error occurred" not in said


# -- the translator alone


def spec_of(parsed: Path, name: str, **config: Any) -> dg.AssetSpec:
    manifest = json.loads((parsed / "manifest.json").read_text())
    unique_id = next(each for each in [*manifest["nodes"], *manifest["sources"]] if each.endswith(f".{name}"))
    if config:
        manifest["nodes"][unique_id]["config"].update(config)
    return DuckrunDbtTranslator().get_asset_spec(manifest, unique_id, None)


def test_keys_are_schema_and_table(parsed: Path) -> None:
    daily = spec_of(parsed, "daily")
    assert daily.key == dg.AssetKey(["marts", "daily"])
    assert spec_of(parsed, "orders").key == dg.AssetKey(["raw", "orders"])
    assert [dep.asset_key for dep in daily.deps] == [dg.AssetKey(["marts", "orders_seen"])]
    assert daily.metadata["dagster/table_name"] == "marts.daily"


def test_kinds_and_groups_draw_the_graph(parsed: Path) -> None:
    assert spec_of(parsed, "daily").kinds == {"dbt", "duckdb", "deltalake"}
    assert spec_of(parsed, "daily", engine="spark").kinds == {"dbt", "spark", "deltalake"}
    assert spec_of(parsed, "orders_seen").kinds == {"dbt", "duckdb", "view"}
    assert spec_of(parsed, "daily").group_name == "marts"
    assert spec_of(parsed, "orders_seen").group_name == "staging"


def test_one_project_shows_the_engine_of_each_model(parsed: Path) -> None:
    @dbt_assets(manifest=parsed / "manifest.json", dagster_dbt_translator=DuckrunDbtTranslator())
    def models(): ...

    graph = dg.Definitions(assets=[models]).resolve_asset_graph()
    kinds = {key.path[-1]: graph.get(key).kinds for key in models.keys}
    assert kinds == {
        "orders_seen": {"dbt", "duckdb", "view"},
        "daily": {"dbt", "duckdb", "deltalake"},
        "appended": {"dbt", "duckdb", "deltalake"},
        "by_day": {"dbt", "duckdb", "deltalake"},
        "by_folder": {"dbt", "spark", "deltalake"},
        "by_itself": {"dbt", "duckdb", "view"},
        "by_config": {"dbt", "spark", "view"},
    }


def test_a_test_is_described_by_its_kind_and_column(parsed: Path) -> None:
    @dbt_assets(manifest=parsed / "manifest.json", dagster_dbt_translator=DuckrunDbtTranslator())
    def models(): ...

    described = {spec.name: spec.description for spec in models.check_specs}
    assert described["not_null_daily_day"] == "dbt's test not_null of day"


def test_code_references_lead_to_the_sql_of_a_model(parsed: Path) -> None:
    settings = DagsterDbtTranslatorSettings(enable_code_references=True)
    translator, project = DuckrunDbtTranslator(settings), DbtProject(parsed)

    @dbt_assets(manifest=parsed / "manifest.json", dagster_dbt_translator=translator, project=project)
    def models(): ...

    anchor = dg.AnchorBasedFilePathMapping(parsed / "dbt_project.yml", "dbt/dbt_project.yml")
    [linked] = dg.link_code_references_to_git([models], "https://github.com/me/shop", "main", anchor)
    assert isinstance(linked, dg.AssetsDefinition)
    spec = next(each for each in linked.specs if each.key == dg.AssetKey(["marts", "daily"]))
    assert spec.kinds == {"dbt", "duckdb", "deltalake"}
    [code] = spec.metadata["dagster/code_references"].code_references
    assert code.url.startswith("https://github.com/me/shop/tree/main/dbt/models/marts/daily.sql")


def test_a_key_in_the_models_meta_wins(parsed: Path) -> None:
    assert spec_of(parsed, "daily", meta={"dagster": {"asset_key": ["x", "y"]}}).key == dg.AssetKey(["x", "y"])


def test_the_partition_column_of_a_model_stands_in_its_meta(parsed: Path) -> None:
    for meta in (
        {"partition_expr": "day"},
        {"dagster": {"partition_expr": "day"}},
        {"dagster": {"metadata": {"partition_expr": "day"}}},
    ):
        assert spec_of(parsed, "daily", meta=meta).metadata["partition_expr"] == "day"
    with pytest.raises(InvalidConfig, match="model.shop.daily: partition_expr in meta is 3; it takes a column name"):
        spec_of(parsed, "daily", meta={"partition_expr": 3})
    with pytest.raises(
        InvalidConfig, match="daily: unknown key 'partition_exp' in meta.dagster. Did you mean 'partition_expr'"
    ):
        spec_of(parsed, "daily", meta={"dagster": {"partition_exp": "day"}})
    assert spec_of(parsed, "daily", meta={"dagster": {"owner_of_ours": 1}}).key == dg.AssetKey(["marts", "daily"])


def test_a_response_that_passed_through_protobuf_is_a_commit_again() -> None:
    response = {"version": 3.0, "location": "/l", "seconds": 2.0, "memory": {"limit": 9.0, "duckdb": 3.0}, "reads": {}}
    commit = commit_of(response)
    assert commit is not None and commit.memory is not None
    assert (commit.version, type(commit.version), commit.memory.limit) == (3, int, 9)
    assert commit_of({"_message": "OK"}) is None and commit_of(None) is None


def test_dbt_has_the_part_of_the_memory_that_its_resource_says(parsed: Path) -> None:
    part = DuckrunDbtCliResource(project_dir=str(parsed), memory_fraction=0.25)
    assert part._environment(None, None, None)["DUCKRUN_MEMORY_FRACTION"] == "0.25"
    whole = DuckrunDbtCliResource(project_dir=str(parsed))
    assert "DUCKRUN_MEMORY_FRACTION" not in whole._environment(None, None, None)
    with pytest.raises(Exception, match="memory_fraction"):
        DuckrunDbtCliResource(project_dir=str(parsed), memory_fraction=1.5)


@pytest.mark.drawn(1)
def test_the_version_of_dbt_is_known_without_a_start_of_this_environments_command(
    parsed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster_dbt.core.resource.check_output", lambda arguments: b"Core: 7.8.9")
    beside = Path(sys.executable).parent / "dbt"
    link = tmp_path / "linked"
    link.symlink_to(beside)
    for executable in ({}, {"dbt_executable": str(beside)}, {"dbt_executable": str(link)}):
        resource = DuckrunDbtCliResource(project_dir=str(parsed), **executable)
        assert str(resource._cli_version) == importlib.metadata.version("dbt-core")
    other = tmp_path / "dbt"
    shutil.copy(beside, other)
    assert str(DuckrunDbtCliResource(project_dir=str(parsed), dbt_executable=str(other))._cli_version) == "7.8.9"


def test_a_translator_may_leave_out_the_constructor_of_its_base() -> None:
    class Mine(DuckrunDbtTranslator):
        def __init__(self) -> None:
            self.prefix = "mine"

    props = {"resource_type": "model", "name": "daily", "alias": "daily", "schema": "marts", "config": {}}
    assert Mine()._engine == "duckdb"
    assert Mine().get_asset_key(props) == dg.AssetKey(["marts", "daily"])
