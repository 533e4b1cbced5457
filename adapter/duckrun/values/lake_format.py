"""Format of a lake's tables, and the address of its catalog."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Literal, Self, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import SecretStr

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.values.frozen import frozen
from duckrun.values.nearest import did_you_mean

FormatName = Literal["delta", "ducklake"]
FORMATS: tuple[FormatName, ...] = get_args(FormatName)
DUCKLAKE: FormatName = "ducklake"
TABLES = "_duckrun/tables"
"""Folder below the root of a lake with a catalog, for notes about its tables. It holds no data."""
DUCKLAKE_MARK = "_duckrun/ducklake"
"""File below the root that marks the lake as a DuckLake."""
CatalogKind = Literal["sqlite", "postgres", "duckdb"]
CATALOGS: tuple[CatalogKind, ...] = get_args(CatalogKind)
# https://github.com/duckdb/duckdb-mysql/issues/130
_NO_MYSQL = (
    "DuckLake cannot keep its catalog in MySQL or MariaDB: the second write to a table fails, since "
    "DuckDB's mysql scanner does not carry out the UPDATE of the "
    "table's statistics ('Unsupported operator type HASH_JOIN in UPDATE statement', duckdb 1.5.5 on "
    "MariaDB 10.11). Write sqlite:<file> or postgres:<dsn>."
)
_PASSWORD = re.compile(r"(password|passwd|pwd)\s*=\s*('(?:[^'\\]|\\.)*'|\S+)", re.IGNORECASE)
_IN_URL = re.compile(r"(://[^:/@\s]*:)([^@\s]+)(@)")


@frozen
class CatalogAddress:
    """Database of a lake's catalog: its kind, and its file or connection string, which is secret.

    Example::

        CatalogAddress.parse("sqlite:lake/catalog.sqlite")
    """

    kind: CatalogKind
    secret: SecretStr

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an address ``kind:place``.

        Raises:
            InvalidConfig: The text names no database. The message shows no password.
            UnsupportedFeature: DuckLake does not support the database.
        """
        kind, colon, place = text.partition(":")
        if kind.lower() == "postgresql":
            kind, place = "postgres", (text if place.startswith("//") else place)
        if kind.lower() in ("mysql", "mariadb"):
            raise UnsupportedFeature(f"catalog: {_NO_MYSQL}")
        if not colon or kind.lower() not in CATALOGS or not place.strip():
            shown = f"{kind!r}" if colon else "it"
            raise InvalidConfig(
                f"catalog: {shown} names no database that can hold a catalog; write sqlite:<file>, postgres:<dsn> or "
                f"duckdb:<file>.{did_you_mean(kind, CATALOGS) if colon else ''}"
            )
        if kind.lower() in ("sqlite", "duckdb"):
            place = os.path.abspath(os.path.expanduser(place))
        return cls(kind.lower(), SecretStr(place))  # type: ignore[arg-type]

    @property
    def place(self) -> str:
        """File, or connection string with its password: for the database alone."""
        return self.secret.get_secret_value()

    @property
    def dsn(self) -> str:
        """Connection string as ``key=value`` without its password; the path of a file catalog."""
        return self.place if self.is_file else _PASSWORD.sub("", _by_keys(self.place)).strip()

    @property
    def password(self) -> str | None:
        """Password of the connection string, if any."""
        match = None if self.is_file else _PASSWORD.search(_by_keys(self.place))
        return None if match is None else _unquoted(match[2])

    @property
    def is_file(self) -> bool:
        return self.kind in ("sqlite", "duckdb")

    def redacted(self, text: object) -> str:
        """Return a text without the password of this address."""
        redacted = str(text)
        for secret in self._secrets():
            redacted = redacted.replace(secret, "***")
        return _IN_URL.sub(r"\1***\3", _PASSWORD.sub(r"\1=***", redacted))

    def _secrets(self) -> list[str]:
        secrets = [match[2].strip("'") for match in _PASSWORD.finditer(self.place)]
        secrets += [_unquoted(match[2]) for match in _PASSWORD.finditer(self.place)]
        secrets += [unquote(match[2]) for match in _IN_URL.finditer(self.place)]
        secrets += [match[2] for match in _IN_URL.finditer(self.place)]
        return sorted((secret for secret in secrets if secret), key=len, reverse=True)

    def __str__(self) -> str:
        """The address without secrets."""
        return f"{self.kind}:{self.place if self.is_file else self.redacted(self.place)}"


def _by_keys(dsn: str) -> str:
    """Return a PostgreSQL connection string or URL as ``key=value``."""
    if "://" not in dsn:
        return dsn
    url = urlsplit(dsn)
    parts = {
        "host": url.hostname,
        "port": None if url.port is None else str(url.port),
        "user": url.username,
        "password": url.password,
        "dbname": url.path.lstrip("/"),
        **dict(parse_qsl(url.query)),
    }
    return " ".join(f"{key}={_quoted(unquote(value))}" for key, value in parts.items() if value)


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1] if value.startswith("'") else value)


@frozen
class LakeFormat:
    """Format of a lake, with the options of DuckLake.

    Example::

        LakeFormat.of("ducklake", "postgres:dbname=lake host=localhost")
    """

    name: FormatName = "delta"
    catalog: CatalogAddress | None = None
    inline_rows: int = 0
    """Largest insert, in rows, that DuckLake inlines into the catalog instead of a file."""
    encrypted: bool | None = None
    """True if DuckLake encrypts the data files."""

    @classmethod
    def of(
        cls,
        format: str | None = None,
        catalog: str | SecretStr | None = None,
        inline_rows: int | None = None,
        encrypted: bool | None = None,
    ) -> Self:
        """Return the format that a user names.

        Raises:
            InvalidConfig: The format is unknown, or an option belongs to another format.
        """
        name = (format or "delta").lower()
        if name not in FORMATS:
            raise InvalidConfig(
                f"format is {format!r}; the formats are {', '.join(FORMATS)}.{did_you_mean(str(format), FORMATS)}"
            )
        options = {"catalog": catalog, "inline_rows": inline_rows, "encrypted": encrypted}
        if name != DUCKLAKE and (words := [word for word, value in options.items() if value is not None]):
            raise InvalidConfig(f"{', '.join(words)} goes with format: ducklake, and this lake is of format {name}.")
        if inline_rows is not None and (
            isinstance(inline_rows, bool) or not isinstance(inline_rows, int) or inline_rows < 0
        ):
            raise InvalidConfig(f"inline_rows is {inline_rows!r}; it is a number of rows, 0 for none.")
        if encrypted is not None and not isinstance(encrypted, bool):
            raise InvalidConfig(f"encrypted is {encrypted!r}; it is true or false.")
        text = catalog.get_secret_value() if isinstance(catalog, SecretStr) else catalog
        if text is not None and not isinstance(text, str):
            raise InvalidConfig(f"catalog is a {type(text).__name__}; write it as text, such as sqlite:<file>.")
        address = None if text is None else CatalogAddress.parse(text)
        return cls(name, address, inline_rows or 0, encrypted)  # type: ignore[arg-type]

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Return the format in settings: ``format``, ``catalog``, ``inline_rows``, ``encrypted``.

        Raises:
            InvalidConfig: The format is unknown, or an option belongs to another format.
        """
        return cls.of(*(values.get(word) for word in ("format", "catalog", "inline_rows", "encrypted")))


DELTA_LAKE = LakeFormat()
