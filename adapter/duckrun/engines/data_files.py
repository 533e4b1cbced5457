"""Properties of data files, from a table and a spec, for both engines."""

from __future__ import annotations

from collections.abc import Mapping

from duckrun.display.units import parse_bytes
from duckrun.values.layout import COMPRESSION, TARGET_FILE_SIZE, Layout


def file_properties(spec: object, properties: Mapping[str, str]) -> Mapping[str, str]:
    """Properties of the files that a spec writes: the spec's values override the table's."""
    if not isinstance(spec, Layout):
        return properties
    overrides = {COMPRESSION: spec.compression, TARGET_FILE_SIZE: spec.target_file_size}
    return {**properties, **{name: str(value) for name, value in overrides.items() if value is not None}}


def file_size(properties: Mapping[str, str]) -> int | None:
    """Target size of a file in bytes; None if the properties set none.

    Raises:
        InvalidConfig: The value is not a size.
    """
    size = properties.get(TARGET_FILE_SIZE)
    return parse_bytes(size) if size else None
