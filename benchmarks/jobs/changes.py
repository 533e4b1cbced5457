"""Rows deleted and updated by a predicate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.harness.case import Data, Job, Relations, Run
from benchmarks.harness.duck import delta, parquet
from benchmarks.jobs import lineitem, spark, tuned, warm
from benchmarks.jobs.merges import SIDES

DELETED = "l_shipdate >= DATE '1995-03-01' AND l_shipdate < DATE '1995-04-01'"
"""A month of seven years, in all the files, as they are in order of the keys."""
UPDATED = "l_suppkey % 100 = 7"
COLUMN, VALUE = "l_comment", "'changed'"


def delete_by_duckrun(run: Run, how: Mapping[str, Any]) -> Relations:
    import duckrun

    warm.duckrun()
    with run.clock(), duckrun.connect(run.lake) as s:
        s.execute("main.t", duckrun.DeleteSpec(DELETED, **how))
    return {"rows": delta(run.table)}


def update_by_duckrun(run: Run, how: Mapping[str, Any]) -> Relations:
    import duckrun

    warm.duckrun()
    with run.clock(), duckrun.connect(run.lake) as s:
        s.execute("main.t", duckrun.UpdateSpec({COLUMN: VALUE}, UPDATED, **how))
    return {"rows": delta(run.table)}


def delete_by_deltalake(run: Run) -> Relations:
    from deltalake import DeltaTable

    warm.deltalake()
    with run.clock():
        DeltaTable(str(run.table)).delete(DELETED, writer_properties=tuned.properties())
    return {"rows": delta(run.table)}


def update_by_deltalake(run: Run) -> Relations:
    from deltalake import DeltaTable

    warm.deltalake()
    with run.clock():
        DeltaTable(str(run.table)).update({COLUMN: VALUE}, predicate=UPDATED, writer_properties=tuned.properties())
    return {"rows": delta(run.table)}


def by_spark(run: Run, text: str) -> Relations:
    session = warm.spark()
    with run.clock():
        session.sql(text.format(table=spark.table(run.table)))
    return {"rows": delta(run.table)}


def _deleted(data: Data) -> str:
    return f"(SELECT * FROM {parquet(data.file(lineitem.NAME))} WHERE NOT ({DELETED}))"


def _updated(data: Data) -> str:
    value = f"CASE WHEN {UPDATED} THEN {VALUE} ELSE {COLUMN} END AS {COLUMN}"
    return f"(SELECT * REPLACE ({value}) FROM {parquet(data.file(lineitem.NAME))})"


def _job(
    name: str,
    title: str,
    ours: Callable[..., Relations],
    deltalake: Callable[[Run], Relations],
    text: str,
    expected: Callable[[Data], str],
) -> Job:
    def of(how: Mapping[str, Any]) -> Callable[[Run], Relations]:
        return lambda run: ours(run, how)

    sides = {side: of(how) for side, how in SIDES.items()}
    return Job(
        name,
        title,
        {**sides, "deltalake": deltalake, "Spark": lambda run: by_spark(run, text)},
        lambda data: {"rows": expected(data)},
        lineitem.prepare_base,
        base=lineitem.NAME,
    )


JOBS = (
    _job(
        "delete",
        "Delete of one month (1.2 %) by a predicate",
        delete_by_duckrun,
        delete_by_deltalake,
        f"DELETE FROM {{table}} WHERE {DELETED}",
        _deleted,
    ),
    _job(
        "update",
        "Update of 1 % by a predicate",
        update_by_duckrun,
        update_by_deltalake,
        f"UPDATE {{table}} SET {COLUMN} = {VALUE} WHERE {UPDATED}",
        _updated,
    ),
)
