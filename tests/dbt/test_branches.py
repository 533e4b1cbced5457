"""dbt in a branch: an invocation reads and writes it, and main's files stay as they are."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun.branches import publish as publishes
from duckrun.cli import main as command
from duckrun.formats.delta.branched import BranchFormat

VARIABLE = {"DUCKRUN_BRANCH": "pr-42"}
MODELS = {
    "seeds/feed.csv": "id,amount\n1,10\n2,20\n",
    "models/orders.sql": "{{ config(materialized='incremental', incremental_strategy='merge', unique_key='id', "
    "post_hook='insert into {{ this }} values (99, 1)') }} select * from {{ ref('feed') }}",
    "models/large.sql": "{{ config(materialized='view') }} select * from {{ ref('orders') }} where amount > 5",
    "models/totals.sql": "{{ config(materialized='table') }} select count(*) as n from {{ ref('large') }}",
    "models/doubled.py": "def model(dbt, session):\n"
    "    dbt.config(materialized='table')\n"
    "    return session.sql(f\"select id, amount * 2 as amount from ({dbt.ref('orders').sql_query()})\")\n",
    "snapshots/history.sql": "{% snapshot history %}{{ config(target_schema='main', unique_key='id', strategy='check', "
    "check_cols='all') }} select * from {{ ref('feed') }}{% endsnapshot %}",
    "tests/totals_are_few.sql": "select * from {{ ref('totals') }} where n > 2",
}


def files_of(lake: Path) -> dict[Path, bytes]:
    """Return the files of main: tables and definitions, without branches and empty locks."""
    files = (path for path in lake.rglob("*") if path.is_file() and path.suffix != ".lock")
    beside = {"_branches", "branches", "publish", "scratch"}
    return {path: path.read_bytes() for path in files if not beside & set(path.relative_to(lake).parts)}


def rows_in_branch(lake: Path, table: str, branch: str | None = "pr-42") -> list[tuple[object, ...]]:
    with duckrun.connect(lake, branch=branch) as session:
        return sorted(tuple(row.values()) for row in session.sql(f"from {table}").collect())


@pytest.mark.drawn(1)
def test_each_node_of_an_invocation_reads_and_writes_the_branch(make_project: Callable) -> None:
    project = make_project(MODELS)
    project.run("build")
    before = files_of(project.lake)
    project.write({"seeds/feed.csv": "id,amount\n1,11\n2,20\n3,30\n"})
    built = project.dbt("build", env=VARIABLE)
    assert built["totals_are_few"]["status"] == "fail"  # it counts the rows of the branch
    assert {name for name, node in built.nodes.items() if node["status"] == "success"} == {
        *("feed", "orders", "large", "totals", "doubled", "history"),
    }
    assert files_of(project.lake) == before
    assert rows_in_branch(project.lake, "orders") == [(1, 11), (2, 20), (3, 30), (99, 1), (99, 1)]
    assert rows_in_branch(project.lake, "totals") == [(3,)]
    assert rows_in_branch(project.lake, "doubled")[:3] == [(1, 22), (2, 40), (3, 60)]
    assert [row[:2] for row in rows_in_branch(project.lake, "history")] == [(1, 10), (1, 11), (2, 20), (3, 30)]
    assert built.response("totals")["reads"]["main.orders"] == built.response("orders")["version"] + 1

    again = project.run("run", "--select", "totals", env=VARIABLE)  # a later invocation goes on in the branch
    assert (again.response("totals")["version"], project.version("main.totals")) == (2, 0)
    with duckrun.connect(project.lake) as main:
        main.publish("pr-42")
    assert project.rows("main.orders") == [(1, 11), (2, 20), (3, 30), (99, 1), (99, 1)]
    assert project.rows("main.totals") == [(3,)]
    assert rows_in_branch(project.lake, "large", branch=None) == [(1, 11), (2, 20), (3, 30)]


@pytest.mark.drawn(2)
def test_modified_models_are_built_in_a_branch_and_compared(
    make_project: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make_project(MODELS)
    project.run("build")
    before = files_of(project.lake)
    shutil.copytree(project.root / "target", project.root / "state")
    project.write(
        {
            "models/large.sql": "{{ config(materialized='view') }} select * from {{ ref('orders') }} where amount > 15",
            "models/alone.sql": "{{ config(materialized='table') }} select 1 as n",
        }
    )
    project.profile["branch"] = "pr-42"
    built = project.run("build", "--select", "state:modified+", "--defer", "--state", "state")
    assert set(built.nodes) == {"large", "totals", "totals_are_few", "alone"}
    assert files_of(project.lake) == before
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        command(["branch", "diff", "pr-42", "--root", str(project.lake), "--format", "csv"])
    assert not ended.value.code
    lines = [line.split(",")[:7] for line in capsys.readouterr().out.splitlines()]
    assert [line[:2] for line in lines[1:]] == [
        ["main.alone", "created"],
        ["main.large", "view"],
        ["main.totals", "changed"],
    ]
    assert lines[3][5:] == ["1", "0"]
    assert project.rows("main.totals") == [(2,)]


def test_the_variable_and_the_profile_name_one_branch(make_project: Callable) -> None:
    project = make_project({"models/a.sql": "{{ config(materialized='table') }} select 1 as n"}, branch="dev")
    refused = project.dbt("run", env=VARIABLE)
    assert not refused.success
    assert "'dev'" in refused.text and "'pr-42'" in refused.text and "DUCKRUN_BRANCH" in refused.text
    project.run("run", env={"DUCKRUN_BRANCH": "dev"})
    project.run("run", env={"DUCKRUN_BRANCH": ""})
    assert rows_in_branch(project.lake, "a", "dev") == [(1,)]
    with duckrun.connect(project.lake) as main:
        assert main.tables() == []
    project.profile["branch"] = "{{ env_var('DUCKRUN_BRANCH', '') }}"  # the profile itself may take the variable
    project.run("run", env={"DUCKRUN_BRANCH": ""})
    with duckrun.connect(project.lake) as main:
        assert main.tables() == ["main.a"]


@pytest.mark.parametrize(
    ("branch", "profile", "words"),
    [
        ("pr/42", {}, ["'pr/42'", "cannot name a branch", "'pr-42'"]),
        ("pr-42", {"format": "ducklake"}, ["format ducklake has no branches", "publish: together"]),
    ],
)
def test_a_branch_that_cannot_be_is_refused(
    make_project: Callable, branch: str, profile: dict[str, str], words: list[str]
) -> None:
    project = make_project({"models/a.sql": "select 1 as n"}, branch=branch, **profile)
    refused = project.dbt("run")
    assert not refused.success
    for word in words:
        assert word in refused.text
    assert not project.lake.exists()


@pytest.mark.spark
def test_nodes_on_both_engines_write_to_one_branch(make_project: Callable, spark: Any) -> None:
    project = make_project(
        {
            "models/a.sql": "{{ config(materialized='incremental', incremental_strategy='merge', unique_key='n') }} "
            "select 1 as n, 'a' as word union all select {{ 2 if is_incremental() else 3 }}, 'b'",
            "models/b.sql": "{{ config(materialized='incremental', incremental_strategy='merge', unique_key='n', "
            "engine='spark') }} select n, upper(word) as word from {{ ref('a') }}",
            "models/c.sql": "{{ config(materialized='table') }} select count(*) as n from {{ ref('b') }}",
            "models/d.py": "def model(dbt, session):\n"
            "    dbt.config(materialized='table', engine='spark')\n"
            "    return dbt.ref('b').limit(1)\n",
            "models/e.sql": "{{ config(materialized='view', engine='spark') }} select * from {{ ref('c') }}",
        }
    )
    project.run("run")
    before = files_of(project.lake)
    project.run("run", env=VARIABLE)
    project.run("run", env=VARIABLE)
    assert files_of(project.lake) == before
    assert rows_in_branch(project.lake, "b") == [(1, "A"), (2, "B"), (3, "B")]
    assert [rows_in_branch(project.lake, name) for name in ("c", "e")] == [[(3,)], [(3,)]]
    assert len(rows_in_branch(project.lake, "d")) == 1
    with duckrun.connect(project.lake) as main:
        main.publish("pr-42")
    assert project.rows("main.b") == [(1, "A"), (2, "B"), (3, "B")]


def test_another_branch_needs_no_new_parse(make_project: Callable) -> None:
    project = make_project({"models/a.sql": "{{ config(materialized='table') }} select 1 as n"})
    assert "Unable to do partial parsing" in project.run("run").text
    assert "Unable to do partial parsing" not in project.run("run", env=VARIABLE).text


def test_an_invocation_finishes_a_publish_whose_process_has_ended(
    make_project: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project({"models/a.sql": "{{ config(materialized='table') }} select 1 as n"})
    with duckrun.connect(project.lake) as main, duckrun.connect(project.lake, branch="b") as branch:
        for name in ("one", "two"):
            main.sql(f"create table {name} as select 1 as x")
            branch.sql(f"insert into {name} values (2)")
        publish, published = BranchFormat.publish, []

        def ends_at_the_second(*arguments: object) -> object:
            if published:
                raise KeyboardInterrupt
            published.append(publish(*arguments))  # type: ignore[arg-type]
            return published[-1]

        monkeypatch.setattr(BranchFormat, "publish", ends_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            main.publish("b")
        assert publishes.is_pending(main.lake)
    monkeypatch.undo()
    project.run("run")
    assert project.rows("main.one") == project.rows("main.two") == [(1,), (2,)]


ROUNDS = (
    "select 1 as id, 10 as amount union all select 2, 20",
    "select 2 as id, 21 as amount, 'b' as note union all select 3, 30, 'c'",
    "select 3 as id, 'd' as note, 1.5 as rate union all select 4, 'e', 2.5",
)


def grown(feed: str) -> dict[str, str]:
    """Return models and a snapshot over a feed, whose columns follow those of the feed."""

    def model(strategy: str, change: str) -> str:
        config = f"incremental_strategy='{strategy}', unique_key='id', on_schema_change='{change}'"
        return f"{{{{ config(materialized='incremental', {config}) }}}} select * from {{{{ ref('feed') }}}}"

    return {
        "models/feed.sql": f"{{{{ config(materialized='view') }}}} {feed}",
        "models/wider.sql": model("merge", "append_new_columns"),
        "models/synced.sql": model("delete+insert", "sync_all_columns"),
        "snapshots/kept.sql": "{% snapshot kept %}{{ config(target_schema='main', unique_key='id', strategy='check', "
        "check_cols='all') }} select * from {{ ref('feed') }}{% endsnapshot %}",
    }


def test_models_and_snapshots_whose_columns_change_are_published_as_main_builds_them(
    make_project: Callable, tmp_path: Path
) -> None:
    branched = make_project(grown(ROUNDS[0]))
    plain = make_project(grown(ROUNDS[0]), "plain", root_path=str(tmp_path / "plain_lake"))
    plain.lake = tmp_path / "plain_lake"

    def rows(project: Any, branch: str | None = None) -> dict[str, list[object]]:
        with duckrun.connect(project.lake, branch=branch) as session:
            tables = {name: session.sql(f"from {name}").collect() for name in ("wider", "synced", "kept")}
        return {name: sorted(map(str, map(untimed, rows))) for name, rows in tables.items()}

    def untimed(row: dict[str, Any]) -> dict[str, Any]:
        ends = {"is_open": row["dbt_valid_to"] is None} if "dbt_valid_to" in row else {}
        return {name: value for name, value in row.items() if not name.startswith("dbt_")} | ends

    for number, feed in enumerate(ROUNDS):
        for project in (branched, plain):
            project.write(grown(feed))
        before = files_of(branched.lake) if number else {}
        branched.run("build", env={"DUCKRUN_BRANCH": f"round-{number}"})
        assert not number or files_of(branched.lake) == before
        branched.run("build", env={"DUCKRUN_BRANCH": f"round-{number}"})  # as a second invocation would
        plain.run("build")
        plain.run("build")
        assert rows(branched, f"round-{number}") == rows(plain)
        with duckrun.connect(branched.lake) as main:
            main.publish(f"round-{number}")
        assert rows(branched) == rows(plain)
