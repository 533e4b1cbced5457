"""A reader of a frame beside other uses of the frame: it has every row."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from duckrun import SQL, Session, WriteSpec

pytestmark = pytest.mark.formats(4)

MANY = 300_000
"""Rows of more batches than a reader has ready."""
USES: dict[str, Callable[[Any], object]] = {
    "count": lambda frame: frame.count(),
    "rows": lambda frame: frame.toArrow(),
    "first rows": lambda frame: frame.limit(3).collect(),
    "schema": lambda frame: frame.schema,
    "another reader": lambda frame: next(iter(frame.reader())),
    "polars": lambda frame: frame.pl(lazy=True).head(2).collect(),
}


@pytest.fixture
def many(duck: Session) -> Session:
    duck.execute("t", WriteSpec("error"), SQL(f"SELECT range AS id FROM range({MANY})"))
    return duck


def rest_after(frame: Any, use: Callable[[Any], object]) -> int:
    batches = iter(frame.reader())
    first = next(batches).num_rows
    use(frame)
    gc.collect()
    return first + sum(batch.num_rows for batch in batches)


@pytest.mark.parametrize("use", USES)
def test_a_reader_has_every_row_beside_another_use_of_its_frame(many: Session, use: str) -> None:
    many.register("given", pa.table({"id": range(MANY)}))
    for frame in (many.table("t").toDF(), many.sql("FROM t"), many.sql("FROM given")):
        assert rest_after(frame, USES[use]) == MANY


def test_threads_read_one_frame(many: Session) -> None:
    frame = many.sql("FROM t")
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: frame.toArrow().num_rows, range(8))) == [MANY] * 8


def test_a_frame_reads_the_values_that_were_registered_when_it_was_made(duck: Session) -> None:
    duck.register("given", pa.table({"id": [1]}))
    frame = duck.sql("FROM given")
    duck.register("given", pa.table({"id": [2, 3]}))
    assert [frame.collect(), duck.sql("FROM given").collect()] == [[{"id": 1}], [{"id": 2}, {"id": 3}]]


@pytest.mark.only_format("ducklake", "a transaction over several tables")
@pytest.mark.parametrize("use", USES)
def test_a_reader_in_a_transaction_has_every_row(many: Session, use: str) -> None:
    many.sql("BEGIN")
    many.sql("INSERT INTO t VALUES (-1)")
    assert rest_after(many.sql("FROM t"), USES[use]) == MANY + 1
    many.sql("ROLLBACK")
    assert rest_after(many.sql("FROM t"), USES[use]) == MANY


BESIDE: dict[str, Callable[[Session, Any], object]] = {
    "a write": lambda session, rows: session.execute("copy", WriteSpec("error"), rows),
    "a write by delta_rs": lambda session, rows: session.execute("copy", WriteSpec("error", writer="delta_rs"), rows),
    "a temporary view": lambda session, rows: session.sql("CREATE TEMP VIEW seen AS SELECT 1 AS x"),
    "a dropped name": lambda session, rows: (
        session.sql("CREATE TEMP TABLE gone AS SELECT 1 AS x"),
        session.sql("DROP TABLE gone"),
    ),
}


@pytest.mark.only_format("delta", "delta_rs writes no DuckLake")
@pytest.mark.parametrize("other", BESIDE)
def test_a_stream_of_the_sessions_own_connection_has_every_row(many: Session, other: str) -> None:
    rows = many.engine.connection.execute(f"SELECT range AS id FROM range({MANY})").to_arrow_reader(1000)
    BESIDE[other](many, rows)
    left = rows.read_all().num_rows
    assert left == MANY or (left == 0 and many.table("copy").toDF().count() == MANY)
