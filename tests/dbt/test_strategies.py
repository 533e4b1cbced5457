"""Incremental strategies and dbt-duckdb's merge configuration: one project, built twice, one model for each."""

from __future__ import annotations

import pytest

FIRST = "id,day,name,amount\n1,2026-01-01,a,10\n2,2026-01-01,b,20\n3,2026-01-02,c,30\n"
SECOND = "id,day,name,amount\n2,2026-01-01,B,25\n4,2026-01-03,d,40\n"
OLD, NEW = [(1, "a", 10), (2, "b", 20), (3, "c", 30)], [(2, "B", 25), (4, "d", 40)]

# model -> its config, and the rows (id, name, amount) after the second build
MODELS: dict[str, tuple[str, list[tuple[int, str | None, int | None]]]] = {
    "appended": ("incremental_strategy='append'", [*OLD, *NEW]),
    "safely_appended": ("incremental_strategy='safeappend'", [*OLD, *NEW]),
    "inserted": ("incremental_strategy='insert', unique_key='id'", [*OLD, (4, "d", 40)]),
    "partitions": (
        "incremental_strategy='insert_overwrite', partition_by=['day']",
        [(3, "c", 30), *NEW],
    ),
    "whole": ("incremental_strategy='insert_overwrite'", NEW),
    "replaced_where": (
        """incremental_strategy='insert_overwrite', incremental_predicates=["id in (2, 3, 4)"]""",
        [(1, "a", 10), *NEW],
    ),
    "merged_by_using": (
        "incremental_strategy='merge', merge_on_using_columns=['id']",
        [(1, "a", 10), (2, "B", 25), (3, "c", 30), (4, "d", 40)],
    ),
    "merged_set": (
        """incremental_strategy='merge', unique_key='id',
        merge_update_set_expressions={'amount': 'DBT_INTERNAL_DEST.amount + DBT_INTERNAL_SOURCE.amount'},
        merge_insert_condition='DBT_INTERNAL_SOURCE.amount < 40'""",
        [(1, "a", 10), (2, "B", 45), (3, "c", 30)],
    ),
    "merged_excluding": (
        "incremental_strategy='merge', unique_key='id', merge_exclude_columns=['name']",
        [(1, "a", 10), (2, "b", 25), (3, "c", 30), (4, "d", 40)],
    ),
    "merged_clauses": (
        """incremental_strategy='merge', unique_key='id', merge_clauses={
            'when_matched': [
                {'action': 'do_nothing', 'condition': 'DBT_INTERNAL_SOURCE.id = 99'},
                {'action': 'delete', 'condition': "DBT_INTERNAL_SOURCE.name = 'B'"},
                {'action': 'update', 'mode': 'by_name'}],
            'when_not_matched': [
                {'action': 'insert', 'mode': 'explicit',
                 'insert': {'columns': ['id', 'name', 'day'], 'values': ['DBT_INTERNAL_SOURCE.id', "upper(DBT_INTERNAL_SOURCE.name)", 'DBT_INTERNAL_SOURCE.day']}},
                {'action': 'update', 'by': 'source', 'condition': 'DBT_INTERNAL_DEST.id = 3', 'set_expressions': {'amount': 'DBT_INTERNAL_DEST.amount * 2'}},
                {'action': 'delete', 'by': 'source'}]}""",
        [(3, "c", 60), (4, "D", None)],
    ),
    "merged_by_position": (
        """incremental_strategy='merge', unique_key='id', merge_clauses={
            'when_matched': [{'action': 'update', 'mode': 'star'}],
            'when_not_matched': [{'action': 'do_nothing'}]}""",
        [(1, "a", 10), (2, "B", 25), (3, "c", 30)],
    ),
}  # fmt: skip


def test_each_strategy_and_each_form_of_merge(make_project):
    models = {
        f"models/{name}.sql": "{{ config(materialized='incremental', "
        + config
        + ") }}\nselect * from {{ ref('feed') }}\n{% if is_incremental() %} where (select count(*) from {{ this }}) > 0 {% endif %}"
        for name, (config, _) in MODELS.items()
    }
    project = make_project({"seeds/feed.csv": FIRST, **models})
    project.run("build")
    project.write({"seeds/feed.csv": SECOND})
    second = project.run("build")
    found = {
        name: sorted(
            (row["id"], row["name"], row["amount"])
            for row in project.table(f"main.{name}").to_pyarrow_table().to_pylist()
        )
        for name in MODELS
    }
    assert found == {name: sorted(rows, key=repr) for name, (_, rows) in MODELS.items()}
    assert second.response("partitions")["mode"] == "replace"
    assert second.response("safely_appended")["mode"] == "safeappend"
    assert second.response("inserted")["rows_inserted"] == 1
    assert project.version("main.merged_clauses") == 1


def test_the_error_action_stops_the_merge_and_leaves_the_table(make_project):
    config = """incremental_strategy='merge', unique_key='id', merge_clauses={
        'when_matched': [{'action': 'error', 'condition': 'DBT_INTERNAL_SOURCE.amount < DBT_INTERNAL_DEST.amount', 'error_message': "it's less"}]}"""
    body = "{{ config(materialized='incremental', " + config + ") }}\nselect * from {{ ref('feed') }}"
    project = make_project({"seeds/feed.csv": FIRST, "models/m.sql": body})
    project.run("build")
    project.write({"seeds/feed.csv": "id,day,name,amount\n1,2026-01-01,a,11\n2,2026-01-01,b,1\n"})
    result = project.dbt("build")
    assert not result.success
    assert "it's less" in result.message("m") and "main.m" in result.message("m")
    assert project.version("main.m") == 0


def test_keys_checks_and_nulls_of_a_contract_are_held_and_the_table_stays(make_project):
    schema = """
        version: 2
        models:
          - name: m
            config: {contract: {enforced: true}}
            constraints: [{type: unique, columns: [id]}]
            columns:
              - {name: id, data_type: integer, constraints: [{type: not_null}]}
              - {name: n, data_type: integer, constraints: [{type: check, expression: "n > 0", name: positive}]}
    """
    body = "{{ config(materialized='incremental', incremental_strategy='append', on_schema_change='fail') }} select * from {{ ref('feed') }}"
    types = "seeds: {shop: {+column_types: {id: integer, n: integer}}}\n"
    base = "name: shop\nversion: '1.0'\nprofile: shop\nflags: {send_anonymous_usage_stats: false}\n"
    files = {"seeds/feed.csv": "id,n\n1,5\n2,6\n", "models/m.sql": body, "models/s.yml": schema}
    project = make_project({**files, "dbt_project.yml": base + types})
    project.run("build")
    for rows, word in (
        ("3,0\n", "positive"),
        (",4\n", "NOT NULL"),
        ("4,1\n4,1\n", "UNIQUE"),
        ("2,9\n", "id = 2 (2 times)"),
    ):
        project.write({"seeds/feed.csv": f"id,n\n{rows}"})
        result = project.dbt("build")
        assert not result.success and word in result.message("m"), result.text
    assert project.rows("main.m") == [(1, 5), (2, 6)]
    assert project.version("main.m") == 0


def test_hooks_and_operations_change_a_table_by_one_commit_a_statement(make_project):
    project = make_project(
        {
            "models/t.sql": """
                {{ config(materialized='table',
                    pre_hook="create or replace temp table wanted as select 2 as id",
                    post_hook=["insert into {{ this }} select 3, 'c'",
                               "delete from {{ this }} where id in (select id from wanted)"]) }}
                select 1 as id, 'a' as name union all select 2, 'b'
            """,
            "macros/fix.sql": """
                {% macro fix() %}{% do run_query("update main.t set name = 'A; -- not a statement' where id = 1; "
                    ~ "create table main.kept as select * from main.t; alter table main.kept add column extra int") %}{% endmacro %}
            """,
        }
    )
    project.run("run")
    assert project.rows("main.t") == [(1, "a"), (3, "c")]
    assert project.version("main.t") == 2
    project.run("run-operation", "fix", fresh=True)
    assert project.rows("main.t") == [(1, "A; -- not a statement"), (3, "c")]
    assert project.table("main.kept").schema().to_arrow().names == ["id", "name", "extra"]


@pytest.mark.drawn(3)
def test_two_lakes_in_a_project(make_project, tmp_path):
    project = make_project(
        {
            "models/a.sql": "{{ config(materialized='table', database='archive', schema='old') }} select 1 as n",
            "models/v.sql": "{{ config(materialized='view', database='archive') }} select n + 1 as n from {{ ref('a') }}",
            "models/b.sql": "{{ config(materialized='table') }} select n * 10 as n from {{ ref('v') }}",
        },
        lakes={"archive": {"root_path": str(tmp_path / "archive")}},
    )
    project.run("run")
    assert project.rows("main.b") == [(20,)]
    assert (tmp_path / "archive" / "main_old" / "a" / "_delta_log").is_dir()
    project.run("run", "--select", "b", fresh=True)
    assert project.run("docs", "generate").success
    project.profile["lakes"]["archive"]["read_only"] = True
    result = project.dbt("run", "--select", "a")
    assert not result.success and "read-only" in result.message("a")


@pytest.mark.drawn(3)
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_an_external_model_is_there_in_a_later_process(make_project, tmp_path, kind):
    file = tmp_path / f"out.{kind}"
    project = make_project(
        {
            "models/e.sql": f"{{{{ config(materialized='external', location='{file}') }}}} select 1 as id, 'x' as name",
            "models/t.sql": "{{ config(materialized='table') }} select * from {{ ref('e') }}",
        }
    )
    project.run("run", "--select", "e")
    assert file.exists()
    project.run("run", "--select", "t", fresh=True)
    assert project.rows("main.t") == [(1, "x")]


def test_a_delta_model_has_a_folder_of_its_own_and_z_order(make_project, tmp_path):
    place = tmp_path / "elsewhere" / "t"
    body = f"{{{{ config(materialized='delta', location='{place}', z_order_by=['id']) }}}} select range as id from range(10)"
    project = make_project({"models/t.sql": body, "models/u.sql": "select count(*) as n from {{ ref('t') }}"})
    project.run("run")
    assert (place / "_delta_log").is_dir() and not (project.lake / "main" / "t").exists()
    assert project.run("show", "--select", "u", fresh=True).success


def test_microbatches_replace_their_slices(make_project):
    project = make_project(
        {
            "seeds/events.csv": "id,moment\n1,2026-01-01 01:00:00\n2,2026-01-02 02:00:00\n3,2026-01-03 03:00:00\n",
            "seeds/s.yml": "version: 2\nseeds: [{name: events, config: {event_time: moment}}]",
            "models/m.sql": "{{ config(materialized='incremental', incremental_strategy='microbatch', event_time='moment', "
            "batch_size='day', begin='2026-01-01') }} select * from {{ ref('events') }}",
        }
    )
    project.run("seed")
    bounds = ["--event-time-start", "2026-01-01", "--event-time-end", "2026-01-04"]
    project.run("run", *bounds)
    assert [row[0] for row in project.rows("main.m")] == [1, 2, 3]
    project.write(
        {"seeds/events.csv": "id,moment\n20,2026-01-02 02:00:00\n21,2026-01-02 23:59:59\n9,2026-01-03 00:00:00\n"}
    )
    project.run("seed")
    project.run("run", "--event-time-start", "2026-01-02", "--event-time-end", "2026-01-03")
    assert sorted(row[0] for row in project.rows("main.m")) == [1, 3, 20, 21]
