"""What a project asks for and cannot have: the node fails, says what to do, and the table and every file are as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import duckrun

FEED = "id,day,v\n1,mon,a\n2,tue,b\n"
STRATEGIES = {
    "append": "incremental_strategy='append'",
    "safeappend": "incremental_strategy='safeappend'",
    "merge": "incremental_strategy='merge', unique_key='id'",
    "insert": "incremental_strategy='insert', unique_key='id'",
    "delete+insert": "incremental_strategy='delete+insert', unique_key='id'",
    "insert_overwrite": "incremental_strategy='insert_overwrite'",
}


def model(config: str) -> str:
    return "{{ config(materialized='incremental', " + config + ") }} select * from {{ ref('feed') }}"


def everything(lake: Path) -> dict[str, bytes]:
    """Every file of the lake but locks."""
    return {str(f.relative_to(lake)): f.read_bytes() for f in lake.rglob("*") if f.is_file() and f.suffix != ".lock"}


@pytest.fixture(autouse=True)
def session_on_spark(request: pytest.FixtureRequest) -> None:
    """Where the test's engine is Spark, its session is there before dbt looks for one."""
    if request.getfixturevalue("engine") == "spark":
        request.getfixturevalue("spark")


def test_other_partitions_than_the_table_has_are_refused_until_it_is_written_anew(make_project, engine):
    def models(partition: str) -> dict[str, str]:
        return {
            f"models/m{n}.sql": model(f"{how}, partition_by=['{partition}']")
            for n, how in enumerate(STRATEGIES.values())
        }

    names = [f"m{n}" for n in range(len(STRATEGIES))]
    project = make_project({"seeds/feed.csv": FEED, **models("day")}, engine=engine)
    project.run("build")
    before = everything(project.lake)
    project.write(models("v"))
    result = project.dbt("run")
    for name in names:
        message = result.message(name)
        assert result[name]["status"] == "error", f"{name}: {message}"
        assert all(word in message for word in (f"main.{name}", "partitioned by day, not by v", "--full-refresh")), (
            message
        )
    assert everything(project.lake) == before
    project.run("run", "--full-refresh", "--select", "m0", "m2")
    for name in ("m0", "m2"):
        assert project.table(f"main.{name}").metadata().partition_columns == ["v"]
        assert len(project.rows(f"main.{name}")) == 2
    project.run("run", "--select", "m0", "m2")


def test_a_key_that_is_not_there_is_refused_and_nothing_is_written(make_project, engine):
    keyed = {n: how for n, how in STRATEGIES.items() if "unique_key" in how}
    files = {f"models/m{n}.sql": model(how) for n, how in enumerate(keyed.values())}
    project = make_project({"seeds/feed.csv": FEED, **files}, engine=engine)
    project.run("build")
    before = everything(project.lake)
    project.write({name: text.replace("'id'", "['id', 'nope']") for name, text in files.items()})
    result = project.dbt("run")
    for n in range(len(keyed)):
        message = result.message(f"m{n}")
        assert f"unique_key names nope, which the model does not return; table main.m{n}" in message
        assert "It returns id, day, v" in message
    assert everything(project.lake) == before


@pytest.mark.drawn(5)
@pytest.mark.parametrize("kind", ["table", "view", "seed", "snapshot", "located"])
def test_files_that_are_no_table_are_left_alone_by_every_materialization(make_project, engine, kind, tmp_path):
    place = tmp_path / "elsewhere" if kind == "located" else tmp_path / "lake" / "main" / "t"
    files = {
        "table": {"models/t.sql": "{{ config(materialized='table') }} select 1 as id"},
        "view": {"models/t.sql": "{{ config(materialized='view') }} select 1 as id"},
        "seed": {"seeds/t.csv": FEED},
        "snapshot": {
            "snapshots/t.sql": "{% snapshot t %}{{ config(unique_key='id', strategy='check', check_cols='all') }} select 1 as id{% endsnapshot %}"
        },
        "located": {"models/t.sql": f"{{{{ config(materialized='table', location='{place}') }}}} select 1 as id"},
    }[kind]
    project = make_project(files, engine=engine)
    (place / "sub").mkdir(parents=True)
    (place / "data.parquet").write_bytes(b"PAR1")
    (place / "sub" / "book.txt").write_text("years of work")
    result = project.dbt("build")
    if kind == "view":  # a definition file of its own, beside the folder
        assert result.success, result.text
    else:
        assert not result.success
        assert "main.t" in result.message("t") and "Nothing was written" in result.message("t")
    project.dbt("build", "--full-refresh")
    found = {str(f.relative_to(place)): f.read_bytes() for f in place.rglob("*") if f.is_file()}
    assert found == {"data.parquet": b"PAR1", "sub/book.txt": b"years of work"}


def with_protocol(lake: Path, name: str, features: list[str], *, readers: bool) -> None:
    log = lake / "main" / name / "_delta_log"
    action: dict[str, Any] = {
        "minReaderVersion": 3 if readers else 1,
        "minWriterVersion": 7,
        "writerFeatures": features,
    }
    if readers:
        action["readerFeatures"] = features
    (log / f"{1:020d}.json").write_text(json.dumps({"protocol": action}) + "\n")


def test_a_feature_that_cannot_be_read_or_written_is_named_with_the_engine_that_could(make_project, engine):
    project = make_project(
        {
            "models/sources.yml": "version: 2\nsources: [{name: s, schema: main, tables: [{name: strange}]}]",
            "models/reads.sql": "{{ config(materialized='table') }} select * from {{ source('s', 'strange') }}",
            "models/appends.sql": "{{ config(materialized='incremental', incremental_strategy='append') }} select 1 as id",
            "models/whole.sql": "{{ config(materialized='table') }} select 1 as id",
        },
        engine=engine,
    )
    with duckrun.connect(project.lake) as session:
        for name in ("strange", "appends", "whole"):
            session.execute(name, duckrun.WriteSpec("append"), duckrun.SQL("select 1::int as id"))
    with_protocol(project.lake, "strange", ["quantumLeap"], readers=True)
    with_protocol(project.lake, "appends", ["warpDrive"], readers=False)
    with_protocol(project.lake, "whole", ["rowTracking", "domainMetadata"], readers=False)
    before = everything(project.lake)
    result = project.dbt("run")
    assert result["reads"]["status"] == "error"
    assert "main.strange" in result.message("reads") and "quantumLeap" in result.message("reads")
    assert "neither engine" in result.message("reads")
    message = result.message("appends")
    assert "main.appends" in message and "warpDrive" in message
    after = {key: held for key, held in everything(project.lake).items() if "whole" not in key}
    if engine == "spark":  # it writes the rows before it looks: a file that no commit names
        after = {key: held for key, held in after.items() if key in before or not key.startswith("main/appends/part-")}
    assert after == {key: held for key, held in before.items() if "whole" not in key}
    assert result["whole"]["status"] == "success" and project.table("main.whole").version() == 2
