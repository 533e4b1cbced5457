"""dbt on a DuckLake: profiles, every materialization, and a run that is published whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from duckrun.storage.extensions import extension_path
from tests.dbt.conftest import Project, make_project  # noqa: F401  a fixture

SEED = "id,item,price\n1,fig,2.5\n2,pear,1.5\n"
MODELS = {
    "seeds/raw.csv": SEED,
    "models/orders.sql": """
        {{ config(materialized='table', partition_by=['bucket(4, id)'], sort_by=['id']) }}
        select * from {{ ref('raw') }}""",
    "models/cheap.sql": "{{ config(materialized='view') }} select id, price from {{ ref('orders') }} where price < 2",
    "models/totals.sql": """
        {{ config(materialized='incremental', unique_key='item', incremental_strategy='merge') }}
        select item, sum(price) as price from {{ ref('orders') }}
        {% if is_incremental() %} where item not in (select item from {{ this }} where price > 100) {% endif %}
        group by item""",
}


def lake_rows(lake: Path, query: str) -> list[tuple[Any, ...]]:
    """Rows of a query as plain DuckDB with its ducklake extension reads them."""
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        for name in ("ducklake", "sqlite_scanner"):
            connection.execute(f"LOAD '{extension_path(name)}'")
        connection.execute(f"ATTACH 'ducklake:sqlite:{lake}/catalog.sqlite' AS lake (READ_ONLY)")
        connection.execute("USE lake")
        return connection.execute(query).fetchall()


def test_the_models_of_a_delta_project_become_tables_and_views_of_the_catalog(
    make_project: Callable[..., Project],  # noqa: F811
) -> None:
    project = make_project(MODELS, format="ducklake")
    built = project.run("build")
    assert built.response("orders")["writer"] == "ducklake"
    assert lake_rows(project.lake, "from orders order by id") == [(1, "fig", 2.5), (2, "pear", 1.5)]
    assert lake_rows(project.lake, "from cheap") == [(2, 1.5)]
    assert lake_rows(project.lake, "from totals order by item") == [("fig", 2.5), ("pear", 1.5)]


TOGETHER = {
    **MODELS,
    "models/schema.yml": """
        models:
          - name: totals
            columns: [{name: item, data_tests: [not_null]}]
        """,
}


def test_a_run_that_is_published_together_is_one_snapshot(
    make_project: Callable[..., Project],  # noqa: F811
) -> None:
    project = make_project(TOGETHER, format="ducklake", publish="together", threads=1)
    built = project.run("build")
    assert "Published together: snapshot" in built.text
    assert lake_rows(project.lake, "from totals order by item") == [("fig", 2.5), ("pear", 1.5)]
    assert lake_rows(project.lake, "from cheap") == [(2, 1.5)]
    last = "select max(snapshot_id) from lake.snapshots()"
    first = lake_rows(project.lake, last)
    project.run("build", "--exclude", "resource_type:seed")
    assert lake_rows(project.lake, last) == [(first[0][0] + 1,)]
    project.write({"seeds/raw.csv": "id,item,price\n1,,2.5\n2,pear,9\n"})
    failed = project.dbt("build")
    assert not failed.success
    assert "Nothing of this run was published: test.shop.not_null_totals_item" in failed.text
    assert lake_rows(project.lake, "from orders order by id") == [(1, "fig", 2.5), (2, "pear", 1.5)]
    assert lake_rows(project.lake, last) == [(first[0][0] + 1,)]
