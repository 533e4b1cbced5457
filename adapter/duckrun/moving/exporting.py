"""Tables of a DuckLake copied to a Delta lake, with their last versions."""

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
"""What a commit of a copied version says of where it comes from."""


def export(source: Session, target: Session, refs: Sequence[TableRef], versions: int) -> list[Moved]:
    """Copy tables; each of their last versions is a commit. Raises CommitConflict where a table is there already, UnsupportedFeature for columns that Delta
    cannot store: before anything is written. The tables that an error leaves unfinished are dropped.
    """
    plans = [(ref, _versions(source, ref, versions)) for ref in refs]
    unfit: list[str] = []
    left_out: dict[TableRef, list[str]] = {}
    for ref, snapshots in plans:
        there = target.lake.look_up(ref.schema, ref.name)[0]
        if target.lake.exists(there):
            raise CommitConflict(f"Table {there} is in lake {target.lake.root} already. Nothing was moved.")
        for snapshot in snapshots:
            types = snapshot.sql_types or {}
            left_out[ref] = fitting(str(ref), types, target.lake.format, unfit) + _lost(snapshot)
    if unfit:
        raise UnsupportedFeature(
            f"Lake {source.lake.root} cannot be moved as it is: {'; '.join(dict.fromkeys(unfit))}. Cast these columns, or name the other tables by "
            "tables=. Nothing was moved."
        )
    made: list[TableRef] = []
    try:
        done = []
        for ref, snapshots in plans:
            there = target.lake.look_up(ref.schema, ref.name)[0]
            made.append(there)
            for number, snapshot in enumerate(snapshots):
                reader = source.table(ref).toDF(version=snapshot.version).reader()
                target.execute(there, _spec(snapshot, first=number == 0), reader)
            rows = target.table(there).toDF().count()
            done.append(Moved(f"{ref.schema}.{ref.name}", rows, len(snapshots), left_out=tuple(left_out[ref])))
        return done
    except BaseException:
        for there in made:
            target.lake.drop(there)
        raise


def _versions(source: Session, ref: TableRef, count: int) -> list[Snapshot]:
    """The last versions of a table that changed its rows or its columns, oldest first; those that only moved rows to other files are none."""
    form = source.lakes.of(ref).format
    found: list[Snapshot] = []
    for record in form.records_back(ref, source.lakes.snapshot(ref).version):
        if len(found) == count:
            break
        if record.changes_rows or record.changes_metadata:
            try:
                found.insert(0, source.lakes.snapshot(ref, record.version))
            except DuckrunError:  # of before the table had its name
                break
    return found or [source.lakes.snapshot(ref)]


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
