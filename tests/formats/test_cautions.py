"""What misleads readers is looked for in each version of each table, whatever was found where it lies, or of the files that it has."""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from duckrun import ReadSpec, Session, UnsupportedFeature
from tests.lake import rows_of

HIVES = pa.list_(pa.field("array_element", pa.int64()))
LONG = "cast('123456789012345678.91' as decimal(38,2))"
MAPPED = "tblproperties ('delta.columnMapping.mode' = 'name')"


def _put_old_lists(table: Path, **columns: pa.Array) -> None:
    """Have the newest commit add a file that has lists as Hive laid them out, in the place of its own."""
    file = table / "hive.parquet"
    pq.write_table(pa.table(columns), file, use_compliant_nested_type=False)
    # The repeated group of a list is called "list" by pyarrow, whatever its element is called.
    file.write_bytes(file.read_bytes().replace(b"\x04list", b"\x04bags"))
    commit = max((table / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    (add,) = (action["add"] for action in actions if "add" in action)
    (table / add["path"]).unlink()
    add |= {"path": file.name, "size": file.stat().st_size}
    commit.write_text("\n".join(map(json.dumps, actions)))


def _two_copies(duck: Session, columns: str) -> tuple[Path, Path]:
    """A table at version 0, and a copy of it, which has its id."""
    duck.sql(f"create table t (id bigint, {columns})")
    table = Path(duck.ref("t").location)
    return table, Path(shutil.copytree(table, table.with_name("other")))


def _put_in_place_of(table: Path, other: Path) -> None:
    shutil.rmtree(table)
    other.rename(table)


def test_a_copy_that_takes_a_tables_place_is_read_by_the_layout_of_its_own_files(duck: Session) -> None:
    table, other = _two_copies(duck, "l bigint[]")
    for name in ("t", "other"):
        duck.sql(f"insert into {name} values (1, [1, 2])")
    _put_old_lists(other, id=pa.array([1]), l=pa.array([[7, 8]], HIVES))
    assert rows_of(duck.sql("from t")) == [(1, [1, 2])]
    assert rows_of(duck.scan("t", ReadSpec(version=1))) == [(1, [1, 2])]
    _put_in_place_of(table, other)
    assert rows_of(duck.sql("from t")) == [(1, [7, 8])]
    assert rows_of(duck.scan("t", ReadSpec(version=1))) == [(1, [7, 8])]


def test_a_copy_that_takes_a_tables_place_is_filtered_by_its_own_bounds(duck: Session) -> None:
    table, other = _two_copies(duck, "d decimal(38,2)")
    duck.sql(f"insert into t select 1, {LONG}")
    row = {"id": pa.array([2]), "d": pa.array([Decimal("123456789012345678.91")], pa.decimal128(38, 2))}
    write_deltalake(other, pa.table(row), mode="append")  # rounds the bounds
    condition = f"d = {LONG}"
    assert rows_of(duck.sql(f"select id from t where {condition}")) == [(1,)]
    _put_in_place_of(table, other)
    assert rows_of(duck.sql(f"select id from t where {condition}")) == [(2,)]
    assert rows_of(duck.scan("t", ReadSpec(predicate=condition, version=1)), "id") == [(2,)]


@pytest.mark.parametrize("newest_first", [True, False])
def test_a_dropped_column_is_read_from_an_older_version_by_the_layout_of_its_files(
    duck: Session, newest_first: bool
) -> None:
    duck.sql(f"create table t (id bigint, kept bigint[], gone bigint[]) using delta {MAPPED}", dialect="spark")
    duck.sql("insert into t values (1, array(1), array(2))", dialect="spark")
    stored: dict[str, Any] = {
        f.name: f.metadata[b"delta.columnMapping.physicalName"].decode() for f in duck.snapshot("t").schema
    }
    lists = {stored["gone"]: pa.array([[7, 8]], HIVES)}
    _put_old_lists(Path(duck.ref("t").location), **{stored["id"]: pa.array([1])}, **lists)
    duck.sql("alter table t drop column gone")
    readings = [
        lambda: rows_of(duck.sql("from t")) == [(1, None)],
        lambda: _is_refused(duck, "gone"),
    ]
    assert all(read() for read in (readings if newest_first else readings[::-1]))


def _is_refused(duck: Session, column: str) -> bool:
    with pytest.raises(UnsupportedFeature, match=rf"older Parquet writers \(column {column}\)"):
        duck.scan("t", ReadSpec(version=1)).collect()
    return True
