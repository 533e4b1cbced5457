"""The statement matrix: every statement that sql() takes, or refuses, with what it gives. docs/sql.md is written from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import duckrun
from duckrun import WriteSpec
from duckrun.lake.lake import ViewDefinition

ENGINES = ("duckdb", "spark")
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """One line of the matrix.

    ``sql`` may hold ``{lake}``, the lake's folder. ``gives`` are the rows of the statement itself; ``rows`` those of
    ``check`` after it. ``refused`` is a part of the error's message, for both engines or by engine. ``daily`` cases run
    on Spark every day.
    """

    section: str
    name: str
    sql: str
    rows: tuple[Row, ...] | None = None
    check: str = "select * from orders"
    gives: tuple[Row, ...] | None = None
    refused: str | Mapping[str, str] = field(default_factory=dict)
    dialect: str = "duckdb"
    options: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    daily: bool = False

    def refusal(self, engine: str) -> str | None:
        return self.refused if isinstance(self.refused, str) else self.refused.get(engine)

    @property
    def id(self) -> str:
        return f"{self.section}: {self.name}"


def make_lake(root: Path) -> None:
    """orders (two versions), days (partitioned by day), news (a source), nested, and figs, a view over orders."""
    with duckrun.connect(root) as s:
        s.execute("main.orders", WriteSpec("error"), _orders([(1, "fig", 10), (2, "kiwi", 20)]))
        s.execute("main.orders", WriteSpec("append"), _orders([(3, "nut", 30)]))
        s.execute("main.news", WriteSpec("error"), _orders([(2, "lime", 22), (4, "plum", 44)]))
        days = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "day": ["a", "a", "b"]})
        s.execute("main.days", WriteSpec("error", partition_by=("day",)), days)
        s.lake.put_definition(
            s.lake.parse("main.figs"),
            ViewDefinition("select id from orders where item = 'fig'", reads=("main.orders",)),
        )
    folder = root / "main" / "loose"
    folder.mkdir(parents=True)
    import pyarrow.parquet as pq

    pq.write_table(_orders([(7, "oat", 70)]), folder / "part-0.parquet")


def _orders(rows: list[Row]) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("item", pa.string()), ("qty", pa.int32())])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


FIG, KIWI, NUT = (1, "fig", 10), (2, "kiwi", 20), (3, "nut", 30)
ALL = (FIG, KIWI, NUT)
_NONE = "is not supported by sql()"


def _queries() -> Iterator[Case]:
    yield Case("Queries", "SELECT … FROM", "select item from orders where id > 1", gives=(("kiwi",), ("nut",)))
    yield Case("Queries", "WITH … SELECT", "with o as (select id from orders) select max(id) from o", gives=((3,),))
    yield Case("Queries", "FROM first", "from orders select id limit 1 offset 3", gives=())
    yield Case("Queries", "VALUES", "values (1, 'x'), (2, 'y')", gives=((1, "x"), (2, "y")))
    yield Case(
        "Queries", "UNION, EXCEPT, INTERSECT", "select id from orders except select id from news", gives=((1,), (3,))
    )
    yield Case("Queries", "a view of the lake", "select * from figs", gives=((1,),))
    yield Case("Queries", "AT (VERSION => n)", "select count(*) from orders at (version => 0)", gives=((2,),))
    yield Case(
        "Queries",
        "VERSION AS OF n, one table twice",
        "select n.id from orders n left join orders version as of 0 o on n.id = o.id where o.id is null",
        gives=((3,),),
        daily=True,
    )
    yield Case(
        "Queries",
        "TIMESTAMP AS OF, in a subquery",
        "select (select count(*) from orders timestamp as of '2999-01-01')",
        gives=((3,),),
    )
    yield Case(
        "Queries",
        "AT (TIMESTAMP => an expression)",
        "with o as (select * from orders at (timestamp => now() + interval 1 day)) select count(*) from o",
        gives=((3,),),
    )
    yield Case(
        "Queries",
        "information_schema.tables, .columns, .views, .schemata",
        "select t.table_name, c.column_name, c.data_type from information_schema.tables t join information_schema.columns c "
        "using (table_schema, table_name) where t.table_name in ('days', 'figs')",
        gives=(("days", "day", "VARCHAR"), ("days", "id", "BIGINT"), ("figs", "id", "BIGINT")),
        daily=True,
    )
    yield Case(
        "Queries",
        "duckdb_tables(), duckdb_views(), duckdb_columns(), duckdb_schemas()",
        "select t.table_name, c.column_name from duckdb_tables() t join duckdb_columns() c using (database_name, schema_name, table_name) "
        "where t.table_name = 'days' union all select view_name, schema_name from duckdb_views() join duckdb_schemas() using (database_name, schema_name) "
        "where view_name = 'figs'",
        gives=(("days", "day"), ("days", "id"), ("figs", "main")),
        refused={"spark": r"duckdb_tables\(\)"},
    )
    yield Case("Queries", "SUMMARIZE", "summarize orders", rows=ALL, refused={"spark": "SUMMARIZE"})
    yield Case("Queries", "EXPLAIN", "explain select * from orders", rows=ALL)
    yield Case("Queries", "SELECT … INTO", "select * into copies from orders", refused=_NONE)


def _creating() -> Iterator[Case]:
    s = "Tables"
    new = "select * from made"
    yield Case(s, "CREATE TABLE AS", "create table made as select id from orders", ((1,), (2,), (3,)), new, daily=True)
    yield Case(
        s,
        "CREATE TABLE AS, with names",
        "create table made (a, b) as select 1, 'x'",
        ((1, "x"),),
        "select a, b from made",
    )
    yield Case(s, "CREATE OR REPLACE TABLE AS", "create or replace table orders as select 9 as n", ((9,),))
    yield Case(
        s,
        "CREATE OR REPLACE TABLE AS, out of itself",
        "create or replace table orders as select * from orders where id = 1",
        (FIG,),
    )
    yield Case(s, "CREATE TABLE IF NOT EXISTS AS", "create table if not exists orders as select 9 as n", ALL)
    yield Case(
        s, "CREATE TABLE AS, of a name that is taken", "create table orders as select 9 as n", refused="exists already"
    )
    yield Case(
        s,
        "CREATE TABLE (columns, NOT NULL, COMMENT)",
        "create table made (id bigint not null, item varchar comment 'what'); insert into made values (1, 'x')",
        ((1, "x"),),
        new,
    )
    yield Case(
        s,
        "NOT NULL holds",
        "create table made (id bigint not null, item varchar); insert into made values (null, 'x')",
        refused="NULL",
    )
    yield Case(
        s,
        "CREATE TABLE with CHECK",
        "create table made (id bigint, constraint positive check (id > 0)); insert into made values (-1)",
        refused="positive",
    )
    yield Case(s, "CREATE TABLE IF NOT EXISTS (columns)", "create table if not exists orders (n int)", ALL)
    yield Case(s, "CREATE OR REPLACE TABLE (columns)", "create or replace table orders (n int)", ())
    yield Case(
        s,
        "PARTITIONED BY",
        "create table made partitioned by (item) as select * from orders",
        (("kiwi",),),
        "select item from made where item = 'kiwi'",
    )
    yield Case(
        s,
        "SORTED BY",
        "create table made sorted by (qty) as select * from orders; insert into made values (4, 'a', 40), (5, 'b', 35)",
        ((5,),),
        "select count(*) from made",
    )
    yield Case(
        s,
        "CLUSTER BY",
        "create table made cluster by (item) as select * from orders",
        (("kiwi",),),
        "select item from made where item = 'kiwi'",
    )
    yield Case(
        s,
        "GENERATED ALWAYS AS (…), and AS IDENTITY",
        "create table made (n bigint generated always as identity, v int, w int generated always as (v * 2)); "
        "insert into made (v) values (4)",
        ((1, 4, 8),),
        new,
    )
    yield Case(
        s,
        "USING delta, COMMENT, TBLPROPERTIES",
        "create table made (n int) using delta comment 'why' tblproperties ('delta.appendOnly' = 'true')",
        (),
        new,
    )
    yield Case(s, "WITH (property = …)", "create table made with ('owner' = 'me') as select 1 as n", ((1,),), new)
    yield Case(
        s, "WITH (an unknown option = …)", "create table made with (nonsense = 3) as select 1 as n", refused="nonsense"
    )
    yield Case(s, "SORTED BY AUTO", "create table made sorted by auto as select 1 as n", refused="SORTED BY")
    yield Case(s, "DROP TABLE", "drop table orders; create table orders as select 1 as n", ((1,),))
    yield Case(s, "DROP TABLE IF EXISTS", "drop table if exists nowhere", ALL)
    yield Case(s, "DROP TABLE of nothing", "drop table order_s", refused="main.orders")
    yield Case(s, "DROP TABLE … CASCADE", "drop table orders cascade", refused=_NONE)
    yield Case(s, "TRUNCATE", "truncate table orders", ())
    yield Case(s, "CREATE TABLE with PRIMARY KEY", "create table made (id int primary key)", refused="PRIMARY KEY")
    yield Case(
        s,
        "CREATE TABLE with DEFAULT",
        "create table made (id int default 3, item varchar default 'it''s', qty int); insert into made (qty) values (1), (2); "
        "insert into made values (4, default, default); insert into made by name select 5 as id; insert into made default values; "
        "update made set id = default, item = default where qty = 2",
        ((3, "it's", 1), (3, "it's", 2), (3, "it's", None), (4, "it's", None), (5, "it's", None)),
        "select * from made",
        daily=True,
    )
    yield Case(s, "CREATE TABLE LIKE", "create table made like orders", refused="LIKE")
    yield Case(s, "CREATE TABLE CLONE", "create table made clone orders", refused="CLONE")
    yield Case(s, "CREATE TABLE … LOCATION", "create table made location '/x' as select 1 as n", refused="LOCATION")


def _views() -> Iterator[Case]:
    s = "Views and temporary names"
    yield Case(
        s,
        "CREATE VIEW",
        "create view made as select id from orders where id > 2",
        ((3,),),
        "select * from made",
    )
    yield Case(
        s,
        "CREATE VIEW with names, COMMENT",
        "create view made (n) comment 'why' as select id from orders where id = 1",
        ((1,),),
        "select n from made",
    )
    yield Case(
        s, "CREATE OR REPLACE VIEW", "create or replace view figs as select 7 as n", ((7,),), "select * from figs"
    )
    yield Case(
        s, "CREATE VIEW IF NOT EXISTS", "create view if not exists figs as select 7 as n", ((1,),), "select * from figs"
    )
    yield Case(s, "CREATE VIEW of a name that is taken", "create view figs as select 7 as n", refused="exists already")
    yield Case(
        s, "a view that reads itself", "create or replace view figs as select * from figs", refused="reads itself"
    )
    yield Case(
        s,
        "a view of an old version",
        "create view made as select * from orders version as of 0",
        refused="at a version",
    )
    yield Case(s, "DROP VIEW", "drop view figs; create view figs as select 2 as n", ((2,),), "select * from figs")
    yield Case(s, "DROP VIEW IF EXISTS", "drop view if exists nowhere", ALL)
    yield Case(s, "DROP TABLE of a view", "drop table figs", refused="DROP VIEW")
    yield Case(s, "writing to a view", "insert into figs values (1)", refused="is a view")
    yield Case(
        s,
        "CREATE TEMP VIEW",
        "create temp view made as select * from orders; insert into orders values (4, 'fig', 1)",
        ((4,),),
        "select count(*) from made",
        daily=True,
    )
    yield Case(
        s,
        "CREATE TEMP TABLE",
        "create temp table made as select * from orders; insert into orders values (4, 'fig', 1)",
        ((3,),),
        "select count(*) from made",
        refused={"spark": "no temporary tables"},
    )
    yield Case(
        s,
        "INSERT, UPDATE, DELETE of a temporary table",
        "create temp table made as select id from orders; insert into made select id from news; update made set id = id + 1 where id = 4; "
        "delete from made where id < 3",
        ((3,), (5,)),
        "select * from made",
        refused={"spark": "no temporary tables"},
    )
    yield Case(s, "ALTER VIEW … RENAME TO", "alter view figs rename to other", ((1,),), "select * from other")
    yield Case(s, "ALTER VIEW … AS", "alter view figs as select 1 as n", refused=_NONE)


def _inserts() -> Iterator[Case]:
    s = "INSERT"
    four = (4, "plum", 44)
    yield Case(s, "INSERT INTO … VALUES", "insert into orders values (4, 'plum', 44)", (*ALL, four), daily=True)
    yield Case(s, "DEFAULT as NULL", "insert into orders values (4, default, 44)", (*ALL, (4, None, 44)))
    yield Case(s, "INSERT INTO … SELECT", "insert into orders select * from news where id = 4", (*ALL, four))
    yield Case(
        s,
        "INSERT INTO … WITH … SELECT",
        "insert into orders with n as (select * from news) select * from n where id > 2",
        (*ALL, four),
    )
    yield Case(
        s,
        "WITH … INSERT INTO",
        "with n as (select * from news) insert into orders select * from n where id > 2",
        (*ALL, four),
    )
    yield Case(
        s,
        "a list of columns; the others are NULL",
        "insert into orders (qty, id) values (44, 4)",
        (*ALL, (4, None, 44)),
        daily=True,
    )
    yield Case(s, "BY NAME", "insert into orders by name select 44 as qty, 4 as id", (*ALL, (4, None, 44)))
    yield Case(s, "BY POSITION", "insert into orders by position select 4, 'plum', 44", (*ALL, four))
    yield Case(s, "values cast to the column", "insert into orders values ('4', 'plum', 44.0)", (*ALL, four))
    yield Case(
        s,
        "VALUES whose rows differ in type, each cast to its column",
        "insert into orders (item, id) values (1, 4), ('x', '5'), (2.50, default)",
        (*ALL, (4, "1", None), (5, "x", None), (None, "2.50", None)),
    )
    yield Case(s, "(VALUES …), (FROM …), FROM …", "insert into orders (from news where id = 4)", (*ALL, four))
    yield Case(
        s,
        "out of the table itself",
        "insert into orders select id + 3, item, qty from orders where id = 1",
        (*ALL, (4, "fig", 10)),
    )
    yield Case(
        s,
        "schema_mode='append_new_columns'",
        "insert into orders by name select 4 as id, true as sold",
        ((1, None), (2, None), (3, None), (4, True)),
        "select id, sold from orders",
        options={"schema_mode": "append_new_columns"},
    )
    yield Case(s, "too few values", "insert into orders values (4, 'plum')", refused="fills 3 columns")
    yield Case(s, "a column that is not there", "insert into orders (nope) values (1)", refused="no column nope")
    yield Case(
        s,
        "INSERT INTO … REPLACE WHERE",
        "insert into orders replace where id > 1 select 9, 'oat', 90",
        (FIG, (9, "oat", 90)),
    )
    yield Case(
        s,
        "REPLACE WHERE, a row outside of it",
        "insert into orders replace where id > 1 select 0, 'x', 1",
        refused="outside",
    )
    yield Case(s, "INSERT OVERWRITE", "insert overwrite orders select * from news where id = 4", (four,))
    days = "select * from days"
    yield Case(
        s,
        "INSERT OVERWRITE … PARTITION (p = v)",
        "insert overwrite days partition (day = 'a') select 9",
        ((3, "b"), (9, "a")),
        days,
        daily=True,
    )
    yield Case(
        s,
        "INSERT OVERWRITE … PARTITION (p)",
        "insert overwrite days partition (day) values (9, 'a'), (8, 'c')",
        ((3, "b"), (8, "c"), (9, "a")),
        days,
        note="replaces the partitions that the rows lie in",
    )
    yield Case(
        s,
        "INSERT INTO … PARTITION (p = v)",
        "insert into days partition (day = 'c') select 9",
        ((1, "a"), (2, "a"), (3, "b"), (9, "c")),
        days,
    )
    yield Case(
        s,
        "ON CONFLICT (keys) DO UPDATE SET … WHERE …",
        "insert into orders values (2, 'lime', 22), (4, 'plum', 44) on conflict (id) do update set item = excluded.item, "
        "qty = qty + 1 where qty < 30",
        (FIG, (2, "lime", 21), NUT, four),
        daily=True,
    )
    yield Case(
        s,
        "ON CONFLICT (keys) DO NOTHING",
        "insert into orders values (2, 'x', 0), (4, 'plum', 44), (4, 'y', 0) on conflict (id) do nothing",
        (*ALL, four),
    )
    yield Case(
        s,
        "OR REPLACE, OR IGNORE, ON CONFLICT without keys",
        "insert or replace into orders values (1, 'x', 1)",
        refused="no primary key",
        note="write ON CONFLICT (keys)",
    )
    yield Case(
        s,
        "RETURNING",
        "insert into orders values (4, 'x', 1), (5, 'y', 2) returning id, qty * 2 as twice",
        gives=((4, 2), (5, 4)),
        rows=(*ALL, (4, "x", 1), (5, "y", 2)),
        refused={"spark": "RETURNING"},
    )
    yield Case(s, "DEFAULT VALUES", "insert into orders default values", (*ALL, (None, None, None)))


def _changes() -> Iterator[Case]:
    s = "UPDATE and DELETE"
    yield Case(
        s,
        "UPDATE … SET … WHERE",
        "update orders set qty = qty + 1, item = upper(item) where id = 1",
        ((1, "FIG", 11), KIWI, NUT),
    )
    yield Case(
        s, "UPDATE with an alias", "update orders as o set qty = o.qty * 2 where o.id = 2", (FIG, (2, "kiwi", 40), NUT)
    )
    yield Case(s, "UPDATE of all rows", "update orders set qty = 0", ((1, "fig", 0), (2, "kiwi", 0), (3, "nut", 0)))
    yield Case(
        s, "SET (a, b) = (x, y)", "update orders set (item, qty) = ('x', 1) where id = 3", (FIG, KIWI, (3, "x", 1))
    )
    yield Case(
        s,
        "UPDATE … FROM",
        "update orders o set item = n.item, qty = o.qty + n.qty from news n where n.id = o.id",
        (FIG, (2, "lime", 42), NUT),
        daily=True,
    )
    yield Case(
        s,
        "UPDATE … FROM a JOIN b",
        "update orders set item = n.item from news n join days d on d.id = n.id where n.id = orders.id and d.day = 'a'",
        (FIG, (2, "lime", 20), NUT),
    )
    yield Case(
        s,
        "UPDATE … FROM, several rows for one",
        "update orders o set qty = n.qty from news n where n.id > o.id",
        refused="several",
    )
    yield Case(
        s,
        "UPDATE with subqueries",
        "update orders set qty = (select max(qty) from news) where id in (select id from news)",
        (FIG, (2, "kiwi", 44), NUT),
        daily=True,
    )
    yield Case(
        s,
        "UPDATE with subqueries, dialect='spark'",
        "update orders o set qty = (select max(n.qty) from news n where n.id = o.id), "
        "item = (select max(item) from orders) where id in (select id from news)",
        (FIG, (2, "nut", 22), NUT),
        dialect="spark",
        daily=True,
    )
    yield Case(
        s,
        "WITH … UPDATE, dialect='spark'",
        "with n as (select * from news where id = 2) update orders set qty = (select max(qty) from n)",
        ((1, "fig", 22), (2, "kiwi", 22), (3, "nut", 22)),
        dialect="spark",
    )
    yield Case(
        s,
        "DELETE with a subquery, dialect='spark'",
        "delete from orders o where qty < (select max(n.qty) from news n where n.id = o.id)",
        (FIG, NUT),
        dialect="spark",
    )
    yield Case(
        s,
        "WITH … UPDATE",
        "with n as (select * from news where id = 2) update orders set qty = (select max(qty) from n) where id in (select id from n)",
        (FIG, (2, "kiwi", 22), NUT),
    )
    yield Case(
        s,
        "WITH … DELETE",
        "with n as (select id from news) delete from orders where exists (select 1 from n where n.id = orders.id)",
        (FIG, NUT),
    )
    yield Case(s, "SET of a column twice", "update orders set qty = 1, qty = 2", refused="set twice")
    yield Case(
        s,
        "SET … = DEFAULT",
        "update orders set qty = default, (item, id) = (upper(item), default) where id = 1",
        ((None, "FIG", None), KIWI, NUT),
    )
    yield Case(
        s,
        "MERGE … SET … = DEFAULT",
        "merge into orders t using news s on t.id = s.id when matched then update set qty = default",
        (FIG, (2, "kiwi", None), NUT),
    )
    yield Case(s, "DELETE … WHERE", "delete from orders where id > 1", (FIG,))
    yield Case(s, "DELETE of all rows", "delete from orders", ())
    yield Case(s, "DELETE … USING", "delete from orders o using news n where n.id = o.id", (FIG, NUT), daily=True)
    yield Case(
        s,
        "DELETE … USING, several rows for one",
        "delete from orders using news where news.id > orders.id",
        (),
        "select * from orders where id < 3",
    )
    yield Case(s, "DELETE with a subquery", "delete from orders where id in (select id from news)", (FIG, NUT))
    yield Case(
        s,
        "DELETE with a correlated subquery",
        "delete from orders o where exists (select 1 from news n where n.id = o.id)",
        (FIG, NUT),
    )
    yield Case(
        s, "a subquery over the table itself", "delete from orders where qty < (select max(qty) from orders)", (NUT,)
    )
    yield Case(
        s,
        "UPDATE … RETURNING",
        "update orders set qty = qty + 1 where id > 1 returning id, qty",
        gives=((2, 21), (3, 31)),
        rows=(FIG, (2, "kiwi", 21), (3, "nut", 31)),
        refused={"spark": "RETURNING"},
    )
    yield Case(
        s,
        "DELETE … RETURNING",
        "delete from orders where id = 1 returning id, upper(item) as item",
        gives=((1, "FIG"),),
        rows=(KIWI, NUT),
        refused={"spark": "RETURNING"},
    )


def _merges() -> Iterator[Case]:
    s = "MERGE"
    into = "merge into orders t using news s on t.id = s.id "
    lime, plum = (2, "lime", 22), (4, "plum", 44)
    yield Case(
        s,
        "UPDATE SET *, INSERT *",
        into + "when matched then update set * when not matched then insert *",
        (FIG, lime, NUT, plum),
        daily=True,
    )
    yield Case(
        s,
        "UPDATE SET a = expression over both sides",
        into + "when matched then update set qty = t.qty + s.qty, t.item = s.item || '!'",
        (FIG, (2, "lime!", 42), NUT),
    )
    yield Case(
        s,
        "INSERT (columns) VALUES (…)",
        into + "when not matched then insert (id, qty) values (s.id, s.qty * 2)",
        (*ALL, (4, None, 88)),
    )
    yield Case(s, "INSERT VALUES (…)", into + "when not matched then insert values (s.id, 'x', 1)", (*ALL, (4, "x", 1)))
    yield Case(s, "WHEN MATCHED THEN DELETE", into + "when matched then delete", (FIG, NUT))
    yield Case(
        s,
        "conditions, the first clause that holds decides",
        into + "when matched and s.qty > 100 then delete when matched and t.qty = 20 then update set qty = 0 "
        "when not matched and s.qty < 0 then insert *",
        (FIG, (2, "kiwi", 0), NUT),
    )
    yield Case(
        s,
        "WHEN NOT MATCHED BY SOURCE",
        into
        + "when not matched by source and t.id = 1 then delete when not matched by source then update set qty = t.qty + 1",
        (KIWI, (3, "nut", 31)),
        daily=True,
    )
    yield Case(s, "WHEN NOT MATCHED BY TARGET", into + "when not matched by target then insert *", (*ALL, plum))
    yield Case(
        s,
        "DO NOTHING",
        into + "when matched and t.qty > 10 then do nothing when matched then delete when not matched then insert *",
        (*ALL, plum),
    )
    yield Case(
        s,
        "ON more than equality",
        "merge into orders t using news s on t.id = s.id and t.qty > 20 when matched then delete when not matched then insert *",
        (*ALL, lime, plum),
    )
    yield Case(
        s,
        "USING (column)",
        "merge into orders using news using (id) when matched then update set qty = news.qty",
        (FIG, (2, "kiwi", 22), NUT),
    )
    yield Case(
        s,
        "keys of other names, a query as source",
        "merge into orders t using (select id as k, qty from news) s on s.k = t.id when matched then update set qty = s.qty "
        "when not matched then insert (id, qty) values (s.k, s.qty)",
        (FIG, (2, "kiwi", 22), NUT, (4, None, 44)),
        daily=True,
    )
    yield Case(
        s,
        "WITH … MERGE",
        "with n as (select * from news where id = 4) merge into orders t using n on t.id = n.id when not matched then insert *",
        (*ALL, plum),
    )
    yield Case(
        s,
        "the table itself in the source",
        "merge into orders t using (select id, qty + 1 as qty from orders) s on t.id = s.id when matched then update set qty = s.qty",
        ((1, "fig", 11), (2, "kiwi", 21), (3, "nut", 31)),
    )
    yield Case(
        s,
        "schema_mode='append_new_columns'",
        "merge into orders t using (select *, true as sold from news) s on t.id = s.id when matched then update set * when not matched then insert *",
        ((1, None), (2, True), (3, None), (4, True)),
        "select id, sold from orders",
        options={"schema_mode": "append_new_columns"},
    )
    yield Case(
        s,
        "a subquery in a condition",
        into + "when matched and t.qty < (select max(qty) from news) then delete",
        (FIG, NUT),
        refused={"spark": "put it into the source"},
    )
    yield Case(
        s,
        "a subquery in a value",
        into + "when matched then update set qty = (select max(qty) from news)",
        (FIG, (2, "kiwi", 44), NUT),
        refused={"spark": "put it into the source"},
    )
    yield Case(
        s,
        "duplicate keys in the source",
        "merge into orders t using (select 2 as id union all select 2) s on t.id = s.id when matched then delete",
        refused="more than once",
    )
    yield Case(
        s,
        "ON without an equality",
        "merge into orders t using news s on t.id > s.id when matched then delete",
        refused="at least one equality",
    )
    yield Case(
        s,
        "INSERT, UPDATE [BY POSITION]",
        into + "when matched then update when not matched then insert by position",
        (FIG, lime, NUT, plum),
    )
    yield Case(
        s,
        "INSERT BY NAME, UPDATE BY NAME",
        "merge into orders t using (select qty, id from news) s on t.id = s.id when matched then update by name "
        "when not matched then insert by name",
        (FIG, (2, "kiwi", 22), NUT, (4, None, 44)),
        daily=True,
    )
    yield Case(s, "DO NOTHING alone", into + "when matched then do nothing", ALL)
    yield Case(
        s,
        "THEN ERROR",
        into + "when matched and t.qty > 20 then error when not matched then insert *",
        (*ALL, plum),
    )
    yield Case(
        s,
        "THEN ERROR message, for a row that meets it",
        into + "when matched then error 'not ' || s.item when not matched then insert *",
        refused="THEN ERROR: not lime",
    )
    yield Case(
        s,
        "WITH SCHEMA EVOLUTION",
        "merge with schema evolution into orders t using (select *, true as sold from news) s on t.id = s.id "
        "when matched then update set * when not matched then insert *",
        ((1, None), (2, True), (3, None), (4, True)),
        "select id, sold from orders",
    )
    yield Case(s, "RETURNING", into + "when matched then delete returning *", refused="RETURNING")


def _altering() -> Iterator[Case]:
    s = "ALTER TABLE, COMMENT ON"
    yield Case(
        s,
        "ADD COLUMN",
        "alter table orders add column sold boolean",
        ((1, None), (2, None), (3, None)),
        "select id, sold from orders",
        daily=True,
    )
    yield Case(s, "ADD COLUMN IF NOT EXISTS", "alter table orders add column if not exists qty int", ALL)
    yield Case(
        s,
        "ADD COLUMNS (…)",
        "alter table orders add columns (a int, b varchar)",
        ((1, None, None), (2, None, None), (3, None, None)),
        "select id, a, b from orders",
    )
    yield Case(s, "DROP COLUMN", "alter table orders drop column item", ((1, 10), (2, 20), (3, 30)))
    yield Case(s, "DROP COLUMN IF EXISTS", "alter table orders drop column if exists nope", ALL)
    yield Case(
        s,
        "RENAME COLUMN",
        "alter table orders rename column item to what",
        (("fig",),),
        "select what from orders where id = 1",
    )
    yield Case(
        s,
        "ALTER COLUMN … TYPE",
        "alter table orders alter column qty type bigint; update orders set qty = 5000000000 where id = 1",
        ((5000000000,),),
        "select qty from orders where id = 1",
    )
    yield Case(s, "ALTER COLUMN … SET DATA TYPE", "alter table orders alter qty set data type bigint", ALL)
    yield Case(
        s,
        "SET NOT NULL",
        "alter table orders alter column item set not null; insert into orders values (4, null, 1)",
        refused="NULL",
    )
    yield Case(
        s,
        "DROP NOT NULL",
        "create table made (n int not null); alter table made alter column n drop not null; insert into made values (null)",
        ((None,),),
        "select * from made",
    )
    yield Case(
        s,
        "ADD CONSTRAINT … CHECK",
        "alter table orders add constraint small check (qty < 50); insert into orders values (4, 'x', 99)",
        refused="small",
    )
    yield Case(
        s, "ADD CONSTRAINT that rows break", "alter table orders add constraint small check (qty < 15)", refused="small"
    )
    yield Case(
        s,
        "DROP CONSTRAINT",
        "alter table orders add constraint small check (qty < 50); alter table orders drop constraint small; insert into orders values (4, 'x', 99)",
        (*ALL, (4, "x", 99)),
    )
    yield Case(
        s,
        "SET TBLPROPERTIES",
        "alter table orders set tblproperties ('delta.appendOnly' = 'true'); delete from orders",
        refused="ppend",
    )
    yield Case(
        s,
        "UNSET TBLPROPERTIES",
        "alter table orders set tblproperties ('delta.appendOnly' = 'true'); "
        "alter table orders unset tblproperties ('delta.appendOnly'); delete from orders where id > 1",
        (FIG,),
    )
    yield Case(s, "COMMENT ON TABLE", "comment on table orders is 'sold'", ALL)
    yield Case(
        s,
        "COMMENT ON COLUMN, IS NULL",
        "comment on column orders.qty is 'how many'; comment on column orders.qty is null",
        ALL,
    )
    yield Case(
        s,
        "CLUSTER BY (…), CLUSTER BY NONE",
        "alter table orders cluster by (item, qty); alter table if exists orders cluster by none",
        ALL,
    )
    yield Case(
        s,
        "SET SORTED BY (…), RESET SORTED BY",
        "alter table orders set sorted by (qty); alter table orders reset sorted by; alter table orders set sorted by (qty, id asc)",
        ALL,
    )
    yield Case(
        s,
        "SET PARTITIONED BY (…), RESET PARTITIONED BY",
        "alter table orders set partitioned by (item); alter table orders reset partitioned by",
        refused="CREATE OR REPLACE TABLE",
        note="format ducklake",
    )
    yield Case(
        s,
        "a field of a struct",
        "create table made as select {'a': 1} as info; alter table made add column info.more int",
        ((1, None),),
        "select info.a, info.more from made",
    )
    yield Case(
        s,
        "COMMENT ON VIEW",
        "comment on view figs is 'the figs'",
        (("the figs",),),
        "select TABLE_COMMENT from information_schema.tables where table_name = 'figs'",
    )
    yield Case(s, "ALTER TABLE IF EXISTS", "alter table if exists nowhere add column n int", ALL)
    yield Case(
        s, "RENAME TO", "alter table news rename to sales", ((2, "lime", 22), (4, "plum", 44)), "select * from sales"
    )
    yield Case(s, "RENAME a TO b", "alter table orders rename item to what", refused="RENAME COLUMN")
    yield Case(
        s,
        "SET DEFAULT",
        "alter table orders alter column qty set default 3; insert into orders (id) values (5)",
        (*ALL, (5, None, 3)),
    )
    yield Case(s, "ADD PRIMARY KEY", "alter table orders add primary key (id)", refused="PRIMARY KEY")
    yield Case(s, "ADD CHECK without a name", "alter table orders add check (qty > 1)", refused="add check")


def _keeping() -> Iterator[Case]:
    s = "History and maintenance"
    yield Case(s, "DESCRIBE table", "describe orders", gives=None, rows=ALL)
    yield Case(s, "DESCRIBE DETAIL", "describe detail orders", gives=None, rows=ALL)
    yield Case(s, "DESCRIBE HISTORY … LIMIT n", "describe history orders limit 1", gives=None, rows=ALL)
    yield Case(
        s,
        "SHOW TABLES [IN schema]",
        "show tables in main",
        gives=(
            ("main", "days", "table"),
            ("main", "figs", "view"),
            ("main", "news", "table"),
            ("main", "orders", "table"),
        ),
    )
    yield Case(
        s,
        "SHOW TBLPROPERTIES table ('key')",
        "create table made tblproperties ('owner' = 'me', 'x.y' = 'z') as select 1 as n; show tblproperties made ('x.y')",
        gives=(("x.y", "z"),),
        rows=ALL,
    )
    yield Case(s, "SHOW VIEWS", "show views", gives=(("main", "figs", "view"),))
    yield Case(s, "SHOW SCHEMAS", "show schemas", gives=(("main",),))
    yield Case(s, "RESTORE … TO VERSION AS OF n", "restore table orders to version as of 0", (FIG, KIWI), daily=True)
    yield Case(s, "RESTORE … TO TIMESTAMP AS OF t", "restore orders to timestamp as of '2999-01-01'", ALL)
    yield Case(s, "OPTIMIZE", "optimize orders", ALL, daily=True)
    yield Case(
        s, "OPTIMIZE … WHERE", "optimize days where day = 'a'", ((1, "a"), (2, "a"), (3, "b")), "select * from days"
    )
    yield Case(s, "OPTIMIZE … ZORDER BY", "optimize orders zorder by (id, qty)", ALL)
    yield Case(s, "REORG … APPLY (PURGE)", "reorg table orders apply (purge)", ALL)
    yield Case(s, "VACUUM … DRY RUN", "vacuum orders retain 168 hours dry run", ALL)
    yield Case(s, "VACUUM", "vacuum orders", ALL)
    yield Case(
        s,
        "CONVERT TO DELTA parquet.`folder`",
        "convert to delta parquet.`{lake}/main/loose`",
        ((7, "oat", 70),),
        "select * from loose",
    )
    yield Case(s, "delta.`folder` as a table", 'select count(*) from delta."{lake}/main/orders"', gives=((3,),))


def _others() -> Iterator[Case]:
    s = "Others"
    for sql in (
        "create index i on orders (id)", "create macro f(x) as x + 1",
        "copy orders to 'x.csv'", "attach 'x.db' as x", "set threads = 1", "pragma version", "begin", "commit",
        "call pragma_version()", "install httpfs", "grant select on orders to you", "analyze orders",
    ):  # fmt: skip
        words = sql.upper().split()
        name = " ".join(words[:2]) if words[0] in ("CREATE", "DROP") else words[0]
        yield Case(s, name, sql, refused=_NONE)
    yield Case(
        s,
        "CREATE SCHEMA [IF NOT EXISTS]",
        "create schema other; create schema if not exists Other; show schemas",
        gives=(("main",), ("other",)),
        rows=ALL,
    )
    yield Case(
        s,
        "DROP SCHEMA [IF EXISTS] [RESTRICT]",
        "create schema other; drop schema other restrict; drop schema if exists other; show schemas",
        gives=(("main",),),
        rows=ALL,
    )
    yield Case(s, "DROP SCHEMA of one with tables", "drop schema main", refused="holds days, figs, news")
    yield Case(
        s,
        "DROP SCHEMA … CASCADE",
        "create table other.t as select 1 as n; create view other.v as select * from other.t; drop schema other cascade; show tables",
        gives=(
            ("main", "days", "table"),
            ("main", "figs", "view"),
            ("main", "news", "table"),
            ("main", "orders", "table"),
        ),
        rows=ALL,
    )
    yield Case(
        s,
        "USE schema, USE lake.schema, USE lake",
        "create schema other; use other; create table t as select 1 as n; use lake.main; insert into orders select n + 3, 'x', 1 "
        "from other.t; use lake",
        (*ALL, (4, "x", 1)),
        daily=True,
    )
    yield Case(s, "params=[…] for ? and $1", "select ?", gives=((3,),), rows=ALL, options={"params": [3]})
    yield Case(s, "params={…} for $name", "select $a", gives=((3,),), rows=ALL, options={"params": {"a": 3}})
    yield Case(
        s,
        "dialect='spark'",
        'insert into `orders` select 4L, "plum", int(44)',
        (*ALL, (4, "plum", 44)),
        dialect="spark",
        daily=True,
    )
    yield Case(
        s,
        "several statements",
        "insert into orders values (4, 'a;b', 1); -- one; two\n delete from orders where id < 4;",
        ((4, "a;b", 1),),
    )
    yield Case(s, "dollar quotes", "insert into orders values (4, $$it's; so$$, 1)", (*ALL, (4, "it's; so", 1)))


CASES = [
    *_queries(), *_creating(), *_views(), *_inserts(), *_changes(), *_merges(), *_altering(), *_keeping(), *_others(),
]  # fmt: skip


def matrix() -> str:
    """The table of docs/sql.md."""
    lines, section = [], ""
    for case in CASES:
        if case.section != section:
            section = case.section
            lines += ["", f"### {section}", "| statement | DuckDB | Spark |", "|---|---|---|"]
        cells = []
        for engine in ENGINES:
            refusal = case.refusal(engine)
            cells.append("yes" if refusal is None else "an error" if _holds(case) else "no")
        lines.append(
            f"| {case.name.replace('|', chr(92) + '|')}{f': {case.note}' if case.note else ''} | {cells[0]} | {cells[1]} |"
        )
    return "\n".join(lines[1:]) + "\n"


def _holds(case: Case) -> bool:
    """True for what is refused because of the data, not because it is not supported."""
    return isinstance(case.refused, str) and case.name in _WRONG


_WRONG = {
    "CREATE TABLE AS, of a name that is taken", "NOT NULL holds", "CREATE TABLE with CHECK", "DROP TABLE of nothing",
    "CREATE VIEW of a name that is taken", "a view that reads itself", "DROP TABLE of a view", "writing to a view",
    "too few values", "a column that is not there", "REPLACE WHERE, a row outside of it",
    "UPDATE … FROM, several rows for one", "SET of a column twice", "duplicate keys in the source",
    "ADD CONSTRAINT that rows break", "DROP SCHEMA of one with tables", "THEN ERROR message, for a row that meets it",
}  # fmt: skip
