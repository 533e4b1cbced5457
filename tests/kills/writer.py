"""A process with the imports done, that forks one writer for each line it is given. Run by test_kills.py.

The writer answers a line of JSON with its process id, and adds ``ready`` when its session is open, and the
last line says how the writer ended; an empty line lets it go. A fork before any thread is started is as good as a new process, and ten times as fast.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake  # noqa: F401 - so that the forked writer need not
import pandas  # noqa: F401
import pyarrow as pa

import duckrun
from duckrun import AppTransaction, MergeClause, MergeSpec, Session, WriteSpec
from duckrun.lake.lake import ViewDefinition
from duckrun.values.choices import MERGE_MODES
from duckrun.values.rows import DeleteInsertSpec, DeleteSpec, StagedFile, UpdateSpec
from tests.kills.chains import STAGERS, Step, chain_of

UPDATE_EXPRESSION = (
    MergeClause("matched_update", "target.step % 2 = 0", set={"v": "target.v || '+' || source.v"}),
    MergeClause("not_matched_insert"),
)


def table_of(rows: Any) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    kinds = (pa.int64(), pa.int64(), pa.int64(), pa.string())
    return pa.table(
        dict(
            zip(
                ("id", "chain", "step", "v"), (pa.array(c, k) for c, k in zip(columns, kinds, strict=True)), strict=True
            )
        )
    )


def write_chain(job: dict[str, Any]) -> None:
    steps = chain_of(job["seed"], job["chain"])
    stagers = {n: start_stagers(job, n, step) for n, step in enumerate(steps) if step.kind == "staged"}
    with duckrun.connect(job["lake"], memory_limit="1GB") as session:
        say_ready(session)
        for n, step in enumerate(steps):
            app = AppTransaction(f"chain-{job['chain']}", n)
            if step.kind == "staged":
                files = [file for folder in stagers[n] for file in collect(folder)]
                session.commit_staged("t", files, WriteSpec("append", app=app))
                continue
            rows = table_of(step.rows)
            source: Any = rows.to_reader() if step.kind == "stream" else rows
            if step.kind in ("update", "delete"):
                source = None
            session.execute("t", spec_of(step, app), source)


def spec_of(step: Step, app: AppTransaction) -> Any:
    """The spec of a step; how rows leave the table takes turns."""
    spec: Any = {
        "append": WriteSpec("append", app=app),
        "stream": WriteSpec("append", app=app),
        "overwrite": WriteSpec("overwrite", app=app),
        "replace": WriteSpec("replace", predicate="id < 5", app=app),
        "merge": MergeSpec(("id",), app=app),
        "merge_expression": MergeSpec(("id",), UPDATE_EXPRESSION, app=app),
        "delete+insert": DeleteInsertSpec(("id",), app=app),
        "update": UpdateSpec({"v": "v || '!'"}, "id % 3 = 0", app=app),
        "delete": DeleteSpec("id > 15", app=app),
    }[step.kind]
    return replace(spec, merge_mode=MERGE_MODES[app.version % len(MERGE_MODES)])


def start_stagers(job: dict[str, Any], number: int, step: Step) -> list[Path]:
    """Processes that stage a part of the rows each, and say so by a file of JSON."""
    answers = []
    for part in range(STAGERS):
        answer = Path(job["scratch"], f"{os.getpid()}-{number}-{part}.json")
        answers.append(answer)
        if os.fork() == 0:
            with duckrun.connect(job["lake"], memory_limit="512MB") as session:
                files = session.stage("t", table_of(step.rows[part::STAGERS]))
            answer.with_suffix(".part").write_text(json.dumps([file.to_json() for file in files]))
            answer.with_suffix(".part").rename(answer)
            os._exit(0)
    return answers


def collect(answer: Path) -> list[StagedFile]:
    while not answer.exists():
        time.sleep(0.01)
    return [StagedFile.from_json(text) for text in json.loads(answer.read_text())]


def write_definitions(job: dict[str, Any]) -> None:
    """Views that change all the time, and a table that becomes a view and a table again: until it is killed."""
    with duckrun.connect(job["lake"], memory_limit="512MB") as session:
        say_ready(session)
        view, both = session.lake.parse("defs.v"), session.lake.parse("defs.both")
        n = 0
        while not job["once"] or n < 2:
            n += 1
            session.lake.put_definition(
                view, ViewDefinition(f"SELECT {n} AS n, '{n}' AS same -- {'x' * (n * 997 % 9000)}")
            )
            session.execute(both, WriteSpec("overwrite"), pa.table({"n": [n, n]}))
            session.lake.remove_definition(both)
            session.lake.put_definition(both, ViewDefinition(f"SELECT * FROM (VALUES ({n}), ({n})) v(n)"))
            session.lake.drop_table(both)


def drop_tables(job: dict[str, Any]) -> None:
    """A table of several files that is made and dropped: until it is killed."""
    with duckrun.connect(job["lake"], memory_limit="512MB") as session:
        say_ready(session)
        ref = session.lake.parse("drops.t")
        if job["once"]:
            session.lake.drop_table(ref)
            return
        rows = pa.table({"id": list(range(40)), "p": [i % 20 for i in range(40)]})
        while True:
            session.execute(ref, WriteSpec("overwrite", partition_by=("p",)), rows)
            session.lake.drop_table(ref)


def say_ready(session: Session) -> None:
    session.sql("SELECT 1").toArrow()
    print("ready", flush=True)


def serve(work: Mapping[str, Callable[[dict[str, Any]], None]]) -> None:
    """Fork one process for each line of standard input, which says its ``work``."""
    while line := sys.stdin.readline():
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            print(os.getpid(), flush=True)
            try:
                work[job["work"]](job)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        result = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert result is not None
        print(f"ended {'killed' if result.si_code == os.CLD_KILLED else 'exit'} {result.si_status}", flush=True)
        sys.stdin.readline()  # until here nobody else can get the process id, so the kill cannot meet a stranger
        os.waitpid(pid, 0)


if __name__ == "__main__":
    serve({"chain": write_chain, "definitions": write_definitions, "drops": drop_tables})
