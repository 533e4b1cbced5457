"""Run a small selection of tests in a new environment of another Python, or of other versions.

    python tools/smoke.py --python python3.13             # the locked versions
    python tools/smoke.py --versions lowest               # the oldest that pyproject.toml allows
    python tools/smoke.py --versions newest               # the newest
    python tools/smoke.py --versions newest --parserless  # without the parser of dbt-core 1.12
    python tools/smoke.py --keep FOLDER                   # the environment stays there

The selection takes a minute or two: each write mode on both engines, DuckLake, a dbt project, a
Python model on Spark, and Dagster's values. Run it with a Python that has uv, such as .venv's.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
SELECTION = (
    "tests/engines/test_writes.py::test_append_adds_rows",
    "tests/engines/test_writes.py::test_replacing_a_partition_replaces_only_that_partition",
    "tests/engines/test_writes.py::test_merge_updates_what_matches_and_inserts_the_rest",
    "tests/engines/test_writes.py::test_any_tabular_value_can_be_written",
    "tests/sessions/test_session.py::test_frames_have_one_shape_on_both_engines",
    "tests/sessions/test_session.py::test_history_detail_and_older_versions",
    "tests/ducklake/test_tables.py",
    "tests/dagster/test_handlers.py::test_a_value_of_each_type_is_written_and_replaced",
    "tests/dagster/test_handlers.py::test_an_input_is_loaded_as_the_type_it_declares",
    "tests/dagster/test_dbt.py::test_python_feeds_dbt_and_dbt_feeds_python",
    "tests/dbt/test_projects.py::test_seeds_views_marts_hooks_contracts_python_and_snapshots",
    "tests/dbt/test_python_models.py::test_an_incremental_model_reads_its_table_and_more_on_spark",
)
EXTRAS = "spark,ducklake,pandas"
# What the selected tests and tests/conftest.py need beside the package.
TESTS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "boto3")
RESOLUTION = {"lowest": "lowest-direct", "newest": "highest"}
# dbt-core 1.12 depends on it. Its source distribution downloads a program while it is built.
PARSER = "dbt-core-experimental-parser"


def uv(*arguments: str) -> None:
    """Run uv, which never downloads a Python by itself."""
    program = Path(sys.executable).with_name("uv")
    subprocess.run(
        [str(program), "--quiet", *arguments], cwd=ROOT, check=True, env=os.environ | {"UV_PYTHON_DOWNLOADS": "never"}
    )


def install(environment: Path, python: str, versions: str, parserless: bool) -> None:
    """Make the environment.

    Args:
        python: Program or version of its Python.
        versions: ``locked``, ``lowest`` or ``newest``.
        parserless: True to leave out the parser of dbt-core 1.12.
    """
    uv("venv", "--python", python, str(environment))
    wanted = [f"{ROOT}[{EXTRAS}]", *_requirements(TESTS)]
    options = ["--compile-bytecode", "--python", str(environment / "bin" / "python")]
    if versions == "locked":
        options += ["--constraint", str(LOCK)]
    else:
        options += ["--resolution", RESOLUTION[versions]]
    if parserless:
        overrides = environment / "overrides.txt"
        overrides.write_text(f"{PARSER} ; python_version < '3'\n", encoding="utf-8")
        options += ["--override", str(overrides)]
    uv("pip", "install", *options, *wanted)


def _requirements(names: tuple[str, ...]) -> list[str]:
    """Return packages at their locked versions: other versions of them are no question here."""
    locked = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE))
    return [f"{name}=={locked[name]}" for name in names]


def run_tests(environment: Path, arguments: list[str]) -> int:
    """Run the selection from the source tree, with the environment's programs first on PATH."""
    programs = environment / "bin"
    env = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "adapter", ROOT / "tools"))),
    }
    command = [str(programs / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", *SELECTION, *arguments]
    return subprocess.run(command, cwd=ROOT, env=env).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="program or version of the environment's Python")
    parser.add_argument("--versions", choices=("locked", *RESOLUTION), default="locked")
    parser.add_argument("--parserless", action="store_true", help=f"leave out {PARSER}")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="folder of the environment, which stays")
    options, arguments = parser.parse_known_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        environment = options.keep.resolve() if options.keep else Path(scratch) / "environment"
        if not (environment / "bin" / "python").exists():
            try:
                install(environment, options.python, options.versions, options.parserless)
            except subprocess.CalledProcessError as error:
                print(f"smoke: the environment could not be made (exit {error.returncode})", file=sys.stderr)
                return 1
        version = subprocess.run([str(environment / "bin" / "python"), "--version"], capture_output=True, text=True)
        seconds = time.monotonic() - started
        print(f"smoke: {version.stdout.strip()}, {options.versions} versions, installed in {seconds:.0f} s", flush=True)
        return run_tests(environment, arguments)


if __name__ == "__main__":
    sys.exit(main())
