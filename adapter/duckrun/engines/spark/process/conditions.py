"""Error conditions of Spark and Delta. Nothing else decides by the text of a Spark error.

Read from pyspark 4.1.4 and delta-spark 4.4.0:
https://github.com/apache/spark/blob/v4.1.0/common/utils/src/main/resources/error/error-conditions.json
https://github.com/delta-io/delta/blob/master/spark/src/main/resources/error/delta-error-classes.json
"""

from __future__ import annotations


def text_of(error: BaseException) -> str:
    """Return the message of a Spark error, or its class if PySpark cannot build the message."""
    try:
        return str(error)
    except Exception:
        return type(error).__name__


def condition_of(error: BaseException, *known: str) -> str | None:
    """Return the first of some error conditions that a Spark error has; None if it has none.

    PySpark's own answer comes first. The text follows, since the failure of a job has its cause
    there.
    """
    for text in (_condition(error), text_of(error)):
        for condition in known:
            if condition in text:
                return condition
    return None


def _condition(error: BaseException) -> str:
    try:
        return str(error.getCondition() or "")  # type: ignore[attr-defined]
    except Exception:  # not PySpark's, or a condition of Delta's that PySpark cannot build
        return ""
