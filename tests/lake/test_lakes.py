"""Several lakes in one session: names of three parts in reads, joins and writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import duckrun
from duckrun import InvalidConfig, ReadOnlyLake, TableNotFound, WriteSpec
from duckrun.lake.lake import ViewDefinition
from duckrun.session import Session
from duckrun.storage.storage import Storage
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats

# What does not depend on the engine: Spark takes seconds for each of its commits.
once = pytest.mark.parametrize("engine", ["duckdb"])

ORDERS = pa.table({"id": [1, 2], "item": ["fig", "kiwi"]})
PRICES = pa.table({"item": ["fig", "kiwi"], "price": [1, 2]})


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The root of another lake, with a table of prices and a view of the cheap ones."""
    root = tmp_path / "other"
    with duckrun.connect(root) as s:
        s.execute("shop.prices", WriteSpec("error"), PRICES)
        s.lake.put_definition(s.lake.parse("shop.cheap"), ViewDefinition("select item from prices where price < 2"))
    return root


def test_tables_of_an_attached_lake_are_read_joined_and_written(
    session: Session, other: Path, lake_format: str
) -> None:
    session.execute("sales.orders", WriteSpec("error"), ORDERS)
    session.attach(other, "ref")
    assert session.tables() == ["sales.orders", "ref.shop.cheap", "ref.shop.prices"]
    joined = session.sql(
        "select sales.orders.id, ref.shop.prices.price from sales.orders join ref.shop.prices using (item)"
    )
    assert rows_of(joined) == [(1, 1), (2, 2)]
    assert rows_of(session.read.table("REF.shop.prices")) == rows_of(PRICES)
    commit = joined.write.saveAsTable("ref.shop.sold")
    assert commit.table == "ref.shop.sold"
    assert lake_format != "delta" or (other / "shop" / "sold" / "_delta_log").is_dir()
    assert session.table("ref.shop.sold").toDF(version=commit.version).count() == 2
    session.table("ref.shop.sold").delete("id = 1")
    assert rows_of(session.sql("select id from ref.shop.sold")) == [(2,)]


def test_a_view_of_an_attached_lake_reads_its_own_lake(session: Session, other: Path) -> None:
    session.execute("shop.prices", WriteSpec("error"), pa.table({"item": ["not this one"], "price": [0]}))
    session.attach(other, "ref")
    assert rows_of(session.sql("select * from ref.shop.cheap")) == [("fig",)]


@once
def test_one_name_in_two_lakes_is_two_tables(session: Session, other: Path) -> None:
    session.execute("shop.prices", WriteSpec("error"), pa.table({"item": ["fig"], "price": [100]}))
    session.attach(other, "ref")
    both = session.sql("select a.price, b.price as old from shop.prices a join ref.shop.prices b on a.item = b.item")
    assert rows_of(both) == [(100, 1)]
    assert rows_of(session.sql("select price from lake.shop.prices")) == [(100,)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ref", "attached as 'ref' already"),
        ("REF", "attached as 'REF' already"),
        ("sales", "is a schema of lake"),
        ("main", "none of"),
        ("memory", "none of"),
        ("", "cannot name a lake"),
        ("a.b", "cannot name a lake"),
    ],
)
def test_a_name_that_is_taken_or_no_name_is_refused(duck: Session, other: Path, name: str, message: str) -> None:
    duck.execute("sales.orders", WriteSpec("error"), ORDERS)
    duck.attach(other, "ref")
    with pytest.raises(InvalidConfig, match=message):
        duck.attach(other, name)


def test_a_lake_that_is_not_attached_is_named_with_the_nearest(duck: Session, other: Path) -> None:
    duck.attach(other, "reference")
    with pytest.raises(TableNotFound, match="no lake 'referense'.*did you mean 'reference'"):
        duck.sql("select * from referense.shop.prices")
    with pytest.raises(TableNotFound, match=r"reference\.shop\.price\b.*reference\.shop\.prices"):
        duck.table("reference.shop.price")
    duck.detach("reference")
    with pytest.raises(TableNotFound, match="no lake 'reference'"):
        duck.table("reference.shop.prices")
    with pytest.raises(InvalidConfig, match="No lake is attached as 'reference'"):
        duck.detach("reference")


def test_a_lake_attached_read_only_refuses_every_write_before_anything_runs(session: Session, other: Path) -> None:
    session.attach(other, "ref", read_only=True)
    prices = session.table("ref.shop.prices")
    frame = session.sql("select * from ref.shop.prices")
    for write in (
        lambda: frame.write.mode("append").saveAsTable("ref.shop.prices"),
        lambda: frame.write.saveAsTable("ref.shop.new"),
        lambda: frame.write.mode("append").save(other / "shop" / "prices"),
        lambda: frame.write.save(other / "deep" / "in" / "it"),
        lambda: prices.merge(frame, "target.item = source.item").whenMatchedDelete().execute(),
        lambda: prices.delete(),
        lambda: prices.update(set={"price": "0"}),
        lambda: prices.restoreToVersion(nth(0)),
        lambda: prices.optimize().executeCompaction(),
        lambda: prices.vacuum(),
    ):
        with pytest.raises(ReadOnlyLake, match=r"ref\.|is open read-only"):
            write()
    assert not (other / "shop" / "new").exists()
    assert prices.snapshot().version == nth(0)
    frame.write.saveAsTable("main.copied")  # the session's own lake is as it was opened
    assert session.read.table("main.copied").count() == 2


def test_a_read_only_session_attaches_read_only(root: Path, other: Path) -> None:
    with duckrun.connect(root, read_only=True) as session:
        session.attach(other, "ref")
        with pytest.raises(ReadOnlyLake):
            session.table("ref.shop.prices").delete()
        with pytest.raises(ReadOnlyLake):
            session.sql("select 1 as a").write.save(root.parent / "anywhere")


def test_two_lakes_in_one_bucket_keep_their_own_credentials() -> None:
    one = Storage("s3://bucket/a", {"AWS_ACCESS_KEY_ID": "one", "AWS_SECRET_ACCESS_KEY": "x"})
    two = Storage("s3://bucket/a_b", {"AWS_ACCESS_KEY_ID": "two", "AWS_SECRET_ACCESS_KEY": "x"})
    scopes = [storage.duckdb_secrets(narrow=True)[0] for storage in (one, two)]
    assert "SCOPE 's3://bucket/a/'" in scopes[0]
    assert "SCOPE 's3://bucket/a_b/'" in scopes[1]
    assert scopes[0].split("(")[0] != scopes[1].split("(")[0]
    assert one.hadoop_conf()["fs.s3a.bucket.bucket.access.key"] == "one"


@pytest.mark.lacks_format("ducklake", InvalidConfig, "no SQLite file lies in a store: it needs a catalog by name")
@pytest.mark.s3
def test_a_lake_in_an_object_store_is_attached_with_its_own_credentials(
    duck: Session, s3_options: dict[str, str], s3_bucket: Callable[[str], str]
) -> None:
    duck.execute("sales.orders", WriteSpec("error"), ORDERS)
    duck.sql("select 1").collect()  # the engine runs already
    duck.attach(f"{s3_bucket('attached')}/lake", "far", storage_options=s3_options)
    duck.sql("select * from sales.orders").write.saveAsTable("far.sales.copied")
    assert rows_of(duck.sql("select id from far.sales.copied join sales.orders using (id)")) == [(1,), (2,)]
    assert duck.tables() == ["sales.orders", "far.sales.copied"]
