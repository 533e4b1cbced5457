"""Maintenance as assets: fewer files, the same rows, beside writers."""

import threading
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import duckrun
from duckrun.errors import InvalidConfig
from duckrun_dagster import DuckrunResource, MaintainedTable, check_definitions, maintenance


def append(shop: Any, number: int, start: int = 0) -> None:
    with shop.lake.session() as session:
        for each in range(start, start + number):
            session.execute("shop.goods", duckrun.WriteSpec("append"), pa.table({"id": [each], "v": [each % 3]}))


def keep(shop: Any, table: Any, *, dry_run: bool = False) -> dict[str, Any]:
    defs = maintenance([table])
    asset = next(iter(defs.assets or []))
    config = {"ops": {asset.op.name: {"config": {"dry_run": dry_run}}}}  # type: ignore[union-attr]
    result = dg.materialize([asset], instance=shop.instance, resources=shop.resources(), run_config=config)  # type: ignore[list-item]
    event = next(e for e in result.all_events if e.is_step_materialization)
    return {key: value.value for key, value in event.materialization.metadata.items()}


def test_many_small_files_become_one_and_the_rows_stay(shop: Any) -> None:
    append(shop, 6)
    found = keep(shop, ["shop", "goods"])
    assert (found["files_before"], found["files_after"]) == (6, 1)
    assert found["bytes_before"] > found["bytes_after"] > 0
    assert found["optimize_version"] == found["version"] == 6
    assert found["vacuum_removed"] == 0  # younger than a week
    assert shop.rows("select count(*), sum(id) from goods") == [(6, 15)]
    assert list((shop.root / "shop" / "goods" / "_delta_log").glob("*.checkpoint*.parquet"))


def test_a_dry_run_changes_nothing(shop: Any) -> None:
    append(shop, 3)
    found = keep(shop, ["shop", "goods"], dry_run=True)
    assert (found["dry_run"], found["files_before"], found["files_after"], found["small_files"]) == (True, 3, 3, 3)
    assert shop.version("goods") == 2


def test_z_order_and_what_is_left_out(shop: Any) -> None:
    append(shop, 4)
    table = MaintainedTable(
        dg.AssetKey(["shop", "goods"]), z_order_by=("v",), checkpoint=False, cleanup_log=False, vacuum=False
    )
    found = keep(shop, table)
    assert found["files_after"] == 1 and "vacuum_removed" not in found
    assert not list((shop.root / "shop" / "goods" / "_delta_log").glob("*.checkpoint*.parquet"))


def test_a_retention_below_the_tables_is_refused(shop: Any) -> None:
    append(shop, 2)
    table = MaintainedTable(dg.AssetKey(["shop", "goods"]), retention_hours=0)
    with pytest.raises(Exception, match="(?i)retention"):
        keep(shop, table)


def test_writers_at_work_lose_nothing(shop: Any) -> None:
    append(shop, 5)
    writer = threading.Thread(target=append, args=(shop, 15, 5))
    writer.start()
    for _ in range(3):
        keep(shop, ["shop", "goods"])
    writer.join()
    assert shop.rows("select count(*), count(distinct id) from goods") == [(20, 20)]


def test_one_asset_a_table_downstream_of_it_on_a_schedule() -> None:
    upkeep = maintenance([["shop", "goods"], "orders"], cron_schedule="0 3 * * *", execution_timezone="UTC")
    defs = dg.Definitions.merge(upkeep, dg.Definitions(resources={"duckrun": DuckrunResource(root_path="unused")}))
    graph = defs.resolve_asset_graph()
    key = dg.AssetKey(["maintenance", "shop", "goods"])
    assert graph.get(key).parent_keys == {dg.AssetKey(["shop", "goods"])}
    assert defs.resolve_schedule_def("maintenance_schedule").cron_schedule == "0 3 * * *"
    with pytest.raises(InvalidConfig, match="orders is named twice"):
        maintenance(["orders", ["orders"]])


def test_maintenance_beside_the_assets_of_its_tables_passes_the_checks_of_definitions(shop: Any) -> None:
    @dg.asset(key=["shop", "goods"])
    def goods() -> pa.Table:
        return pa.table({"id": [1]})

    mine = dg.Definitions(assets=[goods], resources=shop.resources())
    check_definitions(dg.Definitions.merge(mine, maintenance([["shop", "goods"]])))
