"""What frames of every library hold beside plain columns: an index, twins, columns of NULL alone, values of no one type."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import duckrun
from duckrun import MergeSpec, SchemaMismatch, Session, WriteSpec
from duckrun.values.rows import DeleteInsertSpec
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats(10)

LIBRARIES = ("arrow", "stream", "pandas", "polars", "lazy", "relation", "sql", "native")


def framed(session: Session, library: str, names: tuple[str, str]) -> Any:
    """A row of two columns, 1 and 2, as a frame of a library."""
    table = pa.table([pa.array([1]), pa.array([2])], names=list(names))
    query = "select " + ", ".join(f'{n} as "{name}"' for n, name in enumerate(names, 1))
    match library:
        case "arrow":
            return table
        case "stream":
            return table.to_reader()
        case "pandas":
            return pd.DataFrame([[1, 2]], columns=list(names))
        case "polars":
            return pl.DataFrame({names[0]: [1], names[1]: [2]})
        case "lazy":
            return pl.LazyFrame({names[0]: [1], names[1]: [2]})
        case "relation":
            return duckdb.connect().sql(query)
        case "sql":
            return duckrun.SQL(query)
        case _:
            return session.sql(query, dialect="duckdb").native


@pytest.mark.parametrize("mode", ["error", "append", "merge"])
def test_two_columns_of_one_name_are_refused_by_name(session: Session, mode: str) -> None:
    spec: Any = {"error": WriteSpec("error"), "append": WriteSpec("append"), "merge": MergeSpec(("x",))}[mode]
    if mode != "error":
        session.execute("t", WriteSpec("error"), pa.table({"x": [0]}))
    for library in LIBRARIES:
        for names in [("x", "X"), ("x", "x")]:
            if library in ("polars", "lazy") and names[0] == names[1]:
                continue  # polars itself has no such frame
            if library == "relation" and session.engine_name == "spark":
                continue  # refused as a value
            value = framed(session, library, names)
            with pytest.raises(
                SchemaMismatch, match=r"main\.t.*('x' and 'X' differ in case only|two columns have the name 'x')"
            ):
                session.execute("t", spec, value)
    assert session.lake.exists(session.ref("t")) == (mode != "error")
    assert mode == "error" or session.snapshot("t").version == nth(0)


def test_a_frame_with_twins_gets_no_name_to_be_read_by(duck: Session) -> None:
    with pytest.raises(SchemaMismatch, match="'x' and 'X' differ in case only"):
        duck.register("given", pa.table({"x": [1], "X": [2]}))


def test_collected_rows_have_all_their_values(session: Session) -> None:
    frame = session.sql("select 1 as x, 2 as x, 3 as x_1")
    assert frame.collect() == [{"x": 1, "x_2": 2, "x_1": 3}]
    shown = frame.pl()
    assert isinstance(shown, pl.DataFrame)
    assert shown.rows() == [(1, 2, 3)]
    assert frame.toArrow().column_names == ["x", "x", "x_1"]


TYPED = pa.table(
    {
        "id": [1],
        "s": ["a"],
        "d": [date(2020, 1, 1)],
        "b": [b"x"],
        "l": pa.array([["a"]], pa.list_(pa.string())),
        "r": pa.array([{"a": date(2020, 1, 1), "n": 1}], pa.struct([("a", pa.date32()), ("n", pa.int64())])),
    }
)
NULLS = pa.table(
    {
        "id": [2],
        "s": pa.nulls(1),
        "d": pa.nulls(1),
        "b": pa.nulls(1),
        "l": pa.array([[None]], pa.list_(pa.null())),
        "r": pa.array([{"a": None, "n": 2}], pa.struct([("a", pa.null()), ("n", pa.int64())])),
    }
)
READ_BACK = (2, None, None, None, [None], {"a": None, "n": 2})
UNTYPED: dict[str, Any] = {
    "arrow": lambda: NULLS,
    "stream": lambda: NULLS.to_reader(),
    "polars": lambda: pl.from_arrow(NULLS),
    "lazy": lambda: pl.from_arrow(NULLS).lazy(),  # type: ignore[union-attr]
    "pandas": lambda: NULLS.to_pandas(),
    "relation": lambda: duckdb.sql(
        "select 2::bigint as id, null as s, null as d, null as b, [null] as l, {a: null, n: 2::bigint} as r"
    ),
    "sql": lambda: duckrun.SQL(
        "select 2::bigint as id, null as s, null as d, null as b, [null] as l, {a: null, n: 2::bigint} as r"
    ),
}


def specs() -> dict[str, Any]:
    return {
        "append": WriteSpec("append"),
        "new columns": WriteSpec("append", schema_mode="append_new_columns"),
        "overwrite": WriteSpec("overwrite"),
        "replace": WriteSpec("replace", predicate="id = 2"),
        "merge": MergeSpec(("id",)),
        "delete+insert": DeleteInsertSpec(("id",)),
    }


@pytest.mark.parametrize("library", UNTYPED)
def test_a_column_of_nothing_but_null_takes_the_type_of_the_table(duck: Session, library: str) -> None:
    schema = TYPED.schema
    for number, (mode, spec) in enumerate(specs().items()):
        duck.execute(f"t{number}", WriteSpec("error"), TYPED)
        duck.execute(f"t{number}", spec, UNTYPED[library]())
        found = duck.table(f"t{number}").toDF().toArrow()
        assert [str(f.type).replace("<l:", "<element:") for f in found.schema] == [
            str(f.type).replace("<item:", "<element:") for f in schema
        ], mode
        assert rows_of(found)[-1] == READ_BACK, mode


@pytest.mark.spark
def test_a_column_of_nothing_but_null_takes_the_type_of_the_table_on_spark(root: Any, spark: Any) -> None:
    with duckrun.connect(root, engine="spark", spark=spark) as session:
        session.execute("t", WriteSpec("error"), TYPED)
        before = session.snapshot("t").schema
        for spec in specs().values():
            session.execute("t", spec, NULLS)
            assert rows_of(session.table("t").toDF())[-1] == READ_BACK
        for library in ("polars", "pandas"):
            session.execute("t", WriteSpec("append"), UNTYPED[library]())
        native = spark.sql(
            "select 3 as id, null as s, null as d, null as b, array(null) as l, named_struct('a', null, 'n', 2L) as r"
        )
        session.execute("t", MergeSpec(("id",)), native)
        assert session.snapshot("t").schema == before


def test_a_new_column_of_nothing_but_null_is_refused_until_it_is_cast(session: Session) -> None:
    values = {
        "x": pa.nulls(1),
        "l": pa.array([[None]], pa.list_(pa.null())),
        "r": pa.array([{"a": None}], pa.struct([("a", pa.null())])),
        "m": pa.array([[("k", None)]], pa.map_(pa.string(), pa.null())),
    }
    session.execute("there", WriteSpec("error"), pa.table({"id": [1]}))
    for name, nulls in values.items():
        given = pa.table({"id": [1], name: nulls})
        for value in (given, given.to_pandas(), pl.from_arrow(given)):
            if name == "m" and not isinstance(value, pa.Table):
                continue  # pandas and polars have lists of pairs
            with pytest.raises(SchemaMismatch, match=rf"main\.t.*column '{name}.*nothing but NULL.*cast it"):
                session.execute("t", WriteSpec("error"), value)
            with pytest.raises(SchemaMismatch, match=rf"main\.there.*column '{name}.*nothing but NULL.*cast it"):
                session.execute("there", WriteSpec("append", schema_mode="append_new_columns"), value)
    assert not session.lake.exists(session.ref("t"))
    assert session.snapshot("there").version == nth(0)


@pytest.mark.spark
@pytest.mark.only_format("delta", "a table of Spark's own types")
def test_a_vector_of_spark_ml_is_refused_until_it_is_an_array(spark: Any, tmp_path: Path) -> None:
    """Delta for Spark would write a type that no other reader opens."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.ml.linalg import Vectors

    features = spark.createDataFrame([(1, Vectors.dense([0.5, 2.0]))], ["id", "features"])
    nested = features.selectExpr("id", "array(features) as features")
    with duckrun.connect(tmp_path, engine="spark", spark=spark) as session:
        session.execute("there", WriteSpec("error"), spark.range(1))
        for frame in (features, nested):
            told = r"column 'features' has a user-defined type.*vector_to_array\(\)"
            for mode in ("error", "overwrite"):
                with pytest.raises(SchemaMismatch, match=told):
                    session.execute("t", WriteSpec(mode), frame)
            with pytest.raises(SchemaMismatch, match=told):
                session.execute("there", WriteSpec("append", schema_mode="append_new_columns"), frame)
        assert not session.lake.exists(session.ref("t")) and session.snapshot("there").version == 0
        session.execute("t", WriteSpec("error"), features.withColumn("features", vector_to_array("features")))
    with duckrun.connect(tmp_path) as session:
        assert rows_of(session.sql("from t")) == [(1, [0.5, 2.0])]


def test_null_in_sql_has_the_type_that_duckdb_gives_it(duck: Session) -> None:
    duck.execute("t", WriteSpec("error"), duckrun.SQL("select 1 as id, null as x"))
    assert duck.snapshot("t").schema.field("x").type == pa.int32()


INDEXED: dict[str, tuple[pd.DataFrame, dict[str, list[Any]]]] = {
    "named": (pd.DataFrame({"x": [1, 2]}, index=pd.Index(["a", "b"], name="key")), {"x": [1, 2], "key": ["a", "b"]}),
    "without a name": (pd.DataFrame({"x": [1, 2, 3, 4]}).query("x != 3"), {"x": [1, 2, 4], "__index_level_0__": [0, 1, 3]}),
    "a range with a name": (pd.DataFrame({"x": [1, 2]}).rename_axis("row"), {"x": [1, 2], "row": [0, 1]}),
    "a range": (pd.DataFrame({"x": [1, 2]}), {"x": [1, 2]}),
    "a part of a range": (pd.DataFrame({"x": [0, 1, 2]})[1:], {"x": [1, 2]}),
    "levels": (
        pd.DataFrame({"x": [1, 2]}, index=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["k", None])),
        {"x": [1, 2], "k": ["a", "b"], "__index_level_1__": [1, 2]},
    ),
    "times": (
        pd.DataFrame({"x": [1]}, index=pd.DatetimeIndex(["2020-01-01"], name="at").as_unit("us")),
        {"x": [1], "at": [pd.Timestamp("2020-01-01")]},
    ),
}  # fmt: skip


def test_the_index_of_a_pandas_frame_is_kept_as_to_parquet_keeps_it(session: Session) -> None:
    for number, (frame, expected) in enumerate(INDEXED.values()):
        session.execute(f"t{number}", WriteSpec("error"), frame)
        assert session.table(f"t{number}").toDF().toArrow().sort_by("x").to_pydict() == expected


def test_an_index_that_the_table_has_not_is_refused_with_the_way_out(session: Session) -> None:
    session.execute("t", WriteSpec("error"), pd.DataFrame({"x": [1]}))
    with pytest.raises(SchemaMismatch, match=r"main\.t.*__index_level_0__.*reset_index\(drop=True\)"):
        session.execute("t", WriteSpec("append"), pd.DataFrame({"x": [1, 2]}, index=[7, 9]))


DAY, NIGHT = date(2020, 1, 1), datetime(2020, 1, 1, 23)
PERIODS = pa.array(pd.period_range("2020", periods=2, freq="Y"))
MISFITS: dict[str, tuple[Any, str]] = {
    "period": (pd.DataFrame({"p": pd.period_range("2020-01", periods=2, freq="M")}), r"'p'.*period.*to_timestamp\(\)"),
    "period as index": (pd.DataFrame({"x": [1]}, index=pd.period_range("2020", periods=1, freq="Y", name="p")), r"'p'.*period"),
    "interval": (pd.DataFrame({"i": pd.interval_range(0, 2)}), r"'i'.*interval.*astype"),
    "levels of columns": (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])), r"2 levels.*\('a', 'b'\).*join"),
    "mixed": (pd.DataFrame({"v": [None, 1, 2, "a", b"b"]}), r"'v'.*int \(first in row 1\) and str \(first in row 3\)"),
    "numbers that go together, and a text": (pd.DataFrame({"v": pd.Series([1, 2.5, "a"], dtype=object)}), r"'v'.*(int|float).*and str \(first in row 2\)"),
    "mixed in lists": (pd.DataFrame({"v": [[1], ["a"]]}), r"'v'.*pandas"),
    "mixed index": (pd.DataFrame({"x": [1, 2]}, index=pd.Index([1, "a"], name="k")), r"'k'.*int.*row 0.*str.*row 1"),
    "objects": (pd.DataFrame({"o": [object()]}), r"'o'.*object"),
    "large integers": (pd.DataFrame({"n": pd.Series([2**70], dtype=object)}), r"'n'"),
    "complex": (pd.DataFrame({"c": [1j]}), r"'c'"),
    "sparse": (pd.DataFrame({"s": pd.arrays.SparseArray([0, 1])}), r"s\b"),
    "periods in a category": (pd.DataFrame({"p": pd.Categorical(pd.period_range("2020", periods=2, freq="Y"))}), r"'p'.*period"),
    "periods of Arrow": (pa.table({"p": PERIODS}), r"'p'.*period"),
    "periods of Arrow in lists": (pa.table({"p": pa.ListArray.from_arrays(pa.array([0, 2]), PERIODS)}), r"'p'.*period"),
    "intervals of cut()": (pd.DataFrame({"i": pd.cut([1, 5], 2)}), r"'i'.*interval.*astype"),
    "dates and times": (pd.DataFrame({"d": [DAY, NIGHT]}), r"'d'.*date \(first in row 0\) and datetime \(first in row 1\)"),
    "times and dates": (pd.DataFrame({"d": [NIGHT, DAY]}), r"'d'.*datetime \(first in row 0\) and date \(first in row 1\)"),
    "dates and times in lists": (pd.DataFrame({"d": [[DAY], None, [NIGHT]]}), r"'d'.*date \(.*row 0\) and datetime \(.*row 2\)"),
    "dates and times in structs": (pd.DataFrame({"d": [{"x": DAY}, {"x": NIGHT}]}), r"'d'.*date \(.*row 0\) and datetime"),
    "dates and times in a category": (pd.DataFrame({"d": pd.Categorical([DAY, NIGHT])}), r"'d'.*date \(.*row 0\) and datetime"),
    "dates and times in an index": (pd.DataFrame({"x": [1, 2]}, index=pd.Index([DAY, NIGHT], name="d")), r"'d'.*date .*and datetime"),
    "dates and numbers": (pd.DataFrame({"d": pd.Series([DAY, 5], dtype=object)}), r"'d'.*date .*and int"),
    "times with and without a zone": (pd.DataFrame({"d": pd.Series([NIGHT, NIGHT.replace(tzinfo=UTC)], dtype=object)}), r"'d'.*datetime .*and datetime with a time zone"),
    "nanoseconds": (pd.DataFrame({"d": pd.Series([None, pd.Timestamp(1)], dtype=object)}), r"'d'.*nanoseconds in row 1"),
    "no text": (pd.DataFrame({"s": pd.Series(["\ud800"], dtype=object)}), r"'s'.*surrogates"),
    "struct without fields": (pa.table({"e": pa.array([[{}]])}), r"'e'.*struct without fields"),
    "field without a name": (pa.table({"e": pa.array([{"": 1}])}), r"'e'.*empty name"),
    "fields of one name": (pa.table({"e": pa.StructArray.from_arrays([pa.array([1])] * 2, ["x", "x"])}), r"'e'.*one name"),
    "union": (pa.table({"u": pa.nulls(1, pa.dense_union([pa.field("x", pa.int64())]))}), r"'u'.*union"),
    "one text": (pd.DataFrame([[1, 2]], columns=pd.Index([1, "1"], dtype=object)), r"two columns have the name '1'"),
}  # fmt: skip


def test_what_no_column_can_be_is_refused_by_its_name(session: Session) -> None:
    for frame, words in MISFITS.values():
        with pytest.raises(SchemaMismatch, match=rf"(?s)main\.t.*{words}"):
            session.execute("t", WriteSpec("error"), frame)
    assert not session.lake.exists(session.ref("t"))


INDESCRIBABLE: dict[str, pl.Series] = {
    "Object": pl.Series("v", [object()], dtype=pl.Object),
    "Int128": pl.Series("v", [2**100], dtype=pl.Int128),
    r"List\(Int128\)": pl.Series("v", [[2**100]], dtype=pl.List(pl.Int128)),
}


@pytest.mark.parametrize("kind", INDESCRIBABLE)
def test_a_column_of_polars_without_an_arrow_type_is_refused_by_name(duck: Session, kind: str) -> None:
    """Of objects, polars would give the addresses in memory."""
    frame = pl.DataFrame({"id": [1]}).with_columns(INDESCRIBABLE[kind])
    for value in (frame, frame.lazy()):
        with pytest.raises(SchemaMismatch, match=f"column 'v' has the type {kind} of polars.*Nothing was written"):
            duck.execute("t", WriteSpec("error"), value)
    with pytest.raises(SchemaMismatch, match="column 'v' has the type"):
        duck.register("given", frame)
    assert duck.tables() == []


@pytest.mark.parametrize(
    "value",
    [pd.Series([1]), pl.Series([1]), pa.array([1]), pa.chunked_array([[1]]), [{"id": 1}]],
    ids=["pandas", "polars", "array", "chunks", "list"],
)
def test_a_single_column_is_no_table(duck: Session, value: Any) -> None:
    with pytest.raises(duckrun.InvalidConfig, match=r"cannot be written as a table|is not a table"):
        duck.execute("t", WriteSpec("error"), value)
    with pytest.raises(duckrun.InvalidConfig, match="cannot be written as a table"):
        duck.register("given", value)


def test_a_column_without_a_name_is_refused(duck: Session) -> None:
    """As polars names the index in a CSV file of pandas."""
    for library in ("arrow", "stream", "pandas", "polars", "lazy"):
        with pytest.raises(SchemaMismatch, match="a column has an empty name"):
            duck.execute("t", WriteSpec("error"), framed(duck, library, ("", "x")))
