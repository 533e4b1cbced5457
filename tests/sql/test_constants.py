"""Rows of this process as a query of constants."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from duckrun.sql.constants import constant_rows

TEXTS = ["", "plain", "DECIMAL(10,2)", "it's", 'a "b"', "back\\slash", "new\nline", "Käse 東京", "%s ; -- /* $1"]


def test_duckdb_reads_constants_as_they_are() -> None:
    rows = [{"n": number, "x": text, "b": number % 2 == 0} for number, text in enumerate(TEXTS)] + [{"n": -1}]
    query = constant_rows({"n": "INTEGER", "x": "VARCHAR", "b": "BOOLEAN"}, rows, "duckdb").sql("duckdb")
    expected = [(row["n"], row.get("x"), row.get("b")) for row in rows]
    assert duckdb.sql(f"SELECT * FROM {query} AS listed").fetchall() == expected


@pytest.mark.spark
def test_spark_reads_constants_as_they_are(spark: Any) -> None:
    query = constant_rows({"x": "VARCHAR"}, [{"x": text} for text in TEXTS], "spark").sql("spark")
    assert [row.x for row in spark.sql(f"SELECT * FROM {query} AS listed").collect()] == TEXTS
