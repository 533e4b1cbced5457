"""Few rows in memory: written without a start of DuckDB, with the same table as if DuckDB had written them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from duckrun import DuckrunError, SchemaMismatch, Session, WriteSpec
from duckrun.engines.duckdb.writers import columnar, few_rows
from duckrun.sql.typed import arrow_type, plain_type
from tests.engines.writers.test_columnar import stats_of, stored, writer, writer_of
from tests.lake import rows_of


@pytest.fixture(autouse=True)
def _arrow_writes_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "_FEWEST", 20_000)
    monkeypatch.setattr(columnar, "_MOST_BYTES", 16 * 1024**2)


def opens_duckdb(session: Session) -> bool:
    return session.engine.instance._opened is not None  # type: ignore[attr-defined]


# -- types

WHOLE = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
TYPES = [
    *WHOLE, *TEXTS, pa.bool_(), pa.float32(), pa.float64(), pa.binary(), pa.large_binary(), pa.binary_view(), pa.date32(),
    pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "+05:30"),
    *(pa.decimal128(digits, scale) for digits in (1, 4, 9, 18, 19, 38) for scale in (0, 1, digits)),
    *(pa.dictionary(index, text) for index in (pa.int8(), pa.uint32()) for text in TEXTS),
]  # fmt: skip
OTHERS = [
    pa.null(), pa.date64(), pa.time64("us"), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("ns"), pa.float16(),
    pa.timestamp("ms", "UTC"), pa.list_(pa.int64()), pa.binary(16), pa.uuid(), pa.bool8(), pa.decimal256(10, 2),
    pa.decimal128(5, -2), pa.decimal128(2, 5), pa.dictionary(pa.int8(), pa.int64()), pa.struct([("x", pa.int64())]),
]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_plain_types_are_those_that_duckdb_gives_and_returns(kind: pa.DataType) -> None:
    with duckdb.connect() as plain:
        rows = plain.from_arrow(pa.table({"v": pa.nulls(1, kind)}))
        name = plain_type(kind)
        assert [str(duckdb.type(name or ""))] == [str(each) for each in rows.types]
        returned = rows.to_arrow_table().schema.field("v").type
    back = arrow_type(str(rows.types[0]))
    if kind in WHOLE[4:]:
        assert back is None
    else:
        assert back == (pa.timestamp("us", "UTC") if getattr(kind, "tz", None) else returned)


@pytest.mark.parametrize("kind", OTHERS, ids=str)
def test_other_types_are_left_to_duckdb(kind: pa.DataType) -> None:
    assert plain_type(kind) is None


# -- values

FAR = [date(1, 1, 1), None, date(9999, 12, 31)]
INSTANTS = [datetime(1, 1, 1, tzinfo=UTC), None, datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)]
VALUES: dict[str, Any] = {
    **{f"{kind} {name}": pa.array(values, kind)
       for kind, low, high in [(pa.int8(), -128, 127), (pa.int16(), -(2**15), 2**15 - 1), (pa.int32(), -(2**31), 2**31 - 1),
                               (pa.int64(), -(2**63), 2**63 - 1), (pa.uint8(), 0, 255), (pa.uint32(), 0, 2**32 - 1)]
       for name, values in [("bounds", [low, None, high]), ("nothing", [None] * 3)]},
    "zeros": pa.array([0.0, -0.0, 0.0]),
    "negative zero": pa.array([-0.0, None, -0.0]),
    "infinite": pa.array([math.inf, -math.inf, None]),
    "smallest": pa.array([5e-324, -5e-324, 1.7976931348623157e308]),
    "half": pa.array([0.1, None, -3.4e38], pa.float32()),
    "no number": pa.nulls(3, pa.float64()),
    "yes": pa.array([True, None, True]),
    "day": pa.array(FAR),
    "naive": pa.array([each and each.replace(tzinfo=None) for each in INSTANTS], pa.timestamp("us")),
    "instant": pa.array(INSTANTS, pa.timestamp("us", "UTC")),
    "berlin": pa.array([datetime(2024, 3, 31, 0, 59, tzinfo=UTC), None, datetime(2024, 10, 27, 1, tzinfo=UTC)], pa.timestamp("us", "Europe/Berlin")),
    "offset": pa.array([0, None, 1], pa.timestamp("us", "-11:45")),
    "milliseconds": pa.array([-1, None, 1], pa.timestamp("ms")),
    "milliseconds of a zone": pa.array([-1, None, 1], pa.timestamp("ms", "Europe/Berlin")),
    "whole nanoseconds": pa.array([-1000, None, 1000], pa.timestamp("ns")),
    "whole nanoseconds of a zone": pa.array([-1000, None, 1000], pa.timestamp("ns", "UTC")),
    "digit": pa.array([Decimal("0.9"), None, Decimal("-0.9")], pa.decimal128(1, 1)),
    "money": pa.array([Decimal("-99999999.99"), None, Decimal("99999999.99")], pa.decimal128(10, 2)),
    "most digits": pa.array([Decimal("9" * 38), None, Decimal("-" + "9" * 38)], pa.decimal128(38, 0)),
    "text": pa.array(["", None, "é" * 40]),
    "four bytes": pa.array(["a" + "\U0010ffff" * 40, None, "z\x00"], pa.large_string()),
    "kilobytes": pa.array(["a" * 4000, None, "z" * 4000]),
    "views": pa.array(["", None, "longer than twelve bytes"], pa.string_view()),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([1, None, 2], pa.int8()), ["unused, first", "b", "a", "unused"]),
    "null in a dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 1], pa.int8()), pa.array(["b", None])),
    "bytes": pa.array([b"", None, b"\xff\x00"]),
    "views of bytes": pa.array([b"", None, b"\xff\x00" * 20], pa.binary_view()),
    "slice": pa.array([0, 1, None, 3, 9])[1:4],
    "slice of texts": pa.array(["z", "b", None, "a", "z"])[1:4],
    "chunks": pa.chunked_array([[3], [], [None, 1]], pa.int64()),
    "chunks of dictionaries": pa.chunked_array([pa.array(["b"]).dictionary_encode(), pa.array([None, "a"]).dictionary_encode()]),
}  # fmt: skip
NAMES = ["a b", "a.b", 'a"b', "a`b", "ü", "*", "^x$", "select", "a,b;{}()=", "__duckrun_x", "X" * 200]


def both(session: Session, value: Any, **spec: Any) -> str:
    """Write the same rows by Arrow and DuckDB, and return the program that wrote those of Arrow."""
    for by in ("arrow", "duckdb"):
        with writer(by):
            session.execute(by, WriteSpec("overwrite", **spec), value)
    return writer_of(session, "arrow")


def compare(session: Session) -> None:
    """Compare the tables of both(): rows by DuckDB and deltalake, schemas, and statistics."""
    assert stored(session, "arrow") == stored(session, "duckdb")
    assert session.snapshot("arrow").schema == session.snapshot("duckdb").schema
    ours, theirs = (DeltaTable(session.ref(name).location) for name in ("arrow", "duckdb"))
    assert ours.schema() == theirs.schema()
    assert rows_of(ours.to_pyarrow_table()) == rows_of(theirs.to_pyarrow_table())
    one, other = stats_of(session, "arrow"), stats_of(session, "duckdb")
    if "half" in other["minValues"]:  # the exact value of a 32-bit number, where DuckDB writes its shortest text
        for part in ("minValues", "maxValues"):
            one[part]["half"] = float(str(np.float32(one[part]["half"])))
    assert one == other


@pytest.mark.parametrize("name", VALUES)
def test_arrow_and_duckdb_store_the_same(duck: Session, name: str) -> None:
    column = "half" if name == "half" else "v"
    assert both(duck, pa.table({"id": [1, 2, 3], column: VALUES[name]})) == "arrow"
    compare(duck)


@pytest.mark.parametrize("name", NAMES)
def test_columns_of_any_name_keep_it(duck: Session, name: str) -> None:
    properties = {"delta.columnMapping.mode": "name"} if set(name) & set(' ,;{}()="') else {}
    by = both(duck, pa.table({name: [2, None], "id": [1, 2]}), table_properties=properties)
    assert by == ("duckdb" if properties else "arrow")
    compare_rows = [rows_of(duck.sql(f"FROM {each}")) for each in ("arrow", "duckdb")]
    assert compare_rows[0] == compare_rows[1] == [(2, 1), (None, 2)]
    assert duck.snapshot("arrow").schema.names == [name, "id"]


@pytest.mark.parametrize("name", ["nan", "nan beside null", "beyond a footer"])
def test_duckdb_writes_values_whose_bounds_arrow_would_leave_out(duck: Session, name: str) -> None:
    values = {
        "nan": pa.array([1.0, math.nan, 2.0]),
        "nan beside null": pa.array([math.nan, None, 2.0], pa.float32()),
        "beyond a footer": pa.array(["a", None, "b" * 5000]),
    }
    assert both(duck, pa.table({"id": [1, 2, 3], "v": values[name]})) == "duckdb"
    compare(duck)


def test_nan_below_null_is_no_value(duck: Session) -> None:
    """pandas puts NaN where its mask says NULL."""
    numbers = pa.Array.from_buffers(pa.float64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([1.0, math.nan]))])
    assert both(duck, pa.table({"v": numbers})) == "arrow"
    compare(duck)


@pytest.mark.parametrize("partition_by", [(), ("k",)])
def test_a_table_without_rows_has_its_columns(duck: Session, partition_by: tuple[str, ...]) -> None:
    empty = pa.table({"k": pa.array([], pa.string()), "v": pa.array([], pa.float64())})
    duck.execute("t", WriteSpec("overwrite", partition_by=partition_by), empty)
    assert not opens_duckdb(duck)
    assert duck.snapshot("t").schema == pa.schema([("k", pa.string()), ("v", pa.float64())])
    assert not duck.snapshot("t").files()
    duck.execute("t", WriteSpec("append"), empty)
    assert stored(duck, "t") == []


# -- DuckDB


KINDS: dict[str, Callable[[pa.Table], Any]] = {
    "pyarrow": lambda rows: rows,
    "batch": lambda rows: rows.to_batches()[0],
    "pandas": lambda rows: rows.to_pandas(),
    "polars": pl.from_arrow,
    "categories": lambda rows: pl.DataFrame(rows).with_columns(pl.col("k").cast(pl.Categorical)),
}
ROWS = pa.table({"id": [1, 2, 3], "k": ["a", "b", "a"], "x": [0.5, None, 1.5], "day": [date(2024, 1, 1)] * 3})


@pytest.mark.parametrize("partition_by", [(), ("k",), ("k", "day")], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_plain_rows_are_written_without_duckdb(duck: Session, kind: str, partition_by: tuple[str, ...]) -> None:
    for _ in range(2):
        commit = duck.execute("t", WriteSpec("append", partition_by=partition_by), KINDS[kind](ROWS))
        assert commit.rows_inserted == 3
    if kind != "pandas":  # its days are objects, and its numbers have NaN for NULL
        duck.execute("t", WriteSpec("overwrite"), KINDS[kind](ROWS))
    assert not opens_duckdb(duck)
    read = DeltaTable(duck.ref("t").location).to_pyarrow_table().select(["id", "k", "day"])
    assert rows_of(read) == rows_of(duck.sql("SELECT id, k, day FROM t")) != []


@pytest.mark.parametrize(
    "spec", [WriteSpec("append", sort_by=("id",)), WriteSpec("replace", predicate="id < 9")], ids=lambda s: s.mode
)
def test_duckdb_starts_once_something_needs_it(duck: Session, spec: WriteSpec) -> None:
    duck.execute("t", WriteSpec("append"), ROWS)
    assert not opens_duckdb(duck)
    duck.execute("t", spec, ROWS)
    assert opens_duckdb(duck)
    assert duck.table("t").toDF().count() == (3 if spec.mode == "replace" else 6)


def test_rows_are_staged_and_committed_without_duckdb(duck: Session) -> None:
    for _ in range(2):
        duck.commit_staged("main.t", duck.stage("main.t", ROWS), WriteSpec("append"))
    assert not opens_duckdb(duck)
    assert rows_of(duck.sql("SELECT id FROM t")) == [(1,), (1,), (2,), (2,), (3,), (3,)]


def test_a_failed_and_a_repeated_write_leave_no_transaction_open(duck: Session) -> None:
    duck.execute("t", WriteSpec("append"), pa.table({"id": [1]}))
    with pytest.raises(SchemaMismatch):
        duck.execute("t", WriteSpec("append"), pa.table({"id": ["no number"]}))
    duck.execute("t", WriteSpec("append"), pa.table({"id": [2]}))
    duck.sql("ALTER TABLE t ADD CONSTRAINT few CHECK (id < 9)")
    with pytest.raises(SchemaMismatch, match="few"):
        duck.execute("t", WriteSpec("append"), pa.table({"id": [9]}))
    duck.execute("t", WriteSpec("append"), pa.table({"id": [3]}))
    assert stored(duck, "t") == [(1,), (2,), (3,)]


# -- errors and races


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (pa.date32(), [10**7]), (pa.date32(), [-(10**6)]), (pa.timestamp("us"), [2**62]), (pa.timestamp("us"), [-(2**62)]),
        (pa.timestamp("us", "UTC"), [253_402_300_800 * 10**6]), (pa.timestamp("us", "UTC"), [-62_135_596_800 * 10**6 - 1]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("partition_by", [(), ("v",)])
def test_a_year_that_readers_lack_gives_duckdbs_error(
    duck: Session, kind: pa.DataType, numbers: list[int], partition_by: tuple[str, ...]
) -> None:
    rows = pa.table({"id": [1], "v": pa.array(numbers, pa.int32() if kind == pa.date32() else pa.int64()).view(kind)})
    errors = []
    for by in ("arrow", "duckdb"):
        with writer(by), pytest.raises(DuckrunError) as raised:
            duck.execute("t", WriteSpec("overwrite", partition_by=partition_by), rows)
        errors.append(str(raised.value))
        assert not Path(duck.ref("t").location).exists()
    assert errors[0] == errors[1]
    assert "column v" in errors[0]


def test_a_full_disk_leaves_neither_file_nor_folder(duck: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(rows: pa.Table, file: Path, codec: str) -> None:
        file.write_bytes(b"PAR1")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(columnar, "write_table", full)
    with pytest.raises(DuckrunError, match="disk is full"):
        duck.execute("t", WriteSpec("overwrite"), ROWS)
    assert not Path(duck.ref("t").location).exists()


def test_duckdb_writes_with_a_pyarrow_whose_writer_takes_other_options(
    duck: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(file: str, schema: pa.Schema) -> None:
        raise AssertionError("called with options")

    monkeypatch.setattr(few_rows._parquet, "ParquetWriter", other, raising=False)
    duck.execute("t", WriteSpec("overwrite"), ROWS)
    assert writer_of(duck, "t") == "duckdb"


def test_numbers_that_change_meanwhile_are_within_the_bounds_of_the_file(duck: Session) -> None:
    """A view of numpy's memory, which another thread fills with NaN and numbers in turn."""
    numbers = np.zeros(10_000)
    rows = pa.table({"x": pa.Array.from_buffers(pa.float64(), len(numbers), [None, pa.py_buffer(numbers)])})
    stopped = threading.Event()

    def change() -> None:
        value = 0
        while not stopped.is_set():
            value += 1
            numbers[:] = math.nan if value % 2 else value

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(30):
            duck.execute("t", WriteSpec("overwrite"), rows)
            (file,) = duck.snapshot("t").files()
            values = pa.parquet.read_table(Path(duck.ref("t").location, file.path)).column("x").to_numpy()
            stats = stats_of(duck, "t")
            if "x" in stats["minValues"]:
                assert not np.isnan(values).any()
                assert stats["minValues"]["x"] <= values.min() <= values.max() <= stats["maxValues"]["x"]
    finally:
        stopped.set()
        thread.join()
