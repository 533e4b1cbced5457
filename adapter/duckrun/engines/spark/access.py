"""Spark session of a lake, with the few calls that reads and writes share.

Functions of the Spark engine take this value instead of the engine.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from duckrun.engines.spark.foreign_servers import other_implementation
from duckrun.engines.spark.process.databases import own_statements
from duckrun.engines.spark.process.own_session import session_with
from duckrun.engines.spark.process.session import apply_storage, spark_session
from duckrun.engines.spark.sql import quote
from duckrun.engines.spark.types import storable_table
from duckrun.libraries import pa
from duckrun.storage.storage import Storage
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkAccess:
    """Spark session with the credentials of one lake.

    Args:
        spark: A classic or Connect session. None is the shared session of this process, started on
            first use.
    """

    def __init__(self, storage: Storage, spark: SparkSession | None = None) -> None:
        self.storage = storage
        if spark is not None:  # a session started here already has the credentials
            apply_storage(spark, storage)
            self.spark = spark

    @cached_property
    def spark(self) -> SparkSession:
        """Spark session with this lake's credentials."""
        return spark_session(storage=self.storage)

    def sql(self, text: str, **values: Any) -> DataFrame:
        """Run a statement of this library."""
        with own_statements():
            return self.spark.sql(text, **values)

    def location_of(self, location: str) -> str:
        """Return a location as Spark addresses it."""
        return self.storage.spark_location(location)

    def read(self, snapshot: Snapshot) -> DataFrame:
        """Return the rows of a snapshot of a Delta table."""
        location, version = snapshot.log()
        return self.spark.read.format("delta").option("versionAsOf", version).load(self.location_of(location))

    def from_arrow(self, table: pa.Table) -> DataFrame:
        """Return rows of this process as a DataFrame."""
        from pyspark.sql.pandas.types import from_arrow_schema

        table = storable_table(table)
        # Without a schema Spark would read a timestamp without time zone in the session's zone.
        schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
        return self.spark.createDataFrame(table, schema)

    def ansi(self) -> bool:
        """True if a cast that does not fit raises."""
        return str(self.spark.conf.get("spark.sql.ansi.enabled", "true")).lower() == "true"

    @contextmanager
    def view(self, frame: DataFrame) -> Iterator[str]:
        """Yield the name of a temporary view of a frame while a statement runs."""
        name = f"__duckrun_{uuid.uuid4().hex}"
        frame.createOrReplaceTempView(name)
        try:
            yield quote(name)
        finally:
            frame.sparkSession.catalog.dropTempView(name)

    @contextmanager
    def session_with(self, settings: Mapping[str, str]) -> Iterator[SparkSession]:
        """Yield a session for one statement, whose settings no other statement has."""
        if other_implementation(self.spark) is not None:  # it knows neither copies nor the settings
            yield self.spark
            return
        with session_with(self.spark, settings) as session:
            yield session

    @contextmanager
    def frame_with(self, frame: DataFrame, settings: Mapping[str, str]) -> Iterator[DataFrame]:
        """Yield the rows of a frame to write, with settings that no other statement has."""
        if not settings or other_implementation(frame.sparkSession) is not None:
            yield frame
            return
        # The session of a frame is fixed. A temporary view takes its rows into the copy.
        with self.view(frame) as view, session_with(frame.sparkSession, settings) as session:
            yield session.table(view)


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Yield the rows of a frame, read once and materialized by Spark until the block ends.

    The source of a write may return other rows when it is read again.
    """
    rows = frame.localCheckpoint()
    try:
        yield rows
    finally:
        # With Spark Connect (4.1), Python tells the server to release the rows when it destroys
        # their plan. The garbage collector may do that in a thread that gRPC has just started. The
        # call then waits for the lock of its own channel, and the process hangs forever. So tell
        # the server here, in the thread of the write, and leave nothing to tell later. A classic
        # frame has no plan; Spark's own cleaner releases its rows.
        # https://github.com/apache/spark/pull/53783
        plan = getattr(rows, "_plan", None)
        if plan is not None:
            plan.__del__()
            plan._relation_id = None
