"""Specs of DuckLake upkeep, for a lake or one table: frozen values without engine or catalog."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from duckrun.errors import InvalidConfig
from duckrun.values.checked import Listed, VersionNumber, spec

Age = datetime | timedelta | str
"""A moment or an age, also as text: ``2024-05-01T12:00:00``, ``7 days``, ``12 hours``."""

WEEK = timedelta(days=7)
"""Default age at which unneeded files are removed.

Running readers and writers may need younger ones.
"""
_AGO = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(second|minute|hour|day|week)s?\s*(?:ago)?\s*", re.IGNORECASE)


def moment_of(age: Age, what: str) -> datetime:
    """Return the moment of an age, in UTC.

    >>> moment_of("2024-05-01T12:00:00", "older_than").isoformat()
    '2024-05-01T12:00:00+00:00'
    """
    if isinstance(age, timedelta):
        return datetime.now(UTC) - age
    if isinstance(age, datetime):
        return age.astimezone(UTC) if age.tzinfo else age.replace(tzinfo=UTC)
    if isinstance(age, str):
        ago = _AGO.fullmatch(age)
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{f"{ago[2].lower()}s": float(ago[1])})
        try:
            return moment_of(datetime.fromisoformat(age), what)
        except ValueError:
            pass
    raise InvalidConfig(
        f"{what} is {age!r}, which is no moment: write '7 days', a time in ISO 8601, or give a datetime or a timedelta."
    )


@spec
class UpkeepSpec:
    """Base of the upkeep specs; ``mode`` is the name of the operation."""

    mode = "maintain"
    of_tables = False
    """True if it can run on one table alone."""


@spec
class FlushSpec(UpkeepSpec):
    """Write inlined rows from the catalog (``inline_rows``) into files.

    Example::

        s.maintain(FlushSpec(), "sales.orders")  # format: ducklake
    """

    mode = "flush"
    of_tables = True


@spec
class MergeFilesSpec(UpkeepSpec):
    """Merge adjacent small files into larger ones; older versions stay readable. Flushes first.

    Example::

        s.maintain(MergeFilesSpec(), "sales.orders")  # format: ducklake
    """

    mode = "merge"
    of_tables = True


@spec
class RewriteSpec(UpkeepSpec):
    """Rewrite the files with more than a share of deleted rows. Flushes first.

    Args:
        delete_threshold: The share, from 0 to 1; DuckLake's default is 0.95.

    Example::

        s.maintain(RewriteSpec(delete_threshold=0.2), "sales.orders")  # format: ducklake
    """

    delete_threshold: float | None = None

    mode = "rewrite"
    of_tables = True

    def __post_init__(self) -> None:
        share = self.delete_threshold
        if share is not None and not 0 <= share <= 1:
            raise InvalidConfig(f"delete_threshold is {share!r}; it is a share of a file's rows, from 0 to 1.")


@spec
class ExpireSpec(UpkeepSpec):
    """Expire snapshots, so that tables can no longer be read at them. The newest always stays.

    Args:
        versions: Snapshots to expire.
        older_than: Expire the snapshots before this moment instead.
        spare_consumers: Keep the snapshots that consumers of changes continue from.

    Example::

        s.maintain(ExpireSpec(versions=(0, 1)))  # format: ducklake
    """

    versions: Listed[VersionNumber] | None = None
    older_than: datetime | None = None
    spare_consumers: bool = True
    dry_run: bool = False

    mode = "expire"

    def __post_init__(self) -> None:
        if (self.versions is None) == (self.older_than is None):
            raise InvalidConfig("expire names versions, or what they are older_than: one of the two.")


@spec
class RemovalSpec(UpkeepSpec):
    """Remove files that have been unneeded since before ``older_than`` (None: seven days ago)."""

    older_than: datetime | None = None
    dry_run: bool = False


@spec
class CleanupSpec(RemovalSpec):
    """Remove files that no snapshot has needed since before ``older_than`` (None: seven days ago).

    Example::

        s.maintain(CleanupSpec(dry_run=True)).removed  # format: ducklake
    """

    mode = "cleanup"


@spec
class OrphansSpec(RemovalSpec):
    """Remove files below ``data/`` that the catalog does not know, such as those of a killed write.

    Args:
        older_than: Remove only files from before this moment; None is seven days ago.

    Example::

        s.maintain(OrphansSpec(dry_run=True)).removed  # format: ducklake
    """

    mode = "orphans"


@spec
class LakeCheckpointSpec(UpkeepSpec):
    """Run all upkeep in DuckLake's order: flush, expire, merge, rewrite, cleanup, orphans.

    Args:
        expire_older_than: Expire snapshots before this moment; None expires none.
        older_than: Age of the files that cleanup and orphans remove.

    Example::

        s.maintain(LakeCheckpointSpec())  # format: ducklake
    """

    expire_older_than: datetime | None = None
    older_than: datetime | None = None
    delete_threshold: float | None = None
    spare_consumers: bool = True

    mode = "checkpoint"

    @property
    def steps(self) -> tuple[UpkeepSpec, ...]:
        """The specs of the steps, in order. Source: DuckLake's documentation, Checkpoint."""
        expire = () if self.expire_older_than is None else (
            ExpireSpec(older_than=self.expire_older_than, spare_consumers=self.spare_consumers),
        )  # fmt: skip
        last = (CleanupSpec(self.older_than), OrphansSpec(self.older_than))
        return (FlushSpec(), *expire, MergeFilesSpec(), RewriteSpec(self.delete_threshold), *last)


@spec
class RestoreLakeSpec(UpkeepSpec):
    """Restore all tables and views of the lake to a snapshot, as one new snapshot.

    Example::

        s.maintain(RestoreLakeSpec(s.snapshots()[0]["snapshot_id"]))  # format: ducklake
    """

    version: VersionNumber

    mode = "restore"
