"""Spark reads a DuckLake as plain DuckDB does, at each version: of random histories, and of types and layouts that need care."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import Session, WriteSpec
from tests.ducklake.test_histories import _UPKEEP, _WRITES, History, multiset
from tests.ducklake.test_spark import Plain, lake, left_behind, plain, same_rows  # noqa: F401  fixtures

pytestmark = pytest.mark.spark

OLD = """(1, TIMESTAMP '1850-06-01 12:34:56.789012', TIMESTAMPTZ '1850-06-01 12:34:56.789012Z', DATE '1500-02-28', 1.25, -99999999999999.9999, 12345678901234567890123456.0123456789),
    (2, TIMESTAMP '0001-01-01 00:00:00', TIMESTAMPTZ '0001-01-01 00:00:00Z', DATE '0001-01-01', -0.01, 0.0001, -1.0000000001),
    (3, TIMESTAMP '1899-12-31 23:59:59.999999', TIMESTAMPTZ '1899-12-31 23:59:59.999999Z', DATE '1582-10-10', 999.99, NULL, NULL),
    (4, TIMESTAMP '2024-03-31 02:30:00', TIMESTAMPTZ '2024-03-31 01:30:00Z', DATE '9999-12-31', NULL, 1, 1),
    (5, NULL, NULL, NULL, NULL, NULL, NULL)"""
COLUMNS = "id INTEGER, seen TIMESTAMP, moment TIMESTAMPTZ, day DATE, small DECIMAL(5, 2), mid DECIMAL(18, 4), big DECIMAL(38, 10)"


@pytest.mark.parametrize(
    "keys", ["year(seen), day(moment)", "month(day), bucket(4, id)", "hour(seen), small", "mid, day"]
)
def test_times_before_1900_and_decimals_in_partitions_of_each_kind(plain: Plain, lake: Session, keys: str) -> None:  # noqa: F811
    plain(f"CREATE TABLE t ({COLUMNS})")
    plain(f"ALTER TABLE t SET PARTITIONED BY ({keys})")
    plain(f"INSERT INTO t VALUES {OLD}")
    first = plain.version()
    plain("INSERT INTO t SELECT * REPLACE (id + 10 AS id) FROM t WHERE id <> 3")
    plain("DELETE FROM t WHERE id IN (2, 14)")
    plain("INSERT INTO t (id) VALUES (20)")  # a row in the catalog
    assert same_rows(lake, plain, "t") == 8
    assert same_rows(lake, plain, "t", first) == 5
    plain("CALL ducklake_flush_inlined_data('l')")
    plain("CALL ducklake_merge_adjacent_files('l')")
    assert same_rows(lake, plain, "t") == 8
    assert same_rows(lake, plain, "t", first) == 5


def test_what_spark_writes_of_old_times_and_decimals_plain_duckdb_reads(plain: Plain, lake: Session) -> None:  # noqa: F811
    plain(f"CREATE TABLE s ({COLUMNS})")
    plain(f"INSERT INTO s VALUES {OLD}")
    there = lake.sql("from s").native
    for name, keys in (("whole", ()), ("parted", ("month(seen)", "mid")), ("moments", ("hour(moment)", "day"))):
        done = lake.execute(name, WriteSpec("overwrite", partition_by=keys), there)
        assert done.rows_inserted == 5 and "workers wrote the files" in done.reason
        assert plain(f"FROM {name} EXCEPT ALL FROM s") == [] == plain(f"FROM s EXCEPT ALL FROM {name}")
        assert same_rows(lake, plain, name) == 5
    assert plain("SELECT id FROM parted WHERE seen < TIMESTAMP '1851-01-01' ORDER BY id") == [(1,), (2,)]
    assert left_behind(Path(lake.lake.root), plain) == []


def test_fields_inside_lists_maps_and_structs_that_came_went_and_were_renamed(plain: Plain, lake: Session) -> None:  # noqa: F811
    plain(
        "CREATE TABLE t (id INTEGER, s STRUCT(a INTEGER, deep STRUCT(x INTEGER, y VARCHAR)), l STRUCT(k INTEGER, v VARCHAR)[], m MAP(VARCHAR, STRUCT(p INTEGER)))"
    )
    plain(
        "INSERT INTO t SELECT range, {'a': range, 'deep': {'x': range, 'y': 'y' || range}}, [{'k': range, 'v': 'v'}, NULL], MAP {'e': {'p': range}} FROM range(8)"
    )
    first = plain.version()
    for change in (
        "RENAME s.deep.x TO xx", "ADD COLUMN s.deep.z DOUBLE", "RENAME s.a TO aa", "DROP COLUMN s.deep.y", "ALTER s TYPE STRUCT(aa BIGINT, deep STRUCT(xx INTEGER, z DOUBLE))",
        "RENAME l.element.k TO kk", "ADD COLUMN l.element.w INTEGER", "DROP COLUMN l.element.v", "ADD COLUMN m.value.q VARCHAR", "RENAME id TO key",
    ):  # fmt: skip
        plain(f"ALTER TABLE t {change}")
    plain.anew()
    plain("DELETE FROM t WHERE key % 3 = 1")
    later = "{'aa': 1::BIGINT << 40, 'deep': {'xx': 1, 'z': 0.5}}, [{'kk': 1, 'w': 2}], MAP {'e': {'p': 1, 'q': 'q'}}"
    plain(f"INSERT INTO t SELECT range + 100, {later} FROM range(5)")
    second = plain.version()
    plain(f"INSERT INTO t SELECT 200, {later}")  # in the catalog
    plain("UPDATE t SET s = NULL WHERE key = 0")
    for version, count in ((first, 8), (second, 10), (None, 11)):
        assert same_rows(lake, plain, "t", version) == count
    plain("CALL ducklake_flush_inlined_data('l')")
    plain("CALL ducklake_merge_adjacent_files('l')")
    for version, count in ((first, 8), (second, 10), (None, 11)):
        assert same_rows(lake, plain, "t", version) == count


def test_columns_and_fields_are_found_by_their_ids_whatever_they_are_called(plain: Plain, lake: Session) -> None:  # noqa: F811
    plain("CREATE TABLE t (c4 INTEGER, c3 VARCHAR, c2 UUID, s STRUCT(c7 INTEGER, u UUID, c1 VARCHAR), c1 DOUBLE)")
    plain(
        "INSERT INTO t SELECT range, 'a' || range, uuid(), {'c7': range, 'u': uuid(), 'c1': 'b' || range}, range / 2 FROM range(5)"
    )
    first = plain.version()
    for change in (
        "RENAME c4 TO x",
        "RENAME c1 TO c4",
        "RENAME x TO c1",
        "RENAME s.c7 TO y",
        "RENAME s.c1 TO c7",
        "RENAME s.y TO c1",
    ):
        plain(f"ALTER TABLE t {change}")
    plain("INSERT INTO t SELECT 9, 'z', uuid(), {'c1': 9, 'u': uuid(), 'c7': 'z'}, 0.5 FROM range(4)")
    assert same_rows(lake, plain, "t") == 9
    assert same_rows(lake, plain, "t", first) == 5


def test_a_version_before_a_type_was_widened_is_read_out_of_files_that_were_merged_since(
    plain: Plain,  # noqa: F811
    lake: Session,  # noqa: F811
) -> None:
    plain("CREATE TABLE t (n INTEGER, u USMALLINT, x FLOAT, s STRUCT(a SMALLINT, v UUID), l TINYINT[])")
    few = "SELECT range, range, range / 4, {'a': range, 'v': uuid()}, [range, NULL] FROM range"
    plain(f"INSERT INTO t {few}(0, 6)")
    plain(f"INSERT INTO t {few}(10, 17)")
    first = plain.version()
    for change in (
        "n TYPE BIGINT",
        "u TYPE UINTEGER",
        "x TYPE DOUBLE",
        "s TYPE STRUCT(a BIGINT, v UUID)",
        "l TYPE BIGINT[]",
    ):
        plain(f"ALTER TABLE t ALTER {change}")
    plain.anew()
    plain(
        "INSERT INTO t SELECT 1::BIGINT << 40, 4000000000, 1e300, {'a': 1::BIGINT << 40, 'v': uuid()}, [1::BIGINT << 40] FROM range(5)"
    )
    plain("CALL ducklake_merge_adjacent_files('l')")
    assert same_rows(lake, plain, "t", first) == 13
    assert same_rows(lake, plain, "t") == 18
    assert lake.sql(f"select count(*) as c from t at (version => {first}) where n >= 10 and s.a < 15").collect() == [
        {"c": 5}
    ]


def test_deletes_of_rows_that_were_in_the_catalog_count_from_their_snapshots_on(tmp_path: Path, spark: Any) -> None:
    """DuckLake makes one file of them, with the snapshot of each, and its catalog says of that file that it has none."""
    options: dict[str, Any] = {"format": "ducklake", "inline_rows": 4}
    held: dict[int, list[int]] = {}
    with duckrun.connect(tmp_path / "lake", **options) as session:
        session.sql("create table t (id integer)")
        for statement, ids in (
            ("insert into t values (1), (2)", [1, 2]),
            ("insert into t values (3)", [1, 2, 3]),
            ("delete from t where id = 1", [2, 3]),
            ("insert into t values (4)", [2, 3, 4]),
            ("delete from t", []),
            ("insert into t values (5)", [5]),
        ):
            session.sql(statement)
            held[session.table("t").snapshot().version] = ids
        session.upkeep.flush("t")
        with duckrun.connect(tmp_path / "lake", **options, engine="spark", spark=spark) as other:
            for version, ids in held.items():
                for each in (session, other):
                    found = each.table("t").toDF(version=version).toArrow()["id"].to_pylist()
                    assert sorted(found) == ids, version
                snapshot = session.table("t").snapshot(version=version)
                assert session.lake.format.row_count(snapshot) == len(ids)


@pytest.mark.slow
@pytest.mark.drawn(20)
@pytest.mark.parametrize("number", range(40))
def test_spark_reads_each_version_of_a_random_history(number: int, tmp_path: Path, spark: Any) -> None:
    options: dict[str, Any] = {"format": "ducklake", "inline_rows": (0, 4)[number % 2]}
    with (
        duckrun.connect(tmp_path / "lake", **options) as session,
        duckrun.connect(tmp_path / "lake", **options, engine="spark", spark=spark) as other,
    ):
        history = History(session, 1000 + number)
        for step in range(12):
            chosen = history.random.choice(_UPKEEP if history.random.random() < 0.4 else _WRITES)
            chosen(history)
            history.note(chosen.__name__)
            for version in history.left() if step == 11 else history.left()[-2:]:
                found = other.table("t").toDF(version=version).toArrow().to_pylist()
                assert multiset(found) == multiset(history.at(version)), f"{version} after {', '.join(history.done)}"
