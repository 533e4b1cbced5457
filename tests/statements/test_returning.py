"""RETURNING: the rows that were committed, and no others, as plain DuckDB gives them."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from duckrun import AppTransaction, Commit, Done, DuckrunError, Frame, InvalidConfig, UnsupportedFeature, connect
from duckrun.session import Session
from tests import races
from tests.lake import nth, rows_of
from tests.races import FOREIGN, MOMENTS, Foreign, LetIn

pytestmark = pytest.mark.formats

MAKE = "create table t as select * from (values (1, 'fig', 10), (2, 'kiwi', 20), (3, null, 30)) v(id, item, qty)"
STATEMENTS = (
    "insert into t values (4, 'nut', 40), (5, 'x', null) returning id, qty * 2 as d, t.item",
    "insert into t (id) select id + 5 from t where id < 3 returning *",
    "insert into t by name select 9 as id, 'a' as item returning item, upper(item) -- why not",
    "with n as (select 10 as id) insert into t (id) select id from n returning * exclude (item)",
    "insert into t select 1, 'none', 1 where false returning id",
    "insert into t default values returning *",
    "update t set id = 11, qty = default where id is null returning *",
    "update t set qty = qty + 1, item = item || '!' where id > 3 returning id, item, qty",
    "update t set qty = qty where id = 1 returning *",
    "update t set qty = 0 where id = 99 returning id",
    "update t set item = n.item from (select 2 as id, 'new' as item) n where n.id = t.id returning t.id, t.item as now",
    "update t as x set qty = (select max(qty) from t) where x.id = 5 returning x.qty, x.id > 4 as late",
    "delete from t where item is null returning id as gone, qty",
    "delete from t using (values (2), (4)) n(id) where n.id = t.id returning t.*",
    "delete from t where id in (select min(id) from t) returning id",
    "delete from t returning id",
    "delete from t returning id",
)


def test_what_is_given_back_is_what_plain_duckdb_gives(duck: Session) -> None:
    with duckdb.connect() as plain:
        plain.execute(MAKE)
        duck.sql(MAKE)
        for statement in STATEMENTS:
            found, wanted = duck.sql(statement), plain.execute(statement).to_arrow_table()
            assert isinstance(found, Frame), statement
            assert (found.columns, rows_of(found)) == (wanted.column_names, rows_of(wanted)), statement
            assert rows_of(duck.sql("from t")) == rows_of(plain.execute("from t").to_arrow_table()), statement


@pytest.mark.parametrize("temp", ["", "temp "])
@pytest.mark.parametrize(
    "statement",
    [
        "insert into t values (2, 3) returning id, id",
        "update t set b = b + 1 returning *, id, b + 1 as b",
        "delete from t returning *, *",
    ],
)
def test_a_column_may_be_given_back_twice(duck: Session, statement: str, temp: str) -> None:
    for part in (f"create {temp}table t as select 1 as id, 2 as b", statement):
        found = duck.sql(part)
    with duckdb.connect() as plain:
        plain.execute("create table t as select 1 as id, 2 as b")
        wanted = plain.execute(statement).to_arrow_table()
    assert isinstance(found, Frame) and len(set(found.columns)) == len(wanted.column_names)
    assert [tuple(row.values()) for row in found.collect()] == [
        tuple(wanted.slice(0, 1).column(i)[0].as_py() for i in range(wanted.num_columns))
    ]


def test_each_is_one_commit_and_has_the_very_values_that_were_written(duck: Session) -> None:
    duck.sql("create table t (id bigint, at timestamptz, code varchar, part int) partitioned by (part)")
    volatile = "values (1, now(), uuid()::varchar, 1), (2, now(), uuid()::varchar, 2)"
    inserted = duck.sql(f"insert into t {volatile} returning *")
    assert rows_of(inserted) == rows_of(duck.sql("from t")) and duck.table("t").snapshot().version == nth(1)
    assert inserted.schema.types == duck.sql("from t").schema.types
    updated = duck.sql("update t set code = uuid()::varchar where random() <= 1 returning *")
    assert rows_of(updated) == rows_of(duck.sql("from t")) != rows_of(inserted)
    assert rows_of(duck.sql("delete from t where part = 1 returning *")) == rows_of(updated)[:1]  # a whole file
    assert duck.sql(
        "insert into t (id) select 3 returning `id`, concat('x', 'y') as `a b`", dialect="spark"
    ).collect() == [{"id": 3, "a b": "xy"}]
    assert duck.table("t").snapshot().version == nth(4)


@pytest.mark.parametrize(
    ("statement", "kind", "said"),
    [
        ("delete from t returning nope", InvalidConfig, '"nope" not found'),
        ("delete from t returning cast(item as int)", DuckrunError, "Could not convert string"),
        ("insert into t values (1, 'x', 1) returning (select 1)", UnsupportedFeature, "anything but columns"),
        ("update t set qty = 1 returning count(*)", UnsupportedFeature, "anything but columns"),
        ("delete from t returning row_number() over ()", UnsupportedFeature, "anything but columns"),
        (
            "insert into t values (1, 'x', 1) on conflict (id) do nothing returning id",
            UnsupportedFeature,
            "ON CONFLICT",
        ),
        ("insert overwrite t values (1, 'x', 1) returning id", UnsupportedFeature, "OVERWRITE"),
        (
            "merge into t using t s on t.id = s.id when matched then delete returning id",
            UnsupportedFeature,
            "RETURNING",
        ),
    ],
)
def test_what_cannot_be_given_back_is_said_before_anything_is_written(
    duck: Session, statement: str, kind: type[Exception], said: str
) -> None:
    duck.sql(MAKE)
    with pytest.raises(kind, match=said):
        duck.sql(statement)
    with pytest.raises(UnsupportedFeature, match="a second time"):
        duck.sql("delete from t returning id", app=AppTransaction("nightly"))
    assert duck.table("t").snapshot().version == nth(0) and duck.sql("from t").count() == 3


@pytest.mark.only_format("delta", "the other is deltalake")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    "foreign", [f for f in FOREIGN if f.name in ("append of our keys", "update", "compaction")], ids=attrgetter("name")
)
def test_after_a_lost_race_the_rows_are_those_of_the_attempt_that_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, foreign: Foreign, moment: str
) -> None:
    let_in = LetIn(monkeypatch)
    let_in.lock_away()
    changes = {
        "u": "update {t} set n = n + (select count(*) from {t}) where p = 'a' returning *",
        "d": "delete from {t} where n < (select max(n) from {t}) returning *",
        "i": "insert into {t} by name select max(id) + 1 as id, uuid()::varchar as v, sum(n)::bigint as n, 'c' as p from {t} returning *",
    }
    with connect(tmp_path / "lake", memory_limit="1GB") as session:
        for name, change in changes.items():
            location = tmp_path / "lake" / "main" / name
            races.make(location)
            let_in.next(location, moment, foreign)
            given = races.counted(session.sql(change.format(t=name)).collect())
            assert let_in.came()
            before, after = races.counted(foreign.change(races.START)), races.held(location)
            wanted: dict[str, Any] = {"u": [row for row in after.elements() if row[3] == "a"]}
            wanted |= {"d": (before - after).elements(), "i": (after - before).elements()}
            assert sorted(given.elements()) == sorted(wanted[name]), name


def test_a_temporary_table_is_changed_as_plain_duckdb_changes_it(duck: Session) -> None:
    temporary = MAKE.replace("create table", "create temp table")
    with duckdb.connect() as plain:
        plain.execute("create table kept as select 2 as id, 7 as n union all select 3, 8")
        duck.sql("create table kept as select 2 as id, 7 as n union all select 3, 8")
        plain.execute(temporary)
        duck.sql(temporary)
        for statement in (
            *STATEMENTS[:-2],
            "insert into t (values (1, 'a', 2))",
            "insert into t by position values (2, default, 3), (3, 'z', default)",
            "insert into t select id, n::varchar, n from kept where id not in (select id from t where qty = 3)",
            "update t set qty = k.n from kept k where k.id = t.id",
            "delete from t where id = (select min(id) from kept) and qty = 7",
            "truncate t",
        ):
            found, wanted = duck.sql(statement), plain.execute(statement).to_arrow_table()
            given = rows_of(found) if isinstance(found, Frame) else [(found.rows,)]
            assert isinstance(found, Frame | Done) and given == rows_of(wanted), statement
            assert rows_of(duck.sql("from t")) == rows_of(plain.execute("from t").to_arrow_table()), statement
    duck.sql(
        "insert into T select id, 'x', n from Kept; create or replace temp table Other as from T; drop table OTHER"
    )
    done = duck.sql("insert into kept select id + 10, qty from t")
    assert isinstance(done, Commit) and rows_of(duck.sql("from kept")) == [(12, 7), (13, 8), (2, 7), (3, 8)]
    assert duck.tables() == ["main.kept"]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("insert into seen values (2)", "is a temporary view.*takes no rows"),
        ("delete from given", "a value that was registered"),
        ("merge into tmp using kept on tmp.id = kept.id when matched then delete", "tmp is temporary: MERGE of it"),
        ("alter table tmp add column n int", "tmp is temporary: ALTER"),
        ("insert into tmp values (1, 2, 3)", "temporary table tmp.*3 values"),
        ("insert into tmp values ('x')", "temporary table tmp.*Could not convert"),
    ],
)
def test_what_a_temporary_name_does_not_take_is_said(duck: Session, root: Path, statement: str, said: str) -> None:
    duck.sql("create table kept as select 1 as id; create table seen as select 1 as id")
    with connect(root, read_only=True) as s:  # which may change its own
        s.sql(
            "create temp table tmp as select 1 as id; insert into tmp values (2); create temp view seen as select 1 as id"
        )
        s.register("given", s.sql("select 1 as id").toArrow())
        with pytest.raises(DuckrunError, match=f"(?s){said}"):
            s.sql(statement)
        assert (rows_of(s.sql("from tmp")), rows_of(s.sql("from lake.main.seen"))) == ([(1,), (2,)], [(1,)])
