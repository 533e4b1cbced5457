"""Which paths of a log deltalake would spell in another way: measured on deltalake itself, character by character."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from duckrun.values.data_files import respelled
from duckrun.values.rows import ScanFile

TOLD = [
    *(f"a%{n:02X}b.parquet" for n in range(0x20, 0x7F)),
    *(f"a{chr(n)}b.parquet" for n in range(0x20, 0x7F) if chr(n) != "%"),
    *(f"a%25{n:02X}b.parquet" for n in range(0x20, 0x7F)),
    *(f"a%{n:02x}b.parquet" for n in (0x2E, 0x3A, 0x5B)),
    *("aéb.parquet", "a%C3%A9b.parquet", "a%c3%a9b.parquet", "日本/b.parquet", "%E6%97%A5/b.parquet", "a%F0%9F%98%80b.parquet"),
]  # fmt: skip
PLAIN = ["a-_.~b.parquet", "p=1/a.parquet", "p=2024-01-01%252010%253A00%253A00/a.parquet", "p=a%20b/a.parquet"]


def removed_by_deltalake(location: Path, paths: list[str]) -> set[str]:
    """What its overwrite takes out of a table of these paths, letter by letter."""
    (location / "_delta_log").mkdir(parents=True)
    field = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    format_ = {"provider": "parquet", "options": {}}
    actions: list[dict[str, object]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "t",
                "format": format_,
                "schemaString": schema,
                "partitionColumns": [],
                "configuration": {},
            }
        },
    ]
    for path in paths:
        actions.append(
            {"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}
        )
    log = location / "_delta_log"
    text = "\n".join(json.dumps(action, ensure_ascii=False) for action in actions)
    (log / f"{0:020d}.json").write_text(text + "\n", encoding="utf-8")
    write_deltalake(DeltaTable(location), pa.table({"id": [1]}), mode="overwrite")
    written = [json.loads(line) for line in (log / f"{1:020d}.json").read_text(encoding="utf-8").splitlines()]
    return {action["remove"]["path"] for action in written if "remove" in action}


def test_no_path_is_left_to_deltalake_that_it_would_spell_in_another_way(tmp_path: Path) -> None:
    left = [path for path in [*TOLD, *PLAIN] if respelled([ScanFile(path=path, size=1, spelled=path)]) is None]
    assert set(left) <= removed_by_deltalake(tmp_path / "t", [*TOLD, *PLAIN])
    assert set(PLAIN) <= set(left)


def test_what_deltalake_itself_writes_is_left_to_it(tmp_path: Path) -> None:
    values = ["a b", "é", "a'b", "100%", "2024-01-01 10:00:00", "a/b", "[x]"]
    write_deltalake(tmp_path / "t", pa.table({"id": list(range(len(values))), "p": values}), partition_by=["p"])
    paths = [add["path"] for add in DeltaTable(tmp_path / "t").get_add_actions().to_struct_array().to_pylist()]
    assert respelled(ScanFile(path=path, size=1, spelled=path) for path in paths) is None
