"""Columns by any name: made, changed, merged and read on both engines, and by another program."""

from __future__ import annotations

import random
from datetime import date

import pyarrow as pa
import pytest

import duckrun
from duckrun import MergeSpec, WriteSpec
from duckrun.errors import SchemaMismatch
from duckrun.session import Session
from duckrun.sql.quoting import quote_identifier as quoted
from tests.drawing import seed
from tests.lake import by_another

pytestmark = pytest.mark.formats

# The first ten Spark refuses in a definition of its own. A backslash ends the names of deltalake's predicates, which are not asked.
LETTERS = [*" ,;{}()\n\t=", *".`\"'%#/-$?:&[<é日😀"]
WORDS = ["select", "order", "table", "1st", "2024", "target", "source", "null", "Ünï cödé", " ", "a.b.c", "x y.z"]


def names(count: int) -> list[str]:
    """Names of a table; each letter is in one at least over a few runs."""
    drawn = random.Random(seed())
    made = ["".join(drawn.choices([*LETTERS, "a", "B", "3"], k=drawn.randint(1, 8))) for _ in range(count)]
    return list({name.lower(): name for name in [*made, *drawn.sample(WORDS, 3), "a b", "a.b", "a,b"]}.values())


def test_columns_with_odd_names_are_written_by_sql_frames_and_merges(session: Session) -> None:
    columns = names(4)
    values = dict(zip(columns, range(10, 10 + len(columns)), strict=True))
    listed = ", ".join(f"{value} as {quoted(name)}" for name, value in values.items())
    session.sql(f"create table t as select 1 as id, {listed}", dialect="duckdb")
    session.register("rows", pa.table({"id": [2], **{name: [value + 100] for name, value in values.items()}}))
    session.sql("insert into t select * from rows")
    changed = ", ".join(f"{quoted(name)} = {quoted(name)} + 1" for name in columns)
    known = " and ".join(f"{quoted(name)} = {value}" for name, value in values.items())
    assert session.sql(f"update t set {changed} where {known}", dialect="duckdb").rows_updated == 1
    first, last = quoted(columns[0]), quoted(columns[-1])
    session.sql(
        f"merge into t as target using (select 3 as id, {listed}) as source on target.id = source.id and target.{first} = source.{first} "
        f"when matched then delete when not matched then insert *",
        dialect="duckdb",
    )
    session.sql(f"delete from t where {last} > 100", dialect="duckdb")
    expected = [{"id": 1, **{name: value + 1 for name, value in values.items()}}, {"id": 3, **values}]
    assert (
        sorted(session.sql(f"select * from t where {last} > 0", dialect="duckdb").collect(), key=lambda r: r["id"])
        == expected
    )
    found = by_another(session, "t")
    assert found.column_names == ["id", *columns]
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == expected
    session.sql(f"select 4 as id, {listed}", dialect="duckdb").write.mode("overwrite").saveAsTable("t")
    assert session.table("t").toDF().collect() == [{"id": 4, **values}]


def test_a_field_with_a_dot_in_its_name_is_looked_for_by_it(session: Session) -> None:
    session.sql(
        "create table t as select id, {'a.b': id, 'c': [{'d.e': id}]} as s from unnest([1, 2, 3]) as _(id)",
        dialect="duckdb",
    )
    assert session.sql('select id from t where s."a.b" = 2', dialect="duckdb").collect() == [{"id": 2}]
    session.sql("""update t set id = 20 where s."a.b" = 2 and s.c[1]."d.e" = 2""", dialect="duckdb")
    session.sql("""delete from t where s."a.b" >= 3""", dialect="duckdb")
    session.sql("insert into t values (5, named_struct('a.b', 5, 'c', array(named_struct('d.e', 5))))", dialect="spark")
    found = session.sql('select id from t where s."a.b" > 1 or s is null order by id', dialect="duckdb")
    assert found.collect() == [{"id": 5}, {"id": 20}]


@pytest.mark.spark
def test_a_frame_of_spark_s_with_odd_names_has_dates_partitions_and_comments(root, spark):
    with duckrun.connect(root, engine="spark", spark=spark) as s:
        rows = spark.sql("select date'2026-01-01' as `d.e`, 1 as `a.b`, 'x' as `q``r`")
        spec = WriteSpec("error", partition_by=("d.e",), column_comments={"D.e": "day", "q`r": "kind"})
        assert s.execute("main.t", spec, rows).rows_inserted == 1
        s.execute("main.t", MergeSpec(("a.b",)), rows)
        expected = [{"d.e": date(2026, 1, 1), "a.b": 1, "q`r": "x"}]
        assert s.table("main.t").toDF().collect() == expected
        comments = {f.name: (f.metadata or {}).get(b"comment") for f in s.snapshot("main.t").schema}
        assert comments == {"d.e": b"day", "a.b": None, "q`r": b"kind"}
    with duckrun.connect(root) as s:
        assert s.table("main.t").toDF().collect() == expected


@pytest.mark.spark
def test_spark_adds_no_column_with_a_space_to_a_table_and_says_so(root, spark):
    with duckrun.connect(root, engine="spark", spark=spark) as session:
        session.sql("create table t as select 1 as id")
        with pytest.raises(SchemaMismatch, match=r"main\.t.*select … as ….*engine: duckdb.*Nothing was written"):
            session.sql('select 2 as id, 3 as "a b"', dialect="duckdb").write.mode("append").option(
                "mergeSchema", "true"
            ).saveAsTable("t")
        assert session.table("t").toDF().collect() == [{"id": 1}]
