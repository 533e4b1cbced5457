"""Credentials of one root, in the forms that each library needs.

DuckDB takes a secret, delta_rs and obstore take options, Spark takes Hadoop properties. The user
gives delta_rs's names (``AWS_ACCESS_KEY_ID``, ``AZURE_STORAGE_ACCOUNT_NAME``,
``GOOGLE_SERVICE_ACCOUNT``, ... in any case) once.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError as ObstoreError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, from_url
from pydantic import SecretStr

from duckrun.errors import CommitUnknown, DuckrunError, InvalidConfig, StorageError, redacted
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.storage.local_files import entries, files_below, refuse_unwritable
from duckrun.storage.roots import CLOUD_SCHEMES, normalise_root, refuse_location
from duckrun.storage.trouble import said, storage_error
from duckrun.values.names import url_of

_EMULATOR = "http://127.0.0.1:10000/devstoreaccount1"  # Azurite's, with the account that it always has
_CLIENT_KEYS = {"allow_http", "timeout", "connect_timeout", "proxy_url", "allow_invalid_certificates"}
_ENDPOINT = ("aws_endpoint_url", "endpoint_url", "aws_endpoint", "endpoint")
_TOKEN = ("aws_session_token", "session_token", "aws_token", "token")
_REGION = ("aws_region", "region", "aws_default_region", "default_region")
_AZURE_ENDPOINT = ("azure_storage_endpoint", "azure_endpoint", "endpoint")
_ACCOUNT = ("azure_storage_account_name", "account_name")
_KEY = ("azure_storage_account_key", "azure_storage_access_key", "account_key", "access_key")
_SIGNATURE = ("azure_storage_sas_token", "azure_storage_sas_key", "sas_token", "sas_key")
_CLIENT = ("azure_storage_client_id", "azure_client_id", "client_id")
_CLIENT_SECRET = ("azure_storage_client_secret", "azure_client_secret", "client_secret")
_TENANT = ("azure_storage_tenant_id", "azure_tenant_id", "tenant_id", "authority_id")
_REFUSED = (PermissionDeniedError, UnauthenticatedError)
_PAUSES = (0.2, 1.0, 0.0)
"""Seconds to pause after each failed put with neither an answer nor an object.

The client retries too.
"""
_STORES = 64
"""Number of locations whose connections stay open."""
_BATCH = 1000  # objects of one request, at most, in S3
_SHOWN = {
    "region": re.compile(r"[a-z]+(-[a-z]+)*(-\d)?"),
    "endpoint": re.compile(r"https?://[^@]+"),
    "endpoint_url": re.compile(r"https?://[^@]+"),
    "account_name": re.compile(r"[a-z0-9]{3,24}"),
    "timeout": re.compile(r"\d+ ?\w+"),
    "max_retries": re.compile(r"\d+"),
}


def _unknown(what: str, error: str) -> str:
    return (
        f"Whether {what} was written is not known: the store's answer was lost ({said(error)}). Look "
        "whether it is there before you run this again; "
        "a write with an application transaction, such as those of dbt and Dagster, looks by itself."
    )


def _is_secret(option: str, value: str) -> bool:
    """False for values known to be public: flags, and options whose value has the expected form."""
    known = [form for name, form in _SHOWN.items() if option.lower().endswith(name)]
    return value.lower() not in ("true", "false") and not any(form.fullmatch(value) for form in known)


@dataclass(frozen=True)
class Written:
    """A stored object."""

    e_tag: str | None
    """Its entity tag; None on a local path."""


class Storage:
    """Root of a lake and its credentials.

    Example: ``Storage("s3://bucket/lake", {"AWS_REGION": "eu-west-1"}).delta_options()``.
    """

    def __init__(self, root: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> None:
        self.root = normalise_root(root)
        refuse_location("root_path", self.root)
        self.scheme = urlsplit(self.root).scheme if "://" in self.root else "file"
        if options is not None and not isinstance(options, Mapping):
            raise InvalidConfig(
                f"storage_options of {self.root} is a {type(options).__name__}; write a mapping of option to value."
            )
        self._options = {
            str(k): v if isinstance(v, SecretStr) else SecretStr(str(v)) for k, v in (options or {}).items()
        }
        self._refuse_bad_urls()
        self._stores: dict[tuple[int, str], Any] = {}
        if self.kind == "azure" and "@" in self.root and self._azure_endpoint():
            # DuckDB goes to the host of a full abfss:// URL, whatever endpoint the secret names
            place, account = urlsplit(self.root), self._azure_account()
            self._options.setdefault("AZURE_STORAGE_ACCOUNT_NAME", SecretStr(account or ""))
            self.scheme, self.root = "az", f"az://{place.netloc.partition('@')[0]}{place.path}"

    def __repr__(self) -> str:
        shown = {k: "***" if _is_secret(k, v) else v for k, v in self._plain().items()}
        return f"Storage({self.root!r}, {shown})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storage) and self.root == other.root and self._plain() == other._plain()

    def __hash__(self) -> int:
        return hash(self.root)

    @cached_property
    def is_local(self) -> bool:
        return self.scheme == "file"

    @cached_property
    def kind(self) -> str:
        """``file``, ``s3``, ``azure`` or ``gcs``."""
        return "file" if self.is_local else CLOUD_SCHEMES[self.scheme]

    def _refuse_bad_urls(self) -> None:
        """Raise InvalidConfig for an endpoint that is no URL, at which obstore's Rust panics."""
        for key, value in self._plain().items():
            if key.lower() not in (*_ENDPOINT, *_AZURE_ENDPOINT):
                continue
            try:
                parts = urlsplit(value)
                is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            except ValueError:
                is_url = False
            if not is_url:
                raise InvalidConfig(
                    f"storage_options of {self.root}: {key} is no URL such as http://host:9000; special characters of "
                    "a password in it are percent-encoded, such as %40 for @."
                )

    def _plain(self) -> dict[str, str]:
        return {k: v.get_secret_value() for k, v in self._options.items()}

    def redacted(self, text: object) -> str:
        """Return a library's message without the secret values of these options."""
        message = redacted(str(text))
        for key, value in self._plain().items():
            if value and _is_secret(key, value):
                message = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "***", message)
        return message

    def _option(self, *names: str) -> str | None:
        """Return the first set option in any case, else from the environment."""
        plain = {k.lower(): v for k, v in self._plain().items()}
        values = (plain.get(name) or os.environ.get(name.upper()) for name in names)
        return next((value for value in values if value), None)

    # -- locations in the files of a lake

    def relative(self, location: str) -> str:
        """Return a location as files of the lake record it: relative to the root if it is below.

        So a lake that is copied or moved has its own tables, and not those of its old place.
        """
        return location.removeprefix(f"{self.root}/")

    def absolute(self, recorded: str) -> str:
        """Return the location that a file of the lake records."""
        is_whole = "://" in recorded or os.path.isabs(recorded)
        return recorded if is_whole else f"{self.root}/{recorded}"

    # -- the four spellings

    def delta_options(self) -> dict[str, str] | None:
        """Return the ``storage_options`` of delta_rs; None for a local root."""
        if self.is_local:
            return None
        return {(k.upper() if not k.islower() else k): v for k, v in self._plain().items()}

    @cached_property
    def store(self) -> Any:
        """Store of obstore with keys relative to the root."""
        return self.store_at(self.root)

    def store_at(self, location: str) -> Any:
        """Return an obstore store with keys relative to ``location``.

        Cached, to reuse its connections.
        """
        if self.is_local:
            return LocalStore(location)
        key = (os.getpid(), location)  # a process that was forked has connections of its own
        store = self._stores.get(key)
        if store is None:
            if len(self._stores) >= _STORES:
                self._stores.clear()
            store = self._stores[key] = self._opened(location)
        return store

    def _opened(self, location: str) -> Any:
        config: dict[str, Any] = {}
        client: dict[str, Any] = {}
        retries: dict[str, Any] = {}
        for key, value in self._plain().items():
            name = key.lower()
            of_client = name.removeprefix("aws_").removeprefix("azure_").removeprefix("google_")
            if name == "max_retries":  # delta_rs's own name for it
                retries["max_retries"] = self._number(key, value)
            elif of_client in _CLIENT_KEYS:
                client[of_client] = {"true": True, "false": False}.get(value.lower(), value)
            elif name not in ("conditional_put", "aws_conditional_put", "aws_s3_allow_unsafe_rename"):
                config[name] = value
        opener: Any = from_url  # typed by store, and which one it is stands in the URL
        try:
            return opener(url_of(location), config=config, client_options=client, retry_config=retries or None)
        except Exception as error:
            raise StorageError(
                f"Cannot open {location}: {said(self.redacted(error))}. Check the storage_options of this lake."
            ) from None

    def _number(self, option: str, value: str) -> int:
        if not value.isdigit():
            raise InvalidConfig(f"storage_options of {self.root}: {option} is {value!r}; write a whole number.")
        return int(value)

    def duckdb_secrets(self, *, narrow: bool = False) -> list[str]:
        """Return ``CREATE SECRET`` statements for the bucket or account of the root.

        Empty for a local root.

        Args:
            narrow: Scope the secret to the root itself, so that two lakes in one bucket keep their
                own credentials. DuckDB takes the secret with the longest scope that a path starts
                with.
        """
        if self.is_local:
            return []
        fields: dict[str, str | None]
        if self.kind == "s3":
            endpoint = self._option(*_ENDPOINT)
            parts = urlsplit(endpoint) if endpoint else None
            fields = {
                "TYPE": "s3",
                "KEY_ID": self._option("aws_access_key_id", "access_key_id"),
                "SECRET": self._option("aws_secret_access_key", "secret_access_key"),
                "SESSION_TOKEN": self._option(*_TOKEN),
                "REGION": self._option(*_REGION),
                "ENDPOINT": parts.netloc if parts else None,
                "USE_SSL": str(parts.scheme == "https").lower() if parts else None,
                "URL_STYLE": "path" if parts else None,
            }
        elif self.kind == "azure":
            fields = {"TYPE": "azure", **self._azure_secret()}
        else:
            key, secret = self._option("gcs_hmac_key_id"), self._option("gcs_hmac_secret")
            fields = {"TYPE": "gcs", "KEY_ID": key, "SECRET": secret}
        body = ", ".join(f"{k} {v if k == 'TYPE' else quote_literal(v)}" for k, v in fields.items() if v is not None)
        scope = f"{self.root}/" if narrow else f"{self.scheme}://{urlsplit(self.root).netloc}"
        name = "duckrun_" + "".join(c if c.isalnum() else f"_{ord(c):x}_" for c in scope)
        return [f"CREATE OR REPLACE SECRET {quote_identifier(name)} ({body}, SCOPE {quote_literal(scope)})"]

    def hadoop_conf(self) -> dict[str, str]:
        """Return Spark's Hadoop properties for the root, without the prefix ``spark.hadoop.``.

        They are limited to the bucket or account, since one Spark session may read several.
        """
        pairs: dict[str, str | None] = {}
        if self.kind == "s3":
            bucket = f"fs.s3a.bucket.{urlsplit(self.root).netloc}"
            endpoint = self._option(*_ENDPOINT)
            pairs = {
                f"{bucket}.access.key": self._option("aws_access_key_id", "access_key_id"),
                f"{bucket}.secret.key": self._option("aws_secret_access_key", "secret_access_key"),
                f"{bucket}.session.token": self._option(*_TOKEN),
                f"{bucket}.endpoint.region": self._option(*_REGION),
                f"{bucket}.endpoint": endpoint,
                f"{bucket}.path.style.access": "true" if endpoint else None,
            }
        elif self.kind == "azure":
            pairs = self._azure_hadoop_conf(self._azure_host())
        elif self.kind == "gcs":
            file = self._option("google_service_account", "google_service_account_path", "service_account")
            pairs = {
                "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
                "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
                "google.cloud.auth.service.account.enable": None if file is None else "true",
                "google.cloud.auth.service.account.json.keyfile": file,
            }
        return {k: v for k, v in pairs.items() if v is not None}

    def spark_location(self, location: str) -> str:
        """Return a location as a URL of Hadoop's file systems."""
        if location.startswith("s3://"):
            return "s3a://" + location.removeprefix("s3://")
        if location.startswith("az://"):
            container, _, path = location.removeprefix("az://").partition("/")
            return f"abfss://{container}@{self._azure_host()}/{path}"
        return location

    def _azure_account(self) -> str | None:
        """Return the account's name: the option, else the host of a full abfss:// URL."""
        return self._option(*_ACCOUNT) or self._host_in_url().partition(".")[0] or None

    def _host_in_url(self) -> str:
        return urlsplit(self.root).netloc.rpartition("@")[2] if "@" in self.root else ""

    def _azure_endpoint(self) -> str | None:
        """Return the endpoint of the account if it is private or an emulator's.

        None for the default one.
        """
        endpoint = self._option(*_AZURE_ENDPOINT)
        emulated = (self._option("azure_storage_use_emulator", "azure_use_emulator", "use_emulator") or "").lower()
        return endpoint or (_EMULATOR if emulated in ("true", "1") else None)

    def _azure_secret(self) -> dict[str, str | None]:
        """Return the fields of DuckDB's secret.

        It holds a connection string, a service principal, or the machine's own credentials.
        """
        account, endpoint = self._azure_account(), self._azure_endpoint()
        connection_string = self._option("azure_storage_connection_string")
        if connection_string is not None or not account:
            return {"CONNECTION_STRING": connection_string}
        if (key := self._option(*_KEY)) is not None:
            protocol = urlsplit(endpoint).scheme if endpoint else "https"
            text = f"DefaultEndpointsProtocol={protocol};AccountName={account};AccountKey={key}"
            return {"CONNECTION_STRING": f"{text};BlobEndpoint={endpoint}" if endpoint else text}
        if (signature := self._option(*_SIGNATURE)) is not None:
            place = endpoint or f"https://{account}.blob.core.windows.net"
            text = f"AccountName={account};BlobEndpoint={place};SharedAccessSignature={signature.removeprefix('?')}"
            return {"CONNECTION_STRING": text}
        if (client := self._option(*_CLIENT)) is None:
            return {"PROVIDER": "credential_chain", "ACCOUNT_NAME": account}
        return {
            "PROVIDER": "service_principal",
            "ACCOUNT_NAME": account,
            "CLIENT_ID": client,
            "CLIENT_SECRET": self._option(*_CLIENT_SECRET),
            "TENANT_ID": self._option(*_TENANT),
        }

    def _azure_host(self) -> str:
        """Return the account's Data Lake host, from an abfss:// URL or the account option."""
        host, account = self._host_in_url(), self._option(*_ACCOUNT)
        if not host and not account:
            raise InvalidConfig(
                f"Spark reaches {self.root} by its account, which nothing names: set AZURE_STORAGE_ACCOUNT_NAME in the "
                "storage_options, or write abfss://container@account.dfs.core.windows.net/path."
            )
        return host or f"{account}.dfs.core.windows.net"

    def _azure_hadoop_conf(self, host: str) -> dict[str, str | None]:
        """Return properties for an account key, a shared access signature or a principal."""
        if (key := self._option(*_KEY)) is not None:
            return {f"fs.azure.account.key.{host}": key}
        if (signature := self._option(*_SIGNATURE)) is not None:
            return {f"fs.azure.account.auth.type.{host}": "SAS", f"fs.azure.sas.fixed.token.{host}": signature}
        client, tenant = self._option(*_CLIENT), self._option(*_TENANT)
        if client is None or tenant is None:
            return {}
        oauth = "fs.azure.account.oauth"
        return {
            f"fs.azure.account.auth.type.{host}": "OAuth",
            f"{oauth}.provider.type.{host}": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
            f"{oauth}2.client.id.{host}": client,
            f"{oauth}2.client.secret.{host}": self._option(*_CLIENT_SECRET),
            f"{oauth}2.client.endpoint.{host}": f"https://login.microsoftonline.com/{tenant}/oauth2/token",
        }

    # -- the few file operations that the lake itself needs, through one library

    def list_names(self, prefix: str) -> tuple[list[str], list[str]]:
        """Return the names of the folders and files directly below ``prefix``, by one listing."""
        if self.is_local:
            return entries(os.path.join(self.root, prefix) if prefix else self.root)
        with self._about("list", f"{self.root}/{prefix}"):
            listed = obstore.list_with_delimiter(self.store, prefix or None)
        folders = (path.rstrip("/").rsplit("/", 1)[-1] for path in listed["common_prefixes"])
        return sorted(folders), sorted(each["path"].rsplit("/", 1)[-1] for each in listed["objects"])

    def keys(self, location: str, prefix: str = "", *, after: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield all objects below ``location/prefix``.

        Each has ``path`` (relative to the location), ``size`` and ``modified`` (seconds since
        1970), on a store also ``e_tag``.

        Args:
            after: Only objects after this path; ignored on a local path.
        """
        if self.is_local:
            yield from files_below(location, prefix)
            return
        with self._about("list", f"{location}/{prefix}"):
            for chunk in obstore.list(self.store_at(location), prefix or None, offset=after):
                for each in chunk:
                    entry = {"path": each["path"], "size": each["size"], "e_tag": each["e_tag"]}
                    yield {**entry, "modified": each["last_modified"].timestamp()}

    def has(self, location: str, path: str) -> bool:
        """True if an object exists at a path below a location."""
        with self._about("look at", f"{location}/{path}"):
            if self.is_local:
                return os.path.isfile(f"{location}/{path}")
            try:
                obstore.head(self.store_at(location), path)
            except FileNotFoundError:
                return False
            return True

    def read(self, path: str) -> bytes | None:
        """Return the bytes of an object under the root; None if missing."""
        return self.read_at(self.root, path)

    def read_at(self, location: str, path: str) -> bytes | None:
        """Return the bytes of an object below a location; None if missing."""
        with self._about("read", f"{location}/{path}"):
            try:
                if self.is_local:
                    with open(f"{location}/{path}", "rb") as file:
                        return file.read()
                return bytes(obstore.get(self.store_at(location), path).bytes())
            except (FileNotFoundError, NotADirectoryError):
                return None

    def read_ends(self, location: str, path: str, most: int) -> tuple[int, bytes, bytes] | None:
        """Return an object's size, up to ``most`` first bytes, and up to as many last ones.

        None if it is missing. From a store, the object is read whole.
        """
        if not self.is_local:
            raw = self.read_at(location, path)
            return None if raw is None else (len(raw), raw[:most], raw[most:][-most:])
        with self._about("read", f"{location}/{path}"):
            try:
                with open(f"{location}/{path}", "rb") as file:
                    size, first = os.fstat(file.fileno()).st_size, file.read(most)
                    file.seek(max(len(first), size - most))
                    return size, first, file.read(most)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def put(self, path: str, data: bytes) -> None:
        """Put one object under the root, atomically."""
        self.put_at(self.root, path, data)

    def put_at(self, location: str, path: str, data: bytes) -> None:
        """Put one object below a location, atomically; it replaces an existing one."""
        with self._about("write", f"{location}/{path}"):
            if self.is_local:
                Path(location).mkdir(parents=True, exist_ok=True)
            obstore.put(self.store_at(location), path, data)

    def put_new(self, location: str, path: str, data: bytes, what: str = "") -> Written | None:
        """Put one object below a location, atomically; None if another object exists, which stays.

        A store may carry out a request although its answer is lost. Retried, by the client or here,
        the request then meets its own object. So the object is read back after each failure, and
        one with the same bytes is this writer's. Objects of two writers therefore have to differ,
        as commits do by their ids.

        Args:
            location: The folder or URL that ``path`` is relative to.
            path: The object's key.
            data: Its bytes.
            what: Names the object in messages, such as "version 3 of table main.t".

        Raises:
            StorageError: The store refused; nothing was written.
            CommitUnknown: The store answered neither the request nor the questions after it. Or it
                refused the request because of another one, and has no object since.
        """
        what = what or f"{location}/{path}"
        with self._about("write", what):
            if self.is_local:
                Path(location).mkdir(parents=True, exist_ok=True)
            store = self.store_at(location)
            for pause in _PAUSES:
                try:
                    return Written(obstore.put(store, path, data, mode="create").get("e_tag"))
                except (*_REFUSED, OSError):  # of a file system, which answers always
                    raise
                except ObstoreError as error:
                    failure = error
                there = self._read_back(store, path, what, failure)
                if there is not None:
                    return there[1] if there[0] == data else None
                if self.is_local:
                    raise failure
                # No object yet: the request may still be under way. After a retry one of
                # the two wins, and both are this writer's.
                time.sleep(pause)
            raise CommitUnknown(_unknown(what, self.redacted(failure)))

    def _read_back(self, store: Any, path: str, what: str, failure: Exception) -> tuple[bytes, Written] | None:
        """Return the object of a failed put; None if missing. Raises CommitUnknown."""
        try:
            answer = obstore.get(store, path)
            return bytes(answer.bytes()), Written(answer.meta.get("e_tag"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Exception as error:
            raise CommitUnknown(
                _unknown(what, f"{said(self.redacted(failure))}; then {self.redacted(error)}")
            ) from None

    def remove(self, path: str) -> None:
        """Remove one object under the root; a missing one is no error."""
        with self._about("remove", f"{self.root}/{path}"), suppress(FileNotFoundError):
            obstore.delete(self.store, path)

    @contextmanager
    def _about(self, verb: str, place: str) -> Iterator[None]:
        """Turn errors of a store or file system into StorageError that names the operation."""
        try:
            yield
        except DuckrunError:
            raise
        except Exception as error:
            reason, what = self.redacted(error), f"Cannot {verb} {place}"
            raise storage_error(reason, what) or StorageError(f"{what}: {said(reason)}.") from None

    def remove_files(self, location: str, paths: Iterable[str]) -> None:
        """Remove objects below a location, by relative path; missing ones are no error.

        Folders stay, since another writer may just have created one.
        """
        with self._about("remove files of", location):
            if self.is_local:
                for path in paths:
                    Path(location, path).unlink(missing_ok=True)
                return
            store = self.store_at(location)
            rest = iter(paths)
            while batch := list(islice(rest, _BATCH)):
                with suppress(FileNotFoundError):
                    obstore.delete(store, batch)

    def remove_below(self, location: str, paths: Sequence[str]) -> None:
        """Remove objects below a location, by relative path, and the folders that become empty."""
        self.remove_files(location, paths)
        if not self.is_local:
            return
        with self._about("remove folders of", location):
            folders = sorted((p for p in Path(location).rglob("*") if p.is_dir()), reverse=True)
            for folder in (*folders, Path(location)):
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()

    def check_writable(self, location: str | None = None) -> None:
        """Raise StorageError, before any work, if a local root or location is not writable."""
        if self.is_local:
            refuse_unwritable(self.root, location)
