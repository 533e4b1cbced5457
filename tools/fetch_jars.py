"""Fetch the jars of Delta and of S3 once, so that no later Spark start waits for a download.

Spark's own resolver (Ivy) fetches them when a session with Delta starts. This starts a temporary
session that also writes and reads a small Delta table, which proves Java, Spark and the jars. If
the jars are present, it returns at once.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import zipfile
from importlib.metadata import version
from pathlib import Path

from duckrun.engines.spark.process.jars import AWS_SDK, HADOOP
from duckrun.spark import STORE_PACKAGES, spark_session, stop_spark_session

TRIES = 4  # the first download of a jar fails now and then; the next try continues from its files
TRY_SECONDS = 600


def present() -> bool:
    """Return True if the jars are present."""
    # Ivy copies to this folder after it has every jar, so the few requested jars stand for all of
    # them.
    delta = version("delta-spark")
    patterns = (
        f"io.delta_delta-spark_*-{delta}.jar",
        f"io.delta_delta-storage-{delta}.jar",
        f"org.apache.hadoop_hadoop-aws-{HADOOP}.jar",
        f"software.amazon.awssdk_sts-{AWS_SDK}.jar",
    )
    folder = Path.home() / ".ivy2.5.2" / "jars"  # Ivy's folder in Spark 4.1
    return all(any(zipfile.is_zipfile(jar) for jar in folder.glob(pattern)) for pattern in patterns)


def start_spark() -> None:
    """Start a session on one core, and write and read one Delta table."""
    with tempfile.TemporaryDirectory() as scratch:
        spark = spark_session(master="local[1]", packages=STORE_PACKAGES["s3"], app_name="fetch-jars")
        spark.range(3).write.format("delta").save(f"{scratch}/table")
        assert spark.read.format("delta").load(f"{scratch}/table").count() == 3
        stop_spark_session()


def main() -> int:
    if present():
        print(f"jars: Delta {version('delta-spark')} and S3 for Spark {version('pyspark')} are here")
        return 0
    for attempt in range(1, TRIES + 1):
        print(f"jars: fetching Delta {version('delta-spark')} and S3 for Spark, try {attempt} of {TRIES}", flush=True)
        # A separate process: a failed start leaves a JVM behind that the next try could not use.
        try:
            done = subprocess.run(
                [sys.executable, __file__, "--once"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=TRY_SECONDS,
            )
            output = done.stdout
            if done.returncode == 0:
                return 0
        except subprocess.TimeoutExpired:
            output = f"no answer in {TRY_SECONDS} seconds"
        if attempt < TRIES:
            time.sleep(5 * 2**attempt)
    print("\n".join(output.splitlines()[-40:]), file=sys.stderr)
    print("jars: Spark could not fetch its jars; its last words are above. Is there a network?", file=sys.stderr)
    return 1


if __name__ == "__main__":
    if "--once" in sys.argv:
        start_spark()
    else:
        sys.exit(main())
