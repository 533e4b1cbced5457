"""Run dbt's conformance suite on one target, and count the results of each group.

    python tools/conformance.py             # duckdb, two workers
    python tools/conformance.py ducklake    # duckdb on a lake of format ducklake
    python tools/conformance.py spark       # in one process, and so on one Spark
    python tools/conformance.py spark -x    # further arguments are pytest's

The results are passed, not applicable and failed. The table goes to the terminal and, for a run of
the whole suite, into docs/conformance.md. Fails if a test failed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "conformance.md"
WORKERS = {"duckdb": ["-n", "2", "--dist", "loadscope"], "ducklake": ["-n", "2", "--dist", "loadscope"], "spark": []}
ENVIRONMENTS = {
    "duckdb": {"DUCKRUN_CONFORMANCE_ENGINE": "duckdb"},
    "ducklake": {"DUCKRUN_CONFORMANCE_ENGINE": "duckdb", "DUCKRUN_CONFORMANCE_FORMAT": "ducklake"},
    "spark": {"DUCKRUN_CONFORMANCE_ENGINE": "spark"},
}
OUTCOMES = ("passed", "not applicable", "failed")
Table = dict[str, Counter[str]]


def main(arguments: list[str]) -> int:
    engine = arguments.pop(0) if arguments and not arguments[0].startswith("-") else "duckdb"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        pytest = [sys.executable, "-m", "pytest", "tests/conformance", "-q", f"--junitxml={report}"]
        command = [*pytest, *WORKERS[engine], *arguments]
        code = subprocess.run(command, cwd=ROOT, env={**os.environ, **ENVIRONMENTS[engine]}).returncode
        if not report.exists():
            return code or 1
        suite = ElementTree.parse(report).getroot()
    table = counted(suite)
    add_classes_that_are_nowhere(table, engine)
    text = rendered(table, engine)
    print(f"\n{text}")
    if not arguments:
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), engine, text), encoding="utf-8")
    return 1 if total(table)["failed"] or code not in (0, 1) else 0


def counted(suite: ElementTree.Element) -> Table:
    """Return the counts of each group's tests, from pytest's own report."""
    table: Table = {}
    for case in suite.iter("testcase"):
        group = re.sub(r".*test_", "", case.get("classname", "").split(".Test")[0])
        if group == "completeness":
            continue
        bad = case.find("failure") is not None or case.find("error") is not None
        outcome = "failed" if bad else "not applicable" if case.find("skipped") is not None else "passed"
        table.setdefault(group, Counter())[outcome] += 1
    return table


def add_classes_that_are_nowhere(table: Table, engine: str) -> None:
    """Count the tests of classes that apply to no engine: no test file of this project has them."""
    sys.path.insert(0, str(ROOT))
    from tests.conformance.applicability import ALL_ENGINES, group_of, suite_classes, tests_of

    for name, cls in suite_classes().items():
        if name in ALL_ENGINES and not is_here(name.split(":")[1]):
            table.setdefault(group_of(name), Counter())["not applicable"] += tests_of(cls)


def is_here(name: str) -> bool:
    """Return True if a test file of this project runs this class of the suite."""
    files = (ROOT / "tests" / "conformance").glob("test_*.py")
    return any(re.search(rf"^class Test\w*\(.*\b{name}\):", file.read_text(encoding="utf-8"), re.M) for file in files)


def total(table: Table) -> Counter[str]:
    return sum(table.values(), Counter())


def rendered(table: Table, engine: str) -> str:
    """Return the counts as a Markdown table."""
    rows = [(group, table[group]) for group in sorted(table)] + [("**all**", total(table))]
    lines = [f"| {engine} | {' | '.join(OUTCOMES)} |", "|---|---|---|---|"]
    lines += [f"| {name.replace('_', ' ')} | {' | '.join(str(counts[o]) for o in OUTCOMES)} |" for name, counts in rows]
    return "\n".join(lines)


def replaced(page: str, engine: str, text: str) -> str:
    """Return the page with the engine's new table."""
    start, end = f"<!-- {engine} -->", f"<!-- end {engine} -->"
    if start not in page:
        return f"{page.rstrip()}\n\n{start}\n{text}\n{end}\n"
    return page[: page.index(start)] + f"{start}\n{text}\n{end}" + page[page.index(end) + len(end) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
