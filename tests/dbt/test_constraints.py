"""A contract's constraints are kept in the Delta table, so that every other writer is held to them too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

import duckrun
from duckrun import SchemaMismatch
from duckrun.values.tables import AddCheck, AlterSpec

MODEL = "{{{{ config(materialized='{kind}', on_schema_change='fail') }}}} select {id} as id, {amount} as amount, 'a' as grade"
CONTRACT = """
models:
  - name: held
    config: {contract: {enforced: true}}
    constraints: [{type: check, name: graded, expression: "grade in ('a', 'b') and length(grade) < 2"}]
    columns:
      - {name: id, data_type: int, constraints: [{type: not_null}]}
      - {name: amount, data_type: int, constraints: [{type: check, name: positive, expression: amount > 0}]}
      - {name: grade, data_type: varchar, constraints: [{type: check, name: plain, expression: "not regexp_matches(grade, '[0-9]')"}]}
"""
LOOSE = "models: [{name: held}]\n"


def model(kind: str = "table", id: str = "1", amount: str = "10") -> dict[str, str]:
    return {"models/held.sql": MODEL.format(kind=kind, id=id, amount=amount)}


def constraints(table: DeltaTable) -> tuple[set[str], set[str]]:
    checks = {key.removeprefix("delta.constraints.") for key in table.metadata().configuration if "constraints." in key}
    return {field.name for field in table.schema().fields if not field.nullable}, checks


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def project(request: pytest.FixtureRequest, make_project: Callable[..., Any]) -> Any:
    if request.param == "spark":
        request.getfixturevalue("spark")
    return make_project({**model(), "models/schema.yml": CONTRACT}, engine=request.param)


def test_other_writers_are_held_to_a_models_contract(project: Any) -> None:
    assert project.run("build").response("held")["rows_inserted"] == 1
    # regexp_matches is another function on each engine: this model's own writes are held to it
    assert constraints(project.table("main.held")) == ({"id"}, {"graded", "positive"})
    for id, amount, grade in ((None, 1, "a"), (2, -1, "a"), (2, 1, "c")):
        broken = pa.table(
            {"id": pa.array([id], pa.int32()), "amount": pa.array([amount], pa.int32()), "grade": [grade]}
        )
        with pytest.raises(DeltaError):
            write_deltalake(project.table("main.held"), broken, mode="append")
        with duckrun.connect(project.lake) as session, pytest.raises(SchemaMismatch, match="main.held"):
            session.execute("main.held", duckrun.WriteSpec("append"), broken)
    project.write({"models/held.sql": MODEL.format(kind="table", id="1", amount="10").replace("'a' as", "'1' as")})
    result = project.dbt("build")
    assert not result.success and "CHECK constraint failed" in result.message("held")
    assert project.rows("main.held") == [(1, 10, "a")] and project.version("main.held") == 0


def test_a_null_passes_a_check_and_incremental_runs_go_on(project: Any) -> None:
    project.write(model("incremental", amount="null::int"))
    project.run("build")
    project.write(model("incremental", id="2"))
    project.run("build")
    assert project.rows("main.held") == [(1, None, "a"), (2, 10, "a")]
    project.write(model("incremental", id="null::int"))
    assert "NOT NULL" in project.dbt("build").message("held")
    assert constraints(project.table("main.held")) == ({"id"}, {"graded", "positive"})


def test_a_contract_that_asks_for_less_is_followed_and_what_others_added_stays(project: Any) -> None:
    project.run("build")
    with duckrun.connect(project.lake) as session:
        session.execute("main.held", AlterSpec((AddCheck("small", "amount < 100"),)))
    project.write({**model(id="null::int", amount="-10"), "models/schema.yml": LOOSE})
    project.run("build")
    assert constraints(project.table("main.held")) == (set(), {"small"})
    assert project.rows("main.held") == [(None, -10, "a")]


@pytest.mark.spark
def test_spark_holds_its_writers_to_the_contract_of_a_model_on_duckdb(make_project: Any, spark: Any) -> None:
    project = make_project({**model(), "models/schema.yml": CONTRACT})
    project.run("build")
    target = f"delta.`{project.lake}/main/held`"
    for values in ("(null, 1, 'a')", "(2, -1, 'a')", "(2, 1, 'c')"):
        with pytest.raises(Exception, match="DELTA_NOT_NULL_CONSTRAINT_VIOLATED|DELTA_VIOLATE_CONSTRAINT"):
            spark.sql(f"INSERT INTO {target} VALUES {values}")
    spark.sql(f"INSERT INTO {target} VALUES (2, null, 'b')")
    assert project.rows("main.held") == [(1, 10, "a"), (2, None, "b")]
