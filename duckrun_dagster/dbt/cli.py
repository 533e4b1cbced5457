"""dbt from Dagster on a duckrun lake: each run passes the adapter its chain, each model's event carries its commit.

The commit comes from dbt's own structured log, in which the adapter's response of every node is written when it ends;
rows and columns come from the table's log. No second connection is opened and no table is read.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import duckdb
from dagster import (
    AssetExecutionContext,
    AssetMaterialization,
    AssetSpec,
    DagsterEventType,
    DataVersion,
    OpExecutionContext,
    Output,
    TableColumn,
    TableSchema,
)
from dagster._core.errors import DagsterInvalidPropertyError
from dagster_dbt import DbtCliEventMessage, DbtCliInvocation, DbtCliResource, DbtProject
from dagster_dbt.core.dbt_event_iterator import DbtEventIterator
from dagster_dbt.utils import ASSET_RESOURCE_TYPES
from pydantic import Field, PrivateAttr

from duckrun.errors import DuckrunError, InvalidConfig, TableNotFound
from duckrun.lake.lake import Lake, TableRef, ViewDefinition
from duckrun.lake.lakes import Lakes
from duckrun.sql.names import quote_identifier
from duckrun.values.rows import Commit
from duckrun.values.snapshot import Snapshot
from duckrun.values.type_names import type_name
from duckrun_dagster import metadata as meta
from duckrun_dagster.arguments import KnownResource, refuse_bad_memory, refuse_unknown
from duckrun_dagster.chain import chain_of, chain_of_step, is_rerun
from duckrun_dagster.config_values import partition_expr
from duckrun_dagster.data_version import data_version
from duckrun_dagster.dbt.calls import Attempt, Call, CallId
from duckrun_dagster.dbt.lineage import column_lineage
from duckrun_dagster.partitions.partitions import PartitionSlice
from duckrun_dagster.resources.profile import LakeSettings, lake_of_profile, names_a_catalog
from duckrun_dagster.resources.run_worker import FOR_SEVERAL, share_of_step

log = logging.getLogger(__name__)

Context = OpExecutionContext | AssetExecutionContext

# dbt writes the event with a node's response microseconds after the one with its result.
_PATIENCE_SECONDS = 5.0

_ADDING = ("append", "safeappend")
"""Modes of a commit that count twice if they are made twice."""

_environment_lock = threading.Lock()


class DuckrunDbtCliResource(KnownResource, DbtCliResource):
    """dagster-dbt's DbtCliResource, for profiles of ``type: duckrun``; used in the same way.

    What it adds: dbt gets ``DUCKRUN_RUN_ID``, so that a retried step commits each model once, and the step's part of the
    memory, where its profile sets no ``memory_limit``; and materializations carry rows, columns, version, location,
    engine, seconds and peak memory.

    Example::

        @dbt_assets(manifest="target/manifest.json", dagster_dbt_translator=DuckrunDbtTranslator())
        def shop(context: dg.AssetExecutionContext, dbt: DuckrunDbtCliResource):
            yield from dbt.cli(["build"], context=context).stream()

        defs = dg.Definitions(assets=[shop], resources={"dbt": DuckrunDbtCliResource(project_dir="shop")})
    """

    memory_fraction: float | None = Field(
        default=None,
        description="dbt's part of the machine's memory, 0 to 1; if not given, one by the processes that the run may have at once.",
    )

    _calls: dict[tuple[Any, ...], int] = PrivateAttr(default_factory=dict)

    def __init__(self, project_dir: str | Path | DbtProject, **settings: Any) -> None:
        # The adapter is in this environment, so dbt is too; another one on PATH (or dbt Fusion) does not have it.
        beside = shutil.which("dbt", path=str(Path(sys.executable).parent))
        if beside is not None:
            settings.setdefault("dbt_executable", beside)
        refuse_unknown(type(self), settings)
        refuse_bad_memory("DuckrunDbtCliResource", None, settings.get("memory_fraction"))
        super().__init__(project_dir=project_dir, **settings)

    def cli(self, args: Sequence[str], *, context: Context | None = None, **kwargs: Any) -> DuckrunDbtCliInvocation:
        """As DbtCliResource.cli: starts dbt, and returns what streams its events."""
        call = None
        if context is not None:
            self._refuse_two_processes(kwargs.get("project_dir"))
            call = self._call(args, context)
        with _environment(self._environment(call, context)):
            started = super().cli(args, context=context, **kwargs)
        known = {each.name: getattr(started, each.name) for each in fields(started) if each.init}
        return DuckrunDbtCliInvocation(**known, resource=self, call=call)

    def lake(self, project_dir: Path | str | None = None) -> Lake:
        """The lake of the profile. Raises InvalidConfig where the profile names none."""
        return self._settings(project_dir).lake()

    def lakes(self, project_dir: Path | str | None = None) -> Lakes:
        """The lake of the profile with the others that it names. Raises InvalidConfig where the profile names none."""
        return self._settings(project_dir).opened()

    def _settings(self, project_dir: Path | str | None) -> LakeSettings:
        return lake_of_profile(project_dir or self.project_dir, self.profile, self.target, self.profiles_dir)

    def _refuse_two_processes(self, project_dir: Path | str | None) -> None:
        """Raise InvalidConfig for a step that would start dbt on a lake whose catalog only one process may have open."""
        if not names_a_catalog(project_dir or self.project_dir, self.profiles_dir):
            return  # rendering a profile imports dbt's configuration, which takes as long as a third of dbt's start
        try:
            lakes = self.lakes(project_dir)
        except DuckrunError:
            return  # dbt says what is wrong with its profile
        lake = next((each for each in lakes if each.for_one_process), None)
        if lake is not None:
            raise InvalidConfig(
                f"Lake {lake.root} has its catalog in a DuckDB file, which one process may have open, and dbt is another process beside this step's; "
                f"{FOR_SEVERAL}."
            )

    def _environment(self, call: CallId | None, context: Context | None) -> dict[str, str]:
        # The log that the commits are read from: JSON, complete, and not rolled over to a second file.
        values = {"DBT_LOG_FORMAT_FILE": "json", "DBT_LOG_LEVEL_FILE": "debug", "DBT_LOG_FILE_MAX_BYTES": "0"}
        if call is not None:
            values["DUCKRUN_RUN_ID"] = str(call)
        fraction = self.memory_fraction or (1.0 if context is None else _share_of(context))
        if fraction < 1:  # else what the environment says holds
            values["DUCKRUN_MEMORY_FRACTION"] = str(fraction)
        return values

    def _call(self, args: Sequence[str], context: Context) -> CallId:
        """Which of the dbt commands of its step this is.

        A step may call dbt several times, for one day after another or for the same models twice: each is work of its
        own. A retried step makes the same calls in the same order, and gets the same ids.
        """
        step = context.op_execution_context if isinstance(context, AssetExecutionContext) else context
        call = Call.of(args, _attempt(context))
        place = (context.run_id, str(step.op_handle), step.retry_number, *call)
        self._calls[place] = count = self._calls.get(place, -1) + 1
        return CallId(f"{_chain(context)}:{step.op_handle}", call, count)


def _step_of(context: Context) -> Any | None:
    """The running step of a context; None for a context that a test has built."""
    try:
        return context.get_step_execution_context()
    except DagsterInvalidPropertyError:
        return None


def _chain(context: Context) -> str:
    """The chain of the step of a context; that of its run outside of a step."""
    step = _step_of(context)
    return chain_of(context.run, context.instance) if step is None else chain_of_step(step)


def _attempt(context: Context) -> Attempt | None:
    """The attempt that a step is; None outside of a step."""
    step = _step_of(context)
    if step is None:
        return None
    started = context.instance.get_records_for_run(
        step.run_id, of_type={DagsterEventType.STEP_START, DagsterEventType.STEP_RESTARTED}
    ).records
    began = [each.timestamp for each in started if each.event_log_entry.step_key == step.step.key]
    now = time.time()
    return Attempt(step.run_id, max(began, default=now), now)


def _share_of(context: Context) -> float:
    """The part of the machine's memory that the step of a context has; all of it outside of a run."""
    step = _step_of(context)
    return 1.0 if step is None else share_of_step(step)


class DuckrunEventIterator(DbtEventIterator[Any]):
    """Events that have the columns, with their descriptions, and the rows from the logs of the tables. dagster-dbt's own
    fetching, by a second connection and a count, would put columns without descriptions in their place.
    """

    def fetch_column_metadata(self, with_column_lineage: bool = True) -> DuckrunEventIterator:
        """The events as they are: they have columns and lineage."""
        return self

    def fetch_row_counts(self) -> DuckrunEventIterator:
        """The events as they are: they have the count of rows where the log says it."""
        return self


@dataclass
class DuckrunDbtCliInvocation(DbtCliInvocation):
    """A running dbt command whose events carry the commits."""

    resource: DuckrunDbtCliResource = field(kw_only=True, repr=False)
    call: CallId | None = field(default=None, kw_only=True, repr=False)
    _columns: dict[str, list[str]] = field(default_factory=dict, init=False, repr=False)

    def stream(self) -> DbtEventIterator[Any]:
        """As DbtCliInvocation.stream, with the commit of each model in the metadata of its event."""
        return DuckrunEventIterator(self._with_commits(super().stream()), self)

    def stream_raw_events(self) -> Iterator[DbtCliEventMessage]:
        """As DbtCliInvocation.stream_raw_events; then warns of rows that an earlier attempt of the step has left."""
        try:
            yield from super().stream_raw_events()
        finally:
            if self.process.poll() is not None:
                self._warn_of_older_calls()

    def _warn_of_older_calls(self) -> None:
        """Warn of each table to which this call has added rows beside those of an older attempt that may be the same.

        That is undecidable where a call differs from an older one in values of variables: it may be the same call with
        another value, or another one of several calls.
        """
        context = self.context
        step = None if context is None else _step_of(context)
        if context is None or step is None or self.call is None or not is_rerun(step):
            return
        attempt, lakes = _attempt(context), self._lakes()
        if attempt is None or lakes is None:
            return
        for unique_id, response in _Responses(self.target_path / "dbt.log", self.process).all().items():
            commit = commit_of(response)
            if commit is None or commit.mode not in _ADDING or commit.retracted is not None or commit.replayed:
                continue
            lake, ref = _written(commit, self.manifest.get("nodes", {}).get(unique_id, {}), lakes)
            older = self.call.left_by_older(lake.format, ref, commit.version, unique_id, attempt.began)
            if older is not None:
                step.log.warning(
                    f"{unique_id}: version {commit.version} of {ref} adds rows beside those that an earlier attempt of this step added at version "
                    f"{older}, by a call of dbt that differs in the values of --vars alone. If it was the same call, the rows of version {older} count "
                    "twice: delete them. Take such values from the run, so that a retry has the same."
                )

    def _with_commits(self, events: Iterator[Any]) -> Iterator[Any]:
        responses = _Responses(self.target_path / "dbt.log", self.process)
        lakes: Lakes | None = None
        for event in events:
            if not isinstance(event, Output | AssetMaterialization) or "unique_id" not in event.metadata:
                yield event
                continue
            unique_id = str(event.metadata["unique_id"].value)
            lakes = lakes or self._lakes()
            added = self._metadata(unique_id, responses.of(unique_id), lakes)
            yield event.with_metadata(meta.row_count_first({**event.metadata, **added})) if added else event

    def _lakes(self) -> Lakes | None:
        try:
            return self.resource.lakes(self.project_dir)
        except DuckrunError as error:
            log.warning("Rows and columns are missing from the events of dbt: %s", error)
            return None

    def _metadata(self, unique_id: str, response: Mapping[str, Any] | None, lakes: Lakes | None) -> meta.Metadata:
        """What one node did, from its response, and what its table is now, from the table's log."""
        props = self.manifest.get("nodes", {}).get(unique_id, {})
        commit = commit_of(response)
        try:
            if commit is None:
                return {} if lakes is None else self._with_lineage(_present(props, lakes), props, lakes)
            values = meta.commit_metadata(commit)
            if lakes is not None:
                lake, ref = _written(commit, props, lakes)
                snapshot = lake.snapshot(ref)  # a post-hook may have changed the rows since
                values |= meta.table_metadata(snapshot, _descriptions(props, snapshot.schema.names))
                values |= meta.lake_metadata(lake, snapshot, commit)
                own = commit if snapshot.version == commit.version else None
                self._set_data_version(unique_id, data_version(lake, snapshot, commit=own))
                self._count_partitions(unique_id, snapshot)
                values = self._with_lineage(values, props, lakes)
            return values
        except DuckrunError as error:
            # dbt has written the table: what only decorates the event may not fail the step.
            log.warning("Metadata of %s is incomplete: %s", unique_id, error)
            return {} if commit is None else meta.commit_metadata(commit)

    def _with_lineage(self, values: meta.Metadata, props: Mapping[str, Any], lakes: Lakes) -> meta.Metadata:
        schema = values.get("dagster/column_schema")
        if schema is None:
            return values
        own = [column.name for column in schema.columns]
        self._columns[str(props.get("relation_name"))] = own
        return {**values, **column_lineage(self, props, own, lambda parent: self._columns_of(parent, lakes))}

    def _columns_of(self, parent: Mapping[str, Any], lakes: Lakes) -> list[str]:
        """The columns of a parent, looked up once a command; none of one that is not in the lake."""
        relation = str(parent.get("relation_name"))
        if relation not in self._columns:
            name = parent.get("identifier") or parent.get("alias") or parent["name"]
            lake = _lake_of(parent, lakes)
            ref, definition = lake.look_up(str(parent["schema"]), str(name))
            try:
                if isinstance(definition, ViewDefinition):
                    self._columns[relation] = [column for column, _ in definition.columns]
                else:
                    self._columns[relation] = list(lake.snapshot(ref).schema.names)
            except TableNotFound:  # an external source, a table of another lake
                self._columns[relation] = []
        return self._columns[relation]

    def _set_data_version(self, unique_id: str, version: str) -> None:
        if isinstance(self.context, AssetExecutionContext) and self.context.has_assets_def:
            self.context.set_data_version(self._spec(unique_id).key, DataVersion(version))

    def _count_partitions(self, unique_id: str, snapshot: Snapshot) -> None:
        """The rows of each partition of the run, on its own event, where the table's folders are Dagster's partitions."""
        context = self.context
        if not isinstance(context, AssetExecutionContext) or not context.has_assets_def:
            return
        definition, spec = context.assets_def.partitions_def, self._spec(unique_id)
        column = spec.metadata.get("partition_expr")
        if definition is None or column is None or not (context.has_partition_key or context.has_partition_key_range):
            return
        named = partition_expr(column, f"{unique_id}: partition_expr").get(None)
        partitions = PartitionSlice(definition, tuple(sorted(context.partition_keys)))
        counts = meta.partition_row_counts(snapshot, partitions, None if named is None else named.column)
        for key, rows in counts.items():
            context.add_asset_metadata({"dagster/partition_row_count": rows}, spec.key, key)

    def _spec(self, unique_id: str) -> AssetSpec:
        return self.dagster_dbt_translator.get_asset_spec(self.manifest, unique_id, self.project)


def commit_of(response: Mapping[str, Any] | None) -> Commit | None:
    """The Commit in an adapter's response; None for a node that committed nothing, a view for one."""
    if not response or response.get("version") is None or not response.get("location"):
        return None
    # The response has passed through protobuf, which knows one kind of number only.
    whole = {
        k: int(v) if isinstance(v, float) and v.is_integer() and k != "seconds" else v for k, v in response.items()
    }
    for name in ("memory", "retracted"):
        values = whole.get(name)
        if isinstance(values, Mapping):
            whole[name] = {k: None if v is None else int(v) for k, v in values.items()}
    return Commit.from_dict({"table": "", "mode": "", "engine": "", "writer": "", **whole})


def _lake_of(props: Mapping[str, Any], lakes: Lakes) -> Lake:
    """The lake that a node's database names; the project's own where it names none."""
    database = str(props.get("database") or "")
    return lakes.named(database, database) if lakes.is_lake(database) else lakes.own


def _written(commit: Commit, props: Mapping[str, Any], lakes: Lakes) -> tuple[Lake, TableRef]:
    """The table that a node wrote, and its lake."""
    lake = lakes.own
    if any(each.format.transacts for each in lakes):
        found = lakes.at(commit.location)
        if found.lake.format.transacts:
            return found.lake, found.ref
        lake = found.lake
    return lake, lake.at(commit.location, schema=props.get("schema"), name=props.get("alias"))


def _present(props: Mapping[str, Any], lakes: Lakes) -> meta.Metadata:
    """The columns of a persisted view; rows and columns of a table that the adapter said nothing of, as a project's own
    materialization makes it. Nothing where there is neither.
    """
    schema, name = props.get("schema"), props.get("alias")
    if not schema or not name or props.get("resource_type") not in ASSET_RESOURCE_TYPES:
        return {}
    lake = _lake_of(props, lakes)
    ref, definition = lake.look_up(str(schema), str(name))
    if isinstance(definition, ViewDefinition):
        return _view_metadata(definition, ref, props)
    try:
        snapshot = lake.snapshot(ref)
    except TableNotFound:
        return {}
    described = _descriptions(props, snapshot.schema.names)
    return {**meta.table_metadata(snapshot, described), **meta.lake_metadata(lake, snapshot)}


def _view_metadata(view: ViewDefinition, ref: TableRef, props: Mapping[str, Any]) -> meta.Metadata:
    described = _descriptions(props, [column for column, _ in view.columns])
    columns = [TableColumn(name=column, type=kind, description=described.get(column)) for column, kind in _types(view)]
    named: meta.Metadata = {"dagster/table_name": meta.name_metadata(ref)["dagster/table_name"]}
    return {**named, "dagster/column_schema": TableSchema(columns=columns)} if columns else named


def _types(view: ViewDefinition) -> list[tuple[str, str]]:
    """The columns of a view with Delta's names of types, as those of tables; the view's own where it has one that is unknown."""
    nulls = ", ".join(f"NULL::{kind} AS {quote_identifier(column)}" for column, kind in view.columns)
    try:
        with duckdb.connect() as connection:
            schema = connection.execute(f"SELECT {nulls}").to_arrow_table().schema
    except duckdb.Error as error:
        log.debug("The types of a view's columns are shown as they are: %s", error)
        return list(view.columns)
    return [(field.name, type_name(field.type)) for field in schema]


def _descriptions(props: Mapping[str, Any], columns: Iterable[str]) -> dict[str, str]:
    """What dbt says of the columns of a node, by their names in the table: SQL does not tell cases apart."""
    spelled = {column.lower(): column for column in columns}
    described = {name.lower(): column.get("description") for name, column in props.get("columns", {}).items()}
    return {spelled[name]: text for name, text in described.items() if text and name in spelled}


class _Responses:
    """The adapter's response of each finished node, read from dbt's log file as it grows."""

    def __init__(self, path: Path, process: Any) -> None:
        self._path = path
        self._process = process
        self._offset = 0
        self._rest = b""
        self._found: dict[str, Mapping[str, Any]] = {}

    def all(self) -> dict[str, Mapping[str, Any]]:
        """The responses of all nodes that have finished so far."""
        self._read()
        return self._found

    def of(self, unique_id: str) -> Mapping[str, Any] | None:
        """The response of a node whose result has been streamed; None if the log never says."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            ended = self._process.poll() is not None
            self._read()
            if unique_id in self._found:
                return self._found[unique_id]
            if ended or time.monotonic() > deadline:
                log.warning("The log of dbt (%s) says nothing of how %s was written.", self._path, unique_id)
                return None
            time.sleep(0.01)

    def _read(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except OSError:
            return
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            if b'"NodeFinished"' not in line:
                continue
            try:
                data = json.loads(line)["data"]
                self._found[data["node_info"]["unique_id"]] = data["run_result"].get("adapter_response") or {}
            except (ValueError, KeyError, TypeError):
                continue


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables while a process is started, which inherits them: dagster-dbt has no argument for its environment."""
    with _environment_lock:
        before = {name: os.environ.get(name) for name in values}
        os.environ.update(values)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
