"""Both writers of DuckDB's data files against a model in Python: mode and clause × partitioned or not × surface, with random rows.

What they wrote is read by DuckDB, deltalake and polars, in a few cells by Spark. A run draws a part by its seed; what it takes of this
file and of tests/dbt/test_writers.py is within 30 seconds.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import duckrun
from duckrun import MergeSpec, WriteSpec
from duckrun_dagster import DeltaIOManager, DuckrunResource
from tests.drawing import seed
from tests.lake import rows_of
from tests.writer_cases import CLAUSES, SCHEMA, WRITERS, arrow, check, merged, some_rows

pytestmark = pytest.mark.matrix

ROUNDS = 3
PARTITIONED = pytest.mark.parametrize("partition_by", [None, ("day",)], ids=["plain", "partitioned"])


@pytest.mark.drawn(6)
@PARTITIONED
@pytest.mark.parametrize("surface", ["execute", "sql"])
@pytest.mark.parametrize("kind", CLAUSES)
def test_merges(root: Path, kind: str, surface: str, partition_by: Any) -> None:
    whens = CLAUSES[kind]
    for writer in WRITERS:
        random = Random(f"{seed()} {kind}")
        with duckrun.connect(root, writer=writer if surface == "sql" else "auto") as session:
            table = some_rows(random, range(60), 20, 2)
            name = f"main.by_{writer}"
            session.execute(name, WriteSpec("error", partition_by=partition_by), arrow(table))
            for _ in range(ROUNDS):
                source = some_rows(random, range(60), 12, 1)
                before, table = table, merged(table, source, whens)
                if surface == "execute":
                    spec = MergeSpec(("id",), tuple(when.clause() for when in whens), writer=writer)
                    commit = session.execute(name, spec, arrow(source))
                else:
                    session.execute("main.source", WriteSpec("overwrite"), arrow(source))
                    clauses = " ".join(when.sql() for when in whens)
                    commit = session.sql(
                        f"MERGE INTO {name} AS target USING main.source AS source ON target.id = source.id {clauses}"
                    )
                assert commit.writer in (writer, "none"), commit.reason
                assert len(before) + commit.rows_inserted - commit.rows_deleted == len(table)
            check(session, name, table)


@PARTITIONED
@pytest.mark.parametrize("surface", ["execute", "sql"])
def test_whole_rows(root: Path, surface: str, partition_by: Any) -> None:
    for writer in WRITERS:
        random = Random(f"{seed()} rows")
        with duckrun.connect(root, writer=writer if surface == "sql" else "auto") as session:
            name, table = f"main.by_{writer}", some_rows(random, range(60), 10, 2)
            session.execute(name, WriteSpec("error", partition_by=partition_by, writer=writer), arrow(table))
            for mode in ("append", "overwrite" if surface == "execute" else "append", "append"):
                rows = some_rows(random, range(60), 8, 1)
                table = [*table, *rows] if mode == "append" else rows
                if surface == "execute":
                    commit = session.execute(name, WriteSpec(mode, writer=writer), arrow(rows).to_reader())  # type: ignore[arg-type]
                else:
                    session.execute("main.source", WriteSpec("overwrite"), arrow(rows))
                    commit = session.sql(f"insert into {name} select * from main.source")
                assert commit.writer == writer, commit.reason
            check(session, name, table)


@pytest.mark.drawn(8)
@PARTITIONED
@pytest.mark.parametrize("kind", CLAUSES)
def test_assets(root: Path, kind: str, partition_by: Any) -> None:
    whens = CLAUSES[kind]
    for writer in WRITERS:
        random = Random(f"{seed()} {kind}")
        table = some_rows(random, range(40), 12, 1)
        sources = [some_rows(random, range(40), 8, 1) for _ in range(2)]
        with duckrun.connect(root) as session:
            name = f"main.by_{writer}"
            session.execute(name, WriteSpec("error", partition_by=partition_by), arrow(table))
            pending = list(sources)

            @dg.asset(
                key=["main", f"by_{writer}"],
                metadata={"merge_keys": "id", "merge_clauses": [when.metadata() for when in whens], "writer": writer},
            )
            def changed() -> pa.Table:
                return arrow(pending.pop(0))  # noqa: B023

            manager = DeltaIOManager(duckrun=DuckrunResource(root_path=str(root)))
            for source in sources:
                assert dg.materialize([changed], resources={"io_manager": manager}).success
                table = merged(table, source, whens)
            check(session, name, table)


@pytest.mark.spark
def test_spark_reads_what_either_wrote(root: Path, spark: Any) -> None:
    random = Random(seed())
    for kind in random.sample(sorted(CLAUSES), 2):
        old, new = some_rows(random, range(40), 12, 1), some_rows(random, range(40), 8, 1)
        expected = rows_of(arrow(merged(old, new, CLAUSES[kind])))
        for writer in WRITERS:
            with duckrun.connect(root) as session:
                name = f"main.{kind.replace(' ', '_')}_{writer}"
                session.execute(name, WriteSpec("error", partition_by=("day",)), arrow(old))
                spec = MergeSpec(("id",), tuple(when.clause() for when in CLAUSES[kind]), writer=writer)
                session.execute(name, spec, arrow(new))
                read = spark.read.format("delta").load(session.ref(name).location).select(*SCHEMA.names)
                assert (
                    rows_of(pa.Table.from_pylist([row.asDict() for row in read.collect()], schema=SCHEMA)) == expected
                )
