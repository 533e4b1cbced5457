"""Macros of a DuckLake's catalog: made, called from other sessions and views, seen by plain DuckDB, dropped and restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import InvalidConfig, Session, TableNotFound, UnsupportedFeature
from tests.ducklake.plain import attached

pytestmark = pytest.mark.drawn(3)  # most of them make several commits of a DuckLake, a tenth of a second each


@pytest.fixture
def lake(root: Path) -> Iterator[Session]:
    with duckrun.connect(root, format="ducklake") as session:
        session.sql("create table sales.orders as select range as id, range * 10 as price from range(5)")
        yield session


def rows(session: Session, query: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in session.sql(query).collect()]


def newest(session: Session) -> int:
    return int(session.snapshots(1)[0]["snapshot_id"])


def test_a_macro_is_called_from_another_session_and_by_duckdb_alone(lake: Session, root: Path) -> None:
    lake.sql("create macro net(price, rate := 0.2, label := 'it''s') as round(price * (1 - rate), 1)")
    lake.sql("create macro sales.above(least) as table select id, price from sales.orders where price > least")
    with duckrun.connect(root, format="ducklake") as other:
        assert rows(other, "select net(100), NET(price, rate := 0.5) from sales.orders where id = 3") == [(80.0, 15.0)]
        assert rows(other, "select sum(id)::int from sales.above(15)") == [(9,)]
        assert rows(
            other,
            "select above.id, o.price from sales.above((select min(price) + 25 from sales.orders)) join sales.orders o using (id) order by 1",
        ) == [(3, 30), (4, 40)]
        assert rows(other, "select x.id from sales.above(35) as x, lake.sales.above(35) y where x.id = y.id") == [(4,)]
        assert other.sql("select net(100), net(1) + 1 as more").columns == ["net(100)", "more"]
    with attached(root) as plain:
        plain.execute("use lake")
        assert plain.execute("select net(100), (select max(id) from sales.above(0))").fetchall() == [(80.0, 4)]
        assert plain.execute("select net(100), net(1) + 1 as more").description[0][0] == "net(100)"


def test_macros_of_other_programs_are_called_by_the_number_of_their_arguments(lake: Session, root: Path) -> None:
    with attached(root) as plain:
        plain.execute("use lake; create macro pair(a) as a + 1, (a, b) as a + b; use lake.sales")
        plain.execute(
            "create macro top() as table select max(id) as id from orders where list_sum(list_transform([id], lambda x: x + 1)) > 0"
        )
        plain.execute(
            "create view best as select found.b as id from (select main.pair(id, 1) as b from sales.top()) as found"
        )
    assert rows(lake, "select pair(1), pair(1, 5)") == [(2, 6)]
    assert rows(lake, "from sales.top()") == [(4,)]  # its bare names are of its own schema
    assert rows(lake, "from sales.best") == [(5,)]


def test_statements_that_write_call_macros(lake: Session) -> None:
    lake.sql("create macro twice(x) as x * 2; create macro four_times(x) as twice(twice(x))")
    lake.sql("create table t as select four_times(id) as n, twice(id) from sales.orders where twice(id) > 4")
    assert rows(lake, "from t order by n") == [(12, 6), (16, 8)]
    lake.sql(
        "insert into t (n) select twice(1); update t set n = twice(n) where n = twice(1); delete from t where n = four_times(3)"
    )
    assert rows(lake, "select n from t order by n") == [(4,), (16,)]
    lake.sql("create view seen as select twice(n) as n from t")
    lake.sql("create or replace macro twice(x) as x * 200")
    assert rows(lake, "from seen order by n") == [(8,), (32,)]  # a view has the macro as it was
    assert rows(lake, "with twice(x) as (select 5), u as materialized (select 1) select x from twice") == [(5,)]
    assert rows(lake, "select distinct on (n) twice(n) from t order by 1 limit 1") == [(800,)]
    assert lake.sql("select twice($1) as n", params=[3]).collect() == [{"n": 600}]
    assert "600" in str(rows(lake, "explain select twice(3)")) or rows(lake, "explain select twice(3)")


@pytest.mark.spark
def test_spark_reads_and_writes_what_macros_say(lake: Session, root: Path, spark: Any) -> None:
    lake.sql(
        "create macro f(a) as a * 2; create macro sales.above(n) as table select id from sales.orders where id > n"
    )
    with duckrun.connect(root, format="ducklake", engine="spark", spark=spark) as other:
        assert sorted(rows(other, "select f(id) as n from sales.above(2)")) == [(6,), (8,)]
        other.sql("create table made as select f(id) as n from sales.above(3); create or replace macro f(a) as a * 3")
        other.sql("insert into made select f(id) from sales.above(3)")
        with pytest.raises(UnsupportedFeature, match="Spark's dialect"):
            other.sql("create macro g(a) as a", dialect="spark")
    assert rows(lake, "from made order by n") == [(8,), (12,)]


def test_what_a_macro_reads_is_pinned_with_the_statement(lake: Session, root: Path) -> None:
    lake.sql("create macro sales.total() as (select sum(price)::int from sales.orders)")
    frame = lake.sql("select sales.total() as n")
    lake.sql("update sales.orders set price = 0")
    assert frame.collect() == [{"n": 100}]
    assert rows(lake, "select sales.total()") == [(0,)]


def test_arguments_and_names_mean_what_they_mean_in_duckdb(lake: Session, root: Path) -> None:
    statements = (
        "create macro field(s) as s.x",
        "create macro each(l, amount) as list_transform(l, lambda x: x + amount)",
        "create macro times(a, b) as a * b",
        "create macro inner_(a) as (select max(o.a) from (select a as a union all select 3) as o)",
    )
    queries = (
        "select field({'x': 4}), each([1, 2], 10), times(1 + 2, 3 + 4), inner_(2)",
        "select times((select 2), b := 3), times(a := 2, b := times(2, 2)) from range(1) as times(a)",
    )
    for statement in statements:
        lake.sql(statement)
    with attached(root) as plain:
        plain.execute("use lake")
        for query in queries:
            assert rows(lake, query) == plain.execute(query).fetchall()


def test_macros_are_replaced_listed_and_dropped(lake: Session, root: Path) -> None:
    lake.sql("create macro f(a) as a")
    with pytest.raises(InvalidConfig, match=r"Macro main\.f exists already"):
        lake.sql("create macro F(a) as a + 1")
    made = newest(lake)
    lake.sql("create macro if not exists f(a) as a + 1; create or replace macro f(a) as a")
    assert newest(lake) == made and rows(lake, "select f(1)") == [(1,)]
    lake.sql("create or replace macro f(a) as table select a as n")
    assert rows(lake, "select n from f(7)") == [(7,)]
    lake.sql("create view v as select 1 as n; create function g(a) as a")
    assert rows(lake, "show views") == [("main", "v", "view"), ("main", "f", "table macro"), ("main", "g", "macro")]
    with attached(root) as plain:
        kinds = plain.execute(
            "select function_name, function_type from duckdb_functions() where database_name = 'lake' order by 1"
        ).fetchall()
        assert kinds == [("f", "table_macro"), ("g", "macro")]
    lake.sql("drop macro f; drop function g; drop macro if exists f")
    with pytest.raises(TableNotFound, match=r"no macro main\.ff to drop"):
        lake.sql("drop macro ff")
    assert rows(lake, "show views") == [("main", "v", "view")]
    lake.sql("create macro shop.h() as 1")
    with pytest.raises(InvalidConfig, match="Schema shop holds macro h"):
        lake.sql("drop schema shop")
    lake.sql("drop schema shop cascade")
    assert "shop" not in lake.lake.schemas()


def test_macros_are_of_the_transaction_and_come_back_with_the_lake(lake: Session, root: Path) -> None:
    lake.sql("create macro f(a) as a + 1; create macro g() as 1")
    then = newest(lake)
    with duckrun.connect(root, format="ducklake") as other:
        lake.sql(
            "begin; create or replace macro f(a) as a + 2; drop macro g; create macro h() as table from sales.orders"
        )
        assert rows(lake, "select f(1), (select count(*) from h())") == [(3, 5)]
        assert rows(other, "select f(1), g()") == [(2, 1)]
        lake.sql("rollback")
        assert rows(lake, "select f(1), g()") == [(2, 1)]
        lake.sql(
            "begin; create or replace macro f(a) as a + 2; drop macro g; create macro h() as table from sales.orders; commit"
        )
        assert rows(other, "select f(1)") == [(3,)]
    done = lake.upkeep.restoreToVersion(then)
    assert rows(lake, "select f(1), g()") == [(2, 1)]
    assert {"macro main.h is gone", "macro main.g is what it was"} <= {*done.actions}


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        ("create macro e(a, b := [1, 2]) as a", UnsupportedFeature, "no number, text, TRUE or FALSE"),
        ("create macro e(a integer) as a", UnsupportedFeature, "cast a in the macro"),
        ("create macro e(a, A) as a", InvalidConfig, "two parameters 'a'"),
        ("create macro e(a) as a, (a, b) as b", UnsupportedFeature, "a name of its own"),
        ("create temp macro e(a) as a", UnsupportedFeature, "CREATE MACRO|create temp macro"),
        ("create macro upper(a) as a", InvalidConfig, "a function of DuckDB's own"),
        ("create macro e() as table select * from nowhere", TableNotFound, "Macro main.e reads main.nowhere"),
        ("create macro e() as table select * from sales.orders at (version => 1)", UnsupportedFeature, "newest"),
        (
            "create macro e(a) as table select * from table_changes('sales.orders', 1)",
            UnsupportedFeature,
            "no view or macro",
        ),
        ("create macro e(a) as", InvalidConfig, "expression"),
        ("select f()", InvalidConfig, r"main.f takes \(a, b := 2\); it was called with 0"),
        ("select f(1, 2, 3)", InvalidConfig, "called with 3"),
        ("select f(1, c := 3)", InvalidConfig, "takes"),
        ("select * from f(1)", InvalidConfig, "gives a value"),
        ("select t()", InvalidConfig, r"gives a table: SELECT … FROM main.t\(…\)"),
        ("create or replace macro f(a) as f(a); select f(1)", InvalidConfig, "main.f -> main.f is a circle"),
    ],
)
def test_what_no_macro_can_be_is_refused_before_anything_is_written(
    held: Session, statement: str, error: type[Exception], said: str
) -> None:
    before = newest(held)
    with pytest.raises(error, match=said):
        held.sql(statement)
    assert newest(held) == before


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with duckrun.connect(tmp_path_factory.mktemp("held"), format="ducklake") as session:
        session.sql(
            "create table sales.orders as select 1 as id; create macro f(a, b := 2) as a + b; create macro t() as table select 1 as n"
        )
        yield session


def test_a_delta_lake_keeps_no_macros(tmp_path: Path) -> None:
    with duckrun.connect(tmp_path) as delta:
        for statement in ("create macro f(a) as a", "create or replace macro f(a) as table select a", "drop macro f"):
            with pytest.raises(UnsupportedFeature, match="MACRO.*format ducklake keep macros.*CREATE TEMP VIEW"):
                delta.sql(statement)
