"""What is refused is named as it was written, with what to use instead; and nothing else is said anywhere."""

from __future__ import annotations

import re

import duckdb
import pytest

from duckrun import InvalidConfig, UnsupportedFeature
from duckrun.session import Session
from tests.lake import rows_of

pytestmark = pytest.mark.formats


KEYS = "enforces keys: write by MERGE or INSERT … ON CONFLICT"


@pytest.mark.parametrize(
    ("statement", "named", "instead"),
    [
        ("create table made (id int primary key)", "PRIMARY KEY", KEYS),
        ("create table made (id int, constraint k primary key (id))", "PRIMARY KEY", KEYS),
        ("create table made (id int unique)", "UNIQUE", KEYS),
        ("alter table orders add constraint u unique (id)", "ADD UNIQUE", KEYS),
        ("create table made (id int references orders (id))", "REFERENCES", "relationships test"),
        ("create table made (s varchar collate nocase)", "COLLATE", r"leave it out.*lower\("),
        ("create table made (id int) location '/tmp/made'", "LOCATION", "leave it out.*attach"),
        ("create sequence numbers", "CREATE SEQUENCE", r"uuid\(\).*row_number\(\)"),
        pytest.param(
            *("create or replace macro f(x) as x + 1", "CREATE MACRO", "TEMP VIEW.*dbt macro"),
            marks=pytest.mark.only_format("delta", "a DuckLake keeps macros"),
        ),
        ("create temp table made (id int default 3)", "with constraints", "docs/sql.md"),
        ("insert into orders (id) default values", "DEFAULT VALUES with a list", "docs/sql.md"),
        ("alter table orders set sorted by (id desc)", "SORTED BY of anything but names of columns", "docs/sql.md"),
        ("alter table orders foo bar", "alter table orders foo bar", "docs/sql.md"),
        ("create table made sorted by auto as select 1 as n", "SORTED BY AUTO .name the columns", "docs"),
        ("create secret s (type s3, secret 'hunter2')", "create secret s …", "docs/sql.md"),
    ],
)
def test_a_refusal_names_the_statement_as_written_and_what_to_use_instead(
    duck: Session,
    statement: str,
    named: str,
    instead: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    duck.sql("create table orders as select 1 as id")
    with pytest.raises(UnsupportedFeature, match=f"{named}.*is not supported by sql.*{instead}") as raised:
        duck.sql(f"delete from orders; {statement}")
    assert "hunter2" not in str(raised.value) and "ALTERNATIVE" not in str(raised.value)
    assert rows_of(duck.sql("select id from orders")) == [(1,)]
    assert capfd.readouterr() == ("", "") and not caplog.records


@pytest.mark.lacks_format("ducklake", InvalidConfig, "a DuckLake keeps no properties of users")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("nonsense = 3", "no option 'nonsense'"),
        ("partition_by = 'n'", "'partition_by'. Did you mean 'PARTITIONED BY'"),
        ("appendOnly = true", "'appendOnly'. Did you mean 'delta.appendOnly'"),
    ],
)
def test_an_unknown_option_of_create_is_refused_by_its_name(duck: Session, options: str, said: str) -> None:
    for columns in ("(n int) with ({})", "with ({}) as select 1 as n"):
        with pytest.raises(InvalidConfig, match=said):
            duck.sql(f"create table made {columns.format(options)}")
    assert duck.tables() == []
    duck.sql("create table made with ('owner' = 'me', delta.appendOnly = true) as select 1 as n")
    properties = duck.table("made").snapshot().properties
    assert (properties["owner"], properties["delta.appendOnly"]) == ("me", "true")


@pytest.mark.lacks_format("ducklake", InvalidConfig, "a DuckLake keeps no properties of users")
def test_a_property_named_without_quotes_is_that_property(duck: Session) -> None:
    duck.sql("create table made tblproperties (a.b.c = 3) as select 1 as n", dialect="spark")
    duck.sql("alter table made set tblproperties (delta.appendOnly = true, x.y = 'z')")
    properties = duck.table("made").snapshot().properties
    assert (properties["a.b.c"], properties["delta.appendOnly"], properties["x.y"]) == ("3", "true", "z")


@pytest.mark.lacks_format("ducklake", InvalidConfig, "a DuckLake keeps no properties of users")
def test_properties_are_shown_all_or_one_and_a_misspelt_one_with_the_nearest(duck: Session) -> None:
    duck.sql("create table made with ('owner' = 'me', delta.appendOnly = true) as select 1 as n")
    assert {("delta.appendOnly", "true"), ("owner", "me")} <= set(rows_of(duck.sql("show tblproperties made")))
    assert rows_of(duck.sql("show tblproperties main.made (owner)", dialect="spark")) == [("owner", "me")]
    with pytest.raises(InvalidConfig, match="has no property 'ownr'. Did you mean 'owner'"):
        duck.sql("show tblproperties made ('ownr')")


OVER_ROWS = {
    "delete from x where sum(v) > 1": "sum()",
    "delete from main.x as y where sum(y.v) > 1": "sum()",
    "delete from x where row_number() over (order by v) = 1": "a window function",
    "delete from x where fsum(v) > 1": "fsum()",
    "delete from x where unnest([v]) = 1": "unnest()",
    "delete from x using w where max(x.v) > 1 and w.k = x.k": "max()",
    "delete from x where (select max(k) from w where sum(x.v) > 1) > 0": "sum()",
    "delete from x where (select sum(x.v) from w) > 1": "sum()",
    "update x set v = sum(v)": "sum()",
    "update x set v = sum(v) over ()": "a window function",
    "update x set v = (select sum(x.v) from w)": "sum()",
    "update x set v = w.v from w where sum(w.v) > 1 and w.k = x.k": "sum()",
    "merge into x as t using w as s on t.k = s.k and sum(t.v) > s.k when matched then delete": "sum()",
    "merge into x as t using w as s on t.k = s.k when matched and sum(t.v) > 1 then delete": "sum()",
    "merge into x as t using w as s on t.k = s.k when matched then update set v = sum(s.v)": "sum()",
    "merge into x as t using w as s on t.k = s.k when not matched then insert (k, v) values (s.k, max(s.v))": "max()",
    "insert into x values (1, 2) on conflict (k) do update set v = sum(x.v)": "sum()",
    "insert into x values (1, 2) on conflict (k) do update set v = 1 where sum(excluded.v) > 1": "sum()",
}


def test_a_change_over_several_rows_is_refused_in_the_words_of_its_text(session: Session) -> None:
    """No message names the aliases and columns that this library adds: DuckDB and Spark have one each, of the rewritten statement."""
    plain = duckdb.connect()
    for name in ("x", "w"):
        session.sql(f"create table main.{name} as select 1 as k, 1 as v")
        plain.sql(f"create table {name} (k int unique, v int); insert into {name} values (1, 1)")
    for statement, part in OVER_ROWS.items():
        with pytest.raises(duckdb.Error):
            plain.sql(statement)
        with pytest.raises(
            InvalidConfig, match=rf"^Table main\.x: {re.escape(part)} takes or gives several rows"
        ) as raised:
            session.sql(statement)
        assert not re.search("target|source|__duckrun", str(raised.value)), statement
    for statement in (
        "delete from x where v > (select 2 * sum(v) from w)",
        "update x set v = v + 1 where k in (select max(k) over () from w)",
    ):
        session.sql(statement)
        plain.sql(statement)
    assert rows_of(session.sql("from x")) == plain.sql("from x").fetchall() == [(1, 2)]


def test_a_condition_that_is_not_steady_is_named_by_its_function(duck: Session) -> None:
    duck.sql("create table x as select 1 as k")
    with pytest.raises(InvalidConfig, match=r"with random\(\), whose answer may change") as raised:
        duck.sql("merge into x as t using x as s on t.k = s.k and random() > t.k when matched then delete")
    assert "target" not in str(raised.value)


@pytest.mark.parametrize(("verb", "dialect"), [("unnest", "duckdb"), ("explode", "spark")])
def test_a_map_that_is_unnested_is_refused_with_the_query_to_write(duck: Session, verb: str, dialect: str) -> None:
    duck.sql("create table x as select map {'a': 1, 'b': 2} as m")
    with pytest.raises(InvalidConfig, match=r"not MAP.*map_entries\(m\).*LATERAL VIEW explode\(m\)"):
        duck.sql(f"select {verb}(m) from x", dialect=dialect)
    assert rows_of(duck.sql("select unnest(map_entries(m), recursive := true) from x")) == [("a", 1), ("b", 2)]
    lateral = duck.sql("select k, v from x lateral view explode(m) e as k, v", dialect="spark")
    assert rows_of(lateral) == [("a", 1), ("b", 2)]
