"""Spark in a branch: it reads and writes by the same line of commits as DuckDB, and main sees nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import duckrun
from duckrun import (
    AppTransaction,
    CommitConflict,
    DuplicateSourceKeys,
    InvalidConfig,
    MergeSpec,
    OptimizeSpec,
    Session,
    UnsupportedFeature,
    UpdateSpec,
    WriteSpec,
)
from duckrun.engines.duckdb import load_extensions
from duckrun.spark import name_tables, stream_table
from tests.branches.rows import values

pytestmark = pytest.mark.spark

ORDERS = "select i as id, if(i % 2 = 0, 'EU', 'U S') as region, i * 1.5 as price from range(10) r(i)"
MARKS = "'delta.enableDeletionVectors' = 'true'"
LAYOUTS = {
    "plain": "",
    "partitioned": "partitioned by (region)",
    "vectors": f"tblproperties ({MARKS})",
    "mapped": f"partitioned by (region) tblproperties ('delta.columnMapping.mode' = 'name', {MARKS})",
    "tracked": f"tblproperties ('delta.enableRowTracking' = 'true', 'delta.enableInCommitTimestamps' = 'true', {MARKS})",
    "clustered": f"cluster by (region) tblproperties ({MARKS})",
    "fed": "tblproperties ('delta.enableChangeDataFeed' = 'true')",
}
Rows = list[tuple[object, ...]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "a lake"


@pytest.fixture
def main(root: Path) -> Iterator[Session]:
    with duckrun.connect(root) as session:
        session.sql("create table sales.items as select 1 as item")
        yield session


@pytest.fixture
def branch(main: Session, root: Path, spark: Any) -> Iterator[Session]:
    with duckrun.connect(root, branch="pr-42", engine="spark", spark=spark) as session:
        yield session


def made(main: Session, layout: str) -> None:
    main.sql(
        f"create table sales.orders (id bigint, region string, price double) using delta {layout}", dialect="spark"
    )
    main.sql(f"insert into sales.orders {ORDERS}")
    main.sql("insert into sales.orders values (10, 'EU', 15.0)")


def by_both(branch: Session, query: str) -> Rows:
    """The rows of a query, which are the same on both engines."""
    rows = values(branch.on("spark"), query)
    assert values(branch.on("duckdb"), query) == rows
    return rows


def by_others(spark: Any, root: Path, table: str) -> list[Rows]:
    """The rows of main's table as plain Spark, DuckDB's own Delta extension and deltalake read them."""
    folder = (root / "sales" / table).as_posix()
    connection = duckdb.connect()
    load_extensions(connection)
    delta = QueryBuilder().register("t", DeltaTable(folder)).execute("select * from t").read_all()
    rows = [
        [tuple(row) for row in spark.read.format("delta").load(folder).collect()],
        connection.sql(f"from delta_scan('{folder}')").fetchall(),
        [tuple(row.values()) for row in pa.table(delta).to_pylist()],
    ]
    return [sorted(each) for each in rows]


def left_over(root: Path) -> list[Path]:
    """Logs of Spark that a branch has not removed."""
    return [path for path in root.rglob("_delta_log") if "_branches" in path.parts or "_duckrun" in path.parts]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_engines_take_turns_in_a_branch(main: Session, branch: Session, root: Path, spark: Any, layout: str) -> None:
    made(main, LAYOUTS[layout])
    before = values(main, "from sales.orders")
    at = main.table("sales.orders").snapshot().version
    duck = branch.on("duckdb")
    model = {i: (region, price) for i, region, price in before}

    def check(commit: Any, **rows: int) -> None:
        assert {name: getattr(commit, f"rows_{name}") for name in rows} == rows
        assert by_both(branch, "from sales.orders") == sorted((i, *row) for i, row in model.items())

    assert by_both(branch, "select count(*) from sales.orders") == [(11,)]  # before the fork
    commit = branch.sql("update sales.orders set price = price + 100 where region = 'EU' and id < 5")
    model |= {i: ("EU", i * 1.5 + 100) for i in (0, 2, 4)}
    check(commit, updated=3)
    duck.sql("delete from sales.orders where id in (3, 4)")
    del model[3], model[4]
    commit = branch.sql("delete from sales.orders where id in (5, 6)")
    del model[5], model[6]
    check(commit, deleted=2)
    commit = branch.sql("insert into sales.orders values (20, 'EU', 1), (21, 'x/y', 2)")
    model |= {20: ("EU", 1), 21: ("x/y", 2)}
    check(commit, inserted=2)
    duck.sql("update sales.orders set price = 7 where id in (7, 20)")
    model |= {7: (model[7][0], 7), 20: ("EU", 7)}
    source = spark.createDataFrame([(7, "U S", 70.0), (30, "EU", 30.0)], "id bigint, region string, price double")
    commit = branch.execute("sales.orders", MergeSpec(("id",)), source)
    model |= {7: ("U S", 70.0), 30: ("EU", 30.0)}
    check(commit, inserted=1, updated=1)
    rows = spark.createDataFrame([(40, "U S", 4.0)], "id bigint, region string, price double")
    branch.execute("sales.orders", WriteSpec("replace", predicate="region = 'U S'"), rows)
    model = {i: row for i, row in model.items() if row[0] != "U S"} | {40: ("U S", 4.0)}
    check(branch.execute("sales.orders", OptimizeSpec()))
    versions = [each["version"] for each in branch.table("sales.orders").history()]
    assert versions == list(range(versions[0], -1, -1)) and versions[0] >= at + 8
    old = [branch.on(name).table("sales.orders").toDF(version=at + 1).collect() for name in ("spark", "duckdb")]
    assert sorted(map(str, old[0])) == sorted(map(str, old[1])) and len(old[0]) == 11
    assert values(main, "from sales.orders") == before
    assert main.table("sales.orders").snapshot().version == at

    main.publish("pr-42")
    expected = sorted((i, *row) for i, row in model.items())
    assert values(main, "from sales.orders") == expected
    others = by_others(spark, root, "orders")
    if layout == "mapped":
        others.pop(1)  # delta_scan() gives NULL for a mapped partition column, without a branch, too
    assert all(rows == expected for rows in others)
    folder = (root / "sales" / "orders").as_posix()
    branch.close()
    spark.sql(f"update delta.`{folder}` set price = 0 where id = 40")
    spark.sql(f"delete from delta.`{folder}` where id = 20")
    expected = [row for row in expected if row[0] not in (20, 40)] + [(40, "U S", 0.0)]
    assert values(main, "from sales.orders") == sorted(expected)
    assert left_over(root) == []


def test_tables_views_and_definitions_of_a_branch_by_spark(
    main: Session, branch: Session, root: Path, spark: Any
) -> None:
    made(main, "")
    branch.sql("create table sales.totals as select region, sum(price) as total from sales.orders group by region")
    branch.sql("create view sales.best as select max(total) as best from sales.totals")
    assert by_both(branch, "from sales.best") == [(45.0,)]
    branch.sql("create table sales.days (day date not null, year int generated always as (year(day)), n int default 3)")
    branch.sql("insert into sales.days (day) values (date '2026-01-31')")
    branch.on("duckdb").sql("insert into sales.days (day, n) values (date '2025-01-31', 4)")
    assert [row[1:] for row in by_both(branch, "from sales.days")] == [(2025, 4), (2026, 3)]
    branch.sql("alter table sales.orders add column note varchar")
    branch.sql("alter table sales.orders add constraint cheap check (price < 1000)")
    with pytest.raises(duckrun.DuckrunError, match="cheap"):
        branch.sql("insert into sales.orders values (50, 'EU', 2000, 'dear')")
    branch.sql("insert into sales.orders values (50, 'EU', 20, 'fair')")
    frame = spark.createDataFrame(
        [(60, "EU", 1.0, "a", 5)], "id bigint, region string, price double, note string, n int"
    )
    branch.execute("sales.orders", WriteSpec("append", schema_mode="append_new_columns"), frame)
    branch.sql("drop table sales.items")
    branch.sql("create table sales.items as select 'a' as letter")
    branch.sql("insert into sales.items values ('b')")
    assert by_both(branch, "from sales.items") == [("a",), ("b",)]
    branch.sql("create or replace table sales.totals as select 1 as one")
    assert by_both(branch, "from sales.totals") == [(1,)]
    with pytest.raises(UnsupportedFeature, match="identity"):
        branch.sql("create table sales.numbered (id bigint generated always as identity, v int)")
    expected = by_both(branch, "from sales.orders")
    assert [row[0] for row in expected if row[-1] == 5] == [60]
    assert main.tables() == ["sales.items", "sales.orders"]
    main.publish("pr-42")
    assert main.tables() == ["sales.best", "sales.days", "sales.items", "sales.orders", "sales.totals"]
    assert all(rows == expected for rows in by_others(spark, root, "orders"))
    assert all(rows == [("a",), ("b",)] for rows in by_others(spark, root, "items"))
    assert all(rows == [(1,)] for rows in by_others(spark, root, "totals"))
    with pytest.raises(duckrun.DuckrunError, match="cheap"):
        main.sql("update sales.orders set price = 2000")


def test_a_publish_of_commits_by_spark_obeys_the_rules(main: Session, branch: Session, root: Path, spark: Any) -> None:
    made(main, f"tblproperties ({MARKS})")
    app = AppTransaction("nightly", 7)
    branch.execute("sales.orders", UpdateSpec({"price": "0"}, "region = 'EU'", app=app))
    again = branch.execute("sales.orders", UpdateSpec({"price": "1"}, "region = 'EU'", app=app))
    assert again.replayed
    with pytest.raises(DuplicateSourceKeys):
        branch.execute("sales.items", MergeSpec(("item",)), spark.createDataFrame([(1,), (1,)], "item int"))
    assert [each.table for each in main.diff("pr-42")] == ["sales.orders"]  # the failed merge forks nothing
    main.sql("insert into sales.orders values (50, 'US', 1)")
    main.sql("delete from sales.orders where id = 1")  # other rows, other rows of the same file
    assert main.rebase("pr-42")["sales.orders"] > 0
    assert by_both(branch, "select count(*) from sales.orders where price = 0") == [(6,)]
    main.sql("insert into sales.orders values (51, 'EU', 1)")
    with pytest.raises(CommitConflict, match="computed from"):
        main.publish("pr-42")
    main.sql("delete from sales.orders where id = 51")
    with pytest.raises(CommitConflict, match="computed from"):
        main.publish("pr-42")
    main.discard("pr-42")
    with duckrun.connect(root, branch="next", engine="spark", spark=spark) as other:
        other.execute("sales.orders", UpdateSpec({"price": "0"}, "region = 'EU'", app=app))
        main.publish("next")
        assert main.execute("sales.orders", UpdateSpec({"price": "1"}, "region = 'EU'", app=app)).replayed
    with pytest.raises(CommitConflict, match="no more"):
        other_again = duckrun.connect(root, branch="pr-42", engine="spark", spark=spark)
        other_again.sql("insert into sales.items values (2)")
        main.discard("pr-42")
        other_again.sql("insert into sales.items values (3)")
    other_again.close()
    branch.close()
    assert left_over(root) == []


def test_ids_of_rows_by_spark_stay_at_the_publish(main: Session, branch: Session, spark: Any) -> None:
    made(main, LAYOUTS["tracked"])
    branch.sql("insert into sales.orders values (20, 'EU', 1), (21, 'EU', 1)")
    branch.sql("update sales.orders set price = 5 where id in (3, 20)")
    main.sql("insert into sales.orders values (30, 'EU', 1)")

    def ids(session: Session) -> dict[int, int]:
        rows = session.table("sales.orders").toDF(row_ids=True).collect()
        return {row["id"]: row["_row_id"] for row in rows}

    of_branch = ids(branch.on("duckdb"))
    assert len(set(of_branch.values())) == len(of_branch) == 13
    main.rebase("pr-42")
    main.publish("pr-42")
    main.sql("insert into sales.orders values (40, 'EU', 1)")
    after = ids(main)
    assert len(set(after.values())) == len(after) == 15
    assert after.items() >= of_branch.items()


def test_what_spark_cannot_do_in_a_branch_is_refused_by_name(main: Session, branch: Session, spark: Any) -> None:
    made(main, "")
    with pytest.raises(UnsupportedFeature, match="pr-42"):
        name_tables(spark, branch.lake)
    with pytest.raises(UnsupportedFeature, match="pr-42"):
        stream_table(branch, "sales.orders", "sales.copy")
    branch.sql("insert into sales.orders values (20, 'EU', 1)")
    folder, _ = branch.table("sales.orders").snapshot().log()
    assert spark.read.format("delta").load(folder).count() == 12
    with pytest.raises(Exception, match="duckrunBranch"):  # plain PySpark over the log of a read
        spark.newSession().sql(f"delete from delta.`{folder}`")
    with pytest.raises(InvalidConfig, match="writer"):
        branch.execute("sales.orders", WriteSpec("append", writer="delta_rs"), spark.range(1))
    branch.close()
    name_tables(spark, main.lake)
    with pytest.raises(UnsupportedFeature, match="stand for main"):  # else saveAsTable would write to main
        duckrun.connect(main.lake.root, branch="pr-43", engine="spark", spark=spark).sql("from sales.items")


def test_names_and_paths_that_spark_gets_after_the_session_do_not_write_main(
    main: Session, branch: Session, root: Path, spark: Any
) -> None:
    folder, schema = (root / "sales" / "items").as_posix(), (root / "sales").as_posix()
    branch.sql("insert into sales.items values (2)")
    with pytest.raises(UnsupportedFeature, match="works in branch pr-42"):
        name_tables(spark, main.lake)
    for statement in (
        f"create table of_main using delta location '{folder}'",
        f"/* all */ create database later location 'file:{schema}'",
        f"insert into delta.`{folder}` values (9)",
        f"with x as (select 9 as item) insert into delta.`{folder}` select * from x",
        f"update delta.`file://{folder}` set item = 9",
        f"drop table if exists delta.`{folder}`",
    ):
        with pytest.raises(UnsupportedFeature, match="pr-42.*path of the lake"):
            spark.sql(statement)
    assert spark.sql(f"(select item, 'insert into' as x from delta.`{folder}`)").collect() == [(1, "insert into")]
    other = spark.newSession()  # as another process of a shared server
    other.sql(f"create table default.of_main using delta location '{folder}'")
    other.sql("create view default.seen_of_main as select * from default.of_main")
    try:
        for use in (
            lambda: spark.table("of_main"),
            lambda: spark.sql("select * from default.seen_of_main"),
            lambda: spark.sql("insert into identifier('default.of' || '_main') values (9)"),
            lambda: spark.sql("insert into default.of_main values (9)"),
            lambda: branch.execute("sales.items", WriteSpec("append"), spark.range(1).selectExpr("3 as item")),
        ):
            with pytest.raises(UnsupportedFeature, match="of_main.*stand for main"):
                use()
        assert spark.sql("select 1 as x").collect() == [(1,)]  # names no table
    finally:
        other.sql("drop view default.seen_of_main")
        other.sql("drop table default.of_main")
    assert (values(main, "from sales.items"), by_both(branch, "from sales.items")) == ([(1,)], [(1,), (2,)])
    branch.close()
    spark.sql(f"insert into delta.`{folder}` values (5)")
    assert values(main, "from sales.items") == [(1,), (5,)]
