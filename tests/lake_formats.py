"""In which format the lakes of a test are (a pytest plugin: conftest.py names it in pytest_plugins).

With ``pytestmark = pytest.mark.formats`` in a file, its tests on DuckDB run on a DuckLake too, a fifth of them each run (``formats(10)``: a tenth): every
``connect()`` and ``attach()`` that names no format opens one, whose catalog is a SQLite file in the root. What a format lacks, or does
otherwise, is ``@pytest.mark.lacks_format("ducklake", error, why)``: such a test fails once it can. ``@pytest.mark.only_format("delta",
why)`` is for a test about what one format alone has, such as files of a log.

Every such test runs, on DuckLake alone, with DUCKRUN_TEST_FORMAT=ducklake.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator

import pytest

from tests import lake

FORMAT = "DUCKRUN_TEST_FORMAT"
PARTS = 5
"""Of how many parts of its cases a run takes one, on a format that is not Delta."""


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "formats(parts): runs on a lake of each format; of those that are not Delta, a run takes one of so many parts",
        "lacks_format(format, error, why): what a format cannot do, or does otherwise; fails once it can",
        "only_format(format, why): about what one format alone has",
    ):
        config.addinivalue_line("markers", line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test that is marked, on each format."""
    marker = metafunc.definition.get_closest_marker("formats")
    if marker is None:
        return
    only = metafunc.definition.get_closest_marker("only_format")
    asked = os.environ.get(FORMAT)
    names = [asked] if asked else ["delta", "ducklake"]
    names = [name for name in names if only is None or only.args[0] == name]
    parts = [] if asked else [pytest.mark.drawn(marker.args[0] if marker.args else PARTS)]
    params = [name if name == "delta" else pytest.param(name, marks=parts) for name in names]
    metafunc.parametrize("lake_format", params, indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What a format lacks is expected to fail; on formats that are not Delta, only DuckDB's cases run."""
    kept: list[pytest.Item] = []
    gone: list[pytest.Item] = []
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        name = params.get("lake_format")
        only = item.get_closest_marker("only_format")
        other = (name not in (None, "delta") and _on_spark(item, params)) or (only and name and only.args[0] != name)
        (gone if other else kept).append(item)
        for lack in item.iter_markers("lacks_format"):
            lacking, error, why = lack.args
            if lacking == name:
                item.add_marker(pytest.mark.xfail(raises=error, reason=why, strict=True))
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = kept


def _on_spark(item: pytest.Item, params: dict[str, object]) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    return (
        "spark" in fixtures
        or item.get_closest_marker("spark") is not None
        or any(isinstance(value, str) and value == "spark" for value in params.values())
    )


@pytest.fixture(autouse=True)
def lake_format(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the format of every lake that a test opens without naming one."""
    name: str = getattr(request, "param", "delta")
    if name == "delta":
        yield name
        return
    from duckrun.session import Session, connect

    with pytest.MonkeyPatch.context() as patched:  # of its own: tests undo theirs half-way
        for opens in (connect, Session.attach):
            patched.setitem(inspect.unwrap(opens).__kwdefaults__ or {}, "format", name)
        patched.setattr(lake, "FORMAT", name)
        yield name
