"""Both engines write one local table at once, each process with a DuckDB or a Spark of its own: nothing is lost or doubled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import duckrun
from duckrun import AppTransaction, MergeClause, MergeSpec, WriteSpec
from tests.cluster.standalone import kill, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(500)]
ROOT = Path(__file__).parents[2]
ENGINES = ("spark", "duckdb", "duckdb", "duckdb") * 2
ROUNDS = 2
SMALL = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "1"}
COUNT = MergeSpec(
    ("id",), (MergeClause("matched_update", set={"n": "target.n + source.n"}), MergeClause("not_matched_insert"))
)


def write(lake: str, engine: Any, who: int) -> None:
    """What each process does: append rows of its own, each twice as a retry would, add one to a row that all of them count
    in, and replace its own partition."""
    spark: Any = None
    if engine == "spark":
        from duckrun.engines.spark.process.session import spark_session

        spark = spark_session(master="local[1]", conf=SMALL)
    with duckrun.connect(lake, engine=engine, spark=spark, memory_limit="256MB") as s:
        s.sql("select count(*) as n from main.rows").collect()
        for turn in range(ROUNDS):  # begun by all at once
            Path(lake, f"ready-{turn}-{who}").touch()
            all_here = lambda: len(list(Path(lake).glob(f"ready-{turn}-*"))) == len(ENGINES)  # noqa: B023, E731
            wait_for(all_here, 200, "another writer did not come this far")
            mine = pa.table({"id": [1000 * (who + 1) + turn], "n": [turn], "who": [who]})
            app = AppTransaction(f"writer-{who}", turn)
            replayed = [s.execute("main.rows", WriteSpec("append", app=app), mine).replayed for _ in range(2)]
            assert replayed == [False, True]
            s.execute("main.rows", COUNT, pa.table({"id": [0], "n": [1], "who": [-1]}))
            s.execute("main.parts", WriteSpec("replace", predicate=f"who = {who}"), mine)


def rows_of(lake: Path, name: str) -> list[dict[str, Any]]:
    """What an independent reader sees."""
    return pa.table(DeltaTable(str(lake / "main" / name)).to_pyarrow_table()).to_pylist()


def test_eight_processes_of_both_engines_lose_and_double_nothing(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with duckrun.connect(lake) as s:
        nothing = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("who", pa.int64())]).empty_table()
        s.execute("main.rows", WriteSpec("error"), nothing)
        s.execute("main.parts", WriteSpec("error", partition_by=("who",)), nothing)
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.test_engines_at_once", str(lake), engine, str(who)],
            stderr=subprocess.PIPE, cwd=ROOT, env=os.environ,
        )
        for who, engine in enumerate(ENGINES)
    ]  # fmt: skip
    try:
        for process in running:
            _, errors = process.communicate(timeout=400)
            assert process.returncode == 0, errors.decode()[-4000:]
    finally:
        for process in running:
            kill(process)
    writers = range(len(ENGINES))
    rows = rows_of(lake, "rows")
    appended = Counter((r["id"], r["n"], r["who"]) for r in rows if r["id"])
    assert appended == Counter((1000 * (who + 1) + turn, turn, who) for who in writers for turn in range(ROUNDS))
    assert [(r["n"], r["who"]) for r in rows if not r["id"]] == [(len(ENGINES) * ROUNDS, -1)], "each merge counted"
    assert sorted((r["who"], r["n"]) for r in rows_of(lake, "parts")) == [(who, ROUNDS - 1) for who in writers]
    for name, commits in (("rows", 2), ("parts", 1)):
        log = DeltaTable(str(lake / "main" / name)).history()
        assert len(log) == 1 + commits * len(ENGINES) * ROUNDS, "one commit for each write, and none for a retry"
        engines = [str(each.get("engineInfo", "")).startswith("Apache-Spark") for each in reversed(log)]
        turns = sum(one != two for one, two in pairwise(engines))
        assert turns >= ROUNDS, "the engines took turns"


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], int(sys.argv[3]))
