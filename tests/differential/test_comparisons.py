"""Comparisons of texts with numbers, and of structs: one text has the rows of its dialect's own engine on both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun.session import Session

pytestmark = [pytest.mark.differential, pytest.mark.spark]

ROWS = """
    create table {} as select * from (values
        (1, 1.25::decimal(3, 2), 1.25::decimal(38, 20), '1.51', {{'a': 1, 'b': 'q'}}, 7, 1.25::double),
        (2, 2.5, 12345678901.2, '1.5', {{'a': 2, 'b': 'r'}}, 8, 0.1), (3, null, null, null, null, null, null)
    ) t(id, m, w, s, st, v, f)
"""
IN_BOTH = (
    "m = '1.254'", "m <> '1.254'", "'1.25' = m", "m < '1.251'", "m >= '2.4999'", "m in ('1.254', '2.5')", "m between '1.249' and '1.251'",
    "w = '1.25000000000000000001'", "s = 1.5", "s in (1.5, 3.0)", "s = 1.50", "s = m", "case s when 1.5 then true end", "case m when '1.254' then true end",
    "nullif(m, '1.254') is null", "m is not distinct from '1.254'", "not m = '1.254'", "v = '7'", "v in ('7', '9')", "f = '0.1'", "cast(s as decimal(4, 2)) = '1.509'",
    "id in (select id from r where m = '1.254')", "exists (select 1 from r as o where o.m = r.s)",
)  # fmt: skip
OF_SPARK = (
    "s > 1.5", "s between 1.5 and 1.6", "m <=> '1.254'", "st = struct(1, 'q')", "st <> named_struct('x', 1, 'y', 'q')", "st <=> struct(1, 'q')", "st in (struct(1, 'q'))",
    "st >= struct(2, 'a')", "nullif(st, struct(1, 'q')) is null", "struct(id, s) = struct(1, '1.51')", "case st when struct(1, 'q') then true end", "m in (select s from r)",
)  # fmt: skip
OF_DUCKDB = (
    "v = '7.4'", "v < '7.5'", "v in ('6.5', '8.4')", "st = row(1, 'q')", "st = {'a': 1, 'b': 'q'}", "st = {'b': 'q', 'a': 1}", "st in ({'b': 'q', 'a': 1})", "st <> {'b': 'q', 'a': 1}",
    "st is distinct from {'b': 'q', 'a': 1}", "(case when id > 0 then {'b': st.b, 'a': st.a} end) = st", "nullif(st, {'b': 'q', 'a': 1}) is null",
)  # fmt: skip
QUERIES = (
    ("spark", "select struct(1 as a, 2 as b) as s union all select struct(3 as b, 4 as a)"),
    ("spark", "select st from r union select named_struct('b', 1, 'a', 'q')"),
    ("spark", "select id from r join (select named_struct('x', 1, 'y', 'q') as z) on st = z"),
    ("duckdb", "select {'a': 1, 'b': 2} as s union all select {'b': 3, 'a': 4}"),
    ("duckdb", "select st from r except select {'b': 'q', 'a': 1}"),
    ("duckdb", "select id from r join (select {'b': 'q', 'a': 1} as z) on st = z"),
    ("duckdb", "select id from r join (select '1.254' as z) on m = z"),
)
CHANGES = (
    ("spark", "delete from {} where m = '1.254'"),
    ("spark", "delete from {} where st = struct(1, 'q')"),
    ("duckdb", "delete from {} where m = '1.254'"),
    ("duckdb", "delete from {} where st = {{'b': 'q', 'a': 1}}"),
    ("duckdb", "update {} as t set v = 9 where m in ('1.254', '2.501')"),
    ("duckdb", "delete from {} as t using (select '1.254' as z) as n where t.m = n.z"),
    *((dialect, "merge into {} as t using (select 1 as id, '1.254' as m) as n on t.id = n.id when matched and t.m = n.m then delete") for dialect in ("spark", "duckdb")),
    ("duckdb", "merge into {} as t using (select 1 as id, {{'b': 'q', 'a': 1}} as st) as n on t.id = n.id when matched and t.st = n.st then delete"),
)  # fmt: skip


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[tuple[Session, Session]]:
    lake: Path = tmp_path_factory.mktemp("comparisons") / "lake"
    with duckrun.connect(lake) as duckdb, duckrun.connect(lake, engine="spark", spark=spark) as on_spark:
        duckdb.sql(ROWS.format("r"))
        yield duckdb, on_spark


@pytest.mark.parametrize(
    ("dialect", "query"),
    [
        *((dialect, f"select id from r where {each}") for dialect in ("duckdb", "spark") for each in IN_BOTH),
        *(("spark", f"select id from r where {each}") for each in OF_SPARK),
        *(("duckdb", f"select id from r where {each}") for each in OF_DUCKDB),
        *QUERIES,
    ],
)
def test_a_query_has_the_same_rows_on_both_engines(sessions: tuple[Session, Session], dialect: Any, query: str) -> None:
    duckdb, spark = (session.sql(query, dialect=dialect).toArrow().to_pylist() for session in sessions)
    assert sorted(duckdb, key=repr) == sorted(spark, key=repr)


@pytest.mark.parametrize(("dialect", "statement"), CHANGES)
def test_a_statement_changes_the_same_rows_on_both_engines(
    sessions: tuple[Session, Session], dialect: Any, statement: str
) -> None:
    rows = []
    for session in sessions:
        sessions[0].sql(f"drop table if exists changed; {ROWS.format('changed')}")
        session.sql(statement.format("changed"), dialect=dialect)
        rows.append(sessions[0].sql("select id, v from changed order by id").collect())
    assert rows[0] == rows[1]
