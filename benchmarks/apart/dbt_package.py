"""What a project like a large dbt package costs beside dbt-duckdb: long models as tables and views, and many small tests.

    python -m benchmarks.apart.dbt_package --models 20 --tests 200 --repeat 3

A model has about 4,000 tokens, as those of elementary. Each command is a process of its own, in turns, parsed before. Processor
seconds are those of the process and what it starts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.apart.dbt_startup import ADAPTERS, Project, Run

COLUMNS = 400
COMMANDS = (("run", "--select", "long"), ("run", "--select", "views"), ("test",))


def long_query(source: str, number: int) -> str:
    """A query of about 4,000 tokens with the same rows as a short one."""
    cases = (
        f"case when note = 'row {i}' and id > {i + number} then {i} else coalesce(id, {i}) end as c{i}"
        for i in range(COLUMNS // 2)
    )
    return f"select id, note, {', '.join(cases)} from {source}"


def fill(folder: Path, models: int, tests: int) -> None:
    """Write the models and the tests of the project."""
    for kind, materialized in (("long", "table"), ("views", "view")):
        (folder / "models" / kind).mkdir()
        for number in range(models):
            text = long_query("{{ ref('model_0') }}", number)
            file = folder / "models" / kind / f"{kind}_{number}.sql"
            file.write_text(f"{{{{ config(materialized='{materialized}') }}}} {text}")
    (folder / "tests").mkdir()
    for number in range(tests):
        name = f"long_{number % models}"
        (folder / "tests" / f"test_{number}.sql").write_text(
            f"select id from {{{{ ref('{name}') }}}} where c{number % 50} is null and id = {number}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--tests", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        projects: dict[str, Project] = {}
        for name in ADAPTERS:
            projects[name] = Project(Path(folder) / name, name, 1, 0)
            fill(projects[name].folder, arguments.models, arguments.tests)
            projects[name].run("run")
        print("| command | duckrun s | dbt-duckdb s | ratio | CPU s | CPU s | ratio |\n|---|---|---|---|---|---|---|")
        for command in COMMANDS:
            runs: dict[str, list[Run]] = {name: [] for name in ADAPTERS}
            for number in range(arguments.repeat):
                for name in ADAPTERS[:: 1 if number % 2 else -1]:
                    runs[name].append(projects[name].run(*command))
            figures = ""
            for what in ("seconds", "cpu"):
                ours, theirs = (statistics.median(getattr(run, what) for run in runs[name]) for name in ADAPTERS)
                figures += f" {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} |"
            print(f"| `dbt {' '.join(command)}` |{figures}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
