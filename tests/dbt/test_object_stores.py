"""A dbt project whose lake is in an object store: found, written, merged, viewed and snapshot there, also by a process that comes later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import duckrun

FILES = {
    "seeds/orders.csv": "id,day,price\n1,2026-01-01,1.5\n2,2026-01-02,2.5\n",
    "models/staged.sql": "{{ config(materialized='view') }} select id, day, price * 100 as cents from {{ ref('orders') }}",
    "models/facts.sql": """
        {{ config(materialized='incremental', incremental_strategy='merge', unique_key='id', partition_by=['day']) }}
        select * from {{ ref('staged') }}
        {% if is_incremental() %} where day >= (select max(day) from {{ this }}) {% endif %}
    """,
    "models/replaced.sql": """
        {{ config(materialized='incremental', incremental_strategy='delete+insert', unique_key='id') }}
        select id, cents + 1 as cents from {{ ref('staged') }}
    """,
    "models/total.sql": "{{ config(materialized='table') }} select sum(cents)::int as cents from {{ ref('facts') }}",
    "snapshots/kept.yml": """
        snapshots:
          - {name: kept, relation: ref('orders'), config: {strategy: check, unique_key: id, check_cols: [price]}}
    """,
    "models/schema.yml": """
        models:
          - {name: facts, columns: [{name: id, data_tests: [unique, not_null]}]}
          - {name: staged, columns: [{name: id, data_tests: [unique]}]}
    """,
}
NEXT = "id,day,price\n1,2026-01-01,1.5\n2,2026-01-02,9.5\n3,2026-01-03,3.5\n"


@pytest.fixture(
    params=[
        pytest.param("s3", marks=[pytest.mark.slow, pytest.mark.s3]),
        pytest.param("az", marks=[pytest.mark.slow, pytest.mark.xdist_group("azure")]),
        pytest.param("abfss", marks=[pytest.mark.slow, pytest.mark.xdist_group("azure")]),
    ]
)
def place(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    """The root of a lake in an object store, and the storage_options by which it is reached."""
    if request.param == "s3":
        root = request.getfixturevalue("s3_bucket")("dbt-lake") + "/root"
        return root, request.getfixturevalue("s3_options")
    root = request.getfixturevalue("azure_container")(f"dbt-{request.param}", request.param) + "/root"
    return root, request.getfixturevalue("azure_options")


def test_a_project_on_an_object_store(make_project: Callable[..., Any], place: tuple[str, dict[str, str]]) -> None:
    root, options = place
    project = make_project(FILES, root_path=root, storage_options=options)
    first = project.run("build")
    assert first.response("facts")["rows_inserted"] == 2
    project.write({"seeds/orders.csv": NEXT})

    fresh = project.run("build", fresh=True)  # nothing but the store tells it what is there
    facts = fresh.response("facts")
    assert (facts["mode"], facts["rows_inserted"], facts["rows_updated"]) == ("merge", 1, 1)
    assert facts["reads"]["main.facts"] == 0
    assert project.run("test", "--select", "facts", fresh=True).nodes
    with duckrun.connect(root, storage_options=options) as session:
        assert session.tables() == [
            f"main.{name}" for name in ("facts", "kept", "orders", "replaced", "staged", "total")
        ]
        assert session.sql("select cents from main.total").collect() == [{"cents": 1450}]
        found = session.sql("select id, cents::int as cents from main.staged order by id").collect()
        assert found == [{"id": 1, "cents": 150}, {"id": 2, "cents": 950}, {"id": 3, "cents": 350}]
        replaced = session.sql("select id, cents::int as cents from main.replaced order by id").collect()
        assert [row["cents"] for row in replaced] == [151, 951, 351]
        kept = session.sql("select id, dbt_valid_to is null as open from main.kept order by id, open").collect()
        assert [tuple(row.values()) for row in kept] == [(1, True), (2, False), (2, True), (3, True)]
        assert session.table("main.facts").history()[0]["version"] == 1
    # a table that becomes a view and a view that becomes a table, and one that goes
    project.write(
        {
            "models/total.sql": "{{ config(materialized='view') }} select sum(cents)::int as cents from {{ ref('facts') }}"
        }
    )
    project.write({"models/staged.sql": FILES["models/staged.sql"].replace("view", "table")})
    project.run("build", fresh=True)
    with duckrun.connect(root, storage_options=options) as session:
        assert session.sql("select cents from main.total").collect() == [{"cents": 1450}]
        assert not session.lake.exists(session.lake.parse("main.total"))
        assert session.lake.exists(session.lake.parse("main.staged"))
    shown = project.run("show", "--inline", "select count(*) as n from {{ ref('facts') }}", "--output", "json")
    assert '"n": 3' in shown.text
