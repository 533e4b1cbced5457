"""dbt builds and reads the table that is there, whatever letter case its schema, name and columns have.

Budget: 25 seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
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


def test_tables_that_differ_in_case_only_are_refused_by_name(make_project: Callable[..., Any]) -> None:
    project = make_project({"models/m.sql": "{{ config(materialized='table') }} select * from main.twin"})
    for name in ("twin", "Twin"):
        write_deltalake(project.lake / "main" / name, pa.table({"n": [name]}))
    result = project.dbt("run")
    assert not result.success
    assert "main.Twin and main.twin" in " ".join(result.text.split())
