"""Plain delta-spark writes main's table while a branch of it lives: a publish has the rows of both, or is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import CommitConflict

pytestmark = pytest.mark.spark

MARKS = "tblproperties ('delta.enableDeletionVectors' = 'true')"
Rows = Counter[tuple[int, int]]


def without(*ids: int) -> Callable[[Rows], Rows]:
    return lambda rows: Counter({row: n for row, n in rows.items() if row[0] not in ids})


def with_rows(*new: tuple[int, int]) -> Callable[[Rows], Rows]:
    return lambda rows: rows + Counter(new)


WRITES: dict[str, tuple[str, Callable[[Rows], Rows]]] = {
    "append": ("insert into {t} values (50, 5)", with_rows((50, 5))),
    "delete of other rows": ("delete from {t} where id = 7", without(7)),
    "delete of the branch's rows": ("delete from {t} where id = 1", without(1)),
    "update": ("update {t} set v = 9 where id = 8", lambda rows: without(8)(rows) + Counter([(8, 9)])),
    "merge": (
        "merge into {t} t using (select 60 as id, 6 as v) s on t.id = s.id when not matched then insert *",
        with_rows((60, 6)),
    ),
    "optimize": ("optimize {t}", Counter),
    "purge": ("reorg table {t} apply (purge)", Counter),
    "vacuum": ("vacuum {t} retain 0 hours", Counter),
    "restore": ("restore table {t} to version as of 1", Counter),
    "overwrite": ("insert overwrite {t} values (70, 7)", lambda rows: Counter([(70, 7)])),
    "property": ("alter table {t} set tblproperties ('a.b' = 'c')", Counter),
    "column": ("alter table {t} add columns (w int)", Counter),
    "constraint": ("alter table {t} add constraint c check (v < 100)", Counter),
}


def branch_after(rows: Rows) -> Rows:
    """Return the rows after the writes of the branch."""
    return without(1, 2)(rows) + Counter([(2, 1), (40, 4)])


@pytest.mark.parametrize("layout", ["", MARKS], ids=["files", "vectors"])
def test_a_publish_after_writes_of_spark_has_the_rows_of_both_or_is_refused(
    tmp_path: Path, spark: Any, layout: str
) -> None:
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    refused = set()
    for name, (text, after) in WRITES.items():
        root = tmp_path / name.replace("'", "")
        with duckrun.connect(root) as main, duckrun.connect(root, branch="pr-42") as branch:
            main.sql(f"create table t (id int, v int) using delta {layout}", dialect="spark")
            main.sql("insert into t select i, 0 from range(10) r(i)")
            branch.sql("delete from t where id = 1")
            branch.sql("update t set v = 1 where id = 2")
            branch.sql("insert into t values (40, 4)")
            before: Rows = Counter({(i, 0): 1 for i in range(10)})

            def rows(session: duckrun.Session) -> Rows:
                return Counter((row["id"], row["v"]) for row in session.sql("select id, v from t").collect())

            assert rows(branch) == branch_after(before), name
            spark.sql(text.format(t=f"delta.`{(root / 'main' / 't').as_posix()}`"))
            assert rows(main) == after(before), name
            assert rows(branch) == branch_after(before), name
            try:
                main.publish("pr-42")
            except CommitConflict:
                refused.add(name)
                assert rows(main) == after(before), name
                assert rows(branch) == branch_after(before), name
                assert main.discard("pr-42") == ("main.t",)
            else:
                assert rows(main) == branch_after(after(before)), name
            folder = (root / "main" / "t").as_posix()
            by_spark = spark.read.format("delta").load(folder).select("id", "v").collect()
            assert Counter(map(tuple, by_spark)) == rows(main), name
    by_rows = {"delete of other rows", "update"}  # vectors tell which rows of a file changed
    assert refused >= {"delete of the branch's rows", "overwrite", "column", "constraint"}
    assert not refused & {"append", "merge", "vacuum", "property"}
    assert bool(refused & by_rows) == (not layout)
