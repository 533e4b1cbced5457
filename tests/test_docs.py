"""Every page under docs/ runs: its Python blocks, one after the other, in an empty folder. And pages read well."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import duckrun
from tests.dagster import matrix
from tests.engines import feature_cases, type_cases
from tests.pages import wrapped

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
PROSE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHOWN = re.compile(r"^<!-- rows: (\S+) -->\n\n((?:\|.*\n)+)", re.MULTILINE)
OF_DEFINITIONS = re.compile(r"(dg\.)?Definitions(\.merge)?\(|(lake_)?maintenance\(|publish_after_checks\(")
NEEDS = re.compile(r"<!-- needs: (\w+) -->")


def _page(path: Path) -> object:
    needs = NEEDS.findall(path.read_text(encoding="utf-8"))
    return pytest.param(path, id=path.stem, marks=[getattr(pytest.mark, name) for name in needs])


RUNNABLE = [path for path in PAGES if BLOCK.search(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", [_page(path) for path in RUNNABLE])
def test_the_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": f"docs.{page.stem}"}
    if "spark" in NEEDS.findall(text):
        names["spark"] = request.getfixturevalue("spark")
    if "s3" in NEEDS.findall(text):
        names["endpoint"] = request.getfixturevalue("s3_endpoint")
        request.getfixturevalue("s3_bucket")("docs")
    for block in sorted([*BLOCK.finditer(text), *SHOWN.finditer(text)], key=lambda found: found.start()):
        if block.re is SHOWN:
            with nullcontext(names["s"]) if "s" in names and not names["s"].closed else duckrun.connect("lake/") as s:
                shows_the_rows(s, block[1], block[2])
            continue
        line = text[: block.start()].count("\n") + 1
        exec(compile("\n" * line + block[1], str(page), "exec", dont_inherit=True), names)


def shows_the_rows(session: Any, name: str, table: str) -> None:
    """A table under the comment ``<!-- rows: sales.orders -->`` is what that table holds there, in the page's session
    ``s`` while that is open and else in ``lake/``."""
    columns, _, *rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
    found = session.table(name).toDF()
    assert columns == found.columns
    actual = [["NULL" if cell is None else str(cell) for cell in row.values()] for row in found.collect()]
    assert sorted(rows) == sorted(actual)


def test_there_are_pages_to_run() -> None:
    assert {"session", "writing", "dagster", "dbt", "spark"} <= {path.stem for path in RUNNABLE}


@pytest.mark.parametrize("page", PROSE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_lines_of_prose_end_at_100(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    long = [line for line in prose.splitlines() if len(line) > 100 and not line.startswith(("|", "![", "<"))]
    assert not long


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda path: path.stem)
def test_a_block_can_be_the_module_of_a_code_location(page: Path) -> None:
    """Dagster refuses a module with two ``Definitions`` at its top."""
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        names = {
            target.id
            for node in ast.parse(block).body
            if isinstance(node, ast.Assign) and OF_DEFINITIONS.match(ast.unparse(node.value))
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        assert len(names) <= 1, names


def test_contributing_names_what_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text[text.index("## Where do I put") : text.index("## How code looks")]
    paths = re.findall(r"`((?:adapter|duckrun_dagster|tests|docs)/[\w/.]*)`", table)
    assert len(paths) > 15
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_faults_of_other_libraries_name_modules_and_tests_that_are_there() -> None:
    text = (ROOT / "docs" / "internals" / "upstream.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 60
    for path, test in named:
        files = [folder / path for folder in (ROOT / "adapter" / "duckrun", ROOT / "tests", ROOT)]
        assert any(
            file.exists() and (not test or f"def {test}(" in file.read_text(encoding="utf-8")) for file in files
        ), (path, test)


def test_faults_of_other_libraries_list_each_reproduction_in_bold() -> None:
    text = (ROOT / "docs" / "internals" / "upstream.md").read_text(encoding="utf-8")
    for module in sorted((ROOT / "tests" / "upstream").glob("test_*.py")):
        for test in re.findall(r"^def (test_\w+)", module.read_text(encoding="utf-8"), re.MULTILINE):
            assert f"**`upstream/{module.name}::{test}`**" in text, test


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("types", type_cases.page({}, defaultdict(str))),
        ("features", feature_cases.page(defaultdict(str))),
        ("dagster_matrix", matrix.page({})),
    ],
    ids=["types", "features", "dagster_matrix"],
)
def test_prose_of_a_written_page_is_its_tests(name: str, text: str) -> None:
    """The long suites write the tables of these pages, and their prose: it is changed in the tests."""

    def prose(page: str) -> list[str]:
        return [line for line in page.splitlines() if line and not line.startswith(("|", "## "))]

    assert prose((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")) == prose(wrapped(text))
