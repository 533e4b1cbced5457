"""Transactions over several tables of a DuckLake: BEGIN, COMMIT and ROLLBACK, and the block that does the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import duckrun
from duckrun import (
    SQL,
    AppTransaction,
    CommitConflict,
    DuckrunError,
    InvalidConfig,
    MergeSpec,
    SchemaMismatch,
    Session,
    TableNotFound,
    UnsupportedFeature,
    WriteSpec,
)
from duckrun.formats.ducklake.commits.transactor import Transactor
from duckrun.run.pins import Pins
from tests.ducklake.plain import attached


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Session]:
    with duckrun.connect(tmp_path / "lake", format="ducklake") as session:
        session.sql("create table t as select 1 as id; create table total as select 1 as n")
        yield session


def rows(session: Session, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in session.sql(query).collect()]


def newest(session: Session) -> int:
    return int(session.snapshots(1)[0]["snapshot_id"])


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_begin_and_commit_make_one_snapshot(lake: Session, tmp_path: Path, dialect: str) -> None:
    before = newest(lake)
    lake.sql("begin transaction", dialect=dialect)
    lake.sql("insert into t values (2)", dialect=dialect)
    lake.sql("update total set n = (select count(*) from t)", dialect=dialect)
    assert lake.in_transaction and rows(lake, "from total") == [(2,)]
    with attached(tmp_path / "lake") as plain:
        assert plain.sql("select count(*) from lake.t").fetchall() == [(1,)]
    done = lake.sql("commit", dialect=dialect)
    assert (done.statement, lake.in_transaction, newest(lake)) == ("COMMIT", False, before + 1)
    with attached(tmp_path / "lake") as plain:
        assert plain.sql("select count(*), (select n from lake.total) from lake.t").fetchall() == [(2, 2)]


def test_rollback_takes_all_back(lake: Session) -> None:
    before = newest(lake)
    lake.sql("begin; insert into t values (2); create table u as select 1 as n; drop table total; rollback")
    assert (newest(lake), lake.tables()) == (before, ["main.t", "main.total"])
    assert rows(lake, "select count(*) from t") == [(1,)]


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("insert into nosuch values (1)", TableNotFound),
        ("insert into t values (1, 2)", DuckrunError),
        ("selec 1", InvalidConfig),
        ("insert into t select error('no')::int", Exception),
    ],
)
def test_an_error_takes_all_back_and_says_so(lake: Session, statement: str, error: type[Exception]) -> None:
    before = newest(lake)
    lake.sql("begin")
    lake.sql("insert into t values (2)")
    with pytest.raises(error, match=r"rolled back|no") as raised:
        lake.sql(statement)
    assert "rolled back" in str(raised.value) or "rolled back" in "".join(getattr(raised.value, "__notes__", []))
    with pytest.raises(InvalidConfig, match="is rolled back, since a statement in it failed"):
        lake.sql("insert into t values (3)")
    with pytest.raises(CommitConflict, match="was rolled back before.*Nothing was written"):
        lake.sql("commit")
    lake.sql("insert into t values (4)")
    assert rows(lake, "from t order by id") == [(1,), (4,)]
    assert newest(lake) == before + 1


def test_an_error_that_is_swallowed_in_a_block_publishes_nothing(lake: Session) -> None:
    before = newest(lake)
    with pytest.raises(CommitConflict, match="was rolled back before"), lake.transaction() as together:
        together.sql("insert into t values (2)")
        with pytest.raises(SchemaMismatch):
            together.execute("total", WriteSpec("append"), pa.table({"other": [1]}))
        with pytest.raises(InvalidConfig):
            together.sql("insert into t values (3)")
    assert newest(lake) == before and not lake.in_transaction


def test_a_text_with_begin_that_fails_leaves_no_transaction_open(lake: Session) -> None:
    before = newest(lake)
    with pytest.raises(TableNotFound, match="Statement 3 of 4.*rolled back"):
        lake.sql("begin; insert into t values (2); insert into nosuch values (1); commit")
    assert not lake.in_transaction and newest(lake) == before


def test_a_value_that_begins_a_transaction_is_refused_and_leaves_none_open(lake: Session) -> None:
    before = newest(lake)
    with pytest.raises(InvalidConfig, match="duckrun.SQL is one query"):
        lake.execute("t", WriteSpec("append"), SQL("begin"))
    assert not lake.in_transaction and newest(lake) == before
    assert lake.execute("t", WriteSpec("append"), SQL("select 2 as id")).version == before + 1


def test_words_in_the_wrong_place_are_refused(lake: Session, tmp_path: Path) -> None:
    for text, said in {
        "commit": "COMMIT without BEGIN",
        "rollback": "ROLLBACK without BEGIN",
        "begin; begin; commit": "one is open already",
        "insert into t values (9); commit": "COMMIT without BEGIN",
    }.items():
        with pytest.raises(InvalidConfig, match=said):
            lake.sql(text)
    with pytest.raises(UnsupportedFeature, match="savepoint a"):
        lake.sql("savepoint a")
    with pytest.raises(UnsupportedFeature, match="COMMIT … AND"):
        lake.sql("commit and chain")
    assert rows(lake, "from t") == [(1,)] and not lake.in_transaction
    for text in ("begin", "start transaction", "commit work", "rollback"):
        with (
            duckrun.connect(tmp_path / "delta") as delta,
            pytest.raises(UnsupportedFeature, match="is one commit of one table"),
        ):
            delta.sql(f"create table t as select 1 as n; {text}")
    assert not (tmp_path / "delta").exists()


def test_closing_a_session_rolls_back(tmp_path: Path) -> None:
    with duckrun.connect(tmp_path / "lake", format="ducklake") as session:
        session.sql("create table t as select 1 as id")
        session.sql("begin; insert into t values (2)")
    with duckrun.connect(tmp_path / "lake", format="ducklake") as session:
        session.sql("insert into t values (3)")  # and lets go of the lock
        assert rows(session, "from t order by id") == [(1,), (3,)]


def test_commits_say_the_snapshot_that_was_made(lake: Session) -> None:
    with lake.transaction() as together:
        appended = together.execute("t", WriteSpec("append"), SQL("select 2 as id"))
        made = together.execute("u", WriteSpec("error"), SQL("select 1 as n"))
        merged = together.execute("t", MergeSpec(("id",)), SQL("select 2 as id"))
        nothing = together.sql("delete from total where n > 99")
    assert appended.version == made.version == merged.version == newest(lake)
    assert nothing.version == lake.table("total").snapshot().version < newest(lake)
    assert lake.table("u").snapshot().version == lake.table("t").snapshot().version == newest(lake)
    assert lake.table("t").history()[0]["version"] == newest(lake)


def test_a_replayed_write_writes_once_within_and_afterwards(lake: Session) -> None:
    app = AppTransaction("nightly", 3)
    with lake.transaction() as together:
        made = [together.execute("t", WriteSpec("append", app=app), SQL("select 2 as id")) for _ in range(2)]
    assert [commit.replayed for commit in made] == [False, True]
    assert made[0].version == made[1].version == newest(lake)
    assert lake.execute("t", WriteSpec("append", app=app), SQL("select 2 as id")).replayed
    with lake.transaction() as together:
        assert together.execute("t", WriteSpec("append", app=app), SQL("select 2 as id")).replayed
    assert rows(lake, "from t order by id") == [(1,), (2,)]
    with pytest.raises(ZeroDivisionError), lake.transaction() as together:
        together.execute("t", WriteSpec("append", app=AppTransaction("nightly", 4)), SQL("select 3 as id"))
        raise ZeroDivisionError
    again = lake.execute("t", WriteSpec("append", app=AppTransaction("nightly", 4)), SQL("select 3 as id"))
    assert not again.replayed and rows(lake, "select count(*) from t") == [(3,)]


def test_definitions_are_part_of_it(lake: Session, tmp_path: Path) -> None:
    before = newest(lake)
    with lake.transaction() as together:
        together.sql("create schema other")
        together.sql("create table other.made (id integer, word varchar default 'x')")
        together.sql("insert into other.made (id) values (5)")
        together.sql("alter table t add column extra integer")
        together.sql("insert into t values (2, 7)")
        together.sql("create view big as select id from main.t where id > 1")
        assert rows(together, "from big") == [(2,)]
        together.sql("alter table total rename to sums")
        together.sql("insert into sums values (9)")
        together.sql("create table gone as select 1 as n; drop table gone")
    assert newest(lake) == before + 1
    with attached(tmp_path / "lake") as plain:
        assert plain.sql("from lake.other.made").fetchall() == [(5, "x")]
        assert plain.sql("from lake.t order by id").fetchall() == [(1, None), (2, 7)]
        assert plain.sql("select count(*) from lake.sums").fetchall() == [(2,)]
    assert lake.tables() == ["main.big", "main.sums", "main.t", "other.made"]


def test_a_delta_lake_is_read_within_and_not_written(lake: Session, tmp_path: Path) -> None:
    with duckrun.connect(tmp_path / "delta") as delta:
        delta.sql("create table seen as select range + 10 as id from range(3)")
    with duckrun.connect(tmp_path) as delta:
        delta.sql("create table apart.seen as select 1 as id")
    lake.attach(tmp_path / "delta", "other")
    with lake.transaction() as together:
        together.sql("insert into t select id::int from other.main.seen")
        together.sql("create temp view kept as select max(id) as n from t")
        together.sql("update total set n = (select n from kept)")
    assert rows(lake, "select count(*), (select n from total) from t") == [(4, 12)]
    for statement in (
        "insert into other.main.seen values (1)",
        "drop table other.main.seen",
        "create view other.main.v as select 1 as n",
        "create schema other.made",
        f"insert into delta.`{tmp_path}/apart/seen` values (1)",
        f"drop table delta.`{tmp_path}/apart/seen`",
    ):
        with pytest.raises(UnsupportedFeature, match="no commit spans two lakes.*rolled back"), lake.transaction():
            lake.sql("insert into t values (99)")
            lake.sql(statement, dialect="spark" if "`" in statement else "duckdb")
    assert rows(lake, "select count(*) from t") == [(4,)]
    for statement in ("insert into late.main.seen values (1)", "create schema late.made"):
        lake.begin()
        lake.attach(tmp_path / "delta", "late")  # the lake waits all the same
        with pytest.raises(UnsupportedFeature, match="no commit spans two lakes.*rolled back"):
            lake.sql(statement)
        lake.rollback()
        lake.sql(statement)
        lake.detach("late")
    with pytest.raises(UnsupportedFeature, match="Do it before BEGIN"), lake.transaction():
        lake.sql("create temp table other_kept as select 1 as n")
    lake.sql("insert into other.main.seen values (1)")
    lake.sql("use other")
    with pytest.raises(UnsupportedFeature, match="on a lake of format delta"):
        lake.sql("begin")


def test_what_a_run_has_pinned_is_as_before_where_it_is_rolled_back(tmp_path: Path) -> None:
    with duckrun.connect(tmp_path / "lake", format="ducklake") as other:
        other.sql("create table t as select 1 as id")
        pins = Pins(other.lakes)
        with duckrun.connect(tmp_path / "lake", format="ducklake", pins=pins) as run:
            assert rows(run, "from t") == [(1,)]
            with pytest.raises(ZeroDivisionError), run.transaction():
                run.sql("insert into t values (2)")
                raise ZeroDivisionError
            assert rows(run, "from t") == [(1,)]
            other.sql("insert into t values (3)")  # at the version that the run would have made
            with pytest.raises(CommitConflict, match="was computed from version"):
                run.sql("update t set id = id + 10")
    with attached(tmp_path / "lake") as plain:
        assert plain.sql("from lake.t order by id").fetchall() == [(1,), (3,)]


def test_another_program_that_commits_meanwhile_is_a_conflict(lake: Session, tmp_path: Path) -> None:
    with pytest.raises(CommitConflict, match="Another program committed"), lake.transaction() as together:
        together.sql("insert into t values (2)")
        with attached(tmp_path / "lake") as plain:
            plain.execute("insert into lake.total values (7)")
        together.sql("insert into total values (8)")
    assert rows(lake, "select count(*), (select count(*) from total) from t") == [(1, 2)]


def test_another_program_that_commits_in_the_middle_of_a_write_is_met_by_another_try(
    lake: Session, tmp_path: Path
) -> None:
    done: list[int] = []

    def meddle(number: int) -> int:
        if not done:
            done.append(number)
            plain.execute("insert into lake.total values (7)")
        return number

    with attached(tmp_path / "lake") as plain:
        instance = lake.embedded.connection
        instance.create_function("meddle", meddle, ["INTEGER"], "INTEGER", side_effects=True)  # type: ignore[list-item, arg-type]
        commit = lake.execute("t", WriteSpec("append"), SQL("select meddle(2::integer) as id"))
    assert done == [2] and commit.rows_inserted == 1
    assert rows(lake, "select count(*), (select count(*) from total) from t") == [(2, 2)]
    assert commit.version == newest(lake)


def test_a_commit_after_a_statement_that_failed_publishes_nothing(lake: Session) -> None:
    """The transaction itself, below the session: DuckDB's COMMIT would succeed."""
    form, before = lake.lake.format, newest(lake)
    ref = lake.ref("t")
    with lake.embedded.on_one_cursor() as cursor, form.transactions.transaction(cursor, form.snapshot(ref)) as work:
        work.execute(f"INSERT INTO {work.table(ref)} VALUES (2)")
        with pytest.raises(duckdb.BinderException):
            work.execute(f"INSERT INTO {work.table(ref)} VALUES (1, 2, 3)")
        work.execute(f"INSERT INTO {work.table(ref)} VALUES (3)")
        with pytest.raises(CommitConflict, match="failed"):
            work.commit()
    assert newest(lake) == before and rows(lake, "from t") == [(1,)]


@pytest.mark.parametrize(
    "first",
    [
        "alter table t add column c int default 7",
        "alter table t rename column id to k",
        "alter table t alter column id type bigint",
        "alter table t set sorted by (id)",
        "alter table t alter column id set not null",
        "comment on table t is 'said'",
        "alter table t rename to u; alter table u add column c int; alter table u rename to t",
    ],
)
def test_a_table_altered_in_the_transaction_is_not_renamed(lake: Session, tmp_path: Path, first: str) -> None:
    before = newest(lake)
    with pytest.raises(UnsupportedFeature, match="cannot be renamed in the transaction that has altered it"):
        lake.sql(f"begin; {first}; alter table t rename to t2; commit")
    assert newest(lake) == before
    with attached(tmp_path / "lake") as plain:
        assert plain.sql("from lake.t").fetchall() == [(1,)]


def test_a_table_made_or_renamed_before_it_is_altered_is_both(lake: Session, tmp_path: Path) -> None:
    lake.sql(
        "begin; alter table t rename to t2; alter table t2 add column c int default 7; "
        "create table u (id int); alter table u add column d int; alter table u rename to u2; "
        "create or replace table total as select 2 as n; alter table total add column e int; alter table total rename to t; commit"
    )
    with attached(tmp_path / "lake") as plain:
        assert plain.sql("from lake.t2").fetchall() == [(1, 7)]
        assert plain.sql("select id, d from lake.u2").fetchall() == []
        assert plain.sql("select n, e from lake.t").fetchall() == [(2, None)]


def test_options_of_a_table_follow_its_rename_and_go_with_it(lake: Session) -> None:
    lake.sql(
        "begin; create table u (id int) with ('duckrun.compression' = 'zstd'); alter table u rename to u2; "
        "create table w (id int) with ('duckrun.compression' = 'zstd'); drop table w; commit"
    )
    assert lake.table("u2").snapshot().properties == {"duckrun.compression": "zstd"}


@pytest.mark.parametrize(
    "rows_of_it",
    [
        "alter table u add column j int default 2; insert into u values (3, 258)",
        "alter table u add column j int; insert into u values (3, 258)",
        "alter table u add column j int default 2; alter table u rename to w; insert into w values (3, 258)",
        "alter table u add column j int default 2; update u set j = 258 where i = 1",
    ],
)
def test_rows_behind_a_column_behind_the_first_rows_are_refused(lake: Session, rows_of_it: str) -> None:
    before = newest(lake)
    with pytest.raises(UnsupportedFeature, match="gets its first rows in this transaction, and a column behind them"):
        lake.sql(f"begin; create table u (i int); insert into u values (1), (2); {rows_of_it}; commit")
    assert newest(lake) == before
    lake.sql("create table u (i int)")
    with pytest.raises(UnsupportedFeature, match="a column behind them|altered it"):
        lake.sql(f"begin; insert into u values (1), (2); {rows_of_it}; commit")


def test_a_column_before_the_first_rows_has_its_bounds(lake: Session) -> None:
    lake.sql("begin; create table u (i int); alter table u add column j int default 2")
    lake.sql("insert into u (i) values (1); insert into u values (3, 258); commit")
    assert rows(lake, "select i from u where j = 2") == [(1,)]
    assert rows(lake, "select j from u order by j") == [(2,), (258,)]


def test_names_are_those_of_the_transaction(lake: Session) -> None:
    lake.sql("create schema gone; create table gone.x as select 1 as n")
    lake.sql("begin; create schema made; create table made.u as select 7 as m; create view made.v as select 1 as x")
    lake.sql("drop table gone.x")
    assert [row[:2] for row in rows(lake, "show tables")] == [
        ("made", "u"),
        ("made", "v"),
        ("main", "t"),
        ("main", "total"),
    ]
    assert rows(lake, "show schemas") == [("gone",), ("made",), ("main",)]
    listed = "select table_name, column_name from information_schema.columns where table_schema = 'made' order by all"
    assert rows(lake, listed) == [("u", "m"), ("v", "x")]
    lake.sql("drop schema gone; drop schema made cascade")
    assert rows(lake, "show schemas") == [("main",)]
    with pytest.raises(TableNotFound, match="no schema made to drop"):
        lake.sql("drop schema made")
    lake.sql("rollback")
    assert rows(lake, "show schemas") == [("gone",), ("main",)]


def test_tables_are_swapped_by_renames(lake: Session, tmp_path: Path) -> None:
    lake.sql("begin; alter table t rename to old; alter table total rename to t; alter table old rename to total")
    assert rows(lake, "select (select n from t), (select id from total)") == [(1, 1)]
    lake.sql("insert into t values (5); delete from total; commit")
    with attached(tmp_path / "lake") as plain:
        assert plain.sql("select n from lake.t order by n").fetchall() == [(1,), (5,)]
        assert plain.sql("select id from lake.total").fetchall() == []


def test_a_begin_that_only_reads_blocks_no_writer(lake: Session, tmp_path: Path) -> None:
    with duckrun.connect(tmp_path / "lake", format="ducklake") as other:
        lake.sql("begin")
        assert rows(lake, "from t") == [(1,)]
        done = threading.Event()
        writer = threading.Thread(target=lambda: (other.sql("insert into t values (2)"), done.set()))
        writer.start()
        assert done.wait(30), "the writer waits"
        writer.join()
        assert rows(lake, "from t") == [(1,)] and rows(other, "from t order by id") == [(1,), (2,)]
        lake.sql("commit")
        assert rows(lake, "from t order by id") == [(1,), (2,)]


def test_a_write_behind_a_read_that_others_have_overtaken_is_a_conflict(lake: Session, tmp_path: Path) -> None:
    with duckrun.connect(tmp_path / "lake", format="ducklake") as other:
        lake.sql("begin; from t")
        other.sql("insert into t values (2)")
        with pytest.raises(CommitConflict, match="Another program committed to lake .* run all of it again"):
            lake.sql("insert into t select max(id) + 10 from t")
        lake.sql("rollback; begin")
        other.sql("insert into t values (3)")
        lake.sql("insert into t select max(id) + 10 from t")  # nothing was read before: it begins again
        lake.sql("commit")
    assert rows(lake, "from t order by id") == [(1,), (2,), (3,), (13,)]


def test_a_writing_transaction_keeps_others_waiting(lake: Session, tmp_path: Path) -> None:
    with duckrun.connect(tmp_path / "lake", format="ducklake") as other:
        lake.sql("begin; update t set id = 5")
        writer = threading.Thread(target=lambda: other.sql("update t set id = id + 1"))
        writer.start()
        writer.join(0.5)
        assert writer.is_alive()
        lake.sql("commit")
        writer.join(30)
    assert rows(lake, "from t") == [(6,)]


@pytest.mark.parametrize("mode", ["append", "error", "ignore", "overwrite", "merge"])
def test_a_table_that_another_program_makes_before_the_transaction_begins_is_a_lost_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The program is DuckDB alone, which does not wait for the writers' lock."""
    spec = MergeSpec(("id",)) if mode == "merge" else WriteSpec(mode)  # type: ignore[arg-type]
    opened, root = Transactor._opened, tmp_path / "lake"

    def after_the_other(self: Transactor, *given: Any) -> Any:
        monkeypatch.setattr(Transactor, "_opened", opened)
        with attached(root) as plain:
            plain.execute("create table lake.main.t as select 1 as id")
        return opened(self, *given)

    with duckrun.connect(root, format="ducklake") as lake:
        lake.sql("create table first (id int)")
        monkeypatch.setattr(Transactor, "_opened", after_the_other)
        if mode == "error":
            with pytest.raises(CommitConflict, match="exists already"):
                lake.execute("main.t", spec, SQL("select 2 as id"))
        else:
            lake.execute("main.t", spec, SQL("select 2 as id"))
        found = sorted(row["id"] for row in lake.sql("from main.t").collect())
        assert found == {"append": [1, 2], "merge": [1, 2], "overwrite": [2]}.get(mode, [1])


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_writers_lock_is_held_while_the_session_starts_its_duckdb(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """The lock of a server belongs to a connection. A session's first write takes it before its DuckDB reads the lake."""
    catalog = request.getfixturevalue("postgres_catalog") if kind == "postgres" else None
    has_it = threading.Event()

    def wait_for_it(other: Session) -> None:
        with other.lake.format.locked(other.ref("t")):
            has_it.set()

    with (
        duckrun.connect(tmp_path / "lake", format="ducklake", catalog=catalog) as one,
        duckrun.connect(tmp_path / "lake", format="ducklake", catalog=catalog) as other,
    ):
        waiting = threading.Thread(target=wait_for_it, args=(other,))
        with one.lake.format.locked(one.ref("t")):
            one.sql("select 1 as n").collect()
            waiting.start()
            assert not has_it.wait(2)
        assert has_it.wait(30)
        waiting.join()
