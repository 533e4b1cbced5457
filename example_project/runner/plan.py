"""Plan of the due runs: missing or stale assets, by Dagster's event log, in the fewest runs.

A partition is due when all its sources have arrived, and it was never materialized or a source was
materialized after it. The order of events in Dagster's log decides, not clocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg

from duckrun import Lake
from example_project import landing, settings

# Dagster's AutomationCondition does not fit. It requests backfills of daily partitions, which only
# Dagster's daemon executes. It does not see that somebody removed the lake, or that a run was
# killed between an asset and its checks.
JOBS = INGEST, TRANSFORM, REPORT = "ingest", "transform", "report"
PUBLISH = dg.AssetKey(["publish", TRANSFORM])  # publishes the branch of a run of transform
WHOLE = None  # the only "partition" of an asset without partitions
# For a range of partitions, Dagster logs each partition for every asset in the run, also for assets
# without partitions. Above this number, a separate run for those is faster.
MANY = 100
RANGE_TAGS = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")  # Dagster's own
UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING,
]  # fmt: skip
PARENT, RETRY = "dagster/parent_run_id", "dagster/is_resume_retry"  # Dagster's own
Partitions = set[str | None]
Made = dict[Any, int]  # partition, or None -> place in the event log of its newest materialization


@dataclass(frozen=True)
class Run:
    """One run: assets of a job for one range of partitions.

    It also has the checks that are due without their asset.
    """

    job: str
    assets: tuple[dg.AssetKey, ...] = ()
    partitions: tuple[str, str] | None = None
    checks: tuple[dg.AssetCheckKey, ...] = ()

    @property
    def tags(self) -> dict[str, str]:
        return dict(zip(RANGE_TAGS, self.partitions, strict=True)) if self.partitions else {}

    def is_of(self, ended: dg.DagsterRun) -> bool:
        """Return True if this is what a run of Dagster was requested for."""
        return (
            ended.job_name == self.job
            and ended.asset_selection == {*self.assets}
            and all(ended.tags.get(name) == value for name, value in self.tags.items())
        )

    def request(self, key: str | None = None) -> dg.RunRequest:
        """Return Dagster's request of the run; a schedule needs a key for each of several."""
        return dg.RunRequest(
            run_key=key,
            job_name=self.job,
            asset_selection=list(self.assets),
            asset_check_keys=list(self.checks) if self.checks else None,
            tags=self.tags,
        )


class Graph:
    """The assets of some definitions, parents first, and their checks."""

    def __init__(self, definitions: dg.Definitions) -> None:
        self._assets = definitions.resolve_asset_graph()
        self.keys: list[dg.AssetKey] = list(self._assets.toposorted_asset_keys)
        self.made_here = [key for key in self.keys if key in self._assets.materializable_asset_keys]
        self.checks = sorted(self._assets.asset_check_keys, key=lambda check: (check.asset_key.path, check.name))

    def parents(self, key: dg.AssetKey) -> AbstractSet[dg.AssetKey]:
        return self._assets.get(key).parent_keys

    def code_version(self, key: dg.AssetKey) -> str | None:
        return self._assets.get(key).code_version

    def job_of(self, key: dg.AssetKey) -> str:
        group = self._assets.get(key).group_name
        return group if group in (INGEST, REPORT) else TRANSFORM

    @property
    def publishes(self) -> bool:
        return PUBLISH in self.made_here

    def partitioned(self, key: dg.AssetKey) -> bool:
        return self._assets.get(key).is_partitioned

    def partitions(self, key: dg.AssetKey) -> Sequence[str | None]:
        definition = self._assets.get(key).partitions_def
        return [WHOLE] if definition is None else [*definition.get_partition_keys()]

    def sources(self, key: dg.AssetKey, partition: str, parent: dg.AssetKey) -> Partitions:
        """Return the parent's partitions that a partition is computed from.

        They are the days of a month, or the month of a day.
        """
        definition, parent_definition = (self._assets.get(each).partitions_def for each in (key, parent))
        if definition == parent_definition:
            return {partition}
        month = partition[:7]
        return (
            {f"{month}-01"}
            if parent_definition == landing.MONTHS
            else {day for day in self.partitions(parent) if day and day[:7] == month}
        )


def plan(instance: dg.DagsterInstance, definitions: dg.Definitions, lake: Lake) -> list[Run]:
    """Return the due runs, in order; none if every asset is up to date with the landed files."""
    graph = Graph(definitions)
    wanted = wanted_partitions(instance, graph, lake)
    due = checks_due(instance, graph, made_anew=set(wanted))
    runs: list[Run] = []
    for job in JOBS:
        of_job = _runs(graph, job, [key for key in wanted if graph.job_of(key) == job and key != PUBLISH], wanted)
        if job == TRANSFORM and graph.publishes:
            of_job = [replace(run, assets=(*run.assets, PUBLISH)) for run in of_job]
        runs += of_job
    for job in JOBS:
        if checks := tuple(check for check in due if graph.job_of(check.asset_key) == job):
            runs.append(Run(job, checks=checks))
    return runs


def can_start(definitions: dg.Definitions, runs: Sequence[Run]) -> list[Run]:
    """Return the planned runs that can execute at the same time, as they wait for no other."""
    graph = Graph(definitions)
    return [run for at, run in enumerate(runs) if not any(_waits(graph, run, earlier) for earlier in runs[:at])]


def _waits(graph: Graph, run: Run, earlier: Run) -> bool:
    """Return True if a run must begin after an earlier one, since it reads what that one writes.

    Two runs of the same assets for two ranges of partitions do not wait for each other.
    """
    return run.job != earlier.job or any(
        parent not in run.assets or not graph.partitioned(key)
        for key in run.assets
        for parent in graph.parents(key) & {*earlier.assets}
    )


def continued_by(instance: dg.DagsterInstance, ended: dg.DagsterRun) -> str | None:
    """Return the run whose end continues the job instead of this run's end; None if this one does.

    It is another run of the job: one that is under way, or the one that succeeded last.
    """

    def newest(*statuses: dg.DagsterRunStatus) -> list[str]:
        of_job = dg.RunsFilter(job_name=ended.job_name, statuses=list(statuses))
        records = instance.get_run_records(of_job, limit=1, order_by="update_timestamp")
        return [each.dagster_run.run_id for each in records]

    (other,) = newest(*UNDER_WAY) or newest(dg.DagsterRunStatus.SUCCESS)
    return None if other == ended.run_id else other


def wanted_partitions(instance: dg.DagsterInstance, graph: Graph, lake: Lake) -> dict[dg.AssetKey, Partitions]:
    """Return the due partitions of each asset (`{None}` without partitions), parents first."""
    materialized = {key: _made(instance, graph, key) for key in graph.keys}
    if graph.publishes:  # a later table is in the branch of a run that has failed, not in main
        published = materialized[PUBLISH].get(WHOLE, -1)
        for key in graph.parents(PUBLISH):
            materialized[key] = {each: at for each, at in materialized[key].items() if at < published}
    wanted: dict[dg.AssetKey, Partitions] = {}
    for key in graph.made_here:
        if not _is_there(lake, key) or _code_changed(instance, key, graph.code_version(key)):
            materialized[key] = {}
        if due := {each for each in graph.partitions(key) if _is_due(graph, key, each, materialized, wanted)}:
            wanted[key] = due
    return wanted


def _made(instance: dg.DagsterInstance, graph: Graph, key: dg.AssetKey) -> Made:
    if graph.partitioned(key):
        return dict(instance.get_latest_storage_id_by_partition(key, dg.DagsterEventType.ASSET_MATERIALIZATION))
    record = _last_made(instance, key)
    return {WHOLE: record.storage_id} if record else {}


def _last_made(instance: dg.DagsterInstance, key: dg.AssetKey) -> dg.EventLogRecord | None:
    records = instance.get_asset_records([key])
    return records[0].asset_entry.last_materialization_record if records else None


def _is_there(lake: Lake, key: dg.AssetKey) -> bool:
    """Return True if an asset's table exists: somebody may have removed the lake, or the report."""
    if key == PUBLISH:
        return True
    if key.path[0] == "report":
        return settings.REPORT.exists()
    ref = lake.resolve(*key.path)
    return lake.exists(ref) or lake.definition(ref) is not None


def _code_changed(instance: dg.DagsterInstance, key: dg.AssetKey, version: str | None) -> bool:
    """Return True if an asset was last materialized by another code version.

    The code version of a dbt model is its text.
    """
    event = instance.get_latest_materialization_event(key) if version else None
    materialization = event.asset_materialization if event else None
    return bool(
        materialization
        and materialization.tags
        and materialization.tags.get("dagster/code_version", version) != version
    )


def _is_due(
    graph: Graph,
    key: dg.AssetKey,
    partition: str | None,
    materialized: Mapping[dg.AssetKey, Made],
    wanted: Mapping[dg.AssetKey, Partitions],
) -> bool:
    position = materialized[key].get(partition, -1)
    due = position < 0
    for parent in graph.parents(key):
        anew = wanted.get(parent, set())
        if not graph.partitioned(parent):
            sources: Partitions = {WHOLE}
        elif partition is WHOLE:  # computed from all partitions of the parent
            sources = set(materialized[parent]) | anew
        else:
            sources = graph.sources(key, partition, parent)
        if not sources or any(source not in anew and source not in materialized[parent] for source in sources):
            return False  # a source is missing
        due = due or any(source in anew or materialized[parent][source] > position for source in sources)
    return due


@dataclass
class _Group:
    """Assets of one run.

    They are partitioned ones with the same due partitions, and others before and after.
    """

    before: list[dg.AssetKey] = field(default_factory=list)
    partitioned: list[dg.AssetKey] = field(default_factory=list)
    after: list[dg.AssetKey] = field(default_factory=list)
    ranges: list[tuple[str, str]] = field(default_factory=list)


def _runs(graph: Graph, job: str, keys: Sequence[dg.AssetKey], wanted: Mapping[dg.AssetKey, Partitions]) -> list[Run]:
    groups = [group := _Group()]
    for key in keys:
        if graph.partitioned(key):
            ranges = _ranges(graph.partitions(key), wanted[key])
            if group.after or (group.ranges and ranges != group.ranges):
                groups.append(group := _Group())
            group.ranges = ranges
            group.partitioned.append(key)
        elif graph.parents(key) & {*group.partitioned, *group.after}:
            group.after.append(key)
        else:
            group.before.append(key)
    runs: list[Run] = []
    for group in groups:
        before = group.before
        if before and (not group.ranges or len(wanted[group.partitioned[0]]) > MANY):
            runs.append(Run(job, tuple(before)))
            before = []
        for partitions in group.ranges:
            after = group.after if partitions == group.ranges[-1] else []
            runs.append(Run(job, (*before, *group.partitioned, *after), partitions))
            before = []
    return runs


def _ranges(partitions: Sequence[str | None], wanted: Partitions) -> list[tuple[str, str]]:
    """Return the first and the last key of each range without gaps."""
    ranges: list[tuple[str, str]] = []
    gap = True
    for key in partitions:
        if key is not None and key in wanted:
            ranges.append((key if gap else ranges.pop()[0], key))
        gap = key not in wanted
    return ranges


def checks_due(instance: dg.DagsterInstance, graph: Graph, made_anew: set[dg.AssetKey]) -> list[dg.AssetCheckKey]:
    """Return checks that never saw the current asset.

    A run that was killed between the two leaves such a check.
    """
    due = []
    for check in graph.checks:
        if check.asset_key in made_anew or check.asset_key == PUBLISH:
            continue  # runs with its asset
        materialization, looked = _last_made(instance, check.asset_key), evaluation(instance, check)
        if materialization is not None and (looked is None or looked.timestamp < materialization.timestamp):
            due.append(check)
    return due


def left_of(instance: dg.DagsterInstance, definitions: dg.Definitions, run: Run, run_id: str) -> Run:
    """Return the failed and missing assets and checks of a run, to continue it."""
    graph = Graph(definitions)

    def events(kind: dg.DagsterEventType) -> list[dg.DagsterEvent]:
        records = instance.get_records_for_run(run_id, of_type=kind).records
        return [event for each in records if (event := each.event_log_entry.dagster_event) is not None]

    done = {event.asset_key for event in events(dg.DagsterEventType.ASSET_MATERIALIZATION)}
    evaluated = [each.asset_check_evaluation_data for each in events(dg.DagsterEventType.ASSET_CHECK_EVALUATION)]
    passed = {each.asset_check_key for each in evaluated if each.passed}
    checks = tuple(each for each in graph.checks if each.asset_key in run.assets and each not in passed)
    return replace(run, assets=tuple(key for key in run.assets if key not in done), checks=checks)


def evaluation(instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> dg.EventLogEntry | None:
    """Return the log entry of a check's newest result; None without one or after a killed run."""
    last = instance.get_latest_asset_check_evaluation_record(check)
    entry = last.event if last else None
    return entry if entry and entry.dagster_event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION else None
