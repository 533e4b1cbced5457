"""Statements of the Spark engine have settings that no other statement of the user's Spark session has."""

from __future__ import annotations

import gc
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import AppTransaction, MergeSpec, Session, UpdateSpec, WriteSpec
from tests import races

pytestmark = pytest.mark.spark
CONNECT = "DUCKRUN_TEST_SPARK_REMOTE" in os.environ
APP = AppTransaction("nightly", 3)


@pytest.fixture
def on_spark(root: Path, spark: Any) -> Iterator[Session]:
    with duckrun.connect(root, engine="spark", spark=spark) as session:
        yield session


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@contextmanager
def beside(root: Path, spark: Any, plain: Callable[[], object]) -> Iterator[None]:
    """While a statement of the block computes ``held(n)``, another thread runs one of plain Spark."""
    began, went_on = root / "began", root / "went on"

    def held(n: int) -> int:
        began.touch()
        until(went_on.exists)
        return n

    def other() -> None:
        assert until(began.exists)
        try:
            plain()
        finally:
            went_on.touch()

    spark.udf.register("held", held, "bigint")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(other)
        yield
        running.result()
    for flag in (began, went_on):
        flag.unlink()


def actions(location: Path, version: int) -> dict[str, Any]:
    lines = (location / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    return {key: value for line in lines for key, value in json.loads(line).items()}


def test_a_plain_append_beside_a_statement_has_neither_its_note_nor_its_application_id(
    on_spark: Session, root: Path, spark: Any
) -> None:
    held, other = root / "main" / "held", root / "main" / "other"
    races.make(held)
    row = spark.createDataFrame([(4, "w", 40, "c")], "id long, v string, n long, p string")
    on_spark.execute("other", WriteSpec("append", app=APP), row)  # Delta skips this id from here on

    def plain() -> None:
        row.write.format("delta").mode("append").save(str(other))

    with beside(root, spark, plain):
        change = UpdateSpec({"n": "held(n) + 1"}, "id = 2", dialect="spark", app=APP)
        assert on_spark.execute("held", change).version == 2
    assert "txn" in actions(held, 2) and "duckrun" in actions(held, 2)["commitInfo"]["userMetadata"]
    assert races.held(other) == {(4, "w", 40, "c"): 2}, "Delta skipped the append"
    assert "txn" not in actions(other, 1) and "userMetadata" not in actions(other, 1)["commitInfo"]


@pytest.mark.parametrize("value", ["held(n) + 1", "held(n) div 0", "broken(held(n))"])
def test_a_plain_statement_is_not_taken_for_ours(on_spark: Session, root: Path, spark: Any, value: str) -> None:
    location = root / "main" / "t"
    races.make(location)

    def broken(n: int) -> int:
        os._exit(1)

    def plain() -> None:
        spark.sql(f"update delta.`{location}` set n = n + 1000 where id = 2")

    spark.udf.register("broken", broken, "bigint")
    with beside(root, spark, plain):
        if value == "held(n) + 1":
            assert on_spark.sql(f"update t set n = {value} where id = 2", dialect="spark").version == 3
        else:
            with pytest.raises(Exception, match="ZERO|EOF|crashed"):
                on_spark.sql(f"update t set n = {value}", dialect="spark")
    rows = {row["id"]: row["n"] for row in on_spark.sql("from t").collect()}
    assert rows == {1: 10, 2: 1021 if value == "held(n) + 1" else 1020, 3: 30}


def test_statements_on_two_tables_run_at_the_same_time(on_spark: Session, root: Path, spark: Any) -> None:
    def meets(name: str, n: int) -> int:
        other = {"a": "b", "b": "a"}[name]
        (root / f"{name} began").touch()
        return int(until((root / f"{other} began").exists))

    spark.udf.register("meets", meets, "bigint")
    for table in "ab":
        races.make(root / "main" / table)
    with ThreadPoolExecutor(2) as pool:
        texts = [f"update {table} set n = meets('{table}', n) where id = 2" for table in "ab"]
        list(pool.map(lambda text: on_spark.sql(text, dialect="spark"), texts))
    for table in "ab":
        assert on_spark.sql(f"select n from {table} where id = 2").collect()[0]["n"] == 1, "one waited for the other"


def test_a_statement_sees_what_the_user_has_just_set(on_spark: Session, root: Path, spark: Any) -> None:
    location = root / "main" / "t"
    races.make(location, partitioned=False)
    zone, database = spark.conf.get("spark.sql.session.timeZone"), spark.catalog.currentDatabase()

    def stored(value: str) -> Any:
        on_spark.sql(f"update t set v = cast({value} as string) where id = 2", dialect="spark")
        return on_spark.sql("select v from t where id = 2").collect()[0]["v"]

    try:
        for name, hour in (("Asia/Tokyo", "09"), ("UTC", "00")):
            spark.conf.set("spark.sql.session.timeZone", name)
            assert stored("timestamp'2020-01-01 00:00:00Z'") == f"2020-01-01 {hour}:00:00"
            spark.udf.register("named", lambda n, name=name: name, "string")
            assert stored("named(n)") == name
            spark.sql(f"create or replace temporary view recent as select 2L as id, '{name}!' as v, 20L as n, 'a' as p")
            on_spark.execute("t", MergeSpec(("id",)), spark.table("recent"))
            assert stored("v") == f"{name}!"
            spark.sql(f"create database if not exists own_{hour}")
            spark.catalog.setCurrentDatabase(f"own_{hour}")
            assert stored("current_database()") == f"own_{hour}"
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.catalog.setCurrentDatabase(database)
        spark.catalog.dropTempView("recent")
        for hour in ("09", "00"):
            spark.sql(f"drop database if exists own_{hour}")


def state(spark: Any) -> dict[str, Any]:
    """What a statement leaves as it was: settings, views, and the sessions of this thread and of the process."""
    seen = {"conf": dict(spark.conf.getAll), "views": [each.name for each in spark.catalog.listTables()]}
    if not CONNECT:
        from pyspark import RDD

        of_jvm = type(spark)._get_j_spark_session_class(spark._jvm)
        active, default = of_jvm.getActiveSession(), of_jvm.getDefaultSession()
        seen["active"] = active.get().sessionUUID() if active.isDefined() else None
        seen["default"] = default.get().sessionUUID()
        seen["python"] = (type(spark)._instantiatedSession, type(spark)._activeSession, RDD.toDF)
    return seen


def test_a_statement_leaves_the_session_as_it_was(on_spark: Session, root: Path, spark: Any) -> None:
    races.make(root / "main" / "t")
    rows = spark.createDataFrame([(2, "y", 21, "a")], "id long, v string, n long, p string")
    before = state(spark)
    on_spark.execute("t", UpdateSpec({"n": "n + 1"}, "id = 2", app=APP))
    assert state(spark) == before
    with pytest.raises(duckrun.InvalidConfig, match="ZERO"):
        on_spark.sql("update t set n = n div 0", dialect="spark")
    assert state(spark) == before
    on_spark.execute("t", WriteSpec("replace", predicate="id = 2", merge_mode="copy_on_write"), rows)
    assert state(spark) == before
    with pytest.raises(duckrun.DuckrunError, match="partition|outside"):
        on_spark.execute("t", WriteSpec("replace", predicate="id = 3", merge_mode="copy_on_write"), rows)
    assert state(spark) == before


def test_copies_of_a_session_are_released(on_spark: Session, root: Path, spark: Any) -> None:
    races.make(root / "main" / "t")
    on_spark.sql("update t set n = n + 1")
    threads = threading.active_count()
    if not CONNECT:
        listeners = spark._jsc.sc().listenerBus().listeners()
        before = listeners.size()
        for _ in range(5):
            on_spark.sql("update t set n = n + 1")
        gc.collect()
        spark._jvm.System.gc()
        assert until(lambda: listeners.size() <= before)
        return
    from pyspark.sql import SparkSession

    service = SparkSession._instantiatedSession._jvm.org.apache.spark.sql.connect.service
    manager = getattr(getattr(service, "SparkConnectService$"), "MODULE$").sessionManager()
    before = manager.listActiveSessions().size()
    for _ in range(5):
        on_spark.sql("update t set n = n + 1")
    assert manager.listActiveSessions().size() == before
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    "change", ["update t set n = slow(n)", "create table u as select slow(n) as n from t", "select sum(slow(n)) from t"]
)
def test_another_thread_stops_a_statement_by_its_tag(on_spark: Session, root: Path, spark: Any, change: str) -> None:
    """dbt cancels the statements of its other threads when it is interrupted."""
    began = root / "began"

    def slow(n: int) -> int:
        began.touch()
        time.sleep(60)
        return n

    on_spark.sql("create table t as select 1 as n")
    spark.udf.register("slow", slow, "bigint")
    engine = on_spark.engine

    def run() -> None:
        with engine.tagged("duckrun-test"):
            on_spark.sql(change).collect()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        assert until(began.exists)
        start = time.monotonic()
        engine.interrupt("duckrun-test")
        with pytest.raises(Exception, match=r"(?i)cancel|interrupt"):
            running.result()
    assert time.monotonic() - start < 30
    assert [str(table) for table in on_spark.tables()] == ["main.t"] and on_spark.table("t").history()[0][
        "version"
    ] == 0
    with engine.tagged("duckrun-test"):
        assert on_spark.sql("select n from t").toArrow().to_pylist() == [{"n": 1}]
