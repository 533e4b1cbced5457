"""Files of tables whose columns have other names there: staged ones fit the table that they were staged for, and no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import duckrun
from duckrun import CommitConflict, Session, WriteSpec
from duckrun.values.rows import StagedFile
from duckrun.values.tables import AlterSpec, ColumnSpec, CreateSpec, RenameColumn, SetProperties
from tests.lake import rows_of

MODE = "delta.columnMapping.mode"
ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})


@pytest.fixture
def duck(tmp_path: Path) -> Iterator[Session]:
    with duckrun.connect(tmp_path / "lake") as session:
        yield session


def made(session: Session, mode: str = "name") -> None:
    columns = (ColumnSpec("id", "BIGINT"), ColumnSpec("v", "VARCHAR"))
    session.execute("t", CreateSpec(columns, table_properties={MODE: mode}))


def test_files_staged_before_a_column_was_renamed_are_committed_after(duck: Session) -> None:
    made(duck)
    files = [StagedFile.from_json(file.to_json()) for file in duck.stage("t", ROWS)]
    names = pq.read_schema(Path(duck.ref("t").location, files[0].path)).names
    assert not set(names) & {"id", "v"}
    duck.execute("t", AlterSpec((RenameColumn("v", "w"),)))
    with pytest.raises(duckrun.SchemaMismatch, match=r"main\.t has the columns \['id', 'w'\]"):
        duck.commit_staged("t", files, WriteSpec("append"))
    duck.execute("t", AlterSpec((RenameColumn("w", "v"),)))
    duck.commit_staged("t", files, WriteSpec("append"))
    assert rows_of(duck.scan("t")) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_files_staged_for_a_table_that_was_made_anew_are_refused(duck: Session, mode: str) -> None:
    made(duck)
    files = duck.stage("t", ROWS)
    duck.sql("drop table t")
    made(duck)
    before = duck.snapshot("t").version
    with pytest.raises(CommitConflict, match=r"main\.t is another one, or was made anew.*stage"):
        duck.commit_staged("t", files, WriteSpec(mode))  # type: ignore[arg-type]
    assert duck.snapshot("t").version == before and rows_of(duck.scan("t")) == []


def test_mapping_that_is_turned_on_keeps_the_names_of_files_and_of_staged_ones(duck: Session) -> None:
    duck.execute("t", WriteSpec("error"), ROWS)
    files = duck.stage("t", pa.table({"id": [3], "v": ["c"]}))
    duck.execute("t", AlterSpec((SetProperties({MODE: "name"}),)))
    duck.commit_staged("t", files, WriteSpec("append"))
    duck.execute("t", AlterSpec((RenameColumn("v", "w"),)))
    assert rows_of(duck.scan("t")) == [(1, "a"), (2, "b"), (3, "c")]
    assert duck.scan("t").columns == ["id", "w"]


def test_mapping_by_id_comes_with_a_table_alone(duck: Session) -> None:
    duck.execute("t", WriteSpec("error"), ROWS)
    with pytest.raises(duckrun.InvalidConfig, match=r"main\.t.*cannot become id on a table that exists"):
        duck.execute("t", AlterSpec((SetProperties({MODE: "id"}),)))
    made_by_id = duckrun.WriteSpec("error", table_properties={MODE: "id"})
    duck.execute("u", made_by_id, ROWS)
    with pytest.raises(duckrun.UnsupportedFeature, match=r"main\.u.*is id and cannot become none"):
        duck.execute("u", AlterSpec((SetProperties({MODE: "none"}),)))


@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_column_of_a_mapped_table_gets_the_next_id_and_a_physical_name(duck: Session, mode: str) -> None:
    """Source: Delta protocol, Writer Requirements for Column Mapping."""
    spec = WriteSpec("overwrite", table_properties={"delta.columnMapping.mode": mode})
    duck.execute("t", spec, pa.table({"id": [1], "v": ["a"]}))
    duck.sql("ALTER TABLE t ADD COLUMN w BIGINT")
    duck.sql("ALTER TABLE t RENAME COLUMN v TO x")
    duck.sql("INSERT INTO t VALUES (2, 'b', 3)")
    (metadata,) = [
        json.loads(line)["metaData"]
        for log in sorted(Path(duck.ref("t").location, "_delta_log").glob("*.json"))[-2:]
        for line in log.read_text().splitlines()
        if line.startswith('{"metaData"')
    ]
    fields = {field["name"]: field["metadata"] for field in json.loads(metadata["schemaString"])["fields"]}
    assert [fields[name]["delta.columnMapping.id"] for name in ("id", "x", "w")] == [1, 2, 3]
    assert fields["w"]["delta.columnMapping.physicalName"] not in ("id", "v", "x", "w")
    assert metadata["configuration"]["delta.columnMapping.maxColumnId"] == "3"
    assert rows_of(duck.sql("FROM t")) == [(1, "a", None), (2, "b", 3)]
