"""One node's way to the lake: its SQL or staged rows become its table, or its SQL a persisted view, by one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import duckdb
from dbt.adapters.duckrun.config import ModelConfig, parse_model
from dbt.adapters.duckrun.environment import LakeEnvironment
from dbt.adapters.duckrun.response import DuckrunResponse
from dbt.adapters.duckrun.strategy import OVERWRITE, Write, plan_write, rows_that_stay
from dbt.adapters.duckrun.values import match
from dbt.adapters.events.logging import AdapterLogger
from dbt_common.exceptions import DbtRuntimeError

from duckrun.engines.duckdb_source import SqlOnCursor
from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.lake import LocationDefinition, TableRef, ViewDefinition
from duckrun.specs import Commit
from duckrun.sql import quote_identifier
from duckrun.storage import normalise_root
from duckrun.table import Snapshot

logger = AdapterLogger("Duckrun")

_STAGING_SUFFIX = "__duckrun_staging"


class Build:
    """One node's write.

    The node's SQL becomes a temporary view on the node's own cursor, so it sees the variables and temporary tables of
    the pre-hooks; the writer streams from that view. ``execute`` runs one statement there, logged by dbt.
    """

    def __init__(
        self,
        env: LakeEnvironment,
        cursor: duckdb.DuckDBPyConnection,
        execute: Callable[[str], Any],
        ref: TableRef,
        model: Mapping[str, Any],
    ) -> None:
        self.env = env
        self.cursor = cursor
        self.execute = execute
        self.config: ModelConfig = parse_model(model)
        self.lake = env.lakes.of(ref)
        self.named = ref
        self.ref = ref
        if self.config.location:
            self.ref = self.lake.at(normalise_root(self.config.location), schema=ref.schema, name=ref.name)

    # -- tables

    def table(self, strategy: str, sql: str) -> DuckrunResponse:
        """Write the rows of a SELECT as a strategy says."""

        def plan(staging: str, source: list[str]) -> Write:
            target = None if strategy == OVERWRITE or not self.lake.exists(self.ref) else self.target()
            write = plan_write(
                self.config, strategy, table=str(self.ref), staging=staging, source=source, target=target
            )
            self._refuse_doubled_keys(strategy, staging, source, target)
            return write

        return self.staged(sql, plan)

    def target(self) -> Snapshot:
        """The table at the version that this run reads: what the node's SQL saw as ``{{ this }}``."""
        return self.env.pins.snapshot(self.ref)

    def staged(self, sql: str, plan: Callable[[str, list[str]], Write]) -> DuckrunResponse:
        """Stage a SELECT, and carry out what ``plan`` makes of the staging view's name and its columns."""
        self._header()
        staging = f"{self.ref.name}{_STAGING_SUFFIX}"
        kind = self._stage(staging, sql)
        try:
            write = plan(staging, [name for name, _ in self._columns(staging)])
            reads = self.env.reads(sql)
            commit = self._commit(write)
        finally:
            self.cursor.execute(f"drop {kind} if exists temp.main.{quote_identifier(staging)}")
        self._define()
        self.env.views_of(self.ref).moved(self.ref)
        logger.debug(f"{self.config.node}: {commit}")
        return DuckrunResponse.of_commit(commit, reads)

    def _header(self) -> None:
        if self.config.sql_header:
            self.execute(self.config.sql_header)

    def _stage(self, staging: str, sql: str) -> str:
        """Make a temporary view of a model's SQL, or a temporary table where DuckDB allows no view. Says which."""
        node, ref = self.config.node, self.ref
        if not sql.strip():
            raise InvalidConfig(
                f"{node}: the model returns no columns (its SQL is empty), so table {ref} was not written."
            )
        target = f"temp.main.{quote_identifier(staging)}"
        try:
            self.execute(f"create or replace temporary view {target} as (\n{sql}\n)")
            return "view"
        except DbtRuntimeError as error:
            text = str(error)
            if "SELECT list is empty" in text:
                raise InvalidConfig(
                    f"{node}: the model returns no columns, so table {ref} was not written. {text}"
                ) from error
            if "pivot" not in text.lower():
                raise
            # PIVOT without a list of values: DuckDB must read the rows to know the columns, and refuses it in a view.
            self.execute(f"create or replace temporary table {target} as (\n{sql}\n)")
            return "table"

    def _columns(self, staging: str) -> list[tuple[str, str]]:
        rows = self.cursor.execute(f"describe temp.main.{quote_identifier(staging)}").fetchall()
        return [(row[0], row[1]) for row in rows]

    def _commit(self, write: Write) -> Commit:
        env, ref, work = self.env, self.ref, self.config.node
        if self.config.batch is not None:
            work = f"{work}/{self.config.batch.start}"  # batches run at once: each is a piece of work of its own
        if write.widen is not None:
            none = SqlOnCursor(self.cursor, write.widen_select)
            # An id of its own: the retry of a run that was killed after this commit finds the columns there, makes only
            # the second one, and must not take this for it.
            env.engine.execute(write.widen, none, env.transaction(ref, f"{work}/columns"))
        return env.engine.execute(write.spec, SqlOnCursor(self.cursor, write.select), env.transaction(ref, work))

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
                views = self.env.views_of(self.ref)
                views.ensure(self.ref)
                table = quote_identifier(views.database, self.ref.schema, self.ref.name)
                rows += f" union all select {names} from {table} as target where {stay}"
            present = " and ".join(f"{quote_identifier(c)} is not null" for c in columns)
            found = self.cursor.execute(
                f"select {names}, count(*) as n from ({rows}) where {present} group by all having n > 1 order by all limit 3"
            ).fetchall()
            if found:
                shown = "; ".join(
                    ", ".join(f"{c} = {v!r}" for c, v in zip(columns, row, strict=False)) + f" ({row[-1]} times)"
                    for row in found
                )
                raise SchemaMismatch(
                    f"{self.config.node}: table {self.ref}: UNIQUE constraint failed on {', '.join(columns)}: {shown}. "
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
        self._header()
        staging = f"{ref.name}{_STAGING_SUFFIX}"
        kind = self._stage(staging, sql)
        if kind == "table":
            self.cursor.execute(f"drop table temp.main.{quote_identifier(staging)}")
            raise UnsupportedFeature(
                f"{config.node}: DuckDB cannot make a view of this SQL; materialize it as a table."
            )
        try:
            columns = self._columns(staging)
        finally:
            self.cursor.execute(f"drop view if exists temp.main.{quote_identifier(staging)}")
        reads = env.reads(sql)
        views = env.views_of(ref)
        definition = ViewDefinition(
            sql=sql.strip(),
            dialect="duckdb",
            columns=tuple(columns),
            reads=tuple(sorted(reads)),
            catalog=views.database,
            comment=config.description,
        )
        if lake.definition(ref) != definition:
            lake.put_definition(ref, definition)
        if lake.exists(ref):
            lake.drop_table(ref)
        env.pins.moved(ref, None)
        views.dropped(ref)
        views.ensure(ref)
        return DuckrunResponse(
            _message="CREATE VIEW",
            code="CREATE VIEW",
            table=str(ref),
            mode="view",
            engine=env.engine.name,
            reads=reads,
        )
