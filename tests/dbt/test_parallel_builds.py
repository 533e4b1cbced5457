"""Two dbt processes on one lake: both finish, or one says that it lost the race; no row is doubled and none is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from dbt.cli.main import dbtRunner

import duckrun

CUE = "now another process commits"


def while_another_commits(project: Any, command: list[str], commit: Callable[[], None]) -> Any:
    """Run dbt here, and ``commit`` when it sends the statement that holds the cue. Gives dbt's result."""
    project.save_profile()

    def look(event: Any) -> None:
        if event.info.name == "SQLQuery" and CUE in event.data.sql:
            commit()

    folder = os.getcwd()
    options = ["--project-dir", str(project.root), "--profiles-dir", str(project.root), "--quiet"]
    try:
        return dbtRunner(callbacks=[look]).invoke([*command, *options])
    finally:
        os.chdir(folder)


def test_a_table_that_another_process_made_meanwhile_is_not_overwritten(make_project):
    config = (
        f"""{{{{ config(materialized='incremental', incremental_strategy='append', pre_hook="select '{CUE}'") }}}}"""
    )
    project = make_project({"models/m.sql": f"{config} select 1 as n"})

    def first() -> None:
        with duckrun.connect(project.lake) as session:
            session.execute("main.m", duckrun.WriteSpec("append"), duckrun.SQL("select 5::int as n"))

    result = while_another_commits(project, ["run"], first)
    assert not result.success
    message = str(result.result.results[0].message)
    assert "main.m" in message and "when there was no such table" in message and "version 0" in message
    assert project.rows("main.m") == [(5,)]
    project.run("run")
    assert project.rows("main.m") == [(1,), (5,)]


@pytest.mark.slow
@pytest.mark.parametrize("wider", [False, True])
def test_a_snapshot_that_another_has_overtaken_says_so_and_doubles_nothing(make_project, wider):
    project = make_project(
        {
            "seeds/feed.csv": "id,v\n1,a\n2,b\n",
            "snapshots/snap.sql": "{% snapshot snap %}{{ config(schema='main', unique_key='id', strategy='check', check_cols=['v'], "
            f"""pre_hook=["select count(*) from {{{{ this }}}}", "select '{CUE}'"] if var('race', false) else []) }}}}
            select * from {{{{ ref('feed') }}}}{{% endsnapshot %}}""",
        }
    )
    project.run("build")
    place = "main_main.snap"
    project.write({"seeds/feed.csv": "id,v,w\n1,A,1\n2,b,1\n" if wider else "id,v\n1,A\n2,b\n"})
    project.run("seed", "--full-refresh")

    def other() -> None:
        options = {"DUCKRUN_RUN_ID": ""}
        done = start(project, "snapshot", env=options)
        assert done.wait() == 0, done.stdout.read()

    result = while_another_commits(project, ["snapshot", "--vars", "race: true"], other)
    assert not result.success
    assert "computed from version 0" in str(result.result.results[0].message)
    project.run("snapshot")
    found = Counter(
        (row["id"], row["v"], row["dbt_valid_to"] is None)
        for row in project.table(place).to_pyarrow_table().to_pylist()
    )
    assert found == {(1, "a", False): 1, (1, "A", True): 1, (2, "b", True): 1}


# -- real processes at once

MODELS = {
    "models/staged.sql": "select id, v, {{ var('round') }} as round from {{ ref('feed') }}",
    "models/whole.sql": "{{ config(materialized='table') }} select * from {{ ref('staged') }}",
    "models/merged.sql": """
        {{ config(materialized='incremental', incremental_strategy='merge', unique_key='id') }}
        select id + 2 * {{ var('round') }} as id, v, round from {{ ref('staged') }}
    """,
    "models/replaced.sql": """
        {{ config(materialized='incremental', incremental_strategy='delete+insert', unique_key='id') }}
        select id + 2 * {{ var('round') }} as id, v, round from {{ ref('staged') }}
    """,
    "models/parts.sql": """
        {{ config(materialized='incremental', incremental_strategy='insert_overwrite', partition_by=['round']) }}
        select * from {{ ref('staged') }}
    """,
    "models/appended.sql": """
        {{ config(materialized='incremental', incremental_strategy='append') }} select * from {{ ref('staged') }}
    """,
    "models/safe.sql": """
        {{ config(materialized='incremental', incremental_strategy='safeappend') }}
        select * from {{ ref('staged') }}
        {% if is_incremental() %} where round > (select max(round) from {{ this }}) {% endif %}
    """,
    "snapshots/snap.sql": """
        {% snapshot snap %}{{ config(unique_key='id', strategy='check', check_cols=['v']) }}
        select * from {{ ref('feed') }}{% endsnapshot %}
    """,
}
IDS = range(1, 6)
ROUNDS = 3


def feed(number: int) -> str:
    """The seed of a round: its values are of that round."""
    return "id,v\n" + "".join(f"{i},r{number}\n" for i in IDS)


def start(
    project: Any, *args: str, env: Mapping[str, str] | None = None, target: str = "target"
) -> subprocess.Popen[str]:
    command = [
        sys.executable, "-m", "dbt.cli.main", *args, "--no-use-colors", "--log-level", "warn", "--target-path", target, "--log-path", target,
        "--project-dir", str(project.root), "--profiles-dir", str(project.root),
    ]  # fmt: skip
    return subprocess.Popen(
        command,
        cwd=project.root,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def at_once(project: Any, commands: list[tuple[list[str], Mapping[str, str]]]) -> list[dict[str, dict[str, Any]]]:
    """Commands that run at the same time: each one's nodes. One that fails must say that it lost a race."""
    running = [start(project, *args, env=env, target=f"target_{n}") for n, (args, env) in enumerate(commands)]
    nodes = []
    for n, process in enumerate(running):
        text, _ = process.communicate()
        results = json.loads(Path(project.root, f"target_{n}", "run_results.json").read_text())["results"]
        nodes.append({result["unique_id"].split(".")[2]: result for result in results})
        for result in results:
            assert result["status"] != "error" or lost(result), f"{result['unique_id']}: {result['message']}\n{text}"
    return nodes


def lost(result: Mapping[str, Any]) -> bool:
    said = str(result["message"])
    return result["status"] == "error" and any(
        words in said for words in ("read again and repeat", "changed its rows since", "is superseded")
    )


def rows_of(project: Any, name: str) -> Counter[tuple[Any, ...]]:
    rows = project.table(f"main.{name}").to_pyarrow_table().to_pylist()
    return Counter((row["id"], row["v"], row.get("round", row.get("dbt_valid_to") is None)) for row in rows)


def each(*rounds: int, times: int = 1) -> Counter[tuple[Any, ...]]:
    return Counter({(i, f"r{n}", n): times for n in rounds for i in IDS})


def by_key(rounds: int) -> Counter[tuple[Any, ...]]:
    """The rows of a table of keys after the rounds: the last round that had a key."""
    return Counter((i, f"r{n}", n) for i, n in {i + 2 * n: n for n in range(rounds) for i in IDS}.items())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_builds_of_the_same_models_at_once_double_nothing_and_lose_nothing(make_project):
    project = make_project(MODELS, threads=4)
    project.save_profile()
    appends = 0
    for number in range(ROUNDS):
        project.write({"seeds/feed.csv": feed(number)})
        command = ["build", "--vars", f"round: {number}"]
        made = at_once(project, [(command, {}), (command, {})])
        done = [nodes for nodes in made if nodes["appended"]["status"] == "success"]
        assert done, made
        first = [nodes for nodes in done if nodes["appended"]["adapter_response"]["mode"] == "overwrite"]
        assert len(first) == (number == 0), "one build made the table, and the other did not make it again"
        appends += len(done) * len(IDS)
        for name in ("safe", "snap", "merged"):  # whoever lost its race did nothing, and the other's work is there
            assert any(nodes[name]["status"] == "success" for nodes in made), made
        whole = Counter((i, f"r{number}", number) for i in IDS)
        assert rows_of(project, "whole") == whole
        assert rows_of(project, "merged") == rows_of(project, "replaced") == by_key(number + 1)
        assert rows_of(project, "parts") == rows_of(project, "safe") == each(*range(number + 1))
        past = Counter((i, f"r{n}", False) for n in range(number) for i in IDS)
        assert rows_of(project, "snap") == past + Counter((i, f"r{number}", True) for i in IDS)
        found = rows_of(project, "appended")
        assert found.total() == appends and set(found) == set(each(*range(number + 1)))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_piece_of_work_in_two_processes_appends_once(make_project):
    project = make_project({"seeds/feed.csv": feed(0), **MODELS})
    project.run("build", "--vars", "round: 0", env={"DUCKRUN_RUN_ID": "day-0"})
    same = (["run", "--select", "appended", "--vars", "round: 1"], {"DUCKRUN_RUN_ID": "day-1"})
    at_once(project, [same, same])
    assert rows_of(project, "appended").total() == 2 * len(IDS)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_builds_of_different_models_at_once_both_finish(make_project):
    project = make_project({"seeds/feed.csv": feed(0), **MODELS}, threads=4)
    project.save_profile()
    project.run("seed")
    project.run("run", "--select", "staged", "--vars", "round: 0")
    halves = (["whole", "merged", "appended"], ["replaced", "parts", "safe", "snap"])
    for number in range(ROUNDS):
        made = at_once(project, [(["build", "--select", *half, "--vars", f"round: {number}"], {}) for half in halves])
        statuses = {name: result["status"] for nodes in made for name, result in nodes.items()}
        assert statuses == {name: "success" for half in halves for name in half}
    assert rows_of(project, "appended").total() == len(IDS) * ROUNDS
    with duckrun.connect(project.lake) as session:
        assert session.tables() == sorted(f"main.{name}" for name in ["feed", "staged", *halves[0], *halves[1]])
