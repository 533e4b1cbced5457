"""DeltaTable.create() and its like: tables made column by column, as delta-spark's builders make them."""

from __future__ import annotations

from datetime import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as PlainTable

import duckrun
from duckrun import (
    AddColumn,
    ColumnSpec,
    CommitConflict,
    DeltaTable,
    IdentityGenerator,
    InvalidConfig,
    ReadOnlyLake,
    SchemaMismatch,
    TableNotFound,
    UnsupportedFeature,
    WriteSpec,
)
from duckrun.session import Session
from duckrun.table_builder import DeltaTableBuilder
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats

once = pytest.mark.parametrize("engine", ["duckdb"])
ODD = "main.it's é %20"


def orders(builder: DeltaTableBuilder, name: str = "main.orders") -> DeltaTableBuilder:
    return (
        builder.tableName(name)
        .addColumn("id", "BIGINT", nullable=False, comment="it's the key")
        .addColumn("day", "DATE")
        .addColumn("at", pa.timestamp("us"))
        .addColumns(pa.schema([("lines", pa.list_(pa.struct([("a b", pa.int16())])))]))
        .partitionedBy("day")
        .comment("what was bought")
    )


@pytest.mark.only_format("delta", "compared in deltalake")
@pytest.mark.parametrize("name", ["main.orders", ODD])
def test_a_builder_makes_what_create_table_makes(session: Session, name: str) -> None:
    table = orders(DeltaTable.create(session).property("owner", "us"), name).execute()
    schema, kind = name.split(".")
    session.sql(
        f'create table {schema}."{kind} by sql" (id BIGINT not null comment "it\'s the key", day DATE, at TIMESTAMP_NTZ, '
        "lines ARRAY<STRUCT<`a b`: SMALLINT>>) using delta partitioned by (day) comment 'what was bought' "
        "tblproperties (owner = 'us')".replace(f'"{kind} by sql"', f"`{kind} by sql`"),
        dialect="spark",
    )
    made, said = PlainTable(table.ref.location), PlainTable(session.table(f"{name} by sql").ref.location)
    assert (made.version(), made.schema(), made.protocol()) == (0, said.schema(), said.protocol())
    one, other = made.metadata(), said.metadata()
    assert (one.partition_columns, one.configuration, one.description) == (
        other.partition_columns,
        other.configuration,
        other.description,
    )
    assert [entry["operation"] for entry in table.history()] == ["CREATE TABLE"]
    assert rows_of(table.toDF()) == []


def test_a_table_that_is_there_and_one_that_is_not(session: Session) -> None:
    with pytest.raises(TableNotFound, match=r"main\.orders"):
        orders(DeltaTable.replace(session)).execute()
    assert orders(DeltaTable.createIfNotExists(session)).execute().snapshot().version == nth(0)
    session.sql("insert into main.orders (id) values (1)")
    assert orders(DeltaTable.createIfNotExists(session)).execute().toDF().count() == 1
    with pytest.raises(CommitConflict, match=rf"main\.orders.*version {nth(1)}"):
        orders(DeltaTable.create(session)).execute()
    for builder in (DeltaTable.replace(session), DeltaTable.createOrReplace(session)):
        table = builder.tableName("main.orders").addColumn("n", "INT").execute()
        assert (table.toDF().columns, table.toDF().count()) == (["n"], 0)
    assert table.toDF(version=nth(1)).count() == 1


@pytest.mark.only_format("delta", "it has computed columns")
@pytest.mark.parametrize("name", ["main.orders", ODD])
def test_a_replacement_with_a_generated_column_has_no_rows(session: Session, name: str) -> None:
    orders(DeltaTable.create(session), name).execute()
    builder = DeltaTable.createOrReplace(session).tableName(name).addColumn("id", "INT")
    table = builder.addColumn("twice", "INT", generatedAlwaysAs="id * 2").execute()
    assert (table.toDF().columns, table.snapshot().version) == (["id", "twice"], nth(1))


@pytest.mark.lacks_format("ducklake", UnsupportedFeature, "the catalog says where files lie")
@once
def test_a_location_of_its_own_goes_with_the_name(session: Session, tmp_path: Path) -> None:
    def at(builder: DeltaTableBuilder) -> DeltaTableBuilder:
        return builder.location(tmp_path / "far é" / "orders").addColumn("id", "INT")

    table = at(DeltaTable.create(session).tableName("main.orders")).execute()
    assert table.ref.location.endswith("far é/orders")
    session.sql("insert into main.orders values (1)")
    with duckrun.connect(session.lake.root) as other:
        assert rows_of(other.sql("from main.orders")) == [(1,)]
    assert rows_of(DeltaTable.forPath(session, tmp_path / "far é" / "orders").toDF()) == [(1,)]
    assert at(DeltaTable.createOrReplace(session)).execute().toDF().count() == 0  # by its folder alone
    session.sql("create table main.other as select 1 as id")
    with pytest.raises(InvalidConfig, match=r"main\.other is at .*not at .*drop the table"):
        at(DeltaTable.createOrReplace(session).tableName("main.other")).execute()
    assert rows_of(session.sql("from main.other")) == [(1,)]


@once
def test_a_view_is_replaced_only_when_asked_to(session: Session) -> None:
    session.sql("create view main.v as select 1 as id")
    for builder in (DeltaTable.create(session), DeltaTable.createIfNotExists(session)):
        with pytest.raises(InvalidConfig, match=r"main\.v is a view"):
            builder.tableName("main.v").addColumn("id", "INT").execute()
    DeltaTable.createOrReplace(session).tableName("main.v").addColumn("id", "INT").execute()
    assert session.table("main.v").toDF().count() == 0


@pytest.mark.lacks_format(
    "ducklake", AssertionError, "a builder makes decimals of unsigned types, as Spark has none; rows keep them"
)
@once
def test_arrow_types_become_what_rows_of_them_are_stored_as(session: Session) -> None:
    schema = pa.schema(
        [
            pa.field("u", pa.uint64(), nullable=False, metadata={"comment": "big"}),
            pa.field("t", pa.timestamp("ns", "UTC")),
            pa.field("d", pa.dictionary(pa.int8(), pa.string())),
            pa.field("m", pa.map_(pa.string(), pa.float32())),
        ]
    )
    made = DeltaTable.create(session).tableName("main.made").addColumns(schema).execute()
    session.execute("main.written", WriteSpec("error"), schema.empty_table())
    assert made.snapshot().schema.types == session.table("main.written").snapshot().schema.types
    assert not made.snapshot().schema.field("u").nullable
    assert made.snapshot().schema.field("u").metadata == {b"comment": b"big"}
    fields = DeltaTable.create(session).tableName("main.fields").addColumns(list(schema)).execute()
    assert fields.snapshot().schema == made.snapshot().schema


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["spark"])
def test_spark_types_and_computed_columns(session: Session) -> None:
    from pyspark.sql import types as T

    table = (
        DeltaTable.create(session)
        .tableName(ODD)
        .addColumn("n", "BIGINT", generatedByDefaultAs=IdentityGenerator(start=10, step=5))
        .addColumns(T.StructType([T.StructField("at", T.TimestampType(), False), T.StructField("v", T.LongType())]))
        .addColumn("d'é%20", T.DateType(), generatedAlwaysAs="CAST(at AS DATE)", comment="the day")
        .execute()
    )
    session.sql(f"insert into main.\"{ODD[5:]}\" (at, v) values (timestamptz '2024-05-01 10:00:00+00', 1)")
    assert rows_of(table.toDF(), "n", "v") == [(10, 1)]
    assert [str(day) for (day,) in rows_of(table.toDF(), "d'é%20")] == ["2024-05-01"]
    with duckrun.connect(session.lake.root) as embedded:
        assert rows_of(embedded.table(ODD).toDF(), "n", "v") == [(10, 1)]
    always = DeltaTable.create(session).tableName("main.always").addColumn("n", "BIGINT", True, IdentityGenerator())
    always.addColumn("v", T.IntegerType()).clusterBy(["v"]).execute()
    session.sql("insert into main.always (v) values (7)")
    assert rows_of(session.table("main.always").toDF()) == [(1, 7)]


@once
@pytest.mark.lacks_format("ducklake", UnsupportedFeature, "it has no generated and no identity columns")
@pytest.mark.parametrize(
    ("column", "x"),
    [
        ({"generatedAlwaysAs": "id * 2"}, 14),
        ({"generatedAlwaysAs": IdentityGenerator()}, 1),
        ({"generatedByDefaultAs": IdentityGenerator(start=5, step=-1)}, 5),
    ],
)
def test_computed_columns_fill_themselves_on_duckdb(session: Session, column: dict[str, Any], x: int) -> None:
    builder = (
        DeltaTable.create(session).tableName("main.t").addColumn("id", "BIGINT").addColumn("x", "BIGINT", **column)
    )
    table = builder.execute()
    session.sql("insert into main.t (id) values (7)")
    assert rows_of(table.toDF()) == [(7, x)]


@once
def test_a_computed_column_that_cannot_be_is_refused_by_name(session: Session) -> None:
    builder = DeltaTable.create(session).tableName("main.t").addColumn("id", "BIGINT")
    builder = builder.addColumn("x", "BIGINT", generatedAlwaysAs="hash(id)")
    with pytest.raises(UnsupportedFeature, match=r"main\.t.*'?x'? is .*(hash\(id\).*engine: spark|DuckLake)"):
        builder.execute()
    assert not session.lake.exists(session.ref("main.t"))


@once
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda b: b, r"create\(\) needs tableName"),
        (lambda b: b.tableName("main.t"), r"main\.t needs a column"),
        (lambda b: b.tableName(3), r"identifier is 3, a int; give text"),
        (lambda b: b.addColumn("a", 3), r"addColumn\('a'\): dataType is 3, a int"),
        (lambda b: b.addColumn("a", "INT", nullable="no"), "nullable is 'no'"),
        (lambda b: b.addColumn("a", "INT", comment=1), "comment is 1"),
        (lambda b: b.addColumn("a", "INT", generatedAlwaysAs=1), "generatedAlwaysAs is 1"),
        (lambda b: b.addColumn("a", "INT", True, "1", IdentityGenerator()), "say one of the two"),
        (lambda b: b.addColumn("a", "BIGINT", True, IdentityGenerator(step=0)), "step of an identity"),
        (lambda b: b.addColumns("a INT"), r"addColumns\(\): cols is 'a INT', a str"),
        (lambda b: b.addColumns([1]), "give a schema or a list of fields"),
        (lambda b: b.partitionedBy(["a"], 2), r"partitionedBy\(\): cols is 2"),
        (lambda b: b.property("a", 1), r"property\('a'\): value is 1, a int; give text"),
        (lambda b: b.tableName("main.t").addColumn("a", "no type").execute(), r"main\.t.*'no type' is no type"),
    ],
)
def test_arguments_of_a_wrong_type_are_named(session: Session, build: Any, message: str) -> None:
    with pytest.raises(InvalidConfig, match=f"(?s){message}"):
        build(DeltaTable.create(session)).execute()
    assert session.tables() == []


@once
@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([pa.field("x", pa.int32(), nullable=False)]),
        pa.list_(pa.field("item", pa.int32(), nullable=False)),
        pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
        "STRUCT<x: INT NOT NULL>",
    ],
    ids=["struct", "list", "map", "sql"],
)
def test_not_null_inside_a_type_is_refused_by_name(session: Session, kind: Any) -> None:
    with pytest.raises(UnsupportedFeature, match=r"(?s)'s'.*NULL"):
        DeltaTable.create(session).tableName("main.t").addColumn("s", kind).execute()
    assert session.tables() == []


@pytest.mark.lacks_format("ducklake", pytest.fail.Exception, "it has times of day")
@once
def test_a_type_that_delta_has_not_is_refused(session: Session) -> None:
    with pytest.raises(SchemaMismatch, match="TIME"):
        DeltaTable.create(session).addColumn("a", pa.time64("us"))


@pytest.mark.only_format("ducklake", "Delta has none of these")
def test_arrow_types_of_a_ducklake_alone(session: Session) -> None:
    schema = pa.schema(
        [("t", pa.time64("us")), ("s", pa.struct([("a b", pa.time64("us"))])), ("u", pa.list_(pa.uint16()))]
    )
    table = DeltaTable.create(session).tableName("main.t").addColumns(schema).execute()
    session.execute(
        "main.t", WriteSpec("append"), pa.table([[time(9)], [{"a b": time(8)}], [[65535]]], names=schema.names)
    )
    assert rows_of(table.toDF()) == [(time(9), {"a b": time(8)}, [65535])]


@once
def test_what_else_cannot_be(session: Session, root: Path) -> None:
    with pytest.raises(InvalidConfig, match="not by ALTER TABLE"):
        AddColumn(ColumnSpec("a", "INT", generated="1"))
    with duckrun.connect(root, read_only=True) as reading, pytest.raises(ReadOnlyLake):
        DeltaTable.create(reading).tableName("main.t").addColumn("a", "INT").execute()
