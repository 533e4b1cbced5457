"""Translation of storage failures into StorageError with a remedy.

DuckDB, delta_rs, obstore, Arrow and Spark each word the same failure differently.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from duckrun.display.units import readable_bytes
from duckrun.errors import StorageError

_COLOUR = re.compile(r"\x1b\[[0-9;]*m|↳")
_REST = re.compile(r"\n\s*(Debug source:|LINE \d+:|\d+: |at \S+\(|JVM stacktrace)", re.DOTALL)
_XML = re.compile(
    r"<\?xml.*?<Code>(?P<code>[^<]*)</Code>.*?<Message>(?P<message>[^<]*)</Message>.*?</Error>", re.DOTALL
)
_JAVA_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+\.[\w$]+: )+(.+)$", re.MULTILINE)
_LAYERS = re.compile(r"\b(?:Generic(?: \w+)? error|External error|Execution error): ")
"""Words by which delta_rs and obstore name their own layers."""
_VECTOR = re.compile(r"[^\s\"'`]*deletion_vector_[0-9a-f-]+\.bin")
_FILE = re.compile(r"[\"'`]([^\"'`\n]+\.parquet)|([^\s\"'`]+\.parquet)")

_FULL = re.compile(
    r"No space left|Disk quota exceeded|File too large|os error 2[78]\b|not enough space|"
    r"Could not write all bytes|max_temp_directory_size"
)
_CAUSES = {
    re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist|bucketNotFound"): (
        "the bucket or container is not there",
        "make it, or correct root_path",
    ),
    re.compile(r"169\.254\.169\.254|NoAuthWithAWS|Unable to load credentials|No AWS Credentials"): (
        "no credentials were found",
        "Give the lake storage_options, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or set them in the "
        "environment",
    ),
    re.compile(
        r"AccessDenied|Access Denied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|"
        r"AuthenticationFailed|40[13] (Forbidden|Unauthorized)"
    ): (
        "the store refused the credentials or what they may do",
        "Check the storage_options of this lake",
    ),
    re.compile("object with invalid path"): (
        "an object there has a key that is no path",
        "Take it away, by the tool that made it",
    ),
}
"""Causes and remedies by the words of the libraries' errors."""
_NO_ANSWER = (
    "the endpoint of the store does not answer",
    "run it again when it does, or correct the endpoint in the storage_options",
)
_PUT_BACK = "Put it back from a copy of the table, or read or restore a version that does without it (history())."
_MISSING = re.compile(
    r"No such file or directory|No files found|NoSuchKey|[Nn]ot [Ff]ound|does not exist|os error 2\b|"
    r"(?<![\w-])404(?![\w-])"
)
_DAMAGED = re.compile(
    r"No magic bytes|too small to be a Parquet file|Corrupt footer|Invalid Parquet file|"
    r"not a Parquet file|CANNOT_READ_FILE_FOOTER"
    r"|Could not read footer|Could not read enough bytes|Prefetch registered for bytes outside file|"
    r"expected magic number|TProtocolException|Requested range was invalid|FAILED_READ_FILE|decompress"
)

_PARTITION = re.compile(r"Failed to parse value '([^']*)' as '([^']*)'")
"""Delta Kernel's error about a partition value of another type."""

_LOST = re.compile(
    r"server closed the connection( unexpectedly)?|terminating connection due to [^\n]*|"
    r"no connection to the server|Connection refused"
    r"|SSL connection has been closed[^\n]*|could not receive data from server[^\n]*|"
    r"the database system is (starting up|shutting down|in recovery mode)"
    r"|Unable to connect to Postgres|Failed to execute query \"(BEGIN|COMMIT|ROLLBACK)[^\"]*\": (?=$|\n)"
)
_EXPIRED = re.compile(r"No snapshot found at version (\d+)")
_OF_A_STORE = re.compile(
    r"https?://|Generic (S3|MicrosoftAzure|GCS|HTTP) error|HTTPException|HTTP (GET|HEAD|PUT|POST|"
    r"DELETE)|s3a?://|fs\.(s3a|azurebfs)|SdkClientException"
)
"""Words of an error about a request to an object store, not to a database."""


def expired_snapshot(error: object) -> str | None:
    """Return the number of an expired DuckLake snapshot from DuckDB's error.

    None for other errors.
    """
    match = _EXPIRED.search(str(error))
    return None if match is None else match[1]


def lost_connection(error: object) -> str | None:
    """Return the part of an error about a lost database connection; None for other errors."""
    match = _LOST.search(str(error))
    return None if match is None else match[0].rstrip(": ")


def said(error: object) -> str:
    r"""Return a library's error in one line, without layers, colours, stacks, debug form, SQL, XML.

    >>> xml = "<?xml?><Error><Code>NoSuchBucket</Code><Message>none</Message></Error>"
    >>> said(f"Generic S3 error: 404: {xml}\n\nDebug source: x")
    '404: NoSuchBucket, none'
    """
    text = _COLOUR.sub("", _XML.sub(r"\g<code>, \g<message>", str(error)))
    causes = _JAVA_CAUSE.findall(text)
    text = causes[-1] if causes else text
    match = _REST.search(text)
    return " ".join(_LAYERS.sub("", text[: match.start()] if match else text).split()).rstrip(". ")[:600]


def is_full(error: object) -> bool:
    """True for an error about a full disk."""
    return _FULL.search(str(error)) is not None


def _free(text: str) -> str:
    """Return the free space of the disk with the file of an error, as a clause.

    Empty if none is named.
    """
    match = _FILE.search(text)
    path = Path((match[1] or match[2]) if match else "")
    folder = next((f for f in path.parents if f.is_dir()), None) if path.is_absolute() else None
    return "" if folder is None else f": {readable_bytes(shutil.disk_usage(folder).free, decimal=True)} are free now"


def storage_error(error: object, what: str) -> StorageError | None:
    """Translate a library's error about storage; None for other errors.

    Args:
        what: Beginning of the message: the operation that failed.
    """
    text = str(error)
    lost, value = lost_connection(text), _PARTITION.search(text)
    no_answer = _NO_ANSWER if lost is not None and _OF_A_STORE.search(text) else None
    cause = next((cause for pattern, cause in _CAUSES.items() if pattern.search(text)), no_answer)
    if is_full(text):
        why = f"the disk is full, or a limit on its use is reached{_free(text)}"
        return StorageError(f"{what}: {why} ({said(error)})", remedy="make room and run this again")
    if cause is None and lost is not None:
        return StorageError(
            f"{what}: the connection to the database of the lake's catalog was lost ({lost})",
            remedy="run it again when the server answers",
        )
    if cause is None and value is not None:
        return StorageError(
            f"{what}: a partition value in its log, {value[1]}, is none of the type that its column has now "
            f"({value[2]}): the column changed its type, and the log has no checkpoint since",
            remedy="Write one, session.table('…').checkpoint(); engine: spark reads the table without.",
        )
    trouble, remedy = cause or (_trouble_of_file(text), _PUT_BACK)
    return None if trouble is None else StorageError(f"{what}: {trouble} ({said(error)})", remedy=remedy)


def _trouble_of_file(text: str) -> str | None:
    """Return which file of a table is damaged or missing."""
    is_missing, vector, file = _MISSING.search(text), _VECTOR.search(text), _FILE.search(text)
    name = (file[1] or file[2]) if file else ""
    if vector is not None and (is_missing or "Deletion Vector error" in text):
        return f"{vector[0]}, which says what rows of a data file are deleted, is {'gone' if is_missing else 'damaged'}"
    if _DAMAGED.search(text):
        return f"{name or 'a data file'} is damaged, or is no Parquet file"
    if is_missing and name.rpartition("/")[2].startswith(("part-", "ducklake-")):  # as Delta and DuckLake name files
        owner = "the catalog" if "/ducklake-" in name else "the log of its table"
        return f"{name}, a data file that {owner} names, is gone"
    return None
