"""Names as people have them: spaces, unicode, mixed case, reserved words, and Windows separators in paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import duckrun

ODD = {
    "dbt_project.yml": """
        name: shop
        version: '1.0'
        profile: shop
        models: {shop: {+schema: "Süd & West"}}
    """,
    "seeds/Raw_Orders.csv": 'Id,"Group By",Käufer\n1,a b,Ä\n2,c/d,ß\n',
    "models/orders.sql": """
        {{ config(materialized='incremental', incremental_strategy='merge', unique_key=['Group By'], alias='Order by Größe',
                  partition_by='Käufer', sort_by='Id') }}
        select *, 1 as "select", 2 as "say ""x"" now" from {{ ref('Raw_Orders') }}
        {% if is_incremental() %} where "Id" > (select min("Id") from {{ this }}) {% endif %}
    """,
    "models/viewed.sql": """
        {{ config(materialized='view', alias='table') }}
        select "Group By" || "Käufer" as "Beides zusammen", "select" from {{ ref('orders') }}
    """,
    "models/checked.sql": """
        {{ config(materialized='table', alias="it's quoted") }} select "Beides zusammen" as "BEIDES" from {{ ref('viewed') }}
    """,
    "snapshots/kept.yml": """
        snapshots:
          - name: kept
            relation: ref('checked')
            config: {alias: 'Über Zeit', strategy: check, unique_key: '"BEIDES"', check_cols: all}
    """,
    "models/schema.yml": """
        models:
          - name: orders
            columns:
              - {name: Group By, quote: true, data_tests: [unique, not_null]}
              - {name: select, quote: true, data_tests: [not_null]}
          - name: checked
            config: {contract: {enforced: true}, persist_docs: {relation: true, columns: true}}
            description: Größe
            columns:
              - {name: BEIDES, quote: true, data_type: varchar, description: 'ß "x"', constraints: [{type: not_null}]}
    """,
}


@pytest.mark.drawn(2)
def test_odd_names_of_schemas_tables_and_columns(make_project: Callable[..., Any]) -> None:
    project = make_project(ODD, schema="Haupt Büro", name="Mein Projekt ü")
    project.run("build")
    again = project.run("build", fresh=True)
    assert again.response("orders")["mode"] == "merge"
    assert project.run("test", fresh=True).nodes
    south = "Haupt Büro_Süd & West"
    assert {p.name for p in (project.lake / south).iterdir()} >= {"Order by Größe", "it's quoted", "_duckrun"}
    with duckrun.connect(project.lake) as session:
        assert f"{south}.Order by Größe" in session.tables() and f"{south}.table" in session.tables()
        rows = session.sql(f'select * from "{south}"."Order by Größe" order by "Id"').collect()
        assert rows == [
            {"Id": 1, "Group By": "a b", "Käufer": "Ä", "select": 1, 'say "x" now': 2},
            {"Id": 2, "Group By": "c/d", "Käufer": "ß", "select": 1, 'say "x" now': 2},
        ]
        found = session.sql(f'select "Beides zusammen" as x from "{south}"."table" order by x').collect()
        assert [row["x"] for row in found] == ["a bÄ", "c/dß"]
        checked = session.lake.snapshot(session.lake.resolve(south, "it's quoted"))
        assert checked.schema.names == ["BEIDES"] and not checked.schema.field("BEIDES").nullable
        assert session.sql('select count(*) as n from "Haupt Büro"."Über Zeit"').collect() == [{"n": 2}]


@pytest.mark.spark
def test_names_that_spark_takes_mean_the_same_there(make_project: Callable[..., Any], spark: Any) -> None:
    files = {
        "seeds/Raw.csv": "Id,Käufer\n1,Ä\n2,ß\n",
        "models/first.sql": """
            {{ config(materialized='table', alias='Order by Größe', engine='spark') }}
            select "Id", "Käufer", 'x' as "select" from {{ ref('Raw') }}
        """,
        "models/second.sql": """
            {{ config(materialized='incremental', incremental_strategy='merge', unique_key='Käufer', alias='table', engine='spark') }}
            select "Käufer", "select" || id as "GROUP" from {{ ref('first') }}
        """,
        "models/third.sql": "{{ config(materialized='table') }} select \"GROUP\" as g from {{ ref('second') }}",
    }
    project = make_project(files, schema="Haupt Büro")
    project.run("build")
    project.run("build")
    project.lake = project.lake / "Haupt Büro"
    assert project.rows("table") == [("Ä", "x1"), ("ß", "x2")] and project.rows("third") == [("x1",), ("x2",)]


@pytest.mark.drawn(2)
def test_windows_separators_in_paths(make_project: Callable[..., Any]) -> None:
    project = make_project({})
    windows = str(project.lake).replace("/", "\\") + "\\"
    elsewhere = str(project.lake.parent / "elsewhere" / "here").replace("/", "\\")
    project.profile["root_path"] = windows
    project.write(
        {
            "models/a.sql": "{{ config(materialized='table') }} select 1 as x",
            "models/b.sql": f"{{{{ config(materialized='delta', location={elsewhere!r}) }}}} select x + 1 as x from {{{{ ref('a') }}}}",
        }
    )
    project.run("build")
    project.run("build", fresh=True)
    with duckrun.connect(project.lake) as session:
        assert session.tables() == ["main.a", "main.b"]
        assert session.sql("select x from main.b").collect() == [{"x": 2}]
    assert (project.lake.parent / "elsewhere" / "here" / "_delta_log").is_dir()
