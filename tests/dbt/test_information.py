"""Lists of tables in a node's SQL have what the lake has, and not only what the node has named.

Budget: 25 seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from dbt.adapters.duckrun import information

import duckrun
from duckrun.errors import UnsupportedFeature

LISTS = {
    "tables": "select count(*) as n from information_schema.tables where table_schema = 'other'",
    "base tables": "select count(*) as n from information_schema.tables t where t.table_type = 'BASE TABLE' and t.table_schema = 'other'",
    "of the database": "select count(*) as n from {{ target.database }}.information_schema.tables where table_schema = 'other' and table_catalog = '{{ target.database }}'",
    "columns": "select count(distinct table_name) as n from information_schema.columns where table_schema = 'other' and column_name = 'id'",
    "schemata": "select count(*) * 2 as n from information_schema.schemata where schema_name = 'other'",
    "duckdb_tables": "select count(*) as n from duckdb_tables() where schema_name = 'other' and not internal",
    "duckdb_columns": "select count(distinct table_name) as n from duckdb_columns() where schema_name = 'other'",
    "duckdb_schemas": "select count(*) * 2 as n from duckdb_schemas() where schema_name = 'other'",
    "joined": "select count(*) as n from information_schema.tables a join information_schema.columns b using (table_schema, table_name) where table_schema = 'other' and column_name = 'id'",
}


@pytest.fixture
def project(make_project: Callable[..., Any]) -> Any:
    table = "{{ config(materialized='table') }} "
    models = {f"models/m{number}.sql": table + sql for number, sql in enumerate(LISTS.values())}
    models["models/named.sql"] = table + "select count(*) as n from other.a"
    models["models/hooked.sql"] = (
        "{{ config(materialized='table', pre_hook=\"create or replace temp table seen as select count(*) as n from information_schema.tables where table_schema = 'other'\") }}"
        " select n from seen"
    )
    models["models/queried.sql"] = (
        table + "{% set found = run_query(\"select count(*) from duckdb_tables() where schema_name = 'other'\") %}"
        " select {{ found.columns[0].values()[0] if execute else 0 }}::int as n"
    )
    project = make_project(models)
    with duckrun.connect(project.lake) as session:
        session.sql("create schema other")
        session.sql("create table other.a as select 1 as id")
        session.sql("create table other.b as select 1 as id")
    return project


def test_lists_in_models_hooks_and_queries_have_the_tables_of_the_lake(project: Any) -> None:
    project.run("run")
    with duckrun.connect(project.lake) as session:
        counts = {
            name: session.sql(f"select n from main.m{number}").collect()[0]["n"] for number, name in enumerate(LISTS)
        }
        assert counts == dict.fromkeys(LISTS, 2)
        for model, expected in (("hooked", 2), ("queried", 2), ("named", 1)):
            assert session.sql(f"select n from main.{model}").collect() == [{"n": expected}], model


def test_a_view_that_lists_tables_is_refused(make_project: Callable[..., Any]) -> None:
    """It would list DuckDB's memory wherever it is read."""
    result = make_project({"models/m.sql": "{{ config(materialized='view') }} " + LISTS["tables"]}).dbt("run")
    assert not result.success and "materialize it as a table" in result.text


def test_a_text_without_a_list_is_not_split_into_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    split: list[str] = []
    words_in = information.words_in
    monkeypatch.setattr(information, "words_in", lambda sql: split.append(sql) or words_in(sql))
    assert not information.lists_tables("select a, b from t")
    assert split == []
    for text in ("select * from INFORMATION_SCHEMA.tables", "select 1 from Duckdb_Tables()"):
        assert information.lists_tables(text)
    assert not information.lists_tables("select 'show tables' as a")
    with pytest.raises(UnsupportedFeature, match="SHOW TABLES"):
        information.lists_tables("-- all\nShow Tables")


def test_show_lists_the_tables_of_the_lake(project: Any) -> None:
    sql = "select table_name, table_type from information_schema.tables where table_schema = 'other' order by 1"
    shown = project.run("show", "--inline", sql)
    assert "BASE TABLE" in shown.text and "| a " in shown.text and "| b " in shown.text


@pytest.mark.parametrize(
    "sql", ["select count(*) as n from pg_catalog.pg_tables", "select count(*) as n from sqlite_master"]
)
def test_a_list_that_would_miss_the_lake_is_refused(make_project: Callable[..., Any], sql: str) -> None:
    result = make_project({"models/m.sql": sql}).dbt("run")
    assert not result.success and "not those of the lake" in result.text and "information_schema.tables" in result.text


CONTRACT = """
models:
  - name: child
    config: {materialized: table, contract: {enforced: true}}
    constraints: [{type: foreign_key, columns: [parent], expression: "main.parents (id)"}]
    columns:
      - {name: id, data_type: int, constraints: [{type: not_null}]}
      - {name: parent, data_type: int}
"""


def test_dbt_warns_of_a_foreign_key_which_nothing_enforces(make_project: Callable[..., Any]) -> None:
    project = make_project({"models/child.sql": "select 1 as id, 2 as parent", "models/schema.yml": CONTRACT})
    assert "The constraint type foreign_key is not supported by duckrun" in " ".join(project.run("run").text.split())
    quiet = CONTRACT.replace("type: foreign_key,", "type: foreign_key, warn_unsupported: false,")
    project = make_project({"models/child.sql": "select 1 as id, 2 as parent", "models/schema.yml": quiet})
    assert "not supported" not in project.run("run").text
