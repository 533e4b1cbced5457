"""A statement that changes rows does to a lake table of either format what it does natively: on DuckDB's tables, and on Delta tables by Spark SQL.

Hypothesis makes statements and data, from DUCKRUN_TEST_SEED; no new round starts after DUCKRUN_TEST_BUDGET seconds.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom
from typing import Any

import duckdb
import hypothesis
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings, strategies as st

import duckrun
from duckrun import WriteSpec
from duckrun.session import Session
from duckrun.values.choices import EngineName
from duckrun.values.lake_format import FormatName
from tests.differential.statements import NOT_IN_SPARK, Statement, rows, statements
from tests.drawing import rounds
from tests.lake import rows_of

pytestmark = pytest.mark.differential

SEED = int(os.environ.get("DUCKRUN_TEST_SEED") or SystemRandom().randrange(2**31))
BUDGET = float(os.environ.get("DUCKRUN_TEST_BUDGET") or 180) / 3
SOAK = bool(os.environ.get("DUCKRUN_SOAK"))


def compared(
    at_most: int,
    session: Session,
    native: Callable[[pa.Table, pa.Table], Callable[[str], pa.Table]],
    allowed: Any,
    least: float,
    **options: Any,
) -> int:
    """Run rounds of one to four statements both ways; the number of statements compared.

    After the budget no round begins, unless ``least`` statements or fewer were compared.
    """
    deadline, done = time.monotonic() + BUDGET, 0

    @hypothesis.seed(SEED)
    @settings(max_examples=at_most, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @hypothesis.given(target=rows(), source=rows(unique=True), batch=st.lists(allowed, min_size=1, max_size=4))
    def run(target: pa.Table, source: pa.Table, batch: list[Statement]) -> None:
        nonlocal done
        if done > least and time.monotonic() > deadline:
            return
        session.execute("main.t", WriteSpec("overwrite"), target)
        session.execute("main.s", WriteSpec("overwrite"), source)
        natively = native(target, source)
        for statement in batch:
            expected = natively(statement.sql)
            session.sql(statement.sql.format(t="main.t", s="main.s"), **options)
            assert rows_of(session.sql("select * from main.t", **options)) == rows_of(expected), statement.sql
            done += 1

    run()
    return done


def on_duckdb(target: pa.Table, source: pa.Table) -> Callable[[str], pa.Table]:
    """DuckDB's own tables, in an instance of their own."""
    connection = duckdb.connect()
    for name, values in (("t", target), ("s", source)):
        connection.register("given", values)
        connection.execute(f"create table {name} as select * from given")

    def natively(sql: str) -> pa.Table:
        connection.execute(sql.format(t="t", s="s"))
        return connection.sql("select * from t").to_arrow_table()

    return natively


@pytest.mark.parametrize(("format", "most", "inline"), [("delta", 110, 0), ("ducklake", 20, 0), ("ducklake", 20, 5)])
def test_as_on_tables_of_duckdb(tmp_path: Path, format: FormatName, most: int, inline: int) -> None:
    with duckrun.connect(tmp_path / "lake", format=format, inline_rows=inline or None) as session:
        assert (
            compared(rounds(most) * (20 if SOAK else 1), session, on_duckdb, statements, rounds(most) / 3)
            > rounds(most) / 3
        )


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["spark", "duckdb"])
def test_as_by_spark_sql_on_delta_tables(tmp_path: Path, spark: Any, engine: EngineName) -> None:
    folders = {name: tmp_path / "native" / name for name in "ts"}
    names = {name: f"delta.`{folder}`" for name, folder in folders.items()}

    def native(target: pa.Table, source: pa.Table) -> Callable[[str], pa.Table]:
        for name, values in (("t", target), ("s", source)):
            shutil.rmtree(folders[name], ignore_errors=True)
            spark.createDataFrame(values).write.format("delta").mode("overwrite").save(str(folders[name]))

        def natively(sql: str) -> pa.Table:
            spark.sql(sql.format(**names))
            return spark.sql(f"select * from {names['t']}").toArrow()

        return natively

    allowed = statements.filter(lambda statement: statement.kind not in NOT_IN_SPARK)
    with duckrun.connect(tmp_path / "lake", engine=engine, spark=spark) as session:
        assert compared(300 if SOAK else 10, session, native, allowed, 5, dialect="spark") > 5


@pytest.mark.spark
def test_spark_does_to_the_lake_what_duckdb_does_to_its_tables(tmp_path: Path, spark: Any) -> None:
    """The statements that Spark SQL does not have: UPDATE … FROM, DELETE … USING, subqueries."""
    allowed = statements.filter(lambda statement: statement.kind in NOT_IN_SPARK)
    with duckrun.connect(tmp_path / "lake", engine="spark", spark=spark) as session:
        assert compared(300 if SOAK else 8, session, on_duckdb, allowed, 5) > 5
