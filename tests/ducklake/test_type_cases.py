"""The types of Delta and what else a source may hold, in a DuckLake: equal to what Python has, by this library, by plain DuckDB, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import duckrun
from duckrun import SQL, MergeSpec, SchemaMismatch, UnsupportedFeature, WriteSpec
from tests.ducklake import plain
from tests.engines.test_types import EXPECTED, columns_of, values_of
from tests.engines.type_cases import KINDS, ODD, Kind, Odd, table

pytestmark = [pytest.mark.matrix, pytest.mark.drawn(6)]

NATIVE: dict[str, tuple[str, Any]] = {
    "uint8": ("UTINYINT", 255),
    "uint16": ("USMALLINT", 2**16 - 1),
    "uint32": ("UINTEGER", 2**32 - 1),
    "uint64": ("UBIGINT", 2**64 - 1),
    "uuid": ("UUID", "6fa459ea-ee8a-3ca4-894e-db77e160355e"),
    "json": ("JSON", "[1]"),
    "timestamp in s or ms": ("TIMESTAMP_MS", "2020-01-01 12:00:00"),
    "timestamp in ns, whole microseconds": ("TIMESTAMP_NS", "2020-01-01 12:00:00"),
    "timestamp in ns, with nanoseconds": ("TIMESTAMP_NS", "1970-01-01 00:00:00.000000001"),
    "time": ("TIME", "01:00:00"),
    "time inside of a struct": ("STRUCT(t TIME)", "{'t': '01:00:00'}"),
    "duration, interval": ("INTERVAL", "24:00:00"),
}
"""What Delta keeps as another type or not at all, and a DuckLake as it is: its type, and what its value is as text."""


def _is_map_or_struct(kind: Kind) -> bool:
    return pa.types.is_map(kind.arrow) or pa.types.is_struct(kind.arrow)


@pytest.mark.parametrize("inline_rows", [0, 1000])
def test_every_type_is_read_as_it_was_written_here_and_by_another_program(tmp_path: Path, inline_rows: int) -> None:
    root = tmp_path / "lake"
    with duckrun.connect(root, format="ducklake", inline_rows=inline_rows) as lake:
        # Strings in maps and structs cannot be inlined.
        gone = [kind.column for kind in KINDS if inline_rows and _is_map_or_struct(kind)]
        expected = {name: values for name, values in EXPECTED.items() if name not in gone}
        lake.execute("t", WriteSpec("error"), table().drop_columns(gone))
        for flushed in (False, True):
            assert columns_of(lake.table("t").toDF().toArrow()) == expected, f"flushed: {flushed}"
            with plain.attached(root) as other:
                other.execute("SET TimeZone = 'UTC'")
                assert columns_of(other.sql("from lake.t").to_arrow_table()) == expected
                if not flushed:
                    other.execute("create table lake.outside as from lake.t")
            assert columns_of(lake.table("outside").toDF().toArrow()) == expected
            lake.upkeep.flush()
            lake.upkeep.merge_files()


@pytest.mark.parametrize("inline_rows", [0, 1000])
@pytest.mark.parametrize("kind", [k for k in KINDS if not pa.types.is_map(k.arrow)], ids=lambda kind: kind.column)
def test_each_value_alone_is_a_key_and_where_it_may_be_a_partition(
    tmp_path: Path, kind: Kind, inline_rows: int
) -> None:
    parted = not (pa.types.is_nested(kind.arrow) or pa.types.is_binary(kind.arrow))
    values = [v for v in kind.values if not (isinstance(v, str) and len(v) > 255)]
    inline_rows = 0 if _is_map_or_struct(kind) else inline_rows
    with duckrun.connect(tmp_path / "lake", format="ducklake", inline_rows=inline_rows) as lake:
        for keys in (None, ("v",), ("bucket(3, v)",))[: 3 if parted else 1]:
            spec = WriteSpec("overwrite", partition_by=keys, redefine=True)
            lake.execute(
                "t", spec, pa.table({"v": pa.array([*values, None], kind.arrow), "n": [0] * (len(values) + 1)})
            )
            for n, value in enumerate(values, 1):
                merged = lake.execute("t", MergeSpec(("v",)), pa.table({"v": pa.array([value], kind.arrow), "n": [n]}))
                assert (merged.rows_updated, merged.rows_inserted) == (1, 0), (keys, value)
            lake.upkeep.flush()
            found = lake.sql("from t order by n").toArrow()
            assert found["n"].to_pylist() == [*range(len(values) + 1)]
            assert values_of(kind.column, found["v"].to_pylist()) == values_of(kind.column, [None, *values])


@pytest.mark.parametrize("inline_rows", [0, 1000])
@pytest.mark.parametrize("odd", [odd for odd in ODD if odd.stored or odd.name in NATIVE], ids=lambda odd: odd.name)
def test_what_delta_has_no_type_for_is_kept_or_kept_as_another(tmp_path: Path, odd: Odd, inline_rows: int) -> None:
    root = tmp_path / "lake"
    source: Any = SQL(f"select {odd.sql} as odd") if odd.arrow is None else pa.table({"odd": odd.arrow})
    with duckrun.connect(root, format="ducklake", inline_rows=inline_rows) as lake:
        if odd.name == "time inside of a struct" and inline_rows:
            with pytest.raises(UnsupportedFeature, match=r"odd has a nested type.*inline_rows: 0"):
                lake.execute("t", WriteSpec("error"), source)
            assert lake.tables() == []
            lake.sql("create table t (odd struct(t time))")
            lake.upkeep.set_inline_rows(0, "t")
        lake.execute("t", WriteSpec("append"), source)
        lake.upkeep.flush()
        with plain.attached(root) as other:
            other.execute("SET TimeZone = 'UTC'")
            asked = "select typeof(odd), odd::varchar from lake.t"
            kind, text = other.execute(asked).fetchall()[0]
            if odd.name in NATIVE:
                assert (kind, text) == (NATIVE[odd.name][0], str(NATIVE[odd.name][1]))
            else:
                assert other.sql("from lake.t").to_arrow_table()["odd"].to_pylist() == [odd.found]


@pytest.mark.parametrize("odd", [o for o in ODD if not o.stored and o.name not in NATIVE], ids=lambda odd: odd.name)
def test_what_neither_has_is_refused_by_its_column(tmp_path: Path, odd: Odd) -> None:
    source: Any = SQL(f"select {odd.sql} as odd") if odd.arrow is None else pa.table({"odd": odd.arrow})
    with duckrun.connect(tmp_path / "lake", format="ducklake") as lake:
        with pytest.raises(SchemaMismatch, match=r"(?s)main\.t.*\bodd\b"):
            lake.execute("t", WriteSpec("error"), source)
        assert lake.tables() == []


TEXTS = ("", "NULL", "O'Neil", "c:\\dir\\", 'a"b', ", {[(=:)]}", "\n\t", "é 😀")
LISTS = [list(TEXTS), [None, *TEXTS[::-1]], [], None]
SURVIVES = {
    "VARCHAR": list(TEXTS),
    "VARCHAR[]": LISTS,
    "STRUCT(a INTEGER)[]": [[{"a": 1}, None, {"a": None}], []],
    "STRUCT(a INTEGER[])": [{"a": [1, None]}, {"a": []}],
    "MAP(INTEGER, INTEGER[])": [{"key": [1, 3], "value": [[2, None], []]}],
}
DAMAGED = {
    "STRUCT(a VARCHAR)": [{"a": text} for text in TEXTS],
    "STRUCT(a VARCHAR[])": [{"a": texts} for texts in LISTS],
    "STRUCT(a STRUCT(b VARCHAR))": [{"a": {"b": text}} for text in TEXTS],
    "STRUCT(a VARCHAR)[]": [[{"a": text} for text in TEXTS]],
    'STRUCT("a\'b" INTEGER)': [{"a'b": 1}],
    "MAP(VARCHAR, INTEGER)": [{"key": list(TEXTS), "value": [1] * len(TEXTS)}],
    "MAP(INTEGER, VARCHAR)": [{"key": [*range(len(TEXTS))], "value": list(TEXTS)}],
    "VARCHAR[][]": [LISTS],
}


@pytest.mark.parametrize("catalog", ["sqlite", "duckdb", "postgres"])
def test_nested_values_are_inlined_only_if_they_survive(
    tmp_path: Path, catalog: str, request: pytest.FixtureRequest
) -> None:
    root = tmp_path / "lake"
    postgres = catalog == "postgres"
    address = request.getfixturevalue("postgres_catalog") if postgres else f"{catalog}:{tmp_path}/catalog.{catalog}"
    model = duckdb.connect()
    with duckrun.connect(root, format="ducklake", inline_rows=20, catalog=address) as lake:
        for kind, values in (SURVIVES | DAMAGED).items():
            model.execute(f"CREATE OR REPLACE TABLE t (id INTEGER, v {kind})")
            model.executemany(f"INSERT INTO t VALUES (?, ?::{kind})", [[n, value] for n, value in enumerate(values)])
            source = model.execute("FROM t ORDER BY id").to_arrow_table()
            lake.sql(f"CREATE OR REPLACE TABLE t (id INTEGER, v {kind})")
            if kind in DAMAGED and catalog != "duckdb":
                with pytest.raises(UnsupportedFeature, match=r"v has a nested type.*inline_rows: 0"):
                    lake.execute("t", WriteSpec("append"), source)
                lake.upkeep.set_inline_rows(0, "t")
            lake.execute("t", WriteSpec("append"), source)
            for _ in range(2):
                assert lake.sql("FROM t ORDER BY id").toArrow().to_pylist() == source.to_pylist(), kind
                lake.upkeep.flush("t")


@pytest.mark.parametrize("limits", [{"schema": 100}, {"schema": 100, "table": 0}, {"schema": 0}])
def test_an_inlining_option_of_the_schema_is_seen(tmp_path: Path, limits: dict[str, int]) -> None:
    root = tmp_path / "lake"
    values = SQL("SELECT 1 AS id, {'d': DATE '2020-01-01'} AS v")
    with duckrun.connect(root, format="ducklake") as lake:
        lake.sql("CREATE TABLE t (id INTEGER, v STRUCT(d DATE)); CREATE SCHEMA other; CREATE TABLE other.t AS FROM t")
    with plain.attached(root) as other:
        for scope, limit in limits.items():
            of_table = ", table_name => 't'" if scope == "table" else ""
            other.execute(f"CALL lake.set_option('data_inlining_row_limit', {limit}, schema => 'main'{of_table})")
    with duckrun.connect(root, format="ducklake", inline_rows=0 if limits["schema"] else 10) as lake:
        if limits == {"schema": 100}:
            with pytest.raises(UnsupportedFeature, match="nested type"):
                lake.execute("t", WriteSpec("append"), values)
            lake.execute("other.t", WriteSpec("append"), values)
        else:
            lake.execute("t", WriteSpec("append"), values)
            assert lake.sql("FROM t WHERE v.d = DATE '2020-01-01'").count() == 1


@pytest.mark.parametrize("catalog", ["sqlite", "postgres"])
def test_a_zero_byte_in_an_inlined_list_is_refused_at_once(
    tmp_path: Path, catalog: str, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("postgres_catalog") if catalog == "postgres" else None
    with duckrun.connect(tmp_path / "lake", format="ducklake", inline_rows=10, catalog=address) as lake:
        lake.sql("CREATE TABLE t (v VARCHAR[])")
        with pytest.raises(UnsupportedFeature, match=r"chr\(0\)"):
            lake.sql("INSERT INTO t VALUES (['a' || chr(0)])")
        lake.upkeep.set_inline_rows(0, "t")
        lake.sql("INSERT INTO t VALUES (['a' || chr(0)])")
        assert lake.sql("FROM t").collect() == [{"v": ["a\0"]}]
