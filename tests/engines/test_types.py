"""Every type of Delta through both engines and every library, at its edges; what has no type is refused by its column.

The tests fill docs/types.md: DUCKRUN_WRITE_PAGES=1 writes it, else one that differs fails.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import duckrun
from duckrun import SchemaMismatch, Session, WriteSpec
from tests.engines.type_cases import ENGINES, KINDS, ODD, PAGE, REFUSED, Odd, page, table
from tests.pages import wrapped

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[dict[str, Session]]:
    """A session of each engine on one lake, in which each has written all types: the tables main.duckdb and main.spark."""
    root = tmp_path_factory.mktemp("types") / "lake"
    with duckrun.connect(root) as duck, duckrun.connect(root, engine="spark", spark=spark) as other:
        for session in (duck, other):
            session.execute(f"main.{session.engine_name}", WriteSpec("error"), table())
        yield {"duckdb": duck, "spark": other}


def plain(value: Any) -> Any:
    """A value of any library as Python's own, so that equal ones are equal."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if hasattr(value, "tolist") and not isinstance(value, pd.Timestamp):
        value = value.tolist()
    if isinstance(value, pd.Timestamp):
        return plain(value.to_pydatetime())
    if hasattr(value, "astimezone") and getattr(value, "tzinfo", None) is not None:
        return value.replace(tzinfo=None), "UTC", value.utcoffset().total_seconds()
    if isinstance(value, dict):
        if list(value) == ["key", "value"]:
            return plain(tuple(value.values()))
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


MAPS = {kind.column for kind in KINDS if pa.types.is_map(kind.arrow)}


def values_of(name: str, values: Any) -> list[Any]:
    """The values of a column. A map is a dict in one library and a list of pairs in another."""
    if any(name.endswith(map_) for map_ in MAPS):
        values = [
            None if value is None else dict(plain(pair) for pair in value) if isinstance(value, list) else value
            for value in values
        ]
    return [plain(value) for value in values]


def columns_of(rows: pa.Table) -> dict[str, list[Any]]:
    rows = rows.sort_by("id")
    return {name: values_of(name, rows[name].to_pylist()) for name in rows.column_names}


EXPECTED = columns_of(table())


@pytest.mark.parametrize("reader", ENGINES)
@pytest.mark.parametrize("writer", ENGINES)
def test_what_one_engine_writes_both_read(both: dict[str, Session], writer: str, reader: str) -> None:
    frame = both[reader].table(f"main.{writer}").toDF()
    assert columns_of(frame.toArrow()) == EXPECTED
    of_polars = frame.pl().sort("id")
    assert {n: values_of(n, of_polars[n].to_list()) for n in of_polars.columns} == EXPECTED
    assert of_pandas(frame.toPandas()) == EXPECTED


def of_pandas(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """A pandas frame's values. Its NaN among floats is a NULL where a NULL was written: it cannot tell them apart."""
    frame = frame.sort_values("id")
    found = {}
    for name in frame.columns:
        values = []
        for value, expected in zip(frame[name], EXPECTED[name], strict=True):
            missing = (
                value is None or value is pd.NaT or value is pd.NA or (isinstance(value, float) and math.isnan(value))
            )
            values.append(None if missing and expected is None else value)
        found[name] = values_of(name, values)
    return found


@pytest.mark.parametrize("library", ["polars", "pandas"])
@pytest.mark.parametrize("writer", ENGINES)
def test_frames_of_other_libraries_keep_every_value(both: dict[str, Session], writer: str, library: str) -> None:
    name = f"main.{writer}_{library}"
    rows = both["duckdb"].table("main.duckdb").toDF()
    frame: Any = rows.pl() if library == "polars" else rows.toPandas()
    if library == "pandas":
        with pytest.raises(SchemaMismatch, match="(?s)main.*map_string_long_"):
            both[writer].execute(name, WriteSpec("error"), frame)
        frame = frame.drop(columns=list(MAPS))
    both[writer].execute(name, WriteSpec("error"), frame)
    found = columns_of(both["duckdb"].table(name).toDF().toArrow())
    for column in frame.columns:
        if library == "pandas" and column in ("float", "double"):  # a NaN of pandas is NULL in Arrow
            assert found[column] == [None if value == "NaN" else value for value in EXPECTED[column]]
        else:
            assert found[column] == EXPECTED[column]


@pytest.mark.parametrize("writer", ENGINES)
def test_a_table_without_rows_keeps_its_types(both: dict[str, Session], writer: str) -> None:
    name = f"main.empty_{writer}"
    both[writer].execute(name, WriteSpec("error"), table(rows=0))
    for session in both.values():
        found = session.table(name).toDF().toArrow()
        assert found.num_rows == 0
        assert list(map(str, found.schema.types)) == list(map(str, session.table(f"main.{writer}").toDF().schema.types))


@pytest.mark.parametrize("writer", ENGINES)
def test_a_thousand_columns(both: dict[str, Session], writer: str) -> None:
    wide = pa.table(
        {f"c{n:03}_{KINDS[n % len(KINDS)].column}": table()[KINDS[n % len(KINDS)].column] for n in range(1000)}
    )
    wide = wide.append_column("id", table()["id"])
    both[writer].execute(f"main.wide_{writer}", WriteSpec("error"), wide)
    other = next(session for name, session in both.items() if name != writer)
    assert columns_of(other.table(f"main.wide_{writer}").toDF().toArrow()) == columns_of(wide)


@pytest.mark.parametrize(("odd", "engine"), [pytest.param(o, e, id=f"{o.name} [{e}]") for o in ODD for e in o.engines])
def test_what_delta_has_no_type_for(both: dict[str, Session], odd: Odd, engine: str) -> None:
    assert became(both, odd, engine) == odd.outcome(engine)


def became(both: dict[str, Session], odd: Odd, engine: str) -> str:
    """What a source's type is in the table, or that it was refused, with a message that names the column."""
    name = f"main.odd_{ODD.index(odd)}_{engine}"
    source: Any = duckrun.SQL(f"select {odd.sql} as odd, 1 as id")
    if odd.arrow is not None:
        source = pa.table({"odd": odd.arrow, "id": [1]})
    session = both[engine]
    if not session.lake.exists(session.ref(name)):
        if odd.outcome(engine) == REFUSED:
            with pytest.raises(SchemaMismatch, match=r"(?s)main\.odd.*\bodd\b") as raised:
                session.execute(name, WriteSpec("error"), source)
            assert "odd" in str(raised.value).replace(name, "")
            assert not session.lake.exists(session.ref(name))
            return REFUSED
        session.execute(name, WriteSpec("error"), source)
    for reader in both.values():
        assert plain(reader.table(name).toDF().toArrow()["odd"].to_pylist()) == [plain(odd.found)]
    return str(both["spark"].table(name).toDF().native.schema["odd"].dataType.simpleString())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("value", [2**31, -(2**63)])
def test_a_value_that_its_column_cannot_hold_names_the_column(
    both: dict[str, Session], engine: str, value: int
) -> None:
    name = f"main.narrow_{engine}_{value > 0}"
    both[engine].execute(name, WriteSpec("error"), pa.table({"id": [1], "few": pa.array([1], pa.int32())}))
    with pytest.raises(SchemaMismatch, match=r"(?s)main\.narrow.*\bfew\b"):
        both[engine].execute(name, WriteSpec("append"), pa.table({"id": [2], "few": [value]}))
    assert both["duckdb"].snapshot(name).version == 0


def test_the_page_shows_what_was_found(both: dict[str, Session]) -> None:
    duck, other = both["duckdb"].table("main.duckdb").toDF(), both["spark"].table("main.duckdb").toDF()
    native = dict(zip(duck.columns, map(str, duck.native.types), strict=True))
    frame, pandas = duck.pl(), duck.toPandas()
    assert isinstance(frame, pl.DataFrame)
    types = {
        kind.delta: {
            "DuckDB": native[kind.column],
            "Spark": other.native.schema[kind.column].dataType.simpleString(),
            "pyarrow": str(duck.schema.field(kind.column).type),
            "polars": str(frame.schema[kind.column]),
            "pandas": str(pandas[kind.column].dtype),
        }
        for kind in KINDS
    }
    became_of = {(odd.name, engine): became(both, odd, engine) for odd in ODD for engine in odd.engines}
    text = wrapped(page(types, became_of))
    if os.environ.get("DUCKRUN_WRITE_PAGES"):
        PAGE.write_text(text, encoding="utf-8")
    assert Path(PAGE).read_text(encoding="utf-8") == text, f"{PAGE.name} differs: run this with DUCKRUN_WRITE_PAGES=1"
