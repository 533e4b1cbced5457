"""What a person meets beside the matrix: odd names, literals, several statements, what is wrong said in good time."""

from __future__ import annotations

import itertools
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import duckrun
from duckrun import (
    AppTransaction,
    Commit,
    DuplicateSourceKeys,
    InvalidConfig,
    ReadOnlyLake,
    SchemaMismatch,
    TableNotFound,
    UnsupportedFeature,
    WriteSpec,
)
from duckrun.session import Session
from duckrun.statements.parse.parsing import parse
from duckrun.statements.parse.tokens import split
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats

ORDERS = pa.table({"id": [1, 2], "item": ["fig", "kiwi"]})


@pytest.fixture
def shop(duck: Session) -> Session:
    duck.execute("sales.orders", WriteSpec("error"), ORDERS)
    return duck


@pytest.mark.parametrize("name", ["odd name", "Größe", "select", 'quo"te', "it's", "MixedCase", "数量"])
def test_any_name_can_be_a_table_and_a_column(session: Session, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    session.sql(f"create table sales.{quoted} as select 1 as {quoted}, 'x' as b")
    session.sql(f"insert into sales.{quoted} ({quoted}) values (2)")
    session.sql(f"update sales.{quoted} set {quoted} = {quoted} + 10 where sales.{quoted}.{quoted} = 2")
    session.sql(
        f"merge into sales.{quoted} using (select 1 as {quoted}, 'y' as b) as {quoted[:-1]}2\" "
        f'on {quoted}.{quoted} = {quoted[:-1]}2".{quoted} when matched then update set *'
    )
    assert rows_of(session.sql(f"select * from sales.{quoted}")) == [(1, "y"), (12, None)]
    assert session.tables() == [f"sales.{name}"]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("select ';' ; select 2", 2),
        ("select $$a;b$$; select $tag$ ; $tag$", 2),
        ("/* ; */ select 1 -- ;\n", 1),
        (';;select 1 as "a;b";;', 1),
        ("explain select ';'; vacuum t dry run; select 1", 3),
    ],
)
def test_statements_are_split_outside_of_literals_and_comments(text: str, count: int) -> None:
    assert len(split(text, "duckdb")) == count == len(parse(text))


def test_literals_are_stored_as_they_are(shop: Session) -> None:
    shop.sql("insert into sales.orders values (3, 'it''s; -- no comment'), (4, $$'/* $1 */;$$), (5, 'ünï \\n')")
    assert rows_of(shop.sql("select item from sales.orders where id > 2")) == [
        ("'/* $1 */;",), ("it's; -- no comment",), ("ünï \\n",),
    ]  # fmt: skip


def test_several_statements_run_in_order_and_an_error_names_the_one_that_failed(shop: Session) -> None:
    commit = shop.sql("insert into sales.orders values (3, 'nut'); delete from sales.orders where id = 1;")
    assert isinstance(commit, Commit) and (commit.mode, commit.version) == ("delete", nth(2))
    with pytest.raises(TableNotFound, match=r"Statement 2 of 3: .*sales\.order\b.*Did you mean sales\.orders"):
        shop.sql("insert into sales.orders values (4, 'oat'); delete from sales.order; delete from sales.orders")
    assert rows_of(shop.sql("select id from sales.orders")) == [(2,), (3,), (4,)]


def test_what_is_not_supported_keeps_everything_from_running(shop: Session) -> None:
    with pytest.raises(UnsupportedFeature, match="Statement 2 of 2: CREATE INDEX"):
        shop.sql("delete from sales.orders; create index i on sales.orders (id)")
    with pytest.raises(InvalidConfig, match="Statement 2 of 2: Cannot read"):
        shop.sql("delete from sales.orders; insert into sales.orders select from from")
    assert shop.table("sales.orders").snapshot().version == nth(0)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("selct * from sales.orders", r"SELCT begins no statement of SQL. Did you mean SELECT\?"),
        ("updat sales.orders set id = 1", r"Did you mean UPDATE\?"),
        ("create or replace tabel sales.x as select 1 as n", r"CREATE TABEL begins .* Did you mean CREATE TABLE\?"),
        ("drop veiw sales.v", r"Did you mean DROP VIEW\?"),
        ("delete sales.orders where id = 1", "expected FROM before the name of the table"),
        ("select 'a from sales.orders", "a quote or a comment has no end"),
        ("grab * from sales.orders", "an expression is missing at line 1, column 11"),
    ],
)
def test_a_typing_error_is_named_without_words_of_the_parser(shop: Session, statement: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message) as refused:
        shop.sql(statement)
    assert "sqlglot" not in str(refused.value)
    assert shop.table("sales.orders").snapshot().version == nth(0)


@pytest.mark.parametrize(
    "statement",
    [
        "drop table sales.orders",
        "delete from sales.orders",
        "create view sales.v as select 1 as n",
        "vacuum sales.orders",
    ],
)
def test_a_read_only_lake_refuses_before_anything_runs(shop: Session, statement: str) -> None:
    with duckrun.connect(shop.lake.root, read_only=True) as reader:
        with pytest.raises(ReadOnlyLake, match="Statement 2 of 2"):
            reader.sql(f"select 1; {statement}")
        assert reader.sql("select count(*) as n from sales.orders").collect() == [{"n": 2}]


@pytest.mark.parametrize(
    "query",
    [
        "with a as (with a as (select 1 as x) select * from a) select * from a",
        "with a as (select 3 as x), b as (with a as (select x + 1 as x from a) select * from a) select b.x from a, b",
        "with a as (with a as (select 1 as x) select * from a) select (with a as (select 7 as y) select y from a) + x from a",
        "with t as (with t as (select * from t) select x + 1 as x from t) select * from t",
        "with t as (select x + 1 as x from t), u as (select * from t) select * from u union all select * from t",
        "with recursive t as (select 1 as x union all select x + 1 from t where x < 3) select * from t",
        "with T as (select x + 1 as x from t) select * from (with u as (select * from t) select * from u)",
    ],
)
def test_common_table_expressions_of_one_name_are_seen_where_duckdb_sees_them(session: Session, query: str) -> None:
    native = duckdb.connect()
    native.execute("create table t as select 10 as x")
    session.sql("create table main.t as select 10 as x")
    assert rows_of(session.sql(query)) == sorted(native.execute(query).fetchall())


def test_an_ambiguous_column_says_where_it_may_be(session: Session) -> None:
    session.sql("create table a as select 1 as id, 2 as v; create table b as select 1 as id, 3 as v")
    with pytest.raises(InvalidConfig, match=r"The column v is ambiguous: it may be x\.v and b\.v"):
        session.sql("update a as x set v = v + 1 from b where b.id = x.id")
    with pytest.raises(InvalidConfig, match="mbiguous"):
        session.sql("select v from a join b using (id)")
    with pytest.raises(InvalidConfig, match=r"nope is no column here. x has id, v; b has id, v"):
        session.sql("delete from a x using b where b.id = nope")


def test_duplicate_keys_of_a_merge_are_counted_and_three_shown(session: Session) -> None:
    session.sql("create table a as select 1 as id")
    with pytest.raises(DuplicateSourceKeys, match="4 keys") as raised:
        session.sql(
            "merge into a using (select i % 4 as id from range(8) r(i)) s on a.id = s.id when matched then delete"
        )
    assert str(raised.value).count("2 times") == 3


def test_a_partition_column_that_may_not_be_null_is_not_set_to_null(session: Session) -> None:
    session.sql("create table a (id bigint, day varchar not null) partitioned by (day); insert into a values (1, 'x')")
    with pytest.raises(SchemaMismatch, match="NOT NULL"):
        session.sql("update a set day = null")
    assert rows_of(session.sql("select * from a")) == [(1, "x")]


@pytest.mark.parametrize("name", ['"../outside"', '"a/b"', '".."', '"_hidden"'])
def test_a_name_that_leaves_the_lake_is_refused(shop: Session, name: str, root: Path) -> None:
    for statement in (
        f"create table {name} as select 1 as n",
        f"drop table if exists sales.{name}",
        f"select * from {name}",
    ):
        with pytest.raises(InvalidConfig, match="cannot name"):
            shop.sql(statement)
    assert sorted(path.name for path in root.parent.iterdir()) == ["lake"]


def test_a_write_out_of_its_own_table_that_was_overtaken_is_computed_again(
    shop: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, others = Session.execute, itertools.count(90, 10)

    def raced(self: Session, *args: object, **options: object) -> object:
        monkeypatch.undo()
        with duckrun.connect(shop.lake.root) as other:
            other.sql(f"insert into sales.orders values ({next(others)}, 'oat')")
        return execute(self, *args, **options)  # type: ignore[arg-type]

    for statement, left in (
        ("insert into sales.orders select max(id) + 1, 'next' from sales.orders", [90, 91]),
        ("delete from sales.orders where id < (select max(id) from sales.orders)", [100]),
        ("merge into sales.orders t using (select * from sales.orders) s on t.id = s.id when matched then delete", []),
    ):
        version = shop.table("sales.orders").snapshot().version
        monkeypatch.setattr(Session, "execute", raced)
        assert shop.sql(statement).version == version + 2
        assert rows_of(shop.sql("select id from sales.orders where id >= 90")) == [(id_,) for id_ in left]


def test_an_application_transaction_runs_each_statement_once(shop: Session) -> None:
    text = "insert into sales.orders values (3, 'nut'); update sales.orders set item = item || '!' where id = 3"
    app = AppTransaction("nightly", 7)
    first, again = shop.sql(text, app=app), shop.sql(text, app=app)
    assert (first.replayed, again.replayed, again.version) == (False, True, first.version)
    assert rows_of(shop.sql("select item from sales.orders where id = 3")) == [("nut!",)]


def test_a_view_keeps_the_schema_of_the_session_that_made_it(shop: Session) -> None:
    shop.sql("create table main.orders as select 7 as id; create view sales.mine as select id from orders")
    with duckrun.connect(shop.lake.root, schema="sales") as other:
        assert rows_of(other.sql("select * from mine")) == [(7,)]
    with pytest.raises(InvalidConfig, match="only this session knows"):
        shop.sql("create temp view here as select 1 as n; create view sales.other as select * from here")
    with pytest.raises(InvalidConfig, match="circle"):
        shop.sql(
            "create view sales.a as select * from sales.mine; create or replace view sales.mine as select * from sales.a"
        )


def test_a_view_over_a_relative_path_reads_that_file_from_anywhere(
    duck: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here" / "days.csv").write_text("day,n\n2026-01-01,1\n")
    monkeypatch.chdir(tmp_path / "here")
    duck.sql("create view days as select n from read_csv('days.csv')")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert rows_of(duck.sql("from days")) == [(1,)]


def test_a_temporary_view_is_of_one_session_and_follows_its_tables(session: Session) -> None:
    session.sql("create table t as select 1 as id; create temp view mine as select count(*) as n from t")
    session.sql("insert into t values (2)")
    assert rows_of(session.sql("select * from mine")) == [(2,)]
    with duckrun.connect(session.lake.root) as other, pytest.raises(TableNotFound):
        other.sql("select * from mine")
    session.sql("drop view mine")
    with pytest.raises(TableNotFound):
        session.sql("select * from mine")


def test_sorted_by_holds_for_later_writes(duck: Session) -> None:
    duck.sql("create table t sorted by (n) as select 3 as n union all select 1")
    duck.sql("insert into t values (9), (7), (8)")
    newest = duck.sql("select n from t where n > 5").collect()
    assert [row["n"] for row in newest] == [7, 8, 9]


@pytest.mark.lacks_format("ducklake", UnsupportedFeature, "it has no CHECK constraints")
def test_a_replaced_table_has_the_new_definition_only(session: Session) -> None:
    session.sql("create table t (n int, constraint small check (n < 5)) comment 'old'")
    session.sql("create or replace table t with ('owner' = 'me') as select 9 as n")
    snapshot = session.table("t").snapshot()
    assert snapshot.properties.get("owner") == "me" and snapshot.description is None
    assert not any(name.startswith("delta.constraints") for name in snapshot.properties)
    assert snapshot.version == nth(1)


@pytest.mark.lacks_format("ducklake", UnsupportedFeature, "it has no CHECK constraints")
def test_insert_overwrite_keeps_the_definition(session: Session) -> None:
    session.sql("create table t (n int not null comment 'x', constraint small check (n < 5)) comment 'kept'")
    session.sql("insert into t values (1); insert overwrite t values (2)")
    with pytest.raises(SchemaMismatch, match="small"):
        session.sql("insert overwrite t values (7)")
    snapshot = session.table("t").snapshot()
    assert (snapshot.description, snapshot.schema.field("n").nullable) == ("kept", False)
    assert rows_of(session.sql("select * from t")) == [(2,)]
