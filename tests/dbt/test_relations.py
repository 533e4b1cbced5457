"""Tables, views and seeds of a lake, as a dbt project meets them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import duckdb
import pytest
import sqlglot

import duckrun
from duckrun.sql import names

SHOP = {
    "seeds/raw_orders.csv": "id,customer,amount,day\n1,ann,10.5,2024-01-01\n2,bob,20.25,2024-01-02\n3,ann,5,2024-01-03\n",
    "seeds/seeds.yml": """
        version: 2
        seeds:
          - name: raw_orders
            config: {column_types: {id: bigint, amount: 'decimal(10,2)'}}
    """,
    "models/stg_orders.sql": "select id, customer, amount, day as ordered_at from {{ ref('raw_orders') }}",
    "models/customers.sql": """
        {{ config(materialized='table') }}
        select customer, sum(amount) as total, count(*) as orders from {{ ref('stg_orders') }} group by customer
    """,
    "models/top.sql": """
        {{ config(materialized='table', schema='mart') }}
        select * from {{ ref('customers') }} order by total desc limit 1 -- no semicolon, a comment at the end
    """,
    "models/models.yml": """
        version: 2
        models:
          - name: stg_orders
            columns:
              - name: id
                data_tests: [unique, not_null]
          - name: customers
            columns:
              - name: customer
                data_tests:
                  - not_null
                  - relationships: {arguments: {to: ref('stg_orders'), field: customer}}
    """,
}


def test_a_project_builds_and_a_fresh_process_goes_on_from_the_lake(make_project):
    project = make_project(SHOP, threads=4)
    built = project.run("build")
    assert [tuple(map(str, row)) for row in project.rows("main.customers")] == [
        ("ann", "15.50", "2"),
        ("bob", "20.25", "1"),
    ]
    assert "decimal(10,2)" in project.table("main.raw_orders").schema().to_json()
    assert project.rows("main_mart.top")[0][0] == "bob"
    response = built.response("customers")
    assert {k: response[k] for k in ("mode", "version", "engine", "rows_inserted", "replayed")} == {
        "mode": "overwrite", "version": 0, "engine": "duckdb", "rows_inserted": 2, "replayed": False,
    }  # fmt: skip
    assert response["reads"] == {"main.raw_orders": 0}  # through the view
    assert response["writer"] and response["peak_bytes"] > 0 and response["memory"]["duckdb"] > 0
    assert response["bytes_added"] > 0 and response["files_added"] == 1 and response["seconds"] >= 0
    assert built.response("raw_orders")["rows_inserted"] == 3
    assert built.response("stg_orders")["mode"] == "view"

    # no catalog file: what another process sees is what the lake holds
    child = project.run("run", "-s", "customers", fresh=True)
    assert child.response("customers")["version"] == 1
    assert project.run("test", fresh=True).success
    shown = project.run(
        "show", "--inline", "select total from {{ ref('customers') }} order by 1", "--output", "json", fresh=True
    )
    assert "15.5" in shown.text
    # and the view is there for readers outside dbt
    with duckrun.connect(project.lake) as session:
        assert session.sql("select count(*) as n from main.stg_orders").collect() == [{"n": 3}]
        assert "main.stg_orders" in session.tables()


def test_a_second_invocation_in_one_process_reads_what_others_wrote_in_between(make_project):
    project = make_project(
        {
            "seeds/feed.csv": "id\n1\n",
            "models/copy.sql": "{{ config(materialized='table') }} select * from {{ source('lake', 'feed') }}",
            "models/sources.yml": "version: 2\nsources: [{name: lake, schema: main, tables: [{name: feed}]}]",
        }
    )
    project.run("seed")
    project.run("run")
    with duckrun.connect(project.lake) as session:
        session.execute("main.feed", duckrun.WriteSpec(mode="append"), duckrun.SQL("select 2 as id"))
    assert project.run("run").response("copy")["reads"] == {"main.feed": 1}
    assert project.rows("main.copy") == [(1,), (2,)]


def test_a_model_changes_between_table_and_view_and_back(make_project):
    project = make_project(
        {
            "models/a.sql": "{{ config(materialized=var('kind')) }} select {{ var('n') }} as n",
            "models/b.sql": "{{ config(materialized='table') }} select n + 1 as m from {{ ref('a') }}",
        }
    )
    for n, kind in enumerate(["table", "view", "view", "incremental", "view", "table"]):
        project.run("run", "--vars", json.dumps({"kind": kind, "n": n}))
        assert project.rows("main.b") == [(n + 1,)]
        with duckrun.connect(project.lake) as session:
            assert session.tables() == ["main.a", "main.b"]
            assert session.lake.views("main") == (["a"] if kind == "view" else [])
            assert session.lake.tables("main") == (["b"] if kind == "view" else ["a", "b"])
            assert session.sql("select * from main.a").collect() == [{"n": n}]


def test_a_view_over_a_table_whose_columns_change_in_the_same_run(make_project):
    project = make_project(
        {
            "models/a.sql": "{{ config(materialized='table') }} select 1 as n {% if var('wide', false) %}, 'x' as extra {% endif %}",
            "models/v.sql": "select * from {{ ref('a') }}",
            "models/c.sql": "{{ config(materialized='table') }} select * from {{ ref('v') }}",
        }
    )
    project.run("run")
    project.run("run", "--vars", "{wide: true}")
    assert project.rows("main.c") == [(1, "x")]


def test_hooks_share_the_models_cursor_and_this_is_there_before_them(make_project):
    project = make_project(
        {
            "models/log.sql": """
                {{ config(materialized='incremental', incremental_strategy='append', pre_hook=[
                    "set variable known = {% if is_incremental() %} (select max(id) from {{ this }}) {% else %} 0 {% endif %}",
                    "create temporary table extra as select 100 as plus",
                    {"sql": "select 1", "transaction": false}],
                    post_hook="create or replace table {{ this.database }}.main.seen as select count(*) as n from {{ this }}") }}
                select getvariable('known') + 1 as id, plus from extra
            """,
        }
    )
    project.run("run")
    project.run("run")
    project.run("run", fresh=True)
    assert project.rows("main.log") == [(1, 100), (2, 100), (3, 100)]


def test_partitions_sorting_properties_and_a_location_of_its_own(make_project, tmp_path):
    place = tmp_path / "elsewhere" / "days"
    project = make_project(
        {
            "models/days.sql": "{{ config(materialized='table', location='"
            + str(place)
            + "', partition_by=['day'], sort_by='n', "
            "table_properties={'delta.logRetentionDuration': 'interval 60 days', 'delta.appendOnly': false}) }} "
            "select i % 3 as day, 10 - i as n from range(9) t(i)",
            "models/after.sql": "{{ config(materialized='table') }} select count(*) as n from {{ ref('days') }}",
        }
    )
    project.run("run")
    project.run("run", "-s", "after", fresh=True)
    assert project.rows("main.after") == [(9,)]
    from deltalake import DeltaTable

    metadata = DeltaTable(str(place)).metadata()
    assert metadata.partition_columns == ["day"]
    assert metadata.configuration["delta.logRetentionDuration"] == "interval 60 days"
    assert not (project.lake / "main" / "days").exists()


def test_descriptions_go_into_the_table_and_only_changes_make_a_version(make_project):
    def yml(text: str) -> str:
        return (
            "version: 2\nmodels:\n- name: a\n  description: "
            + text
            + " table\n  config: {persist_docs: {relation: true, columns: true}}\n"
            "  columns: [{name: n, description: " + text + " n}, {name: s, description: " + text + " s}]\n"
        )

    model = (
        "{{ config(materialized='incremental', unique_key='n', incremental_strategy='merge') }} select 1 as n, 'x' as s"
    )
    project = make_project({"models/a.sql": model, "models/a.yml": yml("first")})
    project.run("run")
    first = project.version("main.a")

    def comments() -> list[bytes]:
        return [f.metadata[b"comment"] for f in project.table("main.a").schema().to_arrow()]

    assert project.table("main.a").metadata().description == "first table"
    assert comments() == [b"first n", b"first s"]
    project.run("run")
    assert project.version("main.a") == first + 1  # the merge alone
    project.write({"models/a.yml": yml("second")})
    project.run("run")
    assert project.version("main.a") == first + 3  # the merge, and one commit for three descriptions
    assert project.table("main.a").metadata().description == "second table"
    assert comments() == [b"second n", b"second s"]
    assert project.rows("main.a") == [(1, "x")]


def test_docs_generate_lists_tables_and_views(make_project):
    project = make_project(SHOP)
    project.run("build")
    project.run("docs", "generate", fresh=True)
    catalog = json.loads((project.root / "target" / "catalog.json").read_text())
    nodes = {key.split(".")[2]: node for key, node in catalog["nodes"].items()}
    assert set(nodes) == {"raw_orders", "stg_orders", "customers", "top"}
    assert nodes["customers"]["metadata"]["type"] == "BASE TABLE"
    assert nodes["stg_orders"]["metadata"]["type"] == "VIEW"
    assert list(nodes["customers"]["columns"]) == ["customer", "total", "orders"]
    assert nodes["customers"]["columns"]["total"]["type"] == "DECIMAL(38,2)"
    assert nodes["customers"]["stats"]["num_rows"]["value"] == 2
    assert nodes["customers"]["stats"]["num_bytes"]["value"] > 0
    assert not nodes["stg_orders"]["stats"]["has_stats"]["value"]


def test_a_run_id_names_the_work_so_an_append_counts_once(make_project):
    project = make_project(
        {"models/log.sql": "{{ config(materialized='incremental', incremental_strategy='append') }} select 1 as id"}
    )
    first = project.run("run", env={"DUCKRUN_RUN_ID": "chain-1"})
    assert first.response("log")["replayed"] is False
    again = project.run("run", env={"DUCKRUN_RUN_ID": "chain-1"})
    assert again.response("log")["replayed"] is False and again.response("log")["rows_deleted"] == 1
    assert project.rows("main.log") == [(1,)]
    project.run("run", env={"DUCKRUN_RUN_ID": "chain-2"})
    project.run("run")
    assert len(project.rows("main.log")) == 3


def test_python_models_unit_tests_and_stored_failures(make_project):
    project = make_project(
        {
            "models/a.sql": "{{ config(materialized='table') }} select 1 as n union all select 2",
            "models/p.py": (
                "def model(dbt, session):\n    dbt.config(materialized='table')\n"
                "    return dbt.ref('a').aggregate('sum(n) as total')\n"
            ),
            "models/q.py": (
                "def model(dbt, session):\n    dbt.config(materialized='incremental', incremental_strategy='append')\n"
                "    import pandas\n    a = dbt.ref('a')\n    return pandas.DataFrame({'n': [len(a.df())]})\n"
            ),
            "models/m.yml": """
                version: 2
                models: [{name: a, columns: [{name: n, data_tests: [{accepted_values: {arguments: {values: [1], quote: false}, config: {store_failures: true, severity: warn}}}]}]}]
                unit_tests:
                  - name: sums
                    model: b
                    given: [{input: ref('a'), rows: [{n: 5}]}]
                    expect: {rows: [{n: 10}]}
            """,
            "models/b.sql": "select n * 2 as n from {{ ref('a') }}",
        }
    )
    project.run("build")
    project.run("run", "-s", "p", "q", fresh=True)
    assert project.rows("main.p") == [(3,)]
    assert project.rows("main.q") == [(2,), (2,)]
    with duckrun.connect(project.lake) as session:
        stored = [name for name in session.tables() if "accepted_values" in name]
        assert len(stored) == 1
        assert session.sql(f"select * from {stored[0]}").collect()[0]["value_field"] == 2


def test_dropping_and_truncating_through_the_adapter(make_project):
    macro = """
        {% macro clean() %}
          {% set t = adapter.get_relation(database='memory', schema='main', identifier='t') %}
          {% do adapter.truncate_relation(t) %}
          {{ log('left ' ~ run_query('select count(*) from ' ~ t).columns[0][0], info=true) }}
          {% do adapter.drop_relation(adapter.get_relation(database='memory', schema='main', identifier='v')) %}
          {% do adapter.drop_schema(api.Relation.create(database='memory', schema='main_gone')) %}
        {% endmacro %}
    """
    project = make_project(
        {
            "macros/clean.sql": macro,
            "models/t.sql": "{{ config(materialized='table') }} select 1 as n",
            "models/v.sql": "select * from {{ ref('t') }}",
            "models/gone.sql": "{{ config(materialized='table', schema='gone') }} select 1 as n",
        }
    )
    project.run("run")
    assert "left 0" in project.run("run-operation", "clean", fresh=True).text
    with duckrun.connect(project.lake) as session:
        assert session.tables() == ["main.t"]


def test_nothing_is_dropped_that_duckdb_refuses_to_drop(make_project):
    macro = """
        {% macro refused(statement) %}{% do run_query('select * from memory.main.v') %}{% do run_query(statement) %}{% endmacro %}
        {% macro cascade() %}
          {% do run_query('select * from memory.main.v') %}
          {% do adapter.drop_relation(adapter.get_relation(database='memory', schema='main', identifier='t')) %}
        {% endmacro %}
    """
    files = {
        "macros/drops.sql": macro,
        "models/t.sql": "{{ config(materialized='table') }} select 1 as n",
        "models/v.sql": "select * from {{ ref('t') }}",
    }
    project = make_project(files, settings={"enable_view_dependencies": True})
    project.run("run")
    for statement in ("drop table main.t", "drop table if exists memory.main.t"):
        done = project.dbt("run-operation", "refused", "--args", f"{{statement: {statement}}}", fresh=True)
        assert not done.success and "main.t stays as it is, since DuckDB refuses to drop its view" in done.text
        with duckrun.connect(project.lake) as session:
            assert session.sql("select n from t").collect() == [{"n": 1}]
    project.run("run-operation", "cascade", fresh=True)
    with duckrun.connect(project.lake) as session:
        assert session.tables() == ["main.v"]


def test_dynamic_pivot_and_sql_header(make_project):
    project = make_project(
        {
            "models/p.sql": "{{ config(materialized='table', sql_header='set variable x = 7;') }}"
            "pivot (select 'a' as k, getvariable('x') as v union all select 'b', 2) on k using sum(v)",
        }
    )
    project.run("run")
    assert project.table("main.p").schema().to_arrow().names == ["a", "b"]
    assert [tuple(map(int, row)) for row in project.rows("main.p")] == [(7, 2)]


def test_an_attached_database_is_read_beside_the_lake(make_project, tmp_path):
    path = tmp_path / "ref.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("create table names as select 1 as id, 'one' as name")
    project = make_project(
        {
            "models/t.sql": "{{ config(materialized='table') }} select * from {{ source('ref', 'names') }}",
            "models/s.yml": "version: 2\nsources: [{name: ref, database: ref, schema: main, tables: [{name: names}]}]",
        },
        attach=[{"path": str(path), "alias": "ref", "read_only": True}],
    )
    project.run("run")
    assert project.rows("main.t") == [(1, "one")]


def test_what_a_lake_cannot_hold_is_refused_before_it_is_lost(make_project):
    result = make_project({"models/m.sql": "{{ config(materialized='materialized_view') }} select 1 as id"}).dbt("run")
    assert not result.success
    assert "not supported" in result.text


@pytest.mark.drawn(3)
def test_the_session_is_in_utc_unless_the_profile_names_a_zone(make_project):
    files = {"models/z.sql": "{{ config(materialized='table') }} select current_setting('TimeZone') as zone"}
    project = make_project(files)
    project.run("run", fresh=True, env={"TZ": "America/New_York"})
    assert project.rows("main.z") == [("UTC",)]
    project.profile["settings"] = {"TimeZone": "Asia/Tokyo"}
    project.run("run", fresh=True, env={"TZ": "America/New_York"})
    assert project.rows("main.z") == [("Asia/Tokyo",)]


def test_a_source_that_is_created_again_within_a_run_is_not_read_by_its_old_version(
    make_project: Callable[..., Any],
) -> None:
    table = "{{ config(materialized='table') }} "
    project = make_project(
        {
            "models/sources.yml": "sources: [{name: raw, schema: main, tables: [{name: src}]}]\n",
            "models/before.sql": table + "select * from {{ source('raw', 'src') }}",
            "models/between.py": (
                "import duckrun\n"
                "def model(dbt, session):\n"
                "    dbt.config(materialized='table')\n"
                "    rows = dbt.ref('before').to_arrow_table()\n"
                "    with duckrun.connect(dbt.config.get('lake')) as other:\n"
                '        other.sql("drop table main.src; create table main.src as select 7 as id")\n'
                "    return rows\n"
            ),
            "models/between.yml": 'models: [{name: between, config: {lake: "{{ target.root_path }}"}}]\n',
            "models/after.sql": "-- depends_on: {{ ref('between') }}\n"
            + table
            + "select * from {{ source('raw', 'src') }}",
            "models/after_in_hook.sql": "-- depends_on: {{ ref('between') }}\n"
            + table
            + "{% set found = run_query('select id from ' ~ source('raw', 'src')) %} select {{ found.columns[0].values()[0] if execute else 0 }} as id",
        },
        threads=1,
    )
    with duckrun.connect(project.lake) as session:
        session.sql("create table src as select 1 as id")
    result = project.dbt("run")
    for model in ("after", "after_in_hook"):
        assert "main.src was dropped and created again since its version 0" in result.message(model), model
    with duckrun.connect(project.lake) as session:
        assert session.tables() == ["main.before", "main.between", "main.src"]
    project.run("retry")
    with duckrun.connect(project.lake) as session:
        assert [session.table(name).toDF().collect() for name in ("after", "after_in_hook")] == [[{"id": 7}]] * 2


def test_an_unknown_delta_property_is_refused_by_name(make_project):
    unknown = "table_properties={'delta.bogus': 'x'}"
    project = make_project({"models/t.sql": "{{ config(materialized='table', " + unknown + ") }} select 1 as id"})
    result = project.dbt("run")
    assert result["t"]["status"] == "error" and "delta.bogus" in result.message("t")
    assert not (project.lake / "main" / "t" / "_delta_log").exists()
    project.write({"models/t.sql": "{{ config(materialized='table') }} select 1 as id"})
    project.run("run")
    project.write({"models/t.sql": "{{ config(materialized='table', " + unknown + ") }} select 2 as id"})
    assert "delta.bogus" in project.dbt("run").message("t")
    assert project.rows("main.t") == [(1,)]
    assert len(list((project.lake / "main" / "t").rglob("*.json"))) == 1


def test_the_query_of_a_model_is_split_into_tokens_once(make_project, monkeypatch, tmp_path):
    log = tmp_path / "split.log"
    log.touch()

    def logged(tokenize: Callable[..., Any]) -> Callable[..., Any]:
        def call(sql: str, *args: Any, **options: Any) -> Any:
            with log.open("a") as lines:
                lines.write(json.dumps(sql) + "\n")
            return tokenize(sql, *args, **options)

        return call

    monkeypatch.setattr(names, "tokens_in", logged(names.tokens_in))
    monkeypatch.setattr(sqlglot, "tokenize", logged(sqlglot.tokenize))
    monkeypatch.setattr(duckdb, "tokenize", logged(duckdb.tokenize))
    table = "{{ config(materialized='table') }} "
    project = make_project(
        {
            "models/base.sql": f"{table} select 1 as id",
            "models/long.sql": f"{table} select id, 'marked' as v from {{{{ ref('base') }}}}",
            "models/other.sql": f"{table} select id, 'marked; too' as v from {{{{ ref('base') }}}}",
        }
    )
    project.run("run")
    texts = log.read_text().splitlines()
    assert sum("'marked'" in text for text in texts) == 1
    assert sum("'marked; too'" in text for text in texts) > 1, "a semicolon may begin a statement on a lake"
    assert project.rows("main.long") == [(1, "marked")]
    assert project.rows("main.other") == [(1, "marked; too")]


def test_a_table_that_the_lake_lacks_is_named_with_the_nearest(make_project):
    models = {
        "models/typo.sql": "{{ config(materialized='table') }} select * from raw.ordrs",
        "models/joined.sql": "with o as (select * from raw.orders) select * from o join raw.ordrs as p using (id)",
        "models/bare.sql": "with o as (select 1 as id) select * from o join ordrs using (id)",
        "models/function.sql": "select nofun(id) as id from raw.orders",
        "models/beside.sql": """{{ config(pre_hook="create temp table held as select 1 as id") }}
            with o as (select 1 as id) select nofun(id) as id from o join held using (id)""",
    }
    project = make_project(models)
    with duckrun.connect(project.lake) as s:
        s.sql("create table raw.orders as select 1 as id")
    result = project.dbt("run")
    for name in ("typo", "joined"):
        assert f"There is no table raw.ordrs in lake {project.lake}. Did you mean raw.orders?" in result.message(name)
    bare = result.message("bare")
    assert f"There is no table main.ordrs in lake {project.lake}. Did you mean raw.orders?" in bare
    assert bare.count("Did you mean") == 1, "DuckDB's own nearest name is one of its catalog"
    for name in ("function", "beside"):
        assert "nofun does not exist" in result.message(name) and "no table" not in result.message(name)
