"""The golden tables of the Delta project: both engines read what plain Spark reads, and refuse the rest by name.

Every day the embedded engine counts them; the suite `differential` compares all rows with plain Spark's.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import DeleteSpec, DuckrunError, Session
from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.frame import Frame
from duckrun.sql.quoting import quote_literal
from tests.lake import rows_of

HERE = Path(__file__).parent
EXPECTED: dict[str, int | None] = json.loads((HERE / "expected.json").read_text())
READ = [name for name, rows in EXPECTED.items() if rows is not None]
REFUSED = [name for name, rows in EXPECTED.items() if rows is None]
# Their logs are whole, and their data files are not there: that is seen as the rows are fetched.
WITHOUT_FILES = ("checkpoint", "delete-re-add-same-file-different-transactions", "log-replay-special-characters-b")
# PySpark itself gives no Arrow form of the VARIANT values inside of others in it: it is counted only.
COMPARED = [name for name in READ if name != "spark-variant-checkpoint"]
MANY = 10_000


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the tables."""
    folder = tmp_path_factory.mktemp("golden")
    with tarfile.open(HERE / "tables.tar.gz") as packed:
        packed.extractall(folder, filter="data")
    return folder / "golden"


@pytest.fixture(scope="module")
def duck(tables: Path) -> Iterator[Session]:
    """A session of the embedded engine, which all tests share: no table may spoil it for the next."""
    with duckrun.connect(tables.parent / "lake") as session:
        yield session


@pytest.fixture(scope="module")
def sparks(tables: Path, spark: Any) -> Iterator[Session]:
    """A session on Spark."""
    with duckrun.connect(tables.parent / "lake", engine="spark", spark=spark) as session:
        yield session


def _load(session: Session, table: Path) -> Frame:
    return session.read.format("delta").load(str(table))


def _arrow(session: Session, frame: Frame) -> pa.Table:
    """All rows; what has no Arrow form (VARIANT) as JSON."""
    kinds = {f.name: "variant" in f.dataType.simpleString() for f in frame.native.schema} if session.engine_name == "spark" else {
        name: "VARIANT" in str(kind) for name, kind in zip(frame.native.columns, frame.native.types, strict=True)
    }  # fmt: skip
    if not any(kinds.values()):
        return frame.toArrow()
    json_of: Callable[[str], str] = (
        (lambda c: f"to_json({c})") if session.engine_name == "spark" else (lambda c: f"{c}::json::varchar")
    )
    columns = [f"{json_of(c)} as {c}" if variant else c for c, variant in kinds.items()]
    if session.engine_name == "spark":
        return frame.native.selectExpr(*columns).toArrow()
    return frame.native.project(", ".join(columns)).to_arrow_table()


def _same(one: pa.Table, other: pa.Table) -> bool:
    if one.schema.names != other.schema.names or one.num_rows != other.num_rows:
        return False
    if one.num_rows <= MANY:
        return rows_of(one) == rows_of(other)
    order = [(name, "ascending") for name in one.schema.names]
    return one.sort_by(order).cast(other.schema).equals(other.sort_by(order))


@pytest.mark.parametrize("name", READ)
def test_every_row_is_counted(duck: Session, tables: Path, name: str) -> None:
    frame = _load(duck, tables / name)
    assert _arrow(duck, frame).num_rows == EXPECTED[name]
    assert frame.count() == EXPECTED[name]


@pytest.mark.parametrize("name", REFUSED)
def test_what_spark_refuses_is_refused_by_name(duck: Session, tables: Path, name: str) -> None:
    with pytest.raises(DuckrunError, match=name):
        _load(duck, tables / name).toArrow()
    assert duck.sql("select 1 as x").collect() == [{"x": 1}]


@pytest.mark.differential
@pytest.mark.drawn(5)
@pytest.mark.spark
@pytest.mark.parametrize("name", COMPARED)
def test_rows_are_those_of_plain_spark(duck: Session, sparks: Session, spark: Any, tables: Path, name: str) -> None:
    plain = spark.read.format("delta").load(str(tables / name))
    expected = _arrow(sparks, Frame(_Plain(plain), "spark"))
    assert expected.num_rows == EXPECTED[name]
    for session in (duck, sparks):
        assert _same(expected, _arrow(session, _load(session, tables / name))), session.engine_name


@pytest.mark.differential
@pytest.mark.drawn(5)
@pytest.mark.spark
@pytest.mark.parametrize("name", REFUSED)
def test_spark_refuses_by_name_too(sparks: Session, spark: Any, tables: Path, name: str) -> None:
    with pytest.raises(Exception):  # noqa: B017 - what it is differs, and that it is one is the premise
        spark.read.format("delta").load(str(tables / name)).toArrow()
    with pytest.raises(DuckrunError, match=name):
        _load(sparks, tables / name).toArrow()


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", [name for name in READ if (EXPECTED[name] or 0) <= MANY])
def test_no_value_is_outside_of_the_bounds_of_its_column(duck: Session, tables: Path, name: str) -> None:
    frame = _load(duck, tables / name)
    for column, figures in duck.table(duck.lakes.at(str(tables / name)).ref).snapshot().column_figures().items():
        quoted = '"' + column.replace('"', '""') + '"'
        kind = str(frame.native.types[frame.native.columns.index(column)])
        values = frame.native.project(f"{quoted} as v").filter("v is not null")
        if figures.low is not None or figures.high is not None:
            slack = " + interval 1 millisecond" if "TIMESTAMP" in kind else ""
            low = "true" if figures.low is None else f"v >= '{figures.low.replace(chr(39), chr(39) * 2)}'::{kind}"
            high = (
                "true"
                if figures.high is None
                else f"v <= '{figures.high.replace(chr(39), chr(39) * 2)}'::{kind}{slack}"
            )
            numbers = " and not isnan(v)" if kind in ("FLOAT", "DOUBLE") else ""
            assert values.filter(f"not ({low} and {high}){numbers}").fetchall() == [], (column, figures)
        if figures.nulls is not None:
            assert figures.nulls == (EXPECTED[name] or 0) - values.count("*").fetchone()[0], column


@pytest.mark.differential
@pytest.mark.drawn(3)
@pytest.mark.spark
@pytest.mark.parametrize(
    "name", [name for name in COMPARED if 1 < (EXPECTED[name] or 0) <= MANY and name not in WITHOUT_FILES]
)
def test_rows_are_marked_in_tables_of_others(
    duck: Session, sparks: Session, spark: Any, tables: Path, tmp_path: Path, name: str
) -> None:
    """Sidecars, vectors in the log and in files, older statistics: plain Spark finds the rows that are left, or the refusal is by name."""
    table = tmp_path / name
    shutil.copytree(tables / name, table)
    with duckrun.connect(tmp_path / "lake") as session:
        before = _arrow(session, _load(session, table))
        simple = (pa.types.is_integer, pa.types.is_string)
        at = next((i for i, field in enumerate(before.schema) if any(fits(field.type) for fits in simple)), None)
        if at is None:
            pytest.skip("no column of numbers or texts")
        gone = before.column(at)[before.num_rows // 2].as_py()
        column = '"' + before.schema.names[at].replace('"', '""') + '"'
        same = (
            f"{column} IS NULL"
            if gone is None
            else f"{column} = {gone if isinstance(gone, int) else quote_literal(gone)}"
        )
        ref = session.lakes.at(str(table)).ref
        try:
            commit = session.execute(ref, DeleteSpec(same, merge_mode="deletion_vectors"))
        except (UnsupportedFeature, InvalidConfig) as error:
            assert name in str(error)
            assert _same(before, _arrow(duck, _load(duck, table))), "nothing was written"
            return
        left = before.filter(pa.array([value != gone for value in before.column(at).to_pylist()]))
        assert commit.rows_deleted in (before.num_rows - left.num_rows, None), (
            "None: the log does not say how many rows a file has"
        )
        assert _same(left, _arrow(duck, _load(duck, table)))
    plain = _arrow(sparks, Frame(_Plain(spark.read.format("delta").load(str(table))), "spark"))
    assert _same(left.cast(plain.schema), plain)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", [name for name in READ if 0 < (EXPECTED[name] or 0) <= MANY])
def test_a_filter_on_any_column_finds_what_is_there(duck: Session, tables: Path, name: str) -> None:
    """By the bounds that each writer left in the log."""
    frame = _load(duck, tables / name)
    rows = _arrow(duck, frame)
    for column in rows.schema:
        if pa.types.is_nested(column.type) or pa.types.is_null(column.type):
            continue
        if "VARIANT" in str(frame.native.types[frame.native.columns.index(column.name)]):
            continue
        values = rows.column(column.name)
        for wanted in list(dict.fromkeys(v for v in values if v.is_valid))[:3]:
            duck.register("wanted", pa.table({"value": pa.array([wanted], column.type)}))
            query = f"select count(*) as n from delta.`{tables / name}` as t where t.`{column.name}` = (select value from wanted)"
            found = duck.sql(query, dialect="spark").collect()
            assert found == [{"n": sum(v == wanted for v in values)}], (column.name, wanted)


class _Plain:
    """A DataFrame of plain Spark, as a Frame has it."""

    def __init__(self, native: Any) -> None:
        self.native = native

    def reader(self) -> pa.RecordBatchReader:
        return self.native.toArrow().to_reader()
