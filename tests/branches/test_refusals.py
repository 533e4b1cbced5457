"""What ends a branch's way to main: main's table is gone, its old versions are, or others publish and write."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import duckrun
from duckrun import (
    CommitConflict,
    DuckrunError,
    OptimizeSpec,
    Session,
    StorageError,
    TableNotFound,
    VacuumSpec,
    VersionNotReadable,
    WriteSpec,
)
from tests.branches.killing import interrupted_at
from tests.branches.rows import values

ORDERS = "select i::int as id, if(i % 2 = 0, 'EU', 'US') as region, i::int as price from range(10) r(i)"


@pytest.fixture
def main(root: Path) -> Iterator[Session]:
    with duckrun.connect(root) as session:
        session.sql(f"create table sales.orders as {ORDERS}")
        session.sql("create table sales.items as select 1 as item")
        yield session


@pytest.fixture
def branch(main: Session, root: Path) -> Iterator[Session]:
    with duckrun.connect(root, branch="pr-42") as session:
        session.sql("delete from sales.orders where id = 3")
        session.sql("insert into sales.items values (2)")
        yield session


def drop(main: Session, name: str = "sales.orders") -> None:
    main.lake.drop(main.table(name).ref, force=True)


def drop_and_create(main: Session) -> None:
    drop(main)
    main.sql("create table sales.orders as select 7 as id")


def replace(main: Session) -> None:
    main.sql("create or replace table sales.orders as select 7 as id")


@pytest.mark.parametrize(
    ("change", "reason"), [(drop, "dropped since"), (drop_and_create, "created again"), (replace, "columns|again")]
)
def test_a_publish_names_a_table_that_main_has_no_more_and_keeps_the_branch(
    main: Session, branch: Session, change: Callable[[Session], None], reason: str
) -> None:
    change(main)
    for call in (main.publish, main.rebase):
        with pytest.raises(CommitConflict, match=f"sales.orders: .*({reason})") as caught:
            call("pr-42")
        assert caught.value.committed is False
    assert values(main, "from sales.items") == [(1,)]
    assert values(branch, "from sales.items") == [(1,), (2,)]
    assert [each.state for each in main.branches()] == ["open"]
    assert main.discard("pr-42")


def test_a_branch_whose_table_was_dropped_can_be_run_again_and_published(main: Session, branch: Session) -> None:
    drop(main)
    with pytest.raises(CommitConflict):
        main.publish("pr-42")
    branch.sql("create table sales.orders as select 8 as id")
    assert main.publish("pr-42").versions == {"sales.items": 1, "sales.orders": 0}
    assert values(main, "from sales.orders") == [(8,)]


def test_a_drop_is_not_published_over_the_rows_of_another_branch(main: Session, branch: Session, root: Path) -> None:
    with duckrun.connect(root, branch="cleaning") as other:
        other.sql("drop table sales.orders")
        with pytest.raises(CommitConflict, match="sales.orders: .*pr-42"):
            main.publish("cleaning")
        main.publish("pr-42")
        with pytest.raises(CommitConflict, match="was changed since"):
            main.publish("cleaning")
    assert main.sql("from sales.orders").count() == 9


def test_a_table_dropped_in_a_branch_whose_next_table_was_never_written_is_dropped(
    main: Session, branch: Session
) -> None:
    branch.sql("drop table sales.items")
    with pytest.raises(DuckrunError):
        branch.sql("create table sales.items as select error('no row')::int as x")
    assert "sales.items" not in branch.tables()
    main.publish("pr-42")
    assert main.tables() == ["sales.orders"]


def test_publishes_of_one_branch_at_once_make_one(main: Session, branch: Session, root: Path) -> None:
    results: list[object] = []

    def publish() -> None:
        with duckrun.connect(root) as session:
            try:
                results.append(session.publish("pr-42").replayed)
            except DuckrunError as error:
                results.append(error)

    threads = [threading.Thread(target=publish) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, results)) == ["False", "True", "True"]
    assert main.table("sales.orders").snapshot().version == 1


def test_several_writers_of_one_branch_lose_no_row(main: Session, branch: Session, root: Path) -> None:
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            with duckrun.connect(root, branch="pr-42") as session:
                for name in ("items", "orders", "fresh"):
                    if name == "fresh":
                        table = pa.table({"x": pa.array([number], pa.int32())})
                        session.execute("sales.fresh", WriteSpec("append"), table)
                    elif name == "items":
                        session.sql(f"insert into sales.items values ({number})")
                    else:
                        session.sql(f"insert into sales.orders values ({number}, 'EU', 0)")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(100, 104)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    main.publish("pr-42")
    assert values(main, "from sales.items") == [(1,), (2,), *((number,) for number in range(100, 104))]
    assert values(main, "from sales.fresh") == [(number,) for number in range(100, 104)]
    assert main.sql("from sales.orders").count() == 13


def rows(*ids: int, region: str) -> pa.Table:
    columns = {"id": pa.array(ids, pa.int32()), "region": [region] * len(ids), "price": pa.array(ids, pa.int32())}
    return pa.table(columns)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda folder: write_deltalake(folder, rows(50, region="US"), mode="append"), None),
        (lambda folder: write_deltalake(folder, rows(50, region="EU"), mode="append"), "computed from"),
        (lambda folder: write_deltalake(folder, rows(50, region="US"), mode="overwrite"), "removed the file"),
        (lambda folder: DeltaTable(folder).delete("id = 1"), "removed the file"),
        (lambda folder: DeltaTable(folder).optimize.compact(), None),
    ],
    ids=["other rows", "rows of the condition", "overwrite", "delete", "compaction of one file"],
)
def test_commits_of_plain_deltalake_are_judged_like_others(
    main: Session, root: Path, write: Callable[[str], object], reason: str | None
) -> None:
    folder = (root / "sales" / "orders").as_posix()
    with duckrun.connect(root, branch="pr-42") as branch:
        branch.sql("update sales.orders set price = 0 where region = 'EU'")
    write(folder)
    if reason is not None:
        with pytest.raises(CommitConflict, match=reason):
            main.publish("pr-42")
        return
    main.publish("pr-42")
    written = DeltaTable(folder).to_pyarrow_table().to_pylist()
    assert all(row["price"] == 0 for row in written if row["region"] == "EU")
    assert sum(row["region"] == "EU" for row in written) == 5


def test_a_branch_whose_base_another_writer_has_vacuumed_names_what_is_gone(
    main: Session, branch: Session, root: Path
) -> None:
    folder = (root / "sales" / "orders").as_posix()
    with duckrun.connect(root, branch="other") as other:
        other.sql("insert into sales.orders values (51, 'US', 1)")
        write_deltalake(folder, rows(50, region="US"), mode="overwrite")
        assert DeltaTable(folder).vacuum(0, dry_run=False, enforce_retention_duration=False)
        with pytest.raises(StorageError, match="sales.orders in branch other: .* is gone"):
            other.sql("from sales.orders").collect()
        with pytest.raises(StorageError, match="sales.orders, update in branch other: .* is gone"):
            other.sql("update sales.orders set price = 1")
    with pytest.raises(CommitConflict, match="sales.orders: main removed the file"):
        main.publish("pr-42")
    main.publish("other")  # it needs no old file
    assert values(main, "select id from sales.orders") == [(50,), (51,)]
    assert values(branch, "from sales.items") == [(1,), (2,)]


def test_rows_that_main_has_written_and_vacuumed_since_count_as_read(main: Session, branch: Session) -> None:
    branch.sql("merge into sales.items t using (values (1)) s(item) on t.item = s.item when matched then delete")
    main.sql("insert into sales.items values (7)")
    main.sql("delete from sales.items where item = 7")
    main.execute("sales.items", VacuumSpec(retention_hours=0, enforce_retention=False))
    for work in (main.publish, main.rebase):
        with pytest.raises(CommitConflict, match="sales.items: .* computed from"):
            work("pr-42")


def test_a_branch_whose_base_left_the_log_says_so(main: Session, branch: Session, root: Path) -> None:
    for number in range(3):
        main.sql(f"insert into sales.orders values ({number + 20}, 'US', 1)")
    main.execute("sales.orders", OptimizeSpec())
    DeltaTable((root / "sales" / "orders").as_posix()).create_checkpoint()
    for version in range(4):  # as another writer's log cleanup does
        (root / "sales" / "orders" / "_delta_log" / f"{version:020d}.json").unlink()
    with duckrun.connect(root) as fresh:
        with pytest.raises(CommitConflict, match="sales.orders: main's log no longer has version 0"):
            fresh.publish("pr-42")
        with duckrun.connect(root, branch="pr-42") as again:
            assert values(again, "from sales.items") == [(1,), (2,)]
            with pytest.raises(VersionNotReadable, match="pr-42"):
                again.sql("from sales.orders").collect()
        assert fresh.discard("pr-42")


@pytest.mark.parametrize(
    "statement",
    [
        "alter table sales.orders add constraint dear check (price > 1000)",
        "alter table sales.orders alter column price set not null",
        "alter table sales.orders rename column nothing to anything",
        "insert into sales.orders select 'a', 'EU', 1",
        "update sales.orders set price = 1 / 'a'",
        "create table sales.orders (id int)",
        "optimize sales.orders where nothing = 1",
    ],
)
def test_errors_of_writes_name_the_branch(branch: Session, statement: str) -> None:
    branch.sql("insert into sales.orders (id) values (90)")
    with pytest.raises(duckrun.DuckrunError, match=r"sales\.orders.* branch pr-42"):
        branch.sql(statement)


def test_a_table_that_a_branch_has_forked_keeps_its_name(main: Session, branch: Session) -> None:
    with pytest.raises(CommitConflict, match="pr-42"):
        main.sql("alter table sales.orders rename to sales.others")
    main.publish("pr-42")
    main.sql("alter table sales.orders rename to sales.others")
    assert main.tables() == ["sales.items", "sales.others"]


@pytest.mark.parametrize("altered", [False, True], ids=["rows", "columns"])
def test_a_table_that_another_writer_made_anew_has_no_rows_of_the_branch(
    main: Session, branch: Session, root: Path, altered: bool
) -> None:
    folder = root / "sales" / "orders"
    if altered:
        branch.sql("alter table sales.orders add column note varchar")
    shutil.rmtree(folder / "_delta_log")
    for _ in range(3):
        write_deltalake(folder.as_posix(), rows(70, region="EU"), mode="append")
    with duckrun.connect(root, branch="pr-42") as again:
        with pytest.raises(TableNotFound, match="created again in main since branch pr-42"):
            again.sql("from sales.orders")
        with pytest.raises(DuckrunError, match="created again"):
            again.sql("insert into sales.orders (id) values (1)")
        assert values(again, "from sales.items") == [(1,), (2,)]
    with duckrun.connect(root) as fresh:
        with pytest.raises(CommitConflict, match="sales.orders: .*created again"):
            fresh.publish("pr-42")
        assert values(fresh, "select id from sales.orders") == [(70,)] * 3
        assert fresh.discard("pr-42")


WRITES: dict[str, tuple[str, Callable[[Session], bool]]] = {
    "first write": ("insert into sales.other values (50)", lambda s: (50,) in values(s, "from sales.other")),
    "first write drops": ("drop table sales.other", lambda s: "sales.other" not in s.tables()),
    "commit": ("insert into sales.items values (50)", lambda s: (50,) in values(s, "from sales.items")),
    "drop": ("drop table sales.items", lambda s: "sales.items" not in s.tables()),
    "drop and create": (
        "drop table sales.items; create table sales.items as select 8 as item",
        lambda s: values(s, "from sales.items") == [(8,)],
    ),
    "create": ("create table sales.made as select 1 as x", lambda s: "sales.made" in s.tables()),
    "view": ("create view sales.seen as select 1 as x", lambda s: "sales.seen" in s.tables()),
    "view replaced": (
        "create or replace view sales.whole as select 9 as x",
        lambda s: values(s, "from sales.whole") == [(9,)],
    ),
    "view dropped": ("drop view sales.whole", lambda s: "sales.whole" not in s.tables()),
    "own view dropped": ("drop view sales.own", lambda s: "sales.own" not in s.tables()),
    "schema": ("create schema plans", lambda s: "plans" in s.lake.schemas()),
}
"""Writes to a branch, each with a check that main has its effect."""


def left_of_branch(root: Path) -> list[Path]:
    """Return files of branches that should go with them."""
    registry = [path for path in root.glob("_duckrun/branches/**/*.json") if path.name != "closed.json"]
    return [*root.rglob("branch.json"), *registry]


@pytest.mark.parametrize("end", ["publish", "discard"])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_while_its_branch_ends_is_in_main_or_raises(
    main: Session, branch: Session, root: Path, write: str, end: str
) -> None:
    main.sql("create table sales.other as select 1 as id; create view sales.whole as select 1 as x")
    branch.sql("create view sales.own as select 2 as x")
    statement, is_in_main = WRITES[write]
    for number in count(1):
        lake = root.with_name(f"lake-{number}")
        shutil.copytree(root, lake)

        def end_branch(lake: Path = lake) -> None:
            # Refused while a first write to a table is half-way; the branch is open again.
            with duckrun.connect(lake) as other, suppress(CommitConflict):
                getattr(other, end)("pr-42")

        is_written = False
        with duckrun.connect(lake, branch="pr-42") as session, pytest.MonkeyPatch.context() as patched:
            writes = interrupted_at(patched, number, end_branch)
            with suppress(CommitConflict):
                session.sql(statement)
                is_written = True
        if writes[0] < number:
            break
        with duckrun.connect(lake) as after:
            if after.branches():
                assert end == "publish" and is_written
                after.publish("pr-42")
            if end == "publish" and is_written:
                assert is_in_main(after), number
            assert left_of_branch(lake) == [], number
            for name in after.tables():
                assert after.sql(f"from {name}").collect()
            for name in ("orders", "items", "other"):
                after.sql(f"drop table if exists sales.{name}")
    assert number > 1


@pytest.mark.parametrize("end", ["publish", "discard"])
@pytest.mark.parametrize(
    "statement",
    [
        "insert into sales.orders values (50, 'EU', 1)",
        "insert into sales.other values (50)",
        "drop table sales.other",
        "create table sales.made as select 1 as x",
        "create view sales.seen as select 1 as x",
        "create schema plans",
        "create schema plans; create table plans.made as select 1 as x",
    ],
)
def test_an_open_session_of_an_ended_branch_takes_no_writes(
    main: Session, branch: Session, root: Path, end: str, statement: str
) -> None:
    main.sql("create table sales.other as select 1 as id")
    getattr(main, end)("pr-42")
    before = main.tables()
    with pytest.raises(CommitConflict, match="takes no more"):
        branch.sql(statement)
    assert (main.tables(), main.lake.schemas()) == (before, ["sales"])
    assert left_of_branch(root) == []


def test_a_table_whose_line_is_missing_is_named_by_the_publish(main: Session, branch: Session, root: Path) -> None:
    branch.sql("create table sales.made as select 1 as x")
    for name in ("items", "made"):
        shutil.rmtree(root / "sales" / name / "_branches")
    for call in (main.publish, main.rebase):
        with pytest.raises(CommitConflict, match=r"sales.items: .*branch.json is missing.*sales.made: .*is missing"):
            call("pr-42")
    branch.sql("create table sales.made as select 3 as x")
    branch.sql("insert into sales.items values (3)")
    assert main.publish("pr-42").versions == {"sales.items": 1, "sales.made": 0, "sales.orders": 1}
    assert values(main, "from sales.items") == [(1,), (3,)]


def test_a_killed_drop_is_completed_by_the_publish(main: Session, branch: Session, root: Path) -> None:
    (line,) = (root / "sales" / "items").rglob("branch.json")
    before = line.read_bytes()
    branch.sql("drop table sales.items")
    line.write_bytes(before)  # its process ended after it had ended the line's log
    with pytest.raises(TableNotFound):
        branch.sql("insert into sales.items values (3)")
    line.write_bytes(before)
    assert main.publish("pr-42").versions == {"sales.orders": 1, "sales.items": None}
    assert main.tables() == ["sales.orders"]


@pytest.mark.parametrize("name", [None, "pr-42"])
def test_a_damaged_checkpoint_of_main_names_the_table(
    main: Session, branch: Session, root: Path, name: str | None
) -> None:
    folder = root / "sales" / "orders"
    DeltaTable(folder).create_checkpoint()
    (checkpoint,) = folder.glob("_delta_log/*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:200])
    with duckrun.connect(root, branch=name) as session:
        for statement in ("from sales.orders", "delete from sales.orders where id = 1"):
            with pytest.raises(StorageError, match="Cannot open table sales.orders"):
                session.sql(statement).collect()
