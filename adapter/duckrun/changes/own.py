"""What a DuckLake says itself of its changes: ``snapshots()``, ``table_changes()``, ``table_insertions()`` and ``table_deletions()``, as they are.

They differ from the four change queries: the first version is included, and in ``table_changes()`` every row of a file that was written
anew stands as updated. Source: the DuckLake documentation, Data Change Feed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from duckrun.engines.engine import Engine
from duckrun.engines.frame import LazyRows
from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.formats.format import Format
from duckrun.formats.states import StateReader
from duckrun.values.changes import LakeFunction, OwnFunction, WeighedRead
from duckrun.values.snapshot import Snapshot, TableRef

FUNCTIONS: tuple[OwnFunction, ...] = ("table_changes", "table_insertions", "table_deletions")
LAKE_FUNCTIONS: tuple[LakeFunction, ...] = ("snapshots", "current_snapshot", "table_info", "settings", "options")
"""DuckLake's functions that say something of a lake, and take nothing but its name."""


@dataclass(frozen=True)
class OwnQuery:
    """One of DuckLake's functions, over the versions from ``first`` to ``last`` (None: the newest), both included, or over times (ISO 8601).

    Example::

        OwnQuery("table_insertions", 3, 5)
    """

    function: OwnFunction | LakeFunction
    first: int | str | None = None
    last: int | str | None = None


def own_rows(form: Format, ref: TableRef, query: OwnQuery, engine: Engine) -> LazyRows:
    """The rows of a function over a table, or over the lake of one: lazy. Raises UnsupportedFeature for a Delta table,
    VersionNotReadable, InvalidConfig.
    """
    reader = form.state_reader
    if reader is None:
        raise UnsupportedFeature(
            f"{query.function}() is DuckLake's, and table {ref} is a {form.name} table: changes() of it answers, and "
            f"{'its history()' if query.function == 'snapshots' else 'table_changes() reads its change feed'}."
        )
    sql = reader.lake_sql(query.function) if query.function in LAKE_FUNCTIONS else _of_table(form, reader, ref, query)  # type: ignore[arg-type]
    nothing = pa.schema([])
    read = WeighedRead(ref, nothing, nothing, (), (), weight="", step="", sql=sql)
    return engine.weighed(read, lambda rows: f"SELECT * FROM {rows}")


def _of_table(form: Format, reader: StateReader, ref: TableRef, query: OwnQuery) -> str:
    now: Snapshot = form.snapshot(ref)
    if query.first is None:
        raise InvalidConfig(f"{query.function}() of table {ref} needs the first version, which is included.")
    first = reader.since_time(ref, query.first) if isinstance(query.first, str) else query.first
    newest = reader.read_at(now)
    last = newest if query.last is None else query.last
    last = reader.at_time(ref, last) if isinstance(last, str) else last
    if first > last:
        raise InvalidConfig(
            f"{query.function}() of table {ref} goes from version {first} to {last}, which is backwards."
        )
    first = max(first, reader.begun(now))
    if last < first:
        raise InvalidConfig(
            f"{query.function}() of table {ref} ends at version {last}, and the table was made by snapshot {first} of its lake."
        )
    reader.refuse_unreadable(ref, first, last, each=False)
    return reader.own_sql(query.function, reader.again(now, last), first, last)  # type: ignore[arg-type]
