"""Names that two tables share mean what they mean in DuckDB, whose own tables answer the same statements."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import duckrun
from duckrun import DuckrunError
from duckrun.session import Session

SETUP = (
    "create schema a",
    "create schema b",
    "create table a.t as select i as id, 'a' || i as x, {'id': i + 10, 't': i + 20} as t from range(1, 5) r(i)",
    "create table a.g as select 1 as id, {'t': {'id': 7}} as b, {'id': 8} as t",
    "create table b.t as select i as id, 'b' || i as y from range(2, 4) r(i)",
    "create table b.a as select 1 as id, {'id': 3} as t",
    "create table main.a as select 4 as id, 5 as k",
    "create table b.c as select 9 as k, {'t': {'id': 88}} as a",
    "create table t as select i as id, i * 100 as z from range(3, 6) r(i)",
    "create schema t",
    "create table t.t as select 1 as id, {'t': 5} as t",
    "create view a.v as select a.t.id, b.t.y from a.t left join b.t on a.t.id = b.t.id",
    "create view b.v as select * from b.t where exists (select 1 from a.t where a.t.id = b.t.id and a.t.x <> 'a3')",
)

QUERIES = (
    "select a.t.id, b.t.y from a.t join b.t on a.t.id = b.t.id",
    "select * from a.t natural join b.t",
    "from a.t semi join b.t on a.t.id = b.t.id",
    "from a.t anti join b.t on a.t.id = b.t.id",
    "from a.t join b.t using (id) select id, a.t.id, b.t.id, y",
    "select t.y, t.x from a.t, b.t",
    "select t.id from a.t, b.t",
    "select a.t.x, t.y from a.t, (select 2 as y) t",
    "with t as (select 5 as w) select t.w, a.t.id, w from a.t, t",
    "with t as (select * from t) select t.z, max(t.id) from t group by t.z",
    "with t as (select id, max(t.z) as z from t group by id) select t.id, a.t.x from t join a.t on t.id = a.t.id",
    "select count(*) from a.t where exists (select 1 from b.t where b.t.id = a.t.id)",
    "select count(*) from a.t where exists (select 1 from b.t where t.id = 2 and t.x = 'a3')",
    "select count(*) from a.t where exists (select 1 from b.t where t.y = 'b2' and t.id = a.t.id)",
    "select id, (select max(b.t.y) from b.t where b.t.id = a.t.id) from a.t",
    "select id, (select max(y) from b.t where b.t.id < a.t.id) as m from a.t where a.t.id in (select b.t.id from b.t)",
    "select count(*) from a.t, lateral (select * from b.t where b.t.id = a.t.id) l",
    "select a.t.id, l.s from a.t, (select sum(b.t.id) as s from b.t where b.t.id >= a.t.id) l",
    "select max(b.t.y), b.t.id + a.t.id from a.t, b.t group by b.t.id + a.t.id order by b.t.id + a.t.id",
    "select a.t.id from a.t, b.t where a.t.id = b.t.id group by a.t.id having max(b.t.id) > 2 order by a.t.id",
    "select * exclude (a.t.id) from a.t, b.t",
    "select * replace (a.t.id + 1 as id) from a.t, (select 7 as seven) t",
    "select t.id, a.t.t.id, a.t.t.t from a.t",
    "select a.t.t.t, b.t.y from a.t, b.t",
    "select b.t.id, a.g.b.t.id, t.id from a.g",
    "select count(*) from a.g where exists (select 1 from b.t where b.t.id = a.g.id or b.t.id = a.g.b.t.id)",
    "select count(*) from b.t where exists (select 1 from a.g, a.t where b.t.id = 7)",
    "select b.t.id from a.g, b.t",
    "with u as (select t.id from a.t, b.t) select a.t.id, b.t.y from a.t, b.t",
    "from a.t, b.c join (select a.t.id as v) u on true select u.v, a.t.x",
    "from a.t join b.c on true join (select a.t.id as v) u on true select u.v",
    "from a.t, b.c, (select a.t.id as v) u select u.v",
    "from b.c, a.t join (select a.t.id as v) u on true select u.v",
    "from b.c, (a.t join (select a.t.id as v) u on true) select u.v",
    "from a.t join (b.c join (select a.t.id as v) u on true) on true select u.v",
    "from a.t, lateral (select v from b.c join (select a.t.id as v) u on true) w select w.v",
    "from b.c cross join a.t, (select a.t.id as v) u select u.v",
    "from a.t cross join b.c cross join (select a.t.id as v) u select u.v",
    "from a.t, b.c join main.t on a.t.id = 88 select main.t.z, k, a.t.x",
    "from a.t, b.c left join main.t on a.t.id + main.t.id = 92 select main.t.z, k, a.t.x",
    "from a.t, b.t left join main.t on a.t.id = main.t.id select main.t.z, b.t.y, a.t.x",
    "select (select a.t.id) from a.t, b.c",
    "select a.t.id from a.t, b.t where exists (with t as (select u.id from main.t u where u.id = t.t.id) select b.t.y)",
    "select memory.a.t.id, memory.b.t.id from memory.a.t, memory.b.t",
    "select memory.a.t.id from a.t where not exists (select 1 from b.t where memory.b.t.id = memory.a.t.id)",
    "select memory.main.t.z, a.t.id from memory.main.t join a.t on memory.main.t.id = a.t.id",
    "select a.t.id from a.t x",
    'select A.T.ID, "b"."t".Y from a.t, B.T where A.t.id = b.T.id',
    "select t.id, q.id from a.t, a.t q where a.t.id = q.id",
    "select 1 from a.t, a.t where a.t.id = 1",
    "select count(*) from a.t where exists (select 1 from a.t where a.t.id = 9)",
    "select a.v.id, b.v.y from a.v join b.v on a.v.id = b.v.id",
    "select v.id from a.v where not exists (select 1 from b.v where b.v.id = a.v.id)",
    "from a.v",
    "from b.v",
    "select a.t.id from a.t union all select b.t.id from b.t order by id",
    "select a.t.id, row_number() over (partition by b.t.y order by a.t.x desc) from a.t, b.t",
    "select [a.t.id + e for e in [1, 2]], list_transform([1], lambda t: t + a.t.id) from a.t, b.t",
    "select a.t.id, main.t.z from (a.t join b.t using (id)) join main.t on main.t.id = a.t.id",
    "select case when exists (select 1 from (select b.t.id from b.t where b.t.id = a.t.id) t) then a.t.x end as c from a.t",
    "select id from a.t where (select count(*) from main.t where main.t.id = a.t.id) = 0",
    "with recursive t(n) as (select min(a.t.id) from a.t union all select t.n + 1 from t where t.n < 4) from t",
    "with u as (select a.t.id from a.t where exists (select 1 from b.t where b.t.id = a.t.id)) select u.id, b.t.y from u join b.t on u.id = b.t.id",
    "select a.t.id from a.t left join b.t on a.t.id = b.t.id and b.t.y = 'b3' where b.t.id is null",
    "select distinct on (b.t.id) b.t.id, a.t.id from a.t, b.t order by b.t.id, a.t.id",
    "select t.* from (select a.t.id from a.t, b.t where a.t.id = b.t.id) t",
    "select t.t.t.t, t.t.t from t.t",
    "select max(a.t.id), max(t.id), max(memory.a.t.id), a.t.id + 1 from a.t group by all",
    "select a.t, t.id from b.t, a.t",
    "select memory.b.t, memory.t.y, t from b.t",
    "select memory.t.id from t",
    "select (select b.t.id from a.g) as inner_id from b.t",
    "select (select a.t.id from a.g limit 1), (select t.id from a.g limit 1) from a.t",
    "select 7 - id as t, b.t.y from b.t order by t desc limit 1",
    "select id + 1 as t, b.t.y, count(*) from b.t group by all having t > 3",
    "select count(*) from b.t where exists (select 1 from main.t as a where b.t.id < a.id)",
    "select a.t.x, a.t.x, a.t.x || '' from a.t",
    "select a.t.id + 1 as t, alias.t + 1 as u from a.t",
    "select a.t.id as t from a.t where alias.t > 2",
    "select a.t.id as k, count(*) as n from a.t group by alias.k having alias.n > 0",
    "select a.t.id as k from a.t order by alias.k desc limit 1",
    "select t.id.t from (select {'t': 3} as id) t, a.g",
    "select a.t.id, b.t.id from a.t, b.t order by 2, 1",
    "select * replace (b.t.id * 2 as id) from b.t",
    "select struct_pack(t := a.t.id, id := b.t.id) as t from a.t, b.t",
    "select t.t from (select t from a.t) t",
    "select b.t from a.t, b.t",
    "select count(distinct b.t) from b.t, a.t",
    "select a.t is null, b.t.id from a.t, b.t",
    "select a.t.x[1:1], b.t.y[1] from a.t, b.t",
    "select (a.t.t).id, (t).t from a.t",
    "select x.t.t from a.t x, b.t",
    "select a.t.id as id, lag(a.t.id) over w as p from a.t window w as (order by a.t.id desc)",
    "select a.t.id from a.t where a.t.id in (select a.t.id from b.t)",
    "select a.t.id from a.t where a.t.id = any (select b.t.id from b.t where b.t.id = a.t.id)",
    "from a.t t1 positional join b.t select t1.id, b.t.y",
    "from a.t asof join b.t on a.t.id >= b.t.id select a.t.id, b.t.id",
    "with t(id) as (values (1), (2)) select t.id, a.t.x from t join a.t on a.t.id = t.id",
    "with a as (select 4 as t) select a.t, a.t.id from a, a.t",
    "select unnest([a.t.id, b.t.id]) as u from a.t, b.t",
    "pivot (select a.t.id, b.t.y from a.t, b.t) on y using count(*)",
    "select sum(a.t.id) filter (where b.t.id > 2) as f from a.t, b.t",
    "select * from a.t where row(a.t.id, a.t.x) in (select b.t.id, 'a' || b.t.id from b.t)",
    "select a.t.id from a.t qualify row_number() over (order by a.t.id desc) = 1",
    "select columns('id') from a.t, b.t",
    "select columns(t.*) from a.g t",
    "select b.t.id from b.t using sample 100%",
    "select distinct a.t.x from a.t union by name select b.t.y as x from b.t",
    'select "A"."T"."ID" from a.t where "a".t."id" = 2',
    "select (select (select a.t.id + b.t.id from b.t limit 1) from main.t limit 1) as deep from a.t",
    'select a.t.id from a.t, (select 9 as id) as "a.t"',
    'select memory.a.t.id, "memory.a.t".id from a.t, (select 9 as id) as "memory.a.t"',
    "select list(b.t.id order by b.t.y desc) as l from a.t, b.t",
    "select list_filter([1, 2, 3], t -> t > a.t.id) as l from a.t",
    "select [t for t in [a.t.id]] as l from a.t",
    "select case a.t.id when b.t.id then b.t.y else a.t.x end as c from a.t, b.t",
    "select max(a.t.t.t) over (partition by t.t.id % 2) as m from a.t",
    "values ((select max(a.t.id) from a.t where exists (select 1 from b.t where b.t.id = a.t.id)))",
)

CHANGES = (
    "delete from a.t where exists (select 1 from b.t where b.t.id = a.t.id)",
    "delete from a.t where a.t.id in (select t.id from b.t where t.id <> 2)",
    "update a.t set x = 'hit' where exists (select 1 from b.t where b.t.id = a.t.id)",
    "update a.t set x = (select max(y) from b.t where b.t.id = a.t.id)",
    "update a.t set x = b.t.y from b.t where b.t.id = a.t.id",
    "update a.t set x = main.t.z from main.t where main.t.id = a.t.id and a.t.x = 'a3'",
    "delete from a.t using b.t where b.t.id = a.t.id",
    "insert into a.t by name select id, y as x from b.t where not exists (select 1 from a.t where a.t.id = b.t.id and a.t.x = 'a2')",
    "insert into b.t select a.t.id, a.t.x from a.t where not exists (select 1 from b.t where b.t.id = a.t.id)",
    "merge into a.t using b.t on a.t.id = b.t.id when matched then update set x = b.t.y",
    "merge into a.t using b.t on b.t.id = a.t.id when matched and a.t.x = 'a2' then delete when matched then update set x = a.t.x || b.t.y",
    "merge into a.t using (select b.t.id, b.t.y from b.t where exists (select 1 from a.t where a.t.id = b.t.id)) s on a.t.id = s.id "
    "when matched then update set x = s.y",
    "update a.t set x = to_json(t)",
    "update a.t as u set x = to_json(u)",
    "delete from b.t where t = {'id': 2, 'y': 'b2'}",
    "delete from b.t as g where g is not distinct from {'id': 3, 'y': 'b3'}",
    "update b.t set y = 'new' from main.t q where b.t.id = q.id and q is not null and hash(q) <> hash(t)",
    "merge into b.t using main.t q on b.t.id = q.id when matched and t is distinct from q then update set y = q.z",
    "create table c as select a.t.id, max(b.t.y) from a.t, b.t where a.t.id >= b.t.id group by a.t.id",
    "create table c as select * from a.t where not exists (select 1 from b.t where b.t.id = a.t.id)",
    "create view c as select memory.a.t.id, lower(memory.b.t.y), t.x from memory.a.t join memory.b.t on memory.a.t.id = memory.b.t.id",
    "create view c as select id, x from a.t where exists (select 1 from b.a where memory.t.id > 2)",
    "create view c as select memory.a.t.t.id from a.t where exists (select 1 from b.a where memory.t.id = a.t.id or memory.t.t.id > 13)",
    "create view c as select memory.g as r from main.a join a.g on true",
    "create view c as select max(a.t.t.id) as m from b.t, (select 1 as n) t, a.t",
    "create view c as select (select max(a.g.t.id) from b.t, (select 1 as n) t, a.g) as m, b.a.t.id from b.t, b.a where a.t.id = 3",
    "create view c as select t.id, a.t.id::varchar, a.t.id, upper(a.t.x), ID from a.t",
    "create view c as select a.t.id, b.t.y from a.t join b.t on a.t.id = b.t.id where exists (select 1 from main.t where main.t.id = a.t.id)",
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Session:
    session = duckrun.connect(str(tmp_path_factory.mktemp("pairs")))
    for statement in SETUP:
        session.sql(statement)
    return session


@pytest.fixture(scope="module")
def native() -> duckdb.DuckDBPyConnection:
    return _native()


def _native() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for statement in SETUP:
        connection.execute(statement)
    return connection


def _rows(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[list[str], list[Any]]:
    result = connection.execute(query)
    return [column[0] for column in result.description], sorted(result.fetchall(), key=repr)


def _lake_rows(session: Session, query: str) -> tuple[list[str], list[Any]]:
    table = session.sql(query).toArrow()
    columns = [column.to_pylist() for column in table.columns]
    return table.schema.names, sorted(zip(*columns, strict=True), key=repr)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_over_two_tables_of_one_name(query: str, lake: Session, native: duckdb.DuckDBPyConnection) -> None:
    try:
        expected = _rows(native, query)
    except duckdb.Error:
        with pytest.raises(DuckrunError):
            _lake_rows(lake, query)
        return
    assert _lake_rows(lake, query) == expected


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_over_two_tables_of_one_name(change: str, tmp_path: Any) -> None:
    session, native = duckrun.connect(str(tmp_path)), _native()
    for statement in SETUP:
        session.sql(statement)
    native.execute(change)
    session.sql(change)
    for table in ("a.t", "b.t", "main.t", *(["c"] if change.startswith("create") else [])):
        assert _lake_rows(session, f"from {table}") == _rows(native, f"from {table}"), table


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select nope from a.t", 'Binder Error: Referenced column "nope" not found in FROM clause!'),
        ("select a.t.nope, b.t.id from a.t, b.t", 'Binder Error: Table "a.t" does not have a column named "nope"'),
        ("explain select memory.b.t.nope from memory.b.t", 'Binder Error: Table "memory.b.t" does not have a column'),
        ("select c.id, a.t.id from a.t", 'Binder Error: Referenced table "c" not found!\nCandidate tables: "a.t"'),
        ("insert into b.t select a.t.id, foo(a.t.x) from a.t", "Catalog Error: Scalar Function with name foo does not"),
    ],
)
def test_errors_about_names_show_the_names_as_written(query: str, message: str, lake: Session) -> None:
    with pytest.raises(duckrun.InvalidConfig) as error:
        lake.sql(query)
    what, _, rest = str(error.value).partition(": ")
    assert rest.startswith(message) and re.fullmatch(r"(query|explain) on tables? [\w., ]+", what)
    assert "LINE" not in str(error.value)
    assert lake.lake.root not in str(error.value)


def test_a_registered_value_is_a_source_of_every_change(root: Path) -> None:
    """A value lies in no schema: its columns are not those of a table of the lake."""
    with duckrun.connect(root) as session:
        session.sql("create table t as select 1 as v, 1 as n")
        session.register("Given", pa.table({"v": [1], "id": [2]}))
        session.sql("create temp table tmp as select 1 as v, 5 as k")
        session.sql("update t set n = 9 from given where t.v = given.v")
        session.sql("update t set n = n + tmp.k from tmp where t.v = tmp.v")
        session.sql("merge into t using given on t.v = given.v when matched then update set n = t.n + given.id")
        assert session.sql("from t").collect() == [{"v": 1, "n": 16}]
        session.sql("delete from t using given where t.v = given.v and given.id > 0")
        assert session.sql("from t").collect() == []
