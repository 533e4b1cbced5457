"""Spark on object stores: the credentials of storage_options in Hadoop's spelling, and the lake of both engines on S3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import MergeSpec, WriteSpec
from duckrun.engines.spark.process.jars import STORE_PACKAGES, store_packages, with_jars, without_stores
from duckrun.engines.spark.process.session import _settings
from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.storage.storage import Storage
from duckrun.values.rows import DeleteSpec
from tests.lake import rows_of

ROWS = pa.table({"id": [1, 2, 3], "day": ["mon", "o'x %", "mon"]})


@pytest.mark.spark
@pytest.mark.s3
def test_both_engines_read_and_write_one_table_on_s3(
    spark: Any, s3_options: dict[str, str], s3_bucket: Callable[[str], str]
) -> None:
    root = s3_bucket("both-engines") + "/lake"
    with (
        duckrun.connect(root, storage_options=s3_options, engine="spark", spark=spark) as on_spark,
        duckrun.connect(root, storage_options=s3_options) as on_duckdb,
    ):
        commit = on_spark.execute("main.t", WriteSpec("error", partition_by=("day",)), ROWS)
        assert (commit.engine, commit.version, commit.rows_inserted) == ("spark", 0, 3)
        assert rows_of(on_duckdb.scan("main.t")) == rows_of(ROWS)
        on_duckdb.execute("main.t", MergeSpec(("id",)), pa.table({"id": [3, 4], "day": ["tue", "tue"]}))
        merged = on_spark.execute("main.t", MergeSpec(("id",)), pa.table({"id": [4, 5], "day": ["wed", "wed"]}))
        assert (merged.rows_updated, merged.rows_inserted) == (1, 1)
        on_spark.execute("main.t", DeleteSpec("id = 1"))
        on_duckdb.execute("main.t", WriteSpec("append"), pa.table({"id": [6], "day": ["thu"]}))
        expected = [(2, "o'x %"), (3, "tue"), (4, "wed"), (5, "wed"), (6, "thu")]
        assert rows_of(on_spark.scan("main.t")) == rows_of(on_duckdb.scan("main.t")) == expected
        with pytest.raises(UnsupportedFeature, match="main.t.*engine: duckdb"):
            on_spark.execute("main.t", WriteSpec("safeappend", read_version=commit.version), ROWS)


def test_credentials_of_azure_and_google_in_hadoop_s_spelling() -> None:
    key = Storage("az://box/lake", {"AZURE_STORAGE_ACCOUNT_NAME": "me", "AZURE_STORAGE_ACCOUNT_KEY": "k"})
    assert key.hadoop_conf() == {"fs.azure.account.key.me.dfs.core.windows.net": "k"}
    assert key.spark_location("az://box/lake/a/b") == "abfss://box@me.dfs.core.windows.net/lake/a/b"
    url = "abfss://box@you.dfs.core.windows.net/lake"
    signed = Storage(url, {"AZURE_STORAGE_SAS_TOKEN": "sv=1"})
    assert signed.spark_location(url + "/t") == url + "/t"
    assert signed.hadoop_conf() == {
        "fs.azure.account.auth.type.you.dfs.core.windows.net": "SAS",
        "fs.azure.sas.fixed.token.you.dfs.core.windows.net": "sv=1",
    }
    principal = {"AZURE_CLIENT_ID": "i", "AZURE_CLIENT_SECRET": "s", "AZURE_TENANT_ID": "t"}
    conf = Storage(url, principal).hadoop_conf()
    assert conf["fs.azure.account.oauth2.client.secret.you.dfs.core.windows.net"] == "s"
    assert conf["fs.azure.account.oauth2.client.endpoint.you.dfs.core.windows.net"].endswith("/t/oauth2/token")
    google = Storage("gs://box/lake", {"GOOGLE_SERVICE_ACCOUNT": "/key.json"}).hadoop_conf()
    assert google["google.cloud.auth.service.account.json.keyfile"] == "/key.json"


@pytest.mark.parametrize("token", ["aws_session_token", "session_token", "aws_token", "token"])
@pytest.mark.parametrize("region", ["aws_region", "region", "aws_default_region", "default_region"])
def test_both_engines_know_an_s3_option_by_each_of_its_names(token: str, region: str) -> None:
    """The names are those that deltalake takes."""
    storage = Storage("s3://box/lake", {token: "secret token", region.upper(): "eu-west-3"})
    [secret] = storage.duckdb_secrets()
    assert "SESSION_TOKEN 'secret token', REGION 'eu-west-3'" in secret
    assert storage.hadoop_conf() == {
        "fs.s3a.bucket.box.session.token": "secret token",
        "fs.s3a.bucket.box.endpoint.region": "eu-west-3",
    }


def test_an_azure_container_without_its_account_is_refused_by_name() -> None:
    with pytest.raises(InvalidConfig, match="az://box/lake by its account.*AZURE_STORAGE_ACCOUNT_NAME"):
        Storage("az://box/lake").spark_location("az://box/lake/t")


def test_packages_extensions_and_settings_of_a_user_come_beside_delta_s() -> None:
    from pyspark.sql import SparkSession

    conf = {
        "spark.sql.extensions": "com.example.Mine",
        "spark.sql.sources.default": "parquet",
        "spark.jars.packages": "com.example:mine:1",
    }
    settings = _settings("local[1]", conf, None)
    assert settings["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,com.example.Mine"
    assert settings["spark.sql.sources.default"] == "parquet" and "spark.jars.packages" not in settings
    builder = with_jars(SparkSession.Builder(), conf, ("com.example:other:2",), Storage("s3://box/lake"))
    packages = builder._options["spark.jars.packages"].split(",")
    assert {"com.example:mine:1", "com.example:other:2", *STORE_PACKAGES["s3"]} < set(packages)
    assert any(package.startswith("io.delta:delta-spark") for package in packages)


def test_a_store_brings_its_jars_and_a_folder_none() -> None:
    assert store_packages(Storage("/lake")) == ()
    assert any("hadoop-aws" in package for package in store_packages(Storage("s3://box/lake")))
    assert any("hadoop-azure" in package for package in store_packages(Storage("abfss://b@a.dfs.core.windows.net/x")))


@pytest.mark.parametrize(
    ("conf", "packages", "environment", "alone"),
    [
        ({"spark.driver.memory": "1g"}, (), {}, True),
        ({}, STORE_PACKAGES["s3"], {}, False),
        ({"spark.jars": "gcs-connector-shaded.jar"}, (), {}, False),
        ({"duckrun.jars": "provided"}, (), {}, False),
        ({"spark.driver.extraClassPath": "/opt/jars/*"}, (), {}, False),
        ({}, (), {"SPARK_HOME": "/opt/spark"}, False),
    ],
)
def test_a_spark_that_may_have_a_store_s_file_system_keeps_hadoop_s_own_for_local_files(
    conf: dict[str, str], packages: tuple[str, ...], environment: dict[str, str], alone: bool, monkeypatch: Any
) -> None:
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert without_stores(conf, packages, None) is alone
