"""What is refused is named as it was written, with what to use instead; and nothing else is said anywhere."""

from __future__ import annotations

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
