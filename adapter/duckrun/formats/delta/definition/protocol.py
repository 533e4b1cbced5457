"""The ``protocol`` action of a table: features that its readers and writers must know.

Source: Delta protocol, Protocol Evolution, Table Features.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.libraries import pa
from duckrun.values.frozen import frozen

_LEGACY: dict[int, set[str]] = {
    2: {"appendOnly", "invariants"},
    3: {"checkConstraints"},
    4: {"changeDataFeed", "generatedColumns"},
    5: {"columnMapping"},
    6: {"identityColumns"},
}
_LISTED = {"columnMapping", "identityColumns"}
"""Features that a table always lists by name.

A legacy writer version for one of them would also imply generated columns and more.
"""
_READ_TOO = {
    "timestampNtz",
    "deletionVectors",
    "columnMapping",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "typeWidening",
    "variantType",
}
"""Features that readers must know, too."""
_GENERATED, _IDENTITY = b"delta.generationExpression", b"delta.identity.start"

FEATURE = "delta.feature."
DOMAINS, CLUSTERING = "domainMetadata", "clustering"
VERSIONS = ("delta.minReaderVersion", "delta.minWriterVersion")
WRITTEN = frozenset({
    "appendOnly", "invariants", "checkConstraints", "timestampNtz", "changeDataFeed", "deletionVectors",
    "columnMapping", "inCommitTimestamp", "v2Checkpoint", "vacuumProtocolCheck", "rowTracking", "domainMetadata",
    "generatedColumns", "identityColumns", "allowColumnDefaults", "typeWidening", "clustering", "variantType",
})  # fmt: skip
"""Table features that Duckrun's writes preserve."""
PREVIEWS = frozenset({"typeWidening-preview", "variantType-preview"})
"""Old names of two of these features, which writes preserve, too.

A table with an old name gets no new name beside it, and no new table gets an old name.
"""
OF_ROWS = frozenset({
    "appendOnly", "invariants", "checkConstraints", "timestampNtz", "changeDataFeed", "deletionVectors",
    "inCommitTimestamp", "v2Checkpoint", "vacuumProtocolCheck",
})  # fmt: skip
"""Features that leave the files of a table as rows in columns and no more."""
BY_DELTALAKE = frozenset({
    "appendOnly", "invariants", "checkConstraints", "timestampNtz", "changeDataFeed", "columnMapping",
    "deletionVectors",
})  # fmt: skip
"""Features that deltalake preserves as well."""


def asked_of(properties: Mapping[str, str]) -> tuple[frozenset[str], tuple[int, int], dict[str, str]]:
    """Return the features and protocol versions that properties request, and the other properties.

    Raises:
        UnsupportedFeature: Duckrun's writes would not preserve a feature.
        InvalidConfig: A protocol version or a feature's value does not exist.
    """
    rest = {key: value for key, value in properties.items() if not key.startswith(FEATURE) and key not in VERSIONS}
    features = frozenset(key.removeprefix(FEATURE) for key in properties if key.startswith(FEATURE))
    if unknown := sorted(features - WRITTEN):
        raise UnsupportedFeature(
            f"the table feature {', '.join(unknown)} ({FEATURE}{unknown[0]}) is none that the duckdb engine writes, "
            f"which are {', '.join(sorted(WRITTEN))}. Run this with engine: spark"
        )
    for name in features:
        if str(properties[FEATURE + name]).lower() not in ("supported", "enabled"):
            raise InvalidConfig(
                f"{FEATURE}{name} is {properties[FEATURE + name]!r}; the value of a table feature is supported"
            )
    features |= {DOMAINS} if features & {"rowTracking", CLUSTERING} else set()
    return features, versions_in(properties), rest


def versions_in(properties: Mapping[str, Any]) -> tuple[int, int]:
    """Return the protocol versions of readers and writers in properties; 1 if not given.

    Source: Delta protocol, Protocol Evolution.

    Raises:
        InvalidConfig: A version does not exist.
    """
    texts = [str(properties.get(key, 1)).strip() for key in VERSIONS]
    reader, writer = (int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0 for text in texts)
    if not 1 <= reader <= 3 or not 1 <= writer <= 7 or (reader == 3 and writer < 7):
        named = ", ".join(f"{key} = {properties[key]}" for key in VERSIONS if key in properties)
        raise InvalidConfig(
            f"{named}: readers have the versions 1 to 3, writers 1 to 7, and version 3 of readers goes with 7 of "
            "writers: name both"
        )
    return reader, writer


def unlisted(schema: pa.Schema, properties: Mapping[str, str]) -> set[str]:
    """Return the writer features that a table's columns and properties imply.

    A protocol before version 7 lists none.
    """
    keys = {key for column in schema for key in column.metadata or {}}
    features = {"columnMapping"} if properties.get("delta.columnMapping.mode", "none") != "none" else set()
    features |= {"generatedColumns"} if _GENERATED in keys else set()
    features |= {"identityColumns"} if _IDENTITY in keys else set()
    return features | ({"invariants of columns"} if b"delta.invariants" in keys else set())


@frozen
class Protocol:
    """The ``protocol`` action of a table as a value."""

    reader: int = 1
    writer: int = 2
    reader_features: frozenset[str] = frozenset()
    writer_features: frozenset[str] = frozenset()

    def present(self) -> set[str]:
        """Return the active writer features, including those that a legacy version implies."""
        # From version 7 on, only listed features count (Delta protocol, Table Features for new and
        # Existing Tables).
        if self.writer >= 7:
            return set(self.writer_features)
        return {name for version, names in _LEGACY.items() if version <= self.writer for name in names}

    def supporting(self, features: set[str]) -> Protocol:
        """Return this protocol with more features.

        It is the same object if it has them, and a legacy version if one suffices.
        """
        present = self.present()
        missing = {name for name in features - present if f"{name}-preview" not in present}
        if not missing:
            return self
        level = {name: version for version, names in _LEGACY.items() for name in names}
        # A legacy version stands for all features up to it, so the table gains those, too (Delta
        # protocol, Table Features).
        if self.writer < 7 and missing <= set(level) - _LISTED:
            return replace(self, writer=max(level[name] for name in missing))
        writer_features = present | missing
        read = writer_features & _READ_TOO
        # A reader of version 2 only knows column mapping.
        reader = max(self.reader, 3 if read - {"columnMapping"} else 2 if read else 1)
        return self._listing(reader, writer_features)

    def _listing(self, reader: int, features: set[str]) -> Protocol:
        """Return a protocol that lists its features by name."""
        readers = self.reader_features | (features & _READ_TOO) if reader == 3 else frozenset()
        return Protocol(reader, 7, readers, frozenset(features))

    def at_least(self, reader: int, writer: int) -> Protocol:
        """Return this protocol with versions that are no lower.

        From versions 3 and 7 on, it lists the features that the legacy versions implied.
        """
        reader, writer = max(reader, self.reader), max(writer, self.writer)
        if (reader, writer) == (self.reader, self.writer):
            return self
        if writer < 7:
            return replace(self, reader=reader, writer=writer)
        return self._listing(reader, self.present())

    def action(self) -> dict[str, Any]:
        protocol: dict[str, Any] = {"minReaderVersion": self.reader, "minWriterVersion": self.writer}
        if self.reader >= 3:
            protocol["readerFeatures"] = sorted(self.reader_features)
        if self.writer >= 7:
            protocol["writerFeatures"] = sorted(self.writer_features)
        return protocol
