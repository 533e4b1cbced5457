"""A table that is overwritten goes on computing the columns that it computed before."""

from __future__ import annotations

import pyarrow as pa
import pytest

from duckrun import Session, UnsupportedFeature, WriteSpec
from duckrun.values.tables import ColumnSpec, CreateSpec, Identity
from tests.lake import rows_of

MADE = CreateSpec((ColumnSpec("id", "BIGINT"), ColumnSpec("v", "VARCHAR", default="'q'")))


def test_an_overwrite_keeps_the_default_of_a_column(session: Session) -> None:
    session.execute("t", MADE)
    session.execute("t", WriteSpec("overwrite"), pa.table({"id": [1], "v": ["a"]}))
    session.sql("insert into t (id) values (2)")
    assert rows_of(session.scan("t")) == [(1, "a"), (2, "q")]


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["spark"])
def test_spark_refuses_an_overwrite_that_would_lose_a_default(session: Session) -> None:
    session.execute("t", MADE)
    session.execute("t", WriteSpec("append"), pa.table({"id": [1], "v": ["a"]}))
    with pytest.raises(UnsupportedFeature, match=r"main\.t computes the column v.*engine: duckdb"):
        session.execute("t", WriteSpec("overwrite"), pa.table({"id": [1], "v": ["a"], "more": [1]}))
    assert rows_of(session.scan("t")) == [(1, "a")]


def test_an_overwrite_of_a_clustered_table_keeps_its_numbers_and_defaults(session: Session) -> None:
    numbered = ColumnSpec("k", "BIGINT", identity=Identity(1, 1, always=False))
    session.execute("t", CreateSpec((*MADE.columns, numbered), cluster_by=("id",)))
    session.execute("t", WriteSpec("append"), pa.table({"id": [1], "v": ["a"]}))
    session.execute("t", WriteSpec("overwrite"), pa.table({"id": [2], "v": ["b"]}))
    session.sql("insert into t (id) values (3)")
    assert session.table("t").detail()["clusteringColumns"] == ["id"]
    assert [row[:2] for row in rows_of(session.scan("t"))] == [(2, "b"), (3, "q")]
    assert len({k for _, _, k in rows_of(session.scan("t"))} - {None}) == 2
    if session.engine_name == "spark":
        for spec in (WriteSpec("overwrite", cluster_by=("v",)), WriteSpec("overwrite", description="other")):
            with pytest.raises(UnsupportedFeature, match=r"main\.t computes the column v, k"):
                session.execute("t", spec, pa.table({"id": [4], "v": ["c"]}))


@pytest.mark.parametrize("predicate", [None, "p = 'a'"])
def test_rows_that_replace_a_partition_get_numbers_that_none_gets_again(duck: Session, predicate: str | None) -> None:
    columns = (
        ColumnSpec("id", "BIGINT"),
        ColumnSpec("p", "VARCHAR"),
        ColumnSpec("k", "BIGINT", identity=Identity(10, 3)),
    )
    duck.execute("t", CreateSpec(columns, partition_by=("p",)))
    duck.execute("t", WriteSpec("replace", predicate=predicate), pa.table({"id": [1, 2], "p": ["a", "a"]}))
    duck.sql("insert into t (id, p) values (3, 'b')")
    assert [k for _, _, k in rows_of(duck.scan("t"))] == [10, 13, 16]
