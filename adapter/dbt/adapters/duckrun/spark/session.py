"""Spark for the nodes of one dbt invocation: one engine, and for each connection a session whose temporary names are its own."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dbt.adapters.duckrun.model.node import Node
from dbt_common.exceptions import DbtDatabaseError

from duckrun.errors import DuckrunError
from duckrun.session import Session
from duckrun.statements.values import Done
from duckrun.values.rows import Commit
from duckrun.values.tables import MaintenanceResult

if TYPE_CHECKING:
    from dbt.adapters.duckrun.environment import LakeEnvironment

    from duckrun.lake.lake import Lake
    from duckrun.spark import SparkEngine

SPARK_KEYS = ("master", "remote", "conf", "packages")
_UNKNOWN_ROUTINE = re.compile(
    r"UNRESOLVED_ROUTINE\S*\s+Cannot resolve routine (`[^ ]+`)|"
    r"UNRESOLVABLE_TABLE_VALUED_FUNCTION\S*\s+Could not resolve (`[^ ]+`)"
)


def start_engine(lake: Lake, options: Mapping[str, Any]) -> SparkEngine:
    """The engine of an invocation: on the Spark that the profile's ``spark`` names, else on the one that this process
    has or is told of (spark_session() says in which order). Raises InvalidConfig where there is none.
    """
    from duckrun.spark import SparkEngine, spark_session

    return SparkEngine(lake, spark_session(**options, storage=lake.storage))


class SparkNodeSession(Session):
    """What a connection runs on Spark: its statements read what the invocation has pinned, and DuckDB sees their commits."""

    def __init__(self, env: LakeEnvironment) -> None:
        super().__init__(env.lake, engine="spark", arbiter=env.arbiter, pins=env.pins, lakes=env.lakes)
        self.env = env
        self._engines["spark"] = env.spark
        if any(lake.format.transacts for lake in env.lakes):
            self._engines["duckdb"] = env.engine  # it commits what Spark's workers write
        self._tag = f"duckrun-{uuid.uuid4().hex}"
        self.spark.addTag(self._tag)  # of this thread's operations

    @property
    def spark(self) -> Any:
        """The SparkSession, which is what a Python model gets as its session."""
        return self.env.spark.spark

    def execute(self, name: Any, *args: Any, **kwargs: Any) -> Any:
        ref = self.ref(name)
        done = super().execute(ref, *args, **kwargs)
        self.env.views_of(ref).changed(ref)
        return done

    def carry_out(self, text: str, dialect: str) -> Any:
        """The result of SQL statements: a Frame, or what the last one did."""
        result = self.sql(text, dialect=dialect)
        of_a_name = isinstance(result, Done) and result.statement not in _OF_NO_NAME
        if of_a_name and result.name.lower() not in self.temp_views:
            ref = self.lakes.locate(result.name).ref
            self.env.views_of(ref).changed(ref)
        return result

    def interrupt(self) -> None:
        """Stop what this session's thread has running on Spark; called by another thread."""
        self.spark.interruptTag(self._tag)

    def close(self) -> None:
        """Forget the session; the engine is the invocation's."""
        self.spark.removeTag(self._tag)
        self._engines.clear()


_OF_NO_NAME = ("CREATE SCHEMA", "DROP SCHEMA", "USE", "PREPARE", "DEALLOCATE")
"""What statements do that neither make nor drop a table or view."""


@contextmanager
def spark_errors(node: Node) -> Iterator[None]:
    """What Spark or the lake raises as dbt's error of the database, in one paragraph that names the node."""
    try:
        yield
    except DuckrunError as error:
        raise DbtDatabaseError(_explained(node, str(error))) from error
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j", "grpc")):
            raise
        lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(("JVM", "\tat "))]
        raise DbtDatabaseError(_explained(node, "\n".join(lines[:5]))) from error


def _explained(node: Node, text: str) -> str:
    found = _UNKNOWN_ROUTINE.search(text)
    if found is None:
        return text if node.name in text or not node.name else f"{node.name}: {text}"
    advice = "Use one that Spark has"
    if node.dialect == "duckdb":
        advice = (
            "The SQL is written in DuckDB's dialect, and its translation passes on the functions that it does not know. Use "
            "one that both engines have, set dialect: spark and write Spark's SQL"
        )
    return f"{node.name or 'This statement'}: Spark has no function {found[1] or found[2]}. {advice}, or run it with engine: duckdb."


def rows_changed(done: Any) -> int:
    """How many rows a statement changed, as DuckDB gives it for one."""
    if isinstance(done, Commit):
        return sum(filter(None, (done.rows_inserted, done.rows_updated, done.rows_deleted)))
    return 0 if isinstance(done, Done | MaintenanceResult) else int(done.count())  # the rows of a RETURNING
