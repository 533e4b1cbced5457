"""A dbt project in a temporary folder, and real dbt: in this process, or in a fresh one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from dbt_common.tests import enable_test_caching
from deltalake import DeltaTable

from tests.dbt.fresh import forked

enable_test_caching()  # as in dbt's own tests: a macro of dbt or the adapter is parsed once a process, not once a project
REPOSITORY = Path(__file__).parents[2]


@dataclass
class Result:
    """What one dbt command did: did it succeed, what it said, and each node's entry of run_results.json."""

    success: bool
    text: str
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> dict[str, Any]:
        return self.nodes[name]

    def response(self, name: str) -> dict[str, Any]:
        return self.nodes[name]["adapter_response"]

    def message(self, name: str) -> str:
        return str(self.nodes[name]["message"])


@dataclass
class Project:
    root: Path
    lake: Path
    profile: dict[str, Any]

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))

    def save_profile(self) -> None:
        outputs = {"shop": {"target": "dev", "outputs": {"dev": self.profile}}}
        (self.root / "profiles.yml").write_text(yaml.safe_dump(outputs))

    def dbt(self, *args: str, fresh: bool = False, env: Mapping[str, str] | None = None) -> Result:
        """Run dbt here, or with ``fresh`` in a process of its own, which holds nothing but the code."""
        self.save_profile()
        target = self.root / "target" / "run_results.json"
        if args[0] != "retry":  # which goes on from the results of the command before
            target.unlink(missing_ok=True)
        options = ["--project-dir", str(self.root), "--profiles-dir", str(self.root), "--no-use-colors"]
        command = [*args, *options]
        success, text = (in_process if not fresh else _in_fresh_process)(command, self.root, env or {})
        nodes = {}
        if target.exists():
            results = json.loads(target.read_text())["results"]
            nodes = {r["unique_id"].split(".")[2]: r for r in results}
        return Result(success, text, nodes)

    def run(self, *args: str, **options: Any) -> Result:
        """A command that must succeed."""
        result = self.dbt(*args, **options)
        assert result.success, result.text
        return result

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(str(self.lake / name.replace(".", "/")))

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """The rows of a table as deltalake reads them, sorted."""
        table = self.table(name).to_pyarrow_table() if hasattr(DeltaTable, "to_pyarrow_table") else None
        assert table is not None
        return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)

    def version(self, name: str) -> int:
        return self.table(name).version()


def in_process(command: list[str], root: Path, env: Mapping[str, str]) -> tuple[bool, str]:
    from dbt.cli.main import dbtRunner

    lines: list[str] = []
    before, folder = {key: os.environ.get(key) for key in env}, os.getcwd()
    os.environ.update(env)
    try:
        outcome = dbtRunner(
            callbacks=[lambda event: lines.append(event.info.msg) if event.info.level != "debug" else None]
        ).invoke([*command, "--quiet"])
    finally:
        os.chdir(folder)
        for key, value in before.items():
            os.environ.pop(key) if value is None else os.environ.__setitem__(key, value)
    text = "\n".join(lines) + ("" if outcome.exception is None else f"\n{outcome.exception}")
    return outcome.success, text


def _in_fresh_process(command: list[str], root: Path, env: Mapping[str, str]) -> tuple[bool, str]:
    if not env:
        return forked(command, root)
    done = subprocess.run(  # some of an environment is read once, when a process starts
        [sys.executable, "-m", "dbt.cli.main", *command],
        cwd=root,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )
    return done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def make_project(tmp_path: Path) -> Iterator[Callable[..., Project]]:
    """A function that writes a project: its files, and what differs in its profile."""
    paths = [str(REPOSITORY / "adapter"), str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    os.environ["DBT_SEND_ANONYMOUS_USAGE_STATS"] = "false"

    def make(files: Mapping[str, str], name: str = "project", **profile: Any) -> Project:
        lake = tmp_path / "lake"
        project = Project(
            tmp_path / name,
            lake,
            {"type": "duckrun", "root_path": str(lake), "schema": "main", "threads": 2, **profile},
        )
        project.write(
            {
                "dbt_project.yml": "name: shop\nversion: '1.0'\nprofile: shop\nflags: {send_anonymous_usage_stats: false}\n",
                **files,
            }
        )
        return project

    yield make
    if before is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = before
