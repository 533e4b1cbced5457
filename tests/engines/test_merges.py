"""Merge, delete+insert, delete and update on both engines."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import duckrun
from duckrun.engines.duckdb.changes import merge
from duckrun.errors import DuckrunError, DuplicateSourceKeys, InvalidConfig
from duckrun.session import Session
from duckrun.values.rows import (
    DeleteInsertSpec,
    DeleteSpec,
    MergeClause,
    MergeSpec,
    UpdateSpec,
    WriteSpec,
)
from tests import lake
from tests.engines import type_cases
from tests.lake import ORDERS, OneTable, nth, rows_of

pytestmark = pytest.mark.formats(10)


def test_merge_clauses_with_conditions_in_duckdbs_dialect(orders: OneTable) -> None:
    spec = MergeSpec(
        ("id",),
        (
            MergeClause("matched_delete", condition="source.v < 0"),
            MergeClause(
                "matched_update",
                condition="source.v > target.v AND source.id // 2 = 1",
                set={"v": "target.v + source.v"},
            ),
            MergeClause("not_matched_insert", condition="length(source.day) = 1", columns=("id", "day")),
            MergeClause("not_matched_by_source_update", condition="target.v > 40", set={"v": "0.0"}),
            MergeClause("not_matched_by_source_delete", condition="target.day = 'd'"),
        ),
    )
    orders.run(WriteSpec("append"), [{"id": 4, "day": "d", "v": 1.0}, {"id": 5, "day": "e", "v": 50.0}])
    orders.run(
        spec,
        [
            {"id": 1, "day": "a", "v": -1.0},
            {"id": 2, "day": "b", "v": 100.0},
            {"id": 8, "day": "h", "v": 8.0},
            {"id": 9, "day": "long", "v": 9.0},
        ],
    )
    assert orders.rows() == [(2, "b", 120.0), (5, "e", 0.0), (8, "h", None)]


def test_null_keys_never_match(bench: OneTable) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    bench.run(MergeSpec(("id",)), pa.table({"id": [None, 1], "v": [1, 1]}, schema=schema))
    commit = bench.run(MergeSpec(("id",)), pa.table({"id": [None, None, 1], "v": [2, 3, 9]}, schema=schema))
    assert (commit.rows_inserted, commit.rows_updated) == (2, 1)
    assert bench.rows() == [(1, 9), (None, 1), (None, 2), (None, 3)]


@pytest.mark.parametrize("keys", [(1, 1), (77, 77)], ids=["matching", "matching nothing"])
def test_duplicate_source_keys_are_refused_with_examples(orders: OneTable, keys: tuple[int, int]) -> None:
    rows = [{"id": key, "day": "a", "v": float(i)} for i, key in enumerate(keys)]
    with pytest.raises(DuplicateSourceKeys, match=rf"sales\.orders.* 1 keys .*id = {keys[0]} \(2 times\)"):
        orders.run(MergeSpec(("id",)), rows)
    assert orders.version == nth(0)


def test_duplicate_source_keys_are_refused_for_a_table_that_does_not_exist_yet(bench: OneTable) -> None:
    rows = [{"id": i % 5, "v": i} for i in range(10)]
    with pytest.raises(DuplicateSourceKeys, match="5 keys .*more than once"):
        bench.run(MergeSpec(("id",)), rows)
    assert bench.version is None


def test_merge_creates_the_table_of_the_rows_that_its_clauses_insert(bench: OneTable) -> None:
    spec = MergeSpec(
        ("id",), (MergeClause("not_matched_insert", condition="source.v > 0"),), partition_by=("day",),
        table_properties={"delta.appendOnly": "false"} if lake.FORMAT == "delta" else {},
    )  # fmt: skip
    assert bench.run(spec, [*ORDERS, {"id": 3, "day": "c", "v": -1.0}]).version == nth(0)
    assert bench.rows() == [(1, "a", 10.0), (2, "b", 20.0)]
    assert bench.snapshot().partition_columns == ("day",)


def test_an_expression_that_the_engine_does_not_know_names_the_table(orders: OneTable) -> None:
    with pytest.raises(InvalidConfig, match="sales.orders"):
        orders.run(MergeSpec(("id",), (MergeClause("matched_update", set={"v": "nonsense(source.v)"}),)), ORDERS)
    with pytest.raises(InvalidConfig, match="sales.orders"):
        orders.run(UpdateSpec({"v": "w + 1"}))
    assert orders.version == nth(0)


def test_a_key_that_neither_side_has_is_named(orders: OneTable) -> None:
    with pytest.raises(InvalidConfig, match="nr"):
        orders.run(MergeSpec(("nr",)), ORDERS)


# -- delete+insert, delete, update


def test_delete_insert_replaces_by_key_in_one_commit_and_keys_may_repeat(orders: OneTable) -> None:
    rows = [{"id": 1, "day": "x", "v": 1.0}, {"id": 1, "day": "y", "v": 2.0}, {"id": 5, "day": "z", "v": 3.0}]
    commit = orders.run(DeleteInsertSpec(("id",)), rows)
    assert (commit.version, commit.rows_inserted, commit.rows_deleted) == (nth(1), 3, 1)
    assert orders.rows() == [(1, "x", 1.0), (1, "y", 2.0), (2, "b", 20.0), (5, "z", 3.0)]


def test_delete_insert_deletes_only_where_its_predicate_holds(orders: OneTable) -> None:
    orders.run(DeleteInsertSpec(("id",), predicate="day <> 'a'"), [{"id": i, "day": "n", "v": 0.0} for i in (1, 2)])
    assert orders.rows() == [(1, "a", 10.0), (1, "n", 0.0), (2, "n", 0.0)]


def test_delete_and_update_by_predicate(orders: OneTable) -> None:
    commit = orders.run(UpdateSpec({"v": "v * 2", "day": "upper(day)"}, predicate="id = 1"))
    assert (commit.version, commit.rows_updated) == (nth(1), 1)
    commit = orders.run(DeleteSpec("v = 20 AND id = 2"))
    assert (commit.version, commit.rows_deleted) == (nth(2), 1)
    assert orders.rows() == [(1, "A", 20.0)]
    orders.run(DeleteSpec())
    assert orders.rows() == []


def test_a_default_fills_what_an_insert_does_not_name(session: Session, lake_format: str) -> None:
    made = "create table t (id int, d int default 7)"
    if lake_format == "delta":
        made += " using delta tblproperties ('delta.feature.allowColumnDefaults' = 'supported')"
    session.sql(made, dialect="spark")
    session.sql("insert into t values (0, 1)")
    alone = pa.table({"id": pa.array([0, 2], pa.int32())})
    by_name = MergeClause("not_matched_insert", condition="source.id = 1", columns=("id",))
    by_value = MergeClause("not_matched_insert", set={"id": "source.id + 1"})
    session.execute("t", MergeSpec(("id",), (by_name, by_value)), pa.table({"id": pa.array([1, 4], pa.int32())}))
    session.execute("t", MergeSpec(("id",), schema_mode="append_new_columns"), alone)
    session.sql(
        "merge into t using (select 3 as id) as s on t.id = s.id when not matched then insert (id) values (s.id)"
    )
    assert rows_of(session.sql("select id, d from t")) == [(0, 1), *((number, 7) for number in (1, 2, 3, 5))]


@pytest.mark.parametrize("mode", ["merge", "delete+insert"])
@pytest.mark.parametrize("kind", ["pyarrow", "polars", "pandas"])
def test_the_first_write_by_key_of_a_frame_writes_what_an_overwrite_writes(duck: Session, kind: str, mode: str) -> None:
    whole = type_cases.table()
    frames = {"pyarrow": lambda: whole, "polars": lambda: pl.from_arrow(whole.drop_columns(lost_in_polars(whole)))}
    frame = frames.get(kind, lambda: whole.to_pandas(types_mapper=pd.ArrowDtype))()
    by_key = MergeSpec(("id",)) if mode == "merge" else DeleteInsertSpec(("id",))
    for table, spec in (("main.o", WriteSpec("overwrite")), ("main.k", by_key)):
        assert duck.execute(table, spec, frame).rows_inserted == whole.num_rows
    by_id = [("id", "ascending")]
    first, other = (duck.scan(name).toArrow().sort_by(by_id) for name in ("main.k", "main.o"))
    assert first.schema == other.schema
    assert str(first.to_pylist()) == str(other.to_pylist())  # NaN is not equal to itself


def lost_in_polars(table: pa.Table) -> list[str]:
    """Columns of maps, which polars has as lists."""
    return [field.name for field in table.schema if pa.types.is_map(field.type)]


@pytest.mark.parametrize("odd", type_cases.ODD, ids=lambda odd: odd.name)
def test_the_first_write_by_key_takes_and_refuses_the_types_that_an_overwrite_does(
    duck: Session, odd: type_cases.Odd
) -> None:
    if odd.arrow is None:
        frame: object = duckrun.SQL(f"select 1 as id, {odd.sql} as v")
    else:
        frame = pa.table({"id": [1], "v": odd.arrow})
    outcomes = []
    for spec in (WriteSpec("overwrite"), MergeSpec(("id",)), DeleteInsertSpec(("id",))):
        name = f"main.{len(outcomes)}t"
        try:
            duck.execute(name, spec, frame)
            outcomes.append((duck.scan(name).toArrow().schema, str(duck.scan(name).collect())))
        except DuckrunError as error:
            outcomes.append((type(error), str(error).split(": ", 1)[1]))
            assert not duck.lake.exists(duck.lake.parse(name))
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize("kind", ["merge", "delete+insert"])
def test_the_rows_of_a_frame_that_changes_are_those_whose_keys_were_checked(
    duck: Session, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A view of numpy's memory, which another thread may overwrite between the search for repeated keys and the write."""
    numbers = np.arange(300_000, dtype=np.int64)
    table = pa.table({"id": pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])})
    insert, refuse = merge.inserted_alone, merge.refuse_duplicate_keys

    def then_changed(function: Any, *given: Any) -> Any:
        done = function(*given)
        numbers[:] = 7
        return done

    monkeypatch.setattr(merge, "refuse_duplicate_keys", partial(then_changed, refuse))
    monkeypatch.setattr(merge, "inserted_alone", partial(then_changed, insert))
    duck.execute("main.t", MergeSpec(("id",)) if kind == "merge" else DeleteInsertSpec(("id",)), table)
    found = duck.sql("select count(*) as n, count(distinct id) as keys from main.t").collect()[0]
    assert (found["n"], found["keys"]) == (300_000, 300_000)
