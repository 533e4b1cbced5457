"""Translation of DuckDB's errors about a catalog into this library's errors, without passwords."""

from __future__ import annotations

from typing import Protocol

import duckdb

from duckrun.errors import CommitUnknown, DuckrunError, InvalidConfig, StorageError, VersionNotReadable
from duckrun.storage.storage import Storage
from duckrun.storage.trouble import expired_snapshot, lost_connection
from duckrun.values.lake_format import CatalogAddress

FOR_SEVERAL = (
    "For several processes or sessions name a catalog in SQLite (sqlite:<file>) or PostgreSQL (postgres:<dsn>)"
)


_PROGRAMS = {"sqlite": "SQLite", "duckdb": "DuckDB"}
_UNWRITABLE = (
    "disk i/o error",
    "database or disk is full",
    "readonly database",
    "unable to open database",
    "no space left on device",
)
"""Messages of SQLite and DuckDB, in lower case, about a file that cannot be written."""
_SAID = {
    ("does not match existing data path",): (
        "The catalog {catalog} is of another lake than {root}: {first} Open that lake by its root, or name another "
        "catalog."
    ),
    ("version mismatch",): (
        "{of_lake} is of DuckLake version {version}, which this version of DuckDB's extension does not know: open it "
        "with the duckrun that made it, or a newer one"
    ),
    ("password authentication failed", "no password supplied"): (
        "{of_lake} lets nobody in by that user and password: {server}. Look at both in its address."
    ),
    ('fatal:  database "',): (
        "{of_lake} names a database that is not there: {server}. Make it by CREATE DATABASE; its tables are made by "
        "the first write."
    ),
    ("unable to connect",): "{of_lake} cannot be reached: {server}. Is the server running, and the address right?",
    ("is not a database", "not a valid duckdb database"): (
        "The file of the catalog {catalog} of lake {root} is no database of {program}'s: name another one"
    ),
}
"""Parts of messages of DuckLake and of a catalog's database, in lower case -> message of ours."""


class NamedCatalog(Protocol):
    """Names of a catalog in messages, and whether it was found earlier."""

    address: CatalogAddress
    storage: Storage
    seen: bool

    def redacted(self, error: BaseException | str) -> str:
        """Return the text of an error without passwords."""


class NoCatalog(StorageError):
    """No catalog exists at the given address."""


def gone(catalog: NamedCatalog) -> StorageError:
    """Return the error about a catalog that disappeared."""
    return StorageError(
        f"The catalog {catalog.address} of lake {catalog.storage.root} is gone: "
        "this session has used it, and it is not there any more. Put it back, from a "
        "backup if need be: without it nobody knows which files are which table's."
    )


def translated(catalog: NamedCatalog, error: duckdb.Error, what: str) -> DuckrunError:
    """Return the error to raise for an error of DuckDB.

    Args:
        what: Request to the catalog, for the message.
    """
    text, root = catalog.redacted(error), catalog.storage.root
    first, low = text.splitlines()[0], text.lower()
    if "explicitly disabled" in low or "does not exist - and creating" in low:
        if catalog.seen:
            return gone(catalog)
        return NoCatalog(f"There is no catalog {catalog.address} of lake {root}: it is gone, or was not made yet.")
    if catalog.seen and "ducklake_" in low and ("does not exist" in low or "no such table" in low):
        return gone(catalog)
    if "requested an encrypted database" in low:
        return other_encryption(catalog, encrypted=False)
    of_lake = f"The catalog {catalog.address} of lake {root}"
    for parts, message in _SAID.items():
        if any(part in low for part in parts):
            version = text.partition("catalog version is ")[2].partition(",")[0] or "another"
            program = _PROGRAMS.get(catalog.address.kind, "")
            return StorageError(
                message.format(catalog=catalog.address, root=root, of_lake=of_lake, first=first, version=version,
                               server=_server_said(text), program=program)
            )  # fmt: skip
    if (refused := unwritable(catalog, text)) is not None:
        reading = ", which SQLite does for reading too" if catalog.address.kind == "sqlite" else ""
        return StorageError(
            f"{of_lake} cannot be read or written ({refused}): the disk is full, or its folder cannot be written "
            f"to{reading}"
        )
    if (expired := expired_snapshot(text)) is not None:
        return VersionNotReadable(
            f"Snapshot {expired} of lake {root}, {what}, has expired: take a newer snapshot, by table(name).snapshot()."
        )
    if (lost := lost_connection(text)) is not None:
        return StorageError(
            f"The connection to the catalog {catalog.address} of lake {root} was lost ({lost})",
            remedy="run it again when the server answers",
        )
    if catalog.address.kind == "duckdb" and ("could not set lock" in low or "already attached" in low):
        return StorageError(
            f"The catalog {catalog.address} of lake {root} is held by another process or session: "
            f"a DuckDB file is for one. {FOR_SEVERAL}. ({first})"
        )
    return StorageError(f"Catalog {catalog.address} of lake {root}, {what}: {text}")


def unwritable(catalog: NamedCatalog, text: str) -> str | None:
    """Return DuckDB's reason why a catalog file cannot be written; None for any other message."""
    return next((reason for reason in _UNWRITABLE if reason in text.lower()), None) if catalog.address.is_file else None


def unsure(catalog: NamedCatalog, lost: str) -> CommitUnknown:
    """Return the error about a commit with an unknown outcome, whose server does not answer."""
    return CommitUnknown(
        f"The connection to the catalog {catalog.address} of lake {catalog.storage.root} was lost in the middle of a "
        f"commit ({lost}), so that it is not known whether it was "
        "made, and the server does not answer. Look at the newest snapshot, "
        "session.snapshots(1), before you run it again; what has an application "
        "transaction, as dbt's and Dagster's writes have, is written once however often it is run. "
        "If data files of that snapshot are gone, restore the catalog to before it."
    )


def other_encryption(catalog: NamedCatalog, *, encrypted: bool) -> InvalidConfig:
    """Return the error about a lake that is opened with another encryption than it has."""
    return InvalidConfig(
        f"Lake {catalog.storage.root} is opened with encrypted: {str(not encrypted).lower()}, and its catalog "
        f"{catalog.address} says that its files are "
        + (
            "encrypted: leave it out, or say true."
            if encrypted
            else "not: a lake is encrypted from its beginning, or never. Leave it out, or copy the tables to a new "
            "lake."
        )
    )


def _server_said(text: str) -> str:
    """Return the server's message without the address in front of it."""
    message = text.partition("FATAL:")[2] or text.rpartition(" failed: ")[2] or text
    return message.strip().splitlines()[0].strip().rstrip(".")
