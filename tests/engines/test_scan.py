"""Tables that DuckDB's delta_scan() reads wrongly, or not at all: each is read as plain Spark reads it, or refused by name."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import duckrun
from duckrun import InvalidConfig, MergeSpec, ReadSpec, Session, StorageError, UnsupportedFeature, WriteSpec
from duckrun.engines.duckdb.instance.views import ViewCatalog
from duckrun.run.pins import Pins
from duckrun.values.snapshot import Scan
from duckrun.values.tables import OptimizeSpec
from tests.lake import rows_of

# ---------------------------------------------------------------- tables that plain Spark makes

MAPPED = "'delta.columnMapping.mode'='name'"
UPGRADE = f"{MAPPED}, 'delta.minReaderVersion'='2', 'delta.minWriterVersion'='5'"
WIDE = "'delta.enableDeletionVectors'='true', 'delta.enableTypeWidening'='true'"
LISTS = {
    "list": "array(1, 2)",
    "list_of_structs": "array(named_struct('x', 1))",
    "list_of_lists": "array(array(1), null)",
    "list_of_maps": "array(map(1, 2))",
    "struct_with_list": "named_struct('x', array(1, 2), 'y', 1)",
    "map_of_lists": "map(1, array(1, 2))",
    "map_of_structs": "map(1, named_struct('x', array('a')))",
    "deep": "named_struct('a', named_struct('b', array(map('k', array(array(1.5))))))",
}
# A struct of one field in a list in a map may be the field itself in this layout; INT96 has no zone.
UNCLEAR = {
    "map_of_structs_in_lists": "map(1, array(named_struct('y', 1)))",
    "moments": "array(timestamp'2024-01-01 00:00:00')",
}

TABLES: dict[str, list[str]] = {
    "mapped": [
        f"create table {{t}} (p string, id int, st struct<a:int,b:struct<c:string>>, q date, ts timestamp, dec decimal(10,2), b boolean, n int) "
        f"using delta partitioned by (p, q, ts, dec, b) tblproperties ({MAPPED}, 'delta.enableDeletionVectors'='true')",
        "insert into {t} values ('é x%/=', 1, named_struct('a', 1, 'b', named_struct('c', 'x')), date'2024-01-01', timestamp'2024-01-01 10:00:00.123456Z', 1.50, true, 1),"
        "(null, 2, null, null, null, null, null, null), ('', 3, null, date'0001-01-01', timestamp'1900-01-01 00:00:00Z', -1.00, false, 3), "
        "('日本', 4, null, date'2024-01-01', timestamp'2024-01-01 10:00:00Z', 2, true, 3)",
        "insert into {t} select 'many', cast(id as int), null, date'2024-01-01', timestamp'2024-01-01 10:00:00Z', 2, true, 3 from range(50)",
        "delete from {t} where id % 5 = 1",
        "alter table {t} rename column id to ident",
        "alter table {t} rename column p to part",
        "alter table {t} rename column st.a to aa",
        "alter table {t} add column late int",
        "insert into {t} values ('late', 7, null, null, null, null, null, 1, 7)",
    ],
    "mapped later": [
        "create table {t} (id int, v string, p int) using delta partitioned by (p)",
        "insert into {t} values (1, 'a', 1), (2, 'b', 2), (3, 'c', null)",
        f"alter table {{t}} set tblproperties ({UPGRADE})",
        "alter table {t} rename column v to w",
        "alter table {t} add column z int",
        "insert into {t} values (4, 'd', 4, 4)",
    ],
    "renamed partition": [
        "create table {t} (id int, p int) using delta partitioned by (p)",
        "insert into {t} values (1, 1), (2, null)",
        f"alter table {{t}} set tblproperties ({UPGRADE})",
        "alter table {t} rename column p to r",
    ],
    "widened": [
        f"create table {{t}} (id int, v smallint, f float, d decimal(5,2), a array<int>) using delta tblproperties ({WIDE})",
        "insert into {t} select cast(id as int), cast(id as smallint), cast(id as float) / 3, cast(id as decimal(5,2)), array(cast(id as int)) from range(1, 101)",
        "delete from {t} where id % 7 = 0",
        "alter table {t} alter column id type bigint",
        "alter table {t} alter column f type double",
        "alter table {t} alter column d type decimal(20,4)",
        "alter table {t} alter column a.element type bigint",
        "insert into {t} values (10000000000, 1, 1.1D, 1234567890123456.1234, array(10000000000))",
        "delete from {t} where id = 1",
    ],
    "widened and mapped": [
        f"create table {{t}} (id int, p string, v int) using delta partitioned by (p) tblproperties ({MAPPED}, {WIDE})",
        "insert into {t} select cast(id as int), concat('p', id % 2), 1 from range(100)",
        "delete from {t} where id % 7 = 0",
        "alter table {t} alter column id type bigint",
        "insert into {t} values (10000000000, 'p2', 2)",
    ],
    "lists with vectors": [
        "set spark.sql.parquet.writeLegacyFormat=true",
        "create table {t} using delta tblproperties ('delta.enableDeletionVectors'='true') as select id, map(id, array(id)) x, array(id) y from range(100)",
        "set spark.sql.parquet.writeLegacyFormat=false",
        "delete from {t} where id < 10",
        "insert into {t} select 1000, map(1, array(2)), array(3, null)",
    ],
    **{
        name: ["set spark.sql.parquet.writeLegacyFormat=true", f"create table {{t}} using delta as select 1 id, {value} x union all select 2, null"]
        for name, value in {**LISTS, **UNCLEAR}.items()
    },
}  # fmt: skip
SPARKS = [name for name in TABLES if name not in UNCLEAR]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[tuple[Session, dict[str, pa.Table]]]:
    """A session of the embedded engine on a lake that plain Spark made, and what plain Spark reads there."""
    root = tmp_path_factory.mktemp("scans") / "lake"
    read = {}
    for name, statements in TABLES.items():
        table = f"delta.`{root}/main/{name}`"
        for statement in statements:
            spark.sql(statement.format(t=table))
        read[name] = spark.sql(f"select * from {table}").toArrow()
    spark.sql("set spark.sql.parquet.writeLegacyFormat=false")
    with duckrun.connect(root) as session:
        yield session, read


@pytest.mark.spark
@pytest.mark.parametrize("name", SPARKS)
def test_rows_are_those_that_spark_reads(made: tuple[Session, dict[str, pa.Table]], name: str) -> None:
    session, read = made
    expected = rows_of(read[name])
    assert rows_of(session.sql(f'select * from "{name}"')) == expected
    assert rows_of(session.read.table(f"main.{name}")) == expected
    assert session.sql(f'select * from "{name}"').count() == len(expected)
    scan = Scan.from_json(session.snapshot(f"main.{name}").scan().to_json())
    assert sorted((row for part in scan.split(2) for row in rows_of(session.open(part))), key=repr) == expected


@pytest.mark.spark
@pytest.mark.parametrize("name", SPARKS)
def test_filters_on_any_column_find_their_rows(made: tuple[Session, dict[str, pa.Table]], name: str) -> None:
    session, read = made
    for column in read[name].schema:
        if pa.types.is_nested(column.type):
            continue
        values = read[name].column(column.name)
        value = next(v for v in values if v.is_valid)
        expected = sum(v == value for v in values)
        session.register("wanted", pa.table({"value": pa.array([value.as_py()], column.type)}))
        joined = session.sql(f'select t.* from "{name}" t join wanted on t."{column.name}" = wanted.value')
        found = session.sql(f'select * from "{name}" where "{column.name}" = (select value from wanted)')
        assert (joined.count(), found.count()) == (expected, expected), column.name
        missing = session.scan(f"main.{name}", ReadSpec(predicate=f'"{column.name}" is null')).count()
        assert missing == values.null_count, column.name


@pytest.mark.spark
@pytest.mark.parametrize("name", ["mapped", "widened and mapped", "list"])
def test_a_view_over_such_a_table_has_the_same_rows(made: tuple[Session, dict[str, pa.Table]], name: str) -> None:
    session, read = made
    connection = session.engine.connection  # type: ignore[attr-defined]
    views = ViewCatalog(connection, session.lake, Pins(session.lakes))
    views.ensure(session.ref(f"main.{name}"))
    found = connection.cursor().execute(f'select * from memory.main."{name}"').to_arrow_table()
    assert rows_of(found) == rows_of(read[name])


@pytest.mark.spark
@pytest.mark.parametrize("name", list(UNCLEAR))
def test_lists_that_can_be_read_in_two_ways_are_refused(made: tuple[Session, dict[str, pa.Table]], name: str) -> None:
    with pytest.raises(UnsupportedFeature, match=f"main.{name}.*older Parquet writers"):
        made[0].sql(f'select * from "{name}"').toArrow()
    assert made[0].sql("select 1 as x").collect() == [{"x": 1}]


# ---------------------------------------------------------------- bounds of long decimals

LONG = Decimal("123456789012345678.91")
DECIMALS = {
    "scale": (pa.decimal128(38, 2), [LONG, Decimal("1.50")]),
    "one value": (pa.decimal128(38, 2), [LONG]),
    "whole": (pa.decimal128(38, 0), [Decimal("1234567890123456789"), Decimal("12345678901234567890")]),
    "small": (pa.decimal128(38, 30), [Decimal("1e-30"), Decimal("-1e-30")]),
    "halves": (pa.decimal128(38, 1), [Decimal("9007199254740993.5"), Decimal("-9007199254740993.5")]),
    "short": (pa.decimal128(15, 6), [Decimal("0.000001"), Decimal("123456789.123456")]),
}


@pytest.mark.parametrize("name", list(DECIMALS))
def test_a_long_decimal_is_found_whatever_bounds_the_log_has(session: Session, root: Path, name: str) -> None:
    kind, values = DECIMALS[name]
    column = pa.array(values, kind)
    write_deltalake(root / "main" / "plain", pa.table({"i": column, "s": pa.StructArray.from_arrays([column], ["d"])}))
    for value in values:
        literal = f"cast('{value:f}' as decimal({kind.precision},{kind.scale}))"
        assert session.sql(f"select i from plain where i = {literal}").collect() == [{"i": value}]
        assert session.sql(f"select i from plain where s.d >= {literal} and s.d <= {literal}").collect() == [
            {"i": value}
        ]
        joined = f"select plain.i from plain join (select {literal} as k) as other on plain.i = other.k"
        assert session.sql(joined).collect() == [{"i": value}]
        assert session.scan("plain", ReadSpec(predicate=f"i = {literal}")).collect()[0]["i"] == value


def test_a_long_decimal_is_updated_merged_and_compacted(session: Session, root: Path) -> None:
    plain = root / "main" / "plain"
    for value in (LONG, LONG + 1, Decimal(1)):
        write_deltalake(plain, pa.table({"i": pa.array([value], pa.decimal128(38, 2)), "n": [1]}), mode="append")
    assert session.sql(f"update plain set n = 2 where i = cast('{LONG}' as decimal(38,2))").rows_updated == 1
    source = pa.table({"i": pa.array([LONG + 1], pa.decimal128(38, 2)), "n": pa.array([3], pa.int64())})
    assert session.execute("plain", MergeSpec(keys=("i",)), source).rows_updated == 1
    session.execute("plain", OptimizeSpec())
    expected = [(Decimal(1), 1), (LONG, 2), (LONG + 1, 3)]
    assert sorted(rows_of(session.sql("select * from plain"))) == expected
    assert session.sql(f"delete from plain where i = cast('{LONG}' as decimal(38,2))").rows_deleted == 1
    assert sorted(rows_of(session.sql("select * from plain"))) == [expected[0], expected[2]]


def test_our_own_files_have_no_bounds_of_long_numbers(duck: Session) -> None:
    duck.sql(
        "create table t as select cast('123456789012345678.91' as decimal(38,2)) as i, 12345678901234567890::hugeint as h, "
        "18446744073709551615::ubigint as u, 1 as k"
    )
    duck.sql("create table nested as select {'d': cast(1 as decimal(20, 2))} as s")
    duck.sql("insert into t select i + 1, h + 1, u - 1, 2 from t")
    duck.sql(
        "merge into t using (select 2 as k, 5::decimal(38,2) as i) s on t.k = s.k when matched then update set i = s.i"
    )
    for name, bounded in (("t", {"k"}), ("nested", set())):
        adds = pa.table(DeltaTable(str(Path(duck.lake.root) / "main" / name)).get_add_actions(flatten=True))
        with_bounds = {c.removeprefix("max.") for c in adds.column_names if c.startswith("max.")}
        assert {c for c in with_bounds if adds.column(f"max.{c}").null_count < adds.num_rows} == bounded


# ---------------------------------------------------------------- what ends the instance


def test_lists_that_we_write_are_read_as_they_are(duck: Session) -> None:
    """delta_rs lays them out by DuckDB's name of their elements, which delta_scan() reads too."""
    lists = (
        "[i, null] as l, {'a': [i]} as st, map {'k': [i]} as m, [{'t': i, 'u': [i]}, null] as ls, [[i], null, []] as ll"
    )
    query = f"select i::int as id, {lists} from range(3) r(i) order by i"
    for name, writer in (("a", "delta_rs"), ("b", "staged")):
        assert duck.execute(name, WriteSpec("error", writer=writer), duckrun.SQL(query)).writer == writer
    for name in ("a", "b"):
        assert duck.snapshot(name).legacy() == frozenset()
        assert duck.sql(f"from {name} order by id").collect() == duck.sql(query).collect()


def test_rowid_is_no_column_of_a_table(duck: Session) -> None:
    duck.sql("create table t as select 1 as x")
    for query in ("select rowid from t", "select * from t where rowid = 0", "select t.rowid from t join t u using (x)"):
        with pytest.raises(InvalidConfig, match="rowid"):
            duck.sql(query).toArrow()
        assert duck.sql("select x from t").collect() == [{"x": 1}]


def test_a_session_whose_duckdb_ended_goes_on_with_a_new_one(duck: Session, caplog: pytest.LogCaptureFixture) -> None:
    duck.sql("create table t as select 1 as x")
    duck.register("values_of_mine", pa.table({"a": [1]}))
    duck.sql("create temp view seen as select x + 1 as y from t")
    duck.sql("create temp table kept as select 1 as z")
    connection = duck.engine.connection  # type: ignore[attr-defined]
    location = duck.table("t").ref.location
    with pytest.raises(Exception, match="INTERNAL"):
        connection.cursor().execute(f"select rowid from delta_scan('{location}')").fetchall()
    with caplog.at_level(logging.WARNING):
        assert duck.sql("select x from t").collect() == [{"x": 1}]
    assert "without the temporary kept" in caplog.text
    assert duck.sql("select y, a from seen, values_of_mine").collect() == [{"y": 2, "a": 1}]
    with pytest.raises(duckrun.TableNotFound, match="kept"):
        duck.sql("select * from kept")
    duck.sql("create temp table kept as select 2 as z")
    assert duck.sql("select z from kept").collect() == [{"z": 2}]
    assert duck.sql("insert into t select 2").rows_inserted == 1


# ---------------------------------------------------------------- a checkpoint that is not there


@pytest.fixture
def log(root: Path) -> Path:
    """The log of a table of twelve commits with a checkpoint of version 10."""
    table = root / "main" / "t"
    for i in range(12):
        write_deltalake(table, pa.table({"a": [i]}), mode="append")
        if i == 10:
            DeltaTable(table).create_checkpoint()
    return table / "_delta_log"


def _lost(log: Path) -> None:
    (log / "00000000000000000010.checkpoint.parquet").unlink()


def _empty(log: Path) -> None:
    (log / "00000000000000000010.checkpoint.parquet").write_bytes(b"")


def _of_another_version(log: Path) -> None:
    (log / "_last_checkpoint").write_text('{"version":7,"size":3}')


@pytest.mark.parametrize("harm", [_lost, _empty, _of_another_version])
def test_a_table_whose_checkpoint_is_not_there_is_read_from_its_commits(session: Session, log: Path, harm: Any) -> None:
    harm(log)
    assert session.sql("select count(*) as n, max(a) as a from t").collect() == [{"n": 12, "a": 11}]
    assert session.table("t").toDF(9).count() == 10
    session.sql("insert into t values (100)")
    assert session.sql("select count(*) as n from t").collect() == [{"n": 13}]


def test_a_read_only_lake_does_not_mend_the_log(root: Path, log: Path) -> None:
    _lost(log)
    before = sorted(os.listdir(log))
    with (
        duckrun.connect(root, read_only=True) as session,
        pytest.raises(StorageError, match="main.t.*_last_checkpoint"),
    ):
        session.sql("select * from t")
    assert sorted(os.listdir(log)) == before


def test_a_table_whose_commits_are_gone_too_is_refused_by_name(duck: Session, log: Path) -> None:
    _lost(log)
    (log / "00000000000000000003.json").unlink()
    with pytest.raises(StorageError, match="main.t"):
        duck.sql("select * from t")
    shutil.rmtree(log.parent)
