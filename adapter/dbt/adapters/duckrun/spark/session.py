"""Spark for the nodes of one dbt invocation: one engine, and per connection a session and cursors.

The temporary names of a session are its own.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from dbt.adapters.duckrun.model.node import Node, reading
from dbt.adapters.duckrun.statements import rows_changed
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

from duckrun.errors import DuckrunError
from duckrun.frame import Frame
from duckrun.session import Session
from duckrun.spark import without_classes
from duckrun.statements.values import Done

if TYPE_CHECKING:
    from dbt.adapters.duckrun.environment import LakeEnvironment

    from duckrun.lake.lake import Lake
    from duckrun.spark import SparkEngine

Row = tuple[Any, ...]

_UNKNOWN_ROUTINE = re.compile(
    r"UNRESOLVED_ROUTINE\S*\s+Cannot resolve routine (`[^ ]+`)|"
    r"UNRESOLVABLE_TABLE_VALUED_FUNCTION\S*\s+Could not resolve (`[^ ]+`)"
)


def start_engine(lake: Lake, options: Mapping[str, Any]) -> SparkEngine:
    """Start the engine of an invocation, on the profile's ``spark`` or on Spark of this process.

    The search order of the latter is that of spark_session().

    Raises:
        InvalidConfig: There is no Spark.
    """
    from duckrun.spark import SparkEngine, spark_session

    return SparkEngine(lake, spark_session(**options, storage=lake.storage))


class SparkNodeSession(Session):
    """A connection's session on Spark.

    Its statements read the pinned versions of the invocation, and DuckDB sees their commits.
    """

    def __init__(self, env: LakeEnvironment) -> None:
        super().__init__(env.lake, engine="spark", arbiter=env.arbiter, pins=env.pins, lakes=env.lakes)
        self.env = env
        self._engines["spark"] = env.spark
        if any(lake.has_catalog for lake in env.lakes):
            self._engines["duckdb"] = env.engine  # commits the files that Spark's workers write
        self._tag = f"duckrun-{uuid.uuid4().hex}"
        self._tagged = ExitStack()
        self._tagged.enter_context(env.spark.tagged(self._tag))

    @property
    def spark(self) -> Any:
        """Return the SparkSession, which a Python model gets as its session."""
        return self.env.spark.spark

    def execute(self, name: Any, *args: Any, **kwargs: Any) -> Any:
        ref = self.ref(name)
        done = super().execute(ref, *args, **kwargs)
        self.env.views_of(ref).changed(ref)
        return done

    def carry_out(self, text: str, dialect: str) -> Any:
        """Run SQL statements; return a Frame, or the result of the last statement."""
        result = self.sql(text, dialect=dialect)
        of_a_name = isinstance(result, Done) and result.statement not in _OF_NO_NAME
        if of_a_name and result.name.lower() not in self.temp_views:
            ref = self.lakes.locate(result.name).ref
            self.env.views_of(ref).changed(ref)
        return result

    def interrupt(self) -> None:
        """Stop this session's operations on Spark; called by another thread."""
        self.env.spark.interrupt(self._tag)

    def close(self) -> None:
        """Forget the session; the engine belongs to the invocation."""
        self._tagged.close()
        self._engines.clear()


_OF_NO_NAME = ("CREATE SCHEMA", "DROP SCHEMA", "USE")
"""Statements that neither create nor drop a table or view."""


class SparkCursor:
    """Cursor with one result: the rows of a query, or one row with the count of changed rows."""

    def __init__(self, session: SparkNodeSession, node: Node) -> None:
        self.session = session
        self.node = node
        self._rows: list[Row] = []
        self._schema: pa.Schema | None = None

    def execute(self, sql: str, bindings: Any = None) -> SparkCursor:
        """Run the statements of a text, in the dialect of the node. Raises DbtRuntimeError."""
        if bindings is not None:
            raise DbtRuntimeError(f"{self.node.name}: Spark takes no parameters; put the values into the statement.")
        self._rows, self._schema = [], None
        with spark_errors(self.node), reading(sql):
            result = self.session.carry_out(sql, self.node.dialect)
            table = result.toArrow() if isinstance(result, Frame) else pa.table({"Count": [rows_changed(result)]})
        self._schema = table.schema
        self._rows = rows_of(table)
        return self

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """Return name and Arrow type of each column, in DB-API's shape."""
        if self._schema is None:
            return None
        return [(field.name, field.type, None, None, None, None, True) for field in self._schema]

    def fetchall(self) -> list[Row]:
        rows, self._rows = self._rows, []
        return rows

    def fetchmany(self, size: int = 1) -> Sequence[Row]:
        rows, self._rows = self._rows[:size], self._rows[size:]
        return rows

    def fetchone(self) -> Row | None:
        return self._rows.pop(0) if self._rows else None

    def close(self) -> None:
        self._rows = []


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of an Arrow table as Python values, by position, since names may repeat."""
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []


@contextmanager
def spark_errors(node: Node) -> Iterator[None]:
    """Turn errors of Spark or the lake into dbt's database errors, which name the node."""
    try:
        yield
    except DuckrunError as error:
        raise DbtDatabaseError(_explained(node, str(error))) from error
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j", "grpc")):
            raise
        left_out = ("JVM", "\tat ", "An error occurred while calling ")
        lines = [
            without_classes(line) for line in str(error).splitlines() if line.strip() and not line.startswith(left_out)
        ]
        raise DbtDatabaseError(_explained(node, "\n".join(lines[:5]))) from error


def _explained(node: Node, text: str) -> str:
    routine = _UNKNOWN_ROUTINE.search(text)
    if routine is None:
        return text if node.name in text or not node.name else f"{node.name}: {text}"
    advice = "Use one that Spark has"
    if node.dialect == "duckdb":
        advice = (
            "The SQL is written in DuckDB's dialect, "
            "and its translation passes on the functions that it does not know. Use "
            "one that both engines have, set dialect: spark and write Spark's SQL"
        )
    return (
        f"{node.name or 'This statement'}: Spark has no function {routine[1] or routine[2]}. "
        f"{advice}, or run it with engine: duckdb."
    )
