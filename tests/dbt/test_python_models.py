"""Python models as dbt-duckdb's and Spark's own projects write them: their table, and what they read on some runs only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

READS = {
    "models/feed.sql": "select range::bigint as id from range({{ var('rows') }})",
    "models/names.sql": "{{ config(materialized='table') }} select 2::bigint as id, 'two' as name",
}

ON_DUCKDB = """
def model(dbt, session):
    dbt.config(materialized="incremental", incremental_strategy="append")
    rows = dbt.ref("feed")
    if dbt.is_incremental:
        last = session.sql(f"select id from {dbt.this} order by id desc").fetchone()[0]
        known = dbt.ref("names")
        rows = rows.filter(f"id > {last}").join(known, "id", how="left").select("id, name")
        return rows
    return rows.select("id, null::varchar as name").filter("id < 1")
"""

ON_SPARK = """
def model(dbt, session):
    dbt.config(materialized="incremental", incremental_strategy="append", engine="spark")
    rows = dbt.ref("feed")
    if dbt.is_incremental:
        last = session.sql(f"select max(id) from {dbt.this}").first()[0]
        assert session.table(str(dbt.this)).count() == last + 1 and dbt.this.identifier == "grown"
        return rows.where(f"id > {last}").join(dbt.ref("names"), "id", how="left").select("id", "name")
    return rows.selectExpr("id", "cast(null as string) as name").where("id < 1")
"""


def grow(project: Any) -> None:
    for rows in (1, 2, 4):  # each a fresh invocation, which knows of the table by the lake alone
        project.run("run", "--vars", f"rows: {rows}")


def test_an_incremental_model_reads_its_table_and_more_as_on_dbt_duckdb(
    make_project: Callable[..., Any], tmp_path: Path
) -> None:
    ours = make_project({**READS, "models/grown.py": ON_DUCKDB})
    theirs = make_project({**READS, "models/grown.py": ON_DUCKDB}, "theirs")
    theirs.profile = {"type": "duckdb", "path": str(tmp_path / "dev.duckdb"), "threads": 1}
    for project in (ours, theirs):
        grow(project)
    with duckdb.connect(str(tmp_path / "dev.duckdb")) as connection:
        expected = connection.execute("select * from main.grown order by id").fetchall()
    assert expected == [(0, None), (1, None), (2, "two"), (3, None)]
    assert ours.rows("main.grown") == expected


@pytest.mark.spark
def test_an_incremental_model_reads_its_table_and_more_on_spark(make_project: Callable[..., Any], spark: Any) -> None:
    project = make_project({**READS, "models/grown.py": ON_SPARK})
    grow(project)
    assert project.rows("main.grown") == [(0, None), (1, None), (2, "two"), (3, None)]
    assert not [view.name for view in spark.catalog.listTables() if "_duckrun_this" in view.name]


BY_NAME = """
def model(dbt, session):
    dbt.config(engine="spark", schema="ns_dbt")
    figs = session.table("ns_sales.orders").where("item = 'fig'")
    figs.write.format("delta").mode("overwrite").saveAsTable("ns_sales.figs")
    return session.sql("select count(*) as figs from ns_sales.figs")
"""


@pytest.mark.spark
def test_a_model_names_tables_of_the_lake_in_pyspark_s_own_words(make_project: Callable[..., Any], spark: Any) -> None:
    project = make_project({"models/counted.py": BY_NAME})
    orders = pa.table({"id": [1, 2, 3], "item": ["fig", "kiwi", "fig"]})
    write_deltalake(str(project.lake / "ns_sales" / "orders"), orders)
    try:
        project.run("run")
        assert project.rows("main_ns_dbt.counted") == [(2,)]
        assert project.rows("ns_sales.figs") == [(1, "fig"), (3, "fig")]
    finally:
        spark.sql("drop table if exists ns_sales.figs")


@pytest.mark.parametrize(("value", "kind"), [("None", "None"), ("[1]", "a list"), ("(x for x in [1])", "a generator")])
def test_a_model_that_returns_no_table_says_what_to_return(
    make_project: Callable[..., Any], value: str, kind: str
) -> None:
    project = make_project({"models/wrong.py": f"def model(dbt, session):\n    return {value}\n"})
    result = project.dbt("run")
    assert not result.success
    assert f"model wrong: the model returned {kind}; return a DataFrame" in result.text
    assert "Traceback" not in result.text
