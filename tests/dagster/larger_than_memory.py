"""Assets that pass on more bytes than the memory limit: run as a script, which says what each step read and held.

python -m tests.dagster.larger_than_memory LAKE
"""

# No "from __future__ import annotations" here: Dagster must see the types of the assets, not their names.

import json
import sys
from collections.abc import Iterator
from typing import Any

import dagster as dg
import polars as pl
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from duckrun.run.memory import PeakSampler
from duckrun_dagster import DeltaIOManager, DuckrunResource

LIMIT = "512MB"
BATCHES, ROWS_OF_A_BATCH = 250, 40_000
TEXT = 128  # bytes
ROWS = BATCHES * ROWS_OF_A_BATCH
BYTES = ROWS * (8 + TEXT)


def batches(count: int) -> Iterator[pa.RecordBatch]:
    """Batches that are made when they are asked for; ids from 0, beside a text."""
    ids = pa.array(range(ROWS_OF_A_BATCH), pa.int64())
    texts = pa.array([f"{n:0{TEXT}d}" for n in range(ROWS_OF_A_BATCH)])
    for number in range(count):
        yield pa.record_batch({"id": pc.add(ids, number * ROWS_OF_A_BATCH), "text": texts})


def stream_of(count: int) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(next(batches(1)).schema, batches(count))


def told(rows: int, total: int, characters: int) -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"rows": rows, "sum": total, "characters": characters})


def summed(reader: pa.RecordBatchReader) -> dg.MaterializeResult:
    rows = total = characters = 0
    for batch in reader:
        rows += batch.num_rows
        total += pc.sum(batch["id"]).as_py()
        characters += pc.sum(pc.utf8_length(batch["text"])).as_py()
    return told(rows, total, characters)


@dg.asset
def small() -> pa.RecordBatchReader:
    return stream_of(1)


@dg.asset
def made() -> pa.RecordBatchReader:
    return stream_of(BATCHES)


@dg.asset
def copied(made: pa.RecordBatchReader) -> pa.RecordBatchReader:
    return made


@dg.asset
def copied_as_dataset(made: ds.Dataset) -> ds.Dataset:
    return made


@dg.asset
def copied_as_lazy_frame(made: pl.LazyFrame) -> pl.LazyFrame:
    return made


@dg.asset(io_manager_key="none", ins={"made": dg.AssetIn(input_manager_key="io_manager")})
def read_as_stream(made: pa.RecordBatchReader) -> dg.MaterializeResult:
    return summed(made)


@dg.asset(io_manager_key="none", ins={"made": dg.AssetIn(input_manager_key="io_manager")})
def read_as_dataset(made: ds.Dataset) -> dg.MaterializeResult:
    return summed(made.scanner(batch_size=ROWS_OF_A_BATCH, batch_readahead=2, fragment_readahead=1).to_reader())


@dg.asset(io_manager_key="none", ins={"made": dg.AssetIn(input_manager_key="io_manager")})
def read_as_lazy_frame(made: pl.LazyFrame) -> dg.MaterializeResult:
    found = made.select(
        rows=pl.len(), total=pl.col("id").sum(), characters=pl.col("text").str.len_chars().cast(pl.Int64).sum()
    ).collect(engine="streaming")
    return told(*found.row(0))


def main(lake: str) -> dict[str, Any]:
    duckrun = DuckrunResource(root_path=lake, memory_limit=LIMIT)
    resources = {"io_manager": DeltaIOManager(duckrun=duckrun, preview=False), "none": dg.FilesystemIOManager()}
    instance = dg.DagsterInstance.ephemeral()
    assert dg.materialize([small], resources=resources, instance=instance).success  # imports, and opens DuckDB
    found: dict[str, Any] = {"before": psutil.Process().memory_info().rss}
    every = [made, copied, copied_as_dataset, copied_as_lazy_frame, read_as_stream, read_as_dataset, read_as_lazy_frame]
    for asset in every:
        name = asset.key.to_user_string()
        with PeakSampler() as memory:
            result = dg.materialize(every, selection=[asset], resources=resources, instance=instance)
        event = result.asset_materializations_for_node(name)[0]
        values = {key: event.metadata[key].value for key in ("rows", "sum", "characters") if key in event.metadata}
        found[name] = {"peak": memory.peak, **values}
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
