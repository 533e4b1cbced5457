"""Liquid clustering, when asked: made, kept and changed on Spark by each way to ask, and refused where it cannot be."""

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


@pytest.fixture
def s(root: Path, spark: Any) -> Any:
    with duckrun.connect(root, engine="spark", spark=spark) as opened:
        yield opened


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


@pytest.mark.spark
def test_a_table_is_made_clustered_with_all_else_in_one_commit(s: Session) -> None:
    spec = WriteSpec(
        "error",
        cluster_by=("name", "ID"),
        description="it's \\ here",
        column_comments={"name": "the 'name'"},
        table_properties={"delta.appendOnly": "false", "team": "sales"},
        app=AppTransaction("nightly", 7),
    )
    assert s.execute("main.t", spec, ROWS).version == 0
    assert clustering(s) == ["name", "id"]
    snapshot = s.table("main.t").snapshot()
    assert snapshot.description == "it's \\ here"
    assert {"delta.appendOnly": "false", "team": "sales"}.items() <= snapshot.properties.items()
    assert snapshot.schema.field("name").metadata[b"comment"] == b"the 'name'"
    again = s.execute("main.t", spec, ROWS)
    assert again.replayed and again.version == 0


@pytest.mark.spark
def test_it_stays_through_every_kind_of_write(s: Session) -> None:
    s.execute("main.t", WriteSpec("error", cluster_by=("name",)), ROWS)
    made = table_id(s)
    s.execute("main.t", WriteSpec("append", cluster_by=("NAME",)), names((4, "d")))
    s.execute("main.t", WriteSpec("replace", predicate="id = 4"), names((4, "e")))
    s.execute("main.t", MergeSpec(("id",)), names((1, "A"), (5, "f")))
    s.execute("main.t", DeleteInsertSpec(("id",)), names((5, "g")))
    s.execute("main.t", UpdateSpec({"name": "upper(name)"}, "id = 4"))
    s.execute("main.t", DeleteSpec("id = 3"))
    s.execute("main.t", OptimizeSpec())
    assert rows_of(s.scan("main.t")) == [(1, "A"), (2, "b"), (4, "E"), (5, "g")]
    assert (clustering(s), table_id(s)) == (["name"], made)
    s.execute("main.t", WriteSpec("overwrite"), names((6, "h")))
    assert rows_of(s.scan("main.t")) == [(6, "h")]
    assert (clustering(s), table_id(s)) == (["name"], made)
    with duckrun.connect(s.lake.root) as d:
        assert rows_of(d.scan("main.t")) == [(6, "h")]


@pytest.mark.spark
def test_an_overwrite_with_other_columns_keeps_clustering_properties_and_description(s: Session) -> None:
    spec = WriteSpec("error", cluster_by=("name",), description="people", table_properties={"team": "sales"})
    s.execute("main.t", spec, ROWS)
    s.sql("ALTER TABLE main.t ADD CONSTRAINT few CHECK (id < 100)")
    wider = pa.table({"number": [1], "name": ["x"], "id": [9]})
    commit = s.execute("main.t", WriteSpec("overwrite", app=AppTransaction("nightly", 1)), wider)
    assert (
        s.execute("main.t", WriteSpec("overwrite", app=AppTransaction("nightly", 1)), wider).version == commit.version
    )
    snapshot = s.table("main.t").snapshot()
    assert (snapshot.schema.names, snapshot.description) == (["number", "name", "id"], "people")
    assert snapshot.properties["team"] == "sales" and clustering(s) == ["name"]
    with pytest.raises(SchemaMismatch, match="few"):
        s.execute("main.t", WriteSpec("append"), pa.table({"number": [1], "name": ["y"], "id": [100]}))
    with pytest.raises(SchemaMismatch, match=r"main\.t.*clustering column name is missing"):
        s.execute("main.t", WriteSpec("overwrite"), pa.table({"number": [1]}))
    assert rows_of(s.scan("main.t")) == [(1, "x", 9)]


@pytest.mark.spark
@pytest.mark.slow
def test_an_overwrite_changes_and_ends_it(s: Session) -> None:
    s.execute("main.t", WriteSpec("error", partition_by=("name",)), ROWS)
    s.execute("main.t", WriteSpec("overwrite", cluster_by=("name", "id")), ROWS)
    assert (clustering(s), s.table("main.t").snapshot().partition_columns) == (["name", "id"], ())
    s.execute("main.t", WriteSpec("overwrite", cluster_by=("id",)), ROWS)
    assert clustering(s) == ["id"]
    s.execute("main.t", WriteSpec("overwrite", partition_by=("name",)), ROWS)
    assert (clustering(s), s.table("main.t").snapshot().partition_columns) == ([], ("name",))
    s.execute("main.t", WriteSpec("overwrite", cluster_by=("id",)), ROWS)
    s.execute("main.t", WriteSpec("overwrite", cluster_by=()), ROWS)
    assert clustering(s) == [] and rows_of(s.scan("main.t")) == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.spark
@pytest.mark.parametrize(
    "spec", [MergeSpec(("id",), cluster_by=("id",)), DeleteInsertSpec(("id",), cluster_by=("id",))]
)
def test_a_merge_that_makes_the_table_clusters_it(s: Session, spec: Any) -> None:
    s.execute("main.t", spec, ROWS)
    assert clustering(s) == ["id"] and s.scan("main.t").count() == 3


@pytest.mark.spark
@pytest.mark.slow
def test_a_field_within_a_column(s: Session) -> None:
    s.execute("main.t", WriteSpec("error", cluster_by=("place.city",)), pa.table({"place": [{"city": "Ghent"}]}))
    assert clustering(s) == ["place.city"]


@pytest.mark.spark
def test_an_overwrite_that_would_lose_not_null_is_refused(s: Session) -> None:
    s.sql("CREATE TABLE main.t (id BIGINT NOT NULL, name STRING) CLUSTER BY (name)")
    s.execute("main.t", WriteSpec("overwrite"), ROWS)
    with pytest.raises(UnsupportedFeature, match=r"main\.t.*NOT NULL \(id\)"):
        s.execute("main.t", WriteSpec("overwrite"), pa.table({"id": [1], "name": ["x"], "more": [1]}))
    with pytest.raises(SchemaMismatch, match=r"main\.t"):
        s.execute("main.t", WriteSpec("overwrite"), pa.table({"id": [None], "name": ["x"]}, schema=ROWS.schema))
    assert s.table("main.t").snapshot().version == 1


@pytest.mark.spark
def test_what_a_killed_job_left_bars_no_clustered_table(s: Session) -> None:
    folder = Path(s.ref("main.t").location)
    (folder / "_delta_log" / "_staged_commits").mkdir(parents=True)
    (folder / "part-00000.snappy.parquet").write_bytes(b"half a file")
    s.execute("main.t", WriteSpec("error", cluster_by=("id",)), ROWS)
    assert clustering(s) == ["id"] and s.scan("main.t").count() == 3


@pytest.mark.spark
def test_sql_and_the_writer_of_frames(s: Session) -> None:
    s.sql("CREATE TABLE main.t (id BIGINT, name STRING) CLUSTER BY (name)")
    assert clustering(s) == ["name"]
    s.sql("ALTER TABLE main.t CLUSTER BY (id, name)")
    assert clustering(s) == ["id", "name"]
    s.sql("ALTER TABLE main.t CLUSTER BY NONE")
    assert clustering(s) == []
    s.sql("CREATE OR REPLACE TABLE main.t CLUSTER BY (id) COMMENT 'ids' AS SELECT 1 AS id")
    assert clustering(s) == ["id"] and s.table("main.t").snapshot().description == "ids"
    s.sql("CREATE OR REPLACE TABLE main.t AS SELECT 2 AS id")
    assert clustering(s) == [] and rows_of(s.scan("main.t")) == [(2,)]
    s.sql("SELECT 1 AS a, 2 AS b").write.clusterBy("b", "a").saveAsTable("main.u")
    assert clustering(s, "main.u") == ["b", "a"]
    with pytest.raises(InvalidConfig, match="clusterBy"):
        s.sql("SELECT 1 AS a, 2 AS b").write.clusterBy("b").insertInto("main.u")
    assert DeltaTable.forName(s, "main.u").toDF().count() == 1


@pytest.mark.spark
def test_what_is_refused_changes_nothing(s: Session) -> None:
    s.execute("main.t", WriteSpec("error", cluster_by=("name",)), ROWS)
    for spec, rows, kind, said in (
        (WriteSpec("append", cluster_by=("id",)), ROWS, InvalidConfig, "clustered by name, not by id"),
        (WriteSpec("append", cluster_by=()), ROWS, InvalidConfig, "clustered by name, not by nothing"),
        (
            WriteSpec("overwrite", constraints=TableConstraints(("id",))),
            ROWS,
            UnsupportedFeature,
            "ALTER TABLE",
        ),
        (WriteSpec("overwrite", cluster_by=("nam",)), ROWS, SchemaMismatch, "nam"),
    ):
        with pytest.raises(kind, match=rf"main\.t.*{said}"):
            s.execute("main.t", spec, rows)
    with pytest.raises(SchemaMismatch, match=r"main\.new.*clustering column nam"):
        s.execute("main.new", WriteSpec("error", cluster_by=("nam",)), ROWS)
    with pytest.raises(UnsupportedFeature, match=r"main\.new.*ALTER TABLE"):
        s.execute("main.new", WriteSpec("error", cluster_by=("id",), constraints=TableConstraints(("id",))), ROWS)
    with pytest.raises(SchemaMismatch, match=r"main\.t.*nam"):
        s.sql("ALTER TABLE main.t CLUSTER BY (nam)")
    assert s.table("main.t").snapshot().version == 0 and not s.lake.exists(s.ref("main.new"))


def test_partitions_and_clustering_exclude_each_other() -> None:
    with pytest.raises(InvalidConfig, match="not both"):
        WriteSpec("error", partition_by=("a",), cluster_by=("b",))
    with pytest.raises(InvalidConfig, match="not both"):
        MergeSpec(("a",), partition_by=("a",), cluster_by=("b",))
    with pytest.raises(InvalidConfig, match="not both"):
        CreateSpec(COLUMNS, partition_by=("id",), cluster_by=("name",))


@pytest.mark.parametrize(
    "spec",
    [
        WriteSpec("error", cluster_by=("id",)),
        MergeSpec(("id",), cluster_by=("id",)),
        CreateSpec(COLUMNS, cluster_by=("id",)),
    ],
)
def test_the_embedded_engine_names_the_one_that_can(duck: Session, spec: Any) -> None:
    with pytest.raises(UnsupportedFeature, match=r"main\.t.*clustering.*engine: spark"):
        duck.execute("main.t", spec, None if isinstance(spec, CreateSpec) else pa.table({"id": [1]}))
    assert not duck.lake.exists(duck.ref("main.t"))
    duck.execute("main.t", WriteSpec("error", cluster_by=()), pa.table({"id": [1]}))
    with pytest.raises(UnsupportedFeature, match=r"main\.t.*clustering.*engine: spark"):
        duck.execute("main.t", AlterSpec((ClusterBy(("id",)),)))
    with pytest.raises(UnsupportedFeature, match=r"clustering.*engine: spark"):
        duck.sql("CREATE TABLE main.u (id BIGINT) CLUSTER BY (id)")
