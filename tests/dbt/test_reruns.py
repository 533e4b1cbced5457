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


COPY = """
    {{ config(materialized='incremental', unique_key='id') }}
    select * replace (v * {{ var("upto") }} as v) from {{ changes(source('raw', 'orders'), 'min_delta', key=['id']) }}
"""
SOURCES = "sources: [{name: raw, schema: main, tables: [{name: orders}]}]"


def rows(project: Project, query: str) -> list[tuple[Any, ...]]:
    with duckrun.connect(project.lake, format=project.profile["format"]) as session:
        return [tuple(row.values()) for row in session.sql(query).toArrow().to_pylist()]


@pytest.fixture(params=["delta", "ducklake"])
def lake_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def project(lake_format: str, make_project: Callable[..., Project]) -> Project:
    return make_project({"models/orders.sql": NEXT, "models/late.sql": LATE}, format=lake_format)


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


def test_a_third_attempt_reads_the_table_as_it_was_before_the_first(project: Project) -> None:
    run(project, "monday", "first")
    for said in ("killed", "killed again", "mended", "mended again"):
        run(project, "tuesday", said, 5)
    assert rows(project, "select id, said from orders order by id") == [(1, "first"), (2, "mended again")]
    late = [(1, "first"), (2, "first"), (3, "first"), (4, "mended again"), (5, "mended again")]
    assert rows(project, "select id, said from late order by id") == late


def test_the_table_that_the_older_attempt_made_is_none_to_the_newer_one(project: Project) -> None:
    run(project, "monday", "bad")
    run(project, "monday", "mended")
    assert rows(project, "select id, said from orders") == [(1, "mended")]
    assert rows(project, "select distinct said from late") == [("mended",)]


def test_rows_that_others_put_into_the_table_of_the_older_attempt_stay(
    make_project: Callable[..., Project], lake_format: str
) -> None:
    """Its append takes back its own rows alone. A model that reads its table is refused: it has seen the rows of others."""
    blind = NEXT.replace("max(id) + 1 as id", "2 as id").replace("from {{ this }}", "")
    project = make_project({"models/orders.sql": NEXT, "models/blind.sql": blind}, format=lake_format)
    run(project, "monday", "bad")
    with duckrun.connect(project.lake, format=lake_format) as session:
        session.sql("insert into main.blind values (7, 'others')")
        session.sql("insert into main.orders values (7, 'others')")
    again = project.dbt("run", "--vars", "{said: mended}", env={"DUCKRUN_RUN_ID": "monday"})
    assert rows(project, "select id, said from blind order by id") == [(2, "mended"), (7, "others")]
    assert rows(project, "select id, said from orders order by id") == [(1, "bad"), (7, "others")]
    assert "main.orders: an earlier attempt of the same work committed version" in again.text


def test_a_merge_of_what_is_newer_than_the_table_is_computed_again_after_late_data(project: Project) -> None:
    run(project, "monday", "first", 3)
    run(project, "tuesday", "bad", 5)
    run(project, "tuesday", "mended", 6)
    expected = [(1, "first"), (2, "first"), (3, "first"), (4, "mended"), (5, "mended"), (6, "mended")]
    assert rows(project, "select id, said from late order by id") == expected


def test_a_model_of_changes_reads_the_same_changes_again(
    make_project: Callable[..., Project], lake_format: str
) -> None:
    project = make_project({"models/copy.sql": COPY, "models/sources.yml": SOURCES}, format=lake_format)

    def change(*statements: str) -> None:
        with duckrun.connect(project.lake, format=lake_format) as session:
            for statement in statements:
                session.sql(statement)

    change("create table main.orders as select range as id, range * 10 as v from range(4)")
    run(project, "monday", "-", 1)
    change("update main.orders set v = 7 where id = 1", "delete from main.orders where id = 2")
    run(project, "tuesday", "-", 100)
    assert rows(project, "select id, v from copy order by id") == [(0, 0), (1, 700), (3, 30)]
    change("insert into main.orders values (9, 90)", "update main.orders set v = 0 where id = 3")
    again = run(project, "tuesday", "-", 1)
    assert rows(project, "select id, v from copy order by id") == [(0, 0), (1, 7), (3, 0), (9, 90)]
    assert again.response("copy")["retracted"]["rows"] == 2
    change("insert into main.copy values (50, 50)", "update main.orders set v = 8 where id = 1")
    run(project, "tuesday", "-", 1)  # others have changed the model's table: it goes on from there
    expected = [(0, 0), (1, 8), (3, 0), (9, 90), (50, 50)]
    assert rows(project, "select id, v from copy order by id") == expected


NUMBERED = """
    {{ config(materialized='incremental', incremental_strategy='append') }}
    select row_number() over (order by id) + {% if is_incremental() %}(select count(*) from {{ this }}){% else %}0{% endif %} as n,
      id * {{ var("upto") }} as id
    from {{ changes(source('raw', 'orders'), 'append_only', key=['id']) }}
"""


@pytest.mark.drawn(2)
def test_a_model_of_changes_reads_its_own_table_as_its_older_attempts_did(
    make_project: Callable[..., Project], lake_format: str
) -> None:
    project = make_project({"models/log.sql": NUMBERED, "models/sources.yml": SOURCES}, format=lake_format)

    def change(statement: str) -> None:
        with duckrun.connect(project.lake, format=lake_format) as session:
            session.sql(statement)

    change("create table main.orders as select range + 1 as id from range(2)")
    for upto in (-1, 1):  # makes the table
        run(project, "monday", "-", upto)
        assert rows(project, "select n, id from log order by n") == [(1, upto), (2, 2 * upto)]
    change("insert into main.orders values (3)")
    for upto in (-1, -2, 1):  # the table was there before
        run(project, "tuesday", "-", upto)
        assert rows(project, "select n, id from log order by n") == [(1, 1), (2, 2), (3, 3 * upto)]


@pytest.mark.slow
@pytest.mark.parametrize("lake_format", ["ducklake"])
@pytest.mark.parametrize("publish", ["each", "together"])
def test_older_attempts_of_a_run_that_is_published_together_are_taken_back(
    make_project: Callable[..., Project], lake_format: str, publish: str
) -> None:
    """Models that read their own table: of the first run, which makes it, and of a later one."""
    models = {"models/orders.sql": NEXT, "models/late.sql": LATE}
    project = make_project(models, format=lake_format, publish=publish, threads=1)
    for said in ("bad", "first"):
        run(project, "monday", said)
        assert rows(project, "select id, said from orders order by id") == [(1, said)]
        assert rows(project, "select id, said from late order by id") == [(1, said), (2, said), (3, said)]
    for said in ("bad", "worse", "mended"):
        again = run(project, "tuesday", said, 5)
        assert rows(project, "select id, said from orders order by id") == [(1, "first"), (2, said)]
        expected = [(1, "first"), (2, "first"), (3, "first"), (4, said), (5, said)]
        assert rows(project, "select id, said from late order by id") == expected
    assert again.response("orders")["retracted"]["rows"] == 1
    with duckrun.connect(project.lake, format=lake_format) as session:
        session.sql("insert into main.orders values (70, 'others')")
    refused = project.dbt("run", "--vars", "{said: late, upto: 6}", env={"DUCKRUN_RUN_ID": "tuesday"})
    assert "others have changed rows since" in refused.text
    assert rows(project, "select id, said from orders order by id") == [(1, "first"), (2, said), (70, "others")]


SNAPSHOT = """
    {% snapshot kept %}
    {{ config(unique_key='id', strategy='check', check_cols=['said']) }}
    select * from {{ ref('loaded') }}
    {% endsnapshot %}
"""
LOADED = "{{ config(materialized='table') }} select 1 as id, '{{ var(\"said\") }}' as said"
COUNTED = """
    def model(dbt, session):
        dbt.config(materialized='incremental', incremental_strategy='append')
        n = session.sql(f'select count(*) from {dbt.this}').fetchone()[0] if dbt.is_incremental else 0
        return session.sql(f'select {n} + 1 as n')
"""


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("lake_format", "publish"), [("delta", "each"), ("ducklake", "each"), ("ducklake", "together")]
)
def test_snapshots_and_python_models_read_their_tables_as_their_older_attempts_did(
    make_project: Callable[..., Project], lake_format: str, publish: str
) -> None:
    files = {"models/loaded.sql": LOADED, "snapshots/kept.sql": SNAPSHOT, "models/counted.py": COUNTED}
    project = make_project(files, format=lake_format, publish=publish, threads=1)

    def build(run_id: str, said: str) -> None:
        project.run("build", "--vars", f"{{said: {said}}}", env={"DUCKRUN_RUN_ID": run_id})

    kept = "select said, dbt_valid_to is null from kept order by dbt_valid_from"
    for said in ("bad", "first"):  # makes the tables
        build("monday", said)
        assert rows(project, kept) == [(said, True)]
        assert rows(project, "select n from counted") == [(1,)]
    for said in ("bad", "second"):
        build("tuesday", said)
        assert rows(project, kept) == [("first", False), (said, True)]
        assert rows(project, "select n from counted order by n") == [(1,), (2,)]
