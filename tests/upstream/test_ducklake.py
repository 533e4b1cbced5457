"""Faults of DuckDB's ducklake extension. Each docstring says the right result."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from duckrun.storage.extensions import keep_forever
from tests.upstream import instances

FLUSH = "CALL ducklake_flush_inlined_data('lake')"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """A lake for tests with tables of their own."""
    with instances.lake(tmp_path_factory.mktemp("lake")) as opened:
        yield opened


@pytest.fixture(scope="module")
def in_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """A lake with its catalog in SQLite, where inlined rows are texts."""
    folder = tmp_path_factory.mktemp("in_sqlite")
    with instances.lake(folder, f"sqlite:{folder}/catalog.sqlite") as opened:
        yield opened


@pytest.fixture
def doomed(tmp_path: Path) -> duckdb.DuckDBPyConnection:
    """A lake for an internal error: freeing its connection would end the process."""
    opened = instances.lake(tmp_path)
    keep_forever(opened)
    return opened


def rows(lake: duckdb.DuckDBPyConnection, query: str) -> list[Any]:
    """Values of a query's one column."""
    return [value for (value,) in lake.execute(query).fetchall()]


def version(lake: duckdb.DuckDBPyConnection) -> int:
    """The newest snapshot."""
    return int(rows(lake, "SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")[0])


def inline(lake: duckdb.DuckDBPyConnection, table: str, limit: int = 10) -> None:
    """Let small inserts of a table go into the catalog."""
    lake.execute(f"CALL lake.set_option('data_inlining_row_limit', {limit}, table_name => '{table}')")


# ---------------------------------------------------------------- wrong rows


def test_a_first_commit_of_several_files_loses_bounds(lake: duckdb.DuckDBPyConnection) -> None:
    """Right: 9; and 9, 20, 21, 12000, NULL."""
    lake.execute("CREATE TABLE bounds (p INTEGER, v INTEGER); ALTER TABLE bounds SET PARTITIONED BY (p)")
    lake.execute("INSERT INTO bounds VALUES (1, NULL), (2, 9), (2, 12000); INSERT INTO bounds VALUES (1, 20), (1, 21)")
    assert rows(lake, "SELECT v FROM bounds WHERE v = 9") == []
    assert rows(lake, "SELECT v FROM bounds ORDER BY v") != [9, 20, 21, 12000, None]


def test_a_file_that_lacks_a_column_is_read_by_the_statistics_of_others(
    lake: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """Right: 2; and 5, 9, 12."""
    lake.execute(f"COPY (SELECT 2 AS id) TO '{tmp_path}/f.parquet'")
    lake.execute("CREATE TABLE lacks (id INTEGER, v INTEGER, w INTEGER DEFAULT 5)")
    lake.execute("INSERT INTO lacks VALUES (1, 1, 9), (3, 1, 12)")
    lake.execute(f"CALL ducklake_add_data_files('lake', 'lacks', '{tmp_path}/f.parquet', allow_missing => true)")
    assert rows(lake, "SELECT id FROM lacks WHERE v IS NULL") == []
    assert rows(lake, "SELECT w FROM lacks ORDER BY w") != [5, 9, 12]


def test_rows_from_before_a_bucket_are_not_found(lake: duckdb.DuckDBPyConnection) -> None:
    """Right: 5."""
    lake.execute("CREATE TABLE buckets AS SELECT range AS id FROM range(8)")
    lake.execute("ALTER TABLE buckets SET PARTITIONED BY (bucket(3, id))")
    assert rows(lake, "SELECT id FROM buckets WHERE id = 5") == []


def test_a_float_is_not_found_by_its_value(lake: duckdb.DuckDBPyConnection) -> None:
    """Right: one row."""
    lake.execute("CREATE TABLE floats AS SELECT -0.003148798132315278::FLOAT AS f")
    assert rows(lake, "SELECT f FROM floats WHERE f = -0.003148798132315278::FLOAT") == []


def test_a_wider_type_and_rows_in_one_transaction_lose_bounds(lake: duckdb.DuckDBPyConnection) -> None:
    """Right: 1, 3, 70000; and one row."""
    lake.execute("CREATE TABLE wider AS SELECT 70000::INTEGER AS v")
    lake.execute("BEGIN; ALTER TABLE wider ALTER v TYPE BIGINT; INSERT INTO wider VALUES (1); COMMIT")
    lake.execute("INSERT INTO wider VALUES (3)")
    assert rows(lake, "SELECT v FROM wider ORDER BY v") != [1, 3, 70000]
    assert rows(lake, "SELECT v FROM wider WHERE v = 70000") == []


def test_a_column_behind_the_first_rows_has_the_bounds_of_later_rows(lake: duckdb.DuckDBPyConnection) -> None:
    """Right: one row."""
    lake.execute("BEGIN; CREATE TABLE behind AS SELECT 1 AS id; ALTER TABLE behind ADD COLUMN w INTEGER DEFAULT 70000")
    lake.execute("INSERT INTO behind VALUES (2, 5); COMMIT; INSERT INTO behind VALUES (3, 7)")
    assert rows(lake, "SELECT id FROM behind WHERE w = 70000") == []


def test_a_flush_after_a_wider_type_loses_bounds(lake: duckdb.DuckDBPyConnection) -> None:
    """Right: 11, 12, 30000000000, 30000000000."""
    lake.execute("CREATE TABLE flushed (v INTEGER)")
    inline(lake, "flushed")
    lake.execute(f"INSERT INTO flushed VALUES (11), (12); ALTER TABLE flushed ALTER v TYPE BIGINT; {FLUSH}")
    for _ in range(2):
        lake.execute(f"INSERT INTO flushed VALUES (30000000000); {FLUSH}")
    assert rows(lake, "SELECT v FROM flushed ORDER BY v") == [30000000000, 30000000000, 30000000011, 30000000012]


def test_a_flush_after_a_rewrite_returns_older_rows_twice(lake: duckdb.DuckDBPyConnection) -> None:
    """Right: 57, as in the newest version."""
    lake.execute("CREATE TABLE rewritten AS SELECT range::INTEGER AS v FROM range(100)")
    inline(lake, "rewritten")
    for change in (
        "DELETE FROM rewritten WHERE v < 3",
        "INSERT INTO rewritten VALUES (9)",
        "DELETE FROM rewritten WHERE v > 58",
    ):
        lake.execute(change)
    before = version(lake)
    lake.execute("CALL ducklake_rewrite_data_files('lake', 'rewritten', delete_threshold => 0)")
    lake.execute(FLUSH)
    assert rows(lake, "SELECT count(*) FROM rewritten") == [57]
    assert rows(lake, f"SELECT count(*) FROM rewritten AT (VERSION => {before})") != [57]


def test_an_older_version_loses_rows_after_a_rewrite(lake: duckdb.DuckDBPyConnection) -> None:
    """Right: 267; and 11, 12, 267."""
    lake.execute("CREATE TABLE earlier AS SELECT 267::INTEGER AS v; INSERT INTO earlier VALUES (11), (12)")
    before = version(lake)
    lake.execute("DELETE FROM earlier WHERE v > 12; DELETE FROM earlier WHERE v = 12")
    lake.execute("CALL ducklake_rewrite_data_files('lake', 'earlier', delete_threshold => 0)")
    assert rows(lake, f"SELECT v FROM earlier AT (VERSION => {before}) WHERE v = 267") == []
    assert rows(lake, f"SELECT v FROM earlier AT (VERSION => {before}) ORDER BY v") != [11, 12, 267]


def test_deletes_of_a_transaction_apply_to_older_versions(lake: duckdb.DuckDBPyConnection) -> None:
    """Right: 1."""
    lake.execute("CREATE TABLE deleted AS SELECT 1 AS v")
    before = version(lake)
    lake.execute("BEGIN; DELETE FROM deleted")
    try:
        assert rows(lake, f"SELECT v FROM deleted AT (VERSION => {before})") == []
    finally:
        lake.execute("ROLLBACK")


def test_a_filter_on_deleted_rows_finds_nothing(lake: duckdb.DuckDBPyConnection) -> None:
    """Right: the filter returns (4, last), too."""
    lake.execute("CREATE TABLE gone AS SELECT range AS v FROM range(5); DELETE FROM gone WHERE v = 3")
    lake.execute("DELETE FROM gone WHERE v = 4")
    last = version(lake)
    query = f"SELECT v, snapshot_id FROM ducklake_table_deletions('lake', 'main', 'gone', {last - 1}, {last})"
    assert (4, last) in lake.execute(query).fetchall()
    assert lake.execute(f"{query} WHERE snapshot_id = {last}").fetchall() == []


def test_a_schema_version_of_inlined_rows_is_not_listed(lake: duckdb.DuckDBPyConnection) -> None:
    """Right: the schema version is listed."""
    lake.execute("CREATE TABLE unlisted AS SELECT 1 AS id; ALTER TABLE unlisted ADD COLUMN w INTEGER")
    inline(lake, "unlisted")
    lake.execute("INSERT INTO unlisted VALUES (2, 2)")
    newest = rows(lake, f"SELECT schema_version FROM ducklake_snapshots('lake') WHERE snapshot_id = {version(lake)}")
    listed = rows(lake, "SELECT schema_version FROM __ducklake_metadata_lake.ducklake_schema_versions")
    assert newest[0] not in listed


def test_integers_of_128_bits_become_doubles(lake: duckdb.DuckDBPyConnection) -> None:
    """Right: 9007199254740993."""
    lake.execute("CREATE TABLE huge (v HUGEINT); INSERT INTO huge VALUES (9007199254740993)")
    assert rows(lake, "SELECT v FROM huge") == [9007199254740992]


# ---------------------------------------------------------------- rows in a SQLite catalog


def test_inlined_rows_beside_rows_of_an_older_schema_fail(in_sqlite: duckdb.DuckDBPyConnection) -> None:
    """Right: the commit succeeds."""
    in_sqlite.execute("CREATE TABLE older (id INTEGER, v INTEGER)")
    inline(in_sqlite, "older")
    in_sqlite.execute("INSERT INTO older VALUES (1, 11)")
    inline(in_sqlite, "older", 0)
    in_sqlite.execute("ALTER TABLE older DROP COLUMN v")
    inline(in_sqlite, "older")
    with pytest.raises(duckdb.TransactionException, match="5 columns but 4 values"):
        in_sqlite.execute("INSERT INTO older VALUES (2)")


def test_fields_of_inlined_structs_are_texts_of_casts(in_sqlite: duckdb.DuckDBPyConnection) -> None:
    """Right: the byte FF, and the date."""
    for table, kind, value in (("bytes", "BLOB", "'\\xFF'::BLOB"), ("dates", "DATE", "DATE '2020-01-01'")):
        in_sqlite.execute(f"CREATE TABLE {table} (s STRUCT(x {kind}))")
        inline(in_sqlite, table)
        in_sqlite.execute(f"INSERT INTO {table} VALUES ({{x: {value}}})")
    assert b"CAST" in rows(in_sqlite, "SELECT s.x FROM bytes")[0]
    with pytest.raises(duckdb.ConversionException, match="invalid date"):
        rows(in_sqlite, "SELECT s.x FROM dates")


def test_strings_of_inlined_structs_lose_characters(in_sqlite: duckdb.DuckDBPyConnection) -> None:
    """Right: O'Neil, c:\\dir."""
    in_sqlite.execute("CREATE TABLE strings (s STRUCT(x VARCHAR))")
    inline(in_sqlite, "strings")
    in_sqlite.execute("INSERT INTO strings VALUES ({x: 'O''Neil'}), ({x: 'c:\\dir'})")
    assert rows(in_sqlite, "SELECT s.x FROM strings") == ["ONeil", "c:dir"]


# ---------------------------------------------------------------- lakes that end


def test_a_table_that_is_altered_and_renamed_cannot_be_read(doomed: duckdb.DuckDBPyConnection) -> None:
    """Right: no rows."""
    doomed.execute("CREATE TABLE t (v INTEGER)")
    doomed.execute("BEGIN; ALTER TABLE t ADD COLUMN w INTEGER; ALTER TABLE t RENAME TO u; COMMIT")
    with pytest.raises(duckdb.CatalogException, match="already exists"):
        doomed.execute("FROM u")


def test_an_older_version_has_the_statistics_of_the_newest(doomed: duckdb.DuckDBPyConnection) -> None:
    """Right: 5."""
    doomed.execute("CREATE TABLE t AS SELECT 1::INTEGER AS v; INSERT INTO t VALUES (5)")
    doomed.execute("ALTER TABLE t ALTER v TYPE BIGINT; INSERT INTO t VALUES (30000000000)")
    with pytest.raises(duckdb.InternalException, match="SetMin or SetMax"):
        doomed.execute("SELECT v FROM t AT (VERSION => 2) WHERE v > 1")


def test_an_attachment_that_has_seen_two_types_cannot_filter(doomed: duckdb.DuckDBPyConnection) -> None:
    """Right: 5."""
    doomed.execute("CREATE TABLE t AS SELECT 1::INTEGER AS v; INSERT INTO t VALUES (5)")
    assert rows(doomed, "SELECT v FROM t WHERE v > 1") == [5]
    doomed.execute("ALTER TABLE t ALTER v TYPE BIGINT")
    with pytest.raises(duckdb.InternalException, match="SetMin or SetMax"):
        doomed.execute("SELECT v FROM t WHERE v > 1")


def test_a_merge_of_files_sorts_by_the_present_type(doomed: duckdb.DuckDBPyConnection) -> None:
    """Right: one file."""
    doomed.execute("CREATE TABLE t AS SELECT 1::INTEGER AS v; INSERT INTO t VALUES (2)")
    doomed.execute("ALTER TABLE t ALTER v TYPE BIGINT; ALTER TABLE t SET SORTED BY (v)")
    with pytest.raises(duckdb.InternalException, match="inequal types"):
        doomed.execute("CALL ducklake_merge_adjacent_files('lake', 't')")


def test_a_struct_without_fields_ends_the_lake(doomed: duckdb.DuckDBPyConnection) -> None:
    """Right: an error of DROP COLUMN, and later reads of every table."""
    doomed.execute("CREATE TABLE t (id INTEGER, s STRUCT(a INTEGER)); ALTER TABLE t DROP COLUMN s.a")
    with pytest.raises(duckdb.InternalException, match="optional pointer"):
        doomed.execute("FROM t")


def test_a_macro_with_a_list_as_default_cannot_be_called(doomed: duckdb.DuckDBPyConnection) -> None:
    """Right: [1, 2]."""
    doomed.execute("CREATE MACRO lake.m(x, y := [1, 2]) AS y")
    with pytest.raises(duckdb.InternalException, match="optional pointer"):
        doomed.execute("SELECT lake.m(1)")


def test_a_time_of_nanoseconds_ends_the_instance(doomed: duckdb.DuckDBPyConnection) -> None:
    """Right: an error that the type cannot be stored, at CREATE TABLE."""
    doomed.execute("CREATE TABLE t (v TIME_NS)")
    with pytest.raises(duckdb.InternalException, match='Unsupported type "TIME_NS"'):
        doomed.execute("INSERT INTO t VALUES ('12:00:00')")


ENDED = """
import sys
from pathlib import Path
import duckdb
from tests.upstream import instances
lake = instances.lake(Path(sys.argv[1]))
lake.execute("CREATE TABLE t AS SELECT 1 AS id, 'a' AS p")
lake.execute("BEGIN; ALTER TABLE t SET PARTITIONED BY (p); ALTER TABLE t RESET PARTITIONED BY")
try:
    lake.execute("INSERT INTO t VALUES (2, 'b')")
except duckdb.InternalException as error:
    print(error, flush=True)
lake.close()
print("closed")
"""


def test_rows_after_reset_partitioned_by_end_the_process(tmp_path: Path) -> None:
    """Right: the insert succeeds, and no error of an instance ends the process when its connection is freed."""
    done = subprocess.run([sys.executable, "-c", ENDED, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert "index 0 within vector of size 0" in done.stdout
    assert (done.returncode, "closed" in done.stdout) == (-signal.SIGABRT, False)
