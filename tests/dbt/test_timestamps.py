"""A timestamp is the same instant, or the same reading of a clock, on whichever engine it was written and is read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from deltalake import Field

# An hour that the clocks of many zones leave out, and one before 1970, with microseconds.
NAIVE = [datetime(2026, 3, 8, 2, 30, 0, 123456), datetime(1912, 6, 23, 23, 59, 59, 999999), None]
ZONED = [datetime(2026, 3, 8, 7, 30, 0, 123456, UTC), datetime(1912, 6, 24, 4, 59, 59, 999999, UTC), None]
SOURCE = """
    {{ config(materialized='table') }}
    select id, clock, instant, [clock, null] as clocks, {'at': clock, 'n': 1} as noted, map {'k': clock} as named
    from (values (1, timestamp '2026-03-08 02:30:00.123456', timestamptz '2026-03-08 02:30:00.123456-05'),
                 (2, timestamp '1912-06-23 23:59:59.999999', timestamptz '1912-06-23 23:59:59.999999-05'),
                 (3, null, null)) as t(id, clock, instant)
"""
ON_DUCKDB = {"models/first.sql": SOURCE}
BOTH = {
    **ON_DUCKDB,
    "models/on_spark.sql": "{{ config(materialized='table', engine='spark') }} select * from {{ ref('first') }}",
    "models/back.sql": "{{ config(materialized='table') }} select * from {{ ref('on_spark') }}",
}


def utc(moments: list[datetime | None]) -> list[datetime | None]:
    return [m if m is None else m.replace(tzinfo=UTC) for m in moments]


def types(project: Any, name: str) -> dict[str, str]:
    fields: list[Field] = project.table(f"main.{name}").schema().fields
    return {field.name: str(field.type) for field in fields}


def features(project: Any, name: str) -> set[str]:
    return set(project.table(f"main.{name}").protocol().reader_features or ())


def check(project: Any, name: str, clocks: list[datetime | None]) -> None:
    rows = project.table(f"main.{name}").to_pyarrow_table().sort_by("id").to_pylist()
    assert [row["clock"] for row in rows] == clocks, name
    assert [row["instant"] for row in rows] == ZONED, name
    assert [row["clocks"] for row in rows] == [[clock, None] for clock in clocks], name
    assert [row["noted"] for row in rows] == [{"at": clock, "n": 1} for clock in clocks], name
    assert [dict(row["named"]) for row in rows] == [{"k": clock} for clock in clocks], name


@pytest.mark.spark
def test_both_kinds_pass_through_both_engines_unchanged(make_project: Callable[..., Any], spark: Any) -> None:
    project = make_project(BOTH)
    project.run("build")
    for name in ("first", "on_spark", "back"):
        check(project, name, NAIVE)
        assert "timestampNtz" in features(project, name)


@pytest.mark.spark
def test_clocks_are_stored_as_instants_of_utc_where_a_reader_lacks_timestamp_ntz(
    make_project: Callable[..., Any], spark: Any
) -> None:
    # Spark's model reads clocks, so that it converts them itself
    files = {
        **BOTH,
        "dbt_project.yml": "name: shop\nversion: '1.0'\nprofile: shop\nmodels: {shop: {first: {+naive_timestamps: ntz}}}\n",
        "models/again.sql": """
            {{ config(materialized='incremental', incremental_strategy='merge', unique_key='id', engine='spark') }}
            select * from {{ ref('first') }}
            {% if is_incremental() %} where clock >= (select max(clock) from {{ this }}) {% endif %}
        """,
    }
    project = make_project(files, naive_timestamps="utc")
    project.run("build")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        project.run("run", "--select", "on_spark")
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert project.run("run", "--select", "again").response("again")["rows_updated"] == 1
    check(project, "first", NAIVE)
    for name in ("on_spark", "back", "again"):
        check(project, name, utc(NAIVE))
        assert not features(project, name), name


def test_every_materialization_takes_the_option_and_no_session_zone_moves_it(make_project: Callable[..., Any]) -> None:
    incremental = "materialized='incremental', unique_key='id', incremental_strategy='{}'"
    files = {
        **ON_DUCKDB,
        "seeds/days.csv": "id,seen_at\n1,2026-03-08 02:30:00\n",
        "snapshots/kept.yml": """
            snapshots:
              - {name: kept, relation: ref('days'), config: {strategy: timestamp, unique_key: id, updated_at: seen_at}}
        """,
        "models/wide.sql": "{{ config(materialized='table') }} pivot {{ ref('days') }} on id using max(seen_at)",
        "models/seen.sql": "{{ config(materialized='view') }} select timestamp '2026-01-01' as seen_at",
        "models/plain.sql": "{{ config(naive_timestamps='ntz', materialized='table') }} select timestamp '2026-01-01' as seen_at",
        "models/made.py": """
            def model(dbt, session):
                dbt.config(materialized="table")
                return dbt.ref("first")
        """,
        **{
            f"models/by_{name}.sql": f"{{{{ config({incremental.format(strategy)}) }}}} select * from {{{{ ref('first') }}}}"
            for name, strategy in (("merge", "merge"), ("delete", "delete+insert"), ("insert", "insert"))
        },
    }
    project = make_project(files, naive_timestamps="utc", settings={"TimeZone": "America/New_York"})
    project.run("build")
    project.write({"seeds/days.csv": "id,seen_at\n1,2026-03-08 03:30:00\n"})
    project.run("build")
    for name in ("first", "made", "by_merge", "by_delete", "by_insert"):
        check(project, name, utc(NAIVE))
        assert not features(project, name), name
    assert project.rows("main.days") == [(1, datetime(2026, 3, 8, 3, 30, tzinfo=UTC))]
    assert project.rows("main.wide") == [(datetime(2026, 3, 8, 3, 30, tzinfo=UTC),)]
    kept = project.table("main.kept").to_pyarrow_table().sort_by("dbt_valid_from").to_pylist()
    first, second = datetime(2026, 3, 8, 2, 30, tzinfo=UTC), datetime(2026, 3, 8, 3, 30, tzinfo=UTC)
    assert [(row["seen_at"], row["dbt_valid_from"], row["dbt_valid_to"]) for row in kept] == [
        (first, first, second),
        (second, second, None),
    ]
    assert "timestamp_ntz" in types(project, "plain")["seen_at"]


def test_an_unknown_value_is_refused(make_project: Callable[..., Any]) -> None:
    project = make_project({"models/a.sql": "{{ config(naive_timestamps='UTC+1') }} select 1 as x"})
    result = project.dbt("run")
    assert not result.success and "naive_timestamps 'UTC+1'; known are ntz, utc" in result.message("a")
    project.profile["naive_timestamps"] = "zulu"
    assert "naive_timestamps 'zulu' in the profile" in project.dbt("run").text
