"""Reasons of refusals by a library, where only the text of its error tells them.

Each library has one class of reasons. Nothing else decides by the text of a library's error.
"""

from __future__ import annotations

import re
from enum import Enum


class Refusal(Enum):
    """Reasons of one library. The value of a reason is the pattern of the library's message."""

    def is_of(self, error: object) -> bool:
        """True if a library's error, or its text, has this reason."""
        return re.search(self.value, str(error)) is not None


class DuckDBRefusal(Refusal):
    """Reasons of DuckDB, whose Python errors have a class but no code.

    Read from duckdb 1.5.5: https://github.com/duckdb/duckdb/tree/v1.5.5/src
    """

    FILE_ELSEWHERE = r"/[A-Za-z][A-Za-z0-9+.-]+:/.*\.parquet"
    """A URI appended to a table's folder.

    DuckDB takes each path of a log as relative to the folder, unless it begins with a slash.
    """
    IN_VARIANT = r"Can't convert VARIANT|Type U?INT128 with value"
    """A value that Parquet's VARIANT cannot hold."""
    EMPTY_SELECT = r"SELECT list is empty"
    """A query without columns."""
    PIVOT_IN_VIEW = r"(?i)pivot"
    """PIVOT without a list of values, in a view (``PivotEntryCheck``)."""
    UNNEST_OF_MAP = r"UNNEST\(\) can only be applied to .* not MAP"
    """``UNNEST`` of a map, also as the translation of Spark's ``explode``."""
