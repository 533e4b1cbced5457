"""What an import may not bring along: each command, each dbt invocation and each step process of a run pays for it again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Frames and engines that only a value or a node of theirs needs. pyarrow.dataset is here as it imports pandas, which
# takes longer than pyarrow and DuckDB together.
ON_DEMAND = ("pandas", "polars", "pyarrow.dataset", "pyspark", "py4j", "delta", "IPython")
# The libraries of the work itself: a command line that answers `--help`, and a module that only names a type, need none.
OF_THE_WORK = ("duckdb", "deltalake", "pyarrow", "numpy", "sqlglot", "obstore", "psutil", "pyroaring")

# Parts of ours that no node needs which DuckDB runs on Delta tables: Spark, DuckLake, and the session of SQL statements.
OTHER_NODES = (
    "dbt.adapters.duckrun.projects",
    "dbt.adapters.duckrun.spark.session",
    "duckrun.engines.spark.engine",
    "duckrun.engines.spark.process.session",
    "duckrun.formats.ducklake.ducklake",
    "duckrun.moving.moving",
    "duckrun.session",
    "duckrun.statements.run",
)

# Libraries of an open lake: `dbt parse` and `dbt --help` open none.
OF_A_LAKE = ("deltalake", "pyarrow.compute", "pyarrow.parquet", "duckrun.formats.delta.delta")


def loaded(code: str, unwanted: tuple[str, ...]) -> list[str]:
    """Those of the unwanted modules that a new process has after the code."""
    code += f"\nimport sys\nimport json\nprint(json.dumps([name for name in {unwanted!r} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import duckrun", ON_DEMAND + OF_THE_WORK),
        # dbt takes longer than all the rest, and a location without dbt models has no use for it.
        ("import duckrun_dagster", (*ON_DEMAND, "dbt", "dagster_dbt.core")),
        ("import duckrun_dagster; duckrun_dagster.DuckrunDbtTranslator", ON_DEMAND),
        ("import dbt.adapters.duckrun", (*ON_DEMAND, *OTHER_NODES, *OF_A_LAKE, "dagster")),
    ],
)
def test_an_import_brings_nothing_that_it_does_not_need(code: str, unwanted: tuple[str, ...]) -> None:
    assert loaded(code, unwanted) == []


def test_a_dbt_run_on_duckdb_imports_nothing_of_spark_or_ducklake(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "numbers.sql").write_text(
        "{{ config(materialized='table') }} select range as id from range(3)"
    )
    (tmp_path / "models" / "evens.sql").write_text("select id from {{ ref('numbers') }} where id % 2 = 0")
    (tmp_path / "dbt_project.yml").write_text("name: shop\nversion: '1.0'\nprofile: shop\n")
    (tmp_path / "profiles.yml").write_text(
        f"shop: {{target: dev, outputs: {{dev: {{type: duckrun, schema: main, root_path: {tmp_path / 'lake'}}}}}}}"
    )
    code = f"""
import os
os.chdir({os.fspath(tmp_path)!r})
from dbt.cli.main import dbtRunner
for _ in range(2):  # the tables are created, then overwritten
    assert dbtRunner().invoke(["--quiet", "run", "--profiles-dir", "."]).success
"""
    assert loaded(code, (*ON_DEMAND, *OTHER_NODES)) == []


def test_the_other_distribution_of_the_same_name_is_refused(tmp_path: Path) -> None:
    def imported() -> str:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path), str(tmp_path / "missing")])}
        done = subprocess.run(
            [sys.executable, "-c", "import duckrun"], env=env, capture_output=True, text=True, check=False, timeout=60
        )
        return done.stderr

    for name in ("duckrun_dagster-9.0", "duckrun-0.3"):
        assert imported() == ""
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "METADATA").write_text(f"Name: {name.split('-')[0]}\n")
    assert "pip uninstall duckrun" in imported()
