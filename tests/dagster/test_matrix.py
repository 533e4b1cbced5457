"""Every type of value with every kind of partitions: written, written again, loaded by one, by range and whole.

A run of the suite `matrix` draws a part of the matrix; every day runs a few cells. The whole fills docs/dagster_matrix.md:
DUCKRUN_WRITE_PAGES=1 writes it, else one that differs fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dagster.matrix import KINDS, PAGE, TYPES, Cell, Kind, Type, page
from tests.pages import wrapped

CONNECT = "DUCKRUN_TEST_MATRIX_RESULTS"
LOCAL, S3 = "Local disk", "S3 (moto's server)"
ON_S3 = tuple(kind for kind in KINDS if kind.name in ("none", "daily, dates"))


def spark_name() -> str:
    """One process has one kind of Spark session."""
    return f"pyspark.sql{'.connect' if os.environ.get('DUCKRUN_TEST_SPARK_REMOTE') else ''} DataFrame"


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str, str], dict[str, str]]:
    """What ran in this module."""
    return {}


def _cell(of: Type, kind: Kind, root: str, options: dict[str, str], request: pytest.FixtureRequest) -> dict[str, str]:
    spark = request.getfixturevalue("spark") if of.spark else None
    return Cell(kind, of, root, options, spark).run()


def _cases(*, spark: bool, kinds: tuple[Kind, ...] = KINDS) -> list[Any]:
    """Type and kind of each cell."""
    cells = [(of, kind) for of in TYPES if of.spark is spark for kind in kinds]
    return [pytest.param(of, kind, id=f"{of.name}-{kind.name}") for of, kind in cells]


# -- every day


@pytest.mark.parametrize(
    ("type_name", "kind_name"),
    [
        ("polars.LazyFrame", "daily, dates"),
        ("pyarrow.dataset.Dataset", "multi: day and store"),
        ("duckrun.SQL", "none"),
    ],
)
def test_a_few_cells(type_name: str, kind_name: str, tmp_path: Path, request: Any) -> None:
    of = next(of for of in TYPES if of.name == type_name)
    kind = next(kind for kind in KINDS if kind.name == kind_name)
    _cell(of, kind, str(tmp_path / "lake"), {}, request)


# -- the whole


@pytest.mark.matrix
@pytest.mark.drawn(5)
@pytest.mark.parametrize(("of", "kind"), _cases(spark=False))
def test_on_local_disk(of: Type, kind: Kind, tmp_path: Path, found: Any, request: Any) -> None:
    found[LOCAL, of.name, kind.name] = _cell(of, kind, str(tmp_path / "lake"), {}, request)


@pytest.mark.matrix
@pytest.mark.drawn(5)
@pytest.mark.spark
@pytest.mark.parametrize(("of", "kind"), _cases(spark=True))
def test_spark_on_local_disk(of: Type, kind: Kind, tmp_path: Path, found: Any, request: Any) -> None:
    found[LOCAL, spark_name(), kind.name] = _cell(of, kind, str(tmp_path / "lake"), {}, request)
    _tell(found)


@pytest.mark.matrix
@pytest.mark.drawn(5)
@pytest.mark.s3
@pytest.mark.parametrize(("of", "kind"), _cases(spark=False, kinds=ON_S3))
def test_on_s3(
    of: Type, kind: Kind, found: Any, request: Any, s3_options: dict[str, str], s3_bucket: Callable[[str], str]
) -> None:
    bucket = s3_bucket(f"matrix-{TYPES.index(of)}-{KINDS.index(kind)}")
    found[S3, of.name, kind.name] = _cell(of, kind, f"{bucket}/lake", s3_options, request)


@pytest.mark.matrix
@pytest.mark.drawn(5)
@pytest.mark.spark
@pytest.mark.s3
@pytest.mark.parametrize(("of", "kind"), _cases(spark=True, kinds=ON_S3))
def test_spark_on_s3(
    of: Type, kind: Kind, found: Any, request: Any, s3_options: dict[str, str], s3_bucket: Callable[[str], str]
) -> None:
    bucket = s3_bucket(f"matrix-{TYPES.index(of)}-{KINDS.index(kind)}")
    found[S3, spark_name(), kind.name] = _cell(of, kind, f"{bucket}/lake", s3_options, request)
    _tell(found)


def _tell(found: Any) -> None:
    """What ran in this process, for the one that started it."""
    if path := os.environ.get(CONNECT):
        Path(path).write_text(json.dumps([[*key, value] for key, value in found.items()]))


@pytest.fixture(scope="module")
def by_connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str, str], dict[str, str]]]:
    """The cells of Spark Connect, from a process of its own: one process has one kind of Spark session."""
    results = tmp_path_factory.mktemp("connect") / "results.json"
    environment = {**os.environ, "DUCKRUN_TEST_SPARK_REMOTE": "local[2]", CONNECT: str(results)}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "spark", "-k", "test_spark_on", __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    yield {(where, name, kind): value for where, name, kind, value in json.loads(results.read_text())}


@pytest.mark.matrix
@pytest.mark.whole
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.skipif(CONNECT in os.environ, reason="this is the process that runs on Connect")
def test_the_page_is_what_ran(found: Any, by_connect: Any) -> None:
    whole = {**found, **by_connect}
    types = len([of for of in TYPES if not of.spark]) + 2
    assert len(whole) == types * (len(KINDS) + len(ON_S3)), "the page is of the whole matrix: run all of this file"
    text = wrapped(page(whole))
    if os.environ.get("DUCKRUN_WRITE_PAGES"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text, f"{PAGE.name} differs: run this with DUCKRUN_WRITE_PAGES=1"
