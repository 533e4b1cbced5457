"""A table format by its name, as ``TableRef.format`` has it. Each format is a package beside this file."""

from __future__ import annotations

from duckrun.formats.delta.delta import DeltaFormat
from duckrun.formats.format import Format
from duckrun.storage.storage import Storage
from duckrun.values.lake_format import DELTA_LAKE, DUCKLAKE, LakeFormat


def format_of(storage: Storage, form: LakeFormat = DELTA_LAKE, *, read_only: bool = False) -> Format:
    """The format of a lake."""
    if form.name == DUCKLAKE:
        from duckrun.formats.ducklake.ducklake import DuckLakeFormat

        return DuckLakeFormat(storage, form, read_only=read_only)
    return DeltaFormat(storage, read_only=read_only)
