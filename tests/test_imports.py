"""What an import may not bring along: each command, each dbt invocation and each step process of a run pays for it again."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Frames and engines that only a value or a node of theirs needs. pyarrow.dataset is here as it imports pandas, which
# takes longer than pyarrow and DuckDB together.
ON_DEMAND = ("pandas", "polars", "pyarrow.dataset", "pyspark", "py4j", "delta", "IPython")
# The libraries of the work itself: a command line that answers `--help`, and a module that only names a type, need none.
OF_THE_WORK = ("duckdb", "deltalake", "pyarrow", "numpy", "sqlglot", "obstore", "psutil", "pyroaring")


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
        ("import dbt.adapters.duckrun", (*ON_DEMAND, "dagster")),
    ],
)
def test_an_import_brings_nothing_that_it_does_not_need(code: str, unwanted: tuple[str, ...]) -> None:
    assert loaded(code, unwanted) == []
