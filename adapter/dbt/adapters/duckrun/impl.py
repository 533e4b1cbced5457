"""The adapter: dbt-duckdb with relations in a lake. Each macro calls one method of this class."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import click
import duckdb
from dbt.adapters.base import BaseRelation, available
from dbt.adapters.base.impl import ConstraintSupport
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.duckdb.connections import DuckDBConnectionManager
from dbt.adapters.duckdb.impl import DuckDBAdapter
from dbt.adapters.duckrun import collector, spark
from dbt.adapters.duckrun.connections import DuckrunConnectionManager
from dbt.adapters.duckrun.model.choices import COMMANDS
from dbt.adapters.duckrun.model.node import Node, current, running
from dbt.adapters.duckrun.on_demand import (
    builds,
    changed,
    configs,
    constraints,
    docs,
    environment,
    external,
    lake_format,
    response,
    rows,
    snapshots,
    stages,
    statements,
    strategies,
    together,
)
from dbt.adapters.duckrun.relation import DuckrunColumn, DuckrunRelation, quoted
from dbt.adapters.events.types import ConstraintNotSupported
from dbt.adapters.exceptions import RelationTypeNullError
from dbt_common.behavior_flags import Behavior, BehaviorFlag, BehaviorFlagRendered
from dbt_common.contracts.constraints import ConstraintType
from dbt_common.contracts.metadata import CatalogTable
from dbt_common.events.functions import warn_or_error
from dbt_common.exceptions import CompilationError, DbtRuntimeError

from duckrun.errors import DuckrunError, InvalidConfig, UnsupportedFeature, outcome_of
from duckrun.run.work_log import unnoted
from duckrun.values.choices import WriterChoice

if TYPE_CHECKING:
    from dbt.adapters.duckrun.environment import LakeEnvironment
    from dbt.adapters.duckrun.materialize.build import Build
    from dbt.adapters.duckrun.materialize.response import DuckrunResponse
    from dbt.adapters.duckrun.materialize.snapshots import SnapshotColumns
    from dbt.adapters.duckrun.materialize.stage import DuckDBStage
    from dbt.adapters.duckrun.model.config import ModelConfig

# Commands that write to the lake: an unwritable root fails them before anything runs.
_WRITING_COMMANDS = {"run", "build", "seed", "snapshot", "retry", "clone", "run-operation"}


@contextmanager
def dbt_errors(*, writes: bool = False) -> Iterator[None]:
    """Turn the lake's errors into dbt's.

    Args:
        writes: The block writes, so that an error tells what was committed.
    """
    # dbt prints its own errors in one paragraph, and every other error with a traceback.
    try:
        with outcome_of(writes=writes):
            yield
    except strategies.OutOfSync as error:
        raise CompilationError(str(error)) from error
    except (DuckrunError, duckdb.Error) as error:
        raise DbtRuntimeError(str(error)) from error


class _Flag(BehaviorFlagRendered):
    """A behavior flag of dbt, whose default source is known."""

    # dbt looks for it in the stack, with the text around each frame's line: 25 ms per flag, also if
    # the flag names its source (dbt-common 1.39).
    @staticmethod
    def _default_source() -> str:
        return "dbt.adapters.base.impl"


class _Behavior(Behavior):
    """dbt's behavior flags, created without a look at the stack."""

    def __init__(self, flags: list[BehaviorFlag], user_overrides: dict[str, Any]) -> None:
        super().__init__([], {})
        self._by_name = {flag["name"]: _Flag(flag, user_overrides) for flag in flags}

    def __getattr__(self, name: str) -> BehaviorFlagRendered:
        return self._by_name[name] if name in self._by_name else super().__getattr__(name)


class DuckrunAdapter(DuckDBAdapter):
    """The dbt adapter. Methods that are marked ``available`` are called by macros."""

    ConnectionManager = DuckrunConnectionManager
    Relation = DuckrunRelation
    Column = DuckrunColumn
    connections: DuckrunConnectionManager
    _behavior: Behavior

    # Row constraints are checked during the write, keys by a query before it; foreign keys are not.
    CONSTRAINT_SUPPORT = {
        **DuckDBAdapter.CONSTRAINT_SUPPORT,
        ConstraintType.foreign_key: ConstraintSupport.NOT_SUPPORTED,
    }

    def __init__(self, config: Any, mp_context: Any) -> None:
        super().__init__(config, mp_context)
        # dbt makes the adapter before it loads the manifest. Without a command, such as in
        # dagster-dbt's own process, nothing would end the block.
        command = click.get_current_context(silent=True)
        if command is not None:
            command.with_resource(collector.sparing())

    @property
    def behavior(self) -> Behavior:
        return self._behavior

    @behavior.setter
    def behavior(self, flags: list[BehaviorFlag]) -> None:
        self._behavior = _Behavior([*flags, *self._behavior_flags], getattr(self.config, "flags", {}))

    # -- where things are

    @property
    def env(self) -> LakeEnvironment:
        return self.connections.lake_env()

    def _no_lake(self, database: str | None) -> str:
        others = ", ".join(self.config.credentials.lakes or {}) or "none"
        return (
            f"Database {database!r} is not a lake of this profile. Remove database from the config, "
            "or name the lake in "
            f"the profile's lakes: (now {others})."
        )

    # -- engines

    @contextmanager
    def connection_named(
        self, name: str, query_header_context: Any = None, should_release_connection: bool = True
    ) -> Iterator[None]:
        """Name a connection for the node that dbt runs.

        From then on this thread's statements belong to that node.
        """
        node = Node("", self.config.credentials.engine)
        if query_header_context is not None:
            known: Any = getattr(self.get_macro_resolver(), "nodes", {})  # dbt's manifest
            with dbt_errors():
                node = Node.of(query_header_context, known, self.config.credentials.engine)
        with running(node), super().connection_named(name, query_header_context, should_release_connection):
            if self.config.credentials.publishes_together:
                self._begin(node, query_header_context)
            yield

    def _begin(self, node: Node, of: Any) -> None:
        """Begin the transaction of a run that is published together.

        Unsupported runs and nodes are refused.
        """
        if self._command() not in COMMANDS:
            return
        if _is_retry():
            raise DbtRuntimeError(
                "dbt retry goes with no publish: together: what had succeeded in the run before was not published. "
                "Run all of it again."
            )
        if self.config.threads != 1:
            raise DbtRuntimeError(
                "publish: together is one transaction of one connection, "
                f"and this run has {self.config.threads} threads: set threads: 1, or publish: each."
            )
        if node.engine == "spark":
            raise DbtRuntimeError(
                f"{node.name} runs on Spark, which cannot write in the transaction of publish: together: "
                "set engine: duckdb, or publish: each."
            )
        with dbt_errors():
            known = self.get_macro_resolver()
            self.env.begin(together.relations_elsewhere(known, self.config.credentials.database))
        run = self.env.together
        if run is not None and node.name:
            run.refuse_after_failure(node.name, str(getattr(of, "resource_type", "")))

    def cleanup_connections(self) -> None:
        """Publish the run's transaction or roll it back, then close the connections."""
        env = DuckDBConnectionManager._ENV
        try:
            # First for None: a command that opened no lake imports no module of an open one.
            if (
                env is not None
                and isinstance(env, environment.LakeEnvironment)
                and env.creds is self.config.credentials
            ):
                env.end()
        finally:
            super().cleanup_connections()

    def _command(self) -> str | None:
        """Return dbt's command; None for `dbt debug`, which has a profile and no arguments."""
        return getattr(getattr(self.config, "args", None), "which", None)

    def _node(self) -> Node:
        return current() or Node("", self.config.credentials.engine)

    def execute_macro(self, macro_name: str, *args: Any, **kwargs: Any) -> Any:
        """Run a macro for the adapter itself, on DuckDB except for freshness."""
        # These macros need names and columns (and seeds' CSV), which DuckDB knows for every node.
        # Only freshness reads rows.
        node = self._node()
        if "freshness" not in macro_name:
            node = replace(node, engine="duckdb", dialect="duckdb")
        with running(node):
            return super().execute_macro(macro_name, *args, **kwargs)

    @available.parse(lambda *a, **k: False)
    def on_spark(self) -> bool:
        """Return True if the statements of this node run on Spark."""
        return self._node().engine == "spark"

    @available.parse_none
    def needs_duckdb(self, what: str) -> None:
        """Refuse a feature that a Spark node or a run that is published together does not have."""
        if self.on_spark():
            raise DbtRuntimeError(f"{self._node().name}: {what} is DuckDB's; set engine: duckdb for this node.")
        if self.env.together is not None:
            raise DbtRuntimeError(
                f"{self._node().name}: {what} writes a file, which others see at once, "
                "and publish: together shows all of a run or nothing. Leave it "
                "out of this run, or set publish: each."
            )

    @classmethod
    def quote(cls, identifier: str) -> str:
        return quoted(identifier)

    # -- before a run

    def debug_query(self) -> None:
        with dbt_errors():
            self.env.lake.storage.check_writable()
        super().debug_query()

    def set_relations_cache(self, *args: Any, **kwargs: Any) -> None:
        if self._command() in _WRITING_COMMANDS:
            with dbt_errors():
                self.env.lake.storage.check_writable()
        nodes = kwargs["relation_configs"] if "relation_configs" in kwargs else args[0]
        with dbt_errors():
            self._refuse_other_formats(nodes)
            self._refuse_twins(nodes)
        super().set_relations_cache(*args, **kwargs)

    def _refuse_other_formats(self, nodes: Iterable[Any]) -> None:
        """Raise InvalidConfig for a node whose format differs from its lake's.

        It is raised before anything runs.
        """
        for node in nodes:
            extra = getattr(getattr(node, "config", None), "_extra", None) or {}
            if "format" in extra and self.env.catalog(node.database) is not None:
                config = {"format": extra["format"], "materialized": node.config.materialized}
                lake_format.refuse_other_format(str(node.unique_id), config, *self._lake_and_format(node.database))

    def _refuse_twins(self, nodes: Iterable[Any]) -> None:
        """Raise InvalidConfig for two nodes of one table, whose names differ by letter case alone.

        dbt compares the spelling of names. The second node would replace the first one's rows.
        """
        nodes_of: dict[tuple[str, ...], str] = {}
        for node in sorted(nodes, key=lambda node: str(node.unique_id)):
            if self.env.catalog(node.database) is not None:
                key = tuple(name.lower() for name in (node.database, node.schema, node.alias))
                if (other := nodes_of.setdefault(key, node.unique_id)) != node.unique_id:
                    raise InvalidConfig(
                        f"{other} and {node.unique_id} are one table, {node.schema}.{node.alias}: letter case does "
                        "not tell names apart",
                        remedy="give one of them another alias or schema",
                    )

    def _catalog_supports_foreign_keys(self, database: str) -> bool:
        # Saves dbt-duckdb's queries of DuckDB's constraints before each node.
        return self.env.catalog(database) is None and super()._catalog_supports_foreign_keys(database)

    # -- discovery

    def list_schemas(self, database: str) -> list[str]:
        schemas = super().list_schemas(database)
        views = self.env.catalog(database)
        if views is None:
            return schemas
        with dbt_errors():
            return sorted({*schemas, *views.lake.schemas()})

    @available.parse(lambda *a, **k: False)
    def check_schema_exists(self, database: str, schema: str) -> bool:
        return schema.lower() in {name.lower() for name in self.list_schemas(database)}

    @available.parse_none
    def get_relation(self, database: str | None, schema: str, identifier: str) -> BaseRelation | None:
        """Return a relation as dbt does; None for a table that an older attempt created.

        Only an older attempt of the same node counts. So ``is_incremental()`` is false in each
        attempt.
        """
        relation = super().get_relation(database, schema, identifier)
        if relation is None:
            return self._twin(database, schema, identifier)
        with dbt_errors():
            return None if self.env.is_to_make(database, schema, identifier) else relation

    def _twin(self, database: str | None, schema: str, identifier: str) -> BaseRelation | None:
        """Return a relation whose name another one shares except for letter case; else None."""
        views = self.env.catalog(database)
        with dbt_errors():
            if views is None or not views.lake.is_name(schema, identifier) or not views.is_twin(schema, identifier):
                return None
            kind = views.names(views.schema(schema)).get(views.name(schema, identifier))
        return None if kind is None else self._relation(database or self.env.creds.database, schema, identifier, kind)

    def _relation(self, database: str | None, schema: str, name: str, kind: str) -> BaseRelation:
        return self.Relation.create(
            database=database,
            schema=schema,
            identifier=name,
            type=self.Relation.get_relation_type(kind),
            quote_policy={"database": True, "schema": True, "identifier": True},
        )

    def list_relations_without_caching(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        """Return the lake's tables and views, and DuckDB's other relations in the schema.

        The others are loaded sources, for example.
        """
        views = self.env.catalog(schema_relation.database)
        if views is None or not schema_relation.schema:
            return super().list_relations_without_caching(schema_relation)
        with dbt_errors():
            schema = schema_relation.schema
            kinds, views_made = views.names(schema, fresh=True), views.made(schema)
        others = [
            r
            for r in super().list_relations_without_caching(schema_relation)
            if r.identifier not in kinds and r.identifier not in views_made
        ]
        return others + [
            self._relation(schema_relation.database, schema, name, kind)
            for name, kind in kinds.items()
            if not views.is_twin(schema, name)  # dbt's cache has one entry for twins; get_relation() finds each
        ]

    # -- changes of relations

    def drop_relation(self, relation: BaseRelation) -> None:
        """Drop a table or a persisted view of a lake; any other relation is DuckDB's own."""
        if relation.type is None:
            raise RelationTypeNullError(relation)
        if _is_temporary(relation) and self.on_spark():
            self._stage().drop(relation)
            return
        with dbt_errors(writes=True):
            ref = self.env.present(relation)
            if ref is None:
                super().drop_relation(relation)
                return
            self.env.views_of(ref).refuse_twin(ref)
            statements.drop(self.env, ref)
            self.cache_dropped(relation)

    def create_schema(self, relation: BaseRelation) -> None:
        """Create the DuckDB schema of the views; in the lake, its first table creates it."""
        views = self.env.catalog(relation.database)
        if views is None:
            raise DbtRuntimeError(f"Schema {relation.schema} cannot be made. {self._no_lake(relation.database)}")
        with dbt_errors(writes=True):
            self.env.refuse_elsewhere(f"Schema {relation.schema} of {relation.database}", views.lake)
        super().create_schema(relation)

    def drop_schema(self, relation: BaseRelation) -> None:
        views = self.env.catalog(relation.database)
        if views is not None and relation.schema:
            with dbt_errors(writes=True):
                statements.drop_schema(self.env, views, relation.schema)
        if relation.schema == "main":  # DuckDB's own schema cannot be dropped
            self.cache.drop_schema(relation.database, relation.schema)
            return
        super().drop_schema(relation)

    def truncate_relation(self, relation: BaseRelation) -> None:
        ref = self.env.ref_of(relation)
        with dbt_errors(writes=True):
            if ref is None or not self.env.lakes.of(ref).exists(ref):
                super().truncate_relation(relation)
                return
            self._stage().engine.execute(
                rows.DeleteSpec(), None, self.env.transaction(ref, f"truncate/{ref}", rows=False)
            )
            self.env.views_of(ref).changed(ref)

    def rename_relation(self, from_relation: BaseRelation, to_relation: BaseRelation) -> None:
        """Rename a table or view of a lake in one step; any other relation is DuckDB's own."""
        with dbt_errors(writes=True):
            ref, new = self.env.present(from_relation), self.env.ref_of(to_relation)
            if ref is not None:
                if new is None or self.env.lakes.of(new) is not self.env.lakes.of(ref):
                    raise InvalidConfig(
                        f"{from_relation} cannot be renamed to {to_relation}, which is no name of its lake."
                    )
                self.env.views_of(ref).refuse_twin(ref)
                statements.rename(self.env, ref, new)
                self.cache_renamed(from_relation, to_relation)
                return
        super().rename_relation(from_relation, to_relation)

    # -- materializations

    @available.parse_none
    @dbt_errors(writes=True)
    def model_config(self, model: Mapping[str, Any]) -> ModelConfig:
        """Return the config of a node, parsed once for all methods that write the node."""
        config = configs.parse_model(model)
        for kind in constraints.unsupported_constraints(model):
            warn_or_error(ConstraintNotSupported(constraint=kind, adapter=self.type()))
        views = self.env.catalog(model.get("database"))
        if views is not None:
            lake_format.refuse_words(config, model, *self._lake_and_format(model.get("database")))
            if config.writer == "auto" and not self.on_spark() and views.lake.format.logs is not None:
                config = replace(config, writer=rows.preferred(cast(WriterChoice, self.env.creds.writer)))
        return config

    def _lake_and_format(self, database: str | None) -> tuple[str, str]:
        """Return the name of a database's lake for errors, and its format."""
        views = self.env.catalog(database)
        assert views is not None, "a database of a lake"
        name = "" if views.lake.name is None else f"{views.lake.name} "
        return f"lake {name}{views.lake.root}", views.lake.format.name

    @available.parse(lambda *a, **k: strategies.OVERWRITE)
    def write_strategy(self, config: ModelConfig, existing: BaseRelation | None, full_refresh: bool) -> str:
        """Return how an incremental model writes now: overwrite, or its incremental strategy."""
        exists = existing is not None and existing.is_table
        with dbt_errors(writes=True):
            return strategies.write_strategy(config, exists_as_table=exists, full_refresh=bool(full_refresh))

    @available
    def snapshot_strategy(self, columns: Mapping[str, str], open_until: str | None) -> SnapshotColumns:
        """Return the columns for the merge of the rows of dbt's snapshot query."""
        return snapshots.SnapshotColumns(columns["dbt_scd_id"], columns["dbt_valid_to"], open_until)

    @available.parse(lambda *a, **k: "")
    @dbt_errors()
    def changes(
        self,
        model: Mapping[str, Any],
        this: BaseRelation,
        relation: BaseRelation,
        kind: str | None,
        key: Any = None,
        columns: Any = None,
        predicate: str | None = None,
        full_refresh: bool = False,
    ) -> str:
        """Return the SQL name of a table's changes since a model's last commit.

        The macro ``changes()`` calls it.

        Raises:
            InvalidConfig: The model is not incremental, the relation is not a table of a lake, or
                the kind is unknown.
            UnsupportedFeature: The run is published together.
        """
        config = model.get("config") or {}
        node = str(model.get("unique_id", "model"))
        if self.env.together is not None:
            raise UnsupportedFeature(
                f"{node}: changes() reads what was committed, "
                "and with publish: together nothing is before the run ends. Set publish: each."
            )
        change_spec = changed.parse_changes(node, config, kind, key, columns, predicate)
        ref, output = self.env.present(relation), self.env.ref_of(this)
        if ref is None or not self.env.lakes.of(ref).exists(ref) or output is None:
            raise InvalidConfig(
                f"{node}: changes() of {relation}, which is no table of a lake: views have no versions."
            )
        if relation.limit == 0:  # dbt's --empty: columns without rows, and no offset is recorded
            return str(relation)
        if config.get("location"):
            raise InvalidConfig(
                f"{node}: changes() goes with no location: the table of the model is where its schema and name say."
            )
        request = self.env.changes.ask(node, output, ref, change_spec)
        step = self.env.changes.begin(node, output, full_refresh=full_refresh, note=False)
        return self._stage().show_changes(request, step)

    @available.parse_none
    @dbt_errors(writes=True)
    def build_delta(
        self, relation: BaseRelation, config: ModelConfig, strategy: str | SnapshotColumns, sql: str
    ) -> DuckrunResponse:
        """Run a model's SQL and write its rows to its table, as one commit."""
        build = self._build(relation, config)
        build.run_header()
        return build.table(strategy, sql)

    @available.parse_none
    @dbt_errors(writes=True)
    def store(
        self, relation: BaseRelation, config: ModelConfig, strategy: str, staging: BaseRelation
    ) -> DuckrunResponse:
        """Write a staged relation to the table of a model or seed, as one commit.

        The staged relation is dropped.
        """
        try:
            return self._build(relation, config).table(strategy, f"select * from {staging.render()}")
        finally:
            self._stage().drop(staging)

    @available.parse_none
    @dbt_errors(writes=True)
    def build_view(self, relation: BaseRelation, config: ModelConfig, sql: str) -> DuckrunResponse:
        """Persist a view in the lake for every process and engine, in place of a table."""
        build = self._build(relation, config)
        build.run_header()
        return build.view(sql)

    @available.parse_none
    @dbt_errors(writes=True)
    def build_external(
        self,
        relation: BaseRelation,
        model: Mapping[str, Any],
        staging: BaseRelation,
        location: str,
        options: dict[str, Any],
    ) -> DuckrunResponse:
        """Copy a staged relation to a file, persist a view over the file, and drop the relation."""
        try:
            written = self.external_write_options(location, options)
            read = self.external_read_location(location, options)
            file = external.ExternalFile.parse(model, location, written, read, options)
            return external.build_external(self._build(relation, configs.parse_model(model)), staging.render(), file)
        finally:
            self._stage().drop(staging)

    def _build(self, relation: BaseRelation, config: ModelConfig) -> Build:
        """Return a node's write of a table.

        Raises for a database that is no lake and for a bad name.
        """
        views = self.env.catalog(relation.database)
        if views is None:
            problem = f"{config.node}: {relation} cannot be written."
            raise UnsupportedFeature(f"{problem} {self._no_lake(relation.database)}")
        schema = views.schema(relation.schema or "")
        ref = views.lake.resolve(schema, views.name(schema, relation.identifier or ""))
        views.refuse_twin(ref)
        return builds.Build(self.env, self._stage(), ref, config)

    def _stage(self) -> DuckDBStage | spark.SparkStage:
        """Return the staging area of this node's rows."""
        if self.on_spark():
            with dbt_errors():
                return spark.SparkStage(self.connections.spark_session(), self._node())
        return self._duckdb_stage()

    def _duckdb_stage(self) -> DuckDBStage:
        return stages.DuckDBStage(self.env, self._node(), self.connections.raw_cursor(), self.execute)

    @available.parse_none
    def load_seed(
        self, relation: BaseRelation, model: Mapping[str, Any], agate_table: Any, config: Any
    ) -> DuckrunResponse:
        """Load a CSV into a staging table by dbt-duckdb's macros, and write it to the seed's table.

        The macros get the staging table as ``this``. So types, delimiters, quoting and ``fast``
        have their usual meaning.
        """
        parsed, duckdb_stage, stage = self.model_config(model), self._duckdb_stage(), self._stage()
        staging = duckdb_stage.new_relation(relation)
        override = {"this": staging, "config": config, "model": model}
        arguments = {"model": model, "agate_table": agate_table}
        self.execute_macro("create_csv_table", context_override=override, kwargs=arguments)
        if agate_table.rows:
            self.execute_macro("load_csv_rows", context_override=override, kwargs=arguments)
        if not isinstance(stage, stages.DuckDBStage):
            rows = duckdb_stage.cursor.execute(f"select * from {staging.render()}").to_arrow_table()
            duckdb_stage.drop(staging)
            staging = stage.new_relation(relation)
            stage.keep(staging.identifier or "", rows)
        return self.store(relation, parsed, strategies.OVERWRITE, staging)

    @available.parse_none
    def staging_table(self, relation: BaseRelation) -> BaseRelation:
        """Return a relation for the rows of a Python or external model.

        No table of a lake can have its name.
        """
        return self._stage().new_relation(relation)

    @available.parse_none
    @dbt_errors()
    def will_read(self, relation: str) -> None:
        """Create the view of a relation that a Python model may read."""
        # A connection with an open result, such as after a fetchone(), sees no view that is created
        # later.
        if not self.on_spark():
            with unnoted():
                self.env.ensure_for(f"select * from {relation}")

    def submit_python_job(self, parsed_model: dict, compiled_code: str) -> AdapterResponse:
        """Run a Python model; its ``session`` is DuckDB's connection or the SparkSession.

        A model whose code contains ``dbt.this`` may read its own table, by queries that only it
        sees.
        """
        this: str | None = None
        may_read = "dbt.this" in parsed_model.get("raw_code", "") and parsed_model.get("relation_name")
        # If an older attempt created the table, it does not exist for this one.
        if may_read and not self.env.pins.is_made_by_older():
            with dbt_errors():
                this = f"select * from {parsed_model['relation_name']}"
                self.env.ensure_for(this)
        stage = self._stage()
        if not isinstance(stage, stages.DuckDBStage):
            relation = self.Relation.create(parsed_model["database"], parsed_model["schema"], parsed_model["alias"])
            stage.run_python(compiled_code, this if self.env.present(relation) is not None else None)
            return response.DuckrunResponse(_message="OK", engine="spark")
        return super().submit_python_job(parsed_model, compiled_code)

    # -- columns

    def get_columns_in_relation(self, relation: BaseRelation) -> list[Any]:
        stage = self._stage() if _is_temporary(relation) else None
        if stage is not None and not isinstance(stage, stages.DuckDBStage):
            return self._columns(stage.columns(relation.identifier or ""))
        columns = super().get_columns_in_relation(relation)
        return self._columns([(c.column, c.dtype) for c in columns]) if self._node().dialect == "spark" else columns

    @available.parse(lambda *a, **k: [])
    def get_column_schema_from_query(self, sql: str) -> list[Any]:
        """Return the columns of a query, with types in the dialect of this node."""
        stage = self._stage()
        if isinstance(stage, stages.DuckDBStage):
            with unnoted():
                return super().get_column_schema_from_query(sql)
        name = f"_duckrun_columns_{uuid.uuid4().hex}"
        with unnoted(), stage.holding(name, sql):
            return [part for column in self._columns(stage.columns(name)) for part in column.flatten()]

    def _columns(self, columns: Sequence[tuple[str, str]]) -> list[Any]:
        spelled = self._node().dialect == "spark"
        return [self.Column(name, spark.spark_type(kind) if spelled else kind) for name, kind in columns]

    def run_sql_for_tests(self, sql: str, fetch: str, conn: Any) -> Any:
        """Run a statement of dbt's own test suite through the lake, as every other statement."""
        _, cursor = self.connections.add_query(sql, auto_begin=False)
        return {"one": cursor.fetchone, "all": cursor.fetchall}.get(fetch, lambda: None)()

    # -- documentation

    def _get_one_catalog(self, information_schema: Any, schemas: Any, used_schemas: Any) -> Any:
        views = self.env.catalog(information_schema.database)
        if views is None:
            return super()._get_one_catalog(information_schema, schemas, used_schemas)
        with dbt_errors():
            names = [(schema, name) for schema in schemas for name in views.names(schema)]
            return self._catalog_filter_table(docs.catalog_of(self.env, views, names), used_schemas)

    def _get_one_catalog_by_relations(self, information_schema: Any, relations: Any, used_schemas: Any) -> Any:
        views = self.env.catalog(information_schema.database)
        if views is None:
            return super()._get_one_catalog_by_relations(information_schema, relations, used_schemas)
        with dbt_errors():
            names = [(relation.schema, relation.identifier) for relation in relations]
            return self._catalog_filter_table(docs.catalog_of(self.env, views, names), used_schemas)

    @dbt_errors()
    def get_catalog_for_single_relation(self, relation: BaseRelation) -> CatalogTable | None:
        """Return the entry of `dbt docs generate` for a relation; None if the lake lacks it."""
        views = self.env.catalog(relation.database)
        if views is None:
            return super().get_catalog_for_single_relation(relation)
        return docs.catalog_entry(self.env, views, relation.schema or "", relation.identifier or "")

    @available.parse_none
    @dbt_errors(writes=True)
    def persist_delta_docs(
        self, relation: BaseRelation, model: Mapping[str, Any], for_relation: bool, for_columns: bool
    ) -> None:
        """Update the descriptions in a table; those of a view are in its definition file."""
        description = (model.get("description") or None) if for_relation else None
        documented = (model.get("columns") or {}) if for_columns else {}
        if description is None and not documented:
            return  # saves a look-up of the table in the lake: dbt calls this for every model
        ref = self.env.ref_of(relation)
        if ref is not None:
            docs.describe(self.env, ref, description, documented)


def _is_retry() -> bool:
    """Return True for `dbt retry`, which runs as the command that it repeats."""
    context = click.get_current_context(silent=True)
    return context is not None and context.info_name == "retry"


def _is_temporary(relation: BaseRelation) -> bool:
    return not relation.schema and not relation.database
