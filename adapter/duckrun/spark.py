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
    from duckrun.engines.spark.process.session import PYTHON_DAEMON, spark_session, stop_spark_session
    from duckrun.engines.spark.sql import quote
    from duckrun.engines.spark.streams import stream_table
    from duckrun.engines.spark.types import as_utc

else:
    __getattr__ = names_from(
        __name__,
        {
            "duckrun.engines.spark.engine": ("SparkEngine",),
            "duckrun.engines.spark.process.connect": ("RunServer",),
            "duckrun.engines.spark.process.jars": ("STORE_PACKAGES", "store_packages"),
            "duckrun.engines.spark.process.progress": ("Watch", "page_settings", "watch"),
            "duckrun.engines.spark.process.session": ("PYTHON_DAEMON", "spark_session", "stop_spark_session"),
            "duckrun.engines.spark.sql": ("quote",),
            "duckrun.engines.spark.streams": ("stream_table",),
            "duckrun.engines.spark.types": ("as_utc",),
        },
    )

__all__ = [
    "PYTHON_DAEMON",
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


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
