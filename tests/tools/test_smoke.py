"""The smoke selection of another Python: its tests exist, and it has its packages from the lock."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tools import smoke

ROOT = Path(__file__).resolve().parents[2]


def test_the_selection_names_tests_of_each_part():
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *smoke.SELECTION]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    collected = [line for line in done.stdout.splitlines() if "::" in line]
    for part in (
        "spark-delta",
        "duckdb-delta",
        "tests/ducklake/",
        "tests/dbt/",
        "tests/dagster/",
        "tests/sessions/test_session",
    ):
        assert any(part in line for line in collected), part
    assert 50 <= len(collected) <= 150, "two minutes at most"


def test_what_the_tests_need_comes_at_its_locked_version():
    lock = smoke.LOCK.read_text().splitlines()
    assert all(line in lock for line in smoke._requirements(smoke.TESTS))


def test_the_tests_of_the_selection_import_nothing_else():
    """Beside the package, its extras and what the environment gets."""
    files = {ROOT / name.partition("::")[0] for name in smoke.SELECTION}
    files |= set(smoke.ROOT.glob("tests/*.py")) & {
        ROOT / "tests" / name for name in ("conftest.py", "lake.py", "drawing.py")
    }
    imported = {
        name
        for file in files
        for name in re.findall(r"^(?:import|from) (\w+)", file.read_text(), re.MULTILINE)
        if name not in sys.stdlib_module_names
    }
    known = {"duckrun", "duckrun_dagster", "dbt", "tests", "pytest", "dagster", "dagster_dbt", "deltalake", "duckdb"}
    assert imported - known <= {"polars", "pandas", "pyarrow", "pyspark", "numpy", "hypothesis", "yaml"}
