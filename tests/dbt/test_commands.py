"""dbt's commands, each in a process of its own, on a lake that another process has built."""

from __future__ import annotations

import json
import shutil

import pytest

import duckrun

SHOP = {
    "seeds/feed.csv": "id,day,amount\n1,2026-01-01,10\n2,2026-01-02,20\n3,2026-01-03,30\n",
    "models/staged.sql": "select id, day, amount from {{ ref('feed') }}",
    "models/facts.sql": "{{ config(materialized='table', partition_by=['day']) }} select * from {{ ref('staged') }}",
    "models/events.sql": """
        {{ config(materialized='incremental', incremental_strategy='append', event_time='moment') }}
        select *, day::timestamp as moment from {{ ref('facts') }}
        {% if is_incremental() %} where id > (select max(id) from {{ this }}) {% endif %}
    """,
    "models/sums.sql": "{{ config(materialized='table') }} select sum(amount)::int as total from {{ ref('events') }}",
    "models/schema.yml": """
        version: 2
        models:
          - name: facts
            columns: [{name: id, data_tests: [unique, not_null]}]
          - name: sums
        unit_tests:
          - name: amounts_are_summed
            model: sums
            given: [{input: ref('events'), rows: [{amount: 1}, {amount: 2}]}]
            expect: {rows: [{total: 3}]}
          - name: only_new_rows
            model: events
            overrides: {macros: {is_incremental: true}}
            given:
              - {input: ref('facts'), rows: [{id: 1}, {id: 7}]}
              - {input: this, rows: [{id: 5}]}
            expect: {rows: [{id: 7}]}
    """,
    "snapshots/snap.sql": """
        {% snapshot snap %}{{ config(unique_key='id', strategy='check', check_cols=['amount']) }}
        select * from {{ ref('feed') }}{% endsnapshot %}
    """,
    "macros/ops.sql": """
        {% macro count_facts() %}{{ log('facts: ' ~ run_query('select count(*) from main.facts').columns[0][0], info=true) }}{% endmacro %}
        {% macro forget(id) %}{% do run_query('delete from main.facts where id = ' ~ id) %}{% endmacro %}
    """,
}
# A unit test that gives rows of `this` needs the table, whatever the adapter.
BUILD = ("build", "--exclude-resource-type", "unit_test")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_command_in_a_process_of_its_own_on_a_lake_that_is_there(make_project):
    project = make_project(SHOP)
    project.run(*BUILD, fresh=True)

    project.run("docs", "generate", fresh=True)
    nodes = json.loads((project.root / "target" / "catalog.json").read_text())["nodes"]
    stats = {name.split(".")[-1]: node["stats"] for name, node in nodes.items()}
    assert stats["facts"]["num_rows"]["value"] == 3 and stats["facts"]["version"]["value"] == 0
    files = (project.lake / "main" / "facts").rglob("*.parquet")
    assert stats["facts"]["num_bytes"]["value"] == sum(file.stat().st_size for file in files)
    assert not stats["staged"]["has_stats"]["value"]  # a view
    assert list(nodes["model.shop.staged"]["columns"]) == ["id", "day", "amount"]

    inline = "select max(amount) as most from {{ ref('facts') }}"
    shown = project.run("show", "--inline", inline, "--output", "json", fresh=True)
    assert '"most": 30' in shown.text
    assert '"total": 60' in project.run("show", "--select", "sums", "--output", "json", fresh=True).text

    tested = project.run("test", fresh=True)
    assert {result["status"] for result in tested.nodes.values()} == {"pass"}
    assert {"amounts_are_summed", "only_new_rows"} <= {name.split(".")[-1] for name in _ids(project)}

    compiled = project.run("compile", "--select", "events", fresh=True)
    assert compiled.success
    text = (project.root / "target" / "compiled" / "shop" / "models" / "events.sql").read_text()
    assert "where id > (select max(id)" in text, "it is known to be incremental"

    project.write({"seeds/feed.csv": SHOP["seeds/feed.csv"].replace(",30", ",33")})
    project.run("seed", fresh=True)
    project.run("snapshot", fresh=True)
    closed = [(row[0], row[2], row[-1] is None) for row in project.rows("main.snap")]
    assert sorted(closed) == [(1, 10, True), (2, 20, True), (3, 30, False), (3, 33, True)]

    assert "facts: 3" in project.run("run-operation", "count_facts", fresh=True).text
    project.run("run-operation", "forget", "--args", "{id: 3}", fresh=True)
    assert [row[0] for row in project.rows("main.facts")] == [1, 2]
    assert project.version("main.facts") == 1

    project.run("run", "--select", "events", "--empty", fresh=True)
    assert len(project.rows("main.events")) == 3, "an incremental run of no rows adds none"
    project.run("build", "--select", "facts", "--empty", fresh=True)
    assert project.rows("main.facts") == []
    assert project.run("list", "--resource-type", "model", fresh=True).text.count("shop.") == 4


def _ids(project) -> list[str]:
    results = json.loads((project.root / "target" / "run_results.json").read_text())["results"]
    return [result["unique_id"] for result in results]


def with_state(make_project, files, **profile):
    """A project that is built for target prod, and its manifest kept as the state."""
    project = make_project(files, **profile)
    project.run(*BUILD)
    shutil.copytree(project.root / "target", project.root / "state")
    return project


@pytest.mark.drawn(3)
def test_defer_and_clone_take_what_is_not_there_from_another_schema(make_project):
    project = with_state(make_project, SHOP, schema="prod")
    project.profile["schema"] = "dev"
    state = ["--state", "state"]
    deferred = project.run("run", "--select", "sums", "--defer", *state)
    assert deferred.response("sums")["reads"] == {"prod.events": 0}
    assert project.rows("dev.sums") == [(60,)]
    changed = {
        "models/sums.sql": "{{ config(materialized='table') }} select sum(amount)::int * 2 as total from {{ ref('events') }}"
    }
    project.write(changed)
    assert set(project.run("run", "--select", "state:modified", "--defer", *state).nodes) == {"sums"}
    assert project.rows("dev.sums") == [(120,)]
    project.run("clone", *state, "--select", "facts", "events")
    with duckrun.connect(project.lake) as session:
        assert session.tables() == sorted(
            [
                *(f"prod.{name}" for name in ("events", "facts", "feed", "snap", "staged", "sums")),
                "dev.events",
                "dev.facts",
                "dev.sums",
            ]
        )
        assert session.sql("select count(*) as n from dev.facts").collect() == [{"n": 3}]
    assert project.run("test", "--select", "facts").success


@pytest.mark.drawn(3)
def test_defer_reads_the_tables_of_another_lake(make_project, tmp_path):
    project_file = """
        name: shop
        version: '1.0'
        profile: shop
        flags: {send_anonymous_usage_stats: false}
        models: {+database: "{{ env_var('LAKE') }}"}
        seeds: {+database: "{{ env_var('LAKE') }}"}
    """
    files = {
        name: text
        for name, text in SHOP.items()
        if name.startswith(("seeds", "models")) and name != "models/schema.yml"
    }
    lakes = {"prod": {"root_path": str(tmp_path / "prod")}, "dev": {"root_path": str(tmp_path / "dev")}}
    project = make_project({**files, "dbt_project.yml": project_file}, lakes=lakes)
    project.run("build", env={"LAKE": "prod"})
    shutil.copytree(project.root / "target", project.root / "state")
    lakes["prod"]["read_only"] = True
    here = {"env": {"LAKE": "dev"}}
    result = project.run("run", "--select", "sums", "--defer", "--state", "state", **here)
    assert result.response("sums")["location"].startswith(str(tmp_path / "dev"))
    project.run("clone", "--state", "state", "--select", "facts", **here)
    with duckrun.connect(tmp_path / "dev") as session:
        assert session.tables() == ["main.facts", "main.sums"]
        assert session.sql("select * from main.sums").collect() == [{"total": 60}]


def test_a_sample_takes_the_rows_of_a_time(make_project):
    files = {
        **SHOP,
        "models/late.sql": "{{ config(materialized='table') }} select count(*)::int as n from {{ ref('events') }}",
    }
    project = make_project(files)
    project.run(*BUILD)
    project.run("run", "--select", "late", "--sample", "{'start': '2026-01-02', 'end': '2026-01-03'}")
    assert project.rows("main.late") == [(1,)]
    project.run("run", "--select", "late")
    assert project.rows("main.late") == [(3,)]


@pytest.mark.drawn(3)
def test_retry_runs_what_failed_and_what_was_skipped_and_nothing_else(make_project):
    project = make_project(
        {**SHOP, "models/facts.sql": "{{ config(materialized='table') }} select id, gone from {{ ref('staged') }}"}
    )
    failed = project.dbt(*BUILD)
    statuses = {name: result["status"] for name, result in failed.nodes.items()}
    assert statuses["feed"] == statuses["staged"] == "success"
    assert statuses["facts"] == "error" and statuses["events"] == statuses["sums"] == "skipped"
    project.write({"models/facts.sql": SHOP["models/facts.sql"]})
    retried = project.run("retry", fresh=True)
    assert {"facts", "events", "sums"} <= set(retried.nodes) and not {"feed", "staged", "snap"} & set(retried.nodes)
    assert project.rows("main.sums") == [(60,)]
    assert {name: project.version(f"main.{name}") for name in ("feed", "facts", "events")} == {
        "feed": 0,
        "facts": 0,
        "events": 0,
    }
