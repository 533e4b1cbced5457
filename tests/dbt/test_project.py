"""project(): looking into a dbt project from Python."""

from __future__ import annotations

import pytest
from dbt.adapters.duckrun import project

import duckrun
from duckrun.errors import InvalidConfig, UnsupportedFeature

FILES = {
    "seeds/orders.csv": "id,customer,price\n1,a,10\n2,b,20\n3,a,5\n",
    "models/paid.sql": "{{ config(materialized='ephemeral') }} select * from {{ ref('orders') }} where price > 5",
    "models/totals.sql": """
        {{ config(materialized='table') }}
        with by_customer as (select customer, sum(price) as total from {{ ref('paid') }} group by customer),
        best as (select max(total) as total from by_customer)
        select * from by_customer where total < (select total from best)
    """,
}


@pytest.fixture
def built(make_project):
    made = make_project(FILES)
    made.run("build")
    return made


def test_a_models_rows_its_sql_and_its_ctes(built):
    with project(built.root) as shop:
        assert shop.ctes("totals") == ["__dbt__cte__paid", "by_customer", "best"]
        assert shop.show("totals").collect() == [{"customer": "a", "total": 10}]
        assert sorted(shop.cte("totals", "by_customer").toArrow()["total"].to_pylist()) == [10, 20]
        assert "__dbt__cte__paid" in shop.compiled("totals")
        assert shop.sql("select count(*) as n from {{ ref('orders') }}").collect() == [{"n": 3}]


def test_a_frame_keeps_its_version_and_the_next_one_reads_the_newest(built):
    with project(built.root) as shop, duckrun.connect(built.lake) as session:
        frame = shop.sql("select count(*) as n from {{ ref('orders') }}")
        session.sql("delete from main.orders where id = 1")
        assert frame.collect() == [{"n": 3}]
        assert shop.sql("select count(*) as n from {{ ref('orders') }}").collect() == [{"n": 2}]


def test_nothing_is_written(built):
    with project(built.root) as shop:
        with pytest.raises(UnsupportedFeature, match="read only"):
            shop.sql("delete from {{ ref('orders') }}")
        with pytest.raises(InvalidConfig, match="by_customer"):
            shop.cte("totals", "nope")
        with pytest.raises(InvalidConfig, match="nope"):
            shop.show("nope")
    assert built.version("main.orders") == 0
