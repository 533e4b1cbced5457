"""Reads through the session's view, beside `read_parquet` of the same files: without deletion vectors, and with 1 % of the rows
marked.

`read_parquet` knows no vectors: beside a marked table it is a yardstick, and reads all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.harness.case import Data, Job, Relations, Run
from benchmarks.harness.duck import delta, parquet, plain
from benchmarks.jobs import lineitem, spark, warm

QUERIES = {
    "one column": "SELECT sum(l_extendedprice) AS total FROM {t}",
    "filter": """SELECT sum(l_extendedprice * l_discount) AS total FROM {t} WHERE l_shipdate >= DATE '1994-01-01'
        AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    "groups": """SELECT l_returnflag, l_linestatus, sum(l_quantity) AS quantity, sum(l_extendedprice) AS price,
        sum(l_extendedprice * (1 - l_discount)) AS discounted, count(*) AS n FROM {t}
        WHERE l_shipdate <= DATE '1998-09-02' GROUP BY ALL""",
}
"""A scan of one column, and TPC-H's queries 6 and 1 with exact sums only."""
ALL_ROWS = "all rows, "
LAPS = 7


def _measure(run: Run, ask: Callable[[str], Any], called: str = "") -> Relations:
    """Each query seven times after one that is not counted; what it gave, as files. ``ask`` gives an Arrow table."""
    import pyarrow.parquet as pq

    found = {}
    for label, text in QUERIES.items():
        rows = ask(text)
        for _ in range(LAPS):
            with run.clock(label):
                ask(text)
        file = run.lake / f"{label}.parquet"
        pq.write_table(rows, file)
        found[called + label] = parquet(file)
    return found


def by_duckrun(run: Run) -> Relations:
    import duckrun

    with duckrun.connect(run.lake) as s:
        return _measure(run, lambda text: s.sql(text.format(t="main.t")).toArrow())


def by_read_parquet(run: Run, called: str = "") -> Relations:
    with plain() as con:
        files = parquet(f"{run.table.as_posix()}/*.parquet")
        return _measure(run, lambda text: con.sql(text.format(t=files)).to_arrow_table(), called)


def by_delta_scan(run: Run) -> Relations:
    with plain("delta") as con:
        return _measure(run, lambda text: con.sql(text.format(t=delta(run.table))).to_arrow_table())


def by_deltalake(run: Run) -> Relations:
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    engine = QueryBuilder().register("t", DeltaTable(str(run.table)))

    def ask(text: str) -> Any:
        # DataFusion has no GROUP BY ALL.
        text = text.format(t="t").replace("GROUP BY ALL", "GROUP BY l_returnflag, l_linestatus")
        return pa.table(engine.execute(text).read_all())

    return _measure(run, ask)


def by_spark(run: Run) -> Relations:
    session = warm.spark()
    return _measure(run, lambda text: session.sql(text.format(t=spark.table(run.table))).toArrow())


def _expected(data: Data, live: str) -> Relations:
    rows = f"(SELECT * FROM {parquet(data.file(lineitem.NAME))} WHERE {live})"
    everything = parquet(data.file(lineitem.NAME))
    return {
        **{label: f"({text.format(t=rows)})" for label, text in QUERIES.items()},
        **{ALL_ROWS + label: f"({text.format(t=everything)})" for label, text in QUERIES.items()},
    }


JOBS = (
    Job(
        "read",
        "Reads of a table without vectors",
        {
            "duckrun": by_duckrun,
            "read_parquet": by_read_parquet,
            "delta_scan": by_delta_scan,
            "deltalake": by_deltalake,
            "Spark": by_spark,
        },
        lambda data: _expected(data, "true"),
        lineitem.prepare_base,
        base=lineitem.NAME,
    ),
    Job(
        "read-marked",
        "Reads of a table with 1 % of its rows marked by vectors",
        {
            "duckrun": by_duckrun,
            "read_parquet": lambda run: by_read_parquet(run, ALL_ROWS),
            "delta_scan": by_delta_scan,
            "deltalake": by_deltalake,
            "Spark": by_spark,
        },
        lambda data: _expected(data, f"NOT ({lineitem.GONE})"),
        lineitem.prepare_marked,
        base=lineitem.MARKED,
    ),
)
