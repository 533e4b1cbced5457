"""What a session does with a DuckLake as a whole: keep it in order, bring back what it was."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from duckrun.errors import InvalidConfig, UnsupportedFeature, VersionNotReadable
from duckrun.run import lake_upkeep
from duckrun.sessions.together import Together
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

if TYPE_CHECKING:
    from duckrun.lake.lake import Lake


class LakeUpkeep(Together):
    """The part of a Session that is about its lake as a whole, where that is a DuckLake. On a lake of format delta each method raises
    UnsupportedFeature.
    """

    def maintain(
        self, spec: UpkeepSpec, table: str | TableRef | None = None, *, lake: Lake | None = None
    ) -> MaintenanceResult:
        """Carry out a spec of upkeep on the lake, or on one table of it. Raises UnsupportedFeature, ReadOnlyLake, InvalidConfig, TableNotFound."""
        self.ensure_open()
        given(spec, UpkeepSpec, "spec", "maintain()")
        ref = None if table is None else self.ref(table)
        if isinstance(spec, RestoreLakeSpec):
            return self._restored(spec, lake or self.lake)
        return lake_upkeep.maintain(lake or (self.lake if ref is None else self.lakes.of(ref)), spec, ref)

    def flush(self, table: str | TableRef | None = None) -> MaintenanceResult:
        """Write the rows that lie in the catalog into files: of one table, or of all. Example: ``s.flush().rows_flushed``."""
        return self.maintain(FlushSpec(), table)

    def merge_files(self, table: str | TableRef | None = None) -> MaintenanceResult:
        """Make fewer, larger files of adjacent small ones, of one table or of all; a flush goes first. Every version stays readable.

        The old files are removed by cleanup(). Example: ``s.merge_files("sales.orders").files_after``.
        """
        return self.maintain(MergeFilesSpec(), table)

    def rewrite_files(
        self, table: str | TableRef | None = None, *, delete_threshold: float | None = None
    ) -> MaintenanceResult:
        """Write anew the files of which more than ``delete_threshold`` (0 to 1; DuckLake's own is 0.95) of the rows is deleted; a flush goes first.

        Example: ``s.rewrite_files("sales.orders", delete_threshold=0.2)``.
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
        """Forget snapshots of the lake, by their numbers or by age; what only they read is removed by cleanup().

        The newest stays, and so do those from which consumers of changes in this lake go on: ``warnings`` name them. With
        ``spare_consumers=False`` they go, and ``warnings`` name who needs a full refresh. ``expired`` are those that are gone, or with
        ``dry_run`` would be. Raises InvalidConfig for snapshots that are not there. Example: ``s.expire(older_than="30 days")``.
        """
        numbers = None if versions is None else tuple(given(each, int, "versions", "expire()") for each in versions)
        moment = None if older_than is None else moment_of(older_than, "older_than")
        return self.maintain(ExpireSpec(numbers, moment, spare_consumers, dry_run))

    def cleanup(self, *, older_than: Age | None = None, dry_run: bool = False) -> MaintenanceResult:
        """Remove the files that no snapshot needs any more since before ``older_than``, by default seven days; ``removed`` names them.

        Who reads a version at this moment may still need younger ones. Example: ``s.cleanup(older_than="1 day")``.
        """
        return self.maintain(CleanupSpec(_moment(older_than), dry_run))

    def orphans(self, *, older_than: Age | None = None, dry_run: bool = False) -> MaintenanceResult:
        """Remove the files below ``data/`` that the catalog does not know, by default those older than seven days; ``removed`` names them.

        Who writes at this moment has younger ones. Example: ``s.orphans(dry_run=True).removed``.
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
        """All of it, in DuckLake's order: flush, expire (only with ``expire_older_than``), merge, rewrite, cleanup and orphans
        (``older_than``). Example: ``s.checkpoint(expire_older_than="30 days")``.
        """
        expire = None if expire_older_than is None else moment_of(expire_older_than, "expire_older_than")
        return self.maintain(LakeCheckpointSpec(expire, _moment(older_than), delete_threshold, spare_consumers))

    def restoreToVersion(self, version: int) -> MaintenanceResult:
        """Make all tables and views of the lake what they were at a snapshot, as one new snapshot: those made since are dropped, and those dropped
        since come back, tables as new ones. Macros and options of tables stay as they are. ``actions`` says what was done.

        Raises VersionNotReadable for a snapshot that has expired, or is not there yet. Example: ``s.restoreToVersion(7)``.
        """
        return self.maintain(RestoreLakeSpec(given(version, int, "version", "restoreToVersion()")))

    def _restored(self, spec: RestoreLakeSpec, lake: Lake) -> MaintenanceResult:
        started = time.perf_counter()
        whole = lake.format.whole
        if whole is None:
            raise UnsupportedFeature(
                f"Lake {lake.root} is of format {lake.format.name}, whose tables have a history each: table(…).restoreToVersion()."
            )
        lake.ensure_writable(lake.schema_ref(lake.default_schema))
        note = {"engine": "duckdb", "mode": spec.mode, "writer": "ducklake", "reason": f"the lake as of {spec.version}"}
        there = whole.snapshots(1)
        if not there:
            raise VersionNotReadable(f"Lake {lake.root} has no snapshot {spec.version}: nothing was written to it yet.")
        before, newest = whole.figures(None), there[0]["snapshot_id"]
        with self.transaction(lake.name):
            done = whole.restore(spec.version, note)
        (files, size), made = whole.figures(None), whole.snapshots(1)[0]["snapshot_id"]
        return MaintenanceResult(
            lake.root,
            spec.mode,
            "duckdb",
            version=made if made > newest else None,
            files_before=before[0],
            files_after=files,
            bytes_before=before[1],
            bytes_after=size,
            seconds=round(time.perf_counter() - started, 3),
            actions=tuple(done),
        )

    def snapshots(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The snapshots of a DuckLake, newest first: snapshot_id, timestamp (ms since 1970), changes, author, commit_message, …

        Raises UnsupportedFeature for a lake of format delta, where each table has its history.
        """
        whole = self.lake.format.whole
        if whole is None:
            raise UnsupportedFeature(
                f"Lake {self.lake.root} is of format {self.lake.format.name}, whose tables have a history each: table(…).history()."
            )
        return whole.snapshots(None if limit is None else given(limit, int, "limit", "snapshots()"))

    def set_inline_rows(self, rows: int, table: str | TableRef | None = None) -> None:
        """Say up to how many rows of an insert lie in the catalog (0: none), for one table or for the lake; it holds for every program, and makes
        no snapshot. Raises InvalidConfig within a transaction.
        """
        self.ensure_open()
        lake = self.lake if table is None else self.lakes.of(self.ref(table))
        whole = lake.format.whole
        if whole is None:
            raise UnsupportedFeature(
                f"Lake {lake.root} is of format {lake.format.name}; inline_rows is of lakes of format ducklake."
            )
        count = given(rows, int, "rows", "set_inline_rows()")
        if count < 0:
            raise InvalidConfig(f"inline_rows is {rows!r}; it is a number of rows, 0 for none.")
        whole.set_inline_rows(count, None if table is None else self.ref(table))


def _moment(age: Age | None) -> datetime | None:
    return None if age is None else moment_of(age, "older_than")
