"""Assets and models with VARIANT and GEOMETRY columns: kept as they are, read by each library that has a form of them, refused by name by the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import duckrun
from duckrun import SQL, MergeSpec, ReadSpec, SchemaMismatch, Session, UnsupportedFeature, WriteSpec
from duckrun_dagster import DeltaIOManager, DuckrunResource
from tests.dbt.conftest import Project, make_project  # noqa: F401  a fixture
from tests.ducklake import plain

pytestmark = pytest.mark.drawn(5)

FIRST = "(1, {'a': 1, 'b': 'x'}::VARIANT, 'POINT (1 2)'::GEOMETRY), (2, 42::VARIANT, NULL)"
NEXT = "(2, 'text'::VARIANT, 'LINESTRING (0 0, 1 1)'::GEOMETRY), (3, {'a': 3}::VARIANT, 'POINT (3 3)'::GEOMETRY)"
ROWS = {1: ("{'a': 1, 'b': x}", "POINT (1 2)"), 2: ("42", None)}
LATER = {2: ("text", "LINESTRING (0 0, 1 1)"), 3: ("{'a': 3}", "POINT (3 3)")}


def asked(rows: str) -> str:
    return f"SELECT * FROM (VALUES {rows}) AS t(id, v, g)"


def found(root: Path, table: str, columns: str = "v::VARCHAR, g::VARCHAR") -> list[tuple[Any, ...]]:
    """The rows of a table as plain DuckDB has them."""
    with plain.attached(root) as own:
        return own.sql(f"SELECT id, {columns} FROM lake.main.{table} ORDER BY ALL").fetchall()


def rows_of(*models: dict[int, tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(((n, *values) for model in models for n, values in model.items()), key=repr)


# -- Dagster


class Step:
    """An asset with both columns, and what reads it."""

    def __init__(self, root: Path) -> None:
        self.instance = dg.DagsterInstance.ephemeral()
        self.resources = {"io_manager": DeltaIOManager(duckrun=DuckrunResource(root_path=str(root), format="ducklake"))}

        @dg.asset
        def shapes() -> SQL:
            return SQL(asked(FIRST))

        self.shapes = shapes
        self.run(shapes)

    def run(self, *assets: Any, **options: Any) -> dg.ExecuteInProcessResult:
        return dg.materialize(assets, instance=self.instance, resources=self.resources, **options)

    def copied(self, kind: Any, columns: list[str], made: Callable[[Any], Any] = lambda rows: rows) -> Any:
        """What an asset got of some columns as a type, which it wrote into ``copy``."""
        got = []

        def copy(shapes):
            got.append(shapes)
            return made(shapes)

        copy.__annotations__ = {"shapes": kind}
        copying = dg.asset(ins={"shapes": dg.AssetIn(metadata={"columns": columns})})(copy)
        self.run(self.shapes, copying, selection=["copy"])
        return got[0]


@pytest.fixture
def step(root: Path) -> Step:
    return Step(root)


def test_an_asset_keeps_both_and_its_metadata_says_them(step: Step, root: Path) -> None:
    assert found(root, "shapes") == rows_of(ROWS)
    done = step.run(step.shapes)
    metadata = done.asset_materializations_for_node("shapes")[0].metadata
    types = {column.name: column.type for column in metadata["dagster/column_schema"].value.columns}
    assert (types["v"], types["g"]) == ("variant", "geometry")


@pytest.mark.parametrize("kind", [pa.Table, pa.RecordBatchReader, pl.DataFrame, pl.LazyFrame, duckdb.DuckDBPyRelation])
def test_a_geometry_goes_through_every_library_that_keeps_its_type(step: Step, root: Path, kind: Any) -> None:
    step.copied(kind, ["id", "g"])
    assert found(root, "copy", "typeof(g), g::VARCHAR") == [(1, "GEOMETRY", "POINT (1 2)"), (2, "GEOMETRY", None)]


def test_pandas_has_the_bytes_of_a_geometry(step: Step, root: Path) -> None:
    frame = step.copied(pd.DataFrame, ["id", "g"], lambda frame: frame.astype({"g": object}))
    with duckdb.connect() as alone:
        [(point,)] = alone.sql("SELECT ST_AsWKB('POINT (1 2)'::GEOMETRY)").fetchall()
    assert [None if value is None else bytes(value) for value in frame["g"]] == [bytes(point), None]
    assert found(root, "copy", "typeof(g), ST_GeomFromWKB(g)::VARCHAR")[0] == (1, "BLOB", "POINT (1 2)")


@pytest.mark.parametrize("kind", [pd.DataFrame, pa.Table, pa.RecordBatchReader, pl.DataFrame, pl.LazyFrame])
def test_a_variant_is_refused_by_name_where_it_has_no_form(step: Step, root: Path, kind: Any) -> None:
    with pytest.raises(UnsupportedFeature, match=r"Input 'shapes'.*column v has the type VARIANT.*DuckDB relation"):
        step.copied(kind, ["id", "v"])
    with duckrun.connect(root, format="ducklake") as session:
        assert session.tables() == ["main.shapes"]


def test_a_relation_has_a_variant_and_sql_writes_what_it_makes_of_it(step: Step, root: Path) -> None:
    made = SQL("SELECT id, v, v.a::INT AS a FROM main.shapes WHERE id = 1")
    relation = step.copied(duckdb.DuckDBPyRelation, ["id", "v"], lambda _: made)
    assert relation.columns == ["id", "v"]
    assert found(root, "copy", "typeof(v), v::VARCHAR, a") == [(1, "VARIANT", "{'a': 1, 'b': x}", 1)]
    with pytest.raises(UnsupportedFeature, match=r"Asset copy: .*column v has the type VARIANT"):
        step.copied(duckdb.DuckDBPyRelation, ["id", "v"])
    assert len(found(root, "copy", "a")) == 1


# -- dbt


def incremental(strategy: str, **config: Any) -> str:
    said = "".join(f", {name}={value!r}" for name, value in config.items())
    return (
        f"{{{{ config(materialized='incremental', incremental_strategy='{strategy}'{said}) }}}} "
        "select id, v, g from {{ ref('raw') }}"
    )


MODELS = {
    "models/raw.sql": "{{ config(materialized='table') }} {% if var('step') == 2 %} "
    + f"{asked(NEXT)} {{% else %}} {asked(FIRST)} {{% endif %}}",
    "models/appended.sql": incremental("append"),
    "models/merged.sql": incremental("merge", unique_key="id"),
    "models/replaced.sql": incremental("delete+insert", unique_key="id"),
    "models/inserted.sql": incremental("insert", unique_key="id"),
    "models/parted.sql": incremental("insert_overwrite", partition_by=["id"]),
    "models/wider.sql": "{{ config(materialized='incremental', on_schema_change='append_new_columns') }} "
    "select id {% if is_incremental() %}, v, g {% endif %} from {{ ref('raw') }}",
    "models/seen.sql": "{{ config(materialized='view') }} select id, v.a::int as a, st_astext(g) as g from {{ ref('merged') }} where id <> 2",
    "snapshots/kept.sql": "{% snapshot kept %} {{ config(unique_key='id', strategy='check', check_cols=['said']) }} "
    "select id, v, g, v::varchar as said from {{ ref('raw') }} {% endsnapshot %}",
}


def test_models_keep_both_in_every_incremental_strategy(make_project: Callable[..., Project]) -> None:  # noqa: F811
    project = make_project(MODELS, format="ducklake")
    for number in (1, 2):
        project.run("build", "--vars", f"{{step: {number}}}")
    merged = rows_of({**ROWS, **LATER})
    expected = {
        "raw": rows_of(LATER),
        "appended": rows_of(ROWS, LATER),
        "merged": merged,
        "replaced": merged,
        "inserted": rows_of({**LATER, **ROWS}),
        "parted": merged,
        "wider": rows_of({1: (None, None), 2: (None, None)}, LATER),
        "kept": rows_of(ROWS, LATER),
    }
    assert {name: sorted(found(project.lake, name), key=repr) for name in expected} == expected
    assert found(project.lake, "seen", "a, g") == [(1, 1, "POINT (1 2)"), (3, 3, "POINT (3 3)")]


# -- Spark


@pytest.mark.spark
@pytest.mark.parametrize("inline_rows", [0, 10])
def test_spark_reads_and_writes_variants_and_refuses_geometries_by_name(
    root: Path, spark: Any, inline_rows: int
) -> None:
    with duckrun.connect(root, format="ducklake", inline_rows=inline_rows) as session:
        session.sql(f"create table t as {asked(FIRST)}")
        session.sql("create table v as select id, v from t")
        session.sql(f"insert into v select id, v from ({asked(NEXT)}) where id = 3")
        session.sql("delete from v where id = 2")
    with duckrun.connect(root, format="ducklake", engine="spark", spark=spark) as session:
        assert [row["id"] for row in session.scan("t", ReadSpec(columns=("id",))).collect()] == [1, 2]
        for use in (
            lambda: session.sql("select count(*) as n from t"),
            lambda: session.table("t").toDF().native.schema,
            lambda: session.sql("insert into t select * from t"),
            lambda: session.sql("create table u as select id, g from t"),
        ):
            with pytest.raises(
                UnsupportedFeature,
                match=r"main\.t: Spark has no type for column g, which is GEOMETRY: .*engine: duckdb",
            ):
                use()
        parts = session.sql("select id, variant_get(v, '$.a', 'int') as a, v is null as n from v", dialect="spark")
        assert sorted(parts.collect(), key=lambda row: row["id"]) == [
            {"id": 1, "a": 1, "n": False},
            {"id": 3, "a": 3, "n": False},
        ]
        with pytest.raises(UnsupportedFeature, match="column v has the type VARIANT"):
            session.sql("select * from v").collect()
        with pytest.raises(UnsupportedFeature, match=r"main\.v: .*column v, which is VARIANT: ask with engine: duckdb"):
            session.table("v").changes("upsert", from_version=session.table("v").snapshot().version - 1, key="id")
        _written_by_spark(session, spark)
        assert session.tables() == ["main.made", "main.t", "main.v"]
    assert found(root, "v", "typeof(v), v::VARCHAR") == [
        (1, "VARIANT", "{'a': 1, 'b': x}"),
        (3, "VARIANT", "{'a': 6}"),
        (9, "VARIANT", "{'a': 5}"),
    ]
    assert found(root, "made", "v::VARCHAR, typeof(v)") == [(8, None, "VARIANT"), (9, "{'a': 5}", "VARIANT")]


def _written_by_spark(session: Session, spark: Any) -> None:
    """A new table with a VARIANT, and one to which it comes later; merged and appended rows."""

    def one(number: int, value: int) -> Any:
        return spark.sql(f"""select {number} as id, parse_json('{{"a": {value}}}') as v""")

    with pytest.raises(SchemaMismatch, match=r"main\.within.*VARIANT inside of another type.*Nothing was written"):
        session.execute("within", WriteSpec("overwrite"), one(9, 5).selectExpr("id", "array(v) as v"))
    session.execute("made", WriteSpec("overwrite"), one(8, 5).select("id"))
    session.execute("made", WriteSpec("append", schema_mode="append_new_columns"), one(9, 5))
    session.execute("v", WriteSpec("append"), one(9, 5))
    session.execute("v", MergeSpec(("id",)), one(3, 6))
