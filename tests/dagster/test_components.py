"""YAML declares the same as Python, and `dg` finds it."""

import json
import shutil
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
import yaml
from dagster.components.core.package_entry import discover_package_objects
from dagster.components.testing import create_defs_folder_sandbox
from deltalake import DeltaTable

import duckrun_dagster
from duckrun_dagster import DuckrunDbtCliResource, MaintainedTable
from duckrun_dagster.components import DuckrunLakeComponent, MaintainedTablesComponent


def loaded(
    component: Any, attributes: dict[str, Any] | None = None, scaffold: dict[str, Any] | None = None
) -> dg.Definitions:
    """What a scaffolded folder of one component defines; ``attributes`` take the place of the scaffolded ones."""
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=component, scaffold_params=scaffold or {})
        if attributes is not None:
            text = {"type": f"duckrun_dagster.{component.__name__}", "attributes": attributes}
            (path / "defs.yaml").write_text(yaml.safe_dump(text))
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
            return defs


def test_dg_finds_the_components_in_the_package() -> None:
    names = {entry.value for entry in entry_points(group="dagster_dg_cli.registry_modules")}
    assert "duckrun_dagster" in names
    found = {key.name for key in discover_package_objects(["duckrun_dagster"])}
    assert {"DuckrunLakeComponent", "MaintainedTablesComponent", "DuckrunDbtProjectComponent"} <= found
    assert duckrun_dagster.DuckrunLakeComponent is DuckrunLakeComponent


def test_a_lake_in_yaml_holds_the_assets(tmp_path: Path) -> None:
    attributes = {"root_path": str(tmp_path / "lake"), "schema": "shop", "memory_limit": "1GB", "mode": "append"}
    defs = loaded(DuckrunLakeComponent, {**attributes, "sort_by": "id", "table_properties": {"a.b": 1}})

    @dg.asset
    def goods() -> pa.Table:
        return pa.table({"id": [1]})

    assert set(defs.resources or {}) == {"duckrun", "io_manager"}
    for _ in range(2):
        dg.materialize([goods], resources=dict(defs.resources or {}), instance=dg.DagsterInstance.ephemeral())
    table = DeltaTable(tmp_path / "lake" / "shop" / "goods")
    assert table.to_pyarrow_table().num_rows == 2 and table.metadata().configuration["a.b"] == "1"


def test_a_scaffolded_lake_and_table_load_as_they_are() -> None:
    defs = loaded(DuckrunLakeComponent, scaffold={"root_path": "lake"})
    assert (defs.resources or {})["duckrun"].root_path == "lake"
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=MaintainedTablesComponent, scaffold_params={"table": "sales/orders"}
        )
        lake = {"type": "duckrun_dagster.DuckrunLakeComponent", "attributes": {"root_path": "lake"}}
        text = (path / "defs.yaml").read_text()
        (path / "defs.yaml").write_text(f"{text}\n---\n{yaml.safe_dump(lake)}")
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
            pass
    assert defs.resolve_asset_graph().has(dg.AssetKey(["maintenance", "sales", "orders"]))
    assert defs.resolve_schedule_def("maintenance_schedule").cron_schedule == "0 3 * * *"


def test_a_maintained_table_in_yaml_is_the_one_in_python() -> None:
    text = "tables: [{key: sales/orders, z_order_by: '{{ columns }}', vacuum: false, retention_hours: 400}]"
    component = MaintainedTablesComponent.resolve_from_yaml(text, scope={"columns": ["customer"]})
    key = dg.AssetKey(["sales", "orders"])
    assert component.tables == [MaintainedTable(key, z_order_by=("customer",), vacuum=False, retention_hours=400)]


@pytest.mark.parametrize(
    ("component", "attributes", "told"),
    [
        (DuckrunLakeComponent, {"rootpath": "lake"}, "rootpath"),
        (MaintainedTablesComponent, {"tables": [{"key": "a", "z_order": ["b"]}]}, "z_order"),
        (MaintainedTablesComponent, {"tables": [{"key": "a", "engine": "spork"}]}, "'duckdb' or 'spark'"),
        (MaintainedTablesComponent, {"tables": []}, "names no table"),
    ],
)
def test_a_setting_that_does_not_exist_is_refused(component: Any, attributes: dict[str, Any], told: str) -> None:
    with pytest.raises(Exception, match="error") as caught:
        loaded(component, attributes)
    causes: list[str] = []
    error: BaseException | None = caught.value
    while error is not None:
        causes.append(str(error))
        error = error.__cause__
    assert any(told in cause for cause in causes)


@pytest.mark.drawn(5)
def test_a_dbt_project_in_yaml_has_the_keys_and_commits_of_the_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from duckrun_dagster import DuckrunDbtProjectComponent

    project = tmp_path / "dbt"
    files = {
        "dbt_project.yml": "name: shop\nprofile: shop\nversion: '1.0'\nflags: {send_anonymous_usage_stats: false}\n",
        "profiles.yml": f"shop: {{target: dev, outputs: {{dev: {json.dumps({'type': 'duckrun', 'root_path': str(tmp_path / 'lake'), 'schema': 'marts'})}}}}}\n",
        "models/ones.sql": "{{ config(materialized='table') }} select 1 as one",
    }
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    monkeypatch.delenv("DBT_PROFILES_DIR", raising=False)
    parsed = DuckrunDbtCliResource(project_dir=str(project)).cli(["parse"]).wait()
    (project / "target").mkdir(exist_ok=True)
    shutil.copy(parsed.target_path / "manifest.json", project / "target" / "manifest.json")

    defs = loaded(DuckrunDbtProjectComponent, {"project": str(project)})
    key = dg.AssetKey(["marts", "ones"])
    node = defs.resolve_asset_graph().get(key)
    assert node.kinds == {"dbt", "duckdb", "deltalake"}
    code = node.metadata["dagster/code_references"].code_references
    assert [Path(each.file_path).name for each in code if Path(each.file_path).is_file()] == ["ones.sql"]
    result = dg.materialize(list(defs.assets or []), instance=dg.DagsterInstance.ephemeral())  # type: ignore[arg-type]
    event = next(e for e in result.all_events if e.is_step_materialization and e.asset_key == key)
    assert event.materialization.metadata["dagster/row_count"].value == 1
    assert event.materialization.metadata["version"].value == 0
