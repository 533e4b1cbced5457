"""Pruning by the keys of a source: files that cannot contain them are not opened."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import duckdb

from duckrun.engines.duckdb.instance.steady import is_steady
from duckrun.engines.duckdb.rows.fitted import types_of
from duckrun.engines.duckdb.rows.source import Rows
from duckrun.formats.format import Format
from duckrun.sql.char_types import is_padded
from duckrun.sql.on_demand import sql_names
from duckrun.sql.plain_names import SIDES
from duckrun.sql.quoting import fresh_name, quote_identifier, quote_literal
from duckrun.sql.typed import partition_literal
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot

_INSTANT = "TIMESTAMP WITH TIME ZONE"
_EXACT = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "DATE", "TIMESTAMP", _INSTANT, "VARCHAR")
_LONGEST = 1000
"""Most characters of a bound in SQL."""
_SETS = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "DATE", "VARCHAR")
"""Key types that are compared with each file's bounds. Bounds of instants may be truncated to
milliseconds.
"""
_FEW, _SHARE = 4, 0.5
"""Limits of pruning by file name, because a scan of named files is slightly slower.

Tables of up to ``_FEW`` files are not pruned, and pruning must leave at most the share ``_SHARE``.
"""


def key_ranges(source: Rows, keys: Sequence[str]) -> list[str]:
    """Conditions between the least and greatest key, which every row with a source key satisfies.

    Only for types whose order is the same for every writer of bounds.
    """
    kinds = {key: str(source.types[key]) for key in keys}
    keys = [key for key, kind in kinds.items() if kind in _EXACT or kind.startswith("DECIMAL")]
    if not keys:
        return []
    # In UTC, because the text of an old instant in some zones omits the seconds of the offset.
    utc = {k: "timezone('UTC', {})" if kinds[k] == _INSTANT else "{}" for k in keys}
    texts = {k: f"CAST({utc[k]} AS VARCHAR)" for k in keys}
    ends = ", ".join(texts[k].format(f"{end}({quote_identifier(k)})") for k in keys for end in ("min", "max"))
    bounds = source.cursor.execute(f"SELECT {ends} FROM ({source.sql})").fetchone() or ()
    limits = []
    for key, low, high in zip(keys, bounds[::2], bounds[1::2], strict=True):
        if low is None:
            return ["false"]
        if max(len(low), len(high)) <= _LONGEST and "\0" not in low + high:
            kind = "TIMESTAMP" if kinds[key] == _INSTANT else kinds[key]
            ends = " AND ".join(utc[key].format(f"CAST({quote_literal(end)} AS {kind})") for end in (low, high))
            limits.append(f"{quote_identifier(key)} BETWEEN {ends}")
    return limits


def files_met(form: Format, snapshot: Snapshot, source: Rows, keys: Sequence[str]) -> list[ScanFile] | None:
    """Files that may contain a row with a source key, by the log's bounds.

    Returns:
        None if the bounds prune too few files.
    """
    if form.logs is None:  # its catalog prunes files by itself
        return None
    files = snapshot.files()
    if len(files) <= _FEW:
        return None
    kinds = types_of(snapshot)
    met: set[str] | None = None
    for key in (key for key in keys if key in snapshot.stored_schema.names):
        kind = str(kinds[key])
        if is_padded(snapshot.schema.field(key)):
            continue  # the bounds are those of the stored values, with or without padding
        bounds = form.logs.file_bounds(snapshot, key) if kind in _SETS and kind == str(source.types[key]) else None
        if bounds is None:
            continue
        table = quote_identifier(f"__duckrun_bounds_{uuid.uuid4().hex}")
        source.cursor.register(table[1:-1], bounds)
        try:
            # For each file, test the least key that is not below the lower bound.
            matches = source.cursor.execute(
                f"SELECT name FROM {table} WHERE low IS NULL OR high IS NULL UNION ALL SELECT b.name FROM (SELECT * "
                f"FROM {table} WHERE low IS NOT NULL AND high IS NOT NULL) AS b ASOF JOIN (SELECT "
                f"{quote_identifier(key)} AS key FROM ({source.sql}) WHERE {quote_identifier(key)} IS NOT NULL) AS "
                "s ON b.low <= s.key WHERE s.key <= b.high"
            ).fetchall()
        finally:
            source.cursor.unregister(table[1:-1])
        names = {name for (name,) in matches}
        met = names if met is None else met & names
    if met is None or len(met) > _SHARE * len(files):
        return None
    return list(files.named(met).values())


def whole_files(snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection, predicate: str | None) -> list[ScanFile] | None:
    """Files whose rows all satisfy a predicate over partition columns.

    Returns:
        None if the predicate is volatile or uses other columns.
    """
    if predicate is None or predicate.lower() == "true":
        return list(snapshot.files())
    if not snapshot.partition_columns:
        return None
    used = {column for _, column in sql_names.columns_of(predicate, sides=SIDES)}
    if not used or not used <= set(snapshot.partition_columns) or not is_steady(predicate, cursor):
        return None
    if any(is_padded(snapshot.schema.field(name)) for name in used):
        return None  # the log has CHAR(n) values without padding
    files = list(snapshot.files())
    if not files:
        return []
    kinds = {name: str(kind) for name, kind in types_of(snapshot).items() if name in snapshot.partition_columns}
    rows = ", ".join(
        "(" + ", ".join([str(i), *(partition_literal(f.partition_values.get(c), kinds[c]) for c in kinds)]) + ")"
        for i, f in enumerate(files)
    )
    index = quote_identifier(fresh_name("__duckrun_index", kinds))
    names = ", ".join([index, *(quote_identifier(c) for c in kinds)])
    matches = cursor.execute(f"SELECT {index} FROM (VALUES {rows}) AS target({names}) WHERE ({predicate})").fetchall()
    return [files[i] for (i,) in matches]
