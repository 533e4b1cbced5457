"""Types of a DuckLake's columns: what is written is read again, by this library and by plain DuckDB, as what it was; else it is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import duckrun
from duckrun import (
    SQL,
    CommitConflict,
    DuplicateSourceKeys,
    InvalidConfig,
    MergeSpec,
    SchemaMismatch,
    Session,
    UnsupportedFeature,
    WriteSpec,
)
from tests.ducklake import plain


def rows(session: Session, query: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in session.sql(query).collect()]


def test_a_float_is_found_by_its_value(lake: Session) -> None:
    """DuckLake compares the bounds that it keeps of a FLOAT, its shortest text, as DOUBLE (duckdb 1.5.5): the value itself lies outside of them."""
    number = "-0.003148798132315278::FLOAT"
    lake.sql(f"create table t as select 1 as id, {number} as f")
    assert rows(lake, f"select id from t where f = {number}") == [(1,)]
    assert rows(lake, f"select id from t join (select {number} as f) as s using (f)") == [(1,)]
    merged = lake.execute("t", MergeSpec(("f",)), SQL(f"select 2 as id, {number} as f"))
    assert (merged.rows_updated, merged.rows_inserted) == (1, 0)
    first = lake.table("t").snapshot().version
    assert lake.sql(f"delete from t where f = {number}").rows_deleted == 1
    changes = lake.table("t").changes("full_delta", from_version=first).toArrow()
    assert changes.num_rows == 1


VARIANTS = ("42::VARIANT", "'text'::VARIANT", "{'a': 1, 'b': [1, 2]}::VARIANT", "'\\x00\\xff'::BLOB::VARIANT", "NULL")
SHAPES = (
    "'POINT (1 2)'",
    "'LINESTRING Z (0 0 1, 1 1 1)'",
    "'GEOMETRYCOLLECTION EMPTY'",
    "'POINT (-0.5 1e+300)'",
    "NULL",
)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("inline_rows", [0, 100])
@pytest.mark.parametrize(("kind", "values"), [("VARIANT", VARIANTS), ("GEOMETRY", SHAPES)])
def test_variants_and_geometries_go_through_every_change(
    root: Path, kind: str, values: tuple[str, ...], inline_rows: int
) -> None:
    """What plain DuckDB finds after each step is what a table of Python's holds; ``typed`` is the text of each value, as DuckDB itself has it."""
    literals = [f"CAST({value} AS {kind})" for value in values]
    with plain.connection() as alone:
        texts = [alone.execute(f"SELECT CAST({each} AS VARCHAR)").fetchall()[0][0] for each in literals]
    model = dict(enumerate(texts))

    def found() -> dict[int, str | None]:
        with plain.attached(root) as other:
            return dict(other.execute("SELECT id, CAST(v AS VARCHAR) FROM lake.t").fetchall())

    with duckrun.connect(root, format="ducklake", inline_rows=inline_rows) as lake:
        lake.sql(f"create table t (id int not null, v {kind})")
        lake.sql("insert into t values " + ", ".join(f"({i}, {each})" for i, each in enumerate(literals)))
        first = lake.table("t").snapshot().version
        assert found() == model
        lake.sql(f"update t set v = {literals[1]} where id = 0")
        lake.sql("delete from t where v is null")
        model = {i: text for i, text in {**model, 0: texts[1]}.items() if text is not None}
        assert found() == model
        source = f"select 1 as id, {literals[0]} as v union all select 7, {literals[2]}"
        merged = lake.sql(
            f"merge into t using ({source}) as s on t.id = s.id when matched then update set v = s.v when not matched then insert *"
        )
        assert (merged.rows_updated, merged.rows_inserted) == (1, 1)
        model |= {1: texts[0], 7: texts[2]}
        assert found() == model
        lake.execute("t", MergeSpec(("id",)), SQL(f"select 8 as id, {literals[1]} as v"))
        lake.execute(
            "t", WriteSpec("append", schema_mode="append_new_columns"), SQL(f"select 9 as id, {literals[0]} as w")
        )
        model |= {8: texts[1], 9: None}
        assert found() == model
        asked = f"select id, v::varchar as v from t at (version => {first}) order by id"
        before = list(enumerate(texts))
        assert rows(lake, asked) == before
        changes = lake.table("t").changes("upsert", from_version=first, key="id").native
        assert dict(changes.project("id, CAST(v AS VARCHAR)").fetchall()) == {
            0: texts[1], 1: texts[0], 7: texts[2], 8: texts[1], 9: None
        }  # fmt: skip
        lake.upkeep.flush()
        lake.upkeep.merge_files()
        lake.upkeep.rewrite_files(delete_threshold=0)
        assert (found(), rows(lake, asked)) == (model, before)
        lake.sql("create view seen as select id, v from main.t")
        assert dict(rows(lake, "select id, v::varchar from seen")) == model
        lake.table("t").restoreToVersion(first)
        assert found() == dict(before)
        lake.sql("drop table t")
        lake.upkeep.restoreToVersion(first)
        assert found() == dict(before)
        lake.upkeep.expire(older_than="0 seconds")
        lake.upkeep.cleanup(older_than="0 seconds")
        assert found() == dict(before)
        types = "select column_name, data_type from information_schema.columns where table_name = 't' order by 1"
        assert rows(lake, types) == [("id", "INTEGER"), ("v", kind)]


def test_a_variant_is_read_by_sql_and_a_geometry_as_its_bytes(lake: Session) -> None:
    lake.sql("create table t as select {'a': 1, 'b': 'x'}::variant as v, 'POINT (1 2)'::geometry as g")
    assert rows(lake, "select v.a::int, v.b::varchar from t where v.a::int = 1") == [(1, "x")]
    for read in ("toArrow", "toPandas", "pl", "collect", "show"):
        with pytest.raises(UnsupportedFeature, match="column v has the type VARIANT"):
            getattr(lake.table("t").toDF(), read)()
    assert lake.table("t").toDF().native.fetchall()[0][0] == {"a": 1, "b": "x"}
    shapes = lake.sql("select g from t").toArrow()
    assert shapes.schema.field("g").metadata[b"ARROW:extension:name"] == b"geoarrow.wkb"
    assert shapes["g"].to_pylist() == [lake.sql("select st_aswkb(g) as b from t").collect()[0]["b"]]
    lake.execute("shapes", WriteSpec("overwrite"), shapes)
    assert rows(lake, "select typeof(g), g::varchar from shapes") == [("GEOMETRY", "POINT (1 2)")]


DURATIONS: dict[str, Any] = {
    "arrow": lambda ns: pa.table({"d": pa.array([None, ns], pa.duration("ns"))}),
    "stream": lambda ns: pa.table({"d": pa.array([None, ns], pa.duration("ns"))}).to_reader(),
    "intervals": lambda ns: pa.table({"d": pa.array([None, (0, 0, ns)], pa.month_day_nano_interval())}),
    "stream of intervals": lambda ns: pa.table({"d": pa.array([(0, 0, 1), None, (0, 0, ns)], pa.month_day_nano_interval())}).slice(1).to_reader(),
    "pandas": lambda ns: pd.DataFrame({"d": pd.to_timedelta([None, ns])}),
    "objects": lambda ns: pd.DataFrame({"d": pd.Series([None, pd.Timedelta(ns)], dtype=object)}),
    "polars": lambda ns: pl.DataFrame({"d": pl.Series([None, ns]).cast(pl.Duration("ns"))}),
    "lazy": lambda ns: pl.DataFrame({"d": pl.Series([None, ns]).cast(pl.Duration("ns"))}).lazy(),
    "lazy microseconds": lambda ns: pl.DataFrame({"d": pl.Series([None, ns // 1000]).cast(pl.Duration("us"))}).lazy(),
}  # fmt: skip


@pytest.mark.parametrize("name", DURATIONS)
def test_a_duration_of_a_frame_is_an_interval_and_nanoseconds_are_refused(lake: Session, name: str) -> None:
    lake.execute("t", WriteSpec("overwrite"), DURATIONS[name](2_000_000))
    assert rows(lake, "select d::varchar as d from t order by d") == [("00:00:00.002",), (None,)]
    if "microseconds" not in name:
        with pytest.raises(SchemaMismatch, match=r"column 'd' .*(would lose data|nanoseconds)"):
            lake.execute("t", WriteSpec("append"), DURATIONS[name](2_000_001))
    assert rows(lake, "select count(*) from t") == [(2,)]


def test_unsigned_integers_beyond_those_of_pandas_beside_null_are_read_as_they_are(lake: Session) -> None:
    lake.execute("t", WriteSpec("overwrite"), pa.table({"n": pa.array([2**64 - 1, None, 1], pa.uint64())}))
    numbers = lake.table("t").toDF().toPandas()["n"].sort_values()
    assert numbers.dtype == "UInt64" and numbers.tolist() == [1, 2**64 - 1, pd.NA]


REFUSED = [
    ("create table e (v variant[])", SchemaMismatch, "inside of another type"),
    ("create table e (s struct(a interval))", SchemaMismatch, "inside of another type"),
    ("create table e as select [1::variant] as v", SchemaMismatch, "inside of another type"),
    ("create table e (t timetz)", SchemaMismatch, "cannot store"),
    ("create table e as select '12:00:00+02'::timetz as t", SchemaMismatch, "cannot store"),
    ("create table e (t time_ns)", SchemaMismatch, "cannot store"),
    ("create table e (g geometry('OGC:CRS84'))", SchemaMismatch, "no coordinate system"),
    ("create table e as select interval '1 second 1 microsecond' as i", SchemaMismatch, "whole milliseconds"),
    ("create table e as select interval '-1 second' as i", SchemaMismatch, "negative"),
    ("create table e (id int, v variant) partitioned by (v)", InvalidConfig, "no text"),
    ("create table e (id int, g geometry) partitioned by (g)", InvalidConfig, "no text"),
    ("create table e (id int, b blob) partitioned by (b)", InvalidConfig, "no text"),
    ("insert into t values (2, (interval 1 day)::variant, null, null)", SchemaMismatch, "VARIANT holds a value"),
    ("insert into t values (2, null, interval '1 day -1 second', null)", SchemaMismatch, "column i holds an interval"),
    ("update t set i = i * -1", SchemaMismatch, "column i holds an interval"),
    ("insert into t values (2, null, null, chr(0))", SchemaMismatch, "zero byte"),
    ("insert into t values (2, null, null, repeat('é', 50))", SchemaMismatch, "too long"),
]  # fmt: skip


@pytest.mark.parametrize("inline_rows", [0, 100])
def test_what_a_ducklakes_files_lose_is_refused_before_it_is_written(root: Path, inline_rows: int) -> None:
    with duckrun.connect(root, format="ducklake", inline_rows=inline_rows) as lake:
        lake.sql("create table t (id int, v variant, i interval, p varchar) partitioned by (p)")
        lake.sql("insert into t values (1, 1::variant, interval '1 month 2 days 3.5 seconds', '')")
        before = lake.snapshots(1)
        for statement, error, said in REFUSED:
            with pytest.raises(error, match=said):
                lake.sql(statement)
        with pytest.raises(InvalidConfig, match="the key v is VARIANT"):
            lake.execute("t", MergeSpec(("v",)), SQL("select 1::variant as v"))
        with duckdb.connect() as other, pytest.raises(UnsupportedFeature, match="column v has the type VARIANT"):
            lake.execute("e", WriteSpec("append"), other.sql("select 1::variant as v"))
        with pytest.raises(InvalidConfig, match="sort_by names v"):
            lake.execute("e", WriteSpec("append", sort_by=("v",)), SQL("select 1::variant as v"))
        assert (lake.snapshots(1), lake.tables()) == (before, ["main.t"])
        lake.upkeep.flush()
        assert rows(lake, "select id, v::int, i::varchar, p from t") == [(1, 1, "1 month 2 days 00:00:03.5", "")]


def test_rows_that_ask_for_wider_types_change_no_value(root: Path, lake: Session) -> None:
    """ALTER and INSERT in one transaction make DuckLake forget the least and greatest value of the column; DuckDB then sorts by those of the next
    INSERT, and gives 112 for 70000 (1.5.5). So the types are widened before, as a commit of its own.
    """
    lake.sql("create table t as select 1::bigint as id, 70000::int as v, {'a': 1::int} as s")
    expected: list[tuple[object, ...]] = [(1, 70000, {"a": 1, "b": None})]
    for i, kind in enumerate(("smallint", "bigint", "int", "bigint"), 2):
        source = f"select {i}::int as id, {i}::{kind} as v, {{'a': {i}::bigint, 'b': 'x'}} as s"
        for spec in (
            WriteSpec("append", schema_mode="sync_all_columns"),
            MergeSpec(("id",), schema_mode="sync_all_columns"),
        ):
            lake.execute("t", spec, SQL(source))
        expected.append((i, i, {"a": i, "b": "x"}))
        assert rows(lake, "from t order by id") == expected
        with plain.attached(root) as other:
            assert other.execute("from lake.t order by id").fetchall() == expected
    with pytest.raises(SchemaMismatch, match="v is BIGINT in the table and VARCHAR in the data"):
        lake.execute(
            "t", WriteSpec("append", schema_mode="sync_all_columns"), SQL("select 9::bigint as id, 'x' as v, s from t")
        )
    assert [entry["operation"] for entry in lake.table("t").history()].count("ALTER") == 2
    with pytest.raises(UnsupportedFeature, match="widened in this transaction"):
        lake.sql(
            "begin; create table u (n int); alter table u alter column n type bigint; insert into u values (1); commit"
        )
    with pytest.raises(UnsupportedFeature, match="wider types of n"), lake.transaction() as together:
        together.sql("create table w (n int)")
        together.sql("insert into w values (70000)")
        together.execute("w", WriteSpec("append", schema_mode="sync_all_columns"), SQL("select 1::bigint as n"))
    assert lake.tables() == ["main.t"]


STREAM = pa.table({"id": pa.array([2, 7], pa.int64()), "v": pa.array([5000000000, 1], pa.int64())})
REFUSED_ROWS: dict[str, tuple[Any, str, type[Exception]]] = {
    "a NULL": (WriteSpec("append"), "select null::bigint as id, 5::bigint as v", SchemaMismatch),
    "a NULL in a merge": (MergeSpec(("id",)), "select null::bigint as id, 5::bigint as v", SchemaMismatch),
    "two of a key": (MergeSpec(("id",)), "select 1::bigint as id, 5::bigint as v from range(2)", DuplicateSourceKeys),
    "an error of the query": (WriteSpec("append"), "select id, 5::bigint as v from (select 9 as id where error('no')::int is null)", InvalidConfig),
}  # fmt: skip


@pytest.mark.parametrize("inline_rows", [0, 10])
def test_rows_that_are_refused_widen_no_column(root: Path, inline_rows: int) -> None:
    with duckrun.connect(root, format="ducklake", inline_rows=inline_rows) as lake:
        lake.sql("create table t (id bigint not null, v int)")
        lake.sql("insert into t values (1, 70000), (2, 2)")
        before = lake.snapshots(1)
        for spec, source, error in REFUSED_ROWS.values():
            with pytest.raises(error):
                lake.execute("t", replace(spec, schema_mode="sync_all_columns"), SQL(source))
        with pytest.raises(CommitConflict, match="the table is at version"):
            behind = WriteSpec("append", schema_mode="sync_all_columns", read_version=1)
            lake.execute("t", behind, SQL("select 3 as id, 3::bigint as v"))
        assert (lake.snapshots(1), lake.table("t").snapshot().format_state.definition.sql_types["v"]) == (
            before,
            "INTEGER",
        )
        assert lake.upkeep.orphans(older_than="0 seconds", dry_run=True).removed == ()
        assert rows(lake, "from t order by id") == [(1, 70000), (2, 2)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (WriteSpec("append"), [(1, 70000), (2, 2), (2, 5000000000), (7, 1)]),
        (MergeSpec(("id",)), [(1, 70000), (2, 5000000000), (7, 1)]),
    ],
    ids=["append", "merge"],
)
def test_a_stream_that_asks_for_wider_types_is_read_once(
    root: Path, lake: Session, spec: WriteSpec | MergeSpec, expected: list[tuple[object, ...]]
) -> None:
    """A type that is widened ahead makes the write begin again; its fence and its stream are those of the first time."""
    lake.sql("create table t (id bigint not null, v int)")
    lake.sql("insert into t values (1, 70000), (2, 2)")
    fenced = replace(spec, schema_mode="sync_all_columns", read_version=lake.table("t").snapshot().version)
    lake.execute("t", fenced, STREAM.to_reader())
    with plain.attached(root) as other:
        assert other.execute("from lake.t order by id, v").fetchall() == expected


CHANGES = {
    "another column": (["drop column v", "add column w int"], "(2, 22)", [(1, None), (2, 22)]),
    "one more": (["add column w varchar"], "(2, 22, 'w')", [(1, 11, None), (2, 22, "w")]),
    "one less": (["drop column v"], "(2)", [(1,), (2,)]),
    "a wider one": (["alter column v type bigint"], "(2, 30000000000)", [(1, 11), (2, 30000000000)]),
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
@pytest.mark.parametrize("change", CHANGES)
def test_columns_that_change_while_no_rows_go_into_the_catalog_spoil_no_later_row(
    root: Path, change: str, kind: str
) -> None:
    """DuckLake puts later rows beside those of the older columns: such a commit fails, or nothing reads the table any more (duckdb 1.5.5)."""
    steps, row, expected = CHANGES[change]
    catalog = f"{kind}:{root.parent}/c.db"

    def session(inline_rows: int) -> Session:
        return duckrun.connect(root, format="ducklake", catalog=catalog, inline_rows=inline_rows)

    with session(10) as lake:
        lake.sql("create table t (id int, v int)")
        lake.sql("insert into t values (1, 11)")
    with session(0) as lake:
        for step in steps:
            lake.sql(f"alter table t {step}")
    with session(10) as lake:
        lake.sql(f"insert into t values {row}")
        assert rows(lake, "from t order by id") == expected
        lake.sql("update t set id = id + 10 where id = 2")
        lake.upkeep.flush()
        lake.sql("update t set id = id - 10 where id = 12")
        assert rows(lake, "from t order by id") == expected
    with plain.attached(root, catalog) as other:
        assert other.execute("from lake.t order by id").fetchall() == expected


def test_columns_that_change_while_no_rows_go_into_the_catalog_stop_no_other_program(root: Path) -> None:
    """An UPDATE of plain DuckDB puts rows into the catalog where it is not told otherwise: beside those of the older columns no commit is made."""
    with duckrun.connect(root, format="ducklake", inline_rows=10) as lake:
        lake.sql("create table t (id int, v int)")
        lake.sql("insert into t values (1, 11)")
    with duckrun.connect(root, format="ducklake") as lake:
        lake.sql("alter table t drop column v")
    with plain.connection() as other:
        place = f"ducklake:sqlite:{root}/catalog.sqlite"
        other.execute(f"ATTACH '{place}' AS lake (DATA_INLINING_ROW_LIMIT 10, META_JOURNAL_MODE 'WAL')")
        other.execute("update lake.t set id = 7")
        assert other.execute("from lake.t").fetchall() == [(7,)]


def test_rows_in_the_catalog_are_flushed_before_a_column_gets_a_wider_type(root: Path) -> None:
    """A flush behind it makes DuckLake forget the least and greatest value of the column, and the next rows give 30000000011 for 11 (duckdb 1.5.5)."""
    with duckrun.connect(root, format="ducklake", inline_rows=10) as lake:
        lake.sql("create table t as select 1 as id, 11 as v")
        lake.sql("insert into t values (2, 12)")
        with pytest.raises(UnsupportedFeature, match="flush it"):
            lake.sql("begin; alter table t alter column v type bigint; commit")
        lake.sql("alter table t alter column v type bigint")
        for number in (3, 4):
            lake.sql(f"insert into t values ({number}, 30000000000)")
            lake.upkeep.flush()
        expected = [(1, 11), (2, 12), (3, 30000000000), (4, 30000000000)]
        assert rows(lake, "from t order by id") == expected
        with plain.attached(root) as other:
            assert other.execute("from lake.t order by id").fetchall() == expected


def test_infinity_of_other_programs_is_named_where_python_has_none(tmp_path: Path) -> None:
    with duckrun.connect(tmp_path / "lake", format="ducklake") as session:
        session.sql("create table t (id int, d date, at timestamp, g double)")
        with plain.attached(tmp_path / "lake") as other:
            other.execute(
                "insert into lake.t values (1, 'infinity', '-infinity', 'inf'), (2, '2020-01-01', '2020-01-01', 1)"
            )
        with pytest.raises(UnsupportedFeature, match=r"Column d, at holds infinity.*cast the column to VARCHAR"):
            session.sql("from t").collect()
        assert session.sql("select id, g from t where d = 'infinity'").collect() == [{"id": 1, "g": float("inf")}]
        assert session.sql("select d::varchar as d from t where id = 1").collect() == [{"d": "infinity"}]
        assert session.sql("from t").toArrow().num_rows == 2
