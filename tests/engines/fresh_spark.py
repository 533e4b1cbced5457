"""Delta tables as a process of its own reads them, which has PySpark and delta-spark and imports nothing of this library.

One process reads all that it is asked for, so that a test starts one JVM. It reads from files alone, with Spark's own checks on.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.engines.spark_checks import CHECKS, QUICK

ROOT = Path(__file__).resolve().parents[2]
IDS = ("_metadata.row_id", "_metadata.row_commit_version")
SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    **{f"spark.databricks.delta.{key}": value for key, value in CHECKS.items()},
}


@dataclass(frozen=True)
class Asked:
    """One reading of a table: its newest version unless one is named, the columns as Spark SQL, and whether rows have ids."""

    location: str
    version: int | None
    columns: Sequence[str]
    names: Sequence[str]
    """Of all its columns."""
    tracked: bool


Rows = list[tuple[Any, ...]]


def read_by_a_fresh_process(asked: Sequence[Asked], folder: Path) -> list[Rows]:
    """The rows of each, and after its columns the id and the version of each row where the table tracks them."""
    folder.mkdir(parents=True, exist_ok=True)
    questions, answers = folder / "asked.json", folder / "rows.pickle"
    questions.write_text(json.dumps([asdict(each) for each in asked]), encoding="utf-8")
    command = [sys.executable, "-m", "tests.engines.fresh_spark", str(questions), str(answers)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"a fresh Spark fails: {done.stdout[-2_000:]}\n{done.stderr[-6_000:]}"
    found: list[Rows] = pickle.loads(answers.read_bytes())
    return found


def _read(spark: Any, asked: Asked) -> Rows:
    reader = spark.read.format("delta")
    if asked.version is not None:
        reader = reader.option("versionAsOf", asked.version)
    frame = reader.load(asked.location)
    assert sorted(frame.columns) == sorted(asked.names), f"{asked} has the columns {frame.columns}"
    return [_plain(row) for row in frame.selectExpr(*asked.columns, *(IDS if asked.tracked else ())).collect()]


def _plain(value: Any) -> Any:
    """A value without PySpark's own classes."""
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def _main(questions: str, answers: str) -> None:
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("fresh")
    for key, value in (SETTINGS | QUICK).items():
        builder = builder.config(key, value)
    spark = configure_spark_with_delta_pip(builder).getOrCreate()
    found = [_read(spark, Asked(**each)) for each in json.loads(Path(questions).read_text(encoding="utf-8"))]
    spark.stop()
    ours = [name for name in sys.modules if name.partition(".")[0] == "duckrun"]
    assert not ours, f"this process has imported {ours}"
    Path(answers).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    _main(*sys.argv[1:])
