"""DataFrameReader: reading by Spark's method names, the same on both engines."""

from __future__ import annotations

import os
from typing import Any, Self

from duckrun.change_set import ChangeSet
from duckrun.changes.changes import ChangeSpec
from duckrun.errors import InvalidConfig
from duckrun.frame import Frame
from duckrun.sessions.tables import TableSession
from duckrun.sql.quoting import quote_identifier
from duckrun.storage.roots import normalise_root
from duckrun.values.attributes import NamesAttributes
from duckrun.values.options import FORMATS, as_bool, as_int, given, known_option, known_value
from duckrun.values.rows import ReadSpec

_OPTIONS = {
    "delta": (
        "versionAsOf",
        "timestampAsOf",
        "readChangeFeed",
        "startingVersion",
        "startingTimestamp",
        "endingVersion",
        "endingTimestamp",
    ),
    "parquet": (),
    "csv": (
        "header",
        "sep",
        "delimiter",
        "inferSchema",
        "quote",
        "escape",
        "nullValue",
        "multiLine",
        "encoding",
    ),
}
_FLAGS = ("header", "inferSchema", "multiLine")


class DataFrameReader(NamesAttributes):
    """Reader of ``s.read``. Nothing is read before a method of the Frame needs rows.

    Example: ``s.read.format("delta").option("versionAsOf", 3).load("lake/sales/orders")``.
    """

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._format = "delta"
        self._given: dict[str, Any] = {}

    def format(self, source: str) -> Self:
        """Set the format: ``delta`` (the default), ``parquet`` or ``csv``.

        Raises:
            InvalidConfig: The format is unknown.
        """
        self._format = known_value(source, FORMATS, "format to read")
        return self

    def option(self, key: str, value: Any) -> Self:
        """Set an option.

        Args:
            key: For delta ``versionAsOf``, ``timestampAsOf``, or ``readChangeFeed`` with
                ``startingVersion``, ``startingTimestamp``, ``endingVersion`` and
                ``endingTimestamp``. For csv ``header``, ``sep``, ``inferSchema``, ``quote``,
                ``escape``, ``nullValue``, ``multiLine`` and ``encoding``.
        """
        self._given[given(key, str, "key", "option()")] = value
        return self

    def options(self, **options: Any) -> Self:
        """Set several options at once."""
        self._given |= options
        return self

    def table(self, tableName: str) -> Frame:
        """Read a table, view or registered name: ``name``, ``schema.name`` or ``lake.schema.name``.

        Raises:
            TableNotFound: No such table; the message has the nearest names.
            VersionNotReadable: The table has no such version or time.
            InvalidConfig: An option is unknown.
        """
        given(tableName, str, "tableName", "table()")
        spec = self._spec()
        if isinstance(spec, ChangeSpec):
            return ChangeSet(self._session, self._session.existing(tableName), spec)
        if spec == ReadSpec():
            return self._session.sql(f"SELECT * FROM {quote_identifier(*tableName.split('.'))}")
        return self._session.scan(self._session.existing(tableName), spec)

    def load(self, path: str | os.PathLike[str]) -> Frame:
        """Read a path: a Delta table's folder, or files, a folder or a glob of other formats.

        Raises:
            TableNotFound: The folder holds no table.
            VersionNotReadable: The table has no such version or time.
            StorageError: The path cannot be read.
            InvalidConfig: An option is unknown.
        """
        located = self._session.lakes.at(path)
        if self._format == "delta":
            spec = self._spec()
            if isinstance(spec, ChangeSpec):
                return ChangeSet(self._session, located.ref, spec)
            return self._session.scan(located.ref, spec)
        if located.lake.exists(located.ref):
            raise InvalidConfig(
                f"{located.ref.location} is a Delta table, whose folder holds files of older versions "
                "too; read it by format('delta')."
            )
        checked = self._checked()
        if "delimiter" in checked:
            checked.setdefault("sep", checked.pop("delimiter"))
        options = {key: as_bool(value, key) if key in _FLAGS else str(value) for key, value in checked.items()}
        return self._session.read_files(self._format, normalise_root(path), options)

    def parquet(self, path: str | os.PathLike[str]) -> Frame:
        """Read Parquet files."""
        return self.format("parquet").load(path)

    def csv(self, path: str | os.PathLike[str], **options: Any) -> Frame:
        """Read CSV files. As in Spark, the default is no header and only strings."""
        return self.format("csv").options(**options).load(path)

    def _checked(self) -> dict[str, Any]:
        what = f"Reading {self._format}"
        known = _OPTIONS[self._format]
        if self._given and not known:
            raise InvalidConfig(f"{what} takes no options, and was given {', '.join(self._given)}.")
        return {known_option(key, known, what): value for key, value in self._given.items()}

    def _spec(self) -> ReadSpec | ChangeSpec:
        """Return the spec of a read of a Delta table, or of its change feed.

        As in Spark, both ends of a feed are included.
        """
        if self._format != "delta":
            raise InvalidConfig(
                f"A table of the lake is read as delta, not as {self._format}; use load(path) for files."
            )
        options = self._checked()
        version, timestamp = options.get("versionAsOf"), options.get("timestampAsOf")
        ends = [name for name in options if name.startswith(("starting", "ending"))]
        if not as_bool(options.get("readChangeFeed", False), "readChangeFeed"):
            if ends:
                raise InvalidConfig(f"Option {ends[0]!r} goes with readChangeFeed, whose rows it bounds.")
            return ReadSpec(
                version=None if version is None else as_int(version, "versionAsOf"),
                timestamp=None if timestamp is None else str(timestamp),
            )
        if version is not None or timestamp is not None:
            raise InvalidConfig(
                "readChangeFeed reads a range: startingVersion and endingVersion, not versionAsOf or timestampAsOf."
            )
        start, end = options.get("startingVersion"), options.get("endingVersion")
        return ChangeSpec(
            "feed",
            from_version=None if start is None else as_int(start, "startingVersion") - 1,
            from_timestamp=None if "startingTimestamp" not in options else str(options["startingTimestamp"]),
            to_version=options.get("endingTimestamp") if end is None else as_int(end, "endingVersion"),
        )
