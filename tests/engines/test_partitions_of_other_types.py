"""Partition columns that change: every reader reads the table at once, and its older versions. Budget: a minute, and a minute on Spark."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import SQL, RestoreSpec, StorageError, UnsupportedFeature, WriteSpec
from duckrun.session import Session
from tests.lake import by_another, rows_of

pytestmark = pytest.mark.formats
CHANGES = {
    "date to timestamp": ("date '2024-01-02'", "timestamp '2024-01-02 03:04:05'"),
    "timestamp to date": ("timestamp '2024-01-02 03:04:05'", "date '2024-01-02'"),
    "text to number": ("'abc'", "7"),
    "number to date": ("7", "date '2024-01-02'"),
    "decimal to number": ("cast(1.25 as decimal(9,2))", "7"),
}


def _rows(session: Session) -> list[tuple[Any, ...]]:
    """The rows, once the session and another program agree on them."""
    rows = rows_of(session.sql("from t"))
    assert rows == rows_of(by_another(session, "t"))
    return rows


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", ["create or replace", "overwrite"])
def test_a_partition_column_of_another_type_is_read_at_once(session: Session, change: str, way: str) -> None:
    before, after = CHANGES[change]
    session.sql(f"create table t partitioned by (p) as select 1 as k, {before} as p")
    old = rows_of(session.sql("from t"))
    first = session.table("t").snapshot().version
    if way == "overwrite":
        session.execute("t", WriteSpec("overwrite"), SQL(f"select 1 as k, {after} as p"))
    else:
        session.sql(f"create or replace table t partitioned by (p) as select 1 as k, {after} as p")
    new = _rows(session)
    session.sql(f"insert into t select 2, {after}")
    assert [row[0] for row in _rows(session)] == [1, 2]
    assert rows_of(session.sql(f"from t at (version => {first})")) == old
    if session.lake.has_catalog and way == "create or replace":
        return  # another table of that name, whose versions are its own
    session.execute("t", RestoreSpec(first))
    assert _rows(session) == old
    session.execute("t", WriteSpec("overwrite"), SQL(f"select 1 as k, {after} as p"))
    assert _rows(session) == new


@pytest.mark.only_format("delta", "it is about the log")
def test_partitions_that_go_and_come_back_in_another_type_are_read_at_once(session: Session) -> None:
    for layout, value in ((("p",), "'a'"), ((), "'b'"), (("p",), "3"), (("k",), "4"), (("p",), "date '2024-01-01'")):
        session.execute("t", WriteSpec("overwrite", partition_by=layout), SQL(f"select 1 as k, 5 as x, {value} as p"))
        assert len(_rows(session)) == 1


@pytest.mark.only_format("delta", "it is about the log")
@pytest.mark.parametrize(
    ("value", "before", "after"),
    [("date '2024-01-02'", "date", "timestamp"), ("1.5", "decimal(5,2)", "decimal(9,3)"), ("7", "int", "bigint")],
)
def test_a_partition_column_that_is_widened_stays_readable(duck: Session, value: str, before: str, after: str) -> None:
    duck.sql(f"create table t partitioned by (p) as select 1 as k, cast({value} as {before}) as p")
    duck.sql("alter table t set tblproperties ('delta.enableTypeWidening' = 'true')")
    duck.sql(f"alter table t alter column p type {after}; insert into t select 2, cast({value} as {after})")
    expected = rows_of(duck.sql(f"select n as k, cast({value} as {after}) as p from (values (1), (2)) as v(n)"))
    assert rows_of(duck.sql("from t")) == expected


@pytest.mark.spark
@pytest.mark.only_format("delta", "it is about the log")
@pytest.mark.parametrize("feature", ["delta.enableRowTracking", "delta.enableInCommitTimestamps"])
def test_a_partition_column_that_spark_widens_is_read_at_once(root: Path, spark: Any, feature: str) -> None:
    with duckrun.connect(root, engine="spark", spark=spark) as session:
        session.sql("create table t partitioned by (p) as select 1 as k, cast(7 as smallint) as p")
        session.sql(f"alter table t set tblproperties ('delta.enableTypeWidening' = 'true', '{feature}' = 'true')")
        for kind, number in (("int", 70_000), ("bigint", 7_000_000_000)):
            session.sql(f"alter table t alter column p type {kind}")
            assert (
                session.table("t").snapshot().schema.field("p").type
                == session.sql(f"select 1::{kind} as p").schema.field("p").type
            )
            session.sql(f"insert into t select 2, {number}")
            expected = rows_of(session.sql("from t"))
            assert (2, number) in expected and (1, 7) in expected
            with duckrun.connect(root) as fresh:
                assert rows_of(fresh.sql("from t")) == expected
                fresh.sql(f"insert into t select 3, {number}")
                assert rows_of(fresh.sql(f"select k from t where p = {number}")) == [(2,), (3,)]
            assert rows_of(spark.read.format("delta").load(session.ref("t").location).toArrow()) == sorted(
                [*expected, (3, number)]
            )


@pytest.mark.spark
@pytest.mark.only_format("delta", "it is about the log")
def test_a_partition_column_whose_texts_would_be_others_is_not_changed_by_spark(root: Path, spark: Any) -> None:
    with duckrun.connect(root, engine="spark", spark=spark) as session:
        session.sql("create table t partitioned by (p) as select 1 as k, cast(1.5 as decimal(5,2)) as p")
        session.sql(
            "alter table t set tblproperties ('delta.enableTypeWidening' = 'true', 'delta.enableRowTracking' = 'true')"
        )
        with pytest.raises(UnsupportedFeature, match=r"main\.t: .*partition column p.*engine: duckdb"):
            session.sql("alter table t alter column P type decimal(9,3)")
        assert rows_of(session.sql("from t")) == [(1, Decimal("1.50"))]
        with duckrun.connect(root) as duck:
            duck.sql("alter table t alter column p type decimal(9,3)")
        assert rows_of(session.sql("from t")) == [(1, Decimal("1.500"))]


@pytest.mark.spark
@pytest.mark.only_format("delta", "it is about the log")
def test_a_partition_column_that_spark_alone_changed_is_read_after_a_checkpoint(duck: Session, spark: Any) -> None:
    duck.sql("create table t partitioned by (p) as select 1 as k, date '2024-01-02' as p")
    location = duck.ref("t").location
    frame = spark.sql("select 1 as k, timestamp '2024-01-02 03:04:05Z' as p").write.format("delta").mode("overwrite")
    frame.option("overwriteSchema", "true").partitionBy("p").save(location)
    with duckrun.connect(duck.lake.root) as fresh:
        with pytest.raises(StorageError, match=r"2024-01-02.*timestamp.*checkpoint\(\)"):
            fresh.sql("from t").collect()
        fresh.table("t").checkpoint()
        assert rows_of(fresh.sql("select k, year(p) from t")) == [(1, 2024)]
