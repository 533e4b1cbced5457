"""``publish: together``: a run of dbt is one transaction of its lake, of which nobody sees anything before all of it is there.

dbt gives an adapter no place at the end of a run where it says how that went. So its events are listened to (each node's and each
hook's end), and the transaction ends where dbt closes its connections, which is after the hooks on-run-end.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import duckdb
from dbt.adapters.events.logging import AdapterLogger
from dbt_common.events.event_manager_client import add_callback_to_manager, get_event_manager
from dbt_common.exceptions import DbtRuntimeError

from duckrun.engines.duckdb import ViewCatalog
from duckrun.errors import CommitConflict, DuckrunError
from duckrun.formats.commits import CommitTaken, TakenBack
from duckrun.lake.lake import TableRef, ViewDefinition
from duckrun.run.reruns import NotTakenBack, of_older_attempts
from duckrun.run.transaction import Transaction
from duckrun.run.transactions import whole_on
from duckrun.sql.names import quote_identifier
from duckrun.values.rows import NO_TABLE, WorkTransaction
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from dbt.adapters.duckrun.environment import LakeEnvironment

logger = AdapterLogger("Duckrun")

PUBLISH = ("each", "together")
COMMANDS = ("run", "build", "seed", "snapshot", "clone")
"""What is one transaction. ``retry`` is refused: what had succeeded in the run before was not published."""
DATABASE = "lake"
"""What the lake is called in SQL: while a transaction is open, it is a database of DuckDB's."""
_STAGING = re.compile(r"\bcreate\s+table\s+(?=\"temp\"\.\"main\"\.\"_duckrun_staging_)", re.IGNORECASE)
_GOOD = ("success", "pass", "warn", "no-op", "NO-OP")


class LiveCatalog(ViewCatalog):
    """The names of a lake that is itself a database of the instance: no views are made, and what a statement reads is what is there."""

    def __init__(self, env: LakeEnvironment, cursor: duckdb.DuckDBPyConnection, database: str) -> None:
        super().__init__(cursor, env.lake, env.pins, database=database)
        self._cursor = cursor

    def _listed(self, folded: str, schema: str) -> dict[str, tuple[str, str]]:
        if folded not in self._names:
            rows = self._cursor.execute(
                "SELECT table_name, 'table' FROM duckdb_tables() WHERE database_name = $1 AND lower(schema_name) = $2 "
                "UNION ALL SELECT view_name, 'view' FROM duckdb_views() WHERE database_name = $1 AND lower(schema_name) = $2",
                [self.database, folded],
            ).fetchall()
            self._names[folded] = {name.lower(): (name, kind) for name, kind in rows}
        return self._names[folded]

    def _make_view(self, key: tuple[str, str], ref: TableRef, definition: ViewDefinition) -> None:
        self._create(key, ref, "", reads=frozenset(k for k, _ in self._keys(definition.sql)))

    def _create(self, key: Any, ref: TableRef, sql: str, *, reads: Any = frozenset(), shown: Any = None) -> None:
        self._show(key, quote_identifier(self.database, ref.schema, ref.name), reads, shown)

    def _drop(self, key: tuple[str, str]) -> None:
        """There is no view to drop."""


class Together:
    """The one transaction of an invocation. All that the invocation asks runs on its ``cursor``."""

    def __init__(self, env: LakeEnvironment) -> None:
        self._env = env
        self._open = ExitStack()
        self._lock = threading.Lock()
        self._started: set[str] = set()
        self._ended: set[str] = set()
        self.failures: list[str] = []
        whole = whole_on(env.lake, "duckdb")
        try:
            self.cursor = self._open.enter_context(env.engine.on_one_cursor())
            self._work = self._open.enter_context(whole.together_on(self.cursor, DATABASE))
            self.cursor.execute(f"SET search_path = '{DATABASE}.main,memory.main'")
        except BaseException:
            self._open.__exit__(*sys.exc_info())
            raise
        add_callback_to_manager(self._hear)

    # -- what happens in the run

    def _hear(self, message: Any) -> None:
        """Take down how the nodes and hooks of the run end."""
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
        """Raise for a node whose work would be taken back in any case. Tests of what is there still run, as long as they can."""
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
        """A node's table as it was before the commits of its older attempts, which it is from now on in this transaction; None if they made it.
        The table as it is if they cannot be taken back.
        """
        form, ref = self._env.lake.format, newest.ref
        records = of_older_attempts(form, newest, work)
        if not records:
            return newest
        try:
            base = Transaction(self._env.lake, ref).base_instead_of(records)
        except NotTakenBack:  # which the node's write says, if it depends on it
            return newest
        if base == NO_TABLE:
            return None
        before = form.snapshot(ref, base)
        # DuckDB reads the table of the transaction itself, no view at a version. The node's commit says what was taken back.
        form.taken_back(self._work, TakenBack(records, newest, base=before))
        return before

    # -- the end

    def end(self) -> None:
        """Publish what the run wrote if all of it went well, else take it back. Raises DbtRuntimeError where it cannot be published."""
        why = self._why_not()
        if self._hear in get_event_manager().callbacks:
            get_event_manager().callbacks.remove(self._hear)
        root = self._env.lake.root
        if why is not None:
            self._take_back()
            logger.warning(
                f"Nothing of this run was published: {why}. Lake {root} is as it was before; run all of it again (publish: together)."
            )
            return
        try:
            self.cursor.execute("RESET search_path")
            self._open.close()
        except (CommitTaken, CommitConflict) as error:
            raise DbtRuntimeError(
                f"Nothing of this run was published: another program committed to lake {root} meanwhile. Run all of it again. ({error})"
            ) from error
        except (DuckrunError, duckdb.Error) as error:
            raise DbtRuntimeError(f"Nothing of this run was published: {error}") from error
        made = self._work.made
        logger.info(
            f"Lake {root} is as it was: this run changed nothing."
            if made is None
            else f"Published together: snapshot {made} of lake {root}."
        )

    def _why_not(self) -> str | None:
        with self._lock:
            failures, unfinished = list(self.failures), sorted(self._started - self._ended)
        if failures:
            first = next((each for each in failures if "(skipped)" not in each), failures[0])
            others = "" if len(failures) == 1 else f", and {len(failures) - 1} more"
            return f"{first}{others}"
        if unfinished:
            return f"{unfinished[0]} did not finish"
        error = sys.exc_info()[1]  # what dbt's run ends with, as it closes its connections
        return None if error is None else f"the run was ended by {type(error).__name__}"

    def _take_back(self) -> None:
        stopped = _Taken()
        self._open.__exit__(_Taken, stopped, None)

    def close(self) -> None:
        """Take back what was not published."""
        self._take_back()


def temporary_staging(text: str) -> str:
    """SQL, or code that holds it, as it makes a staging table in a transaction: a temporary one, which dbt-duckdb's macros do not."""
    return _STAGING.sub("create temporary table ", text)


@contextmanager
def one_cursor(cursor: duckdb.DuckDBPyConnection) -> Iterator[Any]:
    """A cursor that is its own cursor: what dbt-duckdb runs on one beside it is in the transaction too."""
    yield _OneCursor(cursor)


class _OneCursor:
    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor

    def cursor(self) -> duckdb.DuckDBPyConnection:
        return self._cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


class _Taken(Exception):
    """The transaction is not to be committed."""


def relations_elsewhere(known: Any, own: str) -> Iterator[tuple[str, str, str]]:
    """Database, schema and name of the models and sources of a manifest that are not in the project's own lake."""
    found: Sequence[Mapping[str, Any]] = [getattr(known, "nodes", {}), getattr(known, "sources", {})]
    for node in (each for kind in found for each in kind.values()):
        database, schema = getattr(node, "database", None), getattr(node, "schema", None)
        name = getattr(node, "identifier", None) or getattr(node, "alias", None) or getattr(node, "name", None)
        if database and schema and name and database.lower() != own.lower():
            yield database, schema, name
