"""Queries of a table of many files by numbers: they open the files near the numbers, and give the rows of plain DuckDB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import duckrun
from duckrun import ReadSpec, Session
from duckrun.formats.delta.files.plain_files import _MANY

FILES, EACH = _MANY + 20, 5
NARROW = [
    "SELECT * FROM t WHERE id = 17",
    "SELECT x.note FROM main.t AS x WHERE x.id BETWEEN 100 AND 104 ORDER BY x.id LIMIT 3",
    "SELECT count(*) AS c FROM t WHERE t.id IN (3, 9) AND note <> 'n1'",
    "SELECT n, count(*) AS c FROM t WHERE id < 8 AND n IS NOT NULL GROUP BY n HAVING count(*) > 0",
    "SELECT id + 400 AS id FROM t WHERE id = 17",
    "SELECT * FROM (SELECT * FROM t WHERE id > 590) WHERE n = 1",
    "WITH few AS (SELECT id FROM t WHERE id = 17) SELECT * FROM few",
    "SELECT DISTINCT n FROM t WHERE 20 >= id",
    "SELECT * FROM t WHERE id = -5",
    "SELECT * FROM t WHERE ID = 17 AND id + 1 = 18",
    "SELECT id, row_number() OVER (ORDER BY id) AS r FROM t WHERE id BETWEEN 4 AND 11 QUALIFY r < 4",
    "SELECT * FROM t WHERE id = 17 UNION ALL SELECT * FROM t WHERE id = 300",
]
WIDE = [
    "SELECT * FROM t",
    "SELECT count(*) AS c FROM t WHERE id = 17 OR n = 2",
    "SELECT count(*) AS c FROM t WHERE NOT id = 17",
    "SELECT count(*) AS c FROM t WHERE id IS NULL",
    "SELECT count(*) AS c FROM t AS x(n, id, note) WHERE id = 2",
    "SELECT count(*) AS c FROM t AS a JOIN t AS b ON a.id = b.id + 300 WHERE a.id = 317",
    "SELECT count(*) AS c FROM t AS a LEFT JOIN t AS b ON a.id = b.n WHERE b.id IS NULL",
    "SELECT (SELECT count(*) FROM t WHERE t.n = o.id) AS c FROM (SELECT 2 AS id) AS o",
    "SELECT (SELECT count(*) FROM t WHERE o.id = 2) AS c FROM (SELECT 2 AS id) AS o",
    "SELECT (SELECT count(*) FROM t WHERE target.id = 2) AS c FROM (SELECT 2 AS id) AS target",
    "SELECT count(*) AS c FROM t WHERE id = 17.5",
    "SELECT count(*) AS c FROM t WHERE id > (SELECT max(id) - 3 FROM t)",
    "SELECT count(*) AS c FROM t WHERE n = 1",
]


def rows(number: int) -> pa.Table:
    ids = list(range(number * EACH, number * EACH + EACH))
    notes = [None if id % 7 == 0 else f"n{id % 3}" for id in ids]
    schema = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("note", pa.string())])
    return pa.table([ids, [None if number % 11 == 0 else id % 4 for id in ids], notes], schema=schema)


@pytest.fixture
def folder(root: Path) -> Path:
    """A table of many files, two of which lack bounds, or have only NULLs; the log by deltalake's spelling."""
    folder = root / "main" / "t"
    write_deltalake(folder, rows(0))
    log = folder / "_delta_log"
    actions = []
    for number in range(1, FILES):
        name = f"part-00000-00000000-0000-0000-0000-{number:012d}-c000.snappy.parquet"
        part = rows(number)
        if number == 50:
            part = part.set_column(0, "id", pa.nulls(EACH, pa.int64()))
        pq.write_table(part, folder / name)
        ids = [id for id in part["id"].to_pylist() if id is not None]
        stats = {"numRecords": EACH}
        if ids and number != 60:
            stats |= {"minValues": {"id": min(ids)}, "maxValues": {"id": max(ids)}, "nullCount": {"id": 0}}
        size = (folder / name).stat().st_size
        file = {"path": name, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}
        actions.append(json.dumps({"add": {**file, "stats": json.dumps(stats)}}))
    (log / f"{1:020d}.json").write_text("\n".join(actions))
    return folder


@pytest.fixture
def plain(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(
            f"CREATE SCHEMA IF NOT EXISTS main; CREATE TABLE t AS FROM read_parquet('{folder}/*.parquet')"
        )
        yield connection


@pytest.fixture
def lake(root: Path, folder: Path) -> Iterator[Session]:
    with duckrun.connect(root) as session:
        yield session


def same(lake: Session, plain: duckdb.DuckDBPyConnection, query: str) -> None:
    found, expected = (
        sorted(map(repr, each.to_pylist()))
        for each in (lake.sql(query).toArrow(), plain.execute(query).to_arrow_table())
    )
    assert found == expected, query


def is_narrow(lake: Session, query: str) -> bool:
    return "delta_scan" not in lake.sql(query).native.sql_query()


def test_queries_by_numbers_have_the_rows_of_plain_duckdb(lake: Session, plain: duckdb.DuckDBPyConnection) -> None:
    for query in NARROW:
        same(lake, plain, query)
        assert is_narrow(lake, query), query
    for query in WIDE:
        same(lake, plain, query)
        assert not is_narrow(lake, query), query
    frame = lake.open(lake.snapshot("t").scan(ReadSpec(predicate="id = 17")))
    assert frame.collect() == lake.scan("t", ReadSpec(predicate="id = 17")).collect()


def test_a_sample_is_drawn_from_all_rows(lake: Session) -> None:
    query = "SELECT count(*) AS c FROM t USING SAMPLE 599 ROWS"
    assert lake.sql(query).collect() == [{"c": 599}]
    assert not is_narrow(lake, "SELECT * FROM t WHERE id = 17 USING SAMPLE 3 ROWS")
    assert not is_narrow(lake, "SELECT * FROM t TABLESAMPLE 50 PERCENT WHERE id = 17")


def test_rows_that_were_changed_or_deleted_are_read_as_they_are(
    lake: Session, plain: duckdb.DuckDBPyConnection
) -> None:
    for mode in ("copy_on_write", "deletion_vectors"):
        for statement in (
            "UPDATE t SET n = 77 WHERE id = 17",
            "DELETE FROM t WHERE id = 18",
            "INSERT INTO t VALUES (17, 5, 'new'), (9000, 6, 'new')",
            "UPDATE t SET id = 9001 WHERE id = 19",
        ):
            lake.sql(f"ALTER TABLE t SET TBLPROPERTIES ('delta.enableDeletionVectors' = '{mode != 'copy_on_write'}')")
            lake.sql(statement)
            plain.execute(statement)
            for query in (*NARROW, "SELECT * FROM t WHERE id > 9000", "SELECT count(*) AS c FROM t WHERE id = 18"):
                same(lake, plain, query)


def test_an_older_version_is_read_by_its_own_files(lake: Session) -> None:
    lake.sql("UPDATE t SET n = 77 WHERE id = 17")
    query = "SELECT n FROM t AT (VERSION => {}) WHERE id = 17"
    assert lake.sql(query.format(1)).collect() == [{"n": 1}]
    assert lake.sql(query.format(2)).collect() == [{"n": 77}]


def test_a_mapped_table_is_read_by_its_own_names(lake: Session, plain: duckdb.DuckDBPyConnection) -> None:
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    for statement in ("ALTER TABLE t RENAME COLUMN id TO old", "ALTER TABLE t RENAME COLUMN n TO id"):
        lake.sql(statement)
        plain.execute(statement)
    for query in ("SELECT * FROM t WHERE id = 1", "SELECT * FROM t WHERE old = 17"):
        same(lake, plain, query)
