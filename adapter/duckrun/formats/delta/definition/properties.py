"""Table properties that Duckrun sets: names, values, and required table features.

Source: Delta protocol, Table Features; Delta documentation, Table properties reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.formats.delta.definition import mapping, statistics
from duckrun.formats.delta.definition.protocol import DOMAINS, FEATURE, VERSIONS, WRITTEN, versions_in
from duckrun.values.layout import COMPRESSION, TARGET_FILE_SIZE, codec_of
from duckrun.values.nearest import did_you_mean
from duckrun.values.tables import SORT_BY, sort_order

CHECK = "delta.constraints."
GIVEN = "duckrun.constraints"
"""Table property with the names of constraints that a write set, as JSON.

The next such write may replace these constraints.
"""
APPEND_ONLY = "delta.appendOnly"
FEED = "delta.enableChangeDataFeed"
VECTORS = "delta.enableDeletionVectors"
ROW_TRACKING = "delta.enableRowTracking"
ROW_ID = "delta.rowTracking.materializedRowIdColumnName"
ROW_COMMIT = "delta.rowTracking.materializedRowCommitVersionColumnName"
IN_COMMIT = "delta.enableInCommitTimestamps"
IN_COMMIT_VERSION = "delta.inCommitTimestampEnablementVersion"
IN_COMMIT_TIME = "delta.inCommitTimestampEnablementTimestamp"
WIDENING, TYPE_CHANGES = "delta.enableTypeWidening", "delta.typeChanges"
FEATURES_OF: dict[str, frozenset[str]] = {
    APPEND_ONLY: frozenset({"appendOnly"}),
    FEED: frozenset({"changeDataFeed"}),
    VECTORS: frozenset({"deletionVectors"}),
    ROW_TRACKING: frozenset({"rowTracking", DOMAINS}),
    IN_COMMIT: frozenset({"inCommitTimestamp"}),
    WIDENING: frozenset({"typeWidening"}),
}
"""Boolean property -> required table features."""
WORDS_OF = {
    FEED: "the change data feed",
    VECTORS: "deletion vectors",
    ROW_TRACKING: "row tracking",
    IN_COMMIT: "in-commit timestamps",
    WIDENING: "type widening",
    mapping.MODE: "column mapping",
}
"""Property -> the feature that it enables, for messages."""
CHECKPOINTS = "delta.checkpointPolicy"
_SPECIAL = {
    mapping.MODE: r"none|name|id",
    CHECKPOINTS: r"classic|v2",
    **dict.fromkeys((ROW_TRACKING, IN_COMMIT, WIDENING), r"true|false"),
}
"""Properties that define how files and commits are written.

In Spark's own statements, Spark sets them.
"""
RECORDED = frozenset({mapping.MAX_ID, ROW_ID, ROW_COMMIT, IN_COMMIT_VERSION, IN_COMMIT_TIME})
"""Properties that record results of commits.

Wrong ones would give two columns one id, or two rows.
"""
PLAIN = {
    **dict.fromkeys(FEATURES_OF, r"true|false"),
    **_SPECIAL,
    "delta.enableExpiredLogCleanup": r"true|false",
    "delta.checkpoint.writeStatsAsJson": r"true|false",
    "delta.checkpoint.writeStatsAsStruct": r"true|false",
    "delta.autoOptimize.autoCompact": r"true|false|auto",
    "delta.autoOptimize.optimizeWrite": r"true|false",
    "delta.checkpointInterval": r"[1-9]\d*",
    statistics.COUNT: r"-1|\d+",
    statistics.COLUMNS: r".+",
    TARGET_FILE_SIZE: r"\d+(\.\d+)?\s*[a-z]*",
    "delta.isolationLevel": r"serializable|writeserializable",
    "delta.logRetentionDuration": r"interval .+",
    "delta.deletedFileRetentionDuration": r"interval .+",
    "delta.setTransactionRetentionDuration": r"interval .+",
}
"""Delta properties that Duckrun may set, with a pattern of their values.

Any other may require more than metadata.
"""
_NAMES = {name.lower(): name for name in (*PLAIN, *RECORDED, *VERSIONS, *(FEATURE + name for name in WRITTEN))}


def is_on(properties: Mapping[str, str], name: str) -> bool:
    """True if a boolean property of a table is true."""
    return properties.get(name, "").lower() == "true"


def canonical(name: str) -> str:
    """Return Delta's spelling of a property name. Spark ignores the case of Delta's names.

    >>> canonical("DELTA.appendonly"), canonical("Delta.New"), canonical("Owner")
    ('delta.appendOnly', 'delta.New', 'Owner')
    """
    lower = name.lower()
    if not lower.startswith("delta."):
        return name
    for prefix in (CHECK, FEATURE):
        if lower.startswith(prefix):
            return _NAMES.get(lower, prefix + name[len(prefix) :])
    return _NAMES.get(lower, "delta." + name[len("delta.") :])


def with_canonical_names(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties under Delta's spelling of their names.

    Raises:
        InvalidConfig: One property has two values under two spellings.
    """
    named: dict[str, Any] = {}
    for name, value in properties.items():
        key = canonical(name)
        if str(named.setdefault(key, value)).lower() != str(value).lower():
            raise InvalidConfig(
                f"the table property {key} is named twice, as {named[key]} and as {value}; leave one out."
            )
    return named


def checks_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the CHECK constraints among table properties: name -> Spark SQL.

    Source: Delta protocol, CHECK Constraints.
    """
    return {key.removeprefix(CHECK): text for key, text in properties.items() if key.startswith(CHECK)}


def property_value(name: str, value: Any) -> str:
    """Return the text of a property's value.

    Raises:
        InvalidConfig: The value is invalid, or the property must not be set by hand.
        UnsupportedFeature: The property may require more than metadata.
    """
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if name.startswith(CHECK):
        raise InvalidConfig(f"{name} is a constraint: add it as one, so that the rows are checked.")
    if name == GIVEN:
        raise InvalidConfig(f"{name} is kept by the writes that give a table constraints; it is not set by hand.")
    if name in RECORDED:
        raise InvalidConfig(f"{name} is kept by the commits that need it (Delta protocol); it is not set by hand.")
    if name == SORT_BY:
        sort_order({SORT_BY: text})
    if name == COMPRESSION:
        codec_of({COMPRESSION: text})
    if not name.startswith("delta."):
        return text
    if name not in PLAIN:
        raise UnsupportedFeature(
            f"the table property {name} may need more of a table than metadata: it is none that the duckdb engine sets."
            f"{did_you_mean(name, PLAIN)} Leave it out, or run this with engine: spark."
        )
    if not re.fullmatch(PLAIN[name], text, re.IGNORECASE):
        raise InvalidConfig(f"{text!r} is no value of the table property {name}.")
    return text


def special_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that require more than metadata.

    Raises:
        InvalidConfig: A protocol version does not exist.
    """
    versions_in(properties)
    metadata = PLAIN.keys() - _SPECIAL.keys()
    return {
        k: v for k, v in properties.items() if k.startswith("delta.") and not k.startswith(CHECK) and k not in metadata
    }
