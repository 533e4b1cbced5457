"""Names of a lake's tables in the Spark session of a step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster import AssetKey
from filelock import BaseFileLock

from duckrun.errors import DuckrunError, InvalidConfig
from duckrun.lake.lake import Lake
from duckrun.storage.locks import lock_path, try_file_lock
from duckrun.storage.storage import Storage
from duckrun.values.snapshot import TableRef
from duckrun_dagster.config import TableConfig, parse_table
from duckrun_dagster.contexts import current_step
from duckrun_dagster.resources.duckrun_resource import DuckrunResource
from duckrun_dagster.resources.steps import StepId, close_sessions, is_nothing, output_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

OTHERS_OF_STEP = 8
"""Limit of the other tables that a step registers: one round of Spark's, under a second."""

_WATCHED = 50
"""Limit of the other assets of a run whose tables a step compares by two listings each."""

_held: dict[Path, tuple[str, BaseFileLock]] = {}
"""Locks of the tables that steps of this process write by name: run id and lock by path."""


@dataclass(frozen=True)
class Naming:
    """Registration of a lake's names in a session."""

    lake: Lake
    names: Sequence[str]
    is_asked: bool
    """True if the caller named the lake or tables; errors are then raised, not logged."""
    step: Any | None

    @classmethod
    def of(
        cls, storage: Storage | None, lake: Lake | None, names: Sequence[str], default: DuckrunResource | None
    ) -> Naming | None:
        """Return the names that a call of ``session()`` registers; None without a lake.

        The lake is ``lake``, else the default one, else the one of the step.

        Raises:
            InvalidConfig: Names without a lake.
        """
        step = current_step()
        if lake is not None:
            return cls(lake, names, True, step)
        if storage is not None and not names:
            return None
        if default is not None:
            return cls(default.lake(), names, bool(names), step)
        lakes = _lakes_of(step) if step is not None else []
        lakes = [each for each in lakes if not each.has_catalog and not each.read_only] or lakes
        if names and len(lakes) != 1:
            raise InvalidConfig(
                f"session(names=[{', '.join(map(repr, names))}]) of SparkResource names tables of no lake, since the "
                f"step has {len(lakes)}. Say which: session(lake=duckrun.lake(), names=…), or SparkResource(duckrun=…)."
            )
        return cls(lakes[0], names, bool(names), step) if len(lakes) == 1 else None

    def register(self, session: SparkSession) -> None:
        """Register the names in a session.

        Raises:
            DuckrunError: From ``name_tables()``, if the caller named the lake or tables. Also in a
                branch, if an earlier step of this process has registered names: they are main's.
        """
        from duckrun.spark import name_tables

        if self.step is not None:
            # A session of a branch would keep the names out.
            close_sessions(self.step.run_id, besides=StepId.of(self.step))
        first = [*(_tables_of(self.step, self.lake) if self.step is not None else ()), *self.names]
        limit = {} if self.is_asked else {"limit": OTHERS_OF_STEP}
        try:
            with nullcontext() if self.step is None else _shown(logging.getLogger(name_tables.__module__), self.step):
                name_tables(session, self.lake, first, **limit)
        except DuckrunError as error:
            if self.is_asked or self.lake.branch_name is not None and _has_names(session, self.lake, first):
                raise
            (log if self.step is None else self.step.log).info(f"Tables have no names in Spark: {error}")
        else:
            if self.step is not None:
                tables = _written_tables(self.step, self.lake)
                _warn_of_other_writers(self.step, self.lake, tables.values())
                _report_versions(self.step, self.lake, tables)


def _has_names(session: SparkSession, lake: Lake, tables: Sequence[str]) -> bool:
    """True if the name of a table in Spark's catalog stands for a folder of the lake."""
    named = (f"`{schema}`.`{name}`" for schema, _, name in (table.partition(".") for table in tables))
    details = (session.sql(f"DESCRIBE DETAIL {name}") for name in named if session.catalog.tableExists(name))
    return any(lake.root.split("://")[-1] in str(row["location"]) for rows in details for row in rows.collect())


class _RunLog(logging.Handler):
    """Log handler that writes into the log of a run."""

    def __init__(self, step: Any) -> None:
        super().__init__(logging.INFO)
        self._log = step.log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.log(record.levelno, record.getMessage())


@contextmanager
def _shown(logger: logging.Logger, step: Any) -> Iterator[None]:
    """Show a logger's messages in the run's log."""
    # Dagster shows messages of Python's loggers only if it is configured so.
    handler, level = _RunLog(step), logger.level
    logger.addHandler(handler)
    logger.setLevel(min(logging.INFO, logger.getEffectiveLevel()))
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def _lakes_of(step: Any) -> list[Lake]:
    """Return the lakes, one per root, of the resources and IO managers of a step."""
    resources = (getattr(each, "duckrun", each) for each in step.resources._asdict().values())
    lakes = [each.lake() for each in resources if isinstance(each, DuckrunResource)]
    return list({lake.root: lake for lake in lakes}.values())


def _tables_of(step: Any, lake: Lake) -> list[str]:
    """Return the names of the tables of a step's assets and of their upstream assets."""
    graph = step.job_def.asset_layer.asset_graph
    keys = [key for key in step.get_output_asset_keys() if graph.has(key)]
    assets = dict.fromkeys(each for key in keys for each in (key, *sorted(graph.get(key).parent_keys)))
    tables = (_table_of(asset, step, lake) for asset in assets)
    return [f"{table.schema}.{table.table}" for table in tables if table is not None]


def _table_of(asset: AssetKey, step: Any, lake: Lake) -> TableConfig | None:
    """Return the table of an asset in a lake; None for another lake or another IO manager."""
    graph = step.job_def.asset_layer.asset_graph
    try:
        table = parse_table(asset, graph.get(asset).metadata, default_schema=lake.default_schema)
    except InvalidConfig:  # metadata of another IO manager
        return None
    return table if table.lake is None else None


def _written_tables(step: Any, lake: Lake) -> dict[AssetKey, TableRef]:
    """Return the tables of a step's assets that its function writes by their names in the lake."""
    keys = {each.name: each.properties.asset_key for each in step.step.step_outputs}
    return {
        key: ref
        for name, ref in output_tables(step, lake).items()
        if (key := keys[name]) is not None and is_nothing(step, name) and ref == lake.look_up(ref.schema, ref.name)[0]
    }


def _warn_of_other_writers(step: Any, lake: Lake, tables: Iterable[TableRef]) -> None:
    """Warn if a running step of another process writes a local table by its name too."""
    for ref in tables if lake.storage.is_local else ():
        path = lock_path(ref).with_suffix(".names")
        if path in _held:
            continue
        lock = try_file_lock(path)
        if lock is None:
            step.log.warning(
                f"A step of another process writes table {ref} by its name in Spark too. "
                "Each has a Spark of its own, and commits of "
                "two of them to one local table may replace each other. Run one at a time, "
                "for instance by a concurrency "
                "limit, or return the rows to the IO manager, whose writes wait for each other."
            )
        else:
            _held[path] = (step.run_id, lock)


def release_tables(run_id: str) -> None:
    """Release the tables of a run: other processes may write them by name without a warning."""
    for path in [path for path, (run, _) in _held.items() if run == run_id]:
        _held.pop(path)[1].release()


def _report_versions(step: Any, lake: Lake, tables: Mapping[AssetKey, TableRef]) -> None:
    """Add the versions that a step writes by itself to the metadata of its materializations."""
    # The step's function writes after this call. Dagster reads the metadata after the function
    # returns.
    metadata_of = step.get_asset_metadata
    if isinstance(metadata_of, _Report) and metadata_of.lake.root == lake.root:
        return
    selected = step.job_def.asset_layer.selected_asset_keys - tables.keys()
    configs = {key: _table_of(key, step, lake) for key in sorted(selected)[:_WATCHED]}
    others = {key: lake.look_up(config.schema, config.table)[0] for key, config in configs.items() if config}
    step.get_asset_metadata = _Report(step, lake, tables, others, metadata_of)


class _Report:
    """The commits by name since a step began, called by Dagster for the metadata of its outputs."""

    def __init__(
        self,
        step: Any,
        lake: Lake,
        tables: Mapping[AssetKey, TableRef],
        others: Mapping[AssetKey, TableRef],
        metadata_of: Callable[[AssetKey, str | None], Mapping[str, Any] | None],
    ) -> None:
        self.lake = lake
        self._step, self._tables, self._others, self._metadata_of = step, tables, dict(others), metadata_of
        self._before = {key: _version(lake, ref) for key, ref in {**tables, **others}.items()}

    def __call__(self, asset_key: AssetKey, partition_key: str | None = None) -> Mapping[str, Any] | None:
        self._warn_of_others()
        metadata = self._metadata_of(asset_key, partition_key)
        if partition_key is not None or asset_key not in self._tables:
            return metadata
        version, first = _version(self.lake, self._tables[asset_key]), self._before[asset_key]
        if version is None or version == first:
            return metadata
        versions = range(0 if first is None else first + 1, version + 1)
        span = {"duckrun/versions": f"{versions[0]} to {versions[-1]}"} if len(versions) > 1 else {}
        return {"duckrun/version": version, **span, **(metadata or {})}

    def _warn_of_others(self) -> None:
        """Warn once of commits by name to the tables of other assets of the run."""
        while self._others:
            key, ref = self._others.popitem()
            version, first = _version(self.lake, ref), self._before[key]
            if version is None or version == first:
                continue
            records = self.lake.format.records_after(ref, -1 if first is None else first)
            foreign = [record.version for record in records if not record.note]
            if foreign:
                self._step.log.warning(
                    f"Table {ref} of asset {key.to_user_string()}, which this run materializes too, got "
                    f"version {', '.join(map(str, foreign))} during this step by a writer that Dagster does not "
                    "see, such as a write by name in Spark. The asset's next write may replace these rows or "
                    "repeat them. Write the table in its own asset only."
                )


def _version(lake: Lake, ref: TableRef) -> int | None:
    return lake.snapshot(ref).version if lake.exists(ref) else None
