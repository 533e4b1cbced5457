"""Opening of tables by deltalake, with errors that name the table and a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from duckrun.errors import StorageError, TableNotFound, UnsupportedFeature, VersionNotReadable
from duckrun.formats.delta.log import LOG
from duckrun.formats.delta.maintenance import forget_lost_checkpoint
from duckrun.formats.delta.protocol import refused_feature
from duckrun.formats.delta.refusals import DeltalakeRefusal
from duckrun.sql.raising import panicked
from duckrun.storage.trouble import said, storage_error
from duckrun.values.snapshot import TableRef

if TYPE_CHECKING:
    from duckrun.formats.delta.delta import DeltaFormat


def opened(form: DeltaFormat, ref: TableRef, version: int | None = None) -> DeltaTable:
    """Return a handle of a table at a version, or at its newest.

    Raises:
        TableNotFound: There is no table.
        VersionNotReadable: The log lacks the version.
        UnsupportedFeature: The table has a feature that cannot be read.
        StorageError: The storage fails, or a log file is damaged.
    """
    try:
        return _opened(form, ref, version)
    except TableNotFoundError:
        if version is not None and form.exists(ref):
            raise _unreadable(form, ref, version) from None
        raise TableNotFound(_why_no_table(form, ref)) from None
    except BaseException as error:  # a panic of delta_rs is no Exception
        if not (isinstance(error, DeltaError | OSError | ValueError) or panicked(error)):
            raise
        if version is not None:
            latest = form.latest_version(ref)
            if latest is not None and (version > latest or DeltalakeRefusal.NO_VERSION.is_of(error)):
                raise _unreadable(form, ref, version) from error
        if (feature := refused_feature(str(error))) is not None:
            raise UnsupportedFeature(
                f"Table {ref} at {ref.location} has the {feature}, which neither engine of this release can read",
                remedy=(
                    "Read it with the engine that made it, or let that one take the feature out "
                    "(ALTER TABLE … DROP FEATURE …)"
                ),
            ) from error
        # The original error may contain credentials, so it is not chained.
        redacted, what = form.storage.redacted(error), f"Cannot open table {ref} at {ref.location}"
        if form.storage.is_local and Path(ref.location).is_file():
            raise StorageError(f"{what}: that is a file, and not the folder of a table.") from None
        raise storage_error(redacted, what) or StorageError(
            f"{what}: {said(redacted)}",
            remedy=(
                "If a file of its log is missing or damaged, put it back "
                "from a copy; else check that the location and the "
                "storage_options are right"
            ),
        ) from None


def _opened(form: DeltaFormat, ref: TableRef, version: int | None) -> DeltaTable:
    try:
        return DeltaTable(ref.url, version=version, storage_options=form.storage.delta_options())
    except DeltaError as error:
        if not DeltalakeRefusal.LOST_CHECKPOINT.is_of(error) or not forget_lost_checkpoint(form, ref):
            raise
    return DeltaTable(ref.url, version=version, storage_options=form.storage.delta_options())


def _unreadable(form: DeltaFormat, ref: TableRef, version: int) -> VersionNotReadable:
    versions = [entry["version"] for entry in form.history(ref)]
    return VersionNotReadable(
        f"Version {version} of table {ref} is not in its log; versions {min(versions)} to {max(versions)} are."
    )


def _why_no_table(form: DeltaFormat, ref: TableRef) -> str:
    first = next(iter(form.storage.keys(ref.location)), None)
    if first is None:
        return f"There is no table {ref}: nothing is at {ref.location}."
    return (
        f"{ref.location} is not a Delta table: it holds files (such as {first['path']}), but no commit in "
        f"{LOG}. Convert it, or give table {ref} another location."
    )
