"""A table, and a whole DuckLake, made what they were at a snapshot: rows, columns, keys, views, and what is counted once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import duckrun
from duckrun import (
    SQL,
    AppTransaction,
    InvalidConfig,
    RestoreSpec,
    Session,
    UnsupportedFeature,
    VersionNotReadable,
    WriteSpec,
)
from duckrun.values.cursors import CursorTransaction

pytestmark = pytest.mark.drawn(5)  # a commit of a DuckLake is a tenth of a second, and these make hundreds


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Session]:
    with duckrun.connect(tmp_path / "lake", format="ducklake", inline_rows=5) as session:
        yield session


def rows(session: Session, query: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in session.sql(query).collect()]


def newest(session: Session) -> int:
    return int(session.snapshots(1)[0]["snapshot_id"])


def shape(session: Session, name: str, version: int | None = None) -> object:
    """Columns, types, NOT NULL, comments, defaults, keys and order of a table."""
    found = session.table(name).snapshot(version=version).format_state.definition
    return found.fields, found.partition_by, found.sort_by, found.description


def test_rows_deletes_and_inlined_rows_come_back(lake: Session) -> None:
    lake.sql("create table t as select range as id, 'a' as item from range(40)")
    lake.sql("insert into t values (100, 'in the catalog'), (101, NULL)")
    lake.sql("delete from t where id in (3, 100)")
    then, was = newest(lake), rows(lake, "from t order by id")
    lake.sql("delete from t where id < 30")
    lake.sql("update t set item = 'changed' where id > 35")
    lake.sql("insert into t select 500 + range, 'new' from range(20)")
    lake.upkeep.flush()
    lake.upkeep.merge_files()
    done = lake.table("t").restoreToVersion(then)
    assert rows(lake, "from t order by id") == was
    assert (done.rows_inserted, done.rows_updated, done.rows_deleted) == (29, 5, 20)
    assert done.version == lake.table("t").snapshot().version == newest(lake)
    assert lake.table("t").restoreToVersion(done.version).version == done.version
    assert lake.table("t").history(1)[0]["operation"] == "RESTORE"


def test_columns_and_keys_come_back(lake: Session) -> None:
    lake.sql("create table t (id bigint not null, name varchar default 'none', price decimal(6, 2), qty int)")
    lake.sql("insert into t select range, 'n' || range, range / 2, range from range(20)")
    lake.sql("comment on table t is 'what is sold'")
    lake.sql("comment on column t.price is 'in euros'")
    then, was, form = newest(lake), rows(lake, "from t order by id"), shape(lake, "t")
    for statement in (
        "alter table t alter column qty type bigint",
        "alter table t alter column id drop not null",
        "insert into t values (NULL, 'x', 1, 30000000000)",
        "alter table t drop column name",
        "alter table t rename column price to cost",
        "alter table t add column extra date",
        "comment on table t is 'something else'",
        "insert into t values (77, 5, 8, date '2024-01-01')",
        "delete from t where id < 7",
    ):
        lake.sql(statement)
    since, other = newest(lake), rows(lake, "from t order by id")
    lake.table("t").restoreToVersion(then)
    assert shape(lake, "t") == form
    assert rows(lake, "from t order by id") == was
    assert rows(lake, "select count(*) from t where id > 15 and name is not null") == [(4,)]
    lake.table("t").restoreToVersion(since)
    assert rows(lake, "from t order by id") == other
    assert shape(lake, "t") == shape(lake, "t", since)


def test_partitions_come_back(lake: Session) -> None:
    spec = WriteSpec("overwrite", partition_by=("bucket(4, id)",), sort_by=("item",))
    lake.execute("t", spec, SQL("select range as id, 'i' || range as item from range(20)"))
    then, was, form = newest(lake), rows(lake, "from t order by id"), shape(lake, "t")
    lake.execute(
        "t", WriteSpec("overwrite", partition_by=("item",), sort_by=("id",)), SQL("select 1 as id, 'b' as item")
    )
    assert shape(lake, "t") != form
    lake.table("t").restoreToVersion(then)
    assert (shape(lake, "t"), rows(lake, "from t order by id")) == (form, was)


def test_a_restore_that_is_retried_is_made_once(lake: Session) -> None:
    lake.sql("create table t as select 1 as n")
    then = newest(lake)
    lake.sql("insert into t values (2)")
    spec = RestoreSpec(version=then, app=AppTransaction("nightly/restore", 0))
    made = lake.execute("t", spec)
    lake.sql("insert into t values (3)")
    again = lake.execute("t", spec)
    assert (made.replayed, again.replayed, again.version) == (False, True, made.version)
    assert rows(lake, "from t order by n") == [(1,), (3,)]


def test_a_consumers_counter_goes_back_with_its_rows(lake: Session) -> None:
    lake.sql("create table t as select 1 as n")
    versions = []
    for number in range(3):
        app = CursorTransaction("consumer", number, after=number - 1 if number else None)
        versions.append(lake.execute("t", WriteSpec("append", app=app), SQL(f"select {number} as n")).version)
    ref = lake.table("t").ref
    assert lake.lake.format.counter(ref, "consumer").holds == 2
    lake.table("t").restoreToVersion(versions[0])
    found = lake.lake.format.counter(ref, "consumer")
    assert (found.holds, found.highest) == (0, 2)
    lake.execute("t", WriteSpec("append", app=CursorTransaction("consumer", 3, after=0)), SQL("select 9 as n"))
    assert lake.lake.format.counter(ref, "consumer").holds == 3
    lake.upkeep.restoreToVersion(versions[1])
    assert lake.lake.format.counter(ref, "consumer").holds == 1


def test_a_table_of_another_life_is_refused(lake: Session) -> None:
    lake.sql("create table t as select 1 as n")
    then = newest(lake)
    lake.sql("drop table t")
    lake.sql("create table t as select 2 as n")
    with pytest.raises(VersionNotReadable, match="another table had its name"):
        lake.table("t").restoreToVersion(then)
    with pytest.raises(VersionNotReadable):
        lake.table("t").restoreToVersion(99)
    assert rows(lake, "from t") == [(2,)]


def test_the_lake_as_it_was_is_one_snapshot(lake: Session, tmp_path: Path) -> None:
    lake.sql("create table sales.orders as select range as id from range(9)")
    lake.sql("create table gone as select range as n from range(4)")
    lake.sql("create table old_name as select 5 as n")
    lake.sql("create table same as select 5 as n")
    lake.sql("create view big as select id from sales.orders where id > 5")
    lake.sql("create view small as select id from sales.orders where id < 2")
    then = newest(lake)
    same = lake.table("same").snapshot().version
    lake.sql("delete from sales.orders where id > 3")
    lake.sql("alter table sales.orders add column extra int")
    lake.sql("drop table gone")
    lake.sql("alter table old_name rename to other_name")
    lake.sql("create table old_name as select 'made since' as what")
    lake.sql("drop view small")
    lake.sql("create or replace view big as select id from sales.orders where id > 100")
    lake.sql("create table fresh.made as select 1 as n")
    since, tables = newest(lake), lake.tables()
    done = lake.upkeep.restoreToVersion(then)
    assert done.version == since + 1 == newest(lake)
    assert lake.tables() == ["main.big", "main.gone", "main.old_name", "main.same", "main.small", "sales.orders"]
    assert rows(lake, "select count(*) from sales.orders") == [(9,)]
    assert rows(lake, "from gone order by n") == [(0,), (1,), (2,), (3,)]
    assert rows(lake, "from old_name") == [(5,)]
    assert rows(lake, "from big order by id") == [(6,), (7,), (8,)]
    assert rows(lake, "from small order by id") == [(0,), (1,)]
    assert lake.table("sales.orders").snapshot().schema.names == ["id"]
    assert lake.table("same").snapshot().version == same
    assert "table main.gone is back, as a new one" in done.actions
    assert "fresh" not in lake.lake.schemas()
    with duckrun.connect(tmp_path / "lake", format="ducklake") as other:
        assert rows(other, "select count(*) from big") == [(3,)]
    lake.sql(f"restore database to version as of {since}")
    assert lake.tables() == tables
    assert rows(lake, "from old_name") == [("made since",)]
    assert rows(lake, "select id, extra from sales.orders order by id")[-1] == (3, None)


def test_a_lake_that_is_not_what_was_asked_stays_as_it_is(lake: Session, tmp_path: Path) -> None:
    lake.sql("create table t as select 1 as n")
    then = newest(lake)
    lake.sql("insert into t values (2)")
    lake.upkeep.expire([then])
    before = newest(lake)
    with pytest.raises(VersionNotReadable, match="expired"):
        lake.upkeep.restoreToVersion(then)
    with pytest.raises(VersionNotReadable, match="newest"):
        lake.upkeep.restoreToVersion(99)
    with pytest.raises(InvalidConfig):
        lake.upkeep.restoreToVersion("1")  # type: ignore[arg-type]
    assert newest(lake) == before and rows(lake, "from t order by n") == [(1,), (2,)]
    with (
        duckrun.connect(tmp_path / "delta") as delta,
        pytest.raises(UnsupportedFeature, match=r"restore is of lakes of format ducklake"),
    ):
        delta.upkeep.restoreToVersion(0)
