"""merge_mode in a model's config: how its rows leave its table, on both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import duckrun

VECTORS = "delta.enableDeletionVectors"
FIRST = "select range as id, 'old' as v from range(1000)"
NEXT = "select id, 'new' as v from (values (7), (8), (1000)) as t(id)"


def model(strategy: str, **config: str) -> str:
    words = "".join(f", {key}={value!r}" for key, value in config.items())
    body = f"{{% if is_incremental() %}} {NEXT} {{% else %}} {FIRST} {{% endif %}}"
    return f"{{{{ config(materialized='incremental', incremental_strategy={strategy!r}, unique_key='id'{words}) }}}} {body}"


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_model_is_written_as_its_merge_mode_says(
    make_project: Callable[..., Any], engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    marks = {"merge_mode": "deletion_vectors", "engine": engine}
    one = make_project(
        {
            "models/merged.sql": model("merge", **marks),
            "models/replaced.sql": model("delete+insert", **marks),
            "models/plain.sql": model("merge", engine=engine),
            "seeds/few.csv": "id\n1\n",
            "snapshots/kept.sql": "{% snapshot kept %} {{ config(unique_key='id', strategy='check', check_cols=['v'], "
            "merge_mode='deletion_vectors', engine='"
            + engine
            + "') }} select * from {{ ref('plain') }} {% endsnapshot %}",
            "dbt_project.yml": "name: shop\nversion: '1.0'\nprofile: shop\n"
            "seeds: {shop: {+merge_mode: deletion_vectors}}\n",
        }
    )
    one.run("build")
    again = one.run("build")
    for name in ("merged", "replaced", "kept"):
        response = again.response(name)
        assert (response["engine"], response["files_marked"], response["files_removed"]) == (engine, 1, 0), name
    assert (again.response("plain")["files_marked"], again.response("plain")["files_removed"]) == (0, 1)
    with duckrun.connect(one.lake) as session:
        for name in ("merged", "replaced", "plain"):
            [found] = session.sql(
                f"select count(*) as n, sum(id) as s, count(*) filter (v = 'new') as new from {name}"
            ).collect()
            assert found == {"n": 1001, "s": 500500, "new": 3}, name
        assert session.sql("select count(*) as n from kept where dbt_valid_to is null").collect() == [{"n": 1001}]
        asks = {
            name: VECTORS in session.snapshot(name).properties
            for name in ("merged", "replaced", "kept", "few", "plain")
        }
    assert asks == {"merged": True, "replaced": True, "kept": True, "few": True, "plain": False}


def test_a_word_that_is_none_names_the_model(make_project: Callable[..., Any]) -> None:
    one = make_project({"models/merged.sql": model("merge", merge_mode="vectors")})
    result = one.dbt("build")
    assert not result.success
    assert (
        "model.shop.merged: unknown merge_mode 'vectors'; known are auto, deletion_vectors, copy_on_write"
        in result.message("merged")
    )


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_model_keeps_a_change_feed(
    make_project: Callable[..., Any], engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    one = make_project({"models/fed.sql": model("merge", engine=engine)})
    one.run("build")
    one.write(
        {"models/fed.sql": model("merge", engine=engine).replace("unique_key", "change_data_feed=true, unique_key")}
    )
    one.run("build")
    with duckrun.connect(one.lake) as session:
        feed = session.sql(
            "select _change_type as kind, count(*) as n from table_changes('fed', 2) group by 1 order by 1"
        )
        assert feed.collect() == [
            {"kind": "insert", "n": 1},
            {"kind": "update_postimage", "n": 2},
            {"kind": "update_preimage", "n": 2},
        ]
