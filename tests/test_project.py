"""The repository itself: what its files may say, which room may do what, and what the built wheel holds."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BINARY = {".png", ".jpg", ".gif", ".ico", ".parquet", ".zip", ".gz", ".avro", ".duckdb", ".whl"}

# Split, so that this file passes its own test.
REGISTRIES = [
    "".join(name) for name in (("pypi", ".org"), ("pythonhosted", ".org"), ("maven", ".org"), ("npmjs", ".org"))
]
MACHINE_PATHS = re.compile(r"(?<![\w.}*$~)-])/(?:" + "|".join(["work", "root", "home", "Users"]) + r")/[\w.]")


def repository_files() -> list[Path]:
    """Every text file under version control, and those about to be."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = (ROOT / name for name in listed.stdout.splitlines())
    return [file for file in files if file.is_file() and file.suffix not in BINARY]


def lines_with(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    return [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_names_a_package_registry():
    assert lines_with(re.compile("|".join(map(re.escape, REGISTRIES))), repository_files()) == []


def test_no_file_holds_a_path_of_somebodys_machine():
    assert lines_with(MACHINE_PATHS, repository_files()) == []


def test_the_lock_holds_exact_versions_and_names_no_place():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    requirements = [line for line in lines if line and not line.lstrip().startswith("#")]
    loose = [line for line in requirements if not re.fullmatch(r"[A-Za-z0-9._-]+==[^\s;]+( ; .+)?", line)]
    assert loose == [], "make lock writes name==version lines and nothing else"
    assert (
        lines_with(re.compile(r"/|--index|--extra-index|--find-links|--trusted-host"), [ROOT / "requirements.lock"])
        == []
    )


def test_the_lock_holds_every_dependency_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    names = {re.match(r"[A-Za-z0-9._-]+", line).group().lower().replace("_", "-") for line in wanted}
    locked = {line.split("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    assert sorted(names - locked) == [], "run make lock"


@pytest.mark.parametrize("level", ["dbt", "dbt/adapters", "dbt/include"])
def test_the_packages_of_dbt_itself_are_left_to_dbt(level):
    folder = Path("adapter") / level
    assert not (ROOT / folder / "__init__.py").exists(), f"{folder}/__init__.py would hide dbt's own modules"


# ------------------------------------------------------------------ one code for classic Spark and Spark Connect
JVM_ONLY = {"_jvm", "_jsc", "_jdf", "_jsparkSession", "sparkContext", "_sc", "rdd", "DeltaTable", "SparkContext"}
JVM_MODULES = {"delta.tables", "pyspark.rdd", "pyspark.context", "py4j"}


def spark_code() -> list[Path]:
    """Every file of ours that knows pyspark, but the one that has a way for each kind of session."""
    folders = ("adapter/duckrun/engines", "duckrun_dagster", "example_project")
    files = (file for folder in folders for file in sorted((ROOT / folder).rglob("*.py")))
    known = [
        file for file in files if re.search(r"^\s*(from|import) (pyspark|delta)\b", file.read_text(), re.MULTILINE)
    ]
    own = ROOT / "adapter/duckrun/engines/spark/process/own_session.py"
    known.remove(own)
    return known


def jvm_uses(source: str) -> list[tuple[int, str]]:
    """(line, name) of everything that a Spark Connect session does not have."""
    uses = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in JVM_ONLY:
            uses.append((node.lineno, f".{node.attr}"))
        elif isinstance(node, ast.Name) and node.id in JVM_ONLY:
            uses.append((node.lineno, node.id))
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            if node.module in JVM_MODULES or (node.module or "").split(".")[0] == "py4j" or names & JVM_ONLY:
                uses.append((node.lineno, f"from {node.module} import {', '.join(sorted(names))}"))
        elif isinstance(node, ast.Import):
            uses += [(node.lineno, f"import {a.name}") for a in node.names if a.name in JVM_MODULES]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"getattr", "hasattr"}
            and len(node.args) > 1
            and isinstance(node.args[1], ast.Constant)
            and node.args[1].value in JVM_ONLY
        ):
            uses.append((node.lineno, f"{node.func.id}(…, {node.args[1].value!r})"))
    return uses


def test_spark_is_driven_by_sql_and_dataframes_only():
    uses = [
        f"{file.relative_to(ROOT)}:{line}: {what}" for file in spark_code() for line, what in jvm_uses(file.read_text())
    ]
    assert uses == [], "a Spark Connect session has none of these"


@pytest.mark.parametrize(
    "code",
    [
        "spark._jvm.java",
        "spark.sparkContext.setLogLevel('OFF')",
        "frame.rdd.map(f)",
        "from delta.tables import DeltaTable",
        "import delta.tables",
        "from delta import DeltaTable",
        "getattr(spark, '_jvm')",
    ],
)
def test_the_check_finds_what_only_a_classic_session_has(code):
    assert jvm_uses(code)


# ------------------------------------------------------------------ imports that import-linter cannot see
def imports_of(file: Path) -> set[str]:
    """The modules that a file imports, those inside of functions included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return found


def test_the_dbt_adapter_knows_neither_dagster_nor_the_table_format_nor_the_inside_of_an_engine():
    """What import-linter cannot hold: dbt's namespace packages are no root that it takes."""
    faces = {"duckrun.engines.duckdb", "duckrun.engines.engine"}
    strange = {
        f"{file.relative_to(ROOT)}: {module}"
        for file in (ROOT / "adapter" / "dbt").rglob("*.py")
        for module in imports_of(file)
        if module.partition(".")[0] in {"dagster", "duckrun_dagster", "deltalake", "pyspark", "delta"}
        or module.startswith(("duckrun.formats.delta", "duckrun.formats.ducklake"))
        or (module.startswith("duckrun.engines") and module not in faces)
    }
    assert strange == set(), "Spark is duckrun.spark; add a name to duckrun/engines/duckdb/__init__.py, or to Format"


# ------------------------------------------------------------------ the wheel
@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> set[str]:
    """The names in a wheel built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    build = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(ROOT)],
        capture_output=True,
        text=True,
    )
    assert build.returncode == 0, build.stdout + build.stderr
    (file,) = folder.glob("duckrun_dagster-*.whl")
    with zipfile.ZipFile(file) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_all_of_the_three_trees(wheel):
    tracked = {
        str(file.relative_to(ROOT)).removeprefix("adapter/")
        for file in repository_files()
        if file.is_relative_to(ROOT / "adapter") or file.is_relative_to(ROOT / "duckrun_dagster")
    }
    assert tracked - wheel == set()


def test_the_wheel_holds_the_macros(wheel):
    include = "dbt/include/duckrun/"
    assert f"{include}dbt_project.yml" in wheel
    assert f"{include}profile_template.yml" in wheel
    assert any(name.startswith(f"{include}macros/") and name.endswith(".sql") for name in wheel)


def test_the_wheel_holds_nothing_else(wheel):
    assert {name.split("/")[0] for name in wheel if ".dist-info/" not in name} == {"duckrun", "duckrun_dagster", "dbt"}
    assert not {"dbt/__init__.py", "dbt/adapters/__init__.py", "dbt/include/__init__.py"} & wheel


def test_the_long_suites_and_the_markers_are_the_same_list():
    markers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    listed = subprocess.run(
        [
            sys.executable,
            "-c",
            "import json, suites; print(json.dumps([(s.marker, s.everywhere) for s in suites.SUITES]))",
        ],
        cwd=ROOT / "tools",
        capture_output=True,
        text=True,
        check=True,
    )
    suites = dict(json.loads(listed.stdout))
    left_out = re.search(r"^LONG := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE).group(1).split(" or ")
    assert set(suites) <= {marker.split(":")[0] for marker in markers}
    alone = {marker for marker, everywhere in suites.items() if not everywhere}
    assert alone == set(left_out), "make test leaves out what make test-ci runs alone, and nothing else"
