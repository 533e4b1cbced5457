"""DuckDB's queries in Spark's dialect, on Spark: the rows of DuckDB, or an error; never others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun.session import Session
from tests.differential.corpus import Both, plain_value, queries

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.drawn(5)]

# What a translation cannot see without the types of columns, or what is the engines' own.
KNOWN = {
    "a time minus a time is an interval, which the engines show in two ways": ("ts - ts, ts",),
    "DuckDB rounds decimals to integers and divides them as doubles, Spark cuts them": ("m / 3, m::int",),
    "bits of a negative number depend on its type": ("bit_count(i)",),
    "null in JSON is a text in DuckDB, and none in Spark": ("select j->'$.a'",),
    "a list of no rows is NULL in DuckDB, and empty in Spark": ("list(s) from w where id = -1",),
    "infinity, and a struct without names, have no value in Python": (
        "row(1, 'x'), struct_pack", "date 'infinity'", "list_zip", "row(id, l), [id",
    ),
    "each engine describes in its own columns": ("describe",),
}  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    both = Both(tmp_path_factory.mktemp("corpus") / "lake")
    yield both
    both.close()


@pytest.fixture(scope="module")
def on_spark(both: Both, spark: Any) -> Iterator[Session]:
    with duckrun.connect(both.session.lake.root, engine="spark", spark=spark) as session:
        yield session


def _compared() -> list[str]:
    known = [part for parts in KNOWN.values() for part in parts]
    return [query for query in queries() if not any(part in query for part in known)]


@pytest.mark.parametrize("query", _compared())
def test_a_query_on_spark_gives_the_rows_of_duckdb_or_an_error(both: Both, on_spark: Session, query: str) -> None:
    expected = _rows(both.session.sql(query).toArrow())
    try:
        found = on_spark.sql(query).toArrow()
    except Exception as error:  # a refusal of ours, or Spark's own about what it does not have
        assert str(error)
        return
    assert _rows(found) == expected


def _rows(table: pa.Table) -> list[str]:
    values = [column.to_pylist() for column in table.columns]
    return sorted("|".join(map(plain_value, row)) for row in zip(*values, strict=True))
