"""What is kept between two calls, after something happened to its table: the rows of the model, or a named error.

Every day runs these pairs; `tests/stale.py` has all handles and events.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import duckrun
from tests.stale import EVENTS, check

CORE = [
    ("scan", "append"),
    ("scan", "drop and create"),
    ("snapshot", "overwrite"),
    ("frame", "drop"),
    ("temporary view", "another schema"),
    ("view", "rename column"),
    ("table", "restore"),
    ("changes", "update"),
    ("staged", "another type"),
    ("staged", "not null"),
    ("staged", "append"),
]
REOPENED = {"frame", "query", "temporary view"}
"""What reads a Delta table by its folder and the number of a version."""


def _cases(pairs: list[tuple[str, str]]) -> list[object]:
    found = []
    for lake_format in ("delta", "ducklake"):
        for handle, event in pairs:
            if EVENTS[event].format not in (None, lake_format) or (handle, event) == ("view", "rename"):
                continue  # a table that a view reads is not renamed
            marks = []
            if lake_format == "delta" and event == "drop and create" and handle in REOPENED:
                why = "of a table that was made anew a frame reads the version of the same number"
                marks.append(pytest.mark.xfail(raises=AssertionError, reason=why, strict=True))
            found.append(pytest.param(lake_format, handle, event, marks=marks))
    return found


def _check(root: Path, lake_format: str, handle: str, event: str) -> None:
    with duckrun.connect(root, format=lake_format) as session:
        check(session, handle, event)


@pytest.mark.parametrize(("lake_format", "handle", "event"), _cases(CORE))
def test_a_handle_gives_the_rows_of_the_model_or_a_named_error(
    root: Path, lake_format: str, handle: str, event: str
) -> None:
    _check(root, lake_format, handle, event)
