"""Location of a data file: inside the table's folder, or elsewhere as in a shallow clone."""

from __future__ import annotations

import re

from duckrun.values.rows import ScanFile

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def is_absolute(path: str) -> bool:
    """True if the log names the file by an absolute path, as shallow clones do.

    >>> [is_absolute(path) for path in ("/a.parquet", "file:/a.parquet", "p=a:b/a.parquet")]
    [True, True, False]
    """
    return path.startswith("/") or _SCHEME.match(path) is not None


def place_of(location: str, file: ScanFile) -> str:
    """Return the ``filename`` that DuckDB reports for the rows of a file of a table."""
    if not is_absolute(file.path):
        return f"{location}/{file.path}"
    return re.sub(r"^file:/+", "/", file.path)


def literally(place: str) -> str:
    """Escape a path so that read_parquet() does not treat it as a glob pattern.

    >>> literally("/lake/a[1]*.parquet")
    '/lake/a[[]1][*].parquet'
    """
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in place)
