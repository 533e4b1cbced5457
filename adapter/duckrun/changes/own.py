"""DuckLake's own change functions, with their own semantics.

These are ``snapshots()``, ``table_changes()``, ``table_insertions()`` and ``table_deletions()``.
They differ from the four change queries: the first version is included, and ``table_changes()``
shows every row of a rewritten file as updated. Source: the DuckLake documentation, Data Change
Feed.
"""

from __future__ import annotations

import pyarrow as pa

from duckrun.engines.engine import Engine
from duckrun.engines.frame import LazyRows
from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.formats.format import Format
from duckrun.formats.states import StateReader
from duckrun.values.changes import LakeFunction, OwnFunction, WeighedRead
from duckrun.values.frozen import frozen
from duckrun.values.snapshot import Snapshot, TableRef

FUNCTIONS: tuple[OwnFunction, ...] = ("table_changes", "table_insertions", "table_deletions")
LAKE_FUNCTIONS: tuple[LakeFunction, ...] = ("snapshots", "current_snapshot", "table_info", "settings", "options")
"""DuckLake's functions about a whole lake; they take only its name."""


@frozen
class OwnQuery:
    """Call of one of DuckLake's functions over a range of versions or times (ISO 8601).

    Both ends are included.

    Example::

        OwnQuery("table_insertions", 3, 5)
    """

    function: OwnFunction | LakeFunction
    first: int | str | None = None
    last: int | str | None = None
    """Last version; None is the newest."""


def own_rows(form: Format, ref: TableRef, query: OwnQuery, engine: Engine) -> LazyRows:
    """Return the lazy rows of a function over a table, or over the table's lake.

    Raises:
        UnsupportedFeature: The table is a Delta table.
        VersionNotReadable: A version of the range has expired.
        InvalidConfig: The range has no start, or its start is after its end.
    """
    if form.transactions is None:
        raise UnsupportedFeature(
            f"{query.function}() is DuckLake's, and table {ref} is a {form.name} table: changes() of it answers, and "
            f"{'its history()' if query.function == 'snapshots' else 'table_changes() reads its change feed'}."
        )
    reader = form.transactions.states
    sql = (
        reader.lake_sql(query.function)  # type: ignore[arg-type]
        if query.function in LAKE_FUNCTIONS
        else _of_table(form, reader, ref, query)
    )
    nothing = pa.schema([])
    read = WeighedRead(ref, nothing, nothing, (), (), weight="", step="", sql=sql)
    return engine.weighed(read, lambda rows: f"SELECT * FROM {rows}")


def _of_table(form: Format, reader: StateReader, ref: TableRef, query: OwnQuery) -> str:
    now: Snapshot = form.snapshot(ref)
    if query.first is None:
        raise InvalidConfig(f"{query.function}() of table {ref} needs the first version, which is included.")
    first = reader.since_time(ref, query.first) if isinstance(query.first, str) else query.first
    last = reader.read_at(now) if query.last is None else query.last
    last = reader.at_time(ref, last) if isinstance(last, str) else last
    if first > last:
        raise InvalidConfig(
            f"{query.function}() of table {ref} goes from version {first} to {last}, which is backwards."
        )
    first = max(first, now.begun)
    if last < first:
        raise InvalidConfig(
            f"{query.function}() of table {ref} ends at version {last}, and the table was made by snapshot {first} of "
            "its lake."
        )
    reader.refuse_unreadable(ref, first, last, each=False)
    return reader.own_sql(query.function, reader.again(now, last), first, last)  # type: ignore[arg-type]
