"""The change feed of a commit that writes files anew, or updates rows: its changed rows with their images, in files of their own.

Of appends, removed files and marked rows a reader sees for itself what changed, so that such commits have no feed of their own;
one that has any says all that it changed by it. Source: Delta protocol, Add CDC File, Change Data Files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from duckrun.engines.data_files import file_properties
from duckrun.engines.duckdb.places import Numbered
from duckrun.engines.duckdb.rows_to_write import types_of
from duckrun.engines.duckdb.source import Rows
from duckrun.engines.duckdb.writers import staged
from duckrun.errors import SchemaMismatch
from duckrun.sql.names import quote_identifier
from duckrun.values.changes import CHANGE_TYPE
from duckrun.values.rows import ScanFile, StagedFile

if TYPE_CHECKING:
    from duckrun.engines.duckdb.write import Job


@dataclass(frozen=True)
class Images:
    """What rows that change were and are: ``old`` is SQL, over a row of the changes, of what happens to the row of its place; ``new`` are
    the rows that come, by what they are.
    """

    old: str = "'delete'"
    new: Sequence[tuple[str, Rows]] = ()


def feed_files(
    job: Job, table: Numbered, changes: str, touched: Sequence[ScanFile], images: Images
) -> tuple[StagedFile, ...]:
    """Write the images of the rows that a commit changes. ``changes`` is a computed table with the file and the number of each row of
    the table among them, which lie in the files ``touched``.
    """
    snapshot, cursor = table.snapshot, table.cursor
    kinds = types_of(snapshot, cursor)
    if twins := [name for name in kinds if name.lower() == CHANGE_TYPE]:
        raise SchemaMismatch(
            f"Table {snapshot.ref} keeps a change feed, which has a column {CHANGE_TYPE}, and so has the table ({twins[0]}): its changes cannot be told. "
            "Nothing was written. Rename the column, or turn the feed off (delta.enableChangeDataFeed)."
        )
    names = ", ".join(quote_identifier(c) for c in kinds)
    told = quote_identifier(CHANGE_TYPE)
    selects = []
    if touched:
        hit = f"SELECT DISTINCT {table.file}, {table.row}, {images.old} AS {told} FROM {changes} WHERE {table.row} IS NOT NULL"
        old = ", ".join(f"old.{quote_identifier(c)}" for c in kinds)
        same = f"old.{table.file} = hit.{table.file} AND old.{table.row} = hit.{table.row}"
        selects.append(
            f"SELECT {old}, hit.{told} FROM ({table.of_files(touched)}) AS old JOIN ({hit}) AS hit ON {same}"
        )
    selects += [f"SELECT {names}, '{kind}' AS {told} FROM ({rows.sql})" for kind, rows in images.new]
    if not selects:
        return ()
    text = cursor.sql("SELECT ''").types[0]
    rows = Rows(cursor, " UNION ALL ".join(selects), {**kinds, CHANGE_TYPE: text})
    folder = job.form.feed_folder
    place = replace(snapshot.ref, location=f"{snapshot.ref.location}/{folder}")
    properties = file_properties(job.spec, snapshot.properties)
    stored = job.form.stored_columns(snapshot.schema)
    files = staged.stage(rows, place, snapshot.partition_columns, properties=properties, stored=stored)
    return tuple(replace(file, path=f"{folder}/{file.path}", figures={}) for file in files)
