"""DeltaIOManager: the parts that are the same for every type of value.

A write is: spec from context -> engine -> commit -> metadata from the Commit. A read ends in a
scan. Everything that differs by type is in the handlers.
"""

# No "from __future__ import annotations" here: for resources that are configured at launch, Dagster
# must see the classes of nested resources, not their names.

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from dagster import AssetKey, ConfigurableIOManager, InputContext, OutputContext
from pydantic import Field

from duckrun.errors import InvalidConfig, UnsupportedFeature, outcome_of
from duckrun.lake.lake import Lake, LocationDefinition, ViewDefinition
from duckrun.libraries import pa
from duckrun.run.pins import Pins
from duckrun.run.work_log import unnoted
from duckrun.values.applying import ApplySpec
from duckrun.values.changes import CHANGE_TYPE
from duckrun.values.choices import ENGINES, EngineName
from duckrun.values.rows import AppTransaction, Commit, ReadSpec, RowSpec, WriteSpec
from duckrun.values.snapshot import TableRef
from duckrun.values.tables import feed_turned
from duckrun_dagster import metadata as meta
from duckrun_dagster.chain import application, application_of_op
from duckrun_dagster.config import (
    InputConfig,
    TableConfig,
    for_this_run,
    parse_input,
    parse_output,
    parse_table,
    refuse_to_replace,
    table_of,
)
from duckrun_dagster.contexts import annotation_of, input_name, known, naming, of_upstream, output_name, step_of
from duckrun_dagster.io_managers.annotation import Wanted, wanted
from duckrun_dagster.io_managers.empty_frames import refuse_untyped, typed_as_table
from duckrun_dagster.io_managers.handlers.handler import TableScan, TypeHandler
from duckrun_dagster.io_managers.handlers.registry import handler_of, named_type, type_name, type_names
from duckrun_dagster.io_managers.incremental import Consumer, changes_scan, consumer_of
from duckrun_dagster.io_managers.outcome import Outcome, Unwritten, Written, head_of, published
from duckrun_dagster.io_managers.partition_reads import fan_in, missing_partitions, refuse_missing
from duckrun_dagster.io_managers.table_defaults import TableDefaults, checked_defaults
from duckrun_dagster.partitions.partitions import PartitionSlice, partitions_of, read_partitions, written_partitions
from duckrun_dagster.resources import DuckrunResource, SparkResource
from duckrun_dagster.resources.arguments import KnownResource, refuse_word
from duckrun_dagster.resources.duckrun_resource import StoredTable
from duckrun_dagster.resources.launch import configured_by_field, written_otherwise

if TYPE_CHECKING:
    from duckrun.session import Session


class DeltaIOManager(KnownResource, TableDefaults, ConfigurableIOManager):
    """Assets as tables of a lake.

    The value decides the handler; the asset's metadata decides the table and how it is written.
    ``engine`` writes where metadata names none; Spark always writes a PySpark DataFrame.
    ``default_type`` is the type of an input without a type annotation: pyarrow, pyarrow_reader,
    pyarrow_dataset, pandas, polars, polars_lazy, duckdb, pyspark, deltalake, duckrun or
    duckrun_table. ``mode``, ``merge_keys``, ``schema_mode``, ``table_properties`` and the others
    are defaults for assets whose metadata does not set them. ``writes`` is for the configuration of
    a run: it writes an asset in another way this once.

    Example::

        lake = DuckrunResource(root_path="lake/")
        manager = DeltaIOManager(duckrun=lake, schema="raw")
        defs = Definitions(assets=[...], resources={"io_manager": manager})
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
        if values.get("duckrun") is None:  # pydantic's error would name Dagster's own classes
            raise InvalidConfig(f"{type(self).__name__} needs its lake: duckrun=DuckrunResource(root_path=…).")
        if isinstance(values["duckrun"], str | PathLike):
            root = str(values["duckrun"])
            raise InvalidConfig(
                f"{type(self).__name__}: duckrun is {root!r}; give DuckrunResource(root_path={root!r})."
            )
        super().__init__(**checked_defaults(type(self), values))
        refuse_word("DeltaIOManager: engine", self.engine, ENGINES)
        refuse_word("DeltaIOManager: default_type", self.default_type, type_names(self.handlers()))
        configured_by_field(self)

    @property
    def default_schema(self) -> str:
        """Return the schema of an asset whose key is one part."""
        return self.schema_ or self.duckrun.default_schema

    def handlers(self) -> Sequence[TypeHandler[Any]]:
        """Return handlers of further types; a subclass overrides this. They come first."""
        return ()

    # -- write

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write a value as one commit and report it to Dagster.

        An error leaves the table unchanged.
        """
        (published(context) or self.write(context, obj)).report(context)

    def write(self, context: OutputContext, obj: Any, *, together: bool = False) -> Outcome:
        """Write a value as one commit, which is reported once it is published.

        Args:
            context: The output that is stored.
            obj: The value.
            together: The write is part of a transaction over several tables.
        """
        step = step_of(context)
        what = output_name(context)
        with naming(what), outcome_of():
            consumer = consumer_of(step)
            nothing = self._nothing_to_write(context, obj, consumer, what)
            if nothing is not None:
                return nothing
            target = self._target(context, obj, what, together=together)
            if consumer is not None:
                refuse_to_replace(target.config, what)
            session = self.duckrun.step_session(step, target.engine, self.spark)
            source = typed_as_table(target.handler.to_source(obj), target.lake, target.ref, target.handler)
            partitions = written_partitions(context)
            if partitions is not None and not target.lake.exists(target.ref):
                refuse_untyped(source, target.handler, target.config, what)
            spec = _spec(context, step, target, session, source, partitions, consumer)
            commit = _committed(session, target, spec, source, consumer)
            head = head_of(source) if isinstance(spec, WriteSpec) else None
            return Written(what, consumer, session, target.ref, commit, target.config, partitions, self.preview, head)

    def _nothing_to_write(
        self, context: OutputContext, obj: Any, consumer: Consumer | None, what: str
    ) -> Outcome | None:
        """Return the outcome of an output without rows; None if the value has to be written.

        A consumer that has read further commits its offsets.

        Raises:
            InvalidConfig: The value is None, and the annotation does not allow it.
        """
        without = obj is None and wanted(annotation_of(context)).optional
        if consumer is not None and (consumer.begun.idle or without):
            return Unwritten(consumer, self._moved(context, consumer))
        if without:
            return Unwritten(None, f"{what} is None, as its annotation allows: nothing is written.")
        if obj is None:
            raise InvalidConfig(
                f"{what} returned None, so there is nothing to write. Return a frame, or annotate the "
                f"{'asset' if context.has_asset_key else 'op'} '-> None' (or return MaterializeResult) if it writes "
                "its data itself, or '-> Optional[…]' if it may have nothing to write."
            )
        return None

    def _moved(self, context: OutputContext, consumer: Consumer) -> str:
        """Commit how far a consumer has read, if it read anything, and return what was done."""
        lake = self.duckrun.lake(consumer.output.catalog)
        if consumer.begun.idle or not lake.exists(consumer.output):
            return f"{consumer.name}: nothing has changed since its last commit, so nothing is written."
        session = self.duckrun.step_session(step_of(context), "duckdb", self.spark)
        commit = session.move_cursor(consumer.output, consumer.begun.app)
        return f"{consumer.name}: nothing is written but how far it has read, version {commit.version}."

    def _target(self, context: OutputContext, obj: Any, what: str, *, together: bool) -> "_Target":
        """Return where and by what a value is written.

        Raises:
            InvalidConfig: The metadata or the IO manager holds an error.
            UnsupportedFeature: The engine or the format cannot do what the metadata asks for.
        """
        config, lake, ref = self._fitting(self.config_of(context), what)
        if config.publish == "together" and not together:
            raise InvalidConfig(
                "metadata 'publish' is 'together', and nothing has gathered its outputs: give the definitions to "
                "check_definitions(), or put @publish_together above the asset."
            )
        handler = handler_of(type(obj), self.handlers(), f"{what} returned a {type_name(type(obj))}; it")
        engine = self._writing_engine(config, handler, what)
        if together and engine != "duckdb":
            raise UnsupportedFeature(
                "metadata 'publish' is 'together', which is one transaction of engine duckdb, "
                "and it is written by engine spark."
            )
        with naming("DuckrunResource"):
            lake.ensure_writable(ref)
        return _Target(what, config, lake, ref, handler, engine)

    def config_of(self, context: OutputContext) -> TableConfig:
        """Return the table of an output, from its metadata, the run and this IO manager.

        Raises:
            InvalidConfig: One of them holds an error.
        """
        step, what = step_of(context), output_name(context)
        key = context.asset_key if context.has_asset_key else None
        otherwise = {} if key is None else written_otherwise(self.writes, key, step)
        metadata = for_this_run(
            context.definition_metadata or {},
            context.output_metadata or {},
            otherwise,
            what=f"{what}, for this run",
        )
        config = self._config(key, metadata, what)
        if key is None:
            _refuse_shared(context, step, config)
        return config

    def _config(self, key: AssetKey | None, metadata: Mapping[str, Any], what: str) -> TableConfig:
        """Return the table of an asset; without a key, of an output that ``what`` names."""
        schema, defaults = self.default_schema, self.table_defaults()
        if key is not None:
            return parse_table(key, metadata, default_schema=schema, defaults=defaults)
        return parse_output(metadata, default_schema=schema, what=what, defaults=defaults)

    def stored(self, key: AssetKey, metadata: Mapping[str, Any]) -> StoredTable:
        """Return the table of an asset and its lake, from the asset's metadata.

        Raises:
            InvalidConfig: The metadata holds an error.
        """
        return self.duckrun.stored(self._config(key, metadata, ""))

    def ref_of(self, context: OutputContext) -> TableRef:
        """Return the table that an output is stored as.

        Raises:
            InvalidConfig: The output's metadata holds an error.
        """
        return self.duckrun.stored(self.config_of(context)).ref

    # -- read

    def load_input(self, context: InputContext) -> Any:
        """Load the rows of an upstream asset.

        They are pinned to one version for the step, and pruned by partition, columns and predicate.
        """
        context = of_upstream(context)
        what, step = input_name(context), step_of(context)
        with naming(what):
            source = self._source(context, what)
            annotation, handler = source.annotation, source.handler
            # The first partition of an asset that reads its own previous partition reads none.
            none_wanted = source.partitions is not None and not source.partitions.keys
            if none_wanted or annotation.optional:
                pins = self.duckrun.step_session(step, "duckdb", self.spark).pins
                with unnoted() if none_wanted else nullcontext():
                    there = _is_there(source.table, pins)
                if annotation.optional and (none_wanted or not there):
                    return None
                if not there:
                    return annotation.collection() if annotation.collection else handler.nothing(annotation.as_type)
            session = self.duckrun.step_session(step, handler.engine or "duckdb", self.spark)
            scan = TableScan(session, source.table.ref, source.request.read)
            if source.request.changes is not None:
                return _changes(source, scan)
            if source.partitions is None and annotation.collection is None:
                return handler.from_scan(scan, annotation.as_type)
            return _partitions(source, scan)

    def _source(self, context: InputContext, what: str) -> "_Source":
        """Return where and as what an input is read. Raises InvalidConfig, UnsupportedFeature."""
        upstream, key = context.upstream_output, context.asset_key if context.has_asset_key else None
        if key is None and upstream is None:
            raise InvalidConfig(f"{what} comes from no asset and no op, so it has no table to be read from.")
        metadata = (upstream.definition_metadata if upstream is not None else None) or {}
        config = self._config(key, metadata, "" if upstream is None else output_name(upstream))
        request = parse_input(context.definition_metadata or {}, what=what)
        annotation = wanted(self._declared_type(context, request, what))
        handler = handler_of(annotation.as_type, self.handlers(), what)
        self._check_spark(handler.engine, f"{what} is a PySpark DataFrame")
        return _Source(context, request, self._fitting(config, what), annotation, handler, read_partitions(context))

    # -- the parts

    def _fitting(self, config: TableConfig, what: str) -> StoredTable:
        """Return a table with its lake.

        Raises InvalidConfig or UnsupportedFeature for metadata of another format than the lake's.
        """
        lake = self.duckrun.lake(config.lake)
        config.refuse_of_other_format(lake.format.name, what)
        return StoredTable(config, lake, table_of(lake, config))

    def _writing_engine(self, config: TableConfig, handler: TypeHandler[Any], what: str) -> EngineName:
        if handler.engine == "spark":
            self._check_spark("spark", f"{what} is a PySpark DataFrame, which only Spark writes")
            return "spark"
        engine = config.engine or self.engine
        refuse_word("DeltaIOManager: engine", engine, ENGINES)
        self._check_spark(engine, f"{what} is written by engine 'spark'")
        return cast(EngineName, engine)

    def _check_spark(self, engine: str | None, why: str) -> None:
        if engine == "spark" and self.spark is None:
            raise InvalidConfig(
                f"{why}, but the DeltaIOManager has no Spark. Give it spark=SparkResource(master='local[*]') "
                "(or remote='sc://host:15002'), and take the session of that in an asset that makes frames: "
                "spark.session()."
            )

    def _declared_type(self, context: InputContext, request: InputConfig, what: str) -> Any:
        declared = annotation_of(context)
        if declared is not Any and declared is not object:
            return declared
        if request.type is not None:
            return named_type(request.type, self.handlers(), f"{what}: metadata 'type'")
        return named_type(self.default_type, self.handlers(), "DeltaIOManager: default_type")


@dataclass(frozen=True)
class _Target:
    """Table, handler and engine of an output."""

    what: str
    """Name of the output in messages."""
    config: TableConfig
    lake: Lake
    ref: TableRef
    handler: TypeHandler[Any]
    engine: EngineName


def _spec(
    context: OutputContext,
    step: Any | None,
    target: _Target,
    session: "Session",
    source: Any,
    partitions: PartitionSlice | None,
    consumer: Consumer | None,
) -> RowSpec | ApplySpec:
    """Return the write of an output's rows."""
    config, predicate, layout = target.config, None, None
    if partitions is not None:
        schema = session.schema_of(source)
        predicate = partitions.predicate(config, schema, target.what.removeprefix("Asset "))
        layout = None if target.lake.exists(target.ref) else partitions.table_partitioning(config, schema)
    return config.write_spec(
        app=_application(context, step, partitions) if consumer is None else consumer.begun.app,
        # A result of a change query has the type of each change.
        applies=consumer is not None and CHANGE_TYPE in session.schema_of(source).names,
        whole=consumer is not None and consumer.begun.whole,
        predicate=predicate,
        partition_by=layout,
        description=known(lambda: context.asset_spec.description),
        column_comments=meta.declared_descriptions(context.definition_metadata or {}),
    )


def _committed(
    session: "Session", target: _Target, spec: RowSpec | ApplySpec, source: Any, consumer: Consumer | None
) -> Commit:
    """Write the rows, with what belongs to the table before and after them."""
    config, lake, ref = target.config, target.lake, target.ref
    if config.change_data_feed is not None and not lake.has_catalog and lake.exists(ref):
        turned = feed_turned(lake.snapshot(ref), config.change_data_feed)
        if turned is not None:
            session.execute(ref, turned)
    commit = session.execute(ref, spec, source)
    if consumer is not None and commit.writer == "none" and not commit.replayed:
        commit = session.move_cursor(ref, consumer.begun.app, engine=target.engine)
    if config.location is not None and lake.definition(ref) is None:
        lake.put_definition(ref, LocationDefinition(ref.location))
    return commit


def _application(context: OutputContext, step: Any | None, partitions: PartitionSlice | None) -> AppTransaction | None:
    """Return the work and the attempt of this write; None outside of a run."""
    if step is None:
        return None
    if context.has_asset_key:
        return application(context.asset_key, partitions, step)
    return application_of_op(
        context.name if context.mapping_key is None else f"{context.name} {context.mapping_key}", step
    )


def _refuse_shared(context: OutputContext, step: Any | None, config: TableConfig) -> None:
    """Raise InvalidConfig if several runs or steps would overwrite the table of an op's output."""
    if step is None or config.mode is not None or config.merge_keys:
        return
    mapped = context.mapping_key is not None or "[" in step.step.key
    if mapped or step.has_partition_key:
        raise InvalidConfig(
            f"{'each of the mapped steps' if mapped else 'the run of each partition'} would overwrite "
            f"table {config.name}. Say how rows come "
            "together in metadata 'mode' (append, merge with 'merge_keys', or overwrite), "
            "or make it an asset with partitions."
        )


@dataclass(frozen=True)
class _Source:
    """Table, handler and partitions of an input."""

    context: InputContext
    request: InputConfig
    table: StoredTable
    annotation: Wanted
    handler: TypeHandler[Any]
    partitions: PartitionSlice | None
    """The partitions to read; None for the whole table."""

    def predicate(self, partitions: PartitionSlice, schema: "pa.Schema") -> str:
        """Return the SQL predicate of some partitions."""
        return partitions.predicate(self.table.config, schema, self.context.asset_key.to_user_string())


def _changes(source: _Source, scan: TableScan) -> Any:
    """Load the changes since the last commit of the asset that is being computed."""
    consumer = consumer_of(step_of(source.context))
    if consumer is None or source.annotation.collection is not None:
        raise InvalidConfig("metadata 'changes' is for an input of an asset, as one value: there is no consumer here.")
    if source.partitions is not None:
        with unnoted():
            schema = scan.session.snapshot(scan.ref).schema
        scan = replace(scan, partitions=source.predicate(source.partitions, schema))
    changes = changes_scan(consumer, source.context.name, source.request, scan)
    return source.handler.from_scan(changes, source.annotation.as_type)


def _partitions(source: _Source, scan: TableScan) -> Any:
    """Load the rows of some partitions as one value, or as one value each."""
    context, annotation, handler = source.context, source.annotation, source.handler
    if annotation.collection is not None:
        _refuse_fan_in(context, annotation, handler)
    allowed = source.partitions is None or source.request.allow_missing_partitions
    some = source.partitions or partitions_of(context)
    whole = replace(scan, requested=ReadSpec(version=scan.requested.version, timestamp=scan.requested.timestamp))
    missing: list[str] = []
    with unnoted():  # these rows are not part of the value
        schema = whole.frame().schema

        def predicate(these: PartitionSlice) -> str:
            return source.predicate(these, schema)

        if not allowed or annotation.optional or annotation.collection is not None:
            # A test's context without an instance knows of none.
            materialized = known(lambda: context.instance.get_materialized_partitions(context.asset_key), ())
            missing = missing_partitions(whole, some, materialized, predicate)
            if annotation.optional and some.keys and len(missing) == len(some.keys):
                return None
            if not allowed and not annotation.optional_each:
                refuse_missing(whole, missing, materialized)
    if annotation.collection is not None:
        return fan_in(scan, some, missing, predicate, annotation, handler)
    return handler.from_scan(replace(scan, partitions=predicate(some)), annotation.as_type)


def _is_there(table: StoredTable, pins: Pins) -> bool:
    """Return True if a step sees a table or a view of that name."""
    _, lake, ref = table
    return (lake.exists(ref) and not pins.hides(ref)) or isinstance(lake.definition(ref), ViewDefinition)


def _refuse_fan_in(context: InputContext, annotation: Wanted, handler: TypeHandler[Any]) -> None:
    """Raise InvalidConfig if the input cannot have one value per partition."""
    name, collection = type_name(annotation.as_type), "dict" if annotation.collection is dict else "list"
    if not context.has_asset_partitions:
        raise InvalidConfig(f"a {collection} has a value for each partition, and the asset has none. Annotate {name}.")
    if handler.is_handle(annotation.as_type):
        raise InvalidConfig(
            f"a {name} is a handle of the whole table, not of a partition. Annotate {name} alone, or a frame."
        )
