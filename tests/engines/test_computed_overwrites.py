"""A table that is overwritten goes on computing the columns that it computed before."""

from __future__ import annotations

import pyarrow as pa
import pytest

from duckrun import Session, UnsupportedFeature, WriteSpec
from duckrun.values.tables import ColumnSpec, CreateSpec
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
