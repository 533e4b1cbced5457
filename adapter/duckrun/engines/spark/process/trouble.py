"""Failures of Spark jobs that have causes outside the table: user code, memory, jars, paths.

Spark reports them as long Java traces. These functions find the few lines that tell what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from duckrun.engines.spark.process.conditions import without_classes
from duckrun.engines.spark.process.jars import STORE_PACKAGES
from duckrun.errors import DuckrunError, FunctionFailed, InvalidConfig, StorageError
from duckrun.storage.trouble import storage_error

_TRACEBACK = "Traceback (most recent call last):"
_JAVA_FRAME = re.compile(
    r"^\s*(at [\w.$]+\(|at \S+/[\w.$]+|\.\.\. \d+ more|Caused by: |Driver stacktrace|JVM stacktrace)"
)
_OF_PYSPARK = re.compile(r'File "[^"]*[/\\](pyspark|pyspark\.zip)[/\\]')
_MEMORY = (
    "OutOfMemoryError",
    "Java heap space",
    "GC overhead limit exceeded",
    "exceeding physical memory limits",
    "exceeding memory limits",
    # An executor that died without a reason, and one that got a task while it died.
    "containers exceeding thresholds",
    "RejectedExecutionException: Task org.apache.spark.executor.Executor$TaskRunner",
    "OOMKilled",
    "exit code 137",
    "exited with code 137",
    "exited with code 52",
    "(crashed) with exit code 52",
    "UNABLE_TO_ACQUIRE_MEMORY",
)
_OTHER_VERSION = (
    "InvalidClassException",
    "local class incompatible",
    "NoSuchMethodError",
    "IncompatibleClassChangeError",
    "All masters are unresponsive",
)
_MISSING_CLASS = re.compile(
    r"(?:ClassNotFoundException|NoClassDefFoundError|Class|Cannot find catalog plugin class)[^\n]*"
)
_UNSEEN = ("FileNotFoundException", "PATH_NOT_FOUND", "FILE_NOT_EXIST", "NoSuchFileException")


def trouble(text: str, what: str) -> DuckrunError | None:
    """Return a job's failure as one of our errors; None if Spark's own words suffice.

    Args:
        what: Start of the message: the action and the table.
    """
    python = python_traceback(text)
    if python is not None:
        return FunctionFailed(f"{what}: a Python function raised on one of Spark's workers", detail=python)
    if any(sign in text for sign in _MEMORY):
        return InvalidConfig(
            f"{what}: an executor of Spark ran out of memory, or was lost as if it had ({_line_with(text, _MEMORY)})",
            remedy=(
                "Give it more (conf spark.executor.memory, or spark.driver.memory with a local "
                "master; spark.executor.memoryOverhead for Python), or less at a time (a higher "
                "spark.sql.shuffle.partitions, fewer spark.executor.cores)"
            ),
        )
    store = _missing_store(text)
    if store is not None:
        return InvalidConfig(f"{what}: this Spark has no jars for {store}")
    if "Task not serializable" in text and "delta" in text:
        return InvalidConfig(
            f"{what}: Spark cannot send the plan of its own statement to its workers (Task not serializable), a "
            "fault of Spark or Delta",
            remedy="Run this with engine: duckdb, or in smaller statements",
        )
    missing = " ".join(_MISSING_CLASS.findall(text))
    if (
        "DATA_SOURCE_NOT_FOUND" in text
        and "delta" in text.lower()
        or "io.delta." in missing
        or "spark.sql.delta" in missing
    ):
        return InvalidConfig(
            f"{what}: this Spark has no Delta jars. Let duckrun's session factory add them (without "
            "duckrun.jars=provided), or put delta-spark and delta-storage on the cluster, of the versions that "
            "docs/spark.md names."
        )
    if any(sign in text for sign in _OTHER_VERSION):
        return InvalidConfig(
            f"{what}: this PySpark and the cluster seem to be of different versions "
            f"({_line_with(text, _OTHER_VERSION)})",
            remedy="Install the cluster's version of pyspark here, or the other way round",
        )
    if any(sign in text for sign in _UNSEEN):
        return StorageError(
            f"{what}: Spark does not see a file ({_line_with(text, _UNSEEN)}). If its workers are other machines, put "
            "the lake where all of them mount it at the same path, or into an object store."
        )
    return storage_error(text, what)


def python_traceback(text: str) -> str | None:
    r"""Return the Python part of a worker's error, without frames of Java and PySpark.

    None if there is none.

    >>> text = 'x\nTraceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: 3'
    >>> print(python_traceback(text + '\n\n\tat org.a(B.java)'))
    Traceback (most recent call last):
      File "a.py", line 1, in f
    KeyError: 3
    """
    start = text.rfind(_TRACEBACK)
    if start < 0:
        return None
    lines = []
    for line in text[start:].splitlines():
        if _JAVA_FRAME.match(line):
            break
        lines.append(line)
    return "\n".join(_without_pyspark(lines)).strip()


def _without_pyspark(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a traceback without PySpark's frames."""
    # A frame is a line that names a file, and the more deeply indented lines after it.
    skipping = False
    for line in lines:
        if line.startswith('  File "'):
            skipping = bool(_OF_PYSPARK.search(line))
        elif not line.startswith("    "):
            skipping = False
        if not skipping:
            yield line


def _missing_store(text: str) -> str | None:
    if "S3AFileSystem not found" in text or ("No FileSystem for scheme" in text and "s3a" in text):
        return f"s3:// (packages={list(STORE_PACKAGES['s3'])} when the session starts)"
    if "AzureBlobFileSystem not found" in text or ("No FileSystem for scheme" in text and "abfss" in text):
        return f"abfss:// and az:// (packages={list(STORE_PACKAGES['azure'])} when the session starts)"
    if "GoogleHadoopFileSystem not found" in text or ("No FileSystem for scheme" in text and '"gs"' in text):
        return "gs:// (conf spark.jars with Google's gcs-connector, the jar called shaded, when the session starts)"
    return None


def _line_with(text: str, signs: tuple[str, ...]) -> str:
    """Return the first line that contains one of these, cut to fit a message."""
    line = next(line for line in text.splitlines() if any(sign in line for sign in signs))
    return " ".join(without_classes(line).split())[:300]
