"""One node's write: its SQL or staged rows become its table, or a persisted view, by one commit."""

from __future__ import annotations

from contextlib import AbstractContextManager

from dbt.adapters.duckrun.environment import LakeEnvironment
from dbt.adapters.duckrun.information import lists_tables
from dbt.adapters.duckrun.materialize.applied import applied_by_type, plan_applied
from dbt.adapters.duckrun.materialize.response import DuckrunResponse
from dbt.adapters.duckrun.materialize.snapshots import SnapshotColumns, plan_snapshot
from dbt.adapters.duckrun.materialize.stage import Stage
from dbt.adapters.duckrun.materialize.strategy import (
    CREATE,
    OVERWRITE,
    Staged,
    Write,
    plan_write,
    rows_that_stay,
)
from dbt.adapters.duckrun.model.config import ModelConfig, column_comments
from dbt.adapters.duckrun.model.constraints import kept_in_table
from dbt.adapters.duckrun.model.values import match
from dbt.adapters.events.logging import AdapterLogger

from duckrun.changes.cursors import Step
from duckrun.errors import (
    InvalidConfig,
    SchemaMismatch,
    SourceOutdated,
    TableNotFound,
    UnsupportedFeature,
    VersionNotReadable,
    repeated_keys,
)
from duckrun.lake.lake import LocationDefinition, TableRef, ViewDefinition
from duckrun.libraries import exp
from duckrun.run.transaction import MAX_ATTEMPTS, Transaction
from duckrun.run.work_log import Read
from duckrun.sql.file_paths import with_absolute_paths
from duckrun.sql.on_demand import dialects, scopes, sql_names
from duckrun.sql.quoting import quote_identifier, quoted_list
from duckrun.storage.roots import normalise_root
from duckrun.values.rows import Commit, TableConstraints, WriteSpec
from duckrun.values.snapshot import Snapshot
from duckrun.values.tables import OptimizeSpec, feed_turned

logger = AdapterLogger("Duckrun")

_STAGING_SUFFIX = "__duckrun_staging"


class Build:
    """One node's write: its rows are staged on its engine, where the write's query reads them."""

    def __init__(self, env: LakeEnvironment, stage: Stage, ref: TableRef, config: ModelConfig) -> None:
        self.env = env
        self.stage = stage
        self.config = config
        self._transactions: dict[str, Transaction] = {}
        self.lake = env.lakes.of(ref)
        self.named = ref
        self.ref = ref
        if self.config.location:
            self.ref = self.lake.at(normalise_root(self.config.location), schema=ref.schema, name=ref.name)

    def run_header(self) -> None:
        """Run the model's ``sql_header``, before its SQL."""
        if self.config.sql_header:
            self.stage.header(self.config.sql_header)

    # -- tables

    def table(self, strategy: str | SnapshotColumns, sql: str) -> DuckrunResponse:
        """Write the rows of a SELECT by a strategy, or as a snapshot.

        If others change the table while it is computed from itself, it is computed again.

        Args:
            strategy: The strategy of this write; the columns of a snapshot.
            sql: The SELECT.

        Raises:
            SourceOutdated: The table changed, and its SQL alone cannot repeat the computation: a
                hook, a macro's query or Python code of the node read the table before.
        """
        staging, engine, work = f"{self.ref.name}{_STAGING_SUFFIX}", self.stage.engine, self.config.node
        if self.config.batch is not None:
            work = f"{work}/{self.config.batch.start}"  # batches run concurrently, so each is a work of its own
        if strategy == CREATE and self.env.pins.is_made_by_older() and self.env.changes.of(self.config.node):
            strategy = OVERWRITE  # the cursor names the commits that it replaces
        step = self._begun(strategy)
        if step is not None and step.idle:
            snapshot = self._target()
            nothing = self.env.transaction(self.ref, work).nothing(
                snapshot, "nothing has changed since its last commit"
            )
            return DuckrunResponse.of_commit(nothing, {})
        if step is not None and step.whole and self.lake.exists(self.ref):
            strategy = OVERWRITE
        self._turn_feed(work)
        before = self.env.pins.log.read(self.ref.location)
        for tried in range(1, MAX_ATTEMPTS + 1):
            try:
                with self._staged(staging, sql):
                    write = self._plan(strategy, staging, applies=step is not None)
                    reads = self.stage.reads(sql)
                    if write.widen is not None:
                        # This commit has its own id. The retry of a run that was killed after it
                        # finds the new columns and makes only the second commit; it must not take
                        # this one for that.
                        none = self.stage.source(write.widen_select)
                        engine.execute(write.widen, none, self._transaction(f"{work}/columns"))
                    transaction = self._transaction(work)
                    if step is not None:
                        transaction.app = step.app
                    commit = engine.execute(write.spec, self.stage.source(write.select), transaction)
                break
            except SourceOutdated as error:
                if tried == MAX_ATTEMPTS:
                    raise
                self._refuse_to_repeat(error, before)
                self.env.pins.renew(self.ref)
                logger.info(f"{self.config.node}: {error} It is computed again.")
        assert isinstance(commit, Commit), "a spec of rows gives a Commit"
        if step is not None and commit.writer == "none" and not commit.replayed:
            commit = self._moved(step)
        if self.config.z_order_by:
            columns = self.lake.snapshot(self.ref).schema.names
            order = OptimizeSpec(z_order_by=tuple(match(name, columns) or name for name in self.config.z_order_by))
            engine.execute(order, None, self.env.transaction(self.ref, f"{work}/z-order", rows=False))
        self._define()
        self.env.views_of(self.ref).changed(self.ref)
        logger.debug(f"{self.config.node}: {commit}")
        return DuckrunResponse.of_commit(commit, reads)

    def _begun(self, strategy: str | SnapshotColumns) -> Step | None:
        """Record the offsets of a model that reads changes, and show their rows.

        None for another model.
        """
        requests = self.env.changes.of(self.config.node)
        if not requests:
            return None
        step = self.env.changes.begin(self.config.node, self.ref, full_refresh=strategy == OVERWRITE)
        for each in requests:
            self.stage.show_changes(each, step)
        return step

    def _moved(self, step: Step) -> Commit:
        """Return the commit of a step that has read further and has nothing to write."""
        transaction = self.env.transaction(self.ref, f"{self.config.node}/cursor")
        transaction.app = step.app
        if self.stage.engine.name != "spark" and step.app.instead is None:
            return transaction.move_cursor()
        spec = WriteSpec("append", app=step.app, existing=True)
        done = self.stage.engine.execute(spec, self.lake.snapshot(self.ref).schema.empty_table(), transaction)
        assert isinstance(done, Commit), "a spec of rows gives a Commit"
        return done

    def _turn_feed(self, work: str) -> None:
        """Turn the change feed of an existing table on or off, before the write that it records."""
        if self.config.change_data_feed is None or not self.lake.exists(self.ref):
            return
        turned = feed_turned(self._target(), self.config.change_data_feed)
        if turned is not None:
            self.stage.engine.execute(turned, None, self.env.transaction(self.ref, f"{work}/feed", rows=False))

    def _staged(self, staging: str, sql: str, *, as_view: bool = False) -> AbstractContextManager[None]:
        """Return a context that gives the rows of the node's SELECT a name."""
        if not sql.strip():
            raise InvalidConfig(
                f"{self.config.node}: the model for table {self.ref} returns no columns (its SQL is empty)."
            )
        naive = self.config.naive_timestamps or self.env.creds.naive_timestamps
        return self.stage.holding(staging, sql, as_view=as_view, naive_as_utc=naive == "utc" and not as_view)

    def _plan(self, strategy: str | SnapshotColumns, staging: str, *, applies: bool = False) -> Write:
        """Return the write of the staged rows.

        With ``applies``, the rows are changes by ``_change_type``.
        """
        columns, engine = [name for name, _ in self.stage.columns(staging)], self.stage.engine
        if isinstance(strategy, SnapshotColumns):
            staged = Staged(staging, columns, str(self.ref), self._target())
            return plan_snapshot(strategy, self.config, staged, engine.column_types(self._target()))
        whole = strategy in (OVERWRITE, CREATE) or not self.lake.exists(self.ref)
        fenced = engine.can_fence(self.lake.storage)
        staged = Staged(staging, columns, str(self.ref), None if whole else self._target(), fenced)
        apply = self.config.apply or (applied_by_type(self.config, columns) if applies else None)
        if apply is not None:
            write, checks = plan_applied(self.config, apply, strategy, staged, named=self._named_in_sql())
            for check in checks:
                check.refuse(f"{self.ref} ({self.config.node})", self.stage.rows(check.query))
            return write
        write = plan_write(self.config, strategy, staged, self._constraints(columns) if whole else None)
        self._refuse_doubled_keys(strategy, staged)
        return write

    def _named_in_sql(self) -> str:
        return quote_identifier(self.env.views_of(self.ref).database, self.ref.schema, self.ref.name)

    def _target(self) -> Snapshot:
        """Return the table at the version that this run reads: the node's ``{{ this }}``."""
        return self.env.pins.snapshot(self.ref)

    def _constraints(self, source: list[str]) -> TableConstraints:
        """Return the constraints that the table imposes on every writer.

        Empty if only Spark can write the log of a table with its features.
        """
        logs = self.lake.format.logs
        if logs is None:  # it has no CHECK: only this model's writes are checked, as for keys
            return TableConstraints(kept_in_table(self.config.node, self.config.constraints, source).not_null)
        special = logs.special_properties(self.config.table_properties)
        if self.config.constraints and (special or (self.lake.exists(self.ref) and logs.only_spark(self._target()))):
            logger.debug(f"{self.config.node}: the contract's constraints are held by this model's writes alone.")
            return TableConstraints()
        return kept_in_table(self.config.node, self.config.constraints, source)

    def _refuse_to_repeat(self, error: SourceOutdated, before: Read | None) -> None:
        """Raise the error if the model's SQL, run again, would not give the newest rows."""
        if before is not None:
            raise SourceOutdated(
                f"{self.config.node}: {error} It is not computed again here, since a hook, "
                "a query of a macro or Python code of "
                "the node has read the table before."
            ) from error
        assert error.version is not None, "Transaction says which version was read"
        try:
            compiled_for, newest = self.lake.snapshot(self.ref, error.version), self.lake.snapshot(self.ref)
        except (VersionNotReadable, TableNotFound):
            raise error from None
        if compiled_for.schema != newest.schema:
            raise error

    def _transaction(self, work: str) -> Transaction:
        """Return the transaction of one commit of this build, the same for each computation."""
        if work not in self._transactions:
            self._transactions[work] = self.env.transaction(self.ref, work)
        return self._transactions[work]

    def _refuse_doubled_keys(self, strategy: str, staged: Staged) -> None:
        """Raise SchemaMismatch if a unique key of the contract would have duplicates."""
        # Delta has no such constraint. A query before the write counts the rows that stay and the
        # new ones, at the version that this run reads.
        for key in self.config.constraints.unique:
            columns = [match(name, staged.columns) or name for name in key]
            names = quoted_list(columns)
            rows = f"select {names} from {quote_identifier(staged.name)}"
            stay = rows_that_stay(self.config, strategy, staged)
            if stay is not None:
                rows += f" union all select {names} from {self._named_in_sql()} as target where {stay}"
            present = " and ".join(f"{quote_identifier(c)} is not null" for c in columns)
            duplicates = self.stage.rows(
                f"select {names}, count(*) as n from ({rows}) where {present} "
                "group by all having n > 1 order by all limit 3"
            )
            if duplicates:
                raise SchemaMismatch(
                    f"{self.config.node}: table {self.ref}: UNIQUE constraint failed on {', '.join(columns)}: "
                    f"{repeated_keys(columns, duplicates)}"
                )

    def _define(self) -> None:
        """Let the name mean this table after the commit.

        A view's definition is dropped, and a location is recorded.
        """
        current = self.lake.definition(self.ref)
        if self.config.location:
            wanted = LocationDefinition(self.ref.location)
            if current != wanted:
                self.lake.put_definition(self.ref, wanted)
        elif isinstance(current, ViewDefinition):
            self.lake.remove_definition(self.ref)

    # -- views

    def view(self, sql: str) -> DuckrunResponse:
        """Persist a view in the lake for every process and engine, in place of a table."""
        env, config, lake, ref = self.env, self.config, self.lake, self.named
        lake.ensure_writable(ref)
        if self.stage.dialect == "duckdb" and lists_tables(sql):
            raise UnsupportedFeature(
                f"{config.node}: a view that lists what there is would list DuckDB's memory wherever it is read; "
                "materialize it as a table."
            )
        staging = f"{ref.name}{_STAGING_SUFFIX}"
        with self._staged(staging, sql, as_view=True):
            columns = self.stage.columns(staging)
            reads = self.stage.reads(sql)
        views = env.views_of(ref)
        text = with_absolute_paths(sql.strip(), self.stage.dialect)
        if lake.has_catalog:
            text = _in_its_lake(text, f"{config.node}: view {ref}", views.database)
        definition = ViewDefinition(
            sql=text,
            dialect=self.stage.dialect,
            columns=tuple(columns),
            reads=tuple(sorted(reads)),
            catalog=views.database,
            comment=config.description,
            column_comments=tuple(column_comments(config.documented, dict(columns)).items()),
        )
        if lake.definition(ref) != definition:
            lake.put_definition(ref, definition)
        if lake.exists(ref):
            lake.drop_table(ref)
        env.pins.moved(ref, None)
        views.changed(ref)
        return DuckrunResponse(
            _message="CREATE VIEW",
            code="CREATE VIEW",
            table=str(ref),
            mode="view",
            engine=self.stage.engine.name,
            reads=reads,
        )


def _in_its_lake(sql: str, what: str, database: str) -> str:
    """Return a view's SQL in names that every reader of its lake's catalog understands.

    Tables of the lake become ``schema.name``. dbt writes their database too, but only this run
    knows that name.

    Args:
        sql: The view's SQL.
        what: The subject of the error text.
        database: The name of the lake's database in this run.

    Raises:
        UnsupportedFeature: The view reads a table of another database.
    """

    def here(table: exp.Table) -> exp.Expr | None:
        if not table.catalog:
            return None
        if table.catalog.lower() != database.lower():
            raise UnsupportedFeature(
                f"{what} reads {table.catalog}.{table.db}.{table.name}, and a view of a DuckLake's catalog reads "
                "tables of its own lake alone, as other readers know no other by that name. Materialize it as a "
                "table"
            )
        return exp.table_(table.name, db=table.db, quoted=True)

    query = sql_names.replace_tables(sql_names.parse_query(sql, "duckdb"), here, scopes.Names.of_lake(database))
    return dialects.text_in(query, "duckdb")
