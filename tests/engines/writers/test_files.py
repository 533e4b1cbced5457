"""Files that the writers make and merges by delta_rs, where they once differed from what DuckDB means."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from duckrun import MergeClause, MergeSpec, Session, WriteSpec
from duckrun.values.rows import DeleteInsertSpec, DeleteSpec

ROWS = pa.table({"id": [1, 2, 3], "x": [1.5, math.nan, -2.0]})


@pytest.fixture(params=["written", "merged"])
def floats(duck: Session, request: pytest.FixtureRequest) -> Session:
    """main.t with ROWS, in a file that a write made or that a merge made."""
    commit = duck.execute("t", WriteSpec("append", writer="delta_rs"), ROWS)
    if request.param == "merged":
        commit = duck.execute("t", MergeSpec(("id",), writer="delta_rs"), ROWS)
    assert commit.writer == "delta_rs"
    return duck


@pytest.mark.parametrize("where", ["x > 5", "x >= 1e300", "x = 'nan'", "x IN (7, 'nan')", "NOT x < 5", "isnan(x)"])
def test_nan_is_found_by_every_condition_that_it_satisfies(floats: Session, where: str) -> None:
    """https://github.com/duckdb/duckdb/issues/25521: with bounds in the file, most of these find nothing."""
    assert floats.sql(f"SELECT id FROM t WHERE {where}").collect() == [{"id": 2}]
    assert floats.execute("t", DeleteSpec(where)).rows_deleted == 1


def test_nan_is_found_by_a_join(floats: Session) -> None:
    floats.execute("t", DeleteInsertSpec(("x",)), pa.table({"id": [9], "x": [math.nan]}))
    assert sorted(row["id"] for row in floats.sql("SELECT id FROM t").collect()) == [1, 3, 9]


def test_files_are_compressed_and_keep_the_bounds_of_other_columns(floats: Session, root: Path) -> None:
    (file,) = DeltaTable(str(root / "main" / "t")).file_uris()
    columns = pq.ParquetFile(file).metadata.row_group(0)
    assert {columns.column(i).compression for i in range(columns.num_columns)} == {"SNAPPY"}
    assert columns.column(0).statistics.has_min_max


REPEATED = pa.table({"id": [1, 1, 1, 2], "n": [10, 20, 30, 40]})


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        (MergeClause("matched_update", set={"n": "target.n + source.n"}), [11, 21, 31, 40]),
        (MergeClause("matched_update", "target.n > 25", set={"n": "source.n"}), [1, 10, 20, 40]),
        (MergeClause("matched_update", "target.n = 20"), [1, 10, 30, 40]),
        (MergeClause("matched_delete", "target.n < 25"), [30, 40]),
    ],
)
def test_each_row_of_a_key_that_the_table_holds_more_than_once_is_decided_on_its_own(
    duck: Session, clause: MergeClause, expected: list[int]
) -> None:
    duck.execute("t", WriteSpec("append"), REPEATED)
    duck.execute("t", MergeSpec(("id",), (clause,)), pa.table({"id": [1], "n": [1]}))
    assert sorted(row["n"] for row in duck.sql("SELECT n FROM t").collect()) == expected


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("where", ["x >= 0", "x <= 0", "x = 0", "x >= -0.0", "x <= -0.0", "x = -0.0"])
def test_a_zero_of_either_sign_is_found_in_a_staged_file(duck: Session, zero: float, where: str) -> None:
    duck.execute("t", WriteSpec("append"), ROWS)
    commit = duck.execute("t", WriteSpec("replace", predicate="true"), pa.table({"id": [7], "x": [zero]}))
    assert commit.writer == "staged"
    assert duck.sql(f"SELECT id FROM t WHERE {where}").collect() == [{"id": 7}]
