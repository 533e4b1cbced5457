"""Factory of table formats by name, as in ``TableRef.format``.

Each format is a package beside it.
"""

from __future__ import annotations

from duckrun.formats.format import Format
from duckrun.storage.storage import Storage
from duckrun.values.lake_format import DELTA_LAKE, DUCKLAKE, LakeFormat


def format_of(storage: Storage, form: LakeFormat = DELTA_LAKE, *, read_only: bool = False) -> Format:
    """Return the format object of a lake."""
    # Both packages are imported late. A lake loads its own format only, and a command without a
    # lake, such as `dbt parse`, loads neither.
    if form.name == DUCKLAKE:
        from duckrun.formats.ducklake.ducklake import DuckLakeFormat

        return DuckLakeFormat(storage, form, read_only=read_only)
    from duckrun.formats.delta.delta import DeltaFormat

    return DeltaFormat(storage, read_only=read_only)
