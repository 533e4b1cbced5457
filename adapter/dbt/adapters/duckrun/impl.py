"""The adapter: dbt-duckdb, with relations that live in a lake. Macros call one method each of this class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import duckdb
from dbt.adapters.base import BaseRelation, available
from dbt.adapters.base.impl import ConstraintSupport
from dbt.adapters.duckdb.impl import DuckDBAdapter
from dbt.adapters.duckrun.catalog import catalog_of
from dbt.adapters.duckrun.config import (
    OVERWRITE,
    ModelConfig,
    column_comments,
    parse_model,
    plan_write,
    write_strategy,
)
from dbt.adapters.duckrun.connections import DuckrunConnectionManager
from dbt.adapters.duckrun.environment import LakeEnvironment
from dbt.adapters.duckrun.response import DuckrunResponse
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.exceptions import RelationTypeNullError
from dbt_common.contracts.constraints import ConstraintType
from dbt_common.exceptions import DbtRuntimeError

from duckrun.engines.duckdb_source import SqlOnCursor
from duckrun.errors import DuckrunError, InvalidConfig, UnsupportedFeature
from duckrun.lake import LocationDefinition, TableRef, ViewDefinition
from duckrun.specs import Commit, DeleteSpec
from duckrun.sql import quote_identifier
from duckrun.storage import normalise_root
from duckrun.table import Snapshot
from duckrun.transaction import Transaction

logger = AdapterLogger("Duckrun")

# Commands that write to the lake: for these an unwritable root is an error before anything runs.
_WRITING_COMMANDS = {"run", "build", "seed", "snapshot", "retry", "clone", "run-operation"}
_STAGING_SUFFIX = "__duckrun_staging"


class DuckrunAdapter(DuckDBAdapter):
    ConnectionManager = DuckrunConnectionManager
    connections: DuckrunConnectionManager

    # A Delta table has no keys, and the checks that it could hold are not written yet: dbt warns, instead of promising.
    CONSTRAINT_SUPPORT = {
        ConstraintType.check: ConstraintSupport.NOT_ENFORCED,
        ConstraintType.not_null: ConstraintSupport.NOT_ENFORCED,
        ConstraintType.unique: ConstraintSupport.NOT_ENFORCED,
        ConstraintType.primary_key: ConstraintSupport.NOT_ENFORCED,
        ConstraintType.foreign_key: ConstraintSupport.NOT_ENFORCED,
    }

    # -- where things are

    @property
    def env(self) -> LakeEnvironment:
        return self.connections.lake_env()

    def _is_lake(self, database: str | None) -> bool:
        """Whether a database is the lake; every other one is attached, and dbt-duckdb's business."""
        return database is None or database.lower() == self.config.credentials.database.lower()

    def _ref(self, relation: BaseRelation) -> TableRef | None:
        """The table of a relation, or None where it cannot be one: a temporary relation, another database."""
        if not relation.schema or not relation.identifier or not self._is_lake(relation.database):
            return None
        try:
            return self.env.lake.resolve(relation.schema, relation.identifier)
        except InvalidConfig:  # a name that no table of a lake can have, such as one that starts with an underscore
            return None

    def _target(self, relation: BaseRelation, node: str) -> TableRef:
        """The table that a node writes. Raises for a database that is no lake, and for an impossible name."""
        if not self._is_lake(relation.database):
            raise UnsupportedFeature(
                f"{node}: database {relation.database!r} is not this lake, so {relation} cannot be written. Remove "
                "database from the config; more than one lake in a project is not supported by this version."
            )
        return self.env.lake.resolve(relation.schema or "", relation.identifier or "")

    @contextmanager
    def _dbt_errors(self) -> Iterator[None]:
        """dbt prints its own errors in one paragraph, and every other one with a traceback."""
        try:
            yield
        except (DuckrunError, duckdb.Error) as error:
            raise DbtRuntimeError(str(error)) from error

    # -- before a run

    def debug_query(self) -> None:
        with self._dbt_errors():
            self.env.lake.storage.check_writable()
        super().debug_query()

    def set_relations_cache(self, *args: Any, **kwargs: Any) -> None:
        which = getattr(getattr(self.config, "args", None), "which", None)
        if which in _WRITING_COMMANDS:
            with self._dbt_errors():
                self.env.lake.storage.check_writable()
        super().set_relations_cache(*args, **kwargs)

    def _catalog_supports_foreign_keys(self, database: str) -> bool:
        # Saves dbt-duckdb's look-ups of DuckDB's constraints before each node.
        return not self._is_lake(database) and super()._catalog_supports_foreign_keys(database)

    # -- discovery

    def list_schemas(self, database: str) -> list[str]:
        found = super().list_schemas(database)
        if not self._is_lake(database):
            return found
        with self._dbt_errors():
            return sorted({*found, *self.env.lake.schemas()})

    @available.parse(lambda *a, **k: False)
    def check_schema_exists(self, database: str, schema: str) -> bool:
        return schema.lower() in {name.lower() for name in self.list_schemas(database)}

    def list_relations_without_caching(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        """Tables and views of the lake by listing; and what else DuckDB holds in that schema (loaded sources, ...)."""
        if not self._is_lake(schema_relation.database) or not schema_relation.schema:
            return super().list_relations_without_caching(schema_relation)
        with self._dbt_errors():
            schema, views = schema_relation.schema, self.env.views
            kinds, made = views.names(schema, fresh=True), views.made(schema)
        others = [
            r
            for r in super().list_relations_without_caching(schema_relation)
            if r.identifier not in kinds and r.identifier not in made
        ]
        return others + [
            self.Relation.create(
                database=schema_relation.database,
                schema=schema,
                identifier=name,
                type=self.Relation.get_relation_type(kind),
                quote_policy={"database": True, "schema": True, "identifier": True},
            )
            for name, kind in kinds.items()
        ]

    # -- changes of relations

    def drop_relation(self, relation: BaseRelation) -> None:
        """Drop a Delta table or a persisted view; anything else is DuckDB's own."""
        if relation.type is None:
            raise RelationTypeNullError(relation)
        ref = self._ref(relation)
        with self._dbt_errors():
            definition = None if ref is None else self.env.lake.definition(ref)
            if ref is None or (definition is None and not self.env.lake.exists(ref)):
                super().drop_relation(relation)
                return
            self.cache_dropped(relation)
            self._drop(ref)

    def _drop(self, ref: TableRef) -> None:
        env = self.env
        if not isinstance(env.lake.definition(ref), ViewDefinition):
            env.lake.drop_table(ref)
        env.lake.remove_definition(ref)
        env.pins.moved(ref, None)
        env.views.dropped(ref)

    def create_schema(self, relation: BaseRelation) -> None:
        """Make the DuckDB schema, where the views are; in the lake a schema is a folder that its first table makes."""
        if not self._is_lake(relation.database):
            raise DbtRuntimeError(
                f"Schema {relation.schema} cannot be made in database {relation.database!r}, which is not this lake. Remove "
                "database from the models' config; more than one lake in a project is not supported by this version."
            )
        super().create_schema(relation)

    def drop_schema(self, relation: BaseRelation) -> None:
        if self._is_lake(relation.database) and relation.schema:
            with self._dbt_errors():
                lake = self.env.lake
                for name in [*lake.tables(relation.schema), *lake.views(relation.schema)]:
                    self._drop(lake.resolve(relation.schema, name))
        if relation.schema == "main":  # DuckDB's own schema cannot be dropped
            self.cache.drop_schema(relation.database, relation.schema)
            return
        super().drop_schema(relation)

    def truncate_relation(self, relation: BaseRelation) -> None:
        ref = self._ref(relation)
        with self._dbt_errors():
            if ref is None or not self.env.lake.exists(ref):
                super().truncate_relation(relation)
                return
            self.env.engine.execute(DeleteSpec(), None, self.env.transaction(ref, f"truncate/{ref}"))
            self.env.views.moved(ref)

    def rename_relation(self, from_relation: BaseRelation, to_relation: BaseRelation) -> None:
        ref = self._ref(from_relation)
        with self._dbt_errors():
            if ref is not None and (self.env.lake.exists(ref) or self.env.lake.definition(ref)):
                raise UnsupportedFeature(
                    f"{from_relation} cannot be renamed to {to_relation}: a table of a lake is known by its folder. "
                    "Write it under the new name and drop the old one."
                )
        super().rename_relation(from_relation, to_relation)

    # -- materializations

    @available.parse(lambda *a, **k: OVERWRITE)
    def write_strategy(self, existing: BaseRelation | None, full_refresh: bool, model: Mapping[str, Any]) -> str:
        """How an incremental model writes this time: overwrite, append, merge or delete+insert."""
        with self._dbt_errors():
            return write_strategy(
                parse_model(model),
                exists_as_table=existing is not None and existing.is_table,
                full_refresh=bool(full_refresh),
            )

    @available.parse_none
    def build_delta(self, relation: BaseRelation, model: Mapping[str, Any], strategy: str, sql: str) -> DuckrunResponse:
        """Run a model's SQL and write its rows to its table, as one commit.

        The SQL becomes a temporary view on the node's own cursor, so it sees the variables and temporary tables of
        the pre-hooks; the writer streams from that view.
        """
        with self._dbt_errors():
            config = parse_model(model)
            ref = self._target(relation, config.node)
            header = (model.get("config") or {}).get("sql_header")
            if header:
                self.execute(header)
            staging = f"{relation.identifier}{_STAGING_SUFFIX}"
            kind = self._stage(config, ref, staging, sql)
            try:
                return self._write(config, ref, strategy, staging, sql)
            finally:
                self._cursor().execute(f"drop {kind} if exists temp.main.{quote_identifier(staging)}")

    @available.parse_none
    def store(
        self, relation: BaseRelation, model: Mapping[str, Any], strategy: str, staging: BaseRelation
    ) -> DuckrunResponse:
        """Write the rows of a DuckDB relation to a model's or seed's table, as one commit, and drop that relation."""
        with self._dbt_errors():
            config = parse_model(model)
            ref = self._target(relation, config.node)
            statement = f"select * from {staging.render()}"
            view = f"{relation.identifier}{_STAGING_SUFFIX}_view"
            self._stage(config, ref, view, statement)
            try:
                return self._write(config, ref, strategy, view, model.get("compiled_code") or "")
            finally:
                self._cursor().execute(f"drop view if exists temp.main.{quote_identifier(view)}")
                self._cursor().execute(f"drop table if exists {staging.render()}")

    @available.parse_none
    def build_view(self, relation: BaseRelation, model: Mapping[str, Any], sql: str) -> DuckrunResponse:
        """Persist a view in the lake, so that every process and engine sees it; a table of its name goes."""
        with self._dbt_errors():
            config = parse_model(model)
            ref = self._target(relation, config.node)
            env = self.env
            env.lake.ensure_writable(ref)
            header = (model.get("config") or {}).get("sql_header")
            if header:
                self.execute(header)
            staging = f"{relation.identifier}{_STAGING_SUFFIX}"
            kind = self._stage(config, ref, staging, sql)
            if kind == "table":
                self._cursor().execute(f"drop table temp.main.{quote_identifier(staging)}")
                raise UnsupportedFeature(
                    f"{config.node}: DuckDB cannot make a view of this SQL; materialize it as a table."
                )
            try:
                columns = self._columns(staging)
            finally:
                self._cursor().execute(f"drop view if exists temp.main.{quote_identifier(staging)}")
            reads = self._reads(sql)
            definition = ViewDefinition(
                sql=sql.strip(),
                dialect="duckdb",
                columns=tuple(columns),
                reads=tuple(sorted(reads)),
                catalog=env.creds.database,
                comment=config.description,
            )
            if env.lake.definition(ref) != definition:
                env.lake.put_definition(ref, definition)
            if env.lake.exists(ref):
                env.lake.drop_table(ref)
            env.pins.moved(ref, None)
            env.views.dropped(ref)
            env.views.ensure(ref)
            return DuckrunResponse(
                _message="CREATE VIEW",
                code="CREATE VIEW",
                table=str(ref),
                mode="view",
                engine=env.engine.name,
                reads=reads,
            )

    @available.parse_none
    def load_seed(
        self, relation: BaseRelation, model: Mapping[str, Any], agate_table: Any, config: Any
    ) -> DuckrunResponse:
        """Load a CSV by dbt-duckdb's own macros into a staging table, then write that as a Delta table.

        Their ``this`` is the staging table: so types, delimiters, quoting and ``fast`` mean what they mean there.
        """
        staging = self.staging_table(relation)
        override = {"this": staging, "config": config, "model": model}
        arguments = {"model": model, "agate_table": agate_table}
        self.execute_macro("create_csv_table", context_override=override, kwargs=arguments)
        if agate_table.rows:
            self.execute_macro("load_csv_rows", context_override=override, kwargs=arguments)
        return self.store(relation, model, OVERWRITE, staging)

    @available.parse_none
    def staging_table(self, relation: BaseRelation) -> BaseRelation:
        """Where a seed or Python model puts its rows first: a DuckDB table that every cursor sees, as no temporary
        one is. A name that no table of a lake can have.
        """
        name = f"_duckrun_staging_{relation.schema}_{relation.identifier}"
        staging = relation.incorporate(path={"schema": "main", "identifier": name}, type="table")
        self._cursor().execute(f"drop table if exists {staging.render()}")
        return staging

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        """The node's own DuckDB cursor, without dbt-duckdb's wrappers."""
        cursor = self.connections.get_thread_connection().handle.cursor()
        while not isinstance(cursor, duckdb.DuckDBPyConnection):
            cursor = cursor._cursor
        return cursor

    def _stage(self, config: ModelConfig, ref: TableRef, staging: str, sql: str) -> str:
        """Make a temporary view of a model's SQL, or a temporary table where DuckDB allows no view. Says which."""
        if not sql.strip():
            raise InvalidConfig(
                f"{config.node}: the model returns no columns (its SQL is empty), so table {ref} was not written."
            )
        target = f"temp.main.{quote_identifier(staging)}"
        try:
            self.execute(f"create or replace temporary view {target} as (\n{sql}\n)")
            return "view"
        except DbtRuntimeError as error:
            text = str(error)
            if "SELECT list is empty" in text:
                raise InvalidConfig(
                    f"{config.node}: the model returns no columns, so table {ref} was not written. {text}"
                ) from error
            if "pivot" not in text.lower():
                raise
            # PIVOT without a list of values: DuckDB must read the rows to know the columns, and refuses it in a view.
            self.execute(f"create or replace temporary table {target} as (\n{sql}\n)")
            return "table"

    def _columns(self, staging: str) -> list[tuple[str, str]]:
        rows = self._cursor().execute(f"describe temp.main.{quote_identifier(staging)}").fetchall()
        return [(row[0], row[1]) for row in rows]

    def _reads(self, sql: str) -> dict[str, int]:
        """The lake's tables that a statement names, and the version at which this run reads each."""
        return {str(ref): self.env.pins.snapshot(ref).version for ref in self.env.views.tables_in(sql)}

    def _write(self, config: ModelConfig, ref: TableRef, strategy: str, staging: str, sql: str) -> DuckrunResponse:
        env = self.env
        if config.location:
            ref = env.lake.at(normalise_root(config.location), schema=ref.schema, name=ref.name)
        overwrites = strategy == OVERWRITE or not env.lake.exists(ref)
        write = plan_write(
            config,
            strategy,
            table=str(ref),
            staging=staging,
            source_columns=[name for name, _ in self._columns(staging)],
            target_columns=None if overwrites else env.lake.snapshot(ref).schema.names,
            app=None,
        )
        reads = self._reads(sql)
        if write.widen is not None:
            none = SqlOnCursor(self._cursor(), f"{write.select} limit 0")
            # An id of its own: the retry of a run that was killed after this commit finds the columns there, makes only
            # the second one, and must not take this for it.
            env.engine.execute(write.widen, none, env.transaction(ref, f"{config.node}/columns"))
        commit = env.engine.execute(
            write.spec, SqlOnCursor(self._cursor(), write.select), env.transaction(ref, config.node)
        )
        self._define(ref, config)
        env.views.moved(ref)
        logger.debug(f"{config.node}: {commit}")
        return DuckrunResponse.of_commit(commit, reads)

    def _define(self, ref: TableRef, config: ModelConfig) -> None:
        """After the commit: the name means this table. A view of that name goes, a location of its own is noted."""
        lake, current = self.env.lake, self.env.lake.definition(ref)
        if config.location:
            wanted = LocationDefinition(ref.location)
            if current != wanted:
                lake.put_definition(ref, wanted)
        elif isinstance(current, ViewDefinition):
            lake.remove_definition(ref)

    # -- documentation

    def _get_one_catalog(self, information_schema: Any, schemas: Any, used_schemas: Any) -> Any:
        if not self._is_lake(information_schema.database):
            return super()._get_one_catalog(information_schema, schemas, used_schemas)
        with self._dbt_errors():
            views = self.env.views
            names = [(schema, name) for schema in schemas for name in views.names(schema)]
            return self._catalog_filter_table(catalog_of(self.env, names), used_schemas)

    def _get_one_catalog_by_relations(self, information_schema: Any, relations: Any, used_schemas: Any) -> Any:
        if not self._is_lake(information_schema.database):
            return super()._get_one_catalog_by_relations(information_schema, relations, used_schemas)
        with self._dbt_errors():
            names = [(relation.schema, relation.identifier) for relation in relations]
            return self._catalog_filter_table(catalog_of(self.env, names), used_schemas)

    @available.parse_none
    def persist_delta_docs(
        self, relation: BaseRelation, model: Mapping[str, Any], for_relation: bool, for_columns: bool
    ) -> None:
        """Bring the descriptions in a Delta table up to date, by one metadata commit, and only if they differ."""
        ref = self._ref(relation)
        if ref is None:
            return
        with self._dbt_errors():
            env = self.env
            if isinstance(env.lake.definition(ref), ViewDefinition) or not env.lake.exists(ref):
                return  # a view's description is in its definition file
            description = (model.get("description") or None) if for_relation else None
            comments = column_comments(model.get("columns") or {}) if for_columns else {}
            if not _documented(env.lake.snapshot(ref), description, comments):
                self._describe(ref, description, comments)

    def _describe(self, ref: TableRef, description: str | None, comments: Mapping[str, str]) -> None:
        env = self.env
        transaction = Transaction(env.lake, ref, pins=env.pins)

        def attempt(snapshot: Snapshot | None) -> Commit:
            assert snapshot is not None, "the table was there a moment ago, and this process holds its lock"
            note = transaction.note(writer="none")
            version = env.lake.format.describe(snapshot, description=description, column_comments=comments, note=note)
            at = snapshot.version if version is None else version
            return env.lake.format.commit_at(ref, at, mode="describe", engine="none", writer="none")

        transaction.run(attempt, mode="describe", engine="none")
        env.views.moved(ref)


def _documented(snapshot: Snapshot, description: str | None, comments: Mapping[str, str]) -> bool:
    """Whether a table says already what its model says."""
    if description is not None and description != snapshot.description:
        return False
    held = {field.name.lower(): (field.metadata or {}).get(b"comment", b"").decode() for field in snapshot.schema}
    return all(held.get(name.lower(), comment) == comment for name, comment in comments.items())
