"""Schemas: made without a table, dropped with theirs and with nothing else, and used for names that say none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import duckrun
from duckrun import Done, InvalidConfig, ReadOnlyLake, TableNotFound, UnsupportedFeature
from duckrun.engines.duckdb.writers import staged
from duckrun.session import Session
from duckrun.values.snapshot import TableRef
from tests.lake import rows_of

pytestmark = pytest.mark.formats

MAKE = "create schema sales; create table sales.orders as select 1 as id; create view sales.figs as select id from sales.orders"


def schemas_of(session: Session) -> list[str]:
    return [name for (name,) in rows_of(session.sql("show schemas"))]


def test_a_schema_is_there_without_a_table_in_every_session_until_it_is_dropped(
    session: Session, root: Path, lake_format: str
) -> None:
    made = session.sql("create schema sales; create table main.t as select 1 as n; create schema if not exists SALES")
    assert isinstance(made, Done) and (made.statement, made.reason) == ("CREATE SCHEMA", "the schema exists already")
    session.sql("create table sales.gone as select 1 as n; drop table sales.gone")
    with duckrun.connect(root) as other:
        assert schemas_of(other) == ["main", "sales"]
    with pytest.raises(InvalidConfig, match="Schema sales exists already; CREATE SCHEMA IF NOT EXISTS sales"):
        session.sql("create schema sales")
    session.sql("drop schema sales")
    assert schemas_of(session) == ["main"]
    assert session.sql("drop schema if exists sales").reason == "there is no such schema"
    session.sql("create table sales.orders as select 2 as id")
    assert schemas_of(session) == ["main", "sales"]
    session.sql("drop table sales.orders")
    # A catalog has a schema until it is dropped; a folder is there while something is in it.
    assert schemas_of(session) == (["main"] if lake_format == "delta" else ["main", "sales"])


@pytest.mark.parametrize(
    ("statement", "kind", "said"),
    [
        (
            "drop schema sales",
            InvalidConfig,
            "Schema sales holds figs, orders; drop them, or DROP SCHEMA sales CASCADE",
        ),
        ("drop schema sales restrict", InvalidConfig, "holds figs, orders"),
        ("drop schema sale", TableNotFound, "There is no schema sale to drop. Did you mean 'sales'"),
        ("drop schema nowhere.sales", TableNotFound, "no lake 'nowhere'"),
        ("use sles", TableNotFound, "There is no schema sles. Did you mean 'sales'"),
        ("use nowhere.sales", TableNotFound, "no lake 'nowhere'"),
        ("use a.b.c", InvalidConfig, "is no schema"),
        ("create schema _x", InvalidConfig, "cannot name a schema"),
        ("create schema information_schema", InvalidConfig, "is computed, and is not written"),
        ("create schema ref", InvalidConfig, "ref is a lake of this session"),
        ("create schema x location '/y'", UnsupportedFeature, "CREATE SCHEMA … LOCATION"),
        ("create or replace schema sales", UnsupportedFeature, "CREATE SCHEMA"),
        ("create database x", UnsupportedFeature, r"a lake is attached by s.attach\(\)"),
    ],
)
def test_what_is_wrong_with_a_schema_is_said_and_nothing_is_changed(
    duck: Session, tmp_path: Path, statement: str, kind: type[Exception], said: str, lake_format: str
) -> None:
    duck.sql(MAKE)
    duck.attach(tmp_path / "other", name="ref")
    with pytest.raises(kind, match=said):
        duck.sql(statement)
    listed = ["sales"] if lake_format == "delta" else ["main", "sales"]
    assert (duck.tables(), schemas_of(duck)) == (["sales.figs", "sales.orders"], listed)


@pytest.mark.only_format("delta", "a schema's folder")
def test_cascade_drops_tables_and_views_and_never_other_files(duck: Session, root: Path) -> None:
    duck.sql(MAKE)
    strangers = (
        root / "sales" / "notes.txt",
        root / "sales" / "raw" / "a.csv",
        root / "sales" / "_duckrun" / "streams",
    )
    for stranger in strangers:
        stranger.parent.mkdir(exist_ok=True)
        stranger.write_text("kept")
        with pytest.raises(InvalidConfig, match=f"(?s)was not dropped.*{stranger.name}.*Nothing was written"):
            duck.sql("drop schema sales cascade")
        assert duck.tables() == ["sales.figs", "sales.orders"] and stranger.read_text() == "kept"
        stranger.unlink()
    duck.sql("drop schema SALES cascade")
    assert (duck.tables(), schemas_of(duck)) == ([], [])
    with pytest.raises(ReadOnlyLake, match="read-only"), duckrun.connect(root, read_only=True) as reader:
        reader.sql("create schema sales")
    duck.sql("create schema if not exists sales")
    shutil.rmtree(root / "sales")
    (root / "sales").mkdir()  # somebody else's empty folder is a schema too
    assert duck.sql("drop schema sales").reason == "" and not (root / "sales").exists()


def test_two_sessions_drop_and_make_one_schema_at_once(root: Path) -> None:
    def drop(_: int) -> None:
        with duckrun.connect(root) as s:
            s.sql("drop schema if exists sales cascade")

    def make(number: int) -> None:
        with duckrun.connect(root) as s:
            s.sql(f"create schema if not exists sales; create table sales.t{number} as select {number} as n")

    with duckrun.connect(root) as s, ThreadPoolExecutor(4) as pool:
        s.sql("create table main.kept as select 1 as n")
        for n in range(4):
            make(n)
        list(pool.map(drop, range(3)))
        assert (s.tables(), schemas_of(s)) == (["main.kept"], ["main"])
        list(pool.map(lambda n: (drop if n % 2 else make)(n), range(8)))
        for name in s.tables():
            assert len(s.sql(f"select * from {name}").collect()) == 1  # whole, or not there
        drop(0)
        assert (s.tables(), schemas_of(s)) == (["main.kept"], ["main"])


@pytest.mark.only_format("delta", "a table's folder")
def test_the_folder_of_a_first_write_outlasts_a_drop_of_its_schema(
    duck: Session, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = staged._whole

    @contextmanager
    def beside_a_drop(ref: TableRef, token: str) -> Iterator[None]:
        with real(ref, token):
            with duckrun.connect(root) as other:
                other.sql("drop schema if exists sales cascade")
            yield

    monkeypatch.setattr(staged, "_whole", beside_a_drop)
    duck.sql("create table sales.t as select 1 as n")
    assert rows_of(duck.sql("select n from sales.t")) == [(1,)]
    assert [path.name for path in (root / "sales" / "t").iterdir() if "first" in path.name] == []


def test_use_says_where_names_that_say_less_are_looked_up(session: Session, tmp_path: Path, lake_format: str) -> None:
    session.sql("create table main.t as select 1 as n; create schema sales; create view v as select n from t")
    session.attach(tmp_path / "other", name="ref")
    found = session.sql(
        "use sales; create table t as select 2 as n; insert into t select n + 1 from main.t; select * from t"
    )
    assert rows_of(found) == [(2,), (2,)]
    assert (lake_format != "delta" or session.table("t").snapshot().version == 1) and rows_of(
        session.table("t").toDF()
    ) == [(2,), (2,)]
    assert rows_of(session.sql("select t.n, sales.t.n as m from sales.t")) == [(2, 2), (2, 2)]
    session.sql("use schema Main")
    assert rows_of(session.sql("select * from t")) == [(1,)]
    session.sql("use ref; create table t as select 9 as n; create view v as select n from t")
    assert (
        rows_of(session.sql("select t.n, o.n as o, v.n as v, w.n as w from t, lake.sales.t o, v, lake.main.v w"))
        == [(9, 2, 9, 1)] * 2
    )
    assert session.tables() == ["lake.main.t", "lake.main.v", "lake.sales.t", "ref.main.t", "ref.main.v"]
    assert all(len(rows_of(session.sql(f"select n from {name}"))) > 0 for name in session.tables())
    with pytest.raises(InvalidConfig, match="in use"):
        session.detach("ref")
    session.sql("use lake.sales", dialect="spark")
    session.detach("ref")
    assert rows_of(session.sql("select * from t")) == [(2,), (2,)]
    with pytest.raises(TableNotFound, match="main.sales"), duckrun.connect(tmp_path / "lake") as other:
        other.sql("select * from sales")


@pytest.mark.lacks_format("ducklake", InvalidConfig, "no SQLite file lies in a store: it needs a catalog by name")
@pytest.mark.s3
def test_a_schema_of_an_object_store_is_there_without_a_table_too(s3_bucket, s3_options) -> None:  # type: ignore[no-untyped-def]
    with duckrun.connect(s3_bucket("schemas-of-a-store") + "/root", storage_options=s3_options) as s:
        s.sql("create schema sales; use sales; create table t as select 1 as n; create view v as select * from t")
        assert (s.tables(), schemas_of(s)) == (["sales.t", "sales.v"], ["sales"])
        s.sql("drop table t; drop view v")
        assert schemas_of(s) == ["sales"]
        s.sql("create table t as select 1 as n; drop schema sales cascade")
        assert (s.tables(), schemas_of(s)) == ([], [])
