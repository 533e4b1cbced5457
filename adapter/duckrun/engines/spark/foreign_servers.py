"""Spark Connect servers that are not Apache Spark, and the Delta writes that they get wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from duckrun.errors import UnsupportedFeature
from duckrun.values.rows import RowSpec, WriteSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from duckrun.lake.lake import Lake
    from duckrun.values.snapshot import TableRef

_known: WeakKeyDictionary[SparkSession, str | None] = WeakKeyDictionary()


def other_implementation(session: SparkSession) -> str | None:
    """Return the version of a Connect server that is not Apache Spark, such as Sail.

    None for Apache Spark.
    """
    if "connect" not in type(session).__module__:
        return None
    if session not in _known:
        # Other servers report the Spark version of the protocol, but their own as version().
        program = str(session.sql("select version()").collect()[0][0]).partition(" ")[0]
        _known[session] = None if program == str(session.version) else program
    return _known[session]


def refuse_other_server(session: SparkSession, what: str, effect: str = "") -> None:
    """Raise UnsupportedFeature on a Connect server that is not Apache Spark.

    Args:
        session: The session.
        what: Start of the message, before what the server is.
        effect: End of the message: what such a server does.
    """
    if (other := other_implementation(session)) is not None:
        raise UnsupportedFeature(
            f"{what} the Spark Connect server is not Apache Spark (its version is {other}){effect}",
            remedy="Run this with engine: duckdb, or on Apache Spark (docs/sail.md)",
        )


def refuse_what_it_would_get_wrong(session: SparkSession, spec: RowSpec, lake: Lake, table: TableRef) -> None:
    """Raise UnsupportedFeature for a write that another server carries out wrongly, without error.

    Measured with Sail 0.7.2: a dynamic partition overwrite replaces the whole table. A replacement
    takes rows outside its predicate. The commit has no application id, and that of a statement no
    note.
    """
    if isinstance(spec, WriteSpec) and spec.mode in ("error", "ignore", "overwrite"):
        return
    if isinstance(spec, WriteSpec) and spec.mode == "append" and spec.app is None:
        return
    if other_implementation(session) is None:
        return
    if spec.mode in ("replace", "merge", "delete+insert") and not lake.exists(table):
        return
    appends = spec.mode == "append"
    why = "it keeps no application id, so a retry would append twice" if appends else "it would change other rows"
    refuse_other_server(session, f"{spec.mode} on table {table}:", f", and {why} or not tell what it did")
