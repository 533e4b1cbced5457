"""``publish: together``: a dbt run is one transaction of its lake.

Others do not see the transaction until its end.

dbt does not call an adapter at the end of a run with the result. So the adapter listens to its
events: the end of each node and each hook. The transaction ends when dbt closes its connections,
after the on-run-end hooks.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import duckdb
from dbt.adapters.duckrun.model.choices import DATABASE
from dbt.adapters.events.logging import AdapterLogger
from dbt_common.events.event_manager_client import add_callback_to_manager, get_event_manager
from dbt_common.exceptions import DbtRuntimeError

from duckrun.engines.duckdb import DuckDBEngine, ViewCatalog
from duckrun.errors import CommitConflict, DuckrunError, is_outcome_unknown, outcome_of
from duckrun.formats.commits import CommitTaken, TakenBack
from duckrun.formats.format import transactions_of
from duckrun.lake.lake import Lake, TableRef, ViewDefinition
from duckrun.run.pins import Pins
from duckrun.run.reruns import NotTakenBack, of_older_attempts
from duckrun.run.transaction import Transaction
from duckrun.run.transactions import transactions_on
from duckrun.sql.quoting import quote_identifier
from duckrun.values.rows import NO_TABLE, WorkTransaction
from duckrun.values.snapshot import Snapshot

logger = AdapterLogger("Duckrun")

_STAGING = re.compile(r"\bcreate\s+table\s+(?=\"temp\"\.\"main\"\.\"_duckrun_staging_)", re.IGNORECASE)
_GOOD = ("success", "pass", "warn", "no-op", "NO-OP")


class LiveCatalog(ViewCatalog):
    """The names of a lake that is itself a database of the instance.

    No views are created, and a statement reads the current state of the transaction.
    """

    def __init__(self, lake: Lake, pins: Pins, cursor: duckdb.DuckDBPyConnection) -> None:
        super().__init__(cursor, lake, pins, database=DATABASE)
        self._cursor = cursor

    def _listed(self, folded: str, schema: str) -> dict[str, tuple[str, str]]:
        if folded not in self._names:
            rows = self._cursor.execute(
                "SELECT table_name, 'table' FROM duckdb_tables() WHERE database_name = $1 AND lower(schema_name) = $2 "
                "UNION ALL SELECT view_name, 'view' FROM duckdb_views() WHERE database_name = $1 AND "
                "lower(schema_name) = $2",
                [self.database, folded],
            ).fetchall()
            self._names[folded] = {name.lower(): (name, kind) for name, kind in rows}
        return self._names[folded]

    def _make_view(self, key: tuple[str, str], ref: TableRef, definition: ViewDefinition) -> None:
        self._create(key, ref, "", reads=frozenset(k for k, _ in self._keys(definition.sql)))

    def _create(self, key: Any, ref: TableRef, sql: str, *, reads: Any = frozenset(), shown: Any = None) -> None:
        self._show(key, quote_identifier(self.database, ref.schema, ref.name), reads, shown)

    def _drop_view(self, key: tuple[str, str]) -> None:
        """Do nothing: there is no view."""


class Together:
    """The one transaction of an invocation. All its statements run on ``cursor``."""

    def __init__(self, lake: Lake, engine: DuckDBEngine) -> None:
        self._lake = lake
        self._lock = threading.Lock()
        self._started: set[str] = set()
        self._ended: set[str] = set()
        self.failures: list[str] = []
        transactions = transactions_on(lake, "duckdb")
        with ExitStack() as opening:  # undone if a part of it fails
            self.cursor = opening.enter_context(engine.on_one_cursor())
            self._work = opening.enter_context(transactions.together_on(self.cursor, DATABASE))
            self.cursor.execute(f"SET search_path = '{DATABASE}.main,memory.main'")
            self._open = opening.pop_all()
        add_callback_to_manager(self._hear)

    # -- what happens in the run

    def _hear(self, message: Any) -> None:
        """Record how the nodes and hooks of the run end."""
        name, data = message.info.name, message.data
        with self._lock:
            if name == "NodeStart":
                self._started.add(data.node_info.unique_id)
            elif name == "NodeFinished":
                self._ended.add(data.node_info.unique_id)
                if data.run_result.status not in _GOOD:
                    self.failures.append(f"{data.node_info.unique_id} ({data.run_result.status})")
            elif name == "LogHookEndLine" and data.status not in _GOOD:
                self.failures.append(f"hook {data.statement} ({data.status})")

    def refuse_after_failure(self, node: str, kind: str) -> None:
        """Refuse a node whose work would be rolled back in any case.

        Tests of existing tables still run, as long as the cursor works.

        Raises:
            DbtRuntimeError: A node or hook failed before.
        """
        failed = next((each for each in self.failures if "(skipped)" not in each), None)
        if failed is None or (kind in ("test", "unit_test") and self._is_healthy()):
            return
        raise DbtRuntimeError(
            f"{node} was not run: {failed} came before, and with publish: together nothing of this run is published."
        )

    def _is_healthy(self) -> bool:
        try:
            self.cursor.execute("SELECT 1")
        except duckdb.Error:
            return False
        return True

    # -- what older attempts of the run have published

    def rewound(self, newest: Snapshot, work: WorkTransaction) -> Snapshot | None:
        """Reset a node's table to the version before its older attempts' commits.

        The reset is part of this transaction.

        Args:
            newest: The node's table.
            work: The node's work, with its current attempt.

        Returns:
            The table before those commits, or unchanged if they cannot be taken back; None if they
            created it.
        """
        form, ref = self._lake.format, newest.ref
        records = of_older_attempts(form, newest, work)
        if not records:
            return newest
        try:
            base = Transaction(self._lake, ref).base_instead_of(records)
        except NotTakenBack:  # the node's write reports it, if the write depends on it
            return newest
        if base == NO_TABLE:
            return None
        before = form.snapshot(ref, base)
        # DuckDB reads the transaction's own table, not a view at a version. The node's commit
        # records the commits that were taken back.
        transactions_of(form).taken_back(self._work, TakenBack(records, newest, base=before))
        return before

    # -- the end

    def end(self) -> None:
        """Publish the run's writes if all of it succeeded, else roll them back.

        Raises:
            DbtRuntimeError: The transaction cannot be committed.
        """
        why = self._why_not()
        if self._hear in get_event_manager().callbacks:
            get_event_manager().callbacks.remove(self._hear)
        root = self._lake.root
        if why is not None:
            self.close()
            logger.warning(
                f"Nothing of this run was published: {why}. Lake {root} is as it was before; "
                "run all of it again (publish: together)."
            )
            return
        try:
            with outcome_of("publish"):
                self._close()
        except (DuckrunError, duckdb.Error) as error:
            raise DbtRuntimeError(f"Publishing the tables of this run together failed: {error}") from error
        snapshot_id = self._work.made
        logger.info(
            f"Lake {root} is as it was: this run changed nothing."
            if snapshot_id is None
            else f"Published together: snapshot {snapshot_id} of lake {root}."
        )

    def _close(self) -> None:
        try:
            self.cursor.execute("RESET search_path")
            self._open.close()
        except (CommitTaken, CommitConflict) as error:
            if isinstance(error, DuckrunError) and is_outcome_unknown(error):
                raise
            raise CommitConflict(
                f"another program committed to lake {self._lake.root} meanwhile ({error})",
                remedy="Run all of it again",
            ) from error

    def _why_not(self) -> str | None:
        with self._lock:
            failures, unfinished = list(self.failures), sorted(self._started - self._ended)
        if failures:
            first = next((each for each in failures if "(skipped)" not in each), failures[0])
            others = "" if len(failures) == 1 else f", and {len(failures) - 1} more"
            return f"{first}{others}"
        if unfinished:
            return f"{unfinished[0]} did not finish"
        error = sys.exc_info()[1]  # the error that ends dbt's run, which then closes its connections
        return None if error is None else f"the run was ended by {type(error).__name__}"

    def close(self) -> None:
        """Roll back everything that was not published."""
        self._open.__exit__(_Taken, _Taken(), None)


def temporary_staging(text: str) -> str:
    """Return SQL, or code with SQL, whose staging tables are temporary."""
    # dbt-duckdb's macros leave out the word TEMPORARY.
    return _STAGING.sub("create temporary table ", text)


class OneCursor:
    """A cursor that is its own cursor: further statements join its transaction."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor

    def cursor(self) -> duckdb.DuckDBPyConnection:
        return self._cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


class _Taken(Exception):
    """Signal to roll back the transaction."""


def relations_elsewhere(known: Any, own_database: str) -> Iterator[tuple[str, str, str]]:
    """Yield database, schema and name of models and sources outside of the project's own lake.

    Args:
        known: dbt's manifest.
        own_database: The database of the project's own lake.
    """
    nodes_and_sources: Sequence[Mapping[str, Any]] = [getattr(known, "nodes", {}), getattr(known, "sources", {})]
    for node in (each for kind in nodes_and_sources for each in kind.values()):
        database, schema = getattr(node, "database", None), getattr(node, "schema", None)
        name = getattr(node, "identifier", None) or getattr(node, "alias", None) or getattr(node, "name", None)
        if database and schema and name and database.lower() != own_database.lower():
            yield database, schema, name
