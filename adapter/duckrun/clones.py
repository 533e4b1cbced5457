"""A deep clone: a table of the rows, the definition and the properties of another, with files and a history of its own."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from duckrun.errors import UnsupportedFeature
from duckrun.values.columns import defaults_in
from duckrun.values.rows import TableConstraints, WriteSpec
from duckrun.values.snapshot import Snapshot

# What only the statement that made the table says: columns that are computed, clustering, names of columns in the files.
_OF_SPARK = {
    "generatedColumns": "generated columns",
    "identityColumns": "identity columns",
    "allowColumnDefaults": "defaults of columns",
    "clustering": "liquid clustering",
    "columnMapping": "column mapping",
    "rowTracking": "row tracking",
}


def clone_spec(source: Snapshot, properties: Mapping[str, str], *, replace: bool) -> WriteSpec:
    """The write of a table's clone out of its rows at a version. ``properties`` come over those of the table.

    Raises UnsupportedFeature for what a write cannot give the clone: nothing is left out without a word.
    """
    _refuse_lost(source)
    kept = {
        k: v for k, v in source.properties.items() if not k.startswith(("delta.constraints.", "duckrun.constraints"))
    }
    comments = {f.name: f.metadata[b"comment"].decode() for f in source.schema if b"comment" in (f.metadata or {})}
    strict = tuple(f.name for f in source.schema if not f.nullable)
    return WriteSpec(
        "overwrite" if replace else "error",
        redefine=replace,
        partition_by=source.partition_keys,
        table_properties={**kept, **properties},
        description=source.description,
        column_comments=comments,
        constraints=TableConstraints(strict, source.checks),
        dialect="spark",
    )


def _refuse_lost(source: Snapshot) -> None:
    features = {words for feature, words in _OF_SPARK.items() if feature in source.writer_features}
    if defaults_in(source.schema):  # of a DuckLake, where they are no feature
        features.add(_OF_SPARK["allowColumnDefaults"])
    lost = sorted(features)
    lost += [f"NOT NULL inside of {f.name}" for f in source.schema if _strict_inside(f.type)]
    if lost:
        raise UnsupportedFeature(
            f"Table {source.ref} has {', '.join(lost)}, which its clone would lose; nothing was written. Make the table by CREATE "
            "TABLE with the same words, and INSERT its rows."
        )


def _strict_inside(kind: pa.DataType) -> bool:
    """True for a type with a part that may not be NULL, at whatever depth."""
    if pa.types.is_map(kind):  # whose keys are never NULL
        return _strict_inside(kind.key_type) or _strict_inside(kind.item_type)
    parts = [kind.field(i) for i in range(kind.num_fields)]
    return any(not part.nullable or _strict_inside(part.type) for part in parts)
