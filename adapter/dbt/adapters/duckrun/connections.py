"""Connections to the one DuckDB instance of a dbt invocation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb
from dbt.adapters.contracts.connection import AdapterResponse, Connection, ConnectionState
from dbt.adapters.duckdb.connections import DuckDBConnectionManager
from dbt.adapters.duckdb.environments.local import DuckDBCursorWrapper
from dbt.adapters.duckrun import spark
from dbt.adapters.duckrun.model.choices import COMMANDS
from dbt.adapters.duckrun.model.node import staged
from dbt.adapters.duckrun.on_demand import environment, information, response, statements, together
from dbt.adapters.events.logging import AdapterLogger
from dbt.flags import get_flags
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError
from dbt_common.invocation import get_invocation_id

from duckrun.errors import DuckrunError, redact, redacted
from duckrun.sql.quoting import quote_identifier

if TYPE_CHECKING:
    from dbt.adapters.duckrun.environment import LakeEnvironment

logger = AdapterLogger("Duckrun")

_NEAREST = re.compile(r"\nDid you mean [^\n]*")
"""The line of DuckDB's error about an unknown name."""


class DuckrunConnectionManager(DuckDBConnectionManager):
    """Connection manager: cursors of one DuckDB instance, and sessions on Spark."""

    TYPE = "duckrun"

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        """Open a cursor of this invocation's instance, which the first call starts."""
        if connection.state == ConnectionState.OPEN:
            return connection
        credentials = cls.get_credentials(connection.credentials)
        invocation = get_invocation_id()
        with cls._LOCK:
            # The environment is stored where dbt-duckdb stores its own: its relations and adapter
            # look there. Two invocations in one process never share it: the pins and views of the
            # first would show old versions to the next.
            env = DuckDBConnectionManager._ENV
            if (
                not isinstance(env, environment.LakeEnvironment)
                or env.creds is not credentials
                or env.invocation_id != invocation
            ):
                # An environment of the same invocation may be in use: dagster-dbt makes several
                # adapters.
                if env is not None and getattr(env, "invocation_id", "") != invocation:
                    try:
                        env.close()
                    except Exception as error:
                        logger.debug(f"Ignoring an error while closing the previous environment: {error}")
                DuckDBConnectionManager._ENV = None
                try:
                    whole = credentials.publishes_together and get_flags().WHICH in COMMANDS
                    env = environment.LakeEnvironment(credentials, invocation, whole=whole)
                    env.start()  # raises DuckDB's errors here
                    if credentials.branch is not None:
                        logger.info(f"Branch {credentials.branch} of lake {env.lake.root}")
                    DuckDBConnectionManager._ENV = env  # type: ignore[assignment]
                except DuckrunError as error:
                    connection.handle = None
                    connection.state = ConnectionState.FAIL
                    raise DbtRuntimeError(str(error)) from error
        return super().open(connection)

    @classmethod
    def close_all_connections(cls) -> None:
        DuckDBConnectionManager.close_all_connections()

    @contextmanager
    def exception_handler(self, sql: str, connection_name: str = "master") -> Iterator[None]:
        """Turn DuckDB's errors into dbt's database errors, without the secrets of URLs."""
        try:
            with super().exception_handler(redacted(sql), connection_name):
                try:
                    yield
                except duckdb.Error as error:
                    # DuckDB knows the views that statements needed, not what the lakes hold.
                    # Its nearest name is one of its own tables then.
                    if isinstance(error, duckdb.CatalogException):
                        missing = self.lake_env().missing(sql, self.raw_cursor())
                        text = _NEAREST.sub("", str(error)) if missing else str(error)
                        error.args = ("\n".join([*missing, text]),)
                    redact(error)
                    raise
        except DbtDatabaseError:
            raise
        except DbtRuntimeError as error:
            if isinstance(error.__cause__ or error.__context__, duckdb.Error):
                raise DbtDatabaseError(str(error.__cause__ or error.__context__)) from error
            raise

    def lake_env(self) -> LakeEnvironment:
        """Return the environment of this thread's connection, which is opened on demand."""
        return self.get_thread_connection().handle._env

    def add_query(
        self,
        sql: str,
        auto_begin: bool = True,
        bindings: Any | None = None,
        abridge_sql_log: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[Connection, Any]:
        """Run SQL, with the views that it needs.

        The session carries out the statements that change a lake.

        ``auto_begin`` is dropped: with transactions off, nothing may begin one (see credentials).
        """
        with self.exception_handler(sql):
            env = self.lake_env()
            if self._on_spark():
                if bindings is None and statements.drop_schema_of(env, sql):
                    sql = "select 0 as Count"
                return self._logged(sql, bindings, abridge_sql_log, *args, **kwargs)
            cursor = self.raw_cursor()
            query = staged()
            if env.together is not None:
                statements.refuse_ends(sql)
                query, sql = None, together.temporary_staging(sql)
            else:
                listed = information.listed(env, cursor, sql)
                # A ";" may end the staging and begin a statement on a lake.
                query = None if query is None or listed != sql or ";" in query else query
                sql = listed
            # A model may have thousands of tokens, and the names of its query are needed again
            # afterwards. So the query is split into tokens, and not the statement around it.
            parts = statements.parts_of(env, cursor, sql) if bindings is None and query is None else []
            if not parts:
                env.ensure_for(sql if query is None else query)
            for part, rows in statements.carry_out_all(env, cursor, parts):
                logger.debug(f"{part.target or 'DuckDB'}: {redacted(part.text)}")
                sql = f"select {rows or 0} as {quote_identifier('Count')}"  # DuckDB's result of such a statement
        return self._logged(sql, bindings, abridge_sql_log, *args, **kwargs)

    def _logged(self, sql: str, *args: Any, **kwargs: Any) -> tuple[Connection, Any]:
        """Run SQL, and log it without the secrets of its URLs."""
        shown, handle = redacted(sql), self.get_thread_connection().handle
        if shown == sql:
            return super().add_query(sql, False, *args, **kwargs)
        with handle.running(sql):
            connection, cursor = super().add_query(shown, False, *args, **kwargs)
        return connection, cursor.cursor

    def add_begin_query(self) -> Any:
        return None if self._without_transactions() else super().add_begin_query()

    def add_commit_query(self) -> Any:
        return None if self._without_transactions() else super().add_commit_query()

    def _without_transactions(self) -> bool:
        """Return True on Spark, and if the whole run is one transaction already."""
        return self._on_spark() or self.lake_env().together is not None

    def _on_spark(self) -> bool:
        """Return True on Spark, where each statement is a transaction of its own."""
        return self.lake_env().node().engine == "spark"

    def raw_cursor(self) -> duckdb.DuckDBPyConnection:
        """Return the DuckDB cursor of this thread's connection, without dbt-duckdb's wrappers."""
        return self.get_thread_connection().handle.duckdb()

    def spark_session(self) -> spark.SparkNodeSession:
        """Return the Spark session of this thread's connection."""
        return self.get_thread_connection().handle.spark()

    @classmethod
    def get_response(cls, cursor: Any) -> AdapterResponse:
        cursor = cursor.cursor if isinstance(cursor, environment.OtherText) else cursor
        engine = "duckdb" if isinstance(cursor, DuckDBCursorWrapper) else "spark"
        return response.DuckrunResponse(_message="OK", engine=engine)
