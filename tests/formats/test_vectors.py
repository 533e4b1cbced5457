"""Deletion vectors: those of Spark are read as Spark means them, and every reader of vectors reads ours."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyroaring import BitMap64

import duckrun
from duckrun import DeleteSpec, MergeSpec, Session, UpdateSpec, WriteSpec
from duckrun.engines.duckdb import load_extensions
from duckrun.errors import StorageError, UnsupportedFeature
from duckrun.formats.delta.files.vectors import read_vector, write_vectors
from tests.lake import rows_of


def numbers(count: int) -> duckrun.SQL:
    return duckrun.SQL(f"SELECT range AS id, 'p' || range % 2 AS p, 'v' || range AS v FROM range({count})")


def adds(location: Path, version: int) -> list[dict[str, Any]]:
    lines = (location / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    return [action["add"] for action in map(json.loads, lines) if "add" in action]


def read_by_others(location: Path) -> list[list[tuple[Any, ...]]]:
    """The rows of a table by a plain delta_scan and by deltalake's own engine."""
    with duckdb.connect() as plain:
        load_extensions(plain)
        scanned = plain.sql(f"SELECT id, p, v FROM delta_scan('{location}')").fetchall()
    engine = QueryBuilder().register("t", DeltaTable(location)).execute("SELECT id, p, v FROM t").read_all()
    return [sorted(scanned), sorted(zip(*(engine.column(c).to_pylist() for c in ("id", "p", "v")), strict=True))]


@pytest.mark.parametrize("partition_by", [(), ("p",)], ids=["plain", "partitioned"])
def test_a_table_whose_rows_are_marked_is_the_same_to_every_reader(
    duck: Session, root: Path, spark: Any, partition_by: tuple[str, ...]
) -> None:
    duck.execute("t", WriteSpec("overwrite", partition_by=partition_by), numbers(20_000))
    model = {n: f"v{n}" for n in range(20_000)}
    steps = [
        (DeleteSpec("id % 1000 = 3", merge_mode="deletion_vectors"), None),
        (UpdateSpec({"v": "'new'"}, predicate="id % 7 = 5"), None),  # in a file, with those of before
        (
            MergeSpec(("id",)),
            duckrun.SQL("SELECT 4::bigint AS id, 'p0' AS p, 'four' AS v UNION ALL SELECT 20001, 'p1', 'more'"),
        ),
        (DeleteSpec("id BETWEEN 19000 AND 20000"), None),
    ]
    for spec, source in steps:
        commit = duck.execute("t", spec, *(() if source is None else (source,)))
        assert (commit.writer, commit.files_removed) == ("staged", 0)
    model = {n: "new" if n % 7 == 5 else v for n, v in model.items() if n % 1000 != 3 and n < 19_000}
    model |= {4: "four", 20_001: "more"}
    wanted = sorted((n, f"p{n % 2}", v) for n, v in model.items())
    location = root / "main" / "t"
    assert sorted(rows_of(duck.sql("SELECT id, p, v FROM t"))) == wanted
    assert read_by_others(location) == [wanted, wanted]
    frame = spark.read.format("delta").load(str(location))
    assert sorted((r["id"], r["p"], r["v"]) for r in frame.collect()) == wanted
    spark.sql(f"DELETE FROM delta.`{location}` WHERE id < 10")  # on top of ours, and ours on top of that
    assert duck.execute("t", DeleteSpec("id < 20")).rows_deleted == len([n for n in model if 10 <= n < 20])
    left = [row for row in wanted if row[0] >= 20]
    assert sorted(rows_of(duck.sql("SELECT id, p, v FROM t"))) == left
    assert sorted((r["id"], r["p"], r["v"]) for r in spark.read.format("delta").load(str(location)).collect()) == left


def test_the_vectors_of_spark_are_read(duck: Session, root: Path, spark: Any) -> None:
    location = root / "main" / "v"
    spark.sql(
        f"CREATE TABLE delta.`{location}` (id bigint) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{location}` SELECT /*+ COALESCE(1) */ id FROM range(300000)")
    spark.sql(f"DELETE FROM delta.`{location}` WHERE id % 3 = 0 OR id > 200000")
    ref = duck.table("v").snapshot().ref
    [add] = adds(location, 2)
    found = read_vector(duck.lake.format, ref, add["deletionVector"])
    assert set(found.to_array().tolist()) == {n for n in range(300_000) if n % 3 == 0 or n > 200_000}


def test_vectors_come_back_as_they_were_written(duck: Session) -> None:
    duck.execute("t", WriteSpec("overwrite"), numbers(3))
    form, ref = duck.lake.format, duck.table("t").snapshot().ref
    random = np.random.default_rng(0)
    sets = [{0}, {1, 2**33 + 5, 2**40}, set(random.integers(0, 10**7, 50_000).tolist()), set(range(10**6)), {7}]
    descriptors = write_vectors(form, ref, [BitMap64(each) for each in sets])
    assert [d["storageType"] for d in descriptors] == ["u"] * 5
    assert [set(read_vector(form, ref, d).to_array().tolist()) for d in descriptors] == sets


def in_the_log(rows: set[int]) -> dict[str, Any]:
    """The descriptor of a vector that stands in the log itself. Source: Delta protocol, Deletion Vectors; https://rfc.zeromq.org/spec/32"""
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    data = struct.pack("<i", 1681511377) + BitMap64(rows).serialize()
    text = ""
    for (number,) in struct.iter_unpack(">I", data + b"\0" * (-len(data) % 4)):
        text += "".join(letters[number // 85**place % 85] for place in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(rows)}


GONE = {3, 4, 7, 11, 18, 29}
IN_THE_LOG = in_the_log(GONE)


def test_a_vector_in_the_log_itself_is_read_and_united(duck: Session, root: Path) -> None:
    duck.execute("t", WriteSpec("overwrite"), numbers(20_000))
    duck.execute("t", DeleteSpec("id < 6", merge_mode="deletion_vectors"))
    commit = root / "main" / "t" / "_delta_log" / f"{1:020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["deletionVector"] = IN_THE_LOG
    commit.write_text("\n".join(map(json.dumps, actions)))
    with duckrun.connect(root) as later:
        assert {n for n, _, _ in rows_of(later.sql("SELECT id, p, v FROM t"))} == set(range(20_000)) - GONE
        assert later.execute("t", DeleteSpec("id < 10")).rows_deleted == 7
        wanted = sorted((n, f"p{n % 2}", f"v{n}") for n in set(range(10, 20_000)) - GONE)
        assert sorted(rows_of(later.sql("SELECT id, p, v FROM t"))) == wanted
    assert read_by_others(root / "main" / "t") == [wanted, wanted]


def test_a_vector_that_cannot_be_read_ends_the_write_and_says_why(duck: Session, root: Path) -> None:
    duck.execute("t", WriteSpec("overwrite"), numbers(20_000))
    duck.execute("t", DeleteSpec("id % 7 = 5", merge_mode="deletion_vectors"))
    form, ref = duck.lake.format, duck.table("t").snapshot().ref
    [add] = adds(root / "main" / "t", 1)
    with pytest.raises(UnsupportedFeature, match="kind 'x'"):
        read_vector(form, ref, {**add["deletionVector"], "storageType": "x"})
    with pytest.raises(StorageError, match="the log says 1"):
        read_vector(form, ref, {**add["deletionVector"], "cardinality": 1})
    [file] = (root / "main" / "t").glob("*.bin")
    kept = file.read_bytes()
    file.write_bytes(kept[:40] + bytes([kept[40] ^ 1]) + kept[41:])
    with pytest.raises(StorageError, match="damaged"):
        read_vector(form, ref, add["deletionVector"])
    file.unlink()
    with pytest.raises(StorageError, match="cannot be read"):
        read_vector(form, ref, add["deletionVector"])


def test_of_a_long_log_only_what_is_newer_than_its_checkpoint_is_looked_through(duck: Session, root: Path) -> None:
    properties = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "10"}
    duck.execute("t", WriteSpec("overwrite", table_properties=properties), numbers(100))
    duck.execute("t", DeleteSpec("id = 7"))
    for n in range(45):
        duck.execute("t", WriteSpec("append"), duckrun.SQL(f"SELECT {1000 + n}::bigint AS id, 'p' AS p, 'v' AS v"))
    log = root / "main" / "t" / "_delta_log"
    newest = max(int(path.name[:20]) for path in log.glob("*.checkpoint.parquet"))
    assert newest >= 40
    for path in log.glob("*.json"):
        if int(path.name[:20]) < newest:
            path.write_text("damaged, and of no use to anybody")
    with duckrun.connect(root) as fresh:
        commit = fresh.execute("t", DeleteSpec("id = 8"))
        assert (commit.files_marked, commit.rows_deleted) == (1, 1)
        ids = fresh.sql("SELECT id FROM t WHERE id < 1000 ORDER BY id").toArrow()["id"].to_pylist()
    assert ids == [n for n in range(100) if n not in (7, 8)]
