"""DataFrameReader: reading by Spark's names, the same on both engines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

from duckrun.change_set import ChangeSet
from duckrun.changes.changes import ChangeSpec
from duckrun.errors import InvalidConfig
from duckrun.sql.names import quote_identifier
from duckrun.storage.storage import normalise_root
from duckrun.values.options import FORMATS, as_bool, as_int, given, known_option, known_value
from duckrun.values.rows import ReadSpec

if TYPE_CHECKING:
    from duckrun.frame import Frame
    from duckrun.session import Session

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
    "csv": ("header", "sep", "delimiter", "inferSchema"),
}


class DataFrameReader:
    """What ``s.read`` gives. Nothing is read before a method of the Frame needs rows.

    Example: ``s.read.format("delta").option("versionAsOf", 3).load("lake/sales/orders")``.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._format = "delta"
        self._given: dict[str, Any] = {}

    def format(self, source: str) -> Self:
        """``delta`` (the default), ``parquet`` or ``csv``. Raises InvalidConfig."""
        self._format = known_value(source, FORMATS, "format to read")
        return self

    def option(self, key: str, value: Any) -> Self:
        """``versionAsOf``, ``timestampAsOf``, ``readChangeFeed`` with ``startingVersion`` to ``endingTimestamp`` (delta); ``header``,
        ``sep``, ``inferSchema`` (csv).
        """
        self._given[given(key, str, "key", "option()")] = value
        return self

    def options(self, **options: Any) -> Self:
        """Several options at once."""
        self._given |= options
        return self

    def table(self, tableName: str) -> Frame:
        """A table, view or registered name: ``name``, ``schema.name`` or ``lake.schema.name``.

        Raises TableNotFound with the nearest names, VersionNotReadable, InvalidConfig for an unknown option.
        """
        given(tableName, str, "tableName", "table()")
        feed = self._feed()
        if feed is not None:
            return ChangeSet(self._session, self._session.table(tableName).ref, feed)
        spec = self._read_spec()
        if spec == ReadSpec():
            return self._session.sql(f"SELECT * FROM {quote_identifier(*tableName.split('.'))}")
        return self._session.table(tableName).toDF(spec.version, spec.timestamp)

    def load(self, path: str | os.PathLike[str]) -> Frame:
        """A table, or the files, at a path: the folder of a Delta table; a file, folder or pattern of the others.

        Raises TableNotFound, VersionNotReadable, StorageError, InvalidConfig for an unknown option.
        """
        found = self._session.lakes.at(path)
        feed = self._feed()
        if feed is not None:
            return ChangeSet(self._session, found.ref, feed)
        if self._format == "delta":
            return self._session.scan(found.ref, self._read_spec())
        if found.lake.exists(found.ref):
            raise InvalidConfig(
                f"{found.ref.location} is a Delta table, whose folder holds files of older versions too; read it by format('delta')."
            )
        given = self._checked()
        options: dict[str, Any] = {k: as_bool(given[k], k) for k in ("header", "inferSchema") if k in given}
        separator = given.get("sep", given.get("delimiter"))
        options |= {} if separator is None else {"sep": str(separator)}
        return self._session.read_files(self._format, normalise_root(path), options)

    def parquet(self, path: str | os.PathLike[str]) -> Frame:
        """The rows of Parquet files."""
        return self.format("parquet").load(path)

    def csv(self, path: str | os.PathLike[str], **options: Any) -> Frame:
        """The rows of CSV files; as in Spark, without a header and with strings only unless told otherwise."""
        return self.format("csv").options(**options).load(path)

    def _checked(self) -> dict[str, Any]:
        what = f"Reading {self._format}"
        known = _OPTIONS[self._format]
        if self._given and not known:
            raise InvalidConfig(f"{what} takes no options, and was given {', '.join(self._given)}.")
        return {known_option(key, known, what): value for key, value in self._given.items()}

    def _feed(self) -> ChangeSpec | None:
        """The rows of the change feed, where they are asked for, by Spark's words: both ends are included."""
        given = self._checked() if self._format == "delta" else {}
        ends = [name for name in given if name.startswith(("starting", "ending"))]
        if not as_bool(given.get("readChangeFeed", False), "readChangeFeed"):
            if ends:
                raise InvalidConfig(f"Option {ends[0]!r} goes with readChangeFeed, whose rows it bounds.")
            return None
        if "versionAsOf" in given or "timestampAsOf" in given:
            raise InvalidConfig(
                "readChangeFeed reads a range: startingVersion and endingVersion, not versionAsOf or timestampAsOf."
            )
        start, end = given.get("startingVersion"), given.get("endingVersion")
        return ChangeSpec(
            "feed",
            from_version=None if start is None else as_int(start, "startingVersion") - 1,
            from_timestamp=None if "startingTimestamp" not in given else str(given["startingTimestamp"]),
            to_version=given.get("endingTimestamp") if end is None else as_int(end, "endingVersion"),
        )

    def _read_spec(self) -> ReadSpec:
        if self._format != "delta":
            raise InvalidConfig(
                f"A table of the lake is read as delta, not as {self._format}; use load(path) for files."
            )
        given = self._checked()
        version, timestamp = given.get("versionAsOf"), given.get("timestampAsOf")
        return ReadSpec(
            version=None if version is None else as_int(version, "versionAsOf"),
            timestamp=None if timestamp is None else str(timestamp),
        )
