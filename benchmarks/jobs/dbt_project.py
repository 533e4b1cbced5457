"""A dbt project, run and run again: ten models that make rows, thirty that read one, five that join two, five incremental ones; and
a project of one model, which is what dbt takes to start.

Both adapters run in one environment, as dbt-duckdb is a part of duckrun's. dbt's start depends on what else is installed: beside
orjson, which Dagster brings, the import of mashumaro takes 0.1 s longer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness.case import Data, Job, Relations, Run
from benchmarks.harness.duck import delta

ROWS = 10_000


def models(count: int) -> dict[str, str]:
    """The SELECT of each model by name: of fifty, or of the first ones."""
    found = {
        f"source_{n}": f"select range as id, range % 100 as kind, range * {n + 1} as amount from range({ROWS})"
        for n in range(10)
    }
    found |= {
        f"part_{n}": f"select id, kind, amount + {n} as amount from {{{{ ref('source_{n % 10}') }}}} where kind <> {n}"
        for n in range(30)
    }
    found |= {
        f"joined_{n}": f"select a.kind, count(*) as n, sum(a.amount + b.amount) as amount "
        f"from {{{{ ref('part_{n}') }}}} as a join {{{{ ref('part_{n + 10}') }}}} as b using (id) group by a.kind"
        for n in range(5)
    }
    found |= {
        f"kept_{n}": "{{ config(materialized='incremental', unique_key='id') }} "
        f"select id, kind, amount from {{{{ ref('part_{n}') }}}} "
        "{% if is_incremental() %} where id % 100 = 0 {% endif %}"
        for n in range(5)
    }
    return dict(list(found.items())[:count])


def _plain(name: str) -> str:
    """SQL for the rows of a model, by the model's own text without dbt."""
    kind, number = name.rsplit("_", 1)
    n = int(number)
    if kind == "source":
        return f"(SELECT range AS id, range % 100 AS kind, range * {n + 1} AS amount FROM range({ROWS}))"
    if kind == "part":
        return f"(SELECT id, kind, amount + {n} AS amount FROM {_plain(f'source_{n % 10}')} WHERE kind <> {n})"
    if kind == "kept":
        return _plain(f"part_{n}")
    return f"""(SELECT a.kind, count(*) AS n, sum(a.amount + b.amount) AS amount
        FROM {_plain(f"part_{n}")} AS a JOIN {_plain(f"part_{n + 10}")} AS b USING (id) GROUP BY a.kind)"""


def make_project(folder: Path, output: dict[str, object], count: int) -> None:
    (folder / "models").mkdir(parents=True)
    for name, text in models(count).items():
        (folder / "models" / f"{name}.sql").write_text(text)
    (folder / "dbt_project.yml").write_text(
        "name: bench\nversion: '1.0'\nprofile: bench\nmodels:\n  bench:\n    +materialized: table\n"
    )
    profile = {"bench": {"target": "dev", "outputs": {"dev": output}}}
    (folder / "profiles.yml").write_text(json.dumps(profile))  # JSON is YAML


def _dbt(folder: Path, *words: str) -> None:
    command = [sys.executable, "-m", "dbt.cli.main", *words, "--project-dir", ".", "--profiles-dir", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"dbt {' '.join(words)} failed:\n{(done.stdout + done.stderr)[-3000:]}")


def _built(run: Run, output: dict[str, object], count: int) -> None:
    project = run.lake / "project"
    make_project(project, output, count)
    _dbt(project, "parse")
    for label in ("run", "again"):
        with run.clock(label):
            _dbt(project, "run")
    results = json.loads((project / "target" / "run_results.json").read_text())["results"]
    for each in results:
        run.clock.add("a model", each["execution_time"])


def by_duckrun(run: Run, count: int) -> Relations:
    _built(run, {"type": "duckrun", "root_path": str(run.lake), "schema": "main", "threads": 1}, count)
    return {name: delta(run.lake / "main" / name) for name in models(count)}


def by_dbt_duckdb(run: Run, count: int) -> Relations:
    import duckdb

    file = run.lake / "bench.duckdb"
    _built(run, {"type": "duckdb", "path": str(file), "schema": "main", "threads": 1}, count)
    with duckdb.connect(str(file)) as con:
        for name in models(count):
            con.execute(f"COPY {name} TO '{(run.lake / name).as_posix()}.parquet'")
    return {name: f"read_parquet('{(run.lake / name).as_posix()}.parquet')" for name in models(count)}


def _job(name: str, title: str, count: int) -> Job:
    def of(side: Callable[[Run, int], Relations]) -> Callable[[Run], Relations]:
        return lambda run: side(run, count)

    def rows(data: Data) -> Relations:
        return {each: _plain(each) for each in models(count)}

    return Job(
        name,
        title,
        {"duckrun": of(by_duckrun), "dbt-duckdb": of(by_dbt_duckdb)},
        rows,
        scaled=False,
    )


JOBS = (
    _job("dbt-1", "`dbt run` of one model", 1),
    _job("dbt-50", "`dbt run` of 50 models, then again", 50),
)
