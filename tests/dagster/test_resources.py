"""The lake's address from arguments or from the dbt profile; secrets stay hidden; nothing opens before it is used."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from duckrun.errors import InvalidConfig
from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dbt project whose profile takes the root from the environment."""
    folder = tmp_path / "dbt"
    folder.mkdir()
    (folder / "dbt_project.yml").write_text("name: shop\nprofile: shop\nversion: '1.0'\n")
    (folder / "profiles.yml").write_text(
        """
shop:
  target: "{{ env_var('SHOP_TARGET', 'dev') }}"
  outputs:
    dev:
      type: duckrun
      root_path: "{{ env_var('SHOP_LAKE') }}"
      schema: marts
      threads: 4
      memory_limit: 2GB
    prod:
      type: duckrun
      root_path: s3://bucket/lake
      schema: marts
      storage_options:
        AWS_SECRET_ACCESS_KEY: "{{ env_var('DBT_ENV_SECRET_KEY') }}"
    plain:
      type: duckdb
    empty:
      type: duckrun
      schema: marts
"""
    )
    monkeypatch.setenv("SHOP_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("DBT_ENV_SECRET_KEY", "hush")
    monkeypatch.delenv("DBT_PROFILES_DIR", raising=False)
    return folder


def test_the_lake_of_a_dbt_profile(project: Path, tmp_path: Path) -> None:
    lake = DuckrunResource(project_dir=str(project)).lake()
    assert lake.root == str(tmp_path / "lake")
    assert lake.default_schema == "marts"
    assert DuckrunResource(project_dir=str(project), schema="raw").lake().default_schema == "raw"


def test_a_target_and_its_credentials(project: Path) -> None:
    lake = DuckrunResource(project_dir=str(project), target="prod").lake()
    assert lake.root == "s3://bucket/lake"
    assert lake.storage.delta_options() == {"AWS_SECRET_ACCESS_KEY": "hush"}


def test_a_relative_root_is_relative_to_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_LAKE", "data/lake")
    assert DuckrunResource(project_dir=str(project)).lake().root == str(project / "data" / "lake")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "nope"}, "nope"),
        ({"target": "plain"}, "type 'duckdb'; a lake needs type: duckrun"),
        ({"target": "empty"}, "has no root_path"),
        ({"profile": "other"}, "no profile 'other'; it has shop"),
        ({"profiles_dir": "/nowhere"}, "does not exist or is empty"),
        ({"root_path": "lake"}, "both name a lake"),
    ],
)
def test_a_profile_that_names_no_lake_is_refused(project: Path, arguments: Any, message: str) -> None:
    with pytest.raises(InvalidConfig, match="^DuckrunResource: ") as caught:
        DuckrunResource(project_dir=str(project), **arguments).lake()
    assert message in str(caught.value)


def test_an_environment_variable_that_is_not_set(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_LAKE")
    with pytest.raises(InvalidConfig, match="SHOP_LAKE"):
        DuckrunResource(project_dir=str(project)).lake()


def test_an_unset_root_says_what_to_set(shop: Any) -> None:
    shop.lake = DuckrunResource()

    @dg.asset
    def goods() -> pa.Table:
        return pa.table({"id": [1]})

    message = shop.error([goods])
    assert "DuckrunResource: root_path is not set" in message and "Asset goods" in message


def test_a_root_that_is_a_file_is_refused_before_anything_is_written(shop: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    shop.lake = DuckrunResource(root_path=str(tmp_path / "file" / "lake"))

    @dg.asset
    def goods() -> pa.Table:
        return pa.table({"id": [1]})

    message = shop.error([goods])
    assert "Asset goods: DuckrunResource: root_path" in message and "is a file, not a folder" in message


def test_secrets_are_hidden_where_dagster_shows_them_and_there_where_they_are_used() -> None:
    resource = DuckrunResource(
        root_path="s3://bucket/lake",
        storage_options={"AWS_SECRET_ACCESS_KEY": "hush", "AWS_REGION": "eu", "AZURE_SAS_TOKEN": dg.EnvVar("HOME")},
    )
    shown = json.dumps(resource.get_resource_definition().config_schema.as_field().default_value)
    assert "hush" not in shown + repr(resource) + str(resource.model_dump())
    assert "eu" in shown and '"env": "HOME"' in shown

    seen: dict[str, str] = {}

    @dg.asset
    def goods(duckrun: DuckrunResource) -> None:
        seen.update(duckrun.lake().storage.delta_options() or {})
        assert "hush" not in repr(duckrun)

    dg.materialize([goods], resources={"duckrun": resource}, instance=dg.DagsterInstance.ephemeral())
    assert seen == {"AWS_SECRET_ACCESS_KEY": "hush", "AWS_REGION": "eu", "AZURE_SAS_TOKEN": os.environ["HOME"]}


def test_a_step_reads_each_table_at_one_version(shop: Any) -> None:
    seen: list[Any] = []

    @dg.asset
    def goods() -> pa.Table:
        return pa.table({"id": [1]})

    @dg.asset(ins={"goods": dg.AssetIn()})
    def reader(duckrun: DuckrunResource, goods: pa.Table) -> None:
        from duckrun import WriteSpec, connect

        with connect(shop.root) as other:
            other.execute("shop.goods", WriteSpec("append"), pa.table({"id": [2]}))
        seen.append((goods.num_rows, duckrun.session().sql("select * from shop.goods").count()))

    shop.run([goods, reader])
    shop.run([goods, reader], selection=[reader])
    assert seen == [(1, 1), (2, 2)]


def test_a_session_outside_of_dagster_follows_the_lake(shop: Any) -> None:
    with shop.lake.session() as session:
        session.execute("goods", __import__("duckrun").WriteSpec("append"), pa.table({"id": [1]}))
        assert session.sql("select * from goods").count() == 1


def test_spark_addresses_exclude_each_other() -> None:
    with pytest.raises(InvalidConfig, match="exclude each other"):
        SparkResource(master="local[2]", remote="sc://x:15002").session()


def test_definitions_load_without_opening_a_table_or_starting_a_jvm(tmp_path: Path) -> None:
    code = f"""
import sys, threading
import dagster as dg
from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource, check_definitions

@dg.asset(metadata={{"engine": "spark"}})
def goods(): ...

lake = DuckrunResource(root_path={str(tmp_path / "none")!r})
defs = check_definitions(dg.Definitions(assets=[goods], resources={{
    "io_manager": DeltaIOManager(duckrun=lake, spark=SparkResource(master="local[2]"))}}))
defs.resolve_asset_graph()
print([name for name in ("pyspark", "py4j", "dbt.config.profile") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "[]"
    assert not (tmp_path / "none").exists()


def test_the_io_manager_takes_the_lake_at_launch(tmp_path: Path) -> None:
    @dg.asset
    def goods() -> pa.Table:
        return pa.table({"id": [1]})

    lake = DuckrunResource.configure_at_launch()
    result = dg.materialize(
        [goods],
        instance=dg.DagsterInstance.ephemeral(),
        resources={"duckrun": lake, "io_manager": DeltaIOManager(duckrun=lake)},
        run_config={"resources": {"duckrun": {"config": {"root_path": str(tmp_path / "late")}}}},
    )
    assert result.success
    assert (tmp_path / "late" / "main" / "goods" / "_delta_log").is_dir()


def test_secrets_in_the_configuration_of_spark_are_hidden_and_reach_spark() -> None:
    conf = {
        "spark.hadoop.fs.s3a.secret.key": "hush",
        "spark.driver.extraJavaOptions": "-Djavax.net.ssl.keyStorePassword=hush",
        "spark.sql.shuffle.partitions": "8",
        "spark.hadoop.fs.s3a.access.key": dg.EnvVar("HOME"),
    }
    resource = SparkResource(master="local[2]", conf=conf, progress=False)
    far = SparkResource(remote="sc://host:15002/;token=hush")
    for each in (resource, far):
        shown = json.dumps(each.get_resource_definition().config_schema.as_field().default_value)
        assert "hush" not in shown + repr(each) + str(each.model_dump())
    assert '"8"' in json.dumps(resource.get_resource_definition().config_schema.as_field().default_value)

    seen: dict[str, Any] = {}

    @dg.asset
    def goods(spark: SparkResource, far: SparkResource) -> None:
        seen.update(spark._conf(), remote=far.environment()["SPARK_REMOTE"])
        assert "hush" not in repr(spark) + repr(far)

    dg.materialize([goods], resources={"spark": resource, "far": far}, instance=dg.DagsterInstance.ephemeral())
    assert seen == {
        **conf,
        "spark.hadoop.fs.s3a.access.key": os.environ["HOME"],
        "remote": "sc://host:15002/;token=hush",
    }


def test_a_root_with_credentials_is_refused_while_the_code_is_loaded() -> None:
    with pytest.raises(InvalidConfig, match="holds credentials") as raised:
        DuckrunResource(root_path="s3://key:hush@bucket/lake")
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("config", "changed"),
    [
        ({}, {}),
        ({"io_manager": {"writes": {}}}, {}),
        ({"io_manager": {"engine": "duckdb"}}, {"engine": "duckdb"}),
        ({"io_manager": {"preview": True, "schema": "fresh"}}, {"preview": True, "schema_": "fresh"}),
        ({"duckrun": {"memory_limit": "3GB"}}, {"memory_limit": "3GB"}),
        ({"duckrun": {"storage_options": {}}}, {"storage_options": {}}),
        ({"spark": {"connect_server": "auto"}}, {"connect_server": "auto"}),
        ({"spark": {"progress": True, "packages": []}}, {"progress": True, "packages": []}),
    ],
    ids=str,
)
def test_a_run_s_configuration_changes_what_it_names_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, config: Any, changed: Any
) -> None:
    """Also where it names what is the default of the class."""
    monkeypatch.setenv("KEY_OF_THE_LAKE", "hush")
    options = {"AWS_SECRET_ACCESS_KEY": "hush", "aws_access_key_id": dg.EnvVar("KEY_OF_THE_LAKE")}
    root = "s3://bucket/lake"
    lake = DuckrunResource(root_path=root, schema="own", storage_options=options, memory_limit="2GB")
    spark = SparkResource(master="local[2]", conf={"a": "b"}, packages=["p"], connect_server="never", progress=False)
    manager = DeltaIOManager(duckrun=lake, spark=spark, engine="spark", schema="raw", preview=False)
    found: dict[str, Any] = {}

    @dg.asset(required_resource_keys={"io_manager", "duckrun", "spark"})
    def look(context: dg.AssetExecutionContext) -> None:
        for key, names in (
            ("duckrun", ("schema_", "storage_options", "memory_limit", "root_path")),
            ("spark", ("master", "conf", "packages", "connect_server", "progress")),
            ("io_manager", ("engine", "schema_", "preview", "default_type", "writes")),
        ):
            resource = getattr(context.resources, key)
            found[key] = {name: getattr(resource, name) for name in names}
            if key == "duckrun":
                found["secrets"] = resource.lake().storage.delta_options()

    resources = {"duckrun": lake, "spark": spark, "io_manager": manager}
    run_config = {"resources": {key: {"config": values} for key, values in config.items()}}
    dg.materialize([look], resources=resources, instance=dg.DagsterInstance.ephemeral(), run_config=run_config)
    expected = {
        "duckrun": {
            "schema_": "own",
            "storage_options": {"AWS_SECRET_ACCESS_KEY": "********", "aws_access_key_id": "********"},
            "memory_limit": "2GB",
            "root_path": root,
        },
        "spark": {
            "master": "local[2]",
            "conf": {"a": "b"},
            "packages": ["p"],
            "connect_server": "never",
            "progress": False,
        },
        "io_manager": {"engine": "spark", "schema_": "raw", "preview": False, "default_type": "pyarrow", "writes": {}},
    }
    for key in config:
        expected[key] |= changed
    secrets = found.pop("secrets")
    assert found == expected
    if "storage_options" not in changed:
        assert secrets["AWS_SECRET_ACCESS_KEY"] == secrets["aws_access_key_id"] == "hush"
