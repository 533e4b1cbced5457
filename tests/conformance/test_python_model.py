"""Conformance: python model."""

from __future__ import annotations

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
from dbt.tests.adapter.python_model.test_spark import BasePySparkTests


class TestPythonModelTests(BasePythonModelTests):
    pass


class TestPythonIncrementalTests(BasePythonIncrementalTests):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        """A DuckDB relation is filtered by SQL."""
        return {"m_1.sql": m_1, "incremental.py": incremental_python.replace("df.id > 5", "'id > 5'")}


class TestPythonMetaGetTests(BasePythonMetaGetTests):
    """The session is DuckDB's connection, which takes a pandas frame where Spark makes one of its own."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        frame = "return __import__('pandas').DataFrame("
        return {
            "meta_test.py": self._ours(python_model_meta_get, frame),
            "meta_from_schema.py": self._ours(python_model_meta_from_schema, frame),
            "schema.yml": schema_yml_with_meta,
        }

    @staticmethod
    def _ours(text: str, frame: str) -> str:
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
    pass
