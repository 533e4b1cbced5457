"""Another writer's commit between the read and the commit of dbt models, hooks and queries of macros, in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests import races
from tests.races import CONSTANT_SOURCE, FOREIGN, MOMENTS, OF_ITSELF, SOURCES, Foreign, LetIn

INCREMENTAL = {
    "append": "materialized='incremental', incremental_strategy='append'",
    "overwrite": "materialized='table', partition_by=['p']",
    "replace": "materialized='incremental', incremental_strategy='insert_overwrite', partition_by=['p']",
    "replace_where": "materialized='incremental', incremental_strategy='insert_overwrite', incremental_predicates=[\"p = 'a'\"]",
    "merge": "materialized='incremental', incremental_strategy='merge', unique_key='id'",
    "delete_insert": "materialized='incremental', incremental_strategy='delete+insert', unique_key='id'",
}


def name_of(mode: str, source: races.Source) -> str:
    return f"{mode}_{'plain' if source is CONSTANT_SOURCE else 'self'}"


def models() -> dict[str, str]:
    """A model for each mode and source; its table is there before."""
    return {
        f"models/{name_of(mode, source)}.sql": "{{ config("
        + config
        + ") }} "
        + source.query.replace("{t}", "{{ this }}")
        for mode, config in INCREMENTAL.items()
        for source in SOURCES
    }


@pytest.fixture
def let_in(monkeypatch: pytest.MonkeyPatch) -> LetIn:
    return LetIn(monkeypatch)


@pytest.mark.matrix
@pytest.mark.drawn(5)
@pytest.mark.parametrize("locked", [True, False], ids=["", "without a lock"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("foreign", FOREIGN, ids=races.named(FOREIGN))
def test_a_commit_in_between_is_before_or_after_a_model(
    make_project: Callable[..., Any], let_in: LetIn, foreign: Foreign, moment: str, locked: bool
) -> None:
    project = make_project(models())
    if not locked:
        let_in.lock_away()
    for mode in INCREMENTAL:
        for source in SOURCES:
            location = project.lake / "main" / name_of(mode, source)
            races.make(location)
            let_in.next(location, moment, foreign)
    result = project.dbt("run")
    assert let_in.came(), result.text
    for mode in INCREMENTAL:
        for source in SOURCES:
            name = name_of(mode, source)
            node = result[name]
            error = None if node["status"] == "success" else RuntimeError(str(node["message"]))
            # what the model's SQL says can be computed again; only other columns are another table to compile for
            assert error is None or foreign.name == "column", f"{name}: {error}"
            location = project.lake / "main" / name
            races.judge(location, foreign, races.Write(mode, source), error, of_itself=source is OF_ITSELF)


FED = {
    "hook": """{{ config(materialized='incremental', incremental_strategy='append',
        pre_hook="create or replace temporary table seen as select max(id) + 1 as id from {{ this }}") }}
        select id, 'new' as v, 1::bigint as n, 'a' as p from seen""",
    "variable": """{{ config(materialized='incremental', incremental_strategy='append',
        pre_hook="set variable newest = (select max(id) + 1 from {{ this }})") }}
        select getvariable('newest') as id, 'new' as v, 1::bigint as n, 'a' as p""",
    "query": """{{ config(materialized='incremental', incremental_strategy='merge', unique_key='id') }}
        {% set newest = run_query('select max(id) + 1 from ' ~ this).columns[0].values()[0] if execute else 0 %}
        select {{ newest }}::bigint as id, 'new' as v, 1::bigint as n, 'a' as p""",
    "python": """
def model(dbt, session):
    dbt.config(materialized='incremental', incremental_strategy='append')
    return session.sql(f"select max(id) + 1 as id, 'new' as v, 1::bigint as n, 'a' as p from {dbt.this}")
""",
    "header": """{{ config(materialized='incremental', incremental_strategy='append',
        sql_header="set variable newest = (select max(id) + 1 from " ~ this ~ ")") }}
        select getvariable('newest') as id, 'new' as v, 1::bigint as n, 'a' as p""",
}


def test_what_hooks_queries_and_python_of_a_node_read_of_its_table_counts(
    make_project: Callable[..., Any], let_in: LetIn
) -> None:
    project = make_project({f"models/{name}.{'py' if name == 'python' else 'sql'}": text for name, text in FED.items()})
    for name in FED:
        races.make(project.lake / "main" / name)
        let_in.next(project.lake / "main" / name, "before the commit", FOREIGN[1])
    result = project.dbt("run")
    assert let_in.came(), result.text
    for name in FED:
        assert result[name]["status"] == "error", f"{name}: {result[name]}"
        message = result.message(name)
        assert f"main.{name} was computed from version 1" in message, message
        assert "version 2 (WRITE) has changed its rows since" in message and "run this node again" in message
        assert races.held(project.lake / "main" / name) == races.counted([*races.START, *races.OURS_TOO])
    project.run("run")
    for name in FED:
        assert (10, "new", 1, "a") in races.held(project.lake / "main" / name), name


def test_a_hook_that_writes_what_it_reads_is_computed_again(make_project: Callable[..., Any], let_in: LetIn) -> None:
    project = make_project(
        {
            "models/m.sql": """{{ config(materialized='incremental', incremental_strategy='append',
            pre_hook="insert into {{ this }} select max(id) + 1, 'hook', 1, 'a' from {{ this }}") }}
            select max(id) + 1 as id, 'new' as v, 1::bigint as n, 'a' as p from {{ this }}""",
        }
    )
    location = project.lake / "main" / "m"
    races.make(location)
    let_in.next(location, "before the commit", FOREIGN[0])
    project.run("run")
    assert let_in.came()
    added = [{"id": 8, "v": "hook", "n": 1, "p": "a"}, {"id": 9, "v": "new", "n": 1, "p": "a"}]
    assert races.held(location) == races.counted([*races.START, *races.UNRELATED, *added])


def test_a_model_computed_again_is_still_one_piece_of_work_for_a_retry(
    make_project: Callable[..., Any], let_in: LetIn
) -> None:
    project = make_project(
        {
            "models/m.sql": """{{ config(materialized='incremental', incremental_strategy='append') }}
            select max(id) + 1 as id, 'new' as v, 1::bigint as n, 'a' as p from {{ this }}"""
        }
    )
    location = project.lake / "main" / "m"
    races.make(location)
    let_in.next(location, "before the write", FOREIGN[0])
    for _ in range(2):
        project.run("run", env={"DUCKRUN_RUN_ID": "nightly"})
    assert races.held(location) == races.counted(
        [*races.START, *races.UNRELATED, {"id": 8, "v": "new", "n": 1, "p": "a"}]
    )
