"""The golden tables of the Delta project, written by the embedded engine in every way: plain Spark and we read the rows of a model in
Python, at every version; or the write was refused by the name of what stands against it, and nothing was written.

The order of the steps is that of the seed.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import duckrun
from duckrun import (
    AddColumn,
    AlterSpec,
    CheckpointSpec,
    ColumnSpec,
    DeleteInsertSpec,
    DeleteSpec,
    DropColumn,
    MergeSpec,
    OptimizeSpec,
    ReadSpec,
    RenameColumn,
    RestoreSpec,
    Session,
    UpdateSpec,
    VacuumSpec,
    WriteSpec,
)
from duckrun.errors import InvalidConfig, UnsupportedFeature
from tests.drawing import everything, seed
from tests.engines.spark_checks import QUICK, configured
from tests.golden.test_golden import (
    COMPARED,
    tables as tables,  # a fixture
)
from tests.golden.written import STEPS, State, Written, multiset, state_of

pytestmark = [pytest.mark.differential, pytest.mark.spark]
MOST = 1_000
"""Rows of the model in Python, which is compared at every version."""
NOT_WRITTEN = {
    "collations-preview-table": "uses collations-preview,",
    "collations-table": "uses collations,",
    "table-with-icebegCompatV2Enabled": "uses icebergCompatV2,",
}
"""Tables with a feature that no write of the embedded engine keeps, and what it says."""
REFUSED_STEPS = {
    "rename_column": r"cannot be renamed: it is used by the (partitioning|clustering)",
    "cluster": r"rows cannot be clustered by \w+, (whose type has no bounds in the log|which has no statistics)",
}
"""What is in the nature of a step, and what the embedded engine says."""


@pytest.fixture(scope="module")
def duck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session of the embedded engine."""
    with duckrun.connect(tmp_path_factory.mktemp("written") / "lake") as session:
        yield session


@pytest.fixture(scope="module")
def plain(spark: Any) -> Iterator[Any]:
    """The one Spark session, which reads small tables at hundreds of versions: it compiles no query."""
    with configured(spark, QUICK):
        yield spark


@pytest.mark.drawn(33)
@pytest.mark.parametrize("vectors", [False, True], ids=["files", "vectors"])
@pytest.mark.parametrize("name", COMPARED)
def test_every_write_leaves_the_rows_of_the_model(
    duck: Session, plain: Any, tables: Path, tmp_path: Path, name: str, vectors: bool
) -> None:
    table, rng = tmp_path / name, random.Random(f"{seed()} {name} {vectors}")
    shutil.copytree(tables / name, table)
    written = _begun(duck, plain, table, rng, vectors)
    for step in rng.sample(STEPS, len(STEPS)):
        before, files = written.version, _files(table)
        try:
            written.take(step)
        except (UnsupportedFeature, InvalidConfig) as error:
            assert re.search(_refusal(name, step.__name__), str(error)), (step.__name__, error)
            assert name in str(error)
            assert (written.version, _files(table)) == (before, files), "nothing was written"
            continue
        assert name not in NOT_WRITTEN or written.version == before, step.__name__
        _compare(duck.read.format("delta").load(str(table)).toArrow(), written.now, f"{step.__name__}, as we read it")
        _compare_filter(duck, table, rng, f"{step.__name__} on {name}")
    versions = sorted(written.history)
    by_spark = (
        versions
        if os.environ.get("DUCKRUN_SOAK")
        else rng.sample(versions, min(8 if everything() else 3, len(versions)))
    )
    for version in versions:
        what, state = written.history[version]
        _compare(
            duck.scan(written.ref, ReadSpec(version=version)).toArrow(), state, f"{what}, as we read version {version}"
        )
        if version in by_spark:
            _compare_types(_plain(plain, table, version), state, f"{what}, as Spark reads version {version}")
    _compare_types(_plain(plain, table), written.now, "all of it, as Spark reads it")
    if name not in NOT_WRITTEN:
        duck.execute(written.ref, VacuumSpec(retention_hours=0, enforce_retention=False))
        _compare(duck.read.format("delta").load(str(table)).toArrow(), written.now, "vacuum, as we read it")
        _compare_types(_plain(plain, table), written.now, "vacuum, as Spark reads it")


@pytest.mark.drawn(4)
@pytest.mark.parametrize("vectors", [False, True], ids=["files", "vectors"])
def test_variants_inside_of_other_columns_stay_as_they_are(
    duck: Session, plain: Any, tables: Path, tmp_path: Path, vectors: bool
) -> None:
    """DuckDB writes none: rows are marked as deleted, the definition is altered, and what would make a file is refused by name."""
    table = tmp_path / "spark-variant-checkpoint"
    shutil.copytree(tables / table.name, table)
    ref = duck.lakes.at(str(table)).ref
    how: dict[str, Any] = {"merge_mode": "deletion_vectors" if vectors else "copy_on_write"}
    source = duck.sql(f"select * from delta.`{tables / table.name}` where id = 7", dialect="spark")
    before, files = _variants(duck, plain, table), _files(table)
    of_rows = (
        WriteSpec("append"), WriteSpec("overwrite"), WriteSpec("replace", predicate="id = 7"), MergeSpec(("id",)),
        DeleteInsertSpec(("id",)), UpdateSpec({"id": "700"}, "id = 7"), *((DeleteSpec("id = 7"),) if not vectors else ()),
    )  # fmt: skip
    whole = (
        OptimizeSpec(),
        OptimizeSpec(z_order_by=("id",)),
        AlterSpec((DropColumn("id"),)),
        AlterSpec((RenameColumn("id", "n"),)),
    )
    for spec in (*(replace(spec, **how) for spec in of_rows), *whole):
        with pytest.raises(UnsupportedFeature, match=f"{table.name} has VARIANT inside of array_of_struct_of_variants"):
            duck.execute(ref, spec, source if isinstance(spec, WriteSpec | MergeSpec | DeleteInsertSpec) else None)
        assert (_files(table), _variants(duck, plain, table)) == (files, before), spec
    if vectors:
        assert duck.execute(ref, DeleteSpec("id = 7", **how)).version == 3
        assert _variants(duck, plain, table) == [[row for row in rows if row["id"] != 7] for rows in before]
    duck.execute(ref, AlterSpec((AddColumn(ColumnSpec("added_since", "BIGINT")),)))
    duck.execute(ref, CheckpointSpec())
    duck.execute(ref, RestoreSpec(version=2))
    duck.execute(ref, VacuumSpec(retention_hours=0, enforce_retention=False))
    assert _variants(duck, plain, table) == before


def _variants(duck: Session, spark: Any, table: Path) -> list[list[dict[str, Any]]]:
    """The rows as both readers have them, variants as JSON: Spark leaves out what is NULL."""
    ours, theirs = duck.read.format("delta").load(str(table)).native, spark.read.format("delta").load(str(table))
    names = [name for name in ours.columns if name not in ("id", "added_since")]
    rows = [
        ours.project(", ".join(["id", *(f"{name}::JSON::VARCHAR AS {name}" for name in names)])).to_arrow_table(),
        theirs.selectExpr("id", *(f"to_json({name}) AS {name}" for name in names)).toArrow(),
    ]
    return [sorted(found.to_pylist(), key=repr) for found in rows]


def _begun(duck: Session, spark: Any, table: Path, rng: random.Random, vectors: bool) -> Written:
    """The table as Spark reads it; of a large one a DELETE leaves the first `MOST` rows."""
    ref, found = duck.lakes.at(str(table)).ref, _plain(spark, table)
    frame = duck.read.format("delta").load(str(table))
    types = dict(zip(frame.native.columns, map(str, frame.native.types), strict=True))
    how = {"merge_mode": "deletion_vectors" if vectors else "copy_on_write"}
    if found.num_rows > MOST:
        first = sorted(found.column("id").to_pylist())[:MOST]
        found = found.filter(pc.less_equal(found.column("id"), first[-1]))
        duck.execute(ref, DeleteSpec(f"id > {first[-1]}", **how))
    return Written(duck, ref, rng, state_of(found, types, duck.snapshot(ref).partition_columns), how)


def _refusal(name: str, step: str) -> str:
    """What an error has to say where a step is refused."""
    return NOT_WRITTEN.get(name) or REFUSED_STEPS.get(step, "no refusal is expected")


def _compare(found: pa.Table, state: State, what: str) -> None:
    assert found.schema.names == state.schema.names, what
    assert multiset(found) == state.multiset(), what


def _compare_filter(duck: Session, table: Path, rng: random.Random, what: str) -> None:
    """A filter finds as many rows as fulfil it, where each is asked and no file is left out."""
    frame = duck.read.format("delta").load(str(table))
    kinds = dict(zip(frame.native.columns, map(str, frame.native.types), strict=True))
    simple = [
        name
        for name, kind in kinds.items()
        if not re.search(r"[\[(]|STRUCT|MAP|VARIANT|JSON", kind) or kind.startswith("DECIMAL(")
    ]
    if not simple:
        return
    name = rng.choice(simple)
    column = '"' + name.replace('"', '""') + '"'
    frame.createOrReplaceTempView("written_now")
    held = duck.sql(
        f"SELECT DISTINCT CAST({column} AS VARCHAR) AS v FROM written_now WHERE {column} IS NOT NULL ORDER BY 1"
    )
    texts = held.toArrow().column(0).to_pylist()
    condition = f"{column} IS NULL"
    if texts:
        text = rng.choice(texts).replace("'", "''")
        condition = f"{column} {rng.choice(('=', '=', '<', '>='))} CAST('{text}' AS {kinds[name]})"
    hits = duck.sql(f"SELECT {condition} AS hit FROM written_now").toArrow().column(0).to_pylist()
    found = duck.sql(f"SELECT 1 FROM written_now WHERE {condition}").toArrow().num_rows
    assert found == sum(hit is True for hit in hits), f"{what}: {condition} finds {found} rows"


def _compare_types(found: pa.Table, state: State, what: str) -> None:
    types = [str(kind).replace(" not null", "") for kind in found.schema.types]
    assert types == [str(kind).replace(" not null", "") for kind in state.schema.types], what
    _compare(found, state, what)


def _plain(spark: Any, table: Path, version: int | None = None) -> pa.Table:
    """The rows as Spark reads them without our code."""
    reader = spark.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(str(table)).toArrow()


def _files(table: Path) -> set[str]:
    return {str(path.relative_to(table)) for path in table.rglob("*") if path.is_file()}
