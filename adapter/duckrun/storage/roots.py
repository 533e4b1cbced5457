"""Root of a lake: a folder or a URL, without credentials in it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from duckrun.errors import InvalidConfig, redacted
from duckrun.values.names import why_no_location

CLOUD_SCHEMES = {"s3": "s3", "s3a": "s3", "az": "azure", "abfs": "azure", "abfss": "azure", "gs": "gcs"}
"""Store of each scheme of a URL."""
_OF_WINDOWS = re.compile(r"[A-Za-z]:[\\/]")
_ROOTS = "a folder or to an s3://, az://, abfss:// or gs:// URL"


def normalise_root(root: str | os.PathLike[str]) -> str:
    """Return an absolute local path or a URL, with forward slashes and no trailing slash."""
    if not isinstance(root, str | os.PathLike):
        raise InvalidConfig(f"root_path is {root!r}; set it to {_ROOTS}.")
    text = os.fspath(root)
    if not text.strip():
        raise InvalidConfig(f"root_path is empty; set it to {_ROOTS}.")
    refuse_credentials(text)
    scheme = text.partition("://")[0].lower() if "://" in text else ""
    if text[:6].lower() == "file:/":  # Java and Spark write one slash
        text = unquote(urlsplit(text).path)
    elif scheme in CLOUD_SCHEMES:
        rest = text.partition("://")[2].replace("\\", "/").rstrip("/")
        return f"{'s3' if scheme == 's3a' else scheme}://{rest}"
    elif scheme:
        known = ", ".join(f"{s}://" for s in CLOUD_SCHEMES)
        raise InvalidConfig(f"root_path {text!r} has the scheme {scheme}://; known are local paths and {known}.")
    if os.sep == "/" and _OF_WINDOWS.match(text):
        raise InvalidConfig(f"root_path {text!r} is a path of Windows, and this machine has none; set it to {_ROOTS}.")
    try:
        path = Path(text.replace("\\", "/") if os.sep == "/" else text).expanduser().absolute()
    except RuntimeError as error:  # of a user that this machine does not know
        raise InvalidConfig(f"root_path {text!r}: {error} Write the folder's whole path.") from error
    return path.as_posix().rstrip("/") or "/"


def refuse_location(what: str, location: str) -> None:
    """Raise InvalidConfig for a root or location that a library would misread as another one."""
    if (why := why_no_location(location)) is not None:
        raise InvalidConfig(f"{what} {redacted(location)!r} {why}")


def refuse_credentials(text: str) -> None:
    """Raise InvalidConfig for a URL with a password, which would be shown with the URL."""
    bare, _, query = text.partition("?")
    if "://" in text and redacted(text) != text and "=" in query:
        raise InvalidConfig(
            f"The URL {text} holds a signature or a key, which would be shown wherever the root is; "
            f"write {bare} and give it as one of the "
            "storage_options, such as AZURE_STORAGE_SAS_TOKEN."
        )
    scheme, _, rest = text.partition("://")
    user, at, place = rest.partition("/")[0].rpartition("@")
    if not at and ":" in place and scheme.lower() in CLOUD_SCHEMES:  # a secret may hold a slash
        user, at, place = place, "@", rest.rpartition("@")[2].partition("/")[0]
    if at and (":" in user or not scheme.lower().startswith(("az", "abfs"))):
        raise InvalidConfig(
            f"root_path {scheme}://***@{place} holds credentials, which would be shown wherever the root is; write "
            f"{scheme}://{place}/… and give them as storage_options, such as AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY."
        )
