"""What the properties of a table, and a spec, say of data files, on either engine."""

from __future__ import annotations

from collections.abc import Mapping

from duckrun.run.memory import parse_bytes
from duckrun.values.layout import COMPRESSION, TARGET_FILE_SIZE, Layout


def file_properties(spec: object, properties: Mapping[str, str]) -> Mapping[str, str]:
    """The properties by which the files of a spec are made: what the spec says of its own, else those of the table."""
    if not isinstance(spec, Layout):
        return properties
    own = {COMPRESSION: spec.compression, TARGET_FILE_SIZE: spec.target_file_size}
    return {**properties, **{name: str(value) for name, value in own.items() if value is not None}}


def file_size(properties: Mapping[str, str]) -> int | None:
    """Bytes of a file; None where they do not say. Raises InvalidConfig for what is no size."""
    asked = properties.get(TARGET_FILE_SIZE)
    return parse_bytes(asked) if asked else None
