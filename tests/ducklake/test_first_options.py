"""Compression and file size of a table hold for the files of the write that creates it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa
import pytest

import duckrun
from duckrun import SQL, WriteSpec
from duckrun.errors import InvalidConfig
from duckrun.session import Session
from duckrun_dagster import DeltaIOManager, DuckrunResource
from tests.dbt.conftest import Project, make_project  # noqa: F401  a fixture
from tests.ducklake.plain import attached

ROWS = "select range as i, 'v' || range as x from range(1000)"
ZSTD = "with ('duckrun.compression' = 'zstd')"


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def catalog(request: pytest.FixtureRequest, root: Path) -> str:
    root.mkdir()
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_catalog"))
    return f"{request.param}:{root}/catalog.{request.param}"


@pytest.fixture
def made(root: Path, catalog: str) -> Iterator[Session]:
    with duckrun.connect(root, format="ducklake", catalog=catalog, inline_rows=0) as session:
        session.sql("create table beside as select 1 as a")
        yield session


def codecs(folder: Path, table: str) -> list[str]:
    """Codec of each file of a table, as plain DuckDB reads it."""
    files = sorted(folder.rglob(f"{table}/**/*.parquet"))
    found = [
        duckdb.execute("select distinct compression from parquet_metadata($1)", [str(f)]).fetchall() for f in files
    ]
    return [codec for each in found for (codec,) in each]


def options(root: Path, catalog: str) -> set[tuple[str, str]]:
    """Options beyond those of tables: scope and name."""
    with attached(root, catalog) as plain:
        rows = plain.execute("select scope, option_name from ducklake_options('lake')").fetchall()
    return {
        (scope, name)
        for scope, name in rows
        if name in ("parquet_compression", "target_file_size") and scope != "TABLE"
    }


CREATING: dict[str, Callable[[Session], Any]] = {
    "create as": lambda s: s.sql(f"create table t {ZSTD} as {ROWS}"),
    "create, then insert": lambda s: [s.sql(f"create table t (i bigint, x varchar) {ZSTD}"), s.sql(f"insert into t {ROWS}")],
    "overwrite": lambda s: s.execute("t", WriteSpec("overwrite", compression="zstd"), SQL(ROWS)),
    "append": lambda s: s.execute("t", WriteSpec("append", compression="zstd"), SQL(ROWS)),
    "error": lambda s: s.execute("t", WriteSpec("error", compression="zstd"), pa.table({"i": range(1000)})),
    "replaced": lambda s: [s.sql("create table t as select 1 as i"), s.sql(f"create or replace table t {ZSTD} as {ROWS}")],
    "given to a table without": lambda s: [
        s.sql("create table t (i bigint, x varchar)"),
        s.execute("t", WriteSpec("overwrite", compression="zstd"), SQL(ROWS)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("create", CREATING.values(), ids=CREATING)
def test_the_first_file_has_the_compression_of_the_table(
    made: Session, root: Path, create: Callable[[Session], Any]
) -> None:
    create(made)
    assert codecs(root, "t")[-1:] == ["ZSTD"]
    assert made.table("t").snapshot().properties["duckrun.compression"] == "zstd"
    made.sql("create table after_it as select 1 as a")
    made.sql("insert into beside values (2)")
    assert set(codecs(root, "after_it") + codecs(root, "beside")) == {"SNAPPY"}


def test_the_first_files_have_the_size_of_the_table(made: Session, root: Path) -> None:
    rows = SQL("select range as i, md5(range::varchar) as x from range(600000)")
    made.execute("t", WriteSpec("overwrite", target_file_size=2_000_000), rows)
    sizes = [file.stat().st_size for file in root.rglob("t/**/*.parquet")]
    assert len(sizes) >= 4
    assert max(sizes) < 6_000_000
    assert made.sql("select count(*), count(distinct i) from t").toArrow().to_pylist()[0]["count_star()"] == 600_000
    made.execute("u", WriteSpec("overwrite"), rows)
    assert len(list(root.rglob("u/**/*.parquet"))) < len(sizes)


def test_each_table_of_a_transaction_has_its_own_options(made: Session, root: Path) -> None:
    with made.transaction() as t:
        t.sql(f"create table one {ZSTD} as {ROWS}")
        t.sql(f"create table two as {ROWS}")
        t.sql("insert into beside select range from range(1000)")
        t.sql(f"insert into one {ROWS}")
    assert [codecs(root, name) for name in ("one", "two", "beside")] == [["ZSTD"] * 2, ["SNAPPY"], ["SNAPPY"] * 2]


def test_the_catalog_has_options_of_tables_alone(made: Session, root: Path, catalog: str) -> None:
    made.sql(f"create table t {ZSTD} as {ROWS}")
    with pytest.raises(InvalidConfig):
        made.sql(f"create table broken {ZSTD} as select error('no') as i")
    made.sql(f"create table plain as {ROWS}")
    assert codecs(root, "plain") == ["SNAPPY"]
    made.close()
    assert options(root, catalog) == set()


@pytest.mark.parametrize("schema", [None, "main"])
def test_options_of_the_lake_and_of_a_schema_come_back(root: Path, catalog: str, schema: str | None) -> None:
    with duckrun.connect(root, format="ducklake", catalog=catalog, inline_rows=0) as session:
        session.sql("create table beside as select 1 as a")
    of = "" if schema is None else f", schema => '{schema}'"
    with attached(root, catalog) as plain:
        plain.execute(f"call lake.set_option('parquet_compression', 'gzip'{of})")
    with duckrun.connect(root, format="ducklake", catalog=catalog, inline_rows=0) as session:
        session.sql(f"create table t {ZSTD} as {ROWS}")
        session.sql(f"create table plain as {ROWS}")
    assert (codecs(root, "t"), codecs(root, "plain")) == (["ZSTD"], ["GZIP"])
    assert options(root, catalog) == {("GLOBAL" if schema is None else "SCHEMA", "parquet_compression")}


def test_an_asset_of_the_io_manager_has_its_compression_from_its_first_run(tmp_path: Path) -> None:
    @dg.asset(metadata={"compression": "zstd"})
    def fruit() -> pa.Table:
        return pa.table({"i": list(range(1000))})

    lake = DuckrunResource(root_path=str(tmp_path / "lake"), format="ducklake", inline_rows=0)
    dg.materialize([fruit], resources={"io_manager": DeltaIOManager(duckrun=lake, schema="shop")})
    assert codecs(tmp_path, "fruit") == ["ZSTD"]


def test_a_model_of_dbt_has_its_compression_from_its_first_run(make_project: Callable[..., Project]) -> None:  # noqa: F811
    models = {
        "models/fruit.sql": f"{{{{ config(materialized='table', compression='zstd') }}}} {ROWS}",
        "models/more.sql": "{{ config(materialized='table') }} select * from {{ ref('fruit') }}",
    }
    project = make_project(models, format="ducklake")
    project.run("build")
    assert (codecs(project.lake, "fruit"), codecs(project.lake, "more")) == (["ZSTD"], ["SNAPPY"])
