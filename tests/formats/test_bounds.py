"""What the log says of columns: no value lies outside, whoever wrote the files."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import duckrun
from duckrun import WriteSpec

DAYS = [dt.date(2026, 1, 1), None, dt.date(1, 1, 1)]
ROWS = pa.table(
    {
        "i": pa.array([5, None, -7], pa.int64()),
        "d": pa.array([1.5, float("nan"), -0.0]),
        "s": ["fig", None, "k" * 100],
        "day": DAYS,
        "time": pa.array([dt.datetime(2026, 1, 1, 1, 2, 3, 4567), None, dt.datetime(2000, 1, 1)], pa.timestamp("us")),
        "n": pa.array([None, None, None], pa.int32()),
        "m": pa.array([Decimal("1.25"), None, Decimal("-3.50")], pa.decimal128(9, 2)),
        "l": pa.array([[1], None, [2]], pa.list_(pa.int64())),
        "f": [{"a": 1}, None, {"a": 2}],
        "yes": [True, None, False],
        "raw": [b"x", None, b"y"],
        "p": ["a", "b", "a"],
    }
)
MORE = ROWS.slice(1, 1)  # a file in which every value is NULL


@pytest.mark.parametrize("writer", ["ours", "deltalake"])
def test_no_value_is_outside_of_its_bounds(root: Path, writer: str) -> None:
    with duckrun.connect(root) as session:
        for rows in (ROWS, MORE):
            if writer == "ours":
                session.execute("t", WriteSpec("append", partition_by=("p",)), rows)
            else:
                write_deltalake(root / "main" / "t", rows, mode="append", partition_by=["p"])
        found = session.table("t").snapshot().column_figures()
        assert "p" not in found and found["l"].low is None
        both = pa.concat_tables([ROWS, MORE])
        assert {name: each.nulls for name, each in found.items() if each.nulls is not None and name != "d"} == {
            name: both.column(name).null_count for name in found if found[name].nulls is not None and name != "d"
        }
        assert found["i"].nulls == 2 and (found["n"].low, found["n"].high) == (None, None)
        assert (found["i"].low, found["i"].high) == ("-7", "5")
        assert (found["day"].low, found["day"].high) == ("0001-01-01", "2026-01-01")
        with duckdb.connect() as plain:
            plain.register("given", both)
            for name in ("i", "s", "day", "time", "m"):
                low, high = found[name].low, found[name].high
                kind = plain.sql(f"select {name} from given").types[0]
                slack = " + interval 1 millisecond" if name == "time" else ""
                assert low is not None and high is not None
                inside = plain.execute(
                    f"select bool_and({name} between ?::{kind} and ?::{kind}{slack}) from given", [low, high]
                )
                assert inside.fetchone() == (True,), name
        session.sql("alter table t set tblproperties ('delta.enableDeletionVectors' = 'true')", dialect="spark")
        session.sql("delete from t where i = 5")
        assert session.table("t").snapshot().column_figures()["i"].low == "-7"


def test_a_table_without_rows_has_no_figures(root: Path) -> None:
    with duckrun.connect(root) as session:
        session.sql("create table t (id bigint)")
        figures = session.table("t").snapshot().column_figures()
        assert (figures["id"].low, figures["id"].high) == (None, None)
