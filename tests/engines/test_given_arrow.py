"""A query of given Arrow data finds the rows that a native table of DuckDB has: its filters are not Arrow's."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import duckrun
from duckrun import MergeClause, MergeSpec, SchemaMismatch, Session, WriteSpec

NAN = math.nan
INSTANT = dt.datetime(2024, 3, 1, 12)
VALUES: dict[str, pa.Array] = {
    "double": pa.array([1.0, NAN, None, -1.0]),
    "float": pa.array([0.1, NAN, None, -1.0], pa.float32()),
    "double in a struct": pa.array([{"y": 1.0}, {"y": NAN}, None, {"y": -1.0}]),
    "double of a dictionary": pa.array([1.0, NAN, None, -1.0]).dictionary_encode(),
    "string": pa.array(["a", "b", None, ""]),
    "string view": pa.array(["a", "b", None, ""], pa.string_view()),
    "string view in a struct": pa.array([{"y": "a"}, {"y": "b"}, None, {"y": ""}], pa.struct([("y", pa.string_view())])),
    "string of a dictionary": pa.array(["a", "b", None, ""]).dictionary_encode(),
    "string of run ends": pa.RunEndEncodedArray.from_arrays([1, 2, 3, 4], pa.array(["a", "b", None, ""])),
    "binary view": pa.array([b"a", b"b", None, b""], pa.binary_view()),
    "uuid": pa.array([b"1" * 16, b"2" * 16, None, b"0" * 16], pa.uuid()),
    "json": pa.array(["1", "2", None, "0"], pa.json_()),
    "bool": pa.array([True, True, None, False]),
    "bool of a byte": pa.array([1, 1, None, 0], pa.bool8()),
    "time": pa.array([dt.time(1), dt.time(2), None, dt.time(0)], pa.time64("ns")),
    "decimal": pa.array([Decimal("1.10"), Decimal("2.20"), None, Decimal("-1.10")]),
    "instant": pa.array([INSTANT, INSTANT + dt.timedelta(1), None, INSTANT - dt.timedelta(1)], pa.timestamp("s", "UTC")),
    "unsigned": pa.array([2**63, 2**63 + 1, None, 0], pa.uint64()),
}  # fmt: skip
GIVEN: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda rows: rows,
    "stream": lambda rows: rows.to_reader(max_chunksize=2),
    "dataset": ds.dataset,
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with duckrun.connect(tmp_path_factory.mktemp("lake")) as opened:
        yield opened


@pytest.mark.parametrize("operator", ["=", "<>", "<", ">=", "is distinct from", "is not distinct from"])
@pytest.mark.parametrize("name", VALUES)
def test_a_query_of_registered_values_finds_what_a_native_table_has(session: Session, name: str, operator: str) -> None:
    rows = pa.table({"i": range(4), "v": VALUES[name]})
    session.register("given", rows)
    with duckdb.connect() as plain:
        plain.register("arrow", rows)
        plain.execute("SET TimeZone = 'UTC'; CREATE TABLE given AS FROM arrow")
        value = "v.y" if "struct" in name else "v"
        kind, low = plain.execute(f"SELECT typeof({value}), {value}::VARCHAR FROM given WHERE i = 0").fetchone()  # type: ignore[misc]
        constant, computed = f"CAST('{low}' AS {kind})", f"(SELECT {value} FROM given WHERE i = 0)"
        for other in (constant, computed):
            query = f"SELECT i FROM given WHERE {value} {operator} {other} ORDER BY i"
            expected = [i for (i,) in plain.execute(query).fetchall()]
            assert session.sql(query).toArrow()["i"].to_pylist() == expected, query
            assert expected or "<" in operator


@pytest.mark.parametrize("form", GIVEN)
def test_a_condition_of_a_merge_takes_nan_for_the_highest_number(tmp_path: Path, form: str) -> None:
    rows = pa.table({"x": [1.0, NAN, -1.0], "n": [10, 20, 30]})
    with duckrun.connect(tmp_path / "lake") as session:
        session.execute("t", WriteSpec("error"), pa.table({"x": [1.0, NAN, -1.0], "n": [1, 2, 3]}))
        spec = MergeSpec(("x",), (MergeClause("matched_update"),), on="target.x >= 0 and source.x > 0")
        session.execute("t", spec, GIVEN[form](rows))
        assert sorted(session.sql("select n from t").toArrow()["n"].to_pylist()) == [3, 10, 20]


WORDS = pa.dictionary(pa.int8(), pa.string())


@pytest.mark.parametrize(
    "kind",
    [
        pa.float16(),
        pa.decimal128(5, -2),
        pa.list_(pa.decimal128(5, -2)),
        pa.dictionary(pa.int8(), WORDS),
        pa.list_(pa.dictionary(pa.int8(), WORDS)),
        pa.dictionary(pa.int8(), pa.list_(WORDS)),
        pa.dictionary(pa.int8(), pa.struct([("x", pa.int64())])),
        pa.dictionary(pa.int8(), pa.list_(pa.int64(), 2)),
        pa.run_end_encoded(pa.int32(), WORDS),
        pa.run_end_encoded(pa.int32(), pa.list_(pa.int64())),
        pa.dense_union([pa.field("x", pa.int64())]),
    ],
    ids=str,
)
def test_a_type_that_duckdb_does_not_have_names_its_column(session: Session, kind: pa.DataType) -> None:
    with pytest.raises(duckrun.SchemaMismatch, match=re.escape(f"column 'v' has the type {kind}")):
        session.register("halves", pa.table({"v": pa.nulls(1, kind)}))
        session.sql("from halves").collect()


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[1], [2]]),
        pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        pa.array([[{"x": 1}], []]),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array(["a", "b"])),
    ],
    ids=lambda values: str(values.type),
)
def test_a_dictionary_of_other_values_is_read_as_they_are(tmp_path: Path, values: pa.Array) -> None:
    encoded = pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), values)
    first, second = values.to_pylist()
    with duckrun.connect(tmp_path / "lake") as session:
        session.execute("t", WriteSpec("error"), pa.table({"i": range(3), "v": encoded}))
        assert session.sql("select v from t order by i").toArrow()["v"].to_pylist() == [second, None, first]


WRONG = pa.array([b"a", b"b\xff", b"z"]).view(pa.string())
NO_TEXT: dict[str, pa.Array] = {
    "string": WRONG,
    "large string": pa.array([b"a", b"b\xff", b"z"], pa.large_binary()).view(pa.large_string()),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), WRONG),
    "list": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), WRONG),
    "struct": pa.StructArray.from_arrays([WRONG], ["y"]),
}


@pytest.mark.parametrize(("fewest", "most"), [(1, 0), (10**9, 10**9), (10**9, -1)], ids=["polars", "arrow", "duckdb"])
@pytest.mark.parametrize("form", ["table", "stream"])
@pytest.mark.parametrize("name", NO_TEXT)
def test_bytes_that_are_no_text_are_refused_before_they_make_a_file_that_nobody_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str, fewest: int, most: int
) -> None:
    monkeypatch.setattr("duckrun.engines.duckdb.writers.columnar._FEWEST", fewest)
    monkeypatch.setattr("duckrun.engines.duckdb.writers.columnar._MOST_BYTES", most)
    with duckrun.connect(tmp_path / "lake") as session:
        rows = GIVEN[form](pa.table({"id": [1, 2, 3], "v": NO_TEXT[name]}))
        with pytest.raises(duckrun.SchemaMismatch, match=r"column 'v' holds no valid Arrow data.* Nothing was written"):
            session.execute("t", WriteSpec("overwrite"), rows)
        assert session.tables() == []
        assert not Path(session.ref("t").location).exists()


NANOSECONDS = pa.timestamp("ns", "UTC")
INSIDE: dict[str, Callable[[list[int]], pa.Array]] = {
    "instant": lambda values: pa.array(values, NANOSECONDS),
    "list": lambda values: pa.array([[each] for each in values], pa.list_(NANOSECONDS)),
    "fixed list": lambda values: pa.array([[each] for each in values], pa.list_(NANOSECONDS, 1)),
    "struct": lambda values: pa.array([{"y": each} for each in values], pa.struct([("y", NANOSECONDS)])),
    "map": lambda values: pa.array([[("k", each)] for each in values], pa.map_(pa.string(), NANOSECONDS)),
    "dictionary": lambda values: pa.array(values, NANOSECONDS).dictionary_encode(),
    "list of structs": lambda values: pa.array([[{"y": each}] for each in values], pa.list_(pa.struct([("y", NANOSECONDS)]))),
}  # fmt: skip


@pytest.mark.parametrize("form", GIVEN)
@pytest.mark.parametrize("name", INSIDE)
def test_parts_of_a_microsecond_are_refused_at_any_depth(tmp_path: Path, name: str, form: str) -> None:
    with duckrun.connect(tmp_path / "lake") as session:
        whole = pa.table({"v": INSIDE[name]([1_000, 2_000])})
        session.execute("t", WriteSpec("error"), GIVEN[form](whole))
        assert "000002+00" in session.sql("select max(v::varchar) as v from t").collect()[0]["v"]
        with pytest.raises(duckrun.SchemaMismatch, match="column 'v' has a value that Delta cannot store"):
            session.execute("t", WriteSpec("append"), GIVEN[form](pa.table({"v": INSIDE[name]([1_001])})))
        assert session.table("t").toDF().count() == 2


POINT = bytes.fromhex("0101000000000000000000f03f0000000000000040")
EXTENSIONS = {
    "geoarrow.wkb": (pa.binary(), POINT),
    "arrow.bool8": (pa.int8(), 1),
    "arrow.uuid": (pa.binary(16), bytes(range(16))),
    "arrow.json": (pa.string(), "[1]"),
    "not.known": (pa.binary(), b"\xff"),
}


@pytest.mark.formats
@pytest.mark.parametrize("rows", [1, 200_000])
@pytest.mark.parametrize("inside", [False, True], ids=["column", "struct"])
@pytest.mark.parametrize("extension", EXTENSIONS)
def test_an_extension_type_is_what_duckdb_takes_it_for_in_every_form(
    duck: Session, extension: str, inside: bool, rows: int
) -> None:
    """A table in memory, which need not go through DuckDB, and a stream, which does."""
    storage, value = EXTENSIONS[extension]
    field = pa.field("v", storage, metadata={"ARROW:extension:name": extension, "ARROW:extension:metadata": ""})
    values = pa.array([value] * rows, storage)
    if inside:
        field, values = pa.field("s", pa.struct([field])), pa.StructArray.from_arrays([values], fields=[field])
    table = pa.table([range(rows), values], schema=pa.schema([pa.field("id", pa.int64()), field]))
    outcomes = []
    for given in (table, table.to_reader()):
        name = f"main.t{len(outcomes)}"
        try:
            duck.execute(name, WriteSpec("overwrite"), given)
        except SchemaMismatch as error:
            outcomes.append(str(error).split(": ", 1)[1])
        else:
            found = f"select typeof(columns(* exclude id)) as kind, * from {name} where id < 3 order by id"
            outcomes.append(duck.sql(found).collect())
    assert outcomes[0] == outcomes[1]
