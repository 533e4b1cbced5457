"""dbt builds and reads the table that is there, whatever letter case its schema, name and columns have.

Budget: 45 seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import duckrun

MERGED = (
    "{{{{ config(materialized='incremental', unique_key='{key}', schema='raw') }}}} select {id} as {column}, '{v}' as v"
)
MACRO = "{% macro generate_schema_name(name, node) %}{{ name or 'main' }}{% endmacro %}"


def test_a_model_is_built_in_the_schema_that_is_there(make_project: Callable[..., Any]) -> None:
    model = MERGED.format(key="ID", id=1, column="id", v="a")
    project = make_project({"models/orders.sql": model, "macros/schema.sql": MACRO})
    with duckrun.connect(project.lake) as session:
        session.sql("create table RAW.Other as select 7 as id")
    project.run("run")
    (project.root / "models" / "orders.sql").write_text(MERGED.format(key="id", id=1, column='"Id"', v="b"))
    (project.root / "models" / "reads.sql").write_text(
        "{{ config(materialized='table') }} select o.id, r.v from raw.other o, {{ ref('orders') }} r"
    )
    project.run("run")
    with duckrun.connect(project.lake) as session:
        assert session.tables() == ["RAW.Other", "RAW.orders", "main.reads"]
        assert session.sql("select id, v from raw.orders").collect() == [{"id": 1, "v": "b"}]
        assert session.sql("select id, v from main.reads").collect() == [{"id": 7, "v": "b"}]


TWINS = ("raw.t", "raw.T", "RAW.o", "main.twin", "main.Twin")
SOURCES = """
    sources:
      - {name: raw, schema: raw, tables: [{name: t}, {name: T}]}
      - {name: RAW, schema: RAW, tables: [{name: o}]}
      - {name: main, schema: main, tables: [{name: twin}, {name: Twin}, {name: TWIN}]}
"""
READS = {
    "lower": "select T.n from {{ source('raw', 't') }} as T",
    "upper": "select n from {{ source('raw', 'T') }}",
    "schema": "select n from {{ source('RAW', 'o') }}",
    "relation": "select n from {{ adapter.get_relation(none, 'main', 'twin') }}",
    "bare": "with t as (select 1 as twin) select n from Twin, t",
    "through_view": "select n from {{ ref('view') }}",
    "view": "{{ config(materialized='view') }} select n from {{ source('main', 'Twin') }}",
    "none": "select n from {{ source('main', 'TWIN') }}",
}


def with_twins(make_project: Callable[..., Any], models: dict[str, str], **profile: Any) -> Any:
    """A project whose lake has tables that another program made, of names that differ in case only; the rows of each are its name."""
    files = {f"models/{name}.sql": "{{ config(materialized='table') }} " + sql for name, sql in models.items()}
    project = make_project({"models/sources.yml": SOURCES, **files}, **profile)
    for name in TWINS:
        write_deltalake(project.lake / name.replace(".", "/"), pa.table({"n": [name]}))
    return project


def test_of_tables_that_differ_in_case_dbt_reads_each_by_its_exact_name(make_project: Callable[..., Any]) -> None:
    project = with_twins(make_project, READS)
    for select in ("lower relation", "upper", "schema", "bare view through_view"):
        project.run("run", "--select", *select.split())
    read = {name: project.rows(f"main.{name}") for name in READS if name not in ("view", "none")}
    assert read == {
        "lower": [("raw.t",)],
        "upper": [("raw.T",)],
        "schema": [("RAW.o",)],
        "relation": [("main.twin",)],
        "bare": [("main.Twin",)],
        "through_view": [("main.Twin",)],
    }
    for select, why in (
        ("none", "main.Twin and main.twin, which differ in letter case only, and TWIN is none of these"),
        ("lower upper", "raw.T and raw.t, which differ in letter case only. This run reads"),
    ):
        result = project.dbt("run", "--select", *select.split())
        assert not result.success
        assert why in " ".join(result.text.split())
    assert "The catalog has no raw.t" in project.run("docs", "generate", "--no-compile").text


@pytest.mark.parametrize("alias", ["twin", "TWIN"])
@pytest.mark.parametrize("kind", ["table", "view", "incremental"])
def test_dbt_does_not_write_a_table_that_another_differs_from_in_case_only(
    make_project: Callable[..., Any], kind: str, alias: str
) -> None:
    config = f"{{{{ config(materialized='{kind}', alias='{alias}') }}}}"
    project = with_twins(make_project, {"m": f"{config} select 1 as n"})
    result = project.dbt("run")
    assert not result.success
    assert "main.Twin and main.twin, which differ in letter case only" in " ".join(result.text.split())
    assert [project.rows(name) for name in TWINS] == [[(name,)] for name in TWINS]
    with duckrun.connect(project.lake) as session:
        assert session.tables() == sorted(TWINS)


def test_a_hook_writes_the_table_that_it_names_exactly(make_project: Callable[..., Any]) -> None:
    config = """{{ config(materialized='table', pre_hook="insert into main.Twin values ('more')", post_hook="drop table raw.T") }}"""
    project = with_twins(make_project, {"m": f"{config} select n from main.Twin"})
    project.run("run")
    assert project.rows("main.m") == project.rows("main.Twin") == [("main.Twin",), ("more",)]
    assert project.rows("main.twin") == [("main.twin",)] and project.rows("raw.t") == [("raw.t",)]
    assert not (project.lake / "raw" / "T").exists()


@pytest.mark.spark
def test_a_node_on_spark_reads_tables_that_differ_in_case(make_project: Callable[..., Any], spark: Any) -> None:
    both = "select n from {{ source('raw', 't') }} union all select n from {{ source('raw', 'T') }}"
    project = with_twins(make_project, {"both": both}, engine="spark")
    project.run("run")
    assert project.rows("main.both") == [("raw.T",), ("raw.t",)]


def test_two_models_of_one_table_are_refused_before_either_is_built(make_project: Callable[..., Any]) -> None:
    kind = "{{ config(materialized='table', alias='%s', schema='raw') }} select 1 as n"
    models = {"models/first.sql": kind % "orders", "models/second.sql": kind % "Orders"}
    project = make_project({**models, "macros/schema.sql": MACRO})
    result = project.dbt("run")
    assert not result.success
    assert "model.shop.first and model.shop.second are one table, raw.Orders" in result.text
    with duckrun.connect(project.lake) as session:
        assert session.tables() == []
    (project.root / "models" / "second.sql").write_text((kind % "Orders").replace("raw", "other"))
    project.run("run")
