"""Ten million rows of a polars frame: written, without Dagster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness.case import Data, Job, Relations, Run
from benchmarks.harness.duck import delta, parquet

if TYPE_CHECKING:
    import polars as pl

ROWS = 10_000_000


def frame(rows: int) -> pl.DataFrame:
    """Numbers, a text of few values, a text of many, a date and a float that binary has exactly, the same every time."""
    import polars as pl

    number = pl.int_range(rows, eager=True)
    return pl.DataFrame(
        {
            "id": number,
            "amount": (number * 7919 % 100_003) / 4,
            "carrier": (number % 16).cast(pl.String),
            "note": "row " + (number * 2_654_435_761 % 1_000_003).cast(pl.String),
            "day": (number % 365).cast(pl.Int32).cast(pl.Date),
        }
    )


def expected(rows: int) -> str:
    """SQL for the same rows."""
    return f"""(SELECT range AS id, (range * 7919 % 100003) / 4 AS amount, CAST(range % 16 AS VARCHAR) AS carrier,
        'row ' || (range * 2654435761 % 1000003) AS note, DATE '1970-01-01' + CAST(range % 365 AS INTEGER) AS day
        FROM range({rows}))"""


def by_duckrun(run: Run) -> Relations:
    import duckrun

    rows = frame(run.data.count(ROWS))
    with duckrun.connect(run.lake) as s:
        s.execute("main.first", duckrun.WriteSpec("error"), frame(10))  # for the imports
        with run.clock():
            s.execute("main.t", duckrun.WriteSpec("error"), rows)
    return {"rows": delta(run.table)}


def by_deltalake(run: Run) -> Relations:
    from deltalake import write_deltalake

    rows = frame(run.data.count(ROWS))
    write_deltalake(str(run.lake / "main" / "first"), frame(10))
    with run.clock():
        write_deltalake(str(run.table), rows)
    return {"rows": delta(run.table)}


def by_copy(run: Run) -> Relations:
    """DuckDB's COPY of the same Arrow data, and no table made of it."""
    import duckdb

    rows = frame(run.data.count(ROWS)).to_arrow()
    file = run.lake / "rows.parquet"
    with duckdb.connect() as con:
        con.register("first", frame(10).to_arrow())
        con.register("rows", rows)
        with run.clock():
            con.execute(f"COPY rows TO '{file.as_posix()}' (FORMAT parquet, COMPRESSION snappy, RETURN_STATS)")
    return {"rows": parquet(file)}


def _expected(data: Data) -> Relations:
    return {"rows": expected(data.count(ROWS))}


JOBS = (
    Job(
        "polars-write",
        "10 million polars rows, without Dagster",
        {"duckrun": by_duckrun, "deltalake": by_deltalake, "DuckDB COPY": by_copy},
        _expected,
        scaled=False,
    ),
)
