"""`dbt build` that is killed at random moments and run again: the same command finishes, with the right rows.

The seed is DUCKRUN_TEST_SEED, as in test_kills.py.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import duckrun
from tests.drawing import rounds
from tests.kills.test_kills import BUDGET, SEED, SOAK, Writers

pytestmark = pytest.mark.kills

KILLS = rounds(12)
IDS = range(20)
NAME = "name: shop\nversion: '1.0'\nprofile: shop\nflags: {send_anonymous_usage_stats: false}\n"
MODELS = {
    "models/staged.sql": "select id, v, {{ var('round') }} as round from {{ ref('feed') }}",
    "models/whole.sql": "{{ config(materialized='table', partition_by=['id']) }} select * from {{ ref('staged') }}",
    "models/appended.sql": """
        {{ config(materialized='incremental', incremental_strategy='append') }} select * from {{ ref('staged') }}
    """,
    "models/safe.sql": """
        {{ config(materialized='incremental', incremental_strategy='safeappend') }} select * from {{ ref('staged') }}
        {% if is_incremental() %} where round > (select max(round) from {{ this }}) {% endif %}
    """,
    "models/merged.sql": """
        {{ config(materialized='incremental', incremental_strategy='merge', unique_key='id') }}
        select id + 5 * {{ var('round') }} as id, v, round from {{ ref('staged') }}
    """,
    "models/replaced.sql": """
        {{ config(materialized='incremental', incremental_strategy='delete+insert', unique_key='id') }}
        select id + 5 * {{ var('round') }} as id, v, round from {{ ref('whole') }}
    """,
    "models/parts.sql": """
        {{ config(materialized='incremental', incremental_strategy='insert_overwrite', partition_by=['round']) }}
        select * from {{ ref('staged') }}
    """,
    # every second round a table, else a view
    "models/changing.sql": "{{ config(materialized='table' if var('round') % 2 else 'view') }} select * from {{ ref('staged') }}",
    "snapshots/snap.sql": """
        {% snapshot snap %}{{ config(unique_key='id', strategy='check', check_cols=['v']) }}
        select * from {{ ref('feed') }}{% endsnapshot %}
    """,
}
PROFILE = (
    "shop: {target: dev, outputs: {dev: {type: duckrun, root_path: lake, schema: main, threads: 4, memory_limit: 1GB}}}"
)


@pytest.fixture
def builders() -> Iterator[Writers]:
    running = Writers("tests.kills.builder")
    yield running
    running.close()


def make_project(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in {"dbt_project.yml": NAME, "profiles.yml": PROFILE, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "seeds").mkdir()
    return root


def job(project: Path, *args: str, run_id: str = "", fails: bool = False, **env: str) -> dict[str, Any]:
    # An empty DUCKRUN_RUN_ID is none, whatever this process has.
    variables = {"DUCKRUN_RUN_ID": run_id, **env}
    return {"work": "dbt", "project": str(project), "args": list(args), "env": variables, "fails": fails}


def rows_of(project: Path, name: str) -> Counter[tuple[Any, ...]]:
    rows = DeltaTable(str(project / "lake" / "main" / name)).to_pyarrow_table().to_pylist()
    return Counter((row["id"], row["v"], row.get("round", row.get("dbt_valid_to") is None)) for row in rows)


def expected(rounds: int) -> dict[str, Counter[tuple[Any, ...]]]:
    """The rows of each table when rounds 0 to ``rounds - 1`` are through."""
    last = rounds - 1
    every = Counter((i, f"r{n}", n) for n in range(rounds) for i in IDS)
    keyed = {i + 5 * n: n for n in range(rounds) for i in IDS}
    by_key = Counter((i, f"r{n}", n) for i, n in keyed.items())
    return {
        "whole": Counter((i, f"r{last}", last) for i in IDS),
        "appended": every,
        "safe": every,
        "parts": every,
        "merged": by_key,
        "replaced": by_key,
        "snap": Counter((i, f"r{n}", n == last) for n in range(rounds) for i in IDS),
    }


@pytest.mark.parametrize("named", [True, False], ids=["with DUCKRUN_RUN_ID", "without"])
def test_a_build_that_is_killed_finishes_when_it_is_run_again(
    tmp_path: Path, builders: Writers, named: bool, figures: Callable[[str], None]
) -> None:
    project, rng = make_project(tmp_path / "project", MODELS), random.Random(SEED + named)
    leave = [] if named else ["--exclude", "appended"]  # which without a name appends again: see below
    tables = [name for name in expected(1) if named or name != "appended"]
    kills, number, started, full = 0, 0, time.monotonic(), 6.0
    while kills < KILLS or (SOAK and time.monotonic() - started < BUDGET / 4):
        (project / "seeds" / "feed.csv").write_text("id,v\n" + "".join(f"{i},r{number}\n" for i in IDS))
        work = job(project, "build", "--vars", f"round: {number}", *leave, run_id=f"day-{number}" if named else "")
        for _ in range(3):
            if not builders.run(work, kill_after=rng.uniform(0.5, full)):
                full *= 0.8  # it was done before: kill earlier
                break
            kills += 1
            full = min(full * 1.1, 10)
        builders.run(work, kill_after=None)
        number += 1
        wanted = expected(number)
        for name in tables:
            assert rows_of(project, name) == wanted[name], f"{name} after round {number}, seed {SEED}"
        with duckrun.connect(project / "lake") as session:
            assert session.tables() == sorted(f"main.{name}" for name in ["feed", "staged", "changing", *tables])
            assert session.sql("select count(*) as n from main.changing").collect() == [{"n": len(IDS)}]
    figures(f"{kills} kills in {number} rounds, seed {SEED}, {time.monotonic() - started:.0f} s")


# -- one moment that is known: the append has committed, and the model after it has not

APPENDED = """
    {{ config(materialized='incremental', incremental_strategy='append') }} select {{ var('round') }} as n
"""
AFTER = """
import os, pathlib, time


def model(dbt, session):
    dbt.config(materialized="table")
    rows = dbt.ref("appended").df()
    if os.environ["HALT"]:
        pathlib.Path(os.environ["HALT"]).touch()
        time.sleep(600)
    return rows
"""


@pytest.mark.parametrize(("run_ids", "times"), [(("day-1", "day-1"), 1), (("", ""), 2), (("day-1", "day-2"), 2)])
def test_an_append_that_committed_before_the_kill_is_repeated_only_without_a_run_id(
    tmp_path: Path, builders: Writers, run_ids: tuple[str, str], times: int
) -> None:
    project = make_project(tmp_path / "project", {"models/appended.sql": APPENDED, "models/after.py": AFTER})
    builders.run(job(project, "build", "--vars", "round: 0", run_id="day-0", HALT=""), kill_after=None)
    halt = project / "halt"
    work = job(project, "build", "--vars", "round: 1", run_id=run_ids[0], HALT=str(halt))
    assert builders.run(work, kill_after=60, when=halt)
    builders.run(job(project, "build", "--vars", "round: 1", run_id=run_ids[1], HALT=""), kill_after=None)
    for name in ("appended", "after"):
        rows = DeltaTable(str(project / "lake" / "main" / name)).to_pyarrow_table().column("n").to_pylist()
        assert sorted(rows) == [0] + [1] * times


# -- an interrupt from the keyboard


def test_an_interrupt_ends_a_build_at_once_and_the_same_build_goes_on(tmp_path: Path, builders: Writers) -> None:
    """dbt 1.11 keeps no result of the nodes that it interrupts: so `dbt retry` takes up none of them, and harms none."""
    project = make_project(
        tmp_path / "project",
        {
            "models/appended.sql": APPENDED,
            "models/slow.sql": """
                {{ config(materialized='table', pre_hook="copy (select 1) to 'begun.csv'") }}
                select count(*) as n from range({{ env_var('ROWS') }}::bigint) a, {{ ref('appended') }} where a.range % 7 < 7
            """,
            "models/last.sql": "{{ config(materialized='table') }} select n + 1 as n from {{ ref('slow') }}",
        },
    )
    command = ("build", "--vars", "round: 0")
    endless = job(project, *command, run_id="day-0", fails=True, ROWS=str(10**13))
    # as soon as the hook has run: the interrupt may fall before the query begins
    builders.run(endless, kill_after=60, when=project / "begun.csv", how=signal.SIGINT)
    assert not (project / "lake" / "main" / "slow" / "_delta_log").exists()
    builders.run(job(project, "retry", run_id="day-0", ROWS="10"), kill_after=None)
    builders.run(job(project, *command, run_id="day-0", ROWS="10"), kill_after=None)
    found = {n: DeltaTable(str(project / "lake" / "main" / n)).to_pyarrow_table() for n in ("appended", "slow", "last")}
    assert {name: table.to_pylist() for name, table in found.items()} == {
        "appended": [{"n": 0}], "slow": [{"n": 10}], "last": [{"n": 11}],
    }  # fmt: skip
