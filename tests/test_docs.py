"""Every page under docs/ runs: its Python blocks, one after the other, in an empty folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parent.parent / "docs").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
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
    for block in BLOCK.finditer(text):
        line = text[: block.start()].count("\n") + 1
        exec(compile("\n" * line + block[1], str(page), "exec", dont_inherit=True), names)


def test_there_are_pages_to_run() -> None:
    assert {"session", "writing", "dagster", "dbt", "spark"} <= {path.stem for path in RUNNABLE}
