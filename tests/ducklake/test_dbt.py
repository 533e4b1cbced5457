"""dbt on a DuckLake: profiles, every materialization, and a run that is published whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckrun
from duckrun.storage.extensions import extension_path
from tests.dbt.conftest import Project, make_project  # noqa: F401  a fixture
from tests.ducklake.plain import attached

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


INCREMENTAL = "materialized='incremental', incremental_strategy='{0}'"
STEP = "{% set step = var('step') | int %}"
CHANGED = (
    "select * from (values (1, 'a', {{ step }}, 10), (2 + {{ step }}, 'b', {{ step }}, 20)) as v(id, name, step, n)"
)


def incremental(strategy: str, sql: str = CHANGED, **config: str) -> str:
    said = "".join(f", {key}={value}" for key, value in config.items())
    return f"{{{{ config({INCREMENTAL.format(strategy)}{said}) }}}} {STEP} {sql}"


_CHANGES = "(1, 'a', 10, 'insert'), (2, 'x', 5, 'insert')"
_LATER = "(1, 'b', 15, 'update_postimage'), (2, 'x', 9, 'delete'), (1, 'early', 8, 'insert')"
_KEYED = f"select * from (values {{% if is_incremental() %}} {_LATER} {{% else %}} {_CHANGES} {{% endif %}}) as v(id, name, n, _change_type)"

EVERYTHING = {
    "seeds/raw.csv": SEED,
    "models/appended.sql": incremental("append", partition_by="['step']"),
    "models/merged.sql": incremental("merge", unique_key="'id'", post_hook="'update {{ this }} set n = n + 1 where id = 1'"),
    "models/replaced.sql": incremental("delete+insert", unique_key="'id'", sort_by="['id']"),
    "models/inserted.sql": incremental("insert", unique_key="'id'"),
    "models/parted.sql": incremental("insert_overwrite", partition_by="['id']"),
    "models/wider.sql": incremental(
        "merge", CHANGED.replace("select *", "select *{% if step > 1 %}, n * 1.5 as more{% endif %}"),
        unique_key="'id'", on_schema_change="'append_new_columns'",
    ),
    "models/synced.sql": incremental(
        "append", CHANGED.replace("select *", "select id, n{% if step > 1 %}::BIGINT as n, name{% endif %}"), on_schema_change="'sync_all_columns'",
    ),
    "models/last.sql": incremental("scd1", _KEYED, unique_key="'id'", sequence_by="'n'"),
    "models/dim.sql": incremental("scd2", _KEYED, unique_key="'id'", sequence_by="'n'"),
    "models/python.py": """
        def model(dbt, session):
            dbt.config(materialized='table')
            return dbt.ref('merged').filter('id > 1').df()
        """,
    "models/seen.sql": "{{ config(materialized='view') }} select m.id, r.item from {{ ref('merged') }} as m left join {{ ref('raw') }} as r using (id)",
    "models/twice.sql": "{{ config(materialized='view') }} select count(*) as n, count(item) as items from {{ ref('seen') }}",
    "models/described.sql": "{{ config(materialized='table', persist_docs={'relation': true, 'columns': true}) }} select 1 as id, {{ var('step') }} as step",
    "models/schema.yml": """
        models:
          - name: described
            description: "it's described"
            config: {contract: {enforced: true}}
            columns:
              - {name: id, data_type: integer, description: the key, constraints: [{type: not_null}, {type: check, expression: id > 0}]}
              - {name: step, data_type: integer}
          - name: twice
            columns: [{name: n, data_tests: [not_null]}]
        """,
    "snapshots/states.sql": """
        {% snapshot states %}
        {{ config(unique_key='id', strategy='check', check_cols='all') }}
        select id, step from {{ ref('merged') }}
        {% endsnapshot %}""",
}  # fmt: skip
NAMES = (
    "raw", "appended", "merged", "replaced", "inserted", "parted", "wider", "synced", "last", "dim", "python", "seen", "twice", "described",
)  # fmt: skip


@pytest.mark.slow
def test_every_materialization_and_strategy_gives_the_rows_that_it_gives_on_delta(
    make_project: Callable[..., Project],  # noqa: F811
    tmp_path: Path,
) -> None:
    found: dict[str, dict[str, Any]] = {}
    targets = {
        "delta": {},
        "ducklake": {"format": "ducklake"},
        "together": {"format": "ducklake", "publish": "together", "threads": 1},
    }
    for kind, profile in targets.items():
        lake = tmp_path / kind
        # Types widen in a transaction of their own, before the rows that ask for it.
        models = {
            path: text.replace("::BIGINT as n", "") if kind == "together" else text for path, text in EVERYTHING.items()
        }
        project = make_project(models, name=f"project_{kind}", root_path=str(lake), **profile)
        for step in (1, 2):
            project.run("build", "--vars", f"step: {step}")
        with duckrun.connect(lake, format=profile.get("format", "delta")) as session:
            rows = {name: session.sql(f"select * from {name} order by all").collect() for name in NAMES}
            rows["states"] = session.sql(
                "select id, step, dbt_valid_to is null as open from states order by all"
            ).collect()
            found[kind] = {name: [tuple(row.values()) for row in each] for name, each in rows.items()}
    assert found["ducklake"] == found["delta"]
    assert found["together"] == found["delta"]
    described = "from duckdb_tables() as t join duckdb_columns() as c using (database_name, schema_name, table_name) where t.table_name = 'described'"
    assert lake_rows(
        tmp_path / "ducklake", f"select t.comment, column_name, is_nullable, c.comment {described} order by 2"
    ) == [("it's described", "id", False, "the key"), ("it's described", "step", True, None)]
    # Two runs, each one snapshot, after that of the lake itself and that of the table of what was applied.
    assert lake_rows(tmp_path / "together", "select count(*) from lake.snapshots() where author = 'duckrun'") == [(2,)]


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
    project.run("debug")
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


DIES = {
    "models/a.sql": "{{ config(materialized='table') }} select 1 as n",
    "models/b.py": """
        import os
        def model(dbt, session):
            dbt.config(materialized='table')
            if os.environ.get('DIES'):
                os.kill(os.getpid(), 9)
            return dbt.ref('a').df()
        """,
}


@pytest.mark.kills
def test_a_killed_run_shows_nothing_and_its_retry_writes_once(
    make_project: Callable[..., Project],  # noqa: F811
) -> None:
    project = make_project(DIES, format="ducklake", publish="together", threads=1)
    assert not project.dbt("run", env={"DUCKRUN_RUN_ID": "nightly", "DIES": "1"}, fresh=True).success
    assert lake_rows(project.lake, TABLES) == []
    project.run("run", env={"DUCKRUN_RUN_ID": "nightly"})
    assert lake_rows(project.lake, TABLES) == [("a",), ("b",)]
    count = "select count(*) from lake.snapshots()"
    (snapshots,) = lake_rows(project.lake, count)
    again = project.run("run", env={"DUCKRUN_RUN_ID": "nightly"})
    assert not again.response("a")["replayed"] and not again.response("b")["replayed"]
    assert lake_rows(project.lake, "select n from a union all select n from b") == [(1,), (1,)]
    assert lake_rows(project.lake, count) == [(snapshots[0] + 1,)]


TABLES = "select table_name from duckdb_tables() where database_name = 'lake' and schema_name = 'main' order by 1"
GOOD = {"models/a.sql": "{{ config(materialized='table') }} select 1 as n"}


@pytest.mark.parametrize(
    ("files", "profile", "words"),
    [
        (GOOD, {"threads": 2}, ["threads: 1", "publish: each"]),
        (GOOD, {"format": "delta"}, ["publish: together", "format delta", "format: ducklake"]),
        (GOOD, {"engine": "spark"}, ["publish: together", "engine: duckdb"]),
        (
            {**GOOD, "models/c.sql": "{{ config(materialized='external', location='out.csv') }} select * from {{ ref('a') }}"},
            {},
            ["materialized: external", "writes a file", "Nothing of this run was published: model.shop.c"],
        ),
        ({**GOOD, "dbt_project.yml": "name: shop\nversion: '1.0'\nprofile: shop\non-run-end: commit\n"}, {}, ["COMMIT", "one transaction"]),
        ({**GOOD, "dbt_project.yml": "name: shop\nversion: '1.0'\nprofile: shop\non-run-end: select no_such_thing()\n"}, {}, ["Nothing of this run was published: hook"]),
    ],
    ids=["threads", "delta", "spark", "external", "commit", "hook"],
)  # fmt: skip
def test_a_run_that_cannot_be_published_together_is_refused_and_leaves_nothing(
    make_project: Callable[..., Project],  # noqa: F811
    files: dict[str, str],
    profile: dict[str, Any],
    words: list[str],
) -> None:
    project = make_project(files, **{"format": "ducklake", "publish": "together", "threads": 1, **profile})
    result = project.dbt("run")
    assert not result.success
    for word in words:
        assert word in result.text
    assert not (project.lake / "catalog.sqlite").exists() or lake_rows(project.lake, TABLES) == []


def test_a_part_of_a_run_that_was_not_published_is_not_retried(
    make_project: Callable[..., Project],  # noqa: F811
) -> None:
    wrong = {**GOOD, "models/b.sql": "select n // 0 as m, nothing from {{ ref('a') }}"}
    project = make_project(wrong, format="ducklake", publish="together", threads=1)
    assert not project.dbt("run").success
    retried = project.dbt("retry")
    assert not retried.success and "dbt retry goes with no publish: together" in retried.text


def test_one_project_has_lakes_of_both_formats(
    make_project: Callable[..., Project],  # noqa: F811
    tmp_path: Path,
) -> None:
    models = {
        "models/raw.sql": "{{ config(materialized='table') }} select 1 as id",
        "models/ml.sql": "{{ config(materialized='table', database='ml', partition_by=['bucket(2, id)']) }} select id + 1 as id from {{ ref('raw') }}",
        "models/back.sql": "{{ config(materialized='table') }} select id + 1 as id from {{ ref('ml') }}",
        "models/seen.sql": "{{ config(materialized='view', database='ml') }} select id from {{ ref('ml') }}",
    }
    ml = tmp_path / "ml"
    project = make_project(models, lakes={"ml": {"root_path": str(ml), "format": "ducklake"}})
    project.run("run", "--fail-fast")
    assert project.rows("main.back") == [(3,)]
    assert lake_rows(ml, "from ml") == lake_rows(ml, "from seen") == [(2,)]
    project.write(
        {
            "models/across.sql": "{{ config(materialized='view', database='ml') }} select * from {{ ref('raw') }}",
            "models/clustered.sql": "{{ config(materialized='table', database='ml', cluster_by=['id']) }} select 1 as id",
            "models/placed.sql": "{{ config(materialized='table', database='ml', location='/tmp/x') }} select 1 as id",
            "models/written.sql": "{{ config(materialized='table', database='ml', writer='delta_rs') }} select 1 as id",
            "models/said.sql": "{{ config(materialized='table', database='ml', table_properties={'delta.appendOnly': 'true'}) }} select 1 as id",
            "models/deltas.sql": "{{ config(materialized='delta', database='ml') }} select 1 as id",
        }
    )
    refused = project.dbt("run", "--select", "across clustered placed written said deltas")
    for name, words in {
        "across": "its own lake alone",
        "clustered": "use sort_by",
        "placed": "location is Delta's",
        "written": "writer is Delta's",
        "said": "delta.appendOnly is Delta's",
        "deltas": "materialized: delta is Delta's",
    }.items():
        assert words in refused.message(name), refused.message(name)
    assert lake_rows(ml, TABLES) == [("ml",)]
    project.write({"models/one.sql": "{{ config(materialized='table', format='ducklake') }} select 1 as id"})
    result = project.dbt("run")
    assert not result.nodes
    assert "model.shop.one: format is 'ducklake'" in result.text and "is of format delta" in result.text


@pytest.mark.parametrize("server", [False, True])
def test_the_catalogs_password_is_shown_nowhere(
    make_project: Callable[..., Project],  # noqa: F811
    request: pytest.FixtureRequest,
    server: bool,
) -> None:
    dsn, said = "postgres:dbname=lake host=127.0.0.1 port=1 user=u password=hunter2", "cannot be reached"
    if server:
        running = request.getfixturevalue("postgres_server")
        dsn, said = running.address(running.database(), "hunter2"), "lets nobody in by that user and password"
    project = make_project(GOOD, format="ducklake", catalog=dsn)
    for command in ("debug", "run"):
        result = project.dbt(command)
        assert not result.success
        assert said in result.text and "password=***" in result.text
        assert "hunter2" not in result.text
    for file in project.root.rglob("*.log"):
        assert "hunter2" not in file.read_text()
    assert "hunter2" not in (project.root / "target" / "manifest.json").read_text()
    assert not (project.lake / "data").exists()


@pytest.mark.slow
@pytest.mark.drawn(2)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_two_processes_that_build_one_project_at_once_both_succeed(
    make_project: Callable[..., Project],  # noqa: F811
    request: pytest.FixtureRequest,
    kind: str,
) -> None:
    """Each of its models is as after one of them, and what appends has the rows of both."""
    files = MODELS | {
        "models/runs.sql": """
            {{ config(materialized='incremental', incremental_strategy='append') }}
            select sum(price) as price from {{ ref('orders') }}""",
        "models/totals.sql": """
            {{ config(materialized='incremental', unique_key='item', incremental_strategy='merge') }}
            select item, sum(price) as price from {{ ref('orders') }} group by item""",
    }
    more = {"catalog": request.getfixturevalue("postgres_catalog")} if kind == "postgres" else {}
    project = make_project(files, format="ducklake", threads=2, **more)
    project.run("build")
    with ThreadPoolExecutor(2) as both:
        runs = [
            both.submit(project.dbt, "build", "--target-path", name, env={"DUCKRUN_RUN_ID": name}, fresh=True)
            for name in ("one", "two")
        ]
    for run in runs:
        assert run.result().success, run.result().text
    with attached(project.lake, more.get("catalog")) as plain:
        assert plain.sql("select id, price from lake.orders order by id").fetchall() == [(1, 2.5), (2, 1.5)]
        assert plain.sql("from lake.totals order by item").fetchall() == [("fig", 2.5), ("pear", 1.5)]
        assert plain.sql("from lake.cheap").fetchall() == [(2, 1.5)]
        assert plain.sql("from lake.runs").fetchall() == [(4.0,)] * 3


def test_small_inserts_lie_in_the_catalog_and_files_are_encrypted_where_the_profile_says_so(
    make_project: Callable[..., Project],  # noqa: F811
) -> None:
    models = {
        "models/a.sql": "{{ config(materialized='table') }} select 1 as n",
        "models/b.sql": "{{ config(materialized='table') }} select range as n from range(20)",
    }
    project = make_project(models, format="ducklake", inline_rows=10, encrypted=True)
    project.run("run")
    assert lake_rows(project.lake, "select n, (select count(*) from b) from a") == [(1, 20)]
    files = lake_rows(
        project.lake,
        "select t.table_name, f.encryption_key is not null from __ducklake_metadata_lake.ducklake_data_file as f join __ducklake_metadata_lake.ducklake_table as t using (table_id)",
    )
    assert files == [("b", True)]


def test_a_run_that_is_published_together_reads_other_lakes_and_writes_none(
    make_project: Callable[..., Project],  # noqa: F811
    tmp_path: Path,
) -> None:
    with duckrun.connect(tmp_path / "raw") as raw:
        raw.sql("create table main.orders as select 1 as id")
        raw.sql("create table main.items as select 2 as id")
    files = {
        "models/sources.yml": "sources: [{name: raw, database: raw, schema: main, tables: [{name: orders}, {name: items}]}]",
        "models/a.sql": "{{ config(materialized='table') }} select id, current_setting('TimeZone') as zone from {{ source('raw', 'orders') }}",
        "models/b.sql": "{{ config(materialized='table') }} select i.id, zone from {{ source('raw', 'items') }} as i, {{ ref('a') }}",
    }
    lakes = {"raw": {"root_path": str(tmp_path / "raw")}}
    settings = {"TimeZone": "Asia/Kolkata"}
    project = make_project(files, format="ducklake", publish="together", threads=1, lakes=lakes, settings=settings)
    project.run("run")
    assert lake_rows(project.lake, "from b") == [(2, "Asia/Kolkata")]
    project.write({"models/out.sql": "{{ config(materialized='table', database='raw') }} select 3 as id"})
    result = project.dbt("run")
    assert not result.success
    assert "Schema main of raw lies in another lake" in result.text and not result.nodes
    assert not (tmp_path / "raw" / "main" / "out").exists()
