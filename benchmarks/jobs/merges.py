"""Merges into lineitem: 1 % and 10 % of it, at random and of the latest orders, and 60,000 of these whatever the table's size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.harness.case import Data, Job, Relations, Run
from benchmarks.harness.duck import delta, parquet, plain
from benchmarks.jobs import lineitem, spark, tuned, warm

SIDES: Mapping[str, Mapping[str, Any]] = {
    "duckrun, vectors": {"merge_mode": "deletion_vectors"},
    "duckrun, copy": {"merge_mode": "copy_on_write"},
}
"""Both ways that rows leave a table, as arguments of a spec."""


def by_duckrun(run: Run, name: str, mixed: bool, how: Mapping[str, Any]) -> Relations:
    import duckrun
    from duckrun import MergeClause, MergeSpec

    clauses = duckrun.MergeSpec(lineitem.KEYS).clauses
    if mixed:
        columns = tuple(_columns(run.data))
        clauses = (
            MergeClause("matched_delete", "source.op = 'delete'"),
            MergeClause("matched_update", columns=columns),
            MergeClause("not_matched_insert", columns=columns),
        )
    warm.duckrun()
    spec = MergeSpec(lineitem.KEYS, clauses, **how)
    with run.clock(), duckrun.connect(run.lake) as s:
        s.execute("main.t", spec, duckrun.SQL(f"SELECT * FROM {parquet(run.data.file(name))}"))
    return {"rows": delta(run.table)}


def by_deltalake(run: Run, name: str, mixed: bool) -> Relations:
    warm.deltalake()
    values = {column: f"source.{column}" for column in _columns(run.data)}
    with run.clock(), plain() as con:
        source = con.sql(f"FROM {parquet(run.data.file(name))}").to_arrow_table()
        merge = tuned.merge(run.table, source, lineitem.same_keys("target", "source"))
        if mixed:
            merge = merge.when_matched_delete("source.op = 'delete'").when_matched_update(values)
            merge.when_not_matched_insert(values).execute()
        else:
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
    return {"rows": delta(run.table)}


def by_spark(run: Run, name: str, mixed: bool) -> Relations:
    session = warm.spark()
    update, insert = "UPDATE SET *", "INSERT *"
    if mixed:
        columns = _columns(run.data)
        update = f"UPDATE SET {', '.join(f'{each} = s.{each}' for each in columns)}"
        insert = f"INSERT ({', '.join(columns)}) VALUES ({', '.join(f's.{each}' for each in columns)})"
    text = f"""MERGE INTO {spark.table(run.table)} AS t USING {spark.rows(run.data.file(name))} AS s
        ON {lineitem.same_keys("t", "s")}
        {"WHEN MATCHED AND s.op = 'delete' THEN DELETE" if mixed else ""}
        WHEN MATCHED THEN {update} WHEN NOT MATCHED THEN {insert}"""
    with run.clock():
        session.sql(text)
    return {"rows": delta(run.table)}


def _columns(data: Data) -> list[str]:
    with plain() as con:
        return con.sql(f"FROM {parquet(data.file(lineitem.NAME))} LIMIT 0").columns


def job(
    name: str, title: str, change: Callable[[Data], str], prepare: Callable[[Data], None], mixed: bool = False
) -> Job:
    """A merge of the file that ``change`` names."""

    def with_file(side: Callable[..., Relations], **named: Any) -> Callable[[Run], Relations]:
        return lambda run: side(run, change(run.data), mixed, **named)

    ours = {title: with_file(by_duckrun, how=how) for title, how in SIDES.items()}
    return Job(
        name,
        title,
        {**ours, "deltalake": with_file(by_deltalake), "Spark": with_file(by_spark)},
        lambda data: {"rows": lineitem.merged_mixed(data) if mixed else lineitem.merged(data, change(data))},
        prepare,
        base=lineitem.NAME,
    )


def _random(percent: int) -> Job:
    return job(
        f"merge-random-{percent}",
        f"Merge of {percent} % random keys",
        lambda data: lineitem.random_name(percent),
        partial(lineitem.prepare_random, percent=percent),
    )


def _recent(percent: int) -> Job:
    return job(
        f"merge-recent-{percent}",
        f"Merge of the latest {percent} %",
        lambda data: lineitem.recent_name(lineitem.recent_rows(data, percent)),
        lambda data: lineitem.prepare_recent(data, lineitem.recent_rows(data, percent)),
    )


JOBS = (
    _random(1),
    _random(10),
    _recent(1),
    _recent(10),
    job(
        "merge-recent-60k",
        "Merge of the latest 60,000 rows, whatever the table's size",
        lambda data: lineitem.recent_name(lineitem.RECENT),
        partial(lineitem.prepare_recent, rows=lineitem.RECENT),
    ),
    job(
        "upsert-deletes",
        "Mixed upsert with deletes, 1 % random keys",
        lambda data: "mixed",
        lineitem.prepare_mixed,
        mixed=True,
    ),
)
