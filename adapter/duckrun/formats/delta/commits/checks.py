"""Checks of a commit before it is written: its table, its files, and rows that add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from duckrun.errors import CommitConflict, LostRows, TableNotFound, UnsupportedFeature, VersionNotReadable
from duckrun.formats.commits import NewCommit
from duckrun.formats.delta.commits.operations import Operation
from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.mapping import stored_columns
from duckrun.formats.delta.definition.protocol import OF_ROWS, PREVIEWS, WRITTEN
from duckrun.formats.delta.versions.newest import is_caught_up
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.values.data_files import spelled
from duckrun.values.rows import counted_rows
from duckrun.values.snapshot import Snapshot, TableRef, schema_from_text
from duckrun.values.stored import other_names


def refuse_wrong(
    ref: TableRef,
    snapshot: Snapshot | None,
    new: NewCommit,
    operation: Operation,
    returns: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Raise LostRows unless the files and rows of a commit add up.

    The live files are those before, minus removes, plus adds.
    """
    adds, removes = [spelled(f) for f in new.adds], [(spelled(f), f.deletion_vector) for f in new.removes]
    marked = [spelled(mark.file) for mark in new.marks]
    if snapshot is None or not (removes or returns or marked):
        assert not removes and not marked, "only a table that is there has files to remove"
        live: set[tuple[str, bool]] = set()
    else:
        named = {*adds, *marked, *(path for path, _ in removes), *(add["path"] for add in returns)}
        live = {(name, f.deletion_vector) for name, f in snapshot.files().named(named).items()}
    missed = [path for path, _ in set(removes) - live]
    twice = [path for path, n in Counter([*adds, *marked, *(path for path, _ in removes)]).items() if n > 1]
    twice += [path for path, _ in live - set(removes) if path in adds or any(a["path"] == path for a in returns)]
    if missed or twice:
        raise LostRows(
            f"Table {ref}: {operation.name} was not committed: "
            + (f"it would remove files that version {snapshot and snapshot.version} does not have, such as {missed[0]},"
               f" so that {len(missed)} files stayed" if missed else f"it would name one file twice, {twice[0]}")
            , remedy="run this with engine: spark, and report it"
        )  # fmt: skip
    if not returns:  # whose rows the caller counts
        _check_rows(ref, new, operation)


def table_after(snapshot: Snapshot | None, new: NewCommit) -> DeltaDefinition | Snapshot:
    """Return the columns and properties of the table after a commit."""
    table = cast(DeltaDefinition, new.definition) or snapshot
    assert table is not None, "a new table has a definition"
    return table


def features_of_files(snapshot: Snapshot) -> frozenset[str]:
    """Return the table's features that make its files more than rows in columns.

    Whoever fills a copy of the table does not implement them.
    """
    features = (snapshot.reader_features | snapshot.writer_features) - OF_ROWS
    return features and features - snapshot.idle_features  # which inspects all columns


def refuse_unknown_features(snapshot: Snapshot) -> None:
    """Raise UnsupportedFeature if a table's features require more than this commit does."""
    unknown = (snapshot.reader_features | snapshot.writer_features) - WRITTEN - PREVIEWS
    if unknown and (unknown := unknown - snapshot.idle_features):  # which inspects all columns
        raise UnsupportedFeature(
            f"Table {snapshot.ref} uses {', '.join(sorted(unknown))}, with which the duckdb engine cannot write. "
            "Run this with engine: spark."
        )


def _check_rows(ref: TableRef, new: NewCommit, operation: Operation) -> None:
    """Raise LostRows unless added rows equal removed rows minus deleted plus inserted rows.

    Without all counts and statistics, nothing is checked.
    """
    inserted, _, deleted = new.rows if new.data_change else (0, 0, 0)
    if not (new.removes or new.marks) or inserted is None or deleted is None:
        return
    gone = counted_rows(new.removes)
    before = None if gone is None else gone + sum(len(mark.rows) for mark in new.marks)
    after = counted_rows(new.adds)
    if before is None or after is None or after == before - deleted + inserted:
        return
    raise LostRows(
        f"Table {ref}: {operation.name} was not committed: the rows that it takes out of "
        f"{len(new.removes) + len(new.marks)} files are {before} by their statistics; with {deleted} rows deleted "
        f"and {inserted} inserted {before - deleted + inserted} would be left, and it wrote {after}",
        remedy=f"Run this with engine: spark; if that finds {before} rows in those files too, report it",
    )


def refuse_another_table(tables: TableAccess, snapshot: Snapshot | None) -> None:
    """Raise CommitConflict if the table was dropped since this commit started."""
    # A log of a new table would accept the commit, but the files are gone with the older table.
    # A write that lost its version has just seen the log, and another request costs it the next
    # version, too. check_landed() finds out after the commit.
    if snapshot is None or snapshot.pin is None or is_caught_up(snapshot) or tables.newest.has(snapshot):
        return
    try:
        snapshot.pin.check("")
    except (VersionNotReadable, TableNotFound) as error:
        again = "" if isinstance(error, TableNotFound) else ", and created again,"
        raise CommitConflict(
            f"Table {snapshot.ref} was dropped{again} while this write from its version {snapshot.version} ran, "
            "and the files that were written went with it",
            remedy="run it again",
        ) from error


def refuse_other_names(ref: TableRef, snapshot: Snapshot | None, new: NewCommit, operation: Operation) -> None:
    """Raise LostRows if added files name a column otherwise than the table's physical name.

    Readers would see NULL.
    """
    table = table_after(snapshot, new)
    columns = stored_columns(table.schema)
    for text in {file.schema for file in new.adds if file.schema}:
        if others := other_names(schema_from_text(text), table.schema, columns):
            raise LostRows(
                f"Table {ref}: {operation.name} was not committed: its files call the column {', '.join(others)} "
                "otherwise than the table has it (delta.columnMapping.mode)",
                remedy="run this again, with engine: spark, and report it",
            )
