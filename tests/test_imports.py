"""What an import may not bring along: each command, each dbt invocation and each step process of a run pays for it again."""

from __future__ import annotations

import ast
import gc
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from duckrun.libraries import on_demand

# Frames and engines that only a value or a node of theirs needs. pyarrow.dataset is here as it imports pandas, which
# takes longer than pyarrow and DuckDB together.
ON_DEMAND = ("pandas", "polars", "pyarrow.dataset", "pyspark", "py4j", "delta", "IPython")
# The libraries of the work itself: a command line that answers `--help`, and a module that only names a type, need none.
OF_THE_WORK = ("duckdb", "deltalake", "pyarrow", "numpy", "sqlglot", "obstore", "psutil", "pyroaring")

# Parts of ours that no node needs which DuckDB runs on Delta tables: Spark, DuckLake, and the session of SQL statements.
OTHER_NODES = (
    "dbt.adapters.duckrun.projects",
    "dbt.adapters.duckrun.spark.session",
    "duckrun.engines.spark.engine",
    "duckrun.engines.spark.process.session",
    "duckrun.formats.ducklake.ducklake",
    "duckrun.moving.moving",
    "duckrun.session",
    "duckrun.statements.run",
)

# An open lake: `dbt parse` and `dbt --help` open none. dbt-duckdb itself imports DuckDB.
OF_A_LAKE = (
    *(name for name in OF_THE_WORK if name != "duckdb"),
    "dbt.adapters.duckrun.environment",
    "duckrun.lake.lake",
    "duckrun.values.rows",
)
# Parsers of SQL and of unusual arguments: DuckDB's tokenizer tells the names in the SQL of plain models.
PARSERS = ("sqlglot", "duckrun.sql.names", "duckrun.statements.parse.tokens", "duckrun.values.validation")
MOST_MODULES = 40
"""Modules that the adapter may import beside those of dbt and dbt-duckdb."""

MOST_AT_THE_TOP = 12
"""Modules beside the rooms of the package: what a user imports, and what builds it."""

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (ROOT / "adapter/duckrun", ROOT / "adapter/dbt", ROOT / "duckrun_dagster")

# Imports against the direction of all others: the module in front, and those below it that name it for types or in a
# function. Take a line out when its reason is gone, and add none: what both need belongs in a lower module.
UPWARD: dict[str, set[str]] = {}


def loaded(*steps: tuple[str, tuple[str, ...]]) -> list[list[str]]:
    """Those of the unwanted modules that a new process has after each step."""
    code = "import sys, json"
    for each, unwanted in steps:
        code += f"\n{each}\nprint(json.dumps([name for name in {unwanted!r} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.strip().splitlines()[-len(steps) :]]


def test_an_import_brings_nothing_that_it_does_not_need() -> None:
    """One process: an import has at most the modules that the later ones have too."""
    managers = "from duckrun_dagster import DeltaIOManager, DuckrunResource, maintenance, table_checks"
    assert (
        loaded(
            ("import duckrun", ON_DEMAND + OF_THE_WORK),
            # dbt takes longer than all the rest, and a location without dbt models has no use for it.
            ("import duckrun_dagster", (*ON_DEMAND, "dbt", "dagster_dbt.core")),
            (managers, (*ON_DEMAND, "pyarrow", "numpy", "sqlglot", "deltalake", "duckrun.session")),
            ("import duckrun_dagster; duckrun_dagster.DuckrunDbtTranslator", ON_DEMAND),
        )
        == [[]] * 4
    )


def test_the_adapter_adds_few_modules_to_those_of_dbt_duckdb() -> None:
    known = "import dbt.cli.main, dbt.adapters.duckdb\nknown = set(sys.modules)\nimport dbt.adapters.duckrun"
    added = "print(json.dumps(sorted(set(sys.modules) - known)))"
    unwanted, modules = loaded((known, (*ON_DEMAND, *OTHER_NODES, *OF_A_LAKE, "dagster")), (f"{added}; sys.exit()", ()))
    assert unwanted == []
    assert len(modules) <= MOST_MODULES, modules


def modules() -> dict[str, Path]:
    """Return the modules of all packages by name."""
    files: dict[str, Path] = {}
    for package in PACKAGES:
        for file in package.rglob("*.py"):
            parts = file.relative_to(package.parent).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return files


@cache
def all_names() -> dict[str, list[str]]:
    """Return the names in each module's imports."""
    return {module: list(named_in(module, file)) for module, file in modules().items()}


def named_in(module: str, file: Path) -> Iterator[str]:
    """Yield the names in a module's imports, also in functions and under TYPE_CHECKING."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
            base = ".".join(filter(None, (above if node.level else "", node.module)))
            yield from (f"{base}.{alias.name}" for alias in node.names)


def import_graph() -> dict[str, set[str]]:
    """Return the modules of ours that each module imports."""
    files = modules()
    graph: dict[str, set[str]] = {}
    for module, imported in all_names().items():
        names = {name if name in files else name.rpartition(".")[0] for name in imported}
        graph[module] = (names & files.keys()) - {module}
    return graph


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: names.copy() for module, names in import_graph().items()}
    for upper, lower in UPWARD.items():
        for module in lower & graph.keys():
            graph[module].discard(upper)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other in a circle: {' <- '.join(error.args[1])}")


def test_each_import_against_the_direction_is_still_there() -> None:
    graph = import_graph()
    gone = [
        f"{module} -> {upper}"
        for upper, lower in UPWARD.items()
        for module in lower
        if upper not in graph.get(module, set())
    ]
    assert gone == [], "take them out of UPWARD"


def test_the_top_of_the_package_holds_few_modules() -> None:
    assert len(list((ROOT / "adapter/duckrun").glob("*.py"))) <= MOST_AT_THE_TOP


def test_the_collector_rests_while_a_module_is_imported_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_on_demand.py").write_text("import gc\ncollects = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = on_demand("module_on_demand")
    assert "module_on_demand" not in sys.modules
    assert module.collects is False
    assert gc.isenabled()
    with pytest.raises(AttributeError):
        module.lacking
    assert gc.isenabled()


def test_sqlglot_knows_the_dialect_whether_it_or_the_adapter_is_imported_first() -> None:
    read = "sqlglot.parse_one('from t select a', read='duckrun').sql('duckrun')"
    for first, second in (("sqlglot", "dbt.adapters.duckrun"), ("dbt.adapters.duckrun", "sqlglot")):
        # An older sqlglot reads no entry points: the name of the class registers the dialect.
        code = f"import {first}, {second}\nif {first != 'sqlglot'}: dbt.adapters.duckrun.Duckrun\nassert {read}"
        assert loaded((code, ("pyarrow",))) == [[]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of a dbt project with two small models."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "numbers.sql").write_text(
        "{{ config(materialized='table') }} select range as id from range(3)"
    )
    (tmp_path / "models" / "evens.sql").write_text("select id from {{ ref('numbers') }} where id % 2 = 0")
    (tmp_path / "dbt_project.yml").write_text("name: shop\nversion: '1.0'\nprofile: shop\n")
    (tmp_path / "profiles.yml").write_text(
        f"shop: {{target: dev, outputs: {{dev: {{type: duckrun, schema: main, root_path: {tmp_path / 'lake'}}}}}}}"
    )
    return tmp_path


def invoking(project: Path, *commands: str) -> str:
    """Return code that runs dbt commands."""
    return f"""
import os
os.chdir({os.fspath(project)!r})
from dbt.cli.main import dbtRunner
for command in {commands!r}:
    assert dbtRunner().invoke(["--quiet", command, "--profiles-dir", "."]).success
"""


def test_dbt_commands_import_nothing_of_other_nodes(project: Path) -> None:
    assert loaded(
        (invoking(project, "parse"), (*ON_DEMAND, *OTHER_NODES, *OF_A_LAKE)),
        # The tables are created, then overwritten.
        (invoking(project, "run", "run"), (*ON_DEMAND, *OTHER_NODES, *PARSERS)),
    ) == [[], []]
    # A process that overwrites a table of another.
    assert loaded((invoking(project, "run"), (*ON_DEMAND, *OTHER_NODES, *PARSERS, "pyarrow.compute"))) == [[]]


def test_a_small_write_does_not_import_the_datasets_of_arrow(tmp_path: Path) -> None:
    code = f"""
import pyarrow as pa
import duckrun
with duckrun.connect({os.fspath(tmp_path)!r}) as s:
    for mode in ("error", "append"):
        s.execute("main.t", duckrun.WriteSpec(mode), pa.table({{"id": [1, None], "note": ["a", "b"]}}))
"""
    assert loaded((code, ("pyarrow.dataset", "polars", "pyspark"))) == [[]]


def test_the_other_distribution_of_the_same_name_is_refused(tmp_path: Path) -> None:
    def imported() -> str:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path), str(tmp_path / "missing")])}
        done = subprocess.run(
            [sys.executable, "-c", "import duckrun"], env=env, capture_output=True, text=True, check=False, timeout=60
        )
        return done.stderr

    for name in ("duckrun_dagster-9.0", "duckrun-0.3"):
        assert imported() == ""
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "METADATA").write_text(f"Name: {name.split('-')[0]}\n")
    assert "pip uninstall duckrun" in imported()


# Modules whose package has another name; those of dbt and Dagster are always there with these two; pyspark[connect] has grpc.
NAMES = {"dagster_dbt": "dagster-dbt", "dbt": "dbt-core", "delta": "delta-spark", "lazy_loader": "lazy-loader"}
BROUGHT = {"agate": "dbt-core", "click": "dbt-core", "dbt_common": "dbt-core", "yaml": "dbt-core", "grpc": "pyspark"}
BROUGHT |= {"pydantic_core": "pydantic", "packaging": "dagster-dbt"}
OPTIONAL = {"delta-spark", "matplotlib", "pandas", "pyspark"}


def test_each_package_that_the_code_imports_is_a_dependency_or_of_an_extra() -> None:
    """pandas brought numpy once, which the code imports too: without pandas the first merge failed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    imported = {name.partition(".")[0] for names in all_names().values() for name in names}
    imported -= {*sys.stdlib_module_names, "duckrun", "duckrun_dagster"}
    wanted = {NAMES.get(name, BROUGHT.get(name, name)) for name in imported}
    assert wanted - names_of(project["dependencies"]) == OPTIONAL
    extras = {name for lines in project["optional-dependencies"].values() for name in names_of(lines)}
    assert extras >= OPTIONAL


def names_of(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w.-]+", line)[0].lower().replace("_", "-") for line in requirements}
