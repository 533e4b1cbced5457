"""Merges whose keys and values have another type than the table's columns, beside DuckDB's own MERGE on a native table."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from duckrun import SQL, DeleteInsertSpec, DuplicateSourceKeys, MergeClause, MergeSpec, SchemaMismatch, WriteSpec
from duckrun.session import Session
from tests.lake import rows_of

pytestmark = pytest.mark.formats

TABLE = "create table t (id bigint, v decimal(9,2), d date, x varchar)"
ROWS = "insert into t values (1, 1.5, date '2024-01-01', 'a'), (2, 2, null, 'b'), (null, 3, null, 'n')"
TYPES = "id {}, v {}, d {}, x {}"
SOURCE = (
    "(select cast(a as {}) as id, cast(b as {}) as v, cast(c as {}) as d, cast(e as {}) as x from (values "
    "('2', '7.25', '2024-02-29 00:00:00', '20'), ('3', '-8.5', null, '30'), (null, '0', null, null)) as given(a, b, c, e))"
)
OTHER_TYPES = [
    ("varchar", "double", "timestamp", "bigint"),
    ("double", "varchar", "timestamp", "decimal(5,1)"),
    ("decimal(38,4)", "decimal(12,5)", "date", "smallint"),
]


@pytest.mark.parametrize("types", OTHER_TYPES, ids=lambda types: types[0])
def test_a_merge_casts_keys_and_values_to_the_types_of_the_table(session: Session, types: tuple[str, ...]) -> None:
    source = SOURCE.format(*types)
    upsert = f"merge into t using {source} as s on t.id = s.id when matched then update set v = s.v, d = s.d, x = s.x "
    upsert += "when not matched then insert (id, v, d, x) values (s.id, s.v, s.d, s.x)"
    native = duckdb.connect()
    native.execute(f"{TABLE}; {ROWS}; {upsert}")
    expected = rows_of(native.sql("select * from t").to_arrow_table())
    session.sql(f"{TABLE}; {ROWS}")
    start = session.table("t").snapshot().version
    frame = session.sql(f"select * from {source}")
    session.sql(upsert)
    assert rows_of(session.sql("from t")) == expected
    session.table("t").restoreToVersion(start)
    merge = session.table("t").alias("t").merge(frame.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert rows_of(session.sql("from t")) == expected
    session.table("t").restoreToVersion(start)
    session.execute("t", DeleteInsertSpec(("id",)), frame)
    assert rows_of(session.sql("from t")) == expected


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("varchar", "'two'", "two"),
        ("varchar", "'2.5'", "2[.]5"),
        ("double", "2.5", "2[.]5"),
        ("double", "1e30", "1"),
        ("decimal(20,0)", "99999999999999999999", "9"),
    ],
)
def test_a_key_that_has_no_place_in_the_column_is_an_error_and_no_row_that_did_not_match(
    session: Session, kind: str, value: str, shown: str
) -> None:
    session.sql(f"{TABLE}; {ROWS}")
    before = session.table("t").snapshot().version
    source = f"select cast({value} as {kind}) as id, 0 as v, null as d, 'z' as x"
    said = rf"table main\.t.*: column id cannot hold the value {shown}.* as (?i:bigint)"
    with pytest.raises(SchemaMismatch, match=said):
        session.sql(
            f"merge into t using ({source}) as s on t.id = s.id when matched then update set x = s.x "
            "when not matched then insert (id, x) values (s.id, s.x)"
        )
    with pytest.raises(SchemaMismatch, match=said):
        session.execute("t", MergeSpec(("id",)), SQL(source))
    assert session.table("t").snapshot().version == before


def test_keys_that_are_one_after_the_cast_are_duplicates(session: Session) -> None:
    session.sql(f"{TABLE}; {ROWS}")
    twice = SQL("select id, cast(1 as decimal(9,2)) as v, null as d, 'z' as x from (values ('2'), ('02')) as s(id)")
    with pytest.raises(DuplicateSourceKeys, match="id = 2"):
        session.execute("t", MergeSpec(("id",)), twice)


def test_a_number_is_a_key_of_text_and_a_value_of_another_type_in_an_expression_is_refused(session: Session) -> None:
    session.sql("create table t (k varchar, n int); insert into t values ('1', 1), ('q', 2)")
    session.execute("t", MergeSpec(("k",)), SQL("select 1 as k, 10 as n union all select 7, 70"))
    assert rows_of(session.sql("from t")) == [("1", 10), ("7", 70), ("q", 2)]
    newer = (MergeClause("matched_update", "source.n > target.n"),)
    with pytest.raises(SchemaMismatch, match="n is (?i:int.*) in the table and (?i:varchar|string) in the data"):
        session.execute("t", MergeSpec(("k",), newer), SQL("select '1' as k, '11' as n"))
    with pytest.raises(SchemaMismatch, match="k is (?i:varchar|string) in the table and (?i:double) in the data"):
        session.execute("t", MergeSpec(("k",)), SQL("select cast(1 as double) as k, 1 as n"))


INSTANTS = [
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(1800, 1, 1, tzinfo=dt.UTC),  # Berlin's offset had seconds then
    dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC),  # an hour that Berlin's clocks show twice
    dt.datetime(2024, 10, 27, 1, 30, tzinfo=dt.UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
]
EXTREMES: dict[str, pa.Array] = {
    "bigint": pa.array([-(2**63), -1, 0, 2**53 + 1, 2**63 - 1], pa.int64()),
    "decimal": pa.array([Decimal("-" + "9" * 28 + ".5"), Decimal(0), Decimal("0.1")], pa.decimal128(38, 9)),
    "date": pa.array([dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
    "timestamp": pa.array([i.replace(tzinfo=None) for i in INSTANTS], pa.timestamp("us")),
    "instant": pa.array(INSTANTS, pa.timestamp("us", "UTC")),
    "text": pa.array(["", "'", "é", "日本", "a" * 1001, "b" * 2000, "NULL", "\U0010ffff", "{}", "%s"]),
}


@pytest.mark.parametrize("kind", EXTREMES)
def test_each_key_alone_meets_its_row_at_the_ends_of_its_type_and_in_any_time_zone(duck: Session, kind: str) -> None:
    """Between the least and the greatest key of a source the table is read, and nowhere else."""
    keys = EXTREMES[kind]
    duck.execute("t", WriteSpec("append"), pa.table({"id": keys, "n": [0] * len(keys)}))
    duck.engine.connection.execute("SET GLOBAL TimeZone = 'Europe/Berlin'")  # type: ignore[attr-defined]
    for at in range(len(keys)):
        commit = duck.execute("t", MergeSpec(("id",)), pa.table({"id": keys.slice(at, 1), "n": [at + 1]}))
        assert (commit.rows_updated, commit.rows_inserted) == (1, 0), keys[at]
    commit = duck.execute("t", MergeSpec(("id",)), pa.table({"id": keys, "n": [0] * len(keys)}))
    assert (commit.rows_updated, commit.rows_inserted) == (len(keys), 0)


@pytest.mark.only_format("delta", "it is about the engine's own merge")
def test_json_in_the_source_of_a_merge_is_a_variant_and_no_text(duck: Session) -> None:
    duck.sql("create table t (id bigint, x variant) using delta", dialect="spark")
    duck.sql("insert into t select 1, parse_json('5')", dialect="spark")
    source = "select 1 as sid, cast(null as variant) as sx union all select 2, parse_json('78')"
    duck.sql(
        f"merge into t using ({source}) as s on t.id = s.sid when matched then update set x = s.sx "
        "when not matched then insert (id, x) values (s.sid, s.sx)",
        dialect="spark",
    )
    assert rows_of(duck.sql("select id, cast(x as bigint), variant_typeof(x) from t")) == [
        (1, None, "VARIANT_NULL"),
        (2, 78, "INT64"),
    ]


OWN = "create table t as select 7 as id, 'n' as raw, 1 as n union all select 8, 'n', 2"
TEXTS = "(select '007' as id, '5' as n, 'x' as raw union all select '0042', '6', 'x' union all select '08', '7', 'x')"
OWN_VALUES = [
    "when matched and s.id <> '08' then update set raw = s.id when not matched then insert (id, raw) values (s.id, s.id)",
    "when matched then update set raw = concat(s.id, '|', length(s.id)) when not matched then insert (id, n) values (s.id, 3)",
    "when matched and length(s.id) = 3 then update set * when not matched and s.id = '0042' then insert *",
    "when matched and length(s.id) = 2 then delete when not matched then insert (id, raw, n) values (s.id, s.id, s.n)",
]


@pytest.mark.parametrize("clauses", OWN_VALUES)
def test_expressions_of_a_merge_see_the_source_s_own_value_of_a_key_of_another_type(
    session: Session, clauses: str
) -> None:
    merge = f"merge into t using {TEXTS} as s on t.id = s.id {clauses}"
    native = duckdb.connect()
    native.execute(OWN)
    native.execute(merge.replace("update set *", "update by name").replace("insert *", "insert by name"))
    session.sql(f"{OWN}; {merge}")
    assert rows_of(session.sql("from t")) == rows_of(native.sql("from t").to_arrow_table())


def test_expressions_of_a_merge_spec_see_the_source_s_own_value_of_a_key(session: Session) -> None:
    """As dbt and assets merge."""
    session.sql(OWN)
    clauses = (
        MergeClause("matched_update", "source.id <> '08'", set={"raw": "source.id"}),
        MergeClause("not_matched_insert", columns=("id", "raw")),
    )
    texts = SQL("select * from (values ('007', 'x'), ('0042', 'x'), ('08', 'x')) as s(id, raw)")
    session.execute("t", MergeSpec(("id",), clauses, on="length(source.id) < 4"), texts)
    assert rows_of(session.sql("from t order by id")) == [(42, "x", None), (7, "007", 1), (8, "n", 2)]


ASSIGNED = [
    ("{'p': 1, 'q': 'z'}", "{'q': 'zz', 'p': 2}"),
    ("[{'p': 1, 'q': 'z'}]", "[{'q': 'zz', 'p': 2}]"),
    ("{'p': 1, 'q': 'z'}", "{'p': cast(2 as bigint), 'q': 'y'}"),
    ("timestamp '2024-01-01'", "cast('2024-05-01 10:00:00+00' as timestamptz)"),
    ("cast(1.5 as float)", "cast(0.1 as double)"),
    ("cast(1.5 as decimal(9,2))", "cast(7.25 as double)"),
    ("date '2024-01-01'", "timestamp '2024-05-01 10:00:00'"),
]


@pytest.mark.parametrize(("before", "after"), ASSIGNED)
@pytest.mark.parametrize("clauses", ["update set *", "update set c = s.c"])
def test_a_merge_casts_what_an_insert_casts(session: Session, before: str, after: str, clauses: str) -> None:
    merge = f"merge into t using (select 1 as id, {after} as c) as s on t.id = s.id when matched then "
    native = duckdb.connect()
    for run, clause in ((native.execute, "update set c = s.c"), (session.sql, clauses)):
        run(f"create table t as select 1 as id, {before} as c")
        run(merge + clause)
    assert rows_of(session.sql("select c from t")) == rows_of(native.sql("select c from t").to_arrow_table())
