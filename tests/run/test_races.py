"""Another writer's commit between the read and the commit of each kind of write, by SQL, by frames and by specs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import SQL, DuckrunError, MergeSpec, Session, WriteSpec
from duckrun.engines.duckdb.writers import file_tables
from duckrun.values.rows import DeleteInsertSpec
from tests import races
from tests.races import CONSTANT_SOURCE, CREATED_AGAIN, FOREIGN, MOMENTS, SOURCES, Foreign, LetIn, Rows, Source

EVERYTHING = (*FOREIGN, CREATED_AGAIN)
SPECS: dict[str, Any] = {
    "append": WriteSpec("append"),
    "overwrite": WriteSpec("overwrite"),
    "replace": WriteSpec("replace"),
    "replace_where": WriteSpec("replace", predicate="p = 'a'"),
    "merge": MergeSpec(("id",)),
    "delete_insert": DeleteInsertSpec(("id",)),
}
STATEMENTS = {
    "append": "insert into {t} by name {query}",
    "overwrite": "create or replace table {t} partitioned by (p) as {query}",
    "replace": "insert overwrite {t} partition (p) {query}",
    "merge": "merge into {t} as t using ({query}) as s on t.id = s.id when matched then update set * when not matched then insert *",
}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def opened(lake: Path) -> Iterator[Session]:
    with duckrun.connect(lake, memory_limit="1GB") as session:
        yield session


@pytest.fixture
def let_in(monkeypatch: pytest.MonkeyPatch) -> LetIn:
    return LetIn(monkeypatch)


def by_statement(session: Session, table: str, mode: str, source: Source) -> Callable[[], Any]:
    query = source.query.format(t=table)
    if mode in STATEMENTS:
        return lambda: session.sql(STATEMENTS[mode].format(t=table, query=query))
    return lambda: session.execute(table, SPECS[mode], SQL(query))


def by_frame(session: Session, table: str, mode: str, source: Source) -> Callable[[], Any]:
    frame = session.sql(source.query.format(t=table))
    return lambda: session.execute(table, SPECS[mode], frame)


def by_stream(session: Session, table: str, mode: str, source: Source) -> Callable[[], Any]:
    """A relation is read once: its rows are on disk, or in files, when the version is lost."""
    relation = session.sql(source.query.format(t=table)).native
    return lambda: session.execute(table, SPECS[mode], relation)


SURFACES = {"sql": by_statement, "frame": by_frame, "relation": by_stream}


@pytest.fixture(params=["written anew", "marked"])
def leaving(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """How rows leave the tables: True by deletion vectors, however many of a file."""
    monkeypatch.setattr(file_tables, "_SHARE", 1.0)
    return request.param == "marked"


def race(
    session: Session,
    let_in: LetIn,
    lake: Path,
    foreign: Foreign,
    prepare: Callable[[str], tuple[Callable[[], Any], Any, bool]],
    marking: bool,
) -> None:
    """Each moment, with the lock and without it; the order is that of the model, or ours failed."""
    for number, (moment, locked) in enumerate(itertools.product(MOMENTS, (True, False))):
        table, location = f"main.t{number}", lake / "main" / f"t{number}"
        races.make(location, marking=marking)
        write, model, of_itself = prepare(table)
        if not locked:
            let_in.lock_away()
        let_in.next(location, moment, foreign)
        error: DuckrunError | None = None
        try:
            write()
        except DuckrunError as raised:
            error = raised
        assert let_in.came(), "the other was not let in"
        races.judge(location, foreign, model, error, of_itself=of_itself)
        assert session.sql(f"select count(*) as n from {table}").collect() == [{"n": races.held(location).total()}]


@pytest.mark.matrix
@pytest.mark.drawn(10)
@pytest.mark.parametrize("foreign", EVERYTHING, ids=races.named(EVERYTHING))
@pytest.mark.parametrize("source", SOURCES, ids=races.named(SOURCES))
@pytest.mark.parametrize("mode", SPECS)
@pytest.mark.parametrize("surface", SURFACES)
def test_a_commit_in_between_is_before_or_after_ours(
    opened: Session,
    let_in: LetIn,
    lake: Path,
    surface: str,
    mode: str,
    source: Source,
    foreign: Foreign,
    leaving: bool,
) -> None:
    def prepare(table: str) -> tuple[Callable[[], Any], Any, bool]:
        return SURFACES[surface](opened, table, mode, source), races.Write(mode, source), source is not CONSTANT_SOURCE

    race(opened, let_in, lake, foreign, prepare, leaving)


def _update(rows: Rows) -> Rows:
    return [{**row, "n": row["n"] + len(rows)} if row["p"] == "a" else row for row in rows]


def _delete(rows: Rows) -> Rows:
    most = max(row["n"] for row in rows)
    return [row for row in rows if row["n"] == most]


def _plain_update(rows: Rows) -> Rows:
    return [{**row, "n": row["n"] * 2} if row["p"] == "a" else row for row in rows]


def _plain_delete(rows: Rows) -> Rows:
    return [row for row in rows if row["n"] >= 25]


def _insert_once(rows: Rows) -> Rows:
    return rows if any(row["id"] == 9 for row in rows) else [*rows, {"id": 9, "v": "ours", "n": 900, "p": "a"}]


def _merge_by_source(rows: Rows) -> Rows:
    """Rows of the source win, and 100 more is in the n of each row that it lacks."""
    ours = {2: {"id": 2, "v": "ours", "n": 200, "p": "a"}}
    return [ours.get(row["id"], {**row, "n": row["n"] + 100}) for row in rows]


def _merge_in_parts(rows: Rows) -> Rows:
    """The row 1 goes, 1 more is in the n of row 2, and row 9 comes."""
    left = [{**row, "n": row["n"] + 1} if row["id"] == 2 else row for row in rows if row["id"] != 1]
    return _insert_once(left)


def _as_it_was(rows: Rows) -> Rows:
    return rows


CHANGES: dict[str, tuple[str, Callable[[Rows], Rows], bool]] = {
    "update of itself": ("update {t} set n = n + (select count(*) from {t}) where p = 'a'", _update, True),
    "delete of itself": ("delete from {t} where n < (select max(n) from {t})", _delete, True),
    "update": ("update {t} set n = n * 2 where p = 'a'", _plain_update, False),
    "delete": ("delete from {t} where n < 25", _plain_delete, False),
    "insert what is not there": (
        "insert into {t} by name select * from (select 9::bigint as id, 'ours' as v, 900::bigint as n, 'a' as p) "
        "where id not in (select id from {t})",
        _insert_once,
        True,
    ),
    "merge with clauses": (
        "merge into {t} t using (values (1::bigint, 'go'), (2, 'add'), (9, 'new')) s(id, what) on t.id = s.id "
        "when matched and s.what = 'go' then delete when matched and s.what = 'add' then update set n = t.n + 1 "
        "when not matched and s.what = 'new' then insert (id, v, n, p) values (s.id, 'ours', 900, 'a')",
        _merge_in_parts,
        False,
    ),
    "merge by source": (
        "merge into {t} t using (select 2::bigint as id, 'ours' as v, 200::bigint as n, 'a' as p) s on t.id = s.id "
        "when matched then update set * when not matched by source then update set n = t.n + 100",
        _merge_by_source,
        False,
    ),
    "delete of all": ("delete from {t}", lambda rows: [], False),
    "truncate": ("truncate table {t}", lambda rows: [], False),
    "optimize": ("optimize {t}", _as_it_was, False),
    "add a column": ("alter table {t} add column note varchar", _as_it_was, False),
    "set a property": (
        "alter table {t} set tblproperties ('delta.logRetentionDuration' = 'interval 61 days')",
        _as_it_was,
        False,
    ),
    "restore": ("restore table {t} to version as of 0", lambda rows: races.START[:1], False),
}


@pytest.mark.drawn(10)
@pytest.mark.parametrize("foreign", FOREIGN, ids=races.named(FOREIGN))
@pytest.mark.parametrize("statement", CHANGES)
def test_a_commit_in_between_is_before_or_after_a_statement(
    opened: Session, let_in: LetIn, lake: Path, statement: str, foreign: Foreign, leaving: bool
) -> None:
    text, model, of_itself = CHANGES[statement]

    def prepare(table: str) -> tuple[Callable[[], Any], Any, bool]:
        return lambda: opened.sql(text.format(t=table)), model, of_itself

    race(opened, let_in, lake, foreign, prepare, leaving)


def test_sql_that_lost_its_race_is_computed_again_and_a_frame_is_refused(
    opened: Session, let_in: LetIn, lake: Path
) -> None:
    races.make(lake / "main" / "t")
    frame = opened.sql("select max(id) + 1 as id, 'new' as v, sum(n)::bigint as n, 'a' as p from t")
    let_in.next(lake / "main" / "t", "before the commit", FOREIGN[0])
    commit = opened.sql("insert into t select max(id) + 1, 'new', sum(n), 'a' from t")
    assert (commit.version, commit.mode) == (3, "append")
    assert (8, "new", 130, "a") in races.held(lake / "main" / "t")
    with pytest.raises(
        duckrun.CommitConflict, match=r"main\.t was computed from version 1 .*version 2 \(WRITE\).*read again"
    ):
        frame.write.mode("overwrite").saveAsTable("t")
    assert opened.table("t").snapshot().version == 3


# -- what carries what was read


def frame_of(session: Session) -> Any:
    return session.sql("select * from t where n > 10")


def carried_by(session: Session) -> dict[str, Callable[[], Any]]:
    """Ways from the rows of a table to what is written: each must know what it was made of."""

    def view() -> Any:
        frame_of(session).createOrReplaceTempView("seen")
        return session.sql("select * from seen")

    def registered() -> Any:
        session.register("seen", frame_of(session))
        return session.sql("select id, v, n, p from seen")

    def kept() -> Any:
        session.sql("create or replace temp table kept as select * from t where n > 10")
        return session.sql("select * from kept")

    def relation_in_a_name() -> Any:
        session.register("seen", frame_of(session).native)
        return session.sql("select * from seen")

    return {
        "frame": lambda: frame_of(session),
        "scan": lambda: session.table("t").toDF(),
        "reader": lambda: session.read.table("t"),
        "by path": lambda: session.read.format("delta").load(f"{session.lake.root}/main/t"),
        "limit": lambda: frame_of(session).limit(1),
        "renamed": lambda: frame_of(session).renamed([((c,), c) for c in races.COLUMNS]),
        "alias": lambda: frame_of(session).alias("s"),
        "temp view": view,
        "registered": registered,
        "temp table": kept,
        "relation": lambda: frame_of(session).native,
        "relation of a relation": lambda: frame_of(session).native.filter("id > 1").project("id, v, n, p"),
        "relation under a name": relation_in_a_name,
        "relation of a view": lambda: (view(), session.engine.connection.sql("from seen"))[1],  # type: ignore[attr-defined]
    }


WAYS = list(carried_by(None))  # type: ignore[arg-type]


@pytest.mark.parametrize("way", WAYS)
def test_whatever_the_rows_went_through_they_know_what_they_were_made_of(opened: Session, lake: Path, way: str) -> None:
    races.make(lake / "main" / "t")
    source = carried_by(opened)[way]()
    FOREIGN[4].commit(str(lake / "main" / "t"))
    FOREIGN[5].commit(str(lake / "main" / "t"))
    FOREIGN[0].commit(str(lake / "main" / "t"))
    with pytest.raises(duckrun.CommitConflict, match=r"main\.t was computed from version 1 .*version 4 \(WRITE\)"):
        opened.execute("t", WriteSpec("overwrite"), source)
    assert races.held(lake / "main" / "t") == races.counted([*races.START, *races.UNRELATED])


def test_a_version_that_was_asked_for_is_the_same_at_any_time(opened: Session, lake: Path) -> None:
    races.make(lake / "main" / "t")
    first = opened.sql("select * from t at (version => 0)")
    FOREIGN[0].commit(str(lake / "main" / "t"))
    opened.execute("t", WriteSpec("overwrite"), first)
    assert races.held(lake / "main" / "t") == races.counted(races.START[:1])
    opened.execute("t", WriteSpec("overwrite"), opened.sql("select * from t at (version => 1)").native)
    assert races.held(lake / "main" / "t") == races.counted(races.START)


def test_commits_of_the_session_itself_are_in_its_own_order(opened: Session, lake: Path) -> None:
    races.make(lake / "main" / "t")
    frame = frame_of(opened)
    opened.sql("insert into t values (5, 'own', 50, 'b')")
    assert frame.write.mode("append").saveAsTable("t").version == 3
    assert frame.write.mode("overwrite").saveAsTable("t").version == 4
    opened.sql("create temp table kept as select * from t")
    opened.sql("drop table t")
    opened.sql("create table t as select * from kept")
    opened.sql("insert into t select * from kept")
    assert races.held(lake / "main" / "t") == races.counted(races.START[1:] * 2)


def test_a_table_that_is_not_the_one_that_was_read_is_not_written(opened: Session, lake: Path) -> None:
    races.make(lake / "main" / "t")
    opened.sql("create temp table kept as select * from t")
    with duckrun.connect(lake) as other:
        other.sql("drop table t")
        other.execute("t", WriteSpec("append"), pa.table({"id": [1]}))
    with pytest.raises(duckrun.CommitConflict, match=r"main\.t was computed from version 1 .*at version 0 now"):
        opened.sql("create or replace table t as select * from kept")


def test_nothing_of_the_log_is_read_again_where_the_version_stands(
    opened: Session, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    races.make(lake / "main" / "t")
    frame = frame_of(opened)
    monkeypatch.setattr("duckrun.run.fence.Fence.commits_after", lambda *_: pytest.fail("the log was read"))
    frame.write.mode("overwrite").saveAsTable("t")
    opened.sql("insert into t select * from t")
