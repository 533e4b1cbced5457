"""Fixtures that every test shares: an empty lake, an engine by name, and a session on both."""

from __future__ import annotations

import gc
import os
import re
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckrun
from duckrun.session import Session

# A JVM of the tests lives for minutes: with its quick compiler only it takes a third less of the processors. By itself it would
# then keep 48 MB for compiled code, which the generated code of many queries fills, and the JVM ends.
# Hadoop without its native library starts a `chmod` for each file; VFORK starts it without a helper process in between.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Djdk.lang.Process.launchMechanism=VFORK",
)

pytest_plugins = [
    "tests.drawing",
    "tests.figures",
    "tests.fixtures_answers",
    "tests.fixtures_azure",
    "tests.fixtures_postgres",
    "tests.fixtures_s3",
    "tests.fixtures_spark",
    "tests.lake_formats",
]


# The markers of the long suites (LONG in the Makefile).
LONG = ("kills", "conformance", "differential", "turns", "changes", "cluster", "ui", "slow", "matrix", "answers")
# Of how many parts a run takes one, of tests that do not say it themselves. The other suites have budgets or matrices of their own.
PARTS = {"slow": 9, "cluster": 3}
# The same of folders: their cases are whole jobs and lakes.
PARTS_OF_FOLDERS = {"tests/dagster/": 2, "tests/run/test_concurrency.py": 2, "tests/ducklake/": 3}
# Of each test of these folders, a run takes a third of the cases, and at least one: they write and read tables.
PARTS_OF_CASES = 3
FOLDERS_OF_TABLES = tuple(
    f"tests/{name}/"
    for name in (
        "branches",
        "changes",
        "engines",
        "formats",
        "golden",
        "lake",
        "run",
        "sessions",
        "statements",
        "storage",
    )
)
PARTS_OF_DBT = 3  # every day: two seconds for each build; dbt's own suite (conformance) runs beside it


# Suites all of whose tests are in the folder of their name.
FOLDERS = ("kills", "conformance", "cluster", "ui")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the folder of a suite that `-m "not (…)"` excludes: its imports are a third of the whole collection."""
    folder = collection_path.name
    if folder not in FOLDERS or collection_path.parent != Path(__file__).parent:
        return None
    excluded = re.fullmatch(r"not \((\w+(?: or \w+)*)\)", config.option.markexpr)
    return True if excluded and folder in excluded[1].split(" or ") else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector: the items live until the end, and it would pass over them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in this same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what a test cannot do on an engine, what shares the one Spark session of a run, and what a run takes."""
    for item in items:
        for lack in item.iter_markers("lacks"):
            engine, error, why = lack.args
            if getattr(item, "callspec", None) and item.callspec.params.get("engine") == engine:
                item.add_marker(pytest.mark.xfail(raises=error, reason=why, strict=True))
        marks = {mark.name for mark in item.iter_markers()}
        spark = "spark" in marks or "spark" in getattr(item, "fixturenames", ())
        if spark:
            item.add_marker(pytest.mark.xdist_group("spark"))
        if spark and not marks & set(LONG):
            item.add_marker(pytest.mark.on_spark)
            item.add_marker(pytest.mark.first_of(_covers_on_spark(item)))
        elif marks & {"drawn", "whole"}:
            continue
        elif parts := next((PARTS[name] for name in LONG if name in PARTS and name in marks), None):
            item.add_marker(pytest.mark.drawn(parts))
        elif "make_project" in getattr(item, "fixturenames", ()) and not marks & set(LONG):
            item.add_marker(pytest.mark.drawn(PARTS_OF_DBT))
        elif not marks & {*LONG, "branches", "lives"}:
            item.add_marker(_share_of(item.nodeid))


def _share_of(case: str) -> pytest.MarkDecorator:
    """The part of the cases that `make test` takes, of a test that does not say it itself."""
    for path, parts in PARTS_OF_FOLDERS.items():
        if case.startswith(path):
            return pytest.mark.drawn(parts)
    if case.startswith(FOLDERS_OF_TABLES):
        return pytest.mark.drawn(PARTS_OF_CASES, each_test=True)
    return pytest.mark.drawn(1)


# Spark cases that alone cover a rule of that engine.
ON_SPARK_TOO = (
    "test_an_append_of_which_others_changed_the_rows_is_compared",
    "test_files_are_read_alone_as_a_plain_reader_reads_them",
    "test_rows_that_vectors_delete_are_none_of_the_files",
    "test_what_vectors_delete_is_found_in_commits_and_in_checkpoints",
)


def _covers_on_spark(item: pytest.Item) -> str:
    """Name of what a Spark case covers, of which `make test` takes the first case.

    That is a statement of the matrix, a test of the write modes, a test of ON_SPARK_TOO, or a folder.
    """
    if item.path.match("statements/test_matrix.py") or item.nodeid.rpartition("::")[2].startswith(ON_SPARK_TOO):
        return item.nodeid
    if item.path.match("engines/test_writes.py"):
        return item.nodeid.partition("[")[0]
    return str(item.path.parent)


@pytest.fixture(scope="session", autouse=True)
def _migrations_read_once() -> Iterator[None]:
    """Read the 89 files of Dagster's migrations once in a process.

    Each ephemeral instance would run all of them twice: three quarters of its 50 ms.
    """
    if "dagster" not in sys.modules:
        yield
        return
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    read = ScriptDirectory.from_config
    directories: dict[str | None, ScriptDirectory] = {}

    def from_config(config: Config) -> ScriptDirectory:
        location = config.get_main_option("script_location")
        if location not in directories:
            directories[location] = read(config)
        return directories[location]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ScriptDirectory, "from_config", from_config)
        yield


@pytest.fixture(scope="module", autouse=True)
def _old_objects_are_frozen() -> None:
    """Exclude all that other files left behind from the search for garbage, such as imported modules and caches.

    A search of a process that has run a thousand tests takes most of a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _each_writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let polars and DuckDB write the few rows of a third of the tests each, as they write others; Arrow writes the rest."""
    match zlib.crc32(request.node.nodeid.encode()) % 3:
        case 0:
            monkeypatch.setattr("duckrun.engines.duckdb.writers.columnar._FEWEST", 1)
        case 1:
            monkeypatch.setattr("duckrun.engines.duckdb.writers.columnar._MOST_BYTES", -1)


@pytest.fixture(autouse=True)
def _one_thread_of_duckdb(request: pytest.FixtureRequest) -> Iterator[None]:
    """In three of four everyday cases on a DuckLake, DuckDB has one thread.

    A statement asks the catalog dozens of small questions, and each wakes all threads of DuckDB: a third of the
    processor. The other cases, and the long suites, have as many threads as users.
    """
    item = request.node
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    names = {value for value in params if isinstance(value, str)}
    on_ducklake = item.nodeid.startswith("tests/ducklake/") or "ducklake" in names
    is_long = any(mark.name in (*LONG, "lives") for mark in item.iter_markers())
    if not on_ducklake or is_long or zlib.crc32(item.nodeid.encode()) // 2 % 4 == 0:
        yield
        return
    connect = duckdb.connect

    def with_one_thread(*args: Any, config: Mapping[str, Any] | None = None, **options: Any) -> Any:
        return connect(*args, config={**(config or {}), "threads": "1"}, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(duckdb, "connect", with_one_thread)
        yield


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a lake that does not exist yet."""
    return tmp_path / "lake"


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine: one test, all engines."""
    return request.param


@pytest.fixture
def session(root: Path, engine: str, request: pytest.FixtureRequest) -> Iterator[Session]:
    """A session whose own engine is the test's; it writes Spark frames when the engine is Spark."""
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    with duckrun.connect(root, engine=engine, spark=spark) as opened:
        yield opened


@pytest.fixture
def duck(root: Path) -> Iterator[Session]:
    """A session on the embedded engine."""
    with duckrun.connect(root) as opened:
        yield opened
