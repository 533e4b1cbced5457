"""What each side does before the clock starts: ten rows written and merged elsewhere, so that imports, extensions and classes are
loaded.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.jobs import tuned


@contextmanager
def _elsewhere() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def duckrun() -> None:
    import duckrun
    from duckrun import SQL, DeleteSpec, MergeSpec, WriteSpec

    rows = SQL("SELECT range AS id, 'row' AS note FROM range(10)")
    with _elsewhere() as folder, duckrun.connect(folder) as s:
        s.execute("main.t", WriteSpec("error"), rows)
        s.execute("main.t", MergeSpec(("id",), merge_mode="deletion_vectors"), rows)
        s.execute("main.t", DeleteSpec("id = 3"))
        s.sql("SELECT count(*) FROM main.t").collect()


def deltalake() -> None:
    import duckdb

    rows = duckdb.sql("SELECT range AS id, 'row' AS note FROM range(10)").to_arrow_table()
    with _elsewhere() as folder:
        tuned.write(folder, rows)
        merge = tuned.merge(folder, rows, "target.id = source.id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()


def spark() -> Any:
    """A session with Delta on both cores."""
    from duckrun.spark import spark_session

    session = spark_session(master="local[2]", conf={"spark.driver.memory": "6g"})
    with _elsewhere() as folder:
        session.range(10).write.format("delta").mode("append").save(folder.as_posix())
        session.sql(
            f"MERGE INTO delta.`{folder.as_posix()}` AS t USING (SELECT * FROM range(10)) AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
        )
    return session
