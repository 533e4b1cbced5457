"""A run of the same DUCKRUN_RUN_ID again: each node reads and writes its own table as if its older attempts had not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import duckrun
from tests.dbt.conftest import Project

NEXT = """
    {{ config(materialized='incremental', incremental_strategy='append') }}
    {% if is_incremental() %}
    select max(id) + 1 as id, '{{ var("said") }}' as said from {{ this }}
    {% else %}
    select 1 as id, '{{ var("said") }}' as said
    {% endif %}
"""
LATE = """
    {{ config(materialized='incremental', incremental_strategy='merge', unique_key='id') }}
    select id, '{{ var("said") }}' as said from range(1, {{ var("upto") }} + 1) t(id)
    {% if is_incremental() %} where id > (select max(id) from {{ this }}) {% endif %}
"""


def rows(project: Project, query: str) -> list[tuple[Any, ...]]:
    with duckrun.connect(project.lake, format=project.profile["format"]) as session:
        return [tuple(row.values()) for row in session.sql(query).toArrow().to_pylist()]


@pytest.fixture(params=["delta", "ducklake"])
def project(request: pytest.FixtureRequest, make_project: Callable[..., Project]) -> Project:
    return make_project({"models/orders.sql": NEXT, "models/late.sql": LATE}, format=request.param)


def run(project: Project, run_id: str, said: str, upto: int = 3) -> Any:
    return project.run("run", "--vars", f"{{said: {said}, upto: {upto}}}", env={"DUCKRUN_RUN_ID": run_id})


def test_an_append_by_max_id_counts_once_with_the_newest_value(project: Project) -> None:
    run(project, "monday", "first")
    run(project, "tuesday", "bad")
    again = run(project, "tuesday", "mended")
    assert rows(project, "select id, said from orders order by id") == [(1, "first"), (2, "mended")]
    assert not again.response("orders")["replayed"]
    run(project, "wednesday", "third")
    assert [row[0] for row in rows(project, "select id from orders order by id")] == [1, 2, 3]


def test_the_table_that_the_older_attempt_made_is_none_to_the_newer_one(project: Project) -> None:
    run(project, "monday", "bad")
    run(project, "monday", "mended")
    assert rows(project, "select id, said from orders") == [(1, "mended")]
    assert rows(project, "select distinct said from late") == [("mended",)]


def test_a_merge_of_what_is_newer_than_the_table_is_computed_again_after_late_data(project: Project) -> None:
    run(project, "monday", "first", 3)
    run(project, "tuesday", "bad", 5)
    run(project, "tuesday", "mended", 6)
    expected = [(1, "first"), (2, "first"), (3, "first"), (4, "mended"), (5, "mended"), (6, "mended")]
    assert rows(project, "select id, said from late order by id") == expected
