"""What is asked of a DuckLake, or of one of its tables, to keep it in order. Frozen values that know no engine and no catalog."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from duckrun.errors import InvalidConfig
from duckrun.values.checked import Listed, VersionNumber, spec

Age = datetime | timedelta | str
"""A moment, how long ago it was, or either as text: ``2024-05-01T12:00:00``, ``7 days``, ``12 hours``."""

WEEK = timedelta(days=7)
"""For how long files that no snapshot needs stay where nobody says otherwise: readers and writers at work may still need them."""
_AGO = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(second|minute|hour|day|week)s?\s*(?:ago)?\s*", re.IGNORECASE)


def moment_of(age: Age, what: str) -> datetime:
    """The moment, in UTC, that an age names. Raises InvalidConfig for a text that names none.

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
    """What is asked; ``mode`` is its name."""

    mode = "maintain"
    of_tables = False
    """Whether it can be asked of one table alone."""


@spec
class FlushSpec(UpkeepSpec):
    """Write the rows that lie in the catalog (``inline_rows``) into files.

    Example::

        s.maintain(FlushSpec(), "sales.orders")  # format: ducklake
    """

    mode = "flush"
    of_tables = True


@spec
class MergeFilesSpec(UpkeepSpec):
    """Make fewer, larger files of adjacent small ones; older versions stay readable. Rows in the catalog are flushed first.

    Example::

        s.maintain(MergeFilesSpec(), "sales.orders")  # format: ducklake
    """

    mode = "merge"
    of_tables = True


@spec
class RewriteSpec(UpkeepSpec):
    """Write anew the files of which more than a share of the rows, ``delete_threshold`` (0 to 1, DuckLake's own is 0.95), is deleted. Rows
    in the catalog are flushed first.

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
    """Forget snapshots: those of ``versions``, or those ``older_than`` a moment. Their tables can then no longer be read as they were. The newest
    always stays; so do those from which consumers of changes go on, unless ``spare_consumers`` is False.

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
    """Remove files, where they have been what they are since before ``older_than`` (None: seven days ago)."""

    older_than: datetime | None = None
    dry_run: bool = False


@spec
class CleanupSpec(RemovalSpec):
    """Remove the files that no snapshot needs any more, where that is so since before ``older_than`` (None: seven days ago).

    Example::

        s.maintain(CleanupSpec(dry_run=True)).removed  # format: ducklake
    """

    mode = "cleanup"


@spec
class OrphansSpec(RemovalSpec):
    """Remove the files below ``data/`` that the catalog does not know, such as those of a killed write, where they are from before
    ``older_than`` (None: seven days ago).

    Example::

        s.maintain(OrphansSpec(dry_run=True)).removed  # format: ducklake
    """

    mode = "orphans"


@spec
class LakeCheckpointSpec(UpkeepSpec):
    """All of it, in DuckLake's order: flush, expire (only with ``expire_older_than``), merge, rewrite, cleanup, orphans (``older_than`` is of
    these two).

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
        """What is done, in its order. Source: DuckLake's documentation, Checkpoint."""
        expire = () if self.expire_older_than is None else (
            ExpireSpec(older_than=self.expire_older_than, spare_consumers=self.spare_consumers),
        )  # fmt: skip
        last = (CleanupSpec(self.older_than), OrphansSpec(self.older_than))
        return (FlushSpec(), *expire, MergeFilesSpec(), RewriteSpec(self.delete_threshold), *last)


@spec
class RestoreLakeSpec(UpkeepSpec):
    """Make all tables and views of the lake what they were at a snapshot, as one new snapshot.

    Example::

        s.maintain(RestoreLakeSpec(s.snapshots()[0]["snapshot_id"]))  # format: ducklake
    """

    version: VersionNumber

    mode = "restore"
