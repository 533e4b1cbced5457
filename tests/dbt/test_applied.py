"""incremental_strategy scd1 and scd2: the rows of a model are changes, applied to its table by key, on both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import duckrun
from tests.lake import rows_of

FIRST = "(1, 'a', 10, 'insert'), (1, 'b', 20, 'update_postimage'), (2, 'x', 5, 'insert')"
NEXT = "(1, 'c', 15, 'insert'), (2, 'x', 9, 'delete')"


def model(strategy: str, engine: str, rows: str = NEXT, **more: str) -> str:
    words = "".join(f", {key}={value!r}" for key, value in more.items())
    config = f"materialized='incremental', incremental_strategy={strategy!r}, unique_key='id', sequence_by='n', engine={engine!r}{words}"
    values = f"{{% if is_incremental() %}} {rows} {{% else %}} {FIRST} {{% endif %}}"
    return f"{{{{ config({config}) }}}} select * from (values {values}) as v(id, name, n, _change_type)"


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def test_changes_are_applied_to_a_models_table(
    make_project: Callable[..., Any], engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    one = make_project(
        {"models/dim.sql": model("scd2", engine), "models/last.sql": model("scd1", engine, on_schema_change="fail")}
    )
    one.run("build")
    with duckrun.connect(one.lake) as session:
        first = [(1, "a", 10, 10, 20), (1, "b", 20, 20, None), (2, "x", 5, 5, None)]
        assert rows_of(session.table("dim").toDF()) == first
        assert rows_of(session.table("last").toDF()) == [(1, "b", 20), (2, "x", 5)]
        response = one.run("build").response("dim")
        assert response["mode"] == "merge"
        late = [(1, "a", 10, 10, 15), (1, "b", 20, 20, None), (1, "c", 15, 15, 20), (2, "x", 5, 5, 9)]
        assert rows_of(session.table("dim").toDF()) == late
        assert rows_of(session.table("last").toDF()) == [(1, "b", 20)]
        one.run("build", "--full-refresh")
        assert rows_of(session.table("dim").toDF()) == first


def test_new_columns_and_bad_rows(make_project: Callable[..., Any]) -> None:
    wide = model("scd2", "duckdb", on_schema_change="append_new_columns").replace(
        "select *", "select *{% if is_incremental() %}, id * 2 as twice{% endif %}"
    )
    one = make_project(
        {
            "models/wide.sql": wide,
            "models/tied.sql": model("scd2", "duckdb", "(1, 'x', 30, 'insert'), (1, 'y', 30, 'insert')"),
        }
    )
    one.run("build")
    one.run("build", "--select", "wide")
    with duckrun.connect(one.lake) as session:
        found = rows_of(session.table("wide").toDF(), "id", "name", "valid_from", "valid_to", "twice")
        assert found == [(1, "a", 10, 15, None), (1, "b", 20, None, None), (1, "c", 15, 20, 2), (2, "x", 5, 9, None)]
        failed = one.dbt("build", "--select", "tied")
        assert "2 of them have the key (id)" in failed.message("tied") and "id = 1, n = 30" in failed.message("tied")
        assert session.table("tied").snapshot().version == 0


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("unique_key='id'", "scd2 applies changes by key, in the order of a column: it needs sequence_by"),
        ("sequence_by='n'", "it needs unique_key"),
        ("unique_key='id', sequence_by=['n']", "takes the name of one column"),
        ("unique_key='id', sequence_by='n', deletes=3", "it takes true, false, or a condition in SQL"),
        ("unique_key='id', sequence_by='m'", "sequence_by names m, which they do not have"),
    ],
)
def test_what_the_strategy_needs(make_project: Callable[..., Any], config: str, words: str) -> None:
    body = f"{{{{ config(materialized='incremental', incremental_strategy='scd2', {config}) }}}} select 1 as id, 2 as n"
    failed = make_project({"models/dim.sql": body}).dbt("build")
    assert words in failed.message("dim") and "model.shop.dim" in failed.message("dim")
