"""Copies of DuckLake tables to a Delta lake, with their last versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from duckrun.errors import CommitConflict, DuckrunError, UnsupportedFeature
from duckrun.moving.kinds import fitting
from duckrun.values.columns import defaults_in
from duckrun.values.layout import codec_of
from duckrun.values.moved import Moved
from duckrun.values.rows import TableConstraints, WriteSpec
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import SORT_BY, sort_order

if TYPE_CHECKING:
    from duckrun.session import Session

SNAPSHOT = "ducklake_snapshot"
"""Commit metadata: DuckLake snapshot that a copied version comes from."""


def export(source: Session, target: Session, refs: Sequence[TableRef], versions: int) -> list[Moved]:
    """Copy tables; each of their last versions becomes a commit.

    All checks happen before anything is written. After an error, all tables that this call created
    are dropped.

    Raises:
        CommitConflict: The target has a table already.
        UnsupportedFeature: Delta cannot store some columns.
    """
    plans = [(ref, _versions(source, ref, versions)) for ref in refs]
    unfit: list[str] = []
    left_out: dict[TableRef, list[str]] = {}
    for ref, snapshots in plans:
        there = target.lake.look_up(ref.schema, ref.name)[0]
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
        for ref, snapshots in plans:
            there = target.lake.look_up(ref.schema, ref.name)[0]
            for number, snapshot in enumerate(snapshots):
                reader = source.table(ref).toDF(version=snapshot.version).reader()
                target.execute(there, _spec(snapshot, first=number == 0), reader)
                if number == 0:  # not before: another writer's table of that name must not be dropped
                    created.append(there)
            rows = target.table(there).toDF().count()
            done.append(Moved(f"{ref.schema}.{ref.name}", rows, len(snapshots), left_out=tuple(left_out[ref])))
        return done
    except BaseException:
        for there in created:
            target.lake.drop(there)
        raise


def _versions(source: Session, ref: TableRef, count: int) -> list[Snapshot]:
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


def _spec(snapshot: Snapshot, *, first: bool) -> WriteSpec:
    comments = {f.name: f.metadata[b"comment"].decode() for f in snapshot.schema if b"comment" in (f.metadata or {})}
    return WriteSpec(
        "error" if first else "overwrite",
        partition_by=snapshot.partition_columns,
        sort_by=sort_order(snapshot.properties),
        table_properties={SORT_BY: snapshot.properties[SORT_BY]} if SORT_BY in snapshot.properties else {},
        compression=codec_of(snapshot.properties),
        description=snapshot.description,
        column_comments=comments,
        constraints=TableConstraints(tuple(f.name for f in snapshot.schema if not f.nullable)),
        commit_metadata={SNAPSHOT: str(snapshot.version)},
    )


def _lost(snapshot: Snapshot) -> list[str]:
    keys = [key for key in snapshot.partition_keys if key not in snapshot.partition_columns]
    return [
        *(f"partition key {key}" for key in keys),
        *(f"column {name} has a default" for name in defaults_in(snapshot.schema)),
    ]
