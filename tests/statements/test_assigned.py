"""A value takes the type of its column by the casts of the statement's dialect, on each engine and format."""

from __future__ import annotations

import pytest

from duckrun import InvalidConfig
from duckrun.session import Session
from tests.lake import rows_of

pytestmark = pytest.mark.formats

ROUNDED = {"7 / 2": (4, 3), "2.5": (3, 2), "-2.5": (-3, -2), "2.5e0": (2, 2), "d": (3, 2), "d * 10": (28, 27)}
"""Value, where d is 2.75 -> the integer that DuckDB stores for it, and the one that Spark stores."""
FORMS = [
    "update main.t set q = {value}",
    "update main.t set q = n.value from (select {value} as value from main.s) n where t.id = 1",
    "insert into main.t (id, q) select 1, {value} from main.s",
    "insert into main.t (id, q) values (1, {literal}), (1, {literal})",
    "merge into main.t using (select 1 as id, {value} as value from main.s) n on t.id = n.id "
    "when matched then update set q = n.value",
    "merge into main.t using (select 2 as id, {value} as q from main.s) n on t.id = n.id "
    "when not matched then insert (id, q) values (n.id, n.q)",
    "merge into main.t using (select 1 as id, {value} as q, 2.75D as d from main.s) n on t.id = n.id "
    "when matched then update set *",
]


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[:40])
def test_a_number_is_rounded_as_the_dialect_does(session: Session, form: str, dialect: str) -> None:
    if dialect == "spark" and " from (" in form:
        form = FORMS[0]  # Spark has no UPDATE … FROM
    form = form if dialect == "spark" else form.replace("2.75D", "2.75::double")
    session.sql("create table main.s as select 1 as id, 2.75::double as d")
    for value, stored in ROUNDED.items():
        session.sql("create or replace table main.t as select 1 as id, 0 as q, 2.75::double as d")
        literal = "2.5" if "d" in value else value
        session.sql(form.format(value=value, literal=literal), dialect=dialect)
        expected = ROUNDED[literal] if "{literal}" in form else stored
        numbers = {number for (number,) in rows_of(session.sql("select q from main.t")) if number}
        assert numbers == {expected[dialect == "spark"]}, value


def test_a_text_of_bytes_is_read_as_duckdb_does(session: Session) -> None:
    session.sql("create table main.t as select 1 as id, 'a'::blob as bytes")
    session.sql(r"update main.t set bytes = '\xAA\x00'")
    assert rows_of(session.sql("select bytes from main.t")) == [(b"\xaa\x00",)]
    session.sql("insert into main.t values (2, 'ab')")
    assert rows_of(session.sql("select bytes from main.t where id = 2")) == [(b"ab",)]


def test_a_number_whose_text_differs_is_no_text(session: Session) -> None:
    session.sql("create table main.t as select 1 as id, 'a' as name")
    other = "spark" if session.engine.name == "duckdb" else "duckdb"
    with pytest.raises(InvalidConfig, match="a text that differs"):
        session.sql("update main.t set name = 1e10", dialect=other)
    assert rows_of(session.sql("select name from main.t")) == [("a",)]


def test_a_builder_rounds_a_column_that_it_names_by_its_alias(session: Session) -> None:
    session.sql("create table main.t as select 1 as id, 0 as q")
    merge = session.table("main.t").alias("t").merge(session.sql("select 1 as id"), "t.id = source.id")
    merge.whenMatchedUpdate(set={"t.q": "2.7"}).execute()
    assert rows_of(session.sql("select q from main.t")) == [(3,)]
