"""A whole table written from a query."""

from __future__ import annotations

from benchmarks.harness.case import Data, Job, Relations, Run
from benchmarks.harness.duck import delta, parquet, plain
from benchmarks.jobs import lineitem, tuned, warm


def _query(data: Data) -> str:
    return f"SELECT * FROM {parquet(data.file(lineitem.NAME))}"


def by_duckrun(run: Run) -> Relations:
    import duckrun

    warm.duckrun()
    with run.clock(), duckrun.connect(run.lake) as s:
        s.execute("main.t", duckrun.WriteSpec("error"), duckrun.SQL(_query(run.data)))
    return {"rows": delta(run.table)}


def by_copy(run: Run) -> Relations:
    """DuckDB's COPY of the same query with the options that the writer gives it, and no table made of it."""
    import duckdb

    file = run.lake / "rows.parquet"
    with run.clock(), duckdb.connect() as con:
        con.execute(
            f"COPY ({_query(run.data)}) TO '{file.as_posix()}' (FORMAT parquet, COMPRESSION snappy, RETURN_STATS)"
        )
    return {"rows": parquet(file)}


def by_deltalake(run: Run) -> Relations:
    warm.deltalake()
    with run.clock(), plain() as con:
        tuned.write(run.table, con.sql(_query(run.data)).to_arrow_reader(100_000))
    return {"rows": delta(run.table)}


def by_spark(run: Run) -> Relations:
    session = warm.spark()
    with run.clock():
        session.read.parquet(run.data.file(lineitem.NAME)).write.format("delta").save(str(run.table))
    return {"rows": delta(run.table)}


JOBS = (
    Job(
        "write",
        "Full write of `lineitem` from SQL",
        {
            "duckrun": by_duckrun,
            "DuckDB COPY": by_copy,
            "deltalake": by_deltalake,
            "Spark": by_spark,
        },
        lambda data: {"rows": parquet(data.file(lineitem.NAME))},
        lineitem.prepare,
    ),
)
