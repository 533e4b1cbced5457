"""Faults of deltalake (delta_rs). Each docstring says the right result."""

from __future__ import annotations

import datetime as dt
import struct
import subprocess
import sys
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from pyroaring import BitMap64

from tests.upstream import instances

VECTOR = "deletion_vector_00000000-0000-0000-0000-000000000000.bin"


def write_vector(folder: Path) -> dict[str, Any]:
    """Let a file of deletion vectors delete the first row of a table, and return the action that adds its file."""
    write_deltalake(folder, pa.table({"x": [1, 2]}))
    vector = struct.pack("<i", 1681511377) + BitMap64([0]).serialize()
    (folder / VECTOR).write_bytes(
        b"\x01" + struct.pack(">i", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    )
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    actions = {next(iter(action)): action for action in instances.committed(folder)}
    actions["protocol"] = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    descriptor = {"storageType": "u", "pathOrInlineDv": "0" * 20, "offset": 1, "sizeInBytes": len(vector)}
    actions["add"]["add"]["deletionVector"] = {**descriptor, "cardinality": 1}
    instances.commit(folder, 0, list(actions.values()))
    return actions["add"]


def test_a_full_vacuum_takes_a_live_deletion_vector_for_a_stray(tmp_path: Path) -> None:
    """Right: no file."""
    write_vector(tmp_path)
    options: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": True}
    assert DeltaTable(tmp_path).vacuum(**options) == []
    assert DeltaTable(tmp_path).vacuum(**options, full=True) == [VECTOR]


COUNT = """
import sys, deltalake
table = deltalake.DeltaTable(sys.argv[1])
print("opened", flush=True)
table.deletion_vectors().read_all()
print("read")
"""


def test_many_deletion_vectors_are_never_read(tmp_path: Path) -> None:
    """Right: the process ends after 0.1 s."""
    add = write_vector(tmp_path)["add"]
    instances.commit(tmp_path, 1, [{"add": {**add, "path": f"{i}.parquet"}} for i in range(2000)])
    with subprocess.Popen([sys.executable, "-c", COUNT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "opened\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.kill()


def test_a_remove_has_another_path_than_its_add(tmp_path: Path) -> None:
    """Right: one row, that of the overwrite."""
    add = instances.added(tmp_path, "a^b.parquet", pa.table({"x": [1]}))
    instances.commit(tmp_path, 0, [*instances.defined(instances.field("x", "long")), add])
    write_deltalake(tmp_path, pa.table({"x": [2]}), mode="overwrite")
    assert DeltaTable(tmp_path).to_pyarrow_table()["x"].to_pylist() == [2, 1]


def test_partition_values_are_written_as_other_texts(tmp_path: Path) -> None:
    """Right: -1.10 and 1e30 (Delta protocol, Partition Value Serialization)."""
    write_deltalake(tmp_path / "double", pa.table({"x": [1], "p": [1e30]}), partition_by="p")
    [add] = (action["add"] for action in instances.committed(tmp_path / "double") if "add" in action)
    assert add["partitionValues"] == {"p": "1000000000000000000000000000000"}
    with pytest.raises(DeltaError, match="-1.-10"):
        write_deltalake(tmp_path / "decimal", pa.table({"x": [1], "p": [Decimal("-1.10")]}), partition_by="p")


def test_bounds_of_long_decimals_are_doubles(tmp_path: Path) -> None:
    """Right: the row."""
    value = pa.scalar(Decimal("12345678901234567890.12"), pa.decimal128(38, 2))
    write_deltalake(tmp_path, pa.table({"x": pa.array([value])}))
    assert DeltaTable(tmp_path).to_pyarrow_dataset().to_table(filter=pc.field("x") == value).num_rows == 0


def test_a_schema_merge_gives_the_table_another_id_and_drops_its_description(tmp_path: Path) -> None:
    """Right: the same id and description, and x is still required."""
    required = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    write_deltalake(tmp_path, pa.table({"x": [1]}, required), description="of the test")
    before = DeltaTable(tmp_path).metadata()
    merge = DeltaTable(tmp_path).merge(
        pa.table({"x": [1], "y": [2]}), "t.x = s.x", source_alias="s", target_alias="t", merge_schema=True
    )
    merge.when_matched_update_all().execute()
    after = DeltaTable(tmp_path)
    assert (before.id != after.metadata().id, after.metadata().description) == (True, None)
    assert after.schema().fields[0].nullable


def test_a_dataset_takes_a_missing_minimum_for_null(tmp_path: Path) -> None:
    """Right: one row."""
    write_deltalake(tmp_path, pa.table({"x": [1, 2]}))
    actions = instances.committed(tmp_path)
    for action in actions:
        if "add" in action:
            action["add"]["stats"] = '{"numRecords": 2, "minValues": {}, "maxValues": {"x": 2}, "nullCount": {"x": 0}}'
    instances.commit(tmp_path, 0, actions)
    assert DeltaTable(tmp_path).to_pyarrow_dataset().to_table(filter=pc.field("x") == 1).num_rows == 0


def test_a_transaction_has_no_time(tmp_path: Path) -> None:
    """Right: lastUpdated is the time of the commit."""
    properties = CommitProperties(app_transactions=[Transaction("app", 1)])
    write_deltalake(tmp_path, pa.table({"x": [1]}), commit_properties=properties)
    assert {"txn": {"appId": "app", "version": 1}} in instances.committed(tmp_path)


def test_int96_is_read_as_nanoseconds_of_64_bits(tmp_path: Path) -> None:
    """Right: the year 1500."""
    old = pa.table({"t": pa.array([dt.datetime(1500, 1, 1)], pa.timestamp("us"))})
    add = instances.added(tmp_path, "a.parquet", old, use_deprecated_int96_timestamps=True, store_schema=False)
    instances.commit(tmp_path, 0, [*instances.defined(instances.field("t", "timestamp")), add])
    table = DeltaTable(tmp_path)
    table.update({"t": "t + interval '1 day'"})
    assert table.to_pyarrow_table()["t"][0].as_py().year == 2084
