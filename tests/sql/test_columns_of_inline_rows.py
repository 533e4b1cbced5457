"""Columns that Spark's dialect gives to rows without names: the same on both engines."""

from __future__ import annotations

import pytest

from duckrun.session import Session

QUERIES = {
    "select * from values (1, 'a')": [{"col1": 1, "col2": "a"}],
    "select col1 from values (1, 'a')": [{"col1": 1}],
    "select t.col2 from values (1, 'a') as t": [{"col2": "a"}],
    "select x, y from values (1, 'a') as t(x, y)": [{"x": 1, "y": "a"}],
    "values (1, 'a')": [{"col1": 1, "col2": "a"}],
    "with v as (values (1, 'a')) select col1 from v": [{"col1": 1}],
    "select b.col2 from values (1) a join values (1, 2) b on a.col1 = b.col1": [{"col2": 2}],
    "select id from range(2) where id > 0": [{"id": 1}],
    "select t.id from range(4, 9, 3) t order by id": [{"id": 4}, {"id": 7}],
    "select x from range(1) as t(x)": [{"x": 0}],
    "select * from explode(array(7))": [{"col": 7}],
}


@pytest.mark.parametrize("query", QUERIES)
def test_rows_without_names_have_the_columns_of_spark(session: Session, query: str) -> None:
    frame = session.sql(query, dialect="spark")
    assert frame.collect() == QUERIES[query]
    assert list(frame.columns) == list(QUERIES[query][0])


def test_a_statement_reads_the_columns_that_it_names(session: Session) -> None:
    session.sql("create table t as select col2 as v from values (1, 'a'), (2, 'b')", dialect="spark")
    session.sql("insert into t values ('c')", dialect="spark")
    session.sql("insert into t select col2 from values (9, 'd')", dialect="spark")
    session.sql("merge into t using values (0, 'a') s on t.v = s.col2 when matched then delete", dialect="spark")
    assert sorted(row["v"] for row in session.sql("select v from t").collect()) == ["b", "c", "d"]
