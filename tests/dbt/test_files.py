"""Views over files that a project names by relative paths: the same rows for whoever reads the lake, wherever it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckrun
from duckrun.errors import UnsupportedFeature
from duckrun.sql.file_paths import with_absolute_paths

SOURCES = """
    sources:
      - name: landing
        schema: main
        tables:
          - {name: orders, meta: {external_location: 'data/orders.csv'}}
          - {name: parts, meta: {external_location: "read_parquet('data/*.parquet')"}}
"""
VIEWS = {
    "by_name": "select orders.id, price from {{ source('landing', 'orders') }}",
    "by_glob": "select * from {{ source('landing', 'parts') }}",
    "by_list": "select id as n from read_csv(['data/orders.csv', 'data/orders.csv'], header = true)",
    "by_both": "with o as (from 'data/orders.csv') select o.id, 'data/a.csv' as said from o join \"data/a.parquet\" as p on p.id = o.id",
}


@pytest.fixture
def project(make_project: Callable[..., Any]) -> Any:
    views = {f"models/{name}.sql": f"{{{{ config(materialized='view') }}}} {sql}" for name, sql in VIEWS.items()}
    made = make_project({"models/sources.yml": SOURCES, "data/orders.csv": "id,price\n1,2.5\n2,3.5\n", **views})
    duckdb.execute(f"copy (select 2::bigint as id) to '{made.root}/data/a.parquet'")
    return made


def test_a_view_reads_the_files_that_it_was_made_over_from_any_folder(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Path.cwd()
    monkeypatch.chdir(project.root)
    project.run("run")
    project.run("run")  # and again, where the views are there
    monkeypatch.chdir(before)
    expected = {
        "by_name": [(1, 2.5), (2, 3.5)],
        "by_glob": [(2,)],
        "by_list": [(1,), (1,), (2,), (2,)],
        "by_both": [(2, "data/a.csv")],
    }
    assert not Path("data").exists(), "this process runs in another folder"
    with duckrun.connect(project.lake) as session:
        for name, rows in expected.items():
            found = session.sql(f"select * from {name} order by all").toArrow()
            assert [tuple(row.values()) for row in found.to_pylist()] == rows, name


@pytest.mark.spark
def test_spark_says_which_file_it_does_not_read(project: Any, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    project.run("run")
    with duckrun.connect(project.lake, engine="spark", spark=spark) as session:
        for name, read in (("by_name", "read_csv"), ("by_glob", "read_parquet")):
            with pytest.raises(
                UnsupportedFeature, match=rf"{read}\('{project.root}/data/.*make a table of its rows there"
            ):
                session.sql(f"select * from {name}").collect()
    project.profile["engine"] = "spark"
    project.write({
        "models/interval.sql": "{{ config(materialized='table') }} select to_days(2) as gap",
        "models/months.sql": "{{ config(materialized='table') }} select to_months(2) as gap",
        "models/nobody.sql": "{{ config(materialized='table') }} select list_reduce([1, 2], lambda a, b: a + b) as n",
        "models/rows.sql": "{{ config(materialized='table') }} select * from duckdb_settings()",
        "models/files.sql": "{{ config(materialized='table') }} select * from read_csv('data/orders.csv')",
    })  # fmt: skip
    result = project.dbt("run", "--select", "interval", "months", "nobody", "rows", "files")
    for model in ("interval", "months"):
        assert f"model.shop.{model}: column 'gap' is an interval" in result.message(model)
    assert "model.shop.nobody: Spark has no function `LIST_REDUCE`" in result.message("nobody")
    assert "model.shop.rows: Spark has no function `DUCKDB_SETTINGS`" in result.message("rows")
    assert "model.shop.files: read_csv('data/orders.csv'), by which DuckDB reads files" in result.message("files")


def test_paths_are_made_absolute_where_a_query_reads_files_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    here = os.path.abspath(".")
    for sql, expected in {
        "select 'a.csv' from t where s glob ('x.csv')": None,
        "select * from 's3://b/x.parquet' as x": "select * from read_parquet('s3://b/x.parquet') as x",
        "from read_csv('~/x.csv') -- read_csv('y')": None,
        "from read_json(getvariable('x'), format = 'array')": None,
        "select * from glob('it''s/*')": f"select * from glob('{here}/it''s/*')",
        "select * from a, 'x.json.gz'": f"select * from a, read_json('{here}/x.json.gz') AS \"x\"",
        'select "a.csv" from t': None,
    }.items():
        assert with_absolute_paths(sql) == (sql if expected is None else expected)
