"""Path of a data file as the log spells it.

A path in the log is a URI, absolute or relative to the table's folder (Delta protocol, Add File and
Remove File). Writers escape different characters. A remove only counts if it spells the path
exactly like the add.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from duckrun.values.data_files import is_absolute
from duckrun.values.rows import ScanFile

_SAFE = "/!$&'()*+,;=:@~"
# Paths that deltalake spells unchanged (measured with 1.6.6). Its removes may miss any others.
_KEPT = re.compile(r"(?:[A-Za-z0-9_.=/+,;:@&$!()'~-]|%(?:2[0235A]|3[CEF]|5[BCDE]|60|7[BCD]|[89A-F][0-9A-F]))*")


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
