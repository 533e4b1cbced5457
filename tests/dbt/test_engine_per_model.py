"""One project, two engines: each node's statements run on its own, and the lake is all that they share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import duckrun

pytestmark = pytest.mark.spark

FEED = "id,name,amount,day\n1,a,10,2026-01-01\n2,b,20,2026-01-01\n3,,30,2026-01-02\n"
NEXT = "id,name,amount,day\n2,B,25,2026-01-01\n3,,30,2026-01-02\n4,d,40,2026-01-03\n"


def incremental(strategy: str, config: str = "") -> str:
    return f"{{{{ config(materialized='incremental', incremental_strategy='{strategy}'{config}) }}}} select * from {{{{ ref('feed') }}}}"


# Built as it is on either engine: the profile says on which.
EITHER = {
    "seeds/feed.csv": FEED,
    "models/staged.sql": "select id, upper(name) as name, amount / 4 as quarter, day from {{ ref('feed') }}",
    "models/whole.sql": """
        {{ config(materialized='table', partition_by='day',
                  post_hook="delete from {{ this }} where id = 1") }}
        select *, date_diff('month', date '2025-12-31', day) as months, dayofweek(day) as weekday, null as nothing,
               row_number() over (order by id desc) as place
        from {{ ref('staged') }}
    """,
    "models/appended.sql": incremental("append"),
    "models/safe.sql": incremental("safeappend"),
    "models/merged.sql": incremental("merge", ", unique_key='id', on_schema_change='append_new_columns'"),
    "models/inserted.sql": incremental("insert", ", unique_key='id'"),
    "models/replaced.sql": incremental("delete+insert", ", unique_key='id'"),
    "models/partitions.sql": incremental("insert_overwrite", ", partition_by='day'"),
    "models/clauses.sql": incremental(
        "merge",
        """, unique_key='id', merge_clauses={
            'when_matched': [{'action': 'delete', 'condition': 'DBT_INTERNAL_SOURCE.amount = 30'}, {'action': 'update'}],
            'when_not_matched': [{'action': 'insert'}, {'action': 'delete', 'by': 'source'}]}""",
    ),
    "snapshots/kept.yml": """
        snapshots:
          - name: kept
            relation: ref('feed')
            config: {strategy: check, unique_key: id, check_cols: [name, amount], hard_deletes: invalidate}
    """,
    "models/schema.yml": """
        models:
          - name: merged
            config: {contract: {enforced: true}}
            columns:
              - {name: id, data_type: bigint, constraints: [{type: not_null}, {type: unique}], data_tests: [unique, not_null]}
              - {name: name, data_type: varchar}
              - {name: amount, data_type: bigint, constraints: [{type: check, expression: amount > 0}]}
              - {name: day, data_type: date}
        unit_tests:
          - name: a_quarter
            model: staged
            given: [{input: ref('feed'), rows: [{id: 1, name: x, amount: 10}]}]
            expect: {rows: [{id: 1, name: X, quarter: 2.5}]}
    """,
    "tests/no_amount_is_negative.sql": "select * from {{ ref('appended') }} where amount < 0",
}
SEEDS = "seeds: {+column_types: {id: bigint, amount: bigint, day: date}}\n"
PROJECT = "name: shop\nversion: '1.0'\nprofile: shop\nflags: {send_anonymous_usage_stats: false}\n" + SEEDS
TABLES = ["feed", "whole", "appended", "safe", "merged", "inserted", "replaced", "partitions", "clauses", "kept"]
VOLATILE = {"dbt_scd_id", "dbt_updated_at", "dbt_valid_from", "dbt_valid_to"}


@pytest.fixture
def project(make_project: Callable[..., Any], spark: Any) -> Callable[..., Any]:
    """A project whose Spark is the session of the tests."""
    return lambda files, **profile: make_project({"dbt_project.yml": PROJECT, **files}, threads=4, **profile)


def content(project: Any, name: str) -> list[dict[str, Any]]:
    """The rows of a table; of a snapshot's times, whether they are there."""
    rows = project.table(f"main.{name}").to_pyarrow_table().to_pylist()
    shown = [{k: (v is None) if k in VOLATILE else v for k, v in row.items()} for row in rows]
    return sorted(shown, key=repr)


@pytest.mark.matrix
@pytest.mark.drawn(2)
def test_a_project_gives_the_same_rows_on_both_engines(project, tmp_path):
    found = {}
    for engine in ("duckdb", "spark"):
        lake = tmp_path / engine
        one = project(EITHER, name=f"on_{engine}", engine=engine, root_path=str(lake))
        one.lake = lake
        first = one.run("build")
        assert {node["adapter_response"]["engine"] for node in first.nodes.values()} == {engine}
        one.write({"seeds/feed.csv": NEXT})
        second = one.run("build")
        assert second.response("merged")["mode"] == second.response("clauses")["mode"] == "merge"
        assert second.response("merged")["reads"] == {"main.feed": 1}
        found[engine] = {name: content(one, name) for name in TABLES}
    for name in TABLES:
        assert found["spark"][name] == found["duckdb"][name], name
    assert len(found["spark"]["appended"]) == 6
    assert [row["id"] for row in found["spark"]["kept"]] == [1, 2, 2, 3, 4]


def test_models_that_alternate_between_the_engines_build_at_once(project):
    one = project(
        {
            "seeds/feed.csv": FEED,
            "models/a.sql": "select id, amount from {{ ref('feed') }}",
            "models/spark/b.sql": "{{ config(materialized='table') }} select id, amount * 2 as twice from {{ ref('a') }}",
            "models/c.sql": "{{ config(materialized='table') }} select *, twice + 1 as more from {{ ref('b') }}",
            "models/spark/d.sql": "{{ config(materialized='view', dialect='spark') }} select id, int(more) as `whole` from {{ ref('c') }}",
            "models/e.sql": "{{ config(materialized='table') }} select sum(whole) as total from {{ ref('d') }}",
            "models/spark/f.py": """
                def model(dbt, session):
                    dbt.config(materialized="table")
                    return session.createDataFrame([(1,)], "x int").crossJoin(dbt.ref("e"))
            """,
            "dbt_project.yml": PROJECT + "models: {shop: {spark: {+engine: spark}}}\n",
            "models/schema.yml": """
                models:
                  - {name: c, columns: [{name: id, data_tests: [unique]}]}
                  - {name: d, columns: [{name: id, data_tests: [unique]}]}
            """,
        }
    )
    result = one.run("build")
    engines = {name: node["adapter_response"]["engine"] for name, node in result.nodes.items()}
    assert engines == dict.fromkeys(["feed", "a", "c", "e", "unique_c_id"], "duckdb") | dict.fromkeys(
        ["b", "d", "f", "unique_d_id"], "spark"
    )
    assert one.rows("main.e") == [(123,)] and one.rows("main.f") == [(1, 123)]
    assert result.response("d")["reads"] == {"main.c": 0}

    shown = one.dbt("show", "--select", "d", "--output", "json")
    assert shown.success and '"whole": 21' in shown.text.replace("\\", ""), shown.text
    with duckrun.connect(one.lake) as session:
        assert session.sql("select max(whole) as m from d").collect() == [{"m": 61}]
    # a view that the other engine wrote is read by its own meaning
    one.write(
        {
            "models/c.sql": "{{ config(materialized='table', engine='spark') }} select *, twice + 2 as more from {{ ref('b') }}"
        }
    )
    again = one.run("run", "--select", "c", "e")
    assert (again.response("c")["engine"], again.response("e")["engine"]) == ("spark", "duckdb")
    assert one.rows("main.e") == [(126,)]


def test_what_spark_does_not_know_is_an_error_before_anything_is_written(project):
    one = project(
        {
            "seeds/feed.csv": FEED,
            "models/unknown.sql": "{{ config(materialized='table') }} select frobnicate(id) as x from {{ ref('feed') }}",
            "models/bare.sql": "{{ config(materialized='view') }} select list_aggregate([1], 'sum') as x",
            "models/file.sql": "{{ config(materialized='external', location='x.parquet') }} select 1 as x",
            "models/contract.sql": "{{ config(materialized='table') }} select -1 as x",
            "models/hooked.sql": "{{ config(materialized='table', pre_hook='install httpfs') }} select 1 as x",
            "models/schema.yml": """
                models:
                  - name: contract
                    config: {contract: {enforced: true}}
                    columns: [{name: x, data_type: int, constraints: [{type: check, expression: x > 0}]}]
            """,
        },
        engine="spark",
    )
    result = one.dbt("build")
    assert not result.success
    for words in (("FROBNICATE", "model.shop.unknown", "dialect: spark"),):
        assert all(word in result.message("unknown") for word in words), result.message("unknown")
    assert "list_aggr" in result.message("bare") and "model.shop.bare" in result.message("bare")
    assert "external" in result.message("file") and "engine: duckdb" in result.message("file")
    assert "CHECK constraint failed" in result.message("contract")
    assert "install httpfs is not supported" in result.message("hooked")
    with duckrun.connect(one.lake) as session:
        assert session.tables() == ["main.feed"]


def test_a_model_that_changes_its_engine_goes_on_where_it_was(project):
    def model(engine: str) -> dict[str, str]:
        config = f"materialized='incremental', unique_key='id', incremental_strategy='merge', engine='{engine}'"
        body = "select * from {{ ref('feed') }} {% if is_incremental() %} where id >= (select min(id) from {{ this }}) {% endif %}"
        return {"models/orders.sql": f"{{{{ config({config}) }}}} {body}"}

    one = project({"seeds/feed.csv": FEED, **model("duckdb")})
    one.run("build")
    one.write({"seeds/feed.csv": NEXT, **model("spark")})
    on_spark = one.run("build").response("orders")
    assert (on_spark["engine"], on_spark["mode"], on_spark["reads"]) == (
        "spark",
        "merge",
        {"main.feed": 1, "main.orders": 0},
    )
    one.write({"seeds/feed.csv": FEED.replace("10", "11"), **model("duckdb")})
    assert one.run("build").response("orders")["engine"] == "duckdb"
    assert [row[:3] for row in one.rows("main.orders")] == [(1, "a", 11), (2, "b", 20), (3, None, 30), (4, "d", 40)]


@pytest.mark.slow
def test_a_clustered_model_stays_so_until_a_full_refresh_says_otherwise(project, spark):
    def model(columns: str, engine: str = "spark") -> dict[str, str]:
        return {
            "models/orders.sql": incremental("merge", f", unique_key='id', cluster_by={columns}, engine='{engine}'")
        }

    def clustering() -> list[str]:
        where = one.table("main.orders").table_uri
        return spark.sql(f"describe detail delta.`{where}`").collect()[0]["clusteringColumns"]

    one = project({"seeds/feed.csv": FEED, **model("['day', 'id']")})
    one.run("build")
    one.write({"seeds/feed.csv": NEXT})
    assert one.run("build").response("orders")["mode"] == "merge"
    assert clustering() == ["day", "id"] and len(one.rows("main.orders")) == 4
    one.write(model("'name'"))
    one.run("build", "--full-refresh")
    assert clustering() == ["name"]
    one.write(model("'name'", engine="duckdb"))
    one.run("build", "--full-refresh")
    assert clustering() == ["name"] and one.run("build").response("orders")["engine"] == "duckdb"


def test_spark_is_not_started_for_a_project_that_has_no_node_on_it(make_project):
    one = make_project({"models/a.sql": "select 1 as x"})
    one.save_profile()
    code = (
        "import sys; from dbt.cli.main import dbtRunner; assert dbtRunner().invoke(['--quiet', 'build']).success; "
        "assert not [m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j')]"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=one.root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
