"""Writes that copy a table: deep clones, and moves to a lake of another format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from duckrun.errors import UnsupportedFeature
from duckrun.values.choices import WriteMode
from duckrun.values.columns import comments_in, defaults_in, refuses_inner_nulls
from duckrun.values.layout import codec_of
from duckrun.values.rows import TableConstraints, WriteSpec
from duckrun.values.snapshot import Snapshot
from duckrun.values.tables import sort_order

# Features that only CREATE TABLE can set, so that a write of the clone's rows would lose them.
_OF_SPARK = {
    "generatedColumns": "generated columns",
    "identityColumns": "identity columns",
    "allowColumnDefaults": "defaults of columns",
    "clustering": "liquid clustering",
    "columnMapping": "column mapping",
    "rowTracking": "row tracking",
}


def clone_spec(source: Snapshot, properties: Mapping[str, str], *, replace: bool) -> WriteSpec:
    """Return the write that clones a table at a version.

    Args:
        properties: Table properties that override those of the table.

    Raises:
        UnsupportedFeature: A write cannot give the clone a feature of the table. Nothing is dropped
            silently.
    """
    _refuse_lost(source)
    inherited = {
        k: v for k, v in source.properties.items() if not k.startswith(("delta.constraints.", "duckrun.constraints"))
    }
    return WriteSpec(
        "overwrite" if replace else "error",
        redefine=replace,
        partition_by=source.partition_keys,
        table_properties={**inherited, **properties},
        description=source.description,
        column_comments=comments_in(source.schema),
        constraints=TableConstraints(_required(source), source.checks),
        dialect="spark",
    )


def _refuse_lost(source: Snapshot) -> None:
    features = {words for feature, words in _OF_SPARK.items() if feature in source.writer_features}
    if defaults_in(source.schema):  # defaults of a DuckLake table are no table feature
        features.add(_OF_SPARK["allowColumnDefaults"])
    lost = sorted(features)
    lost += [f"NOT NULL inside of {f.name}" for f in source.schema if refuses_inner_nulls(f.type)]
    if lost:
        raise UnsupportedFeature(
            f"Table {source.ref} has {', '.join(lost)}, which its clone would lose",
            remedy="Make the table by CREATE TABLE with the same words, and INSERT its rows",
        )


def moved_spec(source: Snapshot, mode: WriteMode, properties: Sequence[str]) -> WriteSpec:
    """Return the write that copies a table to a lake of another format.

    Args:
        properties: Table properties to copy, if they are set.
    """
    return WriteSpec(
        mode,
        partition_by=source.partition_columns,
        sort_by=sort_order(source.properties),
        table_properties={name: source.properties[name] for name in properties if name in source.properties},
        compression=codec_of(source.properties),
        description=source.description,
        column_comments=comments_in(source.schema),
        constraints=TableConstraints(_required(source)),
    )


def _required(source: Snapshot) -> tuple[str, ...]:
    return tuple(field.name for field in source.schema if not field.nullable)
