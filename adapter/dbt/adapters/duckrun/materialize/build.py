"""One node's way to the lake: its SQL or staged rows become its table, or its SQL a persisted view, by one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from dbt.adapters.duckrun.environment import LakeEnvironment
from dbt.adapters.duckrun.materialize.response import DuckrunResponse
from dbt.adapters.duckrun.materialize.stage import Stage
from dbt.adapters.duckrun.materialize.strategy import CREATE, OVERWRITE, Write, plan_write, rows_that_stay
from dbt.adapters.duckrun.model.config import ModelConfig, column_comments
from dbt.adapters.duckrun.model.constraints import kept_in_table
from dbt.adapters.duckrun.model.values import match
from dbt.adapters.events.logging import AdapterLogger

from duckrun.errors import (
    InvalidConfig,
    SchemaMismatch,
    SourceOutdated,
    TableNotFound,
    VersionNotReadable,
    repeated_keys,
)
from duckrun.lake.lake import LocationDefinition, TableRef, ViewDefinition
from duckrun.run.transaction import MAX_ATTEMPTS, Transaction
from duckrun.sql.names import quote_identifier
from duckrun.storage.storage import normalise_root
from duckrun.values.rows import Commit, TableConstraints
from duckrun.values.snapshot import Snapshot
from duckrun.values.tables import OptimizeSpec

logger = AdapterLogger("Duckrun")

_STAGING_SUFFIX = "__duckrun_staging"


class Build:
    """One node's write: its rows are staged on its engine, and the write's own query takes them from there."""

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

    # -- tables

    def table(self, strategy: str, sql: str) -> DuckrunResponse:
        """Write the rows of a SELECT as a strategy says."""

        def plan(staging: str, source: list[str]) -> Write:
            target = None if strategy in (OVERWRITE, CREATE) or not self.lake.exists(self.ref) else self.target()
            write = plan_write(
                self.config,
                strategy,
                table=str(self.ref),
                staging=staging,
                source=source,
                target=target,
                fenced=self.can_fence,
                constraints=self._constraints(source) if target is None else None,
            )
            self._refuse_doubled_keys(strategy, staging, source, target)
            return write

        return self.staged(sql, plan)

    @property
    def can_fence(self) -> bool:
        """Whether this node's engine can fence a write of its table."""
        return self.stage.engine.can_fence(self.lake.storage)

    def _constraints(self, source: list[str]) -> TableConstraints:
        """What the table will hold every writer to; nothing where its features are such that only Spark writes its log."""
        form = self.lake.format
        special = form.special_properties(self.config.table_properties)
        if self.config.constraints and (special or (self.lake.exists(self.ref) and form.only_spark(self.target()))):
            logger.debug(f"{self.config.node}: the contract's constraints are held by this model's writes alone.")
            return TableConstraints()
        return kept_in_table(self.config.node, self.config.constraints, source)

    def target(self) -> Snapshot:
        """The table at the version that this run reads: what the node's SQL saw as ``{{ this }}``."""
        return self.env.pins.snapshot(self.ref)

    def staged(self, sql: str, plan: Callable[[str, list[str]], Write]) -> DuckrunResponse:
        """Stage a SELECT, and carry out what ``plan`` makes of the staging view's name and its columns.

        Where others change the table while it is computed from itself, it is computed again. Raises SourceOutdated where
        its SQL cannot say all: a hook, a macro's query or Python of the node read the table before.
        """
        if self.config.sql_header:
            self.stage.header(self.config.sql_header)
        before = self.env.pins.log.read(self.ref.location)
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return self._staged(sql, plan)
            except SourceOutdated as error:
                if before is not None:
                    raise SourceOutdated(
                        f"{self.config.node}: {error} It is not computed again here, since a hook, a query of a macro or Python code of "
                        "the node has read the table before."
                    ) from error
                if not self._has_same_columns(error.version):  # which the SQL was compiled for
                    raise
                self.env.pins.renew(self.ref)
                logger.info(f"{self.config.node}: {error} It is computed again.")
        return self._staged(sql, plan)

    def _has_same_columns(self, version: int | None) -> bool:
        try:
            return (
                version is not None
                and self.lake.snapshot(self.ref, version).schema == self.lake.snapshot(self.ref).schema
            )
        except (VersionNotReadable, TableNotFound):
            return False

    def _staged(self, sql: str, plan: Callable[[str, list[str]], Write]) -> DuckrunResponse:
        staging = f"{self.ref.name}{_STAGING_SUFFIX}"
        with self._holding(staging, sql):
            write = plan(staging, [name for name, _ in self.stage.columns(staging)])
            reads = self.stage.reads(sql)
            commit = self._commit(write)
        self._define()
        self.env.views_of(self.ref).changed(self.ref)
        logger.debug(f"{self.config.node}: {commit}")
        return DuckrunResponse.of_commit(commit, reads)

    @contextmanager
    def _holding(self, staging: str, sql: str, *, as_view: bool = False) -> Iterator[None]:
        node, ref = self.config.node, self.ref
        if not sql.strip():
            raise InvalidConfig(f"{node}: the model returns no columns (its SQL is empty); {ref} was not written.")
        naive = self.config.naive_timestamps or self.env.creds.naive_timestamps
        as_utc = naive == "utc" and not as_view
        with ExitStack() as stack:
            try:
                stack.enter_context(self.stage.holding(staging, sql, as_view=as_view, naive_as_utc=as_utc))
            except InvalidConfig as error:
                raise InvalidConfig(f"{node}: the model returns no columns; {ref} was not written. {error}") from error
            yield

    def _commit(self, write: Write) -> Commit:
        engine, ref, work, spec = self.stage.engine, self.ref, self.config.node, write.spec
        if self.config.batch is not None:
            work = f"{work}/{self.config.batch.start}"  # batches run at once: each is a piece of work of its own
        if write.widen is not None:
            none = self.stage.source(write.widen_select)
            # An id of its own: the retry of a run that was killed after this commit finds the columns there, makes only
            # the second one, and must not take this for it.
            engine.execute(write.widen, none, self._transaction(f"{work}/columns"))
        commit = engine.execute(spec, self.stage.source(write.select), self._transaction(work))
        assert isinstance(commit, Commit), "a spec of rows gives a Commit"
        if self.config.z_order_by:
            order = OptimizeSpec(z_order_by=self._spelled(ref, self.config.z_order_by))
            engine.execute(order, None, self.env.transaction(ref, f"{work}/z-order", rows=False))
        return commit

    def _transaction(self, work: str) -> Transaction:
        """The frame of one commit of this build: the same where it is computed again."""
        if work not in self._transactions:
            self._transactions[work] = self.env.transaction(self.ref, work)
        return self._transactions[work]

    def _spelled(self, ref: TableRef, names: tuple[str, ...]) -> tuple[str, ...]:
        columns = self.lake.snapshot(ref).schema.names
        return tuple(match(name, columns) or name for name in names)

    def _refuse_doubled_keys(self, strategy: str, staging: str, source: list[str], target: Snapshot | None) -> None:
        """Raise SchemaMismatch where the table would hold a key twice that the model's contract calls unique.

        Delta has no such constraint: the rows that stay and the new ones are looked at before the write, at the version
        that this run reads.
        """
        for key in self.config.constraints.unique:
            columns = [match(name, source) or name for name in key]
            names = ", ".join(quote_identifier(c) for c in columns)
            rows = f"select {names} from {quote_identifier(staging)}"
            stay = None if target is None else rows_that_stay(self.config, strategy, staging, source, target)
            if stay is not None and target is not None:
                database = self.env.views_of(self.ref).database
                table = quote_identifier(database, self.ref.schema, self.ref.name)
                rows += f" union all select {names} from {table} as target where {stay}"
            present = " and ".join(f"{quote_identifier(c)} is not null" for c in columns)
            found = self.stage.rows(
                f"select {names}, count(*) as n from ({rows}) where {present} group by all having n > 1 order by all limit 3"
            )
            if found:
                raise SchemaMismatch(
                    f"{self.config.node}: table {self.ref}: UNIQUE constraint failed on {', '.join(columns)}: {repeated_keys(columns, found)}. "
                    "The table is as it was."
                )

    def _define(self) -> None:
        """After the commit: the name means this table. A view of that name goes, a location of its own is noted."""
        current = self.lake.definition(self.ref)
        if self.config.location:
            wanted = LocationDefinition(self.ref.location)
            if current != wanted:
                self.lake.put_definition(self.ref, wanted)
        elif isinstance(current, ViewDefinition):
            self.lake.remove_definition(self.ref)

    # -- views

    def view(self, sql: str) -> DuckrunResponse:
        """Persist a view in the lake, so that every process and engine sees it; a table of its name goes."""
        env, config, lake, ref = self.env, self.config, self.lake, self.named
        lake.ensure_writable(ref)
        staging = f"{ref.name}{_STAGING_SUFFIX}"
        if config.sql_header:
            self.stage.header(config.sql_header)
        with self._holding(staging, sql, as_view=True):
            columns = self.stage.columns(staging)
            reads = self.stage.reads(sql)
        views = env.views_of(ref)
        definition = ViewDefinition(
            sql=sql.strip(),
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
