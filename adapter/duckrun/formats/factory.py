"""A table format by its name, as ``TableRef.format`` has it. Each format is a package beside this file."""

from __future__ import annotations

from duckrun.errors import UnsupportedFeature
from duckrun.formats.delta.delta import DeltaFormat
from duckrun.formats.format import Format
from duckrun.storage.storage import Storage
from duckrun.values.snapshot import DELTA

_FORMATS = {DELTA: DeltaFormat}


def format_of(name: str, storage: Storage, *, read_only: bool = False) -> Format:
    """The format of a lake. Raises UnsupportedFeature for a name that none has."""
    if name not in _FORMATS:
        raise UnsupportedFeature(f"There is no table format {name!r}; the formats are {', '.join(_FORMATS)}.")
    return _FORMATS[name](storage, read_only=read_only)
