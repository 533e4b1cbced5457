"""Change queries of DuckLake tables: the worked example and the table of cases of docs/changes.md, columns, ranges and errors, DuckLake's own
functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import (
    SQL,
    InvalidConfig,
    SchemaMismatch,
    Session,
    TableNotFound,
    UnsupportedFeature,
    VersionNotReadable,
    WriteSpec,
)
from duckrun.errors import StorageError
from tests.ducklake.test_change_histories import plain

pytestmark = pytest.mark.drawn(3)


@pytest.fixture(params=[0, 50], ids=["files", "inlined"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session]:
    with duckrun.connect(tmp_path / "lake", format="ducklake", inline_rows=request.param) as session:
        yield session


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def asked(request: pytest.FixtureRequest, lake: Session, tmp_path: Path) -> Iterator[Session]:
    """The session that asks what changed, on each engine."""
    if request.param == "duckdb":
        yield lake
        return
    spark = request.getfixturevalue("spark")
    with duckrun.connect(tmp_path / "lake", format="ducklake", engine="spark", spark=spark) as session:
        yield session


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Session]:
    with duckrun.connect(tmp_path / "lake", format="ducklake") as session:
        yield session


def rows(found: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in found.collect()), key=repr)


FIRST = "select * from (values ('jack', 'apple'), ('sarah', 'orange'), ('john', 'pineapple')) v(name, fruit)"
MERGE = """merge into fruits t using (select * from (values ('sarah', 'kiwi'), ('lena', 'fig')) v(name, fruit)) s
    on t.name = s.name when matched then update set * when not matched then insert *"""
JACK, SARAH, LENA = ("jack", "banana"), ("sarah", "orange"), ("lena", "fig")
WORKED = {
    "append_only": ([JACK, SARAH], [], [LENA]),
    "upsert": (
        [(*JACK, "insert"), (*SARAH, "insert")],
        [(*JACK, "update")],
        [(*LENA, "insert"), ("sarah", "kiwi", "update")],
    ),
    "min_delta": (
        [(*JACK, "insert"), (*SARAH, "insert")],
        [("jack", "apple", "update_preimage"), (*JACK, "update_postimage"), ("john", "pineapple", "delete")],
        [(*LENA, "insert"), (*SARAH, "update_preimage"), ("sarah", "kiwi", "update_postimage")],
    ),
}


@pytest.mark.parametrize("key", [["name"], []])
def test_the_worked_example(lake: Session, asked: Session, key: list[str]) -> None:
    versions = [lake.execute("fruits", WriteSpec("overwrite"), SQL(FIRST)).version]
    lake.sql("create table other as select 1 as n")  # another table's snapshot
    versions.append(lake.sql("update fruits set fruit = 'banana' where name = 'jack'").version)
    versions.append(lake.sql("delete from fruits where name = 'john'").version)
    versions.append(lake.sql(MERGE).version)
    table = asked.table("fruits")
    ranges = ((-1, versions[2]), (versions[0], versions[2]), (versions[2], versions[3]))
    for kind, expected in WORKED.items():
        for (first, last), wanted in zip(ranges, expected, strict=True):
            found = table.changes(kind, first, last, key=key)
            assert rows(found) == sorted(wanted, key=repr), (kind, first, last)
            assert found.identity == ("key" if key else "row_id")
    full = table.changes("full_delta", -1, key=key)
    told = [(r["name"], r["fruit"], r["_change_type"], versions.index(r["_commit_version"])) for r in full.collect()]
    assert sorted(told) == sorted(
        [(*row[:2], "insert", 0) for row in (("jack", "apple"), SARAH, ("john", "pineapple"))]
        + [("jack", "apple", "update_preimage", 1), (*JACK, "update_postimage", 1), ("john", "pineapple", "delete", 2)]
        + [(*SARAH, "update_preimage", 3), ("sarah", "kiwi", "update_postimage", 3), (*LENA, "insert", 3)]
    )
    pairs = {(r["_commit_version"], r["_pair"]) for r in full.collect() if r["_pair"] is not None}
    assert len(pairs) == 2 and dict(full.sources) == dict.fromkeys(versions, "snapshots")
    times = {entry["version"]: entry["timestamp"] for entry in table.history()}
    assert {round(r["_commit_timestamp"].timestamp() * 1000) for r in full.collect()} == set(times.values())
    came = table.changes("append_only", -1, key=key, commit_version=True)
    assert rows(came) == [(*JACK, versions[0]), (*LENA, versions[3]), ("sarah", "kiwi", versions[0])]
    changed = table.changes("upsert", versions[0], key=key, commit_version=True)
    assert rows(changed) == [
        (*JACK, "update", versions[1]),
        (*LENA, "insert", versions[3]),
        ("sarah", "kiwi", "update", versions[3]),
    ]
    assert (changed.before().count(), changed.after().count()) == (3, 3)
    assert table.changes("min_delta", versions[0], key=key).counts()["delete"] == 1


CASES: dict[str, tuple[list[str], list[str], list[str]]] = {
    "delete, then insert with other values": (
        ["delete from t where id = 1", "insert into t values (1, 'z')"],
        ["update_postimage", "update_preimage"],
        ["delete", "insert"],
    ),
    "delete, then insert with the same values": (
        ["delete from t where id = 1", "insert into t values (1, 'a')"],
        [],
        ["delete", "insert"],
    ),
    "update of the key": (
        ["update t set id = 9 where id = 1"],
        ["delete", "insert"],
        ["update_postimage", "update_preimage"],
    ),
    "insert, then update": (
        ["insert into t values (5, 'n')", "update t set s = 'm' where id = 5"],
        ["insert"],
        ["insert"],
    ),
    "a to b to a": (["update t set s = 'b' where id = 1", "update t set s = 'a' where id = 1"], [], []),
    "an update that changes nothing": (["update t set s = s"], [], []),
    "overwrite with equal rows": (["overwrite"], [], ["delete", "delete", "insert", "insert"]),
    "restore": (
        ["update t set s = 'c' where id = 2", "restore"],
        [],
        [],
    ),
    "compaction": (["compact"], [], []),
    "a property": (["comment on table t is 'checked'"], [], []),
}


@pytest.mark.parametrize("case", CASES)
def test_the_table_of_cases(lake: Session, asked: Session, case: str) -> None:
    statements, by_key, by_row_id = CASES[case]
    lake.execute("t", WriteSpec("overwrite"), SQL("select * from (values (1, 'a'), (2, 'b')) v(id, s)"))
    lake.sql("insert into t values (3, 'gone')")
    lake.sql("delete from t where id = 3")
    before = lake.table("t").snapshot().version
    for statement in statements:
        if statement == "overwrite":
            lake.execute("t", WriteSpec("overwrite"), SQL("select * from (values (1, 'a'), (2, 'b')) v(id, s)"))
        elif statement == "restore":
            lake.table("t").restoreToVersion(before)
        elif statement == "compact":
            lake.upkeep.merge_files("t")
            lake.upkeep.rewrite_files("t", delete_threshold=0.01)
        else:
            lake.sql(statement)
    for key, expected in ((["id"], by_key), ([], by_row_id)):
        found = asked.table("t").changes("min_delta", before, key=key).collect()
        assert sorted(row["_change_type"] for row in found) == expected, key
    both = asked.table("t").changes("full_delta", before, key=["id"]).count()
    assert both == {"a to b to a": 4, "restore": 4, "insert, then update": 3, "delete, then insert with other values": 2,
                    "delete, then insert with the same values": 2, "update of the key": 2}.get(case, 0)  # fmt: skip


def test_columns_that_came_went_were_renamed_or_widened(lake: Session, asked: Session, tmp_path: Path) -> None:
    lake.sql("create table t (id integer, name varchar, gone integer)")
    lake.sql("insert into t values (1, 'a', 1), (2, 'b', 2)")
    before = lake.table("t").snapshot().version
    with plain(tmp_path / "lake") as (other, _):
        other.execute("alter table t add column state varchar default 'new'")
        other.execute("alter table t alter column id set type bigint")
    lake.sql("alter table t rename column name to label")
    lake.sql("alter table t drop column gone")
    assert asked.table("t").changes("min_delta", before).count() == 0
    assert rows(asked.sql(f"select id from t at (version => {before}) where id > 1")) == [(2,)]
    lake.sql("update t set state = 'old' where id = 1")
    lake.sql("insert into t values (30000000000, 'c', 'new')")
    found = asked.table("t").changes("min_delta", before, key=["id"])
    assert rows(found) == [
        (1, "a", "new", "update_preimage"),
        (1, "a", "old", "update_postimage"),
        (30000000000, "c", "new", "insert"),
    ]
    assert rows(asked.table("t").changes("min_delta", before, columns=["label"])) == [("c", "insert")]
    lake.sql("alter table t rename to u")
    assert rows(asked.sql(f"select name from u at (version => {before}) where id > 1")) == [("b",)]
    assert rows(asked.table("u").changes("min_delta", before, key=["id"], predicate="id > 1")) == [
        (30000000000, "c", "new", "insert")
    ]


def test_ranges_are_of_the_lakes_snapshots(files: Session) -> None:
    files.sql("create table other as select 1 as n")
    files.sql("create table t as select 1 as id")
    made = files.table("t").snapshot().version
    for n in range(3):
        files.sql(f"insert into other values ({n})")
    table = files.table("t")
    newest = files.snapshots()[0]["snapshot_id"]
    assert rows(table.changes("min_delta", made - 1)) == rows(table.changes("min_delta", -1)) == [(1, "insert")]
    assert rows(table.changes("min_delta", -1, made - 1)) == []
    assert rows(table.changes("min_delta", newest)) == rows(table.changes("min_delta", made, newest)) == []
    when = next(e["timestamp"] for e in files.snapshots() if e["snapshot_id"] == made) / 1000
    import datetime

    moment = datetime.datetime.fromtimestamp(when + 0.001, datetime.UTC).isoformat()
    files.sql("insert into t values (2)")
    assert rows(table.changes("min_delta", from_timestamp=moment)) == [(2, "insert")]
    with pytest.raises(VersionNotReadable, match="99"):
        table.changes("min_delta", 99)
    with pytest.raises(VersionNotReadable, match="has no version 99"):
        table.changes("min_delta", made, 99)
    with pytest.raises(InvalidConfig, match="backwards"):
        table.changes("min_delta", newest, made)
    with pytest.raises(InvalidConfig, match="unknown kind"):
        table.changes("all", made)
    with pytest.raises(SchemaMismatch, match="key names the column x"):
        table.changes("min_delta", made, key=["x"])
    files.sql("insert into t values (2)")
    with pytest.raises(InvalidConfig, match=r"is not unique.*id = 2"):
        table.changes("min_delta", made, key=["id"]).collect()


def test_an_expired_range_names_the_oldest_that_works(files: Session) -> None:
    files.sql("create table t as select 1 as id")
    first = files.table("t").snapshot().version
    for n in range(4):
        files.sql(f"insert into t values ({n})")
    files.upkeep.expire([first + 2])
    table = files.table("t")
    assert table.changes("min_delta", first).count() == 4  # both ends are there
    with pytest.raises(
        VersionNotReadable, match=rf"snapshot {first + 2} .*oldest from_version that works is {first + 3}"
    ):
        table.changes("full_delta", first)
    with pytest.raises(VersionNotReadable, match=rf"oldest from_version that works is {first + 3}"):
        table.changes("min_delta", first + 2)
    assert table.changes("full_delta", first + 3).count() == 1
    files.upkeep.expire(range(first + 2))
    assert table.changes("min_delta", -1).count() == 5
    with pytest.raises(VersionNotReadable, match="expired"):
        table.changes("min_delta", first)


def test_an_older_version_has_values_that_a_rewrite_left_out_of_the_bounds(files: Session) -> None:
    files.sql("create table t as select (range + 10)::int as id from range(20)")
    before = files.table("t").snapshot().version
    files.sql("delete from t where id < 12")
    files.upkeep.rewrite_files("t", delete_threshold=0.01)
    found = files.sql(f"select id from t at (version => {before}) where id > 5 order by id").collect()
    assert [row["id"] for row in found] == list(range(10, 30))
    gone = files.table("t").changes("min_delta", before, predicate="id > 5")
    assert rows(gone) == [(10, "delete"), (11, "delete")]


_NEW = "select * from (values (1, 'a'), (3, 'c')) v(id, v)"
REPLACED = {
    "create or replace": ["create or replace table t as " + _NEW],
    "drop and create": ["drop table t", "create table t as " + _NEW],
    "swap": ["create table s as " + _NEW, "drop table t", "alter table s rename to t"],
    "swap in a transaction": [
        f"create table s as {_NEW}",
        "begin; alter table t rename to gone; alter table s rename to t; commit",
    ],
    "restore database": [
        "drop table t",
        "restore database to version as of {}",
        "update t set id = 3, v = 'c' where id = 2",
    ],
    "twice": ["create or replace table t as select 1 as id, 'q' as v", "drop table t", "create table t as " + _NEW],
}


@pytest.mark.parametrize("how", REPLACED)
def test_a_replaced_table_changes_from_its_state_to_that_of_the_other(lake: Session, asked: Session, how: str) -> None:
    lake.sql("create table t as select * from (values (1, 'a'), (2, 'b')) v(id, v)")
    before = lake.table("t").snapshot().version
    for statement in REPLACED[how]:
        lake.sql(statement.format(before))
    table = asked.table("t")
    assert rows(table.changes("min_delta", before, key=["id"])) == [(2, "b", "delete"), (3, "c", "insert")]
    assert rows(table.changes("append_only", before, key=["id"])) == [(3, "c")]
    assert rows(table.changes("upsert", before, key=["id"])) == [(3, "c", "insert")]
    assert rows(table.changes("min_delta", before)) == [
        (1, "a", "delete"),
        (1, "a", "insert"),
        (2, "b", "delete"),
        (3, "c", "insert"),
    ]
    assert table.changes("min_delta", before, key=["id"]).before().count() == 2
    commits = table.changes("full_delta", before, key=["id"]).collect()
    state = {1: "a", 2: "b"}
    for row in sorted(
        commits, key=lambda row: (row["_commit_version"], row["_change_type"] in ("insert", "update_postimage"))
    ):
        if row["_change_type"] in ("delete", "update_preimage"):
            assert state.pop(row["id"]) == row["v"]
        else:
            state[row["id"]] = row["v"]
    assert state == {1: "a", 3: "c"}
    assert rows(table.changes("min_delta", -1, before)) == [(1, "a", "insert"), (2, "b", "insert")]


def test_a_table_that_is_gone_for_a_while_has_no_rows_then(files: Session) -> None:
    files.sql("create table t as select 1 as id")
    first = files.table("t").snapshot().version
    files.sql("drop table t; create table other as select 1 as n")
    gone = files.snapshots(1)[0]["snapshot_id"]
    files.sql("create table t as select 2 as id")
    table = files.table("t")
    assert rows(table.changes("min_delta", first, gone, key=["id"])) == [(1, "delete")]
    assert rows(table.changes("min_delta", gone, key=["id"])) == [(2, "insert")]
    found = rows(table.changes("full_delta", first, key=["id"], columns=["id"]))
    assert [(row[0], row[1]) for row in found] == [(1, "delete"), (2, "insert")]
    files.upkeep.expire([first])
    with pytest.raises(VersionNotReadable, match="has expired"):
        table.changes("min_delta", first, key=["id"])


def test_columns_of_another_table_are_compared_by_name(files: Session) -> None:
    files.sql("create table t (id int, v varchar); insert into t values (1, 'a')")
    before = files.table("t").snapshot().version
    files.sql("create or replace table t (w int default 7, ID bigint)")
    files.sql("insert into t (ID) values (1)")
    assert rows(files.table("t").changes("min_delta", before, key=["ID"])) == []
    files.sql("create or replace table t as select 'x' as id")
    with pytest.raises(SchemaMismatch, match=f"column id was INTEGER at version {before}"):
        files.table("t").changes("min_delta", before).collect()


@pytest.mark.parametrize("name", ["filename", "snapshot_id", "FileName", "file_row_number", "change_type", "pos"])
@pytest.mark.parametrize("inline_rows", [0, 10])
def test_a_column_may_have_the_name_of_one_of_ducklakes_own(tmp_path: Path, name: str, inline_rows: int) -> None:
    with duckrun.connect(tmp_path / "lake", format="ducklake", inline_rows=inline_rows) as session:
        session.sql(f"create table t (id int, {name} varchar)")
        for number in range(3):
            session.sql(f"insert into t values ({number}, 'f{number}')")
        before = session.table("t").snapshot().version
        session.sql("update t set id = 10 where id = 1; delete from t where id = 2")
        table = session.table("t")
        updated = [(1, "f1", "update_preimage"), (10, "f1", "update_postimage")]
        assert rows(table.changes("min_delta", before)) == [*updated, (2, "f2", "delete")]
        assert rows(table.changes("append_only", -1)) == [(0, "f0"), (10, "f1")]
        if name == "snapshot_id":
            with pytest.raises(SchemaMismatch, match="has a column snapshot_id, the name of one that DuckLake adds"):
                table.toDF(row_ids=True)
        else:
            assert sorted(row["_row_id"] for row in table.toDF(row_ids=True).collect()) == [0, 1]
        if name in ("snapshot_id", "change_type"):
            with pytest.raises(SchemaMismatch, match="the name of one that DuckLake adds"):
                session.sql(f"from table_changes('t', {before})")


@pytest.mark.parametrize("name", ["rowid", "ROWID", "_ducklake_internal_row_id", "_ducklake_internal_snapshot_id"])
def test_names_that_ducklakes_files_have_are_refused(files: Session, name: str) -> None:
    files.sql("create table t as select 1 as id")
    before = files.snapshots(1)[0]["snapshot_id"]
    for statement in (
        f"create table u ({name} int)",
        f"alter table t add column {name} int",
        f"alter table t rename column id to {name}",
    ):
        with pytest.raises(SchemaMismatch, match="choose another name"):
            files.sql(statement)
    with pytest.raises(SchemaMismatch, match="choose another name"):
        files.execute("t", WriteSpec("append", schema_mode="append_new_columns"), SQL(f"select 1 as id, 2 as {name}"))
    assert files.snapshots(1)[0]["snapshot_id"] == before


@pytest.mark.parametrize(
    ("statement", "by_key", "by_id"),
    [
        ("insert into t values (5, 'e')", [(5, "e", "insert")], None),
        ("update t set v = 'z' where id = 1", [(1, "a", "update_preimage"), (1, "z", "update_postimage")], None),
        ("delete from t where id = 2", [(2, "b", "delete")], None),
        (
            "create or replace table t as select 1 as id, 'a' as v",
            [(2, "b", "delete")],
            [(1, "a", "delete"), (1, "a", "insert"), (2, "b", "delete")],
        ),
        ("alter table t rename to old; create table t as select 2 as id, 'b' as v", [(1, "a", "delete")],
            [(1, "a", "delete"), (2, "b", "delete"), (2, "b", "insert")]),
    ],
)  # fmt: skip
def test_changes_within_a_transaction_are_those_it_makes(
    files: Session, statement: str, by_key: list[Any], by_id: list[Any] | None
) -> None:
    files.sql("create table t as select * from (values (1, 'a'), (2, 'b')) v(id, v)")
    before = files.table("t").snapshot().version
    files.sql(f"begin; {statement}")
    for _ in range(2):
        table = files.table("t")
        assert rows(table.changes("min_delta", before, key=["id"])) == by_key
        assert rows(table.changes("min_delta", before)) == (by_id or by_key)
        assert rows(table.changes("min_delta", -1, before)) == [(1, "a", "insert"), (2, "b", "insert")]
        found = table.changes("full_delta", before, key=["id"]).collect()
        assert sorted(((r["id"], r["v"], r["_change_type"]) for r in found), key=repr) == by_key
        if files.in_transaction:
            files.sql("commit")


def test_a_table_that_the_transaction_leaves_has_no_changes_since_its_beginning(files: Session) -> None:
    files.sql("create table t as select 1 as id; create table other as select 1 as n")
    newest = files.snapshots(1)[0]["snapshot_id"]
    files.sql("begin; insert into other values (2)")
    assert rows(files.table("t").changes("min_delta", newest)) == []
    assert rows(files.table("other").changes("min_delta", newest)) == [(2, "insert")]
    files.sql("rollback")


def test_changes_behind_an_alter_in_the_transaction(files: Session) -> None:
    files.sql("create table t as select * from (values (1, 'a'), (2, 'b')) v(id, v)")
    before = files.table("t").snapshot().version
    files.sql("begin; alter table t add column w int default 3; insert into t values (4, 'd', 4)")
    for kind in ("min_delta", "upsert"):
        assert rows(files.table("t").changes(kind, before)) == [(4, "d", 4, "insert")]
    files.sql("alter table t rename column v to u")
    with pytest.raises(UnsupportedFeature, match="columns of it were renamed in this transaction"):
        files.sql(f"from changes('t', 'min_delta', {before})")


def test_an_answer_whose_files_were_merged_meanwhile_says_so(files: Session, tmp_path: Path) -> None:
    files.sql("create table t as select 1 as id")
    before = files.table("t").snapshot().version
    for n in range(3):
        files.sql(f"insert into t values ({n})")
    found = files.table("t").changes("append_only", before)
    with plain(tmp_path / "lake") as (other, _):
        other.execute("call ducklake_merge_adjacent_files('lake')")
    with pytest.raises(StorageError, match="Ask again"):
        found.collect()
    assert files.table("t").changes("append_only", before).count() == 3


def test_ducklakes_own_functions_are_as_ducklake_gives_them(lake: Session, asked: Session, tmp_path: Path) -> None:
    lake.sql("create table t as select range as id, 'a' as s from range(3)")
    first = lake.table("t").snapshot().version
    lake.sql("update t set s = 'b' where id = 1")
    lake.sql("delete from t where id = 0")
    last = lake.table("t").snapshot().version
    with plain(tmp_path / "lake") as (other, _):
        for function in ("table_changes", "table_insertions", "table_deletions"):
            own = other.execute(f"from ducklake_{function}('lake', 'main', 't', {first}, {last})").fetchall()
            ours = [tuple(r.values()) for r in asked.sql(f"from {function}('main.t', {first})").collect()]
            assert sorted(ours) == sorted(own) and own, function
            again = getattr(asked.table("t"), function)(first, last)
            assert rows(again) == sorted(own, key=repr)
        snapshots = other.execute("select count(*) from ducklake_snapshots('lake')").fetchone()[0]
    assert (
        asked.sql("select count(*) as n from snapshots()").collect()
        == [{"n": snapshots}]
        == [{"n": len(lake.snapshots())}]
    )
    assert rows(asked.table("t").table_deletions(first + 1, last)) == [(0, "a"), (1, "a")]
    upserts = asked.sql(f"select * from changes('t', 'upsert', from_version => {first}) as c").collect()
    assert upserts == [{"id": 1, "s": "b", "_change_type": "update"}]
    with pytest.raises(InvalidConfig, match="backwards"):
        asked.table("t").table_changes(last, first)
    with pytest.raises(VersionNotReadable, match="no version 99"):
        asked.sql("from table_changes('t', 99, 99)").collect()


def test_ducklakes_own_spelling_is_a_query_and_a_call(files: Session, tmp_path: Path) -> None:
    files.sql("create table t as select 1 as id; insert into t values (2)")
    with duckrun.connect(tmp_path / "other", format="ducklake") as other:
        other.sql("create table u as select 5 as x")
    files.attach(tmp_path / "other", "other", format="ducklake")
    newest = files.snapshots(1)[0]["snapshot_id"]
    for text in (
        "from ducklake_snapshots('lake')",
        "call ducklake_snapshots('lake')",
        "call lake.snapshots()",
        "from snapshots()",
    ):
        assert max(row["snapshot_id"] for row in files.sql(text).collect()) == newest, text
    for text in ("from ducklake_snapshots('other')", "from other.snapshots()", "call other.snapshots()"):
        assert len(files.sql(text).collect()) == 3, text
    for text in ("from ducklake_current_snapshot('lake')", "call lake.current_snapshot()"):
        assert rows(files.sql(text)) == [(newest,)]
    assert ("t",) in rows(files.sql("select table_name from ducklake_table_info('lake')"))
    assert (
        files.sql("from ducklake_settings('lake')").count() == 1 and files.sql("from ducklake_options('lake')").count()
    )
    for word in ("from", "call"):
        found = files.sql(f"{word} ducklake_table_insertions('lake', 'main', 't', 0, {newest})")
        assert rows(found) == [(1,), (2,)]
        assert rows(files.sql(f"{word} other.table_insertions('u', 0, 2)")) == [(5,)]
    for text, said in {
        "from ducklake_table_changes('t', 0, 3)": "takes a lake, a schema, a table and two versions",
        "from ducklake_snapshots(1)": "is no name of a lake",
        "from ducklake_snapshots('lake', 'x')": "the name of a lake alone",
    }.items():
        with pytest.raises(InvalidConfig, match=said):
            files.sql(text)
    with pytest.raises(TableNotFound, match="no lake 'nosuch'"):
        files.sql("call ducklake_snapshots('nosuch')")


def test_delta_has_none_of_them(tmp_path: Path) -> None:
    with duckrun.connect(tmp_path) as session:
        session.sql("create table t as select 1 as id")
        for statement in ("from snapshots()", "from table_insertions('t', 0)"):
            with pytest.raises(UnsupportedFeature, match="DuckLake's"):
                session.sql(statement)
    with duckrun.connect(tmp_path / "other", format="ducklake") as session:
        session.sql("create table t as select 1 as id")
        with pytest.raises(UnsupportedFeature, match="table_changes"):
            session.read.option("readChangeFeed", "true").option("startingVersion", 0).table("t")


def test_rows_have_ids_that_updates_keep(lake: Session, asked: Session) -> None:
    lake.sql("create table t as select range as id, 'a' as s from range(3)")
    first = lake.table("t").snapshot().version
    then = {row["id"]: row["_row_id"] for row in asked.table("t").toDF(row_ids=True).collect()}
    updated = lake.sql("update t set s = 'b' where id = 1").version
    found = {row["id"]: row for row in asked.table("t").toDF(row_ids=True).collect()}
    assert {number: row["_row_id"] for number, row in found.items()} == then
    assert [found[n]["_row_commit_version"] for n in range(3)] == [first, updated, first]


@pytest.mark.parametrize("scd", [1, 2])
def test_changes_are_applied(lake: Session, asked: Session, scd: int) -> None:
    lake.sql("create table t as select range as id, 'a' as s, 1 as n from range(3)")
    first = lake.table("t").snapshot().version
    lake.sql("update t set s = 'b', n = 2 where id = 1")
    lake.sql("delete from t where id = 0")
    kind = "min_delta" if scd == 1 else "full_delta"
    by = None if scd == 1 else "_commit_version"
    for version in (-1, first):
        changes = asked.table("t").changes(kind, version, first if version < 0 else None, key=["id"])
        asked.apply_changes("dim", changes, keys=["id"], sequence_by=by, scd=scd, deletes=True)
    now = "" if scd == 1 else " where valid_to is null"
    assert rows(lake.sql(f"select id, s from dim{now}")) == [(1, "b"), (2, "a")]
    if scd == 2:
        assert rows(lake.sql("select count(*) from dim")) == [(4,)]
