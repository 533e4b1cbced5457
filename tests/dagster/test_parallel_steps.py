"""Dagster's multiprocess executor: eight steps at once share the memory, and all of their first writes land."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import psutil
import pytest

import duckrun
from duckrun import WriteSpec
from duckrun.display.units import parse_bytes
from duckrun_dagster.resources import run_worker
from tests.dagster.parallel_steps import LIMIT, ROWS, STEPS, rows

EIGHT = {"execution": {"config": {"multiprocess": {"max_concurrent": STEPS}}}}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_concurrent": 4, "retries": {}}, 4),
        ({"multiprocess": {"max_concurrent": 8}}, 8),
        ({"multiprocess": {}}, None),
        ({"in_process": {}}, None),
        ({}, None),
        (None, None),
    ],
)
def test_the_limit_of_an_executor_is_read_where_dagster_keeps_it(config: Any, expected: int | None) -> None:
    assert run_worker._max_concurrent(config) == expected


def test_a_run_in_one_process_has_all_of_the_memory() -> None:
    instance = dg.DagsterInstance.ephemeral()
    step = SimpleNamespace(instance=instance, run_id="none", resolved_run_config=None)
    assert run_worker.share_of_step(step) == 1.0


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a job of parallel_steps.py in a lake of its own."""
    monkeypatch.setenv("PARALLEL_STEPS_LAKE", str(tmp_path / "lake"))
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
    (tmp_path / "dagster").mkdir()
    instance = dg.DagsterInstance.local_temp(str(tmp_path / "dagster"))

    def run(name: str) -> dg.JobExecutionResult:
        built = dg.build_reconstructable_job("tests.dagster.parallel_steps", "job", reconstructable_args=(name,))
        return dg.execute_job(built, instance=instance, run_config=EIGHT)

    return SimpleNamespace(run=run, lake=tmp_path / "lake")


@pytest.mark.slow
@pytest.mark.drawn(5)
@pytest.mark.timeout(600)
def test_eight_first_writes_of_one_table_all_land(steps: Any) -> None:
    with steps.run("first") as result:
        assert result.success
    with duckrun.connect(steps.lake) as session:
        assert session.sql("select count(*), count(distinct step) from shared").collect()[0] == {
            "count_star()": STEPS,
            "count(DISTINCT step)": STEPS,
        }


@pytest.mark.slow
@pytest.mark.drawn(5)
@pytest.mark.timeout(600)
def test_dbt_is_told_the_part_of_its_step(steps: Any) -> None:
    project = steps.lake.with_name("dbt")
    project.mkdir()
    (project / "dbt_project.yml").write_text("name: shop\nprofile: shop\n")
    (project / "profiles.yml").write_text("shop: {target: dev, outputs: {dev: {type: duckrun, root_path: lake}}}\n")
    with steps.run("dbt") as result:
        assert result.success
        parts = [result.asset_materializations_for_node(f"dbt_{n}")[0].metadata["fraction"].value for n in range(STEPS)]
    assert parts == [1 / STEPS] * STEPS


@pytest.mark.slow
@pytest.mark.drawn(5)
@pytest.mark.timeout(600)
def test_eight_merges_at_once_stay_inside_the_limit(steps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = rows(ROWS, 0)
    with duckrun.connect(steps.lake) as session:
        for n in range(STEPS):
            session.execute(f"merged_{n}", WriteSpec("error"), before)
    monkeypatch.setenv("PARALLEL_STEPS_START", str(ROWS // 2))
    with _tree() as tree, steps.run("merging") as result:
        assert result.success
        found = [
            {
                key: value.value
                for key, value in result.asset_materializations_for_node(f"merged_{n}")[0].metadata.items()
            }
            for n in range(STEPS)
        ]
    limit = parse_bytes(LIMIT)
    assert {metadata["rows_updated"] for metadata in found} == {ROWS // 2}
    assert all(metadata["memory_limit_mb"] <= limit / STEPS / 1024**2 + 0.1 for metadata in found)
    assert tree.at_once >= STEPS // 2, "the steps did not run at once, so this shows nothing"
    print(f"{tree.at_once} processes, {tree.peak / 1e9:.2f} GB of {LIMIT}")
    assert tree.peak <= limit, f"{tree.peak / 1e9:.2f} GB of {LIMIT}"


class _tree:
    """The resident memory of the processes that this one starts, and how many there were, sampled."""

    def __enter__(self) -> _tree:
        self.peak = self.at_once = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def _sample(self) -> None:
        me = psutil.Process()
        while not self._done.wait(0.1):
            sizes = []
            for child in me.children(recursive=True):
                try:
                    sizes.append(child.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue
            self.peak, self.at_once = max(self.peak, sum(sizes)), max(self.at_once, len(sizes))

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()
