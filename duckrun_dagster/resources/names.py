"""Names of a lake in the Spark session of a step: which lake, and which of its tables come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dagster import AssetKey

from duckrun.errors import DuckrunError, InvalidConfig
from duckrun.lake.lake import Lake
from duckrun.storage.storage import Storage
from duckrun.values.snapshot import TableRef
from duckrun_dagster.config import TableConfig, parse_table
from duckrun_dagster.resources.steps import current_step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHERS_OF_STEP = 8
"""Tables that a step registers beyond its own, its upstream assets' and those it names: one round of Spark's, under a second."""


@runtime_checkable
class _HasLake(Protocol):
    """A DuckrunResource."""

    def lake(self, name: str | None = None) -> Lake: ...

    def step_session(self, step_context: Any | None, engine: Any) -> Any: ...


@dataclass(frozen=True)
class Naming:
    """The registration of a lake's names in a session."""

    lake: Lake
    names: Sequence[str]
    is_asked: bool
    step: Any | None

    @classmethod
    def of(cls, storage: Storage | None, lake: Lake | None, names: Sequence[str]) -> Naming | None:
        """What a call of ``session()`` registers: the names of ``lake``, else of the step's own lake; None without one.

        Raises InvalidConfig for names without a lake.
        """
        step = current_step()
        if lake is not None:
            return cls(lake, names, True, step)
        found = _lakes_of(step) if step is not None and (names or storage is None) else []
        if names and len(found) != 1:
            raise InvalidConfig(
                f"session(names=[{', '.join(map(repr, names))}]) of SparkResource names tables of no lake, since the step has "
                f"{len(found)}. Say which: session(lake=duckrun.lake(), names=…)."
            )
        return cls(found[0], names, bool(names), step) if len(found) == 1 else None

    def register(self, session: SparkSession) -> None:
        """Register the names. Raises what ``name_tables()`` raises, if the caller named the lake or tables."""
        from duckrun.spark import name_tables

        first = [*(_tables_of(self.step, self.lake) if self.step is not None else ()), *self.names]
        try:
            name_tables(session, self.lake, first, **({} if self.is_asked else {"limit": OTHERS_OF_STEP}))
        except DuckrunError as error:
            if self.is_asked:
                raise
            assert self.step is not None, "only a step has a lake that nobody named"
            self.step.log.info(f"Tables have no names in Spark: {error}")
        else:
            if self.step is not None:
                _report_versions(self.step, self.lake)


def _lakes_of(step: Any) -> list[Lake]:
    """The Delta lakes that can be written, one per root, of the resources and IO managers of a step."""
    resources = (getattr(each, "duckrun", each) for each in step.resources._asdict().values())
    lakes = [each.lake() for each in resources if isinstance(each, _HasLake)]
    return list({lake.root: lake for lake in lakes if not lake.format.transacts and not lake.read_only}.values())


def _tables_of(step: Any, lake: Lake) -> list[str]:
    """Names of the tables of a step's assets and of their upstream assets."""
    graph = step.job_def.asset_layer.asset_graph
    keys = [key for key in step.get_output_asset_keys() if graph.has(key)]
    assets = dict.fromkeys(each for key in keys for each in (key, *sorted(graph.get(key).parent_keys)))
    tables = (_table_of(asset, step, lake) for asset in assets)
    return [f"{table.schema}.{table.table}" for table in tables if table is not None]


def _table_of(asset: AssetKey, step: Any, lake: Lake) -> TableConfig | None:
    """The table of an asset in a lake; None for one of another lake or of another IO manager."""
    graph = step.job_def.asset_layer.asset_graph
    try:
        table = parse_table(asset, graph.get(asset).metadata, default_schema=lake.default_schema)
    except InvalidConfig:  # of another IO manager, whose metadata is not ours
        return None
    return table if table.lake is None else None


def _report_versions(step: Any, lake: Lake) -> None:
    """Have the materializations of assets that give Dagster no value show the versions that the step makes of their tables.

    The step's function writes after this call, and Dagster asks for metadata when it has returned.
    """
    outputs = {each.properties.asset_key: each.name for each in step.step.step_outputs}
    tables = {
        key: lake.resolve(table.schema, table.table)
        for key, name in outputs.items()
        if key is not None
        and step.op_def.output_def_named(name).dagster_type.is_nothing
        and (table := _table_of(key, step, lake)) is not None
    }
    before = {key: _version(lake, ref) for key, ref in tables.items()}
    metadata_of = step.get_asset_metadata

    def with_versions(asset_key: AssetKey, partition_key: str | None = None) -> Mapping[str, Any] | None:
        metadata = metadata_of(asset_key, partition_key)
        if partition_key is not None or asset_key not in tables:
            return metadata
        version, first = _version(lake, tables[asset_key]), before[asset_key]
        if version is None or version == first:
            return metadata
        made = range(0 if first is None else first + 1, version + 1)
        span = {"duckrun/versions": f"{made[0]} to {made[-1]}"} if len(made) > 1 else {}
        return {"duckrun/version": version, **span, **(metadata or {})}

    step.get_asset_metadata = with_versions


def _version(lake: Lake, ref: TableRef) -> int | None:
    return lake.snapshot(ref).version if lake.exists(ref) else None
