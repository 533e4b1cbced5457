"""What goes of a log beyond its retention: of the same table, what Spark's own cleanup takes; every version that both leave is read by both."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import duckrun
from duckrun import Session, VersionNotReadable
from duckrun.values.rows import ReadSpec
from tests.engines.spark_checks import CHECKS, WITHIN_RETENTION, forget, set_to
from tests.lake import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.matrix]
DAY = 24 * 3600
COMMIT, CHECKPOINT = re.compile(r"\d{20}\.json"), re.compile(r"\d{20}\.checkpoint\.")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[dict[str, Session]]:
    """A session of each engine on one lake; Spark's checkpoints have several sidecars."""
    root = tmp_path_factory.mktemp("cleanup") / "lake"
    with (
        set_to(spark, CHECKS | WITHIN_RETENTION | {"checkpoint.partSize": "2"}),
        duckrun.connect(root) as duck,
        duckrun.connect(root, engine="spark", spark=spark) as other,
    ):
        yield {"duckdb": duck, "spark": other}


def _files(log: Path) -> set[str]:
    return {str(path.relative_to(log)) for path in log.rglob("*") if path.is_file()}


def _sidecars(checkpoint: Path) -> set[str]:
    """The sidecars that a checkpoint names."""
    if checkpoint.suffix == ".json":
        lines = map(json.loads, checkpoint.read_text().splitlines())
        return {f"_sidecars/{line['sidecar']['path']}" for line in lines if "sidecar" in line}
    if "sidecar" not in pq.read_schema(checkpoint).names:
        return set()
    rows = pq.read_table(checkpoint, columns=["sidecar"]).column("sidecar").to_pylist()
    return {f"_sidecars/{row['path']}" for row in rows if row}


def _clean_by_spark(spark: Any, path: Path) -> None:
    forget(spark)
    jvm = spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(path))
    log.doLogCleanup(log.unsafeVolatileSnapshot(), jvm.scala.Option.empty())


def _readable(log: Path) -> int:
    """The oldest version of which the log has all: a commit after a checkpoint with no gap, or the checkpoint's own."""
    files = _files(log)
    commits = {int(path[:20]) for path in files if COMMIT.fullmatch(path)}
    checkpoints = {int(path[:20]) for path in files if CHECKPOINT.match(path)}
    newest = max(commits)
    return min(
        version
        for version in range(newest + 1)
        if version in checkpoints and commits >= set(range(version, newest + 1))
    )


@pytest.mark.drawn(8)  # half of the runs take none
@pytest.mark.parametrize("young", [1, 5])
@pytest.mark.parametrize("turns", [("spark", "duckdb", "spark"), ("spark", "spark", "duckdb")], ids="-".join)
def test_both_engines_clean_a_log_alike(
    both: dict[str, Session], spark: Any, turns: tuple[str, ...], young: int
) -> None:
    """``young`` of the newest commits are within the retention: those since the last checkpoint, or some before it."""
    name, duck = f"main.t_{'_'.join(turns)}_{young}", both["duckdb"]
    properties = (
        "'delta.checkpointPolicy' = 'v2', 'delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '3'"
    )
    both["spark"].sql(
        f"create table {name} (id bigint, v string) using delta tblproperties ({properties})", dialect="spark"
    )
    location = Path(duck.ref(name).location)
    versions: dict[int, list[tuple[Any, ...]]] = {}
    for turn, engine in enumerate(turns):
        for text in (
            f"insert into {name} values ({turn}0, 'a'), ({turn}1, 'b')",
            f"insert into {name} values ({turn}2, 'a'), ({turn}3, 'b')",
            f"delete from {name} where id = {turn}0",
        ):
            both[engine].sql(text, dialect="spark")
            versions[duck.snapshot(name).version] = rows_of(duck.sql(f"from {name}"))
    duck.sql(f"insert into {name} values (1000, 'z')")
    newest = duck.snapshot(name).version
    versions[newest] = rows_of(duck.sql(f"from {name}"))
    log = location / "_delta_log"
    long_ago = time.time() - 40 * DAY
    for path in log.rglob("*"):
        version = re.match(r"\d{20}", path.name)
        if path.is_file() and (version is None or int(version[0]) <= newest - young):
            # A minute apart: of entries that are of one moment Spark takes none where it keeps the last (BufferingLogDeletionIterator).
            moment = long_ago + 60 * (0 if version is None else int(version[0]))
            os.utime(path, (moment, moment))
    twin = f"{name}_by_spark"
    copy = Path(duck.ref(twin).location)
    shutil.copytree(location, copy)
    before = _files(log)
    assert any("_sidecars" in path for path in before) and sum(bool(CHECKPOINT.match(path)) for path in before) >= 2

    removed = set(duck.table(name).cleanup_log().removed)
    _clean_by_spark(spark, copy)
    ours, theirs = _files(log), _files(copy / "_delta_log")
    assert {f"_delta_log/{path}" for path in before - ours} == removed
    # Of the entries that both know: Spark goes to the checkpoint that the oldest young commit needs, and so do we.
    same = {path for path in before if COMMIT.fullmatch(path) or CHECKPOINT.match(path)}
    assert before - theirs and ours & same == theirs & same, sorted(before)
    if young == 1:
        assert ours & same == {path for path in same if int(path[:20]) >= newest - 1}
    oldest = _readable(log)
    assert not [path for path in ours if path.endswith(".crc") and int(path[:20]) < oldest]
    kept = [path for path in ours if CHECKPOINT.match(path)]
    needed = {sidecar for path in kept for sidecar in _sidecars(log / path)}
    assert {path for path in ours if path.startswith("_sidecars/")} == needed

    forget(spark)
    for table, place in ((name, location), (twin, copy)):
        first = _readable(place / "_delta_log")
        selects = [f"select {n} as n, id, v from delta.`{place}` version as of {n}" for n in range(first, newest + 1)]
        plain: dict[int, list[tuple[Any, ...]]] = {n: [] for n in range(first, newest + 1)}
        for n, *row in spark.sql(" union all ".join(selects)).collect():
            plain[n].append(tuple(row))
        with duckrun.connect(duck.lake.root) as fresh:
            for n in plain:
                assert rows_of(fresh.scan(table, ReadSpec(version=n))) == versions[n], (table, n)
                assert sorted(plain[n], key=repr) == versions[n], (table, n)
            if not (place / "_delta_log" / f"{0:020d}.json").exists():
                with pytest.raises(VersionNotReadable):
                    fresh.scan(table, ReadSpec(version=0)).count()
            fresh.sql(f"insert into {table} values (2000, 'after')")
            assert fresh.table(table).cleanup_log().removed == () or table == twin
