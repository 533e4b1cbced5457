"""Faults of pyarrow, obstore and sqlglot. Each docstring says the right result."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot
from obstore.store import LocalStore


def test_pyarrow_reads_int96_as_nanoseconds(tmp_path: Path) -> None:
    """Right: the year 1500."""
    old = pa.table({"t": pa.array([dt.datetime(1500, 1, 1)], pa.timestamp("us"))})
    pq.write_table(old, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    read = pq.read_table(tmp_path / "t.parquet")["t"]
    assert (read.type, read.cast(pa.timestamp("us"), safe=False)[0].as_py().year) == (pa.timestamp("ns"), 2084)


def test_obstore_cannot_list_a_folder_with_a_name_that_it_cannot_encode(tmp_path: Path) -> None:
    """Right: both files."""
    (tmp_path / "a").touch()
    (tmp_path / os.fsdecode(b"\xff")).touch()
    with pytest.raises(Exception, match="invalid path"):
        list(obstore.list(LocalStore(tmp_path)))


def test_sqlglot_drops_words_without_an_error() -> None:
    """Right: an error, or SQL that numbers the rows."""
    query = "SELECT * FROM range(3) WITH ORDINALITY"
    assert sqlglot.transpile(query, "duckdb", "spark") == ["SELECT * FROM EXPLODE(SEQUENCE(0, 2))"]
