"""Tables of a DuckLake in a session: written, read at versions, changed, in one transaction over several."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import duckrun
from duckrun import (
    SQL,
    AppTransaction,
    CommitConflict,
    DeleteInsertSpec,
    DuckrunError,
    InvalidConfig,
    MergeSpec,
    ReadSpec,
    SchemaMismatch,
    Session,
    TableNotFound,
    UnsupportedFeature,
    VersionNotReadable,
    WriteSpec,
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Session]:
    with duckrun.connect(tmp_path / "lake", format="ducklake") as session:
        yield session


def rows(session: Session, query: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in session.sql(query).collect()]


def test_each_write_is_a_snapshot_that_can_be_read_again(lake: Session) -> None:
    lake.execute("sales.orders", WriteSpec("error"), SQL("select range as id, 'a' as item from range(3)"))
    first = lake.table("sales.orders").snapshot().version
    lake.sql("update sales.orders set item = 'b' where id = 1")
    lake.sql("delete from sales.orders where id = 0")
    lake.sql("insert into sales.orders values (7, 'c')")
    merged = lake.execute(
        "sales.orders", MergeSpec(("id",)), SQL("select 2 as id, 'm' as item union all select 9, 'n'")
    )
    assert (merged.rows_inserted, merged.rows_updated, merged.rows_deleted) == (1, 1, 0)
    assert (merged.writer, merged.engine) == ("ducklake", "duckdb")
    assert rows(lake, "from sales.orders order by id") == [(1, "b"), (2, "m"), (7, "c"), (9, "n")]
    assert rows(lake, f"from sales.orders at (version => {first}) order by id") == [(0, "a"), (1, "a"), (2, "a")]
    assert [entry["operation"] for entry in lake.table("sales.orders").history()] == [
        "MERGE",
        "APPEND",
        "DELETE",
        "UPDATE",
        "CREATE TABLE AS SELECT",
    ]


def test_another_tables_commit_is_no_version_of_this_one(lake: Session) -> None:
    lake.sql("create table a as select 1 as n")
    version = lake.table("a").snapshot().version
    lake.sql("create table b as select 2 as n")
    assert lake.table("a").snapshot().version == version
    assert lake.table("a").snapshot(version=version + 1).version == version
    with pytest.raises(VersionNotReadable, match="newest snapshot"):
        lake.table("a").snapshot(version=99)
    with pytest.raises(VersionNotReadable, match="older than that"):
        lake.table("b").snapshot(version=version)


@pytest.mark.drawn(1)  # no other test finds a fault in what a run pins of a lake
def test_a_run_reads_all_tables_at_one_snapshot_of_the_lake(lake: Session, tmp_path: Path) -> None:
    from duckrun.run.pins import Pins

    lake.sql("create table a as select 1 as n")
    lake.sql("create table b as select 1 as n")
    pins = Pins(lake.lakes)
    with duckrun.connect(tmp_path / "lake", format="ducklake", pins=pins) as run:
        assert rows(run, "from a") == [(1,)]
        lake.sql("update b set n = 2")
        assert rows(run, "from b") == [(1,)]  # b is read first now, and still as it was when a was read
        run.sql("update a set n = 5")
        assert rows(run, "select a.n, b.n from a, b") == [(5, 1)]


def test_a_transaction_over_two_tables_is_one_snapshot_or_none(lake: Session, tmp_path: Path) -> None:
    lake.sql("create table t as select 1 as id")
    lake.sql("create table total as select 1 as n")
    before = lake.snapshots()[0]["snapshot_id"]
    with duckrun.connect(tmp_path / "lake", format="ducklake") as other, lake.transaction() as together:
        together.sql("insert into t values (2)")
        together.sql("update total set n = (select count(*) from t)")
        assert rows(together, "from total") == [(2,)]
        assert rows(other, "from total") == [(1,)]
    assert lake.snapshots()[0]["snapshot_id"] == before + 1
    assert rows(lake, "from total") == [(2,)]
    with pytest.raises(ZeroDivisionError), lake.transaction() as together:
        together.sql("insert into t values (3)")
        together.sql("create table u as select 1 as n")
        raise ZeroDivisionError
    assert rows(lake, "select count(*) from t") == [(2,)]
    assert lake.tables() == ["main.t", "main.total"]


def test_delta_has_no_transaction_over_several_tables(tmp_path: Path) -> None:
    with (
        duckrun.connect(tmp_path) as session,
        pytest.raises(UnsupportedFeature, match="format ducklake"),
        session.transaction(),
    ):
        pass


def test_a_replayed_write_writes_once(lake: Session) -> None:
    app = AppTransaction("nightly/orders", 0)
    made = [lake.execute("t", WriteSpec("append", app=app), SQL("select 1 as n")) for _ in range(2)]
    assert [commit.replayed for commit in made] == [False, True]
    assert made[0].version == made[1].version and made[1].rows_inserted == 1
    assert rows(lake, "from t") == [(1,)]


def test_an_overwrite_keeps_the_table_and_takes_another_schema(lake: Session) -> None:
    lake.execute("t", WriteSpec("overwrite"), SQL("select 1 as a, 'x' as b"))
    first = lake.table("t").snapshot()
    lake.execute("t", WriteSpec("overwrite"), SQL("select 'text' as a, 2.5::double as c"))
    assert lake.table("t").snapshot().table_id == first.table_id
    assert rows(lake, "from t") == [("text", 2.5)]
    assert lake.table("t").toDF(version=first.version).collect() == [{"a": 1, "b": "x"}]


def test_replace_takes_the_partitions_of_the_source(lake: Session) -> None:
    table = pa.table({"id": [1, 2, 3], "day": [datetime.date(2024, 1, d) for d in (1, 2, 3)]})
    lake.execute("t", WriteSpec("overwrite", partition_by=("day",)), table)
    lake.execute("t", WriteSpec("replace"), pa.table({"id": [9], "day": [datetime.date(2024, 1, 2)]}))
    assert rows(lake, "select id from t order by id") == [(1,), (3,), (9,)]
    lake.execute(
        "t", WriteSpec("replace", predicate="id > 2"), pa.table({"id": [4], "day": [datetime.date(2024, 1, 9)]})
    )
    assert rows(lake, "select id from t order by id") == [(1,), (4,)]
    lake.execute("t", DeleteInsertSpec(("id",)), pa.table({"id": [4, 5], "day": [datetime.date(2024, 1, 8)] * 2}))
    assert rows(lake, "select id, day::varchar from t order by id") == [
        (1, "2024-01-01"),
        (4, "2024-01-08"),
        (5, "2024-01-08"),
    ]


@pytest.mark.drawn(4)
def test_rows_of_many_partitions_in_no_order_become_a_file_for_each(lake: Session, tmp_path: Path) -> None:
    """DuckDB keeps a hundred files open: behind more it would begin another one each time that it comes back to a partition."""
    scattered = lake.sql("select range as id, hash(range) % 400 as day from range(200000)").toArrow()
    lake.execute("t", WriteSpec("overwrite", partition_by=("day",)), scattered)
    lake.execute("t", WriteSpec("append"), scattered)
    files = len(list((tmp_path / "lake" / "data" / "main" / "t").rglob("*.parquet")))
    assert 2 * 400 <= files < 2 * 450, "where two threads part, a partition may have a file of each"
    assert rows(lake, "select count(*), count(distinct day) from t") == [(400_000, 400)]


def test_partitions_by_transforms_and_the_order_stand_in_the_catalog(lake: Session) -> None:
    spec = WriteSpec("overwrite", partition_by=("month(at)", "bucket(4, id)"), sort_by=("id",), compression="zstd")
    lake.execute(
        "t", spec, SQL("select range as id, timestamp '2024-01-01' + interval (range) day as at from range(99)")
    )
    detail = lake.table("t").detail()
    assert (detail["partitionColumns"], detail["sortColumns"]) == (["month(at)", "bucket(4, id)"], ["id"])
    assert detail["numFiles"] == 16
    assert detail["properties"]["duckrun.compression"] == "zstd"


@pytest.mark.parametrize("keys", [("month(day)",), ("month(day)", "id")])
def test_partitions_by_transforms_are_not_replaced_without_a_predicate(lake: Session, keys: tuple[str, ...]) -> None:
    made = SQL("select 1 as id, timestamp '2024-01-01' as day union all select 1, timestamp '2024-02-01'")
    lake.execute("t", WriteSpec("overwrite", partition_by=keys), made)
    with pytest.raises(InvalidConfig, match=r"main\.t is partitioned by month\(day\)"):
        lake.execute("t", WriteSpec("replace"), SQL("select 1 as id, timestamp '2024-02-09' as day"))
    january = WriteSpec("replace", predicate="day < '2024-02-01'")
    lake.execute("t", january, SQL("select 7 as id, timestamp '2024-01-09' as day"))
    assert rows(lake, "select id, month(day) from t order by all") == [(1, 2), (7, 1)]


def test_columns_change_by_the_catalog_alone(lake: Session) -> None:
    lake.sql("create table t (id integer not null, name varchar default 'none')")
    lake.sql("insert into t (id) values (1)")
    version = lake.table("t").snapshot().version
    lake.sql("alter table t alter column id type bigint")
    lake.sql("alter table t rename column name to label")
    lake.sql("alter table t add column extra date")
    lake.sql("insert into t values (30000000000, 'x', date '2024-01-01')")
    assert rows(lake, "select id, label, extra::varchar from t where id > 0 order by id") == [
        (1, "none", None),
        (30000000000, "x", "2024-01-01"),
    ]
    assert lake.table("t").toDF(version=version).collect() == [{"id": 1, "name": "none"}]
    with pytest.raises(SchemaMismatch, match="only widens"):
        lake.sql("alter table t alter column id type smallint")
    lake.sql("alter table t drop column extra")
    assert lake.table("t").restoreToVersion(version).version == lake.table("t").snapshot().version
    assert rows(lake, "from t") == [(1, "none")]


def test_views_lie_in_the_catalog(lake: Session, tmp_path: Path) -> None:
    lake.sql("create table t as select range as n from range(3)")
    lake.sql("create view big as select n from main.t where n > 0")
    with duckrun.connect(tmp_path / "lake", format="ducklake") as other:
        assert rows(other, "select sum(n)::int from big") == [(3,)]
        assert other.tables() == ["main.big", "main.t"]
    lake.sql("drop view big")
    assert lake.tables() == ["main.t"]


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        ("create table e (x enum('a', 'b'))", SchemaMismatch, "cannot store"),
        ("create table e (x integer[3])", SchemaMismatch, "cannot store"),
        ("create table e (x int, check (x > 1))", UnsupportedFeature, "CHECK"),
        ("vacuum t", UnsupportedFeature, "expire"),
        ("create table e (rowid int)", SchemaMismatch, "row ids"),
        ("create table e (x int) tblproperties ('delta.appendOnly' = 'true')", DuckrunError, "Delta"),
    ],
)
def test_what_a_ducklake_has_not_is_refused(lake: Session, statement: str, error: type[Exception], said: str) -> None:
    lake.sql("create table t as select 1 as n")
    with pytest.raises(error, match=said):
        lake.sql(statement)
    assert lake.tables() == ["main.t"]


def test_words_of_another_format_are_refused(lake: Session, tmp_path: Path) -> None:
    for spec in (WriteSpec("append", writer="delta_rs"), WriteSpec("overwrite", cluster_by=("n",))):
        with pytest.raises(UnsupportedFeature):
            lake.execute("t", spec, SQL("select 1 as n"))
    with pytest.raises(InvalidConfig, match="goes with format: ducklake"):
        duckrun.connect(tmp_path, catalog="sqlite:x")
    with pytest.raises(InvalidConfig, match="Did you mean"):
        duckrun.connect(tmp_path, format="ducklak")
    assert lake.tables() == []


def test_a_fence_is_the_last_change_of_the_table(lake: Session) -> None:
    lake.sql("create table t as select 1 as n")
    read = lake.table("t").snapshot().version
    lake.sql("create table other as select 1 as n")
    lake.execute("t", WriteSpec("safeappend", read_version=read), SQL("select 2 as n"))
    with pytest.raises(CommitConflict, match=f"computed from version {read}"):
        lake.execute("t", WriteSpec("safeappend", read_version=read), SQL("select 3 as n"))
    assert rows(lake, "from t order by n") == [(1,), (2,)]


def test_names_in_any_case_and_odd_ones(lake: Session) -> None:
    lake.sql('create table "a b"."T é" ("x y" int, "select" varchar)')
    lake.sql('insert into "a b"."T é" values (1, \'q\')')
    assert rows(lake, 'select "x y", "select" from "a b"."t é"') == [(1, "q")]
    with pytest.raises(TableNotFound, match="Did you mean"):
        lake.table("a b.T e")
    assert lake.scan("a b.T é", ReadSpec(columns=("select",))).collect() == [{"select": "q"}]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_the_first_table_is_read_at_its_first_version_after_a_look_at_what_was_applied(
    tmp_path: Path, kind: str
) -> None:
    with duckrun.connect(tmp_path / "lake", format="ducklake", catalog=f"{kind}:{tmp_path}/c.db") as lake:
        write = WriteSpec("error", app=AppTransaction("first"))
        lake.execute("sales.orders", write, SQL("select 1 as id"))
        for _ in range(2):
            lake.execute("sales.more", WriteSpec("append", app=AppTransaction("more")), SQL("select 2 as id"))
    with duckrun.connect(tmp_path / "lake", format="ducklake", catalog=f"{kind}:{tmp_path}/c.db") as lake:
        replayed = lake.execute("sales.more", WriteSpec("append", app=AppTransaction("more")), SQL("select 2 as id"))
        assert replayed.replayed
        assert rows(lake, "from sales.orders") == [(1,)]


def test_a_table_that_another_session_renamed_is_gone(lake: Session, tmp_path: Path) -> None:
    lake.sql("create table t as select 1 as n")
    assert rows(lake, "from t") == [(1,)]
    with duckrun.connect(tmp_path / "lake", format="ducklake") as other:
        other.sql("alter table t rename to u")
        with pytest.raises(TableNotFound, match=r"main\.t"):
            lake.sql("insert into t values (2)")
        other.sql("create table t as select 7 as n")
    assert (rows(lake, "from t"), rows(lake, "from u")) == ([(7,)], [(1,)])


def test_the_time_of_a_commit_in_the_history_is_one_of_its_version(lake: Session) -> None:
    made = [
        lake.sql(statement).version for statement in ("create table t as select 1 as n", "insert into t values (2)")
    ]
    for entry, version in zip(lake.table("t").history()[::-1], made, strict=True):
        at = datetime.datetime.fromtimestamp(entry["timestamp"] / 1000, datetime.UTC).isoformat(timespec="milliseconds")
        assert lake.table("t").snapshot(timestamp=at).version == version
    with pytest.raises(VersionNotReadable, match="has no version at 1999"):
        lake.table("t").snapshot(timestamp="1999-01-01")


def test_a_merge_by_words_takes_rows_with_types_that_delta_has_not(lake: Session) -> None:
    lake.sql("create table t as select 1 as id, time '10:00:00' as at")
    new = pa.table({"id": [1, 2], "at": pa.array([datetime.time(1), datetime.time(2)])})
    merge = lake.table("t").alias("t").merge(new, "t.id = source.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert rows(lake, "from t order by id") == [(1, datetime.time(1)), (2, datetime.time(2))]
