"""Staging of a node's rows on its engine, under a name that the write's query reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import duckdb
from dbt.adapters.base import BaseRelation
from dbt.adapters.duckrun.environment import LakeEnvironment
from dbt.adapters.duckrun.materialize.changed import Asked
from dbt.adapters.duckrun.model.node import Node, staging
from dbt_common.exceptions import DbtRuntimeError

from duckrun.changes.cursors import Step
from duckrun.engines.duckdb import SqlOnCursor, as_utc
from duckrun.engines.engine import Engine
from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.sql.quoting import quote_identifier
from duckrun.sql.refusals import DuckDBRefusal

Row = tuple[Any, ...]


class Stage(Protocol):
    """One node on its engine. Queries over staged rows are in DuckDB's dialect on every engine."""

    @property
    def dialect(self) -> str:
        """Return the dialect of the node's own SQL."""

    @property
    def engine(self) -> Engine: ...

    def header(self, sql: str) -> None:
        """Run the node's ``sql_header``."""

    def holding(self, name: str, sql: str, *, as_view: bool = False, naive_as_utc: bool = False) -> Any:
        """Return a context that gives the rows of the node's SELECT a name.

        Args:
            name: The name.
            sql: The SELECT.
            as_view: The SELECT becomes a view, so SQL that cannot be a view is refused.
            naive_as_utc: Timestamps without zone become instants of UTC.

        Raises:
            InvalidConfig: The SQL returns no columns.
        """

    def columns(self, name: str) -> list[tuple[str, str]]:
        """Return the columns of staged rows, with DuckDB's types."""

    def rows(self, query: str) -> list[Row]:
        """Return the rows of a query over staged rows and the lakes' tables."""

    def source(self, query: str) -> Any:
        """Return the rows of a query, as a source that the engine writes."""

    def reads(self, sql: str) -> dict[str, int]:
        """Return the tables that the node's SQL reads, and the version of each."""

    def show_changes(self, request: Asked, step: Step) -> str:
        """Let a name stand for the rows of a ``changes()`` in a step's range; return it in SQL."""


class DuckDBStage:
    """Staging as a temporary view on the node's own cursor.

    So the SQL sees the variables and temporary tables of the pre-hooks. ``execute`` runs one
    statement there, logged by dbt.
    """

    dialect = "duckdb"

    def __init__(
        self, env: LakeEnvironment, node: Node, cursor: duckdb.DuckDBPyConnection, execute: Callable[[str], Any]
    ) -> None:
        self.env, self.node, self.cursor, self.execute = env, node, cursor, execute

    @property
    def engine(self) -> Engine:
        return self.env.engine

    def header(self, sql: str) -> None:
        self.execute(sql)

    @contextmanager
    def holding(self, name: str, sql: str, *, as_view: bool = False, naive_as_utc: bool = False) -> Iterator[None]:
        kind = self._stage(name, sql, as_view)
        if naive_as_utc:
            kind = self._as_utc(name, sql, kind)
        try:
            yield
        finally:
            self.cursor.execute(f"drop {kind} if exists {_temporary(name)}")

    def _stage(self, name: str, sql: str, as_view: bool) -> str:
        """Create a temporary view of a model's SQL, or a table if DuckDB allows no view.

        Returns the kind.
        """
        try:
            with staging(sql):
                self.execute(f"create or replace temporary view {_temporary(name)} as (\n{sql}\n)")
            return "view"
        except DbtRuntimeError as error:
            if DuckDBRefusal.EMPTY_SELECT.is_of(error):
                raise InvalidConfig(f"{self.node.name}: the model returns no columns. {error}") from error
            if not DuckDBRefusal.PIVOT_IN_VIEW.is_of(error):
                raise
            if as_view:
                raise UnsupportedFeature(
                    f"DuckDB cannot make a view of this SQL; materialize it as a table. {error}"
                ) from error
            # PIVOT without a list of values: DuckDB must read the rows to know the columns, so it
            # refuses a view.
            with staging(sql):
                self.execute(f"create or replace temporary table {_temporary(name)} as (\n{sql}\n)")
            return "table"

    def _as_utc(self, name: str, sql: str, kind: str) -> str:
        rows = self.cursor.sql(f"select * from {_temporary(name)}")
        casts = {c: as_utc(quote_identifier(c), t) for c, t in zip(rows.columns, rows.types, strict=True)}
        replaced = ", ".join(f"{casts[c]} as {quote_identifier(c)}" for c in casts if casts[c] is not None)
        if not replaced:
            return kind
        self.cursor.execute(f"drop {kind} {_temporary(name)}")
        return self._stage(name, f"select * replace ({replaced}) from (\n{sql}\n)", as_view=False)

    def columns(self, name: str) -> list[tuple[str, str]]:
        return [(row[0], row[1]) for row in self.cursor.execute(f"describe {_temporary(name)}").fetchall()]

    def rows(self, query: str) -> list[Row]:
        self.env.ensure_for(query)
        return self.cursor.execute(query).fetchall()

    def source(self, query: str) -> SqlOnCursor:
        self.env.ensure_for(query)
        return SqlOnCursor(self.cursor, query)

    def reads(self, sql: str) -> dict[str, int]:
        return self.env.reads(sql)

    def show_changes(self, request: Asked, step: Step) -> str:
        rows = self.env.changes.rows(request, step, self.engine)
        name = quote_identifier(self.env.creds.database, "main", request.name)
        view = f"CREATE OR REPLACE VIEW {name} AS {rows.source.as_source().text}"
        self.env.engine.connection.cursor().execute(view)
        return name

    def new_relation(self, target: BaseRelation) -> BaseRelation:
        """Return a relation for rows before they are written, whose name no table of a lake has.

        It is a table of the instance: every cursor sees it, unlike a temporary one.
        """
        name = f"_duckrun_staging_{target.schema}_{target.identifier}"
        # A transaction writes to one database and to temporary tables, which its one cursor sees.
        database = "memory" if self.env.together is None else "temp"
        path = {"database": database, "schema": "main", "identifier": name}
        relation = target.incorporate(path=path, type="table")
        self.drop(relation)
        return relation

    def drop(self, relation: BaseRelation) -> None:
        """Drop such a relation if it exists."""
        self.cursor.execute(f"drop table if exists {relation.render()}")


def _temporary(name: str) -> str:
    return f"temp.main.{quote_identifier(name)}"
