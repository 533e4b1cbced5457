"""Merges by delta_rs whose rows DuckDB computes: conditions, expressions, rows that the source lacks, parts of a table, new columns."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import duckrun
from duckrun import AppTransaction, Commit, MergeClause, MergeSpec, Session, TableConstraints, WriteSpec
from duckrun.errors import (
    CommitConflict,
    DuplicateSourceKeys,
    InvalidConfig,
    RowsOutsidePartition,
    SchemaMismatch,
)
from duckrun.values.rows import WorkTransaction
from tests.lake import rows_of

OLD = pa.table({"id": [1, 2, 3, None], "day": ["a", "b", None, "d"], "v": [1, 2, 3, 4]})
NEW = pa.table({"id": [2, 3, 5, None], "day": ["b", "c", "e", "f"], "v": [20, 30, 50, 60]})
UPDATE, DELETE, INSERT = (MergeClause(kind) for kind in ("matched_update", "matched_delete", "not_matched_insert"))
BY_KEY: dict[str, tuple[MergeSpec, tuple[int, int, int], list[tuple[Any, ...]]]] = {
    "update alone": (
        MergeSpec(("id",), (UPDATE,)),
        (0, 2, 0),
        [(1, "a", 1), (2, "b", 20), (3, "c", 30), (None, "d", 4)],
    ),
    "a condition": (
        MergeSpec(("id",), (MergeClause("matched_update", "source.v > 10 * target.v - 1 and target.day is null"),)),
        (0, 1, 0),
        [(1, "a", 1), (2, "b", 2), (3, "c", 30), (None, "d", 4)],
    ),
    "expressions": (
        MergeSpec(("id",), (MergeClause("matched_update", set={"id": "target.id + 100", "v": "target.v + source.v"}),)),
        (0, 2, 0),
        [(1, "a", 1), (102, "b", 22), (103, None, 33), (None, "d", 4)],
    ),
    "the first clause that applies": (
        MergeSpec(("id",), (MergeClause("matched_delete", "source.v > 20"), UPDATE, INSERT)),
        (2, 1, 1),
        [(1, "a", 1), (2, "b", 20), (5, "e", 50), (None, "d", 4), (None, "f", 60)],
    ),
    "insert alone": (
        MergeSpec(("id",), (MergeClause("not_matched_insert", "source.id is not null"),)),
        (1, 0, 0),
        [(1, "a", 1), (2, "b", 2), (3, None, 3), (5, "e", 50), (None, "d", 4)],
    ),
    "rows that the source lacks": (
        MergeSpec(
            ("id",),
            (
                INSERT,
                MergeClause("not_matched_by_source_update", "target.id is null", set={"v": "-target.v"}),
                MergeClause("not_matched_by_source_delete"),
            ),
        ),
        (2, 1, 1),
        [(2, "b", 2), (3, None, 3), (5, "e", 50), (None, "d", -4), (None, "f", 60)],
    ),
    "a part of the table": (
        MergeSpec(
            ("id",),
            (UPDATE, INSERT, MergeClause("not_matched_by_source_delete")),
            within="day in ('b', 'c', 'd', 'e', 'f')",
        ),
        (3, 1, 1),
        [(1, "a", 1), (2, "b", 20), (3, None, 3), (3, "c", 30), (5, "e", 50), (None, "f", 60)],
    ),
    "more than the keys": (
        MergeSpec(("id",), (UPDATE, INSERT), on="target.day = source.day"),
        (3, 1, 0),
        [(1, "a", 1), (2, "b", 20), (3, None, 3), (3, "c", 30), (5, "e", 50), (None, "d", 4), (None, "f", 60)],
    ),
}


def read(session: Session, table: str = "t") -> list[tuple[Any, ...]]:
    """The rows of a table by deltalake."""
    return rows_of(DeltaTable(session.ref(table).location).to_pyarrow_table())


def counts(commit: Commit) -> tuple[int | None, ...]:
    return commit.rows_inserted, commit.rows_updated, commit.rows_deleted


def by_delta_rs(spec: Any) -> Any:
    return replace(spec, writer="delta_rs")


@pytest.mark.parametrize("partition_by", [None, ("day",)], ids=["plain", "partitioned"])
@pytest.mark.parametrize("case", BY_KEY)
def test_every_clause_of_a_merge_by_key(duck: Session, case: str, partition_by: Any) -> None:
    spec, expected, rows = BY_KEY[case]
    duck.execute("t", WriteSpec("error", partition_by=partition_by), OLD)
    commit = duck.execute("t", by_delta_rs(spec), NEW)
    assert (commit.writer, commit.version, counts(commit)) == ("delta_rs", 1, expected)
    assert read(duck) == sorted(rows, key=repr)


def test_only_rows_that_a_clause_touches_are_sent_and_only_their_files_are_written(duck: Session, root: Path) -> None:
    duck.execute("t", WriteSpec("error", partition_by=("day",)), OLD)
    changed = MergeSpec(("id",), (MergeClause("matched_update", "target.v <> source.v and source.id = 2"),))
    commit = duck.execute("t", by_delta_rs(changed), NEW)
    entry = (root / "main/t/_delta_log" / f"{commit.version:020d}.json").read_text().splitlines()
    (info,) = (action["commitInfo"] for action in map(json.loads, entry) if "commitInfo" in action)
    assert info["operation"] == "MERGE" and info["operationMetrics"]["num_source_rows"] == 1
    assert (commit.files_removed, commit.files_added) == (1, 1)
    added = duck.execute("t", by_delta_rs(MergeSpec(("id",), (INSERT,))), NEW.slice(2, 1))
    assert (counts(added), added.files_removed) == ((1, 0, 0), 0)
    nothing = duck.execute("t", by_delta_rs(replace(changed, clauses=(MergeClause("matched_update", "false"),))), NEW)
    assert (nothing.writer, nothing.version) == ("none", added.version)


@pytest.mark.parametrize("values", [["a", "it's", None, "ü%/ b", "b"], [1, -2, None, 4, 5]], ids=["texts", "numbers"])
def test_only_partitions_with_rows_that_change_are_read(duck: Session, root: Path, values: list[Any]) -> None:
    rows = pa.table({"id": [1, 2, 3, 4, 5], "p": values, "v": [1, 2, 3, 4, 5]})
    duck.execute("t", WriteSpec("error", partition_by=("p",)), rows)
    doubled = MergeSpec(("id",), (MergeClause("matched_update", set={"v": "target.v + source.v"}),))
    for ids in ([1], [2, 3], [3], [4, 1]):
        version = duck.execute("t", by_delta_rs(doubled), pa.table({"id": ids, "v": [10] * len(ids)})).version
        entry = (root / "main/t/_delta_log" / f"{version:020d}.json").read_text().splitlines()
        (info,) = (action["commitInfo"] for action in map(json.loads, entry) if "commitInfo" in action)
        assert info["operationMetrics"]["num_target_files_scanned"] == len(ids)
    assert [row[2] for row in read(duck)] == [21, 12, 23, 14, 5]


REPEATED = pa.table({"id": [1, 1, 2, None, None], "v": [10, 20, 30, 40, 50], "x": [1.5, 1.5, 1.5, 1.5, 1.5]})


def test_rows_of_the_table_that_share_a_key(duck: Session) -> None:
    duck.execute("t", WriteSpec("error"), REPEATED)
    doubled = MergeSpec(
        ("id",),
        (
            MergeClause("matched_update", set={"v": "target.v + source.v"}),
            MergeClause("not_matched_by_source_update", "target.v > 40", set={"v": "-target.v"}),
        ),
    )
    source = pa.table({"id": [1], "v": [5]})
    assert counts(duck.execute("t", by_delta_rs(doubled), source)) == (0, 3, 0)
    assert sorted(row[1] for row in read(duck)) == [-50, 15, 25, 30, 40]
    same = MergeSpec(("id",), (MergeClause("matched_update", set={"v": "source.v"}),))
    assert counts(duck.execute("t", by_delta_rs(same), source)) == (0, 2, 0)
    assert sorted(row[1] for row in read(duck)) == [-50, 5, 5, 30, 40]


def test_rows_that_differ_in_nothing_that_it_can_compare_are_not_told_apart(duck: Session) -> None:
    duck.execute("t", WriteSpec("error"), pa.table({"id": [1, 1], "x": [1.5, 2.5]}))
    doubled = MergeSpec(("id",), (MergeClause("matched_update", set={"x": "target.x * source.x"}),))
    source = pa.table({"id": [1], "x": [2.0]})
    with pytest.raises(InvalidConfig, match="same id become different ones, and it tells rows by these alone"):
        duck.execute("t", by_delta_rs(doubled), source)
    commit = duck.execute("t", replace(doubled, writer="prefer_delta_rs"), source)
    assert commit.writer == "staged" and "become different ones" in commit.reason
    assert read(duck) == [(1, 3.0), (1, 5.0)]


def test_the_source_is_held_to_the_rules_of_the_staged_writer(duck: Session) -> None:
    held = TableConstraints(not_null=("id",), checks={"small": "v < 100"})
    duck.execute("t", WriteSpec("error", partition_by=("day",), constraints=held), OLD.slice(0, 2))
    before = read(duck)
    doubled = MergeClause("matched_update", set={"v": "target.v * source.v"})
    for spec, rows, error in [
        (MergeSpec(("id",), (doubled,)), {"id": [2], "v": [50]}, SchemaMismatch),
        (MergeSpec(("id",), (doubled,)), {"id": [2, 2], "v": [1, 1]}, DuplicateSourceKeys),
        (MergeSpec(("id",), (INSERT,)), {"id": [7], "day": [""], "v": [1]}, SchemaMismatch),
        (MergeSpec(("id",), (UPDATE,), within="day = 'b'"), {"id": [2], "day": ["a"], "v": [1]}, RowsOutsidePartition),
        (
            MergeSpec(("id",), (MergeClause("matched_update", set={"day": "'z'"}),), within="day <> 'z'"),
            {"id": [2], "day": ["b"], "v": [1]},
            RowsOutsidePartition,
        ),
    ]:
        with pytest.raises(error):
            duck.execute("t", by_delta_rs(spec), pa.table(rows))
    assert read(duck) == before and duck.table("t").snapshot().version == 0
    texts = pa.table(
        {"id": ["2"], "v": [7]}
    )  # a key of another type is compared as the table's, and expressions see its own
    said = MergeClause("matched_update", set={"v": "source.v + length(source.id)"})
    duck.execute("t", by_delta_rs(MergeSpec(("id",), (said,))), texts)
    assert read(duck) == [(1, "a", 1), (2, "b", 8)]


@pytest.mark.parametrize("partition_by", [None, ("day",)], ids=["plain", "partitioned"])
def test_new_columns_come_in_a_commit_before_and_the_table_keeps_all_that_it_is(
    duck: Session, partition_by: Any
) -> None:
    held = TableConstraints(not_null=("v",))
    made = WriteSpec(
        "error", partition_by=partition_by, constraints=held, description="orders", column_comments={"v": "value"}
    )
    duck.execute("t", made, OLD)
    before = duck.table("t").snapshot()
    wider = NEW.append_column("w", pa.array([1.5, None, 2.5, 3.5]))
    spec = by_delta_rs(MergeSpec(("id",), (UPDATE, INSERT), schema_mode="append_new_columns"))
    with pytest.raises(SchemaMismatch, match="NOT NULL"):
        duck.execute("t", spec, wider.set_column(2, "v", pa.array([1, None, 2, 3])))
    assert duck.table("t").snapshot().version == 0
    commit = duck.execute("t", replace(spec, read_version=0, app=AppTransaction("once")), wider)
    assert (commit.writer, commit.version, counts(commit)) == ("delta_rs", 2, (2, 2, 0))
    assert duck.execute("t", replace(spec, app=AppTransaction("once")), wider).replayed
    after = duck.table("t").snapshot()
    assert (after.table_id, after.description) == (before.table_id, "orders")
    assert not after.schema.field("v").nullable and after.schema.field("v").metadata[b"comment"] == b"value"
    expected = [
        (1, "a", 1, None), (2, "b", 20, 1.5), (3, "c", 30, None), (5, "e", 50, 2.5), (None, "d", 4, None), (None, "f", 60, 3.5),
    ]  # fmt: skip
    assert rows_of(DeltaTable(after.ref.location).to_pyarrow_table(), "id", "day", "v", "w") == expected


@pytest.mark.parametrize("stream", [False, True], ids=["table", "stream"])
def test_an_append_with_new_columns(duck: Session, stream: bool) -> None:
    duck.execute("t", WriteSpec("error", constraints=TableConstraints(not_null=("v",)), description="orders"), OLD)
    before, rows = duck.table("t").snapshot(), pa.table({"w": [1.5], "id": [9], "day": ["z"], "v": [9]})
    spec = by_delta_rs(WriteSpec("append", schema_mode="append_new_columns"))
    with pytest.raises(SchemaMismatch, match="NOT NULL"):
        duck.execute("t", spec, rows.set_column(3, "v", pa.nulls(1, pa.int64())))
    commit = duck.execute("t", spec, rows.to_reader() if stream else rows)
    after = duck.table("t").snapshot()
    assert (commit.writer, commit.version, counts(commit)) == ("delta_rs", 2, (1, 0, 0))
    assert (after.table_id, after.description, after.schema.field("v").nullable) == (before.table_id, "orders", False)
    expected = sorted([*((*row, None) for row in rows_of(OLD)), (9, "z", 9, 1.5)], key=repr)
    assert rows_of(DeltaTable(after.ref.location).to_pyarrow_table()) == expected


def test_columns_that_files_call_otherwise(duck: Session) -> None:
    mapped = WriteSpec("error", partition_by=("day",), table_properties={"delta.columnMapping.mode": "name"})
    names = ["id", "on_day", "v"]
    duck.execute("t", mapped, OLD)
    duck.sql("alter table t rename column day to on_day")
    for kind in ("update alone", "the first clause that applies", "rows that the source lacks"):
        spec, expected, rows = BY_KEY[kind]
        commit = duck.execute("t", by_delta_rs(spec), NEW.rename_columns(names))
        assert (commit.writer, counts(commit)) == ("delta_rs", expected)
        assert rows_of(duck.sql("select * from t")) == sorted(rows, key=repr)
        duck.execute("t", WriteSpec("overwrite"), OLD.rename_columns(names))


def test_a_new_field_of_a_struct(duck: Session) -> None:
    duck.execute("t", WriteSpec("error"), pa.table({"id": [1, 2], "s": [{"a": 1}, {"a": 2}]}))
    spec = MergeSpec(("id",), (MergeClause("matched_update", "source.s.b > 0"),), schema_mode="append_new_columns")
    assert duck.execute("t", by_delta_rs(spec), pa.table({"id": [1], "s": [{"a": 7, "b": 8}]})).writer == "delta_rs"
    assert duck.sql("select * from t order by id").collect() == [
        {"id": 1, "s": {"a": 7, "b": 8}},
        {"id": 2, "s": {"a": 2, "b": None}},
    ]


def test_the_change_feed_says_what_a_merge_did(duck: Session) -> None:
    duck.execute("t", WriteSpec("error", table_properties={"delta.enableChangeDataFeed": "true"}), OLD)
    spec, _, _ = BY_KEY["rows that the source lacks"]
    version = duck.execute("t", by_delta_rs(spec), NEW).version
    feed = pa.table(DeltaTable(duck.ref("t").location).load_cdf(version, version))
    assert rows_of(feed, "_change_type", "id", "v") == [
        ("delete", 1, 1),
        ("insert", 5, 50),
        ("insert", None, 60),
        ("update_postimage", None, -4),
        ("update_preimage", None, 4),
    ]


@pytest.mark.parametrize(
    ("made", "spec", "why"),
    [
        ({"k": [1.5]}, MergeSpec(("k",)), "a key is a floating number"),
        ({"k": [[1]]}, MergeSpec(("k",)), "a key is nested or binary"),
        ({"k": [1], "x": [1.5]}, MergeSpec(("k",), within="x > 1"), "a key is a floating number"),
    ],
)
def test_what_it_cannot_compare_is_refused_by_name(
    duck: Session, made: dict[str, Any], spec: MergeSpec, why: str
) -> None:
    duck.execute("t", WriteSpec("error"), pa.table(made))
    with pytest.raises(InvalidConfig, match=f"cannot be done by writer delta_rs: {why}"):
        duck.execute("t", by_delta_rs(spec), pa.table(made))


@pytest.mark.parametrize(
    ("check", "done"),
    [
        ("coalesce(upper(day) <> 'x', true) and v between -100 and 100", True),
        ("made > date '2020-01-01' or made is null", True),
        ("day rlike '^[a-z]'", False),
        ("substring(day, 0, 1) = 'a'", False),
    ],
)
def test_a_constraint_that_it_takes_for_another_is_named(duck: Session, check: str, done: bool) -> None:
    rows = duckrun.SQL("select 1::bigint as id, 'a' as day, 1::bigint as v, date '2021-01-01' as made")
    duck.execute("t", WriteSpec("error"), rows)
    duck.sql(f"alter table t add constraint held check ({check})", dialect="spark")
    for spec in (WriteSpec("append"), MergeSpec(("id",)), MergeSpec(("id",), (DELETE,))):
        if done:
            assert duck.execute("t", by_delta_rs(spec), rows).writer == "delta_rs"
        else:
            with pytest.raises(InvalidConfig, match="delta_rs: it may take the constraint held"):
                duck.execute("t", by_delta_rs(spec), rows)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_stream_is_spooled(duck: Session, mode: Any) -> None:
    duck.execute("t", WriteSpec("error"), OLD)
    spec = by_delta_rs(WriteSpec(mode))
    commit = duck.execute("t", spec, NEW.to_reader())
    assert (commit.writer, counts(commit)) == ("delta_rs", (4, 0, 4 if mode == "overwrite" else 0))
    assert read(duck) == rows_of(NEW if mode == "overwrite" else pa.concat_tables([OLD, NEW]))
    relation = duckdb.connect().sql("select 9::bigint as id, 'z' as day, 9::bigint as v")
    assert duck.execute("t", by_delta_rs(WriteSpec("append")), relation).writer == "delta_rs"


def test_a_newer_attempt_takes_the_rows_of_an_older_one_back_by_the_staged_writer(duck: Session) -> None:
    duck.execute("t", WriteSpec("error"), OLD)
    for attempt in (1, 2):
        work = WorkTransaction("nightly", attempt=f"attempt {attempt}", started=float(attempt))
        commit = duck.execute("t", by_delta_rs(WriteSpec("append", app=work)), NEW.slice(0, attempt))
    assert commit.writer == "staged" and "not by delta_rs: the commit takes back" in commit.reason
    assert read(duck) == rows_of(pa.concat_tables([OLD, NEW.slice(0, 2)]))


def test_a_newer_attempt_of_a_merge_that_adds_to_what_is_there(duck: Session) -> None:
    duck.execute("t", WriteSpec("error"), OLD)
    added = MergeClause("matched_update", set={"v": "target.v + source.v", "w": "source.w"})
    spec = by_delta_rs(MergeSpec(("id",), (added,), schema_mode="append_new_columns"))
    source = pa.table({"id": [1, 2], "w": [7, 8], "v": [10, 20]})
    for attempt, writer in ((1, "delta_rs"), (2, "staged")):
        work = WorkTransaction("nightly", attempt=f"attempt {attempt}", started=float(attempt))
        assert duck.execute("t", replace(spec, app=work), source).writer == writer
    assert rows_of(duck.sql("select id, v, w from t where id < 3")) == [(1, 11, 7), (2, 22, 8)]


def test_refusals_name_the_feature_or_option(duck: Session) -> None:
    duck.execute("commented", WriteSpec("error", column_comments={"id": "key"}), OLD)
    wider = NEW.append_column("w", pa.array([1, 2, 3, 4]))
    for table, spec, why in [
        ("new", WriteSpec("error", table_properties={"delta.enableDeletionVectors": "true"}), "deletion vectors"),
        ("new", WriteSpec("error", merge_mode="deletion_vectors"), "deletion vectors"),
        ("new", WriteSpec("error", table_properties={"delta.enableChangeDataFeed": "true"}), "change data feed"),
        ("new", WriteSpec("error", column_comments={"id": "key"}), "column_comments"),
        ("new", WriteSpec("error", sort_by=("id",)), "sort_by"),
        ("commented", WriteSpec("overwrite"), "comments of columns"),
    ]:
        with pytest.raises(InvalidConfig, match=f"cannot be done by writer delta_rs: .*{why}"):
            duck.execute(table, by_delta_rs(spec), wider)
    with pytest.raises(InvalidConfig, match="cannot be done by writer delta_rs: it writes no VARIANT"):
        duck.execute("new", by_delta_rs(WriteSpec("error")), duckrun.SQL("select 1::variant as v"))


def test_a_nested_number_costs_no_other_column_its_statistics(duck: Session) -> None:
    rows = pa.table({"id": [1, 2], "a.b": ["x", "y"], "s": [{"f": 1.5}, {"f": 2.5}], "f": [1.5, 2.5]})
    duck.execute("t", by_delta_rs(WriteSpec("error")), rows)
    adds = pa.table(DeltaTable(duck.ref("t").location).get_add_actions(flatten=True))
    (file,) = adds.to_pylist()
    assert (file["min.id"], file["max.id"], file["min.a.b"], file["max.a.b"]) == (1, 2, "x", "y")
    assert file["min.f"] is None and file["min.s.f"] is None


def test_two_merges_of_the_same_version(duck: Session, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that comes second begins again, from the rows that the first left."""
    from duckrun.engines.duckdb.writers.delta_rs import DeltaRs

    duck.execute("t", WriteSpec("error"), OLD)
    merge, others = DeltaRs._merged, [NEW.slice(0, 1)]

    def after_another(*args: Any, **kwargs: Any) -> Any:
        if others:
            other = others.pop()
            with duckrun.connect(root) as twin:
                monkeypatch.setattr("duckrun.run.transaction.Transaction.locked", _unlocked)
                twin.execute("t", MergeSpec(("id",)), other)
        return merge(*args, **kwargs)

    monkeypatch.setattr(DeltaRs, "_merged", after_another)
    added = by_delta_rs(MergeSpec(("id",), (MergeClause("matched_update", set={"v": "target.v + source.v"}),)))
    assert duck.execute("t", added, NEW).version == 2
    assert read(duck)[1] == (2, "b", 40)
    others.append(NEW.slice(1, 1))
    with pytest.raises(CommitConflict, match="computed from version 2"):
        duck.execute("t", replace(added, read_version=2), NEW)


def _unlocked(self: Any) -> Any:
    from contextlib import nullcontext

    return nullcontext()
