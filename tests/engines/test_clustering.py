"""Liquid clustering, when asked: made, kept and changed by each way to ask, on both engines, and refused where it cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import AppTransaction, DeltaTable, InvalidConfig, MergeSpec, SchemaMismatch, UnsupportedFeature, WriteSpec
from duckrun.session import Session
from duckrun.values.rows import DeleteInsertSpec, DeleteSpec, TableConstraints, UpdateSpec
from duckrun.values.tables import AlterSpec, ClusterBy, ColumnSpec, CreateSpec, OptimizeSpec
from tests.lake import rows_of

COLUMNS = (ColumnSpec("id", "BIGINT"), ColumnSpec("name", "VARCHAR"))


def names(*rows: tuple[int, str]) -> pa.Table:
    ids, words = zip(*rows, strict=True)
    return pa.table({"id": list(ids), "name": list(words)})


ROWS = names((1, "a"), (2, "b"), (3, "c"))


def clustering(session: Session, table: str = "main.t") -> list[str]:
    """What the log says that a table is clustered by, newest first."""
    log = Path(session.ref(table).location) / "_delta_log"
    for file in sorted(log.glob("*.json"), reverse=True):
        for line in file.read_text().splitlines():
            domain = json.loads(line).get("domainMetadata", {})
            if domain.get("domain") == "delta.clustering":
                return [".".join(parts) for parts in json.loads(domain["configuration"])["clusteringColumns"]]
    return []


def table_id(session: Session) -> str:
    return session.table("main.t").snapshot().table_id


def test_a_table_is_made_clustered_with_all_else_in_one_commit(session: Session) -> None:
    spec = WriteSpec(
        "error",
        cluster_by=("name", "ID"),
        description="it's \\ here",
        column_comments={"name": "the 'name'"},
        table_properties={"delta.appendOnly": "false", "team": "sales"},
        app=AppTransaction("nightly", 7),
    )
    assert session.execute("main.t", spec, ROWS).version == 0
    assert clustering(session) == ["name", "id"]
    snapshot = session.table("main.t").snapshot()
    assert snapshot.description == "it's \\ here"
    assert {"delta.appendOnly": "false", "team": "sales"}.items() <= snapshot.properties.items()
    assert snapshot.schema.field("name").metadata[b"comment"] == b"the 'name'"
    again = session.execute("main.t", spec, ROWS)
    assert again.replayed and again.version == 0


def test_it_stays_through_every_kind_of_write(session: Session) -> None:
    session.execute("main.t", WriteSpec("error", cluster_by=("name",)), ROWS)
    made = table_id(session)
    session.execute("main.t", WriteSpec("append", cluster_by=("NAME",)), names((4, "d")))
    session.execute("main.t", WriteSpec("replace", predicate="id = 4"), names((4, "e")))
    session.execute("main.t", MergeSpec(("id",)), names((1, "A"), (5, "f")))
    session.execute("main.t", DeleteInsertSpec(("id",)), names((5, "g")))
    session.execute("main.t", UpdateSpec({"name": "upper(name)"}, "id = 4"))
    session.execute("main.t", DeleteSpec("id = 3"))
    session.execute("main.t", OptimizeSpec())
    assert rows_of(session.scan("main.t")) == [(1, "A"), (2, "b"), (4, "E"), (5, "g")]
    assert (clustering(session), table_id(session)) == (["name"], made)
    session.execute("main.t", WriteSpec("overwrite"), names((6, "h")))
    assert rows_of(session.scan("main.t")) == [(6, "h")]
    assert (clustering(session), table_id(session)) == (["name"], made)
    with duckrun.connect(session.lake.root) as d:
        assert rows_of(d.scan("main.t")) == [(6, "h")]


def test_an_overwrite_with_other_columns_keeps_clustering_properties_and_description(session: Session) -> None:
    spec = WriteSpec("error", cluster_by=("name",), description="people", table_properties={"team": "sales"})
    session.execute("main.t", spec, ROWS)
    session.sql("ALTER TABLE main.t ADD CONSTRAINT few CHECK (id < 100)")
    wider = pa.table({"number": [1], "name": ["x"], "id": [9]})
    commit = session.execute("main.t", WriteSpec("overwrite", app=AppTransaction("nightly", 1)), wider)
    assert (
        session.execute("main.t", WriteSpec("overwrite", app=AppTransaction("nightly", 1)), wider).version
        == commit.version
    )
    snapshot = session.table("main.t").snapshot()
    assert (snapshot.schema.names, snapshot.description) == (["number", "name", "id"], "people")
    assert snapshot.properties["team"] == "sales" and clustering(session) == ["name"]
    with pytest.raises(SchemaMismatch, match="few"):
        session.execute("main.t", WriteSpec("append"), pa.table({"number": [1], "name": ["y"], "id": [100]}))
    with pytest.raises(SchemaMismatch, match=r"main\.t.*(clustering column name is missing|cluster_by names name)"):
        session.execute("main.t", WriteSpec("overwrite"), pa.table({"number": [1]}))
    assert rows_of(session.scan("main.t")) == [(1, "x", 9)]


@pytest.mark.slow
def test_an_overwrite_changes_and_ends_it(session: Session) -> None:
    session.execute("main.t", WriteSpec("error", partition_by=("name",)), ROWS)
    session.execute("main.t", WriteSpec("overwrite", cluster_by=("name", "id")), ROWS)
    assert (clustering(session), session.table("main.t").snapshot().partition_columns) == (["name", "id"], ())
    session.execute("main.t", WriteSpec("overwrite", cluster_by=("id",)), ROWS)
    assert clustering(session) == ["id"]
    session.execute("main.t", WriteSpec("overwrite", partition_by=("name",)), ROWS)
    assert (clustering(session), session.table("main.t").snapshot().partition_columns) == ([], ("name",))
    session.execute("main.t", WriteSpec("overwrite", cluster_by=("id",)), ROWS)
    session.execute("main.t", WriteSpec("overwrite", cluster_by=()), ROWS)
    assert clustering(session) == [] and rows_of(session.scan("main.t")) == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize(
    "spec", [MergeSpec(("id",), cluster_by=("id",)), DeleteInsertSpec(("id",), cluster_by=("id",))]
)
def test_a_merge_that_makes_the_table_clusters_it(session: Session, spec: Any) -> None:
    session.execute("main.t", spec, ROWS)
    assert clustering(session) == ["id"] and session.scan("main.t").count() == 3


@pytest.mark.slow
def test_a_field_within_a_column(session: Session) -> None:
    session.execute("main.t", WriteSpec("error", cluster_by=("place.city",)), pa.table({"place": [{"city": "Ghent"}]}))
    assert clustering(session) == ["place.city"]


def test_an_overwrite_keeps_not_null_or_is_refused(session: Session) -> None:
    session.sql("CREATE TABLE main.t (id BIGINT NOT NULL, name STRING) CLUSTER BY (name)")
    session.execute("main.t", WriteSpec("overwrite"), ROWS)
    wider = pa.table({"id": [1], "name": ["x"], "more": [1]})
    if session.engine_name == "spark":
        with pytest.raises(UnsupportedFeature, match=r"main\.t.*NOT NULL \(id\)"):
            session.execute("main.t", WriteSpec("overwrite"), wider)
    else:
        session.execute("main.t", WriteSpec("overwrite"), wider)
        session.execute("main.t", WriteSpec("overwrite"), ROWS)
    assert not session.table("main.t").snapshot().schema.field("id").nullable and clustering(session) == ["name"]
    version = session.table("main.t").snapshot().version
    with pytest.raises(SchemaMismatch, match=r"main\.t"):
        session.execute("main.t", WriteSpec("overwrite"), pa.table({"id": [None], "name": ["x"]}, schema=ROWS.schema))
    assert session.table("main.t").snapshot().version == version


def test_what_a_killed_job_left_bars_no_clustered_table(session: Session) -> None:
    folder = Path(session.ref("main.t").location)
    (folder / "_delta_log" / "_staged_commits").mkdir(parents=True)
    (folder / "part-00000.snappy.parquet").write_bytes(b"half a file")
    session.execute("main.t", WriteSpec("error", cluster_by=("id",)), ROWS)
    assert clustering(session) == ["id"] and session.scan("main.t").count() == 3


def test_sql_and_the_writer_of_frames(session: Session) -> None:
    session.sql("CREATE TABLE main.t (id BIGINT, name STRING) CLUSTER BY (name)")
    assert clustering(session) == ["name"]
    session.sql("ALTER TABLE main.t CLUSTER BY (id, name)")
    assert clustering(session) == ["id", "name"]
    session.sql("ALTER TABLE main.t CLUSTER BY NONE")
    assert clustering(session) == []
    session.sql("CREATE OR REPLACE TABLE main.t CLUSTER BY (id) COMMENT 'ids' AS SELECT 1 AS id")
    assert clustering(session) == ["id"] and session.table("main.t").snapshot().description == "ids"
    session.sql("CREATE OR REPLACE TABLE main.t AS SELECT 2 AS id")
    assert clustering(session) == [] and rows_of(session.scan("main.t")) == [(2,)]
    session.sql("SELECT 1 AS a, 2 AS b").write.clusterBy("b", "a").saveAsTable("main.u")
    assert clustering(session, "main.u") == ["b", "a"]
    with pytest.raises(InvalidConfig, match="clusterBy"):
        session.sql("SELECT 1 AS a, 2 AS b").write.clusterBy("b").insertInto("main.u")
    assert DeltaTable.forName(session, "main.u").toDF().count() == 1


def test_what_is_refused_changes_nothing(session: Session) -> None:
    session.execute("main.t", WriteSpec("error", cluster_by=("name",)), ROWS)
    for spec, rows, kind, said in (
        (WriteSpec("append", cluster_by=("id",)), ROWS, InvalidConfig, "clustered by name, not by id"),
        (WriteSpec("append", cluster_by=()), ROWS, InvalidConfig, "clustered by name, not by nothing"),
        (WriteSpec("overwrite", cluster_by=("nam",)), ROWS, SchemaMismatch, "nam"),
    ):
        with pytest.raises(kind, match=rf"main\.t.*{said}"):
            session.execute("main.t", spec, rows)
    with pytest.raises(SchemaMismatch, match=r"main\.new.*(clustering column|cluster_by names) nam"):
        session.execute("main.new", WriteSpec("error", cluster_by=("nam",)), ROWS)
    with pytest.raises(SchemaMismatch, match=r"main\.t.*nam"):
        session.sql("ALTER TABLE main.t CLUSTER BY (nam)")
    assert session.table("main.t").snapshot().version == 0 and not session.lake.exists(session.ref("main.new"))


def test_with_constraints_where_the_engine_writes_the_definition(session: Session) -> None:
    spec = WriteSpec("error", cluster_by=("id",), constraints=TableConstraints(("id",)))
    if session.engine_name == "spark":
        with pytest.raises(UnsupportedFeature, match=r"main\.t.*ALTER TABLE"):
            session.execute("main.t", spec, ROWS)
        assert not session.lake.exists(session.ref("main.t"))
        return
    session.execute("main.t", spec, ROWS)
    assert not session.table("main.t").snapshot().schema.field("id").nullable and clustering(session) == ["id"]


def test_a_table_is_created_and_altered_clustered(session: Session) -> None:
    session.execute("main.t", CreateSpec(COLUMNS, cluster_by=("id",)))
    assert clustering(session) == ["id"]
    session.execute("main.t", AlterSpec((ClusterBy(("name",)),)))
    assert clustering(session) == ["name"]


def test_partitions_and_clustering_exclude_each_other() -> None:
    with pytest.raises(InvalidConfig, match="not both"):
        WriteSpec("error", partition_by=("a",), cluster_by=("b",))
    with pytest.raises(InvalidConfig, match="not both"):
        MergeSpec(("a",), partition_by=("a",), cluster_by=("b",))
    with pytest.raises(InvalidConfig, match="not both"):
        CreateSpec(COLUMNS, partition_by=("id",), cluster_by=("name",))
