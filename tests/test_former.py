"""Import paths that earlier docs named: they work, and say which path is the present one."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import duckrun
import duckrun.spark
from duckrun.former import FORMER

DOCUMENTED = [
    ("duckrun.specs", "DeleteInsertSpec"),
    ("duckrun.specs", "UpdateSpec"),
    ("duckrun.table_specs", "CreateSpec"),
    ("duckrun.table_specs", "OptimizeSpec"),
    ("duckrun.table", "Scan"),
    ("duckrun.engines.spark_connect", "RunServer"),
    ("duckrun.engines.spark_jars", "STORE_PACKAGES"),
    ("duckrun.engines.spark_session", "spark_session"),
    ("duckrun.engines.spark_streams", "stream_table"),
]


@pytest.mark.parametrize(("module", "name"), DOCUMENTED)
def test_a_documented_path_gives_the_same_thing_and_names_the_new_one(module: str, name: str) -> None:
    new = FORMER.get(module, "duckrun")
    with pytest.warns(DeprecationWarning, match=rf"{module}\.{name} is {new}\.{name} now") as said:
        value = getattr(import_module(module), name)
    assert value is getattr(import_module(new), name)
    assert [warning.filename for warning in said] == [__file__]


def test_a_name_that_was_never_there_is_no_name() -> None:
    with pytest.raises(ImportError, match=r"WrightSpec.*duckrun\.specs"):
        exec("from duckrun.specs import WrightSpec")
    with pytest.raises(ModuleNotFoundError, match=r"duckrun\.spex"):
        import_module("duckrun.spex")


def test_a_fresh_process_imports_a_former_path_first() -> None:
    code = "import duckrun.engines.spark_jars as jars; assert jars.STORE_PACKAGES['s3']; assert 'pyspark' not in __import__('sys').modules"
    done = subprocess.run([sys.executable, "-W", "error::ImportWarning", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not {"pyspark", "duckdb"} & {each.partition(".")[0] for each in FORMER.values()}
    assert duckrun.spark.STORE_PACKAGES["s3"]
