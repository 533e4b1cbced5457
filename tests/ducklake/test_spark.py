"""Spark on a DuckLake: it reads what plain DuckDB reads, and what its workers write DuckDB commits."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import duckrun
from duckrun import (
    SQL,
    AppTransaction,
    CommitConflict,
    DeleteInsertSpec,
    DuplicateSourceKeys,
    InvalidConfig,
    MergeSpec,
    ReadSpec,
    RowsOutsidePartition,
    SchemaMismatch,
    Session,
    UnsupportedFeature,
    WriteSpec,
)
from duckrun.storage.extensions import extension_path

pytestmark = pytest.mark.spark


class Plain:
    """DuckDB with its extension, which knows nothing of duckrun."""

    def __init__(self, root: Path, inline_rows: int = 0) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        self.connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        self.connection.execute("SET TimeZone = 'UTC'")
        for name in ("ducklake", "sqlite_scanner"):
            self.connection.execute(f"LOAD '{extension_path(name)}'")
        self.inline_rows = inline_rows
        self.attach()

    def attach(self) -> None:
        options = f"DATA_PATH '{self.root}/data/', META_JOURNAL_MODE 'WAL', DATA_INLINING_ROW_LIMIT {self.inline_rows}"
        self.connection.execute(f"ATTACH 'ducklake:sqlite:{self.root}/catalog.sqlite' AS l ({options})")
        self.connection.execute("USE l")

    def anew(self) -> None:
        """Forget what the attachment has seen: one that has seen two types of a column filters wrongly."""
        self.connection.execute("USE memory")
        self.connection.execute("DETACH l")
        self.attach()

    def __call__(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql).fetchall()

    def version(self) -> int:
        return int(self("FROM ducklake_current_snapshot('l')")[0][0])

    def files(self) -> set[str]:
        """The data files that the catalog knows, those that a merge left for a cleanup included."""
        meta = "__ducklake_metadata_l"
        found = self(
            f"SELECT path FROM {meta}.ducklake_data_file UNION ALL SELECT path FROM {meta}.ducklake_files_scheduled_for_deletion"
        )
        return {path.rpartition("/")[2] for (path,) in found}


@pytest.fixture
def plain(tmp_path: Path) -> Plain:
    return Plain(tmp_path / "lake", inline_rows=3)


@pytest.fixture
def lake(tmp_path: Path, spark: Any) -> Iterator[Session]:
    with duckrun.connect(tmp_path / "lake", format="ducklake", engine="spark", spark=spark) as session:
        yield session


def told(value: Any) -> Any:
    """A value in one spelling: DuckDB and Arrow have different ones of nested values."""
    if isinstance(value, dict):
        return tuple((key, told(each)) for key, each in value.items())
    return tuple(map(told, value)) if isinstance(value, list | tuple) else value


def same_rows(session: Session, plain: Plain, table: str, version: int | None = None) -> int:
    """Hold the rows that a session reads against plain DuckDB's; how many there are."""
    at = "" if version is None else f" AT (VERSION => {version})"
    found = session.sql(f"from {table}{at}").toArrow()
    theirs = plain.connection.execute(f"FROM {table}{at}").to_arrow_table()
    assert found.column_names == theirs.column_names
    assert sorted(map(repr, map(told, found.to_pylist()))) == sorted(map(repr, map(told, theirs.to_pylist())))
    return found.num_rows


def left_behind(root: Path, plain: Plain) -> list[str]:
    """Files of Spark's that nobody knows of, below a lake's data and where sources lie for a while."""
    places = [
        *(root / "data").rglob("part-*"),
        *(root / "data").rglob("_temporary"),
        *(root / "data").rglob("_SUCCESS"),
        *(root / "_duckrun" / "scratch").rglob("*"),
    ]
    return [path.name for path in places if path.name not in plain.files()]


# -- reading


def test_spark_reads_renamed_added_and_widened_columns_deletes_merged_files_and_inlined_rows(
    plain: Plain, lake: Session
) -> None:
    plain("CREATE TABLE t (id INTEGER, name VARCHAR, s STRUCT(x INTEGER, y VARCHAR), l STRUCT(k INTEGER)[])")
    rows = "SELECT range::INTEGER, 'n' || range, {'x': range::INTEGER, 'y': 'q'}, [{'k': range::INTEGER}] FROM range"
    plain(f"INSERT INTO t {rows}(20)")
    plain("DELETE FROM t WHERE id IN (3, 5)")  # rows in the catalog, for they are few
    plain("INSERT INTO t VALUES (100, 'inlined', NULL, NULL)")
    first = plain.version()
    plain("DELETE FROM t WHERE id BETWEEN 10 AND 16")
    plain("ALTER TABLE t RENAME name TO label")
    plain("ALTER TABLE t RENAME s.x TO xx")
    plain("ALTER TABLE t ADD COLUMN s.z INTEGER")
    plain("ALTER TABLE t ADD COLUMN extra INTEGER DEFAULT 7")
    plain("ALTER TABLE t ALTER id TYPE BIGINT")
    for at in range(3):
        plain(f"INSERT INTO t SELECT {2**40} + range, 'later', NULL, NULL, NULL FROM range({at * 10}, {at * 10 + 5})")
    plain.anew()
    second = plain.version()
    plain("UPDATE t SET label = 'changed' WHERE id = 1")
    plain("ALTER TABLE t ADD COLUMN day DATE DEFAULT '2020-02-02'")
    plain("INSERT INTO t VALUES (200, 'inlined', {'xx': 1, 'y': 'b', 'z': 5}, [{'k': NULL}], NULL, NULL)")
    third = plain.version()
    expected = {
        version: plain.connection.execute(f"SELECT count(*) FROM t AT (VERSION => {version})").fetchall()[0][0]
        for version in (first, second, third)
    }
    assert list(expected.values()) == [19, 27, 28]
    for version, count in expected.items():
        assert same_rows(lake, plain, "t", version) == count
    # Merged and flushed files hold rows of several snapshots, and deletes of several; a rewritten one lacks columns that have defaults.
    plain("CALL ducklake_flush_inlined_data('l')")
    plain("CALL ducklake_merge_adjacent_files('l')")
    for version, count in expected.items():
        assert same_rows(lake, plain, "t", version) == count
    plain("CALL ducklake_rewrite_data_files('l', delete_threshold => 0.01)")
    assert same_rows(lake, plain, "t") == 28
    assert lake.scan("t", ReadSpec(columns=("label",), predicate="id > 100")).count() == 16


def test_types_that_spark_has_not_are_wider_there_or_refused_by_name(plain: Plain, lake: Session) -> None:
    plain(
        "CREATE TABLE t (a UTINYINT, b UINTEGER, c UBIGINT, u UUID, us UUID[], ts TIMESTAMP_MS, tz TIMESTAMPTZ, d DECIMAL(9, 2))"
    )
    identity = "462200c8-a93a-418a-b514-58b435dca418"
    values = f"(255, 4294967295, 18446744073709551615, '{identity}', ['{identity}', NULL], '2024-01-02 03:04:05.678', '2024-01-02 03:04:05Z', 1.25)"
    plain(
        f"INSERT INTO t SELECT * FROM (VALUES {values}) CROSS JOIN range(5) AS r(n)".replace(
            "SELECT *", "SELECT col0, col1, col2, col3, col4, col5, col6, col7"
        )
    )
    plain("ALTER TABLE t ALTER a TYPE UBIGINT")
    plain(f"INSERT INTO t VALUES {values}")
    found = lake.sql("select distinct * from t").collect()
    assert found == [
        {
            "a": 255,
            "b": 4294967295,
            "c": 18446744073709551615,
            "u": identity,
            "us": [identity, None],
            "ts": datetime.datetime(2024, 1, 2, 3, 4, 5, 678000),
            "tz": datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
            "d": found[0]["d"],
        }
    ]
    plain("CREATE TABLE w (id INTEGER, clock TIME, h STRUCT(x HUGEINT))")
    with pytest.raises(UnsupportedFeature, match="column clock, which is TIME"):
        lake.sql("from w")
    with pytest.raises(UnsupportedFeature, match="STRUCT with HUGEINT"):
        lake.scan("w", ReadSpec(columns=("h",)))
    assert lake.scan("w", ReadSpec(columns=("id",))).collect() == []


def test_queries_join_formats_and_read_views_of_the_catalog(
    plain: Plain, lake: Session, spark: Any, tmp_path: Path
) -> None:
    plain("CREATE TABLE t AS SELECT range::INTEGER AS id, 'n' || range AS name FROM range(10)")
    version = plain.version()
    plain("DELETE FROM t WHERE id > 7")
    plain("CREATE VIEW long AS SELECT id, upper(name) AS name FROM main.t WHERE id > 5")
    with duckrun.connect(tmp_path / "delta") as delta:
        delta.execute("x", WriteSpec("overwrite"), SQL("select 6 as id, 'six' as word"))
    lake.attach(tmp_path / "delta", "d")
    assert lake.sql("select t.name, word from long as t join d.main.x as x using (id)").collect() == [
        {"name": "N6", "word": "six"}
    ]
    assert lake.sql(f"select count(*) as n from t at (version => {version})").collect() == [{"n": 10}]
    with duckrun.connect(tmp_path / "delta", engine="spark", spark=spark) as other:
        other.attach(tmp_path / "lake", "l", format="ducklake")
        done = other.sql("insert into l.main.t select id + 100, word from x")
        assert (done.writer, done.engine, done.rows_inserted) == ("ducklake", "spark", 1)
    assert plain("SELECT name FROM t WHERE id = 106") == [("six",)]


# -- writing


def test_workers_write_the_files_which_carry_statistics(plain: Plain, lake: Session, spark: Any) -> None:
    rows = spark.range(0, 4000, 1, 4).selectExpr(
        "id", "id * 1.5D AS x", "timestamp'2024-01-01' + make_interval(0, 0, 0, 0, 0, id) AS at"
    )
    done = lake.execute("t", WriteSpec("error"), rows)
    assert (done.engine, done.writer, done.rows_inserted) == ("spark", "ducklake", 4000)
    assert "workers wrote the files" in done.reason
    assert lake.table("t").history()[0]["duckrun"]["engine"] == "spark"
    assert (
        lake.execute(
            "t", WriteSpec("append"), rows.where("id < 10").selectExpr("id + 5000 AS id", "x", "at")
        ).rows_inserted
        == 10
    )
    found = plain(
        "SELECT min_value::INT, max_value::INT, value_count, null_count FROM __ducklake_metadata_l.ducklake_file_column_stats "
        "WHERE column_id = 1 AND value_count > 100 ORDER BY 1"
    )
    assert found == [(0, 999, 1000, 0), (1000, 1999, 1000, 0), (2000, 2999, 1000, 0), (3000, 3999, 1000, 0)]
    plan = plain("EXPLAIN ANALYZE SELECT * FROM t WHERE id = 1500")[0][1]
    assert "Total Files Read: 1" in " ".join(plan.split())
    assert same_rows(lake, plain, "t") == 4010
    with pytest.raises(CommitConflict, match="exists already"):
        lake.execute("t", WriteSpec("error"), rows)
    assert left_behind(lake_root(lake), plain) == []


@pytest.mark.parametrize(
    "layout", [{}, {"sort_by": ("id",)}, {"partition_by": ("p",)}], ids=["any", "sorted", "parted"]
)
def test_files_are_as_large_as_the_table_asks(plain: Plain, lake: Session, spark: Any, layout: dict[str, Any]) -> None:
    rows = spark.range(0, 40_000, 1, 4).selectExpr(
        "id", "sha(cast(id AS string)) AS text", "if(id < 30000, 'a/%é', 'few') AS p"
    )
    lake.execute("t", WriteSpec("overwrite", target_file_size=200_000, **layout), rows)
    few = spark.range(0, 400, 1, 40).selectExpr("id + 50000 AS id", "sha(cast(id AS string)) AS text", "'few' AS p")
    before = len(plain.files())
    lake.execute("t", WriteSpec("append"), few)
    assert len(plain.files()) == before + 1, "forty tasks, and a file is enough"
    sizes = [size for (size,) in plain("SELECT file_size_bytes FROM __ducklake_metadata_l.ducklake_data_file")]
    assert sum(sizes) > 1_500_000 and max(sizes) < 1.4 * 200_000
    assert sum(size > 100_000 for size in sizes) >= 6, sizes
    assert same_rows(lake, plain, "t") == 40_400
    if "sort_by" in layout:
        plan = " ".join(plain("EXPLAIN ANALYZE SELECT * FROM t WHERE id = 1500")[0][1].split())
        assert "Total Files Read: 1" in plan
    assert left_behind(lake_root(lake), plain) == []


def lake_root(session: Session) -> Path:
    return Path(session.lake.root)


def test_partitions_of_each_kind_and_their_replacement(plain: Plain, lake: Session, spark: Any) -> None:
    rows = spark.range(12).selectExpr(
        "cast(id AS int) AS id",
        "nullif(concat('a /=%+é', id % 3), 'a /=%+é1') AS p",
        "timestamp'2024-01-30 23:00:00Z' + make_interval(0, 0, 0, id) AS at",
    )
    spec = WriteSpec("overwrite", partition_by=("p", "month(at)"), sort_by=("id",), compression="zstd")
    assert "workers wrote the files" in lake.execute("t", spec, rows).reason
    assert same_rows(lake, plain, "t") == 12
    values = plain(
        "SELECT DISTINCT partition_key_index, partition_value FROM __ducklake_metadata_l.ducklake_file_partition_value"
    )
    assert set(values) == {(0, "a /=%+é0"), (0, "a /=%+é2"), (0, None), (1, "1"), (1, "2")}
    one = rows.where("id = 1").selectExpr("id + 100 AS id", "p", "at")
    with pytest.raises(InvalidConfig, match="by the values of columns alone"):
        lake.execute("t", WriteSpec("replace"), one)
    lake.execute("by_column", WriteSpec("overwrite", partition_by=("p",)), rows)
    for done in (
        lake.execute("by_column", WriteSpec("replace"), one),
        lake.execute("t", WriteSpec("replace", predicate="p is null"), one),
    ):
        assert (done.rows_inserted, done.rows_deleted) == (1, 4)
    assert plain("SELECT id FROM t WHERE p IS NULL") == [(101,)]
    new = rows.where("id = 2").selectExpr("id + 200 AS id", "p", "at")
    assert lake.execute("t", WriteSpec("replace", predicate="id > 100"), new).rows_deleted == 1
    with pytest.raises(RowsOutsidePartition, match="outside the part"):
        lake.execute("t", WriteSpec("replace", predicate="id < 100"), new)
    # A value for which no folder has a name, and keys that DuckDB computes: then DuckDB writes the files.
    odd = new.selectExpr("id + 1 AS id", "'NULL' AS p", "at")
    assert "DuckDB applied" in lake.execute("t", WriteSpec("append"), odd).reason
    assert plain("SELECT p FROM t WHERE id = 203") == [("NULL",)]
    assert same_rows(lake, plain, "t") == 10
    assert (
        "DuckDB computes bucket"
        in lake.execute("b", WriteSpec("overwrite", partition_by=("bucket(4, id)",)), rows).reason
    )
    assert lake.execute("t", WriteSpec("overwrite", partition_by=()), rows).rows_inserted == 12
    assert left_behind(lake_root(lake), plain) == []


def test_what_changes_rows_is_applied_by_duckdb_from_what_workers_wrote(
    plain: Plain, lake: Session, spark: Any
) -> None:
    plain("CREATE TABLE t (id INTEGER NOT NULL, name VARCHAR DEFAULT 'none', u UUID)")
    identity = "462200c8-a93a-418a-b514-58b435dca418"
    rows = spark.range(5).selectExpr("cast(id AS int) AS id", "concat('n', id) AS name", f"'{identity}' AS u")
    assert lake.execute("t", WriteSpec("append"), rows).rows_inserted == 5  # a UUID is none of Spark's types
    merged = lake.execute("t", MergeSpec(("id",)), rows.selectExpr("id + 3 AS id", "'merged' AS name", "u"))
    assert (merged.rows_inserted, merged.rows_updated, merged.engine, merged.writer) == (3, 2, "spark", "ducklake")
    assert "DuckDB applied what Spark's workers wrote" in merged.reason
    lake.execute("t", DeleteInsertSpec(("id",)), rows.where("id = 0").selectExpr("id", "'again' AS name", "u"))
    lake.sql("update t set name = 'updated' where id = 1")
    lake.sql("delete from t where id = 2")
    lake.sql("insert into t (id) values (9)")
    assert plain("SELECT id, name FROM t ORDER BY id") == [
        (0, "again"), (1, "updated"), (3, "merged"), (4, "merged"), (5, "merged"), (6, "merged"), (7, "merged"), (9, "none"),
    ]  # fmt: skip
    assert plain("SELECT DISTINCT CAST(u AS VARCHAR) FROM t WHERE id < 9") == [(identity,)]
    with pytest.raises(DuplicateSourceKeys):
        lake.execute("t", MergeSpec(("id",)), rows.selectExpr("1 AS id", "name", "u"))
    assert left_behind(lake_root(lake), plain) == []


def test_a_write_that_fails_leaves_nothing_and_one_that_is_repeated_writes_once(
    plain: Plain, lake: Session, spark: Any
) -> None:
    plain("CREATE TABLE t (id INTEGER NOT NULL, name VARCHAR)")
    version = plain.version()
    rows = spark.range(8).selectExpr("cast(id AS int) AS id", "concat('n', id) AS name")
    with pytest.raises(SchemaMismatch, match="NULL in column id, which is NOT NULL"):
        lake.execute("t", WriteSpec("append"), rows.selectExpr("nullif(id, 3) AS id", "name"))
    with pytest.raises(Exception, match="boom"):
        lake.execute("t", WriteSpec("append"), rows.selectExpr("if(id = 5, raise_error('boom'), id) AS id", "name"))
    with pytest.raises(SchemaMismatch, match="missing in the data: name"):
        lake.execute("t", WriteSpec("append"), rows.select("id"))
    with pytest.raises(CommitConflict, match="computed from version 99"):
        lake.execute("t", WriteSpec("safeappend", read_version=99), rows)
    for spec in (MergeSpec(("id",)), WriteSpec("append")):
        with pytest.raises(SchemaMismatch, match="interval day to second|duration"):
            lake.execute("t", spec, rows.selectExpr("id", "INTERVAL '2 03:00:00' DAY TO SECOND AS name"))
    assert plain.version() == version
    app = AppTransaction("nightly", 0)
    made = [lake.execute("t", WriteSpec("append", app=app), rows) for _ in range(2)]
    assert [commit.replayed for commit in made] == [False, True]
    assert made[1].rows_inserted == 8 and made[0].version == made[1].version
    merge = MergeSpec(("id",), app=AppTransaction("nightly", 1))
    assert [lake.execute("t", merge, rows).replayed for _ in range(2)] == [False, True]
    grown = rows.selectExpr("id + 10 AS id", "id * 2L AS twice")
    lake.execute("t", WriteSpec("append", schema_mode="append_new_columns"), grown)
    assert plain("SELECT count(*), count(name), count(twice) FROM t") == [(16, 8, 8)]
    assert left_behind(lake_root(lake), plain) == []


def test_what_spark_does_not_do_with_a_ducklake_is_refused_by_name(
    plain: Plain, lake: Session, spark: Any, tmp_path: Path
) -> None:
    from duckrun.spark import stream_table

    plain("CREATE TABLE t AS SELECT 1 AS id")
    rows = spark.range(1)
    with pytest.raises(UnsupportedFeature, match="change query"):
        stream_table(lake, "t", "u")
    with pytest.raises(UnsupportedFeature, match="runs on engine duckdb"), lake.transaction():
        pass
    with (
        duckrun.connect(tmp_path / "lake", format="ducklake", spark=spark) as session,
        pytest.raises(UnsupportedFeature, match="a transaction over several tables"),
        session.transaction() as together,
    ):
        together.execute("u", WriteSpec("append"), rows)
    assert lake.tables() == ["main.t"]
    with duckrun.connect(tmp_path / "secret", format="ducklake", encrypted=True) as session:
        session.sql("create table t as select 1 as id")
    with duckrun.connect(tmp_path / "secret", format="ducklake", engine="spark", spark=spark) as session:
        with pytest.raises(UnsupportedFeature, match="encrypted"):
            session.sql("from t")
        with pytest.raises(UnsupportedFeature, match="encrypted"):
            session.execute("t", WriteSpec("append"), rows)


# -- both engines in turns


def _turns(tmp_path: Path, spark: Any, seed: int, steps: int) -> None:
    """Random writes by each engine in turns, held against a model in plain Python, and read by both and by plain DuckDB."""
    draw = random.Random(seed)
    model: dict[int, int | None] = {}
    made = {"n": 0}

    def some(count: int) -> dict[int, int | None]:
        return {draw.randrange(40): draw.choice([None, draw.randrange(100)]) for _ in range(count)}

    def given(rows: dict[int, int | None]) -> pa.Table:
        return pa.table({"id": pa.array(rows, pa.int64()), "v": pa.array(rows.values(), pa.int64())})

    def append(session: Session) -> None:
        new = {key + 1000 * (made["n"] + 1): value for key, value in some(6).items()}
        session.execute("t", WriteSpec("append"), given(new))
        model.update(new)

    def merge(session: Session) -> None:
        new = some(8)
        session.execute("t", MergeSpec(("id",)), given(new))
        model.update(new)

    def delete(session: Session) -> None:
        rest = draw.randrange(7)
        session.sql(f"delete from t where id % 7 = {rest}")
        for key in [key for key in model if key % 7 == rest]:
            del model[key]

    def update(session: Session) -> None:
        bound = draw.randrange(100)
        session.sql(f"update t set v = v + 1000 where v < {bound}")
        model.update({key: value + 1000 for key, value in model.items() if value is not None and value < bound})

    def overwrite(session: Session) -> None:
        new = some(20)
        session.execute("t", WriteSpec("overwrite"), given(new))
        model.clear()
        model.update(new)

    work: list[Callable[[Session], None]] = [append, append, merge, merge, delete, update, overwrite]
    root, plain = tmp_path / f"lake{seed}", Plain(tmp_path / f"lake{seed}")
    with (
        duckrun.connect(root, format="ducklake", inline_rows=4) as one,
        duckrun.connect(root, format="ducklake", inline_rows=4, engine="spark", spark=spark) as two,
    ):
        overwrite(two)
        for made["n"] in range(steps):
            draw.choice(work)((one, two)[made["n"] % 2])
            if draw.random() < 0.2:
                plain(draw.choice(["CALL ducklake_flush_inlined_data('l')", "CALL ducklake_merge_adjacent_files('l')"]))
        expected = sorted(model.items())
        for session in (one, two):
            assert sorted((row["id"], row["v"]) for row in session.sql("from t").collect()) == expected
        assert plain("FROM t ORDER BY id") == expected
        assert left_behind(root, plain) == []


def test_both_engines_write_in_turns(tmp_path: Path, spark: Any) -> None:
    _turns(tmp_path, spark, seed=1, steps=6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_both_engines_write_in_turns_for_long(tmp_path: Path, spark: Any, seed: int) -> None:
    _turns(tmp_path, spark, seed=seed, steps=30)
