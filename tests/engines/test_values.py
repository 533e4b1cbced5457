"""Every value of the alphabet as a value of a column and of a partition: every reader finds it, and it is changed by itself."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import duckrun
from duckrun import SQL, MergeSpec, SchemaMismatch, Session, WriteSpec
from duckrun.engines.duckdb.instance.instance import open_connection
from duckrun.engines.duckdb.rows.source import schema_of_types
from duckrun.engines.duckdb.writers.staged import figures
from duckrun.formats.delta.definition.statistics import Statistics
from duckrun.values.rows import DeleteInsertSpec, StagedFile
from duckrun.values.snapshot import schema_to_text
from tests import lake
from tests.alphabet import VALUES
from tests.ducklake.plain import attached
from tests.lake import by_another, nth

pytestmark = pytest.mark.formats

TYPES: dict[str, Any] = {
    "VARCHAR": pa.string(), "BIGINT": pa.int64(), "INTEGER": pa.int32(), "DOUBLE": pa.float64(), "FLOAT": pa.float32(), "BOOLEAN": pa.bool_(),
    "DECIMAL(38,2)": pa.decimal128(38, 2), "DECIMAL(5,2)": pa.decimal128(5, 2), "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"), "BLOB": pa.binary(),
}  # fmt: skip
NO_PARTITION = {"NULL", "__HIVE_DEFAULT_PARTITION__", "x" * 300, "\U0010ffff" * 33}
"""Texts that no partition can hold: NULL to a reader, or too long for a folder's name."""
LAYOUTS = ("data", "partition")
CASES = [(kind, layout) for kind in TYPES for layout in LAYOUTS if (kind, layout) != ("BLOB", "partition")]


def table(kind: str, layout: str, n: int = 0) -> pa.Table:
    """One row for each different value of a type: ``id``, the value ``v``, and ``n``."""
    seen: dict[Any, Any] = {}
    for value in (v.value for v in VALUES if v.kind == kind):
        if layout == "data" or value not in NO_PARTITION:
            seen.setdefault(plain(value), value)
    values = pa.array(list(seen.values()), TYPES[kind])
    return pa.table({"id": range(len(seen)), "v": values, "n": [n] * len(seen)})


def plain(value: Any) -> Any:
    """A value that equals itself and no other: NaN is one, and so are 0.0 and -0.0, and a moment in two zones."""
    if isinstance(value, float):
        return ("float", "NaN" if math.isnan(value) else value + 0.0)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def rows(found: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    """The rows as sorted tuples, in the table's own types."""
    return sorted(
        (tuple(plain(v) for v in row.values()) for row in found.select(["id", "v", "n"]).to_pylist()), key=repr
    )


@contextmanager
def another_reader(session: Session, name: str) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
    """DuckDB with its own extension of the format, and what it calls a table."""
    if lake.FORMAT == "delta":
        with open_connection(session.lake, 2**30, "") as own:
            yield own, f"delta_scan('{session.lake.parse(name).location}')"
    else:
        with attached(Path(session.lake.root)) as own:
            own.execute("SET TimeZone = 'UTC'")
            yield own, f"lake.main.{name}"


def check(session: Session, name: str, expected: pa.Table, *, of_spark: bool = False) -> None:
    """Every reader of this process has the rows, and finds each by its value. ``of_spark``: some of the files are Spark's."""
    wanted = rows(expected)
    assert rows(session.table(name).toDF().toArrow()) == wanted
    with another_reader(session, name) as (own, scan):
        assert rows(own.sql(f"select id, v, n from {scan}").to_arrow_table()) == wanted
        for position, value in enumerate(expected["v"]):
            own.register("one", pa.table({"v": pa.array([value.as_py()], expected["v"].type)}))
            found = own.sql(f"select id from {scan} where v = (select v from one)").fetchall()
            assert found == [(expected["id"][position].as_py(),)], value
    values = expected["v"].to_pylist()
    # deltalake cannot read -1.10 as a partition value, whoever wrote it: it takes it for -1.-10. Nor can pyarrow read Spark's
    # instants of years that nanoseconds of 64 bits do not reach.
    negative = any(isinstance(v, Decimal) and v < 0 for v in values) and not name.endswith("data")
    far = of_spark and any(isinstance(v, datetime) and not 1678 <= v.year < 2262 for v in values)
    if not (negative or far) and lake.FORMAT == "delta":
        assert rows(by_another(session, name)) == wanted


@pytest.mark.matrix
@pytest.mark.drawn(5)
@pytest.mark.parametrize("source", ["table", "stream"])
@pytest.mark.parametrize(("kind", "layout"), CASES)
def test_every_reader_finds_every_value_and_changes_it_by_itself(
    duck: Session, kind: str, layout: str, source: str
) -> None:
    def given(n: int) -> Any:
        return table(kind, layout, n).to_reader() if source == "stream" else table(kind, layout, n)

    name, partition_by = f"t_{layout}", ("v",) if layout == "partition" else None
    duck.execute(name, WriteSpec("error", partition_by=partition_by), given(0))
    check(duck, name, table(kind, layout))
    specs: list[Any] = [MergeSpec(("v",)), DeleteInsertSpec(("v",))]
    specs += [WriteSpec("replace")] if partition_by else []
    for n, spec in enumerate(specs, 1):
        duck.execute(name, spec, given(n))
        check(duck, name, table(kind, layout, n))
    duck.execute(name, WriteSpec("overwrite"), given(7))
    check(duck, name, table(kind, layout, 7))
    duck.register("given", table(kind, layout))
    duck.sql(f"update {name} set n = 9 from given where {name}.v = given.v")
    check(duck, name, table(kind, layout, 9))
    duck.sql(f"delete from {name} using given where {name}.v = given.v and given.id > 0")
    check(duck, name, table(kind, layout, 9).slice(0, 1))


@pytest.mark.matrix
@pytest.mark.spark
@pytest.mark.drawn(5)
@pytest.mark.parametrize(("kind", "layout"), CASES)
def test_both_engines_agree_on_every_value(duck: Session, spark: Any, kind: str, layout: str) -> None:
    partition_by = ("v",) if layout == "partition" else None
    with duckrun.connect(duck.lake.root, engine="spark", spark=spark) as other:
        for writer, changer in ((duck, other), (other, duck)):
            name = f"{writer.engine_name}_{layout}"
            writer.execute(name, WriteSpec("error", partition_by=partition_by), table(kind, layout))
            check(duck, name, table(kind, layout), of_spark=writer is other)
            plain_spark = spark.read.format("delta").load(duck.lake.parse(name).location)
            assert rows(plain_spark.toArrow()) == rows(table(kind, layout))
            local = other.engine.access.from_arrow(table(kind, layout).select(["v"]))  # type: ignore[attr-defined]
            assert plain_spark.join(local, "v", "left_semi").count() == table(kind, layout).num_rows
            changer.execute(name, MergeSpec(("v",)), table(kind, layout, 1))
            check(duck, name, table(kind, layout, 1), of_spark=True)
            assert rows(other.table(name).toDF().toArrow()) == rows(table(kind, layout, 1))
            if partition_by:
                changer.execute(name, WriteSpec("replace"), table(kind, layout, 2))
                check(duck, name, table(kind, layout, 2), of_spark=True)


FAR: dict[str, str] = {
    "a year of five digits": "date '10000-01-01'",
    "before Christ": "date '0044-03-15 (BC)'",
    "for ever": "date 'infinity'",
    "a time of a year of five digits": "timestamp '10000-01-01 00:00:00'",
    "a time before Christ": "timestamp '0001-01-01 00:00:00' - interval 1 microsecond",
    "a time for ever": "timestamp '-infinity'",
    "an instant of a year of five digits": "timestamptz '9999-12-31 23:59:59.999999+00' + interval 1 microsecond",
}


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("value", FAR)
def test_a_year_that_not_every_reader_has_is_refused_by_its_column(
    duck: Session, value: str, partitioned: bool
) -> None:
    source = SQL(f"select 1 as id, {FAR[value]} as v")
    partition_by = ("v",) if partitioned else None
    with pytest.raises(SchemaMismatch, match=r"main\.t.*column v.*years 1 to 9999"):
        duck.execute("t", WriteSpec("error", partition_by=partition_by), source)
    assert not duck.lake.exists(duck.ref("t"))
    kind = FAR[value].split()[0]
    duck.execute("t", WriteSpec("error", partition_by=partition_by), SQL(f"select 1 as id, {kind} '2020-01-01' as v"))
    for change in (f"update t set v = {FAR[value]}", f"insert into t select 2, {FAR[value]}"):
        with pytest.raises(SchemaMismatch, match=r"main\.t.*column v.*years 1 to 9999"):
            duck.sql(change)
    with pytest.raises(SchemaMismatch, match="years 1 to 9999"):
        duck.execute("t", MergeSpec(("id",)), source)
    assert duck.snapshot("t").version == nth(0)


@pytest.mark.only_format("delta", "another program wrote its table")
def test_a_foreign_table_with_far_years_can_be_changed(duck: Session) -> None:
    with duckdb.connect() as own:
        own.execute("set timezone = 'UTC'")
        far = own.sql(
            "select 1 as id, date '10000-01-01' as d, timestamp '0044-03-15 (BC) 00:00:00' as t union all "
            "select 2, date '2020-01-01', timestamp '2020-01-01'"
        ).to_arrow_table()
    location = duck.lake.parse("t").location
    write_deltalake(location, far)
    duck.sql("update t set id = 3 where id = 2")
    duck.sql("delete from t where id = 3")
    assert duck.sql("select id, d::varchar as d, t::varchar as t from t").collect() == [
        {"id": 1, "d": "10000-01-01", "t": "0044-03-15 (BC) 00:00:00"}
    ]


@pytest.mark.only_format(
    "delta", "a DuckLake tells these texts from NULL; what it lacks is in tests/ducklake/test_types.py"
)
def test_what_no_partition_can_be_is_refused_by_its_column(session: Session) -> None:
    for text in ("", *sorted(NO_PARTITION, key=len)):
        if len(text) > 30 and session.engine_name == "spark":
            continue  # how long a folder's name may be is the file system's to say
        for spec in (WriteSpec("error", partition_by=("p",)), MergeSpec(("id",), partition_by=("p",))):
            with pytest.raises(SchemaMismatch, match=r"main\.t.*partition column p"):
                session.execute("t", spec, pa.table({"id": [1], "p": [text]}))
    with pytest.raises(SchemaMismatch, match=r"main\.t.*'p' is binary.*hex"):
        session.execute("t", WriteSpec("error", partition_by=("p",)), pa.table({"id": [1], "p": [b"a"]}))
    with pytest.raises(SchemaMismatch, match=r"'p' is binary"):
        session.sql("create table t (id int, p blob) partitioned by (p)")
    with pytest.raises(SchemaMismatch, match=r"main\.t.*p"):
        session.execute("t", WriteSpec("error", partition_by=("p",)), pa.table({"id": [1], "p": [["a"]]}))
    assert not session.lake.exists(session.ref("t"))
    session.execute("t", WriteSpec("error", partition_by=("p",)), pa.table({"id": [1], "p": ["a"]}))
    for spec in (WriteSpec("append"), MergeSpec(("id",)), DeleteInsertSpec(("id",)), WriteSpec("replace")):
        with pytest.raises(SchemaMismatch, match=r"main\.t.*partition column p.*NULL"):
            session.execute("t", spec, pa.table({"id": [1], "p": ["__HIVE_DEFAULT_PARTITION__"]}))
    assert session.snapshot("t").version == nth(0)


@pytest.mark.parametrize("kind", [date, datetime])
def test_a_far_year_is_refused_on_spark_too(session: Session, kind: type) -> None:
    days = pa.array([3_000_000], pa.int32()).cast(pa.date32())  # in the year 10183
    far = days if kind is date else days.cast(pa.timestamp("us"))
    with pytest.raises(SchemaMismatch, match=r"main\.t.*column v.*years 1 to 9999"):
        session.execute("t", WriteSpec("error"), pa.table({"id": [1], "v": far}))
    assert not session.lake.exists(session.ref("t"))
    session.execute("t", WriteSpec("error"), pa.table({"id": [1], "v": pa.array([None], far.type)}))
    with pytest.raises(SchemaMismatch, match=r"main\.t.*column v.*years 1 to 9999"):
        session.execute("t", MergeSpec(("id",)), pa.table({"id": [1], "v": far}))
    assert session.snapshot("t").version == nth(0)


def bounds(kind: str, low: str, high: str) -> tuple[Any, Any]:
    """Those of a column; of a field inside of structs they are the same."""
    pairs = []
    for of, path in ((kind, '"c"'), (f"STRUCT(c STRUCT(c {kind}))", '"c"."c"."c"')):
        schema = schema_of_types({"c": of}, duckdb.connect())
        of_duckdb = figures({path: {"min": low, "max": high, "null_count": "0"}}, schema)
        written = StagedFile("f", 1, rows=1, schema=schema_to_text(schema), figures=of_duckdb).to_json()
        found = json.loads(Statistics(schema, {}).of(StagedFile.from_json(written)) or "")
        pairs.append(tuple(_at(found[part], path.count(".")) for part in ("minValues", "maxValues")))
    assert pairs[0] == pairs[1]
    return pairs[0]


def _at(values: dict[str, Any], depth: int) -> Any:
    for _ in range(depth):
        values = values.get("c", {})
    return values.get("c")


@pytest.mark.only_format("delta", "it is about the statistics of Delta's log")
def test_a_bound_at_the_end_of_its_type_is_a_bound_or_none() -> None:
    top = "\U0010ffff"
    assert bounds("VARCHAR", top * 33, top * 33) == (top * 32, top * 33)
    assert bounds("VARCHAR", top * 34, top * 34) == (top * 32, None)
    assert bounds("VARCHAR", "a", "b" * 33) == ("a", "b" * 32 + top)
    last = "9999-12-31 23:59:59.999999"
    assert bounds("TIMESTAMP", last, last) == ("9999-12-31T23:59:59.999", None)
    assert bounds("TIMESTAMP WITH TIME ZONE", last + "+00", last + "+00") == ("9999-12-31T23:59:59.999Z", None)
    assert bounds("TIMESTAMP WITH TIME ZONE", "0001-01-01 00:00:00+05", "2020-01-01 00:00:00+00") == (None, None)


@pytest.mark.parametrize("kind", ["DECIMAL(5,2)", "DOUBLE"])
def test_partition_values_of_numbers_outlive_maintenance(duck: Session, kind: str) -> None:
    duck.execute("t", WriteSpec("error", partition_by=("v",)), table(kind, "partition"))
    duck.execute("t", WriteSpec("append"), table(kind, "partition", 1))
    duck.sql("optimize t")
    duck.sql("delete from t where n = 0")
    duck.table("t").restoreToVersion(nth(1))
    if lake.FORMAT == "delta":
        DeltaTable(duck.lake.parse("t").location).create_checkpoint()
    duck.sql("delete from t where n = 0")
    assert rows(duck.table("t").toDF().toArrow()) == rows(table(kind, "partition", 1))
