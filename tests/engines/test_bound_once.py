"""A query is checked on its tables' types alone: names, types and errors are those of the bind that reads the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from duckrun import InvalidConfig, Session, StorageError, WriteSpec
from duckrun.engines.duckdb.rows.frame import DuckDBFrame
from tests.engines.type_cases import KINDS, Kind
from tests.lake import rows_of

LAYOUTS: dict[str, tuple[WriteSpec, tuple[str, ...]]] = {
    "plain": (WriteSpec("error"), ()),
    "partitioned": (WriteSpec("error", partition_by=("id",)), ()),
    "mapped": (WriteSpec("error", table_properties={"delta.columnMapping.mode": "name"}), ()),
    "vectors": (
        WriteSpec("error", table_properties={"delta.enableDeletionVectors": "true"}),
        ("delete from main.t where id = 0",),
    ),
}


def source_of(frame: Any) -> DuckDBFrame:
    source = frame.source
    assert isinstance(source, DuckDBFrame)
    return source


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.delta)
def test_the_types_are_those_of_the_rows(duck: Session, kind: Kind, layout: str) -> None:
    spec, changes = LAYOUTS[layout]
    values = pa.array([*kind.values, None], kind.arrow)
    duck.execute("main.t", spec, pa.table({"A column": values, "id": range(len(values))}))
    for change in changes:
        duck.sql(change)
    for frame in (duck.sql("select * from main.t"), duck.table("main.t").toDF()):
        source = source_of(frame)
        assert source.typed is not None
        assert source.bound.columns == source.native.columns
        assert list(map(str, source.bound.types)) == list(map(str, source.native.types))
        assert frame.schema == frame.toArrow().schema


@pytest.fixture
def shop(duck: Session) -> Session:
    """Two tables and a view; rows of one table are deleted by a vector."""
    duck.sql("create table main.orders as select range as id, range % 3 as item, range * 0.5 as price from range(30)")
    duck.sql("alter table main.orders set tblproperties ('delta.enableDeletionVectors' = 'true')")
    duck.sql("delete from main.orders where id % 10 = 9")
    duck.sql("create table main.items as select range as item, 'n' || range as name from range(3)")
    duck.sql("create view main.named as select * from main.orders join main.items using (item)")
    return duck


QUERIES = [
    "select * from main.orders",
    "select sum(price), main.orders.item from main.orders group by all",
    "select (select max(id) from main.orders), exists (select 1 from main.items where item = 1)",
    "select o.id in (select item from main.items) from main.orders o",
    "select * exclude (price) from main.named where name = 'n1'",
    "select count(*) from main.orders a join main.orders b using (id) join main.named using (id)",
    "with few as (select * from main.orders where id < 5) select few.*, name from few join main.items using (item)",
    "pivot main.orders on item using sum(price) group by price",
    "from (pivot main.orders on item using count(*))",
    "summarize main.orders",
    "select * from main.orders version as of 1 union all by name select * from main.items",
    "select columns('i.*') from main.orders",
    'select "orders" from main.orders',
    "select max(id) over (partition by item) - id as late, rank() over (order by price) from main.orders",
]


@pytest.mark.parametrize("query", QUERIES)
def test_names_and_types_are_those_of_the_query_with_its_rows(shop: Session, query: str) -> None:
    frame = shop.sql(query)
    source, rows = source_of(frame), frame.toArrow()
    assert frame.columns == rows.column_names == list(source.native.columns)
    assert frame.schema == rows.schema
    assert frame.count() == rows.num_rows == len(source.native.fetchall())
    for part in (frame.limit(2), frame.named([f"c{at}" for at in range(rows.num_columns)])):
        assert part.schema == part.toArrow().schema


@pytest.mark.parametrize(
    "query",
    [
        "select nothing from main.orders",
        "select * from main.orders where name = 'x'",
        "select no_function(id) from main.orders",
        "select sum(id), item from main.orders",
        "select id + name from main.named",
        "select upper(*) from main.orders",
        "select rowid from main.orders",
    ],
)
def test_a_query_that_cannot_be_bound_is_refused_by_sql(shop: Session, query: str) -> None:
    with pytest.raises(InvalidConfig, match=r"main\.") as refused:
        shop.sql(query)
    assert "CAST" not in str(refused.value) and "delta_scan" not in str(refused.value)


def test_the_check_opens_no_data_file(duck: Session) -> None:
    duck.sql("create table main.t as select 1 as id")
    for file in Path(duck.snapshot("main.t").ref.location).glob("*.parquet"):
        file.unlink()
    frame = duck.sql("select id + 1 as more from main.t")
    assert frame.columns == ["more"]
    with pytest.raises(StorageError):
        frame.collect()


def test_rows_of_a_query_are_written_with_the_types_of_its_check(shop: Session) -> None:
    shop.sql("create table main.copy as select id, price, name from main.named where id < 4")
    shop.sql("insert into main.copy select id, price, name from main.named where id = 4")
    assert sorted(rows_of(shop.table("main.copy").toDF(), "id", "name")) == [(n, f"n{n % 3}") for n in range(5)]
    assert shop.table("main.copy").toDF().schema.types == [pa.int64(), pa.decimal128(21, 1), pa.string()]
