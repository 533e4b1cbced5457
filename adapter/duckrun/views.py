"""The lake's tables as views of a DuckDB database, made just before the first statement that names them.

For dbt and for a user's own connection, which read by name. (A session needs no views: it puts pinned scans into the
statement itself.) Creating a view opens the table's log, so a table that no statement names costs nothing.
"""

from __future__ import annotations

import logging
import threading

import duckdb

from duckrun.engines.duckdb import delta_scan
from duckrun.lake import Lake, TableRef, ViewDefinition
from duckrun.pins import Pins
from duckrun.sql import dotted_names, quote_identifier

log = logging.getLogger(__name__)


class ViewCatalog:
    """Views ``database.schema.name`` over pinned tables, and over the persisted views of the lake. Safe across threads.

    Views are made on a cursor of their own and committed at once: two cursors that replace one view in open
    transactions conflict.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, lake: Lake, pins: Pins, *, database: str = "memory"
    ) -> None:
        self.connection = connection
        self.lake = lake
        self.pins = pins
        self.database = database
        self._lock = threading.RLock()
        self._schemas: dict[str, str] | None = None
        self._names: dict[str, dict[str, TableRef]] = {}
        self._made: set[tuple[str, str]] = set()

    def ensure_for(self, sql: str) -> None:
        """Make the views that a statement may need: every dotted name in it that is a table or view of the lake."""
        for chain in dotted_names(sql):
            if len(chain) > 3 or (len(chain) == 3 and chain[0].lower() != self.database.lower()):
                continue
            ref = self.find(chain[-2] if len(chain) > 1 else self.lake.default_schema, chain[-1])
            if ref is not None:
                self.ensure(ref)

    def find(self, schema: str, name: str) -> TableRef | None:
        """A table or persisted view by name, in any case, as the lake was listed at first use; None if there is none."""
        with self._lock:
            if self._schemas is None:
                self._schemas = {found.lower(): found for found in self.lake.schemas()}
            actual = self._schemas.get(schema.lower())
            if actual is None:
                return None
            if actual not in self._names:
                listed = (*self.lake.tables(actual), *self.lake.views(actual))
                self._names[actual] = {found.lower(): self.lake.resolve(actual, found) for found in listed}
            return self._names[actual].get(name.lower())

    def ensure(self, ref: TableRef) -> None:
        """Make the view of one table or persisted view, once."""
        with self._lock:
            if (ref.schema, ref.name) not in self._made:
                self._made.add((ref.schema, ref.name))
                try:
                    self._make(ref)
                except BaseException:
                    self._made.discard((ref.schema, ref.name))
                    raise

    def moved(self, ref: TableRef) -> None:
        """The run's own write has committed, or made the table: show its new version under its name."""
        with self._lock:
            if self._schemas is not None:
                self._schemas.setdefault(ref.schema.lower(), ref.schema)
            if ref.schema in self._names:
                self._names[ref.schema][ref.name.lower()] = ref
            self._made.add((ref.schema, ref.name))
            self._make(ref)

    def dropped(self, ref: TableRef) -> None:
        """The table or view is gone from the lake: drop its view."""
        with self._lock:
            self._names.get(ref.schema, {}).pop(ref.name.lower(), None)
            self._made.discard((ref.schema, ref.name))
            with self.connection.cursor() as cursor:
                if self._has_schema(cursor, ref.schema):
                    cursor.execute(f"DROP VIEW IF EXISTS {self._quoted(ref)}")

    def _make(self, ref: TableRef) -> None:
        definition = self.lake.definition(ref)
        if isinstance(definition, ViewDefinition):
            self.ensure_for(definition.sql)
            query = definition.sql
        else:
            snapshot = self.pins.snapshot(ref)
            query = f"SELECT * FROM {delta_scan(ref.location, snapshot.version)}"
            log.debug("view %s shows version %s", ref, snapshot.version)
        with self.connection.cursor() as cursor:
            cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(self.database, ref.schema)}")
            cursor.execute(f"CREATE OR REPLACE VIEW {self._quoted(ref)} AS {query}")

    def _has_schema(self, cursor: duckdb.DuckDBPyConnection, schema: str) -> bool:
        found = cursor.execute(
            "SELECT 1 FROM duckdb_schemas() WHERE database_name = ? AND schema_name = ?", [self.database, schema]
        )
        return found.fetchone() is not None

    def _quoted(self, ref: TableRef) -> str:
        return quote_identifier(self.database, ref.schema, ref.name)
