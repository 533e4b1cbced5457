"""What a Dagster step takes with an IO manager: one asset that returns a polars frame, one that loads it as the same type.

``write`` and ``load`` are `handle_output` and `load_input` alone; ``step`` is what Dagster says that the writing step took.
All come after a first pass with ten rows, which is for the imports.
"""

# No "from __future__ import annotations" here: Dagster must see the types of the assets, not their names.

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.harness.case import Clock, Data, Job, Relations, Run
from benchmarks.harness.duck import delta, parquet
from benchmarks.jobs.polars_rows import expected, frame

FEW, MANY = 100_000, 10_000_000


@contextmanager
def _timed(manager: Any, clock: Clock) -> Iterator[None]:
    """Time the two methods of an IO manager's class while a run uses copies of it."""
    owner = type(manager)
    if not hasattr(owner, "handle_output"):  # a factory, of Dagster's own manager for databases
        owner = importlib.import_module("dagster._core.storage.db_io_manager").DbIOManager
    original = owner.handle_output, owner.load_input

    def measure(label: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*arguments: Any, **named: Any) -> Any:
            with clock(label):
                return call(*arguments, **named)

        return inner

    owner.handle_output = measure("write", original[0])
    owner.load_input = measure("load", original[1])
    try:
        yield
    finally:
        owner.handle_output, owner.load_input = original


def _through_dagster(run: Run, manager: Any, rows: int) -> Relations:
    """The table, and what was loaded from it. A small step is repeated."""
    import dagster as dg
    import polars as pl

    made = frame(10)
    read: list[pl.DataFrame] = []

    @dg.asset(key_prefix=["main"])
    def t() -> pl.DataFrame:
        return made

    @dg.asset(ins={"t": dg.AssetIn(["main", "t"])}, io_manager_key="nothing")
    def loaded(t: pl.DataFrame) -> None:
        read[:] = [t]

    def materialize(clock: Clock) -> None:
        resources = {"io_manager": manager, "nothing": dg.mem_io_manager}
        with _timed(manager, clock):
            done = dg.materialize([t, loaded], resources=resources, instance=dg.DagsterInstance.ephemeral())
        step = next(each for each in done.all_events if each.is_step_success and "loaded" not in (each.step_key or ""))
        clock.add("step", step.event_specific_data.duration_ms / 1000)  # type: ignore[union-attr]

    materialize(Clock())
    made = frame(rows)
    for _ in range(1 if rows > FEW else 5):
        materialize(run.clock)
    file = run.lake / "loaded.parquet"
    read[0].write_parquet(file)
    return {"written": delta(next(each.parent for each in run.lake.rglob("_delta_log"))), "loaded": parquet(file)}


def by_duckrun(run: Run, rows: int) -> Relations:
    from duckrun_dagster import DeltaIOManager, DuckrunResource

    return _through_dagster(run, DeltaIOManager(duckrun=DuckrunResource(root_path=str(run.lake))), rows)


def by_dagster_deltalake_polars(run: Run, rows: int) -> Relations:
    local = importlib.import_module("dagster_deltalake").LocalConfig()
    managers = importlib.import_module("dagster_deltalake_polars")
    manager = managers.DeltaLakePolarsIOManager(root_uri=str(run.lake), storage_options=local)
    return _through_dagster(run, manager, rows)


def by_dagster_polars(run: Run, rows: int) -> Relations:
    manager = importlib.import_module("dagster_polars").PolarsDeltaIOManager(base_dir=str(run.lake))
    return _through_dagster(run, manager, rows)


SIDES = {
    "duckrun": by_duckrun,
    "dagster-deltalake-polars": by_dagster_deltalake_polars,
    "dagster-polars": by_dagster_polars,
}


def _job(name: str, title: str, rows: int) -> Job:
    def of(side: Callable[[Run, int], Relations]) -> Callable[[Run], Relations]:
        return lambda run: side(run, run.data.count(rows))

    def rows_of(data: Data) -> Relations:
        return {each: expected(data.count(rows)) for each in ("written", "loaded")}

    return Job(
        name,
        title,
        {side: of(call) for side, call in SIDES.items()},
        rows_of,
        scaled=False,
        apart={"dagster-deltalake-polars": "dagster-deltalake-polars", "dagster-polars": "dagster-polars"},
    )


JOBS = (
    _job("io-10m", "IO manager: 10 million polars rows", MANY),
    _job("io-100k", "IO manager: 100,000 polars rows", FEW),
)
