"""Rows of a table that a statement changes, as bitmaps of their numbers in each file.

A bitmap takes at most a bit per row. A hash table takes a hundred bytes for each changed row. A
join with it takes five times as long as a look into the bitmap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from duckrun.engines.duckdb.rows.places import Numbered, computed
from duckrun.libraries import np
from duckrun.values.frozen import frozen

if TYPE_CHECKING:
    from pyroaring import BitMap64

_BATCH = 100_000
"""Rows of a batch of row numbers."""
_MARKS, _FILE, _BITS = '"__duckrun_marks"', '"__duckrun_marked_file"', '"__duckrun_marked_bits"'


def rows_by_file(table: Numbered, changes: str) -> dict[str, BitMap64]:
    """Return the numbers of the table's rows in ``changes``, by the place of their file."""
    from pyroaring import BitMap64

    # DuckDB cannot spill the lists of list(…), with eight bytes or more per row.
    batches = table.cursor.execute(
        f"SELECT {table.file}, CAST({table.row} AS UBIGINT) FROM {changes} WHERE {table.row} IS NOT NULL"
    ).to_arrow_reader(_BATCH)
    by_place: defaultdict[str, BitMap64] = defaultdict(BitMap64)
    for batch in batches:
        places = batch.column(0)
        places = places if hasattr(places, "dictionary") else places.dictionary_encode()
        codes, numbers = places.indices.to_numpy(), batch.column(1).to_numpy()
        parts = np.split(numbers[np.argsort(codes, kind="stable")], np.cumsum(np.bincount(codes))[:-1])
        for place, rows in zip(places.dictionary.to_pylist(), parts, strict=False):
            if len(rows):
                by_place[place].update(rows)
    return dict(by_place)


@frozen
class Marks:
    """Temporary table with a bitmap of marked rows for each file."""

    table: Numbered
    name: str
    """Quoted name of the temporary table."""

    def unmarked(self, rows: str, alias: str) -> str:
        """FROM and WHERE clauses for the rows of a FROM item that are not marked."""
        row, bits = f"{alias}.{self.table.row}", f"{_MARKS}.{_BITS}"
        # Rows after the last marked one have no bit, and files without marks have no bitmap.
        is_marked = (
            f"CASE WHEN {row} < bit_length({bits}) THEN get_bit({bits}, CAST({row} AS INTEGER)) = 1 ELSE false END"
        )
        joined = f"{rows} LEFT JOIN {self.name} AS {_MARKS} ON {alias}.{self.table.file} = {_MARKS}.{_FILE}"
        return f"{joined} WHERE NOT {is_marked}"


@contextmanager
def marked(table: Numbered, rows: Mapping[str, BitMap64]) -> Iterator[Marks]:
    """Mark rows of a table, by the places of their files, while the block runs."""
    columns = f"SELECT CAST(NULL AS VARCHAR) AS {_FILE}, CAST(NULL AS BIT) AS {_BITS} WHERE false"
    with computed(table.cursor, columns) as name:
        bits = "CAST(unnest(CAST(? AS BLOB[])) AS BIT)"
        table.cursor.execute(
            f"INSERT INTO {name} SELECT unnest(CAST(? AS VARCHAR[])), {bits}",
            [list(rows), list(map(_bits, rows.values()))],
        )
        yield Marks(table, name)


def _bits(rows: BitMap64) -> bytes:
    """Return a bitmap in DuckDB's form: the highest bit of a byte is its first row."""
    bits, numbers = np.zeros(rows.max() // 8 + 1, np.uint8), iter(rows)
    while len(some := np.fromiter(islice(numbers, _BATCH), np.int64)):
        np.bitwise_or.at(bits, some >> 3, (128 >> (some & 7)).astype(np.uint8))
    return bits.tobytes()
