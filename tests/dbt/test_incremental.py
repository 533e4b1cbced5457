"""Incremental models: what the second run does to the rows of the first."""

from __future__ import annotations

import pytest

# The rows come from a variable-like seed table that a test replaces between the runs.
FIRST = "id,name,amount\n1,a,10\n2,b,20\n3,c,30\n"
SECOND = "id,name,amount\n2,B,25\n4,d,40\n"


def model(config: str, body: str = "select * from {{ ref('feed') }}") -> str:
    return "{{ config(materialized='incremental', " + config + ") }}\n" + body + "\n"


def project_of(make_project, config: str, body: str = "select * from {{ ref('feed') }}", **profile):
    return make_project({"seeds/feed.csv": FIRST, "models/orders.sql": model(config, body)}, **profile)


def second_run(project, feed: str = SECOND, **options):
    project.write({"seeds/feed.csv": feed})
    return project.run("build", **options)


def test_merge_updates_known_keys_and_inserts_new_ones(make_project):
    project = project_of(make_project, "incremental_strategy='merge', unique_key='id'")
    first = project.run("build")
    assert first.response("orders")["mode"] == "overwrite"
    second = second_run(project)
    assert project.rows("main.orders") == [(1, "a", 10), (2, "B", 25), (3, "c", 30), (4, "d", 40)]
    response = second.response("orders")
    assert response["mode"] == "merge"
    assert (response["rows_inserted"], response["rows_updated"], response["rows_deleted"]) == (1, 1, 0)
    assert response["rows_affected"] == 2
    assert response["reads"] == {"main.feed": 1}
    assert project.version("main.orders") == response["version"] == 1


@pytest.mark.drawn(3)
def test_a_second_merge_in_a_fresh_process_reads_what_the_first_wrote(make_project):
    project = project_of(make_project, "incremental_strategy='merge', unique_key='id'")
    project.run("build", fresh=True)
    second = second_run(project, fresh=True)
    assert second.response("orders")["mode"] == "merge"
    assert len(project.rows("main.orders")) == 4


def test_append_adds_every_row(make_project):
    project = project_of(make_project, "incremental_strategy='append'")
    project.run("build")
    assert second_run(project).response("orders")["mode"] == "append"
    assert [row[0] for row in project.rows("main.orders")] == [1, 2, 2, 3, 4]


def test_delete_insert_replaces_rows_by_key_and_keys_may_repeat(make_project):
    project = project_of(make_project, "incremental_strategy='delete+insert', unique_key=['id']")
    project.run("build")
    second_run(project, "id,name,amount\n2,B,25\n2,BB,26\n")
    assert project.rows("main.orders") == [(1, "a", 10), (2, "B", 25), (2, "BB", 26), (3, "c", 30)]


def test_the_default_with_a_key_is_delete_insert_as_on_dbt_duckdb(make_project):
    project = project_of(make_project, "unique_key='id'")
    project.run("build")
    assert second_run(project).response("orders")["mode"] == "delete+insert"


def test_without_a_key_rows_are_appended(make_project):
    project = project_of(make_project, "incremental_strategy='merge'")
    project.run("build")
    assert second_run(project).response("orders")["mode"] == "append"


def test_merge_by_two_keys(make_project):
    project = project_of(make_project, "incremental_strategy='merge', unique_key=['id', 'name']")
    project.run("build")
    second_run(project)
    assert len(project.rows("main.orders")) == 5


def test_only_if_changed_leaves_equal_rows_as_they_are(make_project):
    project = project_of(make_project, "incremental_strategy='merge', unique_key='id', only_if_changed=true")
    project.run("build")
    same = project.run("build").response("orders")
    assert (same["rows_affected"], project.version("main.orders")) == (0, 0)
    response = second_run(project, "id,name,amount\n1,a,10\n2,b,21\n3,c,30\n").response("orders")
    assert (response["rows_inserted"], response["rows_updated"], project.version("main.orders")) == (0, 1, 1)
    assert project.rows("main.orders") == [(1, "a", 10), (2, "b", 21), (3, "c", 30)]


def test_merge_update_columns_leaves_the_others(make_project):
    project = project_of(make_project, "incremental_strategy='merge', unique_key='id', merge_update_columns=['AMOUNT']")
    project.run("build")
    second_run(project)
    assert (2, "b", 25) in project.rows("main.orders")


def test_merge_exclude_columns_are_left(make_project):
    project = project_of(make_project, "incremental_strategy='merge', unique_key='id', merge_exclude_columns=['name']")
    project.run("build")
    second_run(project)
    assert (2, "b", 25) in project.rows("main.orders")


def test_merge_update_condition_decides_by_row(make_project):
    condition = "DBT_INTERNAL_SOURCE.amount > DBT_INTERNAL_DEST.amount"
    project = project_of(
        make_project, f"incremental_strategy='merge', unique_key='id', merge_update_condition='{condition}'"
    )
    project.run("build")
    second_run(project, "id,name,amount\n2,B,25\n3,C,1\n")
    assert project.rows("main.orders") == [(1, "a", 10), (2, "B", 25), (3, "c", 30)]


def test_incremental_predicates_limit_what_is_deleted(make_project):
    project = project_of(
        make_project, "incremental_strategy='delete+insert', unique_key='id', incremental_predicates=['amount > 20']"
    )
    project.run("build")
    second_run(project, "id,name,amount\n2,B,25\n3,C,35\n")
    assert project.rows("main.orders") == [(1, "a", 10), (2, "B", 25), (2, "b", 20), (3, "C", 35)]


def test_is_incremental_and_this_on_the_second_run(make_project):
    body = """
    select * from {{ ref('feed') }}
    {% if is_incremental() %} where id > (select max(id) from {{ this }}) {% endif %}
    """
    project = project_of(make_project, "incremental_strategy='append'", body)
    project.run("build")
    second = second_run(project)
    assert [row[0] for row in project.rows("main.orders")] == [1, 2, 3, 4]
    assert second.response("orders")["reads"] == {"main.feed": 1, "main.orders": 0}


def test_full_refresh_writes_the_table_anew(make_project):
    project = project_of(make_project, "incremental_strategy='merge', unique_key='id'")
    project.run("build")
    project.write({"seeds/feed.csv": SECOND})
    assert project.run("build", "--full-refresh").response("orders")["mode"] == "overwrite"
    assert len(project.rows("main.orders")) == 2


def test_duplicate_keys_are_an_error_that_names_the_table_and_change_nothing(make_project):
    project = project_of(make_project, "incremental_strategy='merge', unique_key='id'")
    project.run("build")
    project.write({"seeds/feed.csv": "id,name,amount\n2,B,25\n2,BB,26\n"})
    result = project.dbt("build")
    assert not result.success
    assert "main.orders" in result.message("orders") and "more than once" in result.message("orders")
    assert project.version("main.orders") == 0


def test_partitioned_merge_keeps_the_partitions(make_project):
    project = project_of(make_project, "incremental_strategy='merge', unique_key='id', partition_by='name'")
    project.run("build")
    second_run(project)
    assert project.table("main.orders").metadata().partition_columns == ["name"]
    assert len(project.rows("main.orders")) == 4


# -- on_schema_change

WIDER = "id,name,amount,extra\n2,B,25,x\n4,d,40,y\n"
NARROWER = "id,name\n2,B\n4,d\n"


@pytest.mark.parametrize("strategy", ["append", "merge", "delete+insert"])
def test_ignore_leaves_new_columns_out(make_project, strategy):
    project = project_of(make_project, f"incremental_strategy='{strategy}', unique_key='id'")
    project.run("build")
    second_run(project, WIDER)
    assert project.table("main.orders").schema().to_arrow().names == ["id", "name", "amount"]


def test_ignore_with_a_missing_column_says_what_to_set(make_project):
    project = project_of(make_project, "incremental_strategy='append'")
    project.run("build")
    project.write({"seeds/feed.csv": NARROWER})
    result = project.dbt("build")
    assert "main.orders" in result.message("orders") and "amount" in result.message("orders")
    assert project.version("main.orders") == 0


def test_fail_refuses_a_changed_schema(make_project):
    project = project_of(make_project, "incremental_strategy='append', on_schema_change='fail'")
    project.run("build")
    project.write({"seeds/feed.csv": WIDER})
    result = project.dbt("build")
    assert "extra" in result.message("orders")
    assert project.version("main.orders") == 0


@pytest.mark.parametrize("strategy", ["append", "merge", "delete+insert"])
def test_append_new_columns_adds_them(make_project, strategy):
    config = f"incremental_strategy='{strategy}', unique_key='id', on_schema_change='append_new_columns'"
    project = project_of(make_project, config)
    project.run("build")
    second_run(project, WIDER)
    assert project.table("main.orders").schema().to_arrow().names == ["id", "name", "amount", "extra"]
    assert (4, "d", 40, "y") in project.rows("main.orders")
    assert (1, "a", 10, None) in project.rows("main.orders")


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ("incremental_strategy='mrge', unique_key='id'", "merge"),
        ("incremental_strategy='microbatch'", "event_time"),
        ("on_schema_change='sync'", "sync_all_columns"),
        ("incremental_strategy='merge', unique_key='id', merge_clauses={'when_matched': [1]}", "merge_clauses"),
        ("engine='flink'", "duckdb, spark"),
        ("engine='spark', dialect='oracle'", "oracle"),
        (
            "incremental_strategy='merge', unique_key='id', merge_update_columns=['amount'], merge_exclude_columns=['name']",
            "exclude",
        ),
    ],
)
def test_a_config_that_cannot_work_is_refused_by_name(make_project, config, word):
    project = project_of(make_project, config)
    result = project.dbt("build")
    assert not result.success
    assert word in result.text + str(result.nodes.get("orders", {}).get("message"))
    assert not (project.lake / "main" / "orders" / "_delta_log").exists()


def test_sync_all_columns_adds_and_removes(make_project):
    config = "incremental_strategy='append', on_schema_change='sync_all_columns'"
    project = project_of(make_project, config)
    project.run("build")
    second_run(project, "id,name,extra\n4,d,y\n")
    assert project.table("main.orders").schema().to_arrow().names == ["id", "name", "extra"]
    assert project.rows("main.orders")[-1] == (4, "d", "y")


def test_a_key_that_the_model_does_not_return_is_refused_where_it_is_needed(make_project):
    project = project_of(make_project, "incremental_strategy='merge', unique_key='nope'")
    project.run("build")  # the first write matches nothing
    result = project.dbt("run", "--select", "orders")
    assert not result.success and "unique_key names nope" in result.message("orders")
    assert project.version("main.orders") == 0


@pytest.mark.parametrize("strategy", ["append", "insert_overwrite"])
def test_a_full_refresh_may_change_the_type_of_a_partition_column(make_project, strategy):
    """The log has values of partitions as texts, which readers cast to the newest type: such a commit has a checkpoint."""
    model = f"""
        {{{{ config(materialized='incremental', incremental_strategy='{strategy}', partition_by=['part']) }}}}
        select id, {{{{ var('part') }}}} as part from range(3) t(id)
    """
    project = make_project({"models/parted.sql": model})
    project.run("run", "--vars", "part: 7")
    project.run("run", "--full-refresh", "--vars", "part: \"'x' || id\"")
    assert project.rows("main.parted") == [(0, "x0"), (1, "x1"), (2, "x2")]
    project.run("run", "--vars", "part: \"'y'\"")
    assert project.rows("main.parted") == sorted([(n, f"{part}") for n in range(3) for part in (f"x{n}", "y")])
