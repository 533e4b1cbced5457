"""s.read and frame.write: Spark's own names, with the same rows on both engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import duckrun
from duckrun import (
    CommitConflict,
    InvalidConfig,
    RowsOutsidePartition,
    SchemaMismatch,
    TableNotFound,
    UnsupportedFeature,
    VersionNotReadable,
    WriteSpec,
)
from duckrun.lake.lake import ViewDefinition
from duckrun.session import Session
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats

# What does not depend on the engine: Spark takes seconds for each of its commits.
once = pytest.mark.parametrize("engine", ["duckdb"])

ORDERS = pa.table({"id": [1, 2], "day": ["mon", "tue"]})
MORE = pa.table({"id": [3], "day": ["tue"]})


def frame(session: Session, table: pa.Table) -> duckrun.Frame:
    session.register("given", table)
    return session.sql("select * from given")


# -- reading


@pytest.mark.lacks_format("ducklake", TableNotFound, "its tables have no folders")
def test_a_table_is_read_by_name_at_a_version_or_at_a_path(session: Session, root: Path) -> None:
    session.execute("sales.orders", WriteSpec("error"), ORDERS)
    session.execute("sales.orders", WriteSpec("append"), MORE)
    assert rows_of(session.read.table("sales.orders")) == [(1, "mon"), (2, "tue"), (3, "tue")]
    assert session.read.option("versionAsOf", nth(0)).table("sales.orders").count() == 2
    assert session.read.format("delta").option("versionasof", "0").load(root / "sales" / "orders").count() == 2
    made = session.table("sales.orders").history()[1]["timestamp"]
    first = pd.Timestamp(made, unit="ms", tz="UTC").isoformat()
    assert session.read.format("delta").option("timestampAsOf", first).load(root / "sales/orders").count() == 2
    with pytest.raises(VersionNotReadable, match="0 to 1"):
        session.read.options(versionAsOf=7).table("sales.orders")
    with pytest.raises(TableNotFound, match=r"sales\.order\b.*sales\.orders"):
        session.read.table("sales.order")


def test_views_are_read_by_name_and_keep_no_versions(duck: Session) -> None:
    duck.execute("sales.orders", WriteSpec("error"), ORDERS)
    duck.lake.put_definition(
        duck.lake.parse("sales.mondays"), ViewDefinition("select id from orders where day = 'mon'")
    )
    assert rows_of(duck.read.table("sales.mondays")) == [(1,)]
    with pytest.raises(InvalidConfig, match=r"sales\.mondays is a view"):
        duck.read.option("versionAsOf", nth(0)).table("sales.mondays")
    with pytest.raises(InvalidConfig, match=r"sales\.mondays is a view"):
        duck.read.table("sales.orders").write.saveAsTable("sales.mondays")


def test_parquet_and_csv_files_are_read_as_spark_does(session: Session, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    pq.write_table(ORDERS, tmp_path / "parts" / "a.parquet")
    pq.write_table(MORE, tmp_path / "parts" / "b.parquet")
    assert rows_of(session.read.parquet(tmp_path / "parts")) == [(1, "mon"), (2, "tue"), (3, "tue")]
    (tmp_path / "orders.csv").write_text("id;day\n1;mon\n2;tue\n")
    path = tmp_path / "orders.csv"
    bare = session.read.format("csv").option("sep", ";").load(path)
    assert bare.columns == ["_c0", "_c1"]
    assert rows_of(bare) == [("1", "mon"), ("2", "tue"), ("id", "day")]
    typed = session.read.csv(path, header="true", inferSchema=True, sep=";")
    assert rows_of(typed) == [(1, "mon"), (2, "tue")]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda r: r.format("dleta"), "'dleta' is no format.*delta"),
        (lambda r: r.format("json"), "'json' is no format"),
        (lambda r: r.option("versionAs", 1).table("main.t"), "no option 'versionAs'.*versionAsOf"),
        (lambda r: r.option("header", True).load("x"), "Reading delta has no option 'header'"),
        (lambda r: r.option("versionAsOf", "one").table("main.t"), "whole number"),
        (lambda r: r.options(versionAsOf=1, timestampAsOf="2026-01-01").table("main.t"), "not both"),
        (lambda r: r.format("csv").table("main.t"), "read as delta"),
        (lambda r: r.csv("x.csv", header="maybe"), "true or false"),
    ],
)
def test_what_a_reader_does_not_know_is_refused_by_name(duck: Session, build: Any, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        build(duck.read)


@pytest.mark.only_format("delta", "a table's folder")
def test_the_folder_of_a_table_is_not_read_as_loose_files(duck: Session, root: Path) -> None:
    duck.execute("main.t", WriteSpec("error"), ORDERS)
    with pytest.raises(InvalidConfig, match="is a Delta table"):
        duck.read.parquet(root / "main" / "t")


# -- writing


def test_each_mode_does_what_it_does_in_spark(session: Session) -> None:
    rows, more = frame(session, ORDERS), None
    assert rows.write.saveAsTable("main.t").version == nth(0)
    with pytest.raises(CommitConflict, match=r"main\.t"):
        rows.write.mode("errorifexists").saveAsTable("main.t")
    assert rows.write.mode("ignore").saveAsTable("main.t").version == nth(0)
    more = session.read.table("main.t")
    assert more.write.mode("append").saveAsTable("main.t").rows_inserted == 2
    assert session.read.table("main.t").count() == 4
    rows.write.mode("overwrite").saveAsTable("main.t", partitionBy="day")
    assert session.table("main.t").snapshot().partition_columns == ("day",)
    assert rows_of(session.read.table("main.t")) == [(1, "mon"), (2, "tue")]


def test_overwriting_a_part_leaves_the_rest(session: Session) -> None:
    frame(session, ORDERS).write.partitionBy("day").saveAsTable("main.t")
    new = frame(session, MORE).write.mode("overwrite")
    new.option("replaceWhere", "day = 'tue'").saveAsTable("main.t")
    assert rows_of(session.read.table("main.t")) == [(1, "mon"), (3, "tue")]
    dynamic = frame(session, pa.table({"id": [8], "day": ["mon"]})).write.mode("overwrite")
    dynamic.option("partitionOverwriteMode", "dynamic").saveAsTable("main.t")
    assert rows_of(session.read.table("main.t")) == [(3, "tue"), (8, "mon")]
    with pytest.raises(RowsOutsidePartition):
        new.option("replaceWhere", "day = 'mon'").saveAsTable("main.t")


def test_new_columns_need_to_be_asked_for(session: Session) -> None:
    frame(session, ORDERS).write.saveAsTable("main.t")
    wide = frame(session, pa.table({"id": [3], "day": ["wed"], "note": ["new"]})).write.mode("append")
    with pytest.raises(SchemaMismatch, match="note"):
        wide.saveAsTable("main.t")
    wide.option("mergeSchema", "true").saveAsTable("main.t")
    assert rows_of(session.read.table("main.t")) == [(1, "mon", None), (2, "tue", None), (3, "wed", "new")]
    kept = frame(session, pa.table({"other": [1]})).write.mode("overwrite")
    with pytest.raises(SchemaMismatch):
        kept.option("overwriteSchema", False).saveAsTable("main.t")
    kept.option("overwriteSchema", True).saveAsTable("main.t")
    assert session.read.table("main.t").columns == ["other"]


@once
def test_a_repeated_application_transaction_writes_once(session: Session) -> None:
    write = frame(session, ORDERS).write.mode("append").option("txnAppId", "nightly").option("txnVersion", 1)
    assert not write.saveAsTable("main.t").replayed
    assert write.saveAsTable("main.t").replayed
    assert session.read.table("main.t").count() == 2


def test_insert_into_goes_by_position_and_keeps_the_schema(session: Session) -> None:
    frame(session, ORDERS).write.saveAsTable("main.t")
    swapped = frame(session, pa.table({"a": [7], "b": ["sun"]}))
    swapped.write.insertInto("main.t")
    assert rows_of(session.read.table("main.t")) == [(1, "mon"), (2, "tue"), (7, "sun")]
    swapped.write.insertInto("main.t", overwrite=True)
    assert rows_of(session.read.table("main.t")) == [(7, "sun")]
    with pytest.raises(SchemaMismatch, match=r"2 columns \(id, day\).*1 \(only\)"):
        frame(session, pa.table({"only": [1]})).write.insertInto("main.t")


def test_a_table_is_saved_to_a_path_and_table_properties_with_it(session: Session, tmp_path: Path) -> None:
    place = tmp_path / "else" / "where"
    frame(session, ORDERS).write.option("delta.appendOnly", "true").save(place)
    assert rows_of(session.read.format("delta").load(place)) == rows_of(ORDERS)
    assert duckrun.DeltaTable.forPath(session, place).detail()["properties"]["delta.appendOnly"] == "true"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda w: w.mode("upsert"), "'upsert' is no mode"),
        (lambda w: w.mode("overwite"), "Did you mean 'overwrite'"),
        (lambda w: w.format("parquet"), "delta, not 'parquet'"),
        (lambda w: w.option("replacewere", "a").saveAsTable("main.t"), "Did you mean 'replaceWhere'"),
        (lambda w: w.option("replaceWhere", "id = 1").saveAsTable("main.t"), "goes with mode 'overwrite'"),
        (lambda w: w.option("txnAppId", "a").saveAsTable("main.t"), "go together"),
        (lambda w: w.option("mergeSchema", 1).saveAsTable("main.t"), "true or false"),
        (lambda w: w.partitionBy("day").insertInto("main.t"), "leave out partitionBy"),
    ],
)
def test_what_a_writer_does_not_know_is_refused_before_anything_runs(
    duck: Session, build: Any, message: str, root: Path
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        build(frame(duck, ORDERS).write)
    assert not (root / "main").exists()


LOCAL: dict[str, Any] = {
    "pyarrow table": lambda: ORDERS,
    "pyarrow reader": lambda: ORDERS.to_reader(),
    "pyarrow dataset": lambda: ds.dataset(ORDERS),
    "pandas": lambda: ORDERS.to_pandas(),
    "polars": lambda: pl.from_arrow(ORDERS),
    "polars lazy": lambda: pl.from_arrow(ORDERS).lazy(),  # type: ignore[union-attr]
}


@pytest.mark.parametrize("source", LOCAL.values(), ids=LOCAL)
def test_any_local_table_is_a_source_of_writes_and_merges(duck: Session, source: Any) -> None:
    duck.execute("main.t", WriteSpec("error"), source())
    merged = duck.table("main.t").merge(source(), "target.id = source.id").whenMatchedUpdateAll().execute()
    assert merged.rows_updated == 2
    assert rows_of(duck.read.table("main.t")) == rows_of(ORDERS)


def test_any_local_table_can_be_registered(session: Session) -> None:
    for name, source in LOCAL.items():
        session.register(name.replace(" ", "_"), source())
        assert rows_of(session.sql(f"select * from {name.replace(' ', '_')}")) == rows_of(ORDERS), name


def test_a_duckdb_relation_is_a_source(session: Session) -> None:
    import duckdb

    relation = duckdb.sql("select 1 as id, 'mon' as day union all select 2, 'tue'")
    session.execute("main.t", WriteSpec("error"), relation)
    assert rows_of(session.read.table("main.t")) == rows_of(ORDERS)


def test_a_frame_that_no_session_made_says_how_to_write_it() -> None:
    with pytest.raises(InvalidConfig, match="session.execute"):
        _ = duckrun.Frame(None, "duckdb").write  # type: ignore[arg-type]


def test_a_spark_frame_needs_spark(duck: Session) -> None:
    fake = type("DataFrame", (), {"__module__": "pyspark.sql.classic.dataframe"})()
    with pytest.raises(InvalidConfig, match="this session has none"):
        duck.execute("main.t", WriteSpec("error"), fake)


def test_other_names_of_sparks_are_not_there(duck: Session) -> None:
    duck.execute("main.t", WriteSpec("error"), ORDERS)
    with pytest.raises(UnsupportedFeature, match="generate"):
        duck.table("main.t").generate("symlink_format_manifest")


def test_an_overwrite_that_merges_schemas_keeps_the_columns_that_the_data_lacks(session: Session) -> None:
    session.sql("select 1 as id, 'x' as gone").write.saveAsTable("main.t")
    rows = session.sql("select 2 as id, 3 as n").write.mode("overwrite")
    rows.option("mergeSchema", True).saveAsTable("main.t")
    assert rows_of(session.sql("select id, gone, n from main.t")) == [(2, None, 3)]
    assert session.table("main.t").snapshot().version == nth(1)
    rows.option("overwriteSchema", True).saveAsTable("main.t")
    assert session.sql("from main.t").columns == ["id", "n"]
    rows.saveAsTable("main.new")
    assert rows_of(session.sql("select id, n from main.new")) == [(2, 3)]
