"""Columns with names that scans, engines and our own queries add are columns like any others."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from duckrun import MergeSpec, SchemaMismatch, WriteSpec
from duckrun.session import Session
from duckrun.sql.quoting import quote_identifier
from duckrun.values.rows import DeleteInsertSpec, MergeClause
from duckrun.values.tables import OptimizeSpec
from tests import lake
from tests.alphabet import INTERNAL_COLUMNS
from tests.lake import rows_of

pytestmark = pytest.mark.formats

NAMES = (
    *INTERNAL_COLUMNS,
    "FILENAME",
    "File_Row_Number",
    "__duckrun_key_0",
    "__duckrun_rank_0",
    "__duckrun_marked_bits",
    "__duckrun_source_v",
    "n",
    "here",
)

TAKEN: dict[str, tuple[str, ...]] = {"delta": (), "ducklake": ("rowid",)}
"""Format -> the names that it has for itself."""


def frame(column: str, ids: list[int], texts: list[str], values: list[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), column: texts, "v": pa.array(values, pa.int64())})


def state(session: Session) -> list[tuple[Any, ...]]:
    return sorted(rows_of(session.scan("main.t")))


@pytest.mark.drawn(4)
@pytest.mark.parametrize("column", NAMES)
def test_every_write_and_read_knows_a_column_of_any_name(duck: Session, column: str) -> None:
    refuse_taken(duck, column)
    writes_and_reads(duck, column)


@pytest.mark.drawn(4)
@pytest.mark.parametrize("column", NAMES)
def test_a_key_and_a_partition_may_have_any_name(duck: Session, column: str) -> None:
    refuse_taken(duck, column)
    keys_and_partitions(duck, column)


def test_every_engine_writes_and_reads_such_columns_together(session: Session) -> None:
    """One table with all of them; each statement names another one."""
    ids, others = (
        pa.array([1, 2, 3], pa.int64()),
        [name for name in NAMES if name not in ("FILENAME", "File_Row_Number", *TAKEN[lake.FORMAT])],
    )

    def rows(ids: list[int], text: str) -> pa.Table:
        return pa.table({"id": pa.array(ids, pa.int64()), **{name: [text] * len(ids) for name in others}})

    def texts() -> dict[int, set[str]]:
        return {row["id"]: {row[name] for name in others} for row in session.scan("main.t").collect()}

    def every(value: str) -> str:
        return ", ".join(f"{quote_identifier(name)} = {value.format(quote_identifier(name))}" for name in others)

    session.execute("main.t", WriteSpec("overwrite"), rows(ids.to_pylist(), "a"))
    both = " and ".join(f"{quote_identifier(name)} = 'a'" for name in others)
    session.sql(f"update main.t set {every('concat({}, chr(120))')} where id < 3 and {both}")
    assert texts() == {1: {"ax"}, 2: {"ax"}, 3: {"a"}}
    assert session.sql(f"delete from main.t where {both}").rows_deleted == 1
    session.execute("main.t", MergeSpec(keys=("id",)), rows([2, 4], "m"))
    merge = f"merge into main.t t using (select 1 as id, 'w' as w) s on t.id = s.id when matched then update set {every('concat(t.{}, s.w)')}"
    session.sql(merge + " when not matched by source and t.id = 2 then delete")
    assert texts() == {1: {"axw"}, 4: {"m"}}
    session.execute("main.t", DeleteInsertSpec(keys=("id", *others)), rows([4, 4], "m"))
    session.execute("main.t", MergeSpec(keys=("id", *others)), rows([1], "axw"))
    inside = " and ".join(
        f"{quote_identifier(name)} in (select {quote_identifier(name)} from main.t where id = 1)" for name in others[:3]
    )
    session.sql(f"update main.t set id = 9 where {inside}")
    session.execute("main.t", OptimizeSpec())
    session.execute("main.t", WriteSpec("append"), rows([5], "e"))
    session.execute("main.t", WriteSpec("replace", predicate="filename = 'e'"), rows([6], "e"))
    assert sorted((row["id"], row["source"]) for row in session.scan("main.t").collect()) == [
        (4, "m"),
        (4, "m"),
        (6, "e"),
        (9, "axw"),
    ]


@pytest.mark.parametrize("column", ["__duckrun_row", "_metadata", "n"])
def test_a_key_and_a_partition_of_such_a_name_on_every_engine(session: Session, column: str) -> None:
    keys_and_partitions(session, column)


def refuse_taken(session: Session, column: str) -> None:
    """Names of a format's own are refused by it; that is all there is to see."""
    if column in TAKEN[lake.FORMAT]:
        with pytest.raises(SchemaMismatch, match=f"no column {column}"):
            session.execute("main.t", WriteSpec("overwrite"), frame(column, [1], ["a"], [1]))
        pytest.skip(f"the format has {column} for itself")


def writes_and_reads(session: Session, column: str) -> None:
    name = quote_identifier(column)
    session.execute("main.t", WriteSpec("overwrite"), frame(column, [1, 2, 3], ["a", "b", "c"], [1, 2, 3]))
    session.sql(f"update main.t set v = v + 10, {name} = concat({name}, 'x') where id = 1")
    assert state(session) == [(1, "ax", 11), (2, "b", 2), (3, "c", 3)]
    assert session.sql(f"delete from main.t where {name} = 'b'").rows_deleted == 1
    session.execute("main.t", MergeSpec(keys=("id",)), frame(column, [3, 4], ["m", "n"], [7, 8]))
    assert state(session) == [(1, "ax", 11), (3, "m", 7), (4, "n", 8)]
    session.sql(
        f"merge into main.t t using (select 4 as id, 'zz' as w) s on t.id = s.id "
        f"when matched and t.{name} = 'n' then update set {name} = s.w, v = t.v + 1 when not matched by source and t.id = 3 then delete"
    )
    assert state(session) == [(1, "ax", 11), (4, "zz", 9)]
    clauses = (
        MergeClause("matched_update", set={column: f"concat(source.{name}, 'y')"}),
        MergeClause("not_matched_insert"),
    )
    merge = MergeSpec(keys=("id",), clauses=clauses)
    session.execute("main.t", merge, frame(column, [4, 5], ["q", "r"], [1, 2]))
    assert state(session) == [(1, "ax", 11), (4, "qy", 9), (5, "r", 2)]
    session.execute("main.t", DeleteInsertSpec(keys=("id",)), frame(column, [5, 5], ["e", "f"], [9, 9]))
    replaced = WriteSpec("replace", predicate=f"{name} = 'e'")
    session.execute("main.t", replaced, frame(column, [6], ["e"], [0]))
    session.sql(f"update main.t set v = 100 where id in (select id from main.t where {name} = 'e')")
    session.execute("main.t", OptimizeSpec())
    if lake.FORMAT == "delta":
        session.execute("main.t", OptimizeSpec(z_order_by=("id", "v")))
    assert state(session) == [(1, "ax", 11), (4, "qy", 9), (5, "f", 9), (6, "e", 100)]
    session.sql(f"insert into main.t (id, {name}) values (7, 'h')")
    assert session.table("main.t").toDF().count() == 5


def keys_and_partitions(session: Session, column: str) -> None:
    name = quote_identifier(column)
    first = pa.table({column: [1, 2], "v": [1, 2]})
    session.execute("main.k", WriteSpec("overwrite"), first)
    session.execute("main.k", MergeSpec(keys=(column,)), pa.table({column: [2, 3], "v": [7, 8]}))
    clauses = (
        MergeClause("matched_update", condition="target.v = 7", set={"v": "source.v"}),
        MergeClause("not_matched_insert"),
    )
    session.execute("main.k", MergeSpec(keys=(column,), clauses=clauses), pa.table({column: [2, 4], "v": [70, 80]}))
    session.execute("main.k", DeleteInsertSpec(keys=(column,)), pa.table({column: [3], "v": [9]}))
    assert sorted(rows_of(session.scan("main.k"))) == [(1, 1), (2, 70), (3, 9), (4, 80)]
    session.execute(
        "main.t", WriteSpec("overwrite", partition_by=(column,)), frame(column, [1, 2, 3], ["a", "b", "c"], [1, 2, 3])
    )
    session.execute("main.t", WriteSpec("replace"), frame(column, [9], ["a"], [9]))
    session.sql("update main.t set v = 5 where id = 9")
    session.sql(f"delete from main.t where {name} = 'b'")
    session.execute("main.t", MergeSpec(keys=("id",)), frame(column, [3], ["c"], [33]))
    assert state(session) == [(3, "c", 33), (9, "a", 5)]


@pytest.mark.parametrize("column", ["filename", "file_row_number", "__duckrun_file"])
def test_a_write_that_makes_the_table_anew_knows_such_a_column_too(duck: Session, column: str) -> None:
    first = pa.table({"id": pa.array([1, 2], pa.int32()), "v": [1, 2]})
    duck.execute("main.t", WriteSpec("overwrite"), first)
    merge = MergeSpec(keys=("id",), schema_mode="append_new_columns")
    duck.execute("main.t", merge, pa.table({"id": pa.array([2], pa.int32()), "v": [3], column: ["x"]}))
    assert state(duck) == [(1, 1, None), (2, 3, "x")]
    anew = WriteSpec("append", schema_mode="sync_all_columns")
    duck.execute("main.t", anew, pa.table({"id": pa.array([3], pa.int64()), "v": [4]}))
    assert state(duck) == [(1, 1), (2, 3), (3, 4)]


@pytest.mark.only_format("delta", "a DuckLake has no identity columns, and no column rowid")
@pytest.mark.parametrize("column", ["rowid", "__duckrun_number", "place", "n", "filename"])
def test_a_merge_numbers_the_rows_beside_such_a_column(duck: Session, column: str) -> None:
    name = quote_identifier(column)
    duck.sql(f"create table main.t (id bigint generated always as identity, {name} bigint, k int)")
    values = {column: f"source.{name} * 1", "k": "source.k"}  # a computed value, so that the merge stores the column
    merge = MergeSpec(keys=("k",), clauses=(MergeClause("not_matched_insert", set=values),))
    for keys in ([1, 2, 3, 4], [5, 6, 7]):
        given = [None, None, 7, 7][: len(keys)]
        duck.execute("main.t", merge, pa.table({column: pa.array(given, pa.int64()), "k": pa.array(keys, pa.int32())}))
    rows = sorted(rows_of(duck.scan("main.t")))
    assert [row[0] for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    assert [row[1] for row in sorted(rows, key=lambda row: row[2])] == [None, None, 7, 7, None, None, 7]


@pytest.mark.only_format("delta", "delta_rs writes Delta")
@pytest.mark.parametrize("column", NAMES)
def test_delta_rs_merges_equal_rows_beside_such_a_column(duck: Session, column: str) -> None:
    duck.execute("main.t", WriteSpec("append"), frame(column, [1, 1, 2, 3], ["a"] * 4, [1, 1, 2, 3]))
    clauses = (MergeClause("matched_update", set={"v": "target.v + source.v"}),)
    merge = MergeSpec(keys=("id",), clauses=clauses, writer="delta_rs")
    merged = duck.execute("main.t", merge, pa.table({"id": [1, 2], "v": [100, 200]}))
    assert (merged.writer, merged.rows_updated) == ("delta_rs", 3)
    assert state(duck) == [(1, "a", 101), (1, "a", 101), (2, "a", 202), (3, "a", 3)]
