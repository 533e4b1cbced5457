"""Whatever the order of operations, a lake table holds what a native DuckDB table holds, and so does its past.

The seed is DUCKRUN_TEST_SEED (tools/suites.py prints it); a sequence is known by the seed and its number, and
DUCKRUN_TEST_ONLY=<number> runs that one alone.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import duckrun
from duckrun import DuplicateSourceKeys, ReadSpec, Session, WriteSpec
from duckrun.values.rows import MERGE_MODES
from tests.differential.sequences import PARTITIONS, Model, Operation, multiset, operation, some_rows

SEED = int(os.environ.get("DUCKRUN_TEST_SEED") or random.SystemRandom().randrange(2**31))
BUDGET = float(os.environ.get("DUCKRUN_TEST_BUDGET") or 180)
SOAK = bool(os.environ.get("DUCKRUN_SOAK"))
AT_LEAST = 500
ENGINES = ("duckdb",)  # a second engine writes the same sequences once it is named here


def carry_out(session: Session, table: str, op: Operation) -> int:
    """One operation on the lake; the version afterwards."""
    if op.kind == "restore":
        return session.table(table).restoreToVersion(op.version).version
    if op.kind == "staged":
        assert op.rows is not None and isinstance(op.spec, WriteSpec)
        size = -(-op.rows.num_rows // op.parts)
        files = []
        for part in range(op.parts):
            files += session.stage(table, op.rows.slice(part * size, size))
        return session.commit_staged(table, files, op.spec).version
    assert op.spec is not None
    source = op.rows.to_reader(max_chunksize=4) if op.rows is not None and op.as_stream else op.rows
    return session.execute(table, op.spec, source).version


def run_sequence(session: Session, model: Model, rng: random.Random, number: int) -> list[str]:
    """One table from its first write to its last; raises at the first difference. The steps, for the message."""
    table, partition_by = f"t{number}", rng.choice(PARTITIONS)
    model.reset(partition_by)
    first = Operation(
        "create", WriteSpec("append", partition_by=partition_by), some_rows(rng, rng.choice([0, 5, 12]), ())
    )
    log = [f"partition_by={partition_by}"]
    for step in range(rng.randint(3, 6)):
        newest = max(model.versions, default=-1)
        op = first if step == 0 else operation(rng, partition_by, newest + 1)
        if op.spec is not None:
            op.spec = replace(op.spec, merge_mode=rng.choice(MERGE_MODES))
        log.append(f"{step}: {op}")
        try:
            if op.kind == "merge" and model.breaks_merge(op):
                with pytest.raises(DuplicateSourceKeys):
                    carry_out(session, table, op)
                version = newest
            else:
                version = carry_out(session, table, op)
                model.apply(op)
            assert version in (newest, newest + 1), f"version {version} after {newest}"
            rows = session.scan(table).toArrow()
            check(multiset(rows), multiset(model.rows()), f"after step {step} ({op.kind}), version {version}")
            if version == newest:
                check(multiset(rows), model.versions[newest], f"no commit, but other rows, at step {step}")
            model.at(version)
        except BaseException as error:
            error.add_note("\n".join(log))
            raise
    try:
        location = session.lake.parse(table).location
        for version, expected in model.versions.items():
            check(
                multiset(session.scan(table, ReadSpec(version=version)).toArrow()), expected, f"version {version} later"
            )
        newest = max(model.versions)
        names = ", ".join(f'"{name}"' for name in model.rows().column_names)
        engine = QueryBuilder().register("found", DeltaTable(location))
        plain = pa.table(engine.execute(f"SELECT {names} FROM found").read_all())
        check(multiset(plain), model.versions[newest], "deltalake's own engine at the end")
    except BaseException as error:
        error.add_note("\n".join(log))
        raise
    return log


def check(found: object, expected: object, where: str) -> None:
    if found != expected:
        missing, extra = expected - found, found - expected  # type: ignore[operator]
        raise AssertionError(f"{where}:\n  missing {dict(missing)}\n  extra   {dict(extra)}")


@pytest.mark.differential
@pytest.mark.parametrize("engine", ENGINES)
def test_a_lake_table_holds_what_a_native_table_holds_after_any_sequence(
    tmp_path: Path, engine: str, figures: Callable[[str], None]
) -> None:
    only = os.environ.get("DUCKRUN_TEST_ONLY")
    model = Model(duckdb.connect())
    started, number, steps = time.monotonic(), 0, 0
    with duckrun.connect(tmp_path / "lake", engine=engine, memory_limit="2GB") as session:
        while True:
            if only is None or number == int(only):
                try:
                    steps += len(run_sequence(session, model, random.Random(f"{SEED}/{number}"), number)) - 1
                except BaseException as error:
                    error.add_note(
                        f"again: DUCKRUN_TEST_SEED={SEED} DUCKRUN_TEST_ONLY={number} pytest -m differential {__file__}"
                    )
                    raise
                shutil.rmtree(tmp_path / "lake" / "main" / f"t{number}")
            number += 1
            spent = time.monotonic() - started
            if (only is not None and number > int(only)) or (number >= AT_LEAST and not (SOAK and spent < BUDGET)):
                break
    figures(f"{number} sequences, {steps} operations, seed {SEED}, {time.monotonic() - started:.0f} s")
