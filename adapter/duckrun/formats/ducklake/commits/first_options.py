"""Options of a table for the files of the transaction that creates it.

DuckLake refuses options of a table that is not committed yet ("Settings cannot be set for
transaction-local tables", duckdb 1.5.5). Until they can be set, the lake's options have their
values, in the memory of the attachment alone. ``set_option()`` changes that memory at once, and
ROLLBACK takes back the catalog's row only. So no other program sees the values, and a killed
process leaves none. Writers of this process wait for the writers' lock meanwhile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import duckdb

from duckrun.formats.ducklake.catalog.catalog import set_option
from duckrun.sql.quoting import quote_literal
from duckrun.values.snapshot import TableRef

if TYPE_CHECKING:
    from duckrun.formats.ducklake.commits.work import Work

log = logging.getLogger(__name__)

_DEFAULTS = {"parquet_compression": "snappy", "target_file_size": "512MB"}
"""DuckLake's defaults of the options that tables set."""


def lend(work: Work, ref: TableRef) -> None:
    """Let the next files of the transaction have the options that it gives to their table."""
    options = {option: value for table, option, value in work.options if table == ref}
    if options != work.lent:
        take_back(work)
    if not options or work.lent:
        return
    cursor = work.cursor.cursor()
    rows = cursor.execute(
        f"SELECT option_name, value, scope_entry, scope FROM ducklake_options({quote_literal(work.alias)}) "
        "WHERE scope IN ('GLOBAL', 'SCHEMA')"
    ).fetchall()
    known = {(option, None if scope == "GLOBAL" else entry): str(value) for option, value, entry, scope in rows}
    for option, value in options.items():
        # An option of the schema goes before that of the lake, and no option can be removed.
        schema = ref.schema if (option, ref.schema) in known else None
        work.lent[option] = value
        work.before_lent[option, schema] = known.get((option, schema), _DEFAULTS[option])
        _set(cursor, work.alias, option, value, schema)


def take_back(work: Work) -> None:
    """Let the attachment have the options of the lake again."""
    for (option, schema), value in work.before_lent.items():
        try:
            _set(work.cursor.cursor(), work.alias, option, value, schema)
        except duckdb.Error as error:  # an internal error has ended the instance, and its memory with it
            log.warning("lake %s: %s: %s", work.catalog.storage.root, option, work.catalog.redacted(error))
    work.lent.clear()
    work.before_lent.clear()


def _set(cursor: duckdb.DuckDBPyConnection, alias: str, option: str, value: str, schema: str | None) -> None:
    cursor.execute("BEGIN TRANSACTION")
    try:
        set_option(cursor, alias, option, value, schema, None)
    finally:
        cursor.execute("ROLLBACK")
