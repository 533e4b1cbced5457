"""DeltaIOManager: what is the same for every type of value, once.

spec from context -> engine -> write or scan -> metadata from the Commit. What differs by type is in the handlers.
"""

# No "from __future__ import annotations" here: Dagster must see the classes of nested resources, not their names, to
# take them configured at launch.

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
from dagster import ConfigurableIOManager, DataVersion, InputContext, OutputContext
from pydantic import Field

from duckrun.errors import DuckrunError, InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.lake.lake import Lake, LocationDefinition, ViewDefinition
from duckrun.run.pins import Pins, unnoted
from duckrun.session import Session
from duckrun.values.changes import CHANGE_TYPE
from duckrun.values.rows import AppTransaction, Commit, EngineName, ReadSpec, counted_rows
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import feed_turned
from duckrun_dagster import metadata as meta
from duckrun_dagster.arguments import KnownResource, refuse_word
from duckrun_dagster.chain import application, application_of_op
from duckrun_dagster.config import (
    ENGINES,
    ChangesInput,
    TableConfig,
    allows_missing_partitions,
    for_this_run,
    input_type,
    parse_changes,
    parse_input,
    parse_output,
    parse_table,
    refuse_to_replace,
    table_of,
)
from duckrun_dagster.data_version import data_version
from duckrun_dagster.io_managers.annotation import Wanted, wanted
from duckrun_dagster.io_managers.contexts import (
    annotation_of,
    description_of,
    materialized_partitions,
    of_upstream,
    output_name,
    step_of,
)
from duckrun_dagster.io_managers.fan_in import fan_in
from duckrun_dagster.io_managers.handlers.handler import TableScan, TypeHandler
from duckrun_dagster.io_managers.handlers.registry import handler_of, named_type, type_name, type_names
from duckrun_dagster.io_managers.incremental import Consumer, changes_scan, consumer_of, forget
from duckrun_dagster.io_managers.published import Report, published
from duckrun_dagster.launch import configured_by_field, written_otherwise
from duckrun_dagster.partitions.missing import missing_partitions, refuse_missing
from duckrun_dagster.partitions.partitions import (
    PartitionSlice,
    partitions_of,
    read_partitions,
    written_partitions,
)
from duckrun_dagster.resources import DuckrunResource, SparkResource
from duckrun_dagster.table_defaults import TableDefaults, checked_defaults

_PREVIEW_ROWS = 10
_PREVIEW_BYTES = 64 * 1024 * 1024
_MOST_COUNTED = 100
"""Up to so many partitions of a step are counted by queries, where the log does not tell their rows."""


class DeltaIOManager(KnownResource, TableDefaults, ConfigurableIOManager):
    """Assets as Delta tables of a lake.

    The value decides the handler, the asset's metadata the table and how it is written. ``engine`` writes where
    metadata names none; a PySpark DataFrame is always Spark's. ``default_type`` is what an input without a type
    annotation gets: pyarrow, pyarrow_reader, pyarrow_dataset, pandas, polars, polars_lazy, duckdb, pyspark, deltalake,
    duckrun or duckrun_table. ``mode``, ``merge_keys``, ``schema_mode``, ``table_properties`` and the others are for assets whose
    metadata does not say. ``writes`` is for the configuration of a run: it writes an asset in another way this once.

    Example::

        lake = DuckrunResource(root_path="lake/")
        defs = Definitions(assets=[...], resources={"io_manager": DeltaIOManager(duckrun=lake, schema="raw")})
    """

    duckrun: DuckrunResource
    spark: SparkResource | None = None
    engine: str = Field(default="duckdb", description="duckdb or spark.")
    schema_: str | None = Field(default=None, alias="schema", description="Schema of assets whose key is one part.")
    default_type: str = Field(default="pyarrow", description="The type of an input that declares none.")
    writes: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="What one run says otherwise of an asset: asset key -> mode, merge_keys, ..."
    )
    preview: bool = Field(default=True, description="Show the first rows of a table that is small.")

    def __init__(self, **values: Any) -> None:
        super().__init__(**checked_defaults(type(self), values))
        refuse_word("DeltaIOManager: engine", self.engine, ENGINES)
        refuse_word("DeltaIOManager: default_type", self.default_type, type_names(self.handlers()))
        configured_by_field(self)

    @property
    def default_schema(self) -> str:
        """The schema of an asset whose key is one part."""
        return self.schema_ or self.duckrun.default_schema

    def handlers(self) -> Sequence[TypeHandler[Any]]:
        """Handlers of types that this IO manager does not know by itself; a subclass names its own, which come first."""
        return ()

    # -- write

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write a value as one commit, and tell Dagster what it did. On an error the table is as it was."""
        report = published(context) or self.write(context, obj)
        report(context)

    def write(self, context: OutputContext, obj: Any, *, together: bool = False) -> Report:
        """Write a value as one commit; what tells Dagster of it, once it is published. ``together``: it is within a transaction."""
        key, step = context.asset_key if context.has_asset_key else None, step_of(context)
        what = output_name(context, step)
        with _naming(what):
            consumer = consumer_of(step, DeltaIOManager)
        if consumer is not None and (consumer.begun.idle or (obj is None and wanted(annotation_of(context)).optional)):
            with _naming(what):
                return self._pass(context, consumer)
        if obj is None and wanted(annotation_of(context)).optional:
            return lambda told: told.log.info(f"{what} is None, as its annotation allows: nothing is written.")
        if obj is None:
            raise InvalidConfig(
                f"{what} returned None, so there is nothing to write. Return a frame, or annotate the "
                f"{'op' if key is None else 'asset'} '-> None' (or return MaterializeResult) if it writes its data itself, or "
                "'-> Optional[…]' if it may have nothing to write."
            )
        with _naming(what):
            config = self.config_of(context)
            if consumer is not None:
                refuse_to_replace(config, what)
            lake = self._lake_of(config, what)
            if config.publish == "together" and not together:
                raise InvalidConfig(
                    "metadata 'publish' is 'together', and nothing has gathered its outputs: give the definitions to check_definitions(), or put "
                    "@publish_together above the asset."
                )
            returned = type_name(type(obj))
            handler = handler_of(type(obj), self.handlers(), f"{what} returned a {returned}; it")
            engine = self._writing_engine(config, handler, what)
            if together and engine != "duckdb":
                raise UnsupportedFeature(
                    "metadata 'publish' is 'together', which is one transaction of engine duckdb, and it is written by engine spark."
                )
            ref = table_of(lake, config)
            with _naming("DuckrunResource"):
                lake.ensure_writable(ref)
            session = self.duckrun.step_session(step, engine, self.spark)
            source = _typed_as_table(handler.to_source(obj), lake, ref, handler)
            partitions = written_partitions(context)
            if partitions is not None and not lake.exists(ref):
                _refuse_untyped(source, handler, config, what)
            predicate, layout = None, None
            if partitions is not None:
                schema = session.schema_of(source)
                predicate = partitions.predicate(config, schema, what.removeprefix("Asset "))
                layout = None if lake.exists(ref) else partitions.table_partitioning(config, schema)
            spec = config.write_spec(
                app=_application(context, step, partitions) if consumer is None else consumer.begun.app,
                applies=consumer is not None and _says_changes(session, source),
                whole=consumer is not None and consumer.begun.whole,
                predicate=predicate,
                partition_by=layout,
                description=description_of(context),
                column_comments=meta.declared_descriptions(context.definition_metadata or {}),
            )
            if config.change_data_feed is not None and not lake.format.transacts and lake.exists(ref):
                turned = feed_turned(lake.snapshot(ref), config.change_data_feed)
                if turned is not None:
                    session.execute(ref, turned)
            commit = session.execute(ref, spec, source)
            if consumer is not None and commit.writer == "none" and not commit.replayed:
                commit = session.move_cursor(ref, consumer.begun.app, engine=engine)
            if config.location is not None and lake.definition(ref) is None:
                lake.put_definition(ref, LocationDefinition(ref.location))

        def report(told: OutputContext) -> None:
            with _naming(what):
                if consumer is not None and step is not None:
                    told.add_output_metadata(consumer.metadata())
                    forget(step)
                self._report(told, session, ref, commit, config, partitions)

        return report

    def config_of(self, context: OutputContext) -> TableConfig:
        """The table of an output, as its metadata, the run and this IO manager say. Raises InvalidConfig."""
        key, step = context.asset_key if context.has_asset_key else None, step_of(context)
        what = output_name(context, step)
        otherwise = {} if key is None else written_otherwise(self.writes, key, step)
        metadata = for_this_run(
            context.definition_metadata or {},
            context.output_metadata or {},
            otherwise,
            what=f"{what}, for this run",
        )
        schema, defaults = self.default_schema, self.table_defaults()
        if key is not None:
            return parse_table(key, metadata, default_schema=schema, defaults=defaults)
        config = parse_output(metadata, default_schema=schema, what=what, defaults=defaults)
        _refuse_shared(context, step, config)
        return config

    def ref_of(self, context: OutputContext) -> TableRef:
        """The table that an output is stored as. Raises InvalidConfig."""
        config = self.config_of(context)
        return table_of(self.duckrun.lake(config.lake), config)

    def _pass(self, context: OutputContext, consumer: Consumer) -> Report:
        """Nothing is to be written: a consumer that has read on commits how far."""
        step, lake = step_of(context), self.duckrun.lake(consumer.output.catalog)
        if consumer.begun.idle or not lake.exists(consumer.output):
            said = f"{consumer.name}: nothing has changed since its last commit, so nothing is written."
        else:
            session = self.duckrun.step_session(step, "duckdb", self.spark)
            commit = session.move_cursor(consumer.output, consumer.begun.app)
            said = f"{consumer.name}: nothing is written but how far it has read, version {commit.version}."

        def report(told: OutputContext) -> None:
            told.add_output_metadata(consumer.metadata())
            told.log.info(said)
            if step is not None:
                forget(step)

        return report

    def _report(
        self,
        context: OutputContext,
        session: Session,
        ref: TableRef,
        commit: Commit,
        config: TableConfig,
        partitions: PartitionSlice | None,
    ) -> None:
        """The commit as metadata of the materialization, and as its data version."""
        step = step_of(context)
        lake = session.lakes.of(ref)
        snapshot = lake.snapshot(ref, commit.version)  # which knows it already
        values = {
            **meta.commit_metadata(commit),
            **meta.table_metadata(snapshot, meta.declared_descriptions(context.definition_metadata or {})),
            **meta.lake_metadata(lake, snapshot, commit),
        }
        if partitions is not None:
            counts = meta.partition_row_counts(snapshot, partitions, config.partition_column())
            if values.get("dagster/row_count") != counted_rows(snapshot.files()):  # the others lie in a catalog
                counts = {}
            if (
                not counts
                and len(partitions.keys) == 1
                and commit.mode == "replace"
                and commit.rows_inserted is not None
            ):
                counts = {partitions.keys[0]: commit.rows_inserted}
            small = sum(file.size for file in snapshot.files()) <= _PREVIEW_BYTES
            if not counts and small and len(partitions.keys) <= _MOST_COUNTED:
                counts = _counted(context, session, snapshot, partitions, config)
            if step is not None:
                for key, rows in counts.items():
                    step.add_asset_metadata({"dagster/partition_row_count": rows}, context.asset_key, key)
        if self.preview and sum(file.size for file in snapshot.files()) <= _PREVIEW_BYTES:
            try:
                head = session.scan(ref, ReadSpec(version=commit.version)).limit(_PREVIEW_ROWS)
                values["preview"] = meta.preview(head.toArrow())
            except Exception as error:  # the rows are written: what only decorates the page may not fail the step
                context.log.debug(f"No preview of table {ref}: {error}")
        if step is not None and context.has_asset_key and not step.has_data_version(context.asset_key):
            column = config.partition_column()
            version = data_version(lake, snapshot, commit=commit, partition=partitions, column=column)
            step.set_data_version(context.asset_key, DataVersion(version))
        context.add_output_metadata(meta.beside_the_assets_own(values, context.output_metadata or {}))
        context.log.info(
            f"{commit.mode} {ref}: version {commit.version} by {commit.engine} ({commit.writer}) in {commit.seconds:.2f} s"
            + (", committed before by this chain and not written again" if commit.replayed else "")
            + (f"; it takes back version {commit.retracted.version} of an earlier attempt" if commit.retracted else "")
        )

    # -- read

    def load_input(self, context: InputContext) -> Any:
        """The rows of an upstream asset: pinned to one version for the step, pruned by partition, columns, predicate."""
        context = of_upstream(context)
        upstream = context.upstream_output
        metadata = (upstream.definition_metadata if upstream is not None else None) or {}
        if context.has_asset_key:
            asset = context.asset_key.to_user_string()
            what = f"Input {context.name!r} (asset {asset})" if context.has_input_name else f"Asset {asset}"
        elif upstream is None:
            raise InvalidConfig(
                f"Input {context.name!r} comes from no asset and no op, so it has no table to be read from."
            )
        else:
            what = f"Input {context.name!r}" if context.has_input_name else "Input"
        with _naming(what):
            schema, defaults = self.default_schema, self.table_defaults()
            if context.has_asset_key:
                config = parse_table(context.asset_key, metadata, default_schema=schema, defaults=defaults)
            else:
                assert upstream is not None
                source = output_name(upstream, None)
                config = parse_output(metadata, default_schema=schema, what=source, defaults=defaults)
            read = parse_input(context.definition_metadata or {}, what=what)
            asked = wanted(self._declared_type(context, what))
            handler = handler_of(asked.as_type, self.handlers(), what)
            engine = handler.engine or "duckdb"
            self._check_spark(engine, f"{what} is a PySpark DataFrame")
            lake = self._lake_of(config, what)
            ref = table_of(lake, config)
            partitions = read_partitions(context)
            none_wanted = (
                partitions is not None and not partitions.keys
            )  # as by the first partition of what reads itself
            if none_wanted or asked.optional:
                pins = self.duckrun.step_session(step_of(context), "duckdb", self.spark).pins
                with unnoted() if none_wanted else nullcontext():
                    there = _is_there(lake, ref, pins)
                if asked.optional and (none_wanted or not there):
                    return None
                if not there:
                    return asked.collection() if asked.collection else handler.nothing(asked.as_type)
            scan = TableScan(self.duckrun.step_session(step_of(context), engine, self.spark), ref, read)
            changed = parse_changes(context.definition_metadata or {}, what=what)
            if changed is not None:
                return self._load_changes(context, scan, partitions, config, asked, handler, changed)
            if partitions is None and asked.collection is None:
                return handler.from_scan(scan, asked.as_type)
            return self._load_partitions(context, scan, partitions, config, asked, handler, what)

    def _load_changes(
        self,
        context: InputContext,
        scan: TableScan,
        partitions: PartitionSlice | None,
        config: TableConfig,
        asked: Wanted,
        handler: TypeHandler[Any],
        changed: ChangesInput,
    ) -> Any:
        """What has changed since the last commit of the asset that is being computed."""
        consumer = consumer_of(step_of(context), DeltaIOManager)
        if consumer is None or asked.collection is not None:
            raise InvalidConfig(
                "metadata 'changes' is for an input of an asset, as one value: there is no consumer here."
            )
        predicate = None
        if partitions is not None:
            with unnoted():
                schema = scan.session.snapshot(scan.ref).schema
            predicate = partitions.predicate(config, schema, context.asset_key.to_user_string())
        return handler.from_scan(changes_scan(consumer, context.name, changed, scan, predicate), asked.as_type)

    def _load_partitions(
        self,
        context: InputContext,
        scan: TableScan,
        partitions: PartitionSlice | None,
        config: TableConfig,
        asked: Wanted,
        handler: TypeHandler[Any],
        what: str,
    ) -> Any:
        """The rows of some partitions as one value, or as one value each; ``partitions`` is None for all that there are."""
        if asked.collection is not None:
            _refuse_fan_in(context, asked, handler)
        allowed = partitions is None or allows_missing_partitions(context.definition_metadata or {}, what=what)
        some = partitions or partitions_of(context)
        whole = replace(scan, requested=ReadSpec(version=scan.requested.version, timestamp=scan.requested.timestamp))
        missing: list[str] = []
        with unnoted():  # the value is made of none of these rows
            schema = whole.frame().schema

            def predicate(these: PartitionSlice) -> str:
                return these.predicate(config, schema, context.asset_key.to_user_string())

            if not allowed or asked.optional or asked.collection is not None:
                materialized = materialized_partitions(context)
                missing = missing_partitions(whole, some, materialized, predicate)
                if asked.optional and some.keys and len(missing) == len(some.keys):
                    return None
                if not allowed and not asked.optional_each:
                    refuse_missing(whole, missing, materialized)
        if asked.collection is not None:
            return fan_in(scan, some, missing, predicate, asked, handler)
        return handler.from_scan(replace(scan, partitions=predicate(some)), asked.as_type)

    # -- the parts

    def _lake_of(self, config: TableConfig, what: str) -> Lake:
        """The lake of a table. Raises InvalidConfig, UnsupportedFeature for words of another format than the lake's."""
        lake = self.duckrun.lake(config.lake)
        config.refuse_of_other_format(lake.format.name, what)
        return lake

    def _writing_engine(self, config: TableConfig, handler: TypeHandler[Any], what: str) -> EngineName:
        if handler.engine == "spark":
            self._check_spark("spark", f"{what} is a PySpark DataFrame, which only Spark writes")
            return "spark"
        engine = config.engine or self.engine
        refuse_word("DeltaIOManager: engine", engine, ENGINES)
        self._check_spark(engine, f"{what} is written by engine 'spark'")
        return cast(EngineName, engine)

    def _check_spark(self, engine: str, why: str) -> None:
        if engine == "spark" and self.spark is None:
            raise InvalidConfig(
                f"{why}, but the DeltaIOManager has no Spark. Give it spark=SparkResource(master='local[*]') "
                "(or remote='sc://host:15002'), and take the session of that in an asset that makes frames: spark.session()."
            )

    def _declared_type(self, context: InputContext, what: str) -> Any:
        declared = annotation_of(context)
        if declared is not Any and declared is not object:
            return declared
        chosen = input_type(context.definition_metadata or {}, what=what)
        if chosen is not None:
            return named_type(chosen, self.handlers(), f"{what}: metadata 'type'")
        return named_type(self.default_type, self.handlers(), "DeltaIOManager: default_type")


def _says_changes(session: Session, source: Any) -> bool:
    """Whether rows say what becomes of them, as those of a change query do."""
    return CHANGE_TYPE in session.schema_of(source).names


def _application(context: OutputContext, step: Any | None, partitions: PartitionSlice | None) -> AppTransaction | None:
    """The work that this write is, and the attempt; None outside of a run."""
    if step is None:
        return None
    if context.has_asset_key:
        return application(context.asset_key, partitions, step)
    return application_of_op(
        context.name if context.mapping_key is None else f"{context.name} {context.mapping_key}", step
    )


def _refuse_shared(context: OutputContext, step: Any | None, config: TableConfig) -> None:
    """Raise InvalidConfig where several runs or steps would replace each other's rows in the one table of an op's output."""
    if step is None or config.mode is not None or config.merge_keys:
        return
    mapped = context.mapping_key is not None or "[" in step.step.key
    if mapped or step.has_partition_key:
        raise InvalidConfig(
            f"{'each of the mapped steps' if mapped else 'the run of each partition'} would overwrite table {config.name}. Say how rows come "
            "together in metadata 'mode' (append, merge with 'merge_keys', or overwrite), or make it an asset with partitions."
        )


def _counted(
    context: OutputContext, session: Session, snapshot: Snapshot, partitions: PartitionSlice, config: TableConfig
) -> dict[str, int]:
    """The rows of each partition, counted in the table; nothing where they cannot be."""
    asset = context.asset_key.to_user_string()
    try:
        return {
            key: session.scan(
                snapshot.ref,
                ReadSpec(version=snapshot.version, predicate=each.predicate(config, snapshot.schema, asset)),
            ).count()
            for key, each in zip(partitions.keys, partitions.each, strict=True)
        }
    except DuckrunError as error:  # the rows are written: what only decorates the page may not fail the step
        context.log.debug(f"No counts of the partitions of {snapshot.ref}: {error}")
        return {}


def _without_rows(source: Any) -> pa.Table | None:
    """A frame that has no rows, as Arrow; None for one that has some, or is not in memory."""
    polars = type(source).__module__.startswith("polars.") and hasattr(source, "to_arrow")
    if not (polars or isinstance(source, pa.Table)) or len(source):
        return None
    return source.to_arrow() if polars else source


def _refuse_untyped(source: Any, handler: TypeHandler[Any], config: TableConfig, what: str) -> None:
    """Raise SchemaMismatch for the first rows of a partitioned table that are none, and say no type of the partition column."""
    empty = _without_rows(source)
    if empty is None:
        return
    types = {field.name.lower(): field.type for field in empty.schema}
    for named in config.partition_expr.values():
        kind = types.get(named.column.lower())
        if kind is None or handler.is_untyped(kind):
            raise SchemaMismatch(
                f"{what} has no rows, so its partition column {named.column!r} has no type, and there is no table {config.schema}.{config.table} yet to take it "
                "from. Give the frame's columns types (pandas: df.astype({'day': 'string'}); polars: schema=…), or annotate '-> Optional[…]' and return "
                "None where there is nothing to write."
            )


def _typed_as_table(source: Any, lake: Lake, ref: TableRef, handler: TypeHandler[Any]) -> Any:
    """A frame with no rows, its columns that have no type yet as the table's are; all of the table's where it has no column."""
    empty = _without_rows(source)
    if empty is None or not lake.exists(ref):
        return source
    if empty.num_columns and not any(handler.is_untyped(kind) for kind in empty.schema.types):
        return source
    table = lake.snapshot(ref).schema
    types = {field.name.lower(): field.type for field in table}
    columns = empty.schema if empty.num_columns else table
    own = [
        pa.field(each.name, types.get(each.name.lower(), each.type) if handler.is_untyped(each.type) else each.type)
        for each in columns
    ]
    return pa.schema(own).empty_table()


def _is_there(lake: Lake, ref: TableRef, pins: Pins) -> bool:
    """True if a step sees a table or a view of that name."""
    return (lake.exists(ref) and not pins.hides(ref)) or isinstance(lake.definition(ref), ViewDefinition)


def _refuse_fan_in(context: InputContext, asked: Wanted, handler: TypeHandler[Any]) -> None:
    """Raise InvalidConfig where a value for each partition cannot be given."""
    name, collection = type_name(asked.as_type), "dict" if asked.collection is dict else "list"
    if not context.has_asset_partitions:
        raise InvalidConfig(f"a {collection} has a value for each partition, and the asset has none. Annotate {name}.")
    if handler.is_handle(asked.as_type):
        raise InvalidConfig(
            f"a {name} is a handle of the whole table, not of a partition. Annotate {name} alone, or a frame."
        )


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Put what failed in front of an error of the lake, which knows the table only."""
    try:
        yield
    except DuckrunError as error:
        if str(error).startswith(what):
            raise
        raise type(error)(f"{what}: {error}") from error
