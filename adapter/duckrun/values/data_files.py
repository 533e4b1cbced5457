"""Where a data file lies: in the folder of its table, or elsewhere, as those of a shallow clone do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from duckrun.values.rows import ScanFile

if TYPE_CHECKING:
    from duckrun.values.snapshot import TableRef

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def is_absolute(path: str) -> bool:
    """True for a file that the log names by more than its place in the table's folder, as shallow clones do.

    >>> is_absolute("/data/a.parquet"), is_absolute("file:/data/a.parquet"), is_absolute("p=a:b/a.parquet")
    (True, True, False)
    """
    return path.startswith("/") or _SCHEME.match(path) is not None


def place(ref: TableRef, file: ScanFile) -> str:
    """What DuckDB's ``filename`` says of the rows of a file."""
    return place_of(ref.location, file)


def place_of(location: str, file: ScanFile) -> str:
    """The same, by where the table lies."""
    if not is_absolute(file.path):
        return f"{location}/{file.path}"
    return re.sub(r"^file:/+", "/", file.path)


def literally(place: str) -> str:
    """A place that read_parquet() takes letter by letter, and not for a pattern.

    >>> literally("/lake/a[1]*.parquet")
    '/lake/a[[]1][*].parquet'
    """
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in place)
