"""Dagster compares data versions: they move when rows change, and stay when only files or words do."""

from datetime import date
from typing import Any

import dagster as dg
import polars as pl
import pyarrow as pa
from dagster._core.definitions.observe import observe as observe_assets
from deltalake import DeltaTable

import duckrun
from duckrun_dagster import observable_table

DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")
ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})


def written(shop: Any, name: str, rows: Any, mode: Any = "append", **arguments: Any) -> None:
    with shop.lake.session() as session:
        session.execute(f"shop.{name}", duckrun.WriteSpec(mode, **arguments), rows)


def compact(shop: Any, name: str) -> None:
    before = shop.version(name)
    DeltaTable(str(shop.root / "shop" / name)).optimize.compact()
    assert shop.version(name) == before + 1


def observe(shop: Any, source: Any) -> str:
    observe_assets([source], instance=shop.instance, resources={"duckrun": shop.lake})
    record = shop.instance.get_latest_data_version_record(source.key, is_source=True)
    return record.event_log_entry.tags["dagster/data_version"]


def test_compaction_and_comments_change_no_data_version_and_rows_do(shop: Any) -> None:
    source = observable_table(["shop", "goods"])
    for _ in range(3):
        written(shop, "goods", ROWS)
    first = observe(shop, source)
    assert first == f"{shop.snapshot('goods').table_id}@2"
    compact(shop, "goods")
    DeltaTable(str(shop.root / "shop" / "goods")).alter.set_table_description("what is sold")
    assert observe(shop, source) == first
    written(shop, "goods", ROWS)
    assert observe(shop, source) == f"{shop.snapshot('goods').table_id}@5"


def test_what_was_known_stays_when_the_log_that_told_is_gone(shop: Any) -> None:
    source = observable_table(["shop", "goods"])
    written(shop, "goods", ROWS)
    written(shop, "goods", ROWS)
    first = observe(shop, source)
    compact(shop, "goods")
    DeltaTable(str(shop.root / "shop" / "goods")).create_checkpoint()
    for version in (0, 1):
        (shop.root / "shop" / "goods" / "_delta_log" / f"{version:020d}.json").unlink()
    assert observe(shop, source) == first


def test_an_observation_says_rows_and_columns(shop: Any) -> None:
    written(shop, "goods", ROWS)
    source = observable_table(["shop", "goods"])
    observe(shop, source)
    record = shop.instance.fetch_observations(source.key, limit=1).records[0]
    found = {key: value.value for key, value in record.asset_observation.metadata.items()}
    assert (found["dagster/row_count"], found["version"]) == (2, 0)
    assert [column.name for column in found["dagster/column_schema"].columns] == ["id", "v"]


def test_each_partition_of_a_source_has_its_own_data_version(shop: Any) -> None:
    source = observable_table("days", partitions_def=DAILY, metadata={"schema": "shop", "partition_expr": "day"})

    def day(number: int) -> pl.DataFrame:
        return pl.DataFrame({"day": [date(2024, 1, number)], "n": [1]})

    def versions() -> list[int]:
        observe_assets([source], instance=shop.instance, resources={"duckrun": shop.lake})
        found = [
            shop.instance.get_latest_data_version_record(source.key, is_source=True, partition_key=key)
            for key in DAILY.get_partition_keys()
        ]
        return [int(record.event_log_entry.tags["dagster/data_version"].rpartition("@")[2]) for record in found]

    for number in (1, 2, 3):
        written(shop, "days", day(number), partition_by=("day",))
    assert versions() == [0, 1, 2]
    written(shop, "days", day(1), mode="replace", predicate="day = DATE '2024-01-01'")
    assert versions() == [3, 1, 2]
    compact_free = versions()
    assert compact_free == [3, 1, 2]


def test_downstream_of_a_compacted_source_is_not_stale(shop: Any) -> None:
    source = observable_table("goods", metadata={"schema": "shop"})

    @dg.asset
    def report(goods: pa.Table) -> pa.Table:
        return goods.slice(0, 1)

    def stale() -> bool:
        observe(shop, source)
        record = shop.instance.get_latest_data_version_record(dg.AssetKey("report"))
        used = record.event_log_entry.tags["dagster/input_data_version/goods"]
        now = shop.instance.get_latest_data_version_record(source.key, is_source=True)
        return used != now.event_log_entry.tags["dagster/data_version"]

    for _ in range(2):
        written(shop, "goods", ROWS)
    observe(shop, source)
    shop.run([report, source], selection=[report])
    assert not stale()
    compact(shop, "goods")
    assert not stale()
    written(shop, "goods", ROWS)
    assert stale()


def test_a_run_that_changes_nothing_keeps_the_data_version(shop: Any) -> None:
    @dg.asset(metadata={"merge_keys": "id", "merge_clauses": ["not_matched_insert"]})
    def goods() -> pa.Table:
        return ROWS

    versions = []
    for _ in range(2):
        event = shop.run([goods]).asset_materializations_for_node("goods")[0]
        versions.append(event.tags["dagster/data_version"])
    assert versions[0] == versions[1]


def test_a_run_that_changes_nothing_of_its_partition_keeps_its_data_version(shop: Any) -> None:
    @dg.asset(
        partitions_def=DAILY,
        metadata={"partition_expr": "day", "merge_keys": "day", "merge_clauses": ["not_matched_insert"]},
    )
    def goods(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"id": [1], "day": [date.fromisoformat(context.partition_key)]})

    versions = []
    for day in ("2024-01-01", "2024-01-02", "2024-01-01"):
        event = shop.run([goods], partitions=day).asset_materializations_for_node("goods")[0]
        versions.append(event.tags["dagster/data_version"])
    assert shop.snapshot("goods").partition_columns == ("day",)
    assert versions[0] == versions[2] != versions[1]


def test_rows_that_are_marked_in_their_files_move_the_data_version(shop: Any) -> None:
    marks = {"merge_keys": "id", "merge_clauses": ["matched_delete"], "merge_mode": "deletion_vectors"}
    written(shop, "goods", pa.table({"id": range(1000)}))

    @dg.asset(metadata=marks)
    def goods() -> pa.Table:
        return pa.table({"id": [7]})

    event = shop.run([goods]).asset_materializations_for_node("goods")[0]
    found = {key: value.value for key, value in event.metadata.items()}
    assert (found["files_marked"], found["files_removed"], found["rows_deleted"]) == (1, 0, 1)
    assert "marked in deletion vectors" in found["reason"]
    assert event.tags["dagster/data_version"] == f"{shop.snapshot('goods').table_id}@1"
    assert shop.rows("select count(*) from goods") == [(999,)]


def test_one_run_may_say_how_rows_leave_the_table(shop: Any) -> None:
    @dg.asset(metadata={"merge_keys": "id"})
    def goods(context: dg.AssetExecutionContext) -> pa.Table:
        changed = context.run.tags.get("changed")
        return pa.table({"id": [int(changed)] if changed else range(1000)})

    def files_marked(changed: int, **writes: Any) -> Any:
        config = {"resources": {"io_manager": {"config": {"writes": {"goods": writes}}}}}
        result = shop.run([goods], tags={"changed": str(changed)}, run_config=config)
        return result.asset_materializations_for_node("goods")[0].metadata["files_marked"].value

    shop.run([goods], settings={"merge_mode": "copy_on_write"})
    assert files_marked(1) == 0
    assert files_marked(2, merge_mode="deletion_vectors") == 1
    assert files_marked(3) == 1, "the table asks for it from now on"
    assert files_marked(4, merge_mode="copy_on_write") == 0
    assert shop.rows("select count(*), sum(id) from goods") == [(1000, 499500)]
