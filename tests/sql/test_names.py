"""Names that paths, URLs, globs and decoders take for something else: carried by everything that reads a lake, or refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import duckrun
from duckrun.errors import DuckrunError, InvalidConfig
from duckrun.session import Session
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.storage.extensions import extension_path
from duckrun.values.names import folder_of, name_of
from tests.alphabet import CONTROL_NAMES, GLOB_NAMES, PERCENT_NAMES, TABLE_NAMES

CARRIED = (*TABLE_NAMES, *GLOB_NAMES, "a:b", "a<b>", "a.", "a ", " a", "x%x25", "x%x2541", "\u0085")
REFUSED = (*CONTROL_NAMES, ".hidden", ".", "..", "_a", "a/b", "a\\b", "n" * 300, "é" * 130, "\ud800")
ROWS = [{"id": 1, "p": "a"}, {"id": 2, "p": "b"}]


@pytest.fixture(scope="module")
def plain() -> duckdb.DuckDBPyConnection:
    """DuckDB with its Delta extension, and nothing of ours."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD {quote_literal(extension_path('delta').as_posix())}")
    return connection


def write_all_ways(session: Session, table: str) -> None:
    """Create, append, merge, update and delete; then the table holds ROWS."""
    session.sql(f"create table {table} as select 1 as id, 'a' as p")
    session.sql(f"insert into {table} values (3, 'c')")
    session.sql(
        f"merge into {table} t using (select 2 as id, 'x' as p) s on t.id = s.id when not matched then insert (id, p) values (s.id, s.p)"
    )
    session.sql(f"update {table} set p = 'b' where id = 2")
    session.sql(f"delete from {table} where id = 3")


def rows(session: Session, table: str) -> list[dict[str, Any]]:
    return session.sql(f"select id, p from {table} order by id").collect()


@pytest.mark.drawn(5)
@pytest.mark.parametrize("name", CARRIED)
def test_a_name_is_written_read_listed_and_dropped(
    name: str, duck: Session, root: Path, plain: duckdb.DuckDBPyConnection
) -> None:
    table = quote_identifier(name, name)
    write_all_ways(duck, table)
    assert rows(duck, table) == ROWS
    assert duck.tables() == [f"{name}.{name}"]
    ref = duck.ref(duck.lake.resolve(name, name))
    for place in (ref.url, ref.location):
        found = DeltaTable(place).to_pyarrow_table().select(["id", "p"]).sort_by("id")
        assert found.to_pylist() == ROWS
    assert plain.execute(f"select id, p from delta_scan({quote_literal(ref.url)}) order by id").fetchall() == [
        (1, "a"),
        (2, "b"),
    ]
    assert [entry.name for entry in (root / folder_of(name)).iterdir() if not entry.name.startswith("_")] == [
        folder_of(name)
    ]
    duck.execute(ref, duckrun.WriteSpec("overwrite"), pa.table({"id": [7], "p": ["z"]}))
    duck.execute(ref, duckrun.WriteSpec("append"), pa.table({"id": [8], "p": ["z"]}))
    duck.sql(f"optimize {table}")
    assert duck.read.format("delta").load(ref.location).count() == 2
    duck.sql(f"drop table {table}")
    assert duck.tables() == []


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", CARRIED)
def test_a_partitioned_table_and_a_view_of_a_name(name: str, duck: Session) -> None:
    table, view = quote_identifier(name), quote_identifier("v" + name)
    column = quote_identifier("v" + name)
    duck.execute(
        duck.lake.resolve("main", name), duckrun.WriteSpec("error", partition_by=("p",)), pa.Table.from_pylist(ROWS)
    )
    duck.sql(f"create view {view} as select id as {column}, p from {table}")
    duck.sql(f"delete from {table} where p = 'a'")
    duck.sql(f"insert into {table} values (3, 'a')")
    assert duck.sql(f"select {column} as id, p from {view} order by 1").collect() == [
        {"id": 2, "p": "b"},
        {"id": 3, "p": "a"},
    ]
    assert duck.lake.views("main") == ["v" + name]
    duck.sql(f"drop view {view}")
    assert duck.tables() == [f"main.{name}"]


def test_names_that_decode_to_each_other_are_tables_of_their_own(session: Session) -> None:
    names = (
        "x%41",
        "xA",
        "x%x41",
        "x%2541",
        "a%20b",
        "a b",
        "%C3%A9",
        "é",
        "x%2Fy",
        "100%",
        "a[b]",
        "a*b",
        "a?b",
        "a|b",
        "*",
    )
    for number, name in enumerate(names):
        session.sql(f"create table {quote_identifier(name)} as select {number} as id")
    for number, name in enumerate(names):
        session.sql(f"update {quote_identifier(name)} set id = id + 100 where id = {number}")
    with duckrun.connect(session.lake.root) as other:
        for number, name in enumerate(names):
            for reader in (session, other):
                assert reader.table(quote_name(name)).toDF().collect() == [{"id": number + 100}], name
        other.sql('drop table "xA"')
        assert sorted(other.tables()) == sorted(f"main.{name}" for name in names if name != "xA")
        other.sql('insert into "x%41" values (0)')
    assert session.sql('select count(*) as n from "x%41"').collect() == [{"n": 2}]


def quote_name(name: str) -> str:
    assert "." not in name
    return name


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_cannot_be_a_folder_is_refused_before_anything_is_made(
    name: str, duck: Session, root: Path
) -> None:
    duck.sql("create table t as select 1 as id")
    before = sorted(str(path) for path in root.rglob("*"))
    for schema, table in (("main", name), (name, "t")):
        with pytest.raises(InvalidConfig, match="cannot name a schema or table"):
            duck.lake.resolve(schema, table)
    if "\ud800" not in name and "\0" not in name:
        with pytest.raises(DuckrunError):
            duck.sql(f"create table {quote_identifier(name)} as select 1 as id")
    assert sorted(str(path) for path in root.rglob("*")) == before
    assert duck.sql("select * from t").collect() == [{"id": 1}]


def test_folders_that_somebody_else_made_block_nothing(duck: Session, root: Path) -> None:
    duck.sql("create table t as select 1 as id")
    schema = root / "main"
    write_deltalake(str(root / "made"), pa.table({"id": [1]}))
    for name in ("a\nb", "a\tb", ".hidden", "x%41", "n" * 255, "_x"):
        (root / "made").rename(schema / name)
        (schema / name).rename(root / "made")
        (schema / name / "_delta_log").mkdir(parents=True)
        (schema / name / "_delta_log" / "00000000000000000000.json").write_text("{}")
        (root / name).mkdir()
    os.mkdir(os.fsencode(schema) + b"/\xff\xfe")
    (schema / "loop").symlink_to(schema / "loop")
    (schema / "gone").symlink_to(schema / "nowhere")
    (schema / "empty").mkdir()
    (schema / "log").mkdir()
    (schema / "log" / "_delta_log").write_text("a file")
    assert duck.tables() == ["main.t"]
    duck.sql("create table u as select 2 as id")
    assert duck.tables() == ["main.t", "main.u"]
    assert duck.sql("select t.id + u.id as n from t, u").collect() == [{"n": 3}]
    with pytest.raises(DuckrunError, match="Did you mean"):
        duck.table("tt")


@pytest.mark.drawn(4)
@pytest.mark.parametrize("folder", ["100% é", "a[b]", "a|b ^", "a?b*", "a#b", "日本", "{a}", "a:b"])
def test_a_root_and_an_attached_root_of_an_odd_name(folder: str, duck: Session, tmp_path: Path) -> None:
    with duckrun.connect(tmp_path / folder) as session:
        write_all_ways(session, '"s"."100%"')
        session.sql('create view v as select * from s."100%"')
        assert rows(session, "v") == ROWS
        assert session.tables() == ["main.v", "s.100%"]
        session.execute("s.100%", duckrun.WriteSpec("overwrite"), pa.Table.from_pylist(ROWS))
    duck.attach(tmp_path / folder, "other")
    duck.sql('create table copy as select * from other.s."100%"')
    duck.sql('insert into other.s."100%" select id + 10 as id, p from copy')
    assert duck.sql('select count(*) as n from other.s."100%"').collect() == [{"n": 4}]


@pytest.mark.parametrize("folder", ["x%41 é", "a\nb"])
def test_a_root_that_would_be_read_as_another_is_refused(folder: str, duck: Session, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="root_path"):
        duckrun.connect(tmp_path / folder)
    with pytest.raises(InvalidConfig, match="root_path"):
        duck.attach(tmp_path / folder, "other")
    with pytest.raises(InvalidConfig, match="location"):
        duck.read.format("delta").load(tmp_path / folder)
    assert not (tmp_path / folder).exists()


ON_S3 = (*PERCENT_NAMES, "a#b", "é", "a b", "a|b", "a[b]", "*", "a ", "a+b", "a&b")


@pytest.mark.drawn(5)
@pytest.mark.parametrize("part", range(5))
def test_names_on_s3(part: int, s3_bucket: Any, s3_options: dict[str, str]) -> None:
    root = s3_bucket(f"names-of-tables-{part}") + "/100% é#"
    names = {*ON_S3[part::5], "x%41", "xA"}
    with duckrun.connect(root, storage_options=s3_options) as session:
        for name in names:
            write_all_ways(session, quote_identifier(name))
        for name in names:
            assert rows(session, quote_identifier(name)) == ROWS, name
            ref = session.lake.resolve("main", name)
            assert DeltaTable(ref.url, storage_options=s3_options).to_pyarrow_table().num_rows == 2
        assert sorted(session.tables()) == sorted(f"main.{name}" for name in names)
        session.sql('drop table "xA"')
        assert "main.x%41" in session.tables()
        with pytest.raises(InvalidConfig, match="holds a \\?"):
            session.sql('create table "a?b" as select 1 as id')


@pytest.mark.parametrize("name", [*CARRIED, "%41", "%%41", "%x25", "%%x25", "%x2", "%x25x25"])
def test_a_folder_stands_for_one_name(name: str) -> None:
    assert name_of(folder_of(name)) == name
    assert folder_of(name) == name or name_of(name) is None or folder_of(name_of(name) or "") == name


def test_a_location_of_an_odd_name_is_kept_in_its_definition(duck: Session, tmp_path: Path) -> None:
    from duckrun.lake.lake import LocationDefinition

    ref = duck.lake.at(tmp_path / "100% é", schema="main", name="x%41")
    duck.execute(ref, duckrun.WriteSpec("error"), pa.Table.from_pylist(ROWS))
    duck.lake.put_definition(ref, LocationDefinition(ref.location))
    assert rows(duck, '"x%41"') == ROWS
    assert duck.tables() == ["main.x%41"]
    definition = Path(duck.lake.root, "main", "_duckrun", f"{folder_of('x%41')}.json")
    assert json.loads(definition.read_text())["location"] == str(tmp_path / "100% é")
