"""dbt's own pattern in materializations of strangers: build beside, rename the old away, rename the new into its place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

MATERIALIZATION = """
{% materialization swapped, default %}
  {%- set existing_relation = load_cached_relation(this) -%}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set intermediate_relation = make_intermediate_relation(target_relation) -%}
  {%- set preexisting_intermediate_relation = load_cached_relation(intermediate_relation) -%}
  {%- set backup_relation = make_backup_relation(target_relation, 'table') -%}
  {%- set preexisting_backup_relation = load_cached_relation(backup_relation) -%}
  {{ drop_relation_if_exists(preexisting_intermediate_relation) }}
  {{ drop_relation_if_exists(preexisting_backup_relation) }}
  {{ run_hooks(pre_hooks) }}
  {% call statement('main') -%} {{ get_create_table_as_sql(False, intermediate_relation, sql) }} {%- endcall %}
  {% if existing_relation is not none %}
    {{ adapter.rename_relation(existing_relation, backup_relation) }}
  {% endif %}
  {{ adapter.rename_relation(intermediate_relation, target_relation) }}
  {{ run_hooks(post_hooks) }}
  {{ adapter.commit() }}
  {{ drop_relation_if_exists(backup_relation) }}
  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
"""
FILES = {
    "macros/swapped.sql": MATERIALIZATION,
    "models/orders.sql": "{{ config(materialized='swapped') }} select {{ var('n') }} as id, 'it''s' as item",
    "models/figs.sql": "{{ config(materialized='view') }} select id + 1 as next from {{ ref('orders') }}",
    "models/last.sql": "{{ config(materialized='table') }} select * from {{ ref('figs') }}",
}


def test_a_swap_by_renames_shows_the_new_rows_and_leaves_no_other_table(make_project: Callable[..., Any]) -> None:
    project = make_project(FILES, threads=2)
    for n in (1, 2, 3):
        project.run("build", "--vars", f"n: {n}")
        assert project.rows("main.orders") == [(n, "it's")]
        assert project.rows("main.last") == [(n + 1,)]  # through the view
        assert sorted(path.name for path in (project.lake / "main").iterdir() if not path.name.startswith("_")) == [
            "last",
            "orders",
        ]


@pytest.mark.spark
def test_a_swap_by_renames_on_spark(make_project: Callable[..., Any], spark: Any) -> None:
    project = make_project(FILES, engine="spark")
    for n in (1, 2):
        project.run("build", "--vars", f"n: {n}")
    assert project.rows("main.orders") == [(2, "it's")] and project.rows("main.last") == [(3,)]
    assert not list((project.lake / "main").glob("*__dbt_*"))


def test_what_a_kill_between_the_renames_left_is_cleared_by_the_next_run(make_project: Callable[..., Any]) -> None:
    project = make_project(FILES)
    project.run("build", "--vars", "n: 1")
    folder = project.lake / "main"
    (folder / "orders").rename(folder / "orders__dbt_backup")  # as after the first rename
    shutil.copytree(folder / "orders__dbt_backup", folder / "orders__dbt_tmp")
    project.run("build", "--vars", "n: 2")
    assert project.rows("main.orders") == [(2, "it's")]
    assert sorted(path.name for path in folder.iterdir() if not path.name.startswith("_")) == ["last", "orders"]


def test_hooks_and_later_models_know_a_renamed_table_by_its_new_name(make_project: Callable[..., Any]) -> None:
    project = make_project(
        {
            "models/a.sql": """
                {{ config(materialized='table', post_hook=["alter table {{ this }} rename to kept", "insert into main.kept values (2)"]) }}
                select 1 as id
            """,
            "models/b.sql": "{{ config(materialized='table') }} -- depends_on: {{ ref('a') }}\nselect * from main.kept",
        }
    )
    project.run("build")
    assert project.rows("main.b") == [(1,), (2,)]
