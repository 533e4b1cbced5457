"""Conformance: python model."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.python_model.test_python_model import (
    BasePythonEmptyTests,
    BasePythonIncrementalTests,
    BasePythonMetaGetTests,
    BasePythonModelTests,
    BasePythonSampleTests,
    _input_model_sql,
    incremental_python,
    m_1,
    python_model_meta_from_schema,
    python_model_meta_get,
    schema_yml_with_meta,
)
from dbt.tests.adapter.python_model.test_spark import PANDAS_MODEL, PYSPARK_MODEL, BasePySparkTests
from dbt.tests.util import relation_from_name, run_dbt


class TestPythonModelTests(BasePythonModelTests):
    pass


class TestPythonIncrementalTests(BasePythonIncrementalTests):
    @pytest.fixture(scope="class")
    def models(self, engine_name: str) -> dict[str, str]:
        """The suite's own for Spark; a DuckDB relation is filtered by SQL."""
        condition = "df.id > 5" if engine_name == "spark" else "'id > 5'"
        return {"m_1.sql": m_1, "incremental.py": incremental_python.replace("df.id > 5", condition)}


class TestPythonMetaGetTests(BasePythonMetaGetTests):
    @pytest.fixture(scope="class")
    def models(self, engine_name: str) -> dict[str, str]:
        """The suite's own for Spark. DuckDB's connection takes a pandas frame where Spark makes one of its own."""
        models = {"meta_test.py": python_model_meta_get, "meta_from_schema.py": python_model_meta_from_schema}
        if engine_name == "duckdb":
            models = {name: self._by_pandas(text) for name, text in models.items()}
        return {**models, "schema.yml": schema_yml_with_meta}

    @staticmethod
    def _by_pandas(text: str) -> str:
        frame = "return __import__('pandas').DataFrame("
        return text.replace("return session.createDataFrame(", frame).replace("(data, [", "(data, columns=[")


class OurTimes:
    @pytest.fixture(scope="class")
    def input_model_sql(self) -> str:
        """A TIMESTAMP of DuckDB has no zone."""
        return _input_model_sql.replace("-0'", "'")


class TestPythonEmptyTests(OurTimes, BasePythonEmptyTests):
    pass


class TestPythonSampleTests(OurTimes, BasePythonSampleTests):
    pass


class TestPySparkTests(BasePySparkTests):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        """Two of the suite's four: PySpark 4.1 has pandas on Spark for pandas 2 only, and Koalas is its older name."""
        return {"pandas_df.py": PANDAS_MODEL, "pyspark_df.py": PYSPARK_MODEL}

    def test_different_dataframes(self, project: Any) -> None:
        assert len(run_dbt(["run"])) == 2
        for name in ("pandas_df", "pyspark_df"):
            rows = f"select count(*), min(City) from {relation_from_name(project.adapter, name)}"
            assert tuple(project.run_sql(rows, fetch="one")) == (5, "Bogota")
