"""Error conditions of Spark and Delta. Nothing else decides by the text of a Spark error.

Read from pyspark 4.1.4 and delta-spark 4.4.0:
https://github.com/apache/spark/blob/v4.1.0/common/utils/src/main/resources/error/error-conditions.json
https://github.com/delta-io/delta/blob/master/spark/src/main/resources/error/delta-error-classes.json
"""

from __future__ import annotations

import re

_JAVA_CLASSES = re.compile(r"^[:\s]*(?:(?:Caused by: )?(?:[a-z]\w*\.)+[A-Z][\w$]*(?:: *|$))+")


def without_classes(line: str) -> str:
    """Return a line of a Java error without the names of its classes.

    >>> without_classes(": java.io.IOException: java.net.ConnectException: Connection refused")
    'Connection refused'
    """
    return _JAVA_CLASSES.sub("", line).strip() or line.strip()


def message_of(error: BaseException, condition: str) -> str | None:
    """Return the message of an error condition in one line, with the values that it lists.

    None if the text of the error lacks the condition.
    """
    message = re.search(rf"\[{condition}[\w.]*\] (.*?)(?=SQLSTATE: |\n\s+at |\n\n|\Z)", text_of(error), re.DOTALL)
    return None if message is None else " ".join(message[1].split())


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


def unknown_function(error: BaseException) -> str | None:
    """Return the name of the function that Spark does not know; None for another error."""
    name = re.search(r"routine (\S+)", message_of(error, "UNRESOLVED_ROUTINE") or "")
    return None if name is None else name[1].replace("`", "")
