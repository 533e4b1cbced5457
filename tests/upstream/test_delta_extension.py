"""Faults of DuckDB's delta extension and of Delta Kernel. Each docstring says the right result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.upstream import instances

ONE = pa.table({"x": [1]})


@pytest.fixture(scope="module")
def delta() -> Iterator[duckdb.DuckDBPyConnection]:
    with instances.connection("delta") as connection:
        yield connection


def test_partition_columns_with_other_names_in_the_files_have_other_values(
    delta: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """Right: p is 1 and q is 3."""
    columns = (instances.mapped(1, "v", "p"), instances.mapped(2, "p", "c"), instances.mapped(3, "q", "d"))
    add = instances.added(tmp_path, "a.parquet", pa.table({"p": [9]}), {"c": "1", "d": "3"})
    instances.commit(tmp_path, 0, [*instances.defined(*columns, by=("q", "p"), **instances.MAPPED), add])
    assert delta.sql(f"SELECT v, p, q FROM delta_scan('{tmp_path}')").fetchall() == [(9, None, 1)]


def test_rowid_ends_the_instance(tmp_path: Path) -> None:
    """Right: an error that the column is not there, or numbers of the rows."""
    write_deltalake(tmp_path, ONE)
    connection = instances.connection("delta")
    with pytest.raises(duckdb.InternalException, match="virtual column"):
        connection.sql(f"SELECT rowid FROM delta_scan('{tmp_path}')").fetchall()


@pytest.mark.parametrize("name", ["té", "t%d"])
def test_the_folder_of_a_table_is_read_as_another(delta: duckdb.DuckDBPyConnection, tmp_path: Path, name: str) -> None:
    """Right: the row of the table."""
    write_deltalake(tmp_path / name, ONE)
    with pytest.raises(duckdb.IOException, match="Cannot open file"):
        delta.sql(f"FROM delta_scan('{tmp_path}/{name}')").fetchall()


def test_the_folder_of_a_log_is_decoded_twice(delta: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Right: the row of x%41, not that of xA."""
    write_deltalake(tmp_path / "xA", ONE)
    (tmp_path / "xA").joinpath("_delta_log").rename(tmp_path / "log")
    write_deltalake(tmp_path / "other", pa.table({"x": [2]}))
    (tmp_path / "other").rename(tmp_path / "x%41")
    with pytest.raises(duckdb.IOException, match="xA/_delta_log"):
        delta.sql(f"FROM delta_scan('{tmp_path.as_uri()}/x%2541')").fetchall()


def test_partition_values_of_removed_files_are_read_in_the_new_type(
    delta: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """Right: no rows."""
    x, file = instances.field("x", "long"), {"path": "a", "partitionValues": {"p": "a"}, "size": 1, "dataChange": True}
    removed = {"remove": {**file, "extendedFileMetadata": True, "deletionTimestamp": 0}}
    text, number = (instances.defined(x, instances.field("p", kind), by=("p",)) for kind in ("string", "long"))
    instances.commit(tmp_path, 0, [*text, {"add": {**file, "modificationTime": 0}}])
    instances.commit(tmp_path, 1, [number[1], removed])
    with pytest.raises(duckdb.IOException, match="Failed to parse value 'a' as 'long'"):
        delta.sql(f"FROM delta_scan('{tmp_path}')").fetchall()


def test_a_table_with_a_void_column_cannot_be_opened(delta: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Right: no rows."""
    instances.commit(tmp_path, 0, instances.defined(instances.field("n", "void")))
    with pytest.raises(duckdb.IOException, match="Unsupported Delta table type: 'void'"):
        delta.sql(f"FROM delta_scan('{tmp_path}')").fetchall()
