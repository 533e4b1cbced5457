"""Which run of the example continues the others."""

from __future__ import annotations

import uuid

import dagster as dg

from example_project.runner.plan import UNDER_WAY, Run, continued_by


def _add(
    instance: dg.DagsterInstance, status: dg.DagsterRunStatus, job: str = "ingest", **more: object
) -> dg.DagsterRun:
    return instance.add_run(dg.DagsterRun(job_name=job, run_id=str(uuid.uuid4()), status=status, **more))  # type: ignore[arg-type]


def test_the_last_of_several_runs_continues() -> None:
    with dg.DagsterInstance.local_temp() as instance:
        first, second = (_add(instance, dg.DagsterRunStatus.SUCCESS) for _ in range(2))
        _add(instance, dg.DagsterRunStatus.FAILURE)
        _add(instance, dg.DagsterRunStatus.STARTED, job="report")
        assert [continued_by(instance, run) for run in (first, second)] == [second.run_id, None]
        for status in {*UNDER_WAY} - {dg.DagsterRunStatus.QUEUED}:  # a queued run needs a code location
            other = _add(instance, status)
            assert continued_by(instance, second) == other.run_id
            instance.delete_run(other.run_id)
        assert continued_by(instance, second) is None


def test_a_run_of_dagster_is_known_by_its_job_its_assets_and_its_range() -> None:
    flights, weather = dg.AssetKey("flights"), dg.AssetKey("weather")
    run = Run("ingest", (flights, weather), ("2013-01-01", "2013-01-31"))
    with dg.DagsterInstance.ephemeral() as instance:
        ended = _add(
            instance,
            dg.DagsterRunStatus.SUCCESS,
            asset_selection=frozenset({weather, flights}),
            tags={**run.tags, "a": "b"},
        )
    assert run.is_of(ended)
    for other in (
        Run("transform", run.assets, run.partitions),
        Run("ingest", (flights,), run.partitions),
        Run("ingest", run.assets, ("2013-01-01", "2013-02-28")),
    ):
        assert not other.is_of(ended)
