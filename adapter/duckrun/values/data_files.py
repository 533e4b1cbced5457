"""Path of a data file, as the log spells it and where DuckDB finds it.

A path in the log is a URI, relative to the table's folder, or absolute as in a shallow clone.
Writers escape different characters. A remove only counts if it spells the path exactly like the
add. Source: Delta protocol, Add File and Remove File.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from duckrun.values.rows import ScanFile

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_SAFE = "/!$&'()*+,;=:@~"
# Paths that deltalake spells unchanged (measured with 1.6.6). Its removes may miss any others.
_KEPT = re.compile(r"(?:[A-Za-z0-9_.=/+,;:@&$!()'~-]|%(?:2[0235A]|3[CEF]|5[BCDE]|60|7[BCD]|[89A-F][0-9A-F]))*")


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


# -- spelling in the log


def encoded(path: str) -> str:
    """Return the path of a new file as the log spells it."""
    return quote(path, safe=_SAFE)


def decoded(path: str) -> str:
    """Return the path that a URI of the log stands for."""
    return unquote(path)


def spelled(file: ScanFile) -> str:
    """Return the path of a file as the log spells it."""
    return file.spelled or encoded(file.path)


def respelled(files: Iterable[ScanFile]) -> ScanFile | None:
    """Return a file whose remove by deltalake would be spelled differently and fail, if any."""
    return next((file for file in files if not _KEPT.fullmatch(spelled(file)) or is_absolute(file.path)), None)
