"""Every write mode, merge, update and delete, as a user sees them: one suite, both engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from duckrun import (
    SQL,
    AppTransaction,
    MergeClause,
    MergeSpec,
    RowsOutsidePartition,
    TableNotFound,
    WriteSpec,
)
from duckrun.session import Session
from duckrun.values.rows import DeleteInsertSpec, DeleteSpec, ReadSpec, TableConstraints, UpdateSpec
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats(10)

NAN = float("nan")
FRUIT = pa.table({"id": [1, 2, 3], "day": ["mon", "mon", "tue"], "price": [1.5, None, NAN]})


def fruit(*rows: tuple[int | None, str | None, float | None]) -> pa.Table:
    ids, days, prices = zip(*rows, strict=True)
    types = (pa.int64(), pa.string(), pa.float64())
    return pa.table([pa.array(c, t) for c, t in zip((ids, days, prices), types, strict=True)], FRUIT.column_names)


@pytest.fixture
def fruits(session: Session) -> Session:
    """A session whose table main.fruit holds FRUIT, partitioned by day."""
    session.execute("main.fruit", WriteSpec("error", partition_by=("day",)), FRUIT)
    return session


def test_a_new_table_holds_what_was_written(fruits: Session) -> None:
    assert rows_of(fruits.scan("main.fruit")) == [(1, "mon", 1.5), (2, "mon", None), (3, "tue", "NaN")]
    assert fruits.table("main.fruit").snapshot().partition_columns == ("day",)


def test_mode_ignore_writes_once(fruits: Session) -> None:
    commit = fruits.execute("main.fruit", WriteSpec("ignore"), fruit((9, "sun", 9.0)))
    assert (commit.version, commit.rows_inserted) == (nth(0), 0)
    assert fruits.scan("main.fruit").count() == 3
    assert fruits.execute("main.other", WriteSpec("ignore"), FRUIT).rows_inserted == 3


def test_append_adds_rows(fruits: Session) -> None:
    commit = fruits.execute("main.fruit", WriteSpec("append"), fruit((4, "wed", 4.0)))
    assert (commit.version, commit.rows_inserted, commit.engine) == (nth(1), 1, fruits.engine_name)
    assert fruits.scan("main.fruit").count() == 4


def test_append_finds_columns_by_name_whatever_their_order(fruits: Session) -> None:
    fruits.execute("main.fruit", WriteSpec("append"), fruit((4, "wed", 4.0)).select(["price", "id", "day"]))
    assert (4, "wed", 4.0) in rows_of(fruits.scan("main.fruit"))


def test_overwrite_replaces_rows_schema_and_partitions(fruits: Session) -> None:
    commit = fruits.execute("main.fruit", WriteSpec("overwrite", partition_by=()), pa.table({"name": ["fig"]}))
    snapshot = fruits.table("main.fruit").snapshot()
    assert (commit.version, snapshot.schema.names, snapshot.partition_columns) == (nth(1), ["name"], ())
    assert rows_of(fruits.scan("main.fruit")) == [("fig",)]


def test_overwrite_keeps_the_partitions_when_none_are_named(fruits: Session) -> None:
    fruits.execute("main.fruit", WriteSpec("overwrite"), fruit((4, "wed", 4.0)))
    assert fruits.table("main.fruit").snapshot().partition_columns == ("day",)
    assert rows_of(fruits.scan("main.fruit")) == [(4, "wed", 4.0)]


def test_replacing_a_partition_replaces_only_that_partition(fruits: Session) -> None:
    spec = WriteSpec("replace", predicate="day = 'mon'")
    commit = fruits.execute("main.fruit", spec, fruit((7, "mon", 7.0)))
    assert commit.rows_inserted == 1
    assert rows_of(fruits.scan("main.fruit")) == [(3, "tue", "NaN"), (7, "mon", 7.0)]


def test_replacing_by_a_predicate_over_any_column_keeps_the_other_rows_of_its_files(fruits: Session) -> None:
    fruits.execute("main.fruit", WriteSpec("replace", predicate="id = 1"), fruit((1, "mon", 10.0), (1, "tue", 11.0)))
    assert rows_of(fruits.scan("main.fruit")) == [
        (1, "mon", 10.0),
        (1, "tue", 11.0),
        (2, "mon", None),
        (3, "tue", "NaN"),
    ]


def test_replacing_without_a_predicate_replaces_the_partitions_of_the_rows(fruits: Session) -> None:
    fruits.execute("main.fruit", WriteSpec("replace"), fruit((8, "tue", 8.0), (9, "wed", 9.0)))
    assert rows_of(fruits.scan("main.fruit"), "id") == [(1,), (2,), (8,), (9,)]


def test_replace_creates_the_table_and_still_checks_its_rows(session: Session) -> None:
    spec = WriteSpec("replace", predicate="day = 'mon'", partition_by=("day",))
    with pytest.raises(RowsOutsidePartition):
        session.execute("main.new", spec, fruit((8, "tue", 8.0)))
    assert not session.lake.exists(session.lake.parse("main.new"))
    session.execute("main.new", spec, fruit((8, "mon", 8.0)))
    assert session.scan("main.new").count() == 1


@pytest.mark.parametrize(
    "spec",
    [
        WriteSpec("append", within="day = 'mon'"),
        MergeSpec(("id",), within="day = 'mon'"),
        DeleteInsertSpec(("id",), within="day = 'mon'"),
    ],
    ids=lambda spec: spec.mode,
)
def test_in_any_mode_rows_can_be_held_to_the_part_that_is_written(
    fruits: Session, spec: WriteSpec | MergeSpec | DeleteInsertSpec
) -> None:
    with pytest.raises(RowsOutsidePartition, match=r"(?s)main\.fruit.*day = 'mon'"):
        fruits.execute("main.fruit", spec, fruit((7, "mon", 7.0), (8, "tue", 8.0)))
    assert fruits.table("main.fruit").snapshot().version == nth(0)
    assert fruits.execute("main.fruit", spec, fruit((7, "mon", 7.0))).rows_inserted == 1


def test_new_columns_are_added_when_asked_for(fruits: Session) -> None:
    data = FRUIT.append_column("taste", pa.array(["a", "b", "c"]))
    fruits.execute("main.fruit", WriteSpec("append", schema_mode="append_new_columns"), data)
    assert set(fruits.table("main.fruit").snapshot().schema.names) == {"id", "day", "price", "taste"}
    assert rows_of(fruits.scan("main.fruit", ReadSpec(predicate="taste is null")), "id") == [(1,), (2,), (3,)]


@pytest.mark.parametrize("kind", ["reader", "pandas", "polars", "lazy", "relation", "frame", "sql"])
def test_any_tabular_value_can_be_written(fruits: Session, kind: str) -> None:
    values = {
        "reader": lambda: FRUIT.to_reader(),
        "pandas": lambda: FRUIT.to_pandas(),
        "polars": lambda: pl.from_arrow(FRUIT),
        "lazy": lambda: pl.from_arrow(FRUIT).lazy(),
        "relation": lambda: duckdb.sql("select 4::bigint as id, 'wed' as day, 4.0::double as price"),
        "frame": lambda: fruits.sql("select * from main.fruit"),
        "sql": lambda: SQL("select * from main.fruit where id < 3"),
    }
    before = fruits.scan("main.fruit").count()
    commit = fruits.execute("main.fruit", WriteSpec("append"), values[kind]())
    added = {"relation": 1, "sql": 2}.get(kind, 3)
    assert (commit.rows_inserted, fruits.scan("main.fruit").count()) == (added, before + added)


# -- merge


def test_merge_updates_what_matches_and_inserts_the_rest(fruits: Session) -> None:
    commit = fruits.execute("main.fruit", MergeSpec(("id",)), fruit((2, "mon", 20.0), (4, "wed", 4.0)))
    assert (commit.rows_inserted, commit.rows_updated, commit.rows_deleted) == (1, 1, 0)
    assert rows_of(fruits.scan("main.fruit")) == [(1, "mon", 1.5), (2, "mon", 20.0), (3, "tue", "NaN"), (4, "wed", 4.0)]


def test_merge_can_update_some_columns_only(fruits: Session) -> None:
    spec = MergeSpec(("id",), (MergeClause("matched_update", columns=("price",)), MergeClause("not_matched_insert")))
    fruits.execute("main.fruit", spec, fruit((1, "sun", 10.0), (5, "sun", 5.0)))
    assert {(1, "mon", 10.0), (5, "sun", 5.0)} <= set(rows_of(fruits.scan("main.fruit")))


def test_merge_decides_by_conditions_and_computes_with_both_sides(fruits: Session) -> None:
    spec = MergeSpec(
        ("id",),
        (
            MergeClause("matched_delete", "source.price < 0"),
            MergeClause("matched_update", "target.price is not null", set={"price": "target.price + source.price / 2"}),
            MergeClause("not_matched_insert", "source.price > 3"),
        ),
    )
    data = fruit((1, "mon", 3.0), (2, "mon", 3.0), (3, "tue", -1.0), (8, "wed", 8.0), (9, "wed", 1.0))
    commit = fruits.execute("main.fruit", spec, data)
    assert (commit.rows_inserted, commit.rows_updated, commit.rows_deleted) == (1, 1, 1)
    assert rows_of(fruits.scan("main.fruit")) == [(1, "mon", 3.0), (2, "mon", None), (8, "wed", 8.0)]


def test_merge_can_delete_what_the_source_does_not_have(fruits: Session) -> None:
    spec = MergeSpec(("id",), (MergeClause("matched_update"), MergeClause("not_matched_by_source_delete")))
    fruits.execute("main.fruit", spec, fruit((1, "mon", 10.0)))
    assert rows_of(fruits.scan("main.fruit")) == [(1, "mon", 10.0)]


def test_merge_by_a_floating_key_takes_nan_for_equal(session: Session) -> None:
    session.execute("main.fruit", WriteSpec("error"), fruit((1, "mon", NAN), (2, "mon", 0.0)))
    session.execute("main.fruit", MergeSpec(("price",)), fruit((10, "mon", NAN), (20, "mon", -0.0)))
    assert rows_of(session.scan("main.fruit"), "id") == [(10,), (20,)]


def test_merge_creates_the_table(session: Session) -> None:
    session.execute("main.new", MergeSpec(("id",), partition_by=("day",)), FRUIT)
    assert session.scan("main.new").count() == 3
    assert session.table("main.new").snapshot().partition_columns == ("day",)


# -- delete, update


def test_delete_removes_the_rows_for_which_the_predicate_is_true(fruits: Session) -> None:
    commit = fruits.execute("main.fruit", DeleteSpec("price > 1 and id < 3"))
    assert commit.rows_deleted == 1
    assert rows_of(fruits.scan("main.fruit"), "id") == [(2,), (3,)]


def test_delete_without_a_predicate_removes_all_rows_and_keeps_the_table(fruits: Session) -> None:
    fruits.execute("main.fruit", DeleteSpec())
    assert fruits.scan("main.fruit").count() == 0
    assert fruits.table("main.fruit").snapshot().schema.names == FRUIT.column_names


def test_update_sets_expressions_where_the_predicate_is_true(fruits: Session) -> None:
    commit = fruits.execute("main.fruit", UpdateSpec({"price": "id / 2", "day": "'up'"}, "id <> 3"))
    assert commit.rows_updated == 2
    assert rows_of(fruits.scan("main.fruit")) == [(1, "up", 0.5), (2, "up", 1.0), (3, "tue", "NaN")]


@pytest.mark.parametrize("spec", [DeleteSpec("id = 1"), UpdateSpec({"price": "1"})], ids=["delete", "update"])
def test_changing_a_table_that_is_not_there_names_it(session: Session, spec: DeleteSpec | UpdateSpec) -> None:
    with pytest.raises(TableNotFound, match=r"main\.nothing"):
        session.execute("main.nothing", spec)


# -- exactly once, and the way back


def test_the_same_application_transaction_commits_once_and_comes_back_as_replayed(fruits: Session) -> None:
    app = AppTransaction("nightly/fruit", 0)
    first = fruits.execute("main.fruit", WriteSpec("append", app=app), fruit((4, "wed", 4.0)))
    again = fruits.execute("main.fruit", WriteSpec("append", app=app), fruit((4, "wed", 4.0)))
    assert (first.replayed, again.replayed, again.version) == (False, True, first.version)
    assert again.rows_inserted == 1
    assert fruits.scan("main.fruit").count() == 4
    following = fruits.execute("main.fruit", WriteSpec("append", app=AppTransaction("nightly/fruit", 1)), FRUIT)
    assert not following.replayed


def test_restore_brings_an_older_version_back_as_a_new_one(fruits: Session) -> None:
    fruits.execute("main.fruit", WriteSpec("overwrite"), fruit((4, "wed", 4.0)))
    commit = fruits.table("main.fruit").restoreToVersion(nth(0))
    assert commit.version == nth(2)
    assert rows_of(fruits.scan("main.fruit"), "id") == [(1,), (2,), (3,)]


def test_older_versions_stay_readable(fruits: Session) -> None:
    fruits.execute("main.fruit", WriteSpec("overwrite"), fruit((4, "wed", 4.0)))
    assert rows_of(fruits.scan("main.fruit", ReadSpec(version=nth(0))), "id") == [(1,), (2,), (3,)]
    assert rows_of(fruits.table("main.fruit").toDF(version=nth(1)), "id") == [(4,)]


def test_reads_are_pruned_by_columns_and_predicate(fruits: Session) -> None:
    frame = fruits.scan("main.fruit", ReadSpec(columns=("price", "id"), predicate="day = 'mon' and id / 2 = 0.5"))
    assert frame.columns == ["price", "id"]
    assert rows_of(frame) == [(1.5, 1)]


def test_sql_reads_tables_by_name_and_stays_at_its_version(fruits: Session) -> None:
    frame = fruits.sql("select day, count(*) as n from main.fruit group by day")
    fruits.execute("main.fruit", WriteSpec("append"), FRUIT)
    assert rows_of(frame) == [("mon", 2), ("tue", 1)]


@pytest.mark.only_format("delta", "a table's folder")
@pytest.mark.parametrize(
    "left", ["part-00000-6f9c.snappy.parquet", "_delta_log/_staged_commits/", "rewrite-6f9c/_delta_log/0.json"]
)
@pytest.mark.parametrize(
    "more", [{}, {"description": "days", "partition_by": ("day",)}, {"constraints": TableConstraints(("id",))}]
)
def test_what_a_killed_job_left_is_no_hindrance_to_the_first_write(
    root: Path, session: Session, left: str, more: dict[str, Any]
) -> None:
    path = root / "main" / "raw" / left
    path.parent.mkdir(parents=True)
    if left.endswith("/"):
        path.mkdir()
    else:
        path.write_bytes(b"PAR1")
    app = AppTransaction("nightly/raw")
    spec = WriteSpec("overwrite", app=app, **more)
    for replayed in (False, True):
        commit = session.execute("raw", spec, pa.table({"id": [2], "day": ["tue"]}))
        assert (commit.version, commit.replayed) == (nth(0), replayed)
    assert session.scan("raw").collect() == [{"id": 2, "day": "tue"}]
    assert session.table("raw").detail().get("description") == more.get("description")
