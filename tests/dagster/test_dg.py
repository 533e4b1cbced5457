"""A project of `dg`: what it scaffolds of our components, it checks and lists."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FILES = {
    "pyproject.toml": (
        '[project]\nname = "shop"\nversion = "0.1.0"\n\n[tool.dg]\ndirectory_type = "project"\n\n'
        '[tool.dg.project]\nroot_module = "shop"\n'
    ),
    "src/shop/__init__.py": "",
    "src/shop/definitions.py": (
        "from pathlib import Path\nfrom dagster import definitions, load_from_defs_folder\n\n\n@definitions\ndef defs():\n"
        "    return load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
    ),
    "src/shop/defs/__init__.py": "",
    "src/shop/defs/goods.py": (
        "import dagster as dg\n\n\n@dg.asset(key=['main', 'goods'])\ndef goods() -> list[dict]:\n    return [{'id': 1}]\n"
    ),
    "dbt/dbt_project.yml": "name: shop\nprofile: shop\nversion: '1.0'\nflags: {send_anonymous_usage_stats: false}\n",
    "dbt/profiles.yml": "shop: {target: dev, outputs: {dev: {type: duckrun, root_path: ../lake, schema: marts}}}\n",
    "dbt/models/ones.sql": "{{ config(materialized='table') }} select 1 as one",
}
COMPONENTS = {
    "lake": ("DuckrunLakeComponent", "--root-path", "lake"),
    "upkeep": ("MaintainedTablesComponent", "--table", "main/goods"),
    "models": ("DuckrunDbtProjectComponent", "--project-path", "dbt"),
}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_dg_scaffolds_checks_and_lists_the_components(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path / "src"), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DBT_PROFILES_DIR", raising=False)
    (tmp_path / "home").mkdir()

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["dg", *command], cwd=tmp_path, capture_output=True, text=True, check=False)

    for folder, (component, *parameters) in COMPONENTS.items():
        made = run("scaffold", "defs", f"duckrun_dagster.{component}", folder, *parameters)
        assert made.returncode == 0, made.stdout + made.stderr
    checked = run("check", "defs")
    assert checked.returncode == 0 and "All definitions loaded successfully" in checked.stdout, checked.stderr
    listed = json.loads(run("list", "defs", "--json").stdout)
    found = {each["asset_key"]: set(each["kinds"]) for each in listed["assets"]}
    assert found["marts/ones"] == {"dbt", "deltalake", "duckdb"}
    assert found["maintenance/main/goods"] == {"deltalake", "duckdb"} and "main/goods" in found
    assert {each["name"] for each in listed["resources"]} == {"duckrun", "io_manager"}

    written = tmp_path / "src" / "shop" / "defs" / "lake" / "defs.yaml"
    written.write_text(written.read_text().replace("root_path", "rot_path"))
    refused = run("check", "yaml")
    assert refused.returncode != 0 and "rot_path" in refused.stdout + refused.stderr
