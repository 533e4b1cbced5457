"""Prove an installation from outside: imports come from it, and dbt runs a project with its macros.

    SOME_ENVIRONMENT/bin/python tools/check_install.py            # installed from a wheel
    SOME_ENVIRONMENT/bin/python tools/check_install.py --editable # installed with pip install -e

Works in a temporary folder, so that it finds nothing of the source tree by accident.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = ("duckrun", "duckrun_dagster", "dbt.adapters.duckrun", "dbt.include.duckrun")
# Modules of dbt and dbt-duckdb that must stay importable: this package adds to dbt's packages.
NEIGHBOURS = ("dbt.cli.main", "dbt.adapters.factory", "dbt.adapters.duckdb", "dbt.include.global_project")

PROJECT = {
    "dbt_project.yml": """
name: check_install
version: "1.0"
profile: check_install
model-paths: [models]
models: {check_install: {+materialized: table}}
""",
    "profiles.yml": """
check_install:
  target: dev
  outputs:
    dev: {type: duckrun, root_path: lake, schema: main, threads: 1}
""",
    "models/numbers.sql": "select range as n, range * 2 as twice from range(10)\n",
    "models/evens.sql": """
{{ config(materialized='incremental', incremental_strategy='merge', unique_key='n') }}
select n, twice from {{ ref('numbers') }} where n % 2 = 0
""",
    "models/schema.yml": """
models:
  - name: evens
    columns:
      - name: n
        data_tests: [unique, not_null]
""",
}


def check_imports(editable: bool) -> None:
    sys.path[:] = [entry for entry in sys.path if entry not in ("", str(ROOT / "tools"))]
    for name in (*IMPORTS, *NEIGHBOURS):
        file = Path(importlib.import_module(name).__file__ or "")
        expected = ROOT if editable and name in IMPORTS else Path(sys.prefix)
        if not file.is_relative_to(expected):
            sys.exit(f"{name} comes from {file}, not from {expected}")
    include = Path(importlib.import_module("dbt.include.duckrun").__file__ or "").parent
    for wanted in ("dbt_project.yml", "macros"):
        if not (include / wanted).exists():
            sys.exit(f"{include / wanted} is missing: the macros are not in the package")
    print(f"imports: {', '.join(IMPORTS)} from {'the source tree' if editable else 'the wheel'}", flush=True)


def dbt(folder: Path, *arguments: str) -> None:
    env = {**os.environ, "DBT_PROFILES_DIR": str(folder), "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
    env.pop("PYTHONPATH", None)
    command = [str(Path(sys.executable).with_name("dbt")), "--no-use-colors", *arguments]
    print(f"$ dbt {' '.join(arguments)}", flush=True)
    if code := subprocess.run(command, cwd=folder, env=env, timeout=300).returncode:
        sys.exit(f"dbt {' '.join(arguments)}: exit {code}")


def main() -> None:
    check_imports("--editable" in sys.argv)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, text in PROJECT.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text.lstrip(), encoding="utf-8")
        dbt(folder, "debug")
        dbt(folder, "build")
        # A second process builds only the child, merged into the first process's table.
        dbt(folder, "run", "--select", "evens")
        for table in ("numbers", "evens"):
            if not any((folder / "lake" / "main" / table / "_delta_log").glob("*.json")):
                sys.exit(f"lake/main/{table} is not a Delta table")


if __name__ == "__main__":
    main()
