"""A branch of a lake: it sees its own writes and main's tables, and main sees nothing of it."""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import duckrun
from duckrun import (
    CommitConflict,
    DuckrunError,
    InvalidConfig,
    OptimizeSpec,
    ReadOnlyLake,
    Session,
    TableNotFound,
    UnsupportedFeature,
    VacuumSpec,
    VersionNotReadable,
    WriteSpec,
)
from duckrun.formats.delta.log.lines import LineStorage
from duckrun.lake.lake import LocationDefinition
from duckrun.storage.storage import Storage
from duckrun.values.cursors import hashed
from tests.branches.rows import values


def test_a_write_in_a_branch_is_seen_there_alone(main: Session, branch: Session) -> None:
    before = values(main, "from sales.orders")
    commit = branch.sql("update sales.orders set price = price * 10 where region = 'EU'")
    assert (commit.version, commit.rows_updated) == (1, 5)
    changed = [(i, region, price * 10 if region == "EU" else price) for i, region, price in before]
    assert values(branch, "from sales.orders") == changed
    assert values(main, "from sales.orders") == before
    assert main.table("sales.orders").snapshot().version == 0


def test_tables_that_a_branch_does_not_write_are_mains_newest(main: Session, branch: Session) -> None:
    branch.sql("insert into sales.items values (2)")
    main.sql("delete from sales.orders where id > 3")
    main.sql("insert into sales.items values (3)")
    assert values(branch, "select id from sales.orders") == [(0,), (1,), (2,), (3,)]
    assert values(branch, "from sales.items") == [(1,), (2,)]


def test_a_branch_at_a_time_reads_tables_as_they_were_then(main: Session, root: Path) -> None:
    moment = main.table("sales.orders").history()[0]["timestamp"] + 1
    from datetime import UTC, datetime

    at = datetime.fromtimestamp(moment / 1000, UTC).isoformat()
    main.sql("delete from sales.orders where id > 3")
    with duckrun.connect(root, branch="old", branch_at=at) as old:
        assert old.sql("from sales.orders").count() == 10
        old.sql("delete from sales.orders where id = 0")
        assert old.sql("from sales.orders").count() == 9
    with duckrun.connect(root, branch="old") as again:
        assert again.sql("from sales.orders").count() == 9
    with pytest.raises(InvalidConfig, match="leave branch_at out"):
        duckrun.connect(root, branch="old", branch_at="2020-01-01").sql("from sales.orders")


def test_a_branch_at_a_time_has_no_table_that_main_created_later(main: Session, root: Path) -> None:
    from datetime import UTC, datetime

    at = datetime.now(UTC).isoformat()
    main.sql("create table sales.later as select 1 as x")
    with duckrun.connect(root, branch="old", branch_at=at) as old:
        assert old.tables() == ["sales.items", "sales.orders"]
        with pytest.raises(DuckrunError, match="sales.later"):
            old.sql("from sales.later")
        old.sql("create table sales.later as select 2 as x")
        assert values(old, "from sales.later") == [(2,)]
    with pytest.raises(CommitConflict, match="main has"):
        main.publish("old")


def test_new_tables_and_views_of_a_branch_are_not_listed_in_main(main: Session, branch: Session) -> None:
    branch.sql("create table sales.totals as select region, sum(price) as total from sales.orders group by region")
    branch.sql("create view sales.best as select max(total) as best from sales.totals")
    branch.sql("create or replace view sales.top as select id from sales.orders where price > 10")
    assert branch.tables() == ["sales.best", "sales.items", "sales.orders", "sales.top", "sales.totals"]
    assert values(branch, "from sales.best") == [(37.5,)]
    assert main.tables() == ["sales.items", "sales.orders"]
    with pytest.raises(TableNotFound):
        main.sql("from sales.totals")


def test_a_table_that_a_branch_drops_stays_in_main(main: Session, branch: Session) -> None:
    branch.sql("drop table sales.items")
    assert branch.tables() == ["sales.orders"]
    with pytest.raises(TableNotFound):
        branch.sql("from sales.items")
    assert values(main, "from sales.items") == [(1,)]
    branch.sql("create table sales.items as select 'a' as letter")
    branch.sql("insert into sales.items values ('b')")
    assert values(branch, "from sales.items") == [("a",), ("b",)]
    assert values(main, "from sales.items") == [(1,)]


def test_a_branch_creates_a_table_anew_beside_files_of_main_with_any_name(
    main: Session, branch: Session, root: Path
) -> None:
    main.sql("alter table sales.orders set tblproperties ('delta.enableDeletionVectors' = 'true')")
    main.sql("delete from sales.orders where id = 3")
    assert list((root / "sales" / "orders").glob("*.bin"))
    branch.sql("drop table sales.orders")
    branch.sql("create table sales.orders as select 1 as id")
    assert values(branch, "from sales.orders") == [(1,)]
    main.publish("pr-42")
    assert values(main, "from sales.orders") == [(1,)]


def test_older_versions_and_changes_of_a_branch_can_be_read(branch: Session) -> None:
    branch.sql("update sales.orders set price = 0 where id = 1")
    branch.sql("delete from sales.orders where id = 2")
    orders = branch.table("sales.orders")
    assert [each["version"] for each in orders.history()] == [2, 1, 0]
    assert [orders.toDF(version=number).count() for number in (0, 1, 2)] == [10, 10, 9]
    changes = {(row["id"], row["_change_type"]) for row in orders.changes("min_delta", from_version=0).collect()}
    assert changes == {(1, "delete"), (1, "insert"), (2, "delete")}
    orders.restoreToVersion(0)
    assert branch.sql("from sales.orders").count() == 10
    with pytest.raises(VersionNotReadable):
        orders.toDF(version=9).collect()


@pytest.mark.parametrize("name", ["feature/x", "", "_x", ".x", "a b", "ä", "x" * 65, "x.", 3])
def test_a_name_that_is_no_folder_name_is_refused(root: Path, name: str) -> None:
    with pytest.raises(InvalidConfig, match="cannot name a branch|branch is"):
        duckrun.connect(root, branch=name)


def test_lakes_without_branches_are_refused_by_name(main: Session, root: Path, tmp_path: Path) -> None:
    with pytest.raises(ReadOnlyLake, match="pr-42"):
        duckrun.connect(root, branch="pr-42", read_only=True)
    with pytest.raises(UnsupportedFeature, match="publish: together"):
        duckrun.connect(tmp_path / "ducks", branch="pr-42", format="ducklake")
    with duckrun.connect(tmp_path / "ducks", format="ducklake") as ducks, pytest.raises(UnsupportedFeature):
        ducks.branches()
    with pytest.raises(InvalidConfig, match="Did you mean"):
        with duckrun.connect(root, branch="pr-42") as session:
            session.tables()
        main.diff("pr-43")
    with duckrun.connect(root, read_only=True) as closed:
        assert [each.name for each in closed.branches()] == ["pr-42"]
        with pytest.raises(ReadOnlyLake):
            closed.publish("pr-42")


def test_what_belongs_to_main_is_refused_in_a_branch(branch: Session) -> None:
    with pytest.raises(UnsupportedFeature, match="branch pr-42"):
        branch.execute("sales.orders", VacuumSpec())
    with pytest.raises(UnsupportedFeature, match="identity"):
        branch.sql("create table sales.numbered (id bigint generated always as identity, v int)")
    with pytest.raises(UnsupportedFeature, match="renamed"):
        branch.sql("alter table sales.orders rename to sales.other")


def test_each_commit_of_a_branch_is_read_once(branch: Session, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        branch.sql(f"insert into sales.items values ({number})")
    branch.sql("alter table sales.items add column note varchar")
    paths: list[str] = []
    read = Storage.read_at

    def counted(storage: Storage, location: str, path: str) -> bytes | None:
        paths.append(path)
        return read(storage, location, path)

    monkeypatch.setattr(Storage, "read_at", counted)
    with duckrun.connect(root, branch="pr-42") as session:
        tables, ref = session.lake.format, session.table("sales.items").ref
        counts = []
        for _ in range(3):
            paths.clear()
            assert tables.handle(ref).version() == 6
            counts.append(sum("/_log/" in path for path in paths))
    assert counts == [7, 1, 1]  # then the newest one, which may be a seal


def test_two_sessions_of_a_branch_see_each_other(branch: Session, root: Path) -> None:
    with duckrun.connect(root, branch="pr-42") as other:
        other.sql("insert into sales.orders values (100, 'EU', 1)")
        assert branch.sql("from sales.orders").count() == 11
        branch.sql("insert into sales.orders values (101, 'EU', 1)")
        other.sql("insert into sales.orders values (102, 'EU', 1)")
        assert [session.sql("from sales.orders").count() for session in (branch, other)] == [13, 13]


def test_diff_tells_versions_rows_and_columns(main: Session, branch: Session) -> None:
    branch.sql("update sales.orders set price = 0 where region = 'EU'")
    branch.sql("insert into sales.orders values (100, 'EU', 1)")
    branch.sql("alter table sales.items add column name varchar")
    branch.sql("create table sales.made as select 1 as x")
    main.sql("insert into sales.orders values (200, 'US', 2)")
    diff = main.diff("pr-42")
    assert [(each.table, each.change) for each in diff] == [
        ("sales.items", "changed"),
        ("sales.made", "created"),
        ("sales.orders", "changed"),
    ]
    items, _, orders = diff
    assert items.schema_changes == ("column name string added",)
    assert (orders.base_version, orders.version, orders.main_version) == (0, 2, 1)
    assert (orders.rows_inserted, orders.rows_updated, orders.rows_deleted) == (1, 5, 0)
    rows = diff.table("sales.orders").collect()
    assert diff.table("SALES.Orders").count() == len(rows)
    assert sorted(row["_change_type"] for row in rows) == ["delete"] * 4 + ["insert"] * 5  # the price of id 0 was 0
    assert "sales.made" in diff._repr_html_()
    with pytest.raises(InvalidConfig, match="does not change"):
        diff.table("sales.nothing")
    (info,) = main.branches()
    assert "pr-42" in main.branches()._repr_html_()
    assert (info.name, info.tables, info.rows_changed) == ("pr-42", ("sales.items", "sales.made", "sales.orders"), 7)


def test_the_changed_rows_of_a_branch_are_read_by_one_session_that_ends_with_this_one(
    main: Session, branch: Session, root: Path
) -> None:
    branch.sql("update sales.orders set price = 0 where id = 1")
    branch.sql("insert into sales.items values (2)")
    with duckrun.connect(root) as session:
        diff = session.diff("pr-42")
        assert [diff.table(name).count() for name in ("sales.items", "sales.orders")] == [1, 2]
        (reader,) = session.of_branches.values()
        main.discard("pr-42")
        with duckrun.connect(root, branch="pr-42") as again:
            again.sql("insert into sales.items values (3), (4)")
        assert session.diff("pr-42").table("sales.items").count() == 2  # another branch of the same name
    assert reader.closed


def test_discard_removes_all_of_a_branch(main: Session, branch: Session, root: Path) -> None:
    branch.sql("delete from sales.orders where id = 0")
    branch.sql("create table sales.made as select 1 as x")
    branch.sql("create view sales.seen as from sales.made")
    assert main.discard("pr-42") == ("sales.made", "sales.orders")
    assert main.branches() == []
    assert not list(root.rglob("*pr-42*.parquet"))
    assert not (root / "sales" / "made").exists()
    assert main.sql("from sales.orders").count() == 10
    with pytest.raises(CommitConflict, match="no more writes"):
        branch.sql("delete from sales.orders where id = 1")
    with duckrun.connect(root, branch="pr-42") as again:
        assert again.sql("from sales.orders").count() == 10


def test_main_keeps_a_table_with_branches_unless_it_is_forced(main: Session, branch: Session) -> None:
    branch.sql("delete from sales.orders where id = 0")
    with pytest.raises(CommitConflict, match="pr-42"):
        main.sql("drop table sales.orders")
    assert main.sql("from sales.orders").count() == 10
    main.lake.drop(main.table("sales.orders").ref, force=True)
    assert main.tables() == ["sales.items"]


def test_staged_files_and_frames_are_written_in_a_branch(main: Session, branch: Session, root: Path) -> None:
    rows = pa.table({"id": [7, 8], "day": ["a b", "c/d"]})
    branch.execute("sales.days", WriteSpec("error", partition_by=("day",)), rows)
    branch.execute("sales.days", WriteSpec("replace"), pa.table({"id": [9], "day": ["a b"]}))
    files = branch.stage("sales.days", pa.table({"id": [10], "day": ["e%f"]}))
    branch.commit_staged("sales.days", files, WriteSpec("append"))
    branch.execute("sales.days", OptimizeSpec())
    assert values(branch, "select day, id from sales.days") == [("a b", 9), ("c/d", 8), ("e%f", 10)]
    main.publish("pr-42")
    plain = DeltaTable((root / "sales" / "days").as_posix()).to_pyarrow_table()
    assert sorted(plain.to_pydict()["id"]) == [8, 9, 10]


def test_the_storage_of_a_branch_maps_each_access_below_a_table() -> None:
    mapped = {
        name
        for name, method in inspect.getmembers(Storage, inspect.isfunction)
        if not name.startswith("_") and {"path", "paths"} & set(inspect.signature(method).parameters)
    }
    # Objects of the lake's root, and objects that are never in a log.
    outside = {"read", "put", "remove", "put_at", "remove_below"}
    assert mapped - outside <= set(vars(LineStorage))


def as_older_versions_wrote(root: Path) -> None:
    """Let the records of forks have absolute paths."""
    for file in root.glob("_duckrun/branches/*/forks/*.json"):
        record = json.loads(file.read_text())
        location = (root / record.pop("path")).as_posix()
        file.unlink()
        file.with_name(f"{hashed(location)}.json").write_text(json.dumps({**record, "location": location}))


def files(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.suffix != ".lock"}


@pytest.mark.parametrize("end", ["publish", "discard", "rebase"])
@pytest.mark.parametrize("is_old", [False, True], ids=["now", "older version"])
def test_a_copied_and_a_moved_lake_have_their_own_branches(
    main: Session, branch: Session, root: Path, is_old: bool, end: str
) -> None:
    main.lake.put_definition(main.lake.parse("sales.aside"), LocationDefinition(f"{root}/files/aside"))
    main.execute("sales.aside", WriteSpec("error"), pa.table({"x": [1]}))
    branch.sql("delete from sales.orders where id < 5")
    branch.sql("insert into sales.items values (2)")
    branch.sql("create table sales.made as select 7 as x")
    if is_old:
        as_older_versions_wrote(root)
    branch.sql("insert into sales.items values (3)")
    before = files(root)
    copy = Path(shutil.copytree(root, root.with_name("copy")))
    with duckrun.connect(copy) as session, duckrun.connect(copy, branch="pr-42") as again:
        again.sql("insert into sales.aside values (2)")
        if end == "rebase":
            session.sql("insert into sales.orders values (50, 'EU', 1)")
        assert getattr(session, end)("pr-42")
        if end == "publish":
            assert session.sql("from sales.orders").count() == 5
            assert values(session, "from sales.aside") == [(1,), (2,)]
            assert values(session, "from sales.made") == [(7,)]
    assert files(root) == before
    moved = root.rename(root.with_name("moved"))
    with duckrun.connect(moved) as session:
        assert session.publish("pr-42").versions == {"sales.items": 1, "sales.made": 0, "sales.orders": 1}
        assert values(session, "from sales.items") == [(1,), (2,), (3,)]
        assert values(session, "from sales.aside") == [(1,)]
    assert not root.exists()


@pytest.mark.parametrize("is_old", [False, True], ids=["now", "older version"])
def test_a_table_outside_of_a_moved_lake_stays_where_it_is(
    main: Session, branch: Session, root: Path, is_old: bool
) -> None:
    away = root.with_name("elsewhere") / "sales" / "away"
    main.lake.put_definition(main.lake.parse("sales.away"), LocationDefinition(away.as_posix()))
    main.execute("sales.away", WriteSpec("error"), pa.table({"x": [1]}))
    branch.sql("insert into sales.away values (2)")
    if is_old:
        as_older_versions_wrote(root)
    with duckrun.connect(root.rename(root.with_name("moved"))) as session:
        assert session.publish("pr-42").versions == {"sales.away": 1}
    assert DeltaTable(away).to_pyarrow_table().num_rows == 2


def test_an_older_branch_of_a_moved_lake_names_a_table_that_was_left_behind(
    main: Session, branch: Session, root: Path
) -> None:
    branch.sql("create table sales.made as select 7 as x")
    as_older_versions_wrote(root)
    copy = Path(shutil.copytree(root, root.with_name("copy")))
    shutil.rmtree(copy / "sales" / "made")
    with (
        duckrun.connect(copy) as session,
        pytest.raises(CommitConflict, match=f"sales.made: {copy}/sales/made/.*/branch.json is missing"),
    ):
        session.publish("pr-42")
    assert branch.tables() == ["sales.items", "sales.made", "sales.orders"]
