"""Spark's CHAR(n) and VARCHAR(n): the embedded engine refuses what Spark refuses, and reads what Spark reads. Budget: two minutes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import (
    SQL,
    DeleteInsertSpec,
    MergeSpec,
    ReadSpec,
    SchemaMismatch,
    UnsupportedFeature,
    UpdateSpec,
    WriteSpec,
)
from duckrun.formats.format import logs_of
from duckrun.session import Session
from tests.lake import rows_of

pytestmark = pytest.mark.only_format("delta", "Spark's types are Delta's")
COLUMNS = "id int, v varchar(3), k char(5), s struct<a: char(3), b: array<varchar(2)>>, m map<char(2), varchar(2)>"
ONE = "select 1 as id, 'abc' as v, 'a' as k, {'a': 'x', 'b': ['yy']} as s, map {'k': 'v'} as m"
READ = (1, "abc", "a    ", {"a": "x  ", "b": ["yy"]}, [("k ", "v")])
LONG = {
    "v": "'abcd'",
    "v with spaces": "'abc '",
    "k": "'abcdef'",
    "s": "{'a': 'xxxx', 'b': ['y']}",
    "an element": "{'a': 'x', 'b': ['y', 'yyy']}",
    "a key": "map {'kkk': 'v'}",
    "a value": "map {'k': 'vvv'}",
}
COLUMN = {"v with spaces": "v", "an element": "s", "a key": "m", "a value": "m"}


@pytest.fixture
def table(duck: Session) -> Session:
    """A table t with one row."""
    duck.sql(f"create table t ({COLUMNS}) using delta", dialect="spark")
    duck.execute("t", WriteSpec("append"), SQL(ONE))
    return duck


def test_char_is_read_with_its_spaces_and_stored_without(table: Session) -> None:
    assert rows_of(table.sql("from t")) == [READ]
    assert rows_of(table.sql("select length(k), k = 'a    ', s.a from t where k < 'b'")) == [(5, True, "x  ")]
    assert rows_of(table.sql("from t where k = 'a    '")) == [READ]
    with duckrun.connect(table.lake.root) as other:
        assert rows_of(other.table("t").toDF()) == [READ]


@pytest.mark.parametrize("case", LONG)
@pytest.mark.parametrize("mode", ["insert", "append", "replace", "overwrite", "merge", "delete+insert", "update"])
def test_a_longer_value_is_refused_by_every_write(table: Session, mode: str, case: str) -> None:
    column, value = COLUMN.get(case, case), LONG[case]
    row = SQL(f"select * replace ({value} as {column}) from ({ONE})")
    before = table.table("t").snapshot().version
    with pytest.raises(
        SchemaMismatch, match=rf"main\.t.*column {column} is (VAR)?CHAR\(\d\) and cannot hold the value"
    ):
        match mode:
            case "insert":
                table.sql(f"insert into t (id, {column}) values (2, {value})")
            case "append" | "overwrite":
                table.execute("t", WriteSpec(mode), row)
            case "replace":
                table.execute("t", WriteSpec("replace", predicate="id = 1"), row)
            case "merge":
                table.execute("t", MergeSpec(("id",)), row)
            case "delete+insert":
                table.execute("t", DeleteInsertSpec(("id",)), row)
            case "update":
                table.execute("t", UpdateSpec({column: value}, "id = 1"))
    assert table.table("t").snapshot().version == before and rows_of(table.sql("from t")) == [READ]


def test_a_key_of_char_meets_its_rows_and_clauses_see_the_source_s_own(table: Session) -> None:
    table.sql(
        "merge into t using (select 'a' as k, 'z' as v) as s on t.k = s.k when matched and length(s.k) = 1 then update set v = s.v"
    )
    assert rows_of(table.sql("select v, k from t")) == [("z", "a    ")]
    table.sql("delete from t where k = 'a    '")
    assert rows_of(table.sql("from t")) == []


def test_the_limits_stay_in_an_overwrite_and_go_with_the_definition(table: Session) -> None:
    table.execute("t", WriteSpec("overwrite"), SQL("select 'abc' as v, 'b' as k, 1 as x"))
    assert rows_of(table.sql("from t")) == [("abc", "b    ", 1)]
    with pytest.raises(SchemaMismatch, match=r"VARCHAR\(3\)"):
        table.sql("insert into t values ('long', 'b', 1)")
    table.sql("alter table t alter column v type varchar(4)", dialect="spark")
    table.sql("insert into t values ('long', 'b', 1)")
    with pytest.raises(SchemaMismatch, match="cannot become"):
        table.sql("alter table t alter column v type varchar(2)", dialect="spark")
    table.sql("create or replace table t as select 'longer' as v, 'b' as k")
    assert rows_of(table.sql("from t")) == [("longer", "b")]


def test_a_partition_of_char_is_found_and_replaced(duck: Session) -> None:
    duck.sql("create table t (id int, k char(3)) using delta partitioned by (k)", dialect="spark")
    duck.sql("insert into t values (1, 'a'), (2, 'b')")
    assert rows_of(duck.sql("from t where k = 'a  '")) == [(1, "a  ")]
    duck.execute("t", WriteSpec("replace"), SQL("select 3 as id, 'b' as k"))
    duck.sql("delete from t where k = 'a  '")
    assert rows_of(duck.sql("from t")) == [(3, "b  ")]


@pytest.mark.spark
@pytest.mark.parametrize("predicate", ["k = 'a'", "k = 'a    '", "k <> 'a'", "k > 'a '", "k in ('bb   ')"])
@pytest.mark.parametrize("clause", ["", "partitioned by (k)"])
def test_a_scan_compares_char_with_its_spaces(duck: Session, clause: str, predicate: str) -> None:
    duck.sql(f"create table t (k char(5), v int) using delta {clause}", dialect="spark")
    for row in ("'a', 1", "'bb', 2", "null, 3"):
        duck.sql(f"insert into t values ({row})")
    parts = duck.table("t").snapshot().scan(ReadSpec(predicate=predicate)).split(2)
    found = [row for part in parts for row in rows_of(duck.open(part))]
    assert sorted(found) == sorted(rows_of(duck.sql(f"from t where {predicate}")))


def test_a_dataset_of_files_without_the_spaces_is_refused(table: Session) -> None:
    with pytest.raises(UnsupportedFeature, match=r"main\.t .* values of CHAR in column k, s, m"):
        logs_of(table.lake.format).arrow_dataset(table.snapshot("t"))


def test_spark_and_the_embedded_engine_write_and_read_the_same(duck: Session, spark: Any) -> None:
    location = duck.ref("t").location
    at = f"delta.`{location}`"
    spark.sql(f"create table {at} ({COLUMNS}) using delta")
    spark.sql(f"insert into {at} values (1, 'abc', 'a', named_struct('a', 'x', 'b', array('yy')), map('k', 'v'))")
    assert rows_of(duck.sql("from t")) == [READ]
    for case, value in LONG.items():
        column = COLUMN.get(case, case)
        duck_text = f"insert into t (id, {column}) values (2, {value})"
        spark_value = {"s": "named_struct('a', 'xxxx', 'b', array('y'))", "an element": "named_struct('a', 'x', 'b', array('y', 'yyy'))",
                       "a key": "map('kkk', 'v')", "a value": "map('k', 'vvv')"}.get(case, value)  # fmt: skip
        with pytest.raises(Exception, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT"):
            spark.sql(f"insert into {at} (id, {column}) values (2, {spark_value})")
        with pytest.raises(SchemaMismatch, match="CHAR"):
            duck.sql(duck_text)
    duck.execute("t", WriteSpec("append"), SQL(ONE.replace("1 as id", "2 as id")))
    duck.sql("update t set k = 'u' where id = 1")
    with duckrun.connect(duck.lake.root, engine="spark", spark=spark) as other:
        assert rows_of(other.sql("select id, v, k, s, m, length(k) as n from t")) == rows_of(
            duck.sql("select id, v, k, s, m, length(k) as n from t")
        )
        with pytest.raises(SchemaMismatch, match=r"main\.t.*a row breaks a constraint: .*length"):
            other.sql("insert into t (id, v) values (3, 'long')")
        other.execute("t", WriteSpec("overwrite"), SQL("select 3 as id, 'abc' as v, 'q' as k"))
        with pytest.raises(SchemaMismatch, match=r"main\.t.*a row breaks a constraint: .*length"):
            other.sql("insert into t (id, v) values (3, 'long')")
    assert rows_of(duck.sql("select k from t")) == [("q    ",)]


def test_keys_of_char_meet_values_without_their_spaces(session: Session) -> None:
    """A merge, delete+insert and SQL's MERGE by a key of CHAR(5), in a table of more files than are looked at without bounds."""
    session.sql("create table c (k char(5), v int) using delta", dialect="spark")
    for number, key in enumerate(["ab", "cd", "ef", "gh", "ij", "kl"]):
        session.execute("main.c", WriteSpec("append"), pa.table({"k": [key], "v": pa.array([number], "int32")}))
    session.execute("main.c", MergeSpec(("k",)), pa.table({"k": ["ab", "zz"], "v": pa.array([10, 11], "int32")}))
    session.execute("main.c", DeleteInsertSpec(("k",)), pa.table({"k": ["cd"], "v": pa.array([12], "int32")}))
    session.sql("merge into c using (select 'ef' as k, 13 as v) s on c.k = s.k when matched then update set v = s.v")
    found = session.sql("select k, v from c order by k").toArrow().to_pylist()
    expected = {"ab": 10, "cd": 12, "ef": 13, "gh": 3, "ij": 4, "kl": 5, "zz": 11}
    assert [(row["k"], row["v"]) for row in found] == [(key.ljust(5), v) for key, v in expected.items()]
