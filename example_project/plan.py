"""What is missing or stale, asked of Dagster, and the fewest runs that make it.

A partition is wanted when all that it is made from has arrived, and it was never made, or something that it is made from was
made after it. The order of events in Dagster's log decides, not clocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph, BaseAssetNode
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG

from duckrun import Lake
from example_project import settings

INGEST, TRANSFORM = "ingest", "transform"
WHOLE = None  # stands for "the asset", where an asset has no partitions
# For a range of partitions, Dagster logs each partition of every asset in the run, of those without partitions too. From
# here on that takes longer than a run of their own.
MANY = 100
Made = dict[Any, int]  # partition, or None -> place in the event log of its newest materialization


@dataclass(frozen=True)
class Run:
    """One run: some assets of a job, for one range of partitions, and checks that are due without their asset."""

    job: str
    assets: tuple[dg.AssetKey, ...] = ()
    partitions: tuple[str, str] | None = None
    checks: tuple[dg.AssetCheckKey, ...] = ()

    @property
    def tags(self) -> dict[str, str]:
        if self.partitions is None:
            return {}
        first, last = self.partitions
        return {ASSET_PARTITION_RANGE_START_TAG: first, ASSET_PARTITION_RANGE_END_TAG: last}

    def request(self) -> dg.RunRequest:
        return dg.RunRequest(
            job_name=self.job,
            asset_selection=list(self.assets),
            asset_check_keys=list(self.checks) if self.checks else None,
            tags=self.tags,
        )


@dataclass
class _Group:
    """Assets that one run can make: those with partitions want the same ones."""

    assets: list[dg.AssetKey] = field(default_factory=list)
    ranges: list[tuple[str, str]] = field(default_factory=list)
    after: set[dg.AssetKey] = field(default_factory=set)  # assets without partitions that come after those with
    count: int = 0  # of partitions


def plan(instance: dg.DagsterInstance, graph: BaseAssetGraph, lake: Lake) -> list[Run]:
    """The runs to do, in order; none when every asset is made from what has landed."""
    wanted = wanted_partitions(instance, graph, lake)
    jobs: dict[str, list[dg.AssetKey]] = {INGEST: [], TRANSFORM: []}
    for key in graph.toposorted_asset_keys:
        if key in wanted:
            jobs[job_of(graph, key)].append(key)
    runs = [run for job, keys in jobs.items() for run in _runs(graph, job, keys, wanted)]
    due = checks_due(instance, graph, made_anew=set(wanted))
    return runs + [
        Run(job, checks=tuple(keys))
        for job in jobs
        if (keys := [check for check in due if job_of(graph, check.asset_key) == job])
    ]


def job_of(graph: BaseAssetGraph, key: dg.AssetKey) -> str:
    return INGEST if graph.get(key).group_name == "ingest" else TRANSFORM


def wanted_partitions(
    instance: dg.DagsterInstance, graph: BaseAssetGraph, lake: Lake
) -> dict[dg.AssetKey, set[str | None]]:
    """Asset -> the partitions to make (`{None}` for an asset without any), leaving out assets that are up to date."""
    made: dict[dg.AssetKey, Made] = {}
    wanted: dict[dg.AssetKey, set[str | None]] = {}
    for key in graph.toposorted_asset_keys:
        node = graph.get(key)
        made[key] = _made(instance, graph, key)
        if not node.is_materializable:
            continue
        if not _is_there(lake, key) or _code_changed(instance, node):
            made[key] = {}
        partitions: Sequence[str | None] = node.partitions_def.get_partition_keys() if node.partitions_def else [WHOLE]
        due = {partition for partition in partitions if _is_due(graph, key, partition, made, wanted)}
        if due:
            wanted[key] = due
    return wanted


def _made(instance: dg.DagsterInstance, graph: BaseAssetGraph, key: dg.AssetKey) -> Made:
    if graph.get(key).is_partitioned:
        return dict(instance.get_latest_storage_id_by_partition(key, dg.DagsterEventType.ASSET_MATERIALIZATION))
    records = instance.get_asset_records([key])
    record = records[0].asset_entry.last_materialization_record if records else None
    return {WHOLE: record.storage_id} if record else {}


def _is_there(lake: Lake, key: dg.AssetKey) -> bool:
    """Whether what Dagster knows of can be there: somebody may have removed the lake, or the report."""
    if key.path[0] == "report":
        return settings.REPORT.exists()
    ref = lake.resolve(*key.path)
    return lake.exists(ref) or lake.definition(ref) is not None


def _code_changed(instance: dg.DagsterInstance, node: BaseAssetNode) -> bool:
    """Whether an asset that has a code version (dbt's models: their text) was last made by another one."""
    event = instance.get_latest_materialization_event(node.key) if node.code_version else None
    made = event.asset_materialization if event else None
    return bool(made and made.tags and made.tags.get("dagster/code_version", node.code_version) != node.code_version)


def _is_due(
    graph: BaseAssetGraph,
    key: dg.AssetKey,
    partition: str | None,
    made: Mapping[dg.AssetKey, Made],
    wanted: Mapping[dg.AssetKey, set[str | None]],
) -> bool:
    own = made[key].get(partition, -1)
    due = own < 0
    for parent in graph.get(key).parent_keys:
        if parent == key:
            continue
        sources = _sources(graph, key, partition, parent, made, wanted)
        for source in sources:
            anew = source in wanted.get(parent, ())
            if not anew and source not in made[parent]:
                return False  # not all of it has arrived
            due = due or anew or made[parent][source] > own
        if not sources:
            return False
    return due


def _sources(
    graph: BaseAssetGraph,
    key: dg.AssetKey,
    partition: str | None,
    parent: dg.AssetKey,
    made: Mapping[dg.AssetKey, Made],
    wanted: Mapping[dg.AssetKey, set[str | None]],
) -> set[str | None]:
    """The partitions of a parent that one of the child is made from."""
    if not graph.get(parent).is_partitioned:
        return {WHOLE}
    if partition is WHOLE:  # made from all there are
        return set(made[parent]) | wanted.get(parent, set())
    mapped = graph.get_parent_partition_keys_for_child(partition, parent, key)
    return set(mapped.partitions_subset.get_partition_keys())


def _runs(
    graph: BaseAssetGraph,
    job: str,
    keys: Sequence[dg.AssetKey],
    wanted: Mapping[dg.AssetKey, set[str | None]],
) -> list[Run]:
    groups: list[_Group] = []
    for key in keys:
        node = graph.get(key)
        ranges = _ranges(node.partitions_def, wanted[key]) if node.partitions_def else []
        group = groups[-1] if groups else None
        if group is None or (ranges and group.ranges and ranges != group.ranges) or (ranges and group.after):
            group = _Group()
            groups.append(group)
        if ranges and not group.ranges:
            group.ranges, group.count = ranges, len(wanted[key])
        if not ranges and any(graph.get(up).is_partitioned or up in group.after for up in _within(graph, key, group)):
            group.after.add(key)
        group.assets.append(key)
    return [run for group in groups for run in _runs_of(graph, job, group)]


def _runs_of(graph: BaseAssetGraph, job: str, group: _Group) -> list[Run]:
    runs = []
    before = [key for key in group.assets if not graph.get(key).is_partitioned and key not in group.after]
    if group.count > MANY and before:
        runs.append(Run(job, tuple(before)))
        group = replace(group, assets=[key for key in group.assets if key not in before])
    if len(group.ranges) < 2:
        return [*runs, Run(job, tuple(group.assets), group.ranges[0] if group.ranges else None)]
    for number, partitions in enumerate(group.ranges):
        first, last = number == 0, number == len(group.ranges) - 1
        assets = [
            key for key in group.assets if graph.get(key).is_partitioned or (last if key in group.after else first)
        ]
        runs.append(Run(job, tuple(assets), partitions))
    return runs


def _within(graph: BaseAssetGraph, key: dg.AssetKey, group: _Group) -> set[dg.AssetKey]:
    return set(graph.get(key).parent_keys) & set(group.assets)


def _ranges(definition: dg.PartitionsDefinition, partitions: set[str | None]) -> list[tuple[str, str]]:
    """First and last key of each gapless stretch."""
    ranges: list[tuple[str, str]] = []
    before: str | None = None
    for key in definition.get_partition_keys():
        if key in partitions:
            start = ranges.pop()[0] if before is not None else key
            ranges.append((start, key))
            before = key
        else:
            before = None
    return ranges


def checks_due(
    instance: dg.DagsterInstance, graph: BaseAssetGraph, made_anew: set[dg.AssetKey]
) -> list[dg.AssetCheckKey]:
    """Checks that have not looked at what their asset is now, as when a run was killed between the two."""
    due = []
    for check in sorted(graph.asset_check_keys, key=lambda check: (check.asset_key.path, check.name)):
        if check.asset_key in made_anew:
            continue  # runs with its asset
        records = instance.get_asset_records([check.asset_key])
        made = records[0].asset_entry.last_materialization_record if records else None
        if made is None:
            continue
        last = instance.get_latest_asset_check_evaluation_record(check)
        looked = last.event if last else None
        if (
            looked is None
            or looked.dagster_event_type != dg.DagsterEventType.ASSET_CHECK_EVALUATION
            or looked.timestamp < made.timestamp
        ):
            due.append(check)
    return due
