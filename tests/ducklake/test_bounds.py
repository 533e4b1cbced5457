"""Statistics of columns that a DuckLake has lost: rows beyond them are read, changed and kept as they are, whoever lost them.

DuckDB's extension loses them in a commit of several files, the first of which has nothing but NULL of a column (duckdb 1.5.5). What it reads then by
itself is said here too, so that a release without the fault is noticed.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import duckrun
from duckrun import (
    SQL,
    DeleteSpec,
    MergeFilesSpec,
    MergeSpec,
    RestoreSpec,
    RewriteSpec,
    Session,
    StorageError,
    WriteSpec,
)
from tests.ducklake.plain import attached

pytestmark = pytest.mark.drawn(4)

VALUES = {
    "INTEGER": ("9", "12000", "20", "21"),
    "BIGINT": ("9007199254740992", "9007199254740999", "9007199254740993", "9007199254740994"),
    "SMALLINT": ("-3", "300", "2", "7"),
    "DECIMAL(20, 2)": ("-1.50", "900000000000000.25", "2.50", "3"),
    "VARCHAR": ("'10'", "'zeta'", "'20'", "'21'"),
    "DATE": ("DATE '1969-12-31'", "DATE '9999-12-31'", "DATE '2024-03-01'", "DATE '2024-03-02'"),
    "TIMESTAMP": (
        "TIMESTAMP '2024-01-01'",
        "TIMESTAMP '2024-01-01 12:30:00.123456'",
        "TIMESTAMP '2024-01-01 00:00:00.000001'",
        "TIMESTAMP '2024-01-01 00:00:01'",
    ),
    "TIMESTAMPTZ": (
        "TIMESTAMPTZ '1900-01-01 00:00:00Z'",
        "TIMESTAMPTZ '2030-01-01 00:00:00Z'",
        "TIMESTAMPTZ '2024-01-01 00:00:00Z'",
        "TIMESTAMPTZ '2024-01-02 00:00:00Z'",
    ),
    "TIME": ("TIME '00:00:00'", "TIME '23:59:59.5'", "TIME '10:00:00'", "TIME '10:00:01'"),
    "BOOLEAN": ("false", "false", "true", "true"),
    "UUID": tuple(f"'{n}0000000-0000-0000-0000-000000000000'" for n in "1f23"),
    "DOUBLE": ("-1.5", "1e300", "0.1", "0.2"),
    "STRUCT(a INTEGER, b VARCHAR)": tuple(f"{{a: {n}, b: '{n}'}}" for n in (10, 12000, 20, 21)),
    "INTEGER[]": ("[10]", "[12000, NULL]", "[20]", "[21]"),
}
"""Type -> two values that lie beyond the bounds that are left, and two within."""


def lose(root: Path, kind: str, catalog: str | None = None) -> None:
    """A table whose first commit has lost the bounds of v, and whose second made others of its own, by plain DuckDB."""
    low, high, one, other = VALUES[kind]
    with attached(root, catalog) as plain:
        plain.execute(f"CREATE TABLE lake.t (id INTEGER, p INTEGER, v {kind})")
        plain.execute("ALTER TABLE lake.t SET PARTITIONED BY (p)")
        plain.execute(f"INSERT INTO lake.t VALUES (1, 1, NULL), (2, 2, {low}), (3, 2, {high})")
        plain.execute(f"INSERT INTO lake.t VALUES (4, 1, {one}), (5, 1, {other})")


def native(kind: str) -> duckdb.DuckDBPyConnection:
    """The same rows in a table of DuckDB's own."""
    low, high, one, other = VALUES[kind]
    model = duckdb.connect()
    model.execute("SET TimeZone = 'UTC'")
    model.execute(f"CREATE TABLE t (id INTEGER, p INTEGER, v {kind})")
    model.execute(f"INSERT INTO t VALUES (1, 1, NULL), (2, 2, {low}), (3, 2, {high}), (4, 1, {one}), (5, 1, {other})")
    return model


@cache
def unchanged(kind: str) -> duckdb.DuckDBPyConnection:
    """The same, for tests that change nothing in it."""
    return native(kind)


@pytest.fixture
def begun(root: Path) -> Path:
    with duckrun.connect(root, format="ducklake") as session:
        session.sql("CREATE TABLE other AS SELECT 1 AS x")
    return root


def rows(session: Session, query: str) -> Counter[str]:
    return Counter(repr(tuple(row.values())) for row in session.sql(query).toArrow().to_pylist())


def expected(model: duckdb.DuckDBPyConnection, query: str) -> Counter[str]:
    return Counter(repr(tuple(row.values())) for row in model.execute(query).to_arrow_table().to_pylist())


def of(query: str, table: str) -> str:
    """A question, asked of another table than t."""
    return re.sub(r"\b(FROM|JOIN) t\b", rf"\1 {table}", query)


def questions(kind: str) -> Iterator[str]:
    for value in VALUES[kind]:
        yield f"SELECT id FROM t WHERE v = {value}"
        yield f"SELECT id FROM t WHERE v <= {value}"
        yield f"SELECT id FROM t WHERE v > {value}"
    yield "SELECT min(v), max(v), count(v) FROM t"
    yield "SELECT id, v FROM t ORDER BY v, id"
    yield "SELECT v, count(*) FROM t GROUP BY v"
    yield "SELECT a.id, b.id, b.v FROM t AS a JOIN t AS b ON a.v = b.v"
    yield "SELECT id FROM t WHERE v IS NULL"
    if kind.startswith("STRUCT"):
        yield "SELECT id, v.a FROM t WHERE v.a = 10 OR v.b = '12000' ORDER BY v.a"
    if kind.endswith("[]"):
        yield "SELECT id, unnest(v) AS e FROM t ORDER BY e"


@pytest.mark.parametrize("kind", VALUES)
def test_rows_beyond_bounds_that_others_lost_are_read_and_changed(begun: Path, kind: str) -> None:
    lose(begun, kind)
    model = native(kind)
    low, high, one, _ = VALUES[kind]
    with duckrun.connect(begun, format="ducklake") as session:
        for query in questions(kind):
            assert rows(session, query) == expected(model, query), query
        first = session.snapshots(1)[0]["snapshot_id"]
        session.sql(f"UPDATE t SET p = 7 WHERE v = {low}")
        new = f"SELECT 6 AS id, 3 AS p, {high}::{kind} AS v"
        session.execute("t", WriteSpec("replace", predicate=f"v = {high}"), SQL(new))
        session.execute("t", DeleteSpec(f"v = {one}"))
        model.execute(f"UPDATE t SET p = 7 WHERE v = {low}")
        model.execute(f"DELETE FROM t WHERE v = {high}")
        model.execute(f"INSERT INTO t {new}")
        model.execute(f"DELETE FROM t WHERE v = {one}")
        for query in questions(kind):
            assert rows(session, query) == expected(model, query), query
            then = of(query, f"t AT (VERSION => {first})")
            assert rows(session, then) == expected(unchanged(kind), query), then
        last = session.snapshots(1)[0]["snapshot_id"]
        changed = f"SELECT v FROM table_changes('t', {first + 1}, {last}) WHERE v = {high} AND change_type = 'delete'"
        assert rows(session, changed) == expected(unchanged(kind), f"SELECT v FROM t WHERE v = {high}")
        session.execute("t", RestoreSpec(version=first))
        for query in questions(kind):
            assert rows(session, query) == expected(unchanged(kind), query), query


@pytest.mark.parametrize("kind", ["INTEGER", "BIGINT", "DECIMAL(20, 2)", "VARCHAR", "TIMESTAMP", "DATE"])
def test_a_merge_finds_rows_beyond_bounds_that_others_lost(begun: Path, kind: str) -> None:
    lose(begun, kind)
    low, _, one, _ = VALUES[kind]
    source = f"SELECT 9 AS id, 9 AS p, {low}::{kind} AS v UNION ALL SELECT 8, 8, {one}"
    model = native(kind)
    model.execute(f"DELETE FROM t WHERE v IN ({low}, {one})")
    model.execute(f"INSERT INTO t {source}")
    with duckrun.connect(begun, format="ducklake") as session:
        done = session.execute("t", MergeSpec(keys=("v",)), SQL(source))
        assert (done.rows_inserted, done.rows_updated) == (0, 2)
        for query in questions(kind):
            assert rows(session, query) == expected(model, query), query


def test_a_session_that_has_read_the_table_sees_that_others_lost_its_bounds(begun: Path) -> None:
    low, high, one, other = VALUES["INTEGER"]
    with duckrun.connect(begun, format="ducklake") as session:
        session.sql("CREATE TABLE t (id INTEGER, p INTEGER, v INTEGER)")
        session.sql("ALTER TABLE t SET PARTITIONED BY (p)")
        assert rows(session, "FROM t WHERE v = 9") == Counter()
        with attached(begun) as plain:
            plain.execute(f"INSERT INTO lake.t VALUES (1, 1, NULL), (2, 2, {low}), (3, 2, {high})")
        assert sum(rows(session, "FROM t WHERE v = 9").values()) == 1
        with attached(begun) as plain:
            plain.execute(f"INSERT INTO lake.t VALUES (4, 1, {one}), (5, 1, {other})")
        for query in questions("INTEGER"):
            assert rows(session, query) == expected(unchanged("INTEGER"), query), query


def test_bounds_of_a_column_that_is_gone_are_not_taken_for_true_either(begun: Path) -> None:
    lose(begun, "INTEGER")
    with attached(begun) as plain:
        plain.execute("UPDATE lake.t SET p = 2")
    with duckrun.connect(begun, format="ducklake") as session:
        before = session.snapshots(1)[0]["snapshot_id"]
        session.sql("ALTER TABLE t DROP COLUMN v")
        model = native("INTEGER")
        model.execute("UPDATE t SET p = 2")
        for query in questions("INTEGER"):
            assert rows(session, of(query, f"t AT (VERSION => {before})")) == expected(model, query), query


@pytest.mark.parametrize("how", ["appended", "created first", "column added", "in a transaction", "replaced"])
def test_what_is_written_here_others_find_too(root: Path, how: str) -> None:
    low, high, one, other = VALUES["INTEGER"]
    first = SQL(f"SELECT * FROM (VALUES (1, 1, NULL::INTEGER), (2, 2, {low}), (3, 2, {high})) AS r(id, p, v)")
    then = SQL(f"SELECT * FROM (VALUES (4, 1, {one}), (5, 1, {other})) AS r(id, p, v)")
    append = WriteSpec("append", partition_by=("p",))
    with duckrun.connect(root, format="ducklake") as session:
        if how == "created first":
            session.sql("CREATE TABLE t (id INTEGER, p INTEGER, v INTEGER)")
            session.sql("ALTER TABLE t SET PARTITIONED BY (p)")
        if how == "column added":
            session.execute("t", append, SQL("SELECT 0 AS id, 0 AS p"))
            session.execute("t", DeleteSpec())
            session.sql("ALTER TABLE t ADD COLUMN v INTEGER")
        if how == "in a transaction":
            with session.transaction() as together:
                together.execute("t", append, first)
                together.execute("t", WriteSpec("append"), SQL("SELECT 7 AS id, 7 AS p, NULL::INTEGER AS v"))
                together.execute("t", DeleteSpec("id = 7"))
        elif how == "replaced":
            session.execute("t", append, SQL("SELECT 0 AS id, 0 AS p, 'a' AS v"))
            session.execute("t", WriteSpec("overwrite", redefine=True, partition_by=("p",)), first)
        else:
            session.execute("t", append if how == "appended" else WriteSpec("append"), first)
        session.execute("t", WriteSpec("append"), then)
        for query in questions("INTEGER"):
            assert rows(session, query) == expected(unchanged("INTEGER"), query), query
    with attached(root) as plain:
        for query in questions("INTEGER"):
            assert expected(plain, of(query, "lake.t")) == expected(unchanged("INTEGER"), query), query


@pytest.mark.parametrize("spec", [MergeFilesSpec(), RewriteSpec(delete_threshold=0.0)])
def test_maintenance_keeps_values_beyond_bounds_that_others_lost(
    begun: Path, spec: MergeFilesSpec | RewriteSpec
) -> None:
    lose(begun, "INTEGER")
    model = native("INTEGER")
    with attached(begun) as plain:
        plain.execute("ALTER TABLE lake.t SET SORTED BY (v)")
        for sql in ("INSERT INTO {}t VALUES (6, 2, 30)", "DELETE FROM {}t WHERE id IN (5, 6)"):
            plain.execute(sql.format("lake."))
            model.execute(sql.format(""))
        assert plain.execute("SELECT v FROM lake.t WHERE v = 9").fetchall() == [], (
            "duckdb's fault is mended: see bounds.py"
        )
    with duckrun.connect(begun, format="ducklake") as session:
        session.maintain(spec)
        for query in questions("INTEGER"):
            assert rows(session, query) == expected(model, query), query
    with attached(begun) as plain:  # which finds them now, too
        for query in questions("INTEGER"):
            assert expected(plain, of(query, "lake.t")) == expected(model, query), query


def test_a_catalog_that_takes_no_bounds_stops_maintenance_and_no_write(
    begun: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lose(begun, "INTEGER")
    with attached(begun) as plain:
        plain.execute("ALTER TABLE lake.t SET SORTED BY (v)")
    with sqlite3.connect(begun / "catalog.sqlite") as catalog:
        refusal = "BEFORE UPDATE ON ducklake_table_column_stats BEGIN SELECT RAISE(ABORT, 'not now'); END"
        catalog.execute(f"CREATE TRIGGER refuse {refusal}")
    with duckrun.connect(begun, format="ducklake") as session:
        before = session.snapshots(1)
        with pytest.raises(StorageError, match="not now"):
            session.upkeep.merge_files("t")
        assert session.snapshots(1) == before
        first = f"SELECT * FROM (VALUES (1, NULL::INTEGER), (2, {VALUES['INTEGER'][0]})) AS r(p, v)"
        session.execute("u", WriteSpec("append", partition_by=("p",)), SQL(first))
        assert "stay lost" in caplog.text
        assert rows(session, "FROM u WHERE v = 9") == Counter({"(2, 9)": 1})
        for query in questions("INTEGER"):
            assert rows(session, query) == expected(unchanged("INTEGER"), query), query


def test_files_without_bounds_are_adopted_and_read(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    table = pa.table(
        {"id": pa.array([2, 3], pa.int32()), "p": pa.array([2, 2], pa.int32()), "v": pa.array([9, 12000], pa.int32())}
    )
    pq.write_table(table, folder / "bare.parquet", write_statistics=False)
    with duckrun.connect(root, format="ducklake") as session:
        session.sql("CREATE TABLE t AS SELECT 1::INTEGER AS id, 1::INTEGER AS p, NULL::INTEGER AS v")
        session.moving.adopt_files("t", str(folder / "bare.parquet"))
        for number, value in ((4, 20), (5, 21)):
            session.execute(
                "t", WriteSpec("append"), SQL(f"SELECT {number}::INTEGER AS id, 1::INTEGER AS p, {value} AS v")
            )
        for query in questions("INTEGER"):
            assert rows(session, query) == expected(unchanged("INTEGER"), query), query


def without_v(folder: Path) -> str:
    """A file that lacks the column v."""
    folder.mkdir()
    pq.write_table(pa.table({"id": pa.array([3], pa.int32()), "p": pa.array([2], pa.int32())}), folder / "f.parquet")
    return str(folder / "f.parquet")


def add(root: Path, path: str, catalog: str | None = None) -> None:
    """Add a file to the table t, by plain DuckDB."""
    with attached(root, catalog) as plain:
        plain.execute(f"CALL ducklake_add_data_files('lake', 't', '{path}', allow_missing => true)")


DEFAULTS = {
    kind: values[1].removeprefix(f"{kind} ")
    for kind, values in VALUES.items()
    if "STRUCT" not in kind and "[]" not in kind
}
del DEFAULTS["BOOLEAN"]  # DuckLake stores it as an expression, which older rows do not get.


@pytest.mark.parametrize("by", ["this library", "others"])
@pytest.mark.parametrize(
    ("kind", "default"), [*((kind, None) for kind in VALUES), *((kind, value) for kind, value in DEFAULTS.items())]
)
def test_rows_of_a_file_that_lacks_a_column_are_read_and_changed(
    root: Path, tmp_path: Path, kind: str, default: str | None, by: str
) -> None:
    low, _, one, other = VALUES[kind]
    model, path = duckdb.connect(), without_v(tmp_path / "given")
    with duckrun.connect(root, format="ducklake") as session:
        model.execute("SET TimeZone = 'UTC'")
        for sql in (
            f"CREATE TABLE t (id INTEGER, p INTEGER, v {kind}{f' DEFAULT {default}' if default else ''})",
            f"INSERT INTO t VALUES (1, 1, {one}), (2, 1, {other})",
        ):
            session.sql(sql)
            model.execute(sql)
        if by == "others":
            add(root, path)
        else:
            session.moving.adopt_files("t", path)
        model.execute("INSERT INTO t (id, p) VALUES (3, 2)")
        for query in questions(kind):
            assert rows(session, query) == expected(model, query), query
        if by == "this library":
            with attached(root) as plain:
                plain.execute("SET TimeZone = 'UTC'")
                for query in questions(kind):
                    assert expected(plain, of(query, "lake.t")) == expected(model, query), query
        for sql in (
            f"UPDATE t SET p = 7 WHERE v {f'= {default}' if default else 'IS NULL'}",
            f"INSERT INTO t VALUES (4, 1, {low})",
        ):
            session.sql(sql)
            model.execute(sql)
        for query in (*questions(kind), "SELECT id, p FROM t"):
            assert rows(session, query) == expected(model, query), query
        session.upkeep.merge_files("t")
        for query in questions(kind):
            assert rows(session, query) == expected(model, query), query


def test_a_file_that_lacks_a_field_of_a_struct_has_null_there(root: Path, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    path = f"{tmp_path}/given/f.parquet"
    duckdb.sql(f"COPY (SELECT 2 AS id, {{x: 5}} AS s) TO '{path}'")
    with duckrun.connect(root, format="ducklake") as session:
        session.sql("CREATE TABLE t (id INTEGER, s STRUCT(x INTEGER, y INTEGER))")
        session.sql("INSERT INTO t VALUES (1, {x: 1, y: 2})")
        add(root, path)
        assert rows(session, "SELECT id FROM t WHERE s.y IS NULL") == Counter({"(2,)": 1})
        assert rows(session, "SELECT id FROM t WHERE s.y = 2") == Counter({"(1,)": 1})


@pytest.mark.parametrize("by", ["this library", "others"])
@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgres"])
def test_a_file_that_lacks_columns_in_each_catalog(
    root: Path, tmp_path: Path, kind: str, by: str, request: pytest.FixtureRequest
) -> None:
    postgres = kind == "postgres"
    catalog = request.getfixturevalue("postgres_catalog") if postgres else f"{kind}:{root}/catalog.{kind}"
    path = without_v(tmp_path / "given")
    with duckrun.connect(root, format="ducklake", catalog=catalog) as session:
        session.sql("CREATE TABLE t (id INTEGER, p INTEGER, v INTEGER, w INTEGER DEFAULT 5)")
        session.sql("INSERT INTO t VALUES (1, 1, 9, 12)")
        if by == "this library":
            session.moving.adopt_files("t", path)
    if by == "others":
        add(root, path, catalog)
    with duckrun.connect(root, format="ducklake", catalog=catalog) as session:
        assert rows(session, "SELECT id FROM t WHERE v IS NULL") == Counter({"(3,)": 1})
        assert rows(session, "SELECT id, w FROM t WHERE w < 9") == Counter({"(3, 5)": 1})
        assert rows(session, "SELECT count(v), min(w) FROM t") == Counter({"(1, 5)": 1})


@pytest.mark.parametrize("by", ["this library", "others", "one transaction"])
@pytest.mark.parametrize("before", [None, "bucket(3, id)", "id"])
def test_rows_from_before_a_bucket_are_read_and_changed(root: Path, before: str | None, by: str) -> None:
    buckets = "ALTER TABLE {}t SET PARTITIONED BY (bucket(5, id))"
    model = duckdb.connect()
    with duckrun.connect(root, format="ducklake") as session:

        def both(sql: str, on: Any = session) -> None:
            on.sql(sql)
            model.execute(sql)

        def check(on: Any = session) -> None:
            for number in range(12):
                for query in (f"SELECT v FROM t WHERE id = {number}", f"SELECT v FROM t WHERE id IN ({number}, 99)"):
                    assert rows(on, query) == expected(model, query), query

        both("CREATE TABLE t (id INTEGER, v INTEGER)")
        if before is not None:
            session.sql(f"ALTER TABLE t SET PARTITIONED BY ({before})")
        both("INSERT INTO t SELECT range, 0 FROM range(4)")
        both("INSERT INTO t SELECT range, 0 FROM range(4, 8)")
        first = session.snapshots(1)[0]["snapshot_id"]
        if by == "others":
            with attached(root) as plain:
                plain.execute(buckets.format("lake."))
        elif by == "this library":
            session.sql(buckets.format(""))
        else:
            with session.transaction() as together:
                together.sql(buckets.format(""))
                check(together)
                both("UPDATE t SET v = 4 WHERE id = 1", together)
        check()
        both("INSERT INTO t SELECT range, 1 FROM range(8, 11)")
        both("UPDATE t SET v = 2 WHERE id = 5")
        both("DELETE FROM t WHERE id = 6")
        session.execute("t", MergeSpec(("id",)), SQL("SELECT 7 AS id, 3 AS v"))
        model.execute("UPDATE t SET v = 3 WHERE id = 7")
        check()
        for spec in (MergeFilesSpec(), RewriteSpec(delete_threshold=0.0)):
            session.maintain(spec)
            check()
        assert sum(rows(session, f"FROM t AT (VERSION => {first}) WHERE id = 5").values()) == 1


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgres"])
def test_they_are_given_back_in_each_catalog(root: Path, kind: str, request: pytest.FixtureRequest) -> None:
    postgres = kind == "postgres"
    catalog = request.getfixturevalue("postgres_catalog") if postgres else f"{kind}:{root}/catalog.{kind}"
    low, high, one, other = VALUES["INTEGER"]
    with duckrun.connect(root, format="ducklake", catalog=catalog) as session:
        first = f"SELECT * FROM (VALUES (1, 1, NULL::INTEGER), (2, 2, {low}), (3, 2, {high})) AS r(id, p, v)"
        session.execute("t", WriteSpec("append", partition_by=("p",)), SQL(first))
        session.execute("t", WriteSpec("append"), SQL(f"FROM (VALUES (4, 1, {one}), (5, 1, {other})) AS r(id, p, v)"))
        for query in questions("INTEGER"):
            assert rows(session, query) == expected(unchanged("INTEGER"), query), query
    with attached(root, catalog) as plain:
        for query in questions("INTEGER"):
            assert expected(plain, of(query, "lake.t")) == expected(unchanged("INTEGER"), query), query
        plain.execute("DROP TABLE lake.t")
    lose(root, "INTEGER", catalog)
    with duckrun.connect(root, format="ducklake", catalog=catalog) as session:
        for query in questions("INTEGER"):
            assert rows(session, query) == expected(unchanged("INTEGER"), query), query
        session.sql("ALTER TABLE t SET SORTED BY (v)")
        session.upkeep.merge_files("t")
        for query in questions("INTEGER"):
            assert rows(session, query) == expected(unchanged("INTEGER"), query), query
    with attached(root, catalog) as plain:
        for query in questions("INTEGER"):
            assert expected(plain, of(query, "lake.t")) == expected(unchanged("INTEGER"), query), query


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["INTEGER", "TIMESTAMP"])
def test_spark_replaces_rows_beyond_bounds_that_others_lost(begun: Path, kind: str, spark: Any) -> None:
    lose(begun, kind)
    low = VALUES[kind][0]
    with duckrun.connect(begun, engine="spark", spark=spark, format="ducklake") as session:
        frame: Any = session.sql("SELECT id, p, v FROM t WHERE id = 2").native
        done = session.execute("t", WriteSpec("replace", predicate=f"v = {low}"), frame)
        assert (done.rows_inserted, done.rows_deleted) == (1, 1)
        assert session.sql("FROM t").count() == 5
