"""How data files are made for readers: their compression and size, as the table's properties say, on every write and rewrite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import duckrun
from duckrun import SQL, AlterSpec, DeleteSpec, DropColumn, MergeSpec, Session, UpdateSpec, WriteSpec
from duckrun.errors import InvalidConfig
from duckrun.values.tables import OptimizeSpec

ROWS = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
MORE = pa.table({"id": [3, 4], "v": ["x", "y"]})


def files(session: Session, table: str = "main.t") -> list[Path]:
    snapshot = session.table(table).snapshot()
    return [Path(snapshot.ref.location) / file.path for file in snapshot.files()]


def codecs(paths: list[Path]) -> set[str]:
    """How the files are compressed; the name of each says the same."""
    found = set()
    for path in paths:
        group = pq.ParquetFile(path).metadata.row_group(0)
        named = {group.column(i).compression.lower() for i in range(group.num_columns)}
        assert named == {path.name.split(".")[-2]}
        found |= named
    return found


@pytest.mark.parametrize("partition_by", [(), ("v",)], ids=["whole", "partitioned"])
@pytest.mark.parametrize("how", ["snappy", "zstd", "property"])
def test_every_write_and_rewrite_compresses_as_the_table_says(
    session: Session, engine: str, how: Any, partition_by: tuple[str, ...]
) -> None:
    said: dict[str, Any] = (
        {"table_properties": {"duckrun.compression": "zstd"}} if how == "property" else {"compression": how}
    )
    codec = "zstd" if how == "property" else how
    made = WriteSpec("error", partition_by=partition_by, **said)
    steps: list[tuple[Any, Any]] = [(made, ROWS), (WriteSpec("append"), MORE), (WriteSpec("append"), MORE.to_reader())]
    if engine == "duckdb":
        steps.append((WriteSpec("append", writer="delta_rs"), pa.table({"id": [5], "v": ["z"]})))
    steps += [
        (DeleteSpec("id = 5"), None),
        (UpdateSpec({"id": "id + 10"}, "id = 1"), None),
        (DeleteSpec("id = 2"), None),
        (WriteSpec("replace", predicate="id = 11"), pa.table({"id": [11], "v": ["a"]})),
        (WriteSpec("overwrite"), ROWS),
        (MergeSpec(("id",)), MORE),
        (WriteSpec("append"), ROWS.slice(0, 1)),
        (OptimizeSpec(), None),
        (WriteSpec("append", schema_mode="append_new_columns"), pa.table({"id": [7], "v": ["a"], "w": [1]})),
        (AlterSpec((DropColumn("w"),)), None),
    ]
    for spec, source in steps:
        session.execute("main.t", spec, source)
        present = files(session)
        assert present and codecs(present) == {codec}, spec
    assert session.table("main.t").snapshot().properties["duckrun.compression"] == codec
    assert sorted(session.sql("select id from main.t").toArrow()["id"].to_pylist()) == [1, 1, 2, 3, 4, 7]


def test_a_write_that_says_how_it_compresses_goes_before_the_table(session: Session) -> None:
    session.execute("main.t", MergeSpec(("id",), compression="snappy"), ROWS)
    session.execute("main.t", WriteSpec("append", compression="zstd"), MORE)
    assert codecs(files(session)) == {"snappy", "zstd"}
    assert session.table("main.t").snapshot().properties["duckrun.compression"] == "snappy"
    session.execute("main.t", WriteSpec("overwrite", compression="zstd"), ROWS)
    session.execute("main.t", WriteSpec("append"), MORE)
    assert codecs(files(session)) == {"zstd"}


def test_a_statement_and_a_writer_of_frames_say_it_too(session: Session) -> None:
    session.sql("create table main.t tblproperties ('duckrun.compression' = 'zstd') as select 1 as id")
    session.sql("insert into main.t select 2")
    assert codecs(files(session)) == {"zstd"}
    session.table("main.t").toDF().write.option("compression", "zstd").saveAsTable("main.u")
    assert codecs(files(session, "main.u")) == {"zstd"}
    session.sql("alter table main.t set tblproperties ('duckrun.compression' = 'snappy')")
    session.sql("insert into main.t select 3")
    assert codecs(files(session)) == {"zstd", "snappy"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (lambda: WriteSpec("error", compression="lzo"), "compression is 'lzo'; it takes one of snappy, zstd"),  # type: ignore[arg-type]
        (
            lambda: WriteSpec("error", table_properties={"duckrun.compression": "lzo"}),
            r"main\.t.*'lzo' is no compression",
        ),
        (
            lambda: WriteSpec("error", compression="zstd", table_properties={"duckrun.compression": "snappy"}),
            r"main\.t: compression is zstd, and table_properties say duckrun\.compression = snappy",
        ),
    ],
)
def test_a_codec_that_is_none_is_refused_before_anything_is_written(session: Session, spec: Any, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        session.execute("main.t", spec(), ROWS)
    assert session.tables() == []


def test_files_are_as_large_as_the_table_says_and_a_spec_goes_before_it(duck: Session) -> None:
    session, source = duck, SQL("select i, random() as v from range(1500000) t(i)")
    session.execute("main.t", WriteSpec("error", table_properties={"delta.targetFileSize": "2MB"}), source)
    sizes = [path.stat().st_size for path in files(session)]
    assert len(sizes) > 3 and max(sizes) < 8 * 1024**2
    session.execute("main.t", WriteSpec("append"), source)
    assert len(files(session)) > len(sizes) + 3
    session.execute("main.t", WriteSpec("overwrite", target_file_size=1024**3), source)
    assert len(files(session)) <= 2
    assert session.sql("select count(*) n, count(distinct i) d from main.t").collect() == [{"n": 1500000, "d": 1500000}]


@pytest.mark.spark
def test_on_spark_small_files_are_gathered_to_the_size_that_the_table_says(root: Path, spark: Any) -> None:
    with duckrun.connect(root, engine="spark", spark=spark) as session:
        many = spark.range(100_000).repartition(8)
        for size, count in (("1GB", 1), ("1", 8)):
            made = WriteSpec("overwrite", table_properties={"delta.targetFileSize": size})
            session.execute("main.t", made, many)
            assert len(files(session)) == count
            session.execute("main.t", WriteSpec("append"), many)
            assert len(files(session)) == 2 * count
        session.execute("main.t", WriteSpec("append", target_file_size=1024**3), many)
        assert len(files(session)) == 2 * count + 1


@pytest.mark.parametrize("partition_by", [None, ("v",)])
def test_an_overwrite_gives_the_table_the_properties_and_the_description_that_it_says(
    session: Session, partition_by: tuple[str, ...] | None
) -> None:
    first = {"owner": "us", "delta.logRetentionDuration": "interval 60 days"}
    session.execute("main.t", WriteSpec("error", partition_by=("v",), table_properties=first, description="old"), ROWS)
    assert first.items() <= session.table("main.t").snapshot().properties.items()
    then = {"owner": "them", "delta.appendOnly": "false", "delta.targetFileSize": "64MB"}
    again = WriteSpec("overwrite", table_properties=then, description="new", partition_by=partition_by)
    session.execute("main.t", again, MORE)
    snapshot = session.table("main.t").snapshot()
    found = {key: snapshot.properties.get(key) for key in first | then}
    assert found == first | then
    assert (snapshot.description, snapshot.partition_columns) == ("new", ("v",))
    version = snapshot.version
    session.execute("main.t", again, MORE)
    snapshot = session.table("main.t").snapshot()
    assert {key: snapshot.properties.get(key) for key in first | then} == first | then
    assert (snapshot.version, snapshot.description) == (version + 1, "new")
    assert session.sql("select count(*) n from main.t").collect() == [{"n": 2}]


@pytest.mark.spark
def test_spark_gives_a_table_of_its_own_features_new_properties_too(root: Path, spark: Any) -> None:
    with duckrun.connect(root, engine="spark", spark=spark) as session:
        tracked = {"delta.enableRowTracking": "true"}
        session.execute("main.t", WriteSpec("error", partition_by=("v",), table_properties=tracked), ROWS)
        session.execute("main.t", WriteSpec("overwrite", table_properties={"team": "them", **tracked}), MORE)
        snapshot = session.table("main.t").snapshot()
        assert (snapshot.properties["team"], snapshot.properties["delta.enableRowTracking"]) == ("them", "true")
        assert snapshot.partition_columns == ("v",)
        session.execute("main.u", WriteSpec("error"), ROWS)
        session.execute("main.u", WriteSpec("overwrite", table_properties=tracked), ROWS)
        assert session.table("main.u").snapshot().properties["delta.enableRowTracking"] == "true"
        session.execute("main.c", WriteSpec("error", cluster_by=("id",)), ROWS)
        session.execute("main.c", WriteSpec("overwrite", table_properties={"team": "them"}), ROWS)
        assert session.table("main.c").snapshot().properties["team"] == "them"
        assert "clustering" in session.table("main.c").snapshot().writer_features
