"""Spark without our code, with the checks on that delta-spark has: it reads from files alone, and what it finds wrong is an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

CHECKS = {
    # A state that is built from files is held against the one that was computed commit by commit, before and after each commit.
    "checksum.mismatch.fatal": "true",
    "incremental.commit.verify": "true",
    "allFilesInCrc.verificationMode.enabled": "true",
    "versionChecksum.forcedValidationInterval": "0",
    "versionChecksum.forcedValidationMinTimeIntevalMinutes": "0",
    # A checkpoint that cannot be read is no reason to take an older one.
    "snapshotLoading.maxRetries": "0",
    "lastCheckpoint.checksum.enabled": "true",
    # What a commit may hold.
    "commitValidation.enabled": "true",
    "commitValidation.consistentDataChange.mode": "fatal",
    "duplicateActionCheck.enabled": "true",
    "emptyFileCheck.throwEnabled": "true",
    "nullPartitionCheck.throwEnabled": "true",
    "failOnPartitionValueParsingError": "true",
    "partitionColumnChangeCheck": "true",
    "columnMapping.checkMaxColumnId": "true",
    "numRecordsValidation.enabled": "true",
    "commandInvariantChecksThrow": "true",
    # Expressions of the table.
    "checkConstraints.validation.enabled": "ASSERT",
    "generatedColumn.validateOnWrite.enabled": "ASSERT",
    # What comes after a commit fails aloud.
    "checkpoint.exceptionThrowing.enabled": "true",
    "postCommitHook.throwOnError": "true",
}
"""Of delta-spark's DeltaSQLConf, all that verify; most are off by default, or log only."""
WITHIN_RETENTION = {
    "vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
    "vacuum.enforceDeletedFileAndLogRetentionDurationCompatibility": "false",
    "retentionDurationCheck.enabled": "false",
}
"""Versions of any age may be read, and files of any age go."""
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""For hundreds of statements on a few rows: no query is compiled."""


def set_to(spark: Any, values: dict[str, str]) -> AbstractContextManager[None]:
    """Settings below spark.databricks.delta for a while."""
    return configured(spark, {f"spark.databricks.delta.{key}": value for key, value in values.items()})


@contextmanager
def configured(spark: Any, values: dict[str, str]) -> Iterator[None]:
    """Settings by their whole names for a while."""
    before = {key: spark.conf.get(key, None) for key in values}
    try:
        for key, value in values.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def forget(spark: Any) -> None:
    """Spark knows no log any more, and reads each anew."""
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def read(spark: Any, path: Path, columns: str = "id, v", *, anew: bool = False) -> list[tuple[Any, ...]]:
    """Rows as Spark reads them without our code, sorted; ``anew`` with the whole log."""
    if anew:
        forget(spark)
    return sorted((tuple(row) for row in spark.sql(f"select {columns} from delta.`{path}`").collect()), key=repr)


def check_skipping(spark: Any, path: Path, conditions: Sequence[str], *, marked: bool = False) -> None:
    """Each condition finds, with the files skipped that statistics say may be, the rows of which it is true.

    These are told by a query that computes the conditions, and filters by none, with skipping off; but not of files with deletion
    vectors (``marked``), which delta-spark does not read then.
    """
    key = "id"
    table = f"delta.`{path}`"
    computed = ", ".join(f"({condition}) as c{n}" for n, condition in enumerate(conditions))
    wanted: dict[int, list[Any]] = {n: [] for n in range(len(conditions))}
    rows: dict[int, list[Any]] = {n: [] for n in range(len(conditions))}
    with set_to(spark, {"stats.skipping": str(marked).lower()}):
        for found, *holds in spark.sql(f"select {key}, {computed} from {table}").collect():
            for n, held in enumerate(holds):
                wanted[n] += [found] if held else []
    with set_to(spark, {"stats.skipping": "true"}):
        for n, found in spark.sql(
            " union all ".join(
                f"select {n} as n, {key} from {table} where {condition}" for n, condition in enumerate(conditions)
            )
        ).collect():
            rows[n].append(found)
    differ = {
        conditions[n]: (sorted(rows[n]), sorted(wanted[n])) for n in wanted if sorted(rows[n]) != sorted(wanted[n])
    }
    assert not differ, f"with files skipped Spark finds (these, and not those): {differ}"


def answers_by_the_log(spark: Any, path: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Count, least and greatest, as Spark answers these from the log where it can, and from the rows."""
    asked = ", ".join(["count(*)", *(f"{f}({column})" for column in columns for f in ("min", "max"))])
    found = []
    for by_log in ("true", "false"):
        with set_to(spark, {"optimizeMetadataQuery.enabled": by_log}):
            found += read(spark, path, asked)
    return found
