"""Where a node's rows are while its write is planned: a name on its engine, from which the write's own query reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import duckdb
from dbt.adapters.base import BaseRelation
from dbt.adapters.duckrun.environment import LakeEnvironment
from dbt.adapters.duckrun.materialize.changed import Asked
from dbt.adapters.duckrun.model.node import Node
from dbt_common.exceptions import DbtRuntimeError

from duckrun.changes.cursors import Step
from duckrun.engines.duckdb import SqlOnCursor, as_utc
from duckrun.engines.engine import Engine
from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.sql.names import quote_identifier

Row = tuple[Any, ...]


class Stage(Protocol):
    """One node on its engine. Queries over what is staged are in DuckDB's dialect on every engine."""

    @property
    def dialect(self) -> str:
        """The dialect of the node's own SQL."""

    @property
    def engine(self) -> Engine: ...

    def header(self, sql: str) -> None:
        """Run what the node's ``sql_header`` says."""

    def holding(self, name: str, sql: str, *, as_view: bool = False, naive_as_utc: bool = False) -> Any:
        """A context in which a name stands for the rows of the node's SELECT. ``as_view``: for a view, so that SQL which
        cannot be one is refused. ``naive_as_utc``: its timestamps without zone become instants of UTC. Raises InvalidConfig
        for SQL that gives no columns.
        """

    def columns(self, name: str) -> list[tuple[str, str]]:
        """The columns of staged rows, with DuckDB's types."""

    def rows(self, query: str) -> list[Row]:
        """The rows of a query over what is staged and the tables of the lakes."""

    def source(self, query: str) -> Any:
        """The rows of a query over what is staged and the tables of the lakes, as the engine writes them."""

    def reads(self, sql: str) -> dict[str, int]:
        """The tables that the node's SQL reads, and the version of each."""

    def show_changes(self, asked: Asked, step: Step) -> None:
        """Let the name of a ``changes()`` stand for the rows of a step's range."""

    def new_relation(self, target: BaseRelation) -> BaseRelation:
        """Where rows can be put before they are written: a name that no table of a lake can have."""

    def drop(self, relation: BaseRelation) -> None:
        """Take such a name away; none is fine."""


class DuckDBStage:
    """A temporary view on the node's own cursor: so it sees the variables and temporary tables of the pre-hooks.

    ``execute`` runs one statement there, logged by dbt.
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
        """Make a temporary view of a model's SQL, or a temporary table where DuckDB allows no view. Says which."""
        try:
            self.execute(f"create or replace temporary view {_temporary(name)} as (\n{sql}\n)")
            return "view"
        except DbtRuntimeError as error:
            text = str(error)
            if "SELECT list is empty" in text:
                raise InvalidConfig(
                    f"{self.node.name}: the model returns no columns; its table was not written. {text}"
                ) from error
            if "pivot" not in text.lower():
                raise
            if as_view:
                raise UnsupportedFeature(
                    f"DuckDB cannot make a view of this SQL; materialize it as a table. {text}"
                ) from error
            # PIVOT without a list of values: DuckDB must read the rows to know the columns, and refuses it in a view.
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
        rows = self.cursor.execute(f"describe {_temporary(name)}").fetchall()
        return [(row[0], row[1]) for row in rows]

    def rows(self, query: str) -> list[Row]:
        self.env.ensure_for(query)
        return self.cursor.execute(query).fetchall()

    def source(self, query: str) -> SqlOnCursor:
        self.env.ensure_for(query)
        return SqlOnCursor(self.cursor, query)

    def reads(self, sql: str) -> dict[str, int]:
        return self.env.reads(sql)

    def show_changes(self, asked: Asked, step: Step) -> None:
        self.env.changes.show(asked, step, self.engine)

    def new_relation(self, target: BaseRelation) -> BaseRelation:
        """A table of the instance, which every cursor sees, as no temporary one is."""
        name = f"_duckrun_staging_{target.schema}_{target.identifier}"
        # A transaction writes to one database; beside it only to what is temporary, which its one cursor sees.
        database = "memory" if self.env.together is None else "temp"
        path = {"database": database, "schema": "main", "identifier": name}
        relation = target.incorporate(path=path, type="table")
        self.drop(relation)
        return relation

    def drop(self, relation: BaseRelation) -> None:
        self.cursor.execute(f"drop table if exists {relation.render()}")


def _temporary(name: str) -> str:
    return f"temp.main.{quote_identifier(name)}"
