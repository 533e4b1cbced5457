"""The rows of some files of a table: those that a plain Parquet reader finds there, whoever wrote them, and no other file is opened."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import duckrun
from duckrun import DeleteSpec, Session, WriteSpec
from duckrun.engines.duckdb import load_extensions
from duckrun.formats.delta.files.scan_sql import are_plain
from duckrun.values.snapshot import Snapshot
from tests.lake import rows_of

ROWS = duckrun.SQL("""
    SELECT range AS id, range::smallint AS small, 'n' || range AS name, range / 4 AS x, DATE '2024-02-27' + range::int AS day,
        (range / 7)::decimal(9, 2) AS price, range % 2 = 0 AS even, ('\\xAB' || range)::blob AS raw,
        TIMESTAMP '2024-01-01' + INTERVAL 1 HOUR * range AS at, p FROM range(40), (VALUES ('a b'), ('%41'), ('x[1]*'), (NULL)) AS parts(p)
    """)


def by_duckrun(session: Session, location: Path, spark: Any) -> None:
    session.execute("t", WriteSpec("overwrite", partition_by=("p",)), ROWS)
    session.execute("t", WriteSpec("append"), ROWS)


def by_deltalake(session: Session, location: Path, spark: Any) -> None:
    rows = duckdb.sql(ROWS.text).to_arrow_table()
    for _ in range(2):
        write_deltalake(str(location), rows, mode="append", partition_by=["p"])


def by_spark(session: Session, location: Path, spark: Any) -> None:
    by_deltalake(session, location, spark)
    spark.sql(
        f"CREATE OR REPLACE TABLE delta.`{location}` USING delta PARTITIONED BY (p) AS SELECT * FROM delta.`{location}`"
    )
    spark.sql(f"INSERT INTO delta.`{location}` SELECT * FROM delta.`{location}` WHERE id % 3 = 0")


def read_plainly(snapshot: Snapshot, files: Any) -> list[tuple[Any, ...]]:
    """The rows of files by pyarrow, with the partition that the log says, and the number of each."""
    found = []
    for file in files:
        table = pq.read_table(Path(snapshot.ref.location, file.path), partitioning=None)
        for number, row in enumerate(table.to_pylist()):
            values = {name.lower(): value for name, value in row.items()} | file.partition_values
            found.append((*(values.get(name) for name in snapshot.schema.names), number))
    return sorted(found, key=repr)


@pytest.mark.parametrize("writer", [by_duckrun, by_deltalake, pytest.param(by_spark, marks=pytest.mark.spark)])
def test_files_are_read_alone_as_a_plain_reader_reads_them(
    duck: Session, root: Path, writer: Any, request: pytest.FixtureRequest
) -> None:
    location = root / "main" / "t"
    writer(duck, location, request.getfixturevalue("spark") if writer is by_spark else None)
    duck.sql("ALTER TABLE t ADD COLUMN later BIGINT")
    duck.execute("t", WriteSpec("append"), duckrun.SQL(f"SELECT *, 5 AS later FROM ({ROWS.text}) WHERE id < 5"))
    snapshot = duck.table("t").snapshot()
    files = list(snapshot.files())
    assert len(files) >= 8
    draw = random.Random(7)
    with duckdb.connect() as plain:
        load_extensions(plain)
        for count in (1, 1, 2, 3, len(files) - 1):
            some = draw.sample(files, count)
            at = any(str(field.type) == "timestamp[us, tz=UTC]" for field in snapshot.schema)
            assert are_plain(snapshot, some) or at, "a table that Spark wrote holds instants"
            sql = snapshot.scan_sql(files=some, file="which", row="number")
            read = plain.sql(f"SELECT * EXCLUDE (which) FROM {sql}").fetchall()
            assert sorted(read, key=repr) == read_plainly(snapshot, some)
            left = [file for file in files if file not in some]
            gone = {file.path: Path(snapshot.ref.location, file.path).read_bytes() for file in left}
            for path in gone:
                Path(snapshot.ref.location, path).unlink()
            try:
                if are_plain(snapshot, some):
                    again = plain.sql(f"SELECT count(*) FROM {snapshot.scan_sql(files=some)}").fetchall()
                    assert again == [(len(read),)], "no other file is opened"
            finally:
                for path, body in gone.items():
                    Path(snapshot.ref.location, path).write_bytes(body)


def test_a_change_writes_touched_files_anew_and_reads_no_other(duck: Session, root: Path) -> None:
    duck.execute("t", WriteSpec("overwrite"), duckrun.SQL("SELECT range AS id, 'a' AS v FROM range(10)"))
    for n in range(1, 6):
        duck.execute(
            "t", WriteSpec("append"), duckrun.SQL(f"SELECT range AS id, 'a' AS v FROM range({n * 10}, {n * 10 + 10})")
        )
    held = list(duck.table("t").snapshot().files())
    kept = {}
    with duckrun.connect(root) as session:
        assert session.execute("t", DeleteSpec("id = 34")).files_pruned == 5
        now = {file.path for file in session.table("t").snapshot().files()}
        for file in held:
            if file.path in now:
                path = Path(session.table("t").snapshot().ref.location, file.path)
                kept[path] = path.read_bytes()
                path.unlink()
        commit = session.execute(
            "t", DeleteSpec("id = 35")
        )  # the file that was written anew is the only one that is there
        assert (commit.files_pruned, commit.rows_deleted) == (5, 1)
        for path, body in kept.items():
            path.write_bytes(body)
        assert sorted(i for i, _ in rows_of(session.table("t").toDF())) == [i for i in range(60) if i not in (34, 35)]


@pytest.mark.parametrize("partitions", [30, 300])
def test_rows_of_many_partitions_in_no_order_become_few_files(duck: Session, partitions: int) -> None:
    """DuckDB keeps a hundred files open, and begins another for a partition that comes again."""
    rows = 700_000
    sql = f"SELECT range AS id, hash(range) % {partitions} AS p FROM range({rows})"
    commit = duck.execute("t", WriteSpec("overwrite", partition_by=("p",)), duckrun.SQL(sql))
    assert commit.files_added is not None and commit.files_added <= partitions * 1.2
    joined = (
        f"SELECT a.id, b.p FROM ({sql}) AS a JOIN ({sql}) AS b USING (id)"  # of which the first rows take all the work
    )
    again = duck.execute("t", WriteSpec("overwrite"), duckrun.SQL(joined))
    assert again.files_added is not None and again.files_added <= partitions * 2.4
    grouped = duck.sql("SELECT p, count(*) AS n, sum(id) AS total FROM t GROUP BY p ORDER BY p").collect()
    assert (
        grouped
        == duckdb.sql(f"SELECT p, count(*) AS n, sum(id) AS total FROM ({sql}) GROUP BY p ORDER BY p")
        .to_arrow_table()
        .to_pylist()
    )


@pytest.mark.parametrize("by_spark", [False, pytest.param(True, marks=pytest.mark.spark)], ids=["ours", "sparks"])
def test_rows_that_vectors_delete_are_none_of_the_files(
    duck: Session, root: Path, by_spark: bool, request: pytest.FixtureRequest
) -> None:
    """Of files that are read alone, also where the rows are numbered, or the log is a checkpoint."""
    rows = duckrun.SQL("SELECT range AS id, range % 4 AS p, 'v' || range AS v FROM range(4000)")
    properties = {"delta.enableDeletionVectors": "true"}
    duck.execute("t", WriteSpec("overwrite", partition_by=("p",), table_properties=properties), rows)
    gone = {n for n in range(4000) if n % 4 < 2 and n % 7 == 0}
    if by_spark:
        spark = request.getfixturevalue("spark")
        spark.sql(f"DELETE FROM delta.`{root / 'main' / 't'}` WHERE id % 4 < 2 AND id % 7 = 0")
    else:
        duck.execute("t", DeleteSpec("id % 4 < 2 AND id % 7 = 0", merge_mode="deletion_vectors"))
        DeltaTable(str(root / "main" / "t")).create_checkpoint()
    snapshot = duck.table("t").snapshot()
    files = list(snapshot.files())
    assert [f.deleted_rows > 0 for f in sorted(files, key=lambda f: str(f.partition_values))] == [
        True,
        True,
        False,
        False,
    ]
    with duckdb.connect() as plain:
        load_extensions(plain)
        for some in (files[:1], files[1:3], files):
            parts = {int(str(file.partition_values["p"])) for file in some}
            expected = [n for n in range(4000) if n % 4 in parts and n not in gone]
            assert are_plain(snapshot, some) and "delta_scan" not in snapshot.scan_sql(files=some)
            found = plain.sql(f"SELECT id, p, v FROM {snapshot.scan_sql(files=some)} ORDER BY id").fetchall()
            assert found == [(n, n % 4, f"v{n}") for n in expected]
            numbered = plain.sql(f"SELECT * FROM {snapshot.scan_sql(files=some, file='f', row='r')}").fetchall()
            numbers = {place: pq.read_table(place).column("id").to_pylist() for *_, place, _ in numbered}
            assert all(numbers[place][number] == row for row, *_, place, number in numbered)
            assert len(numbered) == len(expected)


def test_vectors_are_seen_where_some_files_have_them(duck: Session) -> None:
    duck.execute(
        "t",
        WriteSpec("overwrite", partition_by=("p",)),
        duckrun.SQL("SELECT range AS id, range % 4 AS p FROM range(40)"),
    )
    duck.execute("t", DeleteSpec("id = 5", merge_mode="deletion_vectors"))
    snapshot = duck.table("t").snapshot()
    assert not are_plain(snapshot, snapshot.files(), marked=False)
    assert DeltaTable(snapshot.ref.location).version() == 1
    assert duck.table("t").optimize().executeCompaction().files_removed == 1
    assert sorted(i for i, _ in rows_of(duck.table("t").toDF())) == [i for i in range(40) if i != 5]
