"""A merge into a table with column mapping and row tracking beside one into a plain table, both with deletion vectors, turn by turn in one
process: ``python -m benchmarks.apart.feature_merges --rows 4000000 --turns 5``.

1 % of the rows are merged, nine of ten of them updates: keys that lie beside each other, and keys at random; then updates that write files
anew, an OPTIMIZE, and a read of tables with partitions. Medians, and the median of the ratios turn by turn.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import duckrun
from benchmarks.apart.ducklake_turns import Laps, Turn
from duckrun import MergeSpec, OptimizeSpec, Session, UpdateSpec, WriteSpec

PLAIN, FEATURED = "plain", "mapped and tracked"
AIM = 1.3
VECTORS = {"delta.enableDeletionVectors": "true"}
FEATURES = {"delta.columnMapping.mode": "name", "delta.enableRowTracking": "true"}
TABLES = {PLAIN: "main.plain", FEATURED: "main.featured"}
PARTITIONED = {PLAIN: "main.parts_plain", FEATURED: "main.parts_mapped"}
PARTS = 20
SPREAD = 7_919
"""A prime that parts no number of rows: the keys of the tables lie in order, those of a random merge are its multiples."""
COLUMNS = """i AS id, CAST(i % 997 AS INTEGER) AS part, round(i * 1.37, 2) AS amount, 'note ' || (i * 7919 % 100003) AS note,
DATE '2020-01-01' + CAST(i % 2000 AS INTEGER) AS day, i % 3 = 0 AS flag, hash(i) % 1000000007 :: BIGINT AS other"""
READS = {
    "read of one column": "SELECT sum(amount) FROM {}",
    "read of groups": "SELECT key, count(*), sum(amount) FROM {} GROUP BY key",
    "read of one partition": "SELECT sum(amount) FROM {} WHERE key = 3",
}


def rows_of(first: int, count: int) -> str:
    return f"SELECT {COLUMNS} FROM range({first}, {first + count}) AS r(i)"


def merged(rows: int, turn: int, keys: str) -> str:
    """The source of one merge: as many keys as 1 % of the rows, of which one of ten is new."""
    count = rows // 100
    old = f"{turn} * {count} + n" if keys == "clustered" else f"(({turn} * {count} + n) * {SPREAD}) % {rows}"
    key = f"CASE WHEN n % 10 = 9 THEN {rows} + {turn + (keys == 'random') * 1000} * {count} + n ELSE {old} END"
    return f"SELECT * REPLACE (amount + {turn} + 1 AS amount) FROM (SELECT {COLUMNS} FROM (SELECT {key} AS i FROM range({count}) AS r(n)))"


@contextmanager
def tables(rows: int) -> Iterator[Session]:
    with tempfile.TemporaryDirectory() as made, duckrun.connect(Path(made) / "lake") as session:
        for side, name in TABLES.items():
            properties = VECTORS | (FEATURES if side == FEATURED else {})
            for part in range(4):
                spec = WriteSpec("append" if part else "overwrite", table_properties=properties)
                session.execute(name, spec, session.sql(rows_of(part * rows // 4, rows // 4)))
        for side, name in PARTITIONED.items():
            properties = {"delta.columnMapping.mode": "name"} if side == FEATURED else {}
            spec = WriteSpec("overwrite", partition_by=("key",), table_properties=properties)
            session.execute(name, spec, session.sql(f"SELECT *, id % {PARTS} AS key FROM ({rows_of(0, rows)})"))
        yield session


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    laps, rows = Laps(), arguments.rows
    with tables(rows) as session:
        for keys in ("clustered", "random"):
            for turn in range(arguments.turns):
                source = session.sql(merged(rows, turn, keys)).toArrow()
                sides = {side: merging(session, name, source) for side, name in TABLES.items()}
                laps.turn(f"merge, {keys} keys", turn, sides)
            laps.report(f"merge, {keys} keys", FEATURED, PLAIN)
        compare(session, TABLES)
        for turn in range(arguments.turns):
            sides = {side: updating(session, name, turn) for side, name in TABLES.items()}
            laps.turn("update, files written anew", turn, sides)
        laps.report("update, files written anew", FEATURED, PLAIN)
        for turn in range(arguments.turns):
            for name in TABLES.values():
                session.execute(name, WriteSpec("append"), session.sql(rows_of((20 + turn) * rows, rows // 20)))
            laps.turn("optimize", turn, {side: optimizing(session, name) for side, name in TABLES.items()})
        laps.report("optimize", FEATURED, PLAIN)
        compare(session, TABLES)
        for label, query in READS.items():
            for turn in range(3 * arguments.turns):
                sides = {side: reading(session, query.format(name)) for side, name in PARTITIONED.items()}
                laps.turn(label, turn, sides)
            laps.report(label, FEATURED, PLAIN)
    ratios = [
        median(f[0] / p[0] for f, p in zip(laps.of[label, FEATURED], laps.of[label, PLAIN], strict=True))
        for label in ("merge, clustered keys", "merge, random keys")
    ]
    return 0 if max(ratios) <= AIM else 1


def merging(session: Session, name: str, source: object) -> Turn:
    return lambda: session.execute(name, MergeSpec(("id",), merge_mode="deletion_vectors"), source)


def updating(session: Session, name: str, turn: int) -> Turn:
    spec = UpdateSpec({"amount": "amount + 1"}, predicate=f"id % 100 = {turn}", merge_mode="copy_on_write")
    return lambda: session.execute(name, spec)


def optimizing(session: Session, name: str) -> Turn:
    """All files of the table go into one; what is merged before is not timed."""
    return lambda: session.execute(name, OptimizeSpec())


def reading(session: Session, query: str) -> Turn:
    return lambda: session.sql(query).collect()


def compare(session: Session, names: Mapping[str, str]) -> None:
    """Raise AssertionError unless the tables have the same rows."""
    one, other = names.values()
    for a, b in ((one, other), (other, one)):
        left = session.sql(f"SELECT count(*) AS n FROM (FROM {a} EXCEPT ALL FROM {b})").collect()[0]["n"]
        assert left == 0, f"{left} rows of {a} are not in {b}"


if __name__ == "__main__":
    sys.exit(main())
