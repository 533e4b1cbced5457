"""The warning that says when to switch to Spark."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import duckrun
from duckrun import WriteSpec
from duckrun.engines.duckdb.instance import advice


@pytest.fixture
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice.shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))


def read(root: Path, caplog: pytest.LogCaptureFixture, times: int = 1) -> list[str]:
    with (
        caplog.at_level(logging.WARNING, "duckrun.engines.duckdb.instance.advice"),
        duckrun.connect(root, memory_limit="130MB") as s,
    ):
        for _ in range(times):
            assert s.sql("select count(*) as n from main.t").collect() == [{"n": 100_000}]
            s.scan("main.t")
    return [record.getMessage() for record in caplog.records if record.name == "duckrun.engines.duckdb.instance.advice"]


@pytest.fixture
def large(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of which every byte stored counts as a kilobyte in memory."""
    monkeypatch.setattr(advice, "EXPANSION", 1000)
    with duckrun.connect(root) as s:
        s.execute("main.t", WriteSpec("error"), duckrun.SQL("select random() as v from range(100_000)"))
    return root


def test_a_table_far_above_this_machine_is_warned_of_once_with_the_figures(
    large: Path, no_disk: None, caplog: pytest.LogCaptureFixture
) -> None:
    (said,) = read(large, caplog, times=2)
    for part in ("Table main.t", "files of ", " are there to be read", "of temporary disk", "engine: spark"):
        assert part in said, said


def test_room_on_the_temporary_disk_counts(large: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read(large, caplog) == []


def test_the_figures_come_from_the_log(root: Path) -> None:
    with duckrun.connect(root) as s:
        s.execute("main.t", WriteSpec("error"), pa.table({"a": list(range(1000))}))
        files = s.snapshot("main.t").files()
    assert files.weight() == (len(files), sum(path.stat().st_size for path in root.rglob("*.parquet")))
