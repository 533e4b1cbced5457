"""The files of .github: each parses, and names only targets, steps, suites, tests and tools that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import suites

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
CI = (ROOT / ".ci" / "run").read_text()
TARGETS = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())
STEPS = set(re.findall(r"^        ([a-z-]+)\)", CI, re.MULTILINE)) - {""}


def workflow(file: Path) -> dict[Any, Any]:
    return yaml.safe_load(file.read_text())


def jobs() -> list[tuple[str, dict[str, Any]]]:
    return [(f"{file.name}:{name}", job) for file in WORKFLOWS for name, job in workflow(file)["jobs"].items()]


def commands(job: dict[str, Any]) -> list[str]:
    """The commands of a job, for each combination of its matrix that it lists."""
    matrix = job.get("strategy", {}).get("matrix", {})
    rows = matrix.get("include") or [{"suites": each} for each in matrix.get("suites", [])] or [{}]
    return [
        re.sub(r"\$\{\{ *matrix\.([\w-]+) *\}\}", lambda name, row=row: str(row.get(name[1], "")), step["run"])
        for row in rows
        for step in job["steps"]
        if "run" in step
    ]


def test_there_are_three_workflows_and_each_has_triggers_jobs_and_few_rights():
    assert [file.name for file in WORKFLOWS] == ["ci.yml", "nightly.yml", "release.yml"]
    for file in WORKFLOWS:
        parsed = workflow(file)
        assert parsed[True], "YAML 1.1 reads `on` as true"
        assert parsed["permissions"] == {"contents": "read"}
    rights = {name: job["permissions"] for name, job in jobs() if "permissions" in job}
    assert rights == {"release.yml:upload": {"id-token": "write", "contents": "write"}}


@pytest.mark.parametrize(("name", "job"), jobs(), ids=[name for name, _ in jobs()])
def test_a_job_has_a_limit_and_names_only_what_exists(name, job):
    assert job["timeout-minutes"] <= 360 and job["runs-on"]
    assert set(job.get("needs", [])) <= set(workflow(ROOT / ".github/workflows" / name.split(":")[0])["jobs"])
    for command in commands(job):
        for target in re.findall(r"(?:^|[;&|] *|\n)make ([a-z-]+)", command):
            assert target in TARGETS, f"make {target}"
        for step in re.findall(r"\.ci/run([a-z -]*)", command):
            assert set(step.split()) <= STEPS, f".ci/run{step}"
        for tool in re.findall(r"tools/[\w.]+", command):
            assert (ROOT / tool).is_file(), tool
        for path in re.findall(r"(?<![\w/])tests(?:/\w+)*", command):
            assert (ROOT / path).exists(), path


def test_the_actions_are_pinned_by_hash_with_their_version():
    uses = [line.strip() for file in WORKFLOWS for line in file.read_text().splitlines() if "uses:" in line]
    assert uses
    loose = [
        line
        for line in uses
        if not re.fullmatch(r"- uses: \S+@[0-9a-f]{40} # v\d+\.\d+\.\d+|uses: \S+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)
    ]
    assert loose == []
    assert len({line.removeprefix("- ") for line in uses}) == len(
        {line.split("@")[0].removeprefix("- ") for line in uses}
    )


def test_each_suite_is_in_one_job_of_ci_and_of_the_night():
    known = {suite.name: suite for suite in suites.SUITES}
    ci = [
        row["suites"].split()
        for row in workflow(WORKFLOWS[0])["jobs"]["run"]["strategy"]["matrix"]["include"]
        if "suites" in row
    ]
    night = [row.split() for row in workflow(WORKFLOWS[1])["jobs"]["suites"]["strategy"]["matrix"]["suites"]]
    assert sorted(sum(ci, [])) == sorted(name for name, suite in known.items() if not suite.nightly)
    assert sorted(sum(night, [])) == sorted(known)


def test_the_jobs_of_ci_have_each_step_of_ci_once():
    rows = workflow(WORKFLOWS[0])["jobs"]["run"]["strategy"]["matrix"]["include"]
    steps = [step for row in rows for step in row["steps"].split() if step != "test-ci"]
    here, background = (re.search(rf"^{name}=\((.*)\)$", CI, re.MULTILINE)[1] for name in ("ALL", "BESIDE_TESTS"))
    every = [step for step in f"{here} {background}".split() if step not in ("beside", "join")]
    assert sorted([*steps, "system", "setup", "test-ci"]) == sorted(every)


def test_the_shards_of_the_night_have_every_test_once():
    rows = workflow(WORKFLOWS[1])["jobs"]["every-case"]["strategy"]["matrix"]["include"]
    named = [word for row in rows for word in row["tests"].split() if word.startswith("tests/")]
    (rest,) = (row["tests"] for row in rows if "--ignore" in row["tests"])
    assert rest.split()[0] == "tests"
    assert sorted(re.findall(r"--ignore=(\S+)", rest)) == sorted(named)
    assert len(set(named)) == len(named)


def test_the_pythons_of_the_workflows_are_those_that_are_supported():
    supported = re.search(r'^SUPPORTED="(.*)"', (ROOT / "tools" / "pythons.sh").read_text(), re.MULTILINE)[1].split()
    named = {each for file in WORKFLOWS for each in re.findall(r"\b3\.\d\d\b", file.read_text())}
    assert named == set(supported)
    rows = workflow(WORKFLOWS[1])["jobs"]["versions"]["strategy"]["matrix"]["include"]
    assert {row["python"] for row in rows} == set(supported)
    assert {row["versions"] for row in rows} == {"lowest", "locked", "newest"}


def test_the_other_files_of_github_parse():
    files = [*(ROOT / ".github").rglob("*.yml"), ROOT / ".pre-commit-config.yaml"]
    assert all(yaml.safe_load(file.read_text()) for file in files)
    for form in ("bug", "idea"):
        parsed = workflow(ROOT / ".github" / "ISSUE_TEMPLATE" / f"{form}.yml")
        assert {"name", "description", "body"} <= set(parsed)
        ids = [field["id"] for field in parsed["body"] if field["type"] != "markdown"]
        assert len(set(ids)) == len(ids)
    owners = [line for line in (ROOT / ".github" / "CODEOWNERS").read_text().splitlines() if not line.startswith("#")]
    for line in owners:
        path, *teams = line.split()
        assert teams and all(team.startswith("@") for team in teams)
        assert path == "*" or (ROOT / path.strip("/")).is_dir(), path


def test_pre_commit_has_the_locked_ruff():
    locked = re.search(r"^ruff==(\S+)$", (ROOT / "requirements.lock").read_text(), re.MULTILINE)[1]
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repo["rev"] == f"v{locked}", "change both together"
    assert [hook["id"] for hook in repo["hooks"]] == ["ruff-check", "ruff-format"]
