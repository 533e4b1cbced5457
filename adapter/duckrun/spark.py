"""Spark for users, for dbt and for Dagster: sessions, one server for several processes, streams, and the engine itself.

Importing this module imports no PySpark and starts nothing. Example::

    from duckrun.spark import spark_session

    spark = spark_session(master="local[2]")
    with duckrun.connect("lake/", engine="spark", spark=spark) as s:
        s.sql("select 1 as n").show()
"""

from typing import TYPE_CHECKING

from duckrun.lazy import names_from

if TYPE_CHECKING:
    from duckrun.engines.spark.engine import SparkEngine
    from duckrun.engines.spark.process.connect import RunServer
    from duckrun.engines.spark.process.jars import STORE_PACKAGES, store_packages
    from duckrun.engines.spark.process.progress import Watch, page_settings, watch
    from duckrun.engines.spark.process.session import spark_session, stop_spark_session
    from duckrun.engines.spark.sql import quote
    from duckrun.engines.spark.streams import stream_table
    from duckrun.engines.spark.types import as_utc

__all__ = [
    "STORE_PACKAGES",
    "RunServer",
    "SparkEngine",
    "Watch",
    "as_utc",
    "page_settings",
    "quote",
    "spark_session",
    "stop_spark_session",
    "store_packages",
    "stream_table",
    "watch",
]

_ENGINE = "duckrun.engines.spark"

__getattr__ = names_from(
    __name__,
    {
        "RunServer": f"{_ENGINE}.process.connect",
        "STORE_PACKAGES": f"{_ENGINE}.process.jars",
        "SparkEngine": f"{_ENGINE}.engine",
        "Watch": f"{_ENGINE}.process.progress",
        "as_utc": f"{_ENGINE}.types",
        "page_settings": f"{_ENGINE}.process.progress",
        "quote": f"{_ENGINE}.sql",
        "spark_session": f"{_ENGINE}.process.session",
        "stop_spark_session": f"{_ENGINE}.process.session",
        "store_packages": f"{_ENGINE}.process.jars",
        "stream_table": f"{_ENGINE}.streams",
        "watch": f"{_ENGINE}.process.progress",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
