"""The Spark engine beside plain delta-spark: the same frames, written, appended, merged and read in a session of the same settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness.case import Data, Job, Relations, Run
from benchmarks.harness.duck import delta
from benchmarks.jobs import spark, warm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2_000_000
LAPS = 5
PART = 100_000
"""Rows of an append."""
DAYS = 365
COLUMNS = ("id", "id % 1000 AS customer", "id * 0.5D AS price", "concat('note ', id) AS note")
DAYS_COLUMNS = ("id", "date_add(date'2023-01-01', CAST(id % 365 AS INT)) AS day", "id * 0.5D AS price")
READ = "SELECT customer, count(*) AS n, sum(price) AS total FROM {t} GROUP BY customer"
YEAR = "day >= date'2023-01-01' AND day <= date'2023-12-31'"  # delta-spark 4.4 fails at BETWEEN in replaceWhere


def _rows(session: SparkSession, start: int, count: int, columns: tuple[str, ...] = COLUMNS) -> DataFrame:
    return session.range(start, start + count, 1, 2).selectExpr(*columns)


def _changes(session: SparkSession, data: Data, lap: int) -> DataFrame:
    """A hundredth of the rows with another note, and a tenth as many new ones."""
    whole = data.count(ROWS)
    changed = session.range(lap, whole, 100, 2)
    new = session.range(10 * whole + lap * whole, 10 * whole + lap * whole + whole // 1000, 1, 1)
    return changed.union(new).selectExpr("id", "id % 1000 AS customer", "id * 0.5D AS price", f"'merge {lap}' AS note")


def by_duckrun(run: Run) -> Relations:
    import duckrun
    from duckrun import MergeSpec, WriteSpec

    session, whole, part = warm.spark(), run.data.count(ROWS), run.data.count(PART)
    with duckrun.connect(run.lake, engine="spark", spark=session) as s:
        s.execute("main.warm", WriteSpec("overwrite"), _rows(session, 0, 10))
        s.execute("main.warm", MergeSpec(("id",)), _rows(session, 0, 10))
        for _ in range(LAPS):
            with run.clock("write"):
                s.execute("main.t", WriteSpec("overwrite"), _rows(session, 0, whole))
        for lap in range(LAPS):
            with run.clock("append"):
                s.execute("main.t", WriteSpec("append"), _rows(session, whole + lap * part, part))
        for lap in range(LAPS):
            with run.clock("merge"):
                s.execute("main.t", MergeSpec(("id",)), _changes(session, run.data, lap))
        for _ in range(LAPS):
            with run.clock("query"):
                s.sql(READ.format(t="main.t")).collect()
    return {"rows": delta(run.table)}


def by_delta_spark(run: Run) -> Relations:
    from delta.tables import DeltaTable

    session, whole, part = warm.spark(), run.data.count(ROWS), run.data.count(PART)
    folder = run.table.as_posix()
    # Tables of the Spark engine have deletion vectors.
    session.conf.set("spark.databricks.delta.properties.defaults.enableDeletionVectors", "true")
    for _ in range(LAPS):
        with run.clock("write"):
            _rows(session, 0, whole).write.format("delta").mode("overwrite").save(folder)
    for lap in range(LAPS):
        with run.clock("append"):
            _rows(session, whole + lap * part, part).write.format("delta").mode("append").save(folder)
    for lap in range(LAPS):
        with run.clock("merge"):
            merge = DeltaTable.forPath(session, folder).alias("t")
            merge = merge.merge(_changes(session, run.data, lap).alias("s"), "t.id = s.id")
            merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    for _ in range(LAPS):
        with run.clock("query"):
            session.sql(READ.format(t=spark.table(run.table))).toArrow()
    return {"rows": delta(run.table)}


def _expected(data: Data) -> Relations:
    """A plain model: the last merge of a key counts."""
    whole, new = data.count(ROWS), data.count(ROWS) // 1000
    notes = (
        f"CASE WHEN range < {whole} AND range % 100 < {LAPS} THEN 'merge ' || (range % 100) ELSE 'note ' || range END"
    )
    columns = "range AS id, range % 1000 AS customer, range * 0.5::DOUBLE AS price"
    inserted = " UNION ALL ".join(
        f"SELECT {columns}, 'merge {lap}' AS note FROM range({10 * whole + lap * whole}, {10 * whole + lap * whole + new})"
        for lap in range(LAPS)
    )
    kept = f"SELECT {columns}, {notes} AS note FROM range({whole + LAPS * data.count(PART)})"
    return {"rows": f"({kept} UNION ALL {inserted})"}


# -- a year of partitions in one commit, beside the same rows without partitions


def year_by_duckrun(run: Run) -> Relations:
    import duckrun
    from duckrun import WriteSpec

    session = warm.spark()
    frame = _rows(session, 0, run.data.count(ROWS), DAYS_COLUMNS)
    with duckrun.connect(run.lake, engine="spark", spark=session) as s:
        s.execute("main.t", WriteSpec("overwrite", partition_by=("day",)), frame)
        for _ in range(LAPS):
            with run.clock("one table"):
                s.execute("main.plain", WriteSpec("overwrite"), frame)
            with run.clock("365 partitions"):
                s.execute("main.t", WriteSpec("replace", predicate=YEAR), frame)
    return {"rows": delta(run.table)}


def year_by_delta_spark(run: Run) -> Relations:
    session = warm.spark()
    frame = _rows(session, 0, run.data.count(ROWS), DAYS_COLUMNS)
    folder, plain = run.table.as_posix(), run.table.with_name("plain").as_posix()
    frame.write.format("delta").partitionBy("day").save(folder)
    for _ in range(LAPS):
        with run.clock("one table"):
            frame.write.format("delta").mode("overwrite").save(plain)
        with run.clock("365 partitions"):
            frame.write.format("delta").mode("overwrite").option("replaceWhere", YEAR).save(folder)
    return {"rows": delta(run.table)}


def _year(data: Data) -> Relations:
    days = "CAST(DATE '2023-01-01' + CAST(range % 365 AS INTEGER) AS DATE)"
    return {"rows": f"(SELECT range AS id, {days} AS day, range * 0.5::DOUBLE AS price FROM range({data.count(ROWS)}))"}


JOBS = (
    Job(
        "spark-engine",
        "The Spark engine: 2 million rows written, 100,000 appended, 1 % merged",
        {"duckrun": by_duckrun, "delta-spark": by_delta_spark},
        _expected,
        scaled=False,
    ),
    Job(
        "spark-year",
        "The Spark engine: a year of partitions replaced in one commit",
        {"duckrun": year_by_duckrun, "delta-spark": year_by_delta_spark},
        _year,
        scaled=False,
    ),
)
