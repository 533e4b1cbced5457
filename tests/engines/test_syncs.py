"""Syncs of tables of several files, against a model in Python."""

from __future__ import annotations

import random

import pytest

from duckrun import SQL, DeleteSpec, MergeClause, MergeSpec, WriteSpec
from duckrun.session import Session
from tests.lake import rows_of

SYNC = tuple(map(MergeClause, ("matched_update", "not_matched_insert", "not_matched_by_source_delete")))
KEEP = (MergeClause("matched_update"), MergeClause("not_matched_by_source_update", set={"v": "-1"}))
ROWS = 5_000
PARTS = ("a", "it's [1]", "c")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mode", ["copy_on_write", "deletion_vectors", "auto"])
def test_a_sync_of_several_files_leaves_the_rows_of_its_source(duck: Session, mode: str, seed: int) -> None:
    rng = random.Random(f"{mode} {seed}")
    properties = {"delta.enableDeletionVectors": "true"}
    for part, name in enumerate(PARTS):
        spec = WriteSpec("append", partition_by=("p",), table_properties={} if part else properties)
        text = name.replace("'", "''")
        duck.execute("t", spec, SQL(f"SELECT range * 3 + {part} AS id, 0 AS v, '{text}' AS p FROM range({ROWS})"))
    gone = rng.randrange(3 * ROWS)
    duck.execute("t", DeleteSpec(f"id % 7 = 1 AND id < {gone}"))
    before = {i: (0, PARTS[i % 3]) for i in range(3 * ROWS) if not (i % 7 == 1 and i < gone)}
    assert {id: (v, p) for id, v, p in rows_of(duck.sql("from t"))} == before

    low, step = rng.randrange(3 * ROWS), rng.choice((1, 2, 3, 50))
    source = SQL(f"SELECT {low} + range * {step} AS id, 1 AS v, 'c' AS p FROM range({rng.choice((1, 700, ROWS))})")
    keys = {id for (id,) in rows_of(duck.sql(f"select id from ({source.text})"))}
    clauses = rng.choice((SYNC, KEEP))
    commit = duck.execute("t", MergeSpec(("id",), clauses, merge_mode=mode), source)
    after = {id: (v, p) for id, v, p in rows_of(duck.sql("from t"))}
    if clauses is SYNC:
        assert after == dict.fromkeys(keys, (1, "c"))
        assert commit.rows_deleted == len(before.keys() - keys)
        assert commit.rows_inserted == len(keys - before.keys())
    else:
        assert after == {id: (1, "c") if id in keys else (-1, p) for id, (_, p) in before.items()}
    assert len(rows_of(duck.sql("from t"))) == len(after)


@pytest.mark.parametrize("mode", ["copy_on_write", "deletion_vectors"])
def test_a_source_row_replaces_each_row_that_it_matches(duck: Session, mode: str) -> None:
    duck.sql("create table t as select unnest([1, 1, 2, 3, null]) as id, 'old' as v")
    source = SQL("select unnest([1, 3, 4, null]) as id, 'new' as v")
    upsert = duck.execute("t", MergeSpec(("id",), SYNC[:2], merge_mode=mode), source)
    assert (upsert.rows_inserted, upsert.rows_updated) == (2, 3)
    assert sorted(rows_of(duck.sql("select coalesce(id, 0), v from t"))) == [
        (0, "new"), (0, "old"), (1, "new"), (1, "new"), (2, "old"), (3, "new"), (4, "new"),
    ]  # fmt: skip
    duck.execute("t", MergeSpec(("id",), SYNC, merge_mode=mode), SQL("select 1 as id, 'last' as v"))
    assert rows_of(duck.sql("from t")) == [(1, "last"), (1, "last")]
