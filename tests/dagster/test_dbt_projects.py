"""dbt projects as they are found: folders of any name, sources that are the project's own tables, hooks, own materializations."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_dbt import DagsterDbtTranslatorSettings, dbt_assets

import duckrun
from duckrun_dagster import DuckrunDbtCliResource, DuckrunDbtTranslator
from tests.dbt.fresh import command

FILES = {
    "dbt_project.yml": (
        "name: shop\nprofile: shop\nversion: '1.0'\nflags: {send_anonymous_usage_stats: false}\n"
        "seeds: {shop: {jaffle-data: {+schema: raw}}}\n"
    ),
    "profiles.yml": "shop: {target: dev, outputs: {dev: {type: duckrun, root_path: lake, schema: main, threads: 1}}}\n",
    "macros/schema.sql": "{% macro generate_schema_name(name, node) %}{{ name or target.schema }}{% endmacro %}",
    "macros/own.sql": """
        {% materialization own, default %}{% set to = this.incorporate(type='table') %}
        {% call statement('main') %}create or replace table {{ to }} as ({{ sql }}){% endcall %}
        {{ return({'relations': [to]}) }}{% endmaterialization %}""",
    "seeds/jaffle-data/orders.csv": "id,price\n1,2.5\n2,3.5\n3,4.5\n",
    "models/sources.yml": """
sources:
  - {name: shop, schema: raw, tables: [{name: orders, columns: [{name: id, data_tests: [unique]}]}]}
  - {name: own, schema: main, tables: [{name: running}, {name: behind}]}
  - {name: shouted, schema: RAW, tables: [{name: Orders}]}
  - {name: other, schema: elsewhere, tables: [{name: orders}]}
""",
    "models/my-marts/staged.sql": "{{ config(materialized='table') }} select s.* from {{ source('shop', 'orders') }} s join {{ ref('orders') }} using (id)",
    "models/my-marts/hooked.sql": (
        "{{ config(materialized='table', post_hook='delete from {{ this }} where id = 3') }} select * from {{ ref('staged') }}"
    ),
    "models/my-marts/own.sql": "{{ config(materialized='own') }} select id, price from {{ ref('hooked') }}",
    "models/elsewhere/running.sql": "{{ config(enabled=true) }} select * from {{ source('own', 'running') }} union all select * from {{ source('own', 'behind') }}",
    "models/elsewhere/behind.sql": "select r.* from {{ ref('running') }} r, {{ source('other', 'orders') }}, {{ source('shouted', 'Orders') }}",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dbt project in a folder of its own, which holds its lake too."""
    folder = tmp_path_factory.mktemp("projects")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture(scope="module")
def manifest(project: Path) -> Path:
    """Its manifest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DBT_PROFILES_DIR", raising=False)
        patch.chdir(project)
        parsed = DuckrunDbtCliResource(project_dir=str(project), dbt_executable=command()).cli(["parse"]).wait()
    return parsed.target_path / "manifest.json"


def models_of(manifest: Path, **settings: Any) -> dg.AssetsDefinition:
    translator = DuckrunDbtTranslator(DagsterDbtTranslatorSettings(**settings))

    @dbt_assets(manifest=manifest, dagster_dbt_translator=translator, exclude="fqn:shop.elsewhere.*")
    def models(context: dg.AssetExecutionContext, dbt: DuckrunDbtCliResource):
        yield from dbt.cli(["build"], context=context).stream().fetch_row_counts().fetch_column_metadata()

    return models


def test_a_source_that_is_a_seeds_table_is_the_seed(manifest: Path) -> None:
    @dbt_assets(manifest=manifest, dagster_dbt_translator=DuckrunDbtTranslator())
    def models(): ...

    graph = dg.Definitions(assets=[models]).resolve_asset_graph()
    parents = {
        key.to_user_string(): sorted(parent.to_user_string() for parent in graph.get(key).parent_keys)
        for key in models.keys
    }
    assert parents == {
        "raw/orders": [],
        "main/staged": ["raw/orders"],
        "main/hooked": ["main/staged"],
        "main/own": ["main/hooked"],
        "main/running": [],  # its own rows, and those of a model behind it, are of an earlier run
        "main/behind": ["elsewhere/orders", "main/running", "raw/orders"],
    }


def test_folders_need_not_be_names_of_groups(manifest: Path) -> None:
    specs = {spec.key.to_user_string(): spec.group_name for spec in models_of(manifest).specs}
    assert specs == {
        "raw/orders": "jaffle_data",
        "main/staged": "my_marts",
        "main/hooked": "my_marts",
        "main/own": "my_marts",
    }


def test_rows_and_columns_are_those_behind_hooks_and_of_own_materializations(
    project: Path, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    dbt = DuckrunDbtCliResource(project_dir=str(project))
    models = models_of(manifest, enable_source_tests_as_checks=True)
    assert not models.check_keys  # the one test is of a source that is the seed's table
    result = dg.materialize([models], resources={"dbt": dbt})
    assert [event.asset_key.path for event in result.get_asset_observation_events()] == [["raw", "orders"]]
    told = {
        event.asset_key.path[-1]: event.materialization.metadata for event in result.get_asset_materialization_events()
    }
    assert {name: metadata["dagster/row_count"].value for name, metadata in told.items()} == {
        "orders": 3, "staged": 3, "hooked": 2, "own": 2,
    }  # fmt: skip
    with duckrun.connect(project / "lake") as lake:
        assert lake.table("main.own").toDF().count() == 2
    assert [column.name for column in told["own"]["dagster/column_schema"].value.columns] == ["id", "price"]
    lineage = told["own"]["dagster/column_lineage"].value.deps_by_column
    assert [dep.asset_key.path for dep in lineage["price"]] == [["main", "hooked"]]


def test_events_are_of_the_tables_that_are_there_in_another_letter_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "{{ config(materialized='own', schema='marts') }} select id, price from {{ source('shop', 'orders') }}"
    files = {name: text for name, text in FILES.items() if not name.startswith(("seeds", "models/"))}
    files |= {
        "models/own.sql": own,
        "models/sources.yml": "sources: [{name: shop, schema: raw, tables: [{name: orders}]}]",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with duckrun.connect(tmp_path / "lake") as lake:
        lake.sql("create table RAW.Orders as select 1 as id, 2.5 as price")
        lake.sql("create table MARTS.Own as select 0 as id")
    monkeypatch.chdir(tmp_path)
    dbt = DuckrunDbtCliResource(project_dir=str(tmp_path), dbt_executable=command())
    result = dg.materialize(
        [models_of(dbt.cli(["parse"]).wait().target_path / "manifest.json")], resources={"dbt": dbt}
    )
    (event,) = result.get_asset_materialization_events()
    metadata = event.materialization.metadata
    assert metadata["dagster/row_count"].value == 1
    assert [column.name for column in metadata["dagster/column_schema"].value.columns] == ["id", "price"]
    assert sorted(metadata["dagster/column_lineage"].value.deps_by_column) == ["id", "price"]
