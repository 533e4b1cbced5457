"""Copies of DuckLake tables to a Delta lake, with their last versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from duckrun.display.progress import tracked
from duckrun.errors import CommitConflict, DuckrunError, UnsupportedFeature
from duckrun.moving.copies import moved_spec
from duckrun.moving.kinds import fitting
from duckrun.sessions.tables import TableSession
from duckrun.values.columns import defaults_in
from duckrun.values.moved import Moved
from duckrun.values.rows import ReadSpec
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import SORT_BY

SNAPSHOT = "ducklake_snapshot"
"""Commit metadata: DuckLake snapshot that a copied version comes from."""


def export(source: TableSession, target: TableSession, refs: Sequence[TableRef], versions: int) -> list[Moved]:
    """Copy tables; each of their last versions becomes a commit.

    All checks happen before anything is written. After an error, all tables that this call created
    are dropped.

    Raises:
        CommitConflict: The target has a table already.
        UnsupportedFeature: Delta cannot store some columns.
    """
    plans = [(ref, target.lake.look_up(ref.schema, ref.name)[0], _versions(source, ref, versions)) for ref in refs]
    unfit: list[str] = []
    left_out: dict[TableRef, list[str]] = {}
    for ref, there, snapshots in plans:
        if target.lake.exists(there):
            raise CommitConflict(f"Table {there} is in lake {target.lake.root} already")
        for snapshot in snapshots:
            types = snapshot.sql_types or {}
            lost = fitting(str(ref), types, target.lake.format, unfit) + _lost(snapshot)
            left_out[ref] = list(dict.fromkeys([*left_out.get(ref, ()), *lost]))
    if unfit:
        raise UnsupportedFeature(
            f"Lake {source.lake.root} cannot be moved as it is: {'; '.join(dict.fromkeys(unfit))}. Cast these "
            "columns, or name the other tables by tables="
        )
    created: list[TableRef] = []
    try:
        done = []
        for ref, there, snapshots in tracked(plans, "export", "tables"):
            for number, snapshot in enumerate(snapshots):
                reader = source.scan(ref, ReadSpec(version=snapshot.version)).reader()
                spec = moved_spec(snapshot, "overwrite" if number else "error", (SORT_BY,))
                target.execute(there, replace(spec, commit_metadata={SNAPSHOT: str(snapshot.version)}), reader)
                if number == 0:  # not before: another writer's table of that name must not be dropped
                    created.append(there)
            rows = target.scan(there).count()
            done.append(Moved(f"{ref.schema}.{ref.name}", rows, len(snapshots), left_out=tuple(left_out[ref])))
        return done
    except BaseException:
        for there in created:
            target.lake.drop(there)
        raise


def _versions(source: TableSession, ref: TableRef, count: int) -> list[Snapshot]:
    """Return the last versions that changed a table's rows or columns, oldest first.

    Versions that only moved rows to other files do not count.
    """
    form = source.lakes.of(ref).format
    snapshots: list[Snapshot] = []
    for record in form.records_back(ref, source.lakes.snapshot(ref).version):
        if len(snapshots) == count:
            break
        if record.changes_rows or record.changes_metadata:
            try:
                snapshots.insert(0, source.lakes.snapshot(ref, record.version))
            except DuckrunError:  # the version is older than the table's name
                break
    return snapshots or [source.lakes.snapshot(ref)]


def _lost(snapshot: Snapshot) -> list[str]:
    keys = [key for key in snapshot.partition_keys if key not in snapshot.partition_columns]
    return [
        *(f"partition key {key}" for key in keys),
        *(f"column {name} has a default" for name in defaults_in(snapshot.schema)),
    ]
