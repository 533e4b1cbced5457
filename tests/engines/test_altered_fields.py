"""Fields of structs that ALTER TABLE adds, drops, renames and widens, on tables with features: the log alone says so, by either engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import DuckrunError, InvalidConfig, ReadSpec, SchemaMismatch, Session, UnsupportedFeature
from duckrun.values.tables import AddColumn, AlterSpec, ChangeType, ColumnSpec, InStruct, RenameColumn
from tests.engines.spark_checks import read
from tests.lake import rows_of

pytestmark = pytest.mark.spark
ENGINES = ("duckdb", "spark")
MAPPED = "'delta.columnMapping.mode' = 'name'"
FEATURES = {
    "mapped": MAPPED,
    "by id": "'delta.columnMapping.mode' = 'id'",
    "all": f"{MAPPED}, 'delta.enableDeletionVectors' = 'true', 'delta.enableRowTracking' = 'true', "
    "'delta.enableInCommitTimestamps' = 'true', 'delta.enableChangeDataFeed' = 'true'",
}
COLUMNS = (
    "id bigint, s struct<a: int, d: struct<x: int, y: string>, `b ``c`: int>, l array<struct<k: int, v: string>>, "
    "m map<string, struct<q: int>>"
)
ROW = "select {0}L, named_struct({1}), array(named_struct({2})), map('k', named_struct({3}))"
OLD = ("'a', 1, 'd', named_struct('x', 2, 'y', 'y'), 'b `c', 3", "'k', 4, 'v', 'v'", "'q', 5")
NEW = ("'aa', 10000000000L, 'd', named_struct('xx', 7), 'e', 8, 'z', 9.5D", "'kk', 6, 'w', 5", "'q', 5, 'r', 'r'")
CHANGES = (
    "rename column s.a to aa",
    "rename column s.d.x to xx",
    "drop column s.d.y",
    "rename column s.`b ``c` to e",
    "add column s.z double",
    "rename column l.element.k to kk",
    "add columns (l.element.w int)",
    "drop column l.element.v",
    "add column m.value.r string",
    "alter column s.aa type bigint",
)
BEFORE: tuple[Any, ...] = (1, {"a": 1, "d": {"x": 2, "y": "y"}, "b `c": 3}, [{"k": 4, "v": "v"}], [("k", {"q": 5})])
AFTER: list[tuple[Any, ...]] = [
    (1, {"aa": 1, "d": {"xx": 2}, "e": 3, "z": None}, [{"kk": 4, "w": None}], [("k", {"q": 5, "r": None})]),
    (2, {"aa": 10**10, "d": {"xx": 7}, "e": 8, "z": 9.5}, [{"kk": 6, "w": 5}], [("k", {"q": 5, "r": "r"})]),
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[dict[str, Session]]:
    root = tmp_path_factory.mktemp("fields") / "lake"
    with duckrun.connect(root) as duck, duckrun.connect(root, engine="spark", spark=spark) as other:
        yield {"duckdb": duck, "spark": other}


def _made(session: Session, name: str, properties: str) -> None:
    session.sql(f"create table {name} ({COLUMNS}) using delta tblproperties ({properties})", dialect="spark")
    session.sql(f"insert into {name} {ROW.format(1, *OLD)}", dialect="spark")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("features", FEATURES)
def test_fields_of_a_mapped_table_are_changed_by_the_log_alone(
    both: dict[str, Session], spark: Any, features: str, engine: str
) -> None:
    name, session = f"main.{features.replace(' ', '_')}_{engine}", both[engine]
    _made(session, name, FEATURES[features] + ", 'delta.enableTypeWidening' = 'true'")
    first = session.snapshot(name).version
    for change in CHANGES:
        session.sql(f"alter table {name} {change}", dialect="spark")
    log = Path(session.ref(name).location, "_delta_log")
    newest = session.snapshot(name).version
    assert newest == first + len(CHANGES)
    for version in range(first + 1, newest + 1):
        actions = [json.loads(line) for line in (log / f"{version:020d}.json").read_text().splitlines()]
        assert not [action for action in actions if "add" in action or "remove" in action], CHANGES[version - first - 1]
    session.sql(f"insert into {name} {ROW.format(2, *NEW)}", dialect="spark")
    for reader in both.values():
        assert rows_of(reader.scan(name)) == AFTER
        assert rows_of(reader.scan(name, ReadSpec(version=first))) == [BEFORE]
    asked = "id, s.aa, s.d.xx, s.e, s.z, l[0].kk, l[0].w, m['k'].q, m['k'].r"
    expected = [(1, 1, 2, 3, None, 4, None, 5, None), (2, 10**10, 7, 8, 9.5, 6, 5, 5, "r")]
    assert read(spark, log.parent, asked, anew=True) == expected
    for other in both.values():  # each writes on, whoever altered
        other.sql(f"update {name} set s = null where s.d.xx = 7")
        other.sql(f"update {name} set s = named_struct({NEW[0]}) where id = 2", dialect="spark")
    assert read(spark, log.parent, asked, anew=True) == expected


@pytest.mark.parametrize("engine", ENGINES)
def test_the_list_of_columns_with_statistics_follows_a_field(both: dict[str, Session], engine: str) -> None:
    name, session = f"main.listed_{engine}", both[engine]
    _made(session, name, f"{MAPPED}, 'delta.dataSkippingStatsColumns' = 'id,s.a,s.d.x'")
    session.sql(f"alter table {name} rename column s.d.x to xx", dialect="spark")
    session.sql(f"alter table {name} drop column s.a", dialect="spark")
    assert session.snapshot(name).properties["delta.dataSkippingStatsColumns"] == "id,s.d.xx"


REFUSED: tuple[tuple[str, type[DuckrunError], str], ...] = (
    ("rename column s.none to n", SchemaMismatch, "no field 'none' in s; the fields are a, d"),
    ("rename column s.a to d", SchemaMismatch, "'d'"),
    ("add column s.A int", SchemaMismatch, "'[aA]'"),
    ("drop column m.value.q", InvalidConfig, "last field of its struct"),
    ("rename column id.x to y", SchemaMismatch, "id is .*which has no fields"),
    ("add column l.x int", SchemaMismatch, "l is a list.*named by l.element"),
    ("alter column s.a type smallint", SchemaMismatch, "cannot become"),
)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_no_table_takes_is_refused_alike(both: dict[str, Session], engine: str) -> None:
    name, session = f"main.refused_{engine}", both[engine]
    _made(session, name, f"{MAPPED}, 'delta.enableTypeWidening' = 'true'")
    before = session.snapshot(name).version
    for change, error, says in REFUSED:
        with pytest.raises(error, match=rf"(?s){name}.*{says}"):
            session.sql(f"alter table {name} {change}", dialect="spark")
    assert session.snapshot(name).version == before


@pytest.mark.parametrize("engine", ENGINES)
def test_a_table_that_maps_no_columns_takes_new_fields_alone(both: dict[str, Session], engine: str) -> None:
    name, session = f"main.unmapped_{engine}", both[engine]
    session.sql(
        f"create table {name} (id bigint, s struct<a: int, b: int>) using delta tblproperties ('delta.enableRowTracking' = 'true')",
        dialect="spark",
    )
    session.sql(f"insert into {name} select 1L, named_struct('a', 1, 'b', 2)", dialect="spark")
    for change in ("rename column s.a to b2", "drop column s.a"):
        with pytest.raises(UnsupportedFeature, match=rf"(?s){name}.*s\.a cannot go.*delta\.columnMapping\.mode"):
            session.sql(f"alter table {name} {change}", dialect="spark")
    session.sql(f"alter table {name} add column s.c int", dialect="spark")
    for reader in both.values():
        assert rows_of(reader.scan(name)) == [(1, {"a": 1, "b": 2, "c": None})]


def test_spark_says_what_it_cannot_alter_where_only_its_own_statements_keep_the_features(
    both: dict[str, Session],
) -> None:
    name = "main.narrow"
    _made(both["spark"], name, MAPPED)
    wider = AlterSpec((InStruct(("s",), ChangeType("a", "BIGINT")),))
    same = AlterSpec((InStruct(("s",), ChangeType("a", "INT")),))
    before = both["spark"].snapshot(name).version
    for spec, says in (
        (wider, r"a field gets another type.*'delta\.enableTypeWidening' = 'true'.*engine: duckdb"),
        (AlterSpec((duckrun.SetNotNull("id"),)), r"makes no column NOT NULL that is there \(id\).*engine: duckdb"),
        (AlterSpec((duckrun.PartitionBy(("id",)),)), "the partitions of a Delta table are those that it was written"),
        (
            AlterSpec((InStruct(("s",), RenameColumn("a", "x")), InStruct(("s",), RenameColumn("x", "y")))),
            "give the 2 changes one by one",
        ),
    ):
        with pytest.raises(UnsupportedFeature, match=rf"(?s){name}.*{says}"):
            both["spark"].execute(name, spec)
    assert both["spark"].execute(name, same).version == before == both["spark"].snapshot(name).version
    both["duckdb"].execute(name, wider)
    commented = AddColumn(ColumnSpec("more", "INT", comment="it's more"))
    both["spark"].execute(name, AlterSpec((InStruct(("s",), commented),)))
    fields = json.loads(both["duckdb"].lake.format.definition(both["duckdb"].snapshot(name)).schema_json)["fields"]
    (inner,) = (field["type"]["fields"] for field in fields if field["name"] == "s")
    assert (inner[0]["type"], inner[-1]["name"], inner[-1]["metadata"]["comment"]) == ("long", "more", "it's more")
    for session in both.values():
        found = rows_of(session.scan(name))[0][1]
        assert found["a"] == 1 and found["more"] is None
