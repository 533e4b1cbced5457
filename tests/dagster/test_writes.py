"""Modes, metadata and errors of a write, as a user sees them."""

from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from duckrun.errors import InvalidConfig
from duckrun_dagster import DeltaIOManager, check_definitions

ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})


def goods(value: Any = ROWS, key: Any = ("goods",), **metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(key=list(key), metadata=metadata, description="What the shop sells")
    def goods():
        return value

    return goods


def test_a_materialization_says_what_was_done(shop: Any, metadata: Any) -> None:
    found = metadata(shop.run([goods()]), "goods")
    assert found["dagster/row_count"] == 2
    assert [(c.name, c.type) for c in found["dagster/column_schema"].columns] == [("id", "int64"), ("v", "string")]
    assert found["dagster/table_name"] == "shop.goods"
    assert found["dagster/uri"] == f"file://{shop.root}/shop/goods"
    assert found["location"] == f"{shop.root}/shop/goods"
    assert (found["version"], found["mode"], found["engine"]) == (0, "overwrite", "duckdb")
    assert found["writer"] and found["reason"]
    assert (found["rows_inserted"], found["files_added"], found["replayed"]) == (2, 1, False)
    assert found["bytes_added"] > 0 and found["seconds"] > 0 and found["peak_memory_mb"] > 0
    assert found["memory_limit_mb"] >= found["memory_duckdb_mb"] > 0
    assert "| id | v |" in found["preview"] and "| 2 | b |" in found["preview"]


def test_the_data_version_is_the_tables_version(shop: Any) -> None:
    for version in range(2):
        result = shop.run([goods()])
        event = result.asset_materializations_for_node("goods")[0]
        assert event.tags["dagster/data_version"] == f"{shop.snapshot('goods').table_id}@{version}"


def test_declared_descriptions_of_columns_reach_the_page_and_the_table(shop: Any, metadata: Any) -> None:
    declared = dg.TableSchema([dg.TableColumn("id", "int64", description="The number on the box")])
    found = metadata(shop.run([goods(**{"dagster/column_schema": declared})]), "goods")
    assert found["dagster/column_schema"].columns[0].description == "The number on the box"
    assert shop.snapshot("goods").description == "What the shop sells"


def test_merge_by_key(shop: Any, metadata: Any) -> None:
    shop.run([goods()])
    found = metadata(shop.run([goods(pa.table({"id": [2, 3], "v": ["B", "C"]}), merge_keys="id")]), "goods")
    assert (found["mode"], found["rows_inserted"], found["rows_updated"]) == ("merge", 1, 1)
    assert found["dagster/row_count"] == 3
    assert shop.rows("select * from goods order by id") == [(1, "a"), (2, "B"), (3, "C")]


def test_delete_insert_and_append(shop: Any) -> None:
    shop.run([goods()])
    shop.run([goods(pa.table({"id": [2, 2], "v": ["x", "y"]}), mode="delete+insert", merge_keys="id")])
    shop.run([goods(pa.table({"id": [9], "v": ["z"]}), mode="append")])
    assert shop.rows("select * from goods order by all") == [(1, "a"), (2, "x"), (2, "y"), (9, "z")]


def test_a_run_says_how_an_asset_is_written_this_once(shop: Any, metadata: Any) -> None:
    shop.run([goods(merge_keys="id")])
    once = {"resources": {"io_manager": {"config": {"writes": {"goods": {"mode": "append"}}}}}}
    found = metadata(shop.run([goods(merge_keys="id")], run_config=once), "goods")
    assert (found["mode"], found["dagster/row_count"]) == ("append", 4)
    whole = {"resources": {"io_manager": {"config": {"writes": {"goods": {"mode": "overwrite"}}}}}}
    assert metadata(shop.run([goods(merge_keys="id")], run_config=whole), "goods")["dagster/row_count"] == 2
    assert metadata(shop.run([goods(merge_keys="id")]), "goods")["mode"] == "merge"
    wrong = {"resources": {"io_manager": {"config": {"writes": {"goods": {"modes": "append"}}}}}}
    message = shop.error([goods()], run_config=wrong)
    assert "Asset goods, for this run: unknown metadata key 'modes'. Did you mean 'mode'" in message


def test_an_asset_says_in_its_output_how_this_value_is_written(shop: Any, metadata: Any) -> None:
    @dg.asset(name="goods")
    def appended() -> dg.Output[pa.Table]:
        return dg.Output(ROWS, metadata={"mode": "append", "table": "not ours at this place"})

    shop.run([goods()])
    found = metadata(shop.run([appended]), "goods")
    assert (found["mode"], found["dagster/row_count"]) == ("append", 4)


def test_materializing_twice_is_the_same_as_once_append_apart(shop: Any) -> None:
    for number, how in enumerate(
        [
            {},
            {"mode": "overwrite"},
            {"mode": "ignore"},
            {"merge_keys": "id"},
            {"mode": "delete+insert", "merge_keys": "id"},
        ]
    ):
        for _ in range(2):
            shop.run([goods(key=(f"goods{number}",), **how)])
        assert shop.rows(f"select * from goods{number} order by id") == [(1, "a"), (2, "b")]
    shop.run([goods(key=("once",), mode="error")])
    assert "exists already" in shop.error([goods(key=("once",), mode="error")])


def test_schema_mode_and_table_properties(shop: Any) -> None:
    shop.run([goods(mode="append", table_properties={"delta.logRetentionDuration": "interval 7 days"})])
    wider = pa.table({"id": [3], "v": ["c"], "w": [1.0]})
    message = shop.error([goods(wider, mode="append")])
    assert "Asset goods" in message and "w" in message
    shop.run([goods(wider, mode="append", schema_mode="append_new_columns")])
    assert shop.rows("select id, w from goods order by id") == [(1, None), (2, None), (3, 1.0)]
    assert shop.snapshot("goods").properties["delta.logRetentionDuration"] == "interval 7 days"


def test_two_parts_of_a_key_are_schema_and_table(shop: Any) -> None:
    shop.run([goods(key=("raw", "orders"))])
    assert shop.lake.lake().tables("raw") == ["orders"]


def test_a_location_of_its_own_is_found_by_name_afterwards(shop: Any, tmp_path: Any) -> None:
    elsewhere = tmp_path / "elsewhere" / "goods"

    @dg.asset
    def reader(goods: pa.Table) -> None:
        assert goods.num_rows == 2

    shop.run([goods(location=str(elsewhere)), reader])
    assert (elsewhere / "_delta_log").is_dir()
    assert shop.rows("select count(*) from goods") == [(2,)]


def test_duplicate_keys_leave_the_table_as_it_was(shop: Any) -> None:
    shop.run([goods()])
    message = shop.error([goods(pa.table({"id": [2, 2], "v": ["x", "y"]}), merge_keys="id")])
    assert "Asset goods" in message and "more than once" in message
    assert shop.version("goods") == 0


def test_a_table_that_does_not_exist_names_the_input_and_the_nearest(shop: Any) -> None:
    @dg.asset
    def reader(good: pa.Table) -> None: ...

    @dg.asset(name="good")
    def good(): ...

    shop.run([goods()])
    message = shop.error([good, reader], selection=[reader])
    assert "Input 'good' (asset good)" in message and "shop.goods" in message


def test_an_unknown_column_of_an_input_is_refused(shop: Any) -> None:
    @dg.asset(ins={"goods": dg.AssetIn(metadata={"columns": ["idd"]})})
    def reader(goods: pa.Table) -> None: ...

    message = shop.error([goods(), reader])
    assert "Input 'goods' (asset goods)" in message and "idd" in message


def test_a_value_is_loaded_outside_of_a_run(shop: Any) -> None:
    shop.run([goods()])
    loaded = definitions(shop, goods()).load_asset_value("goods", python_type=pa.Table)
    assert loaded.num_rows == 2


def test_an_asset_check_loads_the_asset_that_it_checks(shop: Any) -> None:
    @dg.asset_check(asset="goods")
    def enough(goods: pa.Table) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=goods.num_rows == 2)

    result = shop.run([goods(), enough])
    assert [evaluation.passed for evaluation in result.get_asset_check_evaluations()] == [True]


def test_an_op_output_is_refused(shop: Any) -> None:
    @dg.op
    def work():
        return 1

    @dg.job(resource_defs=shop.resources())
    def job():
        work()

    result = job.execute_in_process(instance=shop.instance, raise_on_error=False)
    failed = [event for event in result.all_events if event.is_step_failure]
    assert "is no asset" in str(failed[0].step_failure_data.error.cause.message)


# -- when definitions load


def definitions(shop: Any, *assets: Any) -> dg.Definitions:
    return dg.Definitions(assets=assets, resources=shop.resources())


def test_two_assets_on_one_table_are_an_error_when_definitions_load(shop: Any) -> None:
    two = definitions(shop, goods(key=("shop", "goods")), goods())
    with pytest.raises(InvalidConfig, match="Assets goods and shop/goods both write table shop.goods"):
        check_definitions(two)
    located = [goods(key=(name,), location="s3://bucket/one") for name in ("a", "b")]
    with pytest.raises(InvalidConfig, match="both write location s3://bucket/one"):
        check_definitions(definitions(shop, *located))


def test_a_dbt_model_and_an_asset_on_one_table_are_an_error(shop: Any) -> None:
    model = goods(key=("model",), **{"dagster_dbt/manifest": "x", "dagster/table_name": "marts.daily"})
    with pytest.raises(InvalidConfig, match="both write table marts.daily"):
        check_definitions(definitions(shop, model, goods(key=("marts", "daily"))))


def test_a_wrong_metadata_key_is_an_error_when_definitions_load(shop: Any) -> None:
    with pytest.raises(InvalidConfig, match="Asset goods: unknown metadata key 'modes'. Did you mean 'mode'"):
        check_definitions(definitions(shop, goods(modes="append")))


def test_good_definitions_come_back_as_they_are(shop: Any) -> None:
    @dg.asset(key=["shop", "report"])
    def report() -> None: ...

    @dg.asset(key="report", io_manager_key="other")
    def other():
        return 1

    good = dg.Definitions(
        assets=[goods(), report, other],
        resources={**shop.resources(), "other": dg.mem_io_manager},
    )
    assert check_definitions(good) is good
    assert DeltaIOManager
