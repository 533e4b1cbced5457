"""How a name is spelled as a folder, and a folder as a URL: the one place in which either happens.

DuckDB, delta_rs, obstore and Spark each decode a path in their own way. All of them read a percent-encoded URL as the folder that
it stands for, but for one: the Delta kernel, which DuckDB and delta_rs share, decodes the folders of a log a second time, so that
``%41`` in a folder is ``A`` to it. No folder that we make holds such a sequence: in a name ``%`` is then spelled ``%x25``.
"""

from __future__ import annotations

import re
from urllib.parse import quote

_DECODED = re.compile(r"%(?=[0-9A-Fa-f]{2}|x25)")
_SPELLED = re.compile(r"%x25")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST = 240  # bytes: 255 less what a definition file and its unfinished copy have after the name


RESERVED = "_duckrun"
"""The folder, in that of a lake or of a schema, with what is no table: definitions, locks, what consumers noted."""
DROPPED = "_duckrun_dropped_"
"""How the folder of a table begins that is being removed."""


def folder_of(name: str) -> str:
    """The folder of a schema or table, below its root or schema: the name itself, but for what the kernel would decode.

    >>> folder_of("100% a b"), folder_of("x%41"), folder_of("x%x25")
    ('100% a b', 'x%x2541', 'x%x25x25')
    """
    return _DECODED.sub("%x25", name)


def name_of(folder: str) -> str | None:
    """The name whose folder it is; None for a folder that no name has, so that it is nobody's schema or table.

    >>> name_of("x%x2541"), name_of("x%41")
    ('x%41', None)
    """
    name = _SPELLED.sub("%", folder)
    return name if why_no_name(name) is None and folder_of(name) == folder else None


def why_no_name(name: str) -> str | None:
    """What keeps a text from being a name, as the end of a sentence that begins with it; None for one that can be."""
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
        return f"has {size} bytes as a folder, and {_LONGEST} is the most that a file system takes with what stands beside it"
    return None


def why_no_location(location: str) -> str | None:
    """What keeps a path or URL from being a root or a table's location, as the end of a sentence that begins with it."""
    decoded = re.search(r"%[0-9A-Fa-f]{2}", location)
    if decoded is not None:
        return (
            f"holds {decoded[0]}, which DuckDB and delta_rs take for another character, so that they would read another folder: "
            "write the character itself, or rename the folder"
        )
    if _CONTROL.search(location):
        return "holds a control character, such as a newline or a tab, which delta_rs cannot open"
    if "?" in location and "://" in location:
        return "holds a ?, after which DuckDB reads the options of a URL"
    return None


def url_of(location: str) -> str:
    """A location as a percent-encoded URL: what delta_scan(), delta_rs and obstore each read as that very folder.

    DuckDB's delta_scan() takes trailing bytes beyond ASCII off a plain path, until a release has duckdb/duckdb#24482, and formats
    a plain ``%`` by printf.

    >>> url_of("/lake/main/100% é"), url_of("s3://bucket/main/a#b")
    ('file:///lake/main/100%25%20%C3%A9', 's3://bucket/main/a%23b')
    """
    if "://" not in location:
        return "file://" + quote(location)
    scheme, _, rest = location.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}://{place}{slash}{quote(path)}"


def writable_by_delta_rs(location: str) -> bool:
    """False for a local folder in which delta_rs cannot write rows: it makes a host's name of the path, and panics."""
    return "://" in location or not re.search(r"[\[\]^|\\]", location)
