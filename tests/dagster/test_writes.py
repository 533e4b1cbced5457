"""Modes, metadata and errors of a write, as a user sees them."""

import json
import os
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster_dbt import DbtProject
from deltalake import DeltaTable

import duckrun
from duckrun.errors import InvalidConfig
from duckrun_dagster import DeltaIOManager, DuckrunResource, check_definitions
from tests.lake import rows_of

ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})


def goods(value: Any = ROWS, key: Any = ("goods",), **metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(key=list(key), metadata=metadata, description="What the shop sells")
    def goods():
        return value

    return goods


def test_a_materialization_says_what_was_done(shop: Any, metadata: Any) -> None:
    found = metadata(shop.run([goods()]), "goods")
    assert found["dagster/row_count"] == 2
    assert [(c.name, c.type) for c in found["dagster/column_schema"].columns] == [("id", "long"), ("v", "string")]
    assert found["dagster/table_name"] == "shop.goods"
    assert found["dagster/uri"] == f"file://{shop.root}/shop/goods"
    assert found["location"] == f"{shop.root}/shop/goods"
    assert (found["version"], found["mode"], found["engine"]) == (0, "overwrite", "duckdb")
    assert found["writer"] and found["reason"]
    assert (found["rows_inserted"], found["files_added"], found["replayed"]) == (2, 1, False)
    data = [file.stat().st_size for file in (shop.root / "shop" / "goods").glob("*.parquet")]
    assert (found["table_files"], found["table_bytes"]) == (len(data), sum(data)) == (1, found["bytes_added"])
    assert found["table_description"] == "What the shop sells"
    assert [record.data for record in found["column_statistics"].records] == [
        {"column": "id", "nulls": 0, "at_least": "1", "at_most": "2"},
        {"column": "v", "nulls": 0, "at_least": "a", "at_most": "b"},
    ]
    assert found["seconds"] > 0 and found["peak_memory_mb"] > 0
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

    plain = goods(key=["plain"], column_descriptions={"v": "The price's letter"}, merge_keys="id")
    for version in range(2):
        found = metadata(shop.run([plain]), "plain")
        assert found["version"] == version
        assert [column.description for column in found["dagster/column_schema"].columns] == [None, "The price's letter"]
    wrong = goods(key=["wrong"], column_descriptions={"v": 1})
    assert "Asset wrong: metadata 'column_descriptions' is {'v': 1}; it takes a mapping" in shop.error([wrong])


def test_types_are_named_as_delta_names_them(shop: Any, metadata: Any) -> None:
    kinds = [
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(10, 2), pa.string(),
        pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.list_(pa.int64()),
        pa.map_(pa.string(), pa.decimal128(38, 18)), pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
    ]  # fmt: skip
    empty = pa.schema([(f"c{i}", kind) for i, kind in enumerate(kinds)]).empty_table()
    shown = metadata(shop.run([goods(empty)]), "goods")["dagster/column_schema"]
    log = json.loads(DeltaTable(shop.root / "shop" / "goods").schema().to_json())["fields"]

    def named(kind: Any) -> str:
        match kind:
            case {"type": "array"}:
                return f"array<{named(kind['elementType'])}>"
            case {"type": "map"}:
                return f"map<{named(kind['keyType'])},{named(kind['valueType'])}>"
            case {"type": "struct"}:
                return f"struct<{','.join(each['name'] + ':' + named(each['type']) for each in kind['fields'])}>"
        return str(kind)

    assert [column.type for column in shown.columns] == [named(field["type"]) for field in log]


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


@pytest.mark.parametrize(
    ("writes", "message"),
    [
        ({"good": {"mode": "append"}}, "'good', which is no asset that can be written here. Did you mean 'goods'?"),
        (
            {"shop.others": {"mode": "append"}},
            "'shop.others', which is no asset that can be written here. Did you mean 'shop/others'?",
        ),
        ({"nothing_like_it": {}}, "'nothing_like_it', which is no asset that can be written here"),
        ({"kept": {"mode": "append"}}, "'kept', which other writes. Set resources.other.config"),
        ({"goods": {"partition_by": ["id"]}}, "unknown metadata key 'partition_by'. A run may say engine, mode"),
        ({"goods": {"partition_expr": "id"}}, "unknown metadata key 'partition_expr'"),
    ],
    ids=["near", "with a dot", "far", "of another IO manager", "of the asset alone", "of the asset alone, too"],
)
def test_a_run_s_configuration_that_nothing_would_read_is_refused(shop: Any, writes: Any, message: str) -> None:
    @dg.asset(io_manager_key="other")
    def kept() -> pa.Table:
        return pa.table({"id": [1]})

    assets = [goods(), goods(key=("shop", "others")), kept]
    more = {"other": shop.resources()["io_manager"]}
    shop.run([goods(mode="append")])
    result = dg.materialize(
        assets,
        instance=shop.instance,
        resources={**shop.resources(), **more},
        run_config={"resources": {"io_manager": {"config": {"writes": writes}}}},
        raise_on_error=False,
    )
    failed = [event for event in result.all_events if event.is_step_failure]
    assert message in str(failed[0].step_failure_data.error.cause.message)
    assert shop.version("goods") == 0


CODE_LOCATION = """
import dagster as dg, pyarrow as pa
from duckrun_dagster import DeltaIOManager, DuckrunResource

@dg.asset
def goods() -> pa.Table:
    return pa.table({{"id": [1]}})

@dg.asset(key=["shop", "others"])
def others() -> pa.Table:
    return pa.table({{"id": [1]}})

manager = DeltaIOManager(duckrun=DuckrunResource(root_path={root!r}), schema="shop")
job = dg.define_asset_job("job", executor_def=dg.in_process_executor)
defs = dg.Definitions(assets=[goods, others], jobs=[job], resources={{"io_manager": manager}})
"""


def test_a_run_may_say_how_assets_are_written_that_it_leaves_out(shop: Any, tmp_path: Path) -> None:
    """As a retry of what failed does, which has the configuration of the whole."""
    (tmp_path / "location.py").write_text(CODE_LOCATION.format(root=str(shop.root)))
    job = ReconstructableRepository.for_file(str(tmp_path / "location.py"), "defs").get_reconstructable_job("job")
    for name, fine in (("shop/others", True), ("shop/other", False)):
        once = {"resources": {"io_manager": {"config": {"writes": {name: {"mode": "append"}}}}}}
        with dg.instance_for_test() as instance:
            only = [dg.AssetKey("goods")]
            with dg.execute_job(job, instance=instance, asset_selection=only, run_config=once) as result:
                assert result.success is fine
    assert shop.version("goods") == 0


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


def test_an_unknown_delta_property_of_an_asset_is_refused_by_name(shop: Any) -> None:
    unknown = {"delta.bogus": "x"}
    message = shop.error([goods(mode="overwrite", table_properties=unknown)])
    assert "Asset goods" in message and "delta.bogus" in message
    assert shop.lake.lake().tables("main") == []
    shop.run([goods(mode="overwrite")])
    assert "delta.bogus" in shop.error([goods(mode="overwrite", table_properties=unknown)])
    assert shop.version("goods") == 0


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


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"version": 7}, "Version 7 of table shop.goods is not in its log; versions 0 to 1 are"),
        ({"timestamp": "2001-01-01"}, "Table shop.goods has no version at 2001-01-01; the oldest in its log is of"),
    ],
)
def test_a_version_that_does_not_exist_is_refused_with_those_that_do(shop: Any, asked: Any, told: str) -> None:
    @dg.asset(ins={"goods": dg.AssetIn(metadata=asked)})
    def reader(goods: pa.Table) -> None: ...

    shop.run([goods()])
    shop.run([goods()])
    message = shop.error([goods(), reader], selection=[reader])
    assert "Input 'goods' (asset goods)" in message and told in message


@pytest.mark.parametrize(
    ("as_type", "predicate"),
    [
        (pa.Table, "id >"),
        (pa.Table, "id = 1; delete from goods"),
        (pa.RecordBatchReader, "nothing = 1"),
        (ds.Dataset, "nothing = 1"),
        (pl.LazyFrame, "id >"),
    ],
)
def test_a_predicate_that_cannot_be_built_loads_nothing(shop: Any, as_type: Any, predicate: str) -> None:
    def reader(goods: Any) -> None:
        raise AssertionError(f"a step was given rows: {goods}")

    reader.__annotations__ = {"goods": as_type, "return": None}
    asset = dg.asset(ins={"goods": dg.AssetIn(metadata={"predicate": predicate})})(reader)
    message = shop.error([goods(), asset])
    assert "Input 'goods' (asset goods)" in message
    assert shop.rows("select count(*) from goods") == [(2,)]


def test_rows_that_another_writes_while_a_step_merges_are_kept(shop: Any) -> None:
    @dg.asset(name="goods", metadata={"merge_keys": "id"}, ins={"before": dg.AssetIn("stock")})
    def merged(before: pa.Table) -> pa.Table:
        with duckrun.connect(shop.root) as other:
            other.execute("shop.goods", duckrun.WriteSpec("append"), pa.table({"id": [9], "v": ["theirs"]}))
        return pa.table({"id": [1, 3], "v": ["ours", "ours"]})

    shop.run([goods(), goods(key=("stock",))])
    shop.run([merged, goods(key=("stock",))], selection=[merged])
    assert shop.rows("select id, v from goods where id <> 2 order by id") == [(1, "ours"), (3, "ours"), (9, "theirs")]


@pytest.mark.parametrize("how", [{"mode": "append"}, {"merge_keys": "id"}])
def test_a_table_whose_columns_change_under_a_running_step_is_left_as_the_other_made_it(shop: Any, how: Any) -> None:
    @dg.asset(name="goods", metadata=how)
    def late() -> pa.Table:
        with duckrun.connect(shop.root) as other:
            other.execute("shop.goods", duckrun.WriteSpec("overwrite"), pa.table({"number": [5], "id": ["five"]}))
        return pa.table({"id": [3], "v": ["c"]})

    shop.run([goods()])
    message = shop.error([late])
    assert "Asset goods" in message and "shop.goods" in message
    assert shop.rows("select * from goods") == [(5, "five")]


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


@pytest.mark.parametrize("location", ["shop/goods", "shop/goods/", "{root}/shop/goods"])
def test_a_location_that_is_the_folder_of_another_table_is_an_error(shop: Any, location: str) -> None:
    other = goods(key=("other",), location=location.format(root=shop.root))
    with pytest.raises(InvalidConfig, match="Assets goods and other both write table shop.goods"):
        check_definitions(definitions(shop, goods(), other))


@pytest.mark.parametrize("location", [None, "{root}/shop/goods"])
def test_two_assets_on_one_table_of_a_profile_s_lake_are_an_error(shop: Any, tmp_path: Path, location: Any) -> None:
    """The root and the schema of a key of one part are the profile's."""
    (tmp_path / "dbt_project.yml").write_text("name: shop\nprofile: shop\n")
    profile = json.dumps({"type": "duckrun", "schema": "shop", "root_path": str(shop.root)})
    (tmp_path / "profiles.yml").write_text(f"shop: {{target: dev, outputs: {{dev: {profile}}}}}\n")
    manager = DeltaIOManager(duckrun=DuckrunResource(project_dir=str(tmp_path)))
    located = {} if location is None else {"location": location.format(root=shop.root)}
    other = goods(key=("shop", "goods") if location is None else ("other",), **located)
    with pytest.raises(InvalidConfig, match="Assets goods and .* both write table shop.goods"):
        check_definitions(dg.Definitions(assets=[goods(), other], resources={"io_manager": manager}))


def test_tables_of_one_name_in_two_lakes_are_two_tables(shop: Any, tmp_path: Path) -> None:
    @dg.asset(key=["shop", "goods"], io_manager_key="elsewhere")
    def twin() -> pa.Table:
        return pa.table({"id": [1]})

    def beside(lake: Any, schema: str | None = None) -> dg.Definitions:
        other = DeltaIOManager(duckrun=lake, schema=schema)
        return dg.Definitions(assets=[goods(), twin], resources={**shop.resources(), "elsewhere": other})

    one, two = dg.EnvVar("LAKE_ONE"), dg.EnvVar("LAKE_TWO")
    for lake in (
        DuckrunResource(root_path=str(tmp_path / "other")),
        DuckrunResource(root_path=one),
        DuckrunResource.configure_at_launch(),
    ):
        check_definitions(beside(lake))
    both = {"io_manager": DeltaIOManager(duckrun=DuckrunResource(root_path=one), schema="shop")}
    for root, fine in ((one, False), (two, True)):
        both["elsewhere"] = DeltaIOManager(duckrun=DuckrunResource(root_path=root))
        if fine:
            check_definitions(dg.Definitions(assets=[goods(), twin], resources=both))
        else:
            with pytest.raises(InvalidConfig, match="both write table shop.goods"):
                check_definitions(dg.Definitions(assets=[goods(), twin], resources=both))
    with pytest.raises(InvalidConfig, match="Assets goods and shop/goods both write table shop.goods"):
        check_definitions(beside(DuckrunResource(root_path=f"{shop.root}/")))


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
def test_an_io_manager_of_the_asset_s_own_is_seen_too(shop: Any, tmp_path: Path) -> None:
    def twin(root: Path) -> dg.AssetsDefinition:
        own = DeltaIOManager(duckrun=DuckrunResource(root_path=str(root)))

        @dg.asset(key=["shop", "goods"], io_manager_def=own)
        def _twin() -> pa.Table:
            return pa.table({"id": [1]})

        return _twin

    check_definitions(definitions(shop, goods(), twin(tmp_path / "other")))
    with pytest.raises(InvalidConfig, match="Assets goods and shop/goods both write table shop.goods"):
        check_definitions(definitions(shop, goods(), twin(shop.root)))


@pytest.mark.parametrize("kind", ["duckrun", "duckdb"])
def test_a_dbt_model_is_in_the_lake_of_its_project(shop: Any, tmp_path: Path, kind: str) -> None:
    (tmp_path / "dbt_project.yml").write_text("name: shop\nprofile: shop\n")

    def model(root: Path) -> dg.AssetsDefinition:
        profile = json.dumps({"type": kind, "schema": "shop", "root_path": str(root), "path": "x.duckdb"})
        (tmp_path / "profiles.yml").write_text(f"shop: {{target: dev, outputs: {{dev: {profile}}}}}\n")
        project = DbtProject(project_dir=tmp_path)
        return goods(
            key=("m",),
            **{"dagster_dbt/manifest": "x", "dagster_dbt/project": project, "dagster/table_name": "shop.goods"},
        )

    check_definitions(definitions(shop, goods(), model(tmp_path / "other")))
    if kind == "duckrun":
        with pytest.raises(InvalidConfig, match="Assets goods and m both write table shop.goods"):
            check_definitions(definitions(shop, goods(), model(shop.root)))


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
    checked = check_definitions(good)
    assert set(checked.resolve_all_asset_keys()) == set(good.resolve_all_asset_keys())


def test_what_an_environment_variable_decides_is_checked_by_its_name(shop: Any) -> None:
    variable = dg.EnvVar("NOT_SET_WHERE_DEFINITIONS_LOAD")

    def defs(lake: DuckrunResource, **metadata: Any) -> dg.Definitions:
        def goods() -> pa.Table: ...

        assets = [dg.asset(key="goods")(goods), dg.asset(key="other", metadata=metadata)(goods)]
        manager = DeltaIOManager(duckrun=lake, schema=variable)
        return dg.Definitions(assets=assets, resources={"io_manager": manager})

    for settings in (
        {"root_path": variable},
        {"root_path": "x", "schema": variable},
        {"project_dir": "x", "target": variable},
    ):
        lake = DuckrunResource(**settings)
        check_definitions(defs(lake))
        with pytest.raises(InvalidConfig, match="both write table"):
            check_definitions(defs(lake, table="goods"))


def test_an_asset_of_changes_keeps_a_history_and_the_last_state(shop: Any) -> None:
    def dims(*changes: tuple[int, str, int, str]) -> list[dg.AssetsDefinition]:
        value = pa.table(
            dict(zip(("id", "name", "at", "_change_type"), map(list, zip(*changes, strict=True)), strict=True))
        )
        words = {"merge_keys": "id", "sequence_by": "at"}
        return [goods(value, ["dim"], mode="scd2", **words), goods(value, ["last"], mode="scd1", **words)]

    shop.run(dims((1, "a", 10, "insert"), (1, "b", 20, "update_postimage"), (2, "x", 5, "insert")))
    shop.run(dims((1, "c", 15, "insert"), (2, "x", 9, "delete")))
    with duckrun.connect(shop.root, schema="shop") as session:
        assert rows_of(session.table("dim").toDF()) == [
            (1, "a", 10, 10, 15),
            (1, "b", 20, 20, None),
            (1, "c", 15, 15, 20),
            (2, "x", 5, 5, 9),
        ]
        assert rows_of(session.table("last").toDF()) == [(1, "b", 20)]


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"mode": "scd2", "sequence_by": "v"}, "'mode' is 'scd2', which needs 'merge_keys'"),
        ({"mode": "scd2", "merge_keys": "id"}, "goes with mode 'scd1' or 'scd2', which need it"),
        ({"merge_keys": "id", "sequence_by": "v"}, "goes with mode 'scd1' or 'scd2'"),
        ({"mode": "scd1", "merge_keys": "id", "sequence_by": "v", "deletes": 3}, "'deletes'"),
        (
            {"mode": "scd1", "merge_keys": "id", "sequence_by": "v", "merge_clauses": ["matched_update"]},
            "'merge_clauses'",
        ),
    ],
)
def test_what_a_history_needs_is_said_when_definitions_load(shop: Any, metadata: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        check_definitions(definitions(shop, goods(**metadata)))


def test_an_asset_keeps_a_change_feed_from_when_it_is_asked_for(shop: Any) -> None:
    shop.run([goods(merge_keys="id")])
    for _ in range(2):
        shop.run([goods(pa.table({"id": [2], "v": ["z"]}), merge_keys="id", change_data_feed=True)])
    with duckrun.connect(shop.root, schema="shop") as session:
        found = rows_of(session.sql("select id, v, _change_type from table_changes('goods', 2)"))
        assert found[:2] == [(2, "b", "update_preimage"), (2, "z", "update_postimage")]
        assert shop.snapshot("goods").version == 3  # turned once
    shop.run([goods(key=["other"], change_data_feed=True)])
    assert shop.snapshot("other").properties["delta.enableChangeDataFeed"] == "true"


def test_metadata_of_the_assets_own_stays_beside_that_of_the_write(shop: Any, metadata: Any) -> None:
    @dg.asset
    def by_output() -> dg.Output[pa.Table]:
        return dg.Output(ROWS, metadata={"version": "mine", "dagster/row_count": 7, "mode": "append"})

    @dg.asset
    def by_context(context: dg.AssetExecutionContext) -> pa.Table:
        context.add_output_metadata({"version": "mine"})
        return ROWS

    result = shop.run([by_output, by_context])
    told = metadata(result, "by_output")
    assert (told["version"], told["dagster/row_count"]) == ("mine", 7)
    assert (told["duckrun/version"], told["duckrun/row_count"], told["mode"]) == (0, 2, "append")
    told = metadata(result, "by_context")
    assert (told["version"], told["duckrun/version"], told["dagster/row_count"]) == ("mine", 0, 2)


def test_assets_that_store_nothing_are_no_tables(shop: Any) -> None:
    @dg.asset(key=["a", "b", "c"])
    def kept_in_order() -> dg.MaterializeResult:
        return dg.MaterializeResult()

    @dg.asset(key=["x", "goods"])
    def by_its_own_rows() -> dg.MaterializeResult[pa.Table]:
        return dg.MaterializeResult(value=ROWS)

    check_definitions(definitions(shop, goods(), kept_in_order, by_its_own_rows))
    with pytest.raises(InvalidConfig, match=r"x/goods and y both write table x\.goods"):
        check_definitions(definitions(shop, goods(key=["y"], schema="x", table="goods"), by_its_own_rows))


def test_definitions_show_the_storage_that_materializations_show(shop: Any, metadata: Any, tmp_path: Path) -> None:
    there = DuckrunResource(root_path=str(shop.root), schema="shop", lakes={"b": {"root_path": f"{tmp_path}/b c"}})
    assets = [goods(key=("odd",), table="a b%c"), goods(key=("other",), lake="b"), goods(key=("x",), location="f/a b")]
    resources = {"io_manager": DeltaIOManager(duckrun=there)}
    graph = check_definitions(dg.Definitions(assets, resources=resources)).resolve_asset_graph()
    result = dg.materialize(assets, resources=resources, instance=shop.instance)
    for name in ("odd", "other", "x"):
        defined, entries = graph.get(dg.AssetKey(name)).metadata, metadata(result, name)
        for key in ("dagster/table_name", "dagster/uri", "dagster/storage_kind"):
            assert defined[key] == entries[key], (name, key)


def test_definitions_show_no_storage_that_a_variable_decides() -> None:
    def node(schema: Any = None, **words: Any) -> Any:
        manager = DeltaIOManager(duckrun=DuckrunResource(root_path="/nowhere", **words), schema=schema)
        defs = check_definitions(dg.Definitions([goods()], resources={"io_manager": manager}))
        return defs.resolve_asset_graph().get(dg.AssetKey("goods"))

    assert "dagster/storage_kind" not in node(format=dg.EnvVar("NOT_SET_WHERE_DEFINITIONS_LOAD")).tags
    assert "dagster/table_name" not in node(schema=dg.EnvVar("NOT_SET_WHERE_DEFINITIONS_LOAD")).metadata


def test_definitions_show_the_storage_of_assets(shop: Any, root: Path) -> None:
    located = goods(key=["other"], location="elsewhere/other")
    own = goods(key=["mine"], **{"dagster/table_name": "my own words"})

    @dg.asset(key=["a", "nothing"])
    def nothing() -> None: ...

    checked = check_definitions(definitions(shop, goods(), located, own, nothing))
    graph = checked.resolve_asset_graph()

    def storage(*path: str) -> tuple[Any, Any, Any]:
        node = graph.get(dg.AssetKey(list(path)))
        found = (node.metadata.get(key) for key in ("dagster/table_name", "dagster/uri"))
        values = (getattr(value, "value", value) for value in found)
        return (*values, node.tags.get("dagster/storage_kind"))

    at = Path(shop.root).as_uri()
    assert storage("goods") == ("shop.goods", f"{at}/shop/goods", "deltalake")
    assert storage("other") == ("shop.other", f"{at}/elsewhere/other", "deltalake")
    assert storage("mine") == ("my own words", f"{at}/shop/mine", "deltalake")
    assert storage("a", "nothing") == (None, None, None)
    lake = DuckrunResource(root_path=str(root), format="ducklake")
    whole = dg.Definitions(assets=[goods()], resources={"io_manager": DeltaIOManager(duckrun=lake, schema="shop")})
    node = check_definitions(whole).resolve_asset_graph().get(dg.AssetKey(["goods"]))
    assert node.tags["dagster/storage_kind"] == "ducklake" and "dagster/uri" not in node.metadata
    unknown = DuckrunResource(root_path=dg.EnvVar("NO_SUCH_ROOT"))
    whole = dg.Definitions(assets=[goods()], resources={"io_manager": DeltaIOManager(duckrun=unknown)})
    node = check_definitions(whole).resolve_asset_graph().get(dg.AssetKey(["goods"]))
    assert "dagster/uri" not in node.metadata and node.metadata["dagster/table_name"] == "main.goods"
    result = checked.resolve_implicit_global_asset_job_def().execute_in_process(instance=shop.instance)
    assert result.success and shop.rows("select count(*) from goods") == [(2,)]


@pytest.mark.parametrize("text", ["create table shop.other as select 1 as id", "select 1 as id; select 2 as id"])
def test_sql_that_is_not_one_query_is_refused_before_it_runs(shop: Any, text: str) -> None:
    error = shop.error([goods(duckrun.SQL(text))])
    assert f"duckrun.SQL is one query whose rows are written, not {text!r}. Nothing was written" in error
    assert not (shop.root / "shop").exists()


def test_an_error_of_a_lazy_value_names_the_asset(shop: Any) -> None:
    error = shop.error([goods(pl.LazyFrame({"a": [1]}).select("nope"))])
    assert "ColumnNotFoundError" in error and "This was Asset goods." in error


def test_a_location_does_not_leave_the_root_of_its_lake(shop: Any) -> None:
    error = shop.error([goods(location="../elsewhere")])
    assert "metadata 'location' '../elsewhere' leaves the root of its lake" in error
    assert not (shop.root.parent / "elsewhere").exists()


def test_an_io_manager_takes_the_resource_of_its_lake_and_not_a_path(shop: Any) -> None:
    with pytest.raises(
        InvalidConfig, match=r"DeltaIOManager: duckrun is 'lake'; give DuckrunResource\(root_path='lake'\)"
    ):
        DeltaIOManager(duckrun="lake")


@pytest.mark.skipif(os.sep != "/", reason="a path of this machine")
def test_a_path_of_windows_is_no_root_on_another_system() -> None:
    with pytest.raises(InvalidConfig, match="is a path of Windows"):
        duckrun.connect("C:\\\\lake")
