"""Statistics of staged files: Spark skips files by them, and finds every row that a bound could have hidden."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import duckrun
from duckrun import SQL, AlterSpec, ReadSpec, SetProperties, WriteSpec
from duckrun.formats.delta.definition.statistics import names_in
from duckrun.session import Session

NAN = float("nan")
LONG = "z" * 40


@pytest.fixture
def staged(duck: Session) -> Session:
    """main.t in two staged files: small values in one; NaN, a long string and microseconds in the other."""
    small = pa.table({"n": [1], "x": [1.0], "s": ["a"], "t": [datetime(2013, 1, 1, 0, 0, 0, 1)]})
    odd = pa.table({"n": [9], "x": [NAN], "s": [LONG + "tail"], "t": [datetime(2013, 6, 1, 0, 0, 0, 999_999)]})
    files = [*duck.stage("main.t", small), *duck.stage("main.t", odd)]
    duck.commit_staged("main.t", files, WriteSpec("append"))
    return duck


def stats(session: Session) -> dict[int, dict[str, dict[str, object]]]:
    """The stats JSON of each file of main.t, by the smallest n in it."""
    location = Path(session.lake.parse("main.t").location)
    adds = [json.loads(line)["add"] for line in _log(location) if line.startswith('{"add"')]
    found = [json.loads(add["stats"]) for add in adds]
    return {entry["minValues"]["n"]: entry for entry in found}


def _log(location: Path, version: int = 0) -> list[str]:
    return (location / "_delta_log" / f"{version:020d}.json").read_text().splitlines()


def test_a_bound_is_a_bound(staged: Session) -> None:
    odd = stats(staged)[9]
    assert "x" not in odd["minValues"], "NaN is above every number to Spark, and DuckDB's figures leave it out"
    assert odd["minValues"]["s"] == LONG[:32]
    assert odd["maxValues"]["s"] > LONG + "tail"
    assert (odd["minValues"]["t"], odd["maxValues"]["t"]) == ("2013-06-01T00:00:00.999", "2013-06-01T00:00:01.000")
    assert odd["nullCount"] == {"n": 0, "x": 0, "s": 0, "t": 0}


@pytest.mark.spark
@pytest.mark.parametrize(
    "predicate",
    [
        "isnan(x)",
        "x > 1e300",
        f"s = '{LONG}tail'",
        f"s > '{LONG}'",
        "t = timestamp '2013-06-01 00:00:00.999999'",
        "t > timestamp '2013-06-01 00:00:00.999'",
    ],
)
def test_spark_finds_rows_that_only_a_careless_bound_would_hide(staged: Session, spark: object, predicate: str) -> None:
    with duckrun.connect(staged.lake.root, engine="spark", spark=spark) as on_spark:
        rows = on_spark.scan("main.t", ReadSpec(predicate=predicate, dialect="spark")).toArrow()
    assert rows.column("n").to_pylist() == [9]


@pytest.mark.spark
@pytest.mark.parametrize("predicate", ["n < 5", "s < 'b'", "t < timestamp '2013-02-01 00:00:00'"])
def test_spark_skips_files_by_the_statistics(staged: Session, spark: object, predicate: str) -> None:
    table = DeltaTable(staged.lake.parse("main.t").location)
    listed = {row["min"]["n"]: row["path"] for row in pa.table(table.get_add_actions()).to_pylist()}
    (Path(staged.lake.parse("main.t").location) / listed[9]).unlink()
    with duckrun.connect(staged.lake.root, engine="spark", spark=spark) as on_spark:
        kept = on_spark.scan("main.t", ReadSpec(predicate=predicate, dialect="spark")).toArrow()
        assert kept.column("n").to_pylist() == [1], "the file that is gone was not needed"
        with pytest.raises(Exception, match=r"(?i)does not exist|not found|FILE_NOT_EXIST"):
            on_spark.scan("main.t", ReadSpec(predicate="n > 5", dialect="spark")).toArrow()


# -- which columns have them: as Spark has it

STRUCT = pa.struct(
    {
        "a": pa.int64(),
        "b": pa.struct({"c": pa.string(), "d.e": pa.float64(), "none": pa.int32()}),
        "t": pa.timestamp("us"),
    }
)


def many_types(start: int, rows: int) -> pa.Table:
    """A table of each kind of column, with structs in structs; the values grow."""
    numbers = range(start, start + rows)
    inner = [
        {"a": n, "b": {"c": f"{n:05d}", "d.e": n * 1.5, "none": None}, "t": datetime(2020, 1, 1, 0, 0, n % 60)}
        for n in numbers
    ]
    return pa.table(
        {
            "p": [f"p{start}"] * rows,
            "n": pa.array(numbers, pa.int32()),
            "s": pa.array([None if n == start + 1 else v for n, v in zip(numbers, inner, strict=True)], STRUCT),
            "l": pa.array([[n] for n in numbers]),
            "m": pa.array([[("k", n)] for n in numbers], pa.map_(pa.string(), pa.int64())),
            "flag": pa.array([n % 2 == 0 for n in numbers]),
            "raw": pa.array([b"x"] * rows),
            "day": pa.array([date(2020, 1, 1 + n % 28) for n in numbers]),
            "money": pa.array([Decimal(n) for n in numbers], pa.decimal128(12, 2)),
            "x": pa.array([float(n) for n in numbers], pa.float32()),
            "text": pa.array([f"{n:05d}" + "z" * 40 for n in numbers]),
            "nothing": pa.array([None] * rows, pa.int64()),
        }
    )


def figures_of(session: Session, table: str = "main.t") -> list[dict[str, Any]]:
    """The statistics of each file that the log ever added, in the order of n."""
    location = Path(session.lake.parse(table).location)
    lines = [
        line for path in sorted((location / "_delta_log").glob("*.json")) for line in path.read_text().splitlines()
    ]
    found = [json.loads(json.loads(line)["add"]["stats"]) for line in lines if line.startswith('{"add"')]
    return sorted(found, key=lambda stats: stats.get("minValues", {}).get("n", 0))


def flat(values: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(values, dict):
        for name, value in values.items():
            yield from flat(value, (*above, name))
    else:
        yield above, values


def comparable(stats: dict[str, Any]) -> dict[tuple[str, ...], Any]:
    """Every figure, but for the letter with which a long text is raised."""
    return {path: value[:32] if isinstance(value, str) else value for path, value in flat(stats)}


PROPERTIES: list[dict[str, str]] = [
    {},
    {"delta.dataSkippingNumIndexedCols": "4"},
    {"delta.dataSkippingNumIndexedCols": "0"},
    {"delta.dataSkippingNumIndexedCols": "-1"},
    {"delta.dataSkippingStatsColumns": "N, `s`.`b`.`d.e`, text"},
    {"delta.dataSkippingStatsColumns": "s.b,x", "delta.dataSkippingNumIndexedCols": "1"},
]


@pytest.mark.spark
def test_the_same_rows_have_the_figures_that_spark_gives_them(duck: Session, spark: Any) -> None:
    with duckrun.connect(duck.lake.root, engine="spark", spark=spark) as on_spark:
        for i, properties in enumerate(PROPERTIES):
            made = WriteSpec("error", partition_by=("p",), table_properties=properties)
            for session, name in ((duck, f"main.d{i}"), (on_spark, f"main.s{i}")):
                session.execute(name, made, many_types(0, 5))
                session.execute(name, WriteSpec("append"), many_types(100, 5))
            ours, theirs = figures_of(duck, f"main.d{i}"), figures_of(on_spark, f"main.s{i}")
            assert [comparable(stats) for stats in ours] == [comparable(stats) for stats in theirs], properties


@pytest.mark.spark
def test_the_list_of_columns_with_figures_follows_names_as_it_does_by_spark(duck: Session, spark: Any) -> None:
    named = {"delta.columnMapping.mode": "name", "delta.dataSkippingStatsColumns": "id, s.`a.b`, s.c, xy"}
    rows = "select 1 as id, {'a.b': 2, 'c': 3} as s, 4 as xy"
    changes = [
        "rename column id to key",
        "rename column s.`a.b` to d",
        "rename column s to t",
        "drop column t.c",
        "drop column xy",
    ]
    for name in ("main.duckdb", "main.spark"):
        duck.execute(name, WriteSpec("error", table_properties=named), SQL(rows))
    for change in changes:
        duck.sql(f"alter table main.duckdb {change}", dialect="spark")
        spark.sql(f"alter table delta.`{duck.ref('main.spark').location}` {change}")
    ours, theirs = (duck.snapshot(f"main.{each}").properties for each in ("duckdb", "spark"))
    assert (
        list(names_in(ours["delta.dataSkippingStatsColumns"]))
        == list(names_in(theirs["delta.dataSkippingStatsColumns"]))
        == [("key",), ("t", "d")]
    )
    duck.execute("main.duckdb", WriteSpec("append"), SQL("select 5 as key, {'d': 6} as t"))
    newest = [
        json.loads(json.loads(line)["add"]["stats"])
        for line in _log(Path(duck.ref("main.duckdb").location), duck.snapshot("main.duckdb").version)
        if '{"add"' in line
    ]
    assert [len(list(flat(stats["minValues"]))) for stats in newest] == [2]


def leaves_with(stats: dict[str, Any], part: str) -> set[str]:
    return {".".join(path) for path, _ in flat(stats[part])}


def test_the_columns_with_figures_are_those_that_the_table_names(duck: Session) -> None:
    wide = SQL("select {'a': 1, 'b': 2} as s, " + ", ".join(f"{i} as c{i}" for i in range(40)))
    duck.execute("t", WriteSpec("error"), wide)
    first = {"s.a", "s.b", *(f"c{i}" for i in range(30))}
    assert [leaves_with(stats, part) for stats in figures_of(duck) for part in ("minValues", "nullCount")] == [
        first
    ] * 2
    for text, named in (
        ("S.`a`, c39", {"s.a", "c39"}),
        ("s,C38,nowhere", {"s.a", "s.b", "c38"}),
        ("`c37`", {"c37"}),
    ):
        duck.execute("t", AlterSpec((SetProperties({"delta.dataSkippingStatsColumns": text}),)))
        duck.execute("t", WriteSpec("overwrite"), wide)
        location = Path(duck.lake.parse("t").location)
        [newest] = [
            json.loads(json.loads(line)["add"]["stats"])
            for line in _log(location, duck.snapshot("t").version)
            if '{"add"' in line
        ]
        assert leaves_with(newest, "maxValues") == leaves_with(newest, "nullCount") == named
    duck.sql("update t set c0 = 5")
    assert duck.sql("select c0, s.b as b from t where s.a = 1 and c37 = 37").collect() == [{"c0": 5, "b": 2}]


def nested_oddities() -> pa.Table:
    """Two rows to be put into two files, where a careless bound of a field would hide the second."""
    inner = pa.struct({"n": pa.int64(), "x": pa.float64(), "s": pa.string(), "t": pa.timestamp("us")})
    kind = pa.struct({"deep": inner, "l": pa.list_(pa.int64())})
    rows = [
        {"deep": {"n": 1, "x": 1.0, "s": "a", "t": datetime(2013, 1, 1, 0, 0, 0, 1)}, "l": [1]},
        {"deep": {"n": 9, "x": NAN, "s": LONG + "tail", "t": datetime(2013, 6, 1, 0, 0, 0, 999_999)}, "l": []},
    ]
    return pa.table({"id": [1, 2], "v": pa.array(rows, kind)})


NESTED = {
    "v.deep.n > 5": [2],
    "v.deep.n < 5": [1],
    "isnan(v.deep.x)": [2],
    "v.deep.x > 1e300": [2],
    f"v.deep.s = '{LONG}tail'": [2],
    f"v.deep.s > '{LONG}'": [2],
    "v.deep.s < 'b'": [1],
    "v.deep.t = timestamp '2013-06-01 00:00:00.999999'": [2],
    "v.deep.t > timestamp '2013-06-01 00:00:00.999'": [2],
    "v.deep.n is null": [3],
    "v is null": [3],
    "v.l is not null": [1, 2],
    "v.deep is not null and v.deep.n >= 1": [1, 2],
}


@pytest.fixture
def nested(duck: Session) -> Session:
    """main.t with three files: small values in a struct, those that a careless bound would hide, and no struct at all."""
    rows = nested_oddities()
    duck.execute("t", WriteSpec("error"), rows.slice(0, 1))
    duck.execute("t", WriteSpec("append"), rows.slice(1))
    duck.execute("t", WriteSpec("append"), pa.table({"id": [3], "v": pa.array([None], rows.schema.field("v").type)}))
    return duck


@pytest.mark.parametrize("predicate", NESTED)
def test_duckdb_and_deltalake_find_the_rows_by_fields_of_structs(nested: Session, predicate: str) -> None:
    location = nested.lake.parse("t").location
    assert sorted(nested.scan("t", ReadSpec(predicate=predicate)).toArrow()["id"].to_pylist()) == NESTED[predicate]
    plain = nested.engine.connection.execute(  # type: ignore[attr-defined]
        f"select id from delta_scan('{location}') where {predicate} order by id"
    ).fetchall()
    assert [i for (i,) in plain] == NESTED[predicate]
    if predicate.startswith("isnan") or "v.l" in predicate or "v is null" in predicate:
        return  # DataFusion has its own spelling
    found = (
        QueryBuilder()
        .register("t", DeltaTable(location))
        .execute(f"select id from t where {_datafusion(predicate)} order by id")
    )
    assert pa.table(found.read_all())["id"].to_pylist() == NESTED[predicate]


def _datafusion(predicate: str) -> str:
    return re.sub(r"v\.deep(?:\.(\w+))?", lambda m: "v['deep']" + (f"['{m[1]}']" if m[1] else ""), predicate)


@pytest.mark.spark
def test_spark_finds_the_rows_by_fields_of_structs_too(nested: Session, spark: Any) -> None:
    with duckrun.connect(nested.lake.root, engine="spark", spark=spark) as on_spark:
        for predicate, ids in NESTED.items():
            found = on_spark.scan("main.t", ReadSpec(predicate=predicate, dialect="spark")).toArrow()
            assert sorted(found["id"].to_pylist()) == ids, predicate


PRUNED = [
    "n = 1",
    "n > 350 and n < 420",
    "s.a = 101",
    "s.b.c = '00103'",
    "s.b.`d.e` > 600",
    "s.b.none is not null",
    "s.a is null",
    "p = 'p200'",
    "p = 'p200' and s.a = 101",
    "day = date '2020-01-01'",
    "money between 200 and 203",
    "x < 3",
    "text > '00400'",
    "nothing is not null",
    "n in (1, 404)",
]


def files_read(spark: Any, location: str, predicate: str) -> int:
    """How many files Spark's scan of some rows opens, by the metric of the scan."""
    frame = spark.read.format("delta").load(location).where(predicate)
    frame.collect()
    plan = frame._jdf.queryExecution().executedPlan()
    scans = plan.collectLeaves()
    return sum(
        scans.apply(i).metrics().apply("numFiles").value()
        for i in range(scans.size())
        if scans.apply(i).metrics().contains("numFiles")
    )


@pytest.mark.spark
def test_spark_leaves_out_the_files_that_it_leaves_out_by_its_own_figures(duck: Session, spark: Any) -> None:
    with duckrun.connect(duck.lake.root, engine="spark", spark=spark) as on_spark:
        for session, name in ((duck, "main.d"), (on_spark, "main.s")):
            session.execute(name, WriteSpec("error", partition_by=("p",)), many_types(0, 5))
            for start in range(100, 500, 100):
                session.execute(name, WriteSpec("append"), many_types(start, 5))
        counts = {
            predicate: tuple(
                files_read(spark, duck.lake.parse(name).location, predicate) for name in ("main.d", "main.s")
            )
            for predicate in PRUNED
        }
    assert {predicate: ours for predicate, (ours, _) in counts.items()} == {
        predicate: theirs for predicate, (_, theirs) in counts.items()
    }
    assert counts["n = 1"] == (1, 1) and counts["s.a = 101"] == (1, 1) and counts["s.b.c = '00103'"] == (1, 1)
