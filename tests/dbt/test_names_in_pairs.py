"""Models over sources that share a table's name, and a column with a schema's, give the rows of plain DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb

import duckrun

SETUP = (
    "create schema raw",
    "create schema seen",
    "create table raw.o as select i as id, 'r' || i as x from range(1, 5) r(i)",
    "create table seen.o as select i as id, {'o': i * 10} as raw from range(3, 6) r(i)",
)
MODELS = {
    "fresh": "select {raw}.id, {raw}.x from {raw} where not exists (select 1 from {seen} where {seen}.id = {raw}.id)",
    "joined": "select {raw}.x, {seen}.raw.o as n, o.raw.o as again from {raw} left join {seen} on {seen}.id = {raw}.id",
    "scalar": "select {raw}.id, (select max({seen}.raw.o) from {seen} where {seen}.id >= {raw}.id) as m from {raw}",
    "named": "with o as (select {seen}.id as k from {seen}) select o.k, {raw}.x from {raw} join o on o.k = {raw}.id",
}


def test_models_over_two_sources_of_one_name(make_project: Callable[..., Any]) -> None:
    native = duckdb.connect()
    files = {
        "models/sources.yml": "sources: [{name: raw, schema: raw, tables: [{name: o}]}, {name: seen, schema: seen, tables: [{name: o}]}]"
    }
    jinja = {"raw": "{{ source('raw', 'o') }}", "seen": "{{ source('seen', 'o') }}"}
    for name, sql in MODELS.items():
        files[f"models/{name}_table.sql"] = "{{ config(materialized='incremental') }} " + sql.format(**jinja)
        files[f"models/{name}_view.sql"] = "{{ config(materialized='view') }} " + sql.format(**jinja)
        files[f"models/{name}_of_view.sql"] = (
            "{{ config(materialized='table') }} select * from {{ ref('" + name + "_view') }}"
        )
    project = make_project(files)
    with duckrun.connect(project.lake) as session:
        for statement in SETUP:
            session.sql(statement)
            native.execute(statement)
    project.run("run")
    with duckrun.connect(project.lake) as session:
        for name, sql in MODELS.items():
            expected = native.execute(sql.format(raw="raw.o", seen="seen.o"))
            columns, rows = [column[0] for column in expected.description], sorted(expected.fetchall(), key=repr)
            for model in (f"{name}_table", f"{name}_view", f"{name}_of_view"):
                frame = session.sql(f"from {model}")
                assert frame.columns == columns, model
                assert sorted((tuple(row.values()) for row in frame.collect()), key=repr) == rows, model
