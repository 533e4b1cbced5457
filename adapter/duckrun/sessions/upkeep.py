"""Maintenance and restore of a whole DuckLake."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from duckrun.errors import InvalidConfig, VersionNotReadable, outcome_of
from duckrun.formats.transactions import TransactionalLake
from duckrun.lake.lake import Lake
from duckrun.run import lake_upkeep
from duckrun.sessions.opened import Opened
from duckrun.values.options import given
from duckrun.values.snapshot import TableRef
from duckrun.values.tables import MaintenanceResult
from duckrun.values.upkeep import (
    Age,
    CleanupSpec,
    ExpireSpec,
    FlushSpec,
    LakeCheckpointSpec,
    MergeFilesSpec,
    OrphansSpec,
    RestoreLakeSpec,
    RewriteSpec,
    UpkeepSpec,
    moment_of,
)


class Upkeep:
    """Maintenance of a session's lake as a whole, if it is a DuckLake: ``s.upkeep``.

    Each method raises UnsupportedFeature on a lake of format delta.

    Example::

        s.upkeep.flush()  # format: ducklake
    """

    def __init__(self, session: Opened) -> None:
        self._session = session

    def maintain(
        self, spec: UpkeepSpec, table: str | TableRef | None = None, *, lake: Lake | None = None
    ) -> MaintenanceResult:
        """Carry out a maintenance spec on the lake, or on one table of it.

        Raises:
            UnsupportedFeature: The lake has format delta.
            ReadOnlyLake: The lake is read-only.
            InvalidConfig: The spec does not fit the lake.
            TableNotFound: There is no such table.
        """
        self._session.ensure_open()
        given(spec, UpkeepSpec, "spec", "maintain()")
        ref = None if table is None else self._session.ref(table)
        with outcome_of(spec.mode, ref):
            if isinstance(spec, RestoreLakeSpec):
                return self._restored(spec, lake or self._session.lake)
            return lake_upkeep.maintain(
                lake or (self._session.lake if ref is None else self._session.lakes.of(ref)), spec, ref
            )

    def flush(self, table: str | TableRef | None = None) -> MaintenanceResult:
        """Write rows from the catalog into files, of one table or of all.

        Example::

            s.upkeep.flush().rows_flushed
        """
        return self.maintain(FlushSpec(), table)

    def merge_files(self, table: str | TableRef | None = None) -> MaintenanceResult:
        """Merge adjacent small files into fewer, larger ones, of one table or of all.

        A flush runs first. Every version stays readable. ``cleanup()`` removes the old files.

        Example::

            s.upkeep.merge_files("sales.orders").files_after
        """
        return self.maintain(MergeFilesSpec(), table)

    def rewrite_files(
        self, table: str | TableRef | None = None, *, delete_threshold: float | None = None
    ) -> MaintenanceResult:
        """Rewrite files with many deleted rows.

        A flush runs first.

        Args:
            delete_threshold: Share of deleted rows (0 to 1) above which a file is rewritten. None
                is DuckLake's default of 0.95.

        Example::

            s.upkeep.rewrite_files("sales.orders", delete_threshold=0.2)
        """
        return self.maintain(RewriteSpec(delete_threshold), table)

    def expire(
        self,
        versions: Iterable[int] | None = None,
        *,
        older_than: Age | None = None,
        spare_consumers: bool = True,
        dry_run: bool = False,
    ) -> MaintenanceResult:
        """Expire snapshots of the lake, by number or by age.

        The newest snapshot always stays. ``cleanup()`` removes the files that only expired
        snapshots use.

        Args:
            spare_consumers: Keep the snapshots where consumers of changes continue; ``warnings``
                names them. False expires them too, and ``warnings`` names the consumers that then
                need a full refresh.
            dry_run: Only list the snapshots, in ``expired``.

        Raises:
            InvalidConfig: A snapshot does not exist.

        Example::

            s.upkeep.expire(older_than="30 days")
        """
        numbers = None if versions is None else tuple(given(each, int, "versions", "expire()") for each in versions)
        return self.maintain(ExpireSpec(numbers, _moment(older_than), spare_consumers, dry_run))

    def cleanup(self, *, older_than: Age | None = None, dry_run: bool = False) -> MaintenanceResult:
        """Remove files that no snapshot uses; ``removed`` names them.

        Args:
            older_than: Remove files that have been unused for longer than this; seven days by
                default. A shorter time may remove files that a running query still reads.

        Example::

            s.upkeep.cleanup(older_than="1 day")
        """
        return self.maintain(CleanupSpec(_moment(older_than), dry_run))

    def orphans(self, *, older_than: Age | None = None, dry_run: bool = False) -> MaintenanceResult:
        """Remove files below ``data/`` that the catalog does not know; ``removed`` names them.

        Args:
            older_than: Remove files that are older than this; seven days by default. A shorter time
                may remove files of a running write.

        Example::

            s.upkeep.orphans(dry_run=True).removed
        """
        return self.maintain(OrphansSpec(_moment(older_than), dry_run))

    def checkpoint(
        self,
        *,
        expire_older_than: Age | None = None,
        older_than: Age | None = None,
        delete_threshold: float | None = None,
        spare_consumers: bool = True,
    ) -> MaintenanceResult:
        """Run all maintenance in DuckLake's order: flush, expire, merge, rewrite, cleanup, orphans.

        Args:
            expire_older_than: Age at which snapshots expire; None expires none.
            older_than: Age of the files that cleanup and orphans remove.

        Example::

            s.upkeep.checkpoint(expire_older_than="30 days")
        """
        expire = _moment(expire_older_than, "expire_older_than")
        return self.maintain(LakeCheckpointSpec(expire, _moment(older_than), delete_threshold, spare_consumers))

    def restoreToVersion(self, version: int) -> MaintenanceResult:
        """Restore all tables and views of the lake to a snapshot, as one new snapshot.

        Tables created since are dropped. Tables dropped since come back as new ones. Macros and
        table options do not change. ``actions`` lists what was done.

        Raises:
            VersionNotReadable: The snapshot has expired, or does not exist yet.

        Example::

            s.upkeep.restoreToVersion(7)
        """
        return self.maintain(RestoreLakeSpec(given(version, int, "version", "restoreToVersion()")))

    def _restored(self, spec: RestoreLakeSpec, lake: Lake) -> MaintenanceResult:
        note = {"engine": "duckdb", "mode": spec.mode, "writer": "ducklake", "reason": f"the lake as of {spec.version}"}

        def run(transactions: TransactionalLake) -> dict[str, Any]:
            there = transactions.snapshots(1)
            if not there:
                raise VersionNotReadable(
                    f"Lake {lake.root} has no snapshot {spec.version}: nothing was written to it yet."
                )
            with self._session.transaction(lake.name):
                done = transactions.restore(spec.version, note)
            newest = transactions.snapshots(1)[0]["snapshot_id"]
            return {"actions": tuple(done), "version": newest if newest > there[0]["snapshot_id"] else None}

        return lake_upkeep.measured(lake, spec, None, run)

    def set_inline_rows(self, rows: int, table: str | TableRef | None = None) -> None:
        """Set up to how many rows of an insert the catalog stores, for one table or the whole lake.

        The limit applies to every program. It creates no snapshot.

        Args:
            rows: Number of rows; 0 stores none in the catalog.

        Raises:
            InvalidConfig: A transaction is open, or the number is negative.
            UnsupportedFeature: The lake has format delta.
        """
        self._session.ensure_open()
        ref = None if table is None else self._session.ref(table)
        lake = self._session.lake if ref is None else self._session.lakes.of(ref)
        transactions = lake.transactions("; inline_rows is of lakes of format ducklake.")
        count = given(rows, int, "rows", "set_inline_rows()")
        if count < 0:
            raise InvalidConfig(f"inline_rows is {rows!r}; it is a number of rows, 0 for none.")
        transactions.set_inline_rows(count, ref)


def _moment(age: Age | None, argument: str = "older_than") -> datetime | None:
    return None if age is None else moment_of(age, argument)
