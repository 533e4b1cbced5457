"""Tables whose log spells the paths of its files as another writer does: what is removed is gone, what is read is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from duckrun import Session, UnsupportedFeature
from duckrun.errors import VersionNotReadable
from duckrun.values.rows import DeleteInsertSpec, DeleteSpec, MergeSpec, UpdateSpec, WriteSpec
from tests.lake import rows_of

VALUES = ["é", "日本", "a'b", "a%b", "a b", "a`b", "100%", "x=y", "a/b", "a+b", "a:b"]
Work = Callable[[Session], Any]


def source(*rows: tuple[int, str]) -> pa.Table:
    return pa.table({"id": [i for i, _ in rows], "p": [p for _, p in rows]})


def escaped(value: str) -> str:
    """A partition value in a folder's name, as Spark escapes it: beyond ASCII nothing."""
    return "".join(f"%{ord(c):02X}" if c in "\"#%'*/:=?\\{[]^" else c for c in value)


def spark_table(location: Path, *elsewhere: Path, two: bool = False) -> list[tuple[int, str]]:
    """A table laid out and spelled as Spark does, with a row (``two``: two files) in each partition, and rows of files that lie
    elsewhere, by absolute paths as in a shallow clone. Returns its rows.
    """
    (location / "_delta_log").mkdir(parents=True)
    column = {"type": "long", "nullable": True, "metadata": {}}
    fields = [{"name": "id", **column}, {"name": "p", **column, "type": "string"}]
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}}, "partitionColumns": ["p"],
                      "schemaString": json.dumps({"type": "struct", "fields": fields}), "configuration": {}, "createdTime": 1}},
    ]  # fmt: skip
    rows = []
    for n, value in enumerate(VALUES):
        for copy in range(1 + two):
            path = location / f"p={escaped(value)}" / f"part-{n}-{copy}.parquet"
            path.parent.mkdir(exist_ok=True)
            spelled = f"p={escaped(value)}/{path.name}".replace("%", "%25").replace(" ", "%20")
            actions.append(_add(path, n + 100 * copy, spelled, value))
            rows.append((n + 100 * copy, value))
    for path in elsewhere:
        actions.append(_add(path, 1000, str(path), "far"))
        rows.append((1000, "far"))
    log = location / "_delta_log" / f"{0:020d}.json"
    log.write_text("\n".join(json.dumps(a, ensure_ascii=False) for a in actions) + "\n", encoding="utf-8")
    return rows


def _add(path: Path, number: int, spelled: str, value: str) -> dict[str, Any]:
    pq.write_table(pa.table({"id": [number]}), path)
    stats = json.dumps({"numRecords": 1})
    return {"add": {"path": spelled, "partitionValues": {"p": value}, "size": path.stat().st_size,
                    "modificationTime": 1, "dataChange": True, "stats": stats}}  # fmt: skip


def removed_paths(location: Path, version: int) -> set[str]:
    log = (location / "_delta_log" / f"{version:020d}.json").read_text(encoding="utf-8")
    actions = [json.loads(line) for line in log.splitlines()]
    return {action["remove"]["path"] for action in actions if "remove" in action}


def upserted(rows: list[tuple[int, str]], *new: tuple[int, str]) -> list[tuple[int, str]]:
    return [row for row in rows if row[0] not in {i for i, _ in new}] + list(new)


KEYED = [(0, "é"), (1, "日本"), (77, "é")]
CHANGES: dict[str, tuple[Work, Callable[[list[tuple[int, str]]], list[tuple[int, str]]]]] = {
    "merge": (lambda s: s.execute("t", MergeSpec(("id",)), source(*KEYED)), lambda rows: upserted(rows, *KEYED)),
    "merge on": (
        lambda s: s.execute("t", MergeSpec(("id",), on="target.id >= 0"), source(*KEYED)),
        lambda rows: upserted(rows, *KEYED),
    ),
    "delete+insert": (
        lambda s: s.execute("t", DeleteInsertSpec(("id",)), source(*KEYED)),
        lambda rows: upserted(rows, *KEYED),
    ),
    "update": (
        lambda s: s.execute("t", UpdateSpec({"id": "id + 5000"}, "id >= 0")),
        lambda rows: [(i + 5000, p) for i, p in rows],
    ),
    "delete": (lambda s: s.execute("t", DeleteSpec("id < 2")), lambda rows: [r for r in rows if r[0] >= 2]),
    "delete a partition": (
        lambda s: s.execute("t", DeleteSpec("p = '日本'")),
        lambda rows: [r for r in rows if r[1] != "日本"],
    ),
    "delete all": (lambda s: s.execute("t", DeleteSpec()), lambda rows: []),
    "replace partitions": (
        lambda s: s.execute("t", WriteSpec("replace"), source((55, "é"))),
        lambda rows: [r for r in rows if r[1] != "é"] + [(55, "é")],
    ),
    "replace rows": (
        lambda s: s.execute("t", WriteSpec("replace", predicate="id < 100"), source((55, "é"))),
        lambda rows: [r for r in rows if r[0] >= 100] + [(55, "é")],
    ),
    "overwrite": (lambda s: s.execute("t", WriteSpec("overwrite"), source((9, "é"))), lambda rows: [(9, "é")]),
    "overwrite by a stream": (
        lambda s: s.execute("t", WriteSpec("overwrite"), source((9, "é")).to_reader()),
        lambda rows: [(9, "é")],
    ),
    "append": (lambda s: s.execute("t", WriteSpec("append"), source((9, "é"))), lambda rows: [*rows, (9, "é")]),
    "optimize": (lambda s: s.table("t").optimize().executeCompaction(), lambda rows: rows),
    "alter": (
        lambda s: [s.sql(f"alter table t rename column {old} to {new}") for old, new in (("id", "n"), ("n", "id"))],
        lambda rows: rows,
    ),
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("clone", [False, True], ids=["inside", "with files elsewhere"])
def test_every_change_of_a_table_that_spark_spelled_takes_out_what_it_should(
    duck: Session, root: Path, tmp_path: Path, change: str, clone: bool
) -> None:
    location = root / "main" / "t"
    (tmp_path / "far é").mkdir()
    far = [tmp_path / "far é" / name for name in ("a.parquet", "b.parquet")] if clone else []
    rows = spark_table(location, *far, two=True)
    do, expected = CHANGES[change]
    do(duck)
    assert rows_of(duck.table("t").toDF(), "id", "p") == sorted(expected(rows), key=repr)
    # what the version before has, letter by letter, and nothing else
    before = {add["path"] for add in DeltaTable(location, version=0).get_add_actions().to_struct_array().to_pylist()}
    assert removed_paths(location, 1) <= before
    assert duck.scan("t").count() == len(expected(rows))


def test_a_scan_of_single_files_reads_those_that_lie_elsewhere(duck: Session, root: Path, tmp_path: Path) -> None:
    rows = spark_table(root / "main" / "t", tmp_path / "far.parquet")
    parts = duck.snapshot("t").scan().split(3)
    found = [row for part in parts for row in rows_of(duck.open(part), "id", "p")]
    assert sorted(found) == sorted(rows)


def test_a_clone_with_uris_that_duckdb_does_not_open_is_refused_by_name(
    duck: Session, root: Path, tmp_path: Path
) -> None:
    location = root / "main" / "t"
    rows = spark_table(location)
    path = tmp_path / "far.parquet"
    with (location / "_delta_log" / f"{0:020d}.json").open("a", encoding="utf-8") as log:
        log.write(json.dumps(_add(path, 7, f"file:{path}", "far")) + "\n")
    refused: list[Work] = [
        lambda s: s.execute("t", UpdateSpec({"id": "id + 1"})),
        lambda s: s.execute("t", MergeSpec(("id",)), source((0, "é"))),
        lambda s: s.table("t").optimize().executeZOrderBy("id"),
    ]
    for work in refused:
        with pytest.raises(UnsupportedFeature, match=r"(?s)main\.t.*shallow clone.*engine: spark"):
            work(duck)
    assert duck.snapshot("t").version == 0
    # what need not read the file is done
    assert duck.execute("t", WriteSpec("append"), source((8, "é"))).version == 1
    assert duck.execute("t", WriteSpec("overwrite"), source((9, "é"))).files_removed == len(rows) + 2
    assert rows_of(duck.table("t").toDF(), "id", "p") == [(9, "é")]
    assert unquote(f"file:{path}") in removed_paths(location, 2)


@pytest.mark.parametrize("clone", [False, True], ids=["inside", "with files elsewhere"])
def test_restoring_a_table_that_spark_spelled_gives_exactly_the_rows_of_the_version(
    duck: Session, root: Path, tmp_path: Path, clone: bool
) -> None:
    location = root / "main" / "t"
    rows = spark_table(location, *([tmp_path / "far.parquet"] if clone else []))
    duck.execute("t", UpdateSpec({"id": "id + 5000"}))
    duck.execute("t", WriteSpec("append"), source((9, "é")))
    duck.table("t").restoreToVersion(0)
    assert rows_of(duck.table("t").toDF(), "id", "p") == sorted(rows, key=repr)
    duck.table("t").restoreToVersion(2)
    assert rows_of(duck.table("t").toDF(), "id", "p") == sorted([*((i + 5000, p) for i, p in rows), (9, "é")], key=repr)
    assert [entry["operation"] for entry in duck.table("t").history(2)] == ["RESTORE", "RESTORE"]


def test_a_version_whose_files_are_gone_is_not_restored(duck: Session, root: Path) -> None:
    location = root / "main" / "t"
    spark_table(location)
    duck.execute("t", UpdateSpec({"id": "id + 5000"}))
    next((location / "p=é").glob("part-0-0.parquet")).unlink()
    with pytest.raises(VersionNotReadable, match=r"main\.t.*p=é/part-0-0\.parquet is gone"):
        duck.table("t").restoreToVersion(0)
    assert duck.snapshot("t").version == 1
