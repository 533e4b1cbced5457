"""What the keys of a source say of the rows of a table that they can meet: the files of others are not opened."""

from __future__ import annotations

from collections.abc import Sequence

from duckrun.engines.duckdb.source import Rows
from duckrun.sql.names import quote_identifier, quote_literal

_INSTANT = "TIMESTAMP WITH TIME ZONE"
_EXACT = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "DATE", "TIMESTAMP", _INSTANT, "VARCHAR")
_LONGEST = 1000
"""Letters of a bound in SQL."""


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
