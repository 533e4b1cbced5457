"""changes() in a model: what changed in a table since the model's own last commit, exactly once, on both engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import SQL, VacuumSpec, WriteSpec
from tests.lake import rows_of

SOURCES = "sources: [{name: raw, schema: main, tables: [{name: orders}]}]"


def following(
    engine: str = "duckdb", call: str = "source('raw', 'orders'), 'min_delta', key=['id']", **config: str
) -> str:
    words = "".join(f", {key}={value!r}" for key, value in config.items())
    return (
        f"{{{{ config(materialized='incremental', unique_key='id', engine={engine!r}{words}) }}}} "
        f"select * from {{{{ changes({call}) }}}}"
    )


def fill(lake: Path, *statements: str) -> None:
    with duckrun.connect(lake) as session:
        if not session.lake.exists(session.ref("main.orders")):
            session.execute(
                "main.orders", WriteSpec("overwrite"), SQL("select range as id, range * 10 as v from range(5)")
            )
        for statement in statements:
            session.sql(statement)


def equal(lake: Path, table: str = "copy") -> None:
    with duckrun.connect(lake) as session:
        assert rows_of(session.table(table).toDF()) == rows_of(session.table("orders").toDF())


CHANGES = (
    "update main.orders set v = 7 where id = 1",
    "delete from main.orders where id = 2",
    "insert into main.orders values (9, 90)",
)


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_model_follows_a_table(make_project: Callable[..., Any], engine: str, request: pytest.FixtureRequest) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    one = make_project({"models/copy.sql": following(engine), "models/sources.yml": SOURCES})
    fill(one.lake)
    one.run("build")
    equal(one.lake)
    fill(one.lake, *CHANGES)
    found = one.run("build").response("copy")
    equal(one.lake)
    if engine == "duckdb":
        assert (found["rows_inserted"], found["rows_updated"], found["rows_deleted"]) == (1, 1, 1)
    assert one.version("main.copy") == 1
    assert "nothing has changed" in one.run("build").response("copy")["reason"]
    assert one.version("main.copy") == 1
    fill(one.lake, "update main.orders set v = v")
    one.run("build")
    with duckrun.connect(one.lake) as session:
        assert session.table("copy").snapshot().version == 2
        session.table("copy").restoreToVersion(0)
    one.run("build")
    equal(one.lake)


def test_compiling_leaves_nothing_behind(make_project: Callable[..., Any]) -> None:
    one = make_project({"models/copy.sql": following(), "models/sources.yml": SOURCES})
    fill(one.lake)
    one.run("compile")
    one.run("docs", "generate")
    assert not (one.lake / "main" / "copy").exists()
    one.run("build")
    before = sorted(one.lake.rglob("*.json"))
    fill(one.lake, *CHANGES)
    one.run("compile")
    offsets = list(one.lake.rglob("_duckrun/offsets/*/*.json"))
    assert len(offsets) == 1 and offsets[0] in before


def test_only_a_full_refresh_goes_on_after_the_table_was_made_again(make_project: Callable[..., Any]) -> None:
    one = make_project(
        {
            "models/copy.sql": following(changes="upsert", call="source('raw', 'orders'), 'min_delta', key='id'"),
            "models/sources.yml": SOURCES,
        }
    )
    fill(one.lake)
    one.run("build")
    fill(one.lake, "drop table main.orders")
    fill(one.lake, "update main.orders set v = 3")
    failed = one.dbt("build")
    assert (
        not failed.success
        and "is another table now" in failed.text + failed.message("copy")
        and one.version("main.copy") == 0
    )
    one.run("build", "--full-refresh")
    equal(one.lake)
    fill(one.lake, *CHANGES)
    one.run("build")
    equal(one.lake)


def test_files_that_a_vacuum_took_ask_for_a_full_refresh(make_project: Callable[..., Any]) -> None:
    one = make_project({"models/copy.sql": following(), "models/sources.yml": SOURCES})
    fill(one.lake)
    one.run("build")
    fill(one.lake, "update main.orders set v = 1 where id = 1", "update main.orders set v = 2 where id = 1")
    with duckrun.connect(one.lake) as session:
        done = session.execute("main.orders", VacuumSpec(retention_hours=0, enforce_retention=False))
        assert len(done.warnings) == 1 and "copy has read table main.orders up to version 0" in done.warnings[0]
    failed = one.dbt("build")
    said = failed.text + failed.message("copy")
    assert not failed.success and "gone" in said and "Run a full refresh" in said and one.version("main.copy") == 0
    one.run("build", "--full-refresh")
    equal(one.lake)


def test_the_config_says_which_changes_and_two_tables_move_together(make_project: Callable[..., Any]) -> None:
    joined = """
        {{ config(materialized='incremental', incremental_strategy='append', changes={'kind': 'append_only', 'key': ['id']}) }}
        select 'a' as side, * from {{ changes(source('raw', 'orders')) }} union all
        select 'b' as side, * from {{ changes(source('raw', 'others'), predicate='v > 0') }}
    """
    one = make_project(
        {"models/log.sql": joined, "models/sources.yml": SOURCES.replace("orders}", "orders}, {name: others}")}
    )
    fill(one.lake, "create table main.others as select * from main.orders")
    one.run("build")
    fill(one.lake, "insert into main.orders values (9, 90)")
    one.run("build")
    one.run("build")
    with duckrun.connect(one.lake) as session:
        found = rows_of(session.sql("select side, id, count(*) as n from log group by all"))
    assert found == [("a", i, 1) for i in (0, 1, 2, 3, 4, 9)] + [("b", i, 1) for i in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (following().replace("incremental", "table"), "goes with materialized: incremental"),
        (following(call="source('raw', 'orders'), 'upserts'"), "upserts"),
        (following(call="source('raw', 'orders')"), "append_only"),
        (following(call="source('raw', 'orders'), 'upsert', key='nr'"), "names the column nr"),
    ],
)
def test_what_cannot_be_asked(make_project: Callable[..., Any], model: str, words: str) -> None:
    one = make_project({"models/copy.sql": model, "models/sources.yml": SOURCES})
    fill(one.lake)
    failed = one.dbt("build")
    assert not failed.success and words in failed.text + str(failed.nodes.get("copy", {}).get("message"))


def test_empty_builds_read_nothing_and_move_nothing(make_project: Callable[..., Any]) -> None:
    one = make_project({"models/copy.sql": following(), "models/sources.yml": SOURCES})
    fill(one.lake)
    one.run("build", "--empty")
    assert one.rows("main.copy") == [] and not list(one.lake.rglob("_duckrun/offsets/*/*.json"))
    one.run("build")
    equal(one.lake)
