"""RENAME TO: a table keeps its rows, history and properties under its new name; a reader finds it under one or the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from duckrun import Done, InvalidConfig, ReadOnlyLake, StorageError, TableNotFound, UnsupportedFeature, connect
from duckrun.lake.lake import LocationDefinition
from duckrun.run.transaction import Transaction
from duckrun.session import Session
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats

ODD = "it's é %20"


@pytest.mark.parametrize(
    "name",
    [
        "sales",
        f'"{ODD}"',
        pytest.param(
            "other.sales",
            marks=pytest.mark.lacks_format("ducklake", UnsupportedFeature, "it renames within a schema"),
        ),
        "ORDERS",
    ],
)
def test_a_table_keeps_rows_history_and_writers_under_its_new_name(
    session: Session, name: str, lake_format: str
) -> None:
    session.sql("create table main.orders comment 'kept' as select 1 as id")
    session.sql("insert into orders values (2)")
    done = session.sql(f"alter table orders rename to {name}")
    assert isinstance(done, Done) and "RENAME" in done.statement
    assert len(session.tables()) == 1
    session.sql(f"insert into {name} values (3)")
    assert rows_of(session.sql(f"select id from {name}")) == [(1,), (2,), (3,)]
    assert rows_of(session.sql(f"select id from {name} at (version => {nth(0)})")) == [(1,)]
    ref = session.ref(session.tables()[0])
    assert session.table(ref).snapshot().description == "kept"
    if lake_format == "delta":
        assert DeltaTable(ref.location).version() == 2
    if name != "ORDERS":  # which is the same name to a statement
        with pytest.raises(TableNotFound, match="main.orders"):
            session.sql("select * from main.orders")
    session.sql("create or replace table main.orders as select 9 as id")
    assert rows_of(session.sql("select id from main.orders")) == [(9,)]


@pytest.mark.parametrize(
    ("statement", "kind", "said"),
    [
        ("alter table nope rename to x", TableNotFound, "no table main.nope"),
        ("alter table orders rename to News", InvalidConfig, "main.news is there"),
        ("alter table orders rename to figs", InvalidConfig, "main.figs is there"),
        ("alter table read_by rename to x", InvalidConfig, "main.figs read it by its name"),
        ("alter table figs rename to x", InvalidConfig, "is a view: ALTER VIEW"),
        ("alter view orders rename to x", InvalidConfig, "is a table: ALTER TABLE"),
        ("alter view figs rename to other.figs", UnsupportedFeature, "cannot move to schema other"),
        ("alter table orders rename to nowhere.main.x", TableNotFound, "no lake 'nowhere'"),
        ("alter table temporary rename to x", UnsupportedFeature, "temporary name"),
        pytest.param(
            *("alter table orders rename to loose", InvalidConfig, "holds files"),
            marks=pytest.mark.only_format("delta", "a table's folder"),
        ),
        ('alter table orders rename to "_x"', InvalidConfig, "cannot name a schema or table"),
    ],
)
def test_what_cannot_be_renamed_is_refused_and_nothing_is_changed(
    duck: Session, statement: str, kind: type[Exception], said: str
) -> None:
    for name in ("orders", "news", "read_by"):
        duck.sql(f"create table {name} as select 1 as id")
    duck.sql("create view figs as select * from read_by; create temp view temporary as select 1 as id")
    loose = Path(duck.lake.root, "main", "loose")
    loose.mkdir(parents=True)
    (loose / "notes.txt").write_text("not ours")
    before = duck.tables()
    with pytest.raises(kind, match=said):
        duck.sql(statement)
    assert duck.tables() == before
    assert isinstance(duck.sql("alter table if exists nope rename to x"), Done)


def test_a_view_has_its_new_name_for_every_session(duck: Session) -> None:
    duck.sql("create table orders as select 1 as id; create view figs as select id + 1 as n from orders")
    duck.sql("alter view figs rename to plums")
    with connect(duck.lake.root) as other:
        assert rows_of(other.sql("select n from plums")) == [(2,)]
        assert other.tables() == ["main.orders", "main.plums"]


def test_a_read_only_lake_renames_nothing(duck: Session) -> None:
    duck.sql("create table orders as select 1 as id")
    with connect(duck.lake.root, read_only=True) as reader, pytest.raises(ReadOnlyLake):
        reader.sql("alter table orders rename to x")


@pytest.mark.only_format("delta", "a table's folder")
def test_a_rename_that_the_disk_refuses_leaves_the_table(duck: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    duck.sql("create table orders as select 1 as id")

    def fails(self: Path, to: Path) -> Path:
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fails)
        with pytest.raises(
            StorageError, match=r"main.orders cannot be renamed to main.x: no space. Nothing was written"
        ):
            duck.sql("alter table orders rename to x")
    assert duck.tables() == ["main.orders"]
    duck.sql("alter table orders rename to x")  # no lock is left
    assert rows_of(duck.sql("select id from x")) == [(1,)]


@pytest.mark.only_format("delta", "a table's folder")
def test_a_table_with_a_location_of_its_own_keeps_it_and_a_killed_rename_is_ended_by_the_next(
    duck: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    duck.sql("create table made as select 1 as id")
    place = tmp_path / "elsewhere"
    Path(duck.lake.root, "main", "made").rename(place)
    duck.lake.put_definition(duck.lake.parse("orders"), LocationDefinition(place.as_posix()))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(duck.lake), "remove_definition", killed)
        with pytest.raises(KeyboardInterrupt):
            duck.sql("alter table orders rename to x")
    assert rows_of(duck.sql("select * from orders")) == rows_of(duck.sql("select * from x")) == [(1,)]
    duck.sql("alter table orders rename to x")
    assert duck.tables() == ["main.x"] and place.is_dir()


@pytest.mark.only_format("delta", "a table's folder")
def test_a_table_whose_log_names_its_files_by_their_whole_path_is_refused(
    duck: Session, shallow: Callable[[Session], None]
) -> None:
    shallow(duck)
    with pytest.raises(UnsupportedFeature, match="by its whole path.*CREATE TABLE main.x AS"):
        duck.sql("alter table orders rename to x")
    assert rows_of(duck.sql("select id from orders")) == [(1,)]


@pytest.fixture
def shallow() -> Callable[[Session], None]:
    """Makes a table whose one file the log names by its whole path."""
    import json

    def make(session: Session) -> None:
        session.sql("create table orders as select 1 as id")
        folder = Path(session.ref("orders").location)
        log = folder / "_delta_log" / f"{0:020}.json"
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["path"] = (folder / action["add"]["path"]).as_posix()
        log.write_text("\n".join(map(json.dumps, actions)))

    return make


@pytest.mark.parametrize("gone", ["alter table orders rename to sales", "drop table orders"])
@pytest.mark.parametrize(
    "statement",
    [
        "insert into orders values (2)",
        "merge into orders using (select 2 as id) s on orders.id = s.id when not matched then insert *",
        "insert into orders values (2) on conflict (id) do nothing",
    ],
)
def test_a_statement_makes_no_table_in_the_place_of_one_that_went_meanwhile(
    session: Session, statement: str, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.sql("create table main.orders as select 1 as id")
    carry_out = Transaction.run

    def overtaken(transaction: Transaction, *args: Any, **named: Any) -> Any:
        monkeypatch.undo()
        with connect(session.lake.root) as other:
            other.sql(gone)
        return carry_out(transaction, *args, **named)

    monkeypatch.setattr(Transaction, "run", overtaken)
    with pytest.raises(TableNotFound, match=r"main\.orders: it was there"):
        session.sql(statement)
    assert session.tables() == (["main.sales"] if "rename" in gone else [])
