"""Names that two tables share mean on engine spark what they mean in plain DuckDB: a few statements of each kind."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import duckrun

pytestmark = pytest.mark.spark

SETUP = (
    "create schema a",
    "create schema b",
    "create table a.t as select i as id, 'a' || i as x from range(1, 5) r(i)",
    "create table b.t as select i as id, 'b' || i as y from range(2, 4) r(i)",
    "create table a.s as select {'id': 7} as t, {'t': 5} as s, 3 as id",
)
STATEMENTS = (
    "select a.t.id, b.t.y from a.t join b.t on a.t.id = b.t.id",
    "select count(*) as n from a.t where not exists (select 1 from b.t where b.t.id = a.t.id)",
    "select a.t.id, (select max(b.t.y) from b.t where b.t.id = a.t.id) as y from a.t",
    "select t.x from a.t where exists (select 1 from a.s where a.t.id = 3 and t.id = 7)",
    "select a.s.s.t, a.s.t.id, s.t.id as u from a.s",
    "with t as (select b.t.id as k from b.t) select t.k, a.t.x from t join a.t on t.k = a.t.id",
    "select lake.a.t.id from a.t where lake.a.t.id > 2",
    "create view b.v as select a.t.id, b.t.y from a.t left join b.t on a.t.id = b.t.id",
    "from b.v",
    "insert into b.t select a.t.id, a.t.x from a.t where not exists (select 1 from b.t where b.t.id = a.t.id)",
    "update a.t set x = b.t.y from b.t where b.t.id = a.t.id and a.t.id < 3",
    "merge into a.t using b.t on a.t.id = b.t.id when matched and a.t.x = 'b2' then update set x = 'seen ' || b.t.y",
    "delete from a.t where exists (select 1 from b.t where b.t.id = a.t.id and b.t.y = 'b3')",
    "from a.t",
    "from b.t",
)


def test_statements_over_two_tables_of_one_name(spark: Any, tmp_path: Any) -> None:
    native = duckdb.connect()
    with duckrun.connect(tmp_path) as plain:
        for statement in SETUP:
            plain.sql(statement)
            native.execute(statement)
    with duckrun.connect(tmp_path, engine="spark", spark=spark) as session:
        for statement in STATEMENTS:
            result = session.sql(statement, dialect="duckdb")
            expected = native.execute(statement.replace("lake.", "memory."))
            if statement.startswith(("select", "with", "from")):
                rows = result.toArrow()
                assert rows.schema.names == [column[0] for column in expected.description], statement
                values = sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))
                assert values == sorted(expected.fetchall()), statement
