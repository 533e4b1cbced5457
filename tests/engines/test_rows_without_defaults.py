"""Rows that lack columns with a DEFAULT: the table fills them, in every write mode. Budget: a minute."""

from __future__ import annotations

import pyarrow as pa
import pytest

from duckrun import SQL, DeleteInsertSpec, MergeSpec, WriteSpec
from duckrun.session import Session
from tests.lake import by_another, rows_of

pytestmark = pytest.mark.formats
ONE = [(1, 3, "d")]


@pytest.fixture
def table(session: Session) -> Session:
    """A table t of one row, with two defaults."""
    session.sql("create table t (id int, n int default 3, x varchar default 'd')")
    session.sql("insert into t (id) values (1)")
    return session


def test_an_append_and_a_replace_may_lack_columns_with_a_default(table: Session) -> None:
    table.execute("t", WriteSpec("append"), SQL("select 2 as id"))
    table.execute("t", WriteSpec("append"), SQL("select 3 as id, cast(null as int) as n"))
    table.execute("t", WriteSpec("append", schema_mode="append_new_columns"), SQL("select 4 as id, 'y' as x"))
    expected = [*ONE, (2, 3, "d"), (3, None, "d"), (4, 3, "y")]
    assert rows_of(table.sql("from t")) == expected == rows_of(by_another(table, "t"))
    table.execute("t", WriteSpec("replace", predicate="id = 2"), SQL("select 2 as id, 'r' as x"))
    table.execute("t", DeleteInsertSpec(("id",)), SQL("select 3 as id"))
    assert rows_of(table.sql("from t")) == [*ONE, (2, 3, "r"), (3, 3, "d"), (4, 3, "y")]


def test_an_overwrite_keeps_the_columns_with_a_default(table: Session) -> None:
    table.execute("t", WriteSpec("overwrite"), SQL("select 5 as id, 'o' as x"))
    assert sorted(rows_of(table.sql("select id, n, x from t"))) == [(5, 3, "o")]
    table.sql("insert into t (id) values (6)")
    assert sorted(rows_of(table.sql("select id, n, x from t"))) == [(5, 3, "o"), (6, 3, "d")]


def test_a_merge_inserts_defaults_and_leaves_the_others_as_they_are(duck: Session) -> None:
    duck.sql("create table t (id int, n int default 3, x varchar default 'd'); insert into t values (1, 8, 'k')")
    duck.execute("t", MergeSpec(("id",)), SQL("select 1 as id, 'u' as x union all select 2, 'i'"))
    assert rows_of(duck.sql("from t")) == [(1, 8, "u"), (2, 3, "i")]


def test_a_merge_whose_rows_lack_a_column_with_a_default_leaves_and_fills_it(session: Session) -> None:
    session.sql("create table d (k int, v int, w int default 7)")
    session.sql("insert into d values (1, 1, 99)")
    rows = pa.table({"k": pa.array([1, 2], "int32"), "v": pa.array([10, 20], "int32")})
    session.execute("main.d", MergeSpec(("k",)), rows)
    found = session.sql("select * from d order by k").toArrow().to_pylist()
    assert [tuple(row.values()) for row in found] == [(1, 10, 99), (2, 20, 7)]
