"""What differs between installations: optional packages are looked at here only, and never imported to find out."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from duckrun.errors import InvalidConfig


def has_pyspark() -> bool:
    """Whether the extra ``spark`` is installed. Importing pyspark takes half a second, so it is not imported."""
    return find_spec("pyspark") is not None


def require_pyspark(what: str) -> None:
    """Raises InvalidConfig with the extra to install, if ``what`` cannot work without it."""
    if not has_pyspark():
        raise InvalidConfig(f"{what} needs PySpark: pip install 'duckrun-dagster[spark]'.")


def is_spark_frame_type(declared: Any) -> bool:
    """Whether a type is PySpark's DataFrame, classic or Connect, which are classes of two modules.

    Looked up by name: whoever declares that type has imported pyspark already, everybody else need not.
    """
    return isinstance(declared, type) and any(
        base.__module__.startswith("pyspark.sql.") and base.__name__ == "DataFrame" for base in declared.__mro__
    )
