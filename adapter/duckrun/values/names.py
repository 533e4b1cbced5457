"""Encoding of names as folders, and of folders as URLs: the only module that does either.

DuckDB, delta_rs, obstore and Spark each decode a path in their own way. All of them read a
percent-encoded URL as the same folder, with one exception. The Delta kernel, which DuckDB and
delta_rs share, decodes the folders of a log twice, so that it reads the folder ``%41`` as ``A``. A
folder of a table therefore never holds such a sequence: ``%`` becomes ``%x25`` in a name.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote

_DECODED = re.compile(r"%(?=[0-9A-Fa-f]{2}|x25)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST = 240  # bytes: 255 less what a definition file and its unfinished copy have after the name


RESERVED = "_duckrun"
"""Folder in a lake or schema for everything but tables: definitions, locks, notes of consumers."""
DROPPED = "_duckrun_dropped_"
"""Prefix of the folder of a table whose removal is under way."""


# Cached: each look-up of a table in its lake asks for the same few folders.
@lru_cache(maxsize=1024)
def folder_of(name: str) -> str:
    """Return the folder of a schema or table: the name, escaped where the kernel decodes.

    >>> folder_of("100% a b"), folder_of("x%41"), folder_of("x%x25")
    ('100% a b', 'x%x2541', 'x%x25x25')
    """
    return _DECODED.sub("%x25", name)


def name_of(folder: str) -> str | None:
    """Return the name of a folder.

    None if no name has this folder, so that it is no schema or table.

    >>> name_of("x%x2541"), name_of("x%41")
    ('x%41', None)
    """
    name = folder.replace("%x25", "%")
    return name if why_no_name(name) is None and folder_of(name) == folder else None


def why_no_name(name: str) -> str | None:
    """Return why a text cannot be a name, as the end of a sentence; None if it can."""
    if not name or name in (".", ".."):
        return "is not a folder's name"
    if _CONTROL.search(name):
        return "holds a control character, such as a newline or a tab"
    if "/" in name or "\\" in name:
        return "holds a slash: a name is one folder below the root"
    if name.startswith(("_", ".")):
        return "starts with an underscore or a dot, as hidden folders do"
    try:
        size = len(folder_of(name).encode())
    except UnicodeEncodeError:
        return "is no Unicode text"
    if size > _LONGEST:
        return (
            f"has {size} bytes as a folder, and {_LONGEST} is the most that a file system takes with what "
            "stands beside it"
        )
    return None


def why_no_location(location: str) -> str | None:
    """Return why a path or URL cannot be a root or location, as the end of a sentence.

    None if it can.
    """
    decoded = re.search(r"%[0-9A-Fa-f]{2}", location)
    if decoded is not None:
        return (
            f"holds {decoded[0]}, which DuckDB and delta_rs take for another character, so that they "
            "would read another folder: "
            "write the character itself, or rename the folder"
        )
    if _CONTROL.search(location):
        return "holds a control character, such as a newline or a tab, which delta_rs cannot open"
    if "?" in location and "://" in location:
        return "holds a ?, after which DuckDB reads the options of a URL"
    return None


def url_of(location: str) -> str:
    """Return a location as a percent-encoded URL, the same to delta_scan(), delta_rs and obstore.

    DuckDB's delta_scan() cuts trailing non-ASCII bytes off a plain path, until a release has
    duckdb/duckdb#24482. It also passes a plain ``%`` to printf.

    >>> url_of("/lake/main/100% é"), url_of("s3://bucket/main/a#b")
    ('file:///lake/main/100%25%20%C3%A9', 's3://bucket/main/a%23b')
    """
    if "://" not in location:
        return "file://" + quote(location)
    scheme, _, rest = location.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}://{place}{slash}{quote(path)}"


def writable_by_delta_rs(location: str) -> bool:
    """False for a local folder where delta_rs panics: it parses the path as a host."""
    return "://" in location or not re.search(r"[\[\]^|\\]", location)
