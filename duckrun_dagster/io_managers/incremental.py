"""Inputs of changes since the asset's own last commit: the step's offsets and the changed rows."""

from __future__ import annotations

import uuid
from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dagster import AssetKey

from duckrun.changes.cursors import Cursor, Step, Upstream, asking_for_a_refresh, base_of_rerun
from duckrun.errors import InvalidConfig
from duckrun.lake.lake import ViewDefinition
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun_dagster.chain import application
from duckrun_dagster.config import InputConfig, parse_changes
from duckrun_dagster.io_managers.handlers.handler import TableScan
from duckrun_dagster.partitions.partitions import PartitionSlice, written_partitions
from duckrun_dagster.private import StepOutputHandle
from duckrun_dagster.resources.duckrun_resource import StoredTable
from duckrun_dagster.resources.steps import StepId

if TYPE_CHECKING:
    from duckrun.change_set import ChangeSet
    from duckrun.session import Session
    from duckrun_dagster.resources import DuckrunResource, SparkResource

FULL_REFRESH = "duckrun/full_refresh"
"""Tag of a run that reads incremental assets' upstreams whole: ``true``, or asset keys."""


@runtime_checkable
class TableStore(Protocol):
    """An IO manager that stores outputs as tables of a lake."""

    duckrun: DuckrunResource
    spark: SparkResource | None

    def stored(self, key: AssetKey, metadata: Mapping[str, Any]) -> StoredTable: ...


@dataclass
class Consumer:
    """A step whose asset reads changes."""

    name: str
    output: TableRef
    begun: Step
    """The step's reading of its upstreams, which its commit records."""
    upstreams: Mapping[str, str]
    """The name of each input's table among the ranges of ``begun``."""
    by_input: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Metadata of each input: the versions and the counts that it showed."""
    rerun: str = ""
    """In a rerun, how it relates to the commit of the previous attempt."""

    def metadata(self) -> dict[str, Any]:
        """Return numbers by change type, which the asset's page plots over its runs."""
        rerun = {"changes_rerun": self.rerun} if self.rerun else {}
        return {"changes_whole": self.begun.whole, **rerun, **dict(ChainMap(*self.by_input.values()))}


_consumers: dict[StepId, Consumer] = {}


def consumer_of(step: Any) -> Consumer | None:
    """Return the consumer of a step, begun at the first call; None if the step reads no changes."""
    inputs = {} if step is None else parse_changes(step.op_def)
    if not inputs:
        return None
    place = StepId.of(step)
    if place not in _consumers:
        for old in [old for old in _consumers if old[:2] == place[:2]]:
            del _consumers[old]
        _consumers[place] = _begun(step, inputs)
    return _consumers[place]


def forget(step: Any) -> None:
    """Drop the consumer of a step that is done."""
    _consumers.pop(StepId.of(step), None)


def _begun(step: Any, inputs: Iterable[str]) -> Consumer:
    key, manager, partitions = _output(step)
    what = f"Asset {key.to_user_string()}"
    layer = step.job_def.asset_layer
    _, lake, ref = manager.stored(key, layer.get(key).metadata)
    name = consumer_name(key, partitions)
    upstreams: dict[str, Upstream] = {}
    tables = {}
    for each in inputs:
        upstream = layer.get_asset_key_for_node_input(step.node_handle, input_name=each)
        if upstream is None:
            raise InvalidConfig(f"{what}: input {each!r} asks for changes, and is no asset's table.")
        if upstream == key:
            raise InvalidConfig(f"{what}: input {each!r} asks for the changes of the asset itself.")
        chosen = step.op_def.input_def_named(each).input_manager_key or layer.get(upstream).io_manager_key
        source = getattr(step.resources, chosen)
        if not isinstance(source, TableStore):
            raise InvalidConfig(f"{what}: input {each!r} asks for changes, and its IO manager is no DeltaIOManager.")
        _, upstream_lake, table = source.stored(upstream, layer.get(upstream).metadata)
        session = source.duckrun.step_session(step, "duckdb", source.spark)
        if isinstance(upstream_lake.definition(table), ViewDefinition):
            raise InvalidConfig(
                f"{what}: input {each!r} asks for the changes of {table}, and {table} is a view, which has no "
                "versions and so no changes; ask for those of the tables under it."
            )
        tables[each] = str(table)
        upstreams[tables[each]] = Upstream.of(upstream_lake, session.snapshot(table))
    lake.ensure_writable(ref)
    refresh = [word.strip() for word in step.dagster_run.tags.get(FULL_REFRESH, "").split(",")]
    full_refresh = "true" in refresh or key.to_user_string() in refresh
    cursor, work = Cursor(lake, ref, name), application(key, partitions, step)
    base, rerun = base_of_rerun(lake, cursor, work)
    begun = cursor.begin(upstreams, full_refresh=full_refresh, work=work, base=base)
    if rerun:
        step.log.info(f"{name}: {rerun}")
    return Consumer(name, ref, begun, tables, rerun=rerun)


def consumer_name(key: AssetKey, partitions: PartitionSlice | None = None) -> str:
    """Return the name of an asset or partition as a consumer: the application id of its commits."""
    return f"changes:{key.to_user_string()}" + ("" if partitions is None else f"[{partitions.label}]")


def _output(step: Any) -> tuple[AssetKey, TableStore, PartitionSlice | None]:
    """Return the one table that a step with changes writes. Raises InvalidConfig."""
    outputs = []
    for each in step.op_def.output_defs:
        key = step.job_def.asset_layer.get_asset_key_for_node_output(step.node_handle, each.name)
        if key is not None and not each.dagster_type.is_nothing:
            outputs.append((key, each))
    if len(outputs) != 1:
        raise InvalidConfig(several_outputs(step.op_def.name, [key for key, _ in outputs]))
    key, output = outputs[0]
    manager = getattr(step.resources, output.io_manager_key)
    if not isinstance(manager, TableStore):
        raise InvalidConfig(several_outputs(step.op_def.name, []))
    partitions = written_partitions(step.get_output_context(StepOutputHandle(step.step.key, output.name)))
    if partitions is not None and len(partitions.keys) != 1:
        raise InvalidConfig(several_partitions(key, f"this run has {len(partitions.keys)} of them"))
    return key, manager, partitions


def several_outputs(name: str, keys: list[AssetKey]) -> str:
    """Return the error text for an asset of changes that does not write exactly one table."""
    reason = f"it writes {' and '.join(sorted(key.to_user_string() for key in keys))}" if keys else "it writes none"
    return (
        f"{name}: inputs of changes (metadata 'changes') go with exactly one output that a DeltaIOManager stores, "
        "whose commits hold how far "
        f"they have been read; {reason}."
    )


def several_partitions(key: AssetKey, why: str) -> str:
    """Return the error text for an asset of changes whose run has several of its partitions."""
    return (
        f"Asset {key.to_user_string()}: its input of changes has a cursor for each partition, and {why}. Run "
        "them one by one: BackfillPolicy.multi_run()."
    )


@dataclass(frozen=True)
class ChangesScan(TableScan):
    """A scan of the changes of a table instead of its rows."""

    changes: ChangeSet = field(kw_only=True)

    def frame(self) -> ChangeSet:
        return self.changes

    def snapshot(self, as_type: str) -> Snapshot:
        raise InvalidConfig(
            f"a {as_type} is a handle of the whole table {self.ref}, and the input asks for its changes: load a frame."
        )


def changes_scan(consumer: Consumer, name: str, request: InputConfig, scan: TableScan) -> ChangesScan:
    """Return the changes of an input's table since the consumer's last commit, computed once."""
    assert request.changes is not None, "the input asks for changes"
    session, spec = scan.session, scan.spec
    if scan.is_view:
        raise InvalidConfig(f"{scan.ref} is a view, which has no versions and so no changes: read the tables under it.")
    if spec.version is not None or spec.timestamp is not None:
        raise InvalidConfig("metadata 'changes' says which versions are read: leave out 'version' and 'timestamp'.")
    versions = consumer.begun.ranges[consumer.upstreams[name]]
    with asking_for_a_refresh():
        changes = session.table(scan.ref).changes(
            request.changes,
            from_version=versions.from_version,
            to_version=versions.to_version,
            key=list(request.key),
            columns=None if spec.columns is None else list(spec.columns),
            predicate=spec.predicate,
            table_id=versions.table_id,
        )
    figures: dict[str, Any] = {f"{name}_from": versions.from_version, f"{name}_to": versions.to_version}
    figures[f"{name}_source"] = ", ".join(sorted(set(changes.sources.values()))) or "the table"
    rows = changes
    if not consumer.begun.whole:
        rows = _kept(session, changes)
        counts = {"insert": 0, **rows.counts()}
        figures |= {f"{name}_{kind}": count for kind, count in counts.items()}
    consumer.by_input[name] = figures
    return ChangesScan(session, scan.ref, scan.requested, changes=rows)


def _kept(session: Session, changes: ChangeSet) -> ChangeSet:
    """Return a change set whose rows are computed once, if the engine has temporary tables."""
    if not session.engine.temp_tables:
        return changes
    name = f"__duckrun_changes_{uuid.uuid4().hex}"
    session.engine.keep(name, changes)
    return changes.computed(session.sql(f'SELECT * FROM "{name}"'))
