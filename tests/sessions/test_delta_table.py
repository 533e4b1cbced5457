"""DeltaTable: merges, updates, deletes and maintenance by Spark's names, on both engines."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as PlainTable, Schema

import duckrun
from duckrun import (
    CommitConflict,
    DeltaTable,
    DuplicateSourceKeys,
    InvalidConfig,
    SchemaMismatch,
    TableNotFound,
    UnsupportedFeature,
    WriteSpec,
)
from duckrun.session import Session
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats

# What does not depend on the engine: Spark takes seconds for each of its commits.
once = pytest.mark.parametrize("engine", ["duckdb"])

STOCK = pa.table({"id": [1, 2, 3], "item": ["fig", "kiwi", "nut"], "qty": [10, 20, 30]})


@pytest.fixture
def stock(session: Session) -> duckrun.Table:
    session.execute("main.stock", WriteSpec("error"), STOCK)
    return DeltaTable.forName(session, "main.stock").alias("t")


def changes(session: Session, **columns: list[Any]) -> duckrun.Frame:
    session.register("changes", pa.table(columns))
    return session.sql("select * from changes").alias("s")


@pytest.mark.lacks_format("ducklake", TableNotFound, "its tables have no folders")
def test_delta_table_is_table_and_is_found_by_name_and_by_path(
    session: Session, stock: duckrun.Table, root: Path
) -> None:
    assert duckrun.DeltaTable is duckrun.Table
    by_path = DeltaTable.forPath(session, root / "main" / "stock")
    assert by_path.ref == session.table("main.stock").ref == stock.ref
    assert DeltaTable.isDeltaTable(session, root / "main" / "stock")
    assert not DeltaTable.isDeltaTable(session, root / "main")
    with pytest.raises(TableNotFound, match=r"main\.stock"):
        DeltaTable.forName(session, "main.stok")


def test_a_merge_with_every_clause_is_one_commit(session: Session, stock: duckrun.Table) -> None:
    source = changes(session, id=[1, 2, 4], item=["fig", "kiwi", "pear"], qty=[5, 0, 40])
    commit = (
        stock.merge(source, "t.id = s.id")
        .whenMatchedDelete("s.qty = 0")
        .whenMatchedUpdate(set={"qty": "t.qty + s.qty"})
        .whenNotMatchedInsert("s.qty > 1", values={"id": "s.id", "item": "upper(s.item)", "qty": "s.qty"})
        .whenNotMatchedBySourceUpdate("t.qty > 25", set={"t.qty": "t.qty - 25"})
        .whenNotMatchedBySourceDelete()
        .execute()
    )
    assert rows_of(stock.toDF()) == [(1, "fig", 15), (3, "nut", 5), (4, "PEAR", 40)]
    assert (commit.version, commit.rows_inserted, commit.rows_updated, commit.rows_deleted) == (nth(1), 1, 2, 1)


def test_a_condition_may_say_more_than_the_key(session: Session, stock: duckrun.Table) -> None:
    source = changes(session, id=[1, 3], item=["fig", "nut"], qty=[11, 31])
    stock.merge(source, "s.id = t.id AND (t.qty < 20)").whenMatchedUpdateAll().execute()
    assert rows_of(stock.toDF(), "id", "qty") == [(1, 11), (2, 20), (3, 30)]


@once
def test_keys_may_have_another_name_in_a_frame(session: Session, stock: duckrun.Table) -> None:
    source = changes(session, number=[2], added=[7])
    stock.merge(source, "t.id = s.number").whenMatchedUpdate(set={"qty": "t.qty + s.added"}).execute()
    assert rows_of(stock.toDF(), "id", "qty") == [(1, 10), (2, 27), (3, 30)]
    with pytest.raises(InvalidConfig, match="give a Frame, or rename them"):
        stock.merge(pd.DataFrame({"number": [2]}), "t.id = s.number").whenMatchedDelete().execute()


@once
def test_a_source_without_an_alias_has_the_name_that_the_condition_uses(stock: duckrun.Table) -> None:
    stock.merge(pd.DataFrame({"id": [1]}), "t.id = gone.id").whenMatchedDelete().execute()
    assert rows_of(stock.toDF(), "id") == [(2,), (3,)]
    plain = duckrun.Table(stock.session, stock.ref)
    plain.merge(pd.DataFrame({"id": [2]}), "target.id = source.id").whenMatchedDelete().execute()
    assert rows_of(stock.toDF(), "id") == [(3,)]


def test_a_merge_adds_columns_when_asked_to(session: Session, stock: duckrun.Table) -> None:
    source = changes(session, id=[3, 4], item=["nut", "pear"], qty=[3, 4], note=["a", "b"])
    upsert = stock.merge(source, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll()
    with pytest.raises(SchemaMismatch, match="note"):
        upsert.execute()
    upsert.withSchemaEvolution().execute()
    assert rows_of(stock.toDF(), "id", "note") == [(1, None), (2, None), (3, "a"), (4, "b")]


@once
def test_duplicate_source_keys_are_counted_and_shown(session: Session, stock: duckrun.Table) -> None:
    source = changes(session, id=[1, 1], item=["a", "b"], qty=[1, 2])
    with pytest.raises(DuplicateSourceKeys, match="1"):
        stock.merge(source, "t.id = s.id").whenMatchedUpdateAll().execute()
    assert stock.snapshot().version == nth(0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda t, s: t.merge(s, "t.qty > s.qty").whenMatchedDelete(), "has no key"),
        (lambda t, s: t.merge(s, "t.id = "), "no clause"),
        (lambda t, s: t.merge(s, "t.id = ").whenMatchedDelete(), "cannot read 't.id = '"),
        (lambda t, s: t.merge(s, "t.id = x.id").whenMatchedDelete(), "x.id is no column here"),
        (lambda t, s: t.merge(s, "t.id = s.id").whenMatchedUpdate(set={"s.qty": "1"}), "no column 's.qty' to set"),
        (lambda t, s: t.merge(s, "t.id = s.id").whenMatchedDelete("qty > 1"), "ambiguous"),
        (lambda t, s: t.merge(s, "t.id = s.id").whenMatchedDelete("s.gty > 1"), "no column gty"),
        (lambda t, s: t.merge(s, "t.id = s.id").whenMatchedDelete("(select true)"), "holds a query"),
        (lambda t, s: t.merge(s, "t.id = s.id").whenMatchedUpdate(set={"qty": 1}), "give SQL as text"),
        (lambda t, s: t.merge(s, "t.id = s.id").whenMatchedUpdate(), "needs set"),
        (lambda t, s: t.merge(s, "t.id = s.id").whenNotMatchedInsert(), "needs values"),
    ],
)
def test_a_merge_that_cannot_be_is_refused_before_it_runs(root: Path, build: Any, message: str) -> None:
    with duckrun.connect(root) as session:
        session.execute("main.stock", WriteSpec("error"), STOCK)
        table = session.table("main.stock").alias("t")
        with pytest.raises(InvalidConfig, match=message):
            build(table, changes(session, id=[1], qty=[1])).execute()
        assert table.snapshot().version == nth(0)


def test_update_and_delete_by_condition(stock: duckrun.Table) -> None:
    assert stock.update("t.qty >= 20", {"qty": "t.qty * 2", "item": "'big ' || item"}).rows_updated == 2
    assert stock.delete("item = 'big nut'").rows_deleted == 1
    assert rows_of(stock.toDF()) == [(1, "fig", 10), (2, "big kiwi", 40)]
    stock.update(set={"qty": "0"})
    assert rows_of(stock.toDF(), "qty") == [(0,), (0,)]
    stock.delete()
    assert stock.toDF().count() == 0
    with pytest.raises(InvalidConfig, match="needs set"):
        stock.update("true")


def test_history_detail_and_the_way_back(stock: duckrun.Table) -> None:
    first = stock.history()[0]["timestamp"]
    stock.delete("id = 1")
    assert [entry["version"] for entry in stock.history()] == [nth(1), nth(0)]
    assert [entry["version"] for entry in stock.history(1)] == [nth(1)]
    assert stock.detail()["name"] == "main.stock"
    assert stock.restoreToVersion(nth(0)).version == nth(2)
    stock.delete("id = 2")
    stock.restoreToTimestamp(pd.Timestamp(first, unit="ms", tz="UTC").isoformat())
    assert rows_of(stock.toDF()) == rows_of(STOCK)


@pytest.mark.only_format("delta", "figures out of the log")
def test_compaction_keeps_the_rows_in_fewer_files(stock: duckrun.Table) -> None:
    stock.session.execute("main.stock", WriteSpec("append"), STOCK)
    before = stock.detail()["numFiles"]
    result = stock.optimize().executeCompaction()
    assert (result.files_before, result.files_after) == (before, 1)
    log = Path(stock.ref.location, "_delta_log", f"{result.version:020d}.json").read_text(encoding="utf-8")
    actions = [json.loads(line) for line in log.splitlines()]
    for kind, files, size in (
        ("add", result.files_added, result.bytes_added),
        ("remove", result.files_removed, result.bytes_removed),
    ):
        said = [action[kind]["size"] for action in actions if kind in action]
        assert (files, size) == (len(said), sum(said)) and files
    again = stock.optimize().executeCompaction()
    assert (again.version, again.files_added, again.bytes_removed) == (None, 0, 0)
    assert stock.detail()["numFiles"] == 1
    assert rows_of(stock.toDF()) == sorted(rows_of(STOCK) * 2, key=repr)
    with pytest.raises(InvalidConfig, match="at least one column"):
        stock.optimize().executeZOrderBy()


@pytest.mark.lacks_format("ducklake", UnsupportedFeature, "it has sort_by")
def test_z_order_takes_names_and_lists_of_them(stock: duckrun.Table) -> None:
    result = stock.optimize().executeZOrderBy(["id", "item"], "qty")
    assert json.loads(stock.history(1)[0]["operationParameters"]["zOrderBy"]) == ["id", "item", "qty"]
    assert (result.files_added, rows_of(stock.toDF())) == (1, rows_of(STOCK))


@once
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s, t: DeltaTable.forName(s, 3), r"forName\(\): tableOrViewName is 3, a int; give text"),
        (lambda s, t: DeltaTable.forPath(s, None), r"forPath\(\): path is None"),
        (lambda s, t: DeltaTable.isDeltaTable(s, 1), "identifier is 1"),
        (lambda s, t: t.alias(1), "aliasName is 1"),
        (lambda s, t: t.toDF(version="1"), r"toDF\(\): version is '1', a str; give a whole number"),
        (lambda s, t: t.toDF(timestamp=1), "timestamp is 1"),
        (lambda s, t: t.snapshot(version=True), r"snapshot\(\): version is True"),
        (lambda s, t: t.history("1"), r"history\(\): limit is '1'"),
        (lambda s, t: t.vacuum("a week"), r"retentionHours is 'a week', a str; give a whole number or a number"),
        (lambda s, t: t.restoreToVersion("0"), r"restoreToVersion\(\): version is '0'"),
        (lambda s, t: t.restoreToTimestamp(0), "timestamp is 0"),
        (lambda s, t: t.update(set="qty = 1"), r"update\(\): set is 'qty = 1', a str; give a mapping"),
        (lambda s, t: t.update(1, {"qty": "1"}), "1 is a int; give SQL as text"),
        (lambda s, t: t.delete(1), "1 is a int; give SQL as text"),
        (lambda s, t: t.merge(STOCK, "t.id = s.id").whenMatchedUpdate(set=["qty"]), r"whenMatchedUpdate\(\): set is"),
        (lambda s, t: t.optimize().where(1), "partitionFilter is 1"),
        (lambda s, t: t.optimize().executeZOrderBy(["id", 2]), r"executeZOrderBy\(\): cols is 2"),
        (lambda s, t: t.addFeatureSupport(1), "featureName is 1"),
        (lambda s, t: t.upgradeTableProtocol("1", 2), "readerVersion is '1'"),
        (lambda s, t: t.upgradeTableProtocol(1, 9), r"main\.stock.*(readers have the versions 1 to 3|of Delta tables)"),
        (lambda s, t: DeltaTable.convertToDelta(s, 1), "identifier is 1"),
        (
            lambda s, t: DeltaTable.forName(object(), "stock"),
            r"forName\(\): session is a object; give that of duckrun.connect",
        ),
        (lambda s, t: DeltaTable.create(None), r"create\(\): session is a NoneType"),
        (lambda s, t: t.update(set={7: "1"}), r"update\(\): set is 7"),
        (
            lambda s, t: t.merge(STOCK, "t.id = s.id").whenMatchedUpdate(set={7: "1"}),
            r"whenMatchedUpdate\(\): set is 7",
        ),
        (lambda s, t: s.sql(7), r"sql\(\): text is 7, a int; give text"),
        (lambda s, t: s.sql("delete from stock", app="nightly"), r"sql\(\): app is 'nightly'"),
        (lambda s, t: s.table(7), "a table: name is 7"),
        (lambda s, t: s.scan("stock", 7), r"scan\(\): spec is 7"),
        (lambda s, t: s.execute("stock", "append", STOCK), r"execute\(\): spec is 'append'"),
        (lambda s, t: s.register(7, STOCK), r"register\(\): name is 7"),
        (lambda s, t: s.attach("/a", 7), r"attach\(\): name is 7"),
        (lambda s, t: s.detach(7), r"detach\(\): name is 7"),
        (lambda s, t: s.read.table(7), r"table\(\): tableName is 7"),
        (lambda s, t: s.read.option(["a"], 1), r"option\(\): key is"),
        (lambda s, t: t.toDF().write.option(["a"], 1), r"option\(\): key is"),
        (lambda s, t: t.toDF().write.partitionBy("a", 7), r"partitionBy\(\): cols is 7"),
        (lambda s, t: t.toDF().write.saveAsTable(7), "a table: name is 7"),
        (lambda s, t: t.toDF().limit("1"), r"limit\(\): rows is '1'"),
        (lambda s, t: t.toDF().createOrReplaceTempView(7), r"createOrReplaceTempView\(\): name is 7"),
        (lambda s, t: DeltaTable.convertToDelta(s, "/a"), r"give a folder as parquet\."),
        (lambda s, t: DeltaTable.convertToDelta(s, "parquet.`/a`", "day"), "a name and a type|no list of columns"),
        (lambda s, t: DeltaTable.convertToDelta(s, "parquet.`/a`", 3), "partitionSchema is 3, a int"),
    ],
)
def test_arguments_of_a_wrong_type_are_named(session: Session, stock: duckrun.Table, call: Any, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        call(session, stock)
    assert stock.snapshot().version == nth(0)


@once
@pytest.mark.parametrize(
    "schema", ["n INT, `a day` DATE", pa.schema([("n", pa.int32()), ("a day", pa.date32())])], ids=["sql", "arrow"]
)
def test_a_folder_of_parquet_becomes_a_table(session: Session, tmp_path: Path, schema: Any) -> None:
    folder = tmp_path / "it's é"
    file = folder / "n=1" / "a day=2024-05-01" / "x.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), file)
    with pytest.raises(InvalidConfig, match="n=1"):
        DeltaTable.convertToDelta(session, f"parquet.`{folder}`")
    table = DeltaTable.convertToDelta(session, f"parquet.`{folder}`", schema)
    day = date(2024, 5, 1)
    assert rows_of(table.toDF(), "id", "n", "a day") == [(1, 1, day), (2, 1, day)]
    assert rows_of(PlainTable(table.ref.location).to_pyarrow_table(), "id", "n", "a day") == rows_of(
        table.toDF(), "id", "n", "a day"
    )
    with pytest.raises(CommitConflict, match="nothing to convert"):
        DeltaTable.convertToDelta(session, f"parquet.`{folder}`", schema)


@pytest.mark.only_format("delta", "table features")
def test_features_and_protocol_versions_are_asked_for(session: Session, stock: duckrun.Table) -> None:
    def protocol() -> tuple[int, int]:
        found = PlainTable(stock.ref.location).protocol()
        return found.min_reader_version, found.min_writer_version

    first = protocol()
    assert stock.upgradeTableProtocol(1, 3).version == nth(1)
    assert protocol() == max(first, (1, 3))
    assert stock.addFeatureSupport("deletionVectors").version == nth(2)
    assert stock.upgradeTableProtocol(3, 7).version in (2, 3) and protocol() == (3, 7)
    features = set(PlainTable(stock.ref.location).protocol().writer_features or ())
    assert {"deletionVectors", "appendOnly", "invariants"} <= features
    stock.update(set={"qty": "qty + 1"})
    assert rows_of(stock.toDF()) == [(id, item, qty + 1) for id, item, qty in rows_of(STOCK)]
    refused = UnsupportedFeature if session.engine_name == "duckdb" else InvalidConfig
    with pytest.raises(refused, match=r"(?is)main\.stock.*noSuchFeature"):
        stock.addFeatureSupport("noSuchFeature")
    with pytest.raises(InvalidConfig, match="goes with 7"):
        stock.upgradeTableProtocol(3, 5)


@pytest.mark.only_format("delta", "table features")
def test_an_upgrade_lists_the_features_that_the_versions_stood_for(duck: Session) -> None:
    duck.sql("create table t (id int)")
    duck.table("t").upgradeTableProtocol(2, 5)
    duck.table("t").upgradeTableProtocol(3, 7)
    assert "columnMapping" in (PlainTable(duck.table("t").ref.location).protocol().reader_features or ())
    duck.sql("insert into t values (1)")
    assert rows_of(duck.sql("from t")) == [(1,)]


@pytest.mark.lacks_format("ducklake", UnsupportedFeature, "it has expire and cleanup")
@once
def test_vacuum_keeps_what_the_table_still_needs(stock: duckrun.Table) -> None:
    stock.delete("id = 1")
    assert stock.vacuum().removed == ()
    assert stock.toDF(version=nth(0)).count() == 3


@pytest.mark.only_format("delta", "compared in deltalake")
def test_a_clone_has_the_rows_and_the_definition_in_files_of_its_own(session: Session) -> None:
    session.sql("""
        create table stock (id bigint not null comment 'of the shop', item varchar, day date,
            constraint known check (id > 0))
        partitioned by (day) sorted by (item)
    """)
    session.sql("comment on table stock is 'what lies there'")
    session.sql("insert into stock values (1, 'fig', '2026-01-01'), (2, null, '2026-01-02')")
    session.sql("delete from stock where id = 1")
    now = session.table("stock").clone("copies.now", properties={"delta.appendOnly": "true"})
    before = session.table("stock").cloneAtVersion(session.table("stock").snapshot().version - 1, "copies.before")
    assert rows_of(now.toDF()) == [(2, None, date(2026, 1, 2))]
    assert rows_of(before.toDF()) == [(1, "fig", date(2026, 1, 1)), (2, None, date(2026, 1, 2))]
    original, copy = PlainTable(session.table("stock").ref.location), PlainTable(now.ref.location)
    assert copy.schema() == original.schema() and copy.metadata().partition_columns == ["day"]
    assert copy.metadata().description == "what lies there"
    theirs, ours = (dict(table.metadata().configuration) for table in (original, copy))
    assert ours.pop("delta.appendOnly") == "true"
    ours.pop("duckrun.constraints", None)  # which constraints a later write may change
    theirs.pop("duckrun.constraints", None)
    assert ours == theirs and ours["delta.constraints.known"]
    assert copy.version() == 0
    with pytest.raises(SchemaMismatch, match="known"):
        session.sql("insert into copies.before values (-1, 'x', '2026-01-01')")
    with pytest.raises(CommitConflict, match=r"copies\.before"):
        session.table("stock").clone("copies.before")
    session.table("stock").clone("copies.before", replace=True)
    assert rows_of(before.toDF()) == [(2, None, date(2026, 1, 2))]


@pytest.mark.only_format("delta", "a table that deltalake made")
def test_manifests_and_clones_that_would_lose_something_are_refused_by_name(root: Path) -> None:
    with duckrun.connect(root) as session:
        session.execute("main.stock", WriteSpec("error"), STOCK)
        with pytest.raises(UnsupportedFeature, match="generate"):
            session.table("main.stock").generate("symlink_format_manifest")
        with pytest.raises(UnsupportedFeature, match=r"main\.stock: cloneAtVersion\(\) with isShallow=True"):
            session.table("main.stock").cloneAtVersion(0, "main.copy", isShallow=True)
        assert session.tables() == ["main.stock"]


@pytest.mark.only_format("delta", "a table that deltalake made")
def test_a_clone_that_would_lose_not_null_inside_of_a_type_is_refused(root: Path) -> None:
    number = pa.field("n", pa.int64(), nullable=False)
    kinds = [pa.list_(pa.struct([number])), pa.list_(number), pa.map_(pa.string(), number)]
    with duckrun.connect(root) as session:
        for i, kind in enumerate(kinds):
            strict = pa.schema([pa.field("id", pa.int64()), pa.field("deep", kind)])
            PlainTable.create(str(root / "main" / f"strict_{i}"), schema=Schema.from_arrow(strict))
            with pytest.raises(UnsupportedFeature, match=rf"main\.strict_{i} has NOT NULL inside of deep"):
                session.table(f"main.strict_{i}").clone("main.copy")
        assert session.tables() == ["main.strict_0", "main.strict_1", "main.strict_2"]
