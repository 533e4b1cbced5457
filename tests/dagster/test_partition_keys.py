"""Which partition of Dagster's a file of a table belongs to, whatever spelled its partition value."""

from __future__ import annotations

import pyarrow as pa
import pytest
from dagster import DailyPartitionsDefinition, PartitionsDefinition, StaticPartitionsDefinition

from duckrun_dagster.metadata import key_finder
from duckrun_dagster.partitions.partitions import PartitionSlice

DAILY = DailyPartitionsDefinition("2024-01-01", end_date="2024-01-05")


@pytest.mark.parametrize(
    ("definition", "keys", "kind", "text", "key"),
    [
        (StaticPartitionsDefinition(["1", "2"]), ["1", "2"], pa.float64(), "1.0", "1"),
        (StaticPartitionsDefinition(["1", "2"]), ["1", "2"], pa.int64(), "2", "2"),
        (StaticPartitionsDefinition(["1", "2"]), ["1", "2"], pa.string(), "1.0", None),
        (StaticPartitionsDefinition(["true"]), ["true"], pa.bool_(), "TRUE", "true"),
        (DAILY, ["2024-01-02"], pa.date32(), "2024-01-02", "2024-01-02"),
        (DAILY, ["2024-01-02"], pa.timestamp("us"), "2024-01-02 00:00:00", "2024-01-02"),
        (DAILY, ["2024-01-02"], pa.timestamp("us"), "2024-01-02T13:00:00.000000", "2024-01-02"),
        (DAILY, ["2024-01-02"], pa.timestamp("us"), "2024-01-03 00:00:00", None),
        (DAILY, ["2024-01-02"], pa.string(), "2024-01-02", "2024-01-02"),
        (DAILY, ["2024-01-02"], pa.date32(), None, None),
    ],
)
def test_a_file_is_in_the_partition_that_its_value_says(
    definition: PartitionsDefinition, keys: list[str], kind: pa.DataType, text: str | None, key: str | None
) -> None:
    assert key_finder(PartitionSlice(definition, tuple(keys)), kind)(text) == key
