"""Ranges of a write's rows: a file outside of them has no row that meets its predicate, as plain DuckDB evaluates it."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest

from duckrun.engines.duckdb.rows.ranges import is_outside, ranges_of, ranges_of_keys
from duckrun.values.stored import StoredColumn

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("note", pa.string())])
PREDICATES = {
    "id = 5": True, "target.id = 5": True, "ID = 5": True, "5 = id": True, "id > 5": True, "5 > id": True, "id <= -3": True,
    "id BETWEEN 2 AND 4": True, "id IN (1, 9)": True, "id = 5 AND n < 3": True, "(id = 5) AND (note = 'x' AND n >= 7)": True,
    "id > 2 AND id < 4 AND id <> 3": True, "id = 5 OR n = 3": False, "NOT id = 5": False, "id IS NULL": False,
    "id NOT BETWEEN 2 AND 4": False, "id NOT IN (1, 9)": False, "id + 1 = 5": False, "note = '5'": False, "id = n": False,
    "id = 5.5": False, "id IN (1, n)": False, "source.id = 5": False, "id <> 5": False, "true": False, "id > '5'": False,
}  # fmt: skip
"""Predicates, and whether they tell a range."""


@pytest.mark.parametrize("predicate", PREDICATES)
def test_a_file_outside_the_ranges_of_a_predicate_has_no_row_of_it(predicate: str) -> None:
    ranges, some = ranges_of(predicate, "target"), random.Random(predicate)
    assert bool(ranges) == PREDICATES[predicate]
    outside = 0
    with duckdb.connect() as plain:
        for _ in range(60):
            first, other = some.randrange(-12, 12), some.randrange(-12, 12)
            rows = pa.table([[first, first + some.randrange(3)], [other, other], ["5", "x"]], schema=SCHEMA)
            values = {name: rows[name].to_pylist() for name in ("id", "n")}
            bounds = {name: (min(each), max(each)) for name, each in values.items()}
            if is_outside(ranges, SCHEMA, (), bounds):
                outside += 1
                plain.register("target", rows)
                query = f"SELECT * FROM target, (SELECT 5 AS id) AS source WHERE {predicate.replace('ID', 'target.id')}"
                query = query if "source" in predicate else f"SELECT * FROM target WHERE {predicate}"
                assert plain.execute(query).fetchall() == []
    assert (outside > 0) == bool(ranges)


def test_bounds_count_only_if_they_are_whole_numbers_of_the_column() -> None:
    ranges = ranges_of("id = 5")
    assert is_outside(ranges, SCHEMA, (), {"id": (6, 9)})
    assert not is_outside(ranges, SCHEMA, (), {"n": (6, 9)})
    assert not is_outside(ranges, SCHEMA, (), {"id": (None, 9)})
    assert not is_outside(ranges, SCHEMA, (), {"id": ("6", "9")})
    assert not is_outside(ranges, SCHEMA.set(0, pa.field("id", pa.float64())), (), {"id": (6, 9)})


def test_bounds_of_a_mapped_table_are_found_by_physical_name() -> None:
    stored = (StoredColumn("id", "col-1"), StoredColumn("old", "id"))
    schema = pa.schema([("id", pa.int64()), ("old", pa.int64())])
    assert not is_outside(ranges_of("id = 5"), schema, stored, {"id": (6, 9), "col-1": (5, 5)})
    assert is_outside(ranges_of("id = 5"), schema, stored, {"id": (5, 5), "col-1": (6, 9)})


def test_the_ranges_of_a_sources_keys_are_its_least_and_greatest() -> None:
    with duckdb.connect() as plain:
        source = "SELECT * FROM (VALUES (3, 'a', 1.5), (NULL, 'b', 2.5), (9, 'c', 3.5)) AS s(k, note, x)"
        keys = {"ID": "k", "note": "note", "x": "x"}
        assert ranges_of_keys(plain, source, keys) == {"id": (3, 9)}
        assert ranges_of_keys(plain, f"{source} WHERE false", keys) == {}
