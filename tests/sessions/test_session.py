"""connect(): names, views, versions, frames, as a person in a notebook meets them."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import duckrun
from duckrun import (
    InvalidConfig,
    ReadOnlyLake,
    ReadSpec,
    TableNotFound,
    UnsupportedFeature,
    VersionNotReadable,
    WriteSpec,
)
from duckrun.lake.lake import LocationDefinition, ViewDefinition
from duckrun.session import Session
from duckrun.values.snapshot import Scan
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats

ORDERS = pa.table({"id": [1, 2], "item": ["fig", "kiwi"]})


@pytest.fixture
def shop(duck: Session) -> Session:
    duck.execute("sales.orders", WriteSpec("error"), ORDERS)
    return duck


@pytest.mark.parametrize("name", ["odd name", "Größe", "select", 'quo"te', "it's"])
def test_any_name_that_is_a_folder_can_be_a_table(duck: Session, name: str) -> None:
    duck.execute(f"sales.{name}", WriteSpec("error"), ORDERS)
    quoted = '"' + name.replace('"', '""') + '"'
    assert duck.sql(f"select count(*) n from sales.{quoted}").collect() == [{"n": 2}]
    assert duck.tables() == [f"sales.{name}"]


@pytest.mark.parametrize("name", ["../outside", "a/b", "", "_duckrun"])
def test_a_name_that_leaves_the_root_is_refused(duck: Session, name: str) -> None:
    with pytest.raises(InvalidConfig, match="name"):
        duck.lake.resolve("main", name)


def test_names_are_found_whatever_their_case(shop: Session) -> None:
    assert shop.sql("select count(*) n from SALES.Orders").collect() == [{"n": 2}]


def test_a_missing_table_names_the_nearest(shop: Session) -> None:
    with pytest.raises(TableNotFound, match=r"sales\.order\b.*sales\.orders"):
        shop.sql("select * from sales.order")


def test_common_table_expressions_and_aliases_shadow_tables(shop: Session) -> None:
    frame = shop.sql(
        "with orders as (select 1 as id) select sales.orders.item from sales.orders join orders using (id)"
    )
    assert frame.collect() == [{"item": "fig"}]


def test_a_persisted_view_is_seen_by_every_session_and_reads_the_newest_rows(
    shop: Session, engine: str, request
) -> None:
    ref = shop.lake.parse("sales.figs")
    shop.lake.put_definition(ref, ViewDefinition("select * from orders where item = 'fig'", reads=("sales.orders",)))
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    with duckrun.connect(shop.lake.root, engine=engine, spark=spark) as other:  # type: ignore[arg-type]
        assert rows_of(other.sql("select id + 1 as n from sales.figs")) == [(2,)]
        shop.execute("sales.orders", WriteSpec("append"), pa.table({"id": [7], "item": ["fig"]}))
        assert rows_of(other.sql("select id from sales.figs")) == [(1,), (7,)]
        assert other.tables() == ["sales.figs", "sales.orders"]


@pytest.mark.lacks_format("ducklake", InvalidConfig, "a view of the catalog is bound when it is made")
def test_views_that_read_each_other_in_a_circle_are_an_error(duck: Session) -> None:
    duck.lake.put_definition(duck.lake.parse("main.a"), ViewDefinition("select * from main.b"))
    duck.lake.put_definition(duck.lake.parse("main.b"), ViewDefinition("select * from main.a"))
    with pytest.raises(InvalidConfig, match="circle"):
        duck.sql("select * from main.a")


@pytest.mark.lacks_format("ducklake", UnsupportedFeature, "the catalog says where files lie")
def test_a_table_may_live_at_a_location_of_its_own(shop: Session, tmp_path) -> None:
    ref = shop.lake.at(tmp_path / "elsewhere", schema="sales", name="far")
    shop.execute(ref, WriteSpec("error"), ORDERS)
    shop.lake.put_definition(ref, LocationDefinition(ref.location))
    with duckrun.connect(shop.lake.root) as other:
        assert other.sql("select count(*) n from sales.far").collect() == [{"n": 2}]


def test_history_detail_and_older_versions(shop: Session) -> None:
    shop.execute("sales.orders", WriteSpec("append"), pa.table({"id": [3], "item": ["nut"]}))
    table = shop.table("sales.orders")
    assert [entry["version"] for entry in table.history()] == [nth(1), nth(0)]
    assert table.detail()["numFiles"] == 2
    assert table.toDF(version=nth(0)).count() == 2
    first = datetime.fromtimestamp(table.history()[1]["timestamp"] / 1000, UTC)
    assert table.snapshot(timestamp=first.isoformat()).version == nth(0)
    assert table.snapshot(timestamp=(first + timedelta(days=1)).isoformat()).version == nth(1)
    with pytest.raises(VersionNotReadable, match="0 to 1|newest snapshot of its lake is 3"):
        table.snapshot(version=nth(5))
    with pytest.raises(VersionNotReadable, match="1999"):
        table.snapshot(timestamp="1999-01-01")


def test_frames_have_one_shape_on_both_engines(session: Session) -> None:
    session.execute("main.t", WriteSpec("error"), ORDERS)
    frame = session.sql("select id, item from main.t order by id")
    assert frame.columns == ["id", "item"]
    assert frame.schema.field("id").type == pa.int64()
    assert frame.count() == 2
    assert frame.collect() == ORDERS.to_pylist() == frame.arrow().to_pylist()
    pd.testing.assert_frame_equal(frame.df(), ORDERS.to_pandas(), check_dtype=False)
    assert frame.pl().equals(pl.from_arrow(ORDERS))
    assert frame.pl(lazy=True).filter(pl.col("id") == 2).collect().height == 1
    frame.createOrReplaceTempView("named")
    assert session.sql("select max(id) as m from named").collect() == [{"m": 2}]


def test_show_prints_a_table(shop: Session, capsys: pytest.CaptureFixture[str]) -> None:
    shop.sql("select * from sales.orders").show()
    assert "kiwi" in capsys.readouterr().out


def test_registered_values_can_be_joined(session: Session) -> None:
    session.execute("main.t", WriteSpec("error"), ORDERS)
    session.register("prices", pd.DataFrame({"id": [2], "price": [4.5]}))
    assert session.sql("select item, price from main.t join prices using (id)").collect() == [
        {"item": "kiwi", "price": 4.5}
    ]


def test_a_read_only_lake_refuses_writes_before_anything_runs(shop: Session) -> None:
    with duckrun.connect(shop.lake.root, read_only=True) as reader:
        assert reader.scan("sales.orders").count() == 2
        with pytest.raises(ReadOnlyLake, match=r"sales\.orders"):
            reader.execute("sales.orders", WriteSpec("append"), ORDERS)


def test_a_scan_in_parts_reads_every_row_once(session: Session) -> None:
    data = pa.table({"id": list(range(40)), "part": [str(i % 5) for i in range(40)]})
    session.execute("main.t", WriteSpec("error", partition_by=("part",)), data)
    session.execute("main.t", WriteSpec("append"), pa.table({"id": [40], "part": ["odd 'name' / %"]}))
    scan = session.table("main.t").snapshot().scan(ReadSpec(columns=("id",), predicate="id <> 3"))
    parts = [Scan.from_json(pickle.loads(pickle.dumps(part)).to_json()) for part in scan.split(4)]
    found = [row for part in parts for row in rows_of(session.open(part))]
    assert sorted(found) == [(i,) for i in range(41) if i != 3]
    assert all(part.files for part in parts)


def test_a_frame_keeps_its_version(shop: Session) -> None:
    frame = shop.sql("select * from sales.orders")
    shop.execute("sales.orders", WriteSpec("overwrite"), pa.table({"other": [1]}))
    assert rows_of(frame) == rows_of(ORDERS)


def test_every_public_name_is_there() -> None:
    assert {name for name in duckrun.__all__ if not hasattr(duckrun, name)} == set()
    assert set(duckrun.__all__) <= set(dir(duckrun))
    with pytest.raises(AttributeError, match="duckrun attribute conect"):
        duckrun.conect  # type: ignore[attr-defined]


def test_only_signed_extensions_can_be_loaded_once_a_session_is_open(duck: Session) -> None:
    """Those of the wheels were loaded without the check of their signature, which takes a quarter of a second."""
    assert duck.sql("select current_setting('allow_unsigned_extensions') as unsigned").collect() == [
        {"unsigned": False}
    ]
    connection = duck.engine.connection
    with pytest.raises(duckdb.Error, match="allow_unsigned_extensions"):
        connection.execute("SET GLOBAL allow_unsigned_extensions = true")
