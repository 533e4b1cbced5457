"""The list of a table's files: what deltalake says of each version, whatever the log is made of, and however many files there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

import duckrun
from duckrun import DeleteSpec, Session, WriteSpec
from duckrun.formats.delta.log.adds import deleted_rows
from duckrun.values.data_files import place_of

MANY = 700
"""More deletion vectors than deltalake reads at once."""


def marked(session: Session, files: int, *, rows: int = 4, **properties: str) -> None:
    """A table of as many files, of which every row 1 is marked."""
    sql = f"SELECT range // {rows} AS p, range % {rows} AS id FROM range({files * rows})"
    properties = {"delta.enableDeletionVectors": "true", **properties}
    session.execute("t", WriteSpec("overwrite", partition_by=("p",), table_properties=properties), duckrun.SQL(sql))
    session.execute("t", DeleteSpec("id = 1", merge_mode="deletion_vectors"))


def by_deltalake(location: Path) -> dict[str, int]:
    """How many rows the vectors of a table delete, as deltalake reads them, by the names of the files."""
    vectors = pa.RecordBatchReader.from_stream(DeltaTable(location).deletion_vectors()).read_all()
    columns = zip(vectors["filepath"].to_pylist(), vectors["selection_vector"], strict=True)
    return {path.rpartition("/")[2]: pc.sum(pc.invert(kept.values)).as_py() for path, kept in columns}


def test_a_table_of_many_vectors_lists_its_files(duck: Session, root: Path) -> None:
    marked(duck, MANY)
    with duckrun.connect(root) as fresh:
        files = fresh.table("t").snapshot().files()
        assert len(files) == MANY and sum(file.deleted_rows for file in files) == MANY
        commit = fresh.execute("t", DeleteSpec("id = 2 AND p < 3", merge_mode="deletion_vectors"))
        assert (commit.rows_deleted, commit.files_marked, commit.files_pruned) == (3, 3, MANY - 3)
        assert fresh.sql("SELECT count(*) AS n FROM t").collect() == [{"n": MANY * 3 - 3}]


@pytest.mark.parametrize("policy", ["classic", pytest.param("v2", marks=pytest.mark.spark)])
def test_what_vectors_delete_is_found_in_commits_and_in_checkpoints(
    duck: Session, root: Path, policy: str, request: pytest.FixtureRequest
) -> None:
    marked(duck, 6, **{"delta.checkpointInterval": "1000"})
    location = root / "main" / "t"
    spark = request.getfixturevalue("spark") if policy == "v2" else None

    def change(statement: str) -> None:
        """By Spark, where the table is one that only it writes."""
        if spark is None:
            duck.sql(statement.format("t"))
        else:
            spark.sql(statement.format(f"delta.`{location}`"))

    if spark is not None:
        properties = "'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '1'"
        change("ALTER TABLE {} SET TBLPROPERTIES (" + properties + ")")
    change("DELETE FROM {} WHERE id = 3 AND p = 4")
    if spark is None:
        DeltaTable(location).create_checkpoint()
    log = location / "_delta_log"
    assert any("checkpoint" in path.name for path in log.iterdir())
    for done in (False, True):
        if done:  # beside what the checkpoint says: another vector, a file that goes, and one that comes
            if spark is not None:
                change("ALTER TABLE {} SET TBLPROPERTIES ('delta.checkpointInterval' = '1000')")
            change("DELETE FROM {} WHERE id = 2 AND p = 4")
            change("DELETE FROM {} WHERE p = 5")
            change("INSERT INTO {} SELECT 9, 1")
        with duckrun.connect(root) as fresh:
            snapshot = fresh.table("t").snapshot()
            deleted = deleted_rows(fresh.lakes.of(snapshot.ref).format, snapshot)
            found = {path.rpartition("/")[2]: n for path, n in deleted.items()}
        assert found == by_deltalake(location) and sum(found.values()) == 7
        if not done:
            newest = max(int(path.name[:20]) for path in log.glob("*.checkpoint*"))
            for path in log.glob("0*.json"):
                if "checkpoint" not in path.name and int(path.name[:20]) < newest:
                    path.unlink()


def test_a_list_brought_forward_is_the_one_of_a_new_opening(duck: Session, root: Path) -> None:
    """Names that the log escapes, and partitions, in commits of every kind: found by name and by place alike."""
    statements = [
        "INSERT INTO t SELECT range, 'ü/%41' FROM range(3)",
        "INSERT INTO t SELECT range, 'a b' FROM range(3)",
        "DELETE FROM t WHERE id = 1 AND p = 'a b'",
        "UPDATE t SET id = 77 WHERE id = 2",
        "DELETE FROM t WHERE p = 'ü/%41'",
        "INSERT INTO t SELECT range, NULL FROM range(2)",
        "DELETE FROM t",
    ]
    spec = WriteSpec("overwrite", partition_by=("p",), table_properties={"delta.enableDeletionVectors": "true"})
    duck.execute("t", spec, duckrun.SQL("SELECT range AS id, 'x' AS p FROM range(3)"))
    duck.table("t").snapshot().files()
    for statement in statements:
        duck.sql(statement)
        known = duck.table("t").snapshot().files()
        with duckrun.connect(root) as fresh:
            snapshot = fresh.table("t").snapshot()
            opened = snapshot.files()
        assert sorted(known, key=str) == sorted(opened, key=str), statement
        for files in (known, opened):
            by_name = {str(file.spelled): file for file in files}
            by_place = {place_of(snapshot.ref.location, file): file for file in files}
            assert (
                files.named(by_name.keys() | {"none"}) == by_name and files.at(by_place.keys() | {"/none"}) == by_place
            )
            assert (len(files), files[:1]) == (len(by_name), tuple(files)[:1])


def test_a_commit_that_adds_what_is_there_or_removes_what_is_not_is_left_to_a_reader_of_the_whole_log(
    duck: Session, root: Path
) -> None:
    duck.execute("t", WriteSpec("overwrite"), duckrun.SQL("SELECT range AS id FROM range(3)"))
    log = root / "main" / "t" / "_delta_log"
    add = next(json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines() if '"add"' in line)["add"]
    duck.table("t").snapshot().files()
    remove: dict[str, Any] = {"path": "gone.parquet", "dataChange": True, "deletionTimestamp": 1}
    for version, action in ((1, {"add": add}), (2, {"remove": remove})):
        (log / f"{version:020d}.json").write_text(json.dumps(action))
        files = duck.table("t").snapshot().files()
        assert [file.spelled for file in files] == [add["path"]]
