"""DeltaIOManager: what is the same for every type of value, once.

spec from context -> engine -> write or scan -> metadata from the Commit. What differs by type is in the handlers.
"""

# No "from __future__ import annotations" here: Dagster must see the classes of nested resources, not their names, to
# take them configured at launch.

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from dagster import ConfigurableIOManager, DagsterInvariantViolationError, DataVersion, InputContext, OutputContext
from pydantic import Field

from duckrun.errors import DuckrunError, InvalidConfig
from duckrun.frame import Frame
from duckrun.lake import LocationDefinition, ViewDefinition
from duckrun.session import Session
from duckrun.specs import AppTransaction, Commit, EngineName, ReadSpec
from duckrun.sql import quote_identifier
from duckrun.table import TableRef
from duckrun_dagster import metadata as meta
from duckrun_dagster.chain import application, chain_of
from duckrun_dagster.io_managers.duckdb_handler import DuckDBHandler
from duckrun_dagster.io_managers.handler import TypeHandler
from duckrun_dagster.io_managers.pandas_handler import PandasHandler
from duckrun_dagster.io_managers.polars_handler import PolarsHandler
from duckrun_dagster.io_managers.pyarrow_handler import PyArrowHandler
from duckrun_dagster.io_managers.pyspark_handler import PySparkHandler
from duckrun_dagster.io_managers.sql_handler import SQLHandler
from duckrun_dagster.partitions import PartitionSlice, read_partitions, written_partitions
from duckrun_dagster.resources import DuckrunResource, SparkResource
from duckrun_dagster.table_config import ENGINES, TableConfig, parse_input, parse_table

HANDLERS: tuple[TypeHandler[Any], ...] = (
    PyArrowHandler(),
    PandasHandler(),
    PolarsHandler(),
    DuckDBHandler(),
    PySparkHandler(),
    SQLHandler(),
)

_PREVIEW_ROWS = 10
_PREVIEW_BYTES = 64 * 1024 * 1024


class DeltaIOManager(ConfigurableIOManager):
    """Assets as Delta tables of a lake.

    The value decides the handler, the asset's metadata the table and how it is written. ``engine`` writes what no
    metadata says otherwise of; a PySpark DataFrame is always Spark's. ``default_type`` is what an input without a type
    annotation gets: pyarrow, pyarrow_reader, pandas, polars, polars_lazy, duckdb or pyspark.

    Example::

        lake = DuckrunResource(root_path="lake/")
        defs = Definitions(assets=[...], resources={"io_manager": DeltaIOManager(duckrun=lake, schema="raw")})
    """

    duckrun: DuckrunResource
    spark: SparkResource | None = None
    engine: str = Field(default="duckdb", description="duckdb or spark.")
    schema_: str | None = Field(default=None, alias="schema", description="Schema of assets whose key is one part.")
    default_type: str = Field(default="pyarrow", description="The type of an input that declares none.")
    preview: bool = Field(default=True, description="Show the first rows of a table that is small.")

    @property
    def default_schema(self) -> str:
        """The schema of an asset whose key is one part."""
        return self.schema_ or self.duckrun.lake().default_schema

    def handlers(self) -> Sequence[TypeHandler[Any]]:
        """The types that this IO manager knows. A subclass adds its own."""
        return HANDLERS

    # -- write

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write a value as one commit, and tell Dagster what it did. On an error the table is as it was."""
        if not context.has_asset_key:
            raise InvalidConfig(
                f"Output {context.name!r} of op {context.op_def.name} is no asset, so it has no table. "
                "Make it an asset, or give the op's output another io_manager_key."
            )
        asset = context.asset_key.to_user_string()
        with _naming(f"Asset {asset}"):
            config = parse_table(context.asset_key, context.definition_metadata, default_schema=self.default_schema)
            handler = self._handler_of_value(obj, asset)
            engine = self._writing_engine(config, handler, asset)
            lake = self.duckrun.lake()
            ref = self._ref(config)
            with _naming("DuckrunResource"):
                lake.ensure_writable(ref)
            session = self._session(context, engine)
            source = handler.to_source(obj)
            partitions = written_partitions(context)
            predicate, layout = None, None
            if partitions is not None:
                schema = session.schema_of(source)
                predicate = partitions.predicate(config, schema, asset)
                layout = None if lake.exists(ref) else partitions.table_partitioning(config, schema)
            spec = config.write_spec(
                app=_application(context, partitions),
                predicate=predicate,
                partition_by=layout,
                description=context.asset_spec.description,
                column_comments=meta.declared_descriptions(context.definition_metadata),
            )
            commit = session.execute(ref, spec, source)
            if config.location is not None and lake.definition(ref) is None:
                lake.put_definition(ref, LocationDefinition(ref.location))
            self._report(context, session, ref, commit, config, partitions)

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
        step = _step(context)
        snapshot = self.duckrun.lake().snapshot(ref, commit.version)
        values = {
            **meta.commit_metadata(commit),
            **meta.table_metadata(snapshot, meta.declared_descriptions(context.definition_metadata)),
        }
        if partitions is not None:
            counts = meta.partition_row_counts(snapshot, partitions, config.partition_column())
            if (
                not counts
                and len(partitions.keys) == 1
                and commit.mode == "replace"
                and commit.rows_inserted is not None
            ):
                counts = {partitions.keys[0]: commit.rows_inserted}
            if step is not None:
                for key, rows in counts.items():
                    step.add_asset_metadata({"dagster/partition_row_count": rows}, context.asset_key, key)
        if self.preview and sum(file.size for file in snapshot.files()) <= _PREVIEW_BYTES:
            try:
                head = session.scan(ref, ReadSpec(version=commit.version)).limit(_PREVIEW_ROWS)
                values["preview"] = meta.preview(head.toArrow())
            except Exception as error:  # the rows are written: what only decorates the page may not fail the step
                context.log.debug(f"No preview of table {ref}: {error}")
        if step is not None and not step.has_data_version(context.asset_key):
            step.set_data_version(context.asset_key, DataVersion(meta.data_version(snapshot)))
        context.add_output_metadata(values)
        context.log.info(
            f"{commit.mode} {ref}: version {commit.version} by {commit.engine} ({commit.writer}) in {commit.seconds:.2f} s"
            + (", committed before by this chain and not written again" if commit.replayed else "")
        )

    # -- read

    def load_input(self, context: InputContext) -> Any:
        """The rows of an upstream asset: pinned to one version for the step, pruned by partition, columns, predicate."""
        if not context.has_asset_key:
            raise InvalidConfig(f"Input {context.name!r} comes from no asset, so it has no table to be read from.")
        asset = context.asset_key.to_user_string()
        what = f"Input {context.name!r} (asset {asset})" if context.has_input_name else f"Asset {asset}"
        upstream = context.upstream_output
        with _naming(what):
            config = parse_table(
                context.asset_key,
                (upstream.definition_metadata if upstream is not None else None) or {},
                default_schema=self.default_schema,
            )
            read = parse_input(context.definition_metadata or {}, what=what)
            as_type = self._declared_type(context)
            handler = self._handler_of_type(as_type, what)
            engine = handler.engine or "duckdb"
            self._check_spark(engine, f"{what} is a PySpark DataFrame")
            ref = self._ref(config)
            session = self._session(context, engine)
            spec = self._narrowed(read, read_partitions(context), session, ref, config, asset)
            return handler.from_scan(_scan(session, ref, spec), as_type)

    def _narrowed(
        self,
        read: ReadSpec,
        partitions: PartitionSlice | None,
        session: Session,
        ref: TableRef,
        config: TableConfig,
        asset: str,
    ) -> ReadSpec:
        """A read with the partitions of the step added to its predicate."""
        if partitions is None:
            return read
        whole = ReadSpec(version=read.version, timestamp=read.timestamp)
        predicate = partitions.predicate(config, _scan(session, ref, whole).schema, asset)
        if read.predicate is not None:
            predicate = f"({predicate}) AND ({read.predicate})"
        return ReadSpec(read.columns, predicate, read.version, read.timestamp, read.dialect)

    # -- the parts

    def _ref(self, config: TableConfig) -> TableRef:
        lake = self.duckrun.lake()
        if config.location is None:
            return lake.resolve(config.schema, config.table)
        absolute = "://" in config.location or config.location.startswith(("/", "~"))
        location = config.location if absolute else f"{lake.root}/{config.location}"
        return lake.at(location, schema=config.schema, name=config.table)

    def _session(self, context: OutputContext | InputContext, engine: EngineName) -> Session:
        step = _step(context)
        if step is None:
            return self.duckrun.session(engine, spark=self.spark)
        return self.duckrun.step_session(step, engine, self.spark)

    def _writing_engine(self, config: TableConfig, handler: TypeHandler[Any], asset: str) -> EngineName:
        if handler.engine == "spark":
            self._check_spark("spark", f"Asset {asset} gave a PySpark DataFrame, which only Spark writes")
            return "spark"
        engine = config.engine or self.engine
        if engine not in ENGINES:
            raise InvalidConfig(f"DeltaIOManager: engine is {engine!r}; it takes one of {', '.join(ENGINES)}.")
        self._check_spark(engine, f"Asset {asset} is written by engine 'spark'")
        return cast(EngineName, engine)

    def _check_spark(self, engine: str, why: str) -> None:
        if engine == "spark" and self.spark is None:
            raise InvalidConfig(
                f"{why}, but the DeltaIOManager has no Spark. Give it spark=SparkResource(master='local[*]') "
                "(or remote='sc://host:15002')."
            )

    def _handler_of_value(self, value: Any, asset: str) -> TypeHandler[Any]:
        if value is None:
            raise InvalidConfig(
                f"Asset {asset} returned None, so there is nothing to write. Return a frame, or annotate the asset "
                "'-> None' (or return MaterializeResult) if it writes its data itself."
            )
        return self._handler_of_type(type(value), f"Asset {asset} returned a {_type_name(type(value))}; it")

    def _handler_of_type(self, declared: Any, what: str) -> TypeHandler[Any]:
        for handler in self.handlers():
            if handler.handles(declared):
                return handler
        known = [_type_name(t) for handler in self.handlers() for t in handler.types if isinstance(t, type)]
        raise InvalidConfig(
            f"{what} has type {_type_name(declared)}, which DeltaIOManager does not know. "
            f"It knows {', '.join(known)} and pyspark.sql.DataFrame."
        )

    def _declared_type(self, context: InputContext) -> Any:
        declared = context.dagster_type.typing_type
        if declared is not Any and declared is not object:
            return declared
        if self.default_type == "pyspark":
            from pyspark.sql import DataFrame

            return DataFrame
        names = {name: as_type for handler in self.handlers() for name, as_type in handler.names.items()}
        if self.default_type not in names:
            raise InvalidConfig(
                f"DeltaIOManager: default_type is {self.default_type!r}; it takes one of {', '.join(names)}, pyspark."
            )
        return names[self.default_type]


def _step(context: OutputContext | InputContext) -> Any | None:
    """The step that a context belongs to; None where somebody loads or stores a value outside of a run."""
    try:
        return context.step_context
    except DagsterInvariantViolationError:
        return None


def _application(context: OutputContext, partitions: PartitionSlice | None) -> AppTransaction | None:
    """What names this write, so that a retry does not repeat it."""
    step = _step(context)
    if step is None:
        return None
    return application(context.asset_key, partitions, chain_of(step.dagster_run, step.instance))


def _scan(session: Session, ref: TableRef, spec: ReadSpec) -> Frame:
    """The rows of a table, or of a persisted view, which has no versions of its own."""
    if not isinstance(session.lake.definition(ref), ViewDefinition):
        return session.scan(ref, spec)
    if spec.version is not None or spec.timestamp is not None:
        raise InvalidConfig(f"{ref} is a view, which has no versions: leave out 'version' and 'timestamp'.")
    columns = "*" if spec.columns is None else ", ".join(quote_identifier(column) for column in spec.columns)
    where = "" if spec.predicate is None else f" WHERE {spec.predicate}"
    return session.sql(f"SELECT {columns} FROM {quote_identifier(ref.schema, ref.name)}{where}")


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Put what failed in front of an error of the lake, which knows the table only."""
    try:
        yield
    except DuckrunError as error:
        if str(error).startswith(what):
            raise
        raise type(error)(f"{what}: {error}") from error


def _type_name(declared: Any) -> str:
    if not isinstance(declared, type):
        return str(declared)
    module = declared.__module__.split(".")[0].lstrip("_")
    return declared.__name__ if module == "builtins" else f"{module}.{declared.__name__}"
