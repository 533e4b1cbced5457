"""A dbt project on a DuckLake gives the same rows on Spark as on DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import duckrun
from tests.dbt.conftest import make_project  # noqa: F401  a fixture
from tests.dbt.test_engine_per_model import EITHER, NEXT, PROJECT, TABLES, VOLATILE

pytestmark = [pytest.mark.spark, pytest.mark.matrix]


def content(root: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a table; of a snapshot's times, whether they are there."""
    with duckrun.connect(root, format="ducklake") as session:
        rows = session.table(f"main.{name}").toDF().collect()
    return sorted(({k: (v is None) if k in VOLATILE else v for k, v in row.items()} for row in rows), key=repr)


@pytest.mark.drawn(2)
def test_a_dbt_project_on_a_ducklake_gives_the_same_rows_on_both_engines(
    make_project: Callable[..., Any],  # noqa: F811
    spark: Any,
    tmp_path: Path,
) -> None:
    check = ", constraints: [{type: check, expression: amount > 0}]"
    assert check in EITHER["models/schema.yml"]
    files = {**EITHER, "models/schema.yml": EITHER["models/schema.yml"].replace(check, ""), "dbt_project.yml": PROJECT}
    found = {}
    for engine in ("duckdb", "spark"):
        root = tmp_path / engine
        one = make_project(files, name=f"on_{engine}", engine=engine, root_path=str(root), format="ducklake", threads=4)
        first = one.run("build")
        assert {node["adapter_response"]["engine"] for node in first.nodes.values()} == {engine}
        one.write({"seeds/feed.csv": NEXT})
        second = one.run("build")
        assert second.response("merged")["mode"] == second.response("clauses")["mode"] == "merge"
        found[engine] = {name: content(root, name) for name in TABLES}
    for name in TABLES:
        assert found["spark"][name] == found["duckdb"][name], name
    assert len(found["spark"]["appended"]) == 6
