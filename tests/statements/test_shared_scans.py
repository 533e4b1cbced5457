"""Queries that name a table many times: DuckDB's rows, and one scan of a small table. Budget: 10 s."""

from __future__ import annotations

import re

import duckdb
import pytest

import duckrun
from duckrun.sql.dialects import text_in
from duckrun.statements import reading
from tests.lake import rows_of

pytestmark = pytest.mark.formats

TABLES = (
    "create table t as select i as id, i % 3 as k, 'v' || i as v from range(7) r(i)",
    "create schema other",
    "create table other.t as select i as id, 'o' || i as v from range(3) r(i)",
    "create view seen as select id, v from t where k = 1",
)
BRANCHES = " union all ".join(f"select id, v, {n} as n from main.t where k = {n % 4}" for n in range(12))
QUERIES = {
    "branches": BRANCHES,
    "a set operation in brackets": f"({BRANCHES}) except (select id, v, 1 from t) order by all limit 9",
    "with": f"with c as (select id from main.t), d(x) as (select id from c) {BRANCHES} union all select x, 'd', 0 from d",
    "recursive": "with recursive r(id, n) as (select id, 0 from t where id = 0 union all select t.id, n + 1 from t join r "
    "on t.id = r.id + 1 where n < 9) " + " union all ".join("select r.* from r join t on t.id = r.id" for _ in range(9)),
    "two schemas": " union all ".join(f"select t.id, t.v, {n} from {'other.' * (n % 2)}t" for n in range(20)),
    "views": " union all ".join(f"select id, v || '{n}' from main.seen" for n in range(10)),
    "inner": "select id, " + ", ".join(f"(select max(x.id) from t x where x.k = t.k + {n}) m{n}" for n in range(10)) + " from t",
    "a join of aliases": "select a0.id from " + " join ".join(f"main.t a{n}" + (" using (id)" if n else "") for n in range(10)),
    "a name of its own": f"with t as (select 9 as id, 'w' as v, 0 as k) select id, v, 0 as n from t union all {BRANCHES}",
    "whole rows": " union all ".join("select t from t" for _ in range(9)),
    "parameters": " union all ".join("select id from t where id > $low" for _ in range(9)),
}  # fmt: skip


@pytest.mark.parametrize("often", [8, 1])
@pytest.mark.parametrize("small", [reading._SMALL, -1], ids=["small", "large"])
def test_rows_are_those_of_duckdb(
    duck: duckrun.Session, often: int, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_OFTEN", often)
    monkeypatch.setattr(reading, "_SMALL", small)
    with duckdb.connect() as plain:
        for statement in TABLES:
            plain.execute(statement)
            duck.sql(statement, dialect="duckdb")
        for name, query in QUERIES.items():
            params = {"low": 2} if "$low" in query else None
            expected = plain.execute(query, params).fetchall()
            frame = duck.sql(query, params=params, dialect="duckdb")
            assert rows_of(frame) == sorted(expected, key=repr), name


@pytest.mark.parametrize("count, scans", [(7, 7), (30, 1)])
def test_a_small_table_that_is_named_often_is_scanned_once(
    duck: duckrun.Session, count: int, scans: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    duck.sql(TABLES[0])
    texts = []
    run = duck.embedded.select
    monkeypatch.setattr(
        duck.embedded, "select", lambda query, *rest: texts.append(text_in(query, "duckdb")) or run(query, *rest)
    )
    assert len(rows_of(duck.sql(" union all ".join("select id from main.t" for _ in range(count))))) == 7 * count
    assert len(re.findall(r"scan\(|read_parquet\(|AT \(VERSION", texts[0], re.IGNORECASE)) == scans, texts[0][:500]
