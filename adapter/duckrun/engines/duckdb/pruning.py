"""What the keys of a source say of the rows of a table that they can meet: the files of others are not opened."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from duckrun.engines.duckdb.rows_to_write import types_of
from duckrun.engines.duckdb.source import Rows
from duckrun.formats.format import Format
from duckrun.sql.char_types import is_padded
from duckrun.sql.names import quote_identifier, quote_literal
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot

_INSTANT = "TIMESTAMP WITH TIME ZONE"
_EXACT = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "DATE", "TIMESTAMP", _INSTANT, "VARCHAR")
_LONGEST = 1000
"""Letters of a bound in SQL."""
_SETS = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "DATE", "VARCHAR")
"""Types of keys that are held against the bounds of each file, one by one; of instants these may be cut to milliseconds."""
_FEW, _SHARE = 4, 0.5
"""Files of a table that is not worth it, and of the files those that must be left: by their names they are read a little slower."""


def key_ranges(source: Rows, keys: Sequence[str]) -> list[str]:
    """Conditions over the columns of a table that hold for every row which has the keys of a row of the source: between which values
    each key lies. Of types whose order is the same to all who write bounds.
    """
    kinds = {key: str(source.types[key]) for key in keys}
    keys = [key for key, kind in kinds.items() if kind in _EXACT or kind.startswith("DECIMAL")]
    if not keys:
        return []
    # The text of an instant, in some zones of old, says its offset without the seconds: so it is one of UTC.
    utc = {k: "timezone('UTC', {})" if kinds[k] == _INSTANT else "{}" for k in keys}
    texts = {k: f"CAST({utc[k]} AS VARCHAR)" for k in keys}
    ends = ", ".join(texts[k].format(f"{end}({quote_identifier(k)})") for k in keys for end in ("min", "max"))
    found = source.cursor.execute(f"SELECT {ends} FROM ({source.sql})").fetchone() or ()
    limits = []
    for key, low, high in zip(keys, found[::2], found[1::2], strict=True):
        if low is None:
            return ["false"]
        if max(len(low), len(high)) <= _LONGEST and "\0" not in low + high:
            kind = "TIMESTAMP" if kinds[key] == _INSTANT else kinds[key]
            ends = " AND ".join(utc[key].format(f"CAST({quote_literal(end)} AS {kind})") for end in (low, high))
            limits.append(f"{quote_identifier(key)} BETWEEN {ends}")
    return limits


def files_met(form: Format, snapshot: Snapshot, source: Rows, keys: Sequence[str]) -> list[ScanFile] | None:
    """The files of a table that can hold a row with the keys of a row of the source, by the log's bounds of each; None where these
    leave most of them, or tell nothing.
    """
    if form.transacts:  # its catalog prunes files by itself
        return None
    files = snapshot.files()
    if len(files) <= _FEW:
        return None
    kinds = types_of(snapshot, source.cursor)
    met: set[str] | None = None
    for key in (key for key in keys if key in snapshot.stored_schema.names):
        kind = str(kinds[key])
        if is_padded(snapshot.schema.field(key)):
            continue  # bounds are of the values as they are stored, with or without spaces
        bounds = form.file_bounds(snapshot, key) if kind in _SETS and kind == str(source.types[key]) else None
        if bounds is None:
            continue
        table = quote_identifier(f"__duckrun_bounds_{uuid.uuid4().hex}")
        source.cursor.register(table[1:-1], bounds)
        try:
            # Of each file the least key that is not below its bounds.
            found = source.cursor.execute(
                f"SELECT name FROM {table} WHERE low IS NULL OR high IS NULL UNION ALL "
                f"SELECT b.name FROM (SELECT * FROM {table} WHERE low IS NOT NULL AND high IS NOT NULL) AS b "
                f"ASOF JOIN (SELECT {quote_identifier(key)} AS key FROM ({source.sql}) WHERE {quote_identifier(key)} IS NOT NULL) AS s "
                "ON b.low <= s.key WHERE s.key <= b.high"
            ).fetchall()
        finally:
            source.cursor.unregister(table[1:-1])
        names = {name for (name,) in found}
        met = names if met is None else met & names
    if met is None or len(met) > _SHARE * len(files):
        return None
    return list(files.named(met).values())
