"""Files of polars and of Arrow beside files of DuckDB, from the same rows: statistics, values, refusals."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from duckrun import DuckrunError, SchemaMismatch, Session, WriteSpec
from duckrun.engines.duckdb.writers import columnar
from duckrun.values.tables import ColumnSpec, CreateSpec
from tests.lake import rows_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

MANY = 40_000
OTHERS: dict[str, Any] = {
    "small": pl.Series([-128, None, 127], dtype=pl.Int8),
    "whole": pl.Series([-(2**63), None, 2**63 - 1], dtype=pl.Int64),
    "real": pl.Series([-0.0, None, 1e300]),
    "half": pl.Series([0.1, None, -3.4], dtype=pl.Float32),
    "endless": pl.Series([math.inf, None, 1.0]),
    "yes": pl.Series([True, None, False]),
    "day": pl.Series([date(1, 1, 1), None, date(9999, 12, 31)]),
    "naive": pl.Series([datetime(1, 1, 1), None, datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    "instant": pl.Series([datetime(1500, 1, 1, tzinfo=UTC), None, datetime(2024, 2, 3, 4, 5, 6, 7890, UTC)]),
    "berlin": pl.Series([datetime(2024, 1, 1), None, datetime(1999, 7, 1)]).dt.replace_time_zone("Europe/Berlin"),
    "money": pl.Series([Decimal("-1.10"), None, Decimal("99999999.99")], dtype=pl.Decimal(10, 2)),
    "long": pl.Series([Decimal("1") / 7, None, Decimal("-2")], dtype=pl.Decimal(38, 20)),
    "text": pl.Series(["", None, "é" * 40]),
    "high": pl.Series(["a" + "\U0010ffff" * 40, None, "z\x00"]),
    "bytes": pl.Series([b"", None, b"\xff\x00"]),
    "byte": pl.Series([0, None, 255], dtype=pl.UInt8),
    "short": pl.Series([0, None, 65_535], dtype=pl.UInt16),
    "unsigned": pl.Series([0, None, 2**32 - 1], dtype=pl.UInt32),
    "milliseconds": pl.Series([datetime(1, 1, 1), None, datetime(9999, 12, 31)], dtype=pl.Datetime("ms")),
    "nanoseconds": pl.Series([datetime(1700, 1, 1), None, datetime(2200, 1, 1, 0, 0, 0, 1)], dtype=pl.Datetime("ns")),
    "category": pl.Series(["b", None, "a"], dtype=pl.Categorical),
    "enum": pl.Series(["b", None, "a"], dtype=pl.Enum(["b", "a"])),
    "nothing": pl.Series([None, None, None], dtype=pl.Int32),
}


WRITERS = {"Polars": "polars", "parquet-cpp-arrow": "arrow", "DuckDB": "duckdb"}
"""First word in a file of each writer -> its name here."""
COLUMNAR = ("polars", "arrow")


@contextmanager
def writer(name: str) -> Iterator[None]:
    """Let one writer write frames of any size, if it writes their types and values."""
    before = columnar._FEWEST, columnar._MOST_BYTES
    columnar._FEWEST = 0 if name == "polars" else 10**9
    columnar._MOST_BYTES = -1 if name == "duckdb" else 10**9
    try:
        yield
    finally:
        columnar._FEWEST, columnar._MOST_BYTES = before


def created_by(session: Session, table: str, path: str) -> str:
    """The program that wrote a file, by the file itself."""
    return WRITERS[pq.read_metadata(Path(session.ref(table).location, path)).created_by.split(" ")[0]]


def writer_of(session: Session, name: str) -> str:
    """The program that wrote a table's only file."""
    (file,) = session.snapshot(name).files()
    return created_by(session, name, file.path)


def stats_of(session: Session, name: str) -> dict[str, Any]:
    """Statistics of a table's only file in the log."""
    log = sorted(Path(session.ref(name).location, "_delta_log").glob("*.json"))[-1]
    (add,) = [json.loads(line)["add"] for line in log.read_text().splitlines() if line.startswith('{"add"')]
    return json.loads(add["stats"])


def stored(session: Session, name: str) -> list[tuple[Any, ...]]:
    return rows_of(session.sql(f"FROM {name}"))


def written(session: Session, rows: Any, *, by: str) -> str:
    with writer(by):
        session.execute(by, WriteSpec("overwrite"), rows)
    return by


@pytest.mark.parametrize("by", COLUMNAR)
@pytest.mark.parametrize("name", OTHERS)
def test_each_writer_stores_the_same_values_and_statistics(duck: Session, name: str, by: str) -> None:
    frame = pl.DataFrame({"id": [1, 2, 3], name: OTHERS[name]})
    ours, duckdbs = written(duck, frame, by=by), written(duck, frame, by="duckdb")
    assert (writer_of(duck, ours), writer_of(duck, duckdbs)) == (by, "duckdb")
    assert stored(duck, ours) == stored(duck, duckdbs)
    assert duck.snapshot(ours).schema == duck.snapshot(duckdbs).schema
    one, other = stats_of(duck, ours), stats_of(duck, duckdbs)
    if name in ("text", "high") and by == "polars":  # it cuts bounds after 64 bytes
        low, high = one["minValues"].pop(name), one["maxValues"].pop(name)
        assert other["minValues"].pop(name).startswith(low)
        assert high >= frame[name].max()
        assert other["maxValues"].pop(name)[:16] == high[:16]
    if name == "half":  # the exact value of a 32-bit number, where DuckDB writes its shortest text
        low, high = (json.loads(json.dumps(one[key].pop(name))) for key in ("minValues", "maxValues"))
        assert (np.float32(other["minValues"].pop(name)), np.float32(other["maxValues"].pop(name))) == (low, high)
    assert one == other


@pytest.mark.parametrize("by", COLUMNAR)
@pytest.mark.parametrize("name", OTHERS)
def test_deltalake_and_polars_read_what_each_writer_wrote(duck: Session, name: str, by: str) -> None:
    frame = pl.DataFrame({"id": [1, 2, 3], name: OTHERS[name]})
    written(duck, frame, by=by)
    location = duck.ref(by).location
    assert rows_of(DeltaTable(location).to_pyarrow_table()) == stored(duck, by)
    assert sorted(pl.read_delta(location)["id"]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("x", pl.Series([1.0, math.nan, 2.0]), "bounds of NaN"),
        ("bytes", pl.Series([b"a", b"z" * 5000, b"c"]), "long values in each footer, or no bounds"),
        ("u", pl.Series([1, 2, 3], dtype=pl.UInt64), "cast to a decimal"),
        ("items", pl.Series([[1], [], None]), "layout of lists"),
    ],
)
@pytest.mark.parametrize("by", COLUMNAR)
def test_duckdb_writes_rows_that_others_would_store_otherwise(
    duck: Session, name: str, values: Any, why: str, by: str
) -> None:
    frame = pl.DataFrame({"id": [1, 2, 3], name: values})
    written(duck, frame, by=by)
    assert writer_of(duck, by) == "duckdb", why
    assert stored(duck, by) == stored(duck, written(duck, frame, by="duckdb"))


@pytest.mark.parametrize("by", COLUMNAR)
def test_nan_is_found_in_a_table_that_had_none_before(duck: Session, by: str) -> None:
    written(duck, pl.DataFrame({"id": [1], "x": [1.0]}), by=by)
    with writer(by):
        duck.execute(by, WriteSpec("append"), pl.DataFrame({"id": [2], "x": [math.nan]}))
    assert duck.sql(f"SELECT id FROM {by} WHERE x > 5").collect() == [{"id": 2}]


@pytest.mark.parametrize("by", COLUMNAR)
def test_nanoseconds_that_no_table_stores_are_refused(duck: Session, by: str) -> None:
    rows = pl.DataFrame({"at": pl.Series([1, 1000], dtype=pl.Int64).cast(pl.Datetime("ns"))})
    with writer(by), pytest.raises(SchemaMismatch, match="column at cannot hold the value"):
        duck.execute("t", WriteSpec("overwrite"), rows)


@pytest.mark.parametrize("name", ["*", "^x$", "^.*$", "^", "$x"])
@pytest.mark.parametrize("by", COLUMNAR)
def test_a_name_that_polars_takes_for_a_pattern_names_its_column(duck: Session, name: str, by: str) -> None:
    with writer(by):
        duck.execute("t", WriteSpec("append"), pl.DataFrame({"id": [1, 2], name: [1.0, math.nan], "x": [0.5, 1.5]}))
        duck.execute("t", WriteSpec("append"), pl.DataFrame({"id": [3], name: [2.0], "x": [2.5]}))
    assert sorted(rows_of(duck.sql(f'SELECT id FROM t WHERE "{name}" > 5'))) == [(2,)]
    read = duck.table("t").toDF().pl()
    assert isinstance(read, pl.DataFrame)
    assert read.columns == ["id", name, "x"]
    assert sorted(read.get_column("x")) == [0.5, 1.5, 2.5]


@pytest.mark.parametrize("by", COLUMNAR)
def test_a_zone_that_polars_does_not_know_is_written_by_duckdb(duck: Session, by: str) -> None:
    with writer(by):
        duck.execute("t", WriteSpec("overwrite"), pa.table({"at": pa.array([1], pa.timestamp("us", "No/Zone"))}))
    assert stored(duck, "t") == [(datetime(1970, 1, 1, 0, 0, 0, 1, UTC),)]


@pytest.mark.parametrize("kind", [pl.Int8, pl.Int16, pl.Int32, pl.UInt32])
@pytest.mark.parametrize("by", COLUMNAR)
def test_smaller_numbers_are_appended_to_a_wider_column(duck: Session, kind: Any, by: str) -> None:
    written(duck, pl.DataFrame({"id": [2**40], "x": [0.5]}), by=by)
    with writer(by):
        frame = pl.DataFrame({"id": pl.Series([1], dtype=kind), "x": pl.Series([3.4], dtype=pl.Float32)})
        duck.execute(by, WriteSpec("append"), frame)
    assert stored(duck, by) == [(1, float(np.float32(3.4))), (2**40, 0.5)]
    assert duck.snapshot(by).schema.types == [pa.int64(), pa.float64()]
    assert {str(kind) for kind in pq.read_schema(max(Path(duck.ref(by).location).glob("*.parquet"))).types} == {
        "int64",
        "double",
    }


@pytest.mark.parametrize("days", [10**7, -(10**6)])
@pytest.mark.parametrize("by", COLUMNAR)
def test_a_year_beyond_what_readers_support_is_refused(duck: Session, days: int, by: str) -> None:
    """Day numbers, since Python has no such date: the years 29349 and -768."""
    rows = pa.table({"id": [1], "day": pa.array([days], pa.int32()).cast(pa.date32())})
    with writer(by), pytest.raises(SchemaMismatch, match="day"):
        duck.execute("t", WriteSpec("overwrite"), rows)
    assert duck.tables() == []


@pytest.mark.parametrize("by", COLUMNAR)
def test_null_in_a_required_column_is_refused(duck: Session, by: str) -> None:
    duck.execute("t", CreateSpec((ColumnSpec("id", "BIGINT", nullable=False), ColumnSpec("v", "VARCHAR"))))
    with writer(by):
        duck.execute("t", WriteSpec("append"), pl.DataFrame({"id": [1, 2], "v": ["a", None]}))
        with pytest.raises(SchemaMismatch, match="column id is NOT NULL"):
            duck.execute("t", WriteSpec("append"), pl.DataFrame({"id": [1, None], "v": ["a", "b"]}))
    assert stored(duck, "t") == [(1, "a"), (2, None)]
    assert writer_of(duck, "t") == by


@pytest.mark.parametrize("by", COLUMNAR)
def test_columns_in_another_order_reach_their_names(duck: Session, by: str) -> None:
    written(duck, pl.DataFrame({"id": [1], "v": [10]}), by=by)
    with writer(by):
        duck.execute(by, WriteSpec("append"), pl.DataFrame({"v": [20], "id": [2]}))
    assert stored(duck, by) == [(1, 10), (2, 20)]


@pytest.mark.parametrize("by", COLUMNAR)
def test_a_missing_column_is_null_and_a_constraint_is_checked(duck: Session, by: str) -> None:
    written(duck, pl.DataFrame({"id": [1], "v": [10]}), by=by)
    duck.sql(f"ALTER TABLE {by} ADD CONSTRAINT few CHECK (id < 3)")
    with writer(by):
        duck.execute(by, WriteSpec("append", schema_mode="append_new_columns"), pl.DataFrame({"id": [2]}))
        with pytest.raises(SchemaMismatch, match="few"):
            duck.execute(by, WriteSpec("append"), pl.DataFrame({"id": [3], "v": [1]}))
    assert stored(duck, by) == [(1, 10), (2, None)]


KEYS: dict[str, Any] = {
    "text": ["a", None, "b-1"],
    "whole": pl.Series([-1, None, 7], dtype=pl.Int16),
    "day": [date(2024, 2, 29), None, date(1, 1, 1)],
    "yes": [True, None, False],
    "odd": ["a b", "ä", "x/y"],
    "instant": pl.Series([datetime(2024, 1, 1, 12), None, datetime(1999, 7, 1)]),
    "money": pl.Series([Decimal("1.10"), None, Decimal("-2.00")], dtype=pl.Decimal(10, 2)),
    "real": [0.5, None, -1.5],
}


@pytest.mark.parametrize("by", COLUMNAR)
@pytest.mark.parametrize("name", KEYS)
def test_partitions_have_the_same_folders_values_and_statistics(duck: Session, name: str, by: str) -> None:
    frame = pl.DataFrame({"id": range(6), name: [*KEYS[name], *KEYS[name]], "v": list("abcdef")})
    files = {}
    for each in (by, "duckdb"):
        with writer(each):
            duck.execute(each, WriteSpec("overwrite", partition_by=(name,)), frame)
        files[each] = sorted(
            (f.path.rpartition("/")[0], str(f.partition_values), f.rows) for f in duck.snapshot(each).files()
        )
        assert sorted(stored(duck, each)) == sorted(frame.rows())
    assert files[by] == files["duckdb"]
    assert duck.snapshot(by).schema == duck.snapshot("duckdb").schema
    assert rows_of(DeltaTable(duck.ref(by).location).to_pyarrow_table()) == rows_of(frame.to_arrow())
    if name in ("text", "whole", "day", "yes"):
        assert {created_by(duck, by, f.path) for f in duck.snapshot(by).files()} == {by}


@pytest.mark.parametrize("by", COLUMNAR)
def test_two_partition_columns_make_nested_folders(duck: Session, by: str) -> None:
    frame = pl.DataFrame({"b": [1, 1, 2], "a": ["x", "y", None], "v": [1.5, 2.5, 3.5]})
    with writer(by):
        duck.execute(by, WriteSpec("overwrite", partition_by=("a", "b")), frame)
        duck.execute(by, WriteSpec("append"), frame.head(1))
        duck.execute(by, WriteSpec("replace", predicate="a = 'y'"), pl.DataFrame({"b": 1, "a": "y", "v": 9.5}))
    assert sorted(stored(duck, by), key=str) == [(1, "x", 1.5), (1, "x", 1.5), (1, "y", 9.5), (2, None, 3.5)]
    folders = {f.path.rpartition("/")[0] for f in duck.snapshot(by).files()}
    assert folders == {"a=x/b=1", "a=y/b=1", "a=__HIVE_DEFAULT_PARTITION__/b=2"}


@pytest.mark.parametrize("value", ["", "NULL", "__HIVE_DEFAULT_PARTITION__"])
@pytest.mark.parametrize("by", COLUMNAR)
def test_a_text_that_means_no_value_in_a_partition_is_refused(duck: Session, value: str, by: str) -> None:
    with writer(by), pytest.raises(SchemaMismatch, match="partition column a"):
        duck.execute("t", WriteSpec("overwrite", partition_by=("a",)), pl.DataFrame({"a": ["x", value], "v": [1, 2]}))
    assert duck.tables() == []


@pytest.mark.parametrize("by", COLUMNAR)
def test_sorted_rows_and_rows_of_a_mapped_table_are_as_before(duck: Session, by: str) -> None:
    frame = pl.DataFrame({"id": [3, 1, 2]})
    with writer(by):
        duck.execute("sorted", WriteSpec("overwrite", sort_by=("id",)), frame)
        duck.execute("mapped", WriteSpec("overwrite", table_properties={"delta.columnMapping.mode": "name"}), frame)
    (file,) = duck.snapshot("sorted").files()
    values = pq.read_table(Path(duck.ref("sorted").location, file.path)).column("id")
    assert values.to_pylist() == [1, 2, 3]
    assert stored(duck, "mapped") == [(1,), (2,), (3,)]


@pytest.mark.parametrize("kind", ["polars", "pyarrow", "chunks", "pandas"])
def test_a_large_frame_of_each_kind_is_written_by_polars(duck: Session, kind: str) -> None:
    frame = pl.DataFrame({"id": pl.int_range(MANY, eager=True), "v": ["a", None] * (MANY // 2)})
    table = frame.to_arrow()
    half = MANY // 2
    value = {
        "polars": frame,
        "pyarrow": table,
        "chunks": pa.concat_tables([table.slice(half + 1), table.slice(0, half + 1)]),
        "pandas": pd.DataFrame({"id": range(MANY), "v": ["a", None] * half}),
    }[kind]
    commit = duck.execute("t", WriteSpec("overwrite"), value)
    assert (commit.rows_inserted, writer_of(duck, "t")) == (MANY, "polars")
    counted = duck.sql(
        "SELECT count(*) AS n, count(v) AS v, count(DISTINCT id) AS ids, max(id) AS last FROM t"
    ).collect()
    assert counted == [{"n": MANY, "v": half, "ids": MANY, "last": MANY - 1}]
    assert stats_of(duck, "t")["maxValues"] == {"id": MANY - 1, "v": "a"}
    assert pq.read_metadata(next(Path(duck.ref("t").location).glob("*.parquet"))).num_row_groups == 1


def test_a_failed_write_leaves_neither_file_nor_folder(duck: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: pl.DataFrame, file: str, **options: Any) -> None:
        Path(file).write_bytes(b"PAR1")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    with writer("polars"), pytest.raises(DuckrunError, match="disk is full"):
        duck.execute("t", WriteSpec("overwrite"), pl.DataFrame({"id": [1]}))
    assert not Path(duck.ref("t").location).exists()


def test_statistics_are_those_of_the_file_if_the_rows_change_meanwhile(duck: Session) -> None:
    """A view of numpy's memory, which another thread overwrites again and again during the write."""
    numbers = np.zeros(2_000_000, dtype=np.int64)
    table = pa.table({"id": pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])})
    stopped = threading.Event()

    def change() -> None:
        value = 0
        while not stopped.is_set():
            value += 1
            numbers[:] = value

    thread = threading.Thread(target=change)
    thread.start()
    try:
        duck.execute("t", WriteSpec("overwrite"), table)
    finally:
        stopped.set()
        thread.join()
    stats = stats_of(duck, "t")
    (file,) = duck.snapshot("t").files()
    values = pq.read_table(Path(duck.ref("t").location, file.path)).column("id").to_numpy()
    assert stats["minValues"]["id"] <= values.min() <= values.max() <= stats["maxValues"]["id"]


@pytest.mark.spark
@pytest.mark.parametrize("by", COLUMNAR)
def test_spark_reads_and_prunes_files_of_each_writer(duck: Session, spark: Any, by: str) -> None:
    frame = pl.DataFrame({"id": [1, 2, 3], **{name: values for name, values in OTHERS.items() if name != "endless"}})
    written(duck, frame, by=by)
    location = duck.ref(by).location
    read = spark.read.format("delta").load(location)
    assert read.count() == 3
    for name in ("whole", "real", "day", "money", "text"):
        values = [row[0] for row in read.where(f"`{name}` IS NOT NULL").select(name).collect()]
        for value in values:
            literal = f"'{value}'" if isinstance(value, str | date) else str(value)
            assert read.where(f"`{name}` = {literal}").count() == 1, (name, value)
