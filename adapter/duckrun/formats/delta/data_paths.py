"""The path of a data file as the log spells it.

A log's path is a URI, relative to the table's folder or absolute (Delta protocol, Add File and Remove File). Writers escape
different characters of it, and a remove counts only if it is spelled as the add was, letter by letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from duckrun.values.data_files import is_absolute
from duckrun.values.rows import ScanFile

_SAFE = "/!$&'()*+,;=:@~"
# What deltalake spells as it found it (measured with 1.6.6): of all else its removes may miss their files.
_KEPT = re.compile(r"(?:[A-Za-z0-9_.=/+,;:@&$!()'~-]|%(?:2[0235A]|3[CEF]|5[BCDE]|60|7[BCD]|[89A-F][0-9A-F]))*")


def encoded(path: str) -> str:
    """How a new file is called in the log."""
    return quote(path, safe=_SAFE)


def decoded(path: str) -> str:
    """The path that a log's URI stands for."""
    return unquote(path)


def spelled(file: ScanFile) -> str:
    """How the log calls a file: its own letters, for one that is in it."""
    return file.spelled or encoded(file.path)


def respelled(files: Iterable[ScanFile]) -> ScanFile | None:
    """A file that deltalake would remove by another name than the log's, so that it stayed; None where there is none."""
    return next((file for file in files if not _KEPT.fullmatch(spelled(file)) or is_absolute(file.path)), None)
