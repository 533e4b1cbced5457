"""Whatever happened to a table, the four change queries say what whole snapshots, compared in plain Python, say.

The seed is DUCKRUN_TEST_SEED (tools/suites.py prints it); DUCKRUN_TEST_ONLY=<number> runs one sequence alone.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import pytest

import duckrun
from duckrun import AlterSpec, DuplicateSourceKeys, InvalidConfig, ReadSpec, Session
from duckrun.values.choices import MERGE_MODES
from duckrun.values.rows import WriteSpec
from duckrun.values.tables import SetProperties
from tests.changes import oracle
from tests.differential.sequences import COLUMNS, PARTITIONS, ROW_PREDICATES, Model, Operation, operation, some_rows
from tests.differential.test_sequences import carry_out
from tests.drawing import rounds

SEED = int(os.environ.get("DUCKRUN_TEST_SEED") or random.SystemRandom().randrange(2**31))
BUDGET = float(os.environ.get("DUCKRUN_TEST_BUDGET") or 180)
SOAK = bool(os.environ.get("DUCKRUN_SOAK"))
COUNT, PARTS = 10_000 if SOAK else 300, 2
AT_LEAST = rounds(40)  # sequences of a part
KEYS = [(), (), ("id",), ("id",), ("id", "s"), ("p", "id", "x"), ("ts", "d"), tuple(COLUMNS)]
KEEPING = ("optimize", "purge", "nothing", "feed", "feed")
FEED = "delta.enableChangeDataFeed"
FEATURES: tuple[dict[str, str], ...] = (
    {},
    {"delta.columnMapping.mode": "name"},
    {"delta.enableRowTracking": "true"},
    {"delta.columnMapping.mode": "name", "delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"},
    {"delta.columnMapping.mode": "id", "delta.enableInCommitTimestamps": "true", "delta.enableTypeWidening": "true"},
)


def history(
    session: Session,
    model: Model,
    rng: random.Random,
    number: int,
    *,
    others: Sequence[Session] = (),
    features: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, list[str]]:
    """A table with a random past, and ``features``: its name, and the steps for messages. Each step is of the session, or of one of the
    ``others``.
    """
    table, partition_by = f"t{number}", rng.choice(PARTITIONS)
    model.reset(partition_by)
    rows = some_rows(rng, rng.choice([0, 5, 12]), ())
    # Spark writes no feed of a mapped table that has lost a column.
    mapped = "delta.columnMapping.mode" in features and bool(others)
    fed = {**({} if mapped else {FEED: rng.choice(["true", "false"])}), **features}
    writers = [session, *others]
    reader = session
    first = Operation("create", WriteSpec("append", partition_by=partition_by, table_properties=fed), rows)
    log = [f"partition_by={partition_by}, {fed}"]
    for step in range(rng.randint(3, 9)):
        session = rng.choice(writers)
        newest = reader.table(table).snapshot().version if step else -1
        if step and rng.random() < 0.2:
            keeping = rng.choice(KEEPING[:3] if mapped else KEEPING)
            log.append(f"{step}: {keeping}")
            if keeping == "optimize":
                session.table(table).optimize().executeCompaction()
            elif keeping == "feed":
                turned = {FEED: rng.choice(["true", "false"])}
                log.append(f"   {turned}")
                session.execute(table, AlterSpec((SetProperties(turned),)))
            elif keeping == "purge":
                session.table(table).purge()
            else:
                session.sql(f"UPDATE {table} SET s = s WHERE id > 2")
            continue
        op = first if step == 0 else operation(rng, partition_by, newest + 1)
        if op.spec is not None:
            op.spec = replace(op.spec, merge_mode=rng.choice(MERGE_MODES))
        log.append(f"{step}: {op}, by {session.engine_name}")
        if session.engine_name == "spark" and "SELECT" in str(getattr(op.spec, "predicate", None)):
            log.append("   left out: Spark takes no subquery there")
            continue
        try:
            carry_out(session, table, op, range(newest + 1))
        except DuplicateSourceKeys:
            log.append("   refused: the source's keys repeat")
        except BaseException as error:
            error.add_note("\n".join(log))
            raise
    return table, log


def answered(session: Session, table: str, kind: Any, first: int, last: int, **options: Any) -> Counter[Any]:
    """What a change query says, in the form in which the oracle says it."""
    found = session.table(table).changes(kind, first, last, **options)
    rows = found.toArrow()
    columns = options.get("columns") or COLUMNS
    listed = _rows(rows, columns)
    types = rows.column("_change_type").to_pylist() if "_change_type" in rows.column_names else []
    versions = rows.column("_commit_version").to_pylist() if "_commit_version" in rows.column_names else []
    if kind == "full_delta":
        _check_pairs(listed, types, versions, rows.column("_pair").to_pylist())
        assert versions == sorted(versions), "full_delta is not in the order of versions"
        return Counter(zip(versions, types, listed, strict=True))
    if versions:
        return Counter(zip(listed, versions, strict=True))
    return Counter(zip(types, listed, strict=True)) if types else Counter(listed)


def _rows(table: Any, columns: Any) -> list[oracle.Row]:
    listed = [[repr(v + 0.0 if isinstance(v, float) else v) for v in table.column(c).to_pylist()] for c in columns]
    return list(zip(*listed, strict=True))


def _check_pairs(rows: list[Any], types: list[str], versions: list[int], pairs: list[int | None]) -> None:
    numbered: dict[int, list[tuple[int, str]]] = {}
    for kind, version, pair in zip(types, versions, pairs, strict=True):
        assert (pair is not None) == kind.startswith("update_"), (kind, pair)
        if pair is not None:
            numbered.setdefault(pair, []).append((version, kind))
    for pair, both in numbered.items():
        assert sorted(kind for _, kind in both) == ["update_postimage", "update_preimage"], (pair, both)
        assert len({version for version, _ in both}) == 1, (pair, both)


def compare(
    session: Session,
    table: str,
    rng: random.Random,
    states: dict[int, Any],
    keys: Sequence[tuple[str, ...]] = KEYS,
    rounds: int = 3,
) -> int:
    """Some queries over random ranges. How many were compared."""
    newest, count = max(states), 0
    for _ in range(rounds):
        first = rng.randint(-1, newest)
        last = rng.randint(max(first, 0), newest)
        key = rng.choice(keys)
        columns = tuple(COLUMNS)
        if rng.random() < 0.3:
            columns = tuple(c for c in COLUMNS if c in key or rng.random() < 0.6) or ("id",)
        predicate = rng.choice([p for p in ROW_PREDICATES if "SELECT" not in p]) if rng.random() < 0.3 else None
        chosen = {}
        for version, rows in states.items():
            kept = (
                rows
                if predicate is None
                else duckdb.sql(f"SELECT * FROM rows WHERE ({predicate}) IS TRUE").to_arrow_table()
            )
            chosen[version] = oracle.state(kept, columns)
        options: dict[str, Any] = {"key": list(key), "columns": list(columns), "predicate": predicate}
        positions = [columns.index(c) for c in key]
        for kind in ("append_only", "upsert", "min_delta", "full_delta"):
            for with_version in (False, True) if kind in ("append_only", "upsert") else (False,):
                what = f"{kind} ({first}, {last}] {options} commit_version={with_version}"
                more = {"commit_version": True} if with_version else {}
                try:
                    if with_version:
                        expected = oracle.versions(chosen, first, last, positions, kind)
                    else:
                        expected = getattr(oracle, kind)(chosen, first, last, positions)
                except oracle.KeyRepeated:
                    if not with_version:
                        with pytest.raises(InvalidConfig, match="is not unique"):
                            answered(session, table, kind, first, last, **options)
                        count += 1
                    continue
                try:
                    found = answered(session, table, kind, first, last, **options, **more)
                    assert found == expected, f"missing {expected - found}, too many {found - expected}"
                except BaseException as error:
                    error.add_note(what)
                    raise
                count += 1
    return count


def keys_for(features: Mapping[str, str]) -> Sequence[tuple[str, ...]]:
    """Where a table tracks its rows a query without a key tells updates by their ids, which snapshots do not show."""
    return [key for key in KEYS if key] if "delta.enableRowTracking" in features else KEYS


@pytest.mark.changes
@pytest.mark.parametrize("part", range(PARTS))
def test_change_queries_say_what_snapshots_say(tmp_path: Path, part: int, figures: Callable[[str], None]) -> None:
    only = os.environ.get("DUCKRUN_TEST_ONLY")
    began, sequences, comparisons = time.monotonic(), 0, 0
    model = Model(duckdb.connect())
    for number in [int(only)] if only else range(part, COUNT, PARTS):
        rng = random.Random(SEED * 1_000_003 + number)
        with duckrun.connect(tmp_path / f"lake{number}") as session:
            features = rng.choice(FEATURES) if rng.random() < 0.5 else FEATURES[0]
            table, log = history(session, model, rng, number, features=features)
            newest = session.table(table).snapshot().version
            states = {v: session.scan(table, ReadSpec(version=v)).toArrow() for v in range(newest + 1)}
            states[-1] = states[0].slice(0, 0)
            try:
                comparisons += compare(session, table, rng, states, keys_for(features))
            except BaseException as error:
                error.add_note(f"seed {SEED}, sequence {number}, {features}\n" + "\n".join(log))
                raise
        sequences += 1
        # A slow machine exceeds the budget rather than compare too little.
        if not SOAK and sequences >= AT_LEAST and time.monotonic() - began > BUDGET:
            break
    figures(f"{sequences} sequences, {comparisons} comparisons, seed {SEED}, {time.monotonic() - began:.0f} s")


@pytest.mark.changes
@pytest.mark.spark
def test_tables_that_both_engines_write_in_turns(tmp_path: Path, spark: Any, figures: Callable[[str], None]) -> None:
    """Also of tables with column mapping, and with row tracking."""
    began, sequences, comparisons = time.monotonic(), 0, 0
    model = Model(duckdb.connect())
    for number in range(10**6, 10**6 + (200 if SOAK else 12)):
        rng = random.Random(SEED * 1_000_003 + number)
        features = rng.choice(FEATURES)
        lake = tmp_path / f"lake{number}"
        with duckrun.connect(lake) as session, duckrun.connect(lake, engine="spark", spark=spark) as other:
            table, log = history(session, model, rng, number, others=[other], features=features)
            newest = session.table(table).snapshot().version
            states = {v: session.scan(table, ReadSpec(version=v)).toArrow() for v in range(newest + 1)}
            states[-1] = states[0].slice(0, 0)
            keys = keys_for(features)
            try:
                comparisons += compare(session, table, rng, states, keys)
                if number % 3 == 0:
                    comparisons += compare(other, table, rng, states, keys, rounds=1)
            except BaseException as error:
                error.add_note(f"seed {SEED}, sequence {number}, {features}\n" + "\n".join(log))
                raise
        sequences += 1
        if not SOAK and time.monotonic() - began > BUDGET:
            break
    figures(f"{sequences} sequences, {comparisons} comparisons, seed {SEED}, {time.monotonic() - began:.0f} s")
