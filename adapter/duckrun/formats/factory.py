"""Factory of table formats by name, as in ``TableRef.format``.

Each format is a package beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from duckrun.formats.branches import BranchTables
from duckrun.formats.format import Format
from duckrun.storage.storage import Storage
from duckrun.values.branches import Branch
from duckrun.values.lake_format import DELTA_LAKE, DUCKLAKE, LakeFormat
from duckrun.values.snapshot import TableRef


def format_of(storage: Storage, form: LakeFormat = DELTA_LAKE, *, read_only: bool = False) -> Format:
    """Return the format object of a lake."""
    # Both packages are imported late. A lake loads its own format only, and a command without a
    # lake, such as `dbt parse`, loads neither.
    if form.name == DUCKLAKE:
        from duckrun.formats.ducklake.ducklake import DuckLakeFormat

        return DuckLakeFormat(storage, form, read_only=read_only)
    from duckrun.formats.delta.delta import DeltaFormat

    return DeltaFormat(storage, read_only=read_only)


def branch_format(
    storage: Storage,
    branch: Callable[[], Branch],
    forking: Callable[[TableRef, str], AbstractContextManager[None]],
    refuse_ended: Callable[[TableRef], None],
    reserve: Callable[[], int],
) -> BranchTables:
    """Return the format object of a lake of Delta tables in a branch.

    Args:
        storage: Storage of the lake.
        branch: Returns the branch, at its first use.
        forking: Records that the branch forks a table, with the id of main's. The line is written
            inside of it.
        refuse_ended: Removes the line of a table, and raises CommitConflict, if the branch was
            published or discarded.
        reserve: Returns a number that is higher than all it has returned before, in any process.
    """
    from duckrun.formats.delta.branched import BranchFormat

    return BranchFormat(storage, branch, forking, refuse_ended, reserve)
