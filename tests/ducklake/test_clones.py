"""Clones of a DuckLake's tables: all that a copy can have, or the word for what it would lose; and a lake to which nothing was written yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import duckrun
from duckrun import CommitConflict, Session, StorageError, UnsupportedFeature, VersionNotReadable
from tests.ducklake.plain import attached


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Session]:
    with duckrun.connect(tmp_path / "lake", format="ducklake") as session:
        yield session


def test_a_clone_has_the_rows_and_the_definition_in_files_of_its_own(lake: Session, tmp_path: Path) -> None:
    lake.sql("create table stock (id bigint not null, item varchar, at date, key uuid)")
    lake.sql("alter table stock set partitioned by (month(at), bucket(4, id))")
    lake.sql("alter table stock set sorted by (item)")
    lake.sql("comment on column stock.id is 'of the shop'")
    lake.sql("comment on table stock is 'what lies there'")
    lake.sql("insert into stock values (1, 'fig', '2026-01-01', uuid()), (2, null, '2026-02-01', null)")
    lake.sql("delete from stock where id = 1")
    stock = lake.table("stock")
    before = stock.cloneAtVersion(stock.history()[1]["version"], "copies.before")
    now = stock.clone("copies.now")
    with pytest.raises(CommitConflict, match=r"copies\.before"):
        stock.clone("copies.before")
    assert (before.toDF().count(), now.toDF().count()) == (2, 1)
    stock.clone("copies.before", replace=True)
    described = lake.sql("describe stock").collect()
    for copy in (before, now):
        assert lake.sql(f"describe {copy.ref}").collect() == described
        said = {name: copy.detail()[name] for name in ("description", "partitionColumns", "sortColumns", "properties")}
        assert said == {name: stock.detail()[name] for name in said}
        assert said["partitionColumns"] == ["month(at)", "bucket(4, id)"] and copy.toDF().count() == 1
    with attached(tmp_path / "lake") as plain:
        assert plain.sql("select id, item from lake.copies.now").fetchall() == [(2, None)]


def test_what_a_clone_would_lose_is_refused(lake: Session) -> None:
    lake.sql("create table plain (id int)")
    lake.sql("create table stock (id int, item varchar default 'fig')")
    snapshots = len(lake.snapshots())
    with pytest.raises(UnsupportedFeature, match=r"stock has defaults of columns.*Nothing was written"):
        lake.table("stock").clone("copy")
    with pytest.raises(UnsupportedFeature, match=r"isShallow.*a file of a DuckLake is one table's"):
        lake.table("plain").clone("copy", isShallow=True)
    for statement in ("create table copy shallow clone plain", "create table copy deep clone plain"):
        for dialect in ("duckdb", "spark"):
            with pytest.raises(UnsupportedFeature):
                lake.sql(statement, dialect=dialect)
    assert len(lake.snapshots()) == snapshots


def test_a_lake_to_which_nothing_was_written_says_so(lake: Session, tmp_path: Path) -> None:
    assert lake.snapshots() == [] == lake.tables() and lake.sql("show tables").collect() == []
    for restore in (lambda: lake.upkeep.restoreToVersion(0), lambda: lake.sql("restore database to version as of 0")):
        with pytest.raises(VersionNotReadable, match="has no snapshot 0: nothing was written to it yet"):
            restore()
    for upkeep in (
        lake.upkeep.checkpoint,
        lake.upkeep.flush,
        lake.upkeep.cleanup,
        lake.upkeep.orphans,
        lambda: lake.upkeep.expire(older_than="1 day"),
    ):
        with pytest.raises(StorageError, match="has no catalog yet"):
            upkeep()
    assert not (tmp_path / "lake" / "data").exists() and not list(tmp_path.rglob("*.sqlite"))
