"""The environment of a dbt invocation: one in-memory DuckDB, its lakes and one set of pins."""

from __future__ import annotations

import copy
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC
from typing import TYPE_CHECKING, Any

import duckdb
from dbt.adapters.base import BaseRelation
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.duckdb.environments.local import DuckDBConnectionWrapper, DuckDBCursorWrapper, LocalEnvironment
from dbt.adapters.duckdb.plugins import BasePlugin
from dbt.adapters.duckrun import collector, spark
from dbt.adapters.duckrun.credentials import DuckrunCredentials
from dbt.adapters.duckrun.materialize.changed import NodeChanges, consumer_of
from dbt.adapters.duckrun.model.choices import DATABASE
from dbt.adapters.duckrun.model.node import Node, current, reading
from dbt.adapters.duckrun.model.returned import NoTable
from dbt.adapters.duckrun.together import LiveCatalog, OneCursor, Together, temporary_staging
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError
from dbt_common.invocation import get_invocation_started_at

import duckrun
from duckrun.branches.lake import open_branch
from duckrun.branches.publish import is_pending
from duckrun.changes.cursors import consumer_as_before
from duckrun.display.units import parse_bytes
from duckrun.engines.duckdb import DuckDBEngine, ViewCatalog, instance_config, load_extensions
from duckrun.errors import InvalidConfig, UnsupportedFeature, redacted
from duckrun.lake.lake import Lake
from duckrun.lake.lakes import Lakes
from duckrun.run.memory import Arbiter
from duckrun.run.pins import NOTHING, Pins
from duckrun.run.reruns import as_before
from duckrun.run.transaction import Transaction
from duckrun.run.work_log import Read, WorkLog
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.storage.extensions import UNSIGNED, extension_path
from duckrun.values.branches import STEP_VARIABLE
from duckrun.values.choices import BY_DELTA_RS
from duckrun.values.rows import WorkTransaction
from duckrun.values.snapshot import Snapshot, TableRef

if TYPE_CHECKING:
    from duckrun.spark import SparkEngine

RUN_ID_VARIABLE = "DUCKRUN_RUN_ID"
# The fraction of this machine's memory, 0 to 1, that a process which starts dbt assigns to it.
FRACTION_VARIABLE = "DUCKRUN_MEMORY_FRACTION"
# DuckDB counts its share only. Threads and allocators use more: 0.1 to 0.3 GB, measured with four
# merging threads and 2 GB.
_OF_THE_LIMIT = 0.8
_CANCEL_SECONDS = 0.2  # between two interrupts of a connection that is cancelled
# Extensions that come as wheels; a profile that names one gets the wheel, not a download.
_WHEELS = ("delta", "httpfs", "azure")
_OF_DUCKDB = ("extensions", "settings", "config_options", "attach", "secrets", "plugins")
"""Keys of a profile whose values DuckDB or a plugin reads when the connection opens."""


class LakeEnvironment(LocalEnvironment):
    """dbt-duckdb's local environment on a lake, for one invocation, so that no pin outlives it."""

    creds: DuckrunCredentials
    together: Together | None = None
    _engine: DuckDBEngine | None = None

    def __init__(self, credentials: DuckrunCredentials, invocation_id: str, *, whole: bool = False) -> None:
        """Set up the lakes of the profile; opens no connection.

        Args:
            credentials: The profile.
            invocation_id: dbt's id of the invocation.
            whole: The writes of the invocation are one transaction, which begin() begins.
        """
        super().__init__(credentials)
        self.whole = whole
        self.invocation_id = invocation_id
        self._started = get_invocation_started_at().replace(tzinfo=UTC).timestamp()  # dbt's value is naive UTC
        # A name without a schema is in schema main, as in DuckDB; dbt itself always names the
        # schema.
        self.lake = open_branch(
            credentials.root_path or "",
            credentials.branch,
            schema="main",
            storage_options=credentials.storage_options,
            form=credentials.lake_format(),
        )
        if variable := os.environ.get(STEP_VARIABLE):
            step, _, attempt = variable.rpartition(" ")
            self.lake.by = (step, attempt)
        self.lakes = Lakes(self.lake)
        for name, other in (credentials.lakes or {}).items():
            self.lakes.attach(
                other["root_path"],
                name,
                read_only=bool(other.get("read_only")),
                storage_options=other.get("storage_options"),
                form=credentials.lake_format(name),
            )
        self.pins = InvocationPins(self)
        self._spark: SparkEngine | None = None
        self._spark_lock = threading.Lock()
        self._catalogs: dict[str, ViewCatalog] = {}
        self._commits: Counter[str] = Counter()
        self._commits_lock = threading.Lock()
        self._looked_at: set[str] = set()
        """Roots of the lakes whose unfinished publishes are finished."""
        self.changes = NodeChanges(self.lakes, self.pins, self.work)
        self.arbiter = _arbiter(credentials.memory_limit)

    # -- DuckDB

    @property
    def engine(self) -> DuckDBEngine:
        self.start()
        assert self._engine is not None
        return self._engine

    @property
    def catalogs(self) -> dict[str, ViewCatalog]:
        """Return the views over each lake, by the name of its database."""
        self.start()
        return self._catalogs

    def catalog(self, database: str | None) -> ViewCatalog | None:
        """Return the views over the lake of a database; None if the database is no lake.

        Args:
            database: The name of the database; None for the project's own.
        """
        return self.catalogs.get((database or self.creds.database).lower())

    def views_of(self, ref: TableRef) -> ViewCatalog:
        """Return the views over the lake of a table."""
        return self.catalogs[(ref.catalog or self.creds.database).lower()]

    def ref_of(self, relation: BaseRelation) -> TableRef | None:
        """Return the table of a relation; None for a temporary relation or another database."""
        if not relation.schema or not relation.identifier:
            return None
        return self.place((relation.database or self.creds.database, relation.schema, relation.identifier))

    def present(self, relation: BaseRelation) -> TableRef | None:
        """Return the existing table or persisted view of a relation; None if there is none."""
        ref = self.ref_of(relation)
        lake = None if ref is None else self.lakes.of(ref)
        return ref if ref is not None and lake is not None and (lake.definition(ref) or lake.exists(ref)) else None

    def find(self, name: tuple[str, ...]) -> TableRef | None:
        """Return the existing table or persisted view of a name in SQL; None if no lake has it."""
        return self.place(name, existing=True)

    def place(self, name: tuple[str, ...], *, existing: bool = False) -> TableRef | None:
        """Return the table of a name in SQL; None for a name that no lake can have.

        The table may not exist yet. With ``existing``, None for a name that its lake does not list.
        """
        views = self.catalog(name[0] if len(name) == 3 else None)
        schema, table = (name[-2] if len(name) > 1 else "main"), name[-1]
        # is_name() is False, for example, for a name that starts with an underscore.
        if views is None or len(name) > 3 or not views.lake.is_name(schema, table):
            return None
        schema = views.schema(schema)
        table = views.name(schema, table)
        if existing and table not in views.names(schema):
            return None  # before resolve(), which reads from the store
        return views.lake.resolve(schema, table)

    def ensure_for(self, sql: str) -> None:
        """Create the missing views that a statement needs.

        The versions of the views are logged as the node's reads.
        """
        shown = [snapshot for catalog in self.catalogs.values() for snapshot in catalog.ensure_for(sql)]
        with reading(sql):
            for snapshot in shown:
                self.pins.log.note(snapshot.ref.location, Read.of(snapshot))

    def missing(self, sql: str, cursor: duckdb.DuckDBPyConnection) -> list[str]:
        """Return a sentence for each table that a query of a cursor reads, and its lake lacks."""
        listed = "SELECT lower(table_name) FROM duckdb_tables() UNION SELECT lower(view_name) FROM duckdb_views()"
        others = {name for (name,) in cursor.execute(listed).fetchall()}
        return [sentence for catalog in self.catalogs.values() for sentence in catalog.missing(sql, others)]

    def reads(self, sql: str) -> dict[str, int]:
        """Return the tables that a statement names, with the version of each in this run."""
        refs = [ref for catalog in self.catalogs.values() for ref in catalog.tables_in(sql)]
        return {str(ref): self.pins.snapshot(ref).version for ref in refs}

    def start(self) -> None:
        """Open DuckDB, with the views over each lake, unless it is open."""
        with self.lock:
            if self.conn is not None:
                return
            collector.spare()  # the manifest is loaded
            limit = self.arbiter.instance_limit(beside_delta_rs=self.creds.writer in BY_DELTA_RS)
            self._scratch = tempfile.TemporaryDirectory(prefix="duckrun-dbt-", ignore_cleanup_errors=True)
            ours = instance_config(limit, self._scratch.name)
            # dbt-duckdb would install the extensions and create the secrets here. Our extensions
            # come from wheels, and the secrets need them, so the plugin does both; it is called
            # next.
            bare = copy.copy(self.creds)
            bare.extensions = _to_install(self.creds.extensions or [])
            if not bare.extensions:  # DuckDB checks the signatures of all other extensions
                ours[UNSIGNED] = "true"
            bare.config_options = ours | (self.creds.config_options or {})
            bare._secrets = []
            wheels = _FromWheels("duckrun", {}, self.creds)
            wheels.lakes = tuple(self.lakes)
            with self._errors_of_profile():
                connection = self.initialize_db(bare, {**self._plugins, "duckrun": wheels})
            self.lake.format.lend(connection)
            self._engine = DuckDBEngine(self.lake, arbiter=self.arbiter, connection=connection, duckdb_limit=limit)
            for lake in self.lakes:
                name = lake.name or self.creds.database
                if lake.name is None and self.whole:
                    continue  # begin() attaches it
                if name != "memory":
                    connection.execute(f"ATTACH ':memory:' AS {quote_identifier(name)}")
                if lake.name is not None:
                    self._engine.reach(lake)
                views = ViewCatalog(connection, lake, self.pins, database=name, bare=lake.name is None)
                views.ensure_all = self.ensure_for
                self._catalogs[name.lower()] = views
            self.conn = connection

    @contextmanager
    def _errors_of_profile(self) -> Iterator[None]:
        """Name the keys of the profile in DuckDB's errors about their values."""
        try:
            yield
        except duckdb.Error as error:
            present = ", ".join(key for key in _OF_DUCKDB if getattr(self.creds, key, None)) or "options"
            raise DbtDatabaseError(f"DuckDB refuses the profile's {present}: {redacted(str(error))}") from error

    def begin(self, elsewhere: Iterable[tuple[str, str, str]]) -> None:
        """Begin the one transaction of the invocation, unless it has begun.

        Args:
            elsewhere: Relations of other lakes that the run reads: (database, schema, name). Their
                views are created first, since the transaction sees no view that is created later.
        """
        with self.lock:
            if self.together is not None:
                return
            self.start()
            for database, schema, name in elsewhere:
                views = self._catalogs.get(database.lower())
                if views is not None and views.lake.is_name(schema, name):
                    ref = views.lake.resolve(schema, name)
                    if views.lake.definition(ref) is not None or views.lake.exists(ref):
                        views.ensure(ref)
            together = Together(self.lake, self.engine)
            self.initialize_cursor(self.creds, together.cursor, self._plugins, self._REGISTERED_DF)
            self._catalogs[DATABASE] = LiveCatalog(self.lake, self.pins, together.cursor)
            self.together = together

    def end(self) -> None:
        """End the invocation's transaction, if any: publish it on success, else roll it back."""
        together = self.together
        if together is not None:
            self.whole, self.together = False, None
            together.end()

    def handle(self) -> LakeHandle:
        self.start()
        with self._errors_of_profile():
            handle = LakeHandle(super().handle()._cursor._cursor, self)
        if self.creds.publishes_together and not self.whole:
            handle.duckdb().execute(f"SET search_path = '{DATABASE}.main,memory.main'")
        return handle

    # -- Spark

    @property
    def spark(self) -> SparkEngine:
        """Return the engine of the nodes on Spark; the first of these nodes starts it.

        Raises:
            InvalidConfig: There is no Spark.
        """
        with self._spark_lock:  # a separate lock, so that DuckDB's nodes go on while Spark starts
            if self._spark is None:
                engine = spark.start_engine(self.lake, self.creds.spark or {})
                engine.driver = lambda: self.engine  # commits the files that Spark's workers write to a DuckLake
                for lake in self.lakes:
                    engine.reach(lake)
                self._spark = engine
            return self._spark

    def node(self) -> Node:
        """Return the node whose statements this thread sends; by default the profile's engine."""
        return current() or Node("", self.creds.engine)

    @classmethod
    def cancel(cls, connection: Any) -> None:
        """Stop the statements of a connection's thread; called by another thread."""
        connection.handle.interrupt()

    def close(self) -> None:
        if self.together is not None:
            together, self.together = self.together, None
            together.close()
        super().close()
        if self._engine is not None:
            self._engine.close()
            self._scratch.cleanup()
        self._engine = None
        self._catalogs = {}
        if self.lake.branch_name is not None:
            self.lake.close()  # removes the logs that Spark has read

    def session(self, engine: DuckDBEngine) -> duckrun.Session:
        """Return a session of the lakes and versions of this invocation, for statements."""
        return duckrun.Session(
            self.lake, arbiter=self.arbiter, pins=self.pins, lakes=self.lakes, engines={"duckdb": engine}
        )

    # -- commits

    def transaction(self, ref: TableRef, node: str, *, rows: bool = True) -> Transaction:
        """Return the transaction of the next commit of a node.

        Its application id names the work: the chain in DUCKRUN_RUN_ID (a Dagster run with its
        retries), else this invocation; and the node. An invocation is an attempt: it replaces the
        writes of an older attempt of the same work, so an append is counted once.

        Args:
            ref: The table.
            node: The unique id of the node.
            rows: The commit writes rows that the node computed.
        """
        lake = self.lakes.of(ref)
        self.refuse_elsewhere(ref, lake)
        self.views_of(ref).refuse_twin(ref)
        with self._commits_lock:
            if lake.root not in self._looked_at:
                self._looked_at.add(lake.root)
                self._finish_publishes(lake)
            ordinal = self._commits[node]
            self._commits[node] += 1
        app = self.work(node).nth(ordinal)
        return Transaction(lake, ref, app=app, pins=self.pins, reads=NOTHING if rows else None)

    def _finish_publishes(self, lake: Lake) -> None:
        """Finish publishes whose process has ended. Looks for them where a session does."""
        if lake.format.logs is not None and (lake.storage.is_local or lake.branch_name) and is_pending(lake):
            # A session imports sqlglot, which takes longer than a small model.
            from duckrun.sessions.branches import finish_publishes

            finish_publishes(self.session(self.engine), lake)

    def work(self, node: str) -> WorkTransaction:
        """Return a node's first write, by this attempt of the chain."""
        run = os.environ.get(RUN_ID_VARIABLE) or self.invocation_id
        return WorkTransaction(f"{run}/{node}", attempt=self.invocation_id, started=self._started)

    def is_to_make(self, database: str | None, schema: str, name: str) -> bool:
        """Return True for the current node's table if an older attempt created it.

        This attempt then creates it again.
        """
        node = current()
        relation = (str(database or self.creds.database).lower(), schema.lower(), name.lower())
        if node is None or node.relation != relation or not os.environ.get(RUN_ID_VARIABLE):
            return False
        ref = self.find((relation[0], schema, name))
        if ref is None or not self.lakes.of(ref).exists(ref):
            return False
        self.pins.snapshot(ref)
        return self.pins.is_made_by_older()

    def refuse_elsewhere(self, what: object, lake: Lake) -> None:
        """Refuse a write to another lake if a run is one transaction of the project's own.

        Raises:
            UnsupportedFeature: The lake is another one.
        """
        if self.together is not None and lake is not self.lake:
            raise UnsupportedFeature(
                f"{what} lies in another lake than {self.lake.root}, whose one transaction this run is (publish: "
                "together): build it in a run of its "
                "own, with publish: each."
            )

    def load_source(self, plugin_name: str, source_config: Any) -> str:
        if self.together is not None:
            raise UnsupportedFeature(
                f"Source {source_config.table_name()} is loaded by plugin {plugin_name} into DuckDB's memory, "
                "to which the transaction of publish: "
                "together cannot write. Read it with a function of DuckDB's, or set publish: each."
            )
        return super().load_source(plugin_name, source_config)

    # -- Python models

    def submit_python_job(self, handle: Any, parsed_model: dict, compiled_code: str) -> AdapterResponse:
        cursor = handle.duckdb()

        def load(name: str) -> duckdb.DuckDBPyRelation:
            statement = f"select * from {name}"
            self.ensure_for(statement)
            return cursor.query(statement)

        name = parsed_model["alias"]
        try:
            if self.together is None:
                self.run_python_job(cursor, load, name, compiled_code, self.creds)
            else:
                self.run_python_job(OneCursor(cursor), load, name, temporary_staging(compiled_code), self.creds)
        except DbtRuntimeError as error:
            if isinstance(error.__context__, NoTable):  # the message needs no traceback
                raise DbtRuntimeError(f"model {name}: {error.__context__}") from error
            raise
        return AdapterResponse(_message="OK")


def _arbiter(limit: str | int | None) -> Arbiter:
    """Return the arbiter of the process's memory: the profile's limit, else the starter's fraction.

    Raises InvalidConfig for an invalid fraction.
    """
    if limit is not None:
        return Arbiter(int(parse_bytes(limit) * _OF_THE_LIMIT))
    fraction = os.environ.get(FRACTION_VARIABLE)
    if not fraction:
        return Arbiter()
    try:
        return Arbiter(fraction=float(fraction))
    except (ValueError, InvalidConfig):
        raise InvalidConfig(f"{FRACTION_VARIABLE} is {fraction!r}; set it to a number above 0 and at most 1.") from None


class InvocationPins(Pins):
    """The versions that an invocation reads, shared by its nodes.

    Each node has its own log of reads.
    """

    advice = "run this node again, which reads anew"

    def __init__(self, env: LakeEnvironment) -> None:
        super().__init__(env.lakes)
        self._env = env
        self._looked: dict[str, bool] = {}
        """Node -> True if an older attempt created its table; only for nodes that have read it."""

    @property
    def log(self) -> WorkLog:
        node = current()
        return super().log if node is None else node.log

    def snapshot(self, ref: TableRef, load: Callable[..., Snapshot] | None = None) -> Snapshot:
        """Return the pinned snapshot of a table.

        A node reads its own table at the version before the commits of its older attempts.
        """
        pinned, node = super().snapshot(ref, load), self._node_of(ref)
        if node is None or node.name in self._looked or not os.environ.get(RUN_ID_VARIABLE):
            return pinned
        before = self._as_before(node, pinned)
        self._looked[node.name] = before is None
        if before is None or before.version == pinned.version:
            return pinned
        self.pin(before)
        self._env.views_of(ref).changed(ref)
        return before

    def _as_before(self, node: Node, newest: Snapshot) -> Snapshot | None:
        """Return a node's table before its older attempts' commits; None if they created it."""
        lake, work = self._env.lakes.of(newest.ref), self._env.work(node.name)
        if self._env.together is not None:
            return self._env.together.rewound(newest, work)
        before = as_before(lake.format, newest, work)
        if before is None or before.version != newest.version:
            return before
        return consumer_as_before(lake, newest, consumer_of(node.name), work)

    def _node_of(self, ref: TableRef) -> Node | None:
        """Return the current node if this is its own table, else None."""
        node, database = current(), ref.catalog or self._env.creds.database
        relation = (database.lower(), ref.schema.lower(), ref.name.lower())
        return node if node is not None and node.relation == relation else None

    def is_made_by_older(self) -> bool:
        """Return True if an older attempt created the current node's table.

        It is False again once this attempt writes the table.
        """
        node = current()
        return node is not None and self._looked.get(node.name, False)

    def moved(self, ref: TableRef, snapshot: Snapshot | None) -> None:
        super().moved(ref, snapshot)
        if (node := self._node_of(ref)) is not None:
            self._looked[node.name] = False

    def renew(self, ref: TableRef) -> None:
        super().renew(ref)
        if (node := self._node_of(ref)) is not None:
            self._looked.pop(node.name, None)
        self._env.views_of(ref).changed(ref)


class OtherText:
    """A cursor that runs one fixed text, whatever text it gets.

    dbt logs the text that it passes to a cursor, so a redacted text is passed.
    """

    def __init__(self, cursor: Any, text: str) -> None:
        self.cursor = cursor
        self._text = text

    def execute(self, sql: str, bindings: Any = None) -> Any:
        return self.cursor.execute(self._text, bindings)


class LakeHandle(DuckDBConnectionWrapper):
    """The connection of one thread: a cursor of DuckDB, and a Spark session if a node needs it."""

    _env: LakeEnvironment

    def __init__(self, cursor: Any, env: LakeEnvironment) -> None:
        super().__init__(cursor, env)
        self._session: spark.SparkNodeSession | None = None
        self._closed = threading.Event()
        self._text: str | None = None

    @contextmanager
    def running(self, text: str) -> Iterator[None]:
        """Let the cursors of a block run this text."""
        self._text = text
        try:
            yield
        finally:
            self._text = None

    def cursor(self) -> Any:
        """Return the cursor of the engine on which this thread's node runs."""
        node = self._env.node()
        if self._env.together is not None:
            cursor: Any = DuckDBCursorWrapper(self._env.together.cursor)
        else:
            cursor = self._cursor if node.engine == "duckdb" else spark.SparkCursor(self.spark(), node)
        return cursor if self._text is None else OtherText(cursor, self._text)

    def duckdb(self) -> duckdb.DuckDBPyConnection:
        """Return DuckDB's cursor without dbt-duckdb's wrappers.

        It is the cursor of the run's transaction, if there is one.
        """
        if self._env.together is not None:
            return self._env.together.cursor
        cursor: Any = self._cursor
        while not isinstance(cursor, duckdb.DuckDBPyConnection):
            cursor = cursor._cursor
        return cursor

    def spark(self) -> spark.SparkNodeSession:
        if self._session is None:
            self._session = spark.SparkNodeSession(self._env)
        return self._session

    def interrupt(self) -> None:
        """Stop the statements of this connection's thread until it is closed.

        Another thread calls it.
        """
        # An interrupt between two statements stops neither, and dbt interrupts only once: it would
        # wait for a query that begins just after, however long that takes. So a thread repeats it.
        threading.Thread(
            target=self._interrupting, args=(self.duckdb().interrupt,), name="duckrun-cancel", daemon=True
        ).start()

    def _interrupting(self, stop_statement: Callable[[], None]) -> None:
        while True:
            try:
                stop_statement()
            except duckdb.ConnectionException:  # the connection is closed
                return
            session = self._session
            if session is not None:
                session.interrupt()
            if self._closed.wait(_CANCEL_SECONDS):
                return

    def close(self) -> None:
        self._closed.set()
        if self._session is not None:
            self._session.close()
            self._session = None
        super().close()


def _to_install(extensions: Iterable[Any]) -> list[Any]:
    """Return the extensions of a profile that come neither from a wheel nor with DuckDB itself.

    Profiles often list ``parquet`` or ``json``. They are part of DuckDB's wheel, but an INSTALL
    downloads them, which fails without a network.
    """
    others = [each for each in extensions if each not in _WHEELS]
    if not others:
        return []
    with duckdb.connect() as bare:
        loaded = bare.execute("SELECT extension_name FROM duckdb_extensions() WHERE loaded").fetchall()
    return [each for each in others if (each,) not in loaded]


class _FromWheels(BasePlugin):
    """Plugin that loads the lakes' DuckDB extensions from wheels, then creates the secrets."""

    lakes: tuple[Lake, ...]
    creds: DuckrunCredentials

    def configure_connection(self, conn: duckdb.DuckDBPyConnection) -> None:
        default_lake, *others = self.lakes
        load_extensions(conn, [default_lake])
        if others:
            load_extensions(conn, others, narrow=True)
        # UTC gives the same instants on every machine, and as in a duckrun session. GLOBAL, since
        # cursors do not inherit a plain SET. A TimeZone in the profile's settings is set on each
        # cursor, and wins.
        conn.execute("SET GLOBAL TimeZone = 'UTC'")
        for name in _WHEELS:
            if name in (self.creds.extensions or []):
                conn.execute(f"LOAD {quote_literal(extension_path(name).as_posix())}")
        if UNSIGNED not in (self.creds.config_options or {}):
            conn.execute(f"SET GLOBAL {UNSIGNED} = false")
        for statement in self.creds.secrets_sql():
            conn.execute(statement)
