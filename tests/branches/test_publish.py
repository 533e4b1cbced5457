"""Publish of a branch: one commit per table or none, tested against what main has committed since."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import duckrun
from duckrun import (
    AppTransaction,
    CommitConflict,
    DeleteSpec,
    InvalidConfig,
    OptimizeSpec,
    Session,
    StorageError,
    UpdateSpec,
    VacuumSpec,
    WriteSpec,
)
from duckrun.branches import registry
from duckrun.engines.duckdb import load_extensions
from duckrun.formats.format import logs_of
from tests.branches.killing import Killed, killed_at
from tests.branches.rows import values


def by_others(root: Path, table: str) -> list[list[tuple[object, ...]]]:
    """The rows of a table as deltalake and DuckDB's own Delta extension read them."""
    folder = (root / "sales" / table).as_posix()
    delta = QueryBuilder().register("t", DeltaTable(folder)).execute("select * from t").read_all()
    connection = duckdb.connect()
    load_extensions(connection)
    scanned = connection.sql(f"from delta_scan('{folder}')").fetchall()
    return [sorted(tuple(row.values()) for row in pa.table(delta).to_pylist()), sorted(scanned)]


def test_a_publish_makes_one_commit_of_each_table_that_others_read(main: Session, branch: Session, root: Path) -> None:
    branch.sql("update sales.orders set price = 0 where region = 'EU'")
    branch.sql("delete from sales.orders where id = 3")
    branch.sql("insert into sales.orders values (100, 'EU', 7)")
    branch.sql("create table sales.made as select 5 as x")
    branch.sql("create view sales.seen as select sum(price) as total from sales.orders")
    branch.sql("drop table sales.items")
    expected = values(branch, "from sales.orders")
    published = main.publish("pr-42")
    assert published.versions == {"sales.made": 0, "sales.orders": 1, "sales.items": None}
    assert published.before == {"sales.made": None, "sales.orders": 0, "sales.items": 0}
    assert main.tables() == ["sales.made", "sales.orders", "sales.seen"]
    assert values(main, "from sales.orders") == expected
    assert by_others(root, "orders") == [expected, expected]
    assert values(main, "from sales.seen") == [(sum(row[2] for row in expected),)]
    newest = main.table("sales.orders").history()[0]
    assert (newest["operation"], newest["duckrun"]["publish"]) == ("PUBLISH", published.id)
    assert (root / "_duckrun" / "publish" / f"{published.id}.json").is_file()
    changes = main.table("sales.orders").changes("min_delta", from_version=0).collect()
    assert len(changes) == 5 * 2 - 2 + 1 + 1  # the price of id 0 was 0 before
    assert main.branches() == []


def test_a_second_publish_says_that_the_branch_is_published(main: Session, branch: Session) -> None:
    branch.sql("delete from sales.orders where id = 3")
    first = main.publish("pr-42")
    again = main.publish("pr-42")
    assert (again.replayed, again.id, again.versions) == (True, first.id, first.versions)
    assert main.table("sales.orders").snapshot().version == 1
    with pytest.raises(CommitConflict, match="no more writes"):
        branch.sql("delete from sales.items where item = 1")
    with pytest.raises(CommitConflict, match="takes no more"):
        branch.sql("delete from sales.orders where id = 4")
    assert values(branch, "select count(*) from sales.orders") == [(9,)]
    with pytest.raises(InvalidConfig, match="has no branch"):
        main.publish("never")


def test_a_session_of_a_branch_can_publish_it(branch: Session, main: Session) -> None:
    branch.sql("delete from sales.orders where id = 3")
    branch.publish("pr-42")
    assert main.sql("from sales.orders").count() == 9


def test_an_empty_branch_can_be_published(main: Session, branch: Session) -> None:
    assert branch.tables() == ["sales.items", "sales.orders"]
    assert main.publish("pr-42").versions == {}


MARKS = "alter table sales.orders set tblproperties ('delta.enableDeletionVectors' = 'true')"


@pytest.mark.parametrize("vectors", [True, False])
def test_both_sides_may_change_other_rows_of_a_file_by_vectors(
    main: Session, branch: Session, root: Path, vectors: bool
) -> None:
    if vectors:
        main.sql(MARKS)
        main.sql("delete from sales.orders where id = 9")
    branch.sql("delete from sales.orders where id = 3")
    branch.sql("update sales.orders set price = 0 where id = 4")
    main.sql("delete from sales.orders where id = 5")
    main.sql("insert into sales.orders values (50, 'US', 1)")
    if not vectors:
        with pytest.raises(CommitConflict, match="main removed the file"):
            main.publish("pr-42")
        return
    main.publish("pr-42")
    ids = [0, 1, 2, 4, 6, 7, 8, 50]
    rows = values(main, "from sales.orders")
    assert [row[0] for row in rows] == ids
    assert by_others(root, "orders") == [rows, rows]


MERGE = """merge into sales.orders o using (from range(70, 72) r(id) select id, 'US' as region, 1.0 as price
    union all select 3, 'US', 1.0) s on o.id = s.id
    when matched then update set price = s.price when not matched then insert (id, region, price) values (s.id, s.region, s.price)"""


@pytest.mark.parametrize(
    ("ours", "theirs", "reason"),
    [
        ("delete from sales.orders where id = 3", "delete from sales.orders where id = 3", "rows"),
        ("update sales.orders set price = 0 where region = 'EU'", "insert into sales.orders values (50, 'EU', 1)", "computed"),
        ("update sales.orders set price = 0 where region = 'EU'", "insert into sales.orders values (50, 'US', 1)", None),
        ("update sales.orders o set price = s.n from (select 3 as i, 0 as n) s where o.id = s.i", "insert into sales.orders values (50, 'US', 1)", "computed"),
        ("insert into sales.orders values (50, 'US', 1)", "delete from sales.orders where id = 1", None),
        ("insert into sales.orders values (50, 'US', 1)", "insert into sales.orders values (50, 'US', 1)", None),
        ("insert into sales.orders select max(id) + 1, 'US', 0 from sales.orders", "insert into sales.orders values (50, 'US', 1)", "computed"),
        (MERGE, "insert into sales.orders values (50, 'US', 1)", None),
        (MERGE, "update sales.orders set price = 0 where id = 5", None),
        (MERGE, "insert into sales.orders values (70, 'US', 1)", "computed"),
        (MERGE, "insert into sales.orders values (3, 'US', 1)", "computed"),
        (MERGE.replace("o.id = s.id", "o.id + 0 = s.id"), "insert into sales.orders values (50, 'US', 1)", "computed"),
        (MERGE.replace("range(70, 72)", "range(70, 300)"), "insert into sales.orders values (301, 'US', 1)", None),
        (MERGE.replace("range(70, 72)", "range(70, 300)"), "insert into sales.orders values (200, 'US', 1)", "computed"),
        ("update sales.orders set price = (select max(price) from sales.orders) where id = 1", "insert into sales.orders values (50, 'US', 90)", "computed"),
        ("create or replace table sales.orders as select 1 as id", "insert into sales.orders values (50, 'US', 1)", "columns"),
        ("alter table sales.orders add column note varchar", "alter table sales.orders add column other int", "both sides"),
        ("alter table sales.orders add column note varchar", "insert into sales.orders values (50, 'US', 1)", "main changed rows"),
        ("insert into sales.orders values (50, 'US', 1)", "alter table sales.orders add column note varchar", "main changed its columns"),
        ("insert into sales.orders values (50, 'US', 1)", "alter table sales.orders set tblproperties ('a' = 'b')", None),
        ("alter table sales.orders set tblproperties ('a' = 'b')", "alter table sales.orders set tblproperties ('c' = 'd')", None),
        ("delete from sales.orders where id = 3", "drop table sales.orders", "dropped"),
        ("drop table sales.orders", "delete from sales.orders where id = 3", "changed since"),
        ("create table sales.made as select 1 as x", "create table sales.made as select 2 as y", "main has a table"),
    ],
)  # fmt: skip
def test_a_publish_obeys_the_rules_of_every_commit(
    main: Session, branch: Session, ours: str, theirs: str, reason: str | None
) -> None:
    main.sql(MARKS)
    branch.sql("insert into sales.items values (2)")
    branch.sql(ours)
    if theirs.startswith("drop"):
        main.lake.drop(main.table("sales.orders").ref, force=True)
    else:
        main.sql(theirs)
    before = None if reason is None else {name: main.table(name).snapshot().version for name in main.tables()}
    if reason is None:
        main.publish("pr-42")
        assert values(main, "from sales.items") == [(1,), (2,)]
        return
    with pytest.raises(CommitConflict, match=reason) as caught:
        main.publish("pr-42")
    assert caught.value.committed is False
    assert {name: main.table(name).snapshot().version for name in main.tables()} == before
    branch.sql("insert into sales.items values (3)")  # the branch is open again
    assert values(main, "from sales.items") == [(1,)]
    assert [each.state for each in main.branches()] == ["open"]


SET = "alter table t set tblproperties "


@pytest.mark.parametrize(
    ("ours", "theirs", "reason"),
    [
        ([SET + "('a' = '2')"], [SET + "('a' = '1')"], "both sides changed the property a"),
        (["comment on table t is 'ours'"], ["comment on table t is 'theirs'"], "both sides changed its description"),
        (["alter table t cluster by (g)"], ["alter table t cluster by (i)"], "both sides changed its clustering"),
        (["delete from t where i = 1"], [SET + "('delta.appendOnly' = 'true')"], "append-only"),
        (["drop table t", "create table t (x int)"], [SET + "('delta.appendOnly' = 'true')"], "append-only"),
    ],
    ids=["property", "comment", "clustering", "append-only", "append-only table replaced"],
)
def test_definitions_that_both_sides_change_leave_main(
    main: Session, branch: Session, ours: list[str], theirs: list[str], reason: str
) -> None:
    main.sql("create table t as select 1 as i, 2 as g")
    for session, statements in ((branch, [*ours, "create table other.u as select 1 as x"]), (main, theirs)):
        for statement in statements:
            session.sql(statement)
    version = main.table("t").snapshot().version
    with pytest.raises(CommitConflict, match=f"main.t: .*{reason}.*Main is unchanged"):
        main.publish("pr-42")
    assert (main.table("t").snapshot().version, "other.u" in main.tables()) == (version, False)


def test_a_table_that_its_commit_would_refuse_is_refused_before_any_other_is_published(
    main: Session, branch: Session, root: Path
) -> None:
    branch.sql("insert into sales.items values (2)")
    branch.sql("insert into sales.orders values (50, 'US', 1)")
    main.sql("alter table sales.orders set tblproperties ('delta.enableRowTracking' = 'true')")
    # A file without statistics, as Spark may write it: its rows are counted for their ids.
    (commit,) = (root / "sales" / "orders").glob("_branches/pr-42-*/_log/*.json")
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    (added,) = (action["add"] for action in actions if "add" in action)
    stats = added.pop("stats")
    commit.write_text("\n".join(map(json.dumps, actions)))
    file = root / "sales" / "orders" / added["path"]
    file.rename(file.with_suffix(".gone"))
    versions = [main.table(name).snapshot().version for name in main.tables()]
    with duckrun.connect(root) as fresh, pytest.raises(StorageError, match="sales.orders"):
        fresh.publish("pr-42")
    assert [main.table(name).snapshot().version for name in main.tables()] == versions
    assert [each.state for each in main.branches()] == ["open"]
    file.with_suffix(".gone").rename(file)
    with duckrun.connect(root) as fresh:
        fresh.publish("pr-42")
    assert (main.sql("from sales.items").count(), main.sql("from sales.orders").count()) == (2, 11)
    (added,) = (json.loads(line)["add"] for line in _newest_entry(root, "orders") if '"add"' in line)
    assert json.loads(added["stats"])["numRecords"] == json.loads(stats)["numRecords"] == 1


def test_a_feature_that_main_gets_after_the_fork_is_a_conflict(main: Session, branch: Session, root: Path) -> None:
    for statement in ("insert into sales.items values (2)", "delete from sales.orders where id = 3"):
        branch.sql(statement)
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["checkpointProtection"]}
    log = root / "sales" / "orders" / "_delta_log"
    (log / "00000000000000000001.json").write_text(json.dumps({"protocol": protocol}))
    with pytest.raises(CommitConflict, match=r"sales\.orders: .*checkpointProtection"):
        main.publish("pr-42")
    assert main.sql("from sales.items").count() == 1
    branch.sql("insert into sales.items values (3)")


def _newest_entry(root: Path, table: str) -> list[str]:
    return max((root / "sales" / table / "_delta_log").glob("0*.json")).read_text().splitlines()


@pytest.mark.parametrize(
    ("ours", "part", "value"),
    [
        ("create or replace table sales.t partitioned by (g) as select * from sales.t", "partition_columns", ("g",)),
        ("alter table sales.t cluster by (g)", "cluster_by", (("g",),)),
        ("alter table sales.t set tblproperties ('b' = '2')", "description", "theirs"),
    ],
)
def test_a_definition_of_a_branch_is_put_over_that_of_main(
    main: Session, branch: Session, root: Path, ours: str, part: str, value: object
) -> None:
    main.sql("create table sales.t as select 1 as i, 2 as g")
    main.sql("insert into sales.t values (2, 3)")
    branch.sql(ours)
    main.sql("alter table sales.t set tblproperties ('a' = '1')")
    main.sql("comment on table sales.t is 'theirs'")
    main.publish("pr-42")
    snapshot = main.table("sales.t").snapshot()
    assert getattr(snapshot, part) == value
    assert (snapshot.description, snapshot.properties["a"]) == ("theirs", "1")
    main.sql("insert into sales.t values (4, 3)")
    assert values(main, "from sales.t") == [(1, 2), (2, 3), (4, 3)]
    assert by_others(root, "t") == [[(1, 2), (2, 3), (4, 3)]] * 2


def test_a_feed_that_main_turns_on_has_the_net_rows_alone(main: Session, branch: Session) -> None:
    main.sql("create table t as select i::int as i, 0 as g from range(3) r(i)")
    branch.sql("update t set g = 9 where i = 1")
    branch.sql(SET + "('a' = '1')")
    main.sql(SET + "('delta.enableChangeDataFeed' = 'true')")
    version = main.table("t").snapshot().version
    main.publish("pr-42")
    feed = main.table("t").changes("feed", version).collect()
    assert sorted((row["i"], row["g"]) for row in feed) == [(1, 0), (1, 9)]


def test_the_transactions_and_properties_of_a_branch_are_published(main: Session, branch: Session) -> None:
    app = AppTransaction("nightly", 7)
    branch.execute("sales.orders", UpdateSpec({"price": "0"}, "id = 1", app=app))
    branch.sql("alter table sales.orders set tblproperties ('team' = 'a')")
    main.publish("pr-42")
    assert main.execute("sales.orders", UpdateSpec({"price": "1"}, "id = 1", app=app)).replayed
    assert main.table("sales.orders").snapshot().properties["team"] == "a"


def test_optimize_in_a_branch_changes_no_row_of_main(main: Session, branch: Session) -> None:
    for number in range(3):
        main.sql(f"insert into sales.orders values ({100 + number}, 'EU', 1)")
    branch.execute("sales.orders", OptimizeSpec())
    before = main.table("sales.orders").snapshot().version
    main.publish("pr-42")
    record = main.lake.format.record(main.table("sales.orders").ref, before + 1)
    assert record is not None and not record.changes_rows and len(record.removed) == 4
    assert main.table("sales.orders").changes("min_delta", from_version=before).count() == 0


def test_a_table_replaced_in_a_branch_replaces_mains(main: Session, branch: Session, root: Path) -> None:
    branch.sql("drop table sales.items")
    branch.sql("create table sales.items as select 'a' as letter")
    assert main.publish("pr-42").versions == {"sales.items": 1}
    assert values(main, "from sales.items") == [("a",)]
    assert by_others(root, "items") == [[("a",)], [("a",)]]


def test_a_foreign_writer_goes_on_after_a_publish(main: Session, branch: Session, root: Path) -> None:
    branch.sql("insert into sales.items values (2)")
    main.publish("pr-42")
    write_deltalake((root / "sales" / "items").as_posix(), pa.table({"item": pa.array([3], pa.int32())}), mode="append")
    assert values(main, "from sales.items") == [(1,), (2,), (3,)]
    main.execute("sales.items", OptimizeSpec())
    main.execute("sales.items", VacuumSpec(retention_hours=0, enforce_retention=False))
    assert values(main, "from sales.items") == [(1,), (2,), (3,)]
    assert by_others(root, "items") == [[(1,), (2,), (3,)]] * 2


def test_vacuum_keeps_what_branches_read_and_removes_what_nobody_does(
    main: Session, branch: Session, root: Path
) -> None:
    now = VacuumSpec(retention_hours=0, enforce_retention=False)
    branch.sql("insert into sales.items values (2)")
    for number in range(12):
        main.sql(f"create or replace table sales.items as select {number} as item")
    assert main.execute("sales.items", now).removed  # of the versions that no branch reads
    assert values(branch, "from sales.items") == [(1,), (2,)]
    branch.sql("update sales.orders set price = 0")
    main.discard("pr-42")
    main.execute("sales.items", now)
    assert len(list((root / "sales" / "items").rglob("*.parquet"))) == 1 + 1  # and a checkpoint
    with duckrun.connect(root, branch="next") as other:
        other.sql("insert into sales.items values (3)")
        main.publish("next")
    assert not main.execute("sales.items", now).removed
    assert values(main, "from sales.items") == [(3,), (11,)]
    main.execute("sales.items", OptimizeSpec())
    (old,) = (path for path in main.execute("sales.items", now).removed if path.startswith("_branches"))
    assert old.endswith(".parquet")
    assert by_others(root, "items") == [[(3,), (11,)]] * 2


def test_a_vacuum_beside_a_publish_keeps_the_published_files(
    main: Session, branch: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lock of the table, as in an object store."""
    branch.sql("insert into sales.items values (2)")
    tables, now = main.lake.format, main.table("sales.items").snapshot()
    read = tables.snapshot

    def read_before_publish(*args: Any, **more: Any) -> Any:
        snapshot = read(*args, **more)
        monkeypatch.setattr(tables, "snapshot", read)
        main.publish("pr-42")
        return snapshot

    monkeypatch.setattr(tables, "snapshot", read_before_publish)
    assert logs_of(tables).vacuum(now, VacuumSpec(retention_hours=0, enforce_retention=False)) == ()
    assert values(main, "from sales.items") == [(1,), (2,)]


def test_vacuum_keeps_what_a_branch_has_restored(main: Session, branch: Session) -> None:
    main.sql("alter table sales.items set tblproperties ('delta.enableDeletionVectors' = 'true')")
    main.sql("insert into sales.items select 10 + range from range(20)")
    main.execute("sales.items", DeleteSpec("item = 13", merge_mode="deletion_vectors"))
    before = values(main, "from sales.items")
    main.sql("create or replace table sales.items as select 2 as item")
    branch.table("sales.items").restoreToVersion(branch.table("sales.items").history(1)[0]["version"] - 1)
    assert values(branch, "from sales.items") == before
    main.execute("sales.items", VacuumSpec(retention_hours=0, enforce_retention=False))
    assert values(branch, "from sales.items") == before
    main.publish("pr-42")
    assert values(main, "from sales.items") == before


def test_files_that_a_branch_staged_are_its_own(main: Session, branch: Session, root: Path) -> None:
    """The discard of a branch removes its files."""
    rows = pa.table({"item": pa.array([7], pa.int32())})
    staged = {session: session.stage("sales.items", rows) for session in (main, branch)}
    with duckrun.connect(root, branch="other") as other:
        for session, files in ((main, staged[branch]), (other, staged[branch]), (branch, staged[main])):
            with pytest.raises(CommitConflict, match="of another branch, or of the lake itself"):
                session.commit_staged("sales.items", files, WriteSpec("append"))
    for session in (branch, main):
        session.commit_staged("sales.items", staged[session], WriteSpec("append"))
        assert values(session, "from sales.items") == [(1,), (7,)]
    main.discard("pr-42")
    assert values(main, "from sales.items") == [(1,), (7,)]


def test_a_rebased_branch_has_the_rows_of_main_and_its_own(main: Session, branch: Session, root: Path) -> None:
    main.sql(MARKS)
    branch.sql("delete from sales.orders where id = 3")
    branch.sql("insert into sales.orders values (100, 'EU', 1)")
    main.sql("delete from sales.orders where id = 5")
    main.sql("insert into sales.orders values (50, 'US', 1)")
    assert main.rebase("pr-42") == {"sales.orders": 4}
    ids = [(each,) for each in (0, 1, 2, 4, 6, 7, 8, 9, 50, 100)]
    assert values(branch, "select id from sales.orders") == ids
    assert main.rebase("pr-42") == {}
    branch.sql("delete from sales.orders where id = 50")
    assert (main.diff("pr-42").tables[0].base_version, main.diff("pr-42").tables[0].version) == (3, 5)
    main.sql("update sales.orders set price = 7 where id = 50")
    with pytest.raises(CommitConflict, match="The branch is unchanged"):
        main.rebase("pr-42")
    assert values(branch, "select id from sales.orders") == [each for each in ids if each != (50,)]
    main.sql("alter table sales.orders set tblproperties ('a' = 'b')")
    with pytest.raises(CommitConflict):
        main.publish("pr-42")


def test_a_fork_whose_writer_was_killed_before_its_commit_moves_with_a_rebase(main: Session, root: Path) -> None:
    forks = 0
    for number in range(12):
        name = f"killed-{number}"
        with duckrun.connect(root, branch=name) as branch, pytest.MonkeyPatch.context() as patched:
            killed_at(patched, number)
            with suppress(Killed):
                branch.sql("delete from sales.orders where id = 3")
        with duckrun.connect(root, branch=name) as branch:
            if branch.lake.is_of_main(branch.lake.parse("sales.orders")) or main.diff(name).tables:
                continue
            forks += 1
            main.sql(f"insert into sales.orders values ({100 + number}, 'EU', 1)")
            assert main.rebase(name) == {}
            assert values(branch, "from sales.orders") == values(main, "from sales.orders")
    assert forks


def test_ids_of_rows_stay_and_are_given_once(main: Session, root: Path) -> None:
    main.sql(
        "create table tracked (id int, v int) using delta tblproperties ('delta.enableRowTracking' = 'true', "
        "'delta.enableDeletionVectors' = 'true')",
        dialect="spark",
    )
    main.sql("insert into tracked select i, 0 from range(5) r(i)")
    ids: dict[int, int] = {}
    for number, name in ((10, "one"), (20, "two")):
        with duckrun.connect(root, branch=name) as branch:
            branch.sql(f"insert into tracked values ({number}, 0), ({number + 1}, 0)")
            branch.sql(f"update tracked set v = 1 where id = {number}")
            ids |= {row["id"]: row["_row_id"] for row in branch.table("tracked").toDF(row_ids=True).collect()}
        main.sql(f"insert into tracked values ({number + 100}, 0)")
    main.publish("two")
    main.rebase("one")
    main.publish("one")
    main.sql("insert into tracked values (400, 0)")
    after = {row["id"]: row["_row_id"] for row in main.table("tracked").toDF(row_ids=True).collect()}
    assert len(set(after.values())) == len(after) == 12
    assert after.items() >= ids.items()


def test_nested_and_mapped_tables_are_read_and_published(main: Session, branch: Session, root: Path) -> None:
    main.sql("create table sales.nested as select {'a': 1, 'b': [1, 2]} as s, 1 as id")
    main.sql("alter table sales.orders set tblproperties ('delta.columnMapping.mode' = 'name')")
    main.sql("alter table sales.orders rename column price to cost")
    branch.sql("insert into sales.nested values ({'a': 2, 'b': []}, 2)")
    branch.sql("delete from sales.nested where id = 1")
    branch.sql("update sales.orders set cost = 0 where id < 5")
    expected = [values(branch, f"from sales.{name}") for name in ("nested", "orders")]
    assert [len(each) for each in expected] == [1, 10]
    main.publish("pr-42")
    assert [values(main, f"from sales.{name}") for name in ("nested", "orders")] == expected


@pytest.mark.parametrize("is_moved", [False, True], ids=["here", "moved"])
def test_a_killed_publish_is_finished_by_the_next_or_undone(root: Path, is_moved: bool) -> None:
    number, ended = 0, set()
    written = root.with_name("written")
    with duckrun.connect(root) as main, duckrun.connect(root, branch="b") as branch:
        for name in ("one", "two", "three"):
            main.sql(f"create table {name} as select 1 as x")
            branch.sql(f"insert into {name} values (2)")
        branch.sql("create table four as select 1 as x")
        branch.sql("create view five as from four")
    shutil.copytree(root, written)
    while True:
        shutil.rmtree(root)
        shutil.copytree(written, root)
        with duckrun.connect(root) as main, pytest.MonkeyPatch.context() as patched:
            count = killed_at(patched, number)
            with suppress(Killed):
                main.publish("b")
        is_done = count[0] <= number
        place = root
        if is_moved:
            place = root.with_name(f"moved-{number}")
            root.rename(place)
            root.mkdir()
        with duckrun.connect(place) as main:
            if number % 2:  # the next session that writes finishes it, or takes it back
                main.sql("create table other as select 1 as x")
                rows = [values(main, f"from {name}") for name in ("one", "two", "three")]
                assert rows in ([[(1,)]] * 3, [[(1,), (2,)]] * 3), number
                ended.add(len(rows[0]))
            main.publish("b")
            assert [values(main, f"from {name}") for name in ("one", "two", "three")] == [[(1,), (2,)]] * 3, number
            assert (values(main, "from five"), main.branches()) == ([(1,)], [])
            assert [main.table(name).snapshot().version for name in ("one", "two", "three")] == [1, 1, 1], number
            assert not list((place / "_duckrun" / "publish" / "pending").glob("*"))
        assert not is_moved or not any(root.iterdir())
        if is_done:
            break
        number += 1
    assert ended == {1, 2}


def test_two_publishes_at_once_both_stand(main: Session, root: Path) -> None:
    for name in ("one", "two"):
        with duckrun.connect(root, branch=name) as branch:
            branch.sql(f"insert into sales.orders values ({len(name) * 100}, '{name}', 1)")
            branch.sql(f"insert into sales.items select {ord(name[0])}")
    errors: list[BaseException] = []

    def publish(name: str) -> None:
        try:
            with duckrun.connect(root) as session:
                session.publish(name)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=publish, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert values(main, "from sales.items") == [(1,), (111,), (116,)]
    assert main.sql("from sales.orders").count() == 12


def test_the_record_of_a_publish_tells_versions_before_and_after(main: Session, branch: Session, root: Path) -> None:
    branch.execute("sales.items", WriteSpec("append"), pa.table({"item": pa.array([2], pa.int32())}))
    published = main.publish("pr-42")
    record = json.loads((root / "_duckrun" / "publish" / f"{published.id}.json").read_text())
    assert (record["state"], record["versions"], record["before"]) == (
        "published",
        {"sales.items": 1},
        {"sales.items": 0},
    )


def test_records_older_than_a_week_leave_the_folder_that_runs_list(
    main: Session, branch: Session, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = root / "_duckrun" / "publish"
    branch.sql("insert into sales.items values (2)")
    main.lake.drop(main.table("sales.items").ref, force=True)
    with pytest.raises(CommitConflict):
        main.publish("pr-42")  # its record is of an aborted publish
    main.discard("pr-42")
    with duckrun.connect(root, branch="pr-42") as again:
        again.sql("create table sales.made as select 1 as x")
    published = main.publish("pr-42")
    assert len(list(folder.glob("*.json"))) == 2
    old = time.time() - 8 * 86_400
    for record in folder.glob("*.json"):
        os.utime(record, (old, old))
    for _ in range(2):
        second = main.publish("pr-42")
        assert (second.replayed, second.id, second.versions) == (True, published.id, {"sales.made": 0})
    monkeypatch.setattr(registry, "now", lambda: 1_000)  # no clock of a machine decides
    with duckrun.connect(root, branch="pr-42") as again:
        again.sql("create table sales.more as select 1 as x")
    third = main.publish("pr-42")
    assert (third.replayed, [each.stem for each in folder.glob("*.json")]) == (False, [third.id])
    monkeypatch.setattr(registry, "now", lambda: 10_000_000_000_000)
    with duckrun.connect(root, branch="pr-43") as again:
        again.sql("insert into sales.more values (2)")
    assert {main.publish("pr-43").id, third.id} == {each.stem for each in folder.glob("*.json")}
    assert main.publish("pr-42").versions == {"sales.more": 0}


def test_the_last_publish_of_a_name_is_told_also_if_the_clock_went_back(
    main: Session, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(3):
        with duckrun.connect(root, branch="pr-42") as again:
            again.sql(f"insert into sales.items values ({day})")
        published = main.publish("pr-42")
        assert main.publish("pr-42").id == published.id
        monkeypatch.setattr(registry, "now", lambda at=registry.now() - 86_400_000: at)


VIEW, TABLE = "create or replace view sales.v as select 2 as x", "create table sales.v as select 2 as x"


@pytest.mark.parametrize(
    ("before", "of_branch", "of_main"),
    [
        ("", VIEW, VIEW.replace("2", "3")),
        ("", VIEW, TABLE.replace("2", "3")),
        ("", TABLE, VIEW.replace("2", "3")),
        ("", TABLE, TABLE.replace("sales.v", 'sales."V"').replace("2", "3")),
        ("", VIEW, VIEW.replace("sales.v", 'sales."V"').replace("2", "3")),
        ("", TABLE.replace("sales", "fresh"), TABLE.replace("sales", '"Fresh"')),
        (VIEW.replace("2", "1"), VIEW, VIEW.replace("2", "3")),
        (VIEW.replace("2", "1"), "drop view sales.v", VIEW.replace("2", "3")),
        (VIEW.replace("2", "1"), VIEW, "drop view sales.v"),
    ],
)
def test_a_name_that_both_sides_give_is_a_conflict(
    main: Session, branch: Session, before: str, of_branch: str, of_main: str
) -> None:
    if before:
        main.sql(before)
    branch.sql(of_branch)
    branch.sql("insert into sales.items values (2)")
    main.sql(of_main)
    names = main.tables()
    with pytest.raises(CommitConflict, match="main"):
        main.publish("pr-42")
    assert main.tables() == names
    assert values(main, "from sales.items") == [(1,)]
    if "view sales.v" in of_main and "drop" not in of_main:
        assert values(main, "from sales.v") == [(3,)]


def test_a_view_may_take_the_place_of_a_table_and_back(main: Session, branch: Session) -> None:
    main.sql("create view sales.seen as select 1 as x")
    branch.sql("drop view sales.seen")
    branch.sql("create table sales.seen as select 2 as x")
    branch.sql("drop table sales.items")
    branch.sql("create view sales.items as select 3 as x")
    branch.sql("create or replace view sales.items as select 4 as x")
    main.publish("pr-42")
    assert main.tables() == ["sales.items", "sales.orders", "sales.seen"]
    assert (values(main, "from sales.seen"), values(main, "from sales.items")) == ([(2,)], [(4,)])
