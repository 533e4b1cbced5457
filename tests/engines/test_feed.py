"""The change feed that DuckDB writes: what Spark reads of it is what Spark writes itself for the same statements."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import (
    AlterSpec,
    CheckpointSpec,
    DeleteInsertSpec,
    DeleteSpec,
    MergeClause,
    MergeSpec,
    RestoreSpec,
    SchemaMismatch,
    Session,
    UpdateSpec,
    VacuumSpec,
    WriteSpec,
)
from duckrun.values.tables import SetProperties
from tests.lake import rows_of

STATEMENTS = (
    "update main.t set v = 'b' where id in (3, 4)",
    "update main.t set v = v",
    "delete from main.t where id = 4",
    "delete from main.t where p = 1 and id > 5",
    "merge into main.t as t using (select * from (values (5, 1, 'm'), (6, 0, 'd'), (20, 0, 'n')) as x(id, p, v)) as s on t.id = s.id "
    "when matched and s.v = 'd' then delete when matched then update set * when not matched then insert *",
    "merge into main.t as t using (select 30 as id, 1 as p, 'i' as v) as s on t.id = s.id when not matched then insert *",
    "merge into main.t as t using (select 3 as id) as s on t.id = s.id when matched then update set v = 'x', p = 1 "
    "when not matched by source and t.id < 2 then delete when not matched by source then update set v = 'rest'",
    "insert into main.t values (40, 0, 'new')",
    "delete from main.t",
)
FEED = {"delta.enableChangeDataFeed": "true"}


def filled(session: Session, vectors: str, partition_by: tuple[str, ...]) -> None:
    properties = {**FEED, "delta.enableDeletionVectors": vectors}
    rows = duckrun.SQL("select cast(range as int) as id, cast(range % 2 as int) as p, 'a' as v from range(10)")
    session.execute("main.t", WriteSpec("overwrite", partition_by=partition_by, table_properties=properties), rows)
    for statement in STATEMENTS:
        session.sql(statement)


def told(session: Session, version: int) -> list[tuple[Any, ...]]:
    """The feed of a version, as Spark's own table_changes reads it."""
    spark = session.engine.spark  # type: ignore[attr-defined]
    found = spark.sql(
        f"SELECT id, p, v, _change_type FROM table_changes_by_path('{session.ref('main.t').location}', {version}, {version})"
    )
    return sorted((tuple(row) for row in found.collect()), key=repr)


@pytest.mark.spark
@pytest.mark.parametrize("partition_by", [(), ("p",)])
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_spark_reads_what_it_would_have_written(
    tmp_path: Path, spark: Any, vectors: str, partition_by: tuple[str, ...]
) -> None:
    with (
        duckrun.connect(tmp_path / "ours") as ours,
        duckrun.connect(tmp_path / "theirs", engine="spark", spark=spark) as theirs,
        duckrun.connect(tmp_path / "ours", engine="spark", spark=spark) as reader,
    ):
        filled(ours, vectors, partition_by)
        filled(theirs, vectors, partition_by)
        for version, statement in enumerate(STATEMENTS, 1):
            assert told(reader, version) == told(theirs, version), statement
            feed = f"select id, p, v, _change_type from table_changes('main.t', {version}, {version})"
            assert rows_of(ours.sql(feed)) == rows_of(theirs.sql(feed)), statement
        for version in range(1, len(STATEMENTS) + 1):
            a, b = (s.table("main.t").changes("full_delta", version - 1, version, key=["id"]) for s in (ours, theirs))
            columns = ("id", "p", "v", "_change_type")
            assert rows_of(a, *columns) == rows_of(b, *columns), version
        assert rows_of(reader.table("main.t").toDF()) == []


@pytest.mark.parametrize("mode", ["deletion_vectors", "copy_on_write"])
def test_each_way_to_change_rows_keeps_a_feed(duck: Session, mode: str) -> None:
    rows = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
    duck.execute("main.t", WriteSpec("overwrite", table_properties=FEED), rows)
    some = pa.table({"id": [2], "v": ["z"]})
    duck.execute("main.t", duckrun.DeleteInsertSpec(("id",), merge_mode=mode), some)  # type: ignore[arg-type]
    duck.execute("main.t", WriteSpec("replace", predicate="id = 3", merge_mode=mode), some.set_column(0, "id", [[3]]))  # type: ignore[arg-type]
    stream = pa.RecordBatchReader.from_batches(some.schema, some.set_column(0, "id", [[3]]).to_batches())
    duck.execute("main.t", WriteSpec("replace", predicate="id = 3", merge_mode=mode), stream)  # type: ignore[arg-type]
    wide = pa.table({"id": [9], "v": ["w"], "more": [1]})
    duck.execute("main.t", WriteSpec("append", schema_mode="append_new_columns"), wide)
    found = {
        version: rows_of(duck.sql(f"select id, v, _change_type from table_changes('main.t', {version}, {version})"))
        for version in range(1, 5)
    }
    assert found == {
        1: [(2, "b", "delete"), (2, "z", "insert")],
        2: [(3, "c", "delete"), (3, "z", "insert")],
        3: [(3, "z", "delete"), (3, "z", "insert")],
        4: [(9, "w", "insert")],
    }


def rows(*ids: int, v: str = "z") -> pa.Table:
    return pa.table(
        {"id": pa.array(ids, pa.int32()), "p": pa.array([i % 2 for i in ids], pa.int32()), "v": [v] * len(ids)}
    )


# Each mode of writing and each spec that changes rows, with the rows that it takes, on 0 to 9 that are partitioned by p.
WRITES: dict[str, tuple[Any, pa.Table | None]] = {
    "append": (WriteSpec("append"), rows(20, 21)),
    "safeappend": (WriteSpec("safeappend", read_version=1), rows(20)),
    "ignore": (WriteSpec("ignore"), rows(20)),
    "overwrite": (WriteSpec("overwrite"), rows(1, 2)),
    "replace of partitions": (WriteSpec("replace", partition_by=("p",)), rows(1, 11)),
    "replace by a predicate": (WriteSpec("replace", predicate="id < 3"), rows(1)),
    "merge": (MergeSpec(("id",)), rows(2, 20)),
    "merge that changes nothing": (MergeSpec(("id",)), rows(2, 4, v="a")),
    "merge with clauses": (
        MergeSpec(
            ("id",),
            (
                MergeClause("matched_delete", condition="source.id = 2"),
                MergeClause("matched_update", set={"v": "source.v || target.v"}),
                MergeClause("not_matched_insert"),
                MergeClause("not_matched_by_source_delete", condition="target.id > 7"),
            ),
        ),
        rows(2, 3, 20),
    ),
    "delete+insert": (DeleteInsertSpec(("id",)), rows(2, 20)),
    "update": (UpdateSpec({"v": "'u'"}, "id > 6"), None),
    "update of a partition column": (UpdateSpec({"p": "1 - p"}, "id > 6"), None),
    "delete": (DeleteSpec("id > 6"), None),
    "delete of a partition": (DeleteSpec("p = 1"), None),
    "restore": (RestoreSpec(0), None),
    "truncate": (DeleteSpec(), None),
}


@pytest.mark.spark
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("mode", ["deletion_vectors", "copy_on_write"])
def test_each_write_keeps_a_feed_that_both_engines_and_plain_spark_read_alike(
    tmp_path: Path, spark: Any, write: str, mode: str
) -> None:
    """Of each it says what the two states say; plain Spark reads of DuckDB's commit what it reads of Spark's."""
    spec, given = WRITES[write]
    if hasattr(spec, "merge_mode"):
        spec = replace(spec, merge_mode=mode)
    properties = {**FEED, "delta.enableDeletionVectors": "true" if mode == "deletion_vectors" else "false"}
    first = duckrun.SQL("select cast(range as int) as id, cast(range % 2 as int) as p, 'a' as v from range(10)")
    feeds = {}
    with (
        duckrun.connect(tmp_path / "duckdb") as duck,
        duckrun.connect(tmp_path / "spark", engine="spark", spark=spark) as on_spark,
        duckrun.connect(tmp_path / "duckdb", engine="spark", spark=spark) as reader,
        duckrun.connect(tmp_path / "spark") as other,
    ):
        for session, others in ((duck, reader), (on_spark, other)):
            made = WriteSpec("overwrite", partition_by=("p",), table_properties=properties)
            session.execute("main.t", made, first)
            session.sql("delete from main.t where id = 5")
            commit = session.execute("main.t", spec, *(() if given is None else (given,)))
            plain = told(others if others.engine_name == "spark" else session, 2) if commit.version == 2 else []
            read = "select id, p, v, _change_type from table_changes('main.t', 2, 2)" if commit.version == 2 else None
            for each in (session, others):
                assert read is None or rows_of(each.sql(read)) == plain, each.engine_name
                net = rows_of(each.table("main.t").changes("min_delta", 1), "id", "p", "v", "_change_type")
                assert net == _net(plain), each.engine_name
            feeds[session.engine_name] = plain
    assert _net(feeds["duckdb"]) == _net(feeds["spark"])
    if write != "merge that changes nothing":  # which the one leaves out and the other lists
        assert feeds["duckdb"] == feeds["spark"]


def _net(feed: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """A feed of one commit as inserts and deletes alone, without what comes and goes."""
    signs = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
    sums: Counter[tuple[Any, ...]] = Counter()
    for *row, kind in feed:
        sums[tuple(row)] += signs[kind]
    found = [(*row, "insert" if n > 0 else "delete") for row, n in sums.items() for _ in range(abs(n))]
    return sorted(found, key=repr)


def test_the_feed_outlives_a_checkpoint_and_not_a_vacuum(duck: Session) -> None:
    duck.execute("main.t", WriteSpec("overwrite", table_properties=FEED), pa.table({"id": [1, 2]}))
    duck.sql("update main.t set id = 7 where id = 1")
    duck.execute("main.t", CheckpointSpec())
    feed = "select id, _change_type from table_changes('main.t', 1)"
    assert rows_of(duck.sql(feed)) == [(1, "update_preimage"), (7, "update_postimage")]
    gone = duck.execute("main.t", VacuumSpec(retention_hours=0, enforce_retention=False)).removed
    assert any(path.startswith("_change_data/") for path in gone)
    assert rows_of(duck.table("main.t").toDF()) == [(2,), (7,)]
    with pytest.raises(duckrun.StorageError, match="gone"):
        duck.sql(feed).collect()


def test_a_column_of_the_feeds_name_is_refused_and_nothing_is_lost(duck: Session) -> None:
    duck.execute(
        "main.t", WriteSpec("overwrite", table_properties=FEED), pa.table({"id": [1, 2], "_Change_Type": ["a", "b"]})
    )
    with pytest.raises(SchemaMismatch, match=r"has a column _change_type, and so has the table \(_Change_Type\)"):
        duck.sql("update main.t set id = 3 where id = 1")
    assert rows_of(duck.table("main.t").toDF(), "id") == [(1,), (2,)]
    duck.execute("main.t", AlterSpec((SetProperties({"delta.enableChangeDataFeed": "false"}),)))
    duck.sql("update main.t set id = 3 where id = 1")
    assert rows_of(duck.table("main.t").toDF(), "id") == [(2,), (3,)]
