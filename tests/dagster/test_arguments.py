"""Options that nobody would read: unknown names and bad values are refused when a resource or component is constructed.

Budget: 15 seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from duckrun.errors import InvalidConfig
from duckrun_dagster import (
    DeltaIOManager,
    DuckrunDbtCliResource,
    DuckrunLakeComponent,
    DuckrunResource,
    LakeConfig,
    MaintainedTablesComponent,
    SparkResource,
)

LAKE = DuckrunResource(root_path="lake")

CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "resource": (lambda: DuckrunResource(root_path="lake", encrypt=True), r"DuckrunResource has no 'encrypt'.*'encrypted'"),
    "resource, catalog": (lambda: DuckrunResource(root_path="lake", catalogue="sqlite:x"), r"'catalogue'.*'catalog'"),
    "resource, far off": (lambda: DuckrunResource(root_path="lake", zzz=1), r"has no 'zzz'. It takes .*root_path, project_dir"),
    "resource at launch": (lambda: DuckrunResource.configure_at_launch(memory_limt="1GB"), r"'memory_limt'.*'memory_limit'"),
    "another lake": (lambda: LakeConfig(root_path="lake", encrypt=True), r"LakeConfig has no 'encrypt'.*'encrypted'"),  # type: ignore[call-arg]
    "another lake, as a mapping": (
        lambda: DuckrunResource(root_path="lake", lakes={"b": {"root_path": "b", "encrypt": True}}), r"LakeConfig has no 'encrypt'"),
    "Spark": (lambda: SparkResource(mastr="local[1]"), r"SparkResource has no 'mastr'.*'master'"),
    "IO manager": (lambda: DeltaIOManager(duckrun=LAKE, default_typ="polars"), r"DeltaIOManager has no 'default_typ'.*'default_type'"),
    "IO manager, its lake": (lambda: DeltaIOManager(root_path="lake"), r"DeltaIOManager needs its lake: duckrun=DuckrunResource\(root_path=…\)"),
    "IO manager at launch": (lambda: DeltaIOManager.configure_at_launch(duckrun=LAKE, engin="x"), r"'engin'.*'engine'"),
    "component": (lambda: DuckrunLakeComponent(root_path="lake", encrypt=True), r"DuckrunLakeComponent has no 'encrypt'.*'encrypted'"),  # type: ignore[call-arg]
    "component of tables": (lambda: MaintainedTablesComponent(tables=[], cron="@daily"), r"MaintainedTablesComponent has no 'cron'"),  # type: ignore[call-arg]
    "memory limit": (lambda: DuckrunResource(root_path="lake", memory_limit="lots"), r"DuckrunResource: memory_limit: 'lots' is not a memory size"),
    "memory limit of nothing": (lambda: DuckrunResource(root_path="lake", memory_limit="0"), r"memory_limit: '0' is not"),
    "memory fraction": (lambda: DuckrunResource(root_path="lake", memory_fraction=1.5), r"memory_fraction is 1.5; it is a share above 0"),
    "engine": (lambda: DeltaIOManager(duckrun=LAKE, engine="polars"), r"engine is 'polars'; it takes one of duckdb, spark"),
    "type": (lambda: DeltaIOManager(duckrun=LAKE, default_type="panda"), r"default_type is 'panda'.*Did you mean 'pandas'"),
    "server": (lambda: SparkResource(connect_server="allways"), r"connect_server is 'allways'.*Did you mean 'always'"),
    "two addresses": (lambda: SparkResource(master="local", remote="sc://x"), r"exclude each other"),
}  # fmt: skip


@pytest.mark.parametrize("construct, message", CASES.values(), ids=CASES)
def test_an_argument_that_nobody_would_read_is_refused_when_it_is_written(
    construct: Callable[[], Any], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        construct()


def test_an_environment_variable_is_judged_when_the_run_knows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = DuckrunResource(root_path=str(tmp_path / "lake"), memory_limit=dg.EnvVar("DUCKRUN_TEST_LIMIT"))

    @dg.asset
    def rows(duckrun: DuckrunResource) -> None:
        duckrun.session().close()

    monkeypatch.setenv("DUCKRUN_TEST_LIMIT", "1GB")
    assert dg.materialize([rows], resources={"duckrun": lake}).success
    monkeypatch.setenv("DUCKRUN_TEST_LIMIT", "lots")
    with pytest.raises(dg.DagsterError) as raised:
        dg.materialize([rows], resources={"duckrun": lake})
    assert "'lots' is not a memory size" in str(raised.value.__cause__)


@pytest.fixture
def project(tmp_path: Path) -> Callable[[str], Path]:
    """A dbt project whose profile has some more lines."""

    def write(lines: str) -> Path:
        (tmp_path / "dbt_project.yml").write_text("name: shop\nprofile: shop\n")
        (tmp_path / "profiles.yml").write_text(
            f"shop:\n  target: dev\n  outputs:\n    dev:\n      type: duckrun\n      root_path: lake\n{lines}"
        )
        return tmp_path

    return write


@pytest.mark.parametrize(
    "lines, message",
    [
        ("      format: ducklake\n      encrypt: true\n", r"Target 'dev' of profile 'shop' in .*has no key 'encrypt'"),
        ("      lakes: {b: {root_path: b, catalogue: x}}\n", r"lakes: b has an unknown key 'catalogue'"),
    ],
)
def test_a_key_that_dbt_refuses_in_a_profile_is_refused_by_the_resource_too(
    project: Callable[[str], Path], lines: str, message: str
) -> None:
    lake = DuckrunResource(project_dir=str(project(lines)))
    with pytest.raises(InvalidConfig, match=message):
        lake.lake()


def test_dbts_resource_refuses_an_unknown_argument(project: Callable[[str], Path]) -> None:
    folder = str(project(""))
    with pytest.raises(InvalidConfig, match=r"has no 'memory_fractoin'.*'memory_fraction'"):
        DuckrunDbtCliResource(folder, memory_fractoin=0.5)
    with pytest.raises(InvalidConfig, match=r"memory_fraction is 1.5"):
        DuckrunDbtCliResource(folder, memory_fraction=1.5)
