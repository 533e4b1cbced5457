"""Whatever the order of operations, a lake table of either format holds what a native DuckDB table holds, and so does its past.

The seed is DUCKRUN_TEST_SEED (tools/suites.py prints it); a sequence is known by the seed and its number, and
DUCKRUN_TEST_ONLY=<number> runs that one alone.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import duckrun
from duckrun import DuplicateSourceKeys, InvalidConfig, ReadSpec, Session, WriteSpec
from duckrun.values.choices import MERGE_MODES
from tests.differential.sequences import (
    COLUMNS,
    PARTITIONS,
    TRANSFORMED,
    Model,
    Operation,
    answer,
    multiset,
    operation,
    question,
    some_rows,
)
from tests.drawing import rounds
from tests.ducklake.plain import attached

SEED = int(os.environ.get("DUCKRUN_TEST_SEED") or random.SystemRandom().randrange(2**31))
BUDGET = float(os.environ.get("DUCKRUN_TEST_BUDGET") or 180)
SOAK = bool(os.environ.get("DUCKRUN_SOAK"))
AT_LEAST = {"delta": rounds(350), "ducklake": rounds(40)}
UPKEEP = ("flush", "merge files", "rewrite files")
"""What changes no row of a DuckLake, and makes a snapshot of it."""
INLINE_ROWS = (0, 0, 2, 100)
ENGINES = ("duckdb",)  # a second engine writes the same sequences once it is named here


def carry_out(session: Session, table: str, op: Operation, versions: Sequence[int]) -> int:
    """One operation on the lake; the version afterwards."""
    if op.kind == "restore":
        return session.table(table).restoreToVersion(versions[op.version]).version
    if op.kind in UPKEEP:
        {
            "flush": lambda: session.upkeep.flush(table),
            "merge files": lambda: session.upkeep.merge_files(table),
            "rewrite files": lambda: session.upkeep.rewrite_files(table, delete_threshold=0),
        }[op.kind]()
        return session.snapshot(table).version
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


def run_sequence(session: Session, format: str, model: Model, rng: random.Random, number: int) -> list[str]:
    """One table from its first write to its last; raises at the first difference. The steps, for the message."""
    ducklake = format == "ducklake"
    table, partition_by = f"t{number}", rng.choice([*PARTITIONS, *TRANSFORMED] if ducklake else PARTITIONS)
    model.reset(partition_by)
    first = Operation(
        "create", WriteSpec("append", partition_by=partition_by), some_rows(rng, rng.choice([0, 5, 12]), ())
    )
    log = [f"partition_by={partition_by}"]
    for step in range(rng.randint(3, 6)):
        versions = sorted(model.versions)
        newest = max(versions, default=-1)
        op = first if step == 0 else operation(rng, partition_by, len(versions), UPKEEP if ducklake else ())
        if op.spec is not None:
            op.spec = replace(op.spec, merge_mode=rng.choice(MERGE_MODES))
        log.append(f"{step}: {op}")
        try:
            if op.kind == "merge" and model.breaks_merge(op):
                with pytest.raises(DuplicateSourceKeys):
                    carry_out(session, table, op, versions)
                version = newest
            elif op.kind == "replace_partitions" and partition_by in TRANSFORMED:
                with pytest.raises(InvalidConfig, match="by the values of columns alone"):
                    carry_out(session, table, op, versions)
                version = newest
            else:
                version = carry_out(session, table, op, versions)
                model.apply(op)
            made = session.snapshots(1)[0]["snapshot_id"] if ducklake else newest + 1
            assert version in (newest, made), f"version {version} after {newest}"
            rows = session.scan(table).toArrow()
            check(multiset(rows), multiset(model.rows()), f"after step {step} ({op.kind}), version {version}")
            if version == newest:
                check(multiset(rows), model.versions[newest], f"no commit, but other rows, at step {step}")
            model.at(version)
            for asked in {version, rng.choice(sorted(model.versions))}:
                query = question(rng)
                found = session.sql(query.replace("{}", f"main.{table} AT (VERSION => {asked})")).toArrow()
                check(answer(found), model.asked(query, asked), f"version {asked} after step {step}: {query}")
            if ducklake and step == 0:
                inline = rng.choice(INLINE_ROWS)
                log.append(f"inline_rows={inline}")
                session.upkeep.set_inline_rows(inline, table)
        except BaseException as error:
            error.add_note("\n".join(log))
            raise
    try:
        for version, expected in model.versions.items():
            check(
                multiset(session.scan(table, ReadSpec(version=version)).toArrow()), expected, f"version {version} later"
            )
        for version, plain in OUTSIDE[format](session, table, sorted(model.versions)):
            check(multiset(plain), model.versions[version], f"version {version}, by another program at the end")
    except BaseException as error:
        error.add_note("\n".join(log))
        raise
    return log


def by_deltalake(session: Session, table: str, versions: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
    """The newest version by deltalake's own engine."""
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    engine = QueryBuilder().register("found", DeltaTable(session.lake.parse(table).location))
    yield versions[-1], pa.table(engine.execute(f"SELECT {names} FROM found").read_all())


def by_plain_ducklake(session: Session, table: str, versions: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
    """Each version by DuckDB and its extension alone."""
    with attached(Path(session.lake.root)) as plain:
        for version in versions:
            yield version, plain.execute(f"FROM lake.main.{table} AT (VERSION => {version})").to_arrow_table()


OUTSIDE: dict[str, Callable[[Session, str, Sequence[int]], Iterator[tuple[int, pa.Table]]]] = {
    "delta": by_deltalake,
    "ducklake": by_plain_ducklake,
}


def check(found: object, expected: object, where: str) -> None:
    if found != expected:
        missing, extra = expected - found, found - expected  # type: ignore[operator]
        raise AssertionError(f"{where}:\n  missing {dict(missing)}\n  extra   {dict(extra)}")


@pytest.mark.differential
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("format", sorted(OUTSIDE))
def test_a_lake_table_holds_what_a_native_table_holds_after_any_sequence(
    tmp_path: Path, engine: str, format: str, figures: Callable[[str], None]
) -> None:
    only = os.environ.get("DUCKRUN_TEST_ONLY")
    model = Model(duckdb.connect())
    started, number, steps = time.monotonic(), 0, 0
    with duckrun.connect(tmp_path / "lake", engine=engine, format=format, memory_limit="2GB") as session:
        while True:
            if only is None or number == int(only):
                try:
                    steps += len(run_sequence(session, format, model, random.Random(f"{SEED}/{number}"), number)) - 1
                except BaseException as error:
                    error.add_note(
                        f"again: DUCKRUN_TEST_SEED={SEED} DUCKRUN_TEST_ONLY={number} pytest -m differential -k {format} {__file__}"
                    )
                    raise
                session.sql(f"drop table main.t{number}")
            number += 1
            spent = time.monotonic() - started
            if (only is not None and number > int(only)) or (
                number >= AT_LEAST[format] and not (SOAK and spent < BUDGET)
            ):
                break
    figures(f"{format}: {number} sequences, {steps} operations, seed {SEED}, {time.monotonic() - started:.0f} s")
