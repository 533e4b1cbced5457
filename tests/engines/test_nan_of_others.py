"""NaN is above every number, also in files whose bounds leave it out, as Parquet has it (https://github.com/duckdb/duckdb/issues/25521)."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import convert_to_deltalake, write_deltalake

import duckrun
from duckrun import MergeSpec, SchemaMismatch, Session, WriteSpec
from duckrun.values.rows import DeleteSpec, UpdateSpec

NAN = math.nan
INSIDE = pa.struct([("y", pa.float64()), ("d", pa.struct([("z", pa.float32())]))])
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("f", pa.float32()), ("st", INSIDE)])
ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "x": [NAN, -3.0, -1.0],
        "f": [NAN, -3.0, -1.0],
        "st": [{"y": NAN, "d": {"z": NAN}}, {"y": -1.0, "d": {"z": -1.0}}, None],
    },
    SCHEMA,
)
WITHOUT = pa.table({"id": [4], "x": [-5.0], "f": [-5.0], "st": [{"y": -1.0, "d": {"z": -1.0}}]}, SCHEMA)
CONDITIONS = [
    "x > 5",
    "x >= 1e300",
    "x = cast('NaN' as double)",
    "x in (7, cast('NaN' as double))",
    "not x < 5",
    "f > 5",
    "st.y > 5",
    "st.d.z > 5",
    "x between 5 and cast('NaN' as double)",
]
WRITERS = ("deltalake", "arrow", "ours")


def write(session: Session, root: Path, writer: str) -> None:
    """main.t with a NaN in the first of two files."""
    folder = root / "main" / "t"
    if writer == "ours":
        session.execute("t", WriteSpec("append"), ROWS)
        session.execute("t", WriteSpec("append"), WITHOUT)
    elif writer == "deltalake":
        write_deltalake(folder, ROWS)
        write_deltalake(folder, WITHOUT, mode="append")
    else:
        folder.mkdir(parents=True)
        pq.write_table(ROWS, folder / "a.parquet")
        pq.write_table(WITHOUT, folder / "b.parquet")
        convert_to_deltalake(folder)


@pytest.mark.parametrize("writer", WRITERS)
def test_every_condition_finds_nan(session: Session, root: Path, writer: str) -> None:
    write(session, root, writer)
    for condition in CONDITIONS:
        found = session.sql(f"select id from t where {condition}", dialect=session.engine.name).collect()
        assert found == [{"id": 1}], condition
    assert session.scan("t", duckrun.ReadSpec(predicate="x > 5", columns=("id",))).collect() == [{"id": 1}]


@pytest.mark.parametrize("writer", WRITERS)
def test_nan_is_changed_and_deleted(session: Session, root: Path, writer: str) -> None:
    write(session, root, writer)
    assert session.execute("t", UpdateSpec({"id": "id + 10"}, "x > 5")).rows_updated == 1
    session.execute("t", MergeSpec(("id",), on="target.f > 5"), ROWS.set_column(0, SCHEMA.field(0), [[11, 2, 3]]))
    assert session.execute("t", DeleteSpec("st.y > 5 and id = 11")).rows_deleted == 1
    assert sorted(row["id"] for row in session.sql("select id from t").collect()) == [2, 2, 3, 3, 4]


@pytest.mark.parametrize("writer", WRITERS)
def test_nan_is_replaced(session: Session, root: Path, writer: str) -> None:
    write(session, root, writer)
    session.execute(
        "t", WriteSpec("replace", predicate="X > 5"), ROWS.slice(0, 1).set_column(0, SCHEMA.field(0), [[9]])
    )
    assert sorted(row["id"] for row in session.sql("select id from t").collect()) == [2, 3, 4, 9]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_join_finds_nan(duck: Session, root: Path, writer: str) -> None:
    write(duck, root, writer)
    asked = "select id from t join (values ('nan'::double)) as v(x) using (x)"
    assert duck.sql(asked).collect() == [{"id": 1}]


def test_a_ducklake_adopts_no_file_whose_bounds_leave_nan_out(tmp_path: Path) -> None:
    source = tmp_path / "delta"
    write_deltalake(source / "main" / "t", ROWS)
    with duckrun.connect(tmp_path / "lake", format="ducklake") as session:
        with pytest.raises(
            SchemaMismatch, match="column x of the file .* holds NaN, which the file's bounds leave out"
        ):
            session.import_from(source, adopt=True)
        session.import_from(source)
        for condition in CONDITIONS:
            assert session.sql(f"select id from t where {condition}").collect() == [{"id": 1}], condition


def test_a_ducklake_adopts_nan_without_bounds(tmp_path: Path) -> None:
    source = tmp_path / "delta"
    with duckrun.connect(source) as session:
        session.execute("t", WriteSpec("append"), ROWS.drop_columns("st"))
    with duckrun.connect(tmp_path / "lake", format="ducklake") as session:
        session.import_from(source, adopt=True)
        for condition in (c for c in CONDITIONS if "st." not in c):
            assert session.sql(f"select id from t where {condition}").collect() == [{"id": 1}], condition
