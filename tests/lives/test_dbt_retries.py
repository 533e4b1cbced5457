"""A RetryPolicy on dbt assets whose test fails until late data have come: each node writes what its second attempt computes."""

import json
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_dbt import dbt_assets

import duckrun
from duckrun_dagster import DuckrunDbtCliResource, DuckrunDbtTranslator
from tests.dbt.fresh import command

FILES = {
    "dbt_project.yml": "name: shop\nprofile: shop\nversion: '1.0'\nflags: {send_anonymous_usage_stats: false}\n",
    "profiles.yml": (
        "shop: {target: dev, outputs: {dev: {type: duckrun, root_path: \"{{ env_var('SHOP_LAKE') }}\", schema: marts,"
        " format: \"{{ env_var('SHOP_FORMAT') }}\"}}}\n"
    ),
    "models/late.sql": (
        "{{ config(materialized='table') }} select id, v from read_json('{{ env_var(\"SHOP_DATA\") }}', columns={'id': 'INT', 'v': 'INT'})"
    ),
    "models/log.sql": (
        "{{ config(materialized='incremental', incremental_strategy='append') }}\n"
        "select id, v from {{ ref('late') }} {% if is_incremental() %} where id > (select max(id) from {{ this }}) {% endif %}"
    ),
    "models/all.yml": "models: [{name: log, columns: [{name: v, data_tests: [not_null]}]}]\n",
    "snapshots/kept.yml": (
        "snapshots: [{name: kept, relation: ref('late'), config: {unique_key: id, strategy: check, check_cols: all}}]\n"
    ),
}


@pytest.mark.lives
@pytest.mark.timeout(300)
@pytest.mark.drawn(2)
@pytest.mark.parametrize("lake_format", ["delta", "ducklake"])
def test_a_retry_of_dbt_assets_succeeds_after_late_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake_format: str
) -> None:
    folder, data = tmp_path / "dbt", tmp_path / "data.json"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name, value in {"LAKE": tmp_path / "lake", "FORMAT": lake_format, "DATA": data}.items():
        monkeypatch.setenv(f"SHOP_{name}", str(value))
    monkeypatch.delenv("DBT_PROFILES_DIR", raising=False)
    dbt = DuckrunDbtCliResource(project_dir=str(folder), dbt_executable=command())
    shutil.copy(dbt.cli(["parse"]).wait().target_path / "manifest.json", folder / "manifest.json")
    attempts: list[list[dict[str, Any]]] = []

    @dbt_assets(
        manifest=folder / "manifest.json",
        dagster_dbt_translator=DuckrunDbtTranslator(),
        retry_policy=dg.RetryPolicy(max_retries=1),
    )
    def shop(context: dg.AssetExecutionContext, dbt: DuckrunDbtCliResource):
        data.write_text("\n".join(map(json.dumps, attempts.pop(0))))
        yield from dbt.cli(["build"], context=context).stream()

    def run(*given: list[dict[str, Any]]) -> dg.ExecuteInProcessResult:
        attempts.extend(given)
        return dg.materialize([shop], resources={"dbt": dbt})

    def rows(query: str) -> list[tuple[Any, ...]]:
        with duckrun.connect(tmp_path / "lake", format=lake_format, schema="marts") as session:
            return [tuple(row.values()) for row in session.sql(query).collect()]

    first = {"id": 1, "v": 10}
    run([first])
    result = run([first, {"id": 2, "v": None}], [first, {"id": 2, "v": 20}, {"id": 3, "v": 30}])
    assert result.success and not attempts
    assert rows("select id, v from late order by id") == [(1, 10), (2, 20), (3, 30)]
    assert rows("select id, v from log order by id") == [(1, 10), (2, 20), (3, 30)]
    assert rows("select id, v from kept where dbt_valid_to is null order by id") == [(1, 10), (2, 20), (3, 30)]
    shown = result.asset_materializations_for_node("shop")
    retracted = [each.metadata.get("retracted_rows") for each in shown if each.asset_key.path[-1] == "log"]
    assert retracted[-1] is not None and retracted[-1].value == 1
