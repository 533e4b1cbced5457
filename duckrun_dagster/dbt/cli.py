"""dbt from Dagster on a duckrun lake.

Each dbt run passes its chain to the adapter, and the event of each model carries its commit. The
commit comes from dbt's structured log, which holds the adapter's response of each finished node.
Rows and columns come from the table's log. No second connection is opened and no table is read.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import duckdb
from dagster import (
    AssetExecutionContext,
    AssetMaterialization,
    DagsterEventType,
    DataVersion,
    OpExecutionContext,
    Output,
    TableColumn,
    TableSchema,
)
from dagster_dbt import DbtCliEventMessage, DbtCliInvocation, DbtCliResource, DbtProject
from packaging.version import Version
from pydantic import Field, PrivateAttr

from duckrun.errors import DuckrunError, TableNotFound
from duckrun.lake.lake import Lake, TableRef, ViewDefinition
from duckrun.lake.lakes import Lakes
from duckrun.sql.quoting import select_list
from duckrun.values.branches import STEP_VARIABLE, VARIABLE
from duckrun.values.rows import Commit
from duckrun.values.snapshot import Snapshot
from duckrun.values.type_names import type_name
from duckrun_dagster import metadata as meta
from duckrun_dagster.branches import branch_in, branch_of_step
from duckrun_dagster.chain import attempt_of, chain_of, chain_of_step, is_rerun
from duckrun_dagster.config_values import partition_expr
from duckrun_dagster.data_version import data_version
from duckrun_dagster.dbt.branch import branch_beside, refuse_another_lake
from duckrun_dagster.dbt.calls import Attempt, Call, CallId
from duckrun_dagster.dbt.lineage import column_lineage
from duckrun_dagster.dbt.private import ASSET_RESOURCE_TYPES, DbtEventIterator
from duckrun_dagster.partitions.partitions import PartitionSlice
from duckrun_dagster.private import DagsterInvalidPropertyError, environ
from duckrun_dagster.resources.arguments import KnownResource, refuse_bad_memory, refuse_unknown
from duckrun_dagster.resources.profile import LakeSettings, lake_of_profile, may_have
from duckrun_dagster.resources.run_worker import FOR_SEVERAL, second_process, share_of_step

log = logging.getLogger(__name__)

Context = OpExecutionContext | AssetExecutionContext

# dbt writes the event with a node's response microseconds after the one with its result.
_PATIENCE_SECONDS = 5.0

_ADDING = ("append", "safeappend")
"""Commit modes that duplicate rows if a commit is repeated."""

_environment_lock = threading.Lock()


class DuckrunDbtCliResource(KnownResource, DbtCliResource):
    """dagster-dbt's DbtCliResource, for profiles of ``type: duckrun``; used in the same way.

    dbt gets ``DUCKRUN_RUN_ID``, so that a retried step commits each model once. If its profile sets
    no ``memory_limit``, dbt also gets the step's share of the memory. Materializations carry rows,
    columns, version, location, engine, seconds and peak memory.

    Example::

        @dbt_assets(manifest="target/manifest.json", dagster_dbt_translator=DuckrunDbtTranslator())
        def shop(context: dg.AssetExecutionContext, dbt: DuckrunDbtCliResource):
            yield from dbt.cli(["build"], context=context).stream()

        dbt = DuckrunDbtCliResource(project_dir="shop")
        defs = dg.Definitions(assets=[shop], resources={"dbt": dbt})
    """

    memory_fraction: float | None = Field(
        default=None,
        description="dbt's part of the machine's memory, 0 to 1; "
        "if not given, one by the processes that the run may have at once.",
    )

    _calls: dict[tuple[Any, ...], int] = PrivateAttr(default_factory=dict)

    def __init__(self, project_dir: str | Path | DbtProject, **settings: Any) -> None:
        # The adapter is in this environment, and so is dbt. Another dbt on PATH (or dbt Fusion)
        # lacks the adapter.
        beside = shutil.which("dbt", path=str(Path(sys.executable).parent))
        if beside is not None:
            settings.setdefault("dbt_executable", beside)
        refuse_unknown(type(self), settings)
        refuse_bad_memory("DuckrunDbtCliResource", None, settings.get("memory_fraction"))
        super().__init__(project_dir=project_dir, **settings)

    def cli(self, args: Sequence[str], *, context: Context | None = None, **kwargs: Any) -> DuckrunDbtCliInvocation:
        """Start dbt as DbtCliResource.cli does; the result streams dbt's events."""
        call, step = None, None
        if context is not None:
            self._refuse_two_processes(kwargs.get("project_dir"))
            step = _step_of(context)
            call = self._call(args, context, step)
        branch = None if step is None else self._branch(step, kwargs.get("project_dir"))
        values = self._environment(call, step, branch)
        # dagster-dbt has no argument for the environment of dbt, which inherits this process's.
        with _environment_lock, environ(values):
            started = super().cli(args, context=context, **kwargs)
        known = {each.name: getattr(started, each.name) for each in fields(started) if each.init}
        return DuckrunDbtCliInvocation(**known, resource=self, call=call, branch=branch)

    # dagster-dbt starts `dbt --version` for each resource, that is for each step: two seconds of
    # imports (dagster_dbt/core/resource.py of 0.29).
    @cached_property
    def _cli_version(self) -> Version:
        """Version of dbt, from the environment if the command is that of its dbt-core."""
        return _version_of_command(self.dbt_executable) or super()._cli_version

    def lake(self, project_dir: Path | str | None = None) -> Lake:
        """Return the lake of the profile.

        Raises:
            InvalidConfig: The profile names no lake.
        """
        return self._settings(project_dir).lake()

    def lakes(self, project_dir: Path | str | None = None, branch: str | None = None) -> Lakes:
        """Return the lake of the profile with the further lakes that the profile names.

        Args:
            project_dir: The dbt project; by default that of this resource.
            branch: Branch of the lake, if the profile and ``DUCKRUN_BRANCH`` name none.

        Raises:
            InvalidConfig: The profile names no lake.
        """
        settings = self._settings(project_dir)
        return replace(settings, branch=settings.branch or branch).opened()

    def _settings(self, project_dir: Path | str | None) -> LakeSettings:
        return lake_of_profile(project_dir or self.project_dir, self.profile, self.target, self.profiles_dir)

    def _refuse_two_processes(self, project_dir: Path | str | None) -> None:
        """Raise InvalidConfig for a lake whose catalog only one process may open.

        dbt is a second process.
        """
        if not may_have("catalog", project_dir or self.project_dir, self.profiles_dir):
            # Rendering a profile imports dbt's configuration: a third of dbt's start time.
            return
        try:
            lakes = self.lakes(project_dir)
        except DuckrunError:
            return  # dbt reports the error in its profile
        lake = next((each for each in lakes if each.for_one_process), None)
        if lake is not None:
            raise second_process(lake.root, f"dbt is another process beside this step's; {FOR_SEVERAL}")

    def _branch(self, step: Any, project_dir: Path | str | None) -> str | None:
        """Return the branch for dbt; None if its profile and the environment decide."""
        of_profile = partial(self._settings, project_dir)
        named = may_have("branch", project_dir or self.project_dir, self.profiles_dir)
        beside = branch_beside(step, of_profile if named else None)
        if beside is not None or branch_of_step(step) is None:
            return beside
        lake = of_profile().lake()
        branch = branch_in(step, lake)
        if branch is not None:
            refuse_another_lake(step, lake.root)
        return branch

    def _environment(self, call: CallId | None, step: Any | None, branch: str | None) -> dict[str, str]:
        # Commits are read from this log: JSON, complete, and never rolled over to a second file.
        values = {"DBT_LOG_FORMAT_FILE": "json", "DBT_LOG_LEVEL_FILE": "debug", "DBT_LOG_FILE_MAX_BYTES": "0"}
        if call is not None:
            values["DUCKRUN_RUN_ID"] = str(call)
        if step is not None and branch is not None:
            values |= {VARIABLE: branch, STEP_VARIABLE: f"{step.step.key} {attempt_of(step)}"}
        fraction = self.memory_fraction or (1.0 if step is None else share_of_step(step))
        if fraction < 1:  # otherwise a value in the environment stays
            values["DUCKRUN_MEMORY_FRACTION"] = str(fraction)
        return values

    def _call(self, args: Sequence[str], context: Context, step: Any | None) -> CallId:
        """Return the id of this dbt command among those of its step.

        A step may call dbt several times, once a day or twice for the same models: each call is
        work of its own. A retried step makes the same calls in the same order, and gets the same
        ids.
        """
        op = context.op_execution_context if isinstance(context, AssetExecutionContext) else context
        call = Call.of(args, None if step is None else _attempt(step))
        place = (context.run_id, str(op.op_handle), op.retry_number, *call)
        self._calls[place] = count = self._calls.get(place, -1) + 1
        chain = chain_of(context.run, context.instance) if step is None else chain_of_step(step)
        return CallId(f"{chain}:{op.op_handle}", call, count)


def _version_of_command(command: str) -> Version | None:
    """Version of this environment's dbt-core if `command` is a file of it, else None."""
    try:
        core = metadata.distribution("dbt-core")
    except metadata.PackageNotFoundError:
        return None
    commands = (core.locate_file(file) for file in core.files or () if file.stem == "dbt")
    path = Path(command).resolve()
    return Version(core.version) if any(Path(str(each)).resolve() == path for each in commands) else None


def _step_of(context: Context) -> Any | None:
    """Return the running step of a context; None for a context that a test has built."""
    try:
        return context.get_step_execution_context()
    except DagsterInvalidPropertyError:
        return None


def _attempt(step: Any) -> Attempt:
    """Return the attempt that a running step is."""
    started = step.instance.get_records_for_run(
        step.run_id, of_type={DagsterEventType.STEP_START, DagsterEventType.STEP_RESTARTED}
    ).records
    began = [each.timestamp for each in started if each.event_log_entry.step_key == step.step.key]
    now = time.time()
    return Attempt(step.run_id, max(began, default=now), now)


class DuckrunEventIterator(DbtEventIterator[Any]):
    """Events with rows and described columns from the logs of the tables.

    dagster-dbt would fetch them by a second connection and a count, and lose the descriptions.
    """

    def fetch_column_metadata(self, with_column_lineage: bool = True) -> DuckrunEventIterator:
        """Return the events unchanged: they already have columns and lineage."""
        return self

    def fetch_row_counts(self) -> DuckrunEventIterator:
        """Return the events unchanged: they have the row count if the log holds it."""
        return self


@dataclass
class DuckrunDbtCliInvocation(DbtCliInvocation):
    """A running dbt command whose events carry the commits."""

    resource: DuckrunDbtCliResource = field(kw_only=True, repr=False)
    call: CallId | None = field(default=None, kw_only=True, repr=False)
    branch: str | None = field(default=None, kw_only=True, repr=False)
    """Branch that the step has chosen for dbt."""
    _columns: dict[str, list[str]] = field(default_factory=dict, init=False, repr=False)

    def stream(self) -> DbtEventIterator[Any]:
        """Stream as DbtCliInvocation.stream does.

        The metadata of each model's event contains the model's commit.
        """
        return DuckrunEventIterator(self._with_commits(super().stream()), self)

    def stream_raw_events(self) -> Iterator[DbtCliEventMessage]:
        """Stream as DbtCliInvocation does; then warn of rows that an earlier attempt left."""
        try:
            yield from super().stream_raw_events()
        finally:
            if self.process.poll() is not None:
                self._warn_of_older_calls()

    def _warn_of_older_calls(self) -> None:
        """Warn of tables to which this call and an older attempt may have added the same rows."""
        # Undecidable if a call differs from an older one in values of variables: it may be the same
        # call with another value, or another one of several calls.
        step = None if self.context is None else _step_of(self.context)
        if step is None or self.call is None or not is_rerun(step):
            return
        attempt, lakes = _attempt(step), self._lakes()
        if lakes is None:
            return
        for unique_id, response in _Responses(self.target_path / "dbt.log", self.process).all().items():
            commit = commit_of(response)
            if commit is None or commit.mode not in _ADDING or commit.retracted is not None or commit.replayed:
                continue
            lake, ref = _written(commit, self.manifest.get("nodes", {}).get(unique_id, {}), lakes)
            older = self.call.left_by_older(lake.format, ref, commit.version, unique_id, attempt.began)
            if older is not None:
                step.log.warning(
                    f"{unique_id}: version {commit.version} of {ref} adds rows "
                    "beside those that an earlier attempt of this step added at version "
                    f"{older}, by a call of dbt that differs in the values of --vars alone. "
                    f"If it was the same call, the rows of version {older} count "
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
            return self.resource.lakes(self.project_dir, self.branch)
        except DuckrunError as error:
            log.warning("Rows and columns are missing from the events of dbt: %s", error)
            return None

    def _metadata(self, unique_id: str, response: Mapping[str, Any] | None, lakes: Lakes | None) -> meta.Metadata:
        """Return the metadata of one node.

        Its commit is from its response, its table from the table's log.
        """
        props = self.manifest.get("nodes", {}).get(unique_id, {})
        commit = commit_of(response)
        try:
            if commit is None:
                return {} if lakes is None else self._with_lineage(_present(props, lakes), props, lakes)
            values = meta.commit_metadata(commit)
            if lakes is not None:
                lake, ref = _written(commit, props, lakes)
                snapshot = lake.snapshot(ref)  # a post-hook may have changed the rows since
                values = meta.table_metadata(lake, snapshot, _descriptions(props, snapshot.schema.names), commit)
                latest_commit = commit if snapshot.version == commit.version else None
                self._report(unique_id, snapshot, data_version(lake, snapshot, commit=latest_commit))
                values = self._with_lineage(values, props, lakes)
            return values
        except DuckrunError as error:
            # dbt has written the table already, so missing metadata must not fail the step.
            log.warning("Metadata of %s is incomplete: %s", unique_id, error)
            return {} if commit is None else meta.commit_metadata(commit)

    def _with_lineage(self, values: meta.Metadata, props: Mapping[str, Any], lakes: Lakes) -> meta.Metadata:
        schema = values.get("dagster/column_schema")
        if schema is None:
            return values
        columns = [column.name for column in schema.columns]
        self._columns[str(props.get("relation_name"))] = columns
        return {**values, **column_lineage(self, props, columns, lambda parent: self._columns_of(parent, lakes))}

    def _columns_of(self, parent: Mapping[str, Any], lakes: Lakes) -> list[str]:
        """Return the columns of a parent, cached for the command.

        The list is empty if the parent is not in the lake.
        """
        relation = str(parent.get("relation_name"))
        if relation not in self._columns:
            name = parent.get("identifier") or parent.get("alias") or parent["name"]
            _, _, stored = _stored(parent, str(name), lakes)
            if isinstance(stored, ViewDefinition):
                self._columns[relation] = [column for column, _ in stored.columns]
            else:  # None: an external source, a table of another lake
                self._columns[relation] = [] if stored is None else list(stored.schema.names)
        return self._columns[relation]

    def _report(self, unique_id: str, snapshot: Snapshot, version: str) -> None:
        """Report the data version, and the rows of each partition of the run.

        The latter only for a table that is partitioned by Dagster's partitions.
        """
        context = self.context
        if not isinstance(context, AssetExecutionContext) or not context.has_assets_def:
            return
        spec = self.dagster_dbt_translator.get_asset_spec(self.manifest, unique_id, self.project)
        context.set_data_version(spec.key, DataVersion(version))
        definition = context.assets_def.partitions_def
        column = spec.metadata.get("partition_expr")
        if definition is None or column is None or not (context.has_partition_key or context.has_partition_key_range):
            return
        named = partition_expr(column, f"{unique_id}: partition_expr").get(None)
        partitions = PartitionSlice(definition, tuple(sorted(context.partition_keys)))
        counts = meta.partition_row_counts(snapshot, partitions, None if named is None else named.column)
        for key, rows in counts.items():
            context.add_asset_metadata({"dagster/partition_row_count": rows}, spec.key, key)


def commit_of(response: Mapping[str, Any] | None) -> Commit | None:
    """Return the Commit in an adapter's response; None for a node without one, such as a view."""
    if not response or response.get("version") is None or not response.get("location"):
        return None
    # The response has passed through protobuf, which has floats only.
    whole = {
        k: int(v) if isinstance(v, float) and v.is_integer() and k != "seconds" else v for k, v in response.items()
    }
    for name in ("memory", "retracted"):
        values = whole.get(name)
        if isinstance(values, Mapping):
            whole[name] = {k: None if v is None else int(v) for k, v in values.items()}
    return Commit.from_dict({"table": "", "mode": "", "engine": "", "writer": "", **whole})


def _written(commit: Commit, props: Mapping[str, Any], lakes: Lakes) -> tuple[Lake, TableRef]:
    """Return the table that a node wrote, and its lake."""
    lake = lakes.own
    if any(each.has_catalog for each in lakes):
        table = lakes.at(commit.location)
        if table.lake.has_catalog:
            return table.lake, table.ref
        lake = table.lake
    return lake, lake.at(commit.location, schema=props.get("schema"), name=props.get("alias"))


def _present(props: Mapping[str, Any], lakes: Lakes) -> meta.Metadata:
    """Return the columns of a persisted view, or rows and columns of a table without a response.

    A project's own materialization writes such a table. Empty if there is neither view nor table.
    """
    schema, name = props.get("schema"), props.get("alias")
    if not schema or not name or props.get("resource_type") not in ASSET_RESOURCE_TYPES:
        return {}
    lake, ref, stored = _stored(props, str(name), lakes)
    if isinstance(stored, ViewDefinition):
        described = _descriptions(props, [column for column, _ in stored.columns])
        columns = [TableColumn(column, kind, described.get(column)) for column, kind in _types(stored)]
        named: meta.Metadata = {"dagster/table_name": str(ref), **meta.branch_metadata(lake)}
        return {**named, "dagster/column_schema": TableSchema(columns=columns)} if columns else named
    if stored is None:
        return {}
    described = _descriptions(props, stored.schema.names)
    return meta.table_metadata(lake, stored, described)


def _stored(
    props: Mapping[str, Any], name: str, lakes: Lakes
) -> tuple[Lake, TableRef, ViewDefinition | Snapshot | None]:
    """Return the place of a node, and the view or the table there; None if there is neither."""
    database = str(props.get("database") or "")  # that of a lake, else the node lies in the project's lake
    lake = lakes.named(database, database) if lakes.is_lake(database) else lakes.own
    ref, definition = lake.look_up(str(props["schema"]), name)
    if isinstance(definition, ViewDefinition):
        return lake, ref, definition
    try:
        return lake, ref, lake.snapshot(ref)
    except TableNotFound:
        return lake, ref, None


def _types(view: ViewDefinition) -> list[tuple[str, str]]:
    """Return the columns of a view with Delta's type names.

    If a type is unknown, return them with the view's own type names.
    """
    nulls = select_list({column: f"NULL::{kind}" for column, kind in view.columns})
    try:
        with duckdb.connect() as connection:
            schema = connection.execute(f"SELECT {nulls}").to_arrow_table().schema
    except duckdb.Error as error:
        log.debug("The types of a view's columns are shown as they are: %s", error)
        return list(view.columns)
    return [(field.name, type_name(field.type)) for field in schema]


def _descriptions(props: Mapping[str, Any], columns: Iterable[str]) -> dict[str, str]:
    """Return dbt's descriptions of a node's columns by their names in the table."""
    # SQL compares names without case, so the table may spell a column differently than dbt.
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
        """Return the responses of all nodes that have finished so far."""
        self._read()
        return self._found

    def of(self, unique_id: str) -> Mapping[str, Any] | None:
        """Return the response of a node whose result has been streamed; None if it is missing."""
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
