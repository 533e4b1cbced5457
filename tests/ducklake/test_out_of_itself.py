"""Rows of a DuckLake table that are computed out of that table, written in place of those that are there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import duckrun
from duckrun import SQL, DeleteInsertSpec, Session, WriteSpec
from tests.lake import rows_of

ROWS = pa.table({"id": [1, 2, 3], "p": [1, 1, 2]})
NEXT = "select id + 10 as id, p from t where id > 1"


@pytest.fixture
def lake(root: Path) -> Iterator[Session]:
    with duckrun.connect(root, format="ducklake") as session:
        session.execute("t", WriteSpec("error", partition_by=("p",)), ROWS)
        yield session


def through_views(lake: Session) -> SQL:
    lake.sql(NEXT).createOrReplaceTempView("inner_view")
    lake.sql("select * from inner_view").createOrReplaceTempView("outer_view")
    return SQL("select * from outer_view")


SOURCES = {
    "a frame": lambda lake: lake.sql(NEXT),
    "sql": lambda _: SQL(NEXT),
    "a version": lambda lake: SQL(NEXT.replace(" t ", f" t at (version => {lake.table('t').snapshot().version}) ")),
    "views": through_views,
}
WRITES = {
    "overwrite": (WriteSpec("overwrite"), [(12, 1), (13, 2)]),
    "redefine": (WriteSpec("overwrite", redefine=True), [(12, 1), (13, 2)]),
    "replace": (WriteSpec("replace", predicate="p < 9"), [(12, 1), (13, 2)]),
    "delete+insert": (DeleteInsertSpec(("p",)), [(12, 1), (13, 2)]),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("write", WRITES)
def test_a_write_reads_the_table_as_it_was_before_it(lake: Session, write: str, source: str) -> None:
    spec, left = WRITES[write]
    commit = lake.execute("t", spec, SOURCES[source](lake))
    assert (commit.rows_inserted, rows_of(lake.scan("t"))) == (2, left)


def test_statements_do(lake: Session) -> None:
    for statement in (f"insert overwrite t {NEXT}", f"create or replace table t as {NEXT}"):
        lake.execute("t", WriteSpec("overwrite"), ROWS)
        lake.sql(statement)
        assert rows_of(lake.scan("t")) == [(12, 1), (13, 2)], statement


def test_a_transaction_over_several_tables_does(lake: Session) -> None:
    with lake.transaction():
        lake.sql("insert into t values (4, 2)")
        lake.execute("t", WriteSpec("overwrite"), SQL(NEXT))
        assert rows_of(lake.scan("t")) == [(12, 1), (13, 2), (14, 2)]
    assert rows_of(lake.scan("t")) == [(12, 1), (13, 2), (14, 2)]


def test_columns_that_come_with_an_append_do(lake: Session) -> None:
    lake.execute(
        "t", WriteSpec("append", schema_mode="append_new_columns"), SQL("select id + 10 as id, p, true as new from t")
    )
    assert rows_of(lake.scan("t"), "id", "new") == [(1, None), (11, True), (12, True), (13, True), (2, None), (3, None)]
