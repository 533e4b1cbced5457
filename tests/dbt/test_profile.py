"""What a profile may say, and what dbt says when it cannot work: before anything runs."""

from __future__ import annotations

import pytest
from dbt.adapters.duckrun.credentials import DuckrunCredentials
from dbt.adapters.duckrun.environment import LakeEnvironment
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

from duckrun.errors import InvalidConfig

ONE = {"models/a.sql": "{{ config(materialized='table') }} select 1 as n"}


def credentials(**keys) -> DuckrunCredentials:
    data = {"root_path": "lake", "schema": "main", **keys}
    DuckrunCredentials.validate(data)
    return DuckrunCredentials.from_dict(data)


def test_debug_succeeds_and_hides_what_is_secret(make_project):
    project = make_project(ONE, storage_options={"AWS_SECRET_ACCESS_KEY": "hunter2"}, memory_limit="2GB")
    result = project.run("debug", fresh=True)
    assert "hunter2" not in result.text
    assert "***" in result.text and "AWS_SECRET_ACCESS_KEY" in result.text
    assert "2000000000" in result.text
    for log in (project.root / "logs").glob("*.log"):
        assert "hunter2" not in log.read_text()


def test_the_log_shows_no_signature_of_a_url_that_sql_names(make_project):
    project = make_project(
        {
            "models/fine.sql": "{{ config(materialized='table') }} select 'https://host/a?sig=hunter2' as url",
            "models/plain.sql": "{{ config(materialized='view') }} select 'https://host/b?sig=hunter3' as url",
            "models/broken.sql": "select * from read_parquet('https://127.0.0.1:1/c.parquet?sv=1&sig=hunter4')",
            "models/hooked.sql": "{{ config(materialized='table', pre_hook=\"create temp table h as select 'https://host/d?token=hunter5' as url\") }}"
            "{% if execute %}{% do run_query(\"select 'https://host/e?sig=hunter6' as url\") %}{% endif %} select 1 as id",
        }
    )
    result = project.dbt("run", "--debug")
    assert result["broken"]["status"] == "error" and "sig=***" in result.message("broken")
    assert result["hooked"]["status"] == "success"
    assert project.rows("main.fine") == [("https://host/a?sig=hunter2",)]
    logs = "".join(log.read_text() for log in (project.root / "logs").glob("*.log"))
    assert "sig=***" in logs and "token=***" in logs
    for text in (result.text, logs):
        assert "hunter" not in text


def test_a_secret_is_in_no_representation():
    assert "hunter2" not in repr(credentials(storage_options={"key": "hunter2"}))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"root_path": None}, ["root_path is not set"]),
        ({"engine": "flink"}, ["'flink'", "duckdb, spark"]),
        ({"spark": {"mastr": "local[2]"}}, ["spark", "'mastr'", "Did you mean 'master'"]),
        ({"spark": {"master": "local", "remote": "sc://x"}}, ["master or a remote"]),
        ({"lakes": {"other": {"root": "x"}}}, ["lakes", "other", "root_path"]),
        ({"lakes": {"other": {"root_path": "x", "readonly": True}}}, ["'readonly'", "Did you mean 'read_only'"]),
        ({"rot_path": "x"}, ["'rot_path'", "Did you mean 'root_path'"]),
        ({"path": "dev.duckdb", "database": "dev"}, ["root_path"]),
        ({"memory_limit": "lots"}, ["memory_limit", "2GB"]),
        ({"root_path": "s3://key:hunter2@bucket/lake"}, ["holds credentials", "s3://***@bucket"]),
        ({"lakes": {"other": {"root_path": "s3://key:hunter2@bucket"}}}, ["holds credentials"]),
        ({"storage_options": "AWS_SECRET_ACCESS_KEY=hunter2"}, ["storage_options is a str"]),
        ({"lakes": ["s3://key:hunter2@bucket"]}, ["lakes is a list"]),
    ],
)
def test_a_profile_that_cannot_work_is_refused(keys, words):
    with pytest.raises(DbtRuntimeError) as error:
        credentials(**keys)
    for word in words:
        assert word in str(error.value)
    assert "hunter2" not in str(error.value)


def test_transactions_are_off_and_duckdbs_own_limit_is_the_limit():
    found = credentials(settings={"memory_limit": "1GB", "threads": 2}, memory_limit="2GB")
    assert found.disable_transactions
    assert found.memory_limit == 10**9
    assert found.settings == {"threads": 2}


def test_the_instance_gets_seven_tenths_of_the_limit(make_project):
    macro = "{% macro limit() %}{{ log(run_query(\"select current_setting('memory_limit')\").columns[0][0], info=true) }}{% endmacro %}"
    project = make_project({"macros/m.sql": macro}, memory_limit="2GB")
    text = project.run("run-operation", "limit", fresh=True).text  # a process that holds nothing else
    megabytes = float(next(line for line in text.splitlines() if line.endswith("MiB")).split()[-2])
    assert 700 < megabytes < 1120  # 0.7 of 1.6 GB less what Python holds


def limit_of(monkeypatch, part: str | None, **keys) -> int:
    """The bytes that the process of a profile may use, told its part of the machine's memory."""
    monkeypatch.setenv("DUCKRUN_MEMORY_FRACTION", part or "")
    return LakeEnvironment(credentials(**keys), "one").arbiter.limit()


def test_extensions_of_duckdb_itself_need_no_download(make_project):
    """The shape of most public profiles; nothing of the list may be looked for on the network."""
    project = make_project(
        {"models/a.sql": "{{ config(materialized='table') }} select '{\"a\": 1}'::json ->> 'a' as n"},
        extensions=["httpfs", "parquet", "json", "icu", "core_functions"],
        settings={"custom_extension_repository": "http://127.0.0.1:1/nothing"},
    )
    assert project.dbt("run")["a"]["status"] == "success"
    assert project.rows("main.a") == [("1",)]


def test_extensions_of_others_are_loaded_only_if_signed(make_project):
    model = "{{ config(materialized='table') }} select current_setting('allow_unsigned_extensions') as unsigned"
    for keys, unsigned in (({}, False), ({"config_options": {"allow_unsigned_extensions": "true"}}, True)):
        project = make_project({"models/a.sql": model}, name=f"p{unsigned}", **keys)
        project.run("run")
        assert project.rows("main.a") == [(unsigned,)]


def test_the_part_of_the_memory_that_dbt_is_told_holds_where_the_profile_sets_no_limit(monkeypatch):
    monkeypatch.setattr("duckrun.run.memory.effective_limit", lambda: 8 * 10**9)
    assert limit_of(monkeypatch, None) == 8 * 10**9
    assert limit_of(monkeypatch, "0.25") == 2 * 10**9
    assert limit_of(monkeypatch, "0.25", memory_limit="4GB") == limit_of(monkeypatch, None, memory_limit="4GB")


@pytest.mark.parametrize("part", ["half", "0", "1.5", "nan"])
def test_a_part_of_the_memory_that_is_none_is_refused_by_name(monkeypatch, part):
    with pytest.raises(InvalidConfig, match="DUCKRUN_MEMORY_FRACTION is .*above 0 and at most 1"):
        limit_of(monkeypatch, part)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("settings", {"nope": 1}, "unrecognized configuration parameter"),
        ("attach", [{"path": "/nope/x.db"}], "Cannot open file"),
        ("config_options", {"nope": "1"}, "not recognized"),
    ],
)
def test_a_value_of_the_profile_that_duckdb_refuses_is_named_by_its_key(key, value, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    environment = LakeEnvironment(credentials(**{key: value}), "one")
    with pytest.raises(DbtDatabaseError, match=f"(?s)refuses the profile's {key}: .*{said}"):
        environment.handle()


@pytest.mark.parametrize("command", ["run", "debug"])
def test_a_root_that_cannot_be_written_is_an_error_before_anything_runs(make_project, tmp_path, command):
    (tmp_path / "file").write_text("in the way")
    project = make_project(ONE, root_path=str(tmp_path / "file" / "lake"))
    result = project.dbt(command)
    assert not result.success
    assert "is a file, not a folder" in result.text
    assert not result.nodes


def test_an_unset_root_path_is_an_error_of_the_profile(make_project):
    project = make_project(ONE)
    del project.profile["root_path"]
    result = project.dbt("run")
    assert not result.success
    assert "root_path is not set" in result.text


def test_a_model_without_columns_is_an_error_that_names_it(make_project):
    project = make_project(
        {
            "models/nothing.sql": "{{ config(materialized='table') }} select * exclude (n) from (select 1 as n)",
            "models/blank.sql": "{{ config(materialized='table') }} {# nothing #}",
            "models/gone.sql": "{{ config(materialized='table') }} select * from main.never_made",
        }
    )
    result = project.dbt("run")
    assert "returns no columns" in result.message("nothing") and "model.shop.nothing" in result.message("nothing")
    assert "returns no columns" in result.message("blank")
    assert "never_made" in result.message("gone")
    assert not list(project.lake.glob("main/*/_delta_log"))


def test_a_model_in_another_database_is_refused_before_anything_runs(make_project):
    result = make_project(
        {**ONE, "models/b.sql": "{{ config(materialized='table', database='other') }} select 1 as n"}
    ).dbt("run")
    assert "'other'" in result.text and "not a lake of this profile" in result.text
    assert not result.nodes


def test_a_folder_that_holds_no_delta_table_is_not_overwritten(make_project):
    project = make_project(ONE)
    stray = project.lake / "main" / "a" / "data.parquet"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"PAR1")
    result = project.dbt("run")
    assert not result.success
    assert "data.parquet" in result.message("a") and "Nothing was written" in result.message("a")
    assert [path.name for path in stray.parent.iterdir()] == ["data.parquet"]
